//! Watches one tmux server for the rules: one subscription, one task, whatever the number of panes.

use std::{collections::HashMap, ops::ControlFlow, sync::Arc, time::Instant};

use muxtap_api::{Error, Event, EventKind, PaneInfo, Result, SubscribeRequest};
use muxtap_base::clock;
use muxtap_core::protocol::ids::PaneId;
use muxtap_engine::{
    Engine, Server, Subscription,
    activity::{Activity, Deed},
};
use tokio::sync::{broadcast, watch};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    act::{Actor, Typing},
    matcher::{Matcher, Outcome},
    rule::RuleSet,
};

/// A server that is watched.
pub(crate) struct Watched {
    pub(crate) server: Server,
    /// The name of its host, if it is not this machine.
    pub(crate) host: Option<String>,
    pub(crate) actor: Arc<Actor>,
    pub(crate) rules: watch::Receiver<Arc<RuleSet>>,
    pub(crate) stop: CancellationToken,
}

/// Why following has ended.
enum Ended {
    /// The rules stop.
    Stopped,
    /// The rules need other events: follow them from here.
    Changed,
    /// The subscription has ended.
    Lost,
}

impl Watched {
    /// Watches the server until the rules stop, or no rule needs it.
    pub(crate) async fn run(mut self) {
        let socket = self.server.socket().display().to_string();
        let mut matcher: Option<Matcher> = None;
        let mut resume = None;
        // Once: a note that arrives between two subscriptions must not be missed.
        let mut inputs = Inputs::of(&self.actor, self.server.engine());
        // Whether the last subscription had the events of agents.
        let mut knew_agents = false;
        loop {
            let rules = self.rules.borrow_and_update().clone();
            if !rules.are_on(self.host.as_deref()) {
                self.actor.set_problem(&socket, None);
                return;
            }
            // Before the attempt: what is announced during it is seen.
            let announced = self.server.announcements();
            let mut known = match matcher.take() {
                Some(mut known) => {
                    known.set_rules(rules.clone());
                    known
                }
                None => Matcher::new(rules.clone(), socket.clone(), self.host.clone()),
            };
            // A host that hangs must not delay the end.
            let stop = self.stop.clone();
            let knew_before = knew_agents;
            let subscribed = self.subscribe(&rules, resume.take(), &mut known, &mut knew_agents);
            match stop.run_until_cancelled(subscribed).await {
                None => return,
                Some(Ok(mut subscription)) => {
                    if knew_before && knew_agents {
                        // No resume token covers what agents did between the two subscriptions.
                        for agent in self.server.known_agents() {
                            let event = Event::Agent(Box::new(agent));
                            if self.handle_event(&event, &mut known, &mut inputs).await.is_break() {
                                return;
                            }
                        }
                    }
                    match self.follow(&mut subscription, &mut known, &mut inputs, &socket, &rules).await {
                        Ended::Stopped => return,
                        Ended::Changed => {
                            // The new subscription begins after all that was read.
                            let (events, token) = subscription.leave();
                            for event in events {
                                if self.handle_event(event.event(), &mut known, &mut inputs).await.is_break() {
                                    return;
                                }
                            }
                            resume = Some(token);
                            matcher = Some(known);
                        }
                        Ended::Lost => {
                            knew_agents = false;
                            if !self.until_back(announced).await {
                                return;
                            }
                        }
                    }
                }
                Some(Err(error)) => {
                    knew_agents = false;
                    self.actor.set_problem(&socket, Some(&error));
                    let is_back = self.until_back(announced).await;
                    if !is_back {
                        self.actor.set_problem(&socket, None);
                        return;
                    }
                }
            }
        }
    }

    /// Waits until the server may be back, or the rules change. Returns `false` if they stop.
    async fn until_back(&mut self, mut announced: broadcast::Receiver<(Arc<std::path::Path>, Event)>) -> bool {
        loop {
            tokio::select! {
                changed = self.rules.changed() => return changed.is_ok(),
                () = self.stop.cancelled() => return false,
                event = announced.recv() => match event {
                    Ok((socket, Event::Server { state, .. }))
                        if *socket == *self.server.socket() && state == "connected" =>
                    {
                        return true;
                    }
                    Ok((socket, Event::PaneOpened { .. })) if *socket == *self.server.socket() => return true,
                    Ok(_) => {}
                    Err(broadcast::error::RecvError::Lagged(_)) => return true,
                    Err(broadcast::error::RecvError::Closed) => return false,
                },
            }
        }
    }

