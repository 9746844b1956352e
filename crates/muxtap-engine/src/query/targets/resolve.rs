//! Resolving targets for a caller: relative to its place, in tmux's lists, and by queries to tmux
//! for facts that only tmux knows.

use std::sync::Arc;

use muxtap_api::{Error, ErrorCode, Result};
use muxtap_core::protocol::{
    command::{Command, CommandLine},
    ids::{PaneId, SessionId, WindowId},
};
use muxtap_tmux::{Request, ServerLink, SessionRow, Topology, WindowRow};

use super::{
    Target, is_number,
    locate::{Finder, Found, find_pane, find_session},
};

use crate::{Host, PaneState, Server};

/// Where the pane of a target was found.
enum Place {
    /// In tmux's lists.
    Listed(PaneId),
    /// Among the panes that are or were followed.
    Known(Arc<PaneState>),
}

/// The most candidates in the error for a bare number.
const CANDIDATES: usize = 8;

impl Server {
    /// Finds the pane of a target. For a session or window: its active pane. A handle's own pane is
    /// rejected if another server has taken the place of its own.
    pub(crate) async fn resolve_pane(&self, text: &str) -> Result<Arc<PaneState>> {
        match self.bound_pane(text) {
            Some(pane) => {
                let link = self.host.server_of(pane);
                link.connected().await?;
                if pane.exit().is_none() {
                    self.host.follow(&link, pane.id()).await?;
                }
                Ok(pane.clone())
            }
            None => self.find_pane(text).await,
        }
    }

    /// Finds the pane of a target, like [`Self::resolve_pane`], without a use of it: its output
    /// need not be followed.
    pub(crate) async fn locate_pane(&self, text: &str) -> Result<PaneId> {
        if let Some(pane) = self.bound_pane(text) {
            self.host.server_of(pane).connected().await?;
            return Ok(pane.id());
        }
        Ok(match self.find(text).await? {
            Place::Listed(id) => id,
            Place::Known(pane) => pane.id(),
        })
    }

    /// Finds the pane of a target for reading only: an ended pane is known without tmux.
    pub(crate) async fn resolve_seen(&self, text: &str) -> Result<Arc<PaneState>> {
        match self.bound_pane(text) {
            Some(pane) => self.check_seen(pane).await,
            None => self.find_pane(text).await,
        }
    }

    pub(crate) fn bound_pane(&self, text: &str) -> Option<&Arc<PaneState>> {
        self.bound.as_ref()?.iter().find(|pane| pane.id().to_string() == text)
    }

    async fn find_pane(&self, text: &str) -> Result<Arc<PaneState>> {
        let host = &self.host;
        let id = match self.find(text).await? {
            Place::Listed(id) => id,
            Place::Known(pane) if pane.exit().is_some() || host.server().touch(pane.id()) => return Ok(pane),
            Place::Known(pane) => pane.id(),
        };
        match host.follow(host.server(), id).await {
            Ok(pane) => pane.ok_or_else(|| with_socket(Error::not_found(format!("no pane {id}")), host)),
            // The pane ended after it was no longer followed.
            Err(error) => host.pane(id).filter(|pane| pane.exit().is_some()).ok_or(error),
        }
    }

