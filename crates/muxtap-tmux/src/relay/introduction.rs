//! A control client's introduction to a tmux server: its messages, and their harmless order.
//!
//! A server counts a client as a control client from its flags on, but only at the introduction's
//! end creates what is needed to notify it. Servers before 3.7 crash when they notify a client in
//! between (F36, F37). Introductions are read in any order, and the bytes of one read are processed
//! in one turn of the server's loop. So the flags go last, in one write with the end (F38).
//!
//! A descriptor comes along by `SCM_RIGHTS` (unix(7)) if a message's header is marked.

use std::collections::VecDeque;

use super::message::{Header, Malformed};

/// The maximum number of bytes of an introduction. It carries the client's environment, of which
/// Linux allows 6 MiB at most.
const LONGEST_INTRODUCTION: usize = 8 * 1024 * 1024;
/// The maximum number of descriptors of an introduction; tmux sends two.
const MOST_DESCRIPTORS: usize = 8;

/// `MSG_IDENTIFY_FLAGS`: from this message on the server counts the client as a control client.
const FLAGS: u32 = 100;
/// `MSG_IDENTIFY_LONGFLAGS`: the same flags in 64 bits.
const LONG_FLAGS: u32 = 111;
/// `MSG_IDENTIFY_DONE`: the introduction's end.
const DONE: u32 = 106;

/// Bytes for one write, with the descriptor that goes with their first one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Write<F> {
    pub(super) bytes: Vec<u8>,
    pub(super) descriptor: Option<F>,
}

/// The part of its introduction that a client has sent so far. `F` is a descriptor.
pub(super) struct Introduction<F> {
    /// Messages that carry no descriptor and no flags.
    plain: Vec<u8>,
    /// Messages that carry a descriptor.
    descriptors: Vec<Write<F>>,
    /// Messages that carry flags, then the end.
    last: Vec<u8>,
    is_done: bool,
    /// Bytes that do not form a whole message yet; all bytes after the end.
    rest: Vec<u8>,
    /// Descriptors that belong to no message yet.
    unclaimed: VecDeque<F>,
}

impl<F> Default for Introduction<F> {
    fn default() -> Self {
        Self {
            plain: Vec::new(),
            descriptors: Vec::new(),
            last: Vec::new(),
            is_done: false,
            rest: Vec::new(),
            unclaimed: VecDeque::new(),
        }
    }
}

