//! A shell on a real tmux, and a model fed with a control client's output: programs are typed into
//! the shell, and at each checkpoint of a case all of tmux's captures are compared with the model.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    time::{Duration, Instant},
};

use muxtap::screen::{CaptureOptions, Rules, Screen, Settings, Size, Trouble};

use crate::{
    common::{World, is_installed},
    screen_random::{
        driver::{self, Question, Tmux},
        generator::{Case, Step},
        known,
    },
};

/// The time after which expected output counts as missing.
const LIMIT: Duration = Duration::from_secs(30);

const COLUMNS: u16 = 80;
const ROWS: u16 = 24;
const HISTORY: u32 = 200;

/// Captures that differ from the model's, each with its difference.
type Differences = Vec<(String, String)>;

/// A running case.
pub struct Stage {
    name: &'static str,
    tmux: Tmux,
    pane: String,
    screen: Screen,
    /// The model created from tmux's replies at the previous checkpoint.
    second: Option<Screen>,
    /// The main screen is hidden and has another size than the pane: tmux captures only the lines
    /// and history that fit, so a model seeded now cannot know what comes back.
    hidden_main: bool,
    /// Everything that has happened to the pane.
    steps: Vec<Step>,
    checkpoints: u32,
    /// The number of checkpoints at which the model differed.
    differed: u32,
    /// The model differs from the program's screen so that the case cannot continue.
    lost: bool,
    failures: Vec<String>,
    /// Captures by which a model, seeded at one checkpoint, was compared at the next, and those of
    /// them that it knew.
    from_seeds: BTreeMap<String, [u64; 2]>,
    /// The number of times that such a model reported being lost.
    lost_seeds: u32,
}

impl Stage {
    /// Creates a shell in a pane of 80x24, if the program is installed.
    pub fn new(name: &'static str, program: &str) -> Option<Self> {
        Self::with_term(name, program, "screen")
    }

    /// Creates a shell in a pane of 80x24 with another `default-terminal`, if the program is
    /// installed.
    pub fn with_term(name: &'static str, program: &str, term: &str) -> Option<Self> {
        if !is_installed(program) {
            return None;
        }
        let mut world = World::new();
        world.set("PS1", "$ ");
        world.set("PAGER", "less");
        world.set("LESSHISTFILE", "-");
        world.set("GIT_CONFIG_NOSYSTEM", "1");
        world.set("PYTHONDONTWRITEBYTECODE", "1");
        let mut tmux = Tmux::in_world(world);
        tmux.ask(&format!("set-option -g default-terminal {term}"));
        tmux.ask(&format!("set-option -g history-limit {HISTORY}"));
        let made =
            tmux.ask("new-window -d -P -F '#{pane_id} #{pane_width} #{pane_height}' 'exec bash --norc --noprofile'");
        let made = String::from_utf8(made).unwrap();
        let pane =
            made.trim().strip_suffix(&format!(" {COLUMNS} {ROWS}")).expect("the size of a new window").to_owned();
        let settings = Settings { history_limit: HISTORY, ..Settings::default() };
        let screen = Screen::new(Size { columns: COLUMNS, rows: ROWS }, Rules::for_version(tmux.version), settings);
        let mut stage = Self {
            name,
            tmux,
            pane,
            screen,
            second: None,
            hidden_main: false,
            steps: Vec::new(),
            checkpoints: 0,
            differed: 0,
            lost: false,
            failures: Vec::new(),
            from_seeds: BTreeMap::new(),
            lost_seeds: 0,
        };
        stage.prompt();
        // Content to scroll, to clear and to come back to.
        stage.run("seq -f 'line %g of what was there before' 1 60");
        stage.check("a shell");
        Some(stage)
    }

