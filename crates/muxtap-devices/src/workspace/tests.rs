use proptest::prelude::*;

use super::{model::Node, *};

const NOW: u64 = 1_700_000_000_000;

fn change(workspace: &Workspace, command: &str, args: &Value) -> Change {
    let command = serde_json::from_value(json!({"command": command, "args": args})).unwrap();
    let (revision, mut key) = (workspace.revision(), format!("k{}", workspace.revision()));
    // A pane is finalized by the command that reserved it.
    if let Command::Finalize { pane, .. } = &command
        && let Ok(pane) = workspace.layout.find_pane(pane, None)
        && let Some(reserver) = &pane.reserver
    {
        // The reserver's key is one of these; the pane has only its hash.
        let mut keys = (0..1000).map(|number| finalize_key(&format!("k{number}")));
        key = keys.find(|key| hash(key) == reserver.finalize_key).unwrap_or(key);
    }
    Change { command, expected_revision: Some(revision), idempotency_key: Some(key) }
}

/// Makes a change, which must succeed.
// Reasons: their callers write the arguments in place.
#[allow(clippy::needless_pass_by_value)]
fn done(workspace: &mut Workspace, command: &str, args: Value) -> Applied {
    let change = change(workspace, command, &args);
    // What a workspace accepts was not refused before.
    change.command.check().unwrap_or_else(|error| panic!("{command} {args}: {error}"));
    workspace.apply(&change, "caller", NOW).unwrap_or_else(|error| panic!("{command} {args}: {error}"))
}

/// Makes a change, which must fail with this code and change nothing.
#[allow(clippy::needless_pass_by_value)]
fn refused(workspace: &mut Workspace, code: ErrorCode, command: &str, args: Value) -> Error {
    let before = workspace.clone();
    let change = change(workspace, command, &args);
    let error = workspace.apply(&change, "caller", NOW).unwrap_err();
    assert_eq!(error.code, code, "{command} {args}: {error}");
    assert_eq!(*workspace, before, "{command} {args}");
    error
}

fn panes(workspace: &Workspace, tab: &str) -> Vec<String> {
    workspace.layout().tab(tab).unwrap().layout.panes().into_iter().map(str::to_owned).collect()
}

#[test]
fn tabs_are_made_selected_renamed_and_removed() {
    let mut workspace = Workspace::new("d");
    assert_eq!(workspace.revision(), 1);
    let first = done(&mut workspace, "new-tab", json!({"title": "one"}));
    assert_eq!(first.applied_revision, 2);
    let (tab, pane) = (first.tab.unwrap(), first.pane.unwrap());
    assert_eq!((tab.title.as_str(), tab.owner_device_id.as_str(), tab.layout_revision), ("one", "d", 2));
    assert_eq!((pane.kind, pane.tab_id.as_str(), pane.owner_device_id.as_str()), (PaneKind::Picker, "t1", "d"));
    done(&mut workspace, "new-tab", json!({"browser": "https://example.org/"}));
    assert_eq!(workspace.layout().active_tab_id.as_deref(), Some("t3"));
    done(&mut workspace, "select-tab", json!({"target": "tab-index:0"}));
    assert_eq!(workspace.layout().active_tab_id.as_deref(), Some("t1"));
    done(&mut workspace, "rename-tab", json!({"target": "tab-name:t3", "title": "one"}));
    let error = refused(&mut workspace, ErrorCode::AmbiguousTarget, "kill-tab", json!({"target": "tab-name:one"}));
    assert_eq!(error.details.unwrap()["candidates"], json!(["tab:t1", "tab:t3"]));
    done(&mut workspace, "kill-tab", json!({"target": "tab:t1"}));
    assert_eq!(workspace.layout().active_tab_id.as_deref(), Some("t3"));
    done(&mut workspace, "kill-tab", json!({"target": "tab:t3"}));
    assert_eq!((workspace.layout().active_tab_id.as_deref(), workspace.layout().panes.len()), (None, 0));
    assert_eq!(workspace.revision(), 7);
    // An id is never reused.
    assert_eq!(done(&mut workspace, "new-tab", json!({})).tab.unwrap().id, "t5");
    refused(&mut workspace, ErrorCode::NotFound, "select-tab", json!({"target": "tab:t1"}));
    refused(&mut workspace, ErrorCode::InvalidTarget, "select-tab", json!({"target": "pane:p6"}));
    refused(&mut workspace, ErrorCode::InvalidTarget, "select-tab", json!({"target": "main:1.0"}));
    refused(&mut workspace, ErrorCode::InvalidArgument, "rename-tab", json!({"target": "tab:t5", "title": "\u{1b}x"}));
}

