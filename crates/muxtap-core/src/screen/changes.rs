//! The changes of a screen since the last read.

use serde::{Deserialize, Serialize};

/// The changes of a screen since they were last taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is one thing that can change")]
pub struct Changes {
    all: bool,
    rows: Vec<u64>,
    /// Whether the title changed.
    pub title: bool,
    /// The number of bells.
    pub bells: u32,
    /// Whether the pane switched between its main and its alternate screen.
    pub alternate: bool,
    /// Whether the size changed.
    pub size: bool,
}

impl Changes {
    /// Returns whether a visible row may have changed. Rows that scrolled count as changed.
    pub fn row(&self, row: u16) -> bool {
        let bit = self.rows.get(usize::from(row) / 64).is_some_and(|word| word >> (row % 64) & 1 == 1);
        self.all || bit
    }

    /// Returns whether every row may have changed: the screen scrolled, was cleared or resized.
    pub fn all(&self) -> bool {
        self.all
    }

    /// Returns whether nothing visible changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
            || (!self.all
                && !self.title
                && self.bells == 0
                && !self.alternate
                && !self.size
                && self.rows.iter().all(|word| *word == 0))
    }

    /// Returns changes that cover everything.
    pub fn everything() -> Self {
        Self { all: true, size: true, ..Self::default() }
    }

    /// Adds the changes of another set.
    pub fn merge(&mut self, other: &Self) {
        self.all |= other.all;
        self.title |= other.title;
        self.alternate |= other.alternate;
        self.size |= other.size;
        self.bells = self.bells.saturating_add(other.bells);
        if self.rows.len() < other.rows.len() {
            self.rows.resize(other.rows.len(), 0);
        }
        for (word, more) in self.rows.iter_mut().zip(&other.rows) {
            *word |= more;
        }
    }

    pub(super) fn mark(&mut self, row: usize) {
        if self.all {
            return;
        }
        let word = row / 64;
        if word >= self.rows.len() {
            self.rows.resize(word + 1, 0);
        }
        if let Some(bits) = self.rows.get_mut(word) {
            *bits |= 1 << (row % 64);
        }
    }

    pub(super) fn mark_all(&mut self) {
        self.all = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_row_is_told() {
        let mut changes = Changes::default();
        assert!(changes.is_empty());
        changes.mark(70);
        assert!(changes.row(70) && !changes.row(69) && !changes.row(300) && !changes.is_empty());
        changes.mark_all();
        assert!(changes.row(300));
    }
}
