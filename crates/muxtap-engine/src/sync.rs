//! Primitives that threads share where the order of their meetings matters: panes with their
//! readers, and waits.
//!
//! They are those of `std` and tokio. In this crate's own tests they can also be loom's, which
//! tries every order (`model.rs`).

#[cfg(not(test))]
pub(super) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64},
};

#[cfg(not(test))]
pub use tokio::sync::{Notify, watch};

#[cfg(test)]
mod model;
#[cfg(test)]
pub(crate) use model::{AtomicBool, AtomicU64, Mutex, MutexGuard, Notify, check, watch};
