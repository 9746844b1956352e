//! Primitives for tests: loom's within [`check`], those of `std` elsewhere.
//!
//! A test binary contains both kinds of tests, so a value's kind is decided when the value is
//! created. Notifications and watch channels are tokio's in both cases, and each call of one is a
//! single step to loom: tokio checks their internals with loom itself. One thing of theirs is left
//! out, because a model must behave the same each time: a watch channel wakes its waiters in random
//! order.

use std::{
    cell::Cell,
    fmt,
    future::poll_fn,
    ops::{Deref, DerefMut},
    pin::pin,
    sync::{LockResult, PoisonError, atomic::Ordering},
};

thread_local! {
    /// Whether the running code is checked. Loom runs all threads of a model on one thread.
    static IN_MODEL: Cell<bool> = const { Cell::new(false) };
}

/// The words of the stack of a scenario's first thread.
const STACK_WORDS: usize = 0x8000;

/// Runs `scenario` once for every order in which its threads can meet, as far as one execution
/// needs at most `preemptions` switches away from a thread that could go on.
///
/// The environment variable `LOOM_MAX_PREEMPTIONS` overrides that number.
pub fn check(preemptions: usize, scenario: impl Fn() + Send + Sync + 'static) {
    struct InModel;
    impl Drop for InModel {
        fn drop(&mut self) {
            IN_MODEL.set(false);
        }
    }
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 20_000;
    IN_MODEL.set(true);
    let _in_model = InModel;
    let scenario = std::sync::Arc::new(scenario);
    builder.check(move || {
        // The first thread of a model has a stack of 32 KiB, which is too small for what a pane does with its output
        // in a build without optimization. While it waits, there is no further order.
        let scenario = scenario.clone();
        let thread = loom::thread::Builder::new().stack_size(STACK_WORDS).spawn(move || scenario());
        thread.unwrap().join().unwrap();
    });
}

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        /// An atomic value of `std` or of loom.
        #[derive(Debug)]
        pub enum $name {
            Std(std::sync::atomic::$name),
            Model(loom::sync::atomic::$name),
        }

        #[allow(dead_code, reason = "each type has some of them")]
        impl $name {
            pub fn new(value: $value) -> Self {
                if IN_MODEL.get() { Self::Model(value.into()) } else { Self::Std(value.into()) }
            }
            pub fn load(&self, order: Ordering) -> $value {
                match self {
                    Self::Std(value) => value.load(order),
                    Self::Model(value) => value.load(order),
                }
            }
            pub fn store(&self, new: $value, order: Ordering) {
                match self {
                    Self::Std(value) => value.store(new, order),
                    Self::Model(value) => value.store(new, order),
                }
            }
            pub fn swap(&self, new: $value, order: Ordering) -> $value {
                match self {
                    Self::Std(value) => value.swap(new, order),
                    Self::Model(value) => value.swap(new, order),
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(<$value>::default())
            }
        }
    };
}

atomic!(AtomicBool, bool);
atomic!(AtomicU64, u64);

/// A mutex of `std` or of loom.
pub enum Mutex<T> {
    Std(std::sync::Mutex<T>),
    Model(loom::sync::Mutex<T>),
}

/// The guard of a [`Mutex`].
pub enum MutexGuard<'a, T> {
    Std(std::sync::MutexGuard<'a, T>),
    Model(loom::sync::MutexGuard<'a, T>),
}

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        if IN_MODEL.get() { Self::Model(loom::sync::Mutex::new(value)) } else { Self::Std(value.into()) }
    }

    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        match self {
            Self::Std(mutex) => {
                let guard = mutex.lock().map_err(|error| PoisonError::new(MutexGuard::Std(error.into_inner())));
                guard.map(MutexGuard::Std)
            }
            Self::Model(mutex) => mutex.lock().map(MutexGuard::Model).map_err(|error| panic!("{error:?}")),
        }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Std(guard) => guard,
            Self::Model(guard) => guard,
        }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match self {
            Self::Std(guard) => guard,
            Self::Model(guard) => guard,
        }
    }
}

