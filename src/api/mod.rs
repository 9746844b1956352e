//! What is asked and answered, on every face: the same fields in HTTP's JSON, MCP's structured content and `--json`.

mod agents;
mod answers;
mod error;
mod requests;
mod tier;

pub use agents::*;
pub use answers::*;
pub use error::{Error, ErrorCode, Result};
pub use requests::*;
pub use tier::{Tier, Tiers};
