//! Reads a pane's content, so that it and the output after it join without a byte lost or doubled
//! (C2), and handles output meanwhile. [`super::followed`] decides; this module sends the queries.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use muxtap_api::GapReason;
use muxtap_base::clock::jittered;
use muxtap_core::{
    protocol::{
        command::{Command, CommandLine},
        ids::PaneId,
    },
    screen::Rules,
};
use tokio::time::Instant;

use super::{
    OutputSink, Seeding,
    connection::{Connection, Lost, Request},
    coverage::Inner,
    flood::{Allowance, Floods},
    followed::{FollowedPane, HeldOutput, OutputAction, PaneAction, SeedOutcome, Sink},
    pauses::ExpectedPause,
    routes::Routes,
    seed::Seed,
    values,
};

/// Returns the command that pauses a pane for the client that sends it, or ends that pause.
pub(super) fn pane_flow_command(pane: PaneId, what: &str) -> Command {
    Command::new("refresh-client").opt("-A", format!("{pane}:{what}"))
}

/// Returns a command that does nothing: its block comes after those of all commands before it.
pub(super) fn barrier() -> Command {
    Command::new("display-message").flag("-p").arg("")
}

/// The connections of a respawn.
struct Carrier {
    /// The connection that the respawn is sent on.
    asked: Connection,
    /// The connection that carries the pane's output, if any.
    owner: Option<Connection>,
}

impl Inner {
    /// Carries out an action that a pane's state requests.
    pub(super) fn step(self: &Arc<Self>, pane: PaneId, step: PaneAction) {
        match step {
            PaneAction::Unfollowed => self.observer.unfollowed(pane),
            PaneAction::Restarted => self.observer.restarted(pane, false),
            PaneAction::Seed(attempt) => self.seed(pane, attempt),
            PaneAction::PauseAndSeed(attempt) => {
                if let Some(connection) = self.asked_on(pane, attempt) {
                    self.pause_and_seed(&connection, pane, attempt);
                }
            }
            PaneAction::Park(connection) => self.park(pane, connection, true),
            PaneAction::Unpark(connection) => self.park(pane, connection, false),
        }
    }

    /// Pauses a pane on a connection that no longer carries it, until it is back; or lets it flow
    /// on that connection again. A pause that is ended drops what tmux has kept, whether it was
    /// paused before or not (N60).
    fn park(self: &Arc<Self>, pane: PaneId, id: u64, stays: bool) {
        let (connection, pause, floods) = {
            let mut model = self.lock();
            let connection = model.covering.get(&id).and_then(|covering| covering.connection.clone());
            let Some(connection) = connection else { return };
            let floods = model.panes.get(&pane).is_some_and(|followed| followed.stays_paused(id));
            (connection, model.pauses.ask(id, pane), floods)
        };
        let next = if stays {
            [values::watch_return(pane), barrier()]
        } else {
            let flow = if floods { barrier() } else { pane_flow_command(pane, "continue") };
            [flow, values::unwatch_return(pane)]
        };
        let line = CommandLine::of([pane_flow_command(pane, "pause")].into_iter().chain(next));
        let this = self.clone();
        connection.submit(Request::Plain(line), move |_| {
            this.lock().pauses.end(&pause);
        });
    }

    /// Ends a pause of a pane, but not on a connection that has stopped carrying it meanwhile.
    fn resume(self: &Arc<Self>, connection: &Connection, pane: PaneId, pause: Option<ExpectedPause>) {
        let stays = self.lock().panes.get(&pane).is_some_and(|followed| {
            followed.stays_paused(connection.id()) || followed.is_being_paused(connection.id())
        });
        let command = if stays { barrier() } else { pane_flow_command(pane, "continue") };
        let this = self.clone();
        connection.submit(Request::Plain(CommandLine::of([command])), move |_| {
            pause.inspect(|pause| this.lock().pauses.end(pause));
        });
    }

