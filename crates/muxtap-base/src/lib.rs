//! What every crate of muxtap needs and no domain owns. It knows of tmux, panes and requests nothing
//! but the errors and gaps of `muxtap-core`.

pub mod address;
pub mod below;
pub mod clock;
pub mod descriptors;
pub mod files;
pub mod glob;
pub mod metrics;
pub mod nonce;
pub mod plain;
pub mod quoting;
