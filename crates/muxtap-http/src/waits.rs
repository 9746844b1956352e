//! A wait that a request awaits, in this daemon or in the one that takes over (`docs/upgrade.md`).

use axum::{
    Json,
    response::{IntoResponse as _, Response},
};
use muxtap_api::{WaitAnswer, WaitOutcome, WaitRequest};

use super::{
    again::Again,
    error::{Body, Result},
    server_request::ServerRequest,
};

/// Notes that the caller does not stay for the end of its wait.
async fn note_leaving(request: &ServerRequest<Body<WaitRequest>>, again: &Again, answer: &mut WaitAnswer) {
    let stays = again.hold.is_some() && answer.outcome != WaitOutcome::Pending;
    if request.fields.0.detach && !stays {
        answer.not_kept = request.app.engine.keep_result(&answer.id).await.err();
    }
}

/// Carries out a wait request.
#[cfg(not(feature = "daemon"))]
pub(super) async fn wait(request: &ServerRequest<Body<WaitRequest>>, again: &Again) -> Result<Response> {
    let mut answer = request.server()?.await_again(&request.fields.0, again.id()?, again.hold).await?;
    note_leaving(request, again, &mut answer).await;
    Ok(Json(answer).into_response())
}

/// Carries out a wait request. If another daemon takes over meanwhile, it continues the wait, and
/// this one passes its response on.
#[cfg(feature = "daemon")]
pub(super) async fn wait(request: &ServerRequest<Body<WaitRequest>>, again: &Again) -> Result<Response> {
    use std::time::Instant;

    use muxtap_api::Cursor;

    use super::replace::OwnTurn;

    let replacing = request.app.replacing();
    let begun_at = Instant::now();
    let begun = |begun: &str| {
        // From here on the request need not be finished, if another daemon can continue the wait.
        if let Some(turn) = request.parts.extensions.get::<OwnTurn>() {
            let (engine, begun) = (request.app.engine.clone(), begun.to_owned());
            turn.end_if(&begun.clone(), move || engine.wait_place(&begun).map(|place| place.to_string()));
        }
    };
    // The server, which keeps panes, and the wait are dropped before the rest is awaited.
    let place = {
        let server = request.server()?;
        let answer = server.await_begun(&request.fields.0, again.id()?, again.hold, begun);
        let mut answer = std::pin::pin!(answer);
        let place = tokio::select! {
            // First: this daemon cancels its waits then.
            biased;
            () = replacing.taken_over() => request.parts.extensions.get::<OwnTurn>().and_then(OwnTurn::place),
            answer = &mut answer => {
                let mut answer = answer?;
                note_leaving(request, again, &mut answer).await;
                return Ok(Json(answer).into_response());
            }
        };
        match place {
            Some(place) => place,
            // It has ended, or is cancelled now, as when the daemon stops.
            None => return Ok(Json(answer.await?).into_response()),
        }
    };
    let timeout = request.fields.0.timeout_ms.map(std::time::Duration::from_millis);
    let elapsed = begun_at.elapsed();
    let timeout = timeout.unwrap_or(muxtap_engine::limits::WAIT_DEFAULT).saturating_sub(elapsed);
    let mut rest = WaitRequest { timeout_ms: Some(timeout.as_millis() as u64), ..request.fields.0.clone() };
    // A name may mean another pane by now.
    if let Ok(cursor) = place.parse::<Cursor>() {
        rest.panes = vec![cursor.pane.to_string()];
    }
    rest.since = Some(place);
    Ok(request.app.wait_elsewhere(&request.parts, &rest, again.key.as_deref(), elapsed).await?)
}
