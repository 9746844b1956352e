//! Is a match an answer, or only the echo of what was typed?
//!
//! What is typed comes back: the kernel echoes it for a program that reads whole lines (`cat`); shells and REPLs that edit the line print
//! it themselves, wrapped, coloured, redrawn, with suggestions behind it; and what is typed ahead comes twice, from the kernel at once and
//! from the shell when its prompt is there. None of this is output. But `got: hello` is, and so is the second `hello` that `cat` prints.
//!
//! What decides is the place. Each typed line is expected
//! - *anchored*: where the cursor stood when it was typed, on the line that rested there;
//! - else, as long as it was not seen yet, behind a prompt; or alone on a line, if the kernel echoes, or if the line before it was the
//!   echo of the typed line before it; or at the end of a line of output, if the kernel echoes;
//! - once more behind a prompt, if the kernel echoed it while nobody read it.
//!
//! In doubt it is an answer: to miss one is worse than to see one too many.

mod line;

use std::collections::VecDeque;

use line::Line;

use super::{
    render::RestingLine,
    text::{Control, TextSink},
};

/// Inputs that are expected to be echoed.
const INPUTS: u64 = 16;
/// Typed lines that are expected to be echoed, over all inputs.
const LINES: usize = 256;
/// Characters of one typed line that are compared.
const LINE_CHARS: usize = 4096;
/// Echoes that are remembered for matches that are looked for later.
const REGIONS: usize = 256;
/// Prompts that are remembered.
const PROMPTS: usize = 8;
/// A typed line that is shorter is not looked for at the end of a line of output.
const SHORT: usize = 4;

/// What a match is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Output.
    Answer,
    /// What was typed, shown again.
    Echo,
    /// It cannot be told before more has been printed; ask again then.
    Undecided,
}

/// Knows what was typed in a pane, and where it was echoed.
///
/// It is a [`TextSink`] to be fed with everything the pane prints while it is not [idle](EchoFilter::is_idle). It remembers what is
/// expected of the last 16 inputs, at most 256 lines, and the last 256 echoes.
#[derive(Debug, Default)]
pub struct EchoFilter {
    expected: VecDeque<Expected>,
    regions: VecDeque<Region>,
    /// Prompts behind which a program itself echoed what was typed.
    prompts: VecDeque<String>,
    inputs: u64,
    /// The line that is being printed; only while something is expected.
    line: Option<Line>,
    /// The line before it was an echo.
    follows_echo: bool,
}

/// A typed line.
#[derive(Debug)]
struct Expected {
    text: String,
    /// Enter was typed behind it.
    entered: bool,
    /// Which input it belongs to.
    input: u64,
    /// How many lines of its input came before it.
    number: usize,
    /// The kernel echoes.
    tty_echo: bool,
    /// What stood before the cursor when it was typed.
    prompt: String,
    /// It is expected on the line that is being printed, from this cell on; the stream's end when it was typed.
    anchor: Option<(usize, u64)>,
    /// The kernel has echoed it, while no prompt was there: an editing program may do so again.
    again: bool,
}

/// An echo: raw offsets of the line on which it stands, of its own first byte, and of its end with the line end that belongs to it.
#[derive(Clone, Copy, Debug)]
struct Region {
    start: u64,
    typed: u64,
    end: u64,
}

/// An expected echo that a line shows, in part or whole.
struct Shown {
    /// Which typed lines make it up.
    lines: std::ops::Range<usize>,
    /// Where it begins.
    typed: u64,
    /// The cell behind what is shown of it.
    end_cell: usize,
    complete: bool,
    /// The line may only be finished by Enter, and it is certain that an echo stands here.
    anchored: bool,
}

impl EchoFilter {
    /// Takes note of typed text, just before it can be echoed: `mark` is the stream's end, `resting` the line that has begun there and not
    /// ended (best from [`resting_line`](super::render::resting_line), which knows where its cursor is), `columns` the pane's width, and
    /// `tty_echo` whether the pane's terminal echoes by itself (ECHO of its termios; false where that is not known).
    ///
    /// A line is cut at its first control character. Text without printable characters is never echoed; a line end in it still tells
    /// that the line typed before it is complete.
    pub fn typed(&mut self, mark: u64, text: &[u8], resting: impl Into<RestingLine>, columns: u16, tty_echo: bool) {
        let resting = resting.into();
        self.inputs += 1;
        let input = self.inputs;
        let lines = typed_lines(text);
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
        if self.line.as_ref().is_none_or(|line| line.lost) {
            let start = resting.start.unwrap_or_else(|| mark.saturating_sub(resting.text.len() as u64)).min(mark);
            let mut line = Line::new(start, columns);
            line.print(start, resting.text.as_bytes());
            line.place_cursor(resting.cursor);
            self.line = Some(line);
        }
        let cursor = self.line.as_ref().map_or(0, Line::cursor);
        let mut number = 0;
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
        self.expected.truncate(LINES);
    }

    /// Whether nothing is expected: then it need not be fed, until something is typed.
    pub fn is_idle(&self) -> bool {
        self.expected.is_empty()
    }

