//! The screen model equals tmux: random sequences on a real pane and on the model.
//!
//! `MUXTAP_SCREEN_CASES` cases are run (a few hundred unless it is set) from `MUXTAP_SCREEN_SEED` on.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test says what is wrong by panicking"
)]

mod common;
#[path = "screen_random/driver.rs"]
mod driver;
#[path = "screen_random/generator.rs"]
mod generator;

use driver::{Run, Tmux};
use generator::{Case, Flavour, Step};

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name}: {value}")))
}

fn show(case: &Case) -> String {
    let steps: Vec<_> = case
        .steps
        .iter()
        .map(|step| match step {
            Step::Print(bytes) => format!("print \"{}\"", bytes.escape_ascii()),
            step => format!("{step:?}"),
        })
        .collect();
    format!("{}x{}, history {}:\n    {}", case.columns, case.rows, case.history_limit, steps.join("\n    "))
}

/// Runs cases; says of the first few that differ how, and fails if any does.
fn compare(default: u64, flavour: Flavour, run: Run) {
    let mut tmux = Tmux::new();
    let first = from_env("MUXTAP_SCREEN_SEED", 1);
    let count = from_env("MUXTAP_SCREEN_CASES", default);
    let shown = from_env("MUXTAP_SCREEN_SHOWN", 3);
    let mut failed = Vec::new();
    for seed in first..first + count {
        let case = generator::case(seed, flavour);
        if let Some(difference) = run(&mut tmux, &case) {
            if (failed.len() as u64) < shown {
                let small = driver::minimized(&mut tmux, &case, run);
                let difference = run(&mut tmux, &small).unwrap_or(difference);
                println!("seed {seed} differs: {difference}\n  minimized: {}\n", show(&small));
            }
            failed.push(seed);
        }
    }
    let some: Vec<_> = failed.iter().take(20).collect();
    assert!(failed.is_empty(), "{} of {count} differ from tmux {}; seeds {some:?}", failed.len(), tmux.version);
}

#[test]
fn random_bytes() {
    compare(300, Flavour { well_formed: false, bytes_only: true, tellable: false }, driver::run);
}

#[test]
fn random_bytes_and_resizes() {
    compare(200, Flavour::default(), driver::run);
}

#[test]
fn a_seed_half_way() {
    compare(150, Flavour { well_formed: true, bytes_only: true, tellable: true }, driver::run_seeded);
}
