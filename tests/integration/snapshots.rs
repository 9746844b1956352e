//! Snapshots, layouts and groups: what is saved, what is restored, and what is never typed.

use std::{fs, process::Stdio};

use serde_json::{Value, json};

use crate::{
    common::{ANSWERS, World, eventually, run},
    hosts::{configure, ok, place_for_a_server},
    mcp::Client,
};

/// Pseudorandom numbers, the same each time (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from `from` to `to`.
    fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from + 1)
    }
}

/// Starts a server whose panes run `cat`, and whose windows keep their names.
pub fn quiet_server(world: &World) {
    world.tmux(&["new-session", "-d", "-s", "keep", "-x", "80", "-y", "24", "cat"]);
    world.tmux(&["set", "-g", "default-command", "exec cat", ";", "set", "-g", "automatic-rename", "off"]);
}

/// Returns a snapshot's sessions without their natural differences: the time of saving, the
/// sessions' names, and programs that may not have started yet.
pub fn shape(world: &World, name: &str) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(strip),
            Value::Object(fields) => {
                for field in ["saved", "session_name", "argv"] {
                    fields.remove(field);
                }
                fields.values_mut().for_each(strip);
            }
            _ => {}
        }
    }
    let mut file = world.json(&["snapshot", "show", name]);
    strip(&mut file);
    file
}

/// Lists the server's sessions and panes.
fn everything(world: &World) -> String {
    world.tmux(&["list-panes", "-a", "-F", "#{session_name}:#{window_index}.#{pane_index} #{pane_id} #{pane_title}"])
}

/// Ends a session. tmux 3.4 crashes if a window of it is zoomed.
fn end(world: &World, session: &str) {
    let windows = world.tmux(&["list-windows", "-t", session, "-f", "#{window_zoomed_flag}", "-F", "#{window_id}"]);
    for window in windows.lines() {
        world.tmux(&["resize-pane", "-Z", "-t", window]);
    }
    world.tmux(&["kill-session", "-t", &format!("={session}")]);
}

/// Creates a window of a random size, split at random, with panes of random sizes; sometimes
/// zoomed.
fn random_window(world: &World, random: &mut Random, session: &str, index: u64) {
    let place = format!("{session}:{index}");
    let size = [random.within(20, 250).to_string(), random.within(8, 90).to_string()];
    world.tmux(&["new-window", "-d", "-t", &place, "-n", &format!("w{index}")]);
    world.tmux(&["resize-window", "-t", &place, "-x", &size[0], "-y", &size[1]]);
    let mut panes = 1;
    for _ in 0..random.within(0, 7) {
        let target = format!("{place}.{}", random.within(0, panes - 1));
        let percentage = format!("{}%", random.within(10, 90));
        let direction = if random.within(0, 1) == 0 { "-h" } else { "-v" };
        let how = ["-d", "-db", "-df", "-dbf"][random.within(0, 3) as usize];
        let mut command = world.tmux_command(world.socket());
        // A pane that is too small is not split.
        panes += u64::from(
            run(command.args(["split-window", how, direction, "-l", &percentage, "-t", &target])).status == 0,
        );
    }
    let mut order = |word: &str, more: &[&str]| {
        let target = format!("{place}.{}", random.within(0, panes - 1));
        world.tmux(&[&[word, "-t", &target], more].concat());
    };
    order("resize-pane", &["-R", "3"]);
    order("resize-pane", &["-D", "2"]);
    order("select-pane", &[]);
    order("select-pane", &[]);
    if random.within(0, 3) == 0 {
        // Unfixed, like a window that was never resized.
        world.tmux(&["set", "-w", "-u", "-t", &place, "window-size"]);
    }
    if random.within(0, 2) == 0 {
        world.tmux(&["resize-pane", "-Z", "-t", &place]);
    }
}

