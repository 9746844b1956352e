//! The command line: parses a request, sends it to the daemon over its Unix socket, and prints the
//! response. The daemon makes all decisions. `muxtap` contains only the frequent requests (`quick`),
//! `muxtapd` everything.
//! Exit status: 0; 1 error; 2 invalid argument; 124 timeout, as timeout(1); 130 interrupted; `run` returns the
//! command's own; `wait-for` returns 3 if a `--fail` pattern matched or the pane ended first.

pub mod args;
mod caller;
mod client;
mod commands;
mod complete;
mod exchange;
mod flags;
mod follow;
mod lines;
mod man;
mod notify;
mod one_request;
mod output;
mod quick;
mod relay;
mod remote;
mod sse;
mod terminal;
mod watch;
mod with_engine;

use std::process::ExitCode;

use clap::error::ErrorKind;
use muxtap_base::plain;

use self::{
    args::{Command, Invocation},
    caller::Caller,
    output::Failure,
};
use crate::api::{Error, ErrorCode, url};

/// The result of a command: its exit status, or why it has none of its own.
type Outcome = Result<u8, Failure>;

/// Exit status of an error.
const EXIT_ERROR: u8 = 1;
/// Exit status for an invalid command line, or an invalid value in it that the daemon rejected.
const EXIT_USAGE: u8 = 2;
/// Exit status of `wait-for` when its condition can no longer be met.
const EXIT_FAILED: u8 = 3;
/// Exit status after a timeout.
const EXIT_TIMEOUT: u8 = 124;
/// Exit status after Ctrl-C.
const EXIT_INTERRUPTED: u8 = 130;

/// Runs `muxtap` with this process's arguments and environment; returns its exit status. For
/// anything but a frequent request this process becomes `muxtapd`.
pub fn main() -> ExitCode {
    let status = quick::run(std::env::args_os(), || {});
    ExitCode::from(status.unwrap_or_else(|| {
        // The command line is not read yet.
        let json = std::env::args_os().any(|word| word == "--json");
        exit_status(Err(with_engine::become_muxtapd().into()), json, "")
    }))
}

/// Runs `muxtapd`, which contains all commands. `muxtap` never refers to this function, so the
/// linker omits everything that it reaches: a small program starts fast.
pub fn main_with_engine() -> ExitCode {
    #[cfg(feature = "bridge")]
    if let Some(status) = muxtap_bridge::run_if_worker(std::env::args_os()) {
        return status;
    }
    if let Some(status) = muxtap_sessions::run_if_guard(std::env::args_os().skip(1)) {
        return status;
    }
    crate::daemon::start::note_engine();
    quick::run(std::env::args_os(), named_as_command).map_or_else(run_whole, ExitCode::from)
}

fn run_whole() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next();
    if first.as_ref().is_some_and(|first| first == complete::WORD) {
        return complete::run(arguments);
    }
    if first.as_ref().is_some_and(|first| first == man::WORD) {
        return man::run(arguments);
    }
    let invocation = match args::parse(std::env::args_os()) {
        Ok(invocation) => invocation,
        Err(error) => return refuse(&error),
    };
    let (json, name) = (invocation.json, invocation.name.clone());
    if !matches!(invocation.command, Command::Serve(_)) {
        named_as_command();
    }
    let outcome = with_engine::run(invocation).unwrap_or_else(|invocation| run(*invocation));
    ExitCode::from(exit_status(outcome, json, &name))
}

/// Names this process `muxtap`. `ps` and `pkill` find a process by this name, and `pkill muxtapd`
/// must end no commands. A failure changes nothing else.
fn named_as_command() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_name(c"muxtap");
}

/// Prints what is wrong with a command line, or the requested help or version.
fn refuse(error: &clap::Error) -> ExitCode {
    let status = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
        _ => EXIT_USAGE,
    };
    // The command line could not be parsed; words after `--` are a command's own.
    let json = std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json");
    if status == EXIT_USAGE && json {
        output::report(&Error::invalid(usage_message(error)), true);
        return ExitCode::from(status);
    }
    let hostile = |argument: std::ffi::OsString| argument.to_string_lossy().chars().any(plain::controls);
    if status == EXIT_USAGE && std::env::args_os().any(hostile) {
        // The error contains the argument: escaping it matters more than colors.
        output::line_on_stderr(error.to_string().trim_end());
        return ExitCode::from(status);
    }
    ExitCode::from(match error.print().map_err(Failure::from) {
        Err(Failure::Error(error)) if status == 0 => {
            output::report(&error, false);
            EXIT_ERROR
        }
        // If printing an error fails, printing another one fails, too.
        _ => status,
    })
}

/// Returns what is wrong with a command line, as the message of an error: one line, without the
/// usage.
fn usage_message(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "the command line is incomplete; `--help` explains the command".to_owned();
    }
    let text = error.to_string();
    let paragraphs = text.strip_prefix("error: ").unwrap_or(&text).split("\n\n");
    let said = paragraphs.filter(|part| !part.starts_with("Usage:") && !part.starts_with("For more information"));
    let lines = said.map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("; ")
}

/// Returns the exit status of a command's outcome, and prints the error if it is one.
fn exit_status(outcome: Outcome, json: bool, command: &str) -> u8 {
    match outcome {
        Ok(status) => status,
        // The reader of the output has exited (`muxtap tail | head`).
        Err(Failure::OutputClosed) => 0,
        Err(Failure::Error(mut error)) => {
            flags::name_flags(command, &mut error);
            output::report(&error, json);
            status_of(&error)
        }
    }
}

/// Returns the exit status of an error. One mistake has one status, wherever it is found: the regex
/// of `tail --grep` is parsed here, that of `wait-for -p` by the daemon.
fn status_of(error: &Error) -> u8 {
    match error.code {
        ErrorCode::Timeout => EXIT_TIMEOUT,
        ErrorCode::InvalidArgument => EXIT_USAGE,
        _ => EXIT_ERROR,
    }
}

fn run(invocation: Invocation) -> Outcome {
    if let Command::Completions(completions) = invocation.command {
        // The command needs neither a daemon nor this thread's runtime.
        return completions.run(args::tree());
    }
    if let Command::ShellIntegration(integration) = invocation.command {
        return integration.run();
    }
    run_as_caller(invocation, async |command, caller| command.run(&caller).await)
}

/// Runs a command with a runtime and its environment.
fn run_as_caller(invocation: Invocation, run: impl AsyncFnOnce(Command, Caller) -> Outcome) -> Outcome {
    let Invocation { json, via, no_peer, server, command, .. } = invocation;
    let mut caller = Caller::new(&server, json)?;
    // One thread: starting a runtime with a thread per core takes longer than most commands.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| Error::internal(format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(async {
        if let Some(via) = via {
            caller.reach(via, !no_peer, &server).await?;
        }
        run(command, caller).await
    });
    // A thread that still reads stdin ends with the process and is not joined.
    runtime.shutdown_background();
    outcome
}
