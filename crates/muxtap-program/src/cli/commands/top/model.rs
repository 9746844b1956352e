//! The state of the view: its panes, and the effects of keys.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use muxtap_base::plain;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{INTERRUPTED, Wish, feed::News};
use crate::{
    api::{AgentInfo, AgentState, Cursor, Event, PaneInfo, WaitInfo},
    cli::output,
    protocol::ids::PaneId,
};

/// The period over which a rate is averaged.
const RATE: Duration = Duration::from_secs(5);
/// The longest filter, in bytes.
const FILTER_BYTES: usize = 256;

/// A pane, with its server's socket.
pub(super) type Id = (String, PaneId);

/// The whole state of the view.
pub(super) struct Model {
    pub(super) color: bool,
    /// The sockets of the running servers.
    pub(super) servers: Vec<String>,
    rows: BTreeMap<Id, Row>,
    waits: Vec<WaitInfo>,
    selected: Option<Id>,
    pub(super) view: View,
    pub(super) sort: Sort,
    pub(super) filter: String,
    /// Why no updates come.
    pub(super) lost: Option<String>,
    ended: Option<String>,
}

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// The table.
    Table,
    /// The table, while the filter is typed.
    Filter,
    /// The screen of the selected pane.
    Screen,
    /// The keys.
    Help,
}

/// The order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Place,
    Rate,
    Idle,
    Command,
}

impl Sort {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Place => "place",
            Self::Rate => "rate",
            Self::Idle => "idle",
            Self::Command => "command",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Place => Self::Rate,
            Self::Rate => Self::Idle,
            Self::Idle => Self::Command,
            Self::Command => Self::Place,
        }
    }
}

/// A pane.
pub(super) struct Row {
    pub(super) info: PaneInfo,
    pub(super) agent: Option<AgentInfo>,
    /// The rows of its screen.
    pub(super) screen: Vec<String>,
    /// The cursor's column and row, if visible.
    pub(super) cursor: Option<(u32, u32)>,
    /// The lowest row of the screen that showed something new.
    pub(super) last_line: String,
    /// Times of output, with the total number of bytes printed by then.
    printed: VecDeque<(Instant, u64)>,
    /// When the pane was first seen here.
    since: Instant,
    /// When the pane last printed. `None`: not since it was first seen here.
    last: Option<Instant>,
    epoch: Option<crate::api::Epoch>,
}

impl Row {
    fn new(id: PaneId, now: Instant) -> Self {
        Self {
            info: PaneInfo::of(id),
            agent: None,
            screen: Vec::new(),
            cursor: None,
            last_line: String::new(),
            printed: VecDeque::new(),
            since: now,
            last: None,
            epoch: None,
        }
    }

    pub(super) fn place(&self) -> String {
        if self.info.window_id.is_empty() {
            return String::new();
        }
        let place = output::place(&self.info.session, self.info.window_index, self.info.index);
        if self.info.window.is_empty() { place } else { format!("{place} {}", self.info.window) }
    }

    pub(super) fn command(&self) -> String {
        if self.info.dead {
            output::ended(self.info.exit_status, self.info.exit_signal)
        } else {
            self.info.command.clone()
        }
    }

    /// Returns the recent output rate, in bytes per second.
    pub(super) fn rate(&self, now: Instant) -> u64 {
        let (Some((_, last)), Some((first_at, first))) = (self.printed.back(), self.printed.front()) else { return 0 };
        // The first entry is older than the period, if any is.
        let within = self.printed.iter().any(|(at, _)| now.duration_since(*at) <= RATE);
        let long = now.duration_since(*first_at).clamp(Duration::from_secs(1), RATE);
        let bytes = last.saturating_sub(*first);
        if within { bytes.saturating_mul(1000) / u64::try_from(long.as_millis()).unwrap_or(u64::MAX).max(1) } else { 0 }
    }

    /// Returns the time since the last output, and whether it is exact: the real time may be longer.
    pub(super) fn idle(&self, now: Instant) -> (u64, bool) {
        (now.duration_since(self.last.unwrap_or(self.since)).as_secs(), self.last.is_some())
    }

    fn at(&mut self, cursor: Cursor, now: Instant) {
        if self.epoch.replace(cursor.epoch) != Some(cursor.epoch) {
            self.printed.clear();
        }
        match self.printed.back() {
            Some((_, offset)) if *offset == cursor.offset => return,
            Some(_) => self.last = Some(now),
            // Printed before the view started.
            None => {}
        }
        while self.printed.get(1).is_some_and(|(at, _)| now.duration_since(*at) > RATE) {
            self.printed.pop_front();
        }
        // A flood causes many events a second.
        if self.printed.len() > 1
            && let Some((at, _)) = self.printed.back()
            && now.duration_since(*at) < Duration::from_millis(100)
            && let Some(last) = self.printed.back_mut()
        {
            last.1 = cursor.offset;
            return;
        }
        self.printed.push_back((now, cursor.offset));
    }

