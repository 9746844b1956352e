//! Resources: panes and sessions under `tmux://`, and notifications when they change.

use std::{collections::HashMap, time::Duration};

use muxtap_engine::Subscription;
use rmcp::{
    RoleServer,
    model::{
        CompleteRequestParams, ReadResourceResult, Reference, Resource, ResourceContents, ResourceTemplate,
        ResourceUpdatedNotificationParam,
    },
    service::{Peer, SubscriptionSink},
};
use serde_json::json;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::CallContext;

use muxtap_api::{CaptureRequest, Error, ErrorCode, EventKind, PaneList, Result, SessionList, SubscribeRequest};

/// Changes that follow each other within this time are one notification.
const TOGETHER: Duration = Duration::from_millis(200);
/// The minimum time between two notifications of one resource.
const BETWEEN: Duration = Duration::from_millis(100);
/// The maximum time between two notifications of a resource that keeps changing.
const AT_LEAST: Duration = Duration::from_secs(1);

/// A parsed URI.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Uri {
    /// `tmux://sessions`
    Sessions,
    /// `tmux://panes`
    Panes,
    /// `tmux://agents`
    Agents,
    /// `tmux://session/work`: the session and its panes
    Session(String),
    /// `tmux://pane/%3`: what the pane shows
    Pane(String),
}

impl Uri {
    fn parse(uri: &str) -> Result<Self> {
        let unknown = || {
            Error::not_found(format!(
                "unknown resource {uri}; expected tmux://panes, tmux://sessions, tmux://agents, tmux://session/NAME or \
                 tmux://pane/%3"
            ))
        };
        match uri.strip_prefix("tmux://").ok_or_else(unknown)? {
            "sessions" => Ok(Self::Sessions),
            "panes" => Ok(Self::Panes),
            "agents" => Ok(Self::Agents),
            rest => match rest.split_once('/').filter(|(_, named)| !named.is_empty()) {
                // `%3` in a URI is `%253`, but hardly any client writes it like this.
                Some(("pane", pane)) => Ok(Self::Pane(pane.replace("%25", "%"))),
                Some(("session", name)) => Ok(Self::Session(percent_decoded(name))),
                _ => Err(unknown()),
            },
        }
    }
}

/// Decodes a name from a URI: clients may write spaces and the like as `%20`.
fn percent_decoded(name: &str) -> String {
    percent_encoding::percent_decode_str(name).decode_utf8_lossy().into_owned()
}

/// Returns whether a URI names a kind of resource.
pub(super) fn is_known(uri: &str) -> bool {
    Uri::parse(uri).is_ok()
}

/// Lists the resources that exist now.
pub(super) async fn list(call: &CallContext) -> Result<Vec<Resource>> {
    let mut listed = vec![
        Resource::new("tmux://panes", "panes").with_description("Every pane").with_mime_type("application/json"),
        Resource::new("tmux://sessions", "sessions")
            .with_description("Every session")
            .with_mime_type("application/json"),
        Resource::new("tmux://agents", "agents")
            .with_description("Coding agents in panes: what each does and asks")
            .with_mime_type("application/json"),
    ];
    let server = call.server(None)?;
    let panes = match server.panes().await {
        Ok(panes) => panes,
        // A server that is not running has no panes.
        Err(error) if error.code == ErrorCode::TmuxUnavailable => Vec::new(),
        Err(error) => return Err(error),
    };
    let mut sessions: Vec<_> = panes.iter().map(|pane| &pane.session).filter(|name| !name.is_empty()).collect();
    sessions.sort();
    sessions.dedup();
    listed.extend(sessions.into_iter().map(|name| {
        let uri = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
        Resource::new(format!("tmux://session/{uri}"), name.clone())
            .with_description("A session and its panes")
            .with_mime_type("application/json")
    }));
    listed.extend(panes.into_iter().filter(|pane| !pane.window_id.is_empty()).map(|pane| {
        let name = format!("{}:{}.{}", pane.session, pane.window_index, pane.index);
        Resource::new(format!("tmux://pane/{}", pane.id), name)
            .with_description(format!("{} in {}", pane.command, pane.path))
            .with_mime_type("text/plain")
    }));
    Ok(listed)
}

