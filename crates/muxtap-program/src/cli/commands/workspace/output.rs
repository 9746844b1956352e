//! Responses of `workspace`, and its format strings.

use muxtap_devices::{
    hybrid::Changed,
    workspace::{ContentRef, Layout, Pane},
};
use serde_json::{Map, Value, json};

use super::text;

use crate::{
    api::{Error, Result, WorkspaceAnswer},
    cli::output::Table,
};

/// Builds the response to a change.
pub(super) fn change_answer(changed: Changed, terminal: Option<String>, key: Option<String>) -> Value {
    let mut answer = Map::new();
    answer.insert("appliedRevision".into(), changed.applied_revision.into());
    let rest = [
        ("tab", changed.tab),
        ("pane", changed.pane),
        ("terminalId", terminal.map(Value::from)),
        ("idempotencyKey", key.map(Value::from)),
    ];
    answer.extend(rest.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    answer.into()
}

/// Describes a change in words: the affected ids.
pub(super) fn change_words(answer: &Value) -> String {
    let id = |name: &str| answer.get(name).map(|entity| text(entity, "id")).filter(|id| !id.is_empty());
    let named =
        [("tab", id("tab")), ("pane", id("pane")), ("terminal", answer.get("terminalId").and_then(Value::as_str))];
    let words: Vec<String> = named.into_iter().filter_map(|(kind, id)| Some(format!("{kind}:{}", id?))).collect();
    if words.is_empty() { String::new() } else { words.join(" ") + "\n" }
}

/// Builds the response of `list-tabs` and `list-panes`.
pub(super) fn list_answer(workspace: &WorkspaceAnswer, name: &str, entities: Vec<Value>) -> Value {
    let mut answer = json!({
        "workspaceRevision": workspace.workspace_revision,
        "source": workspace.source,
        "capturedAt": workspace.captured_at,
        "ownerOnline": workspace.owner_online,
        "ownerLastSeenAt": workspace.owner_last_seen_at,
    });
    if let Some(answer) = answer.as_object_mut() {
        answer.insert(name.into(), entities.into());
    }
    answer
}

/// A column of a table: its title and the value of a row.
type Column = (&'static str, fn(&Value) -> String);

/// Draws a table of objects.
pub(super) fn table(rows: &Value, name: &str, columns: [Column; 4]) -> String {
    let mut table = Table::new(&columns.map(|(title, _)| title));
    for row in rows.get(name).and_then(Value::as_array).into_iter().flatten() {
        table.row(&columns.map(|(_, cell)| cell(row)));
    }
    table.render()
}

/// Returns a word for a pane's content.
pub(super) fn shown(pane: &Value) -> String {
    let content = pane.get("contentRef");
    let word = |name: &str| content.map(|content| text(content, name)).filter(|id| !id.is_empty());
    if let Some(terminal) = word("terminalId") {
        return format!("terminal:{terminal}");
    }
    if let Some(session) = word("sessionRef") {
        return format!("session:{session}");
    }
    [text(pane, "url"), text(pane, "file")].into_iter().find(|shown| !shown.is_empty()).unwrap_or_default().to_owned()
}

/// Checks the names in a format. Error: `INVALID_ARGUMENT`.
pub(super) fn check_format(wanted: &str) -> Result<()> {
    filled(wanted, |name| NAMES.contains(&name).then(String::new)).map(drop)
}

/// The names in a format.
const NAMES: [&str; 9] = [
    "deviceId",
    "tabId",
    "tabTitle",
    "paneId",
    "paneKind",
    "terminalId",
    "sessionRef",
    "ownerOnline",
    "workspaceRevision",
];

/// Expands a format: `%deviceId`, `%tabId` and so on; `%%` is a percent sign. Error:
/// `INVALID_ARGUMENT` for an unknown name.
pub(super) fn format(
    format: &str,
    workspace: &WorkspaceAnswer,
    layout: &Layout,
    pane: Option<&Pane>,
) -> Result<String> {
    let tab = pane.and_then(|pane| layout.tab(&pane.tab_id));
    let value = |name: &str| {
        let content = pane.and_then(|pane| pane.content_ref.as_ref());
        Some(match name {
            "deviceId" => workspace.device_id.clone(),
            "tabId" => tab.map(|tab| tab.id.clone()).unwrap_or_default(),
            "tabTitle" => tab.map(|tab| tab.title.clone()).unwrap_or_default(),
            "paneId" => pane.map(|pane| pane.id.clone()).unwrap_or_default(),
            "paneKind" => pane.map(|pane| pane.kind.as_str().to_owned()).unwrap_or_default(),
            "terminalId" => match content {
                Some(ContentRef::TerminalId(id)) => id.clone(),
                _ => String::new(),
            },
            "sessionRef" => match content {
                Some(ContentRef::SessionRef(id)) => id.clone(),
                _ => String::new(),
            },
            "ownerOnline" => workspace.owner_online.to_string(),
            "workspaceRevision" => workspace.workspace_revision.to_string(),
            _ => return None,
        })
    };
    filled(format, value)
}

/// Replaces each `%NAME` by its value.
fn filled(format: &str, value: impl Fn(&str) -> Option<String>) -> Result<String> {
    let mut filled = String::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('%') {
        filled.push_str(before);
        if let Some(after) = after.strip_prefix('%') {
            filled.push('%');
            rest = after;
            continue;
        }
        let name: String = after.chars().take_while(char::is_ascii_alphanumeric).collect();
        let found = value(&name)
            .ok_or_else(|| Error::invalid(format!("-p: unknown %{name}; expected %{} and %%", NAMES.join(" %"))))?;
        filled.push_str(&found);
        rest = after.get(name.len()..).unwrap_or_default();
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ErrorCode;

    #[test]
    fn a_format_is_filled_and_an_unknown_word_refused() {
        let workspace = json!({
            "deviceId": "d", "workspaceRevision": 4, "activeTabId": "t1", "source": "live", "capturedAt": 1,
            "ownerOnline": true, "ownerLastSeenAt": 1,
            "tabs": [{"id": "t1", "ownerDeviceId": "d", "title": "a b", "status": "ready", "createdAt": 1,
                      "updatedAt": 1, "layoutRevision": 4, "activePaneId": "p2", "layout": {"pane": "p2"}}],
            "panes": [{"id": "p2", "tabId": "t1", "ownerDeviceId": "d", "kind": "terminal", "status": "ready",
                       "contentRef": {"terminalId": "%3"}, "updatedAt": 1, "layoutRevision": 4}],
        });
        let answer: WorkspaceAnswer = serde_json::from_value(workspace.clone()).unwrap();
        let layout: Layout = serde_json::from_value(workspace).unwrap();
        let filled = |text: &str| format(text, &answer, &layout, layout.pane("p2"));
        assert_eq!(
            filled("%deviceId/%tabId/%tabTitle/%paneId/%paneKind/%terminalId/%sessionRef/%ownerOnline").unwrap(),
            "d/t1/a b/p2/terminal/%3//true"
        );
        assert_eq!(filled("100%% at %workspaceRevision.").unwrap(), "100% at 4.");
        for wrong in ["%", "%nope", "% ", "%tabIdx", "%%%"] {
            assert_eq!(filled(wrong).unwrap_err().code, ErrorCode::InvalidArgument, "{wrong}");
        }
        assert_eq!(format("%paneId%sessionRef", &answer, &layout, None).unwrap(), "");
    }
}
