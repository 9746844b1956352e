//! Input arrives byte for byte, and none of it is interpreted.

use crate::{common::World, mcp::Client};
use serde_json::json;

/// Prints each received byte in hexadecimal, one a line, after `ready`. With `paste` it enables
/// bracketed paste.
const RAW: &str = r#"
import os, sys, tty
tty.setraw(0)
if 'paste' in sys.argv:
    os.write(1, b'\x1b[?2004h')
os.write(1, b'ready\r\n')
while True:
    got = os.read(0, 65536)
    if not got:
        break
    os.write(1, b''.join(b'<%02x>\r\n' % byte for byte in got))
"#;

/// Reads like terminal user interfaces do: characters that arrive within 120 ms of each other are a
/// paste, and an Enter among them is a line end.
const BURSTS: &str = r#"
import os, time, tty
tty.setraw(0)
os.write(1, b'ready\r\n')
text, last = b'', 0
while True:
    got = os.read(0, 65536)
    now = time.monotonic()
    if got == b'\r' and now - last > 0.12:
        os.write(1, b'\r\nsubmitted: ' + text.replace(b'\r', b'<CR>') + b'\r\n')
        text = b''
    else:
        text += got
        os.write(1, got.replace(b'\r', b'\r\n'))
    last = now
"#;

fn program(source: &str, args: &[&str]) -> (World, String) {
    let world = World::new();
    std::fs::write(world.path("work/program.py"), source).unwrap();
    let pane = world.ok(&[&["new-session", "--", "python3", "program.py"], args].concat());
    world.await_output(&pane, "(?m)^ready$");
    (world, pane)
}

