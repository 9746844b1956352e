//! Is a match an answer, or only the echo of what was typed?
//!
//! What is typed comes back: the kernel echoes it for a program that reads whole lines (`cat`);
//! shells and REPLs that edit the line print it themselves, wrapped, coloured, redrawn, with
//! suggestions behind it; and what is typed ahead comes twice, from the kernel at once and from the
//! shell when its prompt is there. None of this is output. But `got: hello` is, and so is the
//! second `hello` that `cat` prints.
//!
//! What decides is the place. Each typed line is expected
//! - *anchored*: where the cursor stood when it was typed, on the line that rested there;
//! - else, as long as it was not seen yet, behind a prompt; or alone on a line, if the kernel
//!   echoes, or if the line before it was the echo of the typed line before it; or at the end of a
//!   line of output, if the kernel echoes;
//! - once more behind a prompt, if the kernel echoed it while no program read it.
//!
//! In doubt it is an answer: to miss one is worse than to see one too many.

mod line;
mod typed;

use std::{cell::OnceCell, collections::VecDeque};

use line::Line;
use typed::{Expected, LINES, Typed, trimmed_len, typed_lines};

use super::{
    render::RestingLine,
    text::{Control, TextSink},
};

/// Inputs that are expected to be echoed.
const INPUTS: u64 = 16;
/// Echoes that are remembered for matches that are looked for later.
const REGIONS: usize = 256;
/// Prompts that are remembered.
const PROMPTS: usize = 8;
/// A typed line that is shorter is not looked for at the end of a line of output.
const SHORT: usize = 4;

/// The kind of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Output.
    Answer,
    /// An echo: typed input, shown again.
    Echo,
    /// Not decided before more has been printed; ask again then.
    Undecided,
}

/// Knows what was typed in a pane, and where it was echoed.
///
/// It is a [`TextSink`] to be fed with everything the pane prints while it is not
/// [idle](EchoFilter::is_idle). It remembers what is expected of the last 16 inputs, at most 256
/// lines, and the last 256 echoes.
#[derive(Debug, Default)]
pub struct EchoFilter {
    expected: VecDeque<Expected>,
    regions: VecDeque<Region>,
    /// Prompts behind which a program itself echoed what was typed.
    prompts: VecDeque<String>,
    inputs: u64,
    /// The line that is being printed; only while something is expected.
    line: Option<Line>,
    /// Whether the line before it was an echo.
    follows_echo: bool,
    /// Where the typing of a line began whose program will mark where its output begins.
    command_line: Option<u64>,
    /// The expected text that the line that is being printed shows; empty until a match is judged.
    /// A line can have thousands of matches.
    judged: OnceCell<Judged>,
}

/// The expected text that the line that is being printed shows.
#[derive(Debug)]
struct Judged {
    shown: Option<Shown>,
    /// Where the characters behind that echo were printed, in order.
    behind: Vec<u64>,
}

/// An echo: raw offsets of the line on which it stands, of its own first byte, and of its end with
/// the line end that belongs to it.
#[derive(Clone, Copy, Debug)]
struct Region {
    start: u64,
    typed: u64,
    end: u64,
}

/// An expected echo that a line shows, in part or whole.
#[derive(Debug)]
struct Shown {
    /// Which typed lines make it up.
    lines: std::ops::Range<usize>,
    /// Where it begins.
    typed: u64,
    /// The cell behind what is shown of it.
    end_cell: usize,
    complete: bool,
    /// Whether the line may only be finished by Enter, and it is certain that an echo stands here.
    anchored: bool,
}

