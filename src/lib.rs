//! muxtap turns a tmux server into streams: capture, since-reads and waits that never poll.
//!
//! The floors, bottom up: [`protocol`] (what tmux and a control client say to each other, as
//! values), [`stream`] (one pane's output stream), `tmux` (control clients of one server), `engine`
//! (the one API that faces call) and the faces `http` (on [`net`]) and [`cli`], which [`daemon`]
//! runs and finds. [`supervise`] is the tool `manage_tmux_sessions`. [`api`] holds what they ask
//! and answer. `docs/architecture.md` follows a byte through them.

#![allow(
    clippy::similar_names,
    reason = "`held` and `hold`, `carries` and `carriers` are words with their own meaning"
)]

pub mod api;
#[cfg(feature = "full")]
pub mod bridge;
#[cfg(feature = "full")]
pub mod cli;
#[cfg(feature = "full")]
mod clock;
#[cfg(feature = "full")]
pub mod config;
#[cfg(feature = "full")]
pub mod daemon;
#[cfg(feature = "full")]
mod descriptors;
#[cfg(feature = "full")]
pub mod engine;
#[cfg(feature = "full")]
mod glob;
#[cfg(feature = "full")]
pub mod http;
#[cfg(feature = "full")]
pub mod mcp;
#[cfg(feature = "full")]
pub mod metrics;
#[cfg(feature = "full")]
pub mod net;
#[cfg(feature = "full")]
mod nonce;
#[cfg(feature = "full")]
mod plain;
pub mod protocol;
pub mod screen;
pub mod stream;
#[cfg(feature = "full")]
pub mod supervise;
#[cfg(feature = "full")]
pub mod tmux;
