//! What rules know of one pane: the line being printed, and what rules typed.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    time::Instant,
};

use muxtap_api::{AgentInfo, AgentState, PaneInfo, ProgressState};
use muxtap_core::stream::decoder::TextDecoder;

use super::pieces::{Piece, Place};
use crate::{
    facts::{Facts, beginning},
    limits::{ECHO, LINE_BYTES, TYPED_REST},
    rule::{Condition, Rule},
};

/// The state of a pane.
pub(super) struct Pane {
    pub(super) info: PaneInfo,
    /// Removes escape sequences.
    pub(super) decoder: TextDecoder,
    /// The line being printed, at most [`LINE_BYTES`] of it.
    pub(super) line: String,
    /// Where the next text goes.
    pub(super) place: Place,
    /// The rules that fired for that line, or saw it and did not fire.
    pub(super) line_seen: HashSet<usize>,
    /// The rows that match, by rule; `None` until the first screen.
    pub(super) rows: Option<HashMap<usize, BTreeSet<u16>>>,
    /// The last output.
    pub(super) printed: Option<Instant>,
    /// The rules that have not seen the screen yet: they were added after the last one.
    pub(super) screen_unseen: HashSet<usize>,
    /// How many of the rules of quiet have seen the current one.
    pub(super) quiets_seen: usize,
    /// The rules of quiet that were added since the last output: the current quiet is no news to them.
    pub(super) quiets_new: HashSet<usize>,
    pub(super) agent: Option<Agent>,
    pub(super) progress: Option<ProgressState>,
    /// When rules fired last, by name: the places change with the rules.
    pub(super) fired: HashMap<String, Instant>,
    pub(super) typed: Option<Typed>,
}

/// The known state of a pane's agent.
#[derive(PartialEq, Eq)]
pub(super) struct Agent {
    pub(super) kind: String,
    pub(super) state: AgentState,
    pub(super) question: Option<String>,
    pub(super) pid: Option<u32>,
}

impl Agent {
    pub(super) fn of(info: &AgentInfo) -> Self {
        let AgentInfo { agent, state, question_id, question, pid, .. } = info;
        Self {
            kind: agent.clone(),
            state: *state,
            question: question_id.clone().or_else(|| question.clone()),
            pid: *pid,
        }
    }
}

/// Text that rules typed into a pane.
pub(super) struct Typed {
    /// The lines, latest last, and when each was typed.
    pub(super) lines: VecDeque<(String, Instant)>,
    pub(super) at: Instant,
}

impl Typed {
    /// Returns whether a text is the echo of what was typed a moment ago: that line, perhaps after a prompt.
    pub(super) fn is_echo(&self, text: &str, now: Instant) -> bool {
        let text = text.trim();
        let recent = self.lines.iter().filter(|(_, at)| now.saturating_duration_since(*at) <= ECHO);
        let before = recent.filter_map(|(line, _)| text.strip_suffix(line.as_str()));
        // `y` is the echo in `[y/N] y`, and not in `ready`.
        before.into_iter().any(|before| !before.ends_with(char::is_alphanumeric))
    }
}

impl Pane {
    pub(super) fn new(info: PaneInfo) -> Self {
        Self {
            info,
            decoder: TextDecoder::default(),
            line: String::new(),
            place: Place::End,
            line_seen: HashSet::new(),
            rows: None,
            printed: None,
            screen_unseen: HashSet::new(),
            quiets_seen: 0,
            quiets_new: HashSet::new(),
            agent: None,
            progress: None,
            fired: HashMap::new(),
            typed: None,
        }
    }

    pub(super) fn end_line(&mut self) {
        self.line.clear();
        self.line_seen.clear();
        self.place = Place::End;
    }

    /// Returns whether the line being printed ends before this piece: as in waits, also where it is rewritten.
    pub(super) fn ends_line(&self, piece: &Piece) -> bool {
        match piece {
            Piece::LineFeed => true,
            Piece::Text(_) => self.place == Place::Beginning && !self.line.is_empty(),
            Piece::Elsewhere => !self.line.is_empty(),
            Piece::Return | Piece::Left(_) | Piece::Erase => false,
        }
    }

    /// Adds a piece to the line being printed.
    pub(super) fn print(&mut self, piece: &Piece) {
        match piece {
            Piece::Text(text) => {
                self.cut();
                let free = LINE_BYTES.saturating_sub(self.line.len());
                self.line.push_str(beginning(text, free));
                // It has grown.
                self.line_seen.remove(&usize::MAX);
            }
            Piece::Return => self.place = Place::Beginning,
            Piece::Left(columns) => match &mut self.place {
                Place::Beginning => {}
                Place::Left(left) => *left = left.saturating_add(*columns),
                Place::End => self.place = Place::Left(*columns),
            },
            Piece::Erase => self.cut(),
            Piece::LineFeed | Piece::Elsewhere => self.place = Place::End,
        }
    }

    /// Drops what the next text replaces.
    fn cut(&mut self) {
        if let Place::Left(columns) = self.place {
            let kept = self.line.char_indices().rev().nth(columns.saturating_sub(1).into()).map_or(0, |(at, _)| at);
            self.line.truncate(kept);
        }
        if self.place != Place::Beginning || self.line.is_empty() {
            self.place = Place::End;
        }
    }

    /// Returns whether the line being printed was matched as it is.
    pub(super) fn is_line_seen(&self) -> bool {
        self.line_seen.contains(&usize::MAX)
    }

    /// Forgets what rules typed if the pane has printed nothing for long: what it prints now, it prints by
    /// itself.
    pub(super) fn forget_old_typing(&mut self, now: Instant) {
        if let Some(typed) = &self.typed {
            let last = self.printed.map_or(typed.at, |printed| printed.max(typed.at));
            if now.saturating_duration_since(last) >= TYPED_REST {
                self.typed = None;
            }
        }
    }

    /// Returns whether a rule sees what a rule typed, or would answer it by typing (WN5, WN6).
    pub(super) fn is_own(&self, rule: &Rule, facts: &Facts, now: Instant) -> bool {
        let Some(typed) = &self.typed else { return false };
        let is_text = matches!(rule.condition, Condition::Output | Condition::Screen | Condition::Notification);
        rule.typing.is_some() || is_text && typed.is_echo(&facts.text, now)
    }
}