    /// What a match is that stands between two raw offsets. It may be asked long after the echo was seen.
    pub fn verdict(&self, start: u64, end: u64, _text: &str) -> Verdict {
        let in_region = |region: &Region| region.start <= start && end <= region.end && end > region.typed;
        if self.regions.iter().rev().any(in_region) {
            return Verdict::Echo;
        }
        let Some(line) = self.line.as_ref().filter(|line| !line.lost && start >= line.start) else {
            return Verdict::Answer;
        };
        let shown = self.shown(line);
        let Some(shown) = shown.filter(|shown| end > shown.typed) else { return Verdict::Answer };
        if !shown.complete {
            return Verdict::Undecided;
        }
        if line.shows_from(shown.end_cell, start, end) {
            // It reaches beyond the echo. Behind the cursor, or behind a shell's prompt, that is a suggestion that will go away again.
            let beyond_cursor = line.cursor() <= shown.end_cell;
            let edited =
                shown.anchored && self.expected.get(shown.lines.start).is_some_and(|first| self.is_edited(first));
            return if beyond_cursor || edited { Verdict::Undecided } else { Verdict::Answer };
        }
        let entered =
            shown.lines.end.checked_sub(1).and_then(|last| self.expected.get(last)).is_some_and(|last| last.entered);
        if shown.anchored || !entered { Verdict::Echo } else { Verdict::Undecided }
    }

    /// What is expected and stands, in part or whole, on the line that is being printed.
    fn shown(&self, line: &Line) -> Option<Shown> {
        // While a shell redraws, what counts is either all that stands there or what stands before the cursor.
        let ends = [line.len(), line.cursor().min(line.len())];
        let anchored = ends.into_iter().find_map(|end| self.anchored(line, end));
        anchored.or_else(|| ends.into_iter().find_map(|end| self.placed(line, end)))
    }

    /// The longest echo that begins where the cursor stood when it was typed.
    fn anchored(&self, line: &Line, end: usize) -> Option<Shown> {
        let mut best: Option<Shown> = None;
        for (first, expected) in self.expected.iter().enumerate() {
            let Some((cell, mark)) = expected.anchor else { continue };
            if end < cell {
                // The cursor is before it: the line is being drawn anew.
                best = best.or(Some(Shown {
                    lines: first..first + 1,
                    typed: mark,
                    end_cell: end,
                    complete: false,
                    anchored: true,
                }));
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

    /// An echo anywhere else: the line ends with it, or with its beginning.
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
                let begun = splits(text).find(|(before, begun)| {
                    !begun.is_empty() && wanted.starts_with(begun) && self.may_stand_behind(expected, before)
                });
                partial = begun.map(|(before, _)| shown(before, false));
            }
        }
        partial
    }

    /// Whether the echo of a typed line may follow this text on a line.
    fn may_stand_behind(&self, expected: &Expected, before: &str) -> bool {
        let after_echo = expected.number > 0 && self.follows_echo;
        if expected.again {
            // Where it was typed nobody read it; a program that shows a prompt of its own once more with the answer is not a shell.
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

    /// Whether this text is a prompt: one that was seen, one like it, or, where none was seen yet, one that looks like a shell's.
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

    /// A line feed came in the line's last row. Answers whether it ends the line.
    fn end_line(&mut self, end: u64) -> bool {
        let Some(line) = &self.line else { return true };
        let shown =
            if line.lost { None } else { self.anchored(line, line.len()).or_else(|| self.placed(line, line.len())) };
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

    /// These lines have been echoed.
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
        // Echoes come in the order of typing: what was typed before and not echoed will not be any more.
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

    /// Without anything to expect there is nothing to follow.
    fn rest(&mut self) {
        if self.expected.is_empty() {
            self.line = None;
            self.expected = VecDeque::new();
        }
    }
}

impl TextSink for EchoFilter {
    fn text(&mut self, offset: u64, text: &[u8]) {
        if let Some(line) = &mut self.line {
            line.print(offset, text);
        }
    }

    fn control(&mut self, offset: u64, control: Control) {
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

/// The lines of typed text as an editor or the kernel would show them, and whether each was ended by Enter.
fn typed_lines(text: &[u8]) -> Vec<(String, bool)> {
    let text =
        String::from_utf8_lossy(text).replace("\u{1b}[200~", "").replace("\u{1b}[201~", "").replace("\r\n", "\n");
    let mut lines = Vec::new();
    for line in text.split_inclusive(['\r', '\n']).take(LINES) {
        let entered = line.ends_with(['\r', '\n']);
        let shown =
            line.split(|character: char| character.is_control() && character != '\t').next().unwrap_or_default();
        lines.push((shown.chars().take(LINE_CHARS).collect(), entered));
    }
    lines
}

/// The ways to cut a line in a prompt and what was typed behind it, the whole line being typed first.
fn splits(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let cuts = text.char_indices().filter(|(_, character)| *character == ' ').map(|(at, _)| at + 1);
    std::iter::once(0).chain(cuts).filter_map(|cut| text.split_at_checked(cut))
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

/// How many characters a text has without the blanks at its end.
fn trimmed_len(text: impl Iterator<Item = char>) -> usize {
    text.enumerate().filter(|(_, character)| !character.is_whitespace()).last().map_or(0, |(index, _)| index + 1)
}

#[cfg(test)]
mod golden;
