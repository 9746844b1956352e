//! The content of a pane at one point of its stream.

use bytes::Bytes;
use muxtap_core::{
    protocol::{command::Command, ids::PaneId},
    screen::{self, Rules},
    stream::render,
};

/// The content of a pane as tmux has it at one exact point of its stream (F3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seed {
    /// History and screen with styles, wrapped lines joined, as the terminal would have received
    /// it: `\r\n` between lines and nothing after the line with the cursor.
    pub text: Vec<u8>,
    /// An escape sequence that has begun and not ended.
    pub pending: Bytes,
    /// The cursor's column.
    pub cursor_x: u32,
    /// The cursor's row.
    pub cursor_y: u32,
    /// Whether the pane shows its alternate screen.
    pub alternate: bool,
    /// Whether the pane's process has ended.
    pub dead: bool,
    /// Its exit status.
    pub exit_status: Option<i32>,
    /// The signal that ended it.
    pub exit_signal: Option<i32>,
    /// The process in the pane.
    pub pid: u32,
    /// The data from which a model of the screen is built.
    pub screen: Option<screen::Seed>,
}

impl Seed {
    /// Returns the commands whose framed replies [`Seed::parse`] reads. They must be sent as one
    /// request: then they are atomic (F3).
    pub fn question(pane: PaneId, rules: Option<Rules>) -> Vec<Command> {
        screen::seed::question(pane, rules)
    }

    /// Reads the reply to [`Seed::question`]; `None` if it is malformed.
    pub fn parse(parts: &[Bytes]) -> Option<Self> {
        let [content, pending, fields, ..] = parts else { return None };
        let fields = String::from_utf8_lossy(fields);
        let fields = fields.trim_end();
        let drawn = fields.splitn(DRAWN_AT_DEATH + 1, '|').nth(DRAWN_AT_DEATH).unwrap_or_default();
        let version = fields.split('|').nth(VERSION).unwrap_or_default();
        let columns = fields.split('|').nth(COLUMNS).and_then(|columns| columns.parse().ok());
        let mut fields = fields.split('|');
        let mut next = || fields.next().map(|field| field.parse::<i64>().ok());
        let (cursor_x, cursor_y, history, height, alternate, dead, status, signal, pid) =
            (next()?, next()?, next()?, next()?, next()?, next()?, next()?, next()?, next()?);
        let small = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok()).unwrap_or_default();
        let code = |value: Option<i64>| value.and_then(|value| i32::try_from(value).ok());
        let cursor_row = u64::from(small(history)) + u64::from(small(cursor_y));
        let rows = u64::from(small(history)) + u64::from(small(height));
        // A pane that was created without a process has none that could have ended (N100).
        let dead = small(dead) == 1 && pid != Some(0);
        let content = if dead { without_the_row_of_death(content, drawn) } else { content };
        let unpadded;
        let content = if version == "3.2" || version == "3.2a" {
            let cursor = (!dead).then_some((cursor_row, small(cursor_x)));
            unpadded = without_padding(content, rows, cursor, columns.unwrap_or(u32::MAX));
            &unpadded
        } else {
            content
        };
        Some(Self {
            text: as_stream(content, rows, cursor_row, dead),
            pending: pending.strip_suffix(b"\n").map_or_else(|| pending.clone(), |bytes| pending.slice_ref(bytes)),
            cursor_x: small(cursor_x),
            cursor_y: small(cursor_y),
            alternate: small(alternate) == 1,
            dead,
            exit_status: code(status),
            exit_signal: code(signal).filter(|signal| *signal > 0),
            pid: small(pid),
            screen: screen::seed::parse(parts),
        })
    }
}

/// The index of the field with the pane's width.
const COLUMNS: usize = 9;
/// The index of the field with tmux's version.
const VERSION: usize = 27;
/// The index of the field with the text that tmux draws when a pane's process ends:
/// `remain-on-exit-format`, expanded.
const DRAWN_AT_DEATH: usize = 28;
/// The beginning of that text by default, and always on 3.2a, which has no such format.
const DEFAULT_DRAWN: &[u8] = b"Pane is dead (";

