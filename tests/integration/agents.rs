//! Agents in panes, played by scripts with the agents' names: each draws the screens of
//! `tests/golden/agents` and stands in for the real program, which is not installed here.
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::{Value, json};

use crate::common::{Background, World, eventually, tmux_program};

/// Follows commands, one a line: `run COMMAND`, `show FILE`, `title TEXT`, `bell`, `flood TEXT`, `exit STATUS`.
const SCRIPT: &str = r#"#!/bin/sh
stty -echo
printf '\033[2J\033[Hfake %s is here\n' "$(basename "$0")"
while read -r what rest; do
    case $what in
        show) printf '\033[2J\033[H%s' "$(cat "$rest")" ;;
        title) printf '\033]2;%s\007' "$rest" ;;
        bell) printf '\a' ;;
        flood) while :; do printf '\033[2J\033[H%s' "$rest"; done ;;
        run) eval "$rest" ;;
        exit) exit "$rest" ;;
    esac
done
"#;

/// A screen of `tests/golden/agents`, and the state that it must give.
pub struct Golden {
    agent: String,
    title: String,
    screen: String,
    state: String,
    rule: String,
    question: Option<String>,
    options: Vec<String>,
}

pub fn golden(name: &str) -> Golden {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/agents/{name}.txt"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (title, rest) = text.split_once('\n').unwrap();
    let (screen, said) = rest.split_once("\n====\n").unwrap();
    let mut words = said.lines().next().unwrap().split(' ');
    let after = |mark: &str| said.lines().filter_map(|line| line.strip_prefix(mark).map(str::to_owned)).collect();
    let selected: Vec<String> = after("> ");
    let options =
        said.lines().filter(|line| line.starts_with("> ") || line.starts_with("  ") && !line.starts_with("  row "));
    let shown = |option: &str| option[2..].split(" (Small").next().unwrap().split(" (Known").next().unwrap().to_owned();
    let questions: Vec<String> = after("question: ");
    assert!(selected.len() <= 1);
    Golden {
        agent: name.split('-').next().unwrap().to_owned(),
        title: title.strip_prefix("title: ").unwrap_or_default().to_owned(),
        screen: screen.to_owned(),
        state: words.next().unwrap().to_owned(),
        rule: words.next().unwrap().to_owned(),
        question: questions.first().map(|question| question.replace(" ⏎ ", "\n")),
        options: options.map(shown).collect(),
    }
}

fn all_golden() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/agents");
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned());
    let mut names: Vec<_> = names.filter_map(|name| name.strip_suffix(".txt").map(str::to_owned)).collect();
    names.sort();
    names
}

