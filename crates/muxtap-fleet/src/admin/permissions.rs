//! What NATS lets each member publish and subscribe to.
//!
//! NATS checks the subject of what a client publishes, but not the reply subject in it. The server
//! and other members publish to reply subjects with permissions of their own. So each permission
//! here is also a way to make the server or another member publish:
//!
//! - A request to JetStream makes the server publish its response anywhere in the account, and a
//!   consumer makes it publish stored messages. So only the admin may send one.
//! - The copy of an audit log goes to a stream, whose response to the message is published to its reply
//!   subject: a member can send `{"stream":…,"seq":N}` anywhere. To JetStream this is a request to purge a
//!   stream, or to delete a message of it; so the stream permits neither, and the account has no others. In
//!   the copy of another member it would be a line; so only that member and the admin know the subject.
//! - A question of the service protocol makes each host publish its service information, within what
//!   hosts may publish to: inboxes and the announcement of their own name.

use std::collections::BTreeSet;

use muxtap_api::Tier;

use super::member::Member;
use crate::subject;

/// The stream with which `doctor` checks JetStream and the server's clock.
pub(super) const STREAM: &str = "muxtap_doctor";
/// The stream's subject.
pub(super) const MARK: &str = "muxtap.doctor.mark";
/// The stream with the copies of audit logs.
pub(super) const AUDIT_STREAM: &str = "muxtap_audit";
/// The subject of the question for the service information of all hosts.
pub(super) const ALL_HOSTS: &str = "$SRV.INFO.muxtap";

/// The subjects of one member: what it may publish and subscribe to. Everything else is denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// Subjects that the member may publish to.
    pub publish: Vec<String>,
    /// Subjects that the member may subscribe to.
    pub subscribe: Vec<String>,
}

/// Returns the permissions of a member that may use these hosts (`*`: all). `copies`: whether audit logs
/// are copied, which the admin reads.
pub(super) fn of(member: &Member, hosts: &BTreeSet<&str>, copies: bool) -> Permissions {
    let mut publish = vec![ALL_HOSTS.to_owned(), format!("{ALL_HOSTS}.*")];
    let mut subscribe = vec![format!("{}.>", subject::inbox(&member.name)), "$SRV.HELLO.muxtap.*".to_owned()];
    if member.is_admin() {
        publish.extend(["$JS.API.INFO".to_owned(), MARK.to_owned()]);
        for stream in [STREAM].into_iter().chain(copies.then_some(AUDIT_STREAM)) {
            publish.extend(["INFO", "CREATE", "MSG.GET"].map(|what| format!("$JS.API.STREAM.{what}.{stream}")));
        }
    }
    if let Some(token) = &member.audit {
        publish.push(subject::audit(&member.name, token));
    }
    if member.is_host() {
        publish.extend(["_INBOX.>".to_owned(), format!("$SRV.HELLO.muxtap.{}", member.name)]);
        subscribe.extend(member.offer.iter().map(|tier| subject::of_tier(&member.name, *tier)));
        for verb in ["PING", "INFO", "STATS"] {
            let (any, all) = (format!("$SRV.{verb}"), format!("$SRV.{verb}.muxtap"));
            subscribe.extend([format!("{all}.{}", member.name), all, any]);
        }
    }
    let tiers = Tier::ALL.into_iter().filter(|tier| member.uses.contains(tier));
    publish.extend(tiers.flat_map(|tier| hosts.iter().map(move |host| subject::of_tier(host, tier))));
    Permissions { publish, subscribe }
}
