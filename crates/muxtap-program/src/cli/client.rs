//! One HTTP connection to the daemon.

use std::{
    cell::{Cell, RefCell},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
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
use muxtap_engine::elsewhere::{default_server, is_on};
use muxtap_tmux::death;
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinHandle,
};

use super::{one_request::Ask, output, remote::Remote, sse, url};

use crate::{
    api::{Error, ErrorCode, Result, WaitAnswer, WaitRequest, wire},
    config::paths::{self, Paths},
    daemon::start,
};

thread_local! {
    /// Whether this command has warned already, on any of its connections.
    static WARNED: Cell<bool> = const { Cell::new(false) };
    /// The remote host of the ids in this command's responses.
    static HOST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Forgets the host of the last response, before a request about another target.
pub(super) fn forget_host() {
    HOST.with_borrow_mut(|host| *host = None);
}

/// Returns the host of the last response; `None`: this one.
pub(super) fn host() -> Option<String> {
    HOST.with_borrow(Clone::clone)
}

/// Returns an id in the form that the caller can use as a target.
pub(super) fn shown(id: impl std::fmt::Display) -> String {
    HOST.with_borrow(|host| host.as_ref().map_or_else(|| id.to_string(), |host| format!("{host}/{id}")))
}

/// A connection to the daemon. Requests go one after the other.
pub(super) struct Client {
    sender: SendRequest<Full<Bytes>>,
    connection: JoinHandle<()>,
    /// `socket=…&from=…` for every query, from `server` and `from`.
    query: String,
    server: PathBuf,
    /// The caller's pane, if it belongs to the server.
    from: Option<String>,
    paths: Paths,
    /// The daemon's process id, if the system reports it.
    process: Option<u32>,
    /// Whether to warn if the daemon has a different version.
    compares_versions: bool,
    /// Whether a query lost with its daemon may start another daemon.
    starts_daemon: bool,
    /// The token to present.
    bearer: Option<String>,
    /// The daemon, if it is on another machine.
    remote: Option<Remote>,
}

impl Client {
    pub(super) async fn new(stream: UnixStream, paths: &Paths, server: &Path, from: Option<&str>) -> Result<Self> {
        let lost = |error: &dyn std::fmt::Display| {
            Error::internal(format!("cannot talk to the daemon on {}: {error}", paths.socket.display()))
        };
        stream.set_nonblocking(true).map_err(|error| lost(&error))?;
        let stream = tokio::net::UnixStream::from_std(stream).map_err(|error| lost(&error))?;
        // In a directory that others can write to, the socket may belong to them; they must not see
        // typed text.
        let peer = stream.peer_cred().map_err(|error| lost(&error))?;
        if peer.uid() != paths::uid() {
            return Err(Error::new(
                ErrorCode::Unauthorized,
                format!("the daemon on {} belongs to user {}, not to you", paths.socket.display(), peer.uid()),
            ));
        }
        let process = peer.pid().and_then(|pid| u32::try_from(pid).ok());
        let client = Self::over(stream, paths, server, from).await.map_err(|error| lost(&error))?;
        let query = query_of(server, from)?;
        Ok(Self { query, process, ..client })
    }

    /// Connects to a daemon of another machine.
    pub(super) async fn remote(remote: &Remote, paths: &Paths, server: &Path) -> Result<Self> {
        let wire = remote.connect().await?;
        let client = Self::over(wire, paths, server, None).await.map_err(|error| remote.unreachable(&error))?;
        let query = if server.as_os_str().is_empty() { String::new() } else { query_of(server, None)? };
        Ok(Self { query, starts_daemon: false, remote: Some(remote.clone()), ..client })
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        paths: &Paths,
        server: &Path,
        from: Option<&str>,
    ) -> Result<Self, hyper::Error> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(async move {
            // An error here fails the request that waits for its response.
            let _ = connection.await;
        });
        let from = from.map(str::to_owned);
        let (server, paths) = (server.to_owned(), paths.clone());
        Ok(Self {
            sender,
            connection,
            query: String::new(),
            server,
            from,
            paths,
            process: None,
            remote: None,
            compares_versions: false,
            starts_daemon: true,
            bearer: None,
        })
    }

    /// Returns whether the daemon has closed the connection.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Omits the server from later requests.
    pub(super) fn forget_server(&mut self) {
        self.query.clear();
    }

    /// Returns the daemon's process id.
    pub(super) fn process(&self) -> Option<u32> {
        self.process
    }

    /// Warns, once in this process, if the daemon has a different version.
    pub(super) fn comparing_versions(self) -> Self {
        Self { compares_versions: true, ..self }
    }

    /// Presents a token with each request.
    pub(super) fn with_bearer(self, token: String) -> Self {
        Self { bearer: Some(token), ..self }
    }

    /// Starts no daemon if this one exits.
    pub(super) fn without_start(self) -> Self {
        Self { starts_daemon: false, ..self }
    }

    /// Sends `GET path?query`. Retries once if the daemon exited without a response, as a `GET`
    /// changes nothing: a killed process accepts connections until its last thread has ended.
    pub(super) async fn get<T: DeserializeOwned>(&mut self, path: &str, query: &impl Serialize) -> Result<T> {
        let lost = match self.ask(Method::GET, path, &url::query(query), Bytes::new()).await {
            Ok(answer) => return answer,
            Err(lost) => lost,
        };
        if !self.starts_daemon {
            return Err(lost.into());
        }
        let stream = start::connect_or_start(&self.paths, &mut |warning| output::note(warning))?;
        let again = Self::new(stream, &self.paths, &self.server, self.from.as_deref()).await?;
        *self = Self { compares_versions: self.compares_versions, starts_daemon: self.starts_daemon, ..again };
        self.once(Method::GET, path, &url::query(query), Bytes::new()).await
    }

    /// Sends `GET path?query` about state of this daemon alone. Retries if only the connection was
    /// lost. `Err(ConnectionLost)`: the daemon has exited, and its state is lost.
    pub(super) async fn get_from_same_daemon<T: DeserializeOwned>(
        &mut self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<Result<T>, ConnectionLost> {
        match self.ask(Method::GET, path, &url::query(query), Bytes::new()).await {
            Err(lost) => self.connect_to_same_daemon(lost).await?,
            answer => return answer,
        }
        self.ask(Method::GET, path, &url::query(query), Bytes::new()).await
    }

    /// Waits by one request, which takes as long as the wait, whose id is `w-KEY`. Repeats the
    /// request if only the connection was lost. `Err(ConnectionLost)`: the daemon has exited, and
    /// the wait with it.
    pub(super) async fn wait(
        &mut self,
        key: &str,
        request: &WaitRequest,
    ) -> Result<Result<WaitAnswer>, ConnectionLost> {
        let body: Bytes = match serde_json::to_vec(request) {
            Ok(body) => body.into(),
            Err(error) => return Ok(Err(Error::internal(format!("request: {error}")))),
        };
        let key = Some((wire::IDEMPOTENCY_KEY, key));
        match self.ask_with(Method::POST, "/v1/waits", "", body.clone(), key).await {
            Err(lost) => self.connect_to_same_daemon(lost).await?,
            answer => return answer,
        }
        self.ask_with(Method::POST, "/v1/waits", "", body, key).await
    }

    /// Reconnects if only the connection was lost. Error: `lost`, because the daemon was replaced
    /// or has exited.
    async fn connect_to_same_daemon(&mut self, lost: ConnectionLost) -> Result<(), ConnectionLost> {
        if self.remote.is_some() {
            return Err(lost);
        }
        let Ok(Some(stream)) = start::connect(&self.paths) else { return Err(lost) };
        let Ok(again) = Self::new(stream, &self.paths, &self.server, self.from.as_deref()).await else {
            return Err(lost);
        };
        if again.process.is_none() || again.process != self.process {
            return Err(lost);
        }
        *self = Self { compares_versions: self.compares_versions, starts_daemon: self.starts_daemon, ..again };
        Ok(())
    }

    /// Sends a command's request.
    pub(super) async fn ask_for<T: DeserializeOwned>(&mut self, ask: Ask) -> Result<T> {
        if ask.method == Method::GET {
            return self.get(&ask.path, &()).await;
        }
        self.once(ask.method, &ask.path, "", ask.body.unwrap_or_default().into()).await
    }

    /// Sends `POST path` with a JSON body.
    pub(super) async fn post<T: DeserializeOwned>(&mut self, path: &str, body: &impl Serialize) -> Result<T> {
        self.with_body(Method::POST, path, body).await
    }

    /// Sends `POST path` with a JSON body. `Err(ConnectionLost)`: the outcome is unknown.
    pub(super) async fn try_post<T: DeserializeOwned>(
        &mut self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Result<T>, ConnectionLost> {
        match serde_json::to_vec(body) {
            Ok(body) => self.ask(Method::POST, path, "", body.into()).await,
            Err(error) => Ok(Err(Error::internal(format!("request: {error}")))),
        }
    }

    /// Sends `PATCH path` with a JSON body. `Err(ConnectionLost)`: the outcome is unknown.
    pub(super) async fn try_patch<T: DeserializeOwned>(
        &mut self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Result<T>, ConnectionLost> {
        match serde_json::to_vec(body) {
            Ok(body) => self.ask(Method::PATCH, path, "", body.into()).await,
            Err(error) => Ok(Err(Error::internal(format!("request: {error}")))),
        }
    }

    /// Sends `PATCH path` with a JSON body.
    pub(super) async fn patch<T: DeserializeOwned>(&mut self, path: &str, body: &impl Serialize) -> Result<T> {
        self.with_body(Method::PATCH, path, body).await
    }

    /// Sends `PUT path` with a JSON body.
    pub(super) async fn put<T: DeserializeOwned>(&mut self, path: &str, body: &impl Serialize) -> Result<T> {
        self.with_body(Method::PUT, path, body).await
    }

    /// Sends `DELETE path`.
    pub(super) async fn delete<T: DeserializeOwned>(&mut self, path: &str) -> Result<T> {
        self.once(Method::DELETE, path, "", Bytes::new()).await
    }

    /// Sends `GET path?query` whose response is a stream of events; consumes the connection.
    /// `resume`: the id of the last event read.
    pub(super) async fn events(
        mut self,
        path: &str,
        query: &impl Serialize,
        resume: Option<&str>,
    ) -> Result<EventStream> {
        let resume = resume.map(|id| (wire::LAST_EVENT_ID, id));
        let query = url::query(query);
        let mut is_renewed = false;
        let response = loop {
            let sent = self.send(Method::GET, path, &query, Bytes::new(), resume).await;
            let response = sent.map_err(Error::from)??;
            if response.status().is_success() {
                break response;
            }
            let refused = self.read::<serde_json::Value>(response).await.map_err(Error::from)?;
            let error = refused.err().unwrap_or_else(|| Error::internal("the daemon sent no events"));
            if is_renewed || !self.may_renew(&error) || !Box::pin(self.renew()).await? {
                return Err(error);
            }
            is_renewed = true;
        };
        Ok(EventStream { body: response.into_body(), client: self, parser: sse::Parser::default() })
    }

    /// Resolves when the daemon has closed this connection.
    pub(super) async fn closed(self) {
        let Self { sender, connection, .. } = self;
        // Keeps the sender: without one hyper closes an idle connection.
        let _ = connection.await;
        drop(sender);
    }

    async fn with_body<T: DeserializeOwned>(&mut self, method: Method, path: &str, body: &impl Serialize) -> Result<T> {
        let body = serde_json::to_vec(body).map_err(|error| Error::internal(format!("request: {error}")))?;
        self.once(method, path, "", body.into()).await
    }

    /// Sends a request without a retry.
    async fn once<T: DeserializeOwned>(&mut self, method: Method, path: &str, query: &str, body: Bytes) -> Result<T> {
        let changes = method != Method::GET;
        match self.ask(method, path, query, body).await {
            Ok(answer) => answer,
            Err(ConnectionLost(mut error)) => {
                if changes {
                    error.message.push_str(PERHAPS_DONE);
                }
                Err(error)
            }
        }
    }

    /// Sends a request. Outer error: no response.
    async fn ask<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        query: &str,
        body: Bytes,
    ) -> Result<Result<T>, ConnectionLost> {
        self.ask_with(method, path, query, body, None).await
    }

    /// Sends a request with an additional header.
    async fn ask_with<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        query: &str,
        body: Bytes,
        more: Option<(&str, &str)>,
    ) -> Result<Result<T>, ConnectionLost> {
        let answer = self.sent(method.clone(), path, query, body.clone(), more).await?;
        let Some(rejected) = answer.as_ref().err().filter(|error| self.may_renew(error)) else {
            return Ok(answer);
        };
        // A rejected request was not carried out. Boxed, as this is rare.
        match Box::pin(self.renew()).await {
            Ok(true) => Box::pin(self.sent(method, path, query, body, more)).await,
            Ok(false) => Ok(Err(rejected.clone())),
            Err(error) => Ok(Err(error)),
        }
    }

    async fn sent<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        query: &str,
        body: Bytes,
        more: Option<(&str, &str)>,
    ) -> Result<Result<T>, ConnectionLost> {
        match self.send(method, path, query, body, more).await? {
            Ok(response) => self.read(response).await,
            Err(error) => Ok(Err(error)),
        }
    }

    /// Returns whether an error may be due to an invalid or expired token, which can be renewed.
    fn may_renew(&self, error: &Error) -> bool {
        self.remote.is_some() && is_about_token(error)
    }

    /// Renews the token that a daemon of another machine rejected, and connects again: that daemon may have
    /// closed the connection. Returns whether there is another token.
    async fn renew(&mut self) -> Result<bool> {
        let (Some(remote), Some(rejected)) = (self.remote.clone(), self.bearer.clone()) else { return Ok(false) };
        let Some(renewal) = remote.renewal() else { return Ok(false) };
        let Some(token) = renewal(rejected).await? else { return Ok(false) };
        let again = Self::remote(&remote, &self.paths, &self.server).await?;
        (self.sender, self.connection, self.bearer) = (again.sender, again.connection, Some(token));
        Ok(true)
    }

    /// Waits for a part of a response; from another machine while its daemon is healthy.
    async fn waited<T>(
        remote: Option<Remote>,
        paths: &Paths,
        response: impl Future<Output = T>,
    ) -> Result<T, ConnectionLost> {
        let Some(remote) = remote else { return Ok(response.await) };
        let health = async || {
            let mut client = Self::remote(&remote, paths, Path::new("")).await?;
            let request = Request::get(remote.path("/health")).header(header::HOST, remote.authority());
            let request = request.body(Full::default()).map_err(|error| Error::internal(error.to_string()))?;
            client.sender.send_request(request).await.map(drop).map_err(|error| remote.unreachable(&error))
        };
        // Boxed: this machine's own daemon needs none of it.
        Box::pin(remote.while_healthy(response, health)).await.map_err(ConnectionLost)
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        query: &str,
        body: Bytes,
        more: Option<(&str, &str)>,
    ) -> Result<Result<Response<Incoming>>, ConnectionLost> {
        // The result of a target with a host is on that host, too.
        let elsewhere = HOST.with_borrow(|host| {
            let host = host.as_deref().filter(|host| !is_on(&self.server, host));
            host.map(|host| format!("socket={}", url::encode(&default_server(host))))
        });
        let own = elsewhere.as_deref().unwrap_or(&self.query);
        let (path, host) = match &self.remote {
            Some(remote) => (remote.path(path), remote.authority()),
            None => (path.to_owned(), "muxtap".to_owned()),
        };
        let mut request =
            Request::builder().method(method).uri(url::joined(&path, own, query)).header(header::HOST, host);
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some((name, value)) = more {
            request = request.header(name, value);
        }
        if let Some(token) = &self.bearer {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = match request.body(Full::new(body)) {
            Ok(request) => request,
            Err(error) => return Ok(Err(Error::internal(format!("request: {error}")))),
        };
        if let Err(error) = self.sender.ready().await {
            return Err(self.lost(&error).await);
        }
        let sent = self.sender.send_request(request);
        let response = match Self::waited(self.remote.clone(), &self.paths, sent).await? {
            Ok(response) => response,
            Err(error) => return Err(self.lost(&error).await),
        };
        if let Some(host) = response.headers().get(wire::HOST).and_then(|host| host.to_str().ok()) {
            HOST.with_borrow_mut(|known| *known = Some(host.to_owned()));
        }
        if self.compares_versions {
            warn_of_other_version(response.headers().get(wire::VERSION).and_then(|version| version.to_str().ok()));
        }
        Ok(Ok(response))
    }

    async fn read<T: DeserializeOwned>(&self, response: Response<Incoming>) -> Result<Result<T>, ConnectionLost> {
        let status = response.status();
        let body = response.into_body().collect();
        let body = match Self::waited(self.remote.clone(), &self.paths, body).await? {
            Ok(body) => body.to_bytes(),
            Err(error) => return Err(self.lost(&error).await),
        };
        Ok(if status.is_success() { answer(&body) } else { Err(refusal(status, &body)) })
    }

    /// Builds the error for a lost connection, which says whether the daemon has exited.
    async fn lost(&self, error: &(dyn std::fmt::Display + Sync)) -> ConnectionLost {
        let ended = match self.process {
            Some(process) => has_ended(process).await.then_some(process),
            None => None,
        };
        ConnectionLost(match &self.remote {
            Some(remote) => remote.unreachable(error),
            None => lost(&self.paths, ended, error),
        })
    }
}

/// The error for a response that will not come.
#[derive(Debug)]
pub(super) struct ConnectionLost(pub(super) Error);

impl From<ConnectionLost> for Error {
    fn from(ConnectionLost(error): ConnectionLost) -> Self {
        error
    }
}

/// How long a process may take to exit after its connection has ended. A killed process needs a
/// moment for its memory and threads, much longer on a busy machine.
pub(super) const END_LIMIT: Duration = Duration::from_secs(5);

/// Returns whether the process has ended. Its connections end a little earlier.
pub(super) async fn has_ended(process: u32) -> bool {
    match death::watch(process) {
        Some(ends) => tokio::time::timeout(END_LIMIT, ends).await.is_ok(),
        None => !death::is_alive(process),
    }
}

/// A stream of events.
pub(super) struct EventStream {
    body: Incoming,
    client: Client,
    parser: sse::Parser,
}

impl EventStream {
    /// Reads at least one chunk and passes the data of the events in it to `event`. `Ok(false)`:
    /// the daemon ended the stream.
    pub(super) async fn next(&mut self, mut event: impl FnMut(&[u8])) -> Result<bool, ConnectionLost> {
        self.next_with_id(|data, _| event(data)).await
    }

    /// Reads as [`Self::next`] does, and also passes the id of each event, if it has one.
    pub(super) async fn next_with_id(
        &mut self,
        event: impl FnMut(&[u8], Option<&str>),
    ) -> Result<bool, ConnectionLost> {
        match self.body.frame().await {
            None => Ok(false),
            Some(Err(error)) => Err(self.client.lost(&error).await),
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.parser.feed(data, event);
                }
                Ok(true)
            }
        }
    }

    /// Resolves when the daemon has closed the connection of an ended stream: a stopping daemon
    /// ends its streams first, then responds to requests for a while.
    pub(super) async fn closed(self) {
        let Self { body, client, .. } = self;
        client.closed().await;
        drop(body);
    }

    /// Returns the position after the last event.
    pub(super) fn last_id(&self) -> Option<&str> {
        self.parser.last_id()
    }
}

