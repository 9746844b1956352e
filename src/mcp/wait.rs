//! `wait_for`: a wait that outlives the call.

use std::time::{Duration, Instant};

use rmcp::model::{JsonObject, ProgressNotificationParam};
use serde_json::json;

use super::{
    CallContext,
    args::{self, parse},
    output::ToolOutput,
};
use crate::api::{Error, Result, StandsBefore, WaitAnswer, WaitMode, WaitOutcome, WaitRequest};

/// How often a client that asked for progress gets a notification; clients begin their own time
/// limit anew then.
const PROGRESS: Duration = Duration::from_secs(5);

/// Cancels a wait when its call is cancelled.
struct CancelOnDrop<'a> {
    call: &'a CallContext,
    id: Option<String>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let engine = self.call.engine.clone();
        // Outside of a runtime everything has ended.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = engine.cancel_wait(&id).await;
            });
        }
    }
}

/// Waits as long as no client gives up; then returns `pending`, and the next call goes on.
pub(super) async fn wait(call: &CallContext, arguments: JsonObject) -> Result<ToolOutput> {
    let args: args::Wait = parse(arguments)?;
    let begun = Instant::now();
    let id = match args.id {
        Some(id) if args.panes.is_empty() && args.patterns.is_empty() => id,
        Some(_) => return Err(Error::invalid("id: a wait that goes on has its panes and patterns already")),
        None => {
            let server = call.server(args.server.as_deref())?;
            let request = WaitRequest {
                panes: args.panes,
                mode: if args.all { WaitMode::All } else { WaitMode::Any },
                patterns: args.patterns,
                screen: args.screen,
                stable_ms: args.stable_ms,
                exit: args.exit,
                prompt: args.prompt,
                fail: args.fail,
                since: args.since,
                timeout_ms: args.timeout_ms,
                detach: true,
                ..WaitRequest::default()
            };
            server.await_request(&request).await?.id
        }
    };
    let mut cancel_on_drop = CancelOnDrop { call, id: Some(id.clone()) };
    let hold = call.max_hold();
    let answer = loop {
        let left = hold.saturating_sub(begun.elapsed());
        let look = if call.progress.is_some() { left.min(PROGRESS) } else { left };
        let answer = call.engine.wait_result(&id, Some(u64::try_from(look.as_millis()).unwrap_or(u64::MAX))).await?;
        if answer.outcome != WaitOutcome::Pending || begun.elapsed() >= hold {
            break answer;
        }
        notify_progress(call, &answer, begun.elapsed()).await;
    };
    // The wait goes on without this call, or is over.
    cancel_on_drop.id = None;
    Ok(ToolOutput { text: text(&answer), answer: serde_json::to_value(&answer).unwrap_or_else(|_| json!({})) })
}

async fn notify_progress(call: &CallContext, answer: &WaitAnswer, waited: Duration) {
    let (Some(peer), Some(token)) = (&call.peer, &call.progress) else { return };
    let latched = answer.predicates.iter().filter(|predicate| predicate.latched).count();
    let mut progress = ProgressNotificationParam::new(token.clone(), waited.as_secs_f64());
    progress.message = Some(format!("{latched} of {} satisfied; wait {}", answer.predicates.len(), answer.id));
    // A client that has gone needs no notification.
    let _ = peer.notify_progress(progress).await;
}

fn text(answer: &WaitAnswer) -> String {
    let took = format!("after {:.0} ms", answer.duration_ms);
    match answer.outcome {
        WaitOutcome::Matched => {
            let lines =
                answer.predicates.iter().filter_map(|hit| Some(format!("{}: {}", hit.pane, hit.line.as_ref()?)));
            let lines: Vec<_> = lines.collect();
            format!("matched {took}\n{}", lines.join("\n"))
        }
        WaitOutcome::Pending => format!("pending: call wait_for again with id {}", answer.id),
        WaitOutcome::Timeout => {
            let stand = answer.predicates.iter().filter_map(|open| Some((open, open.stands_before.as_ref()?)));
            let stand = stand.map(|(open, stands)| {
                let (pattern, StandsBefore { line, since, .. }) = (open.pattern.as_deref().unwrap_or_default(), stands);
                format!(
                    "/{pattern}/ stands in {} since before the wait (since: {since} counts it): {line}\n",
                    open.pane
                )
            });
            let stand: String = stand.collect();
            format!("timeout {took}; {stand}the screen ends:\n{}", answer.screen.as_deref().unwrap_or_default())
        }
        WaitOutcome::Failed => {
            let hit = answer.predicates.iter().find(|hit| hit.latched && hit.kind == crate::api::PredicateKind::Fail);
            format!("failed {took}: {}", hit.and_then(|hit| hit.line.as_deref()).unwrap_or_default())
        }
        WaitOutcome::Ended => {
            let status = answer.exit_status.map_or_else(|| "unknown".to_owned(), |status| status.to_string());
            format!("the pane ended first {took}, exit status {status}")
        }
        WaitOutcome::Cancelled => format!("cancelled {took}"),
    }
}