/// Returns the lines of a dead pane without the text that tmux itself drew into the last row (N13).
/// tmux marks the row above as wrapped, so the two are captured as one line (N45).
fn without_the_row_of_death<'a>(content: &'a [u8], drawn: &str) -> &'a [u8] {
    let lines = content.trim_ascii_end();
    let last = memchr::memrchr(b'\n', lines).map_or(0, |end| end + 1);
    let Some((above, line)) = lines.split_at_checked(last) else { return content };
    let at = if drawn.is_empty() {
        // A status or a signal, and a time; in a narrow pane a part of that.
        memchr::memmem::rfind(line, DEFAULT_DRAWN)
    } else if line.ends_with(drawn.as_bytes()) {
        Some(line.len() - drawn.len())
    } else {
        // In a pane that is narrower the rest was cut off.
        let cut = (1..drawn.len()).rev().filter_map(|end| drawn.as_bytes().get(..end));
        let cut = cut.take_while(|cut| cut.len() >= DEFAULT_DRAWN.len()).find(|cut| line.ends_with(cut));
        cut.map(|cut| line.len() - cut.len())
    };
    match at.and_then(|at| line.get(..at)) {
        // The text above it, if any, is the program's last line.
        Some(program) if !program.trim_ascii_end().is_empty() => {
            lines.get(..last + program.trim_ascii_end().len()).unwrap_or(lines)
        }
        Some(_) => above,
        None => content,
    }
}

/// Returns the lines without the blanks that `capture-pane -J` adds behind each on 3.2a for cells
/// that were never written (N61). In the cursor's line those before the cursor stay: a prompt may
/// end with one.
pub fn without_padding(content: &[u8], rows: u64, cursor: Option<(u64, u32)>, columns: u32) -> Vec<u8> {
    let content = content.strip_suffix(b"\n").unwrap_or(content);
    let lines: Vec<&[u8]> = content.split(|byte| *byte == b'\n').collect();
    let text = |line: &[u8]| line.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
    let mut unpadded = Vec::with_capacity(content.len());
    for (number, line) in lines.iter().enumerate() {
        let mut kept = text(line);
        // Counted from the end, where rows and lines agree.
        let below = (lines.len() - number - 1) as u64;
        if let Some((_, column)) = cursor.filter(|(row, _)| row + below + 1 == rows) {
            let shown = muxtap_core::width::of_text(&render::render_bytes(line.get(..kept).unwrap_or_default()));
            let shown = u32::try_from(shown).unwrap_or(u32::MAX);
            let in_row = if shown == 0 { 0 } else { (shown - 1) % columns + 1 };
            kept = line.len().min(kept + column.saturating_sub(in_row) as usize);
        }
        unpadded.extend_from_slice(line.get(..kept).unwrap_or(line));
        unpadded.push(b'\n');
    }
    unpadded
}

