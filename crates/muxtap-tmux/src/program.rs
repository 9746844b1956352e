//! The tmux program: where it is, how it is called, and calls that end by themselves.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use muxtap_api::{Error, Result, Unreachable};
use muxtap_base::{descriptors, metrics};
use muxtap_core::protocol::{names, version::Version};
use tokio::process::Command;

use super::{
    flood::Floods,
    link::UNANSWERED,
    orphans::ClientName,
    own_program::{self, FoundProgram, OwnProgram, ProgramPath},
    place,
    relay::{Relay, RelayError},
    socket::{self, SocketFile, SocketPath},
    surroundings::{self, Updated},
    transport::{Address, FIRST_ANSWER_LIMIT, Transport},
    values::Reads,
};

/// Time limit of a spawned tmux, unless configured otherwise (F32: one hung for minutes).
pub const SPAWN_LIMIT: Duration = Duration::from_secs(10);

/// The maximum number of links that a socket's path may go through.
const LINKS: usize = 8;
/// What a tmux prints that a server of another version does not understand.
const MISMATCHES: [&str; 3] = ["server exited unexpectedly", "protocol version mismatch", "lost server"];
/// Prints the version and the file of a tmux program, and the programs of this user's tmux servers.
const SERVERS: &str = "echo \"version $(\"$1\" -V)\"; echo \"runs $(readlink -f \"$(command -v \"$1\")\")\"; \
                       for p in /proc/[0-9]*; do [ -O $p ] || continue; \
                       read -r c 2>/dev/null <$p/comm; case $c in 'tmux: server'*) echo \"server $(readlink $p/exe)\";; \
                       esac; done | sort -u";
/// Time that a server has to report its version after a client could not attach.
const VERSION_LIMIT: Duration = Duration::from_secs(1);

/// Which control clients follow a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CoverageMode {
    /// A client in each session in use, and in no other. A server on another host has a client in
    /// each session.
    #[default]
    Used,
    /// A single client in a session of muxtap's own, into which every window is linked.
    Hub,
    /// A client in each session, all the time; nothing is created.
    Sessions,
}

/// The tmux program and what precedes it on the command line.
#[derive(Clone, Debug)]
pub struct Program {
    /// The name or path of tmux.
    pub tmux: PathBuf,
    /// The transport to another host; `None`: tmux runs on this machine.
    pub transport: Option<Arc<Transport>>,
    /// The configuration file of a server that it starts (`-f`); absent: tmux's default.
    pub config: Option<PathBuf>,
    /// Time limit of a call.
    pub limit: Duration,
    /// Whether a server of this user and machine is reached with its own program, if that can be
    /// run.
    pub own: bool,
    /// The name of control clients on other hosts, by which the next daemon finds clients that this
    /// one leaves behind.
    pub name: Option<ClientName>,
    /// Servers of other users that muxtap may speak to.
    pub foreign: Arc<[ForeignServer]>,
}

/// A tmux server of another user, which the configuration names (`foreign_servers`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignServer {
    /// Its user.
    pub uid: u32,
    /// The absolute path of its socket.
    pub socket: PathBuf,
}

impl std::str::FromStr for ForeignServer {
    type Err = &'static str;

    /// Reads `UID:PATH`.
    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let (uid, socket) = text.split_once(':').ok_or("expected UID:PATH, such as 1001:/tmp/tmux-1001/default")?;
        let uid = uid.parse().map_err(|_| "the user must be a number: see `id -u USER`")?;
        let socket = PathBuf::from(socket);
        if socket.is_absolute() { Ok(Self { uid, socket }) } else { Err("the socket's path must be absolute") }
    }
}

impl Default for Program {
    /// Returns the local `tmux` with default settings.
    fn default() -> Self {
        Self {
            tmux: "tmux".into(),
            transport: None,
            config: None,
            limit: SPAWN_LIMIT,
            own: true,
            name: None,
            foreign: Arc::default(),
        }
    }
}

