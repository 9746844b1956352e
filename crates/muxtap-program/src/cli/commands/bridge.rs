//! `bridge`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use muxtap_base::descriptors;
use muxtap_engine::Options;
use muxtap_tmux::{Environment, Program, ServerChoice};

use super::{Outcome, output};

use muxtap_bridge::{
    settings::{Flags, Settings},
    tls,
};

use crate::{
    api::Error,
    cli::EXIT_ERROR,
    config::{
        self,
        paths::{self, Paths},
    },
    daemon::{audit, log},
};

/// Serve tmux to a spreadsheet add-in
///
/// Serves `/health` and `/v1/tmux` (bridge contract v1) on this machine, in the foreground, to
/// pages of the allowed origins. Sessions live on the bridge's own tmux server and outlive the
/// bridge.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "Examples:
  muxtap bridge                                  http://127.0.0.1:3341
  muxtap bridge --https                          https://localhost:3341, with a created certificate
  muxtap bridge --token                          require a token from clients; print its file's path
  muxtap bridge trust                            how to make browsers accept that certificate
  TMUX_BRIDGE_MODE=stub PORT=4000 muxtap bridge  no tmux, sessions in memory

Environment:
  HOST, PORT                      where it listens (127.0.0.1, with TLS localhost; 3341)
  TMUX_BRIDGE_MODE                tmux or stub (tmux)
  TMUX_BRIDGE_TOKEN               what clients must send as `Authorization: Bearer TOKEN` (none)
  ALLOWED_ORIGINS                 origins of pages that may call, separated by commas
  TMUX_BRIDGE_SOCKET_DIR, TMUX_BRIDGE_SOCKET_PATH
                                  tmux's socket ($TMPDIR/pi-for-excel-tmux-bridge/tmux.sock)
  TMUX_BRIDGE_COMMAND_TIMEOUT_MS  how long tmux may take for a command (10000)
  HTTPS                           1 or true: as --https
  PI_FOR_EXCEL_CERT_DIR, PI_FOR_EXCEL_KEY_PATH, PI_FOR_EXCEL_CERT_PATH
                                  a certificate of your own (key.pem and cert.pem in the folder)
  MUXTAP_TMUX, MUXTAP_LOG, MUXTAP_READ_ONLY and so on
                                  as for `serve`, and so is its configuration file; the log goes to stderr"
)]
pub(in crate::cli) struct Bridge {
    #[command(subcommand)]
    command: Option<BridgeCommand>,
    /// Encrypt, with the certificate of the environment or one created for this machine
    #[arg(long)]
    https: bool,
    /// Do not encrypt, whatever the environment says
    #[arg(long)]
    http: bool,
    /// Require a token from clients: that of `TMUX_BRIDGE_TOKEN`, or one created once in
    /// `bridge-token` of muxtap's state folder
    #[arg(long)]
    token: bool,
}

/// Subcommands that need no running bridge.
#[derive(Clone, Copy, Debug, Subcommand)]
enum BridgeCommand {
    /// Show where the created certificate's authority is and how each system trusts it
    Trust,
}

impl Bridge {
    pub(in crate::cli) fn run(self, server: &ServerChoice) -> Outcome {
        let var = |name: &str| std::env::var_os(name);
        if let Some(BridgeCommand::Trust) = self.command {
            let host = var("HOST").and_then(|host| host.into_string().ok()).unwrap_or_else(|| "localhost".into());
            let made = tls::made(&host, &var).map_err(Error::invalid)?;
            output::print(tls::how_to_trust(&made.authority))?;
            return Ok(0);
        }
        let socket = if *server == ServerChoice::default() {
            None
        } else {
            Some(Environment { var: &var, uid: paths::uid() }.resolve(server)?)
        };
        let settings =
            match Settings::read(&var, &Flags { https: self.https, http: self.http, token: self.token, socket }) {
                Ok(settings) => settings,
                Err(wrong) => return Ok(refused(&wrong)),
            };
        let mut common = config::Settings::load(&Paths::from_env()?, &config::Flags::new(), &var, None)?;
        // The daemon's audit log has one writer, which also rotates it.
        common.audit = common.audit.map(|audit| own_file(&audit));
        descriptors::prepare();
        let _traces = log::to_stderr(&common.log_level, common.log_format, None)?;
        // One thread, as the daemon: the task that reads tmux wakes the one that responds.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::internal(format!("cannot start: {error}")))?;
        let served = runtime.block_on(muxtap_bridge::serve(&settings, options(&common), || audit(&common)));
        // A task that hangs in the kernel must not keep the bridge alive.
        runtime.shutdown_background();
        Ok(served.map_or_else(|why| refused(&why), |()| 0))
    }
}

/// Returns the engine's settings except its audit log.
fn options(common: &config::Settings) -> Options {
    Options {
        program: Program { tmux: common.tmux.clone(), own: common.own_tmux, ..Program::default() },
        follow_for: common.follow_for,
        floods: common.floods,
        ring_bytes: common.ring_bytes,
        budget_bytes: common.budget_bytes,
        allowed: common.allowed,
        ..Options::default()
    }
}

/// Returns the bridge's own audit log: `bridge-audit.jsonl` for `audit.jsonl`.
fn own_file(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| format!("bridge-{}", name.to_string_lossy()));
    path.with_file_name(name.unwrap_or_default())
}

/// Prints why the bridge does not run, only in the contract's words.
fn refused(why: &str) -> u8 {
    output::line_on_stderr(why);
    EXIT_ERROR
}
