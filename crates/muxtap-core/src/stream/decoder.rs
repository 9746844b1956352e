//! Decoding a pane's bytes into text, controls and marks.
//!
//! The grammar is that of tmux's `input.c` (ECMA-48 with tmux's own exceptions): muxtap reads the
//! same text that tmux draws.

use serde::{Deserialize, Serialize};

use super::text::{Control, Mark, TextSink};

/// The bytes of an OSC or title that are kept. Of a longer OSC only the beginning is reported, as
/// [`Mark::Long`]; a longer title is skipped.
pub const PAYLOAD_LIMIT: usize = 6 * 1024;

/// The room for a payload that a decoder keeps for the next one, in bytes.
const KEPT_CAPACITY: usize = 256;

/// The replacement for invalid bytes.
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();
/// The first byte of a C1 control (U+0080 to U+009F) in UTF-8; the second is below 0xA0.
const C1_LEAD: u8 = 0xc2;

/// The decoder's place in tmux's own parser (`input.c`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    #[default]
    Ground,
    Escape,
    EscapeIntermediate,
    /// After `ESC [`: a private marker may follow.
    Csi,
    CsiParameter,
    CsiIntermediate,
    CsiIgnore,
    /// In an OSC or a title (`ESC k`).
    Payload,
    /// At an ESC that ends a payload: a `\` after it still belongs to the payload.
    PayloadEscape,
    /// In an SOS, PM or APC string, or a DCS that tmux ignores.
    Swallow,
    DcsEntry,
    DcsParameter,
    DcsIntermediate,
    /// In a DCS's data, which only `ESC \` ends (CAN and SUB do not, as in tmux).
    DcsData,
    DcsEscape,
}

/// What a decoder knows of an open payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Known {
    /// All of it so far.
    #[default]
    Whole,
    /// The first [`PAYLOAD_LIMIT`] bytes; it is longer.
    Beginning,
    /// Nothing that can be reported: another decoder had its beginning.
    Nothing,
}

impl Phase {
    fn is_csi(self) -> bool {
        matches!(self, Self::Csi | Self::CsiParameter | Self::CsiIntermediate | Self::CsiIgnore)
    }
    /// Returns whether control characters act as they do outside of the sequence.
    fn executes(self) -> bool {
        self.is_csi() || matches!(self, Self::Escape | Self::EscapeIntermediate)
    }
    /// Returns whether the decoder is in a string that tmux gives up. False at the ESC that ends a
    /// payload: there tmux has left the string.
    fn is_string(self) -> bool {
        matches!(
            self,
            Self::Payload
                | Self::Swallow
                | Self::DcsEntry
                | Self::DcsParameter
                | Self::DcsIntermediate
                | Self::DcsData
                | Self::DcsEscape
        )
    }
}

/// A [`TextDecoder`]'s state without the collected payload: 32 bytes from which another decoder can
/// continue at this place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecoderState {
    /// The offset at which the open sequence or character began.
    start: u64,
    /// The offset of the first in an unbroken series, up to the open one, in which each sequence or
    /// character cut off the one before it. The outcome of the one that cuts off also decides the
    /// other's.
    since: u64,
    parameters: [u16; 2],
    /// The index of the parameter that is being read; only the first two are kept.
    parameter: u8,
    phase: Phase,
    /// Whether the sequence has a private marker, an intermediate or a sub-parameter, and so is not
    /// reported.
    private: bool,
    /// Whether the payload is a title, not an OSC.
    title: bool,
    /// What is known of the payload.
    known: Known,
    /// The first bytes of a character.
    held: [u8; 4],
    held_len: u8,
}

impl DecoderState {
    /// Returns the last offset at which nothing was open, if an escape sequence or character is
    /// incomplete now.
    pub fn open_since(&self) -> Option<u64> {
        (self.phase != Phase::Ground || self.held_len > 0).then_some(self.since)
    }

