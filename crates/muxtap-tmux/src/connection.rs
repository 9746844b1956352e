//! One control client: a `tmux -C` process, a task that drains it and a queue of requests.
//!
//! The draining task parses, hands events over and does nothing else (F11). A request's reply is
//! given to its callback *in that task, in the order of the wire*: all that a pane printed before
//! tmux ran the command has been handed over by then. (While other panes flood, what it printed
//! afterward may have been too, N27.)
//!
//! A second task, the *tending* one, writes what a full pipe did not take and checks the open
//! requests ([`Queue::tick`]):
//!
//! - A server that sends nothing at all for `SILENCE_LIMIT` while requests are open is *silent*.
//!   Callers get [`Lost::Unsent`] if their request could be taken back, else [`Lost::Unanswered`];
//!   further callers are refused at once. The connection stays: nothing is lost on it, and it
//!   continues with the first byte that comes.
//! - A connection on which recent output flows without a reply for [`ANSWER_LIMIT`] is given up:
//!   its client is killed. (A prompt of tmux's own can block a client's commands forever.)
//!
//! A panic in either task gives the connection up as well, so that every request ends.

mod client;
mod queue;

use std::{
    any::Any,
    future::poll_fn,
    io,
    os::fd::AsFd as _,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt};
use muxtap_api::{Error, Result};
use muxtap_base::metrics;
use muxtap_core::protocol::{
    codec::{ControlCodec, Event},
    command::{Command as TmuxCommand, CommandLine},
    frame::FrameKey,
};
use tokio::{
    net::unix::pipe,
    sync::{Notify, SetOnce, oneshot},
};
use tokio_util::{codec::FramedRead, sync::CancellationToken, task::TaskTracker};

use self::{
    client::{CountingReader, PipeCodec, Process, ProcessHandle},
    queue::{Queue, TICK, TickOutcome, TimeLimit},
};
use super::{link::unreadable, program::Client, routes::Routes};

pub(super) use client::{ClientDescriptors, Opened, StoredClient};
#[cfg(test)]
pub(super) use queue::BACKLOG_LIMIT;
pub(super) use queue::{ANSWER_LIMIT, SILENCE_LIMIT};

/// Maximum number of bytes per read from a client, and the size requested for its pipe.
const READ_CHUNK: usize = 256 * 1024;
/// Maximum number of bytes of output that are handed over in a row: then the thread's other tasks run. Under
/// a flood the next event is always ready.
const IN_A_ROW: usize = 32 * 1024;
/// The bytes that an event counts for, beside its output.
const EVENT_BYTES: usize = 128;
/// Time that a client has to exit after its input was closed.
pub(super) const LEAVE_LIMIT: Duration = Duration::from_secs(2);

/// A request to tmux.
pub enum Request {
    /// Commands whose replies carry no text of a pane.
    Plain(CommandLine),
    /// Commands whose replies may contain arbitrary text; framed by a nonce (F13).
    Framed(Vec<TmuxCommand>),
}

impl Request {
    /// Returns the name of its first command; `none` if it has none.
    pub fn name(&self) -> &'static str {
        let commands = match self {
            Self::Plain(line) => line.commands(),
            Self::Framed(commands) => commands,
        };
        commands.first().map_or("none", TmuxCommand::name)
    }
}

/// A reply of tmux: a body for each command, or its error message.
pub type Answer = Result<Vec<Bytes>, String>;

/// The reason why a request has no reply from tmux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The connection ended; whether tmux ran the request is unknown.
    Ended,
    /// The request was sent, and no reply came in time; tmux may still run it.
    Unanswered,
    /// tmux read nothing of the request, and never will.
    Unsent,
    /// The reply does not belong to the command of this name.
    Unreadable(&'static str),
}

