//! Compiling patterns where that holds nobody: a set may take a second.

use tokio::sync::Semaphore;

use super::{Engine, limits};
use crate::api::{Error, ErrorCode, Result};

/// Bytes of texts that are compiled at once where they are.
const AT_ONCE: usize = 512;

/// Who may compile, and who waits for it.
#[derive(Debug)]
pub struct Compiling {
    /// One for each set that is being compiled.
    running: Semaphore,
    /// One for each that is or waits.
    queued: Semaphore,
}

impl Default for Compiling {
    fn default() -> Self {
        Self { running: Semaphore::new(limits::COMPILING), queued: Semaphore::new(limits::COMPILING_QUEUE) }
    }
}

impl Engine {
    /// Compiles patterns with these texts, on another thread unless that cannot take long.
    pub(crate) async fn compile<'a, T: Send + 'static>(
        &self,
        texts: impl IntoIterator<Item = &'a str>,
        compile: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if are_words(texts) {
            return compile();
        }
        let Compiling { running, queued } = &self.shared.compiling;
        let Ok(_queued) = queued.try_acquire() else {
            let message = format!("{} sets of patterns wait to be compiled; try again later", limits::COMPILING_QUEUE);
            return Err(Error::new(ErrorCode::ResourceLimit, message));
        };
        let _running = running.acquire().await.map_err(|_| Error::unavailable("muxtap is stopping"))?;
        let compiled = tokio::task::spawn_blocking(compile).await;
        compiled.map_err(|error| Error::internal(format!("patterns were not compiled: {error}")))?
    }
}

/// Whether these are a few words without an operator: they compile in the time that it takes to ask another thread.
fn are_words<'a>(texts: impl IntoIterator<Item = &'a str>) -> bool {
    let mut left = AT_ONCE;
    texts.into_iter().all(|text| {
        let fits = text.len() <= left && !text.chars().any(regex_syntax::is_meta_character);
        left = left.saturating_sub(text.len());
        fits
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::engine::EngineOptions;

    #[test]
    fn words_are_short_and_hold_no_operator() {
        assert!(are_words(["DONE", "Finished in"]) && are_words([]));
        assert!(!are_words(["a+"]) && !are_words([r"\w"]) && !are_words(["x".repeat(AT_ONCE + 1).as_str()]));
        let half = "x".repeat(AT_ONCE / 2 + 1);
        assert!(are_words([half.as_str()]) && !are_words([half.as_str(), half.as_str()]));
    }

    #[tokio::test]
    async fn what_takes_long_holds_nobody_and_few_are_compiled_at_the_same_time() {
        use std::sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        };
        let engine = Engine::new(EngineOptions::default());
        let at_once = Arc::new(AtomicUsize::new(0));
        let sets = (0..8).map(|_| {
            let at_once = at_once.clone();
            engine.compile(["a+"], move || {
                let others = at_once.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(50));
                at_once.fetch_sub(1, Ordering::SeqCst);
                Ok(others)
            })
        });
        let began = Instant::now();
        let ticks = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            began.elapsed()
        };
        let (most, tick) = tokio::join!(futures_util::future::join_all(sets), ticks);
        assert!(most.iter().all(|others| *others.as_ref().unwrap() < limits::COMPILING));
        assert!(tick < Duration::from_millis(50), "{tick:?}");
        // A panic is an error of this one only.
        assert!(engine.compile(["a+"], || -> Result<()> { panic!("as it never should") }).await.is_err());
        assert!(engine.compile(["a+"], || Ok(())).await.is_ok());
    }

    #[tokio::test]
    async fn the_queue_is_bounded() {
        let engine = Engine::new(EngineOptions::default());
        let sets = (0..limits::COMPILING_QUEUE + 9).map(|_| {
            engine.compile(["a+"], || {
                std::thread::sleep(Duration::from_millis(1));
                Ok(())
            })
        });
        let compiled = futures_util::future::join_all(sets).await;
        let refused = compiled.iter().filter_map(|one| one.as_ref().err());
        assert!(refused.clone().all(|error| error.code == ErrorCode::ResourceLimit));
        assert_eq!(refused.count(), 9);
    }
}
