//! The actions `approve`, `deny`, `send_input` and `kill`.

use muxtap_engine::{Server, Target, find_pane, find_window, is_absent};

use super::{Supervisor, engine_target, error_text, target_error_text};

use muxtap_api::{Error, InputRequest};
use muxtap_core::protocol::ids::SessionId;

impl Supervisor {
    pub(super) async fn approve(&self, server: &Server, target: &str) -> Result<String, String> {
        self.press(server, target, "Enter").await?;
        Ok(format!("Approved permission on `{target}`."))
    }

    pub(super) async fn deny(&self, server: &Server, target: &str) -> Result<String, String> {
        self.press(server, target, "Escape").await?;
        Ok(format!("Denied permission on `{target}`."))
    }

    pub(super) async fn send_input(
        &self,
        server: &Server,
        target: &str,
        text: Option<String>,
    ) -> Result<String, String> {
        let Some(text) = text else { return Err("Error: text is required for send_input".into()) };
        // Enter is sent as a separate key, after the program has read the text; otherwise a
        // terminal program takes both as a paste.
        let request = InputRequest { text: Some(text.clone()), submit: true, ..InputRequest::default() };
        self.input(server, target, &request).await?;
        Ok(format!("Sent to `{target}`: `{text}`"))
    }

    /// Kills the target's session. Its entry in the store is removed even if the session did not
    /// exist.
    pub(super) async fn kill(&self, server: &Server, target: &str) -> Result<String, String> {
        let found = match session_of(server, target).await {
            Ok(found) => found,
            Err(error) if is_absent(&error) => None,
            Err(error) => return Err(error_text(&error)),
        };
        let Some((id, name)) = found else {
            self.forget(&[target]).await;
            return Err(missing(target));
        };
        if let Err(error) = server.kill_session(&id.to_string()).await {
            // A server ends with its last session, perhaps before it replies.
            let gone = match server.link().fresh().await {
                Ok(topology) => topology.session(id).is_none(),
                Err(error) => is_absent(&error),
            };
            if !gone {
                return Err(error_text(&error));
            }
        }
        self.forget(&[target, &name]).await;
        Ok(format!("Killed tmux session `{target}`."))
    }

    async fn press(&self, server: &Server, target: &str, key: &str) -> Result<(), String> {
        let request = InputRequest { keys: Some(vec![key.to_owned()]), ..InputRequest::default() };
        self.input(server, target, &request).await
    }

    async fn input(&self, server: &Server, target: &str, request: &InputRequest) -> Result<(), String> {
        let done = async {
            let target = engine_target(server, target).await?;
            server.input(&target, request).await
        };
        done.await.map(drop).map_err(|error: Error| target_error_text(&error, target))
    }

    async fn forget(&self, names: &[&str]) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        if let Err(error) = self.shared.store.remove(names).await {
            tracing::warn!("cannot write {}: {error}", self.shared.options.store.display());
        }
    }
}

fn missing(target: &str) -> String {
    format!("Error: session '{target}' not found (cleaned up store)")
}

/// Returns the target's session: the session itself, or the one that contains the target.
async fn session_of(server: &Server, target: &str) -> Result<Option<(SessionId, String)>, Error> {
    let topology = server.link().fresh().await?.without_hubs();
    let by_name = topology.sessions.iter().find(|session| session.name == target);
    let id = match by_name {
        // Also if the name is a number, which elsewhere means a pane.
        Some(session) => Ok(session.id),
        None => target.parse::<Target>().and_then(|target| {
            if target.is_relative() {
                return Err(Error::not_found("a supervisor has no current session, window or pane"));
            }
            find_pane(&topology, &target)?;
            Ok(find_window(&topology, &target)?.session)
        }),
    };
    let Ok(id) = id else { return Ok(None) };
    Ok(topology.session(id).map(|session| (id, session.name.clone())))
}