    /// Returns the offset at which the open string (OSC, title, DCS, APC, PM, SOS) began. tmux
    /// gives a string up after five seconds, see [`TextDecoder::give_up`].
    pub fn string_start(&self) -> Option<u64> {
        self.phase.is_string().then_some(self.start)
    }
}

/// Splits a pane's bytes into text, controls and marks, as tmux's parser does.
///
/// The bytes may come in any pieces: the cuts change nothing, except that one run of text may come
/// in several calls. No byte causes a failure; invalid UTF-8 becomes U+FFFD, one for each maximal
/// subpart. An OSC ends at BEL, at ST, or at any other escape sequence (as in tmux); CAN and SUB
/// abort sequences. Character sets (`ESC ( 0`, SO, SI) do not change the text: a line drawing
/// character stays the ASCII letter that was sent. `ESC D`, `ESC E` and `ESC M` are reported as the
/// line feeds and the cursor movement that they cause. C1 controls (U+0080 to U+009F), which tmux
/// ignores and some terminals obey, are dropped like the C0 controls without a meaning.
///
/// The decoder has no clock: it skips a string that never ends until [`TextDecoder::give_up`] is
/// called.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TextDecoder {
    state: DecoderState,
    #[serde(with = "crate::stored::bytes")]
    payload: Vec<u8>,
}

impl From<DecoderState> for TextDecoder {
    fn from(state: DecoderState) -> Self {
        Self { state, payload: Vec::new() }
    }
}

impl TextDecoder {
    /// Returns the state from which a decoder can continue here. That decoder skips a payload that
    /// is open here and does not report it.
    pub fn state(&self) -> DecoderState {
        let open = matches!(self.state.phase, Phase::Payload | Phase::PayloadEscape);
        DecoderState { known: if open { Known::Nothing } else { self.state.known }, ..self.state }
    }

    /// Forgets an open sequence or character: bytes that follow do not join earlier ones.
    pub fn reset(&mut self) {
        self.state = DecoderState::default();
        self.payload = Vec::new();
    }

    /// Gives up an open string, as tmux does five seconds after it began (N57): the collected bytes
    /// are not reported, and the next bytes are text. Returns whether a string was open; otherwise
    /// nothing changes.
    pub fn give_up(&mut self) -> bool {
        let open = self.state.phase.is_string();
        if open {
            self.reset();
        }
        open
    }

    /// Returns the number of bytes on the heap.
    pub fn memory(&self) -> usize {
        self.payload.capacity()
    }

