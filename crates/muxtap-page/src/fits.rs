//! Windows that have a page's size, and their earlier states.
//!
//! One task manages them: sizes are set and restored one after the other.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use muxtap_api::{Error, ErrorCode, Result, Size};
use muxtap_engine::{Engine, Pane, WindowFit};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

/// How long a window keeps its size after the page's connection has ended: the page may reconnect.
pub const KEPT: Duration = Duration::from_secs(30);
/// The maximum width and height: tmux's own.
const MOST: u16 = 10_000;
/// How long a stopping daemon waits until all windows are restored.
const GIVE_BACK_LIMIT: Duration = Duration::from_secs(2);

/// The fitted windows of all pages; clones share them.
#[derive(Clone, Default)]
pub(super) struct Fits(Arc<OnceLock<mpsc::UnboundedSender<Order<Pane>>>>);

/// The part of a pane that [`keep`] uses.
trait FitPane {
    type Window: FitWindow + Clone;
    fn name(&self) -> String;
    async fn window(&self) -> Result<Self::Window>;
}

/// The part of a window that [`keep`] uses: its state before it was given a size.
trait FitWindow {
    fn name(&self) -> String;
    fn is(&self, other: &Self) -> bool;
    async fn give(&self, size: Size) -> Result<()>;
    async fn give_back(&self) -> Result<()>;
}

impl FitPane for Pane {
    type Window = WindowFit;

    fn name(&self) -> String {
        self.key()
    }

    async fn window(&self) -> Result<WindowFit> {
        self.window_as_it_is().await
    }
}

impl FitWindow for WindowFit {
    fn name(&self) -> String {
        self.key()
    }

    fn is(&self, other: &Self) -> bool {
        self.is_of(other)
    }

    async fn give(&self, size: Size) -> Result<()> {
        self.resize(size).await
    }

    async fn give_back(&self) -> Result<()> {
        self.undo().await
    }
}

enum Order<P> {
    /// Gives a pane's window a size, for the page with this name.
    Fit { pane: P, size: Size, page: String, done: oneshot::Sender<Result<()>> },
    /// Restores the window that was fitted through the pane with this key.
    Unfit { pane: String, page: String, done: oneshot::Sender<Result<()>> },
    /// A page's connection has ended.
    Left { page: String },
    /// Restore all windows.
    End { done: oneshot::Sender<()> },
}

/// A window with a page's size.
struct Held<W> {
    before: W,
    /// The key of the pane through which the window was fitted; the pane may have ended.
    pane: String,
    page: String,
    /// When the window is restored, because its page has disconnected.
    until: Option<Instant>,
}

impl Fits {
    /// Gives the pane's window this size until the page takes it back, or has been disconnected for
    /// [`KEPT`].
    ///
    /// The page takes over a window that another page has fitted.
    pub(super) async fn fit(&self, engine: &Engine, page: &str, pane: Pane, size: Size) -> Result<()> {
        if size.width == 0 || size.height == 0 || size.width > MOST || size.height > MOST {
            return Err(Error::invalid(format!("columns, rows: expected 1 to {MOST}")));
        }
        let (done, answer) = oneshot::channel();
        self.order(engine, Order::Fit { pane, size, page: page.into(), done }, answer).await
    }

    /// Restores the window that the page fitted through the pane with this key, if any.
    pub(super) async fn unfit(&self, engine: &Engine, page: &str, pane: &str) -> Result<()> {
        let (done, answer) = oneshot::channel();
        self.order(engine, Order::Unfit { pane: pane.into(), page: page.into(), done }, answer).await
    }

    /// Notes that a page's connection has ended.
    pub(super) fn left(&self, page: &str) {
        self.note(Order::Left { page: page.into() });
    }

    /// Restores all windows.
    pub(super) async fn end(&self) {
        let Some(queue) = self.0.get() else { return };
        let (done, answer) = oneshot::channel();
        let ended = async {
            // The task may have ended with the engine.
            let _ = queue.send(Order::End { done });
            let _ = answer.await;
        };
        let _ = tokio::time::timeout(GIVE_BACK_LIMIT, ended).await;
    }

    /// Sends an order, unless no window was ever fitted and there is no task.
    fn note(&self, order: Order<Pane>) {
        if let Some(queue) = self.0.get() {
            let _ = queue.send(order);
        }
    }

    async fn order(&self, engine: &Engine, order: Order<Pane>, answer: oneshot::Receiver<Result<()>>) -> Result<()> {
        let queue = self.0.get_or_init(|| {
            let (queue, orders) = mpsc::unbounded_channel();
            let ending = engine.clone();
            engine.spawn(async move {
                tokio::select! {
                    () = keep(orders) => {}
                    () = ending.stopping() => {}
                }
            });
            queue
        });
        // The queue stays short, because each caller waits for its response.
        let _ = queue.send(order);
        answer.await.map_err(|_| Error::unavailable("muxtap is stopping"))?
    }
}

