//! `muxtapd`: the daemon, and the whole command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    muxtap::cli::main_with_engine()
}
