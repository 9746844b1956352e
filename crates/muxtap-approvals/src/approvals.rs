//! Asks a human who runs `muxtap approvals` in a terminal.
//!
//! Open questions are kept in the daemon's memory: the asking tasks run in the daemon too, so no
//! question outlives its asker. Invariants:
//! - A1: every change is made under one lock, so a question gets one answer; a second one is
//!   refused.
//! - A2: dropping an asker removes its question.
//! - A3: at the deadline the asker removes the question and reads its answer in one step; so if a
//!   human was shown `approved`, the question was approved.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use muxtap_base::nonce;
use muxtap_engine::{Engine, Lineage, ProcessId};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use tokio::{sync::watch, time::Instant};
use utoipa::ToSchema;

use super::{Confirm, Decision, Question, Request};

use muxtap_api::{Error, ErrorCode, Result};

use crate::{
    consent::{PROMPT_CHARS, cut, title, visible},
    store::{iso, now},
};

/// The error text if no terminal watches for questions.
const NOT_WATCHED: &str = "Error: spawn needs a human's approval, and no human watches for questions: let a human run \
    `muxtap approvals --watch`";

/// A question that waits for a human's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenQuestion {
    /// The question's id: six hexadecimal digits.
    pub id: String,
    /// The kind: a spawn of a `session` or a `window`, or an agent session's `permission`.
    pub kind: String,
    /// The name of the session or window; for a permission, the agent's own title. It is never shown
    /// alone.
    pub name: String,
    /// Who asks, as muxtap knows it.
    #[serde(default)]
    pub asked_by: String,
    /// The prompt for Claude; for a permission, what will happen (`detail` of the question) and what
    /// yes and no mean.
    pub prompt: String,
    /// The working directory of Claude or of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// The session that gets a window, or the agent session that asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The time at which the question was asked, ISO 8601.
    pub asked_at: String,
    /// The time at which the question lapses, ISO 8601.
    pub until: String,
    /// The id of the asking process.
    pub pid: u32,
}

impl OpenQuestion {
    /// The kind of an agent session's permission question.
    pub const PERMISSION: &str = "permission";
}

/// The open questions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApprovalList {
    /// The questions, oldest first.
    pub approvals: Vec<OpenQuestion>,
}

/// A human's answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalAnswer {
    /// Yes or no.
    pub answer: Verdict,
}

/// The answers that a human can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Yes.
    Approved,
    /// No.
    Denied,
}

/// The open questions of a daemon. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Approvals {
    state: Arc<watch::Sender<State>>,
}

/// Answers a question that is also asked elsewhere: the answer is recorded only there.
type AnswerThere = Arc<dyn Fn(&Engine, Verdict, Option<&Lineage>) -> Result<()> + Send + Sync>;

#[derive(Default)]
struct State {
    /// The questions and their answers, oldest first.
    asked: Vec<(OpenQuestion, Option<Verdict>)>,
    /// The functions that answer questions which are also asked elsewhere.
    elsewhere: BTreeMap<String, AnswerThere>,
    /// The processes that count as each question's asker, if known.
    askers: BTreeMap<String, Vec<ProcessId>>,
    /// The number of watching terminals.
    watchers: usize,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("asked", &self.asked).field("watchers", &self.watchers).finish_non_exhaustive()
    }
}

impl State {
    fn answer(&self, id: &str) -> Option<Verdict> {
        self.asked.iter().find(|(question, _)| question.id == id).and_then(|(_, answer)| *answer)
    }
}

/// An asked question. Dropping it removes the question.
#[derive(Debug)]
pub struct AskedQuestion {
    approvals: Approvals,
    id: String,
}

/// A watching terminal, until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    approvals: Approvals,
    changes: watch::Receiver<State>,
}

