//! A separate world for each test: a directory, a tmux socket, a muxtap daemon, and nothing of them
//! left at the end.
//!
//! `MUXTAP_TEST_TMUX` names the tmux program under test (default `tmux`).
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// The time after which a process that has not ended counts as hung: the test then fails; no test
/// passes by it.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Returns the tmux program under test.
pub fn tmux_program() -> String {
    std::env::var("MUXTAP_TEST_TMUX").unwrap_or_else(|_| "tmux".into())
}

/// A process's exit and output.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The exit status; -1 if a signal ended the process.
    pub status: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Answer {
    /// Returns stdout as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns stdout as one JSON value.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("not JSON ({error}): {self:?}"))
    }

    /// Returns the error object that `--json` prints to stderr.
    pub fn error(&self) -> Value {
        serde_json::from_str(&self.stderr).unwrap_or_else(|error| panic!("not JSON ({error}): {self:?}"))
    }
}

/// An HTTP response.
#[derive(Clone, Debug)]
pub struct Http {
    pub status: u16,
    /// The status line and the headers.
    pub head: String,
    pub body: Vec<u8>,
}

impl Http {
    /// Reads a response to its end.
    pub fn read(mut stream: impl Read) -> Self {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let split = answer.windows(4).position(|window| window == b"\r\n\r\n");
        let split = split.unwrap_or_else(|| panic!("no HTTP: {:?}", String::from_utf8_lossy(&answer)));
        let head = String::from_utf8_lossy(&answer[..split]).into_owned();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        Self { status, head, body: answer[split + 4..].to_vec() }
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("not JSON ({error}): {self:?}"))
    }
}

/// A process that runs beside the test.
pub struct Background {
    pid: u32,
    child: Option<Child>,
    stdin: Option<ChildStdin>,
    /// `None` once it is closed.
    stdout: Option<BufReader<ChildStdout>>,
    stderr: Option<JoinHandle<String>>,
    watchdog: Watchdog,
}

/// Kills a process that takes longer than [`LIMIT`], so that a hanging process fails the test
/// instead of blocking it.
struct Watchdog {
    done: mpsc::Sender<()>,
    thread: Option<JoinHandle<bool>>,
}

impl Watchdog {
    fn on(pid: u32, limit: Duration) -> Self {
        let (done, ended) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let late = ended.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
            if late {
                signal(pid, rustix::process::Signal::KILL);
            }
            late
        });
        Self { done, thread: Some(thread) }
    }

    /// Returns whether the process was killed.
    fn end(&mut self) -> bool {
        let _ = self.done.send(());
        self.thread.take().is_some_and(|thread| thread.join().unwrap_or(false))
    }
}

impl Background {
    pub fn start(command: &mut Command) -> Self {
        Self::start_with(command, LIMIT)
    }

    pub fn start_with(command: &mut Command, limit: Duration) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdin = child.stdin.take();
        let stdout = Some(BufReader::new(child.stdout.take().unwrap()));
        let mut pipe = child.stderr.take().unwrap();
        let stderr = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let pid = child.id();
        Self { pid, child: Some(child), stdin, stdout, stderr: Some(stderr), watchdog: Watchdog::on(pid, limit) }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns its stdin; [`Self::close_stdin`] drops it.
    pub fn stdin(&mut self) -> &mut ChildStdin {
        self.stdin.as_mut().expect("stdin is open")
    }

    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Returns the next line of its stdout; `None` at its end.
    pub fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        let read = self.stdout.as_mut().unwrap().read_until(b'\n', &mut line).unwrap();
        (read > 0).then(|| String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned())
    }

    /// Reads lines until one matches.
    pub fn line_where(&mut self, what: &str, mut fits: impl FnMut(&str) -> bool) -> String {
        while let Some(line) = self.line() {
            if fits(&line) {
                return line;
            }
        }
        panic!("the output ended before {what}");
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Answer {
        self.stdin = None;
        let mut stdout = Vec::new();
        if let Some(pipe) = &mut self.stdout {
            pipe.read_to_end(&mut stdout).unwrap();
        }
        let status = self.child.take().unwrap().wait().unwrap();
        let hung = self.watchdog.end();
        let stderr = self.stderr.take().unwrap().join().unwrap();
        let answer = Answer { status: status.code().unwrap_or(-1), stdout, stderr };
        assert!(!hung, "it hung: {answer:?}");
        answer
    }

    /// Closes its stdout unread and waits for its end.
    pub fn finish_unread(mut self) -> Answer {
        self.stdout = None;
        self.finish()
    }

    /// Kills it by SIGKILL.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.watchdog.end();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Answer {
    Background::start(command).finish()
}

