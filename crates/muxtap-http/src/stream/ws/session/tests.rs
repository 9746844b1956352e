use muxtap_engine::{Engine, Options};
use tokio::sync::mpsc;

use super::*;

/// The daemon's end of a connection; the test has the other end.
struct Fake {
    from_peer: mpsc::UnboundedReceiver<Message>,
    to_peer: mpsc::UnboundedSender<Message>,
    /// The number of messages that the socket accepts before it blocks.
    room: usize,
}

impl Stream for Fake {
    type Item = std::result::Result<Message, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.from_peer.poll_recv(cx).map(|message| message.map(Ok))
    }
}

impl Sink<Message> for Fake {
    type Error = axum::Error;

    fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::result::Result<(), axum::Error>> {
        if self.room > 0 { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn start_send(mut self: Pin<&mut Self>, message: Message) -> std::result::Result<(), axum::Error> {
        self.room -= 1;
        let _ = self.to_peer.send(message);
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::result::Result<(), axum::Error>> {
        self.poll_ready(cx)
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::result::Result<(), axum::Error>> {
        Poll::Ready(Ok(()))
    }
}

/// A session and its peer's two ends.
fn session(room: usize) -> (Engine, mpsc::UnboundedSender<Message>, mpsc::UnboundedReceiver<Message>) {
    let engine = Engine::new(Options::default());
    let app = App::new(engine.clone(), crate::DaemonInfo::default());
    let (to, from_peer) = mpsc::unbounded_channel();
    let (to_peer, from) = mpsc::unbounded_channel();
    tokio::spawn(run(Fake { from_peer, to_peer, room }, app, ServerQuery::default()));
    (engine, to, from)
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_pings_stays_and_one_that_does_not_is_closed() {
    let (_engine, to, mut from) = session(1000);
    let began = Instant::now();
    for ping in 1..=20 {
        assert_eq!(from.recv().await, Some(Message::Ping(bytes::Bytes::new())));
        assert_eq!(began.elapsed(), PING * ping);
        to.send(Message::Pong(bytes::Bytes::new())).unwrap();
    }
    let (last_received, mut pings) = (Instant::now(), 0);
    let end = loop {
        match from.recv().await.unwrap() {
            Message::Ping(_) => pings += 1,
            other => break other,
        }
    };
    assert!(matches!(end, Message::Close(Some(CloseFrame { code: close_code::POLICY, .. }))), "{end:?}");
    // The first ping without a pong, and the time after it.
    assert_eq!((pings, last_received.elapsed()), (3, PING + PONG_LIMIT));
    assert_eq!(from.recv().await, None);
    assert_eq!(last_received.elapsed(), PING + PONG_LIMIT + CLOSE_LIMIT);
}

/// A peer that accepts nothing cannot be judged: its connection's own limit ends it.
#[tokio::test(start_paused = true)]
async fn who_takes_nothing_is_not_asked_again() {
    let (_engine, _to, mut from) = session(1);
    assert_eq!(from.recv().await, Some(Message::Ping(bytes::Bytes::new())));
    tokio::time::sleep(PONG_LIMIT * 10).await;
    assert!(from.try_recv().is_err(), "the ping that was not taken was the last");
}

/// Requests are read while a ping waits for a full socket.
#[tokio::test(start_paused = true)]
async fn requests_are_read_while_a_ping_waits_for_a_full_socket() {
    let (engine, to, mut from) = session(0);
    tokio::time::sleep(PING * 2).await;
    let request = r#"{"op":"input","id":1,"pane":"%1","text":"x","socket":"/nowhere/tmux"}"#;
    to.send(Message::Text(request.into())).unwrap();
    tokio::time::sleep(PING).await;
    assert_eq!(engine.servers().len(), 1, "the request reached the engine");
    assert!(from.try_recv().is_err(), "nothing was sent");
}

#[tokio::test(start_paused = true)]
async fn a_stopping_engine_says_goodbye_and_waits_for_the_answer() {
    let (engine, to, mut from) = session(1000);
    to.send(Message::Text("{\"op\":\"ping\"}".into())).unwrap();
    assert_eq!(from.recv().await, Some(Message::Text("{\"ok\":{}}".into())));
    engine.stop().await;
    let goodbye = from.recv().await;
    assert!(matches!(goodbye, Some(Message::Close(Some(CloseFrame { code: close_code::AWAY, .. })))), "{goodbye:?}");
    let began = Instant::now();
    drop(to);
    assert_eq!(from.recv().await, None);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// Requests of a client that does not read the responses are no longer read.
#[tokio::test(start_paused = true)]
async fn answers_that_are_not_taken_hold_requests_back() {
    let (_engine, to, mut from) = session(3);
    for _ in 0..1000 {
        to.send(Message::Text("{\"op\":\"ping\"}".into())).unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut answers = 0;
    while from.try_recv().is_ok() {
        answers += 1;
    }
    assert_eq!(answers, 3);
}
