//! The task that owns an agent: reads its messages, serves its requests, keeps the deadlines, and
//! ends it.

use std::{
    collections::VecDeque,
    os::fd::AsFd as _,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use muxtap_api::{AgentEvent, Error, ErrorCode};
use muxtap_base::below::Below;
use serde_json::{Value, json, value::RawValue};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::unix::pipe,
    sync::{Semaphore, mpsc},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    acp::{self, Message},
    lines::{Line, Lines},
    process::{Agent, Ended},
    session::{CLOSED_LIMIT, Session},
    stored::{Ask, StoppedReader, StoppedWriter, until_decided},
    terminals::TerminalRequest,
};

/// The maximum length of a line from the agent, in bytes.
pub(super) const LINE_BYTES: usize = 16 << 20;
/// The maximum number of lines that wait for the agent to read them.
pub(super) const OUTGOING_LINES: usize = 256;
/// The maximum number of an agent's concurrent requests, including those that wait for a terminal's
/// end.
pub(super) const OPEN_REQUESTS: usize = 64;
/// How long to wait for the end of the stderr of an agent that failed to start.
const STDERR_LIMIT: Duration = Duration::from_millis(100);
/// The number of bytes that one read from an agent takes.
const CHUNK_BYTES: usize = 64 << 10;

/// The request of an agent that waits for the end of a terminal.
const WAIT_FOR_EXIT: &str = "terminal/wait_for_exit";

/// An agent that is read.
pub(super) struct Reader {
    agent: Agent,
    lines: Lines,
    /// When the agent closed its output.
    closed: Option<Instant>,
    /// The requests to stop for another daemon.
    asks: mpsc::Receiver<Ask<StoppedReader>>,
}

impl Reader {
    pub(super) fn new(agent: Agent, asks: mpsc::Receiver<Ask<StoppedReader>>) -> Self {
        Self { agent, lines: Lines::new(LINE_BYTES), closed: None, asks }
    }

    /// Continues with what another daemon has read.
    pub(super) fn continued(
        agent: Agent,
        asks: mpsc::Receiver<Ask<StoppedReader>>,
        (open, skipping, closed): (Vec<u8>, bool, Option<Instant>),
    ) -> Self {
        Self { agent, lines: Lines::within(LINE_BYTES, open, skipping), closed, asks }
    }

    /// Stops for another daemon. Returns whether that one continues.
    async fn stop(&mut self, session: &Session, ask: Ask<StoppedReader>) -> bool {
        let Self { agent, lines, closed, asks } = self;
        let store = || {
            let (process, descriptors) = agent.store()?;
            let (open, skipping) = lines.unfinished();
            Ok(StoppedReader { process, descriptors, open: open.to_vec(), skipping, closed: *closed })
        };
        let _ = ask.send(store());
        until_decided(session, asks, store).await
    }
}

/// Why an agent is served no more.
enum Over {
    /// The agent has ended by itself.
    Ended(Ended),
    /// The agent must be ended.
    Killed,
    /// Another daemon continues with it.
    Left,
}

/// Serves an agent until it and everything that it started have ended, or another daemon continues.
///
/// `awaited`: the requests for the ends of terminals that another daemon has not answered. `stderr`: what
/// the agent wrote last, and its end.
pub async fn run(
    session: Arc<Session>,
    mut reader: Reader,
    awaited: Vec<(Box<RawValue>, String)>,
    (stderr, stderr_end): (Arc<Mutex<Vec<u8>>>, CancellationToken),
    tasks: TaskTracker,
) {
    let served = Arc::new(Semaphore::new(OPEN_REQUESTS));
    for (id, terminal) in awaited {
        request(&session, id, WAIT_FOR_EXIT.to_owned(), json!({ "terminalId": terminal }), &served, &tasks);
    }
    let exited = match serve(&session, &mut reader, &served, &tasks).await {
        Over::Left => return reader.agent.leave(),
        Over::Ended(ended) => Some(ended),
        Over::Killed => None,
    };
    let agent = reader.agent;
    if exited.is_some() && !session.is_open() {
        // Stderr usually says why the agent failed to start.
        let _ = tokio::time::timeout(STDERR_LIMIT, stderr_end.cancelled()).await;
    }
    let last = stderr.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let last = String::from_utf8_lossy(&last).trim().to_owned();
    session.ending(&if last.is_empty() { String::new() } else { format!("; it said: {last}") });
    // Stops the tasks that serve its open requests, whose responses it will not read.
    session.kill.cancel();
    let engine = session.about.engine.clone();
    let status = agent.end(exited).await;
    let terminals = session.about.terminals.clone();
    let closed = engine.runtime().spawn(async move { terminals.close_all().await });
    let _ = closed.await;
    session.ended(status);
}

