//! Creating sessions, windows and panes without losing a byte of their programs' output.
//!
//! A program that prints and ends at once would be gone before muxtap follows its pane. Therefore a
//! pane for a command begins with a placeholder. Once the pane is followed, the command replaces
//! the placeholder (`respawn-pane`), in a wrapper that holds the pane until all output has arrived
//! ([`managed`]).

use std::{path::PathBuf, sync::Arc};

use futures_util::future::BoxFuture;
use muxtap_api::{
    CreatedAnswer, Cursor, Error, ErrorCode, NewSessionRequest, NewWindowRequest, Operation, Result, SpawnRequest,
    SplitRequest, Tier,
};
use muxtap_base::nonce;
use muxtap_core::{
    marks::NONCE_VARIABLE,
    protocol::{
        command::{Command, CommandLine},
        ids::{PaneId, SessionId},
    },
};
use muxtap_tmux::{LinkState, Request, ServerIdentity, ServerLink, StartServer, Updated, keeps_sessions};

use crate::{
    Host, PaneState, Server,
    pane::managed::{ExitWrapper, Launch, ManagedPane, OnExit, PaneOptions},
    spawn::{integration::ShellStart, managed},
};

/// The placeholder: a program that runs in a new pane until the command replaces it.
const PLACEHOLDER: &str = "exec cat >/dev/null";
/// The format in which tmux prints what it created.
const MADE: &str = "#{session_id}|#{window_id}|#{pane_id}|#{session_name}";
/// The flags of a new session's width and height.
const SIZE: [&str; 2] = ["-x", "-y"];
/// The beginning of tmux's error for a session's name that is in use.
const DUPLICATE: &str = "duplicate session: ";

/// Returns the user's home directory, if it is usable as a working directory.
fn home() -> Option<String> {
    let home = std::env::home_dir().filter(|home| home.is_absolute())?;
    home.into_os_string().into_string().ok()
}

impl Server {
    /// Creates a session. If no tmux server runs, one is started for the caller.
    pub fn create_session<'a>(&'a self, request: &'a NewSessionRequest) -> BoxFuture<'a, Result<CreatedAnswer>> {
        Box::pin(self.make_session(request, ExitPolicy::Managed))
    }

