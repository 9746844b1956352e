//! Following output and events.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_util::Stream;
use muxtap_api::{Cursor, Error, Event, Result, Since};

use super::{Output, Pane, Read};

use crate::{Subscription, limits};

/// A pane's output as it is printed, each byte once, until the pane's program ends.
///
/// Also a [`Stream`] (`futures_core::Stream`), which ends after an error.
pub struct Follow {
    pane: Pane,
    since: Since,
    /// The read that waits for the next output.
    reading: Option<Reading>,
    ended: bool,
}

type Reading = Pin<Box<dyn Future<Output = Result<Output>> + Send>>;

impl Follow {
    pub(super) fn new(pane: Pane, since: Since) -> Self {
        Self { pane, since, reading: None, ended: false }
    }

    /// Sets where to begin instead of the current end of the output. The position is resolved when
    /// the first output is requested.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// let mut follow = pane.follow().since(muxtap::Since::Start);
    /// # Ok(())
    /// # }
    /// ```
    pub fn since(mut self, since: impl Into<Since>) -> Self {
        // A read that has begun is of the earlier position.
        (self.since, self.reading) = (since.into(), None);
        self
    }

    /// Returns the next output when it arrives; `None` after the last output of a pane whose
    /// program has ended. Missing output is reported at its place ([`Output::gap`]). Cancel safe:
    /// no output is lost.
    ///
    /// Errors: `INVALID_ARGUMENT` for [`Since::Screen`] or a cursor of another pane,
    /// `TMUX_UNAVAILABLE` when the engine stops.
    pub async fn next(&mut self) -> Result<Option<Output>> {
        std::future::poll_fn(|context| self.poll_output(context)).await
    }

    fn poll_output(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Output>>> {
        if self.ended {
            return Poll::Ready(Ok(None));
        }
        let mut reading = match self.reading.take() {
            Some(reading) => reading,
            None => Box::pin(next_output(self.pane.clone(), self.position()?)),
        };
        // A caller may give up: the next call goes on with this read.
        let Poll::Ready(output) = reading.as_mut().poll(context) else {
            self.reading = Some(reading);
            return Poll::Pending;
        };
        let output = output?;
        self.since = Since::At(output.cursor);
        self.ended = output.exit.is_some();
        Poll::Ready(Ok(Some(output)))
    }

    /// Returns where the next output begins. A moving position is resolved once: output printed while
    /// no call is open belongs to the next one.
    fn position(&mut self) -> Result<Cursor> {
        if let Since::At(cursor) = self.since {
            return Ok(cursor);
        }
        let locked = self.pane.state().lock();
        let (offset, _) = self.pane.state().resolve_since(&locked, &self.since)?;
        let cursor = self.pane.state().cursor(offset);
        drop(locked);
        self.since = Since::At(cursor);
        Ok(cursor)
    }
}

impl Stream for Follow {
    type Item = Result<Output>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Output>>> {
        let output = ready!(self.poll_output(context));
        self.ended |= output.is_err();
        Poll::Ready(output.transpose())
    }
}

impl fmt::Debug for Follow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pane, since, ended, .. } = self;
        f.debug_struct("Follow").field("pane", pane).field("since", since).field("ended", ended).finish_non_exhaustive()
    }
}

/// Waits for a pane's output from a cursor on, or its end.
async fn next_output(pane: Pane, from: Cursor) -> Result<Output> {
    let mut since = Since::At(from);
    loop {
        let output = Read::new(pane.clone()).since(since).wait(limits::POLL_LONGEST).await?;
        if !output.bytes().is_empty() || output.gap.is_some() || output.exit.is_some() {
            return Ok(output);
        }
        since = Since::At(output.cursor);
        if pane.server().engine().is_stopping() {
            return Err(Error::unavailable("muxtap is stopping"));
        }
    }
}

/// The events of a server as they happen.
pub struct Events {
    subscription: Subscription,
}

impl Events {
    pub(super) fn of(subscription: Subscription) -> Self {
        Self { subscription }
    }

    /// Returns the next event; `None` when the engine stops.
    ///
    /// Error: `RESOURCE_LIMIT` for more panes than a subscription can follow.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        self.subscription.next_event().await.map(|event| event.map(|event| event.whole())).transpose()
    }
}
