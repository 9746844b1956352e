//! A page's connection: its views, and the messages for it.
//!
//! No message is made in advance. A view's message is made once the page has drawn the last one,
//! the pace allows it and the connection accepts it. A page that stops reading gets the current
//! state when it reads again.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use muxtap_engine::{Engine, Pane, PaneChanges, PaneCommand};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    Pages,
    answers::{Answer, Answers, Share},
    encode,
    frame::{Frame, Shot},
    lines::{Attached, Lines, Settled},
    list::{self, List},
    view::{Listed, View},
    wire::{self, Input, Message},
};

use muxtap_api::{CommandInfo, Error, ErrorCode, Result, Size, Tier, ToolCallAnswer};
use muxtap_approvals::approvals::{Approvals, Watcher};
use muxtap_core::screen::RowRuns;

/// The maximum number of messages per second for one view.
pub const FPS: u32 = 60;
/// The maximum number of a connection's views.
pub const VIEWS: usize = 512;
/// The maximum number of concurrent tool calls and history reads.
pub const CALLS: usize = 32;
/// The maximum number of lines in one response about history.
pub const HISTORY_LINES: u64 = 1000;
/// The number of history lines that are read before the pane's lock is released.
const HISTORY_AT_ONCE: u64 = 100;
/// How long a page may take to send its `hello`.
pub const HELLO_TIME: Duration = Duration::from_secs(10);
/// The minimum time between requests to tmux for a screen that memory is not certain of.
pub const STALE_PACE: Duration = Duration::from_millis(100);
/// The time in which changes of the lists are collected.
const LIST_PACE: Duration = Duration::from_millis(100);
/// How many times longer the list of panes rests than a rebuild takes; below, the longest rest.
///
/// A tmux server that hangs slows down every caller.
const LIST_SHARE: u32 = 20;
const LIST_REST: Duration = Duration::from_secs(2);
/// The maximum number of waiting messages; beyond it, a page that does not read is disconnected.
pub const ANSWERS: usize = 8192;
/// The maximum size of a page's waiting messages and its calls' expected responses, in bytes.
///
/// Above it, no message from the page is read.
pub const ANSWERS_BYTES: usize = 4 * 1024 * 1024;
/// The size of a call's response for each of its `max_chars`, in bytes: JSON escapes make it
/// longer.
const CHAR_BYTES: usize = 3;
/// The default `max_chars` of a call.
const CHARS: u64 = 16_000;
/// The maximum number of commands in one response; below, of the characters of a command's line, and
/// the usual maximum size of a command, in bytes.
const COMMANDS: usize = 200;
const COMMAND_CHARS: usize = 200;
const COMMAND_BYTES: usize = 1024;
/// The usual maximum size of a history line, in bytes; many styles make it larger.
const LINE_BYTES: usize = 1024;

/// Calls a native MCP tool for a page, with the page's engine, the tool's name and its arguments.
pub type CallTool = Arc<
    dyn Fn(Engine, String, serde_json::Map<String, Value>) -> BoxFuture<'static, Result<ToolCallAnswer>> + Send + Sync,
>;

/// A page's connection.
pub struct Connection {
    pages: Pages,
    engine: Engine,
    questions: Option<Approvals>,
    call_tool: CallTool,
    may_all: bool,
    may_type: bool,
    out: mpsc::Sender<Answer>,
    views: HashMap<u32, View>,
    serial: u64,
    /// The views that may send now.
    ready: VecDeque<u32>,
    /// The views that wait for their pace.
    timed: BTreeSet<(Instant, u32)>,
    changes: FuturesUnordered<BoxFuture<'static, Changed>>,
    tasks: FuturesUnordered<BoxFuture<'static, Done>>,
    calls: usize,
    /// The maximum total size of the responses to these calls, in bytes.
    expected: usize,
    answers: Answers,
    list: Option<PaneList>,
    waits: Option<(watch::Receiver<u64>, Pace)>,
    approvals: Option<Watcher>,
    runs: RowRuns,
}

/// A change of a view's pane, or the pane's end.
struct Changed {
    view: u32,
    serial: u64,
    changes: Option<muxtap_engine::PaneWatch>,
}

/// The result of a task.
enum Done {
    List(List, Duration),
    Shown { view: u32, serial: u64, frame: Option<Frame> },
    CallEnded { answer: Answer, expected: usize },
}

