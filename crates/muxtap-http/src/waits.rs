//! A wait that a request awaits, in this daemon or in the one that takes over (`docs/upgrade.md`).

#[cfg(feature = "daemon")]
use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

#[cfg(feature = "daemon")]
use axum::http::request::Parts;
use axum::{
    Json,
    response::{IntoResponse as _, Response},
};
#[cfg(feature = "daemon")]
use muxtap_api::{Error, Tier, wire};
use muxtap_api::{WaitAnswer, WaitOutcome, WaitRequest};

#[cfg(feature = "daemon")]
use muxtap_base::nonce;
#[cfg(feature = "daemon")]
use muxtap_engine::several::Part;

#[cfg(feature = "daemon")]
use super::guard::is_revocable;
#[cfg(feature = "daemon")]
use super::peer::Reopened;
#[cfg(feature = "daemon")]
use super::replace::{OwnTurn, READS_ONLY, moved};
use super::{
    again::Again,
    error::{Body, Params, Result},
    routes::WaitResultQuery,
    server_request::ServerRequest,
};

/// Notes that the caller does not stay for the end of its wait.
async fn note_leaving(request: &ServerRequest<Body<WaitRequest>>, again: &Again, answer: &mut WaitAnswer) {
    let stays = again.hold.is_some() && answer.outcome != WaitOutcome::Pending;
    if request.fields.0.detach && !stays {
        answer.not_kept = request.app.engine.keep_result(&answer.id).await.err();
    }
}

/// Cancels a wait.
pub(super) async fn cancel(request: &ServerRequest) -> Result<WaitAnswer> {
    let engine = &request.app.engine;
    #[cfg(feature = "daemon")]
    {
        let peers = &request.app.rooms().peers;
        if let Some(several) = peers.several(&request.target) {
            return Ok(peers.cancel_several(engine, &several).await?);
        }
    }
    Ok(engine.cancel_wait(&request.target).await?)
}

/// Carries out a wait on several hosts. If another daemon takes over meanwhile, the request is opened
/// again in that one: each host finds its wait by its key.
#[cfg(feature = "daemon")]
async fn wait_on_several(
    request: &ServerRequest<Body<WaitRequest>>,
    parts: &[Part],
    again: &Again,
) -> muxtap_api::Result<Response> {
    let app = &request.app;
    let (engine, peers) = (&app.engine, &app.rooms().peers);
    let key = again.key.clone().unwrap_or_else(nonce::hex64);
    let reopened = Reopened::of_several(request, &key)?;
    continues(&request.parts);
    let waits = peers.wait_on_several(engine, parts.to_vec(), &request.fields.0, Some(key.clone()), again.hold);
    let mut answer = tokio::select! {
        biased;
        () = app.replacing().taken_over() => return reopened.ask(request).await,
        answer = waits => answer?,
    };
    if answer.outcome == WaitOutcome::Pending
        && let Some(several) = peers.several(&answer.id)
    {
        if engine.waits_have_left() {
            return reopened.ask(request).await;
        }
        answer.not_kept = peers.keep_several(engine, &several).await.err();
    }
    Ok(Json(answer).into_response())
}

/// Carries out a wait request.
#[cfg(not(feature = "daemon"))]
pub(super) async fn wait(request: &ServerRequest<Body<WaitRequest>>, again: &Again) -> Result<Response> {
    if request.several.is_some() {
        return Err(muxtap_api::Error::invalid("panes: a wait on several hosts needs muxtap's daemon").into());
    }
    let mut answer = request.server()?.await_again(&request.fields.0, again.id()?, again.hold).await?;
    note_leaving(request, again, &mut answer).await;
    Ok(Json(answer).into_response())
}

/// Carries out a wait request. If another daemon takes over meanwhile, it continues the wait, and
/// this one passes its response on.
#[cfg(feature = "daemon")]
pub(super) async fn wait(request: &ServerRequest<Body<WaitRequest>>, again: &Again) -> Result<Response> {
    if let Some(parts) = &request.several {
        return Ok(wait_on_several(request, parts, again).await?);
    }
    let replacing = request.app.replacing();
    let (begun_at, id) = (Instant::now(), OnceLock::new());
    let begun = |begun: &str| {
        let _ = id.set(begun.to_owned());
        continues(&request.parts);
    };
    // The server, which keeps panes, and the wait are dropped before the rest is awaited.
    {
        let server = request.server()?;
        let answer = server.await_begun(&request.fields.0, again.id()?, again.hold, begun);
        let mut answer = std::pin::pin!(answer);
        let answered = tokio::select! {
            // First: the wait is not this daemon's any more.
            biased;
            () = replacing.taken_over() => None,
            answer = &mut answer => {
                let mut answer = answer?;
                note_leaving(request, again, &mut answer).await;
                if !replacing.decided().await {
                    return Ok(Json(answer).into_response());
                }
                Some(answer)
            }
        };
        // With `force`, it may not have begun: then the engine, which has left, answers with an error.
        if id.get().is_none() {
            let answer = match answered {
                Some(answer) => answer,
                None => answer.as_mut().await?,
            };
            // The wait may have begun after all.
            if id.get().is_none() {
                return Ok(Json(answer).into_response());
            }
        }
    }
    let hold = if request.fields.0.detach { again.hold.or(Some(Duration::ZERO)) } else { None };
    let hold = hold.map(|hold| hold.saturating_sub(begun_at.elapsed()));
    let id = id.into_inner().unwrap_or_default();
    check_may_relay(&request.parts, &id)?;
    Ok(request.app.wait_elsewhere(&id, hold, reads_only(&request.parts)).await?)
}

