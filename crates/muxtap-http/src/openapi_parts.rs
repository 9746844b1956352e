//! Parts of the OpenAPI document that the types do not define: errors and path parameters.

use std::collections::BTreeMap;

use utoipa::{
    IntoParams, IntoResponses,
    openapi::{
        RefOr, Required, Response as Documented,
        content::ContentBuilder,
        path::{Parameter, ParameterBuilder, ParameterIn},
        response::ResponseBuilder,
        schema::{ObjectBuilder, Ref, Type},
    },
};

/// The statuses with which a request fails, each with its codes. They are the same on every route
/// that uses the engine.
pub struct Failures;

impl IntoResponses for Failures {
    fn responses() -> BTreeMap<String, RefOr<Documented>> {
        let mut codes: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
        for code in muxtap_api::ErrorCode::ALL {
            codes.entry(code.http_status()).or_default().push(code.as_str());
        }
        let body = ContentBuilder::new().schema(Some(Ref::from_schema_name("Error"))).build();
        let response = |codes: Vec<&str>| {
            let documented = ResponseBuilder::new().description(codes.join(" or "));
            RefOr::T(documented.content("application/json", body.clone()).build())
        };
        codes.entry(413).or_default().push("RESOURCE_LIMIT (the body is too large)");
        // A server that cannot accept another connection returns this on every route.
        codes.entry(503).or_default().push("RESOURCE_LIMIT (no file descriptor is left)");
        codes.into_iter().map(|(status, codes)| (status.to_string(), response(codes))).collect()
    }
}

/// Builds a path parameter.
fn in_path(name: &str, description: &str) -> Vec<Parameter> {
    let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path);
    let text = ObjectBuilder::new().schema_type(Type::String).build();
    // The builder leaves it optional, which OpenAPI forbids for a path.
    let parameter = parameter.required(Required::True);
    vec![parameter.description(Some(description)).schema(Some(text)).build()]
}

/// The parameter `{id}` of a session, window or pane.
pub struct PathTarget;

impl IntoParams for PathTarget {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        in_path(
            "id",
            "A target: `$0`, `@1`, `%3`, `session`, `session:window` or `session:window.pane`, percent-encoded. A bare \
             number is a session's name or a pane's id, and is rejected for a window",
        )
    }
}

/// The parameter `{pane}`.
pub struct PathPane;

impl IntoParams for PathPane {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        in_path(
            "pane",
            "A pane: `%3` (percent-encoded) or `3` (rejected if a session has this name), or another target that \
             means one pane",
        )
    }
}

/// The parameter `{id}` of a wait.
pub struct PathWait;

impl IntoParams for PathWait {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        in_path("id", "The wait's id")
    }
}

/// The parameter `{id}` of a recording.
pub struct PathRecording;

impl IntoParams for PathRecording {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        in_path("id", "The recording's id")
    }
}

/// The parameter `{name}` of a rule.
#[cfg(feature = "daemon")]
pub struct PathRule;

#[cfg(feature = "daemon")]
impl IntoParams for PathRule {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        in_path("name", "The rule's name")
    }
}

/// The parameter `{id}` of a question.
pub struct PathQuestion;

impl IntoParams for PathQuestion {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        in_path("id", "The question's id")
    }
}

/// The parameter `{id}` of a device.
#[cfg(feature = "daemon")]
pub struct PathDevice;

#[cfg(feature = "daemon")]
impl IntoParams for PathDevice {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        in_path("id", "The device's id")
    }
}

/// The parameter `{name}` of a snapshot, a layout or a group.
pub struct PathName;

impl IntoParams for PathName {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        in_path("name", "The name of the snapshot, layout or group")
    }
}

/// The parameter `{id}` of an agent session.
#[cfg(feature = "daemon")]
pub struct PathAgentSession;

#[cfg(feature = "daemon")]
impl IntoParams for PathAgentSession {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        in_path("id", "The agent session: `session:PROVIDER:ID`, or `PROVIDER:ID`")
    }
}

/// The parameter `{question}` of a permission question.
#[cfg(feature = "daemon")]
pub struct PathAgentQuestion;

#[cfg(feature = "daemon")]
impl IntoParams for PathAgentQuestion {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        in_path("question", "The question's id in the session, as `q1`")
    }
}
