//! The `muxtap` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    muxtap::cli::main()
}
