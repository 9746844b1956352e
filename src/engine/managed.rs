//! Panes in which muxtap started something: what was promised of them, and how their commands are held until all output has arrived.
//!
//! tmux drops what a program printed just before its end, from its own grid too (F9, N10). So a command that muxtap starts is not the pane's
//! process: a line of shell, its exit wrapper, *holds* the pane until all of it has arrived. When the command has ended the wrapper prints a
//! mark with the exit status; the mark stands in the stream behind the last byte of output, so whoever reads it has read everything. Then the
//! pane is closed, or the hold is let go.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{Engine, Host, Pane};
use crate::{
    api::{Error, Result, SpawnRequest},
    protocol::{
        command::{Command, CommandLine},
        ids::PaneId,
    },
    tmux::{Answer, Exit, Link, Lost, Request, Seed, Server},
};

/// Runs `$2…` and holds the pane until it is told that everything arrived, by a signal or by the end of the pane; a few seconds at most, for the
/// case that muxtap has gone. `$1` is the mark's nonce. Its own complaints about a child that was killed are not the command's output.
const HOLD: &str = "n=$1; shift; trap : INT QUIT; exec 3>&2 2>/dev/null; \"$@\" 2>&3 3>&-; s=$?; \
                    trap \"exit $s\" USR1; printf '\\033]7717;%s;x;%s\\007' \"$n\" \"$s\"; sleep 5 & wait; exit \"$s\"";
/// The same for a command line: the pane's shell runs it, as tmux would have it.
const HOLD_LINE: &str = "n=$1; shift; trap : INT QUIT; exec 3>&2 2>/dev/null; \"${SHELL:-/bin/sh}\" -c \"$1\" 2>&3 3>&-; s=$?; \
                         trap \"exit $s\" USR1; printf '\\033]7717;%s;x;%s\\007' \"$n\" \"$s\"; sleep 5 & wait; exit \"$s\"";
/// What the wrapper is called, behind its line of shell.
const HOLD_NAME: &str = "muxtap-hold";
/// How long a wrapper holds its pane at most once its command has ended, and the pane takes to end.
pub(super) const HELD_LONGEST: Duration = Duration::from_secs(6);

/// What is promised of a pane in which muxtap started something.
#[derive(Clone, Debug)]
pub(super) struct ManagedPane {
    pub(super) at_end: AtEnd,
    /// The options of a pane that somebody else made, as they were, until they are given back.
    pub(super) before: Option<PaneOptions>,
    /// Its command is held.
    pub(super) hold: Option<Hold>,
    /// What was started, so that it can be started again.
    pub(super) launch: Option<Launch>,
}

/// What becomes of a pane when its process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtEnd {
    /// It stays.
    Keep,
    /// It is closed.
    Close,
    /// Somebody else made it: what tmux would do by the options that it had.
    AsBefore,
}

/// The wrapper of a pane's command.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    /// The nonce of the mark that it prints at its command's end.
    pub(super) nonce: String,
    /// The mark has not come yet.
    pub(super) is_awaited: bool,
}

impl Hold {
    pub(super) fn of(nonce: String) -> Self {
        Self { nonce, is_awaited: true }
    }
}

/// A command, where and with what environment it is started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Launch {
    pub(super) command: Vec<String>,
    pub(super) cwd: Option<String>,
    pub(super) env: BTreeMap<String, String>,
}

impl Launch {
    /// What a request starts; `None` without a command.
    pub(super) fn of(spawn: &SpawnRequest) -> Option<Self> {
        Some(Self { command: spawn.command.clone()?, cwd: spawn.cwd.clone(), env: spawn.env.clone() })
    }

    /// The same command once more, elsewhere or with more variables where the request says so.
    pub(super) fn again(&self, spawn: &SpawnRequest) -> Self {
        let mut env = self.env.clone();
        env.extend(spawn.env.clone());
        Self { command: self.command.clone(), cwd: spawn.cwd.clone().or_else(|| self.cwd.clone()), env }
    }

    /// The words that tmux runs in its place: its exit wrapper with it.
    pub(super) fn held(&self, nonce: &str) -> Vec<String> {
        let hold = if self.command.len() == 1 { HOLD_LINE } else { HOLD };
        let held = ["sh", "-c", hold, HOLD_NAME, nonce].map(str::to_owned);
        held.into_iter().chain(self.command.iter().cloned()).collect()
    }
}

/// The nonce of the wrapper in a pane's start command, if that is one: a muxtap that ran before has made it.
pub(super) fn nonce_of(start_command: &str) -> Option<String> {
    let (_, rest) = start_command.split_once(&format!(" {HOLD_NAME} "))?;
    let nonce = rest.split(' ').next()?;
    (nonce.len() == 16 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| nonce.to_owned())
}

