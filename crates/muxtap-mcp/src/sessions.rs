//! The tool `agent_session`, of the set `sessions`: sessions of other coding agents.

use std::{collections::BTreeMap, fmt::Write as _, sync::LazyLock, time::Duration};

use muxtap_base::plain;
use muxtap_core::stream::render::text_end;
use muxtap_engine::{Caller, Engine, Principal};
use muxtap_sessions::AgentSessions;
use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    CallContext, ElicitationOutcome,
    args::one_or_many,
    output::ToolOutput,
    quoted::{push_quoted, push_row},
    tools::{Effect, tool},
    truncate::{MAX_CHARS, MOST_CHARS},
};

use muxtap_api::{
    AgentAnswerRequest, AgentEarlier, AgentEarlierRequest, AgentEvent, AgentEventsQuery, AgentQuestion,
    AgentSessionInfo, AgentSessionPatch, AgentSessionRequest, AgentWaitOutcome, AgentWaitRequest, Error, ErrorCode,
    PromptOutcome, PromptRequest, Result, Tier,
};

/// The name of the tool.
pub const NAME: &str = "agent_session";
/// The number of events that are read at once.
const PAGE_EVENTS: u64 = 1024;
/// The size of an agent's messages that are kept while more are read, in bytes: far more than a
/// result has.
const KEPT_BYTES: usize = 64 << 10;

/// Arguments of `agent_session`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentSessionArguments {
    /// Default list
    #[serde(default)]
    pub action: AgentSessionAction,
    /// session:PROVIDER:ID
    pub session: Option<String>,
    /// create, list: an agent (sdk: default)
    pub provider: Option<String>,
    /// create: absolute
    pub cwd: Option<String>,
    /// create: earlier id
    pub resume: Option<String>,
    /// create, set: mode
    pub mode: Option<String>,
    /// create: its variables
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The prompt
    pub text: Option<String>,
    /// wait: regexes (default: until idle)
    #[serde(default, deserialize_with = "one_or_many")]
    pub patterns: Vec<String>,
    /// read, wait: cursor (default: prompt)
    pub since: Option<String>,
    /// send, wait: timeout (0: queue)
    pub wait_ms: Option<u64>,
    /// Page size
    pub max_chars: Option<usize>,
    /// answer: its id
    pub question: Option<String>,
    /// answer: yes or no
    pub allow: Option<bool>,
    /// answer: an option; set: ID=VALUE
    pub option: Option<String>,
    /// answer: form values
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub content: BTreeMap<String, serde_json::Value>,
    /// As in list
    pub server: Option<String>,
}

/// Actions of `agent_session`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentSessionAction {
    /// Starts an agent.
    Create,
    /// Lists sessions.
    #[default]
    List,
    /// Sends a prompt.
    Send,
    /// Waits.
    Wait,
    /// Reads the agent's messages.
    Read,
    /// Cancels the running prompt.
    Interrupt,
    /// Sets the mode, options.
    Set,
    /// Lists sessions to resume.
    Earlier,
    /// Ends the agent.
    Kill,
    /// Answers a permission question.
    Answer,
}

/// Result of `agent_session`.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct AgentSessionOutput {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sessions: Vec<AgentSessionInfo>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(ignore)]
    earlier: Vec<AgentEarlier>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<u64>,
    /// `pending`: it is still running.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
    // The number of characters before the text.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(ignore)]
    cut: usize,
    // More was said: `cursor` continues.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(ignore)]
    more: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    questions: Vec<AgentQuestion>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The tools of the set.
pub static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    vec![tool::<AgentSessionArguments, AgentSessionOutput>(
        NAME,
        "Work with another coding agent: prompt it, get its outcome; `pending`: wait. \
         Answer its `questions`.",
        Effect::Types,
    )]
});

