//! The tools: each one's description for a model, and its calls to the engine.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use futures_util::future::BoxFuture;
use muxtap_base::plain;
use muxtap_engine::{
    Server, SessionPart, Target, check_keys, elsewhere::default_server, is_absent, several::Part, unhex,
};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use utoipa::ToSchema;

use super::{
    CallContext, args, capability,
    output::{
        self, CaptureOutput, ListOutput, ReadOutput, RunOutput, SearchOutput, SendOutput, ToolOutput, WatchOutput,
        matching_lines, name_ids_of_items,
    },
    schemas, snapshot, there,
    tool_call::ToolCall,
    truncate::{MAX_CHARS, MOST_CHARS, truncate_start},
    wait,
};

use muxtap_api::{
    CaptureRequest, CommandsRequest, CreatedAnswer, DoneAnswer, Error, ErrorCode, HostInfo, InputRequest,
    NewSessionRequest, NewWindowRequest, PatchRequest, ReadFormat, ReadRequest, RespawnRequest, Result, RunRequest,
    SpawnRequest, SplitRequest, Tier, ToolSet, WaitAnswer, words,
};

/// A tool's effect on the world, for `annotations`.
#[derive(Clone, Copy)]
pub(super) enum Effect {
    Reads,
    Types,
    Makes,
    Changes,
    Ends,
}

/// Describes a tool. Tests generate the schemas of `I` and `O`; other builds have them as text.
#[cfg_attr(not(test), allow(clippy::extra_unused_type_parameters, reason = "tests generate the schemas"))]
pub(super) fn tool<I: ToSchema, O: ToSchema>(name: &'static str, description: &'static str, effect: Effect) -> Tool {
    let annotations = ToolAnnotations::new();
    // An omitted annotation has the value that a client assumes.
    let annotations = match effect {
        Effect::Reads => annotations.read_only(true),
        Effect::Types => annotations.destructive(true),
        Effect::Makes => annotations.destructive(false),
        Effect::Changes => annotations.destructive(false).idempotent(true),
        Effect::Ends => annotations.idempotent(true),
    };
    #[cfg(test)]
    let (arguments, result) = (crate::schema::input::<I>(), crate::schema::output::<O>());
    #[cfg(not(test))]
    let (arguments, result) = schemas::of(name);
    Tool::new(name, description, arguments).with_annotations(annotations).with_raw_output_schema(result)
}

/// Returns the tools of these sets; of an empty list: the native ones.
pub fn of(sets: &[ToolSet]) -> Vec<Tool> {
    let sets = if sets.is_empty() { &[ToolSet::Native] } else { sets };
    let mut tools: Vec<Tool> = Vec::new();
    for set in sets {
        let more = match set {
            ToolSet::Native => TOOLS.iter(),
            ToolSet::Snapshot => SNAPSHOT.iter(),
            ToolSet::Record => super::record::TOOLS.iter(),
            ToolSet::Capability => capability::TOOLS.iter(),
            ToolSet::Devices => super::devices::TOOLS.iter(),
            ToolSet::Sessions => super::sessions::TOOLS.iter(),
            ToolSet::ManageTmuxSessions => std::slice::from_ref(&*SUPERVISOR).iter(),
        };
        let fresh: Vec<Tool> = more.filter(|tool| tools.iter().all(|known| known.name != tool.name)).cloned().collect();
        tools.extend(fresh);
    }
    describe_server(&mut tools);
    tools
}

/// Adds `server` to the schema of one tool that takes it, if none has it: usually that of `list`.
fn describe_server(tools: &mut [Tool]) {
    let field = |tool: &Tool| tool.input_schema.get("properties").and_then(|fields| fields.get("server")).cloned();
    if tools.iter().any(|tool| field(tool).is_some()) {
        return;
    }
    let takes_it = |tool: &&mut Tool| ["record", super::sessions::NAME].contains(&&*tool.name);
    let (Some(tool), Some(server)) = (tools.iter_mut().find(takes_it), TOOLS.first().and_then(field)) else { return };
    let schema = Arc::make_mut(&mut tool.input_schema);
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        fields.insert("server".into(), server);
    }
}

/// The native tools.
pub static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    use Effect::{Changes, Ends, Makes, Reads, Types};
    vec![
        tool::<args::List, ListOutput>(
            "list",
            "List tmux sessions, windows, panes, a pane's commands, or coding agents and their questions.",
            Reads,
        ),
        tool::<args::Capture, CaptureOutput>("capture_pane", "Return a pane's screen.", Reads),
        tool::<args::Read, ReadOutput>(
            "read_since",
            "Return what a pane printed since a cursor, or since its last input.",
            Reads,
        ),
        tool::<args::Wait, WaitAnswer>(
            "wait_for",
            "Wait until panes print a pattern, rest, show a prompt or end; what happened since the last input \
             counts. `pending`: call again with its id.",
            Reads,
        ),
        tool::<args::Run, RunOutput>(
            "run",
            "Run a command in an idle shell in a pane: its output and exit status. `pending` or TIMEOUT: call \
             again with its id.",
            Types,
        ),
        tool::<args::Send, SendOutput>(
            "send_keys",
            "Type text or press keys in a pane, or answer its agent's question; then wait_for the result.",
            Types,
        ),
        tool::<args::Create, CreatedAnswer>("create", "Create a session, window or pane; returns its pane.", Makes),
        tool::<args::Kill, DoneAnswer>("kill", "End a pane, window or session.", Ends),
        tool::<args::Rename, DoneAnswer>("rename", "Rename; label a pane or session.", Changes),
        tool::<args::Resize, DoneAnswer>("resize", "Resize, zoom or lay out panes and windows.", Changes),
        tool::<args::Select, DoneAnswer>("select", "Focus a window or pane; or leave copy mode.", Changes),
        tool::<args::Respawn, DoneAnswer>("respawn", "Restart a pane's program.", Types),
        tool::<args::Watch, WatchOutput>("watch", "Report output, exits, bells and agents of panes.", Reads),
        tool::<args::Search, SearchOutput>("search", "Find lines that panes printed.", Reads),
    ]
});

