//! Respawning a pane: starting its program again, or another one in its place, without losing a
//! byte of output.

use std::sync::Arc;

use muxtap_api::{Error, ErrorCode, RespawnRequest, Result, SpawnRequest};
use muxtap_base::nonce;
use muxtap_core::{marks::NONCE_VARIABLE, protocol::command::Command};
use muxtap_tmux::Request;

use crate::{
    Host, PaneState, Server,
    pane::managed::{ExitWrapper, Launch, ManagedPane, OnExit, PaneOptions},
    spawn::{
        create::{check_spawn, tmux_error, with_place, with_program},
        managed::{self, HELD_LONGEST},
    },
};

/// The program of a respawn, and how its pane is managed.
struct RespawnPlan {
    /// The words that tmux runs; `None` for the pane's previous ones.
    words: Option<Vec<String>>,
    /// The directory and environment.
    place: SpawnRequest,
    /// The new state of the managed pane; `None` leaves the pane to tmux.
    managed: Option<ManagedPane>,
}

impl Server {
    /// Respawns a pane. All steps run to the end in a task, unless the engine stops: a caller that
    /// leaves must not leave a pane paused.
    pub(crate) async fn respawn(&self, pane: &Arc<PaneState>, request: &RespawnRequest) -> Result<()> {
        let host = &self.host;
        check_spawn(&request.spawn)?;
        let mut request = request.clone();
        if request.spawn.command.is_none() && request.spawn.shell_integration == Some(true) {
            let why = "shell_integration: without a command the previous program runs again; name the shell";
            return Err(Error::invalid(why));
        }
        if request.spawn.command.is_some()
            && let Some(shell) = self.shell_start(&request.spawn).await?
        {
            request.spawn = shell.changes(&request.spawn);
            if let Some(nonce) = request.spawn.env.get(NONCE_VARIABLE) {
                pane.trust_shell(nonce.clone());
            }
        }
        let (engine, host, pane) = (self.engine.clone(), host.clone(), pane.clone());
        let task = self.engine.shared.tasks.spawn(async move {
            tokio::select! {
                done = respawn_steps(&host, &pane, &request) => done,
                () = engine.stopping() => Err(Error::unavailable("muxtap is stopping")),
            }
        });
        task.await.unwrap_or_else(|_| Err(Error::internal("the respawn failed halfway")))
    }
}

async fn respawn_steps(host: &Arc<Host>, pane: &Arc<PaneState>, request: &RespawnRequest) -> Result<()> {
    let server = &host.server_of(pane);
    server.connected().await?;
    if pane.exit().is_some() {
        // A command's end is reported once all of its output has arrived; its wrapper is released a
        // moment later.
        server.ended(pane.id(), HELD_LONGEST).await;
    }
    let topology = server.fresh().await?;
    if !request.kill && topology.pane(pane.id()).is_some_and(|row| !row.dead && row.pid != 0) {
        // tmux would reject this too, but only after the pane was paused, which drops output.
        let message = format!("pane {} is still active: its process runs; -k (`kill`) ends it first", pane.id());
        return Err(Error::new(ErrorCode::Conflict, message));
    }
    let RespawnPlan { words, place: at, managed } = plan(host, pane, request).await?;
    let mut command = Command::new("respawn-pane").opt("-t", pane.id().to_string());
    if request.kill {
        command = command.flag("-k");
    }
    command = with_place(command, &at);
    if let Some(words) = &words {
        command = with_program(command, words);
    }
    let mut commands = vec![command];
    if managed.is_some() {
        commands.extend(managed::keep_on_exit(pane.id()));
    }
    let nonce = managed.as_ref().and_then(|managed| Some(managed.wrapper.as_ref()?.nonce.clone()));
    if let Some(nonce) = &nonce {
        // The mark may arrive before the reply (N27).
        pane.register_nonce(nonce);
    }
    let (of, on) = (Arc::downgrade(host), pane.clone());
    let done = move |is_done: bool| {
        if is_done {
            // The reply follows all output of the previous program.
            on.mark_started(on.end_offset());
        }
        match (is_done, managed, nonce) {
            (true, Some(managed), _) => {
                let status = on.set_managed(managed);
                if let (Some(status), Some(host)) = (status, of.upgrade()) {
                    host.wrapped_command_ended(&on, status);
                }
            }
            (false, _, Some(nonce)) => on.unregister_nonce(&nonce),
            _ => {}
        }
    };
    let answer = server.respawn(pane.id(), commands, done).await?;
    answer.map_err(|message| tmux_error(&message))?;
    // Lets muxtap watch the new process from now on. The program runs whether or not this succeeds.
    let _ = server.fresh().await;
    Ok(())
}

