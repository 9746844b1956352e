//! The handle of a pane.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use muxtap_api::{Cursor, Gap, InputAnswer, InputRequest, PaneInfo, PatchRequest, RespawnRequest, Result, Since, Size};
use muxtap_core::{
    protocol::ids::PaneId,
    screen::{Rules, Screen},
};
use muxtap_tmux::Exit;

use super::{Capture, Follow, Read, Run, Server, Spawn, Wait, spawn::SpawnKind};

use crate::{PaneState, labels::Inherited, sync::watch};

/// A handle on a pane of a tmux server.
///
/// The handle is cheap to clone and always means the pane that it was made for. After the pane has
/// ended, its output can still be read. After its server has ended, the handle never means a pane
/// of another server (tmux numbers panes from `%0` again): input and changes then return
/// `NOT_FOUND`.
///
/// An end that muxtap has seen is known without tmux: reads, waits, captures and [`Pane::info`]
/// still work. Every request except a read needs tmux and can return `NOT_FOUND`,
/// `TMUX_UNAVAILABLE` or, because of [`Options::allow`](crate::Options::allow), `READ_ONLY`. Each
/// method lists the errors that it adds.
///
/// ```no_run
/// # use muxtap_engine as muxtap;
/// # async fn example(server: muxtap::Server) -> muxtap::Result<()> {
/// let pane = server.pane("work:build").await?;
/// let sent = pane.send_keys(["make", "Enter"]).await?;
/// let hit = pane.wait().pattern(r"(\d+) passed")?.fail("error:")?.await?;
/// let output = pane.read().since(sent.cursor).await?;
/// println!("{:?}: {}", hit.outcome, output.text());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Pane {
    server: Server,
    state: Arc<PaneState>,
}

impl Pane {
    pub(super) fn of(server: Server, state: Arc<PaneState>) -> Self {
        Self { server, state }
    }

    pub(super) fn state(&self) -> &Arc<PaneState> {
        &self.state
    }

    /// Returns the pane's id, for example `%3`.
    pub fn id(&self) -> PaneId {
        self.state.id()
    }

