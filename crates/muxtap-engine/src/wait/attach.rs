//! Attaches a wait to its panes: finds its start and examines the output already there.

use std::sync::Arc;

use muxtap_api::{PredicateKind, Result, Since};
use muxtap_base::clock;
use muxtap_core::stream::{
    matcher::{Hit, Matcher, Verdict},
    text::{Control, TextSink},
};
use tokio::time::Instant;

use super::{
    awaited::{AwaitedCommand, Begin},
    core::Core,
    starts_on_screen,
    watcher::Watcher,
};

use crate::{
    PaneState, Server,
    pane::{LockedPane, Watch},
};

/// A pane's position when a wait was requested. The wait begins there, even if its patterns compile
/// later.
pub(super) struct StartState {
    pub(super) pane: Arc<PaneState>,
    /// The end of the pane's stream.
    end: u64,
    /// Where `since: input` begins, and the time of that input.
    origin: Option<(u64, Instant)>,
}

impl StartState {
    pub(super) fn of(pane: Arc<PaneState>) -> Self {
        let (end, origin) = {
            let locked = pane.lock();
            (locked.ring().end(), locked.since_input())
        };
        Self { pane, end, origin }
    }
}

impl Server {
    /// Adds a watcher to every pane of a wait, after examining the output between the wait's start
    /// and now.
    pub(super) async fn attach(&self, core: &Arc<Core>, panes: &[StartState]) -> Result<()> {
        for (at, start) in panes.iter().enumerate() {
            // Output printed while a screen is requested was not there before the wait.
            core.update_pane(at, |on_pane| on_pane.request_offset = start.end);
        }
        for (at, start) in panes.iter().enumerate() {
            let screen =
                if starts_on_screen(&core.spec) { self.latch_on_screen(core, at, &start.pane).await? } else { None };
            attach(core, at, start, screen)?;
        }
        Ok(())
    }

    /// Latches the patterns that the screen shows, for `since: screen`. Returns the offset in the
    /// stream up to which the screen was shown.
    async fn latch_on_screen(&self, core: &Arc<Core>, at: usize, pane: &Arc<PaneState>) -> Result<Option<u64>> {
        let (text, offset) = self.screen(pane, true).await?;
        // Everything on the screen was there before the wait began to watch.
        core.update_pane(at, |on_pane| on_pane.request_offset = offset.max(on_pane.request_offset));
        let Some(set) = &core.spec.set else { return Ok(Some(offset)) };
        let mut matcher = Matcher::new(set.clone());
        for line in text.lines() {
            matcher.text(0, line.as_bytes());
            matcher.control(0, Control::LineFeed);
        }
        for hit in matcher.rest(&mut |_| Verdict::Accept) {
            core.hit(at, Hit { start: offset, end: offset, ..hit });
        }
        Ok(Some(offset))
    }
}

/// The part of a pane's stream that a wait covers.
struct WatchStart {
    /// The first offset that any of the wait's regexes examines.
    first: u64,
    /// For each regex, the lowest offset at which a match may begin.
    from: Vec<u64>,
    /// The offset from which bells and marks count.
    signs: u64,
}

