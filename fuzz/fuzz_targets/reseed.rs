//! A screen created from another's captures, as muxtap creates one from tmux's, compared with the
//! original: the same captures, cursor and history, immediately and after more output on the
//! cleared screen.
//!
//! The writer of captures and their reader are independent; here each tests the other. The input
//! is: columns, rows, a history limit, a byte whose lowest bit selects the version, then the output
//! before and, after the first byte 0xff, after it. Before it, 0xf8 to 0xfb, which no program
//! prints, are a resize (two bytes follow). The versions are those that need five captures.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use muxtap_core::{
    protocol::version::Version,
    screen::{CaptureOptions, Line, Rules, Screen, Settings, Size, seed},
};

const ALL: CaptureOptions =
    CaptureOptions { start: Line::Edge, end: Line::Default, join: false, escapes: false, trailing: false };

/// State that a seed lacks, set to the same in both: region, modes, pen, character sets, tab stops,
/// cells that print nothing, the saved cursor, and the character that REP repeats.
const SAME: &[u8] = b"\x1b[r\x1b[4l\x1b[?6l\x1b[?7h\x1b[?25h\x1b(B\x1b)B\x0f\x1b[m\x1b[3g\x1b[2J\x1b[HX\x1b7";

/// Returns tmux's replies about a screen, as far as the screen itself can give them.
fn answers(screen: &Screen, limit: u32) -> Vec<Bytes> {
    let (cursor, size) = (screen.cursor(), screen.size());
    let (columns, rows) = (size.columns, size.rows);
    let fields = format!(
        "{}|{}|{}|{rows}|0|0|||7|{columns}|{limit}|4294967295|4294967295|0|{}|0|0|1|{}||\n",
        cursor.column,
        cursor.row,
        screen.history_size(),
        rows - 1,
        u8::from(cursor.visible),
    );
    let escapes = CaptureOptions { escapes: true, ..ALL };
    [
        screen.capture(&CaptureOptions { join: true, ..escapes }),
        b"\n".to_vec(),
        fields.into_bytes(),
        screen.capture(&CaptureOptions { trailing: true, ..escapes }),
        b"\n".to_vec(),
    ]
    .map(Bytes::from)
    .into()
}

/// Compares this many of the combinations of flags.
fn assert_same(drawn: &Screen, again: &Screen, when: &str, flags: u8) {
    for bits in 0..flags {
        let options = CaptureOptions { trailing: bits & 1 != 0, escapes: bits & 2 != 0, join: bits & 4 != 0, ..ALL };
        if let (Some(drawn), Some(again)) = (drawn.known(&options), again.known(&options)) {
            assert_eq!(again.escape_ascii().to_string(), drawn.escape_ascii().to_string(), "{when}: {options:?}");
        }
    }
    assert_eq!((again.cursor(), again.history_size()), (drawn.cursor(), drawn.history_size()), "{when}");
}

fuzz_target!(|data: &[u8]| {
    let [columns, rows, history, bits, stream @ ..] = data else { return };
    let end = stream.iter().position(|byte| *byte == 0xff).unwrap_or(stream.len());
    let (mut before, after) = stream.split_at(end);
    let version: &[u8] = if bits & 1 == 0 { b"3.3a" } else { b"3.2a" };
    let rules = Rules::for_version(Version::parse(version).expect("a version"));
    // The rows that a cleared screen leaves in the history depend on cells that no capture shows.
    let settings = Settings { history_limit: u32::from(*history), scroll_on_clear: false, ..Settings::default() };
    let size = |columns: u8, rows: u8| Size { columns: u16::from(columns.max(1)), rows: u16::from(rows.max(1)) };
    let mut drawn = Screen::new(size(*columns, *rows), rules, settings);
    while !before.is_empty() {
        let end = before.iter().position(|byte| (0xf8..=0xfb).contains(byte)).unwrap_or(before.len());
        let (text, rest) = before.split_at(end);
        drawn.feed(text);
        before = match rest {
            [_, columns, rows, rest @ ..] => {
                drawn.resize(size(*columns, *rows));
                rest
            }
            _ => &[],
        };
    }
    // A screen does not give its hidden main screen.
    if drawn.alternate() || !drawn.at_rest() || drawn.trusted().is_err() {
        return;
    }
    // Nor whether the last row continues: tmux's output ends with a line end in either case.
    if !drawn.capture(&CaptureOptions { join: true, ..ALL }).ends_with(b"\n") {
        return;
    }
    let seed = seed::parse(&answers(&drawn, settings.history_limit)).expect("an answer");
    let mut again = Screen::from_seed(&seed, rules, settings).expect("a screen");
    assert_same(&drawn, &again, "at once", 8);
    for part in [SAME, after.strip_prefix(b"\xff").unwrap_or_default()] {
        drawn.feed(part);
        again.feed(part);
    }
    if drawn.trusted().is_ok() && again.trusted().is_ok() {
        // No capture tells which of several empty rows continues in the next one.
        assert_same(&drawn, &again, "after more output", 4);
    }
});
