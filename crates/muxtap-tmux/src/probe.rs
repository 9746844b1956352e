//! Reads terminals and the kernel's files of processes, on a thread of its own.
//!
//! A file of `/proc` hangs its reader while its process holds what the kernel needs for it
//! (`cmdline` waits for the process's memory map, which a fault on a dead network disk can hold),
//! and a terminal can hang its reader too. So [`Proc`], which has all those reads, is only lent to
//! code that runs on the probe's thread.

use std::{
    collections::{HashSet, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

/// Time that a caller waits for the result of its look.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// A look that is still running at two checks, this far apart, is considered hung, and another
/// thread takes over the queue.
const CHECK: Duration = Duration::from_millis(100);
/// The maximum number of queued looks.
const QUEUE: usize = 1 << 14;
/// The number of threads that may hang beside the one that takes from the queue. If that one hangs
/// too nothing is known until one of them ends.
const HUNG: usize = 8;

/// The kernel's files of processes. A reader of them may block.
#[derive(Debug)]
pub struct Proc {
    root: PathBuf,
}

impl Proc {
    /// Returns the files of this system.
    pub fn system() -> Self {
        Self { root: "/proc".into() }
    }

    /// Returns the path of a process's file.
    #[cfg(target_os = "linux")]
    pub(super) fn of(&self, pid: u32, file: &str) -> PathBuf {
        self.root.join(format!("{pid}/{file}"))
    }

    #[cfg(target_os = "linux")]
    pub(super) fn root(&self) -> &std::path::Path {
        &self.root
    }
}

/// The subject of a look. While one look at it hangs no other begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The processes on the terminal of the process with this id.
    Process(u32),
    /// Every process of the system.
    All,
}

/// The thread that runs looks. It begins with the first look and ends when this is dropped.
///
/// One thread, not a pool: each thread of a pool would keep memory of its own.
#[derive(Debug)]
pub struct ProcessProbe {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    proc: Proc,
    state: Mutex<State>,
    /// Notified when a job is queued, or when no more will come.
    wake: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    /// The number of the thread that takes from the queue; the others hang. 0: no thread runs.
    worker: u64,
    /// The number and subject of the running job.
    running: Option<(u64, Subject)>,
    /// The last number given to a thread or job.
    last: u64,
    /// The subjects of hung looks.
    hung: HashSet<Subject>,
    /// Whether the last available thread hangs too.
    stalled: bool,
    closed: bool,
}

struct Job {
    subject: Subject,
    look: Box<dyn FnOnce(&Proc) + Send>,
}

impl Default for ProcessProbe {
    fn default() -> Self {
        Self::of("/proc")
    }
}

impl ProcessProbe {
    /// Creates a probe whose looks find the files of processes below this folder.
    pub fn of(root: impl Into<PathBuf>) -> Self {
        let proc = Proc { root: root.into() };
        Self { shared: Arc::new(Shared { proc, state: Mutex::default(), wake: Condvar::new() }) }
    }

    /// Runs `look` on the probe's thread and returns its result. `None`: unknown, since it took
    /// longer than `PATIENCE`, an earlier look at the same subject still hangs, or no thread is
    /// available.
    pub async fn run<T: Send + 'static>(
        &self,
        subject: Subject,
        look: impl FnOnce(&Proc) -> T + Send + 'static,
    ) -> Option<T> {
        let (found, mut answer) = oneshot::channel();
        let look = Box::new(move |proc: &Proc| {
            // Without a caller the result is not needed.
            if !found.is_closed() {
                let _ = found.send(look(proc));
            }
        });
        self.shared.queue(Job { subject, look })?;
        let checked = async {
            let mut seen = None;
            loop {
                match tokio::time::timeout(CHECK, &mut answer).await {
                    Ok(found) => return found.ok(),
                    Err(_) => seen = self.shared.check(seen),
                }
            }
        };
        tokio::time::timeout(PATIENCE, checked).await.ok()?
    }
}

impl Drop for ProcessProbe {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        state.queue.clear();
        drop(state);
        self.shared.wake.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job; `None` if it would not run.
    fn queue(self: &Arc<Self>, job: Job) -> Option<()> {
        let mut state = self.lock();
        if state.stalled || state.hung.contains(&job.subject) || state.queue.len() >= QUEUE {
            return None;
        }
        if state.worker == 0 {
            self.start(&mut state)?;
        }
        state.queue.push_back(job);
        drop(state);
        self.wake.notify_one();
        Some(())
    }

