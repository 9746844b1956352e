//! What a link is made over: the pipes of a transport's process, or a fleet's stream.

mod fleet;
mod process;

use std::{any::Any, future::Future, pin::Pin, time::Duration};

use muxtap_api::Error;
use tokio::io::{AsyncRead, AsyncWrite};

pub use self::fleet::{Fleet, FleetStream};
pub(super) use self::{fleet::InFleet, process::Process};

/// A future that may be pending for long.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Makes byte streams to the muxtap of one host, which then carry HTTP/2.
pub(super) trait Dial: Send + Sync {
    /// Returns the host's name.
    fn host(&self) -> &str;

    /// Makes a stream.
    fn dial(&self) -> Boxed<'_, Result<Line, Failure>>;

    /// Returns the longest pause between attempts.
    fn longest_pause(&self) -> Duration;

    /// Returns the time without requests after which a link is closed. `None`: it stays.
    fn idle_limit(&self) -> Option<Duration>;
}

/// A byte stream to a host's muxtap.
pub(super) struct Line {
    pub(super) io: Box<dyn Stream>,
    /// The version of the host's muxtap.
    pub(super) version: String,
    /// Whether it accepts idempotency keys.
    pub(super) takes_keys: bool,
    /// A guard that exists as long as the link.
    pub(super) kept: Box<dyn Any + Send>,
}

/// A stream in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The reason why an attempt failed.
pub(super) enum Failure {
    /// The host was reached, but has no usable muxtap. While the future, if any, is pending, the
    /// host's connection is open for other processes.
    Absent(String, Option<Boxed<'static, ()>>),
    /// The host was not reached.
    Down(Error),
}
