//! Connects to an HTTP server of another machine, with TLS if its address begins with `https`.

use std::{
    io,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{HeaderMap, Request, StatusCode, Uri, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, crypto, pki_types::ServerName},
};

/// A connection over any transport.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// The address of the server.
pub struct Address {
    host: String,
    port: u16,
    /// The TLS connector with the trusted certificates, if the server uses TLS; created at first
    /// use.
    tls: Option<OnceLock<TlsConnector>>,
    /// The path prefix of the server's routes, without a slash at the end.
    base: String,
}

impl Address {
    /// Reads `http://HOST[:PORT][/PATH]` or `https://…`.
    pub fn read(url: &str) -> io::Result<Self> {
        let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("invalid address {url:?}: {why}"));
        let uri: Uri = url.trim().parse().map_err(|_| wrong("not a valid URL"))?;
        let (port, tls) = match uri.scheme_str() {
            Some("http") => (80, None),
            Some("https") => (443, Some(OnceLock::new())),
            _ => return Err(wrong("expected http:// or https://")),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("missing host"))?;
        Ok(Self {
            host: host.to_owned(),
            port: uri.port_u16().unwrap_or(port),
            tls,
            base: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// Returns whether no other machine can read what is sent: TLS, or a loopback address.
    pub fn is_private(&self) -> bool {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let is_loopback = host.parse::<std::net::IpAddr>().map_or(host == "localhost", |address| address.is_loopback());
        self.tls.is_some() || is_loopback
    }

    /// Returns the value of the `Host` header.
    pub fn authority(&self) -> String {
        let usual = if self.tls.is_some() { 443 } else { 80 };
        if self.port == usual { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    /// Returns the path of a route below the address.
    pub fn path(&self, route: &str) -> String {
        format!("{}{route}", self.base)
    }

    /// Returns the URL of a WebSocket route below the address.
    pub fn websocket(&self, route: &str) -> String {
        let scheme = if self.tls.is_some() { "wss" } else { "ws" };
        format!("{scheme}://{}{}", self.authority(), self.path(route))
    }

    /// Opens a connection. The caller sets the time limit.
    pub async fn connect(&self) -> io::Result<Box<dyn Wire>> {
        // Only a URL has brackets around an IPv6 address.
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, self.port)).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let tls = if let Some(tls) = tls.get() {
            tls.clone()
        } else {
            let made = tokio::task::spawn_blocking(connector).await.map_err(io::Error::other)??;
            tls.get_or_init(|| made).clone()
        };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Box::new(tls.connect(name, stream).await?))
    }
}

/// A response of an HTTP server.
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// Sends one request over a connection of its own, and returns the response. Redirects are not
/// followed. The caller sets the time limit; dropping the future closes the connection.
///
/// `most`: the longest body that is read, in bytes. Error: no connection, an untrusted certificate, a
/// response that is not HTTP, or a longer body.
pub async fn exchange(address: &Address, request: Request<Full<Bytes>>, most: usize) -> io::Result<Answer> {
    let wire = TokioIo::new(address.connect().await?);
    let (mut sender, connection) = http1::handshake(wire).await.map_err(io::Error::other)?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, most).collect().await.map_err(io::Error::other)?.to_bytes();
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    };
    let mut exchange = std::pin::pin!(exchange);
    // The connection is driven in this task, so that it ends with the request.
    tokio::select! {
        answer = &mut exchange => answer,
        _ = connection => exchange.await,
    }
}

/// Creates a connector that trusts what this machine trusts, and what `SSL_CERT_FILE` names: a server
/// with a company's own certificate, or with one that muxtap generated, works too.
fn connector() -> io::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!("cannot load this machine's certificates: {error}");
    }
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(io::Error::other(
            "this machine has no trusted certificates; install ca-certificates or set SSL_CERT_FILE",
        ));
    }
    trusting(roots)
}

fn trusting(roots: RootCertStore) -> io::Result<TlsConnector> {
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_port_and_a_path() {
        let address = Address::read("https://chat.example.org/mm/").unwrap();
        assert_eq!(address.websocket("/api/v4/websocket"), "wss://chat.example.org/mm/api/v4/websocket");
        assert_eq!(address.path("/api/v4/posts"), "/mm/api/v4/posts");
        assert!(address.is_private() && !Address::read("http://chat.example.org").unwrap().is_private());
        assert!(Address::read("http://localhost:1").unwrap().is_private());
        let address = Address::read("http://[::1]:8065").unwrap();
        assert!(address.is_private());
        assert_eq!(address.authority(), "[::1]:8065");
        assert_eq!(address.websocket("/ws"), "ws://[::1]:8065/ws");
    }

    #[test]
    fn what_is_no_address_is_said_to_be_none() {
        for url in ["", "chat.example.org", "ftp://x", "https://"] {
            assert!(Address::read(url).is_err(), "{url}");
        }
    }

    #[tokio::test]
    async fn https_is_tls_with_a_certificate_that_is_trusted() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject as _};

        let dir = tempfile::tempdir().unwrap();
        let made = crate::tls::load_or_generate(dir.path(), &[]).unwrap();
        let acceptor = crate::tls::acceptor(&made.files).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            // The first client trusts the authority, the second does not.
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            stream.write_all(b"hello").await.unwrap();
            stream.shutdown().await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            acceptor.accept(stream).await.map(drop)
        });
        let mut trusted = RootCertStore::empty();
        trusted.add(CertificateDer::from_pem_file(&made.authority).unwrap()).unwrap();
        let address = Address::read(&format!("https://localhost:{port}")).unwrap();
        assert!(address.tls.as_ref().unwrap().set(trusting(trusted).unwrap()).is_ok());
        let mut said = String::new();
        address.connect().await.unwrap().read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "hello");

        let address = Address::read(&format!("https://127.0.0.1:{port}")).unwrap();
        assert!(address.tls.as_ref().unwrap().set(trusting(RootCertStore::empty()).unwrap()).is_ok());
        assert!(address.connect().await.is_err());
        assert!(server.await.unwrap().is_err());
    }
}
