//! The messages of a server that reach a client of muxtap's.
//!
//! A tmux client obeys its server: it runs a command that the server names (`MSG_EXEC`,
//! `MSG_SHELL`, `MSG_LOCK`), reads and writes files, hangs up its parent, and stops itself. A
//! client of muxtap's needs none of that. So a list determines what passes ([`verdict`]); any other
//! message is dropped, is changed so that the client only replies, or ends the connection.

use super::message::{HEADER, Header, Malformed, make};

/// Message types of `tmux-protocol.h`, the same from 3.2a to 3.8.
mod kind {
    pub(super) const VERSION: u32 = 12;
    pub(super) const DETACH: u32 = 201;
    pub(super) const DETACH_KILL: u32 = 202;
    pub(super) const EXIT: u32 = 203;
    pub(super) const EXITED: u32 = 204;
    pub(super) const READY: u32 = 207;
    pub(super) const SHELL: u32 = 209;
    pub(super) const SHUTDOWN: u32 = 210;
    pub(super) const OLD_STREAMS: std::ops::RangeInclusive<u32> = 211..=213;
    pub(super) const EXEC: u32 = 217;
    pub(super) const FLAGS: u32 = 218;
    pub(super) const READ_OPEN: u32 = 300;
    pub(super) const WRITE_OPEN: u32 = 303;
    pub(super) const WRITE: u32 = 304;
    pub(super) const WRITE_CLOSE: u32 = 306;
}

/// The client's standard output and standard error, as the server numbers them.
const OUTPUTS: [i32; 2] = [1, 2];
/// A descriptor that a client never has open as a stream: it replies `EBADF`, and opens nothing.
const NO_STREAM: i32 = i32::MAX;

/// The reason why a connection to a server is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hostile {
    #[error("the server sent {0}")]
    Malformed(#[from] Malformed),
    #[error("the server instructed muxtap's client to become a shell")]
    Shell,
}

/// The treatment of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Pass,
    /// Replaced by a request to the client to detach.
    Detach,
    /// Passes with [`NO_STREAM`] in place of what should be opened.
    OpenNothing,
    Drop,
    End(Hostile),
}

/// Returns the treatment of a message with this content.
fn verdict(kind: u32, data: &[u8]) -> Verdict {
    match kind {
        kind::VERSION
        | kind::DETACH
        | kind::EXIT
        | kind::EXITED
        | kind::READY
        | kind::SHUTDOWN
        | kind::FLAGS
        | kind::WRITE
        | kind::WRITE_CLOSE => Verdict::Pass,
        kind if kind::OLD_STREAMS.contains(&kind) => Verdict::Pass,
        // `detach-client -P` hangs up the client's parent, which is muxtap; `-E` runs a command.
        kind::DETACH_KILL | kind::EXEC => Verdict::Detach,
        // A command's output is written to the client's own streams; anything else is a file.
        kind::WRITE_OPEN if number(data, 1).is_some_and(|stream| OUTPUTS.contains(&stream)) => Verdict::Pass,
        kind::READ_OPEN | kind::WRITE_OPEN => Verdict::OpenNothing,
        // Sent only to a client that requested it (`tmux -c`).
        kind::SHELL => Verdict::End(Hostile::Shell),
        // MSG_LOCK and MSG_SUSPEND go to terminals; the messages of later versions are unknown.
        _ => Verdict::Drop,
    }
}

/// Returns the number at this place of a message's content.
fn number(data: &[u8], index: usize) -> Option<i32> {
    let bytes = data.get(index * 4..)?.first_chunk()?;
    Some(i32::from_ne_bytes(*bytes))
}

/// The part of a server's messages that was received so far.
#[derive(Default)]
pub(super) struct ServerMessages {
    /// Bytes that do not form a whole message yet.
    rest: Vec<u8>,
}

impl ServerMessages {
    /// Continues with the beginning of a message that was received.
    pub(super) fn begun(rest: Vec<u8>) -> Self {
        Self { rest }
    }

    /// Returns the beginning of a message that was received.
    pub(super) fn rest(&self) -> &[u8] {
        &self.rest
    }

