//! What a daemon needs to join a fleet, and who it is in it.

use std::path::{Path, PathBuf};

use async_nats::ConnectOptions;
use muxtap_api::{Error, Result, Tier};
use muxtap_base::files::{SecretError, read_secret};

use super::subject;

/// The longest file with credentials, in bytes.
const CREDENTIALS_BYTES: u64 = 64 << 10;
/// The most labels of a host.
const MOST_LABELS: usize = 32;
/// The longest label, in bytes.
const LABEL_BYTES: usize = 64;
/// The longest name of a member, in bytes.
const NAME_BYTES: usize = 64;

/// The settings of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The URLs of NATS servers, separated by commas: `nats://HOST:PORT`, or `tls://HOST:PORT`.
    pub url: String,
    /// The file with this member's nkey seed, or with a JWT and a seed. `None`: NATS asks for none.
    pub credentials: Option<PathBuf>,
    /// The certificates that may have signed the server's. `None`: those of the system.
    pub tls_ca: Option<PathBuf>,
    /// This member's name.
    pub name: String,
    /// Words that describe this host, such as `role=web`.
    pub labels: Vec<String>,
    /// The tiers of requests that this host serves.
    pub offer: Vec<Tier>,
    /// Whether this daemon's audit log is copied to NATS.
    pub audit: bool,
    /// The version of muxtap.
    pub version: String,
}

impl Settings {
    /// Checks the settings, without reading a file. Error: `INVALID_ARGUMENT`, which names the
    /// field.
    pub fn check(&self) -> Result<()> {
        check_url(&self.url)?;
        check_name(&self.name)?;
        // With credentials, requests of others would be served over a connection that can be changed on
        // the way.
        if self.credentials.is_some() && !self.needs_tls() && !self.servers().iter().all(|url| is_loopback(url)) {
            return Err(Error::invalid(
                "url: nats:// to another machine, with credentials and without TLS; expected tls://HOST:PORT, or tls_ca",
            ));
        }
        if self.labels.len() > MOST_LABELS {
            let message = format!("labels: {} of them; expected at most {MOST_LABELS}", self.labels.len());
            return Err(Error::invalid(message));
        }
        let is_plain = |label: &String| {
            !label.is_empty() && label.len() <= LABEL_BYTES && label.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if let Some(label) = self.labels.iter().find(|label| !is_plain(label)) {
            let message =
                format!("labels: invalid label {label:?}; expected 1 to {LABEL_BYTES} ASCII characters without spaces");
            return Err(Error::invalid(message));
        }
        Ok(())
    }

    /// Checks the files that the settings name. Error: `INVALID_ARGUMENT`, which names the field.
    pub fn check_files(&self) -> Result<()> {
        if let Some(path) = &self.tls_ca {
            std::fs::metadata(path).map_err(|error| Error::invalid(format!("tls_ca: {}: {error}", path.display())))?;
        }
        self.options().map(drop)
    }

    /// Returns the options of the connection, with the credentials. Error: a file cannot be used.
    pub(crate) fn options(&self) -> Result<ConnectOptions> {
        let mut options = ConnectOptions::new().name(format!("muxtap {}", self.name));
        options = options.custom_inbox_prefix(subject::inbox(&self.name));
        if let Some(path) = &self.credentials {
            options = with_credentials(options, path)?;
        }
        if let Some(path) = &self.tls_ca {
            options = options.add_root_certificates(path.clone());
        }
        Ok(options.require_tls(self.needs_tls()))
    }

    /// Returns the subject to which this member's audit log is copied. Error: the credentials cannot be
    /// read, or have no seed.
    pub(crate) fn audit_subject(&self) -> Result<String> {
        let token = match &self.credentials {
            Some(path) => seed(&read_credentials(path)?).and_then(subject::audit_token).ok_or_else(|| {
                Error::invalid(format!("credentials: {} contains no seed, which audit needs", path.display()))
            })?,
            // Without credentials, NATS permits every subject to every client.
            None => "open".to_owned(),
        };
        Ok(subject::audit(&self.name, &token))
    }

    /// Returns whether a server without TLS is refused: all of them if one URL or `tls_ca` asks for it.
    fn needs_tls(&self) -> bool {
        self.tls_ca.is_some() || self.servers().iter().any(|url| url.starts_with("tls://"))
    }

    /// Returns the addresses of NATS servers.
    pub(crate) fn servers(&self) -> Vec<String> {
        self.url.split(',').map(|url| url.trim().to_owned()).collect()
    }
}

fn read_credentials(path: &Path) -> Result<String> {
    let read = read_secret(path, CREDENTIALS_BYTES).map(|(text, _)| text);
    read.map_err(|error| {
        let (SecretError::Open(why) | SecretError::Foreign(why) | SecretError::Unreadable(why)) = error;
        Error::invalid(format!("credentials: {} {why}", path.display()))
    })
}

/// Returns the seed in a file with credentials.
fn seed(text: &str) -> Option<&str> {
    text.lines().map(str::trim).find(|line| line.starts_with("SU"))
}

fn with_credentials(options: ConnectOptions, path: &Path) -> Result<ConnectOptions> {
    let text = read_credentials(path)?;
    if text.contains("-----BEGIN NATS USER JWT-----") {
        return options
            .credentials(&text)
            .map_err(|error| Error::invalid(format!("credentials: {}: {error}", path.display())));
    }
    let Some(seed) = seed(&text) else {
        let message = format!(
            "credentials: {} contains neither an nkey seed (a line that begins with SU) nor a JWT of a user",
            path.display()
        );
        return Err(Error::invalid(message));
    };
    Ok(options.nkey(seed.to_owned()))
}

/// Returns the name of a member that has set none: its machine's, without a domain.
pub fn default_name() -> String {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    machine.split('.').next().unwrap_or_default().to_owned()
}

/// Checks the URLs of NATS servers. Error: `INVALID_ARGUMENT`.
pub fn check_url(url: &str) -> Result<()> {
    let is_url = |url: &str| {
        let rest = url.trim().strip_prefix("nats://").or_else(|| url.trim().strip_prefix("tls://"));
        rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['@', '/', ' ']))
    };
    if url.split(',').all(is_url) {
        return Ok(());
    }
    // A URL may contain a password, so the error does not repeat it.
    Err(Error::invalid(
        "url: not the address of a NATS server; expected nats://HOST:PORT or tls://HOST:PORT without a user, several \
         separated by commas",
    ))
}

