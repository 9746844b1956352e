//! Finds the dialog at the end of an agent's screen.
//!
//! An agent prints text of any origin, such as a file with the words of a dialog. An agent draws
//! its own dialogs in place of its prompt, at the end of the screen. Therefore only the last list
//! of answers can be a dialog, and only if nothing but a dialog's own rows is below it: its frame,
//! blank rows, and key hints. The rows of the dialog are determined by its frame or its
//! indentation, which quoted text cannot leave.

use std::{ops::Range, sync::LazyLock};

use muxtap_api::AgentState;
use regex::Regex;

use super::{
    options::{self, OptionBlock},
    rules::{Agent, Options},
};

/// The most rows read above the answers of a dialog without a frame.
const BODY_ROWS: usize = 40;
/// The most rows with text below the answers of a dialog.
const FOOTER_ROWS: usize = 6;
/// The least columns of a line that separates a dialog from the text above.
const RULE_COLUMNS: usize = 10;

/// Matches a row with an agent's prompt, where it waits for its user's next message.
static PROMPT: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[\s│┃║▌|]*[>❯›→](\s.*)?$").ok());
/// Matches a row that names keys.
static KEYS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(esc|escape|enter|return|tab|space|ctrl[-+ ]\w|(arrow|number) keys?)\b|[↑↓←→⇆↵⏎]").ok()
});
/// Matches a row that says what keys do.
static KEY_USES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(to|select|confirm|cancel|navigate|continue|submit|amend|toggle|dismiss|exit|quit)\b").ok()
});
/// Matches a row by which an agent shows that it works.
static WORK: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?i)\binterrupt\b").ok());

/// What is at the end of a screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// No list of answers is on the screen.
    Nothing,
    /// A list of answers is above the agent's prompt: it was printed, or answered.
    Past,
    /// Something else is below the last list of answers, or its frame is not closed.
    Unsure,
    /// A dialog is at the end of the screen.
    Whole(Dialog),
}

/// A dialog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dialog {
    /// Its rows on the screen, from below its upper border to the end of the screen.
    pub(super) rows: Range<usize>,
    /// Its answers.
    pub(super) block: OptionBlock,
    /// The other lists of answers on the screen.
    pub(super) others: Vec<OptionBlock>,
    /// The character at both ends of its rows, if it has a frame.
    bar: Option<char>,
    /// Whether more of it may be above the visible screen.
    pub(super) is_cut: bool,
    /// Whether a border is above it.
    pub(super) is_bounded: bool,
}

impl Dialog {
    /// Returns the dialog's text above the row `end` (the subject and the question), without frame,
    /// empty rows and lines. A dialog without a frame begins with the text above it.
    pub(super) fn body(&self, rows: &[&str], end: usize) -> Vec<String> {
        let rows = rows.get(self.rows.start..end).unwrap_or_default();
        // A turning spinner does not make another question.
        let text = rows.iter().map(|row| inside(row, self.bar).trim_start_matches(is_spinner).trim_start());
        text.filter(|text| !text.is_empty() && !is_line(text)).map(str::to_owned).collect()
    }
}

/// Facts about the first and last row of a screen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edges {
    /// Whether the screen's last row has text: then more rows may have scrolled off above the
    /// first.
    pub(super) is_full: bool,
    /// Whether the first row continues a line from above the screen.
    pub(super) starts_within_line: bool,
}

/// Finds the dialog with this kind of answers.
///
/// `rows`: the rows of the screen up to the last with text, each joined with the rows into which
/// the terminal wrapped it. `state`: the state that the dialog would mean.
pub(super) fn find(rows: &[&str], edges: Edges, agent: &Agent, kind: &Options, state: AgentState) -> Standing {
    let mut blocks = match kind {
        Options::None => return Standing::Nothing,
        Options::Numbered => options::numbered(rows),
        Options::Pattern(regex) => options::matching(regex, rows),
    };
    let Some(block) = blocks.pop() else { return Standing::Nothing };
    match what_follows(rows, &block, agent) {
        Below::Prompt => return Standing::Past,
        Below::Other => return Standing::Unsure,
        Below::Footer => {}
    }
    let head = Head::of(rows, block.rows.start, edges.is_full, state);
    if head.bar.is_some_and(|bar| !is_closed(rows, &block, bar)) {
        return Standing::Unsure;
    }
    let first = rows.get(head.top..block.rows.start).and_then(|above| above.iter().find(|row| !is_blank(row)));
    if head.is_bounded && first.is_some_and(|row| is_prompt(row, agent)) {
        // The list is being typed into the agent's prompt.
        return Standing::Past;
    }
    let rows = head.top..rows.len();
    // The rest of a wrapped line is neither a border nor a title.
    let is_cut = head.is_cut || edges.starts_within_line && head.top <= 1;
    Standing::Whole(Dialog {
        rows,
        block,
        others: blocks,
        bar: head.bar.map(|bar| bar.letter),
        is_cut,
        is_bounded: head.is_bounded,
    })
}

