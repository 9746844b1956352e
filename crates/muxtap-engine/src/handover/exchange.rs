//! The conversation of two processes over a Unix socket, by which one engine takes over from another.
//!
//! Both run until the new one has everything. Each failure before [`Message::Go`] leaves the old one as
//! it was: it continues to read its control clients, and nothing that was printed meanwhile is lost. If
//! the new one ends between `Go` and [`Message::Running`], or does not reply in time, it may have read
//! something: the old one kills it and replaces its control clients, with a gap.

use std::{
    fs::File,
    io::{self, BufReader, Read as _, Seek as _, Write as _},
    os::fd::OwnedFd,
    time::Duration,
};

use muxtap_api::{Error, ErrorCode, Result};
use muxtap_tmux::death::Foreign;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, Interest},
    net::UnixStream,
    sync::oneshot,
};
use tokio_util::sync::CancellationToken;

use super::{
    Beside, Header, PausedEngine, Prepared, check_version,
    copy::{CopiedPanes, Copy, LITTLE},
    descriptors::{DESCRIPTORS_AT_ONCE, private_file, receive_descriptors, send_descriptors},
    failed, own_header,
    steps::Steps,
    unreadable,
};
use crate::{Engine, Options};

/// The longest that one side waits for the other's next message.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// The longest that a copy of panes may take, and their restoring; also what precedes the next message
/// of the old daemon until its state. Nothing has stopped meanwhile.
const COPY_LIMIT: Duration = Duration::from_secs(300);
/// The longest that the old daemon waits for a moment at which it has read what panes print. Nothing has
/// stopped meanwhile.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(5);
/// The same after panes were copied.
const CATCH_UP_AGAIN_LIMIT: Duration = Duration::from_secs(2);
/// The longest that tmux may take to reply to what it was asked before.
const PAUSE_LIMIT: Duration = Duration::from_secs(2);
/// How often panes are copied at most, after the first time, before pages can no longer type.
const COPIES_AGAIN: usize = 4;
/// By how much the thread that restores the first copy is nicer than this process. The first copy is the largest; for
/// the last one, pages wait.
#[cfg(target_os = "linux")]
const NICER: i32 = 10;
/// The most bytes of a message.
const LONGEST: u32 = 64 * 1024;

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
    /// Old: what I have beside the engine. This many descriptors follow, after a file with the rest.
    Belongings(u32),
    /// New: I can use these.
    Usable,
    /// Old: the panes as they are now; a file follows. What changes later is in the state.
    Copy,
    /// New: I have read them.
    Copied,
}

/// What a daemon hands over beside its engine.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Belongings {
    /// Their description, in the daemon's own form.
    pub bytes: Vec<u8>,
    /// Their descriptors.
    pub descriptors: Vec<OwnedFd>,
}

/// Why another daemon has not taken over.
#[doc(hidden)]
#[derive(Debug)]
pub struct NotTaken {
    /// The reason.
    pub error: Error,
    /// Whether the other daemon said so: it exits by itself.
    pub has_refused: bool,
}

impl Engine {
    /// Hands everything over to the engine at the other end of `socket` ([`take_over`]), and ends this
    /// one. Error: the new daemon did not take over; the error says why, and this engine continues.
    #[doc(hidden)]
    pub async fn hand_over(&self, socket: UnixStream) -> Result<()> {
        let mut talk = Talk::old(socket);
        let handed_over = async {
            talk.offer().await?;
            let copied = self.copy(&mut talk, CopiedPanes::default()).await?;
            let copied = self.copy_again(&mut talk, copied).await?;
            let paused = self.ready(&mut talk, async { Ok(Beside::default()) }, &copied).await?;
            go(paused, &mut talk, None).await
        };
        let handed_over = handed_over.await;
        talk.refuse_if_failed(&handed_over).await;
        handed_over?.leave().await;
        Ok(())
    }

