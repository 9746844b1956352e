//! Waits on several hosts: one wait on each, and one answer (`docs/hosts.md`).
//!
//! This daemon stores nothing of such a wait: its id names the hosts, and each host has its own wait
//! under a key that follows from the id.

use std::{
    fmt,
    str::FromStr,
    sync::PoisonError,
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
    several::{Part, is_about_request, key_on_host, late},
};
use tokio::time::{sleep, timeout, timeout_at};

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
    hosts: Vec<Option<String>>,
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
        let hosts: Vec<_> =
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

/// A wait's state on one host.
struct Branch {
    host: Option<String>,
    /// The part of the request, and its own request; `None`: the wait has begun before, and only its
    /// id is known.
    part: Option<(Part, WaitRequest)>,
    /// The last answer.
    answer: Option<WaitAnswer>,
    /// Why the last request has no answer.
    error: Option<Error>,
    /// Whether nothing more is expected of the host, whose last request has no answer.
    is_gone: bool,
    /// Whether the host has nothing of what a pattern names: it is not part of the wait.
    is_left_out: bool,
}

impl Branch {
    fn new(host: Option<String>, part: Option<(Part, WaitRequest)>) -> Self {
        Self { host, part, answer: None, error: None, is_gone: false, is_left_out: false }
    }

    /// Returns how the wait ended on this host. `None`: it has not, or the host is silent.
    fn outcome(&self) -> Option<WaitOutcome> {
        self.answer.as_ref().map(|answer| answer.outcome).filter(|outcome| *outcome != WaitOutcome::Pending)
    }

    fn has_replied(&self) -> bool {
        self.answer.is_some() || self.error.is_some()
    }

    /// Returns whether the wait is on this host, as far as is known.
    fn is_in_wait(&self) -> bool {
        !self.is_left_out && (self.answer.is_some() || !self.is_gone)
    }
}

/// Returns how a wait has ended, and the branch that decided it. `None`: it continues.
fn decided(mode: WaitMode, branches: &[Branch]) -> Option<(WaitOutcome, Option<usize>)> {
    let at = |wanted: WaitOutcome| branches.iter().position(|branch| branch.outcome() == Some(wanted));
    let first = |outcomes: &[WaitOutcome]| outcomes.iter().find_map(|outcome| Some((*outcome, at(*outcome)?)));
    if let Some(at) = at(WaitOutcome::Failed) {
        return Some((WaitOutcome::Failed, Some(at)));
    }
    let mut taking_part = branches.iter().filter(|branch| !branch.is_left_out);
    match mode {
        WaitMode::Any => {
            if let Some(at) = at(WaitOutcome::Matched) {
                return Some((WaitOutcome::Matched, Some(at)));
            }
            if !taking_part.all(|branch| branch.outcome().is_some() || branch.is_gone) {
                return None;
            }
            let (outcome, at) = first(&[WaitOutcome::Timeout, WaitOutcome::Cancelled, WaitOutcome::Ended])?;
            Some((outcome, Some(at).filter(|_| outcome == WaitOutcome::Ended)))
        }
        WaitMode::All => {
            if let Some((outcome, at)) = first(&[WaitOutcome::Ended, WaitOutcome::Timeout, WaitOutcome::Cancelled]) {
                return Some((outcome, Some(at).filter(|_| outcome == WaitOutcome::Ended)));
            }
            let is_begun = branches.iter().any(|branch| branch.answer.is_some());
            let are_matched = taking_part.all(|branch| branch.outcome() == Some(WaitOutcome::Matched));
            (is_begun && are_matched).then_some((WaitOutcome::Matched, None))
        }
    }
}

