//! `record`, with `record list` and `record stop`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use futures_util::future;
use muxtap_engine::is_pattern;

use super::{Caller, Outcome, duration, fitting, output, path_of, since};

use crate::{
    api::{Error, RecordFormat, RecordRequest, RecordState, RecordingInfo, RecordingList, RecordingQuery, Result},
    cli::{EXIT_ERROR, EXIT_INTERRUPTED, client::forget_host},
};

/// Record panes into asciicast files
///
/// Writes asciicast v2 for asciinema and its players, v3 for asciinema 3, or only text. Recording can begin in the
/// past, with retained output. It ends with the panes or with Ctrl-C; with --detach the daemon
/// records. With -o a limit ends the recording; else the next file begins, and each file plays by
/// itself. Matches of --redact become `*` before writing.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "Examples:
  muxtap record -t work -o session.cast
  muxtap record -t work --since start -o before.cast   all retained output, then new output
  muxtap record -t build:0 --dir ~/casts --max-size 20M --max-time 1h
  muxtap record -t work --redact 'AKIA[0-9A-Z]{16}' --redact 'token=\\S+' -o clean.cast
  muxtap record -t 'work:*' --detach                 in the daemon's directory; then:
  muxtap record list
  muxtap record stop r1"
)]
pub(in crate::cli) struct Record {
    #[command(subcommand)]
    action: Option<Action>,
    /// A pane; `*` in a session's, window's or pane's place stands for anything (default: the
    /// caller's)
    #[arg(short = 't', value_name = "TARGET")]
    targets: Vec<String>,
    /// Begin here: `now` (default), `start` (all retained output), a time ago (`90s`, `10m`),
    /// `input` (the last input), or a cursor
    #[arg(long, value_name = "start|CURSOR|now|TIME", value_parser = since)]
    since: Option<String>,
    /// Record one pane into this file, which must not exist
    #[arg(short = 'o', value_name = "FILE", conflicts_with = "dir")]
    output: Option<PathBuf>,
    /// Record into files in this directory (default: the daemon's own, `recordings` next to its log)
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Limit a file to this many bytes, units K, M and G
    #[arg(long, value_name = "N", value_parser = bytes)]
    max_size: Option<u64>,
    /// Limit a file to this time: 90s, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    max_time: Option<u64>,
    /// Replace matches of this regex in a line (Rust's syntax); repeatable
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    redact: Vec<String>,
    /// Also record muxtap's input
    #[arg(long)]
    input: bool,
    /// Format of the files
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    format: Format,
    /// Record in the daemon, and print the recording's id
    #[arg(long)]
    detach: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List running and recently ended recordings
    List,
    /// Stop recordings, and complete their files
    Stop {
        /// Ids from `record list`
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
}

/// The form of the files.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    /// asciicast v2, which all players play.
    #[default]
    V2,
    /// asciicast v3, for asciinema 3.
    V3,
    /// Only the text.
    Text,
}

impl From<Format> for RecordFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::V3 => Self::V3,
            Format::V2 => Self::V2,
            Format::Text => Self::Text,
        }
    }
}

/// Parses a number of bytes.
fn bytes(text: &str) -> std::result::Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match text.get(digits.len()..).unwrap_or_default().to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" | "KIB" => 1 << 10,
        "M" | "MB" | "MIB" => 1 << 20,
        "G" | "GB" | "GIB" => 1 << 30,
        _ => return Err("expected a number of bytes, as 100000, 500K, 20M or 1G".into()),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    number.ok_or_else(|| "expected a number of bytes, as 100000, 500K, 20M or 1G".into())
}

