//! Headers of a request that its caller may have to repeat: an idempotency key, and the maximum
//! wait.

use std::time::Duration;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, request::Parts},
};
use muxtap_engine::id_of_key;

use super::error::Failure;

use muxtap_api::wire::{IDEMPOTENCY_KEY, PREFER};

/// The headers' values.
#[derive(Debug, Default)]
pub(crate) struct Again {
    /// The key, as given.
    pub(crate) key: Option<String>,
    /// `Prefer: wait=SECONDS`.
    pub(crate) hold: Option<Duration>,
}

impl Again {
    /// Reads the headers of a request. Error: `INVALID_ARGUMENT` for a malformed key.
    pub fn of(headers: &HeaderMap) -> muxtap_api::Result<Self> {
        let key = headers.get(IDEMPOTENCY_KEY).map(|key| key.to_str().unwrap_or_default().to_owned());
        key.as_deref().map(id_of_key).transpose()?;
        let prefers = headers.get_all(PREFER).iter().filter_map(|prefers| prefers.to_str().ok());
        let mut prefers = prefers.flat_map(|prefers| prefers.split([',', ';']));
        // An invalid preference is ignored, as the RFC requires.
        let hold = prefers.find_map(|one| one.trim().strip_prefix("wait=")?.trim_matches('"').parse().ok());
        Ok(Self { key, hold: hold.map(Duration::from_secs) })
    }

    /// Returns the id of the wait that begins with this key.
    pub fn id(&self) -> muxtap_api::Result<Option<String>> {
        self.key.as_deref().map(id_of_key).transpose()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Again {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        Ok(Self::of(&parts.headers)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[(&'static str, &str)]) -> muxtap_api::Result<Again> {
        Again::of(&headers.iter().map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap())).collect())
    }

    #[test]
    fn keys_and_times_are_read() {
        let none = read(&[]).unwrap();
        assert_eq!((none.id().unwrap(), none.hold), (None, None));
        let both = read(&[(IDEMPOTENCY_KEY, "0123456789abcdef"), (PREFER, "respond-async, wait=20")]).unwrap();
        assert_eq!(both.id().unwrap().as_deref(), Some("w-0123456789abcdef"));
        assert_eq!(both.hold, Some(Duration::from_secs(20)));
        assert_eq!(read(&[(PREFER, "wait=soon")]).unwrap().hold, None);
        for odd in ["", "short", "0123456789abcdef/", "0123456789 abcdef", &"x".repeat(65)] {
            assert!(read(&[(IDEMPOTENCY_KEY, odd)]).is_err(), "{odd:?}");
        }
    }
}