/// `MUXTAP_TEST_LAYOUTS` sets the number of windows; 1000 take some minutes.
#[test]
fn what_is_saved_restored_and_saved_again_is_the_same_on_random_layouts() {
    let wanted: u64 = std::env::var("MUXTAP_TEST_LAYOUTS").map_or(24, |count| count.parse().unwrap());
    let seed = std::env::var("MUXTAP_TEST_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut random = Random(seed);
    let world = World::new();
    quiet_server(&world);
    let mut left = wanted;
    while left > 0 {
        let windows = left.min(12);
        left -= windows;
        world.tmux(&["new-session", "-d", "-s", "src", "-x", "80", "-y", "24", "-n", "first"]);
        for _ in 0..windows {
            // Indexes with gaps between them.
            let free = random.within(2, 2000);
            let taken = world.tmux(&["list-windows", "-t", "src", "-F", "#{window_index}"]);
            if !taken.lines().any(|index| index == free.to_string()) {
                random_window(&world, &mut random, "src", free);
            }
        }
        if random.within(0, 1) == 0 {
            // The first window then lacks the index of a new session's first window.
            world.tmux(&["kill-window", "-t", "src:0"]);
        }
        world.tmux(&["select-window", "-t", "src:^", ";", "select-window", "-t", "src:{end}"]);
        world.ok(&["snapshot", "save", "a", "-t", "src", "--replace"]);
        let restored = world.json(&["snapshot", "restore", "a", "--name", "again"]);
        assert_eq!(restored["notes"], json!([]), "seed {seed}, {left} left");
        world.ok(&["snapshot", "save", "b", "-t", "again", "--replace"]);
        let (before, after) = (shape(&world, "a"), shape(&world, "b"));
        assert_eq!(before, after, "seed {seed}, {left} left");
        assert!(before["windows"].as_array().unwrap().len() > 1);
        for session in ["src", "again"] {
            end(&world, session);
        }
    }
}

/// Without `$NAME`: 3.4 puts a backslash before it each time that a name is set
/// (docs/snapshots.md).
const TITLE: &str = "a #[bold] ##[x] #{pane_id} #(id) %H ü \\ \" ' ; ~";

/// Creates two sessions with everything that a snapshot can hold.
pub fn rich(world: &World) {
    for name in ["one #x dir", "two"] {
        fs::create_dir_all(world.path(name)).unwrap();
    }
    let (one, two) = (world.path("one #x dir"), world.path("two"));
    let (one, two) = (one.to_str().unwrap(), two.to_str().unwrap());
    // `-c` is expanded as a format, and no way of escaping `#[` is right on all versions.
    world.tmux(&["set", "-s", "@d", one]);
    world.tmux(&["new-session", "-d", "-s", "b work", "-x", "101", "-y", "33", "-n", "first", "-c", "#{@d}"]);
    world.tmux(&["set", "-s", "-u", "@d"]);
    world.tmux(&["split-window", "-h", "-l", "30", "-t", "b work:", "-c", two]);
    world.tmux(&["split-window", "-v", "-t", "b work:", "-c", two]);
    world.tmux(&["set", "-s", "@t", TITLE, ";", "select-pane", "-t", "b work:.1", "-T", "#{@t}"]);
    world.tmux(&["rename-window", "-t", "b work:", "#{@t}", ";", "set", "-s", "-u", "@t"]);
    world.tmux(&[
        "select-pane",
        "-t",
        "b work:.2",
        ";",
        "select-pane",
        "-t",
        "b work:.1",
        ";",
        "resize-pane",
        "-Z",
        "-t",
        "b work:.1",
    ]);
    world.tmux(&["new-window", "-d", "-t", "b work:7", "-n", "seven", "-c", two]);
    world.tmux(&[
        "split-window",
        "-d",
        "-t",
        "b work:7",
        ";",
        "set",
        "-w",
        "-t",
        "b work:7",
        "synchronize-panes",
        "on",
    ]);
    world.tmux(&["new-window", "-t", "b work:9", "-n", "nine"]);
    world.tmux(&["set-option", "-t", "b work", "@muxtap_session_labels", "team=a,note=%23%7B%20%24HOME%7D"]);
    world.tmux(&["set-option", "-p", "-t", "b work:9.0", "@muxtap_labels", "role=build"]);
    world.tmux(&["select-window", "-t", "b work:7"]);
    world.tmux(&[
        "set-environment",
        "-t",
        "b work",
        "APP_KEY",
        "a\nb=c",
        ";",
        "set-environment",
        "-t",
        "b work",
        "SECRET",
        "x",
    ]);
    // A group, and a link.
    world.tmux(&["new-session", "-d", "-s", "c shares", "-t", "b work"]);
    world.tmux(&["select-window", "-t", "c shares:9"]);
    world.tmux(&["set-option", "-t", "c shares", "@muxtap_session_labels", "team=c"]);
    world.tmux(&["new-session", "-d", "-s", "d links", "-x", "55", "-y", "22", "-n", "own"]);
    world.tmux(&["link-window", "-d", "-s", "b work:9", "-t", "d links:4"]);
}

#[test]
fn everything_that_is_kept_is_made_again_on_an_empty_server() {
    let world = World::new();
    quiet_server(&world);
    rich(&world);
    let saved =
        world.json(&["snapshot", "save", "all", "-t", "b work", "-t", "c shares", "-t", "d links", "--env", "APP_*"]);
    assert_eq!((&saved["panes"], &saved["notes"]), (&json!(7), &json!([])), "{saved}");
    let before = shape(&world, "all");
    assert_eq!(before["environment"], json!({"APP_KEY": "a\nb=c"}));
    assert_eq!(before["muxtap"]["labels"], "note=%23%7B%20$HOME%7D,team=a");
    let windows = before["windows"].as_array().unwrap();
    let nine = windows.iter().find(|window| window["window_index"] == 9).unwrap();
    assert_eq!(nine["panes"][0]["muxtap"]["labels"], "role=build");
    // tmux stores names with escapes.
    let name = world.tmux(&["list-windows", "-t", "b work", "-F", "#{window_name}"]);
    assert_eq!(before["windows"][0]["window_name"], name.lines().next().unwrap());
    let title = world.tmux(&["display-message", "-p", "-t", "b work:0.1", "#{pane_title}"]);
    assert_eq!(before["windows"][0]["panes"][1]["muxtap"]["title"], title);
    assert_eq!(before["muxtap"]["sessions"][0]["muxtap"]["grouped_with"], "b work");
    assert_eq!(
        before["muxtap"]["sessions"][1]["windows"][1]["muxtap"]["linked"],
        json!({"session": "b work", "index": 9})
    );

    world.tmux(&["kill-server"]);
    eventually("the server has gone", || run(world.tmux_command(world.socket()).arg("ls")).status != 0);
    let restored = world.json(&["snapshot", "restore", "all"]);
    assert_eq!(restored["notes"], json!([]), "{restored}");
    assert_eq!(restored["sessions"], json!(["b work", "c shares", "d links"]));
    // Its own shell may rename itself.
    let after = |name| {
        world.ok(&["snapshot", "save", name, "-t", "b work", "-t", "c shares", "-t", "d links", "--env", "APP_*"]);
        shape(&world, name)
    };
    assert_eq!(before, after("again"));
    // The new server's panes are shells.
    let differs = world.muxtap(&["snapshot", "diff", "all", "again"]);
    assert!(differs.text().lines().all(|line| line.contains(" program: cat ->")), "{}", differs.text());
    // Beside the existing sessions, under other names.
    let beside = world.json(&["snapshot", "restore", "all", "--name", "x", "-t", "c shares", "-t", "d links"]);
    assert_eq!(beside["sessions"], json!(["x-c shares", "x-d links"]), "{beside}");
    let windows = world.tmux(&["list-windows", "-t", "=x-c shares", "-F", "#{window_index}#{?window_active,*,}"]);
    assert_eq!(windows, "0\n7\n9*");
}

#[test]
fn programs_are_restored_as_they_were() {
    let world = World::new();
    quiet_server(&world);
    world.tmux(&["set", "-g", "default-command", ""]);
    world.tmux(&["new-session", "-d", "-s", "w", "-x", "80", "-y", "24", "exec tail -f '' \"it's\" /dev/null"]);
    let pane = world.tmux(&["split-window", "-d", "-t", "w", "-P", "-F", "#{pane_id}", "exec /bin/sh -i"]);
    world.ok(&["wait-for", "-t", &pane, "--prompt", "-T", "40"]);
    world.ok(&["send-keys", "-t", &pane, "tail -f /dev/null | cat -u", "Enter"]);
    let argv = |name: &str| {
        let file = world.json(&["snapshot", "show", name]);
        let panes = file["windows"][0]["panes"].as_array().unwrap().clone();
        panes.iter().map(|pane| pane["muxtap"]["argv"].clone()).collect::<Vec<_>>()
    };
    let programs =
        [json!(["tail", "-f", "", "it's", "/dev/null"]), json!(["/bin/sh", "-c", "tail -f /dev/null | cat -u"])];
    eventually("the programs run", || {
        world.ok(&["snapshot", "save", "p", "-t", "w", "--replace"]);
        argv("p") == programs
    });
    world.tmux(&["set", "-g", "default-command", "exec sleep 1003"]);
    world.ok(&["snapshot", "restore", "p", "--name", "runs", "--run"]);
    eventually("they run again", || {
        world.ok(&["snapshot", "save", "r", "-t", "runs", "--replace"]);
        argv("r") == programs
    });
    let current = || world.tmux(&["display-message", "-p", "-t", "runs:.0", "#{pane_current_command}"]);
    if !std::fs::canonicalize("/bin/sh").unwrap().ends_with("bash") {
        eventually("tmux names it", || current() == "tail");
        // Nothing could continue it.
        world.tmux(&["send-keys", "-t", "runs:.0", "C-z"]);
        eventually("it goes on", || current() == "tail");
    }
    // What tmux would start in a new pane follows it.
    world.tmux(&["send-keys", "-t", "runs:.0", "C-c"]);
    eventually("the default command runs", || current() == "sleep");
}

#[test]
fn nothing_is_typed_and_nothing_is_started_without_run() {
    let world = World::new();
    quiet_server(&world);
    world.tmux(&["set", "-g", "default-command", ""]);
    let path = world.path("a file");
    let line = format!("exec sleep 1000 1001; : '{}'", path.display());
    world.tmux(&["new-session", "-d", "-s", "w", "-x", "80", "-y", "24", &line]);
    world.tmux(&["split-window", "-d", "-t", "w", "exec env -i sleep 1002"]);
    world.tmux(&["split-window", "-d", "-t", "w"]);
    let argv = |name: &str| {
        let file = world.json(&["snapshot", "show", name]);
        let panes = file["windows"][0]["panes"].as_array().unwrap().clone();
        panes.iter().map(|pane| pane["muxtap"]["argv"].clone()).collect::<Vec<_>>()
    };
    let programs = [json!(["sleep", "1000", "1001"]), Value::Null, json!(["sleep", "1002"])];
    eventually("the programs run", || {
        world.ok(&["snapshot", "save", "p", "-t", "w", "--replace"]);
        argv("p") == programs
    });
    // tmuxp must not type them either.
    assert!(
        world.json(&["snapshot", "show", "p"])["windows"][0]["panes"]
            .as_array()
            .unwrap()
            .iter()
            .all(|pane| pane["shell_command"] == json!([]))
    );

    world.ok(&["snapshot", "restore", "p", "--name", "plain"]);
    let panes = world.tmux(&["list-panes", "-t", "plain", "-F", "#{pane_id} #{pane_start_command}"]);
    for pane in panes.lines() {
        let (pane, command) = pane.split_once(' ').unwrap();
        assert_eq!(command, "", "{pane}");
        world.ok(&["wait-for", "-t", pane, "--prompt", "-T", "40"]);
        assert!(!world.read_all(pane).contains("sleep"), "{pane}");
    }
    world.ok(&["snapshot", "save", "shells", "-t", "plain"]);
    assert_eq!(argv("shells"), [Value::Null, Value::Null, Value::Null]);

    world.ok(&["snapshot", "restore", "p", "--name", "runs", "--run"]);
    eventually("they run again", || {
        world.ok(&["snapshot", "save", "r", "-t", "runs", "--replace"]);
        argv("r") == programs
    });
    // When one ends, a shell follows, and the layout stays.
    let first = world.tmux(&["display-message", "-p", "-t", "runs:.0", "#{pane_id}"]);
    world.ok(&["send-keys", "-t", &first, "C-c"]);
    world.ok(&["wait-for", "-t", &first, "--prompt", "-T", "40"]);
    assert!(!world.read_all(&first).contains("sleep"));
    world.ok(&["send-keys", "-t", &first, "echo sh''ell", "Enter"]);
    world.await_output(&first, "^shell$");
    assert_eq!(world.tmux(&["list-panes", "-t", "runs", "-F", "x"]).lines().count(), 3);
}

#[test]
fn what_cannot_be_restored_leaves_nothing_behind() {
    let world = World::new();
    quiet_server(&world);
    rich(&world);
    world.ok(&["snapshot", "save", "all"]);
    let there = everything(&world);
    let message = world.error("CONFLICT", &["snapshot", "restore", "all"]);
    assert!(message.contains("--name") && message.contains("\"keep\""), "the oldest session: {message}");
    assert_eq!(everything(&world), there);
    assert!(world.error("INVALID_ARGUMENT", &["snapshot", "restore", "all", "--name", "a:b"]).contains("a:b"));
    assert!(world.error("NOT_FOUND", &["snapshot", "restore", "all", "-t", "nope"]).contains("b work"));
    assert!(world.error("NOT_FOUND", &["snapshot", "restore", "nope"]).contains("existing: all"));
    assert!(world.error("CONFLICT", &["snapshot", "save", "all"]).contains("--replace"));
    world.error("NOT_FOUND", &["snapshot", "save", "x", "-t", "nope"]);
    for name in ["../x", ".x", "-x", "a/b", ""] {
        let answer = world.muxtap(&["snapshot", "save", "--", name]);
        assert_ne!(answer.status, 0, "{name:?}");
    }

    // An index that no tmux accepts, in the last window of the last session.
    let file = fs::read_to_string(world.path("m.sock.snapshots/all.json")).unwrap();
    let mut file: Value = serde_json::from_str(&file).unwrap();
    let broken = |file: &Value| {
        fs::write(world.path("m.sock.snapshots/broken.json"), file.to_string()).unwrap();
        let answer = world.muxtap(&["snapshot", "restore", "broken", "--name", "y"]);
        assert_ne!(answer.status, 0, "{answer:?}");
        answer.stderr
    };
    let last = |file: &mut Value, field: &str, value: Value| {
        let sessions = file["muxtap"]["sessions"].as_array_mut().unwrap();
        let last = sessions.iter_mut().find(|session| session["session_name"] == "d links").unwrap();
        last["windows"][1][field] = value;
    };
    last(&mut file, "window_index", json!(4_294_967_295_u32));
    let said = broken(&file);
    assert!(said.contains("nothing was restored") && !said.contains("remains"), "{said}");
    let names = world.tmux(&["list-sessions", "-F", "#{session_name}"]);
    assert!(!names.contains("y-"), "{names}");
    // tmux 3.3a would crash on such a layout, so it is not sent.
    file["windows"][0]["layout"] = "no-such-layout".into();
    assert!(broken(&file).contains("invalid layout"));
    assert_eq!(everything(&world), there);

    // A missing directory is not a failure.
    fs::remove_dir(world.path("two")).unwrap();
    let restored = world.json(&["snapshot", "restore", "all", "--name", "z", "-t", "b work"]);
    assert!(restored["notes"].to_string().contains("two no longer exists"), "{restored}");
    assert_eq!(restored["panes"], 6, "{restored}");
    // A damaged snapshot is listed with the reason.
    fs::write(world.path("m.sock.snapshots/bad.json"), "{").unwrap();
    let list = world.json(&["snapshot", "list"]);
    let bad = list["snapshots"].as_array().unwrap().iter().find(|one| one["name"] == "bad").unwrap();
    assert!(bad["error"].as_str().unwrap().contains("corrupt"), "{bad}");
    world.ok(&["snapshot", "remove", "bad"]);
    world.error("NOT_FOUND", &["snapshot", "remove", "bad"]);
}

#[test]
fn history_is_kept_where_it_was_asked_for_and_shown_harmlessly() {
    let world = World::new();
    quiet_server(&world);
    let pane = world.window("printf 'one\\ntwo \\033[31mred\\033[0m\\nthree\\n'; exec cat");
    world.await_output(&pane, "three");
    world.ok(&["snapshot", "save", "without"]);
    let kept = |name: &str| world.json(&["snapshot", "show", name]).to_string();
    assert!(!kept("without").contains("history") && !kept("without").contains("two"));
    world.ok(&["snapshot", "save", "with", "--history", "2"]);
    let file = world.json(&["snapshot", "show", "with"]);
    assert_eq!(file["windows"][1]["panes"][0]["muxtap"]["history"], json!(["two red", "three"]), "{file}");
    assert!(!world.ok(&["snapshot", "show", "with"]).contains("two red"));
    assert!(world.ok(&["snapshot", "show", "with", "--history"]).contains("| two red\n"));
    assert!(world.error("INVALID_ARGUMENT", &["snapshot", "save", "more", "--history", "10001"]).contains("10000"));
    world.ok(&["snapshot", "restore", "with", "--name", "new"]);
    let new = world.tmux(&["list-panes", "-s", "-t", "new", "-F", "#{pane_id}"]);
    assert!(new.lines().all(|pane| !world.read_all(pane).contains("two")), "{new}");
}

#[test]
fn a_difference_from_now_is_a_line_and_a_status() {
    let world = World::new();
    quiet_server(&world);
    world.ok(&["snapshot", "save", "x"]);
    assert_eq!(world.ok(&["snapshot", "diff", "x"]), "");
    world.tmux(&["rename-window", "-t", "keep:0", "a b", ";", "new-window", "-d", "-t", "keep:3"]);
    let answer = world.muxtap(&["snapshot", "diff", "x"]);
    assert_eq!(answer.status, 1, "{answer:?}");
    let text = answer.text();
    assert!(text.contains("keep:0 name: ") && text.contains("keep:3 window: not there -> there"), "{text}");
    world.tmux(&["kill-server"]);
    eventually("the server has gone", || run(world.tmux_command(world.socket()).arg("ls")).status != 0);
    assert_eq!(world.muxtap(&["snapshot", "diff", "x"]).text(), "keep session: there -> not there\n");
}

#[test]
fn layouts_are_kept_and_given_to_windows_with_as_many_panes() {
    let world = World::new();
    quiet_server(&world);
    world.tmux(&["split-window", "-d", "-h", "-l", "20", "-t", "keep", ";", "split-window", "-d", "-t", "keep"]);
    let saved = world.json(&["layout", "save", "three", "-t", "keep:0"]);
    assert_eq!((&saved["panes"], &saved["width"]), (&json!(3), &json!(80)), "{saved}");
    assert!(world.error("CONFLICT", &["layout", "save", "three", "-t", "keep:0"]).contains("--replace"));
    world.tmux(&["new-window", "-d", "-t", "keep:1", ";", "split-window", "-d", "-t", "keep:1"]);
    assert!(world.error("CONFLICT", &["layout", "restore", "three", "-t", "keep:1"]).contains("3 panes"));
    world.tmux(&["split-window", "-d", "-t", "keep:1", ";", "resize-window", "-t", "keep:1", "-x", "120", "-y", "40"]);
    world.tmux(&["set", "-w", "-u", "-t", "keep:1", "window-size"]);
    let sizes = |what: &str| world.tmux(&["list-panes", "-t", "keep:1", "-F", what]).replace('\n', " ");
    world.ok(&["layout", "restore", "three", "-t", "keep:1"]);
    assert_eq!(sizes("#{window_width}x#{window_height}"), "120x40 120x40 120x40");
    assert_eq!(sizes("#{pane_at_left}#{pane_at_top}"), "11 10 01");
    world.ok(&["layout", "restore", "three", "-t", "keep:1", "--size"]);
    let of = |window: &str| {
        world.tmux(&["list-panes", "-t", window, "-F", "#{pane_width}x#{pane_height}+#{pane_left}+#{pane_top}"])
    };
    assert_eq!(of("keep:1"), of("keep:0"));
    assert_eq!(world.tmux(&["show-options", "-w", "-t", "keep:1", "window-size"]), "", "its size is tmux's again");
    assert_eq!(world.json(&["layout", "list"])["layouts"][0]["layout"], saved["layout"]);
    world.ok(&["layout", "remove", "three"]);
    assert_eq!(world.json(&["layout", "list"])["layouts"], json!([]));
}

#[test]
fn input_to_a_group_goes_to_all_or_the_error_says_who_got_none() {
    let world = World::with_server();
    let made = |world: &World| {
        let pane = world.tmux(&["split-window", "-d", "-P", "-F", "#{pane_id}", "-t", "main", ANSWERS]);
        world.tmux(&["select-layout", "-t", "main", "tiled"]);
        world.await_output(&pane, "^ready");
        pane
    };
    let panes: Vec<String> = (0..3).map(|_| made(&world)).collect();
    let names: Vec<&str> = panes.iter().map(String::as_str).collect();
    let set = world.json(&[&["group", "set", "web"], names.as_slice()].concat());
    assert_eq!((&set["panes"], &set["synchronize"]), (&json!(panes), &json!(false)), "{set}");
    let sent = world.ok(&["--json", "send-keys", "-t", "%web", "hello", "Enter"]);
    assert_eq!(sent.lines().count(), 3, "{sent}");
    for pane in &panes {
        world.await_output(pane, "^got hello$");
    }

    // Synchronized by tmux as well, each gets it once.
    world.ok(&[&["group", "set", "web", "--synchronize"], names.as_slice()].concat());
    let flags = || world.tmux(&["list-panes", "-t", "main", "-F", "#{pane_synchronized}"]).replace('\n', "");
    assert_eq!(flags(), "0111");
    world.ok(&["send-keys", "-t", "%web", "once", "Enter"]);
    for pane in &panes {
        world.await_output(pane, "^got once$");
    }
    world.ok(&["send-keys", "-t", "%web", "over", "Enter"]);
    for pane in &panes {
        world.await_output(pane, "^got over$");
        assert_eq!(world.read_all(pane).matches("got once").count(), 1, "{pane}");
    }
    assert_eq!(flags(), "0111", "as they were");
    // tmux copies a person's keys.
    world.tmux(&["send-keys", "-t", &panes[0], "person", "Enter"]);
    for pane in &panes {
        world.await_output(pane, "^got person$");
    }
    world.ok(&[&["group", "set", "web"], names.as_slice()].concat());
    assert_eq!(flags(), "0000");

    // A pane that does not accept it.
    world.tmux(&["copy-mode", "-t", &panes[1]]);
    let answer = world.muxtap(&["--json", "send-keys", "-t", "%web", "--paste", "some\n"]);
    let error = answer.error();
    assert_eq!((answer.status, &error["code"]), (1, &json!("CONFLICT")), "{answer:?}");
    assert_eq!(error["details"]["sent"], json!([panes[0], panes[2]]), "{error}");
    assert_eq!(error["details"]["failed"][0]["pane"], json!(panes[1]), "{error}");
    world.await_output(&panes[2], "^got some$");
    world.tmux(&["copy-mode", "-q", "-t", &panes[1]]);

    // A missing pane: nothing is sent.
    world.tmux(&["kill-pane", "-t", &panes[1]]);
    let message = world.error("NOT_FOUND", &["send-keys", "-t", "%web", "never", "Enter"]);
    assert!(message.contains("nothing was sent") && message.contains(&panes[1]), "{message}");
    world.ok(&["group", "set", "web", &panes[0], "mai*"]);
    assert_eq!(world.json(&["group", "list"])["groups"][0]["panes"].as_array().unwrap().len(), 3);
    assert!(!world.read_all(&panes[0]).contains("never"));

    for name in ["3", "a b", "é", "a.b", "-x"] {
        assert_ne!(world.muxtap(&["group", "set", "--", name, &panes[0]]).status, 0, "{name}");
    }
    world.error("NOT_FOUND", &["send-keys", "-t", "%nope", "x"]);
    world.error("NOT_FOUND", &["group", "set", "x", "nope:"]);
    // The group is stored on its server: another daemon knows it.
    world.ok(&["stop"]);
    assert_eq!(world.json(&["group", "list"])["groups"][0]["name"], "web");
    world.ok(&["group", "remove", "web"]);
    assert_eq!(world.json(&["group", "list"])["groups"], json!([]));
    assert_eq!(world.tmux(&["show-options", "-s"]).matches("muxtap-").count(), 0);
}

#[test]
fn a_daemon_that_stops_leaves_nothing_half_done() {
    let world = World::with_server();
    // A program that does not show typed text: a submitted input waits for it.
    let silent = || {
        let line = "stty -echo; echo ready; exec sleep 1000";
        let pane = world.tmux(&["split-window", "-d", "-P", "-F", "#{pane_id}", "-t", "main", line]);
        world.tmux(&["select-layout", "-t", "main", "tiled"]);
        world.await_output(&pane, "^ready");
        pane
    };
    let panes = [silent(), silent()];
    world.ok(&["group", "set", "web", "--synchronize", &panes[0], &panes[1]]);
    let flags = || world.tmux(&["list-panes", "-t", "main", "-F", "#{pane_synchronized}"]).replace('\n', "");
    assert_eq!(flags(), "011");
    let path = format!("/v1/groups/web/input{}", world.query());
    let asked = world.http_send("POST", &path, Some(&json!({ "text": "x", "submit": true })));
    eventually("they are let go", || flags() == "000");
    world.ok(&["stop"]);
    assert_eq!(flags(), "011");
    drop(asked);

    let windows: Vec<_> = (0..300).map(|n| json!({ "window_name": format!("w{n}"), "panes": [{}, {}] })).collect();
    let file = world.path("work/big.json");
    std::fs::write(&file, json!({ "session_name": "big", "windows": windows }).to_string()).unwrap();
    world.ok(&["snapshot", "import", "big", "big.json"]);
    let asked = world.http_send("POST", &format!("/v1/snapshots/big/restore{}", world.query()), Some(&json!({})));
    eventually("it is begun", || world.sessions().contains(&"big".to_owned()));
    world.ok(&["stop"]);
    drop(asked);
    assert_eq!(world.sessions(), ["main"]);
}

#[test]
fn files_of_others_are_kept_and_their_lines_typed_only_with_run() {
    let world = World::new();
    quiet_server(&world);
    world.tmux(&["set", "-g", "default-command", ""]);
    let yaml = format!(
        "name: site\nroot: {}\nwindows:\n  - ed:\n      layout: main-vertical\n      panes:\n        - echo fir''st\n        - \
         pwd; echo sec''ond\n  - log: echo th''ird\n",
        world.path("work").display()
    );
    let imported = world.muxtap_with_stdin(&["--json", "snapshot", "import", "site", "-"], yaml.as_bytes());
    assert_eq!(imported.json()["panes"], 3, "{imported:?}");
    world.ok(&["snapshot", "restore", "site"]);
    let panes = |session: &str| world.tmux(&["list-panes", "-s", "-t", session, "-F", "#{pane_id}"]);
    for pane in panes("site").lines() {
        world.ok(&["wait-for", "-t", pane, "--prompt", "-T", "40"]);
        assert!(!world.read_all(pane).contains("echo"), "{pane}");
    }
    world.ok(&["snapshot", "restore", "site", "--name", "run", "--run"]);
    for (pane, word) in panes("run").lines().zip(["first", "second", "third"]) {
        world.await_output(pane, &format!("{word}$"));
    }
    let windows = world.tmux(&["list-windows", "-t", "run", "-F", "#{window_name}#{?window_active,*,}"]);
    assert_eq!(windows, "ed*\nlog");
    assert!(world.muxtap_with_stdin(&["snapshot", "import", "x", "-"], b"a: [").stderr.contains("YAML"));
}

/// Returns tmuxp, at a known version, in a separate environment. `None`: pip cannot run here.
fn tmuxp(world: &World) -> Option<std::path::PathBuf> {
    let dir = world.path("venv");
    let python = |args: &[&str]| {
        let mut command = world.command("python3");
        command.args(args).stdin(Stdio::null());
        // Its downloads stay in pip's cache.
        if let Ok(home) = std::env::var("HOME") {
            command.env("PIP_CACHE_DIR", format!("{home}/.cache/pip"));
        }
        command.output().is_ok_and(|output| output.status.success())
    };
    let is_there = python(&["-m", "venv", dir.to_str()?]);
    let pip = dir.join("bin/pip");
    let install = ["install", "-q", "--disable-pip-version-check", "tmuxp==1.76.0", "libtmux==0.62.0"];
    let installed = is_there
        && world.command(&pip).args(install).stdin(Stdio::null()).output().is_ok_and(|output| output.status.success());
    installed.then(|| dir.join("bin/tmuxp"))
}

#[test]
fn tmuxp_loads_what_muxtap_writes() {
    let world = World::new();
    let Some(tmuxp) = tmuxp(&world) else {
        eprintln!("SKIPPED: pip cannot install tmuxp==1.76.0 here (no python3, no venv or no network)");
        return;
    };
    quiet_server(&world);
    rich(&world);
    world.ok(&["snapshot", "save", "all"]);
    let file = world.ok(&["snapshot", "show", "all", "--tmuxp", "b work"]);
    fs::write(world.path("b.json"), &file).unwrap();
    let path = world.path("b.json");
    // tmuxp calls `tmux`.
    let bin = world.path("bin");
    fs::create_dir(&bin).unwrap();
    let real = run(world.command("sh").args(["-c", &format!("command -v {}", crate::common::tmux_program())])).text();
    std::os::unix::fs::symlink(real.trim(), bin.join("tmux")).unwrap();
    let search = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut load = world.command(&tmuxp);
    load.env("PATH", search).args(["load", "-d", "-y", "-s", "loaded", "-S"]).arg(world.socket()).arg(&path);
    let loaded = run(&mut load);
    assert_eq!(loaded.status, 0, "{loaded:?}");
    let windows = |session: &str| {
        world.tmux(&[
            "list-windows",
            "-t",
            session,
            "-F",
            "#{window_index} #{window_name} #{window_panes} #{window_active}",
        ])
    };
    assert_eq!(windows("=loaded").lines().count(), 3, "{loaded:?}");
    assert!(windows("=loaded").contains("7 seven 2 1"), "{}", windows("=loaded"));
    let paths = world.tmux(&["list-panes", "-t", "=loaded:7", "-F", "#{pane_current_path}"]);
    assert!(paths.contains("/two"), "{paths}");
    // tmuxp's own output is imported.
    let frozen = world.path("frozen.yaml");
    let mut freeze = world.command(&tmuxp);
    let args = ["freeze", "-y", "-q", "--force", "-f", "yaml", "-o", frozen.to_str().unwrap(), "loaded", "-S"];
    let froze = run(freeze
        .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()))
        .args(args)
        .arg(world.socket()));
    assert_eq!(froze.status, 0, "{froze:?}");
    let imported = world.json(&["snapshot", "import", "frozen", frozen.to_str().unwrap()]);
    assert_eq!(imported["windows"], 3, "{imported}");
}

