//! The state of a wait: its latched predicates, and whether they decide it.
//!
//! Lock order: a wait's lock may be taken while a pane's is held, never the other way round.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
    time::{Duration, SystemTime},
};

use muxtap_api::{Gap, PredicateKind, StandsBefore, WaitCondition, WaitInfo, WaitMode, WaitOutcome, WaitRequest};
use muxtap_core::{marks::Command, stored, stream::matcher::Hit};
use muxtap_tmux::Exit;
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::{result::WaitResult, spec::Spec};

use crate::{
    Caller, Host, PaneState,
    sync::{Mutex, MutexGuard, Notify, watch},
};

/// A wait, shared by its watchers, its driver and its callers.
pub struct Core {
    pub(super) id: String,
    pub(super) host: Arc<Host>,
    pub(super) spec: Spec,
    pub(super) requested_at: Instant,
    pub(super) panes: Vec<Arc<PaneState>>,
    /// The request, from which another daemon can continue the wait; `None`: the wait's caller lives in
    /// this process.
    pub(super) request: Option<WaitRequest>,
    progress: Mutex<Progress>,
    /// Notified when a deadline may have moved closer.
    pub(super) wake: Notify,
    over: watch::Sender<bool>,
    /// The result, made when the wait has ended and a caller requests it.
    pub(super) result: OnceCell<Arc<WaitResult>>,
}

/// The progress of a wait on all of its panes.
pub(super) struct Progress {
    pub(super) panes: Vec<PaneProgress>,
    pub(super) end: Option<End>,
}

/// How and when a wait ended.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) outcome: WaitOutcome,
    /// The pane that decided the wait.
    pub(super) pane: Option<usize>,
    #[serde(with = "muxtap_base::age")]
    pub(super) at: Instant,
}

/// The progress of a wait on one pane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PaneProgress {
    pub(super) latches: Vec<Option<Latch>>,
    pub(super) failed: Option<(usize, Latch)>,
    pub(super) ended: Option<Exit>,
    #[serde(with = "stored::gap")]
    pub(super) gap: Option<Gap>,
    /// When the last predicate latched.
    #[serde(with = "muxtap_base::age")]
    pub(super) complete: Option<Instant>,
    /// The stream's end when the wait was requested.
    pub(super) request_offset: u64,
    /// The offset from which a match counts, for each regex of the set.
    pub(super) from: Vec<u64>,
    /// Where each pattern matched before the wait, if that was searched: after its end.
    #[serde(skip)]
    pub(super) stands_before: Vec<Option<StandsBefore>>,
    /// The earliest time from which quiet counts; `None`: from the last byte.
    #[serde(with = "muxtap_base::age")]
    pub(super) quiet_since: Option<Instant>,
    /// Whether the watcher must be notified when the stream is quiet.
    pub(super) wants_rest: bool,
    /// The end of the stream for which the prompt rule was tried.
    pub(super) prompt_tried_at: Option<u64>,
}

/// How a predicate was satisfied.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Latch {
    /// Where the match begins in the stream.
    pub(super) offset: Option<u64>,
    /// Where the match ends in the stream.
    pub(super) end: Option<u64>,
    /// The line that contains the match.
    pub(super) line: Option<String>,
    /// The whole match, followed by its groups.
    pub(super) captures: Vec<Option<String>>,
    /// The named groups.
    pub(super) groups: BTreeMap<String, String>,
    /// The time from the request to the match.
    pub(super) after: Duration,
    /// Whether the match was there before the request.
    pub(super) before: bool,
    /// The rule that found a prompt.
    pub(super) how: Option<PromptRule>,
    /// The command that ended.
    pub(super) command: Option<Box<Command>>,
}

/// A rule by which a prompt was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum PromptRule {
    /// The shell marks its prompts.
    Marks,
    /// A line that rests looks like a prompt.
    Line,
}

impl PromptRule {
    /// Returns the word in reports.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Marks => "osc133",
            Self::Line => "rule",
        }
    }
}

impl Core {
    pub(super) fn new(
        id: String,
        host: Arc<Host>,
        spec: Spec,
        panes: Vec<Arc<PaneState>>,
        request: Option<WaitRequest>,
    ) -> Arc<Self> {
        let on_pane = |_: &Arc<PaneState>| PaneProgress {
            latches: spec.predicates.iter().map(|_| None).collect(),
            failed: None,
            ended: None,
            gap: None,
            complete: None,
            request_offset: 0,
            from: Vec::new(),
            stands_before: Vec::new(),
            quiet_since: None,
            wants_rest: false,
            prompt_tried_at: None,
        };
        let progress = Progress { panes: panes.iter().map(on_pane).collect(), end: None };
        Self::within(id, host, spec, panes, request, progress)
    }

