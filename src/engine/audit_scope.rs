//! Who asks, what they may do, and the record of what they did.

use std::{
    fmt::Write as _,
    sync::{Arc, OnceLock},
    time::Instant,
};

use sha2::{Digest as _, Sha256};

use super::{Engine, Host, audit::Entry};
use crate::api::{Error, ErrorCode, Result, Tier};

/// Who asks the engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// By which face: `unix`, `http`, `mcp` and so on.
    pub face: &'static str,
    /// Whoever is behind it, as far as the face knows: a process, an address.
    pub who: String,
}

impl Default for Caller {
    /// The engine's owner.
    fn default() -> Self {
        Self { face: "engine", who: String::new() }
    }
}

/// Something that changes tmux, from the question whether it is allowed to its record.
pub(super) struct AuditScope<'a> {
    engine: &'a Engine,
    action: &'static str,
    host: &'a Host,
    target: &'a str,
    resolved: OnceLock<String>,
    input: Option<(usize, String)>,
    started: Instant,
    finished: bool,
}

impl Engine {
    /// The same engine for this caller: what it asks is counted and recorded as its own.
    pub fn with_caller(&self, caller: Caller) -> Self {
        Self { shared: self.shared.clone(), caller: Arc::new(caller) }
    }

    /// Who asks.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Error: `READ_ONLY` where this is not allowed, which is recorded.
    pub fn authorize(&self, tier: Tier) -> Result<()> {
        self.check_tier(tier).inspect_err(|refused| self.record(tier.as_str(), refused.code.as_str()))
    }

    /// Records what belongs to no tmux server.
    pub fn record(&self, action: &str, result: &str) {
        let Some(audit) = &self.shared.options.audit else { return };
        let Caller { face, who } = self.caller();
        let (server, target, pane) = ("", None, None);
        audit.record(&Entry { face, who, server, target, pane, action, result, bytes: None, sha256: None, ms: 0 });
    }

    fn check_tier(&self, tier: Tier) -> Result<()> {
        if self.shared.options.allowed.has(tier) {
            return Ok(());
        }
        let allowed = self.shared.options.allowed.names().join(", ");
        Err(Error::new(
            ErrorCode::ReadOnly,
            format!("this muxtap does not allow `{tier}`, only: {allowed}; see `muxtap config`"),
        ))
    }

    /// Begins something that changes tmux. Error: `READ_ONLY`, which is recorded.
    pub(super) fn audit<'a>(
        &'a self,
        tier: Tier,
        action: &'static str,
        host: &'a Host,
        target: &'a str,
    ) -> Result<AuditScope<'a>> {
        let resolved = OnceLock::new();
        let audit = AuditScope {
            engine: self,
            action,
            host,
            target,
            resolved,
            input: None,
            started: Instant::now(),
            finished: false,
        };
        match self.check_tier(tier) {
            Ok(()) => Ok(audit),
            Err(refused) => audit.finish(Err(refused)),
        }
    }
}

impl AuditScope<'_> {
    /// What is typed: its length and digest are recorded, never itself.
    pub(super) fn input(mut self, bytes: impl FnOnce() -> Vec<u8>) -> Self {
        if self.engine.shared.options.audit.is_some() {
            let bytes = bytes();
            let digest = Sha256::digest(&bytes).iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
            self.input = Some((bytes.len(), digest));
        }
        self
    }

    /// What the target turned out to mean.
    pub(super) fn resolved(&self, id: impl std::fmt::Display) {
        // Once is enough: the first is what the caller named.
        let _ = self.resolved.set(id.to_string());
    }

    /// It is over, and this is what became of it.
    pub(super) fn finish<T>(mut self, result: Result<T>) -> Result<T> {
        self.record(result.as_ref().map_or_else(|error| error.code.as_str(), |_| "ok"));
        result
    }

    fn record(&mut self, result: &str) {
        self.finished = true;
        let Some(audit) = &self.engine.shared.options.audit else { return };
        let caller = self.engine.caller();
        let (bytes, sha256) = self.input.take().unzip();
        audit.record(&Entry {
            face: caller.face,
            who: &caller.who,
            server: &self.host.socket().to_string_lossy(),
            target: Some(self.target).filter(|target| !target.is_empty()),
            pane: self.resolved.get().map(String::as_str),
            action: self.action,
            result,
            bytes,
            sha256,
            ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
    }
}

impl Drop for AuditScope<'_> {
    /// Whoever asked has gone: what was begun may have been done.
    fn drop(&mut self) {
        if !self.finished {
            self.record("abandoned");
        }
    }
}