    pub(super) fn steps(self: &Arc<Self>, pane: PaneId, steps: Vec<PaneAction>) {
        for step in steps {
            self.step(pane, step);
        }
    }

    /// Reads the pane again, because output may have been lost.
    pub(super) fn reseed(self: &Arc<Self>, pane: PaneId, reason: GapReason) {
        let steps = {
            let mut model = self.lock();
            let model = &mut *model;
            model.panes.get_mut(&pane).map(|followed| followed.reseed(reason, &mut model.attempts))
        };
        self.steps(pane, steps.unwrap_or_default());
    }

    /// Takes output of a pane that came over a connection. It waited in tmux for `waited`
    /// milliseconds.
    ///
    /// Output of a pane that is followed takes no lock of the model: its route is in `routes`.
    pub(super) fn output(
        self: &Arc<Self>,
        connection: &Connection,
        pane: PaneId,
        data: &[u8],
        waited: u64,
        routes: &mut Routes,
    ) {
        let exceeds = |allowance: &Allowance| allowance.is_exceeded_by(data.len(), waited, Instant::now());
        let (taken, floods) = if let Some((route, holds)) = routes.find(pane) {
            let floods = holds && exceeds(&route.allowance);
            (OutputAction::Passed(route), floods)
        } else {
            let mut model = self.lock();
            let holds = model.floods == Floods::Hold;
            let Some(followed) = model.panes.get_mut(&pane) else { return };
            let counts = holds && followed.owner() == Some(connection.id());
            let floods = counts && exceeds(&followed.allowance);
            let taken = followed.output(connection.id(), data);
            if let OutputAction::Passed(route) = &taken {
                routes.remember(pane, route, holds);
            }
            (taken, floods)
        };
        match taken {
            OutputAction::Passed(route) => {
                route.sink.output(data);
                if floods && !route.sink.needs_all() {
                    self.hold(pane);
                }
            }
            OutputAction::Dropped => {}
            OutputAction::Restarted(sink) => {
                self.observer.restarted(pane, false);
                sink.output(data);
                // Its new process should be watched.
                self.refresh();
            }
            OutputAction::Unsure => self.refresh(),
        }
    }

    /// Queries a pane's content.
    ///
    /// What the pane printed before tmux ran the line always arrives before the reply, and is in
    /// the seed. What it printed afterward may arrive before the reply too, but only while other
    /// panes flood: tmux holds a reply back behind their output, not behind this pane's (N27). So a
    /// pane that was quiet meanwhile is seeded by one line; a pane that printed is paused, and
    /// seeded by a line that ends the pause.
    fn seed(self: &Arc<Self>, pane: PaneId, attempt: u64) {
        let Some(connection) = self.asked_on(pane, attempt) else { return };
        let this = self.clone();
        connection.clone().submit(Request::Framed(self.question(pane)), move |answer| match answer {
            Ok(Ok(parts)) => this.answered(&connection, pane, attempt, &parts),
            Ok(Err(message)) => this.refused(pane, attempt, &message),
            Err(lost) => this.unread(pane, attempt, lost),
        });
    }

    /// Returns the connection of an attempt, if the attempt is still in progress.
    fn asked_on(&self, pane: PaneId, attempt: u64) -> Option<Connection> {
        let mut model = self.lock();
        let owner = model.panes.get_mut(&pane)?.is_asked(attempt)?;
        model.covering.get(&owner)?.connection.clone()
    }

    /// Returns the commands that query a pane's seed: some of them depend on the version.
    pub(super) fn question(&self, pane: PaneId) -> Vec<Command> {
        let version = self.lock().identity.as_ref().map(|known| known.version);
        Seed::question(pane, version.map(Rules::for_version))
    }

