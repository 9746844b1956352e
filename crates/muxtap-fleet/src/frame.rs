//! The frames of a link, as bytes: numbered, so that a message that NATS lost, repeated or
//! reordered is noticed; and credited, so that a sender never sends more than a reader can store.
//!
//! A frame is one NATS message: a byte for its kind, 8 bytes for its number (from 0, in each
//! direction), 8 bytes for the cost of all frames that its sender has taken so far, then the bytes.
//! Numbers are big-endian.

use std::fmt;

use bytes::{BufMut as _, Bytes, BytesMut};

/// The bytes before a frame's own.
pub const HEADER_BYTES: usize = 17;
/// The most bytes of data in a frame.
pub const DATA_BYTES: usize = 64 << 10;
/// The most that may be in flight in one direction: sent, and not yet taken by the reader.
pub const WINDOW: u64 = 1 << 20;
/// The least that a frame of data costs, so that a window holds a bounded number of frames.
const LEAST_COST: u64 = 256;
/// The cost of taken frames after which the sender is notified.
const TELL_AFTER: u64 = WINDOW / 4;

const DATA: u8 = 0;
const TAKEN: u8 = 1;
const END: u8 = 2;
const CUT: u8 = 3;

/// The content of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// The next bytes.
    Data(Bytes),
    /// The other side took frames: there may be room to send.
    Taken,
    /// No more bytes follow.
    End,
}

/// The reason why a link cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A frame is missing, or came twice or too early.
    Order {
        /// The number that was due.
        due: u64,
        /// The number that came.
        came: u64,
    },
    /// A message that is not a frame.
    Invalid,
    /// A frame is larger than [`DATA_BYTES`], or the window was exceeded.
    TooMuch,
    /// The other side has ended the link.
    Cut,
    /// The connection to NATS was lost.
    Disconnected,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order { due, came } if came > due => write!(f, "NATS lost {} of its messages", came - due),
            Self::Order { .. } => f.write_str("NATS repeated one of its messages"),
            Self::Invalid => f.write_str("it received a message that is not a frame"),
            Self::TooMuch => f.write_str("the other side sent more than it may"),
            Self::Cut => f.write_str("the other side has cut it"),
            Self::Disconnected => f.write_str("the connection to NATS was lost"),
        }
    }
}

impl std::error::Error for Broken {}

/// The frames of one direction that are sent, and the credit for them.
#[derive(Debug, Default)]
pub struct Outgoing {
    next: u64,
    sent: u64,
    /// The part of `sent` that the other side has taken.
    taken: u64,
}

impl Outgoing {
    /// Returns whether a frame of data may be sent.
    pub fn has_room(&self) -> bool {
        self.sent - self.taken < WINDOW
    }

    /// Returns a frame of data. `data`: at most [`DATA_BYTES`]. `incoming`: the other direction,
    /// whose taken frames are reported.
    pub fn data(&mut self, data: &[u8], incoming: &mut Incoming) -> Bytes {
        self.sent += cost(data.len());
        self.frame(DATA, data, incoming)
    }

    /// Returns the frame that reports taken frames.
    pub fn taken(&mut self, incoming: &mut Incoming) -> Bytes {
        self.frame(TAKEN, &[], incoming)
    }

    /// Returns the last frame of this direction.
    pub fn end(&mut self, incoming: &mut Incoming) -> Bytes {
        self.frame(END, &[], incoming)
    }

    /// Returns the frame that ends the link.
    pub fn cut(&mut self, incoming: &mut Incoming) -> Bytes {
        self.frame(CUT, &[], incoming)
    }

    fn frame(&mut self, kind: u8, data: &[u8], incoming: &mut Incoming) -> Bytes {
        let mut frame = BytesMut::with_capacity(HEADER_BYTES + data.len());
        frame.put_u8(kind);
        frame.put_u64(self.next);
        frame.put_u64(incoming.tell());
        frame.put_slice(data);
        self.next += 1;
        frame.freeze()
    }
}