/// Tools by which native ones were called before. They are offered to no client, and still work.
static EARLIER: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    let change = "Rename, resize, lay out, select, zoom or respawn.";
    vec![tool::<args::Change, DoneAnswer>("change", change, Effect::Changes), SUPERVISOR.clone()]
});

/// The tool of the set `manage-tmux-sessions`.
static SUPERVISOR: LazyLock<Tool> =
    LazyLock::new(|| super::supervisor_tool::tool().with_annotations(ToolAnnotations::new().destructive(true)));

/// Returns the tool that a client with these sets can call by a name.
pub fn find(sets: &[ToolSet], name: &str) -> Option<Tool> {
    let is_native = sets.is_empty() || sets.contains(&ToolSet::Native);
    let earlier = EARLIER.iter().filter(|_| is_native);
    of(sets).iter().chain(earlier).find(|tool| tool.name == name).cloned()
}

/// The tools of the set `snapshot`.
static SNAPSHOT: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    vec![tool::<snapshot::Snapshot, snapshot::SnapshotOutput>(
        snapshot::NAME,
        "Save and restore tmux sessions by name, save layouts of windows, and type into groups of panes at once.",
        Effect::Types,
    )]
});

/// Calls a tool. `None` if the tool does not exist.
pub fn call<'a>(
    call: &'a CallContext,
    name: &'a str,
    arguments: JsonObject,
) -> BoxFuture<'a, Option<Result<ToolOutput>>> {
    Box::pin(call_here(call, name, arguments))
}

async fn call_here(call: &CallContext, name: &str, arguments: JsonObject) -> Option<Result<ToolOutput>> {
    Some(match ToolCall::parse(name, arguments)? {
        Ok(asked) => carry_out(call, name, asked).await,
        Err(error) => Err(error),
    })
}

/// Carries out a call: by the muxtap of the host that it names, if that host has one, else locally.
async fn carry_out(call: &CallContext, name: &str, mut asked: ToolCall) -> Result<ToolOutput> {
    asked.await_hosts(call).await;
    if let Some(parts) = asked.split(call)? {
        call.engine.authorize(Tier::Read)?;
        return match asked {
            ToolCall::List(args) => Box::pin(list(call, args, Some(parts))).await,
            ToolCall::Wait(args) => Box::pin(wait::wait_on_several(call, *args, parts)).await,
            _ => Err(Error::internal(format!("{name}: cannot be split by hosts"))),
        };
    }
    // Boxed: the futures of all tools are large together.
    let Some(host) = asked.place(call)? else { return Box::pin(asked.perform(call)).await };
    let called = match Box::pin(there::call(call, &host, name, &mut asked)).await {
        Ok(Some(output)) => Ok(output),
        Ok(None) => Box::pin(asked.perform(call)).await.map_err(|error| call.engine.explained_of(&host, error)),
        Err(error) => Err(error),
    };
    match called {
        Ok(output) => Ok(output.on_host(&host)),
        Err(error) => Err(output::error_on_host(error, &host)),
    }
}

/// Calls the tool `list`. `parts`: those of a call for several hosts.
pub(super) async fn list(call: &CallContext, args: args::List, parts: Option<Vec<Part>>) -> Result<ToolOutput> {
    use args::ListKind::Commands;
    if args.what != Commands && (args.n.is_some() || args.failed || args.grep.is_some() || args.over_ms.is_some()) {
        return Err(Error::invalid("n, failed, grep and over_ms: only with what: commands"));
    }
    let names_hosts = args.everywhere || parts.is_some();
    match items(call, &args, parts).await {
        Ok(output) => {
            let mut answer = ToolOutput::new(output.text(names_hosts), &output);
            if names_hosts {
                name_ids_of_items(&mut answer.answer);
            }
            Ok(answer)
        }
        // A server that does not run has no sessions. A pane whose commands are listed must exist.
        Err(error) if is_absent(&error) && args.what != Commands => {
            let none = ListOutput::empty(args.what);
            Ok(ToolOutput::new(words::for_models(&error.message), &none))
        }
        Err(error) => Err(error),
    }
}

