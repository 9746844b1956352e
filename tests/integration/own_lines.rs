//! muxtap's own command lines, on servers whose users have aliases and hooks.

use std::{collections::BTreeSet, fs};

use muxtap::protocol::names::{SPELLINGS, spelled};

use crate::common::{World, eventually, run};

/// tmux commands that a version before 3.7 does not have.
const LATER: [&str; 1] = ["new-pane"];

/// Returns the commands of this tmux and their short names.
fn commands(world: &World) -> Vec<(String, String)> {
    let listed = world.tmux(&["list-commands", "-F", "#{command_list_name} #{command_list_alias}"]);
    let pair = |line: &str| {
        let (name, alias) = line.split_once(' ').unwrap_or((line, ""));
        (name.to_owned(), alias.to_owned())
    };
    listed.lines().map(pair).collect()
}

/// Sets these aliases at once: an alias for the command that sets them would affect the next one.
fn set_aliases<'a>(world: &World, aliases: impl IntoIterator<Item = (&'a str, &'a str)>) {
    let lines = aliases.into_iter().enumerate();
    let lines =
        lines.map(|(at, (name, command))| format!("set-option -s command-alias[{}] '{name}={command}'\n", at + 100));
    let file = world.path("aliases");
    fs::write(&file, lines.collect::<String>()).unwrap();
    world.tmux(&["source-file", &file.display().to_string()]);
}

/// Calls plain tmux with muxtap's spellings.
fn tmux(world: &World, args: &[&str]) -> String {
    world.tmux(&[&[spelled(args[0])], &args[1..]].concat())
}

#[test]
fn each_spelling_means_exactly_one_command_on_this_tmux() {
    let world = World::with_server();
    let commands = commands(&world);
    assert!(commands.len() > 80, "{commands:?}");
    for (name, spelling) in SPELLINGS {
        let meant: Vec<_> = commands.iter().filter(|(known, _)| known.starts_with(spelling)).collect();
        let known = commands.iter().any(|(known, _)| known == name);
        assert!(known || LATER.contains(&name), "{name}");
        assert_eq!(meant.len(), usize::from(known), "{spelling} means {meant:?}");
        assert!(commands.iter().all(|(_, alias)| alias != spelling), "{spelling} is a short name");
    }
}

#[test]
fn aliases_of_tmux_command_names_do_not_affect_muxtap() {
    let world = World::with_server();
    let names = commands(&world);
    let names: BTreeSet<_> = names.iter().flat_map(|(name, alias)| [name.as_str(), alias]).collect();
    let names = names.into_iter().filter(|name| !name.is_empty());
    // The output is not a valid reply, and some aliases are two commands, or wait forever.
    let aliased = ["display-message -p aliased", "show-options -g status ; show-options -g status", "wait-for nobody"];
    set_aliases(&world, names.enumerate().map(|(at, name)| (name, aliased[at % aliased.len()])));
    assert_eq!(world.sessions(), ["main"]);
    let made = world.ok(&["new-session", "-s", "two", "--", "cat"]);
    let window = world.ok(&["new-window", "-t", "two", "--", "cat"]);
    let split = world.ok(&["split-window", "-t", &window, "--", "cat"]);
    assert_eq!(tmux(&world, &["list-panes", "-a", "-F", "#{pane_id}"]).lines().count(), 4 + usize::from(hub(&world)));
    assert_eq!(world.panes().len(), 4);
    assert_eq!(world.ok(&["list-panes", "-t", &split, "-F", "#{pane_id}"]), split);
    assert_eq!(world.ok(&["display-message", "-p", "-t", &split, "#{pane_id}"]), split);
    world.ok(&["send-keys", "-t", &split, "typed", "Enter"]);
    world.ok(&["wait-for", "-t", &split, "-p", "^typed", "-T", "20"]);
    let text = vec!["x".repeat(100); 400].join("\n");
    let pasted = world.muxtap_with_stdin(&["send-keys", "-t", &split, "-l", "-"], text.as_bytes());
    assert_eq!(pasted.status, 0, "{pasted:?}");
    assert!(world.ok(&["capture-pane", "-t", &split, "--verify"]).contains("xxx"));
    world.ok(&["rename-window", "-t", &window, "named"]);
    world.ok(&["rename-session", "-t", "two", "renamed"]);
    world.ok(&["select-pane", "-t", &window]);
    world.ok(&["resize-pane", "-y", "5", "-t", &window]);
    world.ok(&["select-layout", "-t", &window, "even-horizontal"]);
    world.ok(&["respawn-pane", "-k", "-t", &split, "--", "echo again; exec cat"]);
    world.ok(&["wait-for", "-t", &split, "-p", "again", "-T", "20"]);
    assert_eq!(world.ok(&["run", "-t", "main", "echo hi"]), "hi");
    world.ok(&["snapshot", "save", "kept"]);
    world.ok(&["kill-pane", "-t", &split]);
    world.ok(&["kill-window", "-t", &window]);
    assert_eq!(world.panes().len(), 2);
    world.ok(&["kill-session", "-t", "renamed"]);
    world.ok(&["snapshot", "restore", "kept", "--name", "two"]);
    assert!(world.panes().len() > 1 && !world.panes().contains(&made));
    world.ok(&["stop"]);
    eventually("its clients have left", || tmux(&world, &["list-clients"]).is_empty());
    tmux(&world, &["set-option", "-s", "-u", "command-alias"]);
}

