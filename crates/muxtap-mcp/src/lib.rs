//! MCP: the engine for agents, over stdio (`muxtap mcp`) and streamable HTTP (`/mcp`).
//! `docs/mcp.md` describes it for clients.

mod accepted;
mod args;
mod capability;
mod devices;
mod elicitation;
mod form;
#[cfg(test)]
mod hostile_test;
mod log;
mod output;
mod prompts;
mod quoted;
mod record;
mod resources;
#[cfg(test)]
mod schema;
mod schemas;
mod sessions;
mod snapshot;
pub mod supervisor_only;
mod supervisor_tool;
mod synonyms;
mod tasks;
mod there;
mod tool_call;
mod tools;
mod truncate;
mod wait;
mod watch;
#[cfg(test)]
mod words_test;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use muxtap_tmux::same_socket;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, CompleteRequestParams,
        CompleteResult, CompletionInfo, ContentBlock, CreateTaskResult, GetPromptRequestParams, GetPromptResponse,
        GetTaskParams, GetTaskResult, Implementation, ListPromptsResult, ListResourceTemplatesResult,
        ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProgressToken, ProtocolVersion,
        ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, SubscribeRequestParams,
        SubscriptionFilter, Tool, UnsubscribeRequestParams, UpdateTaskParams,
    },
    service::{Peer, RequestContext, SubscriptionContext},
};
use tokio_util::sync::CancellationToken;
use tracing::{Span, field::Empty};

pub use self::{
    accepted::accepted_arguments,
    there::{call_tool, is_forwarded},
};
use self::{
    elicitation::{Elicitation, ElicitationOutcome},
    form::Form,
};
use muxtap_api::{Error, ErrorCode, Result, Tier, ToolSet, words};
use muxtap_base::{plain, spans};
use muxtap_engine::{Engine, Server};
use muxtap_rooms::Rooms;
use muxtap_supervise::Supervisor;

/// The instructions that a client gets in the handshake.
const INSTRUCTIONS: &str = "muxtap follows tmux panes and remembers what they print. Send, then wait_for: it returns \
     the moment the pane responds and cannot miss it; never sleep and poll. Read with the last result's cursor to get \
     only what is new. Panes are %3, session:window.pane or a session's name, exactly.";

/// How long a call is held by default: no client times out within this time.
const HOLD: Duration = Duration::from_secs(50);

/// How long a client may keep the list of tools, in milliseconds: another daemon may have others.
const LIST_TTL_MS: u64 = 600_000;

/// A client's environment, and the configuration that applies to it.
#[derive(Clone, Debug, Default)]
pub struct ClientContext {
    /// The tmux server of calls without `server`.
    pub server: Option<PathBuf>,
    /// The pane in which the client runs, and its server's socket.
    pub pane: Option<(PathBuf, String)>,
    /// The client's working directory.
    pub cwd: Option<String>,
    /// The client's environment, for servers that its calls start.
    pub env: Option<BTreeMap<String, String>>,
    /// The directory of the user's named tmux sockets.
    pub sockets: Option<PathBuf>,
    /// The tiers that need a person's consent.
    pub confirm: Vec<Tier>,
    /// The maximum time for which a call is held; `None`: 50 s.
    pub hold: Option<Duration>,
    /// The sets of tools that the client is offered; empty: the native one.
    pub tools: Vec<ToolSet>,
    /// The server that a client selected for the capability.
    pub capability_socket: Option<String>,
    /// The client's process, if known: it may not answer the questions that it asks a person.
    pub process: Option<muxtap_tmux::Lineage>,
}

impl ClientContext {
    /// Returns the client's own pane, if it is on this server, however the socket's path is
    /// written.
    fn own_pane(&self, server: &Path) -> Option<&str> {
        self.pane.as_ref().filter(|(own, _)| same_socket(own, server)).map(|(_, pane)| pane.as_str())
    }
}

/// The MCP server for one client.
#[derive(Clone)]
pub struct Mcp {
    engine: Engine,
    rooms: Arc<Rooms>,
    client: Arc<ClientContext>,
    supervisor: Option<Supervisor>,
    log_level: Arc<log::LogLevel>,
    subscriptions: Arc<Mutex<resources::Subscriptions>>,
    /// The form of results that the client's last list of tools described.
    form: Arc<form::Listed>,
    /// The results of tasks that the engine reports only once.
    timed_out: Arc<tasks::TimedOut>,
    stop: CancellationToken,
}

