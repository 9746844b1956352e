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
#[cfg(feature = "bridge")]
pub mod bridge;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "engine")]
mod clock;
#[cfg(feature = "cli")]
pub mod config;
#[cfg(feature = "cli")]
pub mod daemon;
#[cfg(feature = "engine")]
mod descriptors;
#[cfg(feature = "engine")]
#[cfg_attr(
    not(feature = "bridge"),
    allow(dead_code, unused_imports, reason = "every face calls a part of the one API of all of them")
)]
pub mod engine;
#[cfg(feature = "engine")]
mod glob;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "mcp")]
pub mod mcp;
#[cfg(feature = "engine")]
pub mod metrics;
#[cfg(feature = "http")]
pub mod net;
#[cfg(feature = "engine")]
mod nonce;
#[cfg(feature = "cli")]
mod plain;
pub mod protocol;
pub mod screen;
pub mod stream;
#[cfg(feature = "mcp")]
pub mod supervise;
#[cfg(feature = "engine")]
pub mod tmux;
mod width;
