use proptest::prelude::*;

use super::*;
use crate::stream::{
    decoder::tests::{Event, Events, terminal_bytes},
    render,
};

fn ring(limit: usize, bytes: &[u8]) -> Ring {
    let mut ring = Ring::new(limit);
    ring.push(bytes, &mut NullSink);
    ring
}
fn held(ring: &Ring) -> Vec<u8> {
    ring.slices(ring.start(), ring.end()).flatten().copied().collect()
}
fn events(ring: &Ring, from: u64, to: u64) -> Vec<Event> {
    let mut events = Events::default();
    ring.decode_from(from, to, &mut events);
    events.0
}
fn gap(reason: GapReason) -> Gap {
    Gap { reason, bytes: None }
}

fn raw(most: u64) -> Reading {
    Reading { most, whole_sequences: false, at_end: false }
}
fn text(most: u64) -> Reading {
    Reading { most, whole_sequences: true, at_end: false }
}

#[test]
fn an_idle_pane_costs_less_than_a_kibibyte() {
    assert!(ring(1 << 20, b"$ ").memory() < 1024, "{}", ring(1 << 20, b"$ ").memory());
    assert_eq!(Ring::new(1 << 20).memory(), 0);
}

/// S11.
#[test]
fn the_ring_keeps_its_limit_and_at_most_one_segment_more() {
    let mut ring = Ring::new(100_000);
    for _ in 0..1000 {
        ring.push(&[b'x'; 1234], &mut NullSink);
        assert!(ring.len() <= 100_000 + SEGMENT && ring.len() as u64 >= ring.end().min(100_000));
    }
    assert!(ring.memory() < 100_000 + 4 * SEGMENT, "{}", ring.memory());
    assert_eq!(ring.end(), 1_234_000);
}

#[test]
fn trimming_gives_memory_back_and_keeps_the_last_bytes() {
    let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    let mut ring = ring(1 << 20, &bytes);
    for keep in [70_001, 20_000, 16_384, 5, 0] {
        ring.trim_to(keep);
        assert_eq!(held(&ring), bytes[bytes.len() - keep..]);
        assert_eq!(ring.start(), (bytes.len() - keep) as u64);
        assert!(ring.memory() < keep + 2 * SEGMENT, "{}", ring.memory());
    }
    ring.push(b"more", &mut NullSink);
    assert_eq!((held(&ring), ring.start()), (b"more".to_vec(), 100_000));
}

#[test]
fn a_read_from_what_was_trimmed_says_how_much_is_missing() {
    let mut ring = ring(1 << 20, b"0123456789");
    ring.trim_to(4);
    let missing = Gap { reason: GapReason::Trimmed, bytes: Some(4) };
    let state = DecoderState::default();
    let first = Chunk {
        start: 6,
        end: 9,
        bytes: b"678".to_vec(),
        gap: Some(missing),
        more: true,
        state,
        fresh: vec![],
        given_up: vec![],
        hidden: vec![],
    };
    assert_eq!(ring.read(2, raw(3)), first);
    let second = Chunk {
        start: 9,
        end: 10,
        bytes: b"9".to_vec(),
        gap: None,
        more: false,
        state,
        fresh: vec![],
        given_up: vec![],
        hidden: vec![],
    };
    assert_eq!(ring.read(9, raw(100)), second);
    assert_eq!(ring.read(99, raw(1)).start, 10, "an offset that is still to come is the end");
}

/// S5, S6.
#[test]
fn a_gap_is_reported_once_to_the_reader_that_passes_it() {
    let mut ring = ring(1 << 20, b"before\x1b[");
    ring.push_gap(gap(GapReason::Paused));
    let first = ring.read(0, text(99));
    assert_eq!((first.end, first.gap, first.more), (8, None, false), "what the gap cut off holds nothing back");
    assert_eq!(ring.read(8, text(99)).gap, None, "nothing lies behind it yet");
    let over = Reading { at_end: true, ..text(99) };
    assert!(ring.read(0, over).more, "at the end of a stream that is over it is told");
    let last = ring.read(8, over);
    assert_eq!((last.end, last.gap, last.more), (8, Some(gap(GapReason::Paused)), false));
    ring.push(b"after", &mut NullSink);
    assert!(ring.has_more(8, text(1)));
    assert_eq!(ring.read(8, text(2)).gap, Some(gap(GapReason::Paused)));
    assert_eq!(ring.read(10, text(99)).gap, None);
    assert!(ring.read(0, raw(8)).more, "a read ends before a gap");
    assert_eq!(ring.read(0, raw(99)).end, 8);
}