fn attach(core: &Arc<Core>, at: usize, start: &StartState, on_screen: Option<u64>) -> Result<()> {
    let mut locked = start.pane.lock();
    let end = locked.ring().end();
    let watch_start = watch_start(core, at, start, &locked, on_screen)?;
    {
        let mut progress = core.lock();
        if let Some(on_pane) = progress.panes.get_mut(at) {
            on_pane.from.clone_from(&watch_start.from);
            on_pane.quiet_since = match core.spec.since {
                Since::Now => Some(core.requested_at),
                // In a pane that others use, without an input, the wait begins now.
                Since::Input => start.origin.map_or(Some(core.requested_at), |(_, when)| Some(when)),
                _ => None,
            };
        }
    }
    let command = core.spec.index_of(PredicateKind::Command).map(|_| {
        let requested = start.end;
        let begin = match core.spec.since {
            Since::Now | Since::Screen => Begin::Requested { requested, unanswered_input: None },
            Since::Input => {
                let answered = locked.last_match_end(AwaitedCommand::ANSWERED);
                let input = start.origin.map(|(input, _)| answered.map_or(input, |answered| input.max(answered)));
                Begin::Requested { requested, unanswered_input: input }
            }
            _ => Begin::At(watch_start.signs),
        };
        AwaitedCommand::new(locked.command_log(), begin, core.spec.status)
    });
    let mut watcher = Watcher::new(core, at, watch_start.from, watch_start.signs, command);
    let title = locked.metadata().title.clone();
    watcher.screen_changed(locked.screen(), None, end);
    watcher.title_changed(&title);
    if watch_start.first < end {
        // In chunks, to keep a matcher's window small.
        let mut from = watch_start.first;
        while from < end && !core.is_over() {
            let to = (from + CHUNK_BYTES).min(end);
            locked.ring().decode_from(from, to, &mut watcher as &mut dyn TextSink);
            watcher.end_of_chunk(locked.echo(), locked.shell_marks());
            from = to;
        }
    } else if !core.is_over() {
        watcher.end_of_chunk(locked.echo(), locked.shell_marks());
    }
    // After the text, so that a `fail` pattern in a command's output precedes the command's end.
    if locked.exit().is_some() {
        watcher.stream_rested(locked.echo());
    }
    watcher.commands_changed(locked.command_log());
    if core.is_over() {
        return Ok(());
    }
    if let Some(exit) = locked.exit() {
        if let Some(gap) = locked.ring().gap_at(end) {
            watcher.record_gap(gap);
        }
        watcher.pane_ended(exit);
    } else {
        locked.add_watcher(Box::new(watcher));
    }
    Ok(())
}

/// Raw bytes decoded between two evaluations of the matches.
const CHUNK_BYTES: u64 = 32 * 1024;

fn watch_start(
    core: &Core,
    at: usize,
    start: &StartState,
    locked: &LockedPane,
    on_screen: Option<u64>,
) -> Result<WatchStart> {
    let StartState { pane, end, origin } = start;
    let count = core.spec.set.as_ref().map_or(0, muxtap_core::stream::patterns::PatternSet::len);
    let same = |offset: u64| WatchStart { first: offset, from: vec![offset; count], signs: offset };
    let since = match core.spec.since {
        // From the position at the request. If much was printed since, that position may no longer
        // be retained.
        Since::Now => Since::At(pane.cursor(*end)),
        since => since,
    };
    Ok(match &since {
        Since::Start => same(locked.ring().start()),
        // Text printed while the screen was requested may no longer be on it.
        Since::Now | Since::Screen => same(on_screen.map_or(*end, |shown| shown.min(*end))),
        Since::Lines(lines) => same(locked.lines_back(*lines)),
        Since::Ago(ago) => same(locked.printed_since(clock::ago_ms(*ago))),
        Since::Time(at) => same(locked.printed_since(*at)),
        Since::At(cursor) => {
            let (offset, gap) = pane.locate(locked, cursor)?;
            if let Some(gap) = gap {
                core.update_pane(at, |on_pane| on_pane.gap = Some(gap));
            }
            same(offset)
        }
        Since::Input => {
            let input = origin.map(|(offset, _)| offset);
            let from: Vec<_> = (0..count)
                .map(|pattern| {
                    let answered = locked.last_match_end(core.spec.text_of(pattern));
                    // `None` is less than any offset.
                    input.max(answered).unwrap_or(*end)
                })
                .collect();
            let signs = input.unwrap_or(*end);
            let first = from.iter().copied().min().unwrap_or(signs);
            WatchStart { first: first.max(locked.ring().start()), from, signs }
        }
    })
}
