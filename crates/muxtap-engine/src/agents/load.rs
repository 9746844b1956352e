//! Loads rules: the built-in ones, and the user's own from a file.

use std::{
    io,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use muxtap_api::{Error, ErrorCode, Result};
use muxtap_base::files::{is_own, read_configuration};

use super::{Rules, parse};

static BUILT_IN: LazyLock<Result<Rules>> =
    LazyLock::new(|| parse::parse(include_str!("rules.toml"), &Rules::default()));

impl Rules {
    /// Returns the built-in rules.
    pub fn built_in() -> Self {
        match &*BUILT_IN {
            Ok(rules) => rules.clone(),
            Err(error) => Self { agents: Vec::new(), error: Some(error.message.clone()) },
        }
    }

    /// Returns the built-in rules with the additions of `text`.
    ///
    /// The error names line, agent and rule.
    pub fn with_user_rules(text: &str) -> Result<Self> {
        parse::parse(text, &Self::built_in())
    }

    /// Returns the built-in rules with the reason why the user's rules cannot be read.
    pub fn built_in_with_error(error: &Error) -> Self {
        Self::built_in().with_error(error)
    }

    /// Returns these rules with the reason why newer ones of the user cannot be read.
    #[must_use]
    pub fn with_error(self, error: &Error) -> Self {
        Self { error: Some(error.message.clone()), ..self }
    }
}

/// The most bytes of a file of rules.
const FILE_BYTES: u64 = 1 << 20;

/// The file for the user's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesFile {
    /// The file's path.
    pub path: PathBuf,
    /// Whether the user named the file: then it must exist and be valid.
    pub named: bool,
}

impl RulesFile {
    /// Reads the file and adds its rules to the built-in ones.
    ///
    /// The error names file, line, agent and rule. It occurs if the file cannot be read, other
    /// users can write or replace it, or it is invalid.
    pub fn load(&self) -> Result<Rules> {
        let Some(text) = self.read().map_err(|error| unable(&self.path, &error))? else { return Ok(Rules::built_in()) };
        Rules::with_user_rules(&text)
            .map_err(|error| Error::invalid(format!("{}: {}", self.path.display(), error.message)))
    }

    /// Returns the file's text; `None` if it is missing, which is allowed unless the user named it.
    ///
    /// Error: it is not a regular file, cannot be read, or other users can write or replace it.
    pub fn read(&self) -> io::Result<Option<String>> {
        // Opening a FIFO might never return; another user's is refused below.
        if is_own(&self.path) && std::fs::metadata(&self.path).is_ok_and(|found| !found.is_file()) {
            return Err(io::Error::other("it is not a regular file"));
        }
        match read_configuration(&self.path, FILE_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.named => Ok(None),
            text => text.map(Some),
        }
    }
}

fn unable(path: &Path, error: &io::Error) -> Error {
    Error::new(ErrorCode::Conflict, format!("cannot read the agent rules {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use muxtap_api::AgentState;

    use super::*;

    use crate::agents::rules::Rule;

    #[test]
    fn a_file_that_nobody_named_may_be_missing() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = RulesFile { path: dir.path().join("agents.toml"), named: false };
        assert_eq!(file.load().unwrap().ids(), Rules::built_in().ids());
        file.named = true;
        assert!(file.load().unwrap_err().message.contains("cannot read"));
        fs::write(&file.path, "[[agent]]\nid = 'mine'\nprograms = ['mine']\n").unwrap();
        assert!(file.load().unwrap().ids().contains(&"mine"));
        fs::write(&file.path, "[[agent]]\nid = 'mine'\n").unwrap();
        let message = file.load().unwrap_err().message;
        assert!(message.contains("agents.toml: line 2: agent `mine`"), "{message}");
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(file.load().unwrap_err().message.contains("chmod go-w"));
    }

    #[test]
    fn the_rules_that_are_built_in_can_be_read() {
        assert_eq!(parse::parse(include_str!("rules.toml"), &Rules::default()).err(), None);
        let rules = Rules::built_in();
        assert_eq!(
            rules.ids(),
            ["claude", "codex", "gemini", "qwen", "aider", "opencode", "cursor", "copilot", "goose"]
        );
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
