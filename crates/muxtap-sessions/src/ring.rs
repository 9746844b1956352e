//! A session's events: numbered; the last ones are retained.
//!
//! A reader that returns with its cursor misses nothing, or learns how many events it missed, as
//! with a pane's stream.

use std::collections::VecDeque;

use muxtap_api::{AgentEvent, AgentGap, AgentTerminal, Error, EventCursor, GapReason, Result};
use serde::{Deserialize, Serialize};

/// The maximum number of a session's retained events.
pub(super) const KEPT_EVENTS: usize = 4096;
/// The approximate maximum size of a session's retained events, in bytes.
pub(super) const KEPT_BYTES: usize = 4 << 20;

/// The retained events.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ring {
    run: u64,
    events: VecDeque<Kept>,
    /// The offset of the first retained event.
    first: u64,
    bytes: usize,
    /// The offset of the last prompt.
    last_prompt: u64,
}

/// A retained event.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    /// When the event happened, in milliseconds since 1970.
    pub(super) at_ms: u64,
    pub(super) event: AgentEvent,
    bytes: usize,
}

impl Ring {
    /// Creates an empty ring. Its cursors are valid in no other ring.
    pub(super) fn new(run: u64) -> Self {
        Self { run, events: VecDeque::new(), first: 0, bytes: 0, last_prompt: 0 }
    }

    /// Returns the cursor after the last event.
    pub(super) fn end(&self) -> EventCursor {
        self.cursor(self.first + self.events.len() as u64)
    }

    /// Returns the cursor of an offset.
    pub(super) fn cursor(&self, offset: u64) -> EventCursor {
        EventCursor { run: self.run, offset }
    }

    /// Adds an event, and drops the oldest ones beyond the limits.
    pub(super) fn push(&mut self, at_ms: u64, event: AgentEvent) {
        if matches!(event, AgentEvent::Prompt { .. }) {
            self.last_prompt = self.end().offset;
        }
        let bytes = weight(&event);
        self.bytes += bytes;
        self.events.push_back(Kept { at_ms, event, bytes });
        while self.events.len() > KEPT_EVENTS || self.bytes > KEPT_BYTES && self.events.len() > 1 {
            if let Some(dropped) = self.events.pop_front() {
                self.first += 1;
                self.bytes -= dropped.bytes;
            }
        }
    }

    /// Returns the offset that `since` means, and the gap before it.
    ///
    /// Error: `INVALID_ARGUMENT` for a malformed cursor.
    pub(super) fn resolve(&self, since: Option<&str>, default: &str) -> Result<(u64, Option<AgentGap>)> {
        let end = self.end().offset;
        let offset = match since.unwrap_or(default) {
            "start" => return Ok((self.first, None)),
            "now" => return Ok((end, None)),
            "prompt" => self.last_prompt,
            text => {
                let cursor: EventCursor = text.parse().map_err(|_: Error| {
                    let shown: String = text.chars().take(80).collect();
                    Error::invalid(format!("since: `{shown}`: expected start, now, prompt or a cursor of events"))
                })?;
                if cursor.run != self.run || cursor.offset > end {
                    // A cursor from an earlier daemon or agent: all retained events follow, after a
                    // gap.
                    return Ok((self.first, Some(AgentGap::new(GapReason::MuxtapRestarted, None))));
                }
                cursor.offset
            }
        };
        let missing = self.first.saturating_sub(offset);
        let gap = (missing > 0).then(|| AgentGap::new(GapReason::Trimmed, Some(missing)));
        Ok((offset.max(self.first), gap))
    }

    /// Returns at most this many events from an offset on, the offset behind them, and the gap
    /// before them.
    ///
    /// Dropped events are a gap.
    pub(super) fn read(&self, from: u64, most: usize) -> (Vec<Kept>, u64, Option<AgentGap>) {
        let missing = self.first.saturating_sub(from);
        let gap = (missing > 0).then(|| AgentGap::new(GapReason::Trimmed, Some(missing)));
        let from = from.max(self.first);
        let skip = usize::try_from(from - self.first).unwrap_or(usize::MAX);
        let events: Vec<_> = self.events.iter().skip(skip).take(most).cloned().collect();
        let end = from + events.len() as u64;
        (events, end, gap)
    }
}