/// The field of an error's `details` that names a scope which the token lacks.
const MISSING_SCOPE: &str = "missingScope";

/// The message of the error after the daemon has exited normally.
pub(super) const DAEMON_ENDED: &str = "the daemon has ended";

/// The end of an error about a request that may have changed something.
pub(super) const PERHAPS_DONE: &str = "; the outcome is unknown: check before you retry";

/// Returns the query of each request: `socket=…&from=…`.
pub(super) fn query_of(server: &Path, from: Option<&str>) -> Result<String> {
    let text = server.to_str().ok_or_else(|| {
        Error::invalid(format!("the tmux socket's path {} is not valid UTF-8: use another path", server.display()))
    })?;
    let origin = from.map_or_else(String::new, |pane| format!("&from={}", url::encode(pane)));
    Ok(format!("socket={}{origin}", url::encode(text)))
}

/// Warns, once in this process, if the daemon has a different version. `None`: unknown version.
pub(super) fn warn_of_other_version(theirs: Option<&str>) {
    let ours = env!("CARGO_PKG_VERSION");
    let Some(theirs) = theirs else { return };
    if theirs != ours && !WARNED.replace(true) {
        output::note(&format!(
            "the daemon is muxtap {theirs}, this is {ours}: `muxtap upgrade` replaces it, `muxtap stop` stops it"
        ));
    }
}

