//! Terminal ids have one meaning, from every place in which they are used.

use std::process::Command;

use serde_json::Value;

use super::{failed, workspace};
use crate::common::{World, run};

/// Builds a call of `workspace` with these words before it, inside or outside a pane of a server.
fn call(world: &World, inside: Option<&str>, before: &[&str], args: &[&str]) -> Command {
    let mut command = world.plain_muxtap_command();
    if let Some(socket) = inside {
        command.env("TMUX", format!("{socket},1,0")).env("TMUX_PANE", "%0");
    }
    command.args(before).args([&["--json", "workspace"], args].concat());
    command
}

fn ok(command: &mut Command) -> Value {
    let answer = run(command);
    assert_eq!(answer.status, 0, "{answer:?}");
    answer.json()
}

/// Three servers, each with a pane `%0`: one without a name, the default one, and one with a name.
#[test]
fn an_id_names_the_same_terminal_from_everywhere() {
    let world = World::new();
    let sockets = world.path(&format!("run/tmux-{}", rustix::process::getuid().as_raw()));
    let unnamed = world.socket().display().to_string();
    let [default, work] = ["default", "work"].map(|name| sockets.join(name).display().to_string());
    let make = ["new-session", "-d", "-s", "main", "stty -echo; echo ready; exec cat"];
    for name in ["default", "work"] {
        world.also_end(sockets.join(name));
        let mut tmux = world.command(crate::common::tmux_program());
        assert_eq!(run(tmux.args(["-f/dev/null", "-L", name]).args(make)).status, 0);
    }
    world.tmux(&make);
    let listed = |inside: Option<&str>, before: &[&str]| -> Vec<String> {
        let listed = ok(&mut call(&world, inside, before, &["list-terminals"]));
        let terminals = listed["terminals"].as_array().unwrap().iter();
        terminals.map(|one| one["terminalId"].as_str().unwrap().to_owned()).collect()
    };
    let ids = [format!("{unnamed}/%0"), "%0".to_owned(), "work/%0".to_owned()];
    assert_eq!(listed(Some(&unnamed), &[]), ids[..1]);
    assert_eq!(listed(None, &["-S", &unnamed]), ids[..1]);
    assert_eq!(listed(None, &[]), ids[1..2]);
    assert_eq!(listed(Some(&default), &[]), ids[1..2]);
    assert_eq!(listed(Some(&work), &[]), ids[2..]);
    assert_eq!(listed(None, &["-L", "work"]), ids[2..]);
    // Typed text arrives at the pane whose id was shown, inside of each server and outside.
    let mut count = 0;
    for id in &ids {
        let terminal = format!("terminal:{id}");
        for inside in [None, Some(unnamed.as_str()), Some(&default), Some(&work)] {
            count += 1;
            let word = format!("word {count}.");
            ok(&mut call(&world, inside, &[], &["send-keys", "-t", &terminal, &word, "Enter"]));
            let pattern = format!("^{word}$");
            ok(&mut call(&world, inside, &[], &["wait-for", "-t", &terminal, "-p", &pattern, "-T", "40"]));
        }
    }
    let shown = |socket: &str| world.tmux_at(socket.as_ref(), &["capture-pane", "-p", "-t", "%0"]);
    for (server, first) in [(&unnamed, 1), (&default, 5), (&work, 9)] {
        let expected: Vec<_> = (first..first + 4).map(|number| format!("word {number}.")).collect();
        let text = shown(server);
        let words: Vec<_> = text.lines().filter(|line| line.starts_with("word")).collect();
        assert_eq!(words, expected, "{server}");
    }
    // A new terminal has such an id too, and is also found by its pane.
    let made = ok(&mut call(&world, Some(&unnamed), &[], &["new-tab", "--shell", "exec cat"]));
    let terminal = made["terminalId"].as_str().unwrap();
    assert!(terminal.starts_with(&format!("{unnamed}/%")), "{made}");
    let pane = format!("pane:{}", made["pane"]["id"].as_str().unwrap());
    ok(&mut call(&world, None, &["-L", "work"], &["send-keys", "-t", &pane, "by its pane", "Enter"]));
    ok(&mut call(
        &world,
        None,
        &[],
        &["wait-for", "-t", &format!("terminal:{terminal}"), "-p", "^by its pane", "-T", "40"],
    ));
    ok(&mut call(&world, Some(&default), &[], &["kill-terminal", "-t", &format!("terminal:{terminal}")]));
    // Of two words that name two servers neither is ignored.
    for (before, id) in [(["-S", unnamed.as_str()], "%0"), (["-L", "work"], ids[0].as_str())] {
        let refused = run(&mut call(&world, None, &before, &["kill-terminal", "-t", &format!("terminal:{id}")]));
        let error = failed(&refused, "INVALID_TARGET");
        assert!(error["message"].as_str().unwrap().contains("list-terminals"), "{error}");
    }
    for server in [&unnamed, &default, &work] {
        assert!(shown(server).contains("ready"), "{server}");
    }
}

/// A socket that no id can express gets no terminal, which could not be named.
#[test]
fn a_socket_that_no_id_can_name_is_refused_before_anything_is_created() {
    let world = World::with_server();
    let odd = world.path("a b");
    world.tmux_at(&odd, &["new-session", "-d", "-s", "main", "cat"]);
    let before = ["-S", odd.to_str().unwrap()];
    for args in [&["list-terminals"][..], &["new-tab"]] {
        failed(&run(&mut call(&world, None, &before, args)), "INVALID_TARGET");
    }
    assert_eq!(world.tmux_at(&odd, &["list-panes", "-a", "-F", "#{pane_id}"]), "%0");
    assert_eq!(workspace(&world, &["list-tabs"])["tabs"].as_array().unwrap().len(), 0);
}

/// A terminal of another host; another directory of sockets stands in for the host.
#[test]
fn a_terminal_id_of_another_host_contains_the_host() {
    let world = World::new();
    let far = format!("[host.far]\nvia = \"env TMUX_TMPDIR={}\"\n", world.dir().display());
    std::fs::create_dir_all(world.path("home/muxtap")).unwrap();
    std::fs::write(world.path("home/muxtap/config.toml"), far).unwrap();
    world.also_end(world.path(&format!("tmux-{}/default", rustix::process::getuid().as_raw())));
    let made = ok(&mut call(&world, None, &["-L", "far/"], &["new-tab", "--shell", crate::common::ANSWERS]));
    let id = made["terminalId"].as_str().unwrap();
    let pane = id.strip_prefix("far/default/").unwrap_or_else(|| panic!("{made}"));
    for before in [["-L", "far/default"], ["-L", "far/"]] {
        let listed = ok(&mut call(&world, None, &before, &["list-terminals"]));
        assert!(listed["terminals"].as_array().unwrap().iter().any(|one| one["terminalId"] == id), "{listed}");
    }
    for (number, name) in [id, &format!("far/{pane}")].into_iter().enumerate() {
        let (terminal, word) = (format!("terminal:{name}"), format!("word {number}."));
        ok(&mut call(&world, None, &[], &["send-keys", "-t", &terminal, &word, "Enter"]));
        let before = ["-L", "far/"];
        let wait = ["wait-for", "-t", &terminal, "-p", &format!("^got {word}$"), "-T", "40"];
        ok(&mut call(&world, None, &before, &wait));
    }
    ok(&mut call(&world, None, &[], &["kill-terminal", "-t", &format!("terminal:{id}")]));
}
