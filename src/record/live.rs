//! A pane as a live stream for asciinema's players.

use std::{collections::VecDeque, time::Duration};

use super::{
    alis::{Alis, MAGIC},
    redact::{HELD_TIME, Piece, Redactor, Secrets},
    source::{Item, Source},
};
use crate::{
    api::{Result, Since},
    engine::Pane,
};

/// A stream of messages.
pub(crate) struct Live {
    source: Source,
    alis: Alis,
    redactor: Option<Redactor>,
    secrets: Option<Secrets>,
    ready: VecDeque<Vec<u8>>,
    over: bool,
}

impl Live {
    /// Begins a stream with what the pane shows now.
    pub(crate) async fn begin(pane: Pane, secrets: Option<Secrets>) -> Result<Self> {
        let (source, start) = Source::begin(pane, &Since::Now, None).await?;
        let mut redactor = secrets.clone().map(|secrets| Redactor::new(secrets, start.size.width));
        let screen = super::recorder::whole(redactor.as_mut(), Duration::ZERO, start.screen.repaint());
        let mut alis = Alis::default();
        let first = alis.init(Duration::ZERO, start.size, &screen);
        Ok(Self { source, alis, redactor, secrets, ready: [MAGIC.to_vec(), first].into(), over: false })
    }

    /// Returns the next message; `None` behind the last one. Can be cancelled: nothing is lost.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Ok(Some(message));
            }
            if self.over {
                return Ok(None);
            }
            let holds = self.redactor.as_ref().is_some_and(Redactor::is_holding);
            let due = holds.then(|| std::time::Instant::now() + HELD_TIME);
            if let Some(item) = self.source.next(due).await? {
                self.take(item);
            } else {
                let at = self.source.now();
                self.end(at);
            }
        }
    }

    fn take(&mut self, item: Item) {
        match item {
            Item::Output { at, bytes, gap } => {
                if let Some(gap) = gap {
                    self.flush(at);
                    self.ready.push_back(self.alis.marker(at, &super::source::describe(gap)));
                }
                let pieces = match &mut self.redactor {
                    Some(redactor) => redactor.feed(at, &bytes),
                    None => vec![(at, bytes)],
                };
                self.print(&pieces);
            }
            Item::Resized { at, size } => {
                if let Some(redactor) = &mut self.redactor {
                    redactor.resize(size.width);
                }
                self.ready.push_back(self.alis.resize(at, size));
            }
            // What is typed is not shown to those who look on.
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
