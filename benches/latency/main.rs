//! muxtap's performance goals, measured end to end on private tmux servers and printed as ratios
//! with the goal beside each.
//!
//! `cargo bench --bench latency` runs everything; `cargo bench --bench latency -- wait flood` runs
//! some parts. The exit status is always 0: `docs/performance.md` explains the figures.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    missing_docs,
    reason = "a bench that cannot start may panic, and it prints its figures"
)]

mod actors;
mod bridge;
mod capture;
mod completion;
#[path = "../../tests/integration/container.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod container;
mod control;
mod flood;
mod hosts;
mod http;
mod load;
mod pipeline;
#[path = "../../tests/integration/places.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod places;
mod port;
mod process;
mod quiet;
mod record;
mod relay;
mod rules;
mod stage;
mod streams;
#[path = "../table/mod.rs"]
mod table;
mod thousand;
mod times;
mod wait;

/// A part of the bench, by its name.
type Part = (&'static str, fn());

const PARTS: [Part; 15] = [
    ("wait", wait::run),
    ("quiet", quiet::run),
    ("flood", flood::run),
    ("record", record::run),
    ("rules", rules::run),
    ("pipeline", pipeline::run),
    ("thousand", thousand::run),
    ("capture", capture::run),
    ("completion", completion::run),
    ("port", port::run),
    ("streams", streams::run),
    ("hosts", hosts::run),
    ("relay", relay::run),
    ("bridge", bridge::run),
    ("load", load::run),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // The panes' programs are this program too.
    if actors::act(&args) {
        return;
    }
    stage::clean_up_when_interrupted();
    let named: Vec<_> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    table::heading();
    for (name, part) in PARTS {
        if named.is_empty() || named.iter().any(|wanted| *wanted == name) {
            // A failing part must not hide the others; its stage is cleaned up while it unwinds.
            if std::panic::catch_unwind(part).is_err() {
                println!("  {name}: this part failed, see above");
            }
        }
    }
}
