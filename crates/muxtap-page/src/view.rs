//! A view: a pane as one page shows it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use muxtap_engine::{Pane, PaneWatch};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{connection::FPS, frame::Frame};

/// The commands that a view has, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Listed(BTreeMap<u64, Value>);

impl Listed {
    /// Replaces the commands. Returns those that have changed, and the numbers of those that are gone.
    pub(super) fn change(&mut self, now: BTreeMap<u64, Value>) -> Value {
        let gone: Vec<_> = self.0.keys().filter(|number| !now.contains_key(number)).collect();
        let changed: Vec<_> =
            now.iter().filter(|(number, one)| self.0.get(number) != Some(one)).map(|(_, one)| one).collect();
        let answer = json!({ "commands": changed, "gone": gone });
        self.0 = now;
        answer
    }
}

/// A pane that is shown, and the state that the page has of it.
#[allow(clippy::struct_excessive_bools, reason = "each is one thing that is under way, or due")]
pub(super) struct View {
    pub(super) pane: Pane,
    /// Distinguishes this view from an earlier one with its number.
    pub(super) serial: u64,
    /// The commands that the page has.
    pub(super) listed: Arc<Mutex<Listed>>,
    /// The last frame that was sent.
    pub(super) last: Option<Frame>,
    /// An unsent frame from tmux, made while memory was not certain.
    pub(super) asked: Option<Frame>,
    /// Whether the page has drawn the last message.
    pub(super) credit: bool,
    /// When the next message may be sent.
    pub(super) turns: Turns,
    /// Whether the pane may have changed since it was last read.
    pub(super) dirty: bool,
    /// Whether the view is queued, or waits for its pace.
    pub(super) queued: bool,
    /// Whether a request to tmux is pending.
    pub(super) asking: bool,
    /// When the last request to tmux was sent.
    pub(super) asked_at: Option<Instant>,
    /// Whether the page was notified of the program's end.
    pub(super) ended: bool,
    /// The pane's changes, while no task waits for the next one.
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
            listed: Arc::default(),
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

/// The pace of a view's messages.
pub(super) struct Turns {
    /// When the next message may be sent.
    pub(super) next: Instant,
    /// When the next message is due at an even pace of [`FPS`].
    even: Instant,
    /// The number of successive messages that each redrew most of the screen: the pane prints
    /// without a pause.
    streak: u32,
}

/// The number of successive messages after which a view gets fewer.
const STREAK: u32 = 12;
/// How late a successive message may be.
const ROW: Duration = Duration::from_millis(12);
/// The time between messages of a pane that prints without a pause: every second frame of a
/// display.
///
/// Drawing then leaves processor time to the program that prints.
const PAUSELESS: Duration = Duration::from_millis(33);

impl Turns {
    fn new(now: Instant) -> Self {
        Self { next: now, even: now, streak: 0 }
    }

    /// Notes that a message was sent, and whether it redraws most of the screen, which an echo does
    /// not.
    pub(super) fn sent(&mut self, now: Instant, is_drawn_anew: bool) {
        self.streak = if is_drawn_anew && now < self.next + ROW { self.streak.saturating_add(1) } else { 0 };
        let frame = Duration::from_secs(1) / FPS;
        let even = self.even.max(now);
        self.even = even + frame;
        self.next = if self.streak >= STREAK {
            // Counted from when the message was due, which keeps the rate in step with the display.
            (self.next + PAUSELESS).max(now)
        } else {
            // At most half a frame before its time: a message right behind the last one would
            // otherwise miss a display frame.
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

    #[test]
    fn only_commands_that_have_changed_are_listed_again() {
        let mut listed = Listed::default();
        let all = |range: std::ops::Range<u64>| range.map(|number| (number, json!({ "number": number }))).collect();
        let first = listed.change(all(1..201));
        assert_eq!(first["commands"].as_array().unwrap().len(), 200);
        assert_eq!(listed.change(all(1..201)), json!({ "commands": [], "gone": [] }));
        // The window of commands moves on, and one has ended.
        let mut now: BTreeMap<u64, Value> = all(2..202);
        now.insert(200, json!({ "number": 200, "end": "ended" }));
        let changed = json!({ "commands": [{ "number": 200, "end": "ended" }, { "number": 201 }], "gone": [1] });
        assert_eq!(listed.change(now), changed);
    }

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
