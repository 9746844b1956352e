//! Recordings. `asciicast-rs` parses every file; its last screen is compared with tmux's own
//! capture.

use std::{
    collections::BTreeSet,
    fs,
    num::NonZero,
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::{Path, PathBuf},
    process::Command,
};

use asciicast_rs::{Asciicast, V2, V3, v2, v3};
use muxtap::{
    protocol::version::Version,
    screen::{CaptureOptions, Rules, Screen, Settings, Size},
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message, client::IntoClientRequest as _};

use crate::{
    common::{Background, LIMIT, World, eventually, is_installed, run, signal, tmux_program},
    http_port::asked,
    mcp::{Client, structured},
};

/// Parses a file. Each line of it must be complete.
pub fn cast(path: &Path) -> Asciicast<V3> {
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes.last(), Some(&b'\n'), "{}", path.display());
    let bytes = as_v3(bytes);
    Asciicast::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns a file of the default format in the form of v3, whose events these tests read.
fn as_v3(bytes: Vec<u8>) -> Vec<u8> {
    let text = String::from_utf8(bytes).unwrap();
    let mut lines = text.lines();
    let header: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    if header["version"] != 2 {
        return text.into_bytes();
    }
    let header = json!({
        "version": 3, "term": { "cols": header["width"], "rows": header["height"] },
        "timestamp": header["timestamp"], "title": header["title"],
    });
    let mut out = format!("{header}\n");
    let mut last = 0.0;
    for line in lines {
        let (at, code, data): (f64, String, String) = serde_json::from_str(line).unwrap();
        let exit = data.strip_prefix("exit ").filter(|status| code == "m" && status.parse::<i32>().is_ok());
        let (code, data) = exit.map_or((code.as_str(), data.as_str()), |status| ("x", status));
        out.push_str(&json!([at - last, code, data]).to_string());
        out.push('\n');
        last = at;
    }
    out.into_bytes()
}

fn output(cast: &Asciicast<V3>) -> String {
    cast.events.iter().filter_map(v3::Event::as_output).collect()
}

pub fn markers(cast: &Asciicast<V3>) -> Vec<&str> {
    cast.events.iter().filter_map(v3::Event::as_marker).collect()
}

/// Returns the screen that a player would show at the end, as a capture with styles.
pub fn last_frame(cast: &Asciicast<V3>) -> String {
    let version = run(Command::new(tmux_program()).arg("-V")).text();
    let version = version.trim().trim_start_matches("tmux ").to_owned();
    let rules = Rules::for_version(Version::parse(version.as_bytes()).unwrap());
    let size = Size { columns: cast.header.term.cols, rows: cast.header.term.rows };
    let mut screen = Screen::new(size, rules, Settings::default());
    for event in &cast.events {
        match &event.payload {
            v3::EventPayload::Output(text) => screen.feed(text.as_bytes()),
            v3::EventPayload::Resize(to) => screen.resize(Size { columns: to.cols, rows: to.rows }),
            _ => {}
        }
    }
    String::from_utf8(screen.capture(&CaptureOptions { escapes: true, ..CaptureOptions::default() })).unwrap()
}

/// Returns the text of the last frame, by an emulator that is independent of muxtap.
pub fn last_text(cast: &Asciicast<V3>) -> Vec<String> {
    let size = |size: u16| NonZero::new(size).unwrap();
    let mut parser = vt100::Parser::new(size(cast.header.term.rows), size(cast.header.term.cols), 0);
    for event in &cast.events {
        match &event.payload {
            v3::EventPayload::Output(text) => parser.process(text.as_bytes()),
            v3::EventPayload::Resize(to) => parser.screen_mut().set_size(size(to.rows), size(to.cols)),
            _ => {}
        }
    }
    parser.screen().rows(0, 200).map(|row| row.trim_end().to_owned()).collect()
}

/// Creates a pane of plain tmux that runs shell lines as they are typed, without echo.
fn shell(world: &World) -> String {
    let pane = world.window("stty -echo; echo ready; while read -r line; do eval \"$line\"; done");
    world.await_output(&pane, "^ready");
    pane
}

/// Types a line and waits for the words that it prints at its end.
fn does(world: &World, pane: &str, line: &str, says: &str) {
    let cursor = world.ok(&["cursor", "-t", pane]);
    world.tmux(&["send-keys", "-l", "-t", pane, line, ";", "send-keys", "-t", pane, "Enter"]);
    world.ok(&["wait-for", "-t", pane, "-p", says, "--since", cursor.trim(), "-T", "30"]);
}

