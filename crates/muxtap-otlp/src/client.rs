//! The client for requests to the collector.

use std::pin::Pin;

use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};

/// The headers that a request has. Others, such as a token, come from the environment.
const HEADERS: [&str; 2] = ["content-type", "user-agent"];

/// Sends requests without headers of the environment.
#[derive(Debug)]
pub(crate) struct Bare(pub(crate) reqwest::blocking::Client);

impl HttpClient for Bare {
    fn send_bytes<'client, 'sent>(
        &'client self,
        mut request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'sent>>
    where
        'client: 'sent,
        Self: 'sent,
    {
        let headers = request.headers_mut();
        let known = HEADERS.map(|name| (name, headers.remove(name)));
        headers.clear();
        for (name, value) in known {
            if let Some(value) = value {
                headers.insert(name, value);
            }
        }
        self.0.send_bytes(request)
    }
}
