//! Sanitizing of foreign text (a pane's output, names, titles, paths) for the reader's terminal.
//!
//! Sanitized text has no characters that make a terminal act: controls (C0, DEL, C1), and those
//! that change a line's display order or end it (bidirectional marks, embeddings, overrides and
//! isolates, U+2028, U+2029).

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, Write},
};

/// Returns whether a terminal may act on this character instead of showing it.
pub fn controls(character: char) -> bool {
    character.is_control() || reorders(character)
}

fn reorders(character: char) -> bool {
    matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}'
    )
}

fn is_layout(character: char) -> bool {
    matches!(character, '\n' | '\t')
}

/// Returns whether the text needs no search: all bytes are printable ASCII, line ends or tabs.
fn is_simple(text: &[u8]) -> bool {
    text.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t'))
}

/// Returns a pane's text without characters that control a terminal; line ends and tabs stay.
pub fn text(text: &str) -> Cow<'_, str> {
    let dropped = |character: char| controls(character) && !is_layout(character);
    if is_simple(text.as_bytes()) || !text.contains(dropped) {
        return text.into();
    }
    text.chars().filter(|character| !dropped(*character)).collect::<String>().into()
}

/// Returns a name, title or path as one line: a character that controls a terminal becomes
/// `\u{1b}`, a line end `\n`.
pub fn name(name: &str) -> Cow<'_, str> {
    shown(name, controls)
}

/// Returns a message of several lines, with characters that control a terminal shown as in
/// [`name`].
pub fn message(message: &str) -> Cow<'_, str> {
    shown(message, |character| controls(character) && !is_layout(character))
}

fn shown(text: &str, escapes: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&escapes) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if escapes(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown.into()
}

/// Returns JSON with the same values and no characters that control a terminal: serde escapes only
/// C0 controls.
pub fn json(json: &str) -> Cow<'_, str> {
    if json.is_ascii() && !json.contains('\u{7f}') || !json.contains(is_escaped) {
        return json.into();
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if is_escaped(character) {
            // Writing to a String cannot fail. All of these characters are at most U+FFFF.
            let _ = write!(escaped, "\\u{:04x}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    escaped.into()
}

/// Returns whether the character can occur in JSON only within a string. (C0 controls outside of
/// one are its layout.)
fn is_escaped(character: char) -> bool {
    character >= '\u{7f}' && controls(character)
}

/// A log writer that writes each record as one line, with names as [`name`] shows them.
pub struct Records<W>(pub W);

impl<W: Write> Write for Records<W> {
    /// Writes one record with its line end, as `tracing_subscriber` passes it.
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(record.strip_suffix(b"\n").unwrap_or(record));
        let mut line = name(&text).into_owned();
        line.push('\n');
        self.0.write_all(line.as_bytes())?;
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A log writer for records in JSON: each stays the same JSON, escaped as by [`json`].
pub struct JsonRecords<W>(pub W);

impl<W: Write> Write for JsonRecords<W> {
    /// Writes one record with its line end, as `tracing_subscriber` passes it.
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        self.0.write_all(json(&String::from_utf8_lossy(record)).as_bytes())?;
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\u{1b}]0;x\u{7}\u{7f}\u{9b}31m\u{202e}b\u{2066}\u{200f}\u{2028}\r\n\tü\u{200d}\u{feff}";

    #[test]
    fn a_panes_text_loses_what_controls_a_terminal() {
        assert_eq!(text(HOSTILE), "a]0;x31mb\n\tü\u{200d}\u{feff}");
        assert!(matches!(text("plain\n\ttext"), Cow::Borrowed(_)));
        assert!(matches!(text("größe"), Cow::Borrowed(_)));
    }

    #[test]
    fn names_and_messages_escape_control_and_bidi_characters() {
        let shown = r"a\u{1b}]0;x\u{7}\u{7f}\u{9b}31m\u{202e}b\u{2066}\u{200f}\u{2028}\r";
        assert_eq!(name(HOSTILE), format!("{shown}\\n\\tü\u{200d}\u{feff}"));
        assert_eq!(message(HOSTILE), format!("{shown}\n\tü\u{200d}\u{feff}"));
    }

    #[test]
    fn json_stays_what_it_was() {
        let value = serde_json::json!({ HOSTILE: [HOSTILE, "größe"] });
        for line in [serde_json::to_string(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap()] {
            let harmless = json(&line);
            assert!(!harmless.chars().any(|c| controls(c) && c != '\n'), "{harmless:?}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&harmless).unwrap(), value);
        }
        assert!(matches!(json(r#"{"a":"ü"}"#), Cow::Borrowed(_)));
    }

    #[test]
    fn a_log_record_is_one_line() {
        let mut log = Records(Vec::new());
        log.write_all("INFO path=/tmp/a\nINFO forged \u{1b}[2J\u{202e}\n".as_bytes()).unwrap();
        assert_eq!(String::from_utf8(log.0).unwrap(), "INFO path=/tmp/a\\nINFO forged \\u{1b}[2J\\u{202e}\n");
    }

    #[test]
    fn a_log_record_in_json_stays_json() {
        let value = serde_json::json!({ "message": format!("{HOSTILE}\u{1f600}") });
        let mut log = JsonRecords(Vec::new());
        log.write_all(format!("{value}\n").as_bytes()).unwrap();
        let written = String::from_utf8(log.0).unwrap();
        let line = written.strip_suffix('\n').unwrap();
        assert!(!line.contains(controls) && line.contains(r"\u202e"), "{line:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(line).unwrap(), value);
    }
}