fn start(world: &World, request: &Value) -> Value {
    let answer = world.http("POST", &format!("/v1/recordings{}", world.query()), Some(request));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn stop(world: &World, recording: &Value) -> Value {
    let id = recording["id"].as_str().unwrap();
    world.http("DELETE", &format!("/v1/recordings/{id}"), None).json()
}

fn files(info: &Value) -> Vec<PathBuf> {
    info["files"].as_array().unwrap().iter().map(|file| PathBuf::from(file.as_str().unwrap())).collect()
}

/// Waits until a recording has all of the pane's output.
fn caught_up(world: &World, recording: &Value, pane: &str) {
    let id = recording["id"].as_str().unwrap().to_owned();
    eventually("the recording has caught up", || {
        let at = world.http("GET", &format!("/v1/recordings/{id}"), None).json()["cursor"].clone();
        at.as_str().unwrap() == world.ok(&["cursor", "-t", pane]).trim()
    });
}

#[test]
fn the_last_frame_of_a_recording_shows_what_tmux_shows() {
    let world = World::with_server();
    let pane = shell(&world);
    does(&world, &pane, r"printf '\033[1;32mgreen \033[44mback\033[0m plain\n'; echo before", "^before");
    let file = world.path("a.cast");
    let recording = start(&world, &json!({"pane": pane, "file": file}));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    does(
        &world,
        &pane,
        r"printf '\033[3;5Hplaced \303\251\344\270\226\033[0;31m red\033[0m\033[10;1H'; echo after",
        "after",
    );
    world.tmux(&["resize-window", "-t", &pane, "-x", "60", "-y", "20"]);
    does(&world, &pane, "seq 100 130; printf '\\033[7mopen'; printf ' line'", "open line");
    caught_up(&world, &recording, &pane);
    let ended = stop(&world, &recording);
    assert_eq!((&ended["state"], &ended["gaps"]), (&json!("stopped"), &json!(0)));
    let cast = cast(&file);
    assert_eq!((cast.header.term.cols, cast.header.term.rows), (80, 24));
    let resized: Vec<_> = cast.events.iter().filter_map(v3::Event::as_resize).map(|to| (to.cols, to.rows)).collect();
    assert_eq!(resized.last(), Some(&(60, 20)));
    let shown = world.tmux(&["capture-pane", "-p", "-e", "-t", &pane]);
    assert_eq!(last_frame(&cast).trim_end(), shown.trim_end());
    let plain = world.tmux(&["capture-pane", "-p", "-t", &pane]);
    let text = last_text(&cast);
    assert_eq!(text.join("\n").trim_end(), plain.trim_end());
    // The recording has ended, and stays so.
    assert_eq!(stop(&world, &recording), ended);
}

#[test]
fn a_recording_in_the_foreground_ends_with_the_pane_and_has_its_status() {
    let world = World::with_server();
    let pane = world.ok(&["new-window", "-t", "main", "read line; echo got $line; exit 3"]).trim().to_owned();
    let mut recording = world.spawn(&["--json", "record", "-t", &pane, "-o", "here.cast", "--input"]);
    eventually("it records", || world.path("work/here.cast").exists());
    let refused = world.error("CONFLICT", &["record", "-t", &pane, "-o", "here.cast"]);
    assert!(refused.contains("here.cast already exists"), "{refused}");
    world.ok(&["send-keys", "-t", &pane, "hello", "Enter"]);
    let ended: Value = serde_json::from_str(&recording.line().unwrap()).unwrap();
    assert_eq!((&ended["state"], &ended["exit_status"]), (&json!("pane-ended"), &json!(3)), "{ended}");
    assert_eq!(recording.finish().status, 0);
    let cast = cast(&world.path("work/here.cast"));
    let typed: String = cast.events.iter().filter_map(v3::Event::as_input).collect();
    assert_eq!(typed, "hello\r", "{:?}", cast.events);
    assert!(output(&cast).contains("got hello"), "{:?}", output(&cast));
    assert_eq!(cast.events.last().unwrap().as_exit().map(|status| status.code()), Some(3));
}

#[test]
fn a_program_that_a_signal_ends_has_the_status_that_a_shell_gives_it() {
    let world = World::with_server();
    // A program that muxtap started: for others tmux keeps no status.
    let pane = world.ok(&["new-window", "-t", "main", "echo ready; read -r line; kill -TERM $$"]).trim().to_owned();
    world.await_output(&pane, "^ready");
    let file = world.path("a.cast");
    let recording = start(&world, &json!({"pane": pane, "file": file}));
    world.tmux(&["send-keys", "-t", &pane, "Enter"]);
    let id = recording["id"].as_str().unwrap();
    eventually("the pane's end", || {
        world.http("GET", &format!("/v1/recordings/{id}"), None).json()["state"] == "pane-ended"
    });
    let cast = cast(&file);
    assert_eq!(cast.events.last().unwrap().as_exit().map(|status| status.code()), Some(128 + 15));
}

#[test]
fn past_output_has_its_times_and_a_later_place_its_screen() {
    let world = World::with_server();
    let pane = shell(&world);
    does(&world, &pane, "echo first; sleep 1.5; echo second", "^second");
    let cursor = world.ok(&["cursor", "-t", &pane]).trim().to_owned();
    does(&world, &pane, "echo third", "^third");
    let file = |name: &str| world.path(name);
    for (name, since) in [("all", "start"), ("later", cursor.as_str())] {
        let recording = start(&world, &json!({"pane": pane, "file": file(name), "since": since}));
        caught_up(&world, &recording, &pane);
        stop(&world, &recording);
    }
    let (all, later) = (cast(&file("all")), cast(&file("later")));
    let text: String = all.events[1..].iter().filter_map(v3::Event::as_output).collect();
    assert!(text.contains("first\r\n") && text.contains("third\r\n"), "{text:?}");
    // Time has passed between the first and the second line, in the recording too.
    let mut at = 0.0;
    let mut printed = Vec::new();
    for event in &all.events {
        at += event.interval;
        for word in ["first", "second"] {
            if event.as_output().is_some_and(|text| text.contains(word)) {
                printed.push(at);
            }
        }
    }
    assert!(printed.len() == 2 && printed[1] - printed[0] >= 1.0, "{printed:?}");
    // The other recording begins with the screen at that time.
    let first = later.events[0].as_output().unwrap();
    assert!(first.contains("second") && !first.contains("third"), "{first:?}");
    let rest: String = later.events[1..].iter().filter_map(v3::Event::as_output).collect();
    assert_eq!(rest, "third\r\n");
    let shown = world.tmux(&["capture-pane", "-p", "-t", &pane]);
    for cast in [all, later] {
        assert_eq!(last_text(&cast).join("\n").trim_end(), shown.trim_end());
    }
}

#[test]
fn each_file_plays_on_its_own_and_ends_as_the_next_one_begins() {
    const MOST: u64 = 16 * 1024;
    let world = World::with_server();
    let pane = shell(&world);
    let dir = world.path("casts");
    let recording = start(&world, &json!({"pane": pane, "dir": dir, "max_bytes": MOST}));
    let line = r"for n in $(seq 1 2000); do printf '\033[3%dmline %d \033[0mof a text that fills its row\n' $((n % 8)) $n; done; echo done";
    does(&world, &pane, line, "^done");
    caught_up(&world, &recording, &pane);
    let ended = stop(&world, &recording);
    assert_eq!(ended["gaps"], 0, "{ended}");
    let files = files(&ended);
    assert!(files.len() > 5, "{ended}");
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    let casts: Vec<_> = files.iter().map(|file| cast(file)).collect();
    for (file, pair) in files.iter().zip(casts.windows(2)) {
        assert!(fs::metadata(file).unwrap().len() <= MOST, "{}", file.display());
        let mut begin = pair[1].clone();
        begin.events.truncate(1);
        assert_eq!(last_frame(&pair[0]), last_frame(&begin), "{}", file.display());
    }
    let shown = world.tmux(&["capture-pane", "-p", "-t", &pane]);
    assert_eq!(last_text(casts.last().unwrap()).join("\n").trim_end(), shown.trim_end());
    // Each line is in the files once, apart from screens at their beginnings.
    let printed: String =
        casts.iter().flat_map(|cast| cast.events[1..].iter().filter_map(v3::Event::as_output)).collect();
    for number in [1, 777, 2000] {
        assert_eq!(printed.matches(&format!("line {number} ")).count(), 1, "{number}");
    }
}

#[test]
fn limits_end_a_single_file_and_turn_others_while_the_pane_rests() {
    let world = World::with_server();
    let pane = shell(&world);
    let one = start(&world, &json!({"pane": pane, "file": world.path("one.cast"), "max_ms": 1000}));
    let many = start(&world, &json!({"pane": pane, "dir": world.path("many"), "max_ms": 1000}));
    let state = |recording: &Value| {
        world.http("GET", &format!("/v1/recordings/{}", recording["id"].as_str().unwrap()), None).json()
    };
    eventually("the limit", || state(&one)["state"] == "limit");
    eventually("the third file", || files(&state(&many)).len() > 2);
    stop(&world, &many);
    for file in files(&state(&many)) {
        cast(&file);
    }
    let listed = world.ok(&["record", "list"]);
    assert!(listed.contains("r1  ") && listed.contains("limit") && listed.contains("stopped"), "{listed}");
}

#[test]
fn an_unterminated_string_delays_no_recording_and_ends_as_in_tmux() {
    let world = World::with_server();
    let pane = shell(&world);
    let dir = |name: &str| world.path(name);
    let redacted = start(&world, &json!({"pane": pane, "file": dir("redacted.cast"), "redact": ["hunter2"]}));
    let plain = start(&world, &json!({"pane": pane, "file": dir("plain.cast")}));
    let small = start(&world, &json!({"pane": pane, "dir": dir("small"), "max_bytes": 4096}));
    let short = start(&world, &json!({"pane": pane, "dir": dir("short"), "max_ms": 1000}));
    // tmux discards the string after five seconds; the output held back until then is released.
    does(
        &world,
        &pane,
        r"printf '\033[31mred \033]0;never'; sleep 5.5; printf 'title\n'; echo after hunter2",
        "^after",
    );
    does(&world, &pane, r"printf 'a \033P'; sleep 5.5; echo string; seq 1 500; echo full", "^full");
    // A player's last screen equals tmux's, whether or not the player would have discarded the
    // string by itself.
    for recording in [&redacted, &plain, &small, &short] {
        caught_up(&world, recording, &pane);
        stop(&world, recording);
    }
    let text = |name: &str| output(&cast(&dir(name)));
    assert!(text("redacted.cast").contains("title\r\nafter *******\r\n"), "{:?}", text("redacted.cast"));
    assert!(text("plain.cast").contains("title\r\nafter hunter2\r\n"), "{:?}", text("plain.cast"));
    for name in ["redacted.cast", "plain.cast"] {
        let text = text(name);
        let (red, plain) = (text.find("\u{1b}[31mred").unwrap(), text.find("title\r\n").unwrap());
        assert!(text[red..plain].contains("\u{1b}[m"), "the looks are those of a new pane: {text:?}");
        let shown = world.tmux(&["capture-pane", "-p", "-t", &pane]);
        assert_eq!(last_text(&cast(&dir(name))).join("\n").trim_end(), shown.trim_end(), "{name}");
    }
    let state = |recording: &Value| {
        let id = recording["id"].as_str().unwrap();
        world.http("GET", &format!("/v1/recordings/{id}"), None).json()
    };
    for recording in [&small, &short] {
        let files = files(&state(recording));
        assert!(files.len() > 1, "{files:?}");
        let last = cast(files.last().unwrap());
        let shown = world.tmux(&["capture-pane", "-p", "-t", &pane]);
        assert_eq!(last_text(&last).join("\n").trim_end(), shown.trim_end());
    }
}

#[test]
fn a_recording_that_waits_for_a_strings_end_uses_no_cpu() {
    let world = World::with_server();
    let pane = shell(&world);
    let recording = start(&world, &json!({"pane": pane, "file": world.path("held.cast"), "redact": ["hunter2"]}));
    // A recording that only waits for the string's end does not spin, and can be stopped.
    let cursor = world.ok(&["cursor", "-t", &pane]);
    let line = r"echo begun; printf '\033]0;open'; sleep 1000";
    world.tmux(&["send-keys", "-l", "-t", &pane, line, ";", "send-keys", "-t", &pane, "Enter"]);
    world.ok(&["wait-for", "-t", &pane, "-p", "^begun", "--since", cursor.trim(), "-T", "30"]);
    let pid = world.daemon_pid().unwrap();
    let used = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<u64> =
            stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2).map(|n| n.parse().unwrap()).collect();
        fields[0] + fields[1]
    };
    // tmux has discarded it, and nothing is held back any more.
    caught_up(&world, &recording, &pane);
    std::thread::sleep(std::time::Duration::from_millis(5500));
    let before = used();
    std::thread::sleep(std::time::Duration::from_secs(2));
    // In hundredths of a second.
    assert!(used() - before < 100, "{} of 200", used() - before);
    assert_eq!(stop(&world, &recording)["state"], "stopped");
}

