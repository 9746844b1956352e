//! The table: the differences from a server without muxtap, by mode and version.

use super::{
    ends, events, lists, person,
    scene::{Mode, Scene},
};
use crate::common::{run, tmux_program};
use muxtap::protocol::version::Version;

/// The versions in the table. Another version counts as the last one before it.
const VERSIONS: [&str; 7] = ["3.2a", "3.3a", "3.4", "3.5a", "3.6b", "3.7c", "3.8"];

/// The effect of a mode on a behavior.
#[derive(Clone, Copy)]
pub struct Cell {
    /// The difference; empty: none.
    words: &'static str,
    /// The versions that differ; empty: all.
    versions: &'static [&'static str],
    /// Whether the outcome varies and the server may crash: it is not run.
    perilous: bool,
}

impl Cell {
    pub fn is_run(self) -> bool {
        !self.perilous
    }

    pub fn differs(self, version: &str) -> bool {
        !self.words.is_empty() && (self.versions.is_empty() || self.versions.contains(&version))
    }

    fn markdown(self) -> String {
        match (self.words, self.versions) {
            ("", _) => "same".into(),
            (words, []) => words.into(),
            (words, versions) => format!("{words} ({})", versions.join(", ")),
        }
    }
}

const SAME: Cell = differs("");

const fn differs(words: &'static str) -> Cell {
    Cell { words, versions: &[], perilous: false }
}

const fn differs_on(versions: &'static [&'static str], words: &'static str) -> Cell {
    Cell { words, versions, perilous: false }
}

/// Creates a cell for a varying outcome.
const fn may(words: &'static str) -> Cell {
    Cell { words, versions: &[], perilous: true }
}

/// One behavior. With `coverage = "used"` nothing differs at rest, so that mode has no cell.
pub struct Row {
    pub what: &'static str,
    /// The test in `unnoticed.rs` that runs it.
    pub test: &'static str,
    used: Cell,
    sessions: Cell,
    hub: Cell,
    pub observe: fn(&Scene) -> String,
}

impl Row {
    pub fn cell(&self, mode: Mode) -> Cell {
        match mode {
            Mode::Plain | Mode::Rest => SAME,
            Mode::Used => self.used,
            Mode::Sessions => self.sessions,
            Mode::Hub => self.hub,
        }
    }

    /// Returns the row's line in the page.
    pub fn markdown(&self) -> String {
        let cells = [Mode::Rest, Mode::Used, Mode::Sessions, Mode::Hub].map(|mode| self.cell(mode).markdown());
        format!("| {} | {} | `unnoticed::{}` |", self.what, cells.join(" | "), self.test)
    }
}

/// Returns the version of [`VERSIONS`] that stands for the tmux under test.
pub fn version_under_test() -> &'static str {
    let printed = run(std::process::Command::new(tmux_program()).arg("-V"));
    let version = Version::parse(&printed.stdout).unwrap();
    let mut known = VERSIONS.into_iter().filter(|known| Version::parse(known.as_bytes()).unwrap() <= version);
    known.next_back().unwrap()
}

const fn row(
    test: &'static str,
    what: &'static str,
    [used, sessions, hub]: [Cell; 3],
    observe: fn(&Scene) -> String,
) -> Row {
    Row { what, test, used, sessions, hub, observe }
}

const FOCUS: &str = "the_focus_reaches_programs";
const ALERTS: &str = "alerts_are_raised";
const ATTACHED: &str = "attached_sessions_are_counted";
const HOOKS: &str = "hooks_run_as_often_as_without_muxtap";
const DESTROY: &str = "destructive_hooks_end_nothing_more_than_without_muxtap";
const ENDS: &str = "servers_and_sessions_end_when_they_should";
const MOVES: &str = "a_person_whose_session_ends_goes_where_tmux_says";
const SCRIPTS: &str = "scripts_reach_the_persons_terminal";
const ATTACH: &str = "attaching_leads_to_the_same_session";
const LISTS: &str = "lists_show_the_same_as_without_muxtap";
const WINDOWS: &str = "windows_are_the_same_as_without_muxtap";

