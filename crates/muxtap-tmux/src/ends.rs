//! The end of a pane's process: checked with tmux, and reported after the pane's last output (C3).

use std::{sync::Arc, time::Duration};

use muxtap_api::GapReason;
use muxtap_core::protocol::{
    command::{Command, CommandLine},
    ids::PaneId,
};

use super::{
    Exit, Seeding,
    connection::{Lost, Request},
    coverage::Inner,
    death,
    followed::{EndWatch, FollowedPane, Sink},
    seed::Seed,
};

/// How often a pane whose process has ended is checked until tmux has noticed too. Each check is a
/// turn of tmux's own event loop, so tmux noticed after one or two; the rest is left to the
/// subscription to `#{pane_dead}`.
const END_CHECKS: u32 = 8;
/// Time that the process of a pane that tmux shows as dead may take to end.
const END_LIMIT: Duration = Duration::from_secs(5);

/// The stage of checking a pane whose process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndCheck {
    /// The first one.
    First,
    /// One of several; the number is how many may follow.
    Again(u32),
    /// The check after the server has waited for its children.
    AfterReaping,
    /// The last one, if the server could not be made to wait for its children.
    Final,
}

impl EndCheck {
    /// Returns the check after this one; `None` if another one would gain nothing.
    fn next(self) -> Option<Self> {
        match self {
            Self::First => Some(Self::Again(END_CHECKS - 1)),
            Self::Again(left @ 1..) => Some(Self::Again(left - 1)),
            Self::Again(0) | Self::AfterReaping | Self::Final => None,
        }
    }
}

impl Inner {
    /// Reads a pane whose process has ended, or seems to have: the pane's present content completes
    /// its output (F9). A pane that is being checked is not checked twice.
    pub(super) fn check_end(self: &Arc<Self>, pane: PaneId) {
        let begins = {
            let mut model = self.lock();
            let followed = model.panes.get_mut(&pane).filter(|followed| !followed.has_ended());
            followed.is_some_and(|followed| {
                std::mem::replace(&mut followed.end_watch, EndWatch::Checking) != EndWatch::Checking
            })
        };
        if begins {
            self.check_end_as(pane, EndCheck::First);
        }
    }

    fn check_end_as(self: &Arc<Self>, pane: PaneId, check: EndCheck) {
        let connection = {
            let model = self.lock();
            if model.panes.get(&pane).is_none_or(FollowedPane::has_ended) {
                return;
            }
            model.owner(pane)
        };
        // The next connection lists the pane, dead or alive.
        let Some(connection) = connection else { return self.end_check_is_over(pane) };
        let (this, by) = (self.clone(), connection.id());
        let mut question = self.question(pane);
        if check == EndCheck::AfterReaping {
            question.insert(0, Command::new("run-shell").arg(":"));
        }
        connection.submit(Request::Framed(question), move |answer| match answer {
            Ok(Ok(parts)) => {
                let parts = parts.get(usize::from(check == EndCheck::AfterReaping)..).unwrap_or_default();
                this.end_checked(pane, check, by, Seed::parse(parts));
            }
            // No shell could be run, or the pane is closed.
            Ok(Err(_)) if check == EndCheck::AfterReaping => this.check_end_as(pane, EndCheck::Final),
            // The pane was closed with its process; all its output has arrived (this reply came
            // after it).
            Ok(Err(_)) => {
                this.end_check_is_over(pane);
                this.refresh();
            }
            Err(_) => this.end_check_is_over(pane),
        });
    }

    fn end_check_is_over(&self, pane: PaneId) {
        if let Some(followed) = self.lock().panes.get_mut(&pane) {
            followed.end_watch = EndWatch::Kernel;
        }
    }

