//! The file of spawned sessions, as the tool writes it.

use std::fs;

use serde_json::json;

use super::{Plan, Stage};
use crate::common::World;

#[tokio::test(flavor = "multi_thread")]
async fn kill_forgets_the_entry_whether_the_session_was_there_or_not() {
    let stage = Stage::new(World::with_server(), Plan::default());
    fs::create_dir_all(stage.store_path().parent().unwrap()).unwrap();
    let store = json!({ "main": { "name": "main" }, "gone": { "name": "gone" }, "kept": { "name": "kept" } });
    fs::write(stage.store_path(), store.to_string()).unwrap();
    assert_eq!(stage.action("kill", "gone").await, "Error: session 'gone' not found (cleaned up store)");
    assert_eq!(stage.store().as_object().unwrap().keys().collect::<Vec<_>>(), ["kept", "main"]);
    // By any form of its target.
    assert_eq!(stage.action("kill", "main:0.0").await, "Killed tmux session `main:0.0`.");
    assert_eq!(stage.store().as_object().unwrap().keys().collect::<Vec<_>>(), ["kept"]);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_store_is_kept_aside() {
    let stage = Stage::new(World::with_server(), Plan::default());
    let folder = stage.store_path().parent().unwrap().to_owned();
    fs::create_dir_all(&folder).unwrap();
    fs::write(stage.store_path(), "{ \"main\": ").unwrap();
    assert_eq!(stage.action("kill", "main").await, "Killed tmux session `main`.");
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let aside: Vec<_> = names.filter(|name| name.starts_with("tmux_sessions.json.corrupt.")).collect();
    assert_eq!(aside.len(), 1);
    assert_eq!(fs::read_to_string(folder.join(&aside[0])).unwrap(), "{ \"main\": ");
    stage.end().await;
}
