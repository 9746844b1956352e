//! Events of many panes, for readers of any speed.
//!
//! A subscription holds an offset into each pane's ring and reads on when its reader has time. No
//! queue is kept for it: a reader that is too slow meets a gap, not a full queue. All subscriptions
//! at the same offset share what is read.

#[cfg(test)]
mod orders;
mod rate;
mod reader;
mod trail;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    path::Path,
    sync::Arc,
};

use muxtap_api::{
    AgentInfo, Error, ErrorCode, Event, EventKind, GapReason, PaneInfo, ReadFormat, Result, ScreenFormat, Since,
    SubscribeRequest, Tier,
};
use muxtap_core::{
    protocol::ids::PaneId,
    stream::resume::{self, Place, Resume},
};
use muxtap_tmux::FollowAll;
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::{
    Charge, Engine, PaneState, Server, limits,
    pane::{Notifier, SharedEvent},
    query::scope::{Names, Scope, Scopes, is_pattern},
};

use rate::RateLimiter;
use reader::{Next, Reader, StartPoint};
pub(super) use trail::Trails;
use trail::{Lookup, Trail};

/// A running subscription to the events of one server.
pub struct Subscription {
    server: Server,
    filter: Filter,
    notifier: Arc<Notifier>,
    broadcast: broadcast::Receiver<(Arc<Path>, Event)>,
    /// The readers of the followed panes, by the numbers under which the panes notify.
    readers: BTreeMap<u32, Reader>,
    last_number: u32,
    /// Numbers of the readers whose panes have changed, in the order in which they are read.
    queue: VecDeque<u32>,
    /// Numbers of the readers that read again at a set time, the next one first.
    scheduled: VecDeque<(Instant, u32)>,
    /// Events of the last read that are still to be delivered.
    ready: VecDeque<Arc<SharedEvent>>,
    rate: RateLimiter,
    /// The resume token that was delivered last.
    last_resume: String,
    /// The positions of all readers, step by step. Kept once the subscription has followed more
    /// panes than a resume token can name.
    trail: Option<Trail>,
    /// Readers that may have moved since the last resume token.
    moved: BTreeSet<u32>,
    /// The error that ends the subscription.
    failed: Option<Error>,
    /// The subscription's share of what the caller may have open.
    charge: Option<Charge>,
    /// The use of the whole server, for as long as the subscription lasts.
    _following: Option<FollowAll>,
}

/// Approximate bytes of a subscription; [`PANE_STATE`] is added for each of its panes.
const SUBSCRIPTION_STATE: usize = 4096;
const PANE_STATE: usize = 512;

/// The events that a subscription delivers.
struct Filter {
    /// Targets whose panes are followed. Empty: all panes.
    patterns: Vec<String>,
    scopes: Scopes,
    kinds: HashSet<EventKind>,
    format: ReadFormat,
    screen: ScreenFormat,
}

/// An event as delivered to one subscriber.
pub struct Delivery {
    /// The event.
    pub event: Arc<SharedEvent>,
    /// The resume token after this event, if it differs from the last one delivered.
    pub resume: Option<String>,
}

impl Server {
    /// Subscribes to events of one server. Its panes are followed for the subscription.
    pub async fn subscribe(&self, request: &SubscribeRequest) -> Result<Subscription> {
        self.engine.authorize(Tier::Read)?;
        let filter = Filter::of(request, self.scopes(&request.panes).await?)?;
        let following = self.follow_for(&filter).await?;
        Ok(Subscription { _following: following, ..self.subscribe_to(request, filter).await? })
    }

    /// Subscribes to the events of what is already followed. No pane is followed for the
    /// subscription.
    pub async fn overhear(&self, request: &SubscribeRequest) -> Result<Subscription> {
        self.engine.authorize(Tier::Read)?;
        let filter = Filter::of(request, self.scopes(&request.panes).await?)?;
        self.subscribe_to(request, filter).await
    }

