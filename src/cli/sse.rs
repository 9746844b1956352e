//! Server-Sent Events (WHATWG HTML, "Interpreting an event stream"), as far as `GET /v1/events` uses them.

/// Cuts a byte stream into the `data` of its events; names and ids are repeated in the data and not needed.
#[derive(Debug, Default)]
pub(super) struct Parser {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
}

impl Parser {
    /// Takes the next bytes and gives the data of each event that they complete to `event`.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut event: impl FnMut(&[u8])) {
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

    fn take_line(&mut self, line: &[u8], event: &mut impl FnMut(&[u8])) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            if self.has_data {
                event(&self.data);
            }
            self.data.clear();
            self.has_data = false;
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
            parser.feed(chunk, |data| events.push(String::from_utf8_lossy(data).into_owned()));
        }
        events
    }

    #[test]
    fn an_event_is_its_data_lines_up_to_an_empty_line() {
        let stream = b": hello\n\nid: 7\nevent: output\ndata: {\"a\":1}\n\ndata:one\ndata: two\n\ndata: unfinished\n";
        assert_eq!(events(&[stream]), ["{\"a\":1}", "one\ntwo"]);
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
