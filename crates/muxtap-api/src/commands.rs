//! Commands that ran in panes: the list and its entries.

use std::str::FromStr;

use muxtap_core::protocol::ids::PaneId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Cursor, Error, Fields, Result};

/// `GET /v1/panes/{pane}/commands`: lists the commands that ran in a pane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
pub struct CommandsRequest {
    /// At most this many, the latest ones (default: all that are kept).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
    /// Only commands that ended with a signal or a status other than 0.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// Only commands whose line matches this regex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grep: Option<String>,
    /// Only commands that ended after at least this many milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_ms: Option<u64>,
}

impl Fields for CommandsRequest {}

/// Names a command of a pane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandChoice {
    /// The command with this number.
    Number(u64),
    /// The command at this place from the end of the list: 1 is the last one.
    FromEnd(u64),
    /// The last command that ended with a signal or a status other than 0.
    LastFailed,
}

impl FromStr for CommandChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = |digits: &str| digits.parse().ok().filter(|number| *number > 0);
        let choice = match text.strip_prefix('-') {
            _ if text == "last-failed" => Some(Self::LastFailed),
            Some(digits) => number(digits).map(Self::FromEnd),
            None => number(text).map(Self::Number),
        };
        choice.ok_or_else(|| {
            let shown: String = text.chars().take(80).collect();
            Error::invalid(format!(
                "command: `{shown}`; expected a number of `muxtap commands`, -1 (the last one) or last-failed"
            ))
        })
    }
}

/// A command that ran, or runs, in a pane, as its shell's marks report it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CommandInfo {
    /// The number in its pane, from 1.
    pub number: u64,
    /// The number of the command in which it runs: a shell, ssh, a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u64>,
    /// The command line, if known; several lines are separated by `\n`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// The source of the line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_source: Option<CommandLineSource>,
    /// Whether the end of the line is missing, because the line was too long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub line_cut: bool,
    /// The directory that was last reported before the command began. Always a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// When it began, in milliseconds since 1970.
    pub started_ms: u64,
    /// How long it ran, in milliseconds; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The exit status, if one was reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// The signal that ended it, if one was reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// How its end became known; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<CommandEnd>,
    /// Whether its marks carried a nonce of muxtap's. Otherwise any program may have printed them.
    pub trusted: bool,
    /// The cursor at which its output begins.
    pub output_start: Cursor,
    /// The cursor at which its output ends; while it runs, the end of the output so far.
    pub output_end: Cursor,
    /// The number of raw bytes between the two cursors.
    pub bytes: u64,
    /// Whether all of them can still be read: no output is known to be missing, and the pane still
    /// has the beginning.
    pub whole: bool,
}

impl CommandInfo {
    /// Returns the command's line as one line: `⏎` stands for a line end, `…` for an end that is
    /// missing. Empty if the line is unknown.
    pub fn one_line(&self) -> String {
        let line = self.line.as_deref().unwrap_or_default().lines().collect::<Vec<_>>().join(" ⏎ ");
        if self.line_cut { line + " …" } else { line }
    }

    /// Describes how the command ended, in one line, with its line: `status 0 after 1.5 s: make`.
    pub fn summary(&self) -> String {
        let end = match (&self.signal, self.status, &self.end) {
            (Some(signal), ..) => format!("signal {signal}"),
            (None, Some(status), _) => format!("status {status}"),
            (None, None, Some(_)) => "status unknown".to_owned(),
            (None, None, None) => "running".to_owned(),
        };
        let after =
            self.duration_ms.map(|ms| format!(" after {}.{} s", ms / 1000, ms % 1000 / 100)).unwrap_or_default();
        let line = Some(self.one_line()).filter(|line| !line.is_empty());
        format!("{end}{after}{}", line.map(|line| format!(": {line}")).unwrap_or_default())
    }

    /// Returns whether the command ended after at least this many milliseconds.
    pub fn took(&self, over_ms: u64) -> bool {
        self.duration_ms.is_some_and(|took| took >= over_ms)
    }

    /// Returns whether the command ended with a signal or a status other than 0.
    pub fn has_failed(&self) -> bool {
        self.end.is_some() && (self.signal.is_some() || self.status.is_some_and(|status| status != 0))
    }
}

/// The source of a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CommandLineSource {
    /// The shell reported the line.
    Shell,
    /// The line was read from the screen. Always a claim.
    Screen,
}

/// How a command's end became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CommandEnd {
    /// Its shell reported the end.
    Reported,
    /// Its shell began something else without reporting the end. The status is unknown.
    Unreported,
    /// Its shell is gone: a shell outside of it continued. The status is unknown.
    ShellGone,
    /// The pane's process ended.
    ProcessEnded,
}

/// The marks that the shells of a pane have printed since muxtap began to follow the pane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SeenMarks {
    /// None. `muxtap shell-integration` switches them on.
    #[default]
    None,
    /// Marks that any program may have printed.
    Claimed,
    /// Marks that carried a nonce of muxtap's.
    Trusted,
}

/// The response to `GET /v1/panes/{pane}/commands`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CommandsAnswer {
    /// The pane.
    pub pane: PaneId,
    /// The marks that its shells have printed since muxtap began to follow the pane.
    pub marks: SeenMarks,
    /// The commands, the earliest first.
    pub commands: Vec<CommandInfo>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_named_by_its_number_from_the_end_or_by_its_failure() {
        let choice = |text: &str| text.parse::<CommandChoice>().ok();
        assert_eq!(choice("7"), Some(CommandChoice::Number(7)));
        assert_eq!(choice("-1"), Some(CommandChoice::FromEnd(1)));
        assert_eq!(choice("last-failed"), Some(CommandChoice::LastFailed));
        for wrong in ["", "0", "-0", "-", "--1", "1.5", "last", "-last-failed"] {
            assert_eq!(choice(wrong), None, "{wrong}");
        }
    }
}