    /// Hands everything over as [`Engine::hand_over`] does, to a daemon ([`Successor`]) in this process,
    /// which is killed if it fails after it may have begun: two processes must not read the same clients.
    ///
    /// `settle` is awaited once the process can use the belongings and has copied the panes, while
    /// requests are still carried out; panes may be copied once more after it. It returns another
    /// future: after it, nothing may send requests to tmux until this returns. That one returns a third
    /// future, which is awaited when no control client is read any more, and returns what the daemon
    /// has beside the engine. An error of any is one of the handover. `stop` cancels the handover until
    /// the process gets everything; after that it has no effect. Returned is this engine, which must
    /// leave.
    #[doc(hidden)]
    pub async fn hand_over_to<Q: Future<Output = Result<B>>, B: Future<Output = Result<Beside>>>(
        &self,
        process: &Foreign,
        socket: UnixStream,
        belongings: Belongings,
        settle: impl Future<Output = Result<Q>>,
        stop: &CancellationToken,
    ) -> std::result::Result<PausedEngine, NotTaken> {
        let mut talk = Talk::old(socket);
        let ready = async {
            talk.offer().await?;
            talk.steps.ended("start", 0);
            talk.send_belongings(belongings).await?;
            talk.expect(&Message::Usable).await?;
            talk.steps.ended("prepare", 0);
            // Output that is read now is in the copy.
            self.catch_up(CATCH_UP_LIMIT).await;
            talk.steps.ended("catch up", 0);
            let copied = self.copy(&mut talk, CopiedPanes::default()).await?;
            let mut copied = self.copy_again(&mut talk, copied).await?;
            // Replies come behind what panes have printed meanwhile: those that `settle` awaits, while pages
            // cannot type.
            self.catch_up(CATCH_UP_AGAIN_LIMIT).await;
            talk.steps.ended("catch up again", 0);
            let quiesce = settle.await?;
            talk.steps.ended("finish typing", 0);
            if self.uncopied(&copied) >= LITTLE {
                copied = self.copy(&mut talk, copied).await?;
            }
            // And those that step 4 awaits.
            self.catch_up(CATCH_UP_AGAIN_LIMIT).await;
            talk.steps.ended("catch up at last", 0);
            let beside = quiesce.await?;
            talk.steps.ended("finish requests", 0);
            self.ready(&mut talk, beside, &copied).await
        };
        let ready = tokio::select! {
            biased;
            () = stop.cancelled() => Err(Error::new(ErrorCode::Conflict, "the daemon stops")),
            ready = ready => ready,
        };
        let handed_over = match ready {
            Ok(paused) => go(paused, &mut talk, Some(process)).await,
            Err(error) => Err(error),
        };
        talk.refuse_if_failed(&handed_over).await;
        handed_over.map_err(|error| NotTaken { error, has_refused: talk.is_refused })
    }

    /// Sends all panes as they are now, without what was sent before. Nothing stops.
    async fn copy(&self, talk: &mut Talk, copied: CopiedPanes) -> Result<CopiedPanes> {
        let unable = |error: io::Error| failed("the panes were not sent", &error);
        let (copied, mut file) = self.copy_panes(private_file().map_err(unable)?, copied).await?;
        let bytes = file.stream_position().map_err(unable)?;
        talk.steps.ended("copy", usize::try_from(bytes).unwrap_or(usize::MAX));
        talk.send(&Message::Copy).await?;
        talk.send_descriptors(vec![file.into()]).await.map_err(unable)?;
        talk.expect_within(COPY_LIMIT, &Message::Copied).await?;
        talk.steps.ended("await its copy", 0);
        Ok(copied)
    }

    /// Sends the panes that have changed since, until little is left.
    async fn copy_again(&self, talk: &mut Talk, mut copied: CopiedPanes) -> Result<CopiedPanes> {
        for _ in 0..COPIES_AGAIN {
            copied = self.copy(talk, copied).await?;
            if self.uncopied(&copied) < LITTLE {
                break;
            }
        }
        Ok(copied)
    }

    /// Stops, and sends everything that was not copied.
    async fn ready(
        &self,
        talk: &mut Talk,
        beside: impl Future<Output = Result<Beside>>,
        copied: &CopiedPanes,
    ) -> Result<PausedEngine> {
        let mut paused = self.pause_beside(PAUSE_LIMIT, beside, copied, &mut talk.steps).await?;
        let descriptors = paused.take_descriptors();
        talk.send(&Message::State(u32::try_from(descriptors.len()).unwrap_or(u32::MAX))).await?;
        talk.send_file(paused.state(), descriptors).await.map_err(|error| failed("the state was not sent", &error))?;
        talk.steps.ended("send", paused.state().len());
        talk.expect(&Message::Ready).await?;
        talk.steps.ended("await its restoring", 0);
        Ok(paused)
    }
}

