//! Spans of requests, waits, runs and prompts, for an exporter of traces.
//!
//! A span has the target [`TARGET`], which the log never shows. Its fields are OpenTelemetry's names
//! and the program's own words: never a pane, a path, a command, a pattern or text of a pane.
//!
//! A caller's trace continues in its spans by a `traceparent` of the W3C's *Trace Context*. Only an
//! exporter can read one, so it registers itself with [`install`]; without it, all of this does
//! nothing.

use std::sync::OnceLock;

use tracing::{Instrument as _, Span};

/// The target of all spans that are exported.
pub const TARGET: &str = "muxtap::span";

/// The operations on spans that an exporter of traces provides.
#[derive(Clone, Copy, Debug)]
pub struct Exporter {
    /// Makes the span a child of the one that a `traceparent` names. Ignores a malformed one.
    pub adopt: fn(&Span, &str),
    /// Returns the span's own `traceparent`; `None` if the span is not exported.
    pub traceparent: fn(&Span) -> Option<String>,
}

static EXPORTER: OnceLock<Exporter> = OnceLock::new();

/// Registers the process's exporter. The first one stays.
pub fn install(exporter: Exporter) {
    let _ = EXPORTER.set(exporter);
}

/// Makes the span a child of the one that a caller's `traceparent` names.
pub fn adopt(span: &Span, traceparent: Option<&str>) {
    if let (Some(exporter), Some(parent)) = (EXPORTER.get(), traceparent) {
        (exporter.adopt)(span, parent);
    }
}

/// Returns the `traceparent` for a request that is made within the span.
pub fn traceparent(span: &Span) -> Option<String> {
    EXPORTER.get().and_then(|exporter| (exporter.traceparent)(span))
}

/// Does a piece of work in its span, and records its outcome as `muxtap.outcome`. The span needs
/// that field.
pub async fn within<T>(span: Span, work: impl Future<Output = T>, outcome: impl FnOnce(&T) -> &'static str) -> T {
    let done = work.instrument(span.clone()).await;
    if !span.is_disabled() {
        span.record("muxtap.outcome", outcome(&done));
    }
    done
}
