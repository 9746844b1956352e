//! The daemon's TCP ports.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

use muxtap_http::Guard;
use muxtap_net::{
    self, tls,
    token::{self, Token},
};
use sha2::{Digest as _, Sha256};
use tokio_rustls::TlsAcceptor;

use crate::{
    api::{Error, ErrorCode, Result},
    config::{Settings, paths::Paths},
};

/// An open TCP port and its guard.
pub(super) struct TcpEndpoint {
    /// The URL of the port.
    pub(super) url: String,
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    pub(super) guard: Guard,
}

impl TcpEndpoint {
    /// Returns another descriptor of its listening socket.
    pub(super) fn listening(&self) -> io::Result<TcpListener> {
        self.listener.try_clone()
    }

    /// Converts the endpoint for [`muxtap_net::serve`]. Must be called within a tokio runtime.
    pub(super) fn into_listener(self) -> io::Result<(muxtap_net::Listener, Guard)> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let listener = match self.acceptor {
            Some(acceptor) => muxtap_net::Listener::Tls(listener, acceptor),
            None => muxtap_net::Listener::Tcp(listener),
        };
        Ok((listener, self.guard))
    }
}

/// Binds all addresses of the settings. Error: `INVALID_ARGUMENT` if that would be unsafe,
/// `CONFLICT` if it fails.
/// `handed`: ports of a daemon from which this one takes over; those that the settings name are taken.
pub(super) fn bind_all(settings: &Settings, paths: &Paths, handed: &mut Vec<TcpListener>) -> Result<Vec<TcpEndpoint>> {
    if settings.http.is_empty() {
        return Ok(Vec::new());
    }
    refuse_unsafe(settings)?;
    let acceptor = if settings.tls {
        let files = match &settings.certificate {
            Some((cert, key)) => tls::CertificateFiles { cert: cert.clone(), key: key.clone() },
            None => tls::load_or_generate(&paths.tls_dir(), &names(settings))?.files,
        };
        Some(tls::acceptor(&files)?)
    } else {
        None
    };
    let mut take = |addr: SocketAddr| {
        let at = handed.iter().position(|port| is_at(port, addr))?;
        Some(handed.swap_remove(at))
    };
    let open = |addr: &SocketAddr| match take(*addr) {
        Some(listener) => endpoint(listener, settings, acceptor.clone()),
        None => bind(*addr, settings, acceptor.clone()),
    };
    settings.http.iter().map(open).collect()
}

/// Returns whether a port listens where an address of the settings says.
fn is_at(port: &TcpListener, addr: SocketAddr) -> bool {
    port.local_addr().is_ok_and(|own| own == addr || (addr.port() == 0 && own.ip() == addr.ip()))
}

/// Returns whether the settings name a port.
pub(super) fn is_named(settings: &Settings, port: &TcpListener) -> bool {
    settings.http.iter().any(|addr| is_at(port, *addr))
}

/// Continues the port of pages of a daemon from which this one takes over.
pub(super) fn continue_loopback(listener: TcpListener, settings: &Settings) -> Result<TcpEndpoint> {
    token::read_or_create(&settings.token_file)?;
    endpoint(listener, settings, None)
}

/// Checks whether [`bind_all`] would succeed. Creates no file; takes each port for a moment.
pub(super) fn check(settings: &Settings) -> Result<()> {
    if settings.http.is_empty() {
        return Ok(());
    }
    refuse_unsafe(settings)?;
    if let Some((cert, key)) = settings.certificate.as_ref().filter(|_| settings.tls) {
        tls::acceptor(&tls::CertificateFiles { cert: cert.clone(), key: key.clone() })?;
    }
    token::check(&settings.token_file)?;
    settings
        .http
        .iter()
        .try_for_each(|addr| TcpListener::bind(addr).map(drop).map_err(|error| cannot_listen(*addr, &error)))
}

fn refuse_unsafe(settings: &Settings) -> Result<()> {
    match settings.http.iter().find(|addr| !addr.ip().is_loopback()) {
        Some(addr) if !settings.tls => Err(Error::invalid(format!(
            "http: {addr} is reachable from other machines, and unencrypted input and output can be read on the \
             way: set tls, or listen on 127.0.0.1"
        ))),
        _ => Ok(()),
    }
}

fn cannot_listen(addr: SocketAddr, error: &io::Error) -> Error {
    Error::new(ErrorCode::Conflict, format!("http: cannot listen on {addr}: {error}"))
}

/// Returns the names that a generated certificate has to be valid for.
fn names(settings: &Settings) -> Vec<String> {
    let addrs = settings.http.iter().map(SocketAddr::ip).filter(|ip| !ip.is_loopback() && !ip.is_unspecified());
    settings.names.iter().cloned().chain(addrs.map(|ip| ip.to_string())).collect()
}

/// The preferred port for pages.
const PAGE_PORT: u16 = 7717;

/// Binds a port for pages alone, on a loopback address of this user's own: a browser sends a page's
/// cookie to every port of the address that set it, so on 127.0.0.1 any other service would get it.
/// The address and, if it is free, the port stay the same, and with them the data that a browser
/// keeps for the page.
pub(super) fn bind_loopback(settings: &Settings) -> Result<TcpEndpoint> {
    let own = own_loopback(&token::read_or_create(&settings.token_file)?);
    let bound = bind(SocketAddr::from((own, PAGE_PORT)), settings, None);
    let bound = bound.or_else(|_| bind(SocketAddr::from((own, 0)), settings, None));
    // Not every system has more than one such address.
    bound.or_else(|_| bind(SocketAddr::from(([127, 0, 0, 1], 0)), settings, None))
}

/// Returns a loopback address that belongs to a token: outside 127.0.0.0/16, which other programs
/// use.
fn own_loopback(token: &str) -> [u8; 4] {
    let [first, second, third, ..] = <[u8; 32]>::from(Sha256::digest(token.as_bytes()));
    [127, 1 + first % 254, second, 1 + third % 254]
}

fn bind(addr: SocketAddr, settings: &Settings, acceptor: Option<TlsAcceptor>) -> Result<TcpEndpoint> {
    endpoint(TcpListener::bind(addr).map_err(|error| cannot_listen(addr, &error))?, settings, acceptor)
}

fn endpoint(listener: TcpListener, settings: &Settings, acceptor: Option<TlsAcceptor>) -> Result<TcpEndpoint> {
    let unable = |error: io::Error| Error::internal(format!("http: cannot listen: {error}"));
    listener.set_nonblocking(true).map_err(unable)?;
    let addr = listener.local_addr().map_err(unable)?;
    let guard = Guard {
        token: Token::open(&settings.token_file)?.or(std::env::var(token::VARIABLE).ok()),
        names: settings.names.clone(),
        origins: settings.origins.clone(),
        beyond_loopback: !addr.ip().is_loopback(),
        tls: acceptor.is_some(),
        sessions: None,
        pages: None,
    };
    let scheme = if guard.tls { "https" } else { "http" };
    Ok(TcpEndpoint { url: format!("{scheme}://{addr}"), listener, acceptor, guard })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_an_address_of_their_own_that_stays() {
        assert_eq!(own_loopback("one"), own_loopback("one"));
        assert_ne!(own_loopback("one"), own_loopback("another"));
        for token in 0..1000 {
            let [first, second, _, last] = own_loopback(&token.to_string());
            assert!(first == 127 && second != 0 && second != 255 && last != 0 && last != 255);
        }
    }
}
