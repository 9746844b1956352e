//! Handles for programs: on a server and on a pane, with the requests that each accepts.
//!
//! Interfaces pass the requests of their callers ([`muxtap_api`]'s types, with targets as text); a
//! program uses typed handles instead. Both call the same methods.

mod commands;
mod fit;
mod follow;
mod orders;
mod pane;
mod read;
mod run;
mod server;
mod spawn;
mod wait;

pub use commands::{CommandChange, CommandEvent, CommandOutput};
pub use fit::WindowFit;
pub use follow::{Events, Follow};
pub use orders::ValueList;
pub use pane::Pane;
pub use pane::{PaneLook, PaneWatch};
pub use read::{Capture, Output, Read};
pub use run::Run;
pub use server::Server;
pub(super) use server::socket_dir;
pub use spawn::Spawn;
pub use wait::{Wait, WaitHandle};

use std::pin::Pin;

/// The future of a request that was built step by step and is awaited.
pub type RequestFuture<T> = Pin<Box<dyn Future<Output = muxtap_api::Result<T>> + Send>>;
