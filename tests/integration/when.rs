//! Rules, with real panes, programs and HTTP servers.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::mpsc,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    common::{LIMIT, ProcessEnd, World, answering, eventually, type_line},
    http_port::{asked, serving, token},
};

/// Writes the world's configuration.
fn configure(world: &World, text: &str) {
    let folder = world.path("home/muxtap");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), text).unwrap();
}

/// Waits until the world's server is watched for the rules in effect.
fn await_rules(world: &World) {
    world.ok(&["list-panes"]);
    let socket = world.socket().display().to_string();
    eventually("the server is watched", || {
        let list = world.json(&["when", "list"]);
        list["servers"].as_array().unwrap().iter().any(|server| *server == *socket)
    });
}

fn firings(world: &World) -> Vec<Value> {
    world.json(&["when", "log"])["firings"].as_array().unwrap().clone()
}

/// Waits until a rule has this many firings that have ended; returns them.
fn await_ended(world: &World, rule: &str, count: usize) -> Vec<Value> {
    let ended = || -> Vec<Value> {
        let all = firings(world).into_iter();
        all.filter(|firing| firing["rule"] == rule && firing["state"] != "running").collect()
    };
    eventually(&format!("{rule} has fired"), || ended().len() >= count);
    ended()
}

fn count(world: &World, rule: &str, field: &str) -> u64 {
    let list = world.json(&["when", "list"]);
    let rules = list["rules"].as_array().unwrap();
    rules.iter().find(|info| info["rule"]["name"] == rule).unwrap()[field].as_u64().unwrap()
}

/// WN3: a pane prints what a shell, a template and a list of arguments would obey.
#[test]
fn a_program_gets_the_facts_as_variables_and_a_panes_text_is_never_code() {
    let world = World::with_server();
    let (out, touched) = (world.path("out"), world.path("touched"));
    let script = format!(
        "printf '%s\\n' \"$MUXTAP_WHEN_TEXT\" \"$MUXTAP_WHEN_PANE\" \"$MUXTAP_WHEN_RULE\" \
         \"$1\" \"$PWD\" > {0}.new; mv {0}.new {0}",
        out.display()
    );
    configure(
        &world,
        &format!("[[when]]\nname = 'note'\noutput = '^got bad'\nrun = ['sh', '-c', {script:?}, 'sh', '{{text}}']\n"),
    );
    let pane = answering(&world, &["new-window"]);
    await_rules(&world);
    let nasty = format!("bad $(touch {0}) `touch {0}` '\"; touch {0}; {{text}} %s", touched.display());
    type_line(&world, &pane, &nasty);
    let ended = await_ended(&world, "note", 1);
    assert_eq!((&ended[0]["state"], &ended[0]["results"]), (&json!("done"), &json!(["run: status 0"])));
    let said = fs::read_to_string(&out).unwrap();
    let home = world.path("home").canonicalize().unwrap();
    let expected = format!("got {nasty}\n{pane}\nnote\n{{text}}\n{}\n", home.display());
    assert_eq!(said, expected);
    assert!(!touched.exists());
    let journal = world.path("m.sock.when.jsonl");
    assert_eq!(fs::metadata(journal).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Each condition fires, in the panes that the rule names and in no others.
#[test]
fn each_condition_fires() {
    let world = World::with_server();
    let rule = |name: &str, rest: &str| format!("[[when]]\nname = '{name}'\nrun = ['true']\n{rest}\n");
    let rules = [
        rule("screen", "screen = '^on screen'"),
        rule("quiet", "quiet = '200ms'\npanes = ['main:answers']"),
        rule("command", "command = true\nstatus = 3"),
        rule("progress", "progress = 'failed'"),
        rule("notification", "notification = 'tea'"),
        rule("ended", "ended = true"),
        rule("failed", "ended = true\nstatus = '!0'"),
        rule("elsewhere", "output = '.'\npanes = ['other:*']"),
        rule("host", "output = '.'\nhosts = ['nowhere*']"),
    ];
    configure(&world, &rules.concat());
    let pane = answering(&world, &["new-window", "-n", "answers"]);
    await_rules(&world);
    type_line(&world, &pane, "on");
    await_ended(&world, "quiet", 1);
    let print = |text: &str| format!("printf '{text}'");
    let script = [
        "echo begin; read -r _".into(),
        print(r"\033[2J\033[Hon screen\n"),
        print(r"\033]133;A\007$ \033]133;B\007x\n\033]133;C\007y\n\033]133;D;3\007"),
        print(r"\033]9;4;2;50\007"),
        print(r"\033]9;tea is ready\007"),
        "read -r _; exit 4".into(),
    ];
    let other = world.window(&script.join("; "));
    // Marks that a pane prints before it is followed are not known.
    world.await_output(&other, "^begin");
    type_line(&world, &other, "");
    for name in ["screen", "command", "progress", "notification"] {
        let fired = await_ended(&world, name, 1);
        assert_eq!(fired[0]["pane"], *other, "{fired:?}");
    }
    type_line(&world, &other, "");
    assert_eq!(await_ended(&world, "ended", 1)[0]["pane"], *other);
    // The status is known of panes that muxtap created.
    let own = world.ok(&["new-window", "-t", "main", "--", "sh", "-c", "exit 4"]);
    assert_eq!(await_ended(&world, "failed", 1)[0]["pane"], *own);
    assert_eq!((count(&world, "elsewhere", "fired"), count(&world, "host", "fired")), (0, 0));
}

/// An HTTP server that sends the requests it gets, and answers each by this function.
fn server(answer: impl Fn(&mut TcpStream) + Send + 'static) -> (String, mpsc::Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                    break;
                }
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                head += &line;
            }
            let mut body = vec![0; length];
            if reader.read_exact(&mut body).is_err() || sender.send((head, String::from_utf8(body).unwrap())).is_err() {
                return;
            }
            answer(&mut stream);
        }
    });
    (url, requests)
}