/// Returns whether two paths name one server's socket, however they are written.
pub fn same_socket(one: &Path, other: &Path) -> bool {
    one == other
        || match (std::fs::metadata(one), std::fs::metadata(other)) {
            (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
            // A socket that does not exist, or not any more: its paths may still lead to one place.
            (Err(_), Err(_)) => without_links(one) == without_links(other),
            _ => false,
        }
}

/// Returns a path without the links on it, whether its end exists or not.
fn without_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let Ok(target) = std::fs::read_link(&path) else { break };
        path = path.parent().map_or_else(|| target.clone(), |folder| folder.join(&target));
    }
    let folder = path.parent().and_then(|folder| std::fs::canonicalize(folder).ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path,
    }
}

/// Returns whether a process runs as this user. Its number may belong to another process by now.
fn is_process_of_ours(pid: u32) -> bool {
    let found = std::fs::metadata(Path::new("/proc").join(pid.to_string()));
    found.is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw())
}

/// Spells the commands of a tmux command line ([`names`]): the first word that is not a flag, and
/// each one behind a `;`.
fn spelled_words(args: impl IntoIterator<Item = impl Into<OsString>>) -> impl Iterator<Item = OsString> {
    let mut is_name = true;
    args.into_iter().map(Into::into).map(move |word: OsString| {
        if !is_name {
            is_name = word == ";";
            return word;
        }
        let Some(text) = word.to_str().filter(|text| !text.starts_with('-')) else { return word };
        is_name = false;
        names::spelled(text).into()
    })
}

/// A tmux server to follow.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// The tmux program and what precedes it on the command line.
    pub program: Program,
    /// Its absolute socket path; of a server on another host its address ([`Address`]).
    pub socket: PathBuf,
    /// Which control clients follow it.
    pub coverage: CoverageMode,
    /// The treatment of its panes that flood.
    pub floods: Floods,
    /// The socket's file, while a server is followed.
    pub file: SocketFile,
    /// The server's own program, while one runs.
    pub own: OwnProgram,
}

/// A control client before its start.
pub struct Client {
    pub(super) command: Command,
    /// The relay through which the client reaches the server; `None` if the client connects by
    /// itself.
    pub(super) relay: Option<Relay>,
    /// The client's program, until it runs.
    pub(super) program: Option<ProgramPath>,
}

/// A tmux that is about to be run.
pub(super) struct Call {
    pub(super) command: Command,
    /// The relay through which the tmux reaches a local server; `None` if it starts one, or the
    /// server is on another host.
    relay: Option<Relay>,
    /// The socket at which the tmux starts a server.
    _socket: Option<SocketPath>,
    /// The tmux's program, until it has ended.
    _program: Option<ProgramPath>,
}

/// The output of a call that ended.
pub struct CallOutput {
    /// Whether it exited with status 0.
    pub ok: bool,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error, lossy, trimmed.
    pub stderr: String,
}

impl ServerSpec {
    /// Returns whether panes of this server are held while they flood.
    pub(super) fn holds_floods(&self, version: Version) -> bool {
        self.floods == Floods::Hold && version.dies_of_respawns()
    }

    /// Returns whether the server's processes and terminals are this machine's.
    pub fn is_local(&self) -> bool {
        self.program.transport.is_none()
    }

    /// Returns whether the server is left without a client while nothing on it is in use. On
    /// another host each query would be a connection.
    pub(super) fn rests(&self) -> bool {
        self.coverage == CoverageMode::Used && self.is_local()
    }

    /// Returns whether the server belongs to the user of this process: not named in
    /// `foreign_servers`.
    pub fn is_of_this_user(&self) -> bool {
        self.owner() == rustix::process::geteuid().as_raw()
    }

    /// Returns the facts that the server has to report of its panes.
    pub(super) fn reads(&self) -> Reads {
        if cfg!(target_os = "linux") && self.is_local() { Reads::TmuxAlone } else { Reads::All }
    }

    /// Returns the path on which clients reach the server. It differs from the socket's name while
    /// a server is followed.
    fn socket_path(&self) -> SocketPath {
        self.file.path(&self.socket)
    }

