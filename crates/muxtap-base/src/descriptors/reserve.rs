//! The reserve of file descriptors for when all others are in use.
//!
//! Each pane's process is watched by a descriptor, and each connection is one. Without a free
//! descriptor no connection can be accepted, not even to reject it. So some descriptors are held
//! open without a use, and one of them is closed when a connection has to be accepted all the same.

use std::{
    fs::File,
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

/// The number of descriptors reserved for accepting and rejecting connections.
const RESERVED: usize = 8;

/// The reserve of descriptors. It belongs to the process, as the limit does.
static RESERVE: Mutex<Reserve> = Mutex::new(Reserve { kept: Vec::new(), lent: 0 });
/// Notified when a lent descriptor is returned.
static BACK: Notify = Notify::const_new();

struct Reserve {
    kept: Vec<OwnedFd>,
    lent: usize,
}

/// A descriptor of the reserve that was closed to make room for another one. Dropping this reopens
/// it.
#[derive(Debug)]
pub struct Lent(());

/// Closes a descriptor of the reserve. `None` if all of them are lent.
pub fn lend() -> Option<Lent> {
    let mut reserve = reserve();
    reserve.kept.pop()?;
    reserve.lent += 1;
    Some(Lent(()))
}

/// Resolves when a lent descriptor is returned.
pub async fn back() {
    BACK.notified().await;
}

/// Reopens the missing descriptors of the reserve, if that is possible now.
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
