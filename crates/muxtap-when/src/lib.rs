//! Rules: what has to happen, in which panes, and what muxtap does then.
//!
//! One subscription for each tmux server feeds a `Matcher`, which is pure: events and
//! time in, firings out. An `Actor` journals each firing and carries it out. All of that runs
//! on a thread of its own; without rules there is neither the thread nor a subscription. `docs/when.md`
//! describes the rules.

mod act;
mod facts;
mod journal;
mod limits;
mod matcher;
pub mod notify;
mod patterns;
mod post;
mod rule;
mod run;
mod stored;
mod test;
mod watch;

use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use muxtap_api::{
    Error, ErrorCode, Result, Tier, WhenInfo, WhenList, WhenLog, WhenLogQuery, WhenPost, WhenRule, WhenText,
};
use muxtap_engine::{Engine, Server, elsewhere::default_server};
use tokio::{sync::watch as channel, task::JoinSet};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use test::{Dry, Seen};

use self::{
    act::Actor,
    journal::Journal,
    limits::{END_LIMIT, STOP_LIMIT},
    rule::{Rule, RuleSet},
    stored::Stored,
    watch::{Watched, on_engine},
};

/// The number of firings that a log has unless the caller names one.
const LOGGED: u64 = 100;
/// The largest number that a caller may name.
const MOST_LOGGED: u64 = 10_000;

/// Where the rules of a daemon are kept.
#[derive(Clone, Debug)]
pub struct Places {
    /// The journal.
    pub journal: PathBuf,
    /// The file of added rules.
    pub added: PathBuf,
    /// The socket of the tmux server that is watched even if no caller has named it.
    pub server: PathBuf,
}

/// Checks rules of a configuration. Error: `INVALID_ARGUMENT` for the first wrong one.
pub fn check(rules: &[WhenRule]) -> Result<()> {
    let rules = rules.iter().map(|rule| Rule::of(rule.clone()).map(Arc::new)).collect::<Result<_>>()?;
    RuleSet::of(rules).map(drop)
}

/// The rules of a daemon; clones share them. Without [`When::start`] there are none, and none can be added.
#[derive(Clone, Debug, Default)]
pub struct When {
    inner: Option<Arc<Inner>>,
}

#[derive(Debug)]
struct Inner {
    engine: EngineHandle,
    server: PathBuf,
    actor: Arc<Actor>,
    stored: Stored,
    all: Mutex<All>,
    /// Held by a change from its beginning to its end: two changes at once would lose one.
    changing: Mutex<()>,
    /// The rules in effect.
    rules: channel::Sender<Arc<RuleSet>>,
    /// Whether the thread was started.
    started: AtomicBool,
    stop: CancellationToken,
    /// The thread's life.
    tasks: TaskTracker,
}

/// An engine, without a form for debugging.
struct EngineHandle(Engine);

impl std::fmt::Debug for EngineHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Engine")
    }
}

/// All rules.
#[derive(Clone, Debug, Default)]
struct All {
    configured: Vec<Arc<Rule>>,
    added: Vec<Arc<Rule>>,
    /// Added rules that are not in effect, and why. They stay stored until they are removed.
    left_out: Vec<(WhenRule, String)>,
    /// Why the stored rules could not be read. They are not overwritten then.
    unread: Option<String>,
    /// Why no rule is in effect.
    problem: Option<String>,
}

impl All {
    fn in_order(&self) -> Vec<Arc<Rule>> {
        self.configured.iter().chain(&self.added).cloned().collect()
    }

    /// Returns the rules to store.
    fn to_store(&self) -> impl Iterator<Item = &WhenRule> {
        self.added.iter().map(|rule| &rule.given).chain(self.left_out.iter().map(|(given, _)| given))
    }

    /// Returns why rules are not in effect.
    fn problems(&self) -> Vec<String> {
        let general = self.problem.iter().chain(&self.unread);
        general.chain(self.left_out.iter().map(|(_, why)| why)).cloned().collect()
    }

    /// Takes over the stored rules of an earlier daemon.
    fn restore(&mut self, stored: Result<Vec<WhenRule>>) {
        let mut names: HashSet<String> = self.configured.iter().map(|rule| rule.name().to_owned()).collect();
        let stored = stored.unwrap_or_else(|error| {
            self.unread = Some(format!("the added rules are not in effect: {}", error.message));
            Vec::new()
        });
        for given in stored {
            let name = given.name.clone();
            match Rule::of(given.clone()) {
                Ok(_) if !names.insert(name.clone()) => {
                    self.left_out.push((given, format!("rule {name}: another rule has this name")));
                }
                // Each by itself: one wrong pattern must not disable the others.
                Ok(rule) => match RuleSet::of(vec![Arc::new(rule)]).map(|mut set| set.rules.pop()) {
                    Ok(rule) => self.added.extend(rule),
                    Err(error) => self.left_out.push((given, error.message)),
                },
                Err(error) => self.left_out.push((given, error.message)),
            }
        }
    }

