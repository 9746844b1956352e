//! The sessions of MCP over HTTP, limited in all and per caller. A new session over the limit ends
//! a session of the same caller that was never used, or has been idle for [`GIVES_WAY`]; of
//! several, the one that has been idle longest.

mod stored;

use std::{
    cell::RefCell,
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use futures_util::Stream;
use muxtap_api::{Error, ErrorCode};
use muxtap_base::address;
use muxtap_engine::Principal;
use muxtap_net::{Peer, holding};
use rmcp::{
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::streamable_http_server::{
        SessionId, SessionManager,
        session::{
            RestoreOutcome, ServerSseMessage, SessionState,
            local::{LocalSessionManager, LocalSessionManagerError},
        },
    },
};

use self::stored::Earlier;
pub(super) use self::stored::Kept;
pub use self::stored::StoredMcpSessions;
use crate::error::Failure;

/// The maximum number of concurrent sessions.
const SESSIONS: usize = 256;
/// The number of those for one caller: a login, a remote address, the programs of this user.
const CALLER_SESSIONS: usize = 64;
/// How long a session without activity lives.
const SESSION_IDLE: Duration = Duration::from_secs(1800);
/// How long a used session must have been idle before a new one of the same caller may end it:
/// callers with the token share one count, and could otherwise end each other's sessions.
const GIVES_WAY: Duration = Duration::from_secs(300);
/// How long a response is kept for a client that lost its connection before it had received all of
/// it.
const ANSWER_KEPT: Duration = Duration::from_secs(5);
/// The header that names a session.
const SESSION_HEADER: &str = "mcp-session-id";

tokio::task_local! {
    /// The caller of the current request, the principal of the session that it creates or restores,
    /// and whether that session exceeded the limit.
    static CREATING: RefCell<Creating>;
}

struct Creating {
    caller: String,
    principal: Principal,
    is_refused: bool,
}

/// Returns the principal of the session that the current request creates or restores.
pub(super) fn principal() -> Option<Principal> {
    CREATING.try_with(|creating| creating.borrow().principal.clone()).ok()
}

/// The sessions, by their callers.
#[derive(Debug)]
pub(crate) struct Sessions {
    local: LocalSessionManager,
    open: Mutex<HashMap<SessionId, Open>>,
    /// The sessions of an earlier daemon that no request has named here.
    earlier: Mutex<HashMap<String, Earlier>>,
}

#[derive(Debug)]
struct Open {
    caller: String,
    principal: Principal,
    /// The client's first request, once it was carried out.
    state: Option<SessionState>,
    used: Instant,
    /// Whether a request has named the session since `initialize`.
    was_used: bool,
    /// The number of its requests and streams whose responses have not ended.
    requests: usize,
}

/// A request of a session, until its response has ended.
struct InUse {
    sessions: Arc<Sessions>,
    id: SessionId,
}

impl Default for Sessions {
    fn default() -> Self {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(SESSION_IDLE);
        sessions.session_config.completed_cache_ttl = ANSWER_KEPT;
        Self { local: sessions, open: Mutex::default(), earlier: Mutex::default() }
    }
}

impl Sessions {
    fn open(&self) -> MutexGuard<'_, HashMap<SessionId, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the id of a session that must end to make room for one of the current request's caller.
    ///
    /// Error: none may end for it, and the request is refused.
    fn room(&self, caller: &str) -> Result<Option<SessionId>, LocalSessionManagerError> {
        self.in_the_way(caller, Instant::now()).map_err(|()| {
            let _ = CREATING.try_with(|creating| creating.borrow_mut().is_refused = true);
            LocalSessionManagerError::SessionNotFound("a new one".into())
        })
    }

    /// Returns the session that must end to make room for another one of this caller. Error: the
    /// caller has too many, and each is in use, or was a short time ago.
    fn in_the_way(&self, caller: &str, now: Instant) -> Result<Option<SessionId>, ()> {
        let open = self.open();
        let own = || open.iter().filter(|(_, one)| one.caller == caller);
        if open.len() < SESSIONS && own().count() < CALLER_SESSIONS {
            return Ok(None);
        }
        let gives_way = |one: &Open| !one.was_used || now.saturating_duration_since(one.used) >= GIVES_WAY;
        let idle = own().filter(|(_, one)| one.requests == 0 && gives_way(one));
        let idle = idle.min_by_key(|(_, one)| (one.was_used, one.used));
        idle.map(|(id, _)| Some(id.clone())).ok_or(())
    }

    fn begin_use(self: &Arc<Self>, id: &str) -> Option<InUse> {
        let mut open = self.open();
        let (id, one) = open.iter_mut().find(|(known, _)| known.as_ref() == id)?;
        one.requests += 1;
        one.used = Instant::now();
        one.was_used = true;
        Some(InUse { sessions: self.clone(), id: id.clone() })
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(one) = self.sessions.open().get_mut(&self.id) {
            one.requests = one.requests.saturating_sub(1);
            one.used = Instant::now();
        }
    }
}

/// Tracks which sessions are in use, and rejects a new one over the limit.
///
/// `server`: the server that the user chose for new sessions.
pub(super) async fn count(
    State((sessions, server)): State<(Arc<Sessions>, Option<Arc<Path>>)>,
    request: Request,
    next: Next,
) -> Response {
    if let Some(id) = session_of(request.headers()) {
        let id = id.to_owned();
        let restores = sessions.principal_of_earlier(&id).map(|(caller, principal)| Creating {
            caller,
            principal,
            is_refused: false,
        });
        let mut in_use = sessions.begin_use(&id);
        let ends = request.method() == Method::DELETE;
        let mut response = match restores {
            Some(creating) => within_limit(creating, request, next).await,
            None => next.run(request).await,
        };
        // The session may have been restored.
        in_use = in_use.or_else(|| sessions.begin_use(&id));
        // The protocol's answer to the end of a session is 200 or 204; some clients take the library's
        // 202 for a failure.
        if ends && response.status() == StatusCode::ACCEPTED {
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        return response.map(|body| holding(body, in_use));
    }
    let principal = Principal::agent(server.as_deref());
    let creating = Creating { caller: caller(&request), principal, is_refused: false };
    within_limit(creating, request, next).await
}

/// Passes on a request that creates or restores a session, and rejects it if there is no room.
async fn within_limit(creating: Creating, request: Request, next: Next) -> Response {
    let (response, is_refused) = CREATING
        .scope(RefCell::new(creating), async {
            let response = next.run(request).await;
            (response, CREATING.with(|creating| creating.borrow().is_refused))
        })
        .await;
    if !is_refused {
        return response;
    }
    let message = format!(
        "too many open MCP sessions: at most {CALLER_SESSIONS} per caller and {SESSIONS} in total, and each of yours \
         was used within the last {} s; end one with DELETE",
        GIVES_WAY.as_secs()
    );
    let mut refused = Failure::from(Error::new(ErrorCode::ResourceLimit, message)).into_response();
    refused.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    refused
}

fn session_of(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION_HEADER)?.to_str().ok()
}

/// Returns the caller that a new session belongs to.
fn caller(request: &Request) -> String {
    let extensions = request.extensions();
    if let Some(device) = extensions.get::<muxtap_devices::BoundDevice>() {
        return format!("device {}", device.family);
    }
    if let Some(page) = extensions.get::<muxtap_page::PageSession>() {
        return format!("page {}", page.id());
    }
    match extensions.get::<Peer>() {
        Some(Peer::Tcp { addr, .. }) => address::group(addr.ip()).to_string(),
        Some(Peer::Unix { uid, .. }) => format!("uid {uid}"),
        Some(Peer::Fleet) => "fleet".into(),
        None => String::new(),
    }
}

impl SessionManager for Sessions {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let caller = CREATING.try_with(|creating| creating.borrow().caller.clone()).unwrap_or_default();
        if let Some(idle) = self.room(&caller)? {
            self.close_session(&idle).await?;
        }
        let (id, transport) = self.local.create_session().await?;
        let principal = principal().unwrap_or_else(|| Principal::agent(None));
        let open = Open { caller, principal, state: None, used: Instant::now(), was_used: false, requests: 0 };
        self.open().insert(id.clone(), open);
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.local.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.local.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.open().remove(id);
        self.local.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.local.create_stream(id, message).await
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        self.local.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.local.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.local.resume(id, last_event_id).await
    }

    async fn restore_session(&self, id: SessionId) -> Result<RestoreOutcome<Self::Transport>, Self::Error> {
        let Some((caller, _)) = self.principal_of_earlier(id.as_ref()) else {
            return Ok(RestoreOutcome::NotSupported);
        };
        // Without room it stays among the earlier ones: its client tries again.
        while let Some(idle) = self.room(&caller)? {
            self.close_session(&idle).await?;
        }
        // Nothing is awaited between these two, so another daemon gets the session in any case.
        let Some(Earlier { caller, principal, state, .. }) = self.take_earlier(id.as_ref()) else {
            return Ok(RestoreOutcome::NotSupported);
        };
        let open = Open { caller, principal, state: Some(state), used: Instant::now(), was_used: true, requests: 0 };
        self.open().insert(id.clone(), open);
        self.local.restore_session(id).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn create(sessions: &Sessions, caller: &str) -> Result<SessionId, LocalSessionManagerError> {
        let creating =
            RefCell::new(Creating { caller: caller.into(), principal: Principal::agent(None), is_refused: false });
        CREATING.scope(creating, async { sessions.create_session().await.map(|(id, _)| id) }).await
    }

    #[tokio::test]
    async fn a_caller_at_its_session_limit_loses_its_longest_idle_session() {
        let sessions = Arc::new(Sessions::default());
        let first = create(&sessions, "one").await.unwrap();
        let second = create(&sessions, "one").await.unwrap();
        let used = sessions.begin_use(first.as_ref()).unwrap();
        for _ in 2..CALLER_SESSIONS {
            create(&sessions, "one").await.unwrap();
        }
        let other = create(&sessions, "other").await.unwrap();
        create(&sessions, "one").await.unwrap();
        assert!(!sessions.has_session(&second).await.unwrap(), "it was never used");
        assert!(sessions.has_session(&first).await.unwrap(), "it is in use");
        drop(used);
        // A used session stays, however many others are opened.
        for _ in 0..2 * CALLER_SESSIONS {
            create(&sessions, "one").await.unwrap();
        }
        assert!(sessions.has_session(&first).await.unwrap(), "it was used a short time ago");
        // Each is in use: the new one is rejected, and no other caller's session ends for it.
        let own: Vec<_> =
            sessions.open().iter().filter(|(_, one)| one.caller == "one").map(|(id, _)| id.clone()).collect();
        let used: Vec<_> = own.iter().map(|id| sessions.begin_use(id.as_ref()).unwrap()).collect();
        assert!(create(&sessions, "one").await.is_err());
        assert!(sessions.has_session(&other).await.unwrap());
        drop(used);
        assert!(create(&sessions, "one").await.is_err(), "each was used a short time ago");
        let now = Instant::now();
        assert!(sessions.in_the_way("one", now).is_err());
        let idle = sessions.in_the_way("one", now + GIVES_WAY).unwrap().expect("each has been idle for long enough");
        assert!(own.contains(&idle));
        sessions.close_session(&idle).await.unwrap();
        assert!(create(&sessions, "one").await.is_ok());
        assert_eq!(sessions.open().len(), CALLER_SESSIONS + 1);
    }

    /// T30.
    #[tokio::test]
    async fn a_restored_session_has_its_caller_and_principal() {
        use rmcp::transport::streamable_http_server::session::{SessionState, SessionStore as _};

        let before = Arc::new(Sessions::default());
        let (used, new) = (create(&before, "one").await.unwrap(), create(&before, "two").await.unwrap());
        let params = serde_json::json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "a", "version": "1" },
        });
        let state: SessionState = serde_json::from_value(serde_json::json!({ "initialize_params": params })).unwrap();
        Kept(before.clone()).store(used.as_ref(), &state).await.unwrap();
        let principal = before.open()[&used].principal.clone();
        let stored = serde_json::to_string(&before.stored()).unwrap();
        // Also by a daemon in which no request named it.
        let between = Sessions::default();
        between.restore(serde_json::from_str(&stored).unwrap());
        let stored = serde_json::to_string(&between.stored()).unwrap();
        let after = Arc::new(Sessions::default());
        after.restore(serde_json::from_str(&stored).unwrap());
        assert_eq!(after.principal_of_earlier(used.as_ref()), Some(("one".to_owned(), principal.clone())));
        assert!(Kept(after.clone()).load(new.as_ref()).await.unwrap().is_none(), "it was not initialized");
        let load = async |id: &SessionId| Kept(after.clone()).load(id.as_ref()).await.unwrap().is_some();
        assert!(load(&used).await);
        assert!(matches!(after.restore_session(used.clone()).await.unwrap(), RestoreOutcome::Restored(_)));
        assert_eq!(after.open()[&used].principal, principal);
        assert_ne!(Principal::agent(None), principal);
        // The session ends here, and is not restored again.
        after.close_session(&used).await.unwrap();
        assert!(!load(&used).await);
        assert!(matches!(after.restore_session(used).await.unwrap(), RestoreOutcome::NotSupported));
    }

    /// T30.
    #[tokio::test]
    async fn a_session_for_which_there_is_no_room_can_be_restored_later() {
        use rmcp::transport::streamable_http_server::session::SessionStore as _;

        let before = Arc::new(Sessions::default());
        let id = create(&before, "one").await.unwrap();
        let params = serde_json::json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "a", "version": "1" },
        });
        let state: SessionState = serde_json::from_value(serde_json::json!({ "initialize_params": params })).unwrap();
        Kept(before.clone()).store(id.as_ref(), &state).await.unwrap();
        let after = Arc::new(Sessions::default());
        after.restore(before.stored());
        let mut others = Vec::new();
        for _ in 0..CALLER_SESSIONS {
            others.push(create(&after, "one").await.unwrap());
        }
        let used: Vec<_> = others.iter().map(|id| after.begin_use(id.as_ref()).unwrap()).collect();
        assert!(after.restore_session(id.clone()).await.is_err());
        assert!(after.principal_of_earlier(id.as_ref()).is_some(), "it was forgotten");
        drop(used);
        after.close_session(&others[0]).await.unwrap();
        assert!(matches!(after.restore_session(id).await.unwrap(), RestoreOutcome::Restored(_)));
    }

    #[tokio::test]
    async fn the_sessions_of_all_callers_together_are_bounded() {
        let sessions = Sessions::default();
        for number in 0..SESSIONS {
            create(&sessions, &format!("caller {}", number % 8)).await.unwrap();
        }
        assert!(create(&sessions, "another").await.is_err());
        create(&sessions, "caller 1").await.unwrap();
        assert_eq!(sessions.open().len(), SESSIONS);
        assert_eq!(sessions.local.sessions.read().await.len(), SESSIONS);
    }
}
