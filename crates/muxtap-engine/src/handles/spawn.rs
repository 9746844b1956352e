//! New sessions, windows and panes.

use std::collections::BTreeMap;

use muxtap_api::{Error, NewSessionRequest, NewWindowRequest, Result, SpawnRequest, SplitRequest};
use muxtap_base::quoting::shell_word;

use super::{Pane, RequestFuture, Server};

/// The kind of item to create: session, window or split.
#[derive(Clone, Debug)]
pub(super) enum SpawnKind {
    Session,
    Window(String),
    Split(Pane),
}

/// A session, window or pane to create. Awaiting it creates it and returns its pane, followed from
/// the first byte on.
///
/// Errors: `INVALID_ARGUMENT` (also for an option that does not apply to the kind of item),
/// `CONFLICT` (a session of that name exists), `NOT_FOUND`, `TMUX_UNAVAILABLE`.
///
/// ```no_run
/// # use muxtap_engine as muxtap;
/// # async fn example(server: muxtap::Server) -> muxtap::Result<()> {
/// let pane = server.new_session().name("work").shell_command("make && echo done").keep().await?;
/// let ended = pane.wait().exit().await?;
/// println!("{:?}", ended.exit_status);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is created until this is awaited"]
pub struct Spawn {
    server: Server,
    what: SpawnKind,
    name: Option<String>,
    runs: SpawnRequest,
    size: Option<(u16, u16)>,
    beside: bool,
    select: bool,
}

impl Spawn {
    pub(super) fn new(server: Server, what: SpawnKind) -> Self {
        let runs = SpawnRequest::default();
        Self { server, what, name: None, runs, size: None, beside: false, select: false }
    }

    /// Names the session or window.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Runs a program with arguments. Default: the user's shell.
    pub fn command<W: Into<String>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        let mut words: Vec<String> = words.into_iter().map(Into::into).collect();
        // tmux takes a single word as a line of shell.
        if let [only] = words.as_mut_slice() {
            *only = shell_word(only);
        }
        self.runs.command = Some(words);
        self
    }

    /// Runs a line of shell.
    pub fn shell_command(mut self, line: impl Into<String>) -> Self {
        self.runs.command = Some(vec![line.into()]);
        self
    }

    /// Sets the working directory, an absolute path.
    pub fn cwd(mut self, directory: impl Into<String>) -> Self {
        self.runs.cwd = Some(directory.into());
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.runs.env.insert(name.into(), value.into());
        self
    }

    /// Keeps the pane after its program has ended (`remain-on-exit`).
    pub fn keep(mut self) -> Self {
        self.runs.keep = true;
        self
    }

    /// Makes the shell mark its commands: without a command, or with one that starts an interactive
    /// bash, zsh, fish, dash, ash, mksh or ksh. Default: as [`crate::Options::shell_integration`].
    pub fn shell_integration(mut self, on: bool) -> Self {
        self.runs.shell_integration = Some(on);
        self
    }

    /// Sets the columns and rows of a new session (default: 80 and 24). A new pane uses the rows
    /// or, with [`Spawn::beside`], the columns.
    pub fn size(mut self, columns: u16, rows: u16) -> Self {
        self.size = Some((columns, rows));
        self
    }

    /// Puts the new pane beside the pane that is split instead of below it.
    pub fn beside(mut self) -> Self {
        self.beside = true;
        self
    }

    /// Makes the new window or pane the current one. By default the focus does not move.
    pub fn select(mut self) -> Self {
        self.select = true;
        self
    }

    async fn make(self) -> Result<Pane> {
        let Self { server, what, name, runs: mut spawn, size, beside, select } = self;
        let takes_none = |given: bool, what: &str, option: &str| {
            if given { Err(Error::invalid(format!("{option}: not supported for a new {what}"))) } else { Ok(()) }
        };
        let made = match what {
            SpawnKind::Session => {
                takes_none(beside, "session", "beside")?;
                takes_none(select, "session", "select")?;
                // If the server must be started for the session, it starts with this environment.
                spawn.caller_env = Some(environment());
                let (width, height) = size.unzip();
                server
                    .create_session(&NewSessionRequest {
                        name,
                        window_name: None,
                        spawn,
                        width,
                        height,
                        or_existing: false,
                    })
                    .await?
            }
            SpawnKind::Window(session) => {
                takes_none(beside, "window", "beside")?;
                takes_none(size.is_some(), "window", "size")?;
                server.create_window(&NewWindowRequest { session, index: None, name, spawn, select }).await?
            }
            SpawnKind::Split(pane) => {
                takes_none(name.is_some(), "pane", "name")?;
                let size = size.map(|(columns, rows)| if beside { columns } else { rows }.to_string());
                let request = SplitRequest {
                    pane: pane.target(),
                    horizontal: beside,
                    before: false,
                    full: false,
                    size,
                    spawn,
                    select,
                };
                pane.asking().create_split(&request).await?
            }
        };
        server.pane(made.pane).await
    }
}

impl IntoFuture for Spawn {
    type Output = Result<Pane>;
    type IntoFuture = RequestFuture<Pane>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.make())
    }
}

/// Returns the UTF-8 variables of this process's environment, except those that name a tmux server.
fn environment() -> BTreeMap<String, String> {
    let texts =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    texts.filter(|(name, _)| !["TMUX", "TMUX_PANE", "TMUX_TMPDIR"].contains(&name.as_str())).collect()
}
