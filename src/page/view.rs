//! A view: a pane as one page shows it.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::{connection::FPS, frame::Frame};
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
    /// Messages that were due one after the other: its pane prints without a pause.
    streak: u32,
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
            streak: 0,
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

/// Messages in a row after which a view has fewer of them.
const STREAK: u32 = 12;
/// How late a message of a row may be.
const ROW: Duration = Duration::from_millis(12);
/// From message to message of a pane that prints without a pause: a little more than each second frame of a display, so
/// that what draws them leaves processors to what prints.
const PAUSELESS: Duration = Duration::from_millis(31);

impl View {
    /// Notes that a message was sent.
    pub(super) fn sent(&mut self, now: Instant) {
        self.streak = if now < self.next + ROW { self.streak.saturating_add(1) } else { 0 };
        let frame = Duration::from_secs(1) / FPS;
        // Counted from when it was due, so that frames of a display are met as often as said.
        self.next = if self.streak < STREAK { now + frame } else { (self.next + PAUSELESS).max(now) };
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.end.cancel();
    }
}
