//! The log: lines on stderr, which in the background is the log file.
//!
//! A line that cannot be written, on a full disk or into a closed pipe, is lost and counted. It
//! blocks nothing else: `status` reports it, and so does the log itself when it can be written
//! again.

use std::{
    io::{self, Write},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::api::{Error, Result};

/// The number of lost lines, and the reason for the last one.
#[derive(Debug, Default)]
struct LostLines {
    lines: u64,
    why: String,
}

static LOST: Mutex<LostLines> = Mutex::new(LostLines { lines: 0, why: String::new() });

/// Sends the log to stderr.
pub(crate) fn to_stderr(level: &str) -> Result<()> {
    // The MCP library logs each message; only a filter that names it gets these lines.
    let level = if level.contains("rmcp") { level.to_owned() } else { format!("{level},rmcp=error") };
    let filter = tracing_subscriber::EnvFilter::try_new(&level)
        .map_err(|error| Error::invalid(format!("log_level: {level:?}: {error}")))?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| muxtap_base::plain::Records(Line))
        .with_ansi(false)
        // The subscriber's own report of a failed write goes to stderr too, and panics if that
        // fails.
        .log_internal_errors(false);
    // A second subscriber in one process (a test) does not fail the daemon.
    let _ = subscriber.try_init();
    Ok(())
}

/// Returns what is wrong with the log; `None` if its last line was written.
pub(crate) fn problem() -> Option<String> {
    let lost = lost();
    let lines = if lost.lines == 1 { "a line is".to_owned() } else { format!("{} lines are", lost.lines) };
    (lost.lines > 0).then(|| format!("the log cannot be written: {}; {lines} lost", lost.why))
}

/// A writer for one line of the log.
struct Line;

impl Write for Line {
    /// Writes the line, or counts it as lost. Never fails.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        write_line(&mut io::stderr().lock(), line, &mut lost());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_line(log: &mut impl Write, line: &[u8], lost: &mut LostLines) {
    let missed = match lost.lines {
        0 => String::new(),
        // A full disk may have taken half of the first one.
        lines => format!("\n({lines} lines of the log are lost here: {})\n", lost.why),
    };
    match log.write_all(&[missed.as_bytes(), line].concat()) {
        Ok(()) => *lost = LostLines::default(),
        Err(error) => {
            lost.lines += 1;
            lost.why = error.to_string();
        }
    }
}

fn lost() -> MutexGuard<'static, LostLines> {
    LOST.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log on a disk that is full for some lines.
    struct Disk {
        written: Vec<u8>,
        full_for: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.full_for > 0 {
                self.full_for -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.written.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lost_lines_are_counted_and_named_when_the_log_can_be_written_again() {
        let (mut disk, mut lost) = (Disk { written: Vec::new(), full_for: 2 }, LostLines::default());
        for line in ["one\n", "two\n"] {
            write_line(&mut disk, line.as_bytes(), &mut lost);
        }
        assert_eq!((lost.lines, lost.why.as_str()), (2, "no storage space"));
        for line in ["three\n", "four\n"] {
            write_line(&mut disk, line.as_bytes(), &mut lost);
        }
        assert_eq!(lost.lines, 0);
        let written = String::from_utf8(disk.written).unwrap();
        assert_eq!(written, "\n(2 lines of the log are lost here: no storage space)\nthree\nfour\n");
    }
}
