//! Commands about terminals: class P. Each uses the engine directly, by the routes of all commands.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{ArgGroup, Subcommand};
use muxtap_engine::{
    elsewhere::{default_server, is_on},
    made_pane, perhaps_made,
};
use muxtap_tmux::{Address, DEFAULT_SOCKET, is_absent, is_secret, same_socket};
use serde::Serialize;
use serde_json::json;

use super::{Context, TerminalArgs, duration, output::table, text, times};

use muxtap_devices::{
    hybrid::{NotMade, Terminals},
    workspace::{ContentRef, Pane, Selector, TerminalId, TerminalServer},
};

use crate::{
    api::{
        CaptureAnswer, CaptureRequest, CreatedAnswer, DoneAnswer, Error, ErrorCode, FormatAnswer, FormatListQuery,
        InputAnswer, InputRequest, Listed, NewSessionRequest, NewWindowRequest, PaneInfo, PaneList, PatchRequest,
        RespawnRequest, Result, SpawnRequest, WaitAnswer, WaitOutcome, WaitRequest,
    },
    cli::{
        EXIT_FAILED, EXIT_INTERRUPTED, Outcome,
        caller::{Caller, whole_environment},
        client::{self, ConnectionLost},
        commands::{listed, path_of, wait_for},
        output,
    },
};

#[derive(Debug, Subcommand)]
pub(super) enum TerminalCommand {
    /// List terminals, the panes of the tmux server
    ListTerminals,
    /// Type into a terminal
    SendKeys {
        #[command(flatten)]
        terminal: TerminalArgs,
        /// Type the words literally
        #[arg(short = 'l')]
        literal: bool,
        /// Key names (`Enter`, `C-c`, `Up`) or text
        #[arg(value_name = "KEYS", trailing_var_arg = true)]
        keys: Vec<String>,
    },
    /// Print a terminal's screen
    CapturePane {
        #[command(flatten)]
        terminal: TerminalArgs,
        /// First line: 0 is the first visible line, negative numbers count into the history, `-` is
        /// its start
        #[arg(short = 'S', value_name = "START", allow_hyphen_values = true)]
        start: Option<String>,
        /// Join wrapped lines
        #[arg(short = 'J')]
        join: bool,
        /// Keep colors and attributes
        #[arg(short = 'e')]
        escapes: bool,
    },
    /// Wait until a terminal meets all conditions
    #[command(group(ArgGroup::new("predicate").multiple(true).args(["patterns", "stable", "exit", "prompt"])))]
    WaitFor {
        #[command(flatten)]
        terminal: TerminalArgs,
        /// Wait until a line of the output matches this regex
        #[arg(short = 'p', long = "pattern", value_name = "PATTERN", allow_hyphen_values = true)]
        patterns: Vec<String>,
        /// Wait until nothing was printed for this long: seconds, or with a unit
        #[arg(long, value_name = "TIME", value_parser = duration)]
        stable: Option<u64>,
        /// Wait until the process has ended
        #[arg(long)]
        exit: bool,
        /// Wait until a shell waits for a command, as far as known
        #[arg(long)]
        prompt: bool,
        /// Time out after this long, with exit status 124 (default: 30 s)
        #[arg(short = 'T', long, value_name = "TIMEOUT", value_parser = duration)]
        timeout: Option<u64>,
    },
    /// Restart a terminal's program
    RespawnTerminal {
        #[command(flatten)]
        terminal: TerminalArgs,
    },
    /// Kill a terminal and its process
    KillTerminal {
        #[command(flatten)]
        terminal: TerminalArgs,
    },
}

