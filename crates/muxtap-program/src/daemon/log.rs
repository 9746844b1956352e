//! The log: lines on stderr, which in the background is the log file.
//!
//! A line that cannot be written, on a full disk or into a closed pipe, is lost and counted. It
//! blocks nothing else: `status` reports it, and so does the log itself when it can be written
//! again.

use std::{
    io::{self, Write},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use muxtap_base::{
    plain::{JsonRecords, Records},
    spans,
};
use tracing_subscriber::{
    EnvFilter, Layer as _,
    fmt::{
        format::Writer,
        time::{FormatTime as _, SystemTime},
    },
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::{
    api::{Error, Result},
    config::LogFormat,
};

/// The number of lost lines, and the reason for the last one.
#[derive(Debug, Default)]
struct LostLines {
    lines: u64,
    why: String,
    /// Whether the log ends within a line: a full disk took the begin of it.
    is_torn: bool,
}

static LOST: Mutex<LostLines> = Mutex::new(LostLines { lines: 0, why: String::new(), is_torn: false });

/// What sends the process's spans elsewhere; dropping it sends the last ones. Must be dropped outside
/// of a runtime.
pub(crate) struct Traces {
    #[cfg(feature = "otlp")]
    _exporter: Option<muxtap_otlp::Exporter>,
}

/// Sends the log to stderr, without spans, and spans to the collector with this URL.
pub(crate) fn to_stderr(level: &str, format: LogFormat, collector: Option<&str>) -> Result<Traces> {
    let (layers, traces) = layers(level, format, collector)?;
    // A second subscriber in one process (a test) does not fail the daemon.
    let _ = tracing_subscriber::registry().with(layers).try_init();
    Ok(traces)
}

/// A layer of the process's subscriber.
type BoxedLayer = Box<dyn tracing_subscriber::Layer<tracing_subscriber::Registry> + Send + Sync>;

/// Returns the layers for the log and, with a collector, for spans.
fn layers(level: &str, format: LogFormat, collector: Option<&str>) -> Result<(Vec<BoxedLayer>, Traces)> {
    // The MCP library logs each message; only a filter that names it gets these lines.
    let others = if level.contains("rmcp") { "" } else { ",rmcp=error" };
    // Spans have a target of their own, whatever the filter says of others.
    let filter = EnvFilter::try_new(format!("{level}{others},{}=off", spans::TARGET))
        .map_err(|error| Error::invalid(format!("log_level: {level:?}: {error}")))?;
    let log = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        // The subscriber's own report of a failed write goes to stderr too, and panics if that
        // fails.
        .log_internal_errors(false);
    let log = match format {
        LogFormat::Text => log.with_writer(|| Records(Line(LogFormat::Text))).boxed(),
        LogFormat::Json => log.json().flatten_event(true).with_writer(|| JsonRecords(Line(LogFormat::Json))).boxed(),
    };
    let (spans, traces) = exporter(collector)?;
    // Only layers that exist: one that is absent (`None`) enables whatever the log's filter does not.
    let layers = [Some(log.with_filter(filter).boxed()), spans].into_iter().flatten().collect();
    Ok((layers, traces))
}

/// Starts to send spans to the collector with this URL.
#[cfg(feature = "otlp")]
fn exporter(collector: Option<&str>) -> Result<(Option<BoxedLayer>, Traces)> {
    let Some(collector) = collector else { return Ok((None, Traces { _exporter: None })) };
    let started = muxtap_otlp::Endpoint::parse(collector).and_then(|endpoint| muxtap_otlp::start(&endpoint));
    let (layer, exporter) = started.map_err(|why| Error::invalid(format!("otlp: {why}")))?;
    Ok((Some(layer.boxed()), Traces { _exporter: Some(exporter) }))
}

/// Sends nothing: the setting cannot have a value in this program.
#[cfg(not(feature = "otlp"))]
#[expect(clippy::unnecessary_wraps, reason = "as in a program that sends spans")]
fn exporter(_: Option<&str>) -> Result<(Option<BoxedLayer>, Traces)> {
    Ok((None, Traces {}))
}

/// Returns whether this process's stderr is that file.
pub(crate) fn is_stderr(path: &Path) -> bool {
    let (Ok(own), Ok(file)) = (rustix::fs::fstat(io::stderr()), rustix::fs::stat(path)) else { return false };
    (own.st_dev, own.st_ino) == (file.st_dev, file.st_ino)
}

/// Returns what is wrong with the log; `None` if its last line was written.
pub(crate) fn problem() -> Option<String> {
    let lost = lost();
    let lines = if lost.lines == 1 { "a line is".to_owned() } else { format!("{} lines are", lost.lines) };
    (lost.lines > 0).then(|| format!("the log cannot be written: {}; {lines} lost", lost.why))
}

/// A writer for one line of the log.
struct Line(LogFormat);

impl Write for Line {
    /// Writes the line, or counts it as lost. Never fails.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        write_line(&mut io::stderr().lock(), line, &mut lost(), self.0);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_line(log: &mut impl Write, line: &[u8], lost: &mut LostLines, format: LogFormat) {
    let missed = if lost.lines == 0 { String::new() } else { missed(lost, format) };
    match write_counted(log, &[missed.as_bytes(), line].concat(), &mut lost.is_torn) {
        Ok(()) => *lost = LostLines::default(),
        Err(error) => {
            lost.lines += 1;
            lost.why = error.to_string();
        }
    }
}

/// Writes all bytes. `is_torn` becomes whether the last byte that was written is within a line.
fn write_counted(log: &mut impl Write, mut bytes: &[u8], is_torn: &mut bool) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = match log.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let (done, rest) = bytes.split_at(written.min(bytes.len()));
        *is_torn = done.last() != Some(&b'\n');
        bytes = rest;
    }
    Ok(())
}

