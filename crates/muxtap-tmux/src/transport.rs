//! The way to a tmux server on another host: a command in front of tmux, such as `ssh HOST` or
//! `docker exec -i NAME`.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use muxtap_api::{Error, Result, Unreachable};
use muxtap_base::{descriptors, quoting::shell_word};
use tokio::process::Command;

use super::{link::UNANSWERED, orphans::ClientName};

/// Runs a control client (`"$@"`) behind ssh, and kills it a second after ssh's end of its standard
/// input is closed if it has not left by then. A server that was writing to it when the link was
/// cut would keep it forever, and would not end itself (N94); with its process it goes. sshd kills
/// no process of a cut ssh session.
///
/// The empty line ends what the shell's startup files printed, such as a title. `cat` passes on
/// ssh's input and so notices its end; no other process may read that input. A watcher reads
/// events: `k` and `t` name the processes of `cat` and of tmux, `c` and `e` report that they have
/// ended. Output does not pass through.
const KEEPER: &str = "echo; exec 4<&0 7>&1; { { exec 7>&-; cat <&4 & echo k $! >&6; wait; echo c >&6; } 2>/dev/null | \
                      { exec 3<&0 4<&- </dev/null; \"$@\" <&3 3<&- 6>&- >&7 7>&- & echo t $! >&6; exec 3<&- 7>&-; wait; \
                      echo e >&6; }; } 6>&1 >&7 | { exec 4<&- 7>&-; while read w p; do case $w in k) k=$p;; t) t=$p;; \
                      c) c=1;; e) e=1;; esac; if [ \"$c\" ] && [ \"$t\" ] && [ -z \"$g\" ]; then { sleep 1; kill -9 $t; } \
                      >/dev/null & g=$!; fi; if [ \"$e\" ] && [ \"$k\" ]; then kill $k $g; exit; fi; done; } 2>/dev/null";

/// Runs a command (`"$@"`) behind ssh. What the shell's startup files printed ends with
/// [`ANNOUNCEMENT`].
const ANNOUNCER: &str = "printf '\\nmuxtap:\\n'; exec \"$@\"";
/// The end of what startup files printed, before a command's own output.
const ANNOUNCEMENT: &[u8] = b"\nmuxtap:\n";

/// Time that another host has for a connection and the first reply over it: connecting, a login, the
/// shell's startup files and tmux. A link that is established is judged by its silence instead.
pub const FIRST_ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Programs that pass one text to a shell on the other side, as ssh does.
const BY_SHELL: [&str; 2] = ["ssh", "autossh"];
/// Programs that run a command in a container.
const RUNTIMES: [&str; 4] = ["docker", "podman", "nerdctl", "kubectl"];
/// Programs below these, which run a command in a container of a bundle.
const LOW_RUNTIMES: [&str; 3] = ["runc", "crun", "youki"];
/// A runtime's message that a container has no running processes, but not why.
const IMPROPER: &str = "container state improper";
/// The beginning of the line that `muxtap stdio` prints when it is connected; the daemon's version
/// follows.
pub const PEER_GREETING: &str = "muxtap-peer 1 ";
/// The line that reports that the host has no muxtap.
pub const NO_PEER: &str = "muxtap-peer none";
const HAS_MUXTAP: &str = "command -v muxtap >/dev/null 2>&1";
/// Options for ssh unless the prefix has them: it never prompts, and it notices a dead link.
const SSH_OPTIONS: [(&str, &str); 4] =
    [("BatchMode", "yes"), ("ConnectTimeout", "8"), ("ServerAliveInterval", "15"), ("ServerAliveCountMax", "3")];

/// The way to the tmux servers of one host: a name, and a command that runs programs on it.
#[derive(Debug)]
pub struct Transport {
    name: String,
    words: Vec<String>,
    /// Whether a shell on the other side reads the command.
    by_shell: bool,
    /// The tmux program on the host.
    tmux: PathBuf,
    /// The path at which a login shell on the host found tmux.
    found: Mutex<Option<PathBuf>>,
    /// Whether the host's muxtap is used.
    peer: PeerChoice,
    /// The socket of a connected ssh, through which others share its connection.
    shared: Mutex<Option<PathBuf>>,
    /// Whether the host is a member of a fleet: no command reaches it.
    is_in_fleet: bool,
    /// Takes the place of every process that the transport would start.
    #[cfg(feature = "played")]
    played: Option<std::sync::Arc<dyn super::played::PlayedTmux>>,
}

