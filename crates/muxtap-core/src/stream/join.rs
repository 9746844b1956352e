//! Joining a stream with a pane's text: finding output that is missing at the stream's end.
//!
//! tmux drops output in known cases (F9, F11), but its grid still shows it. This module reduces
//! both to lines of text. Where the stream's last lines occur in the grid, the lines after them are
//! missing from the stream.

use super::{decoder::TextDecoder, render, ring::Ring, text::NullSink};

/// The number of bytes at the end of a stream that are compared.
const COMPARED: u64 = 256 * 1024;
/// The number of equal lines that cannot be chance, even if neither side's beginning is reached.
const SURE: usize = 200;
/// The maximum number of lines of a screen that may have been cleared.
const CLEARED: usize = 500;
/// The number of screens that may have been cleared in succession, within [`SURE`] lines each.
const SCREENS: usize = 3;
/// The maximum number of lines that are compared to find cleared screens: repetitive text fits in
/// many places.
const EFFORT: usize = 1_000_000;

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joined {
    /// The bytes after the stream's last one, with `\r\n` as line end; empty if the stream is
    /// whole.
    Missing(Vec<u8>),
    /// The two have nothing in common.
    Unrelated,
}

/// Compares a stream with a seed's text.
pub fn join(ring: &Ring, seed: &[u8]) -> Joined {
    let from = ring.end().saturating_sub(COMPARED).max(ring.start());
    let have = render::render_text(ring, from, ring.end());
    let grid = render::render_bytes(seed);
    // The first line may have been cut by the limit.
    let have = if from > ring.start() { have.split_once('\n').map_or("", |(_, rest)| rest) } else { &have };
    join_text(have, &grid)
}

/// Returns whether a stream, followed by `output`, contains all of a pane's text, and the sequence
/// that has begun and not ended there.
pub fn is_whole_with(ring: &Ring, output: &[u8], seed: &[u8], pending: &[u8]) -> bool {
    let from = ring.end().saturating_sub(COMPARED).max(ring.start());
    let mut bytes = ring.bytes(from, ring.end());
    bytes.extend_from_slice(output);
    let mut decoder = TextDecoder::default();
    decoder.feed(0, &bytes, &mut NullSink);
    let open = decoder.state().open_since().and_then(|since| bytes.get(usize::try_from(since).ok()?..));
    let have = render::render_bytes(&bytes);
    let have = if from > ring.start() { have.split_once('\n').map_or("", |(_, rest)| rest) } else { &have };
    open.unwrap_or_default() == pending && join_text(have, &render::render_bytes(seed)) == Joined::Missing(Vec::new())
}

/// Returns whether a seed's text ends with exactly these lines, without a style in them.
pub fn ends_plainly(seed: &[u8], lines: &[u8]) -> bool {
    let Some(before) = seed.strip_suffix(lines) else { return false };
    let last = memchr::memrchr(b'\x1b', before).and_then(|at| before.get(at..));
    // tmux carries a line's last style into the next line.
    last.is_none_or(|last| last.starts_with(b"\x1b[0m"))
}

fn join_text(have: &str, grid: &str) -> Joined {
    let grid: Vec<&str> = grid.split('\n').collect();
    let mut have: Vec<&str> = have.split('\n').collect();
    // An unfinished line can be the beginning of a line in the grid.
    let whole = have.pop().unwrap_or_default();
    let open = whole.trim_end();
    if have.is_empty() && open.is_empty() {
        return missing(&grid, 0, "");
    }
    // Tries each line of the grid at which the stream may have ended, the last one first: no line
    // must be repeated. A position after the last line is for a stream whose last line end the grid
    // does not show.
    for at in (0..=grid.len()).rev() {
        let line = grid.get(at).copied().unwrap_or_default();
        if !line.trim_end().starts_with(open) {
            continue;
        }
        let above = grid.get(..at).unwrap_or_default().iter().rev();
        let equal = above.zip(have.iter().rev()).take_while(|(a, b)| a.trim_end() == b.trim_end()).count();
        let all = equal == at.min(have.len());
        let something = !open.is_empty() || have.iter().rev().take(equal).any(|line| !line.trim().is_empty());
        // A stream with more text than the grid's history ends somewhere in it; a stream with less
        // begins at its top.
        if something && (all || equal >= SURE) {
            return missing(&grid, at, whole);
        }
    }
    join_cleared(&have, whole, &grid)
}

