//! The speed of the core crate: octal decoding alone, and lines through the codec like a reader does.
//! `cargo bench --bench protocol`

use bytes::BytesMut;
use divan::{Bencher, black_box, counter::BytesCount};
use muxtap::protocol::{
    codec::ControlCodec,
    frame::FrameKey,
    line::parse_line,
    octal::{decode_in_place, decode_into},
};

fn main() {
    divan::main();
}

/// Returns pane output as tmux encodes it, at least `length` bytes.
fn encoded(piece: &[u8], length: usize) -> Vec<u8> {
    piece.iter().copied().cycle().take(length.next_multiple_of(piece.len())).collect()
}

/// Text of a build: a line end each 70 bytes.
const PLAIN: &[u8] = b"   Compiling muxtap v0.1.0 (/home/user/src/muxtap) with 12 features on\\015\\012";
/// Text without escapes.
const BARE: &[u8] = b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
/// A colored listing: an escape each ten bytes or so.
const COLOURED: &[u8] = b"\\033[01;34msrc\\033[0m  \\033[01;32mrun.sh\\033[0m  a.txt\\015\\012";
/// Cursor movement around single characters.
const DENSE: &[u8] = b"\\033[1;1Hx\\033[K\\015\\012";

const INPUTS: [(&str, &[u8]); 4] = [("bare", BARE), ("plain", PLAIN), ("coloured", COLOURED), ("dense", DENSE)];

fn input(name: &str) -> &'static [u8] {
    INPUTS.iter().find(|(known, _)| *known == name).map_or(PLAIN, |(_, piece)| piece)
}

#[divan::bench(args = INPUTS.map(|(name, _)| name))]
fn octal_into(bencher: Bencher, name: &str) {
    let data = encoded(input(name), 6000);
    let mut out = Vec::with_capacity(data.len());
    bencher.counter(BytesCount::new(data.len())).bench_local(|| {
        out.clear();
        decode_into(black_box(&data), &mut out);
        out.len()
    });
}

#[divan::bench(args = INPUTS.map(|(name, _)| name))]
fn octal_in_place(bencher: Bencher, name: &str) {
    let data = encoded(input(name), 6000);
    bencher
        .counter(BytesCount::new(data.len()))
        .with_inputs(|| data.clone())
        .bench_local_refs(|data| decode_in_place(black_box(data)));
}

/// Returns 1 MiB of `%output` lines of about `length` bytes each.
fn wire(piece: &[u8], length: usize) -> Vec<u8> {
    let data = encoded(piece, length);
    let mut wire = Vec::with_capacity(1 << 21);
    while wire.len() < 1 << 20 {
        wire.extend_from_slice(b"%output %12 ");
        wire.extend_from_slice(&data);
        wire.push(b'\n');
    }
    wire
}

#[divan::bench(args = INPUTS.map(|(name, _)| name), consts = [100, 1000, 6000])]
fn codec<const LENGTH: usize>(bencher: Bencher, name: &str) {
    let wire = wire(input(name), LENGTH);
    bencher
        .counter(BytesCount::new(wire.len()))
        .with_inputs(|| (ControlCodec::new(FrameKey::new()), BytesMut::from(&wire[..])))
        .bench_local_refs(|(codec, buffer)| {
            let mut events = 0;
            while let Ok(Some(event)) = codec.decode(buffer) {
                black_box(&event);
                events += 1;
            }
            events
        });
}

#[divan::bench]
fn notification_lines(bencher: Bencher) {
    let lines: [&[u8]; 4] = [
        b"%window-renamed @12 cargo build",
        b"%layout-change @0 3777,159x48,0,0{79x48,0,0,0,79x48,80,0,1} 3777,159x48,0,0{79x48,0,0,0,79x48,80,0,1} *",
        b"%subscription-changed cmd $1 @3 0 %5 : bash",
        b"%session-window-changed $1 @3",
    ];
    bencher.bench_local(|| lines.map(|line| parse_line(black_box(line)).is_known()));
}
