//! A person presses Enter while `run` asks for the text at the prompt, or has typed its line and compares it with the
//! screen: nothing runs twice, and what the answer says is true afterwards, too.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use crate::common::{Answer, Background, World, eventually, is_installed};

/// A zsh whose line editor stops at a key until the test opens the gate. What is typed meanwhile waits in the terminal.
struct Gated {
    world: World,
    pane: String,
}

impl Gated {
    /// `None` if zsh is not installed. `typed`: lines that a person typed before.
    fn at(key: char, shell: &str, typed: &[&str]) -> Option<Self> {
        if !is_installed("zsh") {
            return None;
        }
        let world = World::new();
        let (gate, asked) = (world.path("gate"), world.path("asked"));
        assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
        let widget = format!(
            "gated () {{ mkdir {} ; : <{} ; bindkey {key} self-insert; zle self-insert }}; zle -N gated",
            asked.display(),
            gate.display()
        );
        let pane =
            world.tmux(&["new-session", "-d", "-s", "main", "-x", "150", "-y", "30", "-P", "-F", "#{pane_id}", shell]);
        world.ok(&["wait-for", "-t", &pane, "--prompt", "--since", "start", "-T", "30"]);
        let gated = Self { world, pane };
        for line in [&[widget.as_str()], typed, &[format!("bindkey {key} gated").as_str()]].concat() {
            gated.presses(line);
            gated.world.ok(&["wait-for", "-t", &gated.pane, "--stable", "0.3", "-T", "20"]);
        }
        Some(gated)
    }

    /// Types a line like a person, with Enter. The gate's key is bound afterwards.
    fn presses(&self, line: &str) {
        self.world.tmux(&["send-keys", "-t", &self.pane, "-l", line]);
        self.world.tmux(&["send-keys", "-t", &self.pane, "Enter"]);
    }

    /// Begins a run, and waits until it has typed the key at which the line editor stops.
    fn runs(&self, timeout: &str, command: &str) -> Background {
        let run = self.world.spawn(&["run", "-t", &self.pane, "-T", timeout, "--", command]);
        eventually("run types", || self.world.path("asked").exists());
        run
    }

    fn enter(&self) {
        self.world.tmux(&["send-keys", "-t", &self.pane, "Enter"]);
    }

    fn opens(&self) {
        // Does not wait for the shell, which may have been interrupted.
        fs::OpenOptions::new().read(true).write(true).open(self.world.path("gate")).unwrap();
    }

    fn screen(&self) -> String {
        self.world.tmux(&["capture-pane", "-p", "-t", &self.pane]).trim_end().to_owned()
    }

    /// Returns whether the line was given up because the gate opened after the 15 s for which a shell is awaited, on a
    /// full machine. Then nothing has run.
    fn is_given_up(&self, answer: &Answer, shut: Duration) -> bool {
        let is_given_up = answer.status == 1 && answer.stderr.contains("does not show what is typed; nothing was run");
        assert!(!is_given_up || shut >= AWAITED && self.count() == 0, "{shut:?} {answer:?}\n{}", self.screen());
        is_given_up
    }

    /// Returns how often the command `echo x >>ran` has run. The shell waits for a line again.
    fn count(&self) -> usize {
        self.world.ok(&["wait-for", "-t", &self.pane, "--stable", "0.5", "-T", "20"]);
        fs::read_to_string(self.world.path("work/ran")).unwrap_or_default().lines().count()
    }
}

/// How long `run` awaits a shell that does not read its keys.
const AWAITED: Duration = Duration::from_secs(15);
const RAN: &str = "echo x >>ran; echo hi";

/// What an answer says is what happened.
fn is_true(answer: &Answer, count: usize) -> bool {
    match answer.status {
        0 => count == 1,
        _ => count == 0 || !answer.stderr.contains("nothing was run"),
    }
}

