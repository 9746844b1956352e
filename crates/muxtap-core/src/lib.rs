//! The core of muxtap: floors without I/O, clocks or tasks, which fuzzing attacks and programs may
//! use by themselves.
//!
//! [`protocol`] is what tmux and a control client say to each other, [`stream`] one pane's output
//! as a stream with cursors, and [`screen`] what tmux's grid holds. The crate `muxtap` re-exports
//! them under the same names.

mod cursor;
#[doc(hidden)]
pub mod duration;
mod error;
mod gap;
pub mod protocol;
pub mod screen;
pub mod stream;
#[doc(hidden)]
pub mod token;
mod tokens;
#[doc(hidden)]
pub mod width;

pub use cursor::{Cursor, Epoch, Since};
pub use error::{Error, ErrorCode, Result};
pub use gap::{Gap, GapReason};
