//! Numbered lines of input: each number is applied once, in order, across any number of
//! connections.
//!
//! See P4 in `docs/page.md`.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use muxtap_engine::{Engine, Pane};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::{fits::Fits, sessions::secret, wire::Typed};

use muxtap_api::{Cursor, Error, ErrorCode, InputAnswer, Result};

/// How long a line is remembered after its connection ended.
pub const KEPT: Duration = Duration::from_secs(600);
/// The maximum number of lines; one more replaces the line whose connection ended first.
pub const LINES: usize = 256;
/// The number of a line's outcomes that are remembered.
const OUTCOMES: usize = 1024;
/// The number of last inputs whose refusals are repeated to a new connection.
const SAID_AGAIN: usize = 64;
/// The maximum number of a line's waiting inputs.
pub const WAITING: usize = 4096;

/// The outcome of an input.
pub(super) type Outcome = std::result::Result<Cursor, Error>;

/// A number and its outcome.
pub(super) type Settled = (u64, Outcome);

/// All lines; clones share them.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Mutex<All>>);

#[derive(Default)]
struct All {
    lines: HashMap<String, Arc<Line>>,
    /// Whether the lines are being handed over.
    are_held: bool,
}

/// A line, stored for the daemon that replaces this one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredLine {
    id: String,
    taken: u64,
    settled: VecDeque<Settled>,
}

/// The lines are being handed over: they take no input. Dropped, they go on here.
#[must_use]
pub(super) struct HeldLines(Lines);

/// A numbered line of input.
pub(super) struct Line {
    /// The line's name, which is a secret.
    pub(super) id: String,
    state: Mutex<State>,
    queue: mpsc::UnboundedSender<Job>,
    /// Notified when an input has got its outcome.
    settled: Notify,
}

#[derive(Default)]
struct State {
    /// Whether no input is taken: the line is being handed over.
    is_held: bool,
    /// Whether an input of this connection was ignored because the line was held. Later ones are
    /// ignored, too: the page sends all of them again, in order, to its next connection.
    ignores_input: bool,
    /// The highest number that was taken.
    taken: u64,
    /// The number of inputs that were taken and have no outcome yet.
    waiting: usize,
    settled: VecDeque<Settled>,
    connection: Option<Held>,
    /// When the last connection ended.
    left: Option<Instant>,
}

/// The line's side of a connection.
struct Held {
    settled: mpsc::UnboundedSender<Settled>,
    replaced: CancellationToken,
    end: CancellationToken,
}

struct Job {
    seq: u64,
    input: Typed,
    pane: Result<Pane>,
}

/// A connection's hold on a line. Dropping it releases the line.
pub(super) struct Attached {
    pub(super) line: Arc<Line>,
    /// Outcomes of the line's inputs.
    pub(super) settled: mpsc::UnboundedReceiver<Settled>,
    /// Cancelled when another connection has taken over the line.
    pub(super) replaced: CancellationToken,
    /// Cancelled when the connection has to end.
    pub(super) end: CancellationToken,
    /// The highest number that was taken before.
    pub(super) taken: u64,
    /// The refusals among the last numbers.
    pub(super) refused: Vec<Settled>,
    /// The windows that have this page's size while it is connected.
    pub(super) fits: Fits,
}

impl Lines {
    /// Continues a line, or starts a new one if none has this name.
    pub(super) fn attach(&self, engine: &Engine, client: Option<&str>) -> Result<Attached> {
        let line = {
            let mut all = self.lock();
            let All { lines, are_held } = &mut *all;
            lines.retain(|_, line| line.lock().left.is_none_or(|left| left.elapsed() < KEPT));
            if let Some(line) = client.and_then(|client| lines.get(client)) {
                line.clone()
            } else {
                if lines.len() >= LINES {
                    let left = lines.values().filter_map(|line| Some((line.lock().left?, line.id.clone())));
                    let Some((_, oldest)) = left.min() else {
                        return Err(Error::new(ErrorCode::ResourceLimit, "too many pages are connected"));
                    };
                    lines.remove(&oldest);
                }
                let line = Line::begin(engine, secret::<16>()?, State { is_held: *are_held, ..State::default() });
                lines.insert(line.id.clone(), line.clone());
                line
            }
        };
        Ok(Self::connect(line))
    }

    /// Stops taking input, and waits until what was taken has its outcome.
    pub(super) async fn hold(&self) -> HeldLines {
        let lines: Vec<_> = {
            let mut all = self.lock();
            all.are_held = true;
            all.lines.values().cloned().collect()
        };
        let held = HeldLines(self.clone());
        for line in lines {
            line.lock().is_held = true;
            loop {
                let settled = line.settled.notified();
                if line.lock().waiting == 0 {
                    break;
                }
                settled.await;
            }
        }
        held
    }

