//! Generates the OpenAPI document from the types and the routes.

use serde_json::{Map, Value, json};
use utoipa::OpenApi;

use super::{at, items};
#[cfg(feature = "daemon")]
use crate::{approvals, mcp, peer, replace, snapshots, status_events, when};
use crate::{capability, guard, hosts, recordings, routes, stream};

/// The routes of `router`.
#[derive(OpenApi)]
#[openapi(
    info(title = "muxtap", description = "Waits, since-reads and captures of a tmux server that never poll."),
    paths(
        routes::health,
        routes::metrics,
        routes::list_servers,
        routes::list_sessions,
        routes::new_session,
        routes::patch_session,
        routes::kill_session,
        routes::list_windows,
        routes::new_window,
        routes::patch_window,
        routes::kill_window,
        routes::get_session,
        routes::get_window,
        routes::get_pane,
        routes::format,
        routes::format_list,
        routes::list_panes,
        routes::split,
        routes::patch_pane,
        routes::kill_pane,
        routes::capture,
        routes::output,
        routes::commands,
        routes::input,
        routes::run,
        routes::list_waits,
        routes::wait,
        routes::wait_result,
        routes::cancel_wait,
        routes::agents,
        routes::report_agent,
        routes::explain_agent,
        hosts::list,
        capability::run,
        recordings::list,
        recordings::start,
        recordings::one,
        recordings::stop,
        recordings::alis,
        stream::sse::stream,
        stream::ws::stream
    ),
    components(schemas(
        muxtap_api::Error,
        muxtap_api::ErrorCode,
        muxtap_api::Listed,
        muxtap_api::ReadFormat,
        muxtap_api::StreamRequest,
        muxtap_api::StreamMessage
    ))
)]
struct Routes;

/// The daemon's own routes.
#[cfg(feature = "daemon")]
#[derive(OpenApi)]
#[openapi(paths(
    super::document,
    super::page,
    routes::status,
    routes::config,
    routes::environment,
    routes::stop,
    replace::upgrade,
    replace::replace,
    hosts::add,
    hosts::forget,
    approvals::list,
    approvals::answer,
    approvals::events,
    status_events::stream,
    mcp::stdio,
    peer::open,
    peer::tool,
    snapshots::list,
    snapshots::save,
    snapshots::show,
    snapshots::import,
    snapshots::remove,
    snapshots::restore,
    snapshots::diff,
    snapshots::list_layouts,
    snapshots::save_layout,
    snapshots::remove_layout,
    snapshots::restore_layout,
    snapshots::list_groups,
    snapshots::set_group,
    snapshots::remove_group,
    snapshots::group_input,
    when::list,
    when::add,
    when::remove,
    when::log
))]
struct DaemonRoutes;

/// The routes of devices.
#[cfg(feature = "daemon")]
#[derive(OpenApi)]
#[openapi(paths(
    crate::devices::list,
    crate::devices::one,
    crate::devices::workspace,
    crate::devices::publish,
    crate::devices::rpc,
    crate::devices::login,
    crate::devices::refresh,
    crate::devices::logout,
    crate::devices::socket::open
))]
struct DeviceRoutes;

/// The routes of pages.
#[cfg(feature = "daemon")]
#[derive(OpenApi)]
#[openapi(paths(
    crate::page::files::index,
    crate::page::files::file,
    crate::page::socket::open,
    crate::page::read_file,
    crate::page::save_file,
    crate::page::code,
    crate::page::login,
    crate::page::logout
))]
struct PageRoutes;

/// Generates the document of the routes that this build has.
pub(super) fn document() -> Value {
    let routes = Routes::openapi();
    #[cfg(feature = "daemon")]
    let routes = [
        DaemonRoutes::openapi(),
        DeviceRoutes::openapi(),
        crate::sessions::AgentSessionRoutes::openapi(),
        PageRoutes::openapi(),
    ]
    .into_iter()
    .fold(routes, utoipa::openapi::OpenApi::merge_from);
    let mut document = serde_json::to_value(routes).unwrap_or_default();
    add_security(&mut document);
    add_servers(&mut document);
    name_variants(&mut document);
    document
}

/// Adds the addresses of the daemon: without one, a client generator takes the document's own.
fn add_servers(document: &mut Value) {
    let port = json!({ "default": "7717", "description": "The port of the setting `http`" });
    let servers = json!([
        { "url": "http://localhost", "description": "On the daemon's Unix socket, which `muxtap status` names" },
        {
            "url": "http://127.0.0.1:{port}",
            "description": "On a TCP port, if the setting `http` opens one",
            "variables": { "port": port }
        }
    ]);
    if let Some(document) = document.as_object_mut() {
        document.insert("servers".into(), servers);
    }
}

/// The page's routes that also need no token.
pub(super) const OPEN_OF_PAGE: [&str; 4] = ["/", "/page/{file}", "/v1/page/login", guard::REFRESH];

/// Adds which routes need a token. On the Unix socket no route needs one.
fn add_security(document: &mut Value) {
    let token = json!({
        "type": "http",
        "scheme": "bearer",
        "description": "The token that `muxtap token` prints. TCP ports require it on every route except /health, \
                        /openapi.json and /docs; the Unix socket requires none. A browser's WebSocket sends it as a \
                        subprotocol, `bearer.TOKEN`, next to `muxtap`."
    });
    if let Some(components) = document.get_mut("components").and_then(Value::as_object_mut) {
        components.insert("securitySchemes".into(), json!({ "token": token }));
    }
    if let Some(document) = document.as_object_mut() {
        document.insert("security".into(), json!([{ "token": [] }, {}]));
    }
    for path in guard::UNAUTHENTICATED.into_iter().chain(OPEN_OF_PAGE) {
        let pointer = format!("/paths/{}", path.replace('/', "~1"));
        let methods = document.pointer_mut(&pointer).and_then(Value::as_object_mut);
        for operation in methods.into_iter().flat_map(Map::values_mut).filter_map(Value::as_object_mut) {
            operation.insert("security".into(), json!([{}]));
        }
    }
}

/// Moves each named variant of a `oneOf` to a schema of its own, `EventOutput` for the variant
/// `output` of `Event`: client generators call a variant without a schema `type_3`, or cannot parse
/// one that extends another schema.
fn name_variants(document: &mut Value) {
    let Some(schemas) = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut) else { return };
    let mut named = Map::new();
    for (parent, schema) in schemas.iter_mut() {
        for variant in schema.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(name) = variant_name(variant) {
                let name = format!("{parent}{name}");
                let schema = std::mem::replace(variant, json!({ "$ref": format!("#/components/schemas/{name}") }));
                named.insert(name, schema);
            }
        }
    }
    schemas.extend(named);
}

/// Returns a variant's name: its title, or the word of its tag (`pane-opened` is `PaneOpened`).
fn variant_name(variant: &Value) -> Option<String> {
    if let Some(title) = at(variant, "title").as_str() {
        return Some(title.to_owned());
    }
    let parts = std::iter::once(variant).chain(items(at(variant, "allOf")));
    let mut tags = parts.flat_map(|part| ["type", "op"].map(|tag| at(at(at(part, "properties"), tag), "enum")));
    let word = tags.find_map(|words| items(words).next()?.as_str())?;
    let capital = |part: &str| {
        let mut letters = part.chars();
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect::<String>()
    };
    Some(word.split('-').map(capital).collect())
}
