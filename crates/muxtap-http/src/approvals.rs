//! Questions to a person at a terminal, for `muxtap approvals`.

use std::convert::Infallible;

use axum::{
    Extension, Json,
    extract::FromRequestParts,
    http::request::Parts,
    response::{
        IntoResponse as _, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::stream;
use muxtap_net::Peer;
use muxtap_tmux::Lineage;

use super::{
    App,
    error::{Body, PathWord, Result},
    openapi_parts::{Failures, PathQuestion},
};

use muxtap_api::{DoneAnswer, Error, ErrorCode};
use muxtap_approvals::approvals::{ApprovalAnswer, ApprovalList, Approvals};

/// The page that sends the request, if one does.
#[derive(Clone, Copy)]
pub struct Page {
    may_all: bool,
}

impl Page {
    fn may_all(self) -> bool {
        self.may_all
    }
}

impl FromRequestParts<App> for Page {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> std::result::Result<Self, Self::Rejection> {
        let may_all = parts.extensions.get::<muxtap_page::PageSession>().is_some_and(|page| !page.reads_only);
        Ok(Self { may_all })
    }
}

/// Returns the questions, for a caller on the Unix socket, or a page that was opened from it: only
/// these are certain to be the user.
fn questions(app: &App, peer: &Peer, page: Page) -> Result<Approvals> {
    if !matches!(peer, Peer::Unix { .. }) && !page.may_all() {
        return Err(Error::new(
            ErrorCode::Unauthorized,
            "this route is for `muxtap approvals` on the Unix socket; it is not available over TCP",
        )
        .into());
    }
    let none = || Error::internal("the daemon has no list of approvals; this is a bug in muxtap");
    Ok(app.rooms().approvals.clone().ok_or_else(none)?)
}

/// Returns the calling process, if it is on this machine and known.
pub(super) async fn answerer(app: &App, peer: &Peer) -> Option<Lineage> {
    match peer {
        Peer::Unix { pid, .. } => app.engine.lineage(*pid).await,
        Peer::Tcp { .. } | Peer::Fleet => None,
    }
}

/// Lists the questions that wait for a person's answer.
///
/// Only on the Unix socket, like all routes of approvals.
#[utoipa::path(
    get, path = "/v1/approvals", operation_id = "list_approvals", tag = "approvals",
    responses((status = 200, description = "The answer", body = ApprovalList), Failures)
)]
pub async fn list(Extension(peer): Extension<Peer>, page: Page, app: App) -> Result<Json<ApprovalList>> {
    Ok(Json(questions(&app, &peer, page)?.open_questions()))
}

/// Answers a question. Each takes one answer, through whichever interface.
///
/// An answer from the process that asks, or from its pane, is UNAUTHORIZED.
#[utoipa::path(
    post, path = "/v1/approvals/{id}", operation_id = "answer_approval", tag = "approvals",
    params(PathQuestion),
    request_body = ApprovalAnswer,
    responses((status = 200, description = "Done", body = DoneAnswer), Failures)
)]
pub async fn answer(
    Extension(peer): Extension<Peer>,
    page: Page,
    app: App,
    PathWord(id): PathWord,
    Body(ApprovalAnswer { answer }): Body<ApprovalAnswer>,
) -> Result<Json<DoneAnswer>> {
    let questions = questions(&app, &peer, page)?;
    let answerer = answerer(&app, &peer).await;
    questions.answer_by(&app.engine, &id, answer, answerer.as_ref())?;
    Ok(Json(DoneAnswer { ok: true }))
}

/// Streams the open questions.
///
/// Server-Sent Events: `data` is the list of open questions, sent at once and whenever it may have
/// changed. While a client reads this stream, agents know that a person can be asked.
#[utoipa::path(
    get, path = "/v1/approvals/events", operation_id = "watch_approvals", tag = "approvals",
    responses(
        (status = 200, description = "A stream of lists", body = ApprovalList, content_type = "text/event-stream"),
        Failures
    )
)]
pub async fn events(Extension(peer): Extension<Peer>, page: Page, app: App) -> Result<Response> {
    let questions = questions(&app, &peer, page)?;
    // If a stream ended at once, its reader would reconnect at once.
    if app.engine.is_stopping() {
        return Err(Error::unavailable("muxtap is stopping").into());
    }
    let watcher = questions.watch();
    let lists = stream::unfold((watcher, app.engine), |(mut watcher, engine)| async move {
        let list = tokio::select! {
            list = watcher.next() => list,
            () = engine.stopping() => return None,
        };
        let event = Event::default().data(serde_json::to_string(&list).unwrap_or_default());
        Some((Ok::<_, Infallible>(event), (watcher, engine)))
    });
    Ok(Sse::new(lists).keep_alive(KeepAlive::default()).into_response())
}
