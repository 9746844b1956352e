//! The core of muxtap: modules without I/O, clocks or tasks, for use by other programs and for
//! fuzzing.
//!
//! [`protocol`] is the control-mode protocol between tmux and a client, [`stream`] one pane's
//! output as a stream with cursors, [`screen`] the content of tmux's grid, and [`marks`] the
//! commands that shells mark. The crate `muxtap` re-exports them under the same names.

mod cursor;
#[doc(hidden)]
pub mod duration;
mod error;
mod gap;
pub mod marks;
pub mod protocol;
pub mod screen;
#[doc(hidden)]
pub mod stored;
pub mod stream;
#[doc(hidden)]
pub mod token;
mod tokens;
#[doc(hidden)]
pub mod width;

pub use cursor::{Cursor, Epoch, Since};
pub use error::{Error, ErrorCode, Result};
pub use gap::{Gap, GapReason};
