//! `muxtap capture-pane` beside `tmux capture-pane -p`.

use std::{
    process::{Command, Stdio},
    time::Instant,
};

use super::{
    stage::{Daemon, Tmux},
    table::{Goal, figure, part},
    times::Times,
};

const SAMPLES: usize = 200;
const OVER_HTTP: usize = 2000;

pub fn run() {
    part("capture-pane: as a process beside tmux's own, and over HTTP");
    let tmux = Tmux::new("seq 1 100; exec cat");
    let daemon = Daemon::new(&[]);
    let mut http = daemon.follow(&tmux, 1);
    // A copy, as installed. A program that the linker has just written starts a quarter slower: in
    // the page cache it consists of single pages.
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("muxtap");
    std::fs::copy(env!("CARGO_BIN_EXE_muxtap"), &program).expect("a copy");
    let (mut by_muxtap, mut by_tmux, mut by_http) = (Times::default(), Times::default(), Times::default());
    let expected = tmux.ask(&["capture-pane", "-p", "-t", "%0"]);
    for _ in 0..SAMPLES {
        let mut muxtap = Command::new(&program);
        muxtap.arg("-S").arg(tmux.socket()).args(["capture-pane", "-t", "%0"]).env("MUXTAP_SOCKET", daemon.socket());
        by_muxtap.push(timed(&mut muxtap, &expected));
        by_tmux.push(timed(tmux.command().args(["capture-pane", "-p", "-t", "%0"]), &expected));
    }
    for _ in 0..OVER_HTTP {
        let started = Instant::now();
        http.send("GET", "/v1/panes/%250/capture", "");
        let answer = http.receive();
        by_http.push(started.elapsed());
        assert!(answer.len() > expected.len());
    }
    figure(&format!("tmux capture-pane -p, p50 ({SAMPLES} each)"), by_tmux.p50(), "us", Goal::None);
    figure("muxtap capture-pane, p50", by_muxtap.p50(), "us", Goal::None);
    figure("muxtap / tmux, p50", by_muxtap.p50() / by_tmux.p50(), "x", Goal::AtMost(1.0));
    figure("capture over HTTP, keep-alive, p50", by_http.p50(), "us", Goal::AtMost(150.0));
    figure("capture over HTTP, keep-alive, p99", by_http.p99(), "us", Goal::None);
}

fn timed(command: &mut Command, expected: &str) -> std::time::Duration {
    command.stdin(Stdio::null());
    let started = Instant::now();
    let output = command.output().expect("it runs");
    let took = started.elapsed();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), expected);
    took
}