/// Calls the tool.
pub async fn call(call: &CallContext, args: AgentSessionArguments) -> Result<ToolOutput> {
    let sessions = &call.rooms.sessions;
    let needs = |field: &str, given: &Option<String>| {
        given.clone().ok_or_else(|| Error::invalid(format!("{field}: missing; this action requires it")))
    };
    let hold = args.wait_ms.map_or(call.max_hold(), |wait| call.capped(wait));
    let mut output = AgentSessionOutput::default();
    let name = match args.action {
        AgentSessionAction::List => return list(call, args.provider.as_deref(), output),
        AgentSessionAction::Earlier => return earlier(call, args, output).await,
        AgentSessionAction::Create => {
            let provider = needs("provider", &args.provider)?;
            let cwd = args.cwd.clone().or_else(|| call.client.cwd.clone());
            let cwd = needs("cwd", &cwd)?;
            let process = call.process().await;
            if let Some(mode) = &args.mode {
                sessions.check_mode(&as_shown(call), &provider, process.as_ref())?;
                let session = args.resume.as_ref().map(|id| format!(", its session {id}")).unwrap_or_default();
                let what = format!("Start the agent {provider} in {cwd}{session} in mode {mode:?}");
                ask_person(call, Tier::Create, &what).await?;
            } else {
                call.confirm(Tier::Create, &format!("Start the agent {provider} in {cwd}")).await?;
            }
            if args.text.is_some() {
                call.confirm(Tier::Input, &format!("Send the agent {provider} in {cwd} a prompt")).await?;
            }
            let request = AgentSessionRequest {
                provider,
                cwd,
                prompt: None,
                resume: args.resume,
                mode: args.mode,
                auth: None,
                env: args.env,
            };
            let info = sessions.create(&call.server(args.server.as_deref())?, request, process.as_ref()).await?;
            let name = info.session.to_string();
            match args.text {
                Some(text) => send(call, &name, (text, args.max_chars), hold, &mut output).await?,
                None => output.outcome = None,
            }
            name
        }
        AgentSessionAction::Send => {
            let (name, text) = (needs("session", &args.session)?, needs("text", &args.text)?);
            call.confirm(Tier::Input, &format!("Send a prompt to {name}")).await?;
            send(call, &name, (text, args.max_chars), hold, &mut output).await?;
            name
        }
        AgentSessionAction::Wait => {
            let name = needs("session", &args.session)?;
            let request = AgentWaitRequest {
                idle: args.patterns.is_empty(),
                patterns: args.patterns,
                since: args.since.clone(),
                question: true,
                timeout_ms: Some(u64::try_from(hold.as_millis()).unwrap_or(u64::MAX)),
                ..AgentWaitRequest::default()
            };
            let waited = sessions.wait(&call.engine, &name, &request).await?;
            output.outcome = Some(match waited.outcome {
                AgentWaitOutcome::Matched => "matched".into(),
                AgentWaitOutcome::Ended => "ended".into(),
                AgentWaitOutcome::Asking => "asking".into(),
                AgentWaitOutcome::Timeout => "pending".into(),
            });
            said(call, &name, (args.since, args.max_chars), &mut output).await?;
            name
        }
        AgentSessionAction::Read => {
            let name = needs("session", &args.session)?;
            said(call, &name, (args.since, args.max_chars), &mut output).await?;
            name
        }
        AgentSessionAction::Interrupt => {
            let name = needs("session", &args.session)?;
            call.confirm(Tier::Input, &format!("Interrupt {name}")).await?;
            output.prompt = sessions.interrupt(&call.engine, &name)?.prompt;
            name
        }
        AgentSessionAction::Kill => {
            let name = needs("session", &args.session)?;
            call.confirm(Tier::Kill, &format!("End {name}")).await?;
            output.sessions = vec![sessions.kill(&call.engine, &name).await?];
            name
        }
        AgentSessionAction::Set => {
            let name = needs("session", &args.session)?;
            set(call, &name, args.mode, args.option.as_slice()).await?;
            output.sessions = vec![sessions.get(&call.engine, &name)?];
            name
        }
        AgentSessionAction::Answer => {
            let (name, question) = (needs("session", &args.session)?, needs("question", &args.question)?);
            answer(call, &name, &question, (args.allow, args.option, args.content)).await?;
            name
        }
    };
    finish(call, sessions, name, output)
}

/// Lists the sessions.
fn list(call: &CallContext, provider: Option<&str>, mut output: AgentSessionOutput) -> Result<ToolOutput> {
    output.sessions = call.rooms.sessions.list(&call.engine, provider)?;
    let mut text = String::new();
    for info in &output.sessions {
        push_row(&mut text, &format!("{} {:?} in {}", info.session, info.status, info.cwd));
    }
    if output.sessions.is_empty() {
        text.push_str("no agent sessions");
    }
    Ok(ToolOutput::new(text, &output))
}

