//! The only error type that crosses from the engine to an interface.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `Result` with the engine's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Declares the codes, each with its word on the wire and its HTTP status.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $status:literal;)*) => {
        /// The kind of an error, as a word that programs can act on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[$doc])* $name,)*
        }

        impl ErrorCode {
            /// All error codes.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$name),*];

            /// Returns the code as written on the wire.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }

            /// Returns the status of an HTTP response with this code.
            pub const fn http_status(self) -> u16 {
                match self {
                    $(Self::$name => $status,)*
                }
            }
        }
    };
}

// 424: muxtap works, but something that it depends on (a command in a pane, or tmux) does not. Not
// 408: browsers and some libraries silently repeat a request after that status, and a `run` would
// type its command again. Not one of 5xx: these say that muxtap itself has failed.
codes! {
    /// The pane, window, session or wait does not exist.
    NotFound = "NOT_FOUND", 404;
    /// The target matches more than one thing.
    AmbiguousTarget = "AMBIGUOUS_TARGET", 409;
    /// The target is not a valid target.
    InvalidTarget = "INVALID_TARGET", 400;
    /// A field or flag is invalid.
    InvalidArgument = "INVALID_ARGUMENT", 400;
    /// The caller is not authorized for this request.
    Unauthorized = "UNAUTHORIZED", 401;
    /// muxtap cannot produce the requested capture exactly.
    UnsupportedCaptureMode = "UNSUPPORTED_CAPTURE_MODE", 422;
    /// The timeout expired.
    Timeout = "TIMEOUT", 424;
    /// A limit was reached; the message names it.
    ResourceLimit = "RESOURCE_LIMIT", 429;
    /// muxtap runs read-only.
    ReadOnly = "READ_ONLY", 403;
    /// The current state does not allow this operation.
    Conflict = "CONFLICT", 409;
    /// tmux is missing or too old, or no server runs.
    TmuxUnavailable = "TMUX_UNAVAILABLE", 424;
    /// tmux sent a reply that contradicts the known state.
    InconsistentState = "INCONSISTENT_STATE", 424;
    /// The device that owns the workspace is not connected.
    DeviceOffline = "DEVICE_OFFLINE", 424;
    /// A device did not accept a request in time.
    RpcTimeout = "RPC_TIMEOUT", 424;
    /// A device accepted a request and did not finish it in time.
    OwnerTimeout = "OWNER_TIMEOUT", 424;
    /// The workspace has another revision than the one that the caller saw.
    RevisionConflict = "REVISION_CONFLICT", 409;
    /// The device lacks a feature that the relay needs.
    UnsupportedClient = "UNSUPPORTED_CLIENT", 400;
    /// A defect of muxtap.
    InternalError = "INTERNAL_ERROR", 500;
}

/// An error as every interface reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct Error {
    /// The kind of error, for programs.
    pub code: ErrorCode,
    /// The message for people: what went wrong, where, and what to do.
    pub message: String,
    /// Facts for programs: the candidates of an ambiguous target, the limit, the output so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub details: Option<serde_json::Value>,
    /// The step that a request with several steps had reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
}

impl Error {
    /// Makes an error with a code and a message.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None, stage: None }
    }
    /// Adds facts for programs.
    pub fn with_details(mut self, details: serde_json::Value) -> Self {
        self.details = Some(details);
        self
    }
    /// Adds the step at which the error occurred.
    pub fn at_stage(mut self, stage: impl Into<String>) -> Self {
        self.stage = Some(stage.into());
        self
    }
    /// Makes an [`ErrorCode::NotFound`] error.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::NotFound, message)
    }
    /// Makes an [`ErrorCode::InvalidArgument`] error.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidArgument, message)
    }
    /// Makes an [`ErrorCode::AmbiguousTarget`] error for a target of digits alone. `candidates`
    /// lists the existing things that the number may mean, where they are known.
    pub fn bare_number(number: &str, candidates: &[String]) -> Self {
        let meanings = match candidates {
            [] => format!(
                "%{number} for the pane with that id, {number}: for the session with that name, work:{number} for a \
                 window"
            ),
            [only] => only.clone(),
            several => format!("one of {}", several.join(", ")),
        };
        let message = format!(
            "{number} alone is ambiguous: it can mean a pane, a window or a session, depending on what is current in \
             tmux; write {meanings}"
        );
        let error = Self::new(ErrorCode::AmbiguousTarget, message);
        if candidates.is_empty() {
            return error;
        }
        error.with_details(serde_json::json!({ "candidates": candidates }))
    }
    /// Makes an [`ErrorCode::TmuxUnavailable`] error.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::TmuxUnavailable, message)
    }
    /// Makes an [`ErrorCode::InternalError`] error.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InternalError, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_word_wherever_it_is_written() {
        for code in ErrorCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
            let name = format!("{code:?}");
            let word: String = name
                .char_indices()
                .flat_map(|(at, c)| (at > 0 && c.is_uppercase()).then_some('_').into_iter().chain([c]))
                .collect();
            assert_eq!(word.to_uppercase(), code.as_str());
        }
    }
}
