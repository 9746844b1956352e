//! Knowing at once that a process has ended.

/// Resolves when the process `pid` of this machine has ended; at once if there is none. `None` where this system cannot
/// tell without asking again and again; then the subscription to `#{pane_dead}` and tmux's own notifications serve.
#[cfg(target_os = "linux")]
pub fn watch(pid: u32) -> Option<impl Future<Output = ()> + Send + 'static> {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use tokio::io::{Interest, unix::AsyncFd};

    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    // The safe constructor is deprecated because a type may lie about its descriptor; an `OwnedFd` does not.
    #[allow(deprecated, reason = "the replacement is unsafe, and the reason for it does not apply to an OwnedFd")]
    let register = AsyncFd::<std::os::fd::OwnedFd>::with_interest;
    let fd = match pidfd_open(pid, PidfdFlags::NONBLOCK) {
        Ok(fd) => Some(register(fd, Interest::READABLE).ok()?),
        Err(rustix::io::Errno::SRCH) => None,
        Err(_) => return None,
    };
    Some(async move {
        if let Some(fd) = fd {
            // An error here means that the runtime is going down.
            let _ = fd.readable().await;
        }
    })
}

/// Not known on this system.
#[cfg(not(target_os = "linux"))]
pub fn watch(_: u32) -> Option<std::future::Ready<()>> {
    None
}

/// Whether the process `pid` of this machine lives; one that has ended and that nobody has waited for does not.
pub fn is_alive(pid: u32) -> bool {
    #[cfg(target_os = "linux")]
    if super::processes::Stat::of(pid).is_some_and(|stat| stat.has_ended()) {
        return false;
    }
    i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .is_some_and(|pid| !matches!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH)))
}
