//! Changing and killing panes, windows and sessions.

use futures_util::future::BoxFuture;
use muxtap_api::{Error, Operation, PatchRequest, Result};
use muxtap_core::protocol::{
    command::{Command, CommandLine},
    ids::WindowId,
    layout::Layout,
    names::spelled,
    version::Version,
};
use muxtap_tmux::{LinkState, Request};

use super::{
    PaneState, Server,
    labels::Inherited,
    spawn::create::{literal, tmux_error},
};

impl Server {
    /// Kills a pane.
    pub fn kill_pane<'a>(&'a self, target: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.kill_pane_as(Operation::KillPane, target))
    }

    /// Kills a pane that the caller itself created: the permission to create a pane includes
    /// closing it.
    pub(crate) async fn kill_own_pane(&self, target: &str) -> Result<()> {
        self.kill_pane_as(Operation::KillOwnPane, target).await
    }

    async fn kill_pane_as(&self, operation: Operation, target: &str) -> Result<()> {
        let host = &self.host;
        let audit = self.engine.audit(operation, host, target)?;
        let done = async {
            let pane = self.locate_pane(target).await?;
            audit.resolved(pane);
            let known = host.live_pane(pane);
            self.order(known.as_deref(), [Command::new("kill-pane").opt("-t", pane.to_string())]).await
        }
        .await;
        audit.finish(done)
    }

    /// Kills a window, in every session that links it, and the programs in its panes.
    ///
    /// Errors: `NOT_FOUND`, `AMBIGUOUS_TARGET`, `READ_ONLY`, `TMUX_UNAVAILABLE`.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(server: muxtap::Server) -> muxtap::Result<()> {
    /// server.kill_window("work:build").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn kill_window<'a>(&'a self, target: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.kill_window_here(target))
    }

    async fn kill_window_here(&self, target: &str) -> Result<()> {
        let host = &self.host;
        let audit = self.engine.audit(Operation::KillWindow, host, target)?;
        let done = async {
            let window = self.window(target).await?;
            audit.resolved(window.id);
            let unzoom = self.unzoomed([window.id]);
            let kill = Command::new("kill-window").opt("-t", window.id.to_string());
            self.order(None, unzoom.into_iter().chain([kill])).await
        }
        .await;
        audit.finish(done)
    }

    /// Kills a session, and the windows that no other session links.
    ///
    /// Errors: `NOT_FOUND`, `READ_ONLY`, `TMUX_UNAVAILABLE`.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(server: muxtap::Server) -> muxtap::Result<()> {
    /// server.kill_session("work").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn kill_session<'a>(&'a self, target: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.kill_session_here(target))
    }

    async fn kill_session_here(&self, target: &str) -> Result<()> {
        let host = &self.host;
        let audit = self.engine.audit(Operation::KillSession, host, target)?;
        let done = async {
            let session = self.session(target).await?;
            audit.resolved(session.id);
            let topology = host.server().topology();
            let windows = topology.windows.iter().filter(|window| window.session == session.id);
            let unzoom = self.unzoomed(windows.map(|window| window.id));
            let kill = Command::new("kill-session").opt("-t", session.id.to_string());
            self.order(None, unzoom.into_iter().chain([kill])).await
        }
        .await;
        audit.finish(done)
    }

    /// Changes a session: its name and labels.
    pub fn patch_session<'a>(&'a self, target: &'a str, patch: &'a PatchRequest) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.patch_session_here(target, patch))
    }

    async fn patch_session_here(&self, target: &str, patch: &PatchRequest) -> Result<()> {
        let host = &self.host;
        let audit = self.engine.audit(Operation::of_session_patch(patch), host, target)?;
        let done = async {
            only(patch, "a session", &["name", "labels"])?;
            let session = match &patch.labels {
                Some(_) => self.labeled_session(target).await?,
                None => self.session(target).await?,
            };
            audit.resolved(session.id);
            let rename = patch.name.as_ref().map(|name| {
                let rename = Command::new("rename-session").opt("-t", session.id.to_string());
                rename.end_of_flags().arg(literal(name))
            });
            match (&patch.labels, rename) {
                (Some(labels), rename) => self.label_session(session.id, labels, rename.into_iter().collect()).await,
                (None, Some(rename)) => self.order(None, [rename]).await,
                (None, None) => Err(nothing()),
            }
        }
        .await;
        audit.finish(done)
    }

    /// Changes a window: its name, layout and size, and whether it is the current one.
    pub fn patch_window<'a>(&'a self, target: &'a str, patch: &'a PatchRequest) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.patch_window_here(target, patch))
    }

    async fn patch_window_here(&self, target: &str, patch: &PatchRequest) -> Result<()> {
        let host = &self.host;
        let audit = self.engine.audit(Operation::ChangeWindow, host, target)?;
        let done = async {
            only(patch, "a window", &["name", "layout", "width", "height", "select"])?;
            let row = self.window(target).await?;
            let window = row.id.to_string();
            audit.resolved(&window);
            let mut commands = Vec::new();
            if let Some(name) = &patch.name {
                commands.push(Command::new("rename-window").opt("-t", &window).end_of_flags().arg(literal(name)));
            }
            if patch.width.is_some() || patch.height.is_some() {
                // The size is set per window, never by the global option `window-size manual`
                // (F31).
                commands.push(sized(Command::new("resize-window").opt("-t", &window), patch));
            }
            if let Some(layout) = &patch.layout {
                self.check_layout(layout)?;
                commands.push(Command::new("select-layout").opt("-t", &window).end_of_flags().arg(layout));
            }
            if patch.select {
                // In this session, since others may link the window.
                commands.push(Command::new("select-window").opt("-t", format!("{}:{window}", row.session)));
            }
            if commands.is_empty() {
                return Err(nothing());
            }
            self.order(None, commands).await
        }
        .await;
        audit.finish(done)
    }

    /// Changes a pane: its title, labels, size, program and mode, and whether it is active or zoomed.
    pub fn patch_pane<'a>(&'a self, target: &'a str, patch: &'a PatchRequest) -> BoxFuture<'a, Result<()>> {
        self.patch_pane_with(target, patch, Inherited::Refused)
    }

    /// Changes a pane; `removed`: what the removal of a label does that it has from its session alone.
    pub(crate) fn patch_pane_with<'a>(
        &'a self,
        target: &'a str,
        patch: &'a PatchRequest,
        removed: Inherited,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.patch_pane_here(target, patch, removed))
    }

    async fn patch_pane_here(&self, target: &str, patch: &PatchRequest, removed: Inherited) -> Result<()> {
        let host = &self.host;
        let audit = self.engine.audit(Operation::of_pane_patch(patch), host, target)?;
        let done = async {
            only(patch, "a pane", &["name", "width", "height", "respawn", "select", "zoom", "leave_mode", "labels"])?;
            let pane = self.locate_pane(target).await?;
            audit.resolved(pane);
            let id = pane.to_string();
            let mut commands = Vec::new();
            if let Some(title) = &patch.name {
                commands.push(Command::new("select-pane").opt("-t", &id).opt("-T", literal(title)));
            }
            if patch.width.is_some() || patch.height.is_some() {
                commands.push(sized(Command::new("resize-pane").opt("-t", &id), patch));
            }
            if patch.leave_mode {
                commands.push(Command::new("copy-mode").flag("-q").opt("-t", &id));
            }
            if patch.select {
                commands.push(Command::new("select-pane").opt("-t", &id));
            }
            if let Some(zoom) = patch.zoom {
                // The command toggles: in a window that another pane fills, a first run only
                // unzooms that pane.
                let conditions: &[&str] = if zoom {
                    &["#{?window_zoomed_flag,#{?pane_active,,1},}", "#{?window_zoomed_flag,,1}"]
                } else {
                    &["#{?window_zoomed_flag,1,}"]
                };
                let toggle = format!("{} -Z -t {id}", spelled("resize-pane"));
                let toggle =
                    |condition| Command::new("if-shell").flag("-F").opt("-t", &id).format(condition).arg(&toggle);
                commands.extend(conditions.iter().map(toggle));
            }
            if commands.is_empty() && patch.respawn.is_none() && patch.labels.is_none() {
                return Err(nothing());
            }
            if let Some(labels) = &patch.labels {
                self.label(pane, labels, removed, commands).await?;
            } else if !commands.is_empty() {
                self.order(host.live_pane(pane).as_deref(), commands).await?;
            }
            match &patch.respawn {
                Some(respawn) => self.respawn(&self.resolve_pane(target).await?, respawn).await,
                None => Ok(()),
            }
        }
        .await;
        audit.finish(done)
    }

    pub(crate) async fn order(
        &self,
        pane: Option<&PaneState>,
        commands: impl IntoIterator<Item = Command>,
    ) -> Result<()> {
        let request = Request::Plain(CommandLine::of(commands));
        let answer = match pane {
            Some(pane) => self.host.server_of(pane).write(Some(pane.id()), request).await?,
            None => self.host.server().write(None, request).await?,
        };
        answer.map(|_| ()).map_err(|message| tmux_error(&message))
    }
}

