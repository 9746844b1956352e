//! Records of the input that muxtap sends to a pane, and of the matches that callers have seen.

use std::time::Instant;

use muxtap_core::stream::render;

use super::{PaneState, State};

use crate::limits;

/// An input that was recorded before it was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InputRecord {
    /// The stream's end at that time.
    pub(crate) mark: u64,
    at: Instant,
    /// The input before this one.
    before: Option<(u64, Instant)>,
    /// Number of this input in the echo filter.
    input: u64,
}

impl PaneState {
    /// Records an input that is about to be sent. The echo and the program's reaction lie behind
    /// the returned mark (the stream's end).
    pub(crate) fn record_input(&self, text: &str, tty_echo: bool) -> InputRecord {
        let mut state = self.lock();
        let mark = state.ring.end();
        let at = Instant::now();
        let before = state.last_input.replace((mark, at));
        let line = render::resting_line(&state.ring);
        let columns = state.metadata.size.width.max(1);
        state.echo.typed(mark, text.as_bytes(), line, columns, tty_echo);
        InputRecord { mark, at, before, input: state.echo.last_input() }
    }

    /// Takes back the record of an input that was not sent.
    pub(crate) fn retract_input(&self, record: &InputRecord) {
        let mut state = self.lock();
        if state.last_input == Some((record.mark, record.at)) {
            state.last_input = record.before;
        }
        state.echo.not_typed(record.input);
    }

    /// Records where patterns of a finished wait matched. The next wait for the same pattern
    /// continues behind the match.
    pub(crate) fn record_matches(&self, patterns: impl IntoIterator<Item = (String, u64)>) {
        let mut state = self.lock();
        for (pattern, end) in patterns {
            if state.last_matches.len() >= limits::ANSWERED_PATTERNS && !state.last_matches.contains_key(&pattern) {
                // The oldest match is the one furthest back in the stream.
                let oldest = state.last_matches.iter().min_by_key(|(_, end)| **end).map(|(pattern, _)| pattern.clone());
                if let Some(oldest) = oldest {
                    state.last_matches.remove(&oldest);
                }
            }
            let last = state.last_matches.entry(pattern).or_default();
            *last = end.max(*last);
        }
    }
}

impl State {
    /// Returns where `since: input` begins, and since when: at muxtap's last input, or where muxtap
    /// created or respawned the pane, whichever is later.
    pub(crate) fn since_input(&self) -> Option<(u64, Instant)> {
        self.last_input.max(self.started)
    }

    /// Returns where the last match of this pattern in a finished wait ended.
    pub(crate) fn last_match_end(&self, pattern: &str) -> Option<u64> {
        self.last_matches.get(pattern).copied()
    }
}
