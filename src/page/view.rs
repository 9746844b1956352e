//! A view: a pane as one page shows it.

use std::time::Instant;

use tokio_util::sync::CancellationToken;

use super::frame::Frame;
use crate::engine::{Pane, PaneWatch};

/// A pane that is shown, and what the page has of it.
#[allow(clippy::struct_excessive_bools, reason = "each is one thing that is under way, or due")]
pub(super) struct View {
    pub(super) pane: Pane,
    /// Tells this view from an earlier one of its number.
    pub(super) serial: u64,
    /// The last frame that was sent.
    pub(super) last: Option<Frame>,
    /// A frame of tmux's own answer, where memory is not certain, that is not sent yet.
    pub(super) asked: Option<Frame>,
    /// Whether the page has drawn the last message.
    pub(super) credit: bool,
    /// When the next message may be sent.
    pub(super) next: Instant,
    /// Whether the pane may have changed since it was last looked at.
    pub(super) dirty: bool,
    /// Whether the view waits for its turn, or for the time of it.
    pub(super) queued: bool,
    /// Whether tmux is being asked.
    pub(super) asking: bool,
    /// When tmux was last asked.
    pub(super) asked_at: Option<Instant>,
    /// Whether the page was told that the program has ended.
    pub(super) ended: bool,
    /// The pane's changes, where nobody waits for the next.
    pub(super) watch: Option<PaneWatch>,
    /// Cancelled with the view.
    pub(super) end: CancellationToken,
    /// Keeps the pane in use.
    pub(super) _in_use: Box<dyn Send + Sync>,
}

impl View {
    pub(super) fn new(pane: Pane, serial: u64, now: Instant) -> Self {
        Self {
            _in_use: Box::new(pane.keep_in_use()),
            pane,
            serial,
            last: None,
            asked: None,
            credit: true,
            next: now,
            dirty: true,
            queued: false,
            asking: false,
            asked_at: None,
            ended: false,
            watch: None,
            end: CancellationToken::new(),
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.end.cancel();
    }
}
