//! The configuration file.

use std::{
    collections::HashMap,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use muxtap_base::files::read_configuration;

use super::keys::KEYS;
use crate::api::{Error, ErrorCode, Result, WhenRule};

/// The longest configuration file, in bytes.
const FILE_BYTES: u64 = 1 << 20;

type FileSettings = HashMap<String, Vec<String>>;

/// A host of the configuration, `[host.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSettings {
    /// Its name in targets.
    pub name: String,
    /// The command that runs programs on the host, as words.
    pub via: Vec<String>,
    /// The tmux program on the host.
    pub tmux: Option<String>,
    /// The muxtap program on the host.
    pub muxtap: Option<String>,
    /// Whether the host's muxtap must not be used.
    pub no_peer: bool,
}

/// An agent of the configuration, `[agent.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentSettings {
    /// Its name, the provider.
    pub name: String,
    /// The command that speaks ACP on stdin and stdout, as words.
    pub command: Vec<String>,
    /// Whether the provider `sdk` means this agent.
    pub default: bool,
}

/// The contents of a configuration file.
#[derive(Default)]
pub(super) struct FileContents {
    /// The path of the file, if one was read.
    pub(super) path: Option<PathBuf>,
    pub(super) settings: FileSettings,
    pub(super) hosts: Vec<HostSettings>,
    pub(super) agents: Vec<AgentSettings>,
    pub(super) when: Vec<WhenRule>,
}

/// Returns the folder of the user's configuration.
pub(super) fn folder(env: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = set("XDG_CONFIG_HOME").filter(|dir| dir.is_absolute());
    let config = config.or_else(|| set("HOME").filter(|home| home.is_absolute()).map(|home| home.join(".config")));
    config.map(|config| config.join("muxtap"))
}

/// Returns the file named by the caller or by `MUXTAP_CONFIG`, or else the user's, and whether it
/// must exist.
pub(super) fn place(named: Option<&Path>, env: &dyn Fn(&str) -> Option<OsString>) -> Option<(PathBuf, bool)> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let named = named.map(Path::to_owned).or_else(|| set("MUXTAP_CONFIG")).map(|named| (named, true));
    named.or_else(|| folder(env).map(|dir| (dir.join("config.toml"), false)))
}

/// Reads the file of this [`place`], if it exists.
pub(super) fn read(place: Option<(PathBuf, bool)>) -> Result<FileContents> {
    let Some((path, must_exist)) = place else { return Ok(FileContents::default()) };
    let unable = |error: io::Error| {
        let is_refused = error.kind() == io::ErrorKind::PermissionDenied;
        let hint = if is_refused { "; HOME, XDG_CONFIG_HOME or MUXTAP_CONFIG sets its path" } else { "" };
        Error::new(ErrorCode::Conflict, format!("cannot read the configuration {}: {error}{hint}", path.display()))
    };
    let text = match read_configuration(&path, FILE_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !must_exist => {
            return Ok(FileContents::default());
        }
        text => text.map_err(unable)?,
    };
    let wrong = |why: &str| Error::invalid(format!("{}: {why}", path.display()));
    let table: toml::Table = toml::from_str(&text).map_err(|error| wrong(error.to_string().trim_end()))?;
    let mut read = FileContents::default();
    let table = table.into_iter().flat_map(|(name, value)| match value {
        toml::Value::Table(fields) if name == "fleet" => fields.into_iter().map(of_fleet).collect(),
        value => vec![(name, value)],
    });
    for (name, value) in table {
        if name == "host" {
            read.hosts = hosts(value).map_err(|why| wrong(&why))?;
            continue;
        }
        if name == "agent" {
            read.agents = agents(value).map_err(|why| wrong(&why))?;
            continue;
        }
        if name == "when" {
            read.when = when(value).map_err(|why| wrong(&why))?;
            continue;
        }
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            let known: Vec<_> = KEYS.iter().map(|key| key.name).collect();
            return Err(wrong(&format!("unknown setting `{name}`; expected one of {}", known.join(", "))));
        };
        let parts = match value {
            toml::Value::Array(parts) if key.list => parts.into_iter().map(plain).collect(),
            value => plain(value).map(|text| key.split(&text)),
        };
        let shape = if key.list { "a list of strings" } else { "a string, a number, true or false" };
        read.settings.insert(name.clone(), parts.ok_or_else(|| wrong(&format!("`{name}` must be {shape}")))?);
    }
    read.path = Some(path);
    Ok(read)
}

/// Returns the setting that a field of the table `[fleet]` means.
fn of_fleet((field, value): (String, toml::Value)) -> (String, toml::Value) {
    (if field == "url" { "fleet".into() } else { format!("fleet_{field}") }, value)
}

