//! Deciding whether a match is output or only the echo of typed input.
//!
//! Typed input is echoed in several ways. The kernel echoes it for a program that reads whole lines
//! (`cat`). Shells and REPLs that edit the line print it themselves: wrapped, colored, redrawn,
//! with suggestions after it. Typed-ahead text is echoed twice: by the kernel at once, and by the
//! shell when its prompt appears. None of this is output. But `got: hello` is output, and so is the
//! second `hello` that `cat` prints.
//!
//! The position decides. Each typed line is expected
//! - *anchored*: at the cursor's position when it was typed, on the line that rested there;
//! - otherwise, until it was seen: after a prompt; or alone on a line, if the kernel echoes or the
//!   line before it was the echo of the typed line before it; or at the end of a line of output, if
//!   the kernel echoes;
//! - once more after a prompt, if the kernel echoed it while no program read it.
//!
//! In doubt, a match counts as output: missing a match is worse than reporting one too many.

mod line;
mod place;
mod typed;

use std::{cell::OnceCell, collections::VecDeque};

use line::Line;
use place::Shown;
use typed::{Expected, LINES, Typed, typed_lines};

use serde::{Deserialize, Serialize};

use super::{
    render::RestingLine,
    text::{Control, TextSink},
};

/// The number of inputs whose echo is expected.
const INPUTS: u64 = 16;
/// The number of echoes that are remembered for later searches.
const REGIONS: usize = 256;
/// The number of prompts that are remembered.
const PROMPTS: usize = 8;

/// The kind of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Output.
    Answer,
    /// An echo: typed input, shown again.
    Echo,
    /// Not decided until more has been printed; call again then.
    Undecided,
}

/// Records the typed input of a pane and the places of its echoes.
///
/// Feed this [`TextSink`] with all of the pane's output while it is not
/// [idle](EchoFilter::is_idle). It expects the echoes of the last 16 inputs, at most 256 lines, and
/// remembers the last 256 echoes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct EchoFilter {
    expected: VecDeque<Expected>,
    regions: VecDeque<Region>,
    /// Prompts after which a program itself echoed typed input.
    prompts: VecDeque<String>,
    inputs: u64,
    /// The line that is being printed; only while an echo is expected.
    line: Option<Line>,
    /// Whether the previous line was an echo.
    follows_echo: bool,
    /// The offset at which a command line began, if its program will mark the start of its output.
    command_line: Option<u64>,
    /// The expected text on the line that is being printed; empty until a match is judged. Cached,
    /// since a line can have thousands of matches.
    #[serde(skip)]
    judged: OnceCell<Judged>,
}

/// The expected text on the line that is being printed.
#[derive(Debug)]
struct Judged {
    shown: Option<Shown>,
    /// The offsets, in order, at which the characters after that echo were printed.
    behind: Vec<u64>,
}

/// An echo: the raw offsets of the start of its line, of its own first byte, and of its end,
/// including its line end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Region {
    start: u64,
    typed: u64,
    end: u64,
}

impl EchoFilter {
    /// Records typed text, just before it can be echoed. `mark` is the stream's end. `resting` is
    /// the line that has begun there and not ended (preferably from
    /// [`resting_line`](super::render::resting_line), which knows the position of its cursor).
    /// `columns` is the pane's width. `tty_echo` says whether the pane's terminal itself echoes
    /// (ECHO of its termios; false where unknown).
    ///
    /// A line is cut at its first control character. Text without printable characters is never
    /// echoed; a line end in it still shows that the previously typed line is complete.
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
        // A line that was followed is more reliable than one that was rendered.
        let known = |line: &Line| !line.lost && !line.is_above() && line.columns() == usize::from(columns);
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
        // Drops the oldest: a wait most likely concerns the latest input.
        let surplus = self.expected.len().saturating_sub(LINES);
        self.expected.drain(..surplus);
    }

    /// Returns the number of the input that was recorded last.
    pub fn last_input(&self) -> u64 {
        self.inputs
    }

    /// Forgets the expected echo of an input that was not sent.
    pub fn not_typed(&mut self, input: u64) {
        self.judged.take();
        self.expected.retain(|expected| expected.input != input);
    }

    /// Records that a command line is typed from `mark` on, and that a mark will announce its
    /// output. Until then, matches after `mark` stay undecided.
    pub fn command_line_begins(&mut self, mark: u64) {
        self.command_line = Some(mark);
    }

    /// Returns the offset at which the command line that is being typed began.
    pub fn command_line(&self) -> Option<u64> {
        self.command_line
    }

    /// Ends the command line. With the start of its output, all output before that was an echo;
    /// without one, the text was not a command line.
    pub fn command_line_ends(&mut self, output: Option<u64>) {
        if let (Some(start), Some(end)) = (self.command_line.take(), output) {
            self.remember(Region { start, typed: start, end });
        }
    }

    /// Records that output is missing here: the line's content is no longer known.
    pub fn interrupt(&mut self) {
        self.judged.take();
        if let Some(line) = &mut self.line {
            line.lost = true;
        }
    }

    /// Returns whether no echo is expected: then the filter need not be fed until the next input.
    pub fn is_idle(&self) -> bool {
        self.expected.is_empty()
    }

    /// Returns the kind of a match between two raw offsets. This also works long after the echo.
    pub fn verdict(&self, start: u64, end: u64) -> Verdict {
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
        if line.above(start).is_some_and(|text| !self.is_drawn_anew(text)) {
            return Verdict::Answer;
        }
        let Judged { shown, behind } = self.judged.get_or_init(|| self.judge(line));
        let Some(shown) = shown.as_ref().filter(|shown| end > shown.typed) else { return Verdict::Answer };
        if !shown.complete {
            return Verdict::Undecided;
        }
        if behind.get(behind.partition_point(|printed| *printed < start)).is_some_and(|printed| *printed < end) {
            // The match reaches beyond the echo. After the cursor, or after a shell's prompt, such
            // text is a suggestion that will disappear.
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

    /// Handles a line feed in the line's last row. Returns whether it ends the line.
    fn end_line(&mut self, end: u64) -> bool {
        let Some(line) = &self.line else { return true };
        let lines_above = line.lines_above;
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
        if lines_above == 0 {
            for expected in &mut self.expected {
                expected.anchor = None;
            }
        }
        true
    }

    fn remember(&mut self, region: Region) {
        match self.regions.back_mut() {
            // Merged, since a pattern of several lines also matches lines that were typed together.
            Some(last) if last.end == region.start && last.typed <= region.typed => last.end = region.end,
            _ => {
                if self.regions.len() >= REGIONS {
                    self.regions.pop_front();
                }
                self.regions.push_back(region);
            }
        }
    }

    /// Records the echo of these lines.
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
        // Echoes come in the order of typing: earlier input without an echo will not be echoed any
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

    /// Stops following the line when no echo is expected.
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
            if matches!(control, Control::Csi(b'J', 0, _)) && line.is_above() {
                return line.begin_above(offset);
            }
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

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;
