//! Server-Sent Events (WHATWG HTML, "Interpreting an event stream"), as far as `GET /v1/events`
//! uses them.

/// A parser that cuts a byte stream into the `data` of its events. Names are repeated in the data
/// and not needed.
#[derive(Debug, Default)]
pub(super) struct Parser {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The id of the block that is being read.
    id: Option<String>,
    /// The id of the last block that was complete.
    last_id: Option<String>,
}

impl Parser {
    /// Parses the next bytes and passes each event that they complete to `event`: its data and its id.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut event: impl FnMut(&[u8], Option<&str>)) {
        while let Some((line, rest)) = memchr::memchr(b'\n', bytes).and_then(|end| {
            let (line, rest) = bytes.split_at_checked(end)?;
            Some((line, rest.get(1..)?))
        }) {
            bytes = rest;
            if self.line.is_empty() {
                self.take_line(line, &mut event);
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.take_line(&whole, &mut event);
            }
        }
        self.line.extend_from_slice(bytes);
    }

    /// Returns the id to resume from after the last event.
    pub(super) fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    fn take_line(&mut self, line: &[u8], event: &mut impl FnMut(&[u8], Option<&str>)) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            if self.has_data {
                event(&self.data, self.id.as_deref());
            }
            self.data.clear();
            self.has_data = false;
            if let Some(id) = self.id.take() {
                self.last_id = Some(id);
            }
        } else if let Some(id) = line.strip_prefix(b"id:") {
            self.id = Some(String::from_utf8_lossy(id.strip_prefix(b" ").unwrap_or(id)).into_owned());
        } else if let Some(value) = line.strip_prefix(b"data:") {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            self.has_data = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(chunks: &[&[u8]]) -> Vec<String> {
        let mut parser = Parser::default();
        let mut events = Vec::new();
        for chunk in chunks {
            parser.feed(chunk, |data, _| events.push(String::from_utf8_lossy(data).into_owned()));
        }
        events
    }

    #[test]
    fn an_event_is_its_data_lines_up_to_an_empty_line() {
        let stream = b": hello\n\nid: 7\nevent: output\ndata: {\"a\":1}\n\ndata:one\ndata: two\n\ndata: unfinished\n";
        assert_eq!(events(&[stream]), ["{\"a\":1}", "one\ntwo"]);
    }

    #[test]
    fn an_id_counts_when_its_block_is_complete() {
        let mut parser = Parser::default();
        let mut ids = Vec::new();
        for chunk in ["id: a\n", "\n", "data: 1\nid: b\n", "\ndata: 2\n\n", "id: c\ndata: 3"] {
            parser.feed(chunk.as_bytes(), |_, _| {});
            ids.push(parser.last_id().map(str::to_owned));
        }
        let expected = [None, Some("a"), Some("a"), Some("b"), Some("b")];
        assert_eq!(ids, expected.map(|id| id.map(str::to_owned)));
    }

    #[test]
    fn where_the_stream_is_cut_makes_no_difference() {
        let stream: &[u8] = b"id: 1\r\ndata: a\r\n\r\n:\n\ndata: \xc3\xbc\n\n";
        for cut in 0..=stream.len() {
            let (one, two) = stream.split_at(cut);
            assert_eq!(events(&[one, two]), ["a", "ü"], "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(events(&bytes), ["a", "ü"]);
    }
}
