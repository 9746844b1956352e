//! The cost of rules: of 1,000 on 200 panes while nothing happens, and while a pane floods.

use std::{fmt::Write as _, time::Duration};

use super::{
    http::Http,
    process::cpu_of_all_threads,
    record::flooded,
    stage::{Daemon, Fifo, Tmux},
    table::{Goal, figure, part},
    times::Times,
};

const RULES: usize = 1000;
const PANES: usize = 200;
const QUIET: Duration = Duration::from_secs(10);
const ROUNDS: usize = 7;

pub fn run() {
    idle();
    flood();
}

/// Returns the configuration of rules of all common kinds, a tenth of which select by labels.
fn rules() -> String {
    let mut text = String::new();
    for number in 0..RULES {
        let condition = match number % 5 {
            0 => format!("output = 'error {number}: .* failed'"),
            1 => format!("output = 'never (printed|here) {number}'"),
            2 => format!("screen = '^ready {number}$'"),
            3 => "command = true\nstatus = '!0'".to_owned(),
            _ => "ended = true\nstatus = 77".to_owned(),
        };
        let labels = if number % 10 == 0 { "labels = ['role=build']\n" } else { "" };
        writeln!(text, "[[when]]\nname = 'r{number}'\n{condition}\n{labels}notify = true\n").expect("a text");
    }
    text
}

/// Waits until the rules watch a server.
fn await_rules(http: &mut Http) {
    while http.get("/v1/when")["servers"].as_array().is_none_or(Vec::is_empty) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn idle() {
    part("1000 rules on 200 panes, quiet for 10 s");
    let tmux = Tmux::new("exec cat");
    tmux.windows(PANES - 1);
    let daemon = Daemon::with_config(&[], &rules());
    let mut http = daemon.follow(&tmux, PANES as u64);
    await_rules(&mut http);
    // The work after the attachment is finished by then.
    std::thread::sleep(Duration::from_secs(3));
    let (ours, server) = (cpu_of_all_threads(daemon.pid()), cpu_of_all_threads(tmux.pid()));
    std::thread::sleep(QUIET);
    let percent = |pid: u32, before: Duration| {
        cpu_of_all_threads(pid).saturating_sub(before).as_secs_f64() / QUIET.as_secs_f64() * 100.0
    };
    figure("daemon's CPU, of one core", percent(daemon.pid(), ours), "%", Goal::AtMost(1.0));
    figure("tmux's CPU, of one core", percent(tmux.pid(), server), "%", Goal::None);
}

/// A server whose pane floods, and its daemon.
struct Flooded {
    fifo: Fifo,
    daemon: Daemon,
    http: Http,
    _tmux: Tmux,
    took: Times,
    cpu: Duration,
}

impl Flooded {
    fn new(rules: &str) -> Self {
        let (tmux, fifo) = Tmux::playing("flood");
        let daemon = Daemon::with_config(&[], rules);
        let mut http = daemon.follow(&tmux, 1);
        if !rules.is_empty() {
            await_rules(&mut http);
        }
        Self { fifo, daemon, http, _tmux: tmux, took: Times::default(), cpu: Duration::ZERO }
    }

    /// Measures a flood. The first round is not counted: the ring grows.
    fn play(&mut self, round: usize) {
        let before = cpu_of_all_threads(self.daemon.pid());
        let took = flooded(&mut self.http, &self.fifo, &format!("f{round}"));
        if round > 0 {
            self.took.push(took);
            self.cpu += cpu_of_all_threads(self.daemon.pid()).saturating_sub(before);
        }
    }
}

fn flood() {
    part("60 MB from one pane, with 1000 rules and without, in turns");
    let (mut with, mut without) = (Flooded::new(&rules()), Flooded::new(""));
    for round in 0..=ROUNDS {
        without.play(round);
        with.play(round);
    }
    let seconds = |times: &Times| times.p50() / 1e6;
    figure("without rules, median", seconds(&without.took), "s", Goal::None);
    figure("with rules, median", seconds(&with.took), "s", Goal::None);
    figure("with / without", with.took.p50() / without.took.p50(), "x", Goal::AtMost(1.05));
    figure("daemon's CPU, with / without", with.cpu.as_secs_f64() / without.cpu.as_secs_f64(), "x", Goal::None);
}
