//! Messages that wait for a page to read them, and the memory that those of all pages may use.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use muxtap_api::{Error, ErrorCode, Result};

/// The maximum size of large responses that all pages together have requested and not read, in
/// bytes.
pub const PAGES_ANSWERS_BYTES: usize = 128 * 1024 * 1024;
/// The part of [`PAGES_ANSWERS_BYTES`] from which on read-only pages are refused further ones.
pub const READERS_ANSWERS_BYTES: usize = 64 * 1024 * 1024;
/// The maximum size of a response that is exempt from these budgets, in bytes.
pub const SMALL_ANSWER: usize = 64 * 1024;

/// The total size of the large responses of all pages, in bytes; clones share the count.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget(Arc<AtomicUsize>);

/// The size of one response in bytes, counted until it is dropped.
#[derive(Debug)]
pub struct Share {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

/// A response, or another message for a page.
#[derive(Debug)]
pub struct Answer {
    /// The message, as JSON.
    pub text: String,
    /// The response's part of the budget, to keep until the message is written.
    pub share: Option<Share>,
}

/// The waiting messages of one connection, in order.
#[derive(Debug, Default)]
pub(super) struct Answers {
    waiting: VecDeque<Answer>,
    bytes: usize,
}

impl Budget {
    /// Reserves bytes for a response before it is made. `None` for a small one.
    ///
    /// Error: `RESOURCE_LIMIT`.
    pub(super) fn hold(&self, bytes: usize, is_reader: bool) -> Result<Option<Share>> {
        if bytes <= SMALL_ANSWER {
            return Ok(None);
        }
        let most = if is_reader { READERS_ANSWERS_BYTES } else { PAGES_ANSWERS_BYTES };
        let with_it = |all: usize| all.checked_add(bytes).filter(|all| *all <= most);
        if self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_it).is_err() {
            let message = "too many large responses are unread; request less at once, or retry later";
            return Err(Error::new(ErrorCode::ResourceLimit, message));
        }
        Ok(Some(Share { all: self.0.clone(), bytes }))
    }
}

impl Share {
    /// Replaces the reserved size by the actual one.
    fn becomes(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.all.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            self.all.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Answer {
    /// Creates a response from its text and its reserved part of the budget.
    pub(super) fn of(text: String, mut share: Option<Share>) -> Self {
        if let Some(share) = &mut share {
            share.becomes(text.capacity());
        }
        Self { text, share }
    }
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Self { text, share: None }
    }
}

impl Answers {
    pub(super) fn push_back(&mut self, answer: impl Into<Answer>) {
        let answer = answer.into();
        self.bytes += answer.text.capacity();
        self.waiting.push_back(answer);
    }

    pub(super) fn pop_front(&mut self) -> Option<Answer> {
        let answer = self.waiting.pop_front()?;
        self.bytes = self.bytes.saturating_sub(answer.text.capacity());
        Some(answer)
    }

    /// Drops the messages that begin with this text.
    pub(super) fn drop_all(&mut self, beginning: &str) {
        self.waiting.retain(|answer| !answer.text.starts_with(beginning));
        self.bytes = self.waiting.iter().map(|answer| answer.text.capacity()).sum();
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the memory of all waiting messages, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_waiting_answers_are_counted_until_they_are_taken() {
        let mut answers = Answers::default();
        answers.push_back("x".repeat(1000));
        answers.push_back("y".repeat(500));
        assert!(answers.bytes() >= 1500 && answers.len() == 2);
        answers.drop_all("x");
        assert!((500..1000).contains(&answers.bytes()), "{}", answers.bytes());
        assert!(answers.pop_front().is_some_and(|answer| answer.text.starts_with('y')));
        assert!(answers.bytes() == 0 && answers.is_empty());
    }

    #[test]
    fn readers_leave_a_part_of_the_budget_to_pages_that_may_type() {
        let budget = Budget::default();
        assert!(budget.hold(SMALL_ANSWER, true).unwrap().is_none(), "a small one does not count");
        let readers = budget.hold(READERS_ANSWERS_BYTES, true).unwrap();
        let refused = budget.hold(SMALL_ANSWER + 1, true).unwrap_err();
        assert_eq!(refused.code, ErrorCode::ResourceLimit);
        let own = budget.hold(PAGES_ANSWERS_BYTES - READERS_ANSWERS_BYTES, false).unwrap();
        assert!(budget.hold(SMALL_ANSWER + 1, false).is_err());
        // The actual size replaces the reserved one.
        let made = Answer::of("made".into(), own);
        assert!(budget.hold(1_000_000, false).unwrap().is_some());
        drop((readers, made));
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }
}
