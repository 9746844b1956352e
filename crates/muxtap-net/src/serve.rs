//! Accepts connections and serves HTTP on them.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use axum::{Router, extract::Request, response::Response};
use futures_util::{FutureExt as _, future::BoxFuture};
use hyper::{body::Incoming, server::conn::http1, service::Service};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use muxtap_base::descriptors::{
    self,
    reserve::{self, Lent},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::timeout,
};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Peer,
    held::{begins_later, holding},
    owner::{self, Ends},
    places::{self, Credential, Place, Places},
    seldom::Seldom,
};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Limits of a listener and its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most connections at once; further ones wait until one ends. Over TCP: connections whose
    /// callers have authenticated.
    pub connections: usize,
    /// Over TCP: the most connections at once whose callers have not authenticated; beyond it the
    /// oldest is closed. `None`: all callers are this user.
    pub unauthenticated: Option<usize>,
    /// The time limit for a request's head, a TLS handshake and an idle connection, each.
    pub head: Option<Duration>,
    /// The time for which a client may read nothing of its response before it is dropped.
    pub stall: Option<Duration>,
    /// The time for open responses to complete after the service stops.
    pub grace: Duration,
}

/// The most connections at once over TCP whose callers have authenticated.
const CONNECTIONS: usize = 4096;
/// The most connections at once on the Unix socket.
const LOCAL_CONNECTIONS: usize = 8192;
/// The time limit for a request's head, a TLS handshake and an idle connection over TCP.
const HEAD: Duration = Duration::from_secs(30);
/// The time for which a TCP client may read nothing of its response.
const STALL: Duration = Duration::from_secs(60);
/// The time for open responses to complete after the service stops.
const GRACE: Duration = Duration::from_secs(5);
/// The longest head of a request, in bytes.
const HEAD_BYTES: usize = 64 * 1024;
/// The TCP connections accepted in a row before the accept loop yields, so that open connections
/// can read requests that have arrived.
const IN_A_ROW: usize = 16;
/// The pause after a failed accept: no event says when the next one would succeed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The time for which a connection may hold a reserve descriptor.
const LENT_LIMIT: Duration = Duration::from_secs(5);
/// The time limit for the head of such a connection's request: idle connections must not hold the
/// whole reserve.
const LENT_HEAD: Duration = Duration::from_millis(500);

impl Limits {
    /// Limits for programs of this user: their readers may pause for any length of time
    /// (`tail | less`).
    pub const LOCAL: Self =
        Self { connections: LOCAL_CONNECTIONS, unauthenticated: None, head: None, stall: None, grace: GRACE };
    /// Limits for TCP clients.
    pub const TCP: Self = Self {
        connections: CONNECTIONS,
        unauthenticated: Some(places::UNAUTHENTICATED),
        head: Some(HEAD),
        stall: Some(STALL),
        grace: GRACE,
    };
}

/// A source of connections.
pub enum Listener {
    /// A Unix socket; only this user and root are served on it.
    Unix(UnixListener),
    /// A TCP port.
    Tcp(TcpListener),
    /// A TCP port with TLS.
    Tls(TcpListener, TlsAcceptor),
}

/// A permit to hold a connection: an extension of each request. A task that outlives its connection
/// (a WebSocket) keeps the permit.
#[derive(Clone, Debug)]
pub struct ConnectionPermit {
    place: Option<Arc<Place>>,
    _permit: Arc<(Option<OwnedSemaphorePermit>, OpenConnection)>,
}

impl ConnectionPermit {
    /// Records that the connection's caller has authenticated: from now on the connection keeps its
    /// place. Returns false if the credential has reached its limit of connections.
    pub fn authenticate(&self, credential: Credential) -> bool {
        self.place.as_ref().is_none_or(|place| place.authenticate(credential))
    }

    /// Resolves when the connection has lost its place to a newer one.
    async fn lost(&self) {
        match &self.place {
            Some(place) => place.lost().await,
            None => std::future::pending().await,
        }
    }
}

