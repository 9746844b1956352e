//! The daemon's settings: flags override the environment, the environment a file, and a file the
//! defaults.
//!
//! Every setting is text until all of them are gathered. Then each is parsed once, and an error
//! names the setting that is wrong and its source. `docs/config.md` lists them.

mod file;
mod keys;
pub mod paths;
mod values;

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use muxtap_base::files::ReadFile;
use muxtap_tmux::{CoverageMode, Floods, ForeignServer};

pub use file::{AgentSettings, HostSettings};
pub use keys::{KEYS, Key};
pub use values::{LogFormat, bytes};

use muxtap_engine::agents::RulesFile;

use self::paths::Paths;
use crate::api::{ConfigAnswer, Error, Result, Setting, Tier, Tiers, WhenRule};

/// All settings in effect.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The tmux program.
    pub tmux: PathBuf,
    /// Whether a running server is reached with its own program instead.
    pub own_tmux: bool,
    /// The tmux servers of other users that muxtap may speak to.
    pub foreign_servers: Vec<ForeignServer>,
    /// Which control clients follow a server.
    pub coverage: CoverageMode,
    /// How long a pane is followed after its last use.
    pub follow_for: Duration,
    /// The treatment of panes that flood, before tmux 3.8.
    pub floods: Floods,
    /// The number of bytes of output kept for each pane.
    pub ring_bytes: usize,
    /// The number of bytes of output and screens kept for all panes together.
    pub budget_bytes: usize,
    /// Whether shells that muxtap starts in panes mark their commands.
    pub shell_integration: bool,
    /// How long an idle daemon that was started by a command stays; `None`: forever.
    pub idle_end: Option<Duration>,
    /// The log's filter, in the syntax of `tracing`.
    pub log_level: String,
    /// How a line of the log is written.
    pub log_format: LogFormat,
    /// The collector that gets the daemon's spans; only with the feature `otlp`.
    pub otlp: Option<String>,
    /// The tiers that callers have.
    pub allowed: Tiers,
    /// The tiers for which a person must confirm an agent's call.
    pub confirm: Vec<Tier>,
    /// The longest time that an MCP call is held.
    pub mcp_hold: Duration,
    /// The audit log's file; `None`: nothing is recorded.
    pub audit: Option<PathBuf>,
    /// The length in bytes at which the audit log is rotated.
    pub audit_bytes: u64,
    /// The file of the user's own rules of agents; `None`: no place to look for one is known.
    pub agents_file: Option<RulesFile>,
    /// The TCP addresses to listen on.
    pub http: Vec<SocketAddr>,
    /// Names by which callers reach those addresses, besides this machine's own.
    pub names: Vec<String>,
    /// Web origins whose pages may send requests.
    pub origins: Vec<String>,
    /// Folders below which pages open files; `~` is the user's home.
    pub page_folders: Vec<PathBuf>,
    /// Whether TCP is encrypted.
    pub tls: bool,
    /// The certificate (PEM) and its key; `None`: one is generated.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The file of the token that callers over TCP must know.
    pub token_file: PathBuf,
    /// The hosts that targets can name besides this machine.
    pub hosts: Vec<HostSettings>,
    /// The agents for which sessions can be opened.
    pub agents: Vec<AgentSettings>,
    /// The rules that stand.
    pub when: Vec<WhenRule>,
    #[cfg(feature = "fleet")]
    /// The fleet to join; `None`: nothing is offered to one, and no host of one can be named.
    pub fleet: Option<muxtap_fleet::Settings>,
    /// The file that was read.
    file: Option<PathBuf>,
    /// The configuration files as they were before they were read.
    files: Vec<ReadFile>,
    /// Each setting as text, with its source.
    found: Vec<ResolvedSetting>,
}

/// The source of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The default.
    Default,
    /// The configuration file.
    File,
    /// A variable of the environment.
    Environment(&'static str),
    /// A flag of `muxtap serve`.
    Flag(String),
}

/// A setting as text: a list has several parts, everything else one.
#[derive(Clone, Debug)]
struct ResolvedSetting {
    key: &'static Key,
    parts: Vec<String>,
    source: Source,
}