    /// Takes the reply with the content of an attempt.
    fn answered(self: &Arc<Self>, connection: &Connection, pane: PaneId, attempt: u64, parts: &[Bytes]) {
        let Some(seed) = Seed::parse(parts) else {
            self.refused(pane, attempt, "the reply is not a valid seed");
            return;
        };
        let answered = {
            let mut model = self.lock();
            let Some(followed) = model.panes.get_mut(&pane) else { return };
            followed.answered(attempt)
        };
        match answered {
            SeedOutcome::Void => {}
            SeedOutcome::Pause => self.pause_and_seed(connection, pane, attempt),
            SeedOutcome::Deliver(why, early) => self.deliver(pane, attempt, seed, why, early),
            SeedOutcome::Compare(output) => self.compare(connection, pane, attempt, &seed, &output),
        }
    }

    /// Passes a seed on, then the output that came ahead of it. From then on the pane is followed.
    fn deliver(self: &Arc<Self>, pane: PaneId, attempt: u64, seed: Seed, why: Seeding, early: HeldOutput) {
        let dead = seed.dead;
        let sink = self.observer.seeded(pane, seed, why);
        if let Some(early) = early.complete() {
            if !early.is_empty() {
                sink.output(&early);
            }
            self.follow(pane, attempt, sink);
        } else {
            tracing::warn!("pane {pane} printed more than could be held while it was read; reading it again");
            self.reseed(pane, GapReason::Paused);
        }
        if dead {
            self.check_end(pane);
        }
    }

    /// Compares the content with the output of a new connection: the pane continues without a gap
    /// if nothing is missing.
    fn compare(self: &Arc<Self>, connection: &Connection, pane: PaneId, attempt: u64, seed: &Seed, output: &[u8]) {
        let next = match self.observer.moved(pane, seed, output) {
            Some(sink) => {
                self.follow(pane, attempt, sink);
                SeedOutcome::Void
            }
            None => match self.lock().panes.get_mut(&pane) {
                Some(followed) => followed.not_handed_over(attempt),
                None => return,
            },
        };
        if next == SeedOutcome::Pause {
            self.pause_and_seed(connection, pane, attempt);
        } else if seed.dead {
            self.check_end(pane);
        }
    }

    /// Directs a pane's output to this sink from now on.
    fn follow(&self, pane: PaneId, attempt: u64, sink: Arc<dyn OutputSink>) {
        let followed = {
            let mut model = self.lock();
            let followed = model.panes.get_mut(&pane);
            followed.map(|followed| (followed.follow(attempt, Sink(sink)), followed.is_held()))
        };
        let (waiters, is_held) = followed.unzip();
        if is_held == Some(true) {
            self.observer.held(pane);
        }
        drop(waiters);
    }

    /// Pauses the pane, then queries its content. Once tmux has paused it, none of its output is in
    /// transit: all later output is from after the line that ends the pause.
    fn pause_and_seed(self: &Arc<Self>, connection: &Connection, pane: PaneId, attempt: u64) {
        let (this, next) = (self.clone(), connection.clone());
        let mut question = self.question(pane);
        let stays = self.lock().panes.get(&pane).is_some_and(|followed| followed.stays_paused(connection.id()));
        question.push(if stays { barrier() } else { pane_flow_command(pane, "continue") });
        let pause = self.lock().pauses.ask(connection.id(), pane);
        connection.submit(Request::Plain(CommandLine::of([pane_flow_command(pane, "pause")])), move |answer| {
            let goes_on = {
                let mut model = this.lock();
                let is_paused = matches!(answer, Ok(Ok(_)));
                model.panes.get_mut(&pane).is_some_and(|followed| is_paused && followed.paused(attempt))
            };
            let then = this.clone();
            if goes_on {
                let connection = next.clone();
                next.submit(Request::Framed(question), move |answer| {
                    then.lock().pauses.end(&pause);
                    match answer {
                        Ok(Ok(parts)) => {
                            let seed = parts.split_last().map_or(&[][..], |(_, seed)| seed);
                            then.answered(&connection, pane, attempt, seed);
                        }
                        Ok(Err(message)) => {
                            then.refused(pane, attempt, &message);
                            // The line stopped before its end.
                            then.resume(&connection, pane, None);
                        }
                        Err(lost) => then.unread(pane, attempt, lost),
                    }
                });
            } else {
                let superseded = matches!(answer, Ok(Ok(_)));
                match answer {
                    Ok(Ok(_)) => {}
                    Ok(Err(message)) => this.refused(pane, attempt, &message),
                    Err(lost) => this.unread(pane, attempt, lost),
                }
                // Another seed, now or later, must not find the pane paused on this connection.
                then.resume(&next, pane, Some(pause));
                let is_asked = || this.lock().panes.get(&pane).is_some_and(|followed| followed.is_asked_on(next.id()));
                if superseded && is_asked() {
                    // The reply may come before the pause is over.
                    this.reseed(pane, GapReason::Paused);
                }
            }
        });
    }