/// Removes a wait from those that a request awaits.
struct Awaited<'a>(&'a Peers, String);

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.several.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
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
        let alias = id_of_key(&several.key)?;
        self.several.lock().unwrap_or_else(PoisonError::into_inner).insert(alias.clone(), several.clone());
        let _awaited = Awaited(self, alias);
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
    /// Error: `NOT_FOUND` if no host knows the wait.
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
        for host in &several.hosts {
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
            if asked.is_empty() || self.engine.waits_have_left() {
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
                    branch.is_left_out = branch.part.as_ref().is_some_and(|(part, _)| part.has_nothing(&error));
                    branch.is_gone = branch.part.is_some() || error.code == ErrorCode::NotFound;
                    let is_fatal = branch.is_gone && (mode == WaitMode::All || is_about_request(&error));
                    if is_fatal && branch.part.is_some() && !branch.is_left_out {
                        drop(asked);
                        self.cancel_rest(&branches);
                        return Err(error);
                    }
                    branch.error = Some(error);
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
        let silent = branches.iter().find(|branch| branch.is_gone && !branch.is_left_out && branch.answer.is_none());
        if let Some(Branch { part: Some(_), error: Some(error), .. }) = silent
            && mode == WaitMode::All
        {
            self.cancel_rest(&branches);
            return Err(error.clone());
        }
        // What is only slow may still begin: it would not be part of the wait.
        branches
            .iter()
            .filter(|branch| branch.is_gone && branch.part.is_some())
            .for_each(|branch| self.cancel_on(branch));
        self.check_known(&branches)?;
        Ok(self.joined(&branches, WaitOutcome::Pending, None))
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

    /// Checks that some host has the wait. Error: why it is not on the first one, if that is not only
    /// that patterns match nothing there.
    fn check_known(&self, branches: &[Branch]) -> Result<()> {
        if branches.iter().any(|branch| branch.answer.is_some()) {
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
    use serde_json::json;

    use super::*;

    fn branches(outcomes: &[&str]) -> Vec<Branch> {
        let branch = |outcome: &&str| {
            let mut branch = Branch::new(Some("box".into()), None);
            match *outcome {
                "" => {}
                "gone" => branch.is_gone = true,
                "out" => branch.is_left_out = true,
                outcome => {
                    let answer = json!({"id": "w", "outcome": outcome, "predicates": [], "duration_ms": 1.0});
                    branch.answer = Some(serde_json::from_value(answer).unwrap());
                }
            }
            branch
        };
        outcomes.iter().map(branch).collect()
    }

    #[test]
    fn the_hosts_outcomes_decide_the_waits_outcome() {
        use WaitOutcome::{Cancelled, Ended, Failed, Matched, Timeout};
        for (any, all, outcomes) in [
            (None, None, &["pending", ""][..]),
            (Some((Matched, Some(1))), None, &["pending", "matched"]),
            (Some((Matched, Some(0))), Some((Matched, None)), &["matched", "matched"]),
            (Some((Matched, Some(1))), Some((Matched, None)), &["out", "matched"]),
            (Some((Matched, Some(1))), None, &["gone", "matched"]),
            (Some((Failed, Some(1))), Some((Failed, Some(1))), &["pending", "failed", "matched"]),
            (None, Some((Ended, Some(0))), &["ended", "pending"]),
            (Some((Ended, Some(0))), Some((Ended, Some(0))), &["ended", "ended"]),
            (Some((Ended, Some(1))), Some((Ended, Some(1))), &["gone", "ended"]),
            (None, Some((Timeout, None)), &["timeout", "pending"]),
            (Some((Timeout, None)), Some((Ended, Some(1))), &["timeout", "ended"]),
            (Some((Cancelled, None)), Some((Cancelled, None)), &["cancelled", "cancelled"]),
            (None, None, &["gone", "gone"]),
            (None, None, &["out", "out"]),
        ] {
            let branches = branches(outcomes);
            assert_eq!(decided(WaitMode::Any, &branches), any, "any: {outcomes:?}");
            assert_eq!(decided(WaitMode::All, &branches), all, "all: {outcomes:?}");
        }
    }

    #[test]
    fn the_id_of_a_wait_names_its_hosts() {
        let key = "0123456789abcdef";
        let hosts = vec![None, Some("web-1".to_owned()), Some("db.x".to_owned())];
        let several = Several { mode: WaitMode::All, hosts, key: key.to_owned() };
        let id = several.to_string();
        assert_eq!(id, format!("all:+web-1+db.x/w-{key}"));
        assert_eq!(id.parse(), Ok(several));
        for other in ["w-0123456789abcdef", "box/w0-1", "some:a/w-0123456789abcdef", "any:a/w-short", "any:a"] {
            assert!(other.parse::<Several>().is_err(), "{other}");
        }
    }
}
