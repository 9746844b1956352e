//! The commands that ran in panes with `muxtap shell-integration bash`, over each interface.

use serde_json::{Value, json};

use crate::{
    common::{World, eventually, run},
    mcp::Client,
};

/// A nonce, as a caller that starts a shell chooses it.
const NONCE: &str = "MUXTAP_SHELL_NONCE=0123456789abcdef0123";

/// Starts bash with the integration and returns its pane. `env`: further variables.
fn bash(world: &World, name: &str, env: &[&str]) -> String {
    let script = run(world.plain_muxtap_command().args(["shell-integration", "bash"])).text();
    let rc = world.path("rc");
    std::fs::write(&rc, format!("PS1='$ '\nHISTFILE=\nunset HISTCONTROL HISTIGNORE\n{script}")).unwrap();
    let rc = rc.display().to_string();
    let variables: Vec<_> = env.iter().flat_map(|variable| ["-e", variable]).collect();
    let program = ["--", "bash", "--noprofile", "--rcfile", &rc, "-i"];
    let pane = world.ok(&[&["new-session", "-s", name], &variables[..], &program].concat());
    eventually("bash shows its prompt", || listed(world, &pane)["marks"] != "none");
    pane
}

/// Returns the list of a pane's commands, also if there are none.
fn listed(world: &World, pane: &str) -> Value {
    world.muxtap(&["--json", "commands", "-t", pane]).json()
}

/// Types a line, and waits until the command with this number has begun.
fn begin(world: &World, pane: &str, line: &str, number: usize) {
    world.ok(&["send-keys", "-t", pane, line, "Enter"]);
    eventually(line, || listed(world, pane)["commands"].as_array().unwrap().len() == number);
}

/// Types a line, and waits until the command with this number has ended.
fn complete(world: &World, pane: &str, line: &str, number: usize) {
    begin(world, pane, line, number);
    eventually(line, || listed(world, pane)["commands"][number - 1]["end"] == "reported");
}

/// A bash in which three commands ran, the second of which failed.
fn three(world: &World) -> String {
    let pane = bash(world, "work", &[NONCE]);
    complete(world, &pane, "printf 'one\\ntwo'", 1);
    complete(world, &pane, "sh -c 'echo broken; exit 7'", 2);
    complete(world, &pane, "echo last", 3);
    pane
}

