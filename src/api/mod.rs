//! Requests and answers on every face: the same fields in HTTP's JSON, MCP's structured content and
//! `--json`.

mod agents;
mod answers;
pub(crate) mod cursor;
mod error;
mod events;
mod requests;
mod streams;
mod tier;

pub use agents::*;
pub use answers::*;
pub use cursor::{Cursor, Epoch, Since};
pub use error::{Error, ErrorCode, Result};
pub use events::{Event, EventKind};
pub use requests::*;
pub use streams::*;
pub use tier::{Tier, Tiers};