/// Whether the muxtap of another host serves the requests for its tmux servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PeerChoice {
    /// If it is found on the `PATH` of a command, or of a login shell.
    #[default]
    Found,
    /// This program.
    Program(String),
    /// Never: this muxtap runs tmux on the host itself.
    Never,
}

impl Transport {
    /// Creates the way to the host called `name`, by a command such as `["ssh", "box"]`. `tmux`:
    /// the program on the host.
    ///
    /// Error: `INVALID_ARGUMENT` for a name that no target could contain, for an empty command, and
    /// for a container's command that would leave its stdin closed.
    pub fn new(name: &str, words: Vec<String>, tmux: impl Into<PathBuf>) -> Result<Self> {
        check_name(name)?;
        let program = words.first().filter(|program| !program.is_empty());
        let Some(program) = program.map(|program| program_name(program).to_owned()) else {
            return Err(Error::invalid(format!(
                "host {name}: empty command; give one that reaches it, such as `ssh {name}` or `docker exec -i {name}`"
            )));
        };
        if RUNTIMES.contains(&program.as_str()) && words.iter().any(|word| word == "exec") {
            let interactive = |word: &String| {
                word == "--interactive"
                    || word.starts_with('-') && !word.starts_with("--") && word.contains('i') && !word.contains('=')
            };
            if !words.iter().any(interactive) {
                return Err(Error::invalid(format!(
                    "host {name}: `{}` closes the standard input of what it runs; add -i",
                    words.join(" ")
                )));
            }
        }
        // Also behind `sudo`, `env`, `timeout` …
        let by_shell = words.iter().any(|word| BY_SHELL.contains(&program_name(word)));
        Ok(Self {
            name: name.into(),
            words,
            by_shell,
            tmux: tmux.into(),
            found: Mutex::default(),
            peer: PeerChoice::default(),
            shared: Mutex::default(),
            is_in_fleet: false,
            #[cfg(feature = "played")]
            played: None,
        })
    }

    /// Creates the way to a host whose tmux a test plays. No process is started for it.
    ///
    /// Error: `INVALID_ARGUMENT` for a name that no target could contain.
    #[cfg(feature = "played")]
    pub fn to_played(name: &str, played: std::sync::Arc<dyn super::played::PlayedTmux>) -> Result<Self> {
        Ok(Self { played: Some(played), ..Self::new(name, vec!["played".to_owned()], "tmux")? })
    }

    /// Returns the tmux that a test plays.
    #[cfg(feature = "played")]
    pub(super) fn played(&self) -> Option<&dyn super::played::PlayedTmux> {
        self.played.as_deref()
    }

    /// Creates the way to a host of the fleet: its muxtap alone can be reached.
    ///
    /// Error: `INVALID_ARGUMENT` for a name that no target could contain.
    pub fn in_fleet(name: &str) -> Result<Self> {
        Ok(Self { words: Vec::new(), is_in_fleet: true, ..Self::new(name, vec![name.to_owned()], "tmux")? })
    }

    /// Returns whether the host is reached over a fleet, not by a command.
    pub fn is_in_fleet(&self) -> bool {
        self.is_in_fleet
    }

    /// Returns whether programs are run in this container, by a container runtime.
    pub fn is_container(&self, container: &str) -> bool {
        let runtime = self.words.iter().position(|word| RUNTIMES.contains(&program_name(word)));
        let (program, line) = match runtime.and_then(|at| self.words.get(at..)?.split_first()) {
            Some((program, line)) => (program_name(program), line),
            None => return false,
        };
        let Some(exec) = line.iter().position(|word| word == "exec") else { return false };
        let mut words = line.get(exec + 1..).unwrap_or_default().iter().rev().skip_while(|word| *word == "--");
        // kubectl takes options behind the name, too.
        words.next().is_some_and(|word| word == container)
            || program == "kubectl" && words.any(|word| word == container)
    }

    /// Sets whether the host's muxtap is used.
    pub fn with_peer(self, peer: PeerChoice) -> Self {
        Self { peer, ..self }
    }

    /// Creates a transport from a command in one text, split as a shell splits words.
    pub fn parse(name: &str, prefix: &str, tmux: impl Into<PathBuf>) -> Result<Self> {
        Self::new(name, split(prefix)?, tmux)
    }

    /// Splits `NAME=COMMAND`; the name may be missing.
    pub fn split_name(text: &str) -> (Option<&str>, &str) {
        match text.split_once('=') {
            Some((name, command)) if check_name(name).is_ok() => (Some(name), command),
            _ => (None, text),
        }
    }