/// The event that woke the task.
enum Woken {
    Exited(Ended),
    Asked(Ask<StoppedReader>),
    Read(usize),
    Due,
}

/// Serves an agent until it must be ended, or another daemon continues.
async fn serve(session: &Arc<Session>, reader: &mut Reader, served: &Arc<Semaphore>, tasks: &TaskTracker) -> Over {
    let end = session.about.engine.end();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let mut tick = session.next_tick().unwrap_or(Duration::MAX);
        if tick.is_zero() {
            // Deadlines come before the agent's messages: steady output would delay them all.
            session.tick();
            tick = session.next_tick().unwrap_or(Duration::MAX);
        }
        let closing = reader.closed.map(|at| CLOSED_LIMIT.saturating_sub(at.elapsed()));
        let sleep = tick.min(closing.unwrap_or(Duration::MAX));
        let woken = {
            let Reader { agent, closed, asks, .. } = &mut *reader;
            let (exit, output) = agent.parts();
            tokio::select! {
                biased;
                () = session.kill.cancelled() => return Over::Killed,
                () = end.cancelled() => return Over::Killed,
                ended = exit => Woken::Exited(ended),
                Some(ask) = asks.recv() => Woken::Asked(ask),
                read = output.read(&mut chunk), if closed.is_none() => Woken::Read(read.unwrap_or(0)),
                () = session.wake.notified() => continue,
                () = tokio::time::sleep(sleep), if sleep < Duration::MAX => Woken::Due,
            }
        };
        match woken {
            Woken::Exited(ended) => {
                // The agent's last messages are still in the pipe.
                let Reader { agent, lines, .. } = reader;
                agent.drain(|bytes| take(session, lines, bytes, served, tasks));
                if lines.is_open() {
                    session.fault("the agent ended in the middle of a line");
                }
                return Over::Ended(ended);
            }
            Woken::Asked(ask) => {
                if reader.stop(session, ask).await {
                    return Over::Left;
                }
            }
            Woken::Read(0) => reader.closed = Some(Instant::now()),
            Woken::Read(read) => {
                take(session, &mut reader.lines, chunk.get(..read).unwrap_or_default(), served, tasks);
            }
            Woken::Due => {
                if reader.closed.is_some_and(|at| at.elapsed() >= CLOSED_LIMIT) {
                    session.fail("the agent closed its output");
                }
                session.tick();
            }
        }
    }
}

/// Processes bytes from the agent.
fn take(session: &Arc<Session>, lines: &mut Lines, bytes: &[u8], served: &Arc<Semaphore>, tasks: &TaskTracker) {
    lines.feed(bytes, |line| match line {
        Line::TooLong(head) if Message::is_update(&head) => session.fault("skipped an update that is too long"),
        // A caller may wait for this line, and its id is unknown.
        Line::TooLong(_) => session.fail("the agent sent a line that is too long"),
        Line::Whole(line) => match Message::parse(&line) {
            Ok(Message::Request { id, method, params }) => request(session, id, method, params, served, tasks),
            Ok(Message::Notification { method, params }) => session.notified(&method, params),
            Ok(Message::Reply { id, result }) => session.replied(id, result),
            Err(fault) => session.fault(&fault),
        },
    });
}

