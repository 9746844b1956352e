//! What rules know of one pane: the line being printed, and what rules typed.

use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};

use muxtap_api::PaneInfo;
use muxtap_core::stream::decoder::TextDecoder;

use super::{
    Pane,
    pieces::{Piece, Place},
};
use crate::{
    facts::{Facts, beginning},
    limits::{LINE_BYTES, TYPED_REST},
    rule::{Condition, Rule},
};

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