    /// Returns the pane's server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the cursor at the current end of the pane's output.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// let before = pane.cursor();
    /// pane.send_keys(["date", "Enter"]).await?;
    /// pane.wait().pattern("20[0-9][0-9]")?.since(before).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cursor(&self) -> Cursor {
        self.state.end_cursor()
    }

    /// Returns the pane's entry in the list of panes, as tmux last reported it: title, command,
    /// size, location.
    pub fn info(&self) -> PaneInfo {
        let host = &self.server.host;
        let listed = if host.is_earlier(&self.state) { None } else { host.listed_info(self.id()) };
        listed.unwrap_or_else(|| host.ended_info(&self.state))
    }

    /// Returns a channel that is notified of every change: output, size, end.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.state.changes()
    }

    /// Returns the pane's size, as tmux last reported it.
    pub fn size(&self) -> Size {
        self.state.size()
    }

    /// Returns the drawing rules of the pane's tmux; `None` before the server was first connected.
    pub fn rules(&self) -> Option<Rules> {
        self.server.host.rules()
    }

    /// Returns the pane's screen, and the end of the output that it shows. `None` if the screen is
    /// not in memory.
    pub fn screen(&self) -> Option<(Screen, Cursor)> {
        let locked = self.state.lock();
        let screen =
            locked.screen().followed().or_else(|| locked.screen().last().filter(|_| locked.screen().is_proven()));
        screen.map(|screen| (screen.clone(), self.state.cursor(locked.ring().end())))
    }

    /// Calls `look` with the pane's state under the pane's lock. `look` must be quick and must not
    /// call the pane.
    pub fn look<T>(&self, look: impl FnOnce(&PaneLook<'_>) -> T) -> T {
        let locked = self.state.lock();
        let followed = locked.screen().shown();
        look(&PaneLook {
            screen: followed.or_else(|| locked.screen().last()),
            is_followed: followed.is_some(),
            made: locked.screen().made(),
            refreshed: locked.screen().refreshed(),
            commands: locked.command_changes(),
            title: &locked.metadata().title,
            cursor: self.state.cursor(locked.ring().end()),
            exit: locked.exit(),
        })
    }

    /// Queries tmux for the pane's screen. Returns the screen without history, the end of the
    /// output that it certainly shows, and the number of lines in the history.
    pub async fn shown(&self) -> Result<(Screen, Cursor, u32)> {
        let (screen, offset, history) = self.server.shown(&self.state).await?;
        Ok((screen, self.state.cursor(offset), history))
    }

    /// Keeps current those facts of the pane that only tmux knows, such as a title set or a history
    /// cleared by a command, until the returned guard is dropped.
    pub fn keep_in_use(&self) -> impl Send + Sync + 'static {
        self.server.host.use_values(&self.state)
    }

    /// Watches the pane for changes from now on.
    pub fn watch(&self) -> PaneWatch {
        PaneWatch(self.state.changes())
    }

    /// Returns the pane's key, which no other pane ever has.
    pub fn key(&self) -> String {
        let epoch = self.state.epoch();
        format!("{:x}.{:x}.{}", epoch.server, epoch.engine, self.id().0)
    }

    /// Resolves a position in the output to a cursor, with the gap just before it.
    pub fn place(&self, since: &Since) -> Result<(Cursor, Option<Gap>)> {
        let (offset, gap) = self.state.resolve_since(&self.state.lock(), since)?;
        Ok((self.state.cursor(offset), gap))
    }

    /// Returns when the output after a cursor was printed, as pairs of offset and milliseconds
    /// since 1970.
    pub fn output_times(&self, from: &Cursor) -> Vec<(u64, u64)> {
        self.state.lock().output_times(from.offset)
    }

    /// Returns how the pane's program ended; `None` while it runs.
    pub fn exit(&self) -> Option<Exit> {
        self.state.exit()
    }

    /// Returns the target that means this pane to [`Pane::asking`].
    pub(super) fn target(&self) -> String {
        self.id().to_string()
    }

    /// Returns the server for a request on this pane.
    pub(super) fn asking(&self) -> Server {
        self.server.bound_to([self.state.clone()])
    }

    /// Presses keys by tmux's names (`C-c`, `Enter`, `Up`) and types any other word as text.
    /// Returns the cursor just before the input: output printed in response follows it.
    ///
    /// Errors: `NOT_FOUND`, `INVALID_ARGUMENT`, `CONFLICT` (the pane has ended, or is in tmux's
    /// copy mode, which would take a key), `TMUX_UNAVAILABLE`.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// let sent = pane.send_keys(["make", "Enter"]).await?;
    /// println!("the answer begins at {}", sent.cursor);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send_keys<K: Into<String>>(&self, keys: impl IntoIterator<Item = K>) -> Result<InputAnswer> {
        let keys = keys.into_iter().map(Into::into).collect();
        self.input(InputRequest { keys: Some(keys), ..InputRequest::default() }).await
    }

    /// Types a text literally, even if it contains names of keys.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// pane.type_text("Enter is only a word here").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn type_text(&self, text: impl Into<String>) -> Result<InputAnswer> {
        self.input(InputRequest { text: Some(text.into()), ..InputRequest::default() }).await
    }

    /// Pastes a text, bracketed if the program has enabled bracketed paste.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// pane.paste("several\nlines").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn paste(&self, text: impl Into<String>) -> Result<InputAnswer> {
        self.input(InputRequest { text: Some(text.into()), paste: true, ..InputRequest::default() }).await
    }

    /// Types a text, waits for its echo, and presses Enter in a way that programs with an input box
    /// accept as Enter. Several lines are one message to a program that enabled bracketed paste. The
    /// response says whether the echo was seen. If the future is dropped halfway, the text may remain without
    /// its Enter.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// let sent = pane.submit("explain this function").await?;
    /// assert!(sent.submit.is_some_and(|seen| seen.echoed));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn submit(&self, text: impl Into<String>) -> Result<InputAnswer> {
        self.input(InputRequest { text: Some(text.into()), submit: true, ..InputRequest::default() }).await
    }

    /// Sends bytes to the pane's program unchanged.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// pane.send_bytes(b"\x1b[200~pasted by hand\x1b[201~").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send_bytes(&self, bytes: &[u8]) -> Result<InputAnswer> {
        let hex = bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        self.input(InputRequest { hex: Some(hex), ..InputRequest::default() }).await
    }

    async fn input(&self, request: InputRequest) -> Result<InputAnswer> {
        self.asking().input(&self.target(), &request).await
    }

    /// Prepares to run a command in the pane's shell, which must be idle at its prompt.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// let done = pane.run("cargo test").await?;
    /// println!("{:?}\n{}", done.exit_status, done.output);
    /// # Ok(())
    /// # }
    /// ```
    pub fn run(&self, command: impl Into<String>) -> Run {
        Run::new(self.clone(), command.into())
    }

    /// Prepares a read of the pane's output, from memory.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// use muxtap::Since;
    ///
    /// let output = pane.read().since(Since::Lines(100)).await?;
    /// print!("{}", output.text());
    /// # Ok(())
    /// # }
    /// ```
    pub fn read(&self) -> Read {
        Read::new(self.clone())
    }

    /// Prepares a capture of the pane's screen, in the form of `tmux capture-pane -p`.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// let screen = pane.capture().escapes().await?;
    /// print!("{}", screen.text);
    /// # Ok(())
    /// # }
    /// ```
    pub fn capture(&self) -> Capture {
        Capture::new(self.clone())
    }

    /// Prepares a wait on this pane.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// use std::time::Duration;
    ///
    /// let hit = pane.wait().pattern(r"(\d+) passed")?.timeout(Duration::from_secs(600)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait(&self) -> Wait {
        Wait::on(self.server.clone(), vec![self.clone()])
    }

    /// Follows the pane's output from now on, until its program ends.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// let mut follow = pane.follow();
    /// while let Some(output) = follow.next().await? {
    ///     print!("{}", output.text());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn follow(&self) -> Follow {
        Follow::new(self.clone(), self.cursor().into())
    }

    /// Prepares a new pane that takes half of this pane's rows ([`Spawn::beside`]: columns).
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// let log = pane.split().beside().shell_command("tail -f build.log").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn split(&self) -> Spawn {
        Spawn::new(self.server.clone(), SpawnKind::Split(self.clone()))
    }

    /// Ends the pane's program and starts it again, in the same directory. The pane continues:
    /// neither an open wait for its exit nor a [`Follow`] ends by this.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// pane.restart().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn restart(&self) -> Result<()> {
        let respawn = Some(RespawnRequest { kill: true, ..RespawnRequest::default() });
        let patch = PatchRequest { respawn, ..PatchRequest::default() };
        self.asking().patch_pane(&self.target(), &patch).await
    }

    /// Changes the pane's labels: an empty value removes one.
    ///
    /// Errors: `INVALID_ARGUMENT`, `RESOURCE_LIMIT`; `CONFLICT`: a label to remove is one of the pane's
    /// session alone, or other labels prevail.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// pane.label(&[("role".to_owned(), "build".to_owned())].into()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn label(&self, changes: &BTreeMap<String, String>) -> Result<()> {
        self.label_with(changes, Inherited::Refused).await
    }

    /// Changes the pane's own labels, like [`Self::label`], but the removal of a label that the pane has
    /// from its session alone does nothing.
    pub async fn label_own(&self, changes: &BTreeMap<String, String>) -> Result<()> {
        self.label_with(changes, Inherited::Left).await
    }

    async fn label_with(&self, changes: &BTreeMap<String, String>, removed: Inherited) -> Result<()> {
        let patch = PatchRequest { labels: Some(changes.clone()), ..PatchRequest::default() };
        self.asking().patch_pane_with(&self.target(), &patch, removed).await
    }

    /// Ends the pane's program and closes the pane.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// pane.kill().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn kill(&self) -> Result<()> {
        self.asking().kill_pane(&self.target()).await
    }

    /// Kills the pane on behalf of the caller that created it.
    pub async fn kill_own(&self) -> Result<()> {
        self.asking().kill_own_pane(&self.target()).await
    }
}