/// Returns the approximate size of an event, in bytes.
fn weight(event: &AgentEvent) -> usize {
    let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    128 + match event {
        AgentEvent::Prompt { text, .. }
        | AgentEvent::Message { text, .. }
        | AgentEvent::Thought { text, .. }
        | AgentEvent::User { text, .. } => text.len(),
        AgentEvent::Tool { id, title, kind, status, text } => id.len() + of(title) + of(kind) + of(status) + text.len(),
        AgentEvent::Update { update } => 2 * serde_json::to_string(update).map_or(0, |text| text.len()),
        AgentEvent::Question { question } => {
            let options = question.options.iter().map(|option| option.id.len() + option.name.len() + 128);
            let form = serde_json::to_string(&question.form).map_or(0, |text| 2 * text.len());
            let texts = question.title.len() + question.asked_by.len() + of(&question.detail) + of(&question.url);
            texts + form + options.sum::<usize>()
        }
        AgentEvent::Outcome { error, .. } | AgentEvent::Exited { error, .. } => of(error),
        AgentEvent::Fault { message } => message.len(),
        AgentEvent::Terminal { terminal: AgentTerminal { id, socket, .. } } => id.len() + socket.len(),
        AgentEvent::Mode { mode } => mode.len(),
        AgentEvent::Title { title } => of(title),
        AgentEvent::Options { options } => serde_json::to_string(options).map_or(0, |text| 2 * text.len()),
        AgentEvent::Plan { entries } => {
            entries.iter().map(|entry| entry.content.len() + entry.priority.len() + entry.status.len() + 128).sum()
        }
        AgentEvent::Usage { .. } => 128,
        AgentEvent::Answered { question, option, by, .. } => question.len() + of(option) + by.len(),
        AgentEvent::Started { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(number: u64) -> AgentEvent {
        AgentEvent::Message { text: number.to_string(), message_id: None }
    }

    #[test]
    fn a_reader_that_comes_back_misses_nothing_or_is_told_how_much() {
        let mut ring = Ring::new(7);
        for number in 0..10 {
            ring.push(0, message(number));
        }
        let (_, end, gap) = ring.read(0, 4);
        assert_eq!((end, gap), (4, None));
        let cursor = ring.cursor(end).to_string();
        for number in 10..(KEPT_EVENTS as u64 + 20) {
            ring.push(0, message(number));
        }
        let (offset, gap) = ring.resolve(Some(&cursor), "start").unwrap();
        assert_eq!((offset, gap), (20, Some(AgentGap::new(GapReason::Trimmed, Some(16)))));
        let (events, ..) = ring.read(offset, 1);
        assert_eq!(events[0].event, message(20));
        assert_eq!(ring.read(end, 1).2, Some(AgentGap::new(GapReason::Trimmed, Some(16))));
    }

    #[test]
    fn a_cursor_of_another_run_begins_at_the_first_behind_a_gap() {
        let mut ring = Ring::new(7);
        ring.push(0, message(0));
        let other = EventCursor { run: 8, offset: 0 }.to_string();
        assert_eq!(ring.resolve(Some(&other), "start").unwrap().1.unwrap().reason, GapReason::MuxtapRestarted);
        assert!(ring.resolve(Some("nonsense"), "start").is_err());
        assert_eq!(ring.resolve(Some("now"), "start").unwrap(), (1, None));
        assert_eq!(ring.resolve(None, "prompt").unwrap(), (0, None));
    }

    #[test]
    fn bytes_are_bounded_too() {
        let mut ring = Ring::new(1);
        for _ in 0..100 {
            ring.push(0, AgentEvent::Message { text: "x".repeat(256 << 10), message_id: None });
            assert!(ring.bytes <= KEPT_BYTES);
        }
        assert!(ring.events.len() >= 15);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn readers_at_any_pace_see_each_event_once_or_a_gap_of_its_size(
            steps in prop::collection::vec((1_u64..3000, 1_usize..2000), 1..12)
        ) {
            let (mut ring, mut next, mut at, mut seen) = (Ring::new(1), 0, 0, 0);
            for (more, most) in steps {
                for _ in 0..more {
                    ring.push(0, message(next));
                    next += 1;
                }
                let (events, end, gap) = ring.read(at, most);
                seen += gap.and_then(|gap| gap.events).unwrap_or(0);
                for kept in events {
                    prop_assert_eq!(kept.event, message(seen));
                    seen += 1;
                }
                at = end;
                prop_assert_eq!(seen, at);
            }
        }
    }
}