fn ok(stream: &mut TcpStream) {
    let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
}

/// WN4, WN7 and WN8.
#[test]
fn a_request_has_its_facts_and_its_secret_and_bad_servers_are_bounded() {
    let world = World::with_server();
    let (good, requests) = server(ok);
    let (target, followed) = server(ok);
    let (redirects, _first) = server(move |stream| {
        let head = format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {target}/x\r\ncontent-length: 0\r\n\r\n");
        let _ = stream.write_all(head.as_bytes());
    });
    let (floods, _second) = server(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n");
        // Until the client closes.
        while stream.write_all(&[b'x'; 8192]).is_ok() {}
    });
    let (hangs, _third) = server(|stream| {
        let _ = stream.read(&mut [0; 1]);
    });
    let secret = world.path("secret");
    fs::write(&secret, "s3cret\n").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let rule = |name: &str, url: &str, rest: &str| {
        format!("[[when]]\nname='{name}'\noutput='^got go'\n[when.post]\nurl='{url}/h00k?k3y=1'\n{rest}\n")
    };
    let rules = [
        rule(
            "good",
            &good,
            &format!(
                "template={{ text = '{{session}}: {{text}}' }}\n\
                 headers={{ Authorization = {{ file = '{}', prefix = 'Bearer ' }} }}",
                secret.display()
            ),
        ),
        rule("slack", &good, "preset='slack'"),
        rule("redirects", &redirects, ""),
        rule("floods", &floods, ""),
        rule("hangs", &hangs, ""),
        rule("refused", "http://127.0.0.1:1", ""),
    ];
    configure(&world, &rules.concat());
    let pane = answering(&world, &["new-window"]);
    await_rules(&world);
    type_line(&world, &pane, r#"go "}, {"a": <!channel>"#);
    for name in ["good", "slack"] {
        assert_eq!(await_ended(&world, name, 1)[0]["results"], json!(["post: HTTP 204"]));
    }
    let (one, two) = (requests.recv_timeout(LIMIT).unwrap(), requests.recv_timeout(LIMIT).unwrap());
    let (good, slack) = if one.0.contains("authorization") { (one, two) } else { (two, one) };
    assert!(good.0.starts_with("POST /h00k?k3y=1 HTTP/1.1\r\n") && good.0.contains("authorization: Bearer s3cret\r\n"));
    let text = r#"main: got go "}, {"a": <!channel>"#;
    assert_eq!(serde_json::from_str::<Value>(&good.1).unwrap(), json!({ "text": text }));
    assert!(!slack.1.contains('<') && slack.1.contains("&lt;!channel&gt;"));
    for (name, why) in [
        ("redirects", "redirects are not followed"),
        ("floods", "length limit"),
        ("refused", "refused"),
        ("hangs", "no response within 10 s"),
    ] {
        let ended = await_ended(&world, name, 1);
        assert_eq!(ended[0]["state"], "failed");
        assert!(ended[0]["results"][0].as_str().unwrap().contains(why), "{ended:?}");
    }
    assert!(followed.try_recv().is_err(), "a redirect was followed");
    // Neither lists, nor errors, nor the log, nor the journal have a secret.
    let shown = world.json(&["when", "list"]).to_string() + &world.json(&["when", "log"]).to_string();
    let log = fs::read_to_string(world.path("m.sock.log")).unwrap_or_default();
    for text in [shown, log, fs::read_to_string(world.path("m.sock.when.jsonl")).unwrap()] {
        assert!(!["s3cret", "h00k", "k3y"].iter().any(|secret| text.contains(secret)), "{text}");
    }
}

