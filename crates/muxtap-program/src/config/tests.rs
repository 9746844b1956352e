use std::{collections::HashMap, fs, os::unix::fs::PermissionsExt as _};

use super::*;

struct Place {
    dir: tempfile::TempDir,
    env: HashMap<&'static str, String>,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let env = HashMap::from([("XDG_CONFIG_HOME", dir.path().display().to_string())]);
        Self { dir, env }
    }

    fn write(&self, text: &str) {
        fs::create_dir_all(self.dir.path().join("muxtap")).unwrap();
        fs::write(self.dir.path().join("muxtap/config.toml"), text).unwrap();
    }

    fn load(&self, flags: &Flags) -> Result<Settings> {
        let paths = Paths::in_dir(self.dir.path());
        Settings::load(&paths, flags, &|name| self.env.get(name).map(OsString::from), None)
    }

    fn error(&self) -> String {
        self.load(&Flags::new()).unwrap_err().message
    }
}

fn source(settings: &Settings, key: &str) -> String {
    settings.answer().settings.into_iter().find(|setting| setting.key == key).unwrap().source
}

#[test]
fn flags_are_above_the_environment_above_the_file_above_what_is_built_in() {
    let mut place = Place::new();
    place.write("ring_bytes = \"2M\"\nbudget_bytes = 1048576\ntmux = \"t1\"\nhttp = [\"127.0.0.1:1\", \"[::1]:2\"]\n");
    place.env.insert("MUXTAP_TMUX", "t2".into());
    place.env.insert("MUXTAP_RING_BYTES", "3M".into());
    let flags = vec![("ring_bytes", vec!["4M".to_owned()])];
    let settings = place.load(&flags).unwrap();
    assert_eq!((settings.ring_bytes, settings.budget_bytes), (4 << 20, 1 << 20));
    assert_eq!((settings.tmux.to_str(), settings.http.len()), (Some("t2"), 2));
    assert_eq!(settings.log_level, "info");
    let file = place.dir.path().join("muxtap/config.toml").display().to_string();
    for (key, from) in
        [("ring_bytes", "--ring-bytes"), ("tmux", "$MUXTAP_TMUX"), ("http", &file), ("log_level", "default")]
    {
        assert_eq!(source(&settings, key), from, "{key}");
    }
    assert_eq!(settings.answer().file, Some(file));
}

#[test]
fn a_setting_of_a_fleet_that_has_no_effect_is_an_error() {
    for field in [
        "name = \"a\"",
        "labels = [\"eu\"]",
        "tls_ca = \"ca.pem\"",
        "offer = [\"read\"]",
        "audit = true",
        "url = \"nats://a:1\"",
    ] {
        let place = Place::new();
        place.write(&format!("[fleet]\n{field}\n"));
        #[cfg(feature = "fleet")]
        if field.starts_with("url") {
            place.load(&Flags::new()).unwrap();
        } else {
            assert!(place.error().contains("[fleet] has no url"), "{field}: {}", place.error());
        }
        #[cfg(not(feature = "fleet"))]
        assert!(place.error().contains("built without fleets"), "{field}: {}", place.error());
    }
    let place = Place::new();
    place.write("[fleet]\n");
    place.load(&Flags::new()).unwrap();
    #[cfg(feature = "fleet")]
    {
        place.write("audit = false\n[fleet]\nurl = \"nats://a:1\"\naudit = true\n");
        assert!(place.error().contains("[fleet] audit: "), "{}", place.error());
    }
}

