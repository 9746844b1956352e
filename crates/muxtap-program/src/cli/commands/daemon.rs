//! `serve`, `status`, `stop`, `upgrade`, `config`, `token`.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use muxtap_net::token;
use muxtap_tmux::death;
use tokio::task::JoinError;

use super::{
    Caller, Outcome,
    output::{self, Table, short_duration},
};

use crate::{
    api::{
        ConfigAnswer, DoneAnswer, Error, ErrorCode, Result, ServerStatus, Setting, StatusAnswer, UpgradeAnswer,
        UpgradeRequest, WaitInfo, WaitList,
    },
    cli::{
        EXIT_TIMEOUT,
        client::Client,
        watch::{Source, View, no_daemon, watch},
    },
    config::{Flags, Settings, bytes, paths::Paths},
    daemon::{
        self, Begin,
        start::{self, Holder},
    },
};

/// How long a daemon may take to exit.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// Run the daemon in the foreground
///
/// Rarely needed: the first command that needs the daemon starts it. One daemon serves all tmux
/// servers of a user. Settings come from these options, then from the environment, then from the
/// configuration file; `muxtap config` prints the settings in force.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap serve
  muxtap serve --replace --read-only          with other settings, in place of the running daemon
  muxtap serve --http 127.0.0.1:7717          also on TCP, for callers with the token
  muxtap serve --http 0.0.0.0:7717 --tls      also for other machines
  MUXTAP_LOG=debug muxtap serve --tmux /opt/tmux/bin/tmux

Environment:
  MUXTAP_SOCKET   the daemon's socket (default: $XDG_RUNTIME_DIR/muxtap/muxtap.sock, else
                  /tmp/muxtap-UID/muxtap.sock); if set, the log is next to it
  MUXTAP_CONFIG   the configuration file, as --config
  MUXTAP_LOG      the log level, as --log-level; the other flags have variables, too
                  (MUXTAP_TMUX, MUXTAP_HTTP, MUXTAP_READ_ONLY ...)")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(in crate::cli) struct Serve {
    /// Started by a command that waits for `ready`
    #[arg(long, hide = true)]
    background: bool,
    /// Started by a daemon, which hands over to it
    #[arg(long, hide = true, conflicts_with = "replace")]
    take_over: bool,
    /// Take over from the running daemon, as `muxtap upgrade` does; it continues if this one cannot
    #[arg(long)]
    replace: bool,
    /// With --replace: end what cannot be handed over
    #[arg(long, requires = "replace")]
    force: bool,
    #[command(flatten)]
    settings: SettingFlags,
}

