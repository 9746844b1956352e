//! Responses as the contract has them: key order, error texts, and nothing else in the body.

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};

use super::js::{self, JsString};

const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// An error response: a status and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpError {
    /// The HTTP status.
    pub status: StatusCode,
    /// The message that the client gets.
    pub message: JsString,
}

impl HttpError {
    /// Builds an error with this status.
    pub fn new(status: StatusCode, message: impl AsRef<str>) -> Self {
        Self { status, message: JsString::from(message.as_ref()) }
    }

    /// Builds a 400: the request is wrong.
    pub fn bad_request(message: impl AsRef<str>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Builds a 400 whose message ends with a value from the request.
    pub fn bad_request_with(message: &str, value: &JsString) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message: JsString::from(message).with(value) }
    }

    /// Builds a 500: a defect. Only the log says more.
    pub fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Internal server error.")
    }

    /// Builds a 503: the bridge is being stopped.
    pub fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "The bridge is stopping.")
    }

    /// Converts the error into an HTTP response.
    pub fn into_response(self) -> Response<Body> {
        let body = ObjectWriter::new().bool("ok", false).raw("error", &self.message.to_json());
        json(self.status, body.finish())
    }
}

/// A JSON object that is written key by key.
#[derive(Debug)]
pub struct ObjectWriter {
    text: String,
}

impl ObjectWriter {
    /// Begins an object without keys.
    pub fn new() -> Self {
        Self { text: "{".into() }
    }

    fn key(&mut self, key: &str) {
        if self.text.len() > 1 {
            self.text.push(',');
        }
        js::write_json(key, &mut self.text);
        self.text.push(':');
    }

    /// Adds a boolean.
    pub fn bool(mut self, key: &str, value: bool) -> Self {
        self.key(key);
        self.text.push_str(if value { "true" } else { "false" });
        self
    }

    /// Adds a number.
    pub fn number(mut self, key: &str, value: usize) -> Self {
        self.key(key);
        self.text.push_str(&value.to_string());
        self
    }

    /// Adds a string.
    pub fn string(mut self, key: &str, value: &str) -> Self {
        self.key(key);
        js::write_json(value, &mut self.text);
        self
    }

    /// Adds a value that is JSON already.
    pub fn raw(mut self, key: &str, json: &str) -> Self {
        self.key(key);
        self.text.push_str(json);
        self
    }

    /// Adds an array of strings.
    pub fn strings(mut self, key: &str, values: &[String]) -> Self {
        self.key(key);
        self.text.push('[');
        for (index, value) in values.iter().enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            js::write_json(value, &mut self.text);
        }
        self.text.push(']');
        self
    }

    /// Closes the object and returns its JSON.
    pub fn finish(mut self) -> String {
        self.text.push('}');
        self.text
    }
}

/// Builds a JSON response.
pub fn json(status: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

/// Builds the response for a caller that may not ask at all. It reveals nothing, CORS included.
pub fn forbidden() -> Response<Body> {
    let mut response = Response::new(Body::from("forbidden"));
    *response.status_mut() = StatusCode::FORBIDDEN;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_in_the_order_in_which_they_were_written() {
        let sessions = ["b".to_owned(), "a\"".to_owned()];
        let body =
            ObjectWriter::new().bool("ok", true).string("action", "x").strings("sessions", &sessions).number("n", 7);
        assert_eq!(body.finish(), r#"{"ok":true,"action":"x","sessions":["b","a\""],"n":7}"#);
        assert_eq!(ObjectWriter::new().strings("none", &[]).finish(), r#"{"none":[]}"#);
    }
}