    /// Creates a session whose shell ends like one in a session that tmux created: nothing of it
    /// remains, whether muxtap still runs or was killed.
    pub fn create_unmanaged_session<'a>(
        &'a self,
        request: &'a NewSessionRequest,
    ) -> BoxFuture<'a, Result<CreatedAnswer>> {
        Box::pin(self.make_session(request, ExitPolicy::Tmux))
    }

    async fn make_session(&self, request: &NewSessionRequest, policy: ExitPolicy) -> Result<CreatedAnswer> {
        if !request.or_existing {
            return self.make_new_session(request, policy).await;
        }
        let name = request.name.as_deref().ok_or_else(|| Error::invalid("or_existing: a session name is required"))?;
        if let Some(existing) = self.existing_session(name).await? {
            return Ok(existing);
        }
        match self.make_new_session(request, policy).await {
            // Another client created the session first, or tmux has changed the name: before 3.7 to
            // `a_b` for `a.b`. Its error has the name in use.
            Err(error) if error.code == ErrorCode::Conflict => {
                let in_use = error.message.rsplit_once(DUPLICATE).map_or(name, |(_, name)| name).to_owned();
                self.existing_session(&in_use).await?.ok_or(error)
            }
            made => made,
        }
    }

    /// Returns the active pane of the session with exactly this name, as if it had just been
    /// created.
    async fn existing_session(&self, name: &str) -> Result<Option<CreatedAnswer>> {
        self.engine.authorize(Tier::Create)?;
        // Without a server there is no session.
        let Ok(sessions) = self.sessions().await else { return Ok(None) };
        if !sessions.iter().any(|session| session.name == name) {
            return Ok(None);
        }
        let (session, pane) = self.pane_of_session(|rows| rows.iter().find(|row| row.name == name).cloned()).await?;
        let info = self.host.info_of(pane.id());
        let cursor = pane.cursor(pane.lock().ring().end());
        Ok(Some(CreatedAnswer {
            pane: pane.id(),
            window: info.window_id,
            session: session.id.to_string(),
            session_name: session.name,
            cursor,
        }))
    }

    async fn make_new_session(&self, request: &NewSessionRequest, policy: ExitPolicy) -> Result<CreatedAnswer> {
        let command = async {
            let cwd = request.spawn.cwd.as_ref().or(request.spawn.caller_cwd.as_ref()).map(PathBuf::from);
            let cwd = cwd.or_else(|| home().map(PathBuf::from));
            let start = StartServer { env: request.spawn.caller_env.clone(), cwd };
            // For a server that is started, the creation of its first session reports this.
            // On another host a further attempt to find one costs a connection.
            let state = self.host.server().state();
            let is_absent = matches!(&state, LinkState::Down { error, .. } if muxtap_tmux::is_absent(error));
            let is_known_absent = is_absent && !self.host.server().spec().is_local();
            if !is_known_absent && self.host.server().connected().await.is_ok() {
                self.keeps_sessions().await?;
            }
            // `-E`: the session's environment is the server's, not this daemon's.
            let mut command = Command::new("new-session").flag("-d").flag("-E").flag("-P").opt("-F", MADE);
            if let Some(name) = &request.name {
                command = command.opt("-s", literal(name));
            }
            if let Some(name) = &request.window_name {
                command = command.opt("-n", literal(name));
            }
            let size = [request.width, request.height];
            command = with_size(command, size);
            let is_local = self.host.server().spec().is_local();
            if let Some(caller) = request.spawn.caller_env.as_ref().filter(|_| is_local) {
                let updated = self.updated_variables().await;
                for (name, value) in caller.iter().filter(|(name, _)| updated.has(name)) {
                    command = command.opt("-e", format!("{name}={value}"));
                }
            }
            Ok(Creation { command, link: self.host.server().clone(), size, start: Some(start) })
        };
        let name = request.name.as_deref().unwrap_or_default();
        self.make_audited(Operation::NewSession, name, &request.spawn, policy, command).await
    }

    /// Rejects creation of a session on a server that would destroy the session at once: with
    /// `destroy-unattached`, a session without a client ends when any client leaves
    /// (`server_check_unattached`), including the client that created it.
    async fn keeps_sessions(&self) -> Result<()> {
        let question = Command::new("show-options").flag("-g").flag("-v").arg("destroy-unattached");
        keeps_sessions(&self.printed(question).await?)
    }

    /// Returns the variables that the server copies from a client into a new session.
    pub(super) async fn updated_variables(&self) -> Updated {
        let question = Command::new("show-options").flag("-g").flag("-v").arg("update-environment");
        if !matches!(self.host.server().state(), LinkState::Connected(_)) {
            return Updated::default();
        }
        self.printed(question).await.map_or_else(|_| Updated::default(), |printed| Updated::read(&printed))
    }

    /// Creates a window.
    pub fn create_window<'a>(&'a self, request: &'a NewWindowRequest) -> BoxFuture<'a, Result<CreatedAnswer>> {
        Box::pin(self.create_window_here(request))
    }

    async fn create_window_here(&self, request: &NewWindowRequest) -> Result<CreatedAnswer> {
        let command = async {
            let session = self.session(&request.session).await?;
            let mut command = Command::new("new-window")
                .flag("-P")
                .opt("-F", MADE)
                .opt("-t", window_place(session.id, request.index));
            if !request.select {
                command = command.flag("-d");
            }
            if let Some(name) = &request.name {
                command = command.opt("-n", literal(name));
            }
            Ok(Creation { command, link: self.host.server().clone(), size: [None; 2], start: None })
        };
        self.make_audited(Operation::NewWindow, &request.session, &request.spawn, ExitPolicy::Managed, command).await
    }

    /// Splits a pane.
    pub fn create_split<'a>(&'a self, request: &'a SplitRequest) -> BoxFuture<'a, Result<CreatedAnswer>> {
        Box::pin(self.create_split_here(request))
    }

    async fn create_split_here(&self, request: &SplitRequest) -> Result<CreatedAnswer> {
        let command = async {
            let pane = self.resolve_pane(&request.pane).await?;
            let mut command = Command::new("split-window").flag("-P").opt("-F", MADE).opt("-t", pane.id().to_string());
            if !request.select {
                command = command.flag("-d");
            }
            command = command.flag(if request.horizontal { "-h" } else { "-v" });
            for (wanted, flag) in [(request.before, "-b"), (request.full, "-f")] {
                command = if wanted { command.flag(flag) } else { command };
            }
            if let Some(size) = &request.size {
                let number = size.strip_suffix('%').unwrap_or(size);
                if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(Error::invalid(format!("size: expected cells (10) or a share (30%), got {size:?}")));
                }
                command = command.opt("-l", size);
            }
            Ok(Creation { command, link: self.host.server_of(&pane), size: [None; 2], start: None })
        };
        self.make_audited(Operation::SplitWindow, &request.pane, &request.spawn, ExitPolicy::Managed, command).await
    }

    /// Runs `command` after the request was checked, and records the outcome in the audit log.
    async fn make_audited(
        &self,
        operation: Operation,
        target: &str,
        spawn: &SpawnRequest,
        policy: ExitPolicy,
        command: impl Future<Output = Result<Creation>>,
    ) -> Result<CreatedAnswer> {
        let audit = self.engine.audit(operation, &self.host, target)?;
        let mut spawn = spawn.clone();
        if self.host.server().spec().is_local() {
            spawn.cwd = spawn.cwd.or(spawn.caller_cwd.take());
            // Without a directory tmux uses that of its client: of a daemon, `/`.
            if operation == Operation::NewSession && spawn.cwd.is_none() {
                spawn.cwd = home();
            }
        }
        let made = async {
            check_spawn(&spawn)?;
            let shell = self.shell_start(&spawn).await?;
            self.make(command.await?, &spawn, shell, policy).await
        }
        .await;
        if let Ok(made) = &made {
            audit.resolved(made.pane);
        }
        audit.finish(made)
    }

    /// Runs the steps of a creation. They run to the end in a task, unless the engine stops: a
    /// caller that leaves halfway must not leave a placeholder behind.
    async fn make(
        &self,
        creation: Creation,
        spawn: &SpawnRequest,
        shell: Option<ShellStart>,
        policy: ExitPolicy,
    ) -> Result<CreatedAnswer> {
        let (server, spawn) = (self.clone(), spawn.clone());
        let task = self.engine.shared.tasks.spawn(async move {
            tokio::select! {
                made = server.make_steps(creation, &spawn, shell.as_ref(), policy) => made,
                // How far the creation came is unknown.
                () = server.engine.stopping() => {
                    Err(Error::unavailable("muxtap is stopping").with_details(serde_json::json!({ "sent": true })))
                }
            }
        });
        task.await.unwrap_or_else(|_| Err(Error::internal("the creation failed halfway")))
    }

    async fn make_steps(
        &self,
        Creation { command, link, size, start }: Creation,
        spawn: &SpawnRequest,
        shell: Option<&ShellStart>,
        policy: ExitPolicy,
    ) -> Result<CreatedAnswer> {
        let host = &self.host;
        let is_placeholder = spawn.command.is_some() || shell.is_some();
        let is_session = command.name() == "new-session";
        let command = |default: &[u8]| {
            let command = match &spawn.cwd {
                Some(_) => command,
                None if is_session && default.is_empty() => command,
                None if is_session => command.opt("-c", literal(&String::from_utf8_lossy(default))),
                None => command.opt("-c", "#{session_path}"),
            };
            let command = with_place(command, spawn);
            if is_placeholder { command.end_of_flags().arg(PLACEHOLDER) } else { command }
        };
        let answer = link.make(start, command).await?;
        let identity = match link.state() {
            LinkState::Connected(identity) => Some(identity),
            _ => None,
        };
        let made_by = identity.as_ref().map(ServerIdentity::epoch);
        let made = answer.map_err(|message| tmux_error(&message))?;
        let mut made = made.trim_end_matches('\n').splitn(4, '|');
        let (Some(session), Some(window), Some(pane), Some(session_name)) =
            (made.next(), made.next(), made.next(), made.next())
        else {
            return Err(Error::new(ErrorCode::InconsistentState, "tmux did not report what it created"));
        };
        let id: PaneId = pane.parse().map_err(|_| Error::new(ErrorCode::InconsistentState, "tmux reported no pane"))?;
        if size != [None; 2] && identity.is_some_and(|identity| identity.version.sizes_sessions_by_client()) {
            // The pane's command has not begun. If tmux rejects the resize, the session exists all
            // the same.
            let _ = link.write(None, Request::Plain(resize(window, size))).await?;
        }
        let cursor = match self.follow_and_start(id, spawn, shell, policy).await {
            Ok(cursor) => cursor,
            Err(PartialCreate::NotStarted(error)) if is_session && error.code == ErrorCode::NotFound => {
                let why = format!(
                    "session {session_name} was created and has ended: {}; did a hook end it, or set \
                     `destroy-unattached`?",
                    error.message
                );
                return Err(Error::new(ErrorCode::InconsistentState, why));
            }
            Err(partial) => return Err(partial.error(host, made_by, id, window, is_placeholder)),
        };
        Ok(CreatedAnswer {
            pane: id,
            window: window.to_owned(),
            session: session.to_owned(),
            session_name: session_name.to_owned(),
            cursor,
        })
    }

    /// Follows a new pane and starts its command. Returns the cursor of its first byte.
    async fn follow_and_start(
        &self,
        id: PaneId,
        spawn: &SpawnRequest,
        shell: Option<&ShellStart>,
        policy: ExitPolicy,
    ) -> Result<Cursor, PartialCreate> {
        let host = &self.host;
        host.server().cover(id).await.map_err(PartialCreate::NotStarted)?;
        let gone = || PartialCreate::NotStarted(Error::not_found(format!("pane {id} ended at once")));
        let pane = host.pane(id).ok_or_else(gone)?;
        let start = pane.lock().ring().start();
        pane.mark_started(start);
        let changed = shell.map(|shell| shell.changes(spawn));
        let spawn = changed.as_ref().unwrap_or(spawn);
        if let Some(nonce) = spawn.env.get(NONCE_VARIABLE) {
            // The caller that starts the pane's program decides what is trusted there.
            let _ = pane.trust_shell(nonce.clone());
        }
        let cursor = pane.cursor(start);
        if policy == ExitPolicy::Managed {
            self.start_command(&pane, spawn).await?;
        }
        if let Some(shell) = shell.filter(|_| spawn.command.is_none()) {
            self.start_shell(&pane, spawn, shell).await?;
        }
        Ok(cursor)
    }

    /// Replaces the placeholder by tmux's default command or shell, with the shell integration.
    async fn start_shell(
        &self,
        pane: &Arc<PaneState>,
        spawn: &SpawnRequest,
        shell: &ShellStart,
    ) -> Result<(), PartialCreate> {
        let host = &self.host;
        let option =
            |format: &str| Command::new("display-message").flag("-p").opt("-t", pane.id().to_string()).format(format);
        let question = || Request::Framed(vec![option("#{default-shell}"), option("#{default-command}")]);
        let answer = host.server_of(pane).read(Some(pane.id()), question).await.map_err(PartialCreate::NotStarted)?;
        let printed = answer.map_err(|message| PartialCreate::NotStarted(tmux_error(&message)))?;
        let printed: Vec<_> = printed.iter().map(|body| String::from_utf8_lossy(body)).collect();
        let [default_shell, default_command] = printed.as_slice() else {
            let error = Error::new(ErrorCode::InconsistentState, "tmux did not report `default-shell`");
            return Err(PartialCreate::NotStarted(error));
        };
        let words =
            shell.files.of_default(default_shell.trim_end_matches('\n'), default_command.trim_end_matches('\n'));
        let respawn = Command::new("respawn-pane").flag("-k").opt("-t", pane.id().to_string());
        let respawn = with_program(with_place(respawn, spawn), &words);
        let begun = host.server_of(pane).begin(pane.id(), vec![respawn]).await;
        begun.map_err(PartialCreate::classify)?.map_err(|message| PartialCreate::NotStarted(tmux_error(&message)))?;
        // Lets muxtap watch the new process from now on. The shell runs whether or not this succeeds.
        let _ = host.server().fresh().await;
        Ok(())
    }

    /// Replaces the placeholder by the command.
    async fn start_command(&self, pane: &Arc<PaneState>, spawn: &SpawnRequest) -> Result<(), PartialCreate> {
        let host = &self.host;
        let order = async |line| {
            let answer = host.server_of(pane).write(Some(pane.id()), Request::Plain(line)).await;
            answer.map_err(PartialCreate::classify)?.map_err(|message| PartialCreate::NotStarted(tmux_error(&message)))
        };
        let (on_exit, before) = if spawn.keep {
            (OnExit::Keep, None)
        } else {
            // A hook may have set options.
            let before = PaneOptions::read(&host.server_of(pane), pane.id()).await;
            (OnExit::Restore, Some(before.map_err(PartialCreate::NotStarted)?))
        };
        let shell_nonce = spawn.env.get(NONCE_VARIABLE).cloned();
        let mut managed = ManagedPane { on_exit, before, wrapper: None, launch: Launch::of(spawn), shell_nonce };
        let Some(launch) = &managed.launch else {
            pane.set_managed(managed);
            return order(CommandLine::of(managed::keep_on_exit(pane.id()))).await.map(drop);
        };
        let nonce = nonce::hex64();
        let respawn = Command::new("respawn-pane").flag("-k").opt("-t", pane.id().to_string());
        let respawn = with_program(with_place(respawn, spawn), &launch.wrapped(&nonce));
        let commands = managed::keep_on_exit(pane.id()).into_iter().chain([respawn]).collect();
        pane.register_nonce(&nonce);
        managed.wrapper = Some(ExitWrapper::of(nonce));
        pane.set_managed(managed);
        let begun = host.server_of(pane).begin(pane.id(), commands).await;
        begun.map_err(PartialCreate::classify)?.map_err(|message| PartialCreate::NotStarted(tmux_error(&message)))?;
        // Lets muxtap watch the new process from now on. The command runs whether or not this
        // succeeds.
        let _ = host.server().fresh().await;
        Ok(())
    }
}

