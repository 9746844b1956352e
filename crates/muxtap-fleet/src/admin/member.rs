//! The members of a fleet, and the file that gives them to NATS.
//!
//! `members.conf` is the only record of the members: comment lines have them as JSON, and the rest
//! follows from these lines. A file whose rest differs was edited by hand and is not rewritten.

use std::{collections::BTreeSet, fmt::Write as _};

use muxtap_api::{Error, ErrorCode, Result, Tier};
use muxtap_base::glob::Glob;
use serde::{Deserialize, Serialize};

use super::permissions::{self, Permissions};
use crate::settings::check_name;

/// The member that `init` creates, with which `status` and `doctor` connect. It may use no host.
pub const ADMIN: &str = "admin";
/// The most members of a fleet.
pub const MEMBERS: usize = 10_000;
/// The most patterns for a member's hosts.
pub const PATTERNS: usize = 64;

const HEADER: &str = "# The members of the fleet, written as a whole by `muxtap fleet add` and `muxtap fleet revoke`.\n\
                      # Both refuse a file that was edited. `nats-server --signal reload` makes the server read it again.\n";
const RECORD: &str = "# member ";

/// A member: its key, what its daemon offers, and what it may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its name, one token of a subject.
    pub name: String,
    /// Its public nkey.
    pub key: String,
    /// The tiers that its daemon offers. Empty: the member is not a host.
    pub offer: Vec<Tier>,
    /// The tiers that it may use on hosts.
    #[serde(rename = "use")]
    pub uses: Vec<Tier>,
    /// The hosts that it may use: names, or patterns with `*`.
    pub hosts: Vec<String>,
    /// The token of the copy of its audit log (`subject::audit`). `None`: its daemon may not copy it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<String>,
}

impl Member {
    /// Returns the admin with this key.
    pub fn admin(key: String) -> Self {
        Self { name: ADMIN.to_owned(), key, offer: Vec::new(), uses: Vec::new(), hosts: Vec::new(), audit: None }
    }

    /// Returns whether it is the admin.
    pub fn is_admin(&self) -> bool {
        self.name == ADMIN
    }

    /// Returns whether its daemon offers something.
    pub fn is_host(&self) -> bool {
        !self.offer.is_empty()
    }

    /// Returns whether it may use this host at all.
    pub fn may_use(&self, host: &str) -> bool {
        self.hosts.iter().any(|pattern| Glob::new(pattern).matches(host))
    }

    fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        check_key(&self.key)?;
        let (offers, uses) = (!self.offer.is_empty(), !self.uses.is_empty());
        if self.is_admin() && (offers || uses || self.audit.is_some()) {
            return Err(Error::invalid(format!(
                "invalid permissions of member `{ADMIN}`: it offers, uses and copies nothing; choose another name"
            )));
        }
        if !self.is_admin() && !offers && !uses && self.audit.is_none() {
            return Err(Error::invalid(format!(
                "no permissions for member `{}`: expected tiers that it offers, tiers that it uses, or a copy of its \
                 audit log",
                self.name
            )));
        }
        if self.hosts.is_empty() == uses {
            return Err(Error::invalid(format!(
                "invalid hosts of member `{}`: expected patterns for a member that uses tiers, and none otherwise",
                self.name
            )));
        }
        if self
            .audit
            .as_ref()
            .is_some_and(|token| token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_hexdigit()))
        {
            return Err(Error::invalid(format!(
                "invalid token of member `{}`: expected hexadecimal digits",
                self.name
            )));
        }
        if self.hosts.len() > PATTERNS {
            return Err(Error::invalid(format!("too many hosts: {}; expected at most {PATTERNS}", self.hosts.len())));
        }
        self.hosts.iter().try_for_each(|pattern| check_pattern(pattern))
    }
}

fn check_pattern(pattern: &str) -> Result<()> {
    check_name(&pattern.replace('*', "_")).map_err(|_| {
        Error::invalid(format!("invalid pattern for hosts: {pattern:?}; expected a name, `*` for any characters"))
    })
}

fn check_key(key: &str) -> Result<()> {
    let is_user = nkeys::from_public_key(key).is_ok() && key.starts_with('U');
    if is_user { Ok(()) } else { Err(Error::invalid(format!("invalid public key: {key:?}; expected a user's nkey"))) }
}

/// All members of a fleet, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members(Vec<Member>);

