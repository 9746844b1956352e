//! Labels of panes, and targets that select by them.

use std::{fs, thread};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    common::{World, answering, eventually, names, type_line},
    subscribers::Sse,
};

/// Returns a pane's labels in the list.
fn labels(world: &World, pane: &str) -> Value {
    let list = world.json(&["list-panes"]);
    let panes = list["panes"].as_array().unwrap();
    panes.iter().find(|info| info["id"] == *pane).unwrap()["labels"].clone()
}

fn option(world: &World, pane: &str) -> String {
    world.tmux(&["display-message", "-p", "-t", pane, "#{@muxtap_labels}"])
}

#[test]
fn labels_are_set_listed_and_removed_and_outlive_the_daemon() {
    let world = World::with_server();
    let pane = world.window("exec cat");
    assert!(!world.ok(&["list-panes"]).contains("LABELS"));
    world.ok(&["label", "-t", &pane, "team=a", "role=build"]);
    assert_eq!(world.ok(&["label", "-t", &pane]), "role=build\nteam=a");
    assert_eq!(option(&world, &pane), "role=build,team=a");
    let table = world.ok(&["list-panes"]);
    assert!(table.lines().next().unwrap().ends_with("LABELS") && table.contains("role=build,team=a"), "{table}");
    world.kill_daemon(Signal::KILL);
    assert_eq!(labels(&world, &pane), json!({"role": "build", "team": "a"}));
    world.ok(&["label", "-t", &pane, "team-", "role=test"]);
    assert_eq!(labels(&world, &pane), json!({"role": "test"}));
    // What tmux, a shell or a format would obey.
    let odd = "a,b=%41 #{pane_id} #(touch x) {é} ; ' \" \\ $HOME";
    world.ok(&["label", "-t", &pane, &format!("note={odd}")]);
    assert_eq!(labels(&world, &pane), json!({"role": "test", "note": odd}));
    assert_eq!(world.json(&["label", "-t", &pane])["labels"]["note"], odd);
    world.ok(&["label", "-t", &pane, "note-", "role-", "never-"]);
    assert_eq!((labels(&world, &pane), option(&world, &pane)), (Value::Null, String::new()));
    for words in [&["A=x"][..], &["a=\n"], &["a=1", "a=2"], &[&format!("a={}", "x".repeat(257))]] {
        world.error("INVALID_ARGUMENT", &[&["label", "-t", &pane], words].concat());
    }
    for word in ["role", "role=", "="] {
        assert_eq!(world.muxtap(&["label", "-t", &pane, word]).status, 2, "{word}");
    }
    assert_eq!(labels(&world, &pane), Value::Null);
    world.ok(&["stop"]);
    let log = fs::read_to_string(world.path("m.sock.audit.jsonl")).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_pane: Vec<_> = lines.filter(|line| line["target"] == pane.as_str()).collect();
    assert!(of_pane.len() >= 4 && of_pane.iter().all(|line| line["action"] == "label"), "{of_pane:?}");
}

#[test]
fn callers_that_label_a_pane_at_once_lose_nothing() {
    let world = World::with_server();
    let pane = world.window("exec cat");
    world.ok(&["list-panes"]);
    thread::scope(|scope| {
        for number in 0..8 {
            let (world, pane) = (&world, &pane);
            scope.spawn(move || world.ok(&["label", "-t", pane, &format!("k{number}=x")]));
        }
    });
    assert_eq!(labels(&world, &pane).as_object().unwrap().len(), 8);
}

