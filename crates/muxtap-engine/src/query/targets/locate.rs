//! Finding a target in tmux's lists.

use muxtap_api::{Error, ErrorCode, Result};
use muxtap_core::protocol::ids::{PaneId, SessionId, WindowId};
use muxtap_tmux::{PaneRow, SessionRow, Topology, WindowRow};

use super::{
    PanePart, Selector, SessionPart, Sign, Target, WINDOW_WORDS, WindowPart, is_number, layout,
    resolve::ambiguous_number,
};

/// The most panes that an error names.
const SHOWN: usize = 16;

/// The meaning of a target.
#[derive(Debug)]
pub enum Found<T> {
    /// An item in tmux's lists.
    Here(T),
    /// A target that only tmux can resolve.
    Ask(String),
}

impl<T> Found<T> {
    fn map<U>(self, with: impl FnOnce(T) -> U) -> Found<U> {
        match self {
            Self::Here(found) => Found::Here(with(found)),
            Self::Ask(place) => Found::Ask(place),
        }
    }

    /// Returns the listed item, or an error if only tmux can resolve the target.
    fn listed(self) -> Result<T> {
        match self {
            Self::Here(found) => Ok(found),
            Self::Ask(place) => Err(Error::not_found(format!("{place}: only tmux can resolve this target"))),
        }
    }
}

/// The place to which signs and missing parts are relative.
#[derive(Clone, Copy)]
struct Origin {
    session: SessionId,
    window: WindowId,
    /// The caller's pane, or else the window's active one.
    pane: Option<PaneId>,
}

/// Finds targets in a listing, for a caller.
pub struct Finder<'a> {
    topology: &'a Topology,
    /// The caller's own pane.
    from: Option<PaneId>,
}

/// Finds a target's pane, for a caller outside of any pane.
pub fn find_pane(topology: &Topology, target: &Target) -> Result<PaneId> {
    Finder::new(topology, None).pane(target)?.listed()
}

/// Finds a target's window, for a caller outside of any pane.
pub fn find_window<'a>(topology: &'a Topology, target: &Target) -> Result<&'a WindowRow> {
    Finder::new(topology, None).window(target)?.listed()
}

/// Finds the session with this name or id in the topology.
pub fn find_session<'a>(topology: &'a Topology, wanted: &str) -> Result<&'a SessionRow> {
    if let Ok(id) = wanted.parse::<SessionId>() {
        return topology.session(id).ok_or_else(|| Error::not_found(format!("no session {id}")));
    }
    let found = topology.sessions.iter().find(|row| row.name == wanted);
    found.ok_or_else(|| Error::not_found(format!("no session `{wanted}`")))
}

impl<'a> Finder<'a> {
    pub fn new(topology: &'a Topology, from: Option<PaneId>) -> Self {
        Self { topology, from }
    }

    /// Finds a target's session. For a window or a pane: the session that it is in.
    pub fn session(&self, target: &Target) -> Result<Found<SessionId>> {
        match target {
            // In place of a session, a name never means a window.
            Target::Number(session) | Target::Name(session) => {
                find_session(self.topology, session).map(|row| Found::Here(row.id))
            }
            Target::Place { session: SessionPart::Named(session), window: None, pane: None } => {
                find_session(self.topology, session).map(|row| Found::Here(row.id))
            }
            Target::Pane(id) if self.from == Some(*id) => self.origin().map(|origin| Found::Here(origin.session)),
            _ => self.window(target).map(|found| found.map(|row| row.session)),
        }
    }

