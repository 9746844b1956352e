//! Every interface that offers an operation offers every field of its request.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::{common::World, hosts::configure};

/// The places of a field besides HTTP: the operation's id and the field in the OpenAPI document;
/// the command and its flag; the tool and its argument. After a `-` comes the reason why an
/// interface lacks the field, or the operation.
const FIELDS: &[(&str, &str, &str, &str)] = &[
    ("list_sessions", "targets", "list-sessions -t", "list target"),
    ("list_sessions", "everywhere", "- where neither server nor target is named", "list everywhere"),
    ("list_windows", "targets", "list-windows -t", "list target"),
    ("list_windows", "everywhere", "- where neither server nor target is named", "list everywhere"),
    ("list_panes", "targets", "list-panes -t", "list target"),
    ("list_panes", "everywhere", "- where neither server nor target is named", "list everywhere"),
    ("list_agents", "targets", "agents -t", "list target"),
    ("report_agent", "state", "report-agent --state", "- an agent's hook reports"),
    ("report_agent", "source", "report-agent --source", "- an agent's hook reports"),
    ("report_agent", "seq", "report-agent --seq", "- an agent's hook reports"),
    ("report_agent", "message", "report-agent --message", "- an agent's hook reports"),
    ("report_agent", "question", "report-agent --question", "- an agent's hook reports"),
    ("report_agent", "options", "report-agent --option", "- an agent's hook reports"),
    ("report_agent", "session", "report-agent --session", "- an agent's hook reports"),
    ("report_agent", "inside", "- set without -t", "- an agent's hook reports"),
    ("format_list", "each", "- list-sessions, list-windows, list-panes", "- no tool evaluates formats"),
    ("format_list", "format", "list-panes -F", "- no tool evaluates formats"),
    ("format_list", "targets", "list-panes -t", "- no tool evaluates formats"),
    ("format_pane", "format", "display-message [FORMAT]", "- no tool evaluates formats"),
    ("capture_pane", "start", "capture-pane -S", "capture_pane start"),
    ("capture_pane", "end", "capture-pane -E", "capture_pane end"),
    ("capture_pane", "join", "capture-pane -J", "capture_pane join"),
    ("capture_pane", "escapes", "capture-pane -e", "capture_pane escapes"),
    ("capture_pane", "trailing", "capture-pane -N", "capture_pane trailing"),
    ("capture_pane", "verify", "capture-pane --verify", "capture_pane verify"),
    ("read_pane", "since", "read --since", "read_since since"),
    ("read_pane", "until", "read --until", "read_since until"),
    ("read_pane", "format", "read --format", "read_since format"),
    ("read_pane", "max_bytes", "read --max-bytes", "read_since max_bytes"),
    ("read_pane", "wait_ms", "read --wait", "read_since wait_ms"),
    ("read_pane", "command", "read --command", "read_since command"),
    ("list_commands", "n", "commands -n", "list n"),
    ("list_commands", "failed", "commands --failed", "list failed"),
    ("list_commands", "grep", "commands --grep", "list grep"),
    ("list_commands", "over_ms", "commands --over", "list over_ms"),
    ("send_input", "keys", "send-keys [KEYS]", "send_keys keys"),
    ("send_input", "text", "send-keys --literal", "send_keys text"),
    ("send_input", "hex", "send-keys --hex", "send_keys hex"),
    ("send_input", "paste", "send-keys --paste", "send_keys paste"),
    ("send_input", "submit", "send-keys --submit", "send_keys submit"),
    ("send_input", "run", "- Ctrl-C at run", "- a run has an id"),
    ("send_group_input", "run", "- a run has one pane", "- a run has one pane"),
    ("run_command", "key", "- Ctrl-C at run", "- a run has an id"),
    ("run_command", "escapes", "run --color", "- a model reads plain text"),
    ("run_command", "command", "run <COMMAND>", "run command"),
    ("run_command", "timeout_ms", "run --timeout", "run timeout_ms"),
    ("run_command", "clear_line", "run --clear-line", "run clear_line"),
    ("run_command", "prompt_ms", "- all of the time that --timeout gives", "run prompt_ms"),
    ("begin_wait", "panes", "wait-for -t", "wait_for panes"),
    ("begin_wait", "mode", "wait-for --all", "wait_for all"),
    ("begin_wait", "patterns", "wait-for --pattern", "wait_for patterns"),
    ("begin_wait", "screen", "wait-for --screen", "wait_for screen"),
    ("begin_wait", "gone", "wait-for --gone", "wait_for gone"),
    ("begin_wait", "stable_ms", "wait-for --stable", "wait_for stable_ms"),
    ("begin_wait", "exit", "wait-for --exit", "wait_for exit"),
    ("begin_wait", "prompt", "wait-for --prompt", "wait_for prompt"),
    ("begin_wait", "bell", "wait-for --bell", "wait_for bell"),
    ("begin_wait", "command", "wait-for --command", "wait_for command"),
    ("begin_wait", "status", "wait-for --status", "wait_for status"),
    ("begin_wait", "title", "wait-for --title", "wait_for title"),
    ("begin_wait", "fail", "wait-for --fail", "wait_for fail"),
    ("begin_wait", "since", "wait-for --since", "wait_for since"),
    ("begin_wait", "settle_ms", "wait-for --settle", "wait_for settle_ms"),
    ("begin_wait", "timeout_ms", "wait-for --timeout", "wait_for timeout_ms"),
    ("begin_wait", "detach", "- a shell's `&`", "wait_for detach"),
    ("list_waits", "kept", "result --list", "- a model knows the ids of its waits"),
    ("get_wait", "timeout_ms", "- the command awaits its own wait", "wait_for timeout_ms"),
    ("new_session", "name", "new-session -s", "create name"),
    ("new_session", "window_name", "new-session -n", "create window_name"),
    ("new_session", "width", "new-session -x", "create width"),
    ("new_session", "height", "new-session -y", "create height"),
    ("new_session", "or_existing", "new-session -A", "create or_existing"),
    ("new_session", "command", "new-session [COMMAND]", "create command"),
    ("new_session", "cwd", "new-session -c", "create cwd"),
    ("new_session", "env", "new-session -e", "create env"),
    ("new_session", "keep", "new-session --keep", "create keep"),
    ("new_session", "shell_integration", "new-session --shell-integration[=<BOOL>]", "create shell_integration"),
    ("new_session", "caller_cwd", "- always given", "- given by the client's process"),
    ("new_session", "caller_env", "- always given", "- given by the client's process"),
    ("new_window", "session", "new-window -t", "create target"),
    ("new_window", "index", "new-window -t", "create index"),
    ("new_window", "name", "new-window -n", "create name"),
    ("new_window", "select", "new-window --select", "create select"),
    ("new_window", "command", "new-window [COMMAND]", "create command"),
    ("new_window", "cwd", "new-window -c", "create cwd"),
    ("new_window", "env", "new-window -e", "create env"),
    ("new_window", "keep", "new-window --keep", "create keep"),
    ("new_window", "shell_integration", "new-window --shell-integration[=<BOOL>]", "create shell_integration"),
    ("new_window", "caller_cwd", "- always given", "- given by the client's process"),
    ("new_window", "caller_env", "- for a server that must be started", "- for a server that must be started"),
    ("split_pane", "pane", "split-window -t", "create target"),
    ("split_pane", "horizontal", "split-window -h", "create horizontal"),
    ("split_pane", "before", "split-window -b", "create before"),
    ("split_pane", "full", "split-window -f", "create full"),
    ("split_pane", "size", "split-window -l", "create size"),
    ("split_pane", "select", "split-window --select", "create select"),
    ("split_pane", "command", "split-window [COMMAND]", "create command"),
    ("split_pane", "cwd", "split-window -c", "create cwd"),
    ("split_pane", "env", "split-window -e", "create env"),
    ("split_pane", "keep", "split-window --keep", "create keep"),
    ("split_pane", "shell_integration", "split-window --shell-integration[=<BOOL>]", "create shell_integration"),
    ("split_pane", "caller_cwd", "- always given", "- given by the client's process"),
    ("split_pane", "caller_env", "- for a server that must be started", "- for a server that must be started"),
    ("patch_session", "name", "rename-session <NAME>", "rename name"),
    ("patch_session", "labels", "label [KEY=VALUE|KEY-]", "rename labels"),
    ("patch_window", "name", "rename-window <NAME>", "rename name"),
    ("patch_window", "layout", "select-layout <LAYOUT>", "resize layout"),
    ("patch_window", "width", "resize-window -x", "resize width"),
    ("patch_window", "height", "resize-window -y", "resize height"),
    ("patch_window", "select", "select-window -t", "select target"),
    ("patch_pane", "name", "select-pane -T", "rename name"),
    ("patch_pane", "width", "resize-pane -x", "resize width"),
    ("patch_pane", "height", "resize-pane -y", "resize height"),
    ("patch_pane", "select", "select-pane -t", "select target"),
    ("patch_pane", "zoom", "resize-pane -Z", "resize zoom"),
    ("patch_pane", "leave_mode", "copy-mode -q", "select leave_mode"),
    ("patch_pane", "labels", "label [KEY=VALUE|KEY-]", "rename labels"),
    ("patch_pane", "respawn", "respawn-pane -t", "respawn target"),
    ("patch_pane", "respawn.kill", "respawn-pane -k", "respawn kill"),
    ("patch_pane", "respawn.command", "respawn-pane [COMMAND]", "respawn command"),
    ("patch_pane", "respawn.cwd", "respawn-pane -c", "respawn cwd"),
    ("patch_pane", "respawn.env", "respawn-pane -e", "respawn env"),
    ("patch_pane", "respawn.keep", "respawn-pane --keep", "respawn keep"),
    (
        "patch_pane",
        "respawn.shell_integration",
        "respawn-pane --shell-integration[=<BOOL>]",
        "respawn shell_integration",
    ),
    ("patch_pane", "respawn.caller_cwd", "- the directory stays the pane's", "- the directory stays the pane's"),
    ("patch_pane", "respawn.caller_env", "- the server runs", "- the server runs"),
    ("stream_events", "panes", "events -t", "watch targets"),
    ("stream_events", "types", "events --types", "watch types"),
    ("stream_events", "format", "events --format", "watch format"),
    ("stream_events", "screen", "events --screen", "watch screen"),
    ("stream_events", "since", "events --since", "watch since"),
    ("stream_events", "resume", "events --resume", "watch resume"),
    ("start_recording", "pane", "record -t", "record target"),
    ("start_recording", "since", "record --since", "record since"),
    ("start_recording", "file", "record -o", "record file"),
    ("start_recording", "dir", "record --dir", "- the directory is the daemon's own"),
    ("start_recording", "max_bytes", "record --max-size", "record max_bytes"),
    ("start_recording", "max_ms", "record --max-time", "record max_ms"),
    ("start_recording", "redact", "record --redact", "record redact"),
    ("start_recording", "input", "record --input", "record input"),
    ("start_recording", "format", "record --format", "record format"),
    ("start_recording", "attend", "record --detach", "- a recording outlives the call"),
    ("get_recording", "attach", "- record without --detach", "- a recording outlives the call"),
    ("open_alis", "redact", "- a player opens the stream", "- a player opens the stream"),
    ("save_snapshot", "name", "snapshot save <NAME>", "snapshot name"),
    ("save_snapshot", "sessions", "snapshot save -t", "snapshot targets"),
    ("save_snapshot", "history", "snapshot save --history", "snapshot history"),
    ("save_snapshot", "env", "snapshot save --env", "snapshot env"),
    ("save_snapshot", "replace", "snapshot save --replace", "snapshot replace"),
    ("get_snapshot", "session", "snapshot show --tmuxp", "- a file for another program"),
    ("get_snapshot", "run", "snapshot show --run", "- a file for another program"),
    ("diff_snapshot", "with", "snapshot diff [OTHER]", "snapshot with"),
    ("restore_snapshot", "sessions", "snapshot restore -t", "snapshot targets"),
    ("restore_snapshot", "name", "snapshot restore --name", "snapshot new_name"),
    ("restore_snapshot", "run", "snapshot restore --run", "snapshot run"),
    ("restore_snapshot", "caller_env", "- always given", "- given by the client's process"),
    ("import_snapshot", "text", "snapshot import <FILE>", "snapshot text"),
    ("import_snapshot", "format", "snapshot import --format", "snapshot format"),
    ("import_snapshot", "replace", "snapshot import --replace", "snapshot replace"),
    ("save_layout", "name", "layout save <NAME>", "snapshot name"),
    ("save_layout", "window", "layout save -t", "snapshot targets"),
    ("save_layout", "replace", "layout save --replace", "snapshot replace"),
    ("restore_layout", "window", "layout restore -t", "snapshot targets"),
    ("restore_layout", "size", "layout restore --size", "snapshot size"),
    ("set_group", "targets", "group set <TARGET>", "snapshot targets"),
    ("set_group", "synchronize", "group set --synchronize", "snapshot synchronize"),
    ("send_group_input", "keys", "send-keys [KEYS]", "snapshot keys"),
    ("send_group_input", "text", "send-keys --literal", "snapshot text"),
    ("send_group_input", "hex", "send-keys --hex", "snapshot hex"),
    ("send_group_input", "paste", "send-keys --paste", "snapshot paste"),
    ("send_group_input", "submit", "send-keys --submit", "snapshot submit"),
];