/// The list's state, if the page requested the list.
struct PaneList {
    changes: PaneChanges,
    last: Option<List>,
    next: Option<List>,
    following: list::Following,
    credit: bool,
    asking: bool,
    pace: Pace,
}

/// Whether an update is needed, and the earliest time for it.
struct Pace {
    dirty: bool,
    next: Instant,
}

impl Pace {
    fn now() -> Self {
        Self { dirty: true, next: Instant::now() }
    }

    /// Returns when the update is due, if one is needed.
    fn due(&self) -> Option<Instant> {
        self.dirty.then_some(self.next)
    }

    /// Starts the update if it is due. Returns whether it was.
    fn begin(&mut self) -> bool {
        let now = Instant::now();
        if !self.dirty || self.next > now {
            return false;
        }
        (self.dirty, self.next) = (false, now + LIST_PACE);
        true
    }
}

/// The next event of a connection.
enum Step {
    Room,
    Message(Option<Value>),
    Changed(Changed),
    Done(Done),
    Settled(Settled),
    Time,
    Panes(Option<()>),
    Waits(bool),
    Approvals(String),
    Replaced,
    Stop,
}

impl Connection {
    /// Creates a connection whose requests `engine` carries out.
    ///
    /// `may_all`: the page belongs to the daemon's user and has full rights. Messages for the page
    /// go to `out`, which has a small capacity.
    pub fn new(
        pages: Pages,
        engine: Engine,
        questions: Option<Approvals>,
        call_tool: CallTool,
        may_all: bool,
        out: mpsc::Sender<Answer>,
    ) -> Self {
        let may_type = engine.tiers().any(|tier| tier == Tier::Input);
        Self {
            pages,
            engine,
            questions,
            call_tool,
            may_all,
            may_type,
            out,
            views: HashMap::new(),
            serial: 0,
            ready: VecDeque::new(),
            timed: BTreeSet::new(),
            changes: FuturesUnordered::new(),
            tasks: FuturesUnordered::new(),
            calls: 0,
            expected: 0,
            answers: Answers::default(),
            list: None,
            waits: None,
            approvals: None,
            runs: RowRuns::default(),
        }
    }

    /// Serves the page until it disconnects (`messages` ends) or the engine stops.
    pub async fn serve(mut self, mut messages: mpsc::Receiver<Value>) {
        let Some(mut attached) = self.begin(&mut messages).await else { return };
        loop {
            let step = self.step(&mut messages, &mut attached).await;
            match step {
                Step::Room => {}
                Step::Message(Some(message)) => self.take(message, &attached),
                Step::Changed(changed) => self.changed(changed),
                Step::Done(done) => self.done(done),
                Step::Settled(settled) => self.answers.push_back(settled_message(&settled)),
                Step::Time => self.due(),
                Step::Panes(Some(())) => {
                    if let Some(list) = &mut self.list {
                        list.pace.dirty = true;
                    }
                }
                Step::Waits(true) => {
                    if let Some((_, pace)) = &mut self.waits {
                        pace.dirty = true;
                    }
                }
                Step::Approvals(message) => {
                    // The last message contains the whole state.
                    self.answers.drop_all(APPROVALS);
                    self.answers.push_back(message);
                }
                Step::Replaced => {
                    let error =
                        json!({ "code": "REPLACED", "message": "another connection has taken over this page's input" });
                    let _ = self.out.send(json!({ "type": "error", "error": error }).to_string().into()).await;
                    return;
                }
                Step::Message(None) | Step::Panes(None) | Step::Waits(false) | Step::Stop => return,
            }
            self.look_at_lists();
            if self.answers.len() > ANSWERS {
                return;
            }
            while let Ok(permit) = self.out.clone().try_reserve_owned() {
                let Some(message) = self.next_message() else { break };
                permit.send(message);
            }
        }
    }

