//! The lines of the screen at which commands begin, by the prompts' marks.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use muxtap_core::{marks::COMMANDS, stream::text::Mark};

/// The lines of a pane's commands.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct CommandLines {
    /// The line with the cursor before the next mark.
    at: Option<u64>,
    /// The line of the prompt at which a command is typed.
    prompt: Option<Prompt>,
    /// The numbers of commands with their lines, which both go up.
    known: VecDeque<(u64, u64)>,
    /// What the lines' numbers depend on.
    numbering: (u64, u64),
    changes: u64,
}

#[derive(Serialize, Deserialize)]
struct Prompt {
    line: u64,
    /// Whether the prompt has ended, and the command line begins.
    has_ended: bool,
}

impl CommandLines {
    /// Begins with output to a screen of this numbering. Another one leaves no line known.
    pub(super) fn begin(&mut self, numbering: (u64, u64)) {
        self.at = None;
        if self.numbering != numbering {
            *self = Self { numbering, changes: self.changes + 1, ..Self::default() };
        }
    }

    /// Takes the line with the cursor.
    pub(super) fn at(&mut self, line: Option<u64>) {
        self.at = line;
    }

    /// Takes a shell's mark at the cursor. The line of a prompt is the one with its end, or with its
    /// begin for a shell that does not mark the end.
    pub(super) fn mark(&mut self, mark: Mark<'_>) {
        self.changed();
        let (Some(line), Some(step)) = (self.at, step(mark)) else { return };
        let is_begun = self.prompt.as_ref().is_none_or(|prompt| !prompt.has_ended);
        match step {
            b'A' => self.prompt = Some(Prompt { line, has_ended: false }),
            b'B' if is_begun => self.prompt = Some(Prompt { line, has_ended: true }),
            _ => return,
        }
        self.erase(line);
    }

    /// Notes that this command begins at the cursor: it was typed at the last prompt.
    pub(super) fn begins(&mut self, number: u64) {
        let prompt = self.prompt.take();
        let Some(at) = self.at else { return };
        // A shell that marks no prompts begins the output on the line after its command line.
        let line = prompt.map_or(at.saturating_sub(1), |prompt| prompt.line);
        self.erase(line);
        if self.known.len() >= COMMANDS {
            self.known.pop_front();
        }
        self.known.push_back((number, line));
    }

    /// Forgets the commands from this line on: the screen was cleared since.
    fn erase(&mut self, line: u64) {
        while self.known.back().is_some_and(|(_, known)| *known >= line) {
            self.known.pop_back();
        }
    }

    /// Returns the number of bytes held.
    pub(super) fn memory(&self) -> usize {
        self.known.capacity() * size_of::<(u64, u64)>()
    }

    /// Notes that a command may have changed.
    pub(super) fn changed(&mut self) {
        self.changes += 1;
    }

    /// Returns how often a command may have changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the numbers of commands with their lines, the earliest first; none if the lines of the
    /// screen are numbered otherwise.
    pub(super) fn of(&self, numbering: (u64, u64)) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        self.known.iter().copied().filter(move |_| self.numbering == numbering)
    }
}

/// Returns the step of a prompt's mark: `A` or `B`. Continuation and right prompts have none.
fn step(mark: Mark<'_>) -> Option<u8> {
    let text = match mark {
        Mark::Prompt(text) => text,
        Mark::Osc(text) => text.strip_prefix(b"633;")?,
        _ => return None,
    };
    let mut parts = text.split(|byte| *byte == b';');
    let [step] = parts.next()? else { return None };
    parts.all(|part| !part.starts_with(b"k=") || part == b"k=i").then_some(*step)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes marks, each at a line; `C` begins the next command.
    fn lines(marks: &[(u64, &str)]) -> Vec<(u64, u64)> {
        let (mut lines, mut number) = (CommandLines::default(), 0);
        lines.begin((1, 0));
        for (line, mark) in marks {
            lines.at(Some(*line));
            lines.mark(Mark::Prompt(mark.as_bytes()));
            if *mark == "C" {
                number += 1;
                lines.begins(number);
            }
        }
        lines.of((1, 0)).collect()
    }

    #[test]
    fn a_command_is_at_the_line_on_which_it_was_typed() {
        let long_prompt =
            [(0, "A"), (1, "B"), (2, "A;k=s"), (2, "B"), (3, "C"), (9, "D;0"), (9, "A"), (9, "B"), (10, "C")];
        assert_eq!(lines(&long_prompt), [(1, 1), (2, 9)]);
        assert_eq!(
            lines(&[(4, "A"), (5, "C"), (7, "D"), (8, "C")]),
            [(1, 4), (2, 7)],
            "prompts without an end, or none"
        );
    }

    #[test]
    fn a_cleared_screen_has_no_commands() {
        let before = [(0, "A"), (0, "B"), (1, "C"), (5, "A"), (5, "B"), (6, "C")];
        let cleared = [&before[..], &[(3, "D"), (3, "A"), (3, "B")]].concat();
        assert_eq!(lines(&cleared), [(1, 0)]);
        let mut lines = CommandLines::default();
        lines.at(Some(3));
        lines.begins(1);
        lines.begin((0, 1));
        assert_eq!(lines.of((0, 1)).count(), 0, "another width");
    }
}