    /// Continues a wait with this progress.
    pub(super) fn within(
        id: String,
        host: Arc<Host>,
        spec: Spec,
        panes: Vec<Arc<PaneState>>,
        request: Option<WaitRequest>,
        progress: Progress,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            host,
            requested_at: spec.requested_at,
            spec,
            panes,
            request,
            over: watch::Sender::new(progress.end.is_some()),
            progress: Mutex::new(progress),
            wake: Notify::new(),
            result: OnceCell::new(),
        })
    }

    /// Describes the wait, for callers that may list all waits.
    pub(super) fn info(&self, caller: &Caller) -> WaitInfo {
        let of_set = self.spec.fail.iter().map(|text| (PredicateKind::Fail, Some(text.clone())));
        let conditions = self.spec.predicates.iter().map(|one| (one.kind, one.text.clone())).chain(of_set);
        let since = SystemTime::now().checked_sub(self.requested_at.elapsed()).unwrap_or(SystemTime::UNIX_EPOCH);
        let since_ms = since.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        WaitInfo {
            id: self.id.clone(),
            socket: self.host.socket().display().to_string(),
            panes: self.panes.iter().map(|pane| pane.id()).collect(),
            mode: self.spec.mode,
            conditions: conditions.map(|(kind, pattern)| WaitCondition { kind, pattern }).collect(),
            since_ms,
            until_ms: since_ms + self.spec.timeout.as_millis() as u64,
            face: caller.face.into(),
            who: caller.who.clone(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the wait has ended.
    pub(super) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Waits for the wait's end.
    pub(super) async fn over(&self) {
        // The sender lives as long as `self`.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    /// Changes the progress on one pane, and ends the wait if the change decides it.
    pub(super) fn update_pane(&self, at: usize, change: impl FnOnce(&mut PaneProgress)) {
        let mut progress = self.lock();
        if progress.end.is_some() {
            return;
        }
        if let Some(on_pane) = progress.panes.get_mut(at) {
            change(on_pane);
        }
        self.decide(&mut progress, at);
    }

    /// Latches a predicate on a pane, unless it is latched already.
    pub(super) fn latch(&self, at: usize, predicate: usize, mut latch: Latch) {
        latch.after = if latch.before { Duration::ZERO } else { self.requested_at.elapsed() };
        self.update_pane(at, |on_pane| {
            if let Some(slot @ None) = on_pane.latches.get_mut(predicate) {
                *slot = Some(latch);
            }
        });
    }

    /// Latches the predicate of this kind, if the wait has one.
    pub(super) fn latch_kind(&self, at: usize, kind: PredicateKind, latch: Latch) {
        if let Some(predicate) = self.spec.index_of(kind) {
            self.latch(at, predicate, latch);
        }
    }

    /// Latches the pattern or `fail` pattern of a match.
    pub(super) fn hit(&self, at: usize, hit: Hit) {
        let pattern = hit.pattern;
        let request_offset = self.lock().panes.get(at).map_or(0, |on_pane| on_pane.request_offset);
        let latch = Latch {
            offset: Some(hit.start),
            end: Some(hit.end),
            line: Some(hit.line),
            captures: hit.captures,
            groups: hit.groups,
            before: hit.end <= request_offset,
            ..Latch::default()
        };
        if pattern < self.spec.pattern_count() {
            self.latch(at, pattern, latch);
        } else {
            let latch = Latch { after: self.requested_at.elapsed(), ..latch };
            self.update_pane(at, |on_pane| on_pane.failed = on_pane.failed.take().or(Some((pattern, latch))));
        }
    }

    /// Records that the pane's process has ended; no output follows.
    pub(super) fn pane_ended(&self, at: usize, exit: Exit) {
        let exits = self.spec.index_of(PredicateKind::Exit);
        let after = self.requested_at.elapsed();
        self.update_pane(at, |on_pane| {
            on_pane.ended = Some(exit);
            if let Some(slot @ None) = exits.and_then(|exits| on_pane.latches.get_mut(exits)) {
                *slot = Some(Latch { after, ..Latch::default() });
            }
        });
    }

    /// Ends the wait, unless it has ended.
    pub(super) fn finish(&self, outcome: WaitOutcome, pane: Option<usize>) {
        self.finish_with(&mut self.lock(), outcome, pane);
    }

    fn finish_with(&self, progress: &mut Progress, outcome: WaitOutcome, pane: Option<usize>) {
        if progress.end.is_none() {
            progress.end = Some(End { outcome, pane, at: Instant::now() });
            self.over.send_replace(true);
        }
    }

    fn decide(&self, progress: &mut Progress, at: usize) {
        let Some(on_pane) = progress.panes.get_mut(at) else { return };
        if on_pane.failed.is_some() {
            return self.finish_with(progress, WaitOutcome::Failed, Some(at));
        }
        let complete = on_pane.latches.iter().all(Option::is_some);
        if complete && on_pane.complete.is_none() {
            on_pane.complete = Some(Instant::now());
        }
        // An ended pane stays quiet.
        let settled = self.spec.settle.is_none() || on_pane.ended.is_some();
        if complete && !settled {
            self.wake.notify_one();
        }
        let is_complete = |on_pane: &PaneProgress| on_pane.complete.is_some();
        match self.spec.mode {
            WaitMode::Any if complete && settled => self.finish_with(progress, WaitOutcome::Matched, Some(at)),
            WaitMode::All if complete && progress.panes.iter().all(is_complete) => {
                let settled =
                    self.spec.settle.is_none() || progress.panes.iter().all(|on_pane| on_pane.ended.is_some());
                if settled {
                    let only = (progress.panes.len() == 1).then_some(at);
                    self.finish_with(progress, WaitOutcome::Matched, only);
                }
            }
            _ => {
                let hopeless = |on_pane: &PaneProgress| on_pane.ended.is_some() && on_pane.complete.is_none();
                let ended = match self.spec.mode {
                    WaitMode::Any => progress.panes.iter().all(hopeless),
                    WaitMode::All => progress.panes.get(at).is_some_and(hopeless),
                };
                if ended {
                    self.finish_with(progress, WaitOutcome::Ended, Some(at));
                }
            }
        }
    }

    /// Returns the panes on which all predicates are latched, and since when, if the wait needs
    /// only the quiet after the last latch.
    pub(super) fn settling(&self) -> Vec<(usize, Instant)> {
        let progress = self.lock();
        let complete = progress.panes.iter().enumerate();
        let complete: Vec<_> = complete.filter_map(|(at, on_pane)| Some((at, on_pane.complete?))).collect();
        match self.spec.mode {
            WaitMode::All if complete.len() < progress.panes.len() => Vec::new(),
            _ => complete,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use muxtap_core::protocol::ids::PaneId;

    use super::*;

    use crate::{Engine, Options};

    /// Creates a wait for `a` and `b` that fails on `f`, on this many panes.
    fn wait(panes: u32, mode: WaitMode) -> Arc<Core> {
        let engine = Engine::new(Options::default());
        let host = Host::new(Path::new("/nowhere"), &engine.shared);
        let request = WaitRequest {
            panes: (0..panes).map(|pane| format!("%{pane}")).collect(),
            mode,
            patterns: vec!["a".into(), "b".into()],
            fail: vec!["f".into()],
            ..WaitRequest::default()
        };
        let panes = (0..panes).map(|pane| PaneState::new(PaneId(pane), host.epoch(), 1000)).collect();
        Core::new("w0".into(), host, Spec::new(&request).unwrap(), panes, None)
    }

    fn hit(pattern: usize, start: u64) -> Hit {
        let (captures, groups) = (Vec::new(), BTreeMap::new());
        Hit { pattern, start, end: start + 1, line: String::new(), captures, groups, truncated: false }
    }

    fn outcome(core: &Core) -> Option<(WaitOutcome, Option<usize>)> {
        core.lock().end.map(|end| (end.outcome, end.pane))
    }

    /// E1.
    #[tokio::test]
    async fn a_predicate_latches_once_at_its_first_match() {
        let core = wait(1, WaitMode::Any);
        core.hit(0, hit(0, 5));
        core.hit(0, hit(0, 9));
        assert_eq!(core.lock().panes[0].latches[0].as_ref().and_then(|latch| latch.offset), Some(5));
        assert_eq!(outcome(&core), None, "b is missing");
    }

    /// E2.
    #[tokio::test]
    async fn a_wait_ends_once() {
        let core = wait(1, WaitMode::Any);
        core.hit(0, hit(0, 5));
        core.hit(0, hit(1, 6));
        assert_eq!(outcome(&core), Some((WaitOutcome::Matched, Some(0))));
        core.finish(WaitOutcome::Cancelled, None);
        core.hit(0, hit(2, 7));
        assert_eq!(outcome(&core), Some((WaitOutcome::Matched, Some(0))));
        assert!(core.lock().panes[0].failed.is_none());
        core.over().await;
    }

    /// E3.
    #[tokio::test]
    async fn the_first_deciding_event_decides_a_wait() {
        let core = wait(1, WaitMode::Any);
        core.hit(0, hit(0, 5));
        core.hit(0, hit(2, 6));
        core.hit(0, hit(1, 7));
        assert_eq!(outcome(&core), Some((WaitOutcome::Failed, Some(0))));
        let core = wait(1, WaitMode::Any);
        core.hit(0, hit(0, 5));
        core.hit(0, hit(1, 6));
        core.pane_ended(0, Exit::default());
        assert_eq!(outcome(&core), Some((WaitOutcome::Matched, Some(0))));
    }

    /// E4.
    #[tokio::test]
    async fn a_wait_ends_early_only_when_no_pane_can_still_meet_it() {
        let any = wait(2, WaitMode::Any);
        any.pane_ended(0, Exit::default());
        assert_eq!(outcome(&any), None);
        any.pane_ended(1, Exit::default());
        assert_eq!(outcome(&any), Some((WaitOutcome::Ended, Some(1))));
        let all = wait(2, WaitMode::All);
        all.hit(1, hit(0, 5));
        all.hit(1, hit(1, 6));
        all.pane_ended(1, Exit::default());
        assert_eq!(outcome(&all), None, "the pane that ended had all it needed");
        all.pane_ended(0, Exit::default());
        assert_eq!(outcome(&all), Some((WaitOutcome::Ended, Some(0))));
    }
}
