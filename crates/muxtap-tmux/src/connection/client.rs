//! The process of a control client, and the pipes to it.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    process::Stdio,
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use muxtap_api::Error;
use muxtap_base::metrics;
use muxtap_core::protocol::codec::{ControlCodec, Event};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, ReadBuf},
    net::unix::pipe,
    process::{Child, ChildStderr},
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tokio_util::{codec::Decoder, task::TaskTracker};

use crate::{
    death::Foreign,
    program::Client,
    relay::{Passage, PauseRequest, PausedPassage, RelayError},
};

/// The daemon's ends of a client's pipes, and the client.
pub(crate) struct Opened {
    pub(super) name: String,
    pub(super) reader: pipe::Receiver,
    pub(super) writer: pipe::Sender,
    /// Reads back what the client has not read of its input.
    pub(super) unread: Option<File>,
    pub(super) process: Process,
    /// What was read of the client's output and not parsed. Another process read it.
    pub(super) head: Bytes,
}

/// What another process needs for continuing a connection, without the descriptors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredClient {
    pub(crate) id: u64,
    name: String,
    pid: u32,
    /// What was read of the client's output and not parsed.
    #[serde(with = "muxtap_core::stored::bytes")]
    head: Vec<u8>,
    /// The beginning of a message of the server, if the client has a relay.
    begun: Option<Vec<u8>>,
}

/// The descriptors of a client: its stdin and stdout, and both ends of its relay.
pub(crate) type ClientDescriptors = Vec<OwnedFd>;

/// Ends a paused relay; dropped, it lets the relay go on.
pub(super) type RelayPause = oneshot::Sender<()>;

/// The process at the other end of the pipes.
pub(super) struct Process {
    /// The child process; `None` if a test plays the client, or another process has started it.
    child: Option<Child>,
    /// The process if another process has started it.
    foreign: Option<Foreign>,
    pid: u32,
    /// Whether another process continues with it.
    is_left: bool,
    stderr: Option<ChildStderr>,
    /// The relay through which the client reaches the server.
    relay: Option<RunningRelay>,
}

/// The task of a relay.
struct RunningRelay {
    task: JoinHandle<Result<(), RelayError>>,
    pauses: mpsc::Sender<PauseRequest>,
}

impl Opened {
    /// Starts a control client.
    pub(super) fn spawn(client: Client, tasks: &TaskTracker) -> io::Result<Self> {
        let Client { mut command, relay, program: _program } = client;
        let (child_stdin, writer) = io::pipe()?;
        let (reader, child_stdout) = io::pipe()?;
        let unread = reopened(&child_stdin);
        command.stdin(Stdio::from(child_stdin)).stdout(Stdio::from(child_stdout)).stderr(Stdio::piped());
        metrics::PROCESS_SPAWNS.increment(1);
        // See `Process::drop`.
        let mut child = command.kill_on_drop(false).spawn()?;
        drop(command);
        let relay = relay.map(|relay| RunningRelay::spawn(tasks, |pauses| relay.run_until_paused(pauses)));
        let name = child.id().map(|pid| format!("client-{pid}")).unwrap_or_default();
        let (pid, stderr) = (child.id().unwrap_or_default(), child.stderr.take());
        let process = Process { child: Some(child), foreign: None, pid, is_left: false, stderr, relay };
        // A larger pipe means fewer wake-ups under a flood. The system may refuse it (a user's pipe
        // limit); then the default serves.
        let _ = grow_pipe(&reader);
        Self::over(name, OwnedFd::from(reader), OwnedFd::from(writer), unread, process, Vec::new())
    }

