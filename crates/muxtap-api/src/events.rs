//! Events that subscribers receive.

use std::str::FromStr;

use muxtap_core::protocol::ids::PaneId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{AgentInfo, CommandInfo, Cursor, Error, Gap, PaneInfo, Size};

/// The kinds of events, by the word in an event's `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A pane printed something.
    Output,
    /// A pane's screen changed.
    Screen,
    /// A program in a pane reported progress.
    Progress,
    /// A pane appeared.
    PaneOpened,
    /// A pane's process ended.
    PaneExited,
    /// A bell rang.
    Bell,
    /// A pane's title changed.
    Title,
    /// A command began in a pane.
    CommandStarted,
    /// A command ended in a pane.
    CommandFinished,
    /// A pane's shell reported another directory.
    Cwd,
    /// A program in a pane showed a notification.
    Notification,
    /// An agent's state in a pane changed.
    Agent,
    /// Sessions, windows or panes were created, closed, moved or renamed.
    Topology,
    /// A stream has a gap.
    Gap,
    /// A tmux server was lost or found.
    Server,
}

impl EventKind {
    /// The kinds that marks of shells and programs cause.
    pub const OF_MARKS: [Self; 5] =
        [Self::CommandStarted, Self::CommandFinished, Self::Cwd, Self::Progress, Self::Notification];
    /// How many of [`Self::ALL`], the first, are sent on request only.
    pub const REQUESTED: usize = 3;
    /// All kinds; the first [`Self::REQUESTED`] must be requested.
    pub const ALL: [Self; 15] = [
        Self::Output,
        Self::Screen,
        Self::Progress,
        Self::PaneOpened,
        Self::PaneExited,
        Self::Bell,
        Self::Title,
        Self::CommandStarted,
        Self::CommandFinished,
        Self::Cwd,
        Self::Notification,
        Self::Agent,
        Self::Topology,
        Self::Gap,
        Self::Server,
    ];

    /// Returns the word used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Screen => "screen",
            Self::Progress => "progress",
            Self::CommandStarted => "command-started",
            Self::CommandFinished => "command-finished",
            Self::Cwd => "cwd",
            Self::Notification => "notification",
            Self::PaneOpened => "pane-opened",
            Self::PaneExited => "pane-exited",
            Self::Bell => "bell",
            Self::Title => "title",
            Self::Agent => "agent",
            Self::Topology => "topology",
            Self::Gap => "gap",
            Self::Server => "server",
        }
    }
}

impl FromStr for EventKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            Error::invalid(format!("types: unknown event type {text:?}; expected one of {known}"))
        })
    }
}

/// The state of a program's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProgressState {
    /// No progress is shown any more.
    Ended,
    /// The program makes progress.
    Running,
    /// The program failed.
    Failed,
    /// The program runs, and its progress is unknown.
    Unknown,
    /// The program is paused, or warns.
    Paused,
}

