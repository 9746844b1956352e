//! Descriptors that another process of this user hands over: its stdin and stdout, so that the
//! daemon reads and writes them without a process in between.
//!
//! Both are sent at once over the connection's Unix socket (`SCM_RIGHTS`, unix(7)). An ordinary
//! read of that socket loses them, so the daemon announces when it is ready ([`READY`]), and the
//! other side sends nothing before that.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::OwnedFd,
    pin::Pin,
    task::{Context, Poll, ready},
};

use rustix::{
    cmsg_space,
    fs::FileType,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf, unix::AsyncFd},
    net::{UnixStream, unix::pipe},
};
use tokio_util::either::Either;

/// The byte by which the daemon announces that it is ready for the descriptors, then that it has
/// them, and finally that their other end was closed.
pub const READY: u8 = b'\n';

/// The reading end that was handed over.
pub type Stdin = Either<pipe::Receiver, Socket>;
/// The writing end that was handed over.
pub type Stdout = Either<pipe::Sender, Socket>;

/// The sending side.
mod giving {
    use std::{
        io::{self, IoSlice},
        mem::MaybeUninit,
        os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    };

    use rustix::{
        cmsg_space,
        fs::{FileType, Mode, OFlags},
        io::Errno,
        net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType, sockopt},
    };

    /// Returns a form of this process's descriptor that may be handed over. `None`: the descriptor
    /// is neither a Unix stream nor a pipe that can be reopened (Linux can, by `/proc`); a
    /// terminal, for example, is shared with a shell.
    pub fn own(fd: BorrowedFd<'_>, access: OFlags) -> Option<OwnedFd> {
        match FileType::from_raw_mode(rustix::fs::fstat(fd).ok()?.st_mode) {
            // Reopened: non-blocking mode belongs to the open file description, which other
            // processes share.
            FileType::Fifo => {
                let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
                rustix::fs::open(path, access | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()).ok()
            }
            FileType::Socket => {
                let local = sockopt::socket_type(fd).ok()? == SocketType::STREAM
                    && rustix::net::getsockname(fd).ok()?.address_family() == AddressFamily::UNIX;
                local.then(|| fd.try_clone_to_owned().ok())?
            }
            _ => None,
        }
    }

    /// Sends both descriptors, in this order, over a blocking socket.
    pub fn send(socket: &std::os::unix::net::UnixStream, fds: [&OwnedFd; 2]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = fds.map(|fd| fd.as_fd());
        if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(io::Error::other("the control buffer is too small for two descriptors"));
        }
        loop {
            match rustix::net::sendmsg(socket, &[IoSlice::new(&[super::READY])], &mut control, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => return sent.map(drop).map_err(Into::into),
            }
        }
    }
}

pub use giving::{own, send};

/// Receives both descriptors.
pub async fn receive(socket: &UnixStream) -> io::Result<(Stdin, Stdout)> {
    let fds = socket.async_io(Interest::READABLE, || received(socket)).await?;
    let [stdin, stdout]: [OwnedFd; 2] = fds.try_into().map_err(|_| io::Error::other("expected two descriptors"))?;
    let stdin = if is_pipe(&stdin)? {
        Either::Left(pipe::Receiver::from_owned_fd(stdin)?)
    } else {
        Either::Right(Socket::new(stdin, Interest::READABLE)?)
    };
    let stdout = if is_pipe(&stdout)? {
        Either::Left(pipe::Sender::from_owned_fd(stdout)?)
    } else {
        Either::Right(Socket::new(stdout, Interest::WRITABLE)?)
    };
    Ok((stdin, stdout))
}

/// On a system without this flag no process is started between the two calls: this thread starts
/// all processes.
#[cfg(not(target_vendor = "apple"))]
const CLOSED_ON_EXEC: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(target_vendor = "apple")]
const CLOSED_ON_EXEC: RecvFlags = RecvFlags::empty();

fn received(socket: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, CLOSED_ON_EXEC)?;
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fds: Vec<OwnedFd> = rights.flatten().collect();
    #[cfg(target_vendor = "apple")]
    for fd in &fds {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok(fds)
}

fn is_pipe(fd: &OwnedFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) == FileType::Fifo)
}