    /// Returns the name for a command that is given without one: the valid characters of its last
    /// word that is not an option, without a user.
    pub fn name_of(prefix: &str) -> Result<String> {
        let words = split(prefix)?;
        let last = words.iter().rev().find(|word| !word.starts_with('-'));
        let host = last.map(|word| word.rsplit_once('@').map_or(word.as_str(), |(_, host)| host));
        let name: String = host.unwrap_or_default().chars().filter(|&c| is_name_char(c)).collect();
        check_name(&name).map_err(|_| {
            Error::invalid(format!(
                "--via {prefix:?} gives the host no name: use --via NAME=COMMAND, or [host.NAME] in config.toml"
            ))
        })?;
        Ok(name)
    }

    /// Returns the tmux program on the host.
    pub(super) fn program(&self) -> PathBuf {
        self.found().unwrap_or_else(|| self.tmux.clone())
    }

    /// Returns the host's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the command as text, for display.
    pub fn prefix(&self) -> String {
        self.words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
    }

    /// Returns whether `other`, which is requested later, leads to the same place by the same
    /// command.
    pub fn is_same(&self, other: &Self) -> bool {
        let peer = self.peer == other.peer || other.peer == PeerChoice::Found;
        self.is_in_fleet == other.is_in_fleet && self.words == other.words && self.tmux == other.tmux && peer
    }

    /// Returns whether the host's muxtap should be used.
    pub fn peer_choice(&self) -> &PeerChoice {
        &self.peer
    }

    /// Returns the command that connects to the daemon of the host's muxtap. It reports on a line
    /// of its own, after all that a profile prints, that it is connected ([`PEER_GREETING`]) or
    /// that the host has no muxtap ([`NO_PEER`]). `None`: the host's muxtap should not be used.
    ///
    /// `control`: the socket through which others should share the connection, if the command is
    /// ssh. Then the command stays until its stdin is closed, even if the host has no muxtap.
    pub fn peer(&self, control: Option<&Path>) -> Option<Command> {
        let stay = if control.is_some() { "; exec cat >/dev/null" } else { "" };
        let script = match &self.peer {
            PeerChoice::Never => return None,
            PeerChoice::Program(program) => format!("exec {} stdio", shell_word(program)),
            PeerChoice::Found => format!(
                "{HAS_MUXTAP} && exec muxtap stdio; \
                 exec sh -lc '{HAS_MUXTAP} && exec muxtap stdio; echo {NO_PEER}{stay}'"
            ),
        };
        let control = control.map(|socket| (socket, "yes"));
        Some(self.command_sharing(&self.words, ["sh", "-c", &script].map(OsString::from), control))
    }

    /// Returns the command that prints the configuration of ssh for this host; `None` if the
    /// transport is not ssh itself, so its connection cannot be shared.
    pub fn ssh_configuration(&self) -> Option<Command> {
        let (ssh, rest) = self.words.split_first().filter(|(first, _)| program_name(first) == "ssh")?;
        let mut command = Command::new(ssh);
        command.arg("-G").args(rest).kill_on_drop(true);
        Some(command)
    }

    /// Makes all further commands share the connection behind this socket; `None`: no connection
    /// any more.
    pub fn share(&self, control: Option<PathBuf>) {
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = control;
    }

    /// Returns the command that runs tmux on the host.
    pub(super) fn tmux(&self, args: impl IntoIterator<Item = OsString>) -> Command {
        let tmux = self.program();
        self.announced(std::iter::once(tmux.into_os_string()).chain(args))
    }

    /// Returns the command that runs a program on the host for its output, which follows
    /// [`Transport::printed`]'s line.
    pub(super) fn announced(&self, line: impl IntoIterator<Item = OsString>) -> Command {
        let announcer = ["sh", "-c", ANNOUNCER, "muxtap"].into_iter().filter(|_| self.by_shell).map(OsString::from);
        self.command(announcer.chain(line))
    }

    /// Returns what a command printed, without what the shell's startup files printed before it.
    pub(super) fn printed(&self, stdout: Vec<u8>) -> Vec<u8> {
        let begin = memchr::memmem::find(&stdout, ANNOUNCEMENT).filter(|_| self.by_shell);
        match begin.and_then(|at| stdout.get(at + ANNOUNCEMENT.len()..)) {
            Some(own) => own.to_vec(),
            None => stdout,
        }
    }

