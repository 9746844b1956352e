//! `wait_for`: a wait that outlives the call.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use muxtap_api::{
    CommandInfo, Error, GapReason, HostInfo, PredicateKind, Result, ServerQuery, StandsBefore, WaitAnswer, WaitMode,
    WaitOutcome, WaitRequest,
};
use muxtap_base::{nonce, plain};
use muxtap_engine::{limits::POLL_LONGEST, several::Part};
use muxtap_peer::Several;
use rmcp::model::ProgressNotificationParam;
use serde_json::{Value, json};

use super::{
    CallContext, args,
    output::{ToolOutput, name_ids_of_items},
    quoted::{push_quoted, push_row},
};

/// The interval of notifications to a client that requested progress; clients restart their timeout
/// at each.
const PROGRESS: Duration = Duration::from_secs(5);

/// Cancels the caller's own wait when its call is cancelled.
struct CancelOnDrop<'a> {
    call: &'a CallContext,
    id: Option<String>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.call.engine.abandon_wait(&id);
        }
    }
}

/// Waits until shortly before clients time out, then returns `pending`; the next call continues the
/// wait.
pub(super) async fn wait(call: &CallContext, args: args::Wait) -> Result<ToolOutput> {
    let detach = args.detach;
    let begun = Instant::now();
    if let Some(several) = args.id.as_deref().and_then(|id| call.rooms.peers.several(id))
        && args.panes.is_empty()
        && args.patterns.is_empty()
    {
        return until_held(call, several, None, (begun, detach)).await;
    }
    let id = match args.id {
        Some(id) if args.panes.is_empty() && args.patterns.is_empty() => id,
        Some(_) => return Err(Error::invalid("id: a pending wait already has its panes and patterns")),
        None => {
            let server = call.server(args.server.as_deref())?;
            let request = request(args);
            server.await_again(&request, call.wait_id.clone(), None).await?.id
        }
    };
    let mut cancel_on_drop = CancelOnDrop { call, id: call.wait_id.is_none().then(|| id.clone()) };
    let hold = if detach { Duration::ZERO } else { call.max_hold() };
    let mut answer = loop {
        let left = hold.saturating_sub(begun.elapsed());
        let look = left.min(if call.progress.is_some() { PROGRESS } else { POLL_LONGEST });
        let answer = call.engine.wait_result(&id, Some(u64::try_from(look.as_millis()).unwrap_or(u64::MAX))).await?;
        // Another daemon may continue the wait from now on: the client asks that one for it.
        if answer.outcome != WaitOutcome::Pending || begun.elapsed() >= hold || call.engine.waits_have_left() {
            break answer;
        }
        notify_progress(call, &answer, begun.elapsed()).await;
    };
    // The wait continues without this call, or has ended.
    cancel_on_drop.id = None;
    if answer.outcome == WaitOutcome::Pending {
        answer.not_kept = call.engine.keep_result(&id).await.err();
    }
    Ok(ToolOutput {
        text: text(&answer),
        answer: serde_json::to_value(&answer).unwrap_or_else(|_| json!({})),
        is_error: false,
    })
}

fn request(args: args::Wait) -> WaitRequest {
    WaitRequest {
        panes: args.panes,
        mode: if args.all { WaitMode::All } else { WaitMode::Any },
        patterns: args.patterns,
        screen: args.screen,
        gone: args.gone,
        stable_ms: args.stable_ms,
        exit: args.exit,
        prompt: args.prompt,
        bell: args.bell,
        command: args.command,
        status: args.status,
        title: args.title,
        settle_ms: args.settle_ms,
        fail: args.fail,
        since: args.since,
        timeout_ms: args.timeout_ms,
        detach: true,
    }
}

