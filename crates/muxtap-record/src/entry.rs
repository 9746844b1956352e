//! The entry of a recording in the list, and the hold of a caller that awaits its end.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use muxtap_api::{RecordState, RecordingInfo};
use muxtap_base::clock;
use muxtap_engine::Principal;
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot, watch,
};
use tokio_util::sync::CancellationToken;

use super::stored::{Asked, Asks, Phase, Stopped};

/// A recording in the list.
#[derive(Debug)]
pub(super) struct Entry {
    info: Mutex<RecordingInfo>,
    /// The caller that started the recording.
    pub(super) owner: Principal,
    /// Cancelled to stop the recording.
    pub(super) stop: CancellationToken,
    /// Cancelled when the recording has ended.
    pub(super) ended: CancellationToken,
    /// Cancelled when a caller has attached to the recording.
    pub(super) attended: CancellationToken,
    /// Whether the recording ends with a caller.
    attends: AtomicBool,
    /// Asks the recorder to stop for another daemon.
    asks: mpsc::Sender<oneshot::Sender<Stopped>>,
    pub(super) phase: watch::Receiver<Phase>,
}

impl Entry {
    pub(super) fn new(info: RecordingInfo, owner: Principal, phase: watch::Receiver<Phase>) -> (Self, Asks) {
        let [stop, ended, attended] = std::array::from_fn(|_| CancellationToken::new());
        let (asks, asked) = mpsc::channel(1);
        let attends = AtomicBool::new(false);
        (Self { info: Mutex::new(info), owner, stop, ended, attended, attends, asks, phase }, asked)
    }

    /// Asks the recorder to stop for another daemon. The result is an error if the recording ends.
    pub(super) fn ask_to_stop(&self) -> Asked {
        let (ask, stopped) = oneshot::channel();
        let is_full = matches!(self.asks.try_send(ask), Err(TrySendError::Full(_)));
        (!is_full).then_some(stopped)
    }

    /// Waits while recordings are being handed over. Returns whether they go on here.
    pub(super) async fn goes_on_here(&self) -> bool {
        let mut phase = self.phase.clone();
        phase.wait_for(|phase| *phase != Phase::Held).await.is_ok_and(|phase| *phase == Phase::Here)
    }

    /// Returns whether the recording ends with a caller.
    pub(super) fn attends(&self) -> bool {
        self.attends.load(Ordering::Relaxed)
    }

    pub(super) fn set_attends(&self) {
        self.attends.store(true, Ordering::Relaxed);
    }

    pub(super) fn fail(&self, why: &str) {
        self.end(|info| (info.state, info.error) = (RecordState::Failed, Some(why.to_owned())));
    }

    pub(super) fn info(&self) -> RecordingInfo {
        self.info.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut RecordingInfo)) {
        change(&mut self.info.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn end(&self, change: impl FnOnce(&mut RecordingInfo)) {
        self.update(|info| {
            info.ended_ms = Some(clock::now_ms());
            change(info);
        });
        self.ended.cancel();
    }
}

/// A guard that ends its recording when it is dropped.
pub struct Attached {
    pub(super) entry: Arc<Entry>,
}

impl Attached {
    /// Waits for the recording's end in this daemon.
    pub async fn ended(&self) -> RecordingInfo {
        self.entry.ended.cancelled().await;
        self.entry.info()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.entry.stop.cancel();
    }
}
