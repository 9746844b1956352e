//! Every field and every limit, in both modes: an invalid request is rejected before anything is
//! done.

use std::fmt::Write as _;

use crate::common::World;

use super::{Bridge, ORIGIN, error};

const SESSION: &str = "Invalid session name. Use 1-64 chars: letters, numbers, ., _, :, -";
const LINES: &str = "lines must be an integer.";
const LINES_RANGE: &str = "lines must be between 1 and 5000.";
const TIMEOUT: &str = "timeout_ms must be an integer.";
const TIMEOUT_RANGE: &str = "timeout_ms must be between 100 and 120000.";
const KEYS: &str = "keys must be an array of strings.";
const KEYS_STRINGS: &str = "keys must contain only strings.";
const PATTERN: &str = "wait_for must be a valid regular expression.";

/// Bodies, each with its error.
const BODIES: &[(&str, &str)] = &[
    ("", "Missing JSON request body."),
    (" \r\n\t", "Missing JSON request body."),
    ("\u{feff}", "Missing JSON request body."),
    ("\u{a0}\u{2028}\u{3000}\u{b}\u{c}", "Missing JSON request body."),
    ("\u{85}", "Invalid JSON body."),
    ("\u{200b}", "Invalid JSON body."),
    ("x", "Invalid JSON body."),
    ("{", "Invalid JSON body."),
    ("}", "Invalid JSON body."),
    ("{}{}", "Invalid JSON body."),
    ("{} x", "Invalid JSON body."),
    ("{action:\"list_sessions\"}", "Invalid JSON body."),
    ("{'action':'list_sessions'}", "Invalid JSON body."),
    ("{\"action\":\"list_sessions\",}", "Invalid JSON body."),
    ("{\"action\" \"list_sessions\"}", "Invalid JSON body."),
    ("{\"action\":\"list_\nsessions\"}", "Invalid JSON body."),
    ("{\"action\":\"list_sessions\\x\"}", "Invalid JSON body."),
    ("{\"action\":\"\\u12\"}", "Invalid JSON body."),
    ("{\"action\":undefined}", "Invalid JSON body."),
    ("{\"lines\":NaN}", "Invalid JSON body."),
    ("{\"lines\":Infinity}", "Invalid JSON body."),
    ("{\"lines\":01}", "Invalid JSON body."),
    ("{\"lines\":1.}", "Invalid JSON body."),
    ("{\"lines\":.5}", "Invalid JSON body."),
    ("{\"lines\":+1}", "Invalid JSON body."),
    ("{\"lines\":0x10}", "Invalid JSON body."),
    ("{/* c */}", "Invalid JSON body."),
    ("\u{feff}\u{feff}{", "Invalid JSON body."),
    ("action=list_sessions", "Invalid JSON body."),
    ("[]", "Request body must be a JSON object."),
    ("[{\"action\":\"list_sessions\"}]", "Request body must be a JSON object."),
    ("null", "Request body must be a JSON object."),
    ("true", "Request body must be a JSON object."),
    ("0", "Request body must be a JSON object."),
    ("1e999", "Request body must be a JSON object."),
    ("\"list_sessions\"", "Request body must be a JSON object."),
    ("\u{feff}[]", "Request body must be a JSON object."),
    ("{}", "Invalid action."),
];

/// Values of `action`.
const ACTIONS: &[&str] = &[
    "null",
    "true",
    "1",
    "[]",
    "{}",
    "[\"list_sessions\"]",
    "\"\"",
    "\" \"",
    "\"list\"",
    "\"List_Sessions\"",
    "\"LIST_SESSIONS\"",
    "\"list-sessions\"",
    "\"list_sessions\\u0000\"",
    "\"list_sessions\\u200b\"",
    "\"constructor\"",
    "\"__proto__\"",
    "\"toString\"",
    "\"kill_server\"",
];

