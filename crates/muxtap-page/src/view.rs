//! A view: a pane as one page shows it.

use std::time::{Duration, Instant};

use muxtap_engine::{Pane, PaneWatch};
use tokio_util::sync::CancellationToken;

use super::{connection::FPS, frame::Frame};

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
    pub(super) turns: Turns,
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
            turns: Turns::new(now),
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

/// The times at which a view has its messages.
pub(super) struct Turns {
    /// When the next one may be sent.
    pub(super) next: Instant,
    /// When it is due at an even pace of [`FPS`].
    even: Instant,
    /// Messages that were due one after the other, each of them most of the screen: its pane prints without a pause.
    streak: u32,
}

/// Messages in a row after which a view has fewer of them.
const STREAK: u32 = 12;
/// How late a message of a row may be.
const ROW: Duration = Duration::from_millis(12);
/// From message to message of a pane that prints without a pause: each second frame of a display, so
/// that what draws them leaves processors to what prints.
const PAUSELESS: Duration = Duration::from_millis(33);

impl Turns {
    fn new(now: Instant) -> Self {
        Self { next: now, even: now, streak: 0 }
    }

    /// Notes that a message was sent, and whether it has most of the screen drawn anew: an echo does not.
    pub(super) fn sent(&mut self, now: Instant, is_drawn_anew: bool) {
        self.streak = if is_drawn_anew && now < self.next + ROW { self.streak.saturating_add(1) } else { 0 };
        let frame = Duration::from_secs(1) / FPS;
        let even = self.even.max(now);
        self.even = even + frame;
        self.next = if self.streak >= STREAK {
            // Counted from when it was due, so that frames of a display are met as often as said.
            (self.next + PAUSELESS).max(now)
        } else {
            // Half a frame before its time at most: what came right behind the last one would else miss a frame.
            even + frame / 2
        };
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends messages as soon as each is due; returns the time between the last two.
    fn paced(messages: u32, is_drawn_anew: bool) -> Duration {
        let mut turns = Turns::new(Instant::now());
        let mut before = turns.next;
        for _ in 0..messages {
            before = turns.next;
            turns.sent(before, is_drawn_anew);
        }
        turns.next - before
    }

    #[test]
    fn a_pane_that_prints_without_a_pause_has_fewer_frames_and_an_echo_has_all() {
        let frame = Duration::from_secs(1) / FPS;
        assert_eq!(paced(STREAK - 1, true), frame);
        assert_eq!(paced(STREAK, true), PAUSELESS);
        assert_eq!(paced(10 * STREAK, true), PAUSELESS);
        assert_eq!(paced(10 * STREAK, false), frame, "somebody types, or a clock ticks");
    }

    #[test]
    fn an_echo_right_behind_the_last_one_is_in_the_next_frame() {
        let frame = Duration::from_secs(1) / FPS;
        let mut turns = Turns::new(Instant::now());
        let mut key = turns.next;
        for _ in 0..3 * STREAK {
            turns.sent(key, false);
            assert_eq!(turns.next, key + frame / 2);
            key += frame;
        }
    }

    #[test]
    fn a_pause_ends_a_row() {
        let mut turns = Turns::new(Instant::now());
        for _ in 0..2 * STREAK {
            turns.sent(turns.next, true);
        }
        let late = turns.next + ROW;
        turns.sent(late, true);
        assert_eq!(turns.next - late, Duration::from_secs(1) / FPS / 2);
    }
}
