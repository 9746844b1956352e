//! Holds panes that flood, so that a user's `respawn-pane` does not crash the server.
//!
//! Up to 3.7c a respawn of a pane crashes the server if output of the pane still waits for a
//! control client (N98), and of a pane that prints megabytes a second some output always waits. A
//! pane that is *paused* for the client is safe. So a pane that floods is paused and stays paused
//! ([`FollowedPane::hold`]). Its content is read about once a second, each time with a gap, and
//! when it seems calm the hold ends. A paused pane reports nothing, so that is a guess: a pane that
//! continues to flood is held again after [`CAUTION`] bytes, and has to seem calm for longer the
//! next time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use muxtap_api::GapReason;
use muxtap_base::metrics;
use muxtap_core::protocol::{
    command::{Command, CommandLine},
    ids::PaneId,
};
use tokio::time::Instant;

use super::{
    connection::Request,
    coverage::Inner,
    followed::FollowedPane,
    seeding::{barrier, pane_flow_command},
};

/// Bytes a second that a pane may print without being held.
const RATE: u32 = 1 << 20;
/// Bytes that it may print at once on top of that: four times a ring, so that little is lost that
/// would have been kept.
const BURST: u32 = 4 << 20;
/// The weight of a byte that has waited in tmux: a respawn could have come meanwhile.
const LATE: u32 = 4;
/// Bytes that a pane may print at once right after a hold.
const CAUTION: u32 = 64 << 10;
/// Time between two looks at a pane that is held.
const LOOK: Duration = Duration::from_millis(200);
/// Looks after which its content is read again, if it has changed; more for a history above
/// [`READ_AT_ONCE`].
const LOOKS_A_READING: u32 = 5;
/// Lines of history that are read at once; a history twice as long is read half as often.
const READ_AT_ONCE: u64 = 5000;
/// Consecutive looks that show a calm pane before the hold ends.
const CALM_LOOKS: u32 = 3;
/// The upper bound of [`CALM_LOOKS`], which doubles with each relapse.
const MOST_CALM_LOOKS: u32 = 50;
/// Consecutive looks without output in the pane's window before the hold ends.
const SILENT_LOOKS: u32 = 10;
/// Looks at one process after which the hold of a pane that never seems calm ends: it may draw much
/// and print little.
const TRIAL_LOOKS: u32 = 25;
/// The upper bound of [`TRIAL_LOOKS`], which doubles with each relapse.
const MOST_TRIAL_LOOKS: u32 = 1600;
/// Looks that find no connection carrying the pane before the hold ends.
const UNSEEN_LOOKS: u32 = 150;
/// Time after a hold within which a new flood counts as a relapse.
const TRUSTED: Duration = Duration::from_secs(10);

/// The treatment of a pane that floods, on a server that a respawn of the pane could crash (before
/// tmux 3.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Floods {
    /// Its content is read about once a second, with gaps.
    #[default]
    Hold,
    /// All of its output is followed. A user's plain `respawn-pane -k` of it can crash the server.
    Follow,
}

/// The allowance of a pane before it is held: a bucket that fills with time.
///
/// The draining task of the pane's owner takes out of it and holds no lock. While two tasks overlap
/// (the pane changes its owner), bytes may go uncounted.
#[derive(Debug)]
pub struct Allowance {
    begun: Instant,
    left: AtomicU32,
    /// The time of the last fill, in milliseconds since `begun`.
    filled_ms: AtomicU64,
}

impl Default for Allowance {
    fn default() -> Self {
        Self::begin(Instant::now())
    }
}

impl Allowance {
    /// Makes a full bucket.
    fn begin(begun: Instant) -> Self {
        Self { begun, left: BURST.into(), filled_ms: 0.into() }
    }

    /// Takes `bytes` out of the allowance and returns whether they exceed it. They waited in tmux
    /// for `waited` milliseconds; the bucket does not fill during that time, so that on a slow
    /// machine a slow flood is held as well.
    pub fn is_exceeded_by(&self, bytes: usize, waited: u64, now: Instant) -> bool {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).saturating_mul(if waited > 0 { LATE } else { 1 });
        let (now_ms, mut left) = (self.ms_of(now), self.left.load(Ordering::Relaxed));
        let millis = now_ms.saturating_sub(self.filled_ms.load(Ordering::Relaxed));
        if millis > 0 {
            let more = u64::from(RATE).saturating_mul(millis.saturating_sub(waited)) / 1000;
            left = u32::try_from(more).unwrap_or(u32::MAX).saturating_add(left).min(BURST);
            self.filled_ms.store(now_ms, Ordering::Relaxed);
        }
        self.left.store(left.saturating_sub(bytes), Ordering::Relaxed);
        bytes > left
    }

    /// Records the end of a hold.
    pub fn let_go(&self, now: Instant) {
        self.set(CAUTION, now);
    }

    fn set(&self, left: u32, now: Instant) {
        self.left.store(left, Ordering::Relaxed);
        self.filled_ms.store(self.ms_of(now), Ordering::Relaxed);
    }

    fn ms_of(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.begun).as_millis()).unwrap_or(u64::MAX)
    }
}

