//! Operations on a tmux server, and the tier that each requires.

use crate::{PatchRequest, Tier};

/// An operation that a caller requests on a tmux server, over whichever interface, and whether this
/// muxtap or one on another host performs it. Its tier is decided in this type alone.
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
    /// Reports an agent's state.
    Report,
    /// Runs a command in an existing shell.
    Run,
    /// Creates a session.
    NewSession,
    /// Creates a window.
    NewWindow,
    /// Splits a pane.
    SplitWindow,
    /// Creates a pane that no caller is bound to end.
    Spawn,
    /// Changes a session.
    ChangeSession,
    /// Changes a window.
    ChangeWindow,
    /// Changes a pane.
    ChangePane,
    /// Changes the labels of a pane or a session.
    Label,
    /// Starts a program in a pane; a running one is ended only if `kill` is set.
    Respawn {
        /// Whether a running program is ended.
        kill: bool,
    },
    /// Rearranges existing things: the action that the audit log names.
    Arrange(&'static str),
    /// Ends a pane.
    KillPane,
    /// Ends a pane that the caller itself created.
    KillOwnPane,
    /// Ends a window.
    KillWindow,
    /// Ends a session.
    KillSession,
}

impl Operation {
    /// Returns the tier that a caller needs.
    pub const fn tier(self) -> Tier {
        match self {
            Self::Look => Tier::Read,
            // A report changes what other callers see, as drawing on the pane's screen does, which needs
            // this tier too. Who may report for which pane is checked in addition
            // (docs/agent-reports.md).
            Self::Format | Self::Input | Self::Answer | Self::Report | Self::Run => Tier::Input,
            Self::NewSession
            | Self::NewWindow
            | Self::SplitWindow
            | Self::Spawn
            | Self::ChangeSession
            | Self::ChangeWindow
            | Self::ChangePane
            | Self::Label
            | Self::Respawn { kill: false }
            | Self::Arrange(_)
            // A caller that may create a pane may end it.
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
            Self::Report => "report-agent",
            Self::Run => "run",
            Self::NewSession => "new-session",
            Self::NewWindow => "new-window",
            Self::SplitWindow => "split-window",
            Self::Spawn => "spawn",
            Self::ChangeSession => "change-session",
            Self::ChangeWindow => "change-window",
            Self::ChangePane => "change-pane",
            Self::Label => "label",
            Self::Respawn { .. } => "respawn-pane",
            Self::Arrange(action) => action,
            Self::KillPane | Self::KillOwnPane => "kill-pane",
            Self::KillWindow => "kill-window",
            Self::KillSession => "kill-session",
        }
    }

    /// Returns the operation that a patch of a session is.
    pub fn of_session_patch(patch: &PatchRequest) -> Self {
        if patch.labels.is_some() && patch.name.is_none() { Self::Label } else { Self::ChangeSession }
    }

    /// Returns the operation that a patch of a pane is.
    pub fn of_pane_patch(patch: &PatchRequest) -> Self {
        let labels_alone = PatchRequest { labels: patch.labels.clone(), ..PatchRequest::default() };
        match &patch.respawn {
            Some(respawn) => Self::Respawn { kill: respawn.kill },
            None if patch.labels.is_some() && *patch == labels_alone => Self::Label,
            None => Self::ChangePane,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_of_more_than_labels_is_recorded_as_a_change() {
        let labels = Some([("role".to_owned(), "build".to_owned())].into());
        let patch = PatchRequest { labels, ..PatchRequest::default() };
        assert_eq!(Operation::of_session_patch(&patch), Operation::Label);
        assert_eq!(Operation::of_pane_patch(&patch), Operation::Label);
        let zoomed = PatchRequest { zoom: Some(true), ..patch.clone() };
        assert_eq!(Operation::of_pane_patch(&zoomed), Operation::ChangePane);
        let named = PatchRequest { name: Some("play".to_owned()), ..patch };
        assert_eq!(Operation::of_session_patch(&named), Operation::ChangeSession);
        assert_eq!(Operation::of_pane_patch(&named), Operation::ChangePane);
    }
}
