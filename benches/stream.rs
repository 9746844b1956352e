//! A pane's stream: 16 MiB into the ring without a reader, then its text, and with an echo that is
//! still expected; plain, and colored like a build's output; in chunks of 4 KiB as tmux sends them.

#![allow(missing_docs, reason = "a bench has no readers but this file")]

use divan::{Bencher, counter::BytesCount};
use muxtap::stream::{
    decoder::TextDecoder,
    echo::EchoFilter,
    render::TextRenderer,
    ring::{NullSink, Ring},
};

const SIZE: usize = 16 << 20;
const CHUNK: usize = 4 << 10;

fn main() {
    divan::main();
}

fn output(coloured: bool) -> Vec<u8> {
    let (on, off) = if coloured { ("\x1b[1;32m", "\x1b[0m\x1b(B") } else { ("", "") };
    let mut output = Vec::with_capacity(SIZE + 256);
    for line in 0_u64.. {
        let text = format!(
            "{on}   Compiling{off} crate-number-{} v{}.{}.{} ({on}/home/user/src/workspace/member-{}{off})\r\n",
            line % 977,
            line % 7,
            line % 13,
            line % 31,
            line % 41
        );
        output.extend_from_slice(text.as_bytes());
        if output.len() >= SIZE {
            break;
        }
    }
    output
}

#[divan::bench(args = [false, true], sample_count = 10)]
fn decode(bencher: Bencher<'_, '_>, coloured: bool) {
    let output = output(coloured);
    bencher.counter(BytesCount::new(output.len())).bench(|| {
        let mut decoder = TextDecoder::default();
        let mut offset = 0;
        for chunk in output.chunks(CHUNK) {
            decoder.feed(offset, chunk, &mut NullSink);
            offset += chunk.len() as u64;
        }
        decoder.state()
    });
}

#[divan::bench(args = [false, true], sample_count = 10)]
fn ring_push(bencher: Bencher<'_, '_>, coloured: bool) {
    let output = output(coloured);
    bencher.counter(BytesCount::new(output.len())).bench(|| {
        let mut ring = Ring::new(1 << 20);
        for chunk in output.chunks(CHUNK) {
            ring.push(chunk, &mut NullSink);
        }
        ring.end()
    });
}

#[divan::bench(args = [false, true], sample_count = 10)]
fn render(bencher: Bencher<'_, '_>, coloured: bool) {
    let output = output(coloured);
    let mut ring = Ring::new(SIZE * 2);
    ring.push(&output, &mut NullSink);
    bencher.counter(BytesCount::new(output.len())).bench(|| {
        let mut renderer = TextRenderer::default();
        ring.decode_from(0, ring.end(), &mut renderer);
        renderer.finish().len()
    });
}

#[divan::bench(args = [false, true], sample_count = 10)]
fn echo_pending(bencher: Bencher<'_, '_>, coloured: bool) {
    let output = output(coloured);
    bencher.counter(BytesCount::new(output.len())).bench(|| {
        let mut ring = Ring::new(1 << 20);
        let mut echo = EchoFilter::default();
        echo.typed(0, b"echo DONE\r", "", 80, true);
        for chunk in output.chunks(CHUNK) {
            ring.push(chunk, &mut echo);
        }
        assert!(!echo.is_idle(), "it was to be followed to the end");
    });
}
