use super::*;

/// T42.
#[tokio::test]
async fn a_stream_that_has_not_begun_is_held_back_and_begins_anew() {
    use std::sync::atomic::{AtomicUsize, Ordering};

    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let engine = Engine::new(muxtap_engine::Options::default());
    let app = App::new(engine.clone(), crate::DaemonInfo::default());
    let begun = Arc::new(AtomicUsize::new(0));
    let (first, mut started) = mpsc::unbounded_channel();
    let stream = {
        let begun = begun.clone();
        move || async move {
            let number = begun.fetch_add(1, Ordering::Relaxed);
            first.send(()).unwrap();
            // The first one has no response for as long as it is awaited.
            if number == 0 {
                std::future::pending::<()>().await;
            }
            "begun"
        }
    };
    let router = axum::Router::new()
        .route("/v1/events", axum::routing::get(stream))
        .layer(axum::middleware::from_fn_with_state(app.clone(), gate));
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let request = Request::builder().uri("/v1/events?since=now").body(Body::empty()).unwrap();
    let asked = tokio::spawn(async move { ask(&socket, request).await });
    started.recv().await.unwrap();
    // The stream is neither awaited nor a reason to refuse.
    let held = app.replacing().settle(false).await.unwrap();
    assert!(app.replacing().0.requests.borrow().open.is_empty());
    assert_eq!(begun.load(Ordering::Relaxed), 1, "nothing begins meanwhile");
    // The handover fails.
    drop(held);
    let response = asked.await.unwrap().unwrap();
    assert_eq!((response.status(), begun.load(Ordering::Relaxed)), (StatusCode::OK, 2));
    server.abort();
    engine.stop().await;
}

/// T48.
#[tokio::test]
async fn what_is_relayed_is_asked_for_in_turns() {
    use tokio::io::AsyncWriteExt as _;

    const ALL: usize = 5 * turns::AT_ONCE;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let engine = Engine::new(muxtap_engine::Options::default());
    let app = replaced(&engine, &socket);
    let asks = (0..ALL).map(|number| {
        let app = app.clone();
        tokio::spawn(async move { app.get_elsewhere_at_last(&format!("/v1/waits/{number}"), &[]).await.map(drop) })
    });
    let asks: Vec<_> = asks.collect();
    // The next daemon: no wait ends there, and each request is read when its connection is accepted.
    let (mut open, mut in_a_row, mut longest) = (Vec::new(), 0, 0);
    while open.len() < ALL {
        let (mut stream, head) = accepted(&listener).await;
        if head.starts_with("GET /health ") {
            in_a_row = 0;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await.unwrap();
        } else {
            in_a_row += 1;
            longest = longest.max(in_a_row);
            open.push(stream);
        }
    }
    assert!(longest <= turns::AT_ONCE, "{longest} in a row");
    // Each request is sent although no other one has ended.
    assert!(asks.iter().all(|ask| !ask.is_finished()));
    asks.iter().for_each(tokio::task::JoinHandle::abort);
    engine.stop().await;
}

/// T48.
#[tokio::test]
async fn a_wait_that_has_no_turn_in_time_is_asked_for_at_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let engine = Engine::new(muxtap_engine::Options::default());
    let app = replaced(&engine, &socket);
    let mut open = Vec::new();
    // The next daemon does not respond, so all turns are taken.
    let asks = (0..turns::AT_ONCE).map(|_| {
        let app = app.clone();
        tokio::spawn(async move { app.get_elsewhere_at_last("/v1/waits/other", &[]).await.map(drop) })
    });
    let asks: Vec<_> = asks.collect();
    for _ in &asks {
        open.push(accepted(&listener).await);
    }
    assert!(open.iter().any(|(_, head)| head.starts_with("GET /health ")));
    let wait = tokio::spawn({
        let app = app.clone();
        async move { app.wait_elsewhere("own", Some(Duration::from_millis(10)), false).await.map(drop) }
    });
    let (_stream, head) = accepted(&listener).await;
    assert!(head.starts_with("GET /v1/waits/own?timeout_ms=0 "), "{head}");
    asks.iter().chain([&wait]).for_each(tokio::task::JoinHandle::abort);
    engine.stop().await;
}

/// Returns the routes of a daemon on this socket whose turns end only with a response.
fn replaced(engine: &Engine, socket: &Path) -> App {
    let about = crate::DaemonInfo { socket: socket.display().to_string(), ..crate::DaemonInfo::default() };
    let mut app = App::new(engine.clone(), about);
    Arc::get_mut(&mut app.daemon).unwrap().replacing = Replacing::new(Turns::new(Duration::MAX));
    app
}

/// Accepts a connection. Returns it, and the head of its request.
async fn accepted(listener: &tokio::net::UnixListener) -> (UnixStream, String) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tokio::io::AsyncReadExt::read_u8(&mut stream).await.unwrap());
    }
    (stream, String::from_utf8(head).unwrap())
}

#[tokio::test]
async fn the_error_of_a_passed_on_request_says_whether_it_may_have_been_carried_out() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let request = || Request::builder().uri("/v1/panes").body(Body::empty()).unwrap();
    let before = ask(&socket, request()).await.unwrap_err();
    assert!(before.message.contains("send the request again"), "{before}");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let (after, ()) = tokio::join!(ask(&socket, request()), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 64]).await.unwrap();
    });
    let after = after.unwrap_err();
    assert!(after.message.contains("may have been carried out"), "{after}");
}
