//! Connections: each is served on the engine's thread, until it becomes a stream.
//!
//! What a wait answers must not cross from one thread to another, so requests are answered where tmux is read. An event stream is another
//! matter: from its first event on its connection is driven by the threads that write streams.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use axum::{Router, extract::Request, response::Response, serve::Listener};
use futures_util::FutureExt as _;
use hyper::{body::Incoming, rt, server::conn::http1, service::Service};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

use super::stream::{IsStream, Streams};

/// A connection that takes nothing of what is written to it for so long is closed.
const STALL_LIMIT: Duration = Duration::from_secs(60);

/// Serves what connects to `listener` until `stopping` is over, and then what is open to its end, which comes soon.
pub async fn serve<L: Listener>(mut listener: L, router: Router, streams: Streams, stopping: impl Future<Output = ()>) {
    let stop = CancellationToken::new();
    tokio::pin!(stopping);
    loop {
        tokio::select! {
            (io, _) = listener.accept() => {
                streams.open.spawn(connection(io, router.clone(), streams.clone(), stop.clone()));
            }
            () = &mut stopping => break,
        }
    }
    drop(listener);
    stop.cancel();
    streams.ended().await;
}

async fn connection<I>(io: I, router: Router, streams: Streams, stop: CancellationToken)
where
    I: AsyncRead + AsyncWrite + Send + 'static,
{
    let mut io = TimeoutStream::new(io);
    io.set_write_timeout(Some(STALL_LIMIT));
    let service = Requests { router: TowerToHyperService::new(router), is_stream: Arc::default() };
    let is_stream = service.is_stream.clone();
    let connection = http1::Builder::new().serve_connection(TokioIo::new(Box::pin(io)), service).with_upgrades();
    let mut connection = Box::pin(connection);
    if !drive(connection.as_mut(), &stop, &streams.cut, Some(&is_stream)).await {
        let (writers, open) = (streams.writers.clone(), streams.open.clone());
        let rest = async move { drive(connection.as_mut(), &stop, &streams.cut, None).await };
        open.spawn_on(rest, &writers);
    }
}

/// Drives a connection to its end, or until it is a stream. Answers whether it has ended.
async fn drive<I, S>(
    mut connection: Pin<&mut http1::UpgradeableConnection<I, S>>,
    stop: &CancellationToken,
    cut: &CancellationToken,
    until: Option<&AtomicBool>,
) -> bool
where
    I: rt::Read + rt::Write + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response, Error = Infallible>,
{
    let mut stopped = std::pin::pin!(stop.cancelled().fuse());
    let mut cut = std::pin::pin!(cut.cancelled());
    std::future::poll_fn(|cx| {
        if cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        if stopped.as_mut().poll(cx).is_ready() {
            connection.as_mut().graceful_shutdown();
        }
        match connection.as_mut().poll(cx) {
            // What went wrong is the peer's to know.
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if until.is_some_and(|until| until.load(Ordering::Relaxed)) => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Answers requests, and notes when an answer is a stream.
struct Requests {
    router: TowerToHyperService<Router>,
    is_stream: Arc<AtomicBool>,
}

impl Service<Request<Incoming>> for Requests {
    type Response = Response;
    type Error = Infallible;
    type Future = futures_util::future::BoxFuture<'static, Result<Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (answer, is_stream) = (self.router.call(request), self.is_stream.clone());
        async move {
            let response = answer.await?;
            if response.extensions().get::<IsStream>().is_some() {
                is_stream.store(true, Ordering::Relaxed);
            }
            Ok(response)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use axum::{Extension, body::Body, response::IntoResponse as _, routing::get};
    use bytes::Bytes;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
        time::Instant,
    };

    use super::*;

    /// A client of an endless stream; `is_stream` says whether it is driven elsewhere.
    async fn client(streams: &Streams, is_stream: bool) -> DuplexStream {
        let body =
            || Body::from_stream(futures_util::stream::repeat(Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 1000]))));
        let endless = move || async move {
            let response = body().into_response();
            if is_stream { (Extension(IsStream), response).into_response() } else { response }
        };
        let router = Router::new().route("/", get(endless));
        let (mut ours, theirs) = tokio::io::duplex(10_000);
        streams.open.spawn(connection(theirs, router, streams.clone(), CancellationToken::new()));
        ours.write_all(b"GET / HTTP/1.1\r\nhost: m\r\n\r\n").await.unwrap();
        ours
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_cut_and_who_takes_a_little_is_not() {
        for is_stream in [false, true] {
            let streams = Streams::new(tokio::runtime::Handle::current());
            let mut slow = client(&streams, is_stream).await;
            let stuck = client(&streams, is_stream).await;
            let began = Instant::now();
            for _ in 0..20 {
                tokio::time::sleep(STALL_LIMIT - Duration::from_secs(1)).await;
                let mut some = [0; 20_000];
                slow.read_exact(&mut some).await.unwrap();
            }
            assert_eq!(streams.open.len(), 1, "{is_stream}: only the slow one is left");
            drop(stuck);
            let last = Instant::now();
            streams.open.close();
            streams.open.wait().await;
            assert_eq!(last.elapsed(), STALL_LIMIT);
            assert!(began.elapsed() > STALL_LIMIT * 10);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_end_by_itself_is_cut() {
        let streams = Streams::new(tokio::runtime::Handle::current());
        let _client = client(&streams, true).await;
        tokio::task::yield_now().await;
        let began = Instant::now();
        streams.ended().await;
        assert_eq!(began.elapsed(), super::super::CLOSE_LIMIT);
        assert!(streams.open.is_empty());
    }
}
