//! Clients that wait, each on its own connection, all in one thread.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    sync::oneshot,
};

use super::{PRINTING, QUIET, WATCHING};
use crate::{actors::now, http, times::Times, wait::matched_stamp};

/// Longer than any run.
const TIMEOUT_MS: u64 = 6 * 3600 * 1000;

/// The open waits. They end with their thread.
pub struct Waits {
    ages: Arc<Mutex<Times>>,
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Waits {
    /// Opens a wait for the next marker on each printing pane, again and again, and waits for text
    /// that is never printed, on these and on quiet panes.
    pub fn open(daemon: &Path, server: &Path) -> Self {
        let ages = Arc::<Mutex<Times>>::default();
        let (end, ended) = oneshot::channel();
        let (daemon, server, shared) = (daemon.to_owned(), server.to_owned(), ages.clone());
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let connect = || Connection::open(daemon.clone(), &server);
                for pane in 0..PRINTING {
                    tokio::spawn(marks(connect().await, pane, shared.clone()));
                    for number in 0..WATCHING {
                        tokio::spawn(never(connect().await, pane, number));
                    }
                }
                for pane in PRINTING..PRINTING + QUIET {
                    tokio::spawn(never(connect().await, pane, 0));
                }
                let _ = ended.await;
            });
        });
        Self { ages, end, thread }
    }

    /// Ends the clients. Returns the age of each marker when its wait's response had been read.
    pub fn close(self) -> Times {
        let _ = self.end.send(());
        self.thread.join().expect("the waits' clients");
        std::mem::take(&mut self.ages.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Waits for each marker of a pane as soon as the previous one was seen.
async fn marks(mut connection: Connection, pane: usize, ages: Arc<Mutex<Times>>) {
    let mut since = json!("now");
    for number in 1.. {
        let pattern = format!(r"<{number} (\d+)>");
        let answer = connection.wait(pane, &pattern, &since).await;
        let read_at = now();
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        let age = read_at.saturating_sub(Duration::from_nanos(matched_stamp(&answer)));
        ages.lock().unwrap_or_else(PoisonError::into_inner).push(age);
        since = answer["cursor"].clone();
    }
}

/// Waits for text that is never printed.
async fn never(mut connection: Connection, pane: usize, number: usize) {
    let pattern = format!(r"(error|panicked)\[E{number}\d+\]: (.*) at line \d+");
    let answer = connection.wait(pane, &pattern, &json!("now")).await;
    panic!("nothing was to be found: {}", String::from_utf8_lossy(&answer));
}

struct Connection {
    stream: UnixStream,
    server: String,
    read: Vec<u8>,
}

impl Connection {
    async fn open(daemon: PathBuf, server: &Path) -> Self {
        let stream = UnixStream::connect(daemon).await.expect("the daemon answers");
        Self { stream, server: server.display().to_string(), read: Vec::new() }
    }

    /// Opens a wait and reads its whole response.
    async fn wait(&mut self, pane: usize, pattern: &str, since: &Value) -> Vec<u8> {
        let body = json!({
            "panes": [format!("%{pane}")], "patterns": [pattern], "since": since, "timeout_ms": TIMEOUT_MS
        });
        let body = body.to_string();
        let request = format!(
            "POST /v1/waits?socket={} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.server,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await.expect("the daemon reads");
        loop {
            if let Some((head, length)) = http::head(&self.read)
                && self.read.len() >= head + length
            {
                let answer = self.read[head..head + length].to_vec();
                self.read.drain(..head + length);
                return answer;
            }
            let read = self.stream.read_buf(&mut self.read).await.expect("the daemon answers");
            assert!(read > 0, "the daemon closed the connection");
        }
    }
}
