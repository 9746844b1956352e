//! Imports files of tmuxp, tmuxinator, smug and tmux-resurrect as snapshots.
//!
//! The commands of the first three become lines for the shell; tmux-resurrect saves programs.

use muxtap_api::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    file::{self, Room, at, bytes_of, items, lines, string, within},
    layout,
    limits::JSON_VALUES,
    model::{Pane, Session, Snapshot, Window},
    resurrect, yaml,
};

/// The program whose file is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImportFormat {
    /// tmuxp, in JSON or YAML; also muxtap's own files.
    Tmuxp,
    /// tmuxinator.
    Tmuxinator,
    /// smug.
    Smug,
    /// tmux-resurrect: the file that its link `last` names.
    Resurrect,
}

/// The result of parsing a file.
#[derive(Debug)]
pub struct Imported {
    /// The imported snapshot.
    pub snapshot: Snapshot,
    /// The keys that run something and were not imported.
    pub left_out: Vec<String>,
}

/// Keys that are not imported, because one of the programs runs a command or sets an option for
/// them.
///
/// Those of a file, of a window and of a pane.
const NOT_KEPT: [&[&str]; 3] = [
    &[
        "before_script",
        "before_start",
        "cli_args",
        "global_options",
        "on_project_exit",
        "on_project_first_start",
        "on_project_restart",
        "on_project_start",
        "on_project_stop",
        "options",
        "plugins",
        "post",
        "pre",
        "shell_command_before",
        "socket_name",
        "socket_path",
        "stop",
        "tmux_command",
        "tmux_options",
    ],
    &["environment", "options", "options_after", "shell", "window_shell"],
    &["environment", "shell"],
];

/// Returns the keys of a file that run something and are not imported.
fn left_out(file: &Value) -> Vec<String> {
    let mut found = std::collections::BTreeSet::new();
    let [of_file, of_window, of_pane] = NOT_KEPT;
    let mut look = |value: &Value, keys: &[&str]| {
        // One of the options is imported.
        let is_kept = |key: &str| {
            let fields = at(value, key).as_object();
            key.starts_with("options") && fields.is_some_and(|fields| fields.keys().eq(["synchronize-panes"]))
        };
        found.extend(keys.iter().filter(|key| !at(value, key).is_null() && !is_kept(key)).map(|key| (*key).to_owned()));
    };
    let sessions = std::iter::once(file).chain(items(at(at(file, file::OWN), "sessions")));
    for session in sessions {
        look(session, of_file);
        for window in items(at(session, "windows")) {
            look(window, of_window);
            items(at(window, "panes")).for_each(|pane| look(pane, of_pane));
        }
    }
    found.into_iter().collect()
}

/// Parses a file. Without a format, its keys decide; the format is returned.
///
/// Error: `INVALID_ARGUMENT`, with the place.
pub fn read(text: &str, format: Option<ImportFormat>) -> Result<(ImportFormat, Imported)> {
    if format.map_or_else(|| resurrect::is_it(text), |format| format == ImportFormat::Resurrect) {
        let snapshot = file::read(&file::write(&resurrect::read(text)?))?;
        return Ok((ImportFormat::Resurrect, Imported { snapshot, left_out: Vec::new() }));
    }
    if text.contains("<%") && format != Some(ImportFormat::Tmuxp) {
        return Err(Error::invalid("text: a template (ERB, `<% … %>`) is not supported; import its output"));
    }
    check_values(text)?;
    // JSON first: YAML's limits are tighter, and its errors less clear.
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) if text.trim_start().starts_with('{') && format == Some(ImportFormat::Tmuxp) => {
            return Err(Error::invalid(format!("text: invalid JSON: {error}")));
        }
        Err(_) => yaml::read(text)?,
    };
    let Some(format) = format.or_else(|| guess(&value)) else {
        return Err(Error::invalid(
            "text: no session_name (tmuxp), name and windows (tmuxinator), session (smug) or lines of panes \
             (tmux-resurrect); set format",
        ));
    };
    let mut value = value;
    let left_out = left_out(&value);
    drop_unknown_layouts(&mut value);
    let snapshot = match format {
        ImportFormat::Tmuxp => file::read(&value)?,
        ImportFormat::Tmuxinator => file::read(&file::write(&tmuxinator(&value)?))?,
        ImportFormat::Smug | ImportFormat::Resurrect => file::read(&file::write(&smug(&value)?))?,
    };
    Ok((format, Imported { snapshot, left_out }))
}

