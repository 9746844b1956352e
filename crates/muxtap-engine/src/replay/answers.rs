//! Checks of the results of lookups and waits.

use std::time::Duration;

use futures_util::FutureExt as _;
use muxtap_api::{Cursor, Error, ErrorCode, Result as Answered, WaitAnswer, WaitOutcome};
use muxtap_core::protocol::ids::PaneId;
use tokio::time::Instant;

use super::{Known, Run, oracle};
use crate::Pane;

impl Run {
    /// Checks the end of a lookup.
    pub(super) fn looked(&mut self, number: usize, found: Answered<Pane>) -> Result<(), String> {
        let (id, has_ended) = &mut self.lookups[number];
        let id = *id;
        if std::mem::replace(has_ended, true) {
            return Err("it ended twice".into());
        }
        match found {
            Ok(pane) if pane.id() == PaneId(id) => {
                self.note(&format!("%{id} is found"));
                self.seen.panes += 1;
                self.known.entry(id).or_insert_with(|| Known { pane, readers: Default::default() });
                Ok(())
            }
            Ok(pane) => Err(format!("{} is found in place of %{id}", pane.id())),
            Err(error) => {
                self.note(&format!("%{id} is not found: {} {}", error.code.as_str(), error.message));
                self.is_expected(id, &error)
            }
        }
    }

    /// Checks that a request about this pane may fail so: while tmux cannot be reached, or since the
    /// pane was killed.
    fn is_expected(&self, pane: u32, error: &Error) -> Result<(), String> {
        match error.code {
            ErrorCode::TmuxUnavailable => Ok(()),
            ErrorCode::NotFound if !self.tmux.lock().panes.contains_key(&pane) => Ok(()),
            _ => Err(format!("it fails with {}: {}", error.code.as_str(), error.message)),
        }
    }

    /// Checks the end of a wait (R46, R47, W…).
    pub(super) fn ended(&mut self, number: usize, at: Instant, answer: Answered<WaitAnswer>) -> Result<(), String> {
        let wait = &mut self.waits[number];
        if std::mem::replace(&mut wait.has_ended, true) {
            return Err("it ended twice".into());
        }
        let wait = &self.waits[number];
        let lasted = at - wait.at;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                self.note(&format!("wait {number} failed: {} {}", error.code.as_str(), error.message));
                return self.is_expected(wait.pane, &error);
            }
        };
        *self.seen.waits.entry(answer.outcome.as_str()).or_default() += 1;
        self.note(&format!("wait {number} ends: {} after {} ms", answer.outcome.as_str(), lasted.as_millis()));
        let pane = &self.known[&wait.pane].pane;
        let read = |from: Cursor, most: u64| {
            let read = pane.read().since(from).at_most(most).into_future().now_or_never();
            read.ok_or("a read from memory waits")?.map_err(|error| error.message)
        };
        match answer.outcome {
            WaitOutcome::Matched => {
                let offset = answer.predicates[0].offset.ok_or("a match without a place")?;
                let output = read(Cursor { offset, ..wait.from }, 64)?;
                if output.gap.is_none() && !output.bytes().starts_with(wait.token.as_bytes()) {
                    return Err(format!("its text is not at {offset}"));
                }
                if offset < wait.from.offset {
                    return Err(format!("its match at {offset} is from before it began, at {}", wait.from.offset));
                }
                if lasted > wait.timeout + Duration::from_millis(500) {
                    return Err(format!("it matched after its timeout: {lasted:?}"));
                }
            }
            WaitOutcome::Timeout => {
                oracle::check_timeout(wait.timeout, lasted)?;
                let mut from = wait.from;
                while from.offset < wait.seen {
                    let output = read(from, 8 * 1024 * 1024)?;
                    let seen = usize::try_from(wait.seen.saturating_sub(output.start())).unwrap();
                    let bytes = &output.bytes()[..output.bytes().len().min(seen)];
                    if memchr::memmem::find(bytes, wait.token.as_bytes()).is_some() {
                        return Err("it timed out although its text had arrived".into());
                    }
                    from = output.cursor;
                }
            }
            WaitOutcome::Ended => {
                if self.tmux.lock().panes.contains_key(&wait.pane) {
                    return Err("it ended with a pane that lives".into());
                }
            }
            other => return Err(format!("its outcome is {}", other.as_str())),
        }
        Ok(())
    }
}
