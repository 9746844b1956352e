//! Requests and responses of every interface: the same fields in HTTP's JSON, MCP's structured
//! content and `--json`.

mod agents;
mod answers;
mod commands;
#[doc(hidden)]
pub mod decode;
mod devices;
mod events;
mod hosts;
mod labels;
mod operation;
mod pages;
mod place;
mod recordings;
mod requests;
mod session_names;
mod sessions;
mod status;
mod streams;
mod tier;
#[doc(hidden)]
pub mod url;
mod waits;
mod when;
pub mod wire;
/// Next steps in errors, in the words of each caller.
pub mod words;

pub use agents::*;
pub use answers::*;
pub use commands::*;
pub use devices::*;
pub use events::{Event, EventKind, ProgressState};
pub use hosts::*;
pub use labels::{
    LABEL_KEY_BYTES, LABEL_VALUE_BYTES, LABELS_BYTES, LABELS_MOST, LABELS_OPTION, Labels, SESSION_LABELS_OPTION,
    check_changes as check_label_changes, check_key, check_value, decode as decode_label,
};
pub use muxtap_core::{Cursor, Epoch, Error, ErrorCode, Gap, GapReason, Result, Since};
pub use operation::Operation;
pub use pages::*;
pub use place::{Fields, TargetField, is_host_pattern};
pub use recordings::*;
pub use requests::*;
pub use session_names::*;
pub use sessions::*;
pub use status::StatusIs;
pub use streams::*;
pub use tier::{Tier, Tiers};
pub use waits::*;
pub use when::*;
