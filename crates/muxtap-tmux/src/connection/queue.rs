//! The requests of one connection: those not written yet, and those without a reply yet.
//!
//! Replies come in the order of the requests, so the next reply always belongs to the oldest
//! request. The connection checks this queue once in a [`TICK`] while a request is open, and its limits
//! count ticks instead of reading a clock: time in which this process itself was stopped does not count.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read as _},
    sync::Arc,
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use muxtap_base::metrics;
use muxtap_core::protocol::{
    command::{Command, CommandLine},
    frame::{FrameKey, framed},
};
use tokio::time::Instant;
use tokio::{net::unix::pipe, sync::OwnedSemaphorePermit};

use super::{Answer, Callback, Lost, Request};

/// The interval at which the open requests of a connection are checked.
pub(super) const TICK: Duration = Duration::from_millis(500);
/// A server that sends nothing at all for this long while a request is open is silent.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(5);
/// The longest that a caller waits for a reply, and that a connection on which recent output flows
/// may stay without any reply.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(15);
/// Bytes that may wait for tmux to read them; with more, requests of callers are refused. The
/// largest input takes this much if each of its bytes has to be quoted.
const QUEUE_BYTES: usize = 64 * 1024 * 1024;
/// Requests that may wait for their replies; with more, requests of callers are refused.
const QUEUE_REQUESTS: usize = 16384;

/// The size of a pipe if the system does not report it: Linux's default (pipe(7)).
const PIPE_BYTES: usize = 64 * 1024;
/// The longest that a connection may stay without any reply while it is behind with its output.
/// tmux pauses a pane for a client that is a minute behind (`pause-after=60`), and then replies
/// continue.
pub const BACKLOG_LIMIT: Duration = Duration::from_secs(75);
/// Output that lay in the server for this long shows that the connection is behind: a reply waits
/// in the same line (N27).
pub const OLD_OUTPUT: Duration = Duration::from_secs(5);

const SILENCE_TICKS: u64 = ticks(SILENCE_LIMIT);
const ANSWER_TICKS: u64 = ticks(ANSWER_LIMIT);
const BACKLOG_TICKS: u64 = ticks(BACKLOG_LIMIT);

const fn ticks(limit: Duration) -> u64 {
    (limit.as_millis() / TICK.as_millis()) as u64
}

/// The time limit of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeLimit {
    /// For a caller: the reply or an error comes in time.
    Limited,
    /// For the server's coverage: the reply is useful whenever it comes.
    Unlimited,
}

/// The requests of one connection.
pub(super) struct Queue {
    /// The pipe for requests; `None` once nothing can be sent any more.
    pipe: Option<Arc<pipe::Sender>>,
    /// The read end of the same pipe, for taking back what tmux has not read; not on every system.
    unread: Option<File>,
    key: FrameKey,
    unsent: BytesMut,
    /// The position in the stream of requests of the first byte of `unsent`.
    written: u64,
    pending: VecDeque<Pending>,
    next_frame: u64,
    /// The number of replies so far.
    answered: u64,
    watch: TickState,
    silent: bool,
    /// The position in the stream of requests from which on none is sent.
    barred: Option<u64>,
    /// The calls of [`Self::bar`] without an [`Self::unbar`].
    bars: usize,
}

/// The state at the last tick.
#[derive(Default)]
struct TickState {
    /// Whether the tending task checks at each tick.
    running: bool,
    now: u64,
    reads: u64,
    answered: u64,
    /// Ticks without a byte.
    quiet: u64,
    /// Ticks without a reply.
    stuck: u64,
    /// Ticks without a reply during which no old output came.
    stuck_up_to_date: u64,
}

struct Pending {
    /// The name of its first command, and when it was sent, for the metrics.
    name: &'static str,
    sent: Instant,
    /// The position of its first byte in the stream of requests.
    begin: u64,
    asked: u64,
    limit: TimeLimit,
    blocks: usize,
    bodies: Vec<Bytes>,
    frame: Option<u64>,
    /// Taken when the caller got an error before tmux's reply, which may still come.
    done: Option<Callback>,
    /// Its turn among changes of the server, released when tmux has certainly read it.
    turn: Option<OwnedSemaphorePermit>,
}

