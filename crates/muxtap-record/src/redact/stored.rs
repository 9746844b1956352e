//! A redactor, stored for the daemon that replaces this one.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{
    Held, Line, Redactor, Search, Secrets, Tokens,
    shown::{Shown, StoredShown},
};

/// The redaction of one stream of output between two pieces of it, stored for the daemon that replaces
/// this one. The search follows from the searched part of the line, which is looked at between two
/// pieces.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredRedactor {
    tokens: Tokens,
    held: VecDeque<Held>,
    line: Line,
    searched: usize,
    marked: Option<(usize, usize)>,
    columns: usize,
    shown: Option<StoredShown>,
    first: u64,
    apart: bool,
    defers: bool,
    replaced: u64,
}

impl Redactor {
    /// Stores the redactor between two pieces of output.
    pub(crate) fn store(&self) -> StoredRedactor {
        StoredRedactor {
            tokens: self.tokens.clone(),
            held: self.held.clone(),
            line: self.line.clone(),
            searched: self.searched,
            marked: self.marked,
            columns: self.columns,
            shown: self.shown.as_ref().map(|shown| shown.store()),
            first: self.first,
            apart: self.apart,
            defers: self.defers,
            replaced: self.replaced,
        }
    }

    /// Continues with the same patterns.
    pub(crate) fn restore(stored: StoredRedactor, secrets: Secrets) -> Self {
        let StoredRedactor { tokens, held, line, searched, marked, columns, shown, first, apart, defers, replaced } =
            stored;
        let mut search = Search::default();
        let searched = searched.min(line.cells.len());
        // The cursor may have moved back since: what is searched ends where it did then. Its matches are
        // marked already.
        for (column, cell) in line.cells.iter().enumerate().take(searched) {
            if let Some(character) = cell {
                search.step(&secrets.nfa, *character, column, &mut Vec::new());
            }
        }
        let mut redactor = Self {
            tokens,
            held_bytes: held.iter().map(|held| held.bytes.len()).sum(),
            held,
            line,
            search,
            searched,
            marked,
            shown: shown.map(|shown| Box::new(Shown::restore(shown))),
            first,
            apart,
            defers,
            replaced,
            ..Self::for_text(secrets, u16::MAX)
        };
        redactor.columns = columns.max(1);
        redactor
    }
}