/// Commits: from here on the other engine has everything. `process`: the one to kill if it does not begin.
async fn go(paused: PausedEngine, talk: &mut Talk, process: Option<&Foreign>) -> Result<PausedEngine> {
    talk.send(&Message::Go).await?;
    match talk.receive().await {
        Ok(Message::Running) => {
            talk.steps.ended("await its begin", 0);
            Ok(paused)
        }
        answer => {
            // The other one may read, and must have ended before this one reads again.
            if let Some(process) = process {
                process.kill();
                let _ = tokio::time::timeout(talk.limit, process.ended()).await;
            }
            paused.replace_clients();
            Err(answer.map_or_else(|error| error, |message| unexpected(&message)))
        }
    }
}

/// Takes over from the engine at the other end of `socket` ([`Engine::hand_over`]). Must be called
/// within a tokio runtime. Error: nothing was taken over.
#[doc(hidden)]
pub async fn take_over(options: Options, socket: UnixStream) -> Result<Engine> {
    let mut talk = Talk::new(socket);
    let prepared = async {
        talk.accept().await?;
        prepare(options, &mut talk, |_| Ok(())).await
    };
    let prepared = prepared.await;
    talk.refuse_if_failed(&prepared).await;
    let engine = prepared?.0.start();
    talk.running().await;
    Ok(engine)
}

/// A daemon that takes over from the one at the other end of a socket ([`Engine::hand_over_to`]).
/// Dropped, it has taken nothing.
#[doc(hidden)]
pub struct Successor(Talk);

impl Successor {
    /// Begins. Error: the state of the other daemon cannot be read here, and it has got the reason.
    pub async fn begin(socket: UnixStream) -> Result<(Self, Belongings)> {
        let mut talk = Talk::new(socket);
        let received = async {
            talk.accept().await?;
            talk.receive_belongings().await
        };
        let received = received.await;
        talk.refuse_if_failed(&received).await;
        Ok((Self(talk), received?))
    }

    /// Sends the other daemon the reason why this one takes over nothing, before it has begun.
    pub async fn refuse(socket: UnixStream, error: &Error) {
        let mut talk = Talk::new(socket);
        // The other daemon may have gone, and has the reason in the log at worst.
        if talk.receive().await.is_ok() {
            talk.refuse_if_failed(&Err::<(), _>(error.clone())).await;
        }
    }

    /// Ends without taking over anything, for this reason.
    pub async fn leave(mut self, error: &Error) {
        self.0.refuse_if_failed(&Err::<(), _>(error.clone())).await;
    }

    /// Takes over: the belongings can be used. `read` gets what the other daemon has beside its engine,
    /// and begins nothing; its error refuses. `begin` is called when everything is this process's,
    /// before the other daemon lets go. Must be called within a tokio runtime. Returns also what `read`
    /// returned. Error: nothing was taken over.
    pub async fn take_over<T>(
        mut self,
        options: Options,
        read: impl FnOnce(Belongings) -> Result<T>,
        begin: impl FnOnce(),
    ) -> Result<(Engine, T)> {
        let talk = &mut self.0;
        let prepared = async {
            talk.send(&Message::Usable).await?;
            prepare(options, talk, read).await
        };
        let prepared = prepared.await;
        talk.refuse_if_failed(&prepared).await;
        let (prepared, beside) = prepared?;
        begin();
        let engine = prepared.start();
        talk.running().await;
        talk.steps.ended("begin", 0);
        Ok((engine, beside))
    }
}

/// Sends the process that asks to take over the reason why nothing is handed over.
#[doc(hidden)]
pub async fn decline(socket: UnixStream, error: &Error) {
    Talk::new(socket).refuse_if_failed(&Err::<(), _>(error.clone())).await;
}

