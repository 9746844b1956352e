//! One line of the wire, parsed without its newline.

use super::{field::after_colon, guard::Guard, ids::PaneId, notification::Notification};

/// A line from tmux. Pane output is borrowed and still encoded (see [`super::octal`]); the rest is
/// owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// `%output %P DATA` (F20).
    Output {
        /// The pane that printed.
        pane: PaneId,
        /// The output, octal-encoded.
        data: &'a [u8],
    },
    /// `%extended-output %P AGE … : DATA` (F20), in place of `%output` while `pause-after` is set.
    ExtendedOutput {
        /// The pane that printed.
        pane: PaneId,
        /// The time for which the data waited in the server, in milliseconds.
        age_ms: u64,
        /// The output, octal-encoded.
        data: &'a [u8],
    },
    /// `%begin`: a block opens.
    Begin(Guard),
    /// `%end`: a block ends, its command succeeded.
    End(Guard),
    /// `%error`: a block ends, its command failed.
    Error(Guard),
    /// Any other line that begins with `%` and a letter, [`Notification::Unknown`] included.
    Notification(Notification),
    /// A line of text: part of a block's body, or a stray (F12).
    Text(&'a [u8]),
}

/// Parses one line, given without its newline. Every line is a value, never an error.
pub fn parse_line(line: &[u8]) -> Line<'_> {
    if let Some(rest) = line.strip_prefix(b"%output %")
        && let Some((pane, data)) = output(rest)
    {
        return Line::Output { pane, data };
    }
    if !matches!(line, [b'%', letter, ..] if letter.is_ascii_alphabetic()) {
        return Line::Text(line);
    }
    structured(line).unwrap_or_else(|| Line::Notification(Notification::parse(line)))
}

/// Parses `P DATA`. Written by hand: nearly all of the traffic consists of this line.
#[inline]
fn output(rest: &[u8]) -> Option<(PaneId, &[u8])> {
    let (pane, rest) = decimal(rest)?;
    let data = rest.strip_prefix(b" ")?;
    Some((PaneId(u32::try_from(pane).ok()?), data))
}

/// The head of an output line: the fields before its data, and the position of the data.
pub(super) struct OutputHead {
    pub(super) pane: PaneId,
    pub(super) age_ms: Option<u64>,
    pub(super) data_at: usize,
}

/// Parses the head of an `%output` or `%extended-output` line.
#[inline]
pub(super) fn output_head(line: &[u8]) -> Option<OutputHead> {
    if let Some(rest) = line.strip_prefix(b"%output %") {
        let (pane, data) = output(rest)?;
        return Some(OutputHead { pane, age_ms: None, data_at: line.len() - data.len() });
    }
    let (pane, age_ms, data) = extended(line.strip_prefix(b"%extended-output %")?)?;
    Some(OutputHead { pane, age_ms: Some(age_ms), data_at: line.len() - data.len() })
}

/// Parses `P AGE … : DATA`.
fn extended(rest: &[u8]) -> Option<(PaneId, u64, &[u8])> {
    let (pane, rest) = decimal(rest)?;
    let (age_ms, rest) = decimal(rest.strip_prefix(b" ")?)?;
    if rest.first() != Some(&b' ') {
        return None;
    }
    Some((PaneId(u32::try_from(pane).ok()?), age_ms, after_colon(rest)?))
}

fn structured(line: &[u8]) -> Option<Line<'_>> {
    if let Some(rest) = line.strip_prefix(b"%extended-output %") {
        let (pane, age_ms, data) = extended(rest)?;
        return Some(Line::ExtendedOutput { pane, age_ms, data });
    }
    if let Some(rest) = line.strip_prefix(b"%begin ") {
        return Guard::parse(rest).map(Line::Begin);
    }
    if let Some(rest) = line.strip_prefix(b"%end ") {
        return Guard::parse(rest).map(Line::End);
    }
    if let Some(rest) = line.strip_prefix(b"%error ") {
        return Guard::parse(rest).map(Line::Error);
    }
    None
}

/// Returns the decimal number without a sign at the start, and the bytes after it.
#[inline]
fn decimal(input: &[u8]) -> Option<(u64, &[u8])> {
    let mut value: u64 = 0;
    let mut left = input;
    while let [digit @ b'0'..=b'9', rest @ ..] = left {
        value = value.checked_mul(10)?.checked_add(u64::from(digit & 0x0f))?;
        left = rest;
    }
    (left.len() < input.len()).then_some((value, left))
}

impl Line<'_> {
    /// Returns whether the line begins with a name that tmux uses and has valid arguments: inside
    /// an unframed block, such a line is a notification and not part of the body (F12).
    pub fn is_known(&self) -> bool {
        !matches!(self, Line::Text(_) | Line::Notification(Notification::Unknown(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ids::WindowId;

    #[test]
    fn an_output_line_parses_to_its_pane_and_still_encoded_data() {
        assert_eq!(parse_line(b"%output %12 a\\033 b"), Line::Output { pane: PaneId(12), data: b"a\\033 b" });
        assert_eq!(parse_line(b"%output %12 "), Line::Output { pane: PaneId(12), data: b"" });
        assert_eq!(
            parse_line(b"%extended-output %12 3000 : a : b"),
            Line::ExtendedOutput { pane: PaneId(12), age_ms: 3000, data: b"a : b" }
        );
        assert_eq!(
            parse_line(b"%extended-output %12 3000 x y=1 : "),
            Line::ExtendedOutput { pane: PaneId(12), age_ms: 3000, data: b"" },
            "fields of later versions are skipped"
        );
    }

    #[test]
    fn guards_open_and_close_blocks() {
        let guard = Guard { time: 5, number: 6, flags: 1 };
        assert_eq!(parse_line(b"%begin 5 6 1"), Line::Begin(guard));
        assert_eq!(parse_line(b"%end 5 6 1"), Line::End(guard));
        assert_eq!(parse_line(b"%error 5 6 1"), Line::Error(guard));
    }

    #[test]
    fn a_malformed_output_or_guard_line_parses_as_unknown() {
        for line in [
            &b"%output"[..],
            b"%output %",
            b"%output %1",
            b"%output 1 x",
            b"%output %4294967296 x",
            b"%output %99999999999999999999 x",
            b"%extended-output %1 x",
            b"%extended-output %1 : x",
            b"%extended-output %1 5x : x",
            b"%extended-output %1 5 :x",
            b"%begin",
            b"%begin 1 2",
            b"%end x",
        ] {
            let parsed = parse_line(line);
            assert!(!parsed.is_known());
            assert!(matches!(parsed, Line::Notification(Notification::Unknown(whole)) if whole == line));
        }
    }

    #[test]
    fn text_is_whatever_does_not_begin_with_a_name() {
        for line in [&b""[..], b"text", b" %output %1 x", b"%1", b"%%", b"%", b"\xff"] {
            assert_eq!(parse_line(line), Line::Text(line));
        }
        assert_eq!(parse_line(b"%window-add @1"), Line::Notification(Notification::WindowAdd(WindowId(1))));
        assert!(parse_line(b"%window-add @1").is_known());
        assert!(!parse_line(b"text").is_known());
    }
}
