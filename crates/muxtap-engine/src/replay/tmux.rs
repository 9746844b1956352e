//! A tmux server as a state machine: sessions, windows, panes and control clients.
//!
//! Each pane is in one window, and each window in one session. A client gets the output of the
//! panes of its session (F1). What tmux sends to a client keeps its order; a line of commands runs
//! without interruption.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io,
    sync::{Mutex, MutexGuard},
};

use futures_util::future::BoxFuture;
use muxtap_core::protocol::names;
use muxtap_tmux::played::{CallOutput, PlayedTmux};

use super::{
    format::expand,
    grid::{HEIGHT, Printed, WIDTH},
    wire::Client,
};

/// The tmux that the engine's transport reaches.
#[derive(Default)]
pub(super) struct Played(Mutex<Tmux>);

/// The server.
#[derive(Default)]
pub(super) struct Tmux {
    /// The simulated time, in milliseconds.
    pub(super) now: u64,
    /// What happened, one line each.
    pub(super) trace: Vec<String>,
    /// The windows of each session.
    pub(super) sessions: BTreeMap<u32, Vec<u32>>,
    /// The panes of each window.
    pub(super) windows: BTreeMap<u32, Vec<u32>>,
    pub(super) panes: BTreeMap<u32, Printed>,
    /// Panes that were killed.
    pub(super) killed: BTreeMap<u32, Printed>,
    pub(super) clients: BTreeMap<u64, Client>,
    next_session: u32,
    next_window: u32,
    next_pane: u32,
    next_client: u64,
    /// The lines of history that new panes keep.
    pub(super) history_limit: usize,
}

/// What a format is expanded for.
#[derive(Clone, Copy, Default)]
struct Place {
    session: Option<u32>,
    window: Option<u32>,
    pane: Option<u32>,
}

impl std::fmt::Debug for Played {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Played")
    }
}

impl Played {
    pub(super) fn lock(&self) -> MutexGuard<'_, Tmux> {
        self.0.lock().unwrap()
    }
}

impl PlayedTmux for Played {
    fn call(&self, words: Vec<String>) -> BoxFuture<'static, CallOutput> {
        let output = self.lock().call(&words);
        Box::pin(std::future::ready(output))
    }

    fn attach(&self, words: Vec<String>, stdin: io::PipeReader, stdout: io::PipeWriter) -> io::Result<String> {
        Ok(self.lock().attach(&words, stdin, stdout))
    }
}

impl Tmux {
    /// Adds a line to the trace.
    pub(super) fn note(&mut self, line: &str) {
        self.trace.push(format!("{:>8} {line}", self.now));
    }

    // What people do.

    /// Creates a session with a window and a pane.
    pub(super) fn new_session(&mut self) -> u32 {
        let session = self.next_session;
        self.next_session += 1;
        self.sessions.insert(session, Vec::new());
        self.note(&format!("new session ${session}"));
        self.tell(None, "%sessions-changed");
        self.new_window(session);
        session
    }

    /// Creates a window with a pane.
    pub(super) fn new_window(&mut self, session: u32) -> u32 {
        let window = self.next_window;
        self.next_window += 1;
        self.windows.insert(window, Vec::new());
        self.sessions.get_mut(&session).unwrap().push(window);
        self.tell_window(session, &format!("window-add @{window}"));
        self.new_pane(window)
    }

    /// Creates a pane in a window.
    pub(super) fn new_pane(&mut self, window: u32) -> u32 {
        let pane = self.next_pane;
        self.next_pane += 1;
        self.panes.insert(pane, Printed::new(self.history_limit));
        self.windows.get_mut(&window).unwrap().push(pane);
        self.note(&format!("new pane %{pane} in @{window}"));
        self.tell_layout(window);
        pane
    }

    /// Makes a pane print.
    pub(super) fn print(&mut self, pane: u32, bytes: &[u8]) {
        let session = self.session_of_pane(pane);
        let printed = self.panes.get_mut(&pane).unwrap();
        let before = printed.log.len();
        printed.print(bytes);
        for client in self.clients.values_mut().filter(|client| client.session == session) {
            client.output(pane, before, &printed.log);
        }
    }

    /// Kills a pane. A window ends with its last pane, a session with its last window.
    pub(super) fn kill_pane(&mut self, pane: u32) {
        self.note(&format!("kill %{pane}"));
        let window = self.window_of(pane);
        let printed = self.panes.remove(&pane).unwrap();
        self.killed.insert(pane, printed);
        self.windows.get_mut(&window).unwrap().retain(|other| *other != pane);
        self.after_leaving(window);
    }

