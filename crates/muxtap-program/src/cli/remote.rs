//! A daemon of another machine, which a command line has logged in to.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use muxtap_net::remote::{Address, Wire};
use tokio::time::Instant;

use crate::api::{Error, ErrorCode, Result};

/// How long connecting may take, and a handshake or the renewal of a token afterwards.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// The time after which a failed health check is repeated.
const CHECK_AGAIN: Duration = Duration::from_secs(1);

/// Gets the next token after the daemon rejected this one. `None`: this device has logged out.
pub(super) type Renewal = dyn Fn(String) -> BoxFuture<'static, Result<Option<String>>> + Send + Sync;

/// The address of a daemon. Clones share the trusted certificates.
#[derive(Clone)]
pub(super) struct Remote {
    url: String,
    address: Arc<Address>,
    renewal: Option<Arc<Renewal>>,
}

impl Remote {
    /// Parses `https://HOST[:PORT]`, or `http://…` of this machine, as a tunnel's end. Error:
    /// `INVALID_ARGUMENT`.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let address = Address::read(url).map_err(|error| Error::invalid(format!("--url: {error}")))?;
        if !address.is_private() {
            let message = format!("--url {url}: others on the network could read the token: expected https://");
            return Err(Error::invalid(message));
        }
        Ok(Self { url: url.trim().to_owned(), address: Arc::new(address), renewal: None })
    }

    /// Sets how a rejected token is renewed.
    pub(super) fn renewed_by(self, renewal: Arc<Renewal>) -> Self {
        Self { renewal: Some(renewal), ..self }
    }

    /// Returns how a rejected token is renewed.
    pub(super) fn renewal(&self) -> Option<Arc<Renewal>> {
        self.renewal.clone()
    }

    /// Returns the path of a route.
    pub(super) fn path(&self, route: &str) -> String {
        self.address.path(route)
    }

    /// Returns the value of the `Host` header.
    pub(super) fn authority(&self) -> String {
        self.address.authority()
    }

    /// Returns the URL of a WebSocket route.
    pub(super) fn websocket(&self, route: &str) -> String {
        self.address.websocket(route)
    }

    /// Connects.
    pub(super) async fn connect(&self) -> Result<Box<dyn Wire>> {
        self.in_time(self.address.connect()).await?.map_err(|error| self.unreachable(&error))
    }

    /// Waits for a response of the daemon, for a limited time.
    pub(super) async fn in_time<T>(&self, response: impl Future<Output = T>) -> Result<T> {
        let late = |_| self.unreachable(&format!("timeout: {} s", CONNECT_LIMIT.as_secs()));
        tokio::time::timeout(CONNECT_LIMIT, response).await.map_err(late)
    }

    /// Waits for a response that may take as long as what was requested, such as a wait. Meanwhile the
    /// daemon is asked again and again for its health. Error: it did not respond to that for as long as
    /// connecting may take: a single check may fail, such as while a network changes.
    pub(super) async fn while_healthy<T, F: Future<Output = Result<()>>>(
        &self,
        response: impl Future<Output = T>,
        health: impl Fn() -> F,
    ) -> Result<T> {
        let mut response = std::pin::pin!(response);
        let mut failing_since = None;
        let mut pause = CONNECT_LIMIT;
        loop {
            if let Ok(response) = tokio::time::timeout(pause, &mut response).await {
                return Ok(response);
            }
            let begun = Instant::now();
            let checked = tokio::select! {
                response = &mut response => return Ok(response),
                checked = self.in_time(health()) => checked.and_then(|healthy| healthy),
            };
            match checked {
                Ok(()) => (failing_since, pause) = (None, CONNECT_LIMIT),
                Err(error) if failing_since.get_or_insert(begun).elapsed() >= CONNECT_LIMIT => return Err(error),
                Err(_) => pause = CHECK_AGAIN,
            }
        }
    }

    /// Returns the error for a daemon that does not respond.
    pub(super) fn unreachable(&self, error: &dyn fmt::Display) -> Error {
        Error::new(
            ErrorCode::TmuxUnavailable,
            format!(
                "cannot talk to the muxtap daemon at {}: {error}; check that it runs there with `--http`, or run `auth \
                 logout` to use this machine's own daemon",
                self.url
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_does_not_respond_is_reported() {
        let remote = Remote::parse("https://example.org").unwrap();
        let error = remote.in_time(std::future::pending::<()>()).await.unwrap_err();
        assert!(error.message.contains("https://example.org: timeout: 10 s"), "{error}");
        assert_eq!(remote.in_time(async { 7 }).await.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_takes_its_time_while_the_daemon_is_healthy() {
        let remote = Remote::parse("https://example.org").unwrap();
        let late = tokio::time::sleep(Duration::from_secs(3600));
        remote.while_healthy(late, || async { Ok(()) }).await.unwrap();
        let begun = tokio::time::Instant::now();
        let error = remote.while_healthy(std::future::pending::<()>(), std::future::pending).await.unwrap_err();
        assert!(error.message.contains("timeout: 10 s"), "{error}");
        assert_eq!(begun.elapsed(), 2 * CONNECT_LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_health_checks_end_a_wait_only_if_none_succeeds_for_a_while() {
        let remote = Remote::parse("https://example.org").unwrap();
        let checks = std::cell::Cell::new(0_u32);
        // Of any ten checks the last one succeeds.
        let health = || {
            checks.set(checks.get() + 1);
            let fails = !checks.get().is_multiple_of(10);
            let error = remote.unreachable(&"connection refused");
            async move { if fails { Err(error) } else { Ok(()) } }
        };
        let late = tokio::time::sleep(Duration::from_secs(3600));
        remote.while_healthy(late, health).await.unwrap();
        assert!(checks.get() > 1000, "{}", checks.get());
        let begun = Instant::now();
        let refused = || async { Err(remote.unreachable(&"connection refused")) };
        let error = remote.while_healthy(std::future::pending::<()>(), refused).await.unwrap_err();
        assert!(error.message.contains("connection refused"), "{error}");
        assert_eq!(begun.elapsed(), 2 * CONNECT_LIMIT);
    }
}
