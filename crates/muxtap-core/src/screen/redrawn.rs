//! The text of output that moves up to rewrite its own lines, as the screen ends with it.

use super::{CaptureOptions, Line, Rules, Screen, Settings, Size};
use crate::{
    protocol::version::Version,
    stream::{
        decoder::TextDecoder,
        text::{Control, TextSink},
    },
};

/// Ways to enter the alternate screen.
const ALTERNATE: [&[u8]; 3] = [b"\x1b[?1049h", b"\x1b[?1047h", b"\x1b[?47h"];
/// The version of tmux whose drawing rules are used.
const DRAWS_LIKE: Version = Version { major: 3, minor: 8, suffix: None, is_preview: false };

/// Returns the text that complete output of a command leaves on a screen of this size, history included, if the output
/// moves up to rewrite lines: a build's block of progress bars is as many lines as it shows. Lines that wrap are one
/// line; blanks at the ends of lines are not kept.
///
/// Returns `None` if nothing moves up, and for output whose picture depends on what was on the screen before: programs
/// that address rows, clear the screen, or use the alternate screen.
#[must_use]
pub fn redrawn(output: &[u8], size: Size) -> Option<String> {
    let mut moves = Moves::default();
    TextDecoder::default().feed(0, output, &mut moves);
    let uses_alternate = || ALTERNATE.iter().any(|enter| memchr::memmem::find(output, enter).is_some());
    if !moves.up || moves.addresses || uses_alternate() {
        return None;
    }
    // No line is dropped: each takes a line end or a row's width of bytes.
    let most = memchr::memchr_iter(b'\n', output).count() + output.len() / usize::from(size.columns.max(1)) + 1;
    let history_limit = u32::try_from(most).unwrap_or(u32::MAX);
    let mut screen =
        Screen::new(size, Rules::for_version(DRAWS_LIKE), Settings { history_limit, ..Settings::default() });
    screen.feed(output);
    let options = CaptureOptions { start: Line::Edge, join: true, ..CaptureOptions::default() };
    let captured = screen.capture(&options);
    let text = String::from_utf8_lossy(&captured);
    let mut lines: Vec<&str> = text.split_terminator('\n').map(str::trim_end).collect();
    let below = usize::from(size.rows).saturating_sub(screen.cursor().row as usize + 1);
    // The rows below the cursor count only if something is on them.
    for _ in 0..below {
        lines.pop_if(|line| line.is_empty());
    }
    Some(lines.join("\n"))
}

/// How output moves the cursor between lines.
#[derive(Default)]
struct Moves {
    up: bool,
    /// Whether the result depends on what was on the screen before.
    addresses: bool,
}

impl TextSink for Moves {
    fn text(&mut self, _offset: u64, _text: &[u8]) {}

    fn control(&mut self, _offset: u64, control: Control) {
        match control {
            Control::Csi(b'A' | b'F', ..) => self.up = true,
            Control::Csi(b'H' | b'f' | b'd' | b'r', ..) | Control::Csi(b'J', 1.., _) | Control::Reset => {
                self.addresses = true;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { columns: 20, rows: 6 };

    /// R15.
    #[test]
    fn lines_that_are_redrawn_are_as_many_as_the_screen_shows() {
        let block = |round: u32| (0..5).map(|line| format!("\x1b[2K{line}: {round}\r\n")).collect::<Vec<_>>().concat();
        let rounds: Vec<_> = (1..=100).map(block).collect();
        let output = format!("begin\r\n{}end\r\n", rounds.join("\x1b[5A"));
        assert_eq!(
            redrawn(output.as_bytes(), SIZE).as_deref(),
            Some("begin\n0: 100\n1: 100\n2: 100\n3: 100\n4: 100\nend\n")
        );
        // More lines than the screen has, before and after.
        let many = |from: u32| (from..from + 50).map(|line| format!("line {line}\r\n")).collect::<Vec<_>>().concat();
        let text = redrawn(format!("{}{output}{}", many(0), many(50)).as_bytes(), SIZE).unwrap();
        assert_eq!(text.lines().count(), 107);
        assert!(text.contains("line 49\nbegin\n0: 100\n") && text.ends_with("line 99\n"), "{text}");
    }

    #[test]
    fn the_end_of_the_text_is_where_the_cursor_is() {
        let text = |output: &str| redrawn(output.as_bytes(), SIZE);
        assert_eq!(text("a\r\nb\x1b[1A\rc\r\n").as_deref(), Some("c\nb"), "the cursor is in the row of `b`");
        assert_eq!(text("a\r\nb\r\n\x1b[1Fc").as_deref(), Some("a\nc"));
        assert_eq!(text("a\r\nb\r\n\x1b[2A").as_deref(), Some("a\nb"), "above what was printed");
        assert_eq!(text("a\r\n\r\n\x1b[Ab\r\n\r\n").as_deref(), Some("a\nb\n\n"), "empty lines count");
        assert_eq!(
            text("0123456789012345678901234\r\n\x1b[Ax").as_deref(),
            Some("01234567890123456789x1234"),
            "a line that wraps"
        );
    }

    #[test]
    fn other_output_is_left_to_the_stream() {
        for output in [
            "a\r\nb\r\n",
            "10 %\r20 %\r\n",
            "a\x1b[A\x1b[Hb",
            "a\x1b[A\x1b[2Jb",
            "a\x1b[A\x1b[3;4r",
            "a\x1b[A\x1b[5db",
            "a\x1b[A\x1bcb",
            "a\x1b[A\x1b[?1049hb",
        ] {
            assert_eq!(redrawn(output.as_bytes(), SIZE), None, "{output:?}");
        }
    }
}
