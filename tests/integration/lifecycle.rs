//! The start and end of the daemon, the tmux server and its contents.

use std::{fs, os::unix::fs::PermissionsExt as _};

use crate::{
    common::{Background, Http, Stopped, World, answering, eventually, is_alive, say, signal, type_line},
    mcp::Client,
};
use rustix::process::Signal;

/// Returns everything that a pane has printed in reply, in order.
fn answers(world: &World, pane: &str) -> Vec<String> {
    world.read_all(pane).lines().filter_map(|line| line.strip_prefix("got ")).map(str::to_owned).collect()
}

fn our_clients(world: &World) -> usize {
    world.tmux(&["list-clients", "-F", "#{client_name}"]).lines().count()
}

#[test]
fn a_session_where_no_server_runs() {
    let world = World::new();
    let pane = world.ok(&["new-session", "-s", "work"]);
    assert_eq!(world.sessions(), ["work"]);
    assert_eq!(world.panes(), [pane]);
}

#[test]
fn a_server_that_is_there_is_followed() {
    let world = World::with_server();
    assert_eq!(world.sessions(), ["main"]);
    world.tmux(&["send-keys", "-t", "main", "echo he''llo", "Enter"]);
    world.await_output("main", "hello");
}

/// A client leaves because its input ends; one that has to be killed could take the server with it.
#[test]
fn clients_leave_by_themselves_when_the_daemon_stops() {
    let mut world = World::with_server();
    world.window("exec cat");
    let (program, log) = (world.path("tmux-with-log"), world.path("ends"));
    let script =
        format!("#!/bin/sh\n'{}' \"$@\"\necho \"$? $*\" >>'{}'\n", crate::common::tmux_program(), log.display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    world.set("MUXTAP_TMUX", program.display().to_string());
    world.set("MUXTAP_OWN_TMUX", "false");
    for pane in world.panes() {
        world.read_all(&pane);
    }
    world.ok(&["stop"]);
    let ends = || fs::read_to_string(&log).unwrap_or_default();
    let is_client = |line: &&str| line.contains(" -C");
    eventually("the clients' ends are in the log", || ends().lines().any(|line| is_client(&line)));
    for end in ends().lines().filter(is_client) {
        assert!(end.starts_with("0 "), "{end}");
    }
}

#[test]
fn panes_created_by_plain_tmux_are_followed_from_their_first_byte() {
    let world = World::with_server();
    assert_eq!(world.sessions(), ["main"]);
    let session = answering(&world, &["new-session", "-s", "two"]);
    let window = answering(&world, &["new-window", "-t", "two:"]);
    let split = answering(&world, &["split-window", "-t", &window]);
    for pane in [&session, &window, &split] {
        say(&world, pane, "one");
        say(&world, pane, "two");
        assert_eq!(answers(&world, pane), ["one", "two"]);
    }
    assert_eq!(world.sessions(), ["main", "two"]);
}

#[test]
fn a_window_in_two_sessions_delivers_each_byte_once_and_survives_one_session() {
    let world = World::with_server();
    let pane = answering(&world, &["new-session", "-s", "one"]);
    world.session("two");
    world.tmux(&["link-window", "-d", "-s", "one:0", "-t", "two:7"]);
    say(&world, &pane, "a");
    world.tmux(&["kill-session", "-t", "one"]);
    say(&world, &pane, "b");
    assert_eq!(world.sessions(), ["main", "two"]);
    say(&world, "two:7", "c");
    assert_eq!(answers(&world, &pane), ["a", "b", "c"]);
}

#[test]
fn killing_one_session_ends_its_waits_and_no_others() {
    let world = World::with_server();
    let goes = answering(&world, &["new-session", "-s", "goes"]);
    let stays = answering(&world, &["new-session", "-s", "stays"]);
    let ended = world.spawn(&["--json", "wait-for", "-t", &goes, "-p", "never", "-T", "40"]);
    let matched = world.spawn(&["--json", "wait-for", "-t", &stays, "-p", "^got end", "-T", "40"]);
    eventually("both waits are open", || world.json(&["status"])["waits"] == 2);
    world.tmux(&["kill-session", "-t", "goes"]);
    let ended = ended.finish();
    assert_eq!((ended.status, &ended.json()["outcome"]), (3, &"ended".into()), "{ended:?}");
    type_line(&world, &stays, "end");
    assert_eq!(matched.finish().status, 0);
    // The ended pane's output can still be read.
    assert!(world.read_all(&goes).contains("ready"));
}

#[test]
fn a_client_that_tmux_moves_to_another_session_leaves_it() {
    let world = World::with_server().with_coverage("sessions");
    world.tmux(&["set-option", "-g", "detach-on-destroy", "off"]);
    let pane = answering(&world, &["new-session", "-s", "stays"]);
    world.session("goes");
    assert_eq!(world.sessions(), ["goes", "main", "stays"]);
    eventually("a client for each session", || our_clients(&world) == 3);
    world.tmux(&["kill-session", "-t", "goes"]);
    eventually("a client for each session", || our_clients(&world) == 2);
    say(&world, &pane, "once");
    assert_eq!(answers(&world, &pane), ["once"]);
    let sessions = world.tmux(&["list-clients", "-F", "#{session_name}"]);
    let mut sessions: Vec<_> = sessions.lines().collect();
    sessions.sort_unstable();
    assert_eq!(sessions, ["main", "stays"]);
}

#[test]
fn a_client_that_tmux_detaches_attaches_again() {
    let world = World::with_server().with_coverage("sessions");
    let pane = answering(&world, &["new-session", "-s", "work"]);
    say(&world, &pane, "before");
    assert_eq!(our_clients(&world), 2);
    let attached = |world: &World| world.tmux(&["list-clients", "-F", "#{client_pid}"]);
    let first = attached(&world);
    // A user detaches all other clients: `attach -d`, then `detach-client -a`.
    let mut user =
        Background::start(world.tmux_command(world.socket()).args(["-C", "attach-session", "-d", "-t", "work"]));
    user.line_where("the attach", |line| line.starts_with("%session-changed"));
    eventually("muxtap is back in both", || {
        let now = attached(&world);
        now.lines().count() == 3 && now != first
    });
    say(&world, &pane, "between");
    let second = attached(&world);
    {
        use std::io::Write as _;
        user.stdin().write_all(b"detach-client -a\n").unwrap();
    }
    eventually("muxtap is back in both", || {
        let now = attached(&world);
        now.lines().count() == 3 && now.lines().filter(|pid| !second.contains(pid)).count() == 2
    });
    say(&world, &pane, "after");
    let got = answers(&world, &pane);
    // A seed of the screen follows each time; repeated output comes after a gap, in a read from the
    // start.
    assert_eq!(got.last().map(String::as_str), Some("after"));
    assert!(got.iter().any(|line| line == "before") && got.iter().any(|line| line == "between"), "{got:?}");
}

/// A model reads the end of the output first: what is missing in the middle is named at its place.
#[test]
fn the_end_of_a_read_names_the_gap_in_it() {
    let world = World::with_server().with_coverage("sessions");
    let pane = answering(&world, &["new-session", "-s", "work"]);
    say(&world, &pane, "before");
    let first = world.tmux(&["list-clients", "-t", "work", "-F", "#{client_pid}"]);
    signal(first.lines().next().unwrap().parse().unwrap(), Signal::KILL);
    eventually("muxtap is back", || {
        let now = world.tmux(&["list-clients", "-t", "work", "-F", "#{client_pid}"]);
        !now.is_empty() && now != first
    });
    say(&world, &pane, "after");
    let read = Client::new(&world).call("read_since", &serde_json::json!({"target": pane, "since": "start"}));
    assert_eq!(read["gap"]["reason"], "reconnected", "{read}");
    let text = read["text"].as_str().unwrap();
    let (earlier, later) = text.split_once("[output is missing here: reconnected]\n").unwrap();
    assert!(earlier.contains("got before\n") && later.contains("got after\n"), "{text}");
}

/// A failed attach must not be retried without a pause, and the session is followed as soon as an
/// attach succeeds.
#[test]
fn a_failed_attach_is_retried_with_pauses() {
    let mut world = World::with_server().with_coverage("sessions");
    let (program, tries, broken) = (world.path("tmux"), world.path("tries"), world.path("broken"));
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *attach-sessio*) date +%s%3N >> {tries}; [ -e {broken} ] && exit 1;; esac\nexec {} \"$@\"\n",
        crate::common::tmux_program(),
        tries = tries.display(),
        broken = broken.display(),
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    world.set("MUXTAP_TMUX", program.display().to_string());
    world.set("MUXTAP_OWN_TMUX", "false");
    assert_eq!(world.sessions(), ["main"]);
    std::fs::write(&tries, "").unwrap();
    std::fs::write(&broken, "").unwrap();
    let pane = world.session("work");
    let times =
        || -> Vec<u64> { std::fs::read_to_string(&tries).unwrap().lines().map(|line| line.parse().unwrap()).collect() };
    eventually("it is tried several times", || times().len() >= 6);
    let times = times();
    // Each pause is twice the previous one, less at most half.
    assert!(times[5] - times[0] >= (25 + 50 + 100 + 200 + 400) / 2, "{times:?}");
    assert_eq!(world.metric("muxtap_control_clients"), 1);
    std::fs::remove_file(&broken).unwrap();
    eventually("the session is followed", || world.metric("muxtap_control_clients") == 2);
    world.tmux(&["send-keys", "-t", &pane, "echo fo''llowed", "Enter"]);
    world.await_output(&pane, "^followed");
}

