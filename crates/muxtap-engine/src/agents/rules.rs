//! Rules for agents: how to recognize them, and what their screens mean.
//!
//! Rules are data: `rules.toml` beside this file, and a file of the user. `docs/agents.md`
//! describes their form.

use std::sync::Arc;

use muxtap_api::{AgentState, ProgressState};
use muxtap_base::glob::Glob;
use regex::Regex;

use super::version::{AgentVersion, VersionRange};

/// All known agents, in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub(super) agents: Vec<Arc<Agent>>,
    /// Why the user's own rules are missing, if they are.
    pub(super) error: Option<String>,
}

/// The rules of one agent.
#[derive(Clone, Debug)]
pub(super) struct Agent {
    pub(super) id: String,
    pub(super) name: String,
    /// Names of its program, or of the script that an interpreter runs, in lower case.
    pub(super) programs: Vec<String>,
    /// Expressions for command lines that are the agent's too.
    pub(super) process: Vec<Regex>,
    /// Expressions for command lines that are not the agent's.
    pub(super) except: Vec<Regex>,
    /// Expressions for rows in which the agent waits for its user's next message, besides rows that
    /// begin with `>`, `❯`, `›` or `→`.
    pub(super) prompt: Vec<Regex>,
    /// Expressions for rows that may be below the answers of a dialog, besides key hints.
    pub(super) footer: Vec<Regex>,
    /// Finds the version in a row of the screen, as its first group.
    pub(super) version: Option<Regex>,
    /// The newest version by whose screens the rules were tested.
    pub(super) tested: Option<AgentVersion>,
    /// Whether the agent prints line by line, so answered questions stay on the screen.
    pub(super) keeps_answered: bool,
    /// The rules by descending priority: the first that applies decides.
    pub(super) rules: Vec<Rule>,
}

impl Agent {
    /// Creates an agent that no rule knows, by the name under which it reports.
    pub(super) fn reported(source: &str) -> Self {
        Self {
            id: source.to_owned(),
            name: source.to_owned(),
            programs: Vec::new(),
            process: Vec::new(),
            except: Vec::new(),
            prompt: Vec::new(),
            footer: Vec::new(),
            version: None,
            tested: None,
            keeps_answered: false,
            rules: Vec::new(),
        }
    }
}

impl Agent {
    /// Returns the version that a row of the screen shows.
    pub(super) fn version_in(&self, rows: &[String]) -> Option<AgentVersion> {
        let regex = self.version.as_ref()?;
        rows.iter().rev().find_map(|row| AgentVersion::parse(regex.captures(row)?.get(1)?.as_str()))
    }
}

/// One rule: when a screen means a state.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) state: AgentState,
    pub(super) priority: i32,
    /// The versions of the agent to which it applies; `None`: all versions, also an unknown one.
    pub(super) versions: Option<VersionRange>,
    /// Patterns of the directories in which the agent must run; empty: in any.
    pub(super) projects: Vec<Glob>,
    /// How many rows are examined, counted up from the last row with text.
    pub(super) rows: u16,
    /// Limits the rule to the rows below the last row that matches this.
    pub(super) below: Option<Regex>,
    /// Expressions that must all match the rows.
    pub(super) screen: Vec<Regex>,
    /// Expressions of which none may match the rows.
    pub(super) unless: Vec<Regex>,
    /// An expression that must match the title.
    pub(super) title: Option<Regex>,
    /// Whether the bell must have rung since the agent last worked.
    pub(super) bell: bool,
    /// The progress that the agent must report (OSC 9;4).
    pub(super) progress: Option<ProgressState>,
    /// An expression that must match a notification since the agent last worked.
    pub(super) notification: Option<Regex>,
    /// Finds the question in the rows.
    pub(super) question: Option<Regex>,
    pub(super) options: Options,
    /// Whether its dialog must have a border above.
    pub(super) framed: bool,
}

impl Rule {
    /// Returns whether the rule is for this version of the agent, in this directory.
    pub(super) fn is_for(&self, version: Option<AgentVersion>, directory: Option<&str>) -> bool {
        let is_version = |range: &VersionRange| version.is_some_and(|version| range.contains(version));
        let is_project = |glob: &Glob| directory.is_some_and(|directory| glob.matches(directory));
        self.versions.as_ref().is_none_or(is_version)
            && (self.projects.is_empty() || self.projects.iter().any(is_project))
    }
}

/// How the offered answers are found.
#[derive(Clone, Debug)]
pub(super) enum Options {
    /// Not at all.
    None,
    /// As a numbered list with a cursor, such as `❯ 1. Yes`.
    Numbered,
    /// As all matches of this expression, with its groups `label`, `key` and `cursor`, from the
    /// first matching row on.
    Pattern(Regex),
}

impl Rules {
    /// Returns whether no agent is known; then none is searched for.
    pub fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }

    /// Returns the ids of the agents.
    pub fn ids(&self) -> Vec<&str> {
        self.agents.iter().map(|agent| agent.id.as_str()).collect()
    }
}