impl Lost {
    /// Returns the error for a caller of a change: `what` ("the input").
    pub fn of_change(self, what: &str) -> Error {
        let message = match self {
            Self::Ended => format!(
                "the connection to tmux was lost before it replied; whether {what} was done is not known: check before \
                 retrying"
            ),
            Self::Unanswered => format!(
                "tmux does not respond: {what} was sent, and whether it is or will be done is not known; check before \
                 retrying"
            ),
            Self::Unsent => format!(
                "tmux does not respond: {what} was not sent and will not be; is the server stopped or overloaded?"
            ),
            Self::Unreadable(command) => return unreadable(command),
        };
        Error::unavailable(message).with_details(serde_json::json!({ "sent": self != Self::Unsent }))
    }
}

impl From<Lost> for Error {
    /// Returns the error for a caller of a query, which changes nothing.
    fn from(lost: Lost) -> Self {
        Self::unavailable(match lost {
            Lost::Unreadable(command) => return unreadable(command),
            Lost::Ended => "the connection to tmux was lost before it replied; retry",
            Lost::Unanswered => {
                "tmux does not respond: it sent no reply to a query; is the server stopped or overloaded?"
            }
            Lost::Unsent => "tmux does not respond: it accepts no requests; is the server stopped or overloaded?",
        })
    }
}

type Callback = Box<dyn FnOnce(Result<Answer, Lost>) + Send>;

/// Receives a connection's events, in the order of the wire, in its draining task.
pub trait Receiver: Send + Sync + 'static {
    /// Receives an event other than a reply. `routes`: the draining task's cache of where output
    /// goes.
    fn event(self: &Arc<Self>, connection: &Connection, event: Event, routes: &mut Routes);
    /// Reports that the server sends no replies; called in the tending task. The connection stays,
    /// and may continue at any time.
    fn silent(self: &Arc<Self>, connection: &Connection);
    /// Reports that the client has gone; called once, last.
    fn closed(self: &Arc<Self>, connection: &Connection, why: Error);
}

/// A handle to one control client; clones are the same client.
#[derive(Clone)]
pub struct Connection(Arc<Shared>);

struct Shared {
    id: u64,
    name: String,
    queue: Mutex<Queue>,
    /// Notified when the tending task has work.
    more: Notify,
    /// The number of reads from the server so far.
    reads: AtomicU64,
    /// The time that the oldest output since the last tick lay in the server, in milliseconds.
    oldest_ms: AtomicU64,
    /// Whether all that came was read when the draining task looked last.
    is_caught_up: AtomicBool,
    /// Notified when it is.
    caught_up: Notify,
    /// Notified when a silent server has sent something.
    spoke: Notify,
    /// Set once the client is to exit. The draining task checks it before each event, so it is an
    /// atomic.
    close: SetOnce<()>,
    /// The request to stop reading, until the draining task takes it.
    pause: Mutex<Option<PauseRequest>>,
    /// Whether there is one. The draining task checks it before each event, so it is an atomic.
    is_pause_asked: AtomicBool,
    /// Notified with such a request.
    pause_asked: Notify,
    /// The reason why the connection was given up, and its client killed.
    given_up: OnceLock<Lost>,
    closed: CancellationToken,
}

impl Shared {
    /// Makes the client exit; a second call changes nothing.
    fn begin_close(&self) {
        let _ = self.close.set(());
    }
}

/// A request to stop reading.
struct PauseRequest {
    /// Gets what another process needs for continuing.
    paused: oneshot::Sender<io::Result<(StoredClient, ClientDescriptors)>>,
    /// Resolves with a value when another process continues; without a value when this one does.
    over: oneshot::Receiver<()>,
}

/// A connection that is not read and to which no request is sent. Dropped, it goes on.
pub(super) struct PausedConnection {
    pub(super) stored: StoredClient,
    pub(super) descriptors: ClientDescriptors,
    /// The number of the client's descriptors.
    pub(super) descriptor_count: usize,
    over: oneshot::Sender<()>,
}

