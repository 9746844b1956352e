//! An event in the form in which it is sent, encoded once for all subscribers.

use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use bytes::Bytes;
use muxtap_api::{Event, EventKind};

/// An event as JSON. Raw output also has its bytes. Each form is made once, on first use.
#[derive(Debug)]
pub struct EncodedEvent {
    kind: EventKind,
    /// The JSON; for raw output without `data`.
    head: Bytes,
    raw: Option<Raw>,
    framed: OnceLock<Bytes>,
}

#[derive(Debug)]
struct Raw {
    event: Event,
    bytes: Bytes,
    whole: OnceLock<Bytes>,
}

impl EncodedEvent {
    /// Encodes an event as JSON.
    pub(crate) fn new(event: &Event) -> Arc<Self> {
        Arc::new(Self { kind: event.kind(), head: json(event), raw: None, framed: OnceLock::new() })
    }

    /// Encodes raw output: an event without `data`, and the bytes that belong in `data`.
    pub(crate) fn raw(event: Event, bytes: Bytes) -> Arc<Self> {
        let (kind, head) = (event.kind(), json(&event));
        Arc::new(Self { kind, head, raw: Some(Raw { event, bytes, whole: OnceLock::new() }), framed: OnceLock::new() })
    }

    /// Returns the kind of the event.
    pub fn kind(&self) -> EventKind {
        self.kind
    }

    /// Returns the event as JSON.
    pub fn json(&self) -> &Bytes {
        match &self.raw {
            None => &self.head,
            Some(raw) => raw.whole.get_or_init(|| {
                let mut event = raw.event.clone();
                if let Event::Output { data, .. } = &mut event {
                    *data = Some(base64::engine::general_purpose::STANDARD.encode(&raw.bytes));
                }
                json(&event)
            }),
        }
    }

    /// Returns the JSON without `data` and the bytes of raw output; `None` for other events.
    pub fn binary(&self) -> Option<(&Bytes, &Bytes)> {
        self.raw.as_ref().map(|raw| (&self.head, &raw.bytes))
    }

    /// Returns the event in an interface's framing, which `frame` makes from kind and JSON at the
    /// first call. Only one interface has a framing.
    pub fn framed(&self, frame: impl FnOnce(EventKind, &[u8]) -> Bytes) -> &Bytes {
        self.framed.get_or_init(|| frame(self.kind, self.json()))
    }

    /// Returns the approximate number of bytes that the event holds.
    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.raw.as_ref().map_or(0, |raw| raw.bytes.len())
    }
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
        let event = EncodedEvent::raw(event, Bytes::from_static(b"\x00\xff"));
        let (head, bytes) = event.binary().unwrap();
        assert_eq!(head, &format!(r#"{{"type":"output","pane":"%0","cursor":"{cursor}"}}"#));
        assert_eq!(&bytes[..], b"\x00\xff");
        let whole = format!(r#"{{"type":"output","pane":"%0","data":"AP8=","cursor":"{cursor}"}}"#);
        assert_eq!(event.json(), &whole);
        let framed = event.framed(|kind, json| format!("{} {}", kind.as_str(), json.len()).into());
        assert_eq!(&framed[..], format!("output {}", whole.len()).as_bytes());
        assert_eq!(event.framed(|_, _| Bytes::new()), framed);
    }
}
