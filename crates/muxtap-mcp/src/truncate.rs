//! Truncation at the beginning: what came last is what a model needs first.

use muxtap_core::stream::render::text_end;

/// The default number of characters in a result's text.
pub const MAX_CHARS: usize = 4000;
/// The number of characters of a page that a result suggests for reading the rest.
pub const PAGE_CHARS: usize = 16_000;
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

/// Truncates a text to its last `most` characters, in whole lines if possible. `way` names how to get
/// the rest.
pub fn truncate_start(text: &str, most: Option<usize>, way: &str) -> Truncated {
    let most = most.unwrap_or(MAX_CHARS).clamp(100, MOST_CHARS);
    let (end, cut) = text_end(text, most);
    let text = if cut > 0 { format!("[… {cut} characters before this; {way} …]\n{end}") } else { end.to_owned() };
    Truncated { text, cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_whole_and_else_the_end_stays() {
        assert_eq!(truncate_start("abc", None, "x"), Truncated { text: "abc".into(), cut: 0 });
        let lines: Vec<String> = (0..1000).map(|number| format!("line {number}")).collect();
        let text = lines.join("\n");
        let some = truncate_start(&text, Some(400), "max_chars shows them");
        assert!(some.text.starts_with("[… ") && some.text.ends_with("\nline 999"), "{}", some.text);
        assert!(some.text.lines().next().unwrap().ends_with(" characters before this; max_chars shows them …]"));
        assert!(some.text.chars().count() < 470 && some.cut > 5000);
        // Whole lines only.
        assert!(some.text.lines().skip(1).all(|line| lines.contains(&line.to_owned())));
        let one = truncate_start(&"ä".repeat(1000), Some(100), "x");
        assert_eq!(one.cut, 900);
        let ended = truncate_start(&("ä".repeat(1000) + "\n"), Some(100), "x");
        assert!(ended.text.ends_with("ää\n"), "{}", ended.text);
    }
}
