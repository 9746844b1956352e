//! Relays stdin and stdout to the daemon, or hands them over, on a connection upgraded to another
//! protocol.

use std::{
    io::{Read, Write},
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Empty;
use hyper::{
    HeaderMap, Request, StatusCode,
    client::conn::http1,
    header::{self, AsHeaderName},
};
use hyper_util::rt::TokioIo;
use muxtap_net::handed;

use crate::api::{Error, Result};

/// The number of bytes relayed at once.
const CHUNK_BYTES: usize = 64 << 10;

/// A connection to the daemon that uses a protocol other than HTTP.
pub(super) struct Upgraded {
    stream: UnixStream,
    /// Bytes that came with the daemon's response.
    first: Bytes,
    /// The head of the daemon's response.
    headers: HeaderMap,
}

/// Which side of a relay ended first.
pub(super) enum Ended {
    /// Stdin.
    Client,
    /// The daemon.
    Daemon,
}

fn lost(error: &dyn std::fmt::Display) -> Error {
    Error::unavailable(format!("the connection to the daemon was lost: {error}"))
}

impl Upgraded {
    /// Requests `protocol` on this connection. `offer`: an additional header of the request.
    pub(super) async fn open(
        stream: UnixStream,
        path: &str,
        protocol: &str,
        offer: Option<(&str, &str)>,
    ) -> Result<Self> {
        stream.set_nonblocking(true).map_err(|error| lost(&error))?;
        let stream = tokio::net::UnixStream::from_std(stream).map_err(|error| lost(&error))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| lost(&error))?;
        tokio::spawn(connection.with_upgrades());
        let mut request = Request::get(path)
            .header(header::HOST, "muxtap")
            .header(header::CONNECTION, "upgrade")
            .header(header::UPGRADE, protocol);
        if let Some((name, value)) = offer {
            request = request.header(name, value);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| lost(&error))?;
        let answer = sender.send_request(request).await.map_err(|error| lost(&error))?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(Error::unavailable(format!(
                "the daemon does not speak {protocol} ({}); `muxtap stop` stops an old daemon",
                answer.status()
            )));
        }
        let headers = answer.headers().clone();
        let upgraded = hyper::upgrade::on(answer).await.map_err(|error| lost(&error))?;
        let parts = upgraded.downcast::<TokioIo<tokio::net::UnixStream>>().map_err(|_| lost(&"not a socket"))?;
        let stream = parts.io.into_inner().into_std().map_err(|error| lost(&error))?;
        // From here on blocking threads: they wake up fastest.
        stream.set_nonblocking(false).map_err(|error| lost(&error))?;
        Ok(Self { stream, first: parts.read_buf, headers })
    }

    /// Returns the values of a header of the daemon's response.
    pub(super) fn header(&self, name: impl AsHeaderName) -> impl Iterator<Item = &str> {
        self.headers.get_all(name).iter().filter_map(|value| value.to_str().ok())
    }

    /// Hands stdin and stdout over to the daemon, and waits until one side has closed.
    pub(super) async fn hand_over(self, stdio: (OwnedFd, OwnedFd)) -> Result<Ended> {
        match tokio::task::spawn_blocking(move || hand_over(&self.stream, &self.first, stdio)).await {
            Ok(ended) => ended.map_err(|error| lost(&error)),
            Err(error) => Err(Error::internal(error.to_string())),
        }
    }

    /// Relays between stdin and stdout and the daemon until one side has closed. `to_daemon`,
    /// `to_client`: the first bytes for each.
    pub(super) async fn relay(self, to_daemon: &[u8], to_client: &[u8]) -> Result<Ended> {
        let first = [to_client, &self.first].concat();
        (&self.stream).write_all(to_daemon).map_err(|error| lost(&error))?;
        match tokio::task::spawn_blocking(move || relay(self.stream, &first)).await {
            Ok(ended) => ended,
            Err(error) => Err(Error::internal(error.to_string())),
        }
    }
}

/// How long the daemon may take to be ready for stdin and stdout and to accept them.
const READY_LIMIT: Duration = Duration::from_secs(10);

fn hand_over(stream: &UnixStream, first: &[u8], (stdin, stdout): (OwnedFd, OwnedFd)) -> std::io::Result<Ended> {
    let mut told = first.chain(stream);
    let mut ready = [0];
    stream.set_read_timeout(Some(READY_LIMIT))?;
    told.read_exact(&mut ready)?;
    handed::send(stream, [&stdin, &stdout])?;
    drop((stdin, stdout));
    told.read_exact(&mut ready)?;
    stream.set_read_timeout(None)?;
    loop {
        match told.read(&mut ready) {
            Ok(0) => return Ok(Ended::Daemon),
            Ok(_) => return Ok(Ended::Client),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn relay(mut from: UnixStream, first: &[u8]) -> Result<Ended> {
    let mut to = from.try_clone().map_err(|error| lost(&error))?;
    let is_over = Arc::new(AtomicBool::new(false));
    let client = is_over.clone();
    std::thread::spawn(move || {
        // After any end, the client has sent everything; pending responses are relayed below.
        let _ = copy(&mut std::io::stdin().lock(), &mut to);
        client.store(true, Ordering::SeqCst);
        let _ = to.shutdown(Shutdown::Write);
    });
    let mut stdout = std::io::stdout().lock();
    let passed = stdout.write_all(first).and_then(|()| stdout.flush()).and_then(|()| copy(&mut from, &mut stdout));
    if is_over.load(Ordering::SeqCst) {
        // An exited client does not need its last responses.
        return Ok(Ended::Client);
    }
    passed.map_err(|error| lost(&error))?;
    Ok(Ended::Daemon)
}

/// Copies bytes as they arrive, until the end.
fn copy(from: &mut impl Read, to: &mut impl Write) -> std::io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all(chunk.get(..read).unwrap_or_default())?;
        to.flush()?;
    }
}
