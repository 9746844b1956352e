//! The model of sessions, windows and panes: one `list-panes -a`, read when the structure changed.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use muxtap_api::{LABELS_OPTION, Labels, SESSION_LABELS_OPTION, Size};
use muxtap_base::nonce;
use muxtap_core::protocol::{
    command::Command,
    ids::{PaneId, SessionId, WindowId},
    octal,
};

/// The session option that marks a hub, of any muxtap.
pub const HUB_MARK: &str = "@muxtap-hub";
/// The prefix of a hub's name. The name exists from the first moment, the mark a moment later:
/// other muxtaps must not take the hub for a user's session.
pub const HUB_NAME: &str = "_muxtap-";

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Its id.
    pub id: SessionId,
    /// Its name.
    pub name: String,
    /// Its creation time, in seconds since 1970.
    pub created: u64,
    /// The time of its last activity, in seconds since 1970.
    pub activity: u64,
    /// The number of clients attached to it, including muxtap's.
    pub attached: u32,
    /// The clients' names.
    pub clients: Vec<String>,
    /// Whether it ends with its last client (`destroy-unattached`).
    pub transient: bool,
    /// Whether it is a hub of some muxtap.
    pub hub: bool,
    /// Its labels.
    pub labels: Labels,
}

/// A window as one session shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowRow {
    /// Its id.
    pub id: WindowId,
    /// The session.
    pub session: SessionId,
    /// Its index in that session.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether it is the session's current window.
    pub active: bool,
    /// The layout string.
    pub layout: String,
    /// Its size.
    pub size: Size,
}

/// A pane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaneRow {
    /// Its id.
    pub id: PaneId,
    /// Its window.
    pub window: WindowId,
    /// Its index in the window.
    pub index: u32,
    /// Whether it is the window's active pane.
    pub active: bool,
    /// The process tmux started in it.
    pub pid: u32,
    /// Its terminal.
    pub tty: String,
    /// Its size.
    pub size: Size,
    /// Whether its process ended and the pane remains.
    pub dead: bool,
    /// The exit status of a dead pane.
    pub exit_status: Option<i32>,
    /// Its title.
    pub title: String,
    /// The command that runs in it.
    pub command: String,
    /// Its working directory.
    pub path: String,
    /// Its labels: its own, and those of its session with other keys.
    pub labels: Labels,
    /// Those that the pane itself sets.
    pub own_labels: Labels,
}

/// Everything that a server holds, in tmux's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Sessions, including hubs.
    pub sessions: Vec<SessionRow>,
    /// Windows; a window that several sessions link has a row for each.
    pub windows: Vec<WindowRow>,
    /// Panes, each once.
    pub panes: Vec<PaneRow>,
    /// Whether the server ends with its last client (`exit-unattached`).
    pub exits_unattached: bool,
}

/// The formats that are requested, in the order in which [`Topology::parse`] reads them.
const FIELDS: [&str; 31] = [
    "session_id",
    "session_name",
    "session_created",
    "session_activity",
    "session_attached",
    "session_attached_list",
    "destroy-unattached",
    HUB_MARK,
    "window_id",
    "window_index",
    "window_name",
    "window_active",
    "window_layout",
    "window_width",
    "window_height",
    "pane_id",
    "pane_index",
    "pane_active",
    "pane_pid",
    "pane_tty",
    "pane_width",
    "pane_height",
    "pane_dead",
    "pane_dead_status",
    "pane_title",
    "pane_current_command",
    "pane_current_path",
    LABELS_OPTION,
    SESSION_LABELS_OPTION,
    "exit-unattached",
    "pid",
];

/// Returns a query for the whole model and the separator of its reply: nothing that a program can
/// print into a title or a path can contain it, since it is generated anew each time (F13, F16,
/// F26).
pub fn question() -> (Command, String) {
    let separator = nonce::hex64();
    let mut format = String::new();
    for field in FIELDS {
        format.push_str("#{");
        format.push_str(field);
        format.push('}');
        format.push_str(&separator);
    }
    (Command::new("list-panes").flag("-a").flag("-F").format(&format), separator)
}