#[test]
fn limits_on_past_output_follow_its_original_times() {
    let world = World::with_server();
    let pane = shell(&world);
    does(&world, &pane, "echo first; sleep 2.2; echo second; sleep 2.2; echo third; sleep 2.2; echo fourth", "^fourth");
    let one = start(&world, &json!({"pane": pane, "file": world.path("a"), "since": "start", "max_ms": 4000}));
    let state = |recording: &Value| {
        world.http("GET", &format!("/v1/recordings/{}", recording["id"].as_str().unwrap()), None).json()
    };
    eventually("the limit", || state(&one)["state"] == "limit");
    let text = output(&cast(&world.path("a")));
    assert!(text.contains("first\r\nsecond\r\n") && !text.contains("fourth"), "{text:?}");
    let many = start(&world, &json!({"pane": pane, "dir": world.path("d"), "since": "start", "max_ms": 1500}));
    caught_up(&world, &many, &pane);
    let files = files(&stop(&world, &many));
    let casts: Vec<_> = files.iter().map(|file| cast(file)).collect();
    // Returns the start of the file in which a word comes after its first screen.
    let begun = |word: &str| {
        let cast = casts
            .iter()
            .find(|cast| cast.events[1..].iter().filter_map(v3::Event::as_output).any(|text| text.contains(word)));
        cast.unwrap_or_else(|| panic!("{word}")).header.timestamp.unwrap()
    };
    let (first, second, fourth) = (begun("first"), begun("second"), begun("fourth"));
    assert!(second - first >= 1 && fourth - second >= 3, "{first} {second} {fourth}");
}