/// The tags of operations on a tmux server and on data that is kept of one.
const TAGS: [&str; 8] = ["sessions", "windows", "panes", "waits", "agents", "events", "recordings", "snapshots"];
/// The parameters of every operation that select the server.
const SERVER: [&str; 2] = ["socket", "from"];
/// The fields of a patch that apply to another kind.
const OF_ANOTHER_KIND: [(&str, &[&str]); 3] = [
    ("patch_session", &["layout", "width", "height", "respawn", "select", "zoom", "leave_mode"]),
    ("patch_window", &["respawn", "zoom", "leave_mode", "labels"]),
    ("patch_pane", &["layout"]),
];

/// Returns the fields of a schema; a respawn's with its name as their prefix.
fn fields(document: &Value, schema: &Value) -> BTreeSet<String> {
    let named = |reference: &str| document["components"]["schemas"][reference.rsplit('/').next().unwrap()].clone();
    let schema = match schema["$ref"].as_str() {
        Some(reference) => named(reference),
        None => schema.clone(),
    };
    let mut found = BTreeSet::new();
    for part in schema["allOf"].as_array().into_iter().flatten() {
        found.extend(fields(document, part));
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        found.insert(name.clone());
        if name == "respawn" {
            let one_of = field["oneOf"].as_array().into_iter().flatten();
            for inner in one_of.filter(|schema| schema["$ref"].is_string()).flat_map(|one| fields(document, one)) {
                found.insert(format!("respawn.{inner}"));
            }
        }
    }
    found
}