/// S8: a response that is practically empty must not claim that more is available.
#[test]
fn an_incomplete_character_or_sequence_is_left_for_the_next_read() {
    for begun in [&b"\xc3"[..], b"\xe2\x82", b"\xf0\x9f\x98", b"\x1b", b"\x1b[31", b"\x1b]0;title"] {
        let mut ring = ring(1 << 20, b"ab");
        ring.push(begun, &mut NullSink);
        let chunk = ring.read(0, text(99));
        assert_eq!((chunk.bytes.as_slice(), chunk.more), (&b"ab"[..], false), "{begun:?}");
        let nothing = ring.read(2, text(99));
        assert_eq!((nothing.end, nothing.more, ring.has_more(2, text(99))), (2, false, false), "{begun:?}");
        let over = Reading { at_end: true, ..text(99) };
        assert_eq!(ring.read(2, over).bytes, begun, "nothing will complete it");
        assert_eq!(ring.read(2, raw(99)).bytes, begun);
    }
    for whole in ["\u{2713}", "\u{1b}[31m", "\u{1b}]0;title\u{7}"] {
        let ring = ring(1 << 20, format!("{whole}z").as_bytes());
        let chunk = ring.read(0, text(1));
        assert_eq!((chunk.bytes.as_slice(), chunk.more), (whole.as_bytes(), true), "a limit cuts nothing in two");
    }
}

/// S6.
#[test]
fn gaps_are_bounded_and_none_is_skipped() {
    let mut ring = Ring::new(1 << 20);
    for _ in 0..3 * GAPS {
        ring.push(b"some output", &mut NullSink);
        ring.push_gap(gap(GapReason::Paused));
        ring.push_gap(gap(GapReason::Reconnected));
        assert!(ring.gaps.len() <= GAPS);
    }
    ring.push(b"the end", &mut NullSink);
    // The output before the remaining gaps was dropped, so it is reported as missing.
    assert_eq!(ring.start(), ring.gaps[0].0);
    let (mut at, mut told) = (11, Vec::new());
    while at < ring.end() {
        let chunk = ring.read(at, raw(1 << 20));
        told.push((chunk.gap.unwrap().reason, chunk.end - chunk.start));
        at = chunk.end;
    }
    assert_eq!(told[0], (GapReason::Trimmed, 11));
    assert!(told[1..GAPS - 1].iter().all(|chunk| *chunk == (GapReason::Paused, 11)), "{told:?}");
    assert_eq!((told.len(), told[GAPS - 1]), (GAPS, (GapReason::Paused, 7)));
}

/// S12.
#[test]
fn an_abandoned_string_becomes_text_at_the_same_offset_for_every_reader() {
    let mut ring = ring(1 << 20, b"a\x1b]0;tit");
    assert_eq!(ring.string_start(), Some(1));
    assert_eq!(ring.read(0, text(99)).end, 1, "it may still end");
    assert!(ring.give_up());
    assert!(!ring.give_up(), "it was given up already");
    assert!(ring.has_more(1, text(99)), "what held the reader back is over");
    let mut live = Events::default();
    ring.push(b"le\x07 b", &mut live);
    let all = |text: &str| vec![Event::Text(0, "a".into()), Event::Text(8, text.into())];
    assert_eq!(live.0, [Event::Text(8, "le".into()), Event::Bell(10), Event::Text(11, " b".into())]);
    assert_eq!(events(&ring, 0, 10), all("le"));
    for most in [1, 8, 9, 99] {
        let (mut told, mut from, mut more) = (Events::default(), 0, true);
        while more {
            let chunk = ring.read(from, text(most));
            assert_eq!(chunk.gap, None, "nothing is missing");
            chunk.decode(&mut told);
            (from, more) = (chunk.end, chunk.more);
        }
        let again = [&all("le")[..], &[Event::Bell(10), Event::Text(11, " b".into())]].concat();
        assert_eq!((from, told.0), (ring.end(), again), "{most}");
    }
    assert_eq!(events(&ring, 3, 10), [Event::Text(8, "le".into())], "from within the string as well");
}

