//! The marks that shells and programs print, as values: where a command began and ended, its
//! directory, progress, notifications.
//!
//! A pane's decoder reports each OSC as a [`Mark`]; [`parse`] gives its meaning. [`CommandLog`]
//! makes commands of them. `docs/commands.md` has the sequences, the invariants (K1 to K6) and the
//! table of failures. Every text in a value is bounded and has no control characters: any program
//! may print a mark.

mod changes;
mod command;
mod context;
mod decode;
mod log;
mod notification;
mod shell;

use serde::{Deserialize, Serialize};

use crate::stream::text::Mark;

pub use changes::Change;
pub use command::{COMMAND_TEXT_BYTES, COMMANDS, Command, End, Output};
pub use context::{ContextEnd, ContextKind, ContextStart};
pub use log::{CommandLog, LEVELS, Moment, OpenLine, Seen};
pub use notification::{Notification, NotificationPart, NotificationPiece};
pub use shell::{Family, ShellMark, Step};

/// The bytes that are kept of a command line.
pub const LINE_BYTES: usize = 4 * 1024;
/// The bytes that are kept of a directory; a longer one is not reported.
pub const DIRECTORY_BYTES: usize = 4 * 1024;
/// The bytes that are kept of a notification's title, and of its text.
pub const NOTIFICATION_BYTES: usize = 4 * 1024;
/// The environment variable in which a shell that muxtap starts receives its nonce, with which it
/// prints trusted marks (`muxtap=NONCE` in each OSC 133).
pub const NONCE_VARIABLE: &str = "MUXTAP_SHELL_NONCE";
/// The bytes of an id, nonce or signal name; a longer one is ignored.
const NAME_BYTES: usize = 128;

/// The meaning of one mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign<'a> {
    /// OSC 133 or 633: a step of a shell.
    Shell(ShellMark<'a>),
    /// OSC 3008 `start=`: a context begins, or its shell is at the prompt again.
    ContextStart(ContextStart),
    /// OSC 3008 `end=`: a context ended.
    ContextEnd(ContextEnd),
    /// OSC 7, 9;9, 633 `P;Cwd=`, 1337 `CurrentDir=`: the current directory.
    Directory(Directory),
    /// OSC 9;4: progress.
    Progress(Progress),
    /// OSC 9, 99, 777: a notification, or a part of one.
    Notification(NotificationPart),
}

impl Sign<'_> {
    /// Returns the name of the sign's kind, for counting.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Shell(mark) => mark.family.as_str(),
            Self::ContextStart(_) | Self::ContextEnd(_) => "osc-3008",
            Self::Directory(_) => "directory",
            Self::Progress(_) => "progress",
            Self::Notification(_) => "notification",
        }
    }

    /// All names that [`Sign::kind`] returns.
    pub const KINDS: [&'static str; 6] = ["osc-133", "osc-633", "osc-3008", "directory", "progress", "notification"];
}

/// A command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The text; several lines are separated by `\n`.
    pub text: String,
    /// The source of the text.
    pub source: LineSource,
    /// Whether the end is missing because the line was too long.
    pub is_cut: bool,
}

/// The source of a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LineSource {
    /// The shell reported the line.
    Shell,
    /// The line was read from the screen, between the end of the prompt and the Enter key. Always a
    /// claim: any program, a background job for example, can print there.
    Screen,
}

impl Line {
    /// Makes a line of what a shell reported.
    fn reported(text: &[u8], is_cut: bool) -> Option<Self> {
        Self::of(text, LineSource::Shell, is_cut)
    }

    /// Makes a line; `None` if nothing visible is in it.
    pub fn of(text: &[u8], source: LineSource, is_cut: bool) -> Option<Self> {
        let is_cut = is_cut || text.len() > LINE_BYTES;
        let line = decode::clean(text, LINE_BYTES, true);
        let line = line.trim_end();
        (!line.trim_start().is_empty()).then(|| Self { text: line.to_owned(), source, is_cut })
    }
}

/// A directory, as a program reported it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    /// The path.
    pub path: String,
    /// The host, if the program named one.
    pub host: Option<String>,
}