    /// Finds the pane of a target.
    async fn find(&self, text: &str) -> Result<Place> {
        let host = &self.host;
        let target = text.parse()?;
        // An id determines the pane; whether the pane still exists shows when it is used. A new
        // server may have a pane with the id of an ended one.
        if let Target::Pane(id) = target
            && let Some(pane) = host.live_pane(id)
            // tmux does not report a respawn: whether a dead pane runs another program by now shows
            // in the list.
            && pane.exit().is_none()
            && host.server().is_following(id)
        {
            return Ok(Place::Known(pane));
        }
        let topology = match host.server().fresh().await {
            Ok(topology) => topology.without_hubs(),
            // The server has ended; the output of its panes is still readable.
            Err(error) => return last_ended(host, &target).map(Place::Known).ok_or(error),
        };
        let found = match Finder::new(&topology, self.from).pane(&target) {
            Ok(Found::Here(id)) => Ok(id),
            Ok(Found::Ask(place)) => match self.ask_tmux(&place).await {
                Ok((_, _, pane)) => Ok(pane),
                // As in tmux: if no pane was active before, the window that was current before.
                Err(error) => match Finder::new(&topology, self.from).window(&target) {
                    Ok(Found::Ask(window))
                        if matches!(target, Target::Sign(_)) && error.code == ErrorCode::NotFound =>
                    {
                        self.ask_tmux(&window).await.map(|(_, _, pane)| pane)
                    }
                    _ => Err(error),
                },
            },
            Err(error) => Err(error),
        };
        let id = match found {
            Ok(id) => id,
            Err(error) => {
                let ended = last_ended(host, &target).map(Place::Known);
                return ended.ok_or_else(|| earlier_pane_error(error, &target, host));
            }
        };
        Ok(host.live_pane(id).map_or(Place::Listed(id), Place::Known))
    }

    /// Returns a handle's pane, for reading only. A live pane needs its server, and which server
    /// runs is known only once it is connected.
    pub(crate) async fn check_seen(&self, pane: &Arc<PaneState>) -> Result<Arc<PaneState>> {
        if pane.exit().is_none() {
            let link = self.host.server_of(pane);
            let followed = match link.connected().await {
                Ok(_) => self.host.follow(&link, pane.id()).await.map(drop),
                Err(error) => Err(error),
            };
            // The pane may have ended just now, perhaps with its server.
            if let Err(error) = followed
                && pane.exit().is_none()
            {
                return Err(error);
            }
        }
        Ok(pane.clone())
    }

    /// Returns the target in a URL path. `%` must be encoded in a URL, so a bare number there is a
    /// pane's id, unless a session has that name: then it is rejected.
    pub async fn path_target(&self, text: String) -> Result<String> {
        let host = &self.host;
        if !is_number(&text) {
            return Ok(text);
        }
        // Without a server, the number cannot mean a session.
        let topology = host.server().fresh().await.map(|topology| topology.without_hubs());
        if let Ok(topology) = topology
            && find_session(&topology, &text).is_ok()
        {
            return Err(ambiguous_number(&topology, &text));
        }
        Ok(format!("%{text}"))
    }

    /// Returns the id of a target's pane.
    pub async fn pane_id(&self, text: &str) -> Result<String> {
        Ok(self.locate_pane(text).await?.to_string())
    }

    /// Returns the id of a target's window.
    pub async fn window_id(&self, text: &str) -> Result<String> {
        Ok(self.window(text).await?.id.to_string())
    }

    /// Returns the id of a target's session.
    pub async fn session_id(&self, text: &str) -> Result<String> {
        Ok(self.session(text).await?.id.to_string())
    }

    /// Returns the session that `pick` chooses, and its active pane.
    pub async fn pane_of_session(
        &self,
        pick: impl FnOnce(&[SessionRow]) -> Option<SessionRow>,
    ) -> Result<(SessionRow, Arc<PaneState>)> {
        let host = &self.host;
        let topology = host.server().fresh().await?.without_hubs();
        let session = pick(&topology.sessions).ok_or_else(|| Error::not_found("no such session"))?;
        let id = find_pane(&topology, &Target::of_session(session.id))?;
        let pane = host.follow(host.server(), id).await?;
        let pane = pane.ok_or_else(|| Error::not_found(format!("no pane {id}")))?;
        Ok((session, pane))
    }

