//! Watching a pane: what a watcher gets to see of it.

use muxtap_api::Gap;
use muxtap_core::{
    screen::Changes,
    stream::{echo::EchoFilter, text::TextSink},
};
use muxtap_tmux::Exit;

use super::{State, screen_model::ScreenModel, shell_marks::ShellMarks};

/// Watches a pane. Every call is made under the pane's lock, in the order of the stream, and must
/// not ask the pane for anything. The text and the controls of a chunk come first ([`TextSink`]).
pub(crate) trait Watch: TextSink + Send {
    /// Names what the watcher belongs to; by this it is taken out of the pane.
    fn owner(&self) -> &str;
    /// All of a chunk was fed.
    fn end_of_chunk(&mut self, echo: &EchoFilter, shell_marks: &ShellMarks);
    /// The stream rests: some matches are only certain now.
    fn stream_rested(&mut self, echo: &EchoFilter);
    /// The screen changed: in these rows, or anywhere. `end`: of the stream at that time.
    fn screen_changed(&mut self, screen: &ScreenModel, changes: Option<&Changes>, end: u64);
    /// The title is this one from here on.
    fn title_changed(&mut self, title: &str);
    /// Output is missing here.
    fn record_gap(&self, gap: Gap);
    /// The pane's process has ended. Nothing follows.
    fn pane_ended(&self, exit: Exit);
}

impl State {
    /// Adds a watcher. What came before was shown to it already.
    pub(crate) fn add_watcher(&mut self, watcher: Box<dyn Watch>) {
        self.watchers.push(watcher);
    }

    /// Removes the watchers of an owner.
    pub(crate) fn remove_watchers(&mut self, owner: &str) {
        self.watchers.retain(|watcher| watcher.owner() != owner);
    }

    #[cfg(test)]
    pub(crate) fn watcher_count(&self) -> usize {
        self.watchers.len()
    }
}