#[test]
fn panes_are_split_sized_swapped_and_removed() {
    let mut workspace = Workspace::new("d");
    done(&mut workspace, "new-tab", json!({}));
    let split = json!({"target": "pane:p2", "direction": "horizontal", "editor": "src/main.rs"});
    let right = done(&mut workspace, "split-pane", split).pane.unwrap();
    assert_eq!((right.id.as_str(), right.kind, right.file.as_deref()), ("p3", PaneKind::Editor, Some("src/main.rs")));
    done(&mut workspace, "split-pane", json!({"target": "pane:p3", "direction": "vertical"}));
    assert_eq!(panes(&workspace, "t1"), ["p2", "p3", "p4"]);
    assert_eq!(workspace.layout().tab("t1").unwrap().active_pane_id, "p4");
    // The nearest split in the direction: p4's width is that of the right side.
    done(&mut workspace, "resize-pane", json!({"target": "pane:p4", "x": 70, "y": 20}));
    let Node::Split(outer) = &workspace.layout().tab("t1").unwrap().layout else { panic!("not split") };
    let Node::Split(inner) = &outer.second else { panic!("not split") };
    assert_eq!((outer.percent, inner.percent), (30, 80));
    refused(&mut workspace, ErrorCode::InvalidArgument, "resize-pane", json!({"target": "pane:p2", "y": 20}));
    refused(&mut workspace, ErrorCode::InvalidArgument, "resize-pane", json!({"target": "pane:p2", "x": 100}));
    refused(&mut workspace, ErrorCode::InvalidArgument, "resize-pane", json!({"target": "pane:p2"}));
    done(&mut workspace, "swap-pane", json!({"source": "pane:p2", "target": "pane-index:2", "tab": "tab:t1"}));
    assert_eq!(panes(&workspace, "t1"), ["p4", "p3", "p2"]);
    refused(&mut workspace, ErrorCode::InvalidTarget, "swap-pane", json!({"source": "pane:p2", "target": "pane:p2"}));
    refused(&mut workspace, ErrorCode::InvalidTarget, "select-pane", json!({"target": "pane-index:0"}));
    // In two tabs each keeps its active place.
    done(&mut workspace, "new-tab", json!({}));
    done(&mut workspace, "swap-pane", json!({"source": "pane:p4", "target": "pane:p6"}));
    assert_eq!(
        (panes(&workspace, "t1"), panes(&workspace, "t5")),
        (vec!["p6".into(), "p3".into(), "p2".into()], vec!["p4".to_owned()])
    );
    assert_eq!(workspace.layout().tab("t5").unwrap().active_pane_id, "p4");
    assert_eq!(workspace.layout().pane("p4").unwrap().tab_id, "t5");
    done(&mut workspace, "select-pane", json!({"target": "pane:p3"}));
    assert_eq!(workspace.layout().active_tab_id.as_deref(), Some("t1"));
    done(&mut workspace, "kill-pane", json!({"target": "pane:p3"}));
    assert_eq!(panes(&workspace, "t1"), ["p6", "p2"]);
    // The last pane's tab is removed with it.
    done(&mut workspace, "kill-pane", json!({"target": "pane:p4"}));
    assert!(workspace.layout().tab("t5").is_none());
}