/// Lists the sessions that an agent has stored.
async fn earlier(
    call: &CallContext,
    args: AgentSessionArguments,
    mut output: AgentSessionOutput,
) -> Result<ToolOutput> {
    let needs = |field: &str, given: Option<String>| {
        given.ok_or_else(|| Error::invalid(format!("{field}: missing; this action requires it")))
    };
    let provider = needs("provider", args.provider)?;
    let cwd = needs("cwd", args.cwd.or_else(|| call.client.cwd.clone()))?;
    call.confirm(Tier::Create, &format!("Start the agent {provider} in {cwd} to list its sessions")).await?;
    let request = AgentEarlierRequest { provider, cwd, all: false, auth: None, env: args.env };
    output.earlier = call.rooms.sessions.earlier(&call.server(args.server.as_deref())?, request).await?.sessions;
    let mut text = String::new();
    for one in &output.earlier {
        let (title, at) = (one.title.as_deref().unwrap_or("-"), one.updated_at.as_deref().unwrap_or("-"));
        push_row(&mut text, &format!("{} {at} {title}", one.session_id));
    }
    if output.earlier.is_empty() {
        text.push_str("no earlier sessions");
    }
    Ok(ToolOutput::new(text, &output))
}

/// Sends a prompt, and waits for its outcome or a question.
async fn send(
    call: &CallContext,
    name: &str,
    (text, max_chars): (String, Option<usize>),
    hold: Duration,
    output: &mut AgentSessionOutput,
) -> Result<()> {
    let sessions = &call.rooms.sessions;
    let request = PromptRequest { text, timeout_ms: None, wait: false };
    let sent = sessions.prompt(&call.engine, name, request).await?;
    let prompt = sent.prompt.unwrap_or_default();
    let asked = AgentWaitRequest {
        question: true,
        timeout_ms: Some(u64::try_from(hold.as_millis()).unwrap_or(u64::MAX)),
        ..AgentWaitRequest::default()
    };
    output.prompt = Some(prompt);
    let outcome = tokio::select! {
        biased;
        outcome = sessions.outcome(name, prompt) => outcome.map(Some),
        asked = sessions.wait(&call.engine, name, &asked) => asked.map(|_| None),
    };
    // The prompt was accepted, whatever becomes of this session here: it must not be sent again.
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            (output.outcome, output.error) = (Some("pending".to_owned()), Some(error.message));
            output.cursor = Some(sent.cursor.to_string());
            return Ok(());
        }
    };
    let (word, error) = match outcome {
        Some((outcome, error)) => (PromptOutcome::as_str(outcome), error),
        None => ("pending", None),
    };
    (output.outcome, output.error) = (Some(word.to_owned()), error);
    said(call, name, (Some(sent.cursor.to_string()), max_chars), output).await
}

/// Adds an agent's messages since a position, and the position at which to continue: the last ones,
/// or a page from the beginning.
async fn said(
    call: &CallContext,
    name: &str,
    (since, max_chars): (Option<String>, Option<usize>),
    output: &mut AgentSessionOutput,
) -> Result<()> {
    let begin = since.unwrap_or_else(|| "prompt".into());
    let mut said = Said { most: max_chars.map(|most| most.clamp(100, MOST_CHARS)), ..Said::default() };
    let mut at = begin.clone();
    loop {
        let query = AgentEventsQuery { since: Some(at.clone()), limit: Some(PAGE_EVENTS), wait_ms: None };
        let page = call.rooms.sessions.events(&call.engine, name, &query).await?;
        if let Some(gap) = page.gap {
            // Writing to a String cannot fail (also below).
            let _ = writeln!(said.text, "[{} events are missing]", gap.events.unwrap_or_default());
        }
        for entry in page.events {
            if !said.add(entry.event) {
                output.more = true;
                // Also if no event of this page fitted.
                output.cursor = Some(at.clone());
                break;
            }
            at = entry.cursor.to_string();
            output.cursor = Some(at.clone());
        }
        if output.more {
            break;
        }
        at = page.cursor.to_string();
        output.cursor = Some(at.clone());
        if !page.more {
            break;
        }
    }
    let most = said.most.map_or(MAX_CHARS, |most| most.max(said.text.chars().count()));
    let (end, cut) = text_end(&said.text, most);
    output.cut = cut + said.dropped;
    output.text = Some(match output.cut {
        0 => end.to_owned(),
        cut => format!("[… {cut} characters before this; since {begin} with max_chars shows them …]\n{end}"),
    });
    Ok(())
}