/// What is below a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Below {
    /// The rest of a dialog, or nothing.
    Footer,
    /// The agent's prompt, possibly with other rows.
    Prompt,
    /// Something else.
    Other,
}

/// Classifies the rows below a dialog's answers or question.
pub(super) fn below(rows: &[&str], agent: &Agent) -> Below {
    if rows.iter().any(|row| is_prompt(row, agent)) {
        return Below::Prompt;
    }
    let text = rows.iter().filter(|row| !is_blank(row) && !is_line(row));
    let (rows, footer) = text.fold((0, 0), |(all, footer), row| (all + 1, footer + usize::from(is_footer(row, agent))));
    if rows == footer && rows <= FOOTER_ROWS { Below::Footer } else { Below::Other }
}

fn what_follows(rows: &[&str], block: &OptionBlock, agent: &Agent) -> Below {
    let between = block.rows.clone().filter(|at| !block.own_rows.contains(at));
    let belongs = |row: &str| is_blank(row) || is_line(row) || options::text_column(row) >= Some(block.indent);
    // A label of several rows continues at its own column.
    let rest = rows.get(block.rows.end..).unwrap_or_default();
    let long = rest.iter().take_while(|row| !is_blank(row) && !is_line(row) && belongs(row)).count();
    let found = below(rest.get(long..).unwrap_or_default(), agent);
    let mut between = between.filter_map(|at| rows.get(at));
    if found == Below::Footer && !between.all(|row| belongs(row)) { Below::Other } else { found }
}

/// The part of a dialog above its answers.
struct Head {
    /// Its first row.
    top: usize,
    bar: Option<Bar>,
    /// Whether there is a border above it.
    is_bounded: bool,
    is_cut: bool,
}

/// The left side of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Bar {
    letter: char,
    column: usize,
}

impl Head {
    fn of(rows: &[&str], answers: usize, is_full: bool, state: AgentState) -> Self {
        rows.get(answers).and_then(|row| Self::framed(rows, answers, is_full, Bar::of(row)?)).unwrap_or_else(|| {
            let above = rows.get(..answers).unwrap_or_default();
            let is_indented = above.iter().rev().find(|row| !is_blank(row)).is_some_and(|row| is_indented(row));
            if is_indented { Self::indented(above, is_full) } else { Self::plain(above, is_full, state) }
        })
    }

    /// Finds a dialog with a frame, or with a bar on the left: quoted text is inside.
    fn framed(rows: &[&str], answers: usize, is_full: bool, bar: Bar) -> Option<Self> {
        let inside = rows.get(..answers)?.iter().rev().take_while(|row| Bar::of(row) == Some(bar)).count();
        let top = answers - inside;
        let border = top.checked_sub(1).and_then(|at| rows.get(at));
        let is_bounded = border.is_some_and(|row| corner(row, "╭┌┏╔") == Some(bar.column));
        let is_open = border.is_none() && inside > 0;
        // A thick bar needs no corner; a thin one may also be a gutter beside a list.
        let is_thick = "┃▌".contains(bar.letter);
        let is_cut = is_open && (is_full || !is_thick);
        (is_bounded || is_open || is_thick).then_some(Self { top, bar: Some(bar), is_bounded, is_cut })
    }

    /// Finds a dialog of indented rows: quoted text is indented, too.
    fn indented(above: &[&str], is_full: bool) -> Self {
        let own = above.iter().rev().take(BODY_ROWS).take_while(|row| is_indented(row)).count();
        let top = above.len() - own;
        let border = top.checked_sub(1).and_then(|at| above.get(at));
        let is_bounded = border.is_some_and(|row| is_rule(row));
        // The row above the indented rows may be their title.
        let has_title = !is_bounded && own < BODY_ROWS && border.is_some();
        let is_cut = !is_bounded && !has_title && (is_full || top > 0);
        Self { top: top - usize::from(has_title), bar: None, is_bounded, is_cut }
    }

