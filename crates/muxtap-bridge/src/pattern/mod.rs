//! ECMAScript patterns with the flag `m` and without `u`, on texts of UTF-16 units: the result of
//! `new RegExp(source, "m").test(text)`.
//!
//! A pattern that backtracks may run forever, so `regress` matches in *worker* processes (`pool`)
//! that can be killed.

mod dialect;
mod pool;
mod worker;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

pub use pool::Pool;
use tokio::sync::watch;
pub use worker::run_if_worker;

use super::js::JsString;

/// The number of compiled patterns that are cached for later requests with the same source.
const CACHED_PATTERNS: usize = 256;

/// A compiled pattern.
#[derive(Debug)]
pub struct Pattern {
    /// The source, rewritten so that `regress` parses it like JavaScript.
    units: Vec<u16>,
    /// Whether the last match was slow, in processor time.
    is_slow: watch::Sender<bool>,
}

impl Pattern {
    /// Compiles `source`; `None` if JavaScript throws a `SyntaxError`.
    pub fn compile(source: &JsString) -> Option<Self> {
        let units = dialect::for_regress(source.units())?;
        worker::compile(&units)?;
        Some(Self { units, is_slow: watch::Sender::new(false) })
    }

    /// Resolves once a match is slow, in processor time.
    pub async fn until_slow(&self) {
        // The sender lives as long as `self`.
        let _ = self.is_slow.subscribe().wait_for(|is_slow| *is_slow).await;
    }

    fn is_slow(&self) -> bool {
        *self.is_slow.borrow()
    }

    fn set_slow(&self, is_slow: bool) {
        self.is_slow.send_replace(is_slow);
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
    use crate::json::Value;

    fn text(quoted: &str) -> JsString {
        Value::read(quoted).into_text().unwrap()
    }

    /// Compares with the results of V8 (`tests/golden/bridge/patterns.mjs`).
    #[test]
    fn patterns_mean_what_javascript_says() {
        let golden = include_str!("../../../../tests/golden/bridge/patterns.tsv");
        let (texts, cases) = golden.split_once('\n').unwrap();
        let texts: Vec<JsString> = texts.split('\t').skip(1).map(text).collect();
        let mut compared = 0;
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
            }
        }
        assert!(compared > 5000, "{compared}");
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
