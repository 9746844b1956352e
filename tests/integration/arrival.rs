//! Control clients attach to busy servers without killing them (F36 to F38).
//!
//! A slow proxy makes the attachments long: it delays each message of a client's introduction
//! except the first.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::PermissionsExt as _,
    },
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rustix::{
    cmsg_space,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        sockopt,
    },
    process::Signal,
};
use std::os::unix::net::{UnixListener, UnixStream};

use crate::common::{World, eventually, signal, tmux_program};

/// The delay of each message.
const LATE: Duration = Duration::from_millis(20);

/// Counters of the slow proxy.
#[derive(Default)]
struct Seen {
    /// Clients that connected to it.
    came: AtomicUsize,
    /// Clients that it killed in the middle of their introduction.
    killed: AtomicUsize,
}

/// Puts a slow proxy between muxtap's control clients and their server. The clients themselves are
/// real.
///
/// `kill_after`: the number of messages after which it kills each client.
fn put_in_between(world: &mut World, kill_after: Option<usize>) -> Arc<Seen> {
    let targets = world.path("targets");
    std::fs::create_dir(&targets).unwrap();
    let middle = world.path("middle");
    let listener = UnixListener::bind(&middle).unwrap();
    // A control client connects to the proxy. The address of its server is in a file named by its
    // process id.
    let script = r#"#!/bin/sh
case " $* " in *" -C "*) ;; *) exec TMUX "$@" ;; esac
n=$#
while [ "$n" -gt 0 ]; do
    n=$((n - 1))
    word=$1
    shift
    if [ "$word" = -S ]; then
        n=$((n - 1))
        printf %s "$1" > TARGETS/$$
        shift
        set -- "$@" -S MIDDLE
    else
        set -- "$@" "$word"
    fi