    /// Compares the running job with the one at the last check. If it is the same job, it hangs,
    /// and another thread is started. Returns the running job.
    fn check(self: &Arc<Self>, seen: Option<u64>) -> Option<u64> {
        let mut state = self.lock();
        let (number, subject) = state.running?;
        if seen == Some(number) && state.hung.len() >= HUNG {
            state.stalled = true;
        } else if seen == Some(number) {
            tracing::warn!("inspecting processes hangs: {subject:?}; it is not inspected again until that ends");
            state.hung.insert(subject);
            state.running = None;
            state.worker = 0;
            // If no thread can be started the next look tries again.
            let _ = self.start(&mut state);
        }
        Some(number)
    }

    fn start(self: &Arc<Self>, state: &mut State) -> Option<()> {
        state.last += 1;
        let (shared, number) = (self.clone(), state.last);
        let spawned = std::thread::Builder::new().name("process-probe".into()).spawn(move || shared.work(number));
        match spawned {
            Ok(_) => state.worker = number,
            Err(error) => {
                tracing::warn!("cannot inspect processes: {error}");
                return None;
            }
        }
        Some(())
    }

    /// Runs queued jobs, until another thread was started in place of this one.
    fn work(&self, worker: u64) {
        let mut state = self.lock();
        loop {
            if state.closed || state.worker != worker {
                return;
            }
            let Some(job) = state.queue.pop_front() else {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.last += 1;
            state.running = Some((state.last, job.subject));
            drop(state);
            // A look that panics drops its result channel: its caller gets `None`.
            let _ = catch_unwind(AssertUnwindSafe(|| (job.look)(&self.proc)));
            state = self.lock();
            if state.worker == worker {
                (state.running, state.stalled) = (None, false);
                continue;
            }
            state.hung.remove(&job.subject);
            if std::mem::take(&mut state.stalled) {
                // This thread takes the place of the one that hangs.
                if let Some((_, subject)) = state.running.take() {
                    state.hung.insert(subject);
                }
                state.worker = worker;
            }
        }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} inspections queued, {} hanging", self.queue.len(), self.hung.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn looks_come_one_after_the_other_on_a_thread_of_their_own() {
        let probe = ProcessProbe::default();
        let here = std::thread::current().id();
        let first = probe.run(Subject::All, |_| std::thread::current().id()).await.unwrap();
        let second = probe.run(Subject::Process(1), |_| std::thread::current().id()).await.unwrap();
        assert_eq!(first, second);
        assert_ne!(first, here);
    }

    #[tokio::test]
    async fn a_look_that_panics_finds_nothing_and_the_next_one_is_carried_out() {
        let probe = ProcessProbe::default();
        // Without a backtrace: printing one takes longer than `CHECK` on a busy machine, and the
        // look would count as hanging.
        let fails = |_: &Proc| std::panic::resume_unwind(Box::new("as a look never should"));
        assert_eq!(probe.run(Subject::All, fails).await, None::<()>);
        assert_eq!(probe.run(Subject::All, |_| 7).await, Some(7));
    }

    #[tokio::test]
    async fn a_hanging_probe_delays_only_its_own_caller() {
        let probe = ProcessProbe::default();
        let (release, hang) = mpsc::channel::<()>();
        let stuck = probe.run(Subject::Process(1), move |_| hang.recv().is_ok());
        // Queued behind the look that hangs: another thread takes over. On a busy machine it may be
        // late.
        let others = async { while probe.run(Subject::Process(2), |_| 2).await != Some(2) {} };
        let (stuck, ()) = tokio::join!(stuck, others);
        assert_eq!(stuck, None);
        // A subject whose look hangs is not looked at again, and the caller does not wait for that.
        assert_eq!(probe.run(Subject::Process(1), |_| 1).now_or_never(), Some(None));
        release.send(()).unwrap();
        while probe.run(Subject::Process(1), |_| 1).await.is_none() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn threads_that_hang_are_few() {
        let probe = ProcessProbe::default();
        let (release, hang) = mpsc::channel::<()>();
        let hang = Arc::new(Mutex::new(hang));
        let look = |pid| {
            let hang = hang.clone();
            // The first look holds the lock; the others hang at it.
            probe.run(Subject::Process(pid), move |_| hang.lock().unwrap().recv().is_ok())
        };
        // On a busy machine not all of them hang in the first callers' time.
        for round in 0_u32.. {
            let found = futures_util::future::join_all((0..20).map(|pid| look(20 * round + pid))).await;
            assert!(found.iter().all(Option::is_none));
            if probe.shared.lock().stalled {
                break;
            }
        }
        assert_eq!(probe.shared.lock().hung.len(), HUNG);
        assert_eq!(probe.run(Subject::All, |_| ()).now_or_never(), Some(None));
        drop(release);
        while probe.run(Subject::All, |_| ()).await.is_none() {}
    }
}
