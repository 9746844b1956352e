//! An event that all of its readers share: made once, and encoded at most once in each form.

use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use bytes::Bytes;
use muxtap_api::{Event, EventKind};

/// An event, for any number of readers. A reader in this process takes the event itself; its forms for
/// interfaces are made on first use.
#[derive(Debug)]
pub struct SharedEvent {
    /// The event; raw output without `data`.
    event: Event,
    /// The bytes of raw output.
    raw: Option<Bytes>,
    /// About how many bytes output holds: its text as it is and as JSON, or its raw bytes.
    len: usize,
    /// The JSON of `event`.
    head: OnceLock<Bytes>,
    /// The JSON of raw output with `data`.
    whole: OnceLock<Bytes>,
    framed: OnceLock<Bytes>,
}

impl SharedEvent {
    /// Shares an event.
    pub(crate) fn new(event: Event) -> Arc<Self> {
        Self::of(event, None)
    }

    /// Shares raw output: an event without `data`, and the bytes that belong in `data`.
    pub(crate) fn raw(event: Event, bytes: Bytes) -> Arc<Self> {
        Self::of(event, Some(bytes))
    }

    fn of(event: Event, raw: Option<Bytes>) -> Arc<Self> {
        let text = match &event {
            Event::Output { text: Some(text), .. } => text.len() + json_len(text),
            _ => 0,
        };
        let len = text + raw.as_ref().map_or(0, Bytes::len);
        Arc::new(Self { event, raw, len, head: OnceLock::new(), whole: OnceLock::new(), framed: OnceLock::new() })
    }

    /// Returns the kind of the event.
    pub fn kind(&self) -> EventKind {
        self.event.kind()
    }

    /// Returns the event; raw output without `data`, which [`Self::whole`] adds.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Returns a copy of the event with all of its fields.
    pub fn whole(&self) -> Event {
        let mut event = self.event.clone();
        if let (Event::Output { data, .. }, Some(bytes)) = (&mut event, &self.raw) {
            *data = Some(base64::engine::general_purpose::STANDARD.encode(bytes));
        }
        event
    }

    /// Returns the event as JSON, with all of its fields.
    pub fn json(&self) -> &Bytes {
        match &self.raw {
            None => self.head(),
            Some(_) => self.whole.get_or_init(|| json(&self.whole())),
        }
    }

    fn head(&self) -> &Bytes {
        self.head.get_or_init(|| json(&self.event))
    }

    /// Returns the JSON without `data` and the bytes of raw output; `None` for other events.
    pub fn binary(&self) -> Option<(&Bytes, &Bytes)> {
        self.raw.as_ref().map(|bytes| (self.head(), bytes))
    }

    /// Returns the event in an interface's framing, which `frame` makes from kind and JSON at the
    /// first call. Only one interface has a framing.
    pub fn framed(&self, frame: impl FnOnce(EventKind, &[u8]) -> Bytes) -> &Bytes {
        self.framed.get_or_init(|| frame(self.kind(), self.json()))
    }

    /// Returns about how many bytes output holds: its text as it is and as JSON, or its raw bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// Returns how many bytes a text has in JSON, without its quotes.
fn json_len(text: &str) -> usize {
    let more = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
        // `\u001b`.
        ..0x20 => 5,
        _ => 0,
    };
    text.len() + text.bytes().map(more).sum::<usize>()
}

fn json(event: &Event) -> Bytes {
    // Serializing these types cannot fail.
    serde_json::to_vec(event).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use muxtap_api::{Cursor, Epoch};
    use muxtap_core::protocol::ids::PaneId;

    #[test]
    fn raw_output_is_told_with_its_bytes_beside_it_or_in_it() {
        let cursor = Cursor { epoch: Epoch::default(), pane: PaneId(0), offset: 0 };
        let event = Event::Output { pane: PaneId(0), text: None, data: None, cursor, gap: None };
        let event = SharedEvent::raw(event, Bytes::from_static(b"\x00\xff"));
        let (head, bytes) = event.binary().unwrap();
        assert_eq!(head, &format!(r#"{{"type":"output","pane":"%0","cursor":"{cursor}"}}"#));
        assert_eq!(&bytes[..], b"\x00\xff");
        let whole = format!(r#"{{"type":"output","pane":"%0","data":"AP8=","cursor":"{cursor}"}}"#);
        assert_eq!(event.json(), &whole);
        assert_eq!(serde_json::to_string(&event.whole()).unwrap(), whole);
        let framed = event.framed(|kind, json| format!("{} {}", kind.as_str(), json.len()).into());
        assert_eq!(&framed[..], format!("output {}", whole.len()).as_bytes());
        assert_eq!(event.framed(|_, _| Bytes::new()), framed);
    }

    #[test]
    fn the_length_of_text_includes_its_json() {
        let text: String = (0..300_u32).filter_map(char::from_u32).collect();
        let json = serde_json::to_string(&text).unwrap();
        assert_eq!(json_len(&text), json.len() - 2);
        let cursor = Cursor { epoch: Epoch::default(), pane: PaneId(0), offset: 0 };
        let event = Event::Output { pane: PaneId(0), text: Some("\x1b".repeat(10)), data: None, cursor, gap: None };
        assert_eq!(SharedEvent::new(event).len(), 10 + 60);
    }

    #[test]
    fn a_form_that_no_reader_takes_is_not_made() {
        let cursor = Cursor { epoch: Epoch::default(), pane: PaneId(0), offset: 0 };
        let event = Event::Output { pane: PaneId(0), text: Some("a".into()), data: None, cursor, gap: None };
        let event = SharedEvent::new(event);
        assert!(matches!(event.event(), Event::Output { text: Some(text), .. } if text == "a"));
        assert!(event.head.get().is_none() && event.framed.get().is_none());
        assert!(event.json().starts_with(b"{") && event.head.get().is_some());
    }
}
