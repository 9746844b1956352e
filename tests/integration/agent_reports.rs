//! Reports of agents about themselves, joined with what their screens show.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    agents::{golden, listed, next, put, show, stage, until, watch},
    common::{Stopped, World, eventually, type_line},
};

/// The words that call muxtap in a pane.
fn muxtap(world: &World) -> String {
    world.plain_muxtap_command().get_program().to_str().unwrap().to_owned()
}

/// Makes the fake agent report, as its hook would.
fn report(world: &World, pane: &str, args: &str) {
    type_line(world, pane, &format!("run {} report-agent --source claude {args}", muxtap(world)));
}

/// Starts the fake `claude` in a world that is watched.
fn started() -> (World, String, crate::common::Background) {
    let (world, pane) = stage(&["claude"]);
    world.ok(&["list-panes"]);
    let mut watch = watch(&world);
    type_line(&world, &pane, "claude");
    until(&mut watch, "idle");
    (world, pane, watch)
}

fn joined(agent: &Value) -> (&str, &str) {
    (agent["evidence"]["source"].as_str().unwrap_or(""), agent["evidence"]["joined"].as_str().unwrap_or(""))
}

#[test]
fn a_report_is_joined_with_the_screen_until_the_process_ends() {
    let (world, pane, mut watch) = started();
    report(&world, &pane, "--state working --message 'running tests' --session s1");
    let works = until(&mut watch, "working");
    assert_eq!((joined(&works), works["evidence"]["rule"].as_str()), (("claude", "unseen"), Some("report")));
    assert_eq!((&works["evidence"]["message"], &works["evidence"]["session"]), (&json!("running tests"), &json!("s1")));
    // The dialog's own answers and their id come from the screen.
    report(&world, &pane, "--state permission --question 'may I?'");
    let asks = until(&mut watch, "permission");
    assert_eq!((&asks["question"], &asks["question_id"]), (&json!("may I?"), &Value::Null));
    show(&world, &pane, &golden("claude-permission-bash"));
    let dialog = loop {
        let event = until(&mut watch, "permission");
        if event["question_id"].is_string() {
            break event;
        }
    };
    assert_eq!(joined(&dialog), ("claude", "dialog"));
    // It is answered, and no hook says so.
    show(&world, &pane, &golden("claude-working"));
    let works = until(&mut watch, "working");
    // By its rows or its title, whichever was drawn first.
    assert_ne!(works["evidence"]["rule"], "report");
    report(&world, &pane, "--state working");
    eventually("the report is confirmed", || joined(&listed(&world)[0]) == ("claude", "same"));
    // Esc fires no hook.
    show(&world, &pane, &golden("claude-start"));
    let idle = until(&mut watch, "idle");
    assert_eq!(joined(&idle), ("claude", "interrupted"));
    report(&world, &pane, "--state errored");
    until(&mut watch, "errored");
    type_line(&world, &pane, "exit 1");
    let ended = until(&mut watch, "ended");
    assert_eq!(ended["evidence"]["rule"], "process");
    let explained = world.json(&["agents", "explain", "-t", &pane]);
    assert_eq!((&explained["reports"], &explained["agent"]["state"]), (&json!([]), &json!("ended")));
}

