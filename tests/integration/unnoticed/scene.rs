//! A server with a person on it, plain or followed by muxtap.

use std::{cell::RefCell, collections::BTreeSet, path::PathBuf, time::Duration, time::Instant};

use crate::common::{Answer, Background, World, eventually, run};

/// Whether muxtap runs, and how it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Without muxtap.
    Plain,
    /// `coverage = "used"`: muxtap has listed everything and captured a pane.
    Rest,
    /// `coverage = "used"`: a wait is open on a pane.
    Used,
    /// `coverage = "sessions"`.
    Sessions,
    /// `coverage = "hub"`.
    Hub,
}

/// A pane's program that prints each line it is given, like `printf`.
pub const PRINTS: &str = "stty -echo; printf ready; while read -r line; do printf \"$line\"; done";
/// A pane's program that requests focus events and shows what it receives.
pub const HEARS_OF_FOCUS: &str = "stty raw -echo; printf '\\033[?1004hready'; exec cat -v";

/// A tmux server under observation.
pub struct Scene {
    pub world: World,
    pub mode: Mode,
    waits: RefCell<Vec<Background>>,
}

impl Scene {
    pub fn new(mode: Mode) -> Self {
        let mut world = World::new();
        match mode {
            Mode::Sessions => world.set("MUXTAP_COVERAGE", "sessions"),
            Mode::Hub => world.set("MUXTAP_COVERAGE", "hub"),
            Mode::Plain | Mode::Rest | Mode::Used => {}
        }
        Self { world, mode, waits: RefCell::default() }
    }

    pub fn tmux(&self, args: &[&str]) -> String {
        self.world.tmux(args)
    }

    /// Calls tmux, which may fail.
    pub fn try_tmux(&self, args: &[&str]) -> Answer {
        run(self.world.tmux_command(self.world.socket()).args(args))
    }

    /// Creates a session with one window `one`, with a pane that runs this.
    pub fn session(&self, name: &str, program: &str) -> String {
        let args = ["new-session", "-d", "-s", name, "-n", "one", "-x", "80", "-y", "24", "-P", "-F", "#{pane_id}"];
        let pane = self.pane(&args, program);
        // A server that crashes is reported by its process, and five of them run side by side.
        println!("{:?}: {name} is on server {}", self.mode, self.world.server_pid());
        pane
    }

    /// Adds a window to a session.
    pub fn window(&self, session: &str, name: &str, program: &str) -> String {
        let target = format!("{session}:");
        self.pane(&["new-window", "-d", "-t", &target, "-n", name, "-P", "-F", "#{pane_id}"], program)
    }

    fn pane(&self, args: &[&str], program: &str) -> String {
        let pane = self.tmux(&[args, &[program]].concat());
        if program.contains("ready") {
            self.await_text(&pane, "ready");
        }
        pane
    }

    /// Returns a pane's screen, its lines joined.
    pub fn text(&self, pane: &str) -> String {
        self.tmux(&["capture-pane", "-p", "-J", "-t", pane]).replace('\n', "")
    }

    pub fn await_text(&self, pane: &str, text: &str) {
        eventually(text, || self.text(pane).contains(text));
    }

    /// Makes a pane that runs [`PRINTS`] print a text whose last word is new.
    pub fn print(&self, pane: &str, text: &str) {
        self.tmux(&["send-keys", "-t", pane, "-l", text, ";", "send-keys", "-t", pane, "Enter"]);
        self.await_text(pane, text.rsplit(' ').next().unwrap());
    }

    /// Counts the runs of a global hook.
    pub fn count(&self, hook: &str) {
        self.tmux(&["set-hook", "-g", hook, &format!("set-option -g -a @{hook} x")]);
    }

    /// Returns how often these hooks have run.
    pub fn runs(&self, hooks: &[&str]) -> String {
        let count = |hook: &&str| {
            let runs = self.tmux(&["show-options", "-g", "-q", "-v", &format!("@{hook}")]).len();
            format!("{hook} {runs}")
        };
        hooks.iter().map(count).collect::<Vec<_>>().join(", ")
    }

    /// Returns the names of the sessions.
    pub fn sessions(&self) -> String {
        self.try_tmux(&["list-sessions", "-F", "#S"]).text().lines().collect::<Vec<_>>().join(" ")
    }

    fn clients(&self, control: &str) -> Vec<String> {
        let listed =
            self.try_tmux(&["list-clients", "-F", "#{client_control_mode} #{client_tty} #{client_session}"]).text();
        listed.lines().filter_map(|line| line.strip_prefix(control)).map(|line| line.trim().to_owned()).collect()
    }