/// An agent's messages.
#[derive(Default)]
struct Said {
    text: String,
    /// The number of characters that were dropped at the beginning.
    dropped: usize,
    is_in_message: bool,
    /// The id of the last message.
    id: Option<String>,
    /// Whether `text` has an event, beside notes about gaps.
    has_event: bool,
    /// The size of a page, in characters. `None`: only the end is needed.
    most: Option<usize>,
}

impl Said {
    /// Adds an event. Returns false if the page is full.
    fn add(&mut self, event: AgentEvent) -> bool {
        let mut added = String::new();
        let is_message = matches!(event, AgentEvent::Message { .. });
        let id = self.id.clone();
        match event {
            AgentEvent::Message { text, message_id } => {
                // Another id begins another message.
                if self.id != message_id && self.is_in_message && !self.text.ends_with('\n') {
                    added.push('\n');
                }
                added.push_str(&text);
                self.id = message_id;
            }
            AgentEvent::Plan { entries } => {
                if self.is_in_message {
                    added.push('\n');
                }
                for entry in entries {
                    let _ = writeln!(added, "[plan {}] {}", entry.status, entry.content);
                }
            }
            AgentEvent::Tool { title, status, text, .. } => {
                let (title, status) = (title.unwrap_or_default(), status.unwrap_or_default());
                if self.is_in_message {
                    added.push('\n');
                }
                if !title.is_empty() || !text.is_empty() {
                    let _ = writeln!(added, "[tool {title} {status}] {text}");
                }
            }
            _ => return true,
        }
        // An event that is larger than a page is a page of its own.
        let is_full = |most| self.text.chars().count() + added.chars().count() > most;
        if self.has_event && self.most.is_some_and(is_full) {
            self.id = id;
            return false;
        }
        self.has_event |= !added.is_empty();
        self.is_in_message = is_message;
        self.text.push_str(&added);
        let surplus = self.text.len().saturating_sub(2 * KEPT_BYTES);
        if self.most.is_none() && surplus > 0 {
            let from = self.text.len() - KEPT_BYTES;
            let from = (from..self.text.len()).find(|at| self.text.is_char_boundary(*at)).unwrap_or_default();
            self.dropped += self.text.drain(..from).count();
        }
        true
    }
}

/// Sets a session's mode and options, if the client's person agrees.
async fn set(call: &CallContext, name: &str, mode: Option<String>, options: &[String]) -> Result<()> {
    let sessions = &call.rooms.sessions;
    let mut patch = AgentSessionPatch { mode, ..AgentSessionPatch::default() };
    for option in options {
        let (id, value) =
            option.split_once('=').ok_or_else(|| Error::invalid(format!("options: {option:?}; expected ID=VALUE")))?;
        patch.options.insert(id.to_owned(), value.to_owned());
    }
    let process = call.process().await;
    sessions.check_set(&as_shown(call), name, &patch, process.as_ref())?;
    let mut what: Vec<_> = patch.mode.iter().map(|mode| format!("mode {mode:?}")).collect();
    what.extend(patch.options.iter().map(|(id, value)| format!("{id:?} to {value:?}")));
    ask_person(call, Tier::Input, &format!("Set in {name}: {}", what.join(", "))).await?;
    sessions.set(&call.engine, name, &patch, process.as_ref()).await.map(drop)
}

/// Returns the engine for the caller that a client has shown itself to be: over TCP, any holder of the
/// token can be the client.
fn as_shown(call: &CallContext) -> Engine {
    if !call.over_tcp {
        return call.engine.clone();
    }
    call.engine.with_caller(Caller { principal: Principal::Token, ..call.engine.caller().clone() })
}

/// Asks the client's person, if there is one; else the setting `confirm` applies. As for an answer: a
/// mode can end all questions.
async fn ask_person(call: &CallContext, tier: Tier, what: &str) -> Result<()> {
    let asked = match &call.elicitation {
        Some(elicitation) => {
            // As in `confirm`: the whole call, also its variables.
            let question = format!("{}?\n\n{}", plain::message(what), plain::json(elicitation.call()));
            elicitation.ask_user(&question, std::future::pending()).await
        }
        None => ElicitationOutcome::Unavailable("no person can be asked".into()),
    };
    match asked {
        ElicitationOutcome::Accepted => Ok(()),
        ElicitationOutcome::Declined => Err(Error::new(ErrorCode::ReadOnly, "the person declined this")),
        ElicitationOutcome::Deferred => Err(Error::new(ErrorCode::ReadOnly, "a person must be asked first")),
        ElicitationOutcome::Unavailable(why) if call.elicitation.as_ref().is_some_and(|asking| asking.can_ask()) => {
            Err(Error::new(ErrorCode::ReadOnly, format!("a person must be asked first, and could not be: {why}")))
        }
        ElicitationOutcome::Unavailable(_) => call.confirm(tier, what).await,
    }
}

