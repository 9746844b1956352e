//! Pages: panes in a browser. How their screens and input travel (`docs/page.md`).
//!
//! [`Connection`] serves a page's connection, from messages to messages; the interface transports
//! them. This crate uses only the engine's handles.

mod answers;
mod connection;
mod encode;
mod files;
mod fits;
mod frame;
mod lines;
mod list;
mod sessions;
mod view;
mod wire;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

pub use answers::Answer;
pub use connection::{CallTool, Connection};
pub use files::{Files, PageFile, PageFileRequest, PageFileSaved};
pub use sessions::{PageSession, PageSessions};

use muxtap_api::{Error, Result};
use muxtap_engine::Engine;

/// The state that all pages of a daemon share, and all clones.
#[derive(Clone, Default)]
pub struct Pages {
    /// The codes and cookies.
    pub sessions: PageSessions,
    /// The files for the pages' editors.
    pub files: Files,
    /// The folder of tmux sockets in which a bare name is looked up.
    sockets: PathBuf,
    lines: lines::Lines,
    fits: fits::Fits,
    /// The size of the large responses of all pages.
    answers: answers::Budget,
    /// The last list of panes, for any page.
    listed: Arc<Mutex<list::List>>,
    port: Arc<Mutex<Port>>,
}

/// The pages' state, stored for the daemon that replaces this one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredPages {
    lines: Vec<lines::StoredLine>,
    /// The address of the port that was opened for pages, if any.
    url: Option<String>,
}

/// Pages that are being handed over: what they type is ignored, and they send it again to their
/// next connection. Dropped, they go on here.
pub struct HeldPages(lines::HeldLines);

/// How pages get a port.
#[derive(Default)]
struct Port {
    /// The address of the port that was opened for pages, if any.
    url: Option<String>,
    /// The task that opens ports.
    opener: Option<mpsc::Sender<oneshot::Sender<Result<String>>>>,
}

impl Pages {
    /// Creates the pages' state.
    ///
    /// Cookies are kept in `file`. Editors open files below `folders`. `sockets` is the folder of
    /// the daemon's own tmux sockets.
    pub fn new(file: PathBuf, folders: &[PathBuf], sockets: PathBuf) -> Self {
        Self { sessions: PageSessions::open(Some(file)), files: Files::below(folders), sockets, ..Self::default() }
    }

    /// Returns requests for a port. Their receiver opens one and responds with its address.
    ///
    /// Only one task can receive them.
    pub fn open_requests(&self) -> mpsc::Receiver<oneshot::Sender<Result<String>>> {
        let (opener, requests) = mpsc::channel(1);
        self.port.lock().unwrap_or_else(PoisonError::into_inner).opener = Some(opener);
        requests
    }

    /// Stops taking typed input, and waits until what was taken has its outcome.
    pub async fn hold(&self) -> HeldPages {
        HeldPages(self.lines.hold().await)
    }

    /// Returns the state for another daemon: also of pages that have connected since they are held.
    pub fn stored(&self, held: &HeldPages) -> StoredPages {
        StoredPages { lines: held.0.store(), url: self.own_url() }
    }

    /// Continues the state of another daemon.
    pub fn restore(&self, engine: &Engine, stored: StoredPages) {
        self.lines.restore(engine, stored.lines);
        self.port.lock().unwrap_or_else(PoisonError::into_inner).url = stored.url;
    }

    /// Restores the windows that pages have fitted.
    pub async fn end(&self) {
        self.fits.end().await;
    }

    /// Returns the address of the port that was opened for pages.
    pub fn own_url(&self) -> Option<String> {
        self.port.lock().unwrap_or_else(PoisonError::into_inner).url.clone()
    }

    /// Opens a port for pages, once. Error: `CONFLICT` if that fails.
    pub async fn open_port(&self) -> Result<String> {
        if let Some(url) = self.own_url() {
            return Ok(url);
        }
        let opener = self.port.lock().unwrap_or_else(PoisonError::into_inner).opener.clone();
        let unable =
            || Error::unavailable("this daemon has no port for the page: run `muxtap serve --http 127.0.0.1:7717`");
        let (sender, answer) = oneshot::channel();
        opener.ok_or_else(unable)?.send(sender).await.map_err(|_| unable())?;
        let url = answer.await.map_err(|_| unable())??;
        self.port.lock().unwrap_or_else(PoisonError::into_inner).url = Some(url.clone());
        Ok(url)
    }
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pages").finish_non_exhaustive()
    }
}
