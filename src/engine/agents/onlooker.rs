//! A thread that looks at processes: the files of one that hangs in the kernel can hang whoever reads them, and a look at a thousand panes is no
//! work for the thread that answers. One, and not a pool: each thread of a pool would keep memory of its own.

use std::{
    sync::{
        Mutex, PoisonError,
        mpsc::{self, TrySendError},
    },
    time::Duration,
};

use tokio::sync::oneshot;

/// How long a look may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// So many looks wait for their turn.
const QUEUE: usize = 1 << 14;

type Look = Box<dyn FnOnce() + Send>;

/// The thread; it begins with the first look and ends when this is dropped.
#[derive(Debug, Default)]
pub struct Onlooker {
    looks: Mutex<Option<mpsc::SyncSender<Look>>>,
}

impl Onlooker {
    /// What `look` finds. `None`: it took too long, or nobody could be sent to look.
    pub(super) async fn send<T: Send + 'static>(&self, look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (found, answer) = oneshot::channel();
        let look: Look = Box::new(move || {
            // Whoever asked may be gone.
            if !found.is_closed() {
                let _ = found.send(look());
            }
        });
        self.queue(look)?;
        tokio::time::timeout(PATIENCE, answer).await.ok()?.ok()
    }

    /// `None`: too many wait, or there is no thread to be had.
    fn queue(&self, mut look: Look) -> Option<()> {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(looks) = looks.as_ref() {
            match looks.try_send(look) {
                Ok(()) => return Some(()),
                Err(TrySendError::Full(_)) => return None,
                // The thread has died of a look.
                Err(TrySendError::Disconnected(unseen)) => look = unseen,
            }
        }
        let (sender, todo) = mpsc::sync_channel::<Look>(QUEUE);
        sender.try_send(look).ok()?;
        let run = move || todo.into_iter().for_each(|look| look());
        match std::thread::Builder::new().name("onlooker".into()).spawn(run) {
            Ok(_) => *looks = Some(sender),
            Err(error) => tracing::warn!("cannot look at processes, and see no agents: {error}"),
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn looks_come_one_after_the_other_on_a_thread_of_their_own() {
        let onlooker = Onlooker::default();
        let here = std::thread::current().id();
        let first = onlooker.send(|| std::thread::current().id()).await.unwrap();
        let second = onlooker.send(|| std::thread::current().id()).await.unwrap();
        assert_eq!(first, second);
        assert_ne!(first, here);
    }

    #[tokio::test]
    async fn a_look_that_kills_the_thread_is_the_last_of_that_one_only() {
        let onlooker = Onlooker::default();
        assert_eq!(onlooker.send(|| panic!("as a look never should")).await, None::<()>);
        // Until the thread has unwound, its queue still takes looks; they are answered by its end.
        while onlooker.send(|| 7).await != Some(7) {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_is_not_waited_for_and_nobody_looks_for_one_who_has_gone() {
        let onlooker = Onlooker::default();
        let (release, hang) = mpsc::channel::<()>();
        assert_eq!(onlooker.send(move || hang.recv().is_ok()).await, None);
        let (tell, told) = mpsc::channel();
        assert_eq!(onlooker.send(move || tell.send(()).is_ok()).await, None, "behind the one that hangs");
        release.send(()).unwrap();
        assert_eq!(told.recv(), Err(mpsc::RecvError), "it was dropped without a look");
    }
}