impl Directory {
    /// Makes a directory of a path. `None` for an empty or long path and for one that a terminal
    /// cannot show: with characters left out it would name another directory.
    fn of(path: &[u8], host: &[u8]) -> Option<Self> {
        if path.is_empty() || path.len() > DIRECTORY_BYTES {
            return None;
        }
        let path = String::from_utf8_lossy(path).into_owned();
        (!path.contains(decode::is_hidden))
            .then(|| Self { path, host: decode::name(host, NAME_BYTES).map(str::to_owned) })
    }

    /// Parses `file://HOST/PATH`, percent-encoded (OSC 7).
    fn from_url(url: &[u8]) -> Option<Self> {
        let rest = url.strip_prefix(b"file://")?;
        let (host, path) = rest.split_at_checked(memchr::memchr(b'/', rest)?)?;
        Self::of(&decode::percent(path), host)
    }
}

/// The progress of a program (OSC 9;4, from `ConEmu`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The state.
    pub state: ProgressState,
    /// The percentage, from 0 to 100, if the program named one.
    pub percent: Option<u8>,
}

/// The state of a program's progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProgressState {
    /// No progress is shown any more.
    Ended,
    /// The program makes progress.
    Running,
    /// The program failed.
    Failed,
    /// The program runs, and its progress is unknown.
    Unknown,
    /// The program is paused, or warns.
    Paused,
}

impl Progress {
    /// Parses `STATE;PERCENT`.
    fn parse(text: &[u8]) -> Option<Self> {
        let (state, percent) = decode::split(text, b';');
        let state = match state {
            b"0" => ProgressState::Ended,
            b"1" => ProgressState::Running,
            b"2" => ProgressState::Failed,
            b"3" => ProgressState::Unknown,
            b"4" => ProgressState::Paused,
            _ => return None,
        };
        let percent = percent.and_then(decode::number::<u32>).map(|percent| percent.min(100) as u8);
        let is_known = !matches!(state, ProgressState::Ended | ProgressState::Unknown);
        Some(Self { state, percent: percent.filter(|_| is_known) })
    }
}

/// Returns the meaning of a mark; `None` for a bell, a title, and any OSC without a meaning here.
///
/// The beginning of a long OSC ([`Mark::Long`]) still has the meaning of a shell's step or of a
/// context, without the option at which it breaks off.
pub fn parse(mark: Mark<'_>) -> Option<Sign<'_>> {
    match mark {
        Mark::Bell | Mark::Title(_) => None,
        Mark::Prompt(payload) => shell::parse_133(payload, false).map(Sign::Shell),
        Mark::Osc(payload) => {
            let (number, rest) = decode::split(payload, b';');
            parse_osc(number, rest?)
        }
        Mark::Long(payload) => {
            let (number, rest) = decode::split(payload, b';');
            match number {
                b"133" => shell::parse_133(rest?, true).map(Sign::Shell),
                b"633" => shell::parse_633(rest?, true),
                b"3008" => context::parse(rest?, true),
                _ => None,
            }
        }
    }
}

fn parse_osc<'a>(number: &[u8], rest: &'a [u8]) -> Option<Sign<'a>> {
    match number {
        b"7" => Directory::from_url(rest).map(Sign::Directory),
        b"9" => parse_9(rest),
        b"99" => NotificationPart::parse_99(rest).map(Sign::Notification),
        b"633" => shell::parse_633(rest, false),
        b"777" => NotificationPart::parse_777(rest).map(Sign::Notification),
        b"1337" => Directory::of(rest.strip_prefix(b"CurrentDir=")?, b"").map(Sign::Directory),
        b"3008" => context::parse(rest, false),
        _ => None,
    }
}

/// Parses an OSC 9: a command of `ConEmu` (a number and `;`), or a notification of iTerm2's.
fn parse_9(rest: &[u8]) -> Option<Sign<'static>> {
    let (first, arguments) = decode::split(rest, b';');
    match (first, arguments) {
        (b"4", Some(progress)) => Progress::parse(progress).map(Sign::Progress),
        (b"9", Some(path)) => {
            let path = path.strip_prefix(b"\"").and_then(|path| path.strip_suffix(b"\"")).unwrap_or(path);
            Directory::of(path, b"").map(Sign::Directory)
        }
        // ConEmu's other commands: sleep, message box, title of a tab …
        (number, Some(_)) if decode::number::<u8>(number).is_some_and(|number| (1..=12).contains(&number)) => None,
        _ => NotificationPart::whole(b"", rest).map(Sign::Notification),
    }
}

#[cfg(test)]
mod tests;
