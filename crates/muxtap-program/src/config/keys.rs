//! The table of settings.

use muxtap_engine::{audit, limits};

use super::paths::Paths;

/// A setting. Its flag is its name with hyphens.
#[derive(Debug)]
pub struct Key {
    /// The name in the file.
    pub name: &'static str,
    /// The variable of the environment.
    pub env: &'static str,
    /// Whether the setting is a list; commas separate its parts in the environment.
    pub list: bool,
    default: DefaultValue,
}

#[derive(Debug)]
enum DefaultValue {
    Text(&'static str),
    Bytes(u64),
    Audit,
    Agents,
    Token,
}

const fn one(name: &'static str, env: &'static str, default: &'static str) -> Key {
    Key { name, env, list: false, default: DefaultValue::Text(default) }
}

const fn list(name: &'static str, env: &'static str, default: &'static str) -> Key {
    Key { name, env, list: true, default: DefaultValue::Text(default) }
}

const fn special(name: &'static str, env: &'static str, default: DefaultValue) -> Key {
    Key { name, env, list: false, default }
}

/// All settings, in the order in which they are shown.
pub const KEYS: [Key; 37] = [
    one("tmux", "MUXTAP_TMUX", "tmux"),
    one("own_tmux", "MUXTAP_OWN_TMUX", "true"),
    list("foreign_servers", "MUXTAP_FOREIGN_SERVERS", ""),
    one("coverage", "MUXTAP_COVERAGE", "used"),
    one("follow_for", "MUXTAP_FOLLOW_FOR", "600"),
    one("floods", "MUXTAP_FLOODS", "hold"),
    special("ring_bytes", "MUXTAP_RING_BYTES", DefaultValue::Bytes(limits::RING_BYTES as u64)),
    special("budget_bytes", "MUXTAP_BUDGET_BYTES", DefaultValue::Bytes(limits::BUDGET_BYTES as u64)),
    one("shell_integration", "MUXTAP_SHELL_INTEGRATION", "false"),
    one("idle_end", "MUXTAP_IDLE_END", "600"),
    one("log_level", "MUXTAP_LOG", "info"),
    one("log_format", "MUXTAP_LOG_FORMAT", "text"),
    one("otlp", "MUXTAP_OTLP", ""),
    list("allow", "MUXTAP_ALLOW", "read,input,create,kill"),
    list("deny", "MUXTAP_DENY", ""),
    one("read_only", "MUXTAP_READ_ONLY", "false"),
    list("confirm", "MUXTAP_CONFIRM", ""),
    one("mcp_hold", "MUXTAP_MCP_HOLD", "50"),
    one("audit", "MUXTAP_AUDIT", "true"),
    special("audit_file", "MUXTAP_AUDIT_FILE", DefaultValue::Audit),
    special("audit_bytes", "MUXTAP_AUDIT_BYTES", DefaultValue::Bytes(audit::AUDIT_BYTES)),
    special("agents_file", "MUXTAP_AGENTS_FILE", DefaultValue::Agents),
    list("http", "MUXTAP_HTTP", ""),
    list("http_names", "MUXTAP_HTTP_NAMES", ""),
    list("http_origins", "MUXTAP_HTTP_ORIGINS", ""),
    list("page_folders", "MUXTAP_PAGE_FOLDERS", "~"),
    one("tls", "MUXTAP_TLS", "false"),
    one("tls_cert", "MUXTAP_TLS_CERT", ""),
    one("tls_key", "MUXTAP_TLS_KEY", ""),
    special("token_file", "MUXTAP_TOKEN_FILE", DefaultValue::Token),
    one("fleet", "MUXTAP_FLEET", ""),
    one("fleet_audit", "MUXTAP_FLEET_AUDIT", "false"),
    one("fleet_credentials", "MUXTAP_FLEET_CREDENTIALS", ""),
    one("fleet_name", "MUXTAP_FLEET_NAME", ""),
    list("fleet_labels", "MUXTAP_FLEET_LABELS", ""),
    list("fleet_offer", "MUXTAP_FLEET_OFFER", ""),
    one("fleet_tls_ca", "MUXTAP_FLEET_TLS_CA", ""),
];

impl Key {
    /// Splits a text into the setting's parts.
    pub(super) fn split(&self, text: &str) -> Vec<String> {
        if !self.list {
            return vec![text.trim().to_owned()];
        }
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
    }

    /// Returns the default; empty if it depends on the daemon's paths.
    pub fn default_value(&self) -> String {
        match self.default {
            DefaultValue::Text(text) => text.into(),
            DefaultValue::Bytes(bytes) if bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
            DefaultValue::Bytes(bytes) => bytes.to_string(),
            DefaultValue::Audit | DefaultValue::Agents | DefaultValue::Token => String::new(),
        }
    }

    /// Returns the default for a daemon with these paths.
    pub(super) fn default_with(&self, paths: &Paths) -> String {
        match self.default {
            DefaultValue::Audit => paths.audit_file().display().to_string(),
            DefaultValue::Token => paths.token_file().display().to_string(),
            _ => self.default_value(),
        }
    }
}