/// A pane has the labels of its session, also one that comes later, and its own ones prevail.
#[test]
fn a_session_labels_its_panes() {
    let world = World::with_server();
    let [pane, other] = [(); 2].map(|()| world.window("exec cat"));
    world.tmux(&["new-session", "-d", "-s", "apart", "exec cat"]);
    world.ok(&["label", "-t", &pane, "role=build"]);
    world.ok(&["label", "-s", "-t", "main", "role=none", "team=a b"]);
    assert_eq!(world.ok(&["label", "-s", "-t", "main"]), "role=none\nteam=a b");
    assert_eq!(world.tmux(&["show-options", "-t", "main", "-v", "@muxtap_session_labels"]), "role=none,team=a%20b");
    let sessions = world.json(&["list-sessions"])["sessions"].clone();
    let of_session = |name: &str| {
        let all = sessions.as_array().unwrap();
        all.iter().find(|session| session["name"] == name).unwrap()["labels"].clone()
    };
    assert_eq!(of_session("main"), json!({"role": "none", "team": "a b"}));
    assert_eq!(of_session("apart"), Value::Null);
    let table = world.ok(&["list-sessions"]);
    assert!(table.lines().next().unwrap().ends_with("LABELS") && table.contains("role=none,team=a%20b"), "{table}");
    assert_eq!(labels(&world, &pane), json!({"role": "build", "team": "a b"}));
    assert_eq!(labels(&world, &other), json!({"role": "none", "team": "a b"}));
    let later = world.tmux(&["new-window", "-d", "-t", "main:", "-P", "-F", "#{pane_id}", "exec cat"]);
    let listed = |selector: &str| names(&world.json(&["list-panes", "-t", selector])["panes"], "id");
    assert_eq!(listed("{role=build,team=a b}"), [pane.as_str()]);
    assert!(listed("{team=a*}").contains(&later) && !listed("{role=none}").contains(&pane));
    assert_eq!(names(&world.json(&["list-panes", "-t", "{team!=a b}"])["panes"], "session"), ["apart"]);
    // It outlives the daemon, and the pane's own option has its own labels alone.
    world.kill_daemon(Signal::KILL);
    assert_eq!(labels(&world, &pane), json!({"role": "build", "team": "a b"}));
    assert_eq!(option(&world, &pane), "role=build");
    // What the session gives is removed there.
    let message = world.error("CONFLICT", &["label", "-t", &pane, "team-"]);
    assert!(message.contains("of its session"), "{message}");
    world.ok(&["label", "-t", &pane, "role-"]);
    assert_eq!(labels(&world, &pane), json!({"role": "none", "team": "a b"}));
    world.ok(&["label", "-s", "-t", "main", "role-", "team-", "never-"]);
    assert_eq!(labels(&world, &pane), Value::Null);
    assert_eq!(world.tmux(&["show-options", "-t", "main", "-q", "@muxtap_session_labels"]), "");
    world.error("INVALID_ARGUMENT", &["label", "-s", "-t", "main", "A=x"]);
    world.error("NOT_FOUND", &["label", "-s", "-t", "missing", "a=x"]);
    world.tmux(&["set-option", "-g", "@muxtap_session_labels", "all=1"]);
    assert_eq!(labels(&world, &pane), json!({"all": "1"}));
    let message = world.error("CONFLICT", &["label", "-s", "-t", "main", "all-"]);
    assert!(message.contains("@muxtap_session_labels"), "{message}");
}

/// A patch with labels that are refused changes nothing else.
#[test]
fn a_patch_with_invalid_labels_changes_nothing() {
    let world = World::with_server();
    let pane = world.window("exec cat");
    world.ok(&["label", "-s", "-t", "main", "team=a"]);
    let before = world.tmux(&["list-panes", "-a", "-F", "#{session_name} #{pane_id} #{pane_title}"]);
    let many: serde_json::Map<_, _> = (0..33).map(|number| (format!("k{number}"), json!("1"))).collect();
    let patch = |path: &str, labels: &Value, code: &str| {
        let body = json!({"name": "changed", "labels": labels});
        let path = format!("/v1/{path}{}", world.query());
        let answer = world.http("PATCH", &path, Some(&body)).json();
        assert_eq!(answer["code"], code, "{answer}");
    };
    let of_pane = format!("panes/{}", pane.replace('%', "%25"));
    for path in ["sessions/main", of_pane.as_str()] {
        patch(path, &json!({"A": "x"}), "INVALID_ARGUMENT");
        patch(path, &json!({}), "INVALID_ARGUMENT");
        patch(path, &Value::Object(many.clone()), "RESOURCE_LIMIT");
    }
    patch(&of_pane, &json!({"team": ""}), "CONFLICT");
    let format = "#{session_name} #{pane_id} #{pane_title}";
    assert_eq!(world.tmux(&["list-panes", "-a", "-F", format]), before);
    assert_eq!(world.ok(&["label", "-s", "-t", "main"]), "team=a");
}