impl<F> Introduction<F> {
    /// Takes received bytes and descriptors. Returns whether the introduction is complete.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        descriptors: impl IntoIterator<Item = F>,
    ) -> Result<bool, Malformed> {
        self.rest.extend_from_slice(bytes);
        self.unclaimed.extend(descriptors);
        let received = std::mem::take(&mut self.rest);
        let mut left = received.as_slice();
        while !self.is_done
            && let Some(header) = Header::read(left)?
            && let Some((message, after)) = left.split_at_checked(header.length)
        {
            self.sort(header, message)?;
            left = after;
        }
        self.rest = left.to_vec();
        let too_long = self.plain.len() + self.last.len() + self.rest.len() > LONGEST_INTRODUCTION;
        if too_long || self.descriptors.len() + self.unclaimed.len() > MOST_DESCRIPTORS {
            return Err(Malformed::TooLong);
        }
        Ok(self.is_done)
    }

    /// Sorts a message into its place.
    fn sort(&mut self, header: Header, message: &[u8]) -> Result<(), Malformed> {
        if matches!(header.kind, FLAGS | LONG_FLAGS | DONE) {
            self.last.extend_from_slice(message);
        } else if header.has_descriptor {
            let descriptor = self.unclaimed.pop_front().ok_or(Malformed::Descriptor)?;
            self.descriptors.push(Write { bytes: message.to_vec(), descriptor: Some(descriptor) });
        } else {
            self.plain.extend_from_slice(message);
        }
        self.is_done = header.kind == DONE;
        Ok(())
    }

    /// Returns the writes for the server, in this order.
    ///
    /// Messages with descriptors stand just before the last write: a read ends behind a descriptor,
    /// so the last write is read by itself and as a whole, however long the introduction is.
    pub(super) fn in_order(self) -> Vec<Write<F>> {
        let Self { plain, descriptors, mut last, rest, mut unclaimed, .. } = self;
        let mut writes = vec![Write { bytes: plain, descriptor: None }];
        writes.extend(descriptors);
        // tmux sends no descriptor behind the end. If it did, it would go with the bytes it came
        // with.
        let with = unclaimed.pop_front();
        if with.is_none() {
            last.extend_from_slice(&rest);
            writes.push(Write { bytes: last, descriptor: None });
        } else {
            writes.push(Write { bytes: last, descriptor: None });
            writes.push(Write { bytes: rest, descriptor: with });
        }
        writes.retain(|write| !write.bytes.is_empty());
        writes
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::message::{HEADER, LONGEST, message},
        *,
    };

    const TERM: u32 = 101;
    const STDIN: u32 = 104;
    const ENVIRON: u32 = 105;
    const STDOUT: u32 = 110;
    const COMMAND: u32 = 200;

    /// Returns the messages of a client in the order in which tmux sends them, with the descriptor
    /// of each.
    fn sent(mark: u16) -> Vec<(Vec<u8>, Option<&'static str>)> {
        vec![
            (message(FLAGS, 0, &[1; 4]), None),
            (message(LONG_FLAGS, 0, &[1; 8]), None),
            (message(TERM, 0, b"screen\0"), None),
            (message(STDIN, mark, b""), Some("stdin")),
            (message(STDOUT, mark, b""), Some("stdout")),
            (message(ENVIRON, 0, b"LANG=C\0"), None),
            (message(DONE, 0, b""), None),
            (message(COMMAND, 0, b"attach-session\0"), None),
        ]
    }

    fn expected(mark: u16) -> Vec<Write<&'static str>> {
        let of = |kinds: &[usize]| kinds.iter().flat_map(|at| sent(mark)[*at].0.clone()).collect();
        vec![
            Write { bytes: of(&[2, 5]), descriptor: None },
            Write { bytes: of(&[3]), descriptor: Some("stdin") },
            Write { bytes: of(&[4]), descriptor: Some("stdout") },
            Write { bytes: of(&[0, 1, 6, 7]), descriptor: None },
        ]
    }

    #[test]
    fn flags_and_end_come_last_in_one_write_behind_a_descriptor() {
        // 1: the mark up to 3.5a; the highest bit of the length from 3.6 on.
        for mark in [1, 0x8000] {
            let mut introduction = Introduction::default();
            let mut done = Vec::new();
            for (bytes, descriptor) in sent(mark) {
                done.push(introduction.receive(&bytes, descriptor).unwrap());
            }
            assert_eq!(done, [false, false, false, false, false, false, true, true]);
            assert_eq!(introduction.in_order(), expected(mark));
        }
    }

    #[test]
    fn messages_may_come_in_any_pieces() {
        let stream: Vec<u8> = sent(1).into_iter().flat_map(|(bytes, _)| bytes).collect();
        for size in [1, 3, 16, 17, 40, 1000] {
            let mut introduction = Introduction::default();
            let mut descriptors = vec!["stdin", "stdout"].into_iter();
            let mut done = false;
            for piece in stream.chunks(size) {
                // Descriptors come with the first byte of their message at the latest.
                done = introduction.receive(piece, descriptors.by_ref()).unwrap();
            }
            assert!(done);
            assert_eq!(introduction.in_order(), expected(1), "pieces of {size}");
        }
    }

    #[test]
    fn only_whole_introductions_are_complete() {
        let stream: Vec<u8> = sent(1).into_iter().take(7).flat_map(|(bytes, _)| bytes).collect();
        for length in 0..stream.len() {
            let mut introduction = Introduction::default();
            assert_eq!(introduction.receive(&stream[..length], ["stdin", "stdout"]), Ok(false), "{length} bytes");
        }
    }

    #[test]
    fn a_command_that_comes_in_part_goes_with_the_end() {
        let mut introduction = Introduction::default();
        let stream: Vec<u8> = sent(1).into_iter().flat_map(|(bytes, _)| bytes).collect();
        assert!(introduction.receive(&stream[..stream.len() - 5], ["stdin", "stdout"]).unwrap());
        let writes = introduction.in_order();
        assert_eq!(writes.iter().map(|write| write.bytes.len()).sum::<usize>(), stream.len() - 5);
        assert!(writes.last().unwrap().bytes.ends_with(b"attach-ses"));
    }

    #[test]
    fn what_cannot_be_an_introduction_is_refused() {
        let receive = |bytes: &[u8], descriptors: Vec<&'static str>| {
            Introduction::default().receive(bytes, descriptors).map(|_| ())
        };
        assert_eq!(receive(&[0; HEADER], vec![]), Err(Malformed::Length));
        assert_eq!(receive(&[255; HEADER], vec![]), Err(Malformed::Length));
        assert_eq!(receive(&message(STDIN, 1, b""), vec![]), Err(Malformed::Descriptor));
        assert_eq!(receive(&message(TERM, 0, b""), vec!["x"; MOST_DESCRIPTORS + 1]), Err(Malformed::TooLong));
        let mut endless = Introduction::<&str>::default();
        let environ = message(ENVIRON, 0, &[b'x'; LONGEST - HEADER]);
        let refused = (0..LONGEST_INTRODUCTION).find_map(|_| endless.receive(&environ, []).err());
        assert_eq!(refused, Some(Malformed::TooLong));
    }
}
