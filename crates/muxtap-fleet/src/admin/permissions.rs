//! What NATS lets each member publish and subscribe to.
//!
//! NATS checks the subject of what a client publishes, but not the reply subject in it. The server
//! and other members publish to reply subjects with permissions of their own. So each permission
//! here is also a way to make somebody else publish:
//!
//! - A request to JetStream makes the server publish its response anywhere in the account, and a
//!   consumer makes it publish messages. So no member may create a consumer or read by *direct get*:
//!   both publish bytes that a host chose. The responses of the allowed requests are JSON of
//!   JetStream's, which never is a request to a host, and have no reply subject.
//! - A question of the service protocol makes each host publish its service information, within what
//!   hosts may publish to: inboxes and their own entry in the bucket.

use std::collections::BTreeSet;

use muxtap_api::Tier;

use super::member::Member;
use crate::subject;

/// The key-value bucket that has what each host was last.
pub const BUCKET: &str = "muxtap_hosts";
/// The stream of the bucket, by the rule of all clients of NATS.
pub const STREAM: &str = "KV_muxtap_hosts";
/// The subject of the question for the service information of all hosts.
pub(super) const ALL_HOSTS: &str = "$SRV.INFO.muxtap";

/// The subjects of one member: what it may publish and subscribe to. Everything else is denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// What it may publish to.
    pub publish: Vec<String>,
    /// What it may subscribe to.
    pub subscribe: Vec<String>,
}

/// Returns the subject of a host's entry in the bucket.
pub fn entry(host: &str) -> String {
    format!("$KV.{BUCKET}.{host}")
}

/// Returns the permissions of a member that may use these hosts (`*`: all).
pub(super) fn of(member: &Member, hosts: &BTreeSet<&str>) -> Permissions {
    let api = |what: &str| format!("$JS.API.STREAM.{what}.{STREAM}");
    // `STREAM.INFO` also lists the keys; `MSG.GET` reads an entry. Both respond in JSON.
    let mut publish = vec![ALL_HOSTS.to_owned(), format!("{ALL_HOSTS}.*"), api("INFO"), api("MSG.GET")];
    let mut subscribe = vec![format!("{}.>", subject::inbox(&member.name))];
    if member.is_admin() {
        // `doctor` creates the bucket, and reads the server's clock from an entry of its own.
        publish.extend(["$JS.API.INFO".to_owned(), api("CREATE"), entry(&member.name)]);
    }
    if member.is_host() {
        publish.extend(["_INBOX.>".to_owned(), entry(&member.name)]);
        subscribe.push(subject::of_host(&member.name));
        for verb in ["PING", "INFO", "STATS"] {
            let (any, all) = (format!("$SRV.{verb}"), format!("$SRV.{verb}.muxtap"));
            subscribe.extend([format!("{all}.{}", member.name), all, any]);
        }
    }
    let tiers = Tier::ALL.into_iter().filter(|tier| member.uses.contains(tier));
    publish.extend(tiers.flat_map(|tier| hosts.iter().map(move |host| subject::of_tier(host, tier))));
    Permissions { publish, subscribe }
}
