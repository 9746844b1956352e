//! Clients of event streams, with strict checks.

use std::{
    io::{Read as _, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
    time::Instant,
};

use base64::Engine as _;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{
    self, Message, WebSocket,
    protocol::{CloseFrame, Role},
};

use crate::common::{LIMIT, World};

/// A reader of `GET /v1/events`.
pub struct Sse {
    stream: UnixStream,
    /// Bytes that were read and not yet parsed: HTTP chunks, then the lines in them.
    chunks: Vec<u8>,
    text: Vec<u8>,
    ended: bool,
    /// The last event id.
    pub id: Option<String>,
}

/// An event of an [`Sse`].
#[derive(Debug)]
pub struct Event {
    pub kind: String,
    pub data: Value,
}

impl Sse {
    /// Subscribes. `query` is what follows `socket=…`.
    pub fn open(world: &World, query: &str) -> Self {
        Self::resume(world, query, None)
    }

    /// Subscribes with a `Last-Event-ID`.
    pub fn resume(world: &World, query: &str, last: Option<&str>) -> Self {
        Self::ask(world, query, last).unwrap_or_else(|refused| panic!("{query}: {refused}"))
    }

    /// Subscribes; the error is the daemon's own.
    pub fn ask(world: &World, query: &str, last: Option<&str>) -> Result<Self, Value> {
        Self::of(world, &format!("/v1/events{}&{query}", world.query()), last)
    }

    /// Reads the stream at another path.
    pub fn of(world: &World, path: &str, last: Option<&str>) -> Result<Self, Value> {
        let mut stream = UnixStream::connect(world.daemon_socket()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let last = last.map(|last| format!("last-event-id: {last}\r\n")).unwrap_or_default();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: m\r\n{last}\r\n").unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        if !head.starts_with("HTTP/1.1 200 ") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            let mut body = vec![0; length.parse().unwrap()];
            stream.read_exact(&mut body).unwrap();
            return Err(serde_json::from_slice(&body).unwrap());
        }
        assert!(head.contains("content-type: text/event-stream\r\n"), "{head}");
        assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
        Ok(Self { stream, chunks: Vec::new(), text: Vec::new(), ended: false, id: None })
    }

    /// Returns the next event; `None` at the stream's proper end.
    pub fn next(&mut self) -> Option<Event> {
        let began = Instant::now();
        loop {
            // Comments keep coming.
            assert!(began.elapsed() < LIMIT, "no event came");
            if let Some(end) = self.text.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.text.drain(..end + 2).collect();
                if let Some(event) = self.take(&String::from_utf8(block).unwrap()) {
                    return Some(event);
                }
                continue;
            }
            if self.ended {
                assert!(self.text.is_empty(), "the stream ended within an event");
                return None;
            }
            self.read();
        }
    }

    /// Returns the next event that matches.
    pub fn find(&mut self, what: &str, fits: impl Fn(&Event) -> bool) -> Event {
        loop {
            let event = self.next().unwrap_or_else(|| panic!("the stream ended before {what}"));
            if fits(&event) {
                return event;
            }
        }
    }

    /// Closes the write side of the connection.
    pub fn half_close(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Returns whether the daemon has ended the connection, after any other data.
    pub fn is_cut(&mut self) -> bool {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).is_ok_and(|_| !rest.ends_with(b"0\r\n\r\n"))
    }

    fn take(&mut self, block: &str) -> Option<Event> {
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        if let Some(id) = field("id") {
            self.id = Some(id.to_owned());
        }
        let data = field("data")?;
        assert_eq!(block.lines().filter(|line| line.starts_with("data")).count(), 1, "{block}");
        let data = serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"));
        Some(Event { kind: field("event").unwrap_or_default().to_owned(), data })
    }

    /// Reads on, and takes the complete HTTP chunks.
    fn read(&mut self) {
        let mut bytes = vec![0; 64 * 1024];
        let read = self.stream.read(&mut bytes).unwrap();
        assert!(read > 0, "the connection ended within the stream");
        self.chunks.extend_from_slice(&bytes[..read]);
        loop {
            let Some(line) = self.chunks.windows(2).position(|two| two == b"\r\n") else { return };
            let length = std::str::from_utf8(&self.chunks[..line]).unwrap();
            let length = usize::from_str_radix(length, 16).unwrap_or_else(|_| panic!("{length:?} is no chunk"));
            if self.chunks.len() < line + 2 + length + 2 {
                return;
            }
            assert_eq!(&self.chunks[line + 2 + length..line + 4 + length], b"\r\n");
            self.text.extend_from_slice(&self.chunks[line + 2..line + 2 + length]);
            self.chunks.drain(..line + 4 + length);
            if length == 0 {
                self.ended = true;
                return;
            }
        }
    }
}

