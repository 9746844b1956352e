//! Waits for commands and events of marks, in a real bash with muxtap's shell integration.

use serde_json::{Value, json};

use crate::{
    common::{World, eventually, run},
    mcp::Client,
    subscribers::{Event, Sse},
};

/// A world with a pane in which bash marks its commands.
struct Marked {
    world: World,
    pane: String,
}

impl Marked {
    fn new() -> Self {
        let world = World::with_server();
        let pane = bash(&world);
        Self { world, pane }
    }

    fn type_line(&self, line: &str) {
        type_into(&self.world, &self.pane, line);
    }

    /// Waits for the end of a command and returns its report.
    fn wait(&self, args: &[&str]) -> Value {
        let answer = self.world.json(&[&["wait-for", "--json", "-t", &self.pane, "-T", "60"], args].concat());
        assert_eq!(answer["outcome"], "matched", "{answer}");
        let reports = answer["predicates"].as_array().unwrap();
        reports.iter().find(|report| report["kind"] == "command").unwrap().clone()
    }
}

/// Starts bash with the integration in a new window; returns once its first prompt rests.
fn bash(world: &World) -> String {
    let script = world.ok(&["shell-integration", "bash"]);
    let rc = world.path("rc");
    std::fs::write(&rc, format!("PS1='$ '\n{script}")).unwrap();
    let pane = world.window(&format!("exec bash --noprofile --rcfile {} -i", rc.display()));
    world.ok(&["wait-for", "-t", &pane, "--prompt", "--since", "start", "-T", "60"]);
    pane
}

/// Types as a person does, not through muxtap.
fn type_into(world: &World, pane: &str, line: &str) {
    world.tmux(&["send-keys", "-t", pane, "-l", line]);
    world.tmux(&["send-keys", "-t", pane, "Enter"]);
}

/// "Wait for whatever I started": a command that a person started is waited for without a pattern.
#[test]
fn a_command_that_runs_is_waited_for() {
    let marked = Marked::new();
    let gate = marked.world.path("gate").display().to_string();
    marked.type_line(&format!("until [ -e {gate} ]; do sleep 0.05; done; echo built; (exit 7)"));
    eventually("it runs", || marked.world.tmux(&["capture-pane", "-p", "-t", &marked.pane]).contains("until"));
    let wait = marked.world.spawn(&["wait-for", "-t", &marked.pane, "--command", "--propagate", "-T", "60"]);
    eventually("the wait is open", || marked.world.http("GET", "/v1/waits", None).json()["waits"][0].is_object());
    std::fs::write(&gate, "").unwrap();
    let answer = wait.finish();
    assert_eq!(answer.status, 7, "{}", answer.text());
    let line = answer.text();
    assert!(line.contains("status 7 after ") && line.contains(": until [ -e "), "{line}");
    // The same command counts once; the next wait is for the next command.
    let timeout = run(&mut marked.world.muxtap_command(&["wait-for", "-t", &marked.pane, "--command", "-T", "0.2"]));
    assert_eq!(timeout.status, 124, "{}", timeout.text());
}

#[test]
fn a_command_that_muxtap_typed_counts_although_it_ended_before_the_wait() {
    let marked = Marked::new();
    marked.world.ok(&["send-keys", "-t", &marked.pane, "echo one; (exit 3)", "Enter"]);
    marked.world.ok(&["wait-for", "-t", &marked.pane, "-p", "^one$", "--prompt", "-T", "60"]);
    let report = marked.wait(&["--command"]);
    assert_eq!(report["command"]["status"], 3, "{report}");
    assert_eq!(report["command"]["line"], "echo one; (exit 3)");
    assert_eq!((&report["command"]["trusted"], &report["command"]["whole"]), (&json!(false), &json!(true)));
    let from = report["command"]["output_start"].as_str().unwrap();
    assert!(marked.world.ok(&["read", "-t", &marked.pane, "--since", from]).starts_with("one\n"));
}

#[test]
fn a_status_is_waited_for_in_several_panes() {
    let marked = Marked::new();
    let other = bash(&marked.world);
    marked.type_line("true");
    marked.type_line("(exit 4)");
    type_into(&marked.world, &other, "true");
    let panes = ["-t", &marked.pane, "-t", &other];
    let failed = [&["wait-for"], &panes[..], &["--status", "!0", "--since", "start", "-T", "60"]].concat();
    let failed = marked.world.ok(&failed);
    assert!(
        failed.starts_with(&format!("{} status 4 after ", marked.pane)) && failed.trim_end().ends_with(": (exit 4)"),
        "{failed}"
    );
    let succeeded = [&["wait-for", "--all"], &panes[..], &["--status", "0", "--since", "start", "-T", "60"]].concat();
    assert_eq!(marked.world.ok(&succeeded).lines().count(), 2);
    let bad = marked.world.muxtap(&["wait-for", "-t", &marked.pane, "--status", "zero"]);
    assert!(bad.stderr.contains("expected a number, or `!` and a number"), "{}", bad.stderr);
}

/// A pattern of failure in a command's output comes before the command's end, also if both were there
/// before the wait.
#[test]
fn a_failure_in_the_output_precedes_the_end_of_the_command() {
    let marked = Marked::new();
    marked.world.ok(&["send-keys", "-t", &marked.pane, "printf 'err%s: x\\n' or", "Enter"]);
    marked.world.ok(&["wait-for", "-t", &marked.pane, "-p", "^error: x$", "--prompt", "-T", "60"]);
    let failed = marked.world.muxtap(&["wait-for", "-t", &marked.pane, "--command", "--fail", "^error:", "-T", "60"]);
    assert_eq!(failed.status, 3, "{failed:?}");
}