/// Waits as [`wait()`] does, on several hosts.
pub(super) async fn wait_on_several(call: &CallContext, args: args::Wait, mut parts: Vec<Part>) -> Result<ToolOutput> {
    let (begun, detach) = (Instant::now(), args.detach);
    for part in parts.iter_mut().filter(|part| part.host.is_none()) {
        let server = call.named_server(args.server.as_deref())?;
        let from = call.client.own_pane(server.socket()).and_then(|pane| pane.parse().ok());
        part.at = ServerQuery { socket: Some(server.socket().display().to_string()), from };
    }
    let request = request(args);
    // The call's key, as the ids of waits have it.
    let key = call.wait_id.as_deref().and_then(|id| id.strip_prefix("w-")).map_or_else(nonce::hex64, str::to_owned);
    let several = Several::new(request.mode, &parts, &key);
    until_held(call, several, Some((parts, request, key)), (begun, detach)).await
}

/// Waits on several hosts for as long as the call is held. `begins`: what begins the wait; `None`: it has
/// begun.
async fn until_held(
    call: &CallContext,
    several: Several,
    begins: Option<(Vec<Part>, WaitRequest, String)>,
    (begun, detach): (Instant, bool),
) -> Result<ToolOutput> {
    let mut left = AbandonOnDrop { call, several: call.wait_id.is_none().then(|| several.clone()) };
    let output = held(call, several, begins, (begun, detach)).await;
    // The wait continues without this call, has ended, or did not begin. A failed look ends no wait.
    left.several = None;
    output
}

/// Holds the call until the wait's end, or for as long as a call is held.
async fn held(
    call: &CallContext,
    several: Several,
    begins: Option<(Vec<Part>, WaitRequest, String)>,
    (begun, detach): (Instant, bool),
) -> Result<ToolOutput> {
    let peers = &call.rooms.peers;
    let hold = if detach { Duration::ZERO } else { call.max_hold() };
    let look = || {
        let left = hold.saturating_sub(begun.elapsed());
        left.min(if call.progress.is_some() { PROGRESS } else { POLL_LONGEST })
    };
    let mut answer = match begins {
        Some((parts, request, key)) => {
            peers.wait_on_several(&call.engine, parts, &request, Some(key), Some(look())).await?
        }
        None => peers.several_result(&call.engine, &several, look()).await?,
    };
    // The answer's id names the hosts that take part.
    let several = peers.several(&answer.id).unwrap_or(several);
    while answer.outcome == WaitOutcome::Pending && begun.elapsed() < hold && !call.engine.waits_have_left() {
        notify_progress(call, &answer, begun.elapsed()).await;
        let unreachable = std::mem::take(&mut answer.unreachable);
        answer = peers.several_result(&call.engine, &several, look()).await?;
        // Hosts on which it did not begin are in the first answer only.
        let is_known = |host: &HostInfo| answer.unreachable.iter().any(|known| known.name == host.name);
        let earlier: Vec<_> =
            unreachable.into_iter().filter(|host| !is_known(host) && !several.is_on(&host.name)).collect();
        answer.unreachable.extend(earlier);
    }
    if answer.outcome == WaitOutcome::Pending {
        answer.not_kept = peers.keep_several(&call.engine, &several).await.err();
    }
    let text = text(&answer);
    let pane = answer.named_pane();
    let mut answer = serde_json::to_value(&answer).unwrap_or_else(|_| json!({}));
    name_ids_of_items(&mut answer);
    if let (Some(pane), Some(fields)) = (pane, answer.as_object_mut()) {
        fields.insert("pane".into(), pane.into());
    }
    Ok(ToolOutput { text, answer, is_error: false })
}

/// Cancels the caller's own wait on several hosts when its call is cancelled.
struct AbandonOnDrop<'a> {
    call: &'a CallContext,
    several: Option<Several>,
}

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(several) = self.several.take() {
            self.call.rooms.peers.abandon_several(&self.call.engine, &several);
        }
    }
}

async fn notify_progress(call: &CallContext, answer: &WaitAnswer, waited: Duration) {
    let (Some(peer), Some(token)) = (&call.peer, &call.progress) else { return };
    let latched = answer.predicates.iter().filter(|predicate| predicate.latched).count();
    let mut progress = ProgressNotificationParam::new(token.clone(), waited.as_secs_f64());
    progress.message = Some(format!("{latched} of {} satisfied; wait {}", answer.predicates.len(), answer.id));
    // A client that has disconnected needs no notification.
    let _ = peer.notify_progress(progress).await;
}

