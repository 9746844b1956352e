//! Replies that carry pane text, bracketed by nonces so that no pane can forge their end (F13).
//!
//! A frame is two lines. The first runs its commands A, B … with a nonce printed before, between and after them:
//!
//! ```text
//! display-message -p N0 ; A ; display-message -p N1 ; B ; display-message -p N2
//! display-message -p NEND
//! ```
//!
//! tmux answers one block for each command of a line, in one go. Between the block of a nonce and the block of the
//! next, every line is body, whatever it looks like. When a command fails, tmux drops the rest of the first line, but the
//! second always runs, so its nonce says that nothing more will come. A nonce is a keyed hash: it depends on the
//! frame and the place, and cannot be guessed from others.
//!
//! [`framed`] tells the codec, over the [`FrameKey`] that both hold, that a frame is under way and how many parts it has.

use super::command::{Command, CommandError, render};
use bytes::Bytes;
use std::{
    collections::VecDeque,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Most commands in one frame.
pub const MAX_PARTS: usize = 64;

/// A nonce's text: `mt` and 16 hexadecimal digits. Nothing in it is special to formats, strftime (F16) or quoting.
pub(super) type Nonce = [u8; 18];

/// The answer to [`framed`] commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The number that the frame was sent with.
    pub seq: u64,
    /// The bodies of the commands that succeeded, in order, each line with its `\n`.
    pub parts: Vec<Bytes>,
    /// The error text of the command that failed, with its `\n`; it is the one after those in `parts`. Where tmux could not
    /// even parse the line, `parts` is empty and nothing of the frame ran.
    pub error: Option<Bytes>,
}

/// A frame that was sent and not yet answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) seq: u64,
    pub(super) parts: usize,
}

/// What the two ends of one connection share: the secret behind the nonces, and the frames under way. Make one for each
/// connection; clones are the same key.
#[derive(Clone)]
pub struct FrameKey {
    secret: RandomState,
    pending: Arc<Mutex<VecDeque<Pending>>>,
}

impl FrameKey {
    /// A key with a secret from the operating system.
    pub fn new() -> Self {
        Self { secret: RandomState::new(), pending: Arc::default() }
    }

    /// The nonce in front of part `place`, counted from 0; `place` = number of parts is the one behind the last.
    pub(super) fn nonce(&self, seq: u64, place: usize) -> Nonce {
        self.hashed(&(seq, Some(place)))
    }

    /// The nonce of a frame's second line.
    pub(super) fn end_nonce(&self, seq: u64) -> Nonce {
        self.hashed(&(seq, None))
    }

    fn hashed(&self, place: &(u64, Option<usize>)) -> Nonce {
        let mut nonce = *b"mt0000000000000000";
        let digits = format!("{:016x}", self.secret.hash_one(place));
        for (slot, digit) in nonce.iter_mut().skip(2).zip(digits.bytes()) {
            *slot = digit;
        }
        nonce
    }

    /// The frame whose answer comes next.
    pub(super) fn next(&self) -> Option<Pending> {
        self.queue().front().copied()
    }

    /// The next frame was answered in full.
    pub(super) fn done(&self) {
        self.queue().pop_front();
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Pending>> {
        // A queue of plain numbers is right even if a thread died while it held the lock.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for FrameKey {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for FrameKey {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameKey").field("pending", &*self.queue()).finish_non_exhaustive()
    }
}

/// The bytes that run `commands` as frame `seq`; the codec answers with one [`Frame`] of that number.
///
/// Frames must be sent in the order in which this function was called, and each must be sent: the codec expects their
/// answers in that order. On an error nothing is expected. `seq` is the caller's; each may be used once on a connection.
pub fn framed(key: &FrameKey, seq: u64, commands: &[Command]) -> Result<Vec<u8>, CommandError> {
    if commands.is_empty() {
        return Err(CommandError::Empty);
    }
    if commands.len() > MAX_PARTS {
        return Err(CommandError::TooManyParts);
    }
    let mut line = Vec::with_capacity(commands.len() * 2 + 1);
    for (place, command) in commands.iter().enumerate() {
        line.push(print(key.nonce(seq, place)));
        line.push(command.clone());
    }
    line.push(print(key.nonce(seq, commands.len())));
    let mut bytes = render(&line)?;
    bytes.extend(print(key.end_nonce(seq)).line()?);
    key.queue().push_back(Pending { seq, parts: commands.len() });
    Ok(bytes)
}

fn print(nonce: Nonce) -> Command {
    Command::new("display-message").flag("-p").arg(nonce)
}