/// Checks the number of values in a JSON text before they are built: two bytes of it may be one
/// value.
///
/// Error: `INVALID_ARGUMENT`.
fn check_values(text: &str) -> Result<()> {
    let (mut values, mut in_text, mut escaped) = (0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b',' | b'[' | b'{' if !in_text => values += 1,
            _ => {}
        }
    }
    if values > JSON_VALUES {
        return Err(Error::invalid(format!("text: {values} values; at most {JSON_VALUES}")));
    }
    Ok(())
}

/// Removes layouts that not every tmux knows (`main-vertical-mirrored`); their panes are tiled
/// instead.
fn drop_unknown_layouts(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(drop_unknown_layouts),
        Value::Object(fields) => {
            if fields.get("layout").and_then(Value::as_str).is_some_and(|layout| !layout::is_known(layout)) {
                fields.remove("layout");
            }
            fields.values_mut().for_each(drop_unknown_layouts);
        }
        _ => {}
    }
}

fn guess(value: &Value) -> Option<ImportFormat> {
    let has = |name: &str| value.get(name).is_some();
    if has("session_name") {
        Some(ImportFormat::Tmuxp)
    } else if has("session") {
        Some(ImportFormat::Smug)
    } else if (has("name") || has("project_name")) && (has("windows") || has("tabs")) {
        Some(ImportFormat::Tmuxinator)
    } else {
        None
    }
}

fn named(value: &Value, names: &[&str]) -> Result<String> {
    let found = names.iter().map(|name| file::scalar(at(value, name))).find(|name| !name.is_empty());
    // tmux replaces these characters in a session's name.
    let name = found.ok_or_else(|| Error::invalid(format!("text: missing {}", names.join(" or "))))?;
    Ok(name.replace([':', '.'], "_"))
}

/// Parses tmuxinator's format:
/// `{name, root, pre_window, startup_window, windows: [{NAME: COMMANDS | {layout, root, panes}}]}`.
fn tmuxinator(value: &Value) -> Result<Snapshot> {
    let root = [at(value, "root"), at(value, "project_root")].into_iter().map(string).find(|root| !root.is_empty());
    let root = root.unwrap_or_default();
    let before: Vec<String> =
        ["pre_window", "rbenv", "rvm", "pre_tab"].iter().flat_map(|name| prefixed(name, at(value, name))).collect();
    let list = if at(value, "windows").is_null() { at(value, "tabs") } else { at(value, "windows") };
    let mut room = Room::default();
    let windows = items(list).map(|window| tmuxinator_window(window, &root, &before, &mut room));
    let mut windows = windows.collect::<Result<Vec<Window>>>()?;
    let startup = file::scalar(at(value, "startup_window"));
    focus(&mut windows, &startup);
    if let Ok(pane) = file::scalar(at(value, "startup_pane")).parse::<usize>() {
        let current = windows.iter_mut().find(|window| window.current);
        for (number, each) in current.into_iter().flat_map(|window| window.panes.iter_mut().enumerate()) {
            each.active = number == pane;
        }
    }
    Ok(of(named(value, &["name", "project_name"])?, root, windows))
}

/// Returns the lines of a tmuxinator setting that precede a window's own lines.
fn prefixed(name: &str, value: &Value) -> Vec<String> {
    match name {
        "rbenv" => lines(value).into_iter().map(|version| format!("rbenv shell {version}")).collect(),
        "rvm" => lines(value).into_iter().map(|version| format!("rvm use {version}")).collect(),
        _ => lines(value),
    }
}