/// Sends a signal; ignores a process that no longer exists.
pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _ = rustix::process::kill_process(pid, signal);
}

/// Returns whether a process exists and is not a zombie.
pub fn is_alive(pid: u32) -> bool {
    #[cfg(target_os = "linux")]
    if let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) {
        return !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']));
    }
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return false };
    rustix::process::test_kill_process(pid).is_ok()
}

/// The end of a process that is not a child of the test: of its last thread, after which none of
/// its files is open.
pub struct ProcessEnd {
    #[cfg(target_os = "linux")]
    pidfd: std::os::fd::OwnedFd,
    #[cfg(not(target_os = "linux"))]
    pid: u32,
}

impl ProcessEnd {
    pub fn of(pid: u32) -> Self {
        #[cfg(target_os = "linux")]
        {
            let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            Self { pidfd: rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap() }
        }
        #[cfg(not(target_os = "linux"))]
        Self { pid }
    }

    pub fn wait(self) {
        #[cfg(target_os = "linux")]
        {
            let limit = rustix::event::Timespec::try_from(LIMIT).unwrap();
            let mut ends = [rustix::event::PollFd::new(&self.pidfd, rustix::event::PollFlags::IN)];
            assert_eq!(rustix::event::poll(&mut ends, Some(&limit)).unwrap(), 1, "the process has not ended");
        }
        #[cfg(not(target_os = "linux"))]
        eventually("the process has ended", || !is_alive(self.pid));
    }
}

/// A pane's program that replies to each line with `got LINE`.
pub const ANSWERS: &str = "stty -echo; echo ready; while read -r line; do echo \"got $line\"; done";

/// Creates a pane by plain tmux (`new-session`, `new-window`, `split-window` and its flags) that
/// runs [`ANSWERS`].
pub fn answering(world: &World, args: &[&str]) -> String {
    let pane = world.tmux(&[args, &["-d", "-P", "-F", "#{pane_id}", ANSWERS]].concat());
    world.await_output(&pane, "^ready");
    pane
}

/// Types a line by plain tmux, literally: `end` and `up` are keys.
pub fn type_line(world: &World, pane: &str, line: &str) {
    world.tmux(&["send-keys", "-l", "-t", pane, line, ";", "send-keys", "-t", pane, "Enter"]);
}

/// Types a line by plain tmux and waits for its reply.
pub fn say(world: &World, pane: &str, line: &str) {
    type_line(world, pane, line);
    world.await_output(pane, &format!("^got {line}$"));
}

/// Returns whether a program is in `PATH`. Without it a test prints that it is skipped; if `CI` is
/// set, no test is skipped.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        let ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
        assert!(!ci, "{program} is not installed, and CI is set: nothing is skipped there");
        eprintln!("skipped: {program} is not installed; scripts/setup {program} installs it");
    }
    found
}

