//! Desktop notifications.

use std::{process::Stdio, time::Duration};

use tokio::process::Command;

/// Shows a desktop notification. Returns whether a desktop has shown it.
pub async fn desktop(title: &str, text: &str, limit: Duration) -> bool {
    // Both take the texts literally: nothing from a pane is run.
    let mut ways = [Command::new("notify-send"), Command::new("osascript")];
    let [linux, mac] = &mut ways;
    linux.args(["--app-name", "muxtap", "--", title, text]);
    mac.args(["-e", "on run texts", "-e", "display notification (item 2 of texts) with title (item 1 of texts)"]);
    mac.args(["-e", "end run", "--", title, text]);
    for way in &mut ways {
        way.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        if let Ok(Ok(status)) = tokio::time::timeout(limit, way.status()).await
            && status.success()
        {
            return true;
        }
    }
    false
}
