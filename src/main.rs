//! The `muxtap` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    muxtap::bridge::run_if_worker(std::env::args_os()).unwrap_or_else(muxtap::cli::main)
}
