//! ECMAScript patterns, flag `m` and not `u`, in texts of UTF-16 units: what `new RegExp(source, "m").test(text)` answers.
//!
//! Two engines. Most patterns ask for a regular language: they become an *automaton* ([`automaton`]), which looks at each
//! character once whatever the pattern, and is run here. Lookaround, backreferences and a few old spellings need an engine that
//! tries ways until one fits, and may try for ever: those are matched in *worker* processes ([`pool`]) that can be killed.

mod automaton;
mod dialect;
mod parse;
mod pool;
mod worker;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

pub use automaton::Haystack;
pub use pool::Pool;
pub use worker::enter;

use super::js::Text;
use automaton::Automaton;

/// Compiled patterns that are kept for the next request with the same source.
const KEPT: usize = 256;

/// A pattern that JavaScript would compile.
#[derive(Debug)]
pub struct Pattern {
    /// Its source, as `regress` reads it like JavaScript.
    units: Vec<u16>,
    automaton: Option<Automaton>,
}

impl Pattern {
    /// Compiles `source`; `None` where JavaScript throws a `SyntaxError`.
    pub fn compile(source: &Text) -> Option<Self> {
        let units = dialect::for_regress(source.units())?;
        worker::compile(&units)?;
        let automaton = Automaton::build(&units);
        Some(Self { units, automaton })
    }

    /// Whether the text holds a match. A match that takes too long counts as none; [`Pool`] says how long.
    pub async fn is_match(&self, haystack: &Haystack, pool: &Pool) -> bool {
        match self.automaton.as_ref().and_then(|automaton| automaton.is_match(haystack)) {
            Some(matched) => matched,
            None => pool.is_match(&self.units, haystack.text()).await,
        }
    }
}

/// Patterns that were compiled lately.
#[derive(Default)]
pub struct Patterns {
    kept: Mutex<HashMap<Text, Option<Arc<Pattern>>>>,
}

impl Patterns {
    /// The pattern of this source; `None` where JavaScript throws a `SyntaxError`.
    pub fn get(&self, source: &Text) -> Option<Arc<Pattern>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.get(source) {
            return known.clone();
        }
        if kept.len() >= KEPT {
            kept.clear();
        }
        let pattern = Pattern::compile(source).map(Arc::new);
        kept.insert(source.clone(), pattern.clone());
        pattern
    }
}
