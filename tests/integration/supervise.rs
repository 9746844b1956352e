//! `manage_tmux_sessions` on a real tmux with a script as `claude`, a stand-in for the human, and a
//! separate store.

mod actions;
mod mattermost;
mod spawn;
pub mod standin;
mod store;
mod terminal;

use std::{
    collections::BTreeMap, ffi::OsString, fs, os::unix::fs::PermissionsExt as _, path::PathBuf, sync::Arc,
    time::Duration,
};

use muxtap::{
    Engine,
    api::Tiers,
    approvals::{Confirm, Platform},
    supervise::{Options, Supervisor},
};
use serde_json::{Value, json};

use crate::common::{World, eventually, tmux_program};

/// A script that plays `claude`: prints its directory and its arguments, replies to each line, and
/// shows a dialog for the line `ask` or work for the line `work`.
const CLAUDE: &str = r#"#!/bin/sh
printf 'in %s\ntold: %s\n' "$PWD" "$*"
while IFS= read -r line; do
  case "$line" in
    ask) printf '\033[2J\033[HDo you want to proceed?\n> 1. Yes\n' ;;
    work) printf '\033[2J\033[H* Thinking (esc to interrupt)\n' ;;
    *) printf 'got <%s>\n' "$line" ;;
  esac
done
"#;

/// A supervisor in its own world.
pub struct Stage {
    pub world: World,
    pub supervisor: Supervisor,
    engine: Engine,
}

/// The settings of an unusual stage.
pub struct Plan {
    pub confirm: Vec<Arc<dyn Confirm>>,
    pub answer_timeout: Duration,
    pub tmux: String,
    pub allowed: Tiers,
    /// Another socket than the world's.
    pub socket: Option<PathBuf>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            confirm: Vec::new(),
            answer_timeout: Duration::from_secs(3600),
            tmux: tmux_program(),
            allowed: Tiers::ALL,
            socket: None,
        }
    }
}

impl Stage {
    pub fn new(world: World, plan: Plan) -> Self {
        let bin = world.path("bin");
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join("claude"), CLAUDE).unwrap();
        fs::set_permissions(bin.join("claude"), fs::Permissions::from_mode(0o755)).unwrap();
        let mut environment: BTreeMap<OsString, OsString> = world
            .command("true")
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        let mut path = bin.into_os_string();
        path.push(":");
        path.push(&environment[std::ffi::OsStr::new("PATH")]);
        environment.insert("PATH".into(), path);
        let engine = Engine::start(muxtap::Options::default().tmux(plan.tmux).allow(plan.allowed)).unwrap();
        let options = Options {
            socket: plan.socket.unwrap_or_else(|| world.socket().to_owned()),
            directory: world.path("work"),
            environment: Some(environment),
            store: world.path("home/.config/earl/tmux_sessions.json"),
            channel: Some("channel".into()),
            thread: Some("thread".into()),
            confirm: plan.confirm,
            answer_timeout: plan.answer_timeout,
        };
        let supervisor = Supervisor::new(engine.clone(), options);
        Self { world, supervisor, engine }
    }

    pub async fn call(&self, arguments: Value) -> String {
        self.supervisor.call(arguments.as_object().unwrap().clone()).await
    }

    pub async fn action(&self, action: &str, target: &str) -> String {
        self.call(json!({ "action": action, "target": target })).await
    }

    /// Starts the script as a person at a terminal does, in a new session; returns when its
    /// argument is displayed.
    pub fn claude(&self, session: &str, dir: &str) {
        let program = self.world.path("bin/claude").display().to_string();
        self.world.tmux(&["new-session", "-d", "-s", session, "-x", "80", "-y", "24", "-c", dir, &program, "hello"]);
        self.shows(session, "told: hello");
    }

    /// Waits until a pane shows this text.
    pub fn shows(&self, pane: &str, text: &str) {
        eventually(&format!("{pane} shows {text:?}"), || {
            self.world.tmux(&["capture-pane", "-p", "-t", &format!("={pane}:")]).contains(text)
        });
    }

    pub fn store_path(&self) -> PathBuf {
        self.world.path("home/.config/earl/tmux_sessions.json")
    }

    pub fn store(&self) -> Value {
        serde_json::from_slice(&fs::read(self.store_path()).unwrap()).unwrap()
    }

    /// Releases the tmux server before the world ends.
    pub async fn end(self) {
        self.supervisor.stop().await;
        self.engine.stop().await;
    }
}

/// Returns the settings with the stand-in's address and allowed users.
pub fn platform(url: String, allowed: &[&str]) -> Platform {
    Platform {
        url,
        token: "the-token".into(),
        channel: "channel".into(),
        thread: "thread".into(),
        bot: "bot".into(),
        allowed: allowed.iter().map(|&name| name.to_owned()).collect(),
    }
}