impl Record {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        match &self.action {
            Some(Action::List) => return list(caller).await,
            Some(Action::Stop { ids }) => return stop(caller, ids).await,
            None => {}
        }
        let mut client = caller.client().await?;
        let mut panes = Vec::new();
        for target in &self.targets {
            forget_host();
            if is_pattern(target) {
                panes.extend(fitting(&mut client, target).await?);
            } else {
                panes.push(target.clone());
            }
        }
        if panes.is_empty() {
            panes.push(caller.target(None)?);
        }
        if self.output.is_some() && panes.len() > 1 {
            let message = format!("-o is for one pane, but {} match; use --dir", panes.len());
            return Err(Error::invalid(message).into());
        }
        let absolute = |path: &PathBuf| -> Result<String> {
            let path =
                std::path::absolute(path).map_err(|error| Error::invalid(format!("{}: {error}", path.display())))?;
            let not_text = |path: std::ffi::OsString| Error::invalid(format!("{} is not valid UTF-8", path.display()));
            path.into_os_string().into_string().map_err(not_text)
        };
        let (file, dir) =
            (self.output.as_ref().map(absolute).transpose()?, self.dir.as_ref().map(absolute).transpose()?);
        let mut begun = Vec::new();
        for pane in panes {
            forget_host();
            let request = RecordRequest {
                pane,
                since: self.since.clone(),
                file: file.clone(),
                dir: dir.clone(),
                max_bytes: self.max_size,
                max_ms: self.max_time,
                redact: self.redact.clone(),
                input: self.input,
                format: self.format.into(),
                attend: !self.detach,
            };
            match client.post::<RecordingInfo>("/v1/recordings", &request).await {
                Ok(info) => begun.push(info),
                Err(error) => {
                    for info in &begun {
                        let _ = client.delete::<RecordingInfo>(&path_of("recordings", &info.id)).await;
                    }
                    return Err(error.into());
                }
            }
        }
        if self.detach {
            for info in &begun {
                print(caller, info, true)?;
            }
            return Ok(0);
        }
        attended(caller, begun).await
    }
}

/// Waits until recordings end; Ctrl-C ends them.
async fn attended(caller: &Caller, begun: Vec<RecordingInfo>) -> Outcome {
    if !caller.json {
        for info in &begun {
            let file = info.files.first().map(String::as_str).unwrap_or_default();
            output::note(&format!("recording {} to {file}; Ctrl-C ends it", info.pane));
        }
    }
    // Each has its own connection: when this process ends, in whatever way, the recordings end.
    let waits = begun.iter().map(|info| async {
        let mut client = caller.client().await?.without_start();
        let path = path_of("recordings", &info.id);
        client.get::<RecordingInfo>(&path, &RecordingQuery { attach: true }).await
    });
    let mut waits = std::pin::pin!(future::join_all(waits));
    let mut interrupted = false;
    let ended = loop {
        tokio::select! {
            ended = &mut waits => break ended,
            signal = tokio::signal::ctrl_c(), if !interrupted => {
                signal.map_err(|error| Error::internal(format!("signals: {error}")))?;
                interrupted = true;
                let mut client = caller.client().await?.without_start();
                for info in &begun {
                    let _ = client.delete::<RecordingInfo>(&path_of("recordings", &info.id)).await;
                }
            }
        }
    };
    let mut failed = false;
    for info in ended {
        let info = info?;
        failed |= info.state == RecordState::Failed;
        print(caller, &info, false)?;
    }
    Ok(if failed {
        EXIT_ERROR
    } else if interrupted {
        EXIT_INTERRUPTED
    } else {
        0
    })
}

/// Prints a recording: its files, or its id.
fn print(caller: &Caller, info: &RecordingInfo, id: bool) -> std::result::Result<(), output::Failure> {
    if caller.json {
        return output::print_json(info);
    }
    if let Some(error) = &info.error {
        output::note(error);
    }
    if info.gaps > 0 {
        output::note(&format!("{}: output is missing in {} places", info.pane, info.gaps));
    }
    if id {
        return output::print(format!("{}\n", info.id));
    }
    output::print(info.files.iter().fold(String::new(), |text, file| text + file + "\n"))
}

async fn list(caller: &Caller) -> Outcome {
    let mut client = caller.client().await?;
    let list: RecordingList = client.get("/v1/recordings", &()).await?;
    if caller.json {
        output::print_json(&list)?;
        return Ok(0);
    }
    for info in &list.recordings {
        let state = serde_json::to_value(info.state).unwrap_or_default();
        let file = info.files.last().map(String::as_str).unwrap_or_default();
        let state = state.as_str().unwrap_or_default();
        output::print(format!("{}  {}  {state}  {} bytes  {file}\n", info.id, info.pane, info.bytes))?;
    }
    Ok(0)
}

async fn stop(caller: &Caller, ids: &[String]) -> Outcome {
    let mut client = caller.client().await?;
    for id in ids {
        let info: RecordingInfo = client.delete(&path_of("recordings", id)).await?;
        print(caller, &info, false)?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes("100000"), Ok(100_000));
        assert_eq!((bytes("500K"), bytes("20m"), bytes("1GiB")), (Ok(512_000), Ok(20 << 20), Ok(1 << 30)));
        assert!(bytes("").is_err() && bytes("x").is_err() && bytes("1T").is_err() && bytes("-1").is_err());
    }
}
