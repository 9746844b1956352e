//! The tool `snapshot`, of the set of that name.

use muxtap_base::plain;
use muxtap_snapshot::{
    Store,
    answers::{
        DiffQuery, GroupRequest, ImportFormat, ImportRequest, LayoutRequest, LayoutRestoreRequest, RestoreRequest,
        SaveRequest, ShowQuery,
    },
    groups, layouts,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{CallContext, args::one_or_many, output::ToolOutput, tools::hex_shown, truncate::PAGE_CHARS};

use muxtap_api::{DoneAnswer, Error, InputRequest, Result, Tier};

/// The name of the tool.
pub const NAME: &str = "snapshot";

/// Actions of `snapshot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Save sessions.
    Save,
    /// List snapshots.
    List,
    /// Show a snapshot.
    Show,
    /// Compare snapshots.
    Diff,
    /// Create a snapshot's sessions.
    Restore,
    /// Remove a snapshot.
    Remove,
    /// Save another program's file.
    Import,
    /// Save a window's layout.
    SaveLayout,
    /// List layouts.
    ListLayouts,
    /// Apply a layout to a window.
    RestoreLayout,
    /// Remove a layout.
    RemoveLayout,
    /// Set a group's panes.
    SetGroup,
    /// List groups.
    ListGroups,
    /// Remove a group.
    RemoveGroup,
    /// Type into all panes of a group.
    SendToGroup,
}

/// Arguments of `snapshot`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_excessive_bools, reason = "each is a field of the JSON that callers write")]
pub struct Snapshot {
    /// Groups are panes that get the same input
    pub action: Action,
    /// Of the snapshot, layout or group
    pub name: Option<String>,
    /// `save`, `restore`: sessions (default all); layouts: one window; `set_group`: panes
    #[serde(default, deserialize_with = "one_or_many", alias = "target")]
    pub targets: Vec<String>,
    /// `restore`: the new session's name
    pub new_name: Option<String>,
    /// `restore`: restart the panes' programs, type imported lines, set imported variables
    /// (default: shells)
    #[serde(default)]
    pub run: bool,
    /// `diff`: another snapshot (default: now)
    pub with: Option<String>,
    /// `save`: lines of history to keep
    #[serde(default)]
    pub history: u32,
    /// `save`: variables that are safe to keep
    #[serde(default, deserialize_with = "one_or_many")]
    pub env: Vec<String>,
    /// Replace one of that name
    #[serde(default)]
    pub replace: bool,
    /// `import`: a file of tmuxp, tmuxinator, smug or tmux-resurrect; `send_to_group`: typed literally
    pub text: Option<String>,
    /// `send_to_group`: keys by tmux's names, after the text
    #[serde(default, deserialize_with = "one_or_many")]
    pub keys: Vec<String>,
    /// `set_group`: also tmux's synchronize-panes
    #[serde(default)]
    pub synchronize: bool,
    /// `import`: the file's program (default: detected)
    #[schema(ignore)]
    pub format: Option<ImportFormat>,
    /// `restore_layout`: also restore the window's saved size
    #[serde(default)]
    #[schema(ignore)]
    pub size: bool,
    /// `send_to_group`: bytes in hexadecimal, instead of text and keys
    #[schema(ignore)]
    pub hex: Option<String>,
    /// `send_to_group`: paste the text
    #[serde(default)]
    #[schema(ignore)]
    pub paste: bool,
    /// `send_to_group`: then press Enter, once the text is taken in
    #[serde(default)]
    #[schema(ignore)]
    pub submit: bool,
    /// tmux server: name (tmux -L) or socket path (default: the caller's)
    pub server: Option<String>,
}

/// Result of `snapshot`.
#[derive(Debug, Serialize, ToSchema)]
pub struct SnapshotOutput {
    /// The response, as over HTTP.
    #[schema(value_type = Object)]
    pub answer: Value,
}

