//! `audit-check`.

use std::{
    collections::HashSet,
    io::{self, BufRead as _, BufReader, IsTerminal as _, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use clap::Args;
use muxtap_base::files::{FileError, OpenToOthers, open_private};
use muxtap_engine::audit::{AuditKey, log_files};
use rustix::{
    fs::OFlags,
    termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr},
};
use serde_json::Value;

use super::{
    Caller, Outcome,
    daemon::config_in_force,
    output::{self, Failure, Table},
};

use crate::{
    api::{Error, ErrorCode, Result},
    cli::{
        EXIT_ERROR,
        terminal::{self, Signal, Signals},
    },
};

/// Check the audit log for a typed text
///
/// Reads the text from stdin; at a terminal one line, without echo. The log holds only keyed hashes
/// of typed text; the key is next to the log. The text is searched as given (with and without a
/// final line end), and with Enter after it, as in `send-keys TEXT Enter`. Exit status 1 if the
/// text was not typed.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap audit-check                          prompt for the text
  pass show db | muxtap audit-check --json    was that password typed anywhere?")]
pub(in crate::cli) struct AuditCheck {
    /// The log file (default: the daemon's)
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl AuditCheck {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let log = match self.file {
            Some(file) => file,
            None => log_in_force(caller).await?,
        };
        let key = AuditKey::of(&log)?;
        let hashes = match read_text().await? {
            Ok(text) => hashes(&key, &text),
            Err(status) => return Ok(status),
        };
        let found = find(&log, &hashes)?;
        if caller.json {
            output::print_json(&serde_json::json!({ "file": log, "found": found }))?;
        } else {
            output::print(render(&found))?;
        }
        Ok(if found.is_empty() { EXIT_ERROR } else { 0 })
    }
}

/// Returns the audit log of the running daemon, else of a daemon that would be started here.
async fn log_in_force(caller: &Caller) -> Result<PathBuf> {
    let config = config_in_force(caller).await?;
    let value = |key: &str| config.settings.iter().find(|setting| setting.key == key).map(|setting| &setting.value);
    if value("audit") == Some(&Value::Bool(false)) {
        return Err(Error::not_found("no audit log: `audit` is false; use --file for an earlier log"));
    }
    let file = value("audit_file").and_then(Value::as_str).map(PathBuf::from);
    file.ok_or_else(|| Error::not_found("no audit log; use --file to name one"))
}

/// Reads the text to search for: one line of a terminal, without echo, or all of stdin. `Err`: the
/// exit status for the signal that interrupted it; the terminal's echo is restored.
async fn read_text() -> Result<std::result::Result<Vec<u8>, u8>, Failure> {
    let mut signals = Signals::new()?;
    let is_terminal = io::stdin().is_terminal();
    let mut hidden = None;
    if is_terminal {
        output::note("the text (not shown):");
        hidden = HiddenInput::begin();
    }
    let mut read = tokio::task::spawn_blocking(move || read_stdin(is_terminal));
    loop {
        let signal = tokio::select! {
            read = &mut read => {
                let read = read.map_err(|error| Error::internal(format!("stdin: {error}")))?;
                return Ok(Ok(read.map_err(|error| Error::invalid(format!("cannot read stdin: {error}")))?));
            }
            signal = signals.next() => signal,
        };
        match signal {
            Signal::End(status) => return Ok(Err(status)),
            Signal::Stop => {
                let was_hidden = hidden.take().is_some();
                terminal::stop()?;
                hidden = if was_hidden { HiddenInput::begin() } else { None };
            }
            Signal::Resized => {}
        }
    }
}

fn read_stdin(line: bool) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut stdin = io::stdin().lock();
    if line {
        stdin.read_until(b'\n', &mut text)?;
    } else {
        stdin.read_to_end(&mut text)?;
    }
    Ok(text)
}

/// A terminal without echo; dropping this restores the echo.
struct HiddenInput(Termios);

impl HiddenInput {
    fn begin() -> Option<Self> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden).ok()?;
        Some(Self(before))
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Returns the hashes that the log contains if this text was typed.
fn hashes(key: &AuditKey, text: &[u8]) -> Vec<String> {
    let line = text.strip_suffix(b"\n").unwrap_or(text);
    let entered = [line, b" Enter"].concat();
    [text, line, &entered].into_iter().map(|typed| key.hash(typed)).collect()
}

/// Returns the log's entries with one of these hashes, the oldest first.
fn find(log: &Path, hashes: &[String]) -> Result<Vec<Value>> {
    // Opens all files before reading any, newest first: a rotation in the meantime loses none.
    let mut files = Vec::new();
    let mut opened = HashSet::new();
    for path in log_files(log).into_iter().rev() {
        let file = match open_private(&path, OFlags::RDONLY, OpenToOthers::Kept) {
            Err(FileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file.map_err(|error| unreadable(&path, &error.into()))?,
        };
        let found = file.metadata().map_err(|error| unreadable(&path, &error))?;
        if opened.insert((found.dev(), found.ino())) {
            files.push((path, file));
        }
    }
    let mut found = Vec::new();
    for (path, file) in files.into_iter().rev() {
        for line in BufReader::new(file).split(b'\n') {
            let line = line.map_err(|error| unreadable(&path, &error))?;
            let Ok(entry) = serde_json::from_slice::<Value>(&line) else { continue };
            let typed = entry.get("hmac").and_then(Value::as_str);
            if typed.is_some_and(|typed| hashes.iter().any(|hash| hash == typed)) {
                found.push(entry);
            }
        }
    }
    Ok(found)
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    Error::new(ErrorCode::Conflict, format!("cannot read the audit log {}: {error}", path.display()))
}

fn render(found: &[Value]) -> String {
    if found.is_empty() {
        return "not typed, as far as the log goes back\n".into();
    }
    let mut table = Table::new(&["AT", "FACE", "WHO", "ACTION", "RESULT", "TARGET", "PANE", "TMUX SERVER"]);
    for entry in found {
        let cell = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        table.row(&["at", "face", "who", "action", "result", "target", "pane", "server"].map(cell));
    }
    table.render()
}