impl TerminalCommand {
    pub(super) async fn run(self, context: &Context<'_>) -> Outcome {
        match self {
            Self::ListTerminals => list(context).await,
            Self::SendKeys { terminal, literal, keys } => {
                let at = find(context, &terminal).await?;
                let request = if literal {
                    InputRequest { text: Some(keys.concat()), ..InputRequest::default() }
                } else {
                    InputRequest { keys: Some(keys), ..InputRequest::default() }
                };
                let path = format!("{}/input", path_of("panes", &at.target));
                let answer: InputAnswer = at.caller.client().await?.post(&path, &request).await?;
                let answer = json!({ "terminalId": at.id, "cursor": answer.cursor });
                context.print(&answer, |_| String::new())
            }
            Self::CapturePane { terminal, start, join, escapes } => {
                let at = find(context, &terminal).await?;
                let request = CaptureRequest { start, join, escapes, ..CaptureRequest::default() };
                let path = format!("{}/capture", path_of("panes", &at.target));
                let answer: CaptureAnswer = at.caller.client().await?.get(&path, &request).await?;
                if !context.caller.json && escapes {
                    output::print_raw(&answer.text)?;
                    return Ok(0);
                }
                context.print(&json!({ "terminalId": at.id, "text": answer.text }), |_| answer.text.clone())
            }
            Self::WaitFor { terminal, patterns, stable, exit, prompt, timeout } => {
                let request = WaitRequest {
                    patterns,
                    stable_ms: stable,
                    exit,
                    prompt,
                    timeout_ms: timeout,
                    detach: false,
                    ..WaitRequest::default()
                };
                if let Selector::Session { .. } = Selector::parse(&terminal.target)? {
                    return wait_for_session(context, terminal.target, request).await;
                }
                wait(context, &terminal, request).await
            }
            Self::RespawnTerminal { terminal } => {
                let at = find(context, &terminal).await?;
                respawn(context, &at.id).await.map_err(Error::from)?;
                context.print(&json!({ "terminalId": at.id }), |_| String::new())
            }
            Self::KillTerminal { terminal } => {
                let at = find(context, &terminal).await?;
                let _: DoneAnswer = at.caller.client().await?.delete(&path_of("panes", &at.target)).await?;
                context.print(&json!({ "terminalId": at.id }), |_| String::new())
            }
        }
    }
}

/// A terminal, in the form that the engine accepts.
struct Located {
    /// Its id, as a workspace has it.
    id: String,
    /// The target on the selected server.
    target: String,
    caller: Caller,
}

/// Returns the terminal that a pane shows. Error: `INVALID_TARGET`.
pub(super) fn terminal_of(pane: &Pane) -> Result<String> {
    match &pane.content_ref {
        Some(ContentRef::TerminalId(id)) => Ok(id.clone()),
        _ => Err(Error::new(ErrorCode::InvalidTarget, format!("pane:{} shows no terminal", pane.id))),
    }
}

/// Finds the terminal that a command selects; for a pane, queries its owner.
async fn find(context: &Context<'_>, terminal: &TerminalArgs) -> Result<Located> {
    match Selector::parse(&terminal.target)? {
        Selector::Terminal(id) => locate_named(context, &id),
        Selector::Pane(_) => {
            let layout = context.owner(terminal.device.device.as_deref())?.layout().await?;
            locate(context, &terminal_of(layout.find_pane(&terminal.target, None)?)?)
        }
        _ => {
            let message = format!("{} is not a terminal: expected terminal:ID, or pane:ID", terminal.target);
            Err(Error::new(ErrorCode::InvalidTarget, message))
        }
    }
}

