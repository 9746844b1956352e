//! The conversation of two processes over a Unix socket, by which one engine takes over from another.
//!
//! Both run until the new one has everything. Each failure before [`Message::Go`] leaves the old one as
//! it was: it continues to read its control clients, and nothing that was printed meanwhile is lost. If
//! the new one ends between `Go` and [`Message::Running`], or does not reply in time, it may have read
//! something: the old one kills it and replaces its control clients, with a gap.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut, Read as _, Seek as _, Write as _},
    mem::MaybeUninit,
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use muxtap_api::{Error, ErrorCode, Result};
use muxtap_tmux::death::Foreign;
use rustix::{
    cmsg_space,
    io::Errno,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, Interest},
    net::UnixStream,
};

use super::{Header, Prepared, check_version, own_header, unreadable};
use crate::{Engine, Options};

/// The longest that one side waits for the other's next message.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// The longest that tmux may take to reply to what it was asked before.
const PAUSE_LIMIT: Duration = Duration::from_secs(2);
/// The most bytes of a message.
const LONGEST: u32 = 64 * 1024;
/// The most descriptors that are sent at once; Linux allows 253.
const DESCRIPTORS_AT_ONCE: usize = 64;

/// A message, in the order in which they are sent. Each is preceded by its length. The form of the
/// first two is the same in every version.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Message {
    /// Old: this is the state that I have.
    Offer(Header),
    /// Both: no, for this reason.
    Refused(String),
    /// New: I read such a state.
    Accepted,
    /// Old: reading has stopped; the state and this many descriptors follow.
    State(u32),
    /// New: I have everything, and have begun nothing.
    Ready,
    /// Old: go.
    Go,
    /// New: I have begun.
    Running,
}

impl Engine {
    /// Hands everything over to the engine at the other end of `socket` ([`take_over`]), and ends this
    /// one. Error: the new daemon did not take over; the error says why, and this engine continues.
    #[doc(hidden)]
    pub async fn hand_over(&self, socket: UnixStream) -> Result<()> {
        self.hand_over_by(&mut Talk::new(socket), None).await
    }

    /// Hands everything over as [`Engine::hand_over`] does, to this process, which is killed if it fails
    /// after it may have begun: two processes must not read the same clients.
    #[doc(hidden)]
    pub async fn hand_over_to(&self, process: &Foreign, socket: UnixStream) -> Result<()> {
        self.hand_over_by(&mut Talk::new(socket), Some(process)).await
    }

    async fn hand_over_by(&self, talk: &mut Talk, process: Option<&Foreign>) -> Result<()> {
        let handed_over = self.try_to_hand_over(talk, process).await;
        talk.refuse_if_failed(&handed_over).await;
        handed_over
    }

    async fn try_to_hand_over(&self, talk: &mut Talk, process: Option<&Foreign>) -> Result<()> {
        talk.send(&Message::Offer(own_header())).await?;
        talk.expect(&Message::Accepted).await?;
        let mut paused = self.pause(PAUSE_LIMIT).await?;
        let descriptors = paused.take_descriptors();
        talk.send(&Message::State(u32::try_from(descriptors.len()).unwrap_or(u32::MAX))).await?;
        talk.send_state(paused.state(), descriptors).await.map_err(|error| failed("the state was not sent", &error))?;
        talk.expect(&Message::Ready).await?;
        talk.send(&Message::Go).await?;
        match talk.receive().await {
            Ok(Message::Running) => {}
            answer => {
                // The other one may read, and must have ended before this one reads again.
                if let Some(process) = process {
                    process.kill();
                    let _ = tokio::time::timeout(talk.limit, process.ended()).await;
                }
                paused.replace_clients();
                return Err(answer.map_or_else(|error| error, |message| unexpected(&message)));
            }
        }
        paused.leave().await;
        Ok(())
    }
}