impl Server {
    /// Returns the server's version, or [`Version::UNKNOWN`] without a connection.
    fn version(&self) -> Version {
        match self.host.server().state() {
            LinkState::Connected(identity) => identity.version,
            _ => Version::UNKNOWN,
        }
    }

    /// Returns the commands that unzoom these windows, if the server would crash at their end while
    /// zoomed (N89).
    fn unzoomed(&self, windows: impl IntoIterator<Item = WindowId>) -> Vec<Command> {
        if !self.version().dies_with_zoomed_windows() {
            return Vec::new();
        }
        let unzoom = |window: WindowId| {
            let target = window.to_string();
            let command = Command::new("if-shell").flag("-F").opt("-t", &target).format("#{window_zoomed_flag}");
            command.arg(format!("{} -Z -t {target}", spelled("resize-pane")))
        };
        windows.into_iter().map(unzoom).collect()
    }

    /// Checks a layout, at which 3.3a would crash if it is invalid (N90). Error:
    /// `INVALID_ARGUMENT`.
    fn check_layout(&self, layout: &str) -> Result<()> {
        let version = self.version();
        // tmux 3.8 writes layouts as JSON.
        let is_json =
            layout.starts_with('{') && version >= Version { major: 3, minor: 8, suffix: None, is_preview: false };
        if version.knows_layout(layout) || is_json || Layout::parse(layout.as_bytes()).is_ok() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "layout: unknown layout {layout:?}; expected even-horizontal, even-vertical, main-horizontal, \
             main-vertical, tiled, or what `list-windows -F '#{{window_layout}}'` prints"
        )))
    }
}

fn sized(command: Command, patch: &PatchRequest) -> Command {
    [(patch.width, "-x"), (patch.height, "-y")].into_iter().fold(command, |command, (size, flag)| match size {
        Some(size) => command.opt(flag, size.to_string()),
        None => command,
    })
}

/// Rejects fields that do not apply.
fn only(patch: &PatchRequest, what: &str, fields: &[&str]) -> Result<()> {
    for (given, field) in [
        (patch.name.is_some(), "name"),
        (patch.layout.is_some(), "layout"),
        (patch.width.is_some(), "width"),
        (patch.height.is_some(), "height"),
        (patch.respawn.is_some(), "respawn"),
        (patch.select, "select"),
        (patch.zoom.is_some(), "zoom"),
        (patch.leave_mode, "leave_mode"),
        (patch.labels.is_some(), "labels"),
    ] {
        if given && !fields.contains(&field) {
            let fields = fields.join(", ");
            return Err(Error::invalid(format!("{field}: not supported for {what}; supported fields: {fields}")));
        }
    }
    Ok(())
}

fn nothing() -> Error {
    Error::invalid("nothing to change: give at least one field")
}