/// Finds the terminal of an id from the command line. Error: `INVALID_TARGET` if `-S` or `-L` names
/// another server than the id: neither choice of the user may be ignored.
fn locate_named(context: &Context<'_>, id: &str) -> Result<Located> {
    let at = locate(context, id)?;
    let caller = context.caller;
    if caller.server_is_named && !is_same(&at.caller.server, &caller.server) {
        let message = format!(
            "terminal:{id} is on the tmux server {}, but -S or -L names {}: omit the option, or use the id that \
             list-terminals prints for that server",
            at.caller.server.display(),
            caller.server.display()
        );
        return Err(Error::new(ErrorCode::InvalidTarget, message));
    }
    Ok(at)
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (Address::parse(one), Address::parse(other)) {
        (Ok(Address::Here(one)), Ok(Address::Here(other))) => same_socket(one, other),
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

/// Returns where a terminal is. Only the id decides: the caller's own server and `-S` do not count.
fn locate(context: &Context<'_>, id: &str) -> Result<Located> {
    let TerminalId { server, pane } = TerminalId::parse(id)?;
    let caller = context.caller;
    let named = |name: &str| caller.sockets.as_ref().map(|sockets| sockets.join(name));
    if caller.remote.is_some() {
        // The daemon of the other machine knows its servers by name; without one it uses its default.
        let server = match server {
            TerminalServer::Default => "",
            TerminalServer::Named(name) | TerminalServer::At(name) => name,
        };
        return Ok(Located { id: id.to_owned(), target: pane.to_owned(), caller: caller.on_server(server.into()) });
    }
    let (server, target) = match server {
        TerminalServer::Default => (named(DEFAULT_SOCKET).ok_or_else(|| no_sockets(id))?, pane.to_owned()),
        TerminalServer::Named(name) => match named(name).filter(|socket| socket.exists()) {
            Some(socket) => (socket, pane.to_owned()),
            None => (PathBuf::from(default_server(name)), pane.to_owned()),
        },
        TerminalServer::At(address) => (PathBuf::from(address), pane.to_owned()),
    };
    Ok(Located { id: id.to_owned(), target, caller: caller.on_server(server) })
}

fn no_sockets(id: &str) -> Error {
    Error::new(ErrorCode::InvalidTarget, format!("terminal:{id}: no directory of tmux sockets on this host"))
}

/// Returns the terminal id of a pane on the selected server, valid from everywhere. Error:
/// `INVALID_TARGET` if no id can name that server.
fn id_on(caller: &Caller, pane: &str) -> Result<String> {
    let server = caller.server.as_path();
    let file = server.file_name().and_then(|name| name.to_str());
    let in_sockets = |name: &str| caller.sockets.as_ref().is_some_and(|dir| is_same(server, &dir.join(name)));
    let id = match file.filter(|_| server.is_absolute()) {
        _ if caller.remote.is_some() => match server.to_str() {
            None | Some("" | DEFAULT_SOCKET) => pane.to_owned(),
            Some(server) => format!("{server}/{pane}"),
        },
        Some(_) if in_sockets(DEFAULT_SOCKET) => pane.to_owned(),
        Some(name) if in_sockets(name) && TerminalId::parse(&format!("{name}/{pane}")).is_ok() => {
            format!("{name}/{pane}")
        }
        _ => match Address::parse(server) {
            Ok(Address::Elsewhere(host, name)) => format!("{host}/{name}/{pane}"),
            _ => format!("{}/{pane}", server.display()),
        },
    };
    let refuse = |_| {
        let message = format!("no terminal:ID can name a pane of the tmux server {}", server.display());
        Error::new(ErrorCode::InvalidTarget, message)
    };
    TerminalId::parse(&id).map_err(refuse)?;
    Ok(id)
}

/// Returns the terminal id of a listed pane. `None`: no id can name it. A list can have panes of other
/// hosts.
pub(in crate::cli) fn id_of(caller: &Caller, pane: &PaneInfo) -> Option<String> {
    match &pane.host {
        Some(host) if !is_on(&caller.server, host) => Some(format!("{}/{}", default_server(host), pane.id)),
        _ => id_on(caller, &pane.id.to_string()).ok(),
    }
}

/// Checks that a terminal exists. Error: `NOT_FOUND`.
pub(super) async fn check_lives(context: &Context<'_>, selector: &str) -> Result<()> {
    let Selector::Terminal(id) = Selector::parse(selector)? else {
        let message = format!("{selector} is not a terminal: expected terminal:ID");
        return Err(Error::new(ErrorCode::InvalidTarget, message));
    };
    let at = locate_named(context, &id)?;
    let list: PaneList = at.caller.client().await?.get("/v1/panes", &listed(std::slice::from_ref(&at.target))?).await?;
    if list.panes.iter().any(|pane| !pane.dead) {
        return Ok(());
    }
    Err(Error::not_found(format!("no terminal {selector}; list-terminals shows what is there")))
}

/// The failure to restart a terminal.
pub(super) enum NotStarted {
    /// The previous program continues.
    Refused(Error),
    /// Unknown whether the program was started.
    Unknown(Error),
}

/// Restarts the program of a terminal.
pub(super) async fn respawn(context: &Context<'_>, id: &str) -> std::result::Result<(), NotStarted> {
    let at = locate(context, id).map_err(NotStarted::Refused)?;
    let respawn = Some(RespawnRequest { kill: true, spawn: SpawnRequest::default() });
    let request = PatchRequest { respawn, ..PatchRequest::default() };
    let mut client = at.caller.client().await.map_err(NotStarted::Refused)?;
    match client.try_patch::<DoneAnswer>(&path_of("panes", &at.target), &request).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) if !perhaps_made(&error) => Err(NotStarted::Refused(error)),
        Ok(Err(error)) | Err(ConnectionLost(error)) => Err(NotStarted::Unknown(error)),
    }
}