/// Returns whether something may have been created or done despite this error.
pub fn perhaps_made(error: &Error) -> bool {
    let is_sent = error.details.as_ref().and_then(|details| details.get("sent")?.as_bool()) == Some(true);
    // A pane that muxtap tries to close again may remain if tmux does not respond.
    made_pane(error).is_some()
        || is_sent
        || matches!(error.code, ErrorCode::InternalError | ErrorCode::InconsistentState)
}

/// Returns the pane that was created despite this error, if it is known.
pub fn made_pane(error: &Error) -> Option<String> {
    error.details.as_ref()?.get("pane")?.as_str().map(str::to_owned)
}

/// Returns the target of a new window: an index in a session, or the first free one.
fn window_place(session: SessionId, index: Option<u32>) -> String {
    format!("{session}:{}", index.map(|index| index.to_string()).unwrap_or_default())
}

/// A command that creates a pane.
struct Creation {
    command: Command,
    /// Where the command is sent.
    link: ServerLink,
    /// The columns and rows of a new session, if given.
    size: [Option<u16>; 2],
    /// How to start a server for the pane if none runs.
    start: Option<StartServer>,
}

/// Adds a size to a command.
fn with_size(command: Command, size: [Option<u16>; 2]) -> Command {
    size.iter().zip(SIZE).fold(command, |command, (size, flag)| match size {
        Some(size) => command.opt(flag, size.to_string()),
        None => command,
    })
}

