//! Finds and starts the daemon, and keeps it the only one.
//!
//! Three files with the socket's name are next to each other: the socket, `.lock` and `.start`.
//! `.lock` is locked by the daemon for as long as it lives, and records its process and how it was
//! started (`StartedBy`). `.start` is locked while a daemon is started or stopped, so twenty
//! commands at once start one daemon. Both files stay when they are not locked: a lock file that is
//! removed can be locked twice. Locks block, and a pipe or a watch of the folder wakes up; only
//! `lock_exclusive` checks again after a pause (`READERS_PAUSE`).
//!
//! A daemon that ends in order leaves an empty `.lock`. So a lock file that names a process and is
//! not locked shows that the daemon was killed, and whether a supervisor is about to start it
//! again. Then commands wait for that one instead of starting a second one beside it.

mod holder;

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    net::TcpListener,
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::{
            fs::{FileTypeExt as _, MetadataExt as _},
            net::{UnixListener, UnixStream},
            process::CommandExt as _,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use muxtap_base::files::{FileError, OpenToOthers, open_private};
use notify::{RecursiveMode, Watcher as _};
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    fs::{FlockOperation, Mode, OFlags},
};

pub use self::holder::{Holder, holder};
use super::activation;
use crate::{
    api::{Error, ErrorCode, Result},
    config::paths::{Paths, uid},
};

/// Time that a new daemon has to report `ready`.
const START_LIMIT: Duration = Duration::from_secs(10);
/// The length of the log's end in an error message, in bytes.
const LOG_TAIL: u64 = 2048;
/// The line by which a background daemon notifies its parent that it is ready.
const READY: &str = "ready";
/// How long commands wait for the return of a killed daemon that `muxtap serve` ran.
const RETURN_LIMIT: Duration = Duration::from_secs(5);
/// How long a new daemon waits for commands that read the lock file, and the pause between its
/// attempts.
const READERS_LIMIT: Duration = Duration::from_secs(1);
const READERS_PAUSE: Duration = Duration::from_millis(5);
/// The program that can be the daemon.
const PROGRAM: &str = "muxtapd";
/// Whether this process's program can be the daemon.
static HAS_ENGINE: AtomicBool = AtomicBool::new(false);
/// The prefix of a warning from a daemon that is ready all the same.
const WARNING: &str = "ready, but ";
/// The prefix of the error of a daemon that could not start.
const FAILED: &str = "error ";

/// Connects to the daemon; `None` if no daemon runs. Error: `UNAUTHORIZED` if another user's
/// socket, or anything else of another user's, is in its place: nothing is sent to it.
pub fn connect(paths: &Paths) -> Result<Option<UnixStream>> {
    check_socket(paths)?;
    match UnixStream::connect(&paths.socket) {
        Ok(stream) => {
            // The name may lead to another user's socket by now: the connection itself identifies
            // its user.
            #[cfg(target_os = "linux")]
            if let Ok(peer) = rustix::net::sockopt::socket_peercred(&stream)
                && peer.uid.as_raw() != uid()
            {
                return Err(foreign_socket(&paths.socket, peer.uid.as_raw()));
            }
            Ok(Some(stream))
        }
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(None),
            _ => Err(Error::new(
                ErrorCode::Conflict,
                format!("cannot connect to the daemon's socket {}: {error}", paths.socket.display()),
            )),
        },
    }
}

/// Checks that the file in the socket's place, if there is one, is the user's.
pub fn check_socket(paths: &Paths) -> Result<()> {
    fs::symlink_metadata(&paths.socket).map_or(Ok(()), |found| check_socket_owner(&paths.socket, &found))
}

/// Checks that the file in the socket's place is the user's.
fn check_socket_owner(socket: &Path, found: &fs::Metadata) -> Result<()> {
    if found.uid() == uid() { Ok(()) } else { Err(foreign_socket(socket, found.uid())) }
}

fn foreign_socket(socket: &Path, owner: u32) -> Error {
    let message = format!(
        "{} belongs to user {owner}, not to you: remove it, or set MUXTAP_SOCKET to another place",
        socket.display()
    );
    Error::new(ErrorCode::Unauthorized, message)
}

