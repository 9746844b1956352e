//! The plugin for Claude Code and the entry of the MCP registry agree with the sources.
//!
//! `scripts/claude-plugin` tries the plugin with the real program.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};

use crate::common::{World, run};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn parsed(path: &str) -> Value {
    serde_json::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn package() -> toml::Value {
    toml::from_str::<toml::Value>(&read("Cargo.toml")).unwrap()["workspace"]["package"].clone()
}

#[test]
fn the_plugin_is_this_release() {
    let (plugin, package) = (parsed(".claude-plugin/plugin.json"), package());
    for field in ["version", "license", "repository"] {
        assert_eq!(plugin[field].as_str(), package[field].as_str(), "{field}");
    }
    assert_eq!(plugin["keywords"], serde_json::to_value(&package["keywords"]).unwrap());
    let market = parsed(".claude-plugin/marketplace.json");
    let [listed] = &market["plugins"].as_array().unwrap()[..] else { panic!("{market}") };
    // The plugin's own file has its version.
    assert_eq!((&listed["name"], &listed["source"], &listed["version"]), (&plugin["name"], &json!("./"), &Value::Null));
    assert_eq!(listed["description"], plugin["description"]);
}

/// The plugin has the skill's one copy, the server of `docs/mcp.md`, and the hooks that `agents install`
/// writes.
#[test]
fn the_plugin_has_the_same_parts_as_a_set_up_by_hand() {
    let plugin = parsed(".claude-plugin/plugin.json");
    let [skill] = &plugin["skills"].as_array().unwrap()[..] else { panic!("{plugin}") };
    let skill = skill.as_str().unwrap();
    assert!(read(&format!("{skill}/SKILL.md")).starts_with("---\nname: muxtap\n"), "{skill}");
    let page = read("docs/mcp.md");
    let snippet = page.split("```json claude-code\n").nth(1).and_then(|rest| rest.split("\n```").next()).unwrap();
    let mut server = serde_json::from_str::<Value>(snippet).unwrap()["mcpServers"].take();
    // Claude Code's default.
    server["muxtap"].as_object_mut().unwrap().remove("type");
    assert_eq!(plugin["mcpServers"], server);

    let world = World::new();
    let shown = world.json(&["agents", "install", "claude", "--dry-run"]);
    let settings: Value = serde_json::from_str(shown["text"].as_str().unwrap()).unwrap();
    let installed = settings["hooks"]["Stop"][0]["hooks"][0]["command"].as_str().unwrap();
    let (program, _) = installed.split_once(" report-agent").unwrap();
    let text = settings["hooks"].to_string().replace(program, "muxtap");
    assert_eq!(plugin["hooks"], serde_json::from_str::<Value>(&text).unwrap());
}

/// Hooks are installed by the plugin or by `agents install`, not by both.
#[test]
fn hooks_of_an_enabled_plugin_are_not_installed_again() {
    let world = World::new();
    let state = || world.json(&["agents", "status"])["agents"][0]["state"].as_str().unwrap().to_owned();
    let file = world.path("home/.claude/settings.json");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    for (enabled, is_there) in [
        (json!({"muxtap@muxtap": true}), true),
        (json!({"muxtap@their-market": true, "other@x": true}), true),
        (json!({"muxtap@muxtap": false}), false),
        (json!({"muxtap-like@muxtap": true}), false),
        (json!(["muxtap@muxtap"]), false),
    ] {
        let text = json!({"enabledPlugins": enabled}).to_string();
        fs::write(&file, &text).unwrap();
        for place in [&["claude"][..], &["claude", "--project"]] {
            let said = world.ok(&[&["agents", "install"], place].concat());
            assert_eq!(said.contains("by Claude Code's plugin"), is_there, "{text}: {said}");
            world.ok(&[&["agents", "uninstall"], place].concat());
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        assert_eq!(state() == "installed by the plugin", is_there, "{text}");
    }
    // The plugin was added after an installation.
    fs::write(&file, "{}").unwrap();
    world.ok(&["agents", "install", "claude"]);
    let mut settings: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    settings["enabledPlugins"] = json!({"muxtap@muxtap": true});
    fs::write(&file, settings.to_string()).unwrap();
    assert_eq!(state(), "installed, and by the plugin: uninstall");
    world.ok(&["agents", "uninstall", "claude"]);
    assert_eq!(state(), "installed by the plugin");
}

/// `server.json` names the packages that `scripts/package` makes, which name it in turn: the registry
/// compares both.
#[test]
fn the_registrys_entry_names_the_packages() {
    let (server, package) = (parsed("server.json"), package());
    let repository = package["repository"].as_str().unwrap();
    let name = repository.replace("https://github.com/", "io.github.");
    assert_eq!((server["name"].as_str(), server["repository"]["url"].as_str()), (Some(&*name), Some(repository)));
    assert_eq!(server["description"], parsed(".claude-plugin/plugin.json")["description"]);
    // A limit of the registry.
    assert!(server["description"].as_str().unwrap().chars().count() <= 100);
    let readme = read("packaging/registry-readme.md");
    assert!(readme.contains(&format!("mcp-name: {name} ")), "PyPI's page names the entry");
    assert!(read("packaging/pack.py").contains("\"mcpName\": json.loads((ROOT / \"server.json\")"), "npm's does");
    let mut kinds = Vec::new();
    for one in [&server].into_iter().chain(server["packages"].as_array().unwrap()) {
        assert_eq!(one["version"].as_str(), package["version"].as_str(), "{one}");
        if let Some(kind) = one["registryType"].as_str() {
            assert_eq!((&one["identifier"], &one["transport"]["type"]), (&json!("muxtap"), &json!("stdio")));
            // The command line is the one of the packages' own page.
            let values = |list: &str| one[list].as_array().into_iter().flatten().map(|one| one["value"].clone());
            let mut args: Vec<Value> = values("runtimeArguments").collect();
            args.push(one["identifier"].clone());
            args.extend(values("packageArguments"));
            let command = format!("\"command\": {}, \"args\": {}", one["runtimeHint"], json!(args));
            assert!(readme.replace(", ", ",").contains(&command.replace(", ", ",")), "{command}");
            kinds.push(kind);
        }
    }
    assert_eq!(kinds, ["npm", "pypi"]);
}

/// The program that reads the plugin finds nothing wrong, where it is installed: `claude`, or what
/// `MUXTAP_TEST_CLAUDE` names.
#[test]
fn claude_code_accepts_the_plugin() {
    let program = std::env::var_os("MUXTAP_TEST_CLAUDE").unwrap_or_else(|| "claude".into());
    let world = World::new();
    let validate = |folder: &Path| {
        let mut command: Command = world.command(&program);
        command.args(["plugin", "validate", "--strict"]).arg(folder);
        run(command.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1").env("DISABLE_AUTOUPDATER", "1"))
    };
    let can_validate = world.command(&program).args(["plugin", "validate", "--help"]).output();
    if !can_validate.is_ok_and(|help| help.status.success() && help.stdout.windows(8).any(|part| part == b"--strict")) {
        eprintln!("skipped: no Claude Code that can validate plugins");
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for path in [root.to_owned(), root.join(".claude-plugin/plugin.json")] {
        let answer = validate(&path);
        assert_eq!(answer.status, 0, "{}", answer.text());
    }
    // It rejects a wrong field.
    let folder = world.path("wrong");
    fs::create_dir_all(folder.join(".claude-plugin")).unwrap();
    fs::write(folder.join(".claude-plugin/plugin.json"), json!({"name": "x", "skills": 5}).to_string()).unwrap();
    assert_ne!(validate(&folder).status, 0);
}