    /// Finds a target's window. For a session: its current window.
    pub fn window(&self, target: &Target) -> Result<Found<&'a WindowRow>> {
        let topology = self.topology;
        match target {
            Target::Pane(id) => {
                let window = topology.pane(*id).ok_or_else(|| Error::not_found(format!("no pane {id}")))?.window;
                self.window(&Target::Window(window))
            }
            Target::Window(id) => {
                let found = topology.windows.iter().find(|row| row.id == *id);
                found.map(Found::Here).ok_or_else(|| Error::not_found(format!("no window {id}")))
            }
            Target::Number(number) => Err(ambiguous_number(topology, number)),
            Target::Marked => Ok(Found::Ask("{marked}".to_owned())),
            Target::Labels(selector) => self.window(&Target::Pane(self.labeled(selector)?)),
            Target::Name(name) => self.named_anywhere(name).map(Found::Here),
            Target::Sign(sign) => match sign {
                Sign::Tmux(word) if !WINDOW_WORDS.contains(&word.as_str()) => self.pane_sign(word).map(Found::Ask),
                sign => {
                    let origin = self.origin()?;
                    self.beside_window(origin.session, origin.window, sign)
                }
            },
            Target::Place { session, window, .. } => self.window_at(session, window.as_ref()),
        }
    }

    /// Finds a target's pane. For a window or a session: its active pane.
    pub fn pane(&self, target: &Target) -> Result<Found<PaneId>> {
        match target {
            Target::Pane(id) => {
                let row = self.topology.pane(*id).ok_or_else(|| Error::not_found(format!("no pane {id}")))?;
                Ok(Found::Here(row.id))
            }
            Target::Labels(selector) => self.labeled(selector).map(Found::Here),
            Target::Sign(Sign::Offset(by)) => {
                let origin = self.origin()?;
                self.beside_pane(origin.window, *by).map(Found::Here)
            }
            Target::Sign(Sign::Tmux(word)) if word.ends_with("-of}") => {
                let origin = self.origin()?;
                let window = self.topology.windows.iter().find(|row| row.id == origin.window).ok_or_else(no_window)?;
                self.touching(window, word)?.map(Found::Here).ok_or_else(no_pane)
            }
            // In place of a pane, `{last}` means the last pane.
            Target::Sign(Sign::Tmux(word)) if word == "{last}" => self.pane_sign(word).map(Found::Ask),
            Target::Place { pane: Some(pane), .. } => match (self.window(target)?, pane) {
                (Found::Ask(window), PanePart::Index(index)) => Ok(Found::Ask(format!("{window}.{index}"))),
                // tmux would count from the pane that its client shows (N88).
                (Found::Ask(window), PanePart::Sign(Sign::Tmux(word))) if word.ends_with("-of}") => Err(Error::new(
                    ErrorCode::InvalidTarget,
                    format!("{word} requires a window given by name, index or id, not {window}"),
                )),
                (Found::Ask(window), PanePart::Sign(Sign::Tmux(word))) => Ok(Found::Ask(format!("{window}.{word}"))),
                (Found::Ask(window), PanePart::Sign(Sign::Offset(by))) => Ok(Found::Ask(format!("{window}.{by:+}"))),
                (Found::Here(window), PanePart::Index(index)) => {
                    let found = self.panes(window.id).into_iter().find(|row| row.index == *index);
                    let none = || Error::not_found(format!("no pane {index} in window `{}`", window.name));
                    found.map(|row| Found::Here(row.id)).ok_or_else(none)
                }
                (Found::Here(window), PanePart::Sign(Sign::Offset(by))) => {
                    self.beside_pane(window.id, *by).map(Found::Here)
                }
                (Found::Here(window), PanePart::Sign(Sign::Tmux(word))) => match self.touching(window, word)? {
                    Some(pane) => Ok(Found::Here(pane)),
                    None => Ok(Found::Ask(format!("{}:{}.{word}", window.session, window.id))),
                },
            },
            _ => match self.window(target)? {
                Found::Ask(place) => Ok(Found::Ask(place)),
                // For the caller's own window this is its active pane, too.
                Found::Here(window) => self.active(window.id).map(Found::Here),
            },
        }
    }

    /// Finds the caller's session.
    pub fn current_session(&self) -> Result<SessionId> {
        self.origin().map(|origin| origin.session)
    }

    /// Finds the window that a name alone means; `None` if a session has this name, or no window
    /// has it.
    pub fn window_of_name(&self, name: &str) -> Result<Option<WindowId>> {
        match self.named_anywhere(name) {
            Ok(_) if find_session(self.topology, name).is_ok() => Ok(None),
            Ok(window) => Ok(Some(window.id)),
            Err(error) if error.code == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Finds the caller's place. For a caller outside of any pane: the only session, if there is
    /// exactly one.
    fn origin(&self) -> Result<Origin> {
        let topology = self.topology;
        if let Some(id) = self.from {
            let gone = || Error::not_found(format!("pane {id}, to which this target is relative, does not exist"));
            let pane = topology.pane(id).ok_or_else(gone)?;
            // For a window that is linked to several sessions, the session in which it is current.
            let mut rows: Vec<_> = topology.windows.iter().filter(|row| row.id == pane.window).collect();
            rows.sort_by_key(|row| !row.active);
            let window = rows.first().ok_or_else(gone)?;
            return Ok(Origin { session: window.session, window: window.id, pane: Some(id) });
        }
        match topology.sessions.as_slice() {
            [only] => {
                let window = self.current_window(only.id)?;
                Ok(Origin { session: only.id, window: window.id, pane: None })
            }
            sessions => {
                let names: Vec<_> = sessions.iter().map(|row| format!("{}:", row.name)).collect();
                let message = "the target is relative to the caller, which is in no pane of this server; name the \
                               session";
                Err(Error::new(ErrorCode::InvalidTarget, format!("{message}: {}", names.join(", ")))
                    .with_details(serde_json::json!({ "candidates": names })))
            }
        }
    }

    /// Finds a window of a session, named or implied.
    fn window_at(&self, session: &SessionPart, window: Option<&WindowPart>) -> Result<Found<&'a WindowRow>> {
        // A session has a current window; a caller has its own.
        let (id, current) = match session {
            SessionPart::Named(session) => {
                let id = find_session(self.topology, session)?.id;
                (id, self.current_window(id)?)
            }
            SessionPart::Any if matches!(window, Some(WindowPart::Name(name)) if !is_number(name)) => {
                let Some(WindowPart::Name(name)) = window else { return Err(no_window()) };
                return self.window_anywhere(name).map(Found::Here);
            }
            // `:` means the session.
            SessionPart::Current if window.is_none() => {
                return self.current_window(self.origin()?.session).map(Found::Here);
            }
            SessionPart::Current | SessionPart::Any => {
                let origin = self.origin()?;
                let own = self.windows(origin.session).into_iter().find(|row| row.id == origin.window);
                (origin.session, own.ok_or_else(no_window)?)
            }
        };
        match window {
            None => Ok(Found::Here(current)),
            Some(WindowPart::Sign(sign)) => self.beside_window(id, current.id, sign),
            Some(WindowPart::Name(wanted)) => {
                let name = self.topology.session(id).map(|row| row.name.clone()).unwrap_or_default();
                named_window(&name, &self.windows(id), wanted).map(Found::Here)
            }
        }
    }

    /// Finds the window that a name alone means: a session's current window, or a window of this
    /// name.
    fn named_anywhere(&self, name: &str) -> Result<&'a WindowRow> {
        let Ok(session) = find_session(self.topology, name) else { return self.window_anywhere(name) };
        let window = self.current_window(session.id)?;
        // tmux would prefer the window of the caller's own session.
        let own = self.from.and_then(|_| self.origin().ok());
        let rival = own.and_then(|origin| {
            self.windows(origin.session).into_iter().find(|row| row.name == name && row.id != window.id)
        });
        match rival {
            None => Ok(window),
            Some(rival) => {
                let candidates = [format!("{name}:"), rival.id.to_string()];
                let message =
                    format!("a session and a window of yours are named {name}; write {}", candidates.join(" or "));
                Err(Error::new(ErrorCode::AmbiguousTarget, message)
                    .with_details(serde_json::json!({ "candidates": candidates })))
            }
        }
    }

    /// Finds the window of this name: in the caller's session, or else the only one in any session.
    fn window_anywhere(&self, name: &str) -> Result<&'a WindowRow> {
        let own = self.from.and_then(|_| self.origin().ok());
        if let Some(origin) = own
            && self.windows(origin.session).iter().any(|row| row.name == name)
        {
            let session = self.topology.session(origin.session).map(|row| row.name.clone()).unwrap_or_default();
            return named_window(&session, &self.windows(origin.session), name);
        }
        let mut named: Vec<_> = self.topology.windows.iter().filter(|row| row.name == name).collect();
        named.dedup_by_key(|row| row.id);
        match named.as_slice() {
            [only] => Ok(only),
            [] => Err(Error::not_found(format!("no session or window `{name}`"))),
            several => Err(ambiguous(name, several)),
        }
    }

    /// Finds the only pane with these labels.
    fn labeled(&self, selector: &Selector) -> Result<PaneId> {
        let labeled = self.topology.panes.iter().filter(|row| selector.matches(&row.labels));
        let found: Vec<_> = labeled.map(|row| row.id).collect();
        match found.as_slice() {
            [only] => Ok(*only),
            [] => Err(Error::not_found("no pane has these labels")),
            several => {
                let found: Vec<_> = several.iter().map(PaneId::to_string).collect();
                let more = if found.len() > SHOWN { ", …" } else { "" };
                let shown: Vec<_> = found.iter().take(SHOWN).map(String::as_str).collect();
                let message =
                    format!("{} panes have these labels: {}{more}; expected one", found.len(), shown.join(", "));
                Err(Error::new(ErrorCode::AmbiguousTarget, message)
                    .with_details(serde_json::json!({ "candidates": found })))
            }
        }
    }

    /// Finds the window that a sign means in a session, relative to its current window or the
    /// caller's.
    fn beside_window(&self, session: SessionId, current: WindowId, sign: &Sign) -> Result<Found<&'a WindowRow>> {
        match sign {
            Sign::Offset(by) => {
                let windows = self.windows(session);
                beside(&windows, |row| row.id == current, *by).copied().map(Found::Here).ok_or_else(no_window)
            }
            Sign::Tmux(word) => Ok(Found::Ask(format!("{session}:{word}"))),
        }
    }

    /// Finds the pane that a word such as `{up-of}` means beside the current pane of a window;
    /// `None` for any other word. Several candidates are an error; tmux takes the one that was used
    /// last.
    fn touching(&self, window: &WindowRow, word: &str) -> Result<Option<PaneId>> {
        let current = self.current_pane(window.id)?;
        let Some(found) = layout::beside(&window.layout, current, word) else { return Ok(None) };
        match found.as_slice() {
            [only] => Ok(Some(*only)),
            [] => Err(Error::not_found(format!("no pane lies {word} of {current}"))),
            several => {
                let candidates: Vec<_> = several.iter().map(PaneId::to_string).collect();
                let message = format!("several panes lie {word} of {current}; write {}", candidates.join(" or "));
                Err(Error::new(ErrorCode::AmbiguousTarget, message)
                    .with_details(serde_json::json!({ "candidates": candidates })))
            }
        }
    }

    /// Finds the caller's pane if it is in the window, or else the window's active pane.
    fn current_pane(&self, window: WindowId) -> Result<PaneId> {
        let own = self.origin().ok().filter(|origin| origin.window == window).and_then(|origin| origin.pane);
        own.map_or_else(|| self.active(window), Ok)
    }

    /// Finds the pane that is `by` panes after the current one of a window.
    fn beside_pane(&self, window: WindowId, by: i64) -> Result<PaneId> {
        let current = self.current_pane(window)?;
        let panes = self.panes(window);
        beside(&panes, |row| row.id == current, by).map(|row| row.id).ok_or_else(no_pane)
    }

    /// Returns the target for a query to tmux about a pane relative to the caller's.
    fn pane_sign(&self, word: &str) -> Result<String> {
        let origin = self.origin()?;
        Ok(format!("{}:{}.{word}", origin.session, origin.window))
    }

    /// Finds a session's current window.
    fn current_window(&self, session: SessionId) -> Result<&'a WindowRow> {
        self.windows(session).into_iter().find(|row| row.active).ok_or_else(no_window)
    }

    fn active(&self, window: WindowId) -> Result<PaneId> {
        self.panes(window).into_iter().find(|row| row.active).map(|row| row.id).ok_or_else(no_pane)
    }

    /// Returns a session's windows, by index.
    fn windows(&self, session: SessionId) -> Vec<&'a WindowRow> {
        let mut windows: Vec<_> = self.topology.windows.iter().filter(|row| row.session == session).collect();
        windows.sort_by_key(|row| row.index);
        windows
    }

    /// Returns a window's panes, by index.
    fn panes(&self, window: WindowId) -> Vec<&'a PaneRow> {
        let mut panes: Vec<_> = self.topology.panes.iter().filter(|row| row.window == window).collect();
        panes.sort_by_key(|row| row.index);
        panes
    }
}

