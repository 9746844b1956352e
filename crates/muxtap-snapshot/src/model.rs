//! The contents of a snapshot, without the ids and processes of one run of a server.

use std::collections::BTreeMap;

use muxtap_api::Labels;

/// The state of sessions at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// When the snapshot was saved (RFC 3339); empty for an import.
    pub saved: String,
    /// The sessions, in tmux's order; at least one.
    pub sessions: Vec<Session>,
}

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// The session's name.
    pub name: String,
    /// The directory of its new windows; empty: unknown.
    pub directory: String,
    /// The environment variables that were marked safe.
    pub environment: BTreeMap<String, String>,
    /// Its own labels.
    pub labels: Labels,
    /// The session of this snapshot whose windows it shares (a group). Its own list is empty then.
    pub grouped_with: Option<String>,
    /// The index of the current window of a grouped session.
    pub current: Option<u32>,
    /// The index of the last window of a grouped session.
    pub last: Option<u32>,
    /// The windows, by index.
    pub windows: Vec<Window>,
}

/// A window.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own about a window")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The window's index. `None`: the next free one.
    pub index: Option<u32>,
    /// Whether it is the session's current window.
    pub current: bool,
    /// Whether it is the session's last window.
    pub last: bool,
    /// The window's name. Empty: tmux names it.
    pub name: String,
    /// Whether tmux names it after the running program (`automatic-rename`).
    pub auto_name: bool,
    /// The layout: tmux's text with panes numbered from 0, or a layout's name; empty: any.
    pub layout: String,
    /// The columns and rows.
    pub size: Option<(u32, u32)>,
    /// Whether the size is fixed (`window-size manual`).
    pub fixed_size: bool,
    /// Whether the active pane is zoomed.
    pub zoomed: bool,
    /// Whether input to one pane goes to all (`synchronize-panes`).
    pub synchronized: bool,
    /// The window of this snapshot that is linked here: the name of its session, and its index in
    /// it.
    pub linked: Option<(String, u32)>,
    /// The panes, in the order of the layout, then the floating ones; at least one.
    pub panes: Vec<Pane>,
}

/// A pane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pane {
    /// The working directory; empty: unknown.
    pub directory: String,
    /// The title.
    pub title: String,
    /// Its own labels.
    pub labels: Labels,
    /// Whether it is the window's active pane.
    pub active: bool,
    /// Whether it is the window's last pane.
    pub last: bool,
    /// The program in the foreground with all its arguments; empty: a shell at its prompt.
    pub argv: Vec<String>,
    /// The lines to type into its shell, from an imported file.
    pub lines: Vec<String>,
    /// The columns, rows, column and row of a floating pane (tmux 3.7).
    pub floating: Option<[i64; 4]>,
    /// The last lines of the pane's history and screen, if requested.
    pub history: Vec<String>,
    /// The last command line that a shell marked in the pane, if the history was requested; empty:
    /// unknown. It is shown, and never run.
    pub last_line: String,
}

impl Snapshot {
    /// Returns the number of windows; a window that is linked twice counts twice.
    pub fn windows(&self) -> usize {
        self.sessions.iter().map(|session| session.windows.len()).sum()
    }

    /// Returns the number of panes; those of linked windows count once.
    pub fn panes(&self) -> usize {
        let windows = self.sessions.iter().flat_map(|session| &session.windows);
        windows.filter(|window| window.linked.is_none()).map(|window| window.panes.len()).sum()
    }
}
