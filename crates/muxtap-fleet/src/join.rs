//! Membership: connects to NATS, serves what is offered, and opens links to others.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_nats::{Client, ClientError, ConnectErrorKind, Event};
use muxtap_api::{Error, ErrorCode, Result, Tier};
use muxtap_base::clock::now_ms;
use tokio::{
    sync::{Notify, broadcast, mpsc, watch},
    task::{JoinError, JoinSet},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    links::{Links, OPEN_LIMIT, Offered, Opened},
    service::{self, Member, Questions, Unanswered},
    settings::Settings,
    subject,
};

/// The first pause after a failed attempt to join; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between attempts to join.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The pause after which NATS is connected to again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
/// How often NATS is pinged; a connection without replies is replaced after two more.
const PING: Duration = Duration::from_secs(20);
/// How often each server is tried after a connection is lost, before the files are read again.
const RECONNECTS: usize = 12;
/// The most messages of one subscription that are queued: more than a link's window holds.
const QUEUED: usize = 8192;
/// The pauses after which a name that is taken is asked for again: a daemon that replaces itself
/// still replies for a moment.
const TAKEN_PAUSES: [Duration; 3] = [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1)];
/// The most events of the connection that are queued.
const EVENTS: usize = 64;

/// How far this daemon is in its fleet.
#[derive(Clone, Debug)]
pub enum State {
    /// The daemon connects for the first time.
    Connecting,
    /// The daemon is a member.
    Joined,
    /// The daemon is a member, and has been reconnecting to NATS since this moment.
    Disconnected(Instant),
    /// The daemon is not a member, and tries again.
    Out(Error),
}

/// A daemon's membership in a fleet. Clones are cheap and are the same membership.
#[derive(Clone)]
pub struct Fleet(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) me: Member,
    pub(super) settings: Settings,
    pub(super) state: watch::Sender<State>,
    /// The connection of a member.
    pub(super) joined: watch::Sender<Option<Connection>>,
    /// Subjects that NATS refused because a permission is missing.
    pub(super) refused: broadcast::Sender<String>,
    pub(super) on_link: Box<dyn Fn(Offered) + Send + Sync>,
    pub(super) on_host: Box<dyn Fn(&Member) + Send + Sync>,
    /// The hosts that were seen, by their names.
    pub(super) known: Mutex<BTreeMap<String, Member>>,
    pub(super) links: Mutex<Links>,
    /// The tasks that carry links.
    pub(super) carried: TaskTracker,
    pub(super) end: CancellationToken,
}

/// The outcome of sending to NATS. Error: it takes nothing more.
pub(super) type Sent = std::result::Result<(), async_nats::Error>;

/// A connection to NATS, up to the moment when it is lost.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) lost: CancellationToken,
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("name", &self.0.me.name).finish_non_exhaustive()
    }
}

impl Fleet {
    /// Joins a fleet, and stays in it until `end`: connects again when NATS is lost, and tries again
    /// while it cannot be reached. `on_link` gets each link that another member opens; it must
    /// return at once, as must `on_host`, which gets each host that is seen.
    ///
    /// Error: `INVALID_ARGUMENT`, which names the setting. Must be called within a runtime.
    pub fn join(
        settings: Settings,
        on_link: impl Fn(Offered) + Send + Sync + 'static,
        on_host: impl Fn(&Member) + Send + Sync + 'static,
        end: CancellationToken,
    ) -> Result<Self> {
        settings.check()?;
        // The files are read again at each attempt.
        settings.options()?;
        let me = Member {
            name: settings.name.clone(),
            version: settings.version.clone(),
            labels: settings.labels.clone(),
            offer: Tier::ALL.into_iter().filter(|tier| settings.offer.contains(tier)).collect(),
            machine: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            instance: random()?,
            since_ms: now_ms(),
        };
        let inner = Arc::new(Inner {
            me,
            settings,
            state: watch::Sender::new(State::Connecting),
            joined: watch::Sender::new(None),
            refused: broadcast::Sender::new(EVENTS),
            on_link: Box::new(on_link),
            on_host: Box::new(on_host),
            known: Mutex::default(),
            links: Mutex::default(),
            carried: TaskTracker::new(),
            end,
        });
        tokio::spawn(inner.clone().run());
        Ok(Self(inner))
    }

