//! Patterns in which `*` stands for any characters.

/// A pattern, split at its stars.
///
/// A match looks at each character of the text a bounded number of times, whatever the pattern:
/// parts are found from left to right, each at its first occurrence, without backtracking. (If a
/// later occurrence would match, the first one does too: it leaves more text.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    /// The beginning of the text.
    head: Box<str>,
    /// The parts that occur in the text, in this order; each is nonempty.
    parts: Vec<Box<str>>,
    /// The end of the text; `None` without a star: the head is then the whole pattern.
    tail: Option<Box<str>>,
    /// The number of bytes of all parts together.
    least: usize,
}

impl Glob {
    /// Compiles a pattern, in which `*` stands for any characters.
    pub fn new(pattern: &str) -> Self {
        let mut parts = pattern.split('*');
        let head = parts.next().unwrap_or_default().into();
        let tail = parts.next_back().map(Into::into);
        let parts = parts.filter(|part| !part.is_empty()).map(Into::into).collect();
        let least = pattern.bytes().filter(|byte| *byte != b'*').count();
        Self { head, parts, tail, least }
    }

    /// Returns whether the pattern matches the whole of `text`.
    pub fn matches(&self, text: &str) -> bool {
        let Some(tail) = self.tail.as_deref() else { return *text == *self.head };
        // Shorter texts are rejected here, so a long pattern costs nothing.
        if text.len() < self.least {
            return false;
        }
        let Some(mut rest) = text.strip_prefix(&*self.head).and_then(|rest| rest.strip_suffix(tail)) else {
            return false;
        };
        self.parts.iter().all(|part| match rest.split_once(&**part) {
            Some((_, behind)) => {
                rest = behind;
                true
            }
            None => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn glob(pattern: &str, text: &str) -> bool {
        Glob::new(pattern).matches(text)
    }

    /// Matches by the definition; exponential in the number of stars.
    fn plainly(pattern: &str, text: &str) -> bool {
        match pattern.split_once('*') {
            None => pattern == text,
            Some((head, rest)) => text
                .strip_prefix(head)
                .is_some_and(|text| (0..=text.len()).filter_map(|at| text.get(at..)).any(|text| plainly(rest, text))),
        }
    }

    #[test]
    fn the_head_and_the_tail_do_not_overlap() {
        assert!(glob("a*a", "aa") && !glob("a*a", "a") && !glob("ab*ba", "aba") && glob("*", "") && glob("", ""));
    }

    #[test]
    fn stars_cost_no_more_than_the_text_is_long() {
        let cost = |times: usize| {
            let (stars, text) = ("*a".repeat(2_000 * times) + "*b", "a".repeat(20_000 * times));
            crate::clock::cost(|| {
                assert!(!glob(&stars, &text) && !glob(&stars, "aaaaaaaa") && glob(&stars, &format!("{text}b")));
            })
        };
        // Both are sixteen times as long. Backtracking over every star would take longer than the
        // age of the universe; a scan of the whole text for each star, 256 times as long.
        let (short, long) = (cost(1), cost(16));
        assert!(long < 64 * short, "{short:?}, {long:?}");
    }

    proptest! {
        #[test]
        fn it_means_what_it_says(pattern in "[ab*é]{0,8}", text in "[abé]{0,10}") {
            prop_assert_eq!(glob(&pattern, &text), plainly(&pattern, &text));
        }
    }
}