#[test]
fn enter_while_the_line_is_compared_runs_the_command_once() {
    let Some(gated) = Gated::at('i', "zsh -f", &[]) else { return };
    let begun = Instant::now();
    let run = gated.runs("30", RAN);
    gated.enter();
    gated.opens();
    let shut = begun.elapsed();
    let answer = run.finish();
    if gated.is_given_up(&answer, shut) {
        return;
    }
    assert_eq!((answer.text().as_str(), answer.status), ("hi\n", 0), "{answer:?}\n{}", gated.screen());
    assert_eq!(gated.count(), 1, "{}", gated.screen());
    assert_eq!(gated.world.ok(&["run", "-t", &gated.pane, "-T", "20", "echo on"]), "on");
}

/// It may run a command for a key, or the machine may be full. Its time is that of the run.
#[test]
fn a_shell_that_does_not_read_its_keys_is_awaited() {
    let Some(gated) = Gated::at('i', "zsh -f", &[]) else { return };
    let answer = gated.runs("8", RAN).finish();
    assert_eq!(answer.status, 124, "{answer:?}");
    gated.opens();
    assert_eq!(gated.count(), 0, "{}", gated.screen());
    assert_eq!(gated.world.ok(&["run", "-t", &gated.pane, "-T", "20", "echo on"]), "on");
}

#[test]
fn enter_while_the_line_is_compared_may_end_the_shell() {
    let Some(gated) = Gated::at('i', "zsh -f", &[]) else { return };
    gated.world.tmux(&["set-option", "-g", "remain-on-exit", "on"]);
    let begun = Instant::now();
    let run = gated.runs("30", "echo x >>ran; exit 3");
    gated.enter();
    gated.opens();
    let shut = begun.elapsed();
    let answer = run.finish();
    if gated.is_given_up(&answer, shut) {
        return;
    }
    assert_eq!(answer.status, 3, "{answer:?}");
    assert_eq!(fs::read_to_string(gated.world.path("work/ran")).unwrap(), "x\n");
}

/// The line was given up, and the shell reads it and a person's Enter later.
#[test]
fn enter_after_the_line_was_given_up_runs_nothing() {
    let Some(gated) = Gated::at('i', "zsh -f", &[]) else { return };
    let run = gated.runs("60", RAN);
    gated.enter();
    let answer = run.finish();
    gated.opens();
    assert!(answer.status == 1 && is_true(&answer, gated.count()), "{answer:?}\n{}", gated.screen());
    assert_eq!(gated.world.ok(&["run", "-t", &gated.pane, "-T", "20", "echo on"]), "on");
}

/// The same where the shell reads no file: the line itself holds the command, and it runs.
#[test]
fn a_line_that_can_still_be_entered_is_not_said_to_have_run_nothing() {
    let Some(gated) = Gated::at('i', "zsh -f -r", &[]) else { return };
    let run = gated.runs("60", "mkdir ran");
    gated.enter();
    let answer = run.finish();
    gated.opens();
    gated.world.ok(&["wait-for", "-t", &gated.pane, "--stable", "0.5", "-T", "20"]);
    let has_run = gated.world.path("work/ran").exists();
    assert!(answer.status != 0 && is_true(&answer, usize::from(has_run)), "{answer:?}\n{}", gated.screen());
}

/// The same where a person enters the line while it is compared.
#[test]
fn a_line_that_holds_the_command_runs_once() {
    let Some(gated) = Gated::at('i', "zsh -f -r", &[]) else { return };
    let run = gated.runs("30", "mkdir ran");
    gated.enter();
    gated.opens();
    let answer = run.finish();
    assert_eq!((answer.text().as_str(), answer.status), ("", 0), "{answer:?}\n{}", gated.screen());
}

#[test]
fn a_caller_that_has_left_has_nothing_entered() {
    let Some(gated) = Gated::at('i', "zsh -f", &["echo before"]) else { return };
    let before = gated.screen();
    let run = gated.runs("60", RAN);
    let daemon = gated.world.daemon_pid().unwrap();
    let sockets = || {
        let open = fs::read_dir(format!("/proc/{daemon}/fd")).unwrap().flatten();
        open.filter(|fd| fs::read_link(fd.path()).is_ok_and(|at| at.to_string_lossy().starts_with("socket:"))).count()
    };
    let connected = sockets();
    run.kill();
    eventually("its connection ends", || sockets() < connected);
    gated.opens();
    assert_eq!(gated.count(), 0, "{}", gated.screen());
    eventually(&format!("the line is removed: {before}\nthen\n{}", gated.screen()), || gated.screen() == before);
    assert_eq!(gated.world.ok(&["run", "-t", &gated.pane, "-T", "20", "echo on"]), "on");
}