impl From<NotStarted> for Error {
    fn from(not_started: NotStarted) -> Self {
        match not_started {
            NotStarted::Refused(error) => error,
            NotStarted::Unknown(mut error) => {
                error.message.push_str(client::PERHAPS_DONE);
                error
            }
        }
    }
}

async fn list(context: &Context<'_>) -> Outcome {
    let list: PaneList = context.caller.client().await?.get("/v1/panes", &listed(&[])?).await?;
    let is_here = context.caller.is_local();
    // Before any output: an id that another command would resolve to another terminal is invalid.
    id_on(context.caller, "%0")?;
    let terminal = |pane: &PaneInfo| {
        let pid = Some(pane.pid).filter(|pid| is_here && pane.host.is_none() && !pane.dead && *pid > 0);
        json!({
            "terminalId": id_of(context.caller, pane),
            "mode": pane.command,
            "status": if pane.dead { "exited" } else { "running" },
            "exitStatus": pane.exit_status,
            "title": pane.title,
            "session": pane.session,
            "window": pane.window,
            "cwd": pane.path,
            "bufferRef": pane.cursor,
            // Processes of other machines are unknown here.
            "createdAt": pid.and_then(times::created),
            "lastActivityAt": pid.and_then(times::used),
        })
    };
    let answer = json!({ "terminals": list.panes.iter().map(terminal).collect::<Vec<_>>() });
    context.print(&answer, |answer| {
        table(
            answer,
            "terminals",
            [
                ("TERMINAL", |one| format!("terminal:{}", text(one, "terminalId"))),
                ("STATUS", |one| text(one, "status").to_owned()),
                ("RUNS", |one| text(one, "mode").to_owned()),
                ("SESSION", |one| format!("{}:{}", text(one, "session"), text(one, "window"))),
            ],
        )
    })
}

async fn wait(context: &Context<'_>, terminal: &TerminalArgs, request: WaitRequest) -> Outcome {
    check_predicates(!request.patterns.is_empty() || request.stable_ms.is_some() || request.exit || request.prompt)?;
    let at = find(context, terminal).await?;
    let request = WaitRequest { panes: vec![at.target.clone()], ..request };
    let Some(answer) = wait_for::ask(&at.caller, &request).await? else { return Ok(EXIT_INTERRUPTED) };
    let predicates = serde_json::to_value(&answer.predicates).unwrap_or_default();
    match answer.outcome {
        WaitOutcome::Matched => {
            let answer_json = json!({ "terminalId": at.id, "outcome": answer.outcome, "predicates": predicates });
            context.print(&answer_json, |_| wait_for::matched_lines(&answer))
        }
        WaitOutcome::Timeout | WaitOutcome::Pending => {
            let met = answer.predicates.iter().filter(|report| report.latched).count();
            let message = format!("timeout: {met} of {} conditions were met", answer.predicates.len());
            Err(Error::new(ErrorCode::Timeout, message).with_details(json!({ "predicates": predicates })).into())
        }
        _ => {
            let answer = json!({ "terminalId": at.id, "outcome": answer.outcome, "predicates": predicates });
            context.print(&answer, |_| "the terminal ended first\n".into())?;
            Ok(EXIT_FAILED)
        }
    }
}

/// Waits for an agent session, with the conditions that it shares with terminals.
async fn wait_for_session(context: &Context<'_>, target: String, request: WaitRequest) -> Outcome {
    let WaitRequest { patterns, stable_ms, exit, prompt, timeout_ms, .. } = request;
    if prompt {
        return Err(
            Error::invalid("--prompt: an agent session has no shell; session-wait --idle waits for its end").into()
        );
    }
    check_predicates(!patterns.is_empty() || stable_ms.is_some() || exit)?;
    super::super::agent_session::SessionWait::of(target, patterns, stable_ms, exit, timeout_ms)
        .run(context.caller)
        .await
}

