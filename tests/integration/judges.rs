//! Unmodified programs of other projects that read muxtap's files: asciinema's player, tmuxinator.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use muxtap::{
    protocol::version::Version,
    screen::{CaptureOptions, Rules, Screen, Settings, Size},
};
use serde_json::Value;

use crate::common::{Background, World, eventually, is_installed, run, tmux_program};

const PLAYER: &str = "asciinema-player";
const PLAYER_VERSION: &str = "3.18.0";

/// Returns the package of asciinema's player, fetched once. `None`: npm cannot fetch it here.
fn player() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{PLAYER}-{PLAYER_VERSION}"));
    if folder.join("package.json").exists() {
        return Some(folder);
    }
    let new = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let package = format!("{PLAYER}@{PLAYER_VERSION}");
    // No script of it runs, and its one dependency is for pages.
    let install = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", "--prefix"];
    let mut npm = Command::new("npm");
    npm.args(install).arg(new.path()).arg(package).stdin(Stdio::null());
    if !npm.output().is_ok_and(|output| output.status.success()) {
        return None;
    }
    // Another test run may have been faster.
    let _ = fs::rename(new.path().join("node_modules").join(PLAYER), &folder);
    folder.join("package.json").exists().then_some(folder)
}

/// Returns whether node is installed and has the browser's `WebSocket`.
fn has_node() -> bool {
    let ask = ["--experimental-websocket", "-e", "process.exit(typeof WebSocket === 'function' ? 0 : 1)"];
    Command::new("node").args(ask).stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
}

#[test]
fn asciinemas_own_player_shows_a_pane_live() {
    let Some(player) = has_node().then(player).flatten() else {
        eprintln!("SKIPPED: there is no node with WebSocket, or npm cannot fetch {PLAYER} {PLAYER_VERSION}");
        return;
    };
    let world = World::with_server();
    let mut serve = world.plain_muxtap_command();
    let _daemon = Background::start(serve.args(["serve", "--http", "127.0.0.1:0"]));
    eventually("the daemon answers", || world.daemon_pid().is_some());
    let status = world.http("GET", "/v1/status", None).json();
    let address = status["http"][0].as_str().unwrap().split("://").nth(1).unwrap().to_owned();
    let pane = world
        .window("stty -echo; printf '\\033[31mthere\\033[0m before\\n'; while read -r line; do eval \"$line\"; done");
    world.await_output(&pane, "^there before");
    let url = format!("ws://{address}/v1/panes/{}/alis{}", pane.trim_start_matches('%'), world.query());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/alis_player.mjs");
    let mut node = Command::new("node");
    node.args(["--no-warnings", "--experimental-websocket"]).arg(script).arg(player).arg(url);
    let mut shown = Background::start(node.arg(world.ok(&["token"]).trim()));
    let mut events: Vec<Value> = Vec::new();
    let mut until = |event: &str, fits: &dyn Fn(&Value) -> bool| loop {
        let line = shown.line().unwrap_or_else(|| panic!("the player has ended, before {event}: {events:?}"));
        events.push(serde_json::from_str(&line).unwrap());
        let last = events.last().unwrap();
        assert_ne!(last["event"], "error", "{last}");
        if last["event"] == event && fits(&last["data"]) {
            return last["data"].clone();
        }
    };
    let begun = until("reset", &|_| true);
    assert_eq!(begun["size"], serde_json::json!({ "cols": 80, "rows": 24 }), "{begun}");
    let types =
        |line: &str| world.tmux(&["send-keys", "-l", "-t", &pane, line, ";", "send-keys", "-t", &pane, "Enter"]);
    types("printf 'gr\\303\\274n \\344\\270\\255\\033[2C|\\n'");
    let has = |text: &'static str| move |data: &Value| data.as_str().is_some_and(|data| data.contains(text));
    until("output", &has("|"));
    world.tmux(&["resize-window", "-t", &pane, "-x", "60", "-y", "10"]);
    until("resize", &|size| (&size["cols"], &size["rows"]) == (&60.into(), &10.into()));
    types("echo small");
    until("output", &has("small"));
    let captured = world.ok(&["capture-pane", "-t", &pane]);
    world.ok(&["kill-pane", "-t", &pane]);
    until("ended", &|_| true);
    // The player's screen equals tmux's.
    let version = run(Command::new(tmux_program()).arg("-V")).text();
    let version = Version::parse(version.trim().trim_start_matches("tmux ").as_bytes()).unwrap();
    let rules = Rules::for_version(version);
    let mut screen = Screen::new(Size { columns: 80, rows: 24 }, rules, Settings::default());
    for event in &events {
        match event["event"].as_str().unwrap() {
            "reset" => screen.feed(event["data"]["init"].as_str().unwrap().as_bytes()),
            "output" => screen.feed(event["data"].as_str().unwrap().as_bytes()),
            "resize" => screen.resize(Size { columns: 60, rows: 10 }),
            _ => {}
        }
    }
    let told = screen.capture(&CaptureOptions::default());
    assert_eq!(String::from_utf8_lossy(&told).trim_end(), captured.trim_end(), "{events:?}");
}

#[test]
fn muxtap_restores_tmuxinator_files_as_tmuxinator_does() {
    let world = World::new();
    if !is_installed("tmuxinator") {
        return;
    }
    for folder in ["src", "log", "bin"] {
        fs::create_dir(world.path(folder)).unwrap();
    }
    // tmuxinator calls `tmux`, and refuses unknown versions.
    let real = run(world.command("sh").args(["-c", &format!("command -v {}", tmux_program())])).text();
    std::os::unix::fs::symlink(real.trim(), world.path("bin/tmux")).unwrap();
    let search = format!("{}:{}", world.path("bin").display(), std::env::var("PATH").unwrap());
    world.session("other");
    let file = world.path("site.yml");
    let root = world.dir().display();
    let project = format!(
        "name: site\nroot: {root}\nsocket_path: {}\nstartup_window: server\npre_window: 'true'\nwindows:\n  - editor:\n      \
         layout: main-vertical\n      root: {root}/src\n      panes:\n        - 'true'\n        - guard:\n          - \
         'true'\n          - 'true'\n        -\n  - server: 'true'\n  - logs:\n    - cd log\n    - 'true'\n  - empty:\n",
        world.socket().display()
    );
    fs::write(&file, project).unwrap();
    let mut start = world.command("tmuxinator");
    start.env("PATH", search).env("SHELL", "/bin/sh").env("EDITOR", "true");
    let started = run(start.args(["start", "--suppress-tmux-version-warning", "--no-attach", "-p"]).arg(&file));
    assert_eq!(started.status, 0, "{started:?}");
    let imported = world.json(&["snapshot", "import", "site", file.to_str().unwrap()]);
    assert_eq!(imported["windows"], 4, "{imported}");
    world.ok(&["snapshot", "restore", "site", "--name", "restored", "--run"]);
    let shape = |session: &str| {
        let windows = "#{window_name} #{window_panes} #{window_active}";
        let panes =
            "#{window_name} #{pane_current_path} #{pane_at_left}#{pane_at_top}#{pane_at_right}#{pane_at_bottom}";
        [
            world.tmux(&["list-windows", "-t", session, "-F", windows]),
            world.tmux(&["list-panes", "-s", "-t", session, "-F", panes]),
        ]
    };
    // The commands that both type have been carried out.
    eventually("the shells of both are where they were told to go", || shape("=restored") == shape("=site"));
    let [windows, panes] = shape("=site");
    assert_eq!((windows.lines().count(), panes.matches("/src ").count(), panes.matches("/log ").count()), (4, 3, 1));
}
