//! Tasks (SEP-2663, the extension `io.modelcontextprotocol/tasks`): a client that announces the extension
//! gets a handle for a `wait_for` or `run` that takes longer than [`AT_ONCE`], and fetches the result.
//!
//! A task is a kept wait or a run under another name. Its id has all that is needed to find it again, so
//! nothing is kept here, and a task outlives its client.

use std::{
    collections::VecDeque,
    fmt,
    str::FromStr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use muxtap_api::{Error, ErrorCode, Result, Tier, WaitOutcome};
use muxtap_base::clock::{ago_ms, now_ms};
use muxtap_engine::{UNKNOWN_OUTCOME, limits::KEEP};
use rmcp::{
    ErrorData, RoleServer,
    model::{CallToolResult, DetailedTask, JsonObject, Task, TaskPayload, TaskStatus},
    service::RequestContext,
};
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{CallContext, Mcp, failed, form::Form, output::ToolOutput, refused, succeeded, tool_call::ToolCall, tools};

/// How long a call is held before it becomes a task: most commands end sooner, and their clients need
/// not ask again.
pub(super) const AT_ONCE: Duration = Duration::from_millis(500);
/// How long a request for a task's state is held. The end of a wait reaches its client at once, and an
/// hour takes few requests.
const GET_HOLD: Duration = Duration::from_secs(10);
/// The pause between two such requests that clients are advised to make.
const POLL_MS: u64 = 100;
/// How long a wait may last and its result is kept, in milliseconds. A run may last as long; when it has
/// ended, its result is kept for [`KEEP`].
const TTL_MS: u64 = 2 * 86_400_000;
/// The runs that timed out whose results a client can get again.
const TIMED_OUT: usize = 64;

/// The id of a task: the tool, its begin in milliseconds since 1970, the size of the result in
/// characters (0: the default), and the id of the wait or run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TaskId {
    tool: &'static str,
    begun_ms: u64,
    max_chars: usize,
    id: String,
}

impl TaskId {
    /// Returns whether the wait or run is on another host.
    fn is_elsewhere(&self) -> bool {
        self.id.contains('/')
    }

    /// Returns whether this is a wait of this daemon.
    fn is_wait_here(&self) -> bool {
        self.tool == "wait_for" && !self.is_elsewhere()
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}.{}", self.tool, self.begun_ms, self.max_chars, self.id)
    }
}

impl FromStr for TaskId {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Self, ()> {
        let mut parts = text.splitn(4, '.');
        let tool = tool(parts.next().unwrap_or_default()).ok_or(())?;
        let mut number = || parts.next().and_then(|number| number.parse().ok()).ok_or(());
        let (begun_ms, max_chars) = (number()?, number()?);
        let id = parts.next().filter(|id| !id.is_empty()).ok_or(())?.to_owned();
        Ok(Self { tool, begun_ms, max_chars: usize::try_from(max_chars).map_err(drop)?, id })
    }
}

/// Returns the tool of this name if its calls can become tasks.
fn tool(name: &str) -> Option<&'static str> {
    ["wait_for", "run"].into_iter().find(|one| *one == name)
}

/// The results of runs that timed out, which the engine of another host reports once: a task that has
/// ended stays so.
#[derive(Debug, Default)]
pub(super) struct TimedOut(Mutex<VecDeque<(String, CallToolResult)>>);

impl TimedOut {
    fn get(&self, task: &str) -> Option<CallToolResult> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|(id, _)| id == task).map(|(_, result)| result.clone())
    }

    fn add(&self, task: String, result: CallToolResult) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= TIMED_OUT {
            all.pop_front();
        }
        all.push_back((task, result));
    }
}

/// Returns whether a call may become a task: its client takes tasks, and has not asked for an id.
pub(super) fn may_become_task(context: &RequestContext<RoleServer>, name: &str, arguments: &JsonObject) -> bool {
    let announced = context.client_capabilities().is_some_and(|client| client.supports_tasks());
    announced && tool(name).is_some() && !arguments.contains_key("detach")
}

/// What a call's arguments say about its task.
pub(super) struct Asked {
    max_chars: usize,
    /// Whether the call continues a wait or a run: its task begins now.
    continues: bool,
}

