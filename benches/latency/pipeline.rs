//! The path of a byte within the process: frame, parse, decode, ring, text, four patterns.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use muxtap::{
    protocol::{
        codec::{ControlCodec, Event},
        frame::FrameKey,
    },
    stream::{
        matcher::{Matcher, Verdict},
        patterns::{Limits, PatternSet, PatternSpec},
        ring::Ring,
    },
};

use super::table::{Goal, figure, part};

/// A build's text as tmux sends it, and a colored listing with an escape each ten bytes or so.
const PLAIN: &[u8] = b"   Compiling muxtap v0.1.0 (/home/user/src/muxtap) with 12 features on\\015\\012";
const COLOURED: &[u8] = b"\\033[01;34msrc\\033[0m  \\033[01;32mrun.sh\\033[0m  a.txt\\015\\012";
const PATTERNS: [&str; 4] = ["error: .*", "BUILD (?:OK|FAILED)", r"\d+ passed; \d+ failed", "(?i)fatal.*"];
/// The bytes of a line, and of one read.
const LINE: usize = 4000;
const READ: usize = 256 * 1024;
const LEAST: Duration = Duration::from_millis(1500);

pub fn run() {
    part("In the process, in MB of tmux's encoded stream a second (decoded bytes in brackets)");
    for (name, piece, parse_goal, whole_goal) in
        [("plain", PLAIN, 1000.0, 250.0), ("escape-heavy", COLOURED, 400.0, 250.0)]
    {
        let wire = wire(piece);
        let parsed = rate(&wire, |_| {});
        let mut ring = Ring::new(1 << 20);
        let specs: Vec<_> = PATTERNS.iter().map(|text| PatternSpec::new(*text)).collect();
        let mut matcher = Matcher::new(PatternSet::new(&specs, &Limits::default()).unwrap());
        let whole = rate(&wire, |data| {
            ring.push(data, &mut matcher);
            let hits = matcher.end_of_chunk(&mut |_| Verdict::Accept);
            assert!(hits.is_empty());
        });
        let line = |what: &str, (encoded, decoded): (f64, f64), goal| {
            figure(&format!("{what}, {name} [{decoded:.0}]"), encoded, "MB/s", Goal::AtLeast(goal));
        };
        line("frame, parse and octal", parsed, parse_goal);
        line("all of it with ring, text and four patterns", whole, whole_goal);
    }
}

fn wire(piece: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    while wire.len() < READ {
        wire.extend_from_slice(b"%extended-output %12 0 : ");
        wire.extend(piece.iter().copied().cycle().take(LINE.next_multiple_of(piece.len())));
        wire.push(b'\n');
    }
    wire
}

/// Returns megabytes a second, encoded and decoded.
fn rate(wire: &[u8], mut each: impl FnMut(&[u8])) -> (f64, f64) {
    let mut codec = ControlCodec::new(FrameKey::default());
    let mut buffer = BytesMut::with_capacity(2 * READ);
    let (mut encoded, mut decoded) = (0, 0);
    let started = Instant::now();
    while started.elapsed() < LEAST {
        // Copied like in a read, where the kernel copies it.
        buffer.extend_from_slice(wire);
        encoded += wire.len();
        while let Ok(Some(event)) = codec.decode(&mut buffer) {
            if let Event::Output { data, .. } = black_box(event) {
                decoded += data.len();
                each(&data);
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    (encoded as f64 / seconds / 1e6, decoded as f64 / seconds / 1e6)
}