/// Settings that the command line can give.
#[derive(Debug, Default, Args)]
pub(in crate::cli) struct SettingFlags {
    /// The configuration file (default: `$XDG_CONFIG_HOME/muxtap/config.toml`, if present)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The tmux program that starts servers: a path, or a name in PATH. A running server is reached
    /// by its own program if that can be run [default: tmux]
    #[arg(long, value_name = "PATH")]
    tmux: Option<String>,
    /// Trust these tmux servers of other users, as in 1001:/tmp/tmux-1001/default
    #[arg(long, value_name = "UID:PATH", value_delimiter = ',')]
    foreign_servers: Option<Vec<String>>,
    /// How to follow tmux servers: a client in each session in use (used), in every session at all
    /// times (sessions), or a single client in muxtap's own session (hub) [default: used]
    #[arg(long, value_name = "HOW", value_parser = ["used", "sessions", "hub"])]
    coverage: Option<String>,
    /// How long to follow a pane after its last use, with --coverage used [default: 600]
    #[arg(long, value_name = "SECONDS")]
    follow_for: Option<u64>,
    /// How to treat a pane that prints megabytes a second: hold reads the pane about once a second;
    /// follow reads all output, but `tmux respawn-pane -k` of that pane can then crash a tmux
    /// before 3.8 [default: hold]
    #[arg(long, value_name = "HOW", value_parser = ["hold", "follow"])]
    floods: Option<String>,
    /// Output to retain for each pane, in bytes, units K, M and G [default: 1M]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    ring_bytes: Option<u64>,
    /// Output and screens to retain for all panes together, in bytes, units K, M and G [default:
    /// 512M]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    budget_bytes: Option<u64>,
    /// The log level: error, warn, info, debug, trace, or a filter as in muxtap=debug [default:
    /// info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// How lines of the log are written [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"])]
    log_format: Option<String>,
    /// Tiers that callers may use: read, input, create, kill [default: all]
    #[arg(long, value_name = "TIERS", value_delimiter = ',')]
    allow: Option<Vec<String>>,
    /// Tiers denied to callers
    #[arg(long, value_name = "TIERS", value_delimiter = ',')]
    deny: Option<Vec<String>>,
    /// Allow callers only to read
    #[arg(long)]
    read_only: bool,
    /// Tiers for which an agent's client must ask a person first
    #[arg(long, value_name = "TIERS", value_delimiter = ',')]
    confirm: Option<Vec<String>>,
    /// How long an MCP call waits before it returns `pending` [default: 50]
    #[arg(long, value_name = "SECONDS")]
    mcp_hold: Option<u64>,
    /// How long a daemon started by a command stays idle before it exits; 0: never exits [default:
    /// 600]
    #[arg(long, value_name = "SECONDS")]
    idle_end: Option<u64>,
    /// Whether to record callers' actions in the audit log [default: true]
    #[arg(long, value_name = "BOOL")]
    audit: Option<bool>,
    /// The audit log file [default: audit.jsonl next to the log]
    #[arg(long, value_name = "FILE")]
    audit_file: Option<String>,
    /// Rotate the audit log at this size in bytes; three older files are kept [default: 10M]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    audit_bytes: Option<u64>,
    /// Your own rules that identify agents and their states [default: agents.toml next to
    /// config.toml, if present]
    #[arg(long, value_name = "FILE")]
    agents_file: Option<String>,
    /// Also listen on this TCP address; beyond this machine only with --tls
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',')]
    http: Option<Vec<String>>,
    /// Host names by which TCP callers may reach the daemon, besides localhost
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    http_names: Option<Vec<String>>,
    /// Web origins whose pages may call, as in `https://example.org`
    #[arg(long, value_name = "ORIGINS", value_delimiter = ',')]
    http_origins: Option<Vec<String>>,
    /// Encrypt TCP, with --tls-cert or a created certificate
    #[arg(long)]
    tls: bool,
    /// The certificate (PEM), followed by its chain
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<String>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,
    /// The file with the token that TCP callers must present [default: token next to the log]
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,
    /// Join the fleet of this NATS server, as in `nats://10.0.0.1:4222`; what it may do on this host is
    /// set by [fleet] in the configuration file
    #[arg(long, value_name = "URL")]
    fleet: Option<String>,
}

