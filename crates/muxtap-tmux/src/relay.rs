//! Relays between control clients and a local tmux server, so that clients arrive without danger.
//!
//! A client that has half introduced itself can crash the server ([`introduction`]). So a client of
//! muxtap's connects to a socket of muxtap's own. The relay collects its introduction and connects
//! to the server only when that is complete. It hands the introduction over in an order in which
//! the server never holds half a control client. From then on it passes messages both ways: a
//! handful in a client's life, since output goes through the client's own pipes.
//!
//! The relay also restricts the server to what a client needs. Before the first byte is sent the
//! kernel reports the server's user, and another user's server is refused ([`Relay::listen`]). Of
//! the server's messages, [`orders`] passes only those that a client needs.
//!
//! A client that dies before it has arrived is never seen by the server. A client whose relay has
//! gone with muxtap is dropped by the server at once, even with unread output for it (N25).

mod introduction;
mod message;
mod orders;

use std::{
    fs::DirBuilder,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::DirBuilderExt as _,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use muxtap_api::Error;
use muxtap_base::{descriptors, nonce};
use rustix::{
    cmsg_space,
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags,
    },
};
use tokio::{
    io::Interest,
    net::{UnixListener, UnixStream},
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

use super::socket::SocketPath;

use self::{
    introduction::{Introduction, Write},
    message::Malformed,
    orders::{Hostile, ServerMessages},
};

/// Time that a client has to introduce itself, and the server to accept it.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of bytes received at once.
const CHUNK: usize = 16 * 1024;
/// The longest path that a Unix socket can have on every system, without its terminator
/// (`sun_path`, macOS).
const LONGEST_PATH: usize = 103;

/// A socket of muxtap's own that waits for one control client.
pub(super) struct Relay {
    listener: UnixListener,
    place: PrivateSocket,
    server: SocketPath,
    /// The user that owns the server.
    owner: u32,
}

impl Relay {
    /// Listens for a client of the server that is reached at `server`. A server of another user
    /// than `owner` is refused.
    pub(super) fn listen(server: SocketPath, owner: u32) -> io::Result<Self> {
        let (place, listener) = PrivateSocket::make()?;
        Ok(Self { listener, place, server, owner })
    }

    /// Returns the path that the client should connect to.
    pub(super) fn socket(&self) -> &Path {
        &self.place.socket
    }

    /// Lets the client arrive, then passes messages both ways until one side leaves. `Err`: why the
    /// client did not arrive; `Ok` also if it left before it had arrived. The server sees nothing
    /// of a client that has not arrived.
    pub(super) async fn run(self) -> Result<(), RelayError> {
        self.run_until_paused(mpsc::channel(1).1).await
    }

    /// Does the same as [`Self::run`], and stops passing messages on request.
    pub(super) async fn run_until_paused(self, pauses: PauseRequests) -> Result<(), RelayError> {
        let arrived = tokio::time::timeout(ARRIVAL_LIMIT, self.arrive()).await;
        let Some((client, server)) = arrived.map_err(|_| RelayError::Late)?? else { return Ok(()) };
        Passage { client, server, messages: ServerMessages::default() }.run(pauses).await
    }

    /// Collects the client's introduction and hands it over. Returns the client and the server;
    /// `None` if the client has left.
    async fn arrive(self) -> Result<Option<(UnixStream, UnixStream)>, RelayError> {
        let Self { listener, place, server, owner } = self;
        let client = loop {
            let (client, _) = listener.accept().await.map_err(RelayError::Client)?;
            // The directory keeps other users out, except root.
            if client.peer_cred().map_err(RelayError::Client)?.uid() == rustix::process::geteuid().as_raw() {
                break client;
            }
        };
        drop((listener, place));
        let mut introduction = Introduction::default();
        loop {
            let (bytes, descriptors) = receive(&client).await.map_err(RelayError::Client)?;
            if bytes.is_empty() {
                return Ok(None);
            }
            if introduction.receive(&bytes, descriptors)? {
                break;
            }
        }
        let server = UnixStream::connect(&server).await.map_err(RelayError::Server)?;
        // The user of the listening process, whatever the socket's file is and whichever user
        // created it.
        let uid = server.peer_cred().map_err(RelayError::Server)?.uid();
        if uid != owner {
            return Err(RelayError::Stranger(uid));
        }
        for write in introduction.in_order() {
            send(&server, write).await.map_err(RelayError::Server)?;
        }
        Ok(Some((client, server)))
    }
}

/// A client that has arrived, and its server.
pub(super) struct Passage {
    client: UnixStream,
    server: UnixStream,
    messages: ServerMessages,
}

/// A request to stop passing messages.
pub(super) struct PauseRequest {
    /// Gets both sockets, and the beginning of a message of the server that has partly arrived.
    pub(super) paused: oneshot::Sender<io::Result<PausedPassage>>,
    /// Resolves with a value when another process passes the messages from now on; without a value
    /// when this one continues.
    pub(super) over: oneshot::Receiver<()>,
}

/// The requests to stop passing messages.
pub(super) type PauseRequests = mpsc::Receiver<PauseRequest>;

/// What another process needs for passing the messages.
#[derive(Debug)]
pub(super) struct PausedPassage {
    pub(super) client: OwnedFd,
    pub(super) server: OwnedFd,
    pub(super) begun: Vec<u8>,
}

impl Passage {
    /// Continues what another process did.
    pub(super) fn continued(paused: PausedPassage) -> io::Result<Self> {
        let open = |socket: OwnedFd| UnixStream::from_std(std::os::unix::net::UnixStream::from(socket));
        let PausedPassage { client, server, begun } = paused;
        Ok(Self { client: open(client)?, server: open(server)?, messages: ServerMessages::begun(begun) })
    }

    /// Passes messages both ways until one side leaves.
    pub(super) async fn run(mut self, mut pauses: PauseRequests) -> Result<(), RelayError> {
        loop {
            let pause = CancellationToken::new();
            let request = {
                let passing = pass_both(&self.client, &self.server, &mut self.messages, &pause);
                tokio::pin!(passing);
                let request = tokio::select! {
                    passed = &mut passing => {
                        passed?;
                        return Ok(());
                    }
                    Some(request) = pauses.recv() => request,
                };
                pause.cancel();
                // A message that is being passed on is passed on whole.
                if passing.await?.is_some() {
                    return Ok(());
                }
                request
            };
            // Without a requester, the passing goes on.
            let _ = request.paused.send(self.paused());
            if request.over.await.is_ok() {
                return Ok(());
            }
        }
    }

    fn paused(&self) -> io::Result<PausedPassage> {
        let [client, server] = [&self.client, &self.server].map(|socket| socket.as_fd().try_clone_to_owned());
        Ok(PausedPassage { client: client?, server: server?, begun: self.messages.rest().to_vec() })
    }
}

/// Passes messages both ways until one side leaves (`Some`) or until `pause` (`None`).
async fn pass_both(
    client: &UnixStream,
    server: &UnixStream,
    messages: &mut ServerMessages,
    pause: &CancellationToken,
) -> Result<Option<()>, Hostile> {
    let up = async { pass(client, server, pause).await.unwrap_or(Some(())) };
    let down = pass_orders(server, client, messages, pause);
    tokio::pin!(up, down);
    tokio::select! {
        // A side whose connection fails has left too.
        passed = &mut up => if passed.is_some() { Ok(passed) } else { down.await },
        passed = &mut down => if passed?.is_some() { Ok(Some(())) } else { Ok(up.await) },
    }
}

/// The reason why a client did not arrive.
#[derive(Debug, thiserror::Error)]
pub(super) enum RelayError {
    #[error("the client did not connect within {} s", ARRIVAL_LIMIT.as_secs())]
    Late,
    #[error("cannot communicate with the client: {0}")]
    Client(io::Error),
    #[error("the client sent {0}")]
    Malformed(#[from] Malformed),
    #[error("cannot connect to the server: {0}")]
    Server(io::Error),
    #[error("the server belongs to user {0}")]
    Stranger(u32),
    #[error(transparent)]
    Hostile(#[from] Hostile),
}

impl RelayError {
    /// Returns whether the client did not arrive because this process has no descriptor left.
    pub(super) fn is_for_want_of_descriptors(&self) -> bool {
        matches!(self, Self::Client(error) | Self::Server(error) if descriptors::are_out(error))
    }
}

impl From<RelayError> for Error {
    fn from(error: RelayError) -> Self {
        if error.is_for_want_of_descriptors() { descriptors::error() } else { Self::unavailable(error.to_string()) }
    }
}

/// A directory that only this user can enter, with a socket in it. Removed when dropped.
struct PrivateSocket {
    directory: PathBuf,
    socket: PathBuf,
}

impl PrivateSocket {
    fn make() -> io::Result<(Self, UnixListener)> {
        let name = format!("muxtap-{}", nonce::hex64());
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
        let mut failed = None;
        for base in runtime.into_iter().chain([std::env::temp_dir(), "/tmp".into()]) {
            match Self::make_in(&base.join(&name)) {
                Ok(made) => return Ok(made),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        Err(failed.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
    }

    fn make_in(directory: &Path) -> io::Result<(Self, UnixListener)> {
        let socket = directory.join("s");
        if socket.as_os_str().len() > LONGEST_PATH {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        DirBuilder::new().mode(0o700).create(directory)?;
        let place = Self { directory: directory.to_owned(), socket };
        let listener = UnixListener::bind(&place.socket)?;
        Ok((place, listener))
    }
}

impl Drop for PrivateSocket {
    fn drop(&mut self) {
        // A file that no longer exists needs no removal.
        let _ = std::fs::remove_file(&self.socket);
        let _ = std::fs::remove_dir(&self.directory);
    }
}

/// Passes the client's bytes to the server until the client ends (`Some`) or until `pause` (`None`).
async fn pass(client: &UnixStream, server: &UnixStream, pause: &CancellationToken) -> io::Result<Option<()>> {
    loop {
        let (bytes, descriptors) = tokio::select! {
            biased;
            () = pause.cancelled() => return Ok(None),
            received = receive(client) => received?,
        };
        if bytes.is_empty() {
            return Ok(Some(()));
        }
        let mut descriptors = descriptors.into_iter();
        send(server, Write { bytes, descriptor: descriptors.next() }).await?;
        // tmux passes a descriptor with a message.
        drop(descriptors);
    }
}

/// Passes the messages of the server that a client needs until the server ends (`Some`) or until
/// `pause` (`None`). The server passes no descriptors; any that come are closed. Error: the server did
/// what no tmux does.
async fn pass_orders(
    server: &UnixStream,
    client: &UnixStream,
    messages: &mut ServerMessages,
    pause: &CancellationToken,
) -> Result<Option<()>, Hostile> {
    loop {
        let received = tokio::select! {
            biased;
            () = pause.cancelled() => return Ok(None),
            received = receive(server) => received,
        };
        // A side whose connection fails has left.
        let Ok((bytes, _)) = received else { return Ok(Some(())) };
        if bytes.is_empty() {
            return Ok(Some(()));
        }
        let bytes = messages.receive(&bytes)?;
        if send(client, Write { bytes, descriptor: None }).await.is_err() {
            return Ok(Some(()));
        }
    }
}

/// Receives the available bytes, with at most one message's descriptors: the kernel ends a read
/// behind them. No bytes: the other side has left. Error: the system dropped descriptors,
/// mostly because this process can have no more.
async fn receive(socket: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    socket.async_io(Interest::READABLE, || received(socket)).await
}

/// No flag, on a system without one: no process is started between the two calls, since this thread
/// starts them all.
#[cfg(not(target_vendor = "apple"))]
const CLOSED_ON_EXEC: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(target_vendor = "apple")]
const CLOSED_ON_EXEC: RecvFlags = RecvFlags::empty();

fn received(socket: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; CHUNK];
    let received = loop {
        let mut into = [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(socket, &mut into, &mut control, CLOSED_ON_EXEC) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors: Vec<OwnedFd> = rights.flatten().collect();
    #[cfg(target_vendor = "apple")]
    for descriptor in &descriptors {
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?;
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        // Fails in the same way if no descriptor is left.
        rustix::io::fcntl_dupfd_cloexec(socket, 0)?;
        return Err(io::Error::other("the system did not pass a descriptor on; does a security module forbid it?"));
    }
    Ok((bytes.get(..received.bytes).unwrap_or_default().to_vec(), descriptors))
}

/// Sends all bytes, the descriptor with the first of them; in one write if the socket takes them.
async fn send(socket: &UnixStream, write: Write<OwnedFd>) -> io::Result<()> {
    let mut bytes = write.bytes.as_slice();
    let mut descriptor = write.descriptor;
    while !bytes.is_empty() {
        let sent = socket.async_io(Interest::WRITABLE, || sent(socket, bytes, descriptor.as_ref())).await?;
        descriptor = None;
        bytes = bytes.get(sent..).unwrap_or_default();
    }
    Ok(())
}

fn sent(socket: &UnixStream, bytes: &[u8], descriptor: Option<&OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(|descriptor| [descriptor.as_fd()]);
    if let Some(descriptors) = &descriptors
        && !control.push(SendAncillaryMessage::ScmRights(descriptors))
    {
        return Err(io::Error::other("a descriptor does not fit into the control message"));
    }
    loop {
        match rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return sent.map_err(Into::into),
        }
    }
}

#[cfg(test)]
mod tests;