/// S12.
#[test]
fn a_chunk_says_where_a_string_was_given_up_at_its_edges_too() {
    let mut ring = ring(1 << 20, b"a\x1b]0;tit");
    let given_up = |ring: &Ring, from, most| ring.read(from, raw(most)).given_up().to_vec();
    assert!(given_up(&ring, 0, 99).is_empty());
    ring.give_up();
    assert_eq!((given_up(&ring, 0, 99), given_up(&ring, 8, 99)), (vec![8], vec![8]), "before anything follows");
    ring.push(b"le\x1bP", &mut NullSink);
    ring.give_up();
    assert_eq!(given_up(&ring, 0, 99), [8, 12]);
    assert_eq!((given_up(&ring, 0, 7), given_up(&ring, 0, 8), given_up(&ring, 8, 2)), (vec![], vec![8], vec![8]));
    assert!(given_up(&ring, 9, 2).is_empty());
    ring.push_gap(gap(GapReason::Paused));
    ring.push(b"bc", &mut NullSink);
    assert_eq!(given_up(&ring, 0, 99), [8, 12], "a gap is none");
    ring.restart();
    ring.trim_to(3);
    assert_eq!(given_up(&ring, 0, 99), [12]);
    ring.trim_to(1);
    assert!(given_up(&ring, 0, 99).is_empty());
}

/// S11.
#[test]
fn strings_that_are_given_up_again_and_again_cost_little() {
    let mut ring = Ring::new(1 << 20);
    for _ in 0..10_000 {
        ring.push(b"\x1b]", &mut NullSink);
        assert!(ring.give_up());
    }
    assert!(ring.memory() < 2 << 20, "{}", ring.memory());
}

/// S6.
#[test]
fn no_sequence_or_character_spans_a_gap() {
    let mut ring = Ring::new(1 << 20);
    let mut live = Events::default();
    ring.push(b"a\x1b]0;tit", &mut live);
    ring.push_gap(gap(GapReason::Paused));
    ring.push(b"le\x07\xe2\x9c", &mut live);
    ring.push_gap(gap(GapReason::Paused));
    ring.push(b"\x93b", &mut live);
    assert_eq!(live.0, events(&ring, 0, ring.end()));
    let text: String = live
        .0
        .iter()
        .filter_map(|event| if let Event::Text(_, text) = event { Some(text.as_str()) } else { None })
        .collect();
    assert_eq!(text, "ale\u{fffd}b");
}

#[test]
fn decoding_begins_with_the_first_whole_thing() {
    let ring = ring(1 << 20, "ab\u{2713}c\u{1b}[1Cd".as_bytes());
    let text = |offset, text: &str| Event::Text(offset, text.to_owned());
    assert_eq!(events(&ring, 1, 6), [text(1, "b\u{2713}c")]);
    assert_eq!(events(&ring, 3, 6), [text(5, "c")]);
    assert_eq!(events(&ring, 7, 11), [text(10, "d")]);
    assert_eq!(ring.boundary(4), 2, "not inside a character");
    assert_eq!(ring.boundary(8), 6, "nor inside a sequence");
    assert_eq!(ring.boundary(10), 10);
}

#[test]
fn a_sequence_that_never_ends_holds_nothing_back_for_ever() {
    let mut ring = ring(1 << 20, b"ab\x1b_");
    ring.push(&[b'x'; 100], &mut NullSink);
    assert_eq!(ring.boundary(ring.end()), 2);
    ring.push(&[b'x'; 9000], &mut NullSink);
    assert_eq!(ring.boundary(ring.end()), ring.end());
}