/// The number of open connections, with a notification when there are none, and whether new ones are
/// accepted.
#[derive(Clone, Debug, Default)]
pub struct OpenConnections(watch::Sender<usize>, watch::Sender<Accepts>);

/// Whether listeners accept connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Accepts {
    #[default]
    Always,
    /// New connections wait in the listeners' queues.
    NotNow,
    /// Another process has the listeners.
    NoMore,
}

impl OpenConnections {
    /// Resolves when no connection has been open for this long; each call measures anew.
    pub async fn none_for(&self, long: Duration) {
        let mut open = self.0.subscribe();
        loop {
            // The sender lives as long as `self`.
            let _ = open.wait_for(|open| *open == 0).await;
            // Any change counts, including a connection that has already ended.
            tokio::select! {
                _ = open.changed() => {}
                () = tokio::time::sleep(long) => return,
            }
        }
    }

    /// Accepts no connection until [`Self::resume`]: new ones wait in the listeners' queues.
    pub fn pause(&self) {
        self.1.send_replace(Accepts::NotNow);
    }

    /// Accepts connections again.
    pub fn resume(&self) {
        self.1.send_replace(Accepts::Always);
    }

    /// Leaves the listeners to another process. When the service stops, open responses have any time
    /// to complete.
    pub fn leave_listeners(&self) {
        self.1.send_replace(Accepts::NoMore);
    }

    /// Returns whether another process has the listeners.
    fn are_left(&self) -> bool {
        *self.1.borrow() == Accepts::NoMore
    }

    /// Resolves when connections are accepted, or no longer.
    async fn accepts(&self, wanted: bool) {
        // The sender lives as long as `self`.
        let _ = self.1.subscribe().wait_for(|accepts| (*accepts == Accepts::Always) == wanted).await;
    }

    fn one(&self) -> OpenConnection {
        self.0.send_modify(|open| *open += 1);
        OpenConnection(self.0.clone())
    }
}

/// One of the open connections, until it is dropped.
#[derive(Debug)]
struct OpenConnection(watch::Sender<usize>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

/// Marks a response that is a stream. From its first byte on, the threads that write streams drive
/// its connection, so that the thread that handles requests does no work for it.
#[derive(Clone, Copy, Debug)]
pub struct Streaming;

/// Marks the requests of a connection that was accepted with a reserve descriptor: an extension of
/// each. Requests that need another descriptor, or would hold this one, must be refused. The
/// connection is closed after one response.
#[derive(Clone, Copy, Debug)]
pub struct OutOfDescriptors;

/// Serves until `stop` is cancelled, and then until open responses are complete or
/// [`Limits::grace`] has passed. Responses marked as [`Streaming`] are written on `writers`.
///
/// Boxed: the crates that serve would compile hyper's connections once more each.
pub fn serve(
    listener: Listener,
    router: Router,
    limits: Limits,
    writers: Handle,
    open: OpenConnections,
    stop: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(accept_all(listener, router, limits, writers, open, stop))
}

async fn accept_all(
    listener: Listener,
    router: Router,
    limits: Limits,
    writers: Handle,
    open: OpenConnections,
    stop: CancellationToken,
) {
    let permits = Arc::new(Semaphore::new(limits.connections));
    let places = limits.unauthenticated.map(|number| Places::new(number, limits.connections));
    let acceptor = match &listener {
        Listener::Tls(_, acceptor) => Some(acceptor.clone()),
        _ => None,
    };
    let server = Server {
        router,
        acceptor,
        limits,
        writers,
        stop,
        all: open.clone(),
        open: TaskTracker::new(),
        cut: CancellationToken::new(),
        idle_cut: CancellationToken::new(),
        out_of_descriptors: false,
        refused: Arc::default(),
    };
    let mut is_logged = false;
    for number in 1_usize.. {
        let accepted = async {
            open.accepts(true).await;
            // The semaphore is never closed. Over TCP, connections are not limited here: they evict
            // each other until they authenticate.
            let permit = if places.is_none() {
                permits.clone().acquire_owned().await.ok()
            } else {
                if number % IN_A_ROW == 0 {
                    tokio::task::yield_now().await;
                }
                owner::keeps_up().await;
                None
            };
            tokio::select! {
                biased;
                // Accepting is cancelled before it has a connection, or it has one at once.
                () = open.accepts(false) => None,
                accepted = listener.accept_next(&mut is_logged) => Some((accepted, permit)),
            }
        };
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            () = server.stop.cancelled() => break,
        };
        let Some(((accepted, lent), permit)) = accepted else { continue };
        let place = match (&places, &accepted) {
            (Some(places), Accepted::Tcp(_, Peer::Tcp { addr, .. })) => Some(places.take(*addr)),
            _ => None,
        };
        let permit = ConnectionPermit { place, _permit: Arc::new((permit, open.one())) };
        server.open.spawn(server.clone().connection(accepted, permit, lent));
    }
    drop(listener);
    server.open.close();
    if open.are_left() {
        if timeout(limits.grace, server.open.wait()).await.is_err() {
            // Half a request must not keep the process; a response in progress does.
            server.idle_cut.cancel();
            server.open.wait().await;
        }
    } else if timeout(limits.grace, server.open.wait()).await.is_err() {
        tracing::warn!("closing {} open connections after the grace period", server.open.len());
        server.cut.cancel();
        server.open.wait().await;
    }
}