    /// Adds a rule, or replaces an added one of its name. Error: `CONFLICT`.
    fn add(&mut self, rule: Arc<Rule>) -> Result<()> {
        let name = rule.name();
        if self.configured.iter().any(|other| other.name() == name) {
            let message = format!("rule {name}: the configuration has a rule of this name");
            return Err(Error::new(ErrorCode::Conflict, message));
        }
        self.added.retain(|other| other.name() != name);
        self.left_out.retain(|(given, _)| given.name != name);
        self.added.push(rule);
        Ok(())
    }

    /// Removes an added rule, whether it is in effect or not. Errors: `NOT_FOUND`, `CONFLICT`.
    fn remove(&mut self, name: &str) -> Result<()> {
        let before = self.added.len() + self.left_out.len();
        self.added.retain(|rule| rule.name() != name);
        self.left_out.retain(|(given, _)| given.name != name);
        if self.added.len() + self.left_out.len() < before {
            return Ok(());
        }
        if self.configured.iter().any(|rule| rule.name() == name) {
            let message = format!("rule {name}: it belongs to the configuration; remove it there");
            return Err(Error::new(ErrorCode::Conflict, message));
        }
        let name = muxtap_base::plain::name(name);
        Err(Error::not_found(format!("unknown rule `{name}`; see the list of rules")))
    }
}

