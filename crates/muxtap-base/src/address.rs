//! Remote addresses, as limits count them.

use std::net::{IpAddr, Ipv6Addr};

/// Returns the address that a remote address counts as: one for all addresses of this machine, and
/// one for each IPv6 network (/64), because a host has a whole network.
pub fn group(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) if v4.is_loopback() => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V6(v6) if !v6.is_loopback() => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        other => other,
    }
}

/// Returns the name that a caller counts as: an address is mapped by [`group`], any other name is
/// unchanged.
pub fn shared_name(who: &str) -> String {
    who.parse().map_or_else(|_| who.to_owned(), |address| group(address).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_a_machine_are_one() {
        for (one, other, is_same) in [
            ("127.0.0.1", "::1", true),
            ("127.0.0.1", "::ffff:127.1.2.3", true),
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("192.0.2.1", "192.0.2.2", false),
            ("process 1", "process 2", false),
        ] {
            assert_eq!(shared_name(one) == shared_name(other), is_same, "{one} {other}");
        }
    }
}