impl Topology {
    /// Returns a number that changes when anything that listings show has changed. The time of a
    /// session's last activity is left out: it changes with every key.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for row in &self.sessions {
            (row.id, &row.name, row.created, row.attached, row.transient, row.hub, &row.labels).hash(&mut hasher);
        }
        for row in &self.windows {
            let size = (row.size.width, row.size.height);
            (row.id, row.session, row.index, &row.name, row.active, &row.layout, size).hash(&mut hasher);
        }
        for row in &self.panes {
            let size = (row.size.width, row.size.height);
            (row.id, row.window, row.index, row.active, row.pid, size, row.dead, row.exit_status).hash(&mut hasher);
            (&row.title, &row.command, &row.path, &row.labels).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Reads the reply to `question`. Rows that do not parse are skipped.
    pub fn parse(body: &[u8], separator: &str, octal_encoded: bool) -> Self {
        let mut topology = Self::default();
        let mut seen_windows = HashSet::new();
        let mut seen_panes = HashSet::new();
        let fields = split(body, separator.as_bytes());
        for row in fields.chunks_exact(FIELDS.len()) {
            let Ok(row) = <&[&[u8]; FIELDS.len()]>::try_from(row) else { continue };
            let [
                session_id,
                session_name,
                created,
                activity,
                attached,
                clients,
                transient,
                hub,
                window_id,
                window_index,
                window_name,
                window_active,
                layout,
                window_width,
                window_height,
                pane_id,
                pane_index,
                pane_active,
                pid,
                tty,
                width,
                height,
                dead,
                dead_status,
                title,
                command,
                path,
                labels,
                session_labels,
                exits_unattached,
                _server,
            ] = row;
            let session_id = session_id.strip_prefix(b"\n").unwrap_or(session_id);
            let text = |bytes: &[u8]| text(bytes, octal_encoded);
            let (Some(session), Some(window), Some(pane)) =
                (SessionId::from_bytes(session_id), WindowId::from_bytes(window_id), PaneId::from_bytes(pane_id))
            else {
                continue;
            };
            if topology.sessions.last().is_none_or(|last| last.id != session)
                && !topology.sessions.iter().any(|known| known.id == session)
            {
                topology.sessions.push(SessionRow {
                    id: session,
                    name: text(session_name),
                    created: number(created),
                    activity: number(activity),
                    attached: number(attached),
                    clients: text(clients).split(',').map(str::to_owned).filter(|name| !name.is_empty()).collect(),
                    transient: is_on(transient),
                    hub: !hub.is_empty() || session_name.starts_with(HUB_NAME.as_bytes()),
                    labels: Labels::parse(&text(session_labels)),
                });
            }
            topology.exits_unattached |= is_on(exits_unattached);
            let index = number(window_index);
            if seen_windows.insert((session, window, index)) {
                topology.windows.push(WindowRow {
                    id: window,
                    session,
                    index,
                    name: text(window_name),
                    active: *window_active == b"1",
                    layout: text(layout),
                    size: Size { width: number(window_width), height: number(window_height) },
                });
            }
            if seen_panes.insert(pane) {
                let labels = Labels::parse(&text(labels));
                topology.panes.push(PaneRow {
                    id: pane,
                    window,
                    index: number(pane_index),
                    active: *pane_active == b"1",
                    pid: number(pid),
                    tty: text(tty),
                    size: Size { width: number(width), height: number(height) },
                    // A pane that was created without a process has none that could have ended
                    // (N100).
                    dead: *dead == b"1" && *pid != b"0",
                    exit_status: std::str::from_utf8(dead_status).ok().and_then(|status| status.parse().ok()),
                    title: text(title),
                    command: text(command),
                    path: text(path),
                    own_labels: labels.clone(),
                    labels,
                });
            }
        }
        topology.inherit_labels();
        topology
    }

    /// Adds the labels of sessions to their panes.
    fn inherit_labels(&mut self) {
        if self.sessions.iter().all(|session| session.labels.is_empty()) {
            return;
        }
        let givers = self.label_givers();
        let labels: HashMap<_, _> = self.sessions.iter().map(|row| (row.id, &row.labels)).collect();
        for pane in &mut self.panes {
            let giver = givers.get(&pane.window).and_then(|session| labels.get(session));
            if let Some(labels) = giver.filter(|labels| !labels.is_empty()) {
                pane.labels = pane.own_labels.over(labels);
            }
        }
    }

    /// Returns the session from which the panes of each window inherit labels: of those that link the
    /// window and are no hubs, the oldest one, which has the lowest id. Neither another name nor a new
    /// view of the window changes it.
    fn label_givers(&self) -> HashMap<WindowId, SessionId> {
        let hubs = self.hubs();
        let mut givers: HashMap<WindowId, SessionId> = HashMap::new();
        for window in self.windows.iter().filter(|window| !hubs.contains(&window.session)) {
            let giver = givers.entry(window.id).or_insert(window.session);
            *giver = (*giver).min(window.session);
        }
        givers
    }

    /// Returns the session from which a pane inherits labels.
    pub fn label_giver(&self, pane: PaneId) -> Option<SessionId> {
        self.label_givers().get(&self.pane(pane)?.window).copied()
    }

    /// Returns the session with this id.
    pub fn session(&self, id: SessionId) -> Option<&SessionRow> {
        self.sessions.iter().find(|row| row.id == id)
    }

    /// Returns the pane with this id.
    pub fn pane(&self, id: PaneId) -> Option<&PaneRow> {
        self.panes.iter().find(|row| row.id == id)
    }

    /// Returns the sessions that link each window, including hubs.
    pub fn links(&self) -> HashMap<WindowId, Vec<SessionId>> {
        let mut links: HashMap<WindowId, Vec<SessionId>> = HashMap::new();
        for window in &self.windows {
            links.entry(window.id).or_default().push(window.session);
        }
        links
    }

    /// Returns the sessions that are hubs.
    pub fn hubs(&self) -> HashSet<SessionId> {
        self.sessions.iter().filter(|session| session.hub).map(|session| session.id).collect()
    }

    /// Returns the topology without hubs and what only hubs hold: the server's content as its user
    /// sees it.
    pub fn without_hubs(&self) -> Self {
        let hubs = self.hubs();
        let windows: Vec<_> = self.windows.iter().filter(|row| !hubs.contains(&row.session)).cloned().collect();
        let shown: HashSet<_> = windows.iter().map(|row| row.id).collect();
        Self {
            sessions: self.sessions.iter().filter(|row| !row.hub).cloned().collect(),
            panes: self.panes.iter().filter(|row| shown.contains(&row.window)).cloned().collect(),
            windows,
            exits_unattached: self.exits_unattached,
        }
    }
}

