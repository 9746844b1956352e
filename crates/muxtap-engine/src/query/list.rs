//! Lists of sessions, windows and panes for the interfaces, without muxtap's own.

use std::collections::HashMap;

use muxtap_api::{AgentInfo, AgentList, Error, PaneInfo, Result, SessionInfo, Tier, WindowInfo};
use muxtap_core::protocol::ids::PaneId;
use muxtap_tmux::{PaneRow, Topology, WindowRow};
use tokio::sync::broadcast::error::RecvError;

use crate::{Host, PaneState, Server, input::shell};

impl Server {
    /// Lists every session, in tmux's order.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
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
            host: self.host_name().map(str::to_owned),
            name: row.name.clone(),
            windows: shown.windows.iter().filter(|window| window.session == row.id).count() as u32,
            attached: row.attached.saturating_sub(u32::from(ours.contains(&row.id))),
            created: row.created,
            activity: row.activity,
            labels: row.labels.clone(),
        });
        Ok(sessions.collect())
    }

    /// Returns one session. For a window: the session that it is in; for a pane: the one from which it
    /// inherits labels.
    pub async fn session_info(&self, target: &str) -> Result<SessionInfo> {
        let id = self.labeled_session(target).await?.id.to_string();
        let session = self.sessions().await?.into_iter().find(|session| session.id == id);
        session.ok_or_else(|| Error::not_found(format!("session {target} has just ended")))
    }

    /// Lists every window, once for each session to which it is linked.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
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
            host: self.host_name().map(str::to_owned),
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

    /// Lists every pane, followed by ended panes that are still readable. If the server has ended,
    /// lists only the latter. A pane of an earlier server on the socket is marked as such, and has
    /// nothing but its id in common with a live pane.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
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
                let mut panes: Vec<_> = shown.panes.iter().map(info).collect();
                self.name_wrapped_programs(&mut panes).await;
                panes
            }
            Err(error) if host.ended_panes().is_empty() => return Err(error),
            Err(_) => Vec::new(),
        };
        panes.extend(host.ended_panes().iter().map(|pane| host.ended_info(pane)));
        if let Some(name) = self.host_name() {
            for pane in &mut panes {
                pane.host = Some(name.to_owned());
            }
        }
        Ok(panes)
    }

    /// Lists the sessions that these targets include; without targets all. Errors: those of
    /// [`Self::session_scopes`] and [`Self::sessions`].
    pub async fn sessions_within(&self, targets: &[String]) -> Result<Vec<SessionInfo>> {
        let scopes = self.session_scopes(targets).await?;
        let mut sessions = self.sessions().await?;
        sessions.retain(|one| scopes.include(one));
        Ok(sessions)
    }

    /// Lists the windows that these targets include; without targets all. Errors: those of
    /// [`Self::scopes`] and [`Self::windows`].
    pub async fn windows_within(&self, targets: &[String]) -> Result<Vec<WindowInfo>> {
        let scopes = self.scopes(targets).await?;
        let mut windows = self.windows().await?;
        windows.retain(|one| scopes.include(one));
        Ok(windows)
    }

    /// Returns a window's entry in the list; of several, the one in the session that the target names.
    pub async fn window_info(&self, target: &str) -> Result<WindowInfo> {
        self.engine.authorize(Tier::Read)?;
        let wanted = self.window(target).await?;
        let (id, session) = (wanted.id.to_string(), wanted.session.to_string());
        let window = self.windows().await?.into_iter().find(|window| window.id == id && window.session_id == session);
        window.ok_or_else(|| Error::not_found(format!("window {target} has just ended")))
    }

    /// Returns a pane's entry in the list. The pane may have ended a short time ago.
    pub async fn pane_info(&self, target: &str) -> Result<PaneInfo> {
        self.engine.authorize(Tier::Read)?;
        let id = self.locate_pane(target).await?;
        let pane = self.panes().await?.into_iter().find(|pane| pane.id == id && !pane.earlier_server);
        pane.ok_or_else(|| Error::not_found(format!("pane {target} has just ended")))
    }

    /// Lists the panes that these targets include; without targets all. Errors: those of
    /// [`Self::scopes`] and [`Self::panes`].
    pub async fn panes_within(&self, targets: &[String]) -> Result<Vec<PaneInfo>> {
        let scopes = self.scopes(targets).await?;
        let mut panes = self.panes().await?;
        panes.retain(|one| scopes.include(one));
        Ok(panes)
    }

    /// Lists the agents in the panes that these targets include; without targets all. Errors: those
    /// of [`Self::scopes`] and [`Self::agents`].
    pub async fn agents_within(&self, targets: &[String]) -> Result<AgentList> {
        let scopes = self.scopes(targets).await?;
        let mut list = self.agents().await?;
        list.agents.retain(|one| self.include_agent(&scopes, one));
        Ok(list)
    }

    /// Returns the agents that are known now, without searching for more.
    pub fn known_agents(&self) -> Vec<AgentInfo> {
        self.host.known_agents()
    }

    /// Sets the program's name in panes whose command muxtap started: tmux reports the wrapper's
    /// shell.
    async fn name_wrapped_programs(&self, panes: &mut [PaneInfo]) {
        if !self.host.server().spec().is_local() {
            return;
        }
        for info in panes.iter_mut().filter(|info| !info.dead) {
            let Some(pane) = self.host.live_pane(info.id) else { continue };
            if pane.managed().is_none_or(|managed| managed.wrapper.is_none()) {
                continue;
            }
            if let Some(Some(program)) = self.host.probe(pane.metadata(), shell::wrapped_program).await {
                info.command = program;
            }
        }
    }
}

impl Host {
    /// Waits until the model no longer has the pane. A caller that saw the pane in a list waits
    /// here for its end.
    pub async fn until_unlisted(&self, id: PaneId) {
        let Some(shared) = self.shared() else { return };
        let mut events = shared.events.subscribe();
        // The topology is read after subscribing, so a later change is an event.
        while self.server().topology().pane(id).is_some() {
            if let Err(RecvError::Closed) = events.recv().await {
                return;
            }
        }
    }

    /// Returns a pane's entry in the list, from the last reading of the model.
    pub fn info_of(&self, id: PaneId) -> PaneInfo {
        self.listed_info(id).unwrap_or_else(|| {
            let mut info = PaneInfo::of(id);
            self.fill(&mut info, id);
            info
        })
    }

    /// Returns a pane's entry in the list, from the last reading of the model, or `None` if the
    /// model does not have it.
    pub(crate) fn listed_info(&self, id: PaneId) -> Option<PaneInfo> {
        // The model is not copied: this is called for each of a thousand panes when muxtap
        // attaches.
        let topology = self.server().topology();
        let row = topology.pane(id)?;
        let is_hub = |session| topology.session(session).is_some_and(|session| session.hub);
        let window = topology.windows.iter().find(|window| window.id == row.window && !is_hub(window.session));
        Some(self.info(&topology, row, window))
    }

    /// Returns an ended pane's entry in the list.
    pub(crate) fn ended_info(&self, pane: &PaneState) -> PaneInfo {
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
            labels: row.labels.clone(),
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

    /// Adds the facts from the stream of the pane with this id.
    fn fill(&self, info: &mut PaneInfo, id: PaneId) {
        if let Some(pane) = self.pane(id) {
            fill(info, &pane);
        }
    }
}

/// Adds the facts from a pane's stream.
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