/// Returns the commands that resize a window and leave its size to tmux again, like `new-session`
/// with a size (N64). `resize-window` alone fixes the size (N20).
fn resize(window: &str, size: [Option<u16>; 2]) -> CommandLine {
    let resize = with_size(Command::new("resize-window").opt("-t", window), size);
    let set = Command::new("set-option").flag("-w").flag("-u").opt("-t", window).arg("window-size");
    CommandLine::of([resize, set])
}

/// Why a created pane is not as requested.
enum PartialCreate {
    /// The command was not started and will not be.
    NotStarted(Error),
    /// Whether the command was started is unknown.
    Unknown(Error),
}

impl PartialCreate {
    /// Classifies the error of a change to which tmux did not reply.
    fn classify(error: Error) -> Self {
        let sent = error.details.as_ref().and_then(|details| details.get("sent")).and_then(serde_json::Value::as_bool);
        if sent == Some(true) { Self::Unknown(error) } else { Self::NotStarted(error) }
    }

    /// Returns the error for the caller. Closes a placeholder whose command will not be started.
    fn error(self, host: &Arc<Host>, made_by: Option<u64>, pane: PaneId, window: &str, is_placeholder: bool) -> Error {
        if is_placeholder && let (Some(made_by), Self::NotStarted(_)) = (made_by, &self) {
            // In another server these ids mean other panes.
            managed::close_ended(&host.server().only(made_by), pane);
        }
        self.of_pane(pane, window, is_placeholder)
    }

