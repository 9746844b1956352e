use std::net::SocketAddr;

use axum::{Extension, body::Body, routing::get};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Notify,
    task::JoinHandle,
};

use super::*;

const SOON: Duration = Duration::from_millis(100);
/// The time after which an event counts as missing.
const NEVER: Duration = Duration::from_secs(20);

struct Served {
    addr: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Notifies when it is dropped.
struct Tell(Arc<Notify>);

impl Drop for Tell {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

async fn served(router: Router, limits: Limits) -> Served {
    served_until(router, limits, OpenConnections::default()).await
}

async fn served_until(router: Router, limits: Limits, open: OpenConnections) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (addr, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let task = tokio::spawn(serve(Listener::Tcp(listener), router, limits, Handle::current(), open, stop.clone()));
    Served { addr, stop, task }
}

async fn asked(addr: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
    stream
}

async fn rest(mut stream: TcpStream) -> String {
    let mut rest = Vec::new();
    // A reset connection has ended too.
    let _ = timeout(NEVER, stream.read_to_end(&mut rest)).await.unwrap();
    String::from_utf8_lossy(&rest).into_owned()
}

#[tokio::test]
async fn who_asks_is_told_to_the_routes() {
    let router = Router::new().route("/", get(|Extension(peer): Extension<Peer>| async move { peer.to_string() }));
    let served = served(router, Limits::TCP).await;
    let mut stream = TcpStream::connect(served.addr).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let own = stream.local_addr().unwrap().to_string();
    let answer = rest(stream).await;
    assert!(answer.ends_with(&own), "{answer}");
}

#[tokio::test]
async fn a_silent_connection_and_an_incomplete_head_are_closed() {
    let router = Router::new().route("/", get(|| async { "fine" }));
    let served = served(router, Limits { head: Some(SOON), ..Limits::TCP }).await;
    let silent = TcpStream::connect(served.addr).await.unwrap();
    let mut half = TcpStream::connect(served.addr).await.unwrap();
    half.write_all(b"GET / HT").await.unwrap();
    // A connection that was used once.
    let idle = asked(served.addr, "/").await;
    assert_eq!(rest(silent).await, "");
    let half = rest(half).await;
    assert!(half.is_empty() || half.contains(" 408 "), "{half}");
    assert!(rest(idle).await.ends_with("fine"));
}

#[tokio::test]
async fn connections_over_the_limit_wait_their_turn() {
    let router = Router::new().route("/", get(|| async { "fine" }));
    let served = served(router, Limits { connections: 1, ..Limits::LOCAL }).await;
    let mut first = asked(served.addr, "/").await;
    let mut some = [0; 8];
    first.read_exact(&mut some).await.unwrap();
    let mut second = asked(served.addr, "/").await;
    assert!(timeout(SOON, second.read_exact(&mut some)).await.is_err(), "it has no place yet");
    drop(first);
    timeout(NEVER, second.read_exact(&mut some)).await.unwrap().unwrap();
}

/// S11: a caller that sends half a request delays no other caller and closes no connection of a
/// caller with a token.
#[tokio::test]
async fn unauthenticated_connections_give_way_to_newer_ones() {
    let stream = |Extension(permit): Extension<ConnectionPermit>| async move {
        assert!(permit.authenticate(Credential::Token));
        let pieces = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Some((Ok::<_, io::Error>("piece"), ()))
        });
        (Extension(Streaming), Body::from_stream(pieces))
    };
    let router = Router::new().route("/", get(|| async { "fine" })).route("/stream", get(stream));
    let served = served(router, Limits { unauthenticated: Some(4), head: Some(NEVER * 9), ..Limits::TCP }).await;
    let mut open = asked(served.addr, "/stream").await;
    let mut some = [0; 64];
    open.read_exact(&mut some).await.unwrap();
    let mut half_open = Vec::new();
    for _ in 0..64 {
        let mut half = TcpStream::connect(served.addr).await.unwrap();
        // Some are already closed, having been evicted.
        let _ = half.write_all(b"GET / HTTP/1.1\r\nhost: ").await;
        half_open.push(half);
        // Each time, a connection that sends its request immediately gets a place.
        let mut asks = asked(served.addr, "/").await;
        timeout(NEVER, asks.read_exact(&mut some)).await.unwrap().unwrap();
        timeout(NEVER, open.read_exact(&mut some)).await.unwrap().unwrap();
    }
    let first = half_open.swap_remove(0);
    assert_eq!(rest(first).await, "");
}

#[tokio::test]
async fn a_client_that_stops_reading_is_dropped() {
    let gone = Arc::new(Notify::new());
    let tell = gone.clone();
    let endless = move || {
        let tell = Tell(tell.clone());
        let pieces = stream::repeat_with(move || {
            let _held = &tell;
            Ok::<_, io::Error>(Bytes::from(vec![b'x'; 65536]))
        });
        async { Body::from_stream(pieces) }
    };
    let marked = {
        let endless = endless.clone();
        || async move { (Extension(Streaming), endless().await) }
    };
    let router = Router::new().route("/", get(endless)).route("/stream", get(marked));
    let served = served(router, Limits { stall: Some(SOON), ..Limits::TCP }).await;
    for path in ["/", "/stream"] {
        let _reads_nothing = asked(served.addr, path).await;
        timeout(NEVER, gone.notified()).await.unwrap();
    }
}

