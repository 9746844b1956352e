//! Runs that outlive the call that requested them: each is watched to its end, under an id.
//!
//! A caller's timeout and the run's own end only the caller's wait. The command's output stays in
//! its pane's stream; a run stores only its place there.

use std::{
    collections::{HashMap, VecDeque, hash_map::RandomState},
    hash::BuildHasher as _,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use muxtap_api::{Cursor, Error, ErrorCode, Operation, Result, RunRequest, Tier};
use muxtap_base::clock::now_ms;
use muxtap_core::{
    protocol::ids::PaneId,
    stream::render::{self, TextHead},
};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::run::{StartedRun, run_deadline};

use crate::{Engine, PaneState, Server, deadline::Deadline, limits};

/// The runs whose end can be requested.
#[derive(Default)]
pub struct Runs {
    known: Mutex<Known>,
    next: AtomicU64,
    secret: RandomState,
}

#[derive(Default)]
struct Known {
    all: HashMap<String, Arc<WatchedRun>>,
    /// The ended runs, in the order of their ends.
    ended: VecDeque<(Instant, String)>,
}

/// A run under its id.
struct WatchedRun {
    phase: watch::Sender<Phase>,
    deadline: Deadline,
    /// When a caller was answered that the timeout has expired, which is reported once, in milliseconds
    /// since 1970, and the message.
    timed_out: OnceLock<(u64, String)>,
    /// Cancelled when its only caller has left.
    unwanted: CancellationToken,
}

/// The phase of a run.
#[derive(Clone)]
enum Phase {
    /// The command is not typed yet.
    Begins,
    Runs(Arc<StartedRun>),
    Ended(Arc<EndedRun>),
}

/// The remains of an ended run.
struct EndedRun {
    pane: Weak<PaneState>,
    /// The place of the output in the pane's stream.
    extent: Option<(u64, u64, bool)>,
    result: std::result::Result<RunEndReport, Error>,
}

/// The end of a command.
#[derive(Clone, Copy)]
struct RunEndReport {
    pane: PaneId,
    exit_status: Option<i32>,
    duration_ms: u64,
    cursor: Cursor,
    shell_ended: bool,
}

/// A run's state and its output: the beginning and the end of it, if it is longer than requested.
#[derive(Clone, Debug, Default)]
pub struct RunReport {
    /// Whether the command continues.
    pub pending: bool,
    /// The pane; `None` before the command was typed.
    pub pane: Option<PaneId>,
    /// The output so far.
    pub text: RunText,
    /// The exit status; `None` if it is unknown, or not known yet.
    pub exit_status: Option<i32>,
    /// Time since the command was typed, in milliseconds.
    pub duration_ms: u64,
    /// Whether the shell ended with the command.
    pub shell_ended: bool,
}

/// A command's output, from its beginning.
#[derive(Clone, Debug, Default)]
pub struct RunText {
    /// The text, from the beginning.
    pub output: String,
    /// Where `output` ends: a read from this cursor returns the rest.
    pub cursor: Option<Cursor>,
    /// The last lines, if `output` is not complete.
    pub tail: Option<String>,
    /// The number of characters between `output` and `tail`.
    pub cut: usize,
    /// Whether the beginning was dropped.
    pub truncated: bool,
}

/// A run whose id its caller does not have yet. Dropping the guard ends the watch; a command that
/// was typed continues.
pub struct RunGuard {
    engine: Engine,
    id: Option<String>,
}

impl RunGuard {
    /// Returns the id of the run, for later requests.
    pub fn id(&self) -> &str {
        self.id.as_deref().unwrap_or_default()
    }

    /// Returns the run's state for the caller that began it, after waiting at most `hold` for its end:
    /// the tier of the run itself includes its result.
    ///
    /// Error: as [`Engine::run_result`].
    pub async fn result(&self, hold: Duration, chars: usize) -> Result<RunReport> {
        self.engine.run_report(self.id(), hold, chars).await
    }

    /// Leaves the run to all callers that have its id.
    pub fn release(mut self) {
        self.id = None;
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        if let Some(run) = self.engine.shared.runs.known().all.remove(&id) {
            run.unwanted.cancel();
        }
    }
}

impl Runs {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an id that cannot be guessed: a run's result contains its pane's output.
    fn new_id(&self) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        format!("r{number}-{:012x}", self.secret.hash_one(number) >> 16)
    }

    /// Drops runs that ended more than [`limits::KEEP`] ago. Returns when the next one is due.
    pub(crate) fn drop_expired(&self, now: Instant) -> Option<Instant> {
        let mut known = self.known();
        while known.ended.front().is_some_and(|(at, _)| *at + limits::KEEP <= now) {
            known.drop_first();
        }
        known.ended.front().map(|(at, _)| *at + limits::KEEP)
    }

    fn add(&self, run: Arc<WatchedRun>) -> Result<String> {
        let id = self.new_id();
        let mut known = self.known();
        while known.all.len() >= limits::RUNS {
            if !known.drop_first() {
                let message = format!("{} commands started by `run` are running, which is the limit", limits::RUNS);
                return Err(Error::new(ErrorCode::ResourceLimit, message));
            }
        }
        known.all.insert(id.clone(), run);
        Ok(id)
    }

    fn get(&self, id: &str) -> Result<Arc<WatchedRun>> {
        self.known().all.get(id).cloned().ok_or_else(|| {
            Error::not_found(format!("no run {id}; a result is kept for {} minutes", limits::KEEP.as_secs() / 60))
        })
    }
}

