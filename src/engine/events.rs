//! Events of many panes, for readers of any speed.
//!
//! A subscription holds a cursor for each pane and reads from the rings when its reader has time: nothing is queued for
//! it, and a reader that is too slow meets a gap, not a full queue.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use tokio::sync::broadcast;

use super::{Engine, Host, Pane, limits, list, pane::Listener, read::Piece};
use crate::{
    api::{AgentInfo, Error, Event, EventsRequest, Gap, GapReason, PaneInfo, ReadFormat, Result, Size, Tier},
    pane::{
        cursor::{Cursor, Since},
        ring::Reading,
    },
    protocol::ids::PaneId,
};

/// Raw bytes of one output event.
const EVENT_BYTES: u64 = 64 * 1024;
/// The types there are; the first two have to be asked for.
const TYPES: [&str; 10] =
    ["output", "screen", "pane-opened", "pane-exited", "bell", "title", "agent", "topology", "gap", "server"];

/// A running subscription.
pub struct Subscription {
    engine: Engine,
    host: Arc<Host>,
    patterns: Option<Vec<String>>,
    types: HashSet<String>,
    format: ReadFormat,
    since: Since,
    listener: Arc<Listener>,
    news: broadcast::Receiver<Event>,
    panes: HashMap<PaneId, Reader>,
    ready: VecDeque<Event>,
}

struct Reader {
    pane: Arc<Pane>,
    at: u64,
    gap: Option<Gap>,
    /// Its end was told.
    done: bool,
    bell: Option<u64>,
}

impl Engine {
    /// Subscribes to events. `last` is the id of the last event that the caller saw, to go on after it.
    pub async fn subscribe(
        &self,
        host: &Arc<Host>,
        request: &EventsRequest,
        last: Option<&str>,
    ) -> Result<Subscription> {
        self.may(Tier::Read)?;
        let patterns = request.panes.as_deref().map(|panes| {
            panes.split(',').map(str::trim).filter(|pattern| !pattern.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        });
        let patterns = patterns.filter(|patterns| !patterns.is_empty());
        let types: HashSet<String> = match &request.types {
            None => TYPES.iter().skip(2).map(|kind| (*kind).to_owned()).collect(),
            Some(types) => types.split(',').map(str::trim).filter(|kind| !kind.is_empty()).map(str::to_owned).collect(),
        };
        if let Some(unknown) = types.iter().find(|kind| !TYPES.contains(&kind.as_str())) {
            return Err(Error::invalid(format!("types: {unknown:?} is none of {}", TYPES.join(", "))));
        }
        let since = match &request.since {
            Some(since) => since.parse()?,
            None => Since::Now,
        };
        if matches!(since, Since::At(_) | Since::Screen | Since::Input) {
            return Err(Error::invalid("since: events begin at now, start or lines:N; to go on send Last-Event-ID"));
        }
        let screens = types.contains("screen");
        let mut subscription = Subscription {
            engine: self.clone(),
            host: host.clone(),
            patterns,
            types,
            format: request.format,
            since,
            listener: Arc::new(Listener::new(screens)),
            news: self.shared.events.subscribe(),
            panes: HashMap::new(),
            ready: VecDeque::new(),
        };
        subscription.find_panes(last).await?;
        Ok(subscription)
    }
}

impl Subscription {
    /// The panes that are there when the subscription begins. A target without `*` must mean one; it is looked up as
    /// everywhere.
    async fn find_panes(&mut self, last: Option<&str>) -> Result<()> {
        let resume: HashMap<PaneId, Cursor> = last
            .map(|last| {
                last.split('~')
                    .filter_map(|cursor| cursor.parse().ok())
                    .map(|cursor: Cursor| (cursor.pane, cursor))
                    .collect()
            })
            .unwrap_or_default();
        let mut named = HashSet::new();
        for pattern in self.patterns.clone().unwrap_or_default() {
            // A whole session or window is followed when it is named; one pane when a pane is.
            if pattern.starts_with('%') || pattern.contains('.') && !pattern.contains('*') {
                named.insert(self.engine.pane(&self.host, &pattern).await?.id());
            }
        }
        let listed = self.engine.panes(&self.host).await?;
        for info in &listed.panes {
            let Ok(id) = info.id.parse::<PaneId>() else { continue };
            let ended = info.window_id.is_empty();
            if named.contains(&id) || !ended && self.wants(info) {
                self.add(id, resume.get(&id), self.since);
            }
        }
        if self.panes.is_empty()
            && let Some(patterns) =
                self.patterns.as_ref().filter(|patterns| patterns.iter().all(|pattern| !pattern.contains('*')))
        {
            let message = format!("no pane matches {}; `muxtap list-panes` shows what is there", patterns.join(", "));
            return Err(Error::not_found(message));
        }
        Ok(())
    }