/// Creates a world whose `PATH` has such agents; returns it and the pane of its session `wide`.
/// This session of 120x40 runs `sh` (not as a login shell, which would set its own `PATH`).
pub fn stage(names: &[&str]) -> (World, String) {
    let mut world = World::new();
    let bin = world.path("bin");
    fs::create_dir(&bin).unwrap();
    for name in names {
        put(&bin.join(name), SCRIPT);
    }
    world.set("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    let pane =
        world.tmux(&["new-session", "-d", "-s", "wide", "-x", "120", "-y", "40", "-P", "-F", "#{pane_id}", "exec sh"]);
    (world, pane)
}

pub fn put(path: &Path, script: &str) {
    fs::write(path, script).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn type_line(world: &World, pane: &str, line: &str) {
    world.tmux(&["send-keys", "-l", "-t", pane, line, ";", "send-keys", "-t", pane, "Enter"]);
}

/// Makes the fake agent draw a golden screen.
pub fn show(world: &World, pane: &str, golden: &Golden) {
    type_line(world, pane, &format!("title {}", if golden.title.is_empty() { "none" } else { &golden.title }));
    show_text(world, pane, &golden.screen);
}

fn show_text(world: &World, pane: &str, text: &str) {
    let file = world.path("screen");
    fs::write(&file, text).unwrap();
    type_line(world, pane, &format!("show {}", file.display()));
}

pub fn watch(world: &World) -> Background {
    world.spawn(&["--json", "agents", "--watch"])
}

/// Returns the next event that differs from the last one.
pub fn next(watch: &mut Background) -> Value {
    serde_json::from_str(&watch.line().expect("one more event")).unwrap()
}

fn what(agent: &Value) -> (&str, &str) {
    (agent["agent"].as_str().unwrap(), agent["state"].as_str().unwrap())
}

fn options(agent: &Value) -> Vec<String> {
    let options = agent["options"].as_array().into_iter().flatten();
    options
        .map(|option| format!("{}: {}", option["key"].as_str().unwrap(), option["label"].as_str().unwrap()))
        .collect()
}

/// Reads events until one reports this state of the pane; events before it may show a screen that
/// was not drawn completely.
pub fn until(watch: &mut Background, state: &str) -> Value {
    loop {
        let agent = next(watch);
        if agent["state"] == state {
            return agent;
        }
    }
}

pub fn listed(world: &World) -> Vec<Value> {
    world.json(&["agents"])["agents"].as_array().unwrap().clone()
}

#[test]
fn an_agent_in_a_shell_from_its_start_to_its_end() {
    let (world, pane) = stage(&["claude", "codex"]);
    assert!(listed(&world).is_empty());
    let mut watch = watch(&world);
    type_line(&world, &pane, "claude");
    let started = next(&mut watch);
    assert_eq!((what(&started), &started["pane"]), (("claude", "idle"), &Value::from(pane.as_str())));
    assert_eq!((&started["name"], &started["session"]), (&Value::from("Claude Code"), &Value::from("wide")));
    assert!(started["pid"].as_u64().is_some());
    for (name, state) in [
        ("claude-working", "working"),
        ("claude-permission-bash", "permission"),
        ("claude-working-timer", "working"),
        ("claude-question", "question"),
        ("claude-errored", "errored"),
        ("claude-start", "idle"),
    ] {
        show(&world, &pane, &golden(name));
        let told = until(&mut watch, state);
        assert!(told["since_ms"].as_u64() >= started["since_ms"].as_u64());
    }
    type_line(&world, &pane, "exit 3");
    let ended = until(&mut watch, "ended");
    assert_eq!((ended["evidence"]["rule"].as_str(), &ended["pid"]), (Some("process"), &started["pid"]));
    assert_eq!(listed(&world).iter().map(what).collect::<Vec<_>>(), [("claude", "ended")]);
    type_line(&world, &pane, "codex");
    assert_eq!(what(&next(&mut watch)), ("codex", "idle"));
    assert_eq!(listed(&world).iter().map(what).collect::<Vec<_>>(), [("codex", "idle")]);
    world.tmux(&["kill-pane", "-t", &pane]);
    assert_eq!(what(&next(&mut watch)), ("codex", "ended"));
}

/// A state that an agent reached between two watches is reported by the second one. Its session is
/// named by a pattern.
#[test]
fn a_watch_that_is_resumed_tells_what_an_agent_came_to() {
    let (world, pane) = stage(&["claude"]);
    let mut client = crate::mcp::Client::new(&world);
    type_line(&world, &pane, "claude");
    eventually("it is there", || listed(&world).len() == 1);
    let targets = serde_json::json!(["wi*"]);
    let first = client.call("watch", &serde_json::json!({"targets": targets, "wait_ms": 0}));
    show(&world, &pane, &golden("claude-permission-bash"));
    eventually("it asks", || listed(&world)[0]["state"] == "permission");
    let resumed =
        client.call("watch", &serde_json::json!({"targets": targets, "resume": first["resume"], "wait_ms": 0}));
    let asks = |event: &&Value| event["type"] == "agent" && event["agent"]["state"] == "permission";
    let events = resumed["events"].as_array().unwrap();
    assert_eq!(events.iter().filter(asks).count(), 1, "{resumed}");
    // A caller that wants other events gets no agents.
    let only_bells =
        serde_json::json!({"targets": targets, "resume": first["resume"], "types": ["bell"], "wait_ms": 0});
    let bells = client.call("watch", &only_bells);
    assert_eq!(bells["events"], serde_json::json!([]), "{bells}");
    let named = client.call("list", &serde_json::json!({"what": "agents", "target": "wide:0"}));
    assert_eq!(named["agents"][0]["state"], "permission", "{named}");
    let other = client.call("list", &serde_json::json!({"what": "agents", "target": "wide:7"}));
    assert_eq!(other["agents"], serde_json::json!([]));
}

#[test]
fn every_golden_screen_is_judged_the_same_in_a_real_pane() {
    let names = ["claude", "codex", "gemini", "aider", "opencode", "cursor-agent", "copilot", "goose"];
    let (world, _) = stage(&names);
    world.ok(&["list-panes"]);
    // The watch runs through all of them, which takes minutes on a busy machine.
    let mut command = world.muxtap_command(&["--json", "agents", "--watch"]);
    let mut watch = Background::start_with(&mut command, 15 * crate::common::LIMIT);
    let all = all_golden();
    for program in names {
        let agent = program.split('-').next().unwrap();
        let pane = world.tmux(&["new-window", "-d", "-t", "wide:", "-P", "-F", "#{pane_id}", program]);
        assert_eq!(what(&next(&mut watch)), (agent, "idle"));
        let mut last = "idle".to_owned();
        let working = golden(&format!("{agent}-working"));
        for name in all.iter().filter(|name| name.split('-').next() == Some(agent)) {
            let golden = golden(name);
            assert_eq!(golden.agent, agent);
            // Each screen must change the state.
            if golden.state == last && last != "working" {
                show(&world, &pane, &working);
                until(&mut watch, "working");
            } else if golden.state == last {
                type_line(&world, &pane, "title none");
                show_text(&world, &pane, "nothing");
                until(&mut watch, "idle");
            }
            show(&world, &pane, &golden);
            let told = until(&mut watch, &golden.state);
            last.clone_from(&golden.state);
            assert_eq!(
                (told["question"].as_str(), options(&told)),
                (golden.question.as_deref(), golden.options),
                "{name}"
            );
            // A title may arrive before the screen; then another rule matches first.
            eventually(name, || {
                listed(&world).iter().any(|now| now["pane"] == pane.as_str() && now["evidence"]["rule"] == golden.rule)
            });
        }
        type_line(&world, &pane, "exit 0");
        until(&mut watch, "ended");
    }
}

#[test]
fn what_was_there_before_is_known_at_the_first_question() {
    let (world, pane) = stage(&["claude"]);
    type_line(&world, &pane, "claude");
    eventually("it draws", || world.tmux(&["capture-pane", "-p", "-t", &pane]).contains("is here"));
    show(&world, &pane, &golden("claude-permission-bash"));
    eventually("it asks", || world.tmux(&["capture-pane", "-p", "-t", &pane]).contains("3. No"));
    let agents = listed(&world);
    assert_eq!(agents.iter().map(what).collect::<Vec<_>>(), [("claude", "permission")]);
    let agent = &agents[0];
    let about = "Bash command\nrm -rf build\nRemove the build directory\nDo you want to proceed?";
    assert_eq!(agent["question"], about);
    assert_eq!(
        (agent["options"][0]["selected"].as_bool(), agent["options"][1]["selected"].as_bool()),
        (Some(true), Some(false))
    );
    assert_eq!(agent["evidence"]["rows"][0]["row"], 9);
    let table = world.ok(&["agents"]);
    assert!(table.starts_with("ID") && table.contains("wide:0.0  Claude Code  permission"), "{table}");
    assert!(table.contains("⏎ rm -rf build ⏎"), "{table}");
    assert!(table.contains("Do you want to proceed? [1) Yes | 2)"), "{table}");
    assert!(world.json(&["agents", "-t", "other"])["agents"].as_array().unwrap().is_empty());
    assert_eq!(world.json(&["agents", "-t", "wide"])["agents"].as_array().unwrap().len(), 1);
    let http = world.http("GET", &format!("/v1/agents{}", world.query()), None);
    assert_eq!((http.status, &http.json()["agents"][0]["evidence"]), (200, &agent["evidence"]));
}

/// A dialog that an agent prints is not its own: neither above its prompt, nor below its own
/// dialog. A question names the command, and is answered only while it is certain.
#[test]
fn a_forged_dialog_is_not_taken_for_the_agents_own() {
    let (world, pane) = stage(&["claude"]);
    world.ok(&["list-panes"]);
    let mut watch = watch(&world);
    let mut client = crate::mcp::Client::new(&world);
    type_line(&world, &pane, "claude");
    assert_eq!(what(&next(&mut watch)), ("claude", "idle"));
    for name in ["claude-attack-above-prompt", "claude-attack-typed", "claude-attack-above-new-prompt"] {
        show(&world, &pane, &golden("claude-working"));
        until(&mut watch, "working");
        show(&world, &pane, &golden(name));
        let told = until(&mut watch, "idle");
        assert_eq!((told["question"].as_str(), options(&told)), (None, Vec::new()), "{name}");
    }
    show(&world, &pane, &golden("claude-permission-long"));
    let real = until(&mut watch, "permission");
    let question = real["question"].as_str().unwrap();
    assert!(question.contains("| sh\nEOF\nrm -rf ~/Documents\nDo you want to proceed?"), "{question}");
    // A forged dialog is printed below it before the answer arrives.
    show(&world, &pane, &golden("claude-attack-below"));
    let unsure = until(&mut watch, "question");
    assert_eq!((&unsure["question_id"], options(&unsure)), (&Value::Null, Vec::new()), "{unsure}");
    let given = serde_json::json!({"target": pane, "answer": "1", "question_id": real["question_id"]});
    let error = client.fails("CONFLICT", "send_keys", &given);
    assert!(error.contains("no key was pressed"), "{error}");
    assert_eq!(listed(&world)[0]["evidence"]["rule"], "uncertain");
}

/// An agent counts some characters narrower than tmux does, or lets the terminal wrap. The rest of
/// a row then begins at the first column, where a command can make it look like the dialog's
/// border, title or answers.
#[test]
fn a_wrapped_row_hides_no_part_of_the_command() {
    let (world, pane) = stage(&["claude"]);
    world.ok(&["list-panes"]);
    let mut watch = watch(&world);
    type_line(&world, &pane, "claude");
    next(&mut watch);
    let (rule, letters) = ("\u{2500}".repeat(120), "x".repeat(109));
    for padding in [
        format!("{}xxx{}", "\u{1f44d}\u{1f3fd}".repeat(26), &rule[..60]),
        format!("{}x{}", "\u{3164}".repeat(53), &rule[..90]),
        format!("{letters}{}", &rule[..90]),
        format!("{letters}{rule}{}", &rule[..90]),
        format!("{}{}", " ".repeat(109), &rule[..90]),
        format!("{letters}Bash command"),
        format!("{letters}\u{276f} 1. Yes"),
        format!("{letters}\u{276f} "),
    ] {
        show(&world, &pane, &golden("claude-working"));
        until(&mut watch, "working");
        let tail = "   Lists files\n\n Do you want to proceed?\n \u{276f} 1. Yes\n   2. No\n\n Esc to cancel";
        let text = format!("{rule}\n Bash command\n\n rm -rf ~ #{padding}\n   ls\n{tail}");
        show_text(&world, &pane, &text);
        let told = until(&mut watch, "permission");
        let question = told["question"].as_str().unwrap();
        assert!(question.starts_with("Bash command\nrm -rf ~ #"), "{padding}: {told}");
        assert!(question.ends_with("\nls\nLists files\nDo you want to proceed?"), "{padding}: {told}");
        assert_eq!(options(&told), ["1: Yes", "2: No"], "{padding}");
        // The rest is above the screen's first row.
        show(&world, &pane, &golden("claude-working"));
        until(&mut watch, "working");
        show_text(&world, &pane, &format!("{}\n{text}", "\n".repeat(40)));
        let told = until(&mut watch, "permission");
        assert!(told["question"].as_str().unwrap().contains("rm -rf ~ #"), "{padding}: {told}");
    }
    // Only the wrapped part is on the screen.
    show(&world, &pane, &golden("claude-working"));
    until(&mut watch, "working");
    let above = format!("{rule}\n Bash command\n\n rm -rf ~ #{letters}{rule}\n");
    let rows = " a step\n".repeat(34);
    show_text(&world, &pane, &format!("{above}{rows}\n Do you want to proceed?\n \u{276f} 1. Yes\n   2. No\n "));
    let told = until(&mut watch, "permission");
    assert!(told["question"].as_str().unwrap().starts_with("\u{2026}\n"), "{told}");
}

#[test]
fn moving_the_cursor_is_known_but_no_event() {
    let (world, pane) = stage(&["claude"]);
    world.ok(&["list-panes"]);
    let mut watch = watch(&world);
    type_line(&world, &pane, "claude");
    next(&mut watch);
    show_text(&world, &pane, "Do you want to proceed?\n❯ 1. Yes\n  2. No");
    assert_eq!(what(&next(&mut watch)), ("claude", "permission"));
    show_text(&world, &pane, "Do you want to proceed?\n  1. Yes\n❯ 2. No");
    eventually("the cursor moved", || listed(&world)[0]["options"][1]["selected"] == true);
    show_text(&world, &pane, "Do you want to proceed?\n❯ 1. Yes\n  2. Never");
    assert_eq!(options(&next(&mut watch)), ["1: Yes", "2: Never"]);
}

#[test]
fn a_screen_that_never_rests_is_read_all_the_same() {
    let (world, pane) = stage(&["claude"]);
    world.ok(&["list-panes"]);
    let mut watch = watch(&world);
    type_line(&world, &pane, "claude");
    next(&mut watch);
    type_line(&world, &pane, "flood x (esc to interrupt)");
    // Events before it may show a half-drawn screen.
    assert_eq!(what(&until(&mut watch, "working")), ("claude", "working"));
    world.tmux(&["send-keys", "-t", &pane, "C-c"]);
    assert_eq!(what(&until(&mut watch, "ended")), ("claude", "ended"));
}

#[test]
fn only_what_runs_counts_and_not_who_names_it() {
    let (world, pane) = stage(&["claude"]);
    world.ok(&["list-panes"]);
    let mut watch = watch(&world);
    // Stopped and continued.
    type_line(&world, &pane, "claude");
    assert_eq!(what(&next(&mut watch)), ("claude", "idle"));
    world.tmux(&["send-keys", "-t", &pane, "C-z"]);
    assert_eq!(what(&next(&mut watch)), ("claude", "ended"));
    type_line(&world, &pane, "fg");
    assert_eq!(what(&next(&mut watch)), ("claude", "idle"));
    type_line(&world, &pane, "exit 0");
    assert_eq!(what(&next(&mut watch)), ("claude", "ended"));
    // Started by a script in the same process group.
    put(&world.path("bin/wrapper"), "#!/bin/sh\necho first\nclaude\necho and then\nread -r line\n");
    type_line(&world, &pane, "wrapper");
    assert_eq!(what(&next(&mut watch)), ("claude", "idle"));
    type_line(&world, &pane, "exit 0");
    assert_eq!(what(&next(&mut watch)), ("claude", "ended"));
    type_line(&world, &pane, "");
    // A shell that was given the agent's name.
    let path = world.path("bin/claude");
    let told = world.tmux(&[
        "new-window",
        "-d",
        "-t",
        "wide:",
        "-P",
        "-F",
        "#{pane_id}",
        &format!("{}; exec sleep 60", path.display()),
    ]);
    let agent = next(&mut watch);
    assert_eq!((what(&agent), &agent["pane"]), (("claude", "idle"), &Value::from(told.as_str())));
    type_line(&world, &told, "exit 0");
    assert_eq!(what(&next(&mut watch)), ("claude", "ended"));
    assert!(listed(&world).iter().all(|agent| agent["state"] == "ended"));
}

#[test]
fn an_agent_that_muxtap_starts_is_known() {
    let (world, _) = stage(&["codex"]);
    world.ok(&["list-panes"]);
    let mut watch = watch(&world);
    let pane = world.ok(&["new-window", "-t", "wide", "--", "codex"]);
    let agent = next(&mut watch);
    assert_eq!((what(&agent), &agent["pane"]), (("codex", "idle"), &Value::from(pane.as_str())));
    type_line(&world, &pane, "exit 2");
    assert_eq!(what(&next(&mut watch)), ("codex", "ended"));
}

#[test]
fn rules_of_ones_own_add_to_those_that_are_there() {
    let (mut world, pane) = stage(&["mine"]);
    let file = world.path("own.toml");
    fs::write(
        &file,
        "[[agent]]\nid = 'mine'\nname = 'My agent'\nprograms = ['mine']\n\
         [[agent.rule]]\nname = 'busy'\nstate = 'working'\ntitle = '^busy'\n\
         [[agent.rule]]\nname = 'rang'\nstate = 'question'\npriority = 150\nbell = true\n",
    )
    .unwrap();
    world.set("MUXTAP_AGENTS_FILE", file.display().to_string());
    world.ok(&["list-panes"]);
    let mut watch = watch(&world);
    type_line(&world, &pane, "mine");
    assert_eq!(what(&next(&mut watch)), ("mine", "idle"));
    type_line(&world, &pane, "bell");
    assert_eq!(what(&next(&mut watch)), ("mine", "question"));
    // The agent continues working, so the bell is outdated.
    type_line(&world, &pane, "title busy now");
    assert_eq!(what(&next(&mut watch)), ("mine", "working"));
    type_line(&world, &pane, "title done");
    assert_eq!(what(&next(&mut watch)), ("mine", "idle"));
    type_line(&world, &pane, "bell");
    assert_eq!(what(&next(&mut watch)), ("mine", "question"));
}

/// A person's client shows the line, by the plugin; a session's name is no style.
#[test]
fn the_status_line_shows_who_asks_and_never_starts_a_daemon() {
    let (world, pane) = stage(&["claude"]);
    // tmux starts the command again: a daemon that was stopped stays so.
    let silent = world.muxtap(&["status-line"]);
    assert_eq!((silent.text().as_str(), silent.stderr.as_str(), silent.status), ("", "", 0));
    assert_eq!(world.muxtap(&["status"]).status, 1);
    let bin = Path::new(env!("CARGO_BIN_EXE_muxtap"));
    // The plugin's tmux is that of the server.
    if tmux_program().starts_with('/') {
        std::os::unix::fs::symlink(tmux_program(), world.path("bin/tmux")).unwrap();
    }
    world.tmux(&["rename-session", "-t", "wide", "a#[fg=red]b"]);
    world.tmux(&["set-option", "-g", "@muxtap_program", &bin.display().to_string()]);
    world.tmux(&["set-option", "-g", "@muxtap_format", "({?asking:{target} asks}{working} works)"]);
    world.tmux(&["set-option", "-g", "status-right", "<#{muxtap_agents}>"]);
    world.tmux(&["set-option", "-g", "status-right-length", "60"]);
    world.tmux(&["set-option", "-g", "status-interval", "1"]);
    world.ok(&["list-panes"]);
    let plugin = concat!(env!("CARGO_MANIFEST_DIR"), "/muxtap.tmux");
    world.tmux(&["run-shell", plugin]);
    // A person's terminal is a pane of another server.
    let outer = World::new();
    let person = outer.tmux(&["new-session", "-d", "-x", "120", "-y", "30", "-P", "-F", "#{pane_id}", "exec sh"]);
    let attach = format!("TMUX= TERM=screen exec {} -u -S {} attach", tmux_program(), world.socket().display());
    type_line(&outer, &person, &attach);
    let bar = || {
        let screen = outer.tmux(&["capture-pane", "-p", "-t", &person]);
        screen.lines().last().unwrap_or_default().to_owned()
    };
    eventually("the line of no agent", || bar().contains("<(0 works)>"));
    type_line(&world, &pane, "claude");
    show_text(&world, &pane, "✻ Thinking… (esc to interrupt)\n");
    eventually("the line of one that works", || bar().contains("<(1 works)>"));
    show_text(&world, &pane, "Do you want to proceed?\n❯ 1. Yes\n  2. No\n");
    eventually("the line of one that asks", || bar().contains("<(a#[fg=red]b:0.0 asks0 works)>"));
    world.ok(&["stop"]);
    eventually("the line without a daemon", || bar().contains("<>"));
    assert_eq!(world.muxtap(&["status"]).status, 1);
}

/// Progress (OSC 9;4) and notifications (OSC 9, 99, 777) are inputs of rules, and rules can be for one project.
#[test]
fn progress_notifications_and_the_project_choose_rules() {
    let (mut world, pane) = stage(&["mine"]);
    let (file, project) = (world.path("own.toml"), world.path("project"));
    fs::create_dir_all(project.join("deep")).unwrap();
    let projects =
        if cfg!(target_os = "linux") { format!("projects = ['{}']\n", project.display()) } else { String::new() };
    fs::write(
        &file,
        format!(
            "[[agent]]\nid = 'mine'\nprograms = ['mine']\n\
             [[agent.rule]]\nname = 'busy'\nstate = 'working'\nprogress = 'running'\n\
             [[agent.rule]]\nname = 'failed'\nstate = 'errored'\nprogress = 'failed'\n{projects}\
             [[agent.rule]]\nname = 'asks'\nstate = 'question'\npriority = 150\nnotification = '(?m)^Approve'\n\
             [[agent.rule]]\nname = 'elsewhere'\nstate = 'errored'\npriority = 900\nprogress = 'failed'\n\
             projects = ['/elsewhere', '~/deep']\n"
        ),
    )
    .unwrap();
    world.set("MUXTAP_AGENTS_FILE", file.display().to_string());
    world.ok(&["list-panes"]);
    let mut watch = watch(&world);
    // What another program reported before does not count.
    type_line(&world, &pane, &format!("printf '\\033]9;4;1;50\\007'; cd {}", project.join("deep").display()));
    type_line(&world, &pane, "mine");
    assert_eq!(what(&next(&mut watch)), ("mine", "idle"));
    for (shown, state, rule) in [
        ("\x1b]9;4;1;10\x07", "working", "busy"),
        ("\x1b]9;4;2;10\x07", "errored", "failed"),
        ("\x1b]777;notify;mine;Approve?\x07", "question", "asks"),
        // The agent continues working, so the notification is outdated.
        ("\x1b]9;4;3\x07\x1b]9;4;1;90\x07", "working", "busy"),
        ("\x1b]9;4;0\x07", "idle", "none"),
        ("\x1b]9;Approve the plan\x07", "question", "asks"),
    ] {
        show_text(&world, &pane, shown);
        let agent = until(&mut watch, state);
        assert_eq!((what(&agent), agent["evidence"]["rule"].as_str()), (("mine", state), Some(rule)), "{shown:?}");
    }
}

/// The file is read when it comes into being, is replaced, written in place, or removed, without a new
/// daemon; one that is wrong changes nothing.
#[test]
#[cfg(target_os = "linux")]
fn a_changed_file_is_in_effect_at_once_and_a_wrong_one_keeps_the_rules() {
    let (world, pane) = stage(&["mine"]);
    world.ok(&["list-panes"]);
    let mut watch = watch(&world);
    type_line(&world, &pane, "mine");
    type_line(&world, &pane, "title busy now");
    let title = || world.json(&["list-panes"])["panes"][0]["title"].clone();
    eventually("the program's title", || title() == "busy now");
    assert_eq!(world.json(&["agents"])["agents"], json!([]));
    // Neither the file nor its directory is there when the daemon starts.
    let own = world.path("home/muxtap/agents.toml");
    assert!(!own.parent().unwrap().exists());
    fs::create_dir_all(own.parent().unwrap()).unwrap();
    let rules = |rest: &str| format!("[[agent]]\nid = 'mine'\nprograms = ['mine']\n{rest}");
    fs::write(&own, rules("")).unwrap();
    assert_eq!(what(&next(&mut watch)), ("mine", "idle"));
    // Editors replace a file.
    let busy = "[[agent.rule]]\nname = 'busy'\nstate = 'working'\ntitle = '^busy'\n";
    let replace = |text: String| {
        let new = world.path("home/muxtap/new.toml");
        fs::write(&new, text).unwrap();
        fs::rename(&new, &own).unwrap();
    };
    replace(rules(busy));
    assert_eq!(what(&next(&mut watch)), ("mine", "working"));
    // An invalid file is reported, and the rules that were read before stay.
    replace(rules("[[agent.rule]]\nname = 'busy'\nstate = 'idle'\ntitle = '('\n"));
    let error = || world.json(&["agents"])["rules_error"].clone();
    eventually("the error", || error().as_str().is_some_and(|error| error.contains("rule `busy`: `title`: ")));
    assert_eq!(what(&world.json(&["agents"])["agents"][0]), ("mine", "working"));
    // Written in place, by way of a link.
    let target = world.path("target.toml");
    fs::write(&target, rules(&busy.replace("working", "errored"))).unwrap();
    fs::remove_file(&own).unwrap();
    std::os::unix::fs::symlink(&target, &own).unwrap();
    assert_eq!(what(&until(&mut watch, "errored")), ("mine", "errored"));
    assert_eq!(error(), Value::Null);
    fs::write(&target, rules(&busy.replace("working", "question"))).unwrap();
    assert_eq!(what(&until(&mut watch, "question")), ("mine", "question"));
    // The directory is moved away, with the file, and made again.
    let home = world.path("home");
    fs::rename(&home, world.path("away")).unwrap();
    fs::create_dir_all(own.parent().unwrap()).unwrap();
    fs::write(&own, rules(&busy.replace("working", "idle"))).unwrap();
    assert_eq!(what(&until(&mut watch, "idle")), ("mine", "idle"));
    // Instead of the directory a link to one, which is pointed elsewhere.
    let folder = own.parent().unwrap();
    for (name, state) in [("one", "working"), ("two", "errored")] {
        let real = world.path(name);
        fs::create_dir(&real).unwrap();
        fs::write(real.join("agents.toml"), rules(&busy.replace("working", state))).unwrap();
        if folder.is_symlink() {
            fs::remove_file(folder).unwrap();
        } else {
            fs::remove_dir_all(folder).unwrap();
        }
        std::os::unix::fs::symlink(&real, folder).unwrap();
        assert_eq!(what(&until(&mut watch, state)), ("mine", state));
    }
    // Without the file, a running agent keeps its rules.
    let reads = || fs::read_to_string(world.path("m.sock.log")).unwrap().matches("read the agent rules").count();
    let before = reads();
    fs::remove_file(&own).unwrap();
    eventually("the rules without the file", || reads() > before);
    assert_eq!(what(&world.json(&["agents"])["agents"][0]), ("mine", "errored"));
    type_line(&world, &pane, "title done");
    assert_eq!(what(&next(&mut watch)), ("mine", "idle"));
    type_line(&world, &pane, "exit 0");
    assert_eq!(what(&next(&mut watch)), ("mine", "ended"));
}

/// The first version on the agent's screen selects rules. `doctor` reports a version that is newer than
/// the rules were tested with.
#[test]
fn a_version_chooses_rules_and_one_that_is_too_new_is_told() {
    let (mut world, pane) = stage(&["claude"]);
    let file = world.path("own.toml");
    let rule = |name: &str, state: &str, versions: &str| {
        format!(
            "[[agent.rule]]\nname = '{name}'\nstate = '{state}'\nversions = '{versions}'\nscreen = ['now it acts']\n"
        )
    };
    let rules = rule("old", "errored", "<99") + &rule("new", "working", ">=99.1, <100");
    fs::write(&file, format!("[[agent]]\nid = 'claude'\n{rules}")).unwrap();
    world.set("MUXTAP_AGENTS_FILE", file.display().to_string());
    world.ok(&["list-panes"]);
    let mut watch = watch(&world);
    type_line(&world, &pane, "claude");
    let agent = next(&mut watch);
    assert_eq!((what(&agent), &agent["version"], &agent["untested"]), (("claude", "idle"), &Value::Null, &Value::Null));
    // While the version is unknown, neither rule applies.
    show_text(&world, &pane, "now it acts\n");
    world.ok(&["wait-for", "-t", &pane, "--screen", "now it acts", "--stable", "0.1"]);
    assert_eq!(what(&world.json(&["agents"])["agents"][0]), ("claude", "idle"));
    show_text(&world, &pane, "Claude Code v99.1.2\nnow it acts\n");
    let agent = next(&mut watch);
    assert_eq!((what(&agent), &agent["version"]), (("claude", "working"), &json!("99.1.2")));
    assert_eq!((&agent["evidence"]["rule"], &agent["untested"]), (&json!("new"), &json!(true)));
    // Another text does not change it.
    show_text(&world, &pane, "Claude Code v1.0.0\nquiet\n");
    let agent = next(&mut watch);
    assert_eq!((what(&agent), &agent["version"]), (("claude", "idle"), &json!("99.1.2")));
    let doctor = world.json(&["doctor"]);
    let says = format!("Claude Code 99.1.2 in {pane} is newer");
    let checks = doctor["checks"].as_array().unwrap();
    let told = |check: &&Value| check["message"].as_str().unwrap().starts_with(&says);
    assert_eq!(checks.iter().find(told).map(|check| &check["status"]), Some(&json!("warning")), "{doctor}");
}

#[test]
fn a_wrong_file_is_told_with_line_and_rule() {
    let (mut world, _) = stage(&[]);
    let text = "[[agent]]\nid = 'claude'\n[[agent.rule]]\nname = 'bad'\nstate = 'idle'\nscreen = ['(']\n";
    let says = "line 6: agent `claude`, rule `bad`: `screen`: ";
    // An invalid file in the default place: the daemon runs without it and reports that.
    let own = world.path("home/muxtap/agents.toml");
    fs::create_dir_all(own.parent().unwrap()).unwrap();
    fs::write(&own, text).unwrap();
    let answer = world.json(&["agents"]);
    assert!(answer["rules_error"].as_str().unwrap().contains(says), "{answer}");
    let log = fs::read_to_string(world.path("m.sock.log")).unwrap();
    assert!(log.contains(says) && log.contains("home/muxtap/agents.toml"), "{log}");
    let doctor = world.json(&["doctor"]);
    let check = doctor["checks"].as_array().unwrap().iter().find(|check| check["name"] == "agents").unwrap().clone();
    assert!(check["status"] == "warning" && check["message"].as_str().unwrap().contains(says), "{check}");
    world.ok(&["stop"]);
    // An invalid file that was named explicitly: the daemon does not start.
    world.set("MUXTAP_AGENTS_FILE", own.display().to_string());
    let answer = world.muxtap(&["list-panes"]);
    assert!(answer.status == 2 && answer.stderr.contains(says), "{answer:?}");
    fs::write(&own, "").unwrap();
    world.ok(&["list-panes"]);
    assert_eq!(world.json(&["agents"])["rules_error"], Value::Null);
}

/// Events cost tmux nothing if screens are followed in memory.
#[test]
fn tmux_is_asked_nothing_while_agents_are_watched() {
    let (world, pane) = stage(&["claude"]);
    // A window's name that follows its program changes some time later, and the structure is then
    // read again.
    world.tmux(&["set-option", "-g", "automatic-rename", "off"]);
    world.ok(&["list-panes"]);
    let mut watch = watch(&world);
    type_line(&world, &pane, "claude");
    next(&mut watch);
    let captured = world.json(&["capture-pane", "-t", &pane]);
    if captured["source"] != "model" {
        println!("tmux {} is not followed in memory", world.tmux(&["-V"]));
        return;
    }
    let before = world.metric("muxtap_tmux_commands_total");
    for _ in 0..5 {
        for name in ["claude-working-timer", "claude-permission-bash", "claude-question", "claude-start"] {
            let golden = golden(name);
            show_text(&world, &pane, &golden.screen);
            until(&mut watch, &golden.state);
        }
    }
    assert_eq!(world.metric("muxtap_tmux_commands_total") - before, 0);
}
