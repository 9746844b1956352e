use proptest::prelude::*;

use super::*;

/// An event as a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Text(u64, String),
    Control(u64, Control),
    Bell(u64),
    Title(u64, u64, String),
    Prompt(u64, u64, String),
    Osc(u64, u64, String),
    Long(u64, u64, usize),
}

/// Collects events; consecutive runs of text become one.
#[derive(Default)]
pub(crate) struct Events(pub(crate) Vec<Event>);

/// A replacement character stays alone: it may stand for fewer bytes than it has.
fn joins(start: u64, run: &str, offset: u64, text: &str) -> bool {
    start + run.len() as u64 == offset && !run.starts_with('\u{fffd}') && !text.starts_with('\u{fffd}')
}

impl Events {
    /// Returns the events with each character by itself.
    pub(crate) fn characters(&self) -> Vec<Event> {
        let mut all = Vec::new();
        for event in &self.0 {
            match event {
                Event::Text(offset, run) => {
                    let single =
                        |(at, character): (usize, char)| Event::Text(offset + at as u64, character.to_string());
                    all.extend(run.char_indices().map(single));
                }
                event => all.push(event.clone()),
            }
        }
        all
    }
}

impl TextSink for Events {
    fn text(&mut self, offset: u64, text: &[u8]) {
        let text = String::from_utf8(text.to_vec()).unwrap();
        let control = text.chars().find(|character| character.is_control() && *character != '\t');
        assert!(!text.is_empty() && control.is_none(), "{text:?}");
        match self.0.last_mut() {
            Some(Event::Text(start, run)) if joins(*start, run, offset, &text) => run.push_str(&text),
            _ => self.0.push(Event::Text(offset, text)),
        }
    }
    fn control(&mut self, offset: u64, control: Control) {
        self.0.push(Event::Control(offset, control));
    }
    fn mark(&mut self, start: u64, end: u64, mark: Mark<'_>) {
        let owned = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.0.push(match mark {
            Mark::Bell => Event::Bell(start),
            Mark::Title(title) => Event::Title(start, end, owned(title)),
            Mark::Prompt(prompt) => Event::Prompt(start, end, owned(prompt)),
            Mark::Osc(osc) => Event::Osc(start, end, owned(osc)),
            Mark::Long(osc) => Event::Long(start, end, osc.len()),
        });
    }
}

fn decode(bytes: &[u8]) -> Vec<Event> {
    let mut events = Events::default();
    TextDecoder::default().feed(0, bytes, &mut events);
    events.0
}
fn text(offset: u64, text: &str) -> Event {
    Event::Text(offset, text.to_owned())
}
fn csi(offset: u64, last: u8, first: u16, second: u16) -> Event {
    Event::Control(offset, Control::Csi(last, first, second))
}

#[test]
fn text_comes_in_runs_and_controls_between_them() {
    let expected = [
        text(0, "a\tb"),
        Event::Control(3, Control::CarriageReturn),
        Event::Control(4, Control::LineFeed),
        text(5, "c"),
        Event::Control(6, Control::Backspace),
        Event::Bell(7),
        text(8, "d"),
    ];
    assert_eq!(decode(b"a\tb\r\nc\x08\x07d"), expected);
}

#[test]
fn controls_without_a_meaning_for_text_and_del_are_dropped() {
    assert_eq!(decode(b"a\x00b\x0e\x0f\x7fc"), [text(0, "a"), text(2, "b"), text(6, "c")]);
}

#[test]
fn a_csi_is_reported_with_its_first_two_parameters() {
    assert_eq!(decode(b"\x1b[1;31;4mx\x1b[K"), [csi(0, b'm', 1, 31), text(9, "x"), csi(10, b'K', 0, 0)]);
    assert_eq!(decode(b"\x1b[99999999C"), [csi(0, b'C', u16::MAX, 0)]);
}

#[test]
fn a_private_csi_or_one_with_an_intermediate_is_not_reported() {
    for quiet in [&b"\x1b[?2004h"[..], b"\x1b[>c", b"\x1b[4:3m", b"\x1b[ q", b"\x1b[1?2h", b"\x1b[!1p"] {
        assert_eq!(decode(quiet), [], "{quiet:?}");
    }
}