impl Asked {
    pub(super) fn of(arguments: &JsonObject) -> Self {
        let max_chars = arguments.get("max_chars").and_then(Value::as_u64);
        let max_chars = max_chars.and_then(|chars| usize::try_from(chars).ok()).unwrap_or_default();
        Self { max_chars, continues: arguments.contains_key("id") }
    }

    /// Returns the task of a call that is not over. `None`: it is.
    pub(super) fn task(&self, name: &str, answer: &Value) -> Option<Task> {
        if !is_pending(answer) {
            return None;
        }
        let id = answer.get("id")?.as_str()?.to_owned();
        let begun_ms = ago_ms(if self.continues { 0 } else { duration_ms(answer) });
        Some(working(&TaskId { tool: tool(name)?, begun_ms, max_chars: self.max_chars, id }, answer))
    }
}

/// Returns a task that goes on.
fn working(id: &TaskId, answer: &Value) -> Task {
    let begun = iso(id.begun_ms);
    let task = Task::new(id.to_string(), TaskStatus::Working, begun.clone(), begun);
    task.with_ttl_ms(TTL_MS).with_poll_interval_ms(POLL_MS).with_status_message(progress(answer))
}

/// Returns what a person reads about a wait or a run that goes on. Text of a pane is not part of it.
fn progress(answer: &Value) -> String {
    match answer.get("predicates").and_then(Value::as_array) {
        Some(all) => {
            let latched = all.iter().filter(|one| one.get("latched") == Some(&Value::Bool(true))).count();
            format!("{latched} of {} satisfied", all.len())
        }
        None => "the command runs".to_owned(),
    }
}

/// Returns the duration of a wait or a run in milliseconds.
fn duration_ms(answer: &Value) -> u64 {
    let ms = answer.get("duration_ms").and_then(Value::as_f64).unwrap_or_default();
    Duration::try_from_secs_f64(ms / 1000.0).unwrap_or_default().as_millis() as u64
}

/// Formats a time in milliseconds since 1970.
fn iso(ms: u64) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000);
    time.ok().and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_else(|| "9999-12-31T23:59:59Z".to_owned())
}

fn unknown(task: &str) -> ErrorData {
    ErrorData::invalid_params(
        format!("unknown task {task:?}; a result is kept for 24 hours, a run's for 10 minutes"),
        None,
    )
}

/// Converts an error of a request about a task.
fn of_task(task: &str, error: &Error) -> ErrorData {
    if error.code == ErrorCode::NotFound { unknown(task) } else { refused(error) }
}

/// Returns whether the outcome of a task is unknown, because its daemon has ended.
fn is_lost(id: &TaskId, error: &Error) -> bool {
    let is_lost_run = id.tool == "run" && !id.is_elsewhere() && error.code == ErrorCode::TmuxUnavailable;
    is_lost_run || error.stage.as_deref() == Some(UNKNOWN_OUTCOME)
}

fn is_pending(answer: &Value) -> bool {
    answer.get("outcome").is_some_and(|outcome| outcome == "pending")
}

/// Returns how long the result of a task that has ended is kept, in milliseconds from its begin.
fn kept_ms(id: &TaskId, answer: &Value) -> u64 {
    if id.tool == "wait_for" {
        return TTL_MS;
    }
    let age = now_ms().saturating_sub(id.begun_ms);
    let lasted = Some(duration_ms(answer)).filter(|lasted| *lasted > 0).unwrap_or(age).min(age);
    lasted.saturating_add(KEEP.as_millis() as u64)
}

fn object(value: Value) -> JsonObject {
    if let Value::Object(object) = value { object } else { JsonObject::new() }
}