/// The flags of the command line: each a setting's name and its parts.
pub type Flags = Vec<(&'static str, Vec<String>)>;

impl Settings {
    /// Gathers and parses all settings. `file`: a file that was named explicitly and must exist.
    pub fn load(
        paths: &Paths,
        flags: &Flags,
        env: &dyn Fn(&str) -> Option<OsString>,
        file: Option<&Path>,
    ) -> Result<Self> {
        let place = file::place(file, env);
        // Before the file is read: a change in between counts as a later change.
        #[cfg_attr(
            target_os = "linux",
            allow(unused_mut, reason = "the daemon reads the rules again when they change")
        )]
        let mut files: Vec<_> = place.iter().map(|(file, _)| ReadFile::now(file)).collect();
        let file::FileContents { path: file, settings: written, hosts, agents, when } = file::read(place)?;
        let found = KEYS
            .iter()
            .map(|key| {
                if let Some((_, parts)) = flags.iter().find(|(name, _)| *name == key.name) {
                    let flag = format!("--{}", key.name.replace('_', "-"));
                    return Ok(ResolvedSetting { key, parts: parts.clone(), source: Source::Flag(flag) });
                }
                if let Some(value) = env(key.env).filter(|value| !value.is_empty()) {
                    let value =
                        value.into_string().map_err(|_| Error::invalid(format!("{} is not valid UTF-8", key.env)))?;
                    return Ok(ResolvedSetting { key, parts: key.split(&value), source: Source::Environment(key.env) });
                }
                if let Some(parts) = written.get(key.name) {
                    return Ok(ResolvedSetting { key, parts: parts.clone(), source: Source::File });
                }
                Ok(ResolvedSetting { key, parts: key.split(&key.default_with(paths)), source: Source::Default })
            })
            .collect::<Result<Vec<_>>>()?;
        let reader = SettingsReader { found: &found, file: file.as_deref() };
        let allow: Tiers = reader.list::<Tier>("allow")?.into_iter().collect();
        let deny = reader.list::<Tier>("deny")?;
        let read_only = reader.one("read_only", values::boolean)?;
        let (cert, key) = (reader.path("tls_cert")?, reader.path("tls_key")?);
        let certificate = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err(Error::invalid("tls_cert and tls_key must be set together")),
        };
        let agents_file = agents_file(reader.path("agents_file")?, env);
        let audit = if reader.one("audit", values::boolean)? { reader.path("audit_file")? } else { None };
        #[cfg(not(feature = "fleet"))]
        no_fleet(&found)?;
        #[cfg(feature = "fleet")]
        let fleet = fleet(&reader)?;
        #[cfg(feature = "fleet")]
        if audit.is_none() && fleet.as_ref().is_some_and(|fleet| fleet.audit) {
            return Err(Error::invalid("[fleet] audit: the setting audit is false; expected audit = true"));
        }
        #[cfg(not(target_os = "linux"))]
        files.extend(agents_file.iter().map(|file| ReadFile::now(&file.path)));
        Ok(Self {
            tmux: reader.text("tmux")?.into(),
            own_tmux: reader.one("own_tmux", values::boolean)?,
            foreign_servers: reader.list("foreign_servers")?,
            coverage: reader.one("coverage", values::coverage)?,
            follow_for: reader.one("follow_for", values::seconds)?,
            floods: reader.one("floods", values::floods)?,
            ring_bytes: reader.one("ring_bytes", values::size)?,
            budget_bytes: reader.one("budget_bytes", values::size)?,
            shell_integration: reader.one("shell_integration", values::boolean)?,
            log_level: reader.one("log_level", values::log_level)?,
            log_format: reader.one("log_format", values::log_format)?,
            otlp: reader.one("otlp", values::otlp)?,
            allowed: if read_only { Tiers::READ_ONLY } else { allow.without(&deny) },
            confirm: reader.each("confirm", values::confirmable_tier)?,
            mcp_hold: reader.one("mcp_hold", values::seconds)?,
            idle_end: Some(reader.one("idle_end", values::seconds_or_never)?).filter(|long| !long.is_zero()),
            audit,
            audit_bytes: reader.one("audit_bytes", values::bytes)?,
            agents_file,
            http: reader.list("http")?,
            names: reader.list("http_names")?,
            origins: reader.each("http_origins", values::origin)?,
            page_folders: reader.each("page_folders", values::folder)?,
            tls: reader.one("tls", values::boolean)?,
            certificate,
            token_file: reader
                .path("token_file")?
                .ok_or_else(|| Error::invalid("token_file: no default directory for the token; set token_file"))?,
            hosts,
            agents,
            when,
            #[cfg(feature = "fleet")]
            fleet,
            file,
            files,
            found,
        })
    }

    /// Returns the configuration files that were read, and those that were not found.
    pub(crate) fn files(&self) -> &[ReadFile] {
        &self.files
    }

    /// Returns whether the user configured the audit log or its place.
    pub fn audit_is_chosen(&self) -> bool {
        let chosen = |found: &ResolvedSetting| {
            matches!(found.key.name, "audit" | "audit_file") && found.source != Source::Default
        };
        self.found.iter().any(chosen)
    }

    /// Returns the settings in effect, for display.
    pub fn answer(&self) -> ConfigAnswer {
        let settings = self.found.iter().map(|found| Setting {
            key: found.key.name.into(),
            value: found.value(),
            source: match &found.source {
                Source::Default => "default".into(),
                Source::File => self.file.as_ref().map_or_else(String::new, |file| file.display().to_string()),
                Source::Environment(name) => format!("${name}"),
                Source::Flag(flag) => flag.clone(),
            },
        });
        let file = self.file.as_ref().map(|file| file.display().to_string());
        let hosts = self.hosts.iter().flat_map(|host| {
            let set = |field: &str, value: serde_json::Value| Setting {
                key: format!("host.{}.{field}", host.name),
                value,
                source: file.clone().unwrap_or_default(),
            };
            let tmux = host.tmux.as_ref().map(|tmux| set("tmux", tmux.clone().into()));
            let muxtap = host.muxtap.as_ref().map(|muxtap| set("muxtap", muxtap.clone().into()));
            let peer = host.no_peer.then(|| set("peer", false.into()));
            std::iter::once(set("via", host.via.clone().into())).chain(tmux).chain(muxtap).chain(peer)
        });
        let agents = self.agents.iter().flat_map(|agent| {
            let set = |field: &str, value: serde_json::Value| Setting {
                key: format!("agent.{}.{field}", agent.name),
                value,
                source: file.clone().unwrap_or_default(),
            };
            let default = agent.default.then(|| set("default", true.into()));
            std::iter::once(set("command", agent.command.clone().into())).chain(default)
        });
        ConfigAnswer { settings: settings.chain(hosts).chain(agents).collect(), file: file.clone() }
    }
}

