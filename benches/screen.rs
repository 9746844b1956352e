//! The screen model beside two general terminal emulators: its throughput, the cost of a capture,
//! and the memory of a full history.
//!
//! `cargo bench --bench screen` prints a table with the goals beside; `-- listing` only the inputs
//! with this in their names. The exit status is always 0. Ratios are from one run on one thread, in
//! which the three take turns: the best of several rounds counts.

#![allow(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    missing_docs,
    reason = "a bench prints its figures and has no readers but this file"
)]

#[path = "screen/inputs.rs"]
mod inputs;
#[path = "table/mod.rs"]
mod table;

use std::{
    alloc::System,
    hint::black_box,
    num::NonZero,
    time::{Duration, Instant},
};

use alacritty_terminal::{
    event::VoidListener,
    grid::Dimensions,
    term::{Config, Term},
    vte::ansi::Processor,
};
use inputs::Input;
use muxtap::screen::{CaptureOptions, Line, Rules, Screen, Settings, Size};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use table::{Goal, figure, part};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const HISTORY: u32 = 10_000;
const ROUNDS: u32 = 7;
/// The bytes of a chunk, about as many as tmux puts into a line.
const CHUNK: usize = 4 << 10;

/// Columns and rows.
#[derive(Clone, Copy)]
struct Sides(u16, u16);

impl Dimensions for Sides {
    fn total_lines(&self) -> usize {
        self.screen_lines()
    }

    fn screen_lines(&self) -> usize {
        usize::from(self.1)
    }

    fn columns(&self) -> usize {
        usize::from(self.0)
    }
}

const SCREEN: Sides = Sides(80, 24);

fn muxtap(sides: Sides, input: &Input) -> Screen {
    let settings = Settings { history_limit: HISTORY, ..Settings::default() };
    let size = Size { columns: sides.0, rows: sides.1 };
    let mut screen = Screen::new(size, Rules::for_version(input.version), settings);
    for chunk in input.bytes.chunks(CHUNK) {
        screen.feed(chunk);
    }
    screen
}

fn alacritty(sides: Sides, input: &[u8]) -> Term<VoidListener> {
    let config = Config { scrolling_history: HISTORY as usize, ..Config::default() };
    let mut term = Term::new(config, &sides, VoidListener);
    let mut processor: Processor = Processor::new();
    for chunk in input.chunks(CHUNK) {
        processor.advance(&mut term, chunk);
    }
    term
}

fn vt100(sides: Sides, input: &[u8]) -> vt100::Parser {
    let side = |side| NonZero::new(side).unwrap_or(NonZero::<u16>::MIN);
    let mut parser = vt100::Parser::new(side(sides.1), side(sides.0), HISTORY as usize);
    for chunk in input.chunks(CHUNK) {
        parser.process(chunk);
    }
    parser
}

/// Returns the time that `work` takes; its result is dropped outside of it.
fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    let made = black_box(work());
    let taken = start.elapsed();
    drop(made);
    taken
}

/// Prints MB/s of each, the best of several rounds in which they take turns.
fn feeding(input: &Input) {
    let bytes = &input.bytes;
    let mut best = [Duration::MAX; 3];
    for _ in 0..ROUNDS {
        let taken =
            [timed(|| muxtap(SCREEN, input)), timed(|| alacritty(SCREEN, bytes)), timed(|| vt100(SCREEN, bytes))];
        for (best, taken) in best.iter_mut().zip(taken) {
            *best = (*best).min(taken);
        }
    }
    let [ours, alacritty, vt100] = best.map(|taken| bytes.len() as f64 / taken.as_secs_f64() / 1e6);
    figure(&format!("{}: muxtap", input.name), ours, "MB/s", Goal::None);
    figure("    alacritty_terminal", alacritty, "MB/s", Goal::None);
    figure("    vt100", vt100, "MB/s", Goal::None);
    figure("    muxtap by the faster of them", ours / alacritty.max(vt100), "x", Goal::AtLeast(1.0));
}

/// Prints the microseconds of a capture of the visible screen.
fn capturing(name: &str, screen: &Screen, options: CaptureOptions, goal: Goal) {
    const TIMES: u32 = 200;
    let best = (0..50)
        .map(|_| timed(|| (0..TIMES).for_each(|_| drop(black_box(screen.capture(black_box(&options)))))))
        .min()
        .unwrap_or_default();
    figure(name, best.as_secs_f64() * 1e6 / f64::from(TIMES), "us", goal);
}

/// Returns the bytes held by the result of `work`, and the result.
fn held<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let region = Region::new(ALLOCATOR);
    let made = black_box(work());
    let change = region.change();
    let held = change.bytes_allocated as f64 - change.bytes_deallocated as f64;
    (held, made)
}

fn memory(input: &Input) {
    const SIDES: Sides = Sides(120, 40);
    let (ours, screen) = held(|| muxtap(SIDES, input));
    let (alacritty, _term) = held(|| alacritty(SIDES, &input.bytes));
    let (vt100, _parser) = held(|| vt100(SIDES, &input.bytes));
    let all = CaptureOptions { start: Line::Edge, ..CaptureOptions::default() };
    let text = screen.capture(&all).len() as f64;
    let history = screen.history_size();
    figure("lines in the history", f64::from(history), "", Goal::None);
    figure("their text", text / 1e6, "MB", Goal::None);
    figure("muxtap", ours / 1e6, "MB", Goal::None);
    figure("alacritty_terminal", alacritty / 1e6, "MB", Goal::None);
    figure("vt100", vt100 / 1e6, "MB", Goal::None);
    figure("muxtap by alacritty_terminal", ours / alacritty, "x", Goal::AtMost(0.2));
    figure("what muxtap says it holds, by what it holds", screen.memory() as f64 / ours, "x", Goal::None);
    let all = CaptureOptions { start: Line::Edge, escapes: true, ..CaptureOptions::default() };
    let taken = (0..10).map(|_| timed(|| screen.capture(&all))).min().unwrap_or_default();
    figure("capture of all of it, with -e", taken.as_secs_f64() * 1e6, "us", Goal::None);
}

fn main() {
    let named: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let mut inputs = inputs::all();
    inputs.retain(|input| named.is_empty() || named.iter().any(|name| input.name.contains(name)));
    table::heading();
    part("Feeding, 80x24 with a history of 10,000 lines");
    for input in &inputs {
        feeding(input);
    }
    part("Capture of a full screen of 80x24");
    for input in &inputs {
        let screen = muxtap(SCREEN, input);
        let styled = CaptureOptions { escapes: true, ..CaptureOptions::default() };
        capturing(&input.name, &screen, CaptureOptions::default(), Goal::AtMost(10.0));
        capturing("    with -e", &screen, styled, Goal::AtMost(10.0));
    }
    part("Memory of a coloured build's output, 120x40 with a full history of 10,000 lines");
    memory(&inputs::build());
}
