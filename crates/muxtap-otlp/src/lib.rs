//! Sends muxtap's spans ([`muxtap_base::spans`]) to an OpenTelemetry collector on this machine, by
//! OTLP over HTTP.
//!
//! Spans are collected in memory and sent by a thread of their own, at most every few seconds. A
//! collector that hangs or is not there delays no request: what exceeds the queue is dropped.

use std::{collections::HashMap, fmt, time::Duration};

use muxtap_base::spans;
use opentelemetry::{
    propagation::TextMapPropagator as _,
    trace::{TraceContextExt as _, TracerProvider as _},
};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{Resource, propagation::TraceContextPropagator, trace::SdkTracerProvider};
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{Layer, filter::Targets, registry::LookupSpan};
use url::{Host, Url};

/// Time that one request to the collector may take.
const EXPORT_LIMIT: Duration = Duration::from_secs(3);
/// Time that the last spans have when the daemon ends.
const END_LIMIT: Duration = Duration::from_secs(1);

/// Where a collector takes spans: an `http` URL of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(Url);

impl Endpoint {
    /// Parses the collector's base URL, as in `http://127.0.0.1:4318`.
    ///
    /// The collector must be on this machine: spans leave it by the collector's configuration and
    /// its TLS, not by muxtap's.
    ///
    /// # Errors
    ///
    /// What the URL lacks.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut url = Url::parse(text).map_err(|error| format!("{text:?}: {error}; {EXPECTED}"))?;
        let is_own = match url.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        };
        let is_bare = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        if url.scheme() != "http" || !is_own || !is_bare {
            return Err(format!("{text:?}: {EXPECTED}"));
        }
        url.set_path(&format!("{}/v1/traces", url.path().trim_end_matches('/')));
        Ok(Self(url))
    }
}

const EXPECTED: &str = "expected the URL of a collector on this machine, such as http://127.0.0.1:4318";

impl fmt::Display for Endpoint {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// An exporter that runs. Dropping it sends what is left, for a second at most.
///
/// It starts a thread that must not be created or dropped inside a runtime of tokio.
#[derive(Debug)]
pub struct Exporter(SdkTracerProvider);

impl Drop for Exporter {
    fn drop(&mut self) {
        // A collector that does not respond loses the last spans; there is no one to report it to.
        let _ = self.0.shutdown_with_timeout(END_LIMIT);
    }
}

/// Starts to send spans to a collector. The layer belongs into the process's subscriber, beside the
/// log's.
///
/// # Errors
///
/// Why the exporter cannot be made.
pub fn start<S>(endpoint: &Endpoint) -> Result<(impl Layer<S> + use<S>, Exporter), String>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let failed = |error: &dyn fmt::Display| format!("cannot send spans to {endpoint}: {error}");
    // A proxy of the environment or a redirect would choose another receiver.
    let client = reqwest::blocking::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(EXPORT_LIMIT)
        .build()
        .map_err(|error| failed(&error))?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(endpoint.0.as_str())
        .with_timeout(EXPORT_LIMIT)
        .build()
        .map_err(|error| failed(&error))?;
    let resource = Resource::builder_empty()
        .with_service_name("muxtapd")
        .with_attribute(opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("muxtap"))
        // The place in the source is of no use to a reader of traces, and names of threads neither.
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(Targets::new().with_target(spans::TARGET, tracing::Level::INFO));
    spans::install(spans::Exporter { adopt, traceparent });
    Ok((layer, Exporter(provider)))
}

fn adopt(span: &Span, traceparent: &str) {
    let carried = HashMap::from([("traceparent".to_owned(), traceparent.to_owned())]);
    let parent = TraceContextPropagator::new().extract(&carried);
    // A malformed one gives an invalid context, whose span would be the parent of everything.
    if parent.span().span_context().is_valid() {
        // Only a span that is not recorded cannot have a parent.
        let _ = span.set_parent(parent);
    }
}

fn traceparent(span: &Span) -> Option<String> {
    let context = span.context();
    let mut carrier: HashMap<String, String> = HashMap::new();
    TraceContextPropagator::new().inject_context(&context, &mut carrier);
    carrier.remove("traceparent")
}

#[cfg(test)]
mod tests;
