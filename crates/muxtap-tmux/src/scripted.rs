//! A tmux server that a test plays: control clients over pipes, without a tmux and without a
//! process.
//!
//! ```ignore
//! #[tokio::test(start_paused = true)] // seconds of silence cost nothing
//! async fn a_test() {
//!     // A `ServerLink`, and an observer that keeps what it is told.
//!     let server = Scripted::start();
//!     // tmux's end of a control client that has attached to $0.
//!     let mut wire = server.guest(SessionId(0));
//!     // Answers the next request, `list-panes`, with one pane: %1.
//!     wire.list(&[row(0, 0, 1)]).await;
//!     wire.seed("hello").await;                             // answers the next request, a seed
//!     wire.say("%output %1 there");                         // anything unasked
//!     assert_eq!(server.told(2).await, ["seeded %1 First hello", "output %1 there"]);
//!     let asked = wire.request().await;                     // the next request, to look at
//!     // Or `answer`, or nothing at all: then tmux does not respond.
//!     wire.refuse(&asked, "can't find pane");
//! }
//! ```
//!
//! A pane's output makes the observer panic if it contains `PANIC`. A request that is not read with
//! [`Wire::request`] stays in the pipe, as with a stopped server. Dropping the wire ends the
//! connection. `server.kick()` has the model read again.

