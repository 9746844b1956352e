//! A real tmux, driven over one control client: panes that print given bytes, and tmux's captures
//! of them.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    os::fd::AsFd as _,
    process::{Child, ChildStdin, ChildStdout, Stdio},
    time::Instant,
};

use bytes::Bytes;
use muxtap::{
    protocol::{ids::PaneId, octal, version::Version},
    screen::{CaptureOptions, Line, Rules, Screen, Settings, Size, Trouble, seed},
};

use super::generator::{Case, Step};
use crate::common::{LIMIT, World};

/// Runs a case and returns the difference.
pub type Run = fn(&mut Tmux, &Case) -> Option<String>;

/// A server and its control client.
pub struct Tmux {
    pub world: World,
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    pub version: Version,
    line: Vec<u8>,
    /// Output of each pane that was not taken yet.
    heard: BTreeMap<String, Vec<u8>>,
    /// Compared captures, by their flags, and those of them that the model knew.
    pub counts: BTreeMap<String, [u64; 2]>,
    /// The same for seeded models between output and rest, when they are uncertain: at rest they
    /// are seeded again.
    pub restless: BTreeMap<String, [u64; 2]>,
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Default for Tmux {
    fn default() -> Self {
        Self::new()
    }
}

impl Tmux {
    pub fn new() -> Self {
        Self::in_world(World::new())
    }

    /// Creates the server of a world that has none yet.
    pub fn in_world(world: World) -> Self {
        let socket = world.socket().to_owned();
        world.tmux(&["new-session", "-d", "-s", "main", "-x", "80", "-y", "24", "sleep 100000"]);
        let version = Version::parse(world.tmux(&["display-message", "-p", "#{version}"]).as_bytes()).unwrap();
        let mut child = world
            .tmux_command(&socket)
            .args(["-C", "attach-session", "-t", "main", "-f", "ignore-size"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::with_capacity(1 << 16, child.stdout.take().unwrap());
        let mut tmux = Self {
            world,
            child,
            stdin,
            stdout,
            version,
            line: Vec::new(),
            heard: BTreeMap::new(),
            counts: BTreeMap::new(),
            restless: BTreeMap::new(),
        };
        // A command sent earlier may run before the client is attached (F25).
        while !tmux.line.starts_with(b"%session-changed ") {
            tmux.read_line();
        }
        tmux.ask("set-option -g remain-on-exit on");
        tmux
    }

    fn read_line(&mut self) {
        assert!(self.read_line_before(Instant::now() + LIMIT), "tmux says nothing");
    }

    /// Reads a line; false if none arrives in time.
    fn read_line_before(&mut self, deadline: Instant) -> bool {
        if self.stdout.buffer().is_empty() {
            let left = rustix::time::Timespec::try_from(deadline.saturating_duration_since(Instant::now())).unwrap();
            let mut fds = [rustix::event::PollFd::new(self.stdout.get_ref(), rustix::event::PollFlags::IN)];
            if rustix::event::poll(&mut fds, Some(&left)).unwrap() == 0 {
                return false;
            }
        }
        self.line.clear();
        let read = self.stdout.read_until(b'\n', &mut self.line).unwrap();
        assert!(read > 0, "the server is gone");
        self.line.pop();
        true
    }

    fn keep_output(&mut self) {
        let mut fields = self.line.splitn(3, |byte| *byte == b' ');
        if fields.next() == Some(b"%output") {
            let pane = String::from_utf8_lossy(fields.next().unwrap_or_default()).into_owned();
            octal::decode_into(fields.next().unwrap_or_default(), self.heard.entry(pane).or_default());
        }
    }

    /// Waits for tmux's next output; false if none arrives in time.
    pub fn listen(&mut self, deadline: Instant) -> bool {
        let heard = self.read_line_before(deadline);
        if heard {
            self.keep_output();
        }
        heard
    }

    /// Takes the output that a pane has printed since the last call.
    pub fn take_output(&mut self, pane: &str) -> Vec<u8> {
        self.heard.remove(pane).unwrap_or_default()
    }

    /// Runs a command line; returns the bodies of its replies.
    pub fn ask_all(&mut self, commands: &[String]) -> Vec<Vec<u8>> {
        let line = commands.join(" ; ");
        writeln!(self.stdin, "{line}").unwrap();
        commands.iter().map(|_| self.reply(&line)).collect()
    }

    pub fn ask(&mut self, command: &str) -> Vec<u8> {
        self.ask_all(&[command.to_owned()]).remove(0)
    }

    fn reply(&mut self, command: &str) -> Vec<u8> {
        loop {
            self.read_line();
            if let Some(guard) = self.line.strip_prefix(b"%begin ").filter(|guard| guard.ends_with(b" 1")) {
                let end = [b"%end ", guard].concat();
                let error = [b"%error ", guard].concat();
                let mut body: Vec<u8> = Vec::new();
                loop {
                    self.read_line();
                    assert_ne!(self.line, error, "{command}: {}", String::from_utf8_lossy(&body));
                    if self.line == end {
                        body.pop();
                        return body;
                    }
                    body.extend_from_slice(&self.line);
                    body.push(b'\n');
                }
            }
            self.keep_output();
        }
    }

    /// Waits until tmux has read this many bytes.
    fn await_printed(&mut self, pane: &str, bytes: usize) {
        while self.heard.get(pane).map_or(0, Vec::len) < bytes {
            self.read_line();
            self.keep_output();
        }
    }

    /// Creates a separate pane for a case.
    pub fn pane(&mut self, case: &Case) -> Pane<'_> {
        self.ask(&format!("set-option -g history-limit {}", case.history_limit));
        // tmux sets the new terminal's modes in the pane's process: only when that process prints
        // is this done, and they can be changed.
        let command = "stty raw -echo; printf \"\\\\r\"; exec sleep 100000";
        let made = self.ask(&format!("new-window -d -P -F '#{{pane_id}} #{{pane_tty}}' '{command}'"));
        let made = String::from_utf8(made).unwrap();
        let (pane, tty) = made.trim().split_once(' ').unwrap();
        let (pane, tty) = (pane.to_owned(), tty.to_owned());
        self.await_printed(&pane, 1);
        self.take_output(&pane);
        self.ask(&format!("resize-window -t '{pane}' -x {} -y {}", case.columns, case.rows));
        let tty = OpenOptions::new().read(true).write(true).open(tty).unwrap();
        let mut attributes = rustix::termios::tcgetattr(tty.as_fd()).unwrap();
        attributes.make_raw();
        rustix::termios::tcsetattr(tty.as_fd(), rustix::termios::OptionalActions::Now, &attributes).unwrap();
        Pane { tmux: self, tty, id: pane, written: 0, unsent: Vec::new() }
    }
}

/// A pane of the real tmux.
pub struct Pane<'a> {
    pub tmux: &'a mut Tmux,
    tty: File,
    id: String,
    written: usize,
    unsent: Vec<u8>,
}

impl Drop for Pane<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let command = format!("kill-pane -t '{}'", self.id);
            self.tmux.ask(&command);
            self.tmux.take_output(&self.id);
        }
    }
}

