//! File descriptors: raising their limit, and detecting that none is left.

use std::io;

use muxtap_core::{Error, ErrorCode};
use rustix::process::{Resource, getrlimit};

pub mod reserve;

/// Raises the limit to this process's maximum, and fills the reserve. Must be called before other
/// files are opened: a limit that is lowered later leaves the lowest numbers usable.
pub fn prepare() {
    use rustix::process::{Rlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        // The lower limit also works, for fewer panes.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
    reserve::refill();
}

/// Returns whether the error means that this process or the system has no descriptor left.
pub fn are_out(error: &io::Error) -> bool {
    use rustix::io::Errno;
    error.raw_os_error().map(Errno::from_raw_os_error).is_some_and(|errno| matches!(errno, Errno::MFILE | Errno::NFILE))
}

/// Returns the error for an operation that needs a descriptor when none is left.
pub fn error() -> Error {
    let limit = getrlimit(Resource::Nofile).current;
    let of = limit.map_or_else(String::new, |limit| format!(" (its limit is {limit}, `ulimit -n`)"));
    let message = format!(
        "muxtap process {} is out of file descriptors{of}: end waits, streams and sessions that are not needed, or \
         raise the limit and restart it",
        std::process::id()
    );
    Error::new(ErrorCode::ResourceLimit, message).with_details(serde_json::json!({ "descriptors": limit }))
}