#[test]
fn pages_files_and_terminals_are_shown_and_what_is_none_is_refused() {
    let mut workspace = Workspace::new("d");
    done(&mut workspace, "new-tab", json!({}));
    let at = "pane:p2";
    refused(&mut workspace, ErrorCode::InvalidTarget, "navigate", json!({"target": at, "url": "http://a/"}));
    let shown = done(&mut workspace, "open-browser", json!({"target": at, "url": "http://localhost:3000/a?b"}));
    assert_eq!(shown.pane.unwrap().url.as_deref(), Some("http://localhost:3000/a?b"));
    done(&mut workspace, "navigate", json!({"target": at, "url": "https://[::1]/"}));
    for url in [
        "",
        "example.org",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "http://",
        "https:///x",
        "http://:80/",
        "http://a b/",
        "java\nscript:x",
        "http://u@/",
        "HTTP://a/",
    ] {
        refused(&mut workspace, ErrorCode::InvalidArgument, "navigate", json!({"target": at, "url": url}));
    }
    done(&mut workspace, "open-editor", json!({"target": at, "file": "/tmp/a"}));
    refused(&mut workspace, ErrorCode::InvalidArgument, "open-editor", json!({"target": at, "file": "a\u{0}b"}));
    let bound = done(&mut workspace, "attach-terminal", json!({"target": "terminal:%3", "to": at})).pane.unwrap();
    assert_eq!((bound.kind, bound.file), (PaneKind::Terminal, None));
    assert_eq!(serde_json::to_value(bound.content_ref).unwrap(), json!({"terminalId": "%3"}));
    refused(&mut workspace, ErrorCode::InvalidTarget, "attach-terminal", json!({"target": "pane:p2", "to": at}));
    let bind = json!({"target": at, "contentRef": {"sessionRef": "claude:1"}});
    assert_eq!(done(&mut workspace, "bind", bind).pane.unwrap().kind, PaneKind::ClaudeChat);
    let both = json!({"browser": "http://a/", "editor": "x"});
    refused(&mut workspace, ErrorCode::InvalidArgument, "new-tab", both);
}

#[test]
fn a_pane_is_reserved_finalized_or_released() {
    let mut workspace = Workspace::new("d");
    let reserved = done(&mut workspace, "reserve", json!({"title": "shell"}));
    assert_eq!((reserved.tab.unwrap().status, reserved.pane.unwrap().status), (Status::Pending, Status::Pending));
    // A reserved pane belongs to its reserver.
    let url = json!({"target": "pane:p2", "url": "http://a/"});
    refused(&mut workspace, ErrorCode::Conflict, "open-browser", url);
    let content = json!({"pane": "pane:p2", "contentRef": {"terminalId": "%7"}});
    let fill = change(&workspace, "finalize", &content);
    let finalized = done(&mut workspace, "finalize", content);
    assert_eq!((finalized.tab.unwrap().status, finalized.pane.unwrap().status), (Status::Ready, Status::Ready));
    assert!(workspace.apply(&fill, "caller", NOW).unwrap().replayed);
    refused(&mut workspace, ErrorCode::Conflict, "release", json!({"pane": "pane:p2"}));
    done(&mut workspace, "reserve", json!({"target": "pane:p2", "direction": "vertical"}));
    assert_eq!(workspace.layout().tab("t1").unwrap().status, Status::Ready);
    done(&mut workspace, "release", json!({"pane": "pane:p3"}));
    assert_eq!(panes(&workspace, "t1"), ["p2"]);
    refused(
        &mut workspace,
        ErrorCode::NotFound,
        "finalize",
        json!({"pane": "pane:p3", "contentRef": {"terminalId": "%7"}}),
    );
    refused(&mut workspace, ErrorCode::InvalidArgument, "reserve", json!({"target": "pane:p2", "title": "x"}));
}