/// Counts how often a pane was held again soon after a hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Relapses {
    count: u32,
    let_go: Option<Instant>,
}

impl Relapses {
    /// Records the beginning of a hold.
    pub fn held(&mut self, now: Instant) {
        let relapsed = self.let_go.is_some_and(|at| now.saturating_duration_since(at) < TRUSTED);
        self.count = if relapsed { (self.count + 1).min(16) } else { 0 };
    }

    /// Records the end of a hold.
    pub fn let_go(&mut self, now: Instant) {
        self.let_go = Some(now);
    }

    /// Returns the number of looks to await before the hold ends.
    fn patience(&self) -> Patience {
        let more = |looks: u32, most: u32| looks.saturating_mul(1 << self.count).min(most);
        Patience { calm: more(CALM_LOOKS, MOST_CALM_LOOKS), trial: more(TRIAL_LOOKS, MOST_TRIAL_LOOKS) }
    }
}

/// The numbers of looks to await before a hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Patience {
    /// Consecutive calm looks.
    calm: u32,
    /// Looks at one process.
    trial: u32,
}

/// The result of a look at a pane.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    history: u64,
    cursor_row: usize,
    /// The pane's process. A new process may flood, even if its first screen is calm.
    pid: Bytes,
    /// The time of the last output in its window, in seconds.
    activity: Bytes,
    rows: Bytes,
}

impl Look {
    fn question(pane: PaneId) -> Vec<Command> {
        let pane = pane.to_string();
        let place = Command::new("display-message").flag("-p").opt("-t", &pane);
        let place = place.format("#{history_size} #{cursor_y} #{pane_pid} #{window_activity}");
        vec![place, Command::new("capture-pane").flag("-p").opt("-t", &pane)]
    }

    fn parse(parts: &[Bytes]) -> Option<Self> {
        let [place, rows] = parts else { return None };
        let mut fields = place.trim_ascii().splitn(4, |byte| *byte == b' ');
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse::<u64>().ok();
        let (history, cursor_row) = (number()?, usize::try_from(number()?).ok()?);
        let mut text = || Some(place.slice_ref(fields.next()?));
        Some(Self { history, cursor_row, pid: text()?, activity: text()?, rows: rows.clone() })
    }

    /// Returns whether the pane printed less than a screen since `before`: the lines above the
    /// cursor are still on it, shifted up by the lines that moved into the history. If none moved,
    /// only the cursor's row may differ.
    fn is_calm_since(&self, before: &Self) -> bool {
        let Some(scrolled) = self.history.checked_sub(before.history) else { return false };
        let rows = |look: &Self, skipped: usize, count: usize| -> Vec<Bytes> {
            let lines = look.rows.split(|byte| *byte == b'\n').skip(skipped).take(count);
            lines.map(|line| look.rows.slice_ref(line)).collect()
        };
        let scrolled = usize::try_from(scrolled).unwrap_or(usize::MAX);
        if scrolled == 0 {
            let below = before.cursor_row.max(self.cursor_row) + 1;
            let is_same = |skipped, count| rows(before, skipped, count) == rows(self, skipped, count);
            return is_same(0, before.cursor_row.min(self.cursor_row)) && is_same(below, usize::MAX);
        }
        match before.cursor_row.checked_sub(scrolled) {
            Some(count) if count > 0 => rows(before, scrolled, count) == rows(self, 0, count),
            // All those lines have gone.
            _ => false,
        }
    }
}

/// The next step for a pane that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Look again.
    Wait,
    /// Read its content.
    Read,
    /// Follow it again.
    LetGo,
}

/// The looks at a pane that is held.
#[derive(Debug, Default)]
struct Looks {
    last: Option<Look>,
    count: u32,
    /// The looks since its process was first seen.
    of_process: u32,
    calm: u32,
    silent: u32,
    /// Whether it has changed since it was read.
    changed: bool,
}

impl Looks {
    fn take(&mut self, look: Look, patience: Patience) -> Verdict {
        self.count += 1;
        self.of_process += 1;
        if let Some(last) = &self.last {
            let counted = |is_so: bool, before: u32| if is_so { before + 1 } else { 0 };
            self.calm = counted(look.is_calm_since(last), self.calm);
            self.silent = counted(look.activity == last.activity, self.silent);
            self.changed |= look != *last;
            if look.pid != last.pid {
                (self.of_process, self.calm, self.silent) = (0, 0, 0);
            }
        } else {
            self.changed = true;
        }
        let longer = u32::try_from(look.history / READ_AT_ONCE).unwrap_or(u32::MAX);
        let due = LOOKS_A_READING.saturating_mul(longer.max(1));
        self.last = Some(look);
        if self.calm >= patience.calm || self.silent >= SILENT_LOOKS || self.of_process >= patience.trial {
            Verdict::LetGo
        } else if self.count.is_multiple_of(due) && std::mem::take(&mut self.changed) {
            Verdict::Read
        } else {
            Verdict::Wait
        }
    }
}

