//! The responses that a workspace remembers by their keys.

use std::{collections::VecDeque, time::Duration};

use muxtap_api::{Error, Result};
use serde::{Deserialize, Serialize};

use super::Applied;

/// The maximum number of remembered responses; one more replaces the oldest.
pub const ANSWERS: usize = 256;
/// How long a response is remembered.
pub const ANSWER_TIME: Duration = Duration::from_secs(600);
/// The maximum length of a key, in bytes.
pub const KEY_BYTES: usize = 128;

/// The last responses, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Answers(VecDeque<Answer>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    /// The device that sent the request: two callers' equal keys are different keys.
    caller: String,
    key: String,
    at: u64,
    applied: Applied,
}

impl Answers {
    /// Returns the first response to a caller's key.
    pub fn get(&self, caller: &str, key: &str, now_ms: u64) -> Option<&Applied> {
        let fits = |answer: &&Answer| answer.caller == caller && answer.key == key && !is_old(answer, now_ms);
        self.0.iter().find(fits).map(|answer| &answer.applied)
    }

    /// Remembers a response.
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

/// Checks a key. Error: `INVALID_ARGUMENT` if it is empty or too long.
pub fn check_key(key: &str) -> Result<()> {
    if key.is_empty() || key.len() > KEY_BYTES || key.chars().any(char::is_control) {
        return Err(Error::invalid(format!("idempotencyKey: expected 1 to {KEY_BYTES} visible bytes")));
    }
    Ok(())
}
