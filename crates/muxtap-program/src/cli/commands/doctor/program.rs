//! Checks of the tmux program, as found by the daemon and by this shell.

use super::{Check, EnvironmentAnswer, daemon::Daemon};
use crate::api::TmuxProgram;

const NAME: &str = "tmux";
const INSTALL: &str = "install tmux 3.2a or later (Debian, Ubuntu: apt install tmux; Fedora: dnf install tmux; macOS: \
                       brew install tmux), or name the program in MUXTAP_TMUX";

/// Checks the program that the daemon uses, or, if none runs, would use.
pub(super) fn checks(here: &EnvironmentAnswer, daemon: Option<&Daemon>) -> Vec<Check> {
    let Some(daemon) = daemon else {
        return vec![match &here.program.error {
            Some(error) => Check::problem(NAME, missing(&here.program, error, "PATH", here.path.as_deref()), INSTALL),
            None => Check::ok(NAME, named(&here.program)),
        }];
    };
    // A missing report is among the daemon's problems.
    let Ok(there) = &daemon.environment else { return Vec::new() };
    if let Some(error) = &there.program.error {
        let wrong = missing(&there.program, error, "the daemon's PATH", there.path.as_deref());
        let fix = match &here.program.error {
            Some(_) => format!("{INSTALL}; then muxtap stop"),
            None => format!(
                "muxtap stop: the next command here starts a daemon that finds {}; for a daemon that a service starts, \
                 set PATH or MUXTAP_TMUX first",
                named(&here.program)
            ),
        };
        return vec![Check::problem(NAME, format!("the daemon finds no tmux: {wrong}"), fix)];
    }
    let mut checks = vec![Check::ok(NAME, named(&there.program))];
    if let Some(error) = &here.program.error {
        let wrong = missing(&here.program, error, "PATH", here.path.as_deref());
        checks.push(Check::warning(NAME, format!("only the daemon has one; in this shell, {wrong}"), INSTALL));
    } else if there.program.file != here.program.file {
        checks.push(Check::warning(
            NAME,
            format!("the daemon uses {}; this shell finds {}", named(&there.program), named(&here.program)),
            "to use this shell's: muxtap stop, and the next command starts a daemon with it",
        ));
    }
    checks
}

/// Returns a program's version and file.
fn named(program: &TmuxProgram) -> String {
    let file = program.file.as_ref().unwrap_or(&program.name);
    match &program.version {
        Some(version) => format!("tmux {version} ({file})"),
        None => file.clone(),
    }
}

/// Returns why no program is usable.
fn missing(program: &TmuxProgram, error: &str, of: &str, path: Option<&str>) -> String {
    match &program.file {
        Some(file) => format!("{file}: {error}"),
        None if program.name.contains('/') => format!("missing file {}", program.name),
        None => format!("no program {} in {of} ({})", program.name, path.unwrap_or("which is not set")),
    }
}
