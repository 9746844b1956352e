//! A request to the daemon over a blocking connection, in a process without a runtime.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
};

use hyper::{Method, StatusCode};
use muxtap_tmux::death;
use serde::de::DeserializeOwned;

use super::{caller::Caller, client, one_request::Ask, url};
use crate::{
    api::{Error, wire},
    daemon::start,
};

/// The longest valid head of a reply, in bytes.
const MAX_HEAD: usize = 64 * 1024;
/// The most headers of a valid reply.
const MAX_HEADERS: usize = 32;

/// A reply to a request.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    /// The daemon's version.
    version: Option<String>,
    body: Vec<u8>,
}

impl Reply {
    /// Parses the body: the response, or the daemon's error.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        if self.status.is_success() {
            client::answer(&self.body)
        } else {
            Err(client::refusal(self.status, &self.body))
        }
    }
}

/// Sends a request and reads the reply. `None`: the request was not sent, or is a `GET` without a
/// usable reply. Error: a request that may have changed something has no reply.
pub(super) fn exchange(caller: &Caller, ask: &Ask) -> Option<Result<Reply, Error>> {
    let mut connection = Connection::open(caller)?;
    match connection.ask(ask, &mut |_| Ok(())) {
        Ok(reply) => Some(Ok(reply)),
        Err(_) if ask.method == Method::GET => None,
        Err(error) => Some(Err(connection.perhaps_done(&error))),
    }
}

/// Sends a request to the daemon that runs, and waits for the reply, without any output. `None`: there
/// is no daemon, or no reply.
pub(super) fn ask_quietly(caller: &Caller, ask: &Ask) -> Option<()> {
    let mut connection = Connection::open(caller)?;
    let head = head(ask, &connection.query).into_bytes();
    send_and_read(&mut connection.stream, head, ask.body.as_deref(), &mut |_| Ok(())).ok()?;
    Some(())
}

/// A blocking connection to the daemon that runs.
pub(super) struct Connection<'c> {
    caller: &'c Caller,
    query: String,
    stream: UnixStream,
}

impl<'c> Connection<'c> {
    /// Connects. `None`: no daemon is running, or it is in an unusual state.
    pub(super) fn open(caller: &'c Caller) -> Option<Self> {
        // On other systems the runtime's own means find the owner of the socket's other end.
        if !cfg!(target_os = "linux") {
            return None;
        }
        Some(Self { caller, query: caller.query().ok()?, stream: start::connect(&caller.paths).ok()?? })
    }

    /// Connects again if the same daemon is still there.
    pub(super) fn reopen(&self) -> Option<Self> {
        let again = Self::open(self.caller)?;
        (again.process().is_some() && again.process() == self.process()).then_some(again)
    }

    /// Sends a request and reads its reply. `before_read` blocks until a read is worth trying; its
    /// error ends the exchange.
    pub(super) fn ask(
        &mut self,
        ask: &Ask,
        before_read: &mut dyn FnMut(&UnixStream) -> io::Result<()>,
    ) -> io::Result<Reply> {
        let reply =
            send_and_read(&mut self.stream, head(ask, &self.query).into_bytes(), ask.body.as_deref(), before_read)?;
        client::warn_of_other_version(reply.version.as_deref());
        Ok(reply)
    }

    /// Returns the error for a reply that did not come, which says whether the daemon has gone.
    pub(super) fn lost(&self, error: &io::Error) -> Error {
        let ended = self.process().filter(|process| death::ends_within(*process, client::END_LIMIT));
        client::lost(&self.caller.paths, ended, error)
    }

    /// Returns the same error for a request that may have changed something.
    pub(super) fn perhaps_done(&self, error: &io::Error) -> Error {
        let mut lost = self.lost(error);
        lost.message.push_str(client::PERHAPS_DONE);
        lost
    }

    fn process(&self) -> Option<u32> {
        process_behind(&self.stream)
    }
}

/// Returns the request up to its body.
fn head(ask: &Ask, own_query: &str) -> String {
    let (uri, method) = (url::joined(&ask.path, own_query, ""), &ask.method);
    let mut head = format!("{method} {uri} HTTP/1.1\r\nhost: muxtap\r\n");
    if let Some(key) = &ask.key {
        head.extend([wire::IDEMPOTENCY_KEY, ": ", key, "\r\n"]);
    }
    if let Some(body) = &ask.body {
        head.extend(["content-type: application/json\r\ncontent-length: ", &body.len().to_string(), "\r\n"]);
    }
    head + "\r\n"
}

