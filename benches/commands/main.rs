//! Figures of the log of commands.
//!
//! `cargo bench --no-default-features --features engine --bench commands` runs all parts; after `--`:
//! `shells` (with a number of commands and names of shells), `decoding`, `wait`. The exit status is 0
//! whatever the figures are.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::format_push_string,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "a bench that cannot start may panic, and it prints its figures"
)]

mod decoding;
#[path = "../../tests/integration/places.rs"]
#[allow(dead_code, reason = "other benches and tests use the rest")]
mod places;
mod shells;
#[path = "../table/mod.rs"]
mod table;
#[path = "../latency/times.rs"]
#[allow(dead_code, reason = "other benches use the rest")]
mod times;
mod wait;

/// Ends the tmux server on this socket when dropped.
struct EndServer(std::path::PathBuf);

impl Drop for EndServer {
    fn drop(&mut self) {
        let _ = std::process::Command::new("tmux").arg("-S").arg(&self.0).arg("kill-server").output();
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    // The program of a pane is this program too.
    if let [name, fifo] = args.as_slice()
        && name == wait::ACTOR
    {
        return wait::print_commands(fifo.as_ref());
    }
    table::heading();
    let (part, rest) = args.split_first().map_or(("", &[][..]), |(part, rest)| (part.as_str(), rest));
    let is_run = |name: &str| part.is_empty() || part == name;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if is_run("decoding") {
        decoding::run();
    }
    if is_run("wait") {
        runtime.block_on(wait::run());
    }
    if is_run("shells") {
        runtime.block_on(shells::run(rest));
    }
}
