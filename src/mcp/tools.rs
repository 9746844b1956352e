//! The tools: the description of each for a model, and what each does with the engine.

use std::{collections::BTreeMap, sync::LazyLock};

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{
    CallContext,
    args::{self, parse},
    output::{CaptureOutput, ListOutput, ReadOutput, RunOutput, SearchOutput, ToolOutput, WatchOutput, matching_lines},
    schema,
    truncate::truncate_middle,
};
use crate::{
    api::{
        CaptureRequest, CreatedAnswer, DoneAnswer, Error, ErrorCode, InputAnswer, InputRequest, NewSessionRequest,
        NewWindowRequest, PatchRequest, ReadRequest, Result, RunRequest, SpawnRequest, SplitRequest, Tier, WaitAnswer,
    },
    engine::{Names, Server, SessionPart, Target, is_number},
};

/// A tool's effect on the world, for `annotations`.
#[derive(Clone, Copy)]
enum Effect {
    Reads,
    Types,
    Makes,
    Changes,
    Ends,
}

fn tool<I: ToSchema, O: ToSchema>(name: &'static str, description: &'static str, effect: Effect) -> Tool {
    let annotations = ToolAnnotations::new();
    // Annotations that are left out have the value that a client assumes.
    let annotations = match effect {
        Effect::Reads => annotations.read_only(true),
        Effect::Types => annotations.destructive(true),
        Effect::Makes => annotations.destructive(false),
        Effect::Changes => annotations.destructive(false).idempotent(true),
        Effect::Ends => annotations.idempotent(true),
    };
    Tool::new(name, description, schema::input::<I>())
        .with_annotations(annotations)
        .with_raw_output_schema(schema::output::<O>())
}

/// All tools.
pub static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    use Effect::{Changes, Ends, Makes, Reads, Types};
    vec![
        tool::<args::List, ListOutput>(
            "list",
            "List tmux sessions, windows, panes, or the coding agents in panes: what each does and asks.",
            Reads,
        ),
        tool::<args::Capture, CaptureOutput>("capture_pane", "What a pane shows now (as tmux capture-pane -p).", Reads),
        tool::<args::Read, ReadOutput>(
            "read_since",
            "What a pane printed since a point; with the cursor of the last answer, only what is new.",
            Reads,
        ),
        tool::<args::Wait, WaitAnswer>(
            "wait_for",
            "Wait until panes print a pattern, rest, show a prompt or end. Answers the moment it happens, also when it \
             happened since the last input. `pending`: call again with its id. Never poll with sleep.",
            Reads,
        ),
        tool::<args::Run, RunOutput>(
            "run",
            "Run a command in a shell that rests in a pane: its output and exit status.",
            Types,
        ),
        tool::<args::Send, InputAnswer>(
            "send_keys",
            "Type text or press keys in a pane; then wait_for the answer.",
            Types,
        ),
        tool::<args::Create, CreatedAnswer>("create", "Make a session, a window or a pane; answers its pane.", Makes),
        tool::<args::Kill, DoneAnswer>("kill", "End a pane, window or session and what runs in it.", Ends),
        tool::<args::Change, DoneAnswer>("change", "Rename, resize or lay out a session, window or pane.", Changes),
        tool::<args::Watch, WatchOutput>(
            "watch",
            "What happens in panes: output, ends, bells, agents. Give `resume` of the last answer to miss nothing.",
            Reads,
        ),
        tool::<args::Search, SearchOutput>("search", "Find lines in all that panes have printed.", Reads),
        super::supervisor_tool::tool().with_annotations(ToolAnnotations::new().destructive(true)),
    ]
});

/// Calls a tool. `None`: there is no such tool.
pub async fn call(call: &CallContext, name: &str, arguments: JsonObject) -> Option<Result<ToolOutput>> {
    Some(match name {
        "list" => list(call, arguments).await,
        "capture_pane" => capture(call, arguments).await,
        "read_since" => read(call, arguments).await,
        "wait_for" => super::wait::wait(call, arguments).await,
        "run" => run(call, arguments).await,
        "send_keys" => send(call, arguments).await,
        "create" => create(call, arguments).await,
        "kill" => kill(call, arguments).await,
        "change" => change(call, arguments).await,
        "search" => search(call, arguments).await,
        "watch" => super::watch::watch(call, arguments).await,
        _ => return None,
    })
}

