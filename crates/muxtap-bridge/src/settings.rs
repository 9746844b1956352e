//! Settings from the environment and the flags, parsed like the first bridge did.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use muxtap_base::files::open_to_others;

use super::js;

/// The allowed origins if the environment names none.
const ORIGINS: [&str; 2] = ["https://localhost:3000", "https://pi-for-excel.vercel.app"];
const PORT: u16 = 3341;
/// The socket's directory, in the one for temporary files.
const SOCKET_DIR: &str = "pi-for-excel-tmux-bridge";
const SOCKET: &str = "tmux.sock";
/// The token's file in muxtap's state directory.
const TOKEN_FILE: &str = "bridge-token";
/// The time limit of a tmux command in milliseconds: the default, the least and the most.
const COMMAND_TIMEOUT: i64 = 10_000;
const COMMAND_TIMEOUT_LEAST: i64 = 500;
const COMMAND_TIMEOUT_MOST: i64 = 120_000;

/// The backend's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A real tmux.
    Tmux,
    /// Lines in memory.
    Stub,
}

impl Mode {
    /// Returns the mode's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tmux => "tmux",
            Self::Stub => "stub",
        }
    }
}

/// How connections are encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// No encryption.
    Off,
    /// A certificate in these files, which must exist.
    Files {
        /// The private key, PEM.
        key: PathBuf,
        /// The certificate, PEM.
        cert: PathBuf,
    },
    /// A certificate generated for this machine.
    Own,
}

/// The source of the required token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// No token is required.
    None,
    /// `TMUX_BRIDGE_TOKEN`.
    Given(String),
    /// A file of the user's, created if it is missing (`--token`).
    File(PathBuf),
}

/// The flags of `muxtap bridge`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--https`.
    pub https: bool,
    /// `--http`.
    pub http: bool,
    /// `--token`.
    pub token: bool,
    /// The tmux server given on the command line.
    pub socket: Option<PathBuf>,
}

/// All settings of the bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The host to listen on.
    pub host: String,
    /// The port; 0 for any free one.
    pub port: u16,
    /// The backend's mode.
    pub mode: Mode,
    /// The required token.
    pub token: TokenSource,
    /// Allowed origins, compared exactly.
    pub origins: Vec<String>,
    /// tmux's socket, absolute.
    pub socket: PathBuf,
    /// The directory that is created for the socket.
    socket_dir: PathBuf,
    /// Whether that directory is the default one, whose parent is writable by other users.
    is_default_dir: bool,
    /// The time limit of a tmux command.
    pub command_timeout: Duration,
    /// Encryption.
    pub tls: Tls,
}

