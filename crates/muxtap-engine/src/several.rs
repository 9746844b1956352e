//! Requests for several hosts: their targets by host, and lists of several hosts joined to one.

use std::{collections::BTreeSet, fmt::Write as _};

use futures_util::{StreamExt as _, stream};
use muxtap_api::{Error, ErrorCode, HostInfo, HostState, Result, ServerQuery, is_host_pattern};
use muxtap_base::glob::Glob;
use muxtap_tmux::is_absent;
use sha2::{Digest as _, Sha256};

use super::{
    Engine, Principal,
    elsewhere::{ASKED_AT_ONCE, LIST_LIMIT, default_server, unknown_host},
};

/// The part of a request that is for one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The host; `None`: this one.
    pub host: Option<String>,
    /// The tmux server.
    pub at: ServerQuery,
    /// The targets on that host, without its name.
    pub targets: Vec<String>,
    /// Whether patterns alone name the host: then it need not have what the targets name.
    pub by_pattern: bool,
}

impl Part {
    /// Returns whether an error says that the host, which patterns name, has nothing of what they name.
    pub fn has_nothing(&self, error: &Error) -> bool {
        self.by_pattern && (error.code == ErrorCode::NotFound || is_absent(error))
    }
}

/// Returns whether an error is about the request itself, and not about the state of a host.
pub fn is_about_request(error: &Error) -> bool {
    matches!(
        error.code,
        ErrorCode::InvalidArgument | ErrorCode::InvalidTarget | ErrorCode::AmbiguousTarget | ErrorCode::NotFound
    )
}

/// Returns the error for a host that has not responded in time.
pub fn late(host: Option<&str>) -> Error {
    match host {
        Some(host) => Error::unavailable(format!("host {host}: it has not replied yet")),
        None => Error::unavailable("this host's tmux server has not replied yet"),
    }
}