#[test]
fn a_detach_during_output_is_reported_to_readers_as_a_gap() {
    let world = World::with_server();
    let pane = answering(&world, &["new-session", "-s", "work"]);
    say(&world, &pane, "before");
    let cursor = world.json(&["read", "-t", &pane, "--since", "start"])["cursor"].as_str().unwrap().to_owned();
    // All in one command line: the reply comes while no client is attached, or just after.
    world.tmux(&["detach-client", "-s", "work", ";", "send-keys", "-t", &pane, "meanwhile", "Enter"]);
    world.await_output(&pane, "^got meanwhile");
    let answer = world.json(&["read", "-t", &pane, "--since", &cursor]);
    assert_eq!(answer["gap"]["reason"], "reconnected", "{answer}");
    assert!(answer["text"].as_str().unwrap().contains("got meanwhile"), "{answer}");
}

#[test]
fn renamed_sessions_and_windows_are_found_only_by_their_new_names() {
    let world = World::with_server();
    let pane = answering(&world, &["new-session", "-s", "old", "-n", "win"]);
    world.tmux(&["rename-session", "-t", "old", "new"]);
    world.tmux(&["rename-window", "-t", &pane, "door"]);
    say(&world, "new:door", "hello");
    world.error("NOT_FOUND", &["read", "-t", "old"]);
    world.error("NOT_FOUND", &["read", "-t", "new:win"]);
    // A name with this prefix is a different name.
    world.error("NOT_FOUND", &["read", "-t", "ne"]);
    world.ok(&["rename-session", "-t", "new", "newest"]);
    assert_eq!(world.tmux(&["display-message", "-p", "-t", &pane, "#S"]), "newest");
}

