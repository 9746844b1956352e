//! The page's own files, which are built into the program from `web/dist` (`page` is a link to it: a
//! published crate contains its own files alone).

use std::sync::LazyLock;

use axum::{
    extract::Path,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use muxtap_api::Error;
use sha2::{Digest as _, Sha256};

use crate::error::Failure;

/// The page's content security policy: it loads only its own files, and frames that a person opens.
const POLICY: &str = "default-src 'self'; connect-src 'self'; frame-src http: https:; object-src 'none'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file: its name, its type and its bytes, gzipped.
struct File {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($name:literal: $kind:literal),* $(,)?) => {
        &[$(File {
            name: $name,
            kind: $kind,
            bytes: include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/page/", $name, ".gz")),
        }),*]
    };
}

const FILES: &[File] = files! {
    "index.html": "text/html; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "editor.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "manifest.webmanifest": "application/manifest+json",
};

/// The files' tags, in their order.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let tag = |file: &File| {
        let digest = Sha256::digest(file.bytes);
        let hex = digest.iter().take(8).map(|byte| format!("{byte:02x}"));
        format!("\"{}\"", hex.collect::<String>())
    };
    FILES.iter().map(tag).collect()
});

/// Returns the page.
#[utoipa::path(
    get, path = "/", operation_id = "show_page", tag = "page",
    responses((status = 200, description = "The page", content_type = "text/html"))
)]
pub async fn index(headers: HeaderMap) -> Response {
    serve("index.html", &headers)
}

/// Returns one of the page's files.
#[utoipa::path(
    get, path = "/page/{file}", operation_id = "get_page_file", tag = "page",
    params(("file" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "The file, gzipped"),
        (status = 404, description = "Unknown file", body = Error)
    )
)]
pub async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    serve(&name, &headers)
}

fn serve(name: &str, headers: &HeaderMap) -> Response {
    let found = FILES.iter().zip(TAGS.iter()).find(|(file, _)| file.name == name);
    let Some((file, tag)) = found else {
        return Failure::from(Error::not_found(format!("the page has no file {name:?}"))).into_response();
    };
    let is_known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = if is_known { StatusCode::NOT_MODIFIED.into_response() } else { file.bytes.into_response() };
    let headers = response.headers_mut();
    let mut say = |name, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    say(header::CONTENT_TYPE, file.kind);
    say(header::CONTENT_ENCODING, "gzip");
    say(header::ETAG, tag);
    // A browser then fetches a newer muxtap's files at once.
    say(header::CACHE_CONTROL, "no-cache");
    say(header::CONTENT_SECURITY_POLICY, POLICY);
    say(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    say(header::REFERRER_POLICY, "no-referrer");
    say(header::X_FRAME_OPTIONS, "DENY");
    response
}