    /// Returns the command of a control client on the host, which identifies itself as `name`.
    pub(super) fn client(&self, name: Option<&ClientName>, args: impl IntoIterator<Item = OsString>) -> Command {
        let tmux = self.program();
        let term = name.into_iter().flat_map(|name| ["env".into(), format!("TERM={}", name.term()).into()]);
        let args: Vec<_> = args.into_iter().collect();
        // A command that only sends a query ends by itself, and its status counts.
        let is_kept = self.by_shell && args.iter().any(|word| word == "-C");
        let keeper = ["sh", "-c", KEEPER, "muxtap-client"].into_iter().filter(|_| is_kept).map(OsString::from);
        let line = keeper.chain(term).chain([tmux.into_os_string()]).chain(args);
        if is_kept { self.command(line) } else { self.announced(line) }
    }

    /// Returns the command that runs a program on the host.
    pub(super) fn command(&self, line: impl IntoIterator<Item = OsString>) -> Command {
        let line: Vec<_> = line.into_iter().collect();
        // Control clients have connections of their own: several that are lost at once can crash a
        // server (N26).
        let stays = line.iter().any(|word| word == "-C");
        let shared = self.shared_socket().filter(|_| !stays);
        // If ssh is refused, such as the eleventh at once, it connects by itself.
        self.command_sharing(&self.words, line, shared.as_deref().map(|socket| (socket, "no")))
    }

