//! The environment in which muxtap runs tmux.
//!
//! A client sends its whole environment to its server, and a server that is started keeps it for
//! every pane. Neither needs muxtap's own environment (keys of services, tokens), so tmux gets only
//! the variables that it needs.

use std::ffi::{OsStr, OsString};

use muxtap_base::glob::Glob;
use tokio::process::Command;

/// Variables that tmux needs: to be found and run, to read its configuration and the terminal's
/// description, to show text, and to start a login shell as its user. `EDITOR` and `VISUAL` choose
/// tmux's keys (tmux(1), `mode-keys`). By the last three, programs in panes find tmux and muxtap.
const NEEDED: [&str; 19] = [
    "PATH",
    "LD_LIBRARY_PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "XDG_CONFIG_HOME",
    "TERM",
    "TERMINFO",
    "TERMINFO_DIRS",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "EDITOR",
    "VISUAL",
    "TMUX_TMPDIR",
    "XDG_RUNTIME_DIR",
    "MUXTAP_SOCKET",
];

/// The variables that tmux takes from a client into a new session by default
/// (`update-environment`).
const UPDATED: [&str; 8] = [
    "DISPLAY",
    "KRB5CCNAME",
    "SSH_ASKPASS",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "SSH_CONNECTION",
    "WINDOWID",
    "XAUTHORITY",
];

/// The variables that a server takes from a caller into a new session: its `update-environment`.
pub struct Updated(Vec<Glob>);

impl Default for Updated {
    /// Returns tmux's default.
    fn default() -> Self {
        Self(UPDATED.map(Glob::new).into())
    }
}

impl Updated {
    /// Reads the output of `show-options -gv update-environment`: one pattern per line.
    pub fn read(printed: &str) -> Self {
        Self(printed.lines().map(Glob::new).collect())
    }

    /// Returns whether a pattern matches this variable.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(name))
    }
}

/// Returns whether tmux needs this variable.
pub(super) fn is_needed(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| NEEDED.contains(&name) || name.starts_with("LC_"))
}

/// Gives a command of tmux only those variables of this process that tmux needs.
pub(super) fn clean(command: &mut Command) {
    set(command, std::env::vars_os().filter(|(name, _)| is_needed(name)));
}

/// Gives a command of tmux only these variables. `TMUX` and `TMUX_PANE` are left out: they would
/// make tmux take its caller for a program in one of its panes.
pub(super) fn set(command: &mut Command, variables: impl IntoIterator<Item = (OsString, OsString)>) {
    let is_passed = |(name, _): &(OsString, OsString)| name != "TMUX" && name != "TMUX_PANE";
    command.env_clear().envs(variables.into_iter().filter(is_passed));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_which_variables_it_takes() {
        assert!(Updated::default().has("SSH_AUTH_SOCK") && !Updated::default().has("API_KEY"));
        let own = Updated::read("DISPLAY\nWAYLAND_*\n");
        assert!(own.has("WAYLAND_DISPLAY") && own.has("DISPLAY") && !own.has("SSH_AUTH_SOCK"));
        assert!(!Updated::read("").has("DISPLAY"));
    }

    #[test]
    fn tmux_gets_what_it_needs_and_no_secrets() {
        for needed in ["PATH", "HOME", "LC_ALL", "LC_CTYPE", "TMUX_TMPDIR"] {
            assert!(is_needed(needed.as_ref()), "{needed}");
        }
        for other in ["API_KEY", "MUXTAP_TOKEN", "AUTH_TOKEN", "SSH_AUTH_SOCK", "LD_PRELOAD", "TMUX", "PATHS", ""] {
            assert!(!is_needed(other.as_ref()), "{other}");
        }
    }
}
