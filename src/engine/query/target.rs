//! Targets: `%3`, `@1`, `$0`, `session`, `session:window`, `session:window.pane`. Names are exact;
//! more than one match is an error.

use std::sync::Arc;

use crate::engine::{Host, PaneState, Server};
use crate::{
    api::{Error, ErrorCode, Result},
    protocol::ids::{PaneId, SessionId, WindowId},
    tmux::{ServerLink, SessionRow, Topology, WindowRow},
};

/// Candidates that the error about a bare number lists.
const CANDIDATES: usize = 8;

/// A target as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `%3`, `pane:%3`, `terminal:%3`.
    Pane(PaneId),
    /// `@1`.
    Window(WindowId),
    /// Digits alone. tmux takes them for a pane's or a window's index in the session that is
    /// current there, else for a session's name, by command (`cmd_find_target`). Nothing is current
    /// for muxtap, so only commands that can take nothing but a session accept them.
    Number(String),
    /// `$0`, a name, and what follows it.
    Named {
        /// The session's id or name.
        session: String,
        /// The window in it.
        window: Option<WindowPart>,
        /// The pane's index in the window.
        pane: Option<u32>,
    },
}

/// A window in its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WindowPart {
    /// The window's index, name or id.
    Name(String),
    /// This many windows after the session's current one (`+1`) or before it (`-1`), round the
    /// ends.
    Offset(i64),
}

impl std::str::FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let prefixed = ["terminal:", "pane:"].iter().find_map(|prefix| text.strip_prefix(prefix));
        let text = prefixed.filter(|id| id.starts_with('%')).unwrap_or(text);
        let invalid = |why: &str| {
            Err(Error::new(
                ErrorCode::InvalidTarget,
                format!(
                    "{text:?} is no target: {why}; write %3, @1, $0, session, session:window or session:window.pane"
                ),
            ))
        };
        if text.is_empty() {
            return invalid("it is empty");
        }
        if text.chars().any(char::is_control) {
            return invalid("it holds a control character");
        }
        if text.starts_with('%') {
            return PaneId::from_bytes(text.as_bytes())
                .map_or_else(|| invalid("a pane is % and a number"), |id| Ok(Self::Pane(id)));
        }
        if text.starts_with('@') {
            return WindowId::from_bytes(text.as_bytes())
                .map_or_else(|| invalid("a window is @ and a number"), |id| Ok(Self::Window(id)));
        }
        if is_number(text) {
            return Ok(Self::Number(text.to_owned()));
        }
        let (session, rest) = match text.split_once(':') {
            Some((session, rest)) => (session, Some(rest)),
            None => (text, None),
        };
        if session.is_empty() {
            return invalid("the session is missing, and for muxtap none is current");
        }
        if rest.is_none() && is_relative(session) {
            return invalid(
                "it counts from what is current, and for muxtap nothing is; work:+1 counts in session work",
            );
        }
        let session = session.strip_prefix('=').unwrap_or(session).to_owned();
        let Some(rest) = rest.filter(|rest| !rest.is_empty()) else {
            return Ok(Self::Named { session, window: None, pane: None });
        };
        // A window's name may hold dots; only a number or an offset after the last one is a pane.
        let (window, pane) = match rest.rsplit_once('.') {
            Some((window, pane)) if is_number(pane) => match pane.parse() {
                Ok(index) => (window, Some(index)),
                Err(_) => return invalid("no pane has such an index"),
            },
            Some((_, pane)) if is_offset(pane) => {
                return invalid("a pane is an index; what lies beside the active one is not counted");
            }
            _ => (rest, None),
        };
        let window = match window {
            "" => None,
            window if is_offset(window) => match offset(window) {
                Some(offset) => Some(WindowPart::Offset(offset)),
                None => return invalid("no window is so far away"),
            },
            // tmux has meanings for these, whatever windows are called.
            window if is_relative(window) => {
                return invalid("muxtap takes indexes, names, @1, +1 and -1 for a window, not tmux's other signs");
            }
            window => Some(WindowPart::Name(window.to_owned())),
        };
        Ok(Self::Named { session, window, pane })
    }
}

/// Returns whether a text is nothing but digits.
pub(crate) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether a text is `+`, `-`, or one of them and a number.
fn is_offset(text: &str) -> bool {
    text.strip_prefix(['+', '-']).is_some_and(|number| number.is_empty() || is_number(number))
}