impl Pane<'_> {
    pub fn print(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
    }

    /// Writes everything printed since the last rest at once, so that tmux reads it at once.
    pub fn rest(&mut self) {
        self.tty.write_all(&self.unsent).unwrap();
        self.written += self.unsent.len();
        self.unsent.clear();
        self.tmux.await_printed(&self.id, self.written);
    }

    pub fn take(&mut self, step: &Step) {
        let pane = self.id.clone();
        match step {
            Step::Print(bytes) => self.print(bytes),
            Step::Rest => self.rest(),
            Step::Resize(columns, rows) => {
                self.rest();
                self.tmux.ask(&format!("resize-window -t '{pane}' -x {columns} -y {rows}"));
            }
            Step::ClearHistory => {
                self.rest();
                self.tmux.ask(&format!("clear-history -t '{pane}'"));
            }
            Step::Reset => {
                self.rest();
                self.tmux.ask(&format!("send-keys -R -t '{pane}'"));
            }
        }
    }
}

/// Applies a step to the model like to the pane.
pub fn apply(screen: &mut Screen, step: &Step) {
    match step {
        Step::Print(bytes) => screen.feed(bytes),
        Step::Rest => screen.read_ended(),
        Step::Resize(columns, rows) => screen.resize(Size { columns: *columns, rows: *rows }),
        Step::ClearHistory => {
            screen.read_ended();
            screen.clear_history();
        }
        Step::Reset => screen.reset(),
    }
}

