//! Permission questions outside the session: among `muxtap approvals`, and in Mattermost.
//!
//! The session alone decides which answer is the first. These places answer like any other caller,
//! and a question disappears from them once it is answered, wherever that was.

use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use muxtap_engine::{Caller, Engine, Lineage, Principal};
use tokio::sync::watch;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::{session::Session, stored::Phase};

use muxtap_api::{AgentAnswerRequest, AgentQuestion, Error, ErrorCode};
use muxtap_approvals::{
    Decision, Mattermost, PlatformEnvironment,
    approvals::{Approvals, AskedQuestion, OpenQuestion, Verdict, iso_in},
    consent::block,
    store,
};

/// The maximum length of a question's detail in a post, in characters: a post has 16383.
const POST_CHARS: usize = 14_000;

/// The places that show questions; clones share them.
#[derive(Clone, Default)]
pub struct Elsewhere {
    approvals: Option<Approvals>,
    chat: Option<Arc<Mattermost>>,
    /// The tasks that post questions in the chat and delete the posts.
    pub(super) posts: TaskTracker,
}

impl Elsewhere {
    /// Shows questions among these approvals, and in the chat that the environment names, if any.
    pub fn new(approvals: Option<Approvals>, var: &dyn Fn(&str) -> Option<String>) -> Self {
        let chat = PlatformEnvironment::read(var).ok().map(|found| Arc::new(Mattermost::new(found.platform)));
        Self { approvals, chat, posts: TaskTracker::new() }
    }
}

/// A session's questions that are shown elsewhere, by their ids.
#[derive(Default)]
pub(super) struct Shown(Mutex<HashMap<String, ShownQuestion>>);

/// A shown question. Dropping it removes it everywhere.
struct ShownQuestion {
    _approval: Option<AskedQuestion>,
    _post: DropGuard,
}

impl Shown {
    /// Removes a question.
    pub(super) fn remove(&self, question: &str) {
        let removed = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(question);
        drop(removed);
    }

    /// Removes all questions.
    pub(super) fn clear(&self) {
        let removed = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        drop(removed);
    }