/// Returns how far `+`, `-`, `+2` or `-2` goes.
fn offset(text: &str) -> Option<i64> {
    let (sign, number) = text.split_at_checked(1)?;
    let number = if number.is_empty() { 1 } else { i64::from(number.parse::<u32>().ok()?) };
    Some(if sign == "-" { -number } else { number })
}

/// Returns whether tmux takes a text for a place beside what is current, and not for a name.
fn is_relative(text: &str) -> bool {
    is_offset(text) || matches!(text, "!" | "^" | "$" | "~" | "=") || text.starts_with('{') && text.ends_with('}')
}

/// Returns the item that lies `offset` after the current one, round the ends.
fn beside<T>(items: &[T], current: impl Fn(&T) -> bool, offset: i64) -> Option<&T> {
    let at = i64::try_from(items.iter().position(current)?).ok()?;
    let count = i64::try_from(items.len()).ok()?;
    items.get(usize::try_from((at + offset).rem_euclid(count)).ok()?)
}

impl Server {
    /// Finds the pane of a target; of a session or window, its active one. A handle's own pane is
    /// refused where another server runs in the place of its own.
    pub(crate) async fn resolve_pane(&self, text: &str) -> Result<Arc<PaneState>> {
        match self.bound_pane(text) {
            Some(pane) => {
                self.host.server_of(pane).connected().await?;
                Ok(pane.clone())
            }
            None => self.find_pane(text).await,
        }
    }

    /// Finds the pane of a target that is only looked at: what has ended is known without tmux.
    pub(in crate::engine) async fn resolve_seen(&self, text: &str) -> Result<Arc<PaneState>> {
        match self.bound_pane(text) {
            Some(pane) => self.check_seen(pane).await,
            None => self.find_pane(text).await,
        }
    }

    fn bound_pane(&self, text: &str) -> Option<&Arc<PaneState>> {
        self.bound.as_ref()?.iter().find(|pane| pane.id().to_string() == text)
    }

    async fn find_pane(&self, text: &str) -> Result<Arc<PaneState>> {
        let host = &self.host;
        let target = text.parse()?;
        // An id is as good as the pane; whether it still is there shows when it is used. An ended
        // pane may have a namesake on a new server.
        if let Target::Pane(id) = target
            && let Some(pane) = host.live_pane(id)
            // tmux announces no respawn: whether another program runs in a dead pane by now shows
            // when it is listed.
            && pane.exit().is_none()
        {
            return Ok(pane);
        }
        let topology = match host.server().fresh().await {
            Ok(topology) => topology.without_hubs(),
            // The server has gone; what its panes printed is still readable.
            Err(error) => return last_ended(host, &target).ok_or(error),
        };
        let id = match find_pane(&topology, &target) {
            Ok(id) => id,
            Err(error) => return last_ended(host, &target).ok_or_else(|| earlier_pane_error(error, &target, host)),
        };
        if let Some(pane) = host.live_pane(id) {
            return Ok(pane);
        }
        host.server().cover(id).await?;
        host.pane(id).ok_or_else(|| with_socket(Error::not_found(format!("no pane {id}")), host))
    }

    /// Returns the pane that a handle stands for, to be looked at. One that has not ended needs its
    /// server: which one runs is known when it is connected.
    pub(in crate::engine) async fn check_seen(&self, pane: &Arc<PaneState>) -> Result<Arc<PaneState>> {
        if pane.exit().is_none()
            && let Err(error) = self.host.server_of(pane).connected().await
            // It may have ended with its server just now.
            && pane.exit().is_none()
        {
            return Err(error);
        }
        Ok(pane.clone())
    }

    /// Returns the target of a URL path. `%` must be encoded in an address, so there a bare number
    /// is a pane's id. It is refused where a session is called so.
    pub(crate) async fn path_target(&self, text: String) -> Result<String> {
        let host = &self.host;
        if !is_number(&text) {
            return Ok(text);
        }
        // Where no server runs no session can be meant.
        let topology = host.server().fresh().await.map(|topology| topology.without_hubs());
        if let Ok(topology) = topology
            && find_session(&topology, &text).is_ok()
        {
            return Err(ambiguous_number(&topology, &text));
        }
        Ok(format!("%{text}"))
    }

    /// Returns the id of the pane that a target means.
    pub(crate) async fn pane_id(&self, text: &str) -> Result<String> {
        Ok(self.resolve_pane(text).await?.id().to_string())
    }