    fn shows(&mut self, rows: &[u16], lines: &[String], height: u16) {
        self.screen.resize(height.into(), String::new());
        for (row, line) in rows.iter().zip(lines) {
            if let Some(shown) = self.screen.get_mut(usize::from(*row)) {
                *shown = harmless(line);
            }
        }
        let changed = rows.iter().rev().filter_map(|row| self.screen.get(usize::from(*row)));
        if let Some(line) = changed.map(|line| line.trim()).find(|line| !line.is_empty()) {
            self.last_line = line.to_owned();
        }
    }
}

/// Returns a pane's text without control characters and zero-width characters: terminals differ in
/// where they place the latter.
pub(super) fn harmless(text: &str) -> String {
    let text = plain::text(text.trim_end());
    let mut buffer = [0; 4];
    text.chars()
        .map(|character| if matches!(character, '\t' | '\n') { ' ' } else { character })
        .filter(|character| muxtap_core::width::of_text(character.encode_utf8(&mut buffer)) > 0)
        .collect()
}

impl Model {
    pub(super) fn new(color: bool) -> Self {
        Self {
            color,
            servers: Vec::new(),
            rows: BTreeMap::new(),
            waits: Vec::new(),
            selected: None,
            view: View::Table,
            sort: Sort::Place,
            filter: String::new(),
            lost: None,
            ended: None,
        }
    }

    /// Returns why the view has ended, unless the user quit.
    pub(super) fn last_words(&mut self) -> Option<String> {
        self.ended.take()
    }

    /// Applies an update. Returns whether it was the last one.
    pub(super) fn take(&mut self, news: News, now: Instant) -> bool {
        match news {
            News::Status(status) => {
                let there = status.servers.into_iter().filter(|server| server.state == "connected");
                self.servers = there.map(|server| server.socket).collect();
                self.rows.retain(|(socket, _), _| self.servers.contains(socket));
            }
            News::Waits(waits) => self.waits = waits,
            News::Panes(socket, panes) => self.list(&socket, panes, now),
            News::Agents(socket, agents) => {
                for agent in agents {
                    self.agent(&socket, agent);
                }
            }
            News::Event(socket, event) => self.event(&socket, *event, now),
            News::Lost(why) => self.lost = Some(why),
            News::Back => self.lost = None,
            News::Ended(why) => {
                self.ended = Some(why);
                return true;
            }
        }
        false
    }

    fn list(&mut self, socket: &str, panes: Vec<PaneInfo>, now: Instant) {
        let panes: Vec<_> = panes.into_iter().filter(|pane| !pane.window_id.is_empty()).collect();
        self.rows.retain(|(of, id), _| of != socket || panes.iter().any(|pane| pane.id == *id));
        for pane in panes {
            let row = self.rows.entry((socket.to_owned(), pane.id)).or_insert_with(|| Row::new(pane.id, now));
            if let Some(cursor) = pane.cursor {
                row.at(cursor, now);
            }
            row.info = pane;
        }
    }

    fn agent(&mut self, socket: &str, agent: AgentInfo) {
        if let Some(row) = self.rows.get_mut(&(socket.to_owned(), agent.pane)) {
            row.agent = Some(agent).filter(|agent| agent.state != AgentState::Ended);
        }
    }

    fn event(&mut self, socket: &str, event: Event, now: Instant) {
        let of = |pane| (socket.to_owned(), pane);
        match event {
            Event::Screen { pane, rows, lines, size, cursor_x, cursor_y, cursor_visible, cursor, .. } => {
                let row = self.rows.entry(of(pane)).or_insert_with(|| Row::new(pane, now));
                row.shows(&rows, &lines.unwrap_or_default(), size.height);
                row.cursor = cursor_visible.then_some((cursor_x, cursor_y));
                row.at(cursor, now);
            }
            Event::PaneExited { pane, exit_status, exit_signal } => {
                if let Some(row) = self.rows.get_mut(&of(pane)) {
                    (row.info.dead, row.info.exit_status, row.info.exit_signal) = (true, exit_status, exit_signal);
                }
            }
            Event::Agent(agent) => self.agent(socket, *agent),
            // The following list contains it.
            _ => {}
        }
    }