    /// Returns whether neither a sequence nor a character is open.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.state.phase == Phase::Ground && self.state.held_len == 0
    }

    /// Decodes the next bytes, the first of which is at `offset`, and passes the events to `sink`.
    pub fn feed(&mut self, offset: u64, bytes: &[u8], sink: &mut (impl TextSink + ?Sized)) {
        let mut at = 0;
        while let Some((&byte, _)) = bytes.get(at..).and_then(<[u8]>::split_first) {
            let rest = bytes.get(at..).unwrap_or_default();
            let offset = offset + at as u64;
            at += match self.state.phase {
                Phase::Ground => self.ground(offset, rest, sink),
                Phase::Payload if byte >= 0x20 => self.collect(rest),
                Phase::Swallow | Phase::DcsData if byte >= 0x20 => string_len(rest),
                _ => {
                    self.step(offset, byte, sink);
                    1
                }
            };
        }
    }

    /// Decodes text and controls up to an ESC or the end. Returns their length in bytes.
    fn ground(&mut self, offset: u64, bytes: &[u8], sink: &mut (impl TextSink + ?Sized)) -> usize {
        let (mut at, mut cut_off) = if self.state.held_len > 0 { self.complete(bytes, sink) } else { (0, None) };
        while let Some(rest) = bytes.get(at..) {
            let offset = offset + at as u64;
            let (run, holds) = text_len(rest);
            let (text, rest) = rest.split_at_checked(run).unwrap_or((rest, &[]));
            if !text.is_empty() {
                cut_off = if holds.bits < 0x80 {
                    sink.text(offset, text);
                    None
                } else if holds.c1_lead {
                    self.text(offset, text, rest.is_empty(), cut_off, &mut WithoutC1(&mut *sink))
                } else {
                    self.text(offset, text, rest.is_empty(), cut_off, sink)
                };
            }
            let Some(&byte) = rest.first() else { return bytes.len() };
            let offset = offset + run as u64;
            at += run + 1;
            if byte == 0x1b {
                let sequence = bytes.get(at..).unwrap_or_default();
                if let Some(len) = whole_sequence(offset, sequence, sink) {
                    at += len;
                    cut_off = None;
                    continue;
                }
                self.enter(Phase::Escape, offset, cut_off);
                return at;
            }
            cut_off = None;
            execute(offset, byte, sink);
        }
        bytes.len()
    }

    /// Decodes a run without controls. `cut_off` is the start of a character that this run cuts
    /// off; the result is the start of one that the bytes after the run cut off.
    fn text(
        &mut self,
        mut offset: u64,
        mut text: &[u8],
        at_end: bool,
        mut cut_off: Option<u64>,
        sink: &mut (impl TextSink + ?Sized),
    ) -> Option<u64> {
        loop {
            let Err(error) = std::str::from_utf8(text) else {
                if !text.is_empty() {
                    sink.text(offset, text);
                    cut_off = None;
                }
                return cut_off;
            };
            let (valid, rest) = text.split_at_checked(error.valid_up_to()).unwrap_or((text, &[]));
            if !valid.is_empty() {
                sink.text(offset, valid);
                cut_off = None;
            }
            offset += valid.len() as u64;
            match error.error_len() {
                None if at_end => {
                    self.state.start = offset;
                    self.state.since = cut_off.unwrap_or(offset);
                    self.state.held_len = 0;
                    for (slot, byte) in self.state.held.iter_mut().zip(rest) {
                        *slot = *byte;
                        self.state.held_len += 1;
                    }
                    return None;
                }
                invalid => {
                    sink.text(offset, REPLACEMENT);
                    let (bad, later) = rest.split_at_checked(invalid.unwrap_or(rest.len())).unwrap_or((rest, &[]));
                    let has_begun = std::str::from_utf8(bad).is_err_and(|error| error.error_len().is_none());
                    cut_off = has_begun.then(|| cut_off.unwrap_or(offset));
                    offset += bad.len() as u64;
                    text = later;
                }
            }
        }
    }

    /// Continues the character whose first bytes are held. Returns the number of bytes that were
    /// used, and the character's start if the next byte cuts it off.
    fn complete(&mut self, bytes: &[u8], sink: &mut (impl TextSink + ?Sized)) -> (usize, Option<u64>) {
        for (taken, byte) in bytes.iter().enumerate() {
            let len = usize::from(self.state.held_len);
            if let Some(slot) = self.state.held.get_mut(len) {
                *slot = *byte;
            }
            let character = self.state.held.get(..=len).unwrap_or_default();
            match std::str::from_utf8(character) {
                Ok(_) => {
                    WithoutC1(sink).text(self.state.start, character);
                    self.state.held_len = 0;
                    return (taken + 1, None);
                }
                Err(error) if error.error_len().is_none() => self.state.held_len += 1,
                Err(_) => {
                    // This byte does not belong to the character; it is read again.
                    sink.text(self.state.start, REPLACEMENT);
                    self.state.held_len = 0;
                    return (taken, Some(self.state.since));
                }
            }
        }
        (bytes.len(), None)
    }

    /// Collects payload up to a control byte. Returns its length in bytes.
    fn collect(&mut self, bytes: &[u8]) -> usize {
        let len = string_len(bytes);
        if self.state.known == Known::Whole {
            let room = PAYLOAD_LIMIT.saturating_sub(self.payload.len());
            if len > room {
                self.state.known = Known::Beginning;
            }
            self.payload.extend_from_slice(bytes.get(..len.min(room)).unwrap_or_default());
        }
        len
    }

    fn enter(&mut self, phase: Phase, start: u64, cut_off: Option<u64>) {
        let since = self.state.open_since().or(cut_off).unwrap_or(start);
        self.state = DecoderState { start, since, phase, ..DecoderState::default() };
    }

    /// Processes one byte of a sequence.
    fn step(&mut self, offset: u64, byte: u8, sink: &mut (impl TextSink + ?Sized)) {
        match self.state.phase {
            Phase::PayloadEscape if byte == b'\\' => {
                self.report(offset + 1, sink);
                self.state.phase = Phase::Ground;
                return;
            }
            Phase::PayloadEscape => {
                let escape = offset.saturating_sub(1);
                self.report(escape, sink);
                self.enter(Phase::Escape, escape, None);
            }
            Phase::DcsData => {
                if byte == 0x1b {
                    self.state.phase = Phase::DcsEscape;
                }
                return;
            }
            Phase::DcsEscape => {
                self.state.phase = if byte == b'\\' { Phase::Ground } else { Phase::DcsData };
                return;
            }
            _ => {}
        }
        match (self.state.phase, byte) {
            (_, 0x18 | 0x1a) | (Phase::EscapeIntermediate, 0x30..=0x7e) => self.leave(),
            (Phase::Payload, 0x1b) => self.state.phase = Phase::PayloadEscape,
            (_, 0x1b) => self.enter(Phase::Escape, offset, None),
            (Phase::Payload, 0x07) if !self.state.title => {
                self.report(offset + 1, sink);
                self.state.phase = Phase::Ground;
            }
            (phase, 0..=0x1f) if phase.executes() => execute(offset, byte, sink),
            (Phase::Escape, 0x20..=0x7e) => self.escape(offset, byte, sink),
            (phase, 0x20..=0x7e) if phase.is_csi() => self.csi(byte, sink),
            (Phase::DcsEntry | Phase::DcsParameter | Phase::DcsIntermediate, 0x20..=0x7e) => self.dcs(byte),
            // tmux ignores all other bytes, without a change of state.
            _ => {}
        }
    }

    fn leave(&mut self) {
        self.state.phase = Phase::Ground;
        self.payload = Vec::new();
    }

    /// Processes the byte after an ESC.
    fn escape(&mut self, offset: u64, byte: u8, sink: &mut (impl TextSink + ?Sized)) {
        let start = self.state.start;
        self.state.phase = match byte {
            0x20..=0x2f => Phase::EscapeIntermediate,
            b'[' => Phase::Csi,
            b']' | b'k' => {
                self.state.title = byte == b'k';
                self.payload.clear();
                Phase::Payload
            }
            b'P' => Phase::DcsEntry,
            b'X' | b'^' | b'_' => Phase::Swallow,
            _ => Phase::Ground,
        };
        match byte {
            b'c' => sink.control(start, Control::Reset),
            b'D' => sink.control(offset, Control::LineFeed),
            b'E' => {
                sink.control(start, Control::CarriageReturn);
                // Reported at the last byte: the bytes at the next offset are then those after the
                // sequence.
                sink.control(offset, Control::LineFeed);
            }
            b'M' => sink.control(start, Control::Csi(b'A', 1, 0)),
            _ => {}
        }
    }

    fn csi(&mut self, byte: u8, sink: &mut (impl TextSink + ?Sized)) {
        match (self.state.phase, byte) {
            (phase, 0x40..=0x7e) => {
                if phase != Phase::CsiIgnore && !self.state.private {
                    let [first, second] = self.state.parameters;
                    sink.control(self.state.start, Control::Csi(byte, first, second));
                }
                self.state.phase = Phase::Ground;
            }
            (Phase::CsiIgnore, _) => {}
            (_, 0x20..=0x2f) => {
                self.state.private = true;
                self.state.phase = Phase::CsiIntermediate;
            }
            (Phase::CsiIntermediate, _) | (Phase::CsiParameter, 0x3c..=0x3f) => self.state.phase = Phase::CsiIgnore,
            (_, b'0'..=b'9') => {
                self.state.phase = Phase::CsiParameter;
                if let Some(value) = self.state.parameters.get_mut(usize::from(self.state.parameter)) {
                    *value = value.saturating_mul(10).saturating_add(u16::from(byte - b'0'));
                }
            }
            (_, b';') => {
                self.state.phase = Phase::CsiParameter;
                self.state.parameter = self.state.parameter.saturating_add(1);
            }
            // A sub-parameter, or a private marker, which is only valid at the start.
            _ => {
                self.state.phase = Phase::CsiParameter;
                self.state.private = true;
            }
        }
    }

    fn dcs(&mut self, byte: u8) {
        self.state.phase = match (self.state.phase, byte) {
            (_, 0x40..=0x7e) => Phase::DcsData,
            (_, 0x20..=0x2f) => Phase::DcsIntermediate,
            (Phase::DcsEntry | Phase::DcsParameter, b'0'..=b'9' | b';') | (Phase::DcsEntry, 0x3c..=0x3f) => {
                Phase::DcsParameter
            }
            _ => Phase::Swallow,
        };
    }

    /// Reports a complete payload.
    fn report(&mut self, end: u64, sink: &mut (impl TextSink + ?Sized)) {
        let payload = std::mem::take(&mut self.payload);
        let mark = match (self.state.known, self.state.title) {
            (Known::Whole, true) => Some(Mark::Title(&payload)),
            (Known::Whole, false) => Some(osc_mark(&payload)),
            (Known::Beginning, false) if !matches!(osc_mark(&payload), Mark::Title(_)) => Some(Mark::Long(&payload)),
            (Known::Beginning | Known::Nothing, _) => None,
        };
        if let Some(mark) = mark {
            sink.mark(self.state.start, end, mark);
        }
        // Most payloads are short, and the next one needs as much room.
        if payload.capacity() <= KEPT_CAPACITY {
            self.payload = payload;
            self.payload.clear();
        }
    }
}