/// Serves a request of the agent.
fn request(
    session: &Arc<Session>,
    id: Box<RawValue>,
    method: String,
    params: Value,
    served: &Arc<Semaphore>,
    tasks: &TaskTracker,
) {
    if method == "session/request_permission" {
        return session.ask(id, params);
    }
    if method == "elicitation/create" {
        return session.elicit(id, &params);
    }
    let Ok(permit) = served.clone().try_acquire_owned() else {
        return session.reply(&id, Err((acp::CANNOT, format!("too many open requests: at most {OPEN_REQUESTS}"))));
    };
    // Any other request is carried out completely, and has its response soon.
    let can_stop = method == WAIT_FOR_EXIT;
    let terminal = params.get("terminalId").and_then(Value::as_str).filter(|_| can_stop).map(str::to_owned);
    let withdrawn = session.serving(&id, terminal);
    let (session, stop, left) = (session.clone(), session.kill.clone(), session.left.clone());
    tasks.spawn(async move {
        let _permit = permit;
        let serve = async {
            let result = tokio::select! {
                result = serve_one(&session, &method, params) => result,
                () = withdrawn.cancelled(), if can_stop => Err(acp::withdrawn()),
            };
            session.served(&id, result).await;
        };
        tokio::select! {
            () = serve => {}
            () = stop.cancelled() => {}
            () = left.cancelled() => {}
        }
    });
}

type Served = Result<Value, (i64, String)>;

async fn serve_one(session: &Arc<Session>, method: &str, params: Value) -> Served {
    let wrong = |what: &str| (acp::WRONG_PARAMS, format!("{method}: {what}"));
    let text = |name: &str| params.get(name).and_then(Value::as_str).map(str::to_owned);
    let needed = |name: &str| text(name).ok_or_else(|| wrong(&format!("{name} is missing")));
    let below = session.about.below.clone();
    let terminals = session.about.terminals.clone();
    let runtime = session.about.engine.runtime().clone();
    match method {
        "fs/read_text_file" => {
            let path = needed("path")?;
            let number = |name: &str| params.get(name).and_then(Value::as_u64);
            let (line, limit) = (number("line"), number("limit"));
            let read = move || {
                let missing = |below: &Below| below.holds(&path) && !below.has(&path);
                let code = |below: &Below| if missing(below) { acp::NOT_FOUND } else { acp::CANNOT };
                below.read(&path, line, limit).map_err(|message| (code(&below), message))
            };
            let text = blocking(read).await?;
            Ok(json!({ "content": text }))
        }
        "fs/write_text_file" => {
            let (path, text) = (needed("path")?, needed("content")?);
            blocking(move || below.write(&path, &text).map_err(|message| (acp::CANNOT, message))).await?;
            Ok(json!({}))
        }
        "terminal/create" => {
            let request: TerminalRequest =
                serde_json::from_value(params).map_err(|_| wrong("invalid command, args, env or cwd"))?;
            let cwd = session.about.cwd.display().to_string();
            let made = runtime.spawn(async move { terminals.create(request, &cwd).await });
            let terminal = done(made.await)?;
            session.event(AgentEvent::Terminal { terminal: terminal.clone() });
            Ok(json!({ "terminalId": terminal.id }))
        }
        "terminal/output" => {
            let id = needed("terminalId")?;
            done(runtime.spawn(async move { terminals.output(&id).await }).await)
        }
        WAIT_FOR_EXIT => {
            let id = needed("terminalId")?;
            // On this thread the wait ends with the session; in the engine's runtime it would
            // continue.
            terminals.ended(&id).await.map_err(|error| failed(&error))
        }
        "terminal/kill" => {
            let id = needed("terminalId")?;
            done(runtime.spawn(async move { terminals.kill(&id).await }).await).map(|()| json!({}))
        }
        "terminal/release" => {
            let id = needed("terminalId")?;
            done(runtime.spawn(async move { terminals.release(&id).await }).await).map(|()| json!({}))
        }
        _ => Err((acp::NO_METHOD, format!("unknown method: {method}"))),
    }
}

fn done<T>(result: Result<Result<T, Error>, tokio::task::JoinError>) -> Result<T, (i64, String)> {
    match result {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(failed(&error)),
        Err(_) => Err((acp::CANNOT, "muxtap is stopping".into())),
    }
}

/// Returns the response for an error: something that does not exist has its own code.
fn failed(error: &Error) -> (i64, String) {
    let code = if error.code == ErrorCode::NotFound { acp::NOT_FOUND } else { acp::CANNOT };
    (code, error.message.clone())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, (i64, String)> + Send + 'static,
) -> Result<T, (i64, String)> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err((acp::CANNOT, error.to_string())),
    }
}