#[test]
fn explain_says_what_was_considered() {
    let (world, pane, mut watch) = started();
    report(&world, &pane, "--state working --seq 5");
    until(&mut watch, "working");
    let explained = world.json(&["agents", "explain", "-t", &pane]);
    assert_eq!(explained["screen"]["state"], "idle");
    let known = &explained["reports"][0];
    assert_eq!((&known["seq"], &known["phase"], &known["counts"]), (&json!(5), &json!("fresh"), &json!(true)));
    assert_eq!(known["pid"], explained["agent"]["pid"]);
    let rules = explained["rules"].as_array().unwrap();
    assert!(rules.iter().any(|rule| rule["rule"] == "esc-to-interrupt" && rule["applies"] == false), "{explained}");
    assert!(explained["processes"].as_array().unwrap().iter().any(|one| one["agent"] == "claude"), "{explained}");
    let http = world.http("GET", &format!("/v1/panes/{}/agent{}", &pane.replace('%', "%25"), world.query()), None);
    assert_eq!((http.status, &http.json()["reports"][0]["seq"]), (200, &json!(5)));
    let text = world.ok(&["agents", "explain", "-t", &pane]);
    for part in
        ["Claude Code is working", "report of claude and the screen (unseen)", "working by claude, fresh, counts"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn an_older_report_is_ignored() {
    let (world, pane, mut watch) = started();
    let path = format!("/v1/panes/{}/agent{}", pane.replace('%', "%25"), world.query());
    let send = |seq: u64, state: &str| {
        let answer = world.http("POST", &path, Some(&json!({"state": state, "source": "claude", "seq": seq})));
        assert_eq!(answer.status, 200);
        answer.json()["accepted"].as_bool().unwrap()
    };
    assert!(send(7, "working"));
    until(&mut watch, "working");
    assert!(!send(7, "errored") && !send(6, "errored"));
    assert_eq!(listed(&world)[0]["state"], "working");
    assert!(send(8, "errored"));
    until(&mut watch, "errored");
    let wrong = world.http("POST", &path, Some(&json!({"state": "ended", "source": "claude", "seq": 9})));
    assert_eq!((wrong.status, &wrong.json()["code"]), (400, &json!("INVALID_ARGUMENT")));
}

#[test]
fn a_hostile_pane_cannot_report_for_another() {
    let (mut world, pane, mut watch) = started();
    let hostile = world.tmux(&["new-window", "-d", "-t", "wide:", "-P", "-F", "#{pane_id}", "exec sh"]);
    let command = format!("{} report-agent --state errored --source claude", muxtap(&world));
    // By its target, and by another pane's environment.
    for (number, line) in [format!("{command} -t {pane}"), format!("TMUX_PANE={pane} {command}")].iter().enumerate() {
        type_line(&world, &hostile, &format!("{line}; echo over{number} $?"));
        world.await_output(&hostile, &format!("^over{number} 1$"));
    }
    assert!(world.read_all(&hostile).replace('\n', "").contains("does not run in pane"));
    // One whose parent has gone is on its pane's terminal still.
    type_line(&world, &hostile, &format!("(sh -c '({command} -t {pane} 2>&1; echo orphan$?) & exit'); read -r x"));
    world.await_output(&hostile, "^orphan1$");
    type_line(&world, &hostile, "");
    // One that has left that as well is in no pane, whatever its environment says, and reports for no agent but a
    // `claude`.
    let away = world.path("bin/away");
    let script = "#!/bin/sh\nout=$1; shift\n\
                  while grep -q setsid /proc/$PPID/comm 2>/dev/null; do :; done\n\
                  \"$@\" > $out 2>&1; echo over$? >> $out\n";
    put(&away, script);
    for (number, (of, says)) in [("claude", "without -t"), ("other", "from outside")].into_iter().enumerate() {
        let out = world.path(&format!("away{number}"));
        let target = if number == 0 { String::new() } else { format!("-t {pane}") };
        let command = format!("{} report-agent --state errored --source {of} {target}", muxtap(&world));
        let line = format!("TMUX_PANE={pane} setsid -f {} {} {command}", away.display(), out.display());
        type_line(&world, &hostile, &line);
        eventually("the report is refused", || fs::read_to_string(&out).is_ok_and(|text| text.contains("over1")));
        assert!(fs::read_to_string(&out).unwrap().contains(says));
    }
    // One that leaves its connection at once.
    let quick = format!("{command} --quiet -t {pane} & kill -9 $!; wait; echo gone");
    type_line(&world, &hostile, &quick);
    world.await_output(&hostile, "^gone");
    assert_eq!(listed(&world)[0]["state"], "idle");
    // The user, outside of all panes, may, for the agent that runs.
    let outside = |source: &'static str| ["report-agent", "--state", "working", "--source", source];
    world.error("UNAUTHORIZED", &[&outside("supervisor")[..], &["-t", &pane]].concat());
    world.error("UNAUTHORIZED", &[&outside("sh")[..], &["-t", &hostile]].concat());
    world.ok(&[&outside("claude")[..], &["-t", &pane]].concat());
    assert_eq!(joined(&until(&mut watch, "working")).0, "claude");
    world.ok(&["stop"]);
    world.set("MUXTAP_READ_ONLY", "true");
    world.error("READ_ONLY", &["report-agent", "--state", "idle", "--source", "x", "-t", &pane]);
    world.ok(&["agents", "explain", "-t", &pane]);
}

#[test]
fn a_program_that_no_rule_knows_is_an_agent_while_it_lives() {
    let (world, pane) = stage(&[]);
    world.ok(&["list-panes"]);
    put(
        &world.path("bin/mytool"),
        &format!("#!/bin/sh\n{} report-agent --source mytool --state working\nread -r line\n", muxtap(&world)),
    );
    let mut watch = watch(&world);
    type_line(&world, &pane, "mytool");
    let works = next(&mut watch);
    assert_eq!((&works["agent"], &works["state"]), (&json!("mytool"), &json!("working")));
    type_line(&world, &pane, "");
    let ended = until(&mut watch, "ended");
    assert_eq!((&ended["agent"], &ended["pid"]), (&json!("mytool"), &works["pid"]));
}

/// A pane that has just begun, or was respawned, has another process than when it was listed.
#[test]
fn a_program_that_reports_as_it_begins_is_an_agent() {
    let (world, pane) = stage(&[]);
    world.ok(&["list-panes"]);
    let program = world.path("bin/mytool");
    put(
        &program,
        &format!("#!/bin/sh\n{} report-agent --source mytool --state working\nread -r line\n", muxtap(&world)),
    );
    let mut watch = watch(&world);
    let mut before = Value::Null;
    for _ in 0..10 {
        world.tmux(&["respawn-pane", "-k", "-t", &pane, program.to_str().unwrap()]);
        let works = loop {
            let event = until(&mut watch, "working");
            if event["pid"] != before {
                break event;
            }
        };
        before = works["pid"].clone();
    }
    let made = world.ok(&["new-session", "-s", "made", "--", program.to_str().unwrap()]);
    assert_eq!(until(&mut watch, "working")["pane"], json!(made.trim()));
}

#[test]
fn a_second_source_neither_ends_an_agent_nor_renames_it() {
    let (world, pane) = stage(&[]);
    world.ok(&["list-panes"]);
    let command = format!("{} report-agent", muxtap(&world));
    put(
        &world.path("bin/mytool"),
        &format!(
            "#!/bin/sh\n{command} --source mytool --state working\nread -r line\n\
             {command} --source other --state errored\nread -r line\n"
        ),
    );
    let mut watch = watch(&world);
    type_line(&world, &pane, "mytool");
    let works = next(&mut watch);
    assert_eq!((&works["agent"], &works["state"]), (&json!("mytool"), &json!("working")));
    type_line(&world, &pane, "");
    let errored = next(&mut watch);
    assert_eq!((&errored["agent"], &errored["state"]), (&json!("mytool"), &json!("errored")), "{errored}");
    assert_eq!((&errored["pid"], joined(&errored).0), (&works["pid"], "other"));
    let known = world.json(&["agents", "explain", "-t", &pane])["reports"].as_array().unwrap().len();
    assert_eq!(known, 2);
    type_line(&world, &pane, "");
    assert_eq!(until(&mut watch, "ended")["agent"], "mytool");
}

#[test]
fn the_opencode_plugin_does_not_report_a_sub_agents_end() {
    let world = World::new();
    let plugin = world.path("home/opencode/plugins/muxtap.js");
    world.ok(&["agents", "install", "opencode"]);
    let seen = world.path("seen");
    put(&world.path("reporter"), &format!("#!/bin/sh\necho \"$@\" >> '{}'\n", seen.display()));
    let text = fs::read_to_string(&plugin).unwrap();
    let reporter = world.path("reporter").display().to_string();
    fs::write(world.path("plugin.mjs"), text.replace(&muxtap(&world), &reporter)).unwrap();
    let script = "import { Muxtap } from './plugin.mjs'
        const { event } = await Muxtap()
        const send = (type, properties) => event({ event: { type, properties } })
        await send('session.created', { info: { id: 'main' } })
        await send('session.created', { info: { id: 'sub', parentID: 'main' } })
        await send('session.status', { sessionID: 'main', status: { type: 'busy' } })
        await send('session.status', { sessionID: 'sub', status: { type: 'busy' } })
        await send('session.error', { sessionID: 'sub' })
        await send('session.idle', { sessionID: 'sub' })
        await send('permission.asked', { sessionID: 'sub' })";
    fs::write(world.path("script.mjs"), script).unwrap();
    let mut node = world.command("node");
    node.arg("script.mjs").current_dir(world.path(".")).env("TMUX_PANE", "%1");
    let Ok(output) = node.output() else { return };
    assert!(output.status.success(), "{output:?}");
    // In the order of the events.
    let states: Vec<String> = fs::read_to_string(&seen)
        .unwrap()
        .lines()
        .map(|line| line.split_once("--state ").unwrap().1.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(states, ["working", "permission"]);
}

/// The process of a report may live longer than the daemon.
#[test]
fn a_daemon_whose_reporter_lives_stops_without_waiting_for_it() {
    let (world, pane, mut watch) = started();
    report(&world, &pane, "--state working");
    until(&mut watch, "working");
    world.ok(&["stop"]);
    let log = fs::read_to_string(world.daemon_socket().with_extension("sock.log")).unwrap();
    assert!(log.contains("stopping") && !log.contains("timeout"), "{log}");
}

#[test]
fn a_hook_reports_what_its_input_says() {
    let (world, pane, _watch) = started();
    let input = world.path("hook.json");
    let hook = format!("run {} report-agent --hook claude < {}", muxtap(&world), input.display());
    for (event, state) in [("UserPromptSubmit", "working"), ("PermissionRequest", "permission"), ("Stop", "idle")] {
        let text = json!({"hook_event_name": event, "session_id": "s", "tool_name": "Bash",
            "tool_input": {"command": "rm -rf build"}, "tool_response": "x".repeat(100_000)});
        fs::write(&input, text.to_string()).unwrap();
        // A hook gives up after a second, on a slow machine too: the next one reports the same.
        eventually(state, || {
            type_line(&world, &pane, &hook);
            listed(&world)[0]["state"] == state && joined(&listed(&world)[0]).0 == "claude"
        });
        if state == "permission" {
            assert_eq!(listed(&world)[0]["question"], "Bash: rm -rf build");
        }
    }
}

#[test]
fn a_hook_is_harmless_without_a_daemon_and_beside_a_hung_one() {
    let (mut world, _) = stage(&[]);
    let silent = |world: &World, args: &[&str], stdin: &[u8]| {
        let answer = world.muxtap_with_stdin(args, stdin);
        assert_eq!((answer.status, answer.text().as_str(), answer.stderr.as_str()), (0, "", ""), "{args:?}");
    };
    let event = br#"{"hook_event_name":"Stop"}"#;
    let state = ["report-agent", "--quiet", "--state", "idle", "--source", "x", "-t", "%0"];
    for hook in [&["report-agent", "--hook", "claude"][..], &["report-agent", "--hook", "claude", "-t", "%0"], &state] {
        silent(&world, hook, event);
    }
    assert!(!world.daemon_socket().exists(), "a hook started a daemon");
    world.ok(&["list-panes"]);
    for stdin in [&b""[..], b"{", b"not json", &[0xff, 0], b"[1]", b"{\"hook_event_name\":\"Unknown\"}"] {
        silent(&world, &["report-agent", "--hook", "claude", "-t", "%0"], stdin);
    }
    silent(&world, &["report-agent", "--quiet", "--state", "idle", "--source", "x", "-t", "none:9"], b"");
    {
        let _hung = Stopped::new(world.daemon_pid().unwrap());
        silent(&world, &state, b"");
    }
    world.ok(&["stop"]);
    world.set("MUXTAP_SOCKET", "/");
    silent(&world, &state, b"");
}

/// The agents whose hooks are JSON, and the user's file of each.
const FILES: [(&str, &str); 5] = [
    ("claude", ".claude/settings.json"),
    ("codex", ".codex/hooks.json"),
    ("gemini", ".gemini/settings.json"),
    ("copilot", ".copilot/hooks/muxtap.json"),
    ("cursor", ".cursor/hooks.json"),
];

/// A person's file: formatted by hand, with hooks of its own.
const THEIRS: &str = "{\n    \"theme\":   \"dark\", \"version\": 1,\n    \"hooks\": { \"Stop\": [\n\t{\"hooks\": \
    [{\"type\": \"command\", \"command\": \"say done\"}]} ] }\n}";

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o7777
}

#[test]
fn an_installation_is_undone_byte_for_byte() {
    let world = World::new();
    for (agent, name) in FILES {
        let (link, file) = (world.path("home").join(name), world.path(&format!("dotfiles-{agent}.json")));
        let backup = file.with_file_name(format!("dotfiles-{agent}.json.before-muxtap"));
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        fs::write(&file, THEIRS).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&file, &link).unwrap();
        let shown = world.ok(&["agents", "install", agent, "--dry-run"]);
        assert!(shown.contains("report-agent --hook") && fs::read_to_string(&file).unwrap() == THEIRS, "{shown}");
        world.ok(&["agents", "install", agent]);
        let text = fs::read_to_string(&file).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&value["theme"], &value["hooks"]["Stop"][0]["hooks"][0]["command"]),
            (&json!("dark"), &json!("say done"))
        );
        assert!(text.contains(&format!("report-agent --hook {agent}")), "{text}");
        assert_eq!((fs::read_to_string(&backup).unwrap().as_str(), mode(&file), mode(&backup)), (THEIRS, 0o640, 0o640));
        assert!(world.ok(&["agents", "install", agent]).contains("already installed"));
        assert_eq!(fs::read_to_string(&backup).unwrap(), THEIRS);
        world.ok(&["agents", "uninstall", agent, "--dry-run"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        world.ok(&["agents", "uninstall", agent]);
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), mode(&file)), (THEIRS, 0o640));
        assert!(!backup.exists() && fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(world.ok(&["agents", "uninstall", agent]).contains("not installed"));
    }
    assert!(!world.daemon_socket().exists(), "no daemon is needed");
}

