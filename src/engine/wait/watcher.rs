//! A wait's part that lives in a pane and sees every byte.

use std::sync::Arc;

use super::{
    core::{Core, Latch},
    on_screen,
};
use crate::{
    api::{Gap, PredicateKind},
    engine::{signs::Signs, view::View},
    screen::Changes,
    stream::{
        echo::{self, EchoFilter},
        matcher::{Hit, Matcher, Verdict},
        text::{Control, TextSink},
    },
    tmux::Exit,
};

/// Watches one pane for one wait.
pub struct Watcher {
    core: Arc<Core>,
    /// Which of the wait's panes this is.
    at: usize,
    matcher: Option<Matcher>,
    /// For each regex of the set: a match that begins before this offset was answered already.
    from: Vec<u64>,
    /// Bells and marks before this offset do not count.
    begin: u64,
    bell: bool,
    prompt: bool,
    /// The screen predicates that are not satisfied yet.
    screens: Vec<usize>,
    /// Rows changed that could not be looked at.
    missed: bool,
}

impl Watcher {
    pub(super) fn new(core: &Arc<Core>, at: usize, from: Vec<u64>, begin: u64) -> Self {
        let has = |kind| core.spec.index_of(kind).is_some();
        Self {
            at,
            matcher: core.spec.set.clone().map(Matcher::new),
            from,
            begin,
            bell: has(PredicateKind::Bell),
            prompt: has(PredicateKind::Prompt),
            screens: core.spec.screens().map(|(predicate, _)| predicate).collect(),
            missed: false,
            core: core.clone(),
        }
    }

    /// Whether it belongs to this wait.
    pub(super) fn belongs_to(&self, core: &Arc<Core>) -> bool {
        Arc::ptr_eq(&self.core, core)
    }

    /// A chunk has been fed. Answers whether to go on.
    pub fn end_of_chunk(&mut self, echo: &EchoFilter, signs: &Signs) -> bool {
        if self.core.is_over() {
            return false;
        }
        self.look(echo, Matcher::end_of_chunk);
        if self.bell
            && let Some(at) = signs.bell.filter(|at| *at >= self.begin)
        {
            self.bell = false;
            let before = self.was_there(at + 1);
            self.core.latch_kind(self.at, PredicateKind::Bell, Latch { offset: Some(at), before, ..Latch::default() });
        }
        if self.prompt
            && let Some((at, true)) = signs.prompt.filter(|(at, _)| *at > self.begin)
        {
            self.prompt = false;
            let before = self.was_there(at);
            let latch = Latch { offset: Some(at), end: Some(at), how: Some("osc133"), before, ..Latch::default() };
            self.core.latch_kind(self.at, PredicateKind::Prompt, latch);
        }
        if self.prompt {
            // The driver has looked for a prompt where the stream rested before, and waits for nothing but the time limit.
            let tried = self.core.lock().panes.get_mut(self.at).and_then(|on_pane| on_pane.prompt_tried.take());
            if tried.is_some() {
                self.core.wake.notify_one();
            }
        }
        if self.matcher.as_ref().is_some_and(Matcher::wants_rest) {
            let news = {
                let mut progress = self.core.lock();
                let on_pane = progress.panes.get_mut(self.at);
                on_pane.is_some_and(|on_pane| !std::mem::replace(&mut on_pane.wants_rest, true))
            };
            if news {
                self.core.wake.notify_one();
            }
        }
        !self.core.is_over()
    }

    /// The screen changed: `changes`, or all of it. A pattern that stands within a line is looked for in the lines that changed.
    pub fn shown(&mut self, view: &View, changes: Option<&Changes>, end: u64) {
        if self.screens.is_empty() || self.core.is_over() {
            return;
        }
        let Some(screen) = view.followed() else {
            self.missed = true;
            return;
        };
        let changes = changes.filter(|_| !std::mem::take(&mut self.missed));
        if changes.is_some_and(Changes::is_empty) {
            return;
        }
        let (core, at) = (self.core.clone(), self.at);
        let before = core.lock().panes.get(at).is_some_and(|on_pane| end <= on_pane.asked_at);
        self.screens.retain(|predicate| {
            let wanted = core.spec.predicates.get(*predicate);
            match wanted.and_then(|wanted| on_screen::find(wanted, screen, changes, end, before)) {
                Some(latch) => {
                    core.latch(at, *predicate, latch);
                    false
                }
                None => true,
            }
        });
    }

    /// Whether what ends at this offset had been printed before the wait was asked.
    fn was_there(&self, end: u64) -> bool {
        self.core.lock().panes.get(self.at).is_some_and(|on_pane| end <= on_pane.asked_at)
    }

    /// The stream rests. Answers whether to go on.
    pub fn rest(&mut self, echo: &EchoFilter) -> bool {
        self.look(echo, Matcher::rest);
        !self.core.is_over()
    }

    /// The title is this now. Answers whether to go on.
    pub fn title(&mut self, title: &str) -> bool {
        let predicate = self.core.spec.index_of(PredicateKind::Title);
        let regex = predicate.and_then(|index| self.core.spec.predicates.get(index)?.regex.as_ref());
        if let Some(found) = regex.and_then(|regex| regex.captures(title)) {
            let captures = found.iter().map(|group| group.map(|group| group.as_str().to_owned())).collect();
            let latch = Latch { line: Some(title.to_owned()), captures, ..Latch::default() };
            self.core.latch_kind(self.at, PredicateKind::Title, latch);
        }
        !self.core.is_over()
    }

    /// Output is missing here.
    pub fn gap(&self, gap: Gap) {
        self.core.on_pane(self.at, |on_pane| on_pane.gap = on_pane.gap.or(Some(gap)));
    }

    /// The process has ended.
    pub fn ended(&self, exit: Exit) {
        self.core.ended(self.at, exit);
    }

    fn look(
        &mut self,
        echo: &EchoFilter,
        look: impl FnOnce(&mut Matcher, &mut dyn FnMut(&Hit) -> Verdict) -> Vec<Hit>,
    ) {
        let Some(matcher) = &mut self.matcher else { return };
        let from = &self.from;
        let hits = look(matcher, &mut |hit| {
            if from.get(hit.pattern).is_some_and(|from| hit.start < *from) {
                return Verdict::Reject;
            }
            let text = hit.captures.first().and_then(Option::as_deref).unwrap_or_default();
            match echo.verdict(hit.start, hit.end, text) {
                echo::Verdict::Answer => Verdict::Accept,
                echo::Verdict::Echo => Verdict::Reject,
                echo::Verdict::Undecided => Verdict::Later,
            }
        });
        for hit in hits {
            self.core.hit(self.at, hit);
        }
    }
}

impl TextSink for Watcher {
    fn text(&mut self, offset: u64, text: &[u8]) {
        if let Some(matcher) = &mut self.matcher {
            matcher.text(offset, text);
        }
    }

    fn control(&mut self, offset: u64, control: Control) {
        if let Some(matcher) = &mut self.matcher {
            matcher.control(offset, control);
        }
    }
}
