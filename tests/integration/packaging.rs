//! The files of `packaging/` agree with the sources.
use std::{fs, path::Path};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the templates: every file of `packaging/` with an `@NAME@` that `scripts/package` fills in.
const TEMPLATES: [&str; 6] = [
    "packaging/debian/changelog",
    "packaging/debian/control",
    "packaging/debian/copyright",
    "packaging/rpm/muxtap.spec",
    "packaging/homebrew/muxtap.rb",
    "packaging/aur/PKGBUILD",
];

/// A version is written in `Cargo.toml` alone; the templates and `flake.nix` take it from there.
#[test]
fn the_version_is_that_of_cargo_toml() {
    let version = env!("CARGO_PKG_VERSION");
    for path in TEMPLATES {
        let text = read(path);
        assert!(!text.contains(version), "{path} names {version}: write @VERSION@");
        assert!(text.contains("@VERSION@") || path.ends_with("copyright"), "{path} names no version");
    }
    assert!(read("flake.nix").contains("cargo.workspace.package.version"));
    let manifest = read("Cargo.toml");
    assert!(manifest.contains(&format!("version = \"{version}\"")));
    // Each crate that is published asks for this release of the others.
    for line in manifest.lines().filter(|line| line.contains("path = \"crates/")) {
        assert!(line.contains(&format!("version = \"{version}\"")), "{line}");
    }
}

/// The README installs files that `scripts/package` makes, of this version.
#[test]
fn the_readme_installs_what_is_made() {
    let (readme, pages) = (read("README.md"), read("docs/packaging.md"));
    let install = readme.split("## Install\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let mut files = 0;
    for word in install.split_whitespace().filter(|word| word.contains(version)) {
        let name = word.trim_start_matches("./").replace(version, "VERSION");
        // `*` stands for the rest of a name.
        let name = name.split('*').next().unwrap().replace("x86_64-unknown-linux-gnu", "TARGET");
        assert!(pages.contains(&format!("`{name}")), "docs/packaging.md makes no {name}");
        files += 1;
    }
    assert_eq!(files, 7);
    assert!(install.contains("Nothing is published yet"));
}

/// Each target is in the tables of `pack.py`, in the workflow and in `deny.toml`.
#[test]
fn the_targets_are_the_same_everywhere() {
    let workflow = read(".github/workflows/release.yml");
    let targets: Vec<&str> =
        workflow.lines().filter_map(|line| line.split("{ target: ").nth(1)?.split(',').next()).collect();
    assert_eq!(targets.len(), 6);
    let packed = read("packaging/pack.py");
    for path in ["packaging/pack.py", "deny.toml"] {
        let text = read(path);
        for target in &targets {
            assert!(text.contains(target), "{path}: {target} is missing");
        }
    }
    for table in ["WHEEL_TAGS = {", "NPM = {"] {
        let table = packed.split(table).nth(1).unwrap().split("\n}").next().unwrap();
        assert_eq!(table.lines().filter(|line| line.contains(": ")).count(), targets.len(), "{table}");
    }
}

/// The workflow's actions cannot change without a change here: each is named by a commit, with its version beside it.
#[test]
fn actions_are_named_by_a_commit() {
    let workflow = read(".github/workflows/release.yml");
    let actions: Vec<&str> = workflow.lines().filter_map(|line| line.split("uses: ").nth(1)).collect();
    assert!(actions.len() > 5, "{actions:?}");
    for action in actions {
        let (name, version) = action.split_once(" # v").unwrap_or_else(|| panic!("{action}: no version"));
        let commit = name.split('@').nth(1).unwrap_or_default();
        let is_commit = commit.len() == 40 && commit.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        assert!(is_commit && version.split('.').count() == 3, "{action}: not a commit and its version");
    }
}

/// The limits of `packaging/sizes`, which `scripts/package test` applies, are those that docs/packaging.md states.
#[test]
fn the_page_states_the_limits_of_sizes() {
    let (sizes, page) = (read("packaging/sizes"), read("docs/packaging.md"));
    let mut seen = 0;
    for line in sizes.lines().filter(|line| !line.starts_with('#')) {
        let (limit, path) = line.split_once(' ').unwrap();
        let megabytes = limit.parse::<u64>().unwrap() / 1_000_000;
        let row = format!("| `{}` | {megabytes} MB |", path.trim_start_matches("../stage/bin/"));
        assert!(page.contains(&row), "docs/packaging.md has no row `{row}`");
        seen += 1;
    }
    assert!(seen > 2);
}

/// The page contains packages of npm, whose licenses are shipped: those of `web/package-lock.json`.
#[test]
fn the_licenses_of_the_page() {
    let licenses = read("packaging/page-licenses.txt");
    let lock: serde_json::Value = serde_json::from_str(&read("web/package-lock.json")).unwrap();
    let packages = lock["packages"].as_object().unwrap();
    let entry = |name: &str| &packages[&format!("node_modules/{name}")];
    let mut todo: Vec<String> = entries(&packages[""]["devDependencies"], |name| {
        name.starts_with("@codemirror/") || name.starts_with("@xterm/")
    });
    let mut seen = std::collections::BTreeSet::new();
    while let Some(name) = todo.pop() {
        if seen.insert(name.clone()) {
            todo.extend(entries(&entry(&name)["dependencies"], |_| true));
            let version = entry(&name)["version"].as_str().unwrap();
            let heading = format!("\n== {name} {version} ");
            assert!(licenses.contains(&heading), "packaging/page-licenses.txt: {name} {version} is missing");
        }
    }
    assert_eq!(licenses.matches("\n== ").count(), seen.len(), "packaging/page-licenses.txt names other packages, too");
}

fn entries(map: &serde_json::Value, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let names = map.as_object().into_iter().flat_map(|map| map.keys());
    names.filter(|name| wanted(name)).cloned().collect()
}

/// Each crate can be published: crates.io requires a description and a license.
#[test]
fn every_crate_can_be_published() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path().join("Cargo.toml");
        let text = fs::read_to_string(&path).unwrap();
        for field in
            ["description = \"", "license.workspace = true", "repository.workspace = true", "readme = \"README.md\""]
        {
            assert!(text.contains(field), "{}: {field} is missing", path.display());
        }
        // cargo leaves out those for tests alone.
        let needed = text.split("[dev-dependencies]").next().unwrap();
        for line in needed.lines().filter(|line| line.contains("path = \"..")) {
            assert!(line.contains("version = \""), "{}: {line}", path.display());
        }
        assert!(path.with_file_name("README.md").exists(), "{}: README.md is missing", path.display());
        seen += 1;
    }
    assert!(seen > 15);
}

