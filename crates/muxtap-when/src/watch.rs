//! Watches one tmux server for the rules: one subscription, one task, whatever the number of panes.

use std::{collections::HashMap, sync::Arc, time::Instant};

use muxtap_api::{Error, Event, EventKind, PaneInfo, Result, SubscribeRequest};
use muxtap_base::clock;
use muxtap_core::protocol::ids::PaneId;
use muxtap_engine::{
    Engine, Server, Subscription,
    activity::{Activity, Deed},
};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    act::{Actor, Typing},
    matcher::Matcher,
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
        loop {
            let rules = self.rules.borrow_and_update().clone();
            if !rules.are_on(self.host.as_deref()) {
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
            match self.subscribe(&rules, resume.take(), &mut known).await {
                Ok(mut subscription) => match self.follow(&mut subscription, &mut known, &socket, &rules).await {
                    Ended::Stopped => return,
                    Ended::Changed => {
                        resume = Some(subscription.resume_token());
                        matcher = Some(known);
                    }
                    Ended::Lost => {
                        if !self.until_back(announced).await {
                            return;
                        }
                    }
                },
                Err(error) => {
                    tracing::debug!("rules: {socket}: {error}");
                    if !self.until_back(announced).await {
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

    async fn subscribe(&self, rules: &RuleSet, resume: Option<String>, matcher: &mut Matcher) -> Result<Subscription> {
        let is_new = resume.is_none();
        let request = SubscribeRequest { resume, ..rules.subscription(self.host.as_deref()) };
        let wants_agents = is_new && request.types.contains(&EventKind::Agent);
        let server = self.server.clone();
        let subscription = on_engine(server.engine().clone(), async move { server.subscribe(&request).await }).await?;
        matcher.set_panes(self.panes().await?);
        if wants_agents {
            let server = self.server.clone();
            let list = on_engine(server.engine().clone(), async move { server.agents().await }).await?;
            matcher.set_agents(&list.agents);
        }
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
        socket: &str,
        rules: &Arc<RuleSet>,
    ) -> Ended {
        self.actor.set_watched(socket, Some(rules));
        let ended = self.handle_events(subscription, matcher).await;
        self.actor.set_watched(socket, None);
        ended
    }

    async fn handle_events(&mut self, subscription: &mut Subscription, matcher: &mut Matcher) -> Ended {
        let mut typing = self.actor.typing.subscribe();
        let engine = self.server.engine().clone();
        let mut activities = engine.activities();
        let mut own = Inputs::default();
        loop {
            let due = matcher.due();
            let outcome = tokio::select! {
                // In this order: a rule's typing is known before its echo.
                biased;
                () = self.stop.cancelled() => return Ended::Stopped,
                typed = typing.recv() => {
                    if let Ok(typed) = typed && *typed.server == *self.server.socket() {
                        own.note(&typed);
                        if let Some(text) = &typed.text {
                            matcher.typed(typed.pane, text, typed.at);
                        }
                    }
                    continue;
                }
                activity = activities.recv() => {
                    if let Ok(activity) = activity && self.is_anothers(&activity, &own) {
                        matcher.typed_by_another(activity.pane);
                    }
                    continue;
                }
                changed = self.rules.changed() => {
                    return if changed.is_ok() { Ended::Changed } else { Ended::Stopped };
                }
                next = subscription.next() => match next {
                    Some(Ok(delivery)) => {
                        // Every event is sent in this form.
                        let Ok(event) = serde_json::from_slice(delivery.event.json()) else { continue };
                        if matches!(event, Event::Topology { .. }) {
                            match self.panes().await {
                                Ok(panes) => matcher.set_panes(panes),
                                Err(error) => tracing::debug!("rules: {error}"),
                            }
                        }
                        matcher.on_event(&event, Instant::now(), clock::now_ms())
                    }
                    Some(Err(error)) => {
                        tracing::warn!("rules: {}: {error}", self.server.socket().display());
                        return Ended::Lost;
                    }
                    None => return Ended::Stopped,
                },
                () = until(due) => matcher.on_time(Instant::now(), clock::now_ms()),
            };
            self.actor.take(&engine, outcome);
        }
    }

    /// Returns whether this is an input of another caller in a pane of the server.
    fn is_anothers(&self, activity: &Activity, own: &Inputs) -> bool {
        matches!(activity.deed, Deed::Input(_))
            && !own.include(activity)
            && self.server.live_pane(activity.pane).is_some_and(|pane| pane.cursor().epoch == activity.epoch)
    }
}

/// Runs this in the engine's runtime: what it starts there outlives the rules.
pub(crate) async fn on_engine<T: Send + 'static>(
    engine: Engine,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    engine.runtime().spawn(work).await.map_err(|_| Error::unavailable("muxtap is stopping"))?
}

/// When rules typed last, by pane.
#[derive(Default)]
struct Inputs(HashMap<PaneId, (Instant, Option<Instant>)>);

impl Inputs {
    fn note(&mut self, typing: &Typing) {
        if typing.text.is_some() {
            self.0.insert(typing.pane, (typing.at, None));
        } else if let Some((_, end)) = self.0.get_mut(&typing.pane) {
            *end = Some(typing.at);
        }
    }

    /// Returns whether an input is one of these. One that another caller typed meanwhile counts as one: that
    /// only withholds more.
    fn include(&self, activity: &Activity) -> bool {
        self.0
            .get(&activity.pane)
            .is_some_and(|(begin, end)| activity.at >= *begin && end.is_none_or(|end| activity.at <= end))
    }
}

/// Resolves at this time, or never without one.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
