//! `agent-session`: sessions of coding agents that the daemon owns.
//!
//! Each command's arguments have their own type, so other commands can include them.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{IsTerminal as _, Read as _},
    path::PathBuf,
};

use clap::{Args, Subcommand};
use muxtap_base::plain;
use serde_json::Value;

use super::{Caller, Outcome, duration, output, variable};
use crate::{
    api::{
        AgentAnswerRequest, AgentEarlierList, AgentEarlierRequest, AgentEvent, AgentEventEntry, AgentEventsAnswer,
        AgentEventsQuery, AgentQuestion, AgentSessionInfo, AgentSessionList, AgentSessionPatch, AgentSessionRequest,
        AgentSessionStatus, AgentSessionsQuery, AgentWaitAnswer, AgentWaitOutcome, AgentWaitRequest, DoneAnswer, Error,
        ErrorCode, PromptAnswer, PromptOutcome, PromptRequest, Result, SessionName,
    },
    cli::{EXIT_ERROR, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_TIMEOUT, client::DAEMON_ENDED, output::Failure, url},
};

/// Control agent sessions that the daemon owns
///
/// An agent speaks ACP (Agent Client Protocol) with the daemon. Prompts run one after the other,
/// each with one outcome; events are numbered and kept; permission questions wait for an answer;
/// the agent's terminals are panes. The configuration names agents: `[agent.NAME]`.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap agent-session create --provider claude 'fix the failing test'
  muxtap agent-session list
  muxtap agent-session send -t session:claude:ID --wait 'and now the docs'
  muxtap agent-session attach -t session:claude:ID       follow it, and answer its questions
  muxtap agent-session wait -t session:claude:ID --idle -T 600")]
pub(in crate::cli) struct AgentSessionArgs {
    #[command(subcommand)]
    command: AgentSessionCommand,
}

#[derive(Debug, Subcommand)]
enum AgentSessionCommand {
    Create(SessionCreate),
    List(SessionList),
    Earlier(SessionEarlier),
    Set(SessionSet),
    Send(SessionSend),
    Interrupt(SessionInterrupt),
    Kill(SessionKill),
    Attach(SessionAttach),
    Wait(SessionWait),
    Answer(SessionAnswer),
}

impl AgentSessionArgs {
    /// Returns whether the command prints until it is stopped.
    pub(in crate::cli) fn goes_on(&self) -> bool {
        matches!(self.command, AgentSessionCommand::Attach(_))
    }

    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        match self.command {
            AgentSessionCommand::Create(args) => args.run(caller).await,
            AgentSessionCommand::List(args) => args.run(caller).await,
            AgentSessionCommand::Earlier(args) => args.run(caller).await,
            AgentSessionCommand::Set(args) => args.run(caller).await,
            AgentSessionCommand::Send(args) => args.run(caller).await,
            AgentSessionCommand::Interrupt(args) => args.run(caller).await,
            AgentSessionCommand::Kill(args) => args.run(caller).await,
            AgentSessionCommand::Attach(args) => args.run(caller).await,
            AgentSessionCommand::Wait(args) => args.run(caller).await,
            AgentSessionCommand::Answer(args) => args.run(caller).await,
        }
    }
}

/// The path of the routes.
const PATH: &str = "/v1/agent-sessions";

/// Reads a session's name. Error: `INVALID_TARGET`.
fn session(text: &str) -> Result<SessionName> {
    text.parse()
}

fn path(session: &SessionName, rest: &str) -> String {
    format!("{PATH}/{}{rest}", url::encode(&session.to_string()))
}

/// Start an agent and open a session
#[derive(Debug, Args)]
pub(in crate::cli) struct SessionCreate {
    /// The agent's name in the configuration
    #[arg(long, value_name = "PROVIDER", default_value = "sdk")]
    provider: String,
    /// The agent's working directory (default: the caller's); an absolute path of the other machine if
    /// this device has logged in there
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Continue this earlier session of the agent
    #[arg(long, value_name = "ID")]
    resume: Option<String>,
    /// The initial mode, by the agent's own name
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// Use this login of the agent first; the error of an agent that requires one names them
    #[arg(long, value_name = "LOGIN")]
    auth: Option<String>,
    /// Set a variable of the agent's environment; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// The first prompt
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
}