impl Approvals {
    /// Returns the open questions.
    pub fn open_questions(&self) -> ApprovalList {
        let state = self.state.borrow();
        let open = state.asked.iter().filter(|(_, answer)| answer.is_none());
        ApprovalList { approvals: open.map(|(question, _)| question.clone()).collect() }
    }

    /// Answers a question; if this succeeds, the asker acts on the answer. Errors: `NOT_FOUND`,
    /// `CONFLICT` if it was answered already.
    pub fn answer(&self, id: &str, word: Verdict) -> Result<()> {
        let mut outcome = Err(unknown(id));
        self.state.send_if_modified(|state| {
            let Some((_, answer)) = state.asked.iter_mut().find(|(question, _)| question.id == id) else {
                return false;
            };
            if answer.is_some() {
                let message = format!("question {id} has been answered already");
                outcome = Err(Error::new(ErrorCode::Conflict, message));
                return false;
            }
            *answer = Some(word);
            outcome = Ok(());
            true
        });
        outcome
    }

    /// Answers a question for a caller, here ([`Approvals::answer`]) or where else it is asked.
    /// Records the answer in the audit log.
    ///
    /// `answerer`: the answering process, if it is a known process of this machine. Errors: those
    /// of the function that answers, and `UNAUTHORIZED` if the answerer is the asker.
    pub fn answer_by(&self, engine: &Engine, id: &str, word: Verdict, answerer: Option<&Lineage>) -> Result<()> {
        // The other function removes the question here too, so the lock is released first.
        let (there, asker, name) = {
            let state = self.state.borrow();
            let name = state.asked.iter().find(|(question, _)| question.id == id);
            let name = name.map(|(question, _)| format!("{id} {} {}", question.kind, question.name));
            (state.elsewhere.get(id).cloned(), state.askers.get(id).cloned(), name)
        };
        let answered = match (there, asker) {
            (_, Some(asker)) if answerer.is_some_and(|answerer| answerer.descends_from(&asker)) => {
                Err(own_question(id, &asker))
            }
            (Some(answer), _) => answer(engine, word, answerer),
            (None, _) if answerer.is_some_and(Lineage::is_agents) => Err(Error::new(
                ErrorCode::Unauthorized,
                format!("this answer to question {id} comes from a process that an agent of this muxtap started"),
            )),
            (None, _) => self.answer(id, word),
        };
        let result = match &answered {
            Ok(()) => {
                let verdict = if word == Verdict::Approved { "approved" } else { "denied" };
                let who = if answerer.is_some() { "the process is known" } else { "the process is not known" };
                format!("{verdict}: {who}")
            }
            Err(error) => error.code.as_str().to_owned(),
        };
        engine.record_about("approval", name.as_deref().unwrap_or(id), &result);
        answered
    }

    /// Shows a question that is asked elsewhere, until the returned value is dropped. `question`
    /// builds it from its id.
    pub fn show(&self, question: impl Fn(String) -> OpenQuestion, answer: &AnswerThere) -> AskedQuestion {
        let mut id = new_id();
        self.state.send_modify(|state| {
            while state.asked.iter().any(|(question, _)| question.id == id) {
                id = new_id();
            }
            state.elsewhere.insert(id.clone(), answer.clone());
            state.asked.push((question(id.clone()), None));
        });
        AskedQuestion { approvals: self.clone(), id }
    }

    /// Starts to watch for questions.
    pub fn watch(&self) -> Watcher {
        self.state.send_modify(|state| state.watchers += 1);
        let mut changes = self.state.subscribe();
        // The terminal has not seen the first list yet.
        changes.mark_changed();
        Watcher { approvals: self.clone(), changes }
    }

    /// Returns whether any terminal watches.
    pub fn is_watched(&self) -> bool {
        self.state.borrow().watchers > 0
    }

