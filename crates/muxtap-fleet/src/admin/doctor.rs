//! Checks of a fleet: its files, its server, and what NATS lets its members do.

use std::{
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    process::Stdio,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_nats::{
    Client, Event, RequestErrorKind,
    jetstream::{self, stream},
};
use muxtap_api::{Result, Tier};
use muxtap_base::files::{self, SecretError};
use serde::Serialize;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpStream,
    process::Command,
    time::timeout,
};
use tokio_rustls::rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    crypto,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};

use super::{
    folder::Folder,
    member::{ADMIN, Member, Members},
    permissions::{ALL_HOSTS, MARK, STREAM},
    reach::{self, Connection, LIMIT},
    server::Description,
};
use crate::subject;

/// How long before the certificate expires a warning begins.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 86_400);
/// The difference of clocks from which on a warning is given.
const CLOCKS: Duration = Duration::from_secs(2);
/// The most members whose credentials are tried.
const TRIED: usize = 50;
/// A host's name for requests that must be refused; no daemon has it, so an accepted one does nothing.
const PROBE: &str = "muxtap-doctor-probe";
/// The oldest version of NATS that is tested.
const OLDEST: (u32, u32) = (2, 9);

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing; the fleet works.
    Warning,
    /// Something does not work, or is not safe.
    Problem,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name of the check.
    pub name: &'static str,
    /// How serious it is.
    pub status: Level,
    /// The result, and where it was found.
    pub message: String,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    fn ok(name: &'static str, message: impl Into<String>) -> Self {
        Self { name, status: Level::Ok, message: message.into(), fix: None }
    }
    fn warning(name: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, status: Level::Warning, message: message.into(), fix: Some(fix.into()) }
    }
    fn problem(name: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, status: Level::Problem, message: message.into(), fix: Some(fix.into()) }
    }
}

/// Checks a fleet. Creates a stream for its own checks if it is missing, and changes nothing else.
pub async fn doctor(folder: &Folder) -> Result<Vec<Finding>> {
    let description = folder.description()?;
    let mut findings = files_of(folder);
    findings.extend(certificate(folder, &description));
    findings.push(configuration(folder).await);
    let members = match folder.members() {
        Ok(members) => members,
        Err(error) => {
            findings.push(Finding::problem("members", error.message, "undo the edit"));
            return Ok(findings);
        }
    };
    let count = members.iter().count();
    findings.push(Finding::ok(
        "members",
        format!("{count} members, {} of them hosts", members.iter().filter(|m| m.is_host()).count()),
    ));
    findings.extend(server(folder, &description, &members).await);
    Ok(findings)
}

/// Checks owners and modes.
fn files_of(folder: &Folder) -> Vec<Finding> {
    const NAME: &str = "files";
    let mut findings = Vec::new();
    for path in folder.private_folders() {
        let Ok(found) = path.symlink_metadata() else {
            findings.push(Finding::problem(NAME, format!("{} is missing", path.display()), "restore it from a backup"));
            continue;
        };
        if found.permissions().mode() & 0o077 != 0 || found.uid() != rustix::process::getuid().as_raw() {
            let message = format!("{}: mode {:o}, owner {}", path.display(), found.mode() & 0o777, found.uid());
            findings.push(Finding::problem(
                NAME,
                message,
                "chown it to the user that runs the server, and chmod 700 it",
            ));
        }
    }
    for path in folder.private_files() {
        let Err(error) = files::read_secret(&path, 0) else { continue };
        let (SecretError::Open(why) | SecretError::Foreign(why) | SecretError::Unreadable(why)) = error;
        let fix = "chmod 600 it; if others could read a secret key, revoke its member and add it again";
        findings.push(Finding::problem(NAME, format!("{} {why}", path.display()), fix));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(NAME, format!("{}: private", folder.path().display())));
    }
    findings
}

/// Checks the server's certificate: that members accept it, for each name, now and in 30 days.
fn certificate(folder: &Folder, description: &Description) -> Vec<Finding> {
    const NAME: &str = "certificate";
    let fix = "renew it: muxtap fleet renew";
    let names = description.certificate_names();
    let now = SystemTime::now();
    let verified =
        |at| names.iter().try_for_each(|name| verify(folder, name, at).map_err(|why| format!("{name}: {why}")));
    let file = folder.certificate();
    vec![match (verified(now), verified(now + RENEW_BEFORE)) {
        (Err(why), _) => Finding::problem(NAME, format!("{}: {why}", file.display()), fix),
        (_, Err(why)) => Finding::warning(NAME, format!("{}: in 30 days: {why}", file.display()), fix),
        _ => Finding::ok(NAME, format!("valid for {}", names.join(", "))),
    }]
}

