//! Truncation in the middle: the beginning and end of a text stay.

/// The default number of characters in a result's text.
pub const MAX_CHARS: usize = 16_000;
/// The largest limit that a caller can set.
pub const MOST_CHARS: usize = 1_000_000;

/// A text that may have been cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// The remaining text.
    pub text: String,
    /// The number of characters that were cut out.
    pub cut: usize,
}

/// Truncates a text to its first quarter and last three quarters of `most` characters, in whole
/// lines if possible.
pub fn truncate_middle(text: &str, most: Option<usize>) -> Truncated {
    let most = most.unwrap_or(MAX_CHARS).clamp(100, MOST_CHARS);
    let count = text.chars().count();
    if count <= most {
        return Truncated { text: text.to_owned(), cut: 0 };
    }
    let at = |chars: usize| text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at);
    let (head, tail) = (at(most / 4), at(count - (most - most / 4)));
    let head = text.get(..head).unwrap_or_default();
    let tail = text.get(tail..).unwrap_or_default();
    // Whole lines, unless one is longer than the limit.
    let head = head.rsplit_once('\n').map_or(head, |(whole, _)| whole);
    let tail = tail.split_once('\n').filter(|(_, whole)| !whole.is_empty()).map_or(tail, |(_, whole)| whole);
    let cut = count - head.chars().count() - tail.chars().count();
    Truncated { text: format!("{head}\n[… {cut} characters cut …]\n{tail}"), cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_whole_and_else_both_ends_are_there() {
        assert_eq!(truncate_middle("abc", None), Truncated { text: "abc".into(), cut: 0 });
        let lines: Vec<String> = (0..1000).map(|number| format!("line {number}")).collect();
        let text = lines.join("\n");
        let some = truncate_middle(&text, Some(400));
        assert!(some.text.starts_with("line 0\n") && some.text.ends_with("line 999"), "{}", some.text);
        assert!(some.text.chars().count() < 450 && some.cut > 5000);
        // Whole lines only.
        assert!(some.text.lines().filter(|line| !line.starts_with('[')).all(|line| lines.contains(&line.to_owned())));
        let one = truncate_middle(&"ä".repeat(1000), Some(100));
        assert_eq!(one.cut, 900);
        let ended = truncate_middle(&("ä".repeat(1000) + "\n"), Some(100));
        assert!(ended.text.ends_with("ää\n"), "{}", ended.text);
    }
}
