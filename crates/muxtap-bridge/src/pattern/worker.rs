//! The worker process, which only matches: a match that does not end can be ended only from
//! outside, by killing the process.
//!
//! A worker reads jobs from stdin and writes its [`Report`]s to stdout, a byte each. A second
//! thread reports a job that is slow, in processor time: a busy machine makes no pattern slow. A
//! worker ends with its input, and on Linux with its parent even while it is busy.

use std::{
    collections::HashMap,
    ffi::OsString,
    io::{self, Read, Write},
    process::ExitCode,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use regress::{Flags, Regex};
use rustix::{
    process::{Resource, Rlimit, setrlimit},
    time::{ClockId, clock_gettime},
};

/// The first argument that makes muxtap's program a worker.
const ARGUMENT: &str = "__bridge-match";
/// A worker's limit of memory in bytes; backtracking remembers the alternatives left to try.
const MEMORY: u64 = 256 << 20;
/// A worker's limit of processor time in seconds, for systems on which it does not end with its
/// parent.
const PROCESSOR_TIME: u64 = 600;
/// The number of compiled patterns that are cached for later jobs.
const CACHED_PATTERNS: usize = 32;

/// The processor time after which a job is reported as slow.
const QUICK_LIMIT: Duration = Duration::from_millis(100);
/// The processor time after which a job is given up and the worker ends.
const SLOW_LIMIT: Duration = Duration::from_secs(5);

/// A worker's report about its job, one byte. All but `Slow` end the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The text has no match.
    NoMatch = 0,
    /// The text has a match.
    Match = 1,
    /// The job has taken [`QUICK_LIMIT`] and continues.
    Slow = 2,
    /// The job has taken [`SLOW_LIMIT`]; whether the text matches is unknown.
    GaveUp = 3,
}

impl Report {
    /// Decodes a worker's byte. `None`: the byte is not a report.
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Self::NoMatch, Self::Match, Self::Slow, Self::GaveUp].into_iter().find(|report| *report as u8 == byte)
    }
}

/// Returns the arguments that make muxtap's program a worker of this process.
pub fn arguments() -> [OsString; 2] {
    [ARGUMENT.into(), std::process::id().to_string().into()]
}

/// Compiles a pattern with `regress`. `None`: the pattern is invalid.
pub fn compile(units: &[u16]) -> Option<Regex> {
    let flags = Flags { multiline: true, ..Flags::default() };
    Regex::from_unicode(units.iter().map(|unit| u32::from(*unit)), flags).ok()
}

/// Encodes a job: two lengths in units, then the pattern's and the text's units.
pub fn job(pattern: &[u16], text: &[u16]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + 2 * (pattern.len() + text.len()));
    for part in [pattern, text] {
        bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
    }
    for unit in pattern.iter().chain(text) {
        bytes.extend_from_slice(&unit.to_le_bytes());
    }
    bytes
}