/// Reads the tables `[host.NAME]`.
fn hosts(value: toml::Value) -> std::result::Result<Vec<HostSettings>, String> {
    let shape = "expected a table [host.NAME], with via = \"ssh NAME\"";
    let toml::Value::Table(hosts) = value else { return Err(shape.into()) };
    hosts.into_iter().map(|(name, value)| host(name, value, shape)).collect()
}

fn host(name: String, value: toml::Value, shape: &str) -> std::result::Result<HostSettings, String> {
    let toml::Value::Table(fields) = value else { return Err(shape.into()) };
    let mut host = HostSettings { name, ..HostSettings::default() };
    for (field, value) in fields {
        let name = &host.name;
        match (field.as_str(), value) {
            ("via", toml::Value::String(text)) => {
                host.via = shlex::split(&text).ok_or_else(|| format!("host.{name}.via: unclosed quote"))?;
            }
            ("via", toml::Value::Array(words)) => {
                let words = words.into_iter().map(plain).collect::<Option<_>>();
                host.via = words.ok_or_else(|| format!("host.{name}.via must be a string or a list of strings"))?;
            }
            ("tmux", toml::Value::String(text)) => host.tmux = Some(text),
            ("muxtap", toml::Value::String(text)) => host.muxtap = Some(text),
            ("peer", toml::Value::Boolean(used)) => host.no_peer = !used,
            ("peer", _) => return Err(format!("host.{name}.peer must be true or false")),
            ("via" | "tmux" | "muxtap", _) => return Err(format!("host.{name}.{field} must be a string")),
            _ => return Err(format!("unknown setting `host.{name}.{field}`; expected one of via, tmux, muxtap, peer")),
        }
    }
    if host.via.is_empty() {
        return Err(format!("host.{}: missing `via`; {shape}", host.name));
    }
    Ok(host)
}

/// Reads the tables `[[when]]`.
fn when(value: toml::Value) -> std::result::Result<Vec<WhenRule>, String> {
    let toml::Value::Array(rules) = value else {
        return Err("expected tables [[when]], each with a name, a condition and an action".into());
    };
    let rules = rules.into_iter().zip(1..).map(|(rule, number)| {
        let name = rule.get("name").and_then(toml::Value::as_str).unwrap_or_default();
        let place = format!("[[when]] {number} ({})", muxtap_base::plain::name(name));
        rule.try_into::<WhenRule>().map_err(|error| format!("{place}: {}", error.message()))
    });
    let rules = rules.collect::<std::result::Result<Vec<_>, _>>()?;
    muxtap_when::check(&rules).map_err(|error| error.message)?;
    Ok(rules)
}

/// Reads the tables `[agent.NAME]`.
fn agents(value: toml::Value) -> std::result::Result<Vec<AgentSettings>, String> {
    let shape = "expected a table [agent.NAME], with command = \"claude-agent-acp\"";
    let toml::Value::Table(agents) = value else { return Err(shape.into()) };
    let agents = agents.into_iter().map(|(name, value)| agent(name, value, shape));
    let agents = agents.collect::<std::result::Result<Vec<_>, _>>()?;
    if agents.iter().filter(|agent| agent.default).count() > 1 {
        return Err("only one of [agent.NAME] can have default = true".into());
    }
    Ok(agents)
}

fn agent(name: String, value: toml::Value, shape: &str) -> std::result::Result<AgentSettings, String> {
    let toml::Value::Table(fields) = value else { return Err(shape.into()) };
    if name == "sdk" || !crate::api::SessionName::is_part(&name) {
        return Err(format!("agent.{name}: invalid name; expected letters, digits, - and _, and not `sdk`"));
    }
    let mut agent = AgentSettings { name, ..AgentSettings::default() };
    for (field, value) in fields {
        let name = &agent.name;
        match (field.as_str(), value) {
            ("command", toml::Value::String(text)) => {
                agent.command = shlex::split(&text).ok_or_else(|| format!("agent.{name}.command: unclosed quote"))?;
            }
            ("command", toml::Value::Array(words)) => {
                let words = words.into_iter().map(plain).collect::<Option<_>>();
                agent.command =
                    words.ok_or_else(|| format!("agent.{name}.command must be a string or a list of strings"))?;
            }
            ("default", toml::Value::Boolean(yes)) => agent.default = yes,
            ("command", _) => return Err(format!("agent.{name}.command must be a string or a list of strings")),
            ("default", _) => return Err(format!("agent.{name}.default must be true or false")),
            _ => return Err(format!("unknown setting `agent.{name}.{field}`; expected command or default")),
        }
    }
    if agent.command.is_empty() {
        return Err(format!("agent.{}: missing `command`; {shape}", agent.name));
    }
    Ok(agent)
}

fn plain(value: toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(yes) => Some(yes.to_string()),
        _ => None,
    }
}
