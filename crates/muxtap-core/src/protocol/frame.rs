//! Replies that contain pane text, bracketed by nonces that keep a pane from forging their end
//! (F13).
//!
//! A frame is two lines. The first runs its commands A, B … and prints a nonce before, between and
//! after them:
//!
//! ```text
//! display-message -p N0 ; A ; display-message -p N1 ; B ; display-message -p N2
//! display-message -p NEND
//! ```
//!
//! tmux sends one block for each command of a line, in one go. Between the block of a nonce and the
//! block of the next, every line is body, whatever it looks like. When a command fails, tmux drops
//! the rest of the first line, but the second always runs, so its nonce marks the end of the frame.
//! A nonce is a keyed hash of the frame and the place, and cannot be guessed from other nonces.
//!
//! [`framed`] registers with the codec, over the [`FrameKey`] that both hold, that a frame is in
//! flight and how many parts it has.

use super::command::{Command, CommandError, render};
use bytes::Bytes;
use std::{
    collections::VecDeque,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The maximum number of commands in one frame.
pub const MAX_PARTS: usize = 64;

/// The text of a nonce: `mt` and 16 hexadecimal digits. No character of it is special to formats,
/// strftime (F16) or quoting.
pub(super) type Nonce = [u8; 18];

/// The reply to [`framed`] commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The number with which the frame was sent.
    pub seq: u64,
    /// The bodies of the commands that succeeded, in order, each line with its `\n`.
    pub parts: Vec<Bytes>,
    /// The error text of the failed command, with its `\n`; that command is the one after those in
    /// `parts`. Where tmux could not parse the line, `parts` is empty and no command of the frame
    /// ran.
    pub error: Option<Bytes>,
}

/// A frame that was sent and has no reply yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) seq: u64,
    pub(super) parts: usize,
}

/// The key that the two ends of one connection share: the secret for the nonces, and the frames in
/// flight. Make one for each connection; clones are the same key.
#[derive(Clone)]
pub struct FrameKey {
    secret: RandomState,
    pending: Arc<Mutex<VecDeque<Pending>>>,
}

impl FrameKey {
    /// Makes a key with a secret from the operating system.
    pub fn new() -> Self {
        Self { secret: RandomState::new(), pending: Arc::default() }
    }

    /// Returns the nonce before part `place`, counted from 0; if `place` is the number of parts,
    /// the nonce after the last part.
    pub(super) fn nonce(&self, seq: u64, place: usize) -> Nonce {
        self.hashed(&(seq, Some(place)))
    }

    /// Returns the nonce of a frame's second line.
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

    /// Returns the frame whose reply comes next.
    pub(super) fn next(&self) -> Option<Pending> {
        self.queue().front().copied()
    }

    /// Removes the next frame, whose reply is complete.
    pub(super) fn done(&self) {
        self.queue().pop_front();
    }

    /// Removes the frame `seq`, which was withdrawn before tmux read any of it: no reply to it will
    /// come.
    pub fn forget(&self, seq: u64) {
        self.queue().retain(|pending| pending.seq != seq);
    }

    /// Returns an independent copy with the same secret and the frames in flight: for decoding the
    /// same stream twice.
    pub fn snapshot(&self) -> Self {
        Self { secret: self.secret.clone(), pending: Arc::new(Mutex::new(self.queue().clone())) }
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Pending>> {
        // A queue of plain numbers is valid even if a thread panicked while it held the lock.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for FrameKey {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for FrameKey {
    /// Omits the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameKey").field("pending", &*self.queue()).finish_non_exhaustive()
    }
}

/// Returns the bytes that run `commands` as frame `seq`; the codec yields one [`Frame`] with that
/// number.
///
/// Send every frame, in the order of the calls of this function, and without waiting for a reply in
/// between. The codec expects their replies in that order. While a frame is expected, it holds a
/// failed bare reply back until the next block, since that reply may be tmux's parse error for the
/// frame. Call this function where the bytes are written. After an error, the codec expects no
/// frame. The caller chooses `seq` and uses each number once on a connection.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn text(nonce: Nonce) -> String {
        String::from_utf8(nonce.to_vec()).unwrap()
    }

    #[test]
    fn a_frame_is_a_line_with_nonces_around_its_commands_and_a_line_that_always_runs() {
        let key = FrameKey::new();
        let commands = [Command::new("capture-pane").flag("-p").opt("-t", "%1"), Command::new("list-panes")];
        let bytes = framed(&key, 7, &commands).unwrap();
        let [n0, n1, n2] = [0, 1, 2].map(|place| text(key.nonce(7, place)));
        let end = text(key.end_nonce(7));
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            format!(
                "display-messag -p {n0} ; capture-pan -p -t \"%1\" ; display-messag -p {n1} ; list-pan ; \
                 display-messag -p {n2}\ndisplay-messag -p {end}\n"
            )
        );
        assert_eq!(key.next(), Some(Pending { seq: 7, parts: 2 }));
    }

    #[test]
    fn nonces_differ_by_frame_place_and_key() {
        let (key, other) = (FrameKey::new(), FrameKey::new());
        let mut nonces = std::collections::HashSet::new();
        for key in [&key, &other] {
            for seq in 0..20 {
                nonces.insert(key.end_nonce(seq));
                nonces.extend((0..20).map(|place| key.nonce(seq, place)));
            }
        }
        assert_eq!(nonces.len(), 2 * 20 * 21);
        assert_eq!(key.nonce(3, 1), key.clone().nonce(3, 1), "clones are the same key");
        assert!(nonces.iter().all(|nonce| nonce.iter().all(u8::is_ascii_alphanumeric)));
        assert!(!format!("{key:?}").contains("secret"));
    }

    #[test]
    fn a_frame_that_cannot_be_sent_expects_no_reply() {
        let key = FrameKey::new();
        assert_eq!(framed(&key, 0, &[]), Err(CommandError::Empty));
        assert_eq!(framed(&key, 0, &[Command::new("x").arg("\0")]), Err(CommandError::Nul));
        assert_eq!(framed(&key, 0, &vec![Command::new("x"); MAX_PARTS + 1]), Err(CommandError::TooManyParts));
        assert_eq!(key.next(), None);
    }
}
