//! One pane's output stream, from bytes to values.
//!
//! This module is pure like [`crate::protocol`]: it has no sockets and no clocks; where time
//! matters, it is an argument.

pub mod colors;
pub mod decoder;
pub mod echo;
pub mod join;
pub mod lines;
pub mod matcher;
pub mod patterns;
pub mod render;
pub mod resume;
pub mod ring;
pub mod text;
pub mod width;
