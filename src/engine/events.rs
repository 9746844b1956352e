//! Events of many panes, for readers of any speed.
//!
//! A subscription holds a place in each pane's ring and reads on when its reader has time: nothing is queued for it, and a reader that is too
//! slow meets a gap, not a full queue. What is read is shared by all who stand at the same place.

mod frame;
mod pace;
mod reader;
mod shared;
mod telling;
mod trail;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    path::Path,
    sync::Arc,
    time::Instant,
};

use tokio::sync::broadcast;

use super::{
    Engine, Host, Pane, limits,
    list::{PanePattern, check_pattern},
    pane::Listener,
};
use crate::{
    api::{
        AgentInfo, Error, ErrorCode, Event, EventKind, GapReason, PaneInfo, ReadFormat, Result, ScreenFormat,
        SubscribeRequest, Tier,
    },
    protocol::ids::PaneId,
    stream::{
        cursor::Since,
        resume::{self, Place, Resume},
    },
};

use pace::Pace;
use reader::{Beginning, Next, Reader};
pub(super) use shared::Shared;
pub use telling::Telling;
pub(super) use trail::Trails;
use trail::{Known, Trail};

/// A running subscription.
pub struct Subscription {
    engine: Engine,
    host: Arc<Host>,
    wanted: Wanted,
    listener: Arc<Listener>,
    news: broadcast::Receiver<(Arc<Path>, Event)>,
    /// The panes that are followed, by the numbers of their seats.
    readers: BTreeMap<u32, Reader>,
    last_number: u32,
    /// Seats whose panes are to be looked at, in their turn.
    marked: VecDeque<u32>,
    /// Those that are to be looked at later, the next one first.
    later: VecDeque<(Instant, u32)>,
    /// What one look gave.
    ready: VecDeque<Arc<Telling>>,
    pace: Pace,
    /// The place that was told last.
    told: String,
    /// Where it was, once it has followed more panes than that place can name.
    trail: Option<Trail>,
    /// Those of its readers that may have moved since.
    moved: BTreeSet<u32>,
    /// It cannot go on.
    failed: Option<Error>,
}

/// What is told.
struct Wanted {
    /// Of which panes; none: of all.
    patterns: Vec<String>,
    read: Vec<PanePattern>,
    kinds: HashSet<EventKind>,
    format: ReadFormat,
    screen: ScreenFormat,
}

/// An event as it is told to one subscriber.
pub struct Told {
    /// The event.
    pub telling: Arc<Telling>,
    /// Where to go on after it, if that is another place than the last one that was told.
    pub resume: Option<String>,
}

impl Engine {
    /// Subscribes to events of one server.
    pub async fn subscribe(&self, host: &Arc<Host>, request: &SubscribeRequest) -> Result<Subscription> {
        self.may(Tier::Read)?;
        let wanted = Wanted::of(request)?;
        let since = request.since.as_deref().map_or(Ok(Since::Now), str::parse)?;
        if matches!(since, Since::At(_) | Since::Screen | Since::Input) {
            return Err(Error::invalid(
                "since: events begin at now, start or lines:N; to go on give the last event's id as resume or Last-Event-ID",
            ));
        }
        let resume = request.resume.as_deref().filter(|resume| !resume.is_empty()).map(str::parse).transpose()?;
        let mut subscription = Subscription {
            engine: self.clone(),
            host: host.clone(),
            wanted,
            listener: Arc::default(),
            news: self.shared.events.subscribe(),
            readers: BTreeMap::new(),
            last_number: 0,
            marked: VecDeque::new(),
            later: VecDeque::new(),
            ready: VecDeque::new(),
            pace: Pace::default(),
            told: String::new(),
            trail: None,
            moved: BTreeSet::new(),
            failed: None,
        };
        let from = resume.map_or(From::Since, |resume| self.places_of(resume));
        subscription.find_panes(since, from).await?;
        Ok(subscription)
    }
}

/// Where a subscription begins.
enum From {
    /// Where its request says.
    Since,
    /// Where panes were told last. What is missing there, if the reader has seen less.
    Places(HashMap<PaneId, Place>, Option<GapReason>),
    /// At what is retained: the places are those of another run of muxtap.
    OtherRun,
    /// Where its request says, with a gap: the places are not known any more.
    Forgotten,
}