/// The frames of one direction that are received.
#[derive(Debug, Default)]
pub struct Incoming {
    next: u64,
    received: u64,
    /// The part of `received` that the reader has taken.
    taken: u64,
    /// The part of `taken` that the other side knows.
    told: u64,
    is_ended: bool,
    broken: Option<Broken>,
}

impl Incoming {
    /// Takes the next message. `outgoing`: the other direction, for which it brings credit.
    ///
    /// Error: the link cannot continue; every further message gets the same error.
    pub fn accept(&mut self, message: &Bytes, outgoing: &mut Outgoing) -> Result<Received, Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        self.read(message, outgoing).inspect_err(|broken| self.broken = Some(*broken))
    }

    fn read(&mut self, message: &Bytes, outgoing: &mut Outgoing) -> Result<Received, Broken> {
        let (kind, rest) = message.split_first().ok_or(Broken::Invalid)?;
        let (number, rest) = number(rest)?;
        let (taken, data) = self::number(rest)?;
        if number != self.next {
            return Err(Broken::Order { due: self.next, came: number });
        }
        self.next += 1;
        if taken < outgoing.taken || taken > outgoing.sent {
            return Err(Broken::Invalid);
        }
        outgoing.taken = taken;
        match *kind {
            DATA | END if self.is_ended => Err(Broken::Invalid),
            DATA if data.len() > DATA_BYTES => Err(Broken::TooMuch),
            DATA if self.received - self.taken >= WINDOW => Err(Broken::TooMuch),
            DATA => {
                self.received += cost(data.len());
                Ok(Received::Data(message.slice(HEADER_BYTES..)))
            }
            END => {
                self.is_ended = true;
                Ok(Received::End)
            }
            TAKEN => Ok(Received::Taken),
            CUT => Err(Broken::Cut),
            _ => Err(Broken::Invalid),
        }
    }

    /// Records that the reader has taken a frame with `bytes` of data. Returns whether the other
    /// side should be told now.
    pub fn take(&mut self, bytes: usize) -> bool {
        self.taken += cost(bytes);
        self.taken - self.told >= TELL_AFTER
    }

    /// Returns what the reader has taken, for a frame that is about to be sent.
    fn tell(&mut self) -> u64 {
        self.told = self.taken;
        self.taken
    }
}

fn cost(bytes: usize) -> u64 {
    (bytes as u64).max(LEAST_COST)
}

