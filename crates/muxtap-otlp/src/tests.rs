//! The collector is a stand-in: it reads the requests that a real one would get, and decodes them
//! with OpenTelemetry's own types.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::mpsc,
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest, common::v1::any_value::Value, trace::v1::Span as Sent,
};
use prost::Message as _;
use tracing::field::Empty;
use tracing_subscriber::layer::SubscriberExt as _;

use super::*;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// Reads one request and returns its head and body.
fn request(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut bytes = Vec::new();
    let mut one = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut one).unwrap();
        bytes.push(one[0]);
    }
    let head = String::from_utf8(bytes).unwrap().to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (head, body)
}

/// Returns the collector's URL, and the requests that it gets.
fn collector() -> (String, mpsc::Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (send, got) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            send.send(request(&mut stream)).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
        }
    });
    (url, got)
}

/// Does something while spans are sent, and returns what the collector then got.
fn sent(work: impl FnOnce()) -> (String, Vec<Sent>) {
    let (url, got) = collector();
    let (layer, exporter) = start(&Endpoint::parse(&url).unwrap()).unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work);
    drop(exporter);
    let (head, body) = got.recv().unwrap();
    let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
    assert_eq!(request.resource_spans.len(), 1);
    let resource = request.resource_spans[0].resource.as_ref().unwrap();
    let service = resource.attributes.iter().find(|attribute| attribute.key == "service.name").unwrap();
    assert_eq!(text(service.value.as_ref().unwrap().value.as_ref().unwrap()), "muxtapd");
    let spans = request.resource_spans.into_iter().flat_map(|spans| spans.scope_spans).flat_map(|spans| spans.spans);
    (head, spans.collect())
}

fn text(value: &Value) -> String {
    match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn attributes(span: &Sent) -> Vec<(String, String)> {
    let attributes = span.attributes.iter();
    let mut all: Vec<_> = attributes
        .map(|attribute| {
            (attribute.key.clone(), text(attribute.value.as_ref().and_then(|value| value.value.as_ref()).unwrap()))
        })
        .collect();
    all.sort();
    all
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[test]
fn a_span_continues_the_callers_trace_and_has_only_its_own_fields() {
    let (head, spans) = sent(|| {
        let request = tracing::info_span!(
            target: spans::TARGET, "request", otel.name = "GET /v1/panes", otel.kind = "server",
            http.response.status_code = Empty,
        );
        spans::adopt(&request, Some(&format!("00-{TRACE}-{PARENT}-01")));
        request.record("http.response.status_code", 200_u16);
        request.in_scope(|| {
            // Neither another target nor an event is sent.
            let _other = tracing::info_span!("a secret").entered();
            tracing::info!("a secret");
            drop(tracing::info_span!(target: spans::TARGET, "wait", muxtap.outcome = "matched"));
        });
        let next = spans::traceparent(&request).unwrap();
        assert!(next.starts_with(&format!("00-{TRACE}-")) && !next.contains(PARENT), "{next}");
    });
    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/x-protobuf\r\n"), "{head}");
    assert!(!head.contains("authorization") && !head.contains("x-secret"), "{head}");
    let [wait, request] = spans.as_slice() else { panic!("{spans:?}") };
    assert_eq!((request.name.as_str(), wait.name.as_str()), ("GET /v1/panes", "wait"));
    assert_eq!((hex(&request.trace_id), hex(&request.parent_span_id)), (TRACE.to_owned(), PARENT.to_owned()));
    assert_eq!((&wait.trace_id, &wait.parent_span_id), (&request.trace_id, &request.span_id));
    assert_eq!(request.kind, 2, "a server's");
    assert!(request.events.is_empty() && wait.events.is_empty(), "{spans:?}");
    let level = |name: &str| ("level".to_owned(), name.to_owned());
    let known = attributes(request).into_iter().filter(|attribute| *attribute != level("INFO")).collect::<Vec<_>>();
    assert_eq!(known, [("http.response.status_code".to_owned(), "200".to_owned())]);
    let known = attributes(wait).into_iter().filter(|attribute| *attribute != level("INFO")).collect::<Vec<_>>();
    assert_eq!(known, [("muxtap.outcome".to_owned(), "matched".to_owned())]);
}

/// The test above passes in a process with these variables, too.
#[test]
fn opentelemetrys_variables_change_nothing() {
    let own = std::env::current_exe().unwrap();
    let test = "tests::a_span_continues_the_callers_trace_and_has_only_its_own_fields";
    let ran = Command::new(own)
        .args(["--exact", test])
        .envs([
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-secret=1"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1"),
            ("OTEL_TRACES_SAMPLER", "always_off"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "1"),
            ("OTEL_BSP_SCHEDULE_DELAY", "1"),
            ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "0"),
            ("OTEL_SERVICE_NAME", "other"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other"),
            ("HTTP_PROXY", "http://127.0.0.1:1"),
        ])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && printed.contains("1 passed"), "{printed}");
}