impl PausedConnection {
    /// Leaves the connection to another process: here it ends, and its client lives on.
    pub(super) fn leave(self) {
        // The connection may have ended meanwhile.
        let _ = self.over.send(());
    }
}

/// An attempt to stop a connection. Its drop withdraws a request that was not taken.
struct PauseAttempt<'a>(&'a Connection);

impl Drop for PauseAttempt<'_> {
    fn drop(&mut self) {
        if self.0.take_pause().is_some() {
            self.0.unbar();
        }
    }
}

/// How the reading of a connection ended.
enum Ended {
    /// The client has gone, for this reason if the stream reported one.
    Gone(String),
    /// Another process continues.
    Left,
}

/// The count of reads that a connection and its reader share.
struct ReadCount(Arc<Shared>);

impl AsRef<AtomicU64> for ReadCount {
    fn as_ref(&self) -> &AtomicU64 {
        &self.0.reads
    }
}

type Wire = FramedRead<CountingReader<pipe::Receiver, ReadCount>, PipeCodec>;

impl Connection {
    /// Starts a control client. Events go to `receiver` as soon as they come.
    pub fn open(id: u64, client: Client, receiver: Arc<impl Receiver>, tasks: &TaskTracker) -> io::Result<Self> {
        Ok(Self::over(id, Opened::spawn(client, tasks)?, receiver, tasks))
    }

    /// Creates the connection over pipes that are open.
    pub(super) fn over(id: u64, opened: Opened, receiver: Arc<impl Receiver>, tasks: &TaskTracker) -> Self {
        let key = FrameKey::default();
        Self::with_codec(id, opened, ControlCodec::new(key.clone()), key, receiver, tasks)
    }

    /// Continues a connection that another process has handed over. Events go to `receiver` as soon
    /// as they come.
    pub(super) fn continued(id: u64, opened: Opened, receiver: Arc<impl Receiver>, tasks: &TaskTracker) -> Self {
        let key = FrameKey::default();
        Self::with_codec(id, opened, ControlCodec::continued(key.clone()), key, receiver, tasks)
    }

    fn with_codec(
        id: u64,
        opened: Opened,
        codec: ControlCodec,
        key: FrameKey,
        receiver: Arc<impl Receiver>,
        tasks: &TaskTracker,
    ) -> Self {
        let Opened { name, reader, writer, unread, process, head } = opened;
        let writer = Arc::new(writer);
        let connection = Self(Arc::new(Shared {
            id,
            name,
            queue: Mutex::new(Queue::new(writer.clone(), unread, key)),
            more: Notify::new(),
            reads: AtomicU64::new(0),
            oldest_ms: AtomicU64::new(0),
            is_caught_up: AtomicBool::new(false),
            caught_up: Notify::new(),
            spoke: Notify::new(),
            close: SetOnce::new(),
            pause: Mutex::default(),
            is_pause_asked: AtomicBool::new(false),
            pause_asked: Notify::new(),
            given_up: OnceLock::new(),
            closed: CancellationToken::new(),
        }));
        let tending = connection.clone().tend(writer.clone(), receiver.clone());
        let this = connection.clone();
        tasks.spawn(async move {
            if let Err(panic) = AssertUnwindSafe(tending).catch_unwind().await {
                this.failed(&*panic);
            }
        });
        let counted = CountingReader { head, inner: reader, reads: ReadCount(connection.0.clone()) };
        let stream = FramedRead::with_capacity(counted, PipeCodec(codec), READ_CHUNK);
        tasks.spawn(connection.clone().drain(stream, writer, process, receiver));
        connection
    }