#[test]
fn controls_inside_a_csi_are_executed_and_can_ends_it() {
    assert_eq!(decode(b"\x1b[1\n2C"), [Event::Control(3, Control::LineFeed), csi(0, b'C', 12, 0)]);
    assert_eq!(decode(b"\x1b[1\x182C"), [text(4, "2C")]);
    assert_eq!(decode(b"\x1b[1\x1b[2C"), [csi(3, b'C', 2, 0)]);
}

#[test]
fn a_title_and_a_prompt_mark_end_at_bel_or_st() {
    assert_eq!(decode(b"\x1b]0;t\x07x"), [Event::Title(0, 6, "t".into()), text(6, "x")]);
    assert_eq!(decode(b"\x1b]2;t\x1b\\x"), [Event::Title(0, 7, "t".into()), text(7, "x")]);
    assert_eq!(decode(b"\x1bkt\x1b\\"), [Event::Title(0, 5, "t".into())]);
    assert_eq!(decode(b"\x1b]133;D;0\x07"), [Event::Prompt(0, 10, "D;0".into())]);
    assert_eq!(decode(b"\x1b]7;file://h/\x07"), [Event::Osc(0, 14, "7;file://h/".into())]);
}

#[test]
fn an_osc_ends_at_any_escape_as_in_tmux_and_can_aborts_it() {
    assert_eq!(decode(b"\x1b]0;t\x1b[K"), [Event::Title(0, 5, "t".into()), csi(5, b'K', 0, 0)]);
    assert_eq!(decode(b"\x1b]0;t\x18x"), [text(6, "x")]);
}

#[test]
fn a_title_that_is_too_long_is_swallowed_whole_and_another_osc_keeps_its_beginning() {
    let end = PAYLOAD_LIMIT as u64 + 6;
    let long = [b"\x1b]0;".as_slice(), &[b'x'; PAYLOAD_LIMIT + 1], b"\x07after"].concat();
    assert_eq!(decode(&long), [text(end, "after")]);
    let long = [b"\x1b]7;".as_slice(), &[b'x'; PAYLOAD_LIMIT + 1], b"\x07after"].concat();
    let expected = [Event::Long(0, end, PAYLOAD_LIMIT), text(end, "after")];
    assert_eq!(decode(&long), expected);
    for cut in 1..long.len() {
        let mut events = Events::default();
        let mut decoder = TextDecoder::default();
        decoder.feed(0, &long[..cut], &mut events);
        decoder.feed(cut as u64, &long[cut..], &mut events);
        assert_eq!(events.0.last(), expected.last());
        assert_eq!(events.0.first(), expected.first());
    }
    let whole = [b"\x1b]".as_slice(), &[b'x'; PAYLOAD_LIMIT], b"\x07"].concat();
    assert!(matches!(decode(&whole)[..], [Event::Osc(0, _, ref osc)] if osc.len() == PAYLOAD_LIMIT));
}

#[test]
fn other_strings_are_swallowed_and_can_ends_all_but_dcs_data() {
    for quiet in [&b"\x1bPq1$r\x1b\\"[..], b"\x1b_apc\x1b\\", b"\x1b^pm\x1b\\", b"\x1bXsos\x1b\\", b"\x1bP1:2q\x18"] {
        assert_eq!(decode(quiet), [], "{quiet:?}");
    }
    assert_eq!(decode(b"\x1bPq\x18\x1b[31m\x1b\\x"), [text(11, "x")]);
}

#[test]
fn character_sets_leave_ascii_and_a_full_reset_is_told() {
    assert_eq!(decode(b"\x1b(0q\x1b(B"), [text(3, "q")]);
    assert_eq!(decode(b"\x1bc"), [Event::Control(0, Control::Reset)]);
    let newline = [Event::Control(0, Control::CarriageReturn), Event::Control(1, Control::LineFeed)];
    assert_eq!(decode(b"\x1bE"), newline);
}

#[test]
fn a_character_cut_in_two_comes_as_one_at_its_first_byte() {
    let mut decoder = TextDecoder::default();
    let mut events = Events::default();
    decoder.feed(0, b"a\xe2\x9c", &mut events);
    assert_eq!(events.0, [text(0, "a")]);
    assert_eq!(decoder.state().open_since(), Some(1));
    decoder.feed(3, b"\x93b", &mut events);
    assert_eq!(events.0, [text(0, "a\u{2713}b")]);
    assert_eq!(decoder.state().open_since(), None);
}