    /// Repeats the query, if tmux refused a pane's content, after a pause that grows each time, as
    /// long as the pane exists.
    fn refused(self: &Arc<Self>, pane: PaneId, attempt: u64, message: &str) {
        if let Some(pause) = self.try_again(pane, attempt) {
            tracing::warn!("pane {pane} could not be read, retrying in about {} ms: {message}", pause.as_millis());
        }
    }

    /// Repeats a query for a pane's content that got no reply, like all requests on that
    /// connection, which logs that once.
    fn unread(self: &Arc<Self>, pane: PaneId, attempt: u64, lost: Lost) {
        if self.try_again(pane, attempt).is_some() {
            tracing::debug!("pane {pane} was not read: {lost:?}");
        }
    }

    /// Queries a pane's content once more after a pause, if this attempt is still in progress.
    /// Returns the pause.
    fn try_again(self: &Arc<Self>, pane: PaneId, attempt: u64) -> Option<Duration> {
        let (attempt, pause) = {
            let mut model = self.lock();
            let model = &mut *model;
            let followed = model.panes.get_mut(&pane);
            followed.and_then(|followed| followed.refused(attempt, &mut model.attempts))?
        };
        // The pane or its connection may have gone.
        self.refresh();
        let this = self.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(jittered(pause)) => {}
                () = this.cancel.cancelled() => return,
            }
            if this.lock().panes.get_mut(&pane).is_some_and(|followed| followed.retry(attempt)) {
                this.seed(pane, attempt);
            }
        });
        Some(pause)
    }

    /// Records tmux's announcement that it has paused a pane for a connection.
    pub(super) fn was_paused(self: &Arc<Self>, connection: &Connection, pane: PaneId) {
        let is_owner = {
            let mut model = self.lock();
            if model.pauses.announced(connection.id(), pane) {
                return;
            }
            let followed = model.panes.get(&pane);
            if followed.is_some_and(|followed| followed.is_held_on(connection.id())) {
                return;
            }
            followed.is_some_and(|followed| followed.owner() == Some(connection.id()))
        };
        self.resume(connection, pane, None);
        if is_owner {
            self.reseed(pane, GapReason::Paused);
        }
    }

    /// Starts another program in a pane, by `commands`, of which the first does it. `done` is
    /// called at the reply's place in the pane's stream, with whether the respawn succeeded.
    /// Returns when that is over. `counts`: the output of the program before it matters. `only`:
    /// the epoch of the only server process that may be used; `None`: any.
    ///
    /// A server that respawns a pane on which a control client lags behind crashes or loses the new
    /// program's output (F19, N12): a pause drops what is not sent yet, on every connection that
    /// carries the pane. On its owner's connection nothing can be printed between the respawn and
    /// the end of the pause, since a line runs without interruption.
    pub(super) async fn respawn(
        self: &Arc<Self>,
        only: Option<u64>,
        pane: PaneId,
        commands: Vec<Command>,
        counts: bool,
        done: impl FnOnce(bool) + Send + 'static,
    ) -> Result<Result<(), String>, Lost> {
        let (carrier, others) = {
            let model = self.lock();
            if !model.is_of(only) {
                return Err(Lost::Ended);
            }
            let followed = model.panes.get(&pane);
            let connection = |id| model.covering.get(&id).filter(|covering| covering.is_serving())?.connection.clone();
            let owner = followed.and_then(|followed| connection(followed.owner()?));
            let ids = followed.into_iter().flat_map(FollowedPane::carriers);
            let mut others: Vec<_> = ids.filter_map(connection).collect();
            others.retain(|other| owner.as_ref().is_none_or(|owner| owner.id() != other.id()));
            // Both belong to one server: another one may be followed once the lock is released.
            (Carrier { asked: owner.clone().or_else(|| model.any()).ok_or(Lost::Ended)?, owner }, others)
        };
        let mut paused = Vec::new();
        for other in others {
            let pause = self.lock().pauses.ask(other.id(), pane);
            // A connection that is lost carries nothing any more.
            let _ = other.ask(Request::Plain(CommandLine::of([pane_flow_command(pane, "pause")]))).await;
            paused.push((other, pause));
        }
        let answer = self.respawn_on(carrier, pane, commands, counts, done).await;
        for (other, pause) in paused {
            self.resume(&other, pane, Some(pause));
        }
        answer
    }

    async fn respawn_on(
        self: &Arc<Self>,
        Carrier { asked: connection, owner }: Carrier,
        pane: PaneId,
        mut commands: Vec<Command>,
        counts: bool,
        done: impl FnOnce(bool) + Send + 'static,
    ) -> Result<Result<(), String>, Lost> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let ran = counts && self.lock().panes.get(&pane).is_some_and(|followed| !followed.has_ended());
        let pause = owner.as_ref().map(|owner| self.lock().pauses.ask(owner.id(), pane));
        if owner.is_some() {
            commands.insert(0, pane_flow_command(pane, "pause"));
            commands.push(pane_flow_command(pane, "continue"));
        }
        let (this, next) = (self.clone(), owner.clone());
        connection.submit_in_time(Request::Plain(CommandLine::of(commands)), move |answer| {
            pause.inspect(|pause| this.lock().pauses.end(pause));
            match &answer {
                Ok(Ok(_)) => this.respawned(pane, ran, next.as_ref().map(Connection::id)),
                Ok(Err(_)) => {
                    // The line stopped behind its pause: output continues, and what the pause
                    // dropped is read again.
                    if let Some(owner) = next {
                        this.resume(&owner, pane, None);
                        this.reseed(pane, GapReason::Paused);
                    }
                }
                // tmux may still run it, and its pause drops output then.
                Err(Lost::Unanswered) => this.reseed(pane, GapReason::Paused),
                Err(Lost::Ended | Lost::Unsent | Lost::Unreadable(_)) => {}
            }
            done(matches!(answer, Ok(Ok(_))));
            // The caller may have given up.
            let _ = sender.send(answer.map(|answer| answer.map(drop)));
        });
        receiver.await.unwrap_or(Err(Lost::Ended))
    }

    /// Records that a program was put into a pane. `ran`: another one ran in it when the respawn
    /// was requested. `by`: the owner that carried all its output.
    fn respawned(self: &Arc<Self>, pane: PaneId, ran: bool, by: Option<u64>) {
        let steps = {
            let mut model = self.lock();
            let model = &mut *model;
            model.panes.get_mut(&pane).map(|followed| {
                let here = by.is_some() && by == followed.owner();
                followed.restarted(here, &mut model.attempts)
            })
        };
        // A pane whose process had ended was restarted at its first output, if that came sooner.
        self.steps(pane, steps.unwrap_or_default());
        if ran {
            self.observer.restarted(pane, true);
        }
        // The respawn's line has ended the pause of a seed in progress: output from now on would be
        // in its reply and come a second time.
        if self.lock().panes.get(&pane).is_some_and(FollowedPane::is_seeding) {
            self.reseed(pane, GapReason::Paused);
        }
    }
}

#[cfg(test)]
mod tests;