    /// Stops reading and sending, once all requests that were sent have their replies: at the beginning
    /// of a line. Further requests wait. Error: the connection has ended, or is being paused for another
    /// caller.
    pub(super) async fn pause(&self) -> Result<PausedConnection> {
        let gone = |error: String| Error::unavailable(format!("{} cannot be handed over: {error}", self.name()));
        let (paused, is_paused) = oneshot::channel();
        let (over, is_over) = oneshot::channel();
        if !self.begin_pause(PauseRequest { paused, over: is_over }) {
            return Err(gone("it is being handed over already".to_owned()));
        }
        // A caller may give up.
        let _attempt = PauseAttempt(self);
        // The draining task answers no request that comes after it has ended.
        if !self.queue().is_open() {
            return Err(gone("it has ended".to_owned()));
        }
        self.0.pause_asked.notify_one();
        let paused = is_paused.await.map_err(|_| gone("it has ended".to_owned()))?;
        let (stored, descriptors) = paused.map_err(|error| gone(error.to_string()))?;
        Ok(PausedConnection { stored, descriptor_count: descriptors.len(), descriptors, over })
    }

    /// Sets the request to stop reading, and sends nothing more. Returns false if there is one already.
    fn begin_pause(&self, request: PauseRequest) -> bool {
        let mut pause = self.0.pause.lock().unwrap_or_else(PoisonError::into_inner);
        if pause.is_some() {
            return false;
        }
        self.queue().bar();
        self.0.is_pause_asked.store(true, Ordering::Release);
        *pause = Some(request);
        true
    }

    /// Takes the request to stop reading.
    fn take_pause(&self) -> Option<PauseRequest> {
        let mut pause = self.0.pause.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, so that both change together.
        self.0.is_pause_asked.store(false, Ordering::Release);
        pause.take()
    }

    /// Sends requests again.
    fn unbar(&self) {
        self.queue().unbar();
        self.0.more.notify_one();
    }

    /// Returns whether the connection is to stop reading, and can.
    fn is_pause_due(&self, stream: &Wire) -> bool {
        self.0.is_pause_asked.load(Ordering::Acquire) && stream.decoder().0.is_at_rest() && self.queue().is_drained()
    }