    /// Returns the error, extended by the fact that the pane was created.
    fn of_pane(self, pane: PaneId, window: &str, is_placeholder: bool) -> Error {
        let (mut error, state) = match self {
            Self::NotStarted(error) if is_placeholder => {
                (error, "its command was not started, and the pane is closed again")
            }
            Self::NotStarted(error) => (error, "but a later step failed"),
            Self::Unknown(error) if is_placeholder => (error, "whether its command was started is not known"),
            Self::Unknown(error) => (error, "whether it stays after its end, as requested, is not known"),
        };
        error.message = format!("pane {pane} was created; {state}: {}", error.message);
        // The last step's `sent` does not apply to the whole creation.
        error.with_details(serde_json::json!({ "pane": pane.to_string(), "window": window }))
    }
}

/// How a new pane's end is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExitPolicy {
    /// By muxtap: no byte is lost, and the pane is kept as requested, or else as the user's options
    /// say.
    Managed,
    /// By tmux, as if muxtap had not created the pane.
    Tmux,
}

/// Adds the directory and variables of a request to a command.
pub(crate) fn with_place(command: Command, spawn: &SpawnRequest) -> Command {
    let command = match &spawn.cwd {
        Some(cwd) => command.opt("-c", literal(cwd)),
        None => command,
    };
    spawn.env.iter().fold(command, |command, (name, value)| command.opt("-e", format!("{name}={value}")))
}

