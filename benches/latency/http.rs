//! A blocking client with one keep-alive connection: the cost for the simplest caller.

use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::Path,
};

use serde_json::Value;

/// A connection to the daemon.
pub struct Http {
    stream: Box<dyn Stream>,
    read: Vec<u8>,
    /// `socket=…` of the requested tmux server.
    server: String,
    /// The header lines of each request.
    headers: String,
}

trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

impl Http {
    pub fn new(daemon: &Path, server: &Path) -> Self {
        let stream = UnixStream::connect(daemon).expect("the daemon answers");
        Self::on(Box::new(stream), server, "host: bench\r\n".into())
    }

    /// Connects to the daemon over TCP.
    pub fn over_tcp(addr: &str, token: &str, server: &Path) -> Self {
        let stream = TcpStream::connect(addr).expect("the daemon answers");
        stream.set_nodelay(true).expect("a TCP option");
        Self::on(Box::new(stream), server, format!("host: {addr}\r\nauthorization: Bearer {token}\r\n"))
    }

    /// Connects to a bridge like a page of this origin.
    pub fn as_page(addr: &str, origin: &str) -> Self {
        let stream = TcpStream::connect(addr).expect("the bridge answers");
        stream.set_nodelay(true).expect("a TCP option");
        // The query is ignored there.
        Self::on(Box::new(stream), Path::new(""), format!("host: {addr}\r\norigin: {origin}\r\n"))
    }

    fn on(stream: Box<dyn Stream>, server: &Path, headers: String) -> Self {
        Self { stream, read: Vec::new(), server: format!("socket={}", server.display()), headers }
    }

    /// Sends a request. `path` may have a query.
    pub fn send(&mut self, method: &str, path: &str, body: &str) {
        let and = if path.contains('?') { '&' } else { '?' };
        let request = format!(
            "{method} {path}{and}{} HTTP/1.1\r\n{}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.server,
            self.headers,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).expect("the daemon reads");
    }

    /// Returns the body of the next response.
    pub fn receive(&mut self) -> Vec<u8> {
        let mut chunk = vec![0; 64 * 1024];
        loop {
            if let Some((head, length)) = head(&self.read)
                && self.read.len() >= head + length
            {
                let body = self.read[head..head + length].to_vec();
                self.read.drain(..head + length);
                return body;
            }
            let read = self.stream.read(&mut chunk).expect("the daemon answers");
            assert!(read > 0, "the daemon closed the connection");
            self.read.extend_from_slice(&chunk[..read]);
        }
    }

    pub fn get(&mut self, path: &str) -> Value {
        self.send("GET", path, "");
        serde_json::from_slice(&self.receive()).expect("JSON")
    }

    /// Returns the sum of a metric's samples.
    pub fn metric(&mut self, name: &str) -> f64 {
        self.send("GET", "/metrics", "");
        let text = String::from_utf8(self.receive()).expect("text");
        let samples = text.lines().filter(|line| line.starts_with(name));
        samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

/// Returns where the head of the first of these responses ends, and the length of its body.
pub fn head(read: &[u8]) -> Option<(usize, usize)> {
    let end = memchr::memmem::find(read, b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&read[..end]).ok()?;
    // An error would be fast too.
    assert!(head.starts_with("HTTP/1.1 2"), "{}", String::from_utf8_lossy(read));
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    Some((end, length.parse().ok()?))
}
