//! Changes of what an engine follows, and of who waits.

use muxtap_api::Event;
use tokio::sync::{broadcast, watch};

use super::Engine;

/// Notifies of what [`Engine::servers`] and [`Engine::waits`] show: servers that come and go, their
/// sessions, windows and panes, and waits that begin and end.
pub struct Changes {
    engine: Engine,
    events: broadcast::Receiver<(std::sync::Arc<std::path::Path>, Event)>,
    waits: watch::Receiver<u64>,
}

/// Notifies of what a list of panes shows: panes, their titles, and agents in them.
pub struct PaneChanges {
    events: broadcast::Receiver<(std::sync::Arc<std::path::Path>, Event)>,
}

impl PaneChanges {
    /// Resolves when something has changed since the last call. `None`: the engine has gone. Cancel safe.
    pub async fn next(&mut self) -> Option<()> {
        loop {
            match self.events.recv().await {
                Ok((_, Event::Agent(_) | Event::Title { .. })) | Err(broadcast::error::RecvError::Lagged(_)) => break,
                Ok((_, event)) if is_shown(&event) => break,
                Ok(_) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
        // One look shows all of what came together.
        while !matches!(
            self.events.try_recv(),
            Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed)
        ) {}
        Some(())
    }
}

impl Engine {
    /// Returns the changes from now on.
    pub fn changes(&self) -> Changes {
        Changes { engine: self.clone(), events: self.shared.events.subscribe(), waits: self.shared.waits.changes() }
    }

    /// Returns the changes of panes from now on.
    pub fn pane_changes(&self) -> PaneChanges {
        PaneChanges { events: self.shared.events.subscribe() }
    }

    /// Returns a channel that is notified when a wait begins or ends.
    pub fn wait_changes(&self) -> watch::Receiver<u64> {
        self.shared.waits.changes()
    }
}

impl Changes {
    /// Resolves when something has changed since the last call. `None`: the engine stops.
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

    /// Forgets what has changed until now: the caller looks at all of it next.
    pub fn forget(&mut self) {
        while !matches!(
            self.events.try_recv(),
            Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed)
        ) {}
        self.waits.mark_unchanged();
    }
}

/// Whether an event changes what is told of a server.
fn is_shown(event: &Event) -> bool {
    matches!(event, Event::Topology { .. } | Event::Server { .. } | Event::PaneOpened { .. } | Event::PaneExited { .. })
}