impl EchoFilter {
    /// Takes note of typed text, just before it can be echoed: `mark` is the stream's end,
    /// `resting` the line that has begun there and not ended (best from
    /// [`resting_line`](super::render::resting_line), which knows where its cursor is), `columns`
    /// the pane's width, and `tty_echo` whether the pane's terminal echoes by itself (ECHO of its
    /// termios; false where that is not known).
    ///
    /// A line is cut at its first control character. Text without printable characters is never
    /// echoed; a line end in it still shows that the line typed before it is complete.
    pub fn typed(&mut self, mark: u64, text: &[u8], resting: impl Into<RestingLine>, columns: u16, tty_echo: bool) {
        let resting = resting.into();
        self.judged.take();
        self.inputs += 1;
        let input = self.inputs;
        let Typed { first, lines } = typed_lines(text);
        if lines.iter().all(|(text, _)| text.trim().is_empty()) {
            if lines.iter().any(|(_, entered)| *entered)
                && let Some(last) = self.expected.back_mut()
            {
                last.entered = true;
            }
            return;
        }
        let prompt: String = resting.text.chars().take(resting.cursor).collect();
        // A line that was followed is known better than one that was rendered.
        let known = |line: &Line| !line.lost && line.columns() == usize::from(columns);
        if !self.line.as_ref().is_some_and(known) {
            let start = resting.start.unwrap_or_else(|| mark.saturating_sub(resting.text.len() as u64)).min(mark);
            let mut line = Line::new(start, columns);
            line.place(&resting.text, resting.cursor);
            self.line = Some(line);
        }
        let cursor = self.line.as_ref().map_or(0, Line::cursor);
        let mut number = first;
        for (text, entered) in lines {
            if !text.trim().is_empty() {
                let anchor = (number == 0).then_some((cursor, mark));
                let prompt = prompt.clone();
                self.expected.push_back(Expected {
                    text,
                    entered,
                    input,
                    number,
                    tty_echo,
                    prompt,
                    anchor,
                    again: false,
                });
            }
            number += usize::from(entered);
        }
        self.expected.retain(|expected| expected.input + INPUTS > input);
        // The oldest go: what was typed last is what is waited for.
        let surplus = self.expected.len().saturating_sub(LINES);
        self.expected.drain(..surplus);
    }

    /// Returns the number of the input that was noted last.
    pub fn last_input(&self) -> u64 {
        self.inputs
    }

    /// Forgets what is expected of an input that was not sent.
    pub fn not_typed(&mut self, input: u64) {
        self.judged.take();
        self.expected.retain(|expected| expected.input != input);
    }

    /// Takes note that a command line is typed from here on, and that its output will be announced.
    /// Until then nothing from here on is decided.
    pub fn command_line_begins(&mut self, mark: u64) {
        self.command_line = Some(mark);
    }

    /// Returns where the command line began that is being typed.
    pub fn command_line(&self) -> Option<u64> {
        self.command_line
    }

    /// Ends the command line: with its output's beginning all before it was an echo; without one it
    /// was no command line.
    pub fn command_line_ends(&mut self, output: Option<u64>) {
        if let (Some(start), Some(end)) = (self.command_line.take(), output) {
            self.remember(Region { start, typed: start, end });
        }
    }

    /// Takes note that output is missing here: what stands on the line is not known any more.
    pub fn interrupt(&mut self) {
        self.judged.take();
        if let Some(line) = &mut self.line {
            line.lost = true;
        }
    }

    /// Whether nothing is expected: then it need not be fed, until something is typed.
    pub fn is_idle(&self) -> bool {
        self.expected.is_empty()
    }

    /// Returns the kind of a match that stands between two raw offsets. It may be asked long after
    /// the echo was seen.
    pub fn verdict(&self, start: u64, end: u64, _text: &str) -> Verdict {
        let in_region = |region: &Region| region.start <= start && end <= region.end && end > region.typed;
        if self.regions.iter().rev().any(in_region) {
            return Verdict::Echo;
        }
        if self.command_line.is_some_and(|from| start >= from) {
            return Verdict::Undecided;
        }
        let Some(line) = self.line.as_ref().filter(|line| !line.lost && start >= line.start) else {
            return Verdict::Answer;
        };
        let Judged { shown, behind } = self.judged.get_or_init(|| self.judge(line));
        let Some(shown) = shown.as_ref().filter(|shown| end > shown.typed) else { return Verdict::Answer };
        if !shown.complete {
            return Verdict::Undecided;
        }
        if behind.get(behind.partition_point(|printed| *printed < start)).is_some_and(|printed| *printed < end) {
            // It reaches beyond the echo. Behind the cursor, or behind a shell's prompt, that is a
            // suggestion that will go away again.
            let beyond_cursor = line.cursor() <= shown.end_cell;
            let edited =
                shown.anchored && self.expected.get(shown.lines.start).is_some_and(|first| self.is_edited(first));
            return if beyond_cursor || edited { Verdict::Undecided } else { Verdict::Answer };
        }
        let entered =
            shown.lines.end.checked_sub(1).and_then(|last| self.expected.get(last)).is_some_and(|last| last.entered);
        if shown.anchored || !entered { Verdict::Echo } else { Verdict::Undecided }
    }