/// Of the sessions that share a window the oldest one gives the labels, whatever their names are.
#[test]
fn a_new_view_of_a_session_does_not_change_its_panes_labels() {
    let world = World::with_server();
    let pane = world.window("exec cat");
    world.ok(&["label", "-s", "-t", "main", "role=build"]);
    world.tmux(&["new-session", "-d", "-t", "main", "-s", "aview"]);
    assert_eq!(labels(&world, &pane), json!({"role": "build"}));
    world.ok(&["label", "-s", "-t", "aview", "role=view", "by=view"]);
    world.tmux(&["rename-session", "-t", "main", "zmain"]);
    assert_eq!(labels(&world, &pane), json!({"role": "build"}));
    // As the target of a session, a pane means the one from which it has labels.
    world.tmux(&["select-window", "-t", "zmain:0"]);
    world.ok(&["label", "-s", "-t", &pane, "team=a"]);
    assert_eq!(world.ok(&["label", "-s", "-t", &pane]), "role=build\nteam=a");
    assert_eq!(world.ok(&["label", "-s", "-t", "zmain"]), "role=build\nteam=a");
    assert_eq!(world.ok(&["label", "-s", "-t", "aview"]), "by=view\nrole=view");
    let message = world.error("CONFLICT", &["label", "-t", &pane, "team-"]);
    let id = world.tmux(&["display-message", "-p", "-t", "zmain:", "#{session_id}"]);
    assert!(message.contains(&format!("of its session {id};")), "{message}");
    world.tmux(&["kill-session", "-t", "zmain"]);
    assert_eq!(labels(&world, &pane), json!({"role": "view", "by": "view"}));
}

/// A group's sessions are saved and restored in the order of their age, on which the labels depend.
#[test]
fn a_restored_groups_panes_inherit_from_the_same_session() {
    let world = World::with_server();
    world.ok(&["label", "-s", "-t", "main", "role=build"]);
    world.tmux(&["new-session", "-d", "-t", "main", "-s", "aview"]);
    world.ok(&["label", "-s", "-t", "aview", "role=view"]);
    world.ok(&["snapshot", "save", "all"]);
    world.ok(&["snapshot", "restore", "all", "--name", "z"]);
    let list = world.json(&["list-panes"]);
    let is_restored = |pane: &&Value| pane["session"].as_str().is_some_and(|name| name.starts_with('z'));
    let restored: Vec<_> = list["panes"].as_array().unwrap().iter().filter(is_restored).collect();
    assert!(!restored.is_empty() && restored.iter().all(|pane| pane["labels"]["role"] == "build"), "{list}");
}

/// A pane's, window's or server's option of this name shows in lists, and is not written into the session.
#[test]
fn a_session_keeps_its_own_labels_alone() {
    let world = World::with_server();
    let first = world.tmux(&["list-panes", "-t", "main", "-F", "#{pane_id}"]);
    let own = || world.tmux(&["show-options", "-t", "main", "-qv", "@muxtap_session_labels"]);
    world.ok(&["label", "-s", "-t", "main", "team=é"]);
    world.tmux(&["set-option", "-p", "-t", &first, "@muxtap_session_labels", "evil=1"]);
    world.error("CONFLICT", &["label", "-s", "-t", "main", "role=build"]);
    assert_eq!(own(), "role=build,team=é");
    world.tmux(&["set-option", "-pu", "-t", &first, "@muxtap_session_labels"]);
    world.tmux(&["set-option", "-g", "@muxtap_session_labels", "all=1"]);
    world.ok(&["label", "-s", "-t", "main", "role-"]);
    assert_eq!(own(), "team=é");
}

