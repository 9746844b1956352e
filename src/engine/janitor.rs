//! Drops what was kept long enough, and keeps output and screens within their budget. It sleeps until something is due.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use super::{Pane, Shared};
use crate::metrics;

/// Runs as long as the engine.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut due: Option<Instant> = None;
    loop {
        tokio::select! {
            () = shared.cancel.cancelled() => return,
            () = shared.aside.notified() => {}
            () = async { tokio::time::sleep_until(due.unwrap_or_else(Instant::now).into()).await }, if due.is_some() => {}
        }
        let now = Instant::now();
        let dropping = due.is_some_and(|due| due <= now);
        due = shared.waits.drop_old(now);
        let hosts: Vec<_> = {
            let hosts = shared.hosts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            hosts.values().cloned().collect()
        };
        for host in &hosts {
            due = due.into_iter().chain(host.drop_ended(now)).min();
        }
        // It comes here whenever a wait ends; only a drop or a full budget is a reason to look at every pane.
        if !dropping && shared.ring_bytes.load(Ordering::Relaxed) <= shared.options.budget_bytes {
            continue;
        }
        let mut panes: Vec<_> =
            hosts.iter().flat_map(|host| host.panes().into_iter().chain(host.ended_panes())).collect();
        let total = trim(&mut panes, shared.options.budget_bytes);
        shared.ring_bytes.store(total, Ordering::Relaxed);
        metrics::ring_bytes(total);
    }
}

/// Halves the largest ring until all fit; where that gains nothing, drops the largest screen (tmux still has it). Answers what is held then.
fn trim(panes: &mut [Arc<Pane>], budget: usize) -> usize {
    let mut total: usize = panes.iter().map(|pane| pane.held_bytes()).sum();
    while total > budget {
        let Some(largest) = panes.iter().max_by_key(|pane| pane.held_bytes()) else { break };
        let mut state = largest.lock();
        let before = state.held_bytes();
        let ring = state.ring.len();
        if ring >= state.view.memory() {
            state.ring.trim_to(ring / 2);
        }
        if state.held_bytes() >= before {
            state.view.drop_screen();
        }
        let after = state.held_bytes();
        if after >= before {
            break;
        }
        total -= before - after;
    }
    total
}

impl Shared {
    /// What is held for a pane grew or shrank.
    pub(super) fn account(&self, before: usize, after: usize) {
        let total = if after >= before {
            self.ring_bytes.fetch_add(after - before, Ordering::Relaxed) + (after - before)
        } else {
            self.ring_bytes.fetch_sub((before - after).min(self.ring_bytes.load(Ordering::Relaxed)), Ordering::Relaxed)
        };
        metrics::ring_bytes(total);
        if total > self.options.budget_bytes {
            self.aside.notify_one();
        }
    }
}
