//! Completion (TAB): `muxtap __complete`, as the shells' scripts call it.

use std::{
    process::{Command, Stdio},
    time::Instant,
};

use super::{
    stage::{Daemon, Tmux},
    table::{Goal, figure, part},
    times::Times,
};

const PANES: u64 = 200;
const SAMPLES: usize = 200;

pub fn run() {
    part("completion: the process that a shell starts at TAB, 200 panes");
    let tmux = Tmux::new("exec cat");
    tmux.windows(PANES as usize - 1);
    let daemon = Daemon::new(&[]);
    daemon.follow(&tmux, PANES);
    // A copy, as installed: see `capture`.
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("muxtap");
    std::fs::copy(env!("CARGO_BIN_EXE_muxtap"), &program).expect("a copy");
    let socket = tmux.socket().to_str().expect("UTF-8");
    let line = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["__complete", "fish", "muxtap", "-S", socket]).args(words).stdin(Stdio::null());
        command
    };
    let timed = |words: &[&str], daemon_socket: &std::path::Path, lines: u64| {
        let mut times = Times::default();
        for _ in 0..SAMPLES {
            let mut command = line(words);
            command.env("MUXTAP_SOCKET", daemon_socket);
            let started = Instant::now();
            let output = command.output().expect("it runs");
            times.push(started.elapsed());
            assert!(String::from_utf8_lossy(&output.stdout).lines().count() as u64 > lines);
        }
        times
    };
    let panes = timed(&["capture-pane", "-t", ""], &daemon.socket(), 2 * PANES);
    let sessions = timed(&["kill-session", "-t", ""], &daemon.socket(), 1);
    let options = timed(&["capture-pane", "-"], &daemon.socket(), 10);
    let nobody = timed(&["capture-pane", "-t", ""], &dir.path().join("nobody"), 0);
    figure("capture-pane -t TAB, p50", panes.p50() / 1000.0, "ms", Goal::AtMost(50.0));
    figure("capture-pane -t TAB, p99", panes.p99() / 1000.0, "ms", Goal::AtMost(50.0));
    figure("kill-session -t TAB, p50", sessions.p50() / 1000.0, "ms", Goal::AtMost(50.0));
    figure("capture-pane -TAB (no daemon is asked), p50", options.p50() / 1000.0, "ms", Goal::AtMost(50.0));
    figure("capture-pane -t TAB without a daemon, p50", nobody.p50() / 1000.0, "ms", Goal::AtMost(50.0));
}