/// Takes over from the engine at the other end of `socket` ([`Engine::hand_over`]). Must be called
/// within a tokio runtime. Error: nothing was taken over.
#[doc(hidden)]
pub async fn take_over(options: Options, socket: UnixStream) -> Result<Engine> {
    let mut talk = Talk::new(socket);
    let prepared = prepare(options, &mut talk).await;
    talk.refuse_if_failed(&prepared).await;
    let engine = prepared?.start();
    // The old engine may have ended meanwhile; everything is here.
    let _ = talk.send(&Message::Running).await;
    Ok(engine)
}

async fn prepare(options: Options, talk: &mut Talk) -> Result<Prepared> {
    match talk.receive().await? {
        Message::Offer(header) => check_version(&header)?,
        other => return Err(unexpected(&other)),
    }
    talk.send(&Message::Accepted).await?;
    let count = match talk.receive().await? {
        Message::State(count) => count as usize,
        other => return Err(unexpected(&other)),
    };
    let received = tokio::time::timeout(talk.limit, talk.receive_state(count)).await.map_err(|_| silent(talk.limit))?;
    let (state, descriptors) = received.map_err(|error| failed("the state was not received", &error))?;
    let prepared = Prepared::read(options, &state, descriptors)?;
    talk.send(&Message::Ready).await?;
    talk.expect(&Message::Go).await?;
    Ok(prepared)
}

/// One end of the conversation.
struct Talk {
    socket: UnixStream,
    /// The longest wait for the other side's next message.
    limit: Duration,
}

impl Talk {
    fn new(socket: UnixStream) -> Self {
        Self { socket, limit: ANSWER_LIMIT }
    }

    async fn send(&mut self, message: &Message) -> Result<()> {
        let bytes = postcard::to_allocvec(message).map_err(|error| unreadable(&error.to_string()))?;
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let sent = async {
            self.socket.write_all(&length.to_le_bytes()).await?;
            self.socket.write_all(&bytes).await
        };
        sent.await.map_err(|error| failed("the other daemon cannot be reached", &error))
    }

    /// Receives the next message in time. Error: the other side refused, has ended, or sends nothing.
    async fn receive(&mut self) -> Result<Message> {
        tokio::time::timeout(self.limit, self.next()).await.map_err(|_| silent(self.limit))?
    }

    /// Receives the next message. Error: the other side refused, or has ended.
    async fn next(&mut self) -> Result<Message> {
        let received = async {
            let length = self.socket.read_u32_le().await?;
            if length > LONGEST {
                return Err(io::Error::other("a message is too long"));
            }
            let mut bytes = vec![0; length as usize];
            self.socket.read_exact(&mut bytes).await?;
            postcard::from_bytes(&bytes).map_err(io::Error::other)
        };
        match received.await {
            Ok(Message::Refused(why)) => Err(Error::new(ErrorCode::Conflict, why)),
            Ok(message) => Ok(message),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(Error::new(ErrorCode::Conflict, "the other daemon ended before it was ready"))
            }
            Err(error) => Err(failed("the other daemon cannot be understood", &error)),
        }
    }

    async fn expect(&mut self, expected: &Message) -> Result<()> {
        let message = self.receive().await?;
        if message == *expected { Ok(()) } else { Err(unexpected(&message)) }
    }

    /// Sends the other side the reason why this one does not continue.
    async fn refuse_if_failed<T>(&mut self, result: &Result<T>) {
        if let Err(error) = result {
            // The other side may have gone.
            let _ = self.send(&Message::Refused(error.message.clone())).await;
        }
    }

    /// Sends the state in a file that only both processes have, and the descriptors.
    async fn send_state(&self, state: &[u8], descriptors: Vec<OwnedFd>) -> io::Result<()> {
        let mut file = private_file()?;
        file.write_all(state)?;
        let all: Vec<_> = std::iter::once(OwnedFd::from(file)).chain(descriptors).collect();
        for some in all.chunks(DESCRIPTORS_AT_ONCE) {
            self.socket.async_io(Interest::WRITABLE, || send_descriptors(&self.socket, some)).await?;
        }
        Ok(())
    }

    /// Receives the state, and `count` descriptors.
    async fn receive_state(&self, count: usize) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let mut received: Vec<OwnedFd> = Vec::new();
        while received.len() < count + 1 {
            let some = self.socket.async_io(Interest::READABLE, || receive_descriptors(&self.socket)).await?;
            if some.is_empty() {
                return Err(io::Error::other("a descriptor is missing; does a security module forbid passing it?"));
            }
            received.extend(some);
        }
        let mut file = File::from(received.remove(0));
        let mut state = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut state)?;
        Ok((state, received))
    }
}