impl Inner {
    /// Holds a pane that floods: pauses it on every connection that carries it, and reads it now
    /// and then until it calms down.
    pub(super) fn hold(self: &Arc<Self>, pane: PaneId) {
        let steps = {
            let mut model = self.lock();
            let model = &mut *model;
            model.panes.get_mut(&pane).and_then(|followed| followed.hold(&mut model.attempts))
        };
        let Some((steps, begun)) = steps else { return };
        tracing::debug!("pane {pane} floods and is held");
        metrics::FLOODS.increment(1);
        self.steps(pane, steps);
        self.hold_elsewhere(pane);
        if let Some(hold) = begun {
            let this = self.clone();
            self.tasks.spawn(async move {
                tokio::select! {
                    () = this.watch_held(pane, hold) => {}
                    () = this.cancel.cancelled() => {}
                }
            });
        }
    }

    /// Pauses a held pane on the other connections: they carry it too, or it may be moved to them.
    fn hold_elsewhere(self: &Arc<Self>, pane: PaneId) {
        let paused: Vec<_> = {
            let mut model = self.lock();
            let model = &mut *model;
            let serving = model.covering.iter().filter(|(_, covering)| covering.is_serving()).map(|(id, _)| *id);
            let others =
                model.panes.get_mut(&pane).map(|followed| followed.hold_on_others(serving)).unwrap_or_default();
            let connection = |id: u64| model.covering.get(&id)?.connection.clone();
            others.into_iter().filter_map(|id| Some((connection(id)?, model.pauses.ask(id, pane)))).collect()
        };
        for (connection, pause) in paused {
            let this = self.clone();
            // The block of the command behind it ends the expectation.
            let line = [pane_flow_command(pane, "pause"), barrier()];
            connection.submit(Request::Plain(CommandLine::of(line)), move |_| this.lock().pauses.end(&pause));
        }
    }

    /// Pauses the held panes on a new connection.
    pub(super) fn hold_on_arrival(self: &Arc<Self>) {
        for pane in self.held_panes() {
            self.hold_elsewhere(pane);
        }
    }

    /// Returns the panes that are held.
    pub(super) fn held_panes(&self) -> Vec<PaneId> {
        let model = self.lock();
        let held = model.panes.iter().filter(|(_, followed)| followed.is_held_anywhere());
        held.map(|(pane, _)| *pane).collect()
    }

    /// Looks at a pane for as long as this hold lasts.
    async fn watch_held(self: &Arc<Self>, pane: PaneId, hold: u64) {
        let goes_on = |followed: &&mut FollowedPane| followed.goes_on_being_held(hold);
        let (mut looks, mut unseen) = (Looks::default(), 0);
        loop {
            tokio::time::sleep(LOOK).await;
            let held = {
                let mut model = self.lock();
                let followed = model.panes.get_mut(&pane).filter(goes_on);
                followed.map(|followed| (followed.relapses.patience(), followed.has_ended()))
            };
            let Some((patience, has_ended)) = held else { return };
            self.hold_elsewhere(pane);
            let look = if has_ended { None } else { self.look_at_held(pane).await };
            unseen = if look.is_some() { 0 } else { unseen + 1 };
            let verdict = match look {
                Some(look) => looks.take(look, patience),
                // No connection carries it: it is being moved to another session, or is not in use.
                None if !has_ended && unseen < UNSEEN_LOOKS => Verdict::Wait,
                None => Verdict::LetGo,
            };
            let steps = {
                let mut model = self.lock();
                let model = &mut *model;
                let Some(followed) = model.panes.get_mut(&pane).filter(goes_on) else { return };
                match verdict {
                    Verdict::Wait => Vec::new(),
                    Verdict::Read => followed.reseed(GapReason::Paused, &mut model.attempts),
                    Verdict::LetGo => followed.let_go(&mut model.attempts),
                }
            };
            self.steps(pane, steps);
        }
    }

    async fn look_at_held(&self, pane: PaneId) -> Option<Look> {
        let connection = self.lock().owner(pane)?;
        let answer = connection.ask(Request::Framed(Look::question(pane))).await;
        Look::parse(&answer.ok()?.ok()?)
    }

    /// Ends the hold of a pane, and follows it again.
    pub(super) fn let_go_of(self: &Arc<Self>, pane: PaneId) {
        let steps = {
            let mut model = self.lock();
            let model = &mut *model;
            model.panes.get_mut(&pane).map(|followed| followed.let_go(&mut model.attempts))
        };
        if let Some(steps) = steps.filter(|steps| !steps.is_empty()) {
            tracing::debug!("pane {pane} is followed again");
            self.steps(pane, steps);
        }
    }
}

#[cfg(test)]
mod tests;