/// Lists what the arguments of `list` select.
async fn items(call: &CallContext, args: &args::List, parts: Option<Vec<Part>>) -> Result<ListOutput> {
    use args::ListKind::{Agents, Commands, Panes, Sessions, Windows};
    let mut output = ListOutput::default();
    match args.what {
        Sessions => {
            let list = |server: Server, targets: Vec<String>| async move { server.sessions_within(&targets).await };
            let (sessions, unreachable) = listed(call, args, parts, "sessions", list).await?;
            (output.sessions, output.unreachable) = (Some(sessions), unreachable);
        }
        Windows => {
            let list = |server: Server, targets: Vec<String>| async move { server.windows_within(&targets).await };
            let (windows, unreachable) = listed(call, args, parts, "windows", list).await?;
            (output.windows, output.unreachable) = (Some(windows), unreachable);
        }
        Panes => {
            let list = |server: Server, targets: Vec<String>| async move { server.panes_within(&targets).await };
            let (panes, unreachable) = listed(call, args, parts, "panes", list).await?;
            (output.panes, output.unreachable) = (Some(panes), unreachable);
        }
        Commands if args.everywhere => {
            return Err(Error::invalid("everywhere: not available for commands; name their pane as `target`"));
        }
        Commands => {
            let Some(target) = &args.target else {
                return Err(Error::invalid("target: missing; expected the pane whose commands are listed"));
            };
            let n = Some(args.n.unwrap_or(LISTED_COMMANDS));
            let request = CommandsRequest { n, failed: args.failed, grep: args.grep.clone(), over_ms: args.over_ms };
            let answer = call.server(args.server.as_deref())?.list_commands(target, &request).await?;
            (output.commands, output.marks) = (Some(answer.commands), Some(answer.marks));
        }
        Agents => {
            let list =
                |server: Server, targets: Vec<String>| async move { Ok(server.agents_within(&targets).await?.agents) };
            let (agents, unreachable) = listed(call, args, parts, "agents", list).await?;
            (output.agents, output.unreachable) = (Some(agents), unreachable);
        }
    }
    Ok(output)
}

/// Lists by `list`, on all hosts if requested; also returns the hosts that returned nothing.
/// `field`: the list's name over HTTP.
async fn listed<T, F>(
    call: &CallContext,
    args: &args::List,
    parts: Option<Vec<Part>>,
    field: &'static str,
    list: impl Fn(Server, Vec<String>) -> F,
) -> Result<(Vec<T>, Vec<HostInfo>)>
where
    T: DeserializeOwned,
    F: Future<Output = Result<Vec<T>>>,
{
    let targets = || args.target.iter().cloned().collect::<Vec<_>>();
    if parts.is_none() && !args.everywhere {
        return Ok((list(call.server(args.server.as_deref())?, targets()).await?, Vec::new()));
    }
    if args.everywhere && (args.server.is_some() || parts.is_some()) {
        let message = "everywhere: it lists this host and all others; leave out `server`, and the host in `target`";
        return Err(Error::invalid(message));
    }
    let list = &list;
    let there = |host: String, targets: Vec<String>| async move {
        match call.rooms.peers.list(&call.engine, &host, (field, &targets)).await? {
            Some(items) => Ok(items),
            None => list(call.server(Some(&default_server(&host)))?, targets).await,
        }
    };
    let Some(parts) = parts else {
        let server = call.server(None)?;
        return call
            .engine
            .list_everywhere(server, |server| list(server, targets()), |host| there(host, targets()))
            .await;
    };
    let of_part = |part: Part| async {
        match part.host {
            Some(host) => there(host, part.targets).await,
            None => list(call.server(args.server.as_deref())?, part.targets).await,
        }
    };
    call.engine.list_parts(parts, of_part).await
}

/// Calls the tool `capture_pane`.
pub(super) async fn capture(call: &CallContext, args: args::Capture) -> Result<ToolOutput> {
    let server = call.server(args.server.as_deref())?;
    if args.history.is_some() && args.start.is_some() {
        return Err(Error::invalid("history: give it or `start`, not both"));
    }
    let history = args.history.filter(|lines| *lines > 0).map(|lines| format!("-{lines}"));
    let request = CaptureRequest {
        start: args.start.or(history),
        end: args.end,
        join: args.join,
        escapes: args.escapes,
        trailing: args.trailing,
        verify: args.verify,
    };
    let answer = server.capture(&args.target, &request).await?;
    let text = if args.trailing { &answer.text } else { answer.text.trim_end() };
    let shown = truncate_start(text, args.max_chars, "max_chars: up to 1000000 returns them");
    let output = CaptureOutput {
        pane: answer.pane.to_string(),
        text: shown.text,
        cursor: answer.cursor.to_string(),
        cut: shown.cut,
        verified: answer.verified,
    };
    let verified = match &output.verified {
        Some(verified) if verified.same => "; tmux has the same",
        Some(_) => "; tmux's own capture differs",
        None => "",
    };
    Ok(ToolOutput::new(format!("{}\n[cursor {}{verified}]", output.text, output.cursor), &output))
}

/// The number of raw bytes in one read: for longer output `more` is set.
const READ_BYTES: u64 = muxtap_engine::limits::READ_MOST;