#[test]
fn the_first_failure_and_the_first_success_after_it_are_logged() {
    let (health, endpoint) = (Health::default(), Endpoint::parse("http://127.0.0.1:4318").unwrap());
    let failed = || Err(opentelemetry_sdk::error::OTelSdkError::InternalFailure("no route".into()));
    let lost = "spans are lost until http://127.0.0.1:4318/v1/traces takes them: ";
    for (result, says) in [
        (Ok(()), None),
        (failed(), Some(lost)),
        (failed(), None),
        (Ok(()), Some("http://127.0.0.1:4318/v1/traces takes spans again")),
        (Ok(()), None),
        (failed(), Some(lost)),
    ] {
        let said = health.note(&endpoint, &result);
        assert_eq!(said.is_some(), says.is_some(), "{result:?}: {said:?}");
        assert!(said.unwrap_or_default().starts_with(says.unwrap_or_default()), "{result:?}");
    }
}

#[test]
fn a_malformed_traceparent_begins_a_trace_of_its_own() {
    for bad in ["", "00", "00-0-0-0", &format!("00-{}-{PARENT}-01", "0".repeat(32)), "x\u{1}y"] {
        let (_, spans) = sent(|| {
            let span = tracing::info_span!(target: spans::TARGET, "request");
            spans::adopt(&span, Some(bad));
        });
        assert_eq!(spans.len(), 1, "{bad:?}");
        assert!(spans[0].parent_span_id.is_empty() && spans[0].trace_id.iter().any(|byte| *byte != 0), "{bad:?}");
    }
}

#[test]
fn a_collector_that_is_gone_or_hangs_delays_no_span_and_no_end() {
    let spans = |number: usize| {
        for _ in 0..number {
            drop(tracing::info_span!(target: spans::TARGET, "request"));
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let hangs = format!("http://{}", listener.local_addr().unwrap());
    let ((asked, is_asked), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
    // It reads a request, and responds only when the test says so.
    let collector = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        request(&mut stream);
        asked.send(()).unwrap();
        released.recv().unwrap();
    });
    let (layer, exporter) = start(&Endpoint::parse(&hangs).unwrap()).unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        spans(BATCH);
        is_asked.recv().unwrap();
        // While the request hangs: more than the queue holds.
        spans(5 * QUEUE);
    });
    drop(exporter);
    // All of this happened before the collector's response: it still waits for this.
    assert!(!collector.is_finished());
    release.send(()).unwrap();
    collector.join().unwrap();

    let gone = {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", closed.local_addr().unwrap())
    };
    let (layer, exporter) = start(&Endpoint::parse(&gone).unwrap()).unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || spans(5 * QUEUE));
    drop(exporter);
}

#[test]
fn only_a_collector_of_this_machine_is_accepted() {
    let parsed = |url: &str| Endpoint::parse(url).map(|endpoint| endpoint.to_string());
    for (url, sent_to) in [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
        ("http://[::1]:4318/otlp", "http://[::1]:4318/otlp/v1/traces"),
    ] {
        assert_eq!(parsed(url), Ok(sent_to.to_owned()));
    }
    for url in [
        "",
        "4318",
        "127.0.0.1:4318",
        "https://127.0.0.1:4318",
        "http://collector:4318",
        "http://10.0.0.1:4318",
        "http://127.0.0.1.example.com",
        "http://me:secret@127.0.0.1:4318",
        "http://:secret@127.0.0.1:4318",
        "http://secret@127.0.0.1:4318",
        "http://me:secret@[::1",
        "me:secret@127.0.0.1:4318",
        "http://127.0.0.1:4318/?to=elsewhere",
        "file:///etc/passwd",
        "http://localhost.example.com:4318",
    ] {
        let refused = parsed(url).unwrap_err();
        assert!(refused.contains(EXPECTED) && !refused.contains("secret"), "{url}: {refused}");
    }
}
