//! Desktop notifications.

use std::{process::Stdio, time::Duration};

use tokio::process::Command;

/// Shows a desktop notification. Returns whether a desktop has shown it.
pub async fn desktop(title: &str, text: &str, limit: Duration) -> bool {
    // Neither runs a part of the texts. osascript shows them as they are; notify-send reads escapes in the
    // body, and a desktop reads markup in it.
    let mut ways = [Command::new("notify-send"), Command::new("osascript")];
    let [linux, mac] = &mut ways;
    linux.args(["--app-name", "muxtap", "--", title, &literal(text)]);
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

/// Returns a body that notify-send and a desktop show as this text.
fn literal(text: &str) -> String {
    text.replace('\\', r"\\").replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_body_has_neither_markup_nor_escapes() {
        assert_eq!(super::literal(r#"<b>&lt; a\n "b""#), r#"&lt;b&gt;&amp;lt; a\\n "b""#);
    }
}