/// Connects to the daemon; starts it if none runs. `warn` gets problems that do not prevent that.
pub fn connect_or_start(paths: &Paths, warn: &mut dyn FnMut(&str)) -> Result<UnixStream> {
    if let Some(stream) = connect(paths)? {
        return Ok(stream);
    }
    let _start_lock = lock_start(paths)?;
    // Another command may have started it while this one waited for the lock.
    if let Some(stream) = connect(paths)? {
        return Ok(stream);
    }
    if let Some(LockRecord { pid, started_by: StartedBy::Other }) = killed_daemon(paths)? {
        if let Some(stream) = wait_for_restart(paths, Some(RETURN_LIMIT))? {
            return Ok(stream);
        }
        warn(&format!(
            "the daemon that `muxtap serve` ran (process {pid}) was killed and did not return in {} s; this command \
             starts another one",
            RETURN_LIMIT.as_secs()
        ));
    }
    if let Err(error) = spawn(paths, warn) {
        // A supervisor may have started one in the meantime, which then holds the lock.
        let other = if error.code == ErrorCode::Conflict { connect(paths)? } else { None };
        return other.ok_or(error);
    }
    connect(paths)?.ok_or_else(|| Error::internal("the daemon exited right after its start"))
}

/// How a daemon was started, and thus how it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartedBy {
    /// A command started it in the background; commands start it again when they need it.
    Commands,
    /// A person or a supervisor such as systemd or launchd ran `muxtap serve`, and may start it
    /// again.
    Other,
}

/// The content of a daemon's lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LockRecord {
    pid: u32,
    started_by: StartedBy,
}

impl LockRecord {
    /// The length of a lock file at most, in bytes.
    const BYTES: u64 = 256;

    /// Reads a lock file. `None`: no daemon has written it.
    fn read(lock: &mut File) -> Option<Self> {
        let mut text = String::new();
        lock.take(Self::BYTES).read_to_string(&mut text).ok()?;
        Self::parse(&text)
    }

    fn text(self) -> String {
        let started_by = match self.started_by {
            StartedBy::Commands => "background",
            StartedBy::Other => "serve",
        };
        format!("{}\n{started_by}\n", self.pid)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let pid = lines.next()?.trim().parse().ok()?;
        let started_by = if lines.next() == Some("serve") { StartedBy::Other } else { StartedBy::Commands };
        Some(Self { pid, started_by })
    }
}

/// Returns the daemon that was killed; `None` if none ran, it ended in order, or one lives.
fn killed_daemon(paths: &Paths) -> Result<Option<LockRecord>> {
    let path = paths.lock_file();
    let mut file = open_lock(&path)?;
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err() {
        return Ok(None);
    }
    Ok(LockRecord::read(&mut file))
}

/// Waits until another process has started a daemon, `limit` at most (`None`: without a limit), and
/// connects to it. `None`: none has come, or the daemon's folder cannot be watched.
pub fn wait_for_restart(paths: &Paths, limit: Option<Duration>) -> Result<Option<UnixStream>> {
    await_daemon(paths, limit, || {})
}

/// Waits like [`wait_for_restart`], and calls `waits` each time before it waits for a change.
fn await_daemon(paths: &Paths, limit: Option<Duration>, mut waits: impl FnMut()) -> Result<Option<UnixStream>> {
    let deadline = limit.map(|limit| Instant::now() + limit);
    // A folder that is gone is watched no longer, even if it comes back.
    while let Some(folder) = folder_identity(paths.dir()) {
        let Some((_watcher, changed)) = watch_files(paths) else { return Ok(None) };
        // A watch belongs to a folder and not to its name, which may mean another one by now.
        while folder_identity(paths.dir()) == Some(folder) {
            // A daemon listens before it writes its lock file, which is its last change of the
            // folder.
            if let Some(stream) = connect(paths)? {
                return Ok(Some(stream));
            }
            waits();
            let has_changed = match deadline {
                Some(deadline) => changed.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok(),
                None => changed.recv().is_ok(),
            };
            if !has_changed {
                return Ok(None);
            }
        }
    }
    Ok(None)
}

/// Watches the daemon's folder for changes of its socket and lock file, and for its own end.
/// However many changes come, one waits to be received.
fn watch_files(paths: &Paths) -> Option<(notify::RecommendedWatcher, mpsc::Receiver<()>)> {
    let (notify, changed) = mpsc::sync_channel(1);
    let of = paths.clone();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // An error may concern anything.
        if event.is_ok_and(|event| !is_of_daemon(&event, &of)) {
            return;
        }
        // A pending notification is enough, and the receiver may have gone.
        let _ = notify.try_send(());
    })
    .ok()?;
    watcher.watch(paths.dir(), RecursiveMode::NonRecursive).ok()?;
    Some((watcher, changed))
}

/// Returns whether a change in the daemon's folder may come from a daemon that starts, or from the
/// folder's end.
fn is_of_daemon(event: &notify::Event, paths: &Paths) -> bool {
    let wanted = [&paths.socket, &paths.lock_file(), paths.dir()];
    event.need_rescan() || event.paths.is_empty() || event.paths.iter().any(|path| wanted.contains(&path.as_path()))
}