#[test]
fn an_installation_without_a_file_is_removed_whole() {
    let world = World::new();
    let state = |agent: &str| {
        let all = world.json(&["agents", "status"]);
        let agents = all["agents"].as_array().unwrap();
        agents.iter().find(|one| one["agent"] == agent).unwrap()["state"].as_str().unwrap().to_owned()
    };
    for (agent, name) in FILES.iter().copied().chain([("opencode", "opencode/plugins/muxtap.js")]) {
        let home = world.path("home");
        assert_eq!(state(agent), "not installed");
        world.ok(&["agents", "install", agent]);
        assert!(home.join(name).is_file() && mode(&home.join(name)) == 0o600, "{agent}");
        assert_eq!(state(agent), "installed");
        world.ok(&["agents", "uninstall", agent]);
        assert!(!home.join(name).exists(), "{agent}");
        // Of a project.
        let file = world.path("work");
        world.ok(&["agents", "install", agent, "--project"]);
        world.ok(&["agents", "uninstall", agent, "--project"]);
        assert_eq!(files_below(&file), Vec::<PathBuf>::new(), "{agent}");
    }
}

#[test]
fn a_persons_own_hook_that_calls_muxtap_is_kept() {
    let world = World::new();
    let file = world.path("home/.claude/settings.json");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let theirs = "{\"hooks\": {\"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \
        \"muxtap report-agent --hook claude; say done\"}]}]}}\n";
    fs::write(&file, theirs).unwrap();
    world.ok(&["agents", "install", "claude"]);
    assert!(fs::read_to_string(&file).unwrap().contains("--hook claude; say done"));
    assert_eq!(fs::read_to_string(file.with_file_name("settings.json.before-muxtap")).unwrap(), theirs);
    world.ok(&["agents", "uninstall", "claude"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), theirs);
}

