//! Judges what an agent does by what its pane shows.

use std::ops::Range;

use regex::Regex;
use sha2::{Digest as _, Sha256};

use super::{
    options::{self, unboxed},
    rules::{Agent, Options, Rule},
};
use crate::api::{AgentEvidence, AgentOption, AgentRow, AgentState};

/// The text and title of a pane's screen.
#[derive(Clone, Debug, Default)]
pub(super) struct PaneContent {
    /// The rows of the screen, from the top.
    pub(super) rows: Vec<String>,
    pub(super) title: String,
    /// Whether the bell rang since the agent last worked.
    pub(super) bell_rang: bool,
}

/// The agent's state as the rules judge it, with the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    pub(super) state: AgentState,
    pub(super) question: Option<String>,
    pub(super) options: Vec<AgentOption>,
    /// A digest of the question, its answers and what stands above it, where there are answers.
    pub(super) digest: Option<String>,
    pub(super) evidence: AgentEvidence,
}

impl Judgement {
    /// Returns whether a subscriber who was sent `other` must be sent this one. The cursor's place
    /// in a list does not count, and neither does what else the screen shows.
    pub(super) fn differs(&self, other: &Self) -> bool {
        let answers = |judgement: &Self| {
            judgement.options.iter().map(|option| (option.key.clone(), option.label.clone())).collect::<Vec<_>>()
        };
        self.state != other.state || self.question != other.question || answers(self) != answers(other)
    }
}

/// Judges by the first rule that applies. Where none does the agent is idle.
pub(super) fn judge(agent: &Agent, content: &PaneContent) -> Judgement {
    let applies = |rule| Some((rule, RuleMatch::of(rule, content)?));
    match agent.rules.iter().find_map(applies) {
        Some((rule, found)) => found.judgement(rule, content),
        None => Judgement {
            state: AgentState::Idle,
            question: None,
            options: Vec::new(),
            digest: None,
            evidence: AgentEvidence { rule: "none".into(), ..AgentEvidence::default() },
        },
    }
}

/// The rows that a rule looks at, as one text.
struct Excerpt<'a> {
    rows: &'a [String],
    /// The index of the first row on the screen.
    first: usize,
    text: String,
}

impl<'a> Excerpt<'a> {
    /// Returns the last rows that are not empty, at most `most`.
    fn last(rows: &'a [String], most: u16) -> Self {
        let end = rows.iter().rposition(|row| !row.trim().is_empty()).map_or(0, |last| last + 1);
        let first = end.saturating_sub(usize::from(most));
        Self::of(rows.get(first..end).unwrap_or_default(), first)
    }

    fn of(rows: &'a [String], first: usize) -> Self {
        Self { rows, first, text: rows.join("\n") }
    }

    /// Returns what stands below the last row that matches.
    fn below(self, regex: &Regex) -> Self {
        match self.rows.iter().rposition(|row| regex.is_match(row)).map(|at| at + 1) {
            Some(at) => Self::of(self.rows.get(at..).unwrap_or_default(), self.first + at),
            None => self,
        }
    }

    /// Returns the rows on which these bytes stand, counted within this excerpt.
    fn rows_of(&self, bytes: &Range<usize>) -> Range<usize> {
        let breaks = |to: usize| self.text.get(..to).map_or(0, |text| text.matches('\n').count());
        // An empty match at a row's end is in that row.
        let last = breaks(bytes.end.saturating_sub(1).max(bytes.start));
        breaks(bytes.start)..last + 1
    }
}

/// The match of a rule: why it applies.
struct RuleMatch<'a> {
    excerpt: Excerpt<'a>,
    /// The rows that each expression matched, counted within the excerpt.
    rows: Vec<Range<usize>>,
}

impl<'a> RuleMatch<'a> {
    fn of(rule: &Rule, content: &'a PaneContent) -> Option<Self> {
        if rule.bell && !content.bell_rang || rule.title.as_ref().is_some_and(|title| !title.is_match(&content.title)) {
            return None;
        }
        let mut excerpt = Excerpt::last(&content.rows, rule.rows);
        if let Some(below) = &rule.below {
            excerpt = excerpt.below(below);
        }
        // The last match counts: what stands lowest is newest.
        let found =
            rule.screen.iter().map(|regex| Some(excerpt.rows_of(&regex.find_iter(&excerpt.text).last()?.range())));
        let rows = found.collect::<Option<Vec<_>>>()?;
        if rule.unless.iter().any(|regex| regex.is_match(&excerpt.text)) {
            return None;
        }
        Some(Self { excerpt, rows })
    }

    fn judgement(&self, rule: &Rule, content: &PaneContent) -> Judgement {
        let rows: Vec<&str> = self.excerpt.rows.iter().map(String::as_str).collect();
        let first_row = self.rows.first().map_or(0, |rows| rows.start);
        let (first, options) = match &rule.options {
            Options::None => (None, Vec::new()),
            Options::Numbered => options::numbered(&rows).map_or((None, Vec::new()), |(at, list)| (Some(at), list)),
            Options::Pattern(regex) => {
                let text = rows.get(first_row..).unwrap_or_default().join("\n");
                (None, options::matching(regex, &text))
            }
        };
        let asks = matches!(rule.state, AgentState::Permission | AgentState::Question);
        let above = || {
            let above = rows.get(..first?)?.iter().rev().map(|row| unboxed(row));
            above.into_iter().find(|text| !text.is_empty()).map(str::to_owned)
        };
        let own = || rows.get(first_row).filter(|_| !self.rows.is_empty()).map(|row| unboxed(row).to_owned());
        let question = asks.then(|| self.question(rule).or_else(above).or_else(own)).flatten();
        let mut matched_rows: Vec<usize> = self.rows.iter().flat_map(Clone::clone).collect();
        matched_rows.sort_unstable();
        matched_rows.dedup();
        let row = |at: usize| {
            let text = self.excerpt.rows.get(at)?.clone();
            Some(AgentRow { row: u16::try_from(self.excerpt.first + at).unwrap_or(u16::MAX), text })
        };
        let above = rows.get(..first.unwrap_or(first_row)).unwrap_or_default();
        let digest = (asks && !options.is_empty()).then(|| digest(question.as_deref(), above, &options));
        Judgement {
            state: rule.state,
            question,
            options,
            digest,
            evidence: AgentEvidence {
                rule: rule.name.clone(),
                rows: matched_rows.into_iter().filter_map(row).collect(),
                title: rule.title.as_ref().map(|_| content.title.clone()),
            },
        }
    }

    /// Returns what the rule's own expression finds: its first group, or all of the match.
    fn question(&self, rule: &Rule) -> Option<String> {
        let found = rule.question.as_ref()?.captures_iter(&self.excerpt.text).last()?;
        Some(unboxed(found.get(1).or_else(|| found.get(0))?.as_str()).to_owned())
    }
}

/// The rows above the answers that tell one question from another of the same words: what is to be
/// permitted stands there.
const ROWS_ABOVE: usize = 8;

/// Returns a digest of a question, wherever the cursor stands in its answers.
fn digest(question: Option<&str>, above: &[&str], options: &[AgentOption]) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update(text);
        hash.update([0]);
    };
    add(question.unwrap_or_default());
    let above = above.iter().rev().map(|row| unboxed(row)).filter(|row| !row.is_empty());
    above.take(ROWS_ABOVE).for_each(&mut add);
    for option in options {
        add(&option.key);
        add(&option.label);
    }
    hash.finalize().iter().take(6).fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests;
