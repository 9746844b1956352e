//! The panes of all servers, as a page lists them, and the changes of the list.

use std::{
    collections::{BTreeMap, HashMap, hash_map},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::future::join_all;
use muxtap_api::PaneInfo;
use muxtap_core::protocol::ids::PaneId;
use muxtap_engine::{Engine, Server};
use muxtap_tmux::FollowAll;
use serde_json::{Value, json};

/// The listed panes by their keys.
pub(super) type List = BTreeMap<String, Entry>;

/// A listed pane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    id: PaneId,
    socket: Arc<str>,
    /// The pane as it is sent, in JSON.
    text: String,
}

/// The servers whose panes a page follows.
pub(super) type Following = Arc<Mutex<HashMap<PathBuf, FollowAll>>>;

/// Lists all panes, and follows them from then on.
///
/// A server that does not respond keeps those panes from `last` that have not ended.
pub(super) async fn all(engine: Engine, following: Following, last: List) -> List {
    let mut servers = engine.followed_servers();
    if servers.is_empty() {
        // The default server, as for a request that names none.
        servers.extend(engine.server_named(None));
    }
    let begun: Vec<_> = servers.iter().filter(|server| begins(server, &following)).collect();
    // A server that does not respond has no panes yet.
    join_all(begun.into_iter().map(|server| server.link().cover_all())).await;
    let listed = join_all(servers.iter().map(|server| of_server(server, &last))).await;
    listed.into_iter().flatten().collect()
}

/// Follows all panes of a server. Returns whether they were not followed before.
fn begins(server: &Server, following: &Following) -> bool {
    let mut following = following.lock().unwrap_or_else(PoisonError::into_inner);
    match following.entry(server.socket().to_owned()) {
        hash_map::Entry::Occupied(_) => false,
        hash_map::Entry::Vacant(entry) => {
            entry.insert(server.follow_all());
            true
        }
    }
}

async fn of_server(server: &Server, last: &List) -> Vec<(String, Entry)> {
    let panes = server.panes().await.unwrap_or_default();
    let agents =
        server.known_agents().into_iter().filter_map(|agent| Some((agent.pane, serde_json::to_value(agent).ok()?)));
    let mut agents: HashMap<_, Value> = agents.collect();
    let socket: Arc<str> = server.socket().display().to_string().into();
    let live = panes.into_iter().filter(|info| !info.window_id.is_empty() && !info.earlier_server);
    let found: Vec<_> = live
        .filter_map(|info| {
            let key = server.live_pane(info.id)?.key();
            let text = text(&key, &socket, &info, agents.remove(&info.id));
            Some((key, Entry { id: info.id, socket: socket.clone(), text }))
        })
        .collect();
    if !found.is_empty() {
        return found;
    }
    let is_live = |key: &str, id| server.live_pane(id).is_some_and(|pane| pane.key() == key);
    let had = last.iter().filter(|(key, entry)| entry.socket == socket && is_live(key, entry.id));
    had.map(|(key, entry)| (key.clone(), entry.clone())).collect()
}

/// Returns a pane as it is sent.
fn text(key: &str, socket: &str, info: &PaneInfo, agent: Option<Value>) -> String {
    let dead = info.dead.then(|| json!({ "status": info.exit_status, "signal": info.exit_signal }));
    let mut entry = json!({
        "key": key, "id": info.id, "socket": socket, "session": info.session, "window": info.window_index.to_string(),
        "window_name": info.window, "pane": info.index, "title": info.title, "command": info.command, "cwd": info.path,
        "session_id": info.session_id, "window_id": info.window_id, "pid": info.pid,
        "columns": info.size.width, "rows": info.size.height, "active": info.active, "dead": dead,
    });
    if let Some((agent, entry)) = agent.zip(entry.as_object_mut()) {
        entry.insert("agent".to_owned(), agent);
    }
    entry.to_string()
}

/// Returns the message with the changes since the last list, or with all panes; `None` without
/// changes.
pub(super) fn message(last: Option<&List>, now: &List) -> Option<String> {
    let changed = |(key, entry): &(&String, &Entry)| last.and_then(|last| last.get(*key)) != Some(entry);
    let set: Vec<_> = now.iter().filter(changed).map(|(_, entry)| entry.text.as_str()).collect();
    let gone: Vec<_> = last.into_iter().flat_map(BTreeMap::keys).filter(|key| !now.contains_key(*key)).collect();
    if last.is_some() && set.is_empty() && gone.is_empty() {
        return None;
    }
    let whole = if last.is_none() { r#""whole":true,"# } else { "" };
    let gone = serde_json::to_string(&gone).unwrap_or_default();
    Some(format!(r#"{{"type":"panes",{whole}"set":[{}],"gone":{gone}}}"#, set.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_sent_whole_and_then_as_changes() {
        let list = |panes: &[(&str, &str)]| -> List {
            let entry = |text: &str| Entry { id: PaneId(1), socket: "s".into(), text: text.to_owned() };
            panes.iter().map(|(key, text)| ((*key).to_owned(), entry(text))).collect()
        };
        let first = list(&[("a", "1"), ("b", "2")]);
        assert_eq!(message(None, &first).unwrap(), r#"{"type":"panes","whole":true,"set":[1,2],"gone":[]}"#);
        assert_eq!(message(Some(&first), &first), None);
        let second = list(&[("b", "3"), ("c", "4")]);
        assert_eq!(message(Some(&first), &second).unwrap(), r#"{"type":"panes","set":[3,4],"gone":["a"]}"#);
        assert!(message(None, &List::new()).is_some(), "an empty list is one");
    }
}
