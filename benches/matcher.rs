//! Streaming match: four patterns and one, on 16 MiB of a build's output, plain and colored, in
//! chunks of 4 KiB.

#![allow(clippy::unwrap_used, missing_docs, reason = "a bench that cannot start may panic")]

use divan::{Bencher, counter::BytesCount};
use muxtap::stream::{
    matcher::{Matcher, Verdict},
    patterns::{Limits, PatternSet, PatternSpec},
    text::{Control, TextSink},
};

const SIZE: usize = 16 << 20;
const CHUNK: usize = 4 << 10;

const LITERAL: &[&str] = &["error: .*", "BUILD (?:OK|FAILED)", "panicked at", "test result: .*"];
const CLASSES: &[&str] = &["(?i)fatal.*", r"\d+ passed; \d+ failed", "^make: ", "[A-Z]+ENOENT"];
const WORDS: &[&str] = &[r"\bDONE\b"];

/// An event of the decoder: text, or the events between texts.
enum Event {
    Text(u64, Vec<u8>),
    Control(u64, Control),
}

/// Returns the decoder's events for a build's output, chunk by chunk.
fn build_output(coloured: bool) -> Vec<Vec<Event>> {
    let (mut chunks, mut chunk, mut at, mut begun) = (Vec::new(), Vec::new(), 0, 0);
    for line in 0_u64.. {
        let parts: &[String] = &[
            "   Compiling".to_owned(),
            format!(" crate-number-{} v{}.{}.{}", line % 977, line % 7, line % 13, line % 31),
            format!(" (/home/user/src/workspace/member-{})", line % 41),
        ];
        for part in parts {
            chunk.push(Event::Text(at, part.clone().into_bytes()));
            at += part.len() as u64 + if coloured { 9 } else { 0 };
        }
        chunk.push(Event::Control(at, Control::CarriageReturn));
        chunk.push(Event::Control(at + 1, Control::LineFeed));
        at += 2;
        if at - begun >= CHUNK as u64 {
            chunks.push(std::mem::take(&mut chunk));
            begun = at;
        }
        if at >= SIZE as u64 {
            break;
        }
    }
    chunks
}

fn run(bencher: Bencher<'_, '_>, patterns: &[&str], coloured: bool) {
    let specs: Vec<PatternSpec> = patterns.iter().map(|text| PatternSpec::new(*text)).collect();
    let set = PatternSet::new(&specs, &Limits::default()).unwrap();
    let chunks = build_output(coloured);
    bencher.counter(BytesCount::new(SIZE)).with_inputs(|| Matcher::new(set.clone())).bench_local_refs(|matcher| {
        for chunk in &chunks {
            for event in chunk {
                match event {
                    Event::Text(offset, text) => matcher.text(*offset, text),
                    Event::Control(offset, control) => matcher.control(*offset, *control),
                }
            }
            assert!(matcher.end_of_chunk(&mut |_| Verdict::Accept).is_empty());
        }
    });
}

#[divan::bench(args = [false, true])]
fn four_literals(bencher: Bencher<'_, '_>, coloured: bool) {
    run(bencher, LITERAL, coloured);
}

#[divan::bench(args = [false, true])]
fn four_classes(bencher: Bencher<'_, '_>, coloured: bool) {
    run(bencher, CLASSES, coloured);
}

#[divan::bench(args = [false, true])]
fn one_literal(bencher: Bencher<'_, '_>, coloured: bool) {
    run(bencher, LITERAL.get(..1).unwrap(), coloured);
}

#[divan::bench(args = [false, true])]
fn one_class(bencher: Bencher<'_, '_>, coloured: bool) {
    run(bencher, CLASSES.get(1..2).unwrap(), coloured);
}

#[divan::bench(args = [false, true])]
fn one_word(bencher: Bencher<'_, '_>, coloured: bool) {
    run(bencher, WORDS, coloured);
}

/// Measures compiling: from a set's text to a matcher.
#[divan::bench]
fn compile_four(bencher: Bencher<'_, '_>) {
    let specs: Vec<PatternSpec> = CLASSES.iter().map(|text| PatternSpec::new(*text)).collect();
    bencher.bench(|| Matcher::new(PatternSet::new(&specs, &Limits::default()).unwrap()));
}

fn main() {
    divan::main();
}