    /// Returns the socket of a connected ssh.
    fn shared_socket(&self) -> Option<PathBuf> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // ssh passes its data to any process that listens on the socket.
        shared.filter(|socket| muxtap_base::files::is_own(socket))
    }

    /// Returns the command that runs `line` behind `words`, this transport's own or their beginning.
    fn command_sharing(
        &self,
        words: &[String],
        line: impl IntoIterator<Item = OsString>,
        control: Option<(&Path, &str)>,
    ) -> Command {
        let (first, rest) =
            words.split_first().map_or((OsStr::new(""), &[][..]), |(first, rest)| (first.as_ref(), rest));
        let mut command = Command::new(first);
        if self.by_shell {
            let is_given = |option: &str| rest.iter().any(|word| word.contains(option));
            // Options of ssh come right behind it.
            let ssh = rest.iter().rposition(|word| BY_SHELL.contains(&program_name(word)));
            let (before, behind) = rest.split_at_checked(ssh.map_or(0, |at| at + 1)).unwrap_or((&[], rest));
            command.args(before);
            command.args(Some("-T").filter(|_| !rest.iter().any(|word| word == "-T" || word == "-t")));
            for (name, value) in SSH_OPTIONS.iter().filter(|(name, _)| !is_given(name)) {
                command.arg("-o").arg(format!("{name}={value}"));
            }
            if let Some((socket, master)) = control {
                command.arg("-o").arg(format!("ControlPath={}", socket.display()));
                command.arg("-o").arg(format!("ControlMaster={master}"));
            }
            command.args(behind);
        } else {
            command.args(rest);
        }
        if self.by_shell {
            let words = line.into_iter().map(|word| shell_word(&word.to_string_lossy()));
            command.arg(words.collect::<Vec<_>>().join(" "));
        } else {
            command.args(line);
        }
        command.kill_on_drop(true);
        command
    }

    fn found(&self) -> Option<PathBuf> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps the path that a login shell on the host printed. Returns whether it is new.
    pub(super) fn learn(&self, printed: &[u8]) -> bool {
        let text = String::from_utf8_lossy(printed);
        // A profile may print before it.
        let Some(path) = text.lines().rev().map(str::trim).find(|line| line.starts_with('/')) else { return false };
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = found.as_deref() != Some(Path::new(path));
        *found = Some(path.into());
        is_new
    }

    /// Returns the command by which a login shell on the host prints tmux's path: the `PATH` of a
    /// command that ssh or a container runs lacks what a user's profile adds.
    pub(super) fn search(&self) -> Command {
        let tmux = shell_word(&self.tmux.to_string_lossy());
        self.command(["sh", "-lc", &format!("command -v {tmux}")].map(OsString::from))
    }

    /// Returns why a command failed, from its stderr; `None` if the text is tmux's own.
    pub fn reason(&self, said: &str) -> Option<Unreachable> {
        reason(said, self.words.iter().any(|word| is_runtime(word)))
    }

    /// Adds the state of the container to what a runtime said, if that leaves open whether the container
    /// is paused or stopped.
    pub async fn with_state(&self, said: String, limit: Duration) -> String {
        let Some(mut state) = self.container_state(&said) else { return said };
        let asked = state.stdin(Stdio::null()).stderr(Stdio::null()).output();
        let Ok(Ok(state)) = tokio::time::timeout(limit, asked).await else { return said };
        let stdout = String::from_utf8_lossy(&state.stdout);
        // Over ssh a profile may print before it.
        match stdout.lines().map(str::trim).rfind(|line| !line.is_empty()) {
            Some(state_said) if state.status.success() => format!("{said}: {state_said}"),
            _ => said,
        }
    }

    fn container_state(&self, said: &str) -> Option<Command> {
        let exec = self.words.iter().position(|word| word == "exec").filter(|_| said.contains(IMPROPER))?;
        let (runtime, name) = (self.words.get(..exec)?, self.words.iter().rfind(|word| *word != "--")?);
        let line = ["inspect", "--format", "{{.State.Status}}", name].map(OsString::from);
        let shared = self.shared_socket();
        Some(self.command_sharing(runtime, line, shared.as_deref().map(|socket| (socket, "no"))))
    }

    /// Returns the error for a host that sent no reply in time.
    pub fn silent(&self, limit: Duration) -> Error {
        let (name, prefix, seconds) = (&self.name, self.prefix(), limit.as_secs());
        Error::unavailable(format!(
            "{UNANSWERED}host {name}: no reply over its link within {seconds} s; does `{prefix} true` work?"
        ))
        .with_details(serde_json::json!({ "host": name, "reason": Unreachable::NoConnection }))
    }

    /// Returns the error for a command that does not start.
    pub fn cannot_run(&self, error: &std::io::Error) -> Error {
        if descriptors::are_out(error) {
            let mut error = descriptors::error();
            error.message = format!("host {}: cannot run `{}`: {}", self.name, self.prefix(), error.message);
            return error;
        }
        let reason = if self.words.first().is_some_and(|word| is_runtime(word)) {
            Unreachable::NoRuntime
        } else {
            Unreachable::NoConnection
        };
        Error::unavailable(format!(
            "host {}: cannot run `{}`: {error}; is that program installed on this machine?",
            self.name,
            self.prefix()
        ))
        .with_details(serde_json::json!({ "host": self.name, "reason": reason }))
    }

    /// Returns the error for a host that cannot be reached for this reason.
    pub fn error(&self, reason: Unreachable, said: &str) -> Error {
        let (name, prefix) = (&self.name, self.prefix());
        let (what, hint) = match reason {
            Unreachable::HostKey => (
                "its key is unknown on this machine, or has changed",
                format!("run `{prefix} true` once by hand and check the key"),
            ),
            Unreachable::Login => (
                "it asks for a password, or rejects the key",
                format!(
                    "muxtap cannot enter one: set up a key or an agent until `{prefix} -o BatchMode=yes true` works"
                ),
            ),
            Unreachable::NoConnection => ("it cannot be reached", format!("does `{prefix} true` work?")),
            Unreachable::NoContainer => ("there is no such container", "start it, or correct the name".into()),
            Unreachable::ContainerStopped if said.contains("paused") => {
                ("its container is paused", "unpause it".into())
            }
            Unreachable::ContainerStopped => ("its container is not running", "start it".into()),
            Unreachable::NoTmux => {
                ("it has no tmux", "install tmux 3.2a or later there, or name its program with `tmux` in [host]".into())
            }
            Unreachable::TooOld => ("its tmux is too old", "install tmux 3.2a or later there".into()),
            Unreachable::NoRuntime => ("the container runtime does not respond", format!("does `{prefix} true` work?")),
        };
        let said = said.trim().lines().last().unwrap_or_default();
        let said = if said.is_empty() { String::new() } else { format!(" ({said})") };
        Error::unavailable(format!("host {name}: {what}{said}; {hint}"))
            .with_details(serde_json::json!({ "host": name, "reason": reason }))
    }
}