/// Creates the model of a new pane.
pub fn model(case: &Case, version: Version) -> Screen {
    let settings = Settings { history_limit: case.history_limit, ..Settings::default() };
    Screen::new(Size { columns: case.columns, rows: case.rows }, Rules::for_version(version), settings)
}

/// Returns the captures to compare: tmux's flags, and the model's options.
fn captures(history: u32) -> Vec<(String, CaptureOptions)> {
    let all = CaptureOptions { start: Line::Edge, ..CaptureOptions::default() };
    let some = i32::try_from(history / 2).unwrap();
    vec![
        ("-S -".into(), all),
        ("-e -S -".into(), CaptureOptions { escapes: true, ..all }),
        ("-J -S -".into(), CaptureOptions { join: true, ..all }),
        ("-N -S -".into(), CaptureOptions { trailing: true, ..all }),
        ("-e -N -S -".into(), CaptureOptions { trailing: true, escapes: true, ..all }),
        (
            format!("-e -J -S -{some} -E 2"),
            CaptureOptions { start: Line::At(-some), end: Line::At(2), join: true, escapes: true, trailing: false },
        ),
        (String::new(), CaptureOptions::default()),
    ]
}

/// The captures by which a pane is compared with its model, and their commands.
pub struct Question {
    captures: Vec<(String, CaptureOptions)>,
    /// The command line.
    pub commands: Vec<String>,
}

impl Question {
    /// Creates the captures of a pane whose model has this many lines of history.
    pub fn new(pane: &str, history: u32) -> Self {
        let captures = captures(history);
        let format = "'#{cursor_x} #{cursor_y} #{history_size} #{alternate_on}'";
        let mut commands = vec![format!("display-message -p -t '{pane}' {format}")];
        commands.extend(captures.iter().map(|(flags, _)| format!("capture-pane -p -t '{pane}' {flags}")));
        Self { captures, commands }
    }

    /// Counts the captures and the known ones.
    pub fn count(&self, screen: &Screen, counts: &mut BTreeMap<String, [u64; 2]>) {
        for (flags, options) in &self.captures {
            // The line numbers belong to the case.
            let kind: Vec<_> = flags.split(' ').filter(|flag| ["-e", "-J", "-N"].contains(flag)).collect();
            let [known, all] = counts.entry(kind.join(" ")).or_default();
            *known += u64::from(screen.known(options).is_some());
            *all += 1;
        }
    }

    /// Returns the replies that differ from the model: the name of each, and the difference.
    pub fn differences(&self, replies: &[Vec<u8>], screen: &Screen) -> Vec<(&str, String)> {
        let mut found = Vec::new();
        let (fields, texts) = replies.split_first().unwrap();
        for ((flags, options), theirs) in self.captures.iter().zip(texts) {
            // Some versions report what the stream does not.
            let Some(mut ours) = screen.known(options) else { continue };
            if ours.last() == Some(&b'\n') {
                ours.pop();
            }
            if ours != *theirs {
                found.push((flags.as_str(), first_difference(&lines(&ours), &lines(theirs))));
            }
        }
        let cursor = screen.cursor();
        let ours =
            format!("{} {} {} {}", cursor.column, cursor.row, screen.history_size(), u8::from(screen.alternate()));
        let theirs = String::from_utf8_lossy(fields);
        if ours != theirs {
            found.push(("cursor", format!("\n  tmux  {theirs}\n  model {ours}")));
        }
        found
    }
}

fn first_difference(ours: &[String], theirs: &[String]) -> String {
    let at = ours.iter().zip(theirs).position(|(ours, theirs)| ours != theirs);
    let at = at.unwrap_or(ours.len().min(theirs.len()));
    format!(
        "line {at} of {} and {}:\n  tmux  {:?}\n  model {:?}",
        theirs.len(),
        ours.len(),
        theirs.get(at),
        ours.get(at)
    )
}

/// Compares the pane with the model, with joined lines or without; returns the first difference.
pub fn difference(pane: &mut Pane<'_>, screen: &Screen, joined: bool) -> Option<String> {
    pane.rest();
    let question = Question::new(&pane.id, screen.history_size());
    let counts = if screen.is_unsure() { &mut pane.tmux.restless } else { &mut pane.tmux.counts };
    question.count(screen, counts);
    let replies = pane.tmux.ask_all(&question.commands);
    let found = question.differences(&replies, screen);
    let first = found.iter().find(|(what, _)| joined || !what.contains("-J"));
    first.map(|(what, how)| format!("{what:?} {how}"))
}