fn hub(world: &World) -> bool {
    tmux(world, &["list-sessions"]).contains("_muxtap-")
}

/// Even muxtap's spelling can be an alias.
#[test]
fn a_malformed_reply_is_an_error_that_names_the_command() {
    let other = [("list-sessions", "list-buffers"), ("list-panes", "list-buffers"), ("display-message", "list-keys")];
    for (name, alias) in other {
        let world = World::with_server();
        world.session("two");
        set_aliases(&world, [(spelled(name), alias)]);
        for list in ["list-panes", "list-sessions"] {
            let said = world.error("TMUX_UNAVAILABLE", &[list]);
            assert!(said.contains(&format!("`{}`", spelled(name))) && said.contains("command-alias"), "{said}");
        }
    }
    // Set while muxtap follows the server.
    let world = World::with_server();
    assert_eq!(world.panes().len(), 1);
    set_aliases(&world, ["list-panes", "list-sessions"].map(|name| (spelled(name), "show-options -g status")));
    let said = world.error("TMUX_UNAVAILABLE", &["list-panes"]);
    assert!(said.contains("`list-pan`"), "{said}");
    let said = world.error("TMUX_UNAVAILABLE", &["list-sessions", "-F", "#{session_name}"]);
    assert!(said.contains("`list-sessio`"), "{said}");
}

/// Commands that prompt the user and block the client for which they run.
const QUESTIONS: [&str; 4] = [
    "command-prompt -I \"#W\" \"rename-window '%%'\"",
    "confirm-before \"display-message x\"",
    "display-menu -T x one 1 \"display-message x\"",
    "wait-for nobody",
];

#[test]
fn a_hook_that_asks_its_user_holds_nothing_back() {
    let world = World::with_server();
    let pane = world.ok(&["list-panes", "-t", "main", "-F", "#{pane_id}"]);
    let waiting = world.spawn(&["wait-for", "-t", &pane, "-p", "later", "-T", "60"]);
    eventually("it waits", || world.metric("muxtap_waits_active") == 1);
    // A blocked connection is replaced by another client.
    let clients = || world.tmux(&["list-clients", "-F", "#{client_pid}"]);
    let first = clients();
    assert!(!first.is_empty());
    for question in QUESTIONS {
        for hook in ["after-new-window", "after-split-window", "after-new-session"] {
            world.tmux(&["set-hook", "-g", hook, question]);
        }
        for args in [&["new-window", "-t", "main"][..], &["split-window", "-t", &pane], &["new-session"]] {
            let made = world.ok(&[args, &["--", "echo it began; exec cat"]].concat());
            assert!(made.starts_with('%'), "{args:?} {question}: {made}");
            world.ok(&["wait-for", "-t", &made, "-p", "it began", "-T", "20"]);
            assert!(world.panes().contains(&made), "{args:?} {question}");
            let now = clients();
            let stays = |pid: &str| now.lines().any(|there| there == pid);
            assert!(first.lines().all(stays), "{args:?} {question}: {first:?} were there, and now {now:?}");
            world.ok(&["kill-pane", "-t", &made]);
        }
    }
    world.tmux(&["send-keys", "-t", &pane, "later", "Enter"]);
    assert_eq!(waiting.finish().status, 0, "the connection is the one that it was");
}

