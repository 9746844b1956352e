//! One parse of a pane's output for both its text and its screen.
//!
//! [`TextDecoder`] and [`Screen`] each accept bytes in any pieces and parse them independently.
//! While both are at rest, most output means the same to both: printable ASCII, control characters,
//! control sequences with numbers. This module parses such output once and passes it to both. It
//! cuts everything else into pieces that each of them parses by its own rules.

use crate::{
    screen::{NO_NUMBERS, Screen, Terminal, read_params},
    stream::{
        decoder::{TextDecoder, execute, osc_mark, string_len, text_len, whole_osc},
        text::{Control, TextSink},
    },
};

/// Feeds bytes, the first of which is at `offset`, to both.
pub(crate) fn feed(
    offset: u64,
    bytes: &[u8],
    decoder: &mut TextDecoder,
    sink: &mut (impl TextSink + ?Sized),
    screen: &mut Screen,
) {
    let mut at = 0;
    loop {
        if decoder.is_at_rest()
            && let Some(terminal) = screen.terminal_at_rest()
        {
            at += shared(offset + at as u64, bytes.get(at..).unwrap_or_default(), sink, terminal);
            if let Some((payload, length)) = whole_osc(bytes.get(at..).unwrap_or_default()) {
                let start = offset + at as u64;
                sink.line(screen.cursor_line());
                sink.mark(start, start + length as u64, osc_mark(payload));
                screen.take_osc(payload);
                at += length;
                continue;
            }
        }
        let rest = bytes.get(at..).unwrap_or_default();
        // Any piece would be correct. These pieces are few, and short where both are soon at rest
        // again.
        let is_string = decoder.state().string_start().is_some();
        let length = match rest.first() {
            Some(0x20..) if is_string || screen.open_string().is_some() => string_len(rest),
            Some(0x80..) => text_len(rest).0,
            Some(_) => 1,
            None => return,
        };
        let piece = rest.get(..length).unwrap_or(rest);
        if is_string {
            sink.line(screen.cursor_line());
        }
        decoder.feed(offset + at as u64, piece, sink);
        screen.feed(piece);
        at += piece.len();
    }
}

/// Passes on the output that means the same to both, and returns its length in bytes.
fn shared(offset: u64, bytes: &[u8], sink: &mut (impl TextSink + ?Sized), terminal: &mut Terminal) -> usize {
    let mut at = 0;
    while let Some(rest) = bytes.get(at..)
        && let Some(&byte) = rest.first()
    {
        let place = offset + at as u64;
        at += match byte {
            0x20..=0x7e => {
                let (run, _) = rest.split_at_checked(printable_len(rest)).unwrap_or((rest, &[]));
                sink.text(place, run);
                terminal.print(run);
                run.len()
            }
            0x1b => match sequence(place, rest, sink, terminal) {
                Some(length) => length,
                None => return at,
            },
            ..0x20 => {
                execute(place, byte, sink);
                terminal.take_control(byte);
                1
            }
            0x80.. => {
                let (length, holds) = text_len(rest);
                let text = rest.get(..length).unwrap_or(rest);
                // Each parser handles invalid, cut and dropped bytes itself.
                let Some(valid) = std::str::from_utf8(text).ok().filter(|_| !holds.c1_lead) else { return at };
                sink.text(place, text);
                terminal.print_text(valid);
                length
            }
            0x7f => return at,
        };
    }
    at
}

/// Parses a complete sequence of the kinds that set colors and move the cursor. Returns its length.
fn sequence(offset: u64, bytes: &[u8], sink: &mut (impl TextSink + ?Sized), terminal: &mut Terminal) -> Option<usize> {
    let sequence = match bytes.get(1..)? {
        [b'[', sequence @ ..] => sequence,
        [set @ (b'(' | b')'), last @ 0x30..=0x7e, ..] => {
            terminal.take_escape(std::slice::from_ref(set), *last);
            return Some(3);
        }
        _ => return None,
    };
    let marked = sequence.first().is_some_and(|byte| (b'<'..=b'?').contains(byte));
    let (mark, text) = sequence.split_at(usize::from(marked));
    let mut numbers = NO_NUMBERS;
    let (params, length) = read_params(text, &mut numbers)?;
    let last = *text.get(length).filter(|last| (0x40..=0x7e).contains(*last))?;
    // The text decoder ignores private sequences and sub-parameters.
    if !marked && let Some([first, second]) = params.first_two() {
        sink.control(offset, Control::Csi(last, first, second));
    }
    terminal.take_sequence(params, mark, last);
    Some(2 + mark.len() + length + 1)
}

