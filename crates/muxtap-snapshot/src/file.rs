//! A snapshot's format on disk: tmuxp's, with muxtap's additions under one key.
//!
//! A tmuxp file holds one session. Further sessions of a snapshot are in its `muxtap.sessions`, in
//! the same form.

use muxtap_api::{Error, Labels, Result};
use muxtap_base::quoting::shell_word;
use serde_json::{Map, Value, json};

use super::{
    layout,
    limits::{PANE_TEXT, PANES, WINDOWS},
    model::{Pane, Session, Snapshot, Window},
};

/// The key of muxtap's additions.
pub const OWN: &str = "muxtap";
/// The version of the format under that key.
const VERSION: u64 = 1;

/// Whether tmuxp types the programs of panes. muxtap itself never types them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Programs {
    /// Programs are only in muxtap's part.
    Kept,
    /// Programs are also in tmuxp's `shell_command`.
    Typed,
}

/// Writes a snapshot.
pub fn write(snapshot: &Snapshot) -> Value {
    let mut sessions = snapshot.sessions.iter().map(|session| write_session(session, Programs::Kept));
    let mut file = sessions.next().unwrap_or_default();
    let more: Vec<Value> = sessions.collect();
    if let Some(own) = file.get_mut(OWN).and_then(Value::as_object_mut) {
        own.insert("version".into(), VERSION.into());
        own.insert("saved".into(), snapshot.saved.clone().into());
        if !more.is_empty() {
            own.insert("sessions".into(), more.into());
        }
    }
    file
}

/// Writes one session as a file of its own.
pub fn write_session(session: &Session, programs: Programs) -> Value {
    let mut own = Map::new();
    put(&mut own, "grouped_with", session.grouped_with.clone().map(Value::from));
    put(&mut own, "current", session.current.map(Value::from));
    put(&mut own, "last", session.last.map(Value::from));
    put(&mut own, "labels", text(&session.labels.to_string()));
    let windows = session.windows.iter().map(|window| write_window(window, programs));
    let mut file = Map::new();
    file.insert("session_name".into(), session.name.clone().into());
    put(&mut file, "start_directory", text(&session.directory));
    if !session.environment.is_empty() {
        file.insert("environment".into(), json!(session.environment));
    }
    file.insert("windows".into(), windows.collect::<Vec<_>>().into());
    file.insert(OWN.into(), own.into());
    file.into()
}

fn write_window(window: &Window, programs: Programs) -> Value {
    let mut own = Map::new();
    put(&mut own, "size", window.size.map(|(columns, rows)| json!([columns, rows])));
    put(
        &mut own,
        "linked",
        window.linked.as_ref().map(|(session, index)| json!({ "session": session, "index": index })),
    );
    for (name, is_so) in [
        ("last", window.last),
        ("zoomed", window.zoomed),
        ("fixed_size", window.fixed_size),
        ("auto_name", window.auto_name),
    ] {
        put(&mut own, name, is_so.then_some(Value::Bool(true)));
    }
    let mut file = Map::new();
    file.insert("window_name".into(), window.name.clone().into());
    put(&mut file, "window_index", window.index.map(Value::from));
    put(&mut file, "layout", text(&window.layout));
    put(&mut file, "focus", window.current.then_some(Value::Bool(true)));
    // tmuxp sets these after its panes are made: what it types still goes to one pane.
    put(&mut file, "options_after", window.synchronized.then(|| json!({ "synchronize-panes": "on" })));
    file.insert("panes".into(), window.panes.iter().map(|pane| write_pane(pane, programs)).collect::<Vec<_>>().into());
    file.insert(OWN.into(), own.into());
    file.into()
}

fn write_pane(pane: &Pane, programs: Programs) -> Value {
    let mut own = Map::new();
    put(&mut own, "title", text(&pane.title));
    put(&mut own, "labels", text(&pane.labels.to_string()));
    put(&mut own, "last", pane.last.then_some(Value::Bool(true)));
    put(&mut own, "argv", (!pane.argv.is_empty()).then(|| json!(pane.argv)));
    put(&mut own, "floating", pane.floating.map(|place| json!(place)));
    put(&mut own, "history", (!pane.history.is_empty()).then(|| json!(pane.history)));
    put(&mut own, "last_line", text(&pane.last_line));
    let mut lines = pane.lines.clone();
    if programs == Programs::Typed && !pane.argv.is_empty() {
        lines.push(pane.argv.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" "));
    }
    let mut file = Map::new();
    file.insert("shell_command".into(), lines.into());
    put(&mut file, "start_directory", text(&pane.directory));
    put(&mut file, "focus", pane.active.then_some(Value::Bool(true)));
    file.insert(OWN.into(), own.into());
    file.into()
}

fn text(text: &str) -> Option<Value> {
    (!text.is_empty()).then(|| text.into())
}

fn put(map: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        map.insert(name.to_owned(), value);
    }
}

