//! What travels between tmux and a control client, as values.
//!
//! This floor is pure: bytes in, values out. It knows no socket, no clock and no task; only [`codec`] borrows a trait
//! from `tokio-util` so that the floor above can put it on a pipe.

pub mod ids;
