//! Output, input, resizes, trimming, lost connections and respawns in one random order, on a real
//! server, beside a model of what was printed.
//!
//! `MUXTAP_RANDOM_SECONDS` sets the duration (default 4), `MUXTAP_RANDOM_SEED` the order; the seed
//! is printed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use muxtap::{
    Engine, Options, Pane, Since,
    api::{ErrorCode, Gap, GapReason, WaitOutcome},
};
use rustix::process::Signal;

use crate::common::{LIMIT, World, signal, tmux_program, type_line};

/// Prints a number of numbered lines starting at a given number, each number once.
const PROGRAM: &str = "stty -echo; echo ready; last=0; while read -r from count; do \
                       [ \"${from:-0}\" -gt \"$last\" ] || continue; \
                       last=$((from + count - 1)); seq -f 'line %.0f end' \"$from\" \"$last\"; done";
/// The least number of bytes that a pane keeps. A large batch is more.
const RING_BYTES: usize = 16 * 1024;
const LARGE: u64 = 4000;

/// A small generator of random numbers: a seed must reproduce the order.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

/// A reader that follows cursors, and the model of what it may read.
#[derive(Clone)]
struct Reader {
    since: Since,
    /// The beginning of an incomplete line.
    partial: String,
    last: Option<u64>,
    /// The gap reported since the last number.
    gap: Option<Gap>,
    /// Lines up to this number may be repeated behind a gap `reconnected`, if tmux's screen was
    /// cleared for another program so often that it cannot be joined to the stream.
    again_to: u64,
}

impl Reader {
    fn from(since: Since) -> Self {
        Self { since, partial: String::new(), last: None, gap: None, again_to: 0 }
    }

    /// Reads once and compares the result with the model. Returns whether there is more.
    async fn read(&mut self, pane: &Pane, at_most: u64, wait: Duration) -> bool {
        let output = pane.read().since(self.since).at_most(at_most).wait(wait).await.unwrap();
        self.since = output.cursor.into();
        if let Some(gap) = output.gap {
            let known = match gap.reason {
                GapReason::Trimmed => gap.bytes.is_some(),
                reason => matches!(reason, GapReason::Reconnected | GapReason::Paused),
            };
            assert!(known, "{gap:?}");
            self.partial.clear();
            self.gap = Some(gap);
        }
        self.partial.push_str(&String::from_utf8_lossy(output.bytes()));
        while let Some(end) = self.partial.find('\n') {
            let line: String = self.partial.drain(..=end).collect();
            let number = line.trim_end().strip_prefix("line ").and_then(|line| line.strip_suffix(" end")?.parse().ok());
            if let Some(number) = number {
                self.see(number);
            }
        }
        output.more()
    }