#[test]
fn a_projects_backup_is_kept_outside_of_the_project() {
    let world = World::new();
    let file = world.path("work/.claude/settings.local.json");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, THEIRS).unwrap();
    let kept = || {
        let all = files_below(&world.path("."));
        all.into_iter().filter(|path| path.to_str().unwrap().ends_with(".before-muxtap")).collect::<Vec<_>>()
    };
    world.ok(&["agents", "install", "claude", "--project"]);
    assert_eq!(files_below(&world.path("work")), std::slice::from_ref(&file));
    let [backup] = &kept()[..] else { panic!("{:?}", kept()) };
    assert_eq!((fs::read_to_string(backup).unwrap().as_str(), mode(backup)), (THEIRS, 0o600));
    assert!(backup.to_str().unwrap().contains("muxtap/agent-hooks/"), "{backup:?}");
    world.ok(&["agents", "uninstall", "claude", "--project"]);
    assert_eq!((fs::read_to_string(&file).unwrap().as_str(), kept().len()), (THEIRS, 0));
}

#[test]
fn a_plugin_of_another_version_is_removed_and_an_edited_one_is_kept_beside_it() {
    let world = World::new();
    let file = world.path("home/opencode/plugins/muxtap.js");
    let backup = file.with_file_name("muxtap.js.before-muxtap");
    world.ok(&["agents", "install", "opencode"]);
    let edited = fs::read_to_string(&file).unwrap() + "// mine: a test\n";
    fs::write(&file, &edited).unwrap();
    world.ok(&["agents", "install", "opencode"]);
    assert_eq!(fs::read_to_string(&backup).unwrap(), edited);
    fs::remove_file(&backup).unwrap();
    fs::write(&file, &edited).unwrap();
    world.ok(&["agents", "uninstall", "opencode"]);
    assert!(!file.exists() && fs::read_to_string(&backup).unwrap() == edited);
    fs::write(&file, "export const Mine = 1\n").unwrap();
    assert!(world.ok(&["agents", "uninstall", "opencode"]).contains("not installed") && file.exists());
}

