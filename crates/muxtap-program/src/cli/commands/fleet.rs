//! `fleet`.

use std::{
    fmt::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use muxtap_base::{plain, quoting::shell_word};
use muxtap_fleet::admin::{self, Description, Finding, Folder, Level, Member, MemberStatus, Request, Status};
use serde::Serialize;

use super::{
    Caller, Outcome,
    output::{self, Table},
};

use crate::{
    api::{Error, Result, Tier},
    cli::EXIT_ERROR,
};

/// Manage a fleet: a NATS server and its members
///
/// These commands work on the folder of a fleet, on the machine and as the user of its NATS server.
/// They need no daemon.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap fleet init ~/fleet --host-name nats.example.org
  nats-server -c ~/fleet/nats.conf
  muxtap fleet add web-1 --offer read,input --dir ~/fleet    a host
  muxtap fleet add amy --use read --dir ~/fleet              a caller that may read on all hosts
  muxtap fleet status --dir ~/fleet
  muxtap fleet audit web-1 --dir ~/fleet                     the copy of a host's audit log")]
pub(in crate::cli) struct FleetArgs {
    /// The fleet's folder
    #[arg(long, global = true, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    #[command(subcommand)]
    word: FleetCommand,
}

#[derive(Debug, Subcommand)]
enum FleetCommand {
    /// Create a fleet: a configuration for nats-server, certificates, the key of the admin
    Init {
        /// The fleet's folder; missing or empty
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// The address on which the server listens, with or without a port
        #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:4222", value_parser = listen)]
        listen: SocketAddr,
        /// A name or address by which machines reach the server; repeatable, members use the first
        /// (default: this machine's name)
        #[arg(long, value_name = "NAME", value_parser = host_name)]
        host_name: Vec<String>,
    },
    /// Add a member: a host, a caller or both
    Add {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
        /// The tiers of requests that it serves: read, input, create, kill
        #[arg(long, value_name = "TIERS", default_value = "none", value_parser = tiers)]
        offer: Tiers,
        /// The tiers of requests that it may make to hosts: read, input, create, kill
        #[arg(long = "use", value_name = "TIERS", default_value = "none", value_parser = tiers)]
        uses: Tiers,
        /// The hosts to which it may make them: names, `*` for any characters, separated by commas
        /// (default: all)
        #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
        hosts: Vec<String>,
        /// Its daemon may copy its audit log to the server
        #[arg(long)]
        audit: bool,
    },
    /// Remove a member and its permissions
    Revoke {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Show the members, and which hosts are connected
    Status,
    /// Print the copies of audit logs, of all members or of one
    ///
    /// Lines of all members have the field `host`. The first call creates the stream that takes the
    /// copies: before it, none are made.
    Audit {
        /// The member whose log is printed as it is on its machine
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// Report problems of the fleet and how to fix them
    ///
    /// Checks the files, the certificate, the configuration, the server, its clock, and that NATS
    /// refuses to members what they may not do. Exit status 1 if a problem was found.
    Doctor,
    /// Renew the server's certificate; members need no change
    Renew {
        /// The names by which machines reach the server; repeatable (default: as before)
        #[arg(long, value_name = "NAME", value_parser = host_name)]
        host_name: Vec<String>,
    },
}

/// Tiers of an option.
#[derive(Clone, Debug)]
struct Tiers(Vec<Tier>);

fn tiers(text: &str) -> Result<Tiers> {
    let tiers = if text == "none" { Ok(Vec::new()) } else { text.split(',').map(str::parse).collect() };
    tiers.map(Tiers)
}

fn listen(text: &str) -> Result<SocketAddr> {
    admin::listen_address(text)
}

fn host_name(text: &str) -> Result<String> {
    admin::check_host_name(text).map(|()| text.to_owned())
}

/// The response of a command that changes the folder.
#[derive(Serialize)]
struct Changed<'a> {
    dir: String,
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<&'a Member>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed_file: Option<String>,
    tls_ca: String,
}

#[derive(Serialize)]
struct Report {
    ok: bool,
    checks: Vec<Finding>,
}

impl FleetArgs {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let dir = self.dir;
        match self.word {
            FleetCommand::Init { folder, listen, host_name } => {
                let names = if host_name.is_empty() { vec![own_name()] } else { host_name };
                if names.len() > admin::NAMES {
                    let message = format!("too many names: {}; expected at most {}", names.len(), admin::NAMES);
                    return Err(Error::invalid(message).into());
                }
                let description = Description::new(listen, names);
                let folder = Folder::init(&folder, &description)?;
                if caller.json {
                    return print(&changed(&folder, &description, None));
                }
                let dir = word(folder.path());
                output::print(format!(
                    "{dir}: a fleet for {}; README there names the files. Next:\n\n  \
                     nats-server -c {dir}/nats.conf\n  muxtap fleet doctor --dir {dir}\n",
                    description.url()
                ))?;
                Ok(0)
            }
            FleetCommand::Add { name, offer, uses, hosts, audit } => {
                let folder = Folder::open(&dir)?;
                let hosts = if hosts.is_empty() && !uses.0.is_empty() { vec!["*".to_owned()] } else { hosts };
                let request = Request { name: &name, offer: &offer.0, uses: &uses.0, hosts: &hosts, audit };
                let (member, _) = folder.add(request)?;
                let description = folder.description()?;
                if caller.json {
                    return print(&changed(&folder, &description, Some(&member)));
                }
                reload(&folder);
                let dir = folder.path().display();
                output::note(&format!(
                    "on the machine of {name}, beside config.toml, mode 0600: {dir}/members/{name}.nk as fleet.nk, \
                     {dir}/tls/ca.pem as fleet-ca.pem; in config.toml:"
                ));
                output::print(settings(&description, &member))?;
                Ok(0)
            }
            FleetCommand::Revoke { name } => {
                let folder = Folder::open(&dir)?;
                let member = folder.revoke(&name)?;
                if caller.json {
                    return print(&changed(&folder, &folder.description()?, Some(&member)));
                }
                output::note(&format!("{name} is removed, and recorded in {}/revoked.jsonl", folder.path().display()));
                output::note(
                    "until the server reads its configuration, the member keeps its connection and its access",
                );
                reload(&folder);
                Ok(0)
            }
            FleetCommand::Status => {
                let status = admin::status(&Folder::open(&dir)?).await?;
                if caller.json {
                    return print(&status);
                }
                output::print(render(&status))?;
                Ok(0)
            }
            FleetCommand::Audit { name } => {
                let folder = Folder::open(&dir)?;
                let mut copies = admin::Copies::open(&folder, name.as_deref()).await?;
                while let Some(lines) = copies.next().await? {
                    output::print(lines)?;
                }
                Ok(0)
            }
            FleetCommand::Doctor => {
                let checks = admin::doctor(&Folder::open(&dir)?).await?;
                let report = Report { ok: checks.iter().all(|check| check.status != Level::Problem), checks };
                if caller.json {
                    output::print_json(&report)?;
                } else {
                    output::print(render_report(&report))?;
                }
                Ok(if report.ok { 0 } else { EXIT_ERROR })
            }
            FleetCommand::Renew { host_name } => {
                let folder = Folder::open(&dir)?;
                let description = folder.renew(&host_name)?;
                if caller.json {
                    return print(&changed(&folder, &description, None));
                }
                let names = description.certificate_names().join(", ");
                output::note(&format!("a certificate for {} days: {names}", admin::SERVER_DAYS));
                reload(&folder);
                Ok(0)
            }
        }
    }
}

fn print(answer: &impl Serialize) -> Outcome {
    output::print_json(answer)?;
    Ok(0)
}

fn changed<'a>(folder: &Folder, description: &Description, member: Option<&'a Member>) -> Changed<'a> {
    let seed = member.map(|member| folder.seed_file(&member.name)).filter(|file| file.exists());
    Changed {
        dir: folder.path().display().to_string(),
        url: description.url(),
        member,
        seed_file: seed.map(|file| file.display().to_string()),
        tls_ca: folder.authority().display().to_string(),
    }
}

