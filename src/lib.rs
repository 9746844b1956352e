//! muxtap turns a tmux server into streams: capture, since-reads and waits that never poll.
//!
//! The floors, bottom up: [`protocol`] (what tmux and a control client say to each other, as values), [`pane`] (one
//! pane's output stream), `tmux` (control clients of one server), `engine` (the one API that faces call) and the faces
//! `http` (on [`net`]) and [`cli`], which [`daemon`] runs and finds. [`supervise`] is the tool `manage_tmux_sessions`. [`api`] holds what they ask and answer. `docs/architecture.md`
//! follows a byte through them.

#![allow(
    clippy::similar_names,
    reason = "`held` and `hold`, `carries` and `carriers` are words with their own meaning"
)]

pub mod api;
pub mod bridge;
pub mod cli;
mod clock;
pub mod config;
pub mod daemon;
pub mod engine;
pub mod http;
pub mod mcp;
pub mod metrics;
pub mod net;
pub mod pane;
pub mod protocol;
pub mod screen;
pub mod supervise;
pub mod tmux;