    fn wants(&self, info: &PaneInfo) -> bool {
        self.patterns.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| list::matches(pattern, info)))
    }

    fn add(&mut self, id: PaneId, resume: Option<&Cursor>, since: Since) {
        let Some(pane) = self.host.pane(id) else { return };
        // It was found already, and may have been read from since.
        if self.panes.get(&id).is_some_and(|reader| Arc::ptr_eq(&reader.pane, &pane)) {
            return;
        }
        let (at, gap, bell) = {
            let state = pane.lock();
            let since = resume.map_or(since, |cursor| Since::At(*cursor));
            let (at, gap) = pane.begin_of(&state, &since).unwrap_or((state.ring.end(), None));
            (at, gap, state.signs.bell)
        };
        pane.listen(&self.listener);
        self.panes.insert(id, Reader { pane: pane.clone(), at, gap, done: false, bell });
        self.look(id);
    }

    /// The next event, and the id under which to go on after it where one is due. `None`: the engine stops.
    pub async fn next(&mut self) -> Option<(Event, Option<String>)> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                // Only the last of several that are ready carries the id: it speaks for all of them.
                let id = self.ready.is_empty().then(|| self.id());
                return Some((event, id));
            }
            tokio::select! {
                changed = self.listener.changed() => {
                    for id in changed {
                        self.look(id);
                    }
                    // A pane that has gone and whose end was told has nothing more to say.
                    let host = &self.host;
                    self.panes.retain(|id, reader| {
                        !reader.done || host.live_pane(*id).is_some_and(|pane| Arc::ptr_eq(&pane, &reader.pane))
                    });
                }
                news = self.news.recv() => match news {
                    Ok(event) => self.told(event),
                    // What was missed is also in the panes' states, but for panes that are new.
                    Err(broadcast::error::RecvError::Lagged(_)) => self.find_new(),
                    Err(broadcast::error::RecvError::Closed) => return None,
                },
                () = self.engine.stopping() => return None,
            }
        }
    }

    /// Follows the panes that opened unheard.
    fn find_new(&mut self) {
        if self.types.contains("agent") {
            // What was missed of agents is in what they do now.
            let now = self.host.agents_now();
            self.ready.extend(
                now.into_iter()
                    .filter(|agent| self.wants_agent(agent))
                    .map(|agent| Event::Agent(Box::new(agent)))
                    .collect::<Vec<_>>(),
            );
        }
        for pane in self.host.panes() {
            let info = self.host.info_of(pane.id());
            if !self.panes.contains_key(&pane.id()) && self.wants(&info) {
                self.add(pane.id(), None, Since::Start);
                if self.types.contains("pane-opened") {
                    self.ready.push_back(Event::PaneOpened { pane: Box::new(info) });
                }
            }
        }
    }

    /// Whether it is in a pane that is followed. One that has gone is not followed any more, and its agent's end comes after its own.
    fn wants_agent(&self, agent: &AgentInfo) -> bool {
        let followed = || agent.pane.parse().is_ok_and(|id| self.panes.contains_key(&id));
        let place = || PaneInfo {
            id: agent.pane.clone(),
            session: agent.session.clone(),
            window: agent.window.clone(),
            window_index: agent.window_index,
            index: agent.index,
            ..PaneInfo::default()
        };
        agent.socket == self.host.socket().display().to_string() && (followed() || self.wants(&place()))
    }

    /// Where every pane's reader stands.
    fn id(&self) -> String {
        let mut cursors: Vec<_> =
            self.panes.values().map(|reader| (reader.pane.id(), reader.pane.cursor(reader.at))).collect();
        cursors.sort_by_key(|(id, _)| *id);
        let cursors: Vec<_> = cursors.iter().map(|(_, cursor)| cursor.to_string()).collect();
        cursors.join("~")
    }

    fn told(&mut self, event: Event) {
        let kind = match &event {
            Event::PaneOpened { pane } => {
                if !self.wants(pane) {
                    return;
                }
                if let Ok(id) = pane.id.parse() {
                    // A pane that opens while someone listens is followed from its beginning.
                    self.add(id, None, Since::Start);
                }
                "pane-opened"
            }
            // Told by the pane's own reader, after its last output.
            Event::PaneExited { .. }
            | Event::Bell { .. }
            | Event::Gap { .. }
            | Event::Output { .. }
            | Event::Screen { .. } => {
                return;
            }
            Event::Title { pane, .. } => {
                if !pane.parse().is_ok_and(|id| self.panes.contains_key(&id)) {
                    return;
                }
                "title"
            }
            Event::Agent(agent) => {
                if !self.wants_agent(agent) {
                    return;
                }
                "agent"
            }
            Event::Topology { socket } | Event::Server { socket, .. } => {
                if *socket != self.host.socket().display().to_string() {
                    return;
                }
                if matches!(event, Event::Topology { .. }) { "topology" } else { "server" }
            }
        };
        if self.types.contains(kind) {
            self.ready.push_back(event);
        }
    }

    /// Reads what is new in a pane.
    fn look(&mut self, id: PaneId) {
        let Some(reader) = self.panes.get_mut(&id) else { return };
        let name = id.to_string();
        let (bell, exit) = {
            let state = reader.pane.lock();
            (state.signs.bell, state.exit.map(|(exit, _)| exit))
        };
        if self.types.contains("bell") && bell.is_some() && bell != reader.bell {
            self.ready.push_back(Event::Bell { pane: name.clone() });
        }
        reader.bell = bell;
        self.ready.extend(screen_event(&reader.pane, &self.listener));
        let output = self.types.contains("output");
        // Its program may have been started anew.
        reader.done &= exit.is_some();
        let mut more = true;
        while more {
            let chunk = {
                let state = reader.pane.lock();
                let how = Reading { over: exit.is_some() && !reader.done, ..state.reading(EVENT_BYTES, self.format) };
                state.ring.read(reader.at, how)
            };
            let mut gap = reader.gap.take().or(chunk.gap);
            if let Some(gap) = &mut gap
                && gap.reason == GapReason::Trimmed
            {
                // The ring went on while this reader was busy.
                gap.reason = GapReason::SlowReader;
            }
            if chunk.end == reader.at && gap.is_none() {
                break;
            }
            reader.at = chunk.end;
            more = chunk.more;
            if let Some(gap) = gap.filter(|_| self.types.contains("gap")) {
                self.ready.push_back(Event::Gap { pane: name.clone(), gap });
            }
            if output {
                let Piece { data, text } = Piece::of(&chunk, self.format);
                let cursor = reader.pane.cursor(chunk.end).to_string();
                self.ready.push_back(Event::Output { pane: name.clone(), data, text, cursor, gap });
            }
            // The rest is read when the reader has taken these.
            if self.ready.len() as u64 * EVENT_BYTES > limits::READ_MOST {
                self.listener.mark(id);
                return;
            }
        }
        if let Some(exit) = exit.filter(|_| !std::mem::replace(&mut reader.done, true))
            && self.types.contains("pane-exited")
        {
            self.ready.push_back(Event::PaneExited { pane: name, exit_status: exit.status, exit_signal: exit.signal });
        }
    }
}

/// Which rows of a screen show something new. None while the screen is not known for certain.
fn screen_event(pane: &Pane, listener: &Listener) -> Option<Event> {
    let state = pane.lock();
    let screen = state.view.followed()?;
    // Taken when it can be told: what changes meanwhile is told with it.
    let drawn = listener.take_drawn(pane.id())?;
    let (size, cursor) = (screen.size(), screen.cursor());
    Some(Event::Screen {
        pane: pane.id().to_string(),
        rows: (0..size.rows).filter(|row| drawn.row(*row)).collect(),
        size: Size { width: size.columns, height: size.rows },
        cursor_x: cursor.column,
        cursor_y: cursor.row,
        cursor: pane.cursor(state.ring.end()).to_string(),
    })
}
