//! Listening: sockets, TLS, tokens, and the limits of a connection. Every face that listens stands on this; what a request means is
//! the face's own business.

mod serve;
pub mod tls;
pub mod token;

use std::{fmt, net::SocketAddr};

pub use serve::{ConnectionPermit, Limits, Listener, OutOfDescriptors, Streaming, serve};

/// Who is at the other end of a connection: an extension of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A process of this machine, on a Unix socket.
    Unix {
        /// The user it acts for.
        uid: u32,
        /// Its process, where the system tells.
        pid: Option<i32>,
    },
    /// A TCP connection.
    Tcp {
        /// Its other end.
        addr: SocketAddr,
        /// Whether it is encrypted.
        tls: bool,
    },
}

impl Peer {
    /// Whether it can only be on this machine.
    pub const fn is_local(&self) -> bool {
        match self {
            Self::Unix { .. } => true,
            Self::Tcp { addr, .. } => addr.ip().is_loopback(),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { uid, pid: Some(pid) } => write!(f, "uid {uid}, process {pid}"),
            Self::Unix { uid, pid: None } => write!(f, "uid {uid}"),
            Self::Tcp { addr, .. } => write!(f, "{addr}"),
        }
    }
}
