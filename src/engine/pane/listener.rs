//! For those who want to know which panes changed, and look when they have time.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Notify;

/// Collects which panes changed, for someone who looks when it has time.
#[derive(Default)]
pub struct Listener {
    /// Numbers of the seats that were marked, each once, in their order.
    marked: Mutex<Vec<u32>>,
    wake: Notify,
}

/// A listener's place at one pane. The pane forgets it when it is dropped.
pub struct Seat {
    number: u32,
    /// It is in the listener's list.
    marked: AtomicBool,
    listener: Arc<Listener>,
}

impl Listener {
    /// Waits until some panes changed and takes the numbers of their seats. Nothing is lost when it is dropped while it waits.
    pub(in crate::engine) async fn changed(&self) -> Vec<u32> {
        loop {
            let marked = self.take();
            if !marked.is_empty() {
                return marked;
            }
            self.wake.notified().await;
        }
    }

    /// Takes the numbers of the seats that were marked so far.
    pub(in crate::engine) fn take(&self) -> Vec<u32> {
        std::mem::take(&mut *self.marked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Seat {
    pub(in crate::engine) fn new(listener: &Arc<Listener>, number: u32) -> Arc<Self> {
        Arc::new(Self { number, marked: AtomicBool::new(false), listener: listener.clone() })
    }

    /// The pane changed.
    pub(super) fn mark(&self) {
        // Mostly it is marked already: the listener is slower than the pane.
        if self.marked.swap(true, Ordering::AcqRel) {
            return;
        }
        let first = {
            let mut marked = self.listener.marked.lock().unwrap_or_else(PoisonError::into_inner);
            marked.push(self.number);
            marked.len() == 1
        };
        if first {
            self.listener.wake.notify_one();
        }
    }

    /// The pane is about to be looked at: what changes from here on is marked again.
    pub(in crate::engine) fn clear(&self) {
        // Not a store, which the loads of the look that follows could overtake: then a change between the two would be marked by nobody.
        self.marked.swap(false, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_seat_is_marked_once_until_it_is_looked_at() {
        let listener = Arc::new(Listener::default());
        let (one, two) = (Seat::new(&listener, 1), Seat::new(&listener, 2));
        one.mark();
        two.mark();
        one.mark();
        assert_eq!(listener.changed().await, [1, 2]);
        one.mark();
        two.clear();
        two.mark();
        assert_eq!(listener.changed().await, [2]);
    }
}
