//! ECMAScript patterns, flag `m` and not `u`, in texts of UTF-16 units: the result of `new
//! RegExp(source, "m").test(text)`.
//! There are two engines. Most patterns ask for a regular language: they become an *automaton*
//! (`automaton`), which looks at each character once whatever the pattern, and runs here.
//! Lookaround, backreferences and a few old spellings need an engine that backtracks, and may do so
//! for ever: those are matched in *worker* processes (`pool`) that can be killed.

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
pub use worker::run_if_worker;

use super::js::JsString;
use automaton::Automaton;

/// Compiled patterns that are cached for the next request with the same source.
const CACHED_PATTERNS: usize = 256;

/// A compiled pattern that JavaScript accepts.
#[derive(Debug)]
pub struct Pattern {
    /// The source, rewritten so that `regress` reads it like JavaScript.
    units: Vec<u16>,
    automaton: Option<Automaton>,
}

impl Pattern {
    /// Compiles `source`; `None` where JavaScript throws a `SyntaxError`.
    pub fn compile(source: &JsString) -> Option<Self> {
        let units = dialect::for_regress(source.units())?;
        worker::compile(&units)?;
        let automaton = Automaton::build(&units);
        Some(Self { units, automaton })
    }

    /// Returns whether the text holds a match. A match that takes too long counts as none; [`Pool`]
    /// says how long.
    pub async fn is_match(&self, haystack: &Haystack, pool: &Pool) -> bool {
        match self.automaton.as_ref().and_then(|automaton| automaton.is_match(haystack)) {
            Some(matched) => matched,
            None => pool.is_match(&self.units, haystack.text()).await,
        }
    }

    /// Returns whether a text that may hold halves of pairs holds a match.
    pub async fn is_match_in(&self, text: &JsString, pool: &Pool) -> bool {
        match String::from_utf16(text.units()) {
            Ok(whole) => self.is_match(&Haystack::from(whole), pool).await,
            Err(_) => pool.is_match(&self.units, text.units()).await,
        }
    }
}

/// A cache of compiled patterns, and of sources that do not compile.
#[derive(Default)]
pub struct PatternCache {
    compiled: Mutex<HashMap<JsString, Option<Arc<Pattern>>>>,
}

impl PatternCache {
    /// Returns the compiled pattern. `None`: JavaScript throws a `SyntaxError`.
    pub fn get(&self, source: &JsString) -> Option<Arc<Pattern>> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = compiled.get(source) {
            return known.clone();
        }
        if compiled.len() >= CACHED_PATTERNS {
            compiled.clear();
        }
        let pattern = Pattern::compile(source).map(Arc::new);
        compiled.insert(source.clone(), pattern.clone());
        pattern
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::json::Value;

    fn text(quoted: &str) -> JsString {
        Value::read(quoted).into_text().unwrap()
    }

    /// What V8 answers (`tests/golden/bridge/patterns.mjs`).
    #[test]
    fn patterns_mean_what_javascript_says() {
        let golden = include_str!("../../../tests/golden/bridge/patterns.tsv");
        let (texts, cases) = golden.split_once('\n').unwrap();
        let texts: Vec<JsString> = texts.split('\t').skip(1).map(text).collect();
        let (mut compared, mut by_automaton) = (0, 0);
        for case in cases.lines() {
            let (source, verdicts) = case.split_once('\t').unwrap();
            let compiled = Pattern::compile(&text(source));
            let Some(pattern) = compiled else {
                assert_eq!(verdicts, "invalid", "{source}");
                continue;
            };
            assert_eq!(verdicts.len(), texts.len(), "{source} is valid here");
            let regex = worker::compile(&pattern.units).unwrap();
            for (text, verdict) in texts.iter().zip(verdicts.bytes()) {
                let expected = verdict == b'1';
                assert_eq!(regex.find_from_ucs2(text.units(), 0).next().is_some(), expected, "{source} in {text:?}");
                compared += 1;
                // What a pane shows has no halves.
                if String::from_utf16(text.units()).is_ok()
                    && let Some(automaton) = &pattern.automaton
                    && let Some(matched) = automaton.is_match(&Haystack::from(text.lossy()))
                {
                    assert_eq!(matched, expected, "{source} in {text:?}, by the automaton");
                    by_automaton += 1;
                }
            }
        }
        assert!(compared > 5000 && by_automaton > 3000, "{compared}, {by_automaton}");
    }

    #[test]
    fn a_source_is_compiled_once() {
        let patterns = PatternCache::default();
        let first = patterns.get(&JsString::from("a+")).unwrap();
        assert!(Arc::ptr_eq(&first, &patterns.get(&JsString::from("a+")).unwrap()));
        assert!(patterns.get(&JsString::from("(")).is_none());
        for number in 0..=CACHED_PATTERNS {
            patterns.get(&JsString::from(number.to_string().as_str())).unwrap();
        }
        assert!(!Arc::ptr_eq(&first, &patterns.get(&JsString::from("a+")).unwrap()), "not for ever");
    }
}