/// The context of a call.
pub(crate) struct CallContext {
    engine: Engine,
    rooms: Arc<Rooms>,
    client: Arc<ClientContext>,
    peer: Option<Peer<RoleServer>>,
    progress: Option<ProgressToken>,
    elicitation: Option<Arc<Elicitation>>,
    /// The client's process, for a call over HTTP on the Unix socket.
    peer_pid: Option<i32>,
    /// Whether the call came over TCP, where the client has shown only a token.
    over_tcp: bool,
    /// For a call that may be repeated because it came over a link: the id of a wait that it
    /// begins, which does not end with the call.
    wait_id: Option<String>,
    /// The maximum time for which the call is held, if shorter than usual.
    hold: Option<Duration>,
}

impl Mcp {
    /// Creates the server for a client. The audit log records its calls as the engine's caller's.
    /// Must be called within a tokio runtime.
    pub fn new(engine: Engine, rooms: Arc<Rooms>, client: ClientContext, stop: CancellationToken) -> Self {
        let supervisor = supervisor_tool::supervisor(&engine, &rooms, &client);
        let (log_level, subscriptions, form) = (Arc::default(), Arc::default(), Arc::default());
        let (client, timed_out) = (Arc::new(client), Arc::default());
        Self { engine, rooms, client, supervisor, log_level, subscriptions, form, timed_out, stop }
    }

    /// Returns the sets of tools that the client is offered: those that it chose, and the supervisor's
    /// tool where a chat for its questions is configured.
    fn offered(&self) -> Vec<ToolSet> {
        let mut sets = self.client.tools.clone();
        if sets.is_empty() {
            sets.push(ToolSet::Native);
        }
        if sets.contains(&ToolSet::Native) && supervisor_tool::is_configured(&self.client) {
            sets.push(ToolSet::ManageTmuxSessions);
        }
        sets
    }

    fn call_context(&self, context: &RequestContext<RoleServer>) -> CallContext {
        CallContext {
            engine: self.engine.clone(),
            rooms: self.rooms.clone(),
            client: self.client.clone(),
            peer: Some(context.peer.clone()),
            progress: context.meta.get_progress_token(),
            elicitation: None,
            peer_pid: peer_pid(context),
            over_tcp: matches!(http_peer(context), Some(muxtap_net::Peer::Tcp { .. } | muxtap_net::Peer::Fleet)),
            wait_id: None,
            hold: None,
        }
    }

    /// Begins the span of a tool's call, within the trace that the client names. A client's own text
    /// is no part of it, so a tool that does not exist has no span.
    fn span(&self, name: &str, context: &RequestContext<RoleServer>) -> Span {
        let Some(tool) = self.get_tool(name) else { return Span::none() };
        let span = tracing::info_span!(
            target: spans::TARGET,
            "tool",
            otel.name = format_args!("execute_tool {}", tool.name),
            otel.kind = "server",
            gen_ai.operation.name = "execute_tool",
            gen_ai.tool.name = &*tool.name,
            muxtap.outcome = Empty,
        );
        if !span.is_disabled() {
            spans::adopt(&span, context.meta.get("traceparent").and_then(serde_json::Value::as_str));
        }
        span
    }

    /// Calls the supervisor's tool, which also returns errors as text.
    async fn supervise(&self, call: &CallContext, arguments: rmcp::model::JsonObject) -> CallToolResult {
        let action = arguments.get("action").and_then(serde_json::Value::as_str).unwrap_or_default();
        // `spawn` always asks for consent by itself.
        let confirmed = match action {
            "approve" | "deny" | "send_input" => call.confirm(Tier::Input, "Answer a Claude session").await,
            "kill" => call.confirm(Tier::Kill, "End a session").await,
            _ => Ok(()),
        };
        if let Err(error) = confirmed {
            return CallToolResult::success(vec![ContentBlock::text(format!("Error: {}", error.message))]);
        }
        let Some(supervisor) = &self.supervisor else {
            return failed(&Error::invalid("unknown tmux server: the client named none"));
        };
        let first: Vec<Arc<dyn muxtap_approvals::Confirm>> = match &call.elicitation {
            Some(elicitation) => vec![elicitation.clone()],
            None => Vec::new(),
        };
        let asker = call.process().await;
        let text = supervisor.called_by(asker).call_asking(arguments, &first).await;
        CallToolResult::success(vec![ContentBlock::text(text)])
    }

