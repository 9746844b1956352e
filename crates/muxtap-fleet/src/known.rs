//! The hosts that a member has seen.

use std::{collections::BTreeSet, sync::PoisonError};

use async_nats::Client;
use futures_util::{StreamExt as _, stream};

use super::{
    join::Inner,
    service::{self, Member, Unanswered},
};

/// The most hosts that are remembered.
const MOST_HOSTS: usize = 4096;
/// The most hosts that are asked at the same time.
const ASKED: usize = 16;

impl Inner {
    /// Remembers the hosts of a list. Each host can add replies in any name to a list, so what is not
    /// known yet counts only if the host of that name says it. Returns the hosts.
    pub(super) async fn meet(&self, client: &Client, listed: Vec<Member>) -> Vec<Member> {
        let (mut hosts, mut unknown) = (Vec::new(), BTreeSet::new());
        {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            for member in listed.into_iter().filter(|member| !member.offer.is_empty()) {
                if known.get(&member.name) == Some(&member) {
                    hosts.push(member);
                } else if member.name != self.me.name {
                    unknown.insert(member.name);
                }
            }
        }
        hosts.retain(|host| !unknown.contains(&host.name));
        let said = self.ask_all(client, unknown).await;
        if !said.is_empty() && self.is_known_full() {
            self.forget_absent(client).await;
        }
        hosts.extend(said.into_iter().filter_map(|(_, said)| said.ok()).filter(|member| self.met(member)));
        hosts.sort_by(|a, b| a.name.cmp(&b.name));
        hosts.dedup_by(|a, b| a.name == b.name);
        hosts
    }

    /// Asks many hosts about themselves.
    async fn ask_all(
        &self,
        client: &Client,
        names: impl IntoIterator<Item = String>,
    ) -> Vec<(String, std::result::Result<Member, Unanswered>)> {
        let questions = names.into_iter().map(|name| async move {
            let said = service::ask(client, &name).await;
            (name, said)
        });
        stream::iter(questions).buffer_unordered(ASKED).collect().await
    }

    fn is_known_full(&self) -> bool {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).len() >= MOST_HOSTS
    }

    /// Forgets the known hosts that are absent.
    async fn forget_absent(&self, client: &Client) {
        let names: Vec<_> = self.known.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        for (name, said) in self.ask_all(client, names).await {
            if matches!(said, Err(Unanswered::Absent)) {
                self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
            }
        }
    }

    /// Remembers a member if it is a host. Returns whether it is one.
    pub(super) fn met(&self, member: &Member) -> bool {
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
}