    /// Moves a pane to another window.
    pub(super) fn move_pane(&mut self, pane: u32, to: u32) {
        let from = self.window_of(pane);
        if from == to {
            return;
        }
        self.note(&format!("move %{pane} from @{from} to @{to}"));
        self.windows.get_mut(&from).unwrap().retain(|other| *other != pane);
        self.windows.get_mut(&to).unwrap().push(pane);
        self.tell_layout(to);
        self.after_leaving(from);
    }

    fn after_leaving(&mut self, window: u32) {
        if !self.windows[&window].is_empty() {
            return self.tell_layout(window);
        }
        let session = self.session_of(window);
        self.windows.remove(&window);
        let windows = self.sessions.get_mut(&session).unwrap();
        windows.retain(|other| *other != window);
        let is_over = windows.is_empty();
        self.tell_window(session, &format!("window-close @{window}"));
        if is_over {
            self.note(&format!("session ${session} ends"));
            self.sessions.remove(&session);
            self.tell(None, "%sessions-changed");
            let ids: Vec<u64> = self.clients.keys().copied().filter(|id| self.clients[id].session == session).collect();
            for id in ids {
                if let Some(mut client) = self.clients.remove(&id) {
                    client.say("%exit");
                    client.flush();
                }
            }
        }
    }

    /// Pauses a pane for a client that gets its output and is behind (F11).
    pub(super) fn pause(&mut self, id: u64, pane: u32) {
        if self.clients[&id].session != self.session_of_pane(pane) {
            return;
        }
        self.note(&format!("tmux pauses %{pane} for client {id}"));
        let client = self.clients.get_mut(&id).unwrap();
        if client.pause(pane) {
            client.say(&format!("%pause %{pane}"));
        }
    }

    /// Ends a client in the middle of a line.
    pub(super) fn cut(&mut self, id: u64) {
        self.note(&format!("client {id} is cut"));
        if let Some(client) = self.clients.remove(&id) {
            client.cut();
        }
    }

    // What tmux announces.

    fn tell(&mut self, session: Option<u32>, line: &str) {
        for client in self.clients.values_mut().filter(|client| session.is_none_or(|id| client.session == id)) {
            client.say(line);
        }
    }

    fn tell_window(&mut self, session: u32, what: &str) {
        for client in self.clients.values_mut() {
            let unlinked = if client.session == session { "" } else { "unlinked-" };
            client.say(&format!("%{unlinked}{what}"));
        }
    }

    fn tell_layout(&mut self, window: u32) {
        let layout = self.layout(window);
        let line = format!("%layout-change @{window} {layout} {layout} *");
        self.tell(Some(self.session_of(window)), &line);
    }

