//! muxtap turns a tmux server into streams: captures, reads from a cursor and waits that never poll.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! # async fn example() -> muxtap::Result<()> {
//! let engine = muxtap::Engine::start(muxtap::Options::default())?;
//! let server = engine.server("/tmp/tmux-1000/default").await?;
//! let pane = server.pane("work:build").await?;
//!
//! let sent = pane.send_keys(["make", "Enter"]).await?;
//! let hit = pane
//!     .wait()
//!     .pattern(r"(\d+) passed")?
//!     .fail("error:")?
//!     .timeout(Duration::from_secs(600))
//!     .await?;
//! let output = pane.read().since(sent.cursor).await?;
//! println!("{:?} {:?}\n{}", hit.outcome, hit.captures(), output.text());
//!
//! engine.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! [`Engine`], [`Server`] and [`Pane`] are handles; `docs/library.md` and `examples/` show how to use
//! them. Three modules without I/O work by themselves: [`protocol`] (the language of tmux and its
//! control clients), [`stream`] (the output of one pane) and [`screen`] (tmux's grid). [`api`] has the
//! requests and responses.
//!
//! Cargo features, all on by default: `engine` (the handles), `http` ([`http::router`]), and `cli`,
//! `bridge`, `fleet` and `top` (the programs). Without features, only the modules without I/O and [`api`] are
//! built. `docs/architecture.md` is a map of the code.

pub use muxtap_api as api;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub use muxtap_approvals as approvals;
pub use muxtap_core::{marks, protocol, screen, stream};
#[cfg(feature = "http")]
pub use muxtap_http as http;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub use muxtap_program::{cli, config, daemon};
#[cfg(feature = "cli")]
#[doc(hidden)]
pub use muxtap_supervise as supervise;

pub use api::{
    AgentInfo, Cursor, Error, ErrorCode, Event, EventKind, Gap, GapReason, PaneInfo, Result, SessionInfo, Since, Tier,
    Tiers, WaitAnswer, WaitOutcome, WindowInfo,
};
#[cfg(feature = "engine")]
pub use muxtap_engine::{
    Capture, CommandChange, CommandEvent, CommandOutput, Engine, Events, Follow, Options, Output, Pane, PaneCommand,
    Read, RequestFuture, Run, Server, Spawn, Wait, WaitHandle,
};
#[cfg(feature = "engine")]
pub use muxtap_tmux::{CoverageMode, Exit, Floods};
pub use protocol::ids::{PaneId, SessionId, WindowId};