/// Calls the tool.
pub async fn call(call: &CallContext, args: Snapshot) -> Result<ToolOutput> {
    let store = || {
        let none = || Error::internal("the daemon has no snapshot directory; this is a bug in muxtap");
        call.rooms.snapshots.clone().ok_or_else(none)
    };
    let server = || call.server(args.server.as_deref());
    let name = || args.name.clone().ok_or_else(|| Error::invalid("name: missing; this action requires it"));
    let window = || match args.targets.as_slice() {
        [window] => Ok(window.clone()),
        _ => Err(Error::invalid("targets: expected one window")),
    };
    let (tier, what) = match args.action {
        Action::List | Action::Show | Action::Diff | Action::ListLayouts | Action::ListGroups => (Tier::Read, ""),
        Action::Save | Action::SaveLayout | Action::Import => (Tier::Create, "Save"),
        Action::Restore | Action::RestoreLayout => (Tier::Create, "Restore"),
        Action::Remove | Action::RemoveLayout | Action::RemoveGroup => (Tier::Create, "Remove"),
        Action::SetGroup => (Tier::Create, "Create a group of panes"),
        Action::SendToGroup => (Tier::Input, "Type into all panes of a group"),
    };
    call.engine.authorize(tier)?;
    if tier != Tier::Read {
        let mut question = format!("{what} {:?}", args.name.as_deref().unwrap_or_default());
        if args.action == Action::Restore && args.run && call.client.confirm.contains(&tier) {
            // A person consents to exactly what is shown.
            for line in store()?.what_runs(&name()?, &args.targets).await? {
                question.push_str("\n- ");
                question.push_str(&plain::name(&line));
            }
        }
        if args.action == Action::SendToGroup {
            question.push_str(&hex_shown(args.hex.as_deref()));
        }
        call.confirm(tier, &question).await?;
    }
    let done = || Ok(DoneAnswer { ok: true });
    match args.action {
        Action::List => output(store()?.list().await),
        Action::Save => {
            let request = SaveRequest {
                name: name()?,
                sessions: args.targets.clone(),
                history: args.history,
                env: args.env.clone(),
                replace: args.replace,
            };
            output(store()?.save(&server()?, &request).await)
        }
        Action::Show => {
            let mut file = store()?.show(&name()?, &ShowQuery::default()).await?;
            drop_history(&mut file);
            output(Ok(file))
        }
        Action::Diff => output(store()?.diff(&server()?, &name()?, &DiffQuery { with: args.with.clone() }).await),
        Action::Restore => {
            let request = RestoreRequest {
                sessions: args.targets.clone(),
                name: args.new_name.clone(),
                run: args.run,
                caller_env: call.client.env.clone(),
            };
            output(store()?.restore(&server()?, &name()?, &request).await)
        }
        Action::Remove => {
            Store::forget(&store()?, &name()?).await?;
            output(done())
        }
        Action::Import => {
            let text = args.text.clone().ok_or_else(|| Error::invalid("text: missing; expected the file's text"))?;
            let request = ImportRequest { text, format: args.format, replace: args.replace };
            output(store()?.import(&name()?, &request).await)
        }
        Action::SaveLayout => {
            let request = LayoutRequest { name: name()?, window: window()?, replace: args.replace };
            output(layouts::save(&store()?, &server()?, &request).await)
        }
        Action::ListLayouts => output(layouts::list(&store()?).await),
        Action::RestoreLayout => {
            let request = LayoutRestoreRequest { window: window()?, size: args.size };
            output(layouts::restore(&store()?, &server()?, &name()?, &request).await)
        }
        Action::RemoveLayout => {
            layouts::remove(&store()?, &name()?).await?;
            output(done())
        }
        Action::SetGroup => {
            let request = GroupRequest { targets: args.targets.clone(), synchronize: args.synchronize };
            output(groups::set(&server()?, &name()?, &request).await)
        }
        Action::ListGroups => output(groups::list(&server()?).await),
        Action::RemoveGroup => {
            groups::remove(&server()?, &name()?).await?;
            output(done())
        }
        Action::SendToGroup => send(call, &args, &name()?).await,
    }
}

/// Types into all panes of a group, except the caller's own.
async fn send(call: &CallContext, args: &Snapshot, name: &str) -> Result<ToolOutput> {
    let server = call.server(args.server.as_deref())?;
    let own = call.client.own_pane(server.socket());
    let group = groups::list(&server).await?.groups.into_iter().find(|group| group.name == name);
    if let (Some(own), Some(group)) = (own, group)
        && group.panes.iter().any(|pane| pane.to_string() == own)
    {
        return Err(Error::invalid(format!("{own} of group {name:?} is where you run; nothing was sent")));
    }
    let keys = (!args.keys.is_empty()).then(|| args.keys.clone());
    let Snapshot { text, hex, paste, submit, .. } = args;
    let (first, then) = match (text, &keys, hex) {
        (None, None, None) => return Err(Error::invalid("text, keys, hex: expected at least one")),
        // Text, then keys: two inputs, as two calls would be.
        (Some(text), Some(_), None) if !submit => {
            (InputRequest { text: Some(text.clone()), paste: *paste, ..InputRequest::default() }, keys)
        }
        _ => {
            let (text, hex) = (text.clone(), hex.clone());
            (InputRequest { text, keys, hex, paste: *paste, submit: *submit, run: None }, None)
        }
    };
    // Output in reply to the text also counts.
    let answer = groups::input(&server, name, &first).await?;
    if then.is_some() {
        groups::input(&server, name, &InputRequest { keys: then, ..InputRequest::default() }).await?;
    }
    output(Ok(answer))
}

fn output(answer: Result<impl Serialize>) -> Result<ToolOutput> {
    let answer = serde_json::to_value(answer?).map_err(|error| Error::internal(error.to_string()))?;
    let json = answer.to_string();
    let text = shown(&plain::json(&json));
    Ok(ToolOutput::new(text, &SnapshotOutput { answer }))
}

/// Returns the beginning of a JSON text, and how to get the rest.
fn shown(json: &str) -> String {
    let Some((at, _)) = json.char_indices().nth(PAGE_CHARS) else { return json.to_owned() };
    let begin = json.get(..at).unwrap_or_default();
    let cut = json.chars().count() - PAGE_CHARS;
    format!("{begin}\n[… {cut} characters after this; diff shows only changes, and structured content is whole]")
}

/// Removes the panes' output: a model reads a pane's text with other tools.
fn drop_history(file: &mut Value) {
    match file {
        Value::Array(items) => items.iter_mut().for_each(drop_history),
        Value::Object(fields) => {
            if let Some(Value::Object(own)) = fields.get_mut("muxtap") {
                own.remove("history");
            }
            fields.values_mut().for_each(drop_history);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_answer_keeps_its_beginning_and_says_how_to_get_the_rest() {
        assert_eq!(shown("{}"), "{}");
        let long = format!("{{{}}}", "ä".repeat(2 * PAGE_CHARS));
        let text = shown(&long);
        assert!(text.starts_with("{ää") && text.contains("\n[… 16002 characters after this; "), "{text}");
    }
}
