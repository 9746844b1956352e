//! CPU time and memory of a process, from `/proc`.

use std::{fs, path::Path, time::Duration};

/// Returns the CPU time of all its threads so far.
pub fn cpu(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    tasks.flatten().filter_map(|task| run_time(&task.path())).sum()
}

/// Returns the CPU time of a process so far, with the threads that have ended, in steps of 10 ms.
pub fn cpu_of_all_threads(pid: u32) -> Duration {
    // `utime` and `stime`, the fields 14 and 15.
    ticks(&format!("/proc/{pid}/stat"), 11)
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
    // `cutime` and `cstime`, the fields 16 and 17.
    ticks("/proc/self/stat", 13)
}

/// Returns the sum of two times in a process's `stat` (proc(5)), the first of which comes so many fields after
/// the program's name.
fn ticks(path: &str, skip: usize) -> Duration {
    let stat = fs::read_to_string(path).expect("the process runs");
    // The program's name may hold any character but is in the last brackets.
    let (_, fields) = stat.rsplit_once(')').expect("Linux tells it");
    let ticks = fields.split_whitespace().skip(skip).take(2).map(|ticks| ticks.parse::<u64>().expect("a number"));
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