    /// Continues a connection that another process has handed over.
    pub(crate) fn continued(
        stored: StoredClient,
        descriptors: ClientDescriptors,
        tasks: &TaskTracker,
    ) -> io::Result<Self> {
        let StoredClient { name, pid, head, begun, .. } = stored;
        let missing = || io::Error::other("a descriptor of a control client is missing");
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().ok_or_else(missing);
        let (writer, reader) = (next()?, next()?);
        let passage = match begun {
            Some(begun) => Some(Passage::continued(PausedPassage { client: next()?, server: next()?, begun })?),
            None => None,
        };
        let foreign = Foreign::open(pid)?;
        let relay = passage.map(|passage| RunningRelay::spawn(tasks, |pauses| passage.run(pauses)));
        let process = Process { child: None, foreign: Some(foreign), pid, is_left: false, stderr: None, relay };
        let unread = reopened(&writer);
        Self::over(name, reader, writer, unread, process, head)
    }

    /// Makes a client that a test plays: `stdin` is the client's input, `reader` and `writer` are
    /// the daemon's ends.
    #[cfg(any(test, feature = "played"))]
    pub(crate) fn played(
        name: &str,
        reader: io::PipeReader,
        writer: io::PipeWriter,
        stdin: &io::PipeReader,
    ) -> io::Result<Self> {
        let process = Process { child: None, foreign: None, pid: 0, is_left: false, stderr: None, relay: None };
        Self::over(name.to_owned(), reader.into(), writer.into(), reopened(stdin), process, Vec::new())
    }

    fn over(
        name: String,
        reader: OwnedFd,
        writer: OwnedFd,
        unread: Option<File>,
        process: Process,
        head: Vec<u8>,
    ) -> io::Result<Self> {
        let (reader, writer) = (pipe::Receiver::from_owned_fd(reader)?, pipe::Sender::from_owned_fd(writer)?);
        Ok(Self { name, reader, writer, unread, process, head: head.into() })
    }
}

impl RunningRelay {
    fn spawn<F>(tasks: &TaskTracker, run: impl FnOnce(mpsc::Receiver<PauseRequest>) -> F) -> Self
    where
        F: Future<Output = Result<(), RelayError>> + Send + 'static,
    {
        let (pauses, requests) = mpsc::channel(1);
        Self { task: tasks.spawn(run(requests)), pauses }
    }
}

impl Drop for Process {
    /// Kills the process, unless another process continues with it. One that has ended is not affected.
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        if let Some(child) = &mut self.child {
            let _ = child.start_kill();
        }
        if let Some(foreign) = &self.foreign {
            foreign.kill();
        }
    }
}

impl Process {
    /// Leaves the process to another one.
    pub(super) fn leave_alive(mut self) {
        self.is_left = true;
    }

    /// Resolves when the process has ended.
    pub(super) async fn ended(&mut self) {
        match &mut self.child {
            Some(child) => drop(child.wait().await),
            None => match &self.foreign {
                Some(foreign) => foreign.ended().await,
                None => std::future::pending().await,
            },
        }
    }

    /// Returns what a pause of the connection needs of the process.
    pub(super) fn handle(&self) -> ProcessHandle {
        ProcessHandle { pid: self.pid, relay: self.relay.as_ref().map(|relay| relay.pauses.clone()) }
    }

    /// Waits for the process's end, and kills it after `patience`. Returns why it left: what its
    /// relay reported, or else what it wrote to stderr.
    pub(super) async fn leave(&mut self, patience: Duration) -> Error {
        match (&mut self.child, &self.foreign) {
            (Some(child), _) => {
                if tokio::time::timeout(patience, child.wait()).await.is_err() {
                    let _ = child.kill().await;
                }
            }
            (None, Some(foreign)) => {
                if tokio::time::timeout(patience, foreign.ended()).await.is_err() {
                    foreign.kill();
                }
            }
            (None, None) => return left_because(""),
        }
        let mut text = Vec::new();
        if let Some(stderr) = self.stderr.take() {
            // A child of the process may hold the other end.
            let _ = tokio::time::timeout(patience, stderr.take(4096).read_to_end(&mut text)).await;
        }
        if let Some(relay) = self.relay.take() {
            // When this ends the server has noticed that the client has gone.
            relay.task.abort();
            if let Ok(Err(error)) = relay.task.await {
                return error.into();
            }
        }
        left_because(String::from_utf8_lossy(&text).trim())
    }
}

