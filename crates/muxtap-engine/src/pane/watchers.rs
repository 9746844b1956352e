//! What follows a pane: the watchers of waits, the flags of subscribers, and the task that follows
//! the pane's agent.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use muxtap_api::Gap;
use muxtap_core::{
    marks::CommandLog,
    screen::Changes,
    stream::{echo::EchoFilter, text::TextSink},
};
use muxtap_tmux::Exit;

use super::{LockedPane, PaneState, notifier::DirtyFlag, screen_model::ScreenModel, shell_marks::ShellMarks};

use crate::{agents::AgentSignals, limits};

/// A watcher of a pane. Every call is made under the pane's lock, in the order of the stream, and
/// must not call back into the pane. The text and controls of a chunk come first ([`TextSink`]).
pub(crate) trait Watch: TextSink + Send {
    /// Returns the name of the watcher's owner, by which the watcher is removed from the pane.
    fn owner(&self) -> &str;
    /// Returns the watcher's state, for another process that continues it.
    fn store(&self) -> postcard::Result<Vec<u8>>;
    /// Notifies that all of a chunk was fed.
    fn end_of_chunk(&mut self, echo: &EchoFilter, shell_marks: &ShellMarks);
    /// Notifies that commands began or ended.
    fn commands_changed(&mut self, log: &CommandLog);
    /// Notifies that the stream rests: some matches are certain only then.
    fn stream_rested(&mut self, echo: &EchoFilter);
    /// Notifies that the screen changed: in these rows, or anywhere. `end`: the stream's end at
    /// that time.
    fn screen_changed(&mut self, screen: &ScreenModel, changes: Option<&Changes>, end: u64);
    /// Notifies of the title from this point of the stream on.
    fn title_changed(&mut self, title: &str);
    /// Notifies that output is missing at this point of the stream.
    fn record_gap(&self, gap: Gap);
    /// Notifies that the pane's process has ended. No call follows.
    fn pane_ended(&self, exit: Exit);
}

/// All parties that are notified of events in a pane, and the last matches of finished waits.
#[derive(Default)]
pub(super) struct Watchers {
    /// The watchers. Those of a decided wait stay until its driver removes them: dropping a watcher
    /// frees many small objects, and the result comes first.
    list: Vec<Box<dyn Watch>>,
    dirty_flags: Vec<Weak<DirtyFlag>>,
    /// Signals for the task that follows the agent in the pane.
    pub(super) agent_signals: AgentSignals,
    /// The offset at which the last match ended, for each pattern of a finished wait.
    last_matches: HashMap<String, u64>,
}

impl Watchers {
    /// Creates the watchers of a pane whose finished waits matched there.
    pub(super) fn with_last_matches(last_matches: HashMap<String, u64>) -> Self {
        Self { last_matches, ..Self::default() }
    }

