//! Sessions, windows and panes as the faces list them. muxtap's own are left out.

use std::collections::HashMap;

use tokio::sync::broadcast::error::RecvError;

use crate::engine::{
    Host, PaneState, Server,
    query::target::{Target, WindowPart},
};
use crate::{
    api::{AgentInfo, Error, ErrorCode, PaneInfo, Result, SessionInfo, Tier, WindowInfo},
    glob::Glob,
    protocol::ids::PaneId,
    tmux::{PaneRow, Topology, WindowRow},
};

impl Server {
    /// Lists every session, in tmux's order.
    ///
    /// ```no_run
    /// # async fn example(server: muxtap::Server) -> muxtap::Result<()> {
    /// for session in server.sessions().await? {
    ///     println!("{} has {} windows", session.name, session.windows);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn sessions(&self) -> Result<Vec<SessionInfo>> {
        let host = &self.host;
        self.engine.authorize(Tier::Read)?;
        let topology = host.server().fresh().await?;
        let ours = host.server().attached_sessions();
        let shown = topology.without_hubs();
        let sessions = shown.sessions.iter().map(|row| SessionInfo {
            id: row.id.to_string(),
            name: row.name.clone(),
            windows: shown.windows.iter().filter(|window| window.session == row.id).count() as u32,
            attached: row.attached.saturating_sub(u32::from(ours.contains(&row.id))),
            created: row.created,
            activity: row.activity,
        });
        Ok(sessions.collect())
    }

    /// Lists every window, once for each session that links it.
    ///
    /// ```no_run
    /// # async fn example(server: muxtap::Server) -> muxtap::Result<()> {
    /// for window in server.windows().await? {
    ///     println!("{}:{} {}", window.session, window.index, window.name);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn windows(&self) -> Result<Vec<WindowInfo>> {
        let host = &self.host;
        self.engine.authorize(Tier::Read)?;
        let topology = host.server().fresh().await?.without_hubs();
        let windows = topology.windows.iter().map(|row| WindowInfo {
            id: row.id.to_string(),
            session_id: row.session.to_string(),
            session: topology.session(row.session).map(|session| session.name.clone()).unwrap_or_default(),
            index: row.index,
            name: row.name.clone(),
            active: row.active,
            panes: topology.panes.iter().filter(|pane| pane.window == row.id).count() as u32,
            layout: row.layout.clone(),
            size: row.size,
        });
        Ok(windows.collect())
    }

    /// Lists every pane, then those that ended and are still readable. When the server has gone,
    /// only these. A pane of the server that ran there before is marked as such, and shares nothing
    /// but its id with a live pane.
    ///
    /// ```no_run
    /// # async fn example(server: muxtap::Server) -> muxtap::Result<()> {
    /// for pane in server.panes().await? {
    ///     println!("{} {} {}", pane.id, pane.command, pane.title);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn panes(&self) -> Result<Vec<PaneInfo>> {
        let host = &self.host;
        self.engine.authorize(Tier::Read)?;
        let mut panes: Vec<_> = match host.server().fresh().await {
            Ok(topology) => {
                let shown = topology.without_hubs();
                let windows: HashMap<_, _> = shown.windows.iter().rev().map(|row| (row.id, row)).collect();
                let info = |row: &PaneRow| host.info(&shown, row, windows.get(&row.window).copied());
                shown.panes.iter().map(info).collect()
            }
            Err(error) if host.ended_panes().is_empty() => return Err(error),
            Err(_) => Vec::new(),
        };
        panes.extend(host.ended_panes().iter().map(|pane| host.ended_info(pane)));
        Ok(panes)
    }
}

impl Host {
    /// Resolves when the model no longer has the pane. A caller that saw the pane listed waits here
    /// for its end.
    pub(crate) async fn until_unlisted(&self, id: PaneId) {
        let Some(shared) = self.shared() else { return };
        let mut events = shared.events.subscribe();
        // Read after subscribing: a later change is an event.
        while self.server().topology().pane(id).is_some() {
            if let Err(RecvError::Closed) = events.recv().await {
                return;
            }
        }
    }

    /// Returns a pane's entry in the list, from the model as last read.
    pub fn info_of(&self, id: PaneId) -> PaneInfo {
        self.listed_info(id).unwrap_or_else(|| {
            let mut info = PaneInfo::of(id);
            self.fill(&mut info, id);
            info
        })
    }