fn number(bytes: &[u8]) -> Result<(u64, &[u8]), Broken> {
    let (number, rest) = bytes.split_first_chunk::<8>().ok_or(Broken::Invalid)?;
    Ok((u64::from_be_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, sample::Index};

    use super::*;

    /// Both directions of one side.
    #[derive(Default)]
    struct Side {
        incoming: Incoming,
        outgoing: Outgoing,
    }

    impl Side {
        fn send(&mut self, data: &[u8]) -> Bytes {
            self.outgoing.data(data, &mut self.incoming)
        }

        fn accept(&mut self, frame: &Bytes) -> Result<Received, Broken> {
            self.incoming.accept(frame, &mut self.outgoing)
        }
    }

    #[test]
    fn frames_bring_the_bytes_that_were_sent_and_their_end() {
        let (mut here, mut there) = (Side::default(), Side::default());
        let hello = here.send(b"hello");
        assert_eq!(hello.len(), HEADER_BYTES + 5);
        assert_eq!(there.accept(&hello), Ok(Received::Data(Bytes::from_static(b"hello"))));
        let end = here.outgoing.end(&mut here.incoming);
        assert_eq!(there.accept(&end), Ok(Received::End));
        let back = there.send(b"still open");
        assert_eq!(here.accept(&back), Ok(Received::Data(Bytes::from_static(b"still open"))));
        let after = here.send(b"after the end");
        assert_eq!(there.accept(&after), Err(Broken::Invalid));
        let (mut here, mut there) = (Side::default(), Side::default());
        let ends = [(); 2].map(|()| here.outgoing.end(&mut here.incoming));
        assert_eq!(ends.map(|end| there.accept(&end)), [Ok(Received::End), Err(Broken::Invalid)]);
    }

    #[test]
    fn a_sender_without_credit_stops_until_the_reader_has_taken_frames() {
        let (mut here, mut there) = (Side::default(), Side::default());
        let chunk = vec![b'x'; DATA_BYTES];
        let mut sent = 0;
        while here.outgoing.has_room() {
            let frame = here.send(&chunk);
            assert!(matches!(there.accept(&frame), Ok(Received::Data(_))));
            sent += 1;
        }
        assert_eq!(sent, 16);
        let told = (0..sent).find(|_| there.incoming.take(chunk.len()));
        assert_eq!(told, Some(3));
        let taken = there.outgoing.taken(&mut there.incoming);
        assert_eq!(here.accept(&taken), Ok(Received::Taken));
        assert!(here.outgoing.has_room());
        // Small frames cost more than their bytes: the other side stores a bounded number of them.
        let mut small = Outgoing::default();
        let most = (0..).take_while(|_| {
            let has_room = small.has_room();
            small.data(b"x", &mut Incoming::default());
            has_room
        });
        assert_eq!(most.count(), 4096);
    }

    #[test]
    fn a_sender_that_ignores_its_credit_is_cut_off() {
        let (mut here, mut there) = (Side::default(), Side::default());
        let chunk = vec![b'x'; DATA_BYTES];
        let frames: Vec<_> = (0..17).map(|_| here.send(&chunk)).collect();
        let (last, first) = frames.split_last().unwrap();
        assert!(first.iter().all(|frame| there.accept(frame).is_ok()));
        assert_eq!(there.accept(last), Err(Broken::TooMuch));
        let large = Side::default().send(&vec![b'x'; DATA_BYTES + 1]);
        assert_eq!(Side::default().accept(&large), Err(Broken::TooMuch));
    }

    #[test]
    fn credit_that_was_never_given_is_refused() {
        let mut there = Side::default();
        there.incoming.taken = 1000;
        let frame = there.send(b"x");
        assert_eq!(Side::default().accept(&frame), Err(Broken::Invalid));
    }

    proptest! {
        #[test]
        fn no_message_panics(message in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut side = Side::default();
            let message = Bytes::from(message);
            if let Err(broken) = side.accept(&message) {
                prop_assert_eq!(side.accept(&message), Err(broken));
            }
        }

        /// FL1: whatever NATS does to the messages, the bytes that arrive are a beginning of those
        /// that were sent, and any change is an error from there on.
        #[test]
        fn a_lost_repeated_or_reordered_frame_ends_the_link(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..30),
            faults in proptest::collection::vec((0..3_u8, any::<Index>(), any::<Index>()), 0..4),
        ) {
            let mut sender = Side::default();
            let mut frames: Vec<Bytes> = chunks.iter().map(|chunk| sender.send(chunk)).collect();
            frames.push(sender.outgoing.end(&mut sender.incoming));
            let sent = frames.clone();
            for (fault, at, to) in faults {
                if frames.is_empty() {
                    break;
                }
                let at = at.index(frames.len());
                match fault {
                    0 => drop(frames.remove(at)),
                    1 => frames.insert(to.index(frames.len() + 1), frames[at].clone()),
                    _ => {
                        let frame = frames.remove(at);
                        frames.insert(to.index(frames.len() + 1), frame);
                    }
                }
            }
            let same = frames.iter().zip(&sent).take_while(|(came, sent)| came == sent).count();
            let mut receiver = Side::default();
            let mut bytes = Vec::new();
            for (number, frame) in frames.iter().enumerate() {
                match receiver.accept(frame) {
                    Ok(Received::Data(data)) => bytes.extend_from_slice(&data),
                    Ok(_) => {}
                    Err(_) => {
                        prop_assert!(number >= same);
                        continue;
                    }
                }
                prop_assert!(number < same, "frame {} after the first fault was accepted", number);
            }
            let whole: Vec<u8> = chunks.iter().take(same).flatten().copied().collect();
            prop_assert_eq!(bytes, whole);
        }
    }
}
