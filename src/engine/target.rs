//! Targets: `%3`, `@1`, `$0`, `session`, `session:window`, `session:window.pane`. Names are exact; more than one match
//! is an error.

use std::sync::Arc;

use super::{Engine, Host, Pane};
use crate::{
    api::{Error, ErrorCode, Result},
    protocol::ids::{PaneId, SessionId, WindowId},
    tmux::{SessionRow, Topology, WindowRow},
};

/// A target as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `%3`, `pane:%3`, `terminal:%3`.
    Pane(PaneId),
    /// `@1`.
    Window(WindowId),
    /// `$0`, a name, and what follows it.
    Named {
        /// The session's id or name.
        session: String,
        /// The window's index, name or id.
        window: Option<String>,
        /// The pane's index in the window.
        pane: Option<u32>,
    },
}

impl std::str::FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.strip_prefix("terminal:").or_else(|| text.strip_prefix("pane:")).unwrap_or(text);
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
        let (session, rest) = match text.split_once(':') {
            Some((session, rest)) => (session, Some(rest)),
            None => (text, None),
        };
        if session.is_empty() {
            return invalid("the session is missing");
        }
        let session = session.strip_prefix('=').unwrap_or(session).to_owned();
        let Some(rest) = rest.filter(|rest| !rest.is_empty()) else {
            return Ok(Self::Named { session, window: None, pane: None });
        };
        // A window's name may hold dots; only a number after the last one is a pane.
        let (window, pane) = match rest.rsplit_once('.') {
            Some((window, pane)) if !pane.is_empty() && pane.bytes().all(|byte| byte.is_ascii_digit()) => {
                (window, pane.parse().ok())
            }
            _ => (rest, None),
        };
        let window = Some(window.to_owned()).filter(|window| !window.is_empty());
        Ok(Self::Named { session, window, pane })
    }
}

impl Engine {
    /// The pane a target means; a session's or window's is its active one.
    pub(crate) async fn pane(&self, host: &Arc<Host>, text: &str) -> Result<Arc<Pane>> {
        let target = pane_target(text)?;
        // An id is as good as the pane; whether it still is there shows when it is used. One that ended may have a namesake on a new server.
        if let Target::Pane(id) = target
            && let Some(pane) = host.live_pane(id)
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
            Err(error) => return last_ended(host, &target).ok_or_else(|| located(error, host)),
        };
        if let Some(pane) = host.live_pane(id) {
            return Ok(pane);
        }
        host.server().cover(id).await?;
        host.pane(id).ok_or_else(|| located(Error::not_found(format!("no pane {id}")), host))
    }

    /// The id of the pane that a target means.
    pub(crate) async fn pane_id(&self, host: &Arc<Host>, text: &str) -> Result<String> {
        Ok(self.pane(host, text).await?.id().to_string())
    }

    /// The id of the window that a target means.
    pub(crate) async fn window_id(&self, host: &Arc<Host>, text: &str) -> Result<String> {
        Ok(self.window(host, text).await?.id.to_string())
    }

    /// The id of the session that a target means.
    pub(crate) async fn session_id(&self, host: &Arc<Host>, text: &str) -> Result<String> {
        Ok(self.session(host, text).await?.id.to_string())
    }

    /// The session that `pick` picks by its name, and its active pane.
    pub(crate) async fn pane_of_session(
        &self,
        host: &Arc<Host>,
        pick: impl FnOnce(&[SessionRow]) -> Option<SessionRow>,
    ) -> Result<(SessionRow, Arc<Pane>)> {
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

    /// The session a target means.
    pub(super) async fn session(&self, host: &Arc<Host>, text: &str) -> Result<SessionRow> {
        let topology = host.server().fresh().await?.without_hubs();
        match text.parse()? {
            Target::Named { session, window: None, pane: None } => {
                find_session(&topology, &session).cloned().map_err(|error| located(error, host))
            }
            _ => Err(Error::new(ErrorCode::InvalidTarget, format!("{text:?} is no session; write its name or $0"))),
        }
    }

    /// The window a target means; a session's is its current one.
    pub(super) async fn window(&self, host: &Arc<Host>, text: &str) -> Result<WindowRow> {
        let topology = host.server().fresh().await?.without_hubs();
        let target = text.parse()?;
        find_window(&topology, &target).cloned().map_err(|error| located(error, host))
    }
}

fn pane_target(text: &str) -> Result<Target> {
    // A bare number is a pane, for callers that cannot write `%` in an address.
    match text.parse::<u32>() {
        Ok(number) if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(Target::Pane(PaneId(number))),
        _ => text.parse(),
    }
}

fn last_ended(host: &Host, target: &Target) -> Option<Arc<Pane>> {
    match target {
        Target::Pane(id) => host.pane(*id),
        _ => None,
    }
}

fn located(error: Error, host: &Host) -> Error {
    if error.code == ErrorCode::NotFound {
        let message =
            format!("{} on {}; `muxtap list-panes` shows what is there", error.message, host.socket().display());
        return Error { message, ..error };
    }
    error
}

/// The pane among what is there.
pub fn find_pane(topology: &Topology, target: &Target) -> Result<PaneId> {
    if let Target::Pane(id) = target {
        return topology.pane(*id).map(|row| row.id).ok_or_else(|| Error::not_found(format!("no pane {id}")));
    }
    let window = find_window(topology, target)?;
    let mut panes = topology.panes.iter().filter(|row| row.window == window.id);
    match target {
        Target::Named { pane: Some(index), .. } => panes
            .find(|row| row.index == *index)
            .map(|row| row.id)
            .ok_or_else(|| Error::not_found(format!("no pane {index} in window {}", window.name))),
        _ => panes.find(|row| row.active).map(|row| row.id).ok_or_else(|| Error::not_found("the window has no pane")),
    }
}

/// The window among what is there.
pub fn find_window<'a>(topology: &'a Topology, target: &Target) -> Result<&'a WindowRow> {
    match target {
        Target::Pane(id) => {
            let window = topology.pane(*id).ok_or_else(|| Error::not_found(format!("no pane {id}")))?.window;
            find_window(topology, &Target::Window(window))
        }
        Target::Window(id) => {
            topology.windows.iter().find(|row| row.id == *id).ok_or_else(|| Error::not_found(format!("no window {id}")))
        }
        Target::Named { session, window, .. } => {
            let session = find_session(topology, session)?;
            let mut windows = topology.windows.iter().filter(|row| row.session == session.id);
            let Some(wanted) = window else {
                return windows.find(|row| row.active).ok_or_else(|| Error::not_found("the session has no window"));
            };
            // As in tmux an index comes before a name.
            let by_index = wanted.parse().ok();
            if let Some(found) =
                windows.clone().find(|row| Some(row.index) == by_index || row.id.to_string() == *wanted)
            {
                return Ok(found);
            }
            let named: Vec<_> = windows.filter(|row| row.name == *wanted).collect();
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
    }
}

/// The session with this name or id among what is there.
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

    fn named(session: &str, window: Option<&str>, pane: Option<u32>) -> Target {
        Target::Named { session: session.into(), window: window.map(Into::into), pane }
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
        assert_eq!(pane_target("3").unwrap(), Target::Pane(PaneId(3)));
    }

    #[test]
    fn what_is_no_target_is_said_to_be_none() {
        for text in ["", "%", "%x", "@", "@1x", ":1", "a\nb", "%3; kill-server"] {
            assert_eq!(text.parse::<Target>().unwrap_err().code, ErrorCode::InvalidTarget, "{text:?}");
        }
    }
}