    /// Writes a file to the shell's directory.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.tmux.world.path("work").join(name), content).unwrap();
    }

    /// Allows a tmux server to run at `./s`.
    pub fn inner_socket(&self) {
        self.tmux.world.also_end(self.tmux.world.path("work").join("s"));
    }

    fn is_proven(&self) -> bool {
        Rules::for_version(self.tmux.version).proven()
    }

    /// Presses keys, as the bytes that a terminal sends.
    pub fn press(&mut self, keys: &str) {
        let mut command = format!("send-keys -t '{}' -H", self.pane);
        for byte in keys.bytes() {
            write!(command, " {byte:02x}").unwrap();
        }
        self.tmux.ask(&command);
        self.hear();
    }

    /// Presses keys and waits until the screen changes. Some programs discard text typed together
    /// with a key that they handle, so the next key must not come before the effect of this one is
    /// displayed.
    pub fn press_and_see(&mut self, keys: &str) {
        let options = CaptureOptions { escapes: true, ..CaptureOptions::default() };
        self.rest();
        let before = self.screen.capture(&options);
        self.press(keys);
        self.until(&format!("what {keys:?} does"), |screen| screen.capture(&options) != before);
    }

    /// Presses keys by tmux's names, encoded as the program requested.
    pub fn keys(&mut self, names: &str) {
        self.tmux.ask(&format!("send-keys -t '{}' {names}", self.pane));
        self.hear();
    }

    /// Feeds the models with the output that has arrived.
    fn hear(&mut self) {
        let output = self.tmux.take_output(&self.pane);
        if !output.is_empty() {
            self.screen.feed(&output);
            if let Some(second) = &mut self.second {
                second.feed(&output);
            }
            self.steps.push(Step::Print(output));
            // A program that handles a new size may leave the alternate screen and come back in one
            // piece.
            if self.screen.take_changes().alternate && self.hidden_main {
                self.hidden_main = false;
                self.second = None;
            }
        }
    }

    /// Waits until the model meets a condition.
    pub fn until(&mut self, what: &str, holds: impl Fn(&Screen) -> bool) {
        let deadline = Instant::now() + if self.is_proven() { LIMIT } else { LIMIT / 6 };
        self.hear();
        while !self.lost && !holds(&self.screen) {
            if !self.tmux.listen(deadline) {
                // If the model is wrong, this prints the difference.
                self.check(&format!("waiting for {what}"));
                let rows: Vec<_> = (0..self.screen.size().rows).map(|row| self.screen.row_text(row)).collect();
                self.failures.push(format!("{what} did not come; the model shows:\n{}", rows.join("\n")));
                self.tell();
                self.lost = true;
            }
            self.hear();
        }
    }

    /// Waits until a text is on the screen.
    pub fn shows(&mut self, text: &str) {
        self.until(&format!("{text:?}"), |screen| rows(screen).any(|row| row.contains(text)));
    }

    /// Waits until a text is no longer on the screen.
    pub fn hides(&mut self, text: &str) {
        self.until(&format!("the end of {text:?}"), |screen| !rows(screen).any(|row| row.contains(text)));
    }

    /// Waits until the cursor's row, up to the cursor, equals a text.
    pub fn cursor_after(&mut self, text: &str) {
        self.until(&format!("a cursor after {text:?}"), |screen| {
            let cursor = screen.cursor();
            row(screen, cursor.row).trim_end() == text.trim_end() && cursor.column as usize >= text.trim_end().len()
        });
    }

    /// Waits for the shell's prompt with nothing after it.
    pub fn prompt(&mut self) {
        self.until("the prompt", |screen| {
            let cursor = screen.cursor();
            !screen.alternate() && cursor.column == 2 && row(screen, cursor.row) == "$"
        });
    }

    /// Types a command at the prompt, and presses Enter once it is displayed.
    pub fn start(&mut self, command: &str) {
        self.prompt();
        self.press(command);
        // If it wraps, its last row counts.
        let whole = format!("$ {command}");
        let columns = usize::from(self.screen.size().columns);
        let last = whole.split_at(whole.len() / columns * columns).1.to_owned();
        self.cursor_after(&last);
        self.press("\r");
        self.until("Enter", |screen| screen.alternate() || row(screen, screen.cursor().row) != last);
    }

    /// Runs a command and waits for the prompt after it.
    pub fn run(&mut self, command: &str) {
        self.start(command);
        self.prompt();
    }

    /// Resizes the pane.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.tmux.ask(&format!("resize-window -t '{}' -x {columns} -y {rows}", self.pane));
        self.hear();
        self.screen.resize(Size { columns, rows });
        self.steps.push(Step::Resize(columns, rows));
        // A resize needs what a seed does not tell: which rows of the hidden main screen continue.
        self.second = None;
        self.hidden_main |= self.screen.alternate();
    }

    /// Waits until the program has drawn this many more times: it may lose a key that comes while
    /// it handles a new size.
    pub fn draws(&mut self, times: usize) {
        let deadline = Instant::now() + LIMIT;
        let wanted = self.steps.len() + times;
        while self.steps.len() < wanted && self.tmux.listen(deadline) {
            self.hear();
        }
    }

    /// Waits until the foreground program sleeps for its input: an interrupt between a prompt and
    /// the `read` after it is handled only with the next line (python's REPL). Nothing announces
    /// that, but the kernel knows.
    #[cfg(target_os = "linux")]
    pub fn reads(&mut self) {
        let shell = self.tmux.world.tmux(&["display-message", "-p", "-t", &self.pane, "#{pane_pid}"]);
        let field = |pid: &str, number: usize| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let (_, rest) = stat.rsplit_once(") ").unwrap_or_default();
            rest.split(' ').nth(number).unwrap_or_default().to_owned()
        };
        crate::common::eventually("the program sleeps", || field(&field(&shell, 5), 0) == "S");
    }

    /// Does nothing: this system does not report it.
    #[cfg(not(target_os = "linux"))]
    pub fn reads(&mut self) {}

    /// Waits until a request and its reply pass without output in between.
    pub fn rest(&mut self) {
        for _ in 0..50 {
            let before = self.steps.len();
            self.tmux.ask("display-message -p rest");
            self.hear();
            if self.steps.len() == before {
                break;
            }
        }
    }

    /// Compares; then creates a second model from tmux's report, which is compared immediately and
    /// at the next checkpoint.
    pub fn check(&mut self, checkpoint: &str) {
        if self.lost {
            return;
        }
        self.rest();
        self.screen.read_ended();
        self.steps.push(Step::Rest);
        self.checkpoints += 1;
        let (first, second) = self.compare();
        if let Some((what, how)) = first.first() {
            let reduced = if self.differed == 0 { self.reduced() } else { String::new() };
            self.differed += 1;
            self.failures.push(format!("{checkpoint}: {what:?} {how}{reduced}"));
        }
        for (what, how) in second {
            self.failures.push(format!("{checkpoint}, seeded at the checkpoint before: {what:?} {how}"));
        }
        self.seed(checkpoint);
    }

    /// Creates the second model, and compares it with replies of the same moment.
    fn seed(&mut self, checkpoint: &str) {
        let question = Question::new(&self.pane, self.screen.history_size());
        let (second, replies) = driver::seeded(&mut self.tmux, self.pane.parse().unwrap(), &question.commands);
        // Output before the replies is included in them.
        self.second = None;
        self.hear();
        self.second = second;
        let Some(second) = &self.second else {
            self.failures.push(format!("{checkpoint}: no seed"));
            return;
        };
        if let Some((what, how)) = question.differences(&replies, second).first() {
            self.failures.push(format!("{checkpoint}, right after a seed: {what:?} {how}"));
        }
    }

    /// Returns the captures in which the model, and the seeded one, differ from tmux. tmux replies
    /// to all commands at one moment, and output that it read before has arrived before the
    /// replies: this is exact also while the program prints.
    fn compare(&mut self) -> (Differences, Differences) {
        let question = Question::new(&self.pane, self.screen.history_size());
        let replies = self.tmux.ask_all(&question.commands);
        self.hear();
        let of = |screen: &Screen| {
            let found = question.differences(&replies, screen);
            found.into_iter().map(|(what, how)| (what.to_owned(), how)).collect::<Differences>()
        };
        let second = match &self.second {
            // The model itself reports being lost, because of what a seed does not tell. The engine
            // would request another seed.
            Some(second) if second.trusted().is_err_and(|trouble| trouble != Trouble::OpenString) => {
                self.lost_seeds += 1;
                None
            }
            second => second.as_ref(),
        };
        if let Some(second) = second {
            question.count(second, &mut self.from_seeds);
        }
        (of(&self.screen), second.map(of).unwrap_or_default())
    }

    /// Returns the few bytes that cause the difference, printed by a pane without a program.
    fn reduced(&mut self) -> String {
        let mut steps = Vec::new();
        for step in &self.steps {
            match step {
                Step::Print(bytes) => steps.extend(pieces(bytes).into_iter().map(Step::Print)),
                step => steps.push(step.clone()),
            }
        }
        let case = Case { columns: COLUMNS, rows: ROWS, history_limit: HISTORY, steps };
        if driver::run(&mut self.tmux, &case).is_none() {
            return "\n  the same bytes at another time make no difference".into();
        }
        let small = driver::minimized(&mut self.tmux, &case, driver::run);
        let how = driver::run(&mut self.tmux, &small).unwrap_or_default();
        let steps: String = small
            .steps
            .iter()
            .map(|step| match step {
                Step::Print(bytes) => bytes.escape_ascii().to_string(),
                step => format!("\n    {step:?}\n    "),
            })
            .collect();
        format!("\n  reduced, in {COLUMNS}x{ROWS}:\n    {steps}\n  where it differs in {how}")
    }

    /// Reports the result.
    pub fn end(self) {
        if !self.lost {
            self.tell();
        }
    }

    fn tell(&self) {
        let seeded = known(&self.from_seeds);
        println!(
            "{}: on tmux {} {} of {} checkpoints differ; seeded at the one before {seeded}, lost {}",
            self.name, self.tmux.version, self.differed, self.checkpoints, self.lost_seeds
        );
        let verdict = format!("{}:\n{}", self.name, self.failures.join("\n\n"));
        if self.is_proven() {
            assert!(self.failures.is_empty(), "{verdict}");
        } else {
            // The model is not used on this version; only its accuracy is printed.
            println!("not proven: {verdict}");
        }
    }
}