/// Returns the record in place of the lost lines.
fn missed(lost: &LostLines, format: LogFormat) -> String {
    let begin = if lost.is_torn { "\n" } else { "" };
    let message = format!("{} lines of the log are lost here: {}", lost.lines, lost.why);
    match format {
        LogFormat::Text => format!("{begin}({message})\n"),
        LogFormat::Json => {
            let mut timestamp = String::new();
            // Without a time the record is still useful.
            let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
            let record = serde_json::json!({
                "timestamp": timestamp, "level": "WARN", "message": message, "target": module_path!(),
            });
            format!("{begin}{record}\n")
        }
    }
}

fn lost() -> MutexGuard<'static, LostLines> {
    LOST.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log on a disk that is full for some lines; it takes some bytes of the first one.
    struct Disk {
        written: Vec<u8>,
        full_for: usize,
        free: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.full_for > 0 {
                let free = std::mem::take(&mut self.free);
                if free > 0 {
                    self.written.extend_from_slice(&bytes[..free]);
                    return Ok(free);
                }
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

    /// Returns the log of four lines, of which two are lost.
    fn written(free: usize, format: LogFormat) -> String {
        let (mut disk, mut lost) = (Disk { written: Vec::new(), full_for: 2, free }, LostLines::default());
        for line in ["\"one\"\n", "\"two\"\n"] {
            write_line(&mut disk, line.as_bytes(), &mut lost, format);
        }
        assert_eq!((lost.lines, lost.why.as_str()), (2, "no storage space"));
        for line in ["\"three\"\n", "\"four\"\n"] {
            write_line(&mut disk, line.as_bytes(), &mut lost, format);
        }
        assert_eq!((lost.lines, lost.is_torn), (0, false));
        String::from_utf8(disk.written).unwrap()
    }

    #[test]
    fn lost_lines_are_counted_and_named_when_the_log_can_be_written_again() {
        let rest = "(2 lines of the log are lost here: no storage space)\n\"three\"\n\"four\"\n";
        assert_eq!(written(0, LogFormat::Text), rest);
        // A full disk has taken half of the first one.
        assert_eq!(written(3, LogFormat::Text), format!("\"on\n{rest}"));
    }

    /// Each span of a request would cost time for nothing.
    #[test]
    fn without_a_collector_no_span_is_enabled() {
        let (layers, _) = layers("info", LogFormat::Text, None).unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layers), || {
            assert!(tracing::info_span!(target: spans::TARGET, "request").is_disabled());
            assert!(tracing::enabled!(tracing::Level::INFO) && !tracing::enabled!(tracing::Level::DEBUG));
        });
    }

    #[test]
    fn in_json_lost_lines_are_named_by_a_record() {
        let written = written(0, LogFormat::Json);
        let records: Vec<serde_json::Value> =
            written.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
        assert_eq!(records.len(), 3);
        assert_eq!(records[0]["message"], "2 lines of the log are lost here: no storage space");
        assert!(records[0]["timestamp"].as_str().unwrap().ends_with('Z'), "{written}");
        assert_eq!((&records[0]["level"], &records[1]), (&"WARN".into(), &"three".into()));
    }
}