    /// Returns the user that owns this server: the one of this process, unless the configuration
    /// names another.
    pub(super) fn owner(&self) -> u32 {
        let foreign = self.program.foreign.iter().find(|foreign| foreign.socket == self.socket);
        foreign.map_or_else(|| rustix::process::geteuid().as_raw(), |foreign| foreign.uid)
    }

    /// Refuses a server of another user before anything is sent to it. A server that does not run,
    /// or whose user the system does not report, passes: the relay checks again, at the connection
    /// itself.
    pub(super) fn check_owner(&self) -> Result<()> {
        match socket::owner_of(self.socket_path().as_ref()) {
            Ok(Some(uid)) if self.is_local() && uid != self.owner() => Err(self.stranger(uid)),
            _ => Ok(()),
        }
    }

    /// Returns the error for a server of another user.
    fn stranger(&self, uid: u32) -> Error {
        let socket = self.socket.display();
        let message = format!(
            "the tmux server on {socket} belongs to user {uid}, and muxtap runs as user {}; to trust it, add \
             foreign_servers = [\"{uid}:{socket}\"] to config.toml",
            rustix::process::geteuid().as_raw()
        );
        Error::unavailable(message).with_details(serde_json::json!({ "owner": uid }))
    }

    /// Returns the tmux that queries a running server: `[PREFIX…] tmux -u [-f CONFIG] -S SOCKET
    /// ARGS…`, with its standard streams not yet set. On this machine it reaches the server over a
    /// relay and starts none.
    ///
    /// `-u`: without UTF-8 replies turn tabs and non-ASCII into `_` (F17).
    fn question(&self, args: impl IntoIterator<Item = impl Into<OsString>>) -> io::Result<Call> {
        let Client { command, relay, program } = self.client_named(None, args)?;
        Ok(Call { command, relay, _socket: None, _program: program })
    }