/// Returns the mark of an OSC with this payload.
pub(crate) fn osc_mark(payload: &[u8]) -> Mark<'_> {
    let rest = |number: &[u8]| payload.strip_prefix(number).and_then(|rest| rest.strip_prefix(b";"));
    if let Some(title) = rest(b"0").or_else(|| rest(b"2")) {
        Mark::Title(title)
    } else if let Some(prompt) = rest(b"133") {
        Mark::Prompt(prompt)
    } else {
        Mark::Osc(payload)
    }
}

/// Returns the payload and the length of the OSC at the start, if it is complete and short enough to
/// be reported as a whole.
pub(crate) fn whole_osc(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let rest = bytes.strip_prefix(b"\x1b]")?;
    let (payload, end) =
        rest.split_at_checked(string_len(rest)).filter(|(payload, _)| payload.len() <= PAYLOAD_LIMIT)?;
    let end = match end {
        [0x07, ..] => 1,
        [0x1b, b'\\', ..] => 2,
        _ => return None,
    };
    Some((payload, 2 + payload.len() + end))
}

/// Parses a complete sequence at once, of the kinds that set colors: a CSI with numbers only, or
/// the choice of a character set. `bytes` follow an ESC at `offset`; returns how many of them
/// belong to the sequence. All other and incomplete sequences go byte by byte through the parser.
fn whole_sequence(offset: u64, bytes: &[u8], sink: &mut (impl TextSink + ?Sized)) -> Option<usize> {
    match bytes {
        [b'(' | b')', 0x30..=0x7e, ..] => return Some(2),
        [b'[', ..] => {}
        _ => return None,
    }
    let mut parameters = [0_u16; 2];
    let mut parameter = 0;
    for (index, byte) in bytes.iter().enumerate().skip(1) {
        match byte {
            b'0'..=b'9' => {
                if let Some(value) = parameters.get_mut(parameter) {
                    *value = value.saturating_mul(10).saturating_add(u16::from(byte - b'0'));
                }
            }
            b';' => parameter += 1,
            0x40..=0x7e => {
                let [first, second] = parameters;
                sink.control(offset, Control::Csi(*byte, first, second));
                return Some(index + 1);
            }
            _ => return None,
        }
    }
    None
}