/// A client of `GET /v1/stream`.
pub struct Ws {
    socket: WebSocket<UnixStream>,
    /// Messages that arrived while a response was awaited.
    early: std::collections::VecDeque<(Value, Option<Vec<u8>>)>,
    pub pings: usize,
}

/// The way in which a WebSocket ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// By a close frame.
    Closed(u16, String),
    /// Without a close frame.
    Cut,
}

impl Ws {
    pub fn open(world: &World) -> Self {
        let stream = UnixStream::connect(world.daemon_socket()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let url = format!("ws://muxtap/v1/stream{}", world.query());
        let (socket, response) = tungstenite::client::client(url, stream).unwrap();
        assert_eq!(response.status(), 101);
        Self { socket, early: std::collections::VecDeque::new(), pings: 0 }
    }

    /// Opens a connection that does no more than the handshake of RFC 6455.
    pub fn open_bare(world: &World) -> UnixStream {
        let ws = Self::open(world);
        let stream = ws.socket.get_ref().try_clone().unwrap();
        // Dropping it sends nothing.
        drop(ws);
        stream
    }

    pub fn send(&mut self, message: &Value) {
        self.send_text(&message.to_string());
    }

    pub fn send_text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).unwrap();
    }

    pub fn send_binary(&mut self, bytes: &[u8]) {
        self.socket.send(Message::binary(bytes.to_vec())).unwrap();
    }

    /// Returns the next message, with its bytes if it was a binary frame.
    pub fn message(&mut self) -> (Value, Option<Vec<u8>>) {
        self.early.pop_front().unwrap_or_else(|| self.read().unwrap_or_else(|end| panic!("the stream ended: {end:?}")))
    }

    /// Returns the next event of any subscription.
    pub fn event(&mut self) -> Value {
        let (message, _) = self.message();
        assert!(message["event"].is_object(), "{message}");
        message
    }

    /// Returns the next event that matches.
    pub fn find(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let (message, _) = self.message();
            if fits(&message) {
                return message;
            }
        }
    }

    /// Sends a request and waits for the response with its id; earlier messages are kept.
    pub fn ask(&mut self, request: &Value) -> Value {
        self.send(request);
        loop {
            let (message, bytes) = self.read().unwrap_or_else(|end| panic!("{request}: {end:?}"));
            if message.get("sub").is_none() && message["id"] == request["id"] {
                return message;
            }
            self.early.push_back((message, bytes));
        }
    }

    /// Sends a request, which must succeed, and waits for its result.
    pub fn ok(&mut self, request: &Value) -> Value {
        let answer = self.ask(request);
        assert!(answer["ok"].is_object(), "{request}: {answer}");
        answer["ok"].clone()
    }

    /// Sends a request, which must fail with this code, and waits for the message.
    pub fn error(&mut self, request: &Value, code: &str) -> String {
        let answer = self.ask(request);
        assert_eq!(answer["error"]["code"], code, "{request}: {answer}");
        answer["error"]["message"].as_str().unwrap().to_owned()
    }

    pub fn subscribe(&mut self, id: u64, fields: &Value) -> Value {
        let mut request = json!({"id": id, "op": "subscribe"});
        request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.ok(&request)
    }

    /// Reads everything up to the end.
    pub fn end(&mut self) -> End {
        loop {
            if let Err(end) = self.read() {
                return end;
            }
        }
    }

    /// Starts the closing handshake of RFC 6455.
    pub fn close(&mut self) {
        let frame = CloseFrame { code: 1000.into(), reason: "".into() };
        self.socket.close(Some(frame)).unwrap();
    }

    /// Closes the write side of the connection.
    pub fn half_close(&self) {
        self.socket.get_ref().shutdown(Shutdown::Write).unwrap();
    }

    fn read(&mut self) -> Result<(Value, Option<Vec<u8>>), End> {
        let began = Instant::now();
        loop {
            // Pings keep coming.
            assert!(began.elapsed() < LIMIT, "no message came");
            match self.socket.read() {
                Ok(Message::Text(text)) => return Ok((serde_json::from_str(&text).unwrap(), None)),
                Ok(Message::Binary(frame)) => {
                    let (length, rest) = frame.split_at(4);
                    let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
                    let (head, bytes) = rest.split_at(length);
                    return Ok((serde_json::from_slice(head).unwrap(), Some(bytes.to_vec())));
                }
                Ok(Message::Ping(_)) => self.pings += 1,
                Ok(Message::Close(Some(CloseFrame { code, reason }))) => {
                    return Err(End::Closed(code.into(), reason.to_string()));
                }
                Ok(Message::Close(None)) => return Err(End::Closed(1005, String::new())),
                Ok(_) => {}
                // The peer has closed before the pong for its last ping; its last messages can
                // still be read.
                Err(tungstenite::Error::Io(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
                Err(_) => return Err(End::Cut),
            }
        }
    }
}

/// Creates a client on a connection that was opened by [`Ws::open_bare`].
pub fn speak(stream: UnixStream) -> Ws {
    let socket = WebSocket::from_raw_socket(stream, Role::Client, None);
    Ws { socket, early: std::collections::VecDeque::new(), pings: 0 }
}

/// Returns the bytes in an `output` event of format `raw`.
pub fn raw(event: &Value) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(event["data"].as_str().unwrap()).unwrap()
}

