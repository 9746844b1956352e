//! Judges an agent's state by its pane's screen and title.

use std::{ops::Range, sync::Arc};

use muxtap_api::{AgentEvidence, AgentOption, AgentRow, AgentRuleTried, AgentState, ProgressState};
use regex::Regex;
use sha2::{Digest as _, Sha256};

use super::{
    dialog::{self, Below, Dialog, Edges, Standing},
    options::{OptionBlock, unboxed},
    rules::{Agent, Options, Rule},
    version::AgentVersion,
};

/// The text and title of a pane's screen.
#[derive(Clone, Debug, Default)]
pub(super) struct PaneContent {
    /// The rows of the screen, from the top, with wrapped rows joined: the look of a wrapped part
    /// depends on the text, not on the agent.
    pub(super) rows: Vec<String>,
    /// The place of each row on the screen; if empty, the rows count from 0.
    pub(super) places: Vec<u16>,
    /// Whether the first row continues a line from above the screen.
    pub(super) starts_within_line: bool,
    pub(super) title: String,
    /// Whether the bell rang since the agent last worked.
    pub(super) bell_rang: bool,
    /// The progress that a program reported since the agent began.
    pub(super) progress: Option<ProgressState>,
    /// The last notification since the agent last worked.
    pub(super) notification: Option<Arc<str>>,
    /// The directory in which the agent runs.
    pub(super) directory: Option<Arc<str>>,
    /// The agent's version, if it was shown.
    pub(super) version: Option<AgentVersion>,
}

impl PaneContent {
    /// Returns the place of a row on the screen.
    fn place(&self, row: usize) -> u16 {
        self.places.get(row).copied().unwrap_or_else(|| u16::try_from(row).unwrap_or(u16::MAX))
    }
}

/// The agent's state as the rules judge it, with the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    pub(super) state: AgentState,
    pub(super) question: Option<String>,
    pub(super) options: Vec<AgentOption>,
    /// A digest of the whole question and its answers, if there are answers.
    pub(super) digest: Option<String>,
    pub(super) evidence: AgentEvidence,
}

impl Judgement {
    /// Returns whether one of the agent's rules applied, certainly.
    pub(super) fn is_by_rule(&self) -> bool {
        !matches!(self.evidence.rule.as_str(), "none" | UNCERTAIN_RULE)
    }

    /// Returns whether a subscriber that received `other` must also receive this judgement. The
    /// cursor's place in a list does not count, nor does other text on the screen.
    pub(super) fn differs(&self, other: &Self) -> bool {
        let answers = |judgement: &Self| {
            judgement.options.iter().map(|option| (option.key.clone(), option.label.clone())).collect::<Vec<_>>()
        };
        self.state != other.state || self.question != other.question || answers(self) != answers(other)
    }
}

/// The question of a state in which a dialog is on the screen but an answer might not reach it.
const UNCERTAIN: &str = "A dialog is on the screen, but not alone or not at its end: look at the pane to see what \
    it asks";
/// The rule's name in that state's evidence.
const UNCERTAIN_RULE: &str = "uncertain";

/// Judges by the first rule that applies. If none applies, the agent is idle.
///
/// Only the agent's own dialog asks for a person: see [`dialog`]. A dialog that may be text of
/// other origin is not judged, and of two dialogs neither is.
pub(super) fn judge(agent: &Agent, content: &PaneContent) -> Judgement {
    let rows: Vec<&str> = content.rows.iter().map(String::as_str).collect();
    let end = rows.iter().rposition(|row| !row.trim().is_empty()).map_or(0, |last| last + 1);
    let rows = rows.get(..end).unwrap_or_default();
    let mut uncertain = None;
    for rule in &agent.rules {
        match try_rule(rule, agent, rows, content) {
            Outcome::Yes(judgement) | Outcome::Two(judgement) => return judgement,
            Outcome::Uncertain(judgement) => uncertain = uncertain.or(Some(judgement)),
            Outcome::No => {}
        }
    }
    uncertain.unwrap_or_else(|| Judgement {
        state: AgentState::Idle,
        question: None,
        options: Vec::new(),
        digest: None,
        evidence: AgentEvidence { rule: "none".into(), ..AgentEvidence::default() },
    })
}