impl SessionCreate {
    /// Creates the session.
    pub(in crate::cli) async fn create(self, caller: &Caller) -> crate::api::Result<AgentSessionInfo> {
        let cwd = working_directory(self.cwd, caller.remote.is_some())?.into_os_string().into_string();
        let request = AgentSessionRequest {
            provider: self.provider,
            cwd: cwd.map_err(|path| Error::invalid(format!("{} is not UTF-8", path.display())))?,
            prompt: self.prompt,
            resume: self.resume,
            mode: self.mode,
            auth: self.auth,
            env: self.env.into_iter().collect(),
        };
        caller.client().await?.post(PATH, &request).await
    }

    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let info = self.create(caller).await?;
        if caller.json {
            output::print_json(&info)?;
        } else {
            output::print(format!("{}\n", info.session))?;
        }
        Ok(0)
    }
}

/// Returns the directory of an agent. Error: `INVALID_ARGUMENT`.
///
/// This machine's directories mean nothing to the daemon of another one.
fn working_directory(given: Option<PathBuf>, is_remote: bool) -> Result<PathBuf> {
    if is_remote {
        return given.filter(|cwd| cwd.is_absolute()).ok_or_else(|| {
            Error::invalid("--cwd: the agent starts on the other machine: expected an absolute path there")
        });
    }
    let cwd = given.unwrap_or_else(|| PathBuf::from("."));
    std::path::absolute(&cwd).map_err(|error| Error::invalid(format!("{}: {error}", cwd.display())))
}

/// List running and recently ended agent sessions
#[derive(Debug, Args)]
pub(in crate::cli) struct SessionList {
    /// List only sessions of this agent
    #[arg(long, value_name = "PROVIDER")]
    provider: Option<String>,
}

impl SessionList {
    /// Requests the list.
    pub(in crate::cli) async fn list(&self, caller: &Caller) -> crate::api::Result<AgentSessionList> {
        let query = AgentSessionsQuery { provider: self.provider.clone() };
        caller.client().await?.get(PATH, &query).await
    }

    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let list = self.list(caller).await?;
        if caller.json {
            output::print_json(&list)?;
            return Ok(0);
        }
        let mut table = output::Table::new(&["SESSION", "STATUS", "QUEUED", "CWD"]);
        for info in &list.sessions {
            let status = serde_json::to_value(info.status).unwrap_or_default();
            let status = status.as_str().unwrap_or_default().to_owned();
            table.row(&[info.session.to_string(), status, info.queued.to_string(), info.cwd.clone()]);
        }
        output::print(table.render())?;
        Ok(0)
    }
}

/// List the sessions that an agent has stored, for `create --resume`
///
/// Starts the agent for that, and ends it again.
#[derive(Debug, Args)]
pub(in crate::cli) struct SessionEarlier {
    /// The agent's name in the configuration
    #[arg(long, value_name = "PROVIDER", default_value = "sdk")]
    provider: String,
    /// List the sessions of this directory (default: the caller's)
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// List the sessions of all directories
    #[arg(long)]
    all: bool,
    /// Use this login of the agent first
    #[arg(long, value_name = "LOGIN")]
    auth: Option<String>,
    /// Set a variable of the agent's environment; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
}

impl SessionEarlier {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let cwd = working_directory(self.cwd, caller.remote.is_some())?.into_os_string().into_string();
        let request = AgentEarlierRequest {
            provider: self.provider,
            cwd: cwd.map_err(|path| Error::invalid(format!("{} is not UTF-8", path.display())))?,
            all: self.all,
            auth: self.auth,
            env: self.env.into_iter().collect(),
        };
        let list: AgentEarlierList = caller.client().await?.post(&format!("{PATH}/earlier"), &request).await?;
        if caller.json {
            output::print_json(&list)?;
            return Ok(0);
        }
        let mut table = output::Table::new(&["ID", "UPDATED", "CWD", "TITLE"]);
        for one in &list.sessions {
            let word = |text: &Option<String>| plain::name(text.as_deref().unwrap_or_default()).into_owned();
            let cwd = plain::name(&one.cwd).into_owned();
            table.row(&[one.session_id.clone(), word(&one.updated_at), cwd, word(&one.title)]);
        }
        output::print(table.render())?;
        if list.more {
            output::note("the agent has more sessions than are listed");
        }
        Ok(0)
    }
}

