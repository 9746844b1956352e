//! Notification of which panes changed, for a reader that handles them when it has time.

use std::sync::{Arc, PoisonError, atomic::Ordering};

use crate::sync::{AtomicBool, Mutex, Notify};

/// Collects which panes changed, until their reader takes them.
#[derive(Default)]
pub struct Notifier {
    /// Numbers of the flags that were set, in the order in which they were set. A number occurs
    /// once, or twice if the reader cleared the flag between its setting and the entry; a reader
    /// takes both as one.
    dirty: Mutex<Vec<u32>>,
    wake: Notify,
}

/// A flag that one pane sets when it changes. Dropping the flag removes it from the pane.
pub struct DirtyFlag {
    number: u32,
    /// Whether the flag was set since its reader last cleared it.
    is_set: AtomicBool,
    notifier: Arc<Notifier>,
}

impl Notifier {
    /// Waits until panes have changed, and takes the numbers of their flags. Cancel safe: dropping
    /// the future loses nothing.
    pub(crate) async fn changed(&self) -> Vec<u32> {
        loop {
            let dirty = self.take();
            if !dirty.is_empty() {
                return dirty;
            }
            self.wake.notified().await;
        }
    }

    /// Takes the numbers of the flags that are set.
    pub(crate) fn take(&self) -> Vec<u32> {
        std::mem::take(&mut *self.dirty.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl DirtyFlag {
    pub(crate) fn new(notifier: &Arc<Notifier>, number: u32) -> Arc<Self> {
        Arc::new(Self { number, is_set: AtomicBool::new(false), notifier: notifier.clone() })
    }

    /// Sets the flag and wakes the reader.
    pub(super) fn notify(&self) {
        // The flag is usually set already: the reader is slower than the pane.
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

    /// Clears the flag before the pane is read: later changes set it again.
    pub(crate) fn clear(&self) {
        // A swap, not a store. The loads of the following read could overtake a store; then a
        // change between the two would set no flag.
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
