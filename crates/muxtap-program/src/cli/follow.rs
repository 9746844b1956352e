//! Event streams that continue with another daemon when theirs was killed.

use std::time::{Duration, Instant};

use super::{
    caller::Caller,
    client::{ConnectionLost, DAEMON_ENDED, EventStream},
    output,
};
use crate::api::{Error, ErrorCode, EventsRequest, Result};

/// The path of the event stream.
const PATH: &str = "/v1/events";
/// A stream lost within this time of its beginning counts as lost at once.
pub(super) const SHORT: Duration = Duration::from_secs(1);
/// The maximum number of consecutive streams lost at once: the stream itself may crash the daemon.
pub(super) const SHORT_ONES: u32 = 3;

/// A stream of events that can move to another daemon.
pub(super) struct FollowedEvents {
    stream: EventStream,
    begun: Instant,
    short_ones: u32,
}

/// The result of reading from a stream.
pub(super) enum Step {
    /// More events may come.
    Continues,
    /// The daemon has exited normally, and the stream with it.
    Ended,
    /// The daemon was killed, or the connection to it was lost.
    Lost(ConnectionLost),
}

/// The state of a stream after [`FollowedEvents::recover`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recovery {
    /// The stream continues.
    NotNeeded,
    /// The stream now comes from another daemon. Events in between are missing.
    Reconnected,
    /// The daemon has exited normally, and the stream with it. The user has been notified.
    DaemonEnded,
}

impl FollowedEvents {
    /// Opens a stream.
    pub(super) async fn begin(caller: &Caller, request: &EventsRequest) -> Result<Self> {
        let stream = caller.client().await?.events(PATH, request, None).await?;
        Ok(Self { stream, begun: Instant::now(), short_ones: 0 })
    }

    /// Passes the data of the next events to `event`.
    pub(super) async fn next(&mut self, mut event: impl FnMut(&[u8])) -> Step {
        self.next_with_id(|data, _| event(data)).await
    }

    /// Passes the data of the next events to `event`, each with its id.
    pub(super) async fn next_with_id(&mut self, event: impl FnMut(&[u8], Option<&str>)) -> Step {
        match self.stream.next_with_id(event).await {
            Ok(true) => Step::Continues,
            Ok(false) => Step::Ended,
            Err(lost) => Step::Lost(lost),
        }
    }

    /// Connects to the daemon that runs now or is started for this. Returns the position after the
    /// last event read. Error: no daemon, or streams are lost repeatedly.
    pub(super) async fn reconnect(&mut self, caller: &Caller, lost: ConnectionLost) -> Result<Option<String>> {
        self.short_ones = if self.begun.elapsed() < SHORT { self.short_ones + 1 } else { 0 };
        if self.short_ones > SHORT_ONES {
            return Err(lost.into());
        }
        output::note(&format!("{}; continuing with another one", Error::from(lost).message));
        caller.reconnect().await?;
        Ok(self.stream.last_id().map(str::to_owned))
    }

    /// Continues with the events after `place`. They begin with a gap, since another daemon has not
    /// seen all of them.
    pub(super) async fn go_on(&mut self, caller: &Caller, request: &EventsRequest, place: Option<&str>) -> Result<()> {
        let again = caller.client().await?.events(PATH, request, place).await;
        self.stream = match again {
            // Only the previous daemon knew this position.
            Err(error) if error.code == ErrorCode::InvalidArgument && place.is_some() => {
                let request = EventsRequest { since: Some("start".to_owned()), ..request.clone() };
                caller.client().await?.events(PATH, &request, None).await?
            }
            again => again?,
        };
        self.begun = Instant::now();
        Ok(())
    }

    /// Handles a step: continues with another daemon if this one was lost, and notifies the user if it
    /// has exited.
    pub(super) async fn recover(&mut self, caller: &Caller, request: &EventsRequest, step: Step) -> Result<Recovery> {
        match step {
            Step::Continues => Ok(Recovery::NotNeeded),
            Step::Ended => {
                output::report(&Error::unavailable(DAEMON_ENDED), caller.json);
                Ok(Recovery::DaemonEnded)
            }
            Step::Lost(lost) => {
                let place = self.reconnect(caller, lost).await?;
                self.go_on(caller, request, place.as_deref()).await?;
                Ok(Recovery::Reconnected)
            }
        }
    }
}