/// Set a session's mode and options
///
/// `list --json` shows the modes and options that the agent offers.
#[derive(Debug, Args)]
pub(in crate::cli) struct SessionSet {
    /// The session
    #[arg(short = 't', long, value_name = "session:PROVIDER:ID")]
    pub(in crate::cli) target: String,
    /// The mode, by the agent's own name
    #[arg(long, value_name = "MODE", required_unless_present = "option")]
    mode: Option<String>,
    /// Set an option of the agent, such as its model; repeatable
    #[arg(long, value_name = "ID=VALUE", value_parser = variable)]
    option: Vec<(String, String)>,
}

impl SessionSet {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let target = session(&self.target)?;
        let request = AgentSessionPatch { mode: self.mode, options: self.option.into_iter().collect() };
        let info: AgentSessionInfo = caller.client().await?.patch(&path(&target, ""), &request).await?;
        if caller.json {
            output::print_json(&info)?;
        }
        Ok(0)
    }
}

/// Send a prompt to a session; prompts run in order
///
/// With --wait prints the agent's messages once the prompt has an outcome. Exit status then: 0 for
/// `end_turn`, 124 for `timeout`, 130 for `cancelled`, 1 for all others.
#[derive(Debug, Args)]
pub(in crate::cli) struct SessionSend {
    /// The session
    #[arg(short = 't', long, value_name = "session:PROVIDER:ID")]
    pub(in crate::cli) target: String,
    /// Wait for the prompt's outcome
    #[arg(long)]
    wait: bool,
    /// End the prompt with the outcome `timeout` after this long: 90s, 10m, 2h (default 1h)
    #[arg(short = 'T', long, value_name = "TIME", value_parser = duration)]
    timeout: Option<u64>,
    /// The prompt; `-` reads stdin
    #[arg(value_name = "TEXT")]
    text: String,
}

impl SessionSend {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let target = session(&self.target)?;
        let mut text = self.text;
        if text == "-" {
            text.clear();
            let read = std::io::stdin().lock().read_to_string(&mut text);
            read.map_err(|error| Error::invalid(format!("stdin: {error}")))?;
        }
        let mut client = caller.client().await?;
        let request = PromptRequest { text, timeout_ms: self.timeout, wait: self.wait };
        let answer: PromptAnswer = client.post(&path(&target, "/prompts"), &request).await?;
        if caller.json {
            output::print_json(&answer)?;
        } else if self.wait {
            let mut printer = Printer::default();
            let mut since = answer.cursor.to_string();
            loop {
                let query = AgentEventsQuery { since: Some(since), ..AgentEventsQuery::default() };
                let page: AgentEventsAnswer = client.get(&path(&target, "/events"), &query).await?;
                for entry in &page.events {
                    // Other callers may have queued prompts behind this one.
                    if !matches!(entry.event, AgentEvent::Prompt { .. } | AgentEvent::Started { .. }) {
                        printer.print(entry)?;
                    }
                }
                if !page.more {
                    break;
                }
                since = page.cursor.to_string();
            }
        }
        Ok(match answer.outcome {
            None | Some(PromptOutcome::EndTurn) => 0,
            Some(PromptOutcome::Timeout) => EXIT_TIMEOUT,
            Some(PromptOutcome::Cancelled) => EXIT_INTERRUPTED,
            Some(_) => EXIT_ERROR,
        })
    }
}

/// Cancel only the running prompt
#[derive(Debug, Args)]
pub(in crate::cli) struct SessionInterrupt {
    /// The session
    #[arg(short = 't', long, value_name = "session:PROVIDER:ID")]
    pub(in crate::cli) target: String,
}

impl SessionInterrupt {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let target = session(&self.target)?;
        let answer: PromptAnswer =
            caller.client().await?.post(&path(&target, "/interrupt"), &serde_json::json!({})).await?;
        if caller.json {
            output::print_json(&answer)?;
        } else if answer.prompt.is_none() {
            output::note("no prompt is running");
        }
        Ok(0)
    }
}

/// End an agent and all processes that the agent started
#[derive(Debug, Args)]
pub(in crate::cli) struct SessionKill {
    /// The session
    #[arg(short = 't', long, value_name = "session:PROVIDER:ID")]
    pub(in crate::cli) target: String,
}

