//! Tests of every order in which a pane's output and the readers of its events can meet.

use std::{collections::VecDeque, sync::Arc};

use loom::{future::block_on, thread};
use muxtap_api::{Cursor, Epoch, EventKind, Since, SubscribeRequest};
use muxtap_core::protocol::ids::PaneId;
use muxtap_tmux::Exit;
use serde_json::Value;

use super::{
    Filter,
    reader::{Next, Reader, StartPoint},
};

use crate::{PaneState, pane::Notifier, sync::check};

fn pane() -> Arc<PaneState> {
    PaneState::new(PaneId(1), Epoch { server: 1, engine: 1 }, 1000)
}

/// A subscription to one pane, read as [`super::Subscription`] reads it.
struct Follower {
    notifier: Arc<Notifier>,
    reader: Reader,
    filter: Filter,
}

/// What a follower was sent: output as text, gaps as `[reason bytes]`, the end as `.`.
#[derive(Default)]
struct Sent {
    text: String,
    /// The stream offset of each output event.
    offsets: Vec<u64>,
}

impl Follower {
    fn new(pane: &Arc<PaneState>) -> Self {
        let notifier = Arc::new(Notifier::default());
        let start = StartPoint { since: Since::Start, ..StartPoint::default() };
        let reader = Reader::new(pane.clone(), &notifier, 7, start, false);
        let types = vec![EventKind::Output, EventKind::Gap, EventKind::PaneExited];
        Self {
            notifier,
            reader,
            filter: Filter::of(
                &SubscribeRequest { types, ..Default::default() },
                crate::query::scope::Scopes::default(),
            )
            .unwrap(),
        }
    }

    /// Reads until the pane's end was sent. Loom detects a lost wake-up, because no thread can
    /// continue then.
    fn until_end(mut self) -> Sent {
        let mut sent = Sent::default();
        while !self.reader.is_end_sent() {
            assert!(block_on(self.notifier.changed()).iter().all(|number| *number == 7));
            let mut out = VecDeque::new();
            while matches!(self.reader.next(&self.filter, &mut out), Next::Again) {}
            for event in &out {
                sent.add(&serde_json::from_slice(event.json()).unwrap());
            }
        }
        sent
    }
}

impl Sent {
    fn add(&mut self, event: &Value) {
        match event["type"].as_str() {
            Some("output") => {
                self.text.push_str(event["text"].as_str().unwrap_or_default());
                let cursor = event["cursor"].as_str().unwrap().parse::<Cursor>().unwrap();
                self.offsets.push(cursor.offset);
            }
            Some("gap") => {
                let (reason, bytes) = (event["gap"]["reason"].as_str().unwrap(), &event["gap"]["bytes"]);
                self.text += &["[", reason, " ", &bytes.to_string(), "]"].concat();
            }
            Some("pane-exited") => self.text.push('.'),
            _ => {}
        }
    }
}

/// A lost wake-up leaves the reader asleep forever. A flag that is cleared too late leaves the
/// reader with less than the pane has.
#[test]
fn a_sleeping_reader_is_woken_for_all_output() {
    check(2, || {
        let pane = pane();
        let follower = Follower::new(&pane);
        let reader = thread::spawn(move || follower.until_end());
        let _ = pane.push(0, b"one ");
        let _ = pane.push(0, b"two ");
        pane.mark_command_ended(Exit::default());
        let sent = reader.join().unwrap();
        assert_eq!(sent.text, "one two .");
        assert!(sent.offsets.is_sorted());
    });
}

/// Both readers take from one cache what the other has put into it.
#[test]
fn readers_that_share_an_event_cache_miss_nothing() {
    check(1, || {
        let pane = pane();
        // A thread of loom has a small stack.
        let followers = [(); 2].map(|()| Box::new(Follower::new(&pane)));
        let readers = followers.map(|follower| thread::spawn(move || follower.until_end()));
        let _ = pane.push(0, b"one ");
        pane.mark_command_ended(Exit::default());
        for reader in readers {
            assert_eq!(reader.join().unwrap().text, "one .");
        }
    });
}

#[test]
fn a_gap_is_sent_once_and_in_order() {
    check(2, || {
        let pane = pane();
        let follower = Follower::new(&pane);
        let reader = thread::spawn(move || follower.until_end());
        let _ = pane.push(0, b"one ");
        let _ = pane.restart(true);
        let _ = pane.push(0, b"two");
        pane.mark_command_ended(Exit::default());
        assert_eq!(reader.join().unwrap().text, "one \n[paused null]two.");
    });
}

/// The janitor drops output while it is read: all bytes are sent or counted as missing.
#[test]
fn output_trimmed_during_a_read_is_sent_or_counted_as_missing() {
    check(2, || {
        let pane = pane();
        let follower = Follower::new(&pane);
        let reader = thread::spawn(move || follower.until_end());
        let _ = pane.push(0, b"one\ntwo\n");
        pane.trim_output(2);
        let _ = pane.push(0, b"end\n");
        pane.mark_command_ended(Exit::default());
        let sent = reader.join().unwrap();
        let kept = sent.text.strip_suffix('.').unwrap();
        let (before, after, missing) =
            match kept.split_once("[slow-reader ").map(|(before, rest)| (before, rest.split_once(']'))) {
                Some((before, Some((bytes, after)))) => (before, after, bytes.parse::<usize>().unwrap()),
                _ => (kept, "", 0),
            };
        let whole = "one\ntwo\nend\n";
        assert!(whole.starts_with(before) && whole.ends_with(after), "{}", sent.text);
        assert_eq!(before.len() + missing + after.len(), whole.len(), "{}", sent.text);
    });
}
