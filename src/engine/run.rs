//! `run`: types a command into a shell that rests and answers with exactly its output and its exit status.

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Engine, Host, Pane,
    deadline::Deadline,
    input, limits,
    shell::{self, Resting, Shell},
    wait::duration,
};
use crate::{
    api::{Error, ErrorCode, Result, RunAnswer, RunMethod, RunRequest, Tier},
    pane::render,
};

/// How long a shell that has only begun may take to its first prompt.
const SHELL_START: Duration = Duration::from_secs(5);
/// How long after the last look at a shell that begins it is looked at again, if it printed nothing.
const SHELL_LOOK: Duration = Duration::from_millis(20);

/// What a caller learns whose time was up before tmux answered.
const NOT_TYPED: &str = "nothing was typed";
const TYPED: &str = "the command was sent, and whether it was or will be typed is not known";

/// Where a command's output lies.
#[derive(Clone, Copy)]
struct Found {
    begin: Option<u64>,
    end: Option<(u64, Option<i32>)>,
    exit: Option<crate::tmux::Exit>,
}

impl Engine {
    /// Runs a command in the shell that rests in a pane. TIMEOUT: `details` holds `output` and `cursor`; the command goes on.
    pub async fn run(&self, host: &Arc<Host>, target: &str, request: &RunRequest) -> Result<RunAnswer> {
        let act = self.act(Tier::Input, "run", host, target)?.typed(|| request.command.as_bytes().to_vec());
        let done = async {
            let timeout =
                duration("timeout_ms", request.timeout_ms, limits::WAIT_LONGEST)?.unwrap_or(limits::WAIT_DEFAULT);
            let command = request.command.trim_end_matches('\n');
            if command.trim().is_empty() {
                return Err(Error::invalid("command: it is empty"));
            }
            if command.len() > limits::COMMAND_BYTES || command.contains('\0') {
                return Err(Error::invalid(format!("command: at most {} bytes, without NUL", limits::COMMAND_BYTES)));
            }
            let begun = Instant::now();
            let deadline = Deadline::new(begun, timeout);
            let pane = deadline.before(NOT_TYPED, self.pane(host, target)).await?;
            act.means(pane.id());
            let alone = Alone::claim(&pane)?;
            let nonce = alone.nonce.as_str();
            let shell = self.resting_shell(host, &pane, deadline).await?;
            let marks = {
                let state = pane.lock();
                state.signs.prompt.is_some_and(|(_, rests)| rests) && state.signs.output_ended.is_some()
            };
            let method = if marks && !command.contains(['\n', '\t']) { RunMethod::Osc133 } else { RunMethod::Sentinel };
            let line = match method {
                RunMethod::Osc133 => format!(" {command}"),
                RunMethod::Sentinel => shell.line(command, nonce)?,
            };
            let typed = input::text_typed(&pane, format!("{}\r", line.replace('\n', "\r")).as_bytes())?;
            let mark = deadline.before(TYPED, self.send(host, &pane, typed)).await?.offset;
            let find = || match method {
                RunMethod::Osc133 => by_prompt_marks(&pane, mark),
                RunMethod::Sentinel => by_nonce(&pane, nonce),
            };
            let left = deadline.left();
            let ended = tokio::select! {
                ended = tokio::time::timeout(left, ended(&pane, &find)) => ended.is_ok(),
                () = self.stopping() => false,
            };
            let found = find();
            let (output, end, truncated) = output(&pane, &found);
            if !ended {
                let stage = if found.begin.is_some() { "running" } else { "typed" };
                let message = format!(
                    "the command did not end within {} ms; it goes on in pane {}",
                    timeout.as_millis(),
                    pane.id()
                );
                return Err(Error::new(ErrorCode::Timeout, message)
                    .at_stage(stage)
                    .with_details(serde_json::json!({ "output": output, "cursor": pane.cursor(end).to_string() })));
            }
            let status = found.end.map_or_else(|| found.exit.and_then(|exit| exit.status), |(_, status)| status);
            Ok(RunAnswer {
                pane: pane.id().to_string(),
                output,
                exit_status: status,
                duration_ms: begun.elapsed().as_millis() as u64,
                cursor: pane.cursor(end).to_string(),
                truncated,
                method,
            })
        }
        .await;
        act.ended(done)
    }

