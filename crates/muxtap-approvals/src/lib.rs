//! Asks a human before an agent acts, and records spawned sessions in a file ([`store`]).

pub mod approvals;
pub mod consent;
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

/// A spawn that needs a human's approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The name of the session or window to spawn.
    pub name: String,
    /// The prompt for Claude.
    pub prompt: String,
    /// The working directory for Claude, as given; `None`: none was given.
    pub directory: Option<String>,
    /// The session that gets a window; `None`: a new session is created.
    pub session: Option<String>,
}

impl Request {
    /// Returns the kind of the spawn: `session` or `window`.
    pub fn kind(&self) -> &'static str {
        if self.session.is_some() { "window" } else { "session" }
    }
}

/// A question, and how long it stays open.
#[derive(Clone, Debug)]
pub struct Question {
    /// The spawn in question.
    pub request: Request,
    /// The asking process, if known. An answer by this process, or by one that it runs in, is
    /// refused.
    pub asker: Option<Lineage>,
    /// The time after which the answer is no.
    pub deadline: Instant,
    /// Cancelled when the answer is no longer needed. The way that shows the question removes it
    /// and then returns [`Decision::Denied`].
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
    /// question, or no human can answer it.
    Unavailable(String),
}

/// A way to ask a human.
///
/// The future runs in its own task, which is never dropped before it ends, so it may clean up after
/// itself. It ends soon after `withdrawn` is cancelled and soon after the deadline.
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