impl Settings {
    /// Reads the environment through `var`. Error: the variable that is invalid.
    pub fn read(var: &dyn Fn(&str) -> Option<OsString>, flags: &Flags) -> Result<Self, String> {
        // An empty value counts as unset, as with `||` in JavaScript.
        let path = |name: &str| var(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let text = |name: &str| path(name).map(|value| value.to_string_lossy().into_owned());
        if flags.https && flags.http {
            return Err("--https and --http cannot both be given.".into());
        }
        let wants_tls = text("HTTPS").is_some_and(|set| matches!(js::trim(&set).to_lowercase().as_str(), "1" | "true"));
        let tls = if flags.https || wants_tls && !flags.http { certificates(&path) } else { Tls::Off };
        let mode = match text("TMUX_BRIDGE_MODE") {
            None => Mode::Tmux,
            Some(set) => match js::trim(&set).to_lowercase().as_str() {
                "tmux" => Mode::Tmux,
                "stub" => Mode::Stub,
                _ => return Err(format!("Invalid TMUX_BRIDGE_MODE: {set} (expected \"tmux\" or \"stub\").")),
            },
        };
        let port = match text("PORT") {
            None => PORT,
            Some(set) => js::parse_int(&set)
                .and_then(|port| u16::try_from(port).ok())
                .ok_or_else(|| format!("Invalid PORT: {set} (expected a number from 0 to 65535)."))?,
        };
        let origins = match text("ALLOWED_ORIGINS") {
            None => ORIGINS.map(str::to_owned).to_vec(),
            Some(list) => {
                list.split(',').map(js::trim).filter(|origin| !origin.is_empty()).map(str::to_owned).collect()
            }
        };
        let given =
            text("TMUX_BRIDGE_TOKEN").map(|token| js::trim(&token).to_owned()).filter(|token| !token.is_empty());
        let token = match given {
            Some(token) => TokenSource::Given(token),
            None if flags.token => TokenSource::File(
                state_dir(var)
                    .ok_or(
                        "--token: neither XDG_STATE_HOME nor HOME names a folder for the token; set TMUX_BRIDGE_TOKEN",
                    )?
                    .join(TOKEN_FILE),
            ),
            None => TokenSource::None,
        };
        let named_dir = path("TMUX_BRIDGE_SOCKET_DIR");
        let is_default_dir = named_dir.is_none();
        let temporary = path("TMPDIR").unwrap_or_else(|| "/tmp".into());
        let socket_dir = absolute(&named_dir.unwrap_or_else(|| temporary.join(SOCKET_DIR)))?;
        let socket = flags.socket.clone().or_else(|| path("TMUX_BRIDGE_SOCKET_PATH"));
        let socket = absolute(&socket.unwrap_or_else(|| socket_dir.join(SOCKET)))?;
        Ok(Self {
            host: text("HOST").unwrap_or_else(|| if tls == Tls::Off { "127.0.0.1" } else { "localhost" }.into()),
            port,
            mode,
            token,
            origins,
            socket,
            socket_dir,
            is_default_dir,
            command_timeout: command_timeout(text("TMUX_BRIDGE_COMMAND_TIMEOUT_MS").as_deref()),
            tls,
        })
    }

    /// Creates the socket's directories, accessible only to this user. Error: other users can
    /// replace the socket with another server's, through its directory, one above it, or the
    /// existing file.
    pub fn make_socket_dirs(&self) -> Result<(), String> {
        let dir = self.socket.parent();
        for dir in [Some(self.socket_dir.as_path()), dir].into_iter().flatten() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir)
                .map_err(|error| format!("cannot create {}: {error}", dir.display()))?;
        }
        if self.is_default_dir && self.socket.starts_with(&self.socket_dir) {
            let found = look_at(fs::symlink_metadata(&self.socket_dir), &self.socket_dir)?;
            if !found.is_dir() || found.uid() != own_user() || found.mode() & 0o022 != 0 {
                return Err(format!(
                    "{} belongs to another user, is a link, or can be written by others; choose another directory \
                     with TMUX_BRIDGE_SOCKET_DIR",
                    self.socket_dir.display()
                ));
            }
        }
        if let Some(why) = dir.and_then(|dir| open_to_others(dir, false)) {
            return Err(format!(
                "{} cannot be used for tmux's socket: {why}; choose another location with TMUX_BRIDGE_SOCKET_DIR or \
                 TMUX_BRIDGE_SOCKET_PATH",
                self.socket.display()
            ));
        }
        match fs::symlink_metadata(&self.socket) {
            Ok(found) if found.uid() != own_user() && found.uid() != 0 => Err(format!(
                "{} belongs to user {}; expected a tmux socket of this user (TMUX_BRIDGE_SOCKET_PATH sets another)",
                self.socket.display(),
                found.uid()
            )),
            _ => Ok(()),
        }
    }
}

