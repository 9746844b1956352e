//! The tool `record`, of the set `record`.

use std::sync::LazyLock;

use muxtap_api::{Error, RecordFormat, RecordRequest, RecordingInfo, Result, Tier};
use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    CallContext,
    args::one_or_many,
    output::ToolOutput,
    quoted::push_row,
    tools::{Effect, tool},
};

/// Arguments of `record`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Default list
    #[serde(default)]
    pub action: RecordAction,
    /// start: a pane
    #[serde(alias = "pane")]
    pub target: Option<String>,
    /// stop: the recording
    pub id: Option<String>,
    /// start: from now (default), start (everything retained), 10m, or a cursor
    pub since: Option<String>,
    /// start: file name, without a directory (default: session and time)
    pub file: Option<String>,
    /// start: bytes of a file
    pub max_bytes: Option<u64>,
    /// start: time of a file
    pub max_ms: Option<u64>,
    /// start: regexes of secrets, replaced by * before anything is written
    #[serde(default, deserialize_with = "one_or_many")]
    pub redact: Vec<String>,
    /// start: also record what tools type
    #[serde(default)]
    pub input: bool,
    /// start: asciicast v2 (default), v3, or text
    #[serde(default)]
    pub format: RecordFormat,
    /// As in list
    pub server: Option<String>,
}

/// Actions of `record`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RecordAction {
    /// Begins a recording.
    Start,
    /// Ends a recording.
    Stop,
    /// Lists recordings.
    #[default]
    List,
}

/// Result of `record`.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecordOutput {
    /// The recordings.
    recordings: Vec<RecordingInfo>,
}

/// The tools of the set.
pub static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    vec![tool::<Record, RecordOutput>(
        "record",
        "Record a pane to asciicast files in the daemon's directory of recordings: start, stop, list.",
        Effect::Makes,
    )]
});

/// Calls the tool.
pub async fn record(call: &CallContext, args: Record) -> Result<ToolOutput> {
    let recordings = &call.rooms.recordings;
    let needs = |field: &str, given: Option<String>| {
        given.ok_or_else(|| Error::invalid(format!("{field}: missing; this action requires it")))
    };
    let recordings = match args.action {
        RecordAction::Start => {
            let pane = needs("target", args.target)?;
            let server = call.server(args.server.as_deref())?;
            call.confirm(Tier::Create, &format!("Record {pane}")).await?;
            let request = RecordRequest {
                pane,
                since: args.since,
                file: args.file,
                dir: None,
                max_bytes: args.max_bytes,
                max_ms: args.max_ms,
                redact: args.redact,
                input: args.input,
                format: args.format,
                attend: false,
            };
            vec![recordings.start(&server, &request).await?]
        }
        RecordAction::Stop => {
            call.engine.authorize(Tier::Create)?;
            vec![recordings.stop(&call.engine, &needs("id", args.id)?).await?]
        }
        RecordAction::List => {
            call.engine.authorize(Tier::Read)?;
            recordings.list()
        }
    };
    Ok(ToolOutput::new(text(&recordings), &RecordOutput { recordings }))
}

/// Formats one line for each recording.
pub(super) fn text(recordings: &[RecordingInfo]) -> String {
    let mut text = String::new();
    for info in recordings {
        let state = serde_json::to_value(info.state).unwrap_or_default();
        let state = state.as_str().unwrap_or_default().to_owned();
        let files = info.files.join(" ");
        push_row(&mut text, &format!("{} {} {state}, {} bytes: {files}", info.id, info.pane, info.bytes));
    }
    if recordings.is_empty() {
        text.push_str("no recordings");
    }
    text
}