impl Members {
    /// Returns the members.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.0.iter()
    }

    /// Returns the member of this name.
    pub fn get(&self, name: &str) -> Option<&Member> {
        self.iter().find(|member| member.name == name)
    }

    /// Adds a member. Error: an invalid member, or one whose name or key exists.
    pub fn add(&mut self, mut member: Member) -> Result<()> {
        for tiers in [&mut member.offer, &mut member.uses] {
            *tiers = Tier::ALL.into_iter().filter(|tier| tiers.contains(tier)).collect();
        }
        member.check()?;
        if self.0.len() >= MEMBERS {
            return Err(Error::new(
                ErrorCode::ResourceLimit,
                format!("too many members: {MEMBERS} exist; revoke one first"),
            ));
        }
        // Two names that differ only in case would share files on some disks.
        if let Some(found) = self.iter().find(|found| found.name.eq_ignore_ascii_case(&member.name)) {
            return Err(conflict(format!("member `{}` exists; revoke it first, or choose another name", found.name)));
        }
        if self.iter().any(|found| found.key == member.key) {
            return Err(conflict(format!("the key {} is that of another member", member.key)));
        }
        let at = self.0.partition_point(|found| found.name < member.name);
        self.0.insert(at, member);
        Ok(())
    }

    /// Removes a member and returns it.
    pub fn revoke(&mut self, name: &str) -> Result<Member> {
        let Some(at) = self.0.iter().position(|member| member.name == name) else {
            check_name(name)?;
            let known: Vec<_> = self.iter().map(|member| member.name.as_str()).take(20).collect();
            return Err(Error::not_found(format!("unknown member `{name}`; members: {}", known.join(", "))));
        };
        Ok(self.0.remove(at))
    }

    /// Returns what NATS lets a member publish and subscribe to.
    pub fn permissions(&self, member: &Member) -> Permissions {
        let hosts: BTreeSet<&str> = if member.hosts.iter().any(|pattern| pattern == "*") {
            ["*"].into()
        } else {
            let hosts = self.iter().filter(|host| host.is_host() && member.may_use(&host.name));
            hosts.map(|host| host.name.as_str()).collect()
        };
        permissions::of(member, &hosts, self.iter().any(|member| member.audit.is_some()))
    }

    /// Renders `members.conf`.
    pub fn render(&self) -> String {
        let mut text = HEADER.to_owned();
        // Writing to a String cannot fail; also below.
        for member in self.iter() {
            let _ = writeln!(text, "{RECORD}{}", serde_json::to_string(member).unwrap_or_default());
        }
        text.push_str("users: [\n");
        for member in self.iter() {
            let Permissions { publish, subscribe } = self.permissions(member);
            let _ = writeln!(text, "  {{\n    # {}\n    nkey: \"{}\"\n    permissions: {{", member.name, member.key);
            for (what, subjects) in [("publish", publish), ("subscribe", subscribe)] {
                // NATS takes an empty list for "everything".
                let (word, subjects) =
                    if subjects.is_empty() { ("deny", vec![">".to_owned()]) } else { ("allow", subjects) };
                let _ = writeln!(text, "      {what}: {{ {word}: [");
                for subject in subjects {
                    let _ = writeln!(text, "        \"{subject}\"");
                }
                text.push_str("      ] }\n");
            }
            text.push_str("    }\n  }\n");
        }
        text.push_str("]\n");
        text
    }

    /// Parses `members.conf`. Error: a file that [`Members::render`] did not write.
    pub fn parse(text: &str) -> Result<Self> {
        let mut members = Self::default();
        for (number, line) in text.lines().enumerate() {
            let Some(record) = line.strip_prefix(RECORD) else { continue };
            let at = |error: &dyn std::fmt::Display| conflict(format!("line {}: {error}", number + 1));
            let member = serde_json::from_str(record).map_err(|error| at(&error))?;
            members.add(member).map_err(|error| at(&error.message))?;
        }
        let expected = members.render();
        if text == expected {
            return Ok(members);
        }
        let same = text.lines().zip(expected.lines()).take_while(|(found, expected)| found == expected).count();
        Err(conflict(format!("line {} was edited by hand", same + 1)))
    }
}

