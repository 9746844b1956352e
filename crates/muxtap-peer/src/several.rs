//! Waits on several hosts: one wait on each, and one answer (`docs/hosts.md`).
//!
//! This daemon stores nothing of such a wait: its id names the hosts, and each host has its own wait
//! under a key that follows from the id.

mod branch;

use std::{
    fmt,
    str::FromStr,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, join_all},
    stream::FuturesUnordered,
};
use hyper::Method;
use muxtap_api::{Error, ErrorCode, PredicateReport, Result, Tier, WaitAnswer, WaitMode, WaitOutcome, WaitRequest};
use muxtap_base::nonce;
use muxtap_engine::{
    Engine, id_of_key,
    limits::{POLL_LONGEST, WAIT_DEFAULT, WAIT_PANES},
    several::{Part, key_on_host, late},
};
use tokio::time::{sleep, timeout, timeout_at};

use self::branch::{Branch, decided};
use super::{Peers, forward::PATIENCE};

/// How long a wait that is left to the hosts waits for one of them to begin it, and a cancelled one for
/// the response.
const BEGIN_LIMIT: Duration = Duration::from_secs(3);

/// The pause before a host that could not be reached is asked for its state again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A wait on several hosts. Its text is its id: `any:web-1+web-2/w-KEY`, in which an empty name is
/// this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Several {
    mode: WaitMode,
    /// Clones share it, and no other value does.
    hosts: Arc<[Option<String>]>,
    key: String,
}

impl fmt::Display for Several {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<_> = self.hosts.iter().map(|host| host.as_deref().unwrap_or_default()).collect();
        write!(f, "{}:{}/w-{}", word(self.mode), hosts.join("+"), self.key)
    }
}

impl FromStr for Several {
    type Err = ();

    fn from_str(id: &str) -> std::result::Result<Self, ()> {
        let (mode, rest) = id.split_once(':').ok_or(())?;
        let mode = [WaitMode::Any, WaitMode::All].into_iter().find(|known| word(*known) == mode).ok_or(())?;
        let (hosts, wait) = rest.split_once('/').ok_or(())?;
        let key = wait.strip_prefix("w-").filter(|key| id_of_key(key).is_ok()).ok_or(())?;
        let hosts: Arc<[_]> =
            hosts.split('+').map(|host| Some(host.to_owned()).filter(|host| !host.is_empty())).collect();
        if hosts.len() > WAIT_PANES {
            return Err(());
        }
        Ok(Self { mode, hosts, key: key.to_owned() })
    }
}

fn word(mode: WaitMode) -> &'static str {
    match mode {
        WaitMode::Any => "any",
        WaitMode::All => "all",
    }
}

/// A wait that a request awaits, under the id that its key gives.
struct Awaited<'a> {
    peers: &'a Peers,
    alias: String,
    several: Several,
}

impl<'a> Awaited<'a> {
    fn new(peers: &'a Peers, several: &Several) -> Result<Self> {
        let alias = id_of_key(&several.key)?;
        let several = several.clone();
        peers.several.lock().unwrap_or_else(PoisonError::into_inner).insert(alias.clone(), several.clone());
        Ok(Self { peers, alias, several })
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        let mut awaited = self.peers.several.lock().unwrap_or_else(PoisonError::into_inner);
        // A retry with the same key may have come meanwhile, and awaits the wait on.
        if awaited.get(&self.alias).is_some_and(|known| Arc::ptr_eq(&known.hosts, &self.several.hosts)) {
            awaited.remove(&self.alias);
        }
    }
}

impl Peers {
    /// Returns the wait on several hosts with this id, or the one that a request with this key awaits.
    pub fn several(&self, id: &str) -> Option<Several> {
        let awaited = || self.several.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
        id.parse().ok().or_else(awaited)
    }