/// Returns the device and inode of the folder that a path leads to.
fn folder_identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Locks the right to start or stop the daemon, until the returned file is dropped. Blocks while
/// another process holds it.
pub fn lock_start(paths: &Paths) -> Result<File> {
    paths.prepare()?;
    let path = paths.start_file();
    let file = open_lock(&path)?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(|error| cannot("lock", &path, &error.into()))?;
    Ok(file)
}

/// Opens a lock file; creates it if it is missing. A lock that other users could hold is useless:
/// error `CONFLICT` if the file is not the user's alone.
fn open_lock(path: &Path) -> Result<File> {
    open_private(path, OFlags::RDWR | OFlags::CREATE, OpenToOthers::Refused).map_err(|error| {
        let more = if matches!(error, FileError::Open(_)) { ": remove it" } else { "" };
        Error::new(ErrorCode::Conflict, format!("the lock file {} {error}{more}", path.display()))
    })
}

/// Blocks until the daemon has ended. Hold [`lock_start`]'s lock meanwhile, or a new daemon may
/// fail because of this lock.
pub fn wait_until_gone(paths: &Paths) -> Result<()> {
    let path = paths.lock_file();
    let file = open_lock(&path)?;
    rustix::fs::flock(&file, FlockOperation::LockShared).map_err(|error| cannot("lock", &path, &error.into()))
}

/// Starts a daemon in the background, as any command does that needs one.
fn spawn(paths: &Paths, warn: &mut dyn FnMut(&str)) -> Result<()> {
    let mut command = background_command()?;
    if std::env::var_os("MUXTAP_SOCKET").is_some_and(|socket| !socket.is_empty()) {
        command.env("MUXTAP_SOCKET", &paths.socket);
    }
    launch(command, paths, warn).map(drop)
}

/// Starts a private daemon of one command, which ends it. Of the settings in the caller's
/// environment it has only these.
pub fn spawn_private(paths: &Paths, settings: &[(&str, &OsStr)]) -> Result<Child> {
    let mut command = background_command()?;
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"MUXTAP_")) {
        command.env_remove(name);
    }
    command.env("MUXTAP_SOCKET", &paths.socket).envs(settings.iter().copied());
    launch(command, paths, &mut |_| {})
}

/// Records that this process's program can be the daemon, whatever its file is called.
pub fn note_engine() {
    HAS_ENGINE.store(true, Ordering::Relaxed);
}

/// Returns the program that can be the daemon: this process's, or else `muxtapd` beside it.
pub fn muxtapd() -> Result<PathBuf> {
    let own = std::env::current_exe()
        .map_err(|error| Error::internal(format!("cannot find muxtap's own program: {error}")))?;
    if HAS_ENGINE.load(Ordering::Relaxed) {
        return Ok(own);
    }
    // A link is followed; the file of a program that was replaced meanwhile no longer exists, but
    // its folder does.
    let own = fs::canonicalize(&own).unwrap_or(own);
    let beside = own.with_file_name(PROGRAM);
    let found = fs::metadata(&beside).ok().filter(fs::Metadata::is_file).zip(fs::symlink_metadata(&beside).ok());
    let Some((file, entry)) = found else {
        let place = beside.display();
        return Err(Error::unavailable(format!("missing {place}: install `muxtapd` beside `muxtap`")));
    };
    // Any user that can write to the folder may have put it, or a link to it, into the folder.
    let running = if cfg!(target_os = "linux") { Path::new("/proc/self/exe") } else { &own };
    let trusted = [Some(0), Some(uid()), fs::metadata(running).ok().map(|own| own.uid())];
    // A copy of `muxtap`, or a link to it, would exec itself forever. `muxtapd` is far larger.
    if fs::metadata(running).is_ok_and(|own| own.len() == file.len()) {
        let message = format!("{} is `muxtap` itself: install `muxtapd` in its place", beside.display());
        return Err(Error::unavailable(message));
    }
    match [entry.uid(), file.uid()].into_iter().find(|owner| !trusted.contains(&Some(*owner))) {
        None => Ok(beside),
        Some(owner) => {
            let message = format!("{} belongs to user {owner}: refusing to run it", beside.display());
            Err(Error::new(ErrorCode::Unauthorized, message))
        }
    }
}