impl Engine {
    fn places_of(&self, resume: Resume) -> From {
        let by_pane = |places: Vec<Place>| places.into_iter().map(|place| (place.cursor.pane, place)).collect();
        match resume {
            Resume::Places(places) => From::Places(by_pane(places), None),
            Resume::Point(point) if point.engine != self.shared.nonce => From::OtherRun,
            Resume::Point(point) => match self.shared.trails.look_up(point.stream, point.at) {
                Known::Exactly(places) => From::Places(by_pane(places), None),
                Known::Since(places) => From::Places(by_pane(places), Some(GapReason::ResumeExpired)),
                Known::Nothing => From::Forgotten,
            },
        }
    }
}

impl From {
    /// The places where panes were told last.
    fn places(&self) -> impl Iterator<Item = &Place> {
        let places = match self {
            Self::Places(places, _) => Some(places),
            _ => None,
        };
        places.into_iter().flat_map(HashMap::values)
    }

    /// Where a pane begins, and whether it has opened since the reader was here last.
    fn of(&self, pane: PaneId, ended: bool, since: Since) -> (Beginning, bool) {
        let beginning = Beginning { since, ..Beginning::default() };
        match self {
            Self::Since => (beginning, false),
            Self::Places(places, missing) => match places.get(&pane).copied() {
                Some(place) => (Beginning { place: Some(place), missing: *missing, ..beginning }, false),
                None if ended => (beginning, false),
                None => (Beginning { since: Since::Start, ..beginning }, true),
            },
            Self::OtherRun => {
                (Beginning { since: Since::Start, missing: Some(GapReason::MuxtapRestarted), place: None }, false)
            }
            Self::Forgotten => (Beginning { missing: Some(GapReason::ResumeExpired), ..beginning }, false),
        }
    }
}

impl Wanted {
    fn of(request: &SubscribeRequest) -> Result<Self> {
        let SubscribeRequest { panes, types, format, binary, screen, .. } = request;
        if panes.len() > limits::SUBSCRIPTION_TARGETS {
            let (given, most) = (panes.len(), limits::SUBSCRIPTION_TARGETS);
            return Err(Error::new(ErrorCode::ResourceLimit, format!("panes: {given} targets; at most {most}")));
        }
        if let Some(long) = panes.iter().find(|target| target.len() > limits::TARGET_BYTES) {
            let (given, most) = (long.len(), limits::TARGET_BYTES);
            return Err(Error::invalid(format!("panes: a target of {given} bytes; at most {most}")));
        }
        if *binary && *format != ReadFormat::Raw {
            return Err(Error::invalid("binary: only output of format raw comes in binary frames"));
        }
        let kinds = match types.as_slice() {
            [] => EventKind::ALL.iter().skip(2).copied().collect(),
            types => types.iter().copied().collect(),
        };
        for pattern in panes {
            check_pattern(pattern)?;
        }
        let read = panes.iter().map(|pattern| PanePattern::new(pattern)).collect();
        Ok(Self { patterns: panes.clone(), read, kinds, format: *format, screen: *screen })
    }

    fn has(&self, kind: EventKind) -> bool {
        self.kinds.contains(&kind)
    }

    fn fits(&self, info: &PaneInfo) -> bool {
        self.read.is_empty() || self.read.iter().any(|pattern| pattern.matches(info))
    }
}