    /// Begins a wait on several hosts, or finds the one with this key, and returns its answer when it has
    /// ended. A `detach`ed one is `pending` once it has begun on the hosts, or after `hold`.
    ///
    /// A host that cannot be reached is named in the answer; for [`WaitMode::All`] it is an error.
    ///
    /// Errors: what is wrong with the request itself; the first error if the wait began on no host.
    pub async fn wait_on_several(
        &self,
        engine: &Engine,
        parts: Vec<Part>,
        request: &WaitRequest,
        key: Option<String>,
        hold: Option<Duration>,
    ) -> Result<WaitAnswer> {
        engine.authorize(Tier::Read)?;
        let begun = Instant::now();
        let key = key.unwrap_or_else(nonce::hex64);
        id_of_key(&key)?;
        if parts.len() > WAIT_PANES {
            let message =
                format!("{} hosts match; a wait accepts at most {WAIT_PANES}: name fewer of them", parts.len());
            return Err(Error::new(ErrorCode::ResourceLimit, message));
        }
        let several = Several::new(request.mode, &parts, &key);
        let _awaited = Awaited::new(self, &several)?;
        let limit = request.timeout_ms.map_or(WAIT_DEFAULT, Duration::from_millis);
        let branches = parts.into_iter().map(|part| {
            let own = WaitRequest { panes: part.targets.clone(), detach: true, ..request.clone() };
            Branch::new(part.host.clone(), Some((part, own)))
        });
        let wait = Joint { peers: self, engine, several: &several, begun, until: begun + limit + PATIENCE };
        let deadline = request.detach.then(|| begun + hold.unwrap_or(Duration::ZERO));
        wait.followed(branches.collect(), deadline).await
    }

    /// Returns the state of a wait on several hosts, after waiting at most `look` for its end. A host
    /// that cannot be reached is named in the answer, and the wait is `pending` on it.
    ///
    /// Errors: why the wait is on no host; for [`WaitMode::All`], why it is not on one of them any more.
    pub async fn several_result(&self, engine: &Engine, several: &Several, look: Duration) -> Result<WaitAnswer> {
        engine.authorize(Tier::Read)?;
        let begun = Instant::now();
        let look = look.min(POLL_LONGEST);
        let wait = Joint { peers: self, engine, several, begun, until: begun + look };
        wait.followed(several.branches(), Some(begun + look)).await
    }

    /// Cancels a wait on several hosts, and returns how it ended.
    pub async fn cancel_several(&self, engine: &Engine, several: &Several) -> Result<WaitAnswer> {
        engine.authorize(Tier::Read)?;
        let begun = Instant::now();
        let wait = Joint { peers: self, engine, several, begun, until: begun };
        let mut branches = several.branches();
        let cancelled = branches.iter().map(|branch| async {
            let cancelled = wait.by_id(branch.host.as_deref(), Method::DELETE, Duration::ZERO);
            timeout(BEGIN_LIMIT, cancelled).await.unwrap_or_else(|_| Err(late(branch.host.as_deref())))
        });
        let cancelled = join_all(cancelled).await;
        for (branch, cancelled) in branches.iter_mut().zip(cancelled) {
            match cancelled {
                Ok(answer) => branch.answer = Some(answer),
                Err(error) => (branch.error, branch.is_gone) = (Some(error), true),
            }
        }
        wait.check_known(&branches)?;
        let (outcome, at) = decided(several.mode, &branches).unwrap_or((WaitOutcome::Cancelled, None));
        Ok(wait.joined(&branches, outcome, at))
    }

    /// Cancels a wait on several hosts without awaiting the responses.
    pub fn abandon_several(&self, engine: &Engine, several: &Several) {
        let (peers, engine_, several) = (self.clone(), engine.clone(), several.clone());
        engine.spawn(async move {
            let _ = peers.cancel_several(&engine_, &several).await;
        });
    }