/// Returns whether an option that a format printed is on, or has a value other than `off`.
fn is_on(value: &[u8]) -> bool {
    !matches!(value, b"" | b"0" | b"off")
}

/// Returns the pieces between separators; the rest after the last one (a line end) is dropped.
fn split<'a>(body: &'a [u8], separator: &[u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    let mut from = 0;
    for at in memchr::memmem::find_iter(body, separator) {
        pieces.push(body.get(from..at).unwrap_or_default());
        from = at + separator.len();
    }
    pieces
}

/// Returns a value as text.
fn text(bytes: &[u8], octal_encoded: bool) -> String {
    let mut bytes = bytes.to_vec();
    if octal_encoded {
        let length = octal::decode_in_place(&mut bytes);
        bytes.truncate(length);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn number<T: std::str::FromStr + Default>(bytes: &[u8]) -> T {
    std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(separator: &str, values: &[&str; FIELDS.len()]) -> String {
        let mut line = String::new();
        for value in values {
            line.push_str(value);
            line.push_str(separator);
        }
        line + "\n"
    }

    fn values<'a>(
        session: &'a str,
        hub: &'a str,
        window: &'a str,
        pane: &'a str,
        path: &'a str,
    ) -> [&'a str; FIELDS.len()] {
        [
            session,
            "work",
            "1",
            "2",
            "1",
            "/dev/pts/7,client-12",
            "0",
            hub,
            window,
            "3",
            "vi",
            "1",
            "b25d,80x24,0,0,0",
            "80",
            "24",
            pane,
            "0",
            "1",
            "77",
            "/dev/pts/1",
            "80",
            "24",
            "0",
            "",
            "title",
            "sh",
            path,
            "role=build",
            if hub.is_empty() { "role=none,team=a" } else { "team=hub" },
            "0",
            "9",
        ]
    }

    /// C7: each query has a new separator.
    #[test]
    fn a_line_end_in_a_path_does_not_split_its_row() {
        let body = row("|SEP|", &values("$0", "", "@1", "%2", "/tmp/a\n$9|@9"));
        let topology = Topology::parse(body.as_bytes(), "|SEP|", false);
        assert_eq!(topology.sessions.len(), 1);
        assert_eq!(topology.sessions[0].clients, ["/dev/pts/7", "client-12"]);
        assert_eq!(topology.panes[0].path, "/tmp/a\n$9|@9");
    }

    #[test]
    fn a_window_that_two_sessions_link_is_listed_twice_and_its_pane_once() {
        let body = row("|", &values("$0", "", "@1", "%2", "/")) + &row("|", &values("$1", "", "@1", "%2", "/"));
        let topology = Topology::parse(body.as_bytes(), "|", false);
        assert_eq!((topology.windows.len(), topology.panes.len()), (2, 1));
        assert_eq!(topology.links()[&WindowId(1)], [SessionId(0), SessionId(1)]);
    }

    /// C5: no response contains hubs.
    #[test]
    fn hubs_and_their_contents_are_left_out() {
        let body = row("|", &values("$0", "me", "@0", "%0", "/"))
            + &row("|", &values("$0", "me", "@1", "%2", "/"))
            + &row("|", &values("$1", "", "@1", "%2", "/"));
        let shown = Topology::parse(body.as_bytes(), "|", false).without_hubs();
        assert_eq!(shown.sessions.iter().map(|row| row.id).collect::<Vec<_>>(), [SessionId(1)]);
        assert_eq!(shown.panes.iter().map(|row| row.id).collect::<Vec<_>>(), [PaneId(2)]);
        assert_eq!(shown.windows.len(), 1);
    }

    /// Of a group's sessions the oldest one gives the labels, also if tmux lists another one first.
    #[test]
    fn a_new_view_of_a_window_does_not_change_its_panes_labels() {
        let mut view = values("$2", "", "@1", "%2", "/");
        (view[1], view[28]) = ("aview", "team=b");
        let body = row("|", &view) + &row("|", &values("$1", "", "@1", "%2", "/"));
        let topology = Topology::parse(body.as_bytes(), "|", false);
        assert_eq!(topology.label_giver(PaneId(2)), Some(SessionId(1)));
        assert_eq!(topology.panes[0].labels.to_string(), "role=build,team=a");
        assert_eq!(topology.label_giver(PaneId(3)), None);
    }

    /// A pane never inherits from a hub.
    #[test]
    fn a_pane_has_the_labels_of_its_session_except_its_own() {
        let body = row("|", &values("$0", "me", "@1", "%2", "/"))
            + &row("|", &values("$1", "", "@1", "%2", "/"))
            + &row("|", &values("$0", "me", "@0", "%0", "/"));
        let topology = Topology::parse(body.as_bytes(), "|", false);
        let text = |pane| topology.pane(PaneId(pane)).unwrap().labels.to_string();
        assert_eq!((text(2), text(0)), ("role=build,team=a".into(), "role=build".into()));
        assert_eq!(topology.panes[0].own_labels.to_string(), "role=build");
    }

    #[test]
    fn a_fingerprint_is_of_what_listings_show() {
        let parsed = |change: fn(&mut Topology)| {
            let body = row("|", &values("$1", "", "@1", "%1", "/"));
            let mut topology = Topology::parse(body.as_bytes(), "|", false);
            assert_eq!(topology.panes.len(), 1);
            change(&mut topology);
            topology.fingerprint()
        };
        let was = parsed(|_| {});
        assert_eq!(was, parsed(|topology| topology.sessions[0].activity += 1));
        assert_ne!(was, parsed(|topology| topology.sessions[0].attached += 1));
        assert_ne!(was, parsed(|topology| topology.windows[0].name.push('x')));
        assert_ne!(was, parsed(|topology| topology.panes[0].command.push('x')));
        assert_ne!(was, parsed(|topology| topology.panes[0].labels = Labels::default()));
        assert_ne!(was, parsed(|topology| topology.sessions[0].labels = Labels::default()));
        assert_ne!(was, parsed(|topology| topology.panes.clear()));
    }
}