/// The service's paths are those of the packages, and its socket that of a daemon without systemd.
#[test]
fn the_units_fit_the_program() {
    let socket = read("packaging/systemd/muxtapd.socket");
    for line in ["ListenStream=%t/muxtap/muxtap.sock", "SocketMode=0600", "DirectoryMode=0700"] {
        assert!(socket.contains(line), "{line}");
    }
    let service = read("packaging/systemd/muxtapd.service");
    for line in ["Type=notify", "NotifyAccess=main", "KillMode=process", "ExecStart=/usr/bin/muxtapd serve"] {
        assert!(service.contains(line), "{line}");
    }
    // Settings that are refused would be refused again: exit status 2. Stored ports outlive a crash.
    for line in ["RestartSec=", "RestartPreventExitStatus=2", "FileDescriptorStoreMax="] {
        assert!(service.contains(line), "{line}");
    }
    // What a user's service manager can enforce without a user namespace, in which ssh fails.
    let hardened = read("packaging/systemd/hardened.conf");
    for line in hardened.lines().skip_while(|line| *line != "[Service]").skip(1) {
        let name = line.split('=').next().unwrap();
        let known = ["NoNewPrivileges", "LockPersonality", "UMask"];
        assert!(
            known.contains(&name) || name.starts_with("Restrict") || name.starts_with("SystemCall"),
            "{line} needs capabilities or mounts"
        );
    }
    // Shells in panes inherit these.
    let settings = service.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    for setting in ["NoNewPrivileges", "UMask", "ProtectSystem", "PrivateTmp", "SystemCallFilter", "Limit"] {
        assert!(!settings.contains(setting), "{setting} would reach the shells that tmux starts");
    }
}
