//! Links over a fleet: one for each tier of requests.

use std::{sync::Arc, time::Duration};

use muxtap_api::{FleetHost, Result, Tier};

use super::{Boxed, Dial, Failure, Line, Stream};

/// The longest pause between attempts: a question to NATS costs little.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// The time without requests after which a link is closed: an idle fleet sends nothing.
const IDLE_LIMIT: Duration = Duration::from_secs(60);

/// A fleet, as far as its hosts are used.
pub trait Fleet: Send + Sync {
    /// Opens a stream to a host's muxtap, for requests of a tier. Error: why the stream cannot be opened.
    fn open<'a>(&'a self, host: &'a str, tier: Tier) -> Boxed<'a, Result<FleetStream>>;

    /// Returns what a host that was seen says about itself.
    fn known(&self, host: &str) -> Option<FleetHost>;

    /// Asks which hosts there are.
    fn look(&self) -> Boxed<'_, ()>;

    /// Returns why this daemon is no member of it at the moment.
    fn problem(&self) -> Option<String>;
}

/// A stream to the muxtap of a fleet's host.
pub struct FleetStream {
    /// The stream.
    pub io: Box<dyn Stream>,
    /// The version of the host's muxtap.
    pub version: String,
    /// Whether it accepts idempotency keys.
    pub takes_keys: bool,
}

/// A host of a fleet, for requests of one tier.
pub(in super::super) struct InFleet {
    fleet: Arc<dyn Fleet>,
    host: String,
    tier: Tier,
}

impl InFleet {
    pub(in super::super) fn new(fleet: Arc<dyn Fleet>, host: &str, tier: Tier) -> Self {
        Self { fleet, host: host.to_owned(), tier }
    }
}

impl Dial for InFleet {
    fn host(&self) -> &str {
        &self.host
    }

    fn dial(&self) -> Boxed<'_, std::result::Result<Line, Failure>> {
        Box::pin(async {
            let opened = self.fleet.open(&self.host, self.tier).await.map_err(Failure::Down)?;
            let FleetStream { io, version, takes_keys } = opened;
            Ok(Line { io, version, takes_keys, kept: Box::new(()) })
        })
    }

    fn longest_pause(&self) -> Duration {
        LONGEST_PAUSE
    }

    fn idle_limit(&self) -> Option<Duration> {
        Some(IDLE_LIMIT)
    }
}
