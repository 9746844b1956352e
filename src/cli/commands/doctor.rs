//! `doctor`.
use super::{Caller, Outcome};
use clap::Args;
/// Check the set-up and say what to fix
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  muxtap doctor")]
pub(in crate::cli) struct Doctor {}
impl Doctor {
    pub(in crate::cli) async fn run(self, _caller: &Caller) -> Outcome {
        Ok(0)
    }
}