    /// Follows the panes that a subscription needs: those that match its targets now, or all of the
    /// server.
    async fn follow_for(&self, filter: &Filter) -> Result<Option<FollowAll>> {
        let link = self.host.server();
        // A pane of any session may get the labels later.
        if !filter.patterns.is_empty() && !filter.scopes.select() {
            // Panes that appear later beside them are announced to the client that is already
            // attached.
            let listed = self.panes().await?;
            let fitting = listed.iter().filter(|info| !info.window_id.is_empty() && filter.matches(*info));
            let fitting: Vec<_> = fitting.map(|info| info.id).collect();
            if !fitting.is_empty() {
                for pane in fitting {
                    match self.host.follow(link, pane).await {
                        Err(error) if error.code != ErrorCode::NotFound => return Err(error),
                        _ => {}
                    }
                }
                return Ok(None);
            }
        }
        let all = self.follow_all();
        link.cover_all().await?;
        Ok(Some(all))
    }

    async fn subscribe_to(&self, request: &SubscribeRequest, filter: Filter) -> Result<Subscription> {
        let since = request.since.as_deref().map_or(Ok(Since::Now), str::parse)?;
        check_since(since, &request.panes)?;
        let resume = request.resume.as_deref().filter(|resume| !resume.is_empty()).map(str::parse).transpose()?;
        let mut subscription = Subscription {
            server: self.clone(),
            filter,
            notifier: Arc::default(),
            broadcast: self.engine.shared.events.subscribe(),
            readers: BTreeMap::new(),
            last_number: 0,
            queue: VecDeque::new(),
            scheduled: VecDeque::new(),
            ready: VecDeque::new(),
            rate: RateLimiter::default(),
            last_resume: String::new(),
            trail: None,
            moved: BTreeSet::new(),
            failed: None,
            charge: None,
            _following: None,
        };
        let from = resume.map_or(StartFrom::Since, |resume| self.engine.resolve_resume(resume));
        subscription.find_panes(since, from).await?;
        let targets: usize = subscription.filter.patterns.iter().map(String::len).sum();
        let bytes = SUBSCRIPTION_STATE + 2 * targets + PANE_STATE * subscription.readers.len();
        subscription.charge = Some(self.engine.charge_open(bytes)?);
        Ok(subscription)
    }
}

/// Checks where a subscription begins. A cursor belongs to one pane, so only a subscription to that
/// pane alone can begin there.
fn check_since(since: Since, panes: &[String]) -> Result<()> {
    let only = |pane: PaneId| matches!(panes, [one] if *one == pane.to_string());
    match since {
        Since::At(cursor) if !only(cursor.pane) => Err(Error::invalid(format!(
            "since: this cursor belongs to pane {} and works only with that pane, named by its id; to continue with \
             several panes, pass the last event's id as resume or Last-Event-ID",
            cursor.pane
        ))),
        Since::Screen => {
            Err(Error::invalid("since: events can begin at now, start, input, lines:N, an age (10m) or a cursor"))
        }
        _ => Ok(()),
    }
}

/// Where a subscription begins.
enum StartFrom {
    /// At the `since` of the request.
    Since,
    /// At the positions where each pane was left. The reason is set if output is missing there
    /// because the reader has seen less.
    Places(HashMap<PaneId, Place>, Option<GapReason>),
    /// At the start of the retained output: the resume token is of another run of muxtap.
    OtherRun,
    /// At the `since` of the request, with a gap: the positions are no longer known.
    Forgotten,
}

impl Engine {
    fn resolve_resume(&self, resume: Resume) -> StartFrom {
        let by_pane = |places: Vec<Place>| places.into_iter().map(|place| (place.cursor.pane, place)).collect();
        match resume {
            Resume::Places(places) => StartFrom::Places(by_pane(places), None),
            Resume::Point(point) if point.engine != self.shared.nonce => StartFrom::OtherRun,
            Resume::Point(point) => match self.shared.trails.look_up(point.stream, point.at) {
                Lookup::Exact(places) => StartFrom::Places(by_pane(places), None),
                Lookup::Since(places) => StartFrom::Places(by_pane(places), Some(GapReason::ResumeExpired)),
                Lookup::Unknown => StartFrom::Forgotten,
            },
        }
    }
}

impl StartFrom {
    /// Returns the positions where panes were left.
    fn places(&self) -> impl Iterator<Item = &Place> {
        let places = match self {
            Self::Places(places, _) => Some(places),
            _ => None,
        };
        places.into_iter().flat_map(HashMap::values)
    }