    /// The shell that rests in the pane; one that has only begun is waited for.
    async fn resting_shell(&self, host: &Arc<Host>, pane: &Arc<Pane>, deadline: Deadline) -> Result<Shell> {
        deadline.before(NOT_TYPED, host.server().fresh()).await?;
        let mut changes = pane.changes();
        let rests = async {
            loop {
                changes.borrow_and_update();
                match shell::resting(host, pane.about()).await {
                    Resting::Shell(shell) => return Ok(shell),
                    Resting::Other(what) => return Err(what),
                    Resting::Busy(_) => {}
                }
                // A shell that begins may print its prompt before it takes the terminal over, and nothing tells of that.
                if let Ok(Err(_)) = tokio::time::timeout(SHELL_LOOK, changes.changed()).await {
                    return Err("nothing".into());
                }
            }
        };
        let refused = |what: &str| {
            Error::new(
                ErrorCode::Conflict,
                format!(
                    "no shell rests in pane {}: `{what}` runs there; use send-keys and wait-for, or another pane",
                    pane.id()
                ),
            )
        };
        match tokio::time::timeout(deadline.left().min(SHELL_START), rests).await {
            Ok(Ok(shell)) => Ok(shell),
            Ok(Err(what)) => Err(refused(&what)),
            Err(_) => Err(refused(&pane.about().command)),
        }
    }
}

/// One command at a time in a pane, whose marks are kept meanwhile.
struct Alone {
    pane: Arc<Pane>,
    nonce: String,
}

impl Alone {
    fn claim(pane: &Arc<Pane>) -> Result<Self> {
        let mut state = pane.lock();
        if std::mem::replace(&mut state.runs, true) {
            return Err(Error::new(ErrorCode::Conflict, format!("another run is under way in pane {}", pane.id())));
        }
        let nonce = format!("{:016x}", RandomState::new().hash_one(0));
        state.signs.expect(&nonce);
        Ok(Self { pane: pane.clone(), nonce })
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let mut state = self.pane.lock();
        state.runs = false;
        state.signs.expect_no_more(&self.nonce);
    }
}

/// Resolves when the command or the pane has ended.
async fn ended(pane: &Pane, find: &impl Fn() -> Found) {
    let mut changes = pane.changes();
    loop {
        changes.borrow_and_update();
        let found = find();
        if found.end.is_some() || found.exit.is_some() {
            return;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// By the marks that the typed line makes the shell print.
fn by_nonce(pane: &Pane, nonce: &str) -> Found {
    let state = pane.lock();
    let marks = state.signs.marks(nonce).unwrap_or_default();
    Found { begin: marks.begin, end: marks.end, exit: state.exit.map(|(exit, _)| exit) }
}

/// By the shell's own marks (OSC 133): `C` begins the output, `D` ends it.
fn by_prompt_marks(pane: &Pane, since: u64) -> Found {
    let state = pane.lock();
    let begin = state.signs.output_began.filter(|begin| *begin > since);
    let end = state.signs.output_ended.filter(|(end, _)| begin.is_some_and(|begin| *end >= begin));
    Found { begin, end, exit: state.exit.map(|(exit, _)| exit) }
}

/// What lies between the marks, and whether its beginning was dropped.
fn output(pane: &Pane, found: &Found) -> (String, u64, bool) {
    let state = pane.lock();
    let end = found.end.map_or_else(|| state.ring.end(), |(end, _)| end);
    let Some(begin) = found.begin else { return (String::new(), end, false) };
    let from = begin.max(state.ring.start());
    (render::render_text(&state.ring, from, end), end, from > begin)
}