fn no_pane() -> Error {
    Error::not_found("the window has no pane")
}

fn no_window() -> Error {
    Error::not_found("the session has no window")
}

/// Finds the window of a session with this index, id or name.
fn named_window<'a>(session: &str, windows: &[&'a WindowRow], wanted: &str) -> Result<&'a WindowRow> {
    // As in tmux, an index takes precedence over a name.
    let by_index = wanted.parse().ok().filter(|_| is_number(wanted));
    let found = windows.iter().find(|row| Some(row.index) == by_index || row.id.to_string() == *wanted);
    if let Some(found) = found {
        return Ok(found);
    }
    let named: Vec<_> = windows.iter().filter(|row| row.name == *wanted).copied().collect();
    match named.as_slice() {
        [only] => Ok(only),
        [] => Err(Error::not_found(format!("no window `{wanted}` in session `{session}`"))),
        several => Err(ambiguous(wanted, several)),
    }
}

/// Returns the error for a name that several windows have.
fn ambiguous(name: &str, windows: &[&WindowRow]) -> Error {
    let ids: Vec<_> = windows.iter().map(|row| row.id.to_string()).collect();
    let message = format!("{} windows are named {name}; write one of {}", ids.len(), ids.join(", "));
    Error::new(ErrorCode::AmbiguousTarget, message).with_details(serde_json::json!({ "candidates": ids }))
}