/// An agent to which lines are written.
pub(super) struct Writer {
    session: Arc<Session>,
    stdin: pipe::Sender,
    lines: mpsc::Receiver<Vec<u8>>,
    /// The requests to stop for another daemon.
    asks: mpsc::Receiver<Ask<StoppedWriter>>,
    /// The lines that were taken, of which the first is being written.
    waiting: VecDeque<Vec<u8>>,
    /// The number of its bytes that are written.
    written: usize,
}

/// The event that woke the task that writes.
enum Step {
    Line(Option<Vec<u8>>),
    Written(std::io::Result<usize>),
    Asked(Ask<StoppedWriter>),
}

impl Writer {
    pub(super) fn new(
        session: Arc<Session>,
        stdin: pipe::Sender,
        lines: mpsc::Receiver<Vec<u8>>,
        asks: mpsc::Receiver<Ask<StoppedWriter>>,
    ) -> Self {
        Self::continued(session, stdin, lines, asks, (VecDeque::new(), 0))
    }

    /// Continues with what another daemon has written.
    pub(super) fn continued(
        session: Arc<Session>,
        stdin: pipe::Sender,
        lines: mpsc::Receiver<Vec<u8>>,
        asks: mpsc::Receiver<Ask<StoppedWriter>>,
        (waiting, written): (VecDeque<Vec<u8>>, usize),
    ) -> Self {
        Self { session, stdin, lines, asks, waiting, written }
    }

    async fn run(&mut self) {
        loop {
            let Self { stdin, lines, asks, waiting, written, .. } = &mut *self;
            let rest = waiting.front().and_then(|line| line.get(*written..)).unwrap_or_default();
            let step = tokio::select! {
                biased;
                Some(ask) = asks.recv() => Step::Asked(ask),
                line = lines.recv(), if rest.is_empty() => Step::Line(line),
                written = stdin.write(rest), if !rest.is_empty() => Step::Written(written),
            };
            match step {
                Step::Line(Some(line)) => waiting.push_back(line),
                Step::Line(None) => return,
                Step::Written(Ok(more)) if more > 0 => self.has_written(more),
                Step::Written(_) => {
                    // An exiting agent closes its input too; its exit is seen within this time.
                    if !self.pause(CLOSED_LIMIT).await {
                        self.session.fail("the agent closed its input");
                    }
                    return;
                }
                Step::Asked(ask) => {
                    if self.stop(ask).await {
                        return;
                    }
                }
            }
        }
    }

    /// Waits. Returns whether another daemon continues meanwhile.
    async fn pause(&mut self, time: Duration) -> bool {
        let mut sleep = std::pin::pin!(tokio::time::sleep(time));
        loop {
            tokio::select! {
                biased;
                Some(ask) = self.asks.recv() => if self.stop(ask).await {
                    return true;
                },
                () = &mut sleep => return false,
            }
        }
    }

    fn has_written(&mut self, more: usize) {
        self.written += more;
        let is_done = self.waiting.front().is_some_and(|line| line.len() <= self.written);
        if is_done && let Some(line) = self.waiting.pop_front() {
            self.written = 0;
            self.session.taken(line.len());
        }
    }

    /// Stops for another daemon. Returns whether that one continues.
    async fn stop(&mut self, ask: Ask<StoppedWriter>) -> bool {
        while let Ok(line) = self.lines.try_recv() {
            self.waiting.push_back(line);
        }
        let Self { session, stdin, asks, waiting, written, .. } = self;
        let store = || {
            let stdin = stdin.as_fd().try_clone_to_owned()?;
            Ok(StoppedWriter { stdin, lines: waiting.iter().cloned().collect(), written: *written })
        };
        let _ = ask.send(store());
        until_decided(session, asks, store).await
    }
}

/// Writes lines to the agent. If the agent closes its input, it is ended after a moment.
pub(super) async fn write(mut writer: Writer, end: CancellationToken) {
    tokio::select! {
        () = writer.run() => {}
        () = end.cancelled() => {}
    }
}
