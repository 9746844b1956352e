//! The screen model beside three general terminal emulators: its throughput, the cost of a capture,
//! and the memory of a full history.
//!
//! `cargo bench --no-default-features --bench screen` prints a table with the goals beside; `-- listing`
//! only the inputs with this in their names. The exit status is always 0. All run on one thread and take
//! turns, several times. The least time of each slice of the input counts: few slices are interrupted in
//! every round. The bench profile compiles the others for speed, as muxtap is.

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
use muxtap::{
    screen::{CaptureOptions, Line, Rules, Screen, Settings, Size},
    stream::ring::{NullSink, Ring},
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use table::{Goal, figure, part};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const HISTORY: u32 = 10_000;
const ROUNDS: u32 = 9;
/// The bytes of each input that are fed in a round.
const BYTES: usize = 2 << 20;
/// The bytes of a slice, which is timed.
const SLICE: usize = 32 << 10;
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

fn new_muxtap(sides: Sides, input: &Input) -> Screen {
    let settings = Settings { history_limit: HISTORY, ..Settings::default() };
    let size = Size { columns: sides.0, rows: sides.1 };
    Screen::new(size, Rules::for_version(input.version), settings)
}

fn new_alacritty(sides: Sides) -> Term<VoidListener> {
    let config = Config { scrolling_history: HISTORY as usize, ..Config::default() };
    Term::new(config, &sides, VoidListener)
}

fn new_vt100(sides: Sides) -> vt100::Parser {
    let side = |side| NonZero::new(side).unwrap_or(NonZero::<u16>::MIN);
    vt100::Parser::new(side(sides.1), side(sides.0), HISTORY as usize)
}

fn new_avt(sides: Sides) -> Option<avt::Terminal> {
    avt::Terminal::with_scrollback(sides.0.into(), sides.1.into(), Some(HISTORY as usize)).ok()
}

fn muxtap(sides: Sides, input: &Input) -> Screen {
    let mut screen = new_muxtap(sides, input);
    chunks(&input.bytes, CHUNK).for_each(|chunk| screen.feed(chunk.as_bytes()));
    screen
}

fn alacritty(sides: Sides, input: &[u8]) -> Term<VoidListener> {
    let mut term = new_alacritty(sides);
    let mut processor: Processor = Processor::new();
    chunks(input, CHUNK).for_each(|chunk| processor.advance(&mut term, chunk.as_bytes()));
    term
}

fn vt100(sides: Sides, input: &[u8]) -> vt100::Parser {
    let mut parser = new_vt100(sides);
    chunks(input, CHUNK).for_each(|chunk| parser.process(chunk.as_bytes()));
    parser
}

fn avt(sides: Sides, input: &[u8]) -> Option<avt::Terminal> {
    let mut terminal = new_avt(sides)?;
    chunks(input, CHUNK).for_each(|chunk| terminal.feed(chunk));
    Some(terminal)
}

/// Cuts text into chunks of nearly `size` bytes. avt takes whole characters, so the others get them too.
fn chunks(bytes: &[u8], size: usize) -> impl Iterator<Item = &str> {
    let mut rest = std::str::from_utf8(bytes).unwrap_or_default();
    std::iter::from_fn(move || {
        let end = (0..=size.min(rest.len())).rev().find(|end| rest.is_char_boundary(*end)).unwrap_or(0);
        let (chunk, after) = rest.split_at_checked(end).filter(|_| end > 0)?;
        rest = after;
        Some(chunk)
    })
}

/// Returns the time that `work` takes; its result is dropped outside of it.
fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    let made = black_box(work());
    let taken = start.elapsed();
    drop(made);
    taken
}

/// A function that feeds a chunk to a screen.
type Feed<'a> = Box<dyn FnMut(&str) + 'a>;

