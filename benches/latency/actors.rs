//! The programs that run in panes: this bench under other arguments.

use std::{
    fs::File,
    io::{BufRead, BufReader, BufWriter, Write, stdout},
    path::Path,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

/// The bytes that a flood prints, without the terminal's line ends.
pub const FLOOD_BYTES: usize = 60_000_000;
/// The bytes of its lines, with the line end.
pub const LINE: usize = 100;

/// Returns the time since the machine started; all processes share this clock.
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs the actor that the arguments name, if they name one.
pub fn act(args: &[String]) -> bool {
    match args {
        [part, fifo] if part == "__marker" => mark(Path::new(fifo)),
        [part, fifo] if part == "__flood" => flood(Path::new(fifo)),
        [part, fifo] if part == "__steady" => steady(Path::new(fifo)),
        [part, fifo] if part == "__printer" => printer(Path::new(fifo)),
        _ => return false,
    }
    true
}

/// For each line `ID MICROSECONDS` of the FIFO: sleeps for that time, then prints
/// `<ID NANOSECONDS-OF-NOW>`.
fn mark(fifo: &Path) {
    for line in lines(fifo) {
        let (id, delay) = line.split_once(' ').expect("ID MICROSECONDS");
        std::thread::sleep(Duration::from_micros(delay.parse().expect("a number")));
        let text = format!("<{id} {}>\n", now().as_nanos());
        stdout().write_all(text.as_bytes()).expect("the pane is there");
    }
}

/// For each line ID of the FIFO: prints numbered lines, then `<ID NANOSECONDS-OF-NOW>`.
fn flood(fifo: &Path) {
    for id in lines(fifo) {
        // Written like a program that prints fast: some KiB at once.
        let mut out = BufWriter::with_capacity(16 * 1024, File::create("/dev/tty").expect("a terminal"));
        let padding = "x".repeat(LINE - 12);
        for number in 0..FLOOD_BYTES / LINE {
            writeln!(out, "{number:010} {padding}").expect("the pane is there");
        }
        writeln!(out, "<{id} {}>", now().as_nanos()).expect("the pane is there");
        out.flush().expect("the pane is there");
    }
}

/// For each line `LINES BURST MICROSECONDS` of the FIFO, prints LINES markers
/// `<NUMBER NANOSECONDS-OF-NOW>`, a burst at a time.
fn steady(fifo: &Path) {
    for line in lines(fifo) {
        let mut numbers = line.split(' ').map(|number| number.parse::<u64>().expect("a number"));
        let mut number = || numbers.next().expect("LINES BURST MICROSECONDS");
        let (lines, burst, pause) = (number(), number(), Duration::from_micros(number()));
        for first in (0..lines).step_by(burst as usize) {
            let mut text = String::new();
            for number in first..first + burst {
                let _ = std::fmt::Write::write_fmt(&mut text, format_args!("<{number} {}>\n", now().as_nanos()));
            }
            stdout().write_all(text.as_bytes()).expect("the pane is there");
            std::thread::sleep(pause);
        }
    }
}

/// For each line `LINES PAUSE BEGIN MARK` of the FIFO, prints a line each PAUSE, by the clock:
/// LINES of them from the monotonic time BEGIN on (times in nanoseconds), or as fast as possible if
/// PAUSE is 0. Of each hundred, the line number MARK is a marker `<NUMBER NANOSECONDS-OF-NOW>`.
fn printer(fifo: &Path) {
    let mut marks = 0;
    let mut out = BufWriter::with_capacity(16 * 1024, File::create("/dev/tty").expect("a terminal"));
    for line in lines(fifo) {
        let mut numbers = line.split(' ').map(|number| number.parse::<u64>().expect("a number"));
        let mut number = || numbers.next().expect("LINES PAUSE BEGIN MARK");
        let (lines, pause, begin, mark) = (number(), number(), number(), number());
        for number in 0..lines {
            // By the clock: a late line does not delay those after it.
            let due = Duration::from_nanos(begin + number * pause);
            std::thread::sleep(due.saturating_sub(now()));
            let text = if number % 100 == mark {
                marks += 1;
                format!("<{marks} {}>\n", now().as_nanos())
            } else {
                format!("{number:08}   Compiling something-with-a-name v0.12.34 (of a build that goes on)\n")
            };
            out.write_all(text.as_bytes()).expect("the pane is there");
            if pause > 0 {
                out.flush().expect("the pane is there");
            }
        }
        out.flush().expect("the pane is there");
    }
}

fn lines(fifo: &Path) -> impl Iterator<Item = String> {
    // Opened for writing too, so that it never ends.
    let file = File::options().read(true).write(true).open(fifo).expect("the FIFO was made");
    BufReader::new(file).lines().map_while(Result::ok)
}
