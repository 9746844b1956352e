//! `muxtapd`: the daemon, and the whole command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "bridge")]
    if let Some(status) = muxtap_bridge::run_if_worker(std::env::args_os()) {
        return status;
    }
    if let Some(status) = muxtap_sessions::run_if_guard(std::env::args_os().skip(1)) {
        return status;
    }
    muxtap::cli::main_with_engine()
}
