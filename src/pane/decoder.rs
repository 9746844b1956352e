//! Finding the text in a pane's bytes: a terminal's parser that keeps nothing but where it stands.

use super::text::{Control, Mark, TextSink};

/// Bytes of an OSC's payload that are kept; a longer one is not reported.
const PAYLOAD: usize = 4096;

/// Where the parser stands between two bytes: small enough to be kept for every few KiB of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecoderState {
    phase: Phase,
    /// A character that has begun: its bytes, and how many they are.
    partial: [u8; 3],
    held: u8,
    /// Parameters of a CSI sequence: the first two, and which one is being read.
    params: [u16; 2],
    param: u8,
    /// It has a private marker or an intermediate byte.
    odd: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Ground,
    Escape,
    /// ESC and an intermediate: one more byte ends it.
    EscapeIntermediate,
    Csi,
    Osc,
    /// `ESC k`: a title.
    Title,
    /// DCS, SOS, PM, APC: swallowed up to ST.
    Ignored,
    /// An ESC inside a string: `\` ends the string, anything else begins a new sequence.
    StringEscape(StringKind),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StringKind {
    Osc,
    Title,
    Ignored,
}

/// Decodes one stream.
#[derive(Clone, Debug, Default)]
pub struct TextDecoder {
    state: DecoderState,
    /// The payload of an OSC or title that has begun.
    payload: Vec<u8>,
    /// The sequence that has begun, or the character, started here.
    began: u64,
    /// The payload is not known whole: too long, or begun before this decoder.
    lost: bool,
}

impl TextDecoder {
    /// A decoder that goes on from a state. A sequence with a payload that had begun by then is not reported.
    pub fn resume(state: DecoderState, offset: u64) -> Self {
        Self { state, payload: Vec::new(), began: offset.saturating_sub(u64::from(state.held)), lost: true }
    }

    /// Where it stands.
    pub fn state(&self) -> DecoderState {
        self.state
    }

    /// Bytes it holds outside of itself.
    pub fn memory(&self) -> usize {
        self.payload.capacity()
    }