#[tokio::test]
async fn at_the_end_open_answers_are_written_and_stuck_ones_cut() {
    let (go, arrived) = (Arc::new(Notify::new()), Arc::new(tokio::sync::Semaphore::new(0)));
    let later = {
        let (go, arrived) = (go.clone(), arrived.clone());
        move || async move {
            arrived.add_permits(1);
            go.notified().await;
            "answered"
        }
    };
    let never = {
        let arrived = arrived.clone();
        move || async move {
            arrived.add_permits(1);
            std::future::pending::<()>().await;
        }
    };
    let router = Router::new().route("/later", get(later)).route("/never", get(never));
    let served = served(router, Limits { grace: Duration::from_secs(2), ..Limits::TCP }).await;
    let (later, never) = (asked(served.addr, "/later").await, asked(served.addr, "/never").await);
    timeout(NEVER, arrived.acquire_many(2)).await.unwrap().unwrap().forget();
    served.stop.cancel();
    go.notify_one();
    assert!(rest(later).await.ends_with("answered"));
    timeout(NEVER, served.task).await.unwrap().unwrap();
    assert!(TcpStream::connect(served.addr).await.is_err(), "nobody listens any more");
    drop(never);
}

#[tokio::test]
async fn half_a_request_does_not_keep_a_process_that_another_one_has_replaced() {
    let (go, arrived) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let later = {
        let (go, arrived) = (go.clone(), arrived.clone());
        move || async move {
            arrived.notify_one();
            go.notified().await;
            "answered"
        }
    };
    let router = Router::new().route("/later", get(later)).route("/at-once", get(|| async { "at once" }));
    let limits = Limits { grace: SOON, head: None, ..Limits::TCP };
    let open = OpenConnections::default();
    let served = served_until(router, limits, open.clone()).await;
    let later = asked(served.addr, "/later").await;
    timeout(NEVER, arrived.notified()).await.unwrap();
    // A second request of which half has arrived.
    let mut half = asked(served.addr, "/at-once").await;
    let mut response = Vec::new();
    while !response.ends_with(b"at once") {
        response.push(half.read_u8().await.unwrap());
    }
    half.write_all(b"GET /later HTTP/1.1\r\nho").await.unwrap();
    open.leave_listeners();
    served.stop.cancel();
    assert_eq!(rest(half).await, "");
    go.notify_one();
    assert!(rest(later).await.ends_with("answered"));
    timeout(NEVER, served.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_that_is_on_its_way_when_another_process_takes_over_is_answered() {
    let router = Router::new().route("/", get(|| async { "answered" }));
    let open = OpenConnections::default();
    let served = served_until(router, Limits { head: None, ..Limits::TCP }, open.clone()).await;
    let mut fresh = TcpStream::connect(served.addr).await.unwrap();
    open.0.subscribe().wait_for(|open| *open == 1).await.unwrap();
    open.leave_listeners();
    served.stop.cancel();
    // Lets the service shut down what it shuts down at once.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    fresh.write_all(b"GET / HTTP/1.1\r\nhost: m\r\n\r\n").await.unwrap();
    // The connection ends after the response.
    assert!(rest(fresh).await.ends_with("answered"));
    timeout(NEVER, served.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_stream_is_written_by_other_threads_from_its_first_byte_on() {
    const PIECES: usize = 8;
    let threads = Arc::new(std::sync::Mutex::new(Vec::new()));
    let router = {
        let threads = threads.clone();
        // Each piece is there at once.
        let pieces = move || {
            let threads = threads.clone();
            stream::iter(0..PIECES).map(move |_| {
                threads.lock().unwrap().push(std::thread::current().name().map(str::to_owned));
                Ok::<_, io::Error>(Bytes::from_static(b"piece"))
            })
        };
        let streamed = || async move { (Extension(Streaming), Body::from_stream(pieces())) };
        Router::new().route("/stream", get(streamed))
    };
    let mut writers = tokio::runtime::Builder::new_multi_thread();
    let writers = writers.worker_threads(1).thread_name("writer").enable_all().build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (addr, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let (listener, open) = (Listener::Tcp(listener), OpenConnections::default());
    let served = tokio::spawn(serve(listener, router, Limits::TCP, writers.handle().clone(), open, stop.clone()));
    let mut stream = asked(addr, "/stream").await;
    let mut read = Vec::new();
    while !read.ends_with(b"0\r\n\r\n") {
        assert!(timeout(NEVER, stream.read_buf(&mut read)).await.unwrap().unwrap() > 0);
    }
    assert_eq!(*threads.lock().unwrap(), vec![Some("writer".to_owned()); PIECES]);
    drop(stream);
    stop.cancel();
    timeout(NEVER, served).await.unwrap().unwrap();
    writers.shutdown_background();
}
