//! Columns of characters.

/// Returns 2 for East Asian wide characters and emoji, else 1.
///
/// A table of the wide blocks and not of each character: it only has to say where a line wraps and
/// which cell a `\b` returns to. Combining characters count as one column, which puts the rest of a
/// line that is edited in place one column off.
pub fn columns(character: char) -> usize {
    let wide = match u32::from(character) {
        0..0x1100 => false,
        code => matches!(
            code,
            0x1100..=0x115f
                | 0x231a..=0x231b
                | 0x2329..=0x232a
                | 0x23e9..=0x23ec
                | 0x2614..=0x2615
                | 0x2648..=0x2653
                | 0x26a1
                | 0x2705
                | 0x2728
                | 0x274c
                | 0x274e
                | 0x2753..=0x2755
                | 0x2795..=0x2797
                | 0x2b1b..=0x2b1c
                | 0x2b50
                | 0x2e80..=0x303e
                | 0x3041..=0x4dbf
                | 0x4e00..=0xa4cf
                | 0xa960..=0xa97f
                | 0xac00..=0xd7a3
                | 0xf900..=0xfaff
                | 0xfe10..=0xfe19
                | 0xfe30..=0xfe6f
                | 0xff00..=0xff60
                | 0xffe0..=0xffe6
                | 0x1f300..=0x1f64f
                | 0x1f680..=0x1f6ff
                | 0x1f900..=0x1faff
                | 0x20000..=0x3fffd
        ),
    };
    if wide { 2 } else { 1 }
}