impl ResolvedSetting {
    fn value(&self) -> serde_json::Value {
        if self.key.list {
            return self.parts.clone().into();
        }
        let text = self.parts.first().map(String::as_str).unwrap_or_default();
        match text {
            "true" => true.into(),
            "false" => false.into(),
            "" => serde_json::Value::Null,
            text => text.into(),
        }
    }
}

/// Returns the settings of the fleet that were set.
fn of_fleet(found: &[ResolvedSetting]) -> impl Iterator<Item = &ResolvedSetting> {
    let of_fleet = |found: &&ResolvedSetting| found.key.name == "fleet" || found.key.name.starts_with("fleet_");
    let is_set =
        |found: &&ResolvedSetting| found.source != Source::Default && found.parts.iter().any(|part| !part.is_empty());
    found.iter().filter(of_fleet).filter(is_set)
}

#[cfg(not(feature = "fleet"))]
/// Checks that no setting of a fleet is set: without the feature this program joins none.
fn no_fleet(found: &[ResolvedSetting]) -> Result<()> {
    let Some(set) = of_fleet(found).next() else { return Ok(()) };
    let name = set.key.name;
    Err(Error::invalid(format!(
        "{name}: this muxtap was built without fleets; remove the setting, or build with the feature `fleet`"
    )))
}