/// A window that several sessions link has the labels of the oldest one that is not muxtap's own, and a
/// stream follows panes of a session that is labeled later.
#[test]
fn a_stream_follows_the_panes_of_a_session_that_is_labeled() {
    let world = World::with_server();
    let pane = answering(&world, &["new-session", "-s", "zeta"]);
    world.tmux(&["link-window", "-d", "-s", "zeta:0", "-t", "main:7"]);
    world.ok(&["label", "-s", "-t", "zeta", "by=zeta"]);
    assert_eq!(labels(&world, &pane), Value::Null, "the session main is older");
    let mark = answering(&world, &["new-session", "-s", "mark"]);
    world.ok(&["label", "-t", &mark, "team=a"]);
    let mut events = Sse::open(&world, "panes=%7Bteam=a%7D&types=output,pane-opened");
    world.ok(&["label", "-s", "-t", "main", "team=a"]);
    assert_eq!(labels(&world, &pane), json!({"team": "a"}));
    let mut number = 0;
    eventually("the pane is followed", || {
        number += 1;
        type_line(&world, &pane, &format!("line{number}"));
        world.await_output(&pane, &format!("^got line{number}$"));
        type_line(&world, &mark, &format!("mark{number}"));
        let mut is_followed = false;
        loop {
            let event = events.next().unwrap();
            is_followed |= event.data["pane"] == pane.as_str();
            let text = event.data["text"].as_str().unwrap_or_default();
            if event.data["pane"] == mark.as_str() && text.contains(&format!("got mark{number}")) {
                return is_followed;
            }
        }
    });
}

/// Any program with the tmux socket can set the option to anything.
#[test]
fn a_persons_own_option_is_read_as_far_as_it_is_labels() {
    let world = World::with_server();
    let pane = world.window("exec cat");
    let set = |how: &str, text: &str| world.tmux(&["set-option", how, "-t", &pane, "@muxtap_labels", text]);
    for (text, read) in [
        ("role=build, team=a,,x,=,A=1", json!({"role": "build", "team": "a"})),
        ("role=#{pane_id},x=#(touch /x),ok=1", json!({"role": "#{pane_id}", "x": "#(touch /x)", "ok": "1"})),
        ("a=1\n%9", json!(null)),
        // Formats that cut a text drop letters of unknown width, and double `#`.
        ("role=a\u{378}b,team=###", json!({"role": "a\u{378}b", "team": "###"})),
        (&format!("a=1,{}", "b=2,".repeat(2000)), json!(null)),
    ] {
        set("-p", text);
        let (short, read_now) = (text.get(..20).unwrap_or(text), labels(&world, &pane));
        assert_eq!(read_now, read, "{short:?}");
    }
    assert_eq!(world.json(&["list-panes"])["panes"].as_array().unwrap().len(), world.panes().len());
    // A change keeps what was read.
    set("-p", "role=build,A=1");
    world.ok(&["label", "-t", &pane, "team=a"]);
    assert_eq!(option(&world, &pane), "role=build,team=a");
    // A window's labels are those of its panes that have no own ones, and stay the window's.
    world.tmux(&["set-option", "-pu", "-t", &pane, "@muxtap_labels"]);
    set("-w", "of=window");
    assert_eq!(labels(&world, &pane), json!({"of": "window"}));
    let message = world.error("CONFLICT", &["label", "-t", &pane, "of-"]);
    assert!(message.contains("@muxtap_labels"), "{message}");
    world.ok(&["label", "-t", &pane, "never-", "of=window"]);
    assert_eq!(world.tmux(&["show-options", "-p", "-t", &pane, "-q", "@muxtap_labels"]), "");
}

