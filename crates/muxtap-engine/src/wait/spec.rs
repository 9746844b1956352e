//! The specification of a wait: its request, checked and compiled.

use std::{sync::Arc, time::Duration};

use muxtap_api::{Error, PredicateKind, Result, Since, StatusIs, WaitMode, WaitRequest};
use muxtap_core::stream::patterns::{Limits, PatternSet, PatternSpec, TextPattern, compile_one, stays_within_line};
use tokio::time::Instant;

use super::{
    budget::{Compiled, Key, Known},
    core::Latch,
};

use crate::limits;

/// Approximate bytes of a wait for each of its panes, and of a search for each of its patterns.
const PANE_STATE: usize = 1024;
const PATTERN_STATE: usize = 512;

/// A checked and compiled wait request.
#[derive(Clone)]
pub struct Spec {
    pub(super) mode: WaitMode,
    pub(super) since: Since,
    /// When the wait was requested; its timeout counts from then.
    pub(super) requested_at: Instant,
    pub(super) timeout: Duration,
    pub(super) settle: Option<Duration>,
    pub(super) stable: Option<Duration>,
    /// The status that a `command` predicate wants.
    pub(super) status: Option<StatusIs>,
    /// The predicates, in the order of the answer. Those of kind `Pattern` come first, in the order
    /// of the set.
    pub(super) predicates: Vec<Predicate>,
    /// The texts of the `fail` patterns; in the set they follow the patterns.
    pub(super) fail: Vec<String>,
    /// All regexes on the output.
    pub(super) set: Option<PatternSet>,
    /// The compiled patterns, charged for as long as a wait has them.
    pub(super) compiled: Vec<Arc<Compiled>>,
}

/// A condition of a wait.
#[derive(Clone)]
pub struct Predicate {
    pub(super) kind: PredicateKind,
    /// The text of the predicate's regex, if it has one; the status that `command` wants.
    pub(super) text: Option<String>,
    /// The regex of a `screen`, `gone` or `title` predicate.
    pub(super) regex: Option<TextPattern>,
    /// Whether the regex matches only within one line.
    pub(super) within_line: bool,
}

impl Predicate {
    /// Returns whether the predicate is about the screen.
    fn is_on_screen(&self) -> bool {
        matches!(self.kind, PredicateKind::Screen | PredicateKind::Gone)
    }
}

impl Spec {
    /// Checks and compiles a request.
    #[cfg(test)]
    pub(super) fn new(request: &WaitRequest) -> Result<Self> {
        Self::with(request, &Known::default())
    }