    /// Continues lines of another daemon.
    pub(super) fn restore(&self, engine: &Engine, stored: Vec<StoredLine>) {
        let mut all = self.lock();
        for StoredLine { id, taken, settled } in stored.into_iter().take(LINES) {
            let state = State { taken, settled, left: Some(Instant::now()), ..State::default() };
            all.lines.insert(id.clone(), Line::begin(engine, id, state));
        }
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a line for a connection that may not type.
    ///
    /// The line belongs to that connection alone, ends with it, and does not count towards
    /// [`LINES`].
    pub(super) fn attach_reader(engine: &Engine) -> Result<Attached> {
        Ok(Self::connect(Line::begin(engine, secret::<16>()?, State::default())))
    }

    fn connect(line: Arc<Line>) -> Attached {
        let (sender, settled) = mpsc::unbounded_channel();
        let (replaced, end) = (CancellationToken::new(), CancellationToken::new());
        let mut state = line.lock();
        let held = Held { settled: sender, replaced: replaced.clone(), end: end.clone() };
        if let Some(before) = state.connection.replace(held) {
            before.replaced.cancel();
        }
        state.left = None;
        state.ignores_input = false;
        let last = state.settled.iter().rev().take(SAID_AGAIN).rev();
        let refused = last.filter(|(_, outcome)| outcome.is_err()).cloned().collect();
        let taken = state.taken;
        drop(state);
        let fits = Fits::default();
        Attached { line, settled, replaced, end, taken, refused, fits }
    }
}

impl HeldLines {
    /// Returns the lines.
    pub(super) fn store(&self) -> Vec<StoredLine> {
        let all = self.0.lock();
        let stored = all.lines.values().map(|line| {
            let State { taken, settled, .. } = &*line.lock();
            StoredLine { id: line.id.clone(), taken: *taken, settled: settled.clone() }
        });
        stored.collect()
    }
}

impl Drop for HeldLines {
    fn drop(&mut self) {
        let mut all = self.0.lock();
        all.are_held = false;
        for line in all.lines.values() {
            let mut state = line.lock();
            state.is_held = false;
            if state.ignores_input
                && let Some(connection) = &state.connection
            {
                connection.end.cancel();
            }
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut state = self.line.lock();
        // Checked with the line locked: another connection may be taking over.
        if !self.replaced.is_cancelled() {
            state.connection = None;
            state.left = Some(Instant::now());
            self.fits.left(&self.line.id);
        }
    }
}

impl Line {
    fn begin(engine: &Engine, id: String, state: State) -> Arc<Self> {
        let (queue, mut jobs) = mpsc::unbounded_channel::<Job>();
        let line = Arc::new(Self { id, state: Mutex::new(state), queue, settled: Notify::new() });
        let (of, end) = (Arc::downgrade(&line), engine.end());
        // The task ends with its line, which owns the sender.
        engine.spawn(async move {
            loop {
                let job = tokio::select! {
                    job = jobs.recv() => job,
                    () = end.cancelled() => return,
                };
                let Some(Job { seq, input, pane }) = job else { return };
                let outcome = match pane {
                    Ok(pane) => input.give(&pane).await.map(|InputAnswer { cursor, .. }| cursor),
                    Err(error) => Err(error),
                };
                let Some(line) = of.upgrade() else { return };
                line.settle(seq, outcome);
            }
        });
        line
    }

    /// Takes an input if its number is the next one.
    ///
    /// Returns the outcome if it is known already; `None`: it follows, or the page has to send the
    /// input again to its next connection.
    pub(super) fn take(&self, seq: u64, input: Typed, pane: Result<Pane>) -> Option<Outcome> {
        let mut state = self.lock();
        if seq > state.taken && (state.is_held || state.ignores_input) {
            state.ignores_input = true;
            return None;
        }
        if seq == 0 || seq > state.taken + 1 {
            let next = state.taken + 1;
            return Some(Err(Error::invalid(format!("seq: expected {next}, got {seq}"))));
        }
        if seq <= state.taken {
            if seq > state.taken - state.waiting as u64 {
                // The input is being typed.
                return None;
            }
            let known = state.settled.iter().find(|(number, _)| *number == seq).map(|(_, outcome)| outcome.clone());
            let forgotten = || Err(Error::new(ErrorCode::Conflict, "seq: the result of this number is no longer kept"));
            return Some(known.unwrap_or_else(forgotten));
        }
        if state.waiting >= WAITING {
            return Some(Err(Error::new(
                ErrorCode::ResourceLimit,
                "too much input is pending; send this number again",
            )));
        }
        state.taken = seq;
        state.waiting += 1;
        // The receiving task ends only with the engine.
        let _ = self.queue.send(Job { seq, input, pane });
        None
    }

