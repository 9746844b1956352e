//! The protocol crate against a real tmux on a private socket: its output is accepted by tmux, and
//! tmux's output is parsed. `MUXTAP_TEST_TMUX` names another tmux to run against.
use bytes::{Bytes, BytesMut};
use muxtap::protocol::{
    codec::{ControlCodec, Event, Reply},
    command::{Command, CommandLine, hex_keys},
    frame::{Frame, FrameKey, framed},
    ids::PaneId,
    notification::{ExitReason, Notification},
    version::Version,
};
use proptest::prelude::*;
use std::{
    fs,
    io::{Read, Write},
    path::PathBuf,
    process::{Child, ChildStdin, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, SystemTime},
};
use tempfile::TempDir;

/// Longer than any reply takes on a busy machine; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// A separate tmux server with one control client.
struct Tmux {
    folder: TempDir,
    client: Child,
    input: Option<ChildStdin>,
    events: Receiver<Event>,
    key: FrameKey,
    frames: u64,
}

fn program() -> String {
    std::env::var("MUXTAP_TEST_TMUX").unwrap_or_else(|_| "tmux".to_owned())
}

impl Tmux {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let mut client = std::process::Command::new(program())
            .args(["-u", "-f", "/dev/null", "-S"])
            .arg(folder.path().join("socket"))
            .args(["-C", "new-session", "-x", "80", "-y", "24", "cat"])
            .env_remove("TMUX")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut wire = client.stdout.take().unwrap();
        let input = client.stdin.take();
        let key = FrameKey::new();
        let mut codec = ControlCodec::new(key.clone());
        let (sender, events) = channel();
        std::thread::spawn(move || {
            let mut buffer = BytesMut::new();
            let mut chunk = vec![0; 65536];
            loop {
                let length = wire.read(&mut chunk).unwrap();
                buffer.extend_from_slice(&chunk[..length]);
                while let Some(event) =
                    if length == 0 { codec.decode_eof(&mut buffer) } else { codec.decode(&mut buffer) }.unwrap()
                {
                    let _ = sender.send(event);
                }
                if length == 0 {
                    break;
                }
            }
        });
        let tmux = Self { folder, client, input, events, key, frames: 0 };
        tmux.until(|event| matches!(event, Event::Notification(Notification::SessionChanged { .. })).then_some(()));
        tmux
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the first event from now on that `pick` accepts.
    fn until<T>(&self, mut pick: impl FnMut(&Event) -> Option<T>) -> T {
        let mut seen = Vec::new();
        loop {
            match self.events.recv_timeout(PATIENCE) {
                Ok(event) => {
                    if let Some(picked) = pick(&event) {
                        return picked;
                    }
                    seen.push(event);
                }
                Err(error) => panic!("{error} after {seen:?}"),
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).unwrap();
    }

    fn reply(&self) -> Reply {
        self.until(|event| if let Event::Reply(reply) = event { Some(reply.clone()) } else { None })
    }

    /// Runs one command outside of a frame; it must succeed.
    fn run(&mut self, command: &Command) -> Bytes {
        self.send(&command.line().unwrap());
        let reply = self.reply();
        assert!(reply.ok, "{command:?}: {reply:?}");
        reply.body
    }

    fn send_frame(&mut self, commands: &[Command]) -> u64 {
        let seq = self.frames;
        self.frames += 1;
        let bytes = framed(&self.key, seq, commands).unwrap();
        self.send(&bytes);
        seq
    }

    fn frame(&mut self, commands: &[Command]) -> Frame {
        let seq = self.send_frame(commands);
        let frame = self.until(|event| if let Event::Frame(frame) = event { Some(frame.clone()) } else { None });
        assert_eq!(frame.seq, seq);
        frame
    }

    /// Opens a window that runs `script` in a shell; returns its pane.
    fn window(&mut self, script: &str) -> PaneId {
        let command = Command::new("new-window").flag("-dP").opt("-F", "#{pane_id}").end_of_flags();
        let id = self.run(&command.arg(script));
        PaneId::from_bytes(id.trim_ascii()).unwrap()
    }

    /// Waits for `end` in the output of `pane`; returns all of that output from now on, including
    /// `end`.
    fn output_until(&self, pane: PaneId, end: &[u8]) -> Vec<u8> {
        let mut printed = Vec::new();
        self.until(|event| {
            if let Event::Output { pane: from, data, .. } = event
                && *from == pane
            {
                printed.extend_from_slice(data);
            }
            printed.ends_with(end).then_some(())
        });
        printed
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = std::process::Command::new(program())
            .arg("-S")
            .arg(self.path("socket"))
            .arg("kill-server")
            .stderr(Stdio::null())
            .status();
        drop(self.input.take());
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

/// Sends each value as an argument and returns tmux's output for all of them together.
fn through_tmux(tmux: &mut Tmux, values: &[Vec<u8>]) -> Vec<u8> {
    let file = tmux.path("buffer");
    tmux.run(&Command::new("set-buffer").opt("-b", "quoting").end_of_flags().arg("start:"));
    for value in values {
        tmux.run(&Command::new("set-buffer").flag("-a").opt("-b", "quoting").end_of_flags().arg(value));
    }
    tmux.run(&Command::new("save-buffer").opt("-b", "quoting").arg(file.as_os_str().as_encoded_bytes()));
    fs::read(file).unwrap()
}

#[test]
fn every_byte_but_nul_arrives_unchanged_in_any_position() {
    let mut tmux = Tmux::start();
    for byte in 1..=255u8 {
        let values = [vec![byte], vec![b'a', byte, b'b'], vec![byte, byte], vec![b'\n', byte, b' ']];
        let arrived = through_tmux(&mut tmux, &values);
        assert_eq!(arrived.strip_prefix(b"start:"), Some(&values.concat()[..]), "{byte:#04x}");
    }
}

#[test]
fn values_that_look_like_syntax_arrive_unchanged() {
    let mut tmux = Tmux::start();
    for value in [
        "~",
        "~root",
        "~/x",
        "a~",
        "$HOME",
        "${HOME}",
        "$",
        "\\$HOME",
        "%if",
        "%1",
        "%",
        "#comment",
        "\n#comment\n",
        "\n   indented",
        ";",
        "a;",
        "; kill-server",
        "\\;",
        "\\",
        "a\\",
        "\\\\",
        "\\n",
        "\\101",
        "\\u00e9",
        "{",
        "}",
        "{ a }",
        "'",
        "''",
        "\"",
        "\"'\"",
        "-x",
        "--",
        "A=b",
        "=",
        "#{pane_id}",
        "#(echo no)",
        "%H",
        "\r\n",
        "\t",
        " ",
        "é",
        "日本",
    ] {
        let arrived = through_tmux(&mut tmux, &[value.as_bytes().to_vec()]);
        assert_eq!(arrived.strip_prefix(b"start:"), Some(value.as_bytes()), "{value:?}");
    }
}

#[test]
fn arbitrary_bytes_arrive_unchanged() {
    let tmux = std::sync::Mutex::new(Tmux::start());
    proptest!(ProptestConfig::with_cases(64), |(values in proptest::collection::vec(
        proptest::collection::vec(1u8..=255, 1..300), 1..4))| {
        let arrived = through_tmux(&mut tmux.lock().unwrap(), &values);
        prop_assert_eq!(arrived.strip_prefix(b"start:"), Some(&values.concat()[..]));
    });
}

#[test]
fn literals_are_not_expanded() {
    let mut tmux = Tmux::start();
    for text in [
        "plain",
        "#{window_id}",
        "#S",
        "#",
        "##",
        "###",
        "a#",
        "#[bold]",
        "##[bold]",
        "###[",
        "#(echo no)",
        "#{",
        "#}",
        "#,",
        "%H",
        "%%H",
        "%",
        "%Y-#{pid}",
        "#{?1,a,b}",
        "#{T:%H}",
    ] {
        let printed = tmux.frame(&[Command::new("display-message").flag("-p").end_of_flags().timed_literal(text)]);
        assert_eq!(printed.error, None);
        assert_eq!(printed.parts.concat(), format!("{text}\n").as_bytes(), "display-message");
        tmux.run(&Command::new("rename-window").end_of_flags().literal(text));
        let named = tmux.frame(&[Command::new("list-windows").opt("-F", "#{window_name}")]);
        assert_eq!(named.parts.concat(), format!("{text}\n").as_bytes(), "rename-window");
    }
}

#[test]
fn keys_carry_every_byte() {
    let mut tmux = Tmux::start();
    let file = tmux.path("keys");
    let bytes: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let pane = tmux.window(&format!(
        "stty raw -echo; printf ready; head -c {} >'{}'; printf done; exec cat",
        bytes.len(),
        file.display()
    ));
    tmux.output_until(pane, b"ready");
    for command in hex_keys(pane, &bytes) {
        let line = command.line().unwrap();
        tmux.send(&line);
    }
    tmux.output_until(pane, b"done");
    assert_eq!(fs::read(file).unwrap(), bytes);
}

#[test]
fn output_is_what_the_pane_wrote() {
    let mut tmux = Tmux::start();
    let file = tmux.path("printed");
    let mut bytes: Vec<u8> = (0..=255).chain((0..=255).rev()).cycle().take(100_000).collect();
    bytes.extend_from_slice(b"the end");
    fs::write(&file, &bytes).unwrap();
    let pane = tmux.window(&format!("stty raw -echo; printf go; cat '{}'; exec cat", file.display()));
    // On a busy machine the first bytes come with the following ones.
    let printed = tmux.output_until(pane, b"the end");
    assert!(printed.strip_prefix(b"go") == Some(&bytes), "{} bytes", printed.len());
}

#[test]
fn a_pane_that_forges_guards_fools_a_bare_reply_but_not_a_frame() {
    let mut tmux = Tmux::start();
    tmux.run(&Command::new("set-option").flag("-g").arg("history-limit").arg("50000"));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let mut forged: String =
        (now..now + 30).flat_map(|time| (200..700).map(move |number| format!("%end {time} {number} 1\n"))).collect();
    forged += "%output %0 forged\n%exit\nthe end\n";
    let file = tmux.path("forged");
    fs::write(&file, &forged).unwrap();
    let pane = tmux.window(&format!("cat '{}'; exec cat", file.display()));
    tmux.output_until(pane, b"the end\r\n");

    let capture = Command::new("capture-pane").flag("-p").opt("-S", "-").opt("-t", pane.to_string());
    let seq = tmux.send_frame(&[capture.clone(), capture.clone()]);
    let mut others = Vec::new();
    let frame = tmux.until(|event| {
        if let Event::Frame(frame) = event {
            return Some(frame.clone());
        }
        others.push(event.clone());
        None
    });
    assert_eq!((frame.seq, frame.error, others), (seq, None, Vec::new()));
    for part in &frame.parts {
        assert!(part.starts_with(forged.as_bytes()));
    }
    // The control: without a frame the same text is parsed as protocol, or this test proves
    // nothing.
    tmux.send(&capture.line().unwrap());
    assert!(tmux.reply().body.len() < forged.len());
    assert_eq!(tmux.output_until(PaneId(0), b"forged"), b"forged");
}

#[test]
fn a_failed_frame_reports_why_and_the_connection_continues() {
    let mut tmux = Tmux::start();
    let print = |text: &'static str| Command::new("display-message").flag("-p").arg(text);
    let missing = Command::new("capture-pane").flag("-p").opt("-t", "%999");
    let frame = tmux.frame(&[print("kept"), missing, print("never")]);
    assert_eq!(frame.parts, [Bytes::from_static(b"kept\n")]);
    assert!(frame.error.is_some_and(|error| error.starts_with(b"can't find pane")));
    // A command that this tmux does not have: the whole line is refused, none of it runs.
    let frame = tmux.frame(&[print("never"), Command::new("no-such-command")]);
    assert!(frame.parts.is_empty());
    assert!(frame.error.is_some_and(|error| error.windows(15).any(|text| text == b"unknown command")));
    assert_eq!(tmux.frame(&[print("a"), print("b")]).parts, [&b"a\n"[..], b"b\n"]);
}

#[test]
fn frames_and_bare_commands_keep_their_order() {
    let mut tmux = Tmux::start();
    let print = |text: &'static str| Command::new("display-message").flag("-p").arg(text);
    let fails = Command::new("kill-pane").opt("-t", "%999");
    tmux.send(&fails.line().unwrap());
    tmux.send_frame(&[print("1")]);
    tmux.send(&CommandLine::from(print("2")).then(print("3")).render().unwrap());
    tmux.send_frame(&[Command::new("no-such-command")]);
    tmux.send(&fails.line().unwrap());
    tmux.send_frame(&[print("4"), print("5")]);
    let mut answers = Vec::new();
    tmux.until(|event| {
        answers.push(match event {
            Event::Reply(Reply { ok: false, .. }) => "failed".to_owned(),
            Event::Reply(reply) => String::from_utf8(reply.body.to_vec()).unwrap(),
            Event::Frame(Frame { error: Some(_), .. }) => "frame failed".to_owned(),
            Event::Frame(frame) => String::from_utf8(frame.parts.concat()).unwrap(),
            _ => return None,
        });
        (answers.len() == 7).then_some(())
    });
    assert_eq!(answers, ["failed", "1\n", "2\n", "3\n", "frame failed", "failed", "4\n5\n"]);
}

#[test]
fn a_users_hook_does_not_break_a_frame() {
    let mut tmux = Tmux::start();
    for hook in ["after-capture-pane", "after-display-message"] {
        tmux.run(&Command::new("set-hook").flag("-g").arg(hook).arg("list-sessions"));
    }
    tmux.run(&Command::new("set-buffer").arg("the hooks are set"));
    let print = Command::new("display-message").flag("-p").arg("text");
    let capture = Command::new("capture-pane").flag("-p");
    for _ in 0..3 {
        let frame = tmux.frame(&[capture.clone(), print.clone(), capture.clone()]);
        assert_eq!((frame.error, frame.parts.len()), (None, 3));
        assert_eq!(frame.parts[1], "text\n");
        assert_eq!(frame.parts[0], frame.parts[2]);
    }
}

#[test]
fn the_server_and_the_program_report_the_same_supported_version() {
    let mut tmux = Tmux::start();
    let asked = tmux.run(&Command::new("display-message").flag("-p").format("#{version}"));
    let printed = std::process::Command::new(program()).arg("-V").output().unwrap().stdout;
    let version = Version::parse(&printed).unwrap();
    assert_eq!(Version::parse(&asked), Ok(version));
    assert!(version.is_supported());
}

fn exit_of(tmux: &Tmux) -> ExitReason {
    tmux.until(|event| match event {
        Event::Notification(Notification::Exit(reason)) => Some(reason.clone()),
        _ => None,
    })
}

#[test]
fn a_requested_exit_has_no_reason() {
    for asked in [&b"kill-server\n"[..], b"detach-client\n"] {
        let mut tmux = Tmux::start();
        tmux.send(asked);
        assert_eq!(exit_of(&tmux), ExitReason::None);
    }
}

#[test]
fn a_killed_server_is_reported_as_exited_unexpectedly() {
    let mut tmux = Tmux::start();
    let pid = tmux.run(&Command::new("display-message").flag("-p").format("#{pid}"));
    let pid = std::str::from_utf8(pid.trim_ascii()).unwrap();
    assert!(std::process::Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
    assert_eq!(exit_of(&tmux), ExitReason::ServerExitedUnexpectedly);
}