/// Polls until a condition holds. Only for states that no event announces to a test: the state of
/// tmux as another client sees it, or the end of a process that is not a child. Everything else is
/// awaited.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns whether no part of a response has arrived yet.
pub fn is_silent(stream: &UnixStream) -> bool {
    let mut fds = [rustix::event::PollFd::new(stream, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).unwrap() == 0
}

/// Returns the processor time of a process, in the kernel's ticks.
#[cfg(target_os = "linux")]
pub fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// A stopped process, so that a test can act in the middle of a request to it. It continues when
/// this value is dropped.
pub struct Stopped(u32);

impl Stopped {
    pub fn new(pid: u32) -> Self {
        signal(pid, rustix::process::Signal::STOP);
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(self.0, rustix::process::Signal::CONT);
    }
}

/// A test's directory, tmux socket and daemon.
pub struct World {
    dir: TempDir,
    socket: PathBuf,
    env: Vec<(String, String)>,
    extra_sockets: Mutex<Vec<PathBuf>>,
    /// Whether a server may end by a signal of its own: a defect of tmux that the test meets.
    may_crash: AtomicBool,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// Creates a world without a running tmux server or daemon.
    pub fn new() -> Self {
        // Short, since a socket's path has at most 107 bytes.
        let dir = tempfile::Builder::new().prefix("mt-").tempdir_in("/tmp").unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        for name in ["home", "run", "state", "work"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let mut env: Vec<(String, String)> = [
            ("HOME", at("home")),
            ("XDG_RUNTIME_DIR", at("run")),
            ("XDG_STATE_HOME", at("state")),
            ("XDG_CONFIG_HOME", at("home")),
            ("TMUX_TMPDIR", at("run")),
            ("MUXTAP_SOCKET", at("m.sock")),
            ("MUXTAP_TMUX", tmux_program()),
            ("SHELL", "/bin/sh".into()),
            ("TERM", "xterm-256color".into()),
            ("LANG", "C.UTF-8".into()),
            ("LC_ALL", "C.UTF-8".into()),
            ("HISTFILE", "/dev/null".into()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        for name in ["PATH", "LLVM_PROFILE_FILE", "USER", "LOGNAME", "MUXTAP_LOG"] {
            if let Ok(value) = std::env::var(name) {
                env.push((name.into(), value));
            }
        }
        let socket = dir.path().join("t");
        adopt_orphans();
        Self { dir, socket, env, extra_sockets: Mutex::default(), may_crash: AtomicBool::new(false) }
    }

    /// Creates a world with a tmux server that was not started by muxtap, with one session `main`
    /// of 80x24 that runs `sh`.
    pub fn with_server() -> Self {
        let world = Self::new();
        world.session("main");
        world
    }

    /// Sets the coverage of servers, regardless of use.
    pub fn with_coverage(mut self, how: &str) -> Self {
        self.set("MUXTAP_COVERAGE", how);
        self
    }

    /// Makes muxtap follow flooding panes on every version of tmux, for tests about following
    /// floods.
    pub fn with_floods_followed(mut self) -> Self {
        self.set("MUXTAP_FLOODS", "follow");
        self
    }

    /// Sets a variable for all processes started from now on.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.into(), value.into()));
    }

    /// Returns the world's directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns a path in the world's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the tmux server's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the daemon's socket.
    pub fn daemon_socket(&self) -> PathBuf {
        let set = self.env.iter().find(|(name, _)| name == "MUXTAP_SOCKET");
        PathBuf::from(&set.unwrap().1)
    }

    /// Builds a command in the world's environment and directory.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(self.env.iter().map(|(name, value)| (name, value))).current_dir(self.path("work"));
        command
    }

    /// Calls tmux on this world's server; it must succeed. Returns stdout without its last newline.
    pub fn tmux(&self, args: &[&str]) -> String {
        self.tmux_at(&self.socket, args)
    }

    /// Calls tmux on another socket, whose server is ended with the world; it must succeed. Returns
    /// stdout without its last newline.
    pub fn tmux_at(&self, socket: &Path, args: &[&str]) -> String {
        let answer = self.try_tmux_at(socket, args);
        assert_eq!(answer.status, 0, "tmux {args:?}: {answer:?}");
        let text = answer.text();
        text.strip_suffix('\n').unwrap_or(&text).to_owned()
    }

    fn try_tmux_at(&self, socket: &Path, args: &[&str]) -> Answer {
        let mut known = self.extra_sockets.lock().unwrap();
        if socket != self.socket && !known.iter().any(|other| other == socket) {
            known.push(socket.to_owned());
        }
        drop(known);
        run(self.tmux_command(socket).args(args))
    }

    /// Builds the start of a tmux command line.
    pub fn tmux_command(&self, socket: &Path) -> Command {
        let mut command = self.command(tmux_program());
        command.arg("-f/dev/null").arg("-u").arg("-S").arg(socket);
        command
    }

    /// Creates a session by plain tmux; returns its pane.
    pub fn session(&self, name: &str) -> String {
        self.tmux(&["new-session", "-d", "-s", name, "-x", "80", "-y", "24", "-P", "-F", "#{pane_id}"])
    }

    /// Creates a window that runs this command by plain tmux; returns its pane.
    pub fn window(&self, command: &str) -> String {
        self.tmux(&["new-window", "-d", "-P", "-F", "#{pane_id}", command])
    }

    /// Registers the tmux server on this socket, so that it is ended with the world.
    pub fn also_end(&self, socket: impl Into<PathBuf>) {
        self.extra_sockets.lock().unwrap().push(socket.into());
    }

    /// Builds the start of a muxtap command line, without `-S`. `MUXTAP_TEST_BIN` names another
    /// build of it.
    pub fn plain_muxtap_command(&self) -> Command {
        self.command(std::env::var_os("MUXTAP_TEST_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_muxtap").into()))
    }

    /// Returns the file of `muxtapd`, which contains both programs.
    pub fn muxtapd(&self) -> PathBuf {
        Path::new(self.plain_muxtap_command().get_program()).with_file_name("muxtapd")
    }

    /// Builds the start of a muxtap command line for this world's tmux server.
    pub fn muxtap_command(&self, args: &[&str]) -> Command {
        let mut command = self.plain_muxtap_command();
        command.arg("-S").arg(&self.socket).args(args);
        command
    }

    /// Calls muxtap for this world's tmux server.
    pub fn muxtap(&self, args: &[&str]) -> Answer {
        run(&mut self.muxtap_command(args))
    }

    /// Calls muxtap for this world's tmux server with this stdin.
    pub fn muxtap_with_stdin(&self, args: &[&str], stdin: &[u8]) -> Answer {
        let mut process = Background::start(&mut self.muxtap_command(args));
        // It may refuse before it has read everything.
        let _ = process.stdin().write_all(stdin);
        process.finish()
    }

    /// Calls muxtap; it must succeed. Returns stdout without its last newline.
    pub fn ok(&self, args: &[&str]) -> String {
        let answer = self.muxtap(args);
        assert_eq!(answer.status, 0, "muxtap {args:?}: {answer:?}");
        let text = answer.text();
        text.strip_suffix('\n').unwrap_or(&text).to_owned()
    }

    /// Calls muxtap with `--json`; it must succeed. Returns its JSON.
    pub fn json(&self, args: &[&str]) -> Value {
        let answer = self.muxtap(&[&["--json"], args].concat());
        assert_eq!(answer.status, 0, "muxtap {args:?}: {answer:?}");
        answer.json()
    }

    /// Calls muxtap with `--json`; it must fail with this error code. Returns the message.
    pub fn error(&self, code: &str, args: &[&str]) -> String {
        let answer = self.muxtap(&[&["--json"], args].concat());
        assert_ne!(answer.status, 0, "muxtap {args:?}: {answer:?}");
        let error = answer.error();
        assert_eq!(error["code"], code, "muxtap {args:?}: {error}");
        error["message"].as_str().unwrap().to_owned()
    }

    /// Starts muxtap beside the test.
    pub fn spawn(&self, args: &[&str]) -> Background {
        Background::start(&mut self.muxtap_command(args))
    }

    /// Waits until a pane's output since its start matches a pattern.
    pub fn await_output(&self, pane: &str, pattern: &str) {
        self.ok(&["wait-for", "-t", pane, "-p", pattern, "--since", "start", "-T", "40"]);
    }

    /// Returns a pane's retained output as text.
    pub fn read_all(&self, pane: &str) -> String {
        let answer = self.muxtap(&["read", "-t", pane, "--since", "start"]);
        assert_eq!(answer.status, 0, "read {pane}: {answer:?}");
        answer.text()
    }

    /// Returns the names of the sessions that muxtap lists.
    pub fn sessions(&self) -> Vec<String> {
        names(&self.json(&["list-sessions"])["sessions"], "name")
    }

    /// Returns the ids of the live panes that muxtap lists.
    pub fn panes(&self) -> Vec<String> {
        let panes = self.json(&["list-panes"]);
        let live: Vec<Value> =
            panes["panes"].as_array().unwrap().iter().filter(|pane| pane["dead"] == false).cloned().collect();
        names(&Value::Array(live), "id")
    }

    /// Sends a request to the daemon's socket and returns the response. `path` is the whole request
    /// target.
    pub fn http(&self, method: &str, path: &str, body: Option<&Value>) -> Http {
        Http::read(self.http_send(method, path, body))
    }

    /// Sends a request and leaves the response to the caller.
    pub fn http_send(&self, method: &str, path: &str, body: Option<&Value>) -> UnixStream {
        self.http_send_with("", method, path, body)
    }

    /// Sends a request with further headers, each followed by `\r\n`.
    pub fn http_send_with(&self, headers: &str, method: &str, path: &str, body: Option<&Value>) -> UnixStream {
        let body = body.map(|body| serde_json::to_vec(body).unwrap()).unwrap_or_default();
        let mut stream = UnixStream::connect(self.daemon_socket()).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: muxtap\r\nconnection: close\r\ncontent-type: application/json\r\n{headers}\
             content-length: {}\r\n\r\n",
            body.len()
        );
        // In one write: a server that responds without reading the body closes the connection, and
        // bytes in flight then reset it.
        let _ = stream.write_all(&[head.as_bytes(), &body].concat());
        stream
    }

    /// Returns the value of one of the daemon's metrics.
    pub fn metric(&self, name: &str) -> u64 {
        let text = String::from_utf8(self.http("GET", "/metrics", None).body).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}: {text}"))
    }

    /// Returns `?socket=…` for this world's tmux server.
    pub fn query(&self) -> String {
        format!("?socket={}", self.socket.display())
    }

    /// Returns the daemon's process id, if a daemon responds.
    pub fn daemon_pid(&self) -> Option<u32> {
        let answer = self.muxtap(&["--json", "status"]);
        (answer.status == 0).then(|| u32::try_from(answer.json()["pid"].as_u64().unwrap()).unwrap())
    }

    /// Kills the daemon without letting it act, and waits until it is gone.
    pub fn kill_daemon(&self, how: rustix::process::Signal) {
        let pid = self.daemon_pid().expect("a daemon runs");
        let end = ProcessEnd::of(pid);
        signal(pid, how);
        end.wait();
    }

    /// Returns the tmux server's process id.
    pub fn server_pid(&self) -> u32 {
        self.tmux(&["display-message", "-p", "#{pid}"]).parse().unwrap()
    }

    /// Ends this world's tmux servers.
    pub fn end_servers(&self) {
        let sockets = self.extra_sockets.lock().unwrap().clone();
        for socket in sockets.iter().chain([&self.socket]) {
            if socket.exists() {
                end_server(self.tmux_command(socket).arg("kill-server").stdout(Stdio::null()).stderr(Stdio::null()));
            }
        }
    }

    /// Returns the world's running processes: ids and command lines. A child with its parent's
    /// program counts as the parent's: it is about to start its own program, or is a shell's
    /// subshell.
    pub fn processes(&self) -> Vec<(u32, String)> {
        let mut found = Vec::new();
        let mark = self.dir.path().display().to_string().into_bytes();
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        for entry in entries.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
            let ours = |bytes: &[u8]| bytes.windows(mark.len()).any(|window| window == mark);
            if pid != std::process::id() && ours(&read("environ")) && is_alive(pid) {
                let parent = parent_whose_program_runs(&String::from_utf8_lossy(&read("stat")));
                found.push((pid, parent, String::from_utf8_lossy(&read("cmdline")).replace('\0', " ")));
            }
        }
        let all: BTreeMap<u32, String> = found.iter().map(|(pid, _, line)| (*pid, line.clone())).collect();
        found.retain(|(_, parent, line)| parent.is_none_or(|parent| all.get(&parent) != Some(line)));
        found.into_iter().map(|(pid, _, line)| (pid, line)).collect()
    }
}