    /// Performs the handshake; `None` if the peer is not a page.
    async fn begin(&mut self, messages: &mut mpsc::Receiver<Value>) -> Option<Attached> {
        let first = tokio::time::timeout(HELLO_TIME, messages.recv()).await.ok()??;
        let hello = match Message::read(first) {
            // A read-only page has no numbered input, and takes no input line from other pages.
            Ok(Message::Hello { .. }) if !self.may_type => Lines::attach_reader(&self.engine),
            Ok(Message::Hello { client }) => self.pages.lines.attach(&self.engine, client.as_deref()),
            Ok(_) => Err(Error::invalid("expected `hello` as the first message")),
            Err(error) => {
                let _ = self.out.send(error.into()).await;
                return None;
            }
        };
        let attached = match hello {
            Ok(mut attached) => {
                attached.fits = self.pages.fits.clone();
                attached
            }
            Err(error) => {
                let _ = self.out.send(wire::failed(&error, []).into()).await;
                return None;
            }
        };
        let may: Vec<_> = self.engine.tiers().map(Tier::as_str).collect();
        let welcome = json!({
            "type": "welcome", "version": env!("CARGO_PKG_VERSION"), "client": attached.line.id, "input": attached.taken,
            "may": may, "fps": FPS, "sockets": self.pages.sockets.to_string_lossy(),
        });
        self.answers.push_back(welcome.to_string());
        for refused in &attached.refused {
            self.answers.push_back(settled_message(refused));
        }
        Some(attached)
    }

