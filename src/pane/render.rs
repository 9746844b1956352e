//! The text of a read: what a person would see of the lines, top to bottom.
//!
//! `\r\n` is one line end. A lone `\r`, backspaces and the sequences that rewrite a line are applied within the line, so a progress bar is
//! one line. What moves to another line ends the current one: full-screen programs come out as the pieces they draw.

use super::{
    decoder::TextDecoder,
    ring::Ring,
    text::{Control, TextSink},
};

/// Columns of a line that is rewritten; what goes beyond begins a new line.
const COLUMNS: usize = 64 * 1024;

/// Collects the text of a stretch of output.
#[derive(Debug, Default)]
pub struct TextRenderer {
    text: String,
    /// Where the current line begins in `text`.
    line: usize,
    /// While the line is being rewritten: its characters, and where the next one goes.
    rewriting: Option<(Vec<char>, usize)>,
    /// A `\r` came and nothing after it yet.
    returned: bool,
}

impl TextRenderer {
    /// The text so far.
    pub fn finish(mut self) -> String {
        self.settle();
        self.text
    }

    /// Puts a rewritten line back into the text.
    fn settle(&mut self) {
        if let Some((characters, _)) = self.rewriting.take() {
            self.text.truncate(self.line);
            self.text.extend(characters);
        }
    }

    fn end_line(&mut self) {
        self.settle();
        self.text.push('\n');
        self.line = self.text.len();
        self.returned = false;
    }

    /// The current line as characters.
    fn rewrite(&mut self) -> &mut (Vec<char>, usize) {
        let (text, line) = (&self.text, self.line);
        self.rewriting.get_or_insert_with(|| {
            let characters: Vec<char> = text.get(line..).unwrap_or_default().chars().collect();
            let at = characters.len();
            (characters, at)
        })
    }

    fn take_return(&mut self) {
        if std::mem::take(&mut self.returned)
            && self.text.len() + self.rewriting.as_ref().map_or(0, |(line, _)| line.len()) > self.line
        {
            self.rewrite().1 = 0;
        }
    }

    fn edit(&mut self, control: Control) {
        self.take_return();
        let Control::Csi(what, count, _) = control else { return };
        let count_or_one = usize::from(count.max(1));
        // Moving right of an empty line and the like need not turn a plain line into one that is rewritten.
        let (line, at) = self.rewrite();
        match what {
            b'K' => match count {
                0 => line.truncate(*at),
                1 => line.iter_mut().take(*at + 1).for_each(|character| *character = ' '),
                _ => line.clear(),
            },
            b'C' => *at = (*at + count_or_one).min(COLUMNS),
            b'D' => *at = at.saturating_sub(count_or_one),
            b'G' | b'`' => *at = count_or_one.min(COLUMNS) - 1,
            b'P' if *at < line.len() => drop(line.drain(*at..(*at + count_or_one).min(line.len()))),
            b'@' if *at < line.len() => {
                let blanks = std::iter::repeat_n(' ', count_or_one.min(COLUMNS));
                line.splice(*at..*at, blanks);
            }
            b'X' => line.iter_mut().skip(*at).take(count_or_one).for_each(|character| *character = ' '),
            _ => {}
        }
    }
}

impl TextSink for TextRenderer {
    fn text(&mut self, _: u64, text: &[u8]) {
        self.take_return();
        let text = std::str::from_utf8(text).unwrap_or("\u{fffd}");
        let Some((line, at)) = &mut self.rewriting else {
            self.text.push_str(text);
            return;
        };
        for character in text.chars() {
            if *at >= COLUMNS {
                break;
            }
            while line.len() < *at {
                line.push(' ');
            }
            match line.get_mut(*at) {
                Some(there) => *there = character,
                None => line.push(character),
            }
            *at += 1;
        }
    }

    fn control(&mut self, _: u64, control: Control) {
        match control {
            Control::LineFeed => self.end_line(),
            Control::CarriageReturn => self.returned = true,
            Control::Backspace => {
                self.take_return();
                let (_, at) = self.rewrite();
                *at = at.saturating_sub(1);
            }
            Control::Csi(b'K' | b'C' | b'D' | b'G' | b'`' | b'P' | b'@' | b'X', ..) => self.edit(control),
            Control::Csi(b'A' | b'B' | b'E' | b'F' | b'H' | b'f' | b'J' | b'd', ..) | Control::Reset => {
                self.settle();
                if self.text.len() > self.line {
                    self.end_line();
                }
            }
            Control::Csi(..) => {}
        }
    }
}

/// The text of the kept bytes from `from` up to `to`.
pub fn render_text(ring: &Ring, from: u64, to: u64) -> String {
    let mut renderer = TextRenderer::default();
    ring.decode_from(from, to, &mut renderer);
    renderer.finish()
}

/// The text of bytes that begin a stream.
pub fn render_bytes(bytes: &[u8]) -> String {
    let mut renderer = TextRenderer::default();
    TextDecoder::default().feed(0, bytes, &mut renderer);
    renderer.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pane::ring::Unheard;

    #[test]
    fn a_progress_bar_is_one_line() {
        assert_eq!(render_bytes(b"10%\r20%\r100%\r\ndone\r\n"), "100%\ndone\n");
        assert_eq!(render_bytes(b"long text\rab\r\n"), "abng text\n");
        assert_eq!(render_bytes(b"long text\r\x1b[Kab\r\n"), "ab\n");
    }

    #[test]
    fn backspaces_are_applied() {
        assert_eq!(render_bytes(b"lsx\x08 \x08\r\n"), "ls \n");
        assert_eq!(render_bytes(b"abc\x08\x08\x1b[P"), "ac");
    }

    #[test]
    fn a_movement_to_another_line_ends_the_line() {
        assert_eq!(render_bytes(b"\x1b[H\x1b[Jtitle\x1b[3;1Hbody"), "title\nbody");
    }

    #[test]
    fn a_return_at_the_end_hides_nothing() {
        assert_eq!(render_bytes(b"prompt$ \r"), "prompt$ ");
    }

    proptest! {
        /// S4: plain lines read in pieces are the same as read at once.
        #[test]
        fn pieces_add_up(lines in proptest::collection::vec("[ -~\u{e9}\t]{0,30}", 0..20), cut in 0..400_u64) {
            let bytes = lines.join("\r\n").into_bytes();
            let mut ring = Ring::new(1 << 20);
            ring.push(&bytes, &mut Unheard);
            let mut cut = cut.min(ring.end());
            while bytes.get(cut as usize).is_some_and(|byte| (0x80..0xc0).contains(byte)) {
                cut -= 1;
            }
            let whole = render_text(&ring, 0, ring.end());
            prop_assert_eq!(&whole, &lines.join("\n"));
            prop_assert_eq!(render_text(&ring, 0, cut) + &render_text(&ring, cut, ring.end()), whole);
        }

        #[test]
        fn any_bytes_have_a_text(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            render_bytes(&bytes);
        }
    }
}
