//! Commands about devices: the known devices, this device's state, and the daemon.

use clap::{Subcommand, ValueEnum};
use muxtap_devices::names;
use serde_json::{Value, json};

use super::{Context, DeviceArg, auth::AuthCommand, output::table, serve, text};

use crate::{
    api::{DeviceInfo, DeviceList, DoneAnswer, RemoteControl, StatusAnswer},
    cli::{Outcome, commands::path_of, output},
};

#[derive(Debug, Subcommand)]
pub(super) enum DeviceCommand {
    /// List devices, online and offline
    ListDevices,
    /// Show one device
    DeviceStatus {
        #[command(flatten)]
        device: DeviceArg,
    },
    /// Run this command line as a device
    #[command(subcommand)]
    Device(OwnDevice),
    /// Allow a device to change this device's workspace
    Allow {
        /// The device
        #[arg(value_name = "DEVICE")]
        device: String,
        /// Revoke the permission
        #[arg(long)]
        revoke: bool,
    },
    /// Manage this device's tokens for TCP callers
    #[command(subcommand)]
    Auth(AuthCommand),
    /// Check whether the daemon responds
    Health,
    /// Show the daemon's addresses
    LanInfo,
}

#[derive(Debug, Subcommand)]
pub(super) enum OwnDevice {
    /// Stay available to other devices until Ctrl-C
    Run {
        /// Which devices may change the workspace; `ask`: those that `allow` named (default: as
        /// last time)
        #[arg(long, value_name = "WHO", value_enum)]
        remote_control: Option<Who>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Who {
    /// No device.
    Never,
    /// Devices that `allow` named.
    Ask,
    /// Every device of this user.
    Always,
}

impl From<Who> for RemoteControl {
    fn from(who: Who) -> Self {
        match who {
            Who::Never => Self::Never,
            Who::Ask => Self::Ask,
            Who::Always => Self::Always,
        }
    }
}

impl DeviceCommand {
    pub(super) async fn run(self, context: &Context<'_>) -> Outcome {
        match self {
            Self::ListDevices => {
                let list: DeviceList = context.caller.client().await?.get("/v1/devices", &()).await?;
                let list = serde_json::to_value(&list).unwrap_or_default();
                context.print(&list, |list| {
                    table(
                        list,
                        "devices",
                        [
                            ("DEVICE", |one| text(one, "deviceId").to_owned()),
                            ("TYPE", |one| text(one, "deviceType").to_owned()),
                            ("ONLINE", |one| {
                                if one.get("online") == Some(&true.into()) { "yes" } else { "no" }.to_owned()
                            }),
                            ("LABEL", |one| text(one, "deviceLabel").to_owned()),
                        ],
                    )
                })
            }
            Self::DeviceStatus { device } => status(context, device.device.as_deref()).await,
            Self::Device(OwnDevice::Run { remote_control }) => {
                serve::run(context, remote_control.map(Into::into)).await
            }
            Self::Allow { device, revoke } => {
                names::check_id(&device)?;
                let identity = context.home.change_identity(|identity| {
                    identity.allowed.retain(|known| *known != device);
                    if !revoke {
                        identity.allowed.push(device.clone());
                    }
                    Ok(())
                })?;
                context.print(&json!({ "allowed": identity.allowed }), |_| String::new())
            }
            Self::Auth(command) => command.run(context).await,
            Self::Health => {
                let answer: DoneAnswer = context.caller.client().await?.get("/health", &()).await?;
                context.print(&json!({ "ok": answer.ok }), |_| "ok\n".into())
            }
            Self::LanInfo => {
                let status: StatusAnswer = context.caller.client().await?.get("/v1/status", &()).await?;
                let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
                let answer = json!({ "hostname": host, "http": status.http, "socket": status.socket });
                context.print(&answer, |_| {
                    let lines = status.http.iter().chain([&status.socket]);
                    lines.fold(String::new(), |text, line| text + line + "\n")
                })
            }
        }
    }
}

/// Shows a device; this one even if the daemon does not know it.
async fn status(context: &Context<'_>, device: Option<&str>) -> Outcome {
    let id = device.unwrap_or(&context.identity.device_id);
    names::check_id(id)?;
    let path = path_of("devices", id);
    let asked = async { context.caller.client().await?.get::<DeviceInfo>(&path, &()).await }.await;
    let answer: Value = match asked {
        Err(error) if error.code == crate::api::ErrorCode::NotFound && id == context.identity.device_id => json!({
            "deviceId": id,
            "deviceLabel": context.identity.device_label,
            "deviceType": "cli",
            "online": false,
            "lastSeenAt": 0,
            "workspaceRevision": context.owner(None)?.read(false).await?.workspace_revision,
        }),
        info => serde_json::to_value(info?).unwrap_or_default(),
    };
    if context.caller.json {
        output::print_json(&answer)?;
        return Ok(0);
    }
    let there = if answer.get("online") == Some(&true.into()) { "online" } else { "offline" };
    let revision = answer.get("workspaceRevision").and_then(Value::as_u64).unwrap_or_default();
    let (label, kind) = (text(&answer, "deviceLabel"), text(&answer, "deviceType"));
    output::print(format!("{id}  {kind}  {there}  revision {revision}  {label}\n"))?;
    Ok(0)
}