/// Returns the key of the wait on one host, for a wait on several hosts that has this key. Hosts do
/// not share it: two names may be of one daemon.
pub fn key_on_host(key: &str, host: Option<&str>) -> String {
    let hash = Sha256::digest(format!("{key}/{}", host.unwrap_or_default()));
    hash.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Splits targets by their hosts. `known`: the names of hosts. `None`: all are on one host that no
/// pattern names.
///
/// Errors: `NOT_FOUND` for a pattern that matches no host, `INVALID_ARGUMENT` for a server that is
/// not on this host.
fn split(known: &BTreeSet<String>, at: &ServerQuery, targets: &[String]) -> Result<Option<Vec<Part>>> {
    let mut parts: Vec<Part> = Vec::new();
    let mut add = |host: Option<&str>, target: &str, by_pattern: bool| {
        if let Some(part) = parts.iter_mut().find(|part| part.host.as_deref() == host) {
            part.targets.push(target.to_owned());
            part.by_pattern &= by_pattern;
            return;
        }
        let at = match host {
            Some(host) => ServerQuery { socket: Some(default_server(host)), from: None },
            None => at.clone(),
        };
        parts.push(Part { host: host.map(str::to_owned), at, targets: vec![target.to_owned()], by_pattern });
    };
    let mut has_pattern = false;
    for target in targets {
        match target.split_once('/') {
            Some((host, rest)) if known.contains(host) => add(Some(host), rest, false),
            Some((host, rest)) if is_host_pattern(host) => {
                has_pattern = true;
                let glob = Glob::new(host);
                let mut is_host = false;
                for host in known.iter().filter(|name| glob.matches(name)) {
                    is_host = true;
                    add(Some(host), rest, true);
                }
                if !is_host {
                    return Err(Error::not_found(format!(
                        "{target}: no known host matches `{host}`; `muxtap hosts` lists the hosts, and `={target}` \
                         means sessions of this host"
                    )));
                }
            }
            _ => add(None, target, false),
        }
    }
    if !has_pattern && parts.len() < 2 {
        return Ok(None);
    }
    let is_elsewhere = at.socket.as_deref().is_some_and(|socket| !socket.starts_with('/') && socket.contains('/'));
    if is_elsewhere {
        let socket = at.socket.as_deref().unwrap_or_default();
        return Err(Error::invalid(format!(
            "socket: {socket} is a server of one host, and the targets name several; expected a server of this \
             host, or no `socket`; other hosts use their default server"
        )));
    }
    Ok(Some(parts))
}

impl Engine {
    /// Splits a request's targets by their hosts. `None`: the request is for one host, and
    /// [`Engine::place`] selects its server.
    ///
    /// Errors: `NOT_FOUND` for a pattern that matches no host, `INVALID_ARGUMENT` for a server that is
    /// not on this host, `TMUX_UNAVAILABLE` for a host that may be of a fleet that is not joined yet,
    /// `UNAUTHORIZED` for a pattern of a member of the fleet.
    pub fn split(&self, at: &ServerQuery, targets: &[String]) -> Result<Option<Vec<Part>>> {
        if self.shared.transports.is_empty() || !targets.iter().any(|target| target.contains('/')) {
            return Ok(None);
        }
        if let Principal::Fleet(_) = self.caller().principal {
            // A pattern must not tell whether it matches. Hosts that are named are refused one by one.
            let host = |target: &String| target.split_once('/').map(|(host, _)| host.to_owned());
            return match targets.iter().filter_map(host).find(|host| is_host_pattern(host)) {
                Some(host) => Err(unknown_host(&host)),
                None => Ok(None),
            };
        }
        targets.iter().try_for_each(|target| self.shared.transports.check_joined(target))?;
        split(&self.shared.transports.names(), at, targets)
    }

    /// Returns a host that gave no response to its part of a request.
    pub fn unreachable(&self, host: Option<&str>, error: &Error) -> HostInfo {
        let known = self.hosts_elsewhere().into_iter().find(|known| Some(known.name.as_str()) == host);
        let mut info = known.unwrap_or_else(|| HostInfo {
            name: host.unwrap_or_default().into(),
            command: String::new(),
            configured: false,
            state: HostState::Unasked,
            servers: Vec::new(),
            fleet: None,
            peer: None,
            reason: None,
            error: None,
        });
        info.error = Some(error.message.clone());
        info
    }

    /// Lists items of several hosts by `list`, each host's in turn. Also returns the hosts that gave
    /// no list. One that is slow or absent delays the list by 3 s at most.
    ///
    /// Errors: what is wrong with the request itself; the first error if no host gave a list.
    pub async fn list_parts<T, F>(&self, parts: Vec<Part>, list: impl Fn(Part) -> F) -> Result<(Vec<T>, Vec<HostInfo>)>
    where
        F: Future<Output = Result<Vec<T>>>,
    {
        let list = &list;
        let each = parts.into_iter().map(|part| async move {
            let listed = tokio::time::timeout(LIST_LIMIT, list(part.clone())).await;
            let listed = listed.unwrap_or_else(|_| Err(late(part.host.as_deref())));
            (part, listed)
        });
        let listed = stream::iter(each).buffered(ASKED_AT_ONCE).collect::<Vec<_>>().await;
        let (mut items, mut unreachable, mut first, mut has_list) = (Vec::new(), Vec::new(), None, false);
        for (part, listed) in listed {
            match listed {
                Ok(listed) => {
                    has_list = true;
                    items.extend(listed);
                }
                Err(error) if part.has_nothing(&error) => has_list = true,
                Err(error) if is_about_request(&error) => return Err(error),
                Err(error) => {
                    unreachable.push(self.unreachable(part.host.as_deref(), &error));
                    first.get_or_insert(error);
                }
            }
        }
        match first {
            Some(error) if !has_list => Err(error),
            _ => Ok((items, unreachable)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(targets: &[&str]) -> Result<Option<Vec<(String, String, bool)>>> {
        let known = ["web-1", "web-2", "db"].map(str::to_owned).into();
        let targets: Vec<_> = targets.iter().map(|target| (*target).to_owned()).collect();
        let parts = split(&known, &ServerQuery::default(), &targets)?;
        let plain = |part: Part| (part.host.unwrap_or_default(), part.targets.join(" "), part.by_pattern);
        Ok(parts.map(|parts| parts.into_iter().map(plain).collect()))
    }

    fn part(host: &str, targets: &str, by_pattern: bool) -> (String, String, bool) {
        (host.into(), targets.into(), by_pattern)
    }

    #[test]
    fn targets_are_split_by_their_hosts() {
        for one in [&["db/%1", "db/w*"][..], &["a", "b"], &["x/y"], &["{path=*/x}"], &["work:*/x"], &["=web-*/x"], &[]]
        {
            assert_eq!(parts(one).unwrap(), None, "{one:?}");
        }
        let both = vec![part("web-1", "build:0", true), part("web-2", "build:0", true)];
        assert_eq!(parts(&["web-*/build:0"]).unwrap(), Some(both));
        let all = parts(&["*/{a=1,b=2}", "{a=1}"]).unwrap().unwrap();
        let hosts: Vec<_> = all.iter().map(|(host, ..)| host.as_str()).collect();
        assert_eq!(hosts, ["db", "web-1", "web-2", ""]);
        // A host that is named, too, must have what is named there.
        let named = vec![part("web-1", "x y", false), part("web-2", "x", true)];
        assert_eq!(parts(&["web-*/x", "web-1/y"]).unwrap(), Some(named));
        assert_eq!(parts(&["d*/x"]).unwrap(), Some(vec![part("db", "x", true)]));
        assert_eq!(parts(&["mail-*/x"]).unwrap_err().code, ErrorCode::NotFound);
    }

    #[test]
    fn each_host_has_a_key_of_its_own() {
        let keys = [key_on_host("k", None), key_on_host("k", Some("a")), key_on_host("k", Some("b"))];
        assert!(keys.iter().all(|key| super::super::id_of_key(key).is_ok()));
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 3);
    }
}