    /// Returns a pane's entry in the list, from the model as last read, if the pane is in it.
    pub(in crate::engine) fn listed_info(&self, id: PaneId) -> Option<PaneInfo> {
        // The model is not copied: this is called for each of a thousand panes when muxtap
        // attaches.
        let topology = self.server().topology();
        let row = topology.pane(id)?;
        let is_hub = |session| topology.session(session).is_some_and(|session| session.hub);
        let window = topology.windows.iter().find(|window| window.id == row.window && !is_hub(window.session));
        Some(self.info(&topology, row, window))
    }

    /// Returns an ended pane's entry in the list.
    pub(in crate::engine) fn ended_info(&self, pane: &PaneState) -> PaneInfo {
        let mut info = PaneInfo { dead: true, ..PaneInfo::of(pane.id()) };
        info.earlier_server = self.is_earlier(pane);
        fill(&mut info, pane);
        info
    }

    fn info(&self, topology: &Topology, row: &PaneRow, window: Option<&WindowRow>) -> PaneInfo {
        let mut info = PaneInfo {
            index: row.index,
            active: row.active,
            title: row.title.clone(),
            command: row.command.clone(),
            path: row.path.clone(),
            pid: row.pid,
            size: row.size,
            dead: row.dead,
            exit_status: row.exit_status,
            ..PaneInfo::of(row.id)
        };
        if let Some(window) = window {
            info.session_id = window.session.to_string();
            info.session = topology.session(window.session).map(|session| session.name.clone()).unwrap_or_default();
            info.window_id = window.id.to_string();
            info.window_index = window.index;
            info.window.clone_from(&window.name);
        }
        self.fill(&mut info, row.id);
        info
    }

    /// Adds what the stream of the pane with this id knows.
    fn fill(&self, info: &mut PaneInfo, id: PaneId) {
        if let Some(pane) = self.pane(id) {
            fill(info, &pane);
        }
    }
}

/// Adds what a pane's stream knows.
fn fill(info: &mut PaneInfo, pane: &PaneState) {
    info.cursor = Some(pane.end_cursor());
    if let Some(exit) = pane.exit() {
        info.dead = true;
        info.exit_status = exit.status.or(info.exit_status);
        info.exit_signal = exit.signal;
    }
    if info.window_id.is_empty() {
        let metadata = pane.metadata();
        info.title = metadata.title;
        info.command = metadata.command;
        info.path = metadata.path;
        info.pid = metadata.pid;
        info.size = metadata.size;
    }
}

/// The names by which a pattern finds a session, a window or a pane.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The session's name.
    pub session: &'a str,
    /// The session's id.
    pub session_id: &'a str,
    /// The window; none for a whole session, and where a pane's window is not known any more.
    pub window: Option<WindowNames<'a>>,
    /// The pane's id, and its index in the window; none for a whole session or window.
    pub pane: Option<(PaneId, u32)>,
}

/// The names of a window.
#[derive(Clone, Copy, Debug)]
pub struct WindowNames<'a> {
    /// The window's id.
    pub id: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its index in the session.
    pub index: u32,
}

impl<'a> From<&'a SessionInfo> for Names<'a> {
    fn from(session: &'a SessionInfo) -> Self {
        Self { session: &session.name, session_id: &session.id, window: None, pane: None }
    }
}

impl<'a> From<&'a WindowInfo> for Names<'a> {
    fn from(window: &'a WindowInfo) -> Self {
        Self {
            session: &window.session,
            session_id: &window.session_id,
            window: Some(WindowNames { id: &window.id, name: &window.name, index: window.index }),
            pane: None,
        }
    }
}

impl<'a> From<&'a PaneInfo> for Names<'a> {
    fn from(pane: &'a PaneInfo) -> Self {
        let window = WindowNames { id: &pane.window_id, name: &pane.window, index: pane.window_index };
        Self {
            session: &pane.session,
            session_id: &pane.session_id,
            window: Some(window).filter(|window| !window.id.is_empty()),
            pane: Some((pane.id, pane.index)),
        }
    }
}

impl<'a> From<&'a AgentInfo> for Names<'a> {
    fn from(agent: &'a AgentInfo) -> Self {
        Self {
            session: &agent.session,
            session_id: &agent.session_id,
            window: Some(WindowNames { id: &agent.window_id, name: &agent.window, index: agent.window_index }),
            pane: Some((agent.pane, agent.index)),
        }
    }
}

/// Returns whether a target names a pane, or the window or session it is in; `*` stands in it for
/// any run of characters in a session's or window's name. A whole window or session is not named by
/// one of its panes.
pub fn matches<'a>(pattern: &str, named: impl Into<Names<'a>>) -> bool {
    PanePattern::new(pattern).matches(named)
}