#[cfg(feature = "fleet")]
/// Returns the settings of the fleet, if its URL is set.
fn fleet(reader: &SettingsReader<'_>) -> Result<Option<muxtap_fleet::Settings>> {
    let name = reader.one("fleet_name", |text| Ok(text.to_owned()))?;
    let settings = muxtap_fleet::Settings {
        url: reader.one("fleet", |text| Ok(text.to_owned()))?,
        credentials: reader.path("fleet_credentials")?,
        tls_ca: reader.path("fleet_tls_ca")?,
        name: if name.is_empty() { muxtap_fleet::settings::default_name() } else { name },
        labels: reader.list("fleet_labels")?,
        offer: reader.list("fleet_offer")?,
        audit: reader.one("fleet_audit", values::boolean)?,
        version: env!("CARGO_PKG_VERSION").into(),
    };
    if settings.url.is_empty() {
        if of_fleet(reader.found).next().is_none() {
            return Ok(None);
        }
        return Err(Error::invalid("[fleet] has no url; expected url = \"nats://HOST:PORT\""));
    }
    settings.check().map_err(|error| Error::invalid(format!("[fleet] {error}")))?;
    Ok(Some(settings))
}

/// Returns the file that was named, or the one in the configuration's folder.
fn agents_file(named: Option<PathBuf>, env: &dyn Fn(&str) -> Option<OsString>) -> Option<RulesFile> {
    let own = || file::folder(env).map(|folder| RulesFile { path: folder.join("agents.toml"), named: false });
    named.map(|path| RulesFile { path, named: true }).or_else(own)
}

struct SettingsReader<'a> {
    found: &'a [ResolvedSetting],
    file: Option<&'a Path>,
}

impl SettingsReader<'_> {
    fn parts(&self, name: &str) -> Result<&ResolvedSetting> {
        // Only a name that is not in the table is missing.
        self.found
            .iter()
            .find(|found| found.key.name == name)
            .ok_or_else(|| Error::internal(format!("unknown setting {name}")))
    }

    fn wrong(&self, found: &ResolvedSetting, text: &str, why: &str) -> Error {
        let place = match &found.source {
            Source::Default => "built in".to_owned(),
            Source::File => self.file.map_or_else(String::new, |file| format!("in {}", file.display())),
            Source::Environment(name) => format!("from ${name}"),
            Source::Flag(flag) => format!("from {flag}"),
        };
        let text = values::without_credentials(text);
        Error::invalid(format!("{} ({place}): {text:?}: {why}", found.key.name))
    }

    fn each<T>(&self, name: &str, read: impl Fn(&str) -> std::result::Result<T, String>) -> Result<Vec<T>> {
        let found = self.parts(name)?;
        let texts = found.parts.iter().filter(|text| !text.is_empty());
        texts.map(|text| read(text).map_err(|why| self.wrong(found, text, &why))).collect()
    }

    fn list<T: std::str::FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<Vec<T>> {
        self.each(name, |text| text.parse().map_err(|error: T::Err| error.to_string()))
    }

    fn one<T>(&self, name: &str, read: impl Fn(&str) -> std::result::Result<T, String>) -> Result<T> {
        let found = self.parts(name)?;
        let text = found.parts.first().map(String::as_str).unwrap_or_default();
        read(text).map_err(|why| self.wrong(found, text, &why))
    }

    fn text(&self, name: &str) -> Result<String> {
        self.one(name, |text| if text.is_empty() { Err("empty".to_owned()) } else { Ok(text.to_owned()) })
    }

    /// Returns a path. A relative one in the configuration file begins in the file's folder: the daemon's
    /// own directory is that of the first command that needed it.
    fn path(&self, name: &str) -> Result<Option<PathBuf>> {
        let in_file = matches!(self.parts(name)?.source, Source::File);
        let folder = self.file.filter(|_| in_file).and_then(Path::parent).unwrap_or(Path::new(""));
        self.one(name, |text| {
            if text.is_empty() {
                return Ok(None);
            }
            std::path::absolute(folder.join(text)).map(Some).map_err(|error| error.to_string())
        })
    }
}

#[cfg(test)]
mod tests;
