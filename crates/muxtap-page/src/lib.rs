//! Pages: panes in a browser. What a page is shown, and what it types (`docs/page.md`).
//!
//! A page's connection is served by [`Connection`], from messages to messages; how they travel is the face's
//! business. It uses the engine's handles alone.

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

use tokio::sync::{mpsc, oneshot};

pub use answers::Answer;
pub use connection::{CallTool, Connection};
pub use files::{Files, PageFile, PageFileRequest, PageFileSaved};
pub use sessions::{PageSession, PageSessions};

use muxtap_api::{Error, Result};

/// State that all pages of a daemon share, and all clones.
#[derive(Clone, Default)]
pub struct Pages {
    /// The codes and cookies.
    pub sessions: PageSessions,
    /// The files that its editors open.
    pub files: Files,
    /// Where tmux servers lie that a name alone means.
    sockets: PathBuf,
    lines: lines::Lines,
    fits: fits::Fits,
    /// What the large answers of all pages hold.
    answers: answers::Budget,
    /// The panes as they were listed last, for any page.
    listed: Arc<Mutex<list::List>>,
    port: Arc<Mutex<Port>>,
}

/// The way to a port for pages.
#[derive(Default)]
struct Port {
    /// The address, where one was opened for pages.
    url: Option<String>,
    /// The task that opens ports.
    opener: Option<mpsc::Sender<oneshot::Sender<Result<String>>>>,
}

impl Pages {
    /// Prepares pages whose cookies are kept in this file, and whose editors open files below these folders. `sockets`: the
    /// folder of the daemon's own tmux sockets.
    pub fn new(file: PathBuf, folders: &[PathBuf], sockets: PathBuf) -> Self {
        Self { sessions: PageSessions::open(Some(file)), files: Files::below(folders), sockets, ..Self::default() }
    }

    /// Returns requests for a port: whoever takes them opens one and answers its address. One of them can be served.
    pub fn open_requests(&self) -> mpsc::Receiver<oneshot::Sender<Result<String>>> {
        let (opener, requests) = mpsc::channel(1);
        self.port.lock().unwrap_or_else(PoisonError::into_inner).opener = Some(opener);
        requests
    }

    /// Gives the windows that pages have fitted what they had before.
    pub async fn end(&self) {
        self.fits.end().await;
    }

    /// Returns the address of the port that was opened for pages.
    pub fn own_url(&self) -> Option<String> {
        self.port.lock().unwrap_or_else(PoisonError::into_inner).url.clone()
    }

    /// Opens a port for pages, once. Error: `CONFLICT` where that cannot be done.
    pub async fn open_port(&self) -> Result<String> {
        if let Some(url) = self.own_url() {
            return Ok(url);
        }
        let opener = self.port.lock().unwrap_or_else(PoisonError::into_inner).opener.clone();
        let unable =
            || Error::unavailable("this daemon opens no port for pages: run `muxtap serve --http 127.0.0.1:7717`");
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