    /// Asks a question. `until`: the time at which it lapses, ISO 8601.
    fn ask(&self, request: &Request, asker: Option<&Lineage>, until: String) -> AskedQuestion {
        let mut id = new_id();
        let asked_by = asked_by(asker);
        let asker = asker.map(Lineage::asker);
        self.state.send_modify(|state| {
            while state.asked.iter().any(|(question, _)| question.id == id) {
                id = new_id();
            }
            let question = OpenQuestion {
                id: id.clone(),
                kind: request.kind().into(),
                name: title(&request.name),
                asked_by: asked_by.clone(),
                prompt: cut(&visible(&request.prompt), PROMPT_CHARS),
                working_dir: request.directory.clone(),
                session: request.session.clone(),
                asked_at: now(),
                until,
                pid: std::process::id(),
            };
            state.asked.push((question, None));
            state.askers.extend(asker.map(|asker| (id.clone(), asker)));
        });
        AskedQuestion { approvals: self.clone(), id }
    }
}

/// Returns who asks, as the system knows it: a process and its program.
pub(crate) fn asked_by(asker: Option<&Lineage>) -> String {
    let process = asker.and_then(|asker| asker.asker().first().map(|process| process.pid));
    process.map_or_else(|| "an unknown process".into(), process_shown)
}

/// Returns a process and its program, as the system knows them.
pub fn process_shown(process: u32) -> String {
    // A process chooses its own name, but neither the path of its program nor its parents.
    let program = |process: u32| std::fs::read_link(format!("/proc/{process}/exe")).ok();
    let mut shown = match program(process) {
        Some(program) => format!("process {process} ({})", title(&program.display().to_string())),
        None => format!("process {process}"),
    };
    let mut child = process;
    for _ in 0..PARENTS {
        let Some(parent) = parent_of(child).filter(|parent| *parent > 1) else { break };
        let Some(program) = program(parent) else { break };
        let name = program.file_name().unwrap_or_default().display().to_string();
        // Writing to a String cannot fail.
        let _ = write!(shown, ", started by {} ({parent})", title(&name));
        child = parent;
    }
    shown
}

/// The number of a process's ancestors that are shown.
const PARENTS: usize = 3;

/// Returns a process's parent, where the system knows it.
fn parent_of(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The program's name, in parentheses, may contain anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the error for an asker that answers its own question.
pub(crate) fn own_question(id: &str, asker: &[ProcessId]) -> Error {
    let pid = asker.first().map_or(0, |one| one.pid);
    let message = format!(
        "question {id} was asked by process {pid}, and this answer comes from the same process, or from the same pane: \
         a person must answer it in another pane or terminal, or on the page"
    );
    Error::new(ErrorCode::Unauthorized, message)
}

/// Returns the error for a question that is not open.
pub fn unknown(id: &str) -> Error {
    Error::not_found(format!("no open question {id}; `muxtap approvals` lists the open ones"))
}

impl Watcher {
    /// Returns the open questions each time they may have changed; the first call returns
    /// immediately.
    pub async fn next(&mut self) -> ApprovalList {
        // The sender lives as long as `self`.
        let _ = self.changes.changed().await;
        self.approvals.open_questions()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.approvals.state.send_modify(|state| state.watchers -= 1);
    }
}

impl AskedQuestion {
    /// Resolves when the question is answered.
    async fn answered(&self) {
        let mut changes = self.approvals.state.subscribe();
        // The sender lives as long as `self`.
        let _ = changes.wait_for(|state| state.answer(&self.id).is_some()).await;
    }

    /// Removes the question and returns its answer, if any. It cannot be answered afterwards (A3).
    fn close(&self) -> Option<Verdict> {
        let mut answer = None;
        self.approvals.state.send_if_modified(|state| {
            answer = state.answer(&self.id);
            let before = state.asked.len();
            state.asked.retain(|(question, _)| question.id != self.id);
            state.elsewhere.remove(&self.id);
            state.askers.remove(&self.id);
            state.asked.len() < before
        });
        answer
    }
}

impl Drop for AskedQuestion {
    fn drop(&mut self) {
        self.close();
    }
}

/// Asks by questions that `muxtap approvals` lists.
pub struct Terminal {
    approvals: Approvals,
    /// Whether to ask even if no terminal watches: a human may look later.
    always: bool,
}

impl Terminal {
    /// Creates a way to ask among these questions. `always`: asks even if no terminal watches;
    /// otherwise the result is [`Decision::Unavailable`].
    pub fn new(approvals: Approvals, always: bool) -> Self {
        Self { approvals, always }
    }
}

impl Confirm for Terminal {
    fn ask(self: Arc<Self>, question: Question) -> BoxFuture<'static, Decision> {
        Box::pin(async move {
            if !self.always && !self.approvals.is_watched() {
                return Decision::Unavailable(NOT_WATCHED.into());
            }
            let until = iso_in(question.deadline.saturating_duration_since(Instant::now()));
            let asked = self.approvals.ask(&question.request, question.asker.as_ref(), until);
            tokio::select! {
                biased;
                () = question.over() => {}
                () = asked.answered() => {}
            }
            // Checked also after the deadline or a withdrawal: a human may have answered a moment
            // earlier.
            match asked.close() {
                Some(Verdict::Approved) => Decision::Approved,
                Some(Verdict::Denied) | None => Decision::Denied,
            }
        })
    }
}