impl When {
    /// Starts the rules of the configuration, and those that were added to an earlier daemon. A rule that
    /// cannot be used is left out, and listed.
    pub fn start(engine: &Engine, configured: &[WhenRule], places: Places) -> Self {
        let mut all = All::default();
        for rule in configured {
            match Rule::of(rule.clone()) {
                Ok(rule) => all.configured.push(Arc::new(rule)),
                // The configuration was checked when it was read.
                Err(error) => all.problem = Some(error.message),
            }
        }
        let stored = Stored(places.added);
        all.restore(stored.read());
        let rules = RuleSet::of(all.in_order()).unwrap_or_else(|error| {
            all.problem = Some(format!("no rule is in effect: {}", error.message));
            RuleSet::default()
        });
        for problem in all.problems() {
            tracing::warn!("{problem}");
        }
        let is_needed = !rules.rules.is_empty();
        let inner = Arc::new(Inner {
            engine: EngineHandle(engine.clone()),
            server: places.server,
            actor: Arc::new(Actor::new(Journal::new(places.journal))),
            stored,
            all: Mutex::new(all),
            changing: Mutex::default(),
            rules: channel::Sender::new(Arc::new(rules)),
            started: AtomicBool::new(false),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        if is_needed && let Err(error) = inner.start() {
            tracing::warn!("{error}; no rule is in effect");
        }
        Self { inner: Some(inner) }
    }

    fn inner(&self) -> Result<&Arc<Inner>> {
        self.inner.as_ref().ok_or_else(|| Error::unavailable("this process has no rules; they belong to the daemon"))
    }

    /// Returns whether no rule needs this daemon.
    pub fn is_idle(&self) -> bool {
        self.inner.as_ref().is_none_or(|inner| inner.rules.borrow().rules.is_empty() && inner.actor.tasks.is_empty())
    }

    /// Lists the rules, without secrets. Error: `READ_ONLY`.
    pub fn list(&self, engine: &Engine) -> Result<WhenList> {
        engine.authorize(Tier::Read)?;
        let Some(inner) = &self.inner else { return Ok(WhenList::default()) };
        let is_user = engine.caller().principal.is_user();
        let all = inner.all();
        let info = |rule: &Arc<Rule>, configured| WhenInfo {
            rule: shown(&rule.given, is_user),
            configured,
            ..inner.actor.counts(rule.name())
        };
        let configured = all.configured.iter().map(|rule| info(rule, true));
        let rules = configured.chain(all.added.iter().map(|rule| info(rule, false))).collect();
        let servers = inner.actor.watched_for(&inner.rules.borrow());
        let problems = all.problems().into_iter().chain(inner.actor.problems()).collect();
        Ok(WhenList { rules, servers, problems })
    }

    /// Adds a rule, or replaces an added one of its name, until it is removed. `by_agent`: whether an agent, or
    /// a process that it started, asks for it.
    ///
    /// Errors: `UNAUTHORIZED` for an agent, and for a caller other than the user, `READ_ONLY`,
    /// `INVALID_ARGUMENT`, `CONFLICT` if the configuration has a rule of this name or the rule cannot be stored.
    pub async fn add(&self, engine: &Engine, given: WhenRule, by_agent: bool) -> Result<WhenInfo> {
        check_author(engine, "adding a rule", by_agent)
            .inspect_err(|error| engine.record_about("add-rule", &given.name, error.code.as_str()))?;
        if given.type_text.is_some() {
            engine.authorize(Tier::Input)?;
        }
        let inner = self.inner()?.clone();
        let is_user = engine.caller().principal.is_user();
        let rule = Arc::new(Rule::of(given)?);
        let name = rule.name().to_owned();
        let added = rule.clone();
        inner.change(move |all| all.add(added)).await?;
        inner.actor.forget(&name);
        inner.start()?;
        engine.record_about("add-rule", &name, "ok");
        Ok(WhenInfo { rule: shown(&rule.given, is_user), ..WhenInfo::default() })
    }

    /// Removes a rule that was added. `by_agent`: as for [`Self::add`].
    ///
    /// Errors: `UNAUTHORIZED` for an agent, and for a caller other than the user, `READ_ONLY`, `NOT_FOUND`,
    /// `CONFLICT` for a rule of the configuration.
    pub async fn remove(&self, engine: &Engine, name: &str, by_agent: bool) -> Result<()> {
        check_author(engine, "removing a rule", by_agent)
            .inspect_err(|error| engine.record_about("remove-rule", name, error.code.as_str()))?;
        let inner = self.inner()?.clone();
        let wanted = name.to_owned();
        inner.change(move |all| all.remove(&wanted)).await?;
        inner.actor.forget(name);
        engine.record_about("remove-rule", name, "ok");
        Ok(())
    }

    /// Returns the latest firings. Error: `READ_ONLY`; `INVALID_ARGUMENT` for more than 10,000; `CONFLICT` if
    /// the journal cannot be read.
    pub async fn log(&self, engine: &Engine, query: &WhenLogQuery) -> Result<WhenLog> {
        engine.authorize(Tier::Read)?;
        let Some(inner) = self.inner.clone() else { return Ok(WhenLog::default()) };
        let most = query.n.unwrap_or(LOGGED);
        if most > MOST_LOGGED {
            return Err(Error::invalid(format!("n: too large: {most}; expected at most {MOST_LOGGED}")));
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let rule = query.rule.clone();
        let read = tokio::task::spawn_blocking(move || inner.actor.journal().read(most, rule.as_deref())).await;
        let read = read.map_err(|error| Error::internal(error.to_string()))?;
        let failed = |error| Error::new(ErrorCode::Conflict, format!("the journal of rules cannot be read: {error}"));
        Ok(WhenLog { firings: read.map_err(failed)? })
    }

    /// Stops watching. What has fired is still carried out.
    pub fn leave(&self) {
        if let Some(inner) = &self.inner {
            inner.stop.cancel();
        }
    }

    /// Stops watching, and waits until the firings so far are carried out, up to a limit.
    pub async fn stop(&self) {
        self.leave();
        if let Some(inner) = &self.inner {
            inner.tasks.close();
            // The thread itself may hang, for example in a write to the journal.
            if tokio::time::timeout(END_LIMIT, inner.tasks.wait()).await.is_err() {
                tracing::warn!("timeout while the rules stop");
            }
        }
    }
}

/// Checks that the user asks for a change, and no agent: a rule acts for the user, without an agent's mark.
fn check_author(engine: &Engine, what: &str, by_agent: bool) -> Result<()> {
    engine.authorize(Tier::Create)?;
    engine.check_user(what, "[[when]] in config.toml has rules, too")?;
    if by_agent {
        let why = format!(
            "{what} is reserved for the user, and this request comes from a process that an agent of this muxtap \
             started; ask the user to do it"
        );
        return Err(Error::new(ErrorCode::Unauthorized, why));
    }
    Ok(())
}

impl Inner {
    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the added rules: checked, compiled and stored, then in effect.
    async fn change(self: &Arc<Self>, change: impl FnOnce(&mut All) -> Result<()> + Send + 'static) -> Result<()> {
        let own = self.clone();
        let changed = tokio::task::spawn_blocking(move || {
            let _changing = own.changing.lock().unwrap_or_else(PoisonError::into_inner);
            let mut next = own.all().clone();
            if let Some(why) = &next.unread {
                // Writing would drop the rules that were not read.
                let message = format!("{why}; restart the daemon when the file is mended");
                return Err(Error::new(ErrorCode::Conflict, message));
            }
            change(&mut next)?;
            let rules = RuleSet::of(next.in_order())?;
            own.stored.write(next.to_store())?;
            next.problem = None;
            *own.all() = next;
            own.rules.send_replace(Arc::new(rules));
            Ok(())
        });
        changed.await.map_err(|error| Error::internal(error.to_string()))?
    }

    /// Starts the thread of the rules, unless it runs.
    fn start(self: &Arc<Self>) -> Result<()> {
        if self.started.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.start_thread().map_err(|error| {
            // The next rule tries again.
            self.started.store(false, Ordering::Release);
            Error::internal(format!("rules: cannot start a thread: {error}"))
        })
    }

    fn start_thread(self: &Arc<Self>) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build()?;
        let (own, token) = (self.clone(), self.tasks.token());
        let run = move || {
            let _token = token;
            runtime.block_on(own.run());
            // A secret's file on a host that hangs is not awaited.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("rules".into()).spawn(run).map(drop)
    }

    /// Watches all servers until the rules stop.
    async fn run(self: Arc<Self>) {
        let engine = self.engine.0.clone();
        let end = engine.end();
        let mut rules = self.rules.subscribe();
        let mut watches = JoinSet::new();
        let mut watched = HashSet::new();
        let mut changes = engine.changes();
        loop {
            let set = rules.borrow_and_update().clone();
            for server in self.servers(&set).await {
                let host = server_host(&server);
                if set.are_on(host.as_deref()) && watched.insert(server.socket().to_owned()) {
                    let (actor, stop) = (self.actor.clone(), self.stop.clone());
                    let of = Watched { server, host, actor, rules: self.rules.subscribe(), stop };
                    watches.spawn(async move {
                        let socket = of.server.socket().to_owned();
                        of.run().await;
                        socket
                    });
                }
            }
            tokio::select! {
                () = self.stop.cancelled() => break,
                () = end.cancelled() => break,
                next = changes.next() => if next.is_none() { break },
                _ = rules.changed() => {}
                // No rule needs that server any more, unless one was added meanwhile.
                Some(ended) = watches.join_next() => match ended {
                    Ok(socket) => drop(watched.remove(&socket)),
                    Err(error) => tracing::error!("rules: a server is no longer watched: {error}"),
                },
            }
        }
        self.stop.cancel();
        // A host that hangs is not awaited, and what has fired is in the actor's queues.
        watches.shutdown().await;
        self.actor.tasks.close();
        // What takes longer is dropped with the runtime: its end is not known.
        let _ = tokio::time::timeout(STOP_LIMIT, self.actor.tasks.wait()).await;
    }

    /// Returns the servers that are followed, the default one, and those that rules name.
    async fn servers(&self, rules: &RuleSet) -> Vec<Server> {
        let (engine, actor) = (self.engine.0.clone(), self.actor.clone());
        let default = rules.are_on(None).then(|| self.server.clone());
        let hosts: Vec<String> = rules.hosts().map(default_server).collect();
        let find = async move {
            let mut servers = engine.followed_servers();
            servers.extend(default.and_then(|socket| engine.server_at(&socket).ok()));
            for host in hosts {
                match engine.server_named(Some(&host)) {
                    Ok(server) => servers.push(server),
                    Err(error) => actor.set_problem(&host, Some(&error)),
                }
            }
            Ok(servers)
        };
        on_engine(self.engine.0.clone(), find).await.unwrap_or_default()
    }
}

/// Returns the name of a server's host, if it is not this machine: the address is `HOST/NAME` there.
fn server_host(server: &Server) -> Option<String> {
    let socket = server.socket();
    if socket.is_absolute() {
        return None;
    }
    socket.to_str()?.split_once('/').map(|(host, _)| host.to_owned())
}

/// Returns a rule without what may be a secret.
fn shown(rule: &WhenRule, is_user: bool) -> WhenRule {
    let mut rule = rule.clone();
    if let Some(WhenPost { url, headers, .. }) = &mut rule.post {
        if let WhenText::Plain(url) = url {
            *url = origin(url);
        }
        for value in headers.values_mut() {
            if let WhenText::Plain(value) = value {
                *value = "…".into();
            }
        }
    }
    if !is_user {
        for word in rule.run.iter_mut().skip(1) {
            *word = "…".into();
        }
        if let Some(text) = &mut rule.type_text {
            *text = "…".into();
        }
        if let Some(WhenPost { template, .. }) = &mut rule.post {
            *template = template.take().map(|_| "…".into());
        }
    }
    rule
}

/// Returns the beginning of a URL, up to its host: the rest may be a secret.
fn origin(url: &str) -> String {
    let scheme = url.find("://").map_or(0, |at| at + 3);
    let end = url.get(scheme..).and_then(|rest| rest.find(['/', '?', '#'])).map_or(url.len(), |at| scheme + at);
    format!("{}/…", url.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests;
