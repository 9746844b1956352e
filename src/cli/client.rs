//! One HTTP connection to the daemon.

use std::{
    cell::Cell,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    header,
};
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};
use tokio::task::JoinHandle;

use super::{output, sse, url};
use crate::{
    api::{Error, ErrorCode, Result},
    daemon::{
        paths::{self, Paths},
        start,
    },
};

/// The header in which the daemon names its version.
pub(super) const VERSION_HEADER: &str = "muxtap-version";

thread_local! {
    /// Several connections of one command warn once.
    static WARNED: Cell<bool> = const { Cell::new(false) };
}

/// A connection; requests go one after the other.
pub(super) struct Client {
    sender: SendRequest<Full<Bytes>>,
    connection: JoinHandle<()>,
    /// `socket=…` for every query, from `server`.
    query: String,
    server: PathBuf,
    paths: Paths,
    /// The daemon's process, where the system tells it.
    process: Option<u32>,
    /// Say it when the daemon is of another version.
    compares_versions: bool,
}

impl Client {
    pub(super) async fn new(stream: UnixStream, paths: &Paths, server: &Path) -> Result<Self> {
        let lost = |error: &dyn std::fmt::Display| {
            Error::internal(format!("cannot talk to the daemon on {}: {error}", paths.socket.display()))
        };
        stream.set_nonblocking(true).map_err(|error| lost(&error))?;
        let stream = tokio::net::UnixStream::from_std(stream).map_err(|error| lost(&error))?;
        // In a directory that others can write to, the socket may be theirs; what is typed is not for them to see.
        let peer = stream.peer_cred().map_err(|error| lost(&error))?;
        if peer.uid() != paths::uid() {
            return Err(Error::new(
                ErrorCode::Unauthorized,
                format!("the daemon on {} belongs to user {}, not to you", paths.socket.display(), peer.uid()),
            ));
        }
        let process = peer.pid().and_then(|pid| u32::try_from(pid).ok());
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| lost(&error))?;
        let connection = tokio::spawn(async move {
            // What goes wrong here is told to the request that waits for its answer.
            let _ = connection.await;
        });
        let text = server.to_str().ok_or_else(|| {
            Error::invalid(format!("the tmux socket's path {} is not UTF-8: give it another one", server.display()))
        })?;
        let query = format!("socket={}", url::encode(text));
        let (server, paths) = (server.to_owned(), paths.clone());
        Ok(Self { sender, connection, query, server, paths, process, compares_versions: false })
    }

    /// The daemon's process.
    pub(super) fn process(&self) -> Option<u32> {
        self.process
    }

    /// Warn, once in this process, when the daemon is of another version.
    pub(super) fn comparing_versions(self) -> Self {
        Self { compares_versions: true, ..self }
    }

    /// `GET path?query`, which changes nothing and is asked again, once, where the daemon went away without an answer: a
    /// process that was killed goes on taking connections until its last thread has ended.
    pub(super) async fn get<T: DeserializeOwned>(&mut self, path: &str, query: &impl Serialize) -> Result<T> {
        let query = url::query(query);
        let mut response = self.send(Method::GET, path, &query, Bytes::new()).await;
        if response.is_err() {
            let stream = start::connect_or_start(&self.paths, &mut |warning| output::note(warning))?;
            let again = Self::new(stream, &self.paths, &self.server).await?;
            *self = Self { compares_versions: self.compares_versions, ..again };
            response = self.send(Method::GET, path, &query, Bytes::new()).await;
        }
        self.read(response?).await
    }

    /// `POST path` with a JSON body.
    pub(super) async fn post<T: DeserializeOwned>(&mut self, path: &str, body: &impl Serialize) -> Result<T> {
        self.with_body(Method::POST, path, body).await
    }

    /// `PATCH path` with a JSON body.
    pub(super) async fn patch<T: DeserializeOwned>(&mut self, path: &str, body: &impl Serialize) -> Result<T> {
        self.with_body(Method::PATCH, path, body).await
    }

    /// `DELETE path`.
    pub(super) async fn delete<T: DeserializeOwned>(&mut self, path: &str) -> Result<T> {
        let response = self.send(Method::DELETE, path, "", Bytes::new()).await?;
        self.read(response).await
    }

    /// `GET path?query` whose answer is a stream of events; uses the connection up.
    pub(super) async fn events(mut self, path: &str, query: &impl Serialize) -> Result<EventStream> {
        let response = self.send(Method::GET, path, &url::query(query), Bytes::new()).await?;
        if !response.status().is_success() {
            return Err(self
                .read::<serde_json::Value>(response)
                .await
                .err()
                .unwrap_or_else(|| self.lost(&"no events")));
        }
        Ok(EventStream { body: response.into_body(), client: self, parser: sse::Parser::default() })
    }

    /// Resolves when the daemon has closed this connection.
    pub(super) async fn closed(self) {
        let Self { sender, connection, .. } = self;
        // The sender is held: without one hyper itself would close an idle connection.
        let _ = connection.await;
        drop(sender);
    }

    async fn with_body<T: DeserializeOwned>(&mut self, method: Method, path: &str, body: &impl Serialize) -> Result<T> {
        let body = serde_json::to_vec(body).map_err(|error| Error::internal(format!("request: {error}")))?;
        let response = self.send(method, path, "", body.into()).await?;
        self.read(response).await
    }

    async fn send(&mut self, method: Method, path: &str, query: &str, body: Bytes) -> Result<Response<Incoming>> {
        let and = if query.is_empty() { "" } else { "&" };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{path}?{}{and}{query}", self.query))
            .header(header::HOST, "muxtap");
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(body)).map_err(|error| Error::internal(format!("request: {error}")))?;
        self.sender.ready().await.map_err(|error| self.lost(&error))?;
        let response = self.sender.send_request(request).await.map_err(|error| self.lost(&error))?;
        if self.compares_versions {
            warn_of_other_version(&response);
        }
        Ok(response)
    }

    async fn read<T: DeserializeOwned>(&self, response: Response<Incoming>) -> Result<T> {
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|error| self.lost(&error))?.to_bytes();
        if status.is_success() {
            return serde_json::from_slice(&body)
                .map_err(|error| Error::internal(format!("the daemon's answer cannot be read: {error}")));
        }
        Err(serde_json::from_slice(&body).unwrap_or_else(|_| unexpected(status, &body)))
    }

    fn lost(&self, error: &dyn std::fmt::Display) -> Error {
        Error::internal(format!(
            "lost the connection to the muxtap daemon ({error}); its log is {}",
            self.paths.log.display()
        ))
    }
}

/// Events as they come.
pub(super) struct EventStream {
    body: Incoming,
    client: Client,
    parser: sse::Parser,
}

impl EventStream {
    /// Gives the data of the next events to `event`; at least one chunk is read. `false`: the daemon ended the stream.
    pub(super) async fn next(&mut self, event: impl FnMut(&[u8])) -> Result<bool> {
        match self.body.frame().await {
            None => Ok(false),
            Some(Err(error)) => Err(self.client.lost(&error)),
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.parser.feed(data, event);
                }
                Ok(true)
            }
        }
    }
}

fn warn_of_other_version(response: &Response<Incoming>) {
    let ours = env!("CARGO_PKG_VERSION");
    let Some(theirs) = response.headers().get(VERSION_HEADER).and_then(|version| version.to_str().ok()) else { return };
    if theirs != ours && !WARNED.replace(true) {
        output::note(&format!(
            "the daemon is muxtap {theirs}, this is {ours}: run `muxtap stop`, and the next command starts the new one"
        ));
    }
}

fn unexpected(status: StatusCode, body: &[u8]) -> Error {
    let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
    Error::internal(format!("the daemon answered HTTP {status}: {}", text.trim()))
}