/// Decides what to start, and how the pane is managed afterwards.
async fn plan(host: &Arc<Host>, pane: &Arc<PaneState>, request: &RespawnRequest) -> Result<RespawnPlan> {
    let (server, spawn, known) = (&host.server_of(pane), &request.spawn, pane.managed());
    let again = || Some(known.as_ref()?.launch.as_ref()?.with_changes(spawn));
    let launch = Launch::of(spawn).or_else(again);
    // Without a command, tmux runs its previous line again, which may be the exit wrapper of an
    // earlier muxtap.
    let earlier = if launch.is_none() && known.is_none() { earlier_nonce(host, pane).await? } else { None };
    if launch.is_none() && known.is_none() && earlier.is_none() && !spawn.keep {
        return Ok(RespawnPlan { words: None, place: spawn.clone(), managed: None });
    }
    let before = match &known {
        Some(ManagedPane { on_exit: OnExit::Keep, before, .. }) => before.clone(),
        Some(ManagedPane { before: Some(before), .. }) => Some(before.clone()),
        Some(ManagedPane { before: None, .. }) | None => Some(PaneOptions::read(server, pane.id()).await?),
    };
    let on_exit = match &known {
        _ if spawn.keep => OnExit::Keep,
        Some(known) => known.on_exit,
        None => OnExit::Restore,
    };
    // The repeated line has the same nonce.
    let same = || earlier.or_else(|| Some(known.as_ref()?.wrapper.as_ref()?.nonce.clone()));
    let wrapper = launch.as_ref().map(|_| nonce::hex64()).or_else(same);
    let words = launch.as_ref().zip(wrapper.as_ref()).map(|(launch, nonce)| launch.wrapped(nonce));
    let shell_nonce = known.as_ref().filter(|_| launch.is_none()).and_then(|known| known.shell_nonce.clone());
    let place = if let Some(launch) = &launch {
        SpawnRequest { cwd: launch.cwd.clone(), env: launch.env.clone(), ..SpawnRequest::default() }
    } else {
        let mut place = spawn.clone();
        if let Some(nonce) = &shell_nonce {
            place.env.entry(NONCE_VARIABLE.to_owned()).or_insert_with(|| nonce.clone());
        }
        place
    };
    Ok(RespawnPlan {
        words,
        place,
        managed: Some(ManagedPane { on_exit, before, wrapper: wrapper.map(ExitWrapper::of), launch, shell_nonce }),
    })
}

/// Returns the nonce of the wrapper that an earlier muxtap left as the pane's command.
async fn earlier_nonce(host: &Arc<Host>, pane: &Arc<PaneState>) -> Result<Option<String>> {
    let question = || Command::new("display-message").flag("-p").opt("-t", pane.id().to_string());
    let question = || Request::Framed(vec![question().format("#{pane_start_command}")]);
    let answer = host.server_of(pane).read(Some(pane.id()), question).await?;
    let command = answer.ok().and_then(|parts| parts.first().map(|body| String::from_utf8_lossy(body).into_owned()));
    Ok(command.and_then(|command| managed::wrapper_nonce(&command)))
}