impl SettingFlags {
    fn flags(&self) -> Flags {
        fn one(name: &'static str, value: Option<&impl ToString>) -> Option<(&'static str, Vec<String>)> {
            value.map(|value| (name, vec![value.to_string()]))
        }
        fn list(name: &'static str, parts: Option<&Vec<String>>) -> Option<(&'static str, Vec<String>)> {
            parts.map(|parts| (name, parts.clone()))
        }
        let set = |yes: bool| yes.then_some(true);
        [
            one("tmux", self.tmux.as_ref()),
            list("foreign_servers", self.foreign_servers.as_ref()),
            one("coverage", self.coverage.as_ref()),
            one("follow_for", self.follow_for.as_ref()),
            one("floods", self.floods.as_ref()),
            one("ring_bytes", self.ring_bytes.as_ref()),
            one("budget_bytes", self.budget_bytes.as_ref()),
            one("log_level", self.log_level.as_ref()),
            one("log_format", self.log_format.as_ref()),
            list("allow", self.allow.as_ref()),
            list("deny", self.deny.as_ref()),
            one("read_only", set(self.read_only).as_ref()),
            list("confirm", self.confirm.as_ref()),
            one("mcp_hold", self.mcp_hold.as_ref()),
            one("idle_end", self.idle_end.as_ref()),
            one("audit", self.audit.as_ref()),
            one("audit_file", self.audit_file.as_ref()),
            one("audit_bytes", self.audit_bytes.as_ref()),
            one("agents_file", self.agents_file.as_ref()),
            list("http", self.http.as_ref()),
            list("http_names", self.http_names.as_ref()),
            list("http_origins", self.http_origins.as_ref()),
            one("tls", set(self.tls).as_ref()),
            one("tls_cert", self.tls_cert.as_ref()),
            one("tls_key", self.tls_key.as_ref()),
            one("token_file", self.token_file.as_ref()),
            one("fleet", self.fleet.as_ref()),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn settings(&self) -> Result<Settings> {
        Settings::load(&Paths::from_env()?, &self.flags(), &|name| std::env::var_os(name), self.config.as_deref())
    }
}

/// Print settings and where each was set
///
/// Settings of the running daemon, else of the daemon that would be started.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap config
  muxtap config --json | jq '.settings[] | select(.source != \"default\")'")]
pub(in crate::cli) struct Config {}

/// Print the token that TCP callers must present
///
/// Creates the token if it is missing. A caller with the token can do everything that the daemon
/// allows.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  curl -H \"Authorization: Bearer $(muxtap token)\" http://127.0.0.1:7717/v1/status
  muxtap token --new      reject callers with the old token from now on")]
pub(in crate::cli) struct TokenArgs {
    /// Create a new token first
    #[arg(long)]
    new: bool,
}

/// Show the daemon's status
///
/// Exit status 1 if no daemon is running. Starts no daemon.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap status
  muxtap status --json | jq .servers
  muxtap status --watch                          keep updating, until Ctrl-C")]
pub(in crate::cli) struct Status {
    /// Keep updating
    #[arg(short, long)]
    watch: bool,
}

/// Stop the daemon
///
/// Returns when the daemon has exited. tmux servers, sessions and panes stay as they were; muxtap's
/// memory of their output is lost. Does nothing if no daemon is running.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  muxtap stop")]
pub(in crate::cli) struct Stop {}

/// Replace the daemon with a new version
///
/// The running daemon starts its program again, from the path where a new version may be by now, with
/// the same settings files and options. The new daemon takes over what the old one has: tmux clients,
/// panes, cursors, waits and event streams continue. If it cannot, the old daemon continues, and this
/// command says why.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap upgrade
  muxtap upgrade --program ~/src/muxtap/target/release/muxtapd")]
pub(in crate::cli) struct Upgrade {
    /// The program to start [default: that of the running daemon]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// End what cannot be handed over: recordings, agent sessions, and requests that stay open
    #[arg(long)]
    force: bool,
}

impl Upgrade {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        if caller.remote.is_some() {
            return Err(Error::invalid("run `muxtap upgrade` on the daemon's machine").into());
        }
        let program = match &self.program {
            Some(program) => {
                // A link stays one: later upgrades start it again.
                let found = std::fs::metadata(program)
                    .and_then(|_| std::path::absolute(program))
                    .map_err(|error| Error::invalid(format!("--program {}: {error}", program.display())))?;
                let text = found.to_str().map(str::to_owned);
                Some(text.ok_or_else(|| Error::invalid("--program: the path is not valid UTF-8"))?)
            }
            None => None,
        };
        // Locked meanwhile: nothing stops the daemon, or starts another one.
        let _start_lock = start::lock_start(&caller.paths)?;
        // A connection to systemd's socket would start a daemon.
        let running = if start::holder(&caller.paths).is_some() { reachable(caller).await? } else { None };
        let Some(mut client) = running else { return Err(no_daemon(caller).into()) };
        let request = UpgradeRequest { program, force: self.force };
        let answer: UpgradeAnswer = client.post("/v1/upgrade", &request).await?;
        if caller.json {
            output::print_json(&answer)?;
            return Ok(0);
        }
        let status = match caller.running().await? {
            Some(mut client) => client.get::<StatusAnswer>("/v1/status", &()).await.ok(),
            None => None,
        };
        let version = status.map_or_else(String::new, |status| status.version);
        output::note(&taken_over(&version, env!("CARGO_PKG_VERSION"), answer.pid));
        Ok(0)
    }
}

/// The message after an upgrade. `own`: the version of this command line.
fn taken_over(version: &str, own: &str, pid: u32) -> String {
    let space = if version.is_empty() { "" } else { " " };
    let done = format!("muxtap{space}{version} has taken over, as process {pid}");
    if version.is_empty() || version == own {
        return done;
    }
    format!("{done}; this command is muxtap {own}: `muxtap upgrade --program PATH` starts another program")
}

impl Serve {
    pub(in crate::cli) fn run(self) -> Outcome {
        let served = if self.background { start::enter_background() } else { Ok(()) };
        let settings = served.and_then(|()| self.settings.settings());
        if let Err(error) = &settings
            && self.take_over
        {
            daemon::upgrade::refuse_to_take_over(error);
        }
        let begin = match self {
            Self { take_over: true, .. } => Begin::TakeOver,
            Self { replace: true, force, .. } => Begin::Replace { force },
            _ => Begin::Alone,
        };
        let served = settings.and_then(|settings| daemon::serve(&settings, self.background, begin));
        if let Err(error) = &served
            && self.background
        {
            start::report_failure(error);
        }
        served?;
        Ok(0)
    }
}

impl Config {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let config = config_in_force(caller).await?;
        if caller.json {
            output::print_json(&config)?;
            return Ok(0);
        }
        let mut table = Table::new(&["SETTING", "VALUE", "FROM"]);
        for Setting { key, value, source } in config.settings {
            table.row(&[key, shown(&value), source]);
        }
        output::print(table.render())?;
        Ok(0)
    }
}

