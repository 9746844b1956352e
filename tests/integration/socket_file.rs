//! The file of a tmux socket: removed under a followed server, and given to another one.

use std::fs;

use rustix::process::Signal;

use crate::common::{ANSWERS, World, eventually, is_alive, signal};

fn trouble(world: &World) -> Option<String> {
    world.json(&["status"])["servers"][0]["error"].as_str().map(str::to_owned)
}

fn say(world: &World, pane: &str, line: &str) {
    world.ok(&["send-keys", "-t", pane, line, "Enter"]);
    world.await_output(pane, &format!("^got {line}$"));
}

/// Returns muxtap's control clients, as processes: tmux cannot list them.
fn clients(world: &World) -> Vec<u32> {
    let clients =
        world.processes().into_iter().filter(|(_, line)| line.contains("tmux") && line.contains("attach-sessio"));
    clients.map(|(pid, _)| pid).collect()
}

#[test]
fn a_server_whose_socket_is_gone_still_works_and_is_reported() {
    let world = World::with_server();
    let pane = world.tmux(&["new-window", "-d", "-P", "-F", "#{pane_id}", ANSWERS]);
    world.await_output(&pane, "^ready");
    let server = world.server_pid();
    assert_eq!(trouble(&world), None);
    // Each time the server has another file.
    for round in ["one", "two"] {
        fs::remove_file(world.socket()).unwrap();
        say(&world, &pane, &format!("{round}-over-the-connection"));
        // Needs its own client.
        let made = world.ok(&["new-session", "-s", round, ANSWERS]);
        world.await_output(&made, "^ready");
        say(&world, &made, "new");
        assert_eq!(world.ok(&["run", "-t", "main:0", "echo ran"]), "ran");
        world.ok(&["rename-session", "-t", round, &format!("{round}-renamed")]);
        world.ok(&["kill-session", "-t", &format!("{round}-renamed")]);
        assert_eq!(world.sessions(), ["main"]);

        let told = trouble(&world).expect("the status says so");
        assert!(told.contains(&format!("kill -USR1 {server}")), "{told}");
        let doctor = world.muxtap(&["doctor"]);
        assert_eq!(doctor.status, 1, "{doctor:?}");
        assert!(doctor.text().contains(&format!("kill -USR1 {server}")), "{}", doctor.text());

        // A lost connection is restored. A read-only request is repeated when its connection is lost; input
        // is not, so it waits for the new clients.
        let lost = clients(&world);
        for client in &lost {
            signal(*client, Signal::KILL);
        }
        world.panes();
        eventually("each client is replaced", || {
            let now = clients(&world);
            now.len() == lost.len() && !now.iter().any(|client| lost.contains(client))
        });
        say(&world, &pane, &format!("{round}-over-another-connection"));
        assert!(!world.socket().exists(), "nothing of this made the file");

        signal(server, Signal::USR1);
        eventually("tmux has made its socket again", || world.socket().exists());
        eventually("the status is fine", || trouble(&world).is_none());
        assert_eq!(world.server_pid(), server);
        say(&world, &pane, &format!("{round}-back"));
    }
    world.session("plain");
    world.ok(&["read", "-t", "plain"]);
    eventually("it is followed", || world.metric("muxtap_control_clients") == 2);
}

#[test]
fn a_new_server_on_a_live_servers_path_is_a_different_server() {
    for renamed in [false, true] {
        let world = World::with_server();
        let old = world.tmux(&["new-window", "-d", "-P", "-F", "#{pane_id}", ANSWERS]);
        world.await_output(&old, "^ready");
        say(&world, &old, "old");
        let server = world.server_pid();
        let cursor = world.json(&["read", "-t", &old, "--since", "start"])["cursor"].as_str().unwrap().to_owned();
        let wait = world.spawn(&["--json", "wait-for", "-t", &old, "-p", "never", "-T", "50"]);
        let tail = world.spawn(&["tail", "-f", "-n", "0", "-t", &old]);
        eventually("the wait is open", || world.json(&["status"])["waits"] == 1);
        eventually("tail is there", || world.metric("muxtap_streams") == 1);

        // Without any request: the change is noticed by itself.
        let place = if renamed { world.path("other") } else { world.socket().to_owned() };
        if !renamed {
            fs::remove_file(world.socket()).unwrap();
        }
        world.tmux_at(&place, &["new-session", "-d", "-s", "fresh", "-x", "80", "-y", "24"]);
        let new = world.tmux_at(&place, &["new-window", "-d", "-P", "-F", "#{pane_id}", ANSWERS]);
        if renamed {
            fs::rename(&place, world.socket()).unwrap();
        }
        assert_eq!(new, old, "both have a pane of this id");
        let ended = wait.finish();
        assert_eq!((ended.status, &ended.json()["outcome"]), (3, &"ended".into()), "{ended:?}");
        assert_eq!(tail.finish().status, 0);

        assert_eq!(world.sessions(), ["fresh"]);
        world.await_output(&new, "^ready");
        say(&world, &new, "new");
        let answer = world.json(&["read", "-t", &new, "--since", &cursor]);
        assert_eq!(answer["gap"]["reason"], "server-restarted", "{answer}");
        let text = answer["text"].as_str().unwrap();
        assert!(text.contains("got new") && !text.contains("got old"), "{answer}");
        assert_eq!(trouble(&world), None);
        // The other server runs on, and muxtap has left it.
        assert!(is_alive(server) && world.server_pid() != server);
        eventually("a client of the new server's session only", || clients(&world).len() == 1);
        signal(server, Signal::KILL);
        eventually("it has ended", || !is_alive(server));
    }
}