done
exec TMUX "$@"
"#;
    let text = |path: &Path| path.display().to_string();
    let script = script.replace("TMUX", &tmux_program()).replace("TARGETS", &text(&targets));
    put_as_tmux(world, &script.replace("MIDDLE", &text(&middle)));
    let seen = Arc::new(Seen::default());
    let counted = seen.clone();
    std::thread::spawn(move || {
        // The thread ends with the test's process.
        for client in listener.incoming().flatten() {
            let pid = sockopt::socket_peercred(&client).unwrap().pid.as_raw_nonzero().get();
            let target = std::fs::read_to_string(targets.join(pid.to_string())).unwrap();
            counted.came.fetch_add(1, Ordering::Relaxed);
            let counted = counted.clone();
            std::thread::spawn(move || {
                let Ok(server) = UnixStream::connect(target) else { return };
                let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || pass_on(&from, &to));
                let mut victim = None;
                if let Some(messages) = kill_after {
                    victim = Some((messages, u32::try_from(pid).unwrap()));
                }
                if pass_slowly(&client, &server, victim) {
                    counted.killed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    seen
}

/// Installs this script as muxtap's tmux program.
fn put_as_tmux(world: &mut World, script: &str) {
    let wrapper = world.path("tmux");
    std::fs::write(&wrapper, script).unwrap();
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).unwrap();
    world.set("MUXTAP_TMUX", wrapper.display().to_string());
    world.set("MUXTAP_OWN_TMUX", "false");
}

fn receive(socket: &UnixStream) -> (Vec<u8>, Option<OwnedFd>) {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; 1 << 16];
    let received =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
    bytes.truncate(received.map_or(0, |received| received.bytes));
    let rights = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    (bytes, rights)
}

/// Returns whether the other side still accepts the message.
fn send(socket: &UnixStream, bytes: &[u8], descriptor: Option<&OwnedFd>) -> bool {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptor.map(|descriptor| descriptor.as_fd()).into_iter().collect();
    assert!(descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).is_ok()
}

fn pass_on(from: &UnixStream, to: &UnixStream) {
    loop {
        let (bytes, descriptor) = receive(from);
        if bytes.is_empty() || !send(to, &bytes, descriptor.as_ref()) {
            let _ = to.shutdown(std::net::Shutdown::Both);
            return;
        }
    }
}

/// Forwards a client's messages one by one, each but the first with a delay. Returns whether it
/// killed the client.
fn pass_slowly(client: &UnixStream, server: &UnixStream, victim: Option<(usize, u32)>) -> bool {
    let mut left = Vec::new();
    let mut messages = 0;
    loop {
        let (bytes, mut descriptor) = receive(client);
        if bytes.is_empty() {
            let _ = server.shutdown(std::net::Shutdown::Both);
            return false;
        }
        left.extend(bytes);
        while left.len() >= 16 {
            let length = usize::from(u16::from_ne_bytes([left[4], left[5]]));
            let has_descriptor = left[6..8] != [0, 0];
            if left.len() < length {
                break;
            }
            if messages > 0 {
                std::thread::sleep(LATE);
            }
            if let Some((last, pid)) = victim
                && messages == last
            {
                signal(pid, Signal::KILL);
                let _ = server.shutdown(std::net::Shutdown::Both);
                return true;
            }
            let message: Vec<u8> = left.drain(..length).collect();
            let with = if has_descriptor { descriptor.take() } else { None };
            if !send(server, &message, with.as_ref()) {
                let _ = client.shutdown(std::net::Shutdown::Both);
                return false;
            }
            messages += 1;
        }
    }
}

/// Creates and kills sessions by plain tmux without a pause until `done`. The server must survive.
fn churn_until(world: &World, mut done: impl FnMut() -> bool) {
    let server = world.server_pid();
    let mut rounds = 0;
    while !done() {
        world.tmux(&["new-session", "-d", "-s", "brief", "exec cat"]);
        world.tmux(&["set-buffer", "-b", "brief", "text"]);
        world.tmux(&["kill-session", "-t", "brief"]);
        rounds += 1;
        assert!(rounds < 5000, "never");
    }
    assert_eq!(world.server_pid(), server);
}

#[test]
fn a_server_survives_slow_attaches_while_sessions_are_created_and_killed() {
    let mut world = World::with_server();
    for name in ["a", "b", "c"] {
        world.session(name);
    }
    let seen = put_in_between(&mut world, None);
    let mut following = world.spawn(&["events"]);
    // All four take some seconds to attach, one after the other, and each brief session may get a
    // client that is late.
    let attached = || world.tmux(&["list-clients", "-F", "#{client_session}"]);
    churn_until(&world, || ["main", "a", "b", "c"].iter().all(|name| attached().lines().any(|line| line == *name)));
    assert!(seen.came.load(Ordering::Relaxed) >= 4);
    following.close_stdin();
    following.kill();
    // The clients work.
    let pane = world.tmux(&["display-message", "-p", "-t", "b:", "#{pane_id}"]);
    world.tmux(&["send-keys", "-t", &pane, "echo of\"\" use", "Enter"]);
    world.await_output(&pane, "of use");
    // The server knows them by their own process ids.
    let clients = world.tmux(&["list-clients", "-F", "#{client_name} #{client_pid}"]);
    let named = |line: &str| line.split_once(' ').is_some_and(|(name, pid)| name == format!("client-{pid}"));
    assert!(clients.lines().all(named), "{clients}");
}

#[test]
fn a_client_that_is_killed_while_it_arrives_is_never_seen_by_the_server() {
    let mut world = World::with_server();
    let seen = put_in_between(&mut world, Some(4));
    let mut following = world.spawn(&["events"]);
    churn_until(&world, || seen.killed.load(Ordering::Relaxed) >= 3);
    following.close_stdin();
    following.kill();
    assert_eq!(world.tmux(&["list-clients"]), "");
}

#[test]
fn a_server_lives_while_a_script_makes_a_session_and_kills_it_a_moment_later() {
    let world = World::with_server().with_coverage("sessions");
    let server = world.server_pid();
    world.ok(&["list-panes"]);
    for round in 0..60 {
        let name = format!("job-{round}");
        world.session(&name);
        // A client attaches within some milliseconds; once it took 200 ms.
        std::thread::sleep(Duration::from_millis([3, 8, 100, 200, 205, 210][round % 6]));
        world.tmux(&["kill-session", "-t", &name]);
    }
    assert_eq!(world.server_pid(), server);
    // No session or client of the churn is left.
    eventually("one client is left", || world.tmux(&["list-clients"]).lines().count() == 1);
    assert_eq!(world.sessions(), ["main"]);
}

/// The hub's client attaches after the server was started.
#[test]
fn a_server_whose_hub_cannot_be_attached_to_is_not_left_behind() {
    let mut world = World::new().with_coverage("hub");
    let script = r#"#!/bin/sh
case " $* " in *" -C attach-sessio "*) exit 7 ;; esac
exec TMUX "$@"
"#;
    put_as_tmux(&mut world, &script.replace("TMUX", &tmux_program()));
    world.error("TMUX_UNAVAILABLE", &["new-session", "-s", "one"]);
    let there = crate::common::run(world.tmux_command(world.socket()).args(["list-sessions"]));
    assert_ne!(there.status, 0, "{there:?}");
}

/// A server whose daemon was killed while starting it ends by itself after 15 s.
#[test]
fn a_daemon_that_is_killed_while_it_starts_a_server_leaves_none_behind() {
    let mut world = World::new().with_coverage("hub");
    // The hub's client kills the daemon that started it.
    let script = r#"#!/bin/sh
case " $* " in *" -C attach-sessio "*) kill -KILL "$PPID"; exit 7 ;; esac
exec TMUX "$@"
"#;
    put_as_tmux(&mut world, &script.replace("TMUX", &tmux_program()));
    assert_ne!(world.muxtap(&["new-session", "-s", "one"]).status, 0);
    let server = world.server_pid();
    eventually("the server has ended", || !crate::common::is_alive(server));
}
