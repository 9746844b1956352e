//! The few file descriptors that are kept for when none are left.
//!
//! Every pane's process is watched by a descriptor, and every connection is one. Without a free one
//! nothing can be accepted, not even in order to refuse it. So some are held open for nothing, and
//! one of them is closed when a connection has to be accepted all the same.

use std::{
    fs::File,
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

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