async fn list(call: &CallContext, arguments: JsonObject) -> Result<ToolOutput> {
    let args: args::List = parse(arguments)?;
    let server = call.server(args.server.as_deref())?;
    let scopes = match &args.target {
        None => server.scopes(&[]).await?,
        // Where sessions are listed a number can be nothing else.
        Some(number) if args.what == args::ListKind::Sessions && is_number(number) => {
            server.scopes(&[format!("{number}:")]).await?
        }
        Some(target) => server.scopes(std::slice::from_ref(target)).await?,
    };
    let wanted = |named: Names<'_>| scopes.include(named);
    let mut listed = ListOutput::default();
    match args.what {
        args::ListKind::Sessions => {
            let mut sessions = server.sessions().await?;
            sessions.retain(|one| wanted(one.into()));
            listed.sessions = Some(sessions);
        }
        args::ListKind::Windows => {
            let mut windows = server.windows().await?;
            windows.retain(|one| wanted(one.into()));
            listed.windows = Some(windows);
        }
        args::ListKind::Panes => {
            let mut panes = server.panes().await?;
            panes.retain(|one| wanted(one.into()));
            listed.panes = Some(panes);
        }
        args::ListKind::Agents => {
            let mut agents = server.agents().await?.agents;
            agents.retain(|one| wanted(one.into()));
            listed.agents = Some(agents);
        }
    }
    Ok(ToolOutput::new(listed.text(), &listed))
}

async fn capture(call: &CallContext, arguments: JsonObject) -> Result<ToolOutput> {
    let args: args::Capture = parse(arguments)?;
    let server = call.server(args.server.as_deref())?;
    let start = args.history.filter(|lines| *lines > 0).map(|lines| format!("-{lines}"));
    let request = CaptureRequest { start, escapes: args.escapes, join: args.join, ..CaptureRequest::default() };
    let answer = server.capture(&args.target, &request).await?;
    let shown = truncate_middle(answer.text.trim_end(), args.max_chars);
    let output = CaptureOutput {
        pane: answer.pane.to_string(),
        text: shown.text,
        cursor: answer.cursor.to_string(),
        cut: shown.cut,
    };
    Ok(ToolOutput::new(output.text.clone(), &output))
}

/// Raw bytes of one read: of longer output `more` says that there is a rest.
const READ_BYTES: u64 = crate::engine::limits::READ_MOST;

async fn read(call: &CallContext, arguments: JsonObject) -> Result<ToolOutput> {
    let args: args::Read = parse(arguments)?;
    let server = call.server(args.server.as_deref())?;
    let wait_ms = args.wait_ms.map(|wait| u64::try_from(call.capped(wait).as_millis()).unwrap_or(u64::MAX));
    let request = ReadRequest { since: args.since, max_bytes: Some(READ_BYTES), wait_ms, ..ReadRequest::default() };
    let answer = server.read(&args.target, &request).await?;
    let shown = truncate_middle(&answer.text.unwrap_or_default(), args.max_chars);
    let output = ReadOutput {
        pane: answer.pane.to_string(),
        text: shown.text,
        cursor: answer.cursor.to_string(),
        cut: shown.cut,
        more: answer.more,
        gap: answer.gap,
        exited: answer.exited,
        exit_status: answer.exit_status,
    };
    let text = if output.text.is_empty() { "(nothing new)".to_owned() } else { output.text.clone() };
    Ok(ToolOutput::new(text, &output))
}

async fn run(call: &CallContext, arguments: JsonObject) -> Result<ToolOutput> {
    let args: args::Run = parse(arguments)?;
    let server = call.server(args.server.as_deref())?;
    let target = call.resolve_target(&server, Tier::Input, &args.target, args::TargetKind::Pane, args.force).await?;
    call.confirm(Tier::Input, &format!("Run a command in {}", args.target)).await?;
    let request =
        RunRequest { command: args.command, timeout_ms: args.timeout_ms, clear_line: args.clear_line, prompt_ms: None };
    let answer = server.run(&target, &request).await?;
    let output = truncate_middle(&answer.output, args.max_chars);
    let output = RunOutput {
        pane: answer.pane.to_string(),
        output: output.text,
        exit_status: answer.exit_status,
        duration_ms: answer.duration_ms,
        cursor: answer.cursor.to_string(),
        cut: output.cut,
        truncated: answer.truncated,
        shell_ended: answer.shell_ended,
    };
    let status = output.exit_status.map_or_else(|| "unknown".to_owned(), |status| status.to_string());
    let shell = if output.shell_ended { "; the shell ended with the command" } else { "" };
    Ok(ToolOutput::new(format!("{}[exit status {status}{shell}]", output.output), &output))
}

