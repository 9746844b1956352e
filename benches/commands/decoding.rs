//! The path of a pane's output into ring, text, screen and log of commands, with and without marks.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use muxtap::{
    marks::{CommandLog, Moment},
    protocol::version::Version,
    screen::{Rules, Screen, Settings, Size},
    stream::{
        ring::{NullSink, Ring},
        text::{Control, Mark, TextSink},
    },
};

use super::table::{Goal, figure, part};

/// The commands of each input: as many with marks as without.
const COMMANDS: u64 = 500;
const CHUNK: usize = 4 << 10;
const ROUNDS: u32 = 100;
/// The lines that each command prints.
const LINES: [usize; 3] = [5, 25, 250];

/// Passes marks to a log, as the engine does.
struct Logged(CommandLog, Instant);

impl TextSink for Logged {
    fn text(&mut self, _: u64, _: &[u8]) {}

    fn control(&mut self, _: u64, _: Control) {}

    fn mark(&mut self, start: u64, end: u64, mark: Mark<'_>) {
        self.0.mark(start, end, mark, Moment { unix_ms: 0, monotonic: self.1.elapsed() });
    }
}

/// Returns commands that print `lines` lines each, with or without marks.
fn output(lines: usize, marks: bool) -> Vec<u8> {
    let mark = |text: &str| if marks { format!("\x1b]133;{text};muxtap=0123456789abcdef\x07") } else { String::new() };
    let mut output = String::new();
    for number in 0..COMMANDS {
        let (prompt, input, end) = (mark("A"), mark("B"), mark("D;0"));
        let begin = mark(&format!("C;cmdline_url=make%20target-{number}"));
        output.push_str(&format!("{prompt}\x1b[32muser@host\x1b[0m:~$ {input}make target-{number}\r\n{begin}"));
        for line in 0..lines {
            output.push_str(&format!(
                "\x1b[1;32m   Compiling\x1b[0m crate-{line} v1.2.{number} (/home/user/src/{line})\r\n"
            ));
        }
        output.push_str(&end);
    }
    output.into_bytes()
}

fn feed(output: &[u8], sink: &mut dyn FnMut(&mut Ring, &mut Screen, &[u8])) -> Duration {
    let settings = Settings { history_limit: 2_000, ..Settings::default() };
    let rules = Rules::for_version(Version { major: 3, minor: 3, suffix: Some('a'), is_preview: false });
    let (mut ring, mut screen) = (Ring::new(1 << 20), Screen::new(Size { columns: 80, rows: 24 }, rules, settings));
    let start = Instant::now();
    for chunk in output.chunks(CHUNK) {
        sink(&mut ring, &mut screen, chunk);
    }
    let taken = start.elapsed();
    black_box((ring, screen));
    taken
}

fn with_log(output: &[u8]) -> Duration {
    let mut log = Logged(CommandLog::default(), Instant::now());
    log.0.trust("0123456789abcdef".to_owned());
    let taken = feed(output, &mut |ring, screen, bytes| {
        ring.push_and_draw(bytes, &mut log, screen);
        // The engine reports them.
        black_box(log.0.take_changes());
    });
    black_box(log.0);
    taken
}

fn without_log(output: &[u8]) -> Duration {
    feed(output, &mut |ring, screen, bytes| ring.push_and_draw(bytes, &mut NullSink, screen))
}

pub fn run() {
    part("Ring, text, screen and log of commands; the best of rounds in turns");
    for lines in LINES {
        let (plain, marked) = (output(lines, false), output(lines, true));
        let mut best = [Duration::MAX; 4];
        for _ in 0..ROUNDS {
            let ways = [without_log(&plain), with_log(&plain), without_log(&marked), with_log(&marked)];
            for (best, taken) in best.iter_mut().zip(ways) {
                *best = (*best).min(taken);
            }
        }
        let [plain_alone, plain_logged, marked_alone, marked_logged] = best.map(|taken| taken.as_secs_f64() * 1e6);
        let commands = COMMANDS as f64;
        figure(
            &format!("{lines} lines a command: a command's output, no marks"),
            plain_alone / commands,
            "us",
            Goal::None,
        );
        figure("    without marks: with the log / without", plain_logged / plain_alone, "x", Goal::AtMost(1.03));
        figure("    with marks and log / without both", marked_logged / plain_alone, "x", Goal::AtMost(1.03));
        figure("    a command's marks, parsed", (marked_alone - plain_alone) / commands, "us", Goal::None);
        figure("    a command's marks, logged", (marked_logged - marked_alone) / commands, "us", Goal::None);
    }
}
