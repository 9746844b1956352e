//! The tool `manage_tmux_sessions`: eight actions by which an agent supervises others in tmux
//! (`docs/manage-tmux-sessions.md`).
//!
//! Users' prompts rely on the texts, so each text is kept literally. A human approves each session
//! before it is spawned ([`Confirm`]); spawned sessions are recorded in a file ([`Store`]).

mod arguments;
mod inspect;
mod operate;
mod spawn;
mod state;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use muxtap_engine::{CoverageMode, Lineage, Program, is_absent};
use serde_json::{Map, Value};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use arguments::{DESCRIPTION, NAME, input_schema};
use muxtap_approvals::PlatformEnvironment;
pub use state::State;

use muxtap_api::{Error, ErrorCode};
use muxtap_approvals::{Confirm, Mattermost, store::Store};
use muxtap_engine::{Engine, Server, Target, find_pane};

use arguments::Arguments;

/// The actions, in the order of the tool's listing.
pub const ACTIONS: [&str; 8] = ["list", "capture", "status", "approve", "deny", "send_input", "spawn", "kill"];

/// The error text if tmux is not available.
const NO_TMUX: &str = "Error: tmux is not available";

/// The settings of a supervisor.
pub struct Options {
    /// The tmux server's socket, absolute.
    pub socket: PathBuf,
    /// The caller's directory, absolute: the base of relative directories and the default for
    /// spawned sessions.
    pub directory: PathBuf,
    /// The environment of the tmux process that spawns; `None`: this process's.
    pub environment: Option<BTreeMap<OsString, OsString>>,
    /// The file of spawned sessions.
    pub store: PathBuf,
    /// The channel of the caller, stored with spawned sessions.
    pub channel: Option<String>,
    /// The thread of the caller, stored with spawned sessions.
    pub thread: Option<String>,
    /// The ways to ask a human before a session is spawned: the first one that is available
    /// decides.
    pub confirm: Vec<Arc<dyn Confirm>>,
    /// The time limit for a human's answer; after it the answer is no.
    pub answer_timeout: Duration,
}

/// The tool. Clones share one supervisor.
#[derive(Clone)]
pub struct Supervisor {
    shared: Arc<Shared>,
    /// The calling process, if known.
    asker: Option<Lineage>,
}

struct Shared {
    engine: Engine,
    options: Options,
    store: Store,
    /// Cancelled when the process ends: open questions are withdrawn.
    stop: CancellationToken,
    /// Questions and the spawns that follow them; these tasks outlive their caller.
    tasks: TaskTracker,
}

impl Supervisor {
    /// Creates a supervisor of one tmux server. Must be called within a tokio runtime.
    pub fn new(engine: Engine, options: Options) -> Self {
        let store = Store::new(&options.store);
        let stop = engine.end().child_token();
        let shared = Shared { engine, options, store, stop, tasks: TaskTracker::new() };
        Self { shared: Arc::new(shared), asker: None }
    }

    /// Returns a handle of the same supervisor for calls by this process.
    pub fn called_by(&self, asker: Option<Lineage>) -> Self {
        Self { shared: self.shared.clone(), asker }
    }

    /// Calls the tool and returns its result, one text. Errors are texts too and begin with
    /// `Error: `. Dropping the future withdraws an open question.
    pub async fn call(&self, arguments: Map<String, Value>) -> String {
        self.call_asking(arguments, &[]).await
    }

