//! Text that panes, agents and people wrote, in a tool's result: no line of it begins like one of
//! muxtap's own.

use muxtap_base::plain;

/// What a quoted line begins with.
pub(super) const MARK: &str = "  | ";

/// Adds a text of several lines, each with a mark.
pub(super) fn push_quoted(to: &mut String, text: &str) {
    for line in text.lines() {
        to.push_str(MARK);
        to.push_str(line);
        to.push('\n');
    }
}

/// Adds a row of a list: one line, whatever its parts contain.
pub(super) fn push_row(to: &mut String, row: &str) {
    to.push_str(&plain::name(row));
    to.push('\n');
}

/// Returns a message whose further lines, which may be a pane's, have a mark.
pub(super) fn message(message: &str) -> String {
    plain::message(message).replace('\n', "\n  | ")
}
