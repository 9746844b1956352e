//! Snapshots of sessions, layouts of windows and groups of panes, by name: `docs/snapshots.md`.
//!
//! `model` is the content of a snapshot, `file` its format on disk, `import` other programs'
//! formats, `diff` compares two: all pure. `save` and `restore` use a server through its handle.

pub mod answers;
mod diff;
mod file;
pub mod groups;
mod import;
mod layout;
pub mod layouts;
mod limits;
mod model;
mod named;
mod restore;
mod resurrect;
mod runs;
mod save;
mod seal;
mod store;
mod yaml;

#[cfg(test)]
mod tests;

pub use groups::name_in;
pub use limits::FILE_BYTES;
pub use store::Store;
