//! What a wait tells.

use std::sync::Arc;

use super::core::{Core, Latch, OnPane};
use crate::{
    api::{PredicateKind, PredicateReport, WaitAnswer, WaitOutcome},
    engine::{Engine, Pane, limits},
    metrics,
};

impl Engine {
    /// The wait as it stands now.
    pub(super) async fn answer(&self, core: &Arc<Core>) -> WaitAnswer {
        let (mut answer, timed_out) = report(core);
        if timed_out && let [pane] = core.panes.as_slice() {
            // On a pane that has gone meanwhile there is no screen to show.
            if let Ok((text, _)) = self.screen(&core.host, pane, false).await {
                let lines: Vec<_> = text.trim_end().lines().collect();
                let tail = lines.get(lines.len().saturating_sub(limits::TIMEOUT_LINES)..).unwrap_or_default();
                answer.screen = Some(tail.join("\n"));
            }
        }
        answer
    }
}

fn report(core: &Core) -> (WaitAnswer, bool) {
    let mut progress = core.lock();
    let over = progress.end.is_some();
    let first = over && !std::mem::replace(&mut progress.reported, over);
    let mut predicates = Vec::new();
    for (pane, on_pane) in core.panes.iter().zip(&progress.panes) {
        for (predicate, latch) in core.spec.predicates.iter().zip(&on_pane.latches) {
            predicates.push(one(pane, predicate.kind, predicate.text.clone(), latch.as_ref()));
        }
        if let Some((pattern, latch)) = &on_pane.failed {
            let text = core.spec.text_of(*pattern).to_owned();
            predicates.push(one(pane, PredicateKind::Fail, Some(text), Some(latch)));
        }
    }
    let end = progress.end;
    let decided_by = end.and_then(|end| end.pane);
    let deciding = decided_by.and_then(|at| Some((core.panes.get(at)?, progress.panes.get(at)?)));
    let mut cursor = None;
    let mut answered = Vec::new();
    if let Some(end) = end {
        if first {
            metrics::WAIT_LATENCY.record(end.at.elapsed().as_secs_f64());
        }
        if first && end.outcome == WaitOutcome::Matched {
            for (pane, on_pane) in core.panes.iter().zip(&progress.panes) {
                answered.push((pane.clone(), matches(core, on_pane)));
            }
        }
        cursor = deciding.map(|(pane, on_pane)| (pane.clone(), last_end(on_pane)));
    }
    let exit = deciding.and_then(|(_, on_pane)| on_pane.ended);
    let answer = WaitAnswer {
        id: core.id.clone(),
        outcome: end.map_or(WaitOutcome::Pending, |end| end.outcome),
        pane: deciding.map(|(pane, _)| pane.id().to_string()),
        predicates,
        cursor: None,
        duration_ms: ms(end.map_or_else(|| core.asked.elapsed(), |end| end.at.duration_since(core.asked))),
        gap: progress.panes.iter().find_map(|on_pane| on_pane.gap),
        screen: None,
        exit_status: exit.and_then(|exit| exit.status),
        exit_signal: exit.and_then(|exit| exit.signal),
    };
    // A pane's lock is never taken while the wait's is held.
    drop(progress);
    for (pane, matches) in answered {
        pane.answered(matches);
    }
    let cursor = cursor.map(|(pane, end)| end.map_or_else(|| pane.end_cursor(), |end| pane.cursor(end)).to_string());
    let timed_out = answer.outcome == WaitOutcome::Timeout;
    (WaitAnswer { cursor, ..answer }, timed_out)
}

/// The patterns that were satisfied on a pane and where.
fn matches(core: &Core, on_pane: &OnPane) -> Vec<(String, u64)> {
    let latched = core.spec.predicates.iter().zip(&on_pane.latches);
    latched
        .filter(|(predicate, _)| predicate.kind == PredicateKind::Pattern)
        .filter_map(|(predicate, latch)| Some((predicate.text.clone()?, latch.as_ref()?.end?)))
        .collect()
}

fn last_end(on_pane: &OnPane) -> Option<u64> {
    let latched = on_pane.latches.iter().flatten().chain(on_pane.failed.iter().map(|(_, latch)| latch));
    latched.filter_map(|latch| latch.end).max()
}

fn one(pane: &Arc<Pane>, kind: PredicateKind, pattern: Option<String>, latch: Option<&Latch>) -> PredicateReport {
    let latched = latch.is_some();
    let latch = latch.cloned().unwrap_or_default();
    PredicateReport {
        kind,
        pane: pane.id().to_string(),
        pattern,
        latched,
        offset: latch.offset,
        line: latch.line,
        captures: latch.captures,
        groups: latch.groups,
        after_ms: latched.then(|| ms(latch.after)),
        before: latch.before,
        how: latch.how.map(str::to_owned),
    }
}

fn ms(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