#[test]
fn the_command_line_lists_commands_and_prints_what_one_printed() {
    let world = World::new();
    let pane = three(&world);
    let table = world.ok(&["commands", "-t", &pane]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["N", "STATUS", "TIME", "STARTED", "COMMAND"], "{table}");
    let statuses: Vec<_> = rows[1..].iter().map(|row| (row[0], row[1])).collect();
    assert_eq!(statuses, [("1", "0"), ("2", "7"), ("3", "0")], "{table}");
    assert!(table.lines().nth(2).unwrap().ends_with("Z  sh -c 'echo broken; exit 7'"), "{table}");

    let numbers = |args: &[&str]| {
        let list = world.json(&[&["commands", "-t", &pane], args].concat());
        let commands = list["commands"].as_array().unwrap();
        commands.iter().map(|command| command["number"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&["--failed"]), [2]);
    assert_eq!(numbers(&["-n", "2"]), [2, 3]);
    assert_eq!(numbers(&["--grep", "^(printf|echo)", "-n", "1"]), [3]);
    assert!(numbers(&["--grep", "^no"]).is_empty());
    world.error("INVALID_ARGUMENT", &["commands", "-t", &pane, "--grep", "("]);

    let read = |choice: &str| world.muxtap(&["read", "-t", &pane, "--command", choice]).text();
    // The last line has no end: nothing is added.
    assert_eq!(read("1"), "one\ntwo");
    assert_eq!((read("-1"), read("-2")), ("last\n".into(), "broken\n".into()));
    assert!(world.error("NOT_FOUND", &["read", "-t", &pane, "--command", "9"]).contains("1 to 3 are kept"));
    world.error("INVALID_ARGUMENT", &["read", "-t", &pane, "--command", "last"]);
}

/// Returns what the first command printed, of the output of `three` rows that are redrawn.
fn streamed_command(streamed: &str) -> String {
    let from = streamed.find("a 1\n").unwrap();
    let to = streamed.rfind("c 100\n").unwrap() + "c 100\n".len();
    streamed[from..to].to_owned()
}

/// R15, for each way to read a command's output.
#[test]
fn a_command_that_redraws_its_lines_is_read_as_the_screen_ends_with_it() {
    let world = World::new();
    let pane = bash(&world, "work", &[NONCE]);
    let redraw = r"for i in $(seq 100); do [ $i = 1 ] || printf '\033[3A'; for l in a b c; do echo $l $i; done; done";
    complete(&world, &pane, redraw, 1);
    let last = "a 100\nb 100\nc 100\n";
    assert_eq!(world.muxtap(&["read", "-t", &pane, "--command", "1"]).text(), last);
    let mut client = Client::new(&world);
    assert_eq!(client.call("read_since", &json!({"target": pane, "command": 1}))["text"], last);
    // The stream keeps what was printed, in its order.
    let streamed = world.read_all(&pane);
    assert!(streamed.contains("a 1\n") && streamed.contains("c 99\n"), "{streamed}");
    // In another width the rows may be others.
    world.tmux(&["resize-window", "-t", &pane, "-x", "150", "-y", "20"]);
    eventually("it is known", || world.json(&["list-panes"])["panes"][0]["size"]["width"] == 150);
    assert_eq!(world.muxtap(&["read", "-t", &pane, "--command", "1"]).text(), streamed_command(&streamed));
}

/// The recipe "what did the last failing command print?".
#[test]
fn the_output_of_the_last_failing_command() {
    let world = World::new();
    let pane = bash(&world, "work", &[NONCE]);
    complete(&world, &pane, "true", 1);
    assert!(world.error("NOT_FOUND", &["read", "-t", &pane, "--command", "last-failed"]).contains("failed"));
    complete(&world, &pane, "echo why; false", 2);
    complete(&world, &pane, "echo later", 3);
    assert_eq!(world.ok(&["read", "-t", &pane, "--command", "last-failed"]), "why");
    let read = world.json(&["read", "-t", &pane, "--command", "last-failed"]);
    assert_eq!((&read["command"]["number"], &read["command"]["status"]), (&2.into(), &1.into()), "{read}");
}

/// The recipe "a table of today's commands with their times".
#[test]
fn a_table_of_the_commands_of_today() {
    let world = World::new();
    let pane = three(&world);
    let list = listed(&world, &pane);
    let commands = list["commands"].as_array().unwrap();
    let midnight = commands[0]["started_ms"].as_u64().unwrap() / 86_400_000 * 86_400_000;
    let today: Vec<_> = commands.iter().filter(|one| one["started_ms"].as_u64().unwrap() >= midnight).collect();
    assert_eq!(today.len(), 3);
    assert!(today.iter().all(|one| one["duration_ms"].is_u64() && one["trusted"] == true), "{list}");
    assert!(today.windows(2).all(|two| two[0]["started_ms"].as_u64() <= two[1]["started_ms"].as_u64()), "{list}");
    let over = |time: &str| world.ok(&["commands", "-t", &pane, "--over", time]).lines().count();
    assert_eq!((over("0"), over("1h")), (4, 0), "a title and three commands; none");
    assert_eq!((&list["marks"], &today[1]["line"]), (&"trusted".into(), &"sh -c 'echo broken; exit 7'".into()));
}

/// The recipe "what has the command that runs printed so far?".
#[test]
fn the_output_of_a_command_that_runs() {
    let world = World::new();
    let pane = bash(&world, "work", &[NONCE]);
    begin(&world, &pane, "echo begun; read -r _", 1);
    world.await_output(&pane, "^begun$");
    assert!(world.ok(&["commands", "-t", &pane]).lines().nth(1).unwrap().contains(" running "));
    let read = world.muxtap(&["read", "-t", &pane, "--command", "-1"]);
    assert_eq!(read.text(), "begun\n");
    assert!(read.stderr.contains("command 1 still runs"), "{read:?}");
    world.ok(&["send-keys", "-t", &pane, "Enter"]);
    eventually("it ends", || listed(&world, &pane)["commands"][0]["status"] == 0);
}

/// The recipe "page by page, exactly the output of one command".
#[test]
fn the_output_of_a_command_page_by_page() {
    let world = World::new();
    let pane = bash(&world, "work", &[NONCE]);
    complete(&world, &pane, "seq 1 2000", 1);
    complete(&world, &pane, "echo other", 2);
    let (mut text, mut since, mut pages) = (String::new(), None::<String>, 0);
    loop {
        let mut args = vec!["read", "-t", &pane, "--command", "1", "--max-bytes", "1000"];
        args.extend(since.iter().flat_map(|cursor| ["--since", cursor]));
        let read = world.json(&args);
        text.push_str(read["text"].as_str().unwrap());
        pages += 1;
        if read["more"] != true {
            break;
        }
        since = Some(read["cursor"].as_str().unwrap().to_owned());
    }
    let all: String = (1..=2000).map(|number| format!("{number}\n")).collect();
    assert_eq!(text, all);
    assert!(pages > 5, "{pages} pages");
}

#[test]
fn a_command_whose_output_was_dropped_has_a_gap() {
    let mut world = World::new();
    world.set("MUXTAP_RING_BYTES", "65536");
    let pane = bash(&world, "work", &[NONCE]);
    complete(&world, &pane, "seq 1 20000", 1);
    let read = world.json(&["read", "-t", &pane, "--command", "1"]);
    assert_eq!((&read["gap"]["reason"], &read["command"]["whole"]), (&"trimmed".into(), &false.into()), "{read}");
    assert!(read["text"].as_str().unwrap().ends_with("\n20000\n"));
    complete(&world, &pane, "seq 1 20001", 2);
    let read = world.json(&["read", "-t", &pane, "--command", "1"]);
    assert_eq!((&read["gap"]["reason"], &read["text"]), (&"trimmed".into(), &"".into()), "{read}");
    assert_eq!(read["gap"]["bytes"], read["command"]["bytes"], "{read}");
}

#[test]
fn http_lists_commands_and_returns_what_one_printed() {
    let world = World::new();
    let pane = three(&world).replace('%', "%25");
    let get = |rest: &str| world.http("GET", &format!("/v1/panes/{pane}/{rest}"), None).json();
    let list = get("commands?failed=true&grep=broken&n=5");
    let [command] = &list["commands"].as_array().unwrap()[..] else { panic!("{list}") };
    assert_eq!((&command["number"], &command["status"], &command["end"]), (&2.into(), &7.into(), &"reported".into()));
    assert_eq!((&command["line_source"], &command["whole"]), (&"shell".into(), &true.into()), "{list}");
    let between = get(&format!(
        "output?since={}&until={}",
        command["output_start"].as_str().unwrap(),
        command["output_end"].as_str().unwrap()
    ));
    assert_eq!((&between["text"], &get("output?command=2")["text"]), (&"broken\n".into(), &"broken\n".into()));
    assert_eq!(get("output?command=99")["code"], "NOT_FOUND");
    for wrong in ["commands?n=0", "commands?grep=(", "output?command=x", "output?command=1&until=now"] {
        assert_eq!(get(wrong)["code"], "INVALID_ARGUMENT", "{wrong}");
    }
}

#[test]
fn mcp_lists_commands_and_returns_what_one_printed() {
    let world = World::new();
    let pane = three(&world);
    let mut client = Client::new(&world);
    let list = client.call("list", &json!({"what": "commands", "target": pane}));
    assert_eq!(list["commands"].as_array().unwrap().len(), 3, "{list}");
    let failed = client.says("list", &json!({"what": "commands", "target": pane, "failed": true}));
    assert!(failed.starts_with("2 status 7 after "), "{failed}");
    assert!(failed.trim_end().ends_with(": sh -c 'echo broken; exit 7'"), "{failed}");
    for (choice, text) in [(json!(-1), "last\n"), (json!(1), "one\ntwo"), (json!("last-failed"), "broken\n")] {
        let read = client.call("read_since", &json!({"target": pane, "command": choice}));
        assert_eq!(read["text"], text, "{read}");
    }
    let said = client.says("read_since", &json!({"target": pane, "command": -2}));
    assert!(said.starts_with("broken\n[command 2 status 7 after "), "{said}");
    client.fails("NOT_FOUND", "read_since", &json!({"target": pane, "command": 99}));
    client.fails("INVALID_ARGUMENT", "list", &json!({"what": "commands"}));
    client.fails("INVALID_ARGUMENT", "list", &json!({"failed": true}));
}

#[test]
fn a_snapshot_with_history_has_the_last_line_and_never_runs_it() {
    let world = World::new();
    let pane = bash(&world, "work", &[NONCE]);
    complete(&world, &pane, "touch ran-$((1+1))", 1);
    world.ok(&["snapshot", "save", "without"]);
    assert!(!world.json(&["snapshot", "show", "without"]).to_string().contains("touch"));
    world.ok(&["snapshot", "save", "with", "--history", "10"]);
    let file = world.json(&["snapshot", "show", "with"]);
    assert_eq!(file["windows"][0]["panes"][0]["muxtap"]["last_line"], "touch ran-$((1+1))", "{file}");
    assert!(world.ok(&["snapshot", "show", "with", "--history"]).contains("last command: touch ran-$((1+1))\n"));
    assert_eq!(file["windows"][0]["panes"][0]["shell_command"], json!([]), "{file}");
}

#[test]
fn doctor_says_who_marks_the_commands_of_a_pane() {
    let world = World::new();
    let trusted = bash(&world, "trusted", &[NONCE]);
    let claimed = bash(&world, "claimed", &[]);
    let none = world.ok(&["new-session", "-s", "none", "--", "cat"]);
    let report = world.muxtap(&["--json", "doctor", "-t", &trusted, &claimed, &none]).json();
    let checks: Vec<_> = report["checks"].as_array().unwrap().iter().filter(|one| one["name"] == "commands").collect();
    assert_eq!(checks.len(), 3, "{report}");
    let message = |at: usize| checks[at]["message"].as_str().unwrap();
    assert!(message(0).contains("trusted") && message(1).contains("claimed") && message(2).contains("no marks"));
    assert!(checks[2]["fix"].as_str().unwrap().contains("muxtap shell-integration bash"), "{report}");

    // Commands of a shell without a nonce are marked as claims.
    complete(&world, &claimed, "true", 1);
    assert!(world.ok(&["commands", "-t", &claimed]).lines().nth(1).unwrap().starts_with("1?  0 "));
    let unmarked = world.muxtap(&["commands", "-t", &none]);
    assert_eq!((unmarked.status, unmarked.text().as_str()), (1, ""), "{unmarked:?}");
    assert!(unmarked.stderr.contains("muxtap shell-integration bash"), "{unmarked:?}");
}