    /// Returns this daemon's name in the fleet.
    pub fn name(&self) -> &str {
        &self.0.me.name
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Returns the state of the membership, and its changes.
    pub fn state(&self) -> watch::Receiver<State> {
        self.0.state.subscribe()
    }

    /// Returns what a host that was seen says about itself.
    pub fn known(&self, host: &str) -> Option<Member> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner).get(host).cloned()
    }

    /// Asks a host about itself. `None`: no daemon of this name is connected.
    ///
    /// Error: this daemon is not connected, or no reply came.
    pub async fn find(&self, host: &str) -> Result<Option<Member>> {
        if !super::settings::is_name(host) {
            return Ok(None);
        }
        let connection = self.0.connection().await?;
        let found = tokio::select! {
            found = service::ask(&connection.client, host) => found,
            () = connection.lost.cancelled() => Err(Unanswered::Silent),
        };
        match found {
            Ok(member) => Ok(Some(member)),
            Err(Unanswered::Absent) => Ok(None),
            Err(Unanswered::Silent) => Err(Error::unavailable(format!("host {host}: no reply over NATS"))),
        }
    }

    /// Lists the hosts: the other members that offer something.
    ///
    /// Error: this daemon is not connected.
    pub async fn hosts(&self) -> Result<Vec<Member>> {
        let connection = self.0.connection().await?;
        let list = async {
            let listed = service::list(&connection.client, None).await.map_err(|error| self.0.unusable(&error))?;
            Ok(self.0.meet(&connection.client, listed).await)
        };
        tokio::select! {
            hosts = list => hosts,
            () = connection.lost.cancelled() => Err(self.0.unusable(&"the connection was lost")),
        }
    }

    /// Returns why this daemon is not a member at the moment.
    pub fn problem(&self) -> Option<String> {
        match &*self.0.state.borrow() {
            State::Out(error) => Some(error.message.clone()),
            State::Disconnected(_) => Some(self.0.unusable(&"the connection was lost").message),
            State::Connecting | State::Joined => None,
        }
    }

    /// Opens a link for requests of a tier.
    ///
    /// Errors: `TMUX_UNAVAILABLE` if no daemon of this name is connected, at once; `READ_ONLY` if
    /// the host does not offer the tier; `UNAUTHORIZED` if NATS does not permit it.
    pub async fn open(&self, host: &str, tier: Tier) -> Result<Opened> {
        let connection = self.0.connection().await?;
        tokio::select! {
            opened = self.0.open(&connection, host, tier) => opened,
            () = connection.lost.cancelled() => Err(self.0.unusable(&"the connection was lost")),
        }
    }
}

impl Inner {
    /// Returns the connection. While NATS is being connected to, waits for it, [`OPEN_LIMIT`] at most.
    async fn connection(&self) -> Result<Connection> {
        let mut state = self.state.subscribe();
        let limit = match &*state.borrow() {
            State::Disconnected(since) => OPEN_LIMIT.saturating_sub(since.elapsed()),
            _ => OPEN_LIMIT,
        };
        let is_settled = |state: &State| !matches!(state, State::Connecting | State::Disconnected(_));
        let _ = tokio::time::timeout(limit, state.wait_for(is_settled)).await;
        let state = self.state.borrow().clone();
        match (&*self.joined.borrow(), state) {
            (Some(connection), State::Joined) => Ok(connection.clone()),
            (_, State::Out(error)) => Err(self.unusable(&error.message)),
            (_, State::Connecting) => Err(self.unusable(&"the first connection is not established yet")),
            _ => Err(self.unusable(&"the connection was lost")),
        }
    }

    pub(super) fn unusable(&self, why: &dyn fmt::Display) -> Error {
        Error::unavailable(format!("the fleet at {} cannot be reached: {why}", self.settings.url))
    }