    /// Notes that the caller of a wait on several hosts leaves it: the parts on this host are kept, as
    /// other hosts keep theirs. Error: why not.
    pub async fn keep_several(&self, engine: &Engine, several: &Several) -> std::result::Result<(), String> {
        for host in several.hosts.iter() {
            // A wait on a host with muxtap is unknown to this engine.
            engine.keep_result(&several.id_on(host.as_deref())).await?;
        }
        Ok(())
    }
}

impl Several {
    /// Creates the wait of a request for these parts, under a key.
    pub fn new(mode: WaitMode, parts: &[Part], key: &str) -> Self {
        Self { mode, hosts: parts.iter().map(|part| part.host.clone()).collect(), key: key.to_owned() }
    }

    /// Returns whether the wait is on this host.
    pub fn is_on(&self, host: &str) -> bool {
        self.hosts.iter().any(|known| known.as_deref() == Some(host))
    }

    /// Returns the wait's id on one host.
    fn id_on(&self, host: Option<&str>) -> String {
        format!("w-{}", key_on_host(&self.key, host))
    }

    fn branches(&self) -> Vec<Branch> {
        self.hosts.iter().map(|host| Branch::new(host.clone(), None)).collect()
    }
}

/// The requests of one wait on several hosts.
#[derive(Clone)]
struct Joint<'a> {
    peers: &'a Peers,
    engine: &'a Engine,
    several: &'a Several,
    begun: Instant,
    /// The time until which lost links are awaited.
    until: Instant,
}

impl<'a> Joint<'a> {
    /// Follows the wait on each host until its outcome is decided, or until `deadline`; without one,
    /// until the end.
    async fn followed(&self, mut branches: Vec<Branch>, deadline: Option<Instant>) -> Result<WaitAnswer> {
        let mode = self.several.mode;
        let mut asked: FuturesUnordered<_> =
            branches.iter().enumerate().map(|(at, branch)| self.ask(at, branch, None, Duration::ZERO)).collect();
        let is_early = || deadline.is_none_or(|deadline| deadline > Instant::now());
        let hold = || {
            let longest = Instant::now() + POLL_LONGEST;
            Some(deadline.map_or(longest, |deadline| deadline.min(longest)))
        };
        // A host that connects now is not awaited for longer by a caller that does not stay.
        let begin_limit = deadline.map(|deadline| deadline.max(self.begun + BEGIN_LIMIT));
        let decided = loop {
            if let Some(decided) = decided(mode, &branches) {
                break Some(decided);
            }
            // A host that has lost its wait never matches, but another one may have failed.
            let is_undecidable = mode == WaitMode::All
                && branches.iter().any(Branch::is_lost)
                && branches.iter().all(Branch::has_replied);
            if asked.is_empty() || is_undecidable || self.engine.waits_have_left() {
                break None;
            }
            let limit = if branches.iter().all(Branch::has_replied) { deadline } else { begin_limit };
            let next = match limit {
                Some(limit) => timeout_at(limit.into(), asked.next()).await.ok().flatten(),
                None => asked.next().await,
            };
            let Some((at, replied)) = next else { break None };
            let Some(branch) = branches.get_mut(at) else { continue };
            match replied {
                Ok(answer) => {
                    (branch.answer, branch.error) = (Some(answer), None);
                    if branch.outcome().is_none() && is_early() {
                        asked.push(self.ask(at, branch, hold(), Duration::ZERO));
                    }
                }
                Err(error) => {
                    let is_forgotten = self.is_forgotten(branch);
                    if let Some(error) = branch.fail(mode, error, is_forgotten) {
                        drop(asked);
                        self.cancel_rest(&branches);
                        return Err(error);
                    }
                    if !branch.is_gone && is_early() {
                        asked.push(self.ask(at, branch, hold(), ASK_AGAIN));
                    }
                }
            }
        };
        // Requests that are under way are dropped first, so that no host begins a wait afterwards.
        drop(asked);
        if let Some((outcome, at)) = decided {
            self.cancel_rest(&branches);
            return Ok(self.joined(&branches, outcome, at));
        }
        for branch in branches.iter_mut().filter(|branch| !branch.has_replied()) {
            branch.error = Some(late(branch.host.as_deref()));
            branch.is_gone = branch.part.is_some();
        }
        if mode == WaitMode::All
            && let Some(lost) = branches.iter().find(|branch| branch.is_lost())
            && let Some(error) = lost.named_error()
        {
            // A request by the wait's id ends nothing.
            if lost.part.is_some() {
                self.cancel_rest(&branches);
            }
            return Err(error);
        }
        // What is only slow may still begin: it would not be part of the wait.
        branches
            .iter()
            .filter(|branch| branch.is_gone && branch.part.is_some())
            .for_each(|branch| self.cancel_on(branch));
        self.check_known(&branches)?;
        Ok(self.joined(&branches, WaitOutcome::Pending, None))
    }