#[test]
fn each_maximal_invalid_part_is_one_replacement() {
    assert_eq!(decode(b"\xe2\x9cx\xff"), [text(0, "\u{fffd}"), text(2, "x"), text(3, "\u{fffd}")]);
    assert_eq!(decode(b"\xe2\x9c\x1b[K"), [text(0, "\u{fffd}"), csi(2, b'K', 0, 0)]);
}

/// S12.
#[test]
fn a_string_that_is_given_up_is_followed_by_text() {
    for string in [
        "\x1b]0;t",
        "\x1bkt",
        "\x1bP",
        "\x1bP1",
        "\x1bP1 ",
        "\x1bPq",
        "\x1bPq\x1b",
        "\x1bP:",
        "\x1b_a",
        "\x1b^p",
        "\x1bXs",
    ] {
        let mut decoder = TextDecoder::default();
        let mut events = Events::default();
        decoder.feed(0, string.as_bytes(), &mut events);
        let end = string.len() as u64;
        assert_eq!((decoder.state().string_start(), decoder.give_up()), (Some(0), true), "{string:?}");
        assert_eq!(decoder.state().open_since(), None, "{string:?}");
        decoder.feed(end, b"x\x07", &mut events);
        assert_eq!(events.0, [text(end, "x"), Event::Bell(end + 1)], "{string:?}");
    }
}

#[test]
fn what_is_no_string_is_not_given_up() {
    for open in ["", "a", "\x1b", "\x1b[", "\x1b[1", "\x1b(", "\x1b]0;t\x1b", "\u{e9}", "\x1b[:"] {
        let mut decoder = TextDecoder::default();
        decoder.feed(0, open.as_bytes(), &mut Events::default());
        let state = decoder.state();
        assert_eq!((state.string_start(), decoder.give_up(), decoder.state()), (None, false, state), "{open:?}");
    }
}

#[test]
fn c1_controls_are_dropped_like_other_controls() {
    let run = "a\u{80}\u{9b}31mb\u{9f}\u{a0}\u{a3}\u{e9}\u{9d}";
    assert_eq!(decode(run.as_bytes()), [text(0, "a"), text(5, "31mb"), text(11, "\u{a0}\u{a3}\u{e9}")]);
    assert_eq!(decode(b"a\x9bb"), [text(0, "a"), text(1, "\u{fffd}"), text(2, "b")], "not UTF-8");
    let mut decoder = TextDecoder::default();
    let mut events = Events::default();
    for (at, byte) in run.bytes().enumerate() {
        decoder.feed(at as u64, &[byte], &mut events);
    }
    assert_eq!(events.characters(), Events(decode(run.as_bytes())).characters());
}

#[test]
fn the_state_is_small() {
    assert!(size_of::<DecoderState>() <= 32 && size_of::<TextDecoder>() <= 64);
}

/// Generates bytes that reach the parser's branches much more often than random ones would.
pub(crate) fn terminal_bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => "[a-z \t]{1,12}".prop_map(String::into_bytes),
        2 => Just(b"\r\n".to_vec()),
        1 => Just("\u{e9}\u{2713}\u{1f980}\u{fffd}".as_bytes().to_vec()),
        1 => "[\u{80}-\u{a8}]{1,4}".prop_map(String::into_bytes),
        2 => "\x1b\\[[0-9;?:]{0,6}[ -/]?[@-~]".prop_map(String::into_bytes),
        1 => "\x1b[\\]kPX_^]([a-z0-9;]{0,8})(\x07|\x1b\\\\|\x18|\x1b)".prop_map(String::into_bytes),
        1 => "\x1b[ -~]".prop_map(String::into_bytes),
        2 => prop::collection::vec(any::<u8>(), 0..4),
        1 => prop::collection::vec(prop::sample::select(&b"\x1b\r\n\x08[\x18"[..]), 0..5),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// S1: the places of the cuts change nothing.
    #[test]
    fn chunking_changes_nothing(
        bytes in terminal_bytes(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut decoder = TextDecoder::default();
        let mut events = Events::default();
        for pair in cuts.windows(2) {
            decoder.feed(pair[0] as u64, &bytes[pair[0]..pair[1]], &mut events);
        }
        prop_assert_eq!(events.characters(), Events(decode(&bytes)).characters());
    }
}