/// Generates bytes that span several segments, with sequences and characters on their edges.
fn long_stream() -> impl Strategy<Value = Vec<u8>> {
    (terminal_bytes(), 0..40_usize, SEGMENT - 60..SEGMENT + 20, any::<bool>()).prop_map(
        |(bytes, repeat, filler, text)| {
            let filler = if text { "\u{2713}x".as_bytes().repeat(filler / 4) } else { vec![b'y'; filler] };
            [filler.clone(), bytes.repeat(repeat), filler, bytes].concat()
        },
    )
}

/// An event in the life of a stream.
#[derive(Clone, Debug)]
enum Step {
    Print(Vec<u8>),
    /// Bytes are lost before they reach the ring: tmux paused the pane, or the connection was lost.
    Lose,
    Trim(usize),
    GiveUp,
    Read(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let print = prop_oneof![
        terminal_bytes(),
        (0..9000_usize).prop_map(|length| (0..length).map(|at| (at % 253) as u8).collect()),
    ];
    prop_oneof![
        4 => print.prop_map(Step::Print),
        1 => Just(Step::Lose),
        1 => (0..30_000_usize).prop_map(Step::Trim),
        1 => Just(Step::GiveUp),
        5 => (0..3_usize, 1..12_000_u64).prop_map(|(reader, most)| Step::Read(reader, most)),
    ]
}

/// A reader that follows cursors.
struct Follower {
    how: Reading,
    cursor: u64,
    got: u64,
    missed: u64,
    /// Places where bytes never arrived and that a reported gap covered.
    told: Vec<u64>,
    /// Places that a gap of their own covered.
    marked: Vec<u64>,
}

impl Follower {
    fn new(how: Reading) -> Self {
        Self { how, cursor: 0, got: 0, missed: 0, told: Vec::new(), marked: Vec::new() }
    }