/// Callbacks and their arguments; to be called without the queue's lock.
#[derive(Default)]
pub(super) struct Callbacks(Vec<(Callback, Result<Answer, Lost>)>);

impl Callbacks {
    fn one(done: Option<Callback>, answer: Result<Answer, Lost>) -> Self {
        Self(done.map(|done| (done, answer)).into_iter().collect())
    }

    /// Returns whether the list is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Calls all callbacks, even if one panics; returns false in that case.
    pub(super) fn call(self) -> bool {
        let mut well = true;
        for (done, answer) in self.0 {
            well &= std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| done(answer))).is_ok();
        }
        well
    }
}

/// The state of a connection after a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TickOutcome {
    /// Nothing is open: no further tick is needed.
    Idle,
    /// Replies may still come.
    Open,
    /// The server counts as silent from now on.
    Silent,
    /// The server sends output, but no replies on this connection.
    Stuck,
}

impl Queue {
    pub(super) fn new(pipe: Arc<pipe::Sender>, unread: Option<File>, key: FrameKey) -> Self {
        Self {
            pipe: Some(pipe),
            unread,
            key,
            unsent: BytesMut::new(),
            written: 0,
            pending: VecDeque::new(),
            next_frame: 0,
            answered: 0,
            watch: TickState::default(),
            silent: false,
            barred: None,
            bars: 0,
        }
    }

    /// Sends no further request until [`Self::unbar`], once for each call.
    pub(super) fn bar(&mut self) {
        self.bars += 1;
        self.barred.get_or_insert(self.written + self.unsent.len() as u64);
    }

    /// Sends requests again, and those that came meanwhile.
    pub(super) fn unbar(&mut self) {
        self.bars = self.bars.saturating_sub(1);
        if self.bars == 0 {
            self.barred = None;
            self.write();
        }
    }

    /// Returns whether each request that was to be sent has its reply, and none is sent now.
    pub(super) fn is_drained(&self) -> bool {
        let is_sent = |pending: &Pending, bar: u64| pending.begin < bar;
        self.barred.is_some_and(|bar| {
            self.pipe.is_some() && self.written >= bar && !self.pending.front().is_some_and(|first| is_sent(first, bar))
        })
    }

    /// Returns the unsent bytes that may be sent now.
    fn sendable(&self) -> &[u8] {
        let length = match self.barred {
            Some(bar) => usize::try_from(bar.saturating_sub(self.written)).unwrap_or(usize::MAX),
            None => usize::MAX,
        };
        self.unsent.get(..length.min(self.unsent.len())).unwrap_or_default()
    }