/// Returns the operations and fields in the OpenAPI document.
fn offered(document: &Value) -> BTreeSet<(String, String)> {
    let mut offered = BTreeSet::new();
    let methods = document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap().values());
    for operation in methods.filter(|operation| TAGS.iter().any(|tag| operation["tags"][0] == **tag)) {
        let id = operation["operationId"].as_str().unwrap();
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let query = parameters.filter(|parameter| parameter["in"] == "query");
        let mut names: BTreeSet<String> = query.map(|field| field["name"].as_str().unwrap().to_owned()).collect();
        names.extend(fields(document, &operation["requestBody"]["content"]["application/json"]["schema"]));
        let others = OF_ANOTHER_KIND.iter().find(|(kind, _)| *kind == id).map_or(&[][..], |(_, others)| others);
        let is_own = |name: &String| {
            let first = name.split('.').next().unwrap();
            !SERVER.contains(&first) && !others.contains(&first)
        };
        offered.extend(names.into_iter().filter(is_own).map(|name| (id.to_owned(), name)));
    }
    offered
}

#[test]
fn every_field_of_a_request_can_be_given_on_every_interface_that_offers_it() {
    let world = World::with_server();
    // The first command starts the daemon.
    world.ok(&["list-sessions"]);
    let document = world.http("GET", "/openapi.json", None).json();
    let offered = offered(&document);
    let listed: BTreeSet<_> = FIELDS.iter().map(|(id, field, ..)| ((*id).to_owned(), (*field).to_owned())).collect();
    assert_eq!(listed.len(), FIELDS.len(), "the table has a row twice");
    let missing: Vec<_> = offered.difference(&listed).collect();
    let unknown: Vec<_> = listed.difference(&offered).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "not in the table: {missing:?}; not over HTTP: {unknown:?}");

    let tools: BTreeMap<_, _> = muxtap_mcp::accepted_arguments().into_iter().collect();
    let mut helps = BTreeMap::new();
    let mut wrong = Vec::new();
    for (id, field, on_command, on_tool) in FIELDS {
        if !on_command.starts_with('-') {
            let (command, flag) = on_command.rsplit_once(' ').unwrap();
            let words: Vec<_> = command.split(' ').chain(["--help"]).collect();
            let help = helps.entry(command).or_insert_with(|| world.ok(&words));
            // Flags are searched in the synopsis and in the list of options; positional arguments
            // in either.
            let has_flag = help.split([' ', ',', '\n']).any(|word| word.trim_end_matches("...") == flag);
            if !has_flag {
                wrong.push(format!("{id} {field}: no `{on_command}` in --help"));
            }
        }
        if !on_tool.starts_with('-') {
            let (tool, argument) = on_tool.split_once(' ').unwrap();
            if !tools.get(tool).is_some_and(|arguments| arguments.contains(&argument)) {
                wrong.push(format!("{id} {field}: the tool {tool} takes no `{argument}`"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The operation whose `session` is an agent's own, not tmux's.
const OWN_SESSION: &str = "report_agent";
/// The names of fields that hold targets.
const TARGETS: [&str; 6] = ["targets", "panes", "pane", "session", "sessions", "window"];

/// Returns a value that a schema accepts; `text`: its text, or that of its items.
fn example(document: &Value, schema: &Value, text: &str) -> Value {
    if let Some(reference) = schema["$ref"].as_str() {
        let named = &document["components"]["schemas"][reference.rsplit('/').next().unwrap()];
        return example(document, named, text);
    }
    let types = match &schema["type"] {
        Value::Array(types) => types[0].as_str().unwrap(),
        one => one.as_str().unwrap_or_default(),
    };
    match types {
        "array" => json!([example(document, &schema["items"], text)]),
        "string" => schema["enum"][0].as_str().unwrap_or(text).into(),
        "boolean" => true.into(),
        "integer" => 1.into(),
        kind => panic!("no example of {kind:?}: {schema}"),
    }
}

/// Returns a schema's properties and the names of the required ones.
fn properties(document: &Value, schema: &Value) -> (BTreeMap<String, Value>, Vec<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        return properties(document, &document["components"]["schemas"][reference.rsplit('/').next().unwrap()]);
    }
    let (mut found, mut required) = (BTreeMap::new(), Vec::new());
    for part in schema["allOf"].as_array().into_iter().flatten() {
        let (more, needed) = properties(document, part);
        found.extend(more);
        required.extend(needed);
    }
    let own = schema["properties"].as_object().into_iter().flatten();
    found.extend(own.map(|(name, field)| (name.clone(), field.clone())));
    required.extend(schema["required"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap().to_owned()));
    (found, required)
}

/// A request that names a host.
struct Named {
    id: String,
    /// The field that names the host.
    place: String,
    method: String,
    path: String,
    body: Option<Value>,
}

/// Returns requests for each route of a tmux server: one for each place that can name a host.
/// `host`: the host.
fn requests(document: &Value, host: &str) -> Vec<Named> {
    let (target, in_url) = (format!("{host}/x"), format!("{host}%2Fx"));
    let mut requests = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            let parameters: Vec<_> = operation["parameters"].as_array().into_iter().flatten().collect();
            // The server of a WebSocket is the server of its messages.
            let is_on_server = parameters.iter().any(|parameter| parameter["name"] == "socket") && id != "open_stream";
            if !TAGS.iter().any(|tag| operation["tags"][0] == **tag) {
                continue;
            }
            let plain = path.replace("{name}", "x").replace("{id}", "x").replace("{pane}", "%250");
            let mut query = Vec::new();
            for parameter in parameters.iter().filter(|one| one["in"] == "query" && one["required"] == true) {
                let value = example(document, &parameter["schema"], "x");
                query.push(format!("{}={}", parameter["name"].as_str().unwrap(), value.as_str().unwrap()));
            }
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let (fields, required) = properties(document, schema);
            let body = |with: Option<&str>| {
                let names = required.iter().map(String::as_str).chain(with);
                let values = names.map(|name| {
                    let text = if with == Some(name) { &target } else { "x" };
                    (name.to_owned(), example(document, &fields[name], text))
                });
                (!fields.is_empty()).then(|| Value::Object(values.collect()))
            };
            let mut add = |place: &str, path: &str, more: Option<String>, body: Option<Value>| {
                let query: Vec<_> = query.iter().cloned().chain(more).collect();
                let path = if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) };
                let (id, place, method) = (id.to_owned(), place.to_owned(), method.to_uppercase());
                requests.push(Named { id, place, method, path, body });
            };
            if is_on_server {
                add("socket", &plain, Some(format!("socket={host}%2F")), body(None));
                for parameter in ["{id}", "{pane}"].iter().filter(|name| path.contains(**name)) {
                    add(parameter, &path.replace(*parameter, &in_url), None, body(None));
                }
                let in_query = parameters.iter().filter(|one| one["in"] == "query");
                for name in in_query.map(|one| one["name"].as_str().unwrap()).filter(|name| TARGETS.contains(name)) {
                    add(name, &plain, Some(format!("{name}={in_url}")), body(None));
                }
            }
            let is_target =
                |name: &&String| TARGETS.contains(&name.as_str()) && !(id == OWN_SESSION && *name == "session");
            for name in fields.keys().filter(is_target) {
                add(name, &plain, None, body(Some(name)));
            }
        }
    }
    let places: BTreeSet<_> = requests.iter().map(|one| format!("{} {}", one.id, one.place)).collect();
    for some in
        ["capture_pane {pane}", "set_group targets", "begin_wait panes", "list_windows targets", "run_command socket"]
    {
        assert!(places.contains(some), "{some} is not in {places:?}");
    }
    requests
}