#[test]
fn a_relative_path_in_the_file_begins_in_the_files_folder() {
    let mut place = Place::new();
    place.write("agents_file = \"rules/mine.toml\"\ntls_cert = \"cert.pem\"\ntls_key = \"/etc/key.pem\"\n");
    let settings = place.load(&Flags::new()).unwrap();
    let folder = place.dir.path().join("muxtap");
    assert_eq!(settings.agents_file.unwrap().path, folder.join("rules/mine.toml"));
    assert_eq!(settings.certificate, Some((folder.join("cert.pem"), "/etc/key.pem".into())));
    // Elsewhere it begins in the current directory, as in a shell.
    place.env.insert("MUXTAP_AGENTS_FILE", "mine.toml".into());
    let here = std::env::current_dir().unwrap();
    assert_eq!(place.load(&Flags::new()).unwrap().agents_file.unwrap().path, here.join("mine.toml"));
}

#[test]
fn what_is_allowed_is_what_no_setting_forbids() {
    let mut place = Place::new();
    assert_eq!(place.load(&Flags::new()).unwrap().allowed, Tiers::ALL);
    place.write("deny = [\"kill\"]\nallow = \"read,input,kill\"");
    assert_eq!(place.load(&Flags::new()).unwrap().allowed.names(), ["read", "input"]);
    place.env.insert("MUXTAP_READ_ONLY", "1".into());
    assert_eq!(place.load(&Flags::new()).unwrap().allowed, Tiers::READ_ONLY);
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let mut place = Place::new();
    for (text, says) in [
        ("ring = 1", "unknown setting `ring`"),
        ("ring_bytes = \"1T\"", "config.toml): \"1T\": unknown unit"),
        ("ring_bytes = [1]", "must be a string"),
        ("ring_bytes = ", "config.toml"),
        ("http = [\"localhost\"]", "http (in "),
        ("http_origins = [\"*\"]", "expected an origin"),
        ("tls_cert = \"/x\"", "must be set together"),
        ("allow = [\"write\"]", "expected one of read, input"),
        ("log_level = \"loud\"", "config.toml): \"loud\": expected one of off, error, warn"),
    ] {
        place.write(text);
        assert!(place.error().contains(says), "{text}: {}", place.error());
    }
    place.write("");
    place.env.insert("MUXTAP_TLS", "maybe".into());
    assert!(place.error().contains("tls (from $MUXTAP_TLS): \"maybe\""), "{}", place.error());
    place.env.remove("MUXTAP_TLS");
    place.env.insert("MUXTAP_CONFIG", "/nonexistent/config.toml".into());
    assert!(place.error().contains("cannot read the configuration"), "one that was named must exist");
}

#[test]
fn a_world_writable_configuration_file_is_not_read() {
    let place = Place::new();
    place.write("");
    let file = place.dir.path().join("muxtap/config.toml");
    fs::set_permissions(file, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(place.error().contains("chmod go-w"));
}

#[test]
fn agents_are_tables_with_a_command_each() {
    let place = Place::new();
    place
        .write("[agent.one]\ncommand = \"one --acp 'a b'\"\n[agent.two]\ncommand = [\"two\", \"x\"]\ndefault = true\n");
    let settings = place.load(&Flags::new()).unwrap();
    let words = |at: usize| settings.agents[at].command.join("|");
    assert_eq!((words(0), words(1), settings.agents[1].default), ("one|--acp|a b".into(), "two|x".into(), true));
    assert_eq!(source(&settings, "agent.two.default"), settings.answer().file.unwrap());
    for (text, words) in [
        ("agent = 1", "[agent.NAME]"),
        ("[agent.a]", "missing `command`"),
        ("[agent.a]\ncommand = \"'\"", "unclosed quote"),
        ("[agent.a]\ncommand = \"a\"\nargs = 1", "agent.a.args"),
        ("[agent.sdk]\ncommand = \"a\"", "not `sdk`"),
        ("[agent.\"a b\"]\ncommand = \"a\"", "invalid name"),
        ("[agent.a]\ncommand = \"a\"\ndefault = true\n[agent.b]\ncommand = \"b\"\ndefault = true", "only one"),
    ] {
        place.write(text);
        assert!(place.error().contains(words), "{text}: {}", place.error());
    }
}