#[test]
fn a_screen_larger_than_the_limit_does_not_create_a_file_per_chunk() {
    let world = World::with_server();
    let pane = shell(&world);
    let fill = r"for n in $(seq 1 1500); do printf '\033[38;5;%dmx' $((n % 256)); done; printf '\033[H'; echo drawn";
    does(&world, &pane, fill, "drawn");
    let recording = start(&world, &json!({"pane": pane, "dir": world.path("d"), "max_bytes": 4096}));
    does(
        &world,
        &pane,
        r"for n in $(seq 1 40); do printf '\033[Hline %d' $n; sleep 0.03; done; echo; echo over",
        "^over",
    );
    caught_up(&world, &recording, &pane);
    let files = files(&stop(&world, &recording));
    let head = fs::read_to_string(&files[0]).unwrap().lines().take(2).map(str::len).sum::<usize>();
    assert!(head > 8000, "{head}");
    assert_eq!(files.len(), 1, "{files:?}");
}

#[test]
fn a_redacted_secret_is_in_no_file() {
    const SECRET: &str = "hunter2-correct-horse";
    let world = World::with_server();
    let pane = shell(&world);
    // On the screen at the beginning, wrapped, in colors, in chunks, in a title, in a marker,
    // typed.
    does(&world, &pane, &format!("echo pw={SECRET} on the screen; echo up"), "^up");
    // Half of it, in a line that wraps.
    let wide = "w".repeat(70);
    does(&world, &pane, &format!("printf '{wide} hunter2-cor'"), "hunter2-cor$");
    let dir = world.path("casts");
    let request =
        json!({"pane": pane, "dir": dir, "max_bytes": 8192, "input": true, "redact": ["hunter2-[a-z]+-horse"]});
    let recording = start(&world, &request);
    does(&world, &pane, "echo rect-horse half; echo whole", "^whole");
    let wide = "x".repeat(70);
    does(&world, &pane, &format!("echo {wide}{SECRET}; echo wrapped"), "^wrapped");
    does(
        &world,
        &pane,
        r"printf 'hunter2-\033[31mcor\033[1mrect\033[0m-ho'; sleep 0.2; printf 'rse!\n'; echo cut",
        "^cut",
    );
    does(&world, &pane, r"printf '\033]2;title hunter2-correct-horse\007'; echo titled", "^titled");
    does(&world, &pane, "stty echo; echo echoing", "^echoing");
    for typed in ["echo hunter2-corr", "ect-horse typed", "\n"] {
        world.ok(&["send-keys", "-t", &pane, "-l", typed]);
    }
    world.ok(&["wait-for", "-t", &pane, "-p", "^hunter2-correct-horse typed", "--since", "start", "-T", "20"]);
    does(&world, &pane, "for n in $(seq 1 400); do echo filling $n; done; echo full", "^full");
    caught_up(&world, &recording, &pane);
    let ended = stop(&world, &recording);
    let files = files(&ended);
    assert!(files.len() > 1 && ended["redacted"].as_u64().unwrap() > 60, "{ended}");
    let mut all = String::new();
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        assert!(!text.contains(SECRET) && !text.contains("correct") && !text.contains("horse"), "{text}");
        all += &output(&cast(file));
    }
    assert!(all.contains(&format!("{}*********************\r\n", "x".repeat(70))), "{all:?}");
    assert!(all.contains("********** half\r\n"), "{all:?}");
    assert!(all.contains("pw=********************* on the screen"), "{all:?}");
    assert!(all.contains("********\u{1b}[31m***\u{1b}[1m****\u{1b}[0m******!\r\n"), "{all:?}");
    assert!(all.contains("\u{1b}]2;title *********************\u{7}"), "{all:?}");
    let typed: String = files.iter().map(|file| cast(file)).fold(String::new(), |typed, cast| {
        typed + &cast.events.iter().filter_map(v3::Event::as_input).collect::<String>()
    });
    assert!(typed.contains("echo ********************* typed"), "{typed:?}");
    // Other text is still present.
    assert!(all.contains("filling 400\r\n"));
    let refused =
        world.http("POST", &format!("/v1/recordings{}", world.query()), Some(&json!({"pane": pane, "redact": ["a*"]})));
    assert!(refused.status == 400 && refused.json()["message"].as_str().unwrap().contains("empty text"), "{refused:?}");
}

