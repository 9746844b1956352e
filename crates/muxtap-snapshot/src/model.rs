//! The contents of a snapshot, without what only one run of a server has: no ids, no processes.

use std::collections::BTreeMap;

/// Sessions as they were at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// When it was saved (RFC 3339); empty where it was imported.
    pub saved: String,
    /// The sessions, in tmux's order. There is at least one.
    pub sessions: Vec<Session>,
}

/// A session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Its name.
    pub name: String,
    /// The directory in which its windows begin; empty: not known.
    pub directory: String,
    /// Variables of its environment that were marked safe.
    pub environment: BTreeMap<String, String>,
    /// The session of this snapshot whose windows it shares (a group). It has no windows of its own
    /// then.
    pub grouped_with: Option<String>,
    /// The index of its current window, where it is grouped.
    pub current: Option<u32>,
    /// The index of the window that was current before, where it is grouped.
    pub last: Option<u32>,
    /// Its windows, by index.
    pub windows: Vec<Window>,
}

/// A window.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own about a window")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Its index. `None`: the next free one.
    pub index: Option<u32>,
    /// Whether it is its session's current window.
    pub current: bool,
    /// Whether it was the current window before.
    pub last: bool,
    /// Its name. Empty: tmux names it.
    pub name: String,
    /// Whether tmux names it after what runs (`automatic-rename`).
    pub auto_name: bool,
    /// Its layout: text of tmux's in which panes are numbered from 0, or a layout's name; empty: as
    /// it comes.
    pub layout: String,
    /// Columns and rows.
    pub size: Option<(u32, u32)>,
    /// Whether its size is fixed (`window-size manual`).
    pub fixed_size: bool,
    /// Whether its active pane fills it.
    pub zoomed: bool,
    /// Whether what is typed into one pane goes to all (`synchronize-panes`).
    pub synchronized: bool,
    /// The window of this snapshot that it is, linked into another session: that session's name,
    /// and the window's index there.
    pub linked: Option<(String, u32)>,
    /// Its panes, in the order of its layout; floating ones behind them. At least one.
    pub panes: Vec<Pane>,
}

/// A pane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pane {
    /// Its working directory; empty: not known.
    pub directory: String,
    /// Its title.
    pub title: String,
    /// Whether it is its window's active pane.
    pub active: bool,
    /// Whether it was active before.
    pub last: bool,
    /// The program in its foreground with all its arguments; empty: a shell rests there.
    pub argv: Vec<String>,
    /// Lines for its shell, of an imported file.
    pub lines: Vec<String>,
    /// Columns, rows, column and row of a pane that floats above the others (tmux 3.7).
    pub floating: Option<[i64; 4]>,
    /// The last lines of its history and screen, where they were asked for.
    pub history: Vec<String>,
}

impl Snapshot {
    /// Returns how many windows there are; one that is linked twice counts twice.
    pub fn windows(&self) -> usize {
        self.sessions.iter().map(|session| session.windows.len()).sum()
    }

    /// Returns how many panes there are.
    pub fn panes(&self) -> usize {
        let windows = self.sessions.iter().flat_map(|session| &session.windows);
        windows.filter(|window| window.linked.is_none()).map(|window| window.panes.len()).sum()
    }
}
