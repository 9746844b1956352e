//! Requests: every field is validated for every action, in the contract's order. The first error is
//! the response.

use std::{path::PathBuf, sync::Arc, time::Duration};

use super::{
    js::{self, JsString},
    json::{Object, ParseError, Value},
    pattern::{Pattern, PatternCache},
    response::HttpError,
};

/// The largest body, in bytes.
pub const BODY_BYTES: usize = 262_144;
/// The longest `text`, in UTF-16 units.
const TEXT_UNITS: usize = 8000;
/// The longest `wait_for`, in UTF-16 units.
const PATTERN_UNITS: usize = 256;
/// The longest session name, in characters.
const NAME_LENGTH: usize = 64;
/// The longest key token, in characters.
const KEY_LENGTH: usize = 48;
/// The fewest and most lines of history in a capture.
const LINES: (u32, u32) = (1, 5000);
const LINES_DEFAULT: u32 = 200;
/// The shortest and longest wait, in milliseconds.
const TIMEOUT: (u32, u32) = (100, 120_000);
const TIMEOUT_DEFAULT: u32 = 5000;

/// An action of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Lists the sessions.
    ListSessions,
    /// Creates a session.
    CreateSession,
    /// Types into a session.
    SendKeys,
    /// Captures a session's screen.
    CapturePane,
    /// Types, then captures, immediately or when a pattern matches.
    SendAndCapture,
    /// Kills a session.
    KillSession,
}

impl Action {
    const ALL: [Self; 6] = [
        Self::ListSessions,
        Self::CreateSession,
        Self::SendKeys,
        Self::CapturePane,
        Self::SendAndCapture,
        Self::KillSession,
    ];

    /// Returns the name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ListSessions => "list_sessions",
            Self::CreateSession => "create_session",
            Self::SendKeys => "send_keys",
            Self::CapturePane => "capture_pane",
            Self::SendAndCapture => "send_and_capture",
            Self::KillSession => "kill_session",
        }
    }
}

/// A valid request.
#[derive(Debug)]
pub struct Request {
    /// The action.
    pub action: Action,
    /// The session; not empty for every action that needs one.
    pub session: String,
    /// A new session's directory.
    pub cwd: Option<PathBuf>,
    /// The text to type.
    pub text: Option<JsString>,
    /// The keys to press after the text.
    pub keys: Vec<String>,
    /// Whether Enter is pressed after the keys.
    pub enter: bool,
    /// Lines of history in a capture.
    pub lines: u32,
    /// The pattern to wait for.
    pub wait_for: Option<Arc<Pattern>>,
    /// The time limit of a wait.
    pub timeout: Duration,
    /// Whether wrapped lines are joined.
    pub join_wrapped: bool,
    /// Whether only output after the input is matched.
    pub from_send: bool,
}

impl Request {
    /// Parses a body: its JSON, then its fields.
    pub async fn parse(body: &[u8], patterns: &PatternCache) -> Result<Self, HttpError> {
        let body = String::from_utf8_lossy(body);
        let body = js::trim(&body);
        if body.is_empty() {
            return Err(HttpError::bad_request("Missing JSON request body."));
        }
        let object = Object::parse(body).map_err(|why| {
            HttpError::bad_request(match why {
                ParseError::NotJson => "Invalid JSON body.",
                ParseError::NotAnObject => "Request body must be a JSON object.",
            })
        })?;
        Self::validate(&object, patterns).await
    }

    async fn validate(object: &Object<'_>, patterns: &PatternCache) -> Result<Self, HttpError> {
        let action = action(object.field("action"))?;
        let session = session(object.field("session"))?;
        let cwd = cwd(object.field("cwd")).await?;
        let text = present(object.field("text"));
        if text.as_ref().is_some_and(|text| text.len() > TEXT_UNITS) {
            return Err(HttpError::bad_request(format!("text is too long (max {TEXT_UNITS} characters).")));
        }
        let keys = keys(object.field("keys"))?;
        let enter = object.field("enter").is_true();
        let lines = number("lines", &object.field("lines"), LINES, LINES_DEFAULT)?;
        let wait_for = match present(object.field("wait_for")) {
            None => None,
            Some(source) if source.len() > PATTERN_UNITS => {
                return Err(HttpError::bad_request(format!("wait_for is too long (max {PATTERN_UNITS} characters).")));
            }
            Some(source) => {
                let pattern = patterns.get(&source);
                Some(pattern.ok_or_else(|| HttpError::bad_request("wait_for must be a valid regular expression."))?)
            }
        };
        let timeout = number("timeout_ms", &object.field("timeout_ms"), TIMEOUT, TIMEOUT_DEFAULT)?;
        let request = Self {
            action,
            session: session.clone().unwrap_or_default(),
            cwd,
            text,
            keys,
            enter,
            lines,
            wait_for,
            timeout: Duration::from_millis(timeout.into()),
            join_wrapped: object.field("join_wrapped").is_true(),
            from_send: object.field("wait_from") == Value::Text(JsString::from("send")),
        };
        request.has_what_it_needs(session.is_some())?;
        Ok(request)
    }

    fn has_what_it_needs(&self, has_session: bool) -> Result<(), HttpError> {
        let action = self.action.as_str();
        if matches!(self.action, Action::ListSessions | Action::CreateSession) {
            return Ok(());
        }
        if !has_session {
            return Err(HttpError::bad_request(format!("session is required for {action}")));
        }
        let types = matches!(self.action, Action::SendKeys | Action::SendAndCapture);
        if types && self.text.is_none() && self.keys.is_empty() && !self.enter {
            return Err(HttpError::bad_request(format!(
                "{action} requires at least one of: text, keys, or enter=true."
            )));
        }
        Ok(())
    }
}

