//! The registry of one server's agents.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use muxtap_api::{AgentInfo, AgentState, PaneInfo};
use muxtap_core::protocol::ids::PaneId;
use tokio::time::Instant;

use crate::limits;

/// The latest [`AgentInfo`] of each pane, kept for a while after the agent has ended.
#[derive(Debug, Default)]
pub(crate) struct AgentRegistry {
    panes: Mutex<BTreeMap<PaneId, Entry>>,
}

#[derive(Debug)]
struct Entry {
    info: AgentInfo,
    ended: Option<Instant>,
}

impl AgentRegistry {
    /// Stores a pane's agent. Drops expired entries, and the oldest ended ones beyond the limit.
    pub(super) fn set(&self, id: PaneId, info: AgentInfo) {
        let ended = (info.state == AgentState::Ended).then(Instant::now);
        let mut panes = self.lock();
        panes.retain(|_, entry| !entry.is_old());
        panes.insert(id, Entry { info, ended });
        let ended = panes.iter().filter_map(|(id, entry)| Some((entry.ended?, *id)));
        if let Some((_, oldest)) = ended.clone().min().filter(|_| ended.count() > limits::ENDED_PANES) {
            panes.remove(&oldest);
        }
    }

    /// Returns the latest entry of a pane.
    pub(super) fn get(&self, id: PaneId) -> Option<AgentInfo> {
        self.lock().get(&id).map(|entry| entry.info.clone())
    }

    /// Returns all entries: running agents by pane, then ended ones in the order of their ends.
    pub(super) fn all(&self) -> Vec<(PaneId, AgentInfo)> {
        let panes = self.lock();
        let mut all: Vec<_> = panes.iter().filter(|(_, entry)| !entry.is_old()).collect();
        all.sort_by_key(|(id, entry)| (entry.ended, **id));
        all.into_iter().map(|(id, entry)| (*id, entry.info.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PaneId, Entry>> {
        self.panes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn is_old(&self) -> bool {
        self.ended.is_some_and(|ended| ended.elapsed() >= limits::KEEP)
    }
}

/// Copies a pane's current location into an agent's description. A pane that no longer exists keeps
/// its last location.
pub(super) fn update_location(info: &mut AgentInfo, pane: &PaneInfo) {
    if pane.window_id.is_empty() {
        return;
    }
    info.session.clone_from(&pane.session);
    info.session_id.clone_from(&pane.session_id);
    info.window_id.clone_from(&pane.window_id);
    info.window_index = pane.window_index;
    info.window.clone_from(&pane.window);
    info.index = pane.index;
}