/// Calls the tool `read_since`.
pub(super) async fn read(call: &CallContext, args: args::Read) -> Result<ToolOutput> {
    let server = call.server(args.server.as_deref())?;
    let wait_ms = args.wait_ms.map(|wait| u64::try_from(call.capped(wait).as_millis()).unwrap_or(u64::MAX));
    let max_bytes = Some(args.max_bytes.unwrap_or(READ_BYTES));
    let request = ReadRequest {
        since: args.since,
        until: args.until,
        format: args.format,
        max_bytes,
        wait_ms,
        command: args.command,
    };
    let (mut cut, mut cut_since) = (0, None);
    let answer = match args.format {
        // Without a size, what came last: a model seldom needs more.
        ReadFormat::Text if args.max_chars.is_none() && args.max_bytes.is_none() => {
            let (answer, before, begin) = server.read_end(&args.target, &request, MAX_CHARS).await?;
            (cut, cut_since) = (before, (before > 0).then(|| begin.to_string()));
            answer
        }
        ReadFormat::Text => server.read_page(&args.target, &request, limit(args.max_chars)).await?,
        // Cut in the middle of a sequence or of base64 it would be useless.
        ReadFormat::Ansi | ReadFormat::Raw => {
            // Base64 has four characters for three bytes.
            let fits = limit(args.max_chars) / 4 * 3;
            let fits = u64::try_from(fits).unwrap_or(u64::MAX);
            let max_bytes = Some(args.max_bytes.unwrap_or(fits));
            server.read(&args.target, &ReadRequest { max_bytes, ..request }).await?
        }
    };
    let output = ReadOutput {
        pane: answer.pane.to_string(),
        text: answer.text.or(answer.data).unwrap_or_default(),
        cursor: answer.cursor.to_string(),
        cut,
        cut_since,
        more: answer.more,
        gap: answer.gap,
        command: answer.command,
        exited: answer.exited,
        exit_status: answer.exit_status,
    };
    Ok(ToolOutput::new(output.text(), &output))
}

/// Runs a command, or waits for the end of a running one; returns `pending` before a client times
/// out.
pub(super) async fn run(call: &CallContext, args: args::Run) -> Result<ToolOutput> {
    let chars = limit(args.max_chars);
    let (id, report) = match (args.id, args.target, args.command) {
        (Some(id), None, None) => {
            let hold = args.timeout_ms.map_or(call.max_hold(), |timeout| call.capped(timeout));
            let report = call.engine.run_result(&id, hold, chars).await;
            (id, report)
        }
        (Some(_), _, _) => return Err(Error::invalid("id: a pending run already has its target and command")),
        (None, Some(target), Some(command)) => {
            let server = call.server(args.server.as_deref())?;
            let meant = call.resolve_target(&server, Tier::Input, &target, args::TargetKind::Pane, Some(args.force));
            let meant = meant.await?;
            call.confirm(Tier::Input, &format!("Run a command in {target}")).await?;
            let request = RunRequest {
                command,
                timeout_ms: args.timeout_ms,
                clear_line: args.clear_line,
                prompt_ms: args.prompt_ms,
                escapes: false,
                key: None,
            };
            let run = server.begin_run(&meant, &request)?;
            let report = run.result(call.max_hold(), chars).await;
            let id = run.id().to_owned();
            // From here on any caller with the id may request the result.
            run.release();
            (id, report)
        }
        (None, _, _) => {
            return Err(Error::invalid("run: expected target and command, or the id of a pending run"));
        }
    };
    let report = report.map_err(|error| timed_out(error, &id))?;
    let output = RunOutput::of(&id, report);
    Ok(ToolOutput::new(output.text(), &output))
}

/// Adds the next step to the error of a run that timed out.
pub(super) fn timed_out(mut error: Error, id: &str) -> Error {
    if error.code == ErrorCode::Timeout && error.details.as_ref().is_some_and(|details| details["id"] == id) {
        error.message = format!(
            "{}: call run with id: {id:?} for its output and exit status, or send_keys with keys: [\"C-c\"] to stop it",
            error.message
        );
    }
    error
}