/// Returns a row's text.
pub fn row(screen: &Screen, row: u32) -> String {
    screen.row_text(u16::try_from(row).unwrap())
}

fn rows(screen: &Screen) -> impl Iterator<Item = String> {
    (0..screen.size().rows).map(|row| screen.row_text(row))
}

/// Cuts output into characters and escape sequences.
fn pieces(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    let mut rest = bytes;
    while let Some(&first) = rest.first() {
        let length = match first {
            0x1b => match rest.get(1) {
                Some(b'[') => 2 + rest[2..].iter().take_while(|byte| !(0x40..0x7f).contains(*byte)).count() + 1,
                Some(b']' | b'P' | b'k') => {
                    let end = rest[2..].iter().position(|byte| *byte == 7 || *byte == b'\\').unwrap_or(rest.len());
                    2 + end + 1
                }
                Some(b'(' | b')') => 3,
                _ => 2,
            },
            0x20..=0x7e => rest.iter().take_while(|byte| (0x20..=0x7e).contains(*byte)).count(),
            0x80.. => 1 + rest[1..].iter().take_while(|byte| (0x80..0xc0).contains(*byte)).count(),
            _ => 1,
        };
        let (piece, after) = rest.split_at(length.min(rest.len()));
        pieces.push(piece.to_vec());
        rest = after;
    }
    pieces
}