    /// Checks a request and compiles the patterns that are not in `known`, the patterns of open
    /// waits.
    pub(super) fn with(request: &WaitRequest, known: &Known) -> Result<Self> {
        let requested_at = Instant::now();
        if request.panes.is_empty() {
            return Err(Error::invalid("panes: give at least one target to wait on"));
        }
        if request.panes.len() > limits::WAIT_PANES {
            return Err(Error::invalid(format!(
                "panes: too many targets: {}; at most {} are allowed",
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
        let on_screen = request.screen.len() + request.gone.len();
        if on_screen > bounds.patterns {
            let most = bounds.patterns;
            return Err(Error::invalid(format!(
                "screen, gone: too many patterns: {on_screen}; at most {most} are allowed; join some with `|`"
            )));
        }
        let mut compiled = Vec::new();
        let set = if specs.is_empty() {
            None
        } else {
            let texts = specs.iter().map(|spec| spec.text.clone()).collect();
            Some(known.set(Key::Set(texts), &mut compiled, || PatternSet::new(&specs, &bounds))?)
        };
        let plain = |kind| Predicate { kind, text: None, regex: None, within_line: false };
        let mut predicates: Vec<_> = request
            .patterns
            .iter()
            .map(|text| Predicate { text: Some(text.clone()), ..plain(PredicateKind::Pattern) })
            .collect();
        let screens =
            [(PredicateKind::Screen, "screen", &request.screen), (PredicateKind::Gone, "gone", &request.gone)];
        for (kind, name, texts) in screens {
            for (index, text) in texts.iter().enumerate() {
                let compile = || compile_one(&format!("{name}[{index}]"), text, &bounds);
                let regex = known.one(Key::One(text.clone()), &mut compiled, compile)?;
                let (text, within_line) = (Some(text.clone()), stays_within_line(text));
                predicates.push(Predicate { kind, text, regex: Some(regex), within_line });
            }
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
        if request.command || request.status.is_some() {
            let text = request.status.map(|status| status.to_string());
            predicates.push(Predicate { text, ..plain(PredicateKind::Command) });
        }
        if let Some(text) = &request.title {
            let compile = || compile_one("title", text, &bounds);
            let regex = known.one(Key::One(text.clone()), &mut compiled, compile)?;
            predicates.push(Predicate { text: Some(text.clone()), regex: Some(regex), ..plain(PredicateKind::Title) });
        }
        if predicates.is_empty() {
            return Err(Error::invalid(
                "nothing to wait for: give at least one of patterns, screen, gone, stable_ms, exit, prompt, bell, \
                 command, status or title",
            ));
        }
        let fail = request.fail.clone();
        let (mode, status) = (request.mode, request.status);
        Ok(Self { mode, since, requested_at, timeout, settle, stable, status, predicates, fail, set, compiled })
    }

    /// Returns the wait's size in bytes on this many panes, without compiled patterns and the
    /// states that its searches build.
    pub(super) fn memory(&self, panes: usize) -> usize {
        let latches = self.predicates.len() * size_of::<Option<Latch>>();
        let search = self.set.as_ref().map_or(0, |set| set.search_memory() + set.len() * PATTERN_STATE);
        let texts = self.predicates.iter().filter_map(|predicate| predicate.text.as_ref()).chain(&self.fail);
        texts.map(String::len).sum::<usize>() + panes * (latches + search + PANE_STATE)
    }

    /// Returns the number of predicates that are patterns; they come first.
    pub(super) fn pattern_count(&self) -> usize {
        self.predicates.iter().filter(|predicate| predicate.kind == PredicateKind::Pattern).count()
    }

    /// Returns the index of the predicate of a kind that occurs once.
    pub(super) fn index_of(&self, kind: PredicateKind) -> Option<usize> {
        self.predicates.iter().position(|predicate| predicate.kind == kind)
    }

    /// Returns whether a predicate is about something that commands change too, which only tmux
    /// reports.
    pub(super) fn needs_tmux(&self) -> bool {
        self.predicates.iter().any(|predicate| predicate.is_on_screen() || predicate.kind == PredicateKind::Title)
    }

    /// Returns the predicates about the screen, with their indices.
    pub(super) fn screens(&self) -> impl Iterator<Item = (usize, &Predicate)> {
        self.predicates.iter().enumerate().filter(|(_, predicate)| predicate.is_on_screen())
    }

    /// Returns the text of a regex of the set: patterns first, then `fail` patterns.
    pub(super) fn text_of(&self, pattern: usize) -> &str {
        let patterns = self.pattern_count();
        let text = match pattern.checked_sub(patterns) {
            None => self.predicates.get(pattern).and_then(|predicate| predicate.text.as_deref()),
            Some(fail) => self.fail.get(fail).map(String::as_str),
        };
        text.unwrap_or_default()
    }
}

/// Returns the wait's timeout.
pub(super) fn timeout(request: &WaitRequest) -> Result<Duration> {
    Ok(duration("timeout_ms", request.timeout_ms, limits::WAIT_LONGEST)?.unwrap_or(limits::WAIT_DEFAULT))
}

/// Converts milliseconds to a duration, within a limit.
pub fn duration(field: &str, ms: Option<u64>, most: Duration) -> Result<Option<Duration>> {
    let Some(ms) = ms else { return Ok(None) };
    let duration = Duration::from_millis(ms);
    if duration > most {
        return Err(Error::invalid(format!("{field}: {ms} is too long; at most {}", most.as_millis())));
    }
    Ok(Some(duration))
}
