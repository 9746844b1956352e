//! asciinema's live stream, `ALiS`, as bytes: binary messages over a WebSocket (subprotocol
//! `v1.alis`).
//!
//! Numbers are LEB128. Times are microseconds: in the first message since the beginning of the
//! stream, in each further one since the event before.

use std::time::Duration;

use muxtap_api::Size;

/// The subprotocol's name.
pub const PROTOCOL: &str = "v1.alis";
/// The first message.
pub(crate) const MAGIC: &[u8] = b"ALiS\x01";

/// The encoder of a stream. Times count from the beginning of the stream.
#[derive(Debug, Default)]
pub(crate) struct Alis {
    id: u64,
    last_us: u64,
    cut: Vec<u8>,
}

impl Alis {
    /// Builds the message with the terminal's current screen.
    pub(crate) fn init(&mut self, at: Duration, size: Size, screen: &[u8]) -> Vec<u8> {
        self.last_us = micros(at);
        let mut message = vec![0x01];
        number(self.id, &mut message);
        number(self.last_us, &mut message);
        number(size.width.into(), &mut message);
        number(size.height.into(), &mut message);
        // No theme: the player uses its own.
        message.push(0);
        text(&String::from_utf8_lossy(screen), &mut message);
        message
    }

    /// Builds a message of output; `None` if it contains no complete character.
    pub(crate) fn output(&mut self, at: Duration, bytes: &[u8]) -> Option<Vec<u8>> {
        let bytes = [&std::mem::take(&mut self.cut), bytes].concat();
        let (whole, cut) = bytes.split_at(bytes.len() - super::cast::cut_off(&bytes));
        self.cut = cut.to_vec();
        (!whole.is_empty()).then(|| self.with_text(b'o', at, &String::from_utf8_lossy(whole)))
    }

    /// Builds a message of a new size.
    pub(crate) fn resize(&mut self, at: Duration, size: Size) -> Vec<u8> {
        let mut message = self.begin(b'r', at);
        number(size.width.into(), &mut message);
        number(size.height.into(), &mut message);
        message
    }

    /// Builds a message of a marker.
    pub(crate) fn marker(&mut self, at: Duration, label: &str) -> Vec<u8> {
        self.with_text(b'm', at, label)
    }

    /// Builds a message of the program's end.
    pub(crate) fn exit(&mut self, at: Duration, status: i32) -> Vec<u8> {
        let mut message = self.begin(b'x', at);
        number(u64::try_from(status).unwrap_or_default(), &mut message);
        message
    }

    /// Builds the last message, which ends the stream.
    pub(crate) fn end(&mut self, at: Duration) -> Vec<u8> {
        let mut message = vec![0x04];
        number(self.elapse(at), &mut message);
        message
    }

    fn begin(&mut self, kind: u8, at: Duration) -> Vec<u8> {
        self.id += 1;
        let mut message = vec![kind];
        number(self.id, &mut message);
        number(self.elapse(at), &mut message);
        message
    }

    fn with_text(&mut self, kind: u8, at: Duration, content: &str) -> Vec<u8> {
        let mut message = self.begin(kind, at);
        text(content, &mut message);
        message
    }

    /// Returns the microseconds since the last event.
    fn elapse(&mut self, at: Duration) -> u64 {
        let now = micros(at).max(self.last_us);
        now - std::mem::replace(&mut self.last_us, now)
    }
}

fn micros(at: Duration) -> u64 {
    u64::try_from(at.as_micros()).unwrap_or(u64::MAX)
}

fn number(mut number: u64, out: &mut Vec<u8>) {
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

fn text(text: &str, out: &mut Vec<u8>) {
    number(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_the_protocol() {
        let mut alis = Alis::default();
        let size = Size { width: 80, height: 300 };
        let us = Duration::from_micros;
        assert_eq!(alis.init(us(5), size, b"hi"), [1, 0, 5, 80, 0xac, 2, 0, 2, b'h', b'i']);
        assert_eq!(alis.output(us(205), b"abc").unwrap(), [b'o', 1, 0xc8, 1, 3, b'a', b'b', b'c']);
        assert_eq!(alis.output(us(205), b"\xc3"), None);
        assert_eq!(alis.output(us(206), b"\xa9").unwrap(), [b'o', 2, 1, 2, 0xc3, 0xa9]);
        assert_eq!(alis.resize(us(206), size), [b'r', 3, 0, 80, 0xac, 2]);
        // A clock that goes back.
        assert_eq!(alis.marker(us(1), "m"), [b'm', 4, 0, 1, b'm']);
        assert_eq!(alis.exit(us(207), 3), [b'x', 5, 1, 3]);
        assert_eq!(alis.end(us(208)), [4, 1]);
    }
}