    /// Finds a target's session. For a pane or window: the session that it is in.
    pub(crate) async fn session(&self, text: &str) -> Result<SessionRow> {
        let host = &self.host;
        let topology = host.server().fresh().await?.without_hubs();
        let id = match Finder::new(&topology, self.from).session(&text.parse()?) {
            Ok(Found::Here(id)) => id,
            Ok(Found::Ask(place)) => self.ask_tmux(&place).await.map_err(|error| with_socket(error, host))?.0,
            Err(error) => return Err(with_socket(error, host)),
        };
        topology.session(id).cloned().ok_or_else(|| with_socket(Error::not_found(format!("no session {id}")), host))
    }

    /// Finds a target's window. For a session: its current window.
    pub(crate) async fn window(&self, text: &str) -> Result<WindowRow> {
        let host = &self.host;
        let topology = host.server().fresh().await?.without_hubs();
        let found = match Finder::new(&topology, self.from).window(&text.parse()?) {
            Ok(Found::Here(row)) => Some(row),
            Ok(Found::Ask(place)) => {
                let asked = self.ask_tmux(&place).await;
                let (session, window, _) = asked.map_err(|error| with_socket(error, host))?;
                topology.windows.iter().find(|row| row.id == window && row.session == session)
            }
            Err(error) => return Err(with_socket(error, host)),
        };
        found.cloned().ok_or_else(|| with_socket(Error::not_found(format!("no window `{text}`")), host))
    }

    /// Queries tmux for facts that only tmux knows: the last window, the top pane, the marked pane.
    ///
    /// The result is never another place: for a missing target, `display-message` would report the
    /// current place, so a command that fails for a missing target precedes it.
    async fn ask_tmux(&self, place: &str) -> Result<(SessionId, WindowId, PaneId)> {
        let question = || {
            let look = Command::new("capture-pane").flag("-p").opt("-t", place).opt("-S", "0").opt("-E", "0");
            let tell = Command::new("display-message").flag("-p").opt("-t", place);
            Request::Plain(CommandLine::of([look, tell.format("#{session_id} #{window_id} #{pane_id}")]))
        };
        let answer = self.host.server().read(None, question).await?;
        let bodies = answer.map_err(|message| Error::not_found(format!("{place}: {message}")))?;
        let body = bodies.last().map(|body| String::from_utf8_lossy(body).into_owned()).unwrap_or_default();
        let mut ids = body.split_whitespace();
        let told = (
            ids.next().and_then(|id| id.parse().ok()),
            ids.next().and_then(|id| WindowId::from_bytes(id.as_bytes())),
            ids.next().and_then(|id| PaneId::from_bytes(id.as_bytes())),
        );
        match told {
            (Some(session), Some(window), Some(pane)) => Ok((session, window, pane)),
            _ => Err(Error::new(ErrorCode::InconsistentState, format!("tmux did not report what {place} is"))),
        }
    }
}

impl Host {
    /// Returns a pane's server, usable only until another server takes its place: the other
    /// server's panes have the same ids.
    pub(crate) fn server_of(&self, pane: &PaneState) -> ServerLink {
        self.server().only(pane.epoch().server)
    }
}

fn last_ended(host: &Host, target: &Target) -> Option<Arc<PaneState>> {
    match target {
        Target::Pane(id) => host.pane(*id),
        _ => None,
    }
}

/// Returns the error for a pane that does not exist. The id may belong to a pane of an earlier
/// server on the socket.
fn earlier_pane_error(error: Error, target: &Target, host: &Host) -> Error {
    let Target::Pane(id) = target else { return with_socket(error, host) };
    let Some(pane) = host.earlier_pane(*id) else { return with_socket(error, host) };
    let (start, end) = pane.retained_cursors();
    let message = format!(
        "{} on {}: it was a pane of the server that ran there before and has ended; read its output by its cursor: \
         since {start}",
        error.message,
        host.socket().display(),
    );
    Error::not_found(message).with_details(serde_json::json!({ "start": start.to_string(), "end": end.to_string() }))
}

/// Returns the error for a bare number, with the targets that it may mean.
pub(super) fn ambiguous_number(topology: &Topology, number: &str) -> Error {
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
