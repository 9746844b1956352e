//! `auth`: the device's tokens.

use std::{path::Path, sync::Arc};

use clap::Subcommand;
use futures_util::FutureExt as _;
use muxtap_base::clock;
use muxtap_devices::{
    local::{Home, Login},
    sessions::TOKEN_TIME,
};
use serde_json::{Value, json};

use super::Context;
use crate::{
    api::{
        DeviceScope, DeviceSession, DeviceSessionRequest, DeviceType, DoneAnswer, Error, ErrorCode, RefreshRequest,
        Result,
    },
    cli::{Outcome, caller::Caller, client::Client, output, remote::Remote},
};

/// How long before its end a token for another machine is renewed, in milliseconds.
const RENEW_BEFORE_MS: u64 = 60_000;

#[derive(Debug, Subcommand)]
pub(super) enum AuthCommand {
    /// Get and store tokens for this device, of the user's own daemon or of one on another machine
    ///
    /// With `--url`, every later command uses that daemon, until `auth logout`. The daemon's token
    /// (`muxtap token` there) is read from the variable `AUTH_TOKEN`, or `MUXTAP_TOKEN`, and not stored.
    /// `SSL_CERT_FILE` names a certificate to trust.
    Login {
        /// The other machine's daemon, as `https://HOST:7717`
        #[arg(long, value_name = "URL")]
        url: Option<String>,
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
    /// End the session and delete its tokens, even if the daemon cannot be reached
    Logout,
}

impl AuthCommand {
    pub(super) async fn run(self, context: &Context<'_>) -> Outcome {
        let login = match self {
            Self::Login { url, remote_control, terminals } => {
                let wanted = [(remote_control, DeviceScope::RemoteControl), (terminals, DeviceScope::Terminals)];
                let request = DeviceSessionRequest {
                    device_id: context.identity.device_id.clone(),
                    device_label: context.identity.device_label.clone(),
                    device_type: DeviceType::Cli,
                    scopes: wanted.into_iter().filter_map(|(wanted, scope)| wanted.then_some(scope)).collect(),
                };
                let _lock = context.home.lock_auth()?;
                let mut client = client_at(context.caller, url.as_deref()).await?;
                if url.is_some() {
                    client = client.with_bearer(bootstrap()?);
                }
                let now = clock::now_ms();
                let session = in_time(url.as_deref(), client.post("/api/device-sessions", &request)).await?;
                let login = login(url, session, now);
                context.home.set_auth(&login)?;
                Some(login)
            }
            Self::Refresh => Some(refresh(context.caller, &context.home).await?),
            Self::Status => context.home.auth()?,
            Self::Logout => {
                let _lock = context.home.lock_auth()?;
                if let Err(error) = logout(context, kept(&context.home)?).await {
                    output::note(&format!(
                        "the tokens are deleted here, but the daemon did not end the session, which lasts until it \
                         expires: {error}"
                    ));
                }
                context.home.forget_auth()?;
                None
            }
        };
        context.print(&answer(context, login.as_ref()), |answer| {
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

/// Returns the daemon's token, as the environment names it.
fn bootstrap() -> Result<String> {
    let named = |name| std::env::var(name).ok().filter(|token| !token.trim().is_empty());
    named("AUTH_TOKEN").or_else(|| named("MUXTAP_TOKEN")).map(|token| token.trim().to_owned()).ok_or_else(|| {
        let message = "--url: missing token: set AUTH_TOKEN to what `muxtap token` prints on the other machine";
        Error::new(ErrorCode::Unauthorized, message)
    })
}

/// Connects to the daemon of a login, without a token. `None`: the user's own.
async fn client_at(caller: &Caller, url: Option<&str>) -> Result<Client> {
    match url {
        Some(url) => Client::remote(&Remote::parse(url)?, &caller.paths, Path::new("")).await,
        None => caller.client().await,
    }
}

/// Limits a request to a daemon of another machine.
async fn in_time<T>(url: Option<&str>, request: impl Future<Output = Result<T>>) -> Result<T> {
    match url {
        Some(url) => Remote::parse(url)?.in_time(request).await?,
        None => request.await,
    }
}

/// Returns a login. The end of a token for another machine, whose clock may be ahead, is at most a
/// token's duration from the request on, at `now_ms`.
fn login(url: Option<String>, mut session: DeviceSession, now_ms: u64) -> Login {
    if url.is_some() {
        let longest = u64::try_from(TOKEN_TIME.as_millis()).unwrap_or(u64::MAX);
        session.expires_at = session.expires_at.min(now_ms.saturating_add(longest));
    }
    Login { url, session }
}

/// When a token for another machine is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renew {
    /// Not now: the command needs no daemon.
    Never,
    /// If it is about to expire.
    Due,
    /// Unless another command has done that: the daemon rejects this token.
    Rejected,
}

/// Returns a caller for the daemon of another machine, if this device has logged in there.
pub(super) async fn logged_in(caller: &Caller, home: &Home, renew: Renew) -> Result<Option<Caller>> {
    let Some(login) = home.auth()? else { return Ok(None) };
    if login.url.is_none() {
        return Ok(None);
    }
    let is_due = match renew {
        Renew::Never => false,
        Renew::Due => login.session.expires_at <= clock::now_ms() + RENEW_BEFORE_MS,
        Renew::Rejected => caller.remote.as_ref().is_none_or(|(_, token)| *token == login.session.token),
    };
    let login = if is_due { refresh(caller, home).await? } else { login };
    // Another command may have logged in elsewhere meanwhile: a token is used with its own URL alone.
    let Some(url) = login.url.clone() else { return Ok(None) };
    let (copy, home) = (Arc::new(caller.on_server(caller.server.clone())), home.clone());
    let of = url.clone();
    let renewal = move |rejected| renewed(copy.clone(), home.clone(), of.clone(), rejected).boxed();
    let remote = Remote::parse(&url)?.renewed_by(Arc::new(renewal));
    Ok(Some(caller.on_machine(remote, login.session.token)))
}

/// Returns the token of the daemon at `url` after a rejected one. `None`: this device has logged out of
/// that daemon. The tokens of another daemon are never returned: they would be sent to this one.
async fn renewed(caller: Arc<Caller>, home: Home, url: String, rejected: String) -> Result<Option<String>> {
    let Some(login) = home.auth()?.and_then(|login| of_url(login, &url)) else { return Ok(None) };
    // Another command may have renewed it.
    let login =
        if login.session.token == rejected { of_url(refresh(&caller, &home).await?, &url) } else { Some(login) };
    Ok(login.map(|login| login.session.token))
}

/// Returns a login if it is of the daemon at `url`.
fn of_url(login: Login, url: &str) -> Option<Login> {
    Some(login).filter(|login| login.url.as_deref() == Some(url))
}

/// Ends a session. If its token has expired, the refresh token gets a new one, which ends the
/// session.
async fn logout(context: &Context<'_>, login: Login) -> Result<()> {
    let Login { url, session } = login;
    match end(context, url.as_deref(), session.token).await {
        Err(error) if error.code == ErrorCode::Unauthorized => {}
        ended => return ended,
    }
    let request = RefreshRequest { refresh_token: session.refresh_token };
    let mut client = client_at(context.caller, url.as_deref()).await?;
    let renewed = client.post::<DeviceSession>("/api/device-sessions/refresh", &request);
    match in_time(url.as_deref(), renewed).await {
        Ok(session) => end(context, url.as_deref(), session.token).await,
        // Both tokens are unusable.
        Err(error) if error.code == ErrorCode::Unauthorized => Ok(()),
        Err(error) => Err(error),
    }
}

async fn end(context: &Context<'_>, url: Option<&str>, token: String) -> Result<()> {
    let client = client_at(context.caller, url).await?;
    let mut client = client.with_bearer(token);
    in_time(url, client.delete::<DoneAnswer>("/api/device-sessions/current")).await.map(drop)
}

/// Gets the next tokens, or returns those that another command got while this one waited for it.
async fn refresh(caller: &Caller, home: &Home) -> Result<Login> {
    let before = kept(home)?;
    let _lock = home.lock_auth()?;
    let now = kept(home)?;
    if now.session.refresh_token != before.session.refresh_token {
        return Ok(now);
    }
    let Login { url, session } = now;
    let request = RefreshRequest { refresh_token: session.refresh_token };
    let mut client = client_at(caller, url.as_deref()).await?;
    let now = clock::now_ms();
    let renewed = client.post::<DeviceSession>("/api/device-sessions/refresh", &request);
    match in_time(url.as_deref(), renewed).await {
        Ok(session) => {
            let login = login(url, session, now);
            home.set_auth(&login)?;
            Ok(login)
        }
        // Without tokens, later commands would use this machine's own daemon, which the user did not
        // choose.
        Err(mut error) if error.code == ErrorCode::Unauthorized && url.is_some() => {
            error.message.push_str("; `auth login --url` logs in again, `auth logout` returns to this machine");
            Err(error)
        }
        Err(error) => {
            if error.code == ErrorCode::Unauthorized {
                home.forget_auth()?;
            }
            Err(error)
        }
    }
}

fn kept(home: &Home) -> Result<Login> {
    let absent = || Error::new(ErrorCode::Unauthorized, "not logged in: auth login logs this device in");
    home.auth()?.ok_or_else(absent)
}

/// Describes a session without its tokens.
fn answer(context: &Context<'_>, login: Option<&Login>) -> Value {
    match login {
        Some(Login { url, session }) => json!({
            "loggedIn": true,
            "url": url,
            "deviceId": session.device_id,
            "expiresAt": session.expires_at,
            "expired": session.expires_at <= clock::now_ms(),
            "scopes": session.scopes,
            "file": context.home.auth_file().display().to_string(),
        }),
        None => json!({ "loggedIn": false, "deviceId": context.identity.device_id }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_a_clock_that_is_ahead_expires_in_time() {
        let session = |expires_at: u64| -> DeviceSession {
            serde_json::from_value(json!({
                "deviceId": "d", "token": "t", "refreshToken": "r", "expiresAt": expires_at, "scopes": ["layout-write"]
            }))
            .unwrap()
        };
        let url = || Some("https://box".to_owned());
        let (now, hour) = (1_700_000_000_000, 3_600_000);
        assert_eq!(login(url(), session(now + hour), now).session.expires_at, now + 900_000);
        assert_eq!(login(url(), session(now + 60_000), now).session.expires_at, now + 60_000);
        assert_eq!(login(None, session(now + hour), now).session.expires_at, now + hour);
    }
}