    /// Decodes `bytes`, the first of which stands at `offset`.
    pub fn feed(&mut self, offset: u64, bytes: &[u8], sink: &mut dyn TextSink) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match self.state.phase {
                Phase::Ground => at = self.ground(offset, bytes, at, sink),
                Phase::Osc | Phase::Title | Phase::Ignored => at = self.string(offset, bytes, at, sink),
                _ => {
                    self.sequence(offset + at as u64, byte, sink);
                    at += 1;
                }
            }
        }
    }

    /// Text up to the next control character. Answers where to go on.
    fn ground(&mut self, offset: u64, bytes: &[u8], at: usize, sink: &mut dyn TextSink) -> usize {
        let rest = bytes.get(at..).unwrap_or_default();
        if self.state.held > 0 {
            return at + self.complete_character(offset + at as u64, rest, sink);
        }
        let length = rest.iter().position(|byte| is_control(*byte)).unwrap_or(rest.len());
        if length > 0 {
            self.text(offset + at as u64, rest.get(..length).unwrap_or_default(), length == rest.len(), sink);
            return at + length;
        }
        let here = offset + at as u64;
        let Some(&byte) = rest.first() else { return at };
        match byte {
            0x1b => self.begin(here),
            _ => execute(here, byte, sink),
        }
        at + 1
    }

    /// A run without controls. At the end of the chunk a character that has only begun is held.
    fn text(&mut self, offset: u64, run: &[u8], is_last: bool, sink: &mut dyn TextSink) {
        let mut offset = offset;
        let mut run = run;
        loop {
            match std::str::from_utf8(run) {
                Ok(_) => {
                    if !run.is_empty() {
                        sink.text(offset, run);
                    }
                    return;
                }
                Err(error) => {
                    let (good, bad) = run.split_at(error.valid_up_to());
                    if !good.is_empty() {
                        sink.text(offset, good);
                    }
                    offset += good.len() as u64;
                    match error.error_len() {
                        Some(length) => {
                            sink.text(offset, REPLACEMENT);
                            offset += length as u64;
                            run = bad.get(length..).unwrap_or_default();
                        }
                        None if is_last => {
                            self.began = offset;
                            self.state.held = bad.len() as u8;
                            for (slot, byte) in self.state.partial.iter_mut().zip(bad) {
                                *slot = *byte;
                            }
                            return;
                        }
                        None => {
                            sink.text(offset, REPLACEMENT);
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Goes on with a character that the last chunk began. Answers how many bytes it took.
    fn complete_character(&mut self, offset: u64, rest: &[u8], sink: &mut dyn TextSink) -> usize {
        let held = usize::from(self.state.held);
        let mut character = [0; 4];
        for (slot, byte) in character.iter_mut().zip(self.state.partial.iter().take(held)) {
            *slot = *byte;
        }
        let mut taken = 0;
        loop {
            let have = character.get(..held + taken).unwrap_or_default();
            match std::str::from_utf8(have) {
                Ok(_) => {
                    sink.text(self.began, have);
                    break;
                }
                Err(error) if error.error_len().is_some() => {
                    // The byte that made it invalid is not part of it.
                    sink.text(self.began, REPLACEMENT);
                    taken = taken.saturating_sub(1);
                    break;
                }
                Err(_) => {}
            }
            let Some(byte) = rest.get(taken) else {
                // Still not complete.
                for (slot, byte) in self.state.partial.iter_mut().zip(have) {
                    *slot = *byte;
                }
                self.state.held = have.len() as u8;
                return taken;
            };
            if let Some(slot) = character.get_mut(held + taken) {
                *slot = *byte;
            }
            taken += 1;
        }
        debug_assert!(offset >= self.began);
        self.state.held = 0;
        taken
    }

    fn begin(&mut self, here: u64) {
        self.began = here;
        self.state.phase = Phase::Escape;
    }

    /// A byte of an escape sequence without payload.
    fn sequence(&mut self, here: u64, byte: u8, sink: &mut dyn TextSink) {
        match byte {
            0x1b if !matches!(self.state.phase, Phase::StringEscape(_)) => return self.begin(here),
            // CAN and SUB end any sequence.
            0x18 | 0x1a => {
                self.state.phase = Phase::Ground;
                return;
            }
            // Other controls are executed in the middle of a sequence.
            0x00..=0x1f if !matches!(self.state.phase, Phase::StringEscape(_)) => return execute(here, byte, sink),
            _ => {}
        }
        match self.state.phase {
            Phase::Escape => self.escape(byte, here, sink),
            Phase::EscapeIntermediate => {
                if byte >= 0x30 {
                    self.state.phase = Phase::Ground;
                }
            }
            Phase::Csi => self.csi(byte, sink),
            Phase::StringEscape(kind) => {
                if byte == b'\\' {
                    self.end_string(kind, here + 1, sink);
                } else {
                    // The string was cut off; the ESC began another sequence, one byte ago.
                    self.payload.clear();
                    self.begin(here - 1);
                    self.sequence(here, byte, sink);
                }
            }
            Phase::Ground | Phase::Osc | Phase::Title | Phase::Ignored => {}
        }
    }

    fn escape(&mut self, byte: u8, here: u64, sink: &mut dyn TextSink) {
        self.state.phase = match byte {
            b'[' => {
                self.state.params = [0; 2];
                self.state.param = 0;
                self.state.odd = false;
                Phase::Csi
            }
            b']' => self.begin_string(Phase::Osc),
            b'k' => self.begin_string(Phase::Title),
            b'P' | b'X' | b'^' | b'_' => Phase::Ignored,
            0x20..=0x2f => Phase::EscapeIntermediate,
            b'c' => {
                sink.control(self.began, Control::Reset);
                Phase::Ground
            }
            // IND and NEL go to another line.
            b'D' | b'E' => {
                sink.control(here, Control::LineFeed);
                Phase::Ground
            }
            _ => Phase::Ground,
        };
    }

    fn begin_string(&mut self, phase: Phase) -> Phase {
        self.payload.clear();
        self.lost = false;
        phase
    }

    fn csi(&mut self, byte: u8, sink: &mut dyn TextSink) {
        match byte {
            b'0'..=b'9' => {
                if let Some(param) = self.state.params.get_mut(usize::from(self.state.param)) {
                    *param = param.saturating_mul(10).saturating_add(u16::from(byte - b'0'));
                }
            }
            b';' | b':' => self.state.param = self.state.param.saturating_add(1),
            0x20..=0x2f | 0x3c..=0x3f => self.state.odd = true,
            0x40..=0x7e => {
                self.state.phase = Phase::Ground;
                if !self.state.odd {
                    let [first, second] = self.state.params;
                    sink.control(self.began, Control::Csi(byte, first, second));
                }
            }
            _ => self.state.phase = Phase::Ground,
        }
    }

    /// A string's payload up to what ends it. Answers where to go on.
    fn string(&mut self, offset: u64, bytes: &[u8], at: usize, sink: &mut dyn TextSink) -> usize {
        let rest = bytes.get(at..).unwrap_or_default();
        let length = rest.iter().position(|byte| matches!(byte, 0x07 | 0x18 | 0x1a | 0x1b)).unwrap_or(rest.len());
        if self.state.phase != Phase::Ignored {
            let room = PAYLOAD - self.payload.len().min(PAYLOAD);
            self.payload.extend_from_slice(rest.get(..length.min(room)).unwrap_or_default());
            self.lost |= length > room;
        }
        let Some(&byte) = rest.get(length) else { return at + length };
        let kind = match self.state.phase {
            Phase::Osc => StringKind::Osc,
            Phase::Title => StringKind::Title,
            _ => StringKind::Ignored,
        };
        match byte {
            0x1b => self.state.phase = Phase::StringEscape(kind),
            // BEL ends an OSC; in other strings it is a byte like any other.
            0x07 if kind == StringKind::Osc => self.end_string(kind, offset + (at + length) as u64 + 1, sink),
            0x07 => {}
            _ => {
                self.payload.clear();
                self.state.phase = Phase::Ground;
            }
        }
        at + length + 1
    }

    fn end_string(&mut self, kind: StringKind, end: u64, sink: &mut dyn TextSink) {
        self.state.phase = Phase::Ground;
        let payload = std::mem::take(&mut self.payload);
        if !self.lost {
            match kind {
                StringKind::Title => sink.mark(self.began, end, Mark::Title(&payload)),
                StringKind::Osc => sink.mark(self.began, end, osc(&payload)),
                StringKind::Ignored => {}
            }
        }
    }
}

/// U+FFFD.
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

fn osc(payload: &[u8]) -> Mark<'_> {
    if let Some(mark) = payload.strip_prefix(b"133;") {
        return Mark::Prompt(mark);
    }
    match payload.strip_prefix(b"0;").or_else(|| payload.strip_prefix(b"2;")) {
        Some(title) => Mark::Title(title),
        None => Mark::Osc(payload),
    }
}

/// Tabs are text; other controls end a run of it.
fn is_control(byte: u8) -> bool {
    (byte < 0x20 && byte != b'\t') || byte == 0x7f
}

fn execute(here: u64, byte: u8, sink: &mut dyn TextSink) {
    match byte {
        b'\n' | 0x0b | 0x0c => sink.control(here, Control::LineFeed),
        b'\r' => sink.control(here, Control::CarriageReturn),
        0x08 => sink.control(here, Control::Backspace),
        0x07 => sink.mark(here, here + 1, Mark::Bell),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Everything that was told, with neighbouring text joined.
    #[derive(Debug, Default, PartialEq)]
    struct Told(Vec<(u64, String)>, u64);

    impl TextSink for Told {
        fn text(&mut self, offset: u64, text: &[u8]) {
            let text = std::str::from_utf8(text).unwrap();
            assert!(!text.contains(['\n', '\r', '\x1b']));
            match self.0.last_mut() {
                Some((_, last)) if last.starts_with("text ") && self.1 == offset => last.push_str(text),
                _ => self.0.push((offset, format!("text {text}"))),
            }
            self.1 = offset + text.len() as u64;
        }
        fn control(&mut self, offset: u64, control: Control) {
            self.0.push((offset, format!("{control:?}")));
        }
        fn mark(&mut self, start: u64, end: u64, mark: Mark<'_>) {
            self.0.push((start, format!("{end} {mark:?}")));
        }
    }

    fn told(chunks: &[&[u8]]) -> Vec<(u64, String)> {
        let mut decoder = TextDecoder::default();
        let mut told = Told::default();
        let mut offset = 0;
        for chunk in chunks {
            decoder.feed(offset, chunk, &mut told);
            offset += chunk.len() as u64;
        }
        told.0
    }

    fn texts(bytes: &[u8]) -> String {
        told(&[bytes]).iter().filter_map(|(_, what)| what.strip_prefix("text ")).collect()
    }

    #[test]
    fn colours_are_no_text() {
        assert_eq!(texts(b"\x1b[1;31merror\x1b[0m: no\x1b(B such"), "error: no such");
    }

    #[test]
    fn a_title_a_bell_and_a_prompt_mark_are_told_apart_from_text() {
        let told = told(&[b"a\x1b]2;hi\x07b\x07\x1b]133;A\x1b\\c\x1bkold\x1b\\d\x1bPq\x07x\x1b\\e"]);
        let what: Vec<_> = told.iter().map(|(_, what)| what.as_str()).collect();
        assert_eq!(
            what,
            [
                "text a",
                "8 Title([104, 105])",
                "text b",
                "10 Bell",
                "19 Prompt([65])",
                "text c",
                "27 Title([111, 108, 100])",
                "text d",
                "text e"
            ]
        );
    }

    #[test]
    fn a_character_split_over_two_chunks_is_one() {
        assert_eq!(told(&[b"a\xe2", b"\x82", b"\xacb"]), [(0, "text a\u{20ac}b".into())]);
        assert_eq!(texts(b"\xff\xe2\x28"), "\u{fffd}\u{fffd}(");
    }

    #[test]
    fn a_string_that_is_cut_off_does_not_swallow_what_follows() {
        assert_eq!(texts(b"\x1b]2;abc\x1b[1mtext"), "text");
        assert_eq!(texts(b"\x1b]2;abc\x18text"), "text");
    }

    #[test]
    fn a_payload_too_long_to_keep_is_not_told() {
        let mut bytes = b"\x1b]9;".to_vec();
        bytes.extend(vec![b'x'; 5000]);
        bytes.extend(b"\x07after");
        assert_eq!(told(&[&bytes]), [(5005, "text after".into())]);
    }

    proptest! {
        #[test]
        fn chunking_changes_nothing(
            bytes in proptest::collection::vec(prop_oneof![
                Just(0x1b_u8), Just(b'['), Just(b']'), Just(b'\\'), Just(7), Just(b'm'), Just(0xe2), Just(0x82), Just(0xac),
                Just(b'\r'), Just(b'\n'), any::<u8>()
            ], 0..200),
            cuts in proptest::collection::vec(0..200_usize, 0..8),
        ) {
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<_> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(told(&chunks), told(&[&bytes]));
        }
    }
}