#[test]
fn what_a_terminal_does_not_echo_is_not_recorded_and_waits_and_inputs_are_marked() {
    let world = World::with_server();
    let pane = world.window("echo Password:; stty -echo; read line; stty echo; echo thanks; exec cat");
    world.await_output(&pane, "Password:");
    eventually("the terminal is silent", || {
        world.ok(&["list-panes", "--json"]).contains("main") && {
            let tty = world.tmux(&["display-message", "-p", "-t", &pane, "#{pane_tty}"]);
            run(Command::new("stty").args(["-F", &tty, "-a"])).text().contains("-echo ")
        }
    });
    let file = world.path("a.cast");
    let recording = start(&world, &json!({"pane": pane, "file": file, "input": true}));
    world.ok(&["send-keys", "-t", &pane, "s3cret", "Enter"]);
    world.ok(&["wait-for", "-t", &pane, "-p", "^thanks", "-T", "20"]);
    world.ok(&["send-keys", "-t", &pane, "open", "Enter"]);
    world.ok(&["wait-for", "-t", &pane, "-p", "^open", "-T", "20"]);
    caught_up(&world, &recording, &pane);
    stop(&world, &recording);
    let cast = cast(&file);
    assert!(!fs::read_to_string(&file).unwrap().contains("s3cret"));
    let typed: String = cast.events.iter().filter_map(v3::Event::as_input).collect();
    assert_eq!(typed, "open\r");
    let markers = markers(&cast);
    assert!(markers.contains(&"input that the terminal does not show"), "{markers:?}");
    assert!(markers.contains(&"wait matched: ^thanks"), "{markers:?}");
}

#[test]
fn a_flood_is_recorded_completely_or_with_its_gaps_marked() {
    const LINES: usize = 300_000;
    let world = World::with_server();
    let pane = shell(&world);
    let file = world.path("flood.cast");
    let recording = start(&world, &json!({"pane": pane, "file": file, "format": "v3"}));
    does(&world, &pane, &format!("seq 1 {LINES}; echo over"), "^over");
    caught_up(&world, &recording, &pane);
    let ended = stop(&world, &recording);
    let cast = cast(&file);
    let text: String = cast.events[1..].iter().filter_map(v3::Event::as_output).collect();
    let numbers: Vec<usize> = text.lines().filter_map(|line| line.trim_end().parse().ok()).collect();
    if ended["gaps"] == 0 {
        assert_eq!(numbers, (1..=LINES).collect::<Vec<_>>());
    } else {
        // In order, each once; the file reports missing ones.
        assert!(numbers.windows(2).all(|two| two[0] < two[1]) || numbers.len() > 1000);
        let comments = fs::read_to_string(&file).unwrap();
        let told = comments.lines().filter(|line| line.starts_with("# ")).count() as u64;
        assert_eq!(told, ended["gaps"].as_u64().unwrap());
    }
}

#[test]
fn a_full_disk_ends_a_recording_with_a_complete_file() {
    let world = World::with_server();
    // A limit of the process: further writes fail like on a full disk.
    let program = world.plain_muxtap_command().get_program().to_owned();
    let mut command = world.command("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 128; exec \"$0\" serve"]).arg(program);
    let _daemon = Background::start(&mut command);
    eventually("the daemon answers", || world.daemon_pid().is_some());
    let pane = shell(&world);
    let file = world.path("full.cast");
    let recording = start(&world, &json!({"pane": pane, "file": file}));
    does(&world, &pane, "seq 1 200; echo some", "^some");
    caught_up(&world, &recording, &pane);
    does(&world, &pane, "seq 1 100000; echo over", "^over");
    let id = recording["id"].as_str().unwrap();
    let state = || world.http("GET", &format!("/v1/recordings/{id}"), None).json();
    eventually("it has failed", || state()["state"] == "failed");
    let why = state()["error"].as_str().unwrap().to_owned();
    assert!(why.contains("cannot write") && why.contains("is intact"), "{why}");
    let cast = cast(&file);
    assert!(output(&cast).contains("\r\n100\r\n"), "{why}");
    assert_eq!(state()["bytes"].as_u64().unwrap(), fs::metadata(&file).unwrap().len());
}

