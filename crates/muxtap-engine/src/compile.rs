//! Compiles patterns on other threads: a set may take a second.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use muxtap_api::{Error, ErrorCode, Result};
use tokio::sync::Semaphore;

use super::{Caller, Engine, limits};

/// Bytes of patterns up to which they are compiled on the calling thread.
const AT_ONCE: usize = 512;

/// Permits to compile pattern sets and to wait for that.
#[derive(Debug)]
pub struct CompileQueue {
    /// One permit for each set that is being compiled.
    running: Arc<Semaphore>,
    /// One permit for each set that is being compiled or waits for its turn.
    queued: Arc<Semaphore>,
    /// One permit for each caller that compiles or waits for its turn: a caller with many large
    /// sets keeps one thread busy, and other callers have the rest.
    of_callers: Mutex<HashMap<Caller, Weak<Semaphore>>>,
}

impl Default for CompileQueue {
    fn default() -> Self {
        let permits = |number| Arc::new(Semaphore::new(number));
        let (running, queued) = (permits(limits::COMPILING), permits(limits::COMPILING_QUEUE));
        Self { running, queued, of_callers: Mutex::default() }
    }
}

impl CompileQueue {
    /// Returns the permit of a caller.
    fn of(&self, caller: &Caller) -> Arc<Semaphore> {
        let caller = caller.counted();
        let mut of_callers = self.of_callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = of_callers.get(&caller).and_then(Weak::upgrade) {
            return own;
        }
        of_callers.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(1));
        of_callers.insert(caller, Arc::downgrade(&own));
        own
    }
}

impl Engine {
    /// Compiles patterns with these texts, on another thread unless it is certain to be quick.
    pub async fn compile<'a, T: Send + 'static>(
        &self,
        texts: impl IntoIterator<Item = &'a str>,
        compile: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if are_words(texts) {
            return compile();
        }
        let queue = &self.shared.compile_queue;
        let CompileQueue { running, queued, .. } = queue;
        let Ok(queued) = queued.clone().try_acquire_owned() else {
            let message = format!("{} pattern sets are waiting to be compiled; retry later", limits::COMPILING_QUEUE);
            return Err(Error::new(ErrorCode::ResourceLimit, message));
        };
        // The semaphores are never closed.
        let stopping = |_| Error::unavailable("muxtap is stopping");
        let own = queue.of(self.caller()).acquire_owned().await.map_err(stopping)?;
        let running = running.clone().acquire_owned().await.map_err(stopping)?;
        let compiled = tokio::task::spawn_blocking(move || {
            // A blocking task continues when its caller has gone, so the task holds the permits.
            let _permits = (queued, own, running);
            compile()
        });
        let compiled = compiled.await;
        compiled.map_err(|error| Error::internal(format!("patterns were not compiled: {error}")))?
    }
}