    /// Finds a dialog without structure: quoted text can look like any part of a dialog, so no row
    /// is certainly its beginning. A question in an agent's own words begins below a line.
    fn plain(above: &[&str], is_full: bool, state: AgentState) -> Self {
        let stops = |row: &str| state == AgentState::Question && is_rule(row);
        let own = above.iter().rev().take(BODY_ROWS).take_while(|row| !stops(row)).count();
        let top = above.len() - own;
        let is_bounded = top.checked_sub(1).and_then(|at| above.get(at)).is_some_and(|row| stops(row));
        Self { top, bar: None, is_bounded, is_cut: !is_bounded && (is_full || top > 0) }
    }
}

impl Bar {
    fn of(row: &str) -> Option<Self> {
        let column = corner(row, "│┃║▌")?;
        Some(Self { letter: row.trim_start().chars().next()?, column })
    }
}

/// Returns the column of a row's first character, if it is one of these.
fn corner(row: &str, letters: &str) -> Option<usize> {
    let text = row.trim_start();
    text.starts_with(|letter| letters.contains(letter)).then(|| row.chars().count() - text.chars().count())
}

/// Returns whether the frame of thin lines around these answers has a lower border.
fn is_closed(rows: &[&str], block: &OptionBlock, bar: Bar) -> bool {
    if "┃▌".contains(bar.letter) {
        return true;
    }
    let below = rows.get(block.rows.end..).unwrap_or_default();
    let end = below.iter().find(|row| Bar::of(row) != Some(bar));
    end.is_some_and(|row| corner(row, "╰└┗╚") == Some(bar.column))
}

/// Returns the row of the prompt in which the user types the next message, at the end of the rows.
/// `None` if the prompt's row looks different from a message.
pub(super) fn typed_prompt(rows: &[String], agent: &Agent) -> Option<usize> {
    let last = rows.iter().rposition(|row| is_prompt(row, agent))?;
    // Rows of the prompt's frame, and below it, may be the agent's own.
    let is_frame = |row: &str| is_blank(row) || is_line(row) || is_prompt(row, agent) && !is_any_prompt(row);
    let typed = rows.get(..=last)?.iter().rposition(|row| !is_frame(row))?;
    rows.get(typed).is_some_and(|row| is_any_prompt(row)).then_some(typed)
}

/// Returns whether a row looks like the prompt of any agent.
fn is_any_prompt(row: &str) -> bool {
    PROMPT.as_ref().is_some_and(|prompt| prompt.is_match(row))
}

fn is_prompt(row: &str, agent: &Agent) -> bool {
    is_any_prompt(row) || agent.prompt.iter().any(|regex| regex.is_match(row))
}

fn is_footer(row: &str, agent: &Agent) -> bool {
    let fits = |regex: &LazyLock<Option<Regex>>| regex.as_ref().is_some_and(|regex| regex.is_match(row));
    agent.footer.iter().any(|regex| regex.is_match(row)) || fits(&KEYS) && fits(&KEY_USES) && !fits(&WORK)
}

fn is_blank(row: &str) -> bool {
    inside(row, Bar::of(row).map(|bar| bar.letter)).is_empty()
}

/// Returns whether a character belongs to a spinner that turns at a row's beginning.
fn is_spinner(letter: char) -> bool {
    ('\u{2801}'..='\u{28ff}').contains(&letter) || "⬡⬢◐◓◑◒".contains(letter)
}

/// Returns whether a row consists of drawn lines only, or of the arrows that a list has above and below
/// what it shows of its answers.
fn is_line(row: &str) -> bool {
    let drawn = |letter: char| ('\u{2500}'..='\u{257f}').contains(&letter) || "▲▼".contains(letter);
    row.chars().all(|letter| letter.is_whitespace() || drawn(letter))
}

/// Returns whether a row is an unbroken line from the first column.
fn is_rule(row: &str) -> bool {
    row.chars().count() >= RULE_COLUMNS && row.chars().all(|letter| "─━═".contains(letter))
}

/// Returns whether a row is empty, begins with a space, or is a broken line, as inside dialogs.
fn is_indented(row: &str) -> bool {
    row.is_empty() || row.starts_with(char::is_whitespace) || row.chars().all(|letter| "╌┄┈╍".contains(letter))
}

/// Returns a row's text without the frame at both ends.
fn inside(row: &str, bar: Option<char>) -> &str {
    let text = row.trim();
    let Some(bar) = bar else { return text };
    let text = text.strip_prefix(bar).unwrap_or(text);
    text.strip_suffix(bar).unwrap_or(text).trim()
}
