//! Presence: each member is an instance of the NATS service `muxtap`, under its own name. So it can
//! be asked for by name, all can be listed, and NATS' own tools see them.

use std::{collections::HashSet, time::Duration};

use async_nats::{Client, Message, RequestErrorKind};
use futures_util::{
    StreamExt as _,
    stream::{BoxStream, SelectAll},
};
use muxtap_api::Tier;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::subject::{self, SERVICE};

/// How long a question to one member may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// How long a list waits for the next member, once one has replied.
const NEXT_LIMIT: Duration = Duration::from_millis(250);
/// The longest time for a list.
const LIST_LIMIT: Duration = Duration::from_secs(2);
/// The most members in a list.
const MOST_MEMBERS: usize = 4096;
/// The verb of muxtap's own with which a member announces itself.
const HELLO: &str = "HELLO";
/// The longest text of another member that is used, in bytes.
const TEXT_BYTES: usize = 256;

/// A member's published description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// The version of its muxtap.
    pub version: String,
    /// Its labels.
    pub labels: Vec<String>,
    /// The tiers that it offers.
    pub offer: Vec<Tier>,
    /// The name of its machine.
    pub machine: String,
    /// The number of its process, which no other has.
    pub(crate) instance: String,
    /// When it joined, in milliseconds since 1970.
    pub(crate) since_ms: u64,
}

/// The part of a reply that is used.
#[derive(Deserialize, Serialize)]
struct Info {
    name: String,
    id: String,
    version: String,
    metadata: Metadata,
}

#[derive(Deserialize, Serialize)]
struct Metadata {
    #[serde(default)]
    labels: String,
    #[serde(default)]
    offer: String,
    #[serde(default)]
    machine: String,
    #[serde(default)]
    instance: String,
    #[serde(default)]
    since_ms: String,
}

/// The reason why a member cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// No daemon of this name is connected.
    Absent,
    /// No reply came in time, or the question could not be sent.
    Silent,
}

impl Member {
    /// Returns the reply to a question of the service protocol.
    fn answer(&self, verb: &str) -> Value {
        let metadata = Metadata {
            labels: self.labels.join(" "),
            offer: self.offer.iter().map(|tier| tier.as_str()).collect::<Vec<_>>().join(" "),
            machine: self.machine.clone(),
            instance: self.instance.clone(),
            since_ms: self.since_ms.to_string(),
        };
        let mut answer = json!({
            "type": format!("io.nats.micro.v1.{}_response", verb.to_ascii_lowercase()),
            "name": SERVICE, "id": self.name, "version": self.version, "metadata": metadata,
        });
        if let Some(fields) = answer.as_object_mut() {
            match verb {
                "INFO" => {
                    let endpoint = |tier: &Tier| {
                        let subject = subject::open(&self.name, *tier);
                        json!({"name": tier.as_str(), "subject": subject, "queue_group": "", "metadata": {}})
                    };
                    fields.insert("description".into(), "the terminals of a host".into());
                    fields.insert("endpoints".into(), self.offer.iter().map(endpoint).collect());
                }
                "STATS" => {
                    fields.insert("endpoints".into(), json!([]));
                }
                _ => {}
            }
        }
        answer
    }

    /// Reads a reply. `None`: it is not one of a member.
    fn read(message: &Message) -> Option<Self> {
        let info: Info = serde_json::from_slice(&message.payload).ok()?;
        if info.name != SERVICE || !super::settings::is_name(&info.id) {
            return None;
        }
        let plain = |text: &str| muxtap_base::plain::name(text).chars().take(TEXT_BYTES).collect::<String>();
        let offer: HashSet<_> = info.metadata.offer.split(' ').collect();
        Some(Self {
            name: info.id,
            version: plain(&info.version),
            labels: info.metadata.labels.split_whitespace().take(32).map(plain).collect(),
            offer: Tier::ALL.into_iter().filter(|tier| offer.contains(tier.as_str())).collect(),
            machine: plain(&info.metadata.machine),
            instance: plain(&info.metadata.instance),
            since_ms: info.metadata.since_ms.parse().unwrap_or(u64::MAX),
        })
    }

    /// Returns whether this daemon keeps its name when another one has the same.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        (self.since_ms, &self.instance) < (other.since_ms, &other.instance)
    }
}

/// The questions of the service protocol to a member, and what members that join say.
pub(crate) struct Questions {
    client: Client,
    member: Member,
    asked: SelectAll<BoxStream<'static, (&'static str, Message)>>,
}