impl Known {
    /// Drops the run that ended first. Returns whether there was one.
    fn drop_first(&mut self) -> bool {
        let Some((_, id)) = self.ended.pop_front() else { return false };
        self.all.remove(&id);
        true
    }
}

impl Server {
    /// Begins a run that is watched even after its caller has left.
    pub fn begin_run(&self, target: &str, request: &RunRequest) -> Result<RunGuard> {
        let deadline = run_deadline(request)?;
        let unwanted = CancellationToken::new();
        let run = Arc::new(WatchedRun {
            phase: watch::Sender::new(Phase::Begins),
            deadline,
            timed_out: OnceLock::new(),
            unwanted: unwanted.clone(),
        });
        let shared = self.engine.shared.clone();
        let id = shared.runs.add(run.clone())?;
        let (server, target, request, known_as) = (self.clone(), target.to_owned(), request.clone(), id.clone());
        shared.tasks.spawn(async move {
            let ended = tokio::select! {
                ended = server.watch_run(&target, &request, &run) => ended,
                () = unwanted.cancelled() => return,
                () = server.engine.stopping() => EndedRun {
                    pane: Weak::new(),
                    extent: None,
                    result: Err(Error::unavailable("muxtap is stopping; a command that was typed continues")),
                },
            };
            // The pane is released before any caller learns of the end.
            run.phase.send_modify(|phase| *phase = Phase::Ended(Arc::new(ended)));
            let shared = &server.engine.shared;
            shared.runs.known().ended.push_back((Instant::now(), known_as));
            shared.retired.notify_one();
        });
        Ok(RunGuard { engine: self.engine.clone(), id: Some(id) })
    }

    /// Types the command and watches it to its end.
    async fn watch_run(&self, target: &str, request: &RunRequest, run: &WatchedRun) -> EndedRun {
        let started = async {
            let audit = self.engine.audit(Operation::Run, &self.host, target)?;
            let audit = audit.input(|| request.command.as_bytes().to_vec());
            let started = self.start_run(target, request, run.deadline, &audit).await;
            audit.finish(started)
        };
        let started = match started.await {
            Ok(started) => Arc::new(started),
            Err(error) => return EndedRun { pane: Weak::new(), extent: None, result: Err(error) },
        };
        run.phase.send_replace(Phase::Runs(started.clone()));
        let mut over = pin!(started.until_end(self));
        let in_time = tokio::time::timeout_at(run.deadline.at(), &mut over).await;
        let end = if let Ok(end) = in_time {
            end
        } else {
            started.release();
            over.await
        };
        let result = started.answer(end).await.map(|answer| RunEndReport {
            pane: answer.pane,
            exit_status: answer.exit_status,
            duration_ms: answer.duration_ms,
            cursor: answer.cursor,
            shell_ended: answer.shell_ended,
        });
        let result = result.map_err(without_output);
        EndedRun { pane: Arc::downgrade(started.pane()), extent: started.extent(), result }
    }
}