    /// Returns where a pane begins, and whether the pane has opened since the reader was last
    /// connected.
    fn of(&self, pane: PaneId, ended: bool, since: Since) -> (StartPoint, bool) {
        let start = StartPoint { since, ..StartPoint::default() };
        match self {
            Self::Since => (start, false),
            Self::Places(places, missing) => match places.get(&pane).copied() {
                Some(place) => (StartPoint { place: Some(place), missing: *missing, ..start }, false),
                None if ended => (start, false),
                None => (StartPoint { since: Since::Start, ..start }, true),
            },
            Self::OtherRun => {
                (StartPoint { since: Since::Start, missing: Some(GapReason::MuxtapRestarted), place: None }, false)
            }
            Self::Forgotten => (StartPoint { missing: Some(GapReason::ResumeExpired), ..start }, false),
        }
    }
}

impl Filter {
    /// Creates the filter of a request whose targets were resolved to `scopes`.
    fn of(request: &SubscribeRequest, scopes: Scopes) -> Result<Self> {
        let SubscribeRequest { panes, types, format, binary, screen, .. } = request;
        if *binary && *format != ReadFormat::Raw {
            return Err(Error::invalid("binary: only output of format raw comes in binary frames"));
        }
        let kinds = match types.as_slice() {
            [] => EventKind::ALL.iter().skip(EventKind::REQUESTED).copied().collect(),
            types => types.iter().copied().collect(),
        };
        Ok(Self { patterns: panes.clone(), scopes, kinds, format: *format, screen: *screen })
    }

    /// Returns whether a kind of event that marks cause is included.
    fn includes_marks(&self) -> bool {
        EventKind::OF_MARKS.iter().any(|kind| self.includes(*kind))
    }

    fn includes(&self, kind: EventKind) -> bool {
        self.kinds.contains(&kind)
    }

    fn matches<'a>(&self, named: impl Into<Names<'a>>) -> bool {
        let named = named.into();
        self.scopes.include(named)
    }

    /// Returns where a pane begins whose opening was missed: with its first output, unless it is included
    /// for its labels alone. It may have them only now, and what it printed before them is not included.
    fn begin_of_new(&self, info: &PaneInfo) -> Since {
        let is_named = self.matches(Names { labels: None, ..info.into() });
        if is_named { Since::Start } else { Since::Now }
    }
}

