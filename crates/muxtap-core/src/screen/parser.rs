//! The parser: the states in which tmux reads a pane's output, and the effects of the bytes.

use serde::{Deserialize, Serialize};

use super::{
    Trouble,
    params::{self, NO_NUMBERS, ParamBuffer, RawParams},
    terminal::Terminal,
    utf8,
};
use crate::stream::decoder::string_len;

/// The maximum number of bytes of an OSC, APC, DCS or name; a longer one has no effect.
const STRING_LIMIT: usize = 1 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum State {
    #[default]
    Ground,
    Escape,
    EscapeIntermediate,
    Csi,
    CsiParameter,
    CsiIntermediate,
    CsiIgnore,
    Dcs,
    DcsParameter,
    DcsIntermediate,
    DcsString,
    DcsEscape,
    DcsIgnore,
    Osc,
    Apc,
    /// `ESC k`, which names the window.
    Rename,
    /// SOS and PM: ignored until their end.
    Consume,
}

/// Parses bytes and applies them to a [`Terminal`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Parser {
    state: State,
    collected: RawParams,
    /// The text of an OSC or APC.
    #[serde(with = "crate::stored::bytes")]
    string: Vec<u8>,
    /// Whether the DCS began like a sixel image.
    image: bool,
    /// The number of the string's bytes so far, including those not kept.
    string_length: usize,
    /// The number of strings that have begun so far.
    strings: u64,
}

impl Parser {
    /// Returns whether nothing is open.
    pub(super) fn at_rest(&self) -> bool {
        self.state == State::Ground
    }

    /// Returns whether a string is open; tmux gives up on it after five seconds.
    pub(super) fn in_string(&self) -> bool {
        matches!(
            self.state,
            State::Dcs
                | State::DcsParameter
                | State::DcsIntermediate
                | State::DcsString
                | State::DcsEscape
                | State::DcsIgnore
                | State::Osc
                | State::Apc
                | State::Rename
                | State::Consume
        )
    }

    /// Returns the number of the string that is open.
    pub(super) fn string(&self) -> Option<u64> {
        self.in_string().then_some(self.strings)
    }

    /// Forgets an open string, as tmux does when it waited too long for its end (N57): the
    /// collected bytes have no effect. Returns whether a string was open.
    pub(super) fn give_up(&mut self, terminal: &mut Terminal) -> bool {
        let open = self.in_string();
        if open {
            *self = Self { strings: self.strings, ..Self::default() };
            terminal.forget_looks();
        }
        open
    }

    pub(super) fn memory(&self) -> usize {
        self.string.capacity()
    }

    pub(super) fn feed(&mut self, bytes: &[u8], terminal: &mut Terminal) {
        let mut rest = bytes;
        while let Some(&byte) = rest.first() {
            if self.state == State::Ground {
                let used = if byte == 0x1b { whole_sequence(rest, terminal) } else { ground(rest, terminal) };
                if used > 0 {
                    rest = rest.get(used..).unwrap_or_default();
                    continue;
                }
            } else if self.state == State::DcsString {
                // The content has no effect on the grid.
                let run = memchr::memchr(0x1b, rest).unwrap_or(rest.len());
                if run > 0 {
                    self.string_length = self.string_length.saturating_add(run);
                    rest = rest.get(run..).unwrap_or_default();
                    continue;
                }
            } else if matches!(self.state, State::Osc | State::Apc) {
                let (run, after) = rest.split_at_checked(string_len(rest)).unwrap_or((rest, &[]));
                if !run.is_empty() {
                    self.collect(run);
                    rest = after;
                    continue;
                }
            }
            self.byte(byte, terminal);
            rest = rest.get(1..).unwrap_or_default();
        }
    }

    /// Executes an OSC that arrived complete, while nothing is open.
    pub(super) fn whole_osc(&mut self, text: &[u8], terminal: &mut Terminal) {
        self.strings += 1;
        (terminal.run, terminal.last) = (None, None);
        terminal.osc(text);
    }