/// Hooks of notifications wait in the server's own queue, and block all its notifications.
#[test]
fn a_hook_of_an_announcement_that_asks_its_user_holds_nothing_back() {
    for hook in ["session-created", "window-linked"] {
        let world = World::with_server();
        let pane = world.ok(&["list-panes", "-t", "main", "-F", "#{pane_id}"]);
        world.tmux(&["set-hook", "-g", hook, QUESTIONS[0]]);
        for args in
            [&["new-session"][..], &["new-window", "-t", "main"], &["split-window", "-t", &pane], &["new-session"]]
        {
            let made = world.ok(&[args, &["--", "echo it began; exec cat"]].concat());
            world.ok(&["wait-for", "-t", &made, "-p", "it began", "-T", "20"]);
            world.ok(&["kill-pane", "-t", &made]);
        }
        world.tmux(&["set-hook", "-gu", hook]);
    }
}

/// As with a script's `tmux new-window`: the hook continues when it is answered, regardless of the
/// window's creator.
#[test]
fn a_hook_goes_on_when_it_is_released() {
    let world = World::with_server();
    world.tmux(&["set-hook", "-g", "after-new-window", "wait-for held ; rename-window released"]);
    let made = world.ok(&["new-window", "--select", "-t", "main"]);
    let name = || world.tmux(&["display-message", "-p", "-t", &made, "#{window_name}"]);
    assert_ne!(name(), "released");
    world.tmux(&["wait-for", "-S", "held"]);
    eventually("it is renamed", || name() == "released");
    // Clients that wait for a hook leave with the daemon.
    world.ok(&["new-window", "-t", "main"]);
    let clients = || world.processes().iter().filter(|(_, line)| line.contains("new-windo")).count();
    assert_eq!(clients(), 1, "{:?}", world.processes());
    world.ok(&["stop"]);
    eventually("none is left", || clients() == 0);
    let _ = run(world.tmux_command(world.socket()).args(["wait-for", "-S", "held"]));
}

/// Without a client such a session ends before anything can be done in it, like with plain tmux.
#[test]
fn a_session_that_ends_without_a_client_is_said_to_be_one() {
    let world = World::with_server();
    // A separate option, so that the test has a session.
    world.tmux(&[
        "set-option",
        "-t",
        "main",
        "destroy-unattached",
        "off",
        ";",
        "set-option",
        "-g",
        "destroy-unattached",
        "on",
    ]);
    let said = world.error("CONFLICT", &["new-session", "-s", "two", "--", "cat"]);
    assert!(said.contains("destroy-unattached"), "{said}");
    assert_eq!(world.sessions(), ["main"], "nothing was made");
    world.tmux(&["set-option", "-g", "destroy-unattached", "off"]);
    for hook in ["session-created", "after-new-session"] {
        world.tmux(&["set-hook", "-g", hook, "set-option destroy-unattached on"]);
        let refused = world.muxtap(&["new-session", "-s", "two", "--", "cat"]);
        assert!(refused.status == 1 && refused.stderr.contains("destroy-unattached"), "{hook}: {refused:?}");
        world.tmux(&["set-hook", "-gu", hook]);
    }
    world.ok(&["new-session", "-s", "two", "--", "cat"]);
}

/// muxtap's own session is not a user's: a server that muxtap starts survives with such an option.
#[test]
fn a_server_can_be_started_where_sessions_end_without_a_client() {
    let world = World::new();
    fs::write(world.path("home/.tmux.conf"), "set-option -g destroy-unattached on\n").unwrap();
    let said = world.error("CONFLICT", &["new-session", "-s", "one", "--", "cat"]);
    assert!(said.contains("destroy-unattached"), "{said}");
}
