//! Completion of targets, as bash, zsh and fish request and show it.

use std::os::unix::fs::symlink;

use crate::common::{Answer, Stopped, World, eventually, is_installed, names, run};

/// Creates a world whose shells find `muxtap`, with a tmux server that has a session `work` of
/// these windows.
fn world(windows: &[&str]) -> World {
    let mut world = World::new();
    let program = world.plain_muxtap_command().get_program().to_owned();
    std::fs::create_dir(world.path("bin")).unwrap();
    symlink(program, world.path("bin/muxtap")).unwrap();
    let path = std::env::var("PATH").unwrap();
    world.set("PATH", format!("{}:{path}", world.path("bin").display()));
    world.set("PS1", "$ ");
    world.tmux(&["new-session", "-d", "-s", "work", "-n", windows[0], "-x", "100", "-y", "40", "exec cat"]);
    for name in &windows[1..] {
        world.tmux(&["new-window", "-d", "-t", "work:", "-n", name, "exec cat"]);
    }
    world
}

/// Returns the words offered at the end of a line, without descriptions.
fn offered(world: &World, words: &[&str]) -> Vec<String> {
    let answer = asked(world, words);
    let mut lines = answer.lines();
    assert_eq!(lines.next(), Some("words"), "{answer}");
    lines.map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

fn asked(world: &World, words: &[&str]) -> String {
    let socket = world.socket().display().to_string();
    let answer = world.muxtap_plain(&[&["__complete", "fish", "muxtap", "-S", &socket], words].concat());
    assert_eq!((answer.status, answer.stderr.as_str()), (0, ""), "{answer:?}");
    answer.text()
}

impl World {
    fn muxtap_plain(&self, args: &[&str]) -> Answer {
        crate::common::run(self.plain_muxtap_command().args(args))
    }
}

#[test]
fn what_is_there_is_offered_by_its_kind() {
    let world = world(&["logs", "sh"]);
    world.session("7");
    let panes = names(&world.json(&["list-panes"])["panes"], "id");
    assert_eq!(offered(&world, &["kill-session", "-t", ""]), ["7", "work"]);
    assert_eq!(offered(&world, &["kill-session", "-t", "$"]).len(), 2);
    let windows = offered(&world, &["kill-window", "-t", "wo"]);
    assert!(windows.contains(&"work:logs".to_owned()) && !windows.contains(&"work".to_owned()), "{windows:?}");
    let all = offered(&world, &["capture-pane", "-t", ""]);
    for target in ["work", "work:logs", "work:sh", "7:"].iter().map(ToString::to_string).chain(panes) {
        assert!(all.contains(&target), "{target}: {all:?}");
    }
    // The shell that tmux starts becomes this program a moment later.
    eventually("its program is described", || {
        asked(&world, &["capture-pane", "-t", "%"]).contains("\twork:0.0  logs  cat\n")
    });
    // The server named on the line.
    let other = world.path("other");
    world.tmux_at(&other, &["new-session", "-d", "-s", "elsewhere", "cat"]);
    let other = other.display().to_string();
    assert_eq!(offered(&world, &["kill-session", "-S", &other, "-t", ""]), ["elsewhere"]);
    world.tmux_at(&world.path("run/named"), &["new-session", "-d", "-s", "by-name", "cat"]);
    let directory = world.path("run").join(format!("tmux-{}", rustix::process::getuid().as_raw()));
    std::fs::create_dir_all(&directory).unwrap();
    symlink(world.path("run/named"), directory.join("link")).unwrap();
    let answer = world.muxtap_plain(&["__complete", "fish", "muxtap", "-L", "link", "kill-session", "-t", ""]);
    assert!(answer.text().starts_with("words\nby-name\t"), "{answer:?}");
}

#[test]
fn parts_of_workspaces_are_offered() {
    let world = world(&["logs"]);
    let made = world.muxtap(&["--json", "workspace", "new-tab", "-n", "build", "--shell", "exec cat"]).json();
    let word = |kind: &str| format!("{kind}:{}", made[kind]["id"].as_str().unwrap());
    let (tab, pane) = (word("tab"), word("pane"));
    assert_eq!(offered(&world, &["workspace", "kill-tab", "-t", ""]), std::slice::from_ref(&tab));
    assert_eq!(offered(&world, &["workspace", "list-panes", "--tab", ""]), std::slice::from_ref(&tab));
    assert!(asked(&world, &["workspace", "select-tab", "-t", ""]).contains("\tbuild\n"));
    assert_eq!(offered(&world, &["workspace", "kill-pane", "-t", ""]), std::slice::from_ref(&pane));
    let terminals = offered(&world, &["workspace", "send-keys", "-t", ""]);
    assert_eq!(terminals[0], pane, "{terminals:?}");
    let panes = names(&world.json(&["list-panes"])["panes"], "id");
    for id in panes {
        let terminal = format!("terminal:{}/{id}", world.socket().display());
        assert!(terminals.contains(&terminal), "{id} {terminals:?}");
    }
    // For another device, the tabs that it has published; here it is this device by its name.
    let device = offered(&world, &["workspace", "list-tabs", "--device", ""]);
    assert_eq!(device.len(), 1, "{device:?}");
    assert_eq!(
        offered(&world, &["workspace", "kill-tab", "--device", &device[0], "-t", ""]),
        std::slice::from_ref(&tab)
    );
    // Under the name `freshell` it is another device, with its own files.
    symlink(world.plain_muxtap_command().get_program(), world.path("bin/freshell")).unwrap();
    let socket = world.socket().display().to_string();
    let mut freshell = world.command(world.path("bin/freshell"));
    let theirs = run(freshell.args(["-S", &socket, "--json", "new-tab", "-n", "theirs"])).json();
    let answer = world.muxtap_plain(&["__complete", "fish", "freshell", "-S", &socket, "kill-tab", "-t", ""]).text();
    assert_eq!(answer, format!("words\ntab:{}\ttheirs\n", theirs["tab"]["id"].as_str().unwrap()));
    // Its own tabs are in a file.
    world.ok(&["stop"]);
    assert_eq!(offered(&world, &["workspace", "kill-tab", "-t", ""]), [tab]);
    assert_eq!(world.daemon_pid(), None);
}

#[test]
fn a_completion_starts_nothing_and_says_nothing() {
    let world = world(&["logs"]);
    // No daemon runs.
    assert_eq!(asked(&world, &["capture-pane", "-t", ""]), "words\n");
    assert!(!world.daemon_socket().exists());
    world.sessions();
    let nowhere = world.path("nowhere").display().to_string();
    assert_eq!(offered(&world, &["kill-pane", "-S", &nowhere, "-t", ""]), [""; 0]);
    assert!(!world.path("nowhere").exists());
    let servers = world.json(&["status"])["servers"].as_array().unwrap().len();
    assert_eq!(servers, 1, "a socket that is not there is not watched for");
    // A daemon that does not respond.
    let stopped = Stopped::new(world.daemon_pid().unwrap());
    assert_eq!(asked(&world, &["capture-pane", "-t", ""]), "words\n");
    drop(stopped);
    // A socket without a known server.
    let mut odd = world.plain_muxtap_command();
    odd.env("MUXTAP_SOCKET", world.path("work")).args(["__complete", "bash", " ", "muxtap kill-pane -t "]);
    let answer = crate::common::run(&mut odd);
    assert_eq!((answer.status, answer.text().as_str(), answer.stderr.as_str()), (0, "words\n", ""), "{answer:?}");
    world.kill_daemon(rustix::process::Signal::KILL);
    assert_eq!(asked(&world, &["capture-pane", "-t", ""]), "words\n");
    assert_eq!(world.daemon_pid(), None);
}

#[test]
fn no_name_reaches_the_terminal_as_it_is() {
    let world = world(&["a\u{202e}b\u{2028}c"]);
    // 3.8 refuses such a name.
    let named = ["new-window", "-d", "-t", "work:", "-n", "\u{1b}]0;x\u{7}", "exec cat"];
    run(world.tmux_command(world.socket()).args(named));
    world.sessions();
    for shell in ["fish", "zsh"] {
        let socket = world.socket().display().to_string();
        let words = ["__complete", shell, "muxtap", "-S", &socket, "capture-pane", "-t", ""];
        let text = world.muxtap_plain(&words).text();
        assert!(text.contains("\nwork:0\t"), "{text:?}");
        let harmful = |c: char| c.is_control() && !matches!(c, '\n' | '\t') || matches!(c, '\u{202e}' | '\u{2028}');
        assert!(!text.contains(harmful), "{text:?}");
    }
}

/// A shell in a pane that has loaded its completions.
struct Shell<'a> {
    world: &'a World,
    pane: String,
}