/// Handles jobs until the end of input, if this process was started as a worker. `None`: this
/// process is not a worker.
pub fn run_if_worker(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    if args.next()? != ARGUMENT {
        return None;
    }
    if !die_with_parent(args.next()) {
        return Some(ExitCode::FAILURE);
    }
    // If setting the limit fails, the worker runs without it.
    let _ = setrlimit(Resource::As, Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) });
    let _ = setrlimit(Resource::Cpu, Rlimit { current: Some(PROCESSOR_TIME), maximum: Some(PROCESSOR_TIME) });
    Some(match work(&mut io::stdin().lock(), io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

/// Makes the kernel kill this process when its parent ends. Returns whether the parent still
/// exists.
#[cfg(target_os = "linux")]
fn die_with_parent(parent: Option<OsString>) -> bool {
    use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
    let parent = parent.and_then(|parent| parent.into_string().ok()?.parse().ok()).and_then(Pid::from_raw);
    set_parent_process_death_signal(Some(Signal::KILL)).is_ok() && getppid() == parent
}

/// Relies on the end of the input: this kernel has no such signal.
#[cfg(not(target_os = "linux"))]
fn die_with_parent(_: Option<OsString>) -> bool {
    true
}

fn work(jobs: &mut impl Read, reports: impl Write + Send) -> io::Result<()> {
    let desk = Desk { reports: Mutex::new(Reports { to: reports, job: None, over: false }), begun: Condvar::new() };
    thread::scope(|scope| {
        // Without the watching thread no job could be given up, so the worker ends.
        thread::Builder::new().spawn_scoped(scope, || desk.watch())?;
        let worked = match_all(jobs, &desk);
        desk.close();
        worked
    })
}

fn match_all(jobs: &mut impl Read, desk: &Desk<impl Write>) -> io::Result<()> {
    let mut compiled: HashMap<Vec<u16>, Option<Regex>> = HashMap::new();
    while let Some((pattern, text)) = next_job(jobs)? {
        desk.begin();
        if compiled.len() >= CACHED_PATTERNS && !compiled.contains_key(&pattern) {
            compiled.clear();
        }
        let regex = compiled.entry(pattern).or_insert_with_key(|pattern| compile(pattern));
        let matched = regex.as_ref().is_some_and(|regex| regex.find_from_ucs2(&text, 0).next().is_some());
        desk.finish(if matched { Report::Match } else { Report::NoMatch })?;
    }
    Ok(())
}

/// The state shared by the match and the thread that watches it.
struct Desk<W> {
    reports: Mutex<Reports<W>>,
    /// Notified when a job begins while the watching thread is idle, and at the end.
    begun: Condvar,
}

struct Reports<W> {
    to: W,
    job: Option<Job>,
    over: bool,
}

#[derive(Clone, Copy)]
struct Job {
    /// The process's processor time when the job began.
    begun: Duration,
    /// Whether the job was reported as slow.
    is_slow: bool,
}

impl<W: Write> Desk<W> {
    fn begin(&self) {
        self.lock().job = Some(Job { begun: processor_time(), is_slow: false });
        self.begun.notify_one();
    }

    fn finish(&self, report: Report) -> io::Result<()> {
        let mut reports = self.lock();
        reports.job = None;
        reports.write(report)
    }

    fn close(&self) {
        self.lock().over = true;
        self.begun.notify_one();
    }

    /// Reports slow jobs until there are no more; ends the process when a job takes too long.
    fn watch(&self) {
        let mut reports = self.lock();
        while !reports.over {
            let Some(job) = reports.job else {
                reports = self.begun.wait(reports).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let used = processor_time().saturating_sub(job.begun);
            let left = if job.is_slow { SLOW_LIMIT } else { QUICK_LIMIT }.saturating_sub(used);
            if !left.is_zero() {
                // The processor time cannot be used up any earlier.
                reports = self.begun.wait_timeout(reports, left).unwrap_or_else(PoisonError::into_inner).0;
            } else if !job.is_slow && reports.write(Report::Slow).is_ok() {
                reports.job = Some(Job { is_slow: true, ..job });
            } else {
                // A closed pipe has no reader for the report.
                let _ = reports.write(Report::GaveUp);
                std::process::exit(1);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Reports<W>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: Write> Reports<W> {
    fn write(&mut self, report: Report) -> io::Result<()> {
        self.to.write_all(&[report as u8])?;
        self.to.flush()
    }
}

/// Returns the processor time that this process has used.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Reads the next pattern and text; `None` at the end of input.
fn next_job(jobs: &mut impl Read) -> io::Result<Option<(Vec<u16>, Vec<u16>)>> {
    let mut lengths = [[0; 4]; 2];
    for length in &mut lengths {
        match jobs.read_exact(length) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let [pattern, text] = lengths.map(u32::from_le_bytes);
    Ok(Some((units(jobs, pattern)?, units(jobs, text)?)))
}

fn units(jobs: &mut impl Read, count: u32) -> io::Result<Vec<u16>> {
    let mut bytes = vec![0; 2 * count as usize];
    jobs.read_exact(&mut bytes)?;
    Ok(bytes.chunks_exact(2).map(|pair| pair.iter().rev().fold(0, |unit, byte| unit << 8 | u16::from(*byte))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_answered_in_order_until_the_input_ends() {
        let units = |text: &str| text.encode_utf16().collect::<Vec<_>>();
        let jobs = [("(?<=a)b", "ab"), ("(a)\\1", "ab"), ("^b$", "a\nb\n"), ("(?<=a)b", "b😀")];
        let input: Vec<u8> = jobs.iter().flat_map(|(pattern, text)| job(&units(pattern), &units(text))).collect();
        let mut reports = Vec::new();
        work(&mut input.as_slice(), &mut reports).unwrap();
        assert_eq!(
            reports,
            [Report::Match, Report::NoMatch, Report::Match, Report::NoMatch].map(|report| report as u8)
        );
    }

    #[test]
    fn other_arguments_are_not_a_workers() {
        assert!(run_if_worker(["muxtap", "bridge"].map(OsString::from)).is_none());
        assert!(run_if_worker(["muxtap"].map(OsString::from)).is_none());
    }

    /// Compiling is fast, however deep counted repetitions and classes are nested in 256
    /// characters.
    #[test]
    fn compiling_is_bounded() {
        let nested = |open: &str, inner: &str, close: &str| {
            let depth = (256 - inner.len()) / (open.len() + close.len());
            format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
        };
        let worst = [
            nested("(?:", "a", "){5}"),
            nested("(?:", "[^a]", "){2,5}"),
            nested("(", "a", "){9999}"),
            nested("(?:", "a|b", ")+"),
            nested("(?=", "a", ")"),
            nested("(?<=", "(?:a{5}){5}", ")"),
            "(?:(?:(?:(?:\\w{5}){5}){5}){5}){5}".repeat(7),
            "[^\\w\\W]{5}".repeat(23),
            "a|".repeat(128),
            "(?:a?){5}".repeat(28),
            "a{2147483647}".repeat(19),
        ];
        for source in worst {
            assert!(source.len() <= 256);
            let units: Vec<u16> = source.encode_utf16().collect();
            // Measures only this thread's processor time, since other threads run beside it.
            // Compiling without a bound takes minutes.
            let begun = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            let compiled = compile(&units).is_some();
            let took = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime) - begun;
            assert!(took.tv_sec < 2, "{source}: {took:?}");
            assert!(compiled, "{source}");
        }
    }
}
