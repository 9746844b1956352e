//! Columns of characters in a stream.

use crate::width;

/// Returns 2 for wide characters, otherwise 1.
///
/// The result determines where a line wraps and to which cell a `\b` returns. Combining characters
/// count as one column, which shifts the rest of a line that is edited in place by one column.
pub fn columns(character: char) -> usize {
    match u32::from(character) {
        // No character below is wide: most characters need no lookup in the table.
        0..0x1100 => 1,
        code if width::of(code) == 2 => 2,
        _ => 1,
    }
}
