//! The text of a stream under any chunking: the same events for every chunking, the same again when
//! decoded from the ring, and no bytes that make the renderer or the echo filter fail. After some
//! chunks an open string is discarded, both by the decoder of the whole at the chunk's end and by
//! the ring.
//!
//! The input is: a byte that selects the size of the chunks, one for the pane's width, one for the
//! chunks after which a string is discarded (a bit each, repeated), one for the number of following
//! bytes that are typed, the typed bytes, then the stream.

#![no_main]

use libfuzzer_sys::fuzz_target;
use muxtap_core::stream::{
    decoder::TextDecoder,
    echo::EchoFilter,
    render::{render_bytes, render_text, resting_line},
    ring::{Reading, Ring},
    text::{Control, Mark, TextSink},
};

#[derive(Debug, PartialEq, Eq)]
enum Event {
    Text(u64, char),
    Control(u64, Control),
    Mark(u64, u64, String),
}

#[derive(Default)]
struct Events(Vec<Event>);

impl TextSink for Events {
    fn text(&mut self, offset: u64, text: &[u8]) {
        let text = std::str::from_utf8(text).expect("text is UTF-8");
        assert!(!text.chars().any(|character| character.is_control() && character != '\t'));
        self.0.extend(text.char_indices().map(|(at, character)| Event::Text(offset + at as u64, character)));
    }
    fn control(&mut self, offset: u64, control: Control) {
        self.0.push(Event::Control(offset, control));
    }
    fn mark(&mut self, start: u64, end: u64, mark: Mark<'_>) {
        assert!(start < end);
        self.0.push(Event::Mark(start, end, format!("{mark:?}")));
    }
}

/// Passes events to both at once.
struct Both<'a>(&'a mut Events, &'a mut EchoFilter);

impl TextSink for Both<'_> {
    fn text(&mut self, offset: u64, text: &[u8]) {
        self.0.text(offset, text);
        self.1.text(offset, text);
    }
    fn control(&mut self, offset: u64, control: Control) {
        self.0.control(offset, control);
        self.1.control(offset, control);
    }
    fn mark(&mut self, start: u64, end: u64, mark: Mark<'_>) {
        self.0.mark(start, end, mark);
    }
}

fuzz_target!(|data: &[u8]| {
    let [chunk, columns, gives_up, typed, rest @ ..] = data else { return };
    let (typed, stream) = rest.split_at(usize::from(*typed).min(rest.len()));
    let size = usize::from(*chunk).max(1);
    let gives_up = |index: usize| gives_up >> (index % 8) & 1 == 1;
    let mut whole = Events::default();
    let mut decoder = TextDecoder::default();
    let mut decoded = 0;
    // In pieces of maximum size: up to where a string may be discarded.
    let ends = (1..=stream.len().div_ceil(size)).filter(|count| gives_up(count - 1)).map(|count| count * size);
    for end in ends.chain([stream.len()]).map(|end| end.min(stream.len())) {
        decoder.feed(decoded as u64, &stream[decoded..end], &mut whole);
        decoded = end;
        if end > 0 && gives_up((end - 1) / size) {
            decoder.give_up();
        }
    }

    let mut ring = Ring::new(1 << 24);
    let mut live = Events::default();
    let mut echo = EchoFilter::default();
    for (index, part) in stream.chunks(size).enumerate() {
        if index % 3 == 0 {
            echo.typed(ring.end(), typed, resting_line(&ring), u16::from(*columns), index % 2 == 0);
        }
        ring.push(part, &mut Both(&mut live, &mut echo));
        if gives_up(index) {
            ring.give_up();
        }
        echo.verdict(ring.end() / 2, ring.end());
    }
    assert_eq!(live.0, whole.0);

    let mut again = Events::default();
    ring.decode_from(0, ring.end(), &mut again);
    assert_eq!(again.0, whole.0);
    let (mut chunks, mut from, mut more) = (Events::default(), 0, true);
    while more {
        let read = ring.read(from, Reading { most: u64::from(*chunk).max(1), whole_sequences: true, at_end: true });
        read.decode(&mut chunks);
        (from, more) = (read.end, read.more);
    }
    assert_eq!((from, chunks.0), (ring.end(), whole.0));
    if !(0..8).any(gives_up) {
        assert_eq!(render_text(&ring, 0, ring.end()), render_bytes(stream));
    }
});