/// Error: `INVALID_ARGUMENT` for a wait without a condition.
fn check_predicates(any: bool) -> Result<()> {
    if any { Ok(()) } else { Err(Error::invalid("missing condition: expected -p, --stable, --exit or --prompt")) }
}

/// A terminal to create.
#[derive(Clone, Debug, Default)]
pub(super) struct NewTerminal {
    pub(super) shell: Option<String>,
    pub(super) cwd: Option<String>,
}

impl NewTerminal {
    /// Makes the directory absolute, and checks that the program exists. Error: `INVALID_ARGUMENT`.
    ///
    /// On another host's server neither can be checked here.
    pub(super) fn check(&mut self, caller: &Caller) -> Result<()> {
        if let Some(cwd) = self.cwd.as_mut().filter(|_| caller.remote.is_none()) {
            let path = std::path::absolute(&cwd).map_err(|error| Error::invalid(format!("--cwd {cwd}: {error}")))?;
            if !path.is_dir() {
                return Err(Error::invalid(format!("--cwd {cwd}: no such directory")));
            }
            let text = path.into_os_string().into_string();
            *cwd = text.map_err(|_| Error::invalid("--cwd: the path is not valid UTF-8"))?;
        }
        let Some(shell) = self.shell.as_deref() else { return Ok(()) };
        if shell.trim().is_empty() || shell.contains('\0') {
            return Err(Error::invalid("--shell: expected a command"));
        }
        let directory = self.directory(caller).map(PathBuf::from).unwrap_or_default();
        match program_of(shell).filter(|word| caller.is_local() && word.contains('/')) {
            Some(word) => check_program(word, &directory),
            None => Ok(()),
        }
    }

    /// Returns the directory in which the terminal starts, where known.
    pub(super) fn directory(&self, caller: &Caller) -> Option<String> {
        if caller.remote.is_some() {
            return self.cwd.clone();
        }
        let own = || std::env::current_dir().ok().and_then(|dir| dir.into_os_string().into_string().ok());
        self.cwd.clone().or_else(own)
    }

    /// Builds the request that creates it in the tmux session named after a device.
    pub(super) fn maker<'a>(self, context: &'a Context<'a>, device: &str) -> Maker<'a> {
        let session = format!("device-{}", device.replace(['.', '@'], "_"));
        let is_here = context.caller.remote.is_none();
        let own = self.directory(context.caller).filter(|_| is_here);
        let sought = self.shell.as_deref().and_then(|shell| sought(shell, context.caller.is_local(), is_found));
        let mut env: BTreeMap<String, String> = whole_environment();
        env.retain(|name, _| !is_secret(name));
        let spawn = SpawnRequest {
            command: self.shell.map(|shell| vec![shell]),
            caller_cwd: own.filter(|_| self.cwd.is_none()),
            cwd: self.cwd,
            // This machine's environment means nothing to the other one.
            caller_env: is_here.then_some(env),
            ..SpawnRequest::default()
        };
        Maker { caller: context.caller, session, spawn, sought, tmux_path: None }
    }
}

/// Returns the program of a shell command line, if its first word is plain: a shell would not change
/// it.
fn program_of(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("exec ").unwrap_or(line).trim_start();
    let end = line.find(|letter: char| letter.is_whitespace() || ";|&<>()".contains(letter)).unwrap_or(line.len());
    let word = line.get(..end).unwrap_or_default();
    let is_plain = |letter: char| !"\"'$`\\*?[]{}~=#!".contains(letter);
    Some(word).filter(|word| !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain))
}

/// A program that this process does not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sought {
    /// The program is not in this machine's `PATH`.
    Absent,
    /// The program is on another machine.
    Elsewhere,
}

/// The usual builtins of shells, which need no program.
const BUILTINS: [&str; 42] = [
    ".", ":", "alias", "bg", "break", "builtin", "cd", "command", "continue", "declare", "echo", "eval", "exec",
    "exit", "export", "false", "fg", "getopts", "hash", "history", "jobs", "kill", "let", "local", "printf", "pwd",
    "read", "readonly", "return", "set", "shift", "source", "test", "times", "trap", "true", "type", "typeset",
    "ulimit", "umask", "unset", "wait",
];

