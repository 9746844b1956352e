//! `--watch`: prints a response again whenever it has changed.

use std::{
    io::{self, IsTerminal as _},
    pin::pin,
    time::{Duration, Instant},
};

use super::{
    EXIT_ERROR, Outcome,
    caller::Caller,
    client::{ConnectionLost, DAEMON_ENDED, EventStream},
    follow::{FollowedEvents, Recovery, Step},
    output::{self, Failure},
    terminal::{self, FullScreen, Keys, Signal, Signals},
};
use crate::{
    api::{Error, Event, EventsRequest, Result},
    daemon::start,
};

/// How long changes are collected before the next query.
const BURST: Duration = Duration::from_millis(50);
/// The minimum time between two queries.
const BETWEEN: Duration = Duration::from_millis(200);
/// The minimum time between two queries when panes have only printed.
const BETWEEN_OUTPUT: Duration = Duration::from_secs(1);

/// How often the next daemon may reject the stream before its error ends the command.
const REFUSALS: u32 = 3;

/// A response, in all its printed forms.
pub(super) struct View {
    /// The text for people.
    pub(super) text: String,
    /// One line of JSON.
    pub(super) json: String,
    /// The key that detects changes; without ages and cursors.
    pub(super) key: String,
}

impl View {
    pub(super) fn new(text: String, answer: &impl serde::Serialize, key: &impl serde::Serialize) -> Result<Self> {
        let json =
            |value: serde_json::Result<String>| value.map_err(|error| Error::internal(format!("response: {error}")));
        Ok(Self { text, json: json(serde_json::to_string(answer))?, key: json(serde_json::to_string(key))? })
    }

    /// Prints the response once.
    pub(super) fn print(&self, caller: &Caller) -> Outcome {
        if caller.json {
            output::print_json_line(self.json.as_bytes())?;
        } else {
            output::print(&self.text)?;
        }
        Ok(0)
    }
}

/// The source of changes.
pub(super) enum Source {
    /// The events of one tmux server.
    Events(EventsRequest),
    /// The daemon's status. Does not start a daemon.
    Status,
}

/// Prints the result of `look`, again whenever it has changed; on a terminal in place. Ends with
/// Ctrl-C or when the daemon is stopped.
pub(super) async fn watch(caller: &Caller, source: Source, look: impl AsyncFn(&Caller) -> Result<View>) -> Outcome {
    let mut signals = Signals::new()?;
    // An initial problem is an error, not shown on a screen that disappears.
    let mut changes = match attended(&mut signals, None, Changes::begin(caller, source)).await? {
        Ok(changes) => changes?,
        Err(status) => return Ok(status),
    };
    let asking = caller.without_start();
    let first = match attended(&mut signals, None, look(&asking)).await? {
        Ok(first) => first?,
        Err(status) => return Ok(status),
    };
    let mut screen = Screen::new(caller);
    screen.show(first)?;
    let mut pace = Pace::begin();
    loop {
        let step = tokio::select! {
            change = changes.next() => change,
            () = pace.due() => {
                pace.looked();
                // A daemon or tmux that hangs may delay this.
                match attended(&mut signals, Some(&screen), look(&asking)).await? {
                    Ok(Ok(view)) => screen.show(view)?,
                    Ok(Err(error)) => screen.fail(&error)?,
                    Err(status) => return Ok(status),
                }
                continue;
            }
            signal = signals.next() => match signal {
                Signal::End(status) => return Ok(status),
                Signal::Stop => { screen.suspend()?; continue }
                Signal::Resized => { screen.redraw()?; continue }
            },
        };
        match step {
            Change::None => {}
            Change::Output => pace.printed(),
            Change::Other => pace.changed(),
            Change::Ended(step) => {
                let recovery = match attended(&mut signals, Some(&screen), changes.recover(caller, step)).await? {
                    Ok(recovery) => recovery?,
                    Err(status) => return Ok(status),
                };
                if recovery == Recovery::DaemonEnded {
                    drop(screen);
                    output::report(&Error::unavailable(DAEMON_ENDED), caller.json);
                    return Ok(EXIT_ERROR);
                }
                pace.changed();
            }
        }
    }
}

/// When to query again: soon after a change, not too often, and otherwise never.
pub(super) struct Pace {
    looked: Instant,
    due: Option<Instant>,
}

impl Pace {
    /// Begins after a query.
    pub(super) fn begin() -> Self {
        Self { looked: Instant::now(), due: None }
    }

    /// Records a change.
    pub(super) fn changed(&mut self) {
        self.look_after(BETWEEN);
    }

    /// Records that panes have printed.
    pub(super) fn printed(&mut self) {
        self.look_after(BETWEEN_OUTPUT);
    }

    fn look_after(&mut self, between: Duration) {
        let next = (self.looked + between).max(Instant::now() + BURST);
        self.due = Some(self.due.map_or(next, |due| due.min(next)));
    }

    /// Records the beginning of a query.
    pub(super) fn looked(&mut self) {
        *self = Self::begin();
    }

    /// Resolves when the next query is due; never while nothing has changed.
    pub(super) async fn due(&self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due.into()).await,
            None => std::future::pending().await,
        }
    }
}

/// Awaits a future while handling signals. `Err`: the exit status of a signal that ends the command.
async fn attended<T>(
    signals: &mut Signals,
    screen: Option<&Screen>,
    awaited: impl Future<Output = T>,
) -> Result<Result<T, u8>, Failure> {
    let mut awaited = pin!(awaited);
    loop {
        let signal = tokio::select! {
            value = &mut awaited => return Ok(Ok(value)),
            signal = signals.next() => signal,
        };
        match (signal, screen) {
            (Signal::End(status), _) => return Ok(Err(status)),
            (Signal::Stop, Some(screen)) => screen.suspend()?,
            (Signal::Stop, None) => terminal::stop()?,
            (Signal::Resized, Some(screen)) => screen.redraw()?,
            (Signal::Resized, None) => {}
        }
    }
}