#[test]
fn a_command_that_is_killed_takes_its_recording_along_and_a_detached_one_stays() {
    let world = World::with_server();
    let pane = shell(&world);
    let recording = world.spawn(&["record", "-t", &pane, "-o", "killed.cast"]);
    let state = |id: &str| world.http("GET", &format!("/v1/recordings/{id}"), None).json()["state"].clone();
    eventually("it records", || world.path("work/killed.cast").exists());
    recording.kill();
    eventually("it has ended", || state("r1") == "stopped");
    cast(&world.path("work/killed.cast"));

    let id = world.ok(&["record", "-t", &pane, "--detach"]).trim().to_owned();
    assert_eq!(state(&id), "recording");
    does(&world, &pane, "echo detached", "^detached");
    let stopped = world.ok(&["record", "stop", &id]);
    let file = PathBuf::from(stopped.trim());
    assert!(file.starts_with(world.path("m.sock.recordings")), "{stopped}");
    assert!(output(&cast(&file)).contains("detached"));
    world.error("NOT_FOUND", &["record", "stop", "r99"]);

    let interrupted = world.spawn(&["record", "-t", "main:*", "--dir", "several", "--format", "text"]);
    eventually("all are recorded", || world.path("work/several").read_dir().is_ok_and(|dir| dir.count() == 2));
    does(&world, &pane, "echo more", "^more");
    eventually("it is written", || {
        let files = world.path("work/several").read_dir().unwrap();
        files.flatten().any(|file| fs::read_to_string(file.path()).unwrap().contains("more\n"))
    });
    signal(interrupted.pid(), Signal::INT);
    let answer = interrupted.finish();
    assert_eq!((answer.status, answer.text().lines().count()), (130, 2), "{answer:?}");

    let last = world.ok(&["record", "-t", &pane, "--detach"]).trim().to_owned();
    world.ok(&["stop"]);
    let left: BTreeSet<_> =
        world.path("m.sock.recordings").read_dir().unwrap().flatten().map(|file| file.path()).collect();
    assert_eq!(left.len(), 2, "{last}: {left:?}");
    for file in left {
        cast(&file);
    }
}

/// What a player shows at each marker: the marker, and the output since the one before it.
fn chapters(cast: &Asciicast<V3>) -> Vec<(String, String)> {
    let (mut chapters, mut printed) = (Vec::new(), String::new());
    for event in &cast.events {
        if let Some(label) = event.as_marker() {
            chapters.push((label.to_owned(), std::mem::take(&mut printed)));
        }
        printed.extend(event.as_output());
    }
    chapters
}

