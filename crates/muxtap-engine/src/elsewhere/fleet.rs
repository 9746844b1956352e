//! The hosts of a fleet that this daemon has yet to join.

use muxtap_api::{Error, Result, ServerQuery, TargetField, is_host_pattern};
use muxtap_tmux::check_name;

use super::{super::Engine, JOIN_LIMIT, Transports};

/// How far the hosts of a fleet are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FleetHosts {
    /// There is no fleet.
    #[default]
    None,
    /// The daemon is joining: its hosts will be known.
    Joining,
    /// The daemon has not joined since its start, and the fleet cannot be reached now.
    Out,
    /// The daemon has joined: the hosts that were there are known.
    Known,
}

impl Transports {
    /// Notes how far the hosts of a fleet are known. Hosts that are known stay known.
    fn set_fleet(&self, hosts: FleetHosts) {
        self.fleet.send_if_modified(|known| {
            if *known == hosts || (*known, hosts) == (FleetHosts::Known, FleetHosts::Out) {
                return false;
            }
            *known = hosts;
            true
        });
    }

    /// Returns whether a word that names no known host may name some of a fleet that is not joined yet.
    pub(super) fn may_join(&self, word: &str) -> bool {
        matches!(*self.fleet.borrow(), FleetHosts::Joining | FleetHosts::Out)
            && (is_host_pattern(word) || check_name(word).is_ok())
            && !self.lock().contains_key(word)
    }

    /// Checks that a target means the same before and after this daemon has joined its fleet. Error:
    /// `TMUX_UNAVAILABLE`.
    pub(in super::super) fn check_joined(&self, target: &str) -> Result<()> {
        let Some((word, _)) = target.split_once('/').filter(|(word, _)| self.may_join(word)) else { return Ok(()) };
        let Error { code, message, .. } = unjoined(word);
        Err(Error::new(code, format!("{message}; `={target}` names a session of this host")))
    }
}

/// Returns the error for a host, or a pattern, of a fleet that is not joined yet.
pub(super) fn unjoined(host: &str) -> Error {
    Error::unavailable(if is_host_pattern(host) {
        format!("the fleet is not joined yet, so the hosts that `{host}` matches are not known")
    } else {
        format!("the fleet is not joined yet, so the host {host} is not known")
    })
}

impl Engine {
    /// Notes how far the hosts of a fleet are known. [`FleetHosts::Out`] changes nothing once they are.
    pub fn set_fleet_hosts(&self, hosts: FleetHosts) {
        self.shared.transports.set_fleet(hosts);
    }

    /// Waits, for 5 s at most, until this daemon has joined its fleet, if a request may name a host of it.
    /// Afterwards [`Self::split`] and [`Self::place`] reject a host that is still unknown: without its
    /// name, the target would mean a session of this host. `visit`: as for [`Self::place`].
    pub fn await_hosts<V>(&self, at: &ServerQuery, visit: V) -> impl Future<Output = ()> + Send + use<V>
    where
        V: FnOnce(&mut dyn FnMut(TargetField<'_>)),
    {
        let mut fleet = self.shared.transports.fleet.subscribe();
        let mut may_name = false;
        if *fleet.borrow() == FleetHosts::Joining {
            may_name = at.socket.as_deref().is_some_and(|socket| !socket.starts_with('/') && socket.contains('/'));
            visit(&mut |field| match field {
                TargetField::One(target) | TargetField::Listed(target) => may_name |= target.contains('/'),
            });
        }
        async move {
            if may_name {
                let known = fleet.wait_for(|hosts| *hosts != FleetHosts::Joining);
                let _ = tokio::time::timeout(JOIN_LIMIT, known).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use muxtap_api::ErrorCode;
    use muxtap_tmux::Transport;

    use super::*;

    #[test]
    fn a_target_that_may_name_a_host_of_the_fleet_is_rejected_until_the_fleet_is_joined() {
        let transports = Transports::default();
        let rejected = |target: &str| transports.check_joined(target).err();
        assert_eq!(rejected("web-1/work"), None);
        for state in [FleetHosts::Joining, FleetHosts::Out] {
            transports.set_fleet(state);
            for target in ["web-1/work", "web-*/work", "*/{role=build}"] {
                let error = rejected(target).unwrap();
                assert_eq!(error.code, ErrorCode::TmuxUnavailable);
                assert!(error.message.ends_with(&format!("; `={target}` names a session of this host")), "{error}");
            }
            for target in ["=web-1/work", "=web-*/work", "work", "work:0/x", "{path=*/x}", "/x", "%3", ""] {
                assert_eq!(rejected(target), None, "{target}");
            }
        }
        transports.add(Transport::in_fleet("web-1").unwrap()).unwrap();
        assert_eq!(rejected("web-1/work"), None);
        assert!(rejected("web-2/work").is_some());
        // It has joined once, so it knows its hosts.
        transports.set_fleet(FleetHosts::Known);
        transports.set_fleet(FleetHosts::Out);
        assert_eq!(rejected("web-2/work"), None);
    }
}