    /// Adds a subscription to a resource.
    fn subscribe_to(&self, uri: String, following: tokio_util::sync::DropGuard) -> Result<()> {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner).add(uri, following)
    }
}

/// Returns the peer of a call over HTTP.
fn http_peer(context: &RequestContext<RoleServer>) -> Option<&muxtap_net::Peer> {
    context.extensions.get::<axum::http::request::Parts>()?.extensions.get()
}

/// Returns the calling process of a call over HTTP on the Unix socket.
fn peer_pid(context: &RequestContext<RoleServer>) -> Option<i32> {
    match http_peer(context)? {
        muxtap_net::Peer::Unix { pid, .. } => *pid,
        muxtap_net::Peer::Tcp { .. } | muxtap_net::Peer::Fleet => None,
    }
}

impl CallContext {
    /// Returns the client's process, if it is on this machine and known.
    async fn process(&self) -> Option<muxtap_tmux::Lineage> {
        self.engine.lineage(self.peer_pid).await.or_else(|| self.client.process.clone())
    }

    /// Returns the maximum time for which this call is held.
    fn max_hold(&self) -> Duration {
        let usual = self.client.hold.unwrap_or(HOLD);
        self.hold.map_or(usual, |hold| hold.min(usual))
    }

    /// Caps a wait that the client requests at [`Self::max_hold`].
    fn capped(&self, wait_ms: u64) -> Duration {
        Duration::from_millis(wait_ms).min(self.max_hold())
    }

    /// Returns the tmux server that a call selects, as seen from the caller's own pane.
    fn server(&self, server: Option<&str>) -> Result<Server> {
        let server = self.named_server(server)?;
        let own = self.client.own_pane(server.socket()).and_then(|pane| pane.parse().ok());
        Ok(match own {
            Some(own) => server.seen_from(own),
            None => server,
        })
    }

    fn named_server(&self, server: Option<&str>) -> Result<Server> {
        let none = || Error::invalid("server: missing or invalid; expected the path of a tmux socket, or its name");
        match server.filter(|server| !server.is_empty()) {
            None => self.engine.server_at(self.client.server.as_deref().ok_or_else(none)?),
            Some(address) if address.contains('/') => self.engine.server_named(Some(address)),
            Some("." | "..") => Err(none()),
            // In the directory of the user's tmux sockets, as in the user's shell.
            Some(name) => self.engine.server_at(&self.client.sockets.as_ref().ok_or_else(none)?.join(name)),
        }
    }

    /// Asks a person for consent, if the configuration requires it. Error: `READ_ONLY` if no person
    /// can be asked, or the person declined.
    async fn confirm(&self, tier: Tier, what: &str) -> Result<()> {
        // A call that is rejected anyway needs no question.
        self.engine.authorize(tier)?;
        if !self.client.confirm.contains(&tier) {
            return Ok(());
        }
        let refused = |why: &str| Error::new(ErrorCode::ReadOnly, format!("{what}: {why}"));
        let Some(elicitation) = &self.elicitation else { return Err(refused("no person can be asked")) };
        // Arguments may contain characters that change how a client shows them: bidirectional marks, line
        // separators.
        let question = format!("{}?\n\n{}", plain::message(what), plain::json(elicitation.call()));
        match elicitation.ask_user(&question, std::future::pending()).await {
            ElicitationOutcome::Accepted => Ok(()),
            ElicitationOutcome::Declined => Err(refused("the person who was asked declined")),
            ElicitationOutcome::Deferred => Err(refused("a person must be asked first")),
            ElicitationOutcome::Unavailable(why) => Err(refused(&format!(
                "this must be confirmed by a person (setting `confirm`), and none could be asked: {why}"
            ))),
        }
    }
}

impl Mcp {
    /// Notifies a client that has listed the resources when the list changes.
    fn follow_list(&self, context: &RequestContext<RoleServer>, listed: &[rmcp::model::Resource]) {
        let modern = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        let known = self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner).follows(resources::LIST);
        if modern || known {
            return;
        }
        let notifier = resources::ClientNotifier::Peer(context.peer.clone());
        let following =
            resources::follow_list(self.call_context(context), listed.to_vec(), notifier, self.stop.child_token());
        if let Ok(following) = following {
            let _ = self.subscribe_to(resources::LIST.to_owned(), following);
        }
    }
}

