//! The audit log of remote control: one line for each request from one device to another, whatever came of it.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use muxtap_api::ErrorCode;
use muxtap_engine::audit::{LineLog, Refusals, timestamp};
use serde::Serialize;

/// Size at which the file is rotated.
pub const AUDIT_BYTES: u64 = 16 << 20;

/// A request, as a line of the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The request's id.
    pub request_id: String,
    /// The device that asks.
    pub caller: String,
    /// The device that is asked.
    pub target: String,
    /// The command.
    pub command: String,
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The owner did it.
    Done,
    /// Refused or failed, at this stage.
    Failed(ErrorCode, &'static str),
    /// The caller left before the answer was known.
    Abandoned,
    /// The owner's result came when the caller was answered already, and was dropped.
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
    /// How many refused requests before this one have no line.
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted: Option<u64>,
}

/// The log; it is opened with its first line.
#[derive(Clone, Debug, Default)]
pub struct Audit(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Where it is: asked for when it is opened.
    place: Option<fn() -> Option<PathBuf>>,
    file: Option<PathBuf>,
    log: OnceLock<Option<LineLog>>,
    refusals: Refusals,
}

impl Audit {
    /// Uses the file that this returns when the first line is written, and otherwise `file`.
    pub fn new(place: Option<fn() -> Option<PathBuf>>, file: Option<PathBuf>) -> Self {
        Self(Arc::new(Shared { place, file, ..Shared::default() }))
    }

    /// Adds a line.
    pub fn write(&self, asked: &Asked, ending: Ending) {
        let log = self.0.log.get_or_init(|| {
            let file = self.0.place.and_then(|place| place()).or_else(|| self.0.file.clone())?;
            let opened = LineLog::open(&file, AUDIT_BYTES);
            opened.inspect_err(|error| tracing::error!("{error}; remote control is not recorded")).ok()
        });
        let Some(log) = log else { return };
        // Who may ask nothing must not push out the lines of who may.
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
