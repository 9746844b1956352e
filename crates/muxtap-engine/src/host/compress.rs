//! Compression of history: the task that compresses a pane's history once the pane is cold.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::{Host, PaneState, limits};

impl Host {
    /// Compresses a pane's history when the pane has printed nothing for [`limits::COLD`]. While output
    /// arrives, compression would cost as much as drawing, and may be in vain: the oldest lines are
    /// about to be dropped.
    pub(crate) fn compress_at_rest(self: &Arc<Self>, pane: &Arc<PaneState>) {
        let Some(shared) = self.shared() else { return };
        if !pane.begin_compression() {
            return;
        }
        let (host, pane) = (self.clone(), pane.clone());
        let (cancel, turn) = (shared.cancel.clone(), shared.compressing.clone());
        shared.tasks.spawn(async move {
            tokio::select! {
                () = host.compress(&turn, &pane) => {}
                () = cancel.cancelled() => {}
            }
        });
    }

    /// Compresses a block at a time: other tasks and the pane's output need the thread and the lock.
    /// `turn`: of all panes, one at a time does, however many become cold at once.
    async fn compress(&self, turn: &Semaphore, pane: &Arc<PaneState>) {
        loop {
            // Not awaited through the pane's notifications: a receiver would count as a use.
            let due = pane.lock().last_output() + limits::COLD;
            if Instant::now() < due {
                tokio::time::sleep_until(due).await;
                continue;
            }
            let _turn = turn.acquire().await;
            if pane.lock().last_output() + limits::COLD > Instant::now() {
                continue;
            }
            // Dropped panes are not counted any more.
            if !self.has(pane) {
                return;
            }
            let (is_over, memory) = pane.compress_next();
            self.charge(memory);
            if is_over {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::atomic::Ordering};

    use muxtap_core::{
        protocol::{ids::PaneId, version::Version},
        screen::{CaptureOptions, Line},
    };
    use muxtap_tmux::{Seeding, ServerIdentity};

    use super::*;
    use crate::{Engine, Options, handover::tests::prompt};

    /// A pane's time is real, so this takes the second that it has to rest.
    #[tokio::test]
    async fn the_history_of_a_cold_pane_is_compressed_and_reads_the_same() {
        let engine = Engine::new(Options::default());
        let host = Host::new(Path::new("/nowhere"), &engine.shared);
        host.identified(&ServerIdentity { pid: 1, started: 1, version: Version::parse(b"3.3a").unwrap() });
        let sink = host.seeded(PaneId(1), &prompt(), Seeding::First).unwrap();
        let pane = host.live_pane(PaneId(1)).unwrap();
        for line in 0..2000 {
            sink.output(format!("   Compiling crate-number-{line} v1.2.3 (/some/path)\r\n").as_bytes());
        }
        let all = CaptureOptions { start: Line::Edge, ..CaptureOptions::default() };
        let capture = || pane.lock().screen().capture(&all).unwrap();
        let (before, lines) = (pane.held_bytes(), capture());
        assert!(!pane.begin_compression(), "the task that began with the output awaits the pane's rest");
        host.compress(&engine.shared.compressing, &pane).await;
        assert!(pane.held_bytes() + 8_000 < before, "{} of {before}", pane.held_bytes());
        assert_eq!(capture(), lines);
        assert_eq!(engine.shared.held_bytes.load(Ordering::Relaxed), pane.held_bytes());
    }
}