/// Fields with a value, each with its error for every action.
const FIELDS: &[(&str, &str)] = &[
    // session
    (r#""session":"-a""#, SESSION),
    (r#""session":".a""#, SESSION),
    (r#""session":":a""#, SESSION),
    (r#""session":"_a""#, SESSION),
    (r#""session":"a b""#, SESSION),
    (r#""session":"a/b""#, SESSION),
    (r#""session":"a\nb""#, SESSION),
    (r#""session":"a;b""#, SESSION),
    (r##""session":"#{pid}""##, SESSION),
    (r##""session":"a#b""##, SESSION),
    (r#""session":"$0""#, SESSION),
    (r#""session":"@1""#, SESSION),
    (r#""session":"%1""#, SESSION),
    (r#""session":"=a""#, SESSION),
    (r#""session":"é""#, SESSION),
    (r#""session":"ａ""#, SESSION),
    (r#""session":"a\u0000""#, SESSION),
    (r#""session":"a\ud800""#, SESSION),
    (r#""session":"a*""#, SESSION),
    (r#""session":"{last}""#, SESSION),
    (r#""session":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa""#, SESSION),
    // cwd
    (r#""cwd":"tmp""#, "cwd must be an absolute path."),
    (r#""cwd":"./tmp""#, "cwd must be an absolute path."),
    (r#""cwd":"~""#, "cwd must be an absolute path."),
    (r#""cwd":"C:\\Users""#, "cwd must be an absolute path."),
    (r#""cwd":"\\tmp""#, "cwd must be an absolute path."),
    (r#""cwd":"$HOME""#, "cwd must be an absolute path."),
    (r#""cwd":"/nonexistent""#, "cwd does not exist: /nonexistent"),
    (r#""cwd":" /nonexistent/a b ""#, "cwd does not exist: /nonexistent/a b"),
    (r#""cwd":"/tmp/\u0000""#, "cwd does not exist: /tmp/\0"),
    (r#""cwd":"/nonexistent/\"é\\""#, "cwd does not exist: /nonexistent/\"é\\"),
    (r#""cwd":"/etc/passwd""#, "cwd is not a directory: /etc/passwd"),
    (r#""cwd":"/dev/null""#, "cwd is not a directory: /dev/null"),
    (r#""cwd":"/etc/passwd/x""#, "cwd does not exist: /etc/passwd/x"),
    // keys
    (r#""keys":null"#, KEYS),
    (r#""keys":"Enter""#, KEYS),
    (r#""keys":"""#, KEYS),
    (r#""keys":{}"#, KEYS),
    (r#""keys":{"0":"Enter","length":1}"#, KEYS),
    (r#""keys":1"#, KEYS),
    (r#""keys":true"#, KEYS),
    (r#""keys":[1]"#, KEYS_STRINGS),
    (r#""keys":[null]"#, KEYS_STRINGS),
    (r#""keys":[["Enter"]]"#, KEYS_STRINGS),
    (r#""keys":["Enter",{}]"#, KEYS_STRINGS),
    (r#""keys":["",false]"#, KEYS_STRINGS),
    (r#""keys":[1,"a b"]"#, KEYS_STRINGS),
    (r#""keys":["a b",1]"#, "Invalid key token: a b"),
    (r#""keys":["Enter","C c"]"#, "Invalid key token: C c"),
    (r#""keys":["é"]"#, "Invalid key token: é"),
    (r#""keys":["a;"]"#, "Invalid key token: a;"),
    (r#""keys":[" a\tb "]"#, "Invalid key token: a\tb"),
    (r#""keys":["\""]"#, "Invalid key token: \""),
    (r#""keys":["^C"]"#, "Invalid key token: ^C"),
    (r#""keys":["<Enter>"]"#, "Invalid key token: <Enter>"),
    (r##""keys":["#{pid}"]"##, "Invalid key token: #{pid}"),
    (r#""keys":["\u0003"]"#, "Invalid key token: \u{3}"),
    (
        r#""keys":["kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"]"#,
        "Invalid key token: kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
    ),
    // lines
    (r#""lines":null"#, LINES),
    (r#""lines":"10""#, LINES),
    (r#""lines":"""#, LINES),
    (r#""lines":1.5"#, LINES),
    (r#""lines":0.1"#, LINES),
    (r#""lines":1e-1"#, LINES),
    (r#""lines":1e999"#, LINES),
    (r#""lines":-1e999"#, LINES),
    (r#""lines":true"#, LINES),
    (r#""lines":[10]"#, LINES),
    (r#""lines":{}"#, LINES),
    (r#""lines":0"#, LINES_RANGE),
    (r#""lines":-0"#, LINES_RANGE),
    (r#""lines":-1"#, LINES_RANGE),
    (r#""lines":0.0"#, LINES_RANGE),
    (r#""lines":5001"#, LINES_RANGE),
    (r#""lines":1e5"#, LINES_RANGE),
    (r#""lines":99999999999999999999"#, LINES_RANGE),
    (r#""lines":1e300"#, LINES_RANGE),
    // wait_for
    (r#""wait_for":"(""#, PATTERN),
    (r#""wait_for":")""#, PATTERN),
    (r#""wait_for":"[""#, PATTERN),
    (r#""wait_for":"*""#, PATTERN),
    (r#""wait_for":"a**""#, PATTERN),
    (r#""wait_for":"\\""#, PATTERN),
    (r#""wait_for":"(?i)done""#, PATTERN),
    (r#""wait_for":"(?P<n>a)""#, PATTERN),
    (r#""wait_for":"(?<n>a)(?<n>b)""#, PATTERN),
    (r#""wait_for":"(?<1>a)""#, PATTERN),
    (r#""wait_for":"(?<n>a)\\k<m>""#, PATTERN),
    (r#""wait_for":"a{2,1}""#, PATTERN),
    (r#""wait_for":"[z-a]""#, PATTERN),
    (r#""wait_for":"(?<=a)*""#, PATTERN),
    (r#""wait_for":"\\b+""#, PATTERN),
    (r#""wait_for":"^*""#, PATTERN),
    (r#""wait_for":"(?>a)""#, PATTERN),
    (r#""wait_for":"a++""#, PATTERN),
    (r#""wait_for":" ( ""#, PATTERN),
    // timeout_ms
    (r#""timeout_ms":null"#, TIMEOUT),
    (r#""timeout_ms":"5000""#, TIMEOUT),
    (r#""timeout_ms":100.5"#, TIMEOUT),
    (r#""timeout_ms":1e999"#, TIMEOUT),
    (r#""timeout_ms":[]"#, TIMEOUT),
    (r#""timeout_ms":false"#, TIMEOUT),
    (r#""timeout_ms":99"#, TIMEOUT_RANGE),
    (r#""timeout_ms":0"#, TIMEOUT_RANGE),
    (r#""timeout_ms":-100"#, TIMEOUT_RANGE),
    (r#""timeout_ms":120001"#, TIMEOUT_RANGE),
    (r#""timeout_ms":1e6"#, TIMEOUT_RANGE),
];

/// Fields that have no effect on a request that lists sessions.
const HARMLESS: &[&str] = &[
    r#""session":null"#,
    r#""session":1"#,
    r#""session":[]"#,
    r#""session":{}"#,
    r#""session":true"#,
    r#""session":"""#,
    r#""session":" \t\ufeff""#,
    r#""session":" a ""#,
    r#""session":"0""#,
    r#""session":"a.b:c_d-e""#,
    r#""session":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa""#,
    r#""session":"\u00a0a\u2003""#,
    r#""cwd":null"#,
    r#""cwd":7"#,
    r#""cwd":"""#,
    r#""cwd":" ""#,
    r#""cwd":"/tmp""#,
    r#""cwd":" /tmp/ ""#,
    r#""cwd":"/""#,
    r#""cwd":"/tmp/../tmp""#,
    r#""text":null"#,
    r#""text":1"#,
    r#""text":["x"]"#,
    r#""text":"""#,
    r#""keys":[]"#,
    r#""keys":[""," ","\t"]"#,
    r#""keys":["Enter","C-c","M-x","F12","BSpace"]"#,
    r#""keys":["-l","-","--","a:b","a+b","a.b","_"]"#,
    r#""keys":[" Tab "]"#,
    r#""keys":["kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"]"#,
    r#""enter":1"#,
    r#""enter":"true""#,
    r#""enter":null"#,
    r#""enter":false"#,
    r#""lines":1"#,
    r#""lines":5000"#,
    r#""lines":10.0"#,
    r#""lines":1e2"#,
    r#""lines":5E3"#,
    r#""lines":0.5e1"#,
    r#""lines":1.0000000000000000001"#,
    r#""wait_for":null"#,
    r#""wait_for":1"#,
    r#""wait_for":"""#,
    r#""wait_for":"  ""#,
    r#""wait_for":"DONE""#,
    r#""wait_for":"(?<=a)b(?!c)""#,
    r#""wait_for":"(?<n>a)\\k<n>\\1""#,
    r#""wait_for":"\\_\\-\\z""#,
    r#""wait_for":"]}{""#,
    r#""wait_for":"a{,2}""#,
    r#""wait_for":"\\8\\c\\x\\u""#,
    r#""wait_for":"[]""#,
    r#""wait_for":"(a+)+$""#,
    r#""wait_for":"(?=a)*""#,
    r#""wait_for":"\\k<n>""#,
    r#""wait_for":"\\u{41}\\p{L}""#,
    r#""timeout_ms":100"#,
    r#""timeout_ms":120000"#,
    r#""timeout_ms":1.2e5"#,
    r#""join_wrapped":"yes""#,
    r#""join_wrapped":null"#,
    r#""join_wrapped":true"#,
    r#""wait_from":"send""#,
    r#""wait_from":7"#,
    r#""metadata":{"a":[1,2,{"b":null}]}"#,
    r#""__proto__":{"action":"kill_session"}"#,
    r#""constructor":1"#,
    r#""Action":"kill_session""#,
    r#""":1"#,
    r#""\ud800":1"#,
    r#""lines":7,"lines":8"#,
    r#""lines":"no","lines":8"#,
    r#""session":"-","session":null"#,
    r#""action":"no","action":"list_sessions""#,
    r#""\u0061ction":"list_sessions""#,
];

/// Pairs of invalid fields, in both orders: the response is for the first one in the contract's
/// order.
const ORDER: &[(&str, &str)] = &[
    (r#""session":"-""#, SESSION),
    (r#""cwd":"x""#, "cwd must be an absolute path."),
    (r#""text":"LONG""#, "text is too long (max 8000 characters)."),
    (r#""keys":null"#, KEYS),
    (r#""lines":0"#, LINES_RANGE),
    (r#""wait_for":"(""#, PATTERN),
    (r#""timeout_ms":1"#, TIMEOUT_RANGE),
];

/// Valid requests without a field that their action needs.
const NEEDS: &[(&str, &str)] = &[
    (r#""action":"send_keys""#, "session is required for send_keys"),
    (r#""action":"capture_pane""#, "session is required for capture_pane"),
    (r#""action":"send_and_capture""#, "session is required for send_and_capture"),
    (r#""action":"kill_session""#, "session is required for kill_session"),
    (r#""action":"send_keys","session":" ","text":"x""#, "session is required for send_keys"),
    (r#""action":"send_keys","session":7,"enter":true"#, "session is required for send_keys"),
    (r#""action":"send_keys","session":"a""#, "send_keys requires at least one of: text, keys, or enter=true."),
    (
        r#""action":"send_keys","session":"a","text":" ","keys":[""],"enter":false"#,
        "send_keys requires at least one of: text, keys, or enter=true.",
    ),
    (
        r#""action":"send_keys","session":"a","enter":"true""#,
        "send_keys requires at least one of: text, keys, or enter=true.",
    ),
    (
        r#""action":"send_and_capture","session":"a","wait_for":"x""#,
        "send_and_capture requires at least one of: text, keys, or enter=true.",
    ),
    (
        r#""action":"send_and_capture","session":"a","enter":1"#,
        "send_and_capture requires at least one of: text, keys, or enter=true.",
    ),
];

fn holds(bridge: &Bridge<'_>) {
    let mut client = bridge.client();
    let mut cases = 0;
    let mut refuses = |body: &str, message: &str| {
        let reply = client.post(body.as_bytes());
        let shown: String = body.chars().take(200).collect();
        assert_eq!((reply.status, &reply.body), (400, &error(message)), "{shown}");
        reply.is_for(ORIGIN);
        cases += 1;
    };
    for (body, message) in BODIES {
        refuses(body, message);
    }
    for value in ACTIONS {
        refuses(&format!("{{\"action\":{value}}}"), "Invalid action.");
    }
    for action in ["list_sessions", "kill_session"] {
        for (field, message) in FIELDS {
            refuses(&format!("{{\"action\":\"{action}\",{field}}}"), message);
        }
    }
    for (one, (first, message)) in ORDER.iter().enumerate() {
        for (second, _) in &ORDER[one + 1..] {
            for pair in [[first, second], [second, first]] {
                let fields = pair.map(|field| field.replace("LONG", &"x".repeat(8001))).join(",");
                refuses(&format!("{{{fields},\"action\":\"create_session\"}}"), message);
            }
        }
        let first = first.replace("LONG", &"x".repeat(8001));
        refuses(&format!("{{{first},\"action\":\"no\"}}"), "Invalid action.");
        refuses(&format!("{{{first},\"action\":\"send_keys\"}}"), message);
    }
    for (fields, message) in NEEDS {
        refuses(&format!("{{{fields}}}"), message);
    }
    // Lengths are in UTF-16 units, after trimming.
    for (text, ok) in [
        ("x".repeat(8000), true),
        ("x".repeat(8001), false),
        ("é".repeat(8000), true),
        ("😀".repeat(4000), true),
        ("😀".repeat(4000) + "x", false),
        (format!("  {}\\n ", "x".repeat(8000)), true),
    ] {
        let body = format!("{{\"action\":\"list_sessions\",\"text\":\"{text}\"}}");
        if ok {
            assert_eq!(bridge.client().post(body.as_bytes()).status, 200);
        } else {
            refuses(&body, "text is too long (max 8000 characters).");
        }
    }
    for (pattern, ok) in
        [("a".repeat(256), true), ("a".repeat(257), false), ("😀".repeat(128), true), (" ".repeat(300) + "a", true)]
    {
        let body = format!("{{\"action\":\"list_sessions\",\"wait_for\":\"{pattern}\"}}");
        if ok {
            assert_eq!(bridge.client().post(body.as_bytes()).status, 200);
        } else {
            refuses(&body, "wait_for is too long (max 256 characters).");
        }
    }
    // A pattern that is too long and invalid is reported as too long.
    refuses(
        &format!("{{\"action\":\"list_sessions\",\"wait_for\":\"({}\"}}", "a".repeat(256)),
        "wait_for is too long (max 256 characters).",
    );
    assert!(cases > 300, "{cases}");

    let empty = "{\"ok\":true,\"action\":\"list_sessions\",\"sessions\":[]}";
    for field in HARMLESS {
        let reply = client.post(format!("\u{feff} {{\"action\":\" list_sessions\\n\",{field}}}\r\n").as_bytes());
        assert_eq!((reply.status, reply.body.as_str()), (200, empty), "{field}");
        reply.is_for(ORIGIN);
    }
}

#[test]
fn what_is_wrong_is_said_in_stub_mode() {
    let world = World::new();
    holds(&Bridge::stub(&world));
}

#[test]
fn what_is_wrong_is_said_in_tmux_mode_and_tmux_is_not_started_for_it() {
    let world = World::new();
    let bridge = Bridge::new(&world);
    holds(&bridge);
    assert!(!world.socket().exists());
}

/// Unpaired surrogates are returned as JavaScript writes them.
#[test]
fn what_is_no_unicode_text_is_told_as_it_was_given() {
    let world = World::new();
    let bridge = Bridge::stub(&world);
    let mut client = bridge.client();
    let mut refused = |body: &str| client.post(body.as_bytes()).body;
    assert_eq!(
        refused(r#"{"action":"list_sessions","keys":["\ud83d"]}"#),
        r#"{"ok":false,"error":"Invalid key token: \ud83d"}"#
    );
    assert_eq!(
        refused(r#"{"action":"list_sessions","cwd":"/x\udE00\ud83d\ude00\u001f\u007f"}"#),
        "{\"ok\":false,\"error\":\"cwd does not exist: /x\\ude00😀\\u001f\u{7f}\"}"
    );
}

#[test]
fn a_body_may_have_at_most_262144_bytes() {
    let world = World::new();
    let bridge = Bridge::stub(&world);
    let body = |length: usize| {
        let mut body = String::from("{\"action\":\"list_sessions\",\"x\":\"");
        body.push_str(&"x".repeat(length - body.len() - 2));
        body + "\"}"
    };
    let mut client = bridge.client();
    assert_eq!(client.post(body(262_144).as_bytes()).status, 200);
    for length in [262_145, 300_000, 3_000_000] {
        let reply = client.post(body(length).as_bytes());
        assert_eq!((reply.status, &reply.body), (413, &error("Request body too large (max 262144 bytes).")));
        assert_eq!(reply.header("access-control-allow-origin"), Some(ORIGIN));
    }
    // Blank or not JSON: the size is checked first.
    assert_eq!(client.post(&vec![b' '; 262_145]).status, 413);
    // The connection remains usable.
    assert_eq!(client.post(body(100).as_bytes()).status, 200);
    // Without a length the bytes are counted as they arrive.
    let mut chunked =
        String::from("POST /v1/tmux HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nOrigin: ");
    write!(chunked, "{ORIGIN}\r\n\r\n").unwrap();
    for _ in 0..5 {
        write!(chunked, "10000\r\n{}\r\n", " ".repeat(0x10000)).unwrap();
    }
    chunked.push_str("0\r\n\r\n");
    client.write(chunked.as_bytes());
    assert_eq!(client.receive().unwrap().status, 413);
    assert_eq!(client.post(body(100).as_bytes()).status, 200);
}