#[test]
fn moved_panes_continue_without_a_gap() {
    let world = World::with_server().with_coverage("sessions");
    let pane = answering(&world, &["new-session", "-s", "one"]);
    let other = answering(&world, &["new-session", "-s", "two"]);
    let third = answering(&world, &["split-window", "-t", &other]);
    say(&world, &pane, "0");
    let cursor_of = |pane| world.json(&["read", "-t", pane, "--since", "start"])["cursor"].as_str().unwrap().to_owned();
    let (cursor, third_cursor) = (cursor_of(&pane), cursor_of(&third));
    let moves: [&[&str]; 6] = [
        &["move-window", "-d", "-s", "one:0", "-t", "main:9"],
        &["swap-pane", "-d", "-s", &pane, "-t", &third],
        &["break-pane", "-d", "-s", &pane],
        &["join-pane", "-d", "-s", &pane, "-t", &other],
        &["swap-window", "-d", "-s", &other, "-t", &third],
        &["move-pane", "-d", "-s", &pane, "-t", "main:0"],
    ];
    for (step, args) in moves.iter().enumerate() {
        world.tmux(args);
        say(&world, &pane, &format!("{}", step + 1));
        say(&world, &third, &format!("{}", step + 1));
    }
    assert_eq!(answers(&world, &pane), ["0", "1", "2", "3", "4", "5", "6"]);
    assert_eq!(answers(&world, &third), ["1", "2", "3", "4", "5", "6"]);
    for (pane, cursor) in [(&pane, &cursor), (&third, &third_cursor)] {
        let answer = world.json(&["read", "-t", pane, "--since", cursor]);
        assert_eq!(answer["gap"], serde_json::Value::Null, "{answer}");
        assert_eq!(
            answer["text"].as_str().unwrap().matches("got ").count(),
            6,
            "one read goes over all of it: {answer}"
        );
    }
}

