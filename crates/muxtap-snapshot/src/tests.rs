//! Tests of the pure parts.

use std::collections::BTreeMap;

use muxtap_api::{ErrorCode, Labels};
use muxtap_core::protocol::ids::PaneId;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    diff::diff,
    file::{self, Programs},
    import::{self, ImportFormat, Imported},
    layout,
    limits::{YAML_DEPTH, YAML_VALUES},
    model::{Pane, Session, Snapshot, Window},
    restore::chosen,
    store::{Kind, Store, check_name},
    yaml,
};

fn pane(directory: &str) -> Pane {
    Pane { directory: directory.into(), active: true, ..Pane::default() }
}

fn window(index: u32) -> Window {
    Window {
        index: Some(index),
        name: format!("w{index}"),
        layout: "b25d,80x24,0,0,0".into(),
        size: Some((80, 24)),
        panes: vec![pane("/tmp")],
        ..Window::default()
    }
}

fn session(name: &str, windows: Vec<Window>) -> Session {
    Session { name: name.into(), directory: "/tmp".into(), windows, ..Session::default() }
}

/// Three sessions: an ordinary one, one that shares its windows, and one that links one of them.
fn shared() -> Snapshot {
    let grouped =
        Session { grouped_with: Some("a".into()), current: Some(2), windows: Vec::new(), ..session("b", Vec::new()) };
    let linked = Window { linked: Some(("a".into(), 2)), panes: Vec::new(), current: true, ..window(5) };
    let sessions = vec![session("a", vec![window(1), window(2)]), grouped, session("c", vec![window(0), linked])];
    Snapshot { saved: "2026-11-23T12:00:00Z".into(), sessions }
}

#[test]
fn a_snapshot_reads_back_what_it_wrote() {
    let snapshot = shared();
    assert_eq!(file::read(&file::write(&snapshot)).unwrap(), snapshot);
}

fn text() -> impl Strategy<Value = String> {
    // An empty text, or another program's short form, does not survive a round trip.
    "[^/~$ ]{1,12}".prop_filter("a word", |text| !matches!(text.as_str(), "." | "blank" | "pane" | "null"))
}

fn panes() -> impl Strategy<Value = Pane> {
    (text(), text(), any::<bool>(), prop::collection::vec(text(), 0..4), prop::collection::vec(".*", 0..3)).prop_map(
        |(directory, title, last, argv, history)| Pane {
            directory: format!("/{directory}"),
            last_line: format!("cd {title}"),
            labels: Labels::from([("note".to_owned(), title.clone())].into_iter().collect::<BTreeMap<_, _>>()),
            title,
            last,
            argv,
            history,
            ..Pane::default()
        },
    )
}

fn windows() -> impl Strategy<Value = Window> {
    (text(), any::<[bool; 4]>(), prop::collection::vec(panes(), 1..5)).prop_map(|(name, flags, mut panes)| {
        panes[0].active = true;
        let [auto_name, fixed_size, zoomed, synchronized] = flags;
        Window { name, auto_name, fixed_size, zoomed, synchronized, panes, layout: "tiled".into(), ..Window::default() }
    })
}

proptest! {
    #[test]
    fn any_snapshot_reads_back_what_it_wrote(
        names in prop::collection::btree_set(text(), 1..4),
        windows in prop::collection::vec(windows(), 1..4),
        variables in prop::collection::btree_map("[A-Z]{1,5}", ".*", 0..3),
    ) {
        let sessions = names.into_iter().map(|name| {
            let numbered = windows.iter().cloned().enumerate();
            let windows = numbered.map(|(at, window)| Window { index: Some(at as u32), ..window }).collect();
            let labels = Labels::parse(&format!("team={}", variables.len()));
            Session { environment: variables.clone(), labels, ..session(&name, windows) }
        });
        let snapshot = Snapshot { saved: "x".into(), sessions: sessions.collect() };
        prop_assert_eq!(file::read(&file::write(&snapshot)).unwrap(), snapshot);
    }

    #[test]
    fn no_file_and_no_yaml_makes_the_readers_panic(text in ".{0,200}") {
        let _ = yaml::read(&text);
        let _ = import::read(&text, None);
        let _ = import::read(&format!("session_name: a\nwindows:\n- {text}"), None);
    }
}

