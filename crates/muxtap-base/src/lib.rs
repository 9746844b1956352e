//! Utilities that every crate of muxtap needs and that belong to no domain. Of tmux, panes and
//! requests, only the errors and gaps of `muxtap-core` are known here.

pub mod address;
pub mod age;
pub mod below;
pub mod clock;
pub mod descriptors;
pub mod files;
pub mod glob;
pub mod metrics;
pub mod nonce;
pub mod plain;
pub mod quoting;
pub mod spans;