/// A step of a stream of changes.
enum Change {
    None,
    /// Panes show something new and may run another program.
    Output,
    Other,
    Ended(Step),
}

/// A stream of changes.
enum Changes {
    Events(Box<FollowedEvents>, EventsRequest),
    Status(Box<EventStream>),
}

impl Changes {
    async fn begin(caller: &Caller, source: Source) -> Result<Self> {
        match source {
            Source::Events(request) => {
                Ok(Self::Events(Box::new(FollowedEvents::begin(caller, &request).await?), request))
            }
            Source::Status => match Self::status(caller).await? {
                Some(status) => Ok(status),
                None => Err(no_daemon(caller)),
            },
        }
    }

    async fn status(caller: &Caller) -> Result<Option<Self>> {
        let Some(client) = caller.running().await? else { return Ok(None) };
        Ok(Some(Self::Status(Box::new(client.events("/v1/status/events", &(), None).await?))))
    }

    async fn next(&mut self) -> Change {
        let mut change = Change::None;
        let mut event = |data: &[u8]| {
            let is_output = matches!(serde_json::from_slice(data), Ok(Event::Screen { .. } | Event::Output { .. }));
            if !is_output {
                change = Change::Other;
            } else if matches!(change, Change::None) {
                change = Change::Output;
            }
        };
        let step = match self {
            Self::Events(followed, _) => followed.next(event).await,
            Self::Status(stream) => match stream.next(&mut event).await {
                Ok(true) => Step::Continues,
                Ok(false) => Step::Ended,
                Err(lost) => Step::Lost(lost),
            },
        };
        match step {
            Step::Continues => change,
            step => Change::Ended(step),
        }
    }

    async fn recover(&mut self, caller: &Caller, step: Step) -> Result<Recovery> {
        match (self, step) {
            (_, Step::Ended) => Ok(Recovery::DaemonEnded),
            (Self::Events(followed, request), step) => followed.recover(caller, request, step).await,
            (_, Step::Continues) => Ok(Recovery::NotNeeded),
            (status, Step::Lost(lost)) => {
                *status = Self::next_status(caller, lost).await?;
                Ok(Recovery::Reconnected)
            }
        }
    }

    /// Waits for the next daemon without starting one.
    async fn next_status(caller: &Caller, lost: ConnectionLost) -> Result<Self> {
        output::note(&format!("{}; waiting for another one", Error::from(lost).message));
        for refusals in 0.. {
            let paths = caller.paths.clone();
            let back = tokio::task::spawn_blocking(move || start::wait_for_restart(&paths, None)).await;
            if back.map_err(|error| Error::internal(error.to_string()))??.is_none() {
                return Err(no_daemon(caller));
            }
            match Self::status(caller).await {
                Ok(Some(status)) => return Ok(status),
                // A stopping daemon rejects requests; persistent errors are reported.
                Err(error) if refusals >= REFUSALS => return Err(error),
                Ok(None) | Err(_) => {}
            }
        }
        Err(no_daemon(caller))
    }
}

/// The error if no daemon is running and none may be started.
pub(super) fn no_daemon(caller: &Caller) -> Error {
    Error::not_found(format!("no muxtap daemon is running (its socket would be {})", caller.paths.socket.display()))
}

/// The place where views are shown.
struct Screen {
    json: bool,
    /// `None`: stdout is not a terminal, or the output is JSON; each view follows the previous one.
    full: Option<FullScreen>,
    /// The text and the key of the last view.
    shown: Option<(String, String)>,
}

impl Screen {
    fn new(caller: &Caller) -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let full = !caller.json && io::stdout().is_terminal() && !is_dumb;
        let full = if full { FullScreen::enter(Keys::Ignored).ok() } else { None };
        Self { json: caller.json, full, shown: None }
    }

    fn show(&mut self, view: View) -> Result<(), Failure> {
        if self.shown.as_ref().is_some_and(|(_, key)| *key == view.key) {
            return Ok(());
        }
        if self.json {
            output::print_json_line(view.json.as_bytes())?;
        } else {
            self.print(&view.text)?;
        }
        self.shown = Some((view.text, view.key));
        Ok(())
    }

    /// Shows the reason for an empty view.
    fn fail(&mut self, error: &Error) -> Result<(), Failure> {
        // No view's key has this prefix.
        let key = format!("error {}", error.message);
        if self.shown.as_ref().is_some_and(|(_, shown)| *shown == key) {
            return Ok(());
        }
        let text = format!("{}\n", error.message);
        if self.full.is_some() {
            self.print(&text)?;
        } else {
            output::report(error, self.json);
        }
        self.shown = Some((text, key));
        Ok(())
    }

    fn print(&self, text: &str) -> Result<(), Failure> {
        let text = muxtap_base::plain::text(text);
        if self.full.is_some() {
            return terminal::draw(&text.replace('\t', " "));
        }
        // An empty line separates tables.
        let end = if self.shown.is_some() { "\n" } else { "" };
        output::print(format!("{end}{text}"))
    }

    fn redraw(&self) -> Result<(), Failure> {
        if self.full.is_some()
            && let Some((text, _)) = &self.shown
        {
            self.print(text)?;
        }
        Ok(())
    }

    fn suspend(&self) -> Result<(), Failure> {
        match &self.full {
            Some(screen) => screen.suspend()?,
            None => terminal::stop()?,
        }
        self.redraw()
    }
}
