//! The one error type that crosses from the engine to a face.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `Result` with the engine's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error, as a word that programs can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum ErrorCode {
    /// There is no such pane, window, session or wait.
    NotFound,
    /// The target fits more than one thing.
    AmbiguousTarget,
    /// The target cannot be read as a target.
    InvalidTarget,
    /// A field or flag is wrong.
    InvalidArgument,
    /// The caller may not ask this.
    Unauthorized,
    /// The capture that was asked for cannot be answered exactly.
    UnsupportedCaptureMode,
    /// The time ran out.
    Timeout,
    /// A limit was reached; the message names it.
    ResourceLimit,
    /// muxtap runs read-only.
    ReadOnly,
    /// The thing is in a state in which this cannot be done.
    Conflict,
    /// There is no tmux, it is too old, or no server runs.
    TmuxUnavailable,
    /// tmux answered something that does not fit what is known.
    InconsistentState,
    /// A defect of muxtap.
    InternalError,
}

impl ErrorCode {
    /// Every code there is.
    pub const ALL: [Self; 13] = [
        Self::NotFound,
        Self::AmbiguousTarget,
        Self::InvalidTarget,
        Self::InvalidArgument,
        Self::Unauthorized,
        Self::UnsupportedCaptureMode,
        Self::Timeout,
        Self::ResourceLimit,
        Self::ReadOnly,
        Self::Conflict,
        Self::TmuxUnavailable,
        Self::InconsistentState,
        Self::InternalError,
    ];

    /// The code as it stands on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "NOT_FOUND",
            Self::AmbiguousTarget => "AMBIGUOUS_TARGET",
            Self::InvalidTarget => "INVALID_TARGET",
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::Unauthorized => "UNAUTHORIZED",
            Self::UnsupportedCaptureMode => "UNSUPPORTED_CAPTURE_MODE",
            Self::Timeout => "TIMEOUT",
            Self::ResourceLimit => "RESOURCE_LIMIT",
            Self::ReadOnly => "READ_ONLY",
            Self::Conflict => "CONFLICT",
            Self::TmuxUnavailable => "TMUX_UNAVAILABLE",
            Self::InconsistentState => "INCONSISTENT_STATE",
            Self::InternalError => "INTERNAL_ERROR",
        }
    }

    /// The status of an HTTP response with this code.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::InvalidTarget | Self::InvalidArgument => 400,
            Self::Unauthorized => 401,
            Self::ReadOnly => 403,
            Self::NotFound => 404,
            Self::AmbiguousTarget | Self::Conflict => 409,
            Self::UnsupportedCaptureMode => 422,
            // muxtap is well; what it depends on, a command in a pane or tmux, is not. Not 408:
            // browsers and some libraries silently repeat a request that is answered so, and a
            // `run` would type its command again. Nor one of 5xx, which says that muxtap has
            // failed.
            Self::Timeout | Self::TmuxUnavailable | Self::InconsistentState => 424,
            Self::ResourceLimit => 429,
            Self::InternalError => 500,
        }
    }
}

/// An error as every face reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct Error {
    /// The kind of error, for programs.
    pub code: ErrorCode,
    /// The message for people: what went wrong, where, and what to do.
    pub message: String,
    /// Facts that a program may want: the candidates of an ambiguous target, the limit, the output
    /// so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub details: Option<serde_json::Value>,
    /// How far a request with several steps had come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
}

impl Error {
    /// An error with a code and a message.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None, stage: None }
    }
    /// Adds facts for programs.
    pub fn with_details(mut self, details: serde_json::Value) -> Self {
        self.details = Some(details);
        self
    }
    /// Adds the step at which it happened.
    pub fn at_stage(mut self, stage: impl Into<String>) -> Self {
        self.stage = Some(stage.into());
        self
    }
    /// [`ErrorCode::NotFound`].
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::NotFound, message)
    }
    /// [`ErrorCode::InvalidArgument`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }
    /// [`ErrorCode::AmbiguousTarget`] for a target of digits alone. `candidates`: what is there
    /// that it may mean, as far as that is known.
    pub fn bare_number(number: &str, candidates: &[String]) -> Self {
        let meanings = match candidates {
            [] => format!(
                "%{number} for the pane of that id, {number}: for the session of that name, work:{number} for a window"
            ),
            [only] => only.clone(),
            several => format!("one of {}", several.join(", ")),
        };
        let message = format!(
            "{number} alone may mean a pane, a window or a session, which tmux tells apart by what is current; write \
             {meanings}"
        );
        let error = Self::new(ErrorCode::AmbiguousTarget, message);
        if candidates.is_empty() {
            return error;
        }
        error.with_details(serde_json::json!({ "candidates": candidates }))
    }
    /// [`ErrorCode::TmuxUnavailable`].
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::TmuxUnavailable, message)
    }
    /// [`ErrorCode::InternalError`].
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InternalError, message)
    }
}