/// Sends one byte with descriptors.
fn send_descriptors(socket: &UnixStream, descriptors: &[OwnedFd]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_AT_ONCE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptors.iter().map(|descriptor| descriptor.as_fd()).collect();
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("the descriptors do not fit into the control message"));
    }
    loop {
        match rustix::net::sendmsg(socket, &[IoSlice::new(b"\n")], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return sent.map(drop).map_err(Into::into),
        }
    }
}

/// On a system without this flag no process is started between the two calls: this thread starts
/// all processes.
#[cfg(not(target_vendor = "apple"))]
const CLOSED_ON_EXEC: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(target_vendor = "apple")]
const CLOSED_ON_EXEC: RecvFlags = RecvFlags::empty();

/// Receives one byte with descriptors.
fn receive_descriptors(socket: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_AT_ONCE))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, CLOSED_ON_EXEC) {
            Err(Errno::INTR) => {}
            received => {
                received?;
                break;
            }
        }
    }
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors: Vec<OwnedFd> = rights.flatten().collect();
    #[cfg(target_vendor = "apple")]
    for descriptor in &descriptors {
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok(descriptors)
}

/// Creates a file without a name.
#[cfg(target_os = "linux")]
fn private_file() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("muxtap-state", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

/// Creates a file that loses its name at once.
#[cfg(not(target_os = "linux"))]
fn private_file() -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;

    let path = std::env::temp_dir().join(format!("muxtap-{}", muxtap_base::nonce::hex64()));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn unexpected(message: &Message) -> Error {
    Error::new(ErrorCode::Conflict, format!("the other daemon sent an unexpected message: {message:?}"))
}

fn silent(limit: Duration) -> Error {
    Error::new(ErrorCode::Conflict, format!("the other daemon sent nothing for {} s", limit.as_secs()))
}

fn failed(what: &str, error: &io::Error) -> Error {
    Error::new(ErrorCode::Conflict, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_process_that_stalls_after_go_is_killed() {
        let engine = Engine::new(Options::default());
        let mut child = tokio::process::Command::new("sleep").arg("1000").kill_on_drop(true).spawn().unwrap();
        let process = Foreign::open(child.id().unwrap()).unwrap();
        let (old, new) = UnixStream::pair().unwrap();
        let mut talk = Talk { socket: old, limit: Duration::from_secs(2) };
        let stalls = async {
            let mut new = Talk::new(new);
            assert!(matches!(new.receive().await.unwrap(), Message::Offer(_)));
            new.send(&Message::Accepted).await.unwrap();
            assert_eq!(new.receive().await.unwrap(), Message::State(0));
            new.receive_state(0).await.unwrap();
            new.send(&Message::Ready).await.unwrap();
            assert_eq!(new.receive().await.unwrap(), Message::Go);
            // Its socket stays open until it is killed.
            child.wait().await.unwrap()
        };
        let (handed_over, ended) = tokio::join!(engine.hand_over_by(&mut talk, Some(&process)), stalls);
        let error = handed_over.unwrap_err();
        assert!(error.message.contains("sent nothing for 2 s"), "{error}");
        assert!(!ended.success());
    }
}