#[test]
fn a_file_that_contradicts_itself_is_refused_with_the_place() {
    let mut file = file::write(&shared());
    let two = "159x48,0,0{79x48,0,0,1,79x48,80,0,2}";
    let two = format!("{:04x},{two}", muxtap_core::protocol::layout::checksum(two.as_bytes()));
    for (pointer, value, says) in [
        ("/windows/0/layout", json!(two), "layout has 2 panes"),
        ("/windows/0/layout", json!("0000,80x24,0,0,0"), "invalid layout"),
        ("/windows/0/layout", json!("no-such"), "invalid layout"),
        ("/windows/1/window_index", json!(1), "same index"),
        ("/muxtap/sessions/0/muxtap/grouped_with", json!("z"), "grouped with \"z\""),
        ("/muxtap/sessions/1/windows/1/muxtap/linked/index", json!(9), "a:9"),
        ("/muxtap/sessions/1/session_name", json!("a"), "duplicate name"),
        ("/muxtap/version", json!(2), "newer"),
        ("/session_name", json!(3), "session_name"),
        ("/windows", json!("x"), "expected a list"),
    ] {
        let before = std::mem::replace(file.pointer_mut(pointer).unwrap(), value);
        let error = file::read(&file).unwrap_err();
        assert!(error.message.contains(says), "{pointer}: {}", error.message);
        *file.pointer_mut(pointer).unwrap() = before;
    }
    file::read(&file).unwrap();
}

#[test]
fn what_is_shared_with_a_session_that_is_not_chosen_becomes_its_own() {
    let snapshot = shared();
    let made = chosen(&snapshot, &["b".into(), "c".into()]).unwrap();
    let names: Vec<_> = made.iter().map(|session| session.name.as_str()).collect();
    assert_eq!(names, ["b", "c"]);
    assert_eq!((made[0].grouped_with.as_ref(), made[0].windows.len()), (None, 2));
    assert_eq!(made[0].windows.iter().map(|window| window.current).collect::<Vec<_>>(), [false, true]);
    assert_eq!(
        (made[1].windows[1].index, made[1].windows[1].panes.len(), made[1].windows[1].current),
        (Some(5), 1, true)
    );
    assert_eq!(chosen(&snapshot, &[]).unwrap(), snapshot.sessions);
    assert_eq!(chosen(&snapshot, &["z".into()]).unwrap_err().code, ErrorCode::NotFound);
}

#[test]
fn panes_are_numbered_as_they_stand_and_floating_ones_are_taken_out() {
    let body = "80x24,0,0[80x12,0,0,7,80x11,0,13{40x11,0,13,3,39x11,41,13,9}]";
    let sum = muxtap_core::protocol::layout::checksum(body.as_bytes());
    let found = layout::numbered(&format!("{sum:04x},{body}"), &[]).unwrap();
    assert_eq!(found.tiled, [7, 3, 9].map(PaneId));
    assert!(found.text.ends_with("80x24,0,0[80x12,0,0,0,80x11,0,13{40x11,0,13,1,39x11,41,13,2}]"), "{}", found.text);
    assert_eq!((found.size, layout::panes(&found.text)), ((80, 24), Some(3)));
    // 3.7c writes a floating pane among the tiled ones too.
    let floating = layout::numbered("7bff,80x24,0,0[80x24,0,0,0,40x6,4,2,1]<40x6,4,2,1>", &[PaneId(1)]).unwrap();
    assert_eq!((floating.text.as_str(), floating.tiled), ("b25d,80x24,0,0,0", vec![PaneId(0)]));
    assert_eq!(layout::numbered("tiled", &[]), None);
}

