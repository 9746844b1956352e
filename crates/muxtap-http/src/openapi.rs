//! The OpenAPI document, generated from the types and the routes, and an HTML page that shows it.
//!
//! The daemon contains the document as text: the code that generates it is large. A test compares both.

#[cfg(any(test, not(feature = "daemon")))]
mod generated;
#[cfg(feature = "daemon")]
mod stored;

use std::{fmt::Write as _, sync::LazyLock};

use axum::response::Response;
use bytes::Bytes;
use serde_json::Value;

#[cfg(not(feature = "daemon"))]
use self::generated as source;
#[cfg(feature = "daemon")]
use self::stored as source;
use super::text;

/// The document of the routes that this build has.
pub(super) static DOCUMENT: LazyLock<Value> = LazyLock::new(source::document);

/// Returns this document.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "get_document",
    tag = "daemon",
    responses((status = 200, description = "The document", body = Object))
)]
pub async fn document() -> Response {
    // Any caller may request it: it is generated once.
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| DOCUMENT.to_string().into());
    text("application/json", TEXT.clone())
}

/// Returns this document as an HTML page.
#[utoipa::path(
    get,
    path = "/docs",
    operation_id = "get_page",
    tag = "daemon",
    responses((status = 200, description = "The page", body = String, content_type = "text/html"))
)]
pub async fn page() -> Response {
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| html(&DOCUMENT).into());
    text("text/html; charset=utf-8", TEXT.clone())
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
    code{font:13px ui-monospace,monospace}table{border-collapse:collapse;margin:.3rem 0 1rem}\
    td{border-top:1px solid #8884;padding:.15rem 1rem .15rem 0;vertical-align:top}h3{margin-bottom:0}p{margin:.3rem 0}";

/// Renders the document as a page without external resources.
fn html(document: &Value) -> String {
    let mut page = String::from("<!doctype html><meta charset=utf-8><meta name=viewport content='width=device-width'>");
    // Writing to a String cannot fail (also below).
    let _ = write!(page, "<title>muxtap</title><style>{STYLE}</style><h1>muxtap {}</h1>", env!("CARGO_PKG_VERSION"));
    let _ = write!(page, "<p>{}</p><h2>Routes</h2>", escaped(at(at(document, "info"), "description")));
    for (path, methods) in members(at(document, "paths")) {
        for (method, operation) in members(methods) {
            route(&mut page, path, method, operation);
        }
    }
    page.push_str("<h2>Schemas</h2>");
    for (name, schema) in members(at(at(document, "components"), "schemas")) {
        let _ = write!(page, "<h3 id='{name}'><code>{name}</code></h3><p>{}</p>", escaped(at(schema, "description")));
        fields(&mut page, schema);
    }
    page
}

fn route(page: &mut String, path: &str, method: &str, operation: &Value) {
    let _ = write!(page, "<h3><code>{} {path}</code></h3>", method.to_uppercase());
    let _ = write!(page, "<p>{} {}</p>", escaped(at(operation, "summary")), escaped(at(operation, "description")));
    page.push_str("<table>");
    for parameter in items(at(operation, "parameters")) {
        let name = escaped(at(parameter, "name"));
        let place = escaped(at(parameter, "in"));
        let what = kind(at(parameter, "schema"));
        let _ =
            write!(page, "<tr><td>{place} <code>{name}</code><td>{what}<td>{}", escaped(at(parameter, "description")));
    }
    for (_, body) in members(at(at(operation, "requestBody"), "content")) {
        let _ = write!(page, "<tr><td>body<td>{}<td>", kind(at(body, "schema")));
    }
    for (status, response) in members(at(operation, "responses")) {
        let content = members(at(response, "content")).next();
        let what = content.map(|(_, body)| kind(at(body, "schema"))).unwrap_or_default();
        let _ = write!(page, "<tr><td>{status}<td>{what}<td>{}", escaped(at(response, "description")));
    }
    page.push_str("</table>");
}

/// Renders a schema's fields, variants or values.
fn fields(page: &mut String, schema: &Value) {
    page.push_str("<table>");
    for (name, field) in members(at(schema, "properties")) {
        let description = escaped(at(field, "description"));
        let _ = write!(page, "<tr><td><code>{name}</code><td>{}<td>{description}", kind(field));
    }
    for value in items(at(schema, "enum")) {
        let _ = write!(page, "<tr><td><code>{}</code>", escaped(value));
    }
    page.push_str("</table>");
    let variants = items(at(schema, "oneOf")).map(|part| ("or", part));
    for (word, part) in variants.chain(items(at(schema, "allOf")).map(|part| ("and", part))) {
        if at(part, "properties").is_null() && at(part, "enum").is_null() {
            let _ = write!(page, "<p>{word} {}</p>", kind(part));
        } else {
            let _ = write!(page, "<p>{}</p>", escaped(at(part, "description")));
            fields(page, part);
        }
    }
}

/// Renders a schema's type, in a word or a link.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("<a href='#{name}'><code>{name}</code></a>");
    }
    if !at(schema, "items").is_null() {
        return format!("list of {}", kind(at(schema, "items")));
    }
    let values = items(at(schema, "enum")).map(escaped).collect::<Vec<_>>();
    if !values.is_empty() {
        return format!("<code>{}</code>", values.join(" | "));
    }
    let parts = items(at(schema, "oneOf")).chain(items(at(schema, "allOf"))).map(kind).filter(|kind| kind != "null");
    let parts = parts.collect::<Vec<_>>();
    if !parts.is_empty() {
        return parts.join(" or ");
    }
    match at(schema, "type") {
        Value::Array(kinds) => {
            kinds.iter().filter(|kind| *kind != "null").map(escaped).collect::<Vec<_>>().join(" or ")
        }
        kind => escaped(kind),
    }
}

