//! Searches the output before a wait for the patterns of a wait that timed out.

use std::sync::Arc;

use muxtap_api::{StandsBefore, WaitOutcome};
use muxtap_core::{
    screen::CaptureOptions,
    stream::{
        echo,
        matcher::{Hit, Matcher, Verdict},
        ring::Reading,
        text::Control,
        text::TextSink,
    },
};
use tokio::time::Instant;
use tokio::time::timeout_at;

use super::core::Core;

use crate::{Engine, PaneState, blocking, limits};

/// Raw bytes decoded and searched between two checks of the deadline.
const CHUNK_BYTES: u64 = 32 * 1024;

/// Records where patterns that a wait did not find match in output that the wait did not count.
///
/// The search runs after the timeout, in a blocking thread, one wait at a time and for at most
/// [`limits::STANDS_TIME`]. The answer omits whatever the search has not reached by then.
pub(super) async fn record(engine: &Engine, core: &Arc<Core>) {
    if core.lock().end.is_none_or(|end| end.outcome != WaitOutcome::Timeout) {
        return;
    }
    let deadline = Instant::now() + limits::STANDS_TIME;
    let permit = timeout_at(deadline, engine.shared.earlier_search.clone().acquire_owned()).await;
    let Ok(Ok(permit)) = permit else { return };
    let permit = Arc::new(permit);
    for (at, pane) in core.panes.iter().enumerate() {
        let Some(search) = Search::new(core, at, pane) else { continue };
        let permit = permit.clone();
        let found = blocking::run(move || {
            // A blocking task continues after its caller has left, so the task owns the permit.
            let _permit = permit;
            search.run(deadline)
        });
        let Ok(Ok(found)) = timeout_at(deadline, found).await else { return };
        if let Some(on_pane) = core.lock().panes.get_mut(at) {
            on_pane.stands_before = found;
        }
    }
}

/// A search on one pane.
struct Search {
    core: Arc<Core>,
    pane: Arc<PaneState>,
    /// For each pattern, the offset before which a match must begin; `None` if it is not searched.
    before: Vec<Option<u64>>,
}

/// The matches of one pattern, of which only the last are kept.
#[derive(Default)]
struct EarlierMatches {
    /// The last match in the output outside of echoes.
    last: Option<Hit>,
    /// Whether the pattern matches in an echo.
    echoed: bool,
    /// The line of the last match on the screen.
    shown: Option<String>,
    /// Whether the screen shows the line of `last`.
    shows_last: bool,
}

impl Search {
    /// Prepares a search of one pane; `None` if no pattern is open.
    fn new(core: &Arc<Core>, at: usize, pane: &Arc<PaneState>) -> Option<Self> {
        let progress = core.lock();
        let on_pane = progress.panes.get(at)?;
        // Patterns are the first predicates, in the order of the set.
        let open = on_pane.latches.iter().zip(&on_pane.from).take(core.spec.pattern_count());
        let before: Vec<_> = open.map(|(latch, from)| latch.is_none().then_some(*from)).collect();
        let any = before.iter().any(Option::is_some);
        any.then(|| Self { core: core.clone(), pane: pane.clone(), before })
    }

    fn run(self, deadline: Instant) -> Vec<Option<StandsBefore>> {
        let mut matches = self.in_output(deadline);
        self.on_screen(&mut matches, deadline);
        let end = self.pane.lock().ring().end();
        let found = self.before.iter().zip(matches).map(|(before, matches)| {
            let before = (*before)?;
            match matches.last {
                Some(hit) => {
                    let since = if matches.shows_last { "screen" } else { "start" };
                    Some(StandsBefore { line: hit.line, offset: Some(hit.start), since: since.into() })
                }
                // Text that programs draw may not occur in their output as it is read. The text is
                // older than the wait if there was no output since.
                None => matches.shown.filter(|_| end <= before && !matches.echoed).map(|line| StandsBefore {
                    line,
                    offset: None,
                    since: "screen".into(),
                }),
            }
        });
        found.collect()
    }

    /// Returns each pattern's last match that begins before the wait in the retained output,
    /// without echoes.
    ///
    /// A pattern can match at each byte, and a match holds its whole line, so only the last match
    /// is kept.
    fn in_output(&self, deadline: Instant) -> Vec<EarlierMatches> {
        let mut matches: Vec<EarlierMatches> = self.before.iter().map(|_| EarlierMatches::default()).collect();
        let (Some(set), Some(limit)) = (&self.core.spec.set, self.before.iter().flatten().max()) else {
            return matches;
        };
        // A match may begin before the wait and end in it.
        let to = limit.saturating_add(CHUNK_BYTES);
        let mut matcher = Matcher::new(set.clone());
        let mut from = limit.saturating_sub(limits::STANDS_BYTES);
        while Instant::now() < deadline {
            let (chunk, over) = {
                let locked = self.pane.lock();
                let most = CHUNK_BYTES.min(to.saturating_sub(from.max(locked.ring().start())));
                (
                    locked.ring().read(from, Reading { most, whole_sequences: true, at_end: true }),
                    locked.ring().end() <= to,
                )
            };
            if chunk.gap.is_some() {
                matcher.control(chunk.start, Control::LineFeed);
            }
            chunk.decode(&mut matcher);
            let is_last = chunk.bytes.is_empty() || chunk.end >= to;
            // Each match is rejected, to find the last one.
            let mut judge = |hit: &Hit| match (self.before.get(hit.pattern), matches.get_mut(hit.pattern)) {
                (Some(Some(before)), Some(matches)) if hit.start < *before && Instant::now() < deadline => {
                    let verdict = self.pane.lock().echo().verdict(hit.start, hit.end);
                    if verdict == echo::Verdict::Answer {
                        matches.last = Some(hit.clone());
                    } else {
                        matches.echoed = true;
                    }
                    Verdict::Reject
                }
                _ => Verdict::Accept,
            };
            matcher.end_of_chunk(&mut judge);
            if is_last && over {
                matcher.rest(&mut judge);
            }
            if is_last || matcher.is_done() {
                break;
            }
            from = chunk.end;
        }
        matches
    }

    /// Adds the matches on the screen, if it is followed.
    fn on_screen(&self, matches: &mut [EarlierMatches], deadline: Instant) {
        let Some(set) = &self.core.spec.set else { return };
        let options = CaptureOptions { join: true, ..CaptureOptions::default() };
        let Some(text) = self.pane.lock().screen().capture(&options) else { return };
        let mut matcher = Matcher::new(set.clone());
        for line in String::from_utf8_lossy(&text).lines() {
            matcher.text(0, line.as_bytes());
            matcher.control(0, Control::LineFeed);
        }
        matcher.rest(&mut |hit| {
            if let Some(matches) = matches.get_mut(hit.pattern) {
                let last = matches.last.as_ref().map(|last| last.line.trim_end());
                matches.shows_last |= last == Some(hit.line.trim_end());
                matches.shown = Some(hit.line.clone());
            }
            if Instant::now() < deadline { Verdict::Reject } else { Verdict::Accept }
        });
    }
}
