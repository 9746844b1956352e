//! `wait-for` without a runtime: one request on a blocking connection, and a clock for the progress
//! line.

use std::{
    io::{self, Read as _},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use hyper::StatusCode;
use muxtap_base::nonce;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use signal_hook::{consts::SIGINT, low_level::pipe};

use super::{
    Caller, Outcome, PATIENCE, Progress, WaitFor, conditions, ids_of, lost_wait, print, progress_line, shows_progress,
    status,
};
use crate::{
    api::{Error, WaitAnswer, WaitRequest},
    cli::{
        EXIT_INTERRUPTED,
        exchange::{Connection, Reply},
        one_request::Ask,
        output::Failure,
        url,
    },
};

impl WaitFor {
    /// Waits without a runtime. `None`: nothing was done, and [`WaitFor::run`] is needed.
    pub(in crate::cli) fn run_at_once(&self, caller: &Caller) -> Option<Outcome> {
        let request = self.request();
        let key = nonce::hex64();
        let mut ask = match Ask::post("/v1/waits".to_owned(), &request) {
            Ok(ask) => ask,
            Err(error) => return Some(Err(error.into())),
        };
        ask.key = Some(key.clone());
        // First: where this fails, the whole program has signals of its own.
        let connection = Connection::open(caller)?;
        let mut interrupt = Interrupt::catch().ok()?;
        let waited = wait(connection, &ask, &conditions(&request), &mut interrupt);
        Some(match waited {
            Ok(Some(answer)) => print(&answer, caller.json).map(|()| status(&answer, self.propagate)),
            Ok(None) => end(caller, &key, &request, &mut interrupt).map(|()| EXIT_INTERRUPTED).map_err(Failure::from),
            Err(error) => Err(error.into()),
        })
    }
}

/// Ctrl-C, as a stream that becomes readable.
struct Interrupt {
    stream: UnixStream,
    /// Whether it has come.
    came: bool,
}

impl Interrupt {
    fn catch() -> io::Result<Self> {
        let (stream, written) = UnixStream::pair()?;
        pipe::register(SIGINT, written)?;
        Ok(Self { stream, came: false })
    }
}

/// Sends the request and waits for its reply; sends it again if only the connection was lost.
/// `None`: Ctrl-C came.
fn wait(
    mut connection: Connection<'_>,
    ask: &Ask,
    conditions: &str,
    interrupt: &mut Interrupt,
) -> Result<Option<WaitAnswer>, Error> {
    let begun = Instant::now();
    let mut progress = Progress { shown: false };
    let mut due = shows_progress().then_some(begun + PATIENCE);
    let mut before_read = |stream: &UnixStream| {
        loop {
            let pause = due.map(|due| due.saturating_duration_since(Instant::now()));
            match readable(stream, interrupt, pause)? {
                Readable::Reply => return Ok(()),
                Readable::Interrupt => return Err(io::ErrorKind::Interrupted.into()),
                Readable::Nothing if due.is_none_or(|due| Instant::now() < due) => {}
                Readable::Nothing => {
                    progress.show(&progress_line(conditions, begun.elapsed()));
                    due = due.map(|due| due + Duration::from_secs(1));
                }
            }
        }
    };
    let mut replied = connection.ask(ask, &mut before_read);
    if replied.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted)
        && let Some(again) = connection.reopen()
    {
        connection = again;
        replied = connection.ask(ask, &mut before_read);
    }
    match replied {
        Ok(reply) => reply.read().map(Some),
        Err(_) if interrupt.came => Ok(None),
        Err(error) => Err(lost_wait(connection.lost(&error), conditions)),
    }
}

/// What can be read.
enum Readable {
    Reply,
    Interrupt,
    Nothing,
}

/// Waits, at most this long, until the reply or the interrupt can be read.
fn readable(stream: &UnixStream, interrupt: &mut Interrupt, pause: Option<Duration>) -> io::Result<Readable> {
    let pause = pause.and_then(|pause| Timespec::try_from(pause).ok());
    let mut polled = [PollFd::new(stream, PollFlags::IN), PollFd::new(&interrupt.stream, PollFlags::IN)];
    match poll(&mut polled, pause.as_ref()) {
        // The next call sees whether it was Ctrl-C.
        Err(Errno::INTR) => return Ok(Readable::Nothing),
        polled => polled?,
    };
    let [reply, interrupted] = polled.map(|polled| !polled.revents().is_empty());
    if interrupted {
        interrupt.came = true;
        // The next Ctrl-C can be read again.
        let _ = interrupt.stream.read(&mut [0; 16]);
        return Ok(Readable::Interrupt);
    }
    Ok(if reply { Readable::Reply } else { Readable::Nothing })
}

/// Ends the wait with this key, where it is: here, or at the muxtap of its panes' host.
/// Another Ctrl-C ends this, too.
fn end(caller: &Caller, key: &str, request: &WaitRequest, interrupt: &mut Interrupt) -> Result<(), Error> {
    let mut before_read = |stream: &UnixStream| {
        loop {
            match readable(stream, interrupt, None)? {
                Readable::Reply => return Ok(()),
                Readable::Interrupt => return Err(io::ErrorKind::Interrupted.into()),
                Readable::Nothing => {}
            }
        }
    };
    for id in ids_of(caller, &format!("w-{key}"), &request.panes) {
        let Some(mut connection) = Connection::open(caller) else { return Ok(()) };
        let ask = Ask::delete(format!("/v1/waits/{}", url::encode(&id)));
        let reply: Reply = match connection.ask(&ask, &mut before_read) {
            // The wait ends at its timeout.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            replied => replied.map_err(|error| connection.perhaps_done(&error))?,
        };
        if reply.status != StatusCode::NOT_FOUND {
            return reply.read::<WaitAnswer>().map(drop);
        }
    }
    // It was over just then, or had not begun.
    Ok(())
}
