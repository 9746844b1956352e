//! Resources: panes and sessions under `tmux://`, and word of what changes there.

use std::{collections::HashMap, time::Duration};

use rmcp::model::{
    CompleteRequestParams, ReadResourceResult, Reference, Resource, ResourceContents, ResourceTemplate,
    ResourceUpdatedNotificationParam,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Session;
use crate::{
    api::{CaptureRequest, Error, ErrorCode, EventKind, Result, SubscribeRequest},
    engine::Subscription,
};

/// Changes that follow each other within this time are told together.
const TOGETHER: Duration = Duration::from_millis(200);
/// What does not come to rest is told this often.
const AT_LEAST: Duration = Duration::from_secs(1);

/// What a URI means.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Uri {
    /// `tmux://sessions`
    Sessions,
    /// `tmux://panes`
    Panes,
    /// `tmux://pane/%3`: what it shows
    Pane(String),
}

impl Uri {
    fn parse(uri: &str) -> Result<Self> {
        let unknown = || {
            Error::not_found(format!("no resource {uri}; there are tmux://panes, tmux://sessions and tmux://pane/%3"))
        };
        match uri.strip_prefix("tmux://").ok_or_else(unknown)? {
            "sessions" => Ok(Self::Sessions),
            "panes" => Ok(Self::Panes),
            rest => match rest.strip_prefix("pane/").filter(|pane| !pane.is_empty()) {
                // `%3` in a URI is `%253`, but hardly anybody writes it so.
                Some(pane) => Ok(Self::Pane(pane.replace("%25", "%"))),
                None => Err(unknown()),
            },
        }
    }
}

/// What there is now.
pub(super) async fn list(session: &Session) -> Result<Vec<Resource>> {
    let mut listed = vec![
        Resource::new("tmux://panes", "panes").with_description("Every pane").with_mime_type("application/json"),
        Resource::new("tmux://sessions", "sessions")
            .with_description("Every session")
            .with_mime_type("application/json"),
    ];
    let host = session.host(None)?;
    let panes = match session.engine.panes(&host).await {
        Ok(panes) => panes.panes,
        // A server that does not run has no panes.
        Err(error) if error.code == ErrorCode::TmuxUnavailable => Vec::new(),
        Err(error) => return Err(error),
    };
    listed.extend(panes.into_iter().filter(|pane| !pane.window_id.is_empty()).map(|pane| {
        let name = format!("{}:{}.{}", pane.session, pane.window_index, pane.index);
        Resource::new(format!("tmux://pane/{}", pane.id), name)
            .with_description(format!("{} in {}", pane.command, pane.path))
            .with_mime_type("text/plain")
    }));
    Ok(listed)
}

/// What a URI may look like.
pub(super) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new("tmux://pane/{target}", "pane")
            .with_description("What a pane shows; the target as everywhere")
            .with_mime_type("text/plain"),
    ]
}

/// Reads one.
pub(super) async fn read(session: &Session, uri: &str) -> Result<ReadResourceResult> {
    let host = session.host(None)?;
    let contents = match Uri::parse(uri)? {
        Uri::Sessions => json(uri, &session.engine.sessions(&host).await?),
        Uri::Panes => json(uri, &session.engine.panes(&host).await?),
        Uri::Pane(target) => {
            let answer = session.engine.capture(&host, &target, &CaptureRequest::default()).await?;
            ResourceContents::text(answer.text, uri).with_mime_type("text/plain")
        }
    };
    Ok(ReadResourceResult::new(vec![contents]))
}

fn json(uri: &str, value: &impl serde::Serialize) -> ResourceContents {
    ResourceContents::text(serde_json::to_string(value).unwrap_or_default(), uri).with_mime_type("application/json")
}

/// What a client has subscribed to.
#[derive(Default)]
pub(super) struct Subscriptions(HashMap<String, DropGuard>);

impl Subscriptions {
    pub(super) fn add(&mut self, uri: String, following: DropGuard) {
        self.0.insert(uri, following);
    }

    pub(super) fn remove(&mut self, uri: &str) {
        self.0.remove(uri);
    }
}

/// Tells the client when what a URI means has changed, until the answer is dropped.
pub(super) async fn follow(session: Session, uri: String, stop: CancellationToken) -> Result<DropGuard> {
    let host = session.host(None)?;
    let (panes, types) = match Uri::parse(&uri)? {
        Uri::Sessions => (Vec::new(), vec![EventKind::Topology, EventKind::Server]),
        Uri::Panes => {
            use EventKind::{PaneExited, PaneOpened, Server, Title, Topology};
            (Vec::new(), vec![Topology, Server, PaneOpened, PaneExited, Title])
        }
        Uri::Pane(target) => {
            use EventKind::{Agent, Bell, Output, PaneExited, Screen, Title};
            let pane = session.engine.pane_id(&host, &target).await?;
            (vec![pane], vec![Screen, Output, PaneExited, Bell, Title, Agent])
        }
    };
    let request = SubscribeRequest { panes, types, ..SubscribeRequest::default() };
    let events = session.engine.subscribe(&host, &request).await?;
    let guard = stop.clone().drop_guard();
    tokio::spawn(async move {
        tokio::select! {
            () = tell(&session, uri, events) => {}
            () = stop.cancelled() => {}
        }
    });
    Ok(guard)
}

async fn tell(session: &Session, uri: String, mut events: Subscription) {
    let Some(peer) = &session.peer else { return };
    while let Some(Ok(first)) = events.next().await {
        let until = tokio::time::Instant::now() + AT_LEAST;
        // A bell and an end are told at once; what draws is told when it rests, or once in a while.
        let mut urgent = is_urgent(first.telling.kind());
        while !urgent && tokio::time::Instant::now() < until {
            match tokio::time::timeout(TOGETHER, events.next()).await {
                Ok(Some(Ok(event))) => urgent = is_urgent(event.telling.kind()),
                Ok(Some(Err(_)) | None) | Err(_) => break,
            }
        }
        let told = peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri.clone())).await;
        if told.is_err() {
            return;
        }
    }
}

const fn is_urgent(event: EventKind) -> bool {
    matches!(event, EventKind::PaneExited | EventKind::Bell | EventKind::Agent)
}

/// Targets that a client may mean.
pub(super) async fn completions(session: &Session, request: &CompleteRequestParams) -> Result<Vec<String>> {
    let wanted = match &request.r#ref {
        Reference::Resource(_) => request.argument.name == "target",
        Reference::Prompt(_) => matches!(request.argument.name.as_str(), "target" | "targets"),
        _ => false,
    };
    if !wanted {
        return Ok(Vec::new());
    }
    let host = session.host(None)?;
    let panes = session.engine.panes(&host).await?.panes;
    let mut targets: Vec<String> = Vec::new();
    for pane in panes.iter().filter(|pane| !pane.window_id.is_empty()) {
        let window = format!("{}:{}", pane.session, pane.window_index);
        targets.extend([pane.id.clone(), pane.session.clone(), format!("{window}.{}", pane.index), window]);
    }
    targets.retain(|target| target.starts_with(&request.argument.value));
    targets.sort();
    targets.dedup();
    Ok(targets)
}