    /// Creates a terminal with a person's program: a pane of another tmux server. `$T` is the tmux
    /// command.
    pub fn terminal(&self, script: &str) -> Terminal<'_> {
        let outer = self.world.path("outer");
        let tmux = self.world.tmux_command(self.world.socket());
        let words = std::iter::once(tmux.get_program()).chain(tmux.get_args()).map(|word| word.to_str().unwrap());
        let script = format!("unset TMUX TMUX_PANE; T='{}'; {script}", words.collect::<Vec<_>>().join(" "));
        if !outer.exists() {
            let options = ["status off", "remain-on-exit on", "escape-time 0"];
            let mut args = vec!["start-server", ";", "set-option", "-s", "exit-empty", "off"];
            for option in options {
                let (name, value) = option.split_once(' ').unwrap();
                let scope = if name == "escape-time" { "-s" } else { "-g" };
                args.extend([";", "set-option", scope, name, value]);
            }
            self.world.tmux_at(&outer, &args);
        }
        let make = ["new-session", "-d", "-x", "80", "-y", "24", "-P", "-F", "#{pane_id} #{pane_tty}", &script];
        let made = self.world.tmux_at(&outer, &make);
        let (pane, tty) = made.split_once(' ').unwrap();
        Terminal { scene: self, outer, pane: pane.to_owned(), tty: tty.to_owned() }
    }

    /// Creates a person who is attached to a session.
    pub fn attach(&self, session: &str) -> Terminal<'_> {
        let person = self.terminal(&format!("exec $T attach-session -t {session}"));
        eventually("the person is attached", || person.session().as_deref() == Some(session));
        eventually("the person sees the status line", || person.screen().contains(&format!("[{session}]")));
        person
    }

    /// Starts muxtap, if the mode has it. `session` has the used pane.
    pub fn follow(&self, session: &str) {
        self.follow_unless(session, || false);
    }

    /// Starts muxtap like [`Self::follow`] when its clients may be detached before all of them are
    /// attached.
    pub fn follow_unless(&self, session: &str, thrown_out: impl Fn() -> bool) {
        match self.mode {
            Mode::Plain => {}
            Mode::Rest => {
                self.list();
                let pane = self.tmux(&["display-message", "-p", "-t", session, "#{pane_id}"]);
                self.world.ok(&["list-panes", "-t", &pane]);
                self.world.ok(&["capture-pane", "-t", session]);
                assert_eq!(self.world.json(&["status"])["servers"][0]["clients"], 0);
                assert_eq!(self.clients("1 "), [""; 0]);
            }
            Mode::Used => {
                let wait = self.world.spawn(&["wait-for", "-t", session, "-p", "never", "-T", "50"]);
                self.waits.borrow_mut().push(wait);
                eventually("a client is in the session", || {
                    thrown_out() || self.clients("1 ").iter().any(|client| client == session)
                });
                eventually("the wait is open", || thrown_out() || self.waits_open() > 0);
            }
            Mode::Sessions => {
                self.list();
                eventually("each session has a client", || {
                    let covered: BTreeSet<String> = self.clients("1 ").into_iter().collect();
                    thrown_out() || self.sessions().split(' ').all(|session| covered.contains(session))
                });
            }
            Mode::Hub => {
                self.list();
                eventually("every window is in the hub", || {
                    let windows = self.try_tmux(&["list-windows", "-a", "-F", "#{session_name} #{window_id}"]).text();
                    let windows: Vec<_> = windows.lines().filter_map(|line| line.split_once(' ')).collect();
                    let in_hub = |hub: bool| -> BTreeSet<_> {
                        let of = windows.iter().filter(|(session, _)| session.starts_with("_muxtap") == hub);
                        of.map(|(_, window)| *window).collect()
                    };
                    thrown_out()
                        || in_hub(true).is_superset(&in_hub(false))
                            && matches!(self.clients("1 ").as_slice(), [only] if only.starts_with("_muxtap"))
                });
            }
        }
    }

    fn waits_open(&self) -> u64 {
        self.world.json(&["status"])["waits"].as_u64().unwrap()
    }

    fn list(&self) {
        let sessions = self.world.sessions();
        self.world.json(&["list-windows"]);
        self.world.panes();
        self.world.ok(&["has-session", "-t", &sessions[0]]);
        self.world.ok(&["display-message", "-p", "-t", &sessions[0], "#{session_name}"]);
    }

    /// Stops muxtap, if the mode has it.
    pub fn leave(&self) {
        if self.mode != Mode::Plain {
            self.world.ok(&["stop"]);
            self.waits.borrow_mut().clear();
            eventually("muxtap's clients and sessions are gone", || {
                self.clients("1 ").is_empty() && !self.sessions().contains("_muxtap")
            });
        }
    }
}

/// A person's terminal.
pub struct Terminal<'scene> {
    scene: &'scene Scene,
    outer: PathBuf,
    pane: String,
    pub tty: String,
}

impl Terminal<'_> {
    /// Returns the session of the terminal's client.
    pub fn session(&self) -> Option<String> {
        let clients = self.scene.clients("0 ");
        clients.iter().find_map(|client| client.strip_prefix(&self.tty)?.strip_prefix(' ').map(str::to_owned))
    }

    /// Returns the person's place.
    pub fn place(&self) -> String {
        self.session().map_or_else(|| "the person is out".into(), |session| format!("the person is in {session}"))
    }

    /// Returns whether the terminal's program has ended.
    pub fn is_out(&self) -> bool {
        let args = ["display-message", "-p", "-t", &self.pane, "#{pane_dead}"];
        self.scene.world.tmux_at(&self.outer, &args) == "1"
    }

    /// Returns the terminal's screen.
    pub fn screen(&self) -> String {
        self.scene.world.tmux_at(&self.outer, &["capture-pane", "-p", "-t", &self.pane])
    }

    /// Sends bytes like the terminal does: hexadecimal.
    pub fn send(&self, bytes: &[&str]) {
        let args = [&["send-keys", "-t", &self.pane, "-H"][..], bytes].concat();
        self.scene.world.tmux_at(&self.outer, &args);
    }

    pub fn resize(&self, width: &str, height: &str) {
        let args = ["resize-window", "-t", &self.pane, "-x", width, "-y", height];
        self.scene.world.tmux_at(&self.outer, &args);
    }
}

/// Returns whether a condition holds within some seconds. For conditions that may never hold.
pub fn comes(mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > Duration::from_secs(8) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}