    /// Returns the id of the window that a target means.
    pub(crate) async fn window_id(&self, text: &str) -> Result<String> {
        Ok(self.window(text).await?.id.to_string())
    }

    /// Returns the id of the session that a target means.
    pub(crate) async fn session_id(&self, text: &str) -> Result<String> {
        Ok(self.session(text).await?.id.to_string())
    }

    /// Returns the session that `pick` chooses, and its active pane.
    pub(crate) async fn pane_of_session(
        &self,
        pick: impl FnOnce(&[SessionRow]) -> Option<SessionRow>,
    ) -> Result<(SessionRow, Arc<PaneState>)> {
        let host = &self.host;
        let topology = host.server().fresh().await?.without_hubs();
        let session = pick(&topology.sessions).ok_or_else(|| Error::not_found("no such session"))?;
        let target = Target::Named { session: session.id.to_string(), window: None, pane: None };
        let id = find_pane(&topology, &target)?;
        if let Some(pane) = host.live_pane(id) {
            return Ok((session, pane));
        }
        host.server().cover(id).await?;
        let pane = host.pane(id).ok_or_else(|| Error::not_found(format!("no pane {id}")))?;
        Ok((session, pane))
    }

    /// Finds the session of a target.
    pub(in crate::engine) async fn session(&self, text: &str) -> Result<SessionRow> {
        let host = &self.host;
        let topology = host.server().fresh().await?.without_hubs();
        match text.parse()? {
            Target::Number(session) | Target::Named { session, window: None, pane: None } => {
                find_session(&topology, &session).cloned().map_err(|error| with_socket(error, host))
            }
            _ => Err(Error::new(ErrorCode::InvalidTarget, format!("{text:?} is no session; write its name or $0"))),
        }
    }

    /// Finds the window of a target; of a session, its current one.
    pub(in crate::engine) async fn window(&self, text: &str) -> Result<WindowRow> {
        let host = &self.host;
        let topology = host.server().fresh().await?.without_hubs();
        let target = text.parse()?;
        find_window(&topology, &target).cloned().map_err(|error| with_socket(error, host))
    }
}

impl Host {
    /// Returns the server of a pane, which is asked as long as no other one has taken its place: panes
    /// of the other one have the same ids.
    pub(in crate::engine) fn server_of(&self, pane: &PaneState) -> ServerLink {
        self.server().only(pane.epoch().server)
    }
}

fn last_ended(host: &Host, target: &Target) -> Option<Arc<PaneState>> {
    match target {
        Target::Pane(id) => host.pane(*id),
        _ => None,
    }
}

/// Returns the error about a pane that is not there. An id may be that of a pane of the server that
/// ran there before.
fn earlier_pane_error(error: Error, target: &Target, host: &Host) -> Error {
    let Target::Pane(id) = target else { return with_socket(error, host) };
    let Some(pane) = host.earlier_pane(*id) else { return with_socket(error, host) };
    let (start, end) = pane.retained_cursors();
    let message = format!(
        "{} on {}: it was a pane of the server that ran there before and has ended; what it printed is read by its \
         cursor, since {start}",
        error.message,
        host.socket().display(),
    );
    Error::not_found(message).with_details(serde_json::json!({ "start": start.to_string(), "end": end.to_string() }))
}

/// Returns the error about a bare number, which lists what it may mean.
fn ambiguous_number(topology: &Topology, number: &str) -> Error {
    let mut candidates = Vec::new();
    let pane = format!("%{number}");
    if topology.panes.iter().any(|row| row.id.to_string() == pane) {
        candidates.push(pane);
    }
    if topology.sessions.iter().any(|row| row.name == number) {
        candidates.push(format!("{number}:"));
    }
    let windows = topology.windows.iter().filter(|row| row.index.to_string() == number);
    let names = windows.filter_map(|row| Some(format!("{}:{number}", topology.session(row.session)?.name)));
    candidates.extend(names);
    candidates.truncate(CANDIDATES);
    Error::bare_number(number, &candidates)
}

fn with_socket(mut error: Error, host: &Host) -> Error {
    if error.code == ErrorCode::NotFound {
        error.message =
            format!("{} on {}; `muxtap list-panes` shows what is there", error.message, host.socket().display());
    }
    error
}

