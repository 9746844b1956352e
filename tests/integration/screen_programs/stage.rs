//! A shell on a real tmux and a model that is fed with what a control client hears of it: programs are typed into the
//! shell, and wherever a case says so everything that tmux captures is compared with the model.

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

/// A program that does not show what was expected after so long does not do it at all.
const LIMIT: Duration = Duration::from_secs(30);

const COLUMNS: u16 = 80;
const ROWS: u16 = 24;
const HISTORY: u32 = 200;

/// Captures that differ from the model's, each with how it differs.
type Differences = Vec<(String, String)>;

/// A case while it runs.
pub struct Stage {
    name: &'static str,
    tmux: Tmux,
    pane: String,
    screen: Screen,
    /// The model that was made from tmux's answers at the checkpoint before.
    second: Option<Screen>,
    /// The main screen is hidden and has another size than the pane: tmux captures no more of its lines and of the
    /// history than fits, so a model that is seeded now cannot know what comes back.
    hidden_main: bool,
    /// All that has happened to the pane.
    steps: Vec<Step>,
    checkpoints: u32,
    /// Checkpoints at which the model differed.
    differed: u32,
    /// The model shows something else than the program, so that the case cannot go on.
    lost: bool,
    failures: Vec<String>,
    /// Captures that a model, seeded at one checkpoint, was compared by at the next, and those of them that it knew.
    from_seeds: BTreeMap<String, [u64; 2]>,
    /// Times that such a model said that it was lost.
    lost_seeds: u32,
}

impl Stage {
    /// A shell in a pane of 80x24, if the program is installed.
    pub fn new(name: &'static str, program: &str) -> Option<Self> {
        Self::with_term(name, program, "screen")
    }

