//! Sends muxtap's spans ([`muxtap_base::spans`]) to an OpenTelemetry collector on this machine, by
//! OTLP over HTTP.
//!
//! Spans are collected in memory and sent by a thread of their own, at most every few seconds. A
//! collector that hangs or is not there delays no request: what exceeds the queue is dropped.
//!
//! The variables `OTEL_*` change nothing: they may be meant for another program, and a header in
//! them would be sent in clear text.

mod client;

use std::{
    collections::HashMap,
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use muxtap_base::spans;
use opentelemetry::{
    propagation::TextMapPropagator as _,
    trace::{TraceContextExt as _, TracerProvider as _},
};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    propagation::TraceContextPropagator,
    trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, SpanData, SpanLimits},
};
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{Layer, filter::Targets, registry::LookupSpan};
use url::{Host, Url};

/// Time that one request to the collector may take.
const EXPORT_LIMIT: Duration = Duration::from_secs(3);
/// Time that the last spans have when the daemon ends.
const END_LIMIT: Duration = Duration::from_secs(1);
/// The number of spans that wait to be sent.
const QUEUE: usize = 2048;
/// The number of spans in one request to the collector.
const BATCH: usize = 512;
/// The time between two requests, unless a batch is full before.
const DELAY: Duration = Duration::from_secs(5);

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
    /// The part that the URL lacks.
    pub fn parse(text: &str) -> Result<Self, String> {
        let shown = without_credentials(text);
        let mut url = Url::parse(text).map_err(|error| format!("{shown:?}: {error}; {EXPECTED}"))?;
        let is_own = match url.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        };
        let has_credentials = !url.username().is_empty() || url.password().is_some();
        let is_bare = url.query().is_none() && url.fragment().is_none() && !has_credentials;
        if url.scheme() != "http" || !is_own || !is_bare {
            return Err(format!("{shown:?}: {EXPECTED}"));
        }
        url.set_path(&format!("{}/v1/traces", url.path().trim_end_matches('/')));
        Ok(Self(url))
    }
}

const EXPECTED: &str = "expected the URL of a collector on this machine, such as http://127.0.0.1:4318";

/// Returns a URL for a message: an error of the configuration may be logged, a password not.
fn without_credentials(text: &str) -> String {
    let begin = text.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = text.split_at(begin);
    match rest.rsplit_once('@') {
        Some((_, place)) => format!("{scheme}…@{place}"),
        None => text.to_owned(),
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// An exporter that runs. Dropping it sends what is left, for a second at most.
///
/// Creating it starts a thread; neither may happen inside a tokio runtime.
#[derive(Debug)]
pub struct Exporter(SdkTracerProvider);

impl Drop for Exporter {
    fn drop(&mut self) {
        // A collector that does not respond loses the last spans; there is no one to report it to.
        let _ = self.0.shutdown_with_timeout(END_LIMIT);
    }
}

/// Sends spans, and warns when that begins to fail and when it works again.
#[derive(Debug)]
struct Watched {
    inner: SpanExporter,
    endpoint: Endpoint,
    health: Health,
}

impl opentelemetry_sdk::trace::SpanExporter for Watched {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let result = self.inner.export(batch).await;
        if let Some(change) = self.health.note(&self.endpoint, &result) {
            tracing::warn!("{change}");
        }
        result
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// Whether the last request to the collector failed.
#[derive(Debug, Default)]
struct Health(AtomicBool);

impl Health {
    /// Returns what the log says of a request: `None` if the one before ended the same way.
    fn note(&self, endpoint: &Endpoint, result: &OTelSdkResult) -> Option<String> {
        let failed_before = self.0.swap(result.is_err(), Ordering::Relaxed);
        match (failed_before, result) {
            (false, Err(error)) => Some(format!("spans are lost until {endpoint} takes them: {error}")),
            (true, Ok(())) => Some(format!("{endpoint} takes spans again")),
            _ => None,
        }
    }
}

/// Starts to send spans to a collector. The layer belongs in the process's subscriber, beside the
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
    // A proxy variable or a redirect would choose another receiver.
    let client = reqwest::blocking::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(EXPORT_LIMIT)
        .build()
        .map_err(|error| failed(&error))?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client::Bare(client))
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(endpoint.0.as_str())
        .with_timeout(EXPORT_LIMIT)
        .build()
        .map_err(|error| failed(&error))?;
    let resource = Resource::builder_empty()
        .with_service_name("muxtapd")
        .with_attribute(opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let exporter = Watched { inner: exporter, endpoint: endpoint.clone(), health: Health::default() };
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(QUEUE)
        .with_max_export_batch_size(BATCH)
        .with_scheduled_delay(DELAY)
        .build();
    let provider = SdkTracerProvider::builder()
        .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(batches).build())
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
        .with_span_limits(SpanLimits::default())
        .with_resource(resource)
        .build();
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
