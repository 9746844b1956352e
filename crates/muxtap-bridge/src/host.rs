//! Checks the `Host` of a request: it must name this machine. A page whose own name resolves to
//! this machine (DNS rebinding) sends that name instead.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::{HeaderMap, Uri, header};

/// Returns whether a request is for this bridge: the only `Host`, and the authority of an absolute
/// URI, are `localhost`, a loopback address, or `configured`, the host on which the bridge listens.
pub fn is_own(headers: &HeaderMap, uri: &Uri, configured: &str) -> bool {
    let mut given = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (given.next(), given.next()) else { return false };
    let is_own = |text: &str| host_of(text).is_some_and(|host| is_local(host) || is_same(host, configured));
    host.to_str().is_ok_and(is_own) && uri.authority().is_none_or(|authority| is_own(authority.as_str()))
}

/// Returns the host of `host[:port]`, an IPv6 address without its brackets. `None` if the text has
/// anything else: a user, an invalid port, text after the brackets.
fn host_of(text: &str) -> Option<&str> {
    let (host, rest) = if let Some(inner) = text.strip_prefix('[') {
        let (address, rest) = inner.split_once(']')?;
        address.parse::<Ipv6Addr>().ok()?;
        (address, rest)
    } else {
        let (name, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        (!name.is_empty() && name.bytes().all(is_name)).then_some(())?;
        (name, rest)
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port)).then_some(host)
}

fn is_local(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

fn is_same(host: &str, configured: &str) -> bool {
    match (host.parse::<IpAddr>(), configured.parse::<IpAddr>()) {
        (Ok(host), Ok(configured)) => host.to_canonical() == configured.to_canonical(),
        _ => host.eq_ignore_ascii_case(configured),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn passes(hosts: &[&str], uri: &str, configured: &str) -> bool {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(header::HOST, HeaderValue::from_str(host).unwrap());
        }
        is_own(&headers, &uri.parse().unwrap(), configured)
    }

    #[test]
    fn only_host_names_of_the_local_machine_are_accepted() {
        for host in
            ["localhost", "LocalHost:3341", "127.0.0.1", "127.8.9.1:1", "[::1]", "[::1]:3341", "[::ffff:127.0.0.1]:0"]
        {
            assert!(passes(&[host], "/v1/tmux", "127.0.0.1"), "{host}");
        }
        for host in [
            "",
            "x",
            "evil.example",
            "evil.example:3341",
            "localhost.evil.example",
            "localhost:",
            "localhost:x",
            "localhost:3341x",
            "localhost:65536",
            "localhost:+1",
            "localhost:1:1",
            "localhost@evil.example",
            "evil@localhost",
            "[::1].evil.example",
            "[::1]evil",
            "[::1",
            "::1",
            "[::1]:",
            "[localhost]",
            "[127.0.0.1]",
            "127.0.0.1.evil.example",
            "127.1",
            "0x7f000001",
            "2130706433",
            "192.0.2.1",
            "localhost/",
            "localhost evil",
        ] {
            assert!(!passes(&[host], "/v1/tmux", "127.0.0.1"), "{host}");
        }
        assert!(!passes(&[], "/v1/tmux", "127.0.0.1"));
        assert!(!passes(&["localhost", "localhost"], "/v1/tmux", "127.0.0.1"));
    }

    #[test]
    fn the_name_where_the_bridge_listens_passes_too() {
        assert!(passes(&["Box.Lan:3341"], "/", "box.lan") && !passes(&["box.lan.evil.example"], "/", "box.lan"));
        assert!(passes(&["0.0.0.0:3341"], "/", "0.0.0.0") && passes(&["[0:0::0]:1"], "/", "::"));
    }

    #[test]
    fn an_absolute_address_counts_as_well() {
        assert!(passes(&["localhost"], "http://127.0.0.1:3341/v1/tmux", "127.0.0.1"));
        assert!(!passes(&["localhost"], "http://evil.example/v1/tmux", "127.0.0.1"));
        assert!(!passes(&["evil.example"], "http://localhost/v1/tmux", "127.0.0.1"));
    }
}