#[test]
fn only_the_command_that_reserved_a_pane_fills_it() {
    let mut workspace = Workspace::new("d");
    done(&mut workspace, "reserve", json!({"title": "shell"}));
    let content = json!({"pane": "pane:p2", "contentRef": {"terminalId": "%7"}});
    let own = change(&workspace, "finalize", &content);
    let mut refused = |change: &Change, caller: &str| {
        let error = workspace.apply(change, caller, NOW).unwrap_err();
        assert_eq!(error.code, ErrorCode::Conflict, "{change:?} {caller}: {error}");
        assert!(error.message.contains("reserved by another command"), "{error}");
    };
    refused(&own, "other");
    // Another command of the same device, as of another agent.
    refused(&Change { idempotency_key: Some("mine".into()), ..own.clone() }, "caller");
    refused(&Change { idempotency_key: None, ..own.clone() }, "caller");
    let release = json!({"command": "release", "args": {"pane": "pane:p2"}});
    let release = Change { command: serde_json::from_value(release).unwrap(), idempotency_key: None, ..own.clone() };
    refused(&release, "other");
    let mut released = workspace.clone();
    released.apply(&release, "caller", NOW).unwrap();
    assert_eq!(workspace.clone().release_overdue(NOW + 30_000), 1, "this device releases it");
    workspace.apply(&own, "caller", NOW).unwrap();
}

#[test]
fn another_command_about_a_pending_pane_does_not_become_its_reserver() {
    let mut workspace = Workspace::new("d");
    done(&mut workspace, "new-tab", json!({}));
    done(&mut workspace, "reserve", json!({"target": "pane:p2"}));
    let content = json!({"pane": "pane:p3", "contentRef": {"terminalId": "%7"}});
    let own = change(&workspace, "finalize", &content).idempotency_key;
    for (command, args) in [
        ("select-pane", json!({"target": "pane:p3"})),
        ("resize-pane", json!({"target": "pane:p3", "x": 30})),
        ("swap-pane", json!({"source": "pane:p3", "target": "pane:p2"})),
    ] {
        let key = Some(format!("m-{command}"));
        let keyed = Change { idempotency_key: key.clone(), ..change(&workspace, command, &args) };
        workspace.apply(&keyed, "hostile", NOW).unwrap();
        let fill = change(&workspace, "finalize", &content);
        assert_eq!(fill.idempotency_key, own, "{command}");
        let stolen = Change { idempotency_key: key.as_deref().map(finalize_key), ..fill };
        assert_eq!(workspace.apply(&stolen, "hostile", NOW).unwrap_err().code, ErrorCode::Conflict, "{command}");
    }
    // The pane remembers its reserver for longer than the responses are remembered.
    for _ in 0..=answers::ANSWERS {
        done(&mut workspace, "select-pane", json!({"target": "pane:p2"}));
    }
    let fill = change(&workspace, "finalize", &content);
    assert_eq!(workspace.apply(&fill, "hostile", NOW).unwrap_err().code, ErrorCode::Conflict);
    let text = serde_json::to_string(&workspace).unwrap();
    let (mut workspace, _) = Workspace::read(&text, "d", NOW).unwrap();
    assert!(!workspace.snapshot(NOW).to_string().contains("reserver"), "it is not published");
    assert_eq!(workspace.apply(&fill, "caller", NOW).unwrap().pane.unwrap().reserver, None);
}

#[test]
fn a_pending_pane_without_a_known_reserver_is_released_by_this_device_alone() {
    let mut workspace = Workspace::new("d");
    let reserved = done(&mut workspace, "reserve", json!({"title": "shell"}));
    assert_eq!(reserved.pane.unwrap().reserver, None, "it is no part of a response");
    let content = json!({"pane": "pane:p2", "contentRef": {"terminalId": "%7"}});
    let fill = change(&workspace, "finalize", &content);
    workspace.layout.panes[0].reserver = None;
    assert_eq!(workspace.apply(&fill, "caller", NOW).unwrap_err().code, ErrorCode::Conflict);
    refused(&mut workspace, ErrorCode::Conflict, "release", json!({"pane": "pane:p2"}));
    assert_eq!(workspace.release_overdue(NOW + 30_000), 1);
}

#[test]
fn a_key_of_reserve_leaves_room_for_that_of_finalize() {
    let mut workspace = Workspace::new("d");
    let reserve = change(&workspace, "reserve", &json!({"title": "shell"}));
    let with = |length| Change { idempotency_key: Some("k".repeat(length)), ..reserve.clone() };
    let error = workspace.apply(&with(120), "caller", NOW).unwrap_err();
    assert!(error.code == ErrorCode::InvalidArgument && error.message.contains("119 bytes"), "{error}");
    workspace.apply(&with(119), "caller", NOW).unwrap();
}

