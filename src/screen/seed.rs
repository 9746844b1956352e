//! A screen from tmux's answers, in the middle of a pane's life.

use bytes::Bytes;

use super::{Size, terminal::Terminal};
use crate::protocol::{command::Command, ids::PaneId};

/// What tmux tells of a pane in one command line (F3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seed {
    /// `#{history_limit}`.
    pub history_limit: u32,
    /// An escape sequence that has begun and not ended.
    pub pending: Bytes,
    columns: u16,
    rows: u16,
}

/// The commands whose replies [`parse`] reads, in one request.
pub fn question(pane: PaneId) -> Vec<Command> {
    let _ = pane;
    Vec::new()
}

/// Reads the replies.
pub fn parse(parts: &[Bytes]) -> Option<Seed> {
    let _ = parts;
    None
}

impl Seed {
    /// Columns and rows.
    pub fn size(&self) -> Size {
        Size { columns: self.columns, rows: self.rows }
    }

    pub(super) fn fill(&self, terminal: &mut Terminal) -> Option<()> {
        let _ = terminal;
        None
    }
}
