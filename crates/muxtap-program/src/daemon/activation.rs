//! systemd's side of a service: the socket that it passes, and the notifications that it expects.
//!
//! `muxtapd.socket` listens, and systemd starts the daemon at the first connection
//! (`sd_listen_fds(3)`). The daemon reports that it is ready and that it stops (`sd_notify(3)`),
//! and shows at intervals that its event loop runs (`sd_watchdog_enabled(3)`). It stores its TCP ports
//! with systemd (`FDSTORE=1`): they go on listening if the daemon is killed, and the next one gets them.
//! Without systemd, and on other systems, all of this does nothing.

#[cfg(target_os = "linux")]
use std::os::fd::{AsFd as _, BorrowedFd};
use std::{net::TcpListener, os::unix::net::UnixListener};

#[cfg(target_os = "linux")]
use sd_notify::NotifyState;

use crate::{api::Result, config::paths::Paths};

/// Connections that may wait for the daemon; the system's own limit is often lower.
const BACKLOG: i32 = 4096;

/// How long the daemon waits until systemd has taken a notification.
#[cfg(target_os = "linux")]
const NOTIFY_LIMIT: std::time::Duration = std::time::Duration::from_secs(1);

/// The same, of one without which systemd ends the service.
#[cfg(target_os = "linux")]
const NEEDED_LIMIT: std::time::Duration = std::time::Duration::from_secs(5);

/// Makes this process the one that clients of a listening socket learn from their connection: the last
/// one that called listen(2) (unix(7), `SO_PEERCRED`).
pub(super) fn listen_here(listener: &UnixListener) -> std::io::Result<()> {
    Ok(rustix::net::listen(listener, BACKLOG)?)
}

/// The name of a stored port that the settings name.
#[cfg(target_os = "linux")]
const HTTP_PORT: &str = "http";

/// The name of the page's stored port.
#[cfg(target_os = "linux")]
const PAGE_PORT: &str = "page";

/// Sockets and descriptors that systemd passes to a process.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// The daemon's socket, from the socket unit.
    pub(super) local: Option<UnixListener>,
    /// The ports that an earlier process of the service has stored; whether each is the page's.
    pub(super) ports: Vec<(bool, TcpListener)>,
}

/// Takes what systemd passed to this process.
///
/// Call it before any thread starts: it removes variables from the environment. Error: `CONFLICT`
/// if the socket is not the daemon's, or open to other users.
#[cfg(target_os = "linux")]
pub(super) fn take_passed(paths: &Paths) -> Result<Passed> {
    // Without this variable `listenfd` would take descriptors that were passed to a parent process.
    if std::env::var("LISTEN_PID").ok() != Some(std::process::id().to_string()) {
        return Ok(Passed::default());
    }
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut descriptors = listenfd::ListenFd::from_env();
    let mut passed = Passed::default();
    // systemd passes the sockets of socket units first, then what was stored.
    for index in 0..descriptors.len() {
        match names.split(':').nth(index) {
            Some(name @ (HTTP_PORT | PAGE_PORT)) => match descriptors.take_tcp_listener(index) {
                Ok(port) => passed.ports.extend(port.map(|port| (name == PAGE_PORT, port))),
                Err(error) => tracing::warn!("cannot use the stored port `{name}`: {error}"),
            },
            _ if passed.local.is_none() => {
                let taken = descriptors.take_unix_listener(index);
                passed.local = taken.map_err(|error| refused(paths, &format!("descriptor {}: {error}", 3 + index)))?;
            }
            _ => {}
        }
    }
    let Some(listener) = &passed.local else { return Ok(passed) };
    check(listener, paths)?;
    let prepared = listen_here(listener).and_then(|()| listener.set_nonblocking(true));
    prepared.map_err(|error: std::io::Error| refused(paths, &error.to_string()))?;
    Ok(passed)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn take_passed(_: &Paths) -> Result<Passed> {
    Ok(Passed::default())
}

/// Stores a port with systemd, which drops it when the service stops. A port that is stored already is
/// stored once; without `FileDescriptorStoreMax=` in the unit, systemd ignores it.
pub(super) async fn store(is_page: bool, port: &TcpListener) {
    #[cfg(target_os = "linux")]
    {
        let name = if is_page { PAGE_PORT } else { HTTP_PORT };
        let state = format!("FDSTORE=1\nFDNAME={name}");
        notify(NotifyState::Custom(&state), Some(port.as_fd()), NOTIFY_LIMIT).await;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (is_page, port);
}

/// Closes a port in every process that has it, also in systemd's store, where its clients would wait in
/// vain: systemd drops a descriptor that hangs up (`FDPOLL=`, `sd_notify(3)`).
pub(super) fn close(port: &TcpListener) {
    if let Err(error) = rustix::net::shutdown(port, rustix::net::Shutdown::Read) {
        tracing::warn!("cannot close a port: {error}");
    }
}

/// Checks that a passed socket is the daemon's, and that only its user can connect.
#[cfg(target_os = "linux")]
fn check(listener: &UnixListener, paths: &Paths) -> Result<()> {
    use std::{fs, os::unix::fs::PermissionsExt as _};
    let address = listener.local_addr().map_err(|error| refused(paths, &error.to_string()))?;
    let Some(path) = address.as_pathname() else {
        return Err(refused(paths, "it has no path"));
    };
    let is_same = path == paths.socket
        || fs::canonicalize(path).is_ok_and(|path| fs::canonicalize(&paths.socket).is_ok_and(|own| own == path));
    if !is_same {
        return Err(refused(paths, &format!("it is {}", path.display())));
    }
    let found = fs::metadata(path).map_err(|error| refused(paths, &error.to_string()))?;
    match found.permissions().mode() & 0o777 {
        mode if mode & 0o077 != 0 => {
            Err(refused(paths, &format!("its mode is {mode:03o}, which lets other users connect; set SocketMode=0600")))
        }
        _ => Ok(()),
    }
}

#[cfg(target_os = "linux")]
fn refused(paths: &Paths, why: &str) -> crate::api::Error {
    let message = format!(
        "cannot use the socket that systemd passed: {why}; expected {}: set ListenStream= of the socket unit, or \
         MUXTAP_SOCKET of the service",
        paths.socket.display()
    );
    crate::api::Error::new(crate::api::ErrorCode::Conflict, message)
}

/// Notifies systemd that the daemon serves requests, and then at intervals that the event loop runs, if systemd expects
/// that. Never resolves.
pub(super) async fn keep_notified() {
    #[cfg(target_os = "linux")]
    {
        // Without this one, systemd ends the service: it is sent, however long that takes.
        while !notify(NotifyState::Ready, None, NEEDED_LIMIT).await {}
        if let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) {
            let mut ticks = tokio::time::interval(limit / 3);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                notify(NotifyState::Watchdog, None, NOTIFY_LIMIT).await;
            }
        }
    }
    std::future::pending::<()>().await;
}

