//! Focus, alerts, and hooks.

use super::scene::{HEARS_OF_FOCUS, PRINTS, Scene, Terminal};

const CLIENT_HOOKS: [&str; 3] = ["client-attached", "client-detached", "client-session-changed"];
const STRUCTURE_HOOKS: [&str; 4] = ["session-created", "session-closed", "window-linked", "window-unlinked"];

pub fn focus(scene: &Scene) -> String {
    let pane = scene.session("main", HEARS_OF_FOCUS);
    scene.tmux(&["set-option", "-s", "focus-events", "on"]);
    let person = scene.attach("main");
    // Counting starts at `c`.
    person.send(&["63"]);
    scene.await_text(&pane, "c");
    scene.follow("main");
    // tmux queues keys, but not the focus: the key arrives before the next change of the focus is
    // sent.
    for (focus, key, letter) in [("4f", "66", "f"), ("49", "62", "b")] {
        person.send(&["1b", "5b", focus]);
        person.send(&[key]);
        scene.await_text(&pane, letter);
    }
    scene.text(&pane).split_once('c').unwrap().1.to_owned()
}

pub fn focus_of_nobody(scene: &Scene) -> String {
    scene.session("main", HEARS_OF_FOCUS);
    scene.tmux(&["set-option", "-s", "focus-events", "on"]);
    // Its own focus state dates from when the option was set.
    let pane = scene.session("other", HEARS_OF_FOCUS);
    scene.follow("other");
    scene.tmux(&["send-keys", "-t", &pane, "x"]);
    scene.await_text(&pane, "x");
    scene.leave();
    scene.tmux(&["send-keys", "-t", &pane, "z"]);
    scene.await_text(&pane, "z");
    scene.text(&pane)
}

/// Creates a person in `main`, and a session `away` with two windows, the first of which muxtap
/// uses.
fn away(scene: &Scene) -> ([String; 2], Terminal<'_>) {
    scene.session("main", "exec cat");
    let panes = [scene.session("away", PRINTS), scene.window("away", "two", PRINTS)];
    (panes, scene.attach("main"))
}

fn alerts(scene: &Scene, flag: &str, hook: &str) -> String {
    let flags = scene.tmux(&["list-windows", "-t", "away", "-F", &format!("#{{window_name}} #{{{flag}}}")]);
    format!("{}; {}", flags.replace('\n', ", "), scene.runs(&[hook]))
}

pub fn bell(scene: &Scene) -> String {
    let (panes, _person) = away(scene);
    scene.count("alert-bell");
    scene.follow("away");
    for pane in &panes {
        scene.print(pane, "\\a rang");
    }
    alerts(scene, "window_bell_flag", "alert-bell")
}

pub fn activity(scene: &Scene) -> String {
    let (panes, _person) = away(scene);
    scene.count("alert-activity");
    scene.follow("away");
    for (window, pane) in ["away:one", "away:two"].iter().zip(&panes) {
        scene.tmux(&["set-option", "-w", "-t", window, "monitor-activity", "on"]);
        scene.print(pane, "printed");
    }
    alerts(scene, "window_activity_flag", "alert-activity")
}

pub fn silence(scene: &Scene) -> String {
    let (panes, _person) = away(scene);
    scene.count("alert-silence");
    scene.follow("away");
    for (window, pane) in ["away:one", "away:two"].iter().zip(&panes) {
        scene.tmux(&["set-option", "-w", "-t", window, "monitor-silence", "1"]);
        scene.print(pane, "printed");
    }
    // By the server's own clock.
    scene.tmux(&["run-shell", "-d", "1.5", ":"]);
    alerts(scene, "window_silence_flag", "alert-silence")
}

fn attached_counts(scene: &Scene) -> String {
    let counts = scene.tmux(&["list-sessions", "-F", "#{session_name} #{session_attached}"]);
    counts.lines().filter(|line| !line.starts_with("_muxtap")).collect::<Vec<_>>().join(", ")
}

pub fn attached(scene: &Scene) -> String {
    let (_, _person) = away(scene);
    scene.follow("away");
    attached_counts(scene)
}

pub fn attached_afterwards(scene: &Scene) -> String {
    let (_, _person) = away(scene);
    scene.follow("away");
    scene.leave();
    attached_counts(scene)
}

pub fn client_hooks(scene: &Scene) -> String {
    let (_, _person) = away(scene);
    for hook in CLIENT_HOOKS {
        scene.count(hook);
    }
    scene.follow("away");
    scene.leave();
    scene.runs(&CLIENT_HOOKS)
}

/// No client's own session prevents these from running: no session exists when they run.
pub fn later_client_hooks(scene: &Scene) -> String {
    let hooks = ["client-created", "client-closed"];
    let (_, _person) = away(scene);
    if scene.tmux(&["show-hooks", "-g"]).contains(hooks[0]) {
        for hook in hooks {
            scene.count(hook);
        }
    }
    scene.follow("away");
    scene.leave();
    scene.runs(&hooks)
}

pub fn structure_hooks(scene: &Scene) -> String {
    let (_, _person) = away(scene);
    for hook in STRUCTURE_HOOKS {
        scene.count(hook);
    }
    scene.follow("away");
    scene.leave();
    scene.session("brief", PRINTS);
    scene.tmux(&["kill-session", "-t", "brief"]);
    scene.runs(&STRUCTURE_HOOKS)
}

pub fn structure_hooks_and_client_hooks(scene: &Scene) -> String {
    scene.session("first", "exec cat");
    for hook in CLIENT_HOOKS {
        scene.tmux(&["set-hook", "-g", hook, "set-option -g -a @any x"]);
    }
    structure_hooks(scene)
}

pub fn hook_that_detaches_others(scene: &Scene) -> String {
    let (_, person) = away(scene);
    scene.tmux(&["set-hook", "-g", "client-attached", "detach-client -a"]);
    scene.follow_unless("away", || person.is_out());
    scene.leave();
    format!("{}; {}", person.place(), scene.sessions())
}

pub fn hook_that_kills_unattached(scene: &Scene) -> String {
    let (_, person) = away(scene);
    scene.tmux(&["set-hook", "-g", "client-detached", "if-shell -F '#{==:#{session_attached},0}' kill-session"]);
    scene.follow_unless("away", || !scene.sessions().contains("away"));
    scene.leave();
    format!("{}; {}", person.place(), scene.sessions())
}

pub fn hook_that_kills_others(scene: &Scene) -> String {
    let (_, person) = away(scene);
    scene.session("third", "exec cat");
    let kill = "if-shell -F '#{!=:#{session_name},third}' 'kill-session -t third'";
    scene.tmux(&["set-hook", "-g", "client-session-changed", kill]);
    scene.follow_unless("away", || !scene.sessions().contains("third"));
    scene.leave();
    format!("{}; {}", person.place(), scene.sessions())
}
