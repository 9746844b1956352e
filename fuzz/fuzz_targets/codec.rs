//! The codec's events do not depend on how a stream is cut into chunks; no stream causes a panic.
//! The stream is built from tmux's output, frames included, and from what a pane can forge.
//!
//! The input is: a byte that selects the format of the rest. If even: a raw stream, cut by its
//! upper bits. If odd: pieces from which a stream is built.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use muxtap_core::protocol::{
    codec::{ControlCodec, Event, Limits},
    command::Command,
    frame::{FrameKey, framed},
};

#[derive(Arbitrary, Debug)]
enum Piece<'a> {
    Raw(&'a [u8]),
    Line(&'a [u8]),
    Output(u8, &'a [u8]),
    Guard(Kind, u8, bool),
    /// The `n`th nonce that was sent, as a separate block or bare.
    Nonce(u8, bool),
}

#[derive(Arbitrary, Debug)]
enum Kind {
    Begin,
    End,
    Error,
}

fn events(key: FrameKey, wire: &[u8], sizes: &[u8]) -> Result<Vec<Event>, std::io::ErrorKind> {
    let mut codec = ControlCodec::with_limits(key, Limits { line: 1 << 12, body: 1 << 13 });
    let mut events = Vec::new();
    let mut buffer = BytesMut::new();
    let mut left = wire;
    let mut sizes = sizes.iter().map(|size| usize::from(*size).max(1)).chain([usize::MAX]).cycle();
    while !left.is_empty() {
        let (chunk, rest) = left.split_at(sizes.next().unwrap_or(1).min(left.len()));
        buffer.extend_from_slice(chunk);
        left = rest;
        while let Some(event) = codec.decode(&mut buffer).map_err(|error| error.kind())? {
            events.push(event);
        }
    }
    while let Some(event) = codec.decode_eof(&mut buffer).map_err(|error| error.kind())? {
        events.push(event);
    }
    Ok(events)
}

fn compare(key: &FrameKey, wire: &[u8], sizes: &[u8]) {
    match (events(key.snapshot(), wire, &[]), events(key.snapshot(), wire, sizes)) {
        (Ok(whole), Ok(cut)) => assert_eq!(whole, cut),
        (whole, cut) => assert_eq!(whole.is_err(), cut.is_err()),
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else { return };
    let key = FrameKey::new();
    if kind & 1 == 0 {
        return compare(&key, rest, &[kind >> 1, 1, 200]);
    }
    let Ok((pieces, sizes)) = <(Vec<Piece<'_>>, Vec<u8>)>::arbitrary_take_rest(Unstructured::new(rest)) else { return };
    let mut nonces: Vec<Vec<u8>> = Vec::new();
    for (seq, parts) in [(0, 2), (1, 1), (2, 3)] {
        let bytes = framed(&key, seq, &vec![Command::new("x"); parts]).unwrap_or_default();
        let words = bytes.split(|byte| *byte == b' ' || *byte == b'\n').filter(|word| word.starts_with(b"mt"));
        nonces.extend(words.map(<[u8]>::to_vec));
    }
    let mut wire = Vec::new();
    for piece in &pieces {
        match piece {
            Piece::Raw(bytes) => wire.extend_from_slice(bytes),
            Piece::Line(bytes) => wire.extend_from_slice(&[bytes, &b"\n"[..]].concat()),
            Piece::Output(pane, bytes) => {
                wire.extend_from_slice(format!("%output %{pane} ").as_bytes());
                wire.extend_from_slice(&[bytes, &b"\n"[..]].concat());
            }
            Piece::Guard(kind, number, ours) => {
                let kind = match kind {
                    Kind::Begin => "begin",
                    Kind::End => "end",
                    Kind::Error => "error",
                };
                wire.extend_from_slice(format!("%{kind} 1 {} {}\n", number % 4, u8::from(*ours)).as_bytes());
            }
            Piece::Nonce(at, bare) => {
                let nonce = nonces.get(usize::from(*at) % nonces.len()).map_or(&b""[..], |nonce| nonce);
                let block = if *bare {
                    [nonce, b"\n"].concat()
                } else {
                    [b"%begin 1 9 1\n", nonce, b"\n%end 1 9 1\n"].concat()
                };
                wire.extend_from_slice(&block);
            }
        }
    }
    compare(&key, &wire, &sizes);
});
