//! Questions to a human at a terminal, for `muxtap approvals`.

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
    error::{Body, Result, Target},
    openapi_parts::{Failures, PathQuestion},
};

use muxtap_api::{DoneAnswer, Error, ErrorCode};
use muxtap_approvals::approvals::{ApprovalAnswer, ApprovalList, Approvals};

/// The page that asks, if one does.
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

/// Returns the questions, for a caller on the Unix socket, or a page that was opened there: only they are the user for
/// certain.
fn questions(app: &App, peer: &Peer, page: Page) -> Result<Approvals> {
    if !matches!(peer, Peer::Unix { .. }) && !page.may_all() {
        return Err(Error::new(
            ErrorCode::Unauthorized,
            "this is for `muxtap approvals` on the Unix socket, not for TCP ports",
        )
        .into());
    }
    let none = || Error::internal("this daemon has no list of questions to a human, a defect of muxtap");
    Ok(app.rooms().approvals.clone().ok_or_else(none)?)
}

/// Returns the process that calls, where it is one of this machine and is known.
pub(super) async fn answerer(app: &App, peer: &Peer) -> Option<Lineage> {
    match peer {
        Peer::Unix { pid, .. } => app.engine.lineage(*pid).await,
        Peer::Tcp { .. } => None,
    }
}

/// Lists the questions that wait for a human's answer.
///
/// On the Unix socket only, as all of approvals.
#[utoipa::path(
    get, path = "/v1/approvals", operation_id = "list_approvals", tag = "approvals",
    responses((status = 200, description = "The answer", body = ApprovalList), Failures)
)]
pub async fn list(Extension(peer): Extension<Peer>, page: Page, app: App) -> Result<Json<ApprovalList>> {
    Ok(Json(questions(&app, &peer, page)?.open_questions()))
}

/// Answers a question. Each takes one answer, wherever it is given.
///
/// The process that asks, and what runs in its pane, cannot: UNAUTHORIZED.
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
    Target(id): Target,
    Body(ApprovalAnswer { answer }): Body<ApprovalAnswer>,
) -> Result<Json<DoneAnswer>> {
    let questions = questions(&app, &peer, page)?;
    let answerer = answerer(&app, &peer).await;
    questions.answer_by(&app.engine, &id, answer, answerer.as_ref())?;
    Ok(Json(DoneAnswer { ok: true }))
}

/// Watches for questions.
///
/// Server-Sent Events: `data` is the list of open questions, at once and whenever it may have
/// changed. While this is read, agents know that somebody can be asked.
#[utoipa::path(
    get, path = "/v1/approvals/events", operation_id = "watch_approvals", tag = "approvals",
    responses(
        (status = 200, description = "A stream of lists", body = ApprovalList, content_type = "text/event-stream"),
        Failures
    )
)]
pub async fn events(Extension(peer): Extension<Peer>, page: Page, app: App) -> Result<Response> {
    let questions = questions(&app, &peer, page)?;
    // A stream that ended at once would have its reader ask again at once.
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