/// Returns the item that is `offset` after the current one, wrapping around the ends.
fn beside<T>(items: &[T], current: impl Fn(&T) -> bool, offset: i64) -> Option<&T> {
    let at = i64::try_from(items.iter().position(current)?).ok()?;
    let count = i64::try_from(items.len()).ok()?;
    items.get(usize::try_from((at + offset).rem_euclid(count)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muxtap_api::Size;

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
            labels: muxtap_api::Labels::default(),
        };
        let window = |id, session, index, active| WindowRow {
            id: WindowId(id),
            session: SessionId(session),
            index,
            name: format!("w{id}"),
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
            labels: muxtap_api::Labels::default(),
            own_labels: muxtap_api::Labels::default(),
        };
        Topology {
            exits_unattached: false,
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

    fn found(from: Option<u32>, text: &str) -> std::result::Result<PaneId, String> {
        let topology = topology();
        let from = from.map(PaneId);
        match Finder::new(&topology, from).pane(&text.parse().unwrap()) {
            Ok(Found::Here(id)) => Ok(id),
            Ok(Found::Ask(place)) => Err(place),
            Err(error) => Err(error.code.as_str().to_owned()),
        }
    }

    #[test]
    fn offsets_go_round_the_ends_as_in_tmux() {
        for (text, id) in [("1:", 3), ("1:+1", 0), ("1:-1", 0), ("1:+2", 3), ("work:+7", 4), ("1:5", 3)] {
            assert_eq!(found(None, text), Ok(PaneId(id)), "{text}");
        }
    }

    #[test]
    fn a_caller_in_a_pane_is_where_that_is() {
        for (text, id) in [
            (":", 3),
            (":0", 0),
            (":5.0", 1),
            (".0", 1),
            (".2", 3),
            ("+", 3),
            ("-", 1),
            ("+2", 1),
            (".+", 3),
            (":+", 0),
            ("1:+", 0),
            (":w0", 0),
            ("w0", 0),
            ("w1.1", 2),
            ("5.1", 2),
            ("work", 4),
            ("w2", 4),
        ] {
            assert_eq!(found(Some(2), text), Ok(PaneId(id)), "{text}");
        }
        // The caller is in a window that is not the session's current one.
        for (text, id) in [(":", 3), (":+", 3), ("1:+", 0), (".0", 0), ("+", 0)] {
            assert_eq!(found(Some(0), text), Ok(PaneId(id)), "{text}");
        }
    }

    #[test]
    fn what_tmux_alone_knows_is_asked_in_words_that_mean_one_place() {
        for (text, place) in [
            ("{last}", "$0:@1.{last}"),
            ("{top}", "$0:@1.{top}"),
            (".!", "$0:@1.{last}"),
            (":!", "$0:{last}"),
            ("^", "$0:{start}"),
            (":$.1", "$0:{end}.1"),
            ("work:{last}.+", "$1:{last}.+1"),
            ("~", "{marked}"),
        ] {
            assert_eq!(found(Some(2), text), Err(place.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_caller_that_is_nowhere_says_in_which_session() {
        for text in [":0", ".1", "+", "{last}", ":", "0.1"] {
            assert_eq!(found(None, text), Err("INVALID_TARGET".into()), "{text}");
        }
        assert_eq!(found(Some(99), ":0"), Err("NOT_FOUND".into()));
        // If there is only one session, it is meant.
        let mut one = topology();
        one.sessions.truncate(1);
        let finder = Finder::new(&one, None);
        assert!(matches!(finder.pane(&":0".parse().unwrap()), Ok(Found::Here(PaneId(0)))));
        assert!(matches!(finder.pane(&".1".parse().unwrap()), Ok(Found::Here(PaneId(2)))));
    }

    #[test]
    fn a_name_is_a_session_else_a_window_and_never_a_guess() {
        let mut topology = topology();
        topology.windows[0].name = "work".into();
        let work = "work".parse().unwrap();
        assert!(matches!(Finder::new(&topology, None).pane(&work), Ok(Found::Here(PaneId(4)))));
        // tmux would prefer the window of the caller's session.
        let error = Finder::new(&topology, Some(PaneId(2))).pane(&work).unwrap_err();
        assert_eq!(error.details.unwrap()["candidates"], serde_json::json!(["work:", "@0"]));
        // Two windows with the same name, in sessions other than the caller's.
        topology.windows[0].name = "logs".into();
        topology.windows[2].name = "logs".into();
        let logs = "logs".parse().unwrap();
        assert_eq!(find_pane(&topology, &logs).unwrap_err().code, ErrorCode::AmbiguousTarget);
        assert!(matches!(Finder::new(&topology, Some(PaneId(4))).pane(&logs), Ok(Found::Here(PaneId(4)))));
        assert_eq!(find_pane(&topology, &"nobody".parse().unwrap()).unwrap_err().code, ErrorCode::NotFound);
        // A caller that ends a session never gets a window instead.
        assert!(Finder::new(&topology, None).session(&logs).is_err());
    }

    #[test]
    fn the_session_of_a_pane_or_a_window_is_the_one_it_is_in() {
        let topology = topology();
        let session = |text: &str| Finder::new(&topology, Some(PaneId(2))).session(&text.parse().unwrap()).unwrap();
        for (text, id) in [("%4", 1), ("@0", 0), (":", 0), ("1", 0), ("work", 1), (":0", 0), ("%2", 0)] {
            assert!(matches!(session(text), Found::Here(SessionId(found)) if found == id), "{text}");
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
}