    fn settle(&self, seq: u64, outcome: Outcome) {
        let mut state = self.lock();
        state.waiting -= 1;
        if state.settled.len() >= OUTCOMES {
            state.settled.pop_front();
        }
        state.settled.push_back((seq, outcome.clone()));
        if let Some(connection) = &state.connection {
            // The connection may be ending.
            let _ = connection.settled.send((seq, outcome));
        }
        drop(state);
        self.settled.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muxtap_engine::Options;

    fn typed() -> Typed {
        Typed::Text("x".into())
    }

    fn nowhere() -> Result<Pane> {
        Err(Error::not_found("no pane"))
    }

    #[tokio::test]
    async fn each_input_number_is_applied_once_and_in_order() {
        let engine = Engine::new(Options::default());
        let lines = Lines::default();
        let mut first = lines.attach(&engine, None).unwrap();
        assert!(first.line.take(2, typed(), nowhere()).is_some_and(|outcome| outcome.is_err()), "1 is missing");
        assert!(first.line.take(1, typed(), nowhere()).is_none());
        let (seq, outcome) = first.settled.recv().await.unwrap();
        assert_eq!((seq, outcome.unwrap_err().code), (1, ErrorCode::NotFound));
        assert!(
            first.line.take(1, typed(), nowhere()).is_some_and(|outcome| outcome.is_err()),
            "the same outcome again"
        );
        // Another connection continues the line, and ends the first.
        let second = lines.attach(&engine, Some(&first.line.id)).unwrap();
        assert!(first.replaced.is_cancelled() && !second.replaced.is_cancelled());
        assert_eq!((second.taken, second.refused.len(), second.line.id == first.line.id), (1, 1, true));
        drop(first);
        assert!(second.line.lock().left.is_none(), "the first one's end is nothing to the line");
        assert!(second.line.take(2, typed(), nowhere()).is_none());
        let id = second.line.id.clone();
        drop(second);
        assert_eq!(lines.attach(&engine, Some(&id)).unwrap().taken, 2);
        let unknown = lines.attach(&engine, Some("unknown")).unwrap();
        assert_eq!((unknown.taken, unknown.line.id == "unknown"), (0, false));
        engine.stop().await;
    }

    #[tokio::test]
    async fn a_line_that_is_handed_over_takes_each_number_once_in_the_next_daemon() {
        let engine = Engine::new(Options::default());
        let lines = Lines::default();
        let first = lines.attach(&engine, None).unwrap();
        assert!(first.line.take(1, typed(), nowhere()).is_none());
        let held = lines.hold().await;
        // 1 has its outcome. A page does not wait for outcomes: what it sends now is ignored, without
        // a refusal, after which it would not send the input again.
        for seq in 2..=5 {
            assert!(first.line.take(seq, typed(), nowhere()).is_none(), "{seq}");
        }
        // Requests are still carried out: a page may connect.
        let late = lines.attach(&engine, None).unwrap();
        assert!(late.line.take(1, typed(), nowhere()).is_none());
        let stored = serde_json::to_string(&held.store()).unwrap();
        let next = Lines::default();
        next.restore(&engine, serde_json::from_str(&stored).unwrap());
        let continued = next.attach(&engine, Some(&first.line.id)).unwrap();
        assert_eq!((continued.taken, continued.refused.len()), (1, 1));
        let late_continued = next.attach(&engine, Some(&late.line.id)).unwrap();
        assert_eq!((&late_continued.line.id, late_continued.taken), (&late.line.id, 0));
        assert!(continued.line.take(1, typed(), nowhere()).is_some_and(|outcome| outcome.is_err()), "the same outcome");
        for seq in 2..=5 {
            assert!(continued.line.take(seq, typed(), nowhere()).is_none(), "{seq}");
        }
        assert_eq!(continued.line.lock().taken, 5);
        // If the handover fails, the page connects again and sends what was ignored. What its first
        // connection still contains is ignored as well.
        assert!(!first.end.is_cancelled());
        drop(held);
        assert!(first.end.is_cancelled());
        for seq in [6, 2] {
            assert!(first.line.take(seq, typed(), nowhere()).is_none(), "{seq}");
        }
        let again = lines.attach(&engine, Some(&first.line.id)).unwrap();
        assert_eq!(again.taken, 1);
        for seq in 2..=6 {
            assert!(again.line.take(seq, typed(), nowhere()).is_none(), "{seq}");
        }
        assert_eq!(again.line.lock().taken, 6);
        assert!(again.line.take(8, typed(), nowhere()).is_some_and(|outcome| outcome.is_err()), "7 is missing");
        let quiet = lines.attach(&engine, None).unwrap();
        drop(lines.hold().await);
        assert!(!quiet.end.is_cancelled(), "nothing was ignored");
        engine.stop().await;
    }

    #[tokio::test]
    async fn lines_are_bounded() {
        let engine = Engine::new(Options::default());
        let lines = Lines::default();
        let held: Vec<_> = (0..LINES).map(|_| lines.attach(&engine, None).unwrap()).collect();
        assert_eq!(lines.attach(&engine, None).err().map(|error| error.code), Some(ErrorCode::ResourceLimit));
        // Connections that may not type do not count, and need no line.
        let readers: Vec<_> = (0..LINES).map(|_| Lines::attach_reader(&engine).unwrap()).collect();
        drop(held);
        assert!(lines.attach(&engine, None).is_ok());
        let named = lines.attach(&engine, Some(&readers[0].line.id)).unwrap();
        assert_ne!(named.line.id, readers[0].line.id, "a reader's line is unknown to others");
        engine.stop().await;
    }
}