/// tmux keeps none of a pane's output before it flows again to the client to which the pane has
/// come back (N60).
#[test]
fn a_pane_that_prints_while_it_moves_back_continues_without_a_gap() {
    let world = World::with_server();
    let pane = answering(&world, &["new-window", "-t", "main"]);
    let other = answering(&world, &["new-session", "-s", "two"]);
    let cursor = world.json(&["read", "-t", &pane, "--since", "start"])["cursor"].as_str().unwrap().to_owned();
    let swap = || world.tmux(&["swap-window", "-d", "-s", &pane, "-t", &other]);
    swap();
    say(&world, &pane, "1");
    say(&world, &other, "1");
    // The pane comes back and prints while muxtap is stopped.
    let daemon = world.daemon_pid().unwrap();
    let stopped = Stopped::new(daemon);
    swap();
    for line in ["2", "3"] {
        type_line(&world, &pane, line);
        eventually("it has answered", || {
            world.tmux(&["capture-pane", "-p", "-t", &pane]).contains(&format!("got {line}"))
        });
    }
    drop(stopped);
    say(&world, &pane, "4");
    let answer = world.json(&["read", "-t", &pane, "--since", &cursor]);
    assert_eq!(answer["gap"], serde_json::Value::Null, "{answer}");
    let lines = answer["text"].as_str().unwrap().lines().filter_map(|line| line.strip_prefix("got "));
    assert_eq!(lines.collect::<Vec<_>>(), ["1", "2", "3", "4"], "one read goes over all of it: {answer}");
}

