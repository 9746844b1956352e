//! Membership: connects to NATS, serves what is offered, and opens links to others.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_nats::{Client, ConnectErrorKind, Event, Message, RequestErrorKind};
use futures_util::StreamExt as _;
use muxtap_api::{Error, ErrorCode, Result, Tier};
use muxtap_base::clock::now_ms;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{broadcast, mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{
    pipe::{Ends, Pipe},
    service::{self, Member, Questions, Unanswered},
    settings::Settings,
    subject,
};

/// The version of the protocol between two members.
const PROTOCOL: u32 = 1;
/// The word for an ability of muxtap: it accepts idempotency keys.
const KEYS: &str = "keys";
/// How long a host may take to open a link.
const OPEN_LIMIT: Duration = Duration::from_secs(5);
/// The first pause after a failed attempt to join; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between attempts to join.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The pause after which NATS is connected to again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
/// The most links of one member for one tier; another one replaces the oldest.
const MOST_LINKS: usize = 8;
/// The most members that have links to this host.
const MOST_CALLERS: usize = 4096;
/// The most hosts that are remembered.
const MOST_HOSTS: usize = 4096;
/// How often NATS is pinged; a connection without replies is replaced after two more.
const PING: Duration = Duration::from_secs(20);
/// The most events of the connection that are queued.
const EVENTS: usize = 64;

/// A link that another member has opened.
#[derive(Debug)]
pub struct Offered {
    /// The byte stream.
    pub pipe: Pipe,
    /// The tier of requests that may be served on it.
    pub tier: Tier,
    /// The member's name.
    pub member: Arc<str>,
}

/// A link to another host.
#[derive(Debug)]
pub struct Opened {
    /// The byte stream.
    pub pipe: Pipe,
    /// The version of the host's muxtap.
    pub version: String,
    /// Whether it accepts idempotency keys.
    pub takes_keys: bool,
}

/// How far this daemon is in its fleet.
#[derive(Clone, Debug)]
pub enum State {
    /// It connects for the first time.
    Connecting,
    /// It is a member.
    Joined,
    /// It is a member, and NATS has been connected to again since this moment.
    Disconnected(Instant),
    /// It is no member, and tries again.
    Out(Error),
}

/// A daemon's membership in a fleet. Clones are cheap and are the same membership.
#[derive(Clone)]
pub struct Fleet(Arc<Inner>);

struct Inner {
    me: Member,
    settings: Settings,
    state: watch::Sender<State>,
    /// The connection of a member.
    joined: watch::Sender<Option<Connection>>,
    /// What NATS refused because a permission is missing.
    refused: broadcast::Sender<String>,
    on_link: Box<dyn Fn(Offered) + Send + Sync>,
    on_host: Box<dyn Fn(&Member) + Send + Sync>,
    /// The hosts that were seen, by their names.
    known: Mutex<BTreeMap<String, Member>>,
    links: Mutex<HashMap<(Arc<str>, Tier), Vec<CancellationToken>>>,
    end: CancellationToken,
}

/// The outcome of sending to NATS. Error: it takes nothing more.
type Sent = std::result::Result<(), async_nats::Error>;

/// A connection to NATS, up to the moment when it is lost.
#[derive(Clone)]
struct Connection {
    client: Client,
    lost: CancellationToken,
}

/// A request to open a link.
#[derive(Deserialize, Serialize)]
struct Open {
    protocol: u32,
    version: String,
    /// The subject for frames to the caller.
    inbox: String,
}

/// The reply to it.
#[derive(Default, Deserialize, Serialize)]
struct OpenAnswer {
    #[serde(default)]
    id: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    can: Vec<String>,
    /// The reason for a refusal.
    error: Option<String>,
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
            offer: settings.offer.clone(),
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
        let listed = tokio::select! {
            listed = service::list(&connection.client, None) => listed.map_err(|error| self.0.unusable(&error))?,
            () = connection.lost.cancelled() => return Err(self.0.unusable(&"the connection was lost")),
        };
        Ok(listed.into_iter().filter(|member| self.0.met(member)).collect())
    }

    /// Returns why this daemon is no member at the moment.
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

    fn unusable(&self, why: &dyn fmt::Display) -> Error {
        Error::unavailable(format!("the fleet at {} cannot be reached: {why}", self.settings.url))
    }

    /// Joins, and joins again, until the end.
    async fn run(self: Arc<Self>) {
        let mut tries = 0;
        loop {
            let error = tokio::select! {
                error = self.stay(&mut tries) => error,
                () = self.end.cancelled() => break,
            };
            if let Some(connection) = self.joined.send_replace(None) {
                connection.lost.cancel();
            }
            tracing::warn!("fleet {}: {error}", self.settings.url);
            self.state.send_replace(State::Out(error));
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
            let _ = tokio::time::timeout(FIRST_PAUSE, connection.client.flush()).await;
        }
    }

    /// Joins, and remains a member as long as possible. Returns the reason why it is none.
    async fn stay(self: &Arc<Self>, tries: &mut u32) -> Error {
        let (client, mut events) = match self.connect().await {
            Ok(connected) => connected,
            Err(error) => return error,
        };
        match service::ask(&client, &self.me.name).await {
            Ok(other) => return self.taken(&other),
            // Silent: a connection of an earlier daemon may still count as open.
            Err(Unanswered::Absent | Unanswered::Silent) => {}
        }
        // Of two that ask at the same time, the later one leaves when it hears the other.
        let mut tasks = JoinSet::new();
        let (claims, mut claimed) = mpsc::channel(1);
        let inner = self.clone();
        match Questions::subscribe(&client, &self.me).await {
            Ok(questions) => drop(tasks.spawn(questions.serve(move |member| {
                if member.name == inner.me.name {
                    drop(claims.try_send(member));
                } else {
                    let _ = inner.met(&member);
                }
            }))),
            Err(error) => return self.unusable(&error),
        }
        let members = service::list(&client, None).await.unwrap_or_default();
        if let Some(other) = members.iter().find(|member| self.is_rival(member)) {
            return self.taken(other);
        }
        for member in &members {
            self.met(member);
        }
        *tries = 0;
        self.joined.send_replace(Some(Connection { client: client.clone(), lost: self.end.child_token() }));
        if let Err(error) = self.serve(&client, &mut tasks).await {
            return self.unusable(&error);
        }
        if let Err(error) = self.announce(&client).await {
            return self.unusable(&error);
        }
        self.state.send_replace(State::Joined);
        tracing::info!("fleet {}: joined as {}", self.settings.url, self.me.name);
        let (again, mut due) = mpsc::channel::<()>(1);
        let looks = async {
            loop {
                let same = tokio::select! {
                    Some(()) = due.recv() => service::list(&client, Some(&self.me.name)).await.unwrap_or_default(),
                    Some(other) = claimed.recv() => match other.instance == self.me.instance {
                        true => continue,
                        false => vec![other],
                    },
                };
                if let Some(other) = same.iter().find(|member| self.is_rival(member)) {
                    return self.taken(other);
                }
                // A later one hears that this one is there.
                if let Err(error) = self.announce(&client).await {
                    return self.unusable(&error);
                }
            }
        };
        let follows = async {
            while let Some(event) = events.recv().await {
                match event {
                    Event::Disconnected => self.disconnected(&client),
                    Event::Connected => {
                        self.state.send_replace(State::Joined);
                        let _ = again.try_send(());
                    }
                    Event::ServerError(error) => {
                        // Its text names the subject.
                        drop(self.refused.send(error.to_string()));
                        tracing::debug!("fleet: {error}");
                    }
                    Event::Closed => break,
                    other => tracing::debug!("fleet: {other}"),
                }
            }
            self.unusable(&"the connection was closed")
        };
        tokio::select! {
            error = looks => error,
            error = follows => error,
            Some(ended) = tasks.join_next() => match ended {
                Ok(Err(error)) => self.unusable(&error),
                _ => self.unusable(&"the connection was closed"),
            },
        }
    }

    async fn connect(&self) -> Result<(Client, mpsc::Receiver<Event>)> {
        let (told, events) = mpsc::channel(EVENTS);
        let options = self.settings.options()?.ping_interval(PING).connection_timeout(OPEN_LIMIT);
        let options = options.reconnect_delay_callback(|attempts| {
            let tries = u32::try_from(attempts).unwrap_or(u32::MAX).saturating_sub(1).min(5);
            RECONNECT_PAUSE.saturating_mul(1 << tries)
        });
        let options = options.event_callback(move |event| {
            let told = told.clone();
            async move { drop(told.send(event).await) }
        });
        let client = options.connect(self.settings.servers()).await.map_err(|error| match error.kind() {
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

    fn taken(&self, other: &Member) -> Error {
        let message = format!(
            "name: {} is taken in the fleet by the daemon on {}; give each daemon a name of its own",
            other.name, other.machine
        );
        Error::new(ErrorCode::Conflict, message)
    }

    /// Returns whether a member is another daemon of the same name that was there first.
    fn is_rival(&self, other: &Member) -> bool {
        other.name == self.me.name && other.instance != self.me.instance && other.is_before(&self.me)
    }

    /// Tells the other members that this host is there.
    async fn announce(&self, client: &Client) -> Sent {
        if self.me.offer.is_empty() { Ok(()) } else { service::announce(client, &self.me).await }
    }

    /// Remembers a member if it is a host. Returns whether it is one.
    fn met(&self, member: &Member) -> bool {
        if member.name == self.me.name || member.offer.is_empty() {
            return false;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_HOSTS && !known.contains_key(&member.name) {
            return false;
        }
        known.insert(member.name.clone(), member.clone());
        drop(known);
        (self.on_host)(member);
        true
    }

    /// Opens links for the tiers that are offered.
    async fn serve(self: &Arc<Self>, client: &Client, tasks: &mut JoinSet<Sent>) -> Sent {
        for tier in self.me.offer.iter().copied() {
            let mut asked = client.subscribe(subject::open(&self.me.name, tier)).await?;
            let (inner, client) = (self.clone(), client.clone());
            tasks.spawn(async move {
                while let Some(message) = asked.next().await {
                    inner.asked(&client, tier, message).await?;
                }
                Ok(())
            });
        }
        client.flush().await?;
        Ok(())
    }

    /// Opens a link that another member asks for. Error: NATS takes nothing more.
    async fn asked(&self, client: &Client, tier: Tier, message: Message) -> Sent {
        // NATS gives what is sent there to that member alone, so it alone learns the link's id.
        let Some(reply) = message.reply else { return Ok(()) };
        let Some(member) = subject::member_of(&reply).map(Arc::<str>::from) else { return Ok(()) };
        let Some(connection) = self.joined.borrow().clone() else { return Ok(()) };
        let refuse = |why: String| {
            let answer = OpenAnswer { error: Some(why), ..OpenAnswer::default() };
            serde_json::to_vec(&answer).unwrap_or_default()
        };
        let answer = match serde_json::from_slice::<Open>(&message.payload) {
            Ok(open) if open.protocol != PROTOCOL => {
                refuse(format!("protocol {}: expected {PROTOCOL}; use the same version of muxtap", open.protocol))
            }
            Ok(open) if subject::member_of(&open.inbox) != Some(&*member) => {
                refuse("inbox: not the one of the member that asks".into())
            }
            Err(error) => refuse(format!("invalid request: {error}")),
            Ok(open) => match self.keep(&member, tier, &connection) {
                None => refuse("too many members have links to this host".into()),
                Some(lost) => {
                    let id = random()?;
                    let from = client.subscribe(subject::link(&self.me.name, tier, &id)).await?;
                    let ends = Ends { client: client.clone(), to: open.inbox, from };
                    (self.on_link)(Offered { pipe: Pipe::open(ends, lost), tier, member });
                    let can = vec![KEYS.to_owned()];
                    let answer = OpenAnswer { id, version: self.me.version.clone(), can, error: None };
                    serde_json::to_vec(&answer).unwrap_or_default()
                }
            },
        };
        client.publish(reply, answer.into()).await?;
        Ok(())
    }

    /// Counts a new link. Returns the token that ends it. `None`: there are too many.
    fn keep(&self, member: &Arc<str>, tier: Tier, connection: &Connection) -> Option<CancellationToken> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|_, links| {
            links.retain(|link| !link.is_cancelled());
            !links.is_empty()
        });
        if links.len() >= MOST_CALLERS {
            return None;
        }
        let links = links.entry((member.clone(), tier)).or_default();
        if links.len() >= MOST_LINKS {
            // Its member has lost it: a member has one link for each tier.
            links.remove(0).cancel();
        }
        let link = connection.lost.child_token();
        links.push(link.clone());
        Some(link)
    }

    async fn open(&self, connection: &Connection, host: &str, tier: Tier) -> Result<Opened> {
        let client = &connection.client;
        let inbox = client.new_inbox();
        let subject = subject::open(host, tier);
        let mut refused = self.refused.subscribe();
        let is_refused = async {
            // NATS does not reply to a request that it refuses; its error names the subject.
            loop {
                match refused.recv().await {
                    Ok(text) if text.contains(&format!("\"{subject}\"")) => break,
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        let from = client.subscribe(inbox.clone()).await.map_err(|error| self.unusable(&error))?;
        let open = Open { protocol: PROTOCOL, version: self.me.version.clone(), inbox };
        let payload = serde_json::to_vec(&open).map_err(|error| Error::internal(error.to_string()))?;
        let request = async_nats::Request::new().payload(payload.into()).timeout(Some(OPEN_LIMIT));
        let answered = tokio::select! {
            answered = client.send_request(subject.clone(), request) => answered,
            () = is_refused => {
                let message = format!(
                    "host {host}: NATS does not permit `{tier}` on it to the member {}; an administrator of the fleet \
                     can grant it",
                    self.me.name
                );
                return Err(Error::new(ErrorCode::Unauthorized, message));
            }
        };
        let message = match answered {
            Ok(message) => message,
            Err(error) if error.kind() == RequestErrorKind::NoResponders => {
                return Err(self.not_open(client, host, tier).await);
            }
            Err(error) if error.kind() == RequestErrorKind::TimedOut => {
                let message = format!("host {host}: no reply over NATS within {} s", OPEN_LIMIT.as_secs());
                return Err(Error::unavailable(message));
            }
            Err(error) => return Err(self.unusable(&error)),
        };
        let answer: OpenAnswer = serde_json::from_slice(&message.payload)
            .map_err(|error| Error::internal(format!("host {host}: invalid reply over NATS: {error}")))?;
        if let Some(why) = answer.error {
            return Err(Error::unavailable(format!("host {host}: {}", muxtap_base::plain::name(&why))));
        }
        let is_id = !answer.id.is_empty() && answer.id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_id {
            return Err(Error::internal(format!("host {host}: invalid reply over NATS: expected a link's id")));
        }
        let ends = Ends { client: client.clone(), to: subject::link(host, tier, &answer.id), from };
        Ok(Opened {
            pipe: Pipe::open(ends, connection.lost.child_token()),
            version: muxtap_base::plain::name(&answer.version).chars().take(32).collect(),
            takes_keys: answer.can.iter().any(|can| can == KEYS),
        })
    }

    /// Returns the reason why nobody opens links of a tier.
    async fn not_open(&self, client: &Client, host: &str, tier: Tier) -> Error {
        match service::ask(client, host).await {
            Ok(member) if member.offer.contains(&tier) => {
                Error::unavailable(format!("host {host}: it has just joined the fleet; try again"))
            }
            Ok(member) => {
                let offered = member.offer.iter().map(|tier| tier.as_str()).collect::<Vec<_>>().join(", ");
                let offered = if offered.is_empty() { "nothing".to_owned() } else { format!("only: {offered}") };
                let message = format!("host {host}: it does not offer `{tier}` to the fleet, {offered}");
                Error::new(ErrorCode::ReadOnly, message)
            }
            Err(_) => Error::unavailable(format!("host {host}: its daemon is not connected to the fleet, or offers nothing")),
        }
    }
}

/// Returns 128 secret random bits as text.
fn random() -> Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| Error::internal(format!("cannot get random bytes: {error}")))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