/// A reader of a pane that prints `line 1`, `line 2` and so on; a missing line needs a gap.
#[derive(Default)]
pub struct Numbered {
    rest: String,
    last: Option<u64>,
    highest: u64,
    /// A gap was reported: the current line is cut, and the next one may be.
    torn: bool,
    pub gaps: usize,
    pub lines: u64,
    /// Other lines.
    pub others: Vec<String>,
}

impl Numbered {
    /// Handles the gap and the text of an `output` event.
    pub fn event(&mut self, event: &Value) {
        if !event["gap"].is_null() {
            self.gaps += 1;
            self.torn = true;
            self.rest.clear();
        }
        self.text(event["text"].as_str().unwrap());
    }

    fn text(&mut self, text: &str) {
        self.rest.push_str(text);
        let all = std::mem::take(&mut self.rest);
        let (lines, rest) = all.split_at(all.rfind('\n').map_or(0, |end| end + 1));
        lines.lines().for_each(|line| self.line(line.trim_end()));
        rest.clone_into(&mut self.rest);
    }

    fn line(&mut self, line: &str) {
        let number = line.strip_prefix("line ").and_then(|number| number.parse::<u64>().ok());
        match (number, self.last) {
            // The first line after a gap may be a part of one.
            _ if std::mem::take(&mut self.torn) => {
                self.last = None;
                return;
            }
            (Some(number), Some(last)) => assert_eq!(number, last + 1, "lines are missing or told twice"),
            (Some(number), None) => assert!(number > self.highest, "line {number} was told already"),
            (None, _) => {
                self.others.push(line.to_owned());
                return;
            }
        }
        self.lines += 1;
        self.last = number;
        self.highest = number.unwrap_or(self.highest);
    }

    pub fn last(&self) -> Option<u64> {
        self.last
    }
}

/// A screen that is drawn from events alone.
#[derive(Default)]
pub struct Drawn {
    pub rows: Vec<String>,
    pub cursor: (u64, u64),
    pub alternate: bool,
}

impl Drawn {
    pub fn event(&mut self, event: &Value) {
        let height = usize::try_from(event["size"]["height"].as_u64().unwrap()).unwrap();
        self.rows.resize(height, String::new());
        let (rows, lines) = (event["rows"].as_array().unwrap(), event["lines"].as_array().unwrap());
        assert_eq!(rows.len(), lines.len());
        for (row, line) in rows.iter().zip(lines) {
            line.as_str().unwrap().clone_into(&mut self.rows[usize::try_from(row.as_u64().unwrap()).unwrap()]);
        }
        self.cursor = (event["cursor_x"].as_u64().unwrap(), event["cursor_y"].as_u64().unwrap());
        self.alternate = event["alternate"].as_bool().unwrap();
    }

    /// Returns the screen as `capture-pane -p` prints it.
    pub fn text(&self) -> String {
        self.rows.join("\n")
    }
}
