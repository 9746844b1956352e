//! Asks a person before an agent does something, and keeps what was spawned in a file ([`store`]).

pub mod approvals;
mod environment;
pub mod mattermost;
pub mod store;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use muxtap_engine::Lineage;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use approvals::Terminal;
pub use environment::{MissingVariable, Platform, PlatformEnvironment, store as store_path};
pub use mattermost::Mattermost;

/// A spawn that a human is asked to allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The name of what is to be spawned.
    pub name: String,
    /// The prompt that Claude is to be given.
    pub prompt: String,
    /// The directory in which Claude is to work, as it was given; `None`: none was given.
    pub directory: Option<String>,
    /// The session that gets a window; `None`: a session of its own is made.
    pub session: Option<String>,
}

impl Request {
    /// Returns what is spawned, in a word.
    pub fn kind(&self) -> &'static str {
        if self.session.is_some() { "window" } else { "session" }
    }
}

/// A question and how long it is open.
#[derive(Clone, Debug)]
pub struct Question {
    /// The spawn that is asked about.
    pub request: Request,
    /// The process that asks, where it is known: neither it nor what it runs in gives the answer.
    pub asker: Option<Lineage>,
    /// The time after which the answer is no.
    pub deadline: Instant,
    /// Cancelled when the answer is not wanted any more. The way that shows the question takes it
    /// away, and then returns [`Decision::Denied`].
    pub withdrawn: CancellationToken,
}

/// The outcome of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A human said yes.
    Approved,
    /// A human said no, the deadline passed, or the question was withdrawn.
    Denied,
    /// No human could be asked; the reason, as the caller receives it. No human has seen the
    /// question, or none can answer it.
    Unavailable(String),
}

/// A way to ask a human.
///
/// The future runs in a task of its own that is never dropped before it ends, so it may clean up
/// after itself. It ends soon after `withdrawn` is cancelled and soon after the deadline.
pub trait Confirm: Send + Sync {
    /// Asks a human, and returns the outcome.
    fn ask(self: Arc<Self>, question: Question) -> BoxFuture<'static, Decision>;
}

impl Question {
    /// Resolves when the question is withdrawn or the deadline has passed.
    pub async fn over(&self) {
        tokio::select! {
            () = self.withdrawn.cancelled() => {}
            () = tokio::time::sleep_until(self.deadline) => {}
        }
    }
}