/// Returns the path by which this process's program, or `muxtap` beside it, was called, if that leads to
/// `program`: through a link, where another version may be later. `None`: no such path is known.
pub(super) fn called_as(program: &Path) -> Option<PathBuf> {
    let name = std::env::args_os().next()?;
    let dir = std::env::current_dir().ok()?;
    find_called(Path::new(&name), &dir, std::env::var_os("PATH").as_deref(), program)
}

/// As [`called_as`], for a process with this name (`argv[0]`), folder and `PATH`.
fn find_called(name: &Path, dir: &Path, search: Option<&OsStr>, program: &Path) -> Option<PathBuf> {
    let file = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let meant = file(program)?;
    let is_meant = |path: &Path| file(path) == Some(meant);
    let is_bare = name.components().count() == 1 && !name.is_absolute();
    let called = if is_bare {
        std::env::split_paths(search?).map(|folder| dir.join(folder).join(name)).find(|path| path.is_file())?
    } else {
        dir.join(name)
    };
    // `muxtap` becomes the `muxtapd` beside it, or beside the file to which it leads.
    let beside = called.with_file_name(PROGRAM);
    if is_meant(&called) {
        Some(called)
    } else if called.is_file() && is_meant(&beside) {
        Some(beside)
    } else {
        let own = fs::canonicalize(&called).ok()?;
        is_meant(&own.with_file_name(PROGRAM)).then_some(called)
    }
}

/// What systemd passes to a service: a command in one must not pass it on to the daemon.
const OF_SYSTEMD: [&str; 6] =
    ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

fn background_command() -> Result<Command> {
    let program = muxtapd()?;
    let mut command = Command::new(&program);
    // The next daemon is started by this name.
    if let Some(called) = called_as(&program) {
        command.arg0(called);
    }
    for name in OF_SYSTEMD {
        command.env_remove(name);
    }
    command
        .args(["serve", "--background"])
        // The daemon serves callers in many panes; the pane of the caller that started it must mean
        // nothing to it.
        .env_remove("TMUX")
        .env_remove("TMUX_PANE")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    Ok(command)
}

/// Runs the command of a daemon until the daemon is ready.
fn launch(mut command: Command, paths: &Paths, warn: &mut dyn FnMut(&str)) -> Result<Child> {
    let (log, log_start) = match paths.open_log() {
        Ok(file) => {
            let start = file.metadata().map_or(0, |found| found.len());
            (Stdio::from(file), start)
        }
        // Another user must not be able to turn the log off by a file in its place.
        Err(error) if error.code == ErrorCode::Unauthorized => return Err(error),
        Err(error) => {
            warn(&format!("{}; the daemon runs without one", error.message));
            (Stdio::null(), 0)
        }
    };
    command.stderr(log);
    let mut child = command.spawn().map_err(|error| cannot("start", Path::new(command.get_program()), &error))?;
    let Some(mut stdout) = child.stdout.take() else { return Err(Error::internal("the daemon has no stdout")) };
    match first_line(&mut stdout, START_LIMIT) {
        Ok(Some(line)) if line == READY => Ok(child),
        Ok(Some(line)) if line.starts_with(WARNING) => {
            warn(&format!("the daemon runs, but {}", line.trim_start_matches(WARNING)));
            Ok(child)
        }
        Ok(Some(line)) => match line.strip_prefix(FAILED).and_then(|json| serde_json::from_str(json).ok()) {
            Some(error) => Err(error),
            None => Err(Error::internal(format!("the daemon printed {line:?} instead of `{READY}`"))),
        },
        Ok(None) => {
            let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
            let log = paths.log.display();
            let tail = log_tail(&paths.log, log_start);
            Err(Error::internal(format!("the daemon could not start ({status}); its log, {log}, ends:\n{tail}")))
        }
        Err(error) => {
            // It is this process's own child and holds nothing yet that a kill could harm.
            let _ = child.kill();
            let _ = child.wait();
            Err(Error::internal(format!("the daemon was not ready: {error}; its log is {}", paths.log.display())))
        }
    }
}

/// Reads the first line from `pipe`; `None` if the pipe ends before. Error: `limit` is over.
fn first_line(pipe: &mut (impl io::Read + std::os::fd::AsFd), limit: Duration) -> io::Result<Option<String>> {
    let deadline = Instant::now() + limit;
    let mut line = Vec::new();
    let mut chunk = [0; 512];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        let ready = match rustix::event::poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => ready,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        if ready == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("no response in {} s", limit.as_secs())));
        }
        let read = pipe.read(&mut chunk)?;
        line.extend(chunk.iter().take(read));
        if let Some(end) = memchr::memchr(b'\n', &line) {
            line.truncate(end);
            return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
        }
        if read == 0 {
            return Ok(None);
        }
    }
}