enum Accepted {
    Unix(tokio::net::UnixStream, Peer),
    Tcp(tokio::net::TcpStream, Peer),
}

impl Listener {
    /// Accepts the next connection, with a reserve descriptor if no other is free. `is_logged`:
    /// whether the failure was logged already.
    async fn accept_next(&self, is_logged: &mut bool) -> (Accepted, Option<Lent>) {
        loop {
            let error = match self.accept().await {
                Ok(accepted) => {
                    *is_logged = false;
                    reserve::refill();
                    return (accepted, None);
                }
                Err(error) => error,
            };
            if !std::mem::replace(is_logged, true) {
                tracing::warn!("cannot accept a connection: {error}");
            }
            if descriptors::are_out(&error)
                && let Some(lent) = reserve::lend()
                // Another thread may have opened a file in the meantime, or the caller may have
                // disconnected.
                && let Some(Ok(accepted)) = self.accept().now_or_never()
            {
                return (accepted, Some(lent));
            }
            tokio::select! {
                () = reserve::back() => {}
                () = tokio::time::sleep(ACCEPT_PAUSE) => {}
            }
        }
    }

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
                // A response is one small write: it must not wait for the acknowledgement of the
                // previous one.
                stream.set_nodelay(true)?;
                Ok(Accepted::Tcp(stream, Peer::Tcp { addr, tls: matches!(self, Self::Tls(..)) }))
            }
        }
    }
}

/// The state that all connections of a listener share.
#[derive(Clone)]
struct Server {
    router: Router,
    acceptor: Option<TlsAcceptor>,
    limits: Limits,
    writers: Handle,
    stop: CancellationToken,
    /// The connections of all services.
    all: OpenConnections,
    open: TaskTracker,
    /// Cancelled to cut connections in any state.
    cut: CancellationToken,
    /// Cancelled to cut connections without a response in progress.
    idle_cut: CancellationToken,
    /// Whether the connection has a reserve descriptor.
    out_of_descriptors: bool,
    /// Counts connections of other users.
    refused: Arc<Seldom>,
}

