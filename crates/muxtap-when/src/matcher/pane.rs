//! What rules know of one pane: the line being printed, and what rules typed.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    time::Instant,
};

use muxtap_api::{AgentInfo, AgentState, PaneInfo, ProgressState};
use muxtap_core::stream::lines::LineReader;

use crate::{
    facts::Facts,
    limits::{ECHO, LINE_BYTES, TYPED_REST},
    rule::{Condition, Rule},
};

/// The state of a pane.
pub(super) struct Pane {
    pub(super) info: PaneInfo,
    /// Makes lines of the output, at most [`LINE_BYTES`] of each.
    pub(super) lines: LineReader,
    /// The rules that fired for the line being printed, or saw it and did not fire.
    pub(super) line_seen: HashSet<usize>,
    /// The rows that match, by rule; `None` until the first screen.
    pub(super) rows: Option<HashMap<usize, BTreeSet<u16>>>,
    /// The last output.
    pub(super) printed: Option<Instant>,
    /// The rules that have not seen the screen yet: they were added after the last one.
    pub(super) screen_unseen: HashSet<usize>,
    /// How many of the rules of quiet have seen the current one.
    pub(super) quiets_seen: usize,
    /// The rules of quiet that were added since the last output: the current quiet is no news to them.
    pub(super) quiets_new: HashSet<usize>,
    pub(super) agent: Option<Agent>,
    /// The last agent that has ended: its end may be listed again.
    pub(super) ended: Option<Agent>,
    pub(super) progress: Option<ProgressState>,
    /// When rules fired last, by name: the places change with the rules.
    pub(super) fired: HashMap<String, Instant>,
    pub(super) typed: Option<Typed>,
}

/// The known state of a pane's agent.
#[derive(PartialEq, Eq)]
pub(super) struct Agent {
    pub(super) kind: String,
    pub(super) state: AgentState,
    pub(super) question: Option<String>,
    pub(super) pid: Option<u32>,
}

impl Agent {
    pub(super) fn of(info: &AgentInfo) -> Self {
        let AgentInfo { agent, state, question_id, question, pid, .. } = info;
        Self {
            kind: agent.clone(),
            state: *state,
            question: question_id.clone().or_else(|| question.clone()),
            pid: *pid,
        }
    }
}

/// Text that rules typed into a pane.
pub(super) struct Typed {
    /// The lines, latest last, and when each was typed.
    pub(super) lines: VecDeque<(String, Instant)>,
    pub(super) at: Instant,
}

impl Typed {
    /// Returns whether a text is the echo of what was typed a moment ago: that line, perhaps after a prompt.
    pub(super) fn is_echo(&self, text: &str, now: Instant) -> bool {
        let text = text.trim();
        let recent = self.lines.iter().filter(|(_, at)| now.saturating_duration_since(*at) <= ECHO);
        let before = recent.filter_map(|(line, _)| text.strip_suffix(line.as_str()));
        // `y` is the echo in `[y/N] y`, and not in `ready`.
        before.into_iter().any(|before| !before.ends_with(char::is_alphanumeric))
    }
}

impl Pane {
    pub(super) fn new(info: PaneInfo) -> Self {
        Self {
            info,
            lines: LineReader::new(LINE_BYTES),
            line_seen: HashSet::new(),
            rows: None,
            printed: None,
            screen_unseen: HashSet::new(),
            quiets_seen: 0,
            quiets_new: HashSet::new(),
            agent: None,
            ended: None,
            progress: None,
            fired: HashMap::new(),
            typed: None,
        }
    }

    /// Records the state of an agent that is no news.
    pub(super) fn set_agent(&mut self, agent: Agent) {
        let agent = Some(agent);
        let is_ended = agent.as_ref().is_some_and(|agent| agent.state == AgentState::Ended);
        (self.agent, self.ended) = if is_ended { (None, agent) } else { (agent, None) };
    }

    /// Returns whether the state of an agent is known, so that it is no news.
    pub(super) fn knows(&self, agent: &Agent) -> bool {
        self.agent.as_ref().or(self.ended.as_ref()) == Some(agent)
    }

    pub(super) fn end_line(&mut self) {
        self.lines.end_line();
        self.line_seen.clear();
    }

    /// Returns whether the line being printed was matched as it is.
    pub(super) fn is_line_seen(&self) -> bool {
        self.line_seen.contains(&usize::MAX)
    }

    /// Forgets what rules typed if the pane has printed nothing for long: what it prints now, it prints by
    /// itself.
    pub(super) fn forget_old_typing(&mut self, now: Instant) {
        if let Some(typed) = &self.typed {
            let last = self.printed.map_or(typed.at, |printed| printed.max(typed.at));
            if now.saturating_duration_since(last) >= TYPED_REST {
                self.typed = None;
            }
        }
    }

    /// Returns whether a rule sees what a rule typed, or would answer it by typing (WN5, WN6).
    pub(super) fn is_own(&self, rule: &Rule, facts: &Facts, now: Instant) -> bool {
        let Some(typed) = &self.typed else { return false };
        let is_text = matches!(rule.condition, Condition::Output | Condition::Screen | Condition::Notification);
        rule.typing.is_some() || is_text && typed.is_echo(&facts.text, now)
    }
}