/// Sends something followed by the bytes 1 and 2, and waits for these: everything before them has
/// arrived. Returns the bytes before them.
fn arrived(world: &World, pane: &str, send: impl FnOnce()) -> Vec<u8> {
    let cursor = world.json(&["read", "-t", pane, "--since", "now"])["cursor"].as_str().unwrap().to_owned();
    send();
    world.ok(&["send-keys", "-t", pane, "-l", "\x01\x02"]);
    world.ok(&["wait-for", "-t", pane, "-p", "<01>\n<02>", "--since", &cursor]);
    let text = world.ok(&["read", "-t", pane, "--since", &cursor]);
    let bytes: Vec<u8> = text
        .lines()
        .filter_map(|line| u8::from_str_radix(line.trim().strip_prefix('<')?.strip_suffix('>')?, 16).ok())
        .collect();
    bytes.strip_suffix(b"\x01\x02").unwrap_or_else(|| panic!("{text}")).to_vec()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn keys_by_their_names() {
    let (world, pane) = program(RAW, &[]);
    for (keys, bytes) in [
        (&["Enter"][..], "\r"),
        (&["C-c"], "\x03"),
        (&["Escape"], "\x1b"),
        (&["Tab"], "\t"),
        (&["Space"], " "),
        (&["BSpace"], "\x7f"),
        (&["Up"], "\x1b[A"),
        (&["M-x"], "\x1bx"),
        (&["F1"], "\x1bOP"),
        (&["Home"], "\x1b[1~"),
        (&["PPage"], "\x1b[5~"),
        (&["ls", "Enter"], "ls\r"),
        (&["a b", "c"], "a bc"),
        (&["enter"], "\r"),
    ] {
        let got = arrived(&world, &pane, || {
            world.ok(&[&["send-keys", "-t", &pane], keys].concat());
        });
        assert_eq!(text(&got), bytes, "{keys:?}");
    }
}

#[test]
fn literal_text_is_nothing_else() {
    let (world, pane) = program(RAW, &[]);
    for words in [
        "Enter",
        "C-c",
        "-l",
        "-t",
        "--",
        "--json",
        "text;",
        ";",
        "a ; kill-server",
        "#{pid}",
        "#(touch /tmp/x)",
        "$HOME",
        "~",
        "`id`",
        "it's",
        "\"x\"",
        "\\",
        "\\;",
        "{",
        "}",
        "a\nb",
        "a\r\nb\n",
        "\t",
        "äöü 漢字 🎉",
        "%H %d %%",
        "#",
        "!!",
        "  two  ",
        "\u{1b}[A",
    ] {
        let got = arrived(&world, &pane, || {
            world.ok(&["send-keys", "-l", "-t", &pane, "--", words]);
        });
        assert_eq!(text(&got), words, "{words:?}");
    }
}

#[test]
fn words_that_are_no_keys_are_typed_as_they_are() {
    let (world, pane) = program(RAW, &[]);
    for words in
        [&["echo #{pid};"][..], &["a;"], &[";"], &["-x"], &["-t", "-l"], &["$HOME ~ `id`"], &["é"], &["Enterprise"]]
    {
        let got = arrived(&world, &pane, || {
            world.ok(&[&["send-keys", "-t", &pane, "--"], words].concat());
        });
        assert_eq!(text(&got), words.concat(), "{words:?}");
    }
}

#[test]
fn any_bytes_in_hexadecimal_and_on_stdin() {
    let (world, pane) = program(RAW, &[]);
    let all: Vec<u8> = (3..=255).chain([0, 0, 7]).collect();
    let hex: Vec<String> = all.iter().map(|byte| format!("{byte:02x}")).collect();
    let got = arrived(&world, &pane, || {
        let words: Vec<&str> = hex.iter().map(String::as_str).collect();
        world.ok(&[&["send-keys", "-t", &pane, "-H"], words.as_slice()].concat());
    });
    assert_eq!(got, all);
    let got = arrived(&world, &pane, || {
        let answer = world.muxtap_with_stdin(&["send-keys", "-t", &pane, "-l", "-"], &all);
        assert_eq!(answer.status, 0, "{answer:?}");
    });
    assert_eq!(got, all);
    world.error("INVALID_ARGUMENT", &["send-keys", "-t", &pane, "-H", "6"]);
    world.error("INVALID_ARGUMENT", &["send-keys", "-t", &pane, "-H", "zz"]);
}

#[test]
fn large_text_is_whole_and_in_order() {
    let (world, pane) = program(RAW, &[]);
    // Above 16 KiB the input is pasted from a buffer, above 256 KiB from several.
    for size in [5_000, 20_000, 60_000] {
        let sent: Vec<u8> = (0..size).map(|n| b"abcdefghijklmnopqrstuvwxyz;'\"\\\n#"[n % 32]).collect();
        let answer = |paste: &str| {
            let answer = world.muxtap_with_stdin(&["send-keys", "-t", &pane, paste, "-"], &sent);
            assert_eq!(answer.status, 0, "{answer:?}");
        };
        let got = arrived(&world, &pane, || answer("-l"));
        assert!(got == sent, "{size}: {} arrived", got.len());
    }
}

#[test]
fn a_paste_is_bracketed_where_the_program_asked_for_it() {
    let (world, pane) = program(RAW, &["paste"]);
    let paste = |text: &str| {
        arrived(&world, &pane, || {
            world.ok(&["send-keys", "-t", &pane, "--paste", "--", text]);
        })
    };
    assert_eq!(text(&paste("a;b\nc")), "\x1b[200~a;b\rc\x1b[201~");
    assert_eq!(text(&paste("-x #{pid} $HOME ü")), "\x1b[200~-x #{pid} $HOME ü\x1b[201~");
    let (world, pane) = program(RAW, &[]);
    let got = arrived(&world, &pane, || {
        world.ok(&["send-keys", "-t", &pane, "--paste", "--", "a;b\nc"]);
    });
    assert_eq!(text(&got), "a;b\rc");
    assert_eq!(world.tmux(&["list-buffers"]), "", "no buffer is left");
}

#[test]
fn a_burst_with_its_enter_is_swallowed_and_a_submit_is_not() {
    let (world, pane) = program(BURSTS, &[]);
    world.ok(&["send-keys", "-t", &pane, "swallowed", "Enter"]);
    let answer = world.muxtap(&["wait-for", "-t", &pane, "-p", "submitted", "-T", "0.5"]);
    assert_eq!(answer.status, 124, "the program does not do what this test is about: {answer:?}");
    world.ok(&["send-keys", "-t", &pane, "--submit"]);
    world.ok(&["wait-for", "-t", &pane, "-p", "submitted: swallowed<CR>"]);
    for n in 0..3 {
        let answer = world.json(&["send-keys", "-t", &pane, "--submit", "--", &format!("question {n}?")]);
        assert_eq!(answer["submit"], json!({ "echoed": true, "changed": true }), "{answer}");
        world.ok(&["wait-for", "-t", &pane, "-p", &format!(r"submitted: question {n}\?")]);
    }
    let answer = world.json(&["send-keys", "-t", &pane, "--paste", "--submit", "--", "two\nlines"]);
    assert_eq!(answer["submit"]["changed"], true);
    world.ok(&["wait-for", "-t", &pane, "-p", "submitted: two<CR>lines"]);
}

/// Several lines are one message to a program that requested paste marks, on every interface, and
/// are typed as ever to any other program.
#[test]
fn submitted_lines_are_one_message_where_the_program_asked_for_marks() {
    let (world, pane) = program(RAW, &["paste"]);
    let over_http = |body: &serde_json::Value| {
        let path = format!("/v1/panes/{}/input{}", pane.replace('%', "%25"), world.query());
        let answer = world.http("POST", &path, Some(body));
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    let over_cli = |words: &[&str]| drop(world.ok(&[&["send-keys", "-t", &pane, "--submit"], words].concat()));
    let mut agent = Client::new(&world);
    let message = "\x1b[200~one;\ntwo #{pid}\x1b[201~\r";
    let lines = "one;\ntwo #{pid}";
    let (text_of, keys_of) = (json!({"text": lines, "submit": true}), json!({"keys": [lines], "submit": true}));
    assert_eq!(text(&arrived(&world, &pane, || over_cli(&["-l", "--", lines]))), message);
    assert_eq!(text(&arrived(&world, &pane, || over_cli(&["--", lines]))), message);
    assert_eq!(
        text(&arrived(&world, &pane, || over_cli(&["--", "C-u", lines, "Tab"]))),
        "\x15\x1b[200~one;\ntwo #{pid}\x1b[201~\t\r"
    );
    assert_eq!(text(&arrived(&world, &pane, || over_http(&text_of))), message);
    assert_eq!(text(&arrived(&world, &pane, || over_http(&keys_of))), message);
    let sent = arrived(&world, &pane, || {
        agent.call("send_keys", &json!({"target": pane, "text": lines, "submit": true}));
    });
    assert_eq!(text(&sent), message);
    // Text that would end its own paste is typed in no part.
    for args in [&["--submit", "-l"][..], &["--paste"]] {
        let hostile = "one\ntwo\x1b[201~\nrm -rf x";
        let message = world.error("INVALID_ARGUMENT", &[&["send-keys", "-t", &pane], args, &["--", hostile]].concat());
        assert!(message.contains("201 ~"), "{message}");
    }
    // One line is typed, and so are bytes.
    assert_eq!(text(&arrived(&world, &pane, || over_cli(&["-l", "one"]))), "one\r");
    assert_eq!(text(&arrived(&world, &pane, || over_cli(&["-H", "61", "0a", "62"]))), "a\nb\r");
    // tmux omits the marks in a mode.
    world.tmux(&["copy-mode", "-t", &pane]);
    assert_eq!(text(&arrived(&world, &pane, || over_cli(&["-l", "--", lines]))), message);
    assert_eq!(world.tmux(&["display-message", "-p", "-t", &pane, "#{pane_in_mode}"]), "1");
    assert_eq!(world.tmux(&["list-buffers"]), "", "no buffer is left");

    let (world, pane) = program(RAW, &[]);
    for mode in [false, true] {
        if mode {
            world.tmux(&["copy-mode", "-t", &pane]);
        }
        let got = arrived(&world, &pane, || {
            world.ok(&["send-keys", "-t", &pane, "--submit", "-l", "--", "a;\x1b\nb\r"]);
        });
        assert_eq!(text(&got), "a;\x1b\nb\r\r");
    }
}

#[test]
fn a_submit_that_nothing_answers_says_so() {
    let world = World::new();
    let pane = world.ok(&["new-session", "--", "sh", "-c", "stty -echo; echo ready; exec sleep 100"]);
    world.await_output(&pane, "(?m)^ready$");
    let answer = world.json(&["send-keys", "-t", &pane, "--submit", "--", "anybody?"]);
    assert_eq!(answer["submit"], json!({ "echoed": false, "changed": false }), "{answer}");
    let answer = world.muxtap(&["send-keys", "-t", &pane, "--submit", "--", "anybody?"]);
    assert_eq!(answer.status, 0);
    assert!(answer.stderr.contains("printed nothing"), "{answer:?}");
}

#[test]
fn the_cursor_is_from_before_the_input() {
    let world = World::new();
    let pane = world.ok(&["new-session", "--", "cat"]);
    world.ok(&["send-keys", "-t", &pane, "earlier", "Enter"]);
    world.await_output(&pane, "earlier\nearlier\n");
    let cursor = world.json(&["send-keys", "-t", &pane, "later", "Enter"])["cursor"].as_str().unwrap().to_owned();
    world.ok(&["wait-for", "-t", &pane, "-p", "later\nlater\n", "--since", &cursor]);
    assert_eq!(world.ok(&["read", "-t", &pane, "--since", &cursor]), "later\nlater");
    assert_eq!(world.ok(&["read", "-t", &pane]), "later\nlater", "the default begins at the last input");
}

#[test]
fn what_cannot_be_sent() {
    let world = World::new();
    let pane = world.ok(&["new-session", "--", "cat"]);
    world.error("NOT_FOUND", &["send-keys", "-t", "%99", "x"]);
    assert_eq!(world.muxtap(&["send-keys", "-t", &pane]).status, 2);
    let path = format!("/v1/panes/{}/input{}", pane.replace('%', "%25"), world.query());
    for body in
        [json!({}), json!({ "keys": ["a"], "text": "b" }), json!({ "hex": "61", "paste": true }), json!({ "txt": "a" })]
    {
        let answer = world.http("POST", &path, Some(&body));
        assert_eq!((answer.status, &answer.json()["code"]), (400, &json!("INVALID_ARGUMENT")), "{body}");
    }
    let huge = vec![b'x'; 17 * 1024 * 1024];
    let answer = world.muxtap_with_stdin(&["--json", "send-keys", "-t", &pane, "-l", "-"], &huge);
    assert_eq!(answer.error()["code"], "RESOURCE_LIMIT", "{}", answer.stderr);
}

#[test]
fn inputs_of_many_callers_do_not_mix() {
    let world = World::new();
    // With an echo the terminal itself would mix typed text with cat's output.
    let pane = world.ok(&["new-session", "--", "stty -echo; echo ready; exec cat"]);
    world.await_output(&pane, "^ready");
    let senders: Vec<_> = (0..10)
        .map(|n| {
            let word = char::from(b'a' + n).to_string().repeat(500);
            world.spawn(&["send-keys", "-t", &pane, &word, "Enter"])
        })
        .collect();
    for sender in senders {
        assert_eq!(sender.finish().status, 0);
    }
    for n in 0..10 {
        world.await_output(&pane, &format!("(?m)^{}{{500}}$", char::from(b'a' + n)));
    }
}