/// Returns whether a URL is that of a server on this machine.
fn is_loopback(url: &str) -> bool {
    let address = url.split_once("://").map_or(url, |(_, address)| address);
    let host = address.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|host| host.is_loopback())
}

/// Checks that a text can be a member's name: one token of a subject, and a host's name in
/// targets. Error: `INVALID_ARGUMENT`.
pub fn check_name(name: &str) -> Result<()> {
    if is_name(name) {
        return Ok(());
    }
    let message = format!(
        "name: invalid name {name:?}; expected 1 to {NAME_BYTES} letters, digits, `-` and `_`, not beginning with `-`"
    );
    Err(Error::invalid(message))
}

/// Returns whether a text can be a member's name.
pub fn is_name(name: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !name.is_empty() && name.len() <= NAME_BYTES && !name.starts_with('-') && name.bytes().all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings { url: "nats://127.0.0.1:4222".into(), name: "web-1".into(), ..Settings::default() }
    }

    #[test]
    fn an_error_names_the_field() {
        settings().check().unwrap();
        let refused = |change: fn(&mut Settings)| {
            let mut settings = settings();
            change(&mut settings);
            settings.check().unwrap_err().message
        };
        for bad in [
            refused(|settings| settings.url = "4222".into()),
            refused(|settings| settings.url = "nats://amy:secret@box".into()),
            refused(|settings| settings.url = "nats://a,".into()),
        ] {
            assert!(bad.starts_with("url: ") && !bad.contains("secret"), "{bad}");
        }
        for name in ["", "a.b", "a>", "*", "-a", "a b", "ä"] {
            let mut settings = settings();
            settings.name = name.into();
            assert!(settings.check().unwrap_err().message.starts_with("name: "), "{name}");
        }
        assert!(refused(|settings| settings.labels = vec!["a b".into()]).starts_with("labels: "));
        assert!(refused(|settings| settings.labels = vec!["a".into(); 33]).starts_with("labels: "));
    }

    #[test]
    fn credentials_for_another_machine_need_tls() {
        let of = |url: &str, tls_ca: Option<&str>| {
            let (credentials, tls_ca) = (Some("web-1.nk".into()), tls_ca.map(PathBuf::from));
            let settings = Settings { url: url.into(), credentials, tls_ca, ..settings() };
            (settings.check().is_ok(), settings.needs_tls())
        };
        for url in ["nats://127.0.0.1:4222", "nats://localhost", "nats://[::1]:4222,nats://[::1]"] {
            assert_eq!(of(url, None), (true, false), "{url}");
        }
        assert_eq!(of("tls://box:4222", None), (true, true));
        assert_eq!(of("nats://box:4222", Some("ca.pem")), (true, true));
        assert_eq!(of("nats://box, tls://box", None), (true, true));
        for url in ["nats://box:4222", "nats://localhost.evil", "nats://localhost:4222, nats://10.0.0.1:4222"] {
            assert_eq!(of(url, None), (false, false), "{url}");
        }
        Settings { url: "nats://box".into(), ..settings() }.check().unwrap();
    }

    #[test]
    fn credentials_are_a_seed_or_a_jwt_in_a_private_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web-1.nk");
        let settings = Settings { credentials: Some(path.clone()), ..settings() };
        let refused = |settings: &Settings| settings.options().unwrap_err().message;
        assert!(refused(&settings).starts_with("credentials: "), "a missing file");
        muxtap_base::files::write_secret(&path, "no seed\n", muxtap_base::files::Existing::Replace).unwrap();
        assert!(refused(&settings).contains("neither an nkey seed"));
        let seed = "# muxtap\nSUAMLK2ZNL35WSMW37E7UD4VZ7ELPKW7DHC3BWBSD2GCZ7IUQQXZIORRBU\n";
        muxtap_base::files::write_secret(&path, seed, muxtap_base::files::Existing::Replace).unwrap();
        settings.options().unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(&path, open).unwrap();
        assert!(refused(&settings).contains("web-1.nk"), "a file that others can read");
    }
}