/// Finds a target's pane in the topology.
pub fn find_pane(topology: &Topology, target: &Target) -> Result<PaneId> {
    if let Target::Pane(id) = target {
        return topology.pane(*id).map(|row| row.id).ok_or_else(|| Error::not_found(format!("no pane {id}")));
    }
    let window = find_window(topology, target)?;
    let mut panes: Vec<_> = topology.panes.iter().filter(|row| row.window == window.id).collect();
    panes.sort_by_key(|row| row.index);
    match target {
        Target::Named { pane: Some(index), .. } => panes
            .iter()
            .find(|row| row.index == *index)
            .map(|row| row.id)
            .ok_or_else(|| Error::not_found(format!("no pane {index} in window {}", window.name))),
        _ => panes.iter().find(|row| row.active).map(|row| row.id).ok_or_else(no_pane),
    }
}

fn no_pane() -> Error {
    Error::not_found("the window has no pane")
}

/// Finds a target's window in the topology.
pub fn find_window<'a>(topology: &'a Topology, target: &Target) -> Result<&'a WindowRow> {
    match target {
        Target::Pane(id) => {
            let window = topology.pane(*id).ok_or_else(|| Error::not_found(format!("no pane {id}")))?.window;
            find_window(topology, &Target::Window(window))
        }
        Target::Window(id) => {
            topology.windows.iter().find(|row| row.id == *id).ok_or_else(|| Error::not_found(format!("no window {id}")))
        }
        Target::Number(number) => Err(ambiguous_number(topology, number)),
        Target::Named { session, window, .. } => {
            let session = find_session(topology, session)?;
            let mut windows: Vec<_> = topology.windows.iter().filter(|row| row.session == session.id).collect();
            windows.sort_by_key(|row| row.index);
            let current = || Error::not_found("the session has no window");
            match window {
                None => windows.iter().find(|row| row.active).copied().ok_or_else(current),
                Some(WindowPart::Offset(by)) => beside(&windows, |row| row.active, *by).copied().ok_or_else(current),
                Some(WindowPart::Name(wanted)) => named_window(session, &windows, wanted),
            }
        }
    }
}

/// Finds the window of a session with this index, id or name.
fn named_window<'a>(session: &SessionRow, windows: &[&'a WindowRow], wanted: &str) -> Result<&'a WindowRow> {
    // As in tmux an index comes before a name.
    let by_index = wanted.parse().ok().filter(|_| is_number(wanted));
    let found = windows.iter().find(|row| Some(row.index) == by_index || row.id.to_string() == *wanted);
    if let Some(found) = found {
        return Ok(found);
    }
    let named: Vec<_> = windows.iter().filter(|row| row.name == *wanted).collect();
    match named.as_slice() {
        [only] => Ok(only),
        [] => Err(Error::not_found(format!("no window {wanted} in session {}", session.name))),
        several => {
            let ids: Vec<_> = several.iter().map(|row| row.id.to_string()).collect();
            let message = format!("{} windows of session {} are named {wanted}", ids.len(), session.name);
            Err(Error::new(ErrorCode::AmbiguousTarget, format!("{message}; write one of {}", ids.join(", ")))
                .with_details(serde_json::json!({ "candidates": ids })))
        }
    }
}

