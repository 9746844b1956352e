//! A pane's output into its ring, text and screen: one parse for both beside one parse for each.
//!
//! `cargo bench --no-default-features --bench pipeline` prints a table; `-- listing` that of the inputs
//! with this in their names. The four ways take turns in one run on one thread, the best of many short
//! rounds counts: the ratios hold on a busy machine too. The exit status is 0 whatever the figures are.

#![allow(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    missing_docs,
    reason = "a bench prints its figures and has no readers but this file"
)]

#[path = "screen/inputs.rs"]
#[allow(dead_code, reason = "the bench of the screen alone feeds a build, too")]
mod inputs;
#[path = "table/mod.rs"]
#[allow(dead_code, reason = "goals of other benches")]
mod table;

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use inputs::Input;
use muxtap::{
    screen::{Rules, Screen, Settings, Size},
    stream::ring::{NullSink, Ring},
};
use table::{Goal, figure, part};

/// Bytes of an input that are fed in a round: few, since a round that another program interrupts does
/// not count.
const BYTES: usize = 96 << 10;
const ROUNDS: u32 = 200;
/// Bytes at once: a few lines, and about as many as tmux puts into a line.
const CHUNKS: [usize; 2] = [200, 4 << 10];

fn screen(input: &Input) -> Screen {
    let settings = Settings { history_limit: 10_000, ..Settings::default() };
    Screen::new(Size { columns: 80, rows: 24 }, Rules::for_version(input.version), settings)
}

fn chunks(input: &Input, chunk: usize) -> impl Iterator<Item = &[u8]> {
    input.bytes.get(..BYTES).unwrap_or(&input.bytes).chunks(chunk)
}

fn text(input: &Input, chunk: usize) {
    let mut ring = Ring::new(1 << 20);
    chunks(input, chunk).for_each(|bytes| ring.push(bytes, &mut NullSink));
    black_box(ring);
}

fn drawn(input: &Input, chunk: usize) {
    let mut screen = screen(input);
    chunks(input, chunk).for_each(|bytes| screen.feed(bytes));
    black_box(screen);
}

fn in_turn(input: &Input, chunk: usize) {
    let (mut ring, mut screen) = (Ring::new(1 << 20), screen(input));
    for bytes in chunks(input, chunk) {
        ring.push(bytes, &mut NullSink);
        screen.feed(bytes);
    }
    black_box((ring, screen));
}

fn at_once(input: &Input, chunk: usize) {
    let (mut ring, mut screen) = (Ring::new(1 << 20), screen(input));
    chunks(input, chunk).for_each(|bytes| ring.push_and_draw(bytes, &mut NullSink, &mut screen));
    black_box((ring, screen));
}

fn measure(input: &Input, chunk: usize) {
    let ways: [fn(&Input, usize); 4] = [text, drawn, in_turn, at_once];
    let mut best = [Duration::MAX; 4];
    for _ in 0..ROUNDS {
        for (best, way) in best.iter_mut().zip(ways) {
            let start = Instant::now();
            way(input, chunk);
            *best = (*best).min(start.elapsed());
        }
    }
    let length = input.bytes.len().min(BYTES) as f64;
    let [text, drawn, in_turn, at_once] = best.map(|taken| length / taken.as_secs_f64() / 1e6);
    figure(&format!("{}, {chunk} bytes at once: text", input.name), text, "MB/s", Goal::None);
    figure("    screen", drawn, "MB/s", Goal::None);
    figure("    text, then screen", in_turn, "MB/s", Goal::None);
    figure("    both in one parse", at_once, "MB/s", Goal::None);
    figure("    time of one parse by that of two", in_turn / at_once, "x", Goal::AtMost(1.03));
}

fn main() {
    let named: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let mut inputs = inputs::all();
    inputs.retain(|input| named.is_empty() || named.iter().any(|name| input.name.contains(name)));
    table::heading();
    for chunk in CHUNKS {
        part(&format!("A ring of 1 MiB without watchers, and a screen of 80x24, {chunk} bytes at once"));
        for input in &inputs {
            measure(input, chunk);
        }
    }
}
