//! Notifies a person when something has ended: by a desktop notification, or by the person's command.

use std::{io::Write as _, process::Stdio, time::Duration};

use tokio::process::Command;

use super::output;
use crate::api::{Error, ErrorCode, Result};

/// How long a notifier or a person's command may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Shows a desktop notification; without a desktop rings the terminal's bell.
pub(super) async fn desktop(title: &str, text: &str) {
    if muxtap_when::notify::desktop(title, text, LIMIT).await {
        return;
    }
    let _ = std::io::stderr().write_all(b"\x07");
    output::note(&format!("{title}: {text} (no notify-send, or no desktop that responds)"));
}

/// Runs a person's command with these variables, its output on stderr. Error: it cannot be run, or
/// took too long.
pub(super) async fn command(line: &str, variables: &[(&str, String)]) -> Result<()> {
    let failed = |why: String| Error::new(ErrorCode::Conflict, format!("--on-end {line}: {why}"));
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).envs(variables.iter().map(|(name, value)| (*name, value)));
    // Stdout is for the command's result.
    command.stdin(Stdio::null()).stdout(std::io::stderr()).kill_on_drop(true);
    match tokio::time::timeout(LIMIT, command.status()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(failed(format!("ended with {status}"))),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed(format!("killed after {} s", LIMIT.as_secs()))),
    }
}