    fn enter(&mut self, state: State, terminal: &mut Terminal) {
        let left = std::mem::replace(&mut self.state, state);
        match left {
            State::Osc | State::Apc => {
                if self.string_length < STRING_LIMIT {
                    if left == State::Osc {
                        terminal.osc(&self.string);
                    } else {
                        terminal.set_title(&self.string);
                    }
                }
                self.string.clear();
                self.string.shrink_to(4096);
            }
            _ => {}
        }
        match state {
            State::Escape | State::Csi => self.collected.clear(),
            State::Dcs => {
                self.strings += 1;
                self.collected.clear();
                terminal.last = None;
            }
            State::Osc | State::Apc | State::Rename | State::Consume => {
                self.strings += 1;
                terminal.last = None;
                self.string.clear();
                self.string_length = 0;
            }
            _ => {}
        }
    }

    /// Collects the next bytes of an OSC or APC. A string that reaches the limit has no effect.
    fn collect(&mut self, bytes: &[u8]) {
        self.string_length = self.string_length.saturating_add(bytes.len());
        if self.string_length < STRING_LIMIT {
            self.string.extend_from_slice(bytes);
        }
    }

    fn byte(&mut self, byte: u8, terminal: &mut Terminal) {
        use State as S;
        terminal.run = None;
        // CAN, SUB and ESC end every state but a DCS.
        if !matches!(self.state, S::DcsString | S::DcsEscape) {
            match byte {
                0x18 | 0x1a => {
                    terminal.control(byte);
                    return self.enter(S::Ground, terminal);
                }
                0x1b => return self.enter(S::Escape, terminal),
                _ => {}
            }
        }
        match (self.state, byte) {
            (S::Ground, ..0x20) => terminal.control(byte),
            (S::Ground, 0x20..=0x7e) => terminal.print(&[byte]),
            (S::Ground, 0x80..) => terminal.top_bit(byte),

            (
                S::Escape | S::EscapeIntermediate | S::Csi | S::CsiParameter | S::CsiIntermediate | S::CsiIgnore,
                ..0x20,
            ) => {
                terminal.control(byte);
            }
            (S::Escape | S::EscapeIntermediate, 0x20..0x30) => {
                self.collected.intermediate(byte);
                self.state = S::EscapeIntermediate;
            }
            (S::Escape, b'P') => self.enter(S::Dcs, terminal),
            (S::Escape, b'X' | b'^') => self.enter(S::Consume, terminal),
            (S::Escape, b'[') => self.enter(S::Csi, terminal),
            (S::Escape, b']') => self.enter(S::Osc, terminal),
            (S::Escape, b'_') => self.enter(S::Apc, terminal),
            (S::Escape, b'k') => self.enter(S::Rename, terminal),
            (S::Escape | S::EscapeIntermediate, 0x30..0x7f) => {
                if !self.collected.discard {
                    terminal.escape(self.collected.intermediates(), byte);
                }
                self.enter(S::Ground, terminal);
            }

            (S::Csi | S::CsiParameter, b'0'..=b';') => {
                self.collected.param(byte);
                self.state = S::CsiParameter;
            }
            (S::Csi, b'<'..=b'?') => {
                self.collected.intermediate(byte);
                self.state = S::CsiParameter;
            }
            (S::Csi | S::CsiParameter | S::CsiIntermediate, 0x20..0x30) => {
                self.collected.intermediate(byte);
                self.state = S::CsiIntermediate;
            }
            (S::CsiParameter, b'<'..=b'?') | (S::CsiIntermediate, b'0'..=b'?') => self.state = S::CsiIgnore,
            (S::Csi | S::CsiParameter | S::CsiIntermediate, 0x40..0x7f) => {
                if !self.collected.discard {
                    let mut room = ParamBuffer::default();
                    if let Some(params) = self.collected.split(&mut room) {
                        terminal.control_sequence(params, self.collected.intermediates(), byte);
                    }
                }
                self.enter(S::Ground, terminal);
            }

            (S::Dcs | S::DcsParameter, b'0'..=b'9' | b';') | (S::Dcs, b'<'..=b'?') => self.state = S::DcsParameter,
            (S::Dcs | S::DcsParameter | S::DcsIntermediate, 0x20..0x30) => self.state = S::DcsIntermediate,
            (S::Dcs | S::DcsParameter | S::DcsIntermediate, b'0'..=b'?') => self.state = S::DcsIgnore,
            (S::Dcs | S::DcsParameter | S::DcsIntermediate, 0x40..0x7f) => {
                self.string_length = 1;
                self.image = byte == b'q' && (terminal.rules.draws_requests || self.state != S::DcsIntermediate);
                self.state = S::DcsString;
            }
            (S::DcsString, 0x1b) => self.state = S::DcsEscape,
            (S::DcsString, _) => self.string_length = self.string_length.saturating_add(1),
            (S::DcsEscape, b'\\') => {
                if self.image && terminal.rules.draws_images {
                    terminal.trouble = Some(Trouble::Image);
                }
                self.enter(S::Ground, terminal);
            }
            (S::CsiIgnore, 0x40..0x7f) | (S::Osc, 0x07) => self.enter(S::Ground, terminal),
            (S::DcsEscape, _) => self.state = S::DcsString,

            // Of an OSC and an APC, `feed` collects the bytes from 0x20 on.
            _ => {}
        }
    }
}