#[test]
fn a_reserved_pane_whose_reserver_died_goes_after_its_time() {
    let mut workspace = Workspace::new("d");
    done(&mut workspace, "new-tab", json!({}));
    done(&mut workspace, "reserve", json!({"target": "pane:p2"}));
    let end = NOW + PENDING_TIME.as_millis() as u64;
    assert_eq!(workspace.next_release(), Some(end));
    // Other changes to a reserved pane do not extend its timeout.
    let later = change(&workspace, "select-pane", &json!({"target": "pane:p3"}));
    workspace.apply(&later, "caller", NOW + 20_000).unwrap();
    let revision = workspace.revision();
    assert_eq!((workspace.release_overdue(end - 1), workspace.revision()), (0, revision));
    assert_eq!((workspace.release_overdue(end), workspace.revision()), (1, revision + 1));
    assert_eq!((panes(&workspace, "t1"), workspace.next_release()), (vec!["p2".to_owned()], None));
}

#[test]
fn a_change_needs_the_revision_and_a_creation_also_a_key() {
    let mut workspace = Workspace::new("d");
    let read =
        |args, revision, key: Option<&str>| match RpcRead::parse("new-tab", args, revision, key.map(str::to_owned))
            .unwrap()
        {
            RpcRead::Change(change) => *change,
            RpcRead::Snapshot => panic!("it changes"),
        };
    let code = |workspace: &mut Workspace, change: &Change| workspace.apply(change, "a", NOW).unwrap_err();
    let error = code(&mut workspace, &read(json!({}), Some(1), None));
    assert_eq!(error.code, ErrorCode::InvalidArgument);
    let error = code(&mut workspace, &read(json!({}), None, Some("k")));
    assert_eq!(error.code, ErrorCode::InvalidArgument);
    let error = code(&mut workspace, &read(json!({}), Some(7), Some("k")));
    assert_eq!((error.code, error.details), (ErrorCode::RevisionConflict, Some(json!({"currentRevision": 1}))));
    let error = code(&mut workspace, &read(json!({}), Some(1), Some("")));
    assert_eq!(error.code, ErrorCode::InvalidArgument);
    assert_eq!(workspace, Workspace::new("d"));
}

#[test]
fn a_repeated_key_gets_the_first_response_and_changes_nothing() {
    let mut workspace = Workspace::new("d");
    let keyed = |revision: u64, key: &str| match RpcRead::parse("new-tab", json!({}), Some(revision), Some(key.into()))
    {
        Ok(RpcRead::Change(change)) => *change,
        other => panic!("{other:?}"),
    };
    let first = workspace.apply(&keyed(1, "k"), "a", NOW).unwrap();
    // Also at a later revision, and after a restart.
    let (mut workspace, migrated) = Workspace::read(&serde_json::to_string(&workspace).unwrap(), "d", NOW).unwrap();
    assert!(!migrated);
    // The first response, marked as replayed.
    let again = Applied { replayed: true, ..first.clone() };
    assert!(!first.replayed);
    assert_eq!(workspace.apply(&keyed(1, "k"), "a", NOW + 1).unwrap(), again);
    assert_eq!(workspace.revision(), 2);
    // Another caller's equal key is a different key.
    assert_eq!(workspace.apply(&keyed(2, "k"), "b", NOW).unwrap().applied_revision, 3);
    // Ten minutes, and 256 responses.
    let after = NOW + answers::ANSWER_TIME.as_millis() as u64;
    assert_eq!(workspace.apply(&keyed(1, "k"), "a", after).unwrap(), again);
    assert_eq!(workspace.apply(&keyed(1, "k"), "a", after + 1).unwrap_err().code, ErrorCode::RevisionConflict);
    let select = |revision: u64, key: String| Change {
        command: Command::SelectTab { target: "tab-index:0".into() },
        expected_revision: Some(revision),
        idempotency_key: Some(key),
    };
    for number in 0..answers::ANSWERS as u64 {
        workspace.apply(&select(3 + number, format!("n{number}")), "a", NOW).unwrap();
    }
    assert!(workspace.answers.get("a", "k", NOW).is_none() && workspace.answers.get("a", "n0", NOW).is_some());
}