pub static ROWS: &[Row] = &[
    row(
        FOCUS,
        "`focus-events`: a program is notified when the person's terminal loses and regains the focus",
        [differs("no events: the client counts as focused"), differs("no events"), SAME],
        events::focus,
    ),
    row(
        FOCUS,
        "`focus-events`: a program in a session without a terminal is notified of nothing",
        [differs("it gets `ESC [ I`"), differs("it gets `ESC [ I`"), differs("it gets `ESC [ I`")],
        events::focus_of_nobody,
    ),
    row(
        ALERTS,
        "a bell in a session without a terminal: `window_bell_flag`, `alert-bell`",
        [
            differs("no flag for the current window of a session in use"),
            differs("no flag for current windows"),
            differs("`alert-bell` runs once more for each window"),
        ],
        events::bell,
    ),
    row(
        ALERTS,
        "`monitor-activity` in such a session: `window_activity_flag`, `alert-activity`",
        [
            differs("no flag for the current window of a session in use"),
            differs("no flag for current windows"),
            differs("`alert-activity` runs more often"),
        ],
        events::activity,
    ),
    row(
        ALERTS,
        "`monitor-silence` in such a session: `window_silence_flag`, `alert-silence`",
        [
            differs("no flag for the current window of a session in use"),
            differs("no flag for current windows"),
            differs("`alert-silence` runs more often"),
        ],
        events::silence,
    ),
    row(
        ATTACHED,
        "`session_attached`",
        [differs("one more in a session in use"), differs("one more in each session"), SAME],
        events::attached,
    ),
    row(ATTACHED, "`session_attached` after muxtap has left", [SAME, SAME, SAME], events::attached_afterwards),
    row(
        HOOKS,
        "hooks on clients: `client-attached`, `client-detached`, `client-session-changed`",
        [SAME, differs("they run for each of muxtap's clients"), differs("they run for muxtap's clients")],
        events::client_hooks,
    ),
    row(
        HOOKS,
        "hooks on clients that 3.8 brought: `client-created`, `client-closed`",
        [
            differs_on(&["3.8"], "they run for each of muxtap's clients"),
            differs_on(&["3.8"], "they run for each of muxtap's clients"),
            differs_on(&["3.8"], "they run for muxtap's clients"),
        ],
        events::later_client_hooks,
    ),
    row(
        HOOKS,
        "hooks on sessions and windows: `session-created`, `session-closed`, `window-linked`, `window-unlinked`",
        [SAME, SAME, differs("they run for the hub and its links")],
        events::structure_hooks,
    ),
    row(
        HOOKS,
        "hooks on sessions and windows where hooks on clients are set too",
        [
            differs_on(&["3.8"], "`session-created` and `window-linked` run for each door"),
            SAME,
            differs("they run for the hub and its links"),
        ],
        events::structure_hooks_and_client_hooks,
    ),
    row(
        DESTROY,
        "`client-attached` with `detach-client -a`: the person stays",
        [SAME, differs("**the person is detached**"), may("the person may be detached, the server may end")],
        events::hook_that_detaches_others,
    ),
    row(
        DESTROY,
        "`client-detached` that kills a session with `session_attached` 0: a session that no person left stays",
        [SAME, differs("**the session is killed** when muxtap leaves"), SAME],
        events::hook_that_kills_unattached,
    ),
    row(
        DESTROY,
        "`client-session-changed` that kills another session: it stays",
        [SAME, differs("**the session is killed**"), differs("**the session is killed**")],
        events::hook_that_kills_others,
    ),
    row(
        ENDS,
        "`exit-unattached`: the server exits when the last person leaves",
        [SAME, SAME, differs("the server stays")],
        ends::exit_unattached,
    ),
    row(ENDS, "`exit-empty`: the server exits with its last session", [SAME, SAME, SAME], ends::exit_empty),
    row(ENDS, "`exit-empty off`: the server stays, without a session", [SAME, SAME, SAME], ends::exit_empty_off),
    row(
        ENDS,
        "`destroy-unattached on`: the session ends when the person leaves",
        [SAME, SAME, SAME],
        ends::destroy_unattached,
    ),
    row(ENDS, "`kill-session` ends the session's programs", [SAME, SAME, SAME], ends::kill_session),
    row(
        MOVES,
        "`detach-on-destroy` `on`, `off`, `previous`, `next`",
        [SAME, SAME, differs_on(&["3.2a", "3.3a", "3.4"], "`off` leads into the hub")],
        ends::detach_on_destroy,
    ),
    row(
        MOVES,
        "`detach-on-destroy no-detached`, where the free session is in use",
        [
            differs_on(&["3.2a", "3.3a", "3.6b", "3.7c", "3.8"], "the person is detached"),
            differs_on(&["3.2a", "3.3a", "3.6b", "3.7c", "3.8"], "the person is detached"),
            differs_on(&["3.4"], "it leads into the hub"),
        ],
        ends::no_detached,
    ),
    row(
        SCRIPTS,
        "`display-message` of a script, the person idle",
        [differs("not shown to the person"), differs("not shown to the person"), SAME],
        person::message,
    ),
    row(
        SCRIPTS,
        "`display-popup` of a script, the person idle",
        [differs("not shown to the person"), differs("not shown to the person"), SAME],
        person::popup,
    ),
    row(
        SCRIPTS,
        "`display-menu` of a script, the person idle",
        [
            differs_on(&["3.2a", "3.3a", "3.4", "3.5a", "3.6b", "3.7c"], "not shown to the person"),
            differs_on(&["3.2a", "3.3a", "3.4", "3.5a", "3.6b", "3.7c"], "not shown to the person"),
            SAME,
        ],
        person::menu,
    ),
    row(
        SCRIPTS,
        "`confirm-before` of a script, the person idle",
        [differs("the person is not asked"), differs("the person is not asked"), SAME],
        person::confirm,
    ),
    row(
        SCRIPTS,
        "`switch-client` of a script, the person idle",
        [differs("muxtap's client is switched"), differs("muxtap's client is switched"), SAME],
        person::switch,
    ),
    row(
        SCRIPTS,
        "`detach-client` of a script, the person idle",
        [differs("muxtap's client is detached"), differs("muxtap's client is detached"), SAME],
        person::detach,
    ),
    row(
        SCRIPTS,
        "`switch-client -t X`, else `attach-session -t X`, on a server without a terminal: attaches",
        [differs("does not attach"), differs("does not attach"), differs("does not attach")],
        person::switch_or_attach,
    ),
    row(
        ATTACH,
        "`attach-session` without a name: the free session",
        [SAME, differs("the session that has a person"), SAME],
        person::attach_by_default,
    ),
    row(
        ATTACH,
        "`attach-session` without a name, where the free session is in use",
        [SAME, differs("the session that has a person"), SAME],
        person::attach_to_the_used,
    ),
    row(
        ATTACH,
        "`attach-session` without a name after muxtap has left: the session that a person used last",
        [differs("the session that muxtap used last"), SAME, SAME],
        person::attach_afterwards,
    ),
    row(
        ATTACH,
        "`switch-client -p`, `-n`",
        [SAME, SAME, differs("the hub is one of the sessions")],
        person::next_and_previous,
    ),
    row(
        LISTS,
        "`choose-tree`",
        [
            differs("a session in use is shown as attached"),
            differs("all sessions are shown as attached"),
            differs("the hub is listed"),
        ],
        lists::choose_tree,
    ),
    row(
        LISTS,
        "`list-sessions`",
        [
            differs("a session in use is shown as attached"),
            differs("all sessions are shown as attached"),
            differs("the hub is listed"),
        ],
        lists::sessions,
    ),
    row(LISTS, "`list-panes -a`", [SAME, SAME, differs("each pane is listed once more, in the hub")], lists::panes),
    row(
        LISTS,
        "`list-clients`",
        [differs("one more for each session in use"), differs("one more for each session"), differs("one more")],
        lists::clients,
    ),
    row(LISTS, "the status line", [SAME, SAME, SAME], lists::status_line),
    row(
        LISTS,
        "errors in the configuration file: shown to the first person who attaches",
        [
            differs_on(&["3.4", "3.5a", "3.6b", "3.7c", "3.8"], "shown in the session that muxtap used first"),
            differs_on(&["3.4", "3.5a", "3.6b", "3.7c", "3.8"], "not shown to the person"),
            differs_on(&["3.4", "3.5a", "3.6b", "3.7c", "3.8"], "not shown to the person"),
        ],
        lists::configuration_errors,
    ),
    row(
        WINDOWS,
        "`unlink-window` of a window's only place: refused",
        [SAME, SAME, differs("it succeeds; muxtap links the window back")],
        lists::unlink_window,
    ),
    row(WINDOWS, "sizes of windows, also after the terminal's size changed", [SAME, SAME, SAME], lists::sizes),
    row(
        WINDOWS,
        "name and ids of the next session",
        [SAME, SAME, differs("one number is skipped")],
        lists::next_session,
    ),
    row(
        WINDOWS,
        "name and ids of the next session where hooks on clients are set",
        [differs("two numbers are skipped for each client that came and left"), SAME, differs("one number is skipped")],
        lists::next_session_with_hooks,
    ),
];