    fn judge(&self, line: &Line) -> Judged {
        let shown = self.shown(line);
        let behind = shown.as_ref().filter(|shown| shown.complete).map(|shown| line.printed_from(shown.end_cell));
        Judged { shown, behind: behind.unwrap_or_default() }
    }

    /// Returns the expected text that stands, in part or whole, on the line that is being printed.
    fn shown(&self, line: &Line) -> Option<Shown> {
        // While a shell redraws, what counts is either all that stands there or what stands before
        // the cursor.
        let ends = [line.len(), line.cursor().min(line.len())];
        let anchored = ends.into_iter().find_map(|end| self.anchored(line, end));
        anchored.or_else(|| ends.into_iter().find_map(|end| self.placed(line, end)))
    }

    /// Returns the longest echo that begins where the cursor stood when it was typed.
    fn anchored(&self, line: &Line, end: usize) -> Option<Shown> {
        let mut best: Option<Shown> = None;
        for (first, expected) in self.expected.iter().enumerate() {
            let Some((cell, mark)) = expected.anchor else { continue };
            let none_yet = end <= cell;
            if none_yet && !expected.prompt.starts_with(&line.text(0..end)) {
                // The line is not the one behind which it was typed any more: a progress bar has
                // moved on.
                continue;
            }
            if end < cell {
                // The cursor is before it: the line is being drawn anew.
                let lines = first..first + 1;
                best = best.or(Some(Shown { lines, typed: mark, end_cell: end, complete: false, anchored: true }));
                continue;
            }
            // Input that came in pieces is one line.
            for last in first..self.expected.len() {
                let pieces = self.expected.range(first..=last);
                let joined = pieces
                    .clone()
                    .zip(pieces.clone().skip(1))
                    .all(|(piece, next)| !piece.entered && next.anchor.is_some());
                if !joined {
                    break;
                }
                let text = || pieces.clone().flat_map(|piece| piece.text.chars());
                let followed = line.follow(cell, end, text());
                let complete = followed.characters >= trimmed_len(text());
                let whole_line = followed.cell >= end || line.is_blank_from(followed.cell);
                if !complete && !whole_line {
                    continue;
                }
                let shown =
                    Shown { lines: first..last + 1, typed: mark, end_cell: followed.cell, complete, anchored: true };
                if complete || best.is_none() {
                    best = Some(shown);
                }
            }
        }
        best
    }

    /// Returns an echo anywhere else: the line ends with it, or with its beginning.
    fn placed(&self, line: &Line, end: usize) -> Option<Shown> {
        let text = line.text(0..end);
        let text = text.trim_end();
        if text.is_empty() {
            return None;
        }
        let mut partial = None;
        for (index, expected) in self.expected.iter().enumerate() {
            let lines = index..index + 1;
            let shown = |prompt: &str, complete| {
                let cell = line.follow(0, end, prompt.chars()).cell;
                Shown { lines: lines.clone(), typed: line.first_of(cell), end_cell: end, complete, anchored: false }
            };
            let wanted = expected.text.trim_end();
            if let Some(before) = text.strip_suffix(wanted)
                && self.may_stand_behind(expected, before)
            {
                return Some(shown(before, true));
            }
            if partial.is_none() {
                let before = endings_that_begin(text, wanted).into_iter().filter_map(|cut| text.get(..cut));
                let mut before = before.filter(|before| before.is_empty() || before.ends_with(' '));
                let before = before.find(|before| self.may_stand_behind(expected, before));
                partial = before.map(|before| shown(before, false));
            }
        }
        partial
    }

