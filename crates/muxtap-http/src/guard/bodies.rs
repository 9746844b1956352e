//! The limit on the bodies of all requests over TCP, together.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use axum::{
    body::{Body, HttpBody},
    extract::{Request, State},
    http::{HeaderValue, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use muxtap_api::{Error, ErrorCode};
use muxtap_base::metrics;

use crate::error::Failure;

/// The number of bytes of the bodies of all concurrent requests, without small ones.
const BODIES_BYTES: usize = 192 * 1024 * 1024;
/// The number of bytes of a body that do not count: a request of the usual size is never rejected
/// because of others.
const FREE_BYTES: usize = 64 * 1024;

/// The bytes of all bodies.
#[derive(Clone, Debug, Default)]
pub(super) struct Bodies(Arc<AtomicUsize>);

/// The bytes of one body, until this is dropped.
#[derive(Debug)]
struct Share {
    all: Bodies,
    bytes: AtomicUsize,
    /// Whether a further part exceeded the limit.
    is_refused: AtomicBool,
}

impl Share {
    /// Counts bytes that have arrived. Returns whether they are within the limit.
    fn add(&self, more: usize) -> bool {
        let before = self.bytes.fetch_add(more, Ordering::Relaxed);
        let counted = (before + more).saturating_sub(FREE_BYTES.max(before));
        let all = self.all.0.fetch_add(counted, Ordering::Relaxed) + counted;
        let fits = counted == 0 || all <= BODIES_BYTES;
        self.is_refused.fetch_or(!fits, Ordering::Relaxed);
        fits
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let counted = self.bytes.get_mut().saturating_sub(FREE_BYTES);
        self.all.0.fetch_sub(counted, Ordering::Relaxed);
    }
}

/// Counts a request's body until the response, and rejects it over the limit.
pub(super) async fn count(State(all): State<Bodies>, request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let share = Arc::new(Share { all, bytes: AtomicUsize::new(0), is_refused: AtomicBool::new(false) });
    let counting = share.clone();
    let response = next.run(request.map(|body| Body::new(Counted { body, share: counting }))).await;
    if !share.is_refused.load(Ordering::Relaxed) {
        return response;
    }
    metrics::refused("bodies");
    let message = format!(
        "too many bytes in request bodies: other requests use all {} MiB of the limit; retry later",
        BODIES_BYTES >> 20
    );
    let mut refused = Failure::from(Error::new(ErrorCode::ResourceLimit, message)).into_response();
    refused.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    refused.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    refused
}

struct Counted {
    body: Body,
    share: Arc<Share>,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
            && !self.share.add(data.len())
        {
            return Poll::Ready(Some(Err(axum::Error::new("the limit for request bodies is reached"))));
        }
        polled
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

    #[test]
    fn all_bodies_share_a_budget_and_small_ones_are_always_accepted() {
        let all = Bodies::default();
        let share = || Share { all: all.clone(), bytes: AtomicUsize::new(0), is_refused: AtomicBool::new(false) };
        let (large, other, small) = (share(), share(), share());
        assert!(large.add(FREE_BYTES) && large.add(BODIES_BYTES / 2) && large.add(BODIES_BYTES / 2));
        assert!(!other.add(FREE_BYTES + 1) && other.is_refused.load(Ordering::Relaxed));
        assert!(small.add(FREE_BYTES - 1) && small.add(1) && !small.add(1));
        drop((large, small));
        assert!(share().add(FREE_BYTES + BODIES_BYTES - 1));
        drop(other);
        assert_eq!(all.0.load(Ordering::Relaxed), 0);
    }
}