    /// Calls the tool for a caller that has its own ways to ask a human (MCP's elicitation); these
    /// come before the supervisor's.
    pub async fn call_asking(&self, arguments: Map<String, Value>, first: &[Arc<dyn Confirm>]) -> String {
        let arguments = Arguments::new(&arguments);
        let Some(action) = arguments.action() else {
            return format!("Error: action is required ({})", ACTIONS.join(", "));
        };
        if !ACTIONS.contains(&action.as_str()) {
            return format!("Error: unknown action '{action}'. Valid: {}", ACTIONS.join(", "));
        }
        let server = match self.shared.engine.server_at(&self.shared.options.socket) {
            Ok(server) => server,
            Err(error) => return error_text(&error),
        };
        if !self.is_installed(&server) {
            return NO_TMUX.into();
        }
        let target = || arguments.target().ok_or_else(|| format!("Error: target is required for {action}"));
        let answer = match action.as_str() {
            "list" => self.list(&server).await,
            "spawn" => self.spawn(&server, &arguments, first).await,
            action => match target() {
                Err(missing) => Err(missing),
                Ok(target) => match action {
                    "capture" => self.capture(&server, &target, arguments.lines()).await,
                    "status" => self.status(&server, &target).await,
                    "approve" => self.approve(&server, &target).await,
                    "deny" => self.deny(&server, &target).await,
                    "send_input" => self.send_input(&server, &target, arguments.text()).await,
                    _ => self.kill(&server, &target).await,
                },
            },
        };
        answer.unwrap_or_else(|error| error)
    }

    /// Creates a supervisor that behaves like the first implementation: for the tmux server on
    /// `socket`, with this process's environment and directory, humans in Mattermost, and its own
    /// engine.
    ///
    /// Must be called within a tokio runtime of one thread, in the program `muxtap` itself: its
    /// control clients end with that thread.
    pub fn compatible(tmux: PathBuf, socket: PathBuf, environment: PlatformEnvironment) -> std::io::Result<Self> {
        let PlatformEnvironment { platform, answer_timeout, store } = environment;
        // As a guest, muxtap creates no session of its own, regardless of how the server was
        // started.
        let coverage = CoverageMode::Used;
        let program = Program { tmux, ..Program::default() };
        let engine = Engine::new(muxtap_engine::Options { program, coverage, ..muxtap_engine::Options::default() });
        let options = Options {
            socket,
            directory: std::env::current_dir()?,
            environment: None,
            store,
            channel: Some(platform.channel.clone()),
            thread: Some(platform.thread.clone()),
            confirm: vec![Arc::new(Mattermost::new(platform))],
            answer_timeout,
        };
        Ok(Self::new(engine, options))
    }

    /// Returns the supervisor's engine.
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// Withdraws open questions and waits until all of them are removed everywhere. Called when the
    /// process ends (also by SIGTERM); the engine runs until it is stopped separately.
    pub async fn stop(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    fn is_installed(&self, server: &Server) -> bool {
        let path = match &self.shared.options.environment {
            Some(environment) => environment.get(std::ffi::OsStr::new("PATH")).cloned(),
            None => std::env::var_os("PATH"),
        };
        server.link().spec().is_installed(path.as_deref())
    }

    /// Resolves a directory relative to the caller's.
    fn directory(&self, named: &str) -> PathBuf {
        Path::new(&self.shared.options.directory).join(named)
    }
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").field("socket", &self.shared.options.socket).finish_non_exhaustive()
    }
}

/// Returns the text of an error that the contract does not list.
fn error_text(error: &Error) -> String {
    match error.code {
        ErrorCode::ReadOnly => format!("Error: {}", error.message),
        _ => format!("Error: tmux command failed: {}", error.message),
    }
}

/// Returns the text of an error about a target.
fn target_error_text(error: &Error, target: &str) -> String {
    let gone = matches!(error.code, ErrorCode::NotFound | ErrorCode::InvalidTarget) || is_absent(error);
    if gone { format!("Error: session/pane '{target}' not found") } else { error_text(error) }
}

/// Converts a target to the engine's syntax. A bare number is a session's name (tmux names its
/// first sessions so), not a pane. A closed pane is not found, although the engine still keeps its
/// output. Error: `NOT_FOUND`.
async fn engine_target(server: &Server, target: &str) -> Result<String, Error> {
    if target.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(format!("{target}:"));
    }
    match target.parse()? {
        pane @ Target::Pane(_) => {
            find_pane(&server.link().fresh().await?.without_hubs(), &pane)?;
        }
        Target::Name(session) => return Ok(format!("{session}:")),
        // A supervisor has no current pane, window or session.
        relative if relative.is_relative() => return Err(Error::not_found(format!("no {target}"))),
        _ => {}
    }
    Ok(target.to_owned())
}