impl Mcp {
    /// Returns the state of a task, after waiting at most [`GET_HOLD`] for its end.
    ///
    /// Error: invalid parameters for an unknown task.
    pub(super) async fn task_state(
        &self,
        task: &str,
        context: &RequestContext<RoleServer>,
    ) -> std::result::Result<DetailedTask, ErrorData> {
        let id = self.known(task)?;
        let ended = |answer: &Value, payload: TaskPayload| {
            let mut task = working(&id, answer).with_ttl_ms(kept_ms(&id, answer));
            task.status_message = None;
            task.last_updated_at = iso(id.begun_ms.saturating_add(duration_ms(answer)).min(now_ms()));
            DetailedTask::new(task, payload)
        };
        let form = Form::of(context, self.form.get());
        let completed = |result: CallToolResult| {
            let result = serde_json::to_value(form.result(result)).unwrap_or_default();
            TaskPayload::Completed { result: object(result) }
        };
        if let Some(result) = self.timed_out.get(task) {
            return Ok(ended(&Value::Null, completed(result)));
        }
        if let Some(error) = self.reported_timeout(&id).map_err(|error| of_task(task, &error))? {
            return Ok(ended(&Value::Null, completed(failed(&error))));
        }
        let looked = tokio::select! {
            looked = self.look_at(&id, context) => looked,
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("the request was cancelled", None)),
        };
        // Only now is the end of a wait returned to anyone.
        if id.is_wait_here() && matches!(&looked, Ok(output) if !is_pending(&output.answer)) {
            let _ = self.engine.wait_result(&id.id, Some(0)).await;
        }
        match looked {
            Ok(output) => match output.answer.get("outcome").and_then(Value::as_str) {
                Some("pending") => Ok(DetailedTask::new(working(&id, &output.answer), TaskPayload::Working)),
                Some("cancelled") => Ok(ended(&output.answer, TaskPayload::Cancelled)),
                _ => Ok(ended(&output.answer.clone(), completed(succeeded(output)))),
            },
            Err(error) if is_lost(&id, &error) => {
                let error = serde_json::to_value(refused(&error)).unwrap_or_default();
                Ok(ended(&Value::Null, TaskPayload::Failed { error: object(error) }))
            }
            Err(error) if error.code == ErrorCode::NotFound => Err(unknown(task)),
            // A wait ends with an outcome, not with an error; an unreachable host does not end it.
            Err(error) if id.tool == "wait_for" || id.is_elsewhere() && error.code == ErrorCode::TmuxUnavailable => {
                Err(refused(&error))
            }
            Err(error) => {
                let result = failed(&error);
                if id.tool == "run" && error.code == ErrorCode::Timeout {
                    self.timed_out.add(task.to_owned(), result.clone());
                }
                Ok(ended(&Value::Null, completed(result)))
            }
        }
    }

    /// Parses the id of a task whose tool was offered.
    fn known(&self, task: &str) -> std::result::Result<TaskId, ErrorData> {
        let id: TaskId = task.parse().map_err(|()| unknown(task))?;
        if tools::find(&self.client.tools, id.tool).is_some() { Ok(id) } else { Err(unknown(task)) }
    }

    /// Returns the timeout with which the run of a task has ended, whichever client got it first.
    ///
    /// Error: `NOT_FOUND` for an unknown run.
    fn reported_timeout(&self, id: &TaskId) -> Result<Option<Error>> {
        if id.tool != "run" || id.is_elsewhere() {
            return Ok(None);
        }
        let chars = tools::limit((id.max_chars > 0).then_some(id.max_chars));
        let reported = self.engine.reported_timeout(&id.id, id.begun_ms, chars)?;
        Ok(reported.map(|error| tools::timed_out(error, &id.id)))
    }

    /// Calls a task's tool with the id of its wait or run, as a client without tasks does.
    async fn look_at(&self, id: &TaskId, context: &RequestContext<RoleServer>) -> Result<ToolOutput> {
        // With an id of its own the wait does not end with this request.
        let mut call = CallContext { wait_id: Some(id.id.clone()), hold: Some(GET_HOLD), ..self.call_context(context) };
        if id.is_wait_here() {
            // The look may outlive its client: it does not count as an answer.
            call.engine = call.engine.reading_only();
        }
        let mut arguments = object(json!({ "id": id.id }));
        if id.max_chars > 0 {
            arguments.insert("max_chars".to_owned(), id.max_chars.into());
        }
        // Of its own: a look at another host that is dropped would end the wait there.
        let tool = id.tool;
        let look = tokio::spawn(async move { tools::call(&call, tool, arguments).await });
        let looked = look.await.map_err(|error| Error::internal(error.to_string()))?;
        looked.ok_or_else(|| Error::not_found("no such tool"))?
    }

    /// Cancels the wait of a task. The command of a run continues, as when its call is cancelled.
    pub(super) async fn cancel(
        &self,
        task: &str,
        context: &RequestContext<RoleServer>,
    ) -> std::result::Result<(), ErrorData> {
        let id = self.known(task)?;
        let cancelled = if id.tool == "run" {
            self.reported_timeout(&id).map(drop)
        } else {
            self.cancel_wait(id.id, &self.call_context(context)).await
        };
        cancelled.map_err(|error| of_task(task, &error))
    }

    async fn cancel_wait(&self, id: String, call: &CallContext) -> Result<()> {
        let parsed = ToolCall::parse("wait_for", object(json!({ "id": id })));
        let mut asked = parsed.ok_or_else(|| Error::not_found("no such tool"))??;
        let host = asked.place(call)?;
        let id = asked.resumed_id().unwrap_or_default();
        let peer = host.and_then(|host| call.rooms.peers.of(&call.engine, &host, Tier::Read));
        if let Some(peer) = peer {
            call.engine.authorize(muxtap_api::Tier::Read)?;
            peer.cancel_wait(id);
            return Ok(());
        }
        if let Some(several) = call.rooms.peers.several(id) {
            return call.rooms.peers.cancel_several(&call.engine, &several).await.map(drop);
        }
        // The response has no result, so neither counts as an answer.
        call.engine.abandon_wait(id);
        let left = call.engine.reading_only().wait_result(id, Some(0)).await?;
        if left.outcome != WaitOutcome::Pending {
            return Ok(());
        }
        // Another caller's wait.
        call.engine.cancel_wait(id).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tasks_id_says_what_it_is() {
        for text in ["wait_for.1795263374000.0.w-1f", "run.0.4000.r1", "wait_for.1.0.box.example/w-1.2.3"] {
            assert_eq!(text.parse::<TaskId>().unwrap().to_string(), text);
        }
        for text in ["", "wait_for", "kill.1.0.w", "run.x.0.r", "run.1.0.", "run.1.r", "run.-1.0.r", "run.1.9e9.r"] {
            assert!(text.parse::<TaskId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_run_that_ended_with_its_daemon_has_failed() {
        let stopped = Error::unavailable("muxtap is stopping; a command that was typed continues");
        let is_lost = |task: &str, error: &Error| is_lost(&task.parse().unwrap(), error);
        assert!(is_lost("run.1.0.r1", &stopped));
        assert!(!is_lost("run.1.0.box/r1", &stopped), "an unreachable host does not end it");
        assert!(!is_lost("wait_for.1.0.w", &stopped));
        assert!(is_lost("wait_for.1.0.w", &Error::not_found("unknown").at_stage(UNKNOWN_OUTCOME)));
        assert!(!is_lost("run.1.0.r1", &Error::new(ErrorCode::Timeout, "late")));
    }

    #[test]
    fn a_result_is_kept_as_its_wait_or_run_is() {
        let kept = |task: &str, answer: Value| kept_ms(&task.parse().unwrap(), &answer);
        assert_eq!(kept("wait_for.1.0.w", json!({"duration_ms": 5.0})), TTL_MS);
        assert_eq!(kept("run.1.0.r1", json!({"duration_ms": 5000.0})), 605_000);
        let ahead = now_ms() + 3_600_000;
        assert_eq!(kept(&format!("run.{ahead}.0.r1"), json!({"duration_ms": 5000.0})), 600_000);
    }

    #[test]
    fn times_are_those_of_the_protocol() {
        assert_eq!(iso(1_795_263_374_500), "2026-11-21T12:16:14.5Z");
        assert_eq!(iso(u64::MAX), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn few_results_of_timed_out_runs_are_kept() {
        let kept = TimedOut::default();
        for number in 0..=TIMED_OUT {
            kept.add(number.to_string(), CallToolResult::success(Vec::new()));
        }
        assert!(kept.get("0").is_none() && kept.get("1").is_some() && kept.get(&TIMED_OUT.to_string()).is_some());
    }
}
