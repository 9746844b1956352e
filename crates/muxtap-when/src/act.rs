//! Carries out firings: one after the other for each rule, journalled before and after.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use muxtap_api::{InputRequest, WhenInfo};
use muxtap_core::protocol::ids::PaneId;
use muxtap_engine::{Caller, Engine, Principal};
use tokio::sync::{Semaphore, broadcast};
use tokio_util::task::TaskTracker;

use crate::{
    facts::Facts,
    journal::Journal,
    limits::{NOTIFY_LIMIT, PAUSE, PAUSE_MOST, QUEUE, RUNNING, TYPE_LIMIT},
    matcher::{Fired, Outcome, Withheld},
    notify,
    rule::RuleSet,
    run,
    watch::on_engine,
};

/// The interface of rules in the audit log.
const FACE: &str = "when";

/// A rule types into a pane of a server, or has typed.
#[derive(Clone, Debug)]
pub(crate) struct Typing {
    pub(crate) server: Arc<Path>,
    pub(crate) pane: PaneId,
    pub(crate) at: Instant,
    /// The text; `None` once it was typed.
    pub(crate) text: Option<String>,
}

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
    /// The tasks that carry out firings.
    pub(crate) tasks: TaskTracker,
}

/// The state of a rule by its name.
#[derive(Debug, Default)]
struct State {
    /// The counts; its `rule` is not used.
    counts: WhenInfo,
    waiting: VecDeque<Fired>,
    is_busy: bool,
    /// The pause after failed requests, and its end.
    pause: Option<(Duration, Instant)>,
    /// Whether a loss was logged.
    is_loss_logged: bool,
}

impl Actor {
    pub(crate) fn new(journal: Journal) -> Self {
        Self {
            journal,
            rules: Mutex::default(),
            running: Semaphore::new(RUNNING),
            typing: broadcast::Sender::new(1024),
            watched: Mutex::default(),
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
        if let Some(state) = self.rules().get_mut(rule) {
            *state = State { is_busy: state.is_busy, ..State::default() };
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
            let (rejected, begins) = self.update(&name, |state| {
                state.counts.fired += 1;
                state.counts.last_ms = Some(fired.facts.at_ms);
                if state.waiting.len() >= QUEUE {
                    return (Some(fired), false);
                }
                state.waiting.push_back(fired);
                (None, !std::mem::replace(&mut state.is_busy, true))
            });
            if let Some(fired) = rejected {
                self.lose(&fired.facts, "too many of its firings are waiting");
            } else if begins {
                let (own, engine) = (self.clone(), engine.clone());
                self.tasks.spawn(async move { own.work(&engine, &name).await });
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

    /// Carries out a rule's firings until none is waiting.
    async fn work(&self, engine: &Engine, name: &str) {
        loop {
            let next = self.update(name, |state| {
                let next = state.waiting.pop_front();
                state.is_busy = next.is_some();
                next
            });
            let Some(fired) = next else { return };
            if let Err(error) = self.journal.begin(&fired.facts) {
                // What cannot be recorded is not done.
                self.lose(&fired.facts, &format!("the journal cannot be written: {error}"));
                continue;
            }
            let began = Instant::now();
            let results = self.act(engine, &fired).await;
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
            if let Err(failed) = self.journal.end(&fired.facts.id, error.is_none(), ms, &lines) {
                tracing::warn!("rule {name}: the journal cannot be written: {failed}");
            }
        }
    }

    /// Carries out a firing's actions.
    async fn act(&self, engine: &Engine, fired: &Fired) -> Vec<(&'static str, Result<String, String>)> {
        let Fired { rule, facts } = fired;
        let mut results = Vec::new();
        if rule.typing.is_some() {
            let typed = tokio::time::timeout(TYPE_LIMIT, self.type_text(engine, fired)).await;
            let late = Err(format!("not typed within {} s", TYPE_LIMIT.as_secs()));
            results.push(("type", typed.unwrap_or(late)));
        }
        if !rule.given.run.is_empty() {
            // The semaphore is never closed.
            let _permit = self.running.acquire().await.ok();
            results.push(("run", run::run(&rule.given.run, facts, rule.timeout).await));
        }
        if rule.post.is_some() {
            results.push(("post", self.post(fired).await));
        }
        if rule.given.notify {
            let title = format!("{}: {}", facts.rule, facts.place());
            let is_shown = notify::desktop(&title, &facts.summary(), NOTIFY_LIMIT).await;
            let missing = "no notify-send, or no desktop that responds".to_owned();
            results.push(("notify", is_shown.then(|| "shown".to_owned()).ok_or(missing)));
        }
        results
    }

    /// Sends a request, unless the last ones failed just now.
    async fn post(&self, Fired { rule, facts }: &Fired) -> Result<String, String> {
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

    /// Types a rule's text, with the permission and the record of any input.
    async fn type_text(&self, own: &Engine, Fired { rule, facts }: &Fired) -> Result<String, String> {
        let Some(typing) = &rule.typing else { return Err("no text".into()) };
        let caller = Caller { face: FACE, who: format!("rule {}", rule.name()), principal: Principal::Engine };
        let engine = own.with_caller(caller);
        let message = |error: muxtap_api::Error| error.message;
        let (socket, target) = (facts.server.clone(), typing.into.clone().unwrap_or_else(|| facts.pane.clone()));
        let find = async move {
            let server = engine.server_named(Some(&socket))?;
            let pane = server.pane(target).await?;
            Ok((server, pane.id()))
        };
        let (server, pane) = on_engine(own.clone(), find).await.map_err(message)?;
        let socket: Arc<Path> = server.socket().into();
        let note = |text| Typing { server: socket.clone(), pane, at: Instant::now(), text };
        let request = if typing.text.is_empty() {
            InputRequest { keys: Some(vec!["Enter".into()]), ..InputRequest::default() }
        } else {
            InputRequest { text: Some(typing.text.clone()), submit: typing.enter, ..InputRequest::default() }
        };
        // Before the first byte is typed, so that no rule sees the echo as someone else's. Without a
        // receiver no rule sees it.
        let _ = self.typing.send(note(Some(typing.text.clone())));
        let typed = on_engine(own.clone(), async move { server.input(&pane.to_string(), &request).await }).await;
        let _ = self.typing.send(note(None));
        typed.map(|_| format!("typed into {pane}")).map_err(message)
    }
}