/// Returns a wait's state or result.
#[cfg(not(feature = "daemon"))]
pub(super) async fn result(request: &ServerRequest<Params<WaitResultQuery>>) -> Result<Response> {
    let answer = request.app.engine.wait_result(&request.target, request.fields.0.timeout_ms).await?;
    Ok(Json(answer).into_response())
}

/// Returns a wait's state or result. If another daemon takes over meanwhile, its response is passed on.
#[cfg(feature = "daemon")]
pub(super) async fn result(request: &ServerRequest<Params<WaitResultQuery>>) -> Result<Response> {
    // Before another daemon is asked, which does not know the caller.
    request.app.engine.authorize(Tier::Read)?;
    let (replacing, begun_at) = (request.app.replacing(), Instant::now());
    let relay = request.parts.headers.get(wire::RELAY);
    let reads_only = reads_only(&request.parts) || relay.is_some_and(|relay| relay == READS_ONLY);
    let engine = if reads_only { request.app.engine.reading_only() } else { request.app.engine.clone() };
    let peers = &request.app.rooms().peers;
    let several = peers.several(&request.target);
    // By the key alone only this daemon knows the wait.
    let id = several.as_ref().map_or_else(|| request.target.clone(), ToString::to_string);
    continues(&request.parts);
    let timeout = request.fields.0.timeout_ms;
    let result = async {
        let Some(several) = &several else { return engine.wait_result(&id, timeout).await };
        peers.several_result(&engine, several, Duration::from_millis(timeout.unwrap_or_default())).await
    };
    tokio::select! {
        biased;
        () = replacing.taken_over() => {}
        answer = result => if !replacing.decided().await {
            return Ok(Json(answer?).into_response());
        }
    }
    if relay.is_some() {
        return Ok(moved());
    }
    check_may_relay(&request.parts, &id)?;
    let hold = timeout.map_or(Duration::ZERO, Duration::from_millis).saturating_sub(begun_at.elapsed());
    Ok(request.app.wait_elsewhere(&id, Some(hold), reads_only).await?)
}

/// Notes that the daemon may be replaced before the request is finished.
#[cfg(feature = "daemon")]
pub(super) fn continues(parts: &Parts) {
    if let Some(turn) = parts.extensions.get::<OwnTurn>() {
        turn.continues();
    }
}

/// Checks that this daemon may pass the rest of a wait on.
#[cfg(feature = "daemon")]
pub(super) fn check_may_relay(parts: &Parts, id: &str) -> muxtap_api::Result<()> {
    if !is_revocable(parts) {
        return Ok(());
    }
    Err(Error::unavailable(format!(
        "another muxtap daemon has taken over and continues wait {id}: request its result by `GET /v1/waits/{id}`"
    )))
}

/// Returns whether the caller's answers mark no match.
#[cfg(feature = "daemon")]
fn reads_only(parts: &Parts) -> bool {
    parts.extensions.get::<muxtap_page::PageSession>().is_some_and(|page| page.reads_only)
}

#[cfg(all(test, feature = "daemon"))]
mod tests {
    use muxtap_net::Peer;
    use muxtap_page::PageSessions;

    use super::*;
    use crate::guard::Login;

    #[test]
    fn a_login_gets_no_result_through_a_replaced_daemon() {
        let parts = || axum::http::Request::new(()).into_parts().0;
        assert!(check_may_relay(&parts(), "w1").is_ok());
        let mut of_page = parts();
        let sessions = PageSessions::default();
        let code = sessions.redeem(&sessions.code(false).unwrap()).unwrap();
        let session = sessions.verify(&sessions.log_in(&code, 0).unwrap(), 0).unwrap();
        of_page.extensions.insert(Login::Page { sessions, session });
        let error = check_may_relay(&of_page, "w1").unwrap_err();
        assert!(error.message.contains("/v1/waits/w1"), "{error}");
        // A member can be excluded from the fleet.
        let mut of_fleet = parts();
        of_fleet.extensions.insert(Peer::Fleet);
        assert!(check_may_relay(&of_fleet, "w1").is_err());
    }
}
