//! Live streams of panes, for asciinema's players.

use std::{collections::VecDeque, time::Duration};

use muxtap_engine::Pane;
use tokio::{sync::Semaphore, task::JoinHandle};

use super::{
    alis::{Alis, MAGIC},
    redact::{HELD_TIME, Piece, Redactor, Secrets},
    source::{Item, Source},
};

use muxtap_api::{Error, Result, Since, Size};
use muxtap_core::screen::Screen;

/// The maximum number of concurrent redactions; others wait.
pub(crate) const REPLACING: usize = 2;

static TURNS: Semaphore = Semaphore::const_new(REPLACING);

/// A stream of messages.
pub struct Live {
    source: Source,
    writer: Writer,
}

/// The place where the messages are made.
///
/// A slow pattern takes long with some output: redaction runs on threads of its own, and delays
/// only its own stream.
enum Writer {
    Here(Box<Messages>),
    Away(JoinHandle<Result<Box<Messages>>>),
}

impl Writer {
    /// Starts making messages. This continues even if the result is not awaited.
    fn begin(&mut self, mut messages: Box<Messages>, make: impl FnOnce(&mut Messages) + Send + 'static) {
        if messages.secrets.is_none() {
            make(&mut messages);
            *self = Self::Here(messages);
            return;
        }
        *self = Self::Away(tokio::spawn(replaced(move || {
            make(&mut messages);
            messages
        })));
    }

    /// Returns the messages once they are made. Cancel safe.
    async fn here(&mut self) -> Result<&mut Box<Messages>> {
        if let Self::Away(making) = self {
            let made =
                making.await.map_err(|error| Error::internal(format!("cannot create a live stream: {error}")))?;
            *self = Self::Here(made?);
        }
        match self {
            Self::Here(messages) => Ok(messages),
            Self::Away(_) => Err(Error::internal("a live stream is missing")),
        }
    }
}

/// Runs a redaction on a thread of its own, at most [`REPLACING`] at a time.
pub(super) async fn replaced<T: Send + 'static>(replace: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let lost = |error: &dyn std::fmt::Display| Error::internal(format!("cannot replace secrets: {error}"));
    let _turn = TURNS.acquire().await.map_err(|error| lost(&error))?;
    tokio::task::spawn_blocking(replace).await.map_err(|error| lost(&error))
}

impl Live {
    /// Starts a stream with the pane's current screen.
    pub async fn begin(pane: Pane, secrets: Option<Secrets>) -> Result<Self> {
        let (source, start) = Source::begin(pane, &Since::Now, None).await?;
        let redactor = secrets.clone().map(|secrets| Redactor::new(secrets, start.size));
        let messages = Messages { alis: Alis::default(), redactor, secrets, ready: VecDeque::new(), over: false };
        let mut writer = Writer::Here(Box::default());
        writer.begin(Box::new(messages), move |messages| messages.begin(start.size, &start.screen));
        Ok(Self { source, writer })
    }

    /// Returns the next message; `None` after the last one. Cancel safe: nothing is lost.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            let messages = self.writer.here().await?;
            if let Some(message) = messages.ready.pop_front() {
                return Ok(Some(message));
            }
            if messages.over {
                return Ok(None);
            }
            let holds = messages.redactor.as_ref().is_some_and(Redactor::is_holding);
            let due = holds.then(|| std::time::Instant::now() + HELD_TIME);
            let item = self.source.next(due).await?;
            let at = self.source.now();
            let messages = std::mem::take(messages);
            self.writer.begin(messages, move |messages| match item {
                Some(item) => messages.take(item),
                None => messages.end(at),
            });
        }
    }
}

/// The messages of a stream that are being made.
#[derive(Default)]
struct Messages {
    alis: Alis,
    redactor: Option<Redactor>,
    secrets: Option<Secrets>,
    ready: VecDeque<Vec<u8>>,
    over: bool,
}

impl Messages {
    fn begin(&mut self, size: Size, screen: &Screen) {
        let screen = super::recorder::shown(self.redactor.as_mut(), screen);
        let first = self.alis.init(Duration::ZERO, size, &screen);
        self.ready = [MAGIC.to_vec(), first].into();
    }

    fn take(&mut self, item: Item) {
        match item {
            Item::Output { at, bytes, gap, given_up } => {
                if let Some(gap) = gap {
                    self.flush(at);
                    self.ready.push_back(self.alis.marker(at, &super::source::describe(gap)));
                }
                for (piece, is_given_up) in super::source::pieces(&bytes, given_up) {
                    self.output(at, piece);
                    if is_given_up {
                        if let Some(redactor) = &mut self.redactor {
                            redactor.give_up();
                        }
                        self.output(at, super::recorder::GIVEN_UP);
                    }
                }
            }
            Item::Redrawn { at, screen } => {
                self.flush(at);
                let shown = super::recorder::shown(self.redactor.as_mut(), &screen);
                self.ready.extend(self.alis.output(at, &shown));
            }
            Item::Resized { at, size } => {
                if let Some(redactor) = &mut self.redactor {
                    redactor.resize(size);
                }
                self.ready.push_back(self.alis.resize(at, size));
            }
            // Typed input is not shown to viewers.
            Item::Input { .. } => {}
            Item::Marker { at, label } => {
                let label = self.secrets.as_ref().map_or(label.clone(), |secrets| secrets.replace(&label));
                self.ready.push_back(self.alis.marker(at, &label));
            }
            Item::Ended { at, exit } => {
                self.flush(at);
                if let Some(status) = exit.status.or(exit.signal.map(|signal| 128 + signal)) {
                    self.ready.push_back(self.alis.exit(at, status));
                }
                self.end(at);
            }
            Item::Due { at } => self.flush(at),
        }
    }

    fn output(&mut self, at: Duration, bytes: &[u8]) {
        let pieces = match &mut self.redactor {
            Some(redactor) => redactor.feed(at, bytes),
            None => vec![(at, bytes.to_vec())],
        };
        self.print(&pieces);
    }

    fn print(&mut self, pieces: &[Piece]) {
        for (at, bytes) in pieces {
            self.ready.extend(self.alis.output(*at, bytes));
        }
    }

    fn flush(&mut self, at: Duration) {
        if let Some(pieces) = self.redactor.as_mut().map(|redactor| redactor.flush(at)) {
            self.print(&pieces);
        }
    }

    fn end(&mut self, at: Duration) {
        self.over = true;
        self.ready.push_back(self.alis.end(at));
    }
}
