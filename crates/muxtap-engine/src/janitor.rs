//! The janitor drops expired panes and results, leaves sessions that are no longer in use, and
//! keeps output and screens within the memory budget. It sleeps until something is due.

use std::sync::{Arc, atomic::Ordering};

use muxtap_base::metrics;
use tokio::time::Instant;

use super::{PaneState, Shared};

/// Rings up to this size, which are not worth trimming.
const SMALL_RING: usize = 64 * 1024;

/// Runs the janitor for as long as the engine runs.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut due: Option<Instant> = None;
    loop {
        tokio::select! {
            () = shared.cancel.cancelled() => return,
            () = shared.retired.notified() => {}
            () = async { tokio::time::sleep_until(due.unwrap_or_else(Instant::now)).await }, if due.is_some() => {}
        }
        let now = Instant::now();
        let dropping = due.is_some_and(|due| due <= now);
        due = shared.waits.drop_expired(now);
        {
            due = due.into_iter().chain(shared.runs.drop_expired(now)).min();
        }
        let hosts: Vec<_> = {
            let hosts = shared.hosts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            hosts.values().cloned().collect()
        };
        for host in &hosts {
            due = due.into_iter().chain(host.drop_ended(now)).min();
            due = due.into_iter().chain(host.leave_unused(shared.options.follow_for)).min();
        }
        // The loop also runs whenever a wait ends. Only something due, or an exceeded budget, is a
        // reason to look at every pane.
        if !dropping && shared.held_bytes.load(Ordering::Relaxed) <= shared.options.budget_bytes {
            continue;
        }
        let mut panes: Vec<_> =
            hosts.iter().flat_map(|host| host.panes().into_iter().chain(host.ended_panes())).collect();
        let total = trim(&mut panes, shared.options.budget_bytes);
        shared.held_bytes.store(total, Ordering::Relaxed);
        metrics::held_bytes(total);
    }
}

/// Halves the largest ring until all fit. Once rings are small, drops the largest screens, first
/// those of panes that tmux still has. Returns the number of bytes held afterwards.
fn trim(panes: &mut [Arc<PaneState>], budget: usize) -> usize {
    let mut total: usize = panes.iter().map(|pane| pane.held_bytes()).sum();
    while total > budget {
        let Some(largest) = panes.iter().max_by_key(|pane| pane.ring_len()).filter(|pane| pane.ring_len() > SMALL_RING)
        else {
            break;
        };
        let dropped = largest.halve_output();
        if dropped == 0 {
            break;
        }
        total -= dropped;
    }
    panes.sort_by_cached_key(|pane| (pane.exit().is_some(), std::cmp::Reverse(pane.held_bytes())));
    for pane in panes.iter() {
        if total <= budget {
            break;
        }
        total -= pane.drop_screen();
    }
    total
}

impl Shared {
    /// Charges a change of a pane's memory to the budget.
    pub(super) fn charge(&self, before: usize, after: usize) {
        let total = if after >= before {
            self.held_bytes.fetch_add(after - before, Ordering::Relaxed) + (after - before)
        } else {
            let less = (before - after).min(self.held_bytes.load(Ordering::Relaxed));
            self.held_bytes.fetch_sub(less, Ordering::Relaxed) - less
        };
        metrics::held_bytes(total);
        if total > self.options.budget_bytes {
            self.retired.notify_one();
        }
    }
}
