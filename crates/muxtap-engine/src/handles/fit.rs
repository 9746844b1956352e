//! Resizing a window for as long as a client needs another size.
//!
//! The window's previous size is also stored in an option of the window ([`MARK`]): a killed daemon
//! cannot restore it, so the next daemon that connects to the server does.

use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

use muxtap_api::{Error, ErrorCode, Result, Size};
use muxtap_base::nonce;
use muxtap_core::protocol::{command::Command, names::spelled};
use muxtap_tmux::LinkState;

use super::{Pane, Server, ValueList};

use crate::Engine;

/// The window option with the state before the resize: `NONCE CLIENT WIDTH HEIGHT [OPTION]`, the
/// nonce of the process that resized the window, the process id of its tmux client, the size, and
/// the window's own `window-size`.
const MARK: &str = "@muxtap-fit";
/// The values of `window-size`. A value read from a mark becomes part of a command, so only these
/// are accepted.
const OPTIONS: [&str; 4] = ["largest", "smallest", "manual", "latest"];

/// Distinguishes marks of this process from those of others.
static NONCE: LazyLock<String> = LazyLock::new(nonce::hex64);

/// A window whose size can be set, and its state before.
#[derive(Clone, Debug)]
pub struct WindowFit {
    server: Server,
    /// The process number of the server: in another server these ids mean other windows.
    epoch: u64,
    window: String,
    before: Before,
}

/// A window's state before it was resized.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Before {
    size: Size,
    /// The window's own `window-size`; `None` if it had none.
    option: Option<String>,
}

/// A parsed mark of a window.
struct Mark {
    /// The nonce of the process that wrote the mark.
    nonce: String,
    /// The process id of the tmux client that wrote the mark.
    client: String,
    before: Before,
}

impl Mark {
    /// Parses a mark. Returns `None` for text in any other form.
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (nonce, client) = (words.next()?.to_owned(), words.next()?.to_owned());
        let size = Size { width: words.next()?.parse().ok()?, height: words.next()?.parse().ok()? };
        let option = words.next().filter(|option| !option.is_empty()).map(str::to_owned);
        let is_known = option.as_deref().is_none_or(|option| OPTIONS.contains(&option))
            && nonce.bytes().all(|byte| byte.is_ascii_hexdigit())
            && client.bytes().all(|byte| byte.is_ascii_digit());
        (is_known && words.next().is_none()).then_some(Self { nonce, client, before: Before { size, option } })
    }
}

impl Pane {
    /// Returns the pane's window with its current state, or with the state before another daemon
    /// resized it, so a later resize can be undone.
    pub async fn window_as_it_is(&self) -> Result<WindowFit> {
        let server = self.server().clone();
        if server.live_pane(self.id()).is_none_or(|live| live.key() != self.key()) {
            return Err(Error::not_found(format!("pane {} has ended", self.id())));
        }
        let epoch = server.epoch_now().unwrap_or_default();
        let target = self.id().to_string();
        let format = format!("#{{window_id}} #{{window_width}} #{{window_height}} #{{{MARK}}}");
        let said = server.printed(Command::new("display-message").flag("-p").opt("-t", &target).format(format)).await?;
        let mut words = said.trim_end_matches('\n').splitn(4, ' ');
        let window = words.next().unwrap_or_default().to_owned();
        let size = words.next().zip(words.next());
        let size =
            size.and_then(|(width, height)| Some(Size { width: width.parse().ok()?, height: height.parse().ok()? }));
        let unsaid = || Error::new(ErrorCode::InconsistentState, format!("tmux did not report the size of {target}"));
        let size = size.ok_or_else(unsaid)?;
        if let Some(mark) = words.next().and_then(Mark::read) {
            return Ok(WindowFit { server, epoch, window, before: mark.before });
        }
        let own = Command::new("show-options").flag("-w").flag("-q").flag("-v").opt("-t", &window).arg("window-size");
        let own = server.printed(own).await?.trim().to_owned();
        let before = Before { size, option: Some(own).filter(|own| !own.is_empty()) };
        Ok(WindowFit { server, epoch, window, before })
    }
}

impl WindowFit {
    /// Returns a name for the window: its server's socket and its id.
    pub fn key(&self) -> String {
        format!("{} {}", self.server.socket().display(), self.window)
    }

    /// Returns whether both values mean the same window.
    pub fn is_of(&self, other: &Self) -> bool {
        self.epoch == other.epoch && self.window == other.window
    }