/// Returns the end of the log's text since the log was `start` bytes long.
fn log_tail(path: &Path, start: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = open_private(path, OFlags::RDONLY, OpenToOthers::Kept)?;
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(start.max(end.saturating_sub(LOG_TAIL))))?;
        let mut tail = Vec::new();
        file.take(LOG_TAIL).read_to_end(&mut tail)?;
        Ok(tail)
    };
    match read() {
        Ok(tail) if tail.is_empty() => "(nothing)".to_owned(),
        Ok(tail) => String::from_utf8_lossy(&tail).trim_end().to_owned(),
        Err(error) => format!("({error})"),
    }
}

/// Leaves the caller's terminal and directory: the first step of a daemon in the background. Call
/// it before any thread starts.
pub fn enter_background() -> Result<()> {
    // EPERM: it already leads a process group, so no terminal's signals reach it through the
    // caller's.
    match rustix::process::setsid() {
        Ok(_) | Err(rustix::io::Errno::PERM) => {}
        Err(error) => return Err(Error::internal(format!("setsid: {error}"))),
    }
    rustix::process::chdir("/").map_err(|error| Error::internal(format!("chdir /: {error}")))
}

/// Notifies the command that waits in [`connect_or_start`] that the daemon is ready, and releases
/// its pipe. `warning`: a problem that the command should show.
pub fn report_ready(warning: Option<&str>) {
    match warning {
        Some(warning) => report(&format!("{WARNING}{}", warning.replace('\n', " "))),
        None => report(READY),
    }
    let null = File::options().write(true).open("/dev/null");
    if let Ok(null) = null {
        // Otherwise the pipe stays open; nothing reads it, and nothing writes to it.
        let _ = rustix::stdio::dup2_stdout(null.as_fd());
    }
}

/// Reports to the waiting command why the daemon cannot start.
pub fn report_failure(error: &Error) {
    report(&format!("{FAILED}{}", serde_json::to_string(error).unwrap_or_default()));
}

fn report(line: &str) {
    let mut stdout = io::stdout().lock();
    // The command may be gone; the daemon lives on for the next one.
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// The right to be the daemon, and its socket.
#[derive(Debug)]
pub struct Claim {
    /// Listens on the daemon's socket (mode 0600); non-blocking, as tokio wants it.
    pub listener: UnixListener,
    /// TCP ports that listen already, since systemd kept them; whether each is the page's.
    pub ports: Vec<(bool, TcpListener)>,
    /// The guard that holds the right. Dropping it removes the socket and lets the next daemon
    /// start.
    pub guard: ClaimGuard,
}

/// The guard of a [`Claim`].
#[derive(Debug)]
pub struct ClaimGuard {
    socket: PathBuf,
    /// The socket's device and inode: a socket that another process put in its place in the
    /// meantime must not be removed. `None`: the socket is systemd's.
    identity: Option<(u64, u64)>,
    lock: File,
    started_by: StartedBy,
    /// Whether this process has the right; another one may have it still, or by now.
    holds: AtomicBool,
}

impl ClaimGuard {
    /// Returns the socket's device and inode; `None`: the socket is systemd's.
    pub(super) fn identity(&self) -> Option<(u64, u64)> {
        self.identity
    }

    /// Returns the lock file.
    pub(super) fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    /// Makes this process the daemon, from which connections are, and which the lock file names. The
    /// file names no process in between, so a command never finds one that does not listen.
    pub(super) fn reclaim(&self, listener: &UnixListener) {
        self.holds.store(true, Ordering::Relaxed);
        let _ = self.lock.set_len(0);
        if let Err(error) = activation::listen_here(listener) {
            tracing::warn!("cannot listen on {}: {error}", self.socket.display());
        }
        let record = LockRecord { pid: std::process::id(), started_by: self.started_by };
        let written =
            (&self.lock).seek(SeekFrom::Start(0)).and_then(|_| (&self.lock).write_all(record.text().as_bytes()));
        if let Err(error) = written {
            tracing::warn!("cannot write the lock file: {error}");
        }
    }

    /// Leaves the right to the process that has taken over.
    pub(super) fn leave(self) {
        self.holds.store(false, Ordering::Relaxed);
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        if !self.holds.load(Ordering::Relaxed) {
            return;
        }
        if self.identity.is_some() && identity(&self.socket) == self.identity {
            let _ = fs::remove_file(&self.socket);
        }
        // An empty file shows that the daemon was not killed. If that cannot be written the next
        // command waits for a while.
        let _ = self.lock.set_len(0);
    }
}

/// Makes this process the daemon. Call it before any thread starts (the umask is changed for a
/// moment). `background`: a command started it, and the next one may do so again.
///
/// A socket that systemd passed is systemd's: it stays when the daemon ends.
///
/// Error: `CONFLICT` if another daemon runs, or if a file that is not a socket is in its place.
pub fn claim(paths: &Paths, background: bool) -> Result<Claim> {
    paths.prepare()?;
    let activation::Passed { local: passed, ports } = activation::take_passed(paths)?;
    let path = paths.lock_file();
    let mut lock = open_lock(&path)?;
    match lock_exclusive(&lock, || std::thread::sleep(READERS_PAUSE)) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut text = String::new();
            let _ = lock.read_to_string(&mut text);
            // A daemon that has only begun has not written it yet, and one on a full disk could
            // not.
            let process =
                LockRecord::parse(&text).map_or_else(String::new, |record| format!(" (process {})", record.pid));
            return Err(Error::new(
                ErrorCode::Conflict,
                format!("another muxtap daemon{process} runs on {}; `muxtap stop` stops it", paths.socket.display()),
            ));
        }
        Err(error) => return Err(cannot("lock", &path, &error.into())),
    }
    let _ = lock.set_len(0);

    let is_passed = passed.is_some();
    let listener = match passed {
        Some(listener) => listener,
        None => bind(paths)?,
    };
    // Written after the socket listens: this change wakes commands that wait for that. A full disk
    // must not prevent the start.
    let started_by = if background { StartedBy::Commands } else { StartedBy::Other };
    let _ = lock.write_all(LockRecord { pid: std::process::id(), started_by }.text().as_bytes());
    let identity = if is_passed { None } else { identity(&paths.socket) };
    let socket = paths.socket.clone();
    let guard = ClaimGuard { identity, socket, lock, started_by, holds: AtomicBool::new(true) };
    Ok(Claim { listener, ports, guard })
}