/// WN1 and WN2: a daemon that is killed while a rule's program runs.
#[test]
fn a_firing_of_a_killed_daemon_is_named_and_not_repeated() {
    let world = World::with_server();
    let (runs, fifo) = (world.path("runs"), world.path("fifo"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    let script = format!("echo run >> {}; read -r _ < {}", runs.display(), fifo.display());
    let rules = format!(
        "[[when]]\nname='hangs'\noutput='^got go'\nrun=['sh', '-c', {script:?}]\n\
         [[when]]\nname='done'\noutput='^got done'\nrun=['true']\n"
    );
    configure(&world, &rules);
    let pane = answering(&world, &["new-window"]);
    await_rules(&world);
    type_line(&world, &pane, "done");
    await_ended(&world, "done", 1);
    type_line(&world, &pane, "go");
    eventually("the program runs", || runs.exists());
    assert_eq!(firings(&world).last().unwrap()["state"], "running");
    world.kill_daemon(Signal::KILL);
    await_rules(&world);
    let all = firings(&world);
    let states: Vec<_> =
        all.iter().map(|firing| (firing["rule"].as_str().unwrap(), firing["state"].as_str().unwrap())).collect();
    assert_eq!(states, [("done", "done"), ("hangs", "not-known")]);
    // The next daemon fires anew, for new output only.
    type_line(&world, &pane, "done");
    await_ended(&world, "done", 2);
    assert_eq!(fs::read_to_string(&runs).unwrap(), "run\n");
    // The program that the killed daemon left behind.
    fs::write(&fifo, "\n").unwrap();
}

/// Fires the rule `slow`, whose program waits for the pipe, until this many firings are journalled.
fn fire_slow(world: &World, fires: usize, with: impl FnOnce(&World, &str)) -> std::path::PathBuf {
    let (runs, fifo) = (world.path("runs"), world.path("fifo"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    let script = format!("echo run >> {}; read -r _ < {}", runs.display(), fifo.display());
    let rule = format!("name='slow'\noutput='^got go'\nevery='100ms'\ntimeout='1h'\nrun=['sh', '-c', {script:?}]\n");
    with(world, &rule);
    let pane = answering(world, &["new-window"]);
    await_rules(world);
    // `every` withholds the lines that come too early.
    eventually("it has fired", || {
        type_line(world, &pane, "go");
        firings(world).len() >= fires
    });
    eventually("the program runs", || runs.exists());
    fifo
}

/// WN12: one firing has begun, and the others wait for it.
#[test]
fn a_killed_daemons_waiting_firings_are_named() {
    let world = World::with_server();
    let fifo = fire_slow(&world, 3, |world, rule| configure(world, &format!("[[when]]\n{rule}")));
    let before: Vec<_> = firings(&world).into_iter().map(|firing| firing["id"].clone()).collect();
    world.kill_daemon(Signal::KILL);
    await_rules(&world);
    let after = firings(&world);
    assert!(after.iter().all(|firing| firing["state"] == "not-known"), "{after:?}");
    let named: Vec<_> = after.iter().map(|firing| firing["id"].clone()).collect();
    assert!(named.starts_with(&before), "{before:?}: {named:?}");
    assert_eq!(fs::read_to_string(world.path("runs")).unwrap(), "run\n");
    // The program that the killed daemon left behind.
    fs::write(&fifo, "\n").unwrap();
}

#[test]
fn a_removed_rules_waiting_firings_are_named_and_do_not_begin() {
    let world = World::with_server();
    let fifo = fire_slow(&world, 3, |world, rule| {
        fs::write(world.path("rule.toml"), rule).unwrap();
        world.ok(&["when", "add", world.path("rule.toml").to_str().unwrap()]);
    });
    world.ok(&["when", "remove", "slow"]);
    let all = firings(&world);
    let (first, waiting) = all.split_first().unwrap();
    assert_eq!(first["state"], "running");
    for firing in waiting {
        let results = json!(["not begun: the rule was removed or replaced"]);
        assert_eq!((&firing["state"], &firing["results"]), (&json!("failed"), &results));
    }
    // What has begun also ends.
    fs::write(&fifo, "\n").unwrap();
    eventually("the first one is done", || firings(&world)[0]["state"] == "done");
    assert_eq!(fs::read_to_string(world.path("runs")).unwrap(), "run\n");
}

/// WN5 and WN6, with real shells.
#[test]
fn two_rules_that_type_into_each_others_panes_do_not_loop() {
    let world = World::with_server();
    let rule = |name: &str, says: &str, text: &str, from: &str, into: &str| {
        format!(
            "[[when]]\nname='{name}'\noutput='{says}'\npanes=['main:{from}']\n\
             type=\"{text}\\n\"\ninto='{into}'\nevery='100ms'\n"
        )
    };
    let rules =
        rule("ping", "^got ping", "pong", "one", "main:two") + &rule("pong", "^got pong", "ping", "two", "main:one");
    configure(&world, &rules);
    let (one, two) = (answering(&world, &["new-window", "-n", "one"]), answering(&world, &["new-window", "-n", "two"]));
    await_rules(&world);
    type_line(&world, &one, "ping");
    world.await_output(&two, "^got pong");
    eventually("the answer was seen", || count(&world, "pong", "own") >= 1);
    assert_eq!((count(&world, "ping", "fired"), count(&world, "pong", "fired")), (1, 0));
    assert_eq!(await_ended(&world, "ping", 1)[0]["results"], json!([format!("type: typed into {two}")]));
    // A person types there through muxtap: that is no answer.
    world.ok(&["send-keys", "-t", &two, "pong", "Enter"]);
    eventually("pong has fired", || count(&world, "pong", "fired") == 1);
}

#[test]
fn typing_needs_the_tier_of_input() {
    let mut world = World::with_server();
    world.set("MUXTAP_DENY", "input");
    configure(&world, "[[when]]\nname='types'\noutput='^got go'\ntype='typed by a rule'\n");
    let pane = answering(&world, &["new-window"]);
    await_rules(&world);
    type_line(&world, &pane, "go");
    let ended = await_ended(&world, "types", 1);
    assert!(ended[0]["results"][0].as_str().unwrap().contains("does not allow `input`"), "{ended:?}");
    type_line(&world, &pane, "next");
    world.await_output(&pane, "^got next");
    assert!(!world.read_all(&pane).contains("typed by a rule"));
}

/// A daemon that may not start programs does not start a rule's, and sends nothing.
#[test]
fn running_and_posting_need_the_tier_of_create() {
    let mut world = World::with_server();
    world.set("MUXTAP_DENY", "create");
    let touched = world.path("touched");
    configure(
        &world,
        &format!(
            "[[when]]\nname='acts'\noutput='^got go'\nrun=['touch', '{}']\npost={{ url='http://127.0.0.1:1/' }}\n",
            touched.display()
        ),
    );
    let pane = answering(&world, &["new-window"]);
    await_rules(&world);
    type_line(&world, &pane, "go");
    let ended = await_ended(&world, "acts", 1);
    for place in 0..2 {
        assert!(ended[0]["results"][place].as_str().unwrap().contains("does not allow `create`"), "{ended:?}");
    }
    assert!(!touched.exists());
}

/// What a rule types does not wait until the program of an earlier firing has ended.
#[test]
fn typing_does_not_wait_for_a_program_of_an_earlier_firing() {
    let world = World::with_server();
    let fifo = world.path("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    let script = format!("read -r _ < {}", fifo.display());
    configure(
        &world,
        &format!(
            "[[when]]\nname='both'\noutput='^got go'\ntype=\"typed\\n\"\ninto='main:target'\nevery='100ms'\n\
             timeout='1h'\nrun=['sh', '-c', {script:?}]\n"
        ),
    );
    let pane = answering(&world, &["new-window"]);
    let target = answering(&world, &["new-window", "-n", "target"]);
    await_rules(&world);
    type_line(&world, &pane, "go 1");
    world.await_output(&target, "^got typed");
    // `every` withholds the lines that come too early.
    eventually("it has fired twice", || {
        type_line(&world, &pane, "go 2");
        count(&world, "both", "fired") >= 2
    });
    world.await_output(&target, "(?s)got typed.*?got typed");
    assert!(firings(&world).iter().all(|firing| firing["state"] == "running"));
    world.ok(&["when", "list"]);
    // The program that is running, and the ones behind it, are killed with their daemon.
    world.ok(&["stop"]);
}

#[test]
fn a_wrong_rule_file_names_its_line() {
    let world = World::with_server();
    let file = world.path("rule.toml");
    fs::write(&file, "name='a'\nended=true\nshell='x'\n").unwrap();
    let answer = world.muxtap(&["when", "add", file.to_str().unwrap()]);
    assert!(answer.status != 0 && answer.stderr.contains("rule.toml:3: unknown field `shell`"), "{answer:?}");
}

#[test]
fn the_user_alone_adds_and_removes_rules_and_they_outlive_the_daemon() {
    let world = World::with_server();
    configure(&world, "[[when]]\nname='own'\nended=true\nrun=['true', 's3cret']\n");
    let (daemon, addr) = serving(&world, &["--http", "127.0.0.1:0"]);
    let token = token(&world);
    let rule = json!({ "name": "more", "output": "^got go", "run": ["touch", world.path("touched")] });
    let ask = |method: &str, path: &str, body: Option<&Value>| asked(&addr, &token, method, path, body);
    let refused = ask("POST", "/v1/when", Some(&rule));
    assert_eq!((refused.status, &refused.json()["code"]), (401, &json!("UNAUTHORIZED")));
    assert_eq!(world.http("POST", "/v1/when", Some(&rule)).status, 200);
    assert_eq!(ask("DELETE", "/v1/when/more", None).status, 401);
    // Whoever may read sees the rules, without arguments.
    let listed = ask("GET", "/v1/when", None).json();
    assert_eq!(listed["rules"].as_array().unwrap().len(), 2);
    assert!(!listed.to_string().contains("s3cret"), "{listed}");
    assert_eq!(ask("GET", "/v1/when-log", None).status, 200);
    for (method, path, body, status) in [
        ("DELETE", "/v1/when/own", None, 409),
        ("DELETE", "/v1/when/none", None, 404),
        ("POST", "/v1/when", Some(json!({ "name": "own", "ended": true, "notify": true })), 409),
        ("POST", "/v1/when", Some(json!({ "name": "x", "ended": true })), 400),
        ("POST", "/v1/when", Some(json!({ "name": "x", "output": "(", "notify": true })), 400),
    ] {
        let answer = world.http(method, path, body.as_ref());
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
    }
    daemon.kill();
    let pane = answering(&world, &["new-window"]);
    await_rules(&world);
    type_line(&world, &pane, "go");
    await_ended(&world, "more", 1);
    assert!(world.path("touched").exists());
    world.ok(&["when", "remove", "more"]);
    assert_eq!(world.json(&["when", "list"])["rules"].as_array().unwrap().len(), 1);
    let stored = world.path("m.sock.when.json");
    assert_eq!(
        (fs::read_to_string(&stored).unwrap().trim(), fs::metadata(&stored).unwrap().permissions().mode() & 0o777),
        ("[]", 0o600)
    );
}

/// The default server may start after the daemon, and end, and start again.
#[test]
fn a_server_that_starts_later_is_watched() {
    let world = World::new();
    let runs = world.path("runs");
    let script = format!("echo \"$MUXTAP_WHEN_TEXT\" >> {}", runs.display());
    configure(
        &world,
        &format!("[[when]]\nname='a'\noutput='^number [0-9]$'\nevery='100ms'\nrun=['sh', '-c', {script:?}]\n"),
    );
    world.ok(&["when", "list"]);
    let folder = world.path(&format!("run/tmux-{}", rustix::process::getuid().as_raw()));
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let socket = folder.join("default");
    for number in 1..3 {
        world.tmux_at(&socket, &["new-session", "-d", ANSWERS_SLOWLY]);
        let watched = || world.json(&["when", "list"])["servers"].as_array().unwrap().len() == 1;
        eventually("it is watched", watched);
        let line = format!("number {number}");
        world.tmux_at(&socket, &["send-keys", "-l", &line, ";", "send-keys", "Enter"]);
        let said = |path: &Path| fs::read_to_string(path).unwrap_or_default().lines().count();
        eventually("it has fired", || said(&runs) == number);
        let pid = world.tmux_at(&socket, &["display-message", "-p", "#{pid}"]);
        let end = ProcessEnd::of(pid.parse().unwrap());
        world.tmux_at(&socket, &["kill-server"]);
        end.wait();
    }
}

const ANSWERS_SLOWLY: &str = "stty -echo; while read -r line; do echo \"$line\"; done";

#[test]
fn a_test_of_rules_says_what_would_fire_and_does_nothing() {
    let world = World::with_server();
    let touched = world.path("touched");
    let pane = answering(&world, &["new-window", "-n", "w"]);
    crate::common::say(&world, &pane, "go");
    configure(
        &world,
        &format!(
            "[[when]]\nname='line'\noutput='^got go'\nrun=['touch', '{0}']\n\
             [[when]]\nname='not'\noutput='^got go'\npanes=['x:*']\nlabels=['role=x']\nrun=['touch', '{0}']\n",
            touched.display()
        ),
    );
    world.ok(&["stop"]);
    let seen = world.json(&["when", "test", "-t", &pane]);
    assert_eq!(seen["seen"][0]["rule"], "line");
    assert_eq!(seen["seen"].as_array().unwrap().len(), 1, "{seen}");
    let cast = world.path("a.cast");
    fs::write(&cast, "{\"version\":2,\"width\":80,\"height\":24}\n[1.5,\"o\",\"got go\\r\\n\"]\n").unwrap();
    let seen = world.ok(&["when", "test", "--recording", cast.to_str().unwrap()]);
    assert!(seen.contains("line") && seen.contains("1.500 s") && seen.contains("not"), "{seen}");
    let own = world.path("own.toml");
    fs::write(&own, "name='own'\nscreen='go$'\nnotify=true\n").unwrap();
    let seen = world.json(&["when", "test", "-t", &pane, "--rule", own.to_str().unwrap()]);
    assert_eq!(seen["seen"][0]["rule"], "own");
    assert!(!touched.exists() && firings(&world).is_empty());
}

#[test]
fn a_wrong_rule_of_the_configuration_is_named_and_the_daemon_does_not_start() {
    let world = World::with_server();
    for (rule, why) in [
        ("name='a'\noutput='('\nnotify=true", "rule a: regex parse error"),
        ("name='a'\nended=true\nnotify=true\nshell='x'", "unknown field `shell`"),
        ("name='a'\nended=true", "rule a: no action"),
    ] {
        configure(&world, &format!("[[when]]\n{rule}\n"));
        let answer = world.muxtap(&["config"]);
        assert!(answer.status != 0 && answer.stderr.contains(why), "{answer:?}");
    }
}
