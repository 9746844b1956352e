//! The daemon as a service of systemd: the socket that it is passed, and its notifications.
#![cfg(target_os = "linux")]

use std::{
    fs,
    io::{IoSliceMut, Read as _, Write as _},
    mem::MaybeUninit,
    net::{SocketAddr, TcpListener, TcpStream},
    os::{
        fd::OwnedFd,
        unix::{
            fs::PermissionsExt as _,
            net::{UnixDatagram, UnixListener},
        },
    },
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::common::{ProcessEnd, World};

/// Longer than any step of a test that does not fail.
const LIMIT: Duration = Duration::from_secs(60);

/// A socket as `muxtapd.socket` makes it, and the service manager's end of the notifications.
struct Manager {
    listener: UnixListener,
    notified: UnixDatagram,
}

impl Manager {
    fn listen(world: &World, mode: u32) -> Self {
        let socket = world.daemon_socket();
        let listener = UnixListener::bind(&socket).unwrap();
        fs::set_permissions(&socket, fs::Permissions::from_mode(mode)).unwrap();
        let notified = UnixDatagram::bind(world.path("notify")).unwrap();
        notified.set_read_timeout(Some(LIMIT)).unwrap();
        Self { listener, notified }
    }

    /// Starts the daemon as systemd does: the socket is descriptor 3.
    fn start(&self, world: &World) -> Service {
        self.start_with(world, None)
    }

    /// The same, with a stored descriptor of this name as descriptor 4.
    fn start_with(&self, world: &World, stored: Option<(&str, &OwnedFd)>) -> Service {
        let mut command = world.command("sh");
        command
            .args(["-c", "exec 3<&0 4>&1 </dev/null >&2; exec env LISTEN_PID=$$ \"$0\" serve"])
            .arg(world.muxtapd())
            .env("LISTEN_FDS", if stored.is_some() { "2" } else { "1" })
            .env("LISTEN_FDNAMES", stored.map_or("muxtapd.socket".into(), |(name, _)| format!("muxtapd.socket:{name}")))
            .env("NOTIFY_SOCKET", world.path("notify"))
            .env("WATCHDOG_USEC", "300000")
            .stdin(Stdio::from(OwnedFd::from(self.listener.try_clone().unwrap())))
            .stdout(stored.map_or(Stdio::null(), |(_, descriptor)| descriptor.try_clone().unwrap().into()))
            .stderr(Stdio::piped());
        Service(Some(command.spawn().unwrap()))
    }

    /// Fills the queue of notifications.
    fn fill(world: &World) {
        let sender = UnixDatagram::unbound().unwrap();
        sender.set_nonblocking(true).unwrap();
        while sender.send_to(b"X=1", world.path("notify")).is_ok() {}
    }

    /// Reads what is queued.
    fn drain(&self) {
        self.notified.set_nonblocking(true).unwrap();
        while self.notified.recv(&mut [0; 64]).is_ok() {}
        self.notified.set_nonblocking(false).unwrap();
    }

    /// Waits for a notification that begins like this, and returns it. The queue holds ten: it must be read while
    /// anything runs that takes long.
    fn hears(&self, expected: &str) -> String {
        let mut buffer = [0; 1024];
        loop {
            let length = self.notified.recv(&mut buffer).unwrap_or_else(|error| panic!("{expected}: {error}"));
            let text = String::from_utf8_lossy(&buffer[..length]);
            if let Some(line) = text.lines().find(|line| line.starts_with(expected)) {
                return line.to_owned();
            }
        }
    }

    /// Waits for a descriptor to be stored by this name, and returns it.
    fn stores(&self, name: &str) -> OwnedFd {
        let (mut text, mut space) = ([0; 1024], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
        loop {
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let parts = &mut [IoSliceMut::new(&mut text)];
            let length = recvmsg(&self.notified, parts, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap().bytes;
            let descriptor = control.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
                _ => None,
            });
            if let Some(descriptor) = descriptor {
                assert_eq!(str::from_utf8(&text[..length]).unwrap(), format!("FDSTORE=1\nFDNAME={name}\n"));
                return descriptor;
            }
        }
    }

    /// Stops the daemon, and waits for the notification of that.
    fn hears_stop(&self, world: &World) {
        let stop = world.spawn(&["stop"]);
        self.hears("STOPPING=1");
        let stop = stop.finish();
        assert_eq!(stop.status, 0, "{stop:?}");
    }
}

/// The daemon that the manager started.
struct Service(Option<Child>);

impl Service {
    fn pid(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    /// Kills the daemon, as a crash does.
    fn crash(mut self) {
        let mut child = self.0.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn ended(mut self) -> Option<i32> {
        self.0.take().unwrap().wait().unwrap().code()
    }

    fn end(mut self) -> (Option<i32>, String) {
        let ended = self.0.take().unwrap().wait_with_output().unwrap();
        (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_passed_socket_is_served_and_left_to_systemd() {
    let world = World::with_server();
    let manager = Manager::listen(&world, 0o600);
    for round in 0..2 {
        // It connects before there is a daemon, and starts none.
        let early = world.spawn(&["list-panes"]);
        let service = manager.start(&world);
        manager.hears("READY=1");
        let answer = early.finish();
        assert_eq!((answer.status, answer.stderr.as_str()), (0, ""), "round {round}: {answer:?}");
        manager.hears("WATCHDOG=1");
        manager.hears("WATCHDOG=1");
        // Nothing reads the notifications, and their queue is full: the daemon still works through the next ones, which
        // are more than it has threads for work that blocks.
        if round == 0 {
            Manager::fill(&world);
            let waited = world.muxtap(&["wait-for", "-t", "main", "-p", "never printed", "-T", "7"]);
            assert_eq!(waited.status, 124, "{waited:?}");
            // Such a pattern is compiled by one of those threads.
            let waited = world.muxtap(&["wait-for", "-t", "main", "-p", "[0-9]{9}", "-T", "1"]);
            assert_eq!(waited.status, 124, "{waited:?}");
            manager.drain();
            manager.hears("WATCHDOG=1");
        }
        // A connection names the daemon's process, and not the one that made the socket.
        assert_eq!(world.daemon_pid(), Some(service.pid()));
        assert_eq!(world.json(&["status"])["pid"], service.pid());
        manager.hears_stop(&world);
        let (status, log) = service.end();
        assert_eq!(status, Some(0), "{log}");
        assert!(world.daemon_socket().exists(), "the socket is systemd's");
    }
    // There is nothing to stop, and a connection would start a daemon.
    assert!(world.muxtap(&["stop"]).stderr.contains("no daemon is running"));
    manager.listener.set_nonblocking(true).unwrap();
    assert!(manager.listener.accept().is_err(), "a command has connected");
}

#[test]
fn a_service_that_is_reloaded_has_another_main_process() {
    let world = World::with_server();
    let manager = Manager::listen(&world, 0o600);
    let service = manager.start(&world);
    manager.hears("READY=1");
    // What `ExecReload=` runs.
    let upgrade = world.spawn(&["--json", "upgrade"]);
    let main = manager.hears("MAINPID=");
    let upgrade = upgrade.finish();
    assert_eq!(upgrade.status, 0, "{upgrade:?}");
    let pid = upgrade.json()["pid"].as_u64().unwrap();
    assert_eq!(main, format!("MAINPID={pid}"));
    // The next daemon has its stderr, too.
    assert_eq!(service.ended(), Some(0));
    manager.hears("WATCHDOG=1");
    manager.hears("WATCHDOG=1");
    assert_eq!(world.daemon_pid().map(u64::from), Some(pid));
    // A daemon outside of the service would be ended with it, or run beside the next one.
    let refused = world.muxtap(&["serve", "--replace"]);
    assert!(refused.status == 1 && refused.stderr.contains("systemctl --user reload"), "{refused:?}");
    manager.hears_stop(&world);
    assert!(world.daemon_socket().exists(), "the socket is systemd's");
}

/// Sends a request that any port of the daemon answers.
fn ask(address: SocketAddr) -> TcpStream {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(LIMIT)).unwrap();
    connection.write_all(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    connection
}

fn is_answered(mut connection: TcpStream) {
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}

#[test]
fn a_port_listens_on_while_a_killed_daemon_is_started_again() {
    let mut world = World::new();
    world.set("MUXTAP_HTTP", "127.0.0.1:0");
    let manager = Manager::listen(&world, 0o600);
    let service = manager.start(&world);
    let stored = manager.stores("http");
    let port = TcpListener::from(stored.try_clone().unwrap());
    let address = port.local_addr().unwrap();
    is_answered(ask(address));
    service.crash();
    // Nothing serves it now, and it is not refused either.
    let waiting = ask(address);
    let service = manager.start_with(&world, Some(("http", &stored)));
    is_answered(waiting);
    assert_eq!(world.json(&["status"])["http"][0], format!("http://{address}"));
    // The same port, which systemd stores once.
    assert_eq!(TcpListener::from(manager.stores("http")).local_addr().unwrap(), address);
    service.crash();
    manager.drain();
    // The settings name it no longer: it must not look as if something listened.
    world.set("MUXTAP_HTTP", "127.0.0.2:0");
    let service = manager.start_with(&world, Some(("http", &stored)));
    manager.hears("READY=1");
    let refused = TcpStream::connect(address).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    // What makes systemd drop it.
    let mut polled = [PollFd::new(&stored, PollFlags::empty())];
    rustix::event::poll(&mut polled, None).unwrap();
    assert!(polled[0].revents().contains(PollFlags::HUP));
    manager.hears_stop(&world);
    assert_eq!(service.ended(), Some(0));
}

#[test]
fn the_pages_port_is_the_same_after_a_crash() {
    let world = World::with_server();
    let manager = Manager::listen(&world, 0o600);
    let service = manager.start(&world);
    manager.hears("READY=1");
    let opened = world.spawn(&["open", "--print"]);
    let stored = manager.stores("page");
    let address = |link: &str| link.split_once("/#code=").unwrap().0.to_owned();
    let first = address(&opened.finish().text());
    service.crash();
    manager.drain();
    let service = manager.start_with(&world, Some(("page", &stored)));
    manager.hears("READY=1");
    // Any other daemon would have none: the port is opened for the first page.
    assert_eq!(world.json(&["status"])["http"][0], first);
    assert_eq!(address(&world.ok(&["open", "--print"])), first);
    manager.hears_stop(&world);
    assert_eq!(service.ended(), Some(0));
}

#[test]
fn programs_in_panes_and_a_second_daemon_know_nothing_of_systemd() {
    let world = World::new();
    let manager = Manager::listen(&world, 0o600);
    let service = manager.start(&world);
    manager.hears("READY=1");
    world.ok(&["new-session", "-s", "work", "env; exec cat"]);
    let printed = world.ok(&["wait-for", "-t", "work", "-p", "^PWD=", "--since", "start"]);
    assert!(printed.starts_with("PWD="), "{printed}");
    for name in ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "WATCHDOG_USEC"] {
        let environment = world.tmux(&["show-environment", "-g"]);
        assert!(!environment.contains(name), "{name}: {environment}");
    }
    // What was meant for another process is not this one's.
    let other = World::new();
    let mut command = other.plain_muxtap_command();
    command.args(["status"]).env("LISTEN_FDS", "1").env("LISTEN_PID", "1");
    assert_eq!(crate::common::run(&mut command).status, 1);
    world.ok(&["stop"]);
    assert_eq!(service.end().0, Some(0));
}

#[test]
fn a_socket_that_others_may_open_is_refused() {
    let world = World::new();
    let manager = Manager::listen(&world, 0o666);
    let (status, log) = manager.start(&world).end();
    assert!(status == Some(1) && log.contains("its mode is 666") && log.contains("SocketMode=0600"), "{log}");
    assert!(Path::new(&world.daemon_socket()).exists());
}

/// systemd removes a socket that exists, and so may anything that cleans a folder.
#[test]
fn a_daemon_that_lost_its_socket_is_named_and_stopped() {
    let world = World::with_server();
    world.ok(&["list-panes"]);
    for replaced in [false, true] {
        world.ok(&["list-panes"]);
        let pid = world.daemon_pid().unwrap();
        fs::remove_file(world.daemon_socket()).unwrap();
        // Another process listens there, as systemd does: this one.
        let other = replaced.then(|| UnixListener::bind(world.daemon_socket()).unwrap());
        let message = world.error("CONFLICT", &["status"]);
        assert!(message.contains(&format!("(process {pid})")) && message.contains("muxtap stop"), "{message}");
        if !replaced {
            let doctor = world.muxtap(&["doctor"]);
            assert!(doctor.status == 1 && doctor.text().contains("its socket was removed or replaced"), "{doctor:?}");
        }
        let end = ProcessEnd::of(pid);
        let stopped = world.muxtap(&["stop"]);
        assert!(stopped.status == 0 && stopped.stderr.contains("by SIGTERM"), "{stopped:?}");
        // It has released its lock, and ends.
        end.wait();
        drop(other);
    }
}
