//! Strict parser for `Host` headers (RFC 3986, section 3.2): anything but a host and a port is
//! invalid.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The host in a `Host` header or a request line, without its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Host<'a> {
    /// An address: `127.0.0.1`, `[::1]`.
    Address(IpAddr),
    /// A name, without a trailing dot.
    Name(&'a str),
}

impl<'a> Host<'a> {
    /// Parses `HOST` or `HOST:PORT`. `None` if the text has anything else, such as a user, a path
    /// or an empty port.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix('[') {
            let (address, port) = rest.split_once(']')?;
            if !port.is_empty() {
                check_port(port.strip_prefix(':')?)?;
            }
            return Some(Self::Address(address.parse::<Ipv6Addr>().ok()?.into()));
        }
        let name = match text.split_once(':') {
            Some((name, port)) => {
                check_port(port)?;
                name
            }
            None => text,
        };
        if let Ok(address) = name.parse::<Ipv4Addr>() {
            return Some(Self::Address(address.into()));
        }
        let name = name.strip_suffix('.').unwrap_or(name);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_plain);
        name.split('.').all(is_label).then_some(Self::Name(name))
    }
}

fn check_port(port: &str) -> Option<()> {
    // A sign is invalid in a port, though `u16` accepts it.
    (port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()).then_some(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Malformed hosts and ports, each with a name of this daemon in it.
    pub(in super::super) const MALFORMED: [&str; 36] = [
        "[::1].evil.com",
        "[::1]garbage",
        "[::1]:",
        "[::1]:80@x",
        "[::1]:80:80",
        "[::1]:+80",
        "[::1]:65536",
        "[::1",
        "::1",
        "::1]",
        "[[::1]]",
        "[]",
        "[127.0.0.1]",
        "[localhost]",
        "[::1%lo]",
        "[::1]]",
        "x[::1]",
        "127.0.0.1:80@x",
        "127.0.0.1:",
        "127.0.0.1:80:80",
        "127.0.0.1:80/",
        "127.0.0.1:+80",
        "127.0.0.1:65536",
        "127.0.0.1:8 0",
        "127.0.0.1 ",
        "127.0.0.1/evil",
        "127.0.0.1,evil.example",
        "127.0.0.1#",
        "x@127.0.0.1",
        "localhost@evil.example",
        "user:pass@localhost",
        "localhost:",
        "localhost..",
        ".localhost",
        "localhost:80x",
        "localhost\\evil.example",
    ];

    #[test]
    fn a_host_header_is_parsed_strictly() {
        for malformed in MALFORMED {
            assert_eq!(Host::parse(malformed), None, "{malformed}");
        }
        let address = |text: &str| Some(Host::Address(text.parse().unwrap()));
        assert_eq!(Host::parse("[::1]:7717"), address("::1"));
        assert_eq!(Host::parse("[::1]"), address("::1"));
        assert_eq!(Host::parse("127.0.0.1:7717"), address("127.0.0.1"));
        assert_eq!(Host::parse("box.lan.:1"), Some(Host::Name("box.lan")));
        // Other forms of an address are names, and no host has them.
        for name in ["127.1", "0x7f000001", "2130706433", "0177.0.0.1", "127.0.0.1.nip.io"] {
            assert_eq!(Host::parse(name), Some(Host::Name(name)));
        }
    }
}