    async fn subscribe(
        &self,
        rules: &RuleSet,
        resume: Option<String>,
        matcher: &mut Matcher,
        knew_agents: &mut bool,
    ) -> Result<Subscription> {
        let request = SubscribeRequest { resume, ..rules.subscription(self.host.as_deref()) };
        let wants_agents = request.types.contains(&EventKind::Agent);
        let server = self.server.clone();
        let subscription = on_engine(server.engine().clone(), async move { server.subscribe(&request).await }).await?;
        matcher.set_panes(self.panes().await?);
        if wants_agents && !*knew_agents {
            let server = self.server.clone();
            let list = on_engine(server.engine().clone(), async move { server.agents().await }).await?;
            matcher.set_agents(&list.agents);
        }
        *knew_agents = wants_agents;
        Ok(subscription)
    }

    async fn panes(&self) -> Result<Vec<PaneInfo>> {
        let server = self.server.clone();
        on_engine(server.engine().clone(), async move { server.panes().await }).await
    }

    /// Follows the events.
    async fn follow(
        &mut self,
        subscription: &mut Subscription,
        matcher: &mut Matcher,
        inputs: &mut Inputs,
        socket: &str,
        rules: &Arc<RuleSet>,
    ) -> Ended {
        self.actor.set_problem(socket, None);
        self.actor.set_watched(socket, Some(rules));
        let ended = self.handle_events(subscription, matcher, inputs).await;
        self.actor.set_watched(socket, None);
        ended
    }

    async fn handle_events(
        &mut self,
        subscription: &mut Subscription,
        matcher: &mut Matcher,
        inputs: &mut Inputs,
    ) -> Ended {
        let stop = self.stop.clone();
        loop {
            self.take_inputs(inputs, matcher);
            let due = matcher.due();
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ended::Stopped,
                typing = inputs.typing.recv() => {
                    self.on_typing(inputs, typing.ok(), matcher);
                }
                activity = inputs.activities.recv() => {
                    self.on_activity(inputs, activity.ok().as_deref(), matcher);
                }
                changed = self.rules.changed() => {
                    return if changed.is_ok() { Ended::Changed } else { Ended::Stopped };
                }
                next = subscription.next_event() => match next {
                    Some(Ok(event)) => {
                        if self.handle_event(event.event(), matcher, inputs).await.is_break() {
                            return Ended::Stopped;
                        }
                    }
                    Some(Err(error)) => {
                        tracing::warn!("rules: {}: {error}", self.server.socket().display());
                        return Ended::Lost;
                    }
                    None => return Ended::Stopped,
                },
                () = until(due) => self.carry_out(matcher.on_time(Instant::now(), clock::now_ms())),
            }
        }
    }

    /// Handles an event. Breaks if the rules stop.
    async fn handle_event(&self, event: &Event, matcher: &mut Matcher, inputs: &mut Inputs) -> ControlFlow<()> {
        if matches!(event, Event::Topology { .. }) {
            match self.stop.run_until_cancelled(self.panes()).await {
                None => return ControlFlow::Break(()),
                Some(Ok(panes)) => matcher.set_panes(panes),
                Some(Err(error)) => tracing::debug!("rules: {error}"),
            }
        }
        // What was typed is noted before it is sent: of any output, its cause is known by now.
        self.take_inputs(inputs, matcher);
        self.carry_out(matcher.on_event(event, Instant::now(), clock::now_ms()));
        ControlFlow::Continue(())
    }

    fn carry_out(&self, mut outcome: Outcome) {
        for fired in &mut outcome.fired {
            fired.epoch = self.server.live_pane(fired.pane).map(|pane| pane.cursor().epoch);
        }
        self.actor.take(self.server.engine(), outcome);
    }

    /// Takes the notes of inputs that have arrived.
    fn take_inputs(&self, inputs: &mut Inputs, matcher: &mut Matcher) {
        while let Ok(typing) = inputs.typing.try_recv() {
            self.on_typing(inputs, Some(typing), matcher);
        }
        loop {
            match inputs.activities.try_recv() {
                Ok(activity) => self.on_activity(inputs, Some(&activity), matcher),
                // Of the ones that were missed, none ends what rules typed: that only withholds more.
                Err(broadcast::error::TryRecvError::Lagged(_)) => {}
                Err(_) => return,
            }
        }
    }

    /// Handles a note of a rule's typing; `None` if some were missed.
    fn on_typing(&self, inputs: &mut Inputs, typing: Option<Typing>, matcher: &mut Matcher) {
        let Some(typing) = typing.filter(|typing| *typing.server == *self.server.socket()) else { return };
        inputs.note(&typing);
        if let Some(text) = &typing.text {
            matcher.typed(typing.pane, text, typing.at);
        }
    }

    /// Handles a note of an input; `None` if some were missed.
    ///
    /// The beginning counts: tmux may send what the pane prints because of an input ahead of its reply (N27),
    /// so the note of its end may come after that output.
    fn on_activity(&self, inputs: &Inputs, activity: Option<&Activity>, matcher: &mut Matcher) {
        if let Some(activity) = activity
            && matches!(activity.deed, Deed::Begun)
            && !inputs.include(activity)
            && self.server.live_pane(activity.pane).is_some_and(|pane| pane.cursor().epoch == activity.epoch)
        {
            matcher.typed_by_another(activity.pane);
        }
    }
}