#[test]
fn labels_select_panes_in_every_interface() {
    let world = World::with_server();
    let [a, b, c] = ["a", "b", "c"].map(|name| world.window(&format!("echo I am {name}; exec cat")));
    for pane in [&a, &b, &c] {
        world.await_output(pane, "^I am");
    }
    for (pane, label) in [(&a, "role=build"), (&b, "role=build"), (&c, "role=test")] {
        world.ok(&["label", "-t", pane, label, &format!("number={}", pane.trim_start_matches('%'))]);
    }
    let listed = |words: &[&str]| names(&world.json(&[&["list-panes"], words].concat())["panes"], "id");
    let both = [a.as_str(), b.as_str()];
    assert_eq!(listed(&["-l", "role=build"]), both);
    assert_eq!(listed(&["-t", "{role=b*}"]), both);
    assert_eq!(listed(&["-l", "role=*", "-l", "role!=build"]), [c.as_str()]);
    world.error("NOT_FOUND", &["list-panes", "-l", "role=none"]);
    assert_eq!(world.muxtap(&["list-panes", "-l", "role"]).status, 2);
    assert_eq!(world.muxtap(&["list-panes", "-l", "a=1", "-t", "main"]).status, 2);
    // One pane.
    let of_c = format!("{{role=test,number={}}}", c.trim_start_matches('%'));
    assert!(world.ok(&["capture-pane", "-p", "-t", &of_c]).contains("I am c"));
    let path = format!("/v1/panes/{}{}", of_c.replace('{', "%7B").replace('}', "%7D"), world.query());
    assert_eq!(world.http("GET", &path, None).json()["id"], *c);
    world.error("NOT_FOUND", &["capture-pane", "-p", "-t", "{role=none}"]);
    for command in ["capture-pane", "kill-pane", "kill-window", "read"] {
        let message = world.error("AMBIGUOUS_TARGET", &[command, "-t", "{role=build}"]);
        assert!(message.contains(&a) && message.contains(&b), "{command}: {message}");
    }
    let message = world.error("INVALID_TARGET", &["capture-pane", "-t", "{role=build,x}"]);
    assert!(message.contains("KEY=VALUE"), "{message}");
    // tmux's words stay tmux's.
    world.error("INVALID_TARGET", &["capture-pane", "-t", "{mouse}"]);
    assert_eq!(world.json(&["list-windows"])["windows"].as_array().unwrap().len(), 4);
    // Several panes.
    let query = format!("{}&targets=main:0,%7Brole=build,number!={}%7D", world.query(), a.trim_start_matches('%'));
    let answer = world.http("GET", &format!("/v1/panes{query}"), None).json();
    assert!(names(&answer["panes"], "id").contains(&b), "{answer}");
    assert!(!names(&answer["panes"], "id").contains(&a), "{answer}");
    let wait = world.spawn(&["--json", "wait-for", "-l", "role=build", "--all", "-p", "hello", "-T", "30"]);
    eventually("the wait is open", || world.json(&["status"])["waits"] == 1);
    assert_eq!(world.ok(&["--json", "send-keys", "-t", "{role=build}", "hello", "Enter"]).lines().count(), 2);
    assert_eq!(wait.finish().json()["outcome"], "matched");
    assert!(!world.read_all(&c).contains("hello"));
    let tail = world.ok(&["tail", "-l", "role=build"]);
    assert!(tail.contains("I am a") && tail.contains("I am b") && !tail.contains("I am c"), "{tail}");
    world.ok(&["group", "set", "builders", "{role=build}"]);
    assert_eq!(world.json(&["group", "list"])["groups"][0]["panes"].as_array().unwrap().len(), 2);
}

#[test]
fn a_stream_of_labels_follows_a_pane_from_when_it_is_labeled() {
    let world = World::with_server();
    let labeled = answering(&world, &["new-window"]);
    let later = answering(&world, &["new-session", "-s", "other"]);
    world.ok(&["label", "-t", &labeled, "role=build"]);
    let mut events = Sse::open(&world, "panes=%7Brole=build,x!=1%7D&types=output,pane-opened");
    let mut seen = |pane: &str, text: &str| {
        let mut before = String::new();
        loop {
            let event = events.next().unwrap();
            before.push_str(&event.data.to_string());
            if event.data["pane"] == *pane && event.data["text"].as_str().is_some_and(|output| output.contains(text)) {
                return before;
            }
        }
    };
    type_line(&world, &later, "early");
    world.await_output(&later, "^got early");
    type_line(&world, &labeled, "first");
    assert!(!seen(&labeled, "got first").contains("early"));
    // As a person would.
    world.tmux(&["set-option", "-p", "-t", &later, "@muxtap_labels", "role=build"]);
    world.ok(&["list-panes"]);
    let mut number = 0;
    eventually("the pane is followed", || {
        number += 1;
        type_line(&world, &later, &format!("late{number}"));
        world.await_output(&later, &format!("^got late{number}$"));
        type_line(&world, &labeled, &format!("mark{number}"));
        seen(&labeled, &format!("got mark{number}")).contains("got late")
    });
}

