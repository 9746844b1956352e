//! `muxtap`: the program that a person runs.

use std::process::ExitCode;

fn main() -> ExitCode {
    muxtap::cli::main()
}