/// The options of a pane that muxtap changes; `None` where the pane has no value of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PaneOptions {
    remain_on_exit: Option<String>,
    format: Option<String>,
}

const REMAIN: &str = "remain-on-exit";
/// New in 3.3: `set-option -q` takes no offence at an option that is not there, `show-options -q` does (N46).
const FORMAT: &str = "remain-on-exit-format";

fn set(pane: PaneId, name: &str, value: Option<&str>) -> Command {
    let set = Command::new("set-option").flag("-p").flag("-q");
    match value {
        Some(value) => set.opt("-t", pane.to_string()).arg(name).arg(value),
        None => set.flag("-u").opt("-t", pane.to_string()).arg(name),
    }
}

/// The commands that make tmux leave a pane as it is when its process ends, and draw nothing into it (N13).
pub(super) fn remain(pane: PaneId) -> [Command; 2] {
    [set(pane, REMAIN, Some("on")), set(pane, FORMAT, Some(""))]
}

impl PaneOptions {
    /// Reads them.
    pub(super) async fn of(server: &Server, pane: PaneId) -> Result<Self> {
        let value = async |name: &str| {
            let show = Command::new("show-options").flag("-p").flag("-q").flag("-v").opt("-t", pane.to_string());
            let answer = server.read(Some(pane), || Request::Framed(vec![show.clone().arg(name)])).await?;
            let body = answer.ok().and_then(|parts| parts.first().cloned()).unwrap_or_default();
            // An option that is set to nothing is an empty line, one that is not set is no line.
            let value = body.strip_suffix(b"\n").map(|value| String::from_utf8_lossy(value).into_owned());
            Ok::<_, Error>(value)
        };
        Ok(Self { remain_on_exit: value(REMAIN).await?, format: value(FORMAT).await? })
    }

    fn give_back(&self, pane: PaneId) -> [Command; 2] {
        [set(pane, REMAIN, self.remain_on_exit.as_deref()), self.give_format_back(pane)]
    }

    fn give_format_back(&self, pane: PaneId) -> Command {
        set(pane, FORMAT, self.format.as_deref())
    }
}

impl ManagedPane {
    /// The commands after which tmux does by itself what was promised.
    fn release(&self, pane: PaneId) -> Vec<Command> {
        let none = PaneOptions::default();
        match (self.at_end, &self.before) {
            (AtEnd::Keep, before) => vec![before.as_ref().unwrap_or(&none).give_format_back(pane)],
            (AtEnd::Close, _) => none.give_back(pane).into(),
            (AtEnd::AsBefore, Some(before)) => before.give_back(pane).into(),
            (AtEnd::AsBefore, None) => Vec::new(),
        }
    }
}

impl Engine {
    /// Gives panes in which muxtap started something back to tmux.
    pub(super) async fn release_panes(&self, host: &Arc<Host>) {
        if !matches!(host.server().link(), Link::Connected(_)) {
            return;
        }
        for pane in host.panes() {
            let release = pane.ours().map(|ours| ours.release(pane.id())).unwrap_or_default();
            if !release.is_empty() {
                // A pane that has gone meanwhile needs no release.
                let released = host.server().write(Some(pane.id()), Request::Plain(CommandLine::of(release))).await;
                if released.is_err() {
                    // One that does not answer cannot be asked for the others either.
                    return;
                }
            }
        }
    }
}

/// Lets go of the hold on a command that has ended: the pane is closed, or dies with the command's status. Its screen is kept first.
pub(super) fn close_held(host: &Arc<Host>, pane: &Arc<Pane>, exit: Exit) {
    match pane.ours().map(|ours| ours.at_end) {
        Some(AtEnd::Close) => {
            keep_screen(host, pane, false);
            close_ended(host.server(), pane.id());
        }
        Some(AtEnd::AsBefore) => leave_to_tmux(host, pane, exit, true),
        Some(AtEnd::Keep) | None => keep_screen(host, pane, true),
    }
}

/// Does what was promised of a pane whose process has ended.
pub(super) fn process_ended(host: &Arc<Host>, pane: &Arc<Pane>, exit: Exit) {
    match pane.ours().map(|ours| (ours.at_end, ours.before.is_some())) {
        Some((AtEnd::Close, _)) => close_ended(host.server(), pane.id()),
        Some((AtEnd::AsBefore, true)) => leave_to_tmux(host, pane, exit, false),
        _ => {}
    }
}