/// Parses a snapshot: muxtap's own file, or any valid tmuxp file, including short forms.
///
/// Unknown keys are ignored. Error: `INVALID_ARGUMENT`, with the place.
pub fn read(file: &Value) -> Result<Snapshot> {
    let version = at(at(file, OWN), "version").as_u64().unwrap_or(VERSION);
    if version > VERSION {
        return Err(Error::invalid(format!("{OWN}.version: {version} is from a newer muxtap; expected {VERSION}")));
    }
    let mut room = Room::default();
    let mut sessions = vec![read_session(file, "", &mut room)?];
    for (number, more) in items(at(at(file, OWN), "sessions")).enumerate() {
        sessions.push(read_session(more, &format!("{OWN}.sessions[{number}]."), &mut room)?);
    }
    let snapshot = Snapshot { saved: string(at(at(file, OWN), "saved")), sessions };
    check(&snapshot)?;
    Ok(snapshot)
}

/// Checks what a restore relies on.
fn check(snapshot: &Snapshot) -> Result<()> {
    if snapshot.windows() > WINDOWS {
        return Err(Error::invalid(format!("windows: {}; at most {WINDOWS}", snapshot.windows())));
    }
    for (number, session) in snapshot.sessions.iter().enumerate() {
        let name = &session.name;
        let before = snapshot.sessions.get(..number).unwrap_or_default();
        if before.iter().any(|other| other.name == *name) {
            return Err(Error::invalid(format!("session_name: duplicate name {name:?}")));
        }
        match &session.grouped_with {
            Some(with) if !before.iter().any(|other| other.name == *with && other.grouped_with.is_none()) => {
                return Err(Error::invalid(format!(
                    "session {name:?}: grouped with {with:?}, which must come before it"
                )));
            }
            None if session.windows.is_empty() => {
                return Err(Error::invalid(format!("session {name:?}: no windows")));
            }
            _ => {}
        }
        for window in &session.windows {
            check_window(window, before)
                .map_err(|why| Error::invalid(format!("session {name:?}, window {:?}: {why}", window.name)))?;
        }
        let mut indexes: Vec<u32> = session.windows.iter().filter_map(|window| window.index).collect();
        indexes.sort_unstable();
        if indexes.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err(Error::invalid(format!("session {name:?}: two windows have the same index")));
        }
    }
    Ok(())
}

fn check_window(window: &Window, before: &[Session]) -> std::result::Result<(), String> {
    if let Some((session, index)) = &window.linked {
        let source = before.iter().find(|other| other.name == *session);
        let has_it = source.is_some_and(|other| other.windows.iter().any(|window| window.index == Some(*index)));
        return if has_it { Ok(()) } else { Err(format!("linked to {session}:{index}, which must come before it")) };
    }
    let tiled = window.panes.iter().filter(|pane| pane.floating.is_none()).count();
    if tiled == 0 || window.panes.len() > PANES {
        return Err(format!("{tiled} tiled panes and {} in all; expected 1 to {PANES}", window.panes.len()));
    }
    match layout::panes(&window.layout) {
        Some(cells) if cells != tiled => Err(format!("the layout has {cells} panes, the window {tiled}")),
        None if !window.layout.is_empty() && !layout::is_known(&window.layout) => {
            Err(format!("invalid layout {:?}: expected tmux's text with its checksum, or a name", window.layout))
        }
        _ => Ok(()),
    }
}

/// A budget for parsing a file, of which a few bytes may apply to thousands of panes.
#[derive(Default)]
pub struct Room {
    windows: usize,
    /// The size of the panes' directories and lines, in bytes.
    bytes: usize,
}

impl Room {
    /// Counts a window.
    pub fn window(&mut self) -> Result<()> {
        self.windows += 1;
        if self.windows > WINDOWS {
            return Err(Error::invalid(format!("windows: more than {WINDOWS}")));
        }
        Ok(())
    }

    /// Counts the panes of a window, each with `shared` bytes and those of its own part of the
    /// file.
    pub fn panes(&mut self, file: &Value, shared: usize) -> Result<()> {
        let count = file.as_array().map_or(1, Vec::len);
        if count > PANES {
            return Err(Error::invalid(format!("windows[{}]: {count} panes; at most {PANES}", self.windows - 1)));
        }
        self.bytes = self.bytes.saturating_add(shared.saturating_mul(count.max(1)));
        if self.bytes > PANE_TEXT {
            return Err(Error::invalid(format!(
                "windows[{}]: the directories and lines for each pane take more than {PANE_TEXT} bytes in all",
                self.windows - 1
            )));
        }
        Ok(())
    }
}

/// Returns the memory of lines, in bytes.
pub fn bytes_of(lines: &[String]) -> usize {
    lines.iter().map(|line| line.len() + size_of::<String>()).sum()
}