/// Refuses text that is no pattern for panes. Without a `*` it must be a target. A bare number, and
/// an offset from the current window, mean nothing in a list.
pub fn check_pattern(pattern: &str) -> Result<()> {
    if pattern.contains('*') {
        return Ok(());
    }
    match pattern.parse()? {
        Target::Number(number) => Err(Error::bare_number(&number, &[])),
        Target::Named { window: Some(WindowPart::Offset(_)), .. } => {
            let message = format!("{pattern}: write an index, a name or an id, not how far it is from the current one");
            Err(Error::new(ErrorCode::InvalidTarget, message))
        }
        _ => Ok(()),
    }
}

/// A target in which `*` stands for any run of characters in a session's or window's name, parsed
/// once for many panes.
pub(in crate::engine) enum PanePattern {
    /// Without a `*`. `None`: the text is no target.
    One(Option<Target>),
    Many {
        session: Glob,
        window: Glob,
    },
}

impl PanePattern {
    pub(in crate::engine) fn new(pattern: &str) -> Self {
        if !pattern.contains('*') {
            return Self::One(pattern.parse().ok());
        }
        let (session, window) = pattern.split_once(':').unwrap_or((pattern, "*"));
        Self::Many { session: Glob::new(session), window: Glob::new(window) }
    }

    /// Returns whether a pane, a window or a session matches.
    pub(in crate::engine) fn matches<'a>(&self, named: impl Into<Names<'a>>) -> bool {
        let named: Names<'a> = named.into();
        match self {
            Self::One(None) => false,
            Self::One(Some(Target::Pane(id))) => named.pane.is_some_and(|(pane, _)| pane == *id),
            Self::One(Some(Target::Window(id))) => named.window.is_some_and(|window| window.id == id.to_string()),
            Self::One(Some(Target::Number(session))) => session == named.session,
            Self::One(Some(Target::Named { session, window, pane })) => {
                (session == named.session || session == named.session_id)
                    && window.as_ref().is_none_or(|window| match window {
                        WindowPart::Name(wanted) => named.window.is_some_and(|window| {
                            wanted == window.name || *wanted == window.index.to_string() || wanted == window.id
                        }),
                        WindowPart::Offset(_) => false,
                    })
                    && pane.is_none_or(|wanted| named.pane.is_some_and(|(_, index)| index == wanted))
            }
            Self::Many { session, window } => {
                session.matches(named.session)
                    && match named.window {
                        None => window.matches(""),
                        Some(WindowNames { name, index, .. }) => {
                            window.matches(name)
                                || window.matches(&index.to_string())
                                || named.pane.is_some_and(|(_, pane)| {
                                    window.matches(&format!("{index}.{pane}"))
                                        || window.matches(&format!("{name}.{pane}"))
                                })
                        }
                    }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        let info = PaneInfo {
            session: "work".into(),
            window: "build-api".into(),
            window_id: "@4".into(),
            window_index: 2,
            index: 0,
            ..PaneInfo::of(PaneId(1))
        };
        for yes in ["%1", "work", "work:2", "work:build-api.0", "w*", "work:*", "work:build-*", "*:*api", "work:2.*"] {
            assert!(matches(yes, &info), "{yes}");
        }
        for refused in ["2", "work:+1", "work:.-1", "+1", ""] {
            assert!(check_pattern(refused).is_err(), "{refused:?}");
        }
        for taken in ["%1", "work", "2:", "work:2.0", "2*"] {
            assert_eq!(check_pattern(taken), Ok(()), "{taken}");
        }
        for no in ["%2", "wor", "work:1", "x*", "work:test*", "work:2.1"] {
            assert!(!matches(no, &info), "{no}");
        }
    }

    #[test]
    fn a_pane_names_neither_its_window_nor_its_session() {
        let window = Names {
            session: "work",
            session_id: "$0",
            window: Some(WindowNames { id: "@0", name: "sh", index: 0 }),
            pane: None,
        };
        let session = Names { window: None, ..window };
        for (pattern, is_window, is_session) in [
            ("%0", false, false),
            ("work:0.0", false, false),
            ("@0", true, false),
            ("work:0", true, false),
            ("work:sh", true, false),
            ("work", true, true),
            ("$0", true, true),
            ("w*", true, true),
            ("work:s*", true, false),
        ] {
            assert_eq!((matches(pattern, window), matches(pattern, session)), (is_window, is_session), "{pattern}");
        }
    }
}
