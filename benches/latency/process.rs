//! CPU time and memory of a process, from `/proc`.

use std::{collections::HashMap, fs, path::Path, time::Duration};

/// Returns the CPU time of all its threads so far.
pub fn cpu(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    tasks.flatten().filter_map(|task| run_time(&task.path())).sum()
}

/// The CPU times of a process's threads, by their ids.
pub struct Threads(HashMap<String, Duration>);

impl Threads {
    pub fn of(pid: u32) -> Self {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs").flatten();
        let id = |task: &fs::DirEntry| task.file_name().to_string_lossy().into_owned();
        Self(tasks.filter_map(|task| Some((id(&task), run_time(&task.path())?))).collect())
    }

    /// Returns the CPU time since an earlier moment. Of a thread that has ended since it is not known, but the
    /// sum of a process's threads would even become smaller by its whole life.
    pub fn since(&self, before: &Self) -> Duration {
        let of = |(id, time): (&String, &Duration)| time.saturating_sub(before.0.get(id).copied().unwrap_or_default());
        self.0.iter().map(of).sum()
    }
}

/// Returns the CPU time of a process and of its running children.
pub fn cpu_with_children(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    let children = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> =
        children.flat_map(|pids| pids.split_whitespace().flat_map(str::parse).collect::<Vec<_>>()).collect();
    cpu(pid) + children.into_iter().map(cpu_with_children).sum::<Duration>()
}

/// Returns the CPU time of the calling thread.
pub fn cpu_of_this_thread() -> Duration {
    run_time(Path::new("/proc/thread-self")).expect("Linux tells it")
}

/// Returns the CPU time of all ended children of this process, in steps of 10 ms.
pub fn cpu_of_ended_children() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux tells it");
    // The program's name may hold any character but is in the last brackets; `cutime` and `cstime`
    // are the fields 16 and 17 (proc(5)).
    let (_, fields) = stat.rsplit_once(')').expect("Linux tells it");
    let ticks = fields.split_whitespace().skip(13).take(2).map(|ticks| ticks.parse::<u64>().expect("a number"));
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

fn run_time(task: &Path) -> Option<Duration> {
    // In nanoseconds; `stat` only counts ticks of 10 ms.
    let text = fs::read_to_string(task.join("schedstat")).ok()?;
    Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
}

/// Returns the current resident memory, in bytes.
pub fn resident(pid: u32) -> u64 {
    field(pid, "VmRSS:")
}

/// Returns the peak resident memory.
pub fn resident_peak(pid: u32) -> u64 {
    field(pid, "VmHWM:")
}

fn field(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("Linux tells it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number of kB") * 1024
}
