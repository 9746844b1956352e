//! The subjects of a fleet: the one place where they are written.
//!
//! Permissions of NATS are permissions on these subjects, so `admin` writes them from here too.

use muxtap_api::Tier;

use super::settings::is_name;

/// The first tokens of every subject of muxtap.
pub const PREFIX: &str = "muxtap.v1";

/// Returns a tier's token in subjects: its name.
pub fn tier_token(tier: Tier) -> &'static str {
    tier.as_str()
}

/// Returns the subject at which a host opens links for requests of a tier.
pub fn open(host: &str, tier: Tier) -> String {
    format!("{PREFIX}.{host}.{}.open", tier_token(tier))
}

/// Returns the subject at which a host receives the frames of one link.
pub fn link(host: &str, tier: Tier, id: &str) -> String {
    format!("{PREFIX}.{host}.{}.link.{id}", tier_token(tier))
}

/// Returns the subjects of a host's tier: what a caller of that tier may publish to, and what the
/// host's daemon may subscribe to.
pub fn of_tier(host: &str, tier: Tier) -> String {
    format!("{PREFIX}.{host}.{}.>", tier_token(tier))
}

/// Returns the prefix of a member's inboxes. Only that member may subscribe below it, so a reply
/// below it reaches that member alone.
pub fn inbox(member: &str) -> String {
    format!("_INBOX.{member}")
}

/// The subjects of the copies of all audit logs.
pub const AUDITS: &str = "muxtap.audit.*.*";

/// Returns the subject of the copy of a member's audit log. `token`: what no other member knows, else
/// JetStream's reply to a message of another one could be sent there; `*` in a filter.
pub fn audit(member: &str, token: &str) -> String {
    format!("muxtap.audit.{member}.{token}")
}

/// Returns the member whose copy has this subject.
pub fn member_of_audit(subject: &str) -> Option<&str> {
    subject.strip_prefix("muxtap.audit.")?.split('.').next()
}

/// Returns the token of the copy of a member with this seed: a part of a signature, which only the seed's
/// holder can make, and always makes alike.
pub fn audit_token(seed: &str) -> Option<String> {
    let signed = nkeys::KeyPair::from_seed(seed).ok()?.sign(b"muxtap: the copy of an audit log").ok()?;
    let half: &[u8] = signed.get(..16)?;
    Some(format!("{:032x}", u128::from_be_bytes(half.try_into().ok()?)))
}

/// The name of the NATS service whose instances are the members.
pub const SERVICE: &str = "muxtap";

/// Returns the subject of a question of NATS' service protocol (`PING`, `INFO` or `STATS`) to a
/// member, whose name is its instance's id; `None`: to all members.
pub fn service(verb: &str, member: Option<&str>) -> String {
    match member {
        Some(member) => format!("$SRV.{verb}.{SERVICE}.{member}"),
        None => format!("$SRV.{verb}.{SERVICE}"),
    }
}

/// Returns the member that receives what is published to a subject; `None`: the subject is not an
/// inbox of a member.
pub fn member_of(inbox: &str) -> Option<&str> {
    let (member, _) = below_inbox(inbox)?.split_once('.')?;
    is_name(member).then_some(member)
}

/// Returns whether a subject is an inbox, of a member or of another client.
pub fn is_inbox(subject: &str) -> bool {
    below_inbox(subject).is_some()
}

fn below_inbox(subject: &str) -> Option<&str> {
    let rest = subject.strip_prefix("_INBOX.")?;
    let is_plain = rest.split('.').all(|token| {
        !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'*' | b'>'))
    });
    is_plain.then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiers_subjects_contain_its_links_and_no_others() {
        assert_eq!(open("web-1", Tier::Read), "muxtap.v1.web-1.read.open");
        assert_eq!(link("web-1", Tier::Kill, "k3"), "muxtap.v1.web-1.kill.link.k3");
        assert_eq!(of_tier("*", Tier::Input), "muxtap.v1.*.input.>");
        assert_eq!(inbox("amy"), "_INBOX.amy");
        assert_eq!(service("INFO", None), "$SRV.INFO.muxtap");
        assert_eq!(service("PING", Some("web-1")), "$SRV.PING.muxtap.web-1");
    }

    #[test]
    fn an_inbox_names_its_member() {
        assert_eq!(member_of("_INBOX.amy.x7.1"), Some("amy"));
        for other in
            ["_INBOX.amy", "_INBOX.amy.", "_INBOX.amy.>", "_INBOX.*.x", "_INBOX..x", "muxtap.v1.amy.x", "_INBOX.a.b..c"]
        {
            assert_eq!(member_of(other), None, "{other}");
        }
        assert!(is_inbox("_INBOX.x7") && is_inbox("_INBOX.amy.x7"));
        assert!(
            ["_INBOX", "_INBOX.", "_INBOX.>", "_INBOX.a..b", "muxtap.v1.x"].into_iter().all(|other| !is_inbox(other))
        );
    }
}
