//! The size of a window, for as long as somebody wants it.

use super::{Pane, Server};
use crate::{
    api::{Error, ErrorCode, Result, Size},
    protocol::command::Command,
    tmux::LinkState,
};

/// A window that was given a size, and what it was before.
#[derive(Clone, Debug)]
pub(crate) struct WindowFit {
    server: Server,
    /// The number of the server's process: another one has other windows of these ids.
    epoch: u64,
    /// The window's id.
    window: String,
    size: Size,
    /// The window's own `window-size`; `None`: it had none.
    option: Option<String>,
}

impl Pane {
    /// Returns the pane's window as it is, so that a size that it is given can be taken back.
    pub(crate) async fn window_as_it_is(&self) -> Result<WindowFit> {
        let server = self.server().clone();
        if server.live_pane(self.id()).is_none_or(|live| live.key() != self.key()) {
            return Err(Error::not_found(format!("pane {} has ended", self.id())));
        }
        let epoch = server.epoch_now().unwrap_or_default();
        let target = self.id().to_string();
        let format = "#{window_id} #{window_width} #{window_height}";
        let said = server.printed(Command::new("display-message").flag("-p").opt("-t", &target).format(format)).await?;
        let mut words = said.split_whitespace();
        let window = words.next().unwrap_or_default().to_owned();
        let size = words.next().zip(words.next());
        let size =
            size.and_then(|(width, height)| Some(Size { width: width.parse().ok()?, height: height.parse().ok()? }));
        let unsaid = || Error::new(ErrorCode::InconsistentState, format!("tmux did not say the size of {target}"));
        let size = size.ok_or_else(unsaid)?;
        let own = Command::new("show-options").flag("-w").flag("-q").flag("-v").opt("-t", &window).arg("window-size");
        let own = server.printed(own).await?.trim().to_owned();
        Ok(WindowFit { server, epoch, window, size, option: Some(own).filter(|own| !own.is_empty()) })
    }
}

impl WindowFit {
    /// Returns the window's name: its server's socket, and its id.
    pub(crate) fn key(&self) -> String {
        format!("{} {}", self.server.socket().display(), self.window)
    }

    /// Returns whether this is the window that the other is.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        self.epoch == other.epoch && self.window == other.window
    }

    /// Gives the window this size. tmux keeps it, whatever clients attach.
    pub(crate) async fn resize(&self, size: Size) -> Result<()> {
        self.order("fit-window", [self.resized(size)]).await
    }

    /// Gives the window what it had before. Error: also where it has gone.
    pub(crate) async fn undo(&self) -> Result<()> {
        let option = Command::new("set-option").flag("-w");
        let option = match &self.option {
            None => option.flag("-u").opt("-t", &self.window).arg("window-size"),
            Some(own) => option.opt("-t", &self.window).arg("window-size").arg(own),
        };
        // `resize-window` fixes the size (N20), so what was set comes last: with it tmux asks its clients again.
        self.order("unfit-window", [self.resized(self.size), option]).await
    }

    async fn order(&self, action: &'static str, commands: impl IntoIterator<Item = Command>) -> Result<()> {
        if self.server.epoch_now().is_some_and(|epoch| epoch != self.epoch) {
            return Err(Error::not_found(format!("{}: its server has ended", self.window)));
        }
        self.server.orders(action, &self.window, commands).await?;
        Ok(())
    }

    fn resized(&self, size: Size) -> Command {
        let resize = Command::new("resize-window").opt("-t", &self.window);
        resize.opt("-x", size.width.to_string()).opt("-y", size.height.to_string())
    }
}

impl Server {
    /// Returns the number of the process that is connected. `None`: none is.
    fn epoch_now(&self) -> Option<u64> {
        match self.link().state() {
            LinkState::Connected(identity) => Some(identity.epoch()),
            _ => None,
        }
    }
}