#[test]
fn an_installation_of_another_path_leaves_no_file_that_says_nothing() {
    let world = World::new();
    for (agent, name) in FILES {
        let file = world.path("home").join(name);
        world.ok(&["agents", "install", agent]);
        let moved = fs::read_to_string(&file).unwrap().replace(&muxtap(&world), "/elsewhere/muxtap");
        fs::write(&file, moved).unwrap();
        world.ok(&["agents", "uninstall", agent]);
        assert!(!file.exists(), "{agent}");
    }
}

#[test]
fn a_file_keeps_its_owner_and_its_protection() {
    let world = World::new();
    let file = world.path("home/.claude/settings.json");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, THEIRS).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    let refused = world.muxtap(&["agents", "install", "claude"]);
    assert!(refused.status == 1 && refused.stderr.contains("write-protected"), "{refused:?}");
    assert_eq!((fs::read_to_string(&file).unwrap().as_str(), mode(&file)), (THEIRS, 0o444));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    // Only root can give a file away.
    if chown(&file, Some(12345), Some(12346)).is_err() {
        return;
    }
    let owner = |file: &Path| fs::metadata(file).map(|about| (about.uid(), about.gid())).unwrap();
    world.ok(&["agents", "install", "claude"]);
    assert_eq!((owner(&file), mode(&file)), ((12345, 12346), 0o640));
    world.ok(&["agents", "uninstall", "claude"]);
    assert_eq!((owner(&file), fs::read_to_string(&file).unwrap().as_str()), ((12345, 12346), THEIRS));
    // A new file would be root's, in another user's directory.
    fs::remove_file(&file).unwrap();
    chown(file.parent().unwrap(), Some(12345), None).unwrap();
    let refused = world.muxtap(&["agents", "install", "claude"]);
    assert!(refused.status == 2 && refused.stderr.contains("another user") && !file.exists(), "{refused:?}");
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn what_changed_since_an_installation_stays() {
    let world = World::new();
    let file = world.path("home/.claude/settings.json");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, THEIRS).unwrap();
    world.ok(&["agents", "install", "claude"]);
    let changed = fs::read_to_string(&file).unwrap().replace("\"dark\"", "\"light\"");
    fs::write(&file, changed).unwrap();
    world.ok(&["agents", "uninstall", "claude"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), THEIRS.replace("\"dark\"", "\"light\""));
}