/// What a model answers: a yes or a no, an option, and a form's values.
type Given = (Option<bool>, Option<String>, BTreeMap<String, serde_json::Value>);

/// Answers a question: the client's person does, if there is one. Declining needs no consent.
async fn answer(call: &CallContext, name: &str, id: &str, (allow, option, content): Given) -> Result<()> {
    let sessions = &call.rooms.sessions;
    // Any holder of the token can be the client, and forge its person's answer.
    if call.over_tcp {
        sessions.refuse_token(&call.engine, name, id)?;
    }
    let process = call.process().await;
    let answerer = process.as_ref();
    let given = AgentAnswerRequest { allow: allow.filter(|_| option.is_none()), option, content: content.clone() };
    let open = sessions.questions(&call.engine, name)?;
    let question = open.into_iter().find(|question| question.id == id);
    let no = AgentAnswerRequest { allow: Some(false), ..AgentAnswerRequest::default() };
    let Some(question) = question.filter(|_| allow != Some(false)) else {
        // Declining needs no consent. For a question that is no longer open, the error names the caller
        // that answered. Only a no is passed on: a question that opens just now can only be denied.
        return sessions.answer(&call.engine, name, id, &no, answerer);
    };
    if !given.content.is_empty() && question.form.is_empty() {
        return Err(Error::invalid("content: this question has no form"));
    }
    let chosen = given.option.as_ref().and_then(|id| question.options.iter().find(|option| option.id == *id));
    call.engine.authorize(Tier::Input)?;
    let asked = match &call.elicitation {
        Some(elicitation) => {
            let detail = question.detail.as_deref().unwrap_or_default();
            // A yes applies only to the displayed question.
            let answer = match (&given.option, chosen) {
                (Some(_), Some(option)) => {
                    format!("{} ({})", plain::name(&option.name), option.kind.as_str())
                }
                (Some(option), None) => return Err(Error::invalid(format!("option: unknown option {option:?}"))),
                (None, _) => "yes, this once if the agent offers that".into(),
            };
            let mut answer: String = answer;
            for (field, value) in &given.content {
                // Writing to a String cannot fail.
                let _ = write!(answer, "\n    {} = {}", plain::name(field), plain::name(&value.to_string()));
            }
            // The agent's words come last, each line indented: none can pass for muxtap's own.
            let detail: String = plain::message(detail).lines().flat_map(|line| ["\n    ", line]).collect();
            let title = plain::name(&question.title);
            let by = plain::name(&question.asked_by);
            let what =
                format!("The answer would be: {answer}\n\n{by} asks to do this:\n{detail}\n\nIt calls that: {title}");
            let over = async {
                let _ = sessions.question_over(name, id).await;
            };
            elicitation.ask_user(&what, over).await
        }
        None => ElicitationOutcome::Unavailable("no person can be asked".into()),
    };
    let yes = AgentAnswerRequest { allow: Some(true), option: None, content };
    match asked {
        ElicitationOutcome::Accepted => {
            let answer = if given.option.is_some() { &given } else { &yes };
            sessions.answer(&call.engine, name, id, answer, answerer)
        }
        ElicitationOutcome::Declined => sessions.answer(&call.engine, name, id, &no, answerer),
        ElicitationOutcome::Deferred => Err(Error::new(ErrorCode::ReadOnly, "a person must be asked first")),
        // The client can ask people, but did not ask this one, or sent an unreadable reply.
        ElicitationOutcome::Unavailable(why) if call.elicitation.as_ref().is_some_and(|asking| asking.can_ask()) => {
            Err(Error::new(ErrorCode::ReadOnly, format!("a person must be asked first, and could not be: {why}")))
        }
        ElicitationOutcome::Unavailable(why) => {
            if given.allow.is_none() && given.option.is_none() {
                return Err(Error::invalid(format!("allow: {why}; expected `allow` or `option`")));
            }
            let detail = question.detail.as_deref().unwrap_or_default().replace('\n', "\n    ");
            let mut what = format!("Allow {} to do this:\n    {detail}\n\nAllow it", question.asked_by);
            for (field, value) in &given.content {
                // Writing to a String cannot fail.
                let _ = write!(what, "\n    with {} = {}", plain::name(field), plain::name(&value.to_string()));
            }
            call.confirm(Tier::Input, &what).await?;
            sessions.answer(&call.engine, name, id, &given, answerer)
        }
    }
}