#[test]
fn names_lose_the_escapes_that_tmux_gave_them() {
    for (kept, plain) in [
        ("a b", "a b"),
        (r"a\\ \$HOME", r"a\ $HOME"),
        (r"a\\nb", r"a\nb"),
        (r"x\ty\nz\033", "x\ty\nz\u{1b}"),
        (r"\377 \q \", r"\377 \q \"),
    ] {
        assert_eq!(layout::unescaped(kept), plain, "{kept}");
    }
}

#[test]
fn a_difference_says_where() {
    let from = shared();
    let mut to = from.clone();
    assert_eq!(diff(&from, &to), []);
    to.sessions[0].windows[1].panes[0].title = "x".into();
    to.sessions[0].windows.remove(0);
    to.sessions.remove(2);
    to.sessions.push(session("d", vec![window(1)]));
    let said: Vec<String> =
        diff(&from, &to).iter().map(|one| format!("{} {}: {} -> {}", one.place, one.field, one.from, one.to)).collect();
    assert_eq!(
        said,
        [
            "a:1 window: there -> not there",
            "a:2.0 title:  -> x",
            "c session: there -> not there",
            "d session: not there -> there"
        ]
    );
}

#[test]
fn names_are_safe_as_files() {
    for name in ["a", "A-1_b.c", "Zürich", "3"] {
        check_name(name).unwrap();
    }
    for name in ["", ".", "..", ".a", "-a", "a/b", "a b", "a\0", "a\n", "%a", &"x".repeat(101)] {
        assert_eq!(check_name(name).unwrap_err().code, ErrorCode::InvalidArgument, "{name:?}");
    }
}

#[test]
fn a_file_is_its_users_alone_and_is_replaced_only_when_asked() {
    use std::os::unix::fs::PermissionsExt as _;

    let dir = tempfile::tempdir().unwrap();
    let store = Store { snapshots: dir.path().join("s/snapshots"), layouts: dir.path().join("s/layouts") };
    assert_eq!(store.names(Kind::Snapshot).unwrap(), Vec::<String>::new());
    let path = store.write(Kind::Snapshot, "a", &json!({"x": 1}), false).unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    assert_eq!(store.write(Kind::Snapshot, "a", &json!(2), false).unwrap_err().code, ErrorCode::Conflict);
    assert_eq!(store.read(Kind::Snapshot, "a").unwrap(), json!({"x": 1}));
    store.write(Kind::Snapshot, "a", &json!(2), true).unwrap();
    assert_eq!(store.read(Kind::Snapshot, "a").unwrap(), json!(2));
    std::fs::write(store.snapshots.join("b.json"), "{").unwrap();
    std::fs::write(store.snapshots.join("notes.txt"), "").unwrap();
    assert_eq!(store.read(Kind::Snapshot, "b").unwrap_err().code, ErrorCode::InconsistentState);
    assert_eq!(store.names(Kind::Snapshot).unwrap(), ["a", "b"]);
    store.remove(Kind::Snapshot, "a").unwrap();
    assert_eq!(store.remove(Kind::Snapshot, "a").unwrap_err().code, ErrorCode::NotFound);
    assert!(store.read(Kind::Snapshot, "a").unwrap_err().message.contains("existing: b"));
}

#[test]
fn yaml_has_the_types_of_its_core_schema_and_anchors() {
    let text = "a: &x {b: 1, c: 'yes', ~: 2}\nd: *x\ne: [true, null, 0x1f, '1', two]\nf: |\n  l1\n  l2\ng:\n  <<: *x\n  b: 3\n";
    let value = yaml::read(text).unwrap();
    assert_eq!(value["a"], json!({"b": 1, "c": "yes", "null": 2}));
    assert_eq!(value["d"], value["a"]);
    assert_eq!(value["e"], json!([true, null, "0x1f", "1", "two"]));
    assert_eq!((&value["f"], &value["g"]["b"], &value["g"]["c"]), (&json!("l1\nl2\n"), &json!(3), &json!("yes")));
    assert!(yaml::read("a: [").unwrap_err().message.contains("YAML"));
}

#[test]
fn yaml_that_stands_for_more_than_it_says_is_refused() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let before = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb = format!("{bomb}a{level}: &a{level} [{before}]\n");
    }
    assert!(yaml::read(&bomb).unwrap_err().message.contains(&YAML_VALUES.to_string()));
    let deep = "[".repeat(YAML_DEPTH + 1);
    assert!(yaml::read(&deep).unwrap_err().message.contains(&YAML_DEPTH.to_string()));
}

