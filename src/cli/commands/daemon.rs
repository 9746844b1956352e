//! `serve`, `status`, `stop`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{
    Caller, Outcome, bytes,
    output::{self, Table, short_duration},
};
use crate::{
    api::{DoneAnswer, Error, ErrorCode, ServerStatus, StatusAnswer},
    cli::EXIT_TIMEOUT,
    daemon::{self, CoverageChoice, DEFAULT_BUDGET_BYTES, DEFAULT_RING_BYTES, ServeOptions, start},
    tmux::death,
};

/// How long a daemon may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// Be the daemon, in the foreground
///
/// It is rarely needed: the first command that asks something starts the daemon by itself. One daemon serves all tmux
/// servers of a user.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap serve
  MUXTAP_LOG=debug muxtap serve --tmux /opt/tmux/bin/tmux

Environment:
  MUXTAP_SOCKET   the daemon's socket (default: $XDG_RUNTIME_DIR/muxtap/muxtap.sock, else
                  /tmp/muxtap-UID/muxtap.sock); the log then stands next to it
  MUXTAP_TMUX     the tmux program, as --tmux
  MUXTAP_LOG      what is logged, as --log-level")]
pub(in crate::cli) struct Serve {
    /// Started by a command that waits for `ready`
    #[arg(long, hide = true)]
    background: bool,
    /// The tmux program: a path, or a name to look for in PATH (default: that in `MUXTAP_TMUX`, else tmux)
    #[arg(long, value_name = "PATH")]
    tmux: Option<PathBuf>,
    /// How tmux servers are followed: by one client on a session of muxtap's own (hub), by one client per session
    /// (sessions), or hub where muxtap started the server and sessions elsewhere (auto)
    #[arg(long, value_enum, default_value_t)]
    coverage: CoverageChoice,
    /// Output kept for each pane, in bytes, units K, M and G
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_RING_BYTES, value_parser = bytes)]
    ring_bytes: u64,
    /// Output and screens kept for all panes together, in bytes, units K, M and G
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_BUDGET_BYTES, value_parser = bytes)]
    budget_bytes: u64,
    /// What is logged: error, warn, info, debug, trace, or a filter as in muxtap=debug (default: that in `MUXTAP_LOG`,
    /// else info)
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

/// Say what the daemon does
///
/// Exits with 1 when none runs; does not start one.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap status
  muxtap status --json | jq .servers")]
pub(in crate::cli) struct Status {}

/// End the daemon
///
/// Returns when it has gone. tmux servers, sessions and panes are as they were; what muxtap remembered of their output
/// is forgotten. Where no daemon runs there is nothing to do.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  muxtap stop")]
pub(in crate::cli) struct Stop {}

impl Serve {
    pub(in crate::cli) fn run(self) -> Outcome {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let log_level = self.log_level.or_else(|| set("MUXTAP_LOG")?.into_string().ok());
        let options = ServeOptions {
            background: self.background,
            tmux: self.tmux.or_else(|| set("MUXTAP_TMUX").map(PathBuf::from)).unwrap_or_else(|| "tmux".into()),
            coverage: self.coverage,
            ring_bytes: self.ring_bytes,
            budget_bytes: self.budget_bytes,
            log_level: log_level.unwrap_or_else(|| "info".to_owned()),
        };
        let served = if options.background { start::enter_background() } else { Ok(()) };
        let served = served.and_then(|()| daemon::serve(&options));
        if let Err(error) = &served
            && options.background
        {
            start::report_failure(error);
        }
        served?;
        Ok(0)
    }
}

impl Status {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let Some(mut client) = caller.running().await? else {
            let message = format!("no muxtap daemon runs (its socket would be {})", caller.paths.socket.display());
            return Err(Error::not_found(message).into());
        };
        let status: StatusAnswer = client.get("/v1/status", &()).await?;
        if caller.json {
            output::print_json(&status)?;
            return Ok(0);
        }
        let mut text = format!(
            "muxtap {} · process {} · up {} · {} open\nsocket  {}\nlog     {}\n",
            status.version,
            status.pid,
            short_duration(status.uptime_s),
            if status.waits == 1 { "1 wait".to_owned() } else { format!("{} waits", status.waits) },
            status.socket,
            status.log.as_deref().unwrap_or("none"),
        );
        if status.servers.is_empty() {
            text.push_str("\nno tmux server is followed\n");
        } else {
            text.push('\n');
            text.push_str(&servers(status.servers));
        }
        output::print(text)?;
        Ok(0)
    }
}

fn servers(servers: Vec<ServerStatus>) -> String {
    let mut table =
        Table::new(&["TMUX SERVER", "STATE", "VERSION", "COVERAGE", "CLIENTS", "SESSIONS", "PANES", "KEPT", "ERROR"]);
    for server in servers {
        table.row(&[
            server.socket,
            server.state,
            server.version.unwrap_or_default(),
            server.coverage.unwrap_or_default(),
            server.clients.to_string(),
            server.sessions.to_string(),
            server.panes.to_string(),
            format!("{} KiB", server.ring_bytes / 1024),
            server.error.unwrap_or_default(),
        ]);
    }
    table.render()
}

impl Stop {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        // Held until it has gone: whoever wants a new daemon in the meantime waits here too.
        let _turn = start::take_turn(&caller.paths)?;
        let Some(mut client) = caller.running().await? else {
            if caller.json {
                output::print_json(&DoneAnswer { ok: true })?;
            } else {
                output::note("no daemon runs");
            }
            return Ok(0);
        };
        let ends = client.process().and_then(death::watch);
        let done: DoneAnswer = client.post("/v1/stop", &serde_json::json!({})).await?;
        let paths = caller.paths.clone();
        let gone = async {
            client.closed().await;
            let gone = tokio::task::spawn_blocking(move || start::wait_until_gone(&paths)).await;
            if let Some(ends) = ends {
                ends.await;
            }
            gone
        };
        match tokio::time::timeout(STOP_LIMIT, gone).await {
            Ok(Ok(gone)) => gone?,
            Ok(Err(error)) => return Err(Error::internal(error.to_string()).into()),
            Err(_) => {
                let limit = STOP_LIMIT.as_secs();
                let message = format!("the daemon was told to stop, but has not ended in {limit} s");
                output::report(&Error::new(ErrorCode::Timeout, message), caller.json);
                // The thread that waits for the lock would hold up an orderly end.
                std::process::exit(i32::from(EXIT_TIMEOUT));
            }
        }
        if caller.json {
            output::print_json(&done)?;
        }
        Ok(0)
    }
}
