//! Columns of characters in a stream.

use crate::width;

/// Returns 2 for wide characters, else 1.
///
/// It has to say where a line wraps and which cell a `\b` returns to. Combining characters count as
/// one column, which puts the rest of a line that is edited in place one column off.
pub fn columns(character: char) -> usize {
    match u32::from(character) {
        // Nothing below is wide: most characters need no look at the table.
        0..0x1100 => 1,
        code if width::of(code) == 2 => 2,
        _ => 1,
    }
}