#[test]
fn text_that_an_import_copies_for_each_pane_is_bounded() {
    let long = "x".repeat(600_000);
    let refused = |text: &str, format| import::read(text, format).unwrap_err().message;
    let aliases = "*a, ".repeat(99_000);
    let why = refused(&format!("session_name: &a '{long}'\nwindows: [{aliases}]\n"), None);
    assert!(why.contains("bytes of text"), "{why}");
    // The same for each pane, before anything is copied.
    let panes = format!("[{}]", "~, ".repeat(499));
    for (format, text) in [
        (
            ImportFormat::Tmuxp,
            format!("session_name: s\nwindows: [{{shell_command_before: '{long}', panes: {panes}}}]\n"),
        ),
        (ImportFormat::Tmuxp, format!("session_name: s\nstart_directory: /{long}\nwindows: [{{panes: {panes}}}]\n")),
        (ImportFormat::Tmuxinator, format!("name: s\npre_window: '{long}'\nwindows: [{{w: {{panes: {panes}}}}}]\n")),
        (ImportFormat::Tmuxinator, format!("name: s\nwindows: [{{w: {{pre: '{long}', panes: {panes}}}}}]\n")),
        (ImportFormat::Smug, format!("session: s\nroot: /{long}\nwindows: [{{name: w, panes: {panes}}}]\n")),
    ] {
        let why = refused(&text, Some(format));
        assert!(why.contains("lines for each pane"), "{format:?}: {why}");
    }
    let many = format!("[{}]", "~, ".repeat(501));
    for (format, text) in [
        (ImportFormat::Tmuxp, format!("session_name: s\nwindows: [{{panes: {many}}}]\n")),
        (ImportFormat::Tmuxinator, format!("name: s\nwindows: [{{w: {{panes: {many}}}}}]\n")),
        (ImportFormat::Smug, format!("session: s\nwindows: [{{name: w, panes: {many}}}]\n")),
    ] {
        let why = refused(&text, Some(format));
        assert!(why.contains("501 panes; at most 500"), "{format:?}: {why}");
    }
    let windows = format!("session_name: s\nwindows: [{}]\n", "{}, ".repeat(1001));
    assert!(refused(&windows, None).contains("more than 1000"));
}

#[test]
fn tmuxp_files_with_short_forms_are_read() {
    let text = "session_name: web\nstart_directory: /srv\nenvironment: {PORT: 80}\nwindows:\n- window_name: ed\n  focus: true\n  layout: main-vertical\n  \
                shell_command_before: [cd app]\n  panes:\n  - vim\n  - shell_command: [{cmd: make}, ls]\n    focus: true\n  - \
                blank\n  - null\n- window_name: log\n  start_directory: log\n  options: {synchronize-panes: on}\n";
    let (format, Imported { snapshot, .. }) = import::read(text, None).unwrap();
    assert_eq!(format, ImportFormat::Tmuxp);
    let session = &snapshot.sessions[0];
    assert_eq!((session.name.as_str(), session.environment["PORT"].as_str()), ("web", "80"));
    let [ed, log] = session.windows.as_slice() else { panic!("{session:?}") };
    let lines: Vec<_> = ed.panes.iter().map(|pane| pane.lines.join("|")).collect();
    assert_eq!(lines, ["cd app|vim", "cd app|make|ls", "cd app", "cd app"]);
    assert_eq!(
        (ed.current, ed.layout.as_str(), ed.panes[1].active, ed.panes[0].active),
        (true, "main-vertical", true, false)
    );
    assert_eq!((log.panes.len(), log.panes[0].directory.as_str(), log.synchronized), (1, "/srv/log", true));
}

