//! The columns that a character occupies, according to the C library with which tmux runs.

mod table;

use table::RUNS;

/// Returns the columns that a text occupies in a terminal.
pub fn of_text(text: &str) -> usize {
    text.chars()
        .map(|character| match u32::from(character) {
            0x20..=0x7e => 1,
            ..0x80 => 0,
            character => usize::try_from(of(character)).unwrap_or(0),
        })
        .sum()
}

/// Returns the width of a character from U+0080 on: 0, 1 or 2, or -1 where the library has no
/// width.
///
/// tmux calls `wcwidth` of its own C library. This table is that of glibc 2.36 (Unicode 14), which
/// Debian's builds use. Another library differs in characters that are younger than its tables.
pub(crate) fn of(character: u32) -> i8 {
    match character {
        0..0x300 if character >= 0xa0 => return if character == 0xad { soft_hyphen() } else { 1 },
        0x2500..0x25fd => return 1,
        0x3041..=0x3096 | 0x4e00..0xa000 | 0xac00..=0xd7a3 => return 2,
        _ => {}
    }
    let after = RUNS.partition_point(|(start, _)| *start <= character);
    after.checked_sub(1).and_then(|at| RUNS.get(at)).map_or(1, |(_, width)| *width)
}

/// Returns whether a character is newer than this table's Unicode, or may have another width in a
/// later one.
pub(crate) fn is_young(character: u32) -> bool {
    const YOUNG: [std::ops::RangeInclusive<u32>; 6] =
        [0x2630..=0x2637, 0x268a..=0x268f, 0x31e4..=0x31ef, 0x4dc0..=0x4dff, 0x1_6fe0..=0x1_8dff, 0x1_d300..=0x1_d37f];
    YOUNG.iter().any(|range| range.contains(&character)) || of(character) < 0
}

/// Returns the width of U+00AD from the table: libraries disagree about it.
fn soft_hyphen() -> i8 {
    let after = RUNS.partition_point(|(start, _)| *start <= 0xad);
    after.checked_sub(1).and_then(|at| RUNS.get(at)).map_or(1, |(_, width)| *width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_what_the_library_says() {
        for (character, width) in [
            ('é', 1),
            ('\u{80}', -1),
            ('\u{9f}', -1),
            ('\u{301}', 0),
            ('\u{200d}', 0),
            ('─', 1),
            ('漢', 2),
            ('한', 2),
            ('あ', 2),
            ('😀', 2),
            ('\u{378}', -1),
            ('\u{fe0f}', 0),
        ] {
            assert_eq!(of(u32::from(character)), width, "{character:?}");
        }
    }

    #[test]
    fn the_shortcuts_say_what_the_table_says() {
        for character in 0x80..0x11_0000_u32 {
            let after = RUNS.partition_point(|(start, _)| *start <= character);
            assert_eq!(of(character), RUNS[after - 1].1, "{character:x}");
        }
    }
}
