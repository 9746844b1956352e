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

use bytes::BytesMut;
use muxtap_api::Error;
use muxtap_base::metrics;
use muxtap_core::protocol::codec::{ControlCodec, Event};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, ReadBuf},
    net::unix::pipe,
    process::{Child, ChildStderr},
    task::JoinHandle,
};
use tokio_util::{codec::Decoder, task::TaskTracker};

use crate::{program::Client, relay::RelayError};

/// The daemon's ends of a client's pipes, and the client.
pub(crate) struct Opened {
    pub(super) name: String,
    pub(super) reader: pipe::Receiver,
    pub(super) writer: pipe::Sender,
    /// Reads back what the client has not read of its input.
    pub(super) unread: Option<File>,
    pub(super) process: Process,
}

/// The process at the other end of the pipes.
pub(super) struct Process {
    /// The child process; `None` if a test plays the client.
    child: Option<Child>,
    stderr: Option<ChildStderr>,
    /// The relay through which the client reaches the server.
    relay: Option<JoinHandle<Result<(), RelayError>>>,
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
        let mut child = command.spawn()?;
        drop(command);
        let relay = relay.map(|relay| tasks.spawn(relay.run()));
        let name = child.id().map(|pid| format!("client-{pid}")).unwrap_or_default();
        let stderr = child.stderr.take();
        Self::over(name, reader, writer, unread, Process { child: Some(child), stderr, relay })
    }

    /// Makes a client that a test plays: `stdin` is the client's input, `reader` and `writer` are
    /// the daemon's ends.
    #[cfg(test)]
    pub(crate) fn played(
        name: &str,
        reader: io::PipeReader,
        writer: io::PipeWriter,
        stdin: &io::PipeReader,
    ) -> io::Result<Self> {
        Self::over(name.to_owned(), reader, writer, reopened(stdin), Process { child: None, stderr: None, relay: None })
    }

    fn over(
        name: String,
        reader: io::PipeReader,
        writer: io::PipeWriter,
        unread: Option<File>,
        process: Process,
    ) -> io::Result<Self> {
        // A larger pipe means fewer wake-ups under a flood. The system may refuse it (a user's pipe
        // limit); then the default serves.
        let _ = grow_pipe(&reader);
        Ok(Self {
            name,
            reader: pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?,
            writer: pipe::Sender::from_owned_fd(OwnedFd::from(writer))?,
            unread,
            process,
        })
    }
}

impl Process {
    /// Resolves when the process has ended.
    pub(super) async fn ended(&mut self) {
        match &mut self.child {
            Some(child) => drop(child.wait().await),
            None => std::future::pending().await,
        }
    }

    /// Waits for the process's end, and kills it after `patience`. Returns why it left: what its
    /// relay reported, or else what it wrote to stderr.
    pub(super) async fn leave(&mut self, patience: Duration) -> Error {
        let Some(child) = &mut self.child else { return left_because("") };
        if tokio::time::timeout(patience, child.wait()).await.is_err() {
            let _ = child.kill().await;
        }
        let mut text = Vec::new();
        if let Some(stderr) = self.stderr.take() {
            // A child of the process may hold the other end.
            let _ = tokio::time::timeout(patience, stderr.take(4096).read_to_end(&mut text)).await;
        }
        if let Some(relay) = self.relay.take() {
            // When this ends the server has noticed that the client has gone.
            relay.abort();
            if let Ok(Err(error)) = relay.await {
                return error.into();
            }
        }
        left_because(String::from_utf8_lossy(&text).trim())
    }
}

/// Returns the reason of a client that has left, which may have said none.
pub(super) fn left_because(said: &str) -> Error {
    Error::unavailable(if said.is_empty() { "it exited at once" } else { said })
}

/// A reader that counts successful reads.
pub(super) struct CountingReader<R, C> {
    pub(super) inner: R,
    pub(super) reads: C,
}

impl<R: AsyncRead + Unpin, C: AsRef<AtomicU64> + Unpin> AsyncRead for CountingReader<R, C> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
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