/// The outcomes of waits, runs and agents' prompts, as in their results.
const OUTCOMES: [&str; 12] = [
    "matched",
    "pending",
    "timeout",
    "failed",
    "ended",
    "cancelled",
    "asking",
    "end_turn",
    "max_tokens",
    "max_turns",
    "refusal",
    "agent_exited",
];

/// Returns a call's outcome for its span: of a wait or a run, how it ended.
fn outcome(called: Option<&Result<CallToolResult>>) -> &'static str {
    match called {
        Some(Ok(result)) if result.is_error == Some(true) => "error",
        Some(Ok(result)) => {
            let word = result.structured_content.as_ref().and_then(|answer| answer.get("outcome"));
            let word = word.and_then(serde_json::Value::as_str);
            OUTCOMES.into_iter().find(|outcome| word == Some(outcome)).unwrap_or("ok")
        }
        Some(Err(error)) => error.code.as_str(),
        None => "unknown",
    }
}

/// Converts a tool's output into its result.
fn succeeded(output: output::ToolOutput) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(output.text)]);
    result.structured_content = Some(output.answer);
    result.is_error = Some(output.is_error);
    result
}

/// Converts an error into a tool's result: the model must act on it.
fn failed(error: &Error) -> CallToolResult {
    let mut error = error.clone();
    error.message = words::for_models(&error.message);
    let (more, options) = (output::output_so_far(&error), output::options_of(&error));
    let text = format!("{}: {}{options}{more}", error.code.as_str(), quoted::message(&error.message));
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    result.structured_content = serde_json::to_value(&error).ok();
    result
}

/// Converts an error of a request that is not a tool call.
fn refused(error: &Error) -> ErrorData {
    let mut error = error.clone();
    error.message = words::for_models(&error.message);
    let (data, message) = (serde_json::to_value(&error).ok(), error.message);
    match error.code {
        ErrorCode::NotFound => ErrorData::resource_not_found(message, data),
        ErrorCode::InternalError => ErrorData::internal_error(message, data),
        _ => ErrorData::invalid_params(message, data),
    }
}