/// Returns whether the patterns are a few words without an operator, which compile about as quickly
/// as a request to another thread takes.
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
    use std::time::Duration;

    use futures_util::{StreamExt as _, stream::FuturesUnordered};

    use super::*;
    use crate::Options;

    /// Ends a test that would hang otherwise.
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn words_are_short_and_hold_no_operator() {
        assert!(are_words(["DONE", "Finished in"]) && are_words([]));
        assert!(!are_words(["a+"]) && !are_words([r"\w"]) && !are_words(["x".repeat(AT_ONCE + 1).as_str()]));
        let half = "x".repeat(AT_ONCE / 2 + 1);
        assert!(are_words([half.as_str()]) && !are_words([half.as_str(), half.as_str()]));
    }

    #[tokio::test]
    async fn what_takes_long_holds_nobody_and_few_are_compiled_at_the_same_time() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let engine = Engine::new(Options::default());
        let at_once = Arc::new(AtomicUsize::new(0));
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = Arc::new(std::sync::Mutex::new(released));
        let sets = (0..8).map(|_| {
            let (at_once, released) = (at_once.clone(), released.clone());
            engine.compile(["a+"], move || {
                let others = at_once.fetch_add(1, Ordering::SeqCst);
                let released = released.lock().unwrap().recv_timeout(LONG);
                at_once.fetch_sub(1, Ordering::SeqCst);
                assert!(released.is_ok(), "this thread was held");
                Ok(others)
            })
        });
        // Each set ends only after this thread has done other work meanwhile.
        let others = async {
            for _ in 0..8 {
                tokio::task::yield_now().await;
                release.send(()).unwrap();
            }
        };
        let (most, ()) = tokio::join!(futures_util::future::join_all(sets), others);
        assert!(most.iter().all(|others| *others.as_ref().unwrap() < limits::COMPILING));
        // A panic is an error of this set only.
        assert!(engine.compile(["a+"], || -> Result<()> { panic!("as it never should") }).await.is_err());
        assert!(engine.compile(["a+"], || Ok(())).await.is_ok());
    }

    #[tokio::test]
    async fn a_set_whose_caller_has_left_counts_until_it_is_compiled() {
        let engine = Engine::new(Options::default());
        let mut releases = Vec::new();
        for number in 0..limits::COMPILING {
            let (began, mut begun) = tokio::sync::mpsc::unbounded_channel();
            let (release, released) = std::sync::mpsc::channel::<()>();
            let engine =
                engine.with_caller(Caller { face: "unix", who: format!("process {number}"), ..Caller::default() });
            let compiled = engine.compile(["a+"], move || {
                began.send(()).unwrap();
                let _ = released.recv_timeout(LONG);
                Ok(())
            });
            tokio::select! {
                _ = compiled => panic!("it is not released"),
                _ = begun.recv() => releases.push(release),
            }
        }
        let CompileQueue { running, queued, .. } = &engine.shared.compile_queue;
        assert_eq!(running.available_permits(), 0);
        assert_eq!(queued.available_permits(), limits::COMPILING_QUEUE - limits::COMPILING);
        drop(releases);
        assert!(engine.compile(["a+"], || Ok(())).await.is_ok());
    }

    /// S7: a caller with large sets keeps one thread busy, and other callers' sets are compiled.
    #[tokio::test]
    async fn one_callers_patterns_leave_a_compile_thread_to_others() {
        let engine = Engine::new(Options::default());
        let of = |who: &str| engine.with_caller(Caller { face: "http", who: who.into(), ..Caller::default() });
        let (began, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = Arc::new(std::sync::Mutex::new(released));
        let slow: Vec<_> = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.1"]
            .map(|who| {
                let (began, released, engine) = (began.clone(), released.clone(), of(who));
                tokio::spawn(async move {
                    let compile = move || {
                        began.send(()).unwrap();
                        let _ = released.lock().unwrap().recv_timeout(LONG);
                        Ok(())
                    };
                    engine.compile(["a+"], compile).await
                })
            })
            .into();
        begun.recv().await.unwrap();
        for who in ["192.0.2.1", "192.0.2.2"] {
            tokio::time::timeout(LONG, of(who).compile(["a+"], || Ok(()))).await.unwrap().unwrap();
        }
        drop(release);
        for one in slow {
            tokio::time::timeout(LONG, one).await.unwrap().unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn the_queue_is_bounded() {
        let engine = Engine::new(Options::default());
        // All sets are held until this is dropped.
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = Arc::new(std::sync::Mutex::new(released));
        let sets = (0..limits::COMPILING_QUEUE + 9).map(|_| {
            let released = released.clone();
            engine.compile(["a+"], move || {
                let _ = released.lock().unwrap().recv();
                Ok(())
            })
        });
        let mut sets: FuturesUnordered<_> = sets.collect();
        for _ in 0..9 {
            let refused = tokio::time::timeout(LONG, sets.next()).await.unwrap().unwrap().unwrap_err();
            assert_eq!(refused.code, ErrorCode::ResourceLimit);
        }
        drop(release);
        while let Some(compiled) = tokio::time::timeout(LONG, sets.next()).await.unwrap() {
            compiled.unwrap();
        }
    }
}
