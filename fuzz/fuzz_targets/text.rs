//! The text of a stream under any chunking: the same events however the bytes are cut, the same again when they are decoded from the ring, and
//! no bytes that make the renderer or the echo filter fail.
//!
//! The input is: a byte that picks the size of the chunks, one for the pane's width, one for how many of the following bytes are typed, the
//! typed bytes, then the stream.

#![no_main]

use libfuzzer_sys::fuzz_target;
use muxtap::pane::{
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
        assert!(!text.contains(['\r', '\n', '\u{1b}', '\u{7f}', '\u{8}']));
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

/// Hears and filters at once.
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
    let [chunk, columns, typed, rest @ ..] = data else { return };
    let (typed, stream) = rest.split_at(usize::from(*typed).min(rest.len()));
    let mut whole = Events::default();
    TextDecoder::default().feed(0, stream, &mut whole);

    let mut ring = Ring::new(1 << 24);
    let mut live = Events::default();
    let mut echo = EchoFilter::default();
    for (index, part) in stream.chunks(usize::from(*chunk).max(1)).enumerate() {
        if index % 3 == 0 {
            echo.typed(ring.end(), typed, resting_line(&ring), u16::from(*columns), index % 2 == 0);
        }
        ring.push(part, &mut Both(&mut live, &mut echo));
        echo.verdict(ring.end() / 2, ring.end(), "");
    }
    assert_eq!(live.0, whole.0);

    let mut again = Events::default();
    ring.decode_from(0, ring.end(), &mut again);
    assert_eq!(again.0, whole.0);
    let (mut chunks, mut from, mut more) = (Events::default(), 0, true);
    while more {
        let read = ring.read(from, Reading { most: u64::from(*chunk).max(1), whole: true, over: true });
        read.decode(&mut chunks);
        (from, more) = (read.end, read.more);
    }
    assert_eq!((from, chunks.0), (ring.end(), whole.0));
    assert_eq!(render_text(&ring, 0, ring.end()), render_bytes(stream));
});
