//! The audit log of remote control: one line for each request from one device to another, whatever
//! the result.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use muxtap_api::ErrorCode;
use muxtap_engine::audit::{LineLog, Refusals, timestamp};
use serde::Serialize;

/// The size at which the file is rotated.
pub const AUDIT_BYTES: u64 = 16 << 20;

/// A request, as the log records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The request's id.
    pub request_id: String,
    /// The device that sent the request.
    pub caller: String,
    /// The device that the request is for.
    pub target: String,
    /// The command.
    pub command: String,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The owner carried the request out.
    Done,
    /// The request was refused or failed, at this stage.
    Failed(ErrorCode, &'static str),
    /// The caller left before the response was known.
    Abandoned,
    /// The owner's result came after the caller had its response, and was dropped.
    Late,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    request_id: &'a str,
    caller_device_id: &'a str,
    target_device_id: &'a str,
    command: &'a str,
    result: &'static str,
    error_code: Option<&'static str>,
    stage: Option<&'static str>,
    timestamp: String,
    /// The number of refused requests before this one that have no line.
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted: Option<u64>,
}

/// The audit log; the first line opens its file.
#[derive(Clone, Debug, Default)]
pub struct Audit(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Returns a file that takes precedence over `file`; called when the log is opened.
    place: Option<fn() -> Option<PathBuf>>,
    file: Option<PathBuf>,
    log: OnceLock<Option<LineLog>>,
    refusals: Refusals,
}

impl Audit {
    /// Creates a log in the file that `place` returns when the first line is written, or else in
    /// `file`.
    pub fn new(place: Option<fn() -> Option<PathBuf>>, file: Option<PathBuf>) -> Self {
        Self(Arc::new(Shared { place, file, ..Shared::default() }))
    }

    /// Writes a line.
    pub fn write(&self, asked: &Asked, ending: Ending) {
        let log = self.0.log.get_or_init(|| {
            let file = self.0.place.and_then(|place| place()).or_else(|| self.0.file.clone())?;
            let opened = LineLog::open(&file, AUDIT_BYTES);
            opened.inspect_err(|error| tracing::error!("{error}; remote control is not recorded")).ok()
        });
        let Some(log) = log else { return };
        // Callers without permission must not push out the lines of callers with permission.
        let is_refused = matches!(ending, Ending::Failed(code, _) if Refusals::is_refusal(code.as_str()));
        let Some(omitted) = (if is_refused { self.0.refusals.record() } else { Some(0) }) else { return };
        let (result, error_code, stage) = match ending {
            Ending::Done => ("ok", None, None),
            Ending::Failed(code, stage) => ("error", Some(code.as_str()), Some(stage)),
            Ending::Abandoned => ("abandoned", None, Some("relay")),
            Ending::Late => ("late", None, Some("owner")),
        };
        log.write(&Line {
            request_id: &asked.request_id,
            caller_device_id: &asked.caller,
            target_device_id: &asked.target,
            command: &asked.command,
            result,
            error_code,
            stage,
            timestamp: timestamp(),
            omitted: Some(omitted).filter(|omitted| *omitted > 0),
        });
    }
}