#[test]
fn a_run_whose_time_is_over_enters_nothing() {
    let Some(gated) = Gated::at('i', "zsh -f", &["echo before"]) else { return };
    let before = gated.screen();
    let answer = gated.runs("1", RAN).finish();
    assert_eq!(answer.status, 124, "{answer:?}");
    gated.opens();
    assert_eq!(gated.count(), 0, "{answer:?}\n{}", gated.screen());
    eventually(&format!("the line is removed: {before}\nthen\n{}", gated.screen()), || gated.screen() == before);
    assert_eq!(gated.world.ok(&["run", "-t", &gated.pane, "-T", "20", "echo on"]), "on");
}

/// Enter at any moment, in any shell.
#[test]
fn enter_at_any_moment_runs_nothing_twice() {
    for shell in ["bash --norc", "fish --no-config", "dash", "mksh"] {
        if !is_installed(shell.split(' ').next().unwrap()) {
            continue;
        }
        let world = World::new();
        let pane = world.tmux(&["new-session", "-d", "-x", "150", "-y", "30", "-P", "-F", "#{pane_id}", shell]);
        world.ok(&["wait-for", "-t", &pane, "--prompt", "--since", "start", "-T", "30"]);
        let count = || fs::read_to_string(world.path("work/ran")).unwrap_or_default().lines().count();
        for round in 0..8_u64 {
            let before = count();
            let run = world.spawn(&["run", "-t", &pane, "-T", "20", "--", RAN]);
            std::thread::sleep(std::time::Duration::from_millis(10 + round * 6));
            world.tmux(&["send-keys", "-t", &pane, "Enter"]);
            let answer = run.finish();
            assert!(is_true(&answer, count() - before), "{shell}: {answer:?}");
            world.tmux(&["send-keys", "-t", &pane, "Enter"]);
            world.ok(&["wait-for", "-t", &pane, "--prompt", "--stable", "0.2", "-T", "20"]);
            assert!(is_true(&answer, count() - before), "{shell}: {answer:?}");
        }
    }
}

/// A startup file may start another shell while `run` waits for the prompt of the first one.
#[test]
fn a_shell_that_starts_another_one_is_no_entered_line() {
    let world = World::new();
    let go = world.path("go");
    let rc = world.path("rc");
    fs::write(&rc, format!("until [ -e {} ]; do :; done\nENV= PS1='$ ' dash -i\n", go.display())).unwrap();
    let pane =
        world.tmux(&["new-session", "-d", "-P", "-F", "#{pane_id}", &format!("ENV={} exec dash -i", rc.display())]);
    eventually("the shell reads its startup file", || {
        world.tmux(&["display-message", "-p", "-t", &pane, "#{pane_current_command}"]) == "dash"
    });
    world.ok(&["list-panes"]);
    let asked = world.metric("muxtap_tmux_commands_total");
    let run = world.spawn(&["--json", "run", "-t", &pane, "-T", "20", "--", "echo right"]);
    // It looks for the prompt.
    eventually("tmux is asked", || world.metric("muxtap_tmux_commands_total") >= asked + 10);
    fs::write(&go, "").unwrap();
    let mut answer = run.finish();
    // On a full machine, the other shell may begin only after `run` has given up.
    if answer.stderr.contains("it is not visible") {
        world.ok(&["wait-for", "-t", &pane, "--screen", "^\\$ ", "-T", "30"]);
        answer = world.muxtap(&["--json", "run", "-t", &pane, "-T", "20", "--", "echo right"]);
    }
    assert_eq!(answer.json()["output"], "right\n", "{answer:?}");
}