    fn layout(&self, window: u32) -> String {
        let panes = &self.windows[&window];
        let mut cells = String::new();
        for (at, pane) in panes.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(cells, "{comma}{WIDTH}x{HEIGHT},{},0,{pane}", at * (WIDTH + 1));
        }
        if panes.len() > 1 {
            cells = format!("{}x{HEIGHT},0,0{{{cells}}}", self.width(window));
        }
        let rotated = |sum: u16, byte: u8| sum.rotate_right(1).wrapping_add(u16::from(byte));
        format!("{:04x},{cells}", cells.bytes().fold(0, rotated))
    }

    fn width(&self, window: u32) -> usize {
        (self.windows[&window].len() * (WIDTH + 1)).saturating_sub(1)
    }

    // The places of things.

    pub(super) fn window_of(&self, pane: u32) -> u32 {
        *self.windows.iter().find(|(_, panes)| panes.contains(&pane)).unwrap().0
    }

    fn session_of(&self, window: u32) -> u32 {
        *self.sessions.iter().find(|(_, windows)| windows.contains(&window)).unwrap().0
    }

    pub(super) fn session_of_pane(&self, pane: u32) -> u32 {
        self.session_of(self.window_of(pane))
    }

    // What clients request.

    fn call(&mut self, words: &[String]) -> CallOutput {
        // `tmux -u -L default COMMAND…`
        let words: Vec<String> = words.iter().skip_while(|word| *word != "-L").skip(2).cloned().collect();
        let (mut stdout, mut stderr) = (String::new(), String::new());
        for command in words.split(|word| word == ";") {
            match self.run(None, command) {
                Ok((body, _)) => stdout.push_str(&body),
                Err(error) => {
                    stderr = error;
                    break;
                }
            }
        }
        self.note(&format!("call {}", words.first().map_or("", |name| names::full(name))));
        CallOutput { ok: stderr.is_empty(), stdout: stdout.into_bytes(), stderr }
    }

    fn attach(&mut self, words: &[String], stdin: io::PipeReader, stdout: io::PipeWriter) -> String {
        let id = self.next_client;
        self.next_client += 1;
        let target = words.iter().skip_while(|word| *word != "-t").nth(1).cloned().unwrap_or_default();
        let session: Option<u32> = target.trim_start_matches('$').parse().ok();
        let mut client = Client::new(session.unwrap_or(u32::MAX), stdin, stdout);
        if let Some(session) = session.filter(|session| self.sessions.contains_key(session)) {
            client.block("", "end", 0);
            client.say(&format!("%session-changed ${session} s{session}"));
            self.clients.insert(id, client);
            self.note(&format!("client {id} attaches to ${session}"));
        } else {
            client.block(&format!("can't find session: {target}\n"), "error", 0);
            client.say("%exit");
            client.flush();
            self.note(&format!("client {id} finds no session {target}"));
        }
        format!("client-{id}")
    }

    /// Reads clients' requests, and sends replies and output. Returns whether there were any.
    pub(super) fn pump(&mut self) -> bool {
        let mut was_busy = false;
        for id in self.clients.keys().copied().collect::<Vec<_>>() {
            let now = self.now;
            let Some(client) = self.clients.get_mut(&id) else { continue };
            let (lines, goes_on) = if client.deaf_until > now { (Vec::new(), true) } else { client.lines() };
            was_busy |= !lines.is_empty() || !goes_on;
            for line in lines {
                self.execute(id, &line);
            }
            let Some(client) = self.clients.get_mut(&id) else { continue };
            let (has_sent, lives) = if client.mute_until > now { (false, true) } else { client.flush() };
            was_busy |= has_sent || !lives;
            if !(goes_on && lives) {
                self.note(&format!("client {id} leaves"));
                if let Some(mut client) = self.clients.remove(&id) {
                    client.say("%exit");
                    client.flush();
                }
            }
        }
        was_busy
    }

    fn execute(&mut self, id: u64, line: &str) {
        let mut done = String::new();
        for command in commands(line) {
            let result = self.run(Some(id), &command);
            // What frames a reply is different in each run.
            if !command.last().is_some_and(|word| word.len() == 18 && word.starts_with("mt")) {
                let words: Vec<&str> =
                    command.iter().map(|word| if word.len() > 40 { "…" } else { names::full(word) }).collect();
                let separator = if done.is_empty() { "" } else { "; " };
                let _ = write!(done, "{separator}{}", words.join(" "));
            }
            let Some(client) = self.clients.get_mut(&id) else { return };
            match result {
                Ok((body, after)) => {
                    client.block(&body, "end", 1);
                    if let Some(after) = after {
                        client.say(&after);
                    }
                }
                Err(error) => {
                    client.block(&format!("{error}\n"), "error", 1);
                    let _ = write!(done, " ({error})");
                    break;
                }
            }
        }
        if !done.is_empty() {
            self.note(&format!("client {id} requests {done}"));
        }
    }

    /// Runs a command. Returns its body, and what is announced after it.
    fn run(&mut self, id: Option<u64>, words: &[String]) -> Result<(String, Option<String>), String> {
        let name = words.first().map_or("", |name| names::full(name));
        let has = |flag: &str| words.iter().any(|word| word == flag);
        let opt = |flag: &str| words.iter().skip_while(|word| *word != flag).nth(1).cloned();
        let target = opt("-t");
        let pane: Option<u32> = target.as_deref().and_then(|target| target.strip_prefix('%')?.parse().ok());
        if let Some(target) = target.filter(|_| pane.is_some_and(|pane| !self.panes.contains_key(&pane))) {
            return Err(format!("can't find pane: {target}"));
        }
        let own =
            id.and_then(|id| Some(self.clients.get(&id)?.session)).or_else(|| self.sessions.keys().next().copied());
        Ok(match (name, pane) {
            ("display-message", _) => {
                let place = pane.map_or_else(|| Place { session: own, ..Place::default() }, |pane| self.place_of(pane));
                (self.expand(words.last().unwrap(), place) + "\n", None)
            }
            ("list-sessions", _) => {
                let format = opt("-F").unwrap_or_default();
                let place = |session: &u32| Place { session: Some(*session), ..Place::default() };
                (self.sessions.keys().map(|session| self.expand(&format, place(session)) + "\n").collect(), None)
            }
            ("list-panes", _) => {
                let format = opt("-F").unwrap_or_default();
                let windows = self.sessions.values().flatten();
                let panes = windows.flat_map(|window| &self.windows[window]);
                (panes.map(|pane| self.expand(&format, self.place_of(*pane)) + "\n").collect(), None)
            }
            ("capture-pane", Some(_)) if has("-P") => ("\n".to_owned(), None),
            ("capture-pane", Some(_)) if has("-a") => (String::new(), None),
            ("capture-pane", Some(pane)) => (self.panes[&pane].capture(has("-S")), None),
            ("refresh-client", _) if has("-A") => (String::new(), self.flow(id, &opt("-A").unwrap_or_default())),
            _ => (String::new(), None),
        })
    }

    /// Pauses a pane for a client, or ends that. Returns what is announced.
    fn flow(&mut self, id: Option<u64>, what: &str) -> Option<String> {
        let (pane, what) = what.strip_prefix('%')?.split_once(':')?;
        let pane: u32 = pane.parse().ok().filter(|pane| self.panes.contains_key(pane))?;
        let printed = self.panes[&pane].log.len();
        let client = self.clients.get_mut(&id?)?;
        let is_news = if what == "pause" { client.pause(pane) } else { client.resume(pane, printed) };
        is_news.then(|| format!("%{what} %{pane}"))
    }

    fn place_of(&self, pane: u32) -> Place {
        let window = self.window_of(pane);
        Place { session: Some(self.session_of(window)), window: Some(window), pane: Some(pane) }
    }

    fn expand(&self, format: &str, place: Place) -> String {
        expand(format, &|name| self.value(name, place))
    }

    fn value(&self, name: &str, place: Place) -> String {
        let pane = place.pane.map(|pane| (pane, &self.panes[&pane]));
        let (id, printed) = pane.unzip();
        let number = |number: Option<usize>| number.map(|number| number.to_string()).unwrap_or_default();
        let named = |sign: &str, id: Option<u32>| id.map(|id| format!("{sign}{id}")).unwrap_or_default();
        let is_first = |of: Option<&Vec<u32>>, id: Option<u32>| {
            let is_first = of.and_then(|of| of.first().copied()) == id;
            u8::from(is_first).to_string()
        };
        match name {
            "pid" => "7".into(),
            "start_time" | "session_created" | "session_activity" => "1700000000".into(),
            "version" => "3.8".into(),
            "session_id" => named("$", place.session),
            "session_name" => named("s", place.session),
            "window_id" => named("@", place.window),
            "window_index" => number(place.window.map(|window| window as usize)),
            "window_active" => is_first(place.session.and_then(|id| self.sessions.get(&id)), place.window),
            "window_layout" => place.window.map(|window| self.layout(window)).unwrap_or_default(),
            "window_width" => number(place.window.map(|window| self.width(window))),
            "window_panes" => number(place.window.map(|window| self.windows[&window].len())),
            "pane_id" => named("%", id),
            "pane_index" => {
                let panes = place.window.and_then(|window| self.windows.get(&window));
                number(panes.and_then(|panes| panes.iter().position(|pane| Some(*pane) == id)))
            }
            "pane_active" => is_first(place.window.and_then(|id| self.windows.get(&id)), id),
            "pane_pid" => number(id.map(|pane| 1000 + pane as usize)),
            "pane_width" => WIDTH.to_string(),
            "pane_height" | "window_height" => HEIGHT.to_string(),
            "cursor_x" => number(printed.map(|printed| printed.cursor().0)),
            "cursor_y" => number(printed.map(|printed| printed.cursor().1)),
            "history_size" => number(printed.map(Printed::history)),
            "history_limit" => number(printed.map(|printed| printed.limit)),
            "alternate_saved_x" | "alternate_saved_y" => u32::MAX.to_string(),
            "scroll_region_lower" => (HEIGHT - 1).to_string(),
            "wrap_flag" | "cursor_flag" | "scroll-on-clear" | "alternate-screen" => "1".into(),
            "pane_tabs" => "8,16,24,32,40,48,56,64,72".into(),
            "cursor_shape" => "default".into(),
            "window_name" | "pane_current_command" => "sh".into(),
            "pane_current_path" => "/".into(),
            "alternate_on"
            | "pane_dead"
            | "scroll_region_upper"
            | "insert_flag"
            | "origin_flag"
            | "session_attached"
            | "destroy-unattached"
            | "exit-unattached" => "0".into(),
            _ if name.ends_with("_flag") || name == "cursor_blinking" => "0".into(),
            _ => String::new(),
        }
    }
}

/// Splits a line into commands and their words.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let (mut word, mut is_quoted) = (None::<String>, false);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            '\\' => word.get_or_insert_default().extend(characters.next()),
            ' ' | ';' if !is_quoted => {
                commands.last_mut().unwrap().extend(word.take());
                if character == ';' {
                    commands.push(Vec::new());
                }
            }
            _ => word.get_or_insert_default().push(character),
        }
    }
    commands.last_mut().unwrap().extend(word);
    commands
}
