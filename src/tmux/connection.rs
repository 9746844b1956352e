//! One control client: a `tmux -C` process, a task that drains it and a queue of what was asked.
//!
//! The draining task parses, hands events over and does nothing else (F11). A request's reply is given to its callback *in that
//! task, in the order of the wire*: all that a pane printed before tmux ran the command has been handed over by then. (While
//! other panes flood, what it printed after may have been too, N27.)

use std::{
    collections::VecDeque,
    io,
    os::fd::OwnedFd,
    pin::pin,
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use futures_util::StreamExt;
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe,
    process::Child,
    sync::{Notify, oneshot},
    task::JoinHandle,
};
use tokio_util::{codec::FramedRead, sync::CancellationToken, task::TaskTracker};

use super::{program::Client, relay::NotArrived};
use crate::{
    api::{Error, Result},
    metrics,
    protocol::{
        codec::{ControlCodec, Event},
        command::{Command as TmuxCommand, CommandLine},
        frame::{FrameKey, framed},
    },
};

/// How much is read from a client at once, and the size asked for its pipe.
const READ_CHUNK: usize = 256 * 1024;
/// How long a client may take to leave after its input was closed.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);

/// What is asked of tmux.
pub enum Request {
    /// Commands whose replies carry no text of a pane.
    Plain(CommandLine),
    /// Commands whose replies may carry anything; framed by a nonce (F13).
    Framed(Vec<TmuxCommand>),
}

/// What tmux answered: a body for each command, or its error message.
pub type Answer = Result<Vec<Bytes>, String>;

/// The connection ended before the reply came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection to tmux was lost")]
pub struct Lost;

type Done = Box<dyn FnOnce(Result<Answer, Lost>) + Send>;

/// Receives a connection's events, in the order of the wire, in its draining task.
pub trait Receiver: Send + Sync + 'static {
    /// Something other than a reply.
    fn event(self: &Arc<Self>, connection: &Connection, event: Event);
    /// The client is gone; comes once, last.
    fn closed(self: &Arc<Self>, connection: &Connection, why: &str);
}

/// A handle to one control client; clones are the same client.
#[derive(Clone)]
pub struct Connection(Arc<Shared>);

struct Shared {
    id: u64,
    name: String,
    key: FrameKey,
    out: Mutex<Out>,
    more: Notify,
    close: CancellationToken,
    closed: CancellationToken,
}

struct Out {
    pipe: Option<Arc<pipe::Sender>>,
    unsent: BytesMut,
    pending: VecDeque<Pending>,
    next_frame: u64,
}

struct Pending {
    blocks: usize,
    bodies: Vec<Bytes>,
    framed: bool,
    done: Done,
}

impl Connection {
    /// Starts a control client. Events go to `receiver` as soon as they come.
    pub fn open(id: u64, client: Client, receiver: Arc<impl Receiver>, tasks: &TaskTracker) -> io::Result<Self> {
        let Client { mut command, relay } = client;
        let (child_stdin, our_writer) = io::pipe()?;
        let (our_reader, child_stdout) = io::pipe()?;
        // A larger pipe is fewer wake-ups under a flood. It may be refused (a user's pipe limit); then the default serves.
        let _ = grow_pipe(&our_reader);
        command.stdin(Stdio::from(child_stdin)).stdout(Stdio::from(child_stdout)).stderr(Stdio::piped());
        metrics::PROCESS_SPAWNS.increment(1);
        let mut child = command.spawn()?;
        drop(command);
        let relay = relay.map(|relay| tasks.spawn(relay.run()));
        let name = child.id().map(|pid| format!("client-{pid}")).unwrap_or_default();
        let stderr = child.stderr.take();
        let reader = pipe::Receiver::from_owned_fd(OwnedFd::from(our_reader))?;
        let writer = Arc::new(pipe::Sender::from_owned_fd(OwnedFd::from(our_writer))?);
        let key = FrameKey::default();
        let connection = Self(Arc::new(Shared {
            id,
            name,
            key: key.clone(),
            out: Mutex::new(Out {
                pipe: Some(writer.clone()),
                unsent: BytesMut::new(),
                pending: VecDeque::new(),
                next_frame: 0,
            }),
            more: Notify::new(),
            close: CancellationToken::new(),
            closed: CancellationToken::new(),
        }));
        tasks.spawn(connection.clone().flush(writer));
        let stream = FramedRead::with_capacity(reader, ControlCodec::new(key), READ_CHUNK);
        tasks.spawn(connection.clone().drain(stream, child, stderr, relay, receiver));
        Ok(connection)
    }

