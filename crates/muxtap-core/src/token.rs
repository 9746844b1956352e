//! Opaque tokens of numbers with check digits: cursors of things other than panes.

use crate::cursor::{base36, check};

/// Writes numbers as one token of letters, digits and dots that ends in check digits.
pub fn write(prefix: &str, numbers: &[u64]) -> String {
    let mut body = prefix.to_owned();
    for number in numbers {
        body.push('.');
        body.push_str(&base36(*number));
    }
    let digits = check(&body);
    body.push('.');
    body.push_str(&digits);
    body
}

/// Reads the numbers of a token; `None` for a token that [`write`] did not write.
pub fn read(prefix: &str, text: &str) -> Option<Vec<u64>> {
    let (body, _) = text.strip_prefix(prefix)?.strip_prefix('.')?.rsplit_once('.')?;
    let numbers: Option<Vec<u64>> = body.split('.').map(|part| u64::from_str_radix(part, 36).ok()).collect();
    numbers.filter(|numbers| write(prefix, numbers) == text)
}