    /// Returns the next event; `None` when the connection can stop instead. The last line that a pause
    /// waits for may be one without an event.
    async fn next_event(&self, stream: &mut Wire) -> Option<Option<io::Result<Event>>> {
        poll_fn(|context| {
            let polled = stream.poll_next_unpin(context);
            self.set_caught_up(polled.is_pending());
            match polled {
                Poll::Ready(event) => Poll::Ready(Some(event)),
                Poll::Pending if self.is_pause_due(stream) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    fn set_caught_up(&self, is_caught_up: bool) {
        // Read for each event, and seldom written.
        if self.0.is_caught_up.load(Ordering::Relaxed) != is_caught_up {
            self.0.is_caught_up.store(is_caught_up, Ordering::Relaxed);
            self.0.caught_up.notify_waiters();
        }
    }

    /// Resolves when all that came was read, or when the connection has ended.
    pub(super) async fn caught_up(&self) {
        // Bytes that arrived just now must be noticed first.
        tokio::task::yield_now().await;
        let mut caught_up = pin!(self.0.caught_up.notified());
        loop {
            // First: it may change from here on.
            caught_up.as_mut().enable();
            if self.0.is_caught_up.load(Ordering::Relaxed) {
                return;
            }
            tokio::select! {
                () = caught_up.as_mut() => caught_up.set(self.0.caught_up.notified()),
                () = self.0.closed.cancelled() => return,
            }
        }
    }

    /// Stops reading until the request is over. Returns whether another process continues.
    async fn rest(&self, stream: &Wire, writer: &pipe::Sender, process: &ProcessHandle, request: PauseRequest) -> bool {
        let stored = async {
            let reader = &stream.get_ref().inner;
            let pipes = [writer.as_fd().try_clone_to_owned()?, reader.as_fd().try_clone_to_owned()?];
            let head = [stream.read_buffer(), &stream.get_ref().head[..]].concat();
            process.pause((self.id(), self.name()), pipes, head).await
        };
        let PauseRequest { mut paused, over } = request;
        let stored = tokio::select! {
            stored = stored => stored,
            // A relay may take forever to pass on what a stopped server does not read.
            () = paused.closed() => Err(io::ErrorKind::TimedOut.into()),
        };
        let (handed, relay_end) = match stored {
            Ok((stored, descriptors, relay_end)) => (Ok((stored, descriptors)), relay_end),
            Err(error) => (Err(error), None),
        };
        // The requester may have given up.
        let _ = paused.send(handed);
        let is_left = over.await.is_ok();
        if is_left {
            // A relay that has ended needs no end.
            relay_end.map(|end| end.send(()));
        } else {
            drop(relay_end);
            self.unbar();
        }
        is_left
    }

    /// Returns the connection's number; unique in its server.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Returns the name under which a local server lists this client.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Sends a request without a time limit; `done` is called in the draining task when the reply
    /// comes or the connection ends. For requests of the server's coverage, which are at most as
    /// many as its panes.
    pub fn submit(&self, request: Request, done: impl FnOnce(Result<Answer, Lost>) + Send + 'static) {
        self.push(request, TimeLimit::Unlimited, None, Box::new(done));
    }

    /// Sends a request for a caller. `done` is called with the reply, or with an error after
    /// `queue::ANSWER_LIMIT` at the latest.
    pub fn submit_in_time(&self, request: Request, done: impl FnOnce(Result<Answer, Lost>) + Send + 'static) {
        self.push(request, TimeLimit::Limited, None, Box::new(done));
    }

    /// Sends a change in its turn: no other change is sent until tmux has read this one. Limited
    /// like [`Self::submit_in_time`] if a caller waits, else unlimited like [`Self::submit`].
    pub fn submit_change(
        &self,
        request: Request,
        is_awaited: bool,
        turn: Option<tokio::sync::OwnedSemaphorePermit>,
        done: impl FnOnce(Result<Answer, Lost>) + Send + 'static,
    ) {
        let limit = if is_awaited { TimeLimit::Limited } else { TimeLimit::Unlimited };
        self.push(request, limit, turn, Box::new(done));
    }

    fn push(
        &self,
        request: Request,
        limit: TimeLimit,
        turn: Option<tokio::sync::OwnedSemaphorePermit>,
        done: Callback,
    ) {
        metrics::TMUX_COMMANDS.increment(1);
        let mut queue = self.queue();
        let refused = queue.push(request, limit, done);
        if let Some(turn) = turn.filter(|_| refused.is_empty()) {
            queue.keep_turn(turn);
        }
        let wakes = queue.begins_watch() | queue.has_unsent();
        drop(queue);
        if wakes {
            self.0.more.notify_one();
        }
        refused.call();
    }

    /// Sends a request and awaits the reply for at most `queue::ANSWER_LIMIT`. An error message of
    /// tmux is the inner error.
    pub async fn ask(&self, request: Request) -> Result<Answer, Lost> {
        let (sender, receiver) = oneshot::channel();
        self.submit_in_time(request, move |answer| {
            // The caller may have given up.
            let _ = sender.send(answer);
        });
        receiver.await.unwrap_or(Err(Lost::Ended))
    }

    /// Makes the client exit: closes its input, so it detaches by itself. A client of a silent
    /// server would not, so it is killed.
    pub fn close(&self) {
        if self.is_silent() {
            self.give_up(Lost::Unanswered);
        }
        self.0.begin_close();
    }

    /// Kills the client, and ends all open requests with `fate`.
    pub fn give_up(&self, fate: Lost) {
        // The first reason counts.
        let _ = self.0.given_up.set(fate);
        self.0.begin_close();
    }

    /// Resolves when the client has gone and its process has ended.
    pub async fn closed(&self) {
        self.0.closed.cancelled().await;
    }

    /// Returns whether requests can still be sent.
    pub fn is_open(&self) -> bool {
        self.queue().is_open()
    }

    /// Returns whether the server has sent nothing for `SILENCE_LIMIT` or longer while requests are
    /// open.
    pub fn is_silent(&self) -> bool {
        self.queue().is_silent()
    }

    /// Returns the number of reads from the server so far.
    pub fn reads(&self) -> u64 {
        self.0.reads.load(Ordering::Relaxed)
    }

    /// Resolves when the server is not silent, or the connection has ended.
    pub async fn speaks(&self) {
        loop {
            let spoke = self.0.spoke.notified();
            if !self.is_silent() {
                return;
            }
            tokio::select! {
                () = spoke => {}
                () = self.closed() => return,
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `does` on the queue. Notifies the waiters if the connection was silent before and is
    /// not any more.
    fn in_queue<T>(&self, does: impl FnOnce(&mut Queue) -> T) -> T {
        let mut queue = self.queue();
        let was_silent = queue.is_silent();
        let done = does(&mut queue);
        if was_silent && !queue.is_silent() {
            self.0.spoke.notify_waiters();
        }
        done
    }

    /// Records that a task of this connection panicked: nothing of its state is reliable, so the
    /// connection is given up and another one begins.
    fn failed(&self, panic: &(dyn Any + Send)) {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        tracing::error!("closing {} after a panic, a bug in muxtap: {text}", self.name());
        self.give_up(Lost::Ended);
    }

    /// Writes what a full pipe did not take, and checks open requests at each tick.
    async fn tend(self, pipe: Arc<pipe::Sender>, receiver: Arc<impl Receiver>) {
        let mut tick = pin!(tokio::time::sleep(TICK));
        let mut watched = false;
        loop {
            let (is_watched, has_unsent) = {
                let queue = self.queue();
                (queue.is_watched(), queue.has_unsent())
            };
            if is_watched && !std::mem::replace(&mut watched, is_watched) {
                tick.as_mut().reset(tokio::time::Instant::now() + TICK);
            }
            watched = is_watched;
            tokio::select! {
                () = self.0.close.wait() => return,
                () = self.0.more.notified() => {}
                ready = pipe.writable(), if has_unsent => match ready {
                    Ok(()) => self.queue().write(),
                    Err(_) => return,
                },
                () = tick.as_mut(), if watched => {
                    tick.as_mut().reset(tokio::time::Instant::now() + TICK);
                    self.tick(&receiver);
                }
            }
        }
    }

    fn tick(&self, receiver: &Arc<impl Receiver>) {
        let oldest = Duration::from_millis(self.0.oldest_ms.swap(0, Ordering::Relaxed));
        let (verdict, answers) = self.in_queue(|queue| queue.tick(self.reads(), oldest));
        match verdict {
            TickOutcome::Idle | TickOutcome::Open => {}
            TickOutcome::Silent => {
                tracing::warn!("tmux does not respond to {}", self.name());
                receiver.silent(self);
            }
            TickOutcome::Stuck => {
                tracing::warn!("tmux sends no replies to {} although its output flows; replacing it", self.name());
                self.give_up(Lost::Unanswered);
            }
        }
        answers.call();
    }

    async fn drain(
        self,
        mut stream: Wire,
        writer: Arc<pipe::Sender>,
        mut process: Process,
        receiver: Arc<impl Receiver>,
    ) {
        let drained =
            AssertUnwindSafe(self.drain_until_gone(&mut stream, &writer, &mut process, &receiver)).catch_unwind().await;
        let ended = drained.unwrap_or_else(|panic| {
            self.failed(&*panic);
            Ended::Gone("muxtap failed while reading from it".to_owned())
        });
        self.0.begin_close();
        // The client's input ends with the last end of this pipe: the queue has the other one.
        drop(writer);
        let Ended::Gone(why) = ended else {
            // The client lives on, and its output is another process's.
            process.leave_alive();
            let open = self.queue().shut(Lost::Unsent);
            open.call();
            self.take_pause();
            self.0.closed.cancel();
            return;
        };
        let fate = self.0.given_up.get().copied().unwrap_or(Lost::Ended);
        let open = self.queue().shut(fate);
        open.call();
        self.take_pause();
        // The client exits when its input ends; if it does not, it is killed. Its output is read
        // until then: a server that cannot write a client's pending output does not let the client
        // go (3.3a, 3.5a).
        let left = async { while stream.next().await.is_some_and(|event| event.is_ok()) {} };
        let is_given_up = self.0.given_up.get().is_some();
        let has_left = !is_given_up && tokio::time::timeout(LEAVE_LIMIT, left).await.is_ok();
        drop(stream);
        let said = process.leave(if has_left { LEAVE_LIMIT } else { Duration::ZERO }).await;
        let why = if why.is_empty() { said } else { Error::unavailable(why) };
        if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| receiver.closed(&self, why))) {
            self.failed(&*panic);
        }
        self.0.closed.cancel();
    }

    /// Hands over events until the client has gone, or another process continues.
    async fn drain_until_gone(
        &self,
        stream: &mut Wire,
        writer: &pipe::Sender,
        process: &mut Process,
        receiver: &Arc<impl Receiver>,
    ) -> Ended {
        let handle = process.handle();
        // tmux holds the client's descriptors too: its output ends when the server has noticed that
        // the client has gone, and a server that hangs never does.
        let mut gone = pin!(async {
            process.ended().await;
            tokio::time::sleep(LEAVE_LIMIT).await;
        });
        let (mut routes, mut in_a_row) = (Routes::default(), 0);
        // Under a flood a next event is always ready, and nothing else would be polled.
        while !self.0.close.initialized() {
            if in_a_row >= IN_A_ROW {
                in_a_row = 0;
                tokio::task::yield_now().await;
            }
            if self.is_pause_due(stream)
                && let Some(request) = self.take_pause()
            {
                if self.rest(stream, writer, &handle, request).await {
                    return Ended::Left;
                }
                continue;
            }
            let event = tokio::select! {
                biased;
                event = self.next_event(stream) => match event {
                    Some(event) => event,
                    None => continue,
                },
                () = self.0.close.wait() => None,
                () = &mut gone => None,
                () = self.0.pause_asked.notified() => continue,
            };
            match event {
                None => return Ended::Gone(String::new()),
                Some(Err(error)) => return Ended::Gone(error.to_string()),
                Some(Ok(Event::Reply(reply))) => {
                    let answers = self.in_queue(|queue| queue.replied(reply.ok, &reply.body));
                    self.answered(answers);
                }
                Some(Ok(Event::Frame(frame))) => {
                    let answers = self.in_queue(|queue| queue.framed(frame.parts, frame.error.as_ref()));
                    self.answered(answers);
                }
                Some(Ok(event)) => {
                    in_a_row += EVENT_BYTES + output_bytes(&event);
                    if let Event::Output { age_ms: Some(age), .. } = event
                        && age > self.0.oldest_ms.load(Ordering::Relaxed)
                    {
                        self.0.oldest_ms.store(age, Ordering::Relaxed);
                    }
                    receiver.event(self, event, &mut routes);
                }
            }
        }
        Ended::Gone(String::new())
    }

    fn answered(&self, answers: Option<queue::Callbacks>) {
        let Some(answers) = answers else {
            tracing::warn!("received a reply without a request");
            return;
        };
        if !answers.call() {
            tracing::error!("a bug in muxtap: the callback of a reply panicked; closing {}", self.name());
            self.give_up(Lost::Ended);
        }
    }
}

/// Returns the number of bytes that a pane printed.
fn output_bytes(event: &Event) -> usize {
    match event {
        Event::Output { data, .. } => data.len(),
        _ => 0,
    }
}