/// Carries out orders until all senders are dropped.
async fn keep<P: FitPane>(mut orders: mpsc::UnboundedReceiver<Order<P>>) {
    let mut held: HashMap<String, Held<P::Window>> = HashMap::new();
    loop {
        let due = held.values().filter_map(|held| held.until).min();
        let order = tokio::select! {
            order = orders.recv() => match order {
                None => return,
                order => order,
            },
            () = until(due) => None,
        };
        match order {
            Some(Order::Fit { pane, size, page, done }) => {
                let _ = done.send(fit(&mut held, &pane, size, page).await);
            }
            Some(Order::Unfit { pane, page, done }) => {
                let windows = held.extract_if(|_, held| held.pane == pane && held.page == page).collect();
                let _ = done.send(give_back(&mut held, windows).await);
            }
            // A page that reconnects sends its fits again.
            Some(Order::Left { page }) => {
                for window in held.values_mut().filter(|held| held.page == page) {
                    window.until = Some(Instant::now() + KEPT);
                }
            }
            Some(Order::End { done }) => {
                let windows = held.drain().collect();
                let _ = give_back(&mut held, windows).await;
                let _ = done.send(());
            }
            None => {
                let now = Instant::now();
                let windows = held.extract_if(|_, held| held.until.is_some_and(|until| until <= now)).collect();
                let _ = give_back(&mut held, windows).await;
            }
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

async fn fit<P: FitPane>(
    held: &mut HashMap<String, Held<P::Window>>,
    pane: &P,
    size: Size,
    page: String,
) -> Result<()> {
    let now = pane.window().await?;
    let key = now.name();
    // The state before any page.
    let before = held.get(&key).filter(|held| held.before.is(&now)).map_or(now, |held| held.before.clone());
    before.give(size).await?;
    held.insert(key, Held { before, pane: pane.name(), page, until: None });
    Ok(())
}

/// Restores windows. Those of a tmux that does not respond are kept, and restored later.
///
/// Error: the last one.
async fn give_back<W: FitWindow>(held: &mut HashMap<String, Held<W>>, windows: Vec<(String, Held<W>)>) -> Result<()> {
    let mut given = Ok(());
    for (key, window) in windows {
        let Err(error) = window.before.give_back().await else { continue };
        tracing::debug!("a window keeps a page's size: {error}");
        if error.code != ErrorCode::NotFound {
            held.insert(key, Held { until: Some(Instant::now() + KEPT), ..window });
            given = Err(error);
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window with one pane that records its sizes; `None`: its own size again.
    #[derive(Clone)]
    struct Noting(mpsc::UnboundedSender<(Instant, Option<Size>)>);

    impl FitPane for Noting {
        type Window = Self;

        fn name(&self) -> String {
            "pane".into()
        }

        async fn window(&self) -> Result<Self> {
            Ok(self.clone())
        }
    }

    impl FitWindow for Noting {
        fn name(&self) -> String {
            "window".into()
        }

        fn is(&self, _: &Self) -> bool {
            true
        }

        async fn give(&self, size: Size) -> Result<()> {
            self.0.send((Instant::now(), Some(size))).map_err(|_| Error::unavailable("nobody notes"))
        }

        async fn give_back(&self) -> Result<()> {
            self.0.send((Instant::now(), None)).map_err(|_| Error::unavailable("nobody notes"))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_keeps_a_pages_size_briefly_after_the_page_disconnects() {
        let (orders, queue) = mpsc::unbounded_channel();
        let (notes, mut noted) = mpsc::unbounded_channel();
        tokio::spawn(keep::<Noting>(queue));
        let size = Size { width: 70, height: 18 };
        let fit = async || {
            let (done, answer) = oneshot::channel();
            orders.send(Order::Fit { pane: Noting(notes.clone()), size, page: "one".into(), done }).ok().unwrap();
            answer.await.unwrap().unwrap();
        };
        let left = |page: &str| orders.send(Order::Left { page: page.into() }).ok().unwrap();
        fit().await;
        assert_eq!(noted.recv().await.unwrap().1, Some(size));
        // Another page's end has no effect; a page that reconnects in time keeps its size.
        left("other");
        left("one");
        tokio::time::sleep(KEPT.checked_sub(Duration::from_millis(10)).unwrap()).await;
        fit().await;
        assert_eq!(noted.recv().await.unwrap().1, Some(size));
        tokio::time::sleep(KEPT * 2).await;
        assert!(noted.try_recv().is_err());
        // A page that does not reconnect loses it.
        let gone = Instant::now();
        left("one");
        let (at, what) = noted.recv().await.unwrap();
        assert_eq!(what, None);
        // The clock has millisecond precision.
        let kept = at - gone;
        assert!(kept >= KEPT && kept < KEPT + Duration::from_millis(10), "{kept:?}");
        tokio::time::sleep(KEPT * 2).await;
        assert!(noted.try_recv().is_err());
    }
}
