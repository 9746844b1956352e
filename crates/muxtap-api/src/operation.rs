//! What can be done with a tmux server, and what it takes to be allowed to.

use crate::{PatchRequest, Tier};

/// Something that a caller has done to a tmux server, whichever face asks, and whether this muxtap does it or that of
/// another host. This is where its tier is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Lists, captures, reads, searches, waits, events.
    Look,
    /// tmux evaluates a format, which may run a program (`#(…)`).
    Format,
    /// Types into a pane.
    Input,
    /// Answers an agent's question.
    Answer,
    /// Runs a command in a shell that is there.
    Run,
    /// Makes a session.
    NewSession,
    /// Makes a window.
    NewWindow,
    /// Splits a pane.
    SplitWindow,
    /// Makes a pane whose end nobody holds.
    Spawn,
    /// Changes a session.
    ChangeSession,
    /// Changes a window.
    ChangeWindow,
    /// Changes a pane.
    ChangePane,
    /// Starts a program in a pane; one that runs there is ended only where `kill` says so.
    Respawn {
        /// Whether a program that runs there is ended.
        kill: bool,
    },
    /// Moves what is there: the action that the audit log names.
    Arrange(&'static str),
    /// Ends a pane.
    KillPane,
    /// Ends a pane that the caller itself has made.
    KillOwnPane,
    /// Ends a window.
    KillWindow,
    /// Ends a session.
    KillSession,
}

impl Operation {
    /// Returns what a caller must be allowed to do.
    pub const fn tier(self) -> Tier {
        match self {
            Self::Look => Tier::Read,
            Self::Format | Self::Input | Self::Answer | Self::Run => Tier::Input,
            Self::NewSession
            | Self::NewWindow
            | Self::SplitWindow
            | Self::Spawn
            | Self::ChangeSession
            | Self::ChangeWindow
            | Self::ChangePane
            | Self::Respawn { kill: false }
            | Self::Arrange(_)
            // Who may make it may close it.
            | Self::KillOwnPane => Tier::Create,
            Self::Respawn { kill: true } | Self::KillPane | Self::KillWindow | Self::KillSession => Tier::Kill,
        }
    }

    /// Returns its name in the audit log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Format => "format",
            Self::Input => "input",
            Self::Answer => "answer",
            Self::Run => "run",
            Self::NewSession => "new-session",
            Self::NewWindow => "new-window",
            Self::SplitWindow => "split-window",
            Self::Spawn => "spawn",
            Self::ChangeSession => "change-session",
            Self::ChangeWindow => "change-window",
            Self::ChangePane => "change-pane",
            Self::Respawn { .. } => "respawn-pane",
            Self::Arrange(action) => action,
            Self::KillPane | Self::KillOwnPane => "kill-pane",
            Self::KillWindow => "kill-window",
            Self::KillSession => "kill-session",
        }
    }

    /// Returns what a patch of a pane does.
    pub fn of_pane_patch(patch: &PatchRequest) -> Self {
        match &patch.respawn {
            Some(respawn) => Self::Respawn { kill: respawn.kill },
            None => Self::ChangePane,
        }
    }
}