/// Returns the right that another daemon hands over. This process has it from
/// [`ClaimGuard::reclaim`] on. Error: `CONFLICT` if the files are not those of this daemon.
pub(super) fn continued_claim(
    paths: &Paths,
    listener: UnixListener,
    lock: File,
    identity: Option<(u64, u64)>,
    background: bool,
) -> Result<Claim> {
    let path = paths.lock_file();
    let own = fs::metadata(&path).map_err(|error| cannot("find", &path, &error))?;
    let is_own = lock.metadata().is_ok_and(|lock| (lock.dev(), lock.ino()) == (own.dev(), own.ino()));
    if !is_own {
        let message = format!("the running daemon is not that of {}: its lock file is another one", path.display());
        return Err(Error::new(ErrorCode::Conflict, message));
    }
    listener.set_nonblocking(true).map_err(|error| cannot("listen on", &paths.socket, &error))?;
    let started_by = if background { StartedBy::Commands } else { StartedBy::Other };
    let guard = ClaimGuard { identity, socket: paths.socket.clone(), lock, started_by, holds: AtomicBool::new(false) };
    Ok(Claim { listener, ports: Vec::new(), guard })
}

/// Listens on the daemon's socket; replaces one that an earlier daemon left.
fn bind(paths: &Paths) -> Result<UnixListener> {
    if let Ok(found) = fs::symlink_metadata(&paths.socket) {
        check_socket_owner(&paths.socket, &found)?;
        if !found.file_type().is_socket() {
            return Err(Error::new(
                ErrorCode::Conflict,
                format!("{} is not a socket: move it away, or set MUXTAP_SOCKET", paths.socket.display()),
            ));
        }
        fs::remove_file(&paths.socket).map_err(|error| cannot("replace", &paths.socket, &error))?;
    }
    let umask = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(&paths.socket);
    rustix::process::umask(umask);
    let listener = bound.map_err(|error| cannot("listen on", &paths.socket, &error))?;
    listener.set_nonblocking(true).map_err(|error| cannot("listen on", &paths.socket, &error))?;
    Ok(listener)
}