/// Adds a pane's program to a command. As in tmux, one word is a shell command line, several are a
/// program and its arguments.
pub(crate) fn with_program(command: Command, words: &[String]) -> Command {
    words.iter().fold(command.end_of_flags(), Command::arg)
}

pub(crate) fn check_spawn(spawn: &SpawnRequest) -> Result<()> {
    if spawn.command.as_ref().is_some_and(|command| command.iter().all(|word| word.trim().is_empty())) {
        return Err(Error::invalid("command: it is empty; leave it out for a shell"));
    }
    if let Some(name) = spawn.env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return Err(Error::invalid(format!("env: {name:?} is not a valid variable name")));
    }
    if let Some(cwd) = &spawn.cwd
        && !cwd.starts_with('/')
    {
        return Err(Error::invalid(format!("cwd: {cwd:?} is not an absolute path")));
    }
    Ok(())
}

/// Escapes a value that tmux expands as a format.
pub fn literal(text: &str) -> String {
    text.replace('#', "##")
}

/// Returns the error for a message of tmux.
pub(crate) fn tmux_error(message: &str) -> Error {
    let code = if message.contains("can't find") {
        ErrorCode::NotFound
    } else if message.contains("duplicate")
        || message.contains("still active")
        || message.contains("no space")
        || message.contains("in use")
    {
        ErrorCode::Conflict
    } else {
        ErrorCode::InvalidArgument
    };
    Error::new(code, format!("tmux: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use muxtap_tmux::Lost;

    #[test]
    fn a_later_step_that_fails_does_not_deny_the_pane_that_was_made() {
        for (lost, state) in [(Lost::Unsent, "was not started"), (Lost::Unanswered, "is not known")] {
            let error = PartialCreate::classify(lost.of_change("this")).of_pane(PaneId(3), "@2", true);
            assert_eq!(error.code, ErrorCode::TmuxUnavailable);
            assert_eq!(error.details, Some(serde_json::json!({ "pane": "%3", "window": "@2" })));
            assert!(perhaps_made(&error) && made_pane(&error).is_some_and(|pane| pane == "%3"));
            let before = lost.of_change("this");
            assert_eq!((perhaps_made(&before), made_pane(&before)), (lost != Lost::Unsent, None));
            let (known, _) = error.message.split_once(':').unwrap();
            assert!(known.starts_with("pane %3 was created; ") && known.contains(state), "{error:?}");
        }
    }
}
