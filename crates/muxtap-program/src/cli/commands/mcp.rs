//! `mcp`: relays stdin and stdout to the daemon, which speaks MCP.

use clap::{Args, ValueEnum};
use muxtap_approvals::PlatformEnvironment;
use muxtap_supervise::Supervisor;

use super::{Caller, Outcome, duration, output};

use muxtap_mcp as mcp;

use crate::{
    api::{Error, McpHello, ToolSet, wire::MCP_PROTOCOL},
    cli::{
        caller::whole_environment,
        relay::{Ended, Upgraded},
    },
};

/// Serve MCP to an agent on stdin and stdout
///
/// An MCP client starts this command. The daemon, which all agents of a machine share, does the
/// work. The tmux server is chosen as for other commands; the client's own pane is not typed into
/// or killed without `force`.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  claude mcp add muxtap -- muxtap mcp
  codex mcp add muxtap -- muxtap mcp -L work
  muxtap mcp --hold 2h                         for a client whose calls may take as long
  muxtap mcp --tools manage-tmux-sessions      see docs/manage-tmux-sessions.md")]
pub(in crate::cli) struct Mcp {
    /// Sets of tools, separated by commas: `native` (for every client), `snapshot`, `record`,
    /// `capability`, `devices`, `sessions` (docs/snapshots.md, recordings.md, capability.md,
    /// devices.md, agent-sessions.md) and `manage-tmux-sessions`, which alone is served by this
    /// process, as in its first implementation
    #[arg(long, value_name = "WHICH", value_enum, value_delimiter = ',', default_value = "native")]
    tools: Vec<Tools>,
    /// How long a call waits before it returns `pending` (default: the daemon's `mcp_hold`, 50 s);
    /// must be shorter than the client's own timeout
    #[arg(long, value_name = "TIME", value_parser = duration)]
    hold: Option<u64>,
}

/// Which tools are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tools {
    /// muxtap's own tools, for every client.
    Native,
    /// Snapshots of sessions, layouts and groups of panes.
    Snapshot,
    /// Recordings of panes.
    Record,
    /// The tmux capability of an assistant's sandbox.
    Capability,
    /// Devices and their workspaces.
    Devices,
    /// Sessions of other coding agents.
    Sessions,
    /// `manage_tmux_sessions`.
    ManageTmuxSessions,
}

impl Tools {
    /// Returns the set that the daemon serves.
    fn set(self) -> ToolSet {
        match self {
            Self::Native => ToolSet::Native,
            Self::Snapshot => ToolSet::Snapshot,
            Self::Record => ToolSet::Record,
            Self::Capability => ToolSet::Capability,
            Self::Devices => ToolSet::Devices,
            Self::Sessions => ToolSet::Sessions,
            Self::ManageTmuxSessions => ToolSet::ManageTmuxSessions,
        }
    }
}

impl Mcp {
    /// Whether the tools are served by this process, and not by the daemon.
    pub(in crate::cli) fn serves_by_itself(&self) -> bool {
        self.tools == [Tools::ManageTmuxSessions]
    }

    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let tools = self.tools.into_iter().map(Tools::set).collect();
        let stream = caller.stream()?;
        let hello = McpHello {
            server: caller.server.display().to_string(),
            pane: caller.runs_in.clone(),
            cwd: std::env::current_dir().ok().map(|dir| dir.display().to_string()),
            env: Some(whole_environment()),
            sockets: caller.sockets.as_ref().map(|dir| dir.display().to_string()),
            server_is_named: caller.server_is_named,
            tools,
            hold_ms: self.hold,
        };
        let mut line = serde_json::to_vec(&hello).map_err(|error| Error::internal(error.to_string()))?;
        line.push(b'\n');
        let daemon = Upgraded::open(stream, "/v1/mcp", MCP_PROTOCOL, None).await?;
        match daemon.relay(&line, b"").await? {
            Ended::Client => Ok(0),
            Ended::Daemon => {
                Err(Error::unavailable("the daemon has ended, and with it this session; `muxtap mcp` starts a new one")
                    .into())
            }
        }
    }
}

/// Serves `manage_tmux_sessions` alone. A missing variable is reported as the first implementation
/// did.
pub(in crate::cli) async fn serve_supervisor_only(caller: &Caller) -> Outcome {
    let environment = match PlatformEnvironment::read(&|name| std::env::var(name).ok()) {
        Ok(environment) => environment,
        Err(missing) => {
            output::line_on_stderr(&missing.to_string());
            return Ok(1);
        }
    };
    let tmux = std::env::var_os("MUXTAP_TMUX").filter(|tmux| !tmux.is_empty()).unwrap_or_else(|| "tmux".into());
    let supervisor = Supervisor::compatible(tmux.into(), caller.server.clone(), environment)
        .map_err(|error| Error::internal(format!("cannot start: {error}")))?;
    mcp::supervisor_only::serve(supervisor).await?;
    Ok(0)
}