/// Notifies systemd that another process is the daemon from now on.
pub(super) async fn replaced_by(pid: u32) {
    #[cfg(target_os = "linux")]
    notify(NotifyState::MainPid(pid), None, NEEDED_LIMIT).await;
    #[cfg(not(target_os = "linux"))]
    let _ = pid;
}

/// Notifies systemd that the daemon is about to exit.
pub(super) async fn stopping() {
    #[cfg(target_os = "linux")]
    notify(NotifyState::Stopping, None, NOTIFY_LIMIT).await;
}

/// Sends a notification, and waits until systemd's queue takes it, but no longer than `limit`. Without
/// `NOTIFY_SOCKET` it does nothing. Returns false if another try could succeed.
///
/// The queue holds few messages. No thread is blocked while it is full: the daemon has few, and needs them.
#[cfg(target_os = "linux")]
async fn notify(state: NotifyState<'_>, descriptor: Option<BorrowedFd<'_>>, limit: std::time::Duration) -> bool {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return true };
    let send = async {
        let socket = tokio::net::UnixDatagram::from_std(connect(&path)?)?;
        let text = format!("{state}\n");
        let send = || send(&socket, text.as_bytes(), descriptor.as_slice());
        socket.async_io(tokio::io::Interest::WRITABLE, send).await
    };
    match tokio::time::timeout(limit, send).await {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => {
            tracing::warn!("cannot notify systemd: {error}");
            true
        }
        Err(_) => {
            tracing::warn!("systemd does not read notifications");
            false
        }
    }
}

/// Sends a message with these descriptors.
#[cfg(target_os = "linux")]
fn send(socket: &tokio::net::UnixDatagram, text: &[u8], descriptors: &[BorrowedFd<'_>]) -> std::io::Result<usize> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(std::io::Error::other("the descriptors do not fit into the control message"));
    }
    let text = [std::io::IoSlice::new(text)];
    Ok(rustix::net::sendmsg(socket, &text, &mut control, SendFlags::NOSIGNAL)?)
}

/// Connects to the socket for notifications: a path, or an abstract name after `@`.
#[cfg(target_os = "linux")]
fn connect(path: &std::ffi::OsStr) -> std::io::Result<std::os::unix::net::UnixDatagram> {
    use std::os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr, UnixDatagram},
        },
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    match path.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(path)?,
    }
    Ok(socket)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn a_passed_socket_must_be_the_daemons_and_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::in_dir(dir.path());
        let listener = UnixListener::bind(&paths.socket).unwrap();
        let mode = |mode| fs::set_permissions(&paths.socket, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o600);
        check(&listener, &paths).unwrap();
        mode(0o660);
        let error = check(&listener, &paths).unwrap_err();
        assert!(error.message.contains("its mode is 660") && error.message.contains("SocketMode=0600"), "{error}");
        let other = UnixListener::bind(dir.path().join("other.sock")).unwrap();
        let error = check(&other, &paths).unwrap_err();
        assert!(error.message.contains("it is ") && error.message.contains("other.sock; expected"), "{error}");
    }
}
