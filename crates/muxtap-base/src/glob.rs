//! Patterns in which `*` stands for any run of characters.

/// A pattern, cut at its stars.
///
/// A match looks at each character of the text a bounded number of times, whatever the pattern:
/// parts are found from left to right, each where it stands first, and that choice is never taken
/// back. (Where a later one would do, the first does too: it leaves more text.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    /// The beginning of the text.
    head: Box<str>,
    /// Parts that stand in the text, in this order. None is empty.
    parts: Vec<Box<str>>,
    /// The end of the text; `None` without a star: then the head is all of it.
    tail: Option<Box<str>>,
    /// Bytes of all these.
    least: usize,
}

impl Glob {
    /// Compiles a pattern, in which `*` stands for any text.
    pub fn new(pattern: &str) -> Self {
        let mut parts = pattern.split('*');
        let head = parts.next().unwrap_or_default().into();
        let tail = parts.next_back().map(Into::into);
        let parts = parts.filter(|part| !part.is_empty()).map(Into::into).collect();
        let least = pattern.bytes().filter(|byte| *byte != b'*').count();
        Self { head, parts, tail, least }
    }

    /// Whether the pattern stands for the whole of `text`.
    pub fn matches(&self, text: &str) -> bool {
        let Some(tail) = self.tail.as_deref() else { return *text == *self.head };
        // Shorter texts end here, so that a long pattern costs nothing.
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

    /// Matches by the definition; takes for ever where stars are many.
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
        // Sixteen times as much of both. Trying every place of every star would take longer than the universe has
        // been there, looking at the whole text for each star 256 times as long.
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
