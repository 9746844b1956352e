//! The answers that a workspace remembers by their keys.

use std::{collections::VecDeque, time::Duration};

use muxtap_api::{Error, Result};
use serde::{Deserialize, Serialize};

use super::Applied;

/// Answers that are remembered; of more, the oldest go.
pub const ANSWERS: usize = 256;
/// How long an answer is remembered.
pub const ANSWER_TIME: Duration = Duration::from_secs(600);
/// Bytes of a key.
pub const KEY_BYTES: usize = 128;

/// The last answers, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Answers(VecDeque<Answer>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    /// The device that asked: keys of two callers are two keys.
    caller: String,
    key: String,
    at: u64,
    applied: Applied,
}

impl Answers {
    /// Returns the first answer to a caller's key.
    pub fn get(&self, caller: &str, key: &str, now_ms: u64) -> Option<&Applied> {
        let fits = |answer: &&Answer| answer.caller == caller && answer.key == key && !is_old(answer, now_ms);
        self.0.iter().find(fits).map(|answer| &answer.applied)
    }

    /// Remembers an answer.
    pub fn remember(&mut self, caller: &str, key: &str, now_ms: u64, applied: Applied) {
        self.0.retain(|answer| !is_old(answer, now_ms));
        while self.0.len() >= ANSWERS {
            self.0.pop_front();
        }
        self.0.push_back(Answer { caller: caller.to_owned(), key: key.to_owned(), at: now_ms, applied });
    }
}

fn is_old(answer: &Answer, now_ms: u64) -> bool {
    u128::from(now_ms.saturating_sub(answer.at)) > ANSWER_TIME.as_millis()
}

/// Error: `INVALID_ARGUMENT` for a key that is empty or too long.
pub fn check_key(key: &str) -> Result<()> {
    if key.is_empty() || key.len() > KEY_BYTES || key.chars().any(char::is_control) {
        return Err(Error::invalid(format!("idempotencyKey: expected 1 to {KEY_BYTES} visible bytes")));
    }
    Ok(())
}
