//! Accepting connections and speaking HTTP on them.

use std::{io, sync::Arc, time::Duration};

use axum::{Extension, Router};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Peer, stalled::Stalled};

/// What a connection may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; more wait until one ends.
    pub connections: usize,
    /// A request's head, its encryption's handshake and a silent connection may take this long each.
    pub head: Option<Duration>,
    /// A client that takes no byte of an answer for this long is dropped.
    pub stall: Option<Duration>,
    /// After the end of the service, open answers may take this long.
    pub grace: Duration,
}

/// Connections over TCP at once.
const CONNECTIONS: usize = 4096;
/// Connections on the Unix socket at once.
const LOCAL_CONNECTIONS: usize = 8192;
/// How long a request's head, its encryption's handshake and a silent connection may take over TCP.
const HEAD: Duration = Duration::from_secs(30);
/// How long a client over TCP may take no byte of its answer.
const STALL: Duration = Duration::from_secs(60);
/// How long open answers may take after the end.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes of a request's head.
const HEAD_BYTES: usize = 64 * 1024;
/// After a failed accept (no descriptors left, mostly) it is tried again in this time: nothing tells when it would succeed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Limits {
    /// For programs of this user: their readers may stop for as long as they like (`tail | less`).
    pub const LOCAL: Self = Self { connections: LOCAL_CONNECTIONS, head: None, stall: None, grace: GRACE };
    /// For whatever comes over TCP.
    pub const TCP: Self = Self { connections: CONNECTIONS, head: Some(HEAD), stall: Some(STALL), grace: GRACE };
}

/// Where connections come from.
pub enum Listener {
    /// A Unix socket; only this user and root are served on it.
    Unix(UnixListener),
    /// A TCP port.
    Tcp(TcpListener),
    /// A TCP port, encrypted.
    Tls(TcpListener, TlsAcceptor),
}

/// Serves until `stop` is cancelled, and then until open answers are written or the time for that has run out.
pub async fn serve(listener: Listener, router: Router, limits: Limits, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let (connections, cut) = (TaskTracker::new(), CancellationToken::new());
    let acceptor = match &listener {
        Listener::Tls(_, acceptor) => Some(acceptor.clone()),
        _ => None,
    };
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let place = places.clone().acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            accepted = accepted => accepted,
            () = stop.cancelled() => break,
        };
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (router, acceptor, stop, cut) = (router.clone(), acceptor.clone(), stop.clone(), cut.clone());
        connections.spawn(async move {
            let _place = place;
            tokio::select! {
                spoken = speak(accepted, acceptor, router, limits, stop) => {
                    if let Err(error) = spoken {
                        tracing::debug!("a connection ended: {error}");
                    }
                }
                () = cut.cancelled() => {}
            }
        });
    }
    drop(listener);
    connections.close();
    if timeout(limits.grace, connections.wait()).await.is_err() {
        tracing::warn!("{} connections are cut", connections.len());
        cut.cancel();
        connections.wait().await;
    }
}

enum Accepted {
    Unix(tokio::net::UnixStream, Peer),
    Tcp(tokio::net::TcpStream, Peer),
}

impl Listener {
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let found = stream.peer_cred()?;
                let peer = Peer::Unix { uid: found.uid(), pid: found.pid() };
                Ok(Accepted::Unix(stream, peer))
            }
            Self::Tcp(listener) | Self::Tls(listener, _) => {
                let (stream, addr) = listener.accept().await?;
                // An answer is one small write: it must not wait for the acknowledgement of the one before.
                stream.set_nodelay(true)?;
                Ok(Accepted::Tcp(stream, Peer::Tcp { addr, tls: matches!(self, Self::Tls(..)) }))
            }
        }
    }
}

async fn speak(
    accepted: Accepted,
    acceptor: Option<TlsAcceptor>,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    match accepted {
        Accepted::Unix(stream, peer) => {
            let own = rustix::process::getuid().as_raw();
            if !matches!(peer, Peer::Unix { uid, .. } if uid == own || uid == 0) {
                tracing::warn!("refused a connection of {peer}");
                return Ok(());
            }
            http(stream, peer, router, limits, stop).await
        }
        Accepted::Tcp(stream, peer) => match acceptor {
            Some(acceptor) => {
                let handshake = acceptor.accept(stream);
                let stream = match limits.head {
                    Some(limit) => timeout(limit, handshake).await??,
                    None => handshake.await?,
                };
                http(stream, peer, router, limits, stop).await
            }
            None => http(stream, peer, router, limits, stop).await,
        },
    }
}

async fn http(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let io = TokioIo::new(Stalled::new(stream, limits.stall));
    let service = TowerToHyperService::new(router.layer(Extension(peer)));
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).max_buf_size(HEAD_BYTES).header_read_timeout(limits.head);
    let connection = builder.serve_connection(io, service).with_upgrades();
    tokio::pin!(connection);
    tokio::select! {
        ended = &mut connection => return Ok(ended?),
        () = stop.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    Ok(connection.await?)
}

#[cfg(test)]
mod tests;