/// A server with `exit-empty off` continues without a session, the only thing to which a client
/// could attach.
#[test]
fn a_server_without_sessions_is_used_once_its_first_session_appears() {
    let world = World::with_server();
    world.tmux(&["set-option", "-g", "exit-empty", "off"]);
    let pane = answering(&world, &["new-session", "-s", "work"]);
    say(&world, &pane, "before");
    let mut tail = world.spawn(&["tail", "-f", "-n", "0", "--color", "never", "again:*"]);
    let wait = world.spawn(&["--json", "wait-for", "-t", &pane, "-p", "never", "-T", "40"]);
    eventually("the wait is open", || world.json(&["status"])["waits"] == 1);
    eventually("the tail has begun", || world.metric("muxtap_streams") == 1);
    world.tmux(&["kill-session", "-t", "main", ";", "kill-session", "-t", "work"]);
    let ended = wait.finish();
    assert_eq!((ended.status, &ended.json()["outcome"]), (3, &"ended".into()), "{ended:?}");
    assert_eq!(world.muxtap(&["wait-for", "-t", &pane, "--exit", "-T", "10"]).status, 0, "its pane is an ended one");

    let refused = world.muxtap(&["--json", "list-sessions"]);
    assert_eq!((refused.status, &refused.error()["code"]), (1, &"TMUX_UNAVAILABLE".into()), "{refused:?}");
    let message = refused.error()["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("no session is on the tmux server"), "{message}");
    // Earlier output is still readable.
    assert!(world.read_all(&pane).contains("got before"));

    // The new session is noticed by an event: no process is started meanwhile, and it is followed
    // without a request.
    let spawns = || world.metric("muxtap_process_spawns_total");
    let before = spawns();
    for _ in 0..20 {
        world.json(&["status"]);
    }
    assert!(spawns() <= before + 1, "{before}, then {}", spawns());
    world.tmux(&["new-session", "-d", "-s", "again", "while sleep 0.1; do echo tick; done"]);
    tail.line_where("the new session's pane", |line| line.ends_with("tick"));

    world.tmux(&["kill-session", "-t", "again"]);
    eventually("it is empty again", || world.muxtap(&["list-sessions"]).status == 1);
    let made = world.ok(&["new-session", "-s", "mine"]);
    assert_eq!((world.sessions(), world.panes()), (vec!["mine".to_owned()], vec![made]));
}

#[test]
fn a_restarted_server_gives_old_cursors_a_gap() {
    for signal in [None, Some(Signal::KILL)] {
        let world = World::new();
        let pane = answering(&world, &["new-session", "-s", "main"]);
        say(&world, &pane, "before");
        let cursor = world.json(&["read", "-t", &pane, "--since", "start"])["cursor"].as_str().unwrap().to_owned();
        let wait = world.spawn(&["--json", "wait-for", "-t", &pane, "-p", "never", "-T", "40"]);
        eventually("the wait is open", || world.json(&["status"])["waits"] == 1);
        let server = world.server_pid();
        match signal {
            None => drop(world.tmux(&["kill-server"])),
            Some(signal) => crate::common::signal(server, signal),
        }
        let ended = wait.finish();
        assert_eq!((ended.status, &ended.json()["outcome"]), (3, &"ended".into()), "{ended:?}");
        eventually("the server has ended", || !is_alive(server));
        let again = answering(&world, &["new-session", "-s", "main"]);
        assert_eq!(again, pane, "a new server counts from the start");
        say(&world, &pane, "after");
        let answer = world.json(&["read", "-t", &pane, "--since", &cursor]);
        assert_eq!(answer["gap"]["reason"], "server-restarted", "{answer}");
        let text = answer["text"].as_str().unwrap();
        assert!(text.contains("got after") && !text.contains("got before"), "{answer}");
        // Reported once: the new cursor is of this server.
        let next = world.json(&["read", "-t", &pane, "--since", answer["cursor"].as_str().unwrap()]);
        assert_eq!((&next["gap"], &next["text"]), (&serde_json::Value::Null, &"".into()), "{next}");
    }
}

/// A server that ended soon after it was reached is not a failed link: the next server on its
/// socket is asked immediately. Earlier this took a pause that doubled with each server, up to ten
/// seconds.
#[test]
fn servers_that_are_started_anew_in_a_row_are_asked_without_a_pause() {
    let mut world = World::new();
    world.set("MUXTAP_LOG", "muxtap=debug");
    for round in 0..6 {
        let name = format!("s{round}");
        world.session(&name);
        assert!(world.ok(&["list-sessions"]).contains(&name), "round {round}");
        let server = world.server_pid();
        world.tmux(&["kill-server"]);
        eventually("the server has ended", || !is_alive(server));
    }
    let log = std::fs::read_to_string(world.daemon_socket().with_extension("sock.log")).unwrap();
    assert!(log.contains("DEBUG muxtap_tmux"), "it is a log of all: {log}");
    assert!(!log.contains("paused before the next attempt"), "{log}");
}

#[test]
fn a_restarted_daemon_gives_old_cursors_a_gap() {
    for signal in [Signal::TERM, Signal::KILL] {
        let world = World::with_server();
        let pane = answering(&world, &["new-session", "-s", "work"]);
        say(&world, &pane, "before");
        let cursor = world.json(&["read", "-t", &pane, "--since", "start"])["cursor"].as_str().unwrap().to_owned();
        world.kill_daemon(signal);
        let answer = world.json(&["read", "-t", &pane, "--since", &cursor]);
        assert_eq!(answer["gap"]["reason"], "muxtap-restarted", "{answer}");
        assert!(answer["text"].as_str().unwrap().contains("got before"), "what tmux still has: {answer}");
        say(&world, &pane, "after");
    }
}

#[test]
fn removing_the_servers_socket_changes_nothing() {
    let world = World::with_server();
    let pane = answering(&world, &["new-session", "-s", "work"]);
    let server = world.server_pid();
    std::fs::remove_file(world.socket()).unwrap();
    world.ok(&["send-keys", "-t", &pane, "alone", "Enter"]);
    world.await_output(&pane, "^got alone");
    assert_eq!(world.sessions(), ["main", "work"]);
    // This signal makes tmux create its socket again.
    crate::common::signal(server, Signal::USR1);
    eventually("the socket is back", || world.socket().exists());
    say(&world, &pane, "back");
    assert_eq!(world.server_pid(), server);
}

#[test]
fn concurrent_commands_start_only_one_daemon() {
    let world = World::with_server();
    let started: Vec<_> = (0..12).map(|_| world.spawn(&["--json", "list-sessions"])).collect();
    for process in started {
        let answer = process.finish();
        assert_eq!(answer.status, 0, "{answer:?}");
    }
    let pid = world.daemon_pid().unwrap();
    let daemons: Vec<_> = world.processes().into_iter().filter(|(_, line)| line.contains(" serve")).collect();
    assert_eq!(daemons.iter().map(|(pid, _)| *pid).collect::<Vec<_>>(), [pid], "{daemons:?}");
    // A daemon that is started in the foreground reports the running one.
    let second = crate::common::run(world.plain_muxtap_command().args(["--json", "serve"]));
    assert_eq!((second.status, &second.error()["code"]), (1, &"CONFLICT".into()), "{second:?}");
    assert_eq!(world.daemon_pid(), Some(pid));
}

/// C6: with the connection the reply is lost, and it is unknown whether tmux carried out the
/// command. It is not sent again.
#[test]
fn a_command_that_changes_the_server_is_sent_once() {
    let world = World::with_server();
    let pane = answering(&world, &["new-session", "-s", "work"]);
    let clients = world.tmux(&["list-clients", "-F", "#{client_pid}"]);
    let asked = world.metric("muxtap_tmux_commands_total");
    let stopped = Stopped::new(world.server_pid());
    let sent = world.spawn(&["--json", "send-keys", "-t", &pane, "once", "Enter"]);
    eventually("tmux was asked", || world.metric("muxtap_tmux_commands_total") > asked);
    for client in clients.lines() {
        crate::common::signal(client.parse().unwrap(), Signal::KILL);
    }
    let answer = sent.finish();
    drop(stopped);
    assert_eq!(answer.status, 1, "{answer:?}");
    assert_eq!(answer.error()["code"], "TMUX_UNAVAILABLE", "{answer:?}");
    assert!(answer.error()["message"].as_str().unwrap().contains("not known"), "{answer:?}");
    // A command sent twice would be carried out before this one.
    say(&world, &pane, "after");
    let got = answers(&world, &pane);
    assert!(got.iter().filter(|line| *line == "once").count() <= 1, "{got:?}");
}

/// A server that reads two ends of one session's windows together dies of it (N92), and everything
/// else with it.
#[test]
fn windows_that_are_closed_at_once_leave_the_server() {
    let world = World::with_server();
    let server = world.server_pid();
    for round in 0..8 {
        world.ok(&["new-session", "-d", "-s", "many", "--", "exec cat"]);
        for _ in 1..6 {
            world.ok(&["new-window", "-t", "many", "--", "exec cat"]);
        }
        let listed = world.json(&["list-panes"]);
        let panes = listed["panes"].as_array().unwrap().iter().filter(|pane| pane["session"] == "many");
        let panes: Vec<_> = panes.map(|pane| (pane["id"].as_str().unwrap(), pane["pid"].as_u64().unwrap())).collect();
        assert_eq!(panes.len(), 6, "{listed}");
        let stopped = Stopped::new(server);
        if round % 2 == 0 {
            // Six callers, none of which waits for another.
            let path = |pane: &str| format!("/v1/panes/{}{}", pane.trim_start_matches('%'), world.query());
            let ends: Vec<_> = panes.iter().map(|(pane, _)| world.http_send("DELETE", &path(pane), None)).collect();
            drop(stopped);
            for end in ends {
                assert_eq!(Http::read(end).status, 200);
            }
        } else {
            // Their programs end together, and muxtap closes the panes it created.
            for (_, pid) in &panes {
                crate::common::signal(u32::try_from(*pid).unwrap(), Signal::KILL);
            }
            drop(stopped);
        }
        eventually("the session has ended", || world.sessions() == ["main"]);
        assert_eq!(world.server_pid(), server, "round {round}");
    }
}

/// A server has a control client of muxtap's from the first use of a pane until a while after the
/// last one.
#[test]
fn a_session_is_followed_while_it_is_used_and_for_a_while_after() {
    let mut world = World::with_server();
    world.set("MUXTAP_FOLLOW_FOR", "1");
    let clients = || world.tmux(&["list-clients", "-F", "#{session_name}"]);
    assert_eq!(world.sessions(), ["main"]);
    world.ok(&["capture-pane", "-t", "main"]);
    assert_eq!(clients(), "", "a list and a first look need none");
    world.ok(&["read", "-t", "main"]);
    assert_eq!(clients(), "main");
    eventually("it has left", || clients().is_empty());
    // An open wait counts as a use.
    let wait = world.spawn(&["wait-for", "-t", "main", "-p", "la[t]er", "-T", "40"]);
    eventually("it waits", || world.metric("muxtap_waits_active") == 1);
    world.tmux(&["run-shell", "-d", "2.5", ":"]);
    assert_eq!(clients(), "main");
    world.tmux(&["send-keys", "-t", "main", "echo la''ter", "Enter"]);
    assert_eq!(wait.finish().status, 0);
    eventually("it has left", || clients().is_empty());
    // So does a subscription to a whole server.
    let events = world.spawn(&["events"]);
    eventually("all is followed", || clients() == "main");
    world.tmux(&["run-shell", "-d", "2.5", ":"]);
    assert_eq!(clients(), "main");
    events.kill();
    eventually("it has left", || clients().is_empty());
}

/// A session stays in use for a while after its used pane has closed: the next use finds the client
/// attached.
#[test]
fn a_pane_that_closes_takes_no_client_along() {
    let world = World::with_server();
    let clients = || world.tmux(&["list-clients", "-F", "#{client_pid} #{session_name}"]);
    world.ok(&["read", "-t", "main"]);
    let mut known = String::new();
    for round in 0..4 {
        let pane = world.ok(&["new-window", "-t", "main", "--", "exit 3"]);
        eventually("it is closed", || !world.panes().contains(&pane));
        if round == 0 {
            known = clients();
            assert!(known.ends_with(" main"), "{known}");
        }
        assert_eq!(clients(), known, "round {round}");
    }
    let other = world.session("other");
    let pane = world.ok(&["new-window", "-t", "other", "--", "exit 3"]);
    eventually("it is closed", || !world.panes().contains(&pane));
    let there = clients();
    assert!(there.lines().count() == 2 && there.contains(" other"), "{there}");
    world.ok(&["read", "-t", &other]);
    assert_eq!(clients(), there);
}