impl SessionKill {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let target = session(&self.target)?;
        let info: AgentSessionInfo = caller.client().await?.delete(&path(&target, "")).await?;
        if caller.json {
            output::print_json(&info)?;
        }
        Ok(0)
    }
}

/// Wait for an agent; all conditions must have been met, each at any time
///
/// Exit status: 0 all conditions were met; 3 the agent ended first; 4 with --question, a question
/// is open; 124 timeout.
#[derive(Debug, Args)]
pub(in crate::cli) struct SessionWait {
    /// The session
    #[arg(short = 't', long, value_name = "session:PROVIDER:ID")]
    pub(in crate::cli) target: String,
    /// Wait until a line of the agent's messages or tool output matches this regex; repeatable
    #[arg(short = 'p', long, value_name = "REGEX", allow_hyphen_values = true)]
    pattern: Vec<String>,
    /// Wait until nothing has happened for this long
    #[arg(long, value_name = "TIME", value_parser = duration)]
    stable: Option<u64>,
    /// Wait until the agent has ended
    #[arg(long)]
    exit: bool,
    /// Wait until no prompt runs or is queued
    #[arg(long)]
    idle: bool,
    /// Also return when a permission question is open
    #[arg(long)]
    question: bool,
    /// Match from here: `prompt` (the last one, default), `start`, `now`, or a cursor
    #[arg(long, value_name = "prompt|start|now|CURSOR")]
    since: Option<String>,
    /// Time out after this long (default 30s)
    #[arg(short = 'T', long, value_name = "TIME", value_parser = duration)]
    timeout: Option<u64>,
}

impl SessionWait {
    /// Waits as `wait-for` does, from the last prompt on.
    pub(in crate::cli) fn of(
        target: String,
        pattern: Vec<String>,
        stable: Option<u64>,
        exit: bool,
        timeout: Option<u64>,
    ) -> Self {
        Self { target, pattern, stable, exit, timeout, idle: false, question: false, since: None }
    }
}

/// Exit status of a wait that ended with an open question.
const EXIT_QUESTION: u8 = 4;

impl SessionWait {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let target = session(&self.target)?;
        let request = AgentWaitRequest {
            patterns: self.pattern,
            stable_ms: self.stable,
            exit: self.exit,
            idle: self.idle,
            question: self.question,
            since: self.since,
            timeout_ms: self.timeout,
        };
        let answer: AgentWaitAnswer = caller.client().await?.post(&path(&target, "/wait"), &request).await?;
        if caller.json && answer.outcome != AgentWaitOutcome::Timeout {
            output::print_json(&answer)?;
        } else if !caller.json {
            for line in answer.conditions.iter().filter_map(|condition| condition.line.as_ref()) {
                output::print(format!("{line}\n"))?;
            }
        }
        Ok(match answer.outcome {
            AgentWaitOutcome::Matched => 0,
            AgentWaitOutcome::Ended => EXIT_FAILED,
            AgentWaitOutcome::Asking => {
                for question in answer.questions.iter().filter(|_| !caller.json) {
                    output::note(&format!("{target} asks:\n{}", asked(question)));
                }
                EXIT_QUESTION
            }
            AgentWaitOutcome::Timeout => {
                let missing = answer.conditions.iter().filter(|condition| !condition.met);
                let missing: Vec<_> = missing
                    .map(|condition| match &condition.pattern {
                        Some(pattern) => format!("/{pattern}/"),
                        None => condition.kind.clone(),
                    })
                    .collect();
                let error = Error::new(ErrorCode::Timeout, format!("timeout; not met: {}", missing.join(", ")));
                let details = serde_json::to_value(&answer).unwrap_or_default();
                return Err(error.with_details(details).into());
            }
        })
    }
}

/// Answer a question; the first answer counts
///
/// A form's values are given with --field; a field without one has its default.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("said").required(true))]
pub(in crate::cli) struct SessionAnswer {
    /// The session
    #[arg(short = 't', long, value_name = "session:PROVIDER:ID")]
    pub(in crate::cli) target: String,
    /// Allow the request
    #[arg(long, group = "said")]
    allow: bool,
    /// Deny the request
    #[arg(long, group = "said")]
    deny: bool,
    /// Choose this option of the question
    #[arg(long, value_name = "OPTION", group = "said")]
    option: Option<String>,
    /// Fill in a field of a form; repeatable, also for a field with several values
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    field: Vec<(String, String)>,
    /// The question's id, from `attach` or `list --json`
    #[arg(value_name = "QUESTION")]
    question: String,
}