    /// Returns whether no host has the branch's name any more. One of a fleet that is not joined yet may
    /// come.
    fn is_forgotten(&self, branch: &Branch) -> bool {
        let known = branch.host.as_deref().map(|host| self.engine.transport(host));
        matches!(known, Some(Err(error)) if error.code != ErrorCode::TmuxUnavailable)
    }

    /// Returns a request for the wait on one host, after a pause: it is held until the wait's end, or
    /// until `hold`.
    fn ask(
        &self,
        at: usize,
        branch: &Branch,
        hold: Option<Instant>,
        pause: Duration,
    ) -> BoxFuture<'a, (usize, Result<WaitAnswer>)> {
        let (wait, host, part) = (self.clone(), branch.host.clone(), branch.part.clone());
        async move {
            if !pause.is_zero() {
                sleep(pause).await;
            }
            let replied = if let Some((part, request)) = part {
                wait.by_key(&part, &request, hold).await
            } else {
                let look = hold.map_or(Duration::ZERO, |hold| hold.saturating_duration_since(Instant::now()));
                wait.by_id(host.as_deref(), Method::GET, look).await
            };
            (at, replied)
        }
        .boxed()
    }

    /// Begins the wait on one host, or finds it by its key.
    async fn by_key(&self, part: &Part, request: &WaitRequest, hold: Option<Instant>) -> Result<WaitAnswer> {
        let key = key_on_host(&self.several.key, part.host.as_deref());
        if let Some(host) = &part.host {
            self.engine.transport(host)?;
            if let Some(peer) = self.peers.of(self.engine, host, Tier::Read)
                && let Some(answer) = peer.wait_by_key(request, key.clone(), hold, self.until).await?
            {
                return Ok(answer);
            }
        }
        let server = self.engine.server_named(part.at.socket.as_deref())?;
        let server = part.at.from.map_or_else(|| server.clone(), |pane| server.seen_from(pane));
        let hold = hold.map(|hold| hold.saturating_duration_since(Instant::now()));
        server.await_again(request, Some(id_of_key(&key)?), hold).await
    }

    /// Returns the state of the wait on one host, by its id there, or cancels it.
    async fn by_id(&self, host: Option<&str>, method: Method, look: Duration) -> Result<WaitAnswer> {
        let id = self.several.id_on(host);
        if let Some(host) = host {
            self.engine.transport(host)?;
            if let Some(peer) = self.peers.of(self.engine, host, Tier::Read)
                && let Some(answer) = peer.wait_by_id(method.clone(), &id, look).await?
            {
                return Ok(answer);
            }
        }
        if method == Method::DELETE {
            return self.engine.cancel_wait(&id).await;
        }
        self.engine.wait_result(&id, Some(u64::try_from(look.as_millis()).unwrap_or(u64::MAX))).await
    }

    /// Cancels the wait on each host on which it has not ended, without awaiting the responses.
    fn cancel_rest(&self, branches: &[Branch]) {
        for branch in branches.iter().filter(|branch| branch.outcome().is_none() && !branch.is_left_out) {
            self.cancel_on(branch);
        }
    }

    fn cancel_on(&self, branch: &Branch) {
        let id = self.several.id_on(branch.host.as_deref());
        if let Some(host) = &branch.host
            && let Some(peer) = self.peers.of(self.engine, host, Tier::Read)
        {
            peer.cancel_wait(&id);
        }
        // A host without muxtap has its waits here.
        self.engine.abandon_wait(&id);
    }

    /// Checks that some host has the wait, or may have it. Error: why it is not on the first one, if that
    /// is not only that patterns match nothing there.
    fn check_known(&self, branches: &[Branch]) -> Result<()> {
        if branches.iter().any(|branch| !branch.is_gone) {
            return Ok(());
        }
        let errors = || branches.iter().filter(|branch| branch.error.is_some());
        let first = errors().find(|branch| !branch.is_left_out).or_else(|| errors().next());
        let unknown = || Error::not_found(format!("unknown wait {}", self.several));
        Err(first.and_then(|branch| branch.error.clone()).unwrap_or_else(unknown))
    }

    /// Joins the answers of the hosts. `at`: the branch that decided the outcome.
    fn joined(&self, branches: &[Branch], outcome: WaitOutcome, at: Option<usize>) -> WaitAnswer {
        let hosts = branches.iter().filter(|branch| branch.is_in_wait()).map(|branch| branch.host.clone()).collect();
        let id = Several { hosts, ..self.several.clone() }.to_string();
        let mut joined = WaitAnswer {
            id,
            outcome,
            pane: None,
            host: None,
            predicates: Vec::new(),
            cursor: None,
            duration_ms: self.begun.elapsed().as_secs_f64() * 1000.0,
            gap: None,
            screen: None,
            exit_status: None,
            exit_signal: None,
            not_kept: None,
            unreachable: Vec::new(),
        };
        for branch in branches.iter().filter(|branch| !branch.is_left_out) {
            if let Some(error) = &branch.error {
                joined.unreachable.push(self.engine.unreachable(branch.host.as_deref(), error));
            }
            let Some(answer) = &branch.answer else { continue };
            joined.gap = joined.gap.or(answer.gap);
            let on_host = answer.predicates.iter().cloned();
            joined.predicates.extend(on_host.map(|report| PredicateReport { host: branch.host.clone(), ..report }));
        }
        if let Some(Branch { host, answer: Some(answer), .. }) = at.and_then(|at| branches.get(at)) {
            joined.host.clone_from(host);
            joined.pane = answer.pane;
            joined.cursor.clone_from(&answer.cursor);
            joined.screen.clone_from(&answer.screen);
            (joined.exit_status, joined.exit_signal) = (answer.exit_status, answer.exit_signal);
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_wait_names_its_hosts() {
        let key = "0123456789abcdef";
        let hosts = [None, Some("web-1".to_owned()), Some("db.x".to_owned())].into();
        let several = Several { mode: WaitMode::All, hosts, key: key.to_owned() };
        let id = several.to_string();
        assert_eq!(id, format!("all:+web-1+db.x/w-{key}"));
        assert_eq!(id.parse(), Ok(several));
        for other in ["w-0123456789abcdef", "box/w0-1", "some:a/w-0123456789abcdef", "any:a/w-short", "any:a"] {
            assert!(other.parse::<Several>().is_err(), "{other}");
        }
    }

    #[test]
    fn a_retry_keeps_the_wait_of_its_key_when_the_first_request_ends() {
        let (peers, key) = (Peers::default(), "0123456789abcdef");
        let wait = || Several { mode: WaitMode::Any, hosts: [Some("box".to_owned())].into(), key: key.to_owned() };
        let alias = id_of_key(key).unwrap();
        let first = Awaited::new(&peers, &wait()).unwrap();
        let retry = Awaited::new(&peers, &wait()).unwrap();
        drop(first);
        assert_eq!(peers.several(&alias), Some(wait()));
        drop(retry);
        assert_eq!(peers.several(&alias), None);
    }
}