    /// Takes the content of a pane whose process has ended.
    fn end_checked(self: &Arc<Self>, pane: PaneId, check: EndCheck, by: u64, seed: Option<Seed>) {
        match seed {
            Some(seed) if seed.dead => {
                let exit = Exit { status: seed.exit_status, signal: seed.exit_signal };
                if exit == Exit::default() && self.checks_again_for_status(pane, check, seed.pid) {
                    return;
                }
                let was_held = self.lock().panes.get(&pane).is_some_and(FollowedPane::is_held);
                if self.mark_exited(pane, Some(by), Some(seed.pid)) {
                    if was_held {
                        // The seed has what the pane printed since it was last read.
                        self.observer.seeded(pane, seed.clone(), Seeding::Again(GapReason::Paused));
                    }
                    let sink = self.observer.seeded(pane, seed, Seeding::Last);
                    if let Some(followed) = self.lock().panes.get_mut(&pane) {
                        followed.seeded_last(Sink(sink));
                    }
                    self.observer.exited(pane, exit);
                    self.refresh();
                }
            }
            // Another program was started in its place meanwhile.
            Some(seed) if self.is_respawned(pane, seed.pid) => {
                self.end_check_is_over(pane);
                self.refresh();
            }
            _ => {
                if let Some(next) = check.next() {
                    self.check_end_as(pane, next);
                } else {
                    self.leave_end_to_tmux(pane);
                    // The pane may have become dead during the check.
                    self.refresh();
                }
            }
        }
    }

    /// Subscribes to the end of a pane's process, which no other source reports.
    pub(super) fn leave_end_to_tmux(self: &Arc<Self>, pane: PaneId) {
        let actions = self.lock().leave_end_to_tmux(pane, self.spec.reads());
        self.carry_out(actions);
    }

    /// Checks a dead pane once more if tmux does not report its status. Returns `false` if that
    /// would gain nothing.
    ///
    /// The status may come a turn later (N16), but not before the process has ended: a process
    /// closes its terminal first, and may be held up between the two. And 3.3a may not wait for the
    /// process before another child of the server ends (N15), so it is given one.
    fn checks_again_for_status(self: &Arc<Self>, pane: PaneId, check: EndCheck, pid: u32) -> bool {
        let is_local = self.spec.is_local();
        if is_local
            && check == EndCheck::First
            && death::is_alive(pid)
            && let Some(ended) = death::watch(pid)
            && let Some(gone) = self.lock().panes.get(&pane).map(|followed| followed.watch.clone())
        {
            let this = self.clone();
            self.tasks.spawn(async move {
                tokio::select! {
                    () = ended => {}
                    // The number may belong to another process by now.
                    () = tokio::time::sleep(END_LIMIT) => {}
                    () = gone.cancelled() => return,
                    () = this.cancel.cancelled() => return,
                }
                this.check_end_as(pane, EndCheck::Again(END_CHECKS - 1));
            });
            return true;
        }
        let next = check.next().or_else(|| {
            // A zombie: a child that the server has not waited for, not a process that lives on.
            let waits = is_local && check == EndCheck::Again(0) && death::is_there(pid) && !death::is_alive(pid);
            waits.then_some(EndCheck::AfterReaping)
        });
        if let Some(next) = next {
            self.check_end_as(pane, next);
        }
        next.is_some()
    }

    /// Removes a pane that is no longer listed. Its end is reported after its last output, which
    /// may still be on its way over its own connection (C3).
    pub(super) fn gone(self: &Arc<Self>, pane: PaneId) {
        let connection = self.lock().owner(pane);
        let this = self.clone();
        let end = move |_| {
            let told = this.mark_exited(pane, None, None);
            this.lock().panes.remove(&pane);
            if told {
                this.observer.exited(pane, Exit::default());
            }
            this.observer.closed(pane);
        };
        match connection {
            Some(connection) => {
                let barrier = CommandLine::of([Command::new("display-message").flag("-p").arg("")]);
                connection.submit(Request::Plain(barrier), end);
            }
            None => end(Err(Lost::Ended)),
        }
    }

    fn is_respawned(&self, pane: PaneId, pid: u32) -> bool {
        self.lock().panes.get(&pane).is_some_and(|followed| followed.is_another(pid))
    }

    fn mark_exited(&self, pane: PaneId, by: Option<u64>, pid: Option<u32>) -> bool {
        self.lock().panes.get_mut(&pane).is_some_and(|followed| followed.ended(by, pid))
    }
}