    /// Resizes the window. tmux keeps the size, whichever clients attach.
    pub async fn resize(&self, size: Size) -> Result<()> {
        let Before { size: before, option } = &self.before;
        let option = option.as_deref().unwrap_or_default();
        let mark = format!("{} #{{client_pid}} {} {} {option}", *NONCE, before.width, before.height);
        let mark = Command::new("set-option").flag("-w").flag("-F").opt("-t", &self.window).arg(MARK).format(mark);
        // If the daemon ends between the two commands, the size has not changed.
        self.order("fit-window", [mark, self.resized(size)]).await
    }

    /// Restores the window's previous state. Returns an error also if the window no longer exists.
    pub async fn undo(&self) -> Result<()> {
        let set = || Command::new("set-option").flag("-w");
        let option = match &self.before.option {
            None => set().flag("-u").opt("-t", &self.window).arg("window-size"),
            Some(own) => set().opt("-t", &self.window).arg("window-size").arg(own),
        };
        let mark = set().flag("-u").opt("-t", &self.window).arg(MARK);
        // `resize-window` fixes the size (N20), so the option is set last: tmux then computes the
        // size from its clients again.
        self.order("unfit-window", [self.resized(self.before.size), option, mark]).await
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

impl Engine {
    /// Restores windows that a killed daemon left resized, on each server when it is connected.
    pub async fn give_back_orphaned_fits(self) {
        let mut links = self.shared.links.subscribe();
        let mut seen = HashMap::new();
        loop {
            tokio::select! {
                changed = links.changed() => if changed.is_err() { return },
                () = self.stopping() => return,
            }
            for server in self.followed_servers() {
                let Some(epoch) = server.epoch_now() else { continue };
                if seen.insert(server.socket().to_owned(), epoch) == Some(epoch) {
                    continue;
                }
                // In a task of its own: a server that does not respond delays no other.
                self.spawn(async move {
                    if let Err(error) = server.give_back_orphaned().await {
                        tracing::debug!(
                            "{}: cannot restore window sizes that an earlier muxtap changed: {error}",
                            server.socket().display()
                        );
                    }
                });
            }
        }
    }
}

impl Server {
    /// Restores windows whose mark was written by a process that no longer has a client on this
    /// server.
    async fn give_back_orphaned(&self) -> Result<()> {
        let clients = ValueList { command: Command::new("list-clients"), fields: &["client_pid"] };
        let windows = Command::new("list-windows").flag("-a");
        let windows = ValueList { command: windows, fields: &["window_id", MARK] };
        let [clients, windows] = &self.values(&[clients, windows]).await?[..] else { return Ok(()) };
        let clients: HashSet<_> = clients.iter().flatten().map(String::as_str).collect();
        let marked = windows.iter().filter_map(|row| Some((row.first()?, row.get(1)?, Mark::read(row.get(1)?)?)));
        let orphaned = marked.filter(|(_, _, mark)| mark.nonce != *NONCE && !clients.contains(&*mark.client));
        // A window that is linked to several sessions is listed for each.
        let orphaned: HashMap<_, _> = orphaned.map(|(window, text, mark)| (window, (text, mark))).collect();
        for (window, (text, mark)) in orphaned {
            let Before { size, option } = &mark.before;
            let option = option.as_ref().map_or("-u window-size".to_owned(), |own| format!("window-size {own}"));
            let [resize, set] = ["resize-window", "set-option"].map(spelled);
            let given = format!(
                "{resize} -t {window} -x {} -y {} ; {set} -w -t {window} {option} ; {set} -w -u -t {window} {MARK}",
                size.width, size.height
            );
            // A page may have resized the window since the list was read: its mark then differs,
            // and the window is left alone.
            let is_so = format!("#{{==:#{{{MARK}}},{text}}}");
            let order = Command::new("if-shell").flag("-F").opt("-t", window).format(is_so).arg(given);
            self.orders("unfit-window", window, [order]).await?;
        }
        Ok(())
    }

    /// Returns the process number of the connected server; `None` without a connection.
    fn epoch_now(&self) -> Option<u64> {
        match self.link().state() {
            LinkState::Connected(identity) => Some(identity.epoch()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_only_as_it_was_written() {
        let read = |text| Mark::read(text).map(|mark| mark.before);
        let before =
            |option: Option<&str>| Before { size: Size { width: 80, height: 24 }, option: option.map(str::to_owned) };
        assert_eq!(read("00ff 12 80 24 "), Some(before(None)));
        assert_eq!(read("00ff 12 80 24 smallest"), Some(before(Some("smallest"))));
        for text in [
            "",
            "00ff",
            "00ff 12 80",
            "00ff 12 80 x ",
            "00ff 12 80 24 largest more",
            "00ff 12 80 24 ;kill-server",
            "#(id) 12 80 24 ",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