/// Compares like [`join_text`] where some consecutive lines are only in the stream: another program
/// was started in the pane, and tmux cleared the screen then.
fn join_cleared(have: &[&str], whole: &str, grid: &[&str]) -> Joined {
    let mut effort = Effort(EFFORT);
    for at in (1..=grid.len()).rev() {
        let line = grid.get(at).copied().unwrap_or_default();
        if !line.trim_end().starts_with(whole.trim_end()) {
            continue;
        }
        let above = grid.get(..at).unwrap_or_default();
        let below = effort.same(above, have);
        let above = above.get(..at - below).unwrap_or_default();
        let left = have.len() - below;
        let goes_on = effort.below_cleared(above, have.get(..left).unwrap_or_default(), SCREENS);
        if goes_on {
            return missing(grid, at, whole);
        }
    }
    Joined::Unrelated
}

/// The number of lines that may still be compared.
struct Effort(usize);

impl Effort {
    /// Returns whether the grid's lines end with lines of the stream that come before some cleared
    /// ones. False where too many comparisons would be necessary.
    fn below_cleared(&mut self, grid: &[&str], have: &[&str], screens: usize) -> bool {
        (have.len().saturating_sub(CLEARED)..have.len()).rev().any(|kept| {
            let known = have.get(..kept).unwrap_or_default();
            let equal = self.same(grid, known);
            let something = known.iter().rev().take(equal).any(|line| !line.trim().is_empty());
            if !something || self.0 == 0 {
                return false;
            }
            let above =
                (grid.get(..grid.len() - equal).unwrap_or_default(), known.get(..kept - equal).unwrap_or_default());
            let (sure, ends) = (equal >= SURE, above.0.is_empty() || above.1.is_empty());
            sure || ends || screens > 1 && self.below_cleared(above.0, above.1, screens - 1)
        })
    }

    /// Returns the number of equal lines at both ends.
    fn same(&mut self, grid: &[&str], have: &[&str]) -> usize {
        let pairs = grid.iter().rev().zip(have.iter().rev());
        let equal = pairs.take(self.0).take_while(|(a, b)| a.trim_end() == b.trim_end()).count();
        self.0 = self.0.saturating_sub(equal + 1);
        equal
    }
}