#[test]
fn http_and_mcp_do_the_same() {
    let world = World::new();
    quiet_server(&world);
    world.ok(&["ls"]);
    let at = |path: &str| format!("{path}?socket={}", world.socket().display());
    let saved = world.http("POST", &at("/v1/snapshots"), Some(&json!({"name": "s", "sessions": ["keep"]})));
    assert_eq!((saved.status, &saved.json()["sessions"]), (200, &json!(["keep"])), "{saved:?}");
    assert_eq!(world.http("GET", "/v1/snapshots", None).json()["snapshots"][0]["name"], "s");
    assert_eq!(world.http("GET", "/v1/snapshots/s", None).json()["session_name"], "keep");
    assert_eq!(world.http("GET", &at("/v1/snapshots/s/diff"), None).json()["differences"], json!([]));
    assert_eq!(world.http("POST", &at("/v1/snapshots/s/restore"), Some(&json!({}))).status, 409);
    let restored = world.http("POST", &at("/v1/snapshots/s/restore"), Some(&json!({"name": "r"})));
    assert_eq!(restored.json()["sessions"], json!(["r"]), "{restored:?}");
    let import = json!({"text": "session_name: y\nwindows: [{panes: [ls]}]"});
    assert_eq!(world.http("PUT", "/v1/snapshots/y", Some(&import)).json()["panes"], 1);
    assert_eq!(world.http("DELETE", "/v1/snapshots/y", None).status, 200);
    assert_eq!(world.http("GET", "/v1/snapshots/..%2fx", None).status, 400);
    assert_eq!(
        world.http("POST", &at("/v1/layouts"), Some(&json!({"name": "l", "window": "keep:0"}))).json()["panes"],
        1
    );
    assert_eq!(world.http("POST", &at("/v1/layouts/l/restore"), Some(&json!({"window": "r:0"}))).status, 200);
    assert_eq!(world.http("DELETE", "/v1/layouts/l", None).status, 200);
    let group = world.http("PUT", &at("/v1/groups/g"), Some(&json!({"targets": ["keep:", "r:"]})));
    assert_eq!(group.json()["panes"].as_array().map(Vec::len), Some(2), "{group:?}");
    let sent = world.http("POST", &at("/v1/groups/g/input"), Some(&json!({"keys": ["x", "Enter"]})));
    assert_eq!(sent.json()["panes"].as_array().map(Vec::len), Some(2), "{sent:?}");
    assert_eq!(world.http("GET", &at("/v1/groups"), None).json()["groups"][0]["name"], "g");
    assert_eq!(world.http("DELETE", &at("/v1/groups/g"), None).status, 200);

    // The native set has no such tool.
    let mut native = Client::new(&world);
    let names = |client: &mut Client| {
        let listed = client.ask("tools/list", &json!({}))["result"]["tools"].clone();
        listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(!names(&mut native).contains(&"snapshot".to_owned()));
    let unknown = native.ask("tools/call", &json!({"name": "snapshot", "arguments": {"action": "list"}}));
    assert!(unknown["error"]["message"].as_str().unwrap().contains("unknown tool"), "{unknown}");
    let mut client = Client::started(world.spawn(&["mcp", "--tools", "native,snapshot"]));
    let listed = names(&mut client);
    assert!(listed.contains(&"snapshot".to_owned()) && listed.contains(&"list".to_owned()), "{listed:?}");
    let mut alone = Client::started(world.spawn(&["mcp", "--tools", "snapshot"]));
    assert_eq!(names(&mut alone), ["snapshot"]);
    let mut call = |arguments: Value| client.call("snapshot", &arguments)["answer"].clone();
    assert_eq!(call(json!({"action": "save", "name": "m", "targets": "keep", "history": 5}))["windows"], 1);
    assert_eq!(call(json!({"action": "list"}))["snapshots"][0]["name"], "m");
    assert_eq!(call(json!({"action": "show", "name": "m"}))["session_name"], "keep");
    assert_eq!(call(json!({"action": "diff", "name": "m"}))["differences"], json!([]));
    assert_eq!(call(json!({"action": "restore", "name": "m", "new_name": "n"}))["sessions"], json!(["n"]));
    assert_eq!(call(json!({"action": "set_group", "name": "g", "targets": ["n:", "r:"]}))["name"], "g");
    let sent = call(json!({"action": "send_to_group", "name": "g", "text": "hello", "keys": ["Enter"]}));
    assert_eq!(sent["panes"].as_array().map(Vec::len), Some(2), "{sent}");
    assert_eq!(call(json!({"action": "save_layout", "name": "l", "targets": ["n:0"]}))["panes"], 1);
    for action in ["remove_group", "remove_layout", "remove"] {
        let name = match action {
            "remove_group" => "g",
            "remove_layout" => "l",
            _ => "m",
        };
        assert_eq!(call(json!({"action": action, "name": name}))["ok"], true, "{action}");
    }
    client.fails("CONFLICT", "snapshot", &json!({"action": "restore", "name": "s"}));
    client.fails("INVALID_ARGUMENT", "snapshot", &json!({"action": "save"}));
}

/// Nothing in a foreign file is run without --run, not through the shell either; and it is shown
/// first.
#[test]
fn variables_of_a_foreign_snapshot_are_set_only_with_run() {
    let world = World::with_server();
    let mark = world.path("ran");
    let touch = format!("touch {}", mark.display());
    let file = json!({
        "session_name": "evil",
        "before_script": touch,
        "options": { "default-command": touch },
        "environment": { "PROMPT_COMMAND": touch, "PATH": world.dir(), "BASH_ENV": touch },
        "windows": [{
            "window_name": format!("#({touch})"), "window_shell": touch, "environment": { "ENV": touch },
            "panes": [{
                "shell_command": [touch], "shell": touch,
                "muxtap": { "argv": ["sh", "-c", touch], "labels": "role=build" },
            }],
        }],
        // Marks that a file gives itself do not count.
        "muxtap": { "version": 1, "saved": "2026-11-23T12:00:00Z", "saved_here": true, "seal": "AAAA", "labels": "team=a" },
    });
    let text = serde_json::to_string(&file).unwrap();
    let imported = world.muxtap_with_stdin(&["snapshot", "import", "evil", "-"], text.as_bytes());
    for shown in [
        "sets PROMPT_COMMAND=",
        "sets PATH=",
        "evil: has the labels team=a",
        ".0: has the labels role=build",
        "starts sh -c",
        "types touch",
    ] {
        assert!(imported.text().contains(shown), "{shown}: {imported:?}");
    }
    assert!(imported.stderr.contains("before_script, environment, options, shell, window_shell"), "{imported:?}");
    let shown = world.ok(&["snapshot", "show", "evil"]);
    for part in ["PROMPT_COMMAND=", "{team=a}  (set with --run only)", "  {role=build}", "runs sh -c", "lines touch"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // The same file in the store's own place.
    let store = imported_path(&world, "evil");
    std::fs::write(store.with_file_name("copied.json"), &text).unwrap();
    for (name, new) in [("evil", "one"), ("copied", "two")] {
        let restored = world.json(&["snapshot", "restore", name, "--name", new]);
        let variables = ["BASH_ENV", "PATH", "PROMPT_COMMAND"];
        let left_out = json!([{ "session": new, "variables": variables, "labels": ["role", "team"] }]);
        assert_eq!(restored["left_out"], left_out, "{restored}");
        let notes = restored["notes"].to_string();
        assert!(notes.contains("PROMPT_COMMAND, label role, label team not set"), "{restored}");
        for selector in ["{role=build}", "{team=a}"] {
            world.error("NOT_FOUND", &["list-panes", "-t", selector]);
        }
        let set = world.tmux(&["show-environment", "-t", new]);
        assert!(!set.contains(&touch), "{set}");
        let pane = world.tmux(&["list-panes", "-s", "-t", new, "-F", "#{pane_id}"]);
        world.ok(&["wait-for", "-t", &pane, "--prompt", "-T", "40"]);
        world.ok(&["run", "-t", &pane, "-T", "40", "true"]);
        assert!(!mark.exists(), "{name}");
    }
    world.json(&["snapshot", "restore", "evil", "--name", "run", "--run"]);
    let set = world.tmux(&["show-environment", "-t", "run"]);
    assert!(set.contains(&format!("PROMPT_COMMAND={touch}")), "{set}");
    let labeled = world.json(&["list-panes", "-t", "{role=build,team=a}"]);
    assert_eq!(labeled["panes"][0]["session"], "run", "{labeled}");

    // Variables of a snapshot saved here are set, until another program changes the file.
    world.tmux(&["set-environment", "-t", "main", "APP_KEY", "a"]);
    world.ok(&["snapshot", "save", "own", "-t", "main", "--env", "APP_*"]);
    let restored = world.json(&["snapshot", "restore", "own", "--name", "own"]);
    assert_eq!((&restored["left_out"], &restored["notes"]), (&json!(null), &json!([])), "{restored}");
    assert!(world.tmux(&["show-environment", "-t", "own"]).contains("APP_KEY=a"));
    let own = store.with_file_name("own.json");
    let changed = std::fs::read_to_string(&own).unwrap().replace("\"APP_KEY\": \"a\"", "\"APP_KEY\": \"b\"");
    std::fs::write(&own, changed).unwrap();
    let restored = world.json(&["snapshot", "restore", "own", "--name", "changed"]);
    assert_eq!(restored["left_out"][0]["variables"], json!(["APP_KEY"]), "{restored}");
    let listed = world.json(&["snapshot", "list"]);
    let saved_here = |name: &str| {
        let all = listed["snapshots"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap()["saved_here"].clone()
    };
    assert_eq!(["evil", "copied", "own"].map(saved_here), [json!(false), json!(false), json!(false)]);
}

/// Another host's sessions, a directory of foreign snapshots, and a snapshot renamed to another's
/// name do not count as saved here.
#[test]
fn only_local_sessions_count_as_saved_locally() {
    let world = World::with_server();
    // Stands in for another host: another directory of sockets.
    configure(&world, &[("px", &format!("env TMUX_TMPDIR={}", world.dir().display()))]);
    let socket = place_for_a_server(&world);
    world.tmux_at(&socket, &["new-session", "-d", "-s", "far", "cat"]);
    world.tmux_at(&socket, &["set-environment", "-t", "far", "APP_KEY", "theirs"]);
    ok(&world, &["snapshot", "save", "-L", "px/", "far", "-t", "far", "--env", "APP_*"]);
    let restored = world.json(&["snapshot", "restore", "far", "--name", "here"]);
    assert_eq!(restored["left_out"][0]["variables"], json!(["APP_KEY"]), "{restored}");

    world.tmux(&["set-environment", "-t", "main", "APP_KEY", "a"]);
    world.ok(&["snapshot", "save", "own", "-t", "main", "--env", "APP_*"]);
    let folder = world.path("m.sock.snapshots");
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<_> = files.collect();
    files.sort();
    assert_eq!(files, ["far.json", "own.json"], "no key that a folder from elsewhere could bring");
    fs::copy(folder.join("own.json"), folder.join("other.json")).unwrap();
    let listed = world.json(&["snapshot", "list"]);
    let saved_here = listed["snapshots"].as_array().unwrap().iter().map(|one| (&one["name"], &one["saved_here"]));
    let (no, yes) = (json!(false), json!(true));
    let names = ["far", "other", "own"].map(|name| json!(name));
    assert_eq!(saved_here.collect::<Vec<_>>(), [(&names[0], &no), (&names[1], &no), (&names[2], &yes)]);
}

/// Names from a file stay in the line of the note that reports them.
#[test]
fn names_in_a_snapshot_cannot_forge_a_note() {
    let world = World::with_server();
    let file = json!({
        "session_name": "evil", "environment": { "A\nmuxtap: forged": "1" },
        "windows": [{ "panes": [{ "start_directory": "/nowhere\nmuxtap: forged" }] }],
    });
    world.muxtap_with_stdin(&["snapshot", "import", "evil", "-"], file.to_string().as_bytes());
    let restored = world.muxtap(&["snapshot", "restore", "evil"]);
    assert!(restored.stderr.contains("A\\nmuxtap: forged not set"), "{restored:?}");
    assert!(restored.stderr.contains("/nowhere\\nmuxtap: forged no longer exists"), "{restored:?}");
    assert!(!restored.stderr.lines().any(|line| line.starts_with("muxtap: forged")), "{restored:?}");
}

/// An endless file and one without a writer are refused; they are neither read nor waited for.
#[test]
fn an_import_reads_only_regular_files_of_bounded_size() {
    let world = World::new();
    let fifo = world.path("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    for file in [fifo.to_str().unwrap(), "/dev/zero", "/"] {
        let answer = world.muxtap(&["snapshot", "import", "x", file]);
        assert!(answer.status != 0 && answer.stderr.contains("not a regular file"), "{file}: {answer:?}");
    }
    let large = world.path("large");
    fs::File::create(&large).unwrap().set_len(65 << 20).unwrap();
    let answer = world.muxtap(&["snapshot", "import", "x", large.to_str().unwrap()]);
    assert!(answer.status != 0 && answer.stderr.contains("too large"), "{answer:?}");
}

fn imported_path(world: &World, name: &str) -> std::path::PathBuf {
    let saved = world.http(
        "PUT",
        &format!("/v1/snapshots/{name}-path"),
        Some(&json!({ "text": "session_name: p\nwindows: [{panes: [x]}]" })),
    );
    std::path::Path::new(saved.json()["path"].as_str().unwrap()).with_file_name(format!("{name}.json"))
}