impl<'a> Shell<'a> {
    /// `None`: the shell is not installed.
    fn new(world: &'a World, name: &str) -> Option<Self> {
        let (program, read) = match name {
            "bash" => ("bash --norc --noprofile", "eval \"$(muxtap completions bash)\""),
            "zsh" => ("zsh -f", "autoload -U compinit; compinit -u; eval \"$(muxtap completions zsh)\""),
            _ => ("fish --private", "muxtap completions fish | source"),
        };
        if !is_installed(name) {
            return None;
        }
        let pane = world.tmux(&["new-window", "-d", "-t", "work:", "-n", "shell", "-P", "-F", "#{pane_id}", program]);
        let shell = Self { world, pane };
        shell.ask(read);
        Some(shell)
    }

    /// Runs a line to its end.
    fn ask(&self, line: &str) {
        self.world.tmux(&["send-keys", "-l", "-t", &self.pane, &format!("{line}; echo rea''dy")]);
        self.world.tmux(&["send-keys", "-t", &self.pane, "Enter"]);
        self.shows("(?m)^ready");
        self.world.tmux(&["send-keys", "-l", "-t", &self.pane, "clear; echo emp''ty"]);
        self.world.tmux(&["send-keys", "-t", &self.pane, "Enter"]);
        self.shows(r"\A\s*empty");
    }

