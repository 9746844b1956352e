//! The driver of a wait: evaluates what only time (quiet, prompts by rule, timeouts) or only the
//! screen can decide.

use std::sync::{Arc, LazyLock};

use futures_util::{StreamExt, stream::FuturesUnordered};
use muxtap_api::{PredicateKind, Since, WaitMode, WaitOutcome};
use regex::Regex;
use tokio::time::Instant;

use super::{
    core::{Core, Latch, PromptRule},
    on_screen,
};

use crate::{PaneState, Server, input::shell, limits, pane::PaneMetadata};

/// Matches a line that ends like a prompt: `$ `, `# `, `% `, `> `, `>>> `, `❯ ` …
static PROMPT_LINE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?:[$#%>❯➜λ»]|\)>)\s?$").ok());

/// Drives a wait for as long as it is open, or until another daemon continues it.
pub(super) async fn drive(server: &Server, core: &Arc<Core>) {
    let waits = &server.engine.shared.waits;
    let mut screens = FuturesUnordered::new();
    if core.spec.screens().next().is_some() {
        for (at, pane) in core.panes.iter().enumerate() {
            screens.push(watch_screen(server, core, at, pane));
        }
    }
    let mut prompts = FuturesUnordered::new();
    loop {
        let deadline = deadline(core);
        // What only time decides is left to the daemon that takes over, once this one hands over.
        let due = async {
            tokio::time::sleep_until(deadline).await;
            waits.going_on().await;
        };
        tokio::select! {
            biased;
            () = waits.left(core) => return,
            () = core.over() => return,
            () = server.engine.stopping() => core.finish(WaitOutcome::Cancelled, None),
            () = due => {
                for (at, candidate) in run_due(core) {
                    prompts.push(latch_if_interactive(server, core, at, candidate));
                }
            }
            () = core.wake.notified() => {}
            Some(()) = screens.next() => {}
            Some(()) = prompts.next() => {}
        }
    }
}

/// Returns the next time at which a deadline is due.
fn deadline(core: &Core) -> Instant {
    let mut next = core.requested_at + core.spec.timeout;
    for (at, pane) in core.panes.iter().enumerate() {
        let quiet = quiet_on(core, at, pane);
        if let Some(stable) = core.spec.stable.filter(|_| is_open(core, at, PredicateKind::Stable)) {
            next = next.min(quiet.since_start + stable);
        }
        if core.lock().panes.get(at).is_some_and(|on_pane| on_pane.wants_rest) {
            next = next.min(quiet.since + limits::REST);
        }
        if is_open(core, at, PredicateKind::Prompt) && !was_tried(core, at, quiet.end) {
            next = next.min(quiet.since + limits::PROMPT_REST);
        }
    }
    settled_at(core).map_or(next, |settled| next.min(settled))
}

/// Evaluates all due deadlines. Returns the panes that may show a prompt.
fn run_due(core: &Arc<Core>) -> Vec<(usize, PromptCandidate)> {
    let now = Instant::now();
    let mut prompts = Vec::new();
    for (at, pane) in core.panes.iter().enumerate() {
        let quiet = quiet_on(core, at, pane);
        let wants_rest = {
            let mut progress = core.lock();
            let due = quiet.since + limits::REST <= now;
            progress.panes.get_mut(at).is_some_and(|on_pane| due && std::mem::take(&mut on_pane.wants_rest))
        };
        if wants_rest {
            pane.lock().rest_watchers();
        }
        if let Some(stable) = core.spec.stable
            && quiet.since_start + stable <= now
        {
            core.latch_kind(at, PredicateKind::Stable, Latch { offset: Some(quiet.end), ..Latch::default() });
        }
        if is_open(core, at, PredicateKind::Prompt)
            && quiet.since + limits::PROMPT_REST <= now
            && !was_tried(core, at, quiet.end)
        {
            if let Some(on_pane) = core.lock().panes.get_mut(at) {
                on_pane.prompt_tried_at = Some(quiet.end);
            }
            match find_prompt(core, pane) {
                Prompt::Certain(latch) => core.latch_kind(at, PredicateKind::Prompt, latch),
                Prompt::Candidate(candidate) => prompts.push((at, candidate)),
                Prompt::None => {}
            }
        }
    }
    if settled_at(core).is_some_and(|settled| settled <= now) {
        let decided_by = match core.spec.mode {
            WaitMode::Any => first_settled(core),
            WaitMode::All => (core.panes.len() == 1).then_some(0),
        };
        core.finish(WaitOutcome::Matched, decided_by);
    }
    if core.requested_at + core.spec.timeout <= now {
        core.finish(WaitOutcome::Timeout, (core.panes.len() == 1).then_some(0));
    }
    prompts
}

/// How long a pane has been quiet.
struct Quiet {
    /// The time of its last byte.
    since: Instant,
    /// The time of its last byte, or the time from which quiet counts for this wait if that is
    /// later.
    since_start: Instant,
    /// The stream's end.
    end: u64,
}

fn quiet_on(core: &Core, at: usize, pane: &PaneState) -> Quiet {
    let (since, end) = {
        let locked = pane.lock();
        (locked.quiet_since(), locked.ring().end())
    };
    let begin = core.lock().panes.get(at).and_then(|on_pane| on_pane.quiet_since);
    Quiet { since, since_start: begin.map_or(since, |begin| begin.max(since)), end }
}

fn is_open(core: &Core, at: usize, kind: PredicateKind) -> bool {
    let Some(predicate) = core.spec.index_of(kind) else { return false };
    let progress = core.lock();
    progress
        .panes
        .get(at)
        .is_some_and(|on_pane| on_pane.ended.is_none() && on_pane.latches.get(predicate).is_some_and(Option::is_none))
}

fn screens_open(core: &Core, at: usize) -> bool {
    let progress = core.lock();
    let Some(on_pane) = progress.panes.get(at) else { return false };
    core.spec.screens().any(|(predicate, _)| on_pane.latches.get(predicate).is_some_and(Option::is_none))
}

fn was_tried(core: &Core, at: usize, end: u64) -> bool {
    core.lock().panes.get(at).is_some_and(|on_pane| on_pane.prompt_tried_at == Some(end))
}

/// Returns when the panes on which all predicates are latched have been quiet for long enough.
fn settled_at(core: &Core) -> Option<Instant> {
    let settled = settled(core).map(|(_, at)| at);
    match core.spec.mode {
        WaitMode::Any => settled.min(),
        WaitMode::All => settled.max(),
    }
}

fn first_settled(core: &Core) -> Option<usize> {
    settled(core).min_by_key(|(_, when)| *when).map(|(at, _)| at)
}

fn settled(core: &Core) -> impl Iterator<Item = (usize, Instant)> {
    let settle = core.spec.settle.unwrap_or_default();
    core.settling().into_iter().filter_map(move |(at, complete)| {
        let quiet_since = core.panes.get(at)?.lock().quiet_since();
        Some((at, complete.max(quiet_since) + settle))
    })
}

/// The verdict of the prompt rule on a stream's last line.
enum Prompt {
    None,
    Certain(Latch),
    Candidate(PromptCandidate),
}

/// A line that looks like a prompt.
struct PromptCandidate {
    latch: Latch,
    /// The pane's metadata and the stream's end at the time of that line.
    about: PaneMetadata,
    end: u64,
    /// Whether a shell has marked a command, which still runs.
    within_command: bool,
}

/// Searches for a prompt: by the shell's marks or, without any, by a line that ends like one. While a
/// marked command runs, that may be another shell, which does not mark its prompts.
fn find_prompt(core: &Core, pane: &PaneState) -> Prompt {
    let (line, about, end, last_input, marked, within_command) = {
        let locked = pane.lock();
        let input = locked.since_input().map(|(offset, _)| offset);
        let marks = locked.shell_marks();
        let (marked, runs) = (marks.prompt, marks.runs_command());
        (locked.resting_line(), locked.metadata().clone(), locked.ring().end(), input, marked, runs)
    };
    if let Some((offset, rests)) = marked.filter(|_| !within_command) {
        // This shell marks its prompts, so its marks decide. Some shells do not mark the beginning
        // of a command, so a prompt into which text was typed may seem idle.
        let answered = core.spec.since == Since::Input && last_input.is_some_and(|input| offset <= input);
        if !rests || answered {
            return Prompt::None;
        }
        return Prompt::Certain(Latch {
            offset: Some(offset),
            line: Some(line),
            how: Some(PromptRule::Marks),
            before: true,
            ..Latch::default()
        });
    }
    // A prompt into which text was just typed is not the next one.
    let typed_into = core.spec.since == Since::Input && last_input.is_some_and(|input| end <= input);
    if typed_into || !PROMPT_LINE.as_ref().is_some_and(|regex| regex.is_match(&line)) {
        return Prompt::None;
    }
    let latch = Latch { offset: Some(end), line: Some(line), how: Some(PromptRule::Line), ..Latch::default() };
    Prompt::Candidate(PromptCandidate { latch, about, end, within_command })
}

/// Latches a prompt candidate if the program that reads the terminal is interactive. The check
/// takes time: a pane that has printed meanwhile is examined again when it is quiet.
async fn latch_if_interactive(server: &Server, core: &Core, at: usize, candidate: PromptCandidate) {
    let PromptCandidate { latch, about, end, within_command } = candidate;
    let host = &server.host;
    let reads =
        if within_command { shell::is_inner_shell(host, about).await } else { shell::reads_lines(host, about).await };
    server.engine.shared.waits.going_on().await;
    let rests = core.panes.get(at).is_some_and(|pane| pane.lock().ring().end() == end);
    if reads && rests {
        core.latch_kind(at, PredicateKind::Prompt, latch);
    }
}

/// Queries tmux for a screen that is not followed, now and after each change of the pane, until all
/// screen predicates are satisfied. While one query is open, further changes cause one further
/// query.
async fn watch_screen(server: &Server, core: &Arc<Core>, at: usize, pane: &Arc<PaneState>) {
    let mut changes = pane.changes();
    loop {
        changes.borrow_and_update();
        // The watcher in the pane sees every change of a followed screen.
        let followed = {
            let locked = pane.lock();
            // Text that commands put into a pane without a process is in no output.
            locked.screen().followed().is_some() && !locked.has_no_process()
        };
        if !followed && let Ok((text, offset)) = server.screen(pane, false).await {
            let before = core.lock().panes.get(at).is_some_and(|on_pane| offset <= on_pane.request_offset);
            for (index, predicate) in core.spec.screens() {
                if let Some(latch) = on_screen::in_text(&text, predicate, offset, before) {
                    core.latch(at, index, latch);
                }
            }
        }
        if !screens_open(core, at) || changes.changed().await.is_err() {
            return;
        }
    }
}