    /// Returns where a line that has ended shows expected text, without a look at most lines of a
    /// flood.
    fn placed_at_end(&self, line: &Line) -> Option<Shown> {
        let last = line.last_character()?;
        let ends_alike = |expected: &Expected| expected.text.trim_end().ends_with(last);
        let looked_at = line.is_full() || self.expected.iter().any(ends_alike);
        if looked_at { self.placed(line, line.len()) } else { None }
    }

    /// Whether the echo of a typed line may follow this text on a line.
    fn may_stand_behind(&self, expected: &Expected, before: &str) -> bool {
        let after_echo = expected.number > 0 && self.follows_echo;
        if expected.again {
            // Where it was typed no program read it; a program that shows a prompt of its own once
            // more with the answer is not a shell.
            return before != expected.prompt && self.is_prompt(before);
        }
        if before.trim().is_empty() {
            return (expected.tty_echo && before.is_empty()) || after_echo;
        }
        (expected.tty_echo && expected.text.trim().len() >= SHORT)
            || (before == expected.prompt && ends_in_sigil(before))
            || (after_echo && before.ends_with("> "))
            || (expected.number > 0 && before.trim_end() == "...")
            || self.is_prompt(before)
    }

    /// Whether this text is a prompt: one that was seen, one like it, or, where none was seen yet,
    /// one that looks like a shell's.
    fn is_prompt(&self, text: &str) -> bool {
        if text.trim().is_empty() {
            return false;
        }
        if self.prompts.is_empty() {
            return ends_in_sigil(text);
        }
        let tail = |text: &str| text.chars().rev().take(2).collect::<String>();
        // The directory, the time or an exit status in a prompt changes from line to line.
        let alike = |known: &String| known == text || (ends_in_sigil(text) && tail(known) == tail(text));
        self.prompts.iter().any(alike)
    }

    /// Whether a typed line is edited by a shell, which prints nothing else on its line.
    fn is_edited(&self, expected: &Expected) -> bool {
        !expected.tty_echo && (self.is_prompt(&expected.prompt) || ends_in_sigil(&expected.prompt))
    }

    /// Handles a line feed in the line's last row. Returns whether it ends the line.
    fn end_line(&mut self, end: u64) -> bool {
        let Some(line) = &self.line else { return true };
        let shown = if line.lost { None } else { self.anchored(line, line.len()).or_else(|| self.placed_at_end(line)) };
        match shown {
            Some(shown) if shown.complete => {
                let whole = line.is_blank_from(shown.end_cell);
                let echo_end = if whole { end } else { line.end_of(0..shown.end_cell) };
                let region = Region { start: line.start, typed: shown.typed, end: echo_end };
                self.remember(region);
                self.settle(&shown);
                self.follows_echo = true;
            }
            // A shell moves to the next row by itself where the line fills this one.
            Some(shown)
                if line.is_full() && shown.end_cell == line.len() && shown.typed < end && shown.end_cell > 0 =>
            {
                return false;
            }
            _ => self.follows_echo = false,
        }
        for expected in &mut self.expected {
            expected.anchor = None;
        }
        true
    }

    fn remember(&mut self, region: Region) {
        match self.regions.back_mut() {
            // Lines that were typed together are found by a pattern of several lines too.
            Some(last) if last.end == region.start && last.typed <= region.typed => last.end = region.end,
            _ => {
                if self.regions.len() >= REGIONS {
                    self.regions.pop_front();
                }
                self.regions.push_back(region);
            }
        }
    }

