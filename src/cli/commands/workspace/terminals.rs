//! Commands about terminals: class P. Each goes straight to the engine, by the routes that every command uses.

use std::collections::BTreeMap;

use clap::{ArgGroup, Subcommand};
use serde_json::{Value, json};

use super::{Context, TerminalArgs, duration, output::table, text, times};
use crate::{
    api::{
        CaptureAnswer, CaptureRequest, CreatedAnswer, DoneAnswer, Error, ErrorCode, InputAnswer, InputRequest,
        NewSessionRequest, NewWindowRequest, PaneInfo, PaneList, PatchRequest, RespawnRequest, Result, SpawnRequest,
        WaitAnswer, WaitOutcome, WaitRequest,
    },
    cli::{
        EXIT_FAILED, Outcome,
        caller::{Caller, whole_environment},
        commands::{listed, path_of, wait_for},
        output, url,
    },
    devices::{
        hybrid::Terminals,
        workspace::{ContentRef, Pane, Selector},
    },
    tmux::DEFAULT_SOCKET,
};

/// Variables that no child process gets: tokens that last.
const SECRETS: [&str; 2] = ["AUTH_TOKEN", "MUXTAP_TOKEN"];

#[derive(Debug, Subcommand)]
pub(super) enum TerminalCommand {
    /// List terminals: the panes of the tmux server
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
    /// Print what a terminal shows
    CapturePane {
        #[command(flatten)]
        terminal: TerminalArgs,
        /// First line: 0 is the first visible one, negative ones are of the history, `-` is its start
        #[arg(short = 'S', value_name = "START", allow_hyphen_values = true)]
        start: Option<String>,
        /// Join wrapped lines
        #[arg(short = 'J')]
        join: bool,
        /// Keep colours and attributes
        #[arg(short = 'e')]
        escapes: bool,
    },
    /// Wait until a terminal prints or does something; all that is asked for must hold
    #[command(group(ArgGroup::new("predicate").multiple(true).args(["patterns", "stable", "exit", "prompt"])))]
    WaitFor {
        #[command(flatten)]
        terminal: TerminalArgs,
        /// A line of the output matches this regex
        #[arg(short = 'p', long = "pattern", value_name = "PATTERN", allow_hyphen_values = true)]
        patterns: Vec<String>,
        /// Nothing was printed for this long: seconds, or with a unit
        #[arg(long, value_name = "TIME", value_parser = duration)]
        stable: Option<u64>,
        /// The process has ended
        #[arg(long)]
        exit: bool,
        /// A shell waits for a command, as far as that can be told
        #[arg(long)]
        prompt: bool,
        /// Give up after this long, with status 124 (default: 30 s)
        #[arg(short = 'T', long, value_name = "TIMEOUT", value_parser = duration)]
        timeout: Option<u64>,
    },
    /// Start what ran in a terminal anew
    RespawnTerminal {
        #[command(flatten)]
        terminal: TerminalArgs,
    },
    /// End a terminal and what runs in it
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
                    detach: true,
                    ..WaitRequest::default()
                };
                wait(context, &terminal, request).await
            }
            Self::RespawnTerminal { terminal } => {
                let at = find(context, &terminal).await?;
                respawn(context, &at.id).await?;
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

/// A terminal, as the engine is asked for it.
struct Located {
    /// Its id, as a workspace has it.
    id: String,
    /// The target on the server that is meant.
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

/// Finds the terminal that a command means; of a pane its owner is asked.
async fn find(context: &Context<'_>, terminal: &TerminalArgs) -> Result<Located> {
    match Selector::parse(&terminal.target)? {
        Selector::Terminal(id) => locate(context, &id),
        Selector::Pane(_) => {
            let layout = context.owner(terminal.device.device.as_deref())?.layout().await?;
            locate(context, &terminal_of(layout.find_pane(&terminal.target, None)?)?)
        }
        _ => {
            let message = format!("{} names no terminal: expected terminal:ID, or pane:ID", terminal.target);
            Err(Error::new(ErrorCode::InvalidTarget, message))
        }
    }
}

/// Returns where a terminal is: `%3` on the default server, or the one that `-S` or `-L` name; `NAME/%3` on the server
/// of that name, else on that host.
fn locate(context: &Context<'_>, id: &str) -> Result<Located> {
    crate::devices::workspace::check_terminal(id)?;
    let caller = context.caller;
    let (name, pane) = id.rsplit_once('/').map_or((None, id), |(name, pane)| (Some(name), pane));
    let named = |name: &str| caller.sockets.as_ref().map(|sockets| sockets.join(name));
    let (server, target) = match name {
        None if caller.server_is_named => (caller.server.clone(), pane.to_owned()),
        None => (named(DEFAULT_SOCKET).unwrap_or_else(|| caller.server.clone()), pane.to_owned()),
        Some(name) => match named(name).filter(|socket| socket.exists()) {
            Some(socket) => (socket, pane.to_owned()),
            None => (caller.server.clone(), id.to_owned()),
        },
    };
    Ok(Located { id: id.to_owned(), target, caller: caller.on_server(server) })
}

/// Returns the id by which a pane of the server that is meant is a terminal.
fn id_on(caller: &Caller, pane: &str) -> String {
    let sockets = caller.sockets.as_deref();
    let name = caller.server.file_name().and_then(|name| name.to_str());
    match name.filter(|name| caller.server.parent() == sockets && *name != DEFAULT_SOCKET) {
        Some(name) => format!("{name}/{pane}"),
        None => pane.to_owned(),
    }
}

/// Checks that a terminal is there. Error: `NOT_FOUND`.
pub(super) async fn check_lives(context: &Context<'_>, selector: &str) -> Result<()> {
    let Selector::Terminal(id) = Selector::parse(selector)? else {
        let message = format!("{selector} names no terminal: expected terminal:ID");
        return Err(Error::new(ErrorCode::InvalidTarget, message));
    };
    let at = locate(context, &id)?;
    let list: PaneList = at.caller.client().await?.get("/v1/panes", &listed(std::slice::from_ref(&at.target))?).await?;
    if list.panes.iter().any(|pane| !pane.dead) {
        return Ok(());
    }
    Err(Error::not_found(format!("no terminal {selector}; list-terminals shows what is there")))
}

/// Starts what ran in a terminal anew.
pub(super) async fn respawn(context: &Context<'_>, id: &str) -> Result<()> {
    let at = locate(context, id)?;
    let respawn = Some(RespawnRequest { kill: true, spawn: SpawnRequest::default() });
    let request = PatchRequest { respawn, ..PatchRequest::default() };
    let _: DoneAnswer = at.caller.client().await?.patch(&path_of("panes", &at.target), &request).await?;
    Ok(())
}

async fn list(context: &Context<'_>) -> Outcome {
    let list: PaneList = context.caller.client().await?.get("/v1/panes", &listed(&[])?).await?;
    let is_here = context.caller.server.is_absolute();
    let terminal = |pane: &PaneInfo| {
        let pid = Some(pane.pid).filter(|pid| is_here && pane.host.is_none() && !pane.dead && *pid > 0);
        json!({
            "terminalId": id_on(context.caller, &pane.id.to_string()),
            "mode": pane.command,
            "status": if pane.dead { "exited" } else { "running" },
            "exitStatus": pane.exit_status,
            "title": pane.title,
            "session": pane.session,
            "window": pane.window,
            "cwd": pane.path,
            "bufferRef": pane.cursor,
            // Of another machine's processes nothing is known here.
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
    let nothing = request.patterns.is_empty() && request.stable_ms.is_none() && !request.exit && !request.prompt;
    if nothing {
        return Err(Error::invalid("say what to wait for: -p, --stable, --exit or --prompt").into());
    }
    let at = find(context, terminal).await?;
    let mut client = at.caller.client().await?;
    let request = WaitRequest { panes: vec![at.target.clone()], ..request };
    let first: WaitAnswer = client.post("/v1/waits", &request).await?;
    let path = format!("/v1/waits/{}", url::encode(&first.id));
    let answer = tokio::select! {
        answer = wait_for::poll_until_over(&mut client, &path, first) => answer?,
        _ = tokio::signal::ctrl_c() => {
            if let Some(mut client) = at.caller.running().await? {
                client.delete::<Value>(&path).await?;
            }
            return Ok(crate::cli::EXIT_INTERRUPTED);
        }
    };
    let predicates = serde_json::to_value(&answer.predicates).unwrap_or_default();
    match answer.outcome {
        WaitOutcome::Matched => {
            let answer_json = json!({ "terminalId": at.id, "outcome": answer.outcome, "predicates": predicates });
            context.print(&answer_json, |_| wait_for::matched_lines(&answer))
        }
        WaitOutcome::Timeout | WaitOutcome::Pending => {
            let met = answer.predicates.iter().filter(|report| report.latched).count();
            let message = format!("{met} of {} conditions came true in time", answer.predicates.len());
            Err(Error::new(ErrorCode::Timeout, message).with_details(json!({ "predicates": predicates })).into())
        }
        _ => {
            let answer = json!({ "terminalId": at.id, "outcome": answer.outcome, "predicates": predicates });
            context.print(&answer, |_| "the terminal ended first\n".into())?;
            Ok(EXIT_FAILED)
        }
    }
}

/// A terminal that is to be made.
#[derive(Clone, Debug, Default)]
pub(super) struct NewTerminal {
    pub(super) shell: Option<String>,
    pub(super) cwd: Option<String>,
}

impl NewTerminal {
    /// Makes its directory absolute. Error: `INVALID_ARGUMENT` where it is not there.
    pub(super) fn check(&mut self) -> Result<()> {
        let Some(cwd) = &mut self.cwd else { return Ok(()) };
        let path = std::path::absolute(&cwd).map_err(|error| Error::invalid(format!("--cwd {cwd}: {error}")))?;
        if !path.is_dir() {
            return Err(Error::invalid(format!("--cwd {cwd}: no such directory")));
        }
        *cwd = path.into_os_string().into_string().map_err(|_| Error::invalid("--cwd: the path is not UTF-8"))?;
        Ok(())
    }

    /// Returns what makes it, in the tmux session that is named after a device.
    pub(super) fn maker<'a>(self, context: &'a Context<'a>, device: &str) -> Maker<'a> {
        let session = format!("device-{}", device.replace(['.', '@'], "_"));
        let own = std::env::current_dir().ok().and_then(|dir| dir.into_os_string().into_string().ok());
        let mut env: BTreeMap<String, String> = whole_environment();
        env.retain(|name, _| !SECRETS.contains(&name.as_str()));
        let spawn = SpawnRequest {
            command: self.shell.map(|shell| vec![shell]),
            caller_cwd: own.filter(|_| self.cwd.is_none()),
            cwd: self.cwd,
            caller_env: Some(env),
            ..SpawnRequest::default()
        };
        Maker { caller: context.caller, session, spawn }
    }
}

/// Makes a terminal in a session of its own.
pub(super) struct Maker<'a> {
    caller: &'a Caller,
    session: String,
    spawn: SpawnRequest,
}

impl Terminals for Maker<'_> {
    async fn make(&mut self) -> Result<String> {
        let mut client = self.caller.client().await?;
        // The session's name, exactly: without the colon a window could be meant.
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
        let made: CreatedAnswer = match client.post("/v1/windows", &window).await {
            Err(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::TmuxUnavailable) => {
                match client.post("/v1/sessions", &session).await {
                    // Another command made it meanwhile.
                    Err(error) if error.code == ErrorCode::Conflict => client.post("/v1/windows", &window).await?,
                    made => made?,
                }
            }
            made => made?,
        };
        Ok(id_on(self.caller, &made.pane.to_string()))
    }
}
