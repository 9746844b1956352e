//! Event streams over a link: passes on whole events and remembers where to resume.

use bytes::{Bytes, BytesMut};
use memchr::memmem;
use serde_json::Value;

use super::forward::name_host;

/// The longest event, in bytes.
const EVENT_BYTES: usize = 16 << 20;

/// Cuts a stream of Server-Sent Events into whole events.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    rest: BytesMut,
    /// The bytes of `rest` already searched for the end of an event.
    searched: usize,
    last_id: Option<String>,
}

impl Cutter {
    /// Takes the next bytes. Returns the events that they complete, `None` if there are none.
    ///
    /// Error: an event is longer than [`EVENT_BYTES`].
    pub(super) fn feed(&mut self, bytes: &[u8], host: &str) -> Result<Option<Bytes>, TooLong> {
        self.rest.extend_from_slice(bytes);
        let unsearched = self.rest.get(self.searched..).unwrap_or_default();
        let Some(end) = memmem::rfind(unsearched, b"\n\n").map(|at| self.searched + at + 2) else {
            // The first half of an event's end may already be present.
            self.searched = self.rest.len().saturating_sub(1);
            return if self.rest.len() > EVENT_BYTES { Err(TooLong) } else { Ok(None) };
        };
        let whole = self.rest.split_to(end).freeze();
        self.searched = 0;
        let lines = whole.split(|&byte| byte == b'\n');
        if let Some(id) = lines.rev().find_map(|line| line.strip_prefix(b"id: ")) {
            self.last_id = Some(String::from_utf8_lossy(id).into_owned());
        }
        Ok(Some(named(whole, host)))
    }

    /// Returns the id of the last whole event and discards an incomplete one.
    pub(super) fn resume(&mut self) -> Option<String> {
        self.rest.clear();
        self.searched = 0;
        self.last_id.clone()
    }
}

/// The error for an event above the limit.
#[derive(Debug)]
pub(super) struct TooLong;

/// Adds the host to events that name a server.
fn named(events: Bytes, host: &str) -> Bytes {
    let is_named =
        |text: &[u8]| [&b"\"socket\":"[..], b"\"id\":\"%"].iter().any(|field| memmem::find(text, field).is_some());
    if !is_named(&events) {
        return events;
    }
    let mut named = Vec::with_capacity(events.len() + 64);
    for line in events.split_inclusive(|&byte| byte == b'\n') {
        let data = line.strip_prefix(b"data: ").filter(|data| is_named(data));
        match data.and_then(|data| serde_json::from_slice::<Value>(data).ok()) {
            Some(mut value) => {
                name_host(&mut value, host);
                named.extend_from_slice(format!("data: {value}\n").as_bytes());
            }
            None => named.extend_from_slice(line),
        }
    }
    named.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_whole_however_they_are_cut() {
        let stream = "id: a\n\nevent: output\ndata: {\"text\":\"x\"}\nid: b\n\nevent: topology\n\
                      data: {\"socket\":\"/s\"}\nid: c\n\nevent: output\ndata: {\"te";
        for size in 1..=stream.len() {
            let mut cutter = Cutter::default();
            let mut got = Vec::new();
            for chunk in stream.as_bytes().chunks(size) {
                if let Some(whole) = cutter.feed(chunk, "box").unwrap() {
                    assert!(whole.ends_with(b"\n\n"));
                    got.extend_from_slice(&whole);
                }
            }
            let got = String::from_utf8(got).unwrap();
            let first = "id: a\n\nevent: output\ndata: {\"text\":\"x\"}\nid: b\n\nevent: topology\n";
            let rest = got.strip_prefix(first).unwrap_or_else(|| panic!("{size}: {got}"));
            assert_eq!(rest, "data: {\"host\":\"box\",\"socket\":\"box//s\"}\nid: c\n\n", "{size}");
            assert_eq!(cutter.resume().as_deref(), Some("c"), "{size}");
            // The incomplete event is sent again.
            let again = cutter.feed(b"id: c\n\n", "box").unwrap().unwrap();
            assert_eq!(again, "id: c\n\n");
        }
    }

    #[test]
    fn an_event_without_an_end_is_refused_at_a_limit() {
        let mut cutter = Cutter::default();
        let chunk = vec![b'x'; EVENT_BYTES / 2];
        assert!(cutter.feed(&chunk, "box").unwrap().is_none());
        assert!(cutter.feed(&chunk, "box").unwrap().is_none());
        assert!(cutter.feed(b"x", "box").is_err());
    }
}