/// Calls the tool `send_keys`.
pub(super) async fn send(call: &CallContext, args: args::Send) -> Result<ToolOutput> {
    check_keys(&args.keys)?;
    let answers = match (args.question_id, args.answer) {
        (None, None) => None,
        (Some(question), Some(answer))
            if args.text.is_none() && args.keys.is_empty() && args.hex.is_none() && !args.submit =>
        {
            Some((question, answer))
        }
        (Some(_), Some(_)) => return Err(Error::invalid("answer: expected without text, keys, hex and submit")),
        (None, Some(_)) => {
            return Err(Error::invalid("answer: missing question_id; list (what: agents) shows it"));
        }
        (Some(_), None) => return Err(Error::invalid("question_id: missing answer, one of the question's answers")),
    };
    let server = call.server(args.server.as_deref())?;
    let kind = args::TargetKind::Pane;
    let target = call.resolve_target(&server, Tier::Input, &args.target, kind, Some(args.force)).await?;
    let what = match &answers {
        Some((question, answer)) if call.client.confirm.contains(&Tier::Input) => {
            answer_shown(&server, &args.target, question, answer).await?
        }
        _ => format!("Type into {}{}", plain::name(&args.target), hex_shown(args.hex.as_deref())),
    };
    call.confirm(Tier::Input, &what).await?;
    if let Some((question, answer)) = answers {
        let answered = server.answer(&target, &question, &answer).await?;
        let seen = if answered.taken { "the question is gone" } else { "the question is still shown" };
        let label = plain::name(&answered.label);
        let text = format!("answered {label:?} in {}; {seen} [cursor {}]", answered.pane, answered.cursor);
        let output = SendOutput {
            pane: answered.pane.to_string(),
            cursor: answered.cursor.to_string(),
            submit: None,
            answered: Some(answered.label),
            taken: Some(answered.taken),
        };
        return Ok(ToolOutput::new(text, &output));
    }
    let keys = (!args.keys.is_empty()).then_some(args.keys);
    let (first, then) = match (args.text, keys, args.hex) {
        // Text, then keys: two inputs, as two calls would be.
        (Some(text), Some(keys), None) if !args.submit => {
            (InputRequest { text: Some(text), paste: args.paste, ..InputRequest::default() }, Some(keys))
        }
        (text, keys, hex) => {
            (InputRequest { text, keys, hex, paste: args.paste, submit: args.submit, run: None }, None)
        }
    };
    let answer = server.input(&target, &first).await?;
    if let Some(keys) = then {
        let request = InputRequest { keys: Some(keys), ..InputRequest::default() };
        server.input(&answer.pane.to_string(), &request).await?;
    }
    let seen = answer.submit.map_or("", |seen| if seen.changed { "; it reacted" } else { "; no reaction yet" });
    let text = format!("sent to {}{seen} [cursor {}]", answer.pane, answer.cursor);
    let output = SendOutput {
        pane: answer.pane.to_string(),
        cursor: answer.cursor.to_string(),
        submit: answer.submit,
        answered: None,
        taken: None,
    };
    Ok(ToolOutput::new(text, &output))
}

/// Returns an agent's question with the selected answer, in words. Error: `CONFLICT` if the
/// question is not open.
async fn answer_shown(server: &Server, target: &str, question: &str, answer: &str) -> Result<String> {
    let agents = server.agents().await?.agents;
    let asks = agents.into_iter().find(|agent| agent.question_id.as_deref() == Some(question));
    let asks = asks.ok_or_else(|| {
        Error::new(
            ErrorCode::Conflict,
            format!("no agent asks the question {question:?} now; list (what: agents) shows open ones"),
        )
    })?;
    let option = asks.options.iter().find(|option| option.key == answer || option.label == answer);
    let label = option.map_or(answer, |option| &option.label);
    let asked: String = asks
        .question
        .iter()
        .flat_map(|text| text.lines())
        .flat_map(|line| ["\n    ".into(), plain::name(line)])
        .collect();
    Ok(format!(
        "Give the answer {:?} in {} to the question of {} in {}:\n{asked}\n\nThat",
        plain::name(label),
        plain::name(target),
        plain::name(&asks.name),
        asks.pane
    ))
}

/// Calls the tool `create`.
pub(super) async fn create(call: &CallContext, args: args::Create) -> Result<ToolOutput> {
    let server = call.server(args.server.as_deref())?;
    args.check()?;
    call.confirm(Tier::Create, &format!("Create a {:?}", args.what)).await?;
    let spawn = SpawnRequest {
        command: (!args.command.is_empty()).then_some(args.command),
        cwd: args.cwd,
        caller_cwd: call.client.cwd.clone(),
        env: args.env,
        keep: args.keep,
        caller_env: call.client.env.clone(),
        shell_integration: args.shell_integration,
    };
    let target = |what: &str| {
        args.target.clone().ok_or_else(|| {
            Error::invalid(format!("target: missing; expected the session or pane that the new {what} belongs to"))
        })
    };
    let made = match args.what {
        args::CreateKind::Session => {
            let request = NewSessionRequest {
                name: args.name,
                window_name: args.window_name,
                spawn,
                width: args.width,
                height: args.height,
                or_existing: args.or_existing,
            };
            server.create_session(&request).await?
        }
        args::CreateKind::Window => {
            let session = target("window")?;
            let request = NewWindowRequest { session, index: args.index, name: args.name, spawn, select: args.select };
            server.create_window(&request).await?
        }
        args::CreateKind::Pane => {
            let pane = target("pane")?;
            let request = SplitRequest {
                pane,
                horizontal: args.horizontal,
                before: args.before,
                full: args.full,
                size: args.size,
                spawn,
                select: args.select,
            };
            server.create_split(&request).await?
        }
    };
    let made_text = if args.or_existing { "created, or found without running the command," } else { "created" };
    let place = format!("{} in window {} of session {}", made.pane, made.window, made.session_name);
    Ok(ToolOutput::new(format!("{made_text} {}", plain::name(&place)), &made))
}

/// Returns the end of a consent question about input: the text that bytes in hexadecimal type.
pub(super) fn hex_shown(hex: Option<&str>) -> String {
    let Some(hex) = hex else { return String::new() };
    match unhex(hex) {
        Ok(bytes) => format!(" the bytes of \"{}\"", plain::name(&String::from_utf8_lossy(&bytes))),
        Err(_) => " bytes".to_owned(),
    }
}