/// A watch on a pane's changes: output, size, screen, title, end.
pub struct PaneWatch(watch::Receiver<u64>);

impl PaneWatch {
    /// Marks all changes so far as seen.
    pub fn mark_seen(&mut self) {
        self.0.borrow_and_update();
    }

    /// Waits for a change. Returns false if no change can follow. Cancel safe.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

/// A pane's state at one position of its output.
pub struct PaneLook<'a> {
    /// The last known screen.
    pub screen: Option<&'a Screen>,
    /// Whether the screen is certain to equal tmux's.
    pub is_followed: bool,
    /// The number of this screen: a different number means another screen, with other line numbers
    /// in its history.
    pub made: u64,
    /// How often this screen was refreshed from tmux: line numbers stay valid, but a line may look
    /// different.
    pub refreshed: u64,
    /// How often the result of [`Pane::commands_by_line`] may have changed.
    pub commands: u64,
    /// The title in tmux.
    pub title: &'a str,
    /// The end of the output that the screen shows.
    pub cursor: Cursor,
    /// How the program ended; `None` while it runs.
    pub exit: Option<Exit>,
}

impl std::fmt::Debug for Pane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pane").field("id", &self.id()).field("server", &self.server.socket()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, Options};
    use muxtap_tmux::Exit;

    #[tokio::test]
    async fn a_handle_knows_that_its_pane_has_ended_when_the_server_has_forgotten_it() {
        let engine = Engine::new(Options::default());
        let host = engine.host(std::path::Path::new("/nowhere/at/all")).unwrap();
        let state = PaneState::new(PaneId(1), host.epoch(), 1024);
        state.mark_exited(Exit { status: Some(3), signal: None });
        let info = Pane::of(Server::of(engine.clone(), host), state).info();
        assert_eq!((info.id, info.dead, info.exit_status), (PaneId(1), true, Some(3)));
        engine.stop().await;
    }
}
