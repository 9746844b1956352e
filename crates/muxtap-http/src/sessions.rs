//! Routes of agent sessions.

mod later;

use axum::{
    Extension, Json,
    extract::{FromRequestParts, Path},
    http::request::Parts,
    response::Response,
};
use muxtap_engine::Lineage;
use muxtap_net::Peer;

use super::{
    App,
    error::{Body, Failure, Params, PathWord, Result},
    openapi_parts::{Failures, PathAgentQuestion, PathAgentSession},
    server,
};

use muxtap_api::{
    AgentAnswerRequest, AgentEarlierList, AgentEarlierRequest, AgentEventEntry, AgentEventsAnswer, AgentEventsQuery,
    AgentQuestionList, AgentSessionInfo, AgentSessionList, AgentSessionPatch, AgentSessionRequest, AgentSessionsQuery,
    AgentWaitAnswer, AgentWaitRequest, DoneAnswer, Error, ErrorCode, PromptAnswer, PromptRequest, ServerQuery,
};
use muxtap_sessions::AgentSessions;

/// The OpenAPI document's routes of agent sessions.
#[cfg(test)]
#[derive(utoipa::OpenApi)]
#[openapi(paths(list, earlier, create, one, set, kill, prompt, interrupt, events, stream, wait, questions, answer))]
pub(super) struct AgentSessionRoutes;

fn sessions(app: &App) -> &AgentSessions {
    &app.rooms().sessions
}

/// Returns the calling process, if it is on this machine and known.
async fn process(app: &App, peer: Option<&Peer>) -> Option<Lineage> {
    super::approvals::answerer(app, peer?).await
}

/// Lists agent sessions: the running ones, and the last ones that have ended.
#[utoipa::path(
    get, path = "/v1/agent-sessions", operation_id = "list_agent_sessions", tag = "agent sessions",
    params(AgentSessionsQuery),
    responses((status = 200, description = "The answer", body = AgentSessionList), Failures)
)]
pub async fn list(app: App, Params(query): Params<AgentSessionsQuery>) -> Result<Json<AgentSessionList>> {
    Ok(Json(AgentSessionList { sessions: sessions(&app).list(&app.engine, query.provider.as_deref())? }))
}

/// Lists the sessions that an agent has stored, which `resume` can continue. Starts the agent for that,
/// and ends it again.
#[utoipa::path(
    post, path = "/v1/agent-sessions/earlier", operation_id = "list_earlier_agent_sessions", tag = "agent sessions",
    params(ServerQuery),
    request_body = AgentEarlierRequest,
    responses((status = 200, description = "The answer", body = AgentEarlierList), Failures)
)]
pub async fn earlier(
    app: App,
    Params(at): Params<ServerQuery>,
    Body(request): Body<AgentEarlierRequest>,
) -> Result<Json<AgentEarlierList>> {
    let server = server(&app, &at)?;
    Ok(Json(sessions(&app).earlier(&server, request).await?))
}

/// Starts a coding agent and opens a session of it.
///
/// `mode` is accepted only from callers who may set it later. Otherwise UNAUTHORIZED.
#[utoipa::path(
    post, path = "/v1/agent-sessions", operation_id = "create_agent_session", tag = "agent sessions",
    params(ServerQuery),
    request_body = AgentSessionRequest,
    responses((status = 200, description = "The answer", body = AgentSessionInfo), Failures)
)]
pub async fn create(
    peer: Option<Extension<Peer>>,
    app: App,
    Params(at): Params<ServerQuery>,
    Body(request): Body<AgentSessionRequest>,
) -> Result<Json<AgentSessionInfo>> {
    let server = server(&app, &at)?;
    let caller = process(&app, peer.as_deref()).await;
    Ok(Json(sessions(&app).create(&server, request, caller.as_ref()).await?))
}

/// Returns one agent session.
#[utoipa::path(
    get, path = "/v1/agent-sessions/{id}", operation_id = "get_agent_session", tag = "agent sessions",
    params(PathAgentSession),
    responses((status = 200, description = "The answer", body = AgentSessionInfo), Failures)
)]
pub async fn one(app: App, PathWord(id): PathWord) -> Result<Json<AgentSessionInfo>> {
    Ok(Json(sessions(&app).get(&app.engine, &id)?))
}

/// Sets an agent session's mode and options.
///
/// Accepted on the Unix socket, or from a page with all permissions, as an answer to a question is: a
/// mode can end all questions. Otherwise UNAUTHORIZED.
#[utoipa::path(
    patch, path = "/v1/agent-sessions/{id}", operation_id = "patch_agent_session", tag = "agent sessions",
    params(PathAgentSession),
    request_body = AgentSessionPatch,
    responses((status = 200, description = "The answer", body = AgentSessionInfo), Failures)
)]
pub async fn set(
    peer: Option<Extension<Peer>>,
    app: App,
    PathWord(id): PathWord,
    Body(request): Body<AgentSessionPatch>,
) -> Result<Json<AgentSessionInfo>> {
    let caller = process(&app, peer.as_deref()).await;
    Ok(Json(sessions(&app).set(&app.engine, &id, &request, caller.as_ref()).await?))
}

/// Ends an agent and everything it has started; the response arrives when they are gone.
#[utoipa::path(
    delete, path = "/v1/agent-sessions/{id}", operation_id = "kill_agent_session", tag = "agent sessions",
    params(PathAgentSession),
    responses((status = 200, description = "The answer", body = AgentSessionInfo), Failures)
)]
pub async fn kill(app: App, PathWord(id): PathWord) -> Result<Json<AgentSessionInfo>> {
    Ok(Json(sessions(&app).kill(&app.engine, &id).await?))
}