    /// Appends a request and writes what the pipe takes. If the request cannot be sent, its
    /// callback is among those returned, to be called at once.
    pub(super) fn push(&mut self, request: Request, limit: TimeLimit, done: Callback) -> Callbacks {
        if self.pipe.is_none() {
            return Callbacks::one(Some(done), Err(Lost::Ended));
        }
        let full = self.unsent.len() > QUEUE_BYTES || self.pending.len() > QUEUE_REQUESTS;
        if limit == TimeLimit::Limited && (self.silent || full) {
            return Callbacks::one(Some(done), Err(Lost::Unsent));
        }
        let name = request.name();
        let (bytes, blocks, frame) = match request {
            Request::Plain(line) => (line.render(), line.commands().len(), None),
            Request::Framed(commands) => {
                (framed(&self.key, self.next_frame, &commands), commands.len(), Some(self.next_frame))
            }
        };
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error) => return Callbacks::one(Some(done), Ok(Err(error.to_string()))),
        };
        self.next_frame += u64::from(frame.is_some());
        let begin = self.written + self.unsent.len() as u64;
        self.unsent.extend_from_slice(&bytes);
        let asked = self.watch.now;
        self.pending.push_back(Pending {
            name,
            sent: Instant::now(),
            begin,
            asked,
            limit,
            blocks,
            bodies: Vec::new(),
            frame,
            done: Some(done),
            turn: None,
        });
        self.write();
        Callbacks::default()
    }

    /// Gives the newest request its turn, which it keeps until tmux has read it.
    pub(super) fn keep_turn(&mut self, turn: OwnedSemaphorePermit) {
        if let Some(last) = self.pending.back_mut() {
            last.turn = Some(turn);
        }
    }

    /// Writes what the pipe takes. The rest stays in `unsent`; the draining task notices a broken
    /// pipe.
    pub(super) fn write(&mut self) {
        let Some(pipe) = &self.pipe else { return };
        while !self.sendable().is_empty() {
            match pipe.try_write(self.sendable()) {
                Ok(written) => {
                    self.unsent.advance(written);
                    self.written += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    // The client has gone. Its output ends too, and the draining task notices that.
                    self.unsent.clear();
                    self.pipe = None;
                    return;
                }
            }
        }
    }

    /// Returns whether requests can still be sent.
    pub(super) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Returns whether bytes wait for space in the pipe.
    pub(super) fn has_unsent(&self) -> bool {
        self.pipe.is_some() && !self.sendable().is_empty()
    }

    /// Returns whether the server has sent nothing for [`SILENCE_LIMIT`] while a request was open,
    /// nor since.
    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    /// Returns true once when ticks are needed after a pause: the caller then starts them.
    pub(super) fn begins_watch(&mut self) -> bool {
        let begins = !self.watch.running && !self.pending.is_empty();
        if begins {
            self.watch = TickState { running: true, answered: self.answered, ..std::mem::take(&mut self.watch) };
            (self.watch.quiet, self.watch.stuck, self.watch.stuck_up_to_date) = (0, 0, 0);
        }
        begins
    }

    pub(super) fn is_watched(&self) -> bool {
        self.watch.running
    }

    /// Takes a plain block that ended. A line that fails gives no further blocks (F14). `None`: the
    /// block belongs to no request.
    pub(super) fn replied(&mut self, ok: bool, body: &Bytes) -> Option<Callbacks> {
        self.was_answered();
        let front = self.pending.front_mut().filter(|pending| pending.frame.is_none())?;
        if ok {
            front.bodies.push(body.clone());
            if front.bodies.len() < front.blocks {
                return Some(Callbacks::default());
            }
        }
        let Pending { bodies, done, name, sent, .. } = self.pending.pop_front()?;
        metrics::tmux_command(name, sent.elapsed());
        Some(Callbacks::one(done, Ok(if ok { Ok(bodies) } else { Err(message(body)) })))
    }

    /// Takes a frame that ended. `None`: the frame belongs to no request.
    pub(super) fn framed(&mut self, parts: Vec<Bytes>, error: Option<&Bytes>) -> Option<Callbacks> {
        self.was_answered();
        self.pending.front().filter(|pending| pending.frame.is_some())?;
        let Pending { done, name, sent, .. } = self.pending.pop_front()?;
        metrics::tmux_command(name, sent.elapsed());
        Some(Callbacks::one(done, Ok(error.map_or(Ok(parts), |error| Err(message(error))))))
    }

    fn was_answered(&mut self) {
        self.answered += 1;
        self.silent = false;
    }

    /// Checks the open requests. `reads` counts the reads from the server so far; `oldest` is how
    /// long the oldest output since the last tick lay in the server.
    pub(super) fn tick(&mut self, reads: u64, oldest: Duration) -> (TickOutcome, Callbacks) {
        if self.is_drained() {
            // Nothing is read, so nothing is late.
            (self.watch.quiet, self.watch.stuck, self.watch.stuck_up_to_date) = (0, 0, 0);
            return (TickOutcome::Open, Callbacks::default());
        }
        let watch = &mut self.watch;
        watch.now += 1;
        let received = std::mem::replace(&mut watch.reads, reads) != reads;
        let answered = std::mem::replace(&mut watch.answered, self.answered) != self.answered;
        if self.pending.is_empty() {
            watch.running = false;
            self.silent = false;
            return (TickOutcome::Idle, Callbacks::default());
        }
        if received {
            // A server that prints also reads: the reply is only behind output.
            let (now, written) = (watch.now, self.written);
            let read = self.pending.iter_mut().filter(|pending| pending.begin < written && pending.asked + 1 < now);
            read.for_each(|pending| drop(pending.turn.take()));
        }
        watch.quiet = if received { 0 } else { watch.quiet + 1 };
        self.silent &= !received;
        // A server that sends nothing at all is not judged by its missing replies.
        watch.stuck = if answered || self.silent { 0 } else { watch.stuck + 1 };
        watch.stuck_up_to_date = if watch.stuck == 0 || oldest >= OLD_OUTPUT { 0 } else { watch.stuck_up_to_date + 1 };
        if watch.stuck_up_to_date >= ANSWER_TICKS || watch.stuck >= BACKLOG_TICKS {
            return (TickOutcome::Stuck, Callbacks::default());
        }
        if !self.silent && watch.quiet >= SILENCE_TICKS {
            self.silent = true;
            let mut answers = self.withdraw();
            answers.0.extend(self.give_up(|_| true).0);
            // The first thing that a server sends when it continues is the reply to this.
            let probe = CommandLine::of([Command::new("display-message").flag("-p").arg("")]);
            answers.0.extend(self.push(Request::Plain(probe), TimeLimit::Unlimited, Box::new(|_| {})).0);
            return (TickOutcome::Silent, answers);
        }
        let now = self.watch.now;
        (TickOutcome::Open, self.give_up(|asked| asked + ANSWER_TICKS <= now))
    }

    /// Ends the callers' requests sent at such a tick with an error; their replies may still come
    /// and are then dropped.
    fn give_up(&mut self, late: impl Fn(u64) -> bool) -> Callbacks {
        let open = self.pending.iter_mut().take_while(|pending| late(pending.asked));
        let limited = open.filter(|pending| pending.limit == TimeLimit::Limited);
        Callbacks(limited.filter_map(|pending| Some((pending.done.take()?, Err(Lost::Unanswered)))).collect())
    }

    /// Takes back callers' requests of which tmux has not read a byte: they will never run.
    fn withdraw(&mut self) -> Callbacks {
        self.take_back();
        let base = self.written;
        let unread = std::mem::take(&mut self.unsent);
        let end = base + unread.len() as u64;
        let ends: Vec<_> = self.pending.iter().map(|pending| pending.begin).skip(1).chain([end]).collect();
        let mut answers = Callbacks::default();
        for (mut pending, end) in std::mem::take(&mut self.pending).into_iter().zip(ends) {
            let at = |position: u64| position.saturating_sub(base) as usize;
            let own = unread.get(at(pending.begin)..at(end)).unwrap_or_default();
            if pending.begin < base || pending.limit == TimeLimit::Unlimited {
                pending.begin = if pending.begin < base { pending.begin } else { base + self.unsent.len() as u64 };
                self.unsent.extend_from_slice(own);
                self.pending.push_back(pending);
                continue;
            }
            if let Some(seq) = pending.frame {
                self.key.forget(seq);
            }
            answers.0.extend(pending.done.map(|done| (done, Err(Lost::Unsent))));
        }
        answers
    }

    /// Reads back what tmux has left in the pipe, and puts it before the unsent bytes.
    fn take_back(&mut self) {
        let Some(unread) = &mut self.unread else { return };
        let size = pipe_size(unread);
        // One call reads the whole content of a pipe. Between two calls tmux could read bytes from
        // the middle, and would begin with half a line.
        let mut back = vec![0; size];
        let read = unread.read(&mut back).unwrap_or(0);
        back.truncate(read);
        self.written -= back.len() as u64;
        back.extend_from_slice(&self.unsent);
        self.unsent = BytesMut::from(back.as_slice());
    }

    /// Ends the queue: nothing more is sent, and all open requests end with `fate`.
    pub(super) fn shut(&mut self, fate: Lost) -> Callbacks {
        self.pipe = None;
        self.unread = None;
        let open = std::mem::take(&mut self.pending).into_iter();
        Callbacks(open.filter_map(|pending| Some((pending.done?, Err(fate)))).collect())
    }
}

/// Returns the number of bytes that a pipe holds.
#[cfg(target_os = "linux")]
fn pipe_size(pipe: &File) -> usize {
    rustix::pipe::fcntl_getpipe_size(pipe).unwrap_or(PIPE_BYTES)
}

#[cfg(not(target_os = "linux"))]
fn pipe_size(_: &File) -> usize {
    PIPE_BYTES
}

fn message(body: &[u8]) -> String {
    String::from_utf8_lossy(body).trim().to_owned()
}