/// Prints MB/s of each, by the least time of each slice in several rounds in which they take turns.
fn feeding(input: &Input) {
    let (mut screen, mut drawn, mut ring) = (new_muxtap(SCREEN, input), new_muxtap(SCREEN, input), Ring::new(1 << 20));
    let (mut term, mut processor): (_, Processor) = (new_alacritty(SCREEN), Processor::new());
    let (mut parser, Some(mut terminal)) = (new_vt100(SCREEN), new_avt(SCREEN)) else { return };
    let mut ways: [(&str, Feed<'_>); 5] = [
        ("muxtap", Box::new(|text| screen.feed(text.as_bytes()))),
        ("alacritty_terminal", Box::new(|text| processor.advance(&mut term, text.as_bytes()))),
        ("avt", Box::new(|text| terminal.feed(text))),
        ("vt100", Box::new(|text| parser.process(text.as_bytes()))),
        ("muxtap with ring and text", Box::new(|text| ring.push_and_draw(text.as_bytes(), &mut NullSink, &mut drawn))),
    ];
    let slices: Vec<Vec<&str>> = chunks(&input.bytes, SLICE)
        .take(BYTES / SLICE)
        .map(|slice| chunks(slice.as_bytes(), CHUNK).collect())
        .collect();
    let mut best = vec![[Duration::MAX; 5]; slices.len()];
    for _ in 0..ROUNDS {
        // Each feeds all slices before the next one: what the others hold would displace it from the caches.
        for (at, (_, feed)) in ways.iter_mut().enumerate() {
            for (slice, best) in slices.iter().zip(&mut best) {
                let taken = timed(|| slice.iter().for_each(|chunk| feed(chunk)));
                if let Some(best) = best.get_mut(at) {
                    *best = (*best).min(taken);
                }
            }
        }
    }
    let length: usize = slices.iter().flatten().map(|chunk| chunk.len()).sum();
    let mut speeds = [0.0; 5];
    for (at, (speed, (name, _))) in speeds.iter_mut().zip(&ways).enumerate() {
        let taken: Duration = best.iter().filter_map(|slice| slice.get(at)).sum();
        *speed = length as f64 / taken.as_secs_f64() / 1e6;
        let name = if at == 0 { format!("{}: {name}", input.name) } else { format!("    {name}") };
        figure(&name, *speed, "MB/s", Goal::None);
    }
    let [ours, alacritty, avt, vt100, whole] = speeds;
    let other = alacritty.max(avt).max(vt100);
    figure("    muxtap by the fastest of the others", ours / other, "x", Goal::AtLeast(1.0));
    figure("    with ring and text by the fastest of all four", whole / ours.max(other), "x", Goal::AtLeast(0.8));
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
    let (ours, mut screen) = held(|| muxtap(SIDES, input));
    let (alacritty, _term) = held(|| alacritty(SIDES, &input.bytes));
    let (avt, _terminal) = held(|| avt(SIDES, &input.bytes));
    let (vt100, _parser) = held(|| vt100(SIDES, &input.bytes));
    let all = CaptureOptions { start: Line::Edge, ..CaptureOptions::default() };
    let text = screen.capture(&all).len() as f64;
    let history = screen.history_size();
    figure("lines in the history", f64::from(history), "", Goal::None);
    figure("their text", text / 1e6, "MB", Goal::None);
    figure("muxtap", ours / 1e6, "MB", Goal::None);
    figure("alacritty_terminal", alacritty / 1e6, "MB", Goal::None);
    figure("avt", avt / 1e6, "MB", Goal::None);
    figure("vt100", vt100 / 1e6, "MB", Goal::None);
    figure("muxtap by alacritty_terminal", ours / alacritty, "x", Goal::AtMost(0.2));
    figure("what muxtap says it holds, by what it holds", screen.memory() as f64 / ours, "x", Goal::None);
    let all = CaptureOptions { start: Line::Edge, escapes: true, ..CaptureOptions::default() };
    let taken = (0..10).map(|_| timed(|| screen.capture(&all))).min().unwrap_or_default();
    figure("capture of all of it, with -e", taken.as_secs_f64() * 1e6, "us", Goal::None);
    while screen.compress_next() {}
    let rests = screen.memory() as f64;
    figure("muxtap at rest", rests / 1e6, "MB", Goal::None);
    figure("    by the lines in the history", rests / f64::from(history), "bytes", Goal::AtMost(20.0));
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
