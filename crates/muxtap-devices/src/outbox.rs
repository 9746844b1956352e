//! The messages that wait to be sent to a device.
//!
//! The device's connection takes them; adding a message never blocks.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

/// The maximum number of messages that wait for a device; one more ends its connection.
pub const OUTBOX: usize = 1024;
/// The maximum size of the messages that wait for a device, in bytes; more end its connection.
pub const OUTBOX_BYTES: usize = 8 << 20;

/// The queue of a connection.
#[derive(Debug, Default)]
pub struct Outbox {
    queue: Mutex<Queue>,
    ready: Notify,
    taken: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Arc<str>>,
    bytes: usize,
    /// The latest presence of each device: a slow connection misses the ones between, which are not
    /// stored.
    presence: BTreeMap<String, Arc<str>>,
    /// Whether nothing is taken yet, because the first message is being written.
    closed: bool,
    ended: bool,
}

/// The next step of a connection, one message at a time.
#[cfg(test)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outgoing {
    /// Send this text.
    Message(Arc<str>),
    /// Close the connection.
    End,
}

impl Outbox {
    /// Creates a queue from which nothing is taken before [`Outbox::open`].
    pub fn closed() -> Self {
        let queue = Queue { closed: true, ..Queue::default() };
        Self { queue: Mutex::new(queue), ..Self::default() }
    }

    /// Opens the queue, with this message before all those that wait.
    pub fn open(&self, first: Arc<str>) {
        let mut queue = self.lock();
        queue.closed = false;
        if !queue.ended {
            queue.bytes += first.len();
            queue.messages.push_front(first);
        }
        drop(queue);
        self.ready.notify_one();
    }

    /// Adds a message. `false`: the queue is full or has ended.
    pub fn push(&self, message: Arc<str>) -> bool {
        let mut queue = self.lock();
        if queue.ended || queue.messages.len() >= OUTBOX || queue.bytes.saturating_add(message.len()) > OUTBOX_BYTES {
            return false;
        }
        queue.bytes += message.len();
        queue.messages.push_back(message);
        drop(queue);
        self.ready.notify_one();
        true
    }

    /// Resolves when the queue is at most half full, or has ended.
    ///
    /// For senders that can wait.
    pub async fn room(&self) {
        loop {
            let taken = self.taken.notified();
            {
                let queue = self.lock();
                if queue.ended || queue.messages.len() <= OUTBOX / 2 && queue.bytes <= OUTBOX_BYTES / 2 {
                    return;
                }
            }
            taken.await;
        }
    }

    /// Queues a device's presence; it replaces the one that waits.
    pub fn presence(&self, device: &str, message: Arc<str>) {
        let mut queue = self.lock();
        if !queue.ended {
            queue.presence.insert(device.to_owned(), message);
            drop(queue);
            self.ready.notify_one();
        }
    }

    /// Ends the connection after this last message. Other waiting messages are dropped.
    pub fn end(&self, last: Option<Arc<str>>) {
        let mut queue = self.lock();
        if queue.ended {
            return;
        }
        (queue.ended, queue.closed) = (true, false);
        queue.presence.clear();
        queue.messages.clear();
        queue.messages.extend(last);
        drop(queue);
        self.taken.notify_waiters();
        self.ready.notify_one();
    }

    /// Resolves with the next step. Cancel safe: dropping the future loses nothing.
    #[cfg(test)]
    pub async fn next(&self) -> Outgoing {
        loop {
            if let Some(next) = self.take() {
                return next;
            }
            self.ready.notified().await;
        }
    }

    /// Moves all waiting messages to `batch`; resolves when there is at least one, or the queue has
    /// ended.
    ///
    /// Returns whether more may follow. Cancel safe: dropping the future loses nothing.
    pub async fn next_batch(&self, batch: &mut Vec<Arc<str>>) -> bool {
        loop {
            {
                let mut queue = self.lock();
                let Queue { messages, bytes, presence, closed, ended } = &mut *queue;
                if !*closed {
                    *bytes = 0;
                    batch.extend(messages.drain(..));
                    batch.extend(std::mem::take(presence).into_values());
                    self.taken.notify_waiters();
                }
                if *ended || !batch.is_empty() {
                    return !*ended;
                }
            }
            self.ready.notified().await;
        }
    }

    #[cfg(test)]
    fn take(&self) -> Option<Outgoing> {
        let mut queue = self.lock();
        if queue.closed {
            return None;
        }
        if let Some(message) = queue.messages.pop_front() {
            queue.bytes = queue.bytes.saturating_sub(message.len());
            return Some(Outgoing::Message(message));
        }
        if queue.ended {
            return Some(Outgoing::End);
        }
        queue.presence.pop_first().map(|(_, message)| Outgoing::Message(message))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_keep_their_order_presence_keeps_its_latest_and_an_end_drops_the_rest() {
        let outbox = Outbox::default();
        for state in ["on", "off"] {
            outbox.presence("d", state.into());
        }
        assert!(outbox.push("one".into()) && outbox.push("two".into()));
        for wanted in ["one", "two", "off"] {
            assert_eq!(outbox.next().await, Outgoing::Message(wanted.into()));
        }
        let mut batch = Vec::new();
        outbox.presence("d", "away".into());
        assert!(outbox.push("three".into()) && outbox.push("four".into()));
        assert!(outbox.next_batch(&mut batch).await);
        assert_eq!(std::mem::take(&mut batch), ["three".into(), "four".into(), Arc::from("away")]);
        outbox.push("dropped".into());
        outbox.end(Some("last".into()));
        assert!(!outbox.push("late".into()));
        assert_eq!(outbox.next().await, Outgoing::Message("last".into()));
        assert_eq!(outbox.next().await, Outgoing::End);
        assert!(!outbox.next_batch(&mut batch).await && batch.is_empty());
    }

    #[tokio::test]
    async fn the_first_message_comes_first_whatever_came_before_it() {
        let outbox = Outbox::closed();
        assert!(outbox.push("second".into()));
        outbox.presence("d", "third".into());
        assert!(outbox.take().is_none());
        outbox.open("first".into());
        for wanted in ["first", "second", "third"] {
            assert_eq!(outbox.next().await, Outgoing::Message(wanted.into()));
        }
        // A queue that ended before it was opened has no first message.
        let outbox = Outbox::closed();
        outbox.end(Some("replaced".into()));
        outbox.open("first".into());
        assert_eq!((outbox.next().await, outbox.next().await), (Outgoing::Message("replaced".into()), Outgoing::End));
    }

    #[test]
    fn the_outbox_is_bounded_in_messages_and_bytes() {
        let outbox = Outbox::default();
        assert_eq!((0..2 * OUTBOX).filter(|_| outbox.push("x".into())).count(), OUTBOX);
        let outbox = Outbox::default();
        let half: Arc<str> = "x".repeat(OUTBOX_BYTES / 2).into();
        assert_eq!((0..5).filter(|_| outbox.push(half.clone())).count(), 2);
    }

    #[tokio::test]
    async fn what_was_taken_makes_room() {
        let outbox = Outbox::default();
        let (whole, mut batch): (Arc<str>, _) = ("x".repeat(OUTBOX_BYTES).into(), Vec::new());
        for _ in 0..2 {
            assert!(outbox.push(whole.clone()) && !outbox.push(whole.clone()));
            assert!(outbox.next_batch(&mut batch).await);
        }
        assert_eq!(batch.len(), 2);
    }
}