/// A stream that goes on: a pane that has lost its labels meanwhile stays, and one that has got them is
/// followed from now on.
#[test]
fn a_resumed_stream_of_labels_continues_where_it_was() {
    let world = World::with_server();
    let [was, is] = [(); 2].map(|()| answering(&world, &["new-window"]));
    world.ok(&["label", "-t", &was, "role=build"]);
    let query = "panes=%7Brole=build%7D&types=output,pane-opened";
    let mut events = Sse::open(&world, query);
    let says = |events: &mut Sse, pane: &str, text: &str| {
        let mut before = String::new();
        loop {
            let event = events.next().unwrap();
            before.push_str(&event.data.to_string());
            if event.data["pane"] == *pane && event.data["text"].as_str().is_some_and(|output| output.contains(text)) {
                return before;
            }
        }
    };
    type_line(&world, &was, "first");
    says(&mut events, &was, "got first");
    let last = events.id.clone();
    drop(events);
    world.ok(&["label", "-t", &was, "role-"]);
    type_line(&world, &is, "early");
    world.await_output(&is, "^got early");
    world.ok(&["label", "-t", &is, "role=build"]);
    type_line(&world, &was, "second");
    let mut events = Sse::resume(&world, query, last.as_deref());
    type_line(&world, &is, "late");
    let mut seen = says(&mut events, &is, "got late");
    if !seen.contains("got second") {
        seen += &says(&mut events, &was, "got second");
    }
    assert!(!seen.contains("early") && !seen.contains("got first"), "{seen}");
}

#[test]
fn only_a_caller_that_may_change_panes_labels_them() {
    let mut world = World::with_server();
    world.set("MUXTAP_ALLOW", "read,input");
    let pane = world.window("exec cat");
    for words in [&["label", "-t", &pane, "role=build"][..], &["label", "-s", "-t", "main", "role=build"]] {
        let message = world.error("READ_ONLY", words);
        assert!(message.contains("create"), "{message}");
    }
    assert_eq!(labels(&world, &pane), Value::Null);
    world.tmux(&["set-option", "-p", "-t", &pane, "@muxtap_labels", "role=build"]);
    assert_eq!(world.ok(&["label", "-t", &pane]), "role=build");
}