/// Shows loom that the following code depends on other threads' use of the same object.
#[derive(Debug, Default)]
struct Step(AtomicBool);

impl Step {
    fn is_model(&self) -> bool {
        matches!(self.0, AtomicBool::Model(_))
    }

    fn take(&self) {
        self.0.swap(true, Ordering::Relaxed);
    }

    /// Awaits `future`; each poll is a step.
    async fn each_poll<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|context| {
            self.take();
            future.as_mut().poll(context)
        })
        .await
    }
}

/// Notifies one task, like tokio's.
#[derive(Debug, Default)]
pub struct Notify {
    inner: tokio::sync::Notify,
    step: Step,
}

impl Notify {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn notify_one(&self) {
        self.step.take();
        self.inner.notify_one();
    }

    pub async fn notified(&self) {
        self.step.each_poll(self.inner.notified()).await;
    }
}

/// Channels that keep the last value, like tokio's.
pub mod watch {
    use std::sync::Arc;

    use tokio::sync::watch::{self, Ref, error::RecvError};

    use super::Step;

    #[derive(Debug)]
    pub struct Sender<T> {
        inner: watch::Sender<T>,
        model: Arc<Model>,
    }

    #[derive(Clone, Debug)]
    pub struct Receiver<T> {
        inner: watch::Receiver<T>,
        model: Arc<Model>,
    }

    #[derive(Debug, Default)]
    struct Model {
        step: Step,
        /// Notified of each value, in place of the channel's own notification.
        sent: tokio::sync::Notify,
    }

    impl<T> Sender<T> {
        pub fn new(value: T) -> Self {
            Self { inner: watch::Sender::new(value), model: Arc::default() }
        }

        pub fn receiver_count(&self) -> usize {
            self.inner.receiver_count()
        }

        pub fn send_replace(&self, value: T) -> T {
            self.model.step.take();
            let last = self.inner.send_replace(value);
            self.model.sent.notify_waiters();
            last
        }

        pub fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
            self.model.step.take();
            let is_modified = self.inner.send_if_modified(modify);
            if is_modified {
                self.model.sent.notify_waiters();
            }
            is_modified
        }

        pub fn borrow(&self) -> Ref<'_, T> {
            self.model.step.take();
            self.inner.borrow()
        }

        pub fn subscribe(&self) -> Receiver<T> {
            self.model.step.take();
            Receiver { inner: self.inner.subscribe(), model: self.model.clone() }
        }
    }

    impl<T> Receiver<T> {
        pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
            self.model.step.take();
            self.inner.borrow_and_update()
        }

        pub async fn changed(&mut self) -> Result<(), RecvError> {
            let model = self.model.clone();
            if !model.step.is_model() {
                return self.inner.changed().await;
            }
            let changed = async {
                loop {
                    let sent = model.sent.notified();
                    if self.inner.has_changed()? {
                        self.inner.mark_unchanged();
                        return Ok(());
                    }
                    sent.await;
                }
            };
            model.step.each_poll(changed).await
        }

        pub async fn wait_for(&mut self, mut is_wanted: impl FnMut(&T) -> bool) -> Result<(), RecvError> {
            while !is_wanted(&self.borrow_and_update()) {
                self.changed().await?;
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A flag that is cleared by a store instead of a swap: the next read may return an older
    /// value.
    #[test]
    #[should_panic(expected = "news were missed")]
    fn the_model_checker_finds_a_lost_update() {
        check(2, || {
            let (news, flag) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(true)));
            let writer = loom::thread::spawn({
                let (news, flag) = (news.clone(), flag.clone());
                move || {
                    news.store(1, Ordering::Release);
                    flag.swap(true, Ordering::AcqRel)
                }
            });
            flag.store(false, Ordering::Release);
            let seen = news.load(Ordering::Acquire);
            let was_set = writer.join().unwrap();
            assert!(seen == 1 || !was_set || flag.load(Ordering::Acquire), "news were missed");
        });
    }
}