fn conflict(message: String) -> Error {
    Error::new(ErrorCode::Conflict, message)
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;

    /// Returns one of the keys that all tests share: making a key takes long without optimization.
    fn key(number: usize) -> String {
        static KEYS: LazyLock<Vec<String>> =
            LazyLock::new(|| (0..25).map(|_| nkeys::KeyPair::new_user().public_key()).collect());
        KEYS[number].clone()
    }

    fn tiers() -> impl Strategy<Value = Vec<Tier>> {
        proptest::sample::subsequence(Tier::ALL.to_vec(), 0..=4)
    }

    /// A change: a member is added, or (`None`) the one of this name is revoked.
    type Change = (String, Option<(Vec<Tier>, Vec<Tier>, Vec<String>)>);

    fn change() -> impl Strategy<Value = Change> {
        let name = prop_oneof![4 => "[a-c]{1,2}", 1 => "[a.*>$ -]{0,3}", 1 => Just(ADMIN.to_owned())];
        let hosts = proptest::collection::vec(prop_oneof!["[a-c*]{1,2}", "[a.>\"]{0,2}"], 0..3);
        (name, proptest::option::weighted(0.7, (tiers(), tiers(), hosts)))
    }

    proptest! {
        /// Any sequence of changes gives a file that parses, and that has exactly its members.
        #[test]
        fn members_conf_is_its_members(changes in proptest::collection::vec(change(), 0..24)) {
            let mut members = Members::default();
            members.add(Member::admin(key(0))).unwrap();
            let mut revoked = Vec::new();
            for (number, (name, added)) in changes.into_iter().enumerate() {
                match added {
                    Some((offer, uses, hosts)) => {
                        let before = members.clone();
                        let audit = (number % 3 == 0).then(|| "0a".to_owned());
                        let member = Member { name, key: key(number + 1), offer, uses, hosts, audit };
                        if members.add(member).is_err() {
                            prop_assert_eq!(&members, &before);
                        }
                    }
                    None => revoked.extend(members.revoke(&name)),
                }
                let text = members.render();
                prop_assert_eq!(&Members::parse(&text).unwrap(), &members);
                for member in &revoked {
                    prop_assert!(!text.contains(&member.key), "{}", text);
                    if members.get(&member.name).is_none() {
                        let subjects = ["_INBOX.", "muxtap.v1.", "muxtap.audit.", "$SRV.HELLO.muxtap."];
                        for subject in subjects.map(|subject| format!("\"{subject}{}", member.name)) {
                            let is_own = |line: &str| {
                                line.trim().strip_prefix(&subject).is_some_and(|rest| rest.starts_with(['.', '"']))
                            };
                            prop_assert!(!text.lines().any(is_own), "{}: {}", subject, text);
                        }
                    }
                }
                // NATS takes an empty list for "everything".
                prop_assert!(!text.contains("allow: [\n      ]"));
            }
        }

        /// A member may publish to exactly the subjects of its tiers and hosts.
        #[test]
        fn a_tier_is_permitted_where_it_is_granted(
            uses in tiers(), pattern in "[ab*]{1,2}", tier in proptest::sample::select(Tier::ALL.to_vec())
        ) {
            prop_assume!(!uses.is_empty());
            let mut members = Members::default();
            for (number, host) in ["a", "b", "ab", "bb"].into_iter().enumerate() {
                let (offer, uses, hosts) = (vec![Tier::Read], Vec::new(), Vec::new());
                members.add(Member { name: host.into(), key: key(number), offer, uses, hosts, audit: None }).unwrap();
            }
            let (offer, hosts) = (Vec::new(), vec![pattern.clone()]);
            let (name, key) = ("c".to_owned(), key(4));
            members.add(Member { name, key, offer, uses: uses.clone(), hosts, audit: None }).unwrap();
            let publish = members.permissions(members.get("c").unwrap()).publish;
            for host in ["a", "b", "ab", "bb", "c"] {
                let of = |host| publish.contains(&crate::subject::of_tier(host, tier));
                let is_named = Glob::new(&pattern).matches(host) && (host != "c" || pattern == "*");
                let granted = uses.contains(&tier) && is_named;
                prop_assert_eq!(of(host) || of("*"), granted, "{} {}", host, pattern);
            }
        }
    }

    #[test]
    fn a_file_that_differs_names_the_line() {
        let mut members = Members::default();
        members.add(Member::admin(key(0))).unwrap();
        let text = members.render();
        assert!(text.lines().nth(3).is_some_and(|line| line == "users: ["), "{text}");
        let edited = text.replace("users: [", "users: [ ");
        assert_eq!(Members::parse(&edited).unwrap_err().message, "line 4 was edited by hand");
        assert_eq!(Members::parse("").unwrap_err().message, "line 1 was edited by hand");
        let twice = format!("{text}{}\n", text.lines().nth(2).unwrap());
        assert!(Members::parse(&twice).unwrap_err().message.contains("exists"));
        let broken = text.replace("{\"name\"", "{\"nome\"");
        assert!(Members::parse(&broken).unwrap_err().message.starts_with("line 3: "));
    }
}