/// Returns a string without surrounding white space. `None`: the result is empty, or the value is
/// not a string.
fn present(value: Value<'_>) -> Option<JsString> {
    Some(value.into_text()?.trimmed()).filter(|text| !text.is_empty())
}

fn action(value: Value<'_>) -> Result<Action, HttpError> {
    let name = value.into_text().map(|text| text.trimmed());
    let action = name.and_then(|name| Action::ALL.into_iter().find(|action| name.is(action.as_str())));
    action.ok_or_else(|| HttpError::bad_request("Invalid action."))
}

fn session(value: Value<'_>) -> Result<Option<String>, HttpError> {
    let Some(name) = present(value) else { return Ok(None) };
    let name = name.lossy();
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-');
    let begins = name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
    if begins && name.len() <= NAME_LENGTH && name.bytes().all(allowed) {
        Ok(Some(name))
    } else {
        Err(HttpError::bad_request("Invalid session name. Use 1-64 chars: letters, numbers, ., _, :, -"))
    }
}

async fn cwd(value: Value<'_>) -> Result<Option<PathBuf>, HttpError> {
    let Some(given) = present(value) else { return Ok(None) };
    let path = PathBuf::from(given.lossy());
    if !path.is_absolute() {
        return Err(HttpError::bad_request("cwd must be an absolute path."));
    }
    match tokio::fs::metadata(&path).await {
        Ok(found) if found.is_dir() => Ok(Some(path)),
        Ok(_) => Err(HttpError::bad_request_with("cwd is not a directory: ", &given)),
        Err(_) => Err(HttpError::bad_request_with("cwd does not exist: ", &given)),
    }
}

fn keys(value: Value<'_>) -> Result<Vec<String>, HttpError> {
    let items = match value {
        Value::Absent => return Ok(Vec::new()),
        Value::Array(items) => items,
        _ => return Err(HttpError::bad_request("keys must be an array of strings.")),
    };
    let mut keys = Vec::with_capacity(items.len());
    for item in items {
        let token = Value::read(item).into_text();
        let token = token.ok_or_else(|| HttpError::bad_request("keys must contain only strings."))?.trimmed();
        if token.is_empty() {
            continue;
        }
        let key = token.lossy();
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'+' | b'-');
        if key.len() > KEY_LENGTH || !key.bytes().all(allowed) {
            return Err(HttpError::bad_request_with("Invalid key token: ", &token));
        }
        keys.push(key);
    }
    Ok(keys)
}

fn number(name: &str, value: &Value<'_>, (least, most): (u32, u32), default: u32) -> Result<u32, HttpError> {
    let number = match value {
        Value::Absent => return Ok(default),
        Value::Number(number) if number.is_finite() && number.fract() == 0.0 => *number,
        _ => return Err(HttpError::bad_request(format!("{name} must be an integer."))),
    };
    if number < f64::from(least) || number > f64::from(most) {
        return Err(HttpError::bad_request(format!("{name} must be between {least} and {most}.")));
    }
    // The number is an integer within the limits of this type.
    #[allow(clippy::cast_sign_loss)]
    Ok(number as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn parsed(body: &str) -> Result<Request, String> {
        Request::parse(body.as_bytes(), &PatternCache::default()).await.map_err(|refusal| refusal.message.lossy())
    }

    async fn refused(body: &str) -> String {
        parsed(body).await.err().unwrap_or_else(|| "nothing".into())
    }

    #[tokio::test]
    async fn bodies_are_trimmed_and_decoded_as_in_javascript() {
        assert_eq!(refused("\u{feff} \u{a0}\n").await, "Missing JSON request body.");
        assert_eq!(refused("[]").await, "Request body must be a JSON object.");
        let request = parsed("\u{feff}{\"action\":\"\u{a0}list_sessions \"}\u{2028}").await.unwrap();
        assert_eq!(request.action, Action::ListSessions);
        let body = b"{\"action\":\"send_keys\",\"session\":\"a\",\"text\":\"\xff\"}";
        let request = Request::parse(body, &PatternCache::default()).await;
        assert_eq!(request.unwrap().text.unwrap().lossy(), "\u{fffd}");
    }

    #[tokio::test]
    async fn fields_fail_in_their_order() {
        let mut body = serde_json::json!({
            "action": "no", "session": "-", "cwd": "x", "text": "x".repeat(8001), "keys": 1, "lines": 0,
            "wait_for": "(", "timeout_ms": 1.5,
        });
        for (field, message, mended) in [
            ("action", "Invalid action.", "send_keys"),
            ("session", "Invalid session name. Use 1-64 chars: letters, numbers, ., _, :, -", ""),
            ("cwd", "cwd must be an absolute path.", ""),
            ("text", "text is too long (max 8000 characters).", ""),
            ("keys", "keys must be an array of strings.", "[]"),
            ("lines", "lines must be between 1 and 5000.", "1"),
            ("wait_for", "wait_for must be a valid regular expression.", ""),
            ("timeout_ms", "timeout_ms must be an integer.", "100"),
        ] {
            assert_eq!(refused(&body.to_string()).await, message, "{field}");
            body[field] = serde_json::from_str(mended).unwrap_or_else(|_| mended.into());
        }
        assert_eq!(refused(&body.to_string()).await, "session is required for send_keys");
        body["session"] = "a".into();
        assert_eq!(refused(&body.to_string()).await, "send_keys requires at least one of: text, keys, or enter=true.");
        body["keys"] = serde_json::json!([" Tab ", ""]);
        assert_eq!(parsed(&body.to_string()).await.unwrap().keys, ["Tab"]);
    }
}
