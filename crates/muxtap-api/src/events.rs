//! Events that subscribers receive.

use std::str::FromStr;

use muxtap_core::protocol::ids::PaneId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{AgentInfo, Cursor, Error, Gap, PaneInfo, Size};

/// The kinds of events, by the word that stands in an event's `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A pane printed something.
    Output,
    /// A pane's screen shows something new.
    Screen,
    /// A pane appeared.
    PaneOpened,
    /// A pane's process ended.
    PaneExited,
    /// A bell rang.
    Bell,
    /// A pane's title changed.
    Title,
    /// An agent in a pane does something else than before.
    Agent,
    /// Sessions, windows or panes were made, closed, moved or renamed.
    Topology,
    /// A stream has a gap.
    Gap,
    /// A tmux server was lost or found.
    Server,
}

impl EventKind {
    /// Every kind there is; the first two have to be asked for.
    pub const ALL: [Self; 10] = [
        Self::Output,
        Self::Screen,
        Self::PaneOpened,
        Self::PaneExited,
        Self::Bell,
        Self::Title,
        Self::Agent,
        Self::Topology,
        Self::Gap,
        Self::Server,
    ];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Screen => "screen",
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
            Error::invalid(format!("types: {text:?} is none of {known}"))
        })
    }
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
        /// The end of it.
        cursor: Cursor,
        /// Something is missing before it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gap: Option<Gap>,
    },
    /// A pane's screen shows something new. Comes once for all that changed since the last one;
    /// with `screen=text` or `screen=ansi` the first one has all rows.
    Screen {
        /// The pane.
        pane: PaneId,
        /// The rows that changed, from the top, from 0.
        rows: Vec<u16>,
        /// The text of each of `rows`, where that was asked for: as `capture-pane -p` prints it, or
        /// as `capture-pane -p -e` prints that row alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lines: Option<Vec<String>>,
        /// The pane's size.
        size: Size,
        /// The cursor's column, from 0; as many as there are columns where the next character
        /// wraps.
        cursor_x: u32,
        /// The cursor's row, from 0.
        cursor_y: u32,
        /// The cursor is shown.
        cursor_visible: bool,
        /// The alternate screen is shown.
        alternate: bool,
        /// The end of the output that it shows.
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
        /// With which status, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_status: Option<i32>,
        /// By which signal, where that is known.
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
    /// Sessions, windows or panes were made, closed, moved or renamed.
    Topology {
        /// The server's socket.
        socket: String,
    },
    /// A stream has a gap.
    Gap {
        /// The pane.
        pane: PaneId,
        /// The output that is missing.
        gap: Gap,
    },
    /// An agent does something else than before: what it does now.
    Agent(Box<AgentInfo>),
    /// A tmux server was lost or found.
    Server {
        /// Its socket.
        socket: String,
        /// `connected`, `gone` …
        state: String,
    },
}

impl Event {
    /// Its `type`.
    pub const fn kind(&self) -> EventKind {
        match self {
            Self::Output { .. } => EventKind::Output,
            Self::Screen { .. } => EventKind::Screen,
            Self::PaneOpened { .. } => EventKind::PaneOpened,
            Self::PaneExited { .. } => EventKind::PaneExited,
            Self::Bell { .. } => EventKind::Bell,
            Self::Title { .. } => EventKind::Title,
            Self::Agent(_) => EventKind::Agent,
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
