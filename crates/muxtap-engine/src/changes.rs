//! Notifications of changes to what an engine follows, and to its open waits.

use muxtap_api::Event;
use tokio::sync::{broadcast, watch};

use super::Engine;

/// Notifies of changes to what [`Engine::servers`] and [`Engine::waits`] return: servers that
/// appear and disappear, their sessions, windows and panes, and waits that begin and end.
pub struct Changes {
    engine: Engine,
    events: broadcast::Receiver<(std::sync::Arc<std::path::Path>, Event)>,
    waits: watch::Receiver<u64>,
}

/// Notifies of changes to what a list of panes shows: panes, their titles, and agents in them.
pub struct PaneChanges {
    events: broadcast::Receiver<(std::sync::Arc<std::path::Path>, Event)>,
}

impl PaneChanges {
    /// Resolves when something has changed since the last call; `None` once the engine has gone.
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<()> {
        loop {
            match self.events.recv().await {
                Ok((_, Event::Agent(_) | Event::Title { .. })) | Err(broadcast::error::RecvError::Lagged(_)) => break,
                Ok((_, event)) if is_shown(&event) => break,
                Ok(_) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
        // One call covers all changes that arrived together.
        while !matches!(
            self.events.try_recv(),
            Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed)
        ) {}
        Some(())
    }
}

impl Engine {
    /// Returns a receiver of all later changes.
    pub fn changes(&self) -> Changes {
        Changes { engine: self.clone(), events: self.shared.events.subscribe(), waits: self.shared.waits.changes() }
    }

    /// Returns a receiver of all later changes to panes.
    pub fn pane_changes(&self) -> PaneChanges {
        PaneChanges { events: self.shared.events.subscribe() }
    }

    /// Returns a channel that is notified when a wait begins or ends.
    pub fn wait_changes(&self) -> watch::Receiver<u64> {
        self.shared.waits.changes()
    }
}

impl Changes {
    /// Resolves when something has changed since the last call; `None` when the engine stops.
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<()> {
        loop {
            tokio::select! {
                event = self.events.recv() => match event {
                    Ok((_, event)) if is_shown(&event) => break,
                    Ok(_) => {}
                    Err(broadcast::error::RecvError::Lagged(_)) => break,
                    Err(broadcast::error::RecvError::Closed) => return None,
                },
                changed = self.waits.changed() => break changed.ok()?,
                () = self.engine.stopping() => return None,
            }
        }
        Some(())
    }

    /// Forgets all changes so far, for a caller that looks at everything next.
    pub fn forget(&mut self) {
        while !matches!(
            self.events.try_recv(),
            Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed)
        ) {}
        self.waits.mark_unchanged();
    }
}

/// Returns whether an event changes what is shown of a server.
fn is_shown(event: &Event) -> bool {
    matches!(event, Event::Topology { .. } | Event::Server { .. } | Event::PaneOpened { .. } | Event::PaneExited { .. })
}
