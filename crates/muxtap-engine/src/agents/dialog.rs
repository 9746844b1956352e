//! Finds the dialog with which an agent's screen ends.
//!
//! What an agent prints may be anybody's text, such as a file with the words of a dialog. An agent
//! draws its own dialogs in place of its prompt, as the last thing on the screen. So only the last
//! list of answers can be one, and only where nothing but a dialog's own rows stands below it: its
//! frame, blank rows, and hints on keys. Which rows belong to it is read from its frame or its
//! indentation, which what it quotes cannot leave.

use std::{ops::Range, sync::LazyLock};

use muxtap_api::AgentState;
use regex::Regex;

use super::{
    options::{self, OptionBlock},
    rules::{Agent, Options},
};

/// Rows that are read above the answers of a dialog without a frame.
const BODY_ROWS: usize = 40;
/// Rows that are not empty below the answers of a dialog, at most.
const FOOTER_ROWS: usize = 6;
/// Columns of a line that separates a dialog from what stands above.
const RULE_COLUMNS: usize = 10;

/// Matches a row with an agent's prompt: where it waits for its user's next message.
static PROMPT: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[\s│┃║▌|]*[>❯›→](\s.*)?$").ok());
/// Matches a row that names keys …
static KEYS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(esc|escape|enter|return|tab|space|ctrl[-+ ]\w|(arrow|number) keys?)\b|[↑↓←→⇆↵⏎]").ok()
});
/// … and what they do.
static KEY_USES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(to|select|confirm|cancel|navigate|continue|submit|amend|toggle|dismiss|exit|quit)\b").ok()
});
/// Matches a row by which an agent says that it works.
static WORK: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?i)\binterrupt\b").ok());

/// What stands at the end of a screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// No list of answers stands on the screen.
    Nothing,
    /// A list of answers stands above the agent's prompt: it was printed, or was answered.
    Past,
    /// Something else stands below the last list of answers, or its frame is not closed.
    Unsure,
    /// A dialog stands there as the last thing.
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
    /// The character at both ends of its rows, where it stands in a frame.
    bar: Option<char>,
    /// Whether more of it may stand above what is shown.
    pub(super) is_cut: bool,
}

impl Dialog {
    /// Returns the dialog's text above the row `end`: what it asks about, and the question, without
    /// its frame, empty rows and lines. Without a frame it begins with what stands above it.
    pub(super) fn body(&self, rows: &[&str], end: usize) -> Vec<String> {
        let rows = rows.get(self.rows.start..end).unwrap_or_default();
        // A spinner that turns is no other question.
        let text = rows.iter().map(|row| inside(row, self.bar).trim_start_matches(is_spinner).trim_start());
        text.filter(|text| !text.is_empty() && !is_line(text)).map(str::to_owned).collect()
    }
}

/// What is known of the first and last row of a screen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edges {
    /// Whether the last row that is not empty is the screen's last row: more may have stood above the first.
    pub(super) is_full: bool,
    /// Whether the first row goes on with a text that begins above the screen.
    pub(super) starts_within_line: bool,
}

/// Finds the dialog of this kind of answers. `rows`: those of the screen, to the last that is not empty, each
/// with the rows into which the terminal wrapped it. `state`: what the dialog would mean.
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
        // What is being typed into the agent's prompt.
        return Standing::Past;
    }
    let rows = head.top..rows.len();
    // The rest of a text is neither a border nor a title.
    let is_cut = head.is_cut || edges.starts_within_line && head.top <= 1;
    Standing::Whole(Dialog { rows, block, others: blocks, bar: head.bar.map(|bar| bar.letter), is_cut })
}

/// What stands below a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Below {
    /// The rest of a dialog, or nothing.
    Footer,
    /// The agent's prompt, whatever else.
    Prompt,
    /// Something else.
    Other,
}

/// Returns what stands in these rows, which follow a dialog's answers or question.
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
    // A label of several rows goes on at its own column.
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
    /// Whether a border stands above it.
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

    /// A frame, or a bar on the left. What it quotes stands inside.
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

    /// Indented rows: what they quote is indented, too.
    fn indented(above: &[&str], is_full: bool) -> Self {
        let own = above.iter().rev().take(BODY_ROWS).take_while(|row| is_indented(row)).count();
        let top = above.len() - own;
        let border = top.checked_sub(1).and_then(|at| above.get(at));
        let is_bounded = border.is_some_and(|row| is_rule(row));
        // The row that the others are indented below may be its title.
        let has_title = !is_bounded && own < BODY_ROWS && border.is_some();
        let is_cut = !is_bounded && !has_title && (is_full || top > 0);
        Self { top: top - usize::from(has_title), bar: None, is_bounded, is_cut }
    }

    /// Rows without any structure: what is quoted can look like each part of a dialog, so none is its
    /// beginning. A question of an agent's own words begins below a line.
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

fn is_prompt(row: &str, agent: &Agent) -> bool {
    PROMPT.as_ref().is_some_and(|prompt| prompt.is_match(row)) || agent.prompt.iter().any(|regex| regex.is_match(row))
}

fn is_footer(row: &str, agent: &Agent) -> bool {
    let fits = |regex: &LazyLock<Option<Regex>>| regex.as_ref().is_some_and(|regex| regex.is_match(row));
    agent.footer.iter().any(|regex| regex.is_match(row)) || fits(&KEYS) && fits(&KEY_USES) && !fits(&WORK)
}

fn is_blank(row: &str) -> bool {
    inside(row, Bar::of(row).map(|bar| bar.letter)).is_empty()
}

/// Returns whether a character is one of those that turn at a row's beginning while something runs.
fn is_spinner(letter: char) -> bool {
    ('\u{2801}'..='\u{28ff}').contains(&letter) || "⬡⬢◐◓◑◒".contains(letter)
}

/// Returns whether a row is drawn lines alone.
fn is_line(row: &str) -> bool {
    row.chars().all(|letter| letter.is_whitespace() || ('\u{2500}'..='\u{257f}').contains(&letter))
}

/// Returns whether a row is a line from the first column on that is not broken.
fn is_rule(row: &str) -> bool {
    row.chars().count() >= RULE_COLUMNS && row.chars().all(|letter| "─━═".contains(letter))
}

/// Returns whether a row is empty, begins with a space, or is a broken line, which dialogs have inside.
fn is_indented(row: &str) -> bool {
    row.is_empty() || row.starts_with(char::is_whitespace) || row.chars().all(|letter| "╌┄┈╍".contains(letter))
}

/// Returns a row's text, without the frame at both of its ends.
fn inside(row: &str, bar: Option<char>) -> &str {
    let text = row.trim();
    let Some(bar) = bar else { return text };
    let text = text.strip_prefix(bar).unwrap_or(text);
    text.strip_suffix(bar).unwrap_or(text).trim()
}
