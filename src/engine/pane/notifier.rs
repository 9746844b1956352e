//! For those who want to know which panes changed, and look when they have time.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Notify;

/// Collects which panes changed, for someone who looks when it has time.
#[derive(Default)]
pub struct Notifier {
    /// Numbers of the seats that were marked, each once, in their order.
    dirty: Mutex<Vec<u32>>,
    wake: Notify,
}

/// A listener's place at one pane. The pane forgets it when it is dropped.
pub struct DirtyFlag {
    number: u32,
    /// It is in the listener's list.
    is_set: AtomicBool,
    notifier: Arc<Notifier>,
}

impl Notifier {
    /// Waits until some panes changed and takes the numbers of their seats. Nothing is lost when it is dropped while it waits.
    pub(in crate::engine) async fn changed(&self) -> Vec<u32> {
        loop {
            let dirty = self.take();
            if !dirty.is_empty() {
                return dirty;
            }
            self.wake.notified().await;
        }
    }

    /// Takes the numbers of the seats that were marked so far.
    pub(in crate::engine) fn take(&self) -> Vec<u32> {
        std::mem::take(&mut *self.dirty.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl DirtyFlag {
    pub(in crate::engine) fn new(notifier: &Arc<Notifier>, number: u32) -> Arc<Self> {
        Arc::new(Self { number, is_set: AtomicBool::new(false), notifier: notifier.clone() })
    }

    /// The pane changed.
    pub(super) fn notify(&self) {
        // Mostly it is marked already: the listener is slower than the pane.
        if self.is_set.swap(true, Ordering::AcqRel) {
            return;
        }
        let first = {
            let mut dirty = self.notifier.dirty.lock().unwrap_or_else(PoisonError::into_inner);
            dirty.push(self.number);
            dirty.len() == 1
        };
        if first {
            self.notifier.wake.notify_one();
        }
    }

    /// The pane is about to be looked at: what changes from here on is marked again.
    pub(in crate::engine) fn clear(&self) {
        // Not a store, which the loads of the look that follows could overtake: then a change between the two would be marked by nobody.
        self.is_set.swap(false, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_seat_is_marked_once_until_it_is_looked_at() {
        let notifier = Arc::new(Notifier::default());
        let (one, two) = (DirtyFlag::new(&notifier, 1), DirtyFlag::new(&notifier, 2));
        one.notify();
        two.notify();
        one.notify();
        assert_eq!(notifier.changed().await, [1, 2]);
        one.notify();
        two.clear();
        two.notify();
        assert_eq!(notifier.changed().await, [2]);
    }
}