impl Engine {
    /// Returns a run's state, after waiting at most `hold` for its end.
    ///
    /// Error: `TIMEOUT`, once, when the run's own timeout expires; the run is still watched.
    pub async fn run_result(&self, id: &str, hold: Duration, chars: usize) -> Result<RunReport> {
        self.authorize(Tier::Read)?;
        self.run_report(id, hold, chars).await
    }

    /// Returns a run's state to a caller that may have it.
    async fn run_report(&self, id: &str, hold: Duration, chars: usize) -> Result<RunReport> {
        let run = self.shared.runs.get(id)?;
        let mut phase = run.phase.subscribe();
        let own = run.deadline.remaining();
        let until = if run.timed_out.get().is_some() { hold } else { hold.min(own) };
        // This timeout is not a failure.
        let _ = tokio::time::timeout(until, phase.wait_for(|phase| matches!(phase, Phase::Ended(_)))).await;
        let mut now = phase.borrow_and_update().clone();
        if matches!(now, Phase::Begins) && own <= hold {
            // The run's beginning has its own limit, and reports the outcome of the command.
            let begun = phase.wait_for(|phase| !matches!(phase, Phase::Begins));
            now = begun.await.map(|phase| phase.clone()).unwrap_or(now);
        }
        match now {
            Phase::Begins => Ok(RunReport { pending: true, ..RunReport::default() }),
            Phase::Runs(started) => {
                let text = text_of(started.pane(), started.extent(), chars);
                if run.deadline.remaining().is_zero() && run.timed_out.get().is_none() {
                    let waits = started.what_waits(text.tail.as_deref().unwrap_or(&text.output)).await;
                    let message = format!(
                        "the command did not end within {} ms; it continues in pane {}{waits}",
                        run.deadline.given().as_millis(),
                        started.pane().id()
                    );
                    // Another caller may have been answered meanwhile.
                    if run.timed_out.set((now_ms(), message.clone())).is_ok() {
                        return Err(timeout(id, message, text));
                    }
                }
                Ok(RunReport {
                    pending: true,
                    pane: Some(started.pane().id()),
                    text,
                    duration_ms: u64::try_from(started.age().as_millis()).unwrap_or(u64::MAX),
                    ..RunReport::default()
                })
            }
            Phase::Ended(ended) => ended.report(chars),
        }
    }

    /// Returns the error with which a run's timeout was reported, with the output so far. `None`: it was
    /// not reported after `begun_ms` (in milliseconds since 1970).
    ///
    /// Error: `NOT_FOUND`.
    pub fn reported_timeout(&self, id: &str, begun_ms: u64, chars: usize) -> Result<Option<Error>> {
        self.authorize(Tier::Read)?;
        let run = self.shared.runs.get(id)?;
        let Some((_, message)) = run.timed_out.get().filter(|(at, _)| *at >= begun_ms) else { return Ok(None) };
        let now = run.phase.borrow().clone();
        let text = match now {
            Phase::Begins => None,
            Phase::Runs(started) => Some(text_of(started.pane(), started.extent(), chars)),
            Phase::Ended(ended) => ended.pane.upgrade().map(|pane| text_of(&pane, ended.extent, chars)),
        };
        Ok(Some(timeout(id, message.clone(), text.unwrap_or_default())))
    }
}

impl EndedRun {
    fn report(&self, chars: usize) -> Result<RunReport> {
        let pane = self.pane.upgrade();
        let report = match (&self.result, &pane) {
            (Ok(report), _) => report,
            (Err(error), Some(pane)) if self.extent.is_some() => {
                return Err(with_text(error.clone(), text_of(pane, self.extent, chars)));
            }
            (Err(error), _) => return Err(error.clone()),
        };
        let text = match pane {
            Some(pane) => text_of(&pane, self.extent, chars),
            // The pane and its output no longer exist.
            None => RunText { cursor: Some(report.cursor), truncated: true, ..RunText::default() },
        };
        Ok(RunReport {
            pending: false,
            pane: Some(report.pane),
            text,
            exit_status: report.exit_status,
            duration_ms: report.duration_ms,
            shell_ended: report.shell_ended,
        })
    }
}