/// `read`: see [`Successor::take_over`].
async fn prepare<T>(
    options: Options,
    talk: &mut Talk,
    read: impl FnOnce(Belongings) -> Result<T>,
) -> Result<(Prepared, T)> {
    let mut panes = Copy::default();
    let mut is_first = true;
    let count = loop {
        match talk.receive_within(COPY_LIMIT).await? {
            Message::Copy => {}
            Message::State(count) => break count as usize,
            other => return Err(unexpected(&other)),
        }
        talk.steps.ended("await the copy", 0);
        let (copy, _) = talk.receive_descriptors(0, "the panes").await?;
        let bytes = copy.metadata().map_or(0, |file| usize::try_from(file.len()).unwrap_or(usize::MAX));
        if std::mem::take(&mut is_first) {
            panes = unhurried(move || panes.add(BufReader::new(copy)).map(|()| panes)).await?;
        } else {
            panes.add(BufReader::new(copy))?;
        }
        talk.steps.ended("restore the copy", bytes);
        talk.send(&Message::Copied).await?;
    };
    talk.steps.ended("await the state", 0);
    let (state, descriptors) = talk.receive_file(count, "parts of the state").await?;
    talk.steps.ended("receive", state.len());
    let mut prepared = Prepared::read_after(panes, options, &state, descriptors)?;
    let beside = read(prepared.take_beside())?;
    talk.steps.ended("restore", 0);
    talk.send(&Message::Ready).await?;
    talk.expect(&Message::Go).await?;
    talk.steps.ended("await go", 0);
    Ok((prepared, beside))
}

/// Does work on a thread of low priority, where the system has such threads: the old daemon still responds, and goes
/// first. Only what the old daemon has no lock for may be done so.
async fn unhurried<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let (done, result) = oneshot::channel();
    let begun = std::thread::Builder::new().name("unhurried".into()).spawn(move || {
        // On other systems this is the priority of the whole process, for good.
        #[cfg(target_os = "linux")]
        if let Err(error) = rustix::process::nice(NICER) {
            tracing::debug!("no low priority: {error}");
        }
        drop(done.send(work()));
    });
    begun.map_err(|error| failed("no thread can be started", &error))?;
    result.await.map_err(|_| Error::internal("the copy cannot be restored"))?
}

/// One end of the conversation.
struct Talk {
    socket: UnixStream,
    /// The longest wait for the other side's next message.
    limit: Duration,
    /// Whether the other side has refused.
    is_refused: bool,
    steps: Steps,
}

impl Talk {
    fn old(socket: UnixStream) -> Self {
        Self { socket, limit: ANSWER_LIMIT, is_refused: false, steps: Steps::begin("old") }
    }