    /// Which connection this is; unique in its server.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// What a local server calls this client.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Asks tmux; `done` is called in the draining task when the reply comes, or at once if the connection is gone.
    pub fn submit(&self, request: Request, done: impl FnOnce(Result<Answer, Lost>) + Send + 'static) {
        metrics::TMUX_COMMANDS.increment(1);
        let mut out = self.out();
        if out.pipe.is_none() {
            drop(out);
            done(Err(Lost));
            return;
        }
        let (bytes, blocks, is_framed) = match request {
            Request::Plain(line) => (line.render(), line.commands().len(), false),
            Request::Framed(commands) => (framed(&self.0.key, out.next_frame, &commands), commands.len(), true),
        };
        match bytes {
            Ok(bytes) => out.unsent.extend_from_slice(&bytes),
            Err(error) => {
                drop(out);
                done(Ok(Err(error.to_string())));
                return;
            }
        }
        out.next_frame += u64::from(is_framed);
        out.pending.push_back(Pending { blocks, bodies: Vec::new(), framed: is_framed, done: Box::new(done) });
        out.write();
        if !out.unsent.is_empty() {
            self.0.more.notify_one();
        }
    }

    /// Asks tmux and awaits the reply. An error message of tmux is the inner error.
    pub async fn ask(&self, request: Request) -> Result<Answer, Lost> {
        let (sender, receiver) = oneshot::channel();
        self.submit(request, move |answer| {
            // The asker may have given up.
            let _ = sender.send(answer);
        });
        receiver.await.unwrap_or(Err(Lost))
    }

    /// Lets the client leave: its input is closed, it detaches by itself.
    pub fn close(&self) {
        self.0.close.cancel();
    }

    /// Resolves when the client has gone and its process has ended.
    pub async fn closed(&self) {
        self.0.closed.cancelled().await;
    }

