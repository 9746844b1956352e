//! `session-…`: sessions of coding agents, which the daemon owns, whatever device asks.

use clap::Subcommand;

use super::super::{
    Caller, Outcome,
    agent_session::{
        SessionAttach, SessionCreate, SessionInterrupt, SessionKill, SessionList, SessionSend, SessionWait,
    },
};

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
}
