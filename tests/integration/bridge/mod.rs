//! The spreadsheet bridge as its client sees it: the real program, real sockets, whole responses.

mod access;
mod actions;
mod names;
mod startup;
mod stub;
mod tls;
mod trouble;
mod validation;
mod waits;

use std::{
    fmt::Write as _,
    io::{Read as _, Write as _},
    marker::PhantomData,
    net::{SocketAddr, TcpStream},
    process::Command,
};

use serde_json::Value;

use crate::common::{Answer, Background, LIMIT, World, eventually, signal};

/// The origin of an allowed page.
pub const ORIGIN: &str = "https://localhost:3000";

/// Clears the screen and the history. The effect of `clear` depends on the terminal's name, which
/// 3.2a sets to `screen`: with that name it leaves the history (N63).
pub const CLEAR: &str = r"printf '\033[H\033[2J\033[3J'";

/// A running bridge.
pub struct Bridge<'a> {
    /// A borrow of the world, which must outlive the bridge.
    _world: PhantomData<&'a World>,
    pub process: Background,
    /// The bridge's startup lines.
    pub lines: Vec<String>,
    pub port: u16,
}

/// A connection to a bridge, kept alive.
pub struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

/// A whole response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    /// The names are in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

/// Builds the start of a bridge's command line, on a free port.
pub fn command(world: &World, vars: &[(&str, &str)]) -> Command {
    let mut command = world.plain_muxtap_command();
    command.arg("bridge").env("PORT", "0").env("TMUX_BRIDGE_SOCKET_PATH", world.socket()).envs(vars.iter().copied());
    command
}

impl<'a> Bridge<'a> {
    /// Starts a bridge with tmux.
    pub fn new(world: &'a World) -> Self {
        Self::with(world, &[])
    }

    /// Starts a bridge without tmux.
    pub fn stub(world: &'a World) -> Self {
        Self::with(world, &[("TMUX_BRIDGE_MODE", "stub")])
    }

    /// Starts a bridge with these variables.
    pub fn with(world: &'a World, vars: &[(&str, &str)]) -> Self {
        Self::start(world, &mut command(world, vars))
    }

    pub fn start(_: &'a World, command: &mut Command) -> Self {
        // It serves for the whole test, which takes long on a busy machine.
        let mut process = Background::start_with(command, LIMIT * 5);
        let mut lines = Vec::new();
        // All are written at once, and the fifth is in every mode.
        while lines.len() < 5 {
            match process.line() {
                Some(line) => lines.push(line),
                None => panic!("the bridge ended: {:?}", process.finish()),
            }
        }
        let port = lines[0].rsplit(':').next().unwrap().parse().unwrap();
        Self { _world: PhantomData, process, lines, port }
    }

    /// Opens a connection from this machine.
    pub fn client(&self) -> Client {
        Client::connect(SocketAddr::from(([127, 0, 0, 1], self.port)))
    }

    /// Carries out one action on a new connection; returns the whole response.
    pub fn act(&self, body: &Value) -> Reply {
        self.client().act(body)
    }

    /// Carries out one action on a new connection, which must succeed; returns its JSON.
    pub fn ok(&self, body: &Value) -> Value {
        let reply = self.act(body);
        assert_eq!(reply.status, 200, "{body}: {reply:?}");
        reply.json()
    }

    /// Creates a session whose shell waits and has no prompt: text typed before a prompt would not
    /// begin its line.
    pub fn session(&self, name: &str) {
        self.ok(&serde_json::json!({"action": "create_session", "session": name}));
        eventually("a prompt", || !self.screen(name).trim().is_empty());
        let text = format!("PS1=; {CLEAR}");
        self.ok(&serde_json::json!({"action": "send_keys", "session": name, "text": text, "enter": true}));
        eventually("no prompt", || self.screen(name).trim().is_empty());
    }

