//! The sessions of MCP over HTTP, stored for the daemon that replaces this one (`docs/upgrade.md`).
//!
//! The next daemon restores a session when a request names it: it carries out the client's first
//! request again, of which the client does not learn. The session's principal stays.

use std::{
    collections::HashMap,
    sync::{Arc, MutexGuard, PoisonError},
    time::Instant,
};

use async_trait::async_trait;
use muxtap_engine::{Principal, handover::StoredPrincipal};
use rmcp::transport::streamable_http_server::session::{SessionState, SessionStore, SessionStoreError};
use serde::{Deserialize, Serialize};

use super::{SESSION_IDLE, SESSIONS, Sessions};

/// The sessions of a daemon.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct StoredMcpSessions(Vec<StoredSession>);

#[derive(Debug, Serialize, Deserialize)]
struct StoredSession {
    id: String,
    caller: String,
    principal: StoredPrincipal,
    state: SessionState,
    #[serde(with = "muxtap_base::age")]
    used: Instant,
}

/// A session of an earlier daemon that no request has named here.
#[derive(Clone, Debug)]
pub(super) struct Earlier {
    pub(super) caller: String,
    pub(super) principal: Principal,
    pub(super) state: SessionState,
    used: Instant,
}

impl Sessions {
    fn earlier(&self) -> MutexGuard<'_, HashMap<String, Earlier>> {
        let mut earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        earlier.retain(|_, session| session.used.elapsed() < SESSION_IDLE);
        earlier
    }

    /// Returns the caller and the principal of a session of an earlier daemon that is to be restored.
    pub(super) fn principal_of_earlier(&self, id: &str) -> Option<(String, Principal)> {
        self.earlier().get(id).map(|session| (session.caller.clone(), session.principal.clone()))
    }

    pub(super) fn take_earlier(&self, id: &str) -> Option<Earlier> {
        self.earlier().remove(id)
    }

    /// Stores the sessions whose clients have carried out their first request.
    pub(crate) fn stored(&self) -> StoredMcpSessions {
        let open = self.open();
        let open = open.iter().filter_map(|(id, one)| {
            Some(StoredSession {
                id: id.to_string(),
                caller: one.caller.clone(),
                principal: StoredPrincipal::of(&one.principal),
                state: one.state.clone()?,
                used: if one.requests > 0 { Instant::now() } else { one.used },
            })
        });
        let mut stored: Vec<_> = open.collect();
        stored.extend(self.earlier().iter().map(|(id, earlier)| StoredSession {
            id: id.clone(),
            caller: earlier.caller.clone(),
            principal: StoredPrincipal::of(&earlier.principal),
            state: earlier.state.clone(),
            used: earlier.used,
        }));
        StoredMcpSessions(stored)
    }

    /// Takes the sessions of an earlier daemon.
    pub(crate) fn restore(&self, StoredMcpSessions(stored): StoredMcpSessions) {
        let earlier = stored.into_iter().take(SESSIONS).map(|session| {
            let StoredSession { id, caller, principal, state, used } = session;
            (id, Earlier { caller, principal: principal.restored(), state, used })
        });
        self.earlier().extend(earlier);
    }
}

/// The store that the library asks for sessions that are not open. A session that has ended here stays ended.
pub(crate) struct Kept(pub(crate) Arc<Sessions>);

#[async_trait]
impl SessionStore for Kept {
    async fn load(&self, id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        Ok(self.0.earlier().get(id).map(|session| session.state.clone()))
    }

    async fn store(&self, id: &str, state: &SessionState) -> Result<(), SessionStoreError> {
        let mut open = self.0.open();
        if let Some((_, one)) = open.iter_mut().find(|(known, _)| known.as_ref() == id) {
            one.state = Some(state.clone());
        }
        Ok(())
    }

    async fn delete(&self, id: &str) -> Result<(), SessionStoreError> {
        self.0.earlier().remove(id);
        Ok(())
    }
}
