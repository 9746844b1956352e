//! Commands that look for the person's terminal, and commands that look for a session for it.

use super::scene::{Scene, Terminal, comes};
use crate::common::{Background, eventually};

/// Creates an idle person in `main`, beside a session `free`; muxtap uses `main`.
fn idle(scene: &Scene) -> (String, Terminal<'_>) {
    scene.session("free", "exec cat");
    let pane = scene.session("main", "exec cat");
    let person = scene.attach("main");
    scene.follow("main");
    (pane, person)
}

/// Starts a command that may return only after the person's answer. Returns when the server has run
/// it.
fn ask(scene: &Scene, args: &[&str]) -> Background {
    let mut command = scene.world.tmux_command(scene.world.socket());
    let asking = Background::start(command.args(["set-option", "-g", "@asks", "yes", ";"]).args(args));
    // Both are done in one step.
    eventually("it is asked", || scene.tmux(&["show-options", "-g", "-q", "-v", "@asks"]) == "yes");
    asking
}

/// Presses a key on the person's terminal. Returns its effect: an answer, or a letter in the pane.
fn press(scene: &Scene, person: &Terminal<'_>, pane: &str, key: char) -> String {
    person.send(&[&format!("{:x}", u32::from(key))]);
    let answered = || scene.tmux(&["show-options", "-g", "-q", "-v", "@answered"]) == "yes";
    eventually("the key has arrived", || answered() || scene.text(pane).contains(key));
    if answered() { "asked the person" } else { "did not ask the person" }.into()
}

pub fn message(scene: &Scene) -> String {
    let (pane, person) = idle(scene);
    scene.tmux(&["display-message", "-N", "-d", "20000", "a message to the person"]);
    person.send(&["7a"]);
    // While the message is shown, keys are dropped.
    let shown = || person.screen().contains("a message to the person");
    eventually("the message or the key has arrived", || shown() || scene.text(&pane).contains('z'));
    format!("shown to the person: {}", shown())
}

pub fn popup(scene: &Scene) -> String {
    let (pane, person) = idle(scene);
    let _asking = ask(scene, &["display-popup", "-E", "printf popped; exec cat"]);
    person.send(&["7a"]);
    let shown = || person.screen().contains("popped");
    eventually("the popup or the key has arrived", || shown() || scene.text(&pane).contains('z'));
    format!("shown to the person: {}", shown())
}

pub fn menu(scene: &Scene) -> String {
    let (pane, person) = idle(scene);
    let menu = ["display-menu", "-x", "0", "-y", "5", "Choose", "k", "set-option -g @answered yes"];
    let _asking = ask(scene, &menu);
    press(scene, &person, &pane, 'k')
}

pub fn confirm(scene: &Scene) -> String {
    let (pane, person) = idle(scene);
    let confirm = ["confirm-before", "-p", "really?", "set-option -g @answered yes"];
    let _asking = ask(scene, &confirm);
    press(scene, &person, &pane, 'y')
}

pub fn switch(scene: &Scene) -> String {
    let (_, person) = idle(scene);
    let status = scene.try_tmux(&["switch-client", "-t", "free"]).status;
    format!("{status}: {}", person.place())
}

pub fn detach(scene: &Scene) -> String {
    let (pane, person) = idle(scene);
    let status = scene.try_tmux(&["detach-client"]).status;
    // Keys of a leaving client are dropped.
    person.send(&["7a"]);
    eventually("the person is out or types", || person.is_out() || scene.text(&pane).contains('z'));
    format!("{status}: {}", person.place())
}

pub fn switch_or_attach(scene: &Scene) -> String {
    scene.session("free", "exec cat");
    scene.session("main", "exec cat");
    scene.follow("main");
    let person = scene.terminal("$T switch-client -t free || exec $T attach-session -t free");
    eventually("the script has done it", || person.session().is_some() || person.is_out());
    person.place()
}

/// A person in `b` attaches a second time without a name; muxtap uses this session.
fn attach_again(scene: &Scene, used: &str) -> String {
    for name in ["a", "b"] {
        scene.session(name, "exec cat");
    }
    let _person = scene.attach("b");
    scene.follow(used);
    let second = scene.terminal("exec $T attach-session");
    eventually("the second is attached", || second.session().is_some());
    second.place()
}

pub fn attach_by_default(scene: &Scene) -> String {
    attach_again(scene, "b")
}

pub fn attach_to_the_used(scene: &Scene) -> String {
    attach_again(scene, "a")
}

pub fn attach_afterwards(scene: &Scene) -> String {
    for name in ["a", "b", "c"] {
        scene.session(name, "exec cat");
    }
    let person = scene.attach("b");
    scene.tmux(&["detach-client", "-t", &person.tty]);
    eventually("the person is out", || person.is_out());
    scene.follow("a");
    scene.leave();
    let again = scene.terminal("exec $T attach-session");
    eventually("the person is attached", || again.session().is_some());
    again.place()
}

pub fn next_and_previous(scene: &Scene) -> String {
    for name in ["a", "b", "c"] {
        scene.session(name, "exec cat");
    }
    let person = scene.attach("a");
    scene.follow("a");
    let mut places = Vec::new();
    for way in ["-p", "-p", "-n", "-n"] {
        scene.tmux(&["switch-client", "-c", &person.tty, way]);
        let hub = |place: String| if place.contains("_muxtap") { "the person is in the hub".into() } else { place };
        places.push(hub(person.place()));
    }
    assert!(comes(|| !person.is_out()));
    places.join(", ")
}
