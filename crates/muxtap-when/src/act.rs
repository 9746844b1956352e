//! Carries out firings: one after the other for each rule, journalled before and after.

mod pane;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use muxtap_api::{Error, ErrorCode, Tier, WhenInfo};
use muxtap_engine::{Engine, is_absent};
use tokio::sync::{Semaphore, broadcast};
use tokio_util::task::TaskTracker;

pub(crate) use self::pane::Typing;
use self::pane::{Replaced, check_labels, label, type_text};
use crate::{
    facts::Facts,
    journal::Journal,
    limits::{NOTIFY_LIMIT, PAUSE, PAUSE_MOST, QUEUE, RUNNING, TYPE_LIMIT},
    matcher::{Fired, Outcome, Withheld},
    notify,
    rule::RuleSet,
    run,
};

/// What the rules have done, and what they do.
#[derive(Debug)]
pub(crate) struct Actor {
    journal: Journal,
    rules: Mutex<HashMap<String, State>>,
    /// One permit for each program that runs.
    running: Semaphore,
    pub(crate) typing: broadcast::Sender<Typing>,
    /// The servers that are watched, and for which rules.
    watched: Mutex<BTreeMap<String, Arc<RuleSet>>>,
    /// Why servers are not watched.
    unwatched: Mutex<BTreeMap<String, Unwatched>>,
    /// The tasks that carry out firings.
    pub(crate) tasks: TaskTracker,
}

/// Why a server is not watched.
#[derive(Debug, PartialEq, Eq)]
struct Unwatched {
    why: String,
    /// Whether tmux did not respond on this machine, for example because it just ended: that is logged, but
    /// no problem of the rules.
    is_down: bool,
}

/// The state of a rule by its name.
#[derive(Debug, Default)]
struct State {
    /// The counts; its `rule` is not used.
    counts: WhenInfo,
    /// Firings that type or label first: that does not wait until an earlier firing's program has ended.
    in_pane: Lane<Fired>,
    acting: Lane<Turn>,
    /// The pause after failed requests, and its end.
    pause: Option<(Duration, Instant)>,
    /// Whether a loss was logged.
    is_loss_logged: bool,
}

/// Firings that are carried out one after the other.
#[derive(Debug)]
struct Lane<T> {
    waiting: VecDeque<T>,
    is_busy: bool,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), is_busy: false }
    }
}

impl<T> Lane<T> {
    /// Adds a firing. Returns whether a task has to begin with it.
    fn push(&mut self, item: T) -> bool {
        self.waiting.push_back(item);
        !std::mem::replace(&mut self.is_busy, true)
    }

    /// Returns the next firing; `None` ends the task.
    fn next(&mut self) -> Option<T> {
        let next = self.waiting.pop_front();
        self.is_busy = next.is_some();
        next
    }
}

