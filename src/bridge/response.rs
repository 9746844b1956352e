//! Answers as the contract has them: key order, error texts, and nothing else in the body.

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};

use super::js::{self, JsString};

const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// Why a request is not answered with what it asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpError {
    /// The HTTP status.
    pub status: StatusCode,
    /// What the client is told.
    pub message: JsString,
}

impl HttpError {
    /// A refusal with this status.
    pub fn new(status: StatusCode, message: impl AsRef<str>) -> Self {
        Self { status, message: JsString::from(message.as_ref()) }
    }

    /// 400: the request is wrong.
    pub fn bad_request(message: impl AsRef<str>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 400, with something of the request behind the words.
    pub fn bad_request_with(message: &str, value: &JsString) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message: JsString::from(message).with(value) }
    }

    /// 500: a defect, of which only the log tells more.
    pub fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Internal server error.")
    }

    /// 503: the bridge is being stopped.
    pub fn stopping() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "The bridge is stopping.")
    }

    /// As an HTTP answer.
    pub fn into_response(self) -> Response<Body> {
        let body = ObjectWriter::new().bool("ok", false).raw("error", &self.message.to_json());
        json(self.status, body.finish())
    }
}

/// An object that is written key by key.
#[derive(Debug)]
pub struct ObjectWriter {
    text: String,
}

impl ObjectWriter {
    /// An object without keys.
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

    /// A boolean.
    pub fn bool(mut self, key: &str, value: bool) -> Self {
        self.key(key);
        self.text.push_str(if value { "true" } else { "false" });
        self
    }

    /// A number.
    pub fn number(mut self, key: &str, value: usize) -> Self {
        self.key(key);
        self.text.push_str(&value.to_string());
        self
    }

    /// A string.
    pub fn string(mut self, key: &str, value: &str) -> Self {
        self.key(key);
        js::write_json(value, &mut self.text);
        self
    }

    /// A value that is JSON already.
    pub fn raw(mut self, key: &str, json: &str) -> Self {
        self.key(key);
        self.text.push_str(json);
        self
    }

    /// An array of strings.
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

    /// The JSON.
    pub fn finish(mut self) -> String {
        self.text.push('}');
        self.text
    }
}

/// A JSON answer.
pub fn json(status: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

/// The answer to who may not ask at all; it tells nothing, CORS included.
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
