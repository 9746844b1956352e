//! The end of a run, and what was seen in it.

use std::{collections::BTreeMap, time::Duration};

use muxtap_api::WaitOutcome;
use tokio::time::Instant;

use super::{READERS, Run};

/// The longest time from the last fault until everything has ended.
const LAST: Duration = Duration::from_secs(240);

/// How often there was something to check.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// Lookups that found their pane.
    pub(super) panes: usize,
    /// Bytes that were read.
    pub(super) bytes: usize,
    pub(super) gaps: usize,
    /// Waits that ended, by outcome.
    pub(super) waits: BTreeMap<&'static str, usize>,
}

impl Seen {
    pub(super) fn add(&mut self, other: Self) {
        self.panes += other.panes;
        self.bytes += other.bytes;
        self.gaps += other.gaps;
        for (outcome, count) in other.waits {
            *self.waits.entry(outcome).or_default() += count;
        }
    }

    /// Returns whether everything that is checked was seen.
    pub(super) fn is_complete(&self) -> bool {
        let outcomes = [WaitOutcome::Matched, WaitOutcome::Timeout, WaitOutcome::Ended];
        let has_all = outcomes.iter().all(|outcome| self.waits.contains_key(outcome.as_str()));
        has_all && self.panes > 0 && self.bytes > 0 && self.gaps > 0
    }
}

impl Run {
    /// Ends all faults, and checks that all output arrives and that no wait or lookup is left.
    pub(super) async fn end(&mut self) -> Result<(), String> {
        self.note("no more faults");
        {
            let mut tmux = self.tmux.lock();
            for client in tmux.clients.values_mut() {
                (client.deaf_until, client.mute_until) = (0, 0);
            }
        }
        // The first line may be part of a seed; the second one is sent as output.
        for _ in 0..2 {
            self.print_everywhere();
            let until = Instant::now() + LAST;
            loop {
                self.pass(Duration::from_millis(250)).await?;
                match self.what_is_left()? {
                    Some(why) if Instant::now() >= until => return Err(why),
                    Some(_) => {}
                    None => break,
                }
            }
        }
        match self.engine.open_waits() {
            0 => Ok(()),
            open => Err(format!("{open} waits are open although all have ended")),
        }
    }

    /// Makes each pane print a line.
    fn print_everywhere(&mut self) {
        let tmux = self.tmux.clone();
        let mut tmux = tmux.lock();
        for pane in tmux.panes.keys().copied().collect::<Vec<_>>() {
            self.print(&mut tmux, pane, 1);
        }
    }

    /// Reads all output. Returns the first thing that has not ended or arrived.
    fn what_is_left(&mut self) -> Result<Option<String>, String> {
        if let Some(number) = self.lookups.iter().position(|(_, has_ended)| !has_ended) {
            return Ok(Some(format!("lookup {number} never ended")));
        }
        let unknown = self.tmux.lock().panes.keys().copied().find(|pane| !self.known.contains_key(pane));
        if let Some(pane) = unknown {
            self.adopt(pane);
            return Ok(Some(format!("%{pane} is never found")));
        }
        if let Some(number) = self.waits.iter().position(|wait| !wait.has_ended) {
            return Ok(Some(format!("wait {number} never ended")));
        }
        for pane in self.known.keys().copied().collect::<Vec<_>>() {
            for reader in 0..READERS {
                while self.read(pane, reader, 256 * 1024)? {}
                let tmux = self.tmux.lock();
                // What a killed pane had printed may not have been sent (F9).
                let Some(printed) = tmux.panes.get(&pane) else { continue };
                if let Err(why) = self.known[&pane].readers[reader].check_end(&printed.log) {
                    return Ok(Some(format!("reader {reader} of %{pane}: {why}")));
                }
            }
        }
        Ok(None)
    }
}
