//! Changing and ending what is there.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{
    Engine, Host, Pane,
    create::{check, literal, place, program, refused},
};
use crate::{
    api::{DoneAnswer, Error, GapReason, PatchRequest, RespawnRequest, Result, Tier},
    protocol::{
        command::{Command, CommandLine},
        ids::PaneId,
    },
    tmux::{Link, Lost, Request, Seed, Seeding, Server},
};

const DONE: DoneAnswer = DoneAnswer { ok: true };

impl Engine {
    /// Ends a pane.
    pub async fn kill_pane(&self, host: &Arc<Host>, target: &str) -> Result<DoneAnswer> {
        let act = self.act(Tier::Kill, "kill-pane", host, target)?;
        let done = async {
            let pane = self.pane(host, target).await?;
            act.means(pane.id());
            self.order(host, Some(pane.id()), [Command::new("kill-pane").opt("-t", pane.id().to_string())]).await
        }
        .await;
        act.ended(done)
    }

    /// Ends a window everywhere.
    pub async fn kill_window(&self, host: &Arc<Host>, target: &str) -> Result<DoneAnswer> {
        let act = self.act(Tier::Kill, "kill-window", host, target)?;
        let done = async {
            let window = self.window(host, target).await?;
            act.means(window.id);
            self.order(host, None, [Command::new("kill-window").opt("-t", window.id.to_string())]).await
        }
        .await;
        act.ended(done)
    }

    /// Ends a session.
    pub async fn kill_session(&self, host: &Arc<Host>, target: &str) -> Result<DoneAnswer> {
        let act = self.act(Tier::Kill, "kill-session", host, target)?;
        let done = async {
            let session = self.session(host, target).await?;
            act.means(session.id);
            self.order(host, None, [Command::new("kill-session").opt("-t", session.id.to_string())]).await
        }
        .await;
        act.ended(done)
    }

    /// Changes a session: its name.
    pub async fn patch_session(&self, host: &Arc<Host>, target: &str, patch: &PatchRequest) -> Result<DoneAnswer> {
        let act = self.act(Tier::Create, "change-session", host, target)?;
        let done = async {
            only(patch, "a session", &["name"])?;
            let session = self.session(host, target).await?;
            act.means(session.id);
            let name = patch.name.as_deref().ok_or_else(nothing)?;
            let command =
                Command::new("rename-session").opt("-t", session.id.to_string()).end_of_flags().arg(literal(name));
            self.order(host, None, [command]).await
        }
        .await;
        act.ended(done)
    }

    /// Changes a window: its name, layout and size.
    pub async fn patch_window(&self, host: &Arc<Host>, target: &str, patch: &PatchRequest) -> Result<DoneAnswer> {
        let act = self.act(Tier::Create, "change-window", host, target)?;
        let done = async {
            only(patch, "a window", &["name", "layout", "width", "height"])?;
            let window = self.window(host, target).await?.id.to_string();
            act.means(&window);
            let mut commands = Vec::new();
            if let Some(name) = &patch.name {
                commands.push(Command::new("rename-window").opt("-t", &window).end_of_flags().arg(literal(name)));
            }
            if patch.width.is_some() || patch.height.is_some() {
                // Never by the global option `window-size manual` (F31).
                commands.push(sized(Command::new("resize-window").opt("-t", &window), patch));
            }
            if let Some(layout) = &patch.layout {
                commands.push(Command::new("select-layout").opt("-t", &window).end_of_flags().arg(layout));
            }
            if commands.is_empty() {
                return Err(nothing());
            }
            self.order(host, None, commands).await
        }
        .await;
        act.ended(done)
    }

    /// Changes a pane: its title, size and program.
    pub async fn patch_pane(&self, host: &Arc<Host>, target: &str, patch: &PatchRequest) -> Result<DoneAnswer> {
        let (tier, action) = match &patch.respawn {
            Some(respawn) if respawn.kill => (Tier::Kill, "respawn-pane"),
            Some(_) => (Tier::Create, "respawn-pane"),
            None => (Tier::Create, "change-pane"),
        };
        let act = self.act(tier, action, host, target)?;
        let done = async {
            only(patch, "a pane", &["name", "width", "height", "respawn"])?;
            let pane = self.pane(host, target).await?;
            act.means(pane.id());
            let id = pane.id().to_string();
            let mut commands = Vec::new();
            if let Some(title) = &patch.name {
                commands.push(Command::new("select-pane").opt("-t", &id).opt("-T", literal(title)));
            }
            if patch.width.is_some() || patch.height.is_some() {
                commands.push(sized(Command::new("resize-pane").opt("-t", &id), patch));
            }
            if commands.is_empty() && patch.respawn.is_none() {
                return Err(nothing());
            }
            if !commands.is_empty() {
                self.order(host, Some(pane.id()), commands).await?;
            }
            match &patch.respawn {
                Some(respawn) => self.respawn(host, &pane, respawn).await,
                None => Ok(DONE),
            }
        }
        .await;
        act.ended(done)
    }