impl Subscription {
    /// Follows the panes that exist when the subscription begins. A target without `*` must match
    /// one pane; it is resolved like any other target.
    async fn find_panes(&mut self, since: Since, from: StartFrom) -> Result<()> {
        let mut named = HashSet::new();
        for (pattern, scope) in self.filter.patterns.iter().zip(self.filter.scopes.each()) {
            // A target of a session or window follows all of its panes. A target of a pane must
            // exist.
            let pane = match scope {
                Scope::Pane(id) => id.to_string(),
                Scope::Named { pane: Some(_), .. } => pattern.clone(),
                _ => continue,
            };
            named.insert(self.server.resolve_pane(&pane).await?.id());
        }
        let listed = self.server.panes().await?;
        for info in listed.iter().filter(|info| !info.earlier_server) {
            let id = info.id;
            let ended = info.window_id.is_empty();
            let (mut start, opened) = from.of(id, ended, since);
            if opened {
                start.since = self.filter.begin_of_new(info);
            }
            let was_followed = start.place.is_some_and(|place| !place.ended);
            // A pane that has lost its labels stays in the stream. The next server has panes with the same
            // ids.
            let stays = self.filter.scopes.select()
                && start.place.is_some_and(|place| {
                    let pane = self.server.host.pane(id);
                    was_followed && pane.is_some_and(|pane| pane.epoch().server == place.cursor.epoch.server)
                });
            // The window's name of an ended pane is unknown by now.
            let follow = named.contains(&id) || stays || if ended { was_followed } else { self.filter.matches(info) };
            if !follow {
                continue;
            }
            self.add(id, start);
            if opened {
                self.announce(info);
            }
        }
        for place in from.places().filter(|place| !place.ended) {
            // The last output of an earlier server's pane is delivered unless another pane has its
            // id by now.
            if let Some(pane) = self.server.host.earlier_pane_of(&place.cursor)
                && self.server.host.live_pane(pane.id()).is_none()
            {
                let (start, _) = from.of(pane.id(), true, since);
                self.follow(pane, start);
            }
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let patterns = &self.filter.patterns;
        if self.readers.is_empty() && !patterns.is_empty() && patterns.iter().all(|pattern| !is_pattern(pattern)) {
            let message =
                format!("no pane matches `{}`; `muxtap list-panes` shows what is there", patterns.join("`, `"));
            return Err(Error::not_found(message));
        }
        Ok(())
    }

    /// Follows a pane, unless it is followed already.
    fn add(&mut self, id: PaneId, start: StartPoint) {
        if let Some(pane) = self.server.host.pane(id) {
            self.follow(pane, start);
        }
    }

    fn follow(&mut self, pane: Arc<PaneState>, start: StartPoint) {
        if self.reader_of(&pane).is_some() {
            return;
        }
        if self.readers.len() >= limits::SUBSCRIPTION_PANES {
            let most = limits::SUBSCRIPTION_PANES;
            self.failed = Some(Error::new(
                ErrorCode::ResourceLimit,
                format!("a subscription follows at most {most} panes; name fewer of them"),
            ));
            return;
        }
        self.last_number += 1;
        // Commands may set the title and reset the screen.
        let in_use = [EventKind::Title, EventKind::Screen].into_iter().any(|kind| self.filter.includes(kind));
        let in_use = in_use.then(|| self.server.host.use_values(&pane));
        let mut reader = Reader::new(pane, &self.notifier, self.last_number, start, self.filter.includes_marks());
        reader.in_use = in_use;
        if self.filter.includes(EventKind::Screen) && self.filter.screen == ScreenFormat::Rows {
            // A subscriber that receives only row numbers has already seen the screen.
            reader.skip_current_screen();
        }
        self.readers.insert(self.last_number, reader);
        self.moved.insert(self.last_number);
        self.enqueue(self.last_number);
    }

    fn reader_of(&mut self, pane: &Arc<PaneState>) -> Option<&mut Reader> {
        self.readers.values_mut().find(|reader| Arc::ptr_eq(reader.pane(), pane))
    }

    /// Queues `pane-opened` for a pane, once.
    fn announce(&mut self, info: &PaneInfo) {
        let pane = self.server.host.pane(info.id);
        if let Some(reader) = pane.and_then(|pane| self.reader_of(&pane))
            && !std::mem::replace(&mut reader.announced, true)
            && self.filter.includes(EventKind::PaneOpened)
        {
            self.ready.push_back(SharedEvent::new(Event::PaneOpened { pane: Box::new(info.clone()) }));
        }
    }

    /// Returns the ids of the followed panes.
    pub fn panes(&self) -> Vec<String> {
        let mut panes: Vec<_> = self.readers.values().map(|reader| reader.pane().id()).collect();
        panes.sort_unstable();
        panes.iter().map(ToString::to_string).collect()
    }

    /// Returns the resume token: how far each pane has been delivered.
    pub fn resume_token(&mut self) -> String {
        let mut moved = std::mem::take(&mut self.moved);
        if self.trail.is_none() && self.readers.len() > limits::PLACES_TOLD {
            self.trail = Some(self.server.engine.shared.trails.begin());
            moved = self.readers.keys().copied().collect();
        }
        let resume = match &self.trail {
            None => {
                let mut places: Vec<_> = self.readers.values().map(Reader::position).collect();
                places.sort_by_key(|place| (place.cursor.epoch.server, place.cursor.epoch.engine, place.cursor.pane));
                Resume::Places(places)
            }
            Some(trail) => {
                let place = |number: u32| (number, self.readers.get(&number).map(Reader::position));
                let at = trail.record(moved.into_iter().map(place));
                Resume::Point(resume::Point { engine: self.server.engine.shared.nonce, stream: trail.number(), at })
            }
        };
        self.last_resume = resume.to_string();
        self.last_resume.clone()
    }

    /// Returns the next event with its resume token, for a reader outside of this process. `None`
    /// means that the engine stops; an error ends the subscription and is its last item.
    ///
    /// Cancel safe: dropping the future while it waits loses nothing.
    pub async fn next(&mut self) -> Option<Result<Delivery>> {
        let event = match self.next_event().await? {
            Ok(event) => event,
            Err(error) => return Some(Err(error)),
        };
        // Of several events of one read only the last has a token, which covers all of them.
        let resume = if self.ready.is_empty() { self.new_resume_token() } else { None };
        Some(Ok(Delivery { event, resume }))
    }

    /// Returns the next event, for a reader in this process. Like [`Self::next`], without a token:
    /// [`Self::leave`] returns one.
    ///
    /// Cancel safe: dropping the future while it waits loses nothing.
    pub async fn next_event(&mut self) -> Option<Result<Arc<SharedEvent>>> {
        loop {
            if self.server.engine.is_stopping() {
                return None;
            }
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            self.drain_pending();
            if !self.ready.is_empty() {
                continue;
            }
            if let Some(number) = self.queue.pop_front() {
                self.read_pane(number);
                continue;
            }
            if let Some(error) = self.failed.take() {
                return Some(Err(error));
            }
            let due = self.scheduled.front().map(|(due, _)| *due);
            tokio::select! {
                marked = async { self.rate.ready().await; self.notifier.changed().await } => {
                    self.rate.consume();
                    self.enqueue_all(marked);
                }
                () = until(due) => {}
                news = self.broadcast.recv() => match news {
                    Ok((socket, event)) => self.on_broadcast(&socket, &event),
                    Err(broadcast::error::RecvError::Lagged(_)) => self.on_lagged(),
                    Err(broadcast::error::RecvError::Closed) => return None,
                },
                () = self.server.engine.stopping() => return None,
            }
        }
    }

    /// Ends the subscription. Returns the events of the last read that were not delivered, and the resume token
    /// after them.
    pub fn leave(mut self) -> (impl Iterator<Item = Arc<SharedEvent>>, String) {
        let resume = self.resume_token();
        (std::mem::take(&mut self.ready).into_iter(), resume)
    }

    /// Takes everything that happened while this subscriber was busy.
    fn drain_pending(&mut self) {
        let marked = self.notifier.take();
        self.enqueue_all(marked);
        let now = Instant::now();
        while let Some((_, number)) = self.scheduled.front().filter(|(due, _)| *due <= now).copied() {
            self.scheduled.pop_front();
            self.enqueue(number);
        }
        loop {
            match self.broadcast.try_recv() {
                Ok((socket, event)) => self.on_broadcast(&socket, &event),
                // The panes' state contains what was missed, except for new panes.
                Err(broadcast::error::TryRecvError::Lagged(_)) => self.on_lagged(),
                Err(_) => return,
            }
        }
    }

    fn enqueue_all(&mut self, numbers: Vec<u32>) {
        for number in numbers {
            self.enqueue(number);
        }
    }

    /// Queues a reader, unless it is queued already.
    fn enqueue(&mut self, number: u32) {
        if let Some(reader) = self.readers.get_mut(&number)
            && !std::mem::replace(&mut reader.queued, true)
        {
            self.queue.push_back(number);
        }
    }

    /// Returns the resume token, if it differs from the last one.
    fn new_resume_token(&mut self) -> Option<String> {
        let last = std::mem::take(&mut self.last_resume);
        Some(self.resume_token()).filter(|place| *place != last)
    }

    /// Reads what is new in a pane, and queues or schedules its reader again if necessary.
    fn read_pane(&mut self, number: u32) {
        let Some(reader) = self.readers.get_mut(&number) else { return };
        reader.queued = false;
        self.moved.insert(number);
        match reader.next(&self.filter, &mut self.ready) {
            Next::Again => self.enqueue(number),
            Next::At(due) => {
                if !self.scheduled.iter().any(|(_, waiting)| *waiting == number) {
                    let at = self.scheduled.partition_point(|(other, _)| *other <= due);
                    self.scheduled.insert(at, (due, number));
                }
            }
            Next::Idle => {
                let there = self.server.host.live_pane(reader.pane().id());
                // A pane that has gone has no more events once its end was sent.
                if reader.is_end_sent() && !there.is_some_and(|there| Arc::ptr_eq(&there, reader.pane())) {
                    self.readers.remove(&number);
                    self.moved.remove(&number);
                    if let Some(trail) = &self.trail {
                        trail.record([(number, None)]);
                    }
                }
            }
        }
    }

    /// Follows panes whose opening was missed, and queues the current states of agents.
    fn add_new_panes(&mut self) {
        if self.filter.includes(EventKind::Agent) {
            // An agent's current state covers the missed events.
            for agent in self.server.host.known_agents() {
                let socket = self.server.host.socket().to_owned();
                self.on_broadcast(&socket, &Event::Agent(Box::new(agent)));
            }
        }
        for pane in self.server.host.panes() {
            let info = self.server.host.info_of(pane.id());
            if self.reader_of(&pane).is_none() && self.filter.matches(&info) {
                self.add(pane.id(), StartPoint { since: self.filter.begin_of_new(&info), ..StartPoint::default() });
                self.announce(&info);
            }
        }
    }

    /// Follows the panes that match by now because they were labeled, from now on. Called at each change of
    /// any of the server's panes, so what is followed already costs little.
    fn add_labeled_panes(&mut self) {
        if !self.filter.scopes.select() {
            return;
        }
        let scopes = &self.filter.scopes;
        let topology = self.server.host.server().topology();
        let labeled = topology.panes.iter().filter(|row| scopes.select_labels(&row.labels));
        let labeled: HashSet<_> = labeled.map(|row| row.id).collect();
        drop(topology);
        if labeled.is_empty() {
            return;
        }
        let followed: HashSet<_> = self.readers.values().map(|reader| Arc::as_ptr(reader.pane())).collect();
        let mut new = self.server.host.panes();
        new.retain(|pane| labeled.contains(&pane.id()) && !followed.contains(&Arc::as_ptr(pane)));
        for pane in new {
            let info = self.server.host.info_of(pane.id());
            if self.filter.matches(&info) {
                self.add(pane.id(), StartPoint::default());
                self.announce(&info);
            }
        }
    }

    /// Returns whether an agent is in a followed pane. A pane that has gone is no longer followed,
    /// and its agent's end comes after the pane's end.
    fn wants_agent(&self, agent: &AgentInfo) -> bool {
        let followed = || self.readers.values().any(|reader| reader.pane().id() == agent.pane);
        agent.socket == self.server.host.socket().display().to_string()
            && (followed() || self.server.include_agent(&self.filter.scopes, agent))
    }

    /// Handles a lag: the broadcast dropped events before this subscriber received them. Finds new
    /// panes, and queues events for what may have changed.
    fn on_lagged(&mut self) {
        self.add_new_panes();
        if self.filter.includes(EventKind::Topology) {
            let socket = self.server.host.socket().display().to_string();
            self.ready.push_back(SharedEvent::new(Event::Topology { socket }));
        }
    }

    fn on_broadcast(&mut self, socket: &Path, event: &Event) {
        // Every server has a pane %0.
        if socket != self.server.host.socket() {
            return;
        }
        match event {
            Event::PaneOpened { pane } => {
                if self.filter.matches(&**pane) {
                    // A pane that opens during a subscription is followed from its beginning.
                    self.add(pane.id, StartPoint { since: Since::Start, ..StartPoint::default() });
                    self.announce(pane);
                }
                return;
            }
            // The pane's own reader sends these, after its last output.
            Event::PaneExited { .. }
            | Event::Bell { .. }
            | Event::Gap { .. }
            | Event::Output { .. }
            | Event::Screen { .. }
            | Event::CommandStarted { .. }
            | Event::CommandFinished { .. }
            | Event::Cwd { .. }
            | Event::Progress { .. }
            | Event::Notification { .. } => return,
            Event::Title { pane, .. } => {
                if !self.readers.values().any(|reader| reader.pane().id() == *pane) {
                    return;
                }
            }
            Event::Agent(agent) => {
                if !self.wants_agent(agent) {
                    return;
                }
            }
            Event::Topology { .. } => self.add_labeled_panes(),
            Event::Server { .. } => {}
        }
        if self.filter.includes(event.kind()) {
            self.ready.push_back(SharedEvent::new(event.clone()));
        }
    }
}

/// Resolves at this time, or never without one.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
