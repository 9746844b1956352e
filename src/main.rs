//! The `muxtap` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "bridge")]
    if let Some(status) = muxtap_bridge::run_if_worker(std::env::args_os()) {
        return status;
    }
    muxtap::cli::main()
}
