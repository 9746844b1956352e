//! The part of a wait that is in a pane and sees every byte.

use std::sync::Arc;

use muxtap_api::{Gap, PredicateKind};
use muxtap_core::{
    marks::CommandLog,
    screen::Changes,
    stream::{
        echo::{self, EchoFilter},
        matcher::{Hit, Matcher, Verdict},
        text::{Control, TextSink},
    },
};
use muxtap_tmux::Exit;

use super::{
    awaited::AwaitedCommand,
    budget::Built,
    core::{Core, Latch, PromptRule},
    on_screen,
    stored::{PreparedWatcher, StoredWatcher},
};

use crate::pane::{Watch, screen_model::ScreenModel, shell_marks::ShellMarks};

/// Watches one pane for one wait.
pub struct Watcher {
    core: Arc<Core>,
    /// The index of the pane within the wait.
    at: usize,
    matcher: Option<Matcher>,
    /// Counts the memory that the matcher's searches have built.
    built: Option<Built>,
    /// For each regex of the set, the offset before which a match was already answered.
    from: Vec<u64>,
    /// The offset before which bells and marks do not count.
    start: u64,
    wants_bell: bool,
    wants_prompt: bool,
    /// The command whose end is awaited, if one is.
    command: Option<AwaitedCommand>,
    /// The indices of the screen predicates that are not satisfied yet.
    open_screens: Vec<usize>,
    /// Whether rows changed while they could not be examined.
    screen_missed: bool,
}

impl Watcher {
    pub(super) fn new(
        core: &Arc<Core>,
        at: usize,
        from: Vec<u64>,
        start: u64,
        command: Option<AwaitedCommand>,
    ) -> Self {
        let has = |kind| core.spec.index_of(kind).is_some();
        Self {
            at,
            matcher: core.spec.set.clone().map(Matcher::new),
            built: core.spec.compiled.first().and_then(|compiled| compiled.searching()),
            from,
            start,
            wants_bell: has(PredicateKind::Bell),
            wants_prompt: has(PredicateKind::Prompt),
            command,
            open_screens: core.spec.screens().map(|(predicate, _)| predicate).collect(),
            screen_missed: false,
            core: core.clone(),
        }
    }

    /// Continues the search of another process.
    pub(super) fn continued(core: &Arc<Core>, at: usize, prepared: PreparedWatcher) -> Self {
        let PreparedWatcher { stored, matcher, command } = prepared;
        let StoredWatcher { start, wants_bell, wants_prompt, open_screens, screen_missed, .. } = stored;
        let from = core.lock().panes.get(at).map(|on_pane| on_pane.from.clone()).unwrap_or_default();
        let watcher = Self::new(core, at, from, start, command);
        Self { matcher, wants_bell, wants_prompt, open_screens, screen_missed, ..watcher }
    }

    /// Returns whether output that ends at this offset had been printed before the wait was
    /// requested.
    fn is_before_request(&self, end: u64) -> bool {
        self.core.lock().panes.get(self.at).is_some_and(|on_pane| end <= on_pane.request_offset)
    }