    /// Returns the current screen of a session.
    pub fn screen(&self, session: &str) -> String {
        let shown = self.ok(&serde_json::json!({"action": "capture_pane", "session": session}));
        shown["output"].as_str().unwrap().to_owned()
    }

    /// Ends the bridge like a user would; returns its exit.
    pub fn stop(self) -> Answer {
        signal(self.process.pid(), rustix::process::Signal::TERM);
        self.process.finish()
    }
}

impl Client {
    pub fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_nodelay(true).unwrap();
        // Longer than any wait of the tests.
        stream.set_read_timeout(Some(LIMIT * 3)).unwrap();
        Self { stream, read: Vec::new() }
    }

    /// Sends a request with only these headers, its length and, if they have none, `Host`.
    pub fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let is_named = headers.iter().any(|(name, _)| *name == "Host");
        let host = if is_named { "" } else { "Host: localhost\r\n" };
        let mut head = format!("{method} {path} HTTP/1.1\r\n{host}");
        for (name, value) in headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        write!(head, "Content-Length: {}\r\n\r\n", body.len()).unwrap();
        self.write(head.as_bytes());
        self.write(body);
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Returns whether no part of a response has arrived yet.
    pub fn is_silent(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Returns the next response. `None`: the connection was closed.
    pub fn receive(&mut self) -> Option<Reply> {
        self.receive_to("GET")
    }

    /// Returns the response to a request of this method: to `HEAD` it has no body.
    pub fn receive_to(&mut self, method: &str) -> Option<Reply> {
        let mut chunk = vec![0; 64 * 1024];
        loop {
            if let Some((mut reply, head, length)) = self.head() {
                let length = if method == "HEAD" { 0 } else { length };
                if self.read.len() >= head + length {
                    reply.body = String::from_utf8(self.read[head..head + length].to_vec()).unwrap();
                    self.read.drain(..head + length);
                    return Some(reply);
                }
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(length) => self.read.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    fn head(&self) -> Option<(Reply, usize, usize)> {
        let end = self.read.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let head = std::str::from_utf8(&self.read[..end]).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<_> = lines
            .map(|line| line.split_once(':').unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length = length.map_or(0, |(_, length)| length.parse().unwrap());
        Some((Reply { status, headers, body: String::new() }, end, length))
    }

    /// Sends a request and returns its response.
    pub fn ask(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        self.send(method, path, headers, body);
        self.receive_to(method).expect("an answer")
    }

    /// Returns the endpoint's response to this body.
    pub fn post(&mut self, body: &[u8]) -> Reply {
        self.ask("POST", "/v1/tmux", &[("Origin", ORIGIN), ("Content-Type", "application/json")], body)
    }

    pub fn act(&mut self, body: &Value) -> Reply {
        self.post(body.to_string().as_bytes())
    }

    /// Sends a request without waiting.
    pub fn begin(&mut self, body: &Value) {
        self.send("POST", "/v1/tmux", &[("Origin", ORIGIN)], body.to_string().as_bytes());
    }
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("not JSON ({error}): {self:?}"))
    }

    /// Asserts that the response is JSON for this page, regardless of its body.
    pub fn is_for(&self, origin: &str) {
        let expected = [
            ("content-type", "application/json; charset=utf-8"),
            ("access-control-allow-origin", origin),
            ("vary", "Origin"),
            ("access-control-allow-methods", "GET,POST,OPTIONS"),
            ("access-control-allow-headers", "content-type,authorization"),
            ("access-control-max-age", "86400"),
        ];
        for (name, value) in expected {
            assert_eq!(self.header(name), Some(value), "{name}: {self:?}");
        }
        assert_eq!(self.header("content-length"), Some(self.body.len().to_string().as_str()), "{self:?}");
    }
}

/// Builds the body of an error.
pub fn error(message: &str) -> String {
    format!("{{\"ok\":false,\"error\":{}}}", serde_json::to_string(message).unwrap())
}
