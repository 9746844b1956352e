//! What is known of agents: how they are told from other programs, and what their screens say.
//!
//! Rules are data: `rules.toml` beside this file, and a file of the user's. `docs/agents.md` describes their form.

use std::sync::{Arc, LazyLock};

use regex::Regex;

use super::parse;
use crate::api::{AgentState, Error, Result};

/// Every agent that is known, in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub(super) agents: Vec<Arc<Agent>>,
    /// Why the user's own are not among them.
    pub(super) error: Option<String>,
}

/// How one agent is known and read.
#[derive(Clone, Debug)]
pub(super) struct Agent {
    pub(super) id: String,
    pub(super) name: String,
    /// Names of its program, or of the script that an interpreter runs; in lower case.
    pub(super) programs: Vec<String>,
    /// A command line that one of these matches is its too.
    pub(super) process: Vec<Regex>,
    /// A command line that one of these matches is not.
    pub(super) except: Vec<Regex>,
    /// The first that applies decides: the highest priority first.
    pub(super) rules: Vec<Rule>,
}

/// A sign of a state.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) state: AgentState,
    pub(super) priority: i32,
    /// So many of the last rows that are not empty are looked at.
    pub(super) rows: u16,
    /// Only what stands below the last row that matches this.
    pub(super) below: Option<Regex>,
    /// All of these must match the rows.
    pub(super) screen: Vec<Regex>,
    /// None of these may.
    pub(super) unless: Vec<Regex>,
    /// This must match the title.
    pub(super) title: Option<Regex>,
    /// The bell rang since the agent last worked.
    pub(super) bell: bool,
    /// Finds what is asked.
    pub(super) question: Option<Regex>,
    pub(super) options: Options,
}

/// How the answers that are offered are found.
#[derive(Clone, Debug)]
pub(super) enum Options {
    /// They are not.
    None,
    /// A numbered list with a cursor, as `❯ 1. Yes`.
    Numbered,
    /// Every match of this, with its groups `label`, `key` and `cursor`, from the row of the sign on.
    Pattern(Regex),
}

static BUILT_IN: LazyLock<Result<Rules>> =
    LazyLock::new(|| parse::parse(include_str!("rules.toml"), &Rules::default()));

impl Rules {
    /// Those that muxtap brings along.
    pub fn built_in() -> Self {
        match &*BUILT_IN {
            Ok(rules) => rules.clone(),
            Err(error) => Self { agents: Vec::new(), error: Some(error.message.clone()) },
        }
    }

    /// Those and what `text` adds. Error: what is wrong, with line, agent and rule.
    pub fn with(text: &str) -> Result<Self> {
        parse::parse(text, &Self::built_in())
    }

    /// Those that muxtap brings along, because the user's cannot be read.
    pub fn without(error: &Error) -> Self {
        Self { error: Some(error.message.clone()), ..Self::built_in() }
    }

    /// No agent is known, so none is looked for.
    pub fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }

    /// The ids of the agents.
    pub fn ids(&self) -> Vec<&str> {
        self.agents.iter().map(|agent| agent.id.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_that_are_built_in_can_be_read() {
        assert_eq!(parse::parse(include_str!("rules.toml"), &Rules::default()).err(), None);
        let rules = Rules::built_in();
        assert_eq!(rules.ids(), ["claude", "codex", "gemini", "aider", "opencode", "cursor", "copilot", "goose"]);
        for agent in &rules.agents {
            for state in [AgentState::Working, AgentState::Permission] {
                assert!(agent.rules.iter().any(|rule| rule.state == state), "{}: {}", agent.id, state.as_str());
            }
            let mut sorted = agent.rules.clone();
            sorted.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
            let names = |rules: &[Rule]| rules.iter().map(|rule| rule.name.clone()).collect::<Vec<_>>();
            assert_eq!(names(&agent.rules), names(&sorted));
        }
    }
}