impl Server {
    /// Serves a connection to its end. `lent`: the connection's reserve descriptor, returned
    /// afterwards.
    async fn connection(mut self, accepted: Accepted, permit: ConnectionPermit, lent: Option<Lent>) {
        let cut = self.cut.clone();
        let own = permit.clone();
        self.out_of_descriptors = lent.is_some();
        let too_long = async {
            match &lent {
                Some(_) => tokio::time::sleep(LENT_LIMIT).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            served = self.serve_connection(accepted, permit) => {
                if let Err(error) = served {
                    tracing::debug!("a connection ended: {error}");
                }
            }
            () = cut.cancelled() => {}
            () = own.lost() => {}
            () = too_long => {}
        }
        drop(lent);
    }

    async fn serve_connection(self, accepted: Accepted, permit: ConnectionPermit) -> Result<(), BoxError> {
        match (accepted, self.acceptor.clone()) {
            (Accepted::Unix(stream, peer), _) => {
                let own = rustix::process::getuid().as_raw();
                if !matches!(peer, Peer::Unix { uid, .. } if uid == own || uid == 0) {
                    if let Some(refused) = self.refused.note() {
                        tracing::warn!(
                            "refused a connection from {peer} ({refused} from other users since the last such line)"
                        );
                    }
                    return Ok(());
                }
                self.http(stream, peer, None, permit).await
            }
            (Accepted::Tcp(stream, peer), Some(acceptor)) => {
                let ends = ends(&stream, peer);
                let handshake = acceptor.accept(stream);
                let stream = match self.limits.head {
                    Some(limit) => timeout(limit, handshake).await??,
                    None => handshake.await?,
                };
                self.http(stream, peer, ends, permit).await
            }
            (Accepted::Tcp(stream, peer), None) => {
                let ends = ends(&stream, peer);
                self.http(stream, peer, ends, permit).await
            }
        }
    }

    async fn http(
        self,
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        peer: Peer,
        ends: Option<Arc<Ends>>,
        permit: ConnectionPermit,
    ) -> Result<(), BoxError> {
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(self.limits.stall);
        let (is_stream, is_moved) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let has_begun = Arc::<AtomicBool>::default();
        let responding = Arc::new(());
        let is_idle = {
            let (cut, responding) = (self.idle_cut.clone(), Arc::downgrade(&responding));
            async move {
                cut.cancelled().await;
                // One is the service's own. No request begins once the connection is shut down.
                if responding.strong_count() > 1 {
                    std::future::pending::<()>().await;
                }
            }
        };
        // A layer would be created for each route, for every connection.
        let service = Requests {
            router: TowerToHyperService::new(self.router),
            peer,
            permit: permit.clone(),
            ends,
            out_of_descriptors: self.out_of_descriptors,
            is_stream: is_stream.clone(),
            is_moved: is_moved.clone(),
            has_begun: has_begun.clone(),
            responding,
        };
        let shutdown = Shutdown { stop: self.stop.clone(), all: self.all.clone(), has_begun };
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).max_buf_size(HEAD_BYTES).header_read_timeout(if self.out_of_descriptors {
            Some(LENT_HEAD)
        } else {
            self.limits.head
        });
        builder.keep_alive(!self.out_of_descriptors);
        let mut connection =
            Box::pin(builder.serve_connection(TokioIo::new(Box::pin(stream)), service).with_upgrades());
        let ended = tokio::select! {
            biased;
            ended = drive(connection.as_mut(), &shutdown, Some(&is_stream)) => ended?,
            () = is_idle => true,
        };
        if ended {
            return Ok(());
        }
        self.open.spawn_on(
            async move {
                is_moved.store(true, Ordering::Release);
                tokio::select! {
                    _ = drive(connection.as_mut(), &shutdown, None) => {}
                    () = self.cut.cancelled() => {}
                    () = permit.lost() => {}
                }
            },
            &self.writers,
        );
        Ok(())
    }
}

/// Returns the two ends of a TCP connection.
fn ends(stream: &tokio::net::TcpStream, peer: Peer) -> Option<Arc<Ends>> {
    match peer {
        Peer::Tcp { addr, .. } => Some(Arc::new(Ends::of(stream, addr))),
        Peer::Unix { .. } | Peer::Fleet => None,
    }
}