    fn see(&mut self, number: u64) {
        if let Some(last) = self.last {
            if self.gap.is_some_and(|gap| gap.reason == GapReason::Reconnected) && number <= last {
                self.again_to = self.again_to.max(last);
            }
            let may_jump = self.gap.is_some() || last <= self.again_to;
            let comes_again = self.gap.is_some() && number <= self.again_to;
            let follows = number == last + 1 || may_jump && number > last || comes_again;
            assert!(follows, "{number} after {last}, {:?}", self.gap);
        }
        (self.last, self.gap) = (Some(number), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn concurrent_operations_in_random_order_match_the_model() {
    let nanos = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let seed = from_environment("MUXTAP_RANDOM_SEED", nanos).max(1);
    let length = Duration::from_secs(from_environment("MUXTAP_RANDOM_SECONDS", 4));
    println!("MUXTAP_RANDOM_SEED={seed}");
    let mut random = Random(seed);

    let world = World::with_server();
    let engine = Engine::start(Options::default().tmux(tmux_program()).ring_bytes(RING_BYTES)).unwrap();
    let server = engine.server(world.socket()).await.unwrap();
    let pane = server.pane(&world.window(PROGRAM)).await.unwrap();
    let id = pane.id().to_string();
    let awaited = |pattern: String, since: Since, timeout: Duration| {
        pane.wait().pattern(pattern).unwrap().since(since).timeout(timeout).start()
    };
    let line = |number: u64| format!("^line {number} end$");
    let ready = awaited("^ready$".into(), Since::Start, LIMIT).await.unwrap();
    assert_eq!(ready.result().await.unwrap().outcome, WaitOutcome::Matched);

    // One reader sleeps until output arrives; the others read now and then.
    let end = Arc::new(AtomicU64::new(0));
    let sleeping = tokio::spawn({
        let (pane, end) = (pane.clone(), end.clone());
        async move {
            let mut reader = Reader::from(Since::Start);
            while end.load(Ordering::Relaxed) == 0 || reader.last != Some(end.load(Ordering::Relaxed)) {
                reader.read(&pane, 5000, Duration::from_millis(200)).await;
                // A pane that has ended always has something to return; a failing test must end.
                tokio::task::yield_now().await;
            }
        }
    });
    let mut readers = vec![Reader::from(Since::Start)];
    let mut waits = Vec::new();
    let mut next = 1;
    let started = Instant::now();
    let mut steps = 0;
    let mut loses_client = false;
    while started.elapsed() < length {
        steps += 1;
        let lost_client = loses_client;
        // A line that is not printed within the wait's time is not matched. While another client
        // replaces a lost one, a wait may not start in time, and reports that.
        if random.below(4) == 0 {
            match awaited(line(next), Since::Start, Duration::from_millis(20)).await {
                Ok(wait) => assert_eq!(wait.result().await.unwrap().outcome, WaitOutcome::Timeout, "line {next}"),
                Err(error) => assert!(lost_client && error.code == ErrorCode::TmuxUnavailable, "{error:?}"),
            }
        }
        loses_client = random.below(4) == 0;
        // What tmux still has is complete after a lost connection; anything beyond that is in the
        // gap. The next batch may be printed before another client follows; when its last line has
        // arrived, one does.
        let is_small = loses_client || lost_client || random.below(5) > 0;
        let count = if is_small { 1 + random.below(200) } else { LARGE };
        let last = next + count - 1;
        let (some, far) = (next + random.below(count), last + random.below(1000));
        for number in [some, last, far] {
            waits.push((number, awaited(line(number), Since::Now, LIMIT).await.unwrap()));
        }
        let before = pane.cursor();
        let text = format!("{next} {count}");
        // Typed again if the outcome is unknown: the program prints each number once. The text may be
        // there without its Enter; the program must not read both as one line.
        let is_submitted = if loses_client || random.below(2) == 0 {
            false
        } else {
            let outcome = pane.submit(text.as_str()).await;
            if outcome.is_err() {
                type_line(&world, &id, "");
            }
            outcome.is_ok()
        };
        if !is_submitted {
            type_line(&world, &id, &text);
        }
        println!("{} ms: {text}, loses client: {loses_client}", started.elapsed().as_millis());
        if loses_client {
            for client in world.tmux(&["list-clients", "-F", "#{client_pid}"]).lines() {
                signal(client.parse().unwrap(), Signal::KILL);
            }
        }
        for _ in 0..random.below(3) {
            let (columns, rows) = (24 + random.below(100), 4 + random.below(40));
            let (columns, rows) = (columns.to_string(), rows.to_string());
            world.tmux(&["resize-window", "-t", &id, "-x", &columns, "-y", &rows]);
            println!("{columns}x{rows}");
        }
        match random.below(6) {
            0 => readers.push(Reader::from(Since::Start)),
            1 => readers.push(Reader::from(Since::Now)),
            2 => readers.push(Reader::from(Since::Lines(random.below(50) as u32))),
            3 => readers.push(readers[random.below(readers.len() as u64) as usize].clone()),
            _ => {}
        }
        if let Some(reader) = readers.last_mut() {
            // Fixes a position that moves.
            reader.read(&pane, 1, Duration::ZERO).await;
        }
        let chosen = random.below(readers.len() as u64) as usize;
        for _ in 0..random.below(20) {
            readers[chosen].read(&pane, 1 + random.below(3000), Duration::ZERO).await;
        }
        // Matches the line that comes last, also with a cursor from before it.
        let from_cursor = awaited(line(last), before.into(), LIMIT).await.unwrap();
        assert_eq!(from_cursor.result().await.unwrap().outcome, WaitOutcome::Matched, "line {last} from a cursor");
        next += count;
        for at in (0..waits.len()).rev() {
            if waits[at].0 < next {
                let (number, wait) = waits.swap_remove(at);
                assert_eq!(wait.result().await.unwrap().outcome, WaitOutcome::Matched, "line {number}");
            }
        }
        // While no client follows, a new program's first output may equal an old one's, and the two
        // cannot be distinguished.
        if !loses_client && random.below(6) == 0 {
            println!("respawn");
            let ready = awaited("^ready$".into(), Since::Now, LIMIT).await.unwrap();
            world.tmux(&["respawn-pane", "-k", "-t", &id, PROGRAM]);
            assert_eq!(ready.result().await.unwrap().outcome, WaitOutcome::Matched, "respawned");
        }
    }
    println!("{steps} steps, {} lines, {} readers", next - 1, readers.len());

    // A line that was never printed was never matched.
    for (number, wait) in waits {
        assert_eq!(wait.cancel().await.unwrap().outcome, WaitOutcome::Cancelled, "line {number} of {next}");
    }
    type_line(&world, &id, &format!("{next} 1"));
    let last = awaited(line(next), Since::Lines(1), LIMIT).await.unwrap();
    assert_eq!(last.result().await.unwrap().outcome, WaitOutcome::Matched);
    end.store(next, Ordering::Relaxed);
    tokio::time::timeout(LIMIT, sleeping).await.unwrap().unwrap();
    for reader in &mut readers {
        while reader.read(&pane, 1 << 20, Duration::ZERO).await {}
        assert_eq!(reader.last, Some(next));
    }
    let shown = pane.capture().await.unwrap().text;
    assert_eq!(shown.trim_end(), world.tmux(&["capture-pane", "-p", "-t", &id]).trim_end());
    engine.stop().await;
}