impl SessionAnswer {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let target = session(&self.target)?;
        let allow = self.option.is_none().then_some(self.allow);
        let request = AgentAnswerRequest { option: self.option, allow, content: content(self.field) };
        let done = answer(caller, &target, &self.question, &request).await?;
        if caller.json {
            output::print_json(&done)?;
        }
        Ok(0)
    }
}

/// Returns the values of a form: several ones of a field are a list.
fn content(fields: Vec<(String, String)>) -> BTreeMap<String, Value> {
    let mut values = BTreeMap::<String, Vec<Value>>::new();
    for (name, value) in fields {
        values.entry(name).or_default().push(value.into());
    }
    let value = |mut values: Vec<Value>| match (values.len(), values.pop()) {
        (1, Some(one)) => one,
        (_, last) => values.into_iter().chain(last).collect(),
    };
    values.into_iter().map(|(name, values)| (name, value(values))).collect()
}

async fn answer(
    caller: &Caller,
    session: &SessionName,
    question: &str,
    request: &AgentAnswerRequest,
) -> Result<DoneAnswer> {
    let path = path(session, &format!("/questions/{}", url::encode(question)));
    caller.client().await?.post(&path, request).await
}

/// Follow an agent's events to the end, and answer questions at a terminal
///
/// Type y or n to answer the oldest open question, or y ID, n ID for another one. The agent's
/// messages follow `| `; after new messages a y or n first shows the question again.
/// Ctrl-C leaves the agent running.
#[derive(Debug, Args)]
pub(in crate::cli) struct SessionAttach {
    /// The session
    #[arg(short = 't', long, value_name = "session:PROVIDER:ID")]
    pub(in crate::cli) target: String,
    /// Begin here: `start` (all retained events), `prompt` (the last one, default), `now`, or a
    /// cursor
    #[arg(long, value_name = "start|prompt|now|CURSOR", default_value = "prompt")]
    since: String,
}

impl SessionAttach {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let target = session(&self.target)?;
        let query = AgentEventsQuery { since: Some(self.since.clone()), ..AgentEventsQuery::default() };
        let path = path(&target, "/stream");
        let mut stream = caller.client().await?.events(&path, &query, None).await?;
        let mut answers = std::io::stdin().is_terminal().then(super::approvals::lines_of_stdin);
        let (mut printer, mut ended, mut failure) = (Printer { marks: true, ..Printer::default() }, false, None);
        loop {
            tokio::select! {
                read = stream.next(|data| {
                    if caller.json {
                        failure = failure.take().or(output::print_json_line(data).err());
                    }
                    let Ok(entry) = serde_json::from_slice::<AgentEventEntry>(data) else { return };
                    ended |= matches!(entry.event, AgentEvent::Exited { .. });
                    printer.note(&entry);
                    if !caller.json {
                        failure = failure.take().or(printer.print(&entry).err());
                    }
                }) => {
                    let goes_on = read.map_err(Error::from)?;
                    if let Some(failure) = failure.take() {
                        return Err(failure);
                    }
                    if ended {
                        return Ok(0);
                    }
                    if !goes_on {
                        return Self::over(caller, &target, &mut printer).await;
                    }
                }
                line = next_line(&mut answers) => match line {
                    Some(line) => Self::say(caller, &target, &mut printer, &line).await?,
                    None => answers = None,
                },
            }
        }
    }

    /// Reports why the events ended without the agent's end: the agent had ended before, or the
    /// daemon has exited.
    async fn over(caller: &Caller, target: &SessionName, printer: &mut Printer) -> Outcome {
        let info = match caller.running().await? {
            Some(mut client) => client.get::<AgentSessionInfo>(&path(target, ""), &()).await.ok(),
            None => None,
        };
        let Some(info) = info.filter(|info| info.status == AgentSessionStatus::Ended) else {
            output::report(&Error::unavailable(format!("{DAEMON_ENDED}, and the agent with it")), caller.json);
            return Ok(EXIT_ERROR);
        };
        if !caller.json {
            printer.line(&format!("= {}", output::ended(info.exit_status, info.exit_signal)))?;
        }
        Ok(0)
    }

    /// Answers a question as a typed line requests. If the question is not the one shown last, shows
    /// it again instead: an agent's text can imitate a question.
    async fn say(
        caller: &Caller,
        target: &SessionName,
        printer: &mut Printer,
        line: &str,
    ) -> std::result::Result<(), Failure> {
        let mut words = line.split_whitespace();
        let allow = match words.next() {
            None => return Ok(()),
            Some("y" | "yes") => true,
            Some("n" | "no") => false,
            Some(_) => {
                output::note("expected y or n, with the question's id unless it is the oldest one");
                return Ok(());
            }
        };
        let named = words.next();
        let Some(id) = named.map(str::to_owned).or_else(|| printer.oldest().map(|question| question.id.clone())) else {
            output::note("no question is open");
            return Ok(());
        };
        // With `--json` each event is a separate line, which no agent's text can imitate.
        if allow && !caller.json && !printer.is_shown(&id, named.is_some()) && printer.show(&id)? {
            output::note(&format!("{id} was not shown last: repeat the answer if you mean this question"));
            return Ok(());
        }
        let request = AgentAnswerRequest { allow: Some(allow), ..AgentAnswerRequest::default() };
        if let Err(error) = answer(caller, target, &id, &request).await {
            output::note(&error.message);
        }
        Ok(())
    }
}