/// The result of an action.
type Done = (&'static str, Result<String, String>);

/// A firing whose other actions follow.
#[derive(Debug)]
struct Turn {
    fired: Fired,
    /// The actions done in the pane; `None` if they have not begun.
    begun: Option<Begun>,
}

/// The actions of a firing in its pane, before its other actions.
#[derive(Debug)]
struct Begun {
    at: Instant,
    results: Vec<Done>,
    replaced: Replaced,
}

impl Actor {
    pub(crate) fn new(journal: Journal) -> Self {
        Self {
            journal,
            rules: Mutex::default(),
            running: Semaphore::new(RUNNING),
            typing: broadcast::Sender::new(1024),
            watched: Mutex::default(),
            unwatched: Mutex::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// Returns the servers that are watched for these rules.
    pub(crate) fn watched_for(&self, rules: &Arc<RuleSet>) -> Vec<String> {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched
            .iter()
            .filter(|(_, for_rules)| Arc::ptr_eq(for_rules, rules))
            .map(|(server, _)| server.clone())
            .collect()
    }

    pub(crate) fn set_watched(&self, server: &str, rules: Option<&Arc<RuleSet>>) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        match rules {
            Some(rules) => drop(watched.insert(server.to_owned(), rules.clone())),
            None => drop(watched.remove(server)),
        }
    }

    /// Records why a server is not watched, and logs each cause once; `None`: it is watched, or need not be.
    pub(crate) fn set_problem(&self, server: &str, error: Option<&Error>) {
        // A server that does not run is watched when it does.
        let cause = error.filter(|error| !is_absent(error)).map(|error| Unwatched {
            why: error.message.clone(),
            is_down: Path::new(server).is_absolute() && error.code == ErrorCode::TmuxUnavailable,
        });
        let mut unwatched = self.unwatched.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(cause) = cause else {
            drop(unwatched.remove(server));
            return;
        };
        if unwatched.get(server) != Some(&cause) {
            tracing::warn!("rules: {server} is not watched: {}", cause.why);
            unwatched.insert(server.to_owned(), cause);
        }
    }

    /// Returns why servers are not watched.
    pub(crate) fn problems(&self) -> Vec<String> {
        let unwatched = self.unwatched.lock().unwrap_or_else(PoisonError::into_inner);
        let listed = unwatched.iter().filter(|(_, cause)| !cause.is_down);
        listed.map(|(server, Unwatched { why, .. })| format!("{server} is not watched: {why}")).collect()
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    fn rules(&self) -> MutexGuard<'_, HashMap<String, State>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state of a rule.
    fn update<T>(&self, rule: &str, change: impl FnOnce(&mut State) -> T) -> T {
        change(self.rules().entry(rule.to_owned()).or_default())
    }

    /// Returns a rule's counts.
    pub(crate) fn counts(&self, rule: &str) -> WhenInfo {
        self.rules().get(rule).map(|state| state.counts.clone()).unwrap_or_default()
    }

    /// Forgets a rule's counts and the firings that wait.
    pub(crate) fn forget(&self, rule: &str) {
        let mut dropped = Vec::new();
        if let Some(state) = self.rules().get_mut(rule) {
            let State { mut in_pane, mut acting, .. } = std::mem::take(state);
            dropped.extend(in_pane.waiting.drain(..).map(|fired| fired.facts.id));
            // What has begun also ends.
            let (begun, waiting) = acting.waiting.drain(..).partition(|turn| turn.begun.is_some());
            acting.waiting = begun;
            dropped.extend(waiting.into_iter().map(|turn: Turn| turn.fired.facts.id));
            *state = State { in_pane, acting, ..State::default() };
        }
        for id in dropped {
            self.end(rule, &id, false, 0, &["not begun: the rule was removed or replaced".into()]);
        }
    }

    /// Counts what an event caused, and carries it out. Must be called within the runtime of the rules.
    pub(crate) fn take(self: &Arc<Self>, engine: &Engine, outcome: Outcome) {
        for (rule, why) in outcome.withheld {
            self.update(rule.name(), |state| match why {
                Withheld::TooSoon => state.counts.held += 1,
                Withheld::OwnTyping => state.counts.own += 1,
            });
        }
        for mut fired in outcome.fired {
            fired.facts.id = self.journal.id();
            let name = fired.rule.name().to_owned();
            let is_for_pane = fired.rule.is_for_pane();
            let is_full = self.update(&name, |state| {
                state.counts.fired += 1;
                state.counts.last_ms = Some(fired.facts.at_ms);
                state.in_pane.waiting.len() + state.acting.waiting.len() >= QUEUE
            });
            if is_full {
                self.lose(&fired.facts, "too many of its firings are waiting");
                continue;
            }
            // Before it waits: a firing that a killed daemon had in memory alone would be lost.
            if let Err(error) = self.journal.begin(&fired.facts) {
                // An action that cannot be recorded is not carried out.
                self.lose(&fired.facts, &format!("the journal cannot be written: {error}"));
                continue;
            }
            let begins = self.update(&name, |state| {
                if is_for_pane { state.in_pane.push(fired) } else { state.acting.push(Turn { fired, begun: None }) }
            });
            if begins {
                let (own, engine) = (self.clone(), engine.clone());
                self.tasks.spawn(async move {
                    if is_for_pane {
                        own.act_in_panes(&engine, &name).await;
                    } else {
                        own.act_all(&engine, &name).await;
                    }
                });
            }
        }
    }

    /// Counts, records and logs a firing that is dropped.
    fn lose(&self, facts: &Facts, why: &str) {
        let is_first = self.update(&facts.rule, |state| {
            state.counts.lost += 1;
            state.counts.error = Some(why.into());
            !std::mem::replace(&mut state.is_loss_logged, true)
        });
        if is_first {
            tracing::warn!("rule {}: a firing was dropped: {why}", facts.rule);
        }
        // It is counted in any case.
        let _ = self.journal.lost(facts);
    }

    /// Journals a firing's end.
    fn end(&self, rule: &str, id: &str, ok: bool, ms: u64, results: &[String]) {
        if let Err(failed) = self.journal.end(id, ok, ms, results) {
            tracing::warn!("rule {rule}: the journal cannot be written: {failed}");
        }
    }

    /// Types and labels for a rule's firings until none is waiting; their other actions follow in a task of
    /// their own.
    async fn act_in_panes(self: &Arc<Self>, engine: &Engine, name: &str) {
        while let Some(fired) = self.update(name, |state| state.in_pane.next()) {
            let (at, mut results, mut replaced) = (Instant::now(), Vec::new(), Replaced::default());
            let most = TYPE_LIMIT.as_secs();
            if fired.rule.typing.is_some() {
                let typed = tokio::time::timeout(TYPE_LIMIT, type_text(&self.typing, engine, &fired)).await;
                let late = Err(format!("not typed within {most} s, or only a part of it"));
                results.push(("type", typed.unwrap_or(late)));
            }
            if !fired.rule.given.label.is_empty() {
                let labeled = tokio::time::timeout(TYPE_LIMIT, label(engine, &fired, &mut replaced)).await;
                let late = Err(format!("no response within {most} s; the labels may have been set"));
                results.push(("label", labeled.unwrap_or(late)));
            }
            let turn = Turn { fired, begun: Some(Begun { at, results, replaced }) };
            if self.update(name, |state| state.acting.push(turn)) {
                let (own, engine, name) = (self.clone(), engine.clone(), name.to_owned());
                self.tasks.spawn(async move { own.act_all(&engine, &name).await });
            }
        }
    }

    /// Carries out a rule's firings until none is waiting.
    async fn act_all(&self, engine: &Engine, name: &str) {
        while let Some(Turn { fired, begun }) = self.update(name, |state| state.acting.next()) {
            let new = || Begun { at: Instant::now(), results: Vec::new(), replaced: Replaced::default() };
            let Begun { at: began, mut results, replaced } = begun.unwrap_or_else(new);
            results.extend(self.act(engine, &fired, &replaced).await);
            let error = results
                .iter()
                .find_map(|(action, result)| result.as_ref().err().map(|error| format!("{action}: {error}")));
            let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            let lines = results.into_iter().map(|(action, result)| {
                let result = result.unwrap_or_else(|error| format!("failed: {error}"));
                format!("{action}: {result}")
            });
            let lines: Vec<_> = lines.collect();
            if let Some(error) = &error {
                tracing::warn!("rule {name}: {error}");
            }
            self.update(name, |state| {
                state.counts.failed += u64::from(error.is_some());
                state.counts.error.clone_from(&error);
            });
            self.end(name, &fired.facts.id, error.is_none(), ms, &lines);
        }
    }

    /// Carries out a firing's actions other than those in the pane.
    async fn act(&self, engine: &Engine, fired: &Fired, replaced: &Replaced) -> Vec<Done> {
        let Fired { rule, facts, .. } = fired;
        let mut results = Vec::new();
        // Like starting a pane's program, which needs this tier.
        let allowed = || engine.authorize(Tier::Create).map_err(|error| error.message);
        // Each action may take long, and the pane may be another one's by then.
        let still = || check_labels(engine, fired, replaced);
        if !rule.given.run.is_empty() {
            let run = async {
                allowed()?;
                // The semaphore is never closed.
                let _permit = self.running.acquire().await.ok();
                still().await?;
                run::run(&rule.given.run, facts, rule.timeout).await
            };
            results.push(("run", run.await));
        }
        if rule.post.is_some() {
            let post = async {
                allowed()?;
                still().await?;
                self.post(fired).await
            };
            results.push(("post", post.await));
        }
        if rule.given.notify {
            let notified = async {
                still().await?;
                let title = format!("{}: {}", facts.rule, facts.place());
                let is_shown = notify::desktop(&title, &facts.summary(), NOTIFY_LIMIT).await;
                let missing = "no notify-send, or no desktop that responds".to_owned();
                is_shown.then(|| "shown".to_owned()).ok_or(missing)
            };
            results.push(("notify", notified.await));
        }
        results
    }

    /// Sends a request, unless the last ones failed just now.
    async fn post(&self, Fired { rule, facts, .. }: &Fired) -> Result<String, String> {
        let Some(post) = &rule.post else { return Err("no request".into()) };
        let now = Instant::now();
        let pause = self.update(rule.name(), |state| state.pause);
        if let Some((_, until)) = pause.filter(|(_, until)| *until > now) {
            let left = until.saturating_duration_since(now).as_millis();
            return Err(format!("not sent: the last request failed; the next one is sent in {left} ms"));
        }
        let sent = post.send(facts).await;
        self.update(rule.name(), |state| {
            state.pause = sent.is_err().then(|| {
                let long = pause.map_or(PAUSE, |(last, _)| last.saturating_mul(2)).min(PAUSE_MOST);
                (long, Instant::now() + long)
            });
        });
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_of_an_unwatched_server_is_listed_until_it_is_watched() {
        let dir = tempfile::tempdir().unwrap();
        let actor = Actor::new(Journal::new(dir.path().join("when.jsonl")));
        let error = |code| Error::new(code, "why");
        actor.set_problem("/s", Some(&error(ErrorCode::ResourceLimit)));
        actor.set_problem("/t", Some(&error(ErrorCode::TmuxUnavailable)));
        actor.set_problem("box/t", Some(&error(ErrorCode::TmuxUnavailable)));
        assert_eq!(actor.problems(), ["/s is not watched: why", "box/t is not watched: why"]);
        actor.set_problem("/s", None);
        actor.set_problem("box/t", None);
        assert_eq!(actor.problems(), Vec::<String>::new());
    }

    #[test]
    fn a_lane_has_one_task() {
        let mut lane = Lane::default();
        assert!(lane.push(1));
        assert!(!lane.push(2));
        assert_eq!([lane.next(), lane.next(), lane.next()], [Some(1), Some(2), None]);
        assert!(lane.push(3));
    }
}