#[test]
fn limits_are_kept() {
    let mut workspace = Workspace::new("d");
    done(&mut workspace, "new-tab", json!({}));
    let mut last = "p2".to_owned();
    for _ in 0..DEPTH {
        let split = json!({"target": format!("pane:{last}"), "direction": "vertical"});
        last = done(&mut workspace, "split-pane", split).pane.unwrap().id;
    }
    let split = json!({"target": format!("pane:{last}"), "direction": "vertical"});
    refused(&mut workspace, ErrorCode::ResourceLimit, "split-pane", split);
    for _ in 1..TABS {
        done(&mut workspace, "new-tab", json!({}));
    }
    refused(&mut workspace, ErrorCode::ResourceLimit, "new-tab", json!({}));
    // The state of the deepest tree is readable.
    let text = serde_json::to_string(&workspace).unwrap();
    assert_eq!(Workspace::read(&text, "d", NOW).unwrap().0, workspace);
}

#[test]
fn a_state_from_before_owners_is_stamped_and_a_broken_one_is_refused() {
    let mut made = Workspace::new("d");
    done(&mut made, "new-tab", json!({"title": "old"}));
    done(&mut made, "split-pane", json!({"target": "pane:p2", "direction": "vertical"}));
    let mut old = serde_json::to_value(&made).unwrap();
    for field in ["version", "deviceId", "workspaceRevision", "nextId", "answers"] {
        old.as_object_mut().unwrap().remove(field);
    }
    for list in ["tabs", "panes"] {
        for entity in old[list].as_array_mut().unwrap() {
            for field in ["ownerDeviceId", "layoutRevision", "createdAt", "updatedAt", "status"] {
                entity.as_object_mut().unwrap().remove(field);
            }
        }
    }
    let (mut workspace, migrated) = Workspace::read(&old.to_string(), "d", NOW).unwrap();
    assert!(migrated);
    assert_eq!(workspace.revision(), 1);
    let owners: Vec<_> = workspace.layout().panes.iter().map(|pane| pane.owner_device_id.as_str()).collect();
    assert_eq!((owners, workspace.layout().tabs[0].owner_device_id.as_str()), (vec!["d", "d"], "d"));
    assert!(workspace.layout().panes.iter().all(|pane| pane.layout_revision == 1));
    // Its ids are not reused.
    assert_eq!(done(&mut workspace, "new-tab", json!({})).tab.unwrap().id, "t4");
    // Another device's entity keeps its owner, and is refused.
    old["tabs"][0]["ownerDeviceId"] = "other".into();
    let whole = serde_json::to_value(&made).unwrap();
    let with = |at: &str, value: Value| {
        let mut state = whole.clone();
        *state.pointer_mut(at).unwrap() = value;
        state.to_string()
    };
    for broken in [
        old.to_string(),
        String::new(),
        "[]".into(),
        "{\"tabs\": 1}".into(),
        with("/version", json!(2)),
        with("/deviceId", json!("other")),
        with("/workspaceRevision", json!(0)),
        with("/activeTabId", json!("t9")),
        with("/tabs/0/activePaneId", json!("p9")),
        with("/tabs/0/layout", json!({"pane": "p2"})),
        with("/panes/0/tabId", json!("t9")),
        with("/panes/0/id", json!("p3")),
        with("/panes/0/ownerDeviceId", json!("other")),
        with("/tabs/0/layout/split/percent", json!(0)),
    ] {
        assert!(Workspace::read(&broken, "d", NOW).is_err(), "{broken}");
    }
    assert!(Workspace::read(&whole.to_string(), "d", NOW).is_ok());
}