/// Finds the session with this name or id in the topology.
pub fn find_session<'a>(topology: &'a Topology, wanted: &str) -> Result<&'a SessionRow> {
    if let Ok(id) = wanted.parse::<SessionId>() {
        return topology.session(id).ok_or_else(|| Error::not_found(format!("no session {id}")));
    }
    let found = topology.sessions.iter().find(|row| row.name == wanted);
    found.ok_or_else(|| Error::not_found(format!("no session {wanted}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::Size, tmux::PaneRow};

    fn named(session: &str, window: Option<&str>, pane: Option<u32>) -> Target {
        Target::Named { session: session.into(), window: window.map(|window| WindowPart::Name(window.into())), pane }
    }

    #[test]
    fn every_spelling_is_read() {
        for (text, target) in [
            ("%3", Target::Pane(PaneId(3))),
            ("terminal:%3", Target::Pane(PaneId(3))),
            ("pane:%3", Target::Pane(PaneId(3))),
            ("@1", Target::Window(WindowId(1))),
            ("$0", named("$0", None, None)),
            ("work", named("work", None, None)),
            ("=work", named("work", None, None)),
            ("work:", named("work", None, None)),
            ("work:2", named("work", Some("2"), None)),
            ("work:vim.1", named("work", Some("vim"), Some(1))),
            ("work:a.b", named("work", Some("a.b"), None)),
            ("work:.1", named("work", None, Some(1))),
        ] {
            assert_eq!(text.parse::<Target>().unwrap(), target, "{text}");
        }
        assert_eq!("3".parse::<Target>().unwrap(), Target::Number("3".into()));
        // `pane:` is a spelling of an id alone; a session may be called so.
        assert_eq!("pane:3".parse::<Target>().unwrap(), named("pane", Some("3"), None));
    }

    #[test]
    fn offsets_are_not_indexes() {
        let by = |window: i64, pane: Option<u32>| Target::Named {
            session: "w".into(),
            window: Some(WindowPart::Offset(window)),
            pane,
        };
        for (text, target) in [
            ("w:+1", by(1, None)),
            ("w:-1", by(-1, None)),
            ("w:+", by(1, None)),
            ("w:-20", by(-20, None)),
            ("w:+2.1", by(2, Some(1))),
        ] {
            assert_eq!(text.parse::<Target>().unwrap(), target, "{text}");
        }
    }

    /// Sessions `1` (windows 0 and 5, 5 is current, with panes 0 to 2, of which 2 is active) and
    /// `work` (window 1).
    fn topology() -> Topology {
        let session = |id, name: &str| SessionRow {
            id: SessionId(id),
            name: name.into(),
            created: 0,
            activity: 0,
            attached: 0,
            clients: Vec::new(),
            transient: false,
            hub: false,
        };
        let window = |id, session, index, active| WindowRow {
            id: WindowId(id),
            session: SessionId(session),
            index,
            name: format!("+{id}"),
            active,
            layout: String::new(),
            size: Size::default(),
        };
        let pane = |id, window, index, active| PaneRow {
            id: PaneId(id),
            window: WindowId(window),
            index,
            active,
            pid: 1,
            tty: String::new(),
            size: Size::default(),
            dead: false,
            exit_status: None,
            title: String::new(),
            command: String::new(),
            path: String::new(),
        };
        Topology {
            sessions: vec![session(0, "1"), session(1, "work")],
            windows: vec![window(0, 0, 0, false), window(1, 0, 5, true), window(2, 1, 1, true)],
            panes: vec![
                pane(0, 0, 0, true),
                pane(1, 1, 0, false),
                pane(2, 1, 1, false),
                pane(3, 1, 2, true),
                pane(4, 2, 0, true),
            ],
        }
    }

    #[test]
    fn offsets_go_round_the_ends_as_in_tmux() {
        for (text, id) in [
            ("1:", 3),
            ("1:+1", 0),
            ("1:-1", 0),
            ("1:+2", 3),
            ("work:+7", 4),
            // An index, and not the window that is called `+1`.
            ("1:5", 3),
        ] {
            assert_eq!(find_pane(&topology(), &text.parse().unwrap()), Ok(PaneId(id)), "{text}");
        }
    }

    #[test]
    fn a_number_alone_means_nothing_but_a_session() {
        let topology = topology();
        let number: Target = "1".parse().unwrap();
        for error in [find_pane(&topology, &number).unwrap_err(), find_window(&topology, &number).unwrap_err()] {
            assert_eq!(error.code, ErrorCode::AmbiguousTarget);
            assert_eq!(error.details.unwrap()["candidates"], serde_json::json!(["%1", "1:", "work:1"]));
        }
        assert_eq!(find_session(&topology, "1").unwrap().id, SessionId(0));
        let unknown = find_pane(&topology, &"77".parse().unwrap()).unwrap_err();
        assert_eq!((unknown.code, unknown.details), (ErrorCode::AmbiguousTarget, None));
    }

    #[test]
    fn what_is_no_target_is_said_to_be_none() {
        for text in [
            "",
            "%",
            "%x",
            "@",
            "@1x",
            ":1",
            "a\nb",
            "%3; kill-server",
            "+1",
            "-1",
            ":+1",
            "-",
            "!",
            "{last}",
            "w:!",
            "w:^",
            "w:$",
            "w:{next}",
            "w:.+1",
            "w:1.-",
            "w:+99999999999",
            "w:1.99999999999",
        ] {
            assert_eq!(text.parse::<Target>().unwrap_err().code, ErrorCode::InvalidTarget, "{text:?}");
        }
    }
}