/// Tries each rule of an agent by itself. Returns whether it applies, in the order of the rules.
pub(super) fn tried(agent: &Agent, content: &PaneContent) -> Vec<AgentRuleTried> {
    let rows: Vec<&str> = content.rows.iter().map(String::as_str).collect();
    let end = rows.iter().rposition(|row| !row.trim().is_empty()).map_or(0, |last| last + 1);
    let rows = rows.get(..end).unwrap_or_default();
    let tried = agent.rules.iter().map(|rule| AgentRuleTried {
        rule: rule.name.clone(),
        state: rule.state,
        priority: rule.priority,
        applies: matches!(try_rule(rule, agent, rows, content), Outcome::Yes(_)),
    });
    tried.collect()
}

fn try_rule(rule: &Rule, agent: &Agent, rows: &[&str], content: &PaneContent) -> Outcome {
    if !rule.is_for(content.version, content.directory.as_deref()) {
        return Outcome::No;
    }
    match rule.state {
        AgentState::Permission | AgentState::Question => ask(rule, agent, rows, content),
        _ => RuleMatch::of(rule, agent, content)
            .map_or(Outcome::No, |found| Outcome::Yes(found.judgement(rule, content, None, Vec::new()))),
    }
}

/// Whether a rule applies.
enum Outcome {
    Yes(Judgement),
    /// The screen has this dialog and another one: a person must look.
    Two(Judgement),
    /// The screen may have a dialog. Other rules take precedence.
    Uncertain(Judgement),
    No,
}

/// Tries a rule whose state asks for a person.
fn ask(rule: &Rule, agent: &Agent, rows: &[&str], content: &PaneContent) -> Outcome {
    let edges = Edges { is_full: rows.len() == content.rows.len(), starts_within_line: content.starts_within_line };
    let standing = dialog::find(rows, edges, agent, &rule.options, rule.state);
    if let Standing::Whole(dialog) = &standing {
        if rule.framed && !dialog.is_bounded {
            return Outcome::No;
        }
        let Some(found) = RuleMatch::of_dialog(rule, agent, content, dialog) else { return Outcome::No };
        if !agent.keeps_answered && dialog.others.iter().any(|other| is_dialog(other, dialog, agent, rows)) {
            return Outcome::Two(found.uncertain());
        }
        let fitting = found.first_row() + found.excerpt.first;
        let answers = if matches!(rule.options, Options::Pattern(_)) { fitting } else { 0 };
        let options = dialog.block.options_from(answers);
        let question = found.question_of(rule, dialog, rows, fitting);
        return Outcome::Yes(found.judgement(rule, content, question, options));
    }
    let Some(found) = RuleMatch::of(rule, agent, content) else { return Outcome::No };
    if rule.screen.is_empty() {
        // Only the title or the bell means the state, not the screen.
        return Outcome::Yes(found.judgement(rule, content, None, Vec::new()));
    }
    let last = found.rows.iter().map(|rows| rows.end).max().unwrap_or_default() + found.excerpt.first;
    match (&rule.options, standing, dialog::below(rows.get(last..).unwrap_or_default(), agent)) {
        (Options::None, _, Below::Footer | Below::Other) => {
            let question = found.question(rule).or_else(|| found.own_row());
            Outcome::Yes(found.judgement(rule, content, question, Vec::new()))
        }
        (_, Standing::Unsure, _) | (_, Standing::Nothing, Below::Footer) => Outcome::Uncertain(found.uncertain()),
        _ => Outcome::No,
    }
}

/// The rows around a list of answers that may have the words of its dialog.
const ROWS_BEFORE: usize = 12;
const ROWS_BEHIND: usize = 6;

/// Returns whether a list of answers other than the dialog's looks like one of the agent's own
/// dialogs.
fn is_dialog(other: &OptionBlock, dialog: &Dialog, agent: &Agent, rows: &[&str]) -> bool {
    if other.options.len() < 2 {
        return false;
    }
    let asks = |rule: &&Rule| {
        let is_question = matches!(rule.state, AgentState::Permission | AgentState::Question);
        // Without words of its own, only a dialog's border tells it from other text.
        is_question && !rule.framed && !matches!(rule.options, Options::None)
    };
    let from = other.rows.start.saturating_sub(ROWS_BEFORE);
    let to = (other.rows.end + ROWS_BEHIND).min(dialog.block.rows.start);
    let text = |to: usize| rows.get(from..to).unwrap_or_default().join("\n");
    let (head, all) = (text(other.rows.end), text(to));
    agent.rules.iter().filter(asks).any(|rule| match &rule.question {
        Some(question) => question.is_match(&head),
        None => !rule.screen.is_empty() && rule.screen.iter().all(|regex| regex.is_match(&all)),
    })
}

