//! Panes in which muxtap started a program: their handling after the process ends, and the exit
//! wrapper that holds a pane until all output has arrived.
//!
//! tmux drops output that a program printed just before its end, from its own grid too (F9, N10).
//! Therefore a command that muxtap starts is not the pane's process: a line of shell, its exit
//! wrapper, *holds* the pane until all output has arrived. When the command has ended, the wrapper
//! prints a mark with the exit status. The mark follows the last byte of output in the stream, so a
//! reader of the mark has read everything. Then the pane is closed, or the wrapper is released: the
//! pane dies and stays, as requested or as the user's `remain-on-exit` says.

use std::{sync::Arc, time::Duration};

use muxtap_api::{Error, Result};
use muxtap_core::protocol::{
    command::{Command, CommandLine},
    ids::PaneId,
};
use muxtap_tmux::{Answer, Exit, LinkState, Lost, Request, Seed, ServerLink};

use crate::{
    Host, PaneState,
    pane::managed::{Launch, ManagedPane, OnExit, PaneOptions},
};

/// Runs `$2…` and holds the pane until all output has arrived, which a signal or the end of the
/// pane indicates, for a few seconds at most, in case muxtap has stopped. `$1` is the mark's nonce.
/// The wrapper's own messages about a killed child are kept out of the command's output.
const WRAPPER: &str = "n=$1; shift; trap : INT QUIT; exec 3>&2 2>/dev/null; \"$@\" 2>&3 3>&-; s=$?; \
                    trap \"exit $s\" USR1; printf '\\033]7717;%s;x;%s\\007' \"$n\" \"$s\"; sleep 5 & wait; exit \"$s\"";
/// The wrapper for a command line: the pane's shell runs it, as with tmux.
const WRAPPER_LINE: &str = "n=$1; shift; trap : INT QUIT; exec 3>&2 2>/dev/null; \"${SHELL:-/bin/sh}\" -c \"$1\" 2>&3 \
                         3>&-; s=$?; trap \"exit $s\" USR1; printf '\\033]7717;%s;x;%s\\007' \"$n\" \"$s\"; sleep 5 & \
                         wait; exit \"$s\"";
/// The wrapper's `$0`, by which muxtap recognizes it.
const WRAPPER_NAME: &str = "muxtap-hold";
/// The longest time that a wrapper holds its pane after its command has ended, including the time
/// that the pane takes to end.
pub(crate) const HELD_LONGEST: Duration = Duration::from_secs(6);

impl Launch {
    /// Returns the words that tmux runs instead of the command: the command in its exit wrapper.
    pub(crate) fn wrapped(&self, nonce: &str) -> Vec<String> {
        let wrapper = if self.command.len() == 1 { WRAPPER_LINE } else { WRAPPER };
        let wrapped = ["sh", "-c", wrapper, WRAPPER_NAME, nonce].map(str::to_owned);
        wrapped.into_iter().chain(self.command.iter().cloned()).collect()
    }
}

/// Returns the nonce in a pane's start command, if that is the wrapper of an earlier muxtap.
pub(crate) fn wrapper_nonce(start_command: &str) -> Option<String> {
    let (_, rest) = start_command.split_once(&format!(" {WRAPPER_NAME} "))?;
    let nonce = rest.split(' ').next()?;
    (nonce.len() == 16 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| nonce.to_owned())
}

const REMAIN: &str = "remain-on-exit";
/// New in 3.3: `set-option -q` accepts an option that does not exist, `show-options -q` does not
/// (N46).
const FORMAT: &str = "remain-on-exit-format";

fn set(pane: PaneId, name: &str, value: Option<&str>) -> Command {
    let set = Command::new("set-option").flag("-p").flag("-q");
    match value {
        Some(value) => set.opt("-t", pane.to_string()).arg(name).arg(value),
        None => set.flag("-u").opt("-t", pane.to_string()).arg(name),
    }
}

/// Returns the commands that make tmux keep a pane when its process ends, and draw nothing into it
/// (N13).
pub(crate) fn keep_on_exit(pane: PaneId) -> [Command; 2] {
    [set(pane, REMAIN, Some("on")), set(pane, FORMAT, Some(""))]
}