/// Returns the kind of a target, by its form.
fn kind(target: &str, what: Option<args::TargetKind>) -> Result<args::TargetKind> {
    use args::TargetKind::{Pane, Session, Window};
    Ok(match (what, target.parse()?) {
        (Some(what), _) => what,
        (None, Target::Number(number)) => return Err(Error::bare_number(&number, &[])),
        (None, Target::Pane(_) | Target::Labels(_) | Target::Marked | Target::Place { pane: Some(_), .. }) => Pane,
        (None, Target::Window(_) | Target::Place { window: Some(_), .. }) => Window,
        (None, Target::Name(_) | Target::Place { session: SessionPart::Named(_), .. }) => Session,
        (None, Target::Sign(_) | Target::Place { .. }) => {
            let message = format!("{target}: ambiguous; expected `what`: pane, window or session");
            return Err(Error::new(ErrorCode::AmbiguousTarget, message));
        }
    })
}

/// Calls the tool `kill`.
pub(super) async fn kill(call: &CallContext, args: args::Kill) -> Result<ToolOutput> {
    let server = call.server(args.server.as_deref())?;
    let kind = kind(&args.target, args.what)?;
    let target = call.resolve_target(&server, Tier::Kill, &args.target, kind, Some(args.force)).await?;
    call.confirm(Tier::Kill, &format!("End the {kind:?} {}", args.target)).await?;
    match kind {
        args::TargetKind::Pane => server.kill_pane(&target).await?,
        args::TargetKind::Window => server.kill_window(&target).await?,
        args::TargetKind::Session => server.kill_session(&target).await?,
    }
    Ok(ToolOutput::new(format!("ended {}", plain::name(&args.target)), &DoneAnswer { ok: true }))
}

/// Calls the tool `change`.
pub(super) async fn change(call: &CallContext, args: args::Change) -> Result<ToolOutput> {
    let server = call.server(args.server.as_deref())?;
    let spawns = !args.command.is_empty() || args.cwd.is_some() || !args.env.is_empty() || args.keep;
    if !args.respawn && (spawns || args.kill) {
        return Err(Error::invalid(
            "command, cwd, env, keep and kill: only with respawn: true; run types a command into a shell",
        ));
    }
    let kind = match args.layout {
        Some(_) => args::TargetKind::Window,
        None if args.zoom.is_some() || args.leave_mode || args.respawn => args::TargetKind::Pane,
        None => kind(&args.target, None)?,
    };
    let tier = args.operation().tier();
    // Only killing the caller's own pane is rejected.
    let force = (!args.kill).then_some(true);
    let target = call.resolve_target(&server, tier, &args.target, kind, force).await?;
    let runs = match args.command.as_slice() {
        [] => "what ran before".to_owned(),
        words => words.join(" "),
    };
    let question = match (args.respawn, args.kill) {
        // Rules act by labels: the person who is asked sees them.
        (false, _) => match &args.labels {
            Some(labels) => format!("Label {}: {}", args.target, in_words(labels)),
            None => format!("Change {}", args.target),
        },
        (true, false) => format!("Start {runs} in {}", args.target),
        (true, true) => format!("End what runs in {} and start {runs} there", args.target),
    };
    call.confirm(tier, &question).await?;
    let respawn = args.respawn.then(|| RespawnRequest {
        kill: args.kill,
        spawn: SpawnRequest {
            command: (!args.command.is_empty()).then_some(args.command),
            cwd: args.cwd,
            env: args.env,
            keep: args.keep,
            shell_integration: args.shell_integration,
            ..SpawnRequest::default()
        },
    });
    let patch = PatchRequest {
        name: args.name,
        layout: args.layout,
        width: args.width,
        height: args.height,
        respawn,
        select: args.select,
        zoom: args.zoom,
        leave_mode: args.leave_mode,
        labels: args.labels,
    };
    match kind {
        args::TargetKind::Pane => server.patch_pane(&target, &patch).await?,
        args::TargetKind::Window => server.patch_window(&target, &patch).await?,
        args::TargetKind::Session => server.patch_session(&target, &patch).await?,
    }
    Ok(ToolOutput::new(format!("changed {}", plain::name(&args.target)), &DoneAnswer { ok: true }))
}

/// Returns changes of labels in words.
fn in_words(labels: &BTreeMap<String, String>) -> String {
    let change = |(key, value): (&String, &String)| {
        if value.is_empty() { format!("{key} removed") } else { format!("{key}={value}") }
    };
    labels.iter().map(change).collect::<Vec<_>>().join(", ")
}