/// Returns where the program of a command line may be missing. `None`: this process finds it, or the
/// line is more than a program and its arguments, so its status can be that of anything else.
fn sought(line: &str, is_local: bool, is_found: impl Fn(&str) -> bool) -> Option<Sought> {
    let word = program_of(line).filter(|word| !BUILTINS.contains(word))?;
    if line.trim().contains(|letter: char| ";|&<>()`$\n".contains(letter)) {
        return None;
    }
    match is_local {
        true if is_found(word) => None,
        true => Some(Sought::Absent),
        false => Some(Sought::Elsewhere),
    }
}

/// Checks that a program's file exists and can be run. Error: `INVALID_ARGUMENT`.
fn check_program(word: &str, directory: &Path) -> Result<()> {
    let path = directory.join(word);
    let refuse = |why: &str| Err(Error::invalid(format!("--shell {word}: {why}")));
    match std::fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => refuse("no such program"),
        Err(error) => refuse(&error.to_string()),
        Ok(found) if found.is_dir() => refuse("a directory, not a program"),
        Ok(_) if rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).is_err() => refuse("not executable"),
        Ok(_) => Ok(()),
    }
}

/// Returns whether a word is a program in this process's `PATH`, or has its own path.
fn is_found(word: &str) -> bool {
    word.contains('/') || std::env::var_os("PATH").is_some_and(|path| is_in(word, &path))
}

fn is_in(word: &str, path: &std::ffi::OsStr) -> bool {
    std::env::split_paths(path).any(|dir| check_program(word, &dir).is_ok())
}

/// A shell's exit statuses for a program that it cannot run, and for one that does not exist.
const NOT_RUN: i32 = 126;
const NO_PROGRAM: i32 = 127;
/// What shells print about such a program.
const SHELL_ERROR: &str = "(?i)not found|no such file|permission denied|cannot execute|unknown command";
/// How long a program that was not found may take to fail.
const FAIL_TIME: Duration = Duration::from_secs(1);

/// Creates a terminal in the device's own session.
pub(super) struct Maker<'a> {
    caller: &'a Caller,
    session: String,
    spawn: SpawnRequest,
    /// The program that this process does not find. Only the shell in the terminal knows whether it
    /// exists: it can be in another `PATH`.
    sought: Option<Sought>,
    /// The `PATH` that tmux gives the terminal, if this process does not find the program.
    tmux_path: Option<String>,
}

impl Terminals for Maker<'_> {
    async fn make(&mut self) -> std::result::Result<String, NotMade> {
        // A terminal that could not be named afterwards is not created.
        id_on(self.caller, "%0").map_err(NotMade::Refused)?;
        if self.sought == Some(Sought::Absent) {
            self.tmux_path = self.path_of_tmux().await;
            let word = self.spawn.command.iter().flatten().next().and_then(|line| program_of(line));
            // The shell in the terminal finds it there.
            if word.zip(self.tmux_path.as_deref()).is_some_and(|(word, path)| is_in(word, path.as_ref())) {
                self.sought = None;
            }
        }
        // The session's exact name: without the colon it could mean a window.
        let window = NewWindowRequest {
            session: format!("{}:", self.session),
            spawn: SpawnRequest { caller_env: None, ..self.spawn.clone() },
            ..NewWindowRequest::default()
        };
        let session = NewSessionRequest {
            name: Some(self.session.clone()),
            spawn: self.spawn.clone(),
            ..NewSessionRequest::default()
        };
        let made = match self.ask("/v1/windows", &window).await {
            // The session or the server does not exist: nothing was created.
            Err(NotMade::Refused(error)) if error.code == ErrorCode::NotFound || is_absent(&error) => {
                match self.ask("/v1/sessions", &session).await {
                    // Another command created it in the meantime.
                    Err(NotMade::Refused(error)) if error.code == ErrorCode::Conflict => {
                        self.ask("/v1/windows", &window).await
                    }
                    made => made,
                }
            }
            made => made,
        };
        let pane = made?.pane.to_string();
        if let Some(sought) = self.sought {
            self.check_started(&pane, sought).await.map_err(NotMade::Refused)?;
        }
        id_on(self.caller, &pane).map_err(NotMade::Refused)
    }
}