/// What a pause of the connection needs of a client's process.
pub(super) struct ProcessHandle {
    pid: u32,
    relay: Option<mpsc::Sender<PauseRequest>>,
}

impl ProcessHandle {
    /// Stops the client's relay. Returns the stored client and its descriptors, and the handle that
    /// ends the relay.
    pub(super) async fn pause(
        &self,
        (id, name): (u64, &str),
        pipes: [OwnedFd; 2],
        head: Vec<u8>,
    ) -> io::Result<(StoredClient, ClientDescriptors, Option<RelayPause>)> {
        let mut descriptors = ClientDescriptors::from(pipes);
        let (mut begun, mut end) = (None, None);
        if let Some(relay) = &self.relay {
            let (passage, relay_end) = pause_relay(relay).await?;
            descriptors.extend([passage.client, passage.server]);
            (begun, end) = (Some(passage.begun), Some(relay_end));
        }
        Ok((StoredClient { id, name: name.to_owned(), pid: self.pid, head, begun }, descriptors, end))
    }
}

/// Stops a relay. Returns what another process needs for continuing it, and the handle that ends it;
/// dropped, the relay goes on.
async fn pause_relay(pauses: &mpsc::Sender<PauseRequest>) -> io::Result<(PausedPassage, RelayPause)> {
    let gone = || io::Error::other("its relay has ended");
    let (paused, is_paused) = oneshot::channel();
    let (end, over) = oneshot::channel();
    pauses.send(PauseRequest { paused, over }).await.map_err(|_| gone())?;
    Ok((is_paused.await.map_err(|_| gone())??, end))
}

/// Returns the reason of a client that has left, which may have said none.
pub(super) fn left_because(said: &str) -> Error {
    Error::unavailable(if said.is_empty() { "it exited at once" } else { said })
}

/// A reader that counts successful reads, and reads `head` first.
pub(super) struct CountingReader<R, C> {
    pub(super) head: Bytes,
    pub(super) inner: R,
    pub(super) reads: C,
}

impl<R: AsyncRead + Unpin, C: AsRef<AtomicU64> + Unpin> AsyncRead for CountingReader<R, C> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.head.is_empty() {
            let length = self.head.len().min(buf.remaining());
            buf.put_slice(&self.head.split_to(length));
            return Poll::Ready(Ok(()));
        }
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        if polled.is_ready() {
            self.reads.as_ref().fetch_add(1, Ordering::Relaxed);
        }
        polled
    }
}

/// Adapts the codec to a pipe; the core crate itself does not use tokio.
pub(super) struct PipeCodec(pub(super) ControlCodec);

impl Decoder for PipeCodec {
    type Item = Event;
    type Error = io::Error;

    fn decode(&mut self, src: &mut BytesMut) -> io::Result<Option<Event>> {
        self.0.decode(src)
    }

    fn decode_eof(&mut self, src: &mut BytesMut) -> io::Result<Option<Event>> {
        self.0.decode_eof(src)
    }
}

/// Returns a second reader of a pipe that never blocks, whatever the first one does: an open file
/// of its own.
#[cfg(target_os = "linux")]
fn reopened(pipe: &impl AsFd) -> Option<File> {
    use std::os::fd::AsRawFd as _;

    use rustix::fs::{Mode, OFlags, open};
    let path = format!("/proc/self/fd/{}", pipe.as_fd().as_raw_fd());
    open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok().map(File::from)
}

/// Returns `None`: on other systems a written request cannot be taken back.
#[cfg(not(target_os = "linux"))]
fn reopened(_: &impl AsFd) -> Option<File> {
    None
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
