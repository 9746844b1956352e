//! Output on stdout and stderr: responses, tables, colors, errors.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal as _, Write as _},
    os::fd::{AsFd, OwnedFd},
};

use muxtap_base::plain;
use muxtap_core::width;
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    fs::FileType,
};
use serde::Serialize;
use tokio::io::{Interest, unix::AsyncFd};

use crate::{
    api::{Error, Gap, PaneInfo},
    protocol::ids::PaneId,
};

/// Why a command has no exit status of its own.
#[derive(Debug)]
pub(super) enum Failure {
    /// An error.
    Error(Error),
    /// The reader of stdout has exited.
    OutputClosed,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<io::Error> for Failure {
    /// Converts an error of a write to stdout.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::OutputClosed
        } else {
            Self::Error(Error::internal(format!("cannot write to stdout: {error}")))
        }
    }
}

/// Writes text on stdout without control characters.
pub(super) fn print(text: impl AsRef<str>) -> Result<(), Failure> {
    print_raw(plain::text(text.as_ref()).as_bytes())
}

/// Writes bytes on stdout unchanged: requested escape sequences, and muxtap's own colors.
pub(super) fn print_raw(bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes.as_ref())?;
    Ok(stdout.flush()?)
}

/// Writes a response as one line of JSON.
pub(super) fn print_json(answer: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(answer).map_err(|error| Error::internal(format!("response: {error}")))?;
    print_json_line(line.as_bytes())
}

/// Writes the daemon's JSON as one line with the same values.
pub(super) fn print_json_line(json: &[u8]) -> Result<(), Failure> {
    let json = String::from_utf8_lossy(json);
    let json = plain::json(&json);
    let mut stdout = io::stdout().lock();
    stdout.write_all(json.as_bytes())?;
    stdout.write_all(b"\n")?;
    Ok(stdout.flush()?)
}

/// Runs a command that prints until it is stopped, and stops it when the reader of stdout has exited:
/// otherwise `tail -f | head -1` would wait for a pane that prints nothing more.
pub(super) async fn while_read<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::select! {
        biased;
        done = work => done,
        () = reader_gone(io::stdout()) => Err(Failure::OutputClosed),
    }
}

/// Resolves when a pipe's or socket's last reader has gone. For a terminal a signal reports that, and
/// a file needs no reader.
async fn reader_gone(output: impl AsFd) {
    let gone = async {
        let output = output.as_fd();
        let kind = FileType::from_raw_mode(rustix::fs::fstat(output).ok()?.st_mode);
        if !matches!(kind, FileType::Fifo | FileType::Socket) {
            return None;
        }
        // Not for readability: a socket whose other end is only shut down for writing would stay ready.
        let wanted = Interest::WRITABLE | Interest::ERROR;
        // The safe constructor is deprecated because a type may lie about its descriptor; an `OwnedFd`
        // does not.
        #[allow(deprecated, reason = "the replacement is unsafe, and the reason for it does not apply to an OwnedFd")]
        let register = AsyncFd::<OwnedFd>::with_interest;
        let output = register(output.try_clone_to_owned().ok()?, wanted).ok()?;
        loop {
            let mut ready = output.ready(wanted).await.ok()?;
            // No interest: errors and hang-ups are always reported.
            let mut polled = [PollFd::new(output.get_ref(), PollFlags::empty())];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::event::poll(&mut polled, Some(&now)).ok()?;
            if polled.iter().any(|polled| polled.revents().intersects(PollFlags::ERR | PollFlags::HUP)) {
                return Some(());
            }
            ready.clear_ready();
        }
    };
    if gone.await.is_none() {
        std::future::pending::<()>().await;
    }
}

/// Writes a remark on stderr that is not an error.
pub(super) fn note(text: &str) {
    line_on_stderr(&format!("muxtap: {text}"));
}

/// Writes a line on stderr with control characters escaped.
pub(super) fn line_on_stderr(line: &str) {
    // The line is optional: ignores a closed stderr.
    let _ = writeln!(io::stderr(), "{}", plain::message(line));
}

/// Writes a remark that output is missing before the following output.
pub(super) fn note_gap(pane: PaneId, gap: Gap) {
    note(&format!("{pane}: {}", describe_gap(gap)));
}

/// Describes a gap in words.
pub(super) fn describe_gap(gap: Gap) -> String {
    let reason = gap.reason.as_str();
    gap.bytes
        .map_or_else(|| format!("output is missing ({reason})"), |bytes| format!("{bytes} bytes missing ({reason})"))
}

