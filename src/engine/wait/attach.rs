//! Where a wait begins, and what lay there already.

use std::{sync::Arc, time::Instant};

use super::{begins_on_screen, core::Core, watcher::Watcher};
use crate::{
    api::Result,
    engine::{Engine, Host, Pane, pane::State},
    stream::{
        cursor::Since,
        matcher::{Hit, Matcher, Verdict},
        text::{Control, TextSink},
    },
};

/// A pane as it was when a wait was asked for; the wait begins there, though its patterns are still to be compiled.
pub(super) struct Asked {
    pub(super) pane: Arc<Pane>,
    /// The end of its stream.
    end: u64,
    /// Where `since: input` begins, and since when.
    origin: Option<(u64, Instant)>,
}

impl Asked {
    pub(super) fn of(pane: Arc<Pane>) -> Self {
        let (end, origin) = {
            let state = pane.lock();
            (state.ring.end(), state.origin())
        };
        Self { pane, end, origin }
    }
}

impl Engine {
    /// Puts a watcher into every pane of a wait; what lies between its beginning and now is looked at first.
    pub(super) async fn attach(&self, host: &Arc<Host>, core: &Arc<Core>, panes: &[Asked]) -> Result<()> {
        for (at, asked) in panes.iter().enumerate() {
            // What is printed while a screen is asked for was not there before.
            core.on_pane(at, |on_pane| on_pane.asked_at = asked.end);
        }
        for (at, asked) in panes.iter().enumerate() {
            let screen = if begins_on_screen(&core.spec) {
                self.latch_on_screen(host, core, at, &asked.pane).await?
            } else {
                None
            };
            attach(core, at, asked, screen)?;
        }
        Ok(())
    }

    /// For `since: screen`: patterns that the screen shows are satisfied. Answers the point of the stream up to which
    /// it was shown.
    async fn latch_on_screen(
        &self,
        host: &Arc<Host>,
        core: &Arc<Core>,
        at: usize,
        pane: &Arc<Pane>,
    ) -> Result<Option<u64>> {
        let (text, offset) = self.screen(host, pane, true).await?;
        // All that it shows was there before the wait began to watch.
        core.on_pane(at, |on_pane| on_pane.asked_at = offset.max(on_pane.asked_at));
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

/// The stretch of a pane's stream that a wait covers.
struct Beginning {
    /// The first offset that any of its regexes looks at.
    first: u64,
    /// For each regex: a match must begin here or later.
    from: Vec<u64>,
    /// From here on bells and marks count.
    signs: u64,
}

fn attach(core: &Arc<Core>, at: usize, asked: &Asked, on_screen: Option<u64>) -> Result<()> {
    let mut state = asked.pane.lock();
    let end = state.ring.end();
    let beginning = beginning(core, at, asked, &state, on_screen)?;
    {
        let mut progress = core.lock();
        if let Some(on_pane) = progress.panes.get_mut(at) {
            on_pane.from.clone_from(&beginning.from);
            on_pane.quiet_from = match core.spec.since {
                Since::Now => Some(core.asked),
                // In a pane of others, without an input, the wait begins now.
                Since::Input => asked.origin.map_or(Some(core.asked), |(_, when)| Some(when)),
                _ => None,
            };
        }
    }
    let mut watcher = Watcher::new(core, at, beginning.from, beginning.signs);
    let title = state.about.title.clone();
    watcher.shown(&state.view, None, end);
    let mut go_on = watcher.title(&title);
    if beginning.first < end {
        // In pieces, so that a matcher's window stays small.
        let mut from = beginning.first;
        while from < end && go_on {
            let to = (from + PIECE).min(end);
            state.ring.decode_from(from, to, &mut watcher as &mut dyn TextSink);
            let State { echo, signs, .. } = &*state;
            go_on = watcher.end_of_chunk(echo, signs);
            from = to;
        }
    } else {
        let State { echo, signs, .. } = &*state;
        go_on = go_on && watcher.end_of_chunk(echo, signs);
    }
    if let Some((exit, _)) = state.exit {
        go_on = go_on && watcher.rest(&state.echo);
        if go_on {
            watcher.ended(exit);
        }
    } else if go_on {
        state.watchers.push(watcher);
    }
    Ok(())
}

/// Raw bytes that are decoded between two looks at the matches.
const PIECE: u64 = 32 * 1024;

fn beginning(core: &Core, at: usize, asked: &Asked, state: &State, on_screen: Option<u64>) -> Result<Beginning> {
    let Asked { pane, end, origin } = asked;
    let count = core.spec.set.as_ref().map_or(0, crate::stream::patterns::PatternSet::len);
    let same = |offset: u64| Beginning { first: offset, from: vec![offset; count], signs: offset };
    let since = match core.spec.since {
        // From where it was asked on; that much may have been printed since that its beginning is not kept any more.
        Since::Now => Since::At(pane.cursor(*end)),
        since => since,
    };
    Ok(match &since {
        Since::Start => same(state.ring.start()),
        // What was printed while the screen was asked for may not stand there any more.
        Since::Now | Since::Screen => same(on_screen.map_or(*end, |shown| shown.min(*end))),
        Since::Lines(lines) => same(state.lines_back(*lines)),
        Since::At(cursor) => {
            let (offset, gap) = pane.locate(state, cursor)?;
            if let Some(gap) = gap {
                core.on_pane(at, |on_pane| on_pane.gap = Some(gap));
            }
            same(offset)
        }
        Since::Input => {
            let input = origin.map(|(offset, _)| offset);
            let from: Vec<_> = (0..count)
                .map(|pattern| {
                    let answered = state.answered_at(core.spec.text_of(pattern));
                    // `None` is less than any offset.
                    input.max(answered).unwrap_or(*end)
                })
                .collect();
            let signs = input.unwrap_or(*end);
            let first = from.iter().copied().min().unwrap_or(signs);
            Beginning { first: first.max(state.ring.start()), from, signs }
        }
    })
}
