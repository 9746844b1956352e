//! Starts sessions, windows, panes and their programs, and keeps what was promised of the programs'
//! ends.

pub(super) mod create;
pub(super) mod integration;
pub(super) mod managed;
pub(super) mod respawn;
pub(super) mod unmanaged;
