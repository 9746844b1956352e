//! When a terminal of this machine began, and when it was used last: what the kernel knows of its process.

use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
};

use muxtap_base::clock;

/// Ticks of a second in `/proc` (`USER_HZ`), the same on every architecture that muxtap is built for.
const TICKS: u64 = 100;

/// When a process began, in milliseconds since 1970. `None`: it has gone, or this is no Linux.
pub(super) fn created(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the program's name, which may hold anything, the start is the 20th field (proc(5)).
    let ticks: u64 = stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()?;
    let up = fs::read_to_string("/proc/uptime").ok()?;
    // Seconds with two digits behind the point.
    let up_hundredths: u64 = up.split(' ').next()?.replace('.', "").parse().ok()?;
    Some((clock::now_ms() + ticks * 1000 / TICKS).saturating_sub(up_hundredths * 10))
}

/// When something was last typed into a process's terminal or printed there, in milliseconds since 1970. The kernel
/// notes it to 8 s.
pub(super) fn used(pid: u32) -> Option<u64> {
    let found = fs::metadata(format!("/proc/{pid}/fd/0")).ok().filter(|found| found.file_type().is_char_device())?;
    u64::try_from(found.atime().max(found.mtime())).ok().map(|seconds| seconds * 1000)
}
