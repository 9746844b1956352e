//! `mcp`: relays stdin and stdout to the daemon, which speaks MCP.

use std::{
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use clap::{Args, ValueEnum};
use http_body_util::Empty;
use hyper::{Request, StatusCode, client::conn::http1, header};
use hyper_util::rt::TokioIo;

use super::{Caller, Outcome, output};
use crate::{
    api::{Error, McpHello, Result, ToolSet},
    cli::caller::whole_environment,
    http::mcp::UPGRADE,
    mcp,
    supervise::{PlatformEnvironment, Supervisor},
};

/// Serve MCP on stdin and stdout, for an agent
///
/// A client starts it. The work is done by the daemon, which all agents of a machine share. The
/// tmux server that is meant is the one that any command run here would mean; the pane in which the
/// client itself runs is not typed into or killed without `force`.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  claude mcp add muxtap -- muxtap mcp
  codex mcp add muxtap -- muxtap mcp -L work
  muxtap mcp --tools manage-tmux-sessions      as docs/manage-tmux-sessions.md says")]
pub(in crate::cli) struct Mcp {
    /// Which sets of tools, with commas between them: `native` is what every client is offered,
    /// `snapshot`, `record` and `capability` are docs/snapshots.md, recordings.md and capability.md; or
    /// `manage-tmux-sessions` alone, as its first implementation served it, by this process
    #[arg(long, value_name = "WHICH", value_enum, value_delimiter = ',', default_value = "native")]
    tools: Vec<Tools>,
}

/// Which tools are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tools {
    /// muxtap's own, that every client is offered.
    Native,
    /// Snapshots of sessions, layouts and groups of panes.
    Snapshot,
    /// Recordings of panes.
    Record,
    /// The tmux capability of an assistant's sandbox.
    Capability,
    /// `manage_tmux_sessions` alone.
    ManageTmuxSessions,
}

impl Tools {
    /// Returns the set that the daemon serves. Error: this one is served by this process, alone.
    fn set(self) -> Result<ToolSet> {
        match self {
            Self::Native => Ok(ToolSet::Native),
            Self::Snapshot => Ok(ToolSet::Snapshot),
            Self::Record => Ok(ToolSet::Record),
            Self::Capability => Ok(ToolSet::Capability),
            Self::ManageTmuxSessions => {
                Err(Error::invalid("--tools: manage-tmux-sessions is served alone; the native tools have it, too"))
            }
        }
    }
}

impl Mcp {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        if self.tools == [Tools::ManageTmuxSessions] {
            return serve_supervisor_only(caller).await;
        }
        let tools = self.tools.into_iter().map(Tools::set).collect::<Result<Vec<_>>>()?;
        let stream = caller.stream()?;
        let hello = McpHello {
            server: caller.server.display().to_string(),
            pane: caller.runs_in.clone(),
            cwd: std::env::current_dir().ok().map(|dir| dir.display().to_string()),
            env: Some(whole_environment()),
            sockets: caller.sockets.as_ref().map(|dir| dir.display().to_string()),
            server_is_named: caller.server_is_named,
            tools,
        };
        connect(stream, &hello).await?;
        Ok(0)
    }
}

/// Serves `manage_tmux_sessions` alone. A missing variable is reported as the first implementation
/// did.
async fn serve_supervisor_only(caller: &Caller) -> Outcome {
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

/// Bytes that are relayed at once.
const CHUNK_BYTES: usize = 64 << 10;

fn lost(error: &dyn std::fmt::Display) -> Error {
    Error::unavailable(format!("the connection to the daemon was lost: {error}"))
}

async fn connect(stream: UnixStream, hello: &McpHello) -> Result<()> {
    stream.set_nonblocking(true).map_err(|error| lost(&error))?;
    let stream = tokio::net::UnixStream::from_std(stream).map_err(|error| lost(&error))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| lost(&error))?;
    tokio::spawn(connection.with_upgrades());
    let request = Request::get("/v1/mcp")
        .header(header::HOST, "muxtap")
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, UPGRADE)
        .body(Empty::<bytes::Bytes>::new())
        .map_err(|error| lost(&error))?;
    let answer = sender.send_request(request).await.map_err(|error| lost(&error))?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(Error::unavailable(format!(
            "the daemon does not speak MCP ({}); `muxtap stop` ends an old one",
            answer.status()
        )));
    }
    let upgraded = hyper::upgrade::on(answer).await.map_err(|error| lost(&error))?;
    let parts = upgraded.downcast::<TokioIo<tokio::net::UnixStream>>().map_err(|_| lost(&"it is no socket"))?;
    let stream = parts.io.into_inner().into_std().map_err(|error| lost(&error))?;
    // From here on threads that block: they wake up quickest.
    stream.set_nonblocking(false).map_err(|error| lost(&error))?;
    let mut line = serde_json::to_vec(hello).map_err(|error| Error::internal(error.to_string()))?;
    line.push(b'\n');
    (&stream).write_all(&line).map_err(|error| lost(&error))?;
    match tokio::task::spawn_blocking(move || relay(stream, &parts.read_buf)).await {
        Ok(served) => served,
        Err(error) => Err(Error::internal(error.to_string())),
    }
}

/// Relays between the client and the daemon until one of them has closed. Error: that was the
/// daemon.
fn relay(mut from: UnixStream, first: &[u8]) -> Result<()> {
    let mut to = from.try_clone().map_err(|error| lost(&error))?;
    let is_over = Arc::new(AtomicBool::new(false));
    let client = is_over.clone();
    std::thread::spawn(move || {
        // However it ends, the client has sent everything; what it is still owed is relayed below.
        let _ = copy(&mut std::io::stdin().lock(), &mut to);
        client.store(true, Ordering::SeqCst);
        let _ = to.shutdown(Shutdown::Write);
    });
    let mut stdout = std::io::stdout().lock();
    let passed = stdout.write_all(first).and_then(|()| copy(&mut from, &mut stdout));
    if is_over.load(Ordering::SeqCst) {
        // A client that has left need not read its last answers.
        return Ok(());
    }
    passed.map_err(|error| lost(&error))?;
    Err(Error::unavailable("the daemon has ended, and with it this session; `muxtap mcp` starts another one"))
}

/// Copies bytes as they come, until the end.
fn copy(from: &mut impl Read, to: &mut impl Write) -> std::io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all(chunk.get(..read).unwrap_or_default())?;
        to.flush()?;
    }
}