// Reasons: clients use the subscriptions of earlier protocol versions.
#[allow(deprecated)]
impl ServerHandler for Mcp {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_prompts()
            .enable_completions()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_resources_list_changed()
            .enable_logging()
            .enable_tasks()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("muxtap", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<ListToolsResult, ErrorData> {
        let form = Form::of(&context, Form::Text);
        self.form.set(form);
        let listed = ListToolsResult::with_all_items(form.tools(tools::of(&self.offered())));
        let may_cache = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        Ok(if may_cache { listed.with_ttl_ms(LIST_TTL_MS).with_cache_scope(CacheScope::Private) } else { listed })
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::find(&self.client.tools, name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<CallToolResponse, ErrorData> {
        let begun = Instant::now();
        let arguments = request.arguments.unwrap_or_default();
        let asked = format!("{} {}", request.name, serde_json::to_string(&arguments).unwrap_or_default());
        let elicitation = Arc::new(Elicitation::of(&context, asked, request.input_responses));
        let becomes_task = tasks::may_become_task(&context, &request.name, &arguments);
        let (hold, about_task) = (becomes_task.then_some(tasks::AT_ONCE), tasks::Asked::of(&arguments));
        let call = CallContext { elicitation: Some(elicitation.clone()), hold, ..self.call_context(&context) };
        let called = async {
            // A tool that was not offered cannot be called.
            self.get_tool(&request.name)?;
            if request.name == muxtap_supervise::NAME {
                return Some(Ok(self.supervise(&call, arguments).await));
            }
            let output = tools::call(&call, &request.name, arguments).await?;
            Some(output.map(succeeded))
        };
        let called = async {
            tokio::select! {
                called = called => called,
                () = context.ct.cancelled() => Some(Err(Error::new(ErrorCode::Timeout, "the call was cancelled"))),
            }
        };
        let span = self.span(&request.name, &context);
        let called = spans::within(span, called, |called| outcome(called.as_ref())).await;
        let Some(called) = called else {
            let names: Vec<_> = tools::of(&self.client.tools).into_iter().map(|tool| tool.name).collect();
            let message = format!("unknown tool {:?}; expected one of {}", request.name, names.join(", "));
            return Err(ErrorData::invalid_params(message, None));
        };
        if let Some(question) = elicitation.question() {
            return Ok(CallToolResponse::InputRequired(question));
        }
        self.log_level.log_call(&context, &request.name, begun.elapsed(), called.as_ref().err()).await;
        let result = called.unwrap_or_else(|error| failed(&error));
        if let (true, Some(answer)) = (becomes_task, &result.structured_content)
            && let Some(task) = about_task.task(&request.name, answer)
        {
            return Ok(CallToolResponse::Task(CreateTaskResult::new(task)));
        }
        Ok(Form::of(&context, self.form.get()).result(result).into())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<GetTaskResult, ErrorData> {
        self.task_state(&request.task_id, &context).await.map(GetTaskResult::new)
    }

    /// No task asks its client anything: consent comes before the task.
    async fn update_task(
        &self,
        _: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<(), ErrorData> {
        Ok(())
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<(), ErrorData> {
        self.cancel(&request.task_id, &context).await
    }

    async fn set_level(
        &self,
        request: rmcp::model::SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<(), ErrorData> {
        self.log_level.set(request.level);
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(prompts::list()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<GetPromptResponse, ErrorData> {
        let given = request.arguments.unwrap_or_default();
        prompts::get(&request.name, &given).map(Into::into).map_err(|error| refused(&error))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<ListResourcesResult, ErrorData> {
        let listed = resources::list(&self.call_context(&context)).await.map_err(|error| refused(&error))?;
        self.follow_list(&context, &listed);
        Ok(ListResourcesResult::with_all_items(listed))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<ReadResourceResponse, ErrorData> {
        let read = resources::read(&self.call_context(&context), &request.uri).await;
        read.map(Into::into).map_err(|error| refused(&error))
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<(), ErrorData> {
        let notifier = resources::ClientNotifier::Peer(context.peer.clone());
        let following =
            resources::follow(self.call_context(&context), request.uri.clone(), notifier, self.stop.child_token())
                .await;
        let following = following.map_err(|error| refused(&error))?;
        self.subscribe_to(request.uri, following).map_err(|error| refused(&error))
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::new();
        accepted.resources_list_changed = requested.resources_list_changed;
        let uris = requested.resource_subscriptions.iter().flatten();
        let known: Vec<_> =
            uris.filter(|uri| resources::is_known(uri)).take(resources::MAX_SUBSCRIPTIONS).cloned().collect();
        accepted.resource_subscriptions = (!known.is_empty()).then_some(known);
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> std::result::Result<(), ErrorData> {
        let call = || self.call_context(context.request_context());
        let notifier = || resources::ClientNotifier::Sink(context.sink().clone());
        // Notifications are sent while these guards exist.
        let (mut following, mut followed) = (Vec::new(), Vec::new());
        for uri in context.accepted().resource_subscriptions.iter().flatten() {
            // A resource of a pane that does not exist gets no notifications.
            if let Ok(one) = resources::follow(call(), uri.clone(), notifier(), self.stop.child_token()).await {
                following.push(one);
                followed.push(uri);
            }
        }
        if context.accepted().resources_list_changed == Some(true) {
            let listed = resources::list(&call()).await.map_err(|error| refused(&error))?;
            let list = resources::follow_list(call(), listed, notifier(), self.stop.child_token());
            following.extend(list.ok());
        }
        // The client was notified of its subscription before anything was followed; changes in
        // between are unknown.
        for uri in followed {
            notifier().updated(uri).await;
        }
        tokio::select! {
            () = context.cancelled() => {}
            () = self.stop.cancelled() => {}
        }
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<(), ErrorData> {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner).remove(&request.uri);
        Ok(())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<CompleteResult, ErrorData> {
        let values =
            resources::completions(&self.call_context(&context), &request).await.map_err(|error| refused(&error))?;
        let (total, more) = (values.len(), values.len() > CompletionInfo::MAX_VALUES);
        let values = values.into_iter().take(CompletionInfo::MAX_VALUES).collect();
        let info = CompletionInfo::with_pagination(values, u32::try_from(total).ok(), more);
        info.map(CompleteResult::new).map_err(|error| ErrorData::internal_error(error, None))
    }
}