    /// Types the beginning of a line, and TAB once it is displayed.
    fn complete(&self, line: &str) {
        self.world.tmux(&["send-keys", "-l", "-t", &self.pane, line]);
        self.shows(&regex::escape(line));
        self.tab();
    }

    fn tab(&self) {
        self.world.tmux(&["send-keys", "-t", &self.pane, "Tab"]);
    }

    fn enter(&self) {
        self.world.tmux(&["send-keys", "-t", &self.pane, "Enter"]);
    }

    fn shows(&self, pattern: &str) {
        self.world.ok(&["wait-for", "-t", &self.pane, "--screen", pattern, "-T", "30"]);
    }
}

const NAMES: [&str; 5] = ["logs", "a b", "it's", "q\"$(touch hacked)`touch hacked`", "größe"];

/// The beginnings of names are completed and the line is run: the windows are closed.
fn completes_what_the_shell_then_understands(name: &str, shown: &[&str]) {
    let world = world(&NAMES);
    let Some(shell) = Shell::new(&world, name) else { return };
    // All names with this prefix are shown.
    shell.complete("muxtap capture-pane -t wo");
    shell.shows("capture-pane -t work");
    // The first TAB completed the common prefix; bash rings at the next one.
    shell.tab();
    if name == "bash" {
        shell.tab();
    }
    for pattern in shown {
        shell.shows(pattern);
    }
    world.tmux(&["send-keys", "-t", &shell.pane, "C-c"]);
    shell.ask("true");
    for (typed, window) in [("work:l", "logs"), ("work:a", "a b"), ("work:q", NAMES[3]), ("work:gr", "größe")] {
        shell.complete(&format!("muxtap kill-window -t {typed}"));
        let last = window.chars().next_back().unwrap();
        shell.shows(&format!("kill-window -t .*{}", regex::escape(&last.to_string())));
        // At the word's end the next one may begin.
        shell.shows("kill-window -t work:.{3}");
        shell.enter();
        eventually(&format!("{name}: {window} is gone"), || {
            !names(&world.json(&["list-windows"])["windows"], "name").contains(&window.to_owned())
        });
    }
    assert!(!world.path("work/hacked").exists());
    // Options and commands are completed too.
    shell.ask("true");
    shell.complete("muxtap capture-pane --ver");
    shell.shows("capture-pane --verify");
    world.tmux(&["send-keys", "-t", &shell.pane, "C-c"]);
    shell.ask("true");
    shell.complete("freshell list-dev");
    shell.shows("freshell list-devices");
}

#[test]
fn bash_completes_targets() {
    completes_what_the_shell_then_understands("bash", &[r"work:logs", r"work:a\\ b", r"work:it\\'s"]);
}

#[test]
fn zsh_completes_targets() {
    completes_what_the_shell_then_understands("zsh", &["work:logs +window 0, 1 pane", "work:a b", "work:it's"]);
}

#[test]
fn fish_completes_targets() {
    completes_what_the_shell_then_understands("fish", &[r"work:logs +\(window 0, 1 pane", "work:a", "work:it"]);
}

/// An open quote stays open, and its content is not quoted again.
#[test]
fn bash_completes_within_quotes() {
    let world = world(&NAMES);
    let Some(shell) = Shell::new(&world, "bash") else { return };
    for (typed, window) in [("'work:a", "a b"), ("\"work:it", "it's"), ("\"work:q", NAMES[3])] {
        shell.complete(&format!("muxtap kill-window -t {typed}"));
        shell.shows(&format!("kill-window -t {}..*['\"] ?$", regex::escape(typed)));
        shell.enter();
        eventually(&format!("{window} is gone"), || {
            !names(&world.json(&["list-windows"])["windows"], "name").contains(&window.to_owned())
        });
    }
    assert!(!world.path("work/hacked").exists());
}