/// Executes a control byte in text or in the middle of a sequence.
pub(crate) fn execute(offset: u64, byte: u8, sink: &mut (impl TextSink + ?Sized)) {
    match byte {
        0x07 => sink.mark(offset, offset + 1, Mark::Bell),
        0x08 => sink.control(offset, Control::Backspace),
        b'\t' => sink.text(offset, b"\t"),
        b'\n' | 0x0b | 0x0c => sink.control(offset, Control::LineFeed),
        b'\r' => sink.control(offset, Control::CarriageReturn),
        _ => {}
    }
}

/// A sink that passes on text without its C1 controls.
struct WithoutC1<'a, S: ?Sized>(&'a mut S);

impl<S: TextSink + ?Sized> TextSink for WithoutC1<'_, S> {
    fn text(&mut self, mut offset: u64, mut text: &[u8]) {
        let mut looked = 0;
        while let Some(found) = text.get(looked..).and_then(|rest| memchr::memchr(C1_LEAD, rest)) {
            let at = looked + found;
            looked = at + 2;
            // U+00A0 and above begin with the same byte.
            if text.get(at + 1).is_some_and(|byte| *byte < 0xa0) {
                if at > 0 {
                    self.0.text(offset, text.get(..at).unwrap_or_default());
                }
                offset += looked as u64;
                text = text.get(looked..).unwrap_or_default();
                looked = 0;
            }
        }
        if !text.is_empty() {
            self.0.text(offset, text);
        }
    }

    fn control(&mut self, offset: u64, control: Control) {
        self.0.control(offset, control);
    }
}