    /// Reads on; returns whether more is available.
    fn read(&mut self, ring: &Ring, most: u64, stream: &[u8], lost: &[u64]) -> Result<bool, TestCaseError> {
        let chunk = ring.read(self.cursor, Reading { most, ..self.how });
        let trimmed = chunk.gap.and_then(|gap| gap.bytes).unwrap_or(0);
        prop_assert_eq!(chunk.start, self.cursor + trimmed);
        prop_assert_eq!(&chunk.bytes, &stream[chunk.start as usize..chunk.end as usize]);
        prop_assert!(
            !lost.iter().any(|place| (chunk.start + 1..chunk.end).contains(place)),
            "no read goes over a loss"
        );
        if let Some(gap) = chunk.gap {
            let marked = gap.reason == GapReason::Reconnected && lost.contains(&chunk.start);
            prop_assert!(marked || gap.reason == GapReason::Trimmed && trimmed > 0, "{gap:?}");
            prop_assert!(!marked || !self.marked.contains(&chunk.start), "a loss is told once");
            self.marked.extend(marked.then_some(chunk.start));
            let over = self.cursor..=chunk.start;
            self.told.extend(lost.iter().filter(|place| over.contains(place)));
        }
        self.got += chunk.bytes.len() as u64;
        self.missed += trimmed;
        self.cursor = chunk.end;
        Ok(chunk.more)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// S2: decoding again from an offset gives the events that were passed on live from there.
    #[test]
    fn decoding_again_yields_the_live_events(
        bytes in long_stream(),
        chunk in 900..40_000_usize,
        from: prop::sample::Index,
        to: prop::sample::Index,
        trim: prop::sample::Index,
        gives_up: bool,
    ) {
        let mut ring = Ring::new(1 << 20);
        let mut live = Events::default();
        for chunk in bytes.chunks(chunk) {
            ring.push(chunk, &mut live);
            if gives_up {
                ring.give_up();
            }
        }
        ring.trim_to(trim.index(bytes.len() + 1));
        prop_assert_eq!(held(&ring), &bytes[ring.start() as usize..]);
        let from = ring.start() + from.index(ring.len() + 1) as u64;
        let to = ring.boundary(from + to.index((ring.end() - from) as usize + 1) as u64).max(from);
        // A payload that the ESC of the next sequence ends is known to have ended only when that is
        // read.
        let known = |end: u64| end < to || (end == to && matches!(bytes[end as usize - 1], 0x07 | b'\\'));
        let within = |event: &Event| match event {
            Event::Text(at, _) | Event::Control(at, _) | Event::Bell(at) => from <= *at && *at < to,
            Event::Title(start, end, _)
            | Event::Prompt(start, end, _)
            | Event::Osc(start, end, _)
            | Event::Long(start, end, _) => from <= *start && known(*end),
        };
        let mut again = Events::default();
        ring.decode_from(from, to, &mut again);
        let expected: Vec<Event> = live.characters().into_iter().filter(within).collect();
        let again: Vec<Event> = again.characters().into_iter().filter(within).collect();
        prop_assert_eq!(again, expected);
    }

    /// S3, S4: a reader that follows cursors over a trimmed ring gets each retained byte exactly
    /// once, and the exact number of bytes that it missed.
    #[test]
    fn a_reader_that_follows_cursors_sees_each_retained_byte_once(
        steps in prop::collection::vec((0..6000_usize, 1..30_000_u64, any::<bool>(), 0..50_000_usize), 1..40),
        whole_sequences: bool,
    ) {
        let mut ring = Ring::new(20_000);
        let mut stream: Vec<u8> = Vec::new();
        let (mut cursor, mut read, mut missing) = (0, Vec::new(), 0);
        for (push, most, trims, keep) in steps {
            let bytes: Vec<u8> = (stream.len()..stream.len() + push).map(|at| (at % 253) as u8).collect();
            ring.push(&bytes, &mut NullSink);
            stream.extend(&bytes);
            if trims {
                ring.trim_to(keep);
            }
            let how = Reading { most, whole_sequences, at_end: false };
            let chunk = ring.read(cursor, how);
            let trimmed = chunk.gap.and_then(|gap| gap.bytes).unwrap_or(0);
            prop_assert_eq!(chunk.start, cursor + trimmed);
            prop_assert_eq!(&chunk.bytes, &stream[chunk.start as usize..chunk.end as usize]);
            prop_assert!(!chunk.more || ring.read(chunk.end, how).end > chunk.end, "more is there when it says so");
            missing += trimmed;
            read.extend(chunk.bytes);
            cursor = chunk.end;
        }
        prop_assert_eq!(read.len() as u64 + missing, cursor);
    }

    /// S3 to S6: for any interleaving of output, loss, trimming and reading, each of several
    /// readers gets each byte once and in order, or a gap: one that counts the trimmed bytes, or
    /// the one that was marked where bytes never arrived, reported once.
    #[test]
    fn readers_get_each_byte_once_in_order_or_a_gap(
        steps in prop::collection::vec(step(), 1..120),
        limit in 1..40_000_usize,
    ) {
        let mut ring = Ring::new(limit);
        let (mut stream, mut lost) = (Vec::new(), Vec::new());
        let mut readers = [Follower::new(raw(1)), Follower::new(text(1)), Follower::new(text(1))];
        for step in steps {
            match step {
                Step::Print(bytes) => {
                    ring.push(&bytes, &mut NullSink);
                    stream.extend(bytes);
                }
                Step::Lose if lost.len() < GAPS && lost.last() != Some(&ring.end()) => {
                    lost.push(ring.end());
                    ring.push_gap(gap(GapReason::Reconnected));
                }
                Step::Lose => {}
                Step::Trim(keep) => ring.trim_to(keep),
                Step::GiveUp => {
                    ring.give_up();
                }
                Step::Read(reader, most) => {
                    readers[reader].read(&ring, most, &stream, &lost)?;
                }
            }
        }
        for reader in &mut readers {
            reader.how.at_end = true;
            while reader.read(&ring, 5000, &stream, &lost)? {}
            prop_assert_eq!(reader.cursor, ring.end());
            prop_assert_eq!(reader.got + reader.missed, ring.end(), "each byte is read or counted");
            for place in &lost {
                prop_assert!(reader.told.contains(place), "the reader knows of {place}: {:?}", reader.told);
            }
        }
    }

    /// S3, S6, S8: whatever the limits of its reads, a reader of text gets the events that were
    /// passed on live, each gap included.
    #[test]
    fn consecutive_reads_yield_the_live_events_and_every_gap(
        steps in prop::collection::vec(
            (terminal_bytes(), any::<bool>(), any::<bool>(), prop::collection::vec(1..40_u64, 0..6)),
            1..12,
        ),
    ) {
        let mut ring = Ring::new(1 << 20);
        let (mut live, mut again) = (Events::default(), Events::default());
        let (mut cursor, mut gaps, mut told) = (0, 0, 0);
        let mut read = |ring: &Ring, how: Reading| {
            let chunk = ring.read(cursor, how);
            chunk.decode(&mut again);
            told += usize::from(chunk.gap.is_some());
            cursor = chunk.end;
            chunk.more
        };
        for (bytes, gives_up, lost, reads) in steps {
            if gives_up {
                ring.give_up();
            }
            if lost && ring.gap_at(ring.end()).is_none() {
                ring.push_gap(gap(GapReason::Paused));
                gaps += 1;
            }
            ring.push(&bytes, &mut live);
            for most in reads {
                read(&ring, text(most));
            }
        }
        while read(&ring, Reading { at_end: true, ..text(7) }) {}
        prop_assert_eq!(cursor, ring.end());
        prop_assert_eq!(told, gaps);
        prop_assert_eq!(again.characters(), live.characters());
    }
}

#[test]
fn a_hidden_range_is_left_out_of_text_and_stays_in_the_bytes() {
    let mut ring = ring(1 << 20, b"$ ");
    ring.hold();
    ring.push(b" . /file\r\n\x1b[1A\x1b[J\x1b]7717;c\x07", &mut NullSink);
    let to = ring.end();
    ring.hide(2, to);
    ring.push("echo hi\r\nhi\r\n".as_bytes(), &mut NullSink);
    assert_eq!(render::render_text(&ring, 0, ring.end()), "$ echo hi\nhi\n");
    // From any offset, in chunks of any size, by readers and by searches.
    for most in 1..40 {
        let (mut from, mut shown, mut bytes) = (0, Vec::new(), Vec::new());
        while from < ring.end() {
            let chunk = ring.read(from, raw(most));
            assert_eq!(chunk.shown_place(chunk.end), chunk.shown().len(), "{most}");
            shown.extend_from_slice(&chunk.shown());
            bytes.extend_from_slice(&chunk.bytes);
            from = chunk.end;
        }
        assert_eq!(shown, b"$ echo hi\r\nhi\r\n", "{most}");
        assert_eq!(bytes, held(&ring), "{most}");
    }
    for from in 0..to {
        let text = render::render_text(&ring, from, ring.end());
        assert!(text.ends_with("echo hi\nhi\n") && !text.contains("file"), "{from}: {text}");
    }
    assert!(ring.is_hidden(2) && ring.is_hidden(to - 1) && !ring.is_hidden(1) && !ring.is_hidden(to));
}

#[test]
fn text_is_held_back_until_it_is_shown_or_hidden() {
    let mut ring = ring(1 << 20, b"$ ");
    ring.hold();
    ring.push(b"typed", &mut NullSink);
    assert_eq!(ring.read(0, text(100)).bytes, b"$ ");
    assert!(!ring.has_more(2, text(100)) && ring.has_more(2, raw(100)));
    let nothing = ring.read(2, text(100));
    assert!(nothing.bytes.is_empty() && !nothing.more);
    assert_eq!(ring.read(0, Reading { at_end: true, ..text(100) }).bytes, b"$ typed", "the stream has ended");
    ring.show();
    assert!(ring.has_more(2, text(100)));
    assert_eq!(ring.read(0, text(100)).bytes, b"$ typed");
}

#[test]
fn hidden_ranges_are_forgotten_with_their_bytes_and_bounded() {
    let mut ring = Ring::new(100);
    for number in 0..3000_u64 {
        ring.push(b"xy", &mut NullSink);
        ring.hide(number * 2, number * 2 + 1);
    }
    assert!(ring.hidden.len() <= HIDDEN, "{}", ring.hidden.len());
    ring.trim_to(10);
    assert!(ring.hidden.len() <= 10, "{}", ring.hidden.len());
}