impl Terminal {
    /// Processes a control character outside of a sequence.
    #[inline]
    pub(crate) fn take_control(&mut self, byte: u8) {
        self.run = None;
        self.control(byte);
    }

    /// Prints text without controls except tabs; no character may be open. The text is known to be
    /// valid, so reading its characters takes less time than [`ground`] needs.
    pub(crate) fn print_text(&mut self, text: &str) {
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let used = if first.is_ascii() {
                ground(rest.as_bytes(), self)
            } else {
                self.run = None;
                match self.print_characters(rest.chars()) {
                    0 => {
                        self.print_character(first);
                        first.len_utf8()
                    }
                    printed => printed,
                }
            };
            if used == 0 {
                return;
            }
            rest = rest.get(used..).unwrap_or_default();
        }
    }

    /// Executes an escape that arrived complete.
    pub(crate) fn take_escape(&mut self, intermediates: &[u8], last: u8) {
        self.run = None;
        self.escape(intermediates, last);
    }

    /// Executes a control sequence that arrived complete.
    #[inline]
    pub(crate) fn take_sequence(&mut self, params: params::Params<'_>, intermediates: &[u8], last: u8) {
        self.run = None;
        self.control_sequence(params, intermediates, last);
    }
}

/// Executes a control sequence at the start, if it is complete and of a common kind, and returns
/// its length. Most sequences qualify: byte by byte, they take twice the time.
fn whole_sequence(bytes: &[u8], terminal: &mut Terminal) -> usize {
    let Some(sequence) = bytes.strip_prefix(b"\x1b[") else { return 0 };
    let marked = sequence.first().is_some_and(|byte| (b'<'..=b'?').contains(byte));
    let (mark, text) = sequence.split_at(usize::from(marked));
    let mut numbers = NO_NUMBERS;
    // Dropped sequences are rare.
    let Some((params, length)) = params::read(text, &mut numbers) else { return 0 };
    let Some(last @ 0x40..=0x7e) = text.get(length) else { return 0 };
    terminal.run = None;
    terminal.control_sequence(params, mark, *last);
    2 + mark.len() + length + 1
}

/// Processes the input at the start that needs no state (text, a control character) and returns its
/// length.
fn ground(bytes: &[u8], terminal: &mut Terminal) -> usize {
    let run = crate::tokens::printable_len(bytes);
    if run > 0 {
        terminal.print(bytes.get(..run).unwrap_or_default());
        return run;
    }
    terminal.run = None;
    if let Some(control @ ..0x20) = bytes.first() {
        terminal.control(*control);
        return 1;
    }
    let mut used = 0;
    while let Some(rest) = bytes.get(used..)
        && let Some((character, length)) = utf8::whole_character(rest)
        && !terminal.in_character()
    {
        used += match terminal.print_characters(utf8::Characters(rest)) {
            0 => {
                terminal.print_character(character);
                length
            }
            printed => printed,
        };
    }
    used
}