/// Returns this machine's name, if it can be in a certificate.
fn own_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if admin::check_host_name(&name).is_ok() { name } else { "localhost".to_owned() }
}

/// Returns a path as a word of a shell command.
fn word(path: &Path) -> String {
    shell_word(&path.to_string_lossy())
}

/// Says how the server reads the change.
fn reload(folder: &Folder) {
    let pid = word(&folder.pid_file());
    output::note(&format!("let the server read the change: nats-server --signal reload={pid}"));
}

/// Renders the settings for a member's `config.toml`.
fn settings(description: &Description, member: &Member) -> String {
    let offer: Vec<_> = member.offer.iter().map(|tier| format!("\"{tier}\"")).collect();
    let mut text = format!(
        "[fleet]\nurl = \"{}\"\nname = \"{}\"\ncredentials = \"fleet.nk\"\n\
         tls_ca = \"fleet-ca.pem\"\n",
        description.url(),
        member.name
    );
    if !offer.is_empty() {
        // Writing to a String cannot fail; also below.
        let _ = writeln!(text, "offer = [{}]", offer.join(", "));
    }
    if member.audit.is_some() {
        text.push_str("audit = true\n");
    }
    text
}

fn words(tiers: &[Tier]) -> String {
    let words: Vec<_> = tiers.iter().map(|tier| tier.as_str()).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(",") }
}

fn render(status: &Status) -> String {
    let mut table = Table::new(&["NAME", "OFFER", "USE", "HOSTS", "CONNECTED", "VERSION", "MACHINE", "SERVES"]);
    for MemberStatus { member, connected, instances, .. } in &status.members {
        let connected = match (connected, instances.len()) {
            (None, _) => "-".to_owned(),
            (Some(false), _) => "no".to_owned(),
            (Some(true), 1) => "yes".to_owned(),
            (Some(true), count) => format!("{count} times"),
        };
        let first = instances.first();
        let hosts = if member.hosts.is_empty() { "-".to_owned() } else { member.hosts.join(",") };
        table.row(&[
            member.name.clone(),
            words(&member.offer),
            words(&member.uses),
            hosts,
            connected,
            first.map(|instance| instance.version.clone()).unwrap_or_default(),
            first.and_then(|instance| instance.machine.clone()).unwrap_or_default(),
            first.map(|instance| words(&instance.offer)).unwrap_or_default(),
        ]);
    }
    format!("{} (NATS {})\n\n{}", status.url, plain::name(&status.server_version), table.render())
}

fn render_report(report: &Report) -> String {
    let mut text = String::new();
    for check in &report.checks {
        let mark = match check.status {
            Level::Ok => "ok     ",
            Level::Warning => "note   ",
            Level::Problem => "PROBLEM",
        };
        let _ = writeln!(text, "{mark}  {:<13}  {}", check.name, plain::name(&check.message));
        if let Some(fix) = &check.fix {
            let _ = writeln!(text, "{:24}-> {}", "", plain::name(fix));
        }
    }
    text.push_str(if report.ok { "\nThe fleet is ready.\n" } else { "\nFix each PROBLEM, then run doctor again.\n" });
    text
}