async fn send(call: &CallContext, arguments: JsonObject) -> Result<ToolOutput> {
    let args: args::Send = parse(arguments)?;
    let server = call.server(args.server.as_deref())?;
    let target = call.resolve_target(&server, Tier::Input, &args.target, args::TargetKind::Pane, args.force).await?;
    call.confirm(Tier::Input, &format!("Type into {}", args.target)).await?;
    let keys = (!args.keys.is_empty()).then_some(args.keys);
    let (first, then) = match (args.text, keys) {
        // Text, and keys behind it: two inputs, as two calls would be.
        (Some(text), Some(keys)) if !args.submit => {
            (InputRequest { text: Some(text), paste: args.paste, ..InputRequest::default() }, Some(keys))
        }
        (text, keys) => {
            (InputRequest { text, keys, paste: args.paste, submit: args.submit, ..InputRequest::default() }, None)
        }
    };
    let answer = server.input(&target, &first).await?;
    if let Some(keys) = then {
        let request = InputRequest { keys: Some(keys), ..InputRequest::default() };
        server.input(&answer.pane.to_string(), &request).await?;
    }
    let seen = answer.submit.map_or("", |seen| match (seen.echoed, seen.changed) {
        (_, true) => "; it reacted",
        (_, false) => "; no reaction yet",
    });
    Ok(ToolOutput::new(format!("sent to {}{seen}", answer.pane), &answer))
}

async fn create(call: &CallContext, arguments: JsonObject) -> Result<ToolOutput> {
    let args: args::Create = parse(arguments)?;
    let server = call.server(args.server.as_deref())?;
    call.confirm(Tier::Create, &format!("Make a {:?}", args.what)).await?;
    let spawn = SpawnRequest {
        command: args.command.map(|line| vec![line]),
        cwd: args.cwd.or_else(|| call.client.cwd.clone()),
        env: args.env,
        keep: args.keep,
        caller_env: call.client.env.clone(),
    };
    let target = |what: &str| {
        args.target
            .clone()
            .ok_or_else(|| Error::invalid(format!("target: say which session or pane the new {what} belongs to")))
    };
    let made = match args.what {
        args::CreateKind::Session => {
            let request = NewSessionRequest { name: args.name, spawn, ..NewSessionRequest::default() };
            server.create_session(&request).await?
        }
        args::CreateKind::Window => {
            let request =
                NewWindowRequest { session: target("window")?, name: args.name, spawn, ..NewWindowRequest::default() };
            server.create_window(&request).await?
        }
        args::CreateKind::Pane => {
            let pane = target("pane")?;
            let request = SplitRequest { pane, horizontal: args.horizontal, spawn, ..SplitRequest::default() };
            server.create_split(&request).await?
        }
    };
    Ok(ToolOutput::new(format!("made {} in session {}", made.pane, made.session_name), &made))
}

/// Returns the kind of a target, by how it is written.
fn kind(target: &str, what: Option<args::TargetKind>) -> Result<args::TargetKind> {
    use args::TargetKind::{Pane, Session, Window};
    Ok(match (what, target.parse()?) {
        (Some(what), _) => what,
        (None, Target::Number(number)) => return Err(Error::bare_number(&number, &[])),
        (None, Target::Pane(_) | Target::Marked | Target::Place { pane: Some(_), .. }) => Pane,
        (None, Target::Window(_) | Target::Place { window: Some(_), .. }) => Window,
        (None, Target::Name(_) | Target::Place { session: SessionPart::Named(_), .. }) => Session,
        (None, Target::Sign(_) | Target::Place { .. }) => {
            let message = format!("{target}: say with `what` whether a pane, a window or a session is meant");
            return Err(Error::new(ErrorCode::AmbiguousTarget, message));
        }
    })
}

async fn kill(call: &CallContext, arguments: JsonObject) -> Result<ToolOutput> {
    let args: args::Kill = parse(arguments)?;
    let server = call.server(args.server.as_deref())?;
    let kind = kind(&args.target, args.what)?;
    let target = call.resolve_target(&server, Tier::Kill, &args.target, kind, args.force).await?;
    call.confirm(Tier::Kill, &format!("End the {kind:?} {}", args.target)).await?;
    match kind {
        args::TargetKind::Pane => server.kill_pane(&target).await?,
        args::TargetKind::Window => server.kill_window(&target).await?,
        args::TargetKind::Session => server.kill_session(&target).await?,
    }
    Ok(ToolOutput::new(format!("ended {}", args.target), &DoneAnswer { ok: true }))
}

