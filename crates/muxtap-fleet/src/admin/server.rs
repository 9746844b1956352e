//! The server's configuration, as text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use muxtap_api::{Error, Result};
use serde::{Deserialize, Serialize};

/// NATS' own port.
pub const PORT: u16 = 4222;
/// The version of [`Description`].
const VERSION: u32 = 1;

/// The arguments of `init`, stored as `fleet.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    version: u32,
    /// The address on which the server listens.
    pub listen: SocketAddr,
    /// The names of the server in its certificate; members connect to the first one.
    pub names: Vec<String>,
}

impl Description {
    /// Describes a fleet. `names` must not be empty.
    pub fn new(listen: SocketAddr, names: Vec<String>) -> Self {
        Self { version: VERSION, listen, names }
    }

    /// Parses `fleet.json`.
    pub fn parse(text: &str) -> Result<Self> {
        let description: Self = serde_json::from_str(text)
            .map_err(|error| Error::invalid(format!("invalid description of the fleet: {error}")))?;
        if description.version != VERSION || description.names.is_empty() {
            return Err(Error::invalid(format!(
                "invalid description of the fleet: version {}, {} names; expected version {VERSION} and a name",
                description.version,
                description.names.len()
            )));
        }
        Ok(description)
    }

    /// Returns the URL for members.
    pub fn url(&self) -> String {
        let name = self.names.first().map_or("localhost", String::as_str);
        url(name, self.listen.port())
    }

    /// Returns the URL on the server's machine.
    pub fn local_url(&self) -> String {
        url(&self.local_address().to_string(), self.listen.port())
    }

    /// Returns the address of the server on its machine.
    pub fn local_address(&self) -> IpAddr {
        match self.listen.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
            address => address,
        }
    }

    /// Returns the names in the certificate: the given ones and those of the server's machine.
    pub fn certificate_names(&self) -> Vec<String> {
        let local = ["localhost".to_owned(), "127.0.0.1".into(), "::1".into(), self.local_address().to_string()];
        let mut names = self.names.clone();
        for name in local {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

fn url(host: &str, port: u16) -> String {
    if host.contains(':') { format!("tls://[{host}]:{port}") } else { format!("tls://{host}:{port}") }
}

/// Parses the address on which the server listens: an IP address with or without a port.
pub fn listen_address(text: &str) -> Result<SocketAddr> {
    let parsed = text.parse().or_else(|_| text.parse().map(|address: IpAddr| SocketAddr::new(address, PORT)));
    parsed.ok().filter(|address: &SocketAddr| address.port() != 0).ok_or_else(|| {
        Error::invalid(format!("invalid address: {text:?}; expected an IP address with or without a port (not 0)"))
    })
}

/// Returns whether a path can be written in the server's configuration as it is.
pub(super) fn is_plain_path(path: &str) -> bool {
    !path.contains(|character: char| character.is_control() || matches!(character, '"' | '\\'))
}

/// Renders `nats.conf` for a fleet in this folder, an absolute path.
pub(super) fn render(folder: &str, listen: SocketAddr) -> String {
    format!(
        r#"# A NATS server for a fleet of muxtap, written by `muxtap fleet init`. Yours to edit.

listen: "{listen}"
# Every connection is encrypted. Members check the certificate with tls/ca.pem.
tls {{
  cert_file: "{folder}/tls/server.pem"
  key_file: "{folder}/tls/server.key"
  timeout: 5
}}
jetstream {{
  store_dir: "{folder}/jetstream"
  max_memory_store: 16MB
  max_file_store: 256MB
}}
pid_file: "{folder}/nats.pid"

accounts {{
  MUXTAP {{
    jetstream {{ max_memory: 0, max_file: 256MB, max_streams: 4, max_consumers: 16 }}
    include "members.conf"
  }}
  SYS {{}}
}}
system_account: SYS
"#
    )
}
