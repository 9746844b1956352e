//! `demo`.
use super::{Caller, Outcome};
use clap::Args;
/// Show it: builds
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  muxtap demo")]
pub(in crate::cli) struct Demo {}
impl Demo {
    pub(in crate::cli) async fn run(self, _caller: &Caller) -> Outcome {
        Ok(0)
    }
}