async fn change(call: &CallContext, arguments: JsonObject) -> Result<ToolOutput> {
    let args: args::Change = parse(arguments)?;
    let server = call.server(args.server.as_deref())?;
    call.confirm(Tier::Create, &format!("Change {}", args.target)).await?;
    let kind = match args.layout {
        Some(_) => args::TargetKind::Window,
        None => kind(&args.target, None)?,
    };
    let patch = PatchRequest {
        name: args.name,
        layout: args.layout,
        width: args.width,
        height: args.height,
        ..PatchRequest::default()
    };
    match kind {
        args::TargetKind::Pane => server.patch_pane(&args.target, &patch).await?,
        args::TargetKind::Window => server.patch_window(&args.target, &patch).await?,
        args::TargetKind::Session => server.patch_session(&args.target, &patch).await?,
    }
    Ok(ToolOutput::new(format!("changed {}", args.target), &DoneAnswer { ok: true }))
}

async fn search(call: &CallContext, arguments: JsonObject) -> Result<ToolOutput> {
    let args: args::Search = parse(arguments)?;
    let server = call.server(args.server.as_deref())?;
    let text = args.pattern.clone();
    let compile = move || {
        let pattern = regex::RegexBuilder::new(&text).size_limit(SEARCH_BYTES).build();
        pattern.map_err(|error| Error::invalid(format!("pattern: {error}")))
    };
    let pattern = call.engine.compile([args.pattern.as_str()], compile).await?;
    let most = args.max_lines.unwrap_or(50).clamp(1, 1000);
    let scopes = server.scopes(&args.targets).await?;
    let mut panes = server.panes().await?;
    // An id is read from the pane that has it now.
    panes.retain(|pane| !pane.earlier_server);
    panes.retain(|pane| scopes.include(pane));
    let mut output = SearchOutput { searched: panes.len(), ..SearchOutput::default() };
    let mut of_panes = BTreeMap::new();
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
                // The pane has gone in the meantime.
                Err(error) if error.code == ErrorCode::NotFound => break,
                Err(error) => return Err(error),
            }
        }
        let pattern = pattern.clone();
        // A pattern may take long over a whole ring; other calls must not wait for it.
        let found = tokio::task::spawn_blocking(move || matching_lines(&pattern, &text, most)).await;
        let (lines, count) = found.map_err(|error| Error::internal(error.to_string()))?;
        output.matches += count;
        of_panes.insert(pane.id.to_string(), lines);
    }
    output.take_last(of_panes, most);
    Ok(ToolOutput::new(output.text(), &output))
}

/// The size limit of a compiled pattern, in bytes.
const SEARCH_BYTES: usize = 1 << 20;

/// A result whose text is given and whose JSON is `answer`.
impl ToolOutput {
    fn new(text: impl Into<String>, answer: &impl Serialize) -> Self {
        Self { text: text.into(), answer: serde_json::to_value(answer).unwrap_or(Value::Object(Map::new())) }
    }
}

impl CallContext {
    /// Resolves a target to an id, so that it means the same after a person has answered. Error:
    /// the caller itself runs there.
    /// Where neither the caller's own pane nor a person is in question the target stays as it is,
    /// and tmux is not asked.
    async fn resolve_target(
        &self,
        server: &Server,
        tier: Tier,
        target: &str,
        kind: args::TargetKind,
        force: bool,
    ) -> Result<String> {
        let own = self.client.own_pane(server.socket()).filter(|_| !force);
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
            return Err(Error::new(
                ErrorCode::Conflict,
                format!("{target} is where you run yourself ({}); say force: true if that is what you want", own.id),
            ));
        }
        Ok(meant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_tools_is_small_and_whole() {
        let json = serde_json::to_string(&*TOOLS).unwrap();
        assert!(json.len() < 10_000, "{} bytes: {json}", json.len());
        for tool in &*TOOLS {
            let schema = tool.schema_as_json_value();
            assert_eq!(schema["type"], "object", "{}", tool.name);
            for (name, field) in schema["properties"].as_object().unwrap() {
                let output = field["description"].is_string() || schema::SELF_EXPLANATORY.contains(&name.as_str());
                // What `server` is stands at the first tool.
                assert!(output || name == "server" || name == "action", "{} {name}: {field}", tool.name);
                assert!(field.get("$ref").is_none(), "{} {name}: {field}", tool.name);
            }
            // The supervisor answers in texts.
            let output = tool.output_schema.as_ref().map(|schema| Value::Object((**schema).clone()));
            assert!(
                output.map_or(tool.name == "manage_tmux_sessions", |output| output["type"] == "object"),
                "{}",
                tool.name
            );
            assert!(tool.annotations.is_some() && tool.description.is_some());
        }
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
