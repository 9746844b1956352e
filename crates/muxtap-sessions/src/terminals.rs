//! An agent's terminals: panes of tmux, which can be watched, waited for and captured like any
//! other.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use muxtap_api::{AgentTerminal, Error, ErrorCode, Result, Since};
use muxtap_engine::{Engine, Exit, Pane, Server, is_absent, perhaps_made};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::stored::StoredPath;

/// The maximum number of a session's open terminals.
pub(super) const OPEN_TERMINALS: usize = 32;
/// The default and the maximum size of a terminal's output for an agent, in bytes.
pub(super) const OUTPUT_BYTES: usize = 1 << 20;

/// The terminals of a session.
#[derive(Debug)]
pub(super) struct Terminals {
    server: Server,
    /// The tmux session of the terminals, made with the first one.
    home: String,
    /// Held while a terminal is made: two at once must not both make that session.
    making: tokio::sync::Mutex<()>,
    all: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    open: BTreeMap<String, Terminal>,
    /// The number of terminals that are being made.
    making: usize,
    last: u64,
    /// Whether the session has ended, and no more terminals are made.
    closed: bool,
}

#[derive(Clone, Debug)]
struct Terminal {
    pane: Pane,
    limit: usize,
}

/// The terminals of a session, stored for the daemon that replaces this one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredTerminals {
    socket: StoredPath,
    home: String,
    open: Vec<StoredTerminal>,
    last: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredTerminal {
    id: String,
    /// The pane's key.
    pane: String,
    limit: usize,
}

/// The parameters of `terminal/create`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TerminalRequest {
    command: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<Variable>,
    cwd: Option<String>,
    output_byte_limit: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Variable {
    name: String,
    value: String,
}

impl Terminals {
    /// Creates the terminals of a session, in a tmux session of this name.
    pub(super) fn new(server: Server, home: String) -> Self {
        Self { server, home, making: tokio::sync::Mutex::default(), all: Mutex::default() }
    }

    /// Stores the terminals, of which none is being made.
    pub(super) fn store(&self) -> StoredTerminals {
        let all = self.all();
        let open = all.open.iter().map(|(id, terminal)| StoredTerminal {
            id: id.clone(),
            pane: terminal.pane.key(),
            limit: terminal.limit,
        });
        let open = open.collect();
        StoredTerminals {
            socket: self.server.socket().to_owned().into(),
            home: self.home.clone(),
            open,
            last: all.last,
        }
    }

    /// Continues in an engine that has taken over the panes. A terminal whose pane was not taken
    /// over is unknown from then on. Error: the server is unknown there.
    pub(super) fn restore(stored: StoredTerminals, engine: &Engine) -> Result<Self> {
        let StoredTerminals { socket, home, open, last } = stored;
        let terminals = Self::new(engine.server_at(&PathBuf::from(socket))?, home);
        let open = open.into_iter().filter_map(|StoredTerminal { id, pane, limit }| {
            let found = engine.pane_of_key(&pane);
            if found.is_none() {
                tracing::warn!("the pane {pane} of terminal {id} of an agent was not taken over");
            }
            Some((id, Terminal { pane: found?, limit }))
        });
        let open = open.collect();
        *terminals.all() = Table { open, making: 0, last, closed: false };
        Ok(terminals)
    }

    /// Returns the pids of the processes that the terminals started with.
    pub(super) fn pids(&self) -> Vec<u32> {
        let panes: Vec<Pane> = self.all().open.values().map(|terminal| terminal.pane.clone()).collect();
        panes.iter().map(|pane| pane.info().pid).filter(|pid| *pid > 0).collect()
    }

    /// Makes a terminal. Must be called in the engine's runtime. Errors: as a new window's;
    /// `RESOURCE_LIMIT`.
    pub(super) async fn create(&self, request: TerminalRequest, cwd: &str) -> Result<AgentTerminal> {
        {
            let mut all = self.all();
            if all.closed {
                return Err(Error::new(ErrorCode::Conflict, "the session has ended"));
            }
            if all.open.len() + all.making >= OPEN_TERMINALS {
                let message = format!("too many terminals: at most {OPEN_TERMINALS} can be open; release one first");
                return Err(Error::new(ErrorCode::ResourceLimit, message));
            }
            all.making += 1;
        }
        let made = self.make(&request, cwd).await;
        let (socket, limit) = (self.server.socket().display().to_string(), request.output_byte_limit);
        let pane = {
            let mut all = self.all();
            all.making -= 1;
            let pane = made?;
            if !all.closed {
                all.last += 1;
                let id = format!("t{}", all.last);
                let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(OUTPUT_BYTES);
                let number = pane.id();
                all.open.insert(id.clone(), Terminal { pane, limit: limit.min(OUTPUT_BYTES) });
                return Ok(AgentTerminal::new(id, number, socket));
            }
            pane
        };
        let _ = pane.kill_own().await;
        Err(Error::new(ErrorCode::Conflict, "the session has ended"))
    }

