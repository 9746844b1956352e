//! The links of a member: those that it opens, and those that others open to it.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, PoisonError},
    time::Duration,
};

use async_nats::{Client, Message, RequestErrorKind, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt as _;
use muxtap_api::{Error, ErrorCode, Result, Tier};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::broadcast,
    task::{AbortHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;

use super::{
    frame::{Incoming, Outgoing},
    join::{Connection, Inner, Sent, random},
    pipe::{Ends, Pipe},
    service, subject,
};

/// The version of the protocol between two members.
const PROTOCOL: u32 = 1;
/// The word for an ability of muxtap: it accepts idempotency keys.
const KEYS: &str = "keys";
/// How long a host may take to open a link, and a caller to send its first frame.
pub(super) const OPEN_LIMIT: Duration = Duration::from_secs(5);
/// The pauses, in milliseconds, after which a host that offers a tier, but does not serve it yet, is asked
/// again: the servers of a cluster learn of a new host one after another.
const NOT_YET_MS: [u64; 5] = [50, 100, 200, 400, 800];
/// The longest request to open a link, in bytes.
const OPEN_BYTES: usize = 4096;
/// The most links of one tier whose callers have sent nothing yet; another one replaces the oldest.
const MOST_PENDING: usize = 64;
/// The most links of one member for one tier; another one replaces the oldest.
const MOST_LINKS: usize = 8;
/// The most members that have links to this host.
const MOST_CALLERS: usize = 4096;

/// The links of a host's callers, with the tokens that end them.
pub(super) type Links = HashMap<(Arc<str>, Tier), Vec<CancellationToken>>;

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

/// A link that was asked for in a member's name, which a first frame must prove.
struct Pending {
    connection: Connection,
    tier: Tier,
    member: Arc<str>,
    /// The subject for frames to the caller.
    inbox: String,
    from: Subscriber,
}

impl Inner {
    /// Opens the links of a tier that other members ask for. Error: NATS takes nothing more.
    pub(super) async fn offer(self: Arc<Self>, client: Client, tier: Tier, mut asked: Subscriber) -> Sent {
        let mut pending = JoinSet::new();
        let mut oldest = VecDeque::<AbortHandle>::new();
        while let Some(message) = asked.next().await {
            while pending.try_join_next().is_some() {}
            oldest.retain(|link| !link.is_finished());
            let Some(link) = self.asked(&client, tier, message).await? else { continue };
            if oldest.len() >= MOST_PENDING {
                oldest.pop_front().inspect(AbortHandle::abort);
            }
            oldest.push_back(pending.spawn(self.clone().prove(link)));
        }
        Ok(())
    }

    /// Replies to a request to open a link. Returns the link, if it is not refused. Error: NATS
    /// takes nothing more.
    async fn asked(
        &self,
        client: &Client,
        tier: Tier,
        message: Message,
    ) -> std::result::Result<Option<Pending>, async_nats::Error> {
        let Some(reply) = message.reply.filter(|_| message.payload.len() <= OPEN_BYTES) else { return Ok(None) };
        // NATS does not check that the reply subject is the sender's. But it gives what is sent there
        // to that member alone, so that member alone learns the link's id.
        let Some(member) = subject::member_of(&reply).map(Arc::<str>::from) else { return Ok(None) };
        let Some(connection) = self.joined.borrow().clone() else { return Ok(None) };
        let why = match serde_json::from_slice::<Open>(&message.payload) {
            Ok(open) if open.protocol != PROTOCOL => {
                format!("protocol {}: expected {PROTOCOL}; use the same version of muxtap", open.protocol)
            }
            Ok(open) if subject::member_of(&open.inbox) != Some(&*member) => {
                "inbox: not the one of the member that asks".into()
            }
            Err(error) => format!("invalid request: {error}"),
            Ok(_) if self.is_full(&member, tier) => "too many members have links to this host".into(),
            Ok(open) => {
                let id = random()?;
                let from = client.subscribe(subject::link(&self.me.name, tier, &id)).await?;
                let can = vec![KEYS.to_owned()];
                let answer = OpenAnswer { id, version: self.me.version.clone(), can, error: None };
                client.publish(reply, serde_json::to_vec(&answer)?.into()).await?;
                return Ok(Some(Pending { connection, tier, member, inbox: open.inbox, from }));
            }
        };
        let answer = OpenAnswer { error: Some(why), ..OpenAnswer::default() };
        client.publish(reply, serde_json::to_vec(&answer)?.into()).await?;
        Ok(None)
    }

    /// Serves a link once its first frame has come: only the member that received the id can send it.
    async fn prove(self: Arc<Self>, link: Pending) {
        let Pending { connection, tier, member, inbox, mut from } = link;
        let first = tokio::select! {
            first = tokio::time::timeout(OPEN_LIMIT, from.next()) => first,
            () = connection.lost.cancelled() => return,
        };
        let Ok(Some(first)) = first else { return };
        let Some(lost) = self.keep(&member, tier, &connection) else {
            let cut = Outgoing::default().cut(&mut Incoming::default());
            let _ = connection.client.publish(inbox, cut).await;
            return;
        };
        let ends = Ends { client: connection.client, to: inbox, first: Some(first.payload), from };
        (self.on_link)(Offered { pipe: Pipe::open(ends, lost, &self.carried), tier, member });
    }

    /// Returns whether no further member can have links to this host.
    fn is_full(&self, member: &Arc<str>, tier: Tier) -> bool {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        forget_ended(&mut links);
        links.len() >= MOST_CALLERS && !links.contains_key(&(member.clone(), tier))
    }

    /// Counts a new link. Returns the token that ends it. `None`: there are too many.
    fn keep(&self, member: &Arc<str>, tier: Tier, connection: &Connection) -> Option<CancellationToken> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        forget_ended(&mut links);
        let key = (member.clone(), tier);
        if links.len() >= MOST_CALLERS && !links.contains_key(&key) {
            return None;
        }
        let links = links.entry(key).or_default();
        if links.len() >= MOST_LINKS {
            // Its member has lost it: a member has one link for each tier.
            links.remove(0).cancel();
        }
        let link = connection.lost.child_token();
        links.push(link.clone());
        Some(link)
    }

    /// Opens a link to a host.
    pub(super) async fn open(&self, connection: &Connection, host: &str, tier: Tier) -> Result<Opened> {
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
        let payload: Bytes = serde_json::to_vec(&open).map_err(|error| Error::internal(error.to_string()))?.into();
        let mut pauses = NOT_YET_MS.into_iter();
        tokio::pin!(is_refused);
        let message = loop {
            let request = async_nats::Request::new().payload(payload.clone()).timeout(Some(OPEN_LIMIT));
            let answered = tokio::select! {
                answered = client.send_request(subject.clone(), request) => answered,
                () = &mut is_refused => {
                    let message = format!(
                        "host {host}: NATS does not permit `{tier}` on it to the member {}; an administrator of the \
                         fleet can grant it",
                        self.me.name
                    );
                    return Err(Error::new(ErrorCode::Unauthorized, message));
                }
            };
            match answered {
                Ok(message) => break message,
                Err(error) if error.kind() == RequestErrorKind::NoResponders => {
                    not_yet(client, host, tier).await?;
                    let Some(pause) = pauses.next() else {
                        let message = format!("host {host}: it has just joined the fleet; try again");
                        return Err(Error::unavailable(message));
                    };
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
                Err(error) if error.kind() == RequestErrorKind::TimedOut => {
                    let message = format!("host {host}: no reply over NATS within {} s", OPEN_LIMIT.as_secs());
                    return Err(Error::unavailable(message));
                }
                Err(error) => return Err(self.unusable(&error)),
            }
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
        let ends = Ends { client: client.clone(), to: subject::link(host, tier, &answer.id), first: None, from };
        Ok(Opened {
            pipe: Pipe::open(ends, connection.lost.child_token(), &self.carried),
            version: muxtap_base::plain::name(&answer.version).chars().take(32).collect(),
            takes_keys: answer.can.iter().any(|can| can == KEYS),
        })
    }
}

/// Checks that a host that does not reply to requests of a tier offers it, and so will. Error: it will not.
async fn not_yet(client: &Client, host: &str, tier: Tier) -> Result<()> {
    let Ok(member) = service::ask(client, host).await else {
        let message = format!("host {host}: its daemon is not connected to the fleet, or offers nothing");
        return Err(Error::unavailable(message));
    };
    if member.offer.contains(&tier) {
        return Ok(());
    }
    let offered = member.offer.iter().map(|tier| tier.as_str()).collect::<Vec<_>>().join(", ");
    let offered = if offered.is_empty() { "nothing".to_owned() } else { format!("only: {offered}") };
    let message = format!("host {host}: it does not offer `{tier}` to the fleet, {offered}");
    Err(Error::new(ErrorCode::ReadOnly, message))
}

fn forget_ended(links: &mut Links) {
    links.retain(|_, links| {
        links.retain(|link| !link.is_cancelled());
        !links.is_empty()
    });
}