fn send_and_read(
    stream: &mut UnixStream,
    mut request: Vec<u8>,
    body: Option<&[u8]>,
    before_read: &mut dyn FnMut(&UnixStream) -> io::Result<()>,
) -> io::Result<Reply> {
    request.extend_from_slice(body.unwrap_or_default());
    stream.write_all(&request)?;
    let mut bytes = Vec::new();
    let mut chunk = [0; 8192];
    let (mut reply, head, length) = loop {
        before_read(stream)?;
        let read = match stream.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            return Err(broken("connection closed before message completed"));
        }
        bytes.extend_from_slice(chunk.get(..read).unwrap_or_default());
        if let Some(parsed) = parse_head(&bytes)? {
            break parsed;
        }
        if bytes.len() > MAX_HEAD {
            return Err(broken("the response's head is too long"));
        }
    };
    reply.body = bytes.split_off(head);
    let rest =
        length.checked_sub(reply.body.len() as u64).ok_or_else(|| broken("the response is longer than announced"))?;
    if (stream.take(rest).read_to_end(&mut reply.body)? as u64) < rest {
        return Err(broken("end of file before message length reached"));
    }
    Ok(reply)
}

/// Returns a reply without its body, and the lengths of head and body. `None`: the head is
/// incomplete.
fn parse_head(bytes: &[u8]) -> io::Result<Option<(Reply, usize, u64)>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut headers);
    let head = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(broken(&error.to_string())),
    };
    let header = |name: &str| {
        let found = parsed.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.and_then(|header| std::str::from_utf8(header.value).ok())
    };
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok());
    let length = header("content-length").and_then(|length| length.parse().ok());
    let (Some(status), Some(length), None) = (status, length, header("transfer-encoding")) else {
        return Err(broken("the response has no length"));
    };
    Ok(Some((Reply { status, version: header(wire::VERSION).map(str::to_owned), body: Vec::new() }, head, length)))
}

fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

#[cfg(target_os = "linux")]
fn process_behind(stream: &UnixStream) -> Option<u32> {
    let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
    u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
}

#[cfg(not(target_os = "linux"))]
fn process_behind(_: &UnixStream) -> Option<u32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLY: &str = "HTTP/1.1 200 OK\r\nMuxtap-Version: 9\r\ncontent-length: 2\r\n\r\n{}";

    #[test]
    fn a_head_is_whole_or_goes_on() {
        let head = REPLY.len() - 2;
        for end in 0..head {
            assert!(parse_head(&REPLY.as_bytes()[..end]).unwrap().is_none(), "{end}");
        }
        let (reply, at, length) = parse_head(REPLY.as_bytes()).unwrap().unwrap();
        assert_eq!((reply.status.as_u16(), reply.version.as_deref(), at, length), (200, Some("9"), head, 2));
    }

    #[test]
    fn an_answer_of_unknown_length_is_none() {
        for head in ["", "content-length: x\r\n", "content-length: 2\r\ntransfer-encoding: chunked\r\n"] {
            assert!(parse_head(format!("HTTP/1.1 200 OK\r\n{head}\r\n").as_bytes()).is_err(), "{head}");
        }
        assert!(parse_head(b"SSH-2.0-OpenSSH\r\n\r\n").is_err());
    }

    #[test]
    fn a_reply_comes_in_pieces_and_is_not_half() {
        for (sent, whole) in [(REPLY.len(), true), (REPLY.len() - 1, false), (30, false), (0, false)] {
            let (mut here, mut there) = UnixStream::pair().unwrap();
            let sent = &REPLY.as_bytes()[..sent];
            let other = std::thread::spawn(move || {
                let mut asked = [0; 64];
                let read = there.read(&mut asked).unwrap();
                for byte in sent {
                    there.write_all(&[*byte]).unwrap();
                }
                asked[..read].to_vec()
            });
            let reply = send_and_read(&mut here, b"GET".to_vec(), Some(b"{}"), &mut |_| Ok(()));
            assert_eq!(reply.is_ok_and(|reply| reply.body == b"{}"), whole, "{sent:?}");
            assert_eq!(other.join().unwrap(), b"GET{}");
        }
    }
}
