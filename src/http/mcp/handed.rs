//! stdin and stdout of `muxtap mcp`, handed over: the daemon reads and writes the client's own pipes, and no process stands between.
//!
//! Over the connection's Unix socket, both at once (`SCM_RIGHTS`, unix(7)). Whoever reads that socket in the usual way loses them: the daemon
//! says when it is ready, and `muxtap mcp` sends nothing else before it hears that.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::{
    cmsg_space,
    fs::{FileType, Mode, OFlags},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, SocketType, sockopt,
    },
};
use tokio::{
    io::Interest,
    net::{UnixStream, unix::pipe},
};
use tokio_util::either::Either;

/// What the daemon says when it is ready for the descriptors.
pub const READY: u8 = b'\n';

/// What is read of the client.
pub(super) type Stdin = Either<pipe::Receiver, UnixStream>;
/// What is written to it.
pub(super) type Stdout = Either<pipe::Sender, UnixStream>;

/// What may be handed over of this process: descriptors that do not block, whose flags are nobody else's as far as that is possible. `None`: it is
/// no pipe and no socket, and what is said has to be passed on.
pub fn own(fd: BorrowedFd<'_>, access: OFlags) -> Option<OwnedFd> {
    match FileType::from_raw_mode(rustix::fs::fstat(fd).ok()?.st_mode) {
        // Opened anew: that it does not block is a property of what was opened, which the caller's shell may share.
        FileType::Fifo => {
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
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

/// Sends both, in this order, over a socket that blocks.
pub fn send(socket: &std::os::unix::net::UnixStream, fds: [&OwnedFd; 2]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = fds.map(|fd| fd.as_fd());
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("no room for two descriptors"));
    }
    loop {
        match rustix::net::sendmsg(socket, &[IoSlice::new(&[READY])], &mut control, SendFlags::empty()) {
            Err(Errno::INTR) => {}
            sent => return sent.map(drop).map_err(Into::into),
        }
    }
}

/// Receives both.
pub(super) async fn receive(socket: &UnixStream) -> io::Result<(Stdin, Stdout)> {
    let fds = socket.async_io(Interest::READABLE, || received(socket)).await?;
    let [stdin, stdout]: [OwnedFd; 2] = fds.try_into().map_err(|_| io::Error::other("two descriptors were to come"))?;
    let stdin = if is_pipe(&stdin)? {
        Either::Left(pipe::Receiver::from_owned_fd(stdin)?)
    } else {
        Either::Right(stream(stdin)?)
    };
    let stdout = if is_pipe(&stdout)? {
        Either::Left(pipe::Sender::from_owned_fd(stdout)?)
    } else {
        Either::Right(stream(stdout)?)
    };
    Ok((stdin, stdout))
}

fn received(socket: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok(rights.flatten().collect())
}

fn is_pipe(fd: &OwnedFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) == FileType::Fifo)
}

fn stream(fd: OwnedFd) -> io::Result<UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(fd);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        os::fd::AsFd,
    };

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Both ends of the way on which descriptors go.
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
        // The end comes through as well, both ways.
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
