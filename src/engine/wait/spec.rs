//! What a wait waits for, checked and compiled.

use std::time::{Duration, Instant};

use regex::Regex;

use crate::{
    api::{Error, PredicateKind, Result, WaitMode, WaitRequest},
    engine::limits,
    stream::{
        cursor::Since,
        patterns::{Limits, PatternSet, PatternSpec, compile_one, stays_within_line},
    },
};

/// A checked wait.
pub struct Spec {
    pub(super) mode: WaitMode,
    pub(super) since: Since,
    /// When it was asked; its time counts from here.
    pub(super) asked: Instant,
    pub(super) timeout: Duration,
    pub(super) settle: Option<Duration>,
    pub(super) stable: Option<Duration>,
    /// Each predicate, in the order of the answer; those of kind `Pattern` come first, in the order of the set.
    pub(super) predicates: Vec<Predicate>,
    /// The `fail` patterns' texts; in the set they follow the patterns.
    pub(super) fail: Vec<String>,
    /// All regexes on the output.
    pub(super) set: Option<PatternSet>,
}

/// One predicate.
pub struct Predicate {
    pub(super) kind: PredicateKind,
    /// The regex's text, where it has one.
    pub(super) text: Option<String>,
    /// The regex of a `screen` or `title` predicate.
    pub(super) regex: Option<Regex>,
    /// What it matches stands within one line.
    pub(super) within_line: bool,
}

impl Spec {
    /// Checks a request.
    pub(super) fn new(request: &WaitRequest) -> Result<Self> {
        let asked = Instant::now();
        if request.panes.is_empty() {
            return Err(Error::invalid("panes: give at least one target to wait on"));
        }
        if request.panes.len() > limits::WAIT_PANES {
            return Err(Error::invalid(format!(
                "panes: {} targets; at most {}",
                request.panes.len(),
                limits::WAIT_PANES
            )));
        }
        let since = match &request.since {
            Some(since) => since.parse()?,
            None => Since::Input,
        };
        let timeout = timeout(request)?;
        let settle = duration("settle_ms", request.settle_ms, limits::WAIT_LONGEST)?;
        let stable = duration("stable_ms", request.stable_ms, limits::WAIT_LONGEST)?;
        let bounds = Limits::default();
        let named = |name: &'static str, texts: &[String]| {
            texts
                .iter()
                .enumerate()
                .map(|(index, text)| PatternSpec::named(format!("{name}[{index}]"), text.clone()))
                .collect::<Vec<_>>()
        };
        let mut specs = named("patterns", &request.patterns);
        specs.extend(named("fail", &request.fail));
        let set = if specs.is_empty() { None } else { Some(PatternSet::new(&specs, &bounds)?) };
        let plain = |kind| Predicate { kind, text: None, regex: None, within_line: false };
        let mut predicates: Vec<_> = request
            .patterns
            .iter()
            .map(|text| Predicate { text: Some(text.clone()), ..plain(PredicateKind::Pattern) })
            .collect();
        for (index, text) in request.screen.iter().enumerate() {
            let regex = compile_one(&format!("screen[{index}]"), text, &bounds)?;
            let (text, within_line) = (Some(text.clone()), stays_within_line(text));
            predicates.push(Predicate { kind: PredicateKind::Screen, text, regex: Some(regex), within_line });
        }
        if stable.is_some() {
            predicates.push(plain(PredicateKind::Stable));
        }
        for (wanted, kind) in [
            (request.exit, PredicateKind::Exit),
            (request.prompt, PredicateKind::Prompt),
            (request.bell, PredicateKind::Bell),
        ] {
            if wanted {
                predicates.push(plain(kind));
            }
        }
        if let Some(text) = &request.title {
            let regex = compile_one("title", text, &bounds)?;
            predicates.push(Predicate { text: Some(text.clone()), regex: Some(regex), ..plain(PredicateKind::Title) });
        }
        if predicates.is_empty() {
            return Err(Error::invalid(
                "nothing to wait for: give at least one of patterns, screen, stable_ms, exit, prompt, bell or title",
            ));
        }
        let fail = request.fail.clone();
        Ok(Self { mode: request.mode, since, asked, timeout, settle, stable, predicates, fail, set })
    }

    /// How many predicates are patterns; they come first.
    pub(super) fn pattern_count(&self) -> usize {
        self.predicates.iter().filter(|predicate| predicate.kind == PredicateKind::Pattern).count()
    }

    /// Where the predicate of a kind that occurs once stands.
    pub(super) fn index_of(&self, kind: PredicateKind) -> Option<usize> {
        self.predicates.iter().position(|predicate| predicate.kind == kind)
    }

    /// The screen predicates with their places.
    pub(super) fn screens(&self) -> impl Iterator<Item = (usize, &Regex)> {
        let all = self.predicates.iter().enumerate();
        all.filter(|(_, predicate)| predicate.kind == PredicateKind::Screen)
            .filter_map(|(index, predicate)| Some((index, predicate.regex.as_ref()?)))
    }

    /// The text of a regex of the set: a pattern's, then a `fail`'s.
    pub(super) fn text_of(&self, pattern: usize) -> &str {
        let patterns = self.pattern_count();
        let text = match pattern.checked_sub(patterns) {
            None => self.predicates.get(pattern).and_then(|predicate| predicate.text.as_deref()),
            Some(fail) => self.fail.get(fail).map(String::as_str),
        };
        text.unwrap_or_default()
    }
}

/// Returns how long a wait may last.
pub(super) fn timeout(request: &WaitRequest) -> Result<Duration> {
    Ok(duration("timeout_ms", request.timeout_ms, limits::WAIT_LONGEST)?.unwrap_or(limits::WAIT_DEFAULT))
}

/// Milliseconds as a duration, within a limit.
pub fn duration(field: &str, ms: Option<u64>, most: Duration) -> Result<Option<Duration>> {
    let Some(ms) = ms else { return Ok(None) };
    let asked = Duration::from_millis(ms);
    if asked > most {
        return Err(Error::invalid(format!("{field}: {ms} is too long; at most {}", most.as_millis())));
    }
    Ok(Some(asked))
}