/// Calls the tool `search`.
pub(super) async fn search(call: &CallContext, args: args::Search) -> Result<ToolOutput> {
    let server = call.server(args.server.as_deref())?;
    let text = args.pattern.clone();
    let compile = move || {
        let pattern = regex::RegexBuilder::new(&text).size_limit(SEARCH_BYTES).build();
        pattern.map_err(|error| Error::invalid(format!("pattern: {error}")))
    };
    let pattern = call.engine.compile([args.pattern.as_str()], compile).await?;
    let most = args.max_lines.unwrap_or(50).clamp(1, 1000);
    let context = args.context.unwrap_or_default().min(MOST_CONTEXT);
    let page = args.page.unwrap_or_default();
    if page > MOST_PAGES {
        return Err(Error::invalid(format!("page: at most {MOST_PAGES}; narrow `pattern` or `targets`")));
    }
    let mut panes = server.panes_within(&args.targets).await?;
    // An id is read from the pane that has it now.
    panes.retain(|pane| !pane.earlier_server);
    if context > 0 && most.saturating_mul(page + 1).saturating_mul(panes.len()) > MOST_WITH_CONTEXT {
        let message = format!(
            "context: too much for {} panes; expected fewer `targets`, pages or `max_lines`, or no context",
            panes.len()
        );
        return Err(Error::invalid(message));
    }
    // The semaphore is never closed. A thread continues after its caller has left, so it owns the
    // turn.
    let turn = Arc::new(SEARCHING.acquire().await.ok());
    let mut output = SearchOutput { searched: panes.len(), ..SearchOutput::default() };
    let mut of_panes = Vec::new();
    for pane in panes {
        let mut text = String::new();
        let mut since = "start".to_owned();
        loop {
            let request = ReadRequest { since: Some(since), max_bytes: Some(READ_BYTES), ..ReadRequest::default() };
            match server.read(&pane.id.to_string(), &request).await {
                Ok(answer) => {
                    text.push_str(&answer.text.unwrap_or_default());
                    since = answer.cursor.to_string();
                    if !answer.more {
                        break;
                    }
                }
                // The pane has disappeared in the meantime.
                Err(error) if error.code == ErrorCode::NotFound => break,
                Err(error) => return Err(error),
            }
        }
        let pattern = pattern.clone();
        // A pattern may take long over a whole ring; other calls must not wait for it.
        let (id, kept) = (pane.id.to_string(), most.saturating_mul(page + 1));
        let turn = turn.clone();
        let search = move || {
            let _turn = turn;
            matching_lines(&id, &pattern, &text, kept, context)
        };
        let found = tokio::task::spawn_blocking(search).await;
        let found = found.map_err(|error| Error::internal(error.to_string()))?;
        output.matches += found.1;
        of_panes.push(found);
    }
    output.take_page(of_panes, most, page);
    Ok(ToolOutput::new(output.text(), &output))
}

/// The number of commands that `list` returns by default.
const LISTED_COMMANDS: u64 = 20;

/// The maximum number of lines before and after a match.
pub(super) const MOST_CONTEXT: usize = 20;
/// The last page of a search.
pub(super) const MOST_PAGES: usize = 1000;
/// The number of lines, over all pages and panes of `search`, that keep their context.
const MOST_WITH_CONTEXT: usize = 100_000;

/// The number of concurrent searches: each holds the text of a pane and a thread. Further searches
/// wait for their turn.
const SEARCHES: usize = 2;
static SEARCHING: Semaphore = Semaphore::const_new(SEARCHES);

/// The size limit of a compiled pattern, in bytes.
const SEARCH_BYTES: usize = 1 << 20;

/// Returns the maximum number of characters in a result's text.
pub(super) fn limit(max_chars: Option<usize>) -> usize {
    max_chars.unwrap_or(MAX_CHARS).clamp(100, MOST_CHARS)
}

impl ToolOutput {
    /// Creates a result from its text, with `answer` as its JSON.
    pub(super) fn new(text: impl Into<String>, answer: &impl Serialize) -> Self {
        Self {
            text: text.into(),
            answer: serde_json::to_value(answer).unwrap_or(Value::Object(Map::new())),
            is_error: false,
        }
    }
}