/// One event of `GET /v1/events`, `GET /v1/stream` and `muxtap events`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Event {
    /// A pane printed something.
    Output {
        /// The pane.
        pane: PaneId,
        /// Its text (formats `text` and `ansi`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// Its bytes, base64 (format `raw`; not in binary frames).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<String>,
        /// The end of the text.
        cursor: Cursor,
        /// The output that is missing before it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gap: Option<Gap>,
    },
    /// A pane's screen changed. One event covers all changes since the last one; with `screen=text`
    /// or `screen=ansi` the first event has all rows.
    Screen {
        /// The pane.
        pane: PaneId,
        /// The rows that changed, in order, from 0 at the top.
        rows: Vec<u16>,
        /// The text of each of `rows`, if requested: as `capture-pane -p` prints it, or as
        /// `capture-pane -p -e` prints that row alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lines: Option<Vec<String>>,
        /// The pane's size.
        size: Size,
        /// The cursor's column, from 0; equal to the number of columns if the next character wraps.
        cursor_x: u32,
        /// The cursor's row, from 0.
        cursor_y: u32,
        /// Whether the cursor is shown.
        cursor_visible: bool,
        /// Whether the alternate screen is shown.
        alternate: bool,
        /// The end of the output that the screen shows.
        cursor: Cursor,
    },
    /// A pane appeared.
    PaneOpened {
        /// The pane.
        pane: Box<PaneInfo>,
    },
    /// A pane's process ended or the pane was closed.
    PaneExited {
        /// The pane.
        pane: PaneId,
        /// The exit status, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_status: Option<i32>,
        /// The signal that ended it, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_signal: Option<i32>,
    },
    /// A bell rang.
    Bell {
        /// The pane.
        pane: PaneId,
    },
    /// A pane's title changed.
    Title {
        /// The pane.
        pane: PaneId,
        /// The new title.
        title: String,
    },
    /// A command began, according to the shell's marks (`GET /v1/panes/{pane}/commands`).
    CommandStarted {
        /// The pane.
        pane: PaneId,
        /// The command as it is when the event is made: a short one may have ended already.
        command: Box<CommandInfo>,
    },
    /// A command ended.
    CommandFinished {
        /// The pane.
        pane: PaneId,
        /// The command.
        command: Box<CommandInfo>,
    },
    /// A pane's shell reported another directory.
    Cwd {
        /// The pane.
        pane: PaneId,
        /// The directory. Always a claim.
        path: String,
        /// The host, if the shell named one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<String>,
    },
    /// A program reported progress.
    Progress {
        /// The pane.
        pane: PaneId,
        /// The state.
        state: ProgressState,
        /// The percentage, from 0 to 100, if the program named one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        percent: Option<u8>,
    },
    /// A program showed a notification.
    Notification {
        /// The pane.
        pane: PaneId,
        /// The title; may be empty.
        title: String,
        /// The text; may be empty.
        body: String,
    },
    /// Sessions, windows or panes were created, closed, moved or renamed.
    Topology {
        /// The server's socket.
        socket: String,
    },
    /// A stream has a gap.
    Gap {
        /// The pane.
        pane: PaneId,
        /// The missing output.
        gap: Gap,
    },
    /// An agent's state changed: its new state.
    Agent(Box<AgentInfo>),
    /// A tmux server was lost or found.
    Server {
        /// Its socket.
        socket: String,
        /// Its state: `connected`, `gone` …
        state: String,
    },
}

impl Event {
    /// Returns its `type`.
    pub const fn kind(&self) -> EventKind {
        match self {
            Self::Output { .. } => EventKind::Output,
            Self::Screen { .. } => EventKind::Screen,
            Self::PaneOpened { .. } => EventKind::PaneOpened,
            Self::PaneExited { .. } => EventKind::PaneExited,
            Self::Bell { .. } => EventKind::Bell,
            Self::Title { .. } => EventKind::Title,
            Self::Agent(_) => EventKind::Agent,
            Self::CommandStarted { .. } => EventKind::CommandStarted,
            Self::CommandFinished { .. } => EventKind::CommandFinished,
            Self::Cwd { .. } => EventKind::Cwd,
            Self::Progress { .. } => EventKind::Progress,
            Self::Notification { .. } => EventKind::Notification,
            Self::Topology { .. } => EventKind::Topology,
            Self::Gap { .. } => EventKind::Gap,
            Self::Server { .. } => EventKind::Server,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_the_word_in_the_event() {
        for kind in EventKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
            assert_eq!(kind.as_str().parse::<EventKind>().unwrap(), kind);
        }
        let event = Event::PaneExited { pane: PaneId(0), exit_status: None, exit_signal: None };
        assert_eq!(serde_json::to_value(&event).unwrap()["type"], event.kind().as_str());
        assert!("outputs".parse::<EventKind>().unwrap_err().message.contains("pane-exited"));
    }
}