    /// Returns the waits for a pane: their conditions and callers.
    pub(super) fn waited_for(&self, id: &Id) -> String {
        let mut waits = self.waits.iter().filter(|wait| wait.socket == id.0 && wait.panes.contains(&id.1));
        let Some(first) = waits.next() else { return String::new() };
        let condition = first.conditions.first().map(ToString::to_string).unwrap_or_default();
        let more = match first.conditions.len().saturating_sub(1) + waits.count() {
            0 => String::new(),
            more => format!(" +{more}"),
        };
        let who = if first.who.is_empty() { &first.face } else { &first.who };
        harmless(&plain::name(&format!("{condition}{more} ({who})")))
    }

    pub(super) fn waits(&self) -> usize {
        self.waits.iter().filter(|wait| self.servers.contains(&wait.socket)).count()
    }

    /// Returns the panes that match the filter, in order.
    pub(super) fn rows(&self, now: Instant) -> Vec<(&Id, &Row)> {
        let wanted = self.filter.to_lowercase();
        let fits = |id: &Id, row: &Row| {
            let agent = row.agent.as_ref().map_or("", |agent| agent.name.as_str());
            let text = format!("{} {} {} {agent} {}", id.1, row.place(), row.command(), row.last_line);
            wanted.is_empty() || text.to_lowercase().contains(&wanted)
        };
        // A pane that printed before it was listed has no place yet.
        let listed = self.rows.iter().filter(|(_, row)| !row.info.window_id.is_empty());
        let mut rows: Vec<_> = listed.filter(|(id, row)| fits(id, row)).collect();
        rows.sort_by_cached_key(|(id, row)| {
            let place = (id.0.clone(), row.info.session.clone(), row.info.window_index, row.info.index);
            let (number, text) = match self.sort {
                Sort::Place => (0, String::new()),
                Sort::Rate => (u64::MAX - row.rate(now), String::new()),
                Sort::Idle => (row.idle(now).0, String::new()),
                Sort::Command => (0, row.command()),
            };
            (number, text, place)
        });
        rows
    }

    pub(super) fn total(&self) -> usize {
        self.rows.values().filter(|row| !row.info.window_id.is_empty()).count()
    }

    /// Returns the number of the selected row.
    pub(super) fn selected(&self, rows: &[(&Id, &Row)]) -> usize {
        let selected = self.selected.as_ref();
        selected.and_then(|selected| rows.iter().position(|(id, _)| *id == selected)).unwrap_or(0)
    }

    /// Handles a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Wish {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => INTERRUPTED,
                KeyCode::Char('z') => Wish::Suspend,
                KeyCode::Char('l') => Wish::Redraw,
                KeyCode::Char('u') if self.view == View::Filter => {
                    self.filter.clear();
                    Wish::None
                }
                _ => Wish::None,
            };
        }
        match self.view {
            View::Filter => self.filter_key(key.code),
            View::Help => self.view = View::Table,
            View::Screen => match key.code {
                KeyCode::Enter | KeyCode::Esc | KeyCode::Char('q') => self.view = View::Table,
                _ => self.step(key.code),
            },
            View::Table => match key.code {
                KeyCode::Char('q') => return Wish::Quit(0),
                KeyCode::Enter if !self.rows.is_empty() => {
                    // The default selection stays selected.
                    self.step(KeyCode::Null);
                    self.view = View::Screen;
                }
                KeyCode::Char('/') => self.view = View::Filter,
                KeyCode::Char('s') => self.sort = self.sort.next(),
                KeyCode::Char('?' | 'h') => self.view = View::Help,
                KeyCode::Esc => self.filter.clear(),
                code => self.step(code),
            },
        }
        Wish::None
    }

    fn filter_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.view = View::Table,
            KeyCode::Esc => {
                self.filter.clear();
                self.view = View::Table;
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(character) if self.filter.len() < FILTER_BYTES && !plain::controls(character) => {
                self.filter.push(character);
            }
            KeyCode::Up | KeyCode::Down => self.step(code),
            _ => {}
        }
    }

    /// Moves the selection.
    fn step(&mut self, code: KeyCode) {
        let rows = self.rows(Instant::now());
        let at = self.selected(&rows);
        let last = rows.len().saturating_sub(1);
        let next = match code {
            KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => at + 1,
            KeyCode::PageUp => at.saturating_sub(10),
            KeyCode::PageDown => at + 10,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => last,
            _ => at,
        };
        self.selected = rows.get(next.min(last)).map(|(id, _)| (*id).clone());
    }
}
