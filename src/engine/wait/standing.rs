//! What a wait that timed out passed over: its patterns, in what was there before it began.

use std::{sync::Arc, time::Instant};

use tokio::time::timeout_at;

use super::core::Core;
use crate::{
    api::{StandsBefore, WaitOutcome},
    engine::{Engine, Pane, limits},
    pane::{
        echo,
        matcher::{Hit, Matcher, Verdict},
        ring::Reading,
        text::Control,
        text::TextSink,
    },
    screen::CaptureOptions,
};

/// Raw bytes that are decoded and searched between two looks at the clock.
const PIECE: u64 = 32 * 1024;

/// Looks for the patterns that a wait waited for in vain in what it did not count, and notes where they stand.
///
/// This happens once the time has run out, in a thread of its own, one wait at a time and for [`limits::STANDS_TIME`] at
/// most: what was not looked at by then is left out of the answer.
pub(super) async fn note(engine: &Engine, core: &Arc<Core>) {
    if core.lock().end.is_none_or(|end| end.outcome != WaitOutcome::Timeout) {
        return;
    }
    let deadline = Instant::now() + limits::STANDS_TIME;
    let Ok(Ok(_permit)) = timeout_at(deadline.into(), engine.shared.standing.acquire()).await else { return };
    for (at, pane) in core.panes.iter().enumerate() {
        let Some(search) = Search::new(core, at, pane) else { continue };
        let found = tokio::task::spawn_blocking(move || search.run(deadline));
        let Ok(Ok(found)) = timeout_at(deadline.into(), found).await else { return };
        if let Some(on_pane) = core.lock().panes.get_mut(at) {
            on_pane.standing = found;
        }
    }
}

/// A search on one pane.
struct Search {
    core: Arc<Core>,
    pane: Arc<Pane>,
    /// For each pattern that is searched: a match begins before this offset.
    before: Vec<Option<u64>>,
}

impl Search {
    /// `None` where no pattern is open.
    fn new(core: &Arc<Core>, at: usize, pane: &Arc<Pane>) -> Option<Self> {
        let progress = core.lock();
        let on_pane = progress.panes.get(at)?;
        // Patterns are the first predicates, in the order of the set.
        let open = on_pane.latches.iter().zip(&on_pane.from).take(core.spec.pattern_count());
        let before: Vec<_> = open.map(|(latch, from)| latch.is_none().then_some(*from)).collect();
        let any = before.iter().any(Option::is_some);
        any.then(|| Self { core: core.clone(), pane: pane.clone(), before })
    }

    fn run(self, deadline: Instant) -> Vec<Option<StandsBefore>> {
        let (mut last, echoed) = self.in_output(deadline);
        let shown = self.on_screen();
        let end = self.pane.lock().ring.end();
        last.resize(self.before.len(), None);
        let found = self.before.iter().zip(last).enumerate().map(|(pattern, (before, last))| {
            let before = (*before)?;
            let mut shown = shown.iter().filter(|hit| hit.pattern == pattern);
            match last {
                Some(hit) => {
                    let is_shown = shown.any(|shown| shown.line.trim_end() == hit.line.trim_end());
                    let since = if is_shown { "screen" } else { "start" };
                    Some(StandsBefore { line: hit.line, offset: Some(hit.start), since: since.into() })
                }
                // What programs draw need not stand in their output as it is read. It is from before if nothing came since.
                None => shown
                    .next_back()
                    .filter(|_| end <= before && !echoed.contains(&pattern))
                    .map(|hit| StandsBefore { line: hit.line.clone(), offset: None, since: "screen".into() }),
            }
        });
        found.collect()
    }

    /// The last match of each pattern in the retained output that begins before the wait does, echoes left out, and the
    /// patterns that match in echoes.
    fn in_output(&self, deadline: Instant) -> (Vec<Option<Hit>>, Vec<usize>) {
        let mut echoed = Vec::new();
        let mut last: Vec<Option<Hit>> = vec![None; self.before.len()];
        let (Some(set), Some(limit)) = (&self.core.spec.set, self.before.iter().flatten().max()) else {
            return (last, echoed);
        };
        // A match may begin before the wait and end in it.
        let to = limit.saturating_add(PIECE);
        let mut matcher = Matcher::new(set.clone());
        let mut from = limit.saturating_sub(limits::STANDS_BYTES);
        while Instant::now() < deadline {
            let (chunk, over) = {
                let state = self.pane.lock();
                let most = PIECE.min(to.saturating_sub(from.max(state.ring.start())));
                (state.ring.read(from, Reading { most, whole: true, over: true }), state.ring.end() <= to)
            };
            if chunk.gap.is_some() {
                matcher.control(chunk.start, Control::LineFeed);
            }
            chunk.decode(&mut matcher);
            let is_last = chunk.bytes.is_empty() || chunk.end >= to;
            let mut hits = Vec::new();
            // Each match is passed over, so that the last one is found.
            let mut judge = |hit: &Hit| match self.before.get(hit.pattern) {
                Some(Some(before)) if hit.start < *before => {
                    hits.push(hit.clone());
                    Verdict::Reject
                }
                _ => Verdict::Accept,
            };
            matcher.end_of_chunk(&mut judge);
            if is_last && over {
                matcher.rest(&mut judge);
            }
            let state = self.pane.lock();
            for hit in hits {
                let text = hit.captures.first().and_then(Option::as_deref).unwrap_or_default();
                if state.echo.verdict(hit.start, hit.end, text) != echo::Verdict::Answer {
                    echoed.push(hit.pattern);
                } else if let Some(slot) = last.get_mut(hit.pattern) {
                    *slot = Some(hit);
                }
            }
            drop(state);
            if is_last || matcher.is_done() {
                break;
            }
            from = chunk.end;
        }
        (last, echoed)
    }

    /// The matches on the screen, where it is followed.
    fn on_screen(&self) -> Vec<Hit> {
        let Some(set) = &self.core.spec.set else { return Vec::new() };
        let options = CaptureOptions { join: true, ..CaptureOptions::default() };
        let Some(text) = self.pane.lock().view.capture(&options) else { return Vec::new() };
        let mut matcher = Matcher::new(set.clone());
        for line in String::from_utf8_lossy(&text).lines() {
            matcher.text(0, line.as_bytes());
            matcher.control(0, Control::LineFeed);
        }
        let mut hits = Vec::new();
        matcher.rest(&mut |hit| {
            hits.push(hit.clone());
            Verdict::Reject
        });
        hits
    }
}