/// Builds the error of a run whose timeout has expired.
fn timeout(id: &str, message: String, text: RunText) -> Error {
    let mut error = Error::new(ErrorCode::Timeout, message);
    error.details = Some(serde_json::json!({ "id": id }));
    with_text(error, text).at_stage("running")
}

/// Adds the command's output to an error.
fn with_text(mut error: Error, text: RunText) -> Error {
    let details = error.details.get_or_insert_with(|| serde_json::json!({}));
    if let Some(details) = details.as_object_mut() {
        details.insert("output".into(), text.output.into());
        details.insert("tail".into(), text.tail.into());
        details.insert("cut".into(), text.cut.into());
        details.insert("cursor".into(), text.cursor.map(|cursor| cursor.to_string()).into());
    }
    error
}

/// Removes the whole output from an error: it may be a megabyte, and stays in the pane's stream.
fn without_output(mut error: Error) -> Error {
    if let Some(details) = error.details.as_mut().and_then(serde_json::Value::as_object_mut) {
        details.remove("output");
    }
    error
}

/// Returns the output of an extent in at most `chars` characters: a quarter of them from its
/// beginning, the rest from its end.
fn text_of(pane: &PaneState, extent: Option<(u64, u64, bool)>, chars: usize) -> RunText {
    let Some((from, end, dropped)) = extent else { return RunText::default() };
    let locked = pane.lock();
    let begin = from.max(locked.ring().start());
    let end = end.max(begin);
    let truncated = dropped || begin > from;
    let redrawable = if truncated { None } else { locked.redrawable(begin, end) };
    drop(locked);
    match redrawable.and_then(|output| output.text()) {
        Some(text) => redrawn_text(&text, pane.cursor(end), chars),
        None => text_as_printed(pane, begin, end, truncated, chars),
    }
}

/// Returns the text that output which rewrites its own lines has left, in at most `chars` characters. What is cut can
/// only be read as it was printed.
fn redrawn_text(text: &str, cursor: Cursor, chars: usize) -> RunText {
    let count = text.chars().count();
    let all = RunText { output: text.to_owned(), cursor: Some(cursor), tail: None, cut: 0, truncated: false };
    if count <= chars {
        return all;
    }
    let most = text.char_indices().nth(chars / 4).map_or(text.len(), |(at, _)| at);
    let head = text.get(..most).unwrap_or_default();
    let head = head.rfind('\n').map_or(head, |at| head.get(..=at).unwrap_or_default());
    let rest = text.get(head.len()..).unwrap_or_default();
    let (tail, cut) = render::text_end(rest, chars - chars / 4);
    RunText { output: head.to_owned(), tail: Some(tail.to_owned()), cut, ..all }
}

/// Returns output as it was printed, in at most `chars` characters.
fn text_as_printed(pane: &PaneState, begin: u64, end: u64, truncated: bool, chars: usize) -> RunText {
    let locked = pane.lock();
    let begin = begin.max(locked.ring().start());
    let head = |chars| {
        let mut head = TextHead::new(chars);
        locked.ring().decode_from(begin, end, &mut head);
        head.finish()
    };
    let (output, rest) = head(chars);
    let Some(_) = rest else {
        return RunText { output, cursor: Some(pane.cursor(end)), tail: None, cut: 0, truncated };
    };
    let (output, rest) = head(chars / 4);
    // A line that was too long for its cells can only be returned from its beginning.
    let rest = rest.filter(|rest| *rest > begin).unwrap_or(end);
    let remaining = render::render_text(locked.ring(), rest, end);
    drop(locked);
    let (tail, cut) = render::text_end(&remaining, chars - chars / 4);
    RunText { output, cursor: Some(pane.cursor(rest)), tail: Some(tail.to_owned()), cut, truncated }
}
