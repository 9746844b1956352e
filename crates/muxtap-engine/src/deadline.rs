//! Deadlines of requests.

use std::time::Duration;

use muxtap_api::{Error, Result};
use tokio::time::Instant;

use super::limits;

/// The deadline of a request, counted from its arrival: finding the target is part of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    begun: Instant,
    given: Duration,
}

impl Deadline {
    pub(super) fn new(begun: Instant, given: Duration) -> Self {
        Self { begun, given }
    }

    /// Returns the time that the request may take in all.
    pub(super) fn given(self) -> Duration {
        self.given
    }

    /// Returns the time that is left.
    pub(super) fn remaining(self) -> Duration {
        self.given.saturating_sub(self.begun.elapsed())
    }

    /// Returns the time of the deadline. However short the timeout, tmux has
    /// [`limits::ANSWER_GRACE`] to reply.
    pub(super) fn at(self) -> Instant {
        self.begun + self.given.max(limits::ANSWER_GRACE)
    }

    /// Awaits a reply of tmux until the deadline. After that, the error says that tmux does not
    /// respond, and `so`. However short the timeout, tmux has [`limits::ANSWER_GRACE`] to reply.
    pub(super) async fn before<T>(self, so: &str, answer: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::time::timeout_at(self.at(), answer).await.unwrap_or_else(|_| {
            Err(Error::unavailable(format!(
                "tmux does not respond: after {} ms {so}; is the server stopped or overloaded?",
                self.begun.elapsed().as_millis()
            )))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muxtap_api::ErrorCode;

    fn asked(ago: u64, given: u64) -> Deadline {
        let begun = Instant::now().checked_sub(Duration::from_millis(ago)).unwrap();
        Deadline::new(begun, Duration::from_millis(given))
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_counts_from_when_it_was_asked() {
        let deadline = asked(1500, 2000);
        assert_eq!(deadline.at(), deadline.begun + Duration::from_secs(2));
        let error = deadline.before("nothing was done", std::future::pending::<Result<()>>()).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::TmuxUnavailable);
        assert!(error.message.contains("does not respond") && error.message.contains("nothing was done"));
        // The clock has advanced to that time and, apart from the timer's steps, no further.
        let late = Instant::now().checked_duration_since(deadline.at()).unwrap();
        assert!(late < Duration::from_millis(5), "{late:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_of_nothing_is_time_for_one_answer() {
        let answer = asked(0, 0).before("", async {
            tokio::time::sleep(limits::ANSWER_GRACE / 2).await;
            Ok(7)
        });
        assert_eq!(answer.await.unwrap(), 7);
        assert_eq!(asked(300, 200).remaining(), Duration::ZERO);
    }
}