/// A Unix stream that other processes hold too. They control its blocking mode; no call here blocks
/// in either mode.
#[derive(Debug)]
pub struct Socket(AsyncFd<OwnedFd>);

impl Socket {
    fn new(fd: OwnedFd, interest: Interest) -> io::Result<Self> {
        // The safe constructor is deprecated because a type may lie about its descriptor; an `OwnedFd` does not.
        #[allow(deprecated, reason = "the replacement is unsafe, and the reason for it does not apply to an OwnedFd")]
        let register = AsyncFd::with_interest;
        register(fd, interest).map(Self)
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(context))?;
            let into = buffer.initialize_unfilled();
            let received =
                ready.try_io(|fd| Ok(rustix::net::recv(fd, into, RecvFlags::DONTWAIT).map(|(_, length)| length)?));
            match received {
                Ok(Ok(length)) => {
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_) => {}
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(context))?;
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let send = |fd: &AsyncFd<OwnedFd>| {
                Ok(rustix::net::sendmsg(fd, parts, &mut SendAncillaryBuffer::default(), flags)?)
            };
            match ready.try_io(send) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(sent) => return Poll::Ready(sent),
                Err(_) => {}
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        os::fd::AsFd,
    };

    use rustix::fs::OFlags;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Creates the socket pair over which descriptors are sent.
    fn way() -> (std::os::unix::net::UnixStream, UnixStream) {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        (ours, UnixStream::from_std(theirs).unwrap())
    }

    fn blocks(fd: impl AsFd) -> bool {
        !rustix::fs::fcntl_getfl(fd).unwrap().contains(OFlags::NONBLOCK)
    }

    #[tokio::test]
    async fn pipes_arrive_and_those_who_share_them_notice_nothing() {
        let (ours, theirs) = way();
        let (stdin, mut client_to) = io::pipe().unwrap();
        let (mut client_from, stdout) = io::pipe().unwrap();
        let own_stdin = own(stdin.as_fd(), OFlags::RDONLY).unwrap();
        let own_stdout = own(stdout.as_fd(), OFlags::WRONLY).unwrap();
        send(&ours, [&own_stdin, &own_stdout]).unwrap();
        let (mut read, mut write) = receive(&theirs).await.unwrap();
        assert!(blocks(&stdin) && blocks(&stdout));
        client_to.write_all(b"asked").unwrap();
        let mut asked = [0; 5];
        read.read_exact(&mut asked).await.unwrap();
        write.write_all(b"told").await.unwrap();
        let mut told = [0; 4];
        client_from.read_exact(&mut told).unwrap();
        assert_eq!((&asked, &told), (b"asked", b"told"));
        // The end of the stream passes through as well, in both directions.
        drop(client_to);
        assert_eq!(read.read(&mut asked).await.unwrap(), 0);
        drop((write, own_stdout, stdout));
        assert_eq!(client_from.read(&mut told).unwrap(), 0);
    }

    #[tokio::test]
    async fn sockets_arrive_as_node_makes_them() {
        let (ours, theirs) = way();
        let (mut client, stdio) = std::os::unix::net::UnixStream::pair().unwrap();
        let fd = own(stdio.as_fd(), OFlags::RDWR).unwrap();
        send(&ours, [&fd, &fd]).unwrap();
        let (mut read, mut write) = receive(&theirs).await.unwrap();
        client.write_all(b"?").unwrap();
        let mut byte = [0];
        read.read_exact(&mut byte).await.unwrap();
        write.write_all(b"!").await.unwrap();
        client.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"!");
        assert!(blocks(&stdio), "whoever shares it notices nothing");
        drop((client, stdio, fd));
        assert_eq!(read.read(&mut byte).await.unwrap(), 0);
        assert_eq!(write.write_all(b"!").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn a_file_is_not_handed_over_and_a_byte_alone_is_no_descriptor() {
        let file = tempfile::tempfile().unwrap();
        assert!(own(file.as_fd(), OFlags::RDONLY).is_none());
        let (ours, theirs) = way();
        (&ours).write_all(&[READY]).unwrap();
        assert!(receive(&theirs).await.is_err());
        drop(ours);
        assert!(receive(&theirs).await.is_err());
    }
}
