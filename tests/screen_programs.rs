//! The screen model equals tmux while real programs draw: what `capture-pane` prints of a pane is what the model prints
//! that was fed with the pane's output, at every checkpoint and after every resize.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test says what is wrong by panicking"
)]

mod common;
#[path = "screen_random/driver.rs"]
mod driver;
#[path = "screen_programs/editors.rs"]
mod editors;
#[path = "screen_random/generator.rs"]
#[allow(dead_code, reason = "the random cases use the rest")]
mod generator;
#[path = "screen_programs/output.rs"]
mod output;
#[path = "screen_programs/pagers.rs"]
mod pagers;
#[path = "screen_programs/shells.rs"]
mod shells;
#[path = "screen_programs/stage.rs"]
mod stage;
#[path = "screen_programs/tools.rs"]
mod tools;
