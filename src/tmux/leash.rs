//! A control client that ends with muxtap, however muxtap ends.
//!
//! A client whose stdin closes leaves by itself, but not while tmux has output for it that nobody reads: before 3.8 such a client stays
//! attached for ever (N25). So when muxtap is killed under a flood, the kernel has to end its clients. Only a process itself can
//! ask for that, so muxtap's own program is started in tmux's place, asks, and becomes tmux.

use std::{ffi::OsString, path::Path, process::ExitCode};

/// The first argument with which muxtap's program is such a start.
const ARGUMENT: &str = "__tmux-client";

/// The words to put in front of a tmux command line so that it ends with this process; `program` is muxtap's own.
pub fn words(program: &Path) -> Vec<OsString> {
    vec![program.into(), ARGUMENT.into(), std::process::id().to_string().into()]
}

/// The same for the program that runs now, where the system can do that. `/proc/self/exe` is this program even when its file was replaced
/// meanwhile. Clients end with the thread that started them, so this is for a runtime of one thread.
pub fn of_this_program() -> Vec<OsString> {
    if cfg!(target_os = "linux") { words("/proc/self/exe".as_ref()) } else { Vec::new() }
}

/// If this process was started by [`words`], becomes the program that stands behind them; answers only if it is not, or cannot.
#[cfg(target_os = "linux")]
pub fn enter(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    use std::os::unix::process::CommandExt as _;

    use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

    let mut args = args.into_iter().skip(1);
    if args.next()? != ARGUMENT {
        return None;
    }
    let parent = args.next()?.into_string().ok()?.parse().ok().and_then(Pid::from_raw);
    // Where it cannot be asked for, the client is as it would be without.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // It may have ended before it was asked for.
    if getppid() != parent {
        return Some(ExitCode::FAILURE);
    }
    let error = std::process::Command::new(args.next()?).args(args).exec();
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("cannot run tmux: {error}\n").as_bytes());
    Some(ExitCode::FAILURE)
}

/// Other systems cannot be asked.
#[cfg(not(target_os = "linux"))]
pub fn enter(_: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    None
}