/// Returns the grid's text from line `at` on, without the known part of that line.
fn missing(grid: &[&str], at: usize, open: &str) -> Joined {
    let rest = grid.get(at..).unwrap_or_default().join("\r\n");
    // The grid may or may not show blanks at a line's end.
    let rest = rest.strip_prefix(open).or_else(|| rest.strip_prefix(open.trim_end())).unwrap_or(&rest);
    let mut text = rest.trim_end_matches(['\r', '\n']).as_bytes().to_vec();
    // A cursor below the last line means that the line has ended; without this line end, the next
    // line would be appended to it.
    if rest.ends_with('\n') {
        text.extend_from_slice(b"\r\n");
    }
    Joined::Missing(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing_of(have: &str, grid: &str) -> Option<String> {
        match join_text(have, grid) {
            Joined::Missing(bytes) => Some(String::from_utf8(bytes).unwrap()),
            Joined::Unrelated => None,
        }
    }

    /// The first program's screen is gone; its history is above the second one.
    #[test]
    fn a_program_that_was_started_anew_repeats_nothing() {
        let lines = |from: u32, to: u32| (from..to).map(|line| format!("line {line}\n")).collect::<Vec<_>>().concat();
        let (have, history) = (lines(0, 300), lines(0, 280));
        assert_eq!(missing_of(&have, &format!("{history}ready\nmore\n")).as_deref(), Some("ready\r\nmore\r\n"));
        let have = format!("{have}ready\nhal");
        assert_eq!(missing_of(&have, &format!("{history}ready\nhal")).as_deref(), Some(""));
        assert_eq!(missing_of(&have, &format!("{history}ready\nhalf\nend")).as_deref(), Some("f\r\nend"));
        // And once more.
        let (again, twice) = (format!("{have}f\nend\nready\n"), format!("{history}ready\nhalf\nready\nnew\n"));
        assert_eq!(missing_of(&again, &twice).as_deref(), Some("new\r\n"));
        assert_eq!(missing_of(&have, "something else\nready\nhal"), None);
        // Without a history, only the new program's text is present.
        assert_eq!(missing_of(&have, "ready\nhalf").as_deref(), Some("f"));
    }

    /// A pane that repeats itself matches nearly everywhere; without a bound, this would take
    /// hours.
    #[test]
    fn text_that_repeats_itself_is_not_compared_without_end() {
        let have = format!("{}end\n", "a\n".repeat(150) + "b\n").repeat(400);
        let grid = format!("x\n{}", ("a\n".repeat(150) + "c\n").repeat(13) + &"a\n".repeat(100));
        assert_eq!(missing_of(&have, &grid), None);
    }

    /// S9.
    #[test]
    fn a_stream_that_is_whole_misses_nothing() {
        assert_eq!(missing_of("one\ntwo\n", "one\ntwo").as_deref(), Some(""));
        assert_eq!(missing_of("one\n$ ", "one\n$").as_deref(), Some(""));
        assert_eq!(missing_of("one\n$ ", "one\n$ ").as_deref(), Some(""));
    }

    #[test]
    fn what_the_grid_has_more_is_missing() {
        assert_eq!(missing_of("", "DONE").as_deref(), Some("DONE"));
        assert_eq!(missing_of("one\ntw", "one\ntwo\nthree").as_deref(), Some("o\r\nthree"));
        assert_eq!(missing_of("one\n", "one\ntwo").as_deref(), Some("two"));
        assert_eq!(missing_of("one\n", "one\ntwo\n").as_deref(), Some("two\r\n"));
        assert_eq!(missing_of("one\n", "one\n").as_deref(), Some(""));
    }

    #[test]
    fn a_stream_is_whole_with_what_came_elsewhere() {
        let is_whole = |stream: &str, output: &str, seed: &str, pending: &str| {
            let mut ring = Ring::new(1 << 16);
            ring.push(stream.as_bytes(), &mut NullSink);
            is_whole_with(&ring, output.as_bytes(), seed.as_bytes(), pending.as_bytes())
        };
        assert!(is_whole("one\r\n$ ", "", "one\r\n$ ", ""));
        assert!(is_whole("one\r\n$ ", "\rtwo\r\n", "one\r\ntwo\r\n", ""), "an answer that goes over what stood there");
        assert!(is_whole("one\r\nt\x1b[3", "1mwo", "one\r\ntwo", ""), "cut in a sequence");
        assert!(is_whole("one\r\n", "two\x1b[", "one\r\ntwo", "\x1b["));
        assert!(!is_whole("one\r\n", "two\x1b[", "one\r\ntwo", ""));
        assert!(!is_whole("one\r\n", "three\r\n", "one\r\ntwo\r\nthree\r\n", ""), "a line is missing");
        assert!(!is_whole("one\r\n", "", "one\r\ntwo\r\n", ""));
        assert!(!is_whole("one\r\n", "two\r\n", "a menu", ""));
    }

    #[test]
    fn lines_with_a_style_are_not_plain() {
        assert!(ends_plainly(b"one\r\ntwo\r\n", b"two\r\n") && ends_plainly(b"\x1b[31mone\x1b[0m\r\ntwo", b"two"));
        assert!(!ends_plainly(b"one\r\n\x1b[31mtwo", b"two") && !ends_plainly(b"\x1b[31mone\r\ntwo\x1b[0m", b"two"));
        assert!(!ends_plainly(b"one", b"two"));
    }

    #[test]
    fn a_grid_whose_history_was_cut_is_found_by_its_lines() {
        let all: Vec<_> = (0..5000).map(|line| line.to_string()).collect();
        let have = all[..4000].join("\n") + "\n";
        assert_eq!(missing_of(&have, &all[3000..].join("\n")), Some(all[4000..].join("\r\n")));
    }

    /// S9.
    #[test]
    fn repeated_lines_are_never_repeated_once_more() {
        assert_eq!(missing_of("y\ny\ny\n", "y\ny\ny").as_deref(), Some(""));
    }

    #[test]
    fn a_screen_that_was_drawn_is_unrelated() {
        assert_eq!(missing_of("a\nb\nc\n", "menu\nfile edit").as_deref(), None);
    }
}
