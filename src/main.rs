//! `muxtap`: what a person types.

use std::process::ExitCode;

fn main() -> ExitCode {
    muxtap::cli::main()
}