/// Returns the time after this duration from now, ISO 8601 in UTC.
pub fn iso_in(after: Duration) -> String {
    let now = OffsetDateTime::now_utc();
    let then = time::Duration::try_from(after).ok().and_then(|after| now.checked_add(after));
    iso(then.unwrap_or(now))
}

fn new_id() -> String {
    format!("{:06x}", nonce::number() & 0x00ff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request { name: "n".into(), prompt: "p".into(), directory: None, session: None }
    }

    #[test]
    fn a_question_is_answered_once() {
        let approvals = Approvals::default();
        assert!(approvals.open_questions().approvals.is_empty());
        let asked = approvals.ask(&request(), None, "later".into());
        let open = approvals.open_questions().approvals;
        assert_eq!((open.len(), &open[0].id, open[0].kind.as_str()), (1, &asked.id, "session"));
        approvals.answer(&asked.id, Verdict::Denied).unwrap();
        assert_eq!(approvals.answer(&asked.id, Verdict::Approved).unwrap_err().code, ErrorCode::Conflict);
        assert!(approvals.open_questions().approvals.is_empty());
        assert_eq!(asked.close(), Some(Verdict::Denied));
        assert_eq!(approvals.answer(&asked.id, Verdict::Approved).unwrap_err().code, ErrorCode::NotFound);
    }

    #[test]
    fn a_question_goes_with_its_asker() {
        let approvals = Approvals::default();
        let asked = approvals.ask(&request(), None, String::new());
        let id = asked.id.clone();
        drop(asked);
        assert!(approvals.open_questions().approvals.is_empty());
        assert_eq!(approvals.answer(&id, Verdict::Approved).unwrap_err().code, ErrorCode::NotFound);
    }

    #[tokio::test]
    async fn whoever_watches_is_seen_while_they_do_and_sees_each_question() {
        let approvals = Approvals::default();
        assert!(!approvals.is_watched());
        let (mut one, other) = (approvals.watch(), approvals.watch());
        drop(other);
        assert!(approvals.is_watched());
        assert!(one.next().await.approvals.is_empty());
        let asked = approvals.ask(&request(), None, String::new());
        assert_eq!(one.next().await.approvals[0].id, asked.id);
        drop(one);
        assert!(!approvals.is_watched());
    }

    #[tokio::test]
    async fn an_answer_wakes_the_asker() {
        let approvals = Approvals::default();
        let asked = approvals.ask(&request(), None, String::new());
        approvals.answer(&asked.id, Verdict::Approved).unwrap();
        asked.answered().await;
        assert_eq!(asked.close(), Some(Verdict::Approved));
    }
}