    /// Whether requests can still be asked.
    pub fn is_open(&self) -> bool {
        self.out().pipe.is_some()
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        self.0.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what `submit` could not write at once.
    async fn flush(self, pipe: Arc<pipe::Sender>) {
        loop {
            tokio::select! {
                () = self.0.close.cancelled() => return,
                () = self.0.more.notified() => {}
            }
            loop {
                tokio::select! {
                    () = self.0.close.cancelled() => return,
                    ready = pipe.writable() => if ready.is_err() { return },
                }
                let mut out = self.out();
                out.write();
                if out.unsent.is_empty() || out.pipe.is_none() {
                    break;
                }
            }
        }
    }

    async fn drain(
        self,
        mut stream: FramedRead<pipe::Receiver, ControlCodec>,
        mut child: Child,
        stderr: Option<tokio::process::ChildStderr>,
        relay: Option<JoinHandle<Result<(), NotArrived>>>,
        receiver: Arc<impl Receiver>,
    ) {
        let mut why = self.drain_until_gone(&mut stream, &mut child, &receiver).await;
        let lost = self.shut();
        for pending in lost {
            (pending.done)(Err(Lost));
        }
        // The client leaves when its input ends; one that does not is killed. Until then it is read on: a server that cannot write what it has
        // for a client does not let it go (3.3a, 3.5a).
        let _ = tokio::time::timeout(LEAVE_LIMIT, async {
            while stream.next().await.is_some_and(|event| event.is_ok()) {}
        })
        .await;
        drop(stream);
        if let Some(stderr) = stderr {
            let mut text = Vec::new();
            let _ = tokio::time::timeout(LEAVE_LIMIT, stderr.take(4096).read_to_end(&mut text)).await;
            if why.is_empty() {
                why = String::from_utf8_lossy(&text).trim().to_owned();
            }
        }
        if tokio::time::timeout(LEAVE_LIMIT, child.wait()).await.is_err() {
            let _ = child.kill().await;
        }
        if let Some(relay) = relay {
            // When this ends the server knows that the client has gone.
            relay.abort();
            if let Ok(Err(error)) = relay.await {
                why = error.to_string();
            }
        }
        receiver.closed(&self, &why);
        self.0.closed.cancel();
    }

    /// Hands over what comes, for as long as anything can. Answers why it ended, if the stream told.
    async fn drain_until_gone(
        &self,
        stream: &mut FramedRead<pipe::Receiver, ControlCodec>,
        child: &mut Child,
        receiver: &Arc<impl Receiver>,
    ) -> String {
        // tmux holds the client's descriptors too: its output ends when the server has noticed that the client is gone, and a server that
        // hangs never does.
        let mut gone = pin!(async {
            let _ = child.wait().await;
            tokio::time::sleep(LEAVE_LIMIT).await;
        });
        // Under a flood there is always a next event, and nothing else would be looked at.
        while !self.0.close.is_cancelled() {
            let event = tokio::select! {
                biased;
                event = stream.next() => event,
                () = self.0.close.cancelled() => None,
                () = &mut gone => None,
            };
            match event {
                None => return String::new(),
                Some(Err(error)) => return error.to_string(),
                Some(Ok(Event::Reply(reply))) => self.replied(reply.ok, &reply.body),
                Some(Ok(Event::Frame(frame))) => self.frame(frame.parts, frame.error),
                Some(Ok(event)) => receiver.event(self, event),
            }
        }
        String::new()
    }

    fn shut(&self) -> VecDeque<Pending> {
        self.0.close.cancel();
        let mut out = self.out();
        out.pipe = None;
        std::mem::take(&mut out.pending)
    }

    /// A plain block ended. A line that fails gives no further blocks (F14).
    fn replied(&self, ok: bool, body: &Bytes) {
        let finished = {
            let mut out = self.out();
            let Some(front) = out.pending.front_mut().filter(|pending| !pending.framed) else {
                tracing::warn!("a reply came that nobody asked for");
                return;
            };
            if ok {
                front.bodies.push(body.clone());
            }
            if ok && front.bodies.len() < front.blocks { None } else { out.pending.pop_front() }
        };
        if let Some(Pending { bodies, done, .. }) = finished {
            done(Ok(if ok { Ok(bodies) } else { Err(message(body)) }));
        }
    }

    fn frame(&self, parts: Vec<Bytes>, error: Option<Bytes>) {
        let front = {
            let mut out = self.out();
            if out.pending.front().is_some_and(|pending| pending.framed) { out.pending.pop_front() } else { None }
        };
        let Some(Pending { done, .. }) = front else {
            tracing::warn!("a frame came that nobody asked for");
            return;
        };
        done(Ok(error.map_or(Ok(parts), |error| Err(message(&error)))));
    }
}

impl Out {
    /// Writes as much as the pipe takes. What is left stays in `unsent`; a broken pipe is seen by the draining task.
    fn write(&mut self) {
        let Some(pipe) = &self.pipe else { return };
        while !self.unsent.is_empty() {
            match pipe.try_write(&self.unsent) {
                Ok(written) => self.unsent.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    // The client has gone. Its output ends too, and that is where it is noticed.
                    self.unsent.clear();
                    self.pipe = None;
                    return;
                }
            }
        }
    }
}

fn message(body: &[u8]) -> String {
    String::from_utf8_lossy(body).trim().to_owned()
}

#[cfg(target_os = "linux")]
fn grow_pipe(pipe: &io::PipeReader) -> io::Result<()> {
    rustix::pipe::fcntl_setpipe_size(pipe, 1024 * 1024)?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn grow_pipe(_: &io::PipeReader) -> io::Result<()> {
    Ok(())
}

impl From<Lost> for Error {
    fn from(_: Lost) -> Self {
        Self::unavailable("the connection to tmux was lost before it answered; ask again")
    }
}