    /// Records that these lines have been echoed.
    fn settle(&mut self, shown: &Shown) {
        let Some(first) = self.expected.get(shown.lines.start) else { return };
        let by_kernel = !first.again && (first.tty_echo || (shown.anchored && first.prompt.trim().is_empty()));
        if shown.anchored && !first.tty_echo && !first.prompt.trim().is_empty() {
            let prompt = first.prompt.clone();
            self.prompts.retain(|known| *known != prompt);
            if self.prompts.len() >= PROMPTS {
                self.prompts.pop_front();
            }
            self.prompts.push_back(prompt);
        }
        // Echoes come in the order of typing: what was typed before and not echoed will not be any
        // more.
        let mut index = 0;
        self.expected.retain_mut(|expected| {
            let (now, earlier) = (shown.lines.contains(&index), index < shown.lines.start);
            index += 1;
            if by_kernel && now {
                expected.again = true;
            }
            if by_kernel { !earlier || expected.again } else { !earlier && !now }
        });
    }

    /// Stops following where nothing is expected.
    fn rest(&mut self) {
        if self.expected.is_empty() {
            self.line = None;
            self.expected = VecDeque::new();
        }
    }
}

impl TextSink for EchoFilter {
    fn text(&mut self, offset: u64, text: &[u8]) {
        self.judged.take();
        if let Some(line) = &mut self.line {
            line.print(offset, text);
        }
    }

    fn control(&mut self, offset: u64, control: Control) {
        self.judged.take();
        let Some(line) = &mut self.line else { return };
        if control != Control::LineFeed || (!line.in_last_row() && !line.lost) {
            return line.control(control);
        }
        let ends = self.end_line(offset + 1);
        if let Some(line) = &mut self.line {
            if ends {
                line.next(offset + 1);
            } else {
                line.control(control);
            }
        }
        self.rest();
    }
}

/// Returns where the endings of `text` begin that `wanted` begins with, the longest first. Looks at
/// each byte of either about twice (Knuth, Morris and Pratt), however much both repeat themselves.
fn endings_that_begin(text: &str, wanted: &str) -> Vec<usize> {
    let wanted = wanted.as_bytes();
    // How long the longest ending of the first n + 1 bytes is with which they also begin.
    let mut borders: Vec<usize> = Vec::with_capacity(wanted.len());
    let step = |borders: &[usize], mut length: usize, byte: u8| {
        while length > 0 && wanted.get(length) != Some(&byte) {
            length = borders.get(length - 1).copied().unwrap_or_default();
        }
        length + usize::from(wanted.get(length) == Some(&byte))
    };
    for byte in wanted {
        let border = borders.last().map_or(0, |last| step(&borders, *last, *byte));
        borders.push(border);
    }
    let tail = text.as_bytes().get(text.len().saturating_sub(wanted.len())..).unwrap_or_default();
    let longest = tail.iter().fold(0, |length, byte| step(&borders, length, *byte));
    let next = |length: &usize| borders.get(length.checked_sub(1)?).copied();
    let lengths = std::iter::successors(Some(longest), next).take_while(|length| *length > 0);
    lengths.map(|length| text.len() - length).collect()
}

