//! Reports of a wait: its current state, and its result after the end.

use std::sync::Arc;

use muxtap_api::{CommandInfo, PredicateKind, PredicateReport, WaitAnswer, WaitOutcome};
use tokio::time::Instant;

use super::{
    awaited::{AwaitedCommand, UNMARKED},
    core::{Core, Latch, PaneProgress},
    earlier,
    result::{Matches, WaitResult},
};

use crate::{Engine, PaneState, Server, limits};

impl Engine {
    /// Returns the result of an ended wait, made once.
    pub(super) async fn result(&self, core: &Arc<Core>) -> Arc<WaitResult> {
        let result = core.result.get_or_init(|| async {
            earlier::record(self, core).await;
            let (mut answer, matches) = report(core);
            if answer.outcome == WaitOutcome::Timeout
                && let [pane] = core.panes.as_slice()
            {
                answer.screen = self.last_lines(core, pane).await;
            }
            let ended = core.lock().end.map_or_else(Instant::now, |end| end.at);
            Arc::new(WaitResult::new(answer, ended, matches))
        });
        result.await.clone()
    }

    /// Returns the last lines of the screen, or `None` for a pane that no longer exists.
    async fn last_lines(&self, core: &Core, pane: &Arc<PaneState>) -> Option<String> {
        let server = Server::of(self.clone(), core.host.clone());
        let (text, _) = tokio::select! {
            screen = server.screen(pane, false) => screen.ok()?,
            () = self.stopping() => return None,
            // The answer is due now; these lines are optional.
            () = tokio::time::sleep(limits::ANSWER_GRACE) => return None,
        };
        let lines: Vec<_> = text.trim_end().lines().collect();
        let tail = lines.get(lines.len().saturating_sub(limits::TIMEOUT_LINES)..).unwrap_or_default();
        Some(tail.join("\n"))
    }
}

/// Reports a wait's current state, with the matches to mark once the report is acknowledged.
pub(super) fn report(core: &Core) -> (WaitAnswer, Matches) {
    let progress = core.lock();
    let (mut predicates, mut commands) = (Vec::new(), Vec::new());
    for (pane, on_pane) in core.panes.iter().zip(&progress.panes) {
        for (index, (predicate, latch)) in core.spec.predicates.iter().zip(&on_pane.latches).enumerate() {
            let mut report = one(pane, predicate.kind, predicate.text.clone(), latch.as_ref());
            report.stands_before = on_pane.stands_before.get(index).cloned().flatten();
            if let Some(exit) = on_pane.ended.filter(|_| predicate.kind == PredicateKind::Exit) {
                (report.exit_status, report.exit_signal) = (exit.status, exit.signal);
            }
            if predicate.kind == PredicateKind::Command {
                let ended = latch.as_ref().and_then(|latch| latch.command.clone());
                commands.push((predicates.len(), pane.clone(), ended));
            }
            predicates.push(report);
        }
        if let Some((pattern, latch)) = &on_pane.failed {
            let text = core.spec.text_of(*pattern).to_owned();
            predicates.push(one(pane, PredicateKind::Fail, Some(text), Some(latch)));
        }
    }
    let end = progress.end;
    let decided_by = end.and_then(|end| end.pane);
    let deciding = decided_by.and_then(|at| Some((core.panes.get(at)?, progress.panes.get(at)?)));
    let mut answered = Vec::new();
    if end.is_some_and(|end| end.outcome == WaitOutcome::Matched) {
        for (pane, on_pane) in core.panes.iter().zip(&progress.panes) {
            answered.push((Arc::downgrade(pane), matches(core, on_pane)));
        }
    }
    let cursor = deciding.map(|(pane, on_pane)| (pane.clone(), last_end(on_pane)));
    let exit = deciding.and_then(|(_, on_pane)| on_pane.ended);
    let mut answer = WaitAnswer {
        id: core.id.clone(),
        outcome: end.map_or(WaitOutcome::Pending, |end| end.outcome),
        pane: deciding.map(|(pane, _)| pane.id()),
        host: None,
        predicates,
        cursor: None,
        duration_ms: ms(end.map_or_else(Instant::now, |end| end.at).duration_since(core.requested_at)),
        gap: progress.panes.iter().find_map(|on_pane| on_pane.gap),
        screen: None,
        exit_status: exit.and_then(|exit| exit.status),
        exit_signal: exit.and_then(|exit| exit.signal),
        not_kept: None,
        unreachable: Vec::new(),
    };
    // A pane's lock is never taken while the wait's is held.
    drop(progress);
    for (at, pane, ended) in commands {
        let Some(report) = answer.predicates.get_mut(at) else { continue };
        match ended {
            Some(command) => report.command = Some(Box::new(CommandInfo::from(&pane.place_command(&command)))),
            None if pane.lock().command_log().next_number() == 1 => report.how = Some(UNMARKED.to_owned()),
            None => {}
        }
    }
    let cursor = cursor.map(|(pane, end)| end.map_or_else(|| pane.end_cursor(), |end| pane.cursor(end)));
    (WaitAnswer { cursor, ..answer }, answered)
}

/// Returns the patterns that matched on a pane, and where; a command that ended, too.
fn matches(core: &Core, on_pane: &PaneProgress) -> Vec<(String, u64)> {
    let latched = core.spec.predicates.iter().zip(&on_pane.latches);
    latched
        .filter_map(|(predicate, latch)| {
            let latch = latch.as_ref()?;
            match predicate.kind {
                PredicateKind::Pattern => Some((predicate.text.clone()?, latch.end?)),
                PredicateKind::Command => Some((AwaitedCommand::ANSWERED.to_owned(), latch.end?)),
                _ => None,
            }
        })
        .collect()
}

fn last_end(on_pane: &PaneProgress) -> Option<u64> {
    let latched = on_pane.latches.iter().flatten().chain(on_pane.failed.iter().map(|(_, latch)| latch));
    latched.filter_map(|latch| latch.end).max()
}

fn one(pane: &Arc<PaneState>, kind: PredicateKind, pattern: Option<String>, latch: Option<&Latch>) -> PredicateReport {
    let latched = latch.is_some();
    let latch = latch.cloned().unwrap_or_default();
    PredicateReport {
        kind,
        pane: pane.id(),
        host: None,
        pattern,
        latched,
        offset: latch.offset,
        line: latch.line,
        captures: latch.captures,
        groups: latch.groups,
        after_ms: latched.then(|| ms(latch.after)),
        before: latch.before,
        stands_before: None,
        how: latch.how.map(|rule| rule.as_str().to_owned()),
        exit_status: None,
        exit_signal: None,
        command: None,
    }
}

fn ms(duration: std::time::Duration) -> f64 {
    // Whole microseconds: further digits are noise.
    (duration.as_secs_f64() * 1e6).round() / 1000.0
}
