//! `session-…`: sessions of coding agents, which the daemon owns for all devices.

use clap::Subcommand;
use muxtap_devices::workspace::Selector;

use super::super::{
    Caller, Outcome,
    agent_session::{
        SessionAttach, SessionCreate, SessionInterrupt, SessionKill, SessionList, SessionSend, SessionWait,
    },
};

use crate::api::{Error, ErrorCode, Result};

/// The commands about agent sessions, as `muxtap agent-session` has them.
#[derive(Debug, Subcommand)]
pub(super) enum SessionCommand {
    #[command(name = "session-create")]
    Create(SessionCreate),
    #[command(name = "session-list")]
    List(SessionList),
    #[command(name = "session-send")]
    Send(SessionSend),
    #[command(name = "session-wait")]
    Wait(SessionWait),
    #[command(name = "session-interrupt")]
    Interrupt(SessionInterrupt),
    #[command(name = "session-kill")]
    Kill(SessionKill),
    #[command(name = "session-attach")]
    Attach(SessionAttach),
}

impl SessionCommand {
    pub(super) async fn run(self, caller: &Caller) -> Outcome {
        if let Some(target) = self.target() {
            check(target)?;
        }
        match self {
            Self::Create(args) => args.run(caller).await,
            Self::List(args) => args.run(caller).await,
            Self::Send(args) => args.run(caller).await,
            Self::Wait(args) => args.run(caller).await,
            Self::Interrupt(args) => args.run(caller).await,
            Self::Kill(args) => args.run(caller).await,
            Self::Attach(args) => args.run(caller).await,
        }
    }

    /// Returns the selector of the selected session.
    fn target(&self) -> Option<&str> {
        match self {
            Self::Create(_) | Self::List(_) => None,
            Self::Send(args) => Some(&args.target),
            Self::Wait(args) => Some(&args.target),
            Self::Interrupt(args) => Some(&args.target),
            Self::Kill(args) => Some(&args.target),
            Self::Attach(args) => Some(&args.target),
        }
    }
}

/// Checks that a selector is `session:PROVIDER:ID`, without a shorthand. Error: `INVALID_TARGET`.
fn check(selector: &str) -> Result<()> {
    if let Selector::Session { .. } = Selector::parse(selector)? {
        return Ok(());
    }
    let message = format!("{selector} names no agent session: expected session:PROVIDER:ID");
    Err(Error::new(ErrorCode::InvalidTarget, message))
}
