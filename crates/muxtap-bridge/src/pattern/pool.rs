//! The worker processes: their number, their time limits, and the end of those that do not finish.
//!
//! A job takes one of a few *quick* permits in turn and returns it when it is finished or reported
//! as slow. A slow job continues with one of the *slow* permits at the lowest priority, or waits
//! for one; the pattern's next job starts there. So a pattern that runs forever delays other
//! patterns once, and afterwards only those that run forever too.
//!
//! The worker measures its processor time and gives up by itself. No limit here is in elapsed time,
//! which says nothing about a pattern when the machine is busy.

use std::{
    io,
    path::PathBuf,
    process::Stdio,
    sync::{Mutex, PoisonError},
};

use muxtap_base::metrics;
use rustix::process::{Pid, setpriority_process};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::Semaphore,
};

use super::{
    Pattern,
    worker::{self, Report},
};
use crate::js::JsString;

/// The number of workers for new jobs.
const QUICK_WORKERS: usize = 4;
/// The number of workers for jobs that were reported as slow.
const SLOW_WORKERS: usize = 8;
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

    /// Returns whether the text has a match. A job that was given up, or a worker out of memory,
    /// counts as no match. Dropping the future kills the worker.
    pub async fn is_match(&self, pattern: &Pattern, text: &JsString) -> bool {
        match self.report(pattern, &worker::job(&pattern.units, text.units())).await {
            Ok(report) => report == Report::Match,
            Err(error) => {
                // Mostly because the worker ran out of memory.
                tracing::debug!("a pattern's worker failed: {error}");
                false
            }
        }
    }

    async fn report(&self, pattern: &Pattern, job: &[u8]) -> io::Result<Report> {
        let mut at_work = None;
        if !pattern.is_slow() {
            // The semaphores are never closed.
            let permit = self.quick.acquire().await;
            let idle = self.idle().pop();
            let was_idle = idle.is_some();
            let mut worker = idle.map_or_else(|| self.start(), Ok)?;
            let mut asked = worker.ask(job).await;
            if was_idle && asked.is_err() {
                // An idle worker may have ended in the meantime.
                worker = self.start()?;
                asked = worker.ask(job).await;
            }
            let report = asked?;
            if report != Report::Slow {
                self.idle().push(worker);
                return Ok(report);
            }
            drop(permit);
            pattern.set_slow(true);
            at_work = Some(worker);
        }
        let at_work = at_work.and_then(|worker| Some((self.slow.try_acquire().ok()?, worker)));
        let (_permit, mut worker, mut report) = if let Some((permit, worker)) = at_work {
            (Some(permit), worker, Report::Slow)
        } else {
            let permit = self.slow.acquire().await.ok();
            let mut worker = self.start()?;
            worker.lower_priority();
            let report = worker.ask(job).await?;
            (permit, worker, report)
        };
        pattern.set_slow(report == Report::Slow);
        if report == Report::Slow {
            worker.lower_priority();
            report = worker.report().await?;
        }
        Ok(report)
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
        let (Some(jobs), Some(reports)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the worker has no pipes"));
        };
        Ok(Worker { child, jobs, reports })
    }
}

/// A worker process. Dropping it kills the process.
#[derive(Debug)]
struct Worker {
    child: Child,
    jobs: ChildStdin,
    reports: ChildStdout,
}

impl Worker {
    /// Sends the worker a job and returns its first report.
    async fn ask(&mut self, job: &[u8]) -> io::Result<Report> {
        self.jobs.write_all(job).await?;
        self.report().await
    }

    async fn report(&mut self) -> io::Result<Report> {
        let byte = self.reports.read_u8().await?;
        Report::from_byte(byte).ok_or_else(|| io::Error::other(format!("unexpected byte from a worker: {byte}")))
    }

    /// Lowers the worker's priority, so that it gets only idle processor time.
    fn lower_priority(&self) {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        // On failure the worker competes with others; the number of workers is bounded anyway.
        let _ = pid.map(|pid| setpriority_process(Some(pid), NICE));
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    /// With this test's clock every limit of elapsed time expires immediately: a worker's result
    /// counts regardless of the time it waited for the processor.
    #[tokio::test(start_paused = true)]
    async fn a_worker_that_the_machine_has_no_time_for_is_awaited() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("worker");
        // A stand-in that reports like a worker; the real one would finish immediately.
        let script =
            "#!/bin/sh\nhead -c 12 >/dev/null; sleep 0.3; printf '\\002'; sleep 0.3; printf '\\001'; cat >/dev/null\n";
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let pool = Pool::new(program);
        let pattern = Pattern::compile(&JsString::from("a")).unwrap();
        assert!(pool.is_match(&pattern, &JsString::from("a")).await);
        assert!(pattern.is_slow(), "it was reported");
    }
}