/// Returns the error for a lost connection. `ended`: the daemon's process, if it has exited.
pub(super) fn lost(paths: &Paths, ended: Option<u32>, error: &dyn std::fmt::Display) -> Error {
    let log = paths.log.display();
    Error::unavailable(match ended {
        Some(process) => format!("the muxtap daemon (process {process}) was killed or crashed; its log is {log}"),
        None => format!("lost the connection to the muxtap daemon ({error}); its log is {log}"),
    })
}

/// Returns whether an error is about the token itself. The relay's and an owner's own refusals have a
/// stage, and a missing scope is named: a renewed token would not have it either.
fn is_about_token(error: &Error) -> bool {
    let lacks_scope = error.details.as_ref().is_some_and(|details| details.get(MISSING_SCOPE).is_some());
    error.code == ErrorCode::Unauthorized && error.stage.is_none() && !lacks_scope
}

/// Parses the body of a response.
pub(super) fn answer<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body)
        .map_err(|error| Error::internal(format!("cannot parse the daemon's response: {error}")))
}

/// Parses the error in the body of a response with this status.
pub(super) fn refusal(status: StatusCode, body: &[u8]) -> Error {
    serde_json::from_slice(body).unwrap_or_else(|_| unexpected(status, body))
}

fn unexpected(status: StatusCode, body: &[u8]) -> Error {
    let text: String = String::from_utf8_lossy(body).chars().take(200).collect();
    Error::internal(format!("unexpected response from the daemon: HTTP {status}: {}", text.trim()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_is_renewed_if_it_is_rejected_but_not_if_it_lacks_a_scope() {
        let rejected = Error::new(ErrorCode::Unauthorized, "missing or invalid token");
        assert!(is_about_token(&rejected));
        assert!(!is_about_token(&rejected.clone().with_details(json!({ "missingScope": "terminals" }))));
        assert!(!is_about_token(&Error::new(ErrorCode::NotFound, "no such pane")));
    }
}