    /// A shell in a pane of 80x24 with another `default-terminal`, if the program is installed.
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
        // Something to scroll, to clear and to come back to.
        stage.run("seq -f 'line %g of what was there before' 1 60");
        stage.check("a shell");
        Some(stage)
    }

    /// Puts a file into the directory in which the shell stands.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.tmux.world.path("work").join(name), content).unwrap();
    }

    /// A tmux server may run at `./s`.
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

    /// Presses keys, and waits until the screen looks otherwise. Some programs throw away what is
    /// typed together with a key that they take, so the next key must not come before this one
    /// shows.
    pub fn press_and_see(&mut self, keys: &str) {
        let options = CaptureOptions { escapes: true, ..CaptureOptions::default() };
        self.rest();
        let before = self.screen.capture(&options);
        self.press(keys);
        self.until(&format!("what {keys:?} does"), |screen| screen.capture(&options) != before);
    }

    /// Presses keys by tmux's names for them, as the program asked the terminal to send them.
    pub fn keys(&mut self, names: &str) {
        self.tmux.ask(&format!("send-keys -t '{}' {names}", self.pane));
        self.hear();
    }

    /// Feeds the models with what has come.
    fn hear(&mut self) {
        let output = self.tmux.take_output(&self.pane);
        if !output.is_empty() {
            self.screen.feed(&output);
            if let Some(second) = &mut self.second {
                second.feed(&output);
            }
            self.steps.push(Step::Print(output));
            // A program that takes a new size may leave the alternate screen and come back in one piece.
            if self.screen.take_changes().alternate && self.hidden_main {
                self.hidden_main = false;
                self.second = None;
            }
        }
    }

    /// Waits until the model shows something.
    pub fn until(&mut self, what: &str, holds: impl Fn(&Screen) -> bool) {
        let deadline = Instant::now() + if self.is_proven() { LIMIT } else { LIMIT / 6 };
        self.hear();
        while !self.lost && !holds(&self.screen) {
            if !self.tmux.listen(deadline) {
                // If the model is what is wrong, this says how.
                self.check(&format!("waiting for {what}"));
                let rows: Vec<_> = (0..self.screen.size().rows).map(|row| self.screen.row_text(row)).collect();
                self.failures.push(format!("{what} did not come; the model shows:\n{}", rows.join("\n")));
                self.tell();
                self.lost = true;
            }
            self.hear();
        }
    }

    /// Waits until a text stands on the screen.
    pub fn shows(&mut self, text: &str) {
        self.until(&format!("{text:?}"), |screen| rows(screen).any(|row| row.contains(text)));
    }

    /// Waits until a text stands on the screen no more.
    pub fn hides(&mut self, text: &str) {
        self.until(&format!("the end of {text:?}"), |screen| !rows(screen).any(|row| row.contains(text)));
    }

    /// Waits until the cursor's row, up to the cursor, is a text.
    pub fn cursor_after(&mut self, text: &str) {
        self.until(&format!("a cursor after {text:?}"), |screen| {
            let cursor = screen.cursor();
            row(screen, cursor.row).trim_end() == text.trim_end() && cursor.column as usize >= text.trim_end().len()
        });
    }

    /// Waits for the shell's prompt with nothing behind it.
    pub fn prompt(&mut self) {
        self.until("the prompt", |screen| {
            let cursor = screen.cursor();
            !screen.alternate() && cursor.column == 2 && row(screen, cursor.row) == "$"
        });
    }

    /// Types a command at the prompt, and presses Enter when it stands there.
    pub fn start(&mut self, command: &str) {
        self.prompt();
        self.press(command);
        // Where it wraps, its last row counts.
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

    /// Gives the pane another size.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.tmux.ask(&format!("resize-window -t '{}' -x {columns} -y {rows}", self.pane));
        self.hear();
        self.screen.resize(Size { columns, rows });
        self.steps.push(Step::Resize(columns, rows));
        // What a seed does not tell, a resize needs: which rows of the hidden main screen go on.
        self.second = None;
        self.hidden_main |= self.screen.alternate();
    }

    /// Waits until the program has drawn so many times more: a key that comes while it takes a new
    /// size may be lost to it.
    pub fn draws(&mut self, times: usize) {
        let deadline = Instant::now() + LIMIT;
        let wanted = self.steps.len() + times;
        while self.steps.len() < wanted && self.tmux.listen(deadline) {
            self.hear();
        }
    }

    /// Waits until the program in the foreground sleeps, for its input: an interrupt between a
    /// prompt and the `read` after it is taken only with the next line (python's REPL). Nothing
    /// announces that, but the kernel knows.
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

    /// Cannot be told.
    #[cfg(not(target_os = "linux"))]
    pub fn reads(&mut self) {}

    /// Waits until a question and its answer pass without output in between.
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

    /// Compares; then makes a second model from what tmux tells, which is compared at once and at the next checkpoint.
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

    /// Makes the second model, and compares it with answers of the same moment.
    fn seed(&mut self, checkpoint: &str) {
        let question = Question::new(&self.pane, self.screen.history_size());
        let (second, replies) = driver::seeded(&mut self.tmux, self.pane.parse().unwrap(), &question.commands);
        // What came before the answers is in them.
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

    /// Captures that the model and the seeded one have otherwise than tmux. tmux replies to all
    /// commands at one moment, and output that it read before that has come before the replies:
    /// this is exact also while the program prints.
    fn compare(&mut self) -> (Differences, Differences) {
        let question = Question::new(&self.pane, self.screen.history_size());
        let replies = self.tmux.ask_all(&question.commands);
        self.hear();
        let of = |screen: &Screen| {
            let found = question.differences(&replies, screen);
            found.into_iter().map(|(what, how)| (what.to_owned(), how)).collect::<Differences>()
        };
        let second = match &self.second {
            // It says itself that it is lost: what a seed does not tell. The engine asks for another.
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

    /// The few bytes that make the difference, printed by a pane without a program.
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

    /// Says what was found.
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
            // The model is not used there: it is told how far it is.
            println!("not proven: {verdict}");
        }
    }
}

/// A row's text.
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