    /// Returns the offset at which the last match ended, for each pattern of a finished wait.
    pub(super) fn last_matches(&self) -> impl Iterator<Item = (&str, u64)> {
        self.last_matches.iter().map(|(pattern, end)| (pattern.as_str(), *end))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn Watch>> {
        self.list.iter_mut()
    }

    pub(super) fn end_of_chunk(&mut self, echo: &EchoFilter, shell_marks: &ShellMarks) {
        for watcher in &mut self.list {
            watcher.end_of_chunk(echo, shell_marks);
        }
    }

    pub(super) fn commands_changed(&mut self, log: &CommandLog) {
        for watcher in &mut self.list {
            watcher.commands_changed(log);
        }
    }

    pub(super) fn stream_rested(&mut self, echo: &EchoFilter) {
        for watcher in &mut self.list {
            watcher.stream_rested(echo);
        }
    }

    pub(super) fn screen_changed(&mut self, screen: &ScreenModel, changes: Option<&Changes>, end: u64) {
        for watcher in &mut self.list {
            watcher.screen_changed(screen, changes, end);
        }
    }

    /// Notifies watchers and the agent's task of a new title.
    pub(super) fn title_changed(&mut self, title: &str) {
        self.agent_signals.title_changed(title);
        for watcher in &mut self.list {
            watcher.title_changed(title);
        }
    }

    pub(super) fn record_gap(&self, gap: Gap) {
        for watcher in &self.list {
            watcher.record_gap(gap);
        }
    }

    /// Notifies that the pane's process has ended. Returns the watchers, which no longer watch.
    #[must_use = "dropping them takes time and must not happen under the pane's lock"]
    pub(super) fn pane_ended(&mut self, exit: Exit) -> Vec<Box<dyn Watch>> {
        let watchers = std::mem::take(&mut self.list);
        for watcher in &watchers {
            watcher.pane_ended(exit);
        }
        self.agent_signals.program_changed();
        watchers
    }

    /// Returns whether a subscriber's flag is set at each change.
    pub(super) fn has_subscribers(&self) -> bool {
        self.dirty_flags.iter().any(|flag| flag.strong_count() > 0)
    }

    fn add_dirty_flag(&mut self, flag: &Arc<DirtyFlag>) {
        self.dirty_flags.retain(|flag| flag.strong_count() > 0);
        self.dirty_flags.push(Arc::downgrade(flag));
    }

    /// Sets the flags of all subscribers.
    pub(super) fn set_dirty_flags(&mut self) {
        self.dirty_flags.retain(|flag| match flag.upgrade() {
            Some(flag) => {
                flag.notify();
                true
            }
            None => false,
        });
    }

    fn record_match(&mut self, pattern: String, end: u64) {
        if self.last_matches.len() >= limits::ANSWERED_PATTERNS && !self.last_matches.contains_key(&pattern) {
            // The oldest match is the one farthest back in the stream.
            let oldest = self.last_matches.iter().min_by_key(|(_, end)| **end).map(|(pattern, _)| pattern.clone());
            if let Some(oldest) = oldest {
                self.last_matches.remove(&oldest);
            }
        }
        let last = self.last_matches.entry(pattern).or_default();
        *last = end.max(*last);
    }
}

impl PaneState {
    /// Adds a flag that is set at every change of the pane for as long as the flag exists.
    pub(crate) fn add_dirty_flag(&self, flag: &Arc<DirtyFlag>) {
        let mut locked = self.lock();
        locked.watchers.add_dirty_flag(flag);
        self.published.publish(&locked);
    }

    /// Records where patterns of a finished wait matched. The next wait for the same pattern
    /// continues after the match.
    pub(crate) fn record_matches(&self, patterns: impl IntoIterator<Item = (String, u64)>) {
        let mut locked = self.lock();
        for (pattern, end) in patterns {
            locked.watchers.record_match(pattern, end);
        }
    }
}

impl LockedPane {
    /// Adds a watcher, which was already shown the earlier output.
    pub(crate) fn add_watcher(&mut self, watcher: Box<dyn Watch>) {
        self.watchers.list.push(watcher);
    }

    /// Removes the watchers of an owner.
    pub(crate) fn remove_watchers(&mut self, owner: &str) {
        self.watchers.list.retain(|watcher| watcher.owner() != owner);
    }

    /// Returns the state of an owner's watcher, if it has one here.
    pub(crate) fn store_watcher(&self, owner: &str) -> Option<postcard::Result<Vec<u8>>> {
        self.watchers.list.iter().find(|watcher| watcher.owner() == owner).map(|watcher| watcher.store())
    }

    /// Notifies watchers that the stream rests: some matches are certain only then.
    pub(crate) fn rest_watchers(&mut self) {
        let Self { watchers, output, .. } = self;
        watchers.stream_rested(&output.echo);
    }

    /// Returns where the last match of this pattern in a finished wait ended.
    pub(crate) fn last_match_end(&self, pattern: &str) -> Option<u64> {
        self.watchers.last_matches.get(pattern).copied()
    }

    /// Returns the signals for the task that follows the agent in the pane.
    pub(crate) fn agent_signals(&mut self) -> &mut AgentSignals {
        &mut self.watchers.agent_signals
    }

    #[cfg(test)]
    pub(crate) fn watcher_count(&self) -> usize {
        self.watchers.list.len()
    }
}
