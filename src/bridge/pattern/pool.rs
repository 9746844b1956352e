//! The workers: how many, for how long, and what happens to those that do not end.
//! A job gets one of a few *quick* permits in turn and gives it back after [`QUICK_LIMIT`],
//! finished or not. A job that is not finished goes on with one of the *slow* permits at the lowest
//! priority, or waits for one. The pattern's next job begins there. So a pattern that takes for
//! ever delays others for the quick limit once, and from then on only others that take for ever.
//! After [`SLOW_LIMIT`] with a slow permit a text counts as one without a match.

use std::{
    io,
    path::PathBuf,
    process::Stdio,
    sync::{Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use rustix::process::{Pid, setpriority_process};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::Semaphore,
    time::{Instant, timeout},
};

use super::{
    Pattern,
    worker::{self, Verdict},
};
use crate::{bridge::js::JsString, metrics};

/// Workers at new jobs.
const QUICK_WORKERS: usize = 4;
/// Workers at jobs that have taken longer than [`QUICK_LIMIT`].
const SLOW_WORKERS: usize = 8;
/// How long a job may hold a quick permit.
const QUICK_LIMIT: Duration = Duration::from_millis(100);
/// How long a job may hold a slow permit.
const SLOW_LIMIT: Duration = Duration::from_secs(5);
/// The lowest priority.
const NICE: i32 = 19;

/// The worker processes of this process. Dropping the pool ends them.
#[derive(Debug)]
pub struct Pool {
    program: PathBuf,
    quick: Semaphore,
    slow: Semaphore,
    idle: Mutex<Vec<Worker>>,
}

impl Pool {
    /// Creates a pool; no worker is started yet. `program`: muxtap's own.
    pub fn new(program: PathBuf) -> Self {
        Self {
            program,
            quick: Semaphore::new(QUICK_WORKERS),
            slow: Semaphore::new(SLOW_WORKERS),
            idle: Mutex::default(),
        }
    }

    /// Returns whether the text holds a match, as far as that is known in time. Dropping the future
    /// kills the worker.
    pub async fn is_match(&self, pattern: &Pattern, text: &JsString) -> bool {
        match self.verdict(pattern, &worker::job(&pattern.units, text.units())).await {
            Ok(verdict) => verdict == Some(Verdict::Match),
            Err(error) => {
                // Out of its memory, mostly.
                tracing::debug!("a pattern's worker failed: {error}");
                false
            }
        }
    }

    async fn verdict(&self, pattern: &Pattern, job: &[u8]) -> io::Result<Option<Verdict>> {
        let mut unfinished = None;
        if !pattern.is_slow.load(Ordering::Relaxed) {
            // The semaphores are never closed.
            let permit = self.quick.acquire().await;
            let idle = self.idle().pop();
            let was_idle = idle.is_some();
            let mut worker = idle.map_or_else(|| self.start(), Ok)?;
            let mut asked = timeout(QUICK_LIMIT, worker.ask(job)).await;
            if was_idle && matches!(asked, Ok(Err(_))) {
                // An idle worker may have ended meanwhile.
                worker = self.start()?;
                asked = timeout(QUICK_LIMIT, worker.ask(job)).await;
            }
            if let Ok(verdict) = asked {
                let verdict = verdict?;
                self.idle().push(worker);
                return Ok(Some(verdict));
            }
            drop(permit);
            pattern.is_slow.store(true, Ordering::Relaxed);
            // A worker that has not even read the whole job is of no more use.
            unfinished = worker.has_job.then_some(worker);
        }
        let unfinished = unfinished.and_then(|worker| Some((self.slow.try_acquire().ok()?, worker)));
        let (_permit, mut worker, asked) = match unfinished {
            Some((permit, worker)) => (Some(permit), worker, true),
            None => (self.slow.acquire().await.ok(), self.start()?, false),
        };
        worker.lower_priority();
        let begun = Instant::now();
        let answer = async { if asked { worker.answer().await } else { worker.ask(job).await } };
        let verdict = timeout(SLOW_LIMIT, answer).await.ok().transpose();
        pattern.is_slow.store(asked || begun.elapsed() > QUICK_LIMIT, Ordering::Relaxed);
        verdict
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Worker>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> io::Result<Worker> {
        let mut command = Command::new(&self.program);
        command.args(worker::arguments()).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        metrics::PROCESS_SPAWNS.increment(1);
        let mut child = command.spawn()?;
        let (Some(jobs), Some(verdicts)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("a worker without pipes"));
        };
        Ok(Worker { child, jobs, verdicts, has_job: false })
    }
}

/// A worker process. Dropping it kills the process.
#[derive(Debug)]
struct Worker {
    child: Child,
    jobs: ChildStdin,
    verdicts: ChildStdout,
    /// Whether the worker has read the last job completely.
    has_job: bool,
}

impl Worker {
    async fn ask(&mut self, job: &[u8]) -> io::Result<Verdict> {
        self.has_job = false;
        self.jobs.write_all(job).await?;
        self.has_job = true;
        self.answer().await
    }

    async fn answer(&mut self) -> io::Result<Verdict> {
        Ok(if self.verdicts.read_u8().await? == Verdict::Match as u8 { Verdict::Match } else { Verdict::NoMatch })
    }

    /// Lowers the worker's priority: it only gets what others leave.
    fn lower_priority(&self) {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        // If that is refused the worker competes; the number of workers is bounded all the same.
        let _ = pid.map(|pid| setpriority_process(Some(pid), NICE));
    }
}
