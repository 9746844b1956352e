//! `manage_tmux_sessions` as a further tool: on the client's own tmux server, in its directory and
//! environment, with consent from the client's person first.

use std::{ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

use muxtap_engine::Engine;
use rmcp::model::{JsonObject, Tool};
use serde_json::Value;

use super::ClientContext;

use muxtap_approvals::{Confirm, Mattermost, PlatformEnvironment, Terminal, store_path};
use muxtap_rooms::Rooms;
use muxtap_supervise::{DESCRIPTION, NAME, Options, Supervisor, input_schema};

/// How long a person may take to answer by default, if the environment does not set it: a day.
const DEFAULT_ANSWER_TIMEOUT: Duration = Duration::from_secs(86_400);

/// Returns the tool's listing, by itself or among the others.
pub(super) fn tool() -> Tool {
    let schema: JsonObject = match input_schema() {
        Value::Object(schema) => schema,
        _ => JsonObject::default(),
    };
    Tool::new(NAME, DESCRIPTION, Arc::new(schema))
}

/// Returns a variable of the client's environment, or of the daemon's if the client has none.
fn variable(client: &ClientContext, name: &str) -> Option<String> {
    match &client.env {
        Some(env) => env.get(name).cloned(),
        None => std::env::var(name).ok(),
    }
}

/// Returns whether the client's environment names a chat in which a person is asked.
pub(super) fn is_configured(client: &ClientContext) -> bool {
    PlatformEnvironment::read(&|name: &str| variable(client, name)).is_ok()
}

/// Creates the supervisor of this client's server; `None` if the client has no server.
pub(super) fn supervisor(engine: &Engine, rooms: &Rooms, client: &ClientContext) -> Option<Supervisor> {
    let socket = client.server.clone()?;
    let var = |name: &str| variable(client, name);
    let environment = PlatformEnvironment::read(&var).ok();
    let mut confirm: Vec<Arc<dyn Confirm>> = Vec::new();
    let (mut channel, mut thread, mut answer_timeout) = (None, None, DEFAULT_ANSWER_TIMEOUT);
    if let Some(PlatformEnvironment { platform, answer_timeout: set, .. }) = environment {
        (channel, thread, answer_timeout) = (Some(platform.channel.clone()), Some(platform.thread.clone()), set);
        confirm.push(Arc::new(Mattermost::new(platform)));
    }
    if let Some(approvals) = &rooms.approvals {
        confirm.push(Arc::new(Terminal::new(approvals.clone(), false)));
    }
    let directory = client.cwd.clone().or_else(|| var("HOME")).map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let words = |env: &std::collections::BTreeMap<String, String>| {
        env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect()
    };
    let options = Options {
        socket,
        directory,
        environment: client.env.as_ref().map(words),
        store: store_path(&var),
        channel,
        thread,
        confirm,
        answer_timeout,
    };
    Some(Supervisor::new(engine.clone(), options))
}
