//! The form of results: a text for models; for programs that request it, also JSON.
//!
//! Clients such as Claude Code and Codex give their model only the structured content of a result
//! that has one: JSON with escaped line ends, several times as long as the text.

use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::{
    RoleServer,
    model::{CallToolResult, Tool},
    service::RequestContext,
};
use serde_json::Value;

/// The field of a request's `_meta` by which a program requests structured content, and of
/// `tools/list` its schemas.
const STRUCTURED: &str = "muxtap/structured";

/// The form of results that a session's last list of tools described: a client that knows a tool's
/// output schema expects structured content of each call.
#[derive(Debug, Default)]
pub(super) struct Listed(AtomicBool);

impl Listed {
    pub(super) fn set(&self, form: Form) {
        self.0.store(form == Form::Structured, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Form {
        if self.0.load(Ordering::Relaxed) { Form::Structured } else { Form::Text }
    }
}

/// The form that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Structured,
}

impl Form {
    /// Returns the form that a request asks for, or else `usual`.
    pub(super) fn of(context: &RequestContext<RoleServer>, usual: Self) -> Self {
        Self::of_meta(context.meta.get(STRUCTURED), usual)
    }

    fn of_meta(value: Option<&Value>, usual: Self) -> Self {
        match value.and_then(Value::as_bool) {
            Some(true) => Self::Structured,
            Some(false) => Self::Text,
            None => usual,
        }
    }

    /// Returns a result in this form.
    pub(super) fn result(self, mut result: CallToolResult) -> CallToolResult {
        if self == Self::Text {
            result.structured_content = None;
        }
        result
    }

    /// Returns tools as described to a client that requests this form: a tool with an output schema
    /// must return structured content.
    pub(super) fn tools(self, mut tools: Vec<Tool>) -> Vec<Tool> {
        if self == Self::Text {
            for tool in &mut tools {
                tool.output_schema = None;
            }
        }
        tools
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_true_requests_a_structure() {
        assert_eq!(Form::of_meta(Some(&json!(true)), Form::Text), Form::Structured);
        for other in [None, Some(json!(false)), Some(json!("true")), Some(Value::Null)] {
            assert_eq!(Form::of_meta(other.as_ref(), Form::Text), Form::Text, "{other:?}");
        }
        // A session's own form applies to a request that names none.
        let listed = Listed::default();
        assert_eq!(listed.get(), Form::Text);
        listed.set(Form::Structured);
        assert_eq!(Form::of_meta(None, listed.get()), Form::Structured);
        assert_eq!(Form::of_meta(Some(&json!(false)), listed.get()), Form::Text);
    }

    #[test]
    fn a_schema_and_structured_content_come_together() {
        for (form, has) in [(Form::Text, false), (Form::Structured, true)] {
            let tools = form.tools(crate::tools::TOOLS.clone());
            assert!(tools.iter().all(|tool| tool.output_schema.is_some() == has), "{form:?}");
            let result = form.result(CallToolResult::structured(json!({"ok": true})));
            assert_eq!(result.structured_content.is_some(), has, "{form:?}");
        }
    }
}