/// The program that takes the pane over prints nothing.
#[test]
fn a_respawn_ends_the_command_that_is_waited_for() {
    let marked = Marked::new();
    marked.type_line("sleep 1000");
    eventually("it runs", || {
        let list = marked.world.json(&["commands", "-t", &marked.pane]);
        list["commands"][0].is_object() && list["commands"][0]["end"].is_null()
    });
    let wait = marked.world.spawn(&["wait-for", "-t", &marked.pane, "--command", "-T", "60"]);
    eventually("the wait is open", || marked.world.http("GET", "/v1/waits", None).json()["waits"][0].is_object());
    marked.world.ok(&["respawn-pane", "-k", "-t", &marked.pane, "--", "sleep", "1000"]);
    let answer = wait.finish();
    assert_eq!((answer.status, answer.text().contains("status unknown")), (0, true), "{answer:?}");
}

#[test]
fn without_marks_the_answer_says_how_to_switch_them_on() {
    let world = World::with_server();
    let timeout = world.muxtap(&["wait-for", "-t", "main", "--command", "-T", "0.2"]);
    assert_eq!(timeout.status, 124);
    assert!(timeout.stderr.contains("muxtap shell-integration"), "{}", timeout.stderr);
}

#[test]
fn mcp_and_http_wait_for_a_command() {
    let marked = Marked::new();
    let mut client = Client::new(&marked.world);
    marked.world.ok(&["send-keys", "-t", &marked.pane, "echo over-mcp", "Enter"]);
    let answer = client.call("wait_for", &json!({"panes": marked.pane, "command": true}));
    assert_eq!(answer["predicates"][0]["command"]["line"], "echo over-mcp", "{answer}");
    let text = client.says("wait_for", &json!({"panes": marked.pane, "command": true, "since": "start"}));
    assert!(text.contains("status 0 after ") && text.contains(": echo over-mcp"), "{text}");
    marked.world.ok(&["send-keys", "-t", &marked.pane, "(exit 9)", "Enter"]);
    let body = json!({"panes": [marked.pane], "status": 9, "timeout_ms": 60_000});
    let answer = marked.world.http("POST", "/v1/waits", Some(&body)).json();
    assert_eq!(answer["predicates"][0]["command"]["status"], 9, "{answer}");
    assert_eq!(answer["predicates"][0]["pattern"], "9");
}

/// "Tell me when anything fails": `commands -f` prints what was there, then each command as it ends.
#[test]
fn commands_are_followed() {
    let marked = Marked::new();
    marked.type_line("(exit 1)");
    marked.wait(&["--status", "1", "--since", "start"]);
    let mut failed = marked.world.spawn(&["commands", "-f", "--failed", "-t", &marked.pane]);
    let mut all = marked.world.spawn(&["tail", "-f", "--commands", "-t", &marked.pane]);
    failed.line_where("the first", |line| line.starts_with("1?  1 ") && line.ends_with("  (exit 1)"));
    eventually("both follow", || marked.world.metric("muxtap_streams") >= 2);
    marked.type_line("true");
    marked.type_line("(exit 2)");
    assert_eq!(failed.line_where("a line", |_| true).split_whitespace().next(), Some("3?"));
    let lines = [all.line().unwrap(), all.line().unwrap()];
    assert!(lines[0].starts_with("2?  0  ") && lines[0].ends_with("  true"), "{lines:?}");
    assert!(lines[1].starts_with("3?  2  ") && lines[1].ends_with("  (exit 2)"), "{lines:?}");
    failed.kill();
    all.kill();
}

/// The events of commands come in the order of the stream, each once, also after a pause.
#[test]
fn events_of_marks_come_in_order_and_once() {
    let marked = Marked::new();
    let types = "command-started,command-finished,cwd,progress,notification";
    let query = format!("panes={}&types={types}", marked.pane.replace('%', "%25"));
    let next = |events: &mut Sse| {
        let Event { kind, data } = events.next().expect("an event");
        assert_eq!(data["pane"], marked.pane);
        let text = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
        match kind.as_str() {
            "cwd" => format!("cwd {}", text("path")),
            "progress" => format!("progress {} {}", text("state"), data["percent"]),
            "notification" => format!("notification {} {}", text("title"), text("body")),
            // A short command may have its end when its begin is sent.
            "command-started" => format!("started {}", data["command"]["number"]),
            _ => format!("finished {} {}", data["command"]["number"], data["command"]["status"]),
        }
    };
    let mut events = Sse::open(&marked.world, &query);
    marked.type_line("printf '\\033]9;4;1;40\\007\\033]777;notify;Build;done\\007'; (exit 5)");
    marked.type_line("cd /usr");
    let mut seen = Vec::new();
    while !seen.contains(&"cwd /usr".to_owned()) {
        seen.push(next(&mut events));
    }
    // The first directory may have been reported before the pane was followed.
    seen.retain(|event| !event.starts_with("cwd ") || event == "cwd /usr");
    let progress = ["started 1", "progress running 40", "notification Build done", "finished 1 5"];
    assert_eq!(seen, [&progress[..], &["started 2", "finished 2 0", "cwd /usr"]].concat());
    // A subscriber that comes back gets what ended meanwhile, and nothing twice.
    let id = events.id.clone().expect("an id");
    drop(events);
    marked.type_line("(exit 6)");
    marked.wait(&["--status", "6", "--since", "start"]);
    let mut again = Sse::resume(&marked.world, &query, Some(&id));
    assert_eq!([next(&mut again), next(&mut again)], ["started 3", "finished 3 6"]);
    let id = again.id.clone().expect("an id");
    drop(again);
    marked.type_line("(exit 7)");
    let mut again = Sse::resume(&marked.world, &query, Some(&id));
    assert_eq!([next(&mut again), next(&mut again)], ["started 4", "finished 4 7"]);
}
