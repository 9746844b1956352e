//! The agents whose hooks are known: their files, and the form of an entry.
//!
//! `docs/agent-reports.md` says which were tried with the real program.

use std::path::{Path, PathBuf};

use muxtap_base::quoting::shell_word;
use serde_json::{Value, json};

use crate::api::{Error, Result};

/// The beginning of a whole file that is muxtap's.
pub(super) const PLUGIN_MARK: &str = "// muxtap's plugin: written by `muxtap agents install`";
/// Stands in a plugin for muxtap's path.
const PLUGIN_PROGRAM: &str = "MUXTAP";

/// The variable that names Gemini CLI's home directory.
const GEMINI_HOME: &str = "GEMINI_CLI_HOME";

/// An agent's hooks.
pub(super) struct Kind {
    pub(super) id: &'static str,
    /// The variable that names the agent's directory, and its default below the home directory.
    /// Gemini CLI's variable names the home directory itself.
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
        home: (GEMINI_HOME, ".gemini"),
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
            Some(home) if variable == GEMINI_HOME => home.join(folder),
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

    /// Returns the shell command of this agent's hooks. It never fails and never prints, also after
    /// muxtap was removed.
    pub(super) fn command(&self, program: &Path) -> String {
        self.command_of(&shell_word(&program.to_string_lossy()))
    }

    fn command_of(&self, word: &str) -> String {
        format!("{word} report-agent --hook {} >/dev/null 2>&1 || :", self.id)
    }

    /// Returns whether an entry is exactly what an installation of muxtap, at any path, writes. An entry
    /// that a person has edited is the person's.
    pub(super) fn is_own(&self, entry: &Value) -> bool {
        let hook = entry.get("hooks").and_then(|hooks| hooks.get(0)).unwrap_or(entry);
        let command = hook.get("command").or_else(|| hook.get("bash")).and_then(Value::as_str);
        let Some((word, rest)) = command.and_then(|command| command.rsplit_once(" report-agent --hook ")) else {
            return false;
        };
        let event =
            rest.split_once(" --event ").and_then(|(_, rest)| rest.split_once(' ')).map_or("", |(name, _)| name);
        names_muxtap(word) && *entry == self.entry(event, &self.command_of(word))
    }

    /// Returns whether these settings enable muxtap's plugin for Claude Code, from any marketplace. The
    /// plugin has the same hooks.
    pub(super) fn has_enabled_plugin(&self, settings: &str) -> bool {
        let Ok(settings) = serde_json::from_str::<Value>(settings) else { return false };
        let enabled = settings.get("enabledPlugins").and_then(Value::as_object);
        let is_muxtap = |name: &str| name.split('@').next() == Some("muxtap");
        self.id == "claude" && enabled.into_iter().flatten().any(|(name, on)| is_muxtap(name) && *on == true)
    }

    /// Returns the text of this agent's plugin, if it is one.
    pub(super) fn plugin(&self, program: &Path) -> Option<String> {
        let Shape::Plugin(text) = &self.shape else { return None };
        Some(text.replace(PLUGIN_PROGRAM, &Value::from(program.to_string_lossy()).to_string()))
    }

    /// Returns whether a text is this agent's plugin as an installation at any path writes it.
    pub(super) fn is_whole_plugin(&self, text: &str) -> bool {
        let Shape::Plugin(own) = &self.shape else { return false };
        let Some((head, tail)) = own.split_once(PLUGIN_PROGRAM) else { return false };
        let program = text.strip_prefix(head).and_then(|rest| rest.strip_suffix(tail));
        program.is_some_and(|program| serde_json::from_str::<String>(program).is_ok())
    }
}

/// Returns whether a word of a shell's command line is one word, and names muxtap's program.
fn names_muxtap(word: &str) -> bool {
    let plain = match word.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        Some(quoted) => quoted.replace("'\\''", "'").replace("'\\\\'", "\\"),
        None => word.to_owned(),
    };
    let name = Path::new(&plain).file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("muxtap")) && shell_word(&plain) == word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(id: &str) -> &'static Kind {
        KINDS.iter().find(|kind| kind.id == id).unwrap()
    }

    #[test]
    fn only_an_entry_that_an_installation_writes_is_its_own() {
        for kind in KINDS.iter().filter(|kind| !kind.events().is_empty()) {
            for program in ["/a/muxtap", "muxtapd", "/a/muxtap-nightly", "/a b/it's/x\\y/muxtap"] {
                let entry = kind.entry("Stop", &kind.command(Path::new(program)));
                assert!(kind.is_own(&entry), "{entry}");
            }
            let other = kind.entry("Stop", &kind.command(Path::new("/a/other")));
            assert!(!kind.is_own(&other), "{other}");
        }
        let claude = kind("claude");
        let of = |command: &str| claude.entry("Stop", command);
        let own = "/a/muxtap report-agent --hook claude >/dev/null 2>&1 || :";
        assert!(claude.is_own(&of(own)));
        for theirs in [
            "notify; /a/muxtap report-agent --hook claude >/dev/null 2>&1 || :",
            "/a/muxtap report-agent --hook claude >/dev/null 2>&1 || : ; say done",
            "/a/muxtap report-agent --hook claude-x >/dev/null 2>&1 || :",
            "/a/muxtap report-agent --hook claude",
            "echo muxtap report-agent --hook claude >/dev/null 2>&1 || :",
            "$(x)muxtap report-agent --hook claude >/dev/null 2>&1 || :",
            "'/a'/muxtap report-agent --hook claude >/dev/null 2>&1 || :",
        ] {
            assert!(!claude.is_own(&of(theirs)), "{theirs}");
        }
        let one = |command: &str| json!({"type": "command", "command": command, "timeout": 5});
        for entry in [
            json!({"matcher": "Bash", "hooks": [one(own)]}),
            json!({"hooks": [one(own), one("mine")]}),
            json!({"hooks": [one("mine"), one(own)]}),
            json!({"hooks": []}),
            json!({"hooks": [{"type": "command", "command": own, "timeout": 60}]}),
        ] {
            assert!(!claude.is_own(&entry), "{entry}");
        }
    }

    #[test]
    fn a_plugin_that_was_edited_is_not_whole() {
        let kind = kind("opencode");
        let text = kind.plugin(Path::new("/a \"b\"/muxtap")).unwrap();
        assert!(text.starts_with(PLUGIN_MARK) && kind.is_whole_plugin(&text), "{text}");
        assert!(!kind.is_whole_plugin(&format!("{text}// mine\n")));
        assert!(!kind.is_whole_plugin(&text.replace("busy", "lazy")));
    }
}
