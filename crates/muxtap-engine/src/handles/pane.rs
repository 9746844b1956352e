//! The handle of a pane.

use std::{fmt::Write as _, sync::Arc};

use muxtap_api::{Cursor, Gap, InputAnswer, InputRequest, PaneInfo, PatchRequest, RespawnRequest, Result, Since, Size};
use muxtap_core::{
    protocol::ids::PaneId,
    screen::{Rules, Screen},
};
use muxtap_tmux::Exit;

use super::{Capture, Follow, Read, Run, Server, Spawn, Wait, spawn::SpawnKind};

use crate::{PaneState, sync::watch};

/// A handle on a pane of a tmux server.
///
/// It is cheap to clone. It stays with the pane it was made for: when the pane has ended, what it
/// printed can still be read, and when its server has ended, no pane of another server is taken for
/// it (tmux numbers them from `%0` again): what is typed or changed then is `NOT_FOUND`.
///
/// An end that has come is known without tmux: reads, waits, captures and [`Pane::info`] go on then. Every
/// other request but a read needs tmux and can be `NOT_FOUND`, `TMUX_UNAVAILABLE` or, by
/// [`Options::allow`](crate::Options::allow), `READ_ONLY`; more is said where there is more.
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

    /// Returns the pane's id, as `%3`.
    pub fn id(&self) -> PaneId {
        self.state.id()
    }

    /// Returns the server that has the pane.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the cursor at the end of what the pane has printed so far.
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
    /// size, where it is.
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

    /// Returns how the pane's tmux draws; `None` before its server was reached.
    pub fn rules(&self) -> Option<Rules> {
        self.server.host.rules()
    }

    /// Returns what the pane shows, and the end of the output that it shows. `None`: the screen is not
    /// in memory.
    pub fn screen(&self) -> Option<(Screen, Cursor)> {
        let locked = self.state.lock();
        let screen =
            locked.screen().followed().or_else(|| locked.screen().last().filter(|_| locked.screen().is_proven()));
        screen.map(|screen| (screen.clone(), self.state.cursor(locked.ring().end())))
    }

    /// Looks at the pane under its lock: `look` must be quick, and call nothing of the pane.
    pub fn look<T>(&self, look: impl FnOnce(&PaneLook<'_>) -> T) -> T {
        let locked = self.state.lock();
        let followed = locked.screen().shown();
        look(&PaneLook {
            screen: followed.or_else(|| locked.screen().last()),
            is_followed: followed.is_some(),
            made: locked.screen().made(),
            refreshed: locked.screen().refreshed(),
            title: &locked.metadata().title,
            cursor: self.state.cursor(locked.ring().end()),
            exit: locked.exit(),
        })
    }

    /// Asks tmux what the pane shows: a screen without history, the end of output that it shows for
    /// certain, and how many lines the history has.
    pub async fn shown(&self) -> Result<(Screen, Cursor, u32)> {
        let (screen, offset, history) = self.server.shown(&self.state).await?;
        Ok((screen, self.state.cursor(offset), history))
    }

    /// Begins a use of what tmux alone knows of the pane: a title set, a history cleared by commands.
    /// It lasts until the answer is dropped.
    pub fn keep_in_use(&self) -> impl Send + Sync + 'static {
        self.server.host.use_values(&self.state)
    }

    /// Watches the pane: what changes from now on is news.
    pub fn watch(&self) -> PaneWatch {
        PaneWatch(self.state.changes())
    }

    /// Returns the pane's name, which no other pane ever has.
    pub fn key(&self) -> String {
        let epoch = self.state.epoch();
        format!("{:x}.{:x}.{}", epoch.server, epoch.engine, self.id().0)
    }

    /// Returns the place that this means, and what is missing before it.
    pub fn place(&self, since: &Since) -> Result<(Cursor, Option<Gap>)> {
        let (offset, gap) = self.state.resolve_since(&self.state.lock(), since)?;
        Ok((self.state.cursor(offset), gap))
    }

    /// Returns when the output from here on was printed: offsets, and milliseconds since 1970.
    pub fn output_times(&self, from: &Cursor) -> Vec<(u64, u64)> {
        self.state.lock().output_times(from.offset)
    }

    /// Returns how the pane's program has ended, if it has.
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

    /// Presses keys by tmux's names (`C-c`, `Enter`, `Up`); what is no key's name is typed as text.
    /// Returns the cursor just before: what the pane prints in answer stands behind it.
    ///
    /// Errors: `NOT_FOUND`, `INVALID_ARGUMENT`, `CONFLICT` (the pane has ended, or shows tmux's
    /// copy mode and a key would be taken by it), `TMUX_UNAVAILABLE`.
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

    /// Types a text as it is, whatever keys are called.
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

    /// Pastes a text: bracketed, where the program asked for that.
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

    /// Types a text and presses Enter once the text's echo was seen, in a way that programs with an
    /// input box take as Enter. The answer says what was seen. If the future is dropped halfway, the
    /// text may stand there without its Enter.
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

    /// Sends bytes to the pane's program as they are.
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

    /// Begins to run a command in the pane's shell, which must rest at its prompt.
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

    /// Begins a read of what the pane printed, from memory.
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

    /// Begins a capture of what the pane shows, as `tmux capture-pane -p` prints it.
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

    /// Begins a wait on this pane.
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

    /// Follows what the pane prints from now on, to its end.
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

    /// Begins a new pane, for which this one gives half of its rows ([`Spawn::beside`]: columns).
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

    /// Ends what runs in the pane, and starts it again: the same program, in the same directory. The
    /// pane goes on with it: an open wait for its exit does not end by this, nor does a
    /// [`Follow`].
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

    /// Ends the pane's program, and closes the pane.
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

    /// Kills the pane for the caller who has made it.
    pub async fn kill_own(&self) -> Result<()> {
        self.asking().kill_own_pane(&self.target()).await
    }
}

/// A watch of a pane's changes: output, size, screen, title, end.
pub struct PaneWatch(watch::Receiver<u64>);

impl PaneWatch {
    /// Takes what has changed so far as seen.
    pub fn mark_seen(&mut self) {
        self.0.borrow_and_update();
    }

    /// Resolves when something has changed; false when nothing will any more. Cancel safe.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

/// A pane at one place of its output.
pub struct PaneLook<'a> {
    /// The last known screen.
    pub screen: Option<&'a Screen>,
    /// Whether it is certain to be what tmux shows.
    pub is_followed: bool,
    /// Which screen it is: another number is another screen, whose history's lines have other numbers.
    pub made: u64,
    /// How often this screen was refreshed from tmux: line numbers stay valid, though a line may look different.
    pub refreshed: u64,
    /// The title, as tmux has it.
    pub title: &'a str,
    /// The end of the output that the screen shows.
    pub cursor: Cursor,
    /// How the program has ended, if it has.
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
