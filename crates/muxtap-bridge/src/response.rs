//! Responses in the contract's form: its key order and error texts, and no other fields.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};
use muxtap_base::nonce;
use serde::Serialize;
use serde_json::value::RawValue;

use super::js::JsString;

const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// An error response: a status and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpError {
    /// The HTTP status.
    pub status: StatusCode,
    /// The message to the client.
    pub message: JsString,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    ok: bool,
    error: &'a RawValue,
}

impl HttpError {
    /// Builds an error with this status.
    pub fn new(status: StatusCode, message: impl AsRef<str>) -> Self {
        Self { status, message: JsString::from(message.as_ref()) }
    }

    /// Builds a 400: the request is invalid.
    pub fn bad_request(message: impl AsRef<str>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Builds a 400 whose message ends with a value of the request.
    pub fn bad_request_with(message: &str, value: &JsString) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message: JsString::from(message).with(value) }
    }

    /// Builds a 500: a defect. Only the log has details.
    pub fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Internal server error.")
    }

    /// Builds a 503: the bridge is stopping.
    pub fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "The bridge is stopping.")
    }

    /// Converts the error into an HTTP response.
    pub fn into_response(self) -> Response<Body> {
        json(self.status, &ErrorBody { ok: false, error: &self.message.to_json() })
    }
}

/// The result of an action.
#[derive(Debug)]
pub enum ActionOutput {
    /// The names of all sessions, sorted.
    Sessions(Vec<String>),
    /// The session of the action.
    Session {
        /// Its name.
        name: String,
        /// The session's screen as a JSON string, if the action returns it.
        output: Option<Arc<RawValue>>,
    },
}

/// The body of a successful response. Clients see its keys in this order.
#[derive(Debug, Default, Serialize)]
pub struct SuccessBody<'a> {
    ok: bool,
    action: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sessions: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a RawValue>,
}

impl ActionOutput {
    /// Builds the result for a session without its screen.
    pub fn session(name: &str) -> Self {
        Self::Session { name: name.to_owned(), output: None }
    }

    /// Builds the result for a session with its screen, as JSON.
    pub fn output(name: &str, json: impl Into<Arc<RawValue>>) -> Self {
        Self::Session { name: name.to_owned(), output: Some(json.into()) }
    }

    /// Returns the response's body.
    pub fn body(&self, action: &'static str) -> SuccessBody<'_> {
        let body = SuccessBody { ok: true, action, ..SuccessBody::default() };
        match self {
            Self::Sessions(names) => SuccessBody { sessions: Some(names), ..body },
            Self::Session { name, output } => SuccessBody { session: Some(name), output: output.as_deref(), ..body },
        }
    }
}

/// The body of `/health`. Clients see its keys in this order.
#[derive(Debug, Serialize)]
pub struct Health {
    /// Whether the bridge is serving.
    pub ok: bool,
    /// The mode.
    pub mode: &'static str,
    /// The backend's name, which is the same as the mode.
    pub backend: &'static str,
    /// The tmux that the bridge serves.
    #[serde(flatten)]
    pub tmux: Option<TmuxHealth>,
    /// The number of sessions.
    pub sessions: usize,
}

/// The tmux that a bridge serves.
#[derive(Debug, Serialize)]
pub struct TmuxHealth {
    /// The version, as `tmux -V` prints it.
    #[serde(rename = "tmuxVersion")]
    pub version: String,
    /// The server's socket.
    #[serde(rename = "socketPath")]
    pub socket: String,
}

/// Builds a JSON response.
pub fn json(status: StatusCode, body: &impl Serialize) -> Response<Body> {
    // Serializing structures of strings and numbers cannot fail.
    let mut response = Response::new(Body::from(serde_json::to_vec(body).unwrap_or_default()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

/// Builds the response for a caller without access. It reveals nothing, not even CORS headers.
pub fn forbidden() -> Response<Body> {
    let mut response = Response::new(Body::from("forbidden"));
    *response.status_mut() = StatusCode::FORBIDDEN;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// Generates a name for a session without one.
pub fn generate_name() -> String {
    format!("pi-{}", nonce::hex32())
}

/// Sorts names as JavaScript does: by UTF-16 units.
pub fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_by(|one, other| one.encode_utf16().cmp(other.encode_utf16()));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_in_the_contracts_order() {
        let json = |output: &ActionOutput| serde_json::to_string(&output.body("capture_pane")).unwrap();
        let sessions = ActionOutput::Sessions(vec!["b".to_owned(), "a\"".to_owned()]);
        assert_eq!(json(&sessions), r#"{"ok":true,"action":"capture_pane","sessions":["b","a\""]}"#);
        assert_eq!(json(&ActionOutput::Sessions(vec![])), r#"{"ok":true,"action":"capture_pane","sessions":[]}"#);
        assert_eq!(json(&ActionOutput::session("a")), r#"{"ok":true,"action":"capture_pane","session":"a"}"#);
        let shown = ActionOutput::output("a", JsString::from("x\n").to_json());
        assert_eq!(json(&shown), r#"{"ok":true,"action":"capture_pane","session":"a","output":"x\n"}"#);
    }

    #[test]
    fn names_are_sorted_by_units() {
        let names = ["b", "\u{ff5e}", "😀", "B", "a10", "a9"].map(str::to_owned).to_vec();
        assert_eq!(sorted(names), ["B", "a10", "a9", "b", "😀", "\u{ff5e}"]);
    }

    #[test]
    fn made_up_names_are_pi_and_eight_digits() {
        let name = generate_name();
        let digits = name.strip_prefix("pi-").unwrap();
        assert!(
            digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit))
        );
    }
}