impl CallContext {
    /// Resolves a target to an id, which means the same after a person has answered. Error: the
    /// caller itself runs in it, without `force` (`None`: cannot be forced). If neither the
    /// caller's own pane nor a person is involved, the target stays as it is, and tmux is not
    /// queried.
    async fn resolve_target(
        &self,
        server: &Server,
        tier: Tier,
        target: &str,
        kind: args::TargetKind,
        force: Option<bool>,
    ) -> Result<String> {
        let own = self.client.own_pane(server.socket()).filter(|_| force != Some(true));
        if own.is_none() && !self.client.confirm.contains(&tier) {
            return Ok(target.to_owned());
        }
        let meant = match kind {
            args::TargetKind::Pane => server.pane_id(target).await?,
            args::TargetKind::Window => server.window_id(target).await?,
            args::TargetKind::Session => server.session_id(target).await?,
        };
        let Some(own) = own else { return Ok(meant) };
        let panes = server.panes().await?;
        let Some(own) = panes.into_iter().find(|pane| pane.id.to_string() == own) else { return Ok(meant) };
        let its = match kind {
            args::TargetKind::Pane => own.id.to_string(),
            args::TargetKind::Window => own.window_id,
            args::TargetKind::Session => own.session_id,
        };
        if meant == its {
            let hint = force.map_or("", |_| "; set force: true to do it anyway");
            let message = format!("{target} is where you run ({}){hint}", own.id);
            return Err(Error::new(ErrorCode::Conflict, message));
        }
        Ok(meant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::Form;

    /// The text is written anew with `MUXTAP_WRITE_SCHEMAS=1`.
    #[test]
    fn the_stored_schemas_are_those_of_the_types() {
        let sets = [&*TOOLS, &*SNAPSHOT, &*EARLIER, &*crate::record::TOOLS, &*capability::TOOLS];
        let tools = sets.into_iter().chain([&*crate::devices::TOOLS, &*crate::sessions::TOOLS]).flatten();
        // The supervisor's tool has a schema that is written by hand.
        let tools = tools.filter(|tool| tool.name != SUPERVISOR.name).collect::<Vec<_>>();
        let mut lines: Vec<String> = Vec::new();
        for tool in &tools {
            let schemas = serde_json::json!({ "arguments": tool.input_schema, "result": tool.output_schema });
            lines.push(format!("{}: {schemas}", Value::from(&*tool.name)));
        }
        lines.sort();
        let text = format!("{{\n{}\n}}\n", lines.join(",\n"));
        if std::env::var_os("MUXTAP_WRITE_SCHEMAS").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/schemas.json");
            std::fs::write(path, text).unwrap();
            return;
        }
        assert!(schemas::TEXT == text, "schemas.json is out of date: run this test with MUXTAP_WRITE_SCHEMAS=1");
        for tool in tools {
            let (arguments, result) = schemas::of(&tool.name);
            assert_eq!((&tool.input_schema, &tool.output_schema), (&arguments, &Some(result)), "{}", tool.name);
        }
    }

    /// The usual sets of an agent that works for a person take 10 KiB of its context; all sets
    /// together are also bounded.
    #[test]
    fn sets_that_are_taken_together_are_small() {
        let bytes = |sets: &[ToolSet]| serde_json::to_string(&Form::Text.tools(of(sets))).unwrap().len();
        let usual = [ToolSet::Native, ToolSet::Devices, ToolSet::Sessions];
        assert!(bytes(&usual) < 10 << 10, "{} bytes", bytes(&usual));
        let all = [&usual[..], &[ToolSet::Snapshot, ToolSet::Record, ToolSet::Capability]].concat();
        assert!(bytes(&all) < 14_500, "{} bytes", bytes(&all));
    }

    #[test]
    fn the_list_of_tools_is_small_and_whole() {
        let json = serde_json::to_string(&Form::Text.tools(TOOLS.clone())).unwrap();
        assert!(json.len() < 8_200, "{} bytes: {json}", json.len());
        for tool in TOOLS.iter().chain(&*SNAPSHOT) {
            let schema = tool.schema_as_json_value();
            assert_eq!(schema["type"], "object", "{}", tool.name);
            for (name, field) in schema["properties"].as_object().unwrap() {
                let output =
                    field["description"].is_string() || crate::schema::SELF_EXPLANATORY.contains(&name.as_str());
                let named = ["action", "target", "name"].contains(&name.as_str());
                assert!(output || named, "{} {name}: {field}", tool.name);
                assert!(field.get("$ref").is_none(), "{} {name}: {field}", tool.name);
            }
            let output = tool.output_schema.as_ref().map(|schema| Value::Object((**schema).clone()));
            assert!(output.is_some_and(|output| output["type"] == "object"), "{}", tool.name);
            assert!(tool.annotations.is_some() && tool.description.is_some());
        }
    }

    #[test]
    fn each_selection_of_sets_describes_the_server_once() {
        for (sets, described) in [
            (&[ToolSet::Native, ToolSet::Record][..], 1),
            (&[ToolSet::Record], 1),
            (&[ToolSet::Sessions, ToolSet::Record], 1),
            (&[ToolSet::Snapshot, ToolSet::Sessions], 1),
            (&[ToolSet::Devices], 0),
        ] {
            let has =
                |tool: &&Tool| tool.input_schema.get("properties").is_some_and(|fields| fields.get("server").is_some());
            assert_eq!(of(sets).iter().filter(has).count(), described, "{sets:?}");
        }
    }

    #[test]
    fn a_person_sees_which_bytes_are_typed() {
        assert_eq!(hex_shown(None), "");
        assert_eq!(hex_shown(Some("72 6d20780d")), r#" the bytes of "rm x\r""#);
        assert_eq!((hex_shown(Some("zz")), hex_shown(Some("7"))), (" bytes".into(), " bytes".into()));
    }

    #[test]
    fn a_target_says_what_it_is() {
        use args::TargetKind::{Pane, Session, Window};
        for (target, is) in [
            ("%3", Pane),
            ("@1", Window),
            ("work", Session),
            ("$0", Session),
            ("work:1", Window),
            ("work:1.0", Pane),
            ("pane:%3", Pane),
            ("terminal:%3", Pane),
        ] {
            assert_eq!(kind(target, None).unwrap(), is, "{target}");
        }
        assert_eq!(kind("work", Some(Pane)).unwrap(), Pane);
        assert_eq!(kind("3", Some(Session)).unwrap(), Session);
        assert_eq!(kind("3", None).unwrap_err().code, ErrorCode::AmbiguousTarget);
    }
}
