//! Reads the output of `tmux -C` and prints the meaning of each line.
//!
//! `echo list-panes | tmux -C new-session -A -s demo | cargo run --example control_mode`

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::io::Read as _;

use bytes::BytesMut;
use muxtap::protocol::{
    codec::{ControlCodec, Event},
    frame::FrameKey,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The key distinguishes replies that hold a pane's text from text that looks like a reply.
    let mut codec = ControlCodec::new(FrameKey::new());
    let mut buffer = BytesMut::new();
    let mut chunk = [0; 4096];
    loop {
        let read = std::io::stdin().read(&mut chunk)?;
        if read == 0 {
            return Ok(());
        }
        buffer.extend_from_slice(chunk.get(..read).unwrap_or_default());
        while let Some(event) = codec.decode(&mut buffer)? {
            match event {
                Event::Output { pane, data, .. } => println!("{pane} printed {:?}", String::from_utf8_lossy(&data)),
                other => println!("{other:?}"),
            }
        }
    }
}