/// Rules count in labeled panes alone, also in one that a person labels later, and label panes.
#[test]
fn rules_select_panes_by_labels_and_label_them() {
    let world = World::with_server();
    let folder = world.path("home/muxtap");
    fs::create_dir_all(&folder).unwrap();
    let rules = "[[when]]\nname='labeled'\noutput='^got'\nlabels=['role=build','by!=rule']\n\
                 label={by='rule',role=''}\nrun=['true']\nevery='100ms'\n\
                 [[when]]\nname='target'\noutput='^got'\npanes=['{by=rule}']\nrun=['true']\nevery='100ms'\n";
    fs::write(folder.join("config.toml"), rules).unwrap();
    let [pane, other] = [(); 2].map(|()| answering(&world, &["new-window"]));
    world.ok(&["label", "-t", &pane, "role=build"]);
    let socket = world.socket().display().to_string();
    eventually("the server is watched", || {
        let list = world.json(&["when", "list"]);
        list["servers"].as_array().unwrap().iter().any(|server| *server == *socket)
    });
    let fired = |rule: &str| -> Vec<Value> {
        let log = world.json(&["when", "log"])["firings"].as_array().unwrap().clone();
        log.into_iter().filter(|firing| firing["rule"] == rule && firing["state"] != "running").collect()
    };
    for pane in [&other, &pane] {
        type_line(&world, pane, "x");
    }
    eventually("the rule has fired", || fired("labeled").len() == 1);
    let done = fired("labeled");
    assert_eq!(
        (&done[0]["pane"], &done[0]["results"]),
        (&json!(pane), &json!(["label: set", "run: status 0"])),
        "{done:?}"
    );
    assert_eq!(labels(&world, &pane), json!({"by": "rule"}));
    eventually("its own label selects the pane", || {
        type_line(&world, &pane, "y");
        !fired("target").is_empty()
    });
    // tmux reports an option's change within a second where it is asked for; a listing does at once.
    world.tmux(&["set-option", "-p", "-t", &other, "@muxtap_labels", "role=build"]);
    eventually("a person's label counts", || {
        type_line(&world, &other, "z");
        labels(&world, &other) == json!({"by": "rule"})
    });
    assert_eq!(fired("labeled").len(), 2);
    // What the session gives is not removed, and the other label is set all the same.
    let inherits = answering(&world, &["new-session", "-s", "apart"]);
    world.ok(&["label", "-s", "-t", "apart", "role=build"]);
    eventually("the rule labels a pane of a labeled session", || {
        type_line(&world, &inherits, "z");
        labels(&world, &inherits) == json!({"by": "rule", "role": "build"})
    });
    eventually("the rule has fired", || fired("labeled").len() == 3);
    let list = world.ok(&["when", "list"]);
    assert!(list.contains("{role=build,by!=rule}") && list.contains("run label"), "{list}");
}

/// A label that is taken away stops a rule, also before muxtap has listed the panes again.
#[test]
fn a_rule_does_nothing_in_a_pane_that_has_lost_its_labels() {
    let world = World::with_server();
    let folder = world.path("home/muxtap");
    fs::create_dir_all(&folder).unwrap();
    let selects = "output='^got go'\nevery='100ms'\n";
    let rules = format!(
        "[[when]]\nname='types'\nlabels=['role=build']\ntype=\"typed\\n\"\ninto='main:target'\n{selects}\
         [[when]]\nname='labels'\npanes=['{{role=build}}']\nlabel={{seen='1'}}\n{selects}\
         [[when]]\nname='runs'\nlabels=['role=build']\nrun=['true']\n{selects}\
         [[when]]\nname='always'\nrun=['true']\n{selects}"
    );
    fs::write(folder.join("config.toml"), rules).unwrap();
    let pane = answering(&world, &["new-window"]);
    let target = answering(&world, &["new-window", "-n", "target"]);
    world.ok(&["label", "-t", &pane, "role=build"]);
    let socket = world.socket().display().to_string();
    eventually("the server is watched", || {
        let list = world.json(&["when", "list"]);
        list["servers"].as_array().unwrap().iter().any(|server| *server == *socket)
    });
    let fired = || -> Vec<Value> { world.json(&["when", "log"])["firings"].as_array().unwrap().clone() };
    let ended = |always: usize| {
        eventually("the rules have fired", || {
            let all = fired();
            all.iter().filter(|firing| firing["rule"] == "always").count() == always
                && all.iter().all(|firing| firing["state"] != "running")
        });
        fired()
    };
    type_line(&world, &pane, "go 1");
    world.await_output(&target, "^got typed");
    let first = ended(1);
    assert!(first.len() == 4 && first.iter().all(|firing| firing["state"] == "done"), "{first:?}");
    world.tmux(&["set-option", "-pu", "-t", &pane, "@muxtap_labels", ";", "send-keys", "-t", &pane, "go 2", "Enter"]);
    let all = ended(2);
    for firing in &all[4..] {
        let result = firing["results"][0].as_str().unwrap();
        let is_stopped = result.contains("the pane's labels no longer match");
        assert!(firing["rule"] == "always" || firing["state"] == "failed" && is_stopped, "{firing}");
    }
    assert_eq!(world.read_all(&target).matches("got typed").count(), 1);
    assert_eq!(option(&world, &pane), "");
}