    /// Joins, and joins again, until the end.
    async fn run(self: Arc<Self>) {
        let mut tries = 0;
        loop {
            let since = Instant::now();
            let error = tokio::select! {
                error = self.stay() => error,
                () = self.end.cancelled() => break,
            };
            if let Some(connection) = self.joined.send_replace(None) {
                connection.lost.cancel();
            }
            tracing::warn!("fleet {}: {error}", self.settings.url);
            self.state.send_replace(State::Out(error));
            if since.elapsed() > LONGEST_PAUSE {
                tries = 0;
            }
            let pause = LONGEST_PAUSE.min(FIRST_PAUSE.saturating_mul(1 << tries.min(10)));
            tries += 1;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.end.cancelled() => break,
            }
        }
        if let Some(connection) = self.joined.send_replace(None) {
            // Other members hear at once that their links are over.
            connection.lost.cancel();
            self.carried.close();
            let _ = tokio::time::timeout(FIRST_PAUSE, self.carried.wait()).await;
            let _ = tokio::time::timeout(FIRST_PAUSE, connection.client.flush()).await;
        }
    }

    /// Joins, and remains a member as long as possible. Returns the reason why membership ended.
    async fn stay(self: &Arc<Self>) -> Error {
        let (client, events) = match self.connect().await {
            Ok(connected) => connected,
            Err(error) => return error,
        };
        let (again, due) = mpsc::channel(1);
        tokio::select! {
            error = self.take_part(&client, due) => error,
            error = self.follow(&client, events, again) => error,
        }
    }

    /// Takes the name, serves, and keeps the name. `due`: NATS was connected to again.
    async fn take_part(self: &Arc<Self>, client: &Client, mut due: mpsc::Receiver<()>) -> Error {
        if let Some(other) = self.owner(client).await {
            return taken(&other);
        }
        // Of two that ask at the same time, the later one leaves when it hears the other.
        let mut tasks = JoinSet::new();
        let (claims, mut claimed) = mpsc::channel(1);
        let returned = Arc::new(Notify::new());
        let (inner, own) = (self.clone(), returned.clone());
        match Questions::subscribe(client, &self.me).await {
            Ok(questions) => drop(tasks.spawn(questions.serve(move |member| {
                if member.instance == inner.me.instance {
                    own.notify_one();
                } else if member.name == inner.me.name {
                    drop(claims.try_send(member));
                } else {
                    let _ = inner.met(&member);
                }
            }))),
            Err(error) => return self.unusable(&error),
        }
        // Every host sees the inbox of a question to all, and could reply in any name.
        let (same, members) = tokio::join!(service::list(client, Some(&self.me.name)), service::list(client, None));
        if let Some(other) = same.unwrap_or_default().iter().find(|member| self.is_rival(member)) {
            return taken(other);
        }
        self.meet(client, members.unwrap_or_default()).await;
        self.joined.send_replace(Some(Connection { client: client.clone(), lost: self.end.child_token() }));
        if let Err(error) = self.serve(client, &mut tasks).await {
            return self.unusable(&error);
        }
        if let Err(error) = self.announce(client).await {
            return self.unusable(&error);
        }
        // A flush says that the bytes were written. The announcement comes back when NATS has read it, and so
        // all subscriptions before it: from then on, no link to this host is without a responder.
        if !self.me.offer.is_empty() {
            tokio::select! {
                () = returned.notified() => {}
                Some(ended) = tasks.join_next() => return self.ended(ended),
                () = tokio::time::sleep(OPEN_LIMIT) => {
                    let limit = OPEN_LIMIT.as_secs();
                    return self.unusable(&format!("this daemon's own announcement did not come back in {limit} s"));
                }
            }
        }
        self.state.send_replace(State::Joined);
        tracing::info!("fleet {}: joined as {}", self.settings.url, self.me.name);
        let looks = async {
            loop {
                let same = tokio::select! {
                    Some(()) = due.recv() => service::list(client, Some(&self.me.name)).await.unwrap_or_default(),
                    Some(other) = claimed.recv() => vec![other],
                };
                if let Some(other) = same.iter().find(|member| self.is_rival(member)) {
                    return taken(other);
                }
                // A later one hears that this one is there.
                if let Err(error) = self.announce(client).await {
                    return self.unusable(&error);
                }
            }
        };
        tokio::select! {
            error = looks => error,
            Some(ended) = tasks.join_next() => self.ended(ended),
        }
    }

    /// Returns the error for a task that served, and has ended.
    fn ended(&self, ended: std::result::Result<Sent, JoinError>) -> Error {
        match ended {
            Ok(Err(error)) => self.unusable(&error),
            _ => self.unusable(&"the connection was closed"),
        }
    }

    /// Returns the daemon that has this one's name, if it still replies after some pauses.
    async fn owner(&self, client: &Client) -> Option<Member> {
        let mut pauses = TAKEN_PAUSES.into_iter();
        loop {
            // Silent: a connection of an earlier daemon may still count as open.
            let other = service::ask(client, &self.me.name).await.ok()?;
            let Some(pause) = pauses.next() else { return Some(other) };
            tokio::time::sleep(pause).await;
        }
    }

    /// Follows the connection's events. `again`: NATS was connected to again. Returns the reason why
    /// the connection is of no use.
    async fn follow(&self, client: &Client, mut events: mpsc::Receiver<Event>, again: mpsc::Sender<()>) -> Error {
        while let Some(event) = events.recv().await {
            let is_member = self.joined.borrow().is_some();
            match event {
                Event::Disconnected if is_member => self.disconnected(client),
                Event::Disconnected => return self.unusable(&"the connection was lost"),
                // NATS may not have read the subscriptions again yet: until then, others may find
                // this host absent.
                Event::Connected if is_member => {
                    self.state.send_replace(State::Joined);
                    let _ = again.try_send(());
                }
                Event::ServerError(error) => {
                    // Its text names the subject.
                    let text = error.to_string();
                    if let Some(error) = self.not_permitted(&text) {
                        return error;
                    }
                    tracing::debug!("fleet: {text}");
                    drop(self.refused.send(text));
                }
                Event::Closed | Event::ClientError(ClientError::MaxReconnects) => break,
                // A revoked key. A new one is read when this daemon joins again.
                Event::ClientError(ClientError::Other(why))
                    if why == ConnectErrorKind::AuthorizationViolation.to_string() =>
                {
                    break;
                }
                other => tracing::debug!("fleet: {other}"),
            }
        }
        self.unusable(&"the connection was closed")
    }

    /// Returns the error for a subscription without which this daemon receives nothing, or for the
    /// announcement of a host, if NATS refused one.
    fn not_permitted(&self, text: &str) -> Option<Error> {
        let (_, refused) = text.split_once("ermissions Violation for ")?;
        let (what, subject) = refused.split_once(" to \"")?;
        let subject = subject.split('"').next().unwrap_or_default();
        let is_hello = !self.me.offer.is_empty() && subject.starts_with("$SRV.HELLO.");
        let what = match what {
            "Subscription" if is_hello || subject.starts_with("_INBOX.") || subject.starts_with(subject::PREFIX) => {
                "subscription"
            }
            "Publish" if is_hello => "announcement",
            _ => return None,
        };
        let message = format!(
            "name: {}: NATS does not permit its {what} to {}; expected the name of its credentials, and in \
             `offer` only tiers that the member was added with",
            self.me.name,
            muxtap_base::plain::name(subject)
        );
        Some(Error::new(ErrorCode::Unauthorized, message))
    }

    async fn connect(&self) -> Result<(Client, mpsc::Receiver<Event>)> {
        let (told, events) = mpsc::channel(EVENTS);
        let servers = self.settings.servers();
        let options = self.settings.options()?.ping_interval(PING).connection_timeout(OPEN_LIMIT);
        let options = options.max_reconnects(RECONNECTS * servers.len()).subscription_capacity(QUEUED);
        let options = options.reconnect_delay_callback(|attempts| {
            let tries = u32::try_from(attempts).unwrap_or(u32::MAX).saturating_sub(1).min(5);
            RECONNECT_PAUSE.saturating_mul(1 << tries)
        });
        let options = options.event_callback(move |event| {
            let told = told.clone();
            async move { drop(told.send(event).await) }
        });
        let client = options.connect(servers).await.map_err(|error| match error.kind() {
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                let message = format!("the fleet at {}: NATS does not accept the credentials", self.settings.url);
                Error::new(ErrorCode::Unauthorized, message)
            }
            _ => self.unusable(&error),
        })?;
        Ok((client, events))
    }

    /// Ends all links: some of their frames may be lost.
    fn disconnected(&self, client: &Client) {
        let fresh = Connection { client: client.clone(), lost: self.end.child_token() };
        self.state.send_replace(State::Disconnected(Instant::now()));
        if let Some(before) = self.joined.send_replace(Some(fresh)) {
            before.lost.cancel();
        }
    }

    /// Returns whether a member is another daemon of the same name that was there first.
    fn is_rival(&self, other: &Member) -> bool {
        other.name == self.me.name && other.instance != self.me.instance && other.is_before(&self.me)
    }

    /// Tells the other members that this host is there.
    async fn announce(&self, client: &Client) -> Sent {
        if self.me.offer.is_empty() { Ok(()) } else { service::announce(client, &self.me).await }
    }

    /// Opens links for the tiers that are offered.
    async fn serve(self: &Arc<Self>, client: &Client, tasks: &mut JoinSet<Sent>) -> Sent {
        for tier in self.me.offer.iter().copied() {
            let asked = client.subscribe(subject::open(&self.me.name, tier)).await?;
            tasks.spawn(self.clone().offer(client.clone(), tier, asked));
        }
        client.flush().await?;
        Ok(())
    }
}

fn taken(other: &Member) -> Error {
    let message = format!(
        "name: {} is taken in the fleet by the daemon on {}; give each daemon a name of its own",
        other.name, other.machine
    );
    Error::new(ErrorCode::Conflict, message)
}

/// Returns 128 secret random bits as text.
pub(super) fn random() -> Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| Error::internal(format!("cannot get random bytes: {error}")))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(random)))
}