/// R12.
#[test]
fn commands_are_marked_at_their_places() {
    let world = World::with_server();
    fs::write(world.path("home/.bashrc"), "PS1='$ '\nunset HISTCONTROL HISTIGNORE\n").unwrap();
    let pane = world.ok(&["new-window", "-t", "main", "--shell-integration", "--", "bash"]);
    world.await_output(&pane, r"\$ ");
    let typed = |line: &str| {
        let number = world.json(&["commands", "-t", &pane])["commands"].as_array().unwrap().len();
        world.ok(&["send-keys", "-t", &pane, line, "Enter"]);
        eventually(line, || world.json(&["commands", "-t", &pane])["commands"][number]["end"] == "reported");
    };
    typed("printf 'past\\n'");
    let (now, past) = (world.path("now.cast"), world.path("past.cast"));
    let live = start(&world, &json!({"pane": pane, "file": now, "redact": ["s3cr[a-z]+"]}));
    typed("seq 3000; (exit 7)");
    typed("echo s3cret");
    typed("sh -c 'exit 9'");
    caught_up(&world, &live, &pane);
    stop(&world, &live);
    let whole = start(&world, &json!({"pane": pane, "file": past, "since": "start"}));
    caught_up(&world, &whole, &pane);
    stop(&world, &whole);

    let of_commands = |file: &Path| {
        let mut chapters = chapters(&cast(file));
        chapters.retain(|(label, _)| !label.starts_with("input"));
        chapters
    };
    let labels = |chapters: &[(String, String)]| chapters.iter().map(|(label, _)| label.clone()).collect::<Vec<_>>();
    let of_live = [
        "$ seq 3000; (exit 7)",
        "status 7: seq 3000; (exit 7)",
        "$ echo ******",
        "status 0: echo ******",
        "$ sh -c 'exit 9'",
        "status 9: sh -c 'exit 9'",
    ];
    let found = of_commands(&now);
    assert_eq!(labels(&found), of_live);
    let found = of_commands(&past);
    let of_past = of_live.map(|label| label.replace("******", "s3cret"));
    assert_eq!(labels(&found)[..2], ["$ printf 'past\\n'", "status 0: printf 'past\\n'"]);
    assert_eq!(labels(&found)[2..], of_past);
    // Between its markers is what a command printed, and nothing else.
    let printed = |label: &str| {
        let (_, printed) = found.iter().find(|(found, _)| found == label).unwrap();
        // Marks and other sequences are invisible.
        let text = muxtap::stream::render::render_bytes(printed.as_bytes());
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(printed("status 0: printf 'past\\n'"), ["past"]);
    assert_eq!(printed("status 0: echo s3cret"), ["s3cret"]);
    let numbers: Vec<_> = (1..=3000).map(|number| number.to_string()).collect();
    assert_eq!(printed("status 7: seq 3000; (exit 7)"), numbers);
}

#[test]
fn files_of_v2_are_played_by_asciinema_2() {
    let world = World::with_server();
    let pane = shell(&world);
    let file = world.path("two.cast");
    let recording = start(&world, &json!({"pane": pane, "file": file}));
    does(&world, &pane, r"printf '\033[1mbold \303\251\033[0m\n'; echo end of it", "^end of it");
    caught_up(&world, &recording, &pane);
    stop(&world, &recording);
    let parsed: Asciicast<V2> = Asciicast::from_path(&file).unwrap();
    let printed: String = parsed.events.iter().filter_map(v2::Event::as_output).collect();
    if !is_installed("asciinema") {
        return;
    }
    // It requires a terminal as its input.
    let (out, file) = (world.path("out"), file.display());
    world.window(&format!("asciinema cat {file} > {0} 2> {0}.err; mv {0} {0}.done", out.display()));
    let done = world.path("out.done");
    eventually("it was played", || done.exists());
    assert_eq!(fs::read_to_string(done).unwrap(), printed);
}

#[test]
fn a_window_that_grows_is_shown_as_tmux_shows_it() {
    let world = World::with_server();
    let pane = shell(&world);
    world.tmux(&["resize-window", "-t", &pane, "-x", "60", "-y", "10"]);
    does(&world, &pane, "seq 100 160; echo full", "^full");
    let file = world.path("grows.cast");
    let recording = start(&world, &json!({"pane": pane, "file": file}));
    for (columns, rows) in [("60", "25"), ("30", "14"), ("70", "30")] {
        world.tmux(&["resize-window", "-t", &pane, "-x", columns, "-y", rows]);
        does(&world, &pane, &format!("printf 'now {rows} rows\\n%050d\\n' 1; echo open-$((1+1))"), "open-2");
        let shown = world.tmux(&["capture-pane", "-p", "-t", &pane]);
        let shown: Vec<String> = shown.lines().map(|row| row.trim_end().to_owned()).collect();
        eventually("a player shows the same", || {
            let text = last_text(&cast(&file));
            text.iter().zip(&shown).all(|(row, tmux)| row == tmux) && text.len() >= shown.len()
        });
    }
    stop(&world, &recording);
}

#[test]
fn a_recording_has_no_marks_of_run() {
    let mut world = World::new();
    world.set("SHELL", "/bin/bash");
    world.session("main");
    // Starts the daemon.
    world.ok(&["list-panes"]);
    let file = world.path("run.cast");
    let recording = start(&world, &json!({"pane": "main:0", "file": file, "format": "v3"}));
    world.ok(&["run", "-t", "main:0", "--", "echo first; echo second"]);
    world.ok(&["run", "-t", "main:0", "--", "echo third"]);
    let pane = world.tmux(&["display-message", "-p", "-t", "main:0", "#{pane_id}"]);
    caught_up(&world, &recording, &pane);
    stop(&world, &recording);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("third"), "{text}");
    assert!(!text.contains("7717") && !text.contains("_muxtap"), "{text}");
    // The past too.
    let file = world.path("past.cast");
    let recording = start(&world, &json!({"pane": "main:0", "file": file, "since": "start"}));
    caught_up(&world, &recording, &pane);
    stop(&world, &recording);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("third") && !text.contains("7717") && !text.contains("_muxtap"), "{text}");
}

#[test]
fn over_tcp_a_recording_can_only_go_to_the_recordings_directory() {
    let world = World::with_server();
    let serve = |flags: &[&str]| {
        let mut command = world.plain_muxtap_command();
        command.args(["serve", "--http", "127.0.0.1:0"]).args(flags);
        let daemon = Background::start(&mut command);
        eventually("the daemon answers", || world.daemon_pid().is_some());
        // Callers over TCP can name only known servers.
        world.sessions();
        let status = world.http("GET", "/v1/status", None).json();
        let addr = status["http"][0].as_str().unwrap().split("://").nth(1).unwrap().to_owned();
        (daemon, addr)
    };
    let (daemon, addr) = serve(&[]);
    let token = world.ok(&["token"]).trim().to_owned();
    let path = format!("/v1/recordings{}", world.query());
    let ask = |body: Value| asked(&addr, &token, "POST", &path, Some(&body));
    for body in [
        json!({"pane": "main", "file": world.path("out.cast")}),
        json!({"pane": "main", "dir": world.path("out")}),
        json!({"pane": "main", "file": "../out.cast"}),
        json!({"pane": "main", "file": "..", "format": "text"}),
    ] {
        let refused = ask(body);
        assert_eq!((refused.status, &refused.json()["code"]), (400, &json!("INVALID_ARGUMENT")), "{refused:?}");
    }
    let begun = ask(json!({"pane": "main", "file": "named.cast"}));
    assert_eq!(begun.status, 200, "{begun:?}");
    assert_eq!(files(&begun.json()), [world.path("m.sock.recordings/named.cast")]);
    let id = begun.json()["id"].as_str().unwrap().to_owned();
    let ended = asked(&addr, &token, "DELETE", &format!("/v1/recordings/{id}"), None);
    assert_eq!(ended.json()["state"], "stopped");
    world.ok(&["stop"]);
    daemon.finish();

    // A caller with read access only may not create files; the user still may, with their own.
    let (_daemon, addr) = serve(&["--allow", "read"]);
    let refused = asked(&addr, &token, "POST", &path, Some(&json!({"pane": "main"})));
    assert_eq!(refused.json()["code"], "READ_ONLY", "{refused:?}");
    let own = start(&world, &json!({"pane": "main", "file": world.path("own.cast")}));
    stop(&world, &own);
    cast(&world.path("own.cast"));
}

