//! Waits: latched, streaming, resumable.
//!
//! A wait puts a [`Watcher`] into each of its panes; the task that reads the connection latches predicates as their bytes come. A driver task
//! sleeps until the next moment at which *time* could matter (a quiet spell, a time limit) and never otherwise wakes. When it has ended
//! only its answer stays, for ten minutes, under the wait's id.

mod answer;
mod attach;
mod core;
mod driver;
mod kept;
mod on_screen;
mod spec;
mod standing;
mod watcher;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use self::{
    answer::report,
    attach::Asked,
    core::Core,
    kept::{Open, Wait},
    spec::Spec,
};
use super::{Engine, Host, deadline::Deadline, limits};
use crate::{
    api::{Result, Tier, WaitAnswer, WaitOutcome, WaitRequest},
    stream::cursor::Since,
};

pub use kept::Waits;
pub(super) use spec::duration;
pub use watcher::Watcher;

/// What a caller learns whose time was up before its wait could begin.
const NOT_BEGUN: &str = "the wait had not begun";

impl Engine {
    /// Waits as the request says; the answer of a detached wait comes at once. A caller that goes away does not end a wait that has begun: the
    /// result can be asked for by its id.
    pub async fn wait(&self, host: &Arc<Host>, request: &WaitRequest) -> Result<WaitAnswer> {
        self.may(Tier::Read)?;
        let asked = Instant::now();
        let deadline = Deadline::new(asked, spec::timeout(request)?);
        // Where the panes stand is noted while the patterns compile: what is printed meanwhile belongs to the wait.
        let (spec, asked) =
            tokio::try_join!(self.spec(request, asked), deadline.before(NOT_BEGUN, self.asked(host, request)))?;
        let panes = asked.iter().map(|asked| asked.pane.clone()).collect();
        let mut open = Open::new(self, |id| Core::new(id, host.clone(), spec, panes))?;
        let core = open.core().clone();
        // When the caller goes away here the wait has not begun, and is closed where it stands.
        deadline.before(NOT_BEGUN, self.attach(host, &core, &asked)).await?;
        let engine = self.clone();
        let of = host.clone();
        self.shared.tasks.spawn(async move {
            driver::drive(&engine, &of, open.core()).await;
            // Whoever asks for the next one has this one no more.
            open.discount();
            // The answer comes before the cleaning: what the wait held is hundreds of small things to be freed.
            tokio::task::yield_now().await;
            open.keep().await;
        });
        if request.detach && !core.is_over() {
            return Ok(report(&core).0);
        }
        core.over().await;
        Ok(self.told(&core).await.deliver())
    }

    /// Compiles what a request waits for.
    async fn spec(&self, request: &WaitRequest, asked: Instant) -> Result<Spec> {
        let WaitRequest { patterns, fail, screen, title, .. } = request;
        let texts = patterns.iter().chain(fail).chain(screen).chain(title).map(String::as_str);
        let request = request.clone();
        self.compile(texts, move || Ok(Spec { asked, ..Spec::new(&request)? })).await
    }

    /// The panes of a wait, each once, as they are now.
    async fn asked(&self, host: &Arc<Host>, request: &WaitRequest) -> Result<Vec<Asked>> {
        let mut panes: Vec<Asked> = Vec::new();
        // More are refused by the request's check.
        for target in request.panes.iter().take(limits::WAIT_PANES) {
            let pane = self.pane(host, target).await?;
            if !panes.iter().any(|known| Arc::ptr_eq(&known.pane, &pane)) {
                panes.push(Asked::of(pane));
            }
        }
        Ok(panes)
    }

    /// Looks at a wait, at most `timeout_ms` for its end.
    pub async fn wait_result(&self, id: &str, timeout_ms: Option<u64>) -> Result<WaitAnswer> {
        self.may(Tier::Read)?;
        let timeout = duration("timeout_ms", timeout_ms, limits::POLL_LONGEST)?.unwrap_or(Duration::ZERO);
        let core = match self.shared.waits.get(id)? {
            Wait::Open(core) => core,
            Wait::Ended(told) => return Ok(told.deliver()),
        };
        // A time that runs out is no failure: the answer says that the wait goes on.
        let _ = tokio::time::timeout(timeout, core.over()).await;
        if core.is_over() { Ok(self.told(&core).await.deliver()) } else { Ok(report(&core).0) }
    }

    /// Ends a wait. One that has ended keeps its result.
    pub async fn cancel_wait(&self, id: &str) -> Result<WaitAnswer> {
        self.may(Tier::Read)?;
        match self.shared.waits.get(id)? {
            Wait::Open(core) => {
                core.finish(WaitOutcome::Cancelled, None);
                Ok(self.told(&core).await.deliver())
            }
            Wait::Ended(told) => Ok(told.deliver()),
        }
    }
}

/// Whether a wait begins with what stands on the screen.
fn begins_on_screen(spec: &Spec) -> bool {
    spec.since == Since::Screen
}