fn finish(
    call: &CallContext,
    sessions: &AgentSessions,
    name: String,
    mut output: AgentSessionOutput,
) -> Result<ToolOutput> {
    output.questions = match sessions.questions(&call.engine, &name) {
        // Another daemon has the session, and this call its result.
        Err(_) if output.outcome.is_some() => Vec::new(),
        questions => questions?,
    };
    let text = shown(&name, &output);
    output.session = Some(name);
    Ok(ToolOutput::new(text, &output))
}

/// Formats a result. What the agent wrote is behind marks, so no line of it looks like muxtap's.
fn shown(name: &str, output: &AgentSessionOutput) -> String {
    let outcome = output.outcome.as_ref().map(|outcome| format!(": {outcome}")).unwrap_or_default();
    let error = output.error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
    let mut text = String::new();
    push_row(&mut text, &format!("{name}{outcome}{error}"));
    for question in &output.questions {
        push_row(&mut text, &format!("question {}: {}", question.id, question.title));
        push_quoted(&mut text, &plain::message(question.detail.as_deref().unwrap_or_default()));
        for option in &question.options {
            // Quoted, so that an id with spaces has an end.
            push_row(&mut text, &format!("  option {:?} ({}): {}", option.id, option.kind.as_str(), option.name));
        }
    }
    push_quoted(&mut text, &plain::message(output.text.as_deref().unwrap_or_default()));
    if let Some(cursor) = &output.cursor {
        let more = if output.more { "; more is available: read with since: this cursor" } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(text, "[cursor {cursor}{more}]");
    }
    text
}

/// Formats a result in which an agent wrote this text everywhere.
#[cfg(test)]
pub(super) fn shown_for_test(text: &str) -> String {
    let option = muxtap_api::PermissionOption { id: text.into(), name: text.into(), kind: "allow_always".into() };
    let mut question = AgentQuestion::new("q1".into(), text.into(), vec![option], 0);
    question.detail = Some(text.into());
    let output = AgentSessionOutput {
        outcome: Some("pending".into()),
        error: Some(text.into()),
        text: Some(text.into()),
        cursor: Some("own".into()),
        questions: vec![question],
        ..AgentSessionOutput::default()
    };
    shown("session:a:b", &output)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: String) -> AgentEvent {
        AgentEvent::Message { text, message_id: None }
    }

    #[test]
    fn a_text_shows_each_options_kind_and_the_cursor() {
        let text = shown_for_test("Run");
        assert!(text.contains("\n  option \"Run\" (allow_always): Run\n  | Run\n[cursor own]"), "{text}");
    }

    #[test]
    fn the_end_is_kept_of_any_length_and_a_page_ends_at_its_size() {
        let mut end = Said::default();
        for number in 0..100_000 {
            assert!(end.add(message(format!("line {number}ä\n"))));
        }
        assert!(end.text.ends_with("line 99999ä\n") && end.text.len() <= 2 * KEPT_BYTES);
        let all: usize = (0..100_000).map(|number| format!("line {number}ä\n").chars().count()).sum();
        assert_eq!(end.dropped + end.text.chars().count(), all);
        let mut page = Said { most: Some(100), ..Said::default() };
        assert!(page.add(message("x".repeat(90))));
        assert!(!page.add(message("y".repeat(20))));
        assert!(page.add(message("z".repeat(10))) && page.text.ends_with('z'));
        assert!(Said { most: Some(100), ..Said::default() }.add(message("x".repeat(1000))), "one event is whole");
        let gap = "[7 events are missing]\n";
        let mut after_gap = Said { text: gap.into(), most: Some(100), ..Said::default() };
        assert!(after_gap.add(message("x".repeat(1000))), "also after a gap: the next page begins behind it");
        assert!(!after_gap.add(message("y".into())), "the next event is on the next page");
    }
}