/// Returns the parent of a process that has not started its own program (`PF_FORKNOEXEC`), from its
/// `/proc/PID/stat`.
fn parent_whose_program_runs(stat: &str) -> Option<u32> {
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let flags: u32 = fields.get(6)?.parse().ok()?;
    if flags & 0x40 == 0 { None } else { fields.get(1)?.parse().ok() }
}

impl World {
    /// Accepts that a server ends by a signal: the test met a known defect of tmux, and says so.
    pub fn may_crash(&self) {
        self.may_crash.store(true, Ordering::Relaxed);
    }

    /// Prints the last lines of the daemon's log, for the reader of a failure. `MUXTAP_LOG=debug`
    /// logs more.
    fn print_log(&self) {
        let log = fs::read_to_string(self.daemon_socket().with_extension("sock.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let shown = &lines[lines.len().saturating_sub(60)..];
        println!("the daemon's last {} of {} lines:\n{}", shown.len(), lines.len(), shown.join("\n"));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = run(self.plain_muxtap_command().arg("stop"));
        self.end_servers();
        // The panes' programs end by themselves once their terminals are gone; nothing announces it
        // to the test.
        let start = Instant::now();
        while !self.processes().is_empty() && start.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(10));
        }
        let left = self.processes();
        for (pid, _) in &left {
            signal(*pid, rustix::process::Signal::KILL);
        }
        if std::thread::panicking() {
            self.print_log();
        }
        assert!(left.is_empty() || std::thread::panicking(), "left behind: {left:?}");
        let mut crashed = crashed_servers();
        println!("tmux servers died of a signal: {}", crashed.len());
        if self.may_crash.load(Ordering::Relaxed) {
            crashed.clear();
        }
        assert!(crashed.is_empty() || std::thread::panicking(), "tmux servers died of a signal: {crashed:?}");
    }
}

