//! Splits a byte stream into lines: one message each, with a maximum length.

/// A line of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A complete line, without its newline.
    Whole(Vec<u8>),
    /// The beginning of an overlong line.
    ///
    /// Reported as soon as the limit is passed; the rest of the line is skipped.
    TooLong(Vec<u8>),
}

/// A splitter that stores at most one line of at most `limit` bytes.
#[derive(Debug)]
pub(super) struct Lines {
    limit: usize,
    open: Vec<u8>,
    /// Whether the rest of an overlong line is being skipped.
    skipping: bool,
}

/// The reported length of an overlong line, in bytes: enough to recognize the message.
const HEAD_BYTES: usize = 512;
/// The buffer capacity that is kept after a line was taken out of it, in bytes.
const KEPT_BYTES: usize = 64 << 10;

impl Lines {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, open: Vec::new(), skipping: false }
    }

    /// Continues within a line: with its beginning, or skipping the rest of an overlong one.
    pub(super) fn within(limit: usize, open: Vec<u8>, skipping: bool) -> Self {
        Self { limit, open, skipping }
    }

    /// Returns the unfinished line, and whether the rest of an overlong one is being skipped.
    pub(super) fn unfinished(&self) -> (&[u8], bool) {
        (&self.open, self.skipping)
    }

    /// Processes bytes, and passes on each line that they complete. Empty lines are skipped.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut line: impl FnMut(Line)) {
        while let Some((head, rest)) = memchr::memchr(b'\n', bytes).and_then(|end| bytes.split_at_checked(end)) {
            bytes = rest.get(1..).unwrap_or_default();
            if !std::mem::take(&mut self.skipping) && self.push(head, &mut line) {
                let mut whole = std::mem::take(&mut self.open);
                if whole.last() == Some(&b'\r') {
                    whole.pop();
                }
                if !whole.is_empty() {
                    line(Line::Whole(whole));
                }
            }
            // An overlong line that has just ended needs no more skipping.
            self.skipping = false;
        }
        if !self.skipping {
            self.push(bytes, &mut line);
        }
    }

    /// Returns whether a line is unfinished.
    pub(super) fn is_open(&self) -> bool {
        self.skipping || !self.open.is_empty()
    }

    /// Adds to the open line. `false`: it exceeds the limit and was given up.
    fn push(&mut self, bytes: &[u8], line: &mut impl FnMut(Line)) -> bool {
        if self.open.len() + bytes.len() <= self.limit {
            self.open.extend_from_slice(bytes);
            return true;
        }
        let mut head = std::mem::take(&mut self.open);
        head.truncate(HEAD_BYTES);
        head.extend(bytes.iter().take(HEAD_BYTES.saturating_sub(head.len())));
        head.shrink_to(KEPT_BYTES);
        self.skipping = true;
        line(Line::TooLong(head));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(limit: usize, chunks: &[&[u8]]) -> (Vec<Line>, bool) {
        let (mut lines, mut found) = (Lines::new(limit), Vec::new());
        for chunk in chunks {
            lines.feed(chunk, |line| found.push(line));
            assert!(lines.open.len() <= limit);
        }
        (found, lines.is_open())
    }

    fn whole(text: &str) -> Line {
        Line::Whole(text.into())
    }

    #[test]
    fn where_the_stream_is_cut_makes_no_difference() {
        let stream = b"{\"a\":1}\n\n\r\nlonger than ten bytes\nsecond\r\nhalf";
        let expected = vec![whole("{\"a\":1}"), Line::TooLong(Vec::new()), whole("second")];
        for cut in 0..=stream.len() {
            let (one, two) = stream.split_at(cut);
            let (found, open) = lines(10, &[one, two]);
            let kinds: Vec<_> = found
                .into_iter()
                .map(|line| match line {
                    Line::TooLong(head) => {
                        assert!(b"longer than ten bytes".starts_with(&head) && head.len() <= 21, "{head:?}");
                        Line::TooLong(Vec::new())
                    }
                    line @ Line::Whole(_) => line,
                })
                .collect();
            assert_eq!((kinds, open), (expected.clone(), true), "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(lines(10, &bytes).0.len(), 3);
    }

    #[test]
    fn a_line_of_64_mib_is_rejected_at_the_limit_and_not_buffered() {
        let mut lines = Lines::new(1 << 20);
        let (chunk, mut refused, mut fed) = (vec![b'x'; 64 << 10], 0, 0);
        // And one line beyond that length: its bytes are not counted.
        while fed < 80 << 20 {
            lines.feed(&chunk, |line| {
                assert!(matches!(line, Line::TooLong(head) if head.len() == HEAD_BYTES));
                refused = fed;
            });
            fed += chunk.len();
            assert!(lines.open.capacity() <= 2 << 20);
        }
        assert_eq!(refused, 1 << 20);
        let mut found = Vec::new();
        lines.feed(b"tail\nnext\n", |line| found.push(line));
        assert_eq!(found, [whole("next")]);
    }
}
