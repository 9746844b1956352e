//! The marks of shells: the same commands for every chunking, no panic, bounded memory, and nothing
//! trusted without the nonce. Whatever follows the begin of a trusted command changes neither its
//! line nor its begin, and a trusted end ends it.
//!
//! The input is: a byte that selects the size of the chunks, one for the chunk after which output
//! is missing, then the stream.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use muxtap_core::{
    marks::{COMMAND_TEXT_BYTES, COMMANDS, Change, Command, CommandLog, End, LEVELS, Moment},
    stream::{
        decoder::TextDecoder,
        text::{Control, Mark, TextSink},
    },
};

#[derive(Default)]
struct Log(CommandLog);

impl TextSink for Log {
    fn text(&mut self, _: u64, _: &[u8]) {}
    fn control(&mut self, _: u64, _: Control) {}
    fn mark(&mut self, start: u64, end: u64, mark: Mark<'_>) {
        self.0.mark(start, end, mark, Moment { unix_ms: end, monotonic: Duration::from_millis(end) });
    }
}

fn play(stream: &[u8], size: usize, gap: Option<usize>) -> (Vec<Command>, Vec<Change>) {
    let mut log = Log::default();
    let mut decoder = TextDecoder::default();
    let mut offset = 0;
    for (index, piece) in stream.chunks(size).enumerate() {
        if gap == Some(index) {
            log.0.interrupt();
        }
        decoder.feed(offset, piece, &mut log);
        offset += piece.len() as u64;
    }
    log.0.process_ended(offset, Some(0), None, Moment::default());
    let commands: Vec<Command> = log.0.commands().cloned().collect();
    assert!(commands.len() <= COMMANDS + LEVELS && log.0.memory() <= 2 * COMMAND_TEXT_BYTES);
    for command in &commands {
        let end = command.output.end.expect("every command has ended");
        assert!(command.output.start <= end && end <= offset && command.end.is_some());
    }
    (commands, log.0.take_changes())
}

fuzz_target!(|data: &[u8]| {
    let [chunk, gap, stream @ ..] = data else { return };
    let size = usize::from(*chunk).max(1);
    let whole = play(stream, stream.len().max(1), None);
    assert_eq!(play(stream, size, None), whole);
    play(stream, size, Some(usize::from(*gap)));

    // A nonce that the input cannot have.
    const NONCE: &str = "0123456789abcdef0123456789abcdef";
    if stream.windows(NONCE.len()).any(|window| window == NONCE.as_bytes()) {
        return;
    }
    assert!(whole.0.iter().all(|command| !command.is_trusted));
    let mut log = Log::default();
    log.0.trust(NONCE.to_owned());
    let mut decoder = TextDecoder::default();
    let begin = format!("\x1b]133;C;muxtap={NONCE};cmdline_url=cat\x07x");
    // What the shell integrations print: ESC \, then D.
    let bytes = [begin.as_bytes(), stream, b"\x1b\\"].concat();
    decoder.feed(0, &bytes, &mut log);
    // Only a DCS whose last byte is ESC goes on after an ESC \.
    if stream.last() == Some(&0x1b) && decoder.state().string_start().is_some() {
        return;
    }
    let end = format!("\x1b]133;D;3;muxtap={NONCE}\x07");
    decoder.feed(bytes.len() as u64, end.as_bytes(), &mut log);
    if let Some(command) = log.0.command(1) {
        assert_eq!(command.line.as_ref().map(|line| line.text.as_str()), Some("cat"));
        assert_eq!((command.is_trusted, command.status, command.end), (true, Some(3), Some(End::Reported)));
    }
});