/// Returns the number of bytes of text at the start, and the kinds of bytes in them.
pub(crate) fn text_len(bytes: &[u8]) -> (usize, ByteKinds) {
    let is_control = |byte: u8| (byte < 0x20 && byte != b'\t') || byte == 0x7f;
    let mut holds = ByteKinds::default();
    let mut len = 0;
    // Blocks without a branch inside compile to vector instructions.
    for block in bytes.chunks_exact(32) {
        let mut control = false;
        let mut block_holds = ByteKinds::default();
        for byte in block {
            control |= is_control(*byte);
            block_holds.take(*byte);
        }
        if control {
            break;
        }
        holds.bits |= block_holds.bits;
        holds.c1_lead |= block_holds.c1_lead;
        len += 32;
    }
    for byte in bytes.get(len..).unwrap_or_default() {
        if is_control(*byte) {
            break;
        }
        holds.take(*byte);
        len += 1;
    }
    (len, holds)
}

/// The kinds of bytes in a run of text, which decide how the run is parsed.
#[derive(Clone, Copy, Default)]
pub(crate) struct ByteKinds {
    /// The union of the bits that are set in the bytes.
    bits: u8,
    /// Whether the run contains the byte with which a C1 control begins in UTF-8.
    pub(crate) c1_lead: bool,
}

impl ByteKinds {
    #[inline]
    fn take(&mut self, byte: u8) {
        self.bits |= byte;
        self.c1_lead |= byte == C1_LEAD;
    }
}

/// Returns the number of bytes at the start that belong to a string.
pub(crate) fn string_len(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| *byte < 0x20).unwrap_or(bytes.len())
}

#[cfg(test)]
pub(crate) mod tests;
