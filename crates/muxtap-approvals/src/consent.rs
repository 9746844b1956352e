//! The text of a question to a person: who asks, and what will happen.
//!
//! Every interface shows this text. Two properties hold for it, whatever an agent sends:
//! - The agent's text cannot pass for muxtap's own: a row's text is on the line of its label, or on
//!   indented lines below it.
//! - Nothing is hidden: characters without a visible form are written as `\u{202e}`, and a text that
//!   is too long loses its middle, with the length that is missing.

use std::{borrow::Cow, fmt::Write as _};

use muxtap_base::plain;

/// The maximum length of a row's text, in characters.
pub const ROW_CHARS: usize = 4096;
/// The maximum length of a title or of another short text, in characters.
pub const TITLE_CHARS: usize = 512;
/// The maximum length of a prompt for another agent, in characters. A Mattermost post has 16383.
pub const PROMPT_CHARS: usize = 12_000;

/// The length of a question's rows, in characters, from which on further rows are only counted.
const ALL_CHARS: usize = 10_000;

/// The rows of a question, built one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    text: String,
    /// The characters of `text`.
    chars: usize,
    skipped: usize,
}

impl Rows {
    /// Adds a row, unless its text is blank. Returns whether the whole text is shown.
    pub fn add(&mut self, label: &str, text: &str) -> bool {
        if text.trim().is_empty() {
            return true;
        }
        if self.is_full() {
            self.skip(1);
            return false;
        }
        let whole = visible(text);
        let text = cut(&whole, ROW_CHARS);
        let before = self.text.len();
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(label);
        self.text.push(':');
        if text.contains('\n') {
            for line in text.lines() {
                let _ = write!(self.text, "\n  {line}");
            }
        } else {
            let _ = write!(self.text, " {text}");
        }
        self.chars += self.text.get(before..).unwrap_or_default().chars().count();
        text == whole
    }

    /// Returns whether further rows are only counted.
    pub fn is_full(&self) -> bool {
        self.chars >= ALL_CHARS
    }

    /// Counts rows that are not shown.
    pub fn skip(&mut self, rows: usize) {
        self.skipped += rows;
    }

    /// Returns whether no row was added.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns the rows as text.
    pub fn into_text(self) -> String {
        match self.skipped {
            0 => self.text,
            skipped => format!("{}\nnot shown: {skipped} more rows", self.text),
        }
    }
}

/// Returns a text of several lines in which every character is visible, except spaces, tabs and line
/// ends.
pub fn visible(text: &str) -> Cow<'_, str> {
    let mut before = ' ';
    let is_hidden = |character: char| {
        let after = std::mem::replace(&mut before, character);
        hides(character, after)
    };
    if !text.contains(is_hidden) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut before = ' ';
    for character in text.chars() {
        if hides(character, before) {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
        before = character;
    }
    shown.into()
}

/// Returns whether a character must be written as its number. `before`: the character before it.
fn hides(character: char, before: char) -> bool {
    match character {
        '\n' | '\t' => false,
        // Parts of an emoji; behind a letter they only make two different words look the same.
        '\u{200d}' | '\u{fe0e}' | '\u{fe0f}' => before.is_ascii() || before.is_alphanumeric(),
        // Characters without a width of their own, and blanks that look like no text at all.
        '\u{ad}'
        | '\u{34f}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200c}'
        | '\u{2060}'..='\u{2065}'
        | '\u{2800}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0d}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => true,
        _ => plain::controls(character),
    }
}

/// Returns a text as a code block of Markdown, which is indented, of at most this many characters.
pub fn block(text: &str, most: usize) -> String {
    // Each line is indented, which counts, too.
    let most = most.saturating_sub(4 * text.lines().count()).max(most / 4);
    cut(text, most).lines().fold(String::new(), |mut block, line| {
        let _ = writeln!(block, "    {line}");
        block
    })
}

/// Returns a name or title as one line of at most [`TITLE_CHARS`] characters in which every
/// character is visible.
pub fn title(text: &str) -> String {
    cut(&visible(text).replace('\n', "\\n").replace('\t', " "), TITLE_CHARS)
}

/// Cuts the middle of a text that is longer than this many characters, and says how much is missing.
pub fn cut(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    // A command says what it does at its beginning, and often hides what it also does at its end.
    let tail = most / 3;
    let head = most - tail;
    let place = |chars: usize| text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    let (first, last) =
        (text.get(..place(head)).unwrap_or_default(), text.get(place(length - tail)..).unwrap_or_default());
    let line_end = if text.contains('\n') { "\n" } else { " " };
    format!("{first}{line_end}[{} of {length} characters are not shown]{line_end}{last}", length - most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_without_a_visible_form_are_written_as_numbers() {
        let hostile = "a\u{1b}[2J\r\u{202e}b\u{200b}c\u{e0041}\u{ad}r\u{200d}m\n\tü";
        assert_eq!(visible(hostile), "a\\u{1b}[2J\\u{d}\\u{202e}b\\u{200b}c\\u{e0041}\\u{ad}r\\u{200d}m\n\tü");
        for harmless in ["größe\n\tx", "👨\u{200d}👩 ⚠\u{fe0f}"] {
            assert!(matches!(visible(harmless), Cow::Borrowed(_)), "{harmless:?}");
        }
        assert_eq!(title("a\nb\u{2066}"), "a\\nb\\u{2066}");
    }

    #[test]
    fn a_long_text_loses_its_middle_and_says_how_much() {
        let text = format!("rm {}; curl evil", "x".repeat(9000));
        let shown = cut(&text, 300);
        assert!(shown.starts_with("rm xxx") && shown.ends_with("; curl evil"), "{shown}");
        assert!(
            shown.contains(&format!(" [{} of {} characters are not shown] ", text.len() - 300, text.len())),
            "{shown}"
        );
        assert_eq!(cut("short", 5), "short");
        assert!(cut(&"ü\n".repeat(200), 90).contains("\n[310 of 400 characters are not shown]\n"));
    }

    #[test]
    fn rows_have_a_common_limit() {
        let mut rows = Rows::default();
        for _ in 0..9 {
            rows.add("change", &"x".repeat(9000));
        }
        let text = rows.into_text();
        assert!(text.len() < ALL_CHARS + 2 * ROW_CHARS && text.ends_with("\nnot shown: 6 more rows"), "{}", text.len());
    }

    #[test]
    fn a_rows_text_cannot_pass_for_another_row() {
        let mut rows = Rows::default();
        rows.add("command", "true\nyes: Allow nothing\r\nasked by: you");
        rows.add("paths", " \n ");
        rows.add("url", "http://a/");
        let text = rows.into_text();
        assert_eq!(text, "command:\n  true\n  yes: Allow nothing\\u{d}\n  asked by: you\nurl: http://a/");
    }
}
