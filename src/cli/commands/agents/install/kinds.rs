//! The agents whose hooks are known: their files, and the form of an entry.
//!
//! `docs/agent-reports.md` says which were tried with the real program.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::api::{Error, Result};

/// Marks a whole file that is muxtap's.
pub(super) const PLUGIN_MARK: &str = "muxtap's plugin: written by `muxtap agents install`";

/// An agent's hooks.
pub(super) struct Kind {
    pub(super) id: &'static str,
    /// The variable that names the agent's directory, and its default below the home directory.
    home: (&'static str, &'static str),
    /// The file below that directory.
    user: &'static str,
    /// The file below a project's directory.
    project: &'static str,
    pub(super) shape: Shape,
    /// What a person must do after the installation.
    pub(super) note: Option<&'static str>,
}

/// The form of the file.
pub(super) enum Shape {
    /// JSON: lists of entries below `hooks`, by event.
    Entries {
        events: &'static [&'static str],
        /// Whether the file has `"version": 1`.
        version: bool,
        form: Form,
    },
    /// A file of muxtap's own.
    Plugin(&'static str),
}

/// The form of an entry.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// A list of commands, with a timeout in seconds (Claude Code, Codex).
    Group,
    /// The same, with a timeout in milliseconds (Gemini CLI).
    GroupOfMilliseconds,
    /// GitHub Copilot CLI; the command names the event.
    Copilot,
    /// Cursor.
    Cursor,
}

pub(super) const KINDS: [Kind; 6] = [
    Kind {
        id: "claude",
        home: ("CLAUDE_CONFIG_DIR", ".claude"),
        user: "settings.json",
        project: ".claude/settings.local.json",
        shape: Shape::Entries {
            events: &[
                "SessionStart",
                "UserPromptSubmit",
                "PreToolUse",
                "PermissionRequest",
                "PostToolUse",
                "PostToolUseFailure",
                "Notification",
                "Stop",
                "StopFailure",
            ],
            version: false,
            form: Form::Group,
        },
        note: None,
    },
    Kind {
        id: "codex",
        home: ("CODEX_HOME", ".codex"),
        user: "hooks.json",
        project: ".codex/hooks.json",
        shape: Shape::Entries {
            events: &["SessionStart", "UserPromptSubmit", "PreToolUse", "PermissionRequest", "PostToolUse", "Stop"],
            version: false,
            form: Form::Group,
        },
        note: Some("Codex runs new hooks only after you trust them: start it and review them with /hooks"),
    },
    Kind {
        id: "gemini",
        home: ("", ".gemini"),
        user: "settings.json",
        project: ".gemini/settings.json",
        shape: Shape::Entries {
            events: &["SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "Notification"],
            version: false,
            form: Form::GroupOfMilliseconds,
        },
        note: None,
    },
    Kind {
        id: "opencode",
        home: ("OPENCODE_CONFIG_DIR", ".config/opencode"),
        user: "plugins/muxtap.js",
        project: ".opencode/plugins/muxtap.js",
        shape: Shape::Plugin(include_str!("opencode.js")),
        note: None,
    },
    Kind {
        id: "copilot",
        home: ("COPILOT_HOME", ".copilot"),
        user: "hooks/muxtap.json",
        project: ".github/hooks/muxtap.json",
        shape: Shape::Entries {
            events: &[
                "sessionStart",
                "userPromptSubmitted",
                "preToolUse",
                "postToolUse",
                "permissionRequest",
                "agentStop",
                "errorOccurred",
            ],
            version: true,
            form: Form::Copilot,
        },
        note: None,
    },
    Kind {
        id: "cursor",
        home: ("", ".cursor"),
        user: "hooks.json",
        project: ".cursor/hooks.json",
        shape: Shape::Entries {
            events: &["sessionStart", "beforeSubmitPrompt", "preToolUse", "postToolUse", "stop"],
            version: true,
            form: Form::Cursor,
        },
        note: None,
    },
];

impl Kind {
    /// Returns the file, which may not exist. Error: neither the agent's directory nor `HOME` is set.
    pub(super) fn file(&self, project: bool) -> Result<PathBuf> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if project {
            let here = std::env::current_dir();
            return Ok(here
                .map_err(|error| Error::internal(format!("current directory: {error}")))?
                .join(self.project));
        }
        let (variable, folder) = self.home;
        let named = if variable.is_empty() { None } else { set(variable) };
        let folder = match named {
            Some(folder) => folder,
            None => match (folder.strip_prefix(".config/"), set("XDG_CONFIG_HOME")) {
                (Some(name), Some(config)) => config.join(name),
                _ => set("HOME").ok_or_else(|| Error::invalid("HOME is not set"))?.join(folder),
            },
        };
        Ok(folder.join(self.user))
    }

    pub(super) fn events(&self) -> &'static [&'static str] {
        match &self.shape {
            Shape::Entries { events, .. } => events,
            Shape::Plugin(_) => &[],
        }
    }

    /// Returns muxtap's entry of an event.
    pub(super) fn entry(&self, event: &str, command: &str) -> Value {
        let Shape::Entries { form, .. } = &self.shape else { return Value::Null };
        match form {
            Form::Group => json!({"hooks": [{"type": "command", "command": command, "timeout": 5}]}),
            Form::GroupOfMilliseconds => {
                json!({"hooks": [{"type": "command", "name": "muxtap", "command": command, "timeout": 5000}]})
            }
            Form::Copilot => {
                let flag = format!("--hook {}", self.id);
                let command = command.replacen(&flag, &format!("{flag} --event {event}"), 1);
                json!({"type": "command", "bash": command, "timeoutSec": 5})
            }
            Form::Cursor => json!({"command": command}),
        }
    }

    /// Returns whether an entry is muxtap's alone.
    pub(super) fn is_own(&self, entry: &Value) -> bool {
        let mark = format!("report-agent --hook {}", self.id);
        let has_mark = |one: &Value| {
            let command = one.get("command").or_else(|| one.get("bash")).and_then(Value::as_str);
            command.is_some_and(|command| command.contains(&mark))
        };
        match entry.get("hooks").and_then(Value::as_array) {
            Some(hooks) => !hooks.is_empty() && hooks.iter().all(has_mark),
            None => has_mark(entry),
        }
    }
}
