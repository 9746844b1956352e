//! Private tmux servers and a private daemon, and their cleanup.

use std::{
    fs::File,
    io::Write,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tempfile::TempDir;

use super::http::Http;

/// The sockets of running servers, for the cleanup after an interrupt.
static RUNNING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn running() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends every server on SIGINT and SIGTERM, so that none is left. Daemons end by the signal, or
/// when their servers do.
pub fn clean_up_when_interrupted() {
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let mut terminate = signal(SignalKind::terminate()).expect("signals");
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            for socket in running().iter() {
                if socket.extension().is_some() {
                    let _ =
                        Command::new(env!("CARGO_BIN_EXE_muxtap")).arg("stop").env("MUXTAP_SOCKET", socket).status();
                } else {
                    kill_server(socket);
                }
            }
            std::process::exit(130);
        });
    });
}

/// Registers a server that another process starts on this socket (without a dot in its name), so
/// that it is ended too.
pub fn ends_with_us(socket: PathBuf) {
    running().push(socket);
}

/// Ends a server.
pub fn end_server(socket: &Path) {
    kill_server(socket);
    running().retain(|running| running != socket);
}

fn kill_server(socket: &Path) {
    let _ = Command::new("tmux").arg("-S").arg(socket).arg("kill-server").stderr(Stdio::null()).status();
}

/// A private tmux server.
pub struct Tmux {
    dir: TempDir,
    socket: PathBuf,
}

impl Tmux {
    /// Starts a server whose first pane, 200 columns and 50 rows, runs `command`.
    pub fn new(command: &str) -> Self {
        let dir = TempDir::new().expect("a directory");
        let socket = dir.path().join("s");
        let tmux = Self { dir, socket };
        running().push(tmux.socket.clone());
        let size = ["-x", "200", "-y", "50"];
        let made = tmux.command().args(["-f", "/dev/null", "new-session", "-d"]).args(size).arg(command).status();
        assert!(made.expect("tmux is installed").success());
        tmux
    }

    /// Starts a server whose first pane runs an actor of [`super::actors`].
    pub fn playing(part: &str) -> (Self, Fifo) {
        let fifo = Fifo::new();
        (Self::new(&fifo.command(part)), fifo)
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Builds a call of `tmux` on this server.
    pub fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-u").arg("-S").arg(&self.socket).env_remove("TMUX").env_remove("TMUX_PANE");
        command
    }

    /// Runs `tmux` on this server; returns its output.
    pub fn ask(&self, args: &[&str]) -> String {
        let output = self.command().args(args).output().expect("tmux runs");
        assert!(output.status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Creates another window that runs `command`.
    pub fn window(&self, command: &str) -> String {
        self.ask(&["new-window", "-d", "-P", "-F", "#{pane_id}", command])
    }

    /// Creates this many more windows that run `cat`.
    pub fn windows(&self, count: usize) {
        let file = self.dir.path().join("windows");
        std::fs::write(&file, "new-window -d 'exec cat'\n".repeat(count)).expect("a file");
        self.ask(&["source-file", file.to_str().expect("UTF-8")]);
    }

    pub fn pid(&self) -> u32 {
        self.ask(&["display-message", "-p", "#{pid}"]).parse().expect("a process id")
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        kill_server(&self.socket);
        running().retain(|socket| *socket != self.socket);
    }
}

/// The FIFO by which an actor in a pane gets its instructions.
pub struct Fifo {
    dir: TempDir,
    file: File,
}

impl Fifo {
    pub fn new() -> Self {
        let dir = TempDir::new().expect("a directory");
        let path = dir.path().join("fifo");
        let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
        assert!(made.success());
        let file = File::options().read(true).write(true).open(&path).expect("the FIFO was made");
        Self { dir, file }
    }

    /// Returns the shell command that runs the actor `part`.
    pub fn command(&self, part: &str) -> String {
        let program = std::env::current_exe().expect("this program");
        format!("exec {} __{part} {}", program.display(), self.dir.path().join("fifo").display())
    }

    pub fn tell(&self, line: &str) {
        (&self.file).write_all(format!("{line}\n").as_bytes()).expect("the FIFO takes it");
    }
}

/// A private daemon.
pub struct Daemon {
    child: Child,
    dir: TempDir,
}

impl Daemon {
    pub fn new(args: &[&str]) -> Self {
        Self::with_config(args, "")
    }

    /// Starts a daemon with this configuration file.
    pub fn with_config(args: &[&str], config: &str) -> Self {
        let dir = TempDir::new().expect("a directory");
        let file = dir.path().join("config.toml");
        std::fs::write(&file, config).expect("a file");
        let socket = dir.path().join("muxtap.sock");
        let child = Command::new(env!("CARGO_BIN_EXE_muxtap"))
            .arg("serve")
            .args(args)
            .env("MUXTAP_SOCKET", &socket)
            .env("MUXTAP_CONFIG", &file)
            // The engine is measured, not the attachment of its clients.
            .env("MUXTAP_COVERAGE", "sessions")
            .env("MUXTAP_FLOODS", "follow")
            .env_remove("TMUX")
            .env_remove("TMUX_PANE")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(dir.path().join("log")).expect("a log"))
            .spawn()
            .expect("muxtap runs");
        let daemon = Self { child, dir };
        running().push(daemon.socket());
        while UnixStream::connect(daemon.socket()).is_err() {
            std::thread::sleep(Duration::from_millis(2));
        }
        daemon
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("muxtap.sock")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Connects to the daemon for requests about this server.
    pub fn http(&self, tmux: &Tmux) -> Http {
        Http::new(&self.socket(), tmux.socket())
    }

    /// Returns the address of its first TCP port, and the token for it.
    pub fn port(&self) -> (String, String) {
        let ask = |command: &str| {
            let mut muxtap = Command::new(env!("CARGO_BIN_EXE_muxtap"));
            let output =
                muxtap.args(["--json", command]).env("MUXTAP_SOCKET", self.socket()).output().expect("it runs");
            serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON")
        };
        let url = ask("status")["http"][0].as_str().expect("it listens").to_owned();
        let token = ask("token")["token"].as_str().expect("a token").to_owned();
        (url.trim_start_matches("http://").to_owned(), token)
    }

    /// Sends requests about the server until `panes` of its panes are followed.
    pub fn follow(&self, tmux: &Tmux, panes: u64) -> Http {
        let mut http = self.http(tmux);
        let listed = http.get("/v1/panes");
        assert!(listed["panes"].is_array(), "{listed}");
        while http.get("/v1/status")["servers"][0]["panes"] != panes {
            std::thread::sleep(Duration::from_millis(1));
        }
        http
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let socket = self.socket();
        let stopped = Command::new(env!("CARGO_BIN_EXE_muxtap")).arg("stop").env("MUXTAP_SOCKET", &socket).output();
        if !stopped.is_ok_and(|output| output.status.success()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        running().retain(|running| *running != socket);
    }
}
