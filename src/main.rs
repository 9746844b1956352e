//! The `muxtap` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    muxtap::tmux::leash::enter(std::env::args_os())
        .or_else(|| muxtap::bridge::enter(std::env::args_os()))
        .unwrap_or_else(muxtap::cli::main)
}
