//! `session-…`: sessions of coding agents, which the daemon owns for all devices.

use clap::Subcommand;
use muxtap_devices::workspace::Selector;
use serde_json::Value;

use super::super::{
    Caller, Outcome,
    agent_session::{
        SessionAttach, SessionCreate, SessionInterrupt, SessionKill, SessionList, SessionSend, SessionWait,
    },
};

use crate::{
    api::{Error, ErrorCode, Result},
    cli::output,
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
        if let Some(target) = self.target() {
            check(target)?;
        }
        match self {
            Self::Create(args) if caller.json => {
                let info = serde_json::to_value(args.create(caller).await?).unwrap_or_default();
                output::print_json(&named(info))?;
                Ok(0)
            }
            Self::Create(args) => args.run(caller).await,
            Self::List(args) if caller.json => {
                let list = serde_json::to_value(args.list(caller).await?).unwrap_or_default();
                output::print_json(&named(list))?;
                Ok(0)
            }
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

/// Names the fields of a session as the workspace's other responses do: `session_id` is `sessionId`, and
/// `updated_ms` is `updatedAt`.
fn named(value: Value) -> Value {
    match value {
        Value::Array(list) => list.into_iter().map(named).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (camel(&name), named(value))).collect(),
        other => other,
    }
}

fn camel(name: &str) -> String {
    let name = name.strip_suffix("_ms").map_or_else(|| name.to_owned(), |time| format!("{time}_at"));
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

/// Checks that a selector is `session:PROVIDER:ID`, without a shorthand. Error: `INVALID_TARGET`.
fn check(selector: &str) -> Result<()> {
    if let Selector::Session { .. } = Selector::parse(selector)? {
        return Ok(());
    }
    let message = format!("{selector} names no agent session: expected session:PROVIDER:ID");
    Err(Error::new(ErrorCode::InvalidTarget, message))
}
