//! The cost of waiting while nothing happens.

use std::time::Duration;

use serde_json::json;

use super::{
    control::Control,
    process,
    stage::{Daemon, Tmux},
    table::{Goal, figure, part},
};

const PANES: usize = 200;
const QUIET: Duration = Duration::from_secs(10);

pub fn run() {
    waited_for();
    followed();
}

/// A thousand panes that are not in use.
fn followed() {
    const MANY: usize = 1000;
    part("1000 panes that are followed, quiet for 10 s");
    let tmux = Tmux::new("exec cat");
    tmux.windows(MANY - 1);
    let daemon = Daemon::new(&[]);
    let http = daemon.follow(&tmux, MANY as u64);
    let bare = Bare::new(MANY);
    std::thread::sleep(Duration::from_secs(3));
    let server = tmux.pid();
    let (ours, theirs) = (process::cpu(server), bare.cpu());
    std::thread::sleep(QUIET);
    bare.compare(process::cpu(server).saturating_sub(ours), theirs);
    drop(http);
}

/// The same number of panes on another server, with only a control client attached.
struct Bare {
    tmux: Tmux,
    _control: Control,
}

impl Bare {
    fn new(panes: usize) -> Self {
        let tmux = Tmux::new("exec cat");
        tmux.windows(panes - 1);
        let control = Control::attach(&tmux);
        Self { tmux, _control: control }
    }

    /// Returns the server's CPU time so far.
    fn cpu(&self) -> Duration {
        process::cpu(self.tmux.pid())
    }

    /// Prints the CPU time of muxtap's server beside that of this one since then.
    fn compare(&self, followed: Duration, before: Duration) {
        let bare = self.cpu().saturating_sub(before).as_secs_f64() * 1000.0;
        figure("the tmux server's CPU, with a bare control client", bare, "ms", Goal::None);
        // Two calls of `tmux` ask for the server's process.
        figure("the same, followed by muxtap", followed.as_secs_f64() * 1000.0, "ms", Goal::AtMost(bare + 5.0));
    }
}

fn waited_for() {
    part("200 panes with a wait each, quiet for 10 s");
    let tmux = Tmux::new("exec cat");
    tmux.windows(PANES - 1);
    let daemon = Daemon::new(&[]);
    let mut http = daemon.follow(&tmux, PANES as u64);
    let bare = Bare::new(PANES);
    let listed = http.get("/v1/panes");
    let waits: Vec<_> = listed["panes"]
        .as_array()
        .expect("panes")
        .iter()
        .map(|pane| {
            let mut connection = daemon.http(&tmux);
            let wait = json!({"panes": [pane["id"]], "patterns": ["never (printed|here)"], "timeout_ms": 600_000});
            connection.send("POST", "/v1/waits", &wait.to_string());
            connection
        })
        .collect();
    while http.metric("muxtap_waits_active") < PANES as f64 {
        std::thread::sleep(Duration::from_millis(5));
    }
    // The work after the attachment is finished by then.
    std::thread::sleep(Duration::from_secs(3));
    let server = tmux.pid();
    let before = counts(&mut http);
    let (daemon_cpu, server_cpu, bare_cpu) = (process::cpu(daemon.pid()), process::cpu(server), bare.cpu());
    std::thread::sleep(QUIET);
    let (daemon_cpu, server_cpu) =
        (process::cpu(daemon.pid()).saturating_sub(daemon_cpu), process::cpu(server).saturating_sub(server_cpu));
    let after = counts(&mut http);
    let percent = |cpu: Duration| cpu.as_secs_f64() / QUIET.as_secs_f64() * 100.0;
    figure("daemon's CPU, of one core", percent(daemon_cpu), "%", Goal::AtMost(0.5));
    figure("tmux commands", after[0] - before[0], "", Goal::AtMost(0.0));
    figure("processes started", after[1] - before[1], "", Goal::AtMost(0.0));
    bare.compare(server_cpu, bare_cpu);
    drop(waits);
}

fn counts(http: &mut super::http::Http) -> [f64; 2] {
    ["muxtap_tmux_commands_total", "muxtap_process_spawns_total"].map(|name| http.metric(name))
}
