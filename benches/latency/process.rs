//! CPU time and memory of a process, from `/proc`.

use std::{fs, time::Duration};

/// CPU time of all its threads so far.
pub fn cpu(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    let nanos = tasks.flatten().filter_map(|task| {
        // Nanoseconds, where `stat` only counts ticks of 10 ms.
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

/// Resident memory now, in bytes.
pub fn resident(pid: u32) -> u64 {
    field(pid, "VmRSS:")
}

/// The most it ever was.
pub fn resident_peak(pid: u32) -> u64 {
    field(pid, "VmHWM:")
}

fn field(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("Linux tells it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number of kB") * 1024
}