/// Lists the templates of URIs.
pub(super) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new("tmux://pane/{target}", "pane")
            .with_description("What a pane shows; the target as everywhere")
            .with_mime_type("text/plain"),
        ResourceTemplate::new("tmux://session/{target}", "session")
            .with_description("A session and its panes")
            .with_mime_type("application/json"),
    ]
}

/// Reads a resource.
pub(super) async fn read(call: &CallContext, uri: &str) -> Result<ReadResourceResult> {
    let server = call.server(None)?;
    let contents = match Uri::parse(uri)? {
        Uri::Sessions => json(uri, &SessionList { sessions: server.sessions().await?, unreachable: Vec::new() }),
        Uri::Panes => json(uri, &PaneList { panes: server.panes().await?, unreachable: Vec::new() }),
        Uri::Agents => json(uri, &server.agents().await?),
        Uri::Session(name) => {
            let id = server.session_id(&name).await?;
            let found = server.sessions().await?.into_iter().find(|one| one.id == id);
            let mut panes = server.panes().await?;
            panes.retain(|pane| pane.session_id == id);
            json(uri, &json!({"session": found, "panes": panes}))
        }
        Uri::Pane(target) => {
            let answer = server.capture(&target, &CaptureRequest::default()).await?;
            ResourceContents::text(answer.text, uri).with_mime_type("text/plain")
        }
    };
    Ok(ReadResourceResult::new(vec![contents]))
}

fn json(uri: &str, value: &impl serde::Serialize) -> ResourceContents {
    ResourceContents::text(serde_json::to_string(value).unwrap_or_default(), uri).with_mime_type("application/json")
}

/// The key of the list of resources in a client's subscriptions.
pub(super) const LIST: &str = "";
/// The maximum number of resources that a client may subscribe to.
pub(super) const MAX_SUBSCRIPTIONS: usize = 256;

/// A client's subscriptions.
#[derive(Default)]
pub(super) struct Subscriptions(HashMap<String, DropGuard>);

impl Subscriptions {
    pub(super) fn follows(&self, uri: &str) -> bool {
        self.0.contains_key(uri)
    }

    /// Adds a subscription. Error: too many subscriptions.
    pub(super) fn add(&mut self, uri: String, following: DropGuard) -> Result<()> {
        if self.0.len() >= MAX_SUBSCRIPTIONS && !self.follows(&uri) {
            return Err(Error::invalid(format!(
                "too many subscriptions: at most {MAX_SUBSCRIPTIONS}; unsubscribe from one first"
            )));
        }
        self.0.insert(uri, following);
        Ok(())
    }

    pub(super) fn remove(&mut self, uri: &str) {
        self.0.remove(uri);
    }
}

/// Sends notifications to a client.
pub(super) enum ClientNotifier {
    /// For a `resources/subscribe`.
    Peer(Peer<RoleServer>),
    /// For a `subscriptions/listen`.
    Sink(SubscriptionSink),
}

impl ClientNotifier {
    /// Notifies that a resource has changed. Returns false if the client has disconnected.
    pub(super) async fn updated(&self, uri: &str) -> bool {
        match self {
            Self::Peer(peer) => peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await.is_ok(),
            Self::Sink(sink) => sink.notify_resource_updated(uri).await.is_ok(),
        }
    }

    async fn list_changed(&self) -> bool {
        match self {
            Self::Peer(peer) => peer.notify_resource_list_changed().await.is_ok(),
            Self::Sink(sink) => sink.notify_resource_list_changed().await.is_ok(),
        }
    }
}

/// Notifies the client when a resource changes, until the returned guard is dropped.
pub(super) async fn follow(
    call: CallContext,
    uri: String,
    notifier: ClientNotifier,
    stop: CancellationToken,
) -> Result<DropGuard> {
    use EventKind::{Agent, Bell, Output, PaneExited, PaneOpened, Screen, Server, Title, Topology};
    let server = call.server(None)?;
    let (panes, types) = match Uri::parse(&uri)? {
        Uri::Sessions => (Vec::new(), vec![Topology, Server]),
        Uri::Panes | Uri::Session(_) => (Vec::new(), vec![Topology, Server, PaneOpened, PaneExited, Title]),
        Uri::Agents => (Vec::new(), vec![Agent]),
        Uri::Pane(target) => {
            let pane = server.pane_id(&target).await?;
            (vec![pane], vec![Screen, Output, PaneExited, Bell, Title, Agent])
        }
    };
    let request = SubscribeRequest { panes, types, ..SubscribeRequest::default() };
    let events = server.subscribe(&request).await?;
    Ok(spawn_until(stop, async move { notify_changes(&uri, &notifier, events).await }))
}