/// Returns the settings of the running daemon, else of a daemon that would be started here.
pub(super) async fn config_in_force(caller: &Caller) -> Result<ConfigAnswer> {
    match caller.running().await? {
        Some(mut client) => client.get("/v1/config", &()).await,
        None => Ok(SettingFlags::default().settings()?.answer()),
    }
}

fn shown(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(parts) => parts.iter().map(shown).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

impl TokenArgs {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let file = match caller.running().await? {
            // The daemon may use a file other than the one found here.
            Some(mut client) => {
                let config: ConfigAnswer = client.get("/v1/config", &()).await?;
                let file = config.settings.into_iter().find(|setting| setting.key == "token_file");
                file.and_then(|file| file.value.as_str().map(PathBuf::from))
            }
            None => None,
        };
        let file = match file {
            Some(file) => file,
            None => SettingFlags::default().settings()?.token_file,
        };
        if self.new {
            token::renew(&file)?;
        }
        let token = token::read_or_create(&file)?;
        if caller.json {
            output::print_json(&serde_json::json!({ "token": token, "file": file }))?;
        } else {
            output::print(format!("{token}\n"))?;
        }
        Ok(0)
    }
}

impl Status {
    /// Returns whether the command prints until it is stopped.
    pub(in crate::cli) fn goes_on(&self) -> bool {
        self.watch
    }

    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        if self.watch {
            return watch(caller, Source::Status, async |caller: &Caller| status(caller).await).await;
        }
        status(caller).await?.print(caller)
    }
}

/// Connects to the running daemon; `None` if none runs. Error: `CONFLICT` if one runs, but its
/// socket was removed or replaced.
pub(super) async fn reachable(caller: &Caller) -> Result<Option<Client>> {
    // One that has written its lock file listens, so a connection that fails afterwards has a reason.
    let before = if caller.remote.is_none() { start::holder(&caller.paths) } else { None };
    let client = caller.running().await;
    let Some(before) = before.filter(Holder::has_begun) else { return client };
    let is_cut_off = match &client {
        // It may have ended meanwhile.
        Ok(None) => start::holder(&caller.paths).is_some_and(|holder| holder.has_begun()),
        // One that was replaced meanwhile is another process by now.
        Ok(Some(client)) => {
            leads_elsewhere(&before, Some(client))
                && start::holder(&caller.paths).is_some_and(|holder| leads_elsewhere(&holder, Some(client)))
        }
        Err(_) => false,
    };
    if is_cut_off { Err(before.cut_off(&caller.paths)) } else { client }
}

/// Returns whether the socket of the daemon that runs leads to nothing, or to another process.
fn leads_elsewhere(holder: &Holder, client: Option<&Client>) -> bool {
    // Not every system names the process of a connection.
    client.is_none_or(|client| client.process().is_some_and(|peer| holder.is_cut_off(peer)))
}

async fn status(caller: &Caller) -> Result<View> {
    let Some(mut client) = reachable(caller).await? else { return Err(no_daemon(caller)) };
    let status: StatusAnswer = client.get("/v1/status", &()).await?;
    let mut key = status.clone();
    key.uptime_s = 0;
    key.servers.iter_mut().for_each(|server| server.ring_bytes = 0);
    let mut text = format!(
        "muxtap {} · process {} · up {} · {} open\nsocket  {}\n{}log     {}\n",
        status.version,
        status.pid,
        short_duration(status.uptime_s),
        if status.waits == 1 { "1 wait".to_owned() } else { format!("{} waits", status.waits) },
        status.socket,
        status.http.iter().fold(String::new(), |lines, url| lines + "http    " + url + "\n"),
        status.log.as_deref().unwrap_or("the daemon's stderr"),
    );
    for warning in &status.warnings {
        text = text + "warning " + &muxtap_base::plain::message(warning) + "\n";
    }
    if status.servers.is_empty() {
        text.push_str("\nno tmux server is followed\n");
    } else {
        text.push('\n');
        text.push_str(&servers(&status.servers));
        if status.servers.iter().any(|server| server.clients > 0) {
            text.push_str(
                "\ntmux counts muxtap's clients as people; `muxtap doctor` lists the options and hooks they affect\n",
            );
        }
    }
    View::new(text, &status, &key)
}