/// Returns the next typed line; waits forever if nothing can be typed.
async fn next_line(lines: &mut Option<tokio::sync::mpsc::Receiver<String>>) -> Option<String> {
    match lines {
        Some(lines) => lines.recv().await,
        None => std::future::pending().await,
    }
}

/// Prints events for people.
#[derive(Default)]
struct Printer {
    /// Whether the last line of a message is open.
    in_message: bool,
    /// The id of the last message.
    id: Option<String>,
    /// Whether each row of the agent's text begins with [`MARK`].
    marks: bool,
    /// The open questions, oldest first.
    open: Vec<AgentQuestion>,
    /// The ids of the questions shown since the agent's last text.
    shown: Vec<String>,
}

/// The prefix of an agent's text: muxtap's own lines never begin with it.
const MARK: &str = "| ";

impl Printer {
    /// Remembers which questions are open.
    fn note(&mut self, entry: &AgentEventEntry) {
        match &entry.event {
            AgentEvent::Question { question } => self.open.push(question.clone()),
            AgentEvent::Answered { question, .. } => self.open.retain(|open| open.id != *question),
            _ => {}
        }
    }

    fn oldest(&self) -> Option<&AgentQuestion> {
        self.open.first()
    }

    /// Returns whether an answer is for a question that is visible: shown last, or, if the answer
    /// names it, followed only by questions.
    fn is_shown(&self, id: &str, is_named: bool) -> bool {
        if is_named {
            self.shown.iter().any(|shown| shown == id)
        } else {
            self.shown.last().is_some_and(|last| last == id)
        }
    }

    /// Shows an open question again. Returns whether it is open.
    fn show(&mut self, id: &str) -> std::result::Result<bool, Failure> {
        let Some(text) = self.open.iter().find(|question| question.id == id).map(asked) else { return Ok(false) };
        self.line(&text)?;
        self.shown.push(id.to_owned());
        Ok(true)
    }

