//! The setup of MCP clients in `docs/mcp.md`, and the skill: each snippet is parsed like its client
//! does, and the program it names is started.

use std::path::Path;

use crate::common::{Background, World};
use crate::mcp::Client;
use serde_json::{Value, json};

fn page(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Returns the fenced block whose first line is this.
fn block(page: &str, fence: &str) -> String {
    let lines = page.lines().skip_while(|line| *line != format!("```{fence}")).skip(1);
    let block: Vec<_> = lines.take_while(|line| *line != "```").collect();
    assert!(!block.is_empty(), "no {fence}");
    block.join("\n")
}

#[test]
fn every_clients_snippet_starts_a_server() {
    let page = page("docs/mcp.md");
    for (fence, servers) in [
        ("json claude-code", "mcpServers"),
        ("toml codex", "mcp_servers"),
        ("json cursor", "mcpServers"),
        ("json vscode", "servers"),
        ("json zed", "context_servers"),
    ] {
        let text = block(&page, fence);
        let config: Value = if fence.starts_with("toml") {
            toml::from_str(&text).unwrap()
        } else {
            serde_json::from_str(&text).unwrap()
        };
        let server = &config[servers]["muxtap"];
        // Named by its installed name.
        assert_eq!(server["command"], "muxtap", "{fence}");
        let args: Vec<String> = serde_json::from_value(server["args"].clone()).unwrap();
        let world = World::with_server();
        let mut command = world.plain_muxtap_command();
        command.args(&args).env("TMUX", format!("{},1,0", world.socket().display()));
        let mut client = Client::started(Background::start(&mut command));
        assert_eq!(client.call("list", &json!({}))["panes"][0]["session"], "main", "{fence}");
    }
}

#[test]
fn the_skill_and_the_page_name_the_tools_that_there_are() {
    let world = World::with_server();
    let mut client = Client::new(&world);
    let listed = client.ask("tools/list", &json!({}))["result"]["tools"].clone();
    let tools: Vec<_> =
        listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
    let page = page("docs/mcp.md");
    // The tools of other sets follow.
    let native = page.split("\nFurther sets").next().unwrap();
    let told: Vec<_> =
        native.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(name, _)| name).collect();
    let sorted = |mut names: Vec<&str>| {
        names.sort_unstable();
        names.join(" ")
    };
    assert_eq!(sorted(told), sorted(tools.iter().map(String::as_str).collect()));

    let skill = self::page("docs/skill/SKILL.md");
    let (front, body) = skill.strip_prefix("---\n").unwrap().split_once("\n---\n").unwrap();
    let field = |name: &str| front.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap();
    // The limits of clients for a skill's head.
    assert!(field("name").chars().all(|c| c.is_ascii_lowercase()) && field("description").chars().count() <= 1024);
    for tool in ["list", "run", "send_keys", "create", "wait_for", "read_since", "capture_pane", "watch", "search"] {
        assert!(body.contains(&format!("`{tool}`")) && tools.iter().any(|name| name == tool), "{tool}");
    }
}