impl Maker<'_> {
    /// Checks that the shell of a new terminal has found its program. Error: `INVALID_ARGUMENT`; the
    /// terminal is closed.
    async fn check_started(&self, pane: &str, sought: Sought) -> Result<()> {
        let mut client = self.caller.client().await?;
        let is_absent = sought == Sought::Absent;
        // A program that exists can exit with these statuses, too: then the shell prints no error.
        let patterns = if is_absent { Vec::new() } else { vec![SHELL_ERROR.to_owned()] };
        let request = WaitRequest {
            panes: vec![pane.to_owned()],
            patterns,
            since: (!is_absent).then(|| "start".to_owned()),
            exit: true,
            timeout_ms: Some(u64::try_from(FAIL_TIME.as_millis()).unwrap_or_default()),
            ..WaitRequest::default()
        };
        let status = match client.post::<WaitAnswer>("/v1/waits", &request).await {
            Ok(answer) => {
                let says_so = answer.predicates.iter().any(|report| report.pattern.is_some() && report.latched);
                let status = answer.predicates.iter().find_map(|report| report.exit_status);
                answer.exit_status.or(status).filter(|_| is_absent || says_so)
            }
            // It has ended, and was closed, which a program that exists can do as fast.
            Err(error) if error.code == ErrorCode::NotFound && is_absent => Some(NO_PROGRAM),
            // A terminal that cannot be watched is not one that has failed.
            Err(_) => None,
        };
        let Some(status @ (NOT_RUN | NO_PROGRAM)) = status else { return Ok(()) };
        let _ = client.delete::<DoneAnswer>(&path_of("panes", pane)).await;
        let shell = self.spawn.command.iter().flatten().next().map(String::as_str).unwrap_or_default();
        let why = match &self.tmux_path {
            _ if status != NO_PROGRAM => "cannot be run".to_owned(),
            Some(path) => format!("no such program in your PATH, nor in that of the tmux server ({path})"),
            None => "no such program".to_owned(),
        };
        Err(Error::invalid(format!("--shell {shell}: {why}")))
    }

    /// Returns the `PATH` that tmux gives a new terminal: that of the device's session, or else of the
    /// server. `None`: no server runs, and a new one gets this process's.
    async fn path_of_tmux(&self) -> Option<String> {
        let query = FormatListQuery {
            each: Listed::Sessions,
            format: "#{session_name}:#{PATH}".into(),
            ..FormatListQuery::default()
        };
        let answer: FormatAnswer = self.caller.client().await.ok()?.get("/v1/format", &query).await.ok()?;
        let mut paths = answer.lines.iter().filter_map(|line| line.split_once(':'));
        let own = paths.clone().find(|(session, _)| *session == self.session);
        own.or_else(|| paths.next()).map(|(_, path)| path.to_owned())
    }

    /// Requests a window or a session, once.
    async fn ask(&self, path: &str, request: &impl Serialize) -> std::result::Result<CreatedAnswer, NotMade> {
        let mut client = self.caller.client().await.map_err(NotMade::Refused)?;
        match client.try_post(path, request).await {
            Ok(Ok(made)) => Ok(made),
            Ok(Err(error)) => Err(self.not_made(error)),
            Err(ConnectionLost(cause)) => {
                Err(NotMade::Unknown { cause, session: self.session.clone(), terminal: None })
            }
        }
    }

    /// Marks an error of the engine after which something may have been created.
    fn not_made(&self, cause: Error) -> NotMade {
        if !perhaps_made(&cause) {
            return NotMade::Refused(cause);
        }
        let terminal = made_pane(&cause).and_then(|pane| id_on(self.caller, &pane).ok());
        NotMade::Unknown { cause, session: self.session.clone(), terminal }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_command_line_can_lack_its_program() {
        let sought = |line: &str, is_local| sought(line, is_local, |word| word == "make");
        for line in ["nope", "nope a 'b c'", "exec nope x"] {
            assert_eq!(sought(line, true), Some(Sought::Absent), "{line}");
            assert_eq!(sought(line, false), Some(Sought::Elsewhere), "{line}");
        }
        for line in [". ./s.sh", "source s.sh", "nope; exit 0", "nope || sh", "nope $(x)", "exit 127", "true"] {
            assert_eq!((sought(line, true), sought(line, false)), (None, None), "{line}");
        }
        assert_eq!((sought("make x", true), sought("make x", false)), (None, Some(Sought::Elsewhere)));
    }
}