    fn print(&mut self, entry: &AgentEventEntry) -> std::result::Result<(), Failure> {
        if let Some(gap) = entry.gap {
            let events = gap.events.map_or_else(String::new, |events| format!("{events} "));
            self.line(&format!("[{events}events are missing ({})]", gap.reason.as_str()))?;
        }
        match &entry.event {
            AgentEvent::Message { text, message_id } => {
                if *message_id != self.id {
                    self.id.clone_from(message_id);
                    self.end_message()?;
                }
                self.said(text)
            }
            AgentEvent::Plan { entries } => entries.iter().try_for_each(|entry| {
                self.others(&format!("- {}: {}", plain::name(&entry.status), plain::name(&entry.content)))
            }),
            AgentEvent::Mode { mode } => self.others(&format!("* mode {}", plain::name(mode))),
            AgentEvent::Prompt { text, .. } => self.others(&format!("> {}", self.marked(text))),
            AgentEvent::Tool { title, status, text, .. } => {
                let status = status.as_deref().unwrap_or_default();
                match title {
                    Some(title) => {
                        self.others(format!("* {} {}", plain::name(title), plain::name(status)).trim_end())?;
                    }
                    None if status == "failed" => self.line("* failed")?,
                    None => {}
                }
                if text.is_empty() {
                    return Ok(());
                }
                let mark = if self.marks { MARK } else { "" };
                self.others(&format!("{mark}{}", self.marked(text.trim_end())))
            }
            AgentEvent::Question { question } => {
                self.shown.push(question.id.clone());
                self.line(&asked(question))
            }
            AgentEvent::Answered { question, allowed, by, .. } => {
                let word = if *allowed { "allowed" } else { "denied" };
                self.line(&format!("? {question}: {word} by {}", plain::name(by)))
            }
            AgentEvent::Outcome { outcome, error, .. } => match error {
                Some(error) => self.others(&format!("= {}: {}", outcome.as_str(), self.marked(error))),
                None => self.line(&format!("= {}", outcome.as_str())),
            },
            AgentEvent::Terminal { terminal } => self.line(&format!("* terminal {} is {}", terminal.id, terminal.pane)),
            AgentEvent::Fault { message } => self.others(&format!("! {}", self.marked(message))),
            AgentEvent::Exited { exit_status, exit_signal, error } => {
                self.line(&format!("= {}", output::ended(*exit_status, *exit_signal)))?;
                error.iter().try_for_each(|error| self.others(&format!("! {}", self.marked(error))))
            }
            _ => Ok(()),
        }
    }

    /// Ends an open line of a message.
    fn end_message(&mut self) -> std::result::Result<(), Failure> {
        if std::mem::take(&mut self.in_message) { output::print("\n") } else { Ok(()) }
    }

    /// Prints a part of the agent's text.
    fn said(&mut self, text: &str) -> std::result::Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        self.shown.clear();
        let mut rows = String::with_capacity(text.len());
        for row in text.split_inclusive('\n') {
            if self.marks && !self.in_message {
                rows.push_str(MARK);
            }
            rows.push_str(row);
            self.in_message = !row.ends_with('\n');
        }
        output::print(rows)
    }

    /// Returns a text whose rows after the first have the mark of an agent's text.
    fn marked(&self, text: &str) -> String {
        if self.marks { text.replace('\n', &format!("\n{MARK}")) } else { text.to_owned() }
    }

    /// Prints a line that contains text of the agent or of other people.
    fn others(&mut self, text: &str) -> std::result::Result<(), Failure> {
        self.shown.clear();
        self.line(text)
    }

    fn line(&mut self, text: &str) -> std::result::Result<(), Failure> {
        let before = if std::mem::take(&mut self.in_message) { "\n" } else { "" };
        output::print(format!("{before}{text}\n"))
    }
}

/// Formats a question for display; no line begins with the agent's words.
fn asked(question: &AgentQuestion) -> String {
    let mut text = format!("? {}: {}", question.id, plain::name(&question.title));
    let _ = write!(text, "\n  asked by: {}", plain::name(&question.asked_by));
    for row in question.detail.iter().flat_map(|detail| detail.split('\n')) {
        let _ = write!(text, "\n  {MARK}{}", plain::name(row));
    }
    if question.form.iter().any(|field| field.required && field.default.is_none()) {
        let _ = write!(text, "\n  fill it in with `agent-session answer --allow --field NAME=VALUE {}`", question.id);
    }
    let options: Vec<_> = question.options.iter().map(|option| plain::name(&option.name)).collect();
    let _ = write!(text, "\n  {} (y, n)", options.join(" / "));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_agent_needs_an_absolute_directory_which_stays_as_it_is() {
        let cwd = |given: Option<&str>, is_remote| working_directory(given.map(PathBuf::from), is_remote);
        assert_eq!(cwd(Some("/srv/../a"), true).unwrap(), PathBuf::from("/srv/../a"));
        for given in [None, Some("a"), Some(".")] {
            assert_eq!(cwd(given, true).unwrap_err().code, ErrorCode::InvalidArgument);
            assert!(cwd(given, false).unwrap().is_absolute());
        }
    }
}