    /// Shows a session's question, which waits for at most this time.
    pub(super) fn show(&self, session: &Arc<Session>, question: &AgentQuestion, wait: Duration) {
        let places = &session.about.elsewhere;
        let answer = answerer(session, question);
        let over = CancellationToken::new();
        // Read before the list of approvals is locked.
        let pid = session.info().pid.unwrap_or_default();
        let approval = places.approvals.as_ref().map(|approvals| {
            let shown = |id| OpenQuestion {
                id,
                kind: OpenQuestion::PERMISSION.into(),
                name: question.title.clone(),
                prompt: detail(question),
                asked_by: question.asked_by.clone(),
                working_dir: Some(session.about.cwd.display().to_string()),
                session: Some(session.name().to_string()),
                asked_at: store::now(),
                until: iso_in(wait),
                pid,
            };
            approvals.show(shown, &answer)
        });
        let shown = ShownQuestion { _approval: approval, _post: over.clone().drop_guard() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(question.id.clone(), shown);
        if let Some(chat) = &places.chat {
            let caller = Caller { face: "mattermost", who: String::new(), principal: Principal::Guest };
            let engine = session.about.engine.with_caller(caller);
            let message = message(question);
            let held = Held { phase: session.phase(), left: session.left.clone() };
            places.posts.spawn(in_chat(chat.clone(), message, over, engine, (answer, held)));
        }
    }
}

/// Whether the session is being handed over to another daemon.
struct Held {
    phase: watch::Receiver<Phase>,
    left: CancellationToken,
}

impl Held {
    /// Waits until it is decided. Returns whether the session goes on here.
    async fn decided(&mut self) -> bool {
        let phase = self.phase.wait_for(|phase| *phase != Phase::Held).await;
        phase.is_ok_and(|phase| *phase == Phase::Here) && !self.left.is_cancelled()
    }
}

type Answer = Arc<dyn Fn(&Engine, Verdict, Option<&Lineage>) -> Result<(), Error> + Send + Sync>;

/// Returns the callback that answers a question on behalf of a caller, with the options that were
/// shown.
fn answerer(session: &Arc<Session>, question: &AgentQuestion) -> Answer {
    let (session, id) = (Arc::downgrade(session), question.id.clone());
    let option = |allow| question.plain_option(allow).map(|option| option.id.clone());
    let (yes, no) = (option(true), option(false));
    Arc::new(move |engine, verdict, answerer| {
        let session = Weak::upgrade(&session).ok_or_else(|| Error::not_found("the agent session has ended"))?;
        let allow = verdict == Verdict::Approved;
        let option = if allow { yes.clone() } else { no.clone() };
        // Without such an option, a no still counts and a yes does not.
        let allow = option.is_none().then_some(allow);
        session.answer_for(
            engine,
            &id,
            &AgentAnswerRequest { option, allow, ..AgentAnswerRequest::default() },
            answerer,
        )
    })
}

/// Returns the question's detail, and what yes and no mean.
fn detail(question: &AgentQuestion) -> String {
    let mut text = question.detail.clone().unwrap_or_default();
    for (word, allow) in [("yes", true), ("no", false)] {
        if let Some(option) = question.plain_option(allow) {
            let line_end = if text.is_empty() { "" } else { "\n" };
            // Writing to a String cannot fail.
            let _ = write!(text, "{line_end}{word}: {} ({})", option.name, option.kind);
        }
    }
    text
}

/// Asks the question in the chat until it has an answer anywhere.
async fn in_chat(
    chat: Arc<Mattermost>,
    message: String,
    over: CancellationToken,
    engine: Engine,
    (answer, mut held): (Answer, Held),
) {
    let verdict = match chat.decide(&message, || over.cancelled()).await {
        Ok(Some(Decision::Approved)) => Verdict::Approved,
        Ok(Some(Decision::Denied)) => Verdict::Denied,
        Ok(Some(Decision::Unavailable(_)) | None) => return,
        Err(error) => {
            tracing::warn!("cannot post the question to Mattermost: {error}");
            return;
        }
    };
    give(&mut held, || answer(&engine, verdict, None)).await;
}

/// Answers. While another daemon takes over, the answer waits: if it does not take over, it counts here.
async fn give(held: &mut Held, answer: impl Fn() -> Result<(), Error>) {
    loop {
        match answer() {
            Ok(()) => return,
            Err(error) if error.code == ErrorCode::TmuxUnavailable && held.decided().await => {}
            Err(error) => return tracing::info!("rejected an answer from Mattermost: {error}"),
        }
    }
}

/// Returns the text of the post. The agent's words are in code blocks, and cannot imitate the
/// question itself.
fn message(question: &AgentQuestion) -> String {
    let detail = block(&detail(question), POST_CHARS);
    format!(
        ":lock: **Permission Request**\n`{}` asks to do this:\n\n{detail}\nIt calls that:\n\n{}\nReact: :+1: approve \
         | :-1: deny",
        question.asked_by.replace('`', "'"),
        block(&question.title, POST_CHARS)
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn an_answer_while_another_daemon_takes_over_counts_if_it_does_not() {
        let phases = watch::Sender::new(Phase::Held);
        let given = AtomicUsize::new(0);
        let answer = || {
            given.fetch_add(1, Ordering::Relaxed);
            match *phases.borrow() {
                Phase::Here => Ok(()),
                _ => Err(Error::unavailable("another daemon takes over")),
            }
        };
        for (decided, times) in [(Phase::Here, 2), (Phase::Left, 1)] {
            given.store(0, Ordering::Relaxed);
            phases.send_replace(Phase::Held);
            let mut held = Held { phase: phases.subscribe(), left: CancellationToken::new() };
            let decide = async {
                while given.load(Ordering::Relaxed) == 0 {
                    tokio::task::yield_now().await;
                }
                phases.send_replace(decided);
            };
            tokio::join!(give(&mut held, answer), decide);
            assert_eq!(given.load(Ordering::Relaxed), times, "{decided:?}");
        }
    }
}
