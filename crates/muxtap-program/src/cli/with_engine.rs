//! Commands that need the engine or their own server: those of `muxtapd`.

use std::{env, os::unix::process::CommandExt as _, process};

use super::{
    Outcome,
    args::{Command, Invocation},
    run_as_caller,
};
use crate::{api::Error, daemon::start};

impl Command {
    fn needs_engine(&self) -> bool {
        match self {
            Self::Serve(_) | Self::Doctor(_) => true,
            #[cfg(feature = "bridge")]
            Self::Bridge(_) => true,
            Self::Mcp(args) => args.serves_by_itself(),
            _ => false,
        }
    }
}

/// Runs a command that needs the engine, in this process.
pub(super) fn run(invocation: Invocation) -> Result<Outcome, Box<Invocation>> {
    match invocation.command {
        Command::Serve(args) => Ok(args.run()),
        #[cfg(feature = "bridge")]
        Command::Bridge(args) => Ok(args.run(&invocation.server)),
        command if command.needs_engine() => {
            Ok(run_as_caller(Invocation { command, ..invocation }, async |command, caller| match command {
                Command::Doctor(args) => args.run(&caller).await,
                Command::Mcp(_) => super::commands::mcp::serve_supervisor_only(&caller).await,
                command => command.run(&caller).await,
            }))
        }
        command => Err(Box::new(Invocation { command, ..invocation })),
    }
}

/// Replaces this process with `muxtapd`. Returns the error if that fails.
pub(super) fn become_muxtapd() -> Error {
    let program = match start::muxtapd() {
        Ok(program) => program,
        Err(error) => return error,
    };
    let mut arguments = env::args_os();
    let mut command = process::Command::new(&program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    let error = command.args(arguments).exec();
    Error::unavailable(format!("cannot run {}: {error}", program.display()))
}
