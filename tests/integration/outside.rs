//! What a daemon shows to those who watch it from outside: metrics, and a log for programs.

use std::{
    collections::BTreeSet,
    fs,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    common::{Background, World, eventually, is_installed, run},
    http_port::{asked, serving, token},
};

fn metrics(world: &World) -> String {
    String::from_utf8(world.http("GET", "/metrics", None).body).unwrap()
}

#[test]
fn requests_and_tmux_commands_are_measured_by_their_kind() {
    let world = World::with_server();
    let pane = world.panes().remove(0);
    let path = format!("/v1/panes/{}/input{}", pane.trim_start_matches('%'), world.query());
    assert_eq!(world.http("POST", &path, Some(&json!({ "text": "a-secret-text" }))).status, 200);
    assert_eq!(world.http("GET", "/no/such/secret-path", None).status, 404);
    let text = metrics(&world);
    for series in [
        r#"muxtap_http_request_seconds_count{method="POST",route="/v1/panes/{pane}/input",status="2xx"} 1"#,
        r#"muxtap_http_request_seconds_count{method="GET",route="none",status="4xx"} 1"#,
        r#"muxtap_tmux_command_seconds_count{command="if-shell"} 1"#,
        concat!(r#"muxtap_build_info{version=""#, env!("CARGO_PKG_VERSION"), r#""} 1"#),
    ] {
        assert!(text.contains(series), "{series} in {text}");
    }
    for private in [&pane, "secret", "main", &world.dir().display().to_string()] {
        assert!(!text.contains(private), "{private:?} in {text}");
    }
    if cfg!(target_os = "linux") {
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("no {name}")).parse::<f64>().unwrap()
        };
        assert!(value("process_open_fds") > 3.0 && value("process_open_fds") < value("process_max_fds"));
        assert!(value("process_resident_memory_bytes") > 1e6);
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        let age = now - value("process_start_time_seconds");
        assert!((-2.0..3600.0).contains(&age), "{age}");
    }
}

/// Reading the metrics sends nothing to tmux.
#[test]
fn metrics_cost_no_tmux_command() {
    let world = World::with_server();
    world.ok(&["wait-for", "-t", "main", "--prompt"]);
    let sent = || world.metric("muxtap_tmux_commands_total");
    // If each response cost a command, no five in a row would be equal.
    eventually("metrics that cost nothing", || {
        let first = sent();
        (0..4).all(|_| sent() == first)
    });
}

/// A daemon whose stderr is not its log file names none.
#[test]
fn status_names_only_a_log_that_is_written() {
    let world = World::with_server();
    world.ok(&["list-panes"]);
    assert!(world.json(&["status"])["log"].is_string());
    world.ok(&["stop"]);
    let (_daemon, _) = serving(&world, &[]);
    let status = world.json(&["status"]);
    assert!(status["log"].is_null(), "{status}");
}

/// Prometheus' own judge of a text of metrics.
#[test]
fn promtool_finds_nothing_in_the_metrics() {
    if !is_installed("promtool") {
        return;
    }
    let world = World::with_server();
    world.ok(&["wait-for", "-t", "main", "--prompt"]);
    let file = world.path("metrics");
    fs::write(&file, metrics(&world)).unwrap();
    let checked = run(world.command("sh").args(["-c", "promtool check metrics <metrics"]).current_dir(world.dir()));
    assert_eq!((checked.status, checked.text() + &checked.stderr), (0, String::new()));
}

#[test]
fn prometheus_scrapes_the_port_with_the_token() {
    if !is_installed("prometheus") {
        return;
    }
    let world = World::with_server();
    let (_daemon, addr) = serving(&world, &[]);
    let token_file = world.path("m.sock.token");
    assert_eq!(fs::read_to_string(&token_file).unwrap().trim(), token(&world));
    assert_eq!(asked(&addr, &token(&world), "GET", "/metrics", None).status, 200);
    let config = world.path("prometheus.yml");
    // As in docs/outside.md.
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/outside.md")).unwrap();
    let example = text.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let example = example.replace("127.0.0.1:7717", &addr);
    let example = example.replace("/home/me/.local/state/muxtap/token", &token_file.display().to_string());
    fs::write(&config, format!("global: {{ scrape_interval: 1s }}\n{example}")).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command: Command = world.command("prometheus");
    command.arg(format!("--config.file={}", config.display()));
    command.arg(format!("--storage.tsdb.path={}", world.path("tsdb").display()));
    command.arg(format!("--web.listen-address={port}")).stdout(Stdio::null()).stderr(Stdio::null());
    let _prometheus = Background::start(&mut command);
    let query = |what: &str| -> Option<Value> {
        let answer = run(world.command("curl").args(["-sS", &format!("http://{port}/api/v1/query?query={what}")]));
        let results = serde_json::from_slice::<Value>(&answer.stdout).ok()?;
        results["data"]["result"].get(0).cloned()
    };
    eventually("prometheus has scraped", || query("muxtap_build_info").is_some());
    assert_eq!(query("muxtap_build_info").unwrap()["metric"]["job"], "muxtap");
}

/// Every metric of the dashboard is one that a daemon has.
#[test]
fn the_dashboard_shows_what_there_is() {
    let world = World::with_server();
    world.ok(&["wait-for", "-t", "main", "--prompt"]);
    let text = metrics(&world);
    let known: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let file = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/contrib/grafana/muxtap.json")).unwrap();
    let dashboard: Value = serde_json::from_slice(&file).unwrap();
    let mut named = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            named.extend(words.filter(|word| word.starts_with("muxtap_") || word.starts_with("process_")));
        }
    }
    assert!(named.len() >= 10, "{named:?}");
    // Counted from their first event on.
    let later = ["muxtap_screen_doubts_total", "muxtap_http_refused_total"];
    for name in named {
        let base = ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(known.contains(base) || later.contains(&base), "{name}: not among {known:?}");
    }
}

#[test]
fn a_log_for_programs_is_one_object_a_line() {
    let mut world = World::with_server();
    world.set("MUXTAP_LOG", "debug");
    world.set("MUXTAP_LOG_FORMAT", "json");
    world.ok(&["wait-for", "-t", "main", "--prompt"]);
    // A name that would turn the text around, and is logged.
    let hostile = world.path("t\u{202e}.sock");
    world.also_end(&hostile);
    let made = run(world.plain_muxtap_command().arg("-S").arg(&hostile).args(["new-session", "-s", "other"]));
    assert_eq!(made.status, 0, "{made:?}");
    let log = fs::read_to_string(world.json(&["status"])["log"].as_str().unwrap()).unwrap();
    assert!(log.lines().count() > 2, "{log}");
    assert!(log.contains(r"t\u202e.sock") && !log.contains('\u{202e}'), "{log}");
    for line in log.lines() {
        let record: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(
            record["level"].is_string() && record["message"].is_string() && record["timestamp"].is_string(),
            "{line}"
        );
    }
    let mut world = World::with_server();
    world.set("MUXTAP_LOG_FORMAT", "xml");
    let message = world.error("INVALID_ARGUMENT", &["list-panes"]);
    assert!(message.contains("log_format (from $MUXTAP_LOG_FORMAT): \"xml\": expected text or json"), "{message}");
}