/// Returns the socket of an upgraded connection; hyper no longer reads from it. Error: the
/// connection is not a Unix socket, or more than the request was read from it.
pub fn unix_socket(upgraded: hyper::upgrade::Upgraded) -> io::Result<tokio::net::UnixStream> {
    use std::os::fd::AsFd as _;
    let parts = upgraded.downcast::<TokioIo<Pin<Box<TimeoutStream<tokio::net::UnixStream>>>>>();
    let parts = parts.map_err(|_| io::Error::other("the connection is not a Unix socket"))?;
    if !parts.read_buf.is_empty() {
        return Err(io::Error::other("unexpected data after the request"));
    }
    // The wrapper that limits the time of a write cannot be taken apart; it is dropped with its own
    // descriptor.
    let own = parts.io.inner().get_ref().as_fd().try_clone_to_owned()?;
    drop(parts);
    tokio::net::UnixStream::from_std(std::os::unix::net::UnixStream::from(own))
}

/// When a connection is shut down.
struct Shutdown {
    stop: CancellationToken,
    all: OpenConnections,
    /// Whether a request of the connection has begun.
    has_begun: Arc<AtomicBool>,
}

impl Shutdown {
    /// Returns whether the service has stopped and the connection is shut down. hyper would close one on
    /// which it has read nothing, and its caller would lose a request that is on its way: if another
    /// process has the listeners, the first request is awaited, until [`Limits::grace`] has passed.
    fn is_due(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed) || !self.all.are_left()
    }
}

/// Drives a connection until it ends or its response is a stream. Returns whether it has ended.
async fn drive<I, S>(
    mut connection: Pin<&mut http1::UpgradeableConnection<I, S>>,
    shutdown: &Shutdown,
    until: Option<&AtomicBool>,
) -> hyper::Result<bool>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response, Error = Infallible>,
{
    let mut stopped = std::pin::pin!(shutdown.stop.cancelled().fuse());
    let (mut is_stopped, mut is_shut_down) = (false, false);
    std::future::poll_fn(|context| {
        is_stopped |= stopped.as_mut().poll(context).is_ready();
        loop {
            if is_stopped && !is_shut_down && shutdown.is_due() {
                is_shut_down = true;
                connection.as_mut().graceful_shutdown();
            }
            match connection.as_mut().poll(context) {
                Poll::Ready(ended) => return Poll::Ready(ended.map(|()| true)),
                Poll::Pending if until.is_some_and(|until| until.load(Ordering::Relaxed)) => {
                    return Poll::Ready(Ok(false));
                }
                // Its first request has just begun.
                Poll::Pending if is_stopped && !is_shut_down && shutdown.is_due() => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}

/// The service of a connection: records whether a response is a stream, and the responses in
/// progress.
struct Requests {
    router: TowerToHyperService<Router>,
    peer: Peer,
    permit: ConnectionPermit,
    ends: Option<Arc<Ends>>,
    out_of_descriptors: bool,
    is_stream: Arc<AtomicBool>,
    /// Whether the connection is driven by the threads that write streams.
    is_moved: Arc<AtomicBool>,
    has_begun: Arc<AtomicBool>,
    /// Each request that is open has a clone.
    responding: Arc<()>,
}

impl Service<Request<Incoming>> for Requests {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        self.has_begun.store(true, Ordering::Relaxed);
        let extensions = request.extensions_mut();
        extensions.insert(self.peer);
        extensions.insert(self.permit.clone());
        if let Some(ends) = &self.ends {
            extensions.insert(ends.clone());
        }
        if self.out_of_descriptors {
            extensions.insert(OutOfDescriptors);
        }
        let answer = self.router.call(request);
        let (is_stream, is_moved) = (self.is_stream.clone(), self.is_moved.clone());
        let in_progress = (self.responding.clone(), self.permit.place.as_ref().map(Place::respond));
        async move {
            let mut response = answer.await?;
            if response.extensions().get::<Streaming>().is_some() {
                is_stream.store(true, Ordering::Relaxed);
                // The connection is moved once it waits: without this, only when its reader lags.
                response = response.map(|body| begins_later(body, is_moved));
            }
            Ok(response.map(|body| holding(body, in_progress)))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