/// Runs this in the engine's runtime: what it starts there outlives the rules. Dropping the result ends it.
pub(crate) async fn on_engine<T: Send + 'static>(
    engine: Engine,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let work = AbortOnDropHandle::new(engine.runtime().spawn(work));
    work.await.map_err(|_| Error::unavailable("muxtap is stopping"))?
}

/// What is typed through muxtap: by rules, and by all callers.
struct Inputs {
    typing: broadcast::Receiver<Typing>,
    activities: broadcast::Receiver<Arc<Activity>>,
    /// When rules typed last, by pane.
    own: HashMap<PaneId, OwnInput>,
}

/// When rules typed last into a pane: one after the other without a time between them, or at once.
struct OwnInput {
    begin: Instant,
    /// How many of them type now.
    open: usize,
    /// The end, once none types.
    end: Option<Instant>,
}

impl Inputs {
    fn of(actor: &Actor, engine: &Engine) -> Self {
        Self { typing: actor.typing.subscribe(), activities: engine.activities(), own: HashMap::new() }
    }

    fn note(&mut self, typing: &Typing) {
        if typing.text.is_some() {
            let own = self.own.entry(typing.pane);
            let own = own.or_insert(OwnInput { begin: typing.at, open: 0, end: None });
            if own.open == 0 {
                (own.begin, own.end) = (typing.at, None);
            }
            own.open += 1;
        } else if let Some(own) = self.own.get_mut(&typing.pane) {
            own.open = own.open.saturating_sub(1);
            own.end = (own.open == 0).then_some(typing.at);
        }
    }

    /// Returns whether an input is one of these. One that another caller typed meanwhile counts as one: that
    /// only withholds more.
    fn include(&self, activity: &Activity) -> bool {
        self.own
            .get(&activity.pane)
            .is_some_and(|own| activity.at >= own.begin && own.end.is_none_or(|end| activity.at <= end))
    }
}

/// Resolves at this time, or never without one.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use muxtap_api::Epoch;
    use muxtap_engine::Options;

    use super::*;

    fn inputs() -> Inputs {
        let engine = Engine::new(Options::default());
        Inputs { typing: broadcast::Sender::new(1).subscribe(), activities: engine.activities(), own: HashMap::new() }
    }

    #[tokio::test]
    async fn an_input_between_the_beginning_and_the_end_of_all_typing_is_a_rules() {
        let mut inputs = inputs();
        let start = Instant::now();
        let at = |ms| start + std::time::Duration::from_millis(ms);
        let note = |ms, text: Option<&str>| Typing {
            server: std::path::Path::new("/s").into(),
            pane: PaneId(1),
            at: at(ms),
            text: text.map(str::to_owned),
        };
        let input = |ms| Activity { pane: PaneId(1), epoch: Epoch::default(), at: at(ms), deed: Deed::Begun };
        assert!(!inputs.include(&input(0)));
        inputs.note(&note(10, Some("a")));
        // Another rule types meanwhile, and takes longer.
        inputs.note(&note(20, Some("b")));
        inputs.note(&note(30, None));
        assert!(!inputs.include(&input(9)) && inputs.include(&input(15)) && inputs.include(&input(35)));
        inputs.note(&note(40, None));
        assert!(inputs.include(&input(40)) && !inputs.include(&input(41)));
        inputs.note(&note(50, Some("c")));
        assert!(!inputs.include(&input(45)) && inputs.include(&input(50)));
    }
}