/// Queues a prompt for an agent session. Prompts run in order, one at a time.
#[utoipa::path(
    post, path = "/v1/agent-sessions/{id}/prompts", operation_id = "prompt_agent_session", tag = "agent sessions",
    params(PathAgentSession),
    request_body = PromptRequest,
    responses((status = 200, description = "The answer", body = PromptAnswer), Failures)
)]
pub async fn prompt(
    parts: Parts,
    app: App,
    PathWord(id): PathWord,
    Body(request): Body<PromptRequest>,
) -> Result<Response> {
    later::prompt(&app, &parts, &id, request).await
}

/// Cancels only the running prompt.
#[utoipa::path(
    post, path = "/v1/agent-sessions/{id}/interrupt", operation_id = "interrupt_agent_session", tag = "agent sessions",
    params(PathAgentSession),
    responses((status = 200, description = "The answer", body = PromptAnswer), Failures)
)]
pub async fn interrupt(app: App, PathWord(id): PathWord) -> Result<Json<PromptAnswer>> {
    Ok(Json(sessions(&app).interrupt(&app.engine, &id)?))
}

/// Reads an agent session's events, page by page.
#[utoipa::path(
    get, path = "/v1/agent-sessions/{id}/events", operation_id = "read_agent_events", tag = "agent sessions",
    params(PathAgentSession, AgentEventsQuery),
    responses((status = 200, description = "The answer", body = AgentEventsAnswer), Failures)
)]
pub async fn events(
    parts: Parts,
    app: App,
    PathWord(id): PathWord,
    Params(query): Params<AgentEventsQuery>,
) -> Result<Response> {
    later::events(&app, &parts, &id, query).await
}

/// Streams an agent session's events.
///
/// Server-Sent Events: `data` is the event with its position, and `id` the position: a reader that
/// sends it as `Last-Event-ID` continues after that event. The first block has only an `id`. The
/// stream ends with the agent.
#[utoipa::path(
    get, path = "/v1/agent-sessions/{id}/stream", operation_id = "stream_agent_events", tag = "agent sessions",
    params(
        PathAgentSession,
        ("since" = Option<String>, Query, description = "As for `/events`"),
        ("Last-Event-ID" = Option<String>, Header, description = "The last `id` seen")
    ),
    responses(
        (status = 200, description = "A stream of events", body = AgentEventEntry, content_type = "text/event-stream"),
        Failures
    )
)]
pub async fn stream(
    parts: Parts,
    app: App,
    PathWord(id): PathWord,
    Params(query): Params<AgentEventsQuery>,
) -> Result<Response> {
    // If a stream ended at once, its reader would reconnect at once.
    if app.engine.is_stopping() {
        return Err(Error::unavailable("muxtap is stopping").into());
    }
    later::stream(app, &parts, &id, query.since)
}

/// Waits for messages, activity or the end of an agent.
#[utoipa::path(
    post, path = "/v1/agent-sessions/{id}/wait", operation_id = "wait_for_agent_session", tag = "agent sessions",
    params(PathAgentSession),
    request_body = AgentWaitRequest,
    responses((status = 200, description = "The answer", body = AgentWaitAnswer), Failures)
)]
pub async fn wait(
    parts: Parts,
    app: App,
    PathWord(id): PathWord,
    Body(request): Body<AgentWaitRequest>,
) -> Result<Response> {
    later::wait(&app, &parts, &id, request).await
}

/// Lists the open questions: for permission, with a form, or with a URL.
#[utoipa::path(
    get, path = "/v1/agent-sessions/{id}/questions", operation_id = "list_agent_questions", tag = "agent sessions",
    params(PathAgentSession),
    responses((status = 200, description = "The answer", body = AgentQuestionList), Failures)
)]
pub async fn questions(app: App, PathWord(id): PathWord) -> Result<Json<AgentQuestionList>> {
    Ok(Json(AgentQuestionList { questions: sessions(&app).questions(&app.engine, &id)? }))
}

/// Answers a question. The first answer counts.
///
/// Accepted on the Unix socket, or from a page with all permissions: a token is not enough, because
/// an agent can read it. An answer from the agent itself, or from anything that an agent has
/// started, is also rejected. Both are UNAUTHORIZED.
#[utoipa::path(
    post, path = "/v1/agent-sessions/{id}/questions/{question}", operation_id = "answer_agent_question",
    tag = "agent sessions",
    params(PathAgentSession, PathAgentQuestion),
    request_body = AgentAnswerRequest,
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn answer(
    peer: Option<Extension<Peer>>,
    app: App,
    QuestionPath(id, question): QuestionPath,
    Body(request): Body<AgentAnswerRequest>,
) -> Result<Json<DoneAnswer>> {
    let answerer = process(&app, peer.as_deref()).await;
    sessions(&app).answer(&app.engine, &id, &question, &request, answerer.as_ref())?;
    Ok(Json(DoneAnswer { ok: true }))
}

/// The session and the question in a path.
pub struct QuestionPath(String, String);

impl<S: Send + Sync> FromRequestParts<S> for QuestionPath {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        path.map(|Path((id, question))| Self(id, question)).map_err(|_| {
            let path = parts.uri.path();
            Error::new(ErrorCode::InvalidTarget, format!("{path}: expected percent-encoded UTF-8")).into()
        })
    }
}