    async fn respawn(&self, host: &Arc<Host>, pane: &Arc<Pane>, request: &RespawnRequest) -> Result<DoneAnswer> {
        check(&request.spawn)?;
        let id = pane.id().to_string();
        let mut command = Command::new("respawn-pane").opt("-t", &id);
        if request.kill {
            command = command.flag("-k");
        }
        command = place(command, &request.spawn);
        if let Some(words) = &request.spawn.command {
            command = program(command, words);
        }
        // A server that respawns a pane on which a client lags behind may crash (F19, N12): the pause drops what is not sent yet. Nothing
        // can be printed between the respawn and the end of the pause, since a line runs in one go.
        let flow = |what: &str| Command::new("refresh-client").opt("-A", format!("{id}:{what}"));
        let line = CommandLine::of([flow("pause"), command, flow("continue")]);
        host.server().connected().await?;
        host.server().expect_pause(pane.id());
        let (sender, receiver) = oneshot::channel();
        let (at, server, resume) = (pane.clone(), host.server().clone(), flow("continue"));
        host.server().submit(Some(pane.id()), Request::Plain(line), move |answer| {
            match &answer {
                Ok(Ok(_)) => {
                    // The reply stands behind all that the program before it printed.
                    at.made_at(at.end_offset());
                    if at.exit().is_none() {
                        at.mark_gap(GapReason::Paused);
                    }
                }
                Ok(Err(_)) => {
                    // The line stopped behind its pause: output goes on, and what the pause dropped is looked for.
                    server.submit(Some(at.id()), Request::Plain(CommandLine::of([resume])), |_| {});
                    server.reseed(at.id(), Seeding::Again(GapReason::Paused));
                }
                _ => {}
            }
            // The asker may have given up.
            let _ = sender.send(answer);
        });
        let answer = receiver.await.unwrap_or(Err(Lost::Ended));
        let done = match answer {
            Ok(Ok(_)) => Ok(DONE),
            Ok(Err(message)) => Err(refused(&message)),
            Err(lost) => return Err(lost.of_change("the respawn")),
        };
        host.server().fresh().await?;
        done
    }

    async fn order(
        &self,
        host: &Arc<Host>,
        pane: Option<PaneId>,
        commands: impl IntoIterator<Item = Command>,
    ) -> Result<DoneAnswer> {
        let answer = host.server().write(pane, Request::Plain(CommandLine::of(commands))).await?;
        answer.map(|_| DONE).map_err(|message| refused(&message))
    }

    /// Gives panes that muxtap made back to tmux: they close by themselves from now on.
    pub(super) async fn release_panes(&self, host: &Arc<Host>) {
        if !matches!(host.server().link(), Link::Connected(_)) {
            return;
        }
        for pane in host.panes().iter().filter(|pane| pane.close_when_ended()) {
            let release = Command::new("set-option").flag("-p").flag("-u").opt("-t", pane.id().to_string());
            let line = CommandLine::of([release.arg("remain-on-exit")]);
            // A pane that has gone meanwhile needs no release.
            // One that does not answer cannot be asked for the others either.
            if host.server().write(Some(pane.id()), Request::Plain(line)).await.is_err() {
                return;
            }
        }
    }
}

/// Lets go of the hold on a command that has ended: the pane is closed, or dies with the command's status. Its screen is kept first.
pub(super) fn close_held(host: &Arc<Host>, pane: &Arc<Pane>) {
    let (server, rules, of) = (host.server(), host.rules(), Arc::downgrade(host));
    let at = pane.clone();
    let close = pane.close_when_ended();
    // Elsewhere it lets go by itself after a few seconds.
    let release = !close && server.spec().is_local();
    let look = move |answer: std::result::Result<crate::tmux::Answer, crate::tmux::Lost>| {
        if let Some(seed) = answer.ok().and_then(std::result::Result::ok).and_then(|parts| Seed::parse(&parts)) {
            let kept = at.keep_screen(&seed, rules);
            of.upgrade().inspect(|host| host.account(kept));
            // tmux tells which process it is; what was listed last may be the placeholder's.
            if release
                && !seed.dead
                && let Some(pid) = i32::try_from(seed.pid).ok().and_then(rustix::process::Pid::from_raw)
            {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::USR1);
            }
        }
    };
    server.submit(Some(pane.id()), Request::Framed(Seed::question(pane.id(), rules)), look);
    if close {
        close_ended(server, pane.id());
    }
}

/// Closes a pane that muxtap made and that nobody asked to keep.
pub(super) fn close_ended(server: &Server, pane: PaneId) {
    let kill = Command::new("kill-pane").opt("-t", pane.to_string());
    server.submit_at_last(Some(pane), Request::Plain(CommandLine::of([kill])));
}

fn sized(command: Command, patch: &PatchRequest) -> Command {
    [(patch.width, "-x"), (patch.height, "-y")].into_iter().fold(command, |command, (size, flag)| match size {
        Some(size) => command.opt(flag, size.to_string()),
        None => command,
    })
}

/// Refuses fields that do not apply.
fn only(patch: &PatchRequest, what: &str, fields: &[&str]) -> Result<()> {
    for (given, field) in [
        (patch.name.is_some(), "name"),
        (patch.layout.is_some(), "layout"),
        (patch.width.is_some(), "width"),
        (patch.height.is_some(), "height"),
        (patch.respawn.is_some(), "respawn"),
    ] {
        if given && !fields.contains(&field) {
            return Err(Error::invalid(format!("{field}: {what} has none; it has {}", fields.join(", "))));
        }
    }
    Ok(())
}

fn nothing() -> Error {
    Error::invalid("nothing to change: give at least one field")
}