    fn collect_hits(
        &mut self,
        echo: &EchoFilter,
        collect: impl FnOnce(&mut Matcher, &mut dyn FnMut(&Hit) -> Verdict) -> Vec<Hit>,
    ) {
        let Some(matcher) = &mut self.matcher else { return };
        let from = &self.from;
        let hits = collect(matcher, &mut |hit| {
            if from.get(hit.pattern).is_some_and(|from| hit.start < *from) {
                return Verdict::Reject;
            }
            match echo.verdict(hit.start, hit.end) {
                echo::Verdict::Answer => Verdict::Accept,
                echo::Verdict::Echo => Verdict::Reject,
                echo::Verdict::Undecided => Verdict::Later,
            }
        });
        // Beyond the budget of all searches, each search starts over with its next text: that costs
        // time, but never a match.
        if let Some(built) = &mut self.built
            && !built.set(matcher.memory())
        {
            matcher.shed();
            built.set(matcher.memory());
        }
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

impl Watch for Watcher {
    fn owner(&self) -> &str {
        &self.core.id
    }

    fn store(&self) -> postcard::Result<Vec<u8>> {
        let Self { start, wants_bell, wants_prompt, screen_missed, .. } = *self;
        postcard::to_allocvec(&StoredWatcher {
            matcher: self.matcher.as_ref().map(Matcher::store),
            start,
            wants_bell,
            wants_prompt,
            command: self.command.as_ref().map(AwaitedCommand::number),
            open_screens: self.open_screens.clone(),
            screen_missed,
        })
    }

    /// Evaluates the text of a chunk after all of it was passed on.
    fn end_of_chunk(&mut self, echo: &EchoFilter, shell_marks: &ShellMarks) {
        if self.core.is_over() {
            return;
        }
        self.collect_hits(echo, Matcher::end_of_chunk);
        if self.wants_bell
            && let Some(at) = shell_marks.bell.filter(|at| *at >= self.start)
        {
            self.wants_bell = false;
            let before = self.is_before_request(at + 1);
            self.core.latch_kind(self.at, PredicateKind::Bell, Latch { offset: Some(at), before, ..Latch::default() });
        }
        if self.wants_prompt
            && let Some((at, true)) = shell_marks.prompt.filter(|(at, _)| *at > self.start)
        {
            self.wants_prompt = false;
            let before = self.is_before_request(at);
            let latch =
                Latch { offset: Some(at), end: Some(at), how: Some(PromptRule::Marks), before, ..Latch::default() };
            self.core.latch_kind(self.at, PredicateKind::Prompt, latch);
        }
        if self.wants_prompt {
            // The driver has tried the prompt rule where the stream was quiet before, and now waits
            // only for the timeout.
            let tried = self.core.lock().panes.get_mut(self.at).and_then(|on_pane| on_pane.prompt_tried_at.take());
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
    }

    /// Evaluates the command that is awaited.
    fn commands_changed(&mut self, log: &CommandLog) {
        let ended = self.command.as_mut().and_then(|awaited| awaited.ended(log));
        if let Some(command) = ended {
            self.command = None;
            let end = command.ended_at;
            let latch = Latch {
                offset: Some(command.output.start),
                end,
                line: command.line.as_ref().map(|line| line.text.clone()),
                before: end.is_some_and(|end| self.is_before_request(end)),
                command: Some(Box::new(command.clone())),
                ..Latch::default()
            };
            self.core.latch_kind(self.at, PredicateKind::Command, latch);
        }
    }

    /// Evaluates matches that only a quiet stream can decide.
    fn stream_rested(&mut self, echo: &EchoFilter) {
        self.collect_hits(echo, Matcher::rest);
    }

    /// Evaluates the screen predicates after the screen changed: in `changes`, or anywhere. A
    /// pattern that stays within a line is searched for only in the changed lines.
    fn screen_changed(&mut self, screen: &ScreenModel, changes: Option<&Changes>, end: u64) {
        if self.open_screens.is_empty() || self.core.is_over() {
            return;
        }
        let Some(screen) = screen.followed() else {
            self.screen_missed = true;
            return;
        };
        let changes = changes.filter(|_| !std::mem::take(&mut self.screen_missed));
        if changes.is_some_and(Changes::is_empty) {
            return;
        }
        let (core, at) = (self.core.clone(), self.at);
        let before = core.lock().panes.get(at).is_some_and(|on_pane| end <= on_pane.request_offset);
        self.open_screens.retain(|predicate| {
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

    /// Matches the pane's new title.
    fn title_changed(&mut self, title: &str) {
        let predicate = self.core.spec.index_of(PredicateKind::Title);
        let regex = predicate.and_then(|index| self.core.spec.predicates.get(index)?.regex.as_ref());
        if let Some(found) = regex.and_then(|regex| regex.find(title)) {
            let captures = found.groups().map(|group| group.map(str::to_owned)).collect();
            let latch = Latch { line: Some(title.to_owned()), captures, ..Latch::default() };
            self.core.latch_kind(self.at, PredicateKind::Title, latch);
        }
    }

    /// Records a gap in the output.
    fn record_gap(&self, gap: Gap) {
        self.core.update_pane(self.at, |on_pane| on_pane.gap = on_pane.gap.or(Some(gap)));
    }

    /// Records that the pane's process has ended.
    fn pane_ended(&self, exit: Exit) {
        self.core.pane_ended(self.at, exit);
    }
}
