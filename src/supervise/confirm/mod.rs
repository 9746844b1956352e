//! Asking a human before a session is spawned.

pub mod approvals;
pub mod mattermost;
pub mod terminal;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use mattermost::Mattermost;
pub use terminal::Terminal;

/// What a human is asked to allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The name of what is to be spawned.
    pub name: String,
    /// What Claude is to be told.
    pub prompt: String,
    /// Where it is to work, as it was given; `None`: it was not.
    pub directory: Option<String>,
    /// The session that gets a window; `None`: a session of its own.
    pub session: Option<String>,
}

impl Request {
    /// What is spawned, in a word.
    pub fn kind(&self) -> &'static str {
        if self.session.is_some() { "window" } else { "session" }
    }
}

/// A question and how long it stands.
#[derive(Clone, Debug)]
pub struct Question {
    /// What is asked.
    pub request: Request,
    /// After this the answer is no.
    pub deadline: Instant,
    /// Cancelled when nobody wants the answer any more: whatever shows the question is taken away, then the answer is
    /// [`Decision::Denied`].
    pub withdrawn: CancellationToken,
}

/// What became of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A human said yes.
    Approved,
    /// A human said no, the deadline passed, or the question was withdrawn.
    Denied,
    /// No human could be asked; why, as the caller is told it. Nobody has seen the question, or nobody can answer it.
    Unavailable(String),
}

/// A way to ask a human.
///
/// The future runs in a task of its own that is never dropped before it ends, so it may clean up after itself; it ends soon after
/// `withdrawn` is cancelled and soon after the deadline.
pub trait Confirm: Send + Sync {
    /// Asks, and answers what became of it.
    fn ask(self: Arc<Self>, question: Question) -> BoxFuture<'static, Decision>;
}

impl Question {
    /// Resolves when nobody wants the answer any more or the deadline has passed.
    pub async fn over(&self) {
        tokio::select! {
            () = self.withdrawn.cancelled() => {}
            () = tokio::time::sleep_until(self.deadline) => {}
        }
    }
}