/// Formats a result: how the wait ended, where, with which status, and each condition.
pub(super) fn text(answer: &WaitAnswer) -> String {
    let took = format!("after {:.0} ms", answer.duration_ms);
    let place = answer.named_pane().map(|pane| format!(" in {pane}")).unwrap_or_default();
    let mut text = match answer.outcome {
        WaitOutcome::Matched => format!("matched{place} {took}"),
        WaitOutcome::Pending => {
            format!("pending: call wait_for with id: {:?} to continue; nothing is missed in between", answer.id)
        }
        WaitOutcome::Timeout => format!("timeout{place} {took}"),
        WaitOutcome::Failed => format!("failed{place} {took}"),
        WaitOutcome::Ended => format!("the pane ended first{place} {took}"),
        WaitOutcome::Cancelled => format!("cancelled {took}"),
    };
    // Writing to a String cannot fail.
    let _ = match (answer.exit_status, answer.exit_signal) {
        (Some(status), _) => write!(text, ", exit status {status}"),
        (None, Some(signal)) => write!(text, ", ended by signal {signal}"),
        (None, None) if answer.outcome == WaitOutcome::Ended => write!(text, ", exit status unknown"),
        (None, None) => Ok(()),
    };
    text.push_str(match answer.gap.map(|gap| gap.reason) {
        Some(GapReason::ProcessEnded) => "; tmux may have dropped the last output of what ended",
        Some(_) => "; some output was missed during the wait",
        None => "",
    });
    if let Some(why) = &answer.not_kept {
        let _ = write!(text, "; its result will not outlive this daemon: {}", plain::name(why));
    }
    text.push('\n');
    for one in &answer.predicates {
        let kind = serde_json::to_value(one.kind).ok();
        let kind = kind.as_ref().and_then(Value::as_str).unwrap_or_default();
        let what = one
            .pattern
            .as_ref()
            .map_or_else(|| kind.to_owned(), |pattern| format!("{kind} /{}/", plain::name(pattern)));
        let stands = one.stands_before.as_ref().filter(|_| answer.outcome == WaitOutcome::Timeout);
        let _ = match (one.latched, &one.line, stands) {
            // A `fail` pattern that did not match is not reported.
            (false, _, _) if one.kind == PredicateKind::Fail => Ok(()),
            (true, ..) if one.command.is_some() => {
                let command = one.command.as_deref();
                let summary = command.map(CommandInfo::summary).unwrap_or_default();
                writeln!(text, "{} {}", one.named_pane(), plain::name(&summary))
            }
            (false, ..) if one.how.as_deref() == Some("unmarked") => {
                writeln!(
                    text,
                    "{} {what}: the shell marks no commands; create with shell_integration: true starts one that does",
                    one.named_pane()
                )
            }
            (true, Some(line), _) => writeln!(text, "{} {what}: {}", one.named_pane(), plain::name(line)),
            (true, None, _) => match (one.exit_status, one.exit_signal) {
                (Some(status), _) => writeln!(text, "{} {what}: yes, exit status {status}", one.named_pane()),
                (None, Some(signal)) => writeln!(text, "{} {what}: yes, by signal {signal}", one.named_pane()),
                (None, None) => writeln!(text, "{} {what}: yes", one.named_pane()),
            },
            (false, _, Some(StandsBefore { line, since, .. })) => writeln!(
                text,
                "{} {what}: not yet, but it was there before the wait (since: {since} counts it): {}",
                one.named_pane(),
                plain::name(line)
            ),
            (false, _, None) => writeln!(text, "{} {what}: not yet", one.named_pane()),
        };
    }
    for host in &answer.unreachable {
        let error = host.error.as_deref().unwrap_or_default();
        let name = if host.name.is_empty() { "this host".to_owned() } else { format!("host {}", host.name) };
        push_row(&mut text, &format!("{name} does not take part, or its state is unknown: {error}"));
    }
    if let Some(screen) = &answer.screen {
        text.push_str("the screen ends:\n");
        push_quoted(&mut text, &plain::text(screen));
    }
    if let Some(cursor) = &answer.cursor {
        let _ = writeln!(text, "[cursor {cursor}]");
    }
    text
}