    fn new(socket: UnixStream) -> Self {
        Self { steps: Steps::begin("new"), ..Self::old(socket) }
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

    /// Old: offers the state. Error: the other side cannot read it.
    async fn offer(&mut self) -> Result<()> {
        self.send(&Message::Offer(own_header())).await?;
        self.expect(&Message::Accepted).await
    }

    /// New: accepts the state that is offered. Error: it cannot be read.
    async fn accept(&mut self) -> Result<()> {
        match self.receive().await? {
            Message::Offer(header) => check_version(&header)?,
            other => return Err(unexpected(&other)),
        }
        self.send(&Message::Accepted).await
    }

    /// New: everything is here. The old daemon may have ended meanwhile.
    async fn running(&mut self) {
        let _ = self.send(&Message::Running).await;
    }

    async fn send_belongings(&mut self, belongings: Belongings) -> Result<()> {
        let Belongings { bytes, descriptors } = belongings;
        self.send(&Message::Belongings(u32::try_from(descriptors.len()).unwrap_or(u32::MAX))).await?;
        let sent = self.send_file(&bytes, descriptors).await;
        sent.map_err(|error| failed("the listening sockets were not sent", &error))
    }

    async fn receive_belongings(&mut self) -> Result<Belongings> {
        let count = match self.receive().await? {
            Message::Belongings(count) => count as usize,
            other => return Err(unexpected(&other)),
        };
        let (bytes, descriptors) = self.receive_file(count, "the listening sockets").await?;
        Ok(Belongings { bytes, descriptors })
    }

    /// Receives the next message in time. Error: the other side refused, has ended, or sends nothing.
    async fn receive(&mut self) -> Result<Message> {
        self.receive_within(self.limit).await
    }

    async fn receive_within(&mut self, limit: Duration) -> Result<Message> {
        tokio::time::timeout(limit, self.next()).await.map_err(|_| silent(limit))?
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
            Ok(Message::Refused(why)) => {
                self.is_refused = true;
                Err(Error::new(ErrorCode::Conflict, why))
            }
            Ok(message) => Ok(message),
            // A process that ends with unread messages resets the connection.
            Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
                Err(Error::new(ErrorCode::Conflict, "the other daemon ended before it was ready"))
            }
            Err(error) => Err(failed("the other daemon cannot be understood", &error)),
        }
    }

    async fn expect(&mut self, expected: &Message) -> Result<()> {
        self.expect_within(self.limit, expected).await
    }

    async fn expect_within(&mut self, limit: Duration, expected: &Message) -> Result<()> {
        let message = self.receive_within(limit).await?;
        if message == *expected { Ok(()) } else { Err(unexpected(&message)) }
    }

    /// Sends the other side the reason why this one does not continue.
    async fn refuse_if_failed<T>(&mut self, result: &Result<T>) {
        if let Err(error) = result {
            // The other side may have gone.
            let _ = self.send(&Message::Refused(error.message.clone())).await;
        }
    }

    /// Sends bytes in a file that only both processes have, and descriptors.
    async fn send_file(&self, state: &[u8], descriptors: Vec<OwnedFd>) -> io::Result<()> {
        let mut file = private_file()?;
        file.write_all(state)?;
        self.send_descriptors(std::iter::once(OwnedFd::from(file)).chain(descriptors).collect()).await
    }

    async fn send_descriptors(&self, all: Vec<OwnedFd>) -> io::Result<()> {
        for some in all.chunks(DESCRIPTORS_AT_ONCE) {
            self.socket.async_io(Interest::WRITABLE, || send_descriptors(&self.socket, some)).await?;
        }
        Ok(())
    }

    /// Receives bytes and `count` descriptors in time. `what`: their name in an error.
    async fn receive_file(&self, count: usize, what: &str) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
        let (mut file, received) = self.receive_descriptors(count, what).await?;
        let mut state = Vec::new();
        let read = file.read_to_end(&mut state);
        read.map_err(|error| failed(&format!("{what} were not received"), &error))?;
        Ok((state, received))
    }

    /// Receives a file, at its beginning, and `count` descriptors in time. `what`: their name in an error.
    async fn receive_descriptors(&self, count: usize, what: &str) -> Result<(File, Vec<OwnedFd>)> {
        let received = tokio::time::timeout(self.limit, self.next_descriptors(count)).await;
        let received = received.map_err(|_| silent(self.limit))?;
        received.map_err(|error| failed(&format!("{what} were not received"), &error))
    }

    async fn next_descriptors(&self, count: usize) -> io::Result<(File, Vec<OwnedFd>)> {
        let mut received: Vec<OwnedFd> = Vec::new();
        while received.len() < count + 1 {
            let some = self.socket.async_io(Interest::READABLE, || receive_descriptors(&self.socket)).await?;
            if some.is_empty() {
                return Err(io::Error::other("a descriptor is missing; does a security module forbid passing it?"));
            }
            received.extend(some);
        }
        let mut file = File::from(received.remove(0));
        file.rewind()?;
        Ok((file, received))
    }
}

fn unexpected(message: &Message) -> Error {
    Error::new(ErrorCode::Conflict, format!("the other daemon sent an unexpected message: {message:?}"))
}

fn silent(limit: Duration) -> Error {
    Error::new(ErrorCode::Conflict, format!("the other daemon sent nothing for {} s", limit.as_secs()))
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
        let mut talk = Talk { limit: Duration::from_secs(2), ..Talk::old(old) };
        let stalls = async {
            let mut new = Talk::new(new);
            assert_eq!(new.receive().await.unwrap(), Message::State(0));
            new.next_descriptors(0).await.unwrap();
            new.send(&Message::Ready).await.unwrap();
            assert_eq!(new.receive().await.unwrap(), Message::Go);
            // Its socket stays open until it is killed.
            child.wait().await.unwrap()
        };
        let gives = async {
            let paused = engine.ready(&mut talk, async { Ok(Beside::default()) }, &CopiedPanes::default()).await?;
            go(paused, &mut talk, Some(&process)).await
        };
        let (handed_over, ended) = tokio::join!(gives, stalls);
        let error = handed_over.err().unwrap();
        assert!(error.message.contains("sent nothing for 2 s"), "{error}");
        assert!(!ended.success());
    }

    #[tokio::test]
    async fn unhurried_work_has_its_result_or_an_error() {
        assert_eq!(unhurried(|| Ok(1)).await.unwrap(), 1);
        assert_eq!(unhurried::<()>(|| Err(Error::invalid("x"))).await.unwrap_err().message, "x");
        let error = unhurried::<()>(|| panic!("on purpose")).await.unwrap_err();
        assert_eq!(error.message, "the copy cannot be restored");
    }
}
