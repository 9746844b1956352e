//! The results of waits.

use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use muxtap_api::{CommandInfo, PredicateReport, WaitAnswer};
use muxtap_base::metrics;
use tokio::time::Instant;

use crate::PaneState;

/// The result of an ended wait: its answer, and the matches that are recorded in the panes when the
/// answer is acknowledged.
pub struct WaitResult {
    answer: WaitAnswer,
    ended: Instant,
    /// The matches to mark as answered when the answer is acknowledged; taken by the first call.
    matches: Mutex<Option<Matches>>,
}

/// The patterns that matched on each pane, with the offsets.
pub(super) type Matches = Vec<(Weak<PaneState>, Vec<(String, u64)>)>;

impl WaitResult {
    pub(super) fn new(answer: WaitAnswer, ended: Instant, matches: Matches) -> Self {
        Self { answer, ended, matches: Mutex::new(Some(matches)) }
    }

    /// Restores a result. `matches`: those to mark as answered; `None`: they were.
    pub(super) fn restored(answer: WaitAnswer, ended: Instant, matches: Option<Matches>) -> Self {
        Self { answer, ended, matches: Mutex::new(matches) }
    }

    /// Returns the matches to mark as answered; `None`: they were.
    pub(super) fn matches(&self) -> MutexGuard<'_, Option<Matches>> {
        self.matches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the wait ended.
    pub(super) fn ended(&self) -> Instant {
        self.ended
    }

    /// Returns the answer for a caller, and marks its matches as answered. Only then does
    /// `since: input` skip them: a caller that has left may never have received them.
    pub(super) fn acknowledge(&self) -> WaitAnswer {
        let matches = self.matches().take();
        if let Some(matches) = matches {
            metrics::wait_latency(self.ended.elapsed());
            for (pane, matches) in matches {
                if let Some(pane) = pane.upgrade() {
                    pane.record_matches(matches);
                }
            }
        }
        self.answer.clone()
    }

    /// Returns the answer without marking its matches.
    pub(super) fn answer(&self) -> WaitAnswer {
        self.answer.clone()
    }

    /// Returns the approximate size of the result in memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let predicate = |report: &PredicateReport| {
            let captures = report.captures.iter().map(|capture| size_of::<Option<String>>() + text(capture));
            let groups = report.groups.iter().map(|(name, group)| 2 * size_of::<String>() + name.len() + group.len());
            let stands = report.stands_before.as_ref().map_or(0, |stands| stands.line.len() + stands.since.len());
            let command = report.command.as_ref().map_or(0, |command| {
                size_of::<CommandInfo>() + text(&command.line) + text(&command.directory) + text(&command.signal)
            });
            let texts = command + stands + text(&report.pattern) + text(&report.line);
            // Each pattern is stored a second time, among the matches.
            size_of::<PredicateReport>() + texts + text(&report.pattern) + captures.chain(groups).sum::<usize>()
        };
        let predicates = self.answer.predicates.iter().map(predicate).sum::<usize>();
        size_of::<Self>() + predicates + text(&self.answer.screen) + self.answer.id.len()
    }
}
