//! Waits: latched, streaming, resumable.
//!
//! A wait puts a [`Watcher`] into each of its panes; the task that reads the connection latches predicates as their bytes come. A driver task
//! sleeps until the next moment at which *time* could matter (a quiet spell, a time limit) and never otherwise wakes. The result stays for
//! ten minutes under the wait's id.

mod answer;
mod attach;
mod core;
mod driver;
mod spec;
mod watcher;

use std::{
    collections::{VecDeque, hash_map::RandomState},
    hash::BuildHasher,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use dashmap::DashMap;

use self::{core::Core, spec::Spec};
use super::{Engine, Host, limits};
use crate::{
    api::{Error, ErrorCode, Result, WaitAnswer, WaitOutcome, WaitRequest},
    metrics,
    pane::cursor::Since,
};

pub(super) use spec::duration;
pub use watcher::Watcher;

/// Every wait whose result can be asked for.
#[derive(Default)]
pub struct Waits {
    all: DashMap<String, Arc<Core>>,
    /// Those that have ended, in that order.
    ended: Mutex<VecDeque<(Instant, String)>>,
    open: AtomicUsize,
    next: AtomicU64,
    secret: RandomState,
}

impl Waits {
    /// How many are open.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Ends all of them.
    pub fn cancel_all(&self) {
        let all: Vec<_> = self.all.iter().map(|core| core.clone()).collect();
        for core in all {
            core.finish(WaitOutcome::Cancelled, None);
        }
    }

    /// Drops results that are older than [`limits::KEEP`]; answers when the next one is due.
    pub fn drop_old(&self, now: Instant) -> Option<Instant> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        while ended.front().is_some_and(|(at, _)| *at + limits::KEEP <= now) {
            if let Some((_, id)) = ended.pop_front() {
                self.all.remove(&id);
            }
        }
        ended.front().map(|(at, _)| *at + limits::KEEP)
    }

    fn ended(&self, id: &str) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).push_back((Instant::now(), id.to_owned()));
    }

    /// An id that nobody guesses: a wait's result may hold what a pane printed.
    fn new_id(&self) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        format!("w{number}-{:012x}", self.secret.hash_one(number) >> 16)
    }

    fn get(&self, id: &str) -> Result<Arc<Core>> {
        self.all.get(id).map(|core| core.clone()).ok_or_else(|| {
            Error::not_found(format!("no wait {id}; a result is kept for {} minutes", limits::KEEP.as_secs() / 60))
        })
    }
}

impl Engine {
    /// Waits as the request says; the answer of a detached wait comes at once. A caller that goes away does not end its wait: the result can be
    /// asked for by its id.
    pub async fn wait(&self, host: &Arc<Host>, request: &WaitRequest) -> Result<WaitAnswer> {
        let spec = Spec::new(request)?;
        let mut panes = Vec::new();
        for target in &request.panes {
            let pane = self.pane(host, target).await?;
            if !panes.iter().any(|known| Arc::ptr_eq(known, &pane)) {
                panes.push(pane);
            }
        }
        let waits = &self.shared.waits;
        if waits.open.fetch_add(1, Ordering::Relaxed) >= limits::OPEN_WAITS {
            waits.open.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::new(
                ErrorCode::ResourceLimit,
                format!("{} waits are open; at most that many are", limits::OPEN_WAITS),
            ));
        }
        metrics::WAITS_ACTIVE.increment(1.0);
        let core = Core::new(waits.new_id(), host.clone(), spec, panes);
        waits.all.insert(core.id.clone(), core.clone());
        if let Err(error) = self.attach(host, &core).await {
            self.close(&core);
            waits.all.remove(&core.id);
            return Err(error);
        }
        let engine = self.clone();
        let driven = core.clone();
        let of = host.clone();
        self.shared.tasks.spawn(async move {
            driver::drive(&engine, &of, &driven).await;
            engine.close(&driven);
        });
        if request.detach {
            return Ok(self.answer(&core).await);
        }
        core.over().await;
        Ok(self.answer(&core).await)
    }

    /// Looks at a wait, at most `timeout_ms` for its end.
    pub async fn wait_result(&self, id: &str, timeout_ms: Option<u64>) -> Result<WaitAnswer> {
        let timeout = duration("timeout_ms", timeout_ms, limits::POLL_LONGEST)?.unwrap_or(Duration::ZERO);
        let core = self.shared.waits.get(id)?;
        // A time that runs out is no failure: the answer says that the wait goes on.
        let _ = tokio::time::timeout(timeout, core.over()).await;
        Ok(self.answer(&core).await)
    }

    /// Ends a wait. One that has ended keeps its result.
    pub async fn cancel_wait(&self, id: &str) -> Result<WaitAnswer> {
        let core = self.shared.waits.get(id)?;
        core.finish(WaitOutcome::Cancelled, None);
        Ok(self.answer(&core).await)
    }

    /// Takes the watchers out of the panes.
    fn close(&self, core: &Arc<Core>) {
        core.finish(WaitOutcome::Cancelled, None);
        for pane in &core.panes {
            pane.lock().watchers.retain(|watcher| !watcher.belongs_to(core));
        }
        self.shared.waits.ended(&core.id);
        self.shared.waits.open.fetch_sub(1, Ordering::Relaxed);
        metrics::WAITS_ACTIVE.decrement(1.0);
        self.shared.aside.notify_one();
    }
}

/// Whether a wait begins with what stands on the screen.
fn begins_on_screen(spec: &Spec) -> bool {
    spec.since == Since::Screen
}
