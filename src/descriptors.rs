//! File descriptors: raising their limit, and the few that are kept for when none are left.
//!
//! Every pane's process is watched by a descriptor, and every connection is one. Without a free one
//! nothing can be accepted, not even in order to refuse it. So some are held open for nothing, and
//! one of them is closed when a connection has to be accepted all the same.

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Notify;

use crate::api::{Error, ErrorCode};

/// Descriptors that are kept for accepting and refusing.
const RESERVED: usize = 8;

/// The reserve of descriptors. It is the process's, as the limit is.
static RESERVE: Mutex<Reserve> = Mutex::new(Reserve { kept: Vec::new(), lent: 0 });
/// Notified when a lent descriptor is back.
static BACK: Notify = Notify::const_new();

struct Reserve {
    kept: Vec<OwnedFd>,
    lent: usize,
}

/// Raises the limit as far as this process may, and fills the reserve. Call it before other files
/// are opened: a limit that is lowered later leaves the lowest numbers usable.
pub fn prepare() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        // The lower limit serves too, for fewer panes.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
    refill();
}

/// Whether the error says that this process or the system has no descriptor left.
pub fn are_out(error: &io::Error) -> bool {
    use rustix::io::Errno;
    error.raw_os_error().map(Errno::from_raw_os_error).is_some_and(|errno| matches!(errno, Errno::MFILE | Errno::NFILE))
}

/// Returns the error for something that needs a descriptor when there is none.
pub fn error() -> Error {
    let limit = getrlimit(Resource::Nofile).current;
    let of = limit.map_or_else(String::new, |limit| format!(" (its limit is {limit}, `ulimit -n`)"));
    let message = format!(
        "process {} of muxtap is out of file descriptors{of}: end waits, streams and sessions that are not needed, or raise \
         the limit and start it anew",
        std::process::id()
    );
    Error::new(ErrorCode::ResourceLimit, message).with_details(serde_json::json!({ "descriptors": limit }))
}

/// A descriptor of the reserve that was closed so that another one can be opened. Its drop opens it
/// again.
#[derive(Debug)]
pub struct Lent(());

/// Closes a descriptor of the reserve. `None`: all of them are lent.
pub fn lend() -> Option<Lent> {
    let mut reserve = reserve();
    reserve.kept.pop()?;
    reserve.lent += 1;
    Some(Lent(()))
}

/// Resolves when a lent descriptor came back.
pub async fn back() {
    BACK.notified().await;
}

/// Opens what is missing in the reserve, as far as that can be done now.
pub fn refill() {
    let mut reserve = reserve();
    while reserve.kept.len() + reserve.lent < RESERVED {
        let Ok(null) = File::open("/dev/null") else { return };
        reserve.kept.push(null.into());
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        reserve().lent -= 1;
        refill();
        BACK.notify_one();
    }
}

fn reserve() -> MutexGuard<'static, Reserve> {
    RESERVE.lock().unwrap_or_else(PoisonError::into_inner)
}
