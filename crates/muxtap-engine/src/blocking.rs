//! Work that would hold a thread of the runtime.

use tokio::task::JoinError;

/// Runs work on another thread. A replay has one thread only, and runs it there.
pub(crate) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    #[cfg(test)]
    if crate::replay::is_replayed() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await
}