    async fn make(&self, request: &TerminalRequest, cwd: &str) -> Result<Pane> {
        let _making = self.making.lock().await;
        let spawn = |spawn: muxtap_engine::Spawn| {
            // Agents that pass no arguments pass a shell command line.
            let spawn = if request.args.is_empty() {
                spawn.shell_command(&request.command)
            } else {
                spawn.command(std::iter::once(&request.command).chain(&request.args))
            };
            let spawn = spawn.cwd(request.cwd.as_deref().unwrap_or(cwd)).keep();
            request.env.iter().fold(spawn, |spawn, variable| spawn.env(&variable.name, &variable.value))
        };
        let made = match spawn(self.server.new_window(format!("={}:", self.home))).await {
            // The session does not exist: this is the first terminal, or the last window was
            // closed. If a window may have been made, no second one is made.
            Err(error) if !perhaps_made(&error) && (error.code == ErrorCode::NotFound || is_absent(&error)) => {
                spawn(self.server.new_session().name(&self.home)).await
            }
            made => made,
        };
        made.map_err(|error| if perhaps_made(&error) { self.unknown(&error) } else { error })
    }

    /// Returns the error for a terminal that may exist without being known.
    fn unknown(&self, cause: &Error) -> Error {
        let home = &self.home;
        let message = format!(
            "unknown whether the terminal was created ({cause}): if it was, it is in the tmux session {home}; \
             kill-session -t ={home} ends it"
        );
        Error::new(ErrorCode::InconsistentState, message).with_details(json!({ "session": home, "cause": cause }))
    }

    /// Returns a terminal's output, and its program's exit status, as a result of
    /// `terminal/output`.
    pub(super) async fn output(&self, id: &str) -> Result<Value> {
        let Terminal { pane, limit } = self.find(id)?;
        let exit = pane.exit();
        let output = pane.read().since(Since::Start).at_most(8 << 20).await?;
        let mut text = output.text();
        let mut truncated = output.gap.is_some();
        if text.len() > limit {
            let from = (text.len() - limit..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
            text.drain(..from);
            truncated = true;
        }
        Ok(json!({ "output": text, "truncated": truncated, "exitStatus": exit.map(status) }))
    }

    /// Waits until a terminal's program has ended; returns its status as a result of
    /// `terminal/wait_for_exit`.
    pub(super) async fn ended(&self, id: &str) -> Result<Value> {
        let Terminal { pane, .. } = self.find(id)?;
        let mut changes = pane.changes();
        loop {
            if let Some(exit) = pane.exit() {
                return Ok(status(exit));
            }
            changes.changed().await.map_err(|_| Error::unavailable("muxtap is stopping"))?;
        }
    }

    /// Ends a terminal's program. Its output stays readable.
    pub(super) async fn kill(&self, id: &str) -> Result<()> {
        let Terminal { pane, .. } = self.find(id)?;
        if pane.exit().is_none() { pane.kill_own().await } else { Ok(()) }
    }

    /// Ends a terminal's program, closes the pane, and forgets the terminal.
    pub(super) async fn release(&self, id: &str) -> Result<()> {
        let Terminal { pane, .. } = self.find(id)?;
        close(&pane).await?;
        self.all().open.remove(id);
        Ok(())
    }

    /// Closes every terminal, and prevents new ones.
    pub(super) async fn close_all(&self) {
        let open = {
            let mut all = self.all();
            all.closed = true;
            std::mem::take(&mut all.open)
        };
        for terminal in open.values() {
            // Each of them would take tmux's own timeout if tmux does not respond.
            if close(&terminal.pane).await.is_err_and(|error| error.code == ErrorCode::TmuxUnavailable) {
                return;
            }
        }
    }

    /// Lists the terminals.
    pub(super) fn list(&self) -> Vec<AgentTerminal> {
        let socket = self.server.socket().display().to_string();
        let all = self.all();
        all.open
            .iter()
            .map(|(id, terminal)| AgentTerminal::new(id.clone(), terminal.pane.id(), socket.clone()))
            .collect()
    }

    fn find(&self, id: &str) -> Result<Terminal> {
        let found = self.all().open.get(id).cloned();
        found.ok_or_else(|| Error::not_found(format!("unknown terminal {id:?}")))
    }

    fn all(&self) -> MutexGuard<'_, Table> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes a pane, if it still exists.
async fn close(pane: &Pane) -> Result<()> {
    match pane.kill_own().await {
        // A server ends with its last pane.
        Err(error) if error.code == ErrorCode::NotFound || is_absent(&error) => Ok(()),
        closed => closed,
    }
}

/// Returns how a program ended, as the protocol has it: its exit code, or the name of the signal.
fn status(exit: Exit) -> Value {
    let name =
        |signal: i32| signal_hook::low_level::signal_name(signal).map_or_else(|| format!("SIG{signal}"), Into::into);
    let signal = exit.signal.map(name);
    let code = exit.status.and_then(|code| u32::try_from(code).ok()).filter(|_| signal.is_none());
    json!({ "exitCode": code, "signal": signal })
}