/// Returns a capture's lines as output: blank rows below the cursor belong to the screen, not to
/// the program.
fn as_stream(content: &[u8], rows: u64, cursor_row: u64, dead: bool) -> Vec<u8> {
    let content = content.strip_suffix(b"\n").unwrap_or(content);
    let mut lines: Vec<&[u8]> = content.split(|byte| *byte == b'\n').collect();
    let mut blank = 0;
    while lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
        blank += 1;
    }
    let mut text = lines.join(&b"\r\n"[..]);
    if !dead {
        // Rows and lines differ if lines are joined, but only above the last text: from it downward
        // both count alike.
        let last_text_row = rows.saturating_sub(blank + 1);
        let below = if lines.is_empty() { cursor_row } else { cursor_row.saturating_sub(last_text_row) };
        for _ in 0..below.min(blank) {
            text.extend_from_slice(b"\r\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(content: &str, pending: &str, fields: &str) -> [Bytes; 3] {
        [content, pending, fields].map(|text| Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn a_prompt_that_rests_stays_open() {
        let seed = Seed::parse(&parts("hello\n$ \n\n\n", "\n", "2|1|0|4|0|0|||55\n")).unwrap();
        assert_eq!(seed.text, b"hello\r\n$ ");
        assert!(seed.pending.is_empty());
        assert_eq!((seed.pid, seed.dead, seed.exit_status), (55, false, None));
    }

    #[test]
    fn a_cursor_below_the_text_closes_the_line() {
        let seed = Seed::parse(&parts("hello\n\n\n\n", "\n", "0|1|0|4|0|0|||55\n")).unwrap();
        assert_eq!(seed.text, b"hello\r\n");
    }

    #[test]
    fn an_empty_pane_has_an_empty_seed() {
        let seed = Seed::parse(&parts("\n\n\n\n", "\n", "0|0|0|4|0|0|||55\n")).unwrap();
        assert_eq!(seed.text, b"");
    }

    #[test]
    fn an_escape_that_has_begun_is_kept() {
        let seed = Seed::parse(&parts("a\n", "\x1b[3\n", "1|0|0|1|0|0|||55\n")).unwrap();
        assert_eq!(seed.pending.as_ref(), b"\x1b[3");
    }

    /// N45: tmux marks the row above its own text as wrapped.
    #[test]
    fn what_tmux_draws_at_death_is_not_output() {
        let drawn = "Pane is dead (status 3, Sun Nov 22 09:59:34 2026)";
        let text = |content: &str, drawn: &str| {
            let fields = format!("0|1|0|2|0|1|3||55|80|2000|0|0|0|0|0|0|1|1|8,16|1|1||0|1|||3.3a|{drawn}\n");
            String::from_utf8(Seed::parse(&parts(content, "\n", &fields)).unwrap().text).unwrap()
        };
        assert_eq!(text(&format!("one\nabc{drawn}\n"), drawn), "one\r\nabc");
        assert_eq!(text(&format!("one\n\n\n{drawn}\n"), drawn), "one");
        assert_eq!(text(&format!("one\nabc       {drawn}   \n"), ""), "one\r\nabc", "3.2a");
        assert_eq!(text(&format!("one\n{}\n", drawn.get(..20).unwrap()), drawn), "one", "a narrow pane");
        assert_eq!(text(&format!("{drawn}\n"), drawn), "");
        assert_eq!(text("one\nit has ended | 3\n", "it has ended | 3"), "one");
        assert_eq!(text("one\ntwo\n", drawn), "one\r\ntwo", "drawn by nobody");
    }

    /// N61: 3.2a captures unwritten cells as blanks.
    #[test]
    fn what_was_never_written_is_not_output() {
        let text = |content: &str, x: u32, y: u32, version: &str| {
            let fields = format!("{x}|{y}|0|4|0|0|||55|20|2000|0|0|0|0|0|0|1|1|8,16|1|1||0|1|||{version}|\n");
            String::from_utf8(Seed::parse(&parts(content, "\n", &fields)).unwrap().text).unwrap()
        };
        let padded = "got 1               \n$                   \n\n\n";
        assert_eq!(text(padded, 2, 1, "3.2a"), "got 1\r\n$ ");
        assert_eq!(text(padded, 0, 2, "3.2a"), "got 1\r\n$\r\n");
        assert_eq!(text("got 1               \n                    \n\n\n", 0, 1, "3.2a"), "got 1\r\n");
        assert_eq!(text("got 1  \n\n\n\n", 0, 1, "3.3a"), "got 1  \r\n", "there it was printed");
    }

    #[test]
    fn a_dead_pane_tells_its_status() {
        let seed = Seed::parse(&parts("DONE\n\n", "\n", "0|1|0|2|0|1|3||55\n")).unwrap();
        assert!(seed.dead);
        assert_eq!(seed.exit_status, Some(3));
        assert_eq!(seed.text, b"DONE");
    }
}