fn read_session(file: &Value, place: &str, room: &mut Room) -> Result<Session> {
    let name = at(file, "session_name");
    let Some(name) = name.as_str().filter(|name| !name.is_empty()) else {
        return Err(Error::invalid(format!("{place}session_name: expected a string, got {name}")));
    };
    let own = at(file, OWN);
    let directory = string(at(file, "start_directory"));
    let windows = at(file, "windows");
    if !windows.is_null() && !windows.is_array() {
        return Err(Error::invalid(format!("{place}windows: expected a list")));
    }
    let windows = items(windows).map(|window| read_window(window, &directory, room)).collect::<Result<Vec<_>>>()?;
    let variables = at(file, "environment").as_object().into_iter().flatten();
    Ok(Session {
        name: name.to_owned(),
        directory,
        environment: variables.map(|(name, value)| (name.clone(), scalar(value))).collect(),
        grouped_with: at(own, "grouped_with").as_str().map(str::to_owned),
        current: number(at(own, "current")),
        last: number(at(own, "last")),
        labels: Labels::parse(&string(at(own, "labels"))),
        windows,
    })
}

fn read_window(file: &Value, directory: &str, room: &mut Room) -> Result<Window> {
    room.window()?;
    let own = at(file, OWN);
    let directory = within(directory, &string(at(file, "start_directory")));
    let linked = at(own, "linked");
    let synchronized =
        ["options", "options_after"].iter().any(|options| truth(at(at(file, options), "synchronize-panes")));
    let before = lines(at(file, "shell_command_before"));
    room.panes(at(file, "panes"), directory.len() + bytes_of(&before))?;
    let mut panes: Vec<Pane> = items(at(file, "panes")).map(|pane| read_pane(pane, &directory)).collect();
    let is_linked = at(linked, "session").is_string();
    if panes.is_empty() && !is_linked {
        panes.push(Pane { directory: directory.clone(), ..Pane::default() });
    }
    if !panes.iter().any(|pane| pane.active)
        && let Some(first) = panes.first_mut()
    {
        first.active = true;
    }
    let mut size = items(at(own, "size")).map(number);
    let size = (size.next().flatten(), size.next().flatten());
    for pane in &mut panes {
        pane.lines.splice(0..0, before.iter().cloned());
    }
    Ok(Window {
        index: number(at(file, "window_index")),
        current: truth(at(file, "focus")),
        last: truth(at(own, "last")),
        name: string(at(file, "window_name")),
        auto_name: truth(at(own, "auto_name")),
        layout: string(at(file, "layout")),
        size: size.0.zip(size.1),
        fixed_size: truth(at(own, "fixed_size")),
        zoomed: truth(at(own, "zoomed")),
        synchronized,
        linked: at(linked, "session").as_str().map(str::to_owned).zip(number(at(linked, "index"))),
        panes,
    })
}

fn read_pane(file: &Value, directory: &str) -> Pane {
    let texts = |value: &Value| items(value).filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
    let Value::Object(_) = file else {
        return Pane { directory: directory.to_owned(), lines: lines(file), ..Pane::default() };
    };
    let own = at(file, OWN);
    let place: Vec<i64> = items(at(own, "floating")).filter_map(Value::as_i64).collect();
    Pane {
        directory: within(directory, &string(at(file, "start_directory"))),
        title: string(at(own, "title")),
        labels: Labels::parse(&string(at(own, "labels"))),
        active: truth(at(file, "focus")),
        last: truth(at(own, "last")),
        argv: texts(at(own, "argv")),
        lines: lines(at(file, "shell_command")),
        floating: place.try_into().ok(),
        history: texts(at(own, "history")),
        last_line: string(at(own, "last_line")),
    }
}

/// Returns lines for a shell from any form that tmuxp accepts: nothing, a text, a list of texts,
/// `{cmd: …}`.
///
/// tmuxp's words `blank` and `pane` mean nothing.
pub fn lines(value: &Value) -> Vec<String> {
    match value {
        Value::String(line) if matches!(line.as_str(), "" | "blank" | "pane" | "null") => Vec::new(),
        Value::String(line) => vec![line.clone()],
        Value::Array(items) => items.iter().flat_map(lines).collect(),
        Value::Object(fields) => match fields.get("cmd").or_else(|| fields.get("shell_command")) {
            Some(inner) => lines(inner),
            None => Vec::new(),
        },
        Value::Number(_) | Value::Bool(_) => vec![scalar(value)],
        Value::Null => Vec::new(),
    }
}

/// Resolves a directory against a base, unless it is absolute.
pub fn within(base: &str, directory: &str) -> String {
    match directory {
        "" | "." | "./" => base.to_owned(),
        _ if directory.starts_with(['/', '~', '$']) || base.is_empty() => directory.to_owned(),
        _ => format!("{}/{}", base.trim_end_matches('/'), directory.trim_start_matches("./")),
    }
}

/// Returns a member, or null if it is missing.
pub fn at<'a>(value: &'a Value, name: &str) -> &'a Value {
    value.get(name).unwrap_or(&Value::Null)
}

/// Returns the items of a list; empty for anything else.
pub fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns a text; empty for anything else.
pub fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns a text, number or Boolean as text.
pub fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Returns whether a value means yes.
pub fn truth(value: &Value) -> bool {
    match value {
        Value::Bool(is_so) => *is_so,
        Value::String(word) => matches!(word.as_str(), "true" | "on" | "yes" | "1"),
        Value::Number(number) => number.as_u64() == Some(1),
        _ => false,
    }
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}