/// The rows that a rule examines, as one text.
struct Excerpt<'a> {
    rows: &'a [String],
    /// The index of the first row on the screen.
    first: usize,
    text: String,
}

impl<'a> Excerpt<'a> {
    /// Returns the last rows up to the last one with text, at most `most`.
    fn last(rows: &'a [String], most: u16) -> Self {
        let end = rows.iter().rposition(|row| !row.trim().is_empty()).map_or(0, |last| last + 1);
        let first = end.saturating_sub(usize::from(most));
        Self::of(rows.get(first..end).unwrap_or_default(), first)
    }

    fn of(rows: &'a [String], first: usize) -> Self {
        Self { rows, first, text: rows.join("\n") }
    }

    /// Returns the rows below the last row that matches, except the prompt at the screen's end, in
    /// which the user types the next message, or which suggests one.
    fn below(self, regex: &Regex, agent: &Agent) -> Self {
        let prompt = dialog::typed_prompt(self.rows, agent).filter(|_| !agent.keeps_answered);
        let rows = self.rows.iter().enumerate();
        let last = rows.rev().find(|(at, row)| Some(*at) != prompt && regex.is_match(row));
        match last.map(|(at, _)| at + 1) {
            Some(at) => Self::of(self.rows.get(at..).unwrap_or_default(), self.first + at),
            None => self,
        }
    }

    /// Returns the rows of these bytes, counted within this excerpt.
    fn rows_of(&self, bytes: &Range<usize>) -> Range<usize> {
        let breaks = |to: usize| self.text.get(..to).map_or(0, |text| text.matches('\n').count());
        // An empty match at a row's end is in that row.
        let last = breaks(bytes.end.saturating_sub(1).max(bytes.start));
        breaks(bytes.start)..last + 1
    }
}

/// A rule's match: the reason why it applies.
struct RuleMatch<'a> {
    content: &'a PaneContent,
    excerpt: Excerpt<'a>,
    /// The rows that each expression matched, counted within the excerpt.
    rows: Vec<Range<usize>>,
}

/// Returns whether everything that a rule asks for besides the screen is there.
fn has_signals(rule: &Rule, content: &PaneContent) -> bool {
    let is_title = |title: &Regex| title.is_match(&content.title);
    let is_notified = |regex: &Regex| content.notification.as_deref().is_some_and(|text| regex.is_match(text));
    (!rule.bell || content.bell_rang)
        && rule.title.as_ref().is_none_or(is_title)
        && rule.progress.is_none_or(|state| content.progress.unwrap_or(ProgressState::Ended) == state)
        && rule.notification.as_ref().is_none_or(is_notified)
}

impl<'a> RuleMatch<'a> {
    fn of(rule: &Rule, agent: &Agent, content: &'a PaneContent) -> Option<Self> {
        Self::in_excerpt(rule, agent, content, Excerpt::last(&content.rows, rule.rows))
    }

    /// Tries a rule on a dialog alone.
    fn of_dialog(rule: &Rule, agent: &Agent, content: &'a PaneContent, dialog: &Dialog) -> Option<Self> {
        let rows = content.rows.get(dialog.rows.clone()).unwrap_or_default();
        Self::in_excerpt(rule, agent, content, Excerpt::of(rows, dialog.rows.start))
    }

    fn in_excerpt(rule: &Rule, agent: &Agent, content: &'a PaneContent, excerpt: Excerpt<'a>) -> Option<Self> {
        if !has_signals(rule, content) {
            return None;
        }
        let excerpt = match &rule.below {
            Some(below) => excerpt.below(below, agent),
            None => excerpt,
        };
        // The last match counts: the lowest text is the newest.
        let found =
            rule.screen.iter().map(|regex| Some(excerpt.rows_of(&regex.find_iter(&excerpt.text).last()?.range())));
        let rows = found.collect::<Option<Vec<_>>>()?;
        if rule.unless.iter().any(|regex| regex.is_match(&excerpt.text)) {
            return None;
        }
        Some(Self { content, excerpt, rows })
    }

    /// Returns the first row that the first expression matched, within the excerpt.
    fn first_row(&self) -> usize {
        self.rows.first().map_or(0, |rows| rows.start)
    }