fn lines(bytes: &[u8]) -> Vec<String> {
    bytes.split(|byte| *byte == b'\n').map(|line| line.escape_ascii().to_string()).collect()
}

/// Runs a case on both; returns the difference at its end.
pub fn run(tmux: &mut Tmux, case: &Case) -> Option<String> {
    let version = tmux.version;
    let mut pane = tmux.pane(case);
    let mut screen = model(case, version);
    for step in &case.steps {
        pane.take(step);
        apply(&mut screen, step);
        // Everything is printed at once, so that tmux reads it at once.
        if matches!(screen.trusted(), Err(trouble) if ![Trouble::OpenString, Trouble::Reads].contains(&trouble)) {
            return None;
        }
    }
    difference(&mut pane, &screen, true)
}

/// Returns the model of a pane from tmux's report, and the replies to further commands at the same
/// moment.
pub fn seeded(tmux: &mut Tmux, pane: PaneId, further: &[String]) -> (Option<Screen>, Vec<Vec<u8>>) {
    let mut commands: Vec<String> = seed::question(pane, Some(Rules::for_version(tmux.version)))
        .iter()
        .map(|command| String::from_utf8(command.line().unwrap()).unwrap().trim_end().to_owned())
        .collect();
    let asked = commands.len();
    commands.extend_from_slice(further);
    let mut replies = tmux.ask_all(&commands);
    let further = replies.split_off(asked);
    // A reply's last line ends as well.
    let answers: Vec<Bytes> = replies.into_iter().map(|reply| [&reply[..], b"\n"].concat().into()).collect();
    let screen = seed::parse(&answers)
        .and_then(|seed| Screen::from_seed(&seed, Rules::for_version(tmux.version), Settings::default()));
    (screen, further)
}

/// Seeds the model again like the engine does: what only the stream tells is kept.
fn seed_again(pane: &mut Pane<'_>, screen: &mut Screen) -> Option<()> {
    pane.rest();
    let mut again = seeded(pane.tmux, pane.id.parse().unwrap(), &[]).0?;
    again.take_stream_state(screen, true);
    *screen = again;
    Some(())
}

/// Runs a case whose model is seeded half way; returns the difference right after the seed, at any
/// rest of the pane, or at the end. Nothing is printed that would settle what a seed does not tell:
/// parts that the model does not claim to know are not compared, and when it reports being lost, or
/// the pane is at rest and it is uncertain, it is seeded again.
pub fn run_seeded(tmux: &mut Tmux, case: &Case) -> Option<String> {
    let mut pane = tmux.pane(case);
    let (before, after) = case.steps.split_at(case.steps.len() / 2);
    for step in before {
        pane.take(step);
    }
    pane.rest();
    let id = pane.id.parse().unwrap();
    let Some(mut screen) = seeded(pane.tmux, id, &[]).0 else { return Some("no seed".into()) };
    if let Some(difference) = difference(&mut pane, &screen, true) {
        return Some(format!("right after the seed: {difference}"));
    }
    for step in after.iter().chain([&Step::Rest]) {
        pane.take(step);
        apply(&mut screen, step);
        if matches!(screen.trusted(), Err(trouble) if trouble != Trouble::OpenString) {
            seed_again(&mut pane, &mut screen)?;
        }
        if *step == Step::Rest {
            if let Some(difference) = difference(&mut pane, &screen, true) {
                return Some(format!("after more output: {difference}"));
            }
            if screen.is_unsure() {
                seed_again(&mut pane, &mut screen)?;
                if let Some(difference) = difference(&mut pane, &screen, true) {
                    return Some(format!("seeded anew: {difference}"));
                }
            }
        }
    }
    None
}

/// Removes the steps that the difference does not need.
pub fn minimized(tmux: &mut Tmux, case: &Case, run: Run) -> Case {
    let mut case = case.clone();
    let mut size = case.steps.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < case.steps.len() {
            let mut shorter = case.clone();
            shorter.steps.drain(at..(at + size).min(shorter.steps.len()));
            if run(tmux, &shorter).is_some() {
                case = shorter;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    case
}
