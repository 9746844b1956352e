//! The cost of waiting while nothing happens.

use std::time::Duration;

use serde_json::json;

use super::{
    process,
    stage::{Daemon, Tmux},
    table::{Goal, figure, part},
};

const PANES: usize = 200;
const QUIET: Duration = Duration::from_secs(10);

pub fn run() {
    part("200 panes with a wait each, quiet for 10 s");
    let tmux = Tmux::new("exec cat");
    tmux.windows(PANES - 1);
    let daemon = Daemon::new(&[]);
    let mut http = daemon.follow(&tmux, PANES as u64);
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
    // What follows from the attach (names and titles that tmux pushes in its first second) is over by then.
    std::thread::sleep(Duration::from_secs(3));
    let server = tmux.pid();
    let before = counts(&mut http);
    let (daemon_cpu, server_cpu) = (process::cpu(daemon.pid()), process::cpu(server));
    std::thread::sleep(QUIET);
    let (daemon_cpu, server_cpu) =
        (process::cpu(daemon.pid()).saturating_sub(daemon_cpu), process::cpu(server).saturating_sub(server_cpu));
    let after = counts(&mut http);
    let percent = |cpu: Duration| cpu.as_secs_f64() / QUIET.as_secs_f64() * 100.0;
    figure("daemon's CPU, of one core", percent(daemon_cpu), "%", Goal::AtMost(0.5));
    figure("tmux commands", after[0] - before[0], "", Goal::AtMost(0.0));
    figure("processes started", after[1] - before[1], "", Goal::AtMost(0.0));
    figure("the tmux server's CPU (it checks subscriptions each second)", percent(server_cpu), "%", Goal::None);
    drop(waits);
}

fn counts(http: &mut super::http::Http) -> [f64; 2] {
    ["muxtap_tmux_commands_total", "muxtap_process_spawns_total"].map(|name| http.metric(name))
}
