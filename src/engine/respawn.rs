//! Starting a program anew in a pane, or another one in its place, so that no byte of it is lost.

use std::sync::Arc;

use super::{
    Engine, Host, Pane,
    create::{check, place, program, refused},
    managed::{self, AtEnd, HELD_LONGEST, Hold, Launch, ManagedPane, PaneOptions},
};
use crate::{
    api::{DoneAnswer, Error, ErrorCode, RespawnRequest, Result, SpawnRequest},
    nonce,
    protocol::command::Command,
    tmux::Request,
};

/// What is started in a pane.
struct Start {
    /// What tmux runs; `None`: what it ran there before.
    words: Option<Vec<String>>,
    /// Where, and with what environment.
    place: SpawnRequest,
    /// What is promised of the pane then; `None`: nothing, it is left to tmux.
    managed: Option<ManagedPane>,
}

impl Engine {
    /// Takes all steps, unless the engine stops: a caller that goes away must not leave a pane paused.
    pub(super) async fn respawn(
        &self,
        host: &Arc<Host>,
        pane: &Arc<Pane>,
        request: &RespawnRequest,
    ) -> Result<DoneAnswer> {
        check(&request.spawn)?;
        let (engine, host, pane, request) = (self.clone(), host.clone(), pane.clone(), request.clone());
        let task = self.shared.tasks.spawn(async move {
            tokio::select! {
                done = respawn_all(&host, &pane, &request) => done,
                () = engine.stopping() => Err(Error::unavailable("muxtap is stopping")),
            }
        });
        task.await.unwrap_or_else(|_| Err(Error::internal("what was to be respawned failed halfway")))
    }
}

async fn respawn_all(host: &Arc<Host>, pane: &Arc<Pane>, request: &RespawnRequest) -> Result<DoneAnswer> {
    let server = host.server();
    server.connected().await?;
    if pane.exit().is_some() {
        // The end of a command is told when all it printed is here; its hold is let go a moment later.
        server.ended(pane.id(), HELD_LONGEST).await;
    }
    let topology = server.fresh().await?;
    if !request.kill && topology.pane(pane.id()).is_some_and(|row| !row.dead) {
        // tmux would say so as well, but only once the pane was paused, which drops output.
        let message = format!("pane {} is still active: its process runs; -k (`kill`) ends it first", pane.id());
        return Err(Error::new(ErrorCode::Conflict, message));
    }
    let Start { words, place: at, managed } = start(host, pane, request).await?;
    let mut command = Command::new("respawn-pane").opt("-t", pane.id().to_string());
    if request.kill {
        command = command.flag("-k");
    }
    command = place(command, &at);
    if let Some(words) = &words {
        command = program(command, words);
    }
    let mut commands = vec![command];
    if managed.is_some() {
        commands.extend(managed::remain(pane.id()));
    }
    let nonce = managed.as_ref().and_then(|managed| Some(managed.hold.as_ref()?.nonce.clone()));
    if let Some(nonce) = &nonce {
        // Its mark may stand ahead of the answer (N27).
        pane.expect_mark(nonce);
    }
    let (of, on) = (Arc::downgrade(host), pane.clone());
    let done = move |is_done: bool| {
        if is_done {
            // The reply stands behind all that the program before it printed.
            on.made_at(on.end_offset());
        }
        match (is_done, managed, nonce) {
            (true, Some(managed), _) => {
                let status = on.set_ours(managed);
                if let (Some(status), Some(host)) = (status, of.upgrade()) {
                    host.held_command_ended(&on, status);
                }
            }
            (false, _, Some(nonce)) => on.expect_no_mark(&nonce),
            _ => {}
        }
    };
    let answer = server.respawn(pane.id(), commands, done).await?;
    answer.map_err(|message| refused(&message))?;
    // The new process is watched from here on. The program runs whether or not that can be known.
    let _ = server.fresh().await;
    Ok(DoneAnswer { ok: true })
}

/// Decides what is started, and what is promised of the pane then.
async fn start(host: &Arc<Host>, pane: &Arc<Pane>, request: &RespawnRequest) -> Result<Start> {
    let (server, spawn, known) = (host.server(), &request.spawn, pane.ours());
    let again = || Some(known.as_ref()?.launch.as_ref()?.again(spawn));
    let launch = Launch::of(spawn).or_else(again);
    // Without a command tmux runs the line once more that it ran before. It may be the wrapper that a muxtap made which has ended since.
    let earlier = if launch.is_none() && known.is_none() { earlier_nonce(host, pane).await? } else { None };
    if launch.is_none() && known.is_none() && earlier.is_none() && !spawn.keep {
        return Ok(Start { words: None, place: spawn.clone(), managed: None });
    }
    let before = match &known {
        Some(ManagedPane { at_end: AtEnd::Keep | AtEnd::Close, before, .. }) => before.clone(),
        Some(ManagedPane { before: Some(before), .. }) => Some(before.clone()),
        Some(ManagedPane { before: None, .. }) | None => Some(PaneOptions::of(server, pane.id()).await?),
    };
    let at_end = match &known {
        _ if spawn.keep => AtEnd::Keep,
        Some(known) => known.at_end,
        None => AtEnd::AsBefore,
    };
    // The line that tmux runs once more has the same nonce.
    let same = || earlier.or_else(|| Some(known.as_ref()?.hold.as_ref()?.nonce.clone()));
    let hold = launch.as_ref().map(|_| nonce::hex64()).or_else(same);
    let words = launch.as_ref().zip(hold.as_ref()).map(|(launch, nonce)| launch.held(nonce));
    let place = match &launch {
        Some(launch) => SpawnRequest { cwd: launch.cwd.clone(), env: launch.env.clone(), ..SpawnRequest::default() },
        None => spawn.clone(),
    };
    Ok(Start { words, place, managed: Some(ManagedPane { at_end, before, hold: hold.map(Hold::of), launch }) })
}

/// The nonce of the wrapper that an earlier muxtap left as the pane's command.
async fn earlier_nonce(host: &Arc<Host>, pane: &Arc<Pane>) -> Result<Option<String>> {
    let question = || Command::new("display-message").flag("-p").opt("-t", pane.id().to_string());
    let question = || Request::Framed(vec![question().format("#{pane_start_command}")]);
    let answer = host.server().read(Some(pane.id()), question).await?;
    let command = answer.ok().and_then(|parts| parts.first().map(|body| String::from_utf8_lossy(body).into_owned()));
    Ok(command.and_then(|command| managed::nonce_of(&command)))
}