#[test]
fn a_file_that_cannot_be_edited_safely_is_not_changed() {
    let world = World::new();
    let file = world.path("home/.claude/settings.json");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    for (text, says) in [
        ("{ \"theme\": \"dark\",\n", "line 2"),
        ("{\n  // mine\n  \"theme\": \"dark\"\n}\n", "comments are not supported"),
        ("[]", "a JSON object"),
        ("{\"hooks\": [1]}", "`hooks`: expected an object"),
        ("{\"hooks\": {\"Stop\": \"x\"}}", "`Stop`: expected an array"),
    ] {
        fs::write(&file, text).unwrap();
        let answer = world.muxtap(&["agents", "install", "claude"]);
        assert!(answer.status == 2 && answer.stderr.contains(says), "{text}: {answer:?}");
        assert!(answer.stderr.contains("the file was not changed"), "{answer:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        assert_eq!(files_below(file.parent().unwrap()), std::slice::from_ref(&file));
    }
    fs::remove_file(&file).unwrap();
    symlink("/nowhere/settings.json", &file).unwrap();
    assert!(world.muxtap(&["agents", "install", "claude"]).stderr.contains("leads nowhere"));
    fs::remove_file(&file).unwrap();
    // The disk takes no byte.
    fs::write(&file, THEIRS).unwrap();
    let mut full = world.command("sh");
    let install = format!("trap '' XFSZ; ulimit -f 0; exec '{}' agents install claude", muxtap(&world));
    let answer = crate::common::run(full.args(["-c", &install]));
    assert!(answer.status == 1 && answer.stderr.contains("cannot write"), "{answer:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), THEIRS);
    assert_eq!(files_below(file.parent().unwrap()), [file]);
}