impl Subscription {
    /// The panes that are there when the subscription begins. A target without `*` must mean one; it is looked up as
    /// everywhere.
    async fn find_panes(&mut self, since: Since, from: From) -> Result<()> {
        let mut named = HashSet::new();
        for pattern in &self.wanted.patterns {
            // A whole session or window is followed when it is named; one pane when a pane is.
            if pattern.starts_with('%') || pattern.contains('.') && !pattern.contains('*') {
                named.insert(self.engine.pane(&self.host, pattern).await?.id());
            }
        }
        let listed = self.engine.panes(&self.host).await?;
        for info in listed.panes.iter().filter(|info| !info.earlier_server) {
            let Ok(id) = info.id.parse::<PaneId>() else { continue };
            let ended = info.window_id.is_empty();
            let (beginning, opened) = from.of(id, ended, since);
            // Of one that has ended nobody knows any more how its window was called.
            let follow = named.contains(&id)
                || if ended { beginning.place.is_some_and(|place| !place.ended) } else { self.wanted.fits(info) };
            if !follow {
                continue;
            }
            self.add(id, beginning);
            if opened {
                self.announce(info);
            }
        }
        for place in from.places().filter(|place| !place.ended) {
            // What a pane of an earlier server printed last is given where no other pane has its id by now.
            if let Some(pane) = self.host.earlier_pane_of(&place.cursor)
                && self.host.live_pane(pane.id()).is_none()
            {
                let (beginning, _) = from.of(pane.id(), true, since);
                self.follow(pane, beginning);
            }
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let patterns = &self.wanted.patterns;
        if self.readers.is_empty() && !patterns.is_empty() && patterns.iter().all(|pattern| !pattern.contains('*')) {
            let message = format!("no pane matches {}; `muxtap list-panes` shows what is there", patterns.join(", "));
            return Err(Error::not_found(message));
        }
        Ok(())
    }

    /// Follows a pane. Nothing happens where it is followed already.
    fn add(&mut self, id: PaneId, beginning: Beginning) {
        if let Some(pane) = self.host.pane(id) {
            self.follow(pane, beginning);
        }
    }

    fn follow(&mut self, pane: Arc<Pane>, beginning: Beginning) {
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
        let mut reader = Reader::new(pane, &self.listener, self.last_number, beginning);
        if self.wanted.has(EventKind::Screen) && self.wanted.screen == ScreenFormat::Rows {
            // Who is told only which rows changed has seen the screen.
            reader.skip_screen();
        }
        self.readers.insert(self.last_number, reader);
        self.moved.insert(self.last_number);
        self.mark(self.last_number);
    }

    fn reader_of(&mut self, pane: &Arc<Pane>) -> Option<&mut Reader> {
        self.readers.values_mut().find(|reader| Arc::ptr_eq(reader.pane(), pane))
    }

    /// Tells once that a pane is there.
    fn announce(&mut self, info: &PaneInfo) {
        let pane = info.id.parse().ok().and_then(|id| self.host.pane(id));
        if let Some(reader) = pane.and_then(|pane| self.reader_of(&pane))
            && !std::mem::replace(&mut reader.announced, true)
            && self.wanted.has(EventKind::PaneOpened)
        {
            self.ready.push_back(Telling::new(&Event::PaneOpened { pane: Box::new(info.clone()) }));
        }
    }

    /// The panes that are followed.
    pub fn panes(&self) -> Vec<String> {
        let mut panes: Vec<_> = self.readers.values().map(|reader| reader.pane().id()).collect();
        panes.sort_unstable();
        panes.iter().map(ToString::to_string).collect()
    }

    /// How far every pane was told so far.
    pub fn place(&mut self) -> String {
        let mut moved = std::mem::take(&mut self.moved);
        if self.trail.is_none() && self.readers.len() > limits::PLACES_TOLD {
            self.trail = Some(self.engine.shared.trails.begin());
            moved = self.readers.keys().copied().collect();
        }
        let resume = match &self.trail {
            None => {
                let mut places: Vec<_> = self.readers.values().map(Reader::place).collect();
                places.sort_by_key(|place| (place.cursor.epoch.server, place.cursor.epoch.engine, place.cursor.pane));
                Resume::Places(places)
            }
            Some(trail) => {
                let place = |number: u32| (number, self.readers.get(&number).map(Reader::place));
                let at = trail.note(moved.into_iter().map(place));
                Resume::Point(resume::Point { engine: self.engine.shared.nonce, stream: trail.number(), at })
            }
        };
        self.told = resume.to_string();
        self.told.clone()
    }

    /// The next event. `None`: the engine stops. An error: the subscription cannot go on, and this is the last that it gives. Nothing is lost
    /// when it is dropped while it waits.
    pub async fn next(&mut self) -> Option<Result<Told>> {
        loop {
            if self.engine.is_stopping() {
                return None;
            }
            if let Some(telling) = self.ready.pop_front() {
                // Only the last of several that one look gave has it: it speaks for all of them.
                let resume = if self.ready.is_empty() { self.new_place() } else { None };
                return Some(Ok(Told { telling, resume }));
            }
            self.take_news();
            if !self.ready.is_empty() {
                continue;
            }
            if let Some(number) = self.marked.pop_front() {
                self.look(number);
                continue;
            }
            if let Some(error) = self.failed.take() {
                return Some(Err(error));
            }
            let due = self.later.front().map(|(due, _)| *due);
            tokio::select! {
                marked = async { self.pace.turn().await; self.listener.changed().await } => {
                    self.pace.take();
                    self.mark_all(marked);
                }
                () = until(due) => {}
                news = self.news.recv() => match news {
                    Ok((socket, event)) => self.hear(&socket, &event),
                    Err(broadcast::error::RecvError::Lagged(_)) => self.missed(),
                    Err(broadcast::error::RecvError::Closed) => return None,
                },
                () = self.engine.stopping() => return None,
            }
        }
    }

    /// Takes what happened while this subscriber had enough to read.
    fn take_news(&mut self) {
        let marked = self.listener.take();
        self.mark_all(marked);
        let now = Instant::now();
        while let Some((_, number)) = self.later.front().filter(|(due, _)| *due <= now).copied() {
            self.later.pop_front();
            self.mark(number);
        }
        loop {
            match self.news.try_recv() {
                Ok((socket, event)) => self.hear(&socket, &event),
                // What was missed is also in the panes' states, but for panes that are new.
                Err(broadcast::error::TryRecvError::Lagged(_)) => self.missed(),
                Err(_) => return,
            }
        }
    }

    fn mark_all(&mut self, numbers: Vec<u32>) {
        for number in numbers {
            self.mark(number);
        }
    }

    /// A pane is to be looked at in its turn.
    fn mark(&mut self, number: u32) {
        if let Some(reader) = self.readers.get_mut(&number)
            && !std::mem::replace(&mut reader.marked, true)
        {
            self.marked.push_back(number);
        }
    }

    /// How far every pane was told, if that is not where it was told last.
    fn new_place(&mut self) -> Option<String> {
        let last = std::mem::take(&mut self.told);
        Some(self.place()).filter(|place| *place != last)
    }

    /// Reads what is new in a pane.
    fn look(&mut self, number: u32) {
        let Some(reader) = self.readers.get_mut(&number) else { return };
        reader.marked = false;
        self.moved.insert(number);
        match reader.next(&self.wanted, &mut self.ready) {
            Next::Again => self.mark(number),
            Next::At(due) => {
                if !self.later.iter().any(|(_, waiting)| *waiting == number) {
                    let at = self.later.partition_point(|(other, _)| *other <= due);
                    self.later.insert(at, (due, number));
                }
            }
            Next::Nothing => {
                let there = self.host.live_pane(reader.pane().id());
                // A pane that has gone and whose end was told has nothing more to say.
                if reader.is_done() && !there.is_some_and(|there| Arc::ptr_eq(&there, reader.pane())) {
                    self.readers.remove(&number);
                    self.moved.remove(&number);
                    if let Some(trail) = &self.trail {
                        trail.note([(number, None)]);
                    }
                }
            }
        }
    }

    /// Follows the panes that opened unheard.
    fn find_new(&mut self) {
        if self.wanted.has(EventKind::Agent) {
            // What was missed of agents is in what they do now.
            for agent in self.host.agents_now() {
                let socket = self.host.socket().to_owned();
                self.hear(&socket, &Event::Agent(Box::new(agent)));
            }
        }
        for pane in self.host.panes() {
            let info = self.host.info_of(pane.id());
            if self.reader_of(&pane).is_none() && self.wanted.fits(&info) {
                self.add(pane.id(), Beginning { since: Since::Start, ..Beginning::default() });
                self.announce(&info);
            }
        }
    }

    /// Whether it is in a pane that is followed. One that has gone is not followed any more, and its agent's end comes after its own.
    fn wants_agent(&self, agent: &AgentInfo) -> bool {
        let followed =
            || agent.pane.parse().is_ok_and(|id| self.readers.values().any(|reader| reader.pane().id() == id));
        agent.socket == self.host.socket().display().to_string()
            && (followed() || self.wanted.fits(&PaneInfo::from(agent)))
    }

    /// More happened than is kept for those who are slow: what is new is found, and what may have changed is to be looked at again.
    fn missed(&mut self) {
        self.find_new();
        if self.wanted.has(EventKind::Topology) {
            let socket = self.host.socket().display().to_string();
            self.ready.push_back(Telling::new(&Event::Topology { socket }));
        }
    }

    fn hear(&mut self, socket: &Path, event: &Event) {
        // Every server has a pane %0.
        if socket != self.host.socket() {
            return;
        }
        match event {
            Event::PaneOpened { pane } => {
                if self.wanted.fits(pane)
                    && let Ok(id) = pane.id.parse()
                {
                    // A pane that opens while someone listens is followed from its beginning.
                    self.add(id, Beginning { since: Since::Start, ..Beginning::default() });
                    self.announce(pane);
                }
                return;
            }
            // Told by the pane's own reader, after its last output.
            Event::PaneExited { .. }
            | Event::Bell { .. }
            | Event::Gap { .. }
            | Event::Output { .. }
            | Event::Screen { .. } => return,
            Event::Title { pane, .. } => {
                let Ok(id) = pane.parse() else { return };
                if !self.readers.values().any(|reader| reader.pane().id() == id) {
                    return;
                }
            }
            Event::Agent(agent) => {
                if !self.wants_agent(agent) {
                    return;
                }
            }
            Event::Topology { .. } | Event::Server { .. } => {}
        }
        if self.wanted.has(event.kind()) {
            self.ready.push_back(Telling::new(event));
        }
    }
}

/// Resolves then; never without a time.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
