//! The addresses of hyperlinks (OSC 8).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The maximum number of addresses; the oldest are dropped first. tmux keeps 5,000 for all panes
/// together.
const MOST: usize = 4096;
/// The maximum number of bytes of all addresses together.
const BYTES: usize = 1 << 20;
/// The maximum number of bytes of an address; a link with a longer one has no address.
const ADDRESS_BYTES: usize = 2048;

/// The addresses to which styles refer by number, each once. Numbers increase and are never reused.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "StoredLinks", into = "StoredLinks")]
pub(super) struct Links {
    list: VecDeque<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    /// The number of addresses that were dropped.
    dropped: u32,
    bytes: usize,
}

/// The stored form of [`Links`]: the addresses, and the number of those that were dropped.
#[derive(Serialize, Deserialize)]
struct StoredLinks(u32, Vec<Arc<str>>);

impl From<Links> for StoredLinks {
    fn from(links: Links) -> Self {
        Self(links.dropped, links.list.into())
    }
}

impl From<StoredLinks> for Links {
    fn from(StoredLinks(dropped, list): StoredLinks) -> Self {
        let numbered = list.iter().zip(1_u32..);
        let numbers = numbered.map(|(address, at)| (address.clone(), dropped.saturating_add(at))).collect();
        let bytes = list.iter().map(|address| address.len()).sum();
        Self { list: list.into(), numbers, dropped, bytes }
    }
}

impl Links {
    /// Returns the number of an address, 1 or more.
    pub(super) fn number(&mut self, address: &[u8]) -> u32 {
        let text = std::str::from_utf8(address).unwrap_or_default();
        let text = if text.len() > ADDRESS_BYTES || text.contains(char::is_control) { "" } else { text };
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        while self.list.len() >= MOST || self.bytes + text.len() > BYTES {
            let Some(oldest) = self.list.pop_front() else { break };
            self.bytes -= oldest.len();
            self.dropped = self.dropped.saturating_add(1);
            self.numbers.remove(&oldest);
        }
        let text: Arc<str> = text.into();
        self.bytes += text.len();
        self.list.push_back(text.clone());
        let number = self.dropped.saturating_add(self.list.len() as u32);
        self.numbers.insert(text, number);
        number
    }

    /// Returns an address by its number; `None` if it was dropped.
    pub(super) fn get(&self, number: u32) -> Option<&str> {
        let at = number.checked_sub(self.dropped)?.checked_sub(1)?;
        self.list.get(at as usize).map(|address| &**address).filter(|address| !address.is_empty())
    }

    /// Returns the approximate number of bytes held.
    pub(super) fn memory(&self) -> usize {
        self.bytes + self.list.len() * 2 * (size_of::<Arc<str>>() + size_of::<usize>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_number_until_it_is_dropped() {
        let mut links = Links::default();
        let first = links.number(b"http://one/");
        assert_eq!((first, links.number(b"http://one/")), (1, 1));
        assert_eq!(links.get(first), Some("http://one/"));
        assert_eq!((links.get(0), links.get(2)), (None, None));
        let strange = links.number(b"a\x07b");
        assert_eq!((strange, links.get(strange)), (2, None));
        for number in 0..MOST {
            links.number(format!("http://{number}/").as_bytes());
        }
        assert_eq!(links.get(first), None);
        let again = links.number(b"http://one/");
        assert_eq!(links.get(again), Some("http://one/"));
        assert!(again as usize > MOST && links.list.len() <= MOST);
    }

    #[test]
    fn addresses_are_bounded_in_bytes() {
        let mut links = Links::default();
        for number in 0..2 * BYTES / 1000 {
            links.number(format!("{number:01000}").as_bytes());
        }
        assert!(links.memory() < BYTES + BYTES / 4);
    }
}
