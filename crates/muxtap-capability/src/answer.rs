//! The capability's responses: data, or an error with a suggestion.

use muxtap_api::{Error, ErrorCode, Unreachable};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A response of the capability.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CapabilityAnswer {
    /// Whether the action succeeded.
    pub success: bool,
    /// The result of the action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub data: Option<Value>,
    /// The error message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// A suggestion how to proceed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

impl CapabilityAnswer {
    /// Builds a response with the result.
    pub(super) fn done(data: Value) -> Self {
        Self { success: true, data: Some(data), error: None, suggestion: None }
    }

    /// Builds a response with an error and a suggestion.
    pub(super) fn refused(error: impl Into<String>, suggestion: impl Into<String>) -> Self {
        Self { success: false, data: None, error: Some(error.into()), suggestion: Some(suggestion.into()) }
    }

    /// Builds a response from an engine's error, in the capability's words if it has any.
    pub(super) fn of_error(error: &Error) -> Self {
        let reason = error.details.as_ref().and_then(|details| details.get("reason"));
        let reason: Option<Unreachable> = reason.and_then(|reason| serde_json::from_value(reason.clone()).ok());
        match reason {
            Some(Unreachable::ContainerStopped | Unreachable::NoContainer) => {
                return Self::refused("Sandbox container not running", "Start container: docker-compose up -d sandbox");
            }
            Some(Unreachable::NoTmux) => {
                return Self::refused("tmux not found in the sandbox", "Install tmux 3.2a or later in the container");
            }
            _ => {}
        }
        let suggestion = match error.code {
            ErrorCode::NotFound | ErrorCode::InvalidTarget | ErrorCode::AmbiguousTarget => SEE_LIST,
            ErrorCode::ReadOnly => "Ask the person who runs muxtap to allow it",
            ErrorCode::InvalidArgument => "Correct the request",
            _ => "Check the sandbox with `muxtap doctor`, then try again",
        };
        Self::refused(error.message.clone(), suggestion)
    }
}

/// The suggestion if a pane or a window does not exist.
pub(super) const SEE_LIST: &str = "Use action='list' to see available panes";
