//! The output of a pane of the played tmux, and how tmux captures it.
//!
//! Programs print whole characters of ASCII and end lines with `\r\n`; no line wraps.

/// The height of every pane.
pub(super) const HEIGHT: usize = 24;
/// The width of every pane.
pub(super) const WIDTH: usize = 80;

/// A pane's output.
pub(super) struct Printed {
    /// Each byte that the pane has printed.
    pub(super) log: Vec<u8>,
    lines: Vec<String>,
    open: String,
    column: usize,
    /// The lines that the history keeps.
    pub(super) limit: usize,
}

impl Printed {
    pub(super) fn new(limit: usize) -> Self {
        Self { log: Vec::new(), lines: Vec::new(), open: String::new(), column: 0, limit }
    }

    pub(super) fn print(&mut self, bytes: &[u8]) {
        self.log.extend_from_slice(bytes);
        for byte in bytes {
            match byte {
                b'\r' => self.column = 0,
                b'\n' => self.lines.push(std::mem::take(&mut self.open)),
                byte => {
                    self.open.push(char::from(*byte));
                    self.column += 1;
                    assert!(self.column < WIDTH, "a line that wraps");
                }
            }
        }
    }

    /// Returns the number of lines above the screen.
    pub(super) fn history(&self) -> usize {
        (self.lines.len() + 1).saturating_sub(HEIGHT).min(self.limit)
    }

    /// Returns the cursor's column and row.
    pub(super) fn cursor(&self) -> (usize, usize) {
        (self.column, self.lines.len().min(HEIGHT - 1))
    }

    /// Returns what `capture-pane -p` prints: the screen, with the history above it or without.
    pub(super) fn capture(&self, with_history: bool) -> String {
        let above = if with_history { self.history() } else { 0 };
        let shown = above + (self.lines.len() + 1).min(HEIGHT);
        let rows = self.lines.iter().chain([&self.open]).skip(self.lines.len() + 1 - shown);
        let mut text = String::new();
        for row in rows {
            text.push_str(row);
            text.push('\n');
        }
        text.extend(std::iter::repeat_n('\n', HEIGHT.saturating_sub(shown)));
        text
    }
}