    async fn step(&mut self, messages: &mut mpsc::Receiver<Value>, attached: &mut Attached) -> Step {
        let has_message = !self.answers.is_empty() || !self.ready.is_empty() || self.list_is_ready();
        // A page that does not read its responses cannot request more.
        let takes_messages = self.answers.bytes() + self.expected <= ANSWERS_BYTES;
        let due = self.next_due();
        let time = async {
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        let panes = async {
            match &mut self.list {
                Some(list) => list.changes.next().await,
                None => std::future::pending().await,
            }
        };
        let waits = async {
            match &mut self.waits {
                Some((changes, _)) => changes.changed().await.is_ok(),
                None => std::future::pending().await,
            }
        };
        let approvals = async {
            match &mut self.approvals {
                Some(watcher) => watcher.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // The input of a person goes first.
            biased;
            () = self.engine.stopping() => Step::Stop,
            () = attached.end.cancelled() => Step::Stop,
            () = attached.replaced.cancelled() => Step::Replaced,
            message = messages.recv(), if takes_messages => Step::Message(message),
            Some(settled) = attached.settled.recv() => Step::Settled(settled),
            room = self.out.reserve(), if has_message => match room {
                Ok(_) => Step::Room,
                Err(_) => Step::Stop,
            },
            Some(done) = self.tasks.next(), if !self.tasks.is_empty() => Step::Done(done),
            Some(changed) = self.changes.next(), if !self.changes.is_empty() => Step::Changed(changed),
            () = time => Step::Time,
            panes = panes => Step::Panes(panes),
            waits = waits => Step::Waits(waits),
            list = approvals => Step::Approvals(format!("{APPROVALS},\"approvals\":{}}}", json!(list.approvals))),
        }
    }

    /// Handles a message.
    fn take(&mut self, message: Value, attached: &Attached) {
        let message = match Message::read(message) {
            Ok(message) => message,
            Err(error) => return self.answers.push_back(error),
        };
        match message {
            Message::Hello { .. } => {
                self.answers.push_back(wire::failed(
                    &Error::invalid("duplicate `hello`: expected once, as the first message"),
                    [],
                ));
            }
            Message::List {} => {
                let changes = self.engine.pane_changes();
                let pace = Pace::now();
                self.list = Some(PaneList {
                    changes,
                    last: None,
                    next: None,
                    following: list::Following::default(),
                    credit: true,
                    asking: false,
                    pace,
                });
            }
            Message::Show { view, key } => self.show(view, &key),
            Message::Hide { view } => drop(self.views.remove(&view)),
            Message::Drawn { views, list } => {
                for view in views {
                    if let Some(shown) = self.views.get_mut(&view) {
                        shown.credit = true;
                        self.queue(view);
                    }
                }
                if let Some(panes) = self.list.as_mut().filter(|_| list) {
                    panes.credit = true;
                }
            }
            Message::History { id, view, from, count } => self.history(id, view, from, count),
            Message::Commands { id, view, changed } => self.commands(id, view, changed),
            Message::Input(input) => self.input(input, attached),
            Message::Waits {} if self.may_all => self.waits = Some((self.engine.wait_changes(), Pace::now())),
            Message::Waits {} => {
                let error = Error::new(ErrorCode::Unauthorized, "`waits` requires a page with full rights");
                self.answers.push_back(wire::failed(&error, []));
            }
            Message::Approvals {} => {
                let approvals = self.questions.as_ref().filter(|_| self.may_all);
                if let Some(approvals) = approvals {
                    self.approvals = Some(approvals.watch());
                } else {
                    let error = Error::new(ErrorCode::Unauthorized, "`approvals` requires a page with full rights");
                    self.answers.push_back(wire::failed(&error, []));
                }
            }
            Message::Call { id, tool, arguments } => self.call(id, tool, arguments),
            Message::Fit { id, key, columns, rows } => {
                let size = Size { width: columns, height: rows };
                let (engine, fits, page) = (self.engine.clone(), attached.fits.clone(), attached.line.id.clone());
                if let Some(pane) = self.engine.pane_of_key(&key) {
                    self.work(id, 0, async move {
                        fits.fit(&engine, &page, pane, size).await?;
                        Ok(json!({ "columns": columns, "rows": rows }))
                    });
                } else {
                    let answer = json!({ "type": "result", "id": id, "error": gone(&key) });
                    self.answers.push_back(answer.to_string());
                }
            }
            Message::Unfit { id, key } => {
                let (engine, fits, page) = (self.engine.clone(), attached.fits.clone(), attached.line.id.clone());
                self.work(id, 0, async move {
                    fits.unfit(&engine, &page, &key).await?;
                    Ok(json!({}))
                });
            }
        }
    }

    fn show(&mut self, number: u32, key: &str) {
        let refused = |error: &Error| wire::failed(error, [("view", u64::from(number))]);
        if self.views.len() >= VIEWS && !self.views.contains_key(&number) {
            let error = Error::new(ErrorCode::ResourceLimit, format!("too many views: at most {VIEWS}; hide some"));
            return self.answers.push_back(refused(&error));
        }
        let Some(pane) = self.engine.pane_of_key(key) else {
            drop(self.views.remove(&number));
            return self.answers.push_back(refused(&gone(key)));
        };
        self.serial += 1;
        let mut view = View::new(pane, self.serial, Instant::now());
        watch_pane(&self.changes, number, &mut view, false);
        self.views.insert(number, view);
        self.queue(number);
    }

    /// Queues a view until its pace allows a message.
    fn queue(&mut self, number: u32) {
        let Some(view) = self.views.get_mut(&number) else { return };
        if view.queued || !view.credit || !view.dirty && view.asked.is_none() {
            return;
        }
        view.queued = true;
        if view.turns.next <= Instant::now() {
            self.ready.push_back(number);
        } else {
            self.timed.insert((view.turns.next, number));
        }
    }

    fn changed(&mut self, changed: Changed) {
        let Changed { view: number, serial, changes } = changed;
        let Some(view) = self.views.get_mut(&number).filter(|view| view.serial == serial) else { return };
        view.dirty = true;
        // The pane is watched again once its view was drawn.
        view.watch = changes;
        self.queue(number);
    }

    /// Moves the views whose time has come to the ready ones.
    fn due(&mut self) {
        let now = Instant::now();
        while let Some((at, number)) = self.timed.first().copied().filter(|(at, _)| *at <= now) {
            self.timed.remove(&(at, number));
            self.ready.push_back(number);
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let list = self.list.as_ref().filter(|list| list.credit && !list.asking && list.next.is_none());
        let list = list.and_then(|list| list.pace.due());
        let waits = self.waits.as_ref().and_then(|(_, pace)| pace.due());
        [self.timed.first().map(|(at, _)| *at), list, waits].into_iter().flatten().min()
    }

    /// Returns the next message for the page.
    fn next_message(&mut self) -> Option<Answer> {
        if let Some(answer) = self.answers.pop_front() {
            return Some(answer);
        }
        if self.list_is_ready()
            && let Some(list) = &mut self.list
        {
            let now = list.next.take().unwrap_or_default();
            let message = list::message(list.last.as_ref(), &now);
            list.last = Some(now);
            if message.is_some() {
                list.credit = false;
                return message.map(Answer::from);
            }
        }
        while let Some(number) = self.ready.pop_front() {
            if let Some(message) = self.view_message(number) {
                return Some(message);
            }
        }
        None
    }

    fn list_is_ready(&self) -> bool {
        self.list.as_ref().is_some_and(|list| list.credit && list.next.is_some())
    }

    /// Returns the message of a view that may send. `None`: the view is up to date.
    fn view_message(&mut self, number: u32) -> Option<Answer> {
        let view = self.views.get_mut(&number).filter(|view| view.queued)?;
        view.queued = false;
        if !view.credit {
            return None;
        }
        let runs = &mut self.runs;
        let is_news = std::mem::take(&mut view.dirty);
        // The watch begins first, and reports every change after this look.
        watch_pane(&self.changes, number, view, true);
        let asked = view.asked.take();
        let frame = match view.pane.look(|look| Shot::of(look, runs)) {
            Shot::Frame(frame) => *frame,
            Shot::Stale => {
                if is_news || asked.is_none() {
                    self.ask(number);
                }
                asked?
            }
        };
        let view = self.views.get_mut(&number)?;
        let message = frame.message(number, view.last.as_ref());
        if let Some(exit) = frame.exit.filter(|_| !view.ended) {
            view.ended = true;
            let exit = json!({ "status": exit.status, "signal": exit.signal });
            self.answers.push_back(json!({ "type": "ended", "view": number, "exit": exit }).to_string());
        } else if frame.exit.is_none() {
            view.ended = false;
        }
        let is_drawn_anew = frame.is_drawn_anew(view.last.as_ref());
        view.last = Some(frame);
        if message.is_some() {
            view.credit = false;
            view.turns.sent(Instant::now(), is_drawn_anew);
        }
        message.map(Answer::from).or_else(|| self.answers.pop_front())
    }

    /// Requests a view's screen from tmux.
    fn ask(&mut self, number: u32) {
        let Some(view) = self.views.get_mut(&number) else { return };
        if std::mem::replace(&mut view.asking, true) {
            // The pending response may precede the change.
            view.dirty = true;
            return;
        }
        let wait = view.asked_at.map(|at| STALE_PACE.saturating_sub(at.elapsed())).unwrap_or_default();
        view.asked_at = Some(Instant::now() + wait);
        let (pane, serial) = (view.pane.clone(), view.serial);
        let asked = self.engine.runtime().spawn(async move {
            tokio::time::sleep(wait).await;
            let shown = pane.shown().await;
            pane.look(|look| Frame::of_tmux(shown.as_ref().ok(), look, &mut RowRuns::default()))
        });
        let asked = AbortOnDropHandle::new(asked);
        self.tasks.push(Box::pin(async move {
            let frame = asked.await.ok().flatten();
            Done::Shown { view: number, serial, frame }
        }));
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::List(found, took) => {
                if let Some(list) = &mut self.list {
                    list.asking = false;
                    // Each rebuild lists all panes in tmux: constant title changes must not take up
                    // tmux's time.
                    list.pace.next = list.pace.next.max(Instant::now() + (took * LIST_SHARE).min(LIST_REST));
                    list.next = Some(found);
                }
            }
            Done::Shown { view: number, serial, frame } => {
                let Some(view) = self.views.get_mut(&number).filter(|view| view.serial == serial) else { return };
                view.asking = false;
                // Changes in the meantime are read first; this frame is sent if memory is still
                // uncertain.
                view.asked = frame;
                self.queue(number);
            }
            Done::CallEnded { answer, expected } => {
                self.calls -= 1;
                self.expected -= expected;
                self.answers.push_back(answer);
            }
        }
    }

    fn look_at_lists(&mut self) {
        if let Some(list) = self.list.as_mut().filter(|list| list.credit && !list.asking && list.next.is_none())
            && list.pace.begin()
        {
            list.asking = true;
            let (engine, following) = (self.engine.clone(), list.following.clone());
            let listed = self.pages.listed.clone();
            let found = AbortOnDropHandle::new(self.engine.runtime().spawn(async move {
                let begun = Instant::now();
                let last = listed.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let now = list::all(engine, following, last).await;
                listed.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&now);
                (now, begun.elapsed())
            }));
            self.tasks.push(Box::pin(async move {
                let (list, took) = found.await.unwrap_or_default();
                Done::List(list, took)
            }));
        }
        if let Some((_, pace)) = &mut self.waits
            && pace.begin()
        {
            // The last message contains the whole state.
            self.answers.drop_all(WAITS);
            self.answers.push_back(format!("{WAITS},\"waits\":{}}}", json!(self.engine.waits())));
        }
    }

    fn history(&mut self, id: u64, number: u32, from: u64, count: u64) {
        let Some(view) = self.views.get(&number) else {
            let error = Error::not_found(format!("unknown view: {number}"));
            return self.answers.push_back(wire::failed(&error, [("id", id)]));
        };
        let pane = view.pane.clone();
        let count = count.min(HISTORY_LINES);
        let expected = count as usize * LINE_BYTES;
        let share = match self.begin_call(expected) {
            Ok(share) => share,
            Err(error) => return self.answers.push_back(wire::failed(&error, [("id", id)])),
        };
        let read = move || read_history(&pane, id, from, count);
        let read = AbortOnDropHandle::new(tokio::task::spawn(async move { read() }));
        self.tasks.push(Box::pin(async move {
            let answer =
                read.await.unwrap_or_else(|error| wire::failed(&Error::internal(error.to_string()), [("id", id)]));
            Done::CallEnded { answer: Answer::of(answer, share), expected }
        }));
    }

    /// Lists the commands of a view's pane, with their lines; `changed`: only what has changed since
    /// the last list.
    fn commands(&mut self, id: u64, number: u32, changed: bool) {
        let Some(view) = self.views.get(&number) else {
            let error = Error::not_found(format!("unknown view: {number}"));
            return self.answers.push_back(wire::failed(&error, [("id", id)]));
        };
        let (pane, listed) = (view.pane.clone(), view.listed.clone());
        self.work(id, COMMANDS * COMMAND_BYTES, async move {
            let placed = pane.commands_by_line(COMMANDS)?;
            let mut listed = listed.lock().unwrap_or_else(PoisonError::into_inner);
            if !changed {
                *listed = Listed::default();
            }
            Ok(listed.change(placed.iter().map(|placed| (placed.1.command.number, command(placed))).collect()))
        });
    }

    fn input(&mut self, mut input: Input, attached: &Attached) {
        let pane = self.engine.pane_of_key(&input.key).ok_or_else(|| gone(&input.key));
        let outcome = match input.typed() {
            Ok(typed) => attached.line.take(input.seq, typed, pane),
            Err(error) => Some(Err(error)),
        };
        if let Some(outcome) = outcome {
            self.answers.push_back(settled_message(&(input.seq, outcome)));
        }
    }

    fn call(&mut self, id: u64, tool: String, arguments: serde_json::Map<String, Value>) {
        let engine = self.engine.by_face("mcp");
        let chars = arguments.get("max_chars").and_then(Value::as_u64).unwrap_or(CHARS);
        let expected = (chars as usize).saturating_mul(CHAR_BYTES).min(ANSWERS_BYTES);
        let answer = (self.call_tool)(engine, tool, arguments);
        self.work(id, expected, async move { Ok(json!(answer.await?)) });
    }

    /// Counts a call whose response has at most `expected` bytes. Error: `RESOURCE_LIMIT`.
    fn begin_call(&mut self, expected: usize) -> Result<Option<Share>> {
        if self.calls >= CALLS {
            return Err(Error::new(ErrorCode::ResourceLimit, format!("too many calls in progress: at most {CALLS}")));
        }
        let share = self.pages.answers.hold(expected, !self.may_type)?;
        self.calls += 1;
        self.expected += expected;
        Ok(share)
    }

    /// Runs work in the background, and responds with its result, of at most `expected` bytes.
    fn work(&mut self, id: u64, expected: usize, work: impl Future<Output = Result<Value>> + Send + 'static) {
        let share = match self.begin_call(expected) {
            Ok(share) => share,
            Err(error) => {
                let answer = json!({ "type": "result", "id": id, "error": error });
                return self.answers.push_back(answer.to_string());
            }
        };
        let called = AbortOnDropHandle::new(self.engine.runtime().spawn(work));
        self.tasks.push(Box::pin(async move {
            let answered = called.await.unwrap_or_else(|error| Err(Error::internal(error.to_string())));
            let answer = match answered {
                Ok(result) => json!({ "type": "result", "id": id, "result": result }).to_string(),
                Err(error) => json!({ "type": "result", "id": id, "error": error }).to_string(),
            };
            Done::CallEnded { answer: Answer::of(answer, share), expected }
        }));
    }
}

/// The beginnings of messages of which the last one contains the whole state.
const WAITS: &str = r#"{"type":"waits""#;
const APPROVALS: &str = r#"{"type":"approvals""#;

/// Watches a view's pane for its next change. `again`: only if its last watch has ended.
fn watch_pane(changes: &FuturesUnordered<BoxFuture<'static, Changed>>, number: u32, view: &mut View, again: bool) {
    let serial = view.serial;
    let watch = if again { view.watch.take() } else { Some(view.pane.watch()) };
    let Some(mut watch) = watch else { return };
    watch.mark_seen();
    let end: CancellationToken = view.end.clone();
    changes.push(Box::pin(async move {
        let is_there = tokio::select! {
            is_there = watch.changed() => is_there,
            () = end.cancelled() => false,
        };
        Changed { view: number, serial, changes: is_there.then_some(watch) }
    }));
}

fn gone(key: &str) -> Error {
    let shown: String = key.chars().take(80).collect();
    Error::not_found(format!("key: no pane has the key {shown:?}"))
}

fn settled_message((seq, outcome): &Settled) -> String {
    match outcome {
        Ok(cursor) => format!(r#"{{"type":"ack","seq":{seq},"cursor":"{cursor}"}}"#),
        Err(error) => json!({ "type": "nack", "seq": seq, "error": error }).to_string(),
    }
}

/// Returns a command with the number of its line.
fn command((at, placed): &(u64, PaneCommand)) -> Value {
    let CommandInfo { number, line, started_ms, duration_ms, status, signal, end, whole, .. } = placed.into();
    let line = line.map(|line| line.chars().take(COMMAND_CHARS).collect::<String>());
    json!({
        "at": at, "number": number, "line": line, "started_ms": started_ms, "duration_ms": duration_ms,
        "status": status, "signal": signal, "end": end, "whole": whole,
    })
}

/// Reads lines of a pane's history.
fn read_history(pane: &Pane, id: u64, from: u64, count: u64) -> String {
    let (mut runs, mut lines) = (RowRuns::default(), String::new());
    let (mut begin, mut next, mut first) = (None, from, 0);
    let end = from.saturating_add(count);
    while next < end {
        let more = pane.look(|look| {
            let Some(screen) = look.screen else { return false };
            first = screen.history_start();
            next = next.max(first).min(end.max(first));
            let stop = end.min(next.saturating_add(HISTORY_AT_ONCE));
            let mut history = screen.history();
            while next < stop && history.read(next, &mut runs) {
                begin.get_or_insert(next);
                if !lines.is_empty() {
                    lines.push(',');
                }
                encode::row(screen, &runs, &mut lines);
                next += 1;
            }
            next == stop
        });
        if !more {
            break;
        }
    }
    let from = begin.unwrap_or(next);
    format!(r#"{{"type":"history","id":{id},"from":{from},"lines":[{lines}],"first":{first},"next":{next}}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muxtap_engine::Options;

    /// A page that does not read gets a limited number of bytes, and its further messages wait.
    #[tokio::test(start_paused = true)]
    async fn answers_that_a_page_does_not_take_are_bounded_in_bytes() {
        const LONG: usize = 1 << 20;
        let engine = Engine::new(Options::default());
        let (out, mut taken) = mpsc::channel(1);
        let no_tools: CallTool = Arc::new(|_, name, _| Box::pin(async { Err(Error::not_found(name)) }));
        let (say, messages) = mpsc::channel(1);
        let connection = Connection::new(Pages::default(), engine.clone(), None, no_tools, true, out);
        let serving = tokio::spawn(connection.serve(messages));
        say.send(json!({ "type": "hello" })).await.unwrap();
        assert!(taken.recv().await.unwrap().text.contains("welcome"));
        // The error contains the tool's name.
        let call = |id: u64| json!({ "type": "call", "id": id, "tool": "x".repeat(LONG), "arguments": {} });
        let mut said = 0;
        while said < 100 && tokio::time::timeout(Duration::from_secs(60), say.send(call(said))).await.is_ok() {
            said += 1;
        }
        assert!((4..100).contains(&said), "{said}");
        // Reading makes space for further messages.
        for _ in 0..said {
            let answer = taken.recv().await.unwrap();
            assert!(answer.text.len() > LONG, "{}", answer.text.len());
        }
        say.send(call(said)).await.unwrap();
        assert!(taken.recv().await.unwrap().text.len() > LONG);
        drop(say);
        serving.await.unwrap();
        engine.stop().await;
    }
}
