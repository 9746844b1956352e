//! Wrong credentials over TCP: counted, limited in rate, and without a log line for each.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use muxtap_api::{Error, ErrorCode};
use muxtap_base::{address::group, metrics};
use muxtap_net::{Peer, Seldom};

use crate::error::Failure;

/// The burst of wrong credentials from one address that get their own error.
const ADDRESS_BURST: u32 = 64;
/// The time after which one more gets it, once the burst is used up.
const ADDRESS_PACE: Duration = Duration::from_millis(500);
/// The burst of wrong credentials from all addresses that get their own error.
const BURST: u32 = 512;
/// The time after which one more gets it, once the burst is used up.
const PACE: Duration = Duration::from_millis(50);
/// The number of addresses that are counted separately; beyond it, addresses with full buckets are
/// dropped.
const ADDRESSES: usize = 1024;

/// The wrong credentials of a port's callers.
#[derive(Debug, Default)]
pub(super) struct Failures {
    state: Mutex<State>,
    /// Counts the credentials that were rejected by the rate limit.
    refused: Seldom,
}

#[derive(Debug, Default)]
struct State {
    all: Bucket,
    addresses: HashMap<IpAddr, Bucket>,
}

/// A bucket that each failure takes from and that refills over time: the time when it is full.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket(Option<Instant>);

impl Bucket {
    /// Returns the time until the next one can be taken; zero: now.
    fn wait(self, now: Instant, burst: u32, pace: Duration) -> Duration {
        let full = self.0.map_or(Duration::ZERO, |full| full.saturating_duration_since(now));
        (full + pace).saturating_sub(pace * burst)
    }

    fn take(&mut self, now: Instant, pace: Duration) {
        self.0 = Some(self.0.map_or(now, |full| full.max(now)) + pace);
    }

    fn is_full(self, now: Instant) -> bool {
        self.0.is_none_or(|full| full <= now)
    }
}

impl Failures {
    /// Returns the response for the caller. A wrong credential counts; above the limit each is
    /// rejected with 429. A right credential never reaches this, so no flood of wrong ones locks
    /// its holder out.
    pub(super) fn judge(&self, peer: Option<Peer>, response: Response) -> Response {
        if response.status() != StatusCode::UNAUTHORIZED {
            return response;
        }
        let address = match peer {
            Some(Peer::Tcp { addr, .. }) => group(addr.ip()),
            Some(Peer::Unix { .. } | Peer::Fleet) | None => return response,
        };
        let Some(wait) = self.count(address, Instant::now()) else { return response };
        metrics::refused("rate");
        if let Some(refused) = self.refused.note() {
            tracing::warn!(
                "too many wrong credentials over TCP: {refused} since the last such line, the last from {address}"
            );
        }
        let seconds = wait.as_secs() + 1;
        let message = format!("too many wrong credentials; retry in {seconds} s, or at any time with valid ones");
        let mut refused = Failure::from(Error::new(ErrorCode::ResourceLimit, message)).into_response();
        refused.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        if let Some(close) = response.headers().get(header::CONNECTION) {
            refused.headers_mut().insert(header::CONNECTION, close.clone());
        }
        refused
    }

    /// Counts a failure of an address. Returns how long to wait, if there were too many.
    fn count(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let own = state.addresses.get(&address).copied().unwrap_or_default();
        let wait = own.wait(now, ADDRESS_BURST, ADDRESS_PACE).max(state.all.wait(now, BURST, PACE));
        if !wait.is_zero() {
            return Some(wait);
        }
        state.all.take(now, PACE);
        if state.addresses.len() >= ADDRESSES {
            state.addresses.retain(|_, bucket| !bucket.is_full(now));
        }
        // With more concurrent addresses than that, only the common bucket counts.
        if state.addresses.len() < ADDRESSES || state.addresses.contains_key(&address) {
            state.addresses.entry(address).or_default().take(now, ADDRESS_PACE);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    #[test]
    fn failures_are_limited_per_address_and_in_total_and_expire() {
        let (failures, now) = (Failures::default(), Instant::now());
        let counted = |address, at| failures.count(address, at).is_none();
        for _ in 0..ADDRESS_BURST {
            assert!(counted(from(1), now));
        }
        let wait = failures.count(from(1), now).unwrap();
        assert_eq!(wait, ADDRESS_PACE);
        assert!(counted(from(2), now), "another address is not limited by the first");
        assert!(counted(from(1), now + wait) && !counted(from(1), now + wait));
        // Many addresses together are also limited.
        let later = now + Duration::from_secs(600);
        let many = (100..100 + 2 * BURST).filter(|number| counted(from(*number), later)).count();
        assert_eq!(many, BURST as usize);
        assert!(failures.state.lock().unwrap().addresses.len() <= ADDRESSES);
        assert!(counted(from(1), later + PACE));
    }

    #[test]
    fn the_number_of_tracked_addresses_is_bounded() {
        let (failures, mut now) = (Failures::default(), Instant::now());
        for number in 0..20_000 {
            now += PACE;
            failures.count(from(number), now);
        }
        let state = failures.state.lock().unwrap();
        assert!(state.addresses.len() <= ADDRESSES, "{}", state.addresses.len());
    }
}