/// Makes this process the parent of its children's orphans, so that it learns how a tmux server
/// ended.
fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
}

/// Returns the tmux servers that ended by a signal of their own, such as a segmentation fault:
/// process ids and signals.
fn crashed_servers() -> Vec<(i32, i32)> {
    let own = std::process::id().to_string();
    let mut crashed = Vec::new();
    let Ok(entries) = fs::read_dir("/proc") else { return crashed };
    for stat in entries.flatten().filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok()) {
        let Some((pid, rest)) = stat.split_once(" (") else { continue };
        let Some((name, rest)) = rest.rsplit_once(") ") else { continue };
        let mut fields = rest.split(' ');
        // The name has the program's name and at most 15 bytes: "tmux-3.5a: serv".
        let is_server = name.starts_with("tmux") && name.contains(": s");
        if !is_server || fields.next() != Some("Z") || fields.next() != Some(&own) {
            continue;
        }
        let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
        let status = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG).ok().flatten();
        let by = status.and_then(|(_, status)| status.terminating_signal());
        // Tests that end a server by a signal use the first two. The third ends what a server has
        // forked for a pane, before it becomes the pane's program, when the terminal closes.
        let meant = [rustix::process::Signal::KILL, rustix::process::Signal::TERM, rustix::process::Signal::HUP];
        let meant = meant.map(rustix::process::Signal::as_raw);
        crashed.extend(by.filter(|by| !meant.contains(by)).map(|by| (pid.as_raw_nonzero().get(), by)));
    }
    crashed
}

/// A server that does not end is killed by its world.
fn end_server(command: &mut Command) {
    let Ok(mut child) = command.spawn() else { return };
    let mut watchdog = Watchdog::on(child.id(), LIMIT);
    let _ = child.wait();
    watchdog.end();
}

/// Returns one field of each object of a list.
pub fn names(list: &Value, field: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|item| item[field].as_str().unwrap().to_owned()).collect()
}
