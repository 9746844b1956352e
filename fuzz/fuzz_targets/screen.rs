//! The screen model with any bytes, chunking, sizes and resizes: nothing panics, memory stays
//! bounded, and chunking changes nothing.
//!
//! The input is: columns, rows, a history limit, the size of the chunks, a byte whose bits select
//! the version and the options, then the stream. In the stream 0xf8 to 0xff, which no program
//! prints, are a resize (two bytes follow), `clear-history`, a reset and a check of its content.

#![no_main]

use libfuzzer_sys::fuzz_target;
use muxtap_core::{
    protocol::version::Version,
    screen::{CaptureOptions, Line, Rules, Screen, Settings, Size},
};

const VERSIONS: [&[u8]; 8] = [b"3.3a", b"3.5a", b"3.8", b"3.2a", b"3.4", b"3.6b", b"3.7c", b"3.5"];

fn look(screen: &mut Screen) {
    let size = screen.size();
    for bits in 0..8 {
        let options = CaptureOptions {
            start: if bits & 1 == 0 { Line::Edge } else { Line::At(-3) },
            end: if bits & 2 == 0 { Line::Default } else { Line::At(2) },
            join: bits & 4 != 0,
            escapes: bits & 1 != 0,
            trailing: bits & 2 != 0,
        };
        let known = screen.known(&options);
        assert!(known.is_none_or(|known| known == screen.capture(&options)));
    }
    let cursor = screen.cursor();
    assert!(cursor.row < u32::from(size.rows));
    screen.row_text(size.rows);
    screen.row_text(0);
    let _ = screen.trusted();
    let changes = screen.take_changes();
    assert!(changes.is_empty() || screen.take_changes().is_empty());
}

/// Feeds text in chunks, with the commands between them.
fn run(screen: &mut Screen, mut stream: &[u8], chunk: usize) {
    while !stream.is_empty() {
        let end = stream.iter().position(|byte| *byte >= 0xf8).unwrap_or(stream.len());
        let (text, rest) = stream.split_at(end);
        text.chunks(chunk).for_each(|part| screen.feed(part));
        stream = match rest {
            [0xf8..=0xfb, columns, rows, rest @ ..] => {
                screen.resize(Size { columns: u16::from(*columns), rows: u16::from(*rows) });
                rest
            }
            [0xfc, rest @ ..] => {
                screen.clear_history();
                rest
            }
            [0xfd, rest @ ..] => {
                screen.reset();
                rest
            }
            [0xfe, rest @ ..] => {
                look(screen);
                rest
            }
            [_, rest @ ..] => {
                screen.read_ended();
                rest
            }
            [] => rest,
        };
    }
    look(screen);
}

fuzz_target!(|data: &[u8]| {
    let [columns, rows, history, chunk, bits, stream @ ..] = data else { return };
    let version = VERSIONS[usize::from(bits & 3 | bits >> 5 & 4)];
    let rules = Rules::for_version(Version::parse(version).expect("a version"));
    let settings = Settings {
        history_limit: u32::from(*history),
        scroll_on_clear: bits & 4 == 0,
        alternate_screen: bits & 8 == 0,
        wide_selectors: bits & 16 == 0,
        younger_widths: bits & 32 != 0,
        alone: bits & 64 == 0,
        ..Settings::default()
    };
    let size = Size { columns: u16::from(*columns), rows: u16::from(*rows) };
    let mut whole = Screen::new(size, rules, settings);
    run(&mut whole, stream, usize::MAX);
    let mut parts = Screen::new(size, rules, settings);
    run(&mut parts, stream, usize::from(*chunk).max(1));
    for (join, escapes) in [(false, true), (true, true)] {
        let options = CaptureOptions { start: Line::Edge, join, escapes, ..CaptureOptions::default() };
        assert_eq!(whole.capture(&options), parts.capture(&options));
        assert_eq!(whole.known(&options), parts.known(&options));
    }
    assert_eq!((whole.cursor(), whole.history_size()), (parts.cursor(), parts.history_size()));
    // At most 255 lines of history and two screens of 255 rows, each of 255 cells with a cluster and a style at most.
    assert!(whole.memory() < (64 << 20) + 8 * data.len(), "{} bytes", whole.memory());
});
