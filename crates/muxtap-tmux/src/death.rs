//! Immediate detection that a process has ended.

/// Resolves when the process `pid` of this machine has ended; at once if there is no such process.
/// `None` if this system cannot report it without polling; then the subscription to `#{pane_dead}`
/// and tmux's own notifications serve.
#[cfg(target_os = "linux")]
pub fn watch(pid: u32) -> Option<impl Future<Output = ()> + Send + 'static> {
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use tokio::io::{Interest, unix::AsyncFd};

    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    // The safe constructor is deprecated because a type may lie about its descriptor; an `OwnedFd`
    // does not.
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

/// Returns `None`: this system cannot report it.
#[cfg(not(target_os = "linux"))]
pub fn watch(_: u32) -> Option<std::future::Ready<()>> {
    None
}

/// A process that another process has started.
#[cfg(target_os = "linux")]
pub struct Foreign(tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>);

#[cfg(target_os = "linux")]
impl Foreign {
    /// Opens a process of this machine, which must not have been awaited yet.
    pub fn open(pid: u32) -> std::io::Result<Self> {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        use tokio::io::{Interest, unix::AsyncFd};

        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(rustix::io::Errno::SRCH)?;
        // See `watch`.
        #[allow(deprecated, reason = "the replacement is unsafe, and the reason for it does not apply to an OwnedFd")]
        let register = AsyncFd::<std::os::fd::OwnedFd>::with_interest;
        Ok(Self(register(pidfd_open(pid, PidfdFlags::NONBLOCK)?, Interest::READABLE)?))
    }

    /// Continues with the descriptor of another [`Foreign`].
    pub fn of(descriptor: std::os::fd::OwnedFd) -> std::io::Result<Self> {
        // See `watch`.
        #[allow(deprecated, reason = "the replacement is unsafe, and the reason for it does not apply to an OwnedFd")]
        let register = tokio::io::unix::AsyncFd::<std::os::fd::OwnedFd>::with_interest;
        Ok(Self(register(descriptor, tokio::io::Interest::READABLE)?))
    }

    /// Returns a descriptor of the process, which another process can use.
    pub fn descriptor(&self) -> std::io::Result<std::os::fd::OwnedFd> {
        self.0.get_ref().try_clone()
    }

    /// Resolves when the process has ended.
    pub async fn ended(&self) {
        // An error here means that the runtime is going down.
        let _ = self.0.readable().await;
    }

    /// Kills the process.
    pub fn kill(&self) {
        // A process that has ended needs no signal.
        let _ = rustix::process::pidfd_send_signal(&self.0, rustix::process::Signal::KILL);
    }

    /// Asks the process to end.
    pub fn terminate(&self) {
        // As above.
        let _ = rustix::process::pidfd_send_signal(&self.0, rustix::process::Signal::TERM);
    }
}

/// A process that another process has started: not on this system.
#[cfg(not(target_os = "linux"))]
pub struct Foreign(std::convert::Infallible);

#[cfg(not(target_os = "linux"))]
impl Foreign {
    /// Fails: this system cannot report the end of such a process.
    pub fn open(_: u32) -> std::io::Result<Self> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    /// Fails, as [`Foreign::open`] does.
    pub fn of(_: std::os::fd::OwnedFd) -> std::io::Result<Self> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    /// Never called.
    pub fn descriptor(&self) -> std::io::Result<std::os::fd::OwnedFd> {
        match self.0 {}
    }

    /// Never called.
    pub async fn ended(&self) {
        match self.0 {}
    }

    /// Never called.
    pub fn kill(&self) {
        match self.0 {}
    }

    /// Never called.
    pub fn terminate(&self) {
        match self.0 {}
    }
}

/// Returns whether the process `pid` of this machine lives; a zombie does not. Reads no file of
/// `/proc`, which could hang: a pidfd is readable as soon as its process has ended
/// (`pidfd_open(2)`).
pub fn is_alive(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return false };
    #[cfg(target_os = "linux")]
    {
        use rustix::{
            event::{PollFd, PollFlags, Timespec, poll},
            process::{PidfdFlags, pidfd_open},
        };
        if let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            return poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)) == Ok(0);
        }
    }
    exists(pid)
}

/// Waits up to `limit` for the process `pid` of this machine to end, and returns whether it has ended.
/// Does not wait on systems that cannot report an end without polling.
pub fn ends_within(pid: u32, limit: std::time::Duration) -> bool {
    #[cfg(target_os = "linux")]
    {
        use rustix::{
            event::{PollFd, PollFlags, Timespec, poll},
            io::retry_on_intr,
            process::{Pid, PidfdFlags, pidfd_open},
        };
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw)
            && let Ok(fd) = pidfd_open(pid, PidfdFlags::empty())
            && let Ok(limit) = Timespec::try_from(limit)
        {
            let ended = retry_on_intr(|| poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)));
            return ended.is_ok_and(|ready| ready > 0);
        }
    }
    let _ = limit;
    !is_alive(pid)
}

/// Returns whether a process `pid` exists on this machine, including a zombie (ended, but not
/// awaited by its parent).
pub fn is_there(pid: u32) -> bool {
    i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).is_some_and(exists)
}

fn exists(pid: rustix::process::Pid) -> bool {
    !matches!(rustix::process::test_kill_process(pid), Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_nobody_has_waited_for_is_not_alive() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(is_alive(child.id()) && is_alive(std::process::id()));
        child.kill().unwrap();
        while is_alive(child.id()) {
            std::thread::yield_now();
        }
        assert!(is_there(child.id()));
        child.wait().unwrap();
        assert!(!is_there(child.id()));
        assert!(!is_alive(child.id()) && !is_alive(0) && !is_alive(u32::MAX));
    }

    #[test]
    fn the_end_of_a_process_is_awaited() {
        use std::time::Duration;

        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!ends_within(child.id(), Duration::ZERO));
        child.kill().unwrap();
        assert!(ends_within(child.id(), Duration::from_secs(60)));
        child.wait().unwrap();
        assert!(ends_within(child.id(), Duration::ZERO) && ends_within(u32::MAX, Duration::ZERO));
    }
}