fn servers(servers: &[ServerStatus]) -> String {
    let mut table =
        Table::new(&["TMUX SERVER", "STATE", "VERSION", "COVERAGE", "CLIENTS", "SESSIONS", "PANES", "KEPT", "ERROR"]);
    for server in servers {
        table.row(&[
            server.socket.clone(),
            server.state.clone(),
            server.version.clone().unwrap_or_default(),
            server.coverage.clone().unwrap_or_default(),
            server.clients.to_string(),
            server.sessions.to_string(),
            server.panes.to_string(),
            format!("{} KiB", server.ring_bytes / 1024),
            server.error.clone().unwrap_or_default(),
        ]);
    }
    table.render()
}

/// Returns the panes of a wait, with their server.
fn panes_of(wait: &WaitInfo) -> String {
    let panes = wait.panes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    format!("{panes} on {}", wait.socket)
}

impl Stop {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        // Locked until the daemon has exited: other commands that need a new daemon also wait here.
        let _start_lock = start::lock_start(&caller.paths)?;
        if caller.remote.is_none() {
            start::check_socket(&caller.paths)?;
        }
        // A connection to systemd's socket would start a daemon.
        let holder = start::holder(&caller.paths);
        let running = if caller.remote.is_some() || holder.is_some() { caller.running().await? } else { None };
        if let Some(holder) = holder.filter(|_| caller.remote.is_none())
            && leads_elsewhere(&holder, running.as_ref())
            // It may have ended meanwhile.
            && start::holder(&caller.paths).is_some()
        {
            drop(running);
            return stop_by_signal(caller, &holder).await;
        }
        let Some(mut client) = running else {
            if caller.json {
                output::print_json(&DoneAnswer { ok: true })?;
            } else {
                output::note("no daemon is running");
            }
            return Ok(0);
        };
        let waits = client.get::<WaitList>("/v1/waits", &()).await.map(|list| list.waits).unwrap_or_default();
        for wait in waits.iter().filter(|_| !caller.json) {
            output::note(&format!("ends a wait of {} ({}) in {}", wait.who, wait.face, panes_of(wait)));
        }
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
        await_end(caller, gone).await?;
        if caller.json {
            output::print_json(&done)?;
        }
        Ok(0)
    }
}

/// Stops a daemon whose socket leads elsewhere.
async fn stop_by_signal(caller: &Caller, holder: &Holder) -> Outcome {
    holder.terminate(&caller.paths)?;
    let paths = caller.paths.clone();
    await_end(caller, tokio::task::spawn_blocking(move || start::wait_until_gone(&paths))).await?;
    if caller.json {
        output::print_json(&DoneAnswer { ok: true })?;
    } else {
        output::note("stopped the daemon by SIGTERM: its socket had been removed or replaced");
    }
    Ok(0)
}

/// Waits for the end of a daemon that is to stop. A timeout ends this process.
async fn await_end(caller: &Caller, gone: impl Future<Output = Result<Result<()>, JoinError>>) -> Result<()> {
    match tokio::time::timeout(STOP_LIMIT, gone).await {
        Ok(Ok(gone)) => gone,
        Ok(Err(error)) => Err(Error::internal(error.to_string())),
        Err(_) => {
            let limit = STOP_LIMIT.as_secs();
            let message = format!("timeout: the daemon has not exited in {limit} s after the request to stop");
            output::report(&Error::new(ErrorCode::Timeout, message), caller.json);
            // The thread that waits for the lock would delay a normal exit.
            std::process::exit(i32::from(EXIT_TIMEOUT));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_to_another_version_than_the_commands_says_so() {
        assert_eq!(taken_over("1.0.0", "1.0.0", 7), "muxtap 1.0.0 has taken over, as process 7");
        let other = taken_over("1.0.0", "1.1.0", 7);
        assert!(other.contains("this command is muxtap 1.1.0") && other.contains("--program"), "{other}");
    }
}