/// Whether a text ends as shells' and REPLs' prompts do.
fn ends_in_sigil(text: &str) -> bool {
    let Some(prompt) = text.strip_suffix(' ') else { return false };
    match prompt.chars().next_back() {
        Some('$' | '%' | '❯' | '➜' | 'λ' | '»') => true,
        // Alone they begin a quotation or a heading.
        Some('>' | '#') => prompt.len() > 1,
        _ => false,
    }
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::decoder::TextDecoder;

    /// A pane in which things are typed and printed.
    #[derive(Default)]
    struct Pane {
        filter: EchoFilter,
        decoder: TextDecoder,
        printed: String,
    }

    impl Pane {
        fn with(printed: &str) -> Self {
            Self { printed: printed.to_owned(), ..Self::default() }
        }
        fn typed(mut self, text: &str, resting: &str, tty_echo: bool) -> Self {
            self.filter.typed(self.printed.len() as u64, text.as_bytes(), resting, 80, tty_echo);
            self
        }
        fn prints(mut self, text: &str) -> Self {
            if !self.filter.is_idle() {
                self.decoder.feed(self.printed.len() as u64, text.as_bytes(), &mut self.filter);
            }
            self.printed.push_str(text);
            self
        }
        /// Returns the kind of each occurrence: E, A or ? for undecided.
        fn verdicts(&self, pattern: &str) -> String {
            let verdict =
                |(at, found): (usize, &str)| match self.filter.verdict(at as u64, (at + found.len()) as u64, found) {
                    Verdict::Echo => 'E',
                    Verdict::Answer => 'A',
                    Verdict::Undecided => '?',
                };
            self.printed.match_indices(pattern).map(verdict).collect()
        }
    }

    #[test]
    fn what_is_typed_behind_a_prompt_is_an_echo_and_the_next_line_is_not() {
        let pane = Pane::with("$ ").typed("echo OK\r", "$ ", false).prints("echo OK");
        assert_eq!(pane.verdicts("OK"), "E");
        let pane = pane.prints("\r\nOK\r\n");
        assert_eq!(pane.verdicts("OK"), "EA");
        assert_eq!(pane.verdicts("echo OK\r\n"), "E");
        assert_eq!(pane.verdicts("OK\r\nOK"), "A", "a match that reaches beyond the echo is output");
        assert!(pane.filter.is_idle());
    }

    #[test]
    fn endings_that_begin_what_is_wanted_are_found_longest_first() {
        assert_eq!(endings_that_begin("$ ls -l", "ls -la"), [2, 6]);
        assert_eq!(endings_that_begin("x x x", "x x x x"), [0, 2, 4]);
        assert_eq!(endings_that_begin("> äö", "äöü"), [2]);
        assert!(endings_that_begin("abc", "d").is_empty() && endings_that_begin("", "d").is_empty());
        assert_eq!(endings_that_begin("no ab", "ab"), [3], "all of it too");
    }

    #[test]
    fn a_match_in_the_first_part_of_an_echo_waits_for_the_rest() {
        let pane = Pane::with("$ ").typed("echo OK; sleep 1\r", "$ ", false).prints("echo OK");
        assert_eq!(pane.verdicts("OK"), "?");
        assert_eq!(pane.prints("AY").verdicts("OK"), "A");
    }

    #[test]
    fn a_prompt_that_stood_before_the_input_is_no_echo() {
        let pane = Pane::with("$ ").typed("ls\r", "$ ", false).prints("ls\r\n$ ");
        assert_eq!(pane.verdicts("$ "), "AA");
        assert_eq!(pane.verdicts("$ ls"), "E");
    }

    #[test]
    fn another_answer_on_the_same_line_is_an_answer() {
        let pane = Pane::with("Go on? ").typed("y", "Go on? ", true).prints("yes sir");
        assert_eq!(pane.verdicts("yes sir"), "A");
        let pane = Pane::with("> ").typed("hello\r", "> ", false).prints("got: hello");
        assert_eq!(pane.verdicts("hello"), "A");
    }

    #[test]
    fn a_progress_bar_moves_on_although_something_was_typed() {
        let pane = Pane::with("at 10 %").typed("q", "at 10 %", false).prints("\rat 11 %");
        assert_eq!(pane.verdicts("11"), "A");
        let pane = Pane::with("loading...").typed("q", "loading...", false).prints("\rdone");
        assert_eq!(pane.verdicts("done"), "A");
    }

    #[test]
    fn what_is_typed_in_pieces_is_one_line() {
        let pane = Pane::with("$ ").typed("echo ", "$ ", false).typed("OK", "$ ", false).typed("\r", "$ ", false);
        let pane = pane.prints("echo ").prints("OK\r\nOK\r\n");
        assert_eq!(pane.verdicts("OK"), "EA");
        let pane = Pane::with("$ ").typed("echo ", "$ ", false).prints("echo ").typed("OK", "$ echo ", false);
        let pane = pane.prints("OK\r\nOK\r\n");
        assert_eq!(pane.verdicts("OK"), "EA");
    }

    #[test]
    fn keys_without_characters_are_never_echoed() {
        let pane = Pane::with("$ ").typed("\r", "$ ", false).typed("\u{1b}[A", "$ ", false).typed("\u{3}", "$ ", false);
        assert!(pane.filter.is_idle());
    }

    #[test]
    fn of_too_many_lines_the_oldest_are_not_expected() {
        let lines = |input: usize| (0..40).fold(String::new(), |text, line| text + &format!("echo {input}-{line}\r"));
        // In several inputs, and in one.
        for inputs in [vec![lines(1); 10], vec![lines(1).repeat(10)]] {
            let mut pane = inputs.iter().fold(Pane::with("$ "), |pane, input| pane.typed(input, "$ ", false));
            pane = pane.typed("echo LAST\r", "$ ", false);
            assert!(pane.filter.expected.len() <= LINES);
            assert_eq!(pane.prints("echo LAST\r\nLAST\r\n").verdicts("LAST"), "EA");
        }
        let pane = Pane::with("$ ").typed(&(lines(1).repeat(10) + "echo LAST\r"), "$ ", false);
        assert_eq!(pane.prints("$ echo LAST\r\nLAST\r\n").verdicts("LAST"), "EA");
    }

    #[test]
    fn a_kernel_echo_in_the_middle_of_a_flood_is_found() {
        let pane = Pane::with("line 1\r\nli").typed("echo OK\r", "li", true).prints("ne 2\r\nliecho OK\r\nne 3\r\n");
        assert_eq!(pane.verdicts("OK"), "E");
        let pane = pane.prints("echo OK\r\n");
        assert_eq!(pane.verdicts("OK"), "EA", "the kernel echoes once");
    }

    #[test]
    fn what_was_typed_ahead_is_echoed_again_behind_a_known_prompt_only() {
        let pane = Pane::with("~ $ ").typed("sleep 1\r", "~ $ ", false).prints("sleep 1\r\n");
        let pane = pane.typed("echo OK\r", "", true).prints("echo OK\r\nname: echo OK\r\n/tmp $ echo OK\r\nOK\r\n");
        assert_eq!(pane.verdicts("echo OK"), "EAE");
    }

    #[test]
    fn a_summary_that_repeats_a_question_is_an_answer() {
        let pane = Pane::with("Name: ").typed("bob\r", "Name: ", true).prints("bob\r\nName: bob\r\n");
        assert_eq!(pane.verdicts("bob"), "EA");
    }

    #[test]
    fn an_echo_is_remembered_after_the_filter_rests() {
        let mut pane = Pane::with("$ ").typed("echo OK\r", "$ ", false).prints("echo OK\r\nOK\r\n$ ");
        for _ in 0..20 {
            pane = pane.typed("true\r", "$ ", false).prints("true\r\n$ ");
        }
        assert_eq!(pane.verdicts("OK"), "EA");
    }

    #[test]
    fn output_after_a_gap_is_not_held_against_the_old_line() {
        let mut pane = Pane::with("$ ").typed("OK\r", "$ ", false);
        pane.filter.interrupt();
        assert_eq!(pane.prints("OK\r\n").verdicts("OK"), "A");
    }

    proptest::proptest! {
        /// As by looking at each ending.
        #[test]
        fn endings_are_those_with_which_it_begins(text in "[ab ]{0,24}", wanted in "[ab ]{0,12}") {
            let each = (0..text.len()).filter(|cut| text.get(*cut..).is_some_and(|ending| wanted.starts_with(ending)));
            proptest::prop_assert_eq!(endings_that_begin(&text, &wanted), each.collect::<Vec<_>>());
        }

        /// Whatever is typed and printed, it answers, and what it holds is bounded.
        #[test]
        fn no_bytes_make_it_fail(
            typed in proptest::collection::vec(crate::stream::decoder::tests::terminal_bytes(), 1..4),
            printed in crate::stream::decoder::tests::terminal_bytes(),
            columns in 0_u16..30,
        ) {
            let mut filter = EchoFilter::default();
            let mut decoder = TextDecoder::default();
            let mut at = 0;
            for typed in &typed {
                filter.typed(at, typed, String::from_utf8_lossy(typed).into_owned(), columns, columns.is_multiple_of(2));
                for bytes in [&printed, typed] {
                    decoder.feed(at, bytes, &mut filter);
                    at += bytes.len() as u64;
                    filter.verdict(at / 2, at, "");
                }
            }
        }
    }
}