/// Each place of a route where a target or a server can be named: in the path, in the query, in the
/// body. The response names the host.
#[test]
fn each_field_that_names_targets_takes_a_host() {
    let world = World::with_server();
    configure(&world, &[("nowhere", "false")]);
    world.ok(&["list-sessions"]);
    let mut wrong = Vec::new();
    for Named { id, place, method, path, body } in requests(&world.http("GET", "/openapi.json", None).json(), "nowhere")
    {
        let answer = world.http(&method, &path, body.as_ref());
        if !answer.head.lines().any(|line| line.eq_ignore_ascii_case("muxtap-host: nowhere")) {
            wrong.push(format!("{id} {place}: {} {}", answer.head, String::from_utf8_lossy(&answer.body)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The operations that a caller may carry out who may only read. On the Unix socket the user's own
/// recordings are among them.
const READS: [&str; 23] = [
    "list_sessions",
    "get_session",
    "list_windows",
    "list_panes",
    "capture_pane",
    "read_pane",
    "list_commands",
    "list_waits",
    "begin_wait",
    "get_wait",
    "cancel_wait",
    "list_agents",
    "explain_agent",
    "stream_events",
    "list_recordings",
    "get_recording",
    "get_window",
    "get_pane",
    "start_recording",
    "open_alis",
    "diff_snapshot",
    "list_layouts",
    "list_groups",
];

/// The host would allow everything: this daemon refuses before it contacts the host.
#[test]
fn what_this_daemon_forbids_is_not_forwarded_to_a_host() {
    let mut world = World::with_server();
    world.set("MUXTAP_READ_ONLY", "true");
    let (contacted, program) = (world.path("contacted"), world.path("nowhere"));
    std::fs::write(&program, format!("#!/bin/sh\n: >{}\nexit 1\n", contacted.display())).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    configure(&world, &[("nowhere", program.to_str().unwrap())]);
    world.ok(&["has-session", "-t", "main"]);
    let requests = requests(&world.http("GET", "/openapi.json", None).json(), "nowhere");
    let (reads, writes): (Vec<_>, Vec<_>) = requests.into_iter().partition(|one| READS.contains(&one.id.as_str()));
    let mut wrong = Vec::new();
    let mut ask = |one: &Named, is_read: bool| {
        let answer = world.http(&one.method, &one.path, one.body.as_ref()).json();
        if (answer["code"] == "READ_ONLY") == is_read {
            wrong.push(format!("{} {}: {answer}", one.id, one.place));
        }
    };
    assert!(!contacted.exists(), "nothing has contacted the host yet");
    for write in &writes {
        ask(write, false);
        assert!(!contacted.exists(), "{} {} contacted the host", write.id, write.place);
    }
    for read in &reads {
        ask(read, true);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(contacted.exists(), "reads contact the host");
}