fn tmuxinator_window(window: &Value, root: &str, before: &[String], room: &mut Room) -> Result<Window> {
    room.window()?;
    let (name, content) = match window.as_object().and_then(|fields| fields.iter().next()) {
        Some((name, content)) => (name.clone(), content),
        None => (file::scalar(window), &Value::Null),
    };
    let pane = |directory: &str, own: Vec<String>| Pane {
        directory: directory.to_owned(),
        lines: before.iter().cloned().chain(own).collect(),
        ..Pane::default()
    };
    let Value::Object(_) = content else {
        // A list of commands is one pane, into which all of them are typed.
        room.panes(&Value::Null, root.len() + bytes_of(before))?;
        return Ok(Window { name, panes: vec![pane(root, lines(content))], ..Window::default() });
    };
    let directory = within(root, &string(at(content, "root")));
    let pre = lines(at(content, "pre"));
    room.panes(at(content, "panes"), directory.len() + bytes_of(before) + bytes_of(&pre))?;
    let panes = items(at(content, "panes")).map(|each| {
        // `TITLE: COMMANDS` names a pane; an object has no other meaning here.
        let titled = each.as_object().and_then(|fields| fields.iter().next());
        let (title, own) = titled.map_or((String::new(), each), |(title, own)| (title.clone(), own));
        Pane { title, ..pane(&directory, pre.iter().cloned().chain(lines(own)).collect()) }
    });
    let mut panes: Vec<Pane> = panes.collect();
    if panes.is_empty() {
        panes.push(pane(&directory, pre));
    }
    let synchronized = !matches!(at(content, "synchronize"), Value::Null | Value::Bool(false));
    Ok(Window { name, layout: string(at(content, "layout")), synchronized, panes, ..Window::default() })
}

/// Parses smug's format:
/// `{session, root, env, windows: [{name, root, layout, commands, panes: [{root, commands}]}]}`.
fn smug(value: &Value) -> Result<Snapshot> {
    let root = string(at(value, "root"));
    let (mut windows, mut room): (Vec<Window>, _) = (Vec::new(), Room::default());
    for window in items(at(value, "windows")) {
        room.window()?;
        let directory = within(&root, &string(at(window, "root")));
        room.panes(at(window, "panes"), directory.len())?;
        // The first pane is the window's own; the listed ones are split off.
        let first = Pane { directory: directory.clone(), lines: lines(at(window, "commands")), ..Pane::default() };
        let more = items(at(window, "panes")).map(|pane| Pane {
            directory: within(&directory, &string(at(pane, "root"))),
            lines: lines(at(pane, "commands")),
            ..Pane::default()
        });
        windows.push(Window {
            name: file::scalar(at(window, "name")),
            current: file::truth(at(window, "selected")),
            layout: string(at(window, "layout")),
            panes: std::iter::once(first).chain(more).collect(),
            ..Window::default()
        });
    }
    if !windows.iter().any(|window| window.current) {
        focus(&mut windows, "");
    }
    let mut snapshot = of(named(value, &["session"])?, root, windows);
    if let (Some(session), Some(env)) = (snapshot.sessions.first_mut(), at(value, "env").as_object()) {
        session.environment = env.iter().map(|(name, value)| (name.clone(), file::scalar(value))).collect();
    }
    Ok(snapshot)
}

/// Makes the window with this name or number the current one, or else the first.
fn focus(windows: &mut [Window], wanted: &str) {
    let by_name = windows.iter().position(|window| window.name == wanted && !wanted.is_empty());
    let at = by_name.or_else(|| wanted.parse().ok().filter(|&at: &usize| at < windows.len())).unwrap_or_default();
    if let Some(window) = windows.get_mut(at) {
        window.current = true;
    }
}

fn of(name: String, directory: String, mut windows: Vec<Window>) -> Snapshot {
    for window in &mut windows {
        if !window.panes.iter().any(|pane| pane.active)
            && let Some(first) = window.panes.first_mut()
        {
            first.active = true;
        }
    }
    Snapshot { saved: String::new(), sessions: vec![Session { name, directory, windows, ..Session::default() }] }
}
