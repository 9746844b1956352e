//! A source, stored for the daemon that replaces this one.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use muxtap_api::{AgentState, Cursor, Size};
use muxtap_engine::{Engine, Exit};
use serde::{Deserialize, Serialize};

use super::{CommandMarkers, Note, Source};

/// A source between two events, stored for the daemon that replaces this one.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredSource {
    /// The pane's key.
    pane: String,
    cursor: Cursor,
    commands: CommandMarkers,
    notes: VecDeque<Note>,
    size: Size,
    is_unlike: bool,
    given_up: Option<u64>,
    past: VecDeque<(u64, Duration)>,
    past_end: Option<u64>,
    lead: Duration,
    #[serde(with = "muxtap_base::age")]
    now: Instant,
    piece: u64,
    agent: Option<AgentState>,
    inputs: u32,
    #[serde(with = "muxtap_base::age")]
    ended: Option<(Exit, Instant)>,
}

impl Source {
    /// Stores the source, with everything that has happened.
    pub(crate) fn store(&mut self) -> StoredSource {
        self.take_notes();
        StoredSource {
            pane: self.pane.key(),
            cursor: self.cursor,
            commands: self.commands.clone(),
            notes: self.notes.clone(),
            size: self.size,
            is_unlike: self.is_unlike,
            given_up: self.given_up,
            past: self.past.clone(),
            past_end: self.past_end,
            lead: self.lead,
            now: self.now,
            piece: self.piece,
            agent: self.agent,
            inputs: self.inputs,
            ended: self.ended,
        }
    }

    /// Continues in an engine that has taken over the pane. `None`: it has not.
    pub(crate) fn restore(stored: StoredSource, engine: &Engine) -> Option<Self> {
        let pane = engine.pane_of_key(&stored.pane)?;
        Some(Self {
            changes: pane.changes(),
            activities: engine.activities(),
            events: pane.server().announcements(),
            pane,
            cursor: stored.cursor,
            commands: stored.commands,
            notes: stored.notes,
            size: stored.size,
            is_unlike: stored.is_unlike,
            given_up: stored.given_up,
            past: stored.past,
            past_end: stored.past_end,
            lead: stored.lead,
            now: stored.now,
            last_read: None,
            piece: stored.piece,
            agent: stored.agent,
            inputs: stored.inputs,
            ended: stored.ended,
        })
    }
}

#[cfg(test)]
impl StoredSource {
    /// Returns a source with a value in each place.
    pub(crate) fn sample(cursor: Cursor) -> Self {
        Self {
            pane: "7.9.1".into(),
            cursor,
            commands: CommandMarkers::sample(),
            notes: [Note::Input(Duration::ZERO, Some(b"x".to_vec())), Note::Marker(Duration::ZERO, "m".into())].into(),
            size: Size { width: 20, height: 4 },
            is_unlike: true,
            given_up: Some(5),
            past: [(5, Duration::from_secs(1))].into(),
            past_end: Some(9),
            lead: Duration::from_secs(1),
            now: Instant::now(),
            piece: super::PIECE_BYTES,
            agent: Some(AgentState::Working),
            inputs: 1,
            ended: Some((Exit { status: Some(3), signal: None }, Instant::now())),
        }
    }
}
