//! Starts sessions, windows, panes and the programs in them, and keeps what was promised of those.

pub(super) mod create;
pub(super) mod managed;
pub(super) mod respawn;
pub(super) mod unmanaged;