impl Questions {
    /// Subscribes to them; a member that offers nothing, to announcements only: questions are for hosts.
    /// NATS knows it when this returns.
    pub(crate) async fn subscribe(client: &Client, member: &Member) -> Result<Self, async_nats::Error> {
        let mut asked = SelectAll::new();
        let verbs: &[_] = if member.offer.is_empty() { &[] } else { &["PING", "INFO", "STATS"] };
        let questions = verbs.iter().copied().flat_map(|verb| {
            let name = Some(member.name.as_str());
            [format!("$SRV.{verb}"), subject::service(verb, None), subject::service(verb, name)].map(|it| (verb, it))
        });
        for (verb, subject) in questions.chain([(HELLO, subject::service(HELLO, Some("*")))]) {
            asked.push(client.subscribe(subject).await?.map(move |message| (verb, message)).boxed());
        }
        client.flush().await?;
        Ok(Self { client: client.clone(), member: member.clone(), asked })
    }

    /// Replies, until the connection is closed. `met`: gets each member that joins.
    pub(crate) async fn serve(mut self, met: impl Fn(Member) + Send) -> Result<(), async_nats::Error> {
        while let Some((verb, message)) = self.asked.next().await {
            match message.reply {
                _ if verb == HELLO => {
                    // NATS permits each member its own subject only.
                    let own = |member: &Member| message.subject.as_str() == subject::service(HELLO, Some(&member.name));
                    Member::read(&message).filter(own).into_iter().for_each(&met);
                }
                // No other subject: the sender must not choose where this host publishes. The inboxes
                // of NATS' own tools name no member.
                Some(reply) if subject::is_inbox(&reply) => {
                    self.client.publish(reply, self.member.answer(verb).to_string().into()).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Tells all members that this one has joined: so an idle fleet needs no further message.
pub(crate) async fn announce(client: &Client, member: &Member) -> Result<(), async_nats::Error> {
    let hello = member.answer("INFO").to_string();
    client.publish(subject::service(HELLO, Some(&member.name)), hello.into()).await?;
    Ok(())
}

/// Asks a member about itself.
pub(crate) async fn ask(client: &Client, name: &str) -> Result<Member, Unanswered> {
    let request = async_nats::Request::new().payload("".into()).timeout(Some(ANSWER_LIMIT));
    match client.send_request(subject::service("INFO", Some(name)), request).await {
        Ok(message) => Member::read(&message).filter(|member| member.name == name).ok_or(Unanswered::Silent),
        Err(error) if error.kind() == RequestErrorKind::NoResponders => Err(Unanswered::Absent),
        Err(_) => Err(Unanswered::Silent),
    }
}

/// Lists the members that reply: all, or those with a name.
pub(crate) async fn list(client: &Client, name: Option<&str>) -> Result<Vec<Member>, async_nats::Error> {
    let inbox = client.new_inbox();
    let mut replies = client.subscribe(inbox.clone()).await?;
    client.publish_with_reply(subject::service("INFO", name), inbox, "".into()).await?;
    let mut members = Vec::new();
    let collect = async {
        let mut next = LIST_LIMIT;
        while let Ok(Some(reply)) = tokio::time::timeout(next, replies.next()).await {
            if reply.status == Some(async_nats::StatusCode::NO_RESPONDERS) || members.len() >= MOST_MEMBERS {
                break;
            }
            members.extend(Member::read(&reply));
            next = NEXT_LIMIT;
        }
    };
    let _ = tokio::time::timeout(LIST_LIMIT, collect).await;
    members.sort_by(|a: &Member, b| a.name.cmp(&b.name));
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_read_as_it_is_written() {
        let member = Member {
            name: "web-1".into(),
            version: "0.1.0".into(),
            labels: vec!["role=web".into(), "eu".into()],
            offer: vec![Tier::Read, Tier::Input],
            machine: "box".into(),
            instance: "i1".into(),
            since_ms: 7,
        };
        let message = |payload: String| Message {
            subject: "x".into(),
            reply: None,
            length: 0,
            payload: payload.into(),
            headers: None,
            status: None,
            description: None,
        };
        for verb in ["PING", "INFO", "STATS"] {
            assert_eq!(Member::read(&message(member.answer(verb).to_string())).as_ref(), Some(&member), "{verb}");
        }
        assert!(Member::read(&message("{}".into())).is_none());
        let mut repeated = member.answer("INFO");
        repeated["metadata"]["offer"] = "input read input all".into();
        repeated["metadata"]["instance"] = "\u{1b}".repeat(500).into();
        let read = Member::read(&message(repeated.to_string())).unwrap();
        assert_eq!(read.offer, member.offer);
        assert!(read.instance.len() <= TEXT_BYTES && !read.instance.contains('\u{1b}'));
        let mut foreign = member.answer("INFO");
        foreign["id"] = "a.b".into();
        assert!(Member::read(&message(foreign.to_string())).is_none());
        let later = Member { since_ms: 8, ..member.clone() };
        assert!(member.is_before(&later) && !later.is_before(&member));
    }
}