/// Returns why a command on another host failed, from its stderr; `None` if the text is tmux's own.
fn reason(said: &str, by_runtime: bool) -> Option<Unreachable> {
    let any = |signs: &[&str]| signs.iter().any(|sign| said.contains(sign));
    // The messages of a container runtime are plain English, which a profile over ssh may print as
    // well.
    let runtime = |signs: &[&str]| by_runtime && any(signs);
    // The form in which `sudo` and `env` report a missing program.
    let is_missing = |name: &&str| {
        let words = [": command not found", "': No such file or directory", "\u{2019}: No such file or directory"];
        words.iter().any(|words| said.contains(&format!("{name}{words}")))
    };
    // The first match wins: ssh's last message identifies a dead link.
    Some(if any(&["Host key verification failed", "REMOTE HOST IDENTIFICATION HAS CHANGED"]) {
        Unreachable::HostKey
    } else if any(&["Permission denied (", "Too many authentication failures", "password:"]) {
        Unreachable::Login
    } else if runtime(&["No such container", "no container with name or ID", "NotFound", "not found in namespace"]) {
        Unreachable::NoContainer
    } else if runtime(&[
        "is not running",
        IMPROPER,
        "is stopped",
        "is paused",
        "a paused container",
        "container not running",
    ]) {
        Unreachable::ContainerStopped
    } else if runtime(&[
        "Cannot connect to the Docker daemon",
        "permission denied while trying to connect to the Docker",
    ]) || by_runtime && RUNTIMES.iter().any(is_missing)
    {
        Unreachable::NoRuntime
    } else if any(&[
        "Could not resolve hostname",
        "Connection refused",
        "Connection timed out",
        "Connection reset",
        "Connection closed by",
        "No route to host",
        "Network is unreachable",
        "Operation timed out",
        "kex_exchange_identification",
        "Broken pipe",
        "not responding",
    ]) {
        Unreachable::NoConnection
    } else if any(&["command not found", "executable file not found", "tmux: not found", "Unknown command"])
        || said.contains("tmux")
            && any(&["No such file or directory", "not found"])
            && !said.contains("error connecting")
    {
        Unreachable::NoTmux
    } else {
        return None;
    })
}

/// Splits a command as a shell splits words.
fn split(prefix: &str) -> Result<Vec<String>> {
    shlex::split(prefix).ok_or_else(|| Error::invalid(format!("unclosed quote in `{prefix}`")))
}

fn is_runtime(word: &str) -> bool {
    RUNTIMES.contains(&program_name(word)) || LOW_RUNTIMES.contains(&program_name(word))
}

fn program_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Checks that a text can be a host's name. Error: `INVALID_ARGUMENT`.
pub fn check_name(name: &str) -> Result<()> {
    let starts = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if starts && name.len() <= 64 && name.chars().all(is_name_char) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "invalid host name {name:?}; expected at most 64 letters, digits, `-`, `_` and `.`, not beginning with `-` \
         or `.`"
    )))
}

/// The place of a tmux server: this machine, or another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address<'a> {
    /// The path of its socket on this machine.
    Here(&'a Path),
    /// A host, and the server's socket on it: a name as for `tmux -L`, or an absolute path.
    Elsewhere(&'a str, &'a str),
}

/// The name of tmux's default socket.
pub const DEFAULT_SOCKET: &str = "default";

impl<'a> Address<'a> {
    /// Reads an address: an absolute path, `HOST/NAME`, `HOST//PATH`, or `HOST/` for the host's
    /// default server.
    ///
    /// Error: `INVALID_ARGUMENT` for any other text.
    pub fn parse(address: &'a Path) -> Result<Self> {
        if address.is_absolute() {
            return Ok(Self::Here(address));
        }
        let text = address.to_str().unwrap_or_default();
        let parts = text.split_once('/').filter(|(host, _)| check_name(host).is_ok());
        let wrong = || {
            Error::invalid(format!(
                "the tmux socket must be an absolute path, or HOST/NAME of a configured host, not {}",
                address.display()
            ))
        };
        let (host, socket) = parts.ok_or_else(wrong)?;
        match socket {
            "" => Ok(Self::Elsewhere(host, DEFAULT_SOCKET)),
            "." | ".." => Err(wrong()),
            // A command of the user's own may pass it to a shell on the host.
            odd if !odd.chars().all(|c| c.is_ascii_alphanumeric() || "._/@%+:,=~-".contains(c)) => Err(wrong()),
            path if path.starts_with('/') || !path.contains('/') => Ok(Self::Elsewhere(host, path)),
            _ => Err(wrong()),
        }
    }

    /// Returns the address as text, in its one spelling.
    pub fn path(self) -> PathBuf {
        match self {
            Self::Here(path) => path.into(),
            Self::Elsewhere(host, socket) => format!("{host}/{socket}").into(),
        }
    }

    /// Returns the flags by which tmux on the host finds the server.
    pub(super) fn flags(self) -> [OsString; 2] {
        match self {
            Self::Here(path) => ["-S".into(), path.into()],
            Self::Elsewhere(_, path) if path.starts_with('/') => ["-S".into(), path.into()],
            Self::Elsewhere(_, name) => ["-L".into(), name.into()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ssh_connection_is_shared_only_through_a_socket_of_the_user() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s.ssh-box");
        let transport = Transport::parse("box", "ssh box", "tmux").unwrap();
        transport.share(Some(socket.clone()));
        let shares = || {
            let command = transport.tmux([OsString::from("-V")]);
            command.as_std().get_args().any(|word| word.to_string_lossy().starts_with("ControlPath="))
        };
        assert!(!shares(), "nothing listens there");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(shares());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&socket, Some(65534), None).unwrap();
            assert!(!shares(), "somebody else listens there");
        }
    }

