//! A local terminal's start and last use, from the kernel's data about its process.

use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
};

use muxtap_base::clock;

/// Ticks per second in `/proc` (`USER_HZ`), the same on every architecture that muxtap is built for.
const TICKS: u64 = 100;

/// The start of a process, in milliseconds since 1970. `None`: it has ended, or this is not Linux.
pub(super) fn created(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the program's name, which may contain anything, the start is the 20th field (proc(5)).
    let ticks: u64 = stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()?;
    let up = fs::read_to_string("/proc/uptime").ok()?;
    // Seconds with two decimals.
    let up_hundredths: u64 = up.split(' ').next()?.replace('.', "").parse().ok()?;
    Some((clock::now_ms() + ticks * 1000 / TICKS).saturating_sub(up_hundredths * 10))
}

/// The time of the last input or output on a process's terminal, in milliseconds since 1970. The
/// kernel records it with a precision of 8 s.
pub(super) fn used(pid: u32) -> Option<u64> {
    let found = fs::metadata(format!("/proc/{pid}/fd/0")).ok().filter(|found| found.file_type().is_char_device())?;
    u64::try_from(found.atime().max(found.mtime())).ok().map(|seconds| seconds * 1000)
}