/// Decodes a LEB128 number.
fn number(bytes: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        shift += 7;
        if first & 0x80 == 0 {
            return number;
        }
    }
}

#[test]
fn players_see_a_pane_live() {
    let world = World::with_server();
    let pane = shell(&world);
    does(&world, &pane, "echo there before secret1", "there before");
    let stream = UnixStream::connect(world.daemon_socket()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let path = format!("/v1/panes/{}/alis{}&redact=secret%5B0-9%5D", pane.trim_start_matches('%'), world.query());
    let mut request = format!("ws://muxtap{path}").into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "v1.alis".parse().unwrap());
    let (mut socket, response) = tungstenite::client::client(request, stream).unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], "v1.alis");
    let mut message = || loop {
        match socket.read() {
            Ok(Message::Binary(bytes)) => return Some(bytes.to_vec()),
            Ok(Message::Close(_)) | Err(_) => return None,
            Ok(_) => {}
        }
    };
    assert_eq!(message().unwrap(), b"ALiS\x01");
    let first = message().unwrap();
    let mut rest = &first[1..];
    assert_eq!(first[0], 1);
    let head: Vec<u64> = (0..4).map(|_| number(&mut rest)).collect();
    assert_eq!((head[0], head[2], head[3], rest[0]), (0, 80, 24, 0));
    rest = &rest[1..];
    assert_eq!(number(&mut rest), rest.len() as u64);
    assert!(String::from_utf8_lossy(rest).contains("there before *******"), "{:?}", String::from_utf8_lossy(rest));
    does(&world, &pane, "echo live secret2", "^live");
    world.ok(&["kill-pane", "-t", &pane]);
    let (mut text, mut kinds, mut last_id) = (String::new(), Vec::new(), 0);
    while let Some(message) = message() {
        let mut rest = &message[1..];
        kinds.push(message[0]);
        if message[0] == 4 {
            continue;
        }
        let id = number(&mut rest);
        assert!(id > last_id);
        last_id = id;
        number(&mut rest);
        if message[0] == b'o' {
            assert_eq!(number(&mut rest), rest.len() as u64);
            text += std::str::from_utf8(rest).unwrap();
        }
    }
    assert_eq!(text, "live *******\r\n");
    assert_eq!(kinds.last(), Some(&4), "{kinds:?}");
    let refused = world.http("GET", &path, None);
    assert!([404, 426].contains(&refused.status), "{refused:?}");
}

#[test]
fn agents_record_where_the_tool_is_asked_for() {
    let world = World::with_server();
    let pane = shell(&world);
    let mut plain = Client::new(&world);
    let names = |client: &mut Client| -> Vec<String> {
        let listed = client.ask("tools/list", &json!({}));
        listed["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert!(!names(&mut plain).contains(&"record".to_owned()));
    let refused = plain.ask("tools/call", &json!({"name": "record", "arguments": {}}));
    assert!(refused["error"]["message"].as_str().is_some_and(|why| why.contains("unknown tool")), "{refused}");
    let mut client = Client::started(world.spawn(&["mcp", "--tools", "native,record"]));
    let listed = names(&mut client);
    assert!(listed.contains(&"record".to_owned()) && listed.contains(&"run".to_owned()), "{listed:?}");
    let mut record = |arguments: Value| client.ask("tools/call", &structured("record", &arguments))["result"].clone();
    let begun = record(json!({"action": "start", "target": pane, "redact": "x+"}));
    let id = begun["structuredContent"]["recordings"][0]["id"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned();
    assert_eq!(record(json!({}))["structuredContent"]["recordings"][0]["state"], "recording");
    let ended = record(json!({"action": "stop", "id": id}));
    assert_eq!(ended["structuredContent"]["recordings"][0]["state"], "stopped");
    let refused = record(json!({"action": "start", "target": pane, "file": "/tmp/x.cast"}));
    assert_eq!(refused["isError"], true, "{refused}");
    let refused = record(json!({"action": "stop"}));
    assert!(refused.to_string().contains("id: missing"), "{refused}");
}

#[test]
fn an_agents_actions_are_marked() {
    let (world, pane) = crate::agents::stage(&["claude"]);
    let mut watch = crate::agents::watch(&world);
    world.tmux(&["send-keys", "-t", &pane, "claude", "Enter"]);
    crate::agents::until(&mut watch, "idle");
    let file = world.path("agent.cast");
    let recording = start(&world, &json!({"pane": pane, "file": file}));
    let marked = |what: &str| fs::read_to_string(&file).unwrap().contains(what);
    for (screen, state) in
        [("claude-working", "working"), ("claude-permission-bash", "permission"), ("claude-errored", "errored")]
    {
        crate::agents::show(&world, &pane, &crate::agents::golden(screen));
        crate::agents::until(&mut watch, state);
        eventually("it is marked", || marked(&format!("Claude Code {state}")));
    }
    stop(&world, &recording);
    let cast = cast(&file);
    let markers = markers(&cast);
    let at = |state: &str| {
        let begin = format!("Claude Code {state}");
        markers.iter().position(|marker| marker.starts_with(&begin)).unwrap_or_else(|| panic!("{state}: {markers:?}"))
    };
    assert!(at("working") < at("permission") && at("permission") < at("errored"), "{markers:?}");
    // The question is after its state.
    assert!(markers[at("permission")].contains(": "), "{markers:?}");
}