#[test]
fn tmuxinator_files_are_read() {
    let text = "name: my.site\nroot: ~/site\npre_window: nvm use\nstartup_window: server\nwindows:\n  - editor:\n      \
                layout: main-vertical\n      root: ~/site/src\n      synchronize: after\n      panes:\n        - vim\n        - guard:\n          - bundle \
                exec guard\n          - ls\n  - server: rails s\n  - logs:\n    - tail -f a\n    - tail -f b\n  - empty:\n";
    let (format, Imported { snapshot, .. }) = import::read(text, None).unwrap();
    assert_eq!(format, ImportFormat::Tmuxinator);
    let session = &snapshot.sessions[0];
    assert_eq!((session.name.as_str(), session.directory.as_str()), ("my_site", "~/site"));
    let names: Vec<_> = session.windows.iter().map(|window| (window.name.as_str(), window.current)).collect();
    assert_eq!(names, [("editor", false), ("server", true), ("logs", false), ("empty", false)]);
    let editor = &session.windows[0];
    assert_eq!((editor.panes[1].title.as_str(), editor.panes[1].directory.as_str()), ("guard", "~/site/src"));
    assert_eq!(editor.panes[1].lines, ["nvm use", "bundle exec guard", "ls"]);
    assert!(editor.synchronized);
    assert_eq!(session.windows[2].panes[0].lines, ["nvm use", "tail -f a", "tail -f b"]);
    assert!(import::read("name: <%= @args[0] %>\nwindows: []", None).unwrap_err().message.contains("ERB"));
}

#[test]
fn smug_files_are_read() {
    let text = "session: blog\nroot: /srv/blog\nbefore_start: [docker-compose up]\nenv: {A: b}\nwindows:\n  - name: code\n    root: src\n    layout: \
                main-vertical\n    commands: [vim]\n    panes:\n      - type: horizontal\n        root: .\n        commands: [make]\n  - name: infra\n    \
                selected: true\n    root: infra\n";
    let (format, Imported { snapshot, .. }) = import::read(text, None).unwrap();
    assert_eq!(format, ImportFormat::Smug);
    let session = &snapshot.sessions[0];
    let [code, infra] = session.windows.as_slice() else { panic!("{session:?}") };
    let panes: Vec<_> = code.panes.iter().map(|pane| (pane.directory.as_str(), pane.lines.join("|"))).collect();
    assert_eq!(panes, [("/srv/blog/src", "vim".to_owned()), ("/srv/blog/src", "make".to_owned())]);
    assert!(infra.current && !code.current);
    assert_eq!(session.environment["A"], "b");
}

/// Each key in smug's README.
#[test]
fn each_smug_key_is_imported_or_skipped() {
    let text = "session: blog\nroot: ~/blog\nbefore_start:\n  - docker-compose up -d\nenv:\n  FOO: BAR\nstop:\n  - docker stop \
                $(docker ps -q)\nwindows:\n  - name: code\n    root: app # relative\n    manual: true\n    layout: \
                main-vertical\n    commands:\n      - docker-compose start\n    panes:\n      - type: horizontal\n        root: .\n        \
                commands:\n          - docker-compose exec php /bin/sh\n          - clear\n  - name: infrastructure\n    root: \
                ~/blog/services\n    layout: tiled\n    panes:\n      - type: vertical\n        root: .\n        commands:\n          - clear\n";
    let (format, Imported { snapshot, .. }) = import::read(text, None).unwrap();
    assert_eq!(format, ImportFormat::Smug);
    let session = &snapshot.sessions[0];
    assert_eq!((session.name.as_str(), session.directory.as_str()), ("blog", "~/blog"));
    assert_eq!(
        session.environment.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(),
        ["FOO=BAR"]
    );
    let windows: Vec<_> = session.windows.iter().map(|window| (window.name.as_str(), window.layout.as_str())).collect();
    assert_eq!(windows, [("code", "main-vertical"), ("infrastructure", "tiled")]);
    let panes = |at: usize| {
        let panes = session.windows[at].panes.iter();
        panes.map(|pane| (pane.directory.as_str(), pane.lines.join("|"))).collect::<Vec<_>>()
    };
    assert_eq!(
        panes(0),
        [
            ("~/blog/app", "docker-compose start".to_owned()),
            ("~/blog/app", "docker-compose exec php /bin/sh|clear".to_owned())
        ]
    );
    assert_eq!(panes(1), [("~/blog/services", String::new()), ("~/blog/services", "clear".to_owned())]);
    // Commands that run before and after are nowhere.
    let written = file::write(&snapshot).to_string();
    assert!(!written.contains("up -d") && !written.contains("docker stop"), "{written}");
}

