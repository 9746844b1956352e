//! Permissions of callers, and the record of their actions.

use std::{sync::OnceLock, time::Instant};

use muxtap_api::{Error, ErrorCode, Operation, Result, Tier};

use super::{Engine, Host, audit::Entry, authority::Caller};

/// A change to tmux that is audited: from its authorization to its record.
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
    /// Returns a read-only handle of the same engine, whatever this muxtap allows.
    pub fn reading_only(&self) -> Self {
        Self { reads_only: true, ..self.clone() }
    }

    /// Returns a handle of the same engine that has no other tier, and this one only if muxtap allows
    /// it.
    pub fn only(&self, tier: Tier) -> Self {
        Self { only: Some(tier), ..self.clone() }
    }

    /// Returns the tiers that the handle's caller has.
    pub fn tiers(&self) -> impl Iterator<Item = Tier> {
        Tier::ALL.into_iter().filter(|tier| self.check_tier(*tier).is_ok())
    }

    /// Authorizes an action of this tier. Error: `READ_ONLY` if the tier is not allowed; the
    /// refusal is recorded.
    pub fn authorize(&self, tier: Tier) -> Result<()> {
        self.check_tier(tier).inspect_err(|refused| self.record(tier.as_str(), refused.code.as_str()))
    }

    /// Records an action that belongs to no tmux server.
    pub fn record(&self, action: &str, result: &str) {
        self.record_about(action, "", result);
    }

    /// Records an action on something outside a tmux server.
    pub fn record_about(&self, action: &str, target: &str, result: &str) {
        let Some(audit) = &self.shared.options.audit else { return };
        let Caller { face, who, principal } = self.caller();
        let (server, target, pane) = ("", Some(target).filter(|target| !target.is_empty()), None);
        let (by, bytes, hmac) = (principal.login(), None, None);
        audit.record(&Entry { face, who, by, server, target, pane, action, result, bytes, hmac, ms: 0 });
    }

    /// Begins the record of a change that is requested from another host's muxtap. If the caller
    /// disconnects before the response, the record says `abandoned`.
    pub fn record_elsewhere(&self, action: &str, host: &str) -> RecordElsewhere {
        RecordElsewhere { engine: self.clone(), action: action.into(), host: host.into(), finished: false }
    }

    fn check_tier(&self, tier: Tier) -> Result<()> {
        if self.reads_only && tier != Tier::Read {
            return Err(Error::new(ErrorCode::ReadOnly, "this link is read-only: `muxtap open` creates others"));
        }
        if let Some(only) = self.only.filter(|only| *only != tier) {
            let message = format!("this link of the fleet is for requests of only `{only}`, not of `{tier}`");
            return Err(Error::new(ErrorCode::ReadOnly, message));
        }
        if self.shared.options.allowed.has(tier) {
            return Ok(());
        }
        let allowed = self.shared.options.allowed.names().join(", ");
        Err(Error::new(
            ErrorCode::ReadOnly,
            format!("this muxtap does not allow `{tier}`, only: {allowed}; see `muxtap config`"),
        ))
    }

    /// Authorizes a change to tmux and begins its record. Error: `READ_ONLY`; the refusal is
    /// recorded.
    pub(super) fn audit<'a>(&'a self, operation: Operation, host: &'a Host, target: &'a str) -> Result<AuditScope<'a>> {
        let resolved = OnceLock::new();
        let audit = AuditScope {
            engine: self,
            action: operation.name(),
            host,
            target,
            resolved,
            input: None,
            started: Instant::now(),
            finished: false,
        };
        match self.check_tier(operation.tier()) {
            Ok(()) => Ok(audit),
            Err(refused) => audit.finish(Err(refused)),
        }
    }
}

/// The record of a change on another host.
pub struct RecordElsewhere {
    engine: Engine,
    action: String,
    host: String,
    finished: bool,
}

impl RecordElsewhere {
    /// Writes the record with this result: `ok` or an error's code.
    pub fn finish(&mut self, result: &str) {
        self.finished = true;
        self.engine.record_about(&self.action, &format!("{}/", self.host), result);
    }
}

impl Drop for RecordElsewhere {
    fn drop(&mut self) {
        if !self.finished {
            self.finish("abandoned");
        }
    }
}

impl AuditScope<'_> {
    /// Adds the length and keyed hash of typed input to the record, never the input itself.
    pub(super) fn input(mut self, bytes: impl FnOnce() -> Vec<u8>) -> Self {
        if let Some(audit) = &self.engine.shared.options.audit {
            let bytes = bytes();
            self.input = Some((bytes.len(), audit.key().hash(&bytes)));
        }
        self
    }

    /// Adds the id of the pane, window or session that the target resolved to.
    pub(super) fn resolved(&self, id: impl std::fmt::Display) {
        // The first id counts: the one that the caller named.
        let _ = self.resolved.set(id.to_string());
    }

    /// Writes the record with this result, and returns the result.
    pub(super) fn finish<T>(mut self, result: Result<T>) -> Result<T> {
        self.record(result.as_ref().map_or_else(|error| error.code.as_str(), |_| "ok"));
        result
    }

    fn record(&mut self, result: &str) {
        self.finished = true;
        let Some(audit) = &self.engine.shared.options.audit else { return };
        let caller = self.engine.caller();
        let (bytes, hmac) = self.input.take().unzip();
        audit.record(&Entry {
            face: caller.face,
            who: &caller.who,
            by: caller.principal.login(),
            server: &self.host.socket().to_string_lossy(),
            target: Some(self.target).filter(|target| !target.is_empty()),
            pane: self.resolved.get().map(String::as_str),
            action: self.action,
            result,
            bytes,
            hmac,
            ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
    }
}

impl Drop for AuditScope<'_> {
    /// Records a change whose caller has disconnected. The change may have been made.
    fn drop(&mut self) {
        if !self.finished {
            self.record("abandoned");
        }
    }
}