fn look_at(found: io::Result<fs::Metadata>, path: &Path) -> Result<fs::Metadata, String> {
    found.map_err(|error| format!("cannot inspect {}: {error}", path.display()))
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns muxtap's directory in the user's state directory.
pub(super) fn state_dir(var: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("muxtap"))
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns the files that the environment names, directly or by their directory.
fn certificates(path: &dyn Fn(&str) -> Option<PathBuf>) -> Tls {
    let dir = path("PI_FOR_EXCEL_CERT_DIR");
    let (key, cert) = (path("PI_FOR_EXCEL_KEY_PATH"), path("PI_FOR_EXCEL_CERT_PATH"));
    if dir.is_none() && key.is_none() && cert.is_none() {
        return Tls::Own;
    }
    // If only one file of a pair is named, the other is in the same directory.
    let beside = |other: &Option<PathBuf>| other.as_deref().and_then(Path::parent).map(Path::to_owned);
    let dir = dir.or_else(|| beside(&key)).or_else(|| beside(&cert)).unwrap_or_default();
    Tls::Files { key: key.unwrap_or_else(|| dir.join("key.pem")), cert: cert.unwrap_or_else(|| dir.join("cert.pem")) }
}

fn command_timeout(set: Option<&str>) -> Duration {
    let milliseconds = set.and_then(js::parse_int).filter(|milliseconds| *milliseconds >= COMMAND_TIMEOUT_LEAST);
    let milliseconds = milliseconds.unwrap_or(COMMAND_TIMEOUT).min(COMMAND_TIMEOUT_MOST);
    Duration::from_millis(milliseconds.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn read(vars: &[(&str, &str)], flags: &Flags) -> Result<Settings, String> {
        let var = |name: &str| vars.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value));
        Settings::read(&var, flags)
    }

    fn with(vars: &[(&str, &str)]) -> Settings {
        read(vars, &Flags::default()).unwrap()
    }

    #[test]
    fn nothing_set_is_the_contracts_defaults() {
        let settings = with(&[]);
        assert_eq!((settings.host.as_str(), settings.port, settings.mode), ("127.0.0.1", 3341, Mode::Tmux));
        assert_eq!(settings.origins, ["https://localhost:3000", "https://pi-for-excel.vercel.app"]);
        assert_eq!((settings.token, settings.tls), (TokenSource::None, Tls::Off));
        assert_eq!(settings.socket, Path::new("/tmp/pi-for-excel-tmux-bridge/tmux.sock"));
        assert_eq!(settings.command_timeout, Duration::from_secs(10));
        assert_eq!(with(&[("TMPDIR", "/var/x/")]).socket, Path::new("/var/x/pi-for-excel-tmux-bridge/tmux.sock"));
    }

    #[test]
    fn values_are_trimmed_where_the_contract_says_so() {
        assert_eq!(with(&[("TMUX_BRIDGE_MODE", " STUB\n")]).mode, Mode::Stub);
        assert!(read(&[("TMUX_BRIDGE_MODE", "real")], &Flags::default()).is_err());
        assert!(read(&[("TMUX_BRIDGE_MODE", " ")], &Flags::default()).is_err());
        assert_eq!(with(&[("TMUX_BRIDGE_TOKEN", " a b ")]).token, TokenSource::Given("a b".into()));
        assert_eq!(with(&[("TMUX_BRIDGE_TOKEN", " \t")]).token, TokenSource::None);
        let flags = Flags { token: true, ..Flags::default() };
        let token = |vars: &[(&str, &str)]| read(vars, &flags).map(|settings| settings.token);
        assert_eq!(token(&[("TMUX_BRIDGE_TOKEN", "a"), ("HOME", "/h")]), Ok(TokenSource::Given("a".into())));
        assert_eq!(token(&[("HOME", "/h")]), Ok(TokenSource::File("/h/.local/state/muxtap/bridge-token".into())));
        assert_eq!(token(&[("XDG_STATE_HOME", "/s")]), Ok(TokenSource::File("/s/muxtap/bridge-token".into())));
        assert!(token(&[]).unwrap_err().contains("TMUX_BRIDGE_TOKEN"));
        assert_eq!(with(&[("ALLOWED_ORIGINS", " http://a ,,http://b")]).origins, ["http://a", "http://b"]);
        assert_eq!(with(&[("ALLOWED_ORIGINS", ",")]).origins, Vec::<String>::new());
        assert_eq!(with(&[("ALLOWED_ORIGINS", "")]).origins.len(), 2);
    }

    #[test]
    fn the_command_timeout_has_a_floor_that_means_the_default_and_a_cap() {
        for (set, seconds) in
            [("500", 0.5), ("499", 10.0), ("x", 10.0), ("-1", 10.0), ("2500.9", 2.5), ("999999", 120.0)]
        {
            let settings = with(&[("TMUX_BRIDGE_COMMAND_TIMEOUT_MS", set)]);
            assert_eq!(settings.command_timeout, Duration::from_secs_f64(seconds), "{set}");
        }
    }

    #[test]
    fn flags_win_over_the_environment() {
        let flags = |https, http| Flags { https, http, ..Flags::default() };
        assert_eq!(read(&[], &flags(true, false)).unwrap().tls, Tls::Own);
        assert_eq!(read(&[], &flags(true, false)).unwrap().host, "localhost");
        assert_eq!(read(&[("HTTPS", "1")], &flags(false, true)).unwrap().tls, Tls::Off);
        assert_eq!(with(&[("HTTPS", "true")]).tls, Tls::Own);
        assert_eq!(with(&[("HTTPS", "yes")]).tls, Tls::Off);
        assert!(read(&[], &flags(true, true)).is_err());
    }

    #[test]
    fn certificates_are_named_by_their_folder_or_one_by_one() {
        let tls = |vars: &[(&str, &str)]| with(&[&[("HTTPS", "1")], vars].concat()).tls;
        let files = |key: &str, cert: &str| Tls::Files { key: key.into(), cert: cert.into() };
        assert_eq!(tls(&[("PI_FOR_EXCEL_CERT_DIR", "/c")]), files("/c/key.pem", "/c/cert.pem"));
        assert_eq!(
            tls(&[("PI_FOR_EXCEL_CERT_DIR", "/c"), ("PI_FOR_EXCEL_KEY_PATH", "/k")]),
            files("/k", "/c/cert.pem")
        );
        assert_eq!(tls(&[("PI_FOR_EXCEL_KEY_PATH", "/d/k")]), files("/d/k", "/d/cert.pem"));
    }

    #[test]
    fn a_port_is_a_number_in_range() {
        assert_eq!(with(&[("PORT", "0")]).port, 0);
        for wrong in ["x", "-1", "65536"] {
            assert!(read(&[("PORT", wrong)], &Flags::default()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn socket_folders_are_created_with_mode_0700() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let settings = with(&[("TMUX_BRIDGE_SOCKET_DIR", &at("a/b")), ("TMUX_BRIDGE_SOCKET_PATH", &at("c/s"))]);
        settings.make_socket_dirs().unwrap();
        for made in ["a/b", "c"] {
            assert_eq!(fs::metadata(at(made)).unwrap().permissions().mode() & 0o777, 0o700, "{made}");
        }
        let settings = with(&[("TMPDIR", &at("c"))]);
        settings.make_socket_dirs().unwrap();
        fs::set_permissions(settings.socket.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(settings.make_socket_dirs().unwrap_err().contains("TMUX_BRIDGE_SOCKET_DIR"));
    }

    #[test]
    fn a_socket_folder_writable_by_others_without_the_sticky_bit_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        let below = open.join("own/deep");
        fs::create_dir_all(&below).unwrap();
        let made = |mode: u32, socket: &Path| {
            fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
            let at = |path: &Path| path.display().to_string();
            let (named, folder) = (at(socket), at(&dir.path().join("unused")));
            with(&[("TMUX_BRIDGE_SOCKET_PATH", &named), ("TMUX_BRIDGE_SOCKET_DIR", &folder)]).make_socket_dirs()
        };
        for socket in [open.join("s"), below.join("s")] {
            let refused = made(0o777, &socket).unwrap_err();
            assert!(refused.contains("mode 0777") && refused.contains("TMUX_BRIDGE_SOCKET_PATH"), "{refused}");
            assert_eq!(made(0o1777, &socket), Ok(()));
            assert_eq!(made(0o755, &socket), Ok(()));
        }
        if !rustix::process::geteuid().is_root() {
            println!("not tested: only root can make another user's files");
            return;
        }
        std::os::unix::fs::symlink("/nonexistent", open.join("theirs")).unwrap();
        std::os::unix::fs::lchown(open.join("theirs"), Some(65534), None).unwrap();
        assert!(made(0o1777, &open.join("theirs")).unwrap_err().contains("belongs to user 65534"));
        std::os::unix::fs::chown(&open, Some(65534), None).unwrap();
        assert!(made(0o755, &below.join("s")).unwrap_err().contains("belongs to user 65534"));
    }
}