/// Notifies the client when the list of resources differs from `listed`, even if no tmux server is
/// running yet.
pub(super) fn follow_list(
    call: CallContext,
    mut listed: Vec<Resource>,
    notifier: ClientNotifier,
    stop: CancellationToken,
) -> Result<DropGuard> {
    use EventKind::{PaneExited, PaneOpened, Server, Topology};
    let server = call.server(None)?;
    let request =
        SubscribeRequest { types: vec![Topology, Server, PaneOpened, PaneExited], ..SubscribeRequest::default() };
    Ok(spawn_until(stop, async move {
        let mut events = loop {
            match server.overhear(&request).await {
                Ok(events) => break events,
                // No server is running yet, or one is starting or exiting.
                Err(error) if matches!(error.code, ErrorCode::TmuxUnavailable | ErrorCode::InconsistentState) => {
                    server.link().reached().await;
                }
                Err(_) => return,
            }
            tokio::time::sleep(BETWEEN).await;
        };
        // A change may have come between the list and the subscription.
        loop {
            if let Ok(now) = list(&call).await
                && now != listed
            {
                listed = now;
                if !notifier.list_changed().await {
                    return;
                }
            }
            tokio::time::sleep(BETWEEN).await;
            if !next(&mut events).await {
                return;
            }
        }
    }))
}

fn spawn_until(stop: CancellationToken, following: impl Future<Output = ()> + Send + 'static) -> DropGuard {
    let guard = stop.clone().drop_guard();
    tokio::spawn(async move {
        tokio::select! {
            () = following => {}
            () = stop.cancelled() => {}
        }
    });
    guard
}

async fn notify_changes(uri: &str, notifier: &ClientNotifier, mut events: Subscription) {
    while next(&mut events).await {
        if !notifier.updated(uri).await {
            return;
        }
        // A program can ring bells at any rate.
        tokio::time::sleep(BETWEEN).await;
    }
}

/// Waits for the next change that is worth a notification: returns an urgent one at once, drawing
/// when it rests or after [`AT_LEAST`]. Returns false when no more will come.
async fn next(events: &mut Subscription) -> bool {
    let Some(Ok(first)) = events.next().await else { return false };
    let limit = tokio::time::Instant::now() + AT_LEAST;
    let mut urgent = is_urgent(first.event.kind());
    while !urgent && tokio::time::Instant::now() < limit {
        match tokio::time::timeout(TOGETHER, events.next()).await {
            Ok(Some(Ok(delivery))) => urgent = is_urgent(delivery.event.kind()),
            Ok(Some(Err(_)) | None) | Err(_) => break,
        }
    }
    true
}

const fn is_urgent(event: EventKind) -> bool {
    matches!(event, EventKind::PaneExited | EventKind::Bell | EventKind::Agent)
}

/// Returns the targets that complete an argument.
pub(super) async fn completions(call: &CallContext, request: &CompleteRequestParams) -> Result<Vec<String>> {
    let wanted = match &request.r#ref {
        Reference::Resource(_) => request.argument.name == "target",
        Reference::Prompt(_) => matches!(request.argument.name.as_str(), "target" | "targets"),
        _ => false,
    };
    if !wanted {
        return Ok(Vec::new());
    }
    let server = call.server(None)?;
    let panes = server.panes().await?;
    let mut targets: Vec<String> = Vec::new();
    for pane in panes.iter().filter(|pane| !pane.window_id.is_empty()) {
        let window = format!("{}:{}", pane.session, pane.window_index);
        targets.extend([pane.id.to_string(), pane.session.clone(), format!("{window}.{}", pane.index), window]);
    }
    targets.retain(|target| target.starts_with(&request.argument.value));
    targets.sort();
    targets.dedup();
    Ok(targets)
}