/// Writes an error on stderr: for people, or with `--json` the object alone.
pub(super) fn report(error: &Error, json: bool) {
    if json && let Ok(object) = serde_json::to_string(error) {
        let _ = writeln!(io::stderr(), "{}", plain::json(&object));
        return;
    }
    note(&error.message);
}

/// Returns a pane's place in words: `session:window.pane`.
pub(super) fn place(session: &str, window: u32, pane: u32) -> String {
    format!("{session}:{window}.{pane}")
}

/// Returns a pane's name for people: with the window's name if unique in the session, and with the
/// pane's index if the window has several panes. An ended pane may no longer have a place.
pub(super) fn name(pane: &PaneInfo, all: &[PaneInfo]) -> String {
    if pane.window_id.is_empty() {
        return pane.id.to_string();
    }
    let in_session = || all.iter().filter(|other| other.session_id == pane.session_id && !other.window_id.is_empty());
    let is_shared = in_session().any(|other| other.window == pane.window && other.window_id != pane.window_id);
    let is_odd = pane.window.is_empty() || pane.window.contains(['.', ':', '*']);
    let window = if is_shared || is_odd { pane.window_index.to_string() } else { pane.window.clone() };
    let alone = !in_session().any(|other| other.window_id == pane.window_id && other.id != pane.id);
    let session = &pane.session;
    if alone { format!("{session}:{window}") } else { format!("{session}:{window}.{}", pane.index) }
}

/// Describes in words how a pane's process ended.
pub(super) fn ended(status: Option<i32>, signal: Option<i32>) -> String {
    match (status, signal) {
        (_, Some(signal)) => format!("ended (signal {signal})"),
        (Some(status), None) => format!("ended (status {status})"),
        (None, None) => "ended".to_owned(),
    }
}

/// Returns a process's exit status in the shells' encoding. `None`: unknown.
pub(super) fn exit_code(status: Option<i32>, signal: Option<i32>) -> Option<u8> {
    let signaled = signal.map(|signal| 128 + signal);
    status.or(signaled).map(|status| u8::try_from(status).unwrap_or(u8::MAX))
}

/// When to use colors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ColorChoice {
    /// When stdout is a terminal and `NO_COLOR` is not set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl ColorChoice {
    /// Returns whether to use colors on stdout.
    pub(super) fn enabled(self) -> bool {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        match self {
            Self::Always => true,
            Self::Never => false,
            // https://no-color.org
            Self::Auto => {
                io::stdout().is_terminal() && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
            }
        }
    }
}

/// A table: columns under a header, each as wide as its widest cell.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(header: &[&str]) -> Self {
        Self { rows: vec![header.iter().map(|&cell| cell.to_owned()).collect()] }
    }

    pub(super) fn row(&mut self, cells: &[String]) {
        self.rows.push(cells.iter().map(|cell| plain::name(cell).into_owned()).collect());
    }

    pub(super) fn render(&self) -> String {
        let mut widths = Vec::new();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = width::of_text(cell).max(*width);
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (width, cell) in widths.iter().zip(row) {
                let blanks = width.saturating_sub(width::of_text(cell)) + 2;
                let _ = write!(line, "{cell}{:blanks$}", "");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Formats a duration in its largest unit, for tables.
pub(super) fn short_duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Returns a number of things in words: `1 pane`, `2 panes`.
pub(super) fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::GapReason;

    #[test]
    fn a_table_is_as_wide_as_its_cells_and_no_wider() {
        let mut table = Table::new(&["ID", "NAME", "TITLE"]);
        table.row(&["%0".into(), "a long name".into(), String::new()]);
        table.row(&["%10".into(), "b".into(), "t".into()]);
        assert_eq!(table.render(), "ID   NAME         TITLE\n%0   a long name\n%10  b            t\n");
    }

    #[test]
    fn names_that_are_wide_or_hostile_leave_the_columns_straight() {
        let mut table = Table::new(&["NAME", "ID"]);
        table.row(&["日本".into(), "%0".into()]);
        table.row(&["a\u{202e}\u{301}".into(), "%1".into()]);
        let expected = "NAME       ID\n日本       %0\na\\u{202e}\u{301}  %1\n";
        assert_eq!(table.render(), expected);
    }

    #[test]
    fn gaps_are_said_in_words() {
        assert_eq!(describe_gap(Gap::new(GapReason::Trimmed, Some(7))), "7 bytes missing (trimmed)");
        assert_eq!(describe_gap(Gap::new(GapReason::Paused, None)), "output is missing (paused)");
    }

    #[test]
    fn times_are_short() {
        assert_eq!([59, 60, 7_200, 864_000].map(short_duration), ["59s", "1m", "2h", "10d"]);
    }
}
