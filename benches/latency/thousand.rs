//! A thousand panes: the time until all are followed, and the cost of one.

use std::time::{Duration, Instant};

use super::{
    process,
    stage::{Daemon, Tmux},
    table::{Goal, figure, part},
};

const PANES: u64 = 1000;

pub fn run() {
    part("1000 panes in 1000 windows of one session, each running `cat`");
    let tmux = Tmux::new("exec cat");
    tmux.windows(PANES as usize - 1);
    for coverage in ["sessions", "hub"] {
        let daemon = Daemon::new(&["--coverage", coverage]);
        let mut http = daemon.http(&tmux);
        http.get("/health");
        let before = process::resident(daemon.pid());
        let started = Instant::now();
        let listed = http.get("/v1/panes");
        let listed_after = started.elapsed();
        assert_eq!(listed["panes"].as_array().map(Vec::len), Some(PANES as usize));
        while http.get("/v1/status")["servers"][0]["panes"] != PANES {
            std::thread::sleep(Duration::from_micros(500));
        }
        let followed_after = started.elapsed();
        // tmux sends names and titles of all panes within its next second.
        std::thread::sleep(Duration::from_secs(3));
        let grown = process::resident(daemon.pid()).saturating_sub(before);
        figure(&format!("{coverage}: first request to all listed"), listed_after.as_secs_f64(), "s", Goal::None);
        figure(
            &format!("{coverage}: first request to all followed and seeded"),
            followed_after.as_secs_f64(),
            "s",
            Goal::AtMost(1.0),
        );
        figure(
            &format!("{coverage}: memory of an idle pane (RSS growth / 1000)"),
            grown as f64 / PANES as f64 / 1024.0,
            "KiB",
            Goal::AtMost(64.0),
        );
    }
}