#[test]
fn a_file_that_nobody_wrote_is_refused_in_words() {
    for text in ["", "[]", "{}", "a: b", "3", "session_name: []"] {
        let error = import::read(text, None).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidArgument, "{text}");
    }
}

#[test]
fn tmuxp_types_programs_only_where_that_was_asked_for() {
    let mut of = session("a", vec![window(0)]);
    of.windows[0].panes[0].argv = ["vim", "a b", "it's"].map(str::to_owned).into();
    let lines = |programs| file::write_session(&of, programs)["windows"][0]["panes"][0]["shell_command"].clone();
    assert_eq!(lines(Programs::Kept), json!([]));
    assert_eq!(lines(Programs::Typed), json!(["vim 'a b' 'it'\\''s'"]));
    assert_eq!(file::write(&shared())["muxtap"]["sessions"].as_array().map(Vec::len), Some(2));
    assert_ne!(file::write(&shared()), Value::Null);
}

#[test]
fn json_with_too_many_values_is_refused_before_it_is_parsed() {
    let text = |count: usize| format!("{{\"session_name\": \"a,[{{\", \"x\": [{}0]}}", "0,".repeat(count));
    let why = import::read(&text(super::limits::JSON_VALUES), Some(ImportFormat::Tmuxp)).unwrap_err().message;
    assert!(why.contains("at most 2000000"), "{why}");
    let why = import::read(&text(10), Some(ImportFormat::Tmuxp)).unwrap_err().message;
    assert!(!why.contains("at most"), "{why}");
}

#[test]
fn copies_of_a_window_that_is_linked_many_times_are_bounded() {
    let long = "x".repeat(1 << 20);
    let link = |index: u32| json!({ "window_index": index, "muxtap": { "linked": { "session": "a", "index": 0 } } });
    let file = json!({
        "session_name": "a",
        "windows": [{ "window_index": 0, "panes": [long] }],
        "muxtap": { "sessions": [{ "session_name": "b", "windows": (0..100).map(link).collect::<Vec<_>>() }] },
    });
    let snapshot = file::read(&file).unwrap();
    let why = super::restore::chosen(&snapshot, &["b".to_owned()]).unwrap_err().message;
    assert!(why.contains("bytes of text in all"), "{why}");
    assert_eq!(super::restore::chosen(&snapshot, &[]).unwrap().len(), 2);
}

#[test]
fn what_a_file_would_run_is_said_with_its_variables_first_and_a_bound() {
    let lines: Vec<String> = (0..200).map(|number| format!("echo {number}")).collect();
    let file = json!({
        "session_name": "a", "environment": { "PROMPT_COMMAND": "id; id" }, "on_project_start": "id", "options": {"x": 1},
        "shell_command_before": ["id"],
        "windows": [{ "window_index": 3, "options": { "synchronize-panes": "on" },
            "panes": [{ "shell_command": lines, "muxtap": { "argv": ["vim", "a b"] } }, "y".repeat(5000)] }],
    });
    let (_, Imported { snapshot, left_out }) = import::read(&file.to_string(), None).unwrap();
    assert_eq!(left_out, ["on_project_start", "options", "shell_command_before"]);
    let shown = super::runs::shown(&snapshot);
    assert_eq!(&shown[..3], ["a: sets PROMPT_COMMAND='id; id'", "a:3.0: starts vim 'a b'", "a:3.0: types echo 0"]);
    assert_eq!((shown.len(), shown[100].as_str()), (101, "and 103 more"));
}

#[test]
fn a_person_is_shown_all_that_would_run_or_is_not_asked() {
    let of = |environment: serde_json::Value, line: &str| {
        let file = json!({ "session_name": "a", "environment": environment, "windows": [{ "panes": [line] }] });
        import::read(&file.to_string(), None).unwrap().1.snapshot
    };
    let variables =
        |count: usize| (0..count).map(|at| (format!("A{at}"), json!("x"))).collect::<serde_json::Map<_, _>>();
    assert_eq!(super::runs::whole(&of(variables(99).into(), "id")).unwrap().len(), 100);
    assert_eq!(super::runs::whole(&of(variables(120).into(), "id")), None);
    let hidden = |spaces: usize| of(json!({}), &format!("make test {};rm -rf /", " ".repeat(spaces)));
    let shown = super::runs::whole(&hidden(994)).unwrap();
    assert_eq!(shown, ["a:#0.0: types make test (995 spaces) ;rm -rf /"]);
    assert_eq!(super::runs::whole(&of(json!({}), &"y".repeat(5000))), None);
    let cut = super::runs::shown(&of(json!({}), &format!("{}; rm -rf /", "y".repeat(5000))));
    assert!(cut[0].ends_with("; rm -rf /") && cut[0].contains("characters omitted"), "{cut:?}");
}

