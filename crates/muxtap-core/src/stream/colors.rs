//! The text of a read with its colors.

/// Returns a text with the colors of the bytes that printed it. `None`: without its escape sequences
/// the output is another text, because it moved the cursor.
pub fn colored(bytes: &[u8], text: &str) -> Option<String> {
    let output = String::from_utf8_lossy(bytes);
    let (mut colored, mut plain) = (String::with_capacity(output.len()), String::with_capacity(text.len()));
    let mut is_colored = false;
    let mut rest = output.as_ref();
    while let Some(at) = rest.find(|c: char| c.is_control() && !matches!(c, '\n' | '\t')) {
        let (before, from) = rest.split_at(at);
        colored.push_str(before);
        plain.push_str(before);
        let sequence = sequence_length(from.as_bytes());
        let (sequence, behind) = from.split_at_checked(sequence)?;
        if let Some(parameters) = sequence.strip_prefix("\x1b[").and_then(|sequence| sequence.strip_suffix('m'))
            && parameters.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b';' | b':'))
        {
            colored.push_str(sequence);
            is_colored = !parameters.is_empty() && parameters != "0";
        }
        rest = behind;
    }
    colored.push_str(rest);
    plain.push_str(rest);
    if is_colored {
        colored.push_str("\x1b[0m");
    }
    (plain == text).then_some(colored)
}

/// Returns the length of the control character or escape sequence (ECMA-48) at the beginning.
fn sequence_length(bytes: &[u8]) -> usize {
    let until = |from: usize, is_last: fn(&u8) -> bool| {
        bytes.iter().skip(from).position(is_last).map_or(bytes.len(), |at| from + at + 1)
    };
    match bytes {
        [0x1b, b'[', ..] => until(2, |byte| matches!(byte, 0x40..=0x7e)),
        // A string ends with BEL, or with ESC and a backslash.
        [0x1b, b']' | b'P' | b'_' | b'^' | b'X', ..] => {
            let end = until(2, |byte| matches!(byte, 0x07 | 0x1b));
            end + usize::from(bytes.get(end) == Some(&b'\\'))
        }
        [0x1b, ..] => until(1, |byte| matches!(byte, 0x30..=0x7e)),
        // A control character of two bytes in UTF-8.
        [0xc2, _, ..] => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::render::render_bytes;

    fn of(bytes: &str) -> Option<String> {
        colored(bytes.as_bytes(), &render_bytes(bytes.as_bytes()))
    }

    #[test]
    fn colors_stay_and_every_other_sequence_goes() {
        for (output, expected) in [
            ("plain\r\n", "plain\n"),
            ("\x1b[31mred\x1b[0m\r\n", "\x1b[31mred\x1b[0m\n"),
            ("\x1b[38;5;9mü\x1b[m \x1b[4:3mx", "\x1b[38;5;9mü\x1b[m \x1b[4:3mx\x1b[0m"),
            ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x07\x0e", "link"),
            ("\x1b[>4;1m\x1b[?25lcursor\x1b(B", "cursor"),
            ("\x1bP1$r0m\x1b\\x", "x"),
        ] {
            assert_eq!(of(output).as_deref(), Some(expected), "{output:?}");
        }
    }

    #[test]
    fn output_that_moves_the_cursor_has_no_colors() {
        for output in ["\x1b[31m10%\r100%\n", "\x1b[31ma\x1b[3Db", "a\x08b", "\x1b[1A\x1b[2Kx\x1b[1Gy"] {
            assert_eq!(of(output), None, "{output:?}");
        }
    }
}