fn verify(folder: &Folder, name: &str, at: SystemTime) -> std::result::Result<(), String> {
    fn words(error: impl std::fmt::Display) -> String {
        error.to_string()
    }
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_file_iter(folder.authority()).map_err(words)? {
        roots.add(root.map_err(words)?).map_err(words)?;
    }
    let chain: Vec<_> = CertificateDer::pem_file_iter(folder.certificate())
        .map_err(words)?
        .collect::<std::result::Result<_, _>>()
        .map_err(words)?;
    let (first, rest) = chain.split_first().ok_or("it contains no certificate")?;
    let provider = Arc::new(crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().map_err(words)?;
    let name = ServerName::try_from(name).map_err(words)?;
    let at = UnixTime::since_unix_epoch(at.duration_since(UNIX_EPOCH).unwrap_or_default());
    verifier.verify_server_cert(first, rest, &name, &[], at).map(drop).map_err(words)
}

/// Lets the server check its configuration.
async fn configuration(folder: &Folder) -> Finding {
    const NAME: &str = "configuration";
    let file = folder.server();
    match try_configuration(&file).await {
        Ok(None) => Finding::ok(NAME, format!("{}: valid", file.display())),
        Ok(Some(why)) => Finding::problem(NAME, why, "correct the file; the server does not start with it"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Finding::warning(
            NAME,
            "nats-server is not in PATH: the configuration was not checked",
            "install nats-server",
        ),
        Err(error) => Finding::warning(NAME, format!("nats-server -t: {error}"), "run nats-server -t -c nats.conf"),
    }
}

/// Returns what the server reports about its configuration; `None`: it is valid.
async fn try_configuration(file: &Path) -> io::Result<Option<String>> {
    let checked = async |program| {
        let mut command = Command::new(program);
        command.arg("-t").arg("-c").arg(file).stdin(Stdio::null()).kill_on_drop(true);
        timeout(LIMIT, command.output()).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    };
    let output = match checked("nats-server").await {
        // Where Debian has it, which is not in the PATH of ordinary users.
        Err(error) if error.kind() == io::ErrorKind::NotFound => checked("/usr/sbin/nats-server").await?,
        output => output?,
    };
    if output.status.success() {
        return Ok(None);
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    Ok(Some(text.lines().rfind(|line| !line.is_empty()).unwrap_or("rejected without a reason").to_owned()))
}

/// Checks the running server.
async fn server(folder: &Folder, description: &Description, members: &Members) -> Vec<Finding> {
    const NAME: &str = "server";
    let seed = match folder.admin_seed() {
        Ok(seed) => seed,
        Err(error) => {
            return vec![Finding::problem(NAME, error.message, format!("revoke the member {ADMIN} and add it again"))];
        }
    };
    let (local, url) = (description.local_url(), description.url());
    let connection = match reach::connect(folder, &local, ADMIN, seed.clone()).await {
        Ok(connection) => connection,
        Err(error) => {
            let (why, fix) = reach::explain(&error, ADMIN);
            return vec![Finding::problem(NAME, format!("{local}: {why}"), fix)];
        }
    };
    let mut findings = vec![version(&connection.client, &local)];
    findings.push(match reach::connect(folder, &url, ADMIN, seed).await {
        Ok(_) => Finding::ok("address", format!("{url}: reached, as members do")),
        Err(error) => {
            let (why, fix) = reach::explain(&error, ADMIN);
            Finding::problem("address", format!("{url}: {why}"), fix)
        }
    });
    findings.push(unencrypted(description).await);
    findings.extend(storage(&connection.client).await);
    if let Some(admin) = members.get(ADMIN) {
        findings.push(permissions(connection, admin).await);
    }
    for member in members.iter().filter(|member| !member.is_admin()).take(TRIED) {
        // A seed is usually moved to the member's machine.
        let Ok(Some(seed)) = folder.seed(&member.name) else { continue };
        findings.push(match reach::connect(folder, &local, &member.name, seed).await {
            Ok(connection) => permissions(connection, member).await,
            Err(error) => {
                let (why, fix) = reach::explain(&error, &member.name);
                Finding::problem("credentials", why, fix)
            }
        });
    }
    findings
}

fn version(client: &Client, url: &str) -> Finding {
    let version = client.server_info().version;
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (major, minor) = OLDEST;
    if found < OLDEST {
        let fix = format!("use nats-server {major}.{minor} or later");
        return Finding::warning("server", format!("{url}: NATS {version} is older than what is tested"), fix);
    }
    Finding::ok("server", format!("{url}: NATS {version}"))
}

/// Checks that the server accepts no connection without TLS.
async fn unencrypted(description: &Description) -> Finding {
    const NAME: &str = "tls";
    let read = async {
        let address = (description.local_address(), description.listen.port());
        let mut line = String::new();
        BufReader::new(TcpStream::connect(address).await?).read_line(&mut line).await?;
        Ok::<_, io::Error>(line)
    };
    match timeout(LIMIT, read).await {
        Ok(Ok(line)) if line.contains("\"tls_required\":true") => Finding::ok(NAME, "required for every connection"),
        Ok(Ok(_)) => Finding::problem(
            NAME,
            "the server accepts connections without TLS",
            "restore the section `tls` of nats.conf",
        ),
        Ok(Err(error)) => {
            Finding::problem(NAME, format!("the server cannot be reached: {error}"), "check the firewall")
        }
        Err(_) => Finding::problem(NAME, "the server does not greet", "restart it"),
    }
}

/// Checks JetStream and the clock.
async fn storage(client: &Client) -> Vec<Finding> {
    const NAME: &str = "jetstream";
    let failed = |error: &dyn std::fmt::Display| {
        let fix = "restore the sections `jetstream` of nats.conf, and check the disk of the folder jetstream";
        vec![Finding::problem(NAME, error.to_string(), fix)]
    };
    match storage_used(client).await {
        Ok(used) => vec![Finding::ok(NAME, format!("available, {} KiB used", used >> 10)), clock(client).await],
        Err(error) => failed(&error),
    }
}

/// Returns the bytes that JetStream has stored. `async_nats` cannot read the response of NATS 2.9.
async fn storage_used(client: &Client) -> std::result::Result<u64, async_nats::Error> {
    let response = client.request("$JS.API.INFO", "".into()).await?;
    let response: Value = serde_json::from_slice(&response.payload)?;
    match response.pointer("/error/description").and_then(Value::as_str) {
        Some(error) => Err(error.to_owned().into()),
        None => Ok(response.get("storage").and_then(Value::as_u64).unwrap_or_default()),
    }
}

/// Compares this machine's clock with the server's.
async fn clock(client: &Client) -> Finding {
    const NAME: &str = "clock";
    match offset(client).await {
        Err(error) => Finding::warning(NAME, format!("not compared: {error}"), "run doctor again"),
        Ok(offset) if offset > CLOCKS => {
            let message = format!("this clock and the server's differ by {} s", offset.as_secs());
            Finding::warning(NAME, message, "synchronize both (NTP)")
        }
        Ok(_) => Finding::ok(NAME, "as the server's"),
    }
}

/// Returns the least possible difference of the clocks, from the time that the server gives to a
/// stored message.
async fn offset(client: &Client) -> std::result::Result<Duration, async_nats::Error> {
    let context = jetstream::new(client.clone());
    let config = stream::Config {
        name: STREAM.to_owned(),
        subjects: vec![MARK.to_owned()],
        max_messages: 1,
        storage: stream::StorageType::File,
        ..stream::Config::default()
    };
    let stream = context.get_or_create_stream(config).await?;
    let before = SystemTime::now();
    context.publish(MARK, "".into()).await?.await?;
    let after = SystemTime::now();
    let stamped = SystemTime::from(stream.get_last_raw_message_by_subject(MARK).await?.time);
    let early = before.duration_since(stamped).unwrap_or_default();
    Ok(early.max(stamped.duration_since(after).unwrap_or_default()))
}

/// Checks that NATS refuses what a member may not do.
async fn permissions(connection: Connection, member: &Member) -> Finding {
    const NAME: &str = "permissions";
    match refused(connection, member).await {
        Err(error) => {
            Finding::warning(NAME, format!("member `{}`: not checked: {error}", member.name), "run doctor again")
        }
        Ok(accepted) if accepted.is_empty() => {
            Finding::ok(NAME, format!("member `{}`: accepted, and refused what it may not do", member.name))
        }
        Ok(accepted) => Finding::problem(
            NAME,
            format!("member `{}` may, against members.conf: {}", member.name, accepted.join(", ")),
            "let the server read its configuration again: nats-server --signal reload=PID",
        ),
    }
}

/// Tries what a member may not do. Returns what NATS accepted.
async fn refused(connection: Connection, member: &Member) -> std::result::Result<Vec<String>, async_nats::Error> {
    let Connection { client, mut events } = connection;
    let may = |tier| member.uses.contains(&tier) && member.may_use(PROBE);
    let mut left: Vec<String> =
        Tier::ALL.into_iter().filter(|tier| !may(*tier)).map(|tier| subject::open(PROBE, tier)).collect();
    left.push(subject::audit(PROBE, "00"));
    for subject in &left {
        client.publish(subject.clone(), "".into()).await?;
    }
    let inbox = format!("{}.>", subject::inbox(PROBE));
    let _subscription = client.subscribe(inbox.clone()).await?;
    left.push(inbox);
    // The server reads what a client sends in order: once it replies, it has refused all it refuses.
    match client.request(format!("{ALL_HOSTS}.{PROBE}"), "".into()).await {
        Err(error) if error.kind() != RequestErrorKind::NoResponders => return Err(error.into()),
        _ => {}
    }
    while !left.is_empty() {
        // Its reports come by another task than the reply.
        let Ok(Some(event)) = timeout(Duration::from_secs(1), events.recv()).await else { break };
        if let Event::ServerError(error) = event {
            let text = error.to_string();
            left.retain(|subject| !text.contains(&format!("\"{subject}\"")));
        }
    }
    Ok(left)
}