#[test]
fn tmux_resurrects_files_are_read() {
    // As its version 4 writes them, with one grouped session.
    let text = "grouped_session\tmore\twork\t:1\t:0\n\
                pane\twork\t0\t1\t:*Z\t0\thost\t:/home/me/my\\ site\t1\tvim\t:vim -p a.rs b.rs\n\
                pane\twork\t0\t1\t:*Z\t1\thost\t:/tmp\t0\tbash\t:\n\
                pane\twork\t1\t0\t:-\t0\ttitle\t:/srv\t1\ttail\t:tail -f log\n\
                pane\tother\t3\t1\t:*\t0\t\t:/\t1\tzsh\t:\n\
                window\twork\t0\t:editor\t1\t:*Z\t020a,80x24,0,0{40x24,0,0,1,39x24,41,0,2}\toff\n\
                window\twork\t1\t:log\t0\t:-\tb260,80x24,0,0,3\t:\n\
                window\tother\t3\t:zsh\t1\t:*\tb261,80x24,0,0,4\ton\n\
                state\twork\tother\n";
    let (format, Imported { snapshot, left_out }) = import::read(text, None).unwrap();
    assert_eq!((format, left_out.len()), (ImportFormat::Resurrect, 0));
    let names: Vec<_> = snapshot.sessions.iter().map(|session| session.name.as_str()).collect();
    assert_eq!(names, ["work", "other", "more"]);
    let [editor, log] = snapshot.sessions[0].windows.as_slice() else { panic!("{snapshot:?}") };
    assert_eq!((editor.name.as_str(), editor.current, editor.zoomed, editor.auto_name), ("editor", true, true, false));
    assert_eq!((editor.size, layout::panes(&editor.layout)), (Some((80, 24)), Some(2)));
    let panes: Vec<_> = editor.panes.iter().map(|pane| (pane.directory.as_str(), pane.argv.join("|"))).collect();
    assert_eq!(panes, [("/home/me/my site", "vim|-p|a.rs|b.rs".to_owned()), ("/tmp", String::new())]);
    assert_eq!((log.index, log.last, log.panes[0].title.as_str()), (Some(1), true, "title"));
    assert!(snapshot.sessions[1].windows[0].auto_name);
    let more = &snapshot.sessions[2];
    assert_eq!((more.grouped_with.as_deref(), more.current, more.last), (Some("work"), Some(0), Some(1)));
    // Before version 4.
    let old = "pane\tw\t1\t:vi\t1\t:*\t0\t:/a\t1\tvi\t:vi x\nwindow\tw\t1\t1\t:*\tb25d,80x24,0,0,0\nstate\tw\t\n";
    let (_, Imported { snapshot, .. }) = import::read(old, None).unwrap();
    let window = &snapshot.sessions[0].windows[0];
    assert_eq!((window.name.as_str(), window.panes[0].argv.join(" ")), ("vi", "vi x".to_owned()));
    // A command with tabs, and text that would be a template elsewhere.
    let text = "pane\tw\t0\t1\t:*\t0\t<%= x\t:/a\t1\tawk\t:awk -F\t {}\nstate\tw\t\n";
    let (_, Imported { snapshot, .. }) = import::read(text, None).unwrap();
    assert_eq!(snapshot.sessions[0].windows[0].panes[0].argv, ["awk", "-F\t", "{}"]);
    for (text, says) in [("pane\tw\tx\n", "line 1"), ("state\ta\tb\n", "no pane"), ("state\ta\nhello\n", "line 2")] {
        assert!(import::read(text, None).unwrap_err().message.contains(says), "{text}");
    }
}