    fn line(prefix: &str, args: &[&str]) -> Vec<String> {
        let transport = Transport::parse("box", prefix, "tmux").unwrap();
        let command = transport.tmux(args.iter().map(OsString::from));
        let command = command.as_std();
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_container_gets_words_and_ssh_one_text_for_a_shell() {
        let args = ["-u", "display-message", "-p", "#{pid} it's;"];
        assert_eq!(
            line("docker exec -i box", &args),
            ["docker", "exec", "-i", "box", "tmux", "-u", "display-message", "-p", "#{pid} it's;"]
        );
        let by_ssh = line("ssh -p 2222 me@box", &args);
        assert!(
            by_ssh.last().unwrap().ends_with(r" muxtap tmux -u display-message -p '#{pid} it'\''s;'"),
            "{by_ssh:?}"
        );
        assert_eq!(by_ssh[by_ssh.len() - 4..by_ssh.len() - 1], ["-p", "2222", "me@box"]);
        assert!(by_ssh.contains(&"BatchMode=yes".into()));
        let wrapped = line("timeout 60 ssh me@box", &args);
        assert_eq!(wrapped[..4], ["timeout", "60", "ssh", "-T"]);
        assert_eq!(wrapped[wrapped.len() - 2..], ["me@box", by_ssh.last().unwrap()]);
        assert!(!line("ssh -o BatchMode=no box", &args).contains(&"BatchMode=yes".into()));
    }

    #[test]
    fn a_container_without_a_standard_input_is_refused() {
        for wrong in ["docker exec box", "podman exec --user me box", "kubectl exec pod --", "", "''", "ssh 'box"] {
            assert!(Transport::parse("box", wrong, "tmux").is_err(), "{wrong}");
        }
        for right in ["docker exec -i box", "podman exec -it box", "kubectl exec -i pod --", "sudo -u me"] {
            assert!(Transport::parse("box", right, "tmux").is_ok(), "{right}");
        }
    }

    #[test]
    fn a_container_is_one_that_a_runtime_runs_programs_in() {
        for (prefix, is_it) in [
            ("docker exec -i web", true),
            ("sudo /usr/bin/podman --root /r exec -i --user me web", true),
            ("ssh box docker exec -i web", true),
            ("kubectl exec -i web --", true),
            ("kubectl exec -i web -c app --", true),
            ("ssh web", false),
            ("env web", false),
            ("docker exec -i other", false),
            ("docker exec -iu web other", false),
            ("docker run -i web", false),
            ("docker exec -i webs", false),
        ] {
            assert_eq!(Transport::parse("web", prefix, "tmux").unwrap().is_container("web"), is_it, "{prefix}");
        }
    }

    #[test]
    fn a_containers_state_is_asked_by_the_transports_own_ssh() {
        let words = |prefix: &str| {
            let transport = Transport::parse("box", prefix, "tmux").unwrap();
            let command = transport.container_state(IMPROPER)?;
            let words = std::iter::once(command.as_std().get_program()).chain(command.as_std().get_args());
            Some(words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>())
        };
        let local = ["sudo", "podman", "inspect", "--format", "{{.State.Status}}", "web"];
        assert_eq!(words("sudo podman exec -i web").unwrap(), local);
        let by_ssh = words("ssh me@box podman exec -i web").unwrap();
        for option in ["BatchMode=yes", "ConnectTimeout=8"] {
            assert!(by_ssh.contains(&option.into()), "{by_ssh:?}");
        }
        assert_eq!(
            by_ssh[by_ssh.len() - 3..],
            ["me@box", "podman", &format!("inspect --format {} web", shell_word("{{.State.Status}}"))]
        );
        assert_eq!(words("ssh me@box"), None);
    }

    #[tokio::test]
    async fn a_failed_or_empty_reply_about_a_containers_state_is_ignored() {
        for (script, added) in [("echo paused", ": paused"), ("true", ""), ("echo paused; exit 1", "")] {
            // The script stands in for the runtime.
            let words = ["sh", "-c", script, "exec", "web"].map(str::to_owned).to_vec();
            let transport = Transport::new("box", words, "tmux").unwrap();
            let said = transport.with_state(IMPROPER.to_owned(), Duration::from_secs(60)).await;
            assert_eq!(said, format!("{IMPROPER}{added}"), "{script}");
        }
    }

    #[test]
    fn a_name_is_taken_from_the_command() {
        for (prefix, name) in [("ssh me@build-1", "build-1"), ("docker exec -i web", "web"), ("ssh box -v", "box")] {
            assert_eq!(Transport::name_of(prefix).unwrap(), name);
        }
        assert!(Transport::name_of("ssh ''").is_err());
        assert_eq!(Transport::split_name("web=docker exec -i x"), (Some("web"), "docker exec -i x"));
        assert_eq!(Transport::split_name("ssh -o A=b box"), (None, "ssh -o A=b box"));
    }

    #[test]
    fn addresses_are_parsed_and_formatted() {
        let parse = |text| {
            Address::parse(Path::new(text))
                .map(|address| (address.flags().map(|flag| flag.into_string().unwrap()), address.path()))
        };
        assert_eq!(parse("box/").unwrap(), (["-L".into(), "default".into()], "box/default".into()));
        assert_eq!(parse("box/work").unwrap(), (["-L".into(), "work".into()], "box/work".into()));
        assert_eq!(parse("box//tmp/s").unwrap(), (["-S".into(), "/tmp/s".into()], "box//tmp/s".into()));
        assert_eq!(parse("/tmp/s").unwrap(), (["-S".into(), "/tmp/s".into()], "/tmp/s".into()));
        for wrong in ["", "box", "box/a/b", "-x/a", "b x/a", "box/..", "./a", "box/a;b", "box/$(a)", "box//tmp/a b"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn failures_are_told_apart_by_what_is_said() {
        for (said, reason) in [
            ("ssh: Could not resolve hostname nowhere: Name or service not known", Unreachable::NoConnection),
            ("ssh: connect to host 127.0.0.1 port 1: Connection refused", Unreachable::NoConnection),
            ("No ED25519 host key is known for box.\r\nHost key verification failed.", Unreachable::HostKey),
            ("me@box: Permission denied (publickey,password).", Unreachable::Login),
            ("Error response from daemon: No such container: web", Unreachable::NoContainer),
            ("Error: no container with name or ID \"web\" found: no such container", Unreachable::NoContainer),
            ("Error response from daemon: container 1 is not running", Unreachable::ContainerStopped),
            (
                "Error: can only create exec sessions on running containers: container state improper",
                Unreachable::ContainerStopped,
            ),
            ("cannot exec in a paused container (use --ignore-paused to override)", Unreachable::ContainerStopped),
            ("sudo: docker: command not found", Unreachable::NoRuntime),
            ("env: \u{2018}podman\u{2019}: No such file or directory", Unreachable::NoRuntime),
            ("sh: 1: tmux: not found", Unreachable::NoTmux),
            ("bash: line 1: tmux: command not found", Unreachable::NoTmux),
            ("OCI runtime exec failed: exec: \"tmux\": executable file not found in $PATH", Unreachable::NoTmux),
        ] {
            assert_eq!(super::reason(said, true), Some(reason), "{said}");
        }
        // A container runtime's messages do not count if no runtime is called.
        for noise in ["mail-agent is not running\nno server running on /t", "NotFound: plugin", "the pod is paused"] {
            assert_eq!(Transport::parse("box", "ssh box", "tmux").unwrap().reason(noise), None, "{noise}");
            assert!(Transport::parse("box", "docker exec -i box", "tmux").unwrap().reason(noise).is_some(), "{noise}");
        }
        for own in [
            "no server running on /tmp/tmux-0/default",
            "error connecting to /tmp/tmux-0/default (No such file or directory)",
            "can't find session: x",
        ] {
            assert_eq!(super::reason(own, true), None, "{own}");
        }
    }

    #[test]
    fn what_a_profile_prints_before_the_path_is_skipped() {
        let transport = Transport::parse("box", "ssh box", "tmux").unwrap();
        assert!(!transport.learn(b"Welcome!\n"));
        assert!(transport.learn(b"Welcome!\n/opt/bin/tmux\n"));
        assert!(!transport.learn(b"/opt/bin/tmux\n"));
        let command = transport.tmux([]);
        let line = command.as_std().get_args().last().unwrap().to_string_lossy().into_owned();
        assert!(line.ends_with(" /opt/bin/tmux"), "{line}");
        let printed = |stdout: &[u8]| transport.printed(stdout.to_vec());
        assert_eq!(printed(b"\x1b]0;box\x07Hi\nmuxtap:\n17 $0 work\n"), b"17 $0 work\n");
        assert_eq!(printed(b"17 $0 work\n"), b"17 $0 work\n");
    }
}