/// Returns a member; null if it is missing.
fn at<'a>(value: &'a Value, name: &str) -> &'a Value {
    value.get(name).unwrap_or(&Value::Null)
}

fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Escapes a string's text for HTML; returns nothing for any other value.
fn escaped(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use muxtap_engine::{Engine, Options};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use serde_json::json;

    use super::{generated::OPEN_OF_PAGE, *};

    use crate::{App, daemon_router, guard};

    /// Returns the router's response on `path` to a method that no route has.
    async fn allowed(socket: &std::path::Path, path: &str) -> BTreeSet<String> {
        let mut stream = tokio::net::UnixStream::connect(socket).await.unwrap();
        let request = format!("TRACE {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let allow = answer.lines().find_map(|line| line.strip_prefix("allow: "));
        let allow = allow.unwrap_or_else(|| panic!("{path} is no route: {answer}"));
        // A GET route also handles HEAD.
        allow.split(',').filter(|method| *method != "HEAD").map(str::to_lowercase).collect()
    }

    #[tokio::test]
    async fn the_document_and_the_router_have_the_same_routes() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let engine = Engine::new(Options::default());
        let service = daemon_router(App::new(engine.clone(), crate::DaemonInfo::default()));
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let server = tokio::spawn(async move { axum::serve(listener, service).await });

        let source = include_str!("lib.rs");
        let routed: BTreeSet<&str> =
            source.split(".route(\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        let documented: BTreeSet<&str> = members(&DOCUMENT["paths"]).map(|(path, _)| path).collect();
        assert_eq!(routed, documented);
        assert!(routed.len() > 15);
        for (path, methods) in members(&DOCUMENT["paths"]) {
            let documented: BTreeSet<String> = members(methods).map(|(method, _)| method.to_owned()).collect();
            assert_eq!(allowed(&socket, &path.replace(['{', '}'], "")).await, documented, "{path}");
        }
        server.abort();
        engine.stop().await;
    }

    #[test]
    fn every_error_code_is_documented_with_its_status() {
        let listed: Vec<_> = items(&DOCUMENT["components"]["schemas"]["ErrorCode"]["enum"]).collect();
        assert_eq!(listed.len(), muxtap_api::ErrorCode::ALL.len());
        let waits = &DOCUMENT["paths"]["/v1/waits"]["post"]["responses"];
        let table = include_str!("../../../docs/http.md");
        for code in muxtap_api::ErrorCode::ALL {
            assert!(listed.iter().any(|word| *word == code.as_str()), "{code:?}");
            let status = code.http_status();
            let description = waits[status.to_string()]["description"].as_str().unwrap();
            assert!(description.contains(code.as_str()), "{code:?}");
            let row = format!("| {status} | `{}` |", code.as_str());
            assert!(table.contains(&row), "docs/http.md lacks {row}");
        }
    }

    #[test]
    fn every_route_has_an_example_in_the_docs() {
        let docs = include_str!("../../../docs/http.md");
        let headings: BTreeSet<String> =
            docs.lines().filter_map(|line| line.strip_prefix("### ")).map(str::to_owned).collect();
        let mut routes = BTreeSet::new();
        for (path, methods) in members(&DOCUMENT["paths"]) {
            routes.extend(members(methods).map(|(method, _)| format!("{} {path}", method.to_uppercase())));
        }
        assert_eq!(headings, routes);
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let text = DOCUMENT.to_string();
        let schemas = &DOCUMENT["components"]["schemas"];
        for name in text.split("#/components/schemas/").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            assert!(schemas[name].is_object(), "{name}");
        }
        assert!(DOCUMENT["openapi"].as_str().unwrap().starts_with("3.1"));
    }

    /// Client generators fail on these.
    #[test]
    fn every_operation_has_a_name_of_its_own_and_every_path_parameter_is_required() {
        let mut names = BTreeSet::new();
        for (path, methods) in members(&DOCUMENT["paths"]) {
            for (method, operation) in members(methods) {
                let name = operation["operationId"].as_str().unwrap();
                assert!(names.insert(name.to_owned()), "{name} is taken: {method} {path}");
                let parameters: Vec<_> = items(&operation["parameters"]).collect();
                for parameter in &parameters {
                    assert!(parameter["in"] != "path" || parameter["required"] == true, "{method} {path}: {parameter}");
                }
                for part in path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
                    let is_described = parameters.iter().any(|one| one["in"] == "path" && one["name"] == part);
                    assert!(is_described, "{method} {path}: {part}");
                }
            }
        }
    }

    #[test]
    fn the_token_is_a_security_scheme_and_open_routes_need_none() {
        assert_eq!(DOCUMENT["components"]["securitySchemes"]["token"]["scheme"], "bearer");
        assert_eq!(DOCUMENT["security"], json!([{ "token": [] }, {}]));
        for (path, methods) in members(&DOCUMENT["paths"]) {
            let is_open = members(methods).all(|(_, operation)| operation["security"] == json!([{}]));
            let is_listed = guard::UNAUTHENTICATED.contains(&path) || OPEN_OF_PAGE.contains(&path);
            assert_eq!(is_open, is_listed, "{path}");
        }
    }

    #[test]
    fn the_document_says_where_the_daemon_listens() {
        let servers: Vec<_> = items(&DOCUMENT["servers"]).map(|server| server["url"].as_str().unwrap()).collect();
        assert_eq!(servers, ["http://localhost", "http://127.0.0.1:{port}"]);
        assert_eq!(DOCUMENT["servers"][1]["variables"]["port"]["default"], "7717");
    }

    #[test]
    fn variants_with_a_name_are_schemas_of_their_own() {
        let schemas = &DOCUMENT["components"]["schemas"];
        for name in ["EventOutput", "EventPaneOpened", "EventAgent", "StreamRequestSubscribe", "StreamMessageFailed"] {
            assert!(schemas[name].is_object(), "{name}");
        }
        for (name, schema) in members(schemas) {
            for variant in items(&schema["oneOf"]) {
                assert!(variant["allOf"].is_null(), "{name}: {variant}");
            }
        }
    }

    #[test]
    fn the_page_shows_each_route_and_schema_and_loads_nothing() {
        let page = html(&DOCUMENT);
        for (path, _) in members(&DOCUMENT["paths"]) {
            assert!(page.contains(&format!(" {path}</code>")), "{path}");
        }
        for (name, _) in members(&DOCUMENT["components"]["schemas"]) {
            assert!(page.contains(&format!("<h3 id='{name}'>")), "{name}");
        }
        assert!(
            !page.contains("src=") && !page.contains("http:") && !page.contains("https:") && !page.contains("<script")
        );
    }
}