/// Locks a daemon's lock file. `WOULDBLOCK`: another daemon holds it.
///
/// Commands share the lock for a moment while they read which daemon was killed. The daemon waits
/// for them, [`READERS_LIMIT`] at most: a lock cannot be awaited with a limit, and no thread may be
/// started yet. So it calls `pause` and tries again.
fn lock_exclusive(lock: &File, mut pause: impl FnMut()) -> rustix::io::Result<()> {
    let deadline = Instant::now() + READERS_LIMIT;
    loop {
        let locked = rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive);
        if locked != Err(rustix::io::Errno::WOULDBLOCK) || Instant::now() >= deadline {
            return locked;
        }
        // A daemon never shares the lock.
        rustix::fs::flock(lock, FlockOperation::NonBlockingLockShared)?;
        rustix::fs::flock(lock, FlockOperation::Unlock)?;
        pause();
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> Error {
    Error::new(ErrorCode::Conflict, format!("cannot {what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn paths(dir: &tempfile::TempDir) -> Paths {
        Paths::in_dir(dir.path())
    }

    #[test]
    fn a_program_behind_a_link_is_called_by_the_link() {
        use std::os::unix::fs::symlink;

        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["v1/muxtapd", "v1/muxtap", "bin/x"] {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), name).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        symlink("../v1/muxtap", at("bin/muxtap")).unwrap();
        let program = at("v1/muxtapd");
        let search = std::env::join_paths([at("none"), at("bin")]).unwrap();
        let find = |name: &Path| find_called(name, dir.path(), Some(&search), &program);
        // `muxtap` alone is linked: it becomes the program beside the file to which it leads.
        assert_eq!(find(Path::new("muxtap")), Some(at("bin/muxtap")));
        assert_eq!(find(&at("bin/muxtap")), Some(at("bin/muxtap")));
        // These lead elsewhere.
        assert_eq!((find(Path::new("bin/none")), find(&at("none/x")), find(Path::new("x"))), (None, None, None));
        symlink("../v1/muxtapd", at("bin/muxtapd")).unwrap();
        assert_eq!(find(Path::new("bin/none")), None);
        assert_eq!(find(Path::new("muxtap")), Some(at("bin/muxtapd")));
        assert_eq!(find(Path::new("bin/muxtapd")), Some(at("bin/muxtapd")));
        assert_eq!(find(Path::new("./v1/muxtapd")), Some(at("./v1/muxtapd")));
        assert_eq!(find(&program), Some(program.clone()));
    }

    #[test]
    fn nobody_answers_before_a_claim_and_somebody_after() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(&dir);
        assert!(connect(&paths).unwrap().is_none());
        assert!(holder(&paths).is_none());
        let claim = claim(&paths, true).unwrap();
        assert!(connect(&paths).unwrap().is_some() && holder(&paths).is_some());
        assert_eq!(fs::metadata(&paths.socket).unwrap().permissions().mode() & 0o777, 0o600);
        drop(claim);
        assert!(!paths.socket.exists());
    }

    #[test]
    fn a_daemon_in_the_background_learns_nothing_of_systemd() {
        note_engine();
        let command = background_command().unwrap();
        for name in OF_SYSTEMD {
            assert!(command.get_envs().any(|(set, value)| set == name && value.is_none()), "{name}");
        }
    }

    #[test]
    fn a_daemon_begins_though_a_command_reads_who_was_killed() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(&dir);
        drop(claim(&paths, false).unwrap());
        let reader = File::open(paths.lock_file()).unwrap();
        rustix::fs::flock(&reader, FlockOperation::NonBlockingLockShared).unwrap();
        let lock = File::open(paths.lock_file()).unwrap();
        let mut reader = Some(reader);
        let mut pauses = 0;
        let locked = lock_exclusive(&lock, || {
            pauses += 1;
            // It reads for a while longer than the first attempt to lock takes.
            drop(reader.take_if(|_| pauses == 2));
        });
        assert_eq!((locked, pauses), (Ok(()), 2));
    }

    #[test]
    fn a_second_daemon_is_told_who_the_first_is() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(&dir);
        let first = claim(&paths, true).unwrap();
        let error = claim(&paths, true).unwrap_err();
        assert_eq!(error.code, ErrorCode::Conflict);
        assert!(error.message.contains(&format!("process {}", std::process::id())), "{error}");
        drop(first);
        claim(&paths, true).unwrap();
    }

    #[test]
    fn a_killed_daemon_leaves_word_of_who_starts_it_again() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(&dir);
        for (background, started_by) in [(true, StartedBy::Commands), (false, StartedBy::Other)] {
            let claimed = claim(&paths, background).unwrap();
            assert_eq!(killed_daemon(&paths).unwrap(), None, "it lives");
            let text = fs::read(paths.lock_file()).unwrap();
            drop(claimed);
            assert_eq!(killed_daemon(&paths).unwrap(), None, "it ended in order");
            fs::write(paths.lock_file(), text).unwrap();
            assert_eq!(killed_daemon(&paths).unwrap(), Some(LockRecord { pid: std::process::id(), started_by }));
        }
        // The format that an older muxtap wrote.
        assert_eq!(LockRecord::parse("17\n"), Some(LockRecord { pid: 17, started_by: StartedBy::Commands }));
    }

    #[test]
    fn who_waits_for_it_is_connected_when_it_is_back() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(&dir);
        let waiters = [Some(RETURN_LIMIT), None].map(|limit| {
            let paths = paths.clone();
            std::thread::spawn(move || wait_for_restart(&paths, limit).unwrap().is_some())
        });
        let _claim = claim(&paths, false).unwrap();
        assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap()));
    }

    /// Longer than any wait of a test that does not fail.
    const LIMIT: Duration = Duration::from_secs(120);

    #[test]
    fn nobody_waits_in_a_folder_that_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::in_dir(&dir.path().join("d"));
        paths.prepare().unwrap();
        let begun = Instant::now();
        let mut waited = false;
        let found = await_daemon(&paths, Some(LIMIT), || {
            waited = true;
            // The folder is watched, and no daemon listens in it.
            fs::remove_dir(paths.dir()).unwrap();
        });
        assert!(found.unwrap().is_none() && waited);
        assert!(begun.elapsed() < LIMIT, "it waited for something else");
    }

    #[test]
    fn who_waits_in_a_folder_that_is_replaced_waits_in_the_other_one() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::in_dir(&dir.path().join("d"));
        paths.prepare().unwrap();
        let (mut replaced, mut claimed) = (false, None);
        let found = await_daemon(&paths, Some(LIMIT), || {
            if replaced {
                claimed.get_or_insert_with(|| claim(&paths, false).unwrap());
            } else {
                fs::rename(paths.dir(), dir.path().join("old")).unwrap();
                paths.prepare().unwrap();
                replaced = true;
            }
        });
        assert!(found.unwrap().is_some());
    }

    #[test]
    fn other_files_of_the_folder_wake_nobody() {
        let paths = Paths::in_dir(Path::new("/d"));
        let event = |path: &Path| notify::Event::default().add_path(path.to_owned());
        for wanted in [&paths.socket, &paths.lock_file(), paths.dir()].map(event) {
            assert!(is_of_daemon(&wanted, &paths), "{wanted:?}");
        }
        assert!(is_of_daemon(&notify::Event::default().set_flag(notify::event::Flag::Rescan), &paths));
        for other in [&paths.start_file(), &paths.log, Path::new("/d/tmux-0")].map(event) {
            assert!(!is_of_daemon(&other, &paths), "{other:?}");
        }
    }

    #[test]
    fn a_stale_socket_is_replaced_but_a_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(&dir);
        drop(UnixListener::bind(&paths.socket).unwrap());
        assert!(connect(&paths).unwrap().is_none(), "nobody listens there any more");
        drop(claim(&paths, true).unwrap());
        fs::write(&paths.socket, "a letter").unwrap();
        assert!(claim(&paths, true).unwrap_err().message.contains("not a socket"));
        assert_eq!(fs::read(&paths.socket).unwrap(), b"a letter");
    }

    #[test]
    fn a_socket_that_replaced_ours_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(&dir);
        let claim = claim(&paths, true).unwrap();
        let other = dir.path().join("other");
        let _other = UnixListener::bind(&other).unwrap();
        fs::rename(&other, &paths.socket).unwrap();
        drop(claim);
        assert!(paths.socket.exists());
    }

    #[test]
    fn stop_waits_for_the_daemons_end_and_not_longer() {
        let dir = tempfile::tempdir().unwrap();
        let paths = paths(&dir);
        let claim = claim(&paths, true).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let waiter = std::thread::spawn({
            let paths = paths.clone();
            move || {
                wait_until_gone(&paths).unwrap();
                sender.send(paths.socket.exists()).unwrap();
            }
        });
        assert!(receiver.try_recv().is_err());
        drop(claim);
        assert!(!receiver.recv().unwrap(), "the socket goes before the lock");
        waiter.join().unwrap();
    }

    #[test]
    fn the_ready_line_the_end_and_the_limit_are_told_apart() {
        let limit = Duration::from_secs(5);
        let (mut read, mut write) = io::pipe().unwrap();
        write.write_all(b"rea").unwrap();
        write.write_all(b"dy\nmore").unwrap();
        assert_eq!(first_line(&mut read, limit).unwrap().as_deref(), Some(READY));

        let (mut read, mut write) = io::pipe().unwrap();
        write.write_all(b"rea").unwrap();
        drop(write);
        assert_eq!(first_line(&mut read, limit).unwrap(), None);

        let (mut read, _write) = io::pipe().unwrap();
        let error = first_line(&mut read, Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