/// A command about entities that may exist or not.
fn any_command() -> impl Strategy<Value = (&'static str, Value)> {
    let pane =
        || prop_oneof![8 => (1..12u8).prop_map(|id| format!("pane:p{id}")), 1 => Just("pane-index:1".to_owned())];
    let tab = || {
        prop_oneof![
            4 => (1..12u8).prop_map(|id| format!("tab:t{id}")),
            1 => (0..3u8).prop_map(|at| format!("tab-index:{at}")),
            1 => Just("tab-name:x".to_owned()),
            1 => Just("main:0".to_owned()),
        ]
    };
    let direction = || prop_oneof![Just("horizontal"), Just("vertical")];
    prop_oneof![
        2 => Just(("new-tab", json!({"title": "x"}))),
        1 => Just(("reserve", json!({"title": "x"}))),
        1 => tab().prop_map(|target| ("select-tab", json!({"target": target}))),
        1 => tab().prop_map(|target| ("kill-tab", json!({"target": target}))),
        1 => tab().prop_map(|target| ("rename-tab", json!({"target": target, "title": "x"}))),
        6 => (pane(), direction()).prop_map(|(at, how)| ("split-pane", json!({"target": at, "direction": how}))),
        2 => (pane(), direction()).prop_map(|(at, how)| ("reserve", json!({"target": at, "direction": how}))),
        1 => (pane(), tab()).prop_map(|(at, tab)| ("select-pane", json!({"target": at, "tab": tab}))),
        2 => pane().prop_map(|at| ("kill-pane", json!({"target": at}))),
        2 => (pane(), 0..110u8).prop_map(|(at, x)| ("resize-pane", json!({"target": at, "x": x}))),
        3 => (pane(), pane()).prop_map(|(one, two)| ("swap-pane", json!({"source": one, "target": two}))),
        1 => pane().prop_map(|at| ("open-browser", json!({"target": at, "url": "http://a/"}))),
        1 => pane().prop_map(|at| ("navigate", json!({"target": at, "url": "http://b/"}))),
        1 => pane().prop_map(|at| ("open-editor", json!({"target": at, "file": "f"}))),
        1 => pane().prop_map(|at| ("attach-terminal", json!({"target": "terminal:%1", "to": at}))),
        2 => pane().prop_map(|at| ("finalize", json!({"pane": at, "contentRef": {"terminalId": "%2"}}))),
        1 => pane().prop_map(|at| ("release", json!({"pane": at}))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_workspace_stays_valid_failed_commands_change_nothing_and_replays_agree(
        commands in prop::collection::vec((any_command(), 0..4u64), 1..60)
    ) {
        let mut workspace = Workspace::new("d");
        let mut done = Vec::new();
        for (number, ((command, args), off)) in commands.into_iter().enumerate() {
            let now = NOW + number as u64 * 1000;
            // One in four expects another revision.
            let expected = workspace.revision() + u64::from(off == 3);
            let change = Change {
                expected_revision: Some(expected),
                idempotency_key: Some(format!("k{number}")),
                ..change(&workspace, command, &args)
            };
            let before = workspace.clone();
            if change.command.check().is_err() {
                // Nothing is refused beforehand that a workspace would accept.
                prop_assert!(workspace.apply(&change, "c", now).is_err());
                prop_assert_eq!(&workspace, &before);
                continue;
            }
            match workspace.apply(&change, "c", now) {
                Ok(applied) => {
                    prop_assert_eq!(applied.applied_revision, before.revision() + 1);
                    let again = Applied { replayed: true, ..applied };
                    prop_assert_eq!(workspace.apply(&change, "c", now).unwrap(), again);
                    prop_assert_eq!(workspace.revision(), before.revision() + 1);
                    done.push((change, now));
                }
                Err(error) => {
                    prop_assert!(error.code != ErrorCode::InternalError, "{}", error);
                    prop_assert_eq!(&workspace, &before);
                }
            }
            prop_assert_eq!(workspace.layout().check(), Ok(()));
        }
        let mut again = Workspace::new("d");
        for (change, now) in done {
            again.apply(&change, "c", now).unwrap();
        }
        prop_assert_eq!(&again, &workspace);
        let text = serde_json::to_string(&workspace).unwrap();
        prop_assert_eq!(Workspace::read(&text, "d", NOW).unwrap().0, workspace);
    }
}