impl PaneOptions {
    /// Reads the options of a pane.
    pub(crate) async fn read(server: &ServerLink, pane: PaneId) -> Result<Self> {
        let value = async |name: &str| {
            let show = Command::new("show-options").flag("-p").flag("-q").flag("-v").opt("-t", pane.to_string());
            let answer = server.read(Some(pane), || Request::Framed(vec![show.clone().arg(name)])).await?;
            let body = answer.ok().and_then(|parts| parts.first().cloned()).unwrap_or_default();
            // An option set to an empty value prints an empty line, an unset option prints no line.
            let value = body.strip_suffix(b"\n").map(|value| String::from_utf8_lossy(value).into_owned());
            Ok::<_, Error>(value)
        };
        Ok(Self { remain_on_exit: value(REMAIN).await?, format: value(FORMAT).await? })
    }

    fn restore(&self, pane: PaneId) -> [Command; 2] {
        [set(pane, REMAIN, self.remain_on_exit.as_deref()), self.restore_format(pane)]
    }

    fn restore_format(&self, pane: PaneId) -> Command {
        set(pane, FORMAT, self.format.as_deref())
    }
}

impl ManagedPane {
    /// Returns the commands after which tmux carries out the exit policy by itself.
    fn release(&self, pane: PaneId) -> Vec<Command> {
        let none = PaneOptions::default();
        match (self.on_exit, &self.before) {
            (OnExit::Keep, before) => vec![before.as_ref().unwrap_or(&none).restore_format(pane)],
            (OnExit::Restore, Some(before)) => before.restore(pane).into(),
            (OnExit::Restore, None) => Vec::new(),
        }
    }
}

impl Host {
    /// Leaves the panes in which muxtap started a program to tmux.
    pub(crate) async fn release_panes(&self) {
        if !matches!(self.server().state(), LinkState::Connected(_)) {
            return;
        }
        for pane in self.panes() {
            let release = pane.managed().map(|managed| managed.release(pane.id())).unwrap_or_default();
            if !release.is_empty() {
                // A pane that no longer exists needs no release.
                let released =
                    self.server_of(&pane).write(Some(pane.id()), Request::Plain(CommandLine::of(release))).await;
                if released.is_err() {
                    // A server that does not reply would not release the other panes either.
                    return;
                }
            }
        }
    }
}

/// Releases the wrapper of a command that has ended, after storing the pane's screen. The pane is
/// closed, or dies with the command's status.
pub(crate) fn release_wrapper(host: &Arc<Host>, pane: &Arc<PaneState>, exit: Exit) {
    match pane.managed().map(|managed| managed.on_exit) {
        Some(OnExit::Restore) => leave_to_tmux(host, pane, exit, true),
        Some(OnExit::Keep) | None => keep_screen(host, pane, true),
    }
}

/// Carries out the exit policy of a pane whose process has ended.
pub(crate) fn process_ended(host: &Arc<Host>, pane: &Arc<PaneState>, exit: Exit) {
    if pane.managed().is_some_and(|managed| managed.on_exit == OnExit::Restore && managed.before.is_some()) {
        leave_to_tmux(host, pane, exit, false);
    }
}

/// Restores a pane's original options, and handles the pane as tmux would have by them.
fn leave_to_tmux(host: &Arc<Host>, pane: &Arc<PaneState>, exit: Exit, wrapped: bool) {
    let taken = pane.take_original_options();
    let before = taken.clone().unwrap_or_default();
    let mut commands: Vec<_> = before.restore(pane.id()).into();
    let value = format!("#{{{REMAIN}}}");
    commands.push(Command::new("display-message").flag("-p").opt("-t", pane.id().to_string()).format(value));
    let (of, at) = (Arc::downgrade(host), pane.clone());
    let then = move |answer: std::result::Result<Answer, Lost>| {
        let Some(host) = of.upgrade() else { return };
        if answer.is_err() {
            // The options are restored when the process ends or muxtap leaves.
            at.restore_options_later(taken);
        }
        let Ok(Ok(bodies)) = answer else { return };
        let remains = match bodies.last().map(|body| body.trim_ascii()) {
            Some(b"off") => false,
            Some(b"failed") => exit.status != Some(0),
            _ => true,
        };
        if wrapped {
            keep_screen(&host, &at, remains);
        }
        if !remains {
            close_ended(&host.server_of(&at), at.id());
        }
    };
    host.server_of(pane).submit(Some(pane.id()), Request::Plain(CommandLine::of(commands)), then);
}

