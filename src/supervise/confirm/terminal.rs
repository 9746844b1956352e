//! Asks a human at a terminal, who runs `muxtap approvals`.

use std::{io, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use notify::{RecursiveMode, Watcher as _};
use time::OffsetDateTime;
use tokio::{sync::mpsc, time::Instant};

use super::{Confirm, Decision, Question, approvals::Approvals};
use crate::supervise::store::iso;

/// The answer where no terminal watches for questions.
const NOT_WATCHED: &str = "Error: spawn needs a human's approval, and nobody watches for questions: let a human run \
    `muxtap approvals --watch`";

/// Asks by questions in a folder.
pub struct Terminal {
    folder: Approvals,
    /// Whether to ask although no terminal watches: a human may look later.
    always: bool,
}

impl Terminal {
    /// Asks in this folder. `always`: also when no terminal watches it; otherwise such a question
    /// is [`Decision::Unavailable`].
    pub fn new(folder: Approvals, always: bool) -> Self {
        Self { folder, always }
    }
}

impl Confirm for Terminal {
    fn ask(self: Arc<Self>, question: Question) -> BoxFuture<'static, Decision> {
        Box::pin(async move {
            ask(&self, question).await.unwrap_or_else(|error| {
                Decision::Unavailable(format!(
                    "Error: spawn confirmation failed (could not ask at a terminal: {error})"
                ))
            })
        })
    }
}

async fn ask(terminal: &Terminal, question: Question) -> io::Result<Decision> {
    let folder = terminal.folder.clone();
    if !terminal.always && !blocking(move || folder.is_watched()).await? {
        return Ok(Decision::Unavailable(NOT_WATCHED.into()));
    }
    let folder = terminal.folder.clone();
    let request = question.request.clone();
    let until = iso_in(question.deadline.saturating_duration_since(Instant::now()));
    let asked = blocking(move || folder.ask(&request, until)).await?;
    let answered = answered(&terminal.folder, &asked);
    let waited = tokio::select! {
        biased;
        () = question.over() => Ok(()),
        answered = answered => answered,
    };
    // Also where the question is over: a human may have been a moment quicker.
    let said = blocking(move || asked.close()).await?;
    waited.map(|()| said.unwrap_or(Decision::Denied))
}

/// Resolves when the question was answered.
async fn answered(folder: &Approvals, asked: &super::approvals::AskedQuestion) -> io::Result<()> {
    let (_watcher, mut changes) = changes(folder)?;
    // An answer is a small file of this machine: it is read here, after each change of the folder.
    while asked.answer()?.is_none() {
        changes.recv().await;
    }
    Ok(())
}

/// Notifies of each change in the folder until the watcher is dropped. The folder must exist.
pub fn changes(folder: &Approvals) -> io::Result<(notify::RecommendedWatcher, mpsc::Receiver<()>)> {
    let (sender, receiver) = mpsc::channel(1);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access()) {
            // A full channel means that a wake-up is under way already.
            let _ = sender.try_send(());
        }
    })
    .map_err(io::Error::other)?;
    watcher.watch(folder.dir(), RecursiveMode::NonRecursive).map_err(io::Error::other)?;
    Ok((watcher, receiver))
}

/// Runs work on a blocking thread: locks and files of other processes may take their time.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Returns the time after this duration, ISO 8601 in UTC.
fn iso_in(after: Duration) -> String {
    let now = OffsetDateTime::now_utc();
    let then = time::Duration::try_from(after).ok().and_then(|after| now.checked_add(after));
    iso(then.unwrap_or(now))
}
