//! The limit on large responses over TCP that their readers have not received yet, all together.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, HttpBody},
    extract::{Request, State},
    http::{HeaderValue, Method, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use muxtap_api::{Error, ErrorCode};
use muxtap_base::metrics;

use crate::error::Failure;

/// The number of bytes of all responses that are being sent, without small ones.
const ANSWERS_BYTES: usize = 256 * 1024 * 1024;
/// The number of those bytes for one login: a page's cookie or a device's session.
const LOGIN_ANSWERS_BYTES: usize = 64 * 1024 * 1024;
/// The number of bytes in a response that does not count.
const SMALL_ANSWER: usize = 64 * 1024;
/// The number of bytes of a response that are passed on at once: the rest counts until it is
/// received.
const PIECE: usize = 64 * 1024;

/// The message of a rejection.
const TOO_MANY: &str = "too many large responses have not been read by their callers; request less at once, or retry \
                        later";

/// The bytes of all responses.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    all: usize,
    of_logins: HashMap<String, usize>,
}

/// The bytes of one response, until this is dropped.
#[derive(Debug)]
struct Share {
    answers: Answers,
    login: Option<String>,
    bytes: usize,
}

impl Answers {
    /// Counts a response of a login. `None`: it exceeds the limit.
    fn hold(&self, login: Option<String>, bytes: usize) -> Option<Share> {
        let mut held = self.held();
        let own = login.as_ref().and_then(|login| held.of_logins.get(login)).copied().unwrap_or_default();
        if held.all + bytes > ANSWERS_BYTES || login.is_some() && own + bytes > LOGIN_ANSWERS_BYTES {
            return None;
        }
        held.all += bytes;
        if let Some(login) = &login {
            *held.of_logins.entry(login.clone()).or_default() += bytes;
        }
        drop(held);
        Some(Share { answers: self.clone(), login, bytes })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.answers.held();
        held.all = held.all.saturating_sub(self.bytes);
        let Some(login) = &self.login else { return };
        if let Some(own) = held.of_logins.get_mut(login) {
            *own = own.saturating_sub(self.bytes);
            if *own == 0 {
                held.of_logins.remove(login);
            }
        }
    }
}

/// Counts a large response until its reader has received it, and rejects it over the limit.
pub(super) async fn count(State(answers): State<Answers>, request: Request, next: Next) -> Response {
    let login = super::login_of(&request);
    let is_mcp = request.method() == Method::POST && request.uri().path() == "/mcp";
    let response = next.run(request).await;
    // MCP sends a response whole, as an event of a stream.
    if is_mcp && response.body().size_hint().exact().is_none() {
        return response.map(|body| Body::new(Events { body, answers, login, share: None }));
    }
    // Any other stream produces its pieces as its reader receives them.
    let length = response.body().size_hint().exact().and_then(|length| usize::try_from(length).ok());
    let Some(length) = length.filter(|length| *length > SMALL_ANSWER) else { return response };
    if let Some(share) = answers.hold(login, length) {
        return response.map(|body| Body::new(Sent { body, piece: Bytes::new(), left: length, _share: share }));
    }
    metrics::refused("answers");
    let mut refused = Failure::from(Error::new(ErrorCode::ResourceLimit, TOO_MANY)).into_response();
    refused.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    refused
}

/// A response that is passed on in pieces: when it ends, its reader has received nearly all of it.
struct Sent {
    body: Body,
    /// The part of the body that is not passed on yet.
    piece: Bytes,
    left: usize,
    _share: Share,
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.piece.is_empty() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(data) => self.piece = data,
                Err(other) => return Poll::Ready(Some(Ok(other))),
            }
        }
        let length = PIECE.min(self.piece.len());
        let piece = self.piece.split_to(length);
        self.left = self.left.saturating_sub(length);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}

/// The events of an MCP response. A large event counts until the next is requested: by then it was
/// received.
struct Events {
    body: Body,
    answers: Answers,
    login: Option<String>,
    /// The share of the event that was passed on last, if it is large.
    share: Option<Share>,
}

impl HttpBody for Events {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.share = None;
        let polled = ready!(Pin::new(&mut self.body).poll_frame(context));
        let length = polled.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()).map_or(0, Bytes::len);
        if length > SMALL_ANSWER {
            let share = self.answers.hold(self.login.clone(), length);
            if share.is_none() {
                metrics::refused("answers");
                return Poll::Ready(Some(Err(axum::Error::new(TOO_MANY))));
            }
            self.share = share;
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_large_event_counts_until_the_next_is_asked_for() {
        let answers = Answers::default();
        let events = [vec![b'x'; 10], vec![b'y'; SMALL_ANSWER + 1], vec![b'z'; 10]];
        let events = events.map(|event| Ok::<_, std::convert::Infallible>(Bytes::from(event)));
        let body = Body::from_stream(futures_util::stream::iter(events));
        let mut sent = Events { body, answers: answers.clone(), login: None, share: None };
        for held in [0, SMALL_ANSWER + 1, 0] {
            let frame = std::future::poll_fn(|context| Pin::new(&mut sent).poll_frame(context)).await;
            assert!(frame.unwrap().unwrap().is_data());
            assert_eq!(answers.held().all, held);
        }
        // An event over the limit ends the stream.
        let _all = answers.hold(None, ANSWERS_BYTES).unwrap();
        let body = Body::from_stream(futures_util::stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from(
            vec![b'y'; SMALL_ANSWER + 1],
        ))]));
        let mut sent = Events { body, answers: answers.clone(), login: None, share: None };
        let frame = std::future::poll_fn(|context| Pin::new(&mut sent).poll_frame(context)).await;
        assert!(frame.unwrap().is_err());
    }

    #[test]
    fn all_answers_have_a_budget_and_a_login_a_share() {
        let answers = Answers::default();
        let login = |name: &str| Some(name.to_owned());
        let own = answers.hold(login("a"), LOGIN_ANSWERS_BYTES).unwrap();
        assert!(answers.hold(login("a"), 1).is_none());
        let token = answers.hold(None, ANSWERS_BYTES - LOGIN_ANSWERS_BYTES).unwrap();
        assert!(answers.hold(None, 1).is_none() && answers.hold(login("b"), 1).is_none());
        drop(own);
        assert!(answers.hold(login("a"), LOGIN_ANSWERS_BYTES).is_some());
        drop(token);
        assert_eq!(answers.held().all, 0);
        assert!(answers.held().of_logins.is_empty());
    }

    #[tokio::test]
    async fn an_answer_arrives_whole_in_pieces() {
        let text: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
        let share = Answers::default().hold(None, text.len()).unwrap();
        let mut sent = Sent { body: text.clone().into(), piece: Bytes::new(), left: text.len(), _share: share };
        assert_eq!(sent.size_hint().exact(), Some(1_000_000));
        let mut got = Vec::new();
        while !sent.is_end_stream() {
            let frame = std::future::poll_fn(|context| Pin::new(&mut sent).poll_frame(context)).await;
            let data = frame.unwrap().unwrap().into_data().unwrap();
            assert!(data.len() <= PIECE);
            got.extend_from_slice(&data);
        }
        assert_eq!(got, text);
    }
}