/// Stores the screen of a pane whose command has ended. Then releases its wrapper, unless the pane
/// is to be closed.
fn keep_screen(host: &Arc<Host>, pane: &Arc<PaneState>, release: bool) {
    let (server, rules, of) = (host.server_of(pane), host.rules(), Arc::downgrade(host));
    let at = pane.clone();
    // On a remote server the wrapper ends by itself after a few seconds.
    let release = release && server.spec().is_local();
    let look = move |answer: std::result::Result<Answer, Lost>| {
        if let Some(seed) = answer.ok().and_then(std::result::Result::ok).and_then(|parts| Seed::parse(&parts)) {
            let memory = at.keep_screen(&seed, rules);
            of.upgrade().inspect(|host| host.charge(memory));
            // Uses the pid in tmux's reply: the pid that was listed last may be the placeholder's.
            if release
                && !seed.dead
                && let Some(pid) = i32::try_from(seed.pid).ok().and_then(rustix::process::Pid::from_raw)
            {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::USR1);
            }
        }
    };
    server.submit(Some(pane.id()), Request::Framed(Seed::question(pane.id(), rules)), look);
}

/// Closes a pane whose process has ended, or in which no command was started.
pub(crate) fn close_ended(server: &ServerLink, pane: PaneId) {
    let kill = Command::new("kill-pane").opt("-t", pane.to_string());
    server.change_at_last(Some(pane), Request::Plain(CommandLine::of([kill])));
}

#[cfg(test)]
mod tests {
    use super::*;
    use muxtap_api::SpawnRequest;

    #[test]
    fn the_wrapper_of_an_earlier_muxtap_is_known() {
        let nonce = muxtap_base::nonce::hex64();
        let start = format!("sh -c \"n=$1; …\" muxtap-hold {nonce} \"seq 1 3; exit 3\"");
        assert_eq!(wrapper_nonce(&start), Some(nonce));
        for other in ["", "sh", "sh -c 'echo muxtap-hold 1'", "x muxtap-hold 0123456789abcdeg y", "x muxtap-hold"] {
            assert_eq!(wrapper_nonce(other), None, "{other}");
        }
    }

    #[test]
    fn a_command_is_started_again_where_it_was_with_what_is_new() {
        let env =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let first =
            Launch { command: vec!["make".into()], cwd: Some("/a".into()), env: env(&[("A", "1"), ("B", "1")]) };
        assert_eq!(first.with_changes(&SpawnRequest::default()), first);
        let spawn = SpawnRequest { cwd: Some("/b".into()), env: env(&[("B", "2")]), ..SpawnRequest::default() };
        let again = first.with_changes(&spawn);
        assert_eq!((again.cwd.as_deref(), again.env), (Some("/b"), env(&[("A", "1"), ("B", "2")])));
    }

    #[test]
    fn what_was_changed_is_given_back() {
        let lines = |on_exit, before| -> Vec<String> {
            let managed = ManagedPane { on_exit, before, wrapper: None, launch: None, shell_nonce: None };
            let lines = managed.release(PaneId(3)).into_iter().map(|command| command.line().unwrap());
            lines.map(|line| String::from_utf8(line).unwrap().trim().to_owned()).collect()
        };
        let none = PaneOptions::default();
        let theirs = PaneOptions { remain_on_exit: Some("failed".into()), format: Some(String::new()) };
        let unset =
            ["remain-on-exit", "remain-on-exit-format"].map(|name| format!("set-optio -p -q -u -t \"%3\" {name}"));
        assert_eq!(lines(OnExit::Restore, Some(none.clone())), unset);
        assert_eq!(lines(OnExit::Keep, None), unset[1..]);
        assert_eq!(lines(OnExit::Restore, Some(none)), unset);
        let given = lines(OnExit::Restore, Some(theirs));
        assert!(given[0].ends_with("remain-on-exit failed") && !given[1].contains("-u"), "{given:?}");
        assert!(lines(OnExit::Restore, None).is_empty(), "it was given back at its end");
    }
}