    /// Takes received bytes. Returns the bytes for the client of the messages that are whole.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Hostile> {
        self.rest.extend_from_slice(bytes);
        let received = std::mem::take(&mut self.rest);
        let mut left = received.as_slice();
        let mut passed = Vec::new();
        while let Some(header) = Header::read(left)?
            && let Some((message, after)) = left.split_at_checked(header.length)
        {
            let (head, data) = message.split_at_checked(HEADER).unwrap_or_default();
            match verdict(header.kind, data) {
                Verdict::Pass => passed.extend_from_slice(message),
                // The protocol's version is in the header's last two words.
                Verdict::Detach => passed.extend(make(kind::DETACH, head.get(8..).unwrap_or_default(), b"detached\0")),
                Verdict::OpenNothing => {
                    // A message that is too short would end the client.
                    let (Some(stream), Some(rest)) = (data.get(..4), data.get(8..)) else {
                        return Err(Malformed::Length.into());
                    };
                    passed.extend([head, stream, &NO_STREAM.to_ne_bytes(), rest].concat());
                }
                Verdict::Drop => tracing::debug!("dropped a message of type {} from a tmux server", header.kind),
                Verdict::End(why) => return Err(why),
            }
            left = after;
        }
        self.rest = left.to_vec();
        Ok(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::message::message, *};

    const LOCK: u32 = 206;
    const SUSPEND: u32 = 214;
    const UNKNOWN: u32 = 4711;

    fn open(kind: u32, fd: i32, rest: &[u8]) -> Vec<u8> {
        message(kind, 0, &[&7_i32.to_ne_bytes()[..], &fd.to_ne_bytes(), rest].concat())
    }

    fn received(message: &[u8]) -> Vec<u8> {
        ServerMessages::default().receive(message).unwrap()
    }

    #[test]
    fn what_a_client_needs_reaches_it_unchanged() {
        let messages = [
            message(kind::READY, 0, b""),
            message(kind::FLAGS, 0, &[0; 8]),
            open(kind::WRITE_OPEN, 1, &[0; 4]),
            message(kind::WRITE, 0, b"\x07\0\0\0main: 1 windows\n"),
            message(kind::WRITE_CLOSE, 0, &[7, 0, 0, 0]),
            message(kind::DETACH, 0, b"main\0"),
            message(kind::EXIT, 0, &[0; 4]),
            message(kind::EXITED, 0, b""),
            message(kind::SHUTDOWN, 0, b""),
        ]
        .concat();
        for size in [1, 3, 16, 17, 1000] {
            let mut server = ServerMessages::default();
            let passed: Vec<u8> = messages.chunks(size).flat_map(|piece| server.receive(piece).unwrap()).collect();
            assert_eq!(passed, messages, "pieces of {size}");
        }
    }

    #[test]
    fn messages_that_run_commands_are_dropped_or_become_a_detach() {
        let shell = message(kind::SHELL, 0, b"/tmp/theirs\0");
        assert_eq!(ServerMessages::default().receive(&shell), Err(Hostile::Shell));
        for dropped in
            [message(LOCK, 0, b"/tmp/theirs\0"), message(SUSPEND, 0, b""), message(UNKNOWN, 0, b"/tmp/theirs\0")]
        {
            assert_eq!(received(&dropped), b"");
        }
        // Both messages tell the client to leave, so it leaves.
        let detach = message(kind::DETACH, 0, b"detached\0");
        for leave in [message(kind::EXEC, 0, b"/tmp/theirs\0/bin/sh\0"), message(kind::DETACH_KILL, 0, b"main\0")] {
            assert_eq!(received(&leave), detach);
        }
    }

    #[test]
    fn a_server_cannot_read_or_write_files_through_its_client() {
        for fd in [-1, 0, 1] {
            let (read, disarmed) =
                (open(kind::READ_OPEN, fd, b"/etc/x\0"), open(kind::READ_OPEN, NO_STREAM, b"/etc/x\0"));
            assert_eq!(received(&read), disarmed);
        }
        let rest = b"\0\0\0\0/home/me/.bashrc\0";
        for fd in [-1, 0, 3, 99] {
            assert_eq!(received(&open(kind::WRITE_OPEN, fd, rest)), open(kind::WRITE_OPEN, NO_STREAM, rest));
        }
        for short in [&b""[..], b"\x07\0\0\0", b"\x07\0\0\0\xff\xff\xff"] {
            let refused = ServerMessages::default().receive(&message(kind::READ_OPEN, 0, short));
            assert_eq!(refused, Err(Hostile::Malformed(Malformed::Length)));
        }
    }

    #[test]
    fn bytes_that_are_no_messages_end_the_connection() {
        assert_eq!(ServerMessages::default().receive(&[0; HEADER]), Err(Hostile::Malformed(Malformed::Length)));
        assert_eq!(ServerMessages::default().receive(&[255; HEADER]), Err(Hostile::Malformed(Malformed::Length)));
    }
}