/// Gives a pane the options back that it had, and does what tmux would have done by them.
fn leave_to_tmux(host: &Arc<Host>, pane: &Arc<Pane>, exit: Exit, held: bool) {
    let taken = pane.lock().ours.as_mut().and_then(|ours| ours.before.take());
    let before = taken.clone().unwrap_or_default();
    let mut commands: Vec<_> = before.give_back(pane.id()).into();
    let value = format!("#{{{REMAIN}}}");
    commands.push(Command::new("display-message").flag("-p").opt("-t", pane.id().to_string()).format(value));
    let (of, at) = (Arc::downgrade(host), pane.clone());
    let then = move |answer: std::result::Result<Answer, Lost>| {
        let Some(host) = of.upgrade() else { return };
        if answer.is_err() {
            // They are given back when its process ends or muxtap leaves.
            at.owes_options(taken);
        }
        let Ok(Ok(bodies)) = answer else { return };
        let remains = match bodies.last().map(|body| body.trim_ascii()) {
            Some(b"off") => false,
            Some(b"failed") => exit.status != Some(0),
            _ => true,
        };
        if held {
            keep_screen(&host, &at, remains);
        }
        if !remains {
            close_ended(host.server(), at.id());
        }
    };
    host.server().submit(Some(pane.id()), Request::Plain(CommandLine::of(commands)), then);
}

/// Keeps the screen of a pane whose command has ended, and lets go of its hold then, if it is to die and not to be closed.
fn keep_screen(host: &Arc<Host>, pane: &Arc<Pane>, release: bool) {
    let (server, rules, of) = (host.server(), host.rules(), Arc::downgrade(host));
    let at = pane.clone();
    // Elsewhere it lets go by itself after a few seconds.
    let release = release && server.spec().is_local();
    let look = move |answer: std::result::Result<Answer, Lost>| {
        if let Some(seed) = answer.ok().and_then(std::result::Result::ok).and_then(|parts| Seed::parse(&parts)) {
            let kept = at.keep_screen(&seed, rules);
            of.upgrade().inspect(|host| host.account(kept));
            // tmux tells which process it is; what was listed last may be the placeholder's.
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

/// Closes a pane whose process has ended, or in which nothing was started.
pub(super) fn close_ended(server: &Server, pane: PaneId) {
    let kill = Command::new("kill-pane").opt("-t", pane.to_string());
    server.submit_at_last(Some(pane), Request::Plain(CommandLine::of([kill])));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wrapper_of_an_earlier_muxtap_is_known() {
        let nonce = crate::nonce::hex64();
        let start = format!("sh -c \"n=$1; …\" muxtap-hold {nonce} \"seq 1 3; exit 3\"");
        assert_eq!(nonce_of(&start), Some(nonce));
        for other in ["", "sh", "sh -c 'echo muxtap-hold 1'", "x muxtap-hold 0123456789abcdeg y", "x muxtap-hold"] {
            assert_eq!(nonce_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_command_is_started_again_where_it_was_with_what_is_new() {
        let env =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let first =
            Launch { command: vec!["make".into()], cwd: Some("/a".into()), env: env(&[("A", "1"), ("B", "1")]) };
        assert_eq!(first.again(&SpawnRequest::default()), first);
        let spawn = SpawnRequest { cwd: Some("/b".into()), env: env(&[("B", "2")]), ..SpawnRequest::default() };
        let again = first.again(&spawn);
        assert_eq!((again.cwd.as_deref(), again.env), (Some("/b"), env(&[("A", "1"), ("B", "2")])));
    }

    #[test]
    fn what_was_changed_is_given_back() {
        let lines = |at_end, before| -> Vec<String> {
            let managed = ManagedPane { at_end, before, hold: None, launch: None };
            let lines = managed.release(PaneId(3)).into_iter().map(|command| command.line().unwrap());
            lines.map(|line| String::from_utf8(line).unwrap().trim().to_owned()).collect()
        };
        let none = PaneOptions::default();
        let theirs = PaneOptions { remain_on_exit: Some("failed".into()), format: Some(String::new()) };
        let unset =
            ["remain-on-exit", "remain-on-exit-format"].map(|name| format!("set-option -p -q -u -t \"%3\" {name}"));
        assert_eq!(lines(AtEnd::Close, None), unset);
        assert_eq!(lines(AtEnd::Keep, None), unset[1..]);
        assert_eq!(lines(AtEnd::AsBefore, Some(none)), unset);
        let given = lines(AtEnd::AsBefore, Some(theirs));
        assert!(given[0].ends_with("remain-on-exit failed") && !given[1].contains("-u"), "{given:?}");
        assert!(lines(AtEnd::AsBefore, None).is_empty(), "it was given back at its end");
    }
}
