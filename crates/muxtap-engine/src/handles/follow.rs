//! Following output and events.

use muxtap_api::{Error, Event, Result, Since};

use super::{Output, Pane, Read};

use crate::{Subscription, limits};

/// A pane's output as it is printed, each byte once, until the pane's program ends.
#[derive(Debug)]
pub struct Follow {
    pane: Pane,
    since: Since,
    ended: bool,
}

impl Follow {
    pub(super) fn new(pane: Pane, since: Since) -> Self {
        Self { pane, since, ended: false }
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
        self.since = since.into();
        self
    }

    /// Returns the next output when it arrives; `None` after the last output of a pane whose
    /// program has ended. Missing output is reported at its place ([`Output::gap`]). Cancel safe:
    /// no output is lost.
    ///
    /// Errors: `INVALID_ARGUMENT` for [`Since::Screen`] or a cursor of another pane,
    /// `TMUX_UNAVAILABLE` when the engine stops.
    pub async fn next(&mut self) -> Result<Option<Output>> {
        // A moving position is resolved once: output printed while no call is open belongs to the
        // next one.
        if !matches!(self.since, Since::At(_)) {
            let locked = self.pane.state().lock();
            let (offset, _) = self.pane.state().resolve_since(&locked, &self.since)?;
            self.since = Since::At(self.pane.state().cursor(offset));
        }
        while !self.ended {
            let read = Read::new(self.pane.clone()).since(self.since).wait(limits::POLL_LONGEST);
            let output = read.await?;
            self.since = Since::At(output.cursor);
            self.ended = output.exit.is_some();
            if !output.bytes().is_empty() || output.gap.is_some() || self.ended {
                return Ok(Some(output));
            }
            if self.pane.server().engine().is_stopping() {
                return Err(Error::unavailable("muxtap is stopping"));
            }
        }
        Ok(None)
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
        let Some(delivery) = self.subscription.next().await else { return Ok(None) };
        // An event is encoded once for all its readers, so it arrives as JSON.
        serde_json::from_slice(delivery?.event.json())
            .map(Some)
            .map_err(|error| Error::internal(format!("unreadable event: {error}")))
    }
}