    /// Returns the tmux that starts a server if none runs. Error: another user could put a server
    /// of theirs in its place.
    pub(super) fn starting(&self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Result<Call> {
        if self.is_local() {
            place::check(&self.socket)?;
        }
        let (socket, program) = (self.socket_path(), self.own.get());
        let command = self.command_at(socket.as_ref(), program.as_ref(), args);
        Ok(Call { command, relay: None, _socket: Some(socket), _program: program })
    }

    /// Returns the command of a control client. A local server's client arrives over a relay and
    /// starts no server.
    pub(super) fn client(&self, args: impl IntoIterator<Item = impl Into<OsString>>) -> io::Result<Client> {
        self.client_named(self.program.name.as_ref(), args)
    }

    /// Returns a client that is attached to no session and runs one command on a running server.
    pub(super) fn plain_client(&self, args: impl IntoIterator<Item = impl Into<OsString>>) -> io::Result<Client> {
        self.client_named(None, args)
    }

    fn client_named(
        &self,
        name: Option<&ClientName>,
        args: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> io::Result<Client> {
        if let Some(transport) = &self.program.transport {
            let command = transport.client(name, self.words_elsewhere(args));
            return Ok(Client { command, relay: None, program: None });
        }
        let program = self.own.get();
        let relay = Relay::listen(self.socket_path(), self.owner())?;
        // `-N`: a relay that has gone must not lead to a new server in its place (N21).
        let args = std::iter::once("-N".into()).chain(spelled_words(args));
        Ok(Client { command: self.command_at(relay.socket(), program.as_ref(), args), relay: Some(relay), program })
    }

    /// Returns the arguments of tmux on another host.
    fn words_elsewhere(&self, args: impl IntoIterator<Item = impl Into<OsString>>) -> impl Iterator<Item = OsString> {
        let flags = Address::parse(&self.socket).map(Address::flags).unwrap_or_default();
        std::iter::once("-u".into()).chain(flags).chain(spelled_words(args))
    }

    fn command_at(
        &self,
        socket: &Path,
        program: Option<&ProgramPath>,
        args: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Command {
        if let Some(transport) = &self.program.transport {
            return transport.tmux(self.words_elsewhere(args));
        }
        let mut command = if let Some(program) = program {
            let mut command = Command::new(&program.path);
            // A process list shows no number of a descriptor.
            command.arg0("tmux");
            command
        } else {
            Command::new(&self.program.tmux)
        };
        command.arg("-u");
        if let Some(config) = &self.program.config {
            command.arg("-f").arg(config);
        }
        command.arg("-S").arg(socket).args(spelled_words(args));
        surroundings::clean(&mut command);
        command.kill_on_drop(true);
        command
    }

    /// Runs a tmux that queries a running server, and waits for its end, at most `Program::limit`.
    pub async fn call(&self, args: &[&str]) -> Result<CallOutput> {
        self.ask(self.program.limit, args, |_| ()).await
    }

    /// Sends a query to which every server replies at once, for at most `limit`.
    pub async fn call_within(&self, limit: Duration, args: &[&str]) -> Result<CallOutput> {
        // A connection may have to be made first.
        let limit = if self.is_local() { limit.min(self.program.limit) } else { FIRST_ANSWER_LIMIT };
        self.ask(limit, args, |_| ()).await
    }

    /// Queries a running server. If none runs the result is tmux's own message, and no tmux is run.
    /// `prepare` changes the command.
    async fn ask(&self, limit: Duration, args: &[&str], prepare: impl FnOnce(&mut Command)) -> Result<CallOutput> {
        if self.is_local() {
            use rustix::io::Errno;
            let failed = |stderr: String| Ok(CallOutput { ok: false, stdout: Vec::new(), stderr });
            let socket = self.socket.display();
            match socket::owner_of(self.socket_path().as_ref()) {
                Ok(Some(uid)) if uid != self.owner() => return Err(self.stranger(uid)),
                Err(Errno::CONNREFUSED) => return failed(format!("no server running on {socket}")),
                // Other errors may pass: a stopped server accepts no connection for a check.
                Err(error @ (Errno::NOENT | Errno::NOTDIR | Errno::ACCESS)) => {
                    return failed(format!("error connecting to {socket} ({})", io::Error::from(error)));
                }
                _ => {}
            }
        }
        let mut call = self.question(args).map_err(|error| Self::cannot_relay(&error))?;
        prepare(&mut call.command);
        let limited = Program { limit, ..self.program.clone() };
        self.run_by(&limited, call, args).await
    }

    /// Returns the error for a relay that could not be created.
    pub(super) fn cannot_relay(error: &io::Error) -> Error {
        if descriptors::are_out(error) {
            return descriptors::error();
        }
        Error::unavailable(format!("cannot create a socket for a tmux client to connect to: {error}"))
    }

    /// Sends the first query of an attempt. On another host, if tmux is not found at once, it is
    /// searched for as a login shell would.
    pub(super) async fn ask_first(&self, limit: Duration, question: &[&str]) -> Result<CallOutput> {
        let printed = self.call_within(limit, question).await?;
        let Some(transport) = &self.program.transport else { return Ok(printed) };
        if printed.ok || transport.reason(&printed.stderr) != Some(Unreachable::NoTmux) {
            return Ok(printed);
        }
        let search = self.program.run(transport.search(), &["-V"], || "is there a shell?".into()).await?;
        if search.ok && transport.learn(&search.stdout) { self.call_within(limit, question).await } else { Ok(printed) }
    }

    /// Calls tmux as another process would, in this directory; a server is started if none runs.
    ///
    /// `environment`: the other process's. A server that is started gets all of it. A running one
    /// gets the variables that tmux needs and those that it takes into new sessions.
    pub async fn call_as(
        &self,
        directory: &Path,
        environment: Option<&BTreeMap<OsString, OsString>>,
        updated: &Updated,
        args: &[&str],
    ) -> Result<CallOutput> {
        self.check_owner()?;
        if !self.is_local() || socket::listens(&self.socket) {
            let prepare = |command: &mut Command| {
                command.current_dir(directory);
                let passed =
                    |name: &OsStr| surroundings::is_needed(name) || name.to_str().is_some_and(|name| updated.has(name));
                if let Some(environment) = environment.filter(|_| self.is_local()) {
                    let passed = environment.iter().filter(|(name, _)| passed(name));
                    surroundings::set(command, passed.map(|(name, value)| (name.clone(), value.clone())));
                }
            };
            return self.ask(self.program.limit, args, prepare).await;
        }
        let mut call = self.starting(args)?;
        call.command.current_dir(directory);
        if let Some(environment) = environment {
            surroundings::set(&mut call.command, environment.clone());
        }
        self.run(call, args).await
    }

    /// Returns whether the tmux program can be found by `path` (`PATH`). On another host it is
    /// assumed to exist.
    pub fn is_installed(&self, path: Option<&OsStr>) -> bool {
        let runs = |file: &Path| {
            std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        let tmux = &self.program.tmux;
        if !self.is_local() {
            return true;
        }
        if tmux.components().count() > 1 {
            return runs(tmux);
        }
        path.is_some_and(|path| std::env::split_paths(path).any(|dir| runs(&dir.join(tmux))))
    }

    /// Runs a shell script on the server's other host, and returns what it prints.
    ///
    /// Error: `TMUX_UNAVAILABLE` if the host cannot be reached.
    pub async fn script_there(&self, script: &str, args: &[&str]) -> Result<String> {
        let Some(transport) = &self.program.transport else {
            return Err(Error::internal("this server is not on another host"));
        };
        let words = ["sh", "-c", script, "muxtap"].into_iter().chain(args.iter().copied());
        let command = transport.announced(words.map(OsString::from));
        let ran = self.program.run(command, &["(a script)"], || "does the host respond?".into()).await?;
        match transport.reason(&ran.stderr).filter(|_| !ran.ok) {
            Some(reason) => Err(transport.error(reason, &ran.stderr)),
            None => Ok(String::from_utf8_lossy(&ran.stdout).into_owned()),
        }
    }

    pub(super) async fn run(&self, call: Call, args: &[&str]) -> Result<CallOutput> {
        self.run_by(&self.program, call, args).await
    }

    async fn run_by(&self, program: &Program, call: Call, args: &[&str]) -> Result<CallOutput> {
        let why = || format!("is the tmux server on {} stopped or overloaded?", self.socket.display());
        let Call { command, relay, _socket, _program } = call;
        let ran = program.run(command, args, why);
        let Some(relay) = relay else { return ran.await };
        let (mut ran, mut relayed) = (std::pin::pin!(ran), std::pin::pin!(relay.run()));
        // The relay first: a client whose relay gave up ends at once.
        let refused = tokio::select! {
            biased;
            relayed = &mut relayed => relayed.err(),
            ran = &mut ran => return ran,
        };
        match refused {
            Some(RelayError::Stranger(uid)) => Err(self.stranger(uid)),
            Some(RelayError::Hostile(why)) => Err(Error::unavailable(format!(
                "muxtap disconnected from the tmux server on {}: {why}; is it tmux?",
                self.socket.display()
            ))),
            Some(refused) if refused.is_for_want_of_descriptors() => Err(refused.into()),
            refused => {
                // The client ends when its connection is closed.
                let ran = ran.await?;
                let Some(why) = refused.filter(|_| !ran.ok) else { return Ok(ran) };
                let stderr = format!("error connecting to {} ({why})", self.socket.display());
                Ok(CallOutput { stderr, ..ran })
            }
        }
    }

    /// Finds the program of the server that listens now, unless that is known. Runs it once, to be
    /// sure that it is tmux.
    pub(super) async fn find_own_program(&self) {
        let socket = self.socket_path();
        let server = socket::server_of(socket.as_ref()).filter(|_| self.is_local() && self.program.own);
        let Some(server) = server else { return self.own.forget() };
        if self.own.is_known(server.pid) {
            return;
        }
        let found = FoundProgram::of(server.pid).filter(|_| server.is_ours() && is_process_of_ours(server.pid));
        // The process that runs the program must still be that server.
        let found = found.filter(|_| socket::server_of(socket.as_ref()).is_some_and(|now| now.pid == server.pid));
        let program = match found {
            Some(found) => {
                let mut command = Command::new(&found.path);
                surroundings::clean(&mut command);
                command.arg0("tmux").arg("-V").kill_on_drop(true);
                let printed = self.program.run(command, &["-V"], || "is it tmux?".into()).await;
                printed.ok().and_then(|printed| found.that_printed(&printed.stdout))
            }
            None => None,
        };
        let speaks = program.as_ref().map_or(&self.program.tmux, |program| &program.path);
        tracing::debug!("server {}: its client program is {}", server.pid, speaks.display());
        self.own.keep(server.pid, program);
    }

    /// Adds to an error that another version of tmux may be its cause: both versions, and the way
    /// out.
    pub(super) async fn explained(&self, error: Error) -> Error {
        if !self.is_local() {
            return self.explained_there(error).await;
        }
        // Another user's program must not be named to this user.
        let is_strangers = error.details.as_ref().is_some_and(|details| details.get("owner").is_some());
        if self.own.get().is_some() || is_strangers {
            return error;
        }
        let Some(server) = socket::server_of(self.socket_path().as_ref()) else { return error };
        let client = self.program.version().await.ok().and_then(|printed| Version::parse(printed.as_bytes()).ok());
        let asked = self.call_within(VERSION_LIMIT, &["display-message", "-p", "#{version}"]).await;
        let served =
            asked.ok().filter(|asked| asked.ok).and_then(|asked| Version::parse(asked.stdout.trim_ascii()).ok());
        let Some(client) = client.filter(|client| served != Some(*client)) else { return error };
        let (program, pid) = (self.program.tmux.display(), server.pid);
        let served =
            served.map_or_else(|| "did not report its version to it".into(), |version| format!("is version {version}"));
        let runs = own_program::file_of(pid).map(|file| format!(" and runs {}", file.display())).unwrap_or_default();
        let mut error = error;
        error.message = format!(
            "{}; {program} is version {client}, the server (process {pid}) {served}{runs}: run `muxtap stop`, \
             then name the server's own program with --tmux or $MUXTAP_TMUX",
            error.message
        );
        error
    }

    /// Adds to an error of a server on another host that it runs another program than the one that
    /// was run there.
    async fn explained_there(&self, error: Error) -> Error {
        let is_of_versions = MISMATCHES.iter().any(|said| error.message.contains(said));
        let Some(transport) = self.program.transport.as_ref().filter(|_| is_of_versions) else { return error };
        let tmux = transport.program();
        let said = self.script_there(SERVERS, &[&tmux.to_string_lossy()]).await.unwrap_or_default();
        let line = |name: &str| said.lines().filter_map(|line| line.strip_prefix(name)).collect::<Vec<_>>().join(", ");
        let (version, run, programs) = (line("version tmux "), line("runs "), line("server "));
        // The other errors have other causes too.
        let is_other = said.lines().filter_map(|line| line.strip_prefix("server ")).any(|server| server != run);
        if !error.message.contains("protocol version mismatch") && (run.is_empty() || !is_other) {
            return error;
        }
        let is = if version.is_empty() { String::new() } else { format!(" is version {version}") };
        let runs = if programs.is_empty() { "another tmux program" } else { &programs };
        let name = transport.name();
        let mut error = error;
        error.message = format!(
            "{}; {} on the host {name}{is}, and the server runs {runs}: set `tmux` in [host.{name}] of config.toml to \
             the server's program, then run `muxtap stop`",
            error.message,
            tmux.display()
        );
        error
    }

    /// Returns the error for a tmux that cannot be started at all.
    pub fn cannot_run(&self, error: &io::Error) -> Error {
        self.program.cannot_run(error)
    }
}

impl Program {
    /// Returns what `tmux -V` prints, such as `tmux 3.3a`. Error: `TMUX_UNAVAILABLE`, also if it is
    /// too old.
    pub async fn version(&self) -> Result<String> {
        let printed = self.print_version().await?;
        let version = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
        match Version::parse(version.as_bytes()) {
            Ok(version) => self.supports(version)?,
            Err(_) if printed.ok => {}
            Err(_) => {
                return Err(Error::unavailable(format!("`{} -V` failed: {}", self.tmux.display(), printed.stderr)));
            }
        }
        Ok(version)
    }

    /// Runs `tmux -V`, which connects to no server.
    pub(super) async fn print_version(&self) -> Result<CallOutput> {
        let command = if let Some(transport) = &self.transport {
            transport.tmux(["-V".into()])
        } else {
            let mut command = Command::new(&self.tmux);
            surroundings::clean(&mut command);
            command.arg("-V").kill_on_drop(true);
            command
        };
        self.run(command, &["-V"], || "is it tmux?".into()).await
    }

    /// Refuses a version that is too old.
    pub fn supports(&self, version: Version) -> Result<()> {
        if version.is_supported() {
            return Ok(());
        }
        if let Some(error) = self.too_old(version) {
            return Err(error);
        }
        Err(Error::unavailable(format!(
            "{} is version {version}; muxtap needs {} or later: install it, or name another one with --tmux or \
             $MUXTAP_TMUX",
            self.tmux.display(),
            Version::MINIMUM
        )))
    }

    /// Returns the error for a tmux on another host that is too old; `None` if it is not, or if it
    /// is this machine's.
    pub(super) fn too_old(&self, version: Version) -> Option<Error> {
        let transport = self.transport.as_ref().filter(|_| !version.is_supported())?;
        Some(transport.error(Unreachable::TooOld, &format!("version {version}")))
    }

    async fn run(&self, mut command: Command, args: &[&str], why: impl Fn() -> String) -> Result<CallOutput> {
        #[cfg(feature = "played")]
        if let Some((transport, played)) = self.transport.as_ref().and_then(|way| Some((way, way.played()?))) {
            let called = tokio::time::timeout(self.limit, played.call(super::played::words(&command))).await;
            return called.map_err(|_| transport.silent(self.limit));
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        metrics::PROCESS_SPAWNS.increment(1);
        let child = command.spawn().map_err(|error| self.cannot_run(&error))?;
        match (tokio::time::timeout(self.limit, child.wait_with_output()).await, &self.transport) {
            (Ok(Ok(output)), transport) => {
                let mut stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                if let Some(transport) = transport.as_ref().filter(|_| !output.status.success()) {
                    stderr = transport.with_state(stderr, self.limit).await;
                }
                Ok(CallOutput {
                    ok: output.status.success(),
                    stdout: match transport {
                        Some(transport) => transport.printed(output.stdout),
                        None => output.stdout,
                    },
                    stderr,
                })
            }
            (Ok(Err(error)), _) => Err(self.cannot_run(&error)),
            (Err(_), Some(transport)) => Err(transport.silent(self.limit)),
            (Err(_), None) => Err(Error::unavailable(format!(
                "{UNANSWERED}`{} {}` did not end within {} ms; {}",
                self.tmux.display(),
                args.join(" "),
                self.limit.as_millis(),
                why()
            ))),
        }
    }

    /// Returns the error for a tmux that cannot be started at all.
    fn cannot_run(&self, error: &io::Error) -> Error {
        if let Some(transport) = &self.transport {
            return transport.cannot_run(error);
        }
        if descriptors::are_out(error) {
            let mut error = descriptors::error();
            error.message = format!("cannot run {}: {}", self.tmux.display(), error.message);
            return error;
        }
        let name = self.tmux.display();
        let hint = match error.kind() {
            io::ErrorKind::NotFound if self.tmux.components().count() == 1 => {
                // Not the caller's: a daemon keeps the variables with which it was started.
                let path = std::env::var_os("PATH").unwrap_or_default();
                &format!(
                    "muxtap's process {} was started with PATH={}; install tmux 3.2a or later, or, if your shell \
                     finds tmux, run `muxtap stop`: the next command starts a daemon with that shell's PATH",
                    std::process::id(),
                    path.display()
                )
            }
            io::ErrorKind::NotFound => "install tmux 3.2a or later, or set `tmux` in config.toml, or $MUXTAP_TMUX",
            io::ErrorKind::PermissionDenied => "it is not executable; check its permissions",
            _ => "see `muxtap doctor`",
        };
        Error::unavailable(format!("cannot run {name}: {error}; {hint}"))
    }
}
