//! The capability's answers: data, or an error with a suggestion.

use muxtap_api::{Error, ErrorCode, Unreachable};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// An answer of the capability.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CapabilityAnswer {
    /// Whether it was done.
    pub success: bool,
    /// The thing that was done, or found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub data: Option<Value>,
    /// The error, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// A way out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

impl CapabilityAnswer {
    /// Answers with what was done.
    pub(super) fn done(data: Value) -> Self {
        Self { success: true, data: Some(data), error: None, suggestion: None }
    }

    /// Refuses, and says what to do.
    pub(super) fn refused(error: impl Into<String>, suggestion: impl Into<String>) -> Self {
        Self { success: false, data: None, error: Some(error.into()), suggestion: Some(suggestion.into()) }
    }

    /// Answers with an error of the engine's, in the capability's words where it has some.
    pub(super) fn of_error(error: &Error) -> Self {
        let reason = error.details.as_ref().and_then(|details| details.get("reason"));
        let reason: Option<Unreachable> = reason.and_then(|reason| serde_json::from_value(reason.clone()).ok());
        match reason {
            Some(Unreachable::ContainerStopped | Unreachable::NoContainer) => {
                return Self::refused("Sandbox container not running", "Start container: docker-compose up -d sandbox");
            }
            Some(Unreachable::NoTmux) => {
                return Self::refused("The sandbox has no tmux", "Install tmux 3.2a or later in the container");
            }
            _ => {}
        }
        let suggestion = match error.code {
            ErrorCode::NotFound | ErrorCode::InvalidTarget | ErrorCode::AmbiguousTarget => SEE_LIST,
            ErrorCode::ReadOnly => "Ask whoever runs muxtap to allow it",
            ErrorCode::InvalidArgument => "Correct the request",
            _ => "Check the sandbox with `muxtap doctor`, then try again",
        };
        Self::refused(error.message.clone(), suggestion)
    }
}

/// The suggestion where a pane or a window is not there.
pub(super) const SEE_LIST: &str = "Use action='list' to see available panes";
