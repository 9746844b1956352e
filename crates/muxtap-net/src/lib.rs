//! Listening: sockets, TLS, tokens, and the limits of a connection; and connections to other
//! machines. Every interface that listens uses this crate; the meaning of a request is the interface's own.

pub mod handed;
mod held;
pub mod owner;
mod places;
#[cfg(feature = "remote")]
pub mod remote;
mod seldom;
mod serve;
pub mod tls;
pub mod token;

use std::{fmt, net::SocketAddr};

pub use held::holding;
pub use places::Credential;
pub use seldom::Seldom;
pub use serve::unix_socket;
pub use serve::{ConnectionPermit, Limits, Listener, OpenConnections, OutOfDescriptors, Streaming, serve};

/// A connection's other end: an extension of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A process of this machine, on a Unix socket.
    Unix {
        /// The user that the process runs as.
        uid: u32,
        /// The process's id, where the system knows it.
        pid: Option<i32>,
    },
    /// A TCP connection.
    Tcp {
        /// The address of the other end.
        addr: SocketAddr,
        /// Whether the connection is encrypted.
        tls: bool,
    },
    /// A member of a fleet. Its name and its tier are another extension.
    Fleet,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { uid, pid: Some(pid) } => write!(f, "uid {uid}, process {pid}"),
            Self::Unix { uid, pid: None } => write!(f, "uid {uid}"),
            Self::Tcp { addr, .. } => write!(f, "{addr}"),
            Self::Fleet => f.write_str("a member of the fleet"),
        }
    }
}
