//! Queries: lists, captures, reads, and the targets that requests name.

pub(super) mod capture;
pub(super) mod commands;
pub(super) mod format;
pub(super) mod list;
pub(super) mod read;
pub(super) mod scope;
pub(super) mod targets;