/// Returns the number of printable ASCII bytes at the start.
#[inline]
pub(crate) fn printable_len(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    // Sets the top bit of the first byte that is not printable, and perhaps of some after it: above
    // 0x7e, adding 1 sets that bit; below 0x20, subtracting 0x20 sets it.
    let others = |word: u64| (word | word.wrapping_add(ONES) | word.wrapping_sub(0x20 * ONES)) & (0x80 * ONES);
    let (words, rest) = bytes.as_chunks::<8>();
    let mut len = 0;
    for word in words {
        let others = others(u64::from_le_bytes(*word));
        if others != 0 {
            return len + others.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    len + rest.iter().position(|byte| !(0x20..0x7f).contains(byte)).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        protocol::version::Version,
        screen::{CaptureOptions, Rules, Settings, Size},
        stream::text::Mark,
    };
    use proptest::prelude::*;

    /// The events of a decoder, character by character: runs of text may be cut anywhere.
    #[derive(Debug, Default, PartialEq)]
    struct Events(Vec<(u64, String)>);

    impl TextSink for Events {
        fn text(&mut self, offset: u64, text: &[u8]) {
            let characters = std::str::from_utf8(text).unwrap().char_indices();
            self.0.extend(characters.map(|(at, character)| (offset + at as u64, character.to_string())));
        }

        fn control(&mut self, offset: u64, control: Control) {
            self.0.push((offset, format!("c {control:?}")));
        }

        fn mark(&mut self, start: u64, end: u64, mark: Mark<'_>) {
            self.0.push((start, format!("m {end} {mark:?}")));
        }
    }

    fn screen(version: &str) -> Screen {
        let rules = Rules::for_version(Version::parse(version.as_bytes()).unwrap());
        Screen::new(Size { columns: 12, rows: 5 }, rules, Settings::default())
    }

    /// Generates output that programs print, and output that they do not.
    fn output() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            4 => "[ -~]{1,20}".prop_map(String::into_bytes),
            3 => "\\PC{1,4}".prop_map(String::into_bytes),
            3 => "\u{1b}\\[[<=>?]?[0-9;:]{0,9}[ -/]{0,1}[@-~]".prop_map(String::into_bytes),
            1 => "\u{1b}\\[[0-9;]{20,70}[@-~]".prop_map(String::into_bytes),
            2 => "\u{1b}\\[[0-9]?[0-9;]{0,4}[@-HJ-MPSTXZbdhlmrsu]".prop_map(String::into_bytes),
            2 => "\u{1b}[ -~]".prop_map(String::into_bytes),
            1 => "\u{1b}[()][0B]".prop_map(String::into_bytes),
            2 => "\u{1b}[\\]Pk_^X][ -~]{0,9}(\u{7}|\u{1b}\\\\|\u{18}|\u{1b}|)".prop_map(String::into_bytes),
            2 => "[\u{0}-\u{1f}\u{7f}-\u{9f}]{1,3}".prop_map(String::into_bytes),
            2 => proptest::collection::vec(any::<u8>(), 1..4),
            1 => proptest::collection::vec(0x80_u8..=0xff, 1..5),
        ];
        proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    #[test]
    fn printable_ascii_ends_at_the_first_other_byte() {
        for byte in 0..=u8::MAX {
            for at in 0..20 {
                let mut text = [b'~'; 20];
                text[at] = byte;
                let wanted = if (0x20..0x7f).contains(&byte) { 20 } else { at };
                assert_eq!(printable_len(&text), wanted, "{byte:#x} at {at}");
                text[at..].fill(byte);
                assert_eq!(printable_len(&text), wanted, "{byte:#x} from {at} on");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// One parse gives the same result as two, wherever the output is cut.
        #[test]
        fn one_parse_gives_the_same_result_as_two(
            output in output(),
            cut in 1_usize..50,
            given_up in 0_usize..20,
            version in prop_oneof![Just("3.2a"), Just("3.3a"), Just("3.5a"), Just("3.7c"), Just("3.8")],
        ) {
            let (mut decoder, mut events, mut drawn) = (TextDecoder::default(), Events::default(), screen(version));
            let (mut other, mut other_events, mut other_drawn) =
                (TextDecoder::default(), Events::default(), screen(version));
            let mut offset = 0;
            for (number, piece) in output.chunks(cut).enumerate() {
                if number == given_up {
                    prop_assert_eq!(decoder.give_up(), other.give_up());
                    prop_assert_eq!(drawn.give_up(), other_drawn.give_up());
                }
                decoder.feed(offset, piece, &mut events);
                drawn.feed(piece);
                feed(offset, piece, &mut other, &mut other_events, &mut other_drawn);
                offset += piece.len() as u64;
                prop_assert_eq!(decoder.state().open_since(), other.state().open_since());
                prop_assert_eq!(decoder.state().string_start(), other.state().string_start());
                prop_assert_eq!(drawn.open_string(), other_drawn.open_string());
                prop_assert_eq!(drawn.trusted(), other_drawn.trusted());
                prop_assert_eq!(drawn.cursor(), other_drawn.cursor());
            }
            prop_assert_eq!(events, other_events);
            let all = CaptureOptions { start: crate::screen::Line::Edge, escapes: true, ..CaptureOptions::default() };
            prop_assert_eq!(drawn.capture(&all), other_drawn.capture(&all));
            prop_assert_eq!(drawn.known(&all), other_drawn.known(&all));
            prop_assert_eq!(drawn.modes(), other_drawn.modes());
            prop_assert_eq!(drawn.title(), other_drawn.title());
        }
    }
}
