//! Rejects a query's parameters that the route does not have: a misspelled one would be ignored, and
//! the response would be to another request.

use std::{collections::HashMap, sync::LazyLock};

use axum::{
    extract::{MatchedPath, NestedPath, Query, Request},
    http::{Method, Uri},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use muxtap_api::decode;

use super::{error::Failure, openapi::DOCUMENT};

/// The parameters that clients may add to every request: they select the server, and not every route
/// uses one.
const OF_EVERY_ROUTE: [&str; 2] = ["socket", "from"];
/// The routes of files for browsers, whose links may have any query.
const OF_BROWSERS: [&str; 2] = ["/", "/page/{file}"];

/// The parameters of each route's methods, as in the OpenAPI document.
static KNOWN: LazyLock<HashMap<&str, HashMap<&str, Vec<&str>>>> = LazyLock::new(|| {
    let members = |value: &'static serde_json::Value| value.as_object().into_iter().flatten();
    let query = |operation: &'static serde_json::Value| {
        let all = operation.get("parameters").and_then(|all| all.as_array()).into_iter().flatten();
        let own = all.filter(|one| one.get("in").is_some_and(|place| place == "query"));
        own.filter_map(|one| one.get("name")?.as_str()).collect()
    };
    let paths = DOCUMENT.get("paths").into_iter().flat_map(members);
    let routes = paths.filter(|(path, _)| !OF_BROWSERS.contains(&path.as_str()));
    let methods = |methods| members(methods).map(|(method, operation)| (method.as_str(), query(operation))).collect();
    routes.map(|(path, operations)| (path.as_str(), methods(operations))).collect()
});

/// Rejects a request with an unknown parameter.
pub(super) async fn check(request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    // An embedding program may nest the routes.
    let outer = request.extensions().get::<NestedPath>().map_or("", NestedPath::as_str);
    if let Some(path) = path.and_then(|path| path.strip_prefix(outer))
        && let Some(error) = unknown(request.uri(), request.method(), path)
    {
        return Failure::from(error).into_response();
    }
    next.run(request).await
}

/// Returns the error for a query's first unknown parameter.
fn unknown(uri: &Uri, method: &Method, path: &str) -> Option<muxtap_api::Error> {
    uri.query()?;
    // A query that cannot be parsed is the route's to reject.
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?;
    let mut names =
        pairs.iter().map(|(name, _)| name.as_str()).filter(|name| !OF_EVERY_ROUTE.contains(name)).peekable();
    // Most requests have no others: the document is not built for them.
    names.peek()?;
    let method = if method == Method::HEAD { "get".to_owned() } else { method.as_str().to_ascii_lowercase() };
    let known = KNOWN.get(path)?.get(method.as_str())?;
    let name = names.find(|name| !known.contains(name))?;
    Some(decode::unknown_parameter(name, known))
}