use std::{
    collections::VecDeque,
    io::{self, Write as _},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use muxtap_api::Size;
use muxtap_base::metrics;
use muxtap_core::protocol::{
    ids::{PaneId, SessionId},
    names,
    version::Version,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::unix::pipe,
    sync::{Notify, oneshot},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Exit, LinkState, Observer, OutputSink, Seed, Seeding, ServerIdentity, ServerLink, Topology, Value,
    connection::{Connection, Opened, Receiver as _},
    coverage::Inner,
    flood::Floods,
    model::Covering,
    own_program::OwnProgram,
    program::{CoverageMode, Program, ServerSpec},
    routes::Routes,
    socket::SocketFile,
    transport::Transport,
};

/// Longer than any wait of a test; with paused time it costs nothing.
const LIMIT: Duration = Duration::from_secs(120);

/// A server whose control clients the test plays.
pub struct Scripted {
    pub inner: Arc<Inner>,
    pub server: ServerLink,
    observer: Arc<RecordingObserver>,
}

/// An observer that records its calls, one line each.
#[derive(Default)]
struct RecordingObserver {
    calls: Arc<Calls>,
    /// Makes the observer panic at the next report of the link.
    fails_at_link: AtomicBool,
    /// Makes the observer panic at the next pane that is not followed.
    fails_at_unfollowed: AtomicBool,
}

/// The calls of an observer and of its sinks that the test has not taken.
#[derive(Default)]
struct Calls {
    lines: Mutex<VecDeque<String>>,
    more: Notify,
}

/// Records a pane's output.
struct RecordingSink {
    calls: Arc<Calls>,
    pane: PaneId,
}

impl Scripted {
    /// Starts a server without an attached client. It does not reply to a client of another
    /// process.
    pub fn start() -> Self {
        Self::with_program("/nonexistent/program")
    }

    /// Starts a server with a program in place of tmux, for calls of it: `true` for a server that
    /// replies.
    pub fn with_program(program: &str) -> Self {
        let observer = Arc::new(RecordingObserver::default());
        // The processes of a server on another host are not watched.
        let transport = Transport::new("far", vec![program.into()], "tmux").unwrap();
        let program = Program { transport: Some(Arc::new(transport)), ..Program::default() };
        let spec = ServerSpec {
            program,
            socket: "far/nowhere".into(),
            coverage: CoverageMode::Sessions,
            floods: Floods::Hold,
            file: SocketFile::default(),
            own: OwnProgram::default(),
        };
        let inner = Inner::new(spec, observer.clone(), CancellationToken::new(), TaskTracker::new());
        {
            let mut model = inner.lock();
            let version = Version::parse(b"3.8").unwrap();
            let identity = ServerIdentity { pid: 1, started: 1, version };
            model.identity = Some(identity.clone());
            model.greeted = true;
            model.floods = Floods::Follow;
            inner.link.send_replace(LinkState::Connected(identity));
        }
        let server = ServerLink::of(inner.clone());
        Self { inner, server, observer }
    }

    /// Returns tmux's end of a guest that has attached to this session. The model is not read for
    /// it.
    pub fn guest(&self, session: SessionId) -> Wire {
        let wire = self.arrived(session);
        // Its server is known to be the same as before.
        self.inner.lock().greeted = true;
        wire
    }

    /// Returns a guest that has attached, and whose server was not queried for its identity.
    pub fn arrived(&self, session: SessionId) -> Wire {
        let (stdin, writer) = io::pipe().unwrap();
        let (reader, stdout) = io::pipe().unwrap();
        let mut model = self.inner.lock();
        let id = model.next_connection;
        model.next_connection += 1;
        let mut covering = Covering::new(Some(session), oneshot::channel().0);
        covering.ready = None;
        covering.attached = Some(metrics::AttachedClient::count());
        let opened = Opened::played(&format!("client-{id}"), reader, writer, &stdin).unwrap();
        let connection = Connection::over(id, opened, self.inner.clone(), &self.inner.tasks);
        covering.connection = Some(connection.clone());
        model.covering.insert(id, covering);
        let stdin = BufReader::new(pipe::Receiver::from_owned_fd(stdin.into()).unwrap());
        Wire { connection, stdin, stdout, number: 0 }
    }

    /// Has the model read.
    pub fn kick(&self) {
        let connection = self.inner.lock().any().expect("a client is attached");
        let change = muxtap_core::protocol::codec::Event::Notification(
            muxtap_core::protocol::notification::Notification::SessionsChanged,
        );
        self.inner.event(&connection, change, &mut Routes::default());
    }

    /// Returns the next calls of the observer, without topologies and links.
    pub async fn told(&self, count: usize) -> Vec<String> {
        let mut told = Vec::new();
        let all = async {
            while told.len() < count {
                let more = self.observer.calls.more.notified();
                let next = self.observer.calls.lines.lock().unwrap().pop_front();
                match next {
                    Some(line) => told.push(line),
                    None => more.await,
                }
            }
        };
        let in_time = tokio::time::timeout(LIMIT, all).await.is_ok();
        assert!(in_time, "only {told:?}");
        told
    }

    /// Returns the recorded calls that the test has not taken.
    pub fn told_besides(&self) -> Vec<String> {
        self.observer.calls.lines.lock().unwrap().drain(..).collect()
    }
}

impl Calls {
    fn tell(&self, line: String) {
        assert!(!line.contains("PANIC"), "an observer that fails, as a test wants it");
        self.lines.lock().unwrap().push_back(line);
        self.more.notify_one();
    }
}

impl RecordingObserver {
    fn tell(&self, line: String) {
        self.calls.tell(line);
    }

    fn sink(&self, pane: PaneId) -> Arc<dyn OutputSink> {
        Arc::new(RecordingSink { calls: self.calls.clone(), pane })
    }
}

impl OutputSink for RecordingSink {
    fn output(&self, data: &[u8]) {
        self.calls.tell(format!("output {} {}", self.pane, String::from_utf8_lossy(data)));
    }
}

impl Observer for RecordingObserver {
    fn continued(&self, _: PaneId) -> Option<Arc<dyn OutputSink>> {
        None
    }
    fn identified(&self, _: &ServerIdentity) {}
    fn seeded(&self, pane: PaneId, seed: Seed, why: Seeding) -> Arc<dyn OutputSink> {
        self.tell(format!("seeded {pane} {why:?} {}", String::from_utf8_lossy(&seed.text)));
        self.sink(pane)
    }
    fn moved(&self, pane: PaneId, seed: &Seed, output: &[u8]) -> Option<Arc<dyn OutputSink>> {
        let (seed, output) = (String::from_utf8_lossy(&seed.text), String::from_utf8_lossy(output));
        self.tell(format!("moved {pane} {seed:?} {output:?}"));
        seed.ends_with(&*output).then(|| self.sink(pane))
    }
    fn restarted(&self, pane: PaneId, ran: bool) {
        self.tell(format!("restarted {pane}{}", if ran { ", another one ran" } else { "" }));
    }
    fn held(&self, pane: PaneId) {
        self.tell(format!("held {pane}"));
    }
    fn unfollowed(&self, pane: PaneId) {
        assert!(!self.fails_at_unfollowed.swap(false, Ordering::Relaxed), "an observer that fails, as a test wants it");
        self.tell(format!("unfollowed {pane}"));
    }
    fn sized(&self, pane: PaneId, size: Size) {
        self.tell(format!("sized {pane} {}x{}", size.width, size.height));
    }
    fn topology(&self, _: &Topology) {}
    fn value(&self, pane: PaneId, value: Value) {
        self.tell(format!("value {pane} {value:?}"));
    }
    fn exited(&self, pane: PaneId, exit: Exit) {
        self.tell(format!("exited {pane} {:?} {:?}", exit.status, exit.signal));
    }
    fn closed(&self, pane: PaneId) {
        self.tell(format!("closed {pane}"));
    }
    fn link(&self, _: &LinkState) {
        assert!(!self.fails_at_link.swap(false, Ordering::Relaxed), "an observer that fails, as a test wants it");
    }
}

/// tmux's end of one control client.
pub struct Wire {
    /// muxtap's end.
    pub connection: Connection,
    stdin: BufReader<pipe::Receiver>,
    stdout: io::PipeWriter,
    number: u64,
}

/// A request as tmux reads it.
#[derive(Debug)]
pub struct ReceivedRequest {
    /// Its commands, including those that frame it.
    commands: Vec<String>,
    /// The number of commands on the first line; a line ends with the first command that fails.
    first_line: usize,
}

impl ReceivedRequest {
    /// Returns its commands without those that frame it.
    pub fn commands(&self) -> Vec<&str> {
        self.commands.iter().map(String::as_str).filter(|command| nonce(command).is_none()).collect()
    }
}

impl Wire {
    /// Returns the next request. A framed request is two lines.
    pub async fn request(&mut self) -> ReceivedRequest {
        let mut commands = split(&self.line().await);
        let first_line = commands.len();
        if nonce(&commands[0]).is_some() {
            commands.extend(split(&self.line().await));
        }
        ReceivedRequest { commands, first_line }
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = tokio::time::timeout(LIMIT, self.stdin.read_line(&mut line)).await.expect("a request comes");
        assert!(read.unwrap() > 0, "the connection was closed");
        line.trim_end_matches('\n').to_owned()
    }

    /// Reads some bytes, less than 10 KiB, and leaves the rest in the pipe.
    pub async fn bite(&mut self) {
        tokio::time::timeout(LIMIT, self.stdin.fill_buf()).await.expect("a request comes").unwrap();
    }

    /// Prints lines that belong to no request.
    pub fn say(&mut self, lines: &str) {
        // A connection that was given up has no reader.
        let _ = self.stdout.write_all(format!("{lines}\n").as_bytes());
    }

    /// Replies to a request with a body for each of its own commands.
    pub fn answer(&mut self, asked: &ReceivedRequest, bodies: &[&str]) {
        let mut bodies = bodies.iter();
        for command in &asked.commands {
            match nonce(command) {
                Some(nonce) => self.block(nonce, "end"),
                None => self.block(bodies.next().unwrap_or(&""), "end"),
            }
        }
    }

    /// Replies to a request with tmux's error for its first own command.
    pub fn refuse(&mut self, asked: &ReceivedRequest, why: &str) {
        for command in &asked.commands[..asked.first_line] {
            let Some(nonce) = nonce(command) else {
                self.block(why, "error");
                break;
            };
            self.block(nonce, "end");
        }
        for command in &asked.commands[asked.first_line..] {
            self.block(nonce(command).unwrap_or_default(), "end");
        }
    }

    fn block(&mut self, body: &str, end: &str) {
        let guard = format!("1700000000 {} 1", self.number);
        self.number += 1;
        let body = if body.is_empty() { String::new() } else { format!("{body}\n") };
        self.say(&format!("%begin {guard}\n{body}%{end} {guard}"));
    }

    /// Replies to the next request, which must be `list-panes`, with these rows.
    pub async fn list(&mut self, rows: &[Row]) {
        let asked = self.request().await;
        let commands = asked.commands();
        assert!(commands[0].starts_with("list-panes"), "{asked:?}");
        let format = commands[0].split_once('"').unwrap().1.trim_end_matches('"');
        let lines: Vec<_> = rows.iter().map(|row| row.fill(format)).collect();
        self.answer(&asked, &[&lines.join("\n")]);
    }

    /// Replies to the next request, which must be a seed's query, with this text on the screen.
    pub async fn seed(&mut self, text: &str) {
        let asked = self.request().await;
        self.answer_seed(&asked, text);
    }

    /// Replies to a seed's request that was read.
    pub fn answer_seed(&mut self, asked: &ReceivedRequest, text: &str) {
        let commands = asked.commands();
        assert!(commands[0].starts_with("capture-pane"), "{asked:?}");
        let screen = if text.is_empty() { "\n".to_owned() } else { text.to_owned() };
        let body = |command: &&str| match command {
            command if command.starts_with("capture-pane") && !command.contains("-P") => screen.as_str(),
            command if command.starts_with("display-message") => "0|0|0|1|0|0|||55",
            _ => "",
        };
        self.answer(asked, &commands.iter().map(body).collect::<Vec<_>>());
    }

    /// Replies to the next request, whatever it is, with empty bodies. Returns its own commands.
    pub async fn accept(&mut self) -> Vec<String> {
        let asked = self.request().await;
        self.answer(&asked, &[]);
        asked.commands().into_iter().map(str::to_owned).collect()
    }
}

/// A line of `list-panes -a`.
pub struct Row(Vec<(&'static str, String)>);

/// Returns a row of pane `pane` in window `window` of session `session`, alive.
pub fn row(session: u32, window: u32, pane: u32) -> Row {
    Row(vec![
        ("session_id", format!("${session}")),
        ("session_name", format!("s{session}")),
        ("window_id", format!("@{window}")),
        ("window_index", window.to_string()),
        ("window_active", "1".into()),
        ("window_width", "80".into()),
        ("window_height", "24".into()),
        ("pane_id", format!("%{pane}")),
        ("pane_index", "0".into()),
        ("pane_active", "1".into()),
        ("pane_pid", (1000 + pane).to_string()),
        ("pane_width", "80".into()),
        ("pane_height", "24".into()),
        ("pane_dead", "0".into()),
    ])
}

impl Row {
    /// Returns the row with another value of a format.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.0.retain(|(known, _)| *known != name);
        self.0.push((name, value.into()));
        self
    }

    fn fill(&self, format: &str) -> String {
        let mut line = String::new();
        for part in format.split("#{") {
            let Some((name, rest)) = part.split_once('}') else { continue };
            line.push_str(self.0.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value));
            line.push_str(rest);
        }
        line
    }
}

/// Returns the nonce that a command prints, if it does nothing else.
fn nonce(command: &str) -> Option<&str> {
    let nonce = command.strip_prefix("display-message -p ")?;
    (nonce.len() == 18 && nonce.starts_with("mt")).then_some(nonce)
}

/// Splits a line into its commands.
fn split(line: &str) -> Vec<String> {
    let mut commands = vec![String::new()];
    let (mut quoted, mut escaped) = (false, false);
    for c in line.chars() {
        match c {
            '"' if !escaped => quoted = !quoted,
            ';' if !quoted && !escaped => {
                commands.push(String::new());
                continue;
            }
            _ => {}
        }
        escaped = c == '\\' && !escaped;
        commands.last_mut().unwrap().push(c);
    }
    commands.iter().map(|command| with_full_name(command.trim())).collect()
}

/// Returns a command by its full name, as tmux finds it.
fn with_full_name(command: &str) -> String {
    match command.split_once(' ') {
        Some((name, rest)) => format!("{} {rest}", names::full(name)),
        None => names::full(command).to_owned(),
    }
}

mod tests;
