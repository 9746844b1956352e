//! `auth`: the device's tokens.

use clap::Subcommand;
use muxtap_base::clock;
use serde_json::{Value, json};

use super::Context;
use crate::{
    api::{
        DeviceScope, DeviceSession, DeviceSessionRequest, DeviceType, DoneAnswer, Error, ErrorCode, RefreshRequest,
        Result,
    },
    cli::{Outcome, client::Client},
};

#[derive(Debug, Subcommand)]
pub(super) enum AuthCommand {
    /// Get and store tokens for this device
    Login {
        /// Let the token request changes of other devices
        #[arg(long)]
        remote_control: bool,
        /// Let the token use all other routes, too
        #[arg(long)]
        terminals: bool,
    },
    /// Show the tokens' status, without the tokens
    Status,
    /// Renew the tokens
    Refresh,
    /// End the session and delete its tokens
    Logout,
}

impl AuthCommand {
    pub(super) async fn run(self, context: &Context<'_>) -> Outcome {
        let mut client = context.caller.client().await?;
        let session = match self {
            Self::Login { remote_control, terminals } => {
                let wanted = [(remote_control, DeviceScope::RemoteControl), (terminals, DeviceScope::Terminals)];
                let request = DeviceSessionRequest {
                    device_id: context.identity.device_id.clone(),
                    device_label: context.identity.device_label.clone(),
                    device_type: DeviceType::Cli,
                    scopes: wanted.into_iter().filter_map(|(wanted, scope)| wanted.then_some(scope)).collect(),
                };
                let _lock = context.home.lock_auth()?;
                let session: DeviceSession = client.post("/api/device-sessions", &request).await?;
                context.home.set_auth(&session)?;
                Some(session)
            }
            Self::Refresh => Some(refresh(context, &mut client).await?),
            Self::Status => context.home.auth()?,
            Self::Logout => {
                let _lock = context.home.lock_auth()?;
                logout(context, kept(context)?).await?;
                context.home.forget_auth()?;
                None
            }
        };
        context.print(&answer(context, session.as_ref()), |answer| {
            match answer.get("expiresAt").and_then(Value::as_u64) {
                Some(ends) if ends > clock::now_ms() => {
                    format!("logged in for another {} s\n", ends.saturating_sub(clock::now_ms()) / 1000)
                }
                Some(_) => "the token has expired; auth refresh renews it\n".into(),
                None => "not logged in\n".into(),
            }
        })
    }
}

/// Ends a session. If its token has expired, the refresh token gets a new one, which ends the
/// session.
async fn logout(context: &Context<'_>, session: DeviceSession) -> Result<()> {
    match end(context, session.token).await {
        Err(error) if error.code == ErrorCode::Unauthorized => {}
        ended => return ended,
    }
    let request = RefreshRequest { refresh_token: session.refresh_token };
    let mut client = context.caller.client().await?;
    match client.post::<DeviceSession>("/api/device-sessions/refresh", &request).await {
        Ok(next) => {
            // The new token stays usable if the next step fails.
            context.home.set_auth(&next)?;
            end(context, next.token).await
        }
        // Both tokens are unusable.
        Err(error) if error.code == ErrorCode::Unauthorized => Ok(()),
        Err(error) => Err(error),
    }
}

async fn end(context: &Context<'_>, token: String) -> Result<()> {
    let client = context.caller.client().await?;
    client.with_bearer(token).delete::<DoneAnswer>("/api/device-sessions/current").await.map(drop)
}

/// Gets the next tokens, or returns those that another command got while this one waited for it.
async fn refresh(context: &Context<'_>, client: &mut Client) -> Result<DeviceSession> {
    let before = kept(context)?;
    let _lock = context.home.lock_auth()?;
    let now = kept(context)?;
    if now.refresh_token != before.refresh_token {
        return Ok(now);
    }
    let request = RefreshRequest { refresh_token: now.refresh_token };
    match client.post::<DeviceSession>("/api/device-sessions/refresh", &request).await {
        Ok(session) => {
            context.home.set_auth(&session)?;
            Ok(session)
        }
        Err(error) => {
            if error.code == ErrorCode::Unauthorized {
                context.home.forget_auth()?;
            }
            Err(error)
        }
    }
}

fn kept(context: &Context<'_>) -> Result<DeviceSession> {
    let absent = || Error::new(ErrorCode::Unauthorized, "not logged in: auth login logs this device in");
    context.home.auth()?.ok_or_else(absent)
}

/// Describes a session without its tokens.
fn answer(context: &Context<'_>, session: Option<&DeviceSession>) -> Value {
    match session {
        Some(session) => json!({
            "loggedIn": true,
            "deviceId": session.device_id,
            "expiresAt": session.expires_at,
            "expired": session.expires_at <= clock::now_ms(),
            "scopes": session.scopes,
            "file": context.home.auth_file().display().to_string(),
        }),
        None => json!({ "loggedIn": false, "deviceId": context.identity.device_id }),
    }
}