    fn judgement(
        &self,
        rule: &Rule,
        content: &PaneContent,
        question: Option<String>,
        options: Vec<AgentOption>,
    ) -> Judgement {
        let digest = (!options.is_empty()).then(|| digest(question.as_deref(), &options));
        Judgement {
            state: rule.state,
            question: question.map(|question| shortened(&question)),
            options,
            digest,
            evidence: AgentEvidence {
                rule: rule.name.clone(),
                title: rule.title.as_ref().map(|_| content.title.clone()),
                rows: self.evidence_rows(),
                ..AgentEvidence::default()
            },
        }
    }

    /// Returns the judgement that a person must look.
    fn uncertain(&self) -> Judgement {
        Judgement {
            state: AgentState::Question,
            question: Some(UNCERTAIN.to_owned()),
            options: Vec::new(),
            digest: None,
            evidence: AgentEvidence {
                rule: UNCERTAIN_RULE.into(),
                rows: self.evidence_rows(),
                ..AgentEvidence::default()
            },
        }
    }

    fn evidence_rows(&self) -> Vec<AgentRow> {
        let mut rows: Vec<usize> = self.rows.iter().flat_map(Clone::clone).collect();
        rows.sort_unstable();
        rows.dedup();
        let row = |at: usize| {
            let text = self.excerpt.rows.get(at)?.clone();
            Some(AgentRow { row: self.content.place(self.excerpt.first + at), text })
        };
        rows.into_iter().filter_map(row).collect()
    }

    /// Returns a dialog's question: all of its text above the answers, including the question that
    /// the rule's expression finds.
    ///
    /// `fitting`: the row of the screen that the first expression matched.
    fn question_of(&self, rule: &Rule, dialog: &Dialog, rows: &[&str], fitting: usize) -> Option<String> {
        // If question and answers share one row, the subject of the question is above that row.
        let is_one_row = dialog.block.rows.contains(&fitting) && rule.question.is_some();
        let mut text = dialog.body(rows, if is_one_row { fitting } else { dialog.block.rows.start });
        let asked = self.question(rule);
        let is_new = |asked: &String| is_one_row || !text.iter().any(|line| line.contains(asked.as_str()));
        if let Some(asked) = asked.filter(is_new) {
            text.push(asked);
        }
        if text.is_empty() {
            return self.own_row();
        }
        if dialog.is_cut {
            text.insert(0, MORE.to_owned());
        }
        Some(text.join("\n"))
    }

    fn own_row(&self) -> Option<String> {
        self.excerpt.rows.get(self.first_row()).filter(|_| !self.rows.is_empty()).map(|row| unboxed(row).to_owned())
    }

    /// Returns the match of the rule's own expression: its first group, or the whole match.
    fn question(&self, rule: &Rule) -> Option<String> {
        let found = rule.question.as_ref()?.captures_iter(&self.excerpt.text).last()?;
        Some(unboxed(found.get(1).or_else(|| found.get(0))?.as_str()).to_owned())
    }
}

/// Marks, in a question, rows above it that are not on the screen or may belong to it.
const MORE: &str = "…";
/// The most bytes of a question; a longer one keeps its first quarter and its end.
const QUESTION_BYTES: usize = 4096;

/// Shortens a question to [`QUESTION_BYTES`] bytes, plus a note about the omission.
fn shortened(question: &str) -> String {
    if question.len() <= QUESTION_BYTES {
        return question.to_owned();
    }
    // A character has at most 4 bytes.
    let boundary = |from: usize| (from..from + 4).find(|at| question.is_char_boundary(*at)).unwrap_or(from);
    let head = boundary(QUESTION_BYTES / 4);
    let tail = boundary(question.len() - QUESTION_BYTES * 3 / 4);
    let (head, left_out, tail) =
        (question.get(..head).unwrap_or_default(), tail - head, question.get(tail..).unwrap_or_default());
    format!("{head}\n{MORE} {left_out} bytes are left out: look at the pane {MORE}\n{tail}")
}

/// Returns a digest of a question and its answers, independent of the cursor.
fn digest(question: Option<&str>, options: &[AgentOption]) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update(text);
        hash.update([0]);
    };
    add(question.unwrap_or_default());
    for option in options {
        add(&option.key);
        add(&option.label);
        add(option.detail.as_deref().unwrap_or_default());
    }
    hash.finalize().iter().take(6).fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod tests;
