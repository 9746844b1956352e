//! The admin's connection to the server: which hosts are connected.

use std::{collections::BTreeMap, time::Duration};

use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, StatusCode};
use futures_util::StreamExt as _;
use muxtap_api::{Error, ErrorCode, Result, Tier};
use muxtap_base::plain;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};

use super::{
    folder::Folder,
    member::{ADMIN, Member, Members},
    permissions::ALL_HOSTS,
};
use crate::subject;

/// How long a connection or a response may take.
pub(super) const LIMIT: Duration = Duration::from_secs(5);
/// How long a list waits for the next host, if one is missing.
const NEXT: Duration = Duration::from_secs(1);
/// The most replies of hosts that are read.
const REPLIES: usize = 10_000;
/// The longest text of a host that is shown, in characters.
const TEXT: usize = 64;

/// A connection, and what the server reports about it.
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) events: mpsc::UnboundedReceiver<Event>,
}

/// Connects as a member. Nothing is tried again.
pub(super) async fn connect(
    folder: &Folder,
    url: &str,
    name: &str,
    seed: String,
) -> std::result::Result<Connection, ConnectError> {
    let (sender, events) = mpsc::unbounded_channel();
    let options = ConnectOptions::new()
        .nkey(seed)
        .name(format!("muxtap fleet, {name}"))
        .custom_inbox_prefix(subject::inbox(name))
        .add_root_certificates(folder.authority())
        .require_tls(true)
        .connection_timeout(LIMIT)
        .request_timeout(Some(LIMIT))
        .max_reconnects(1)
        .event_callback(move |event| {
            let _ = sender.send(event);
            async {}
        });
    Ok(Connection { client: options.connect(url).await?, events })
}

/// Returns why a connection failed, and what to do.
pub(super) fn explain(error: &ConnectError, name: &str) -> (String, &'static str) {
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => (
            format!("the server rejects the credentials of member `{name}`"),
            "let the server read its configuration again: nats-server --signal reload=PID",
        ),
        // A rejected certificate is an error of the connection's first read.
        kind if kind == ConnectErrorKind::Tls || error.to_string().contains("certificate") => (
            format!("TLS failed: {error}"),
            "check that the server uses tls/server.pem of this folder, and that the certificate has this name",
        ),
        ConnectErrorKind::Dns => (format!("unknown name: {error}"), "give the name an address (DNS, /etc/hosts)"),
        _ => (
            format!("the server cannot be reached: {error}"),
            "start it with nats-server -c nats.conf of this folder, and check the firewall",
        ),
    }
}

/// The state of a fleet.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The URL for members.
    pub url: String,
    /// The version of the server.
    pub server_version: String,
    /// The members, in the order of their names.
    pub members: Vec<MemberStatus>,
}

/// A member, and the daemons that are connected under its name.
#[derive(Clone, Debug, Serialize)]
pub struct MemberStatus {
    /// The member.
    #[serde(flatten)]
    pub member: Member,
    /// Whether its daemon is connected; `None`: only hosts are asked.
    pub connected: Option<bool>,
    /// The connected daemons: one, unless the name is used twice.
    pub instances: Vec<Instance>,
}

/// A connected daemon, as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Instance {
    /// The version of its muxtap.
    pub version: String,
    /// The name of its machine, if it has said it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The tiers that it offers.
    pub offer: Vec<Tier>,
}

/// The part of a reply in the service protocol that is used.
#[derive(Deserialize)]
struct Info {
    id: String,
    version: String,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
    #[serde(default)]
    metadata: Option<BTreeMap<String, Value>>,
}

#[derive(Deserialize)]
struct Endpoint {
    subject: String,
}

/// Returns the members, which of their daemons are connected, and what those offer.
pub async fn status(folder: &Folder) -> Result<Status> {
    let (description, members) = (folder.description()?, folder.members()?);
    let url = description.local_url();
    let connected = connect(folder, &url, ADMIN, folder.admin_seed()?).await;
    let connection = connected.map_err(|error| {
        let (why, fix) = explain(&error, ADMIN);
        Error::unavailable(format!("{url}: {why}; {fix}"))
    })?;
    let client = &connection.client;
    let mut instances = instances(client, &members).await?;
    let members = members.iter().map(|member| {
        let instances = instances.remove(&member.name).unwrap_or_default();
        let connected = member.is_host().then_some(!instances.is_empty());
        MemberStatus { member: member.clone(), connected, instances }
    });
    let members = members.collect();
    Ok(Status { url: description.url(), server_version: client.server_info().version, members })
}

/// Asks all hosts for their service information. Returns those of known hosts, by name.
async fn instances(client: &Client, members: &Members) -> Result<BTreeMap<String, Vec<Instance>>> {
    let inbox = client.new_inbox();
    let mut replies = client.subscribe(inbox.clone()).await.map_err(|error| unusable(&error))?;
    client.publish_with_reply(ALL_HOSTS, inbox, "".into()).await.map_err(|error| unusable(&error))?;
    let mut found: BTreeMap<String, Vec<Instance>> = BTreeMap::new();
    let (end, hosts) = (Instant::now() + LIMIT, members.iter().filter(|member| member.is_host()).count());
    for _ in 0..REPLIES {
        if found.len() == hosts {
            break;
        }
        let Ok(Ok(Some(reply))) = timeout_at(end, timeout(NEXT, replies.next())).await else { break };
        if reply.status == Some(StatusCode::NO_RESPONDERS) {
            break;
        }
        let Some((name, instance)) = instance(&reply.payload) else { continue };
        if members.get(&name).is_some_and(Member::is_host) {
            found.entry(name).or_default().push(instance);
        }
    }
    Ok(found)
}

/// Reads a host's reply: its name and what it is.
fn instance(reply: &[u8]) -> Option<(String, Instance)> {
    let info: Info = serde_json::from_slice(reply).ok()?;
    let offers = |tier: &Tier| info.endpoints.iter().any(|endpoint| endpoint.subject == subject::open(&info.id, *tier));
    let offer = Tier::ALL.into_iter().filter(offers).collect();
    let short = |text: &str| plain::name(text).chars().take(TEXT).collect::<String>();
    let machine = info.metadata.as_ref().and_then(|metadata| metadata.get("machine")?.as_str().map(short));
    Some((info.id.clone(), Instance { version: short(&info.version), machine, offer }))
}

fn unusable(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorCode::TmuxUnavailable, format!("the server gives no usable response: {error}"))
}
