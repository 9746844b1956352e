//! Takes a snapshot: one read of tmux's lists, then the kernel's view of the programs.

use std::collections::{BTreeMap, HashMap, HashSet};

use muxtap_base::{glob::Glob, plain};
use muxtap_engine::{HUB_MARK, HUB_NAME, Server, ValueList};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{
    layout,
    limits::{HISTORY_BYTES, HISTORY_LINES},
    model::{Pane, Session, Snapshot, Window},
};

use muxtap_api::{CaptureRequest, Error, ErrorCode, LABELS_OPTION, Labels, Result, SESSION_LABELS_OPTION};
use muxtap_core::protocol::{
    command::Command,
    ids::{PaneId, SessionId},
};

/// The requested content of a snapshot.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The ids or names of sessions; empty: all.
    pub sessions: Vec<String>,
    /// The number of history lines of each pane.
    pub history: u32,
    /// The names of variables that are safe to store.
    pub env: Vec<String>,
}

const SESSION: [&str; 7] =
    ["session_id", "session_name", "session_path", "session_group", HUB_MARK, "session_created", SESSION_LABELS_OPTION];
const WINDOW: [&str; 11] = [
    "session_id",
    "window_id",
    "window_index",
    "window_name",
    "window_active",
    "window_last_flag",
    "window_layout",
    "window_width",
    "window_height",
    "automatic-rename",
    "window-size",
];
const PANE: [&str; 15] = [
    "session_id",
    "window_id",
    "pane_id",
    "pane_active",
    "pane_last",
    "pane_title",
    "pane_current_path",
    "pane_synchronized",
    "pane_floating_flag",
    "window_zoomed_flag",
    "pane_width",
    "pane_height",
    "pane_left",
    "pane_top",
    LABELS_OPTION,
];

/// The maximum number of reads of lists that contradict each other.
const TRIES: u32 = 3;

/// Takes a snapshot of a server's sessions. Also returns notes about what could not be saved
/// unchanged.
///
/// Errors: `NOT_FOUND` for a missing session, or without any session; `INVALID_ARGUMENT`;
/// `INCONSISTENT_STATE` if tmux's lists contradict each other; `TMUX_UNAVAILABLE`.
pub async fn save(server: &Server, wanted: &Wanted) -> Result<(Snapshot, Vec<String>)> {
    if wanted.history > HISTORY_LINES {
        return Err(Error::invalid(format!("history: {} lines; at most {HISTORY_LINES}", wanted.history)));
    }
    server.follow_for_layouts().await?;
    let mut ids = HashSet::new();
    for session in &wanted.sessions {
        ids.insert(server.session_id(session).await?);
    }
    let mut tries = 1;
    let mut taken = loop {
        match look(server, &ids).await {
            // Lists are one line of commands; a pane that dies in between is missing from one of
            // them.
            Err(error) if error.code == ErrorCode::InconsistentState && tries < TRIES => tries += 1,
            taken => break taken?,
        }
    };
    if taken.snapshot.sessions.is_empty() {
        return Err(Error::not_found("no session to save"));
    }
    for (session, id) in taken.snapshot.sessions.iter_mut().zip(&taken.ids) {
        session.environment = environment(server, id, &wanted.env).await?;
    }
    let Taken { mut snapshot, places, mut notes, .. } = taken;
    let mut bytes = 0;
    for (session, window, pane, id) in places {
        let argv = server.foreground_args(id).await.unwrap_or_default();
        let history = if wanted.history > 0 && bytes < HISTORY_BYTES {
            history(server, id, wanted.history).await?
        } else {
            Vec::new()
        };
        bytes += history.iter().map(String::len).sum::<usize>();
        let windows = snapshot.sessions.get_mut(session).map(|session| &mut session.windows);
        let Some(pane) = windows.and_then(|windows| windows.get_mut(window)?.panes.get_mut(pane)) else { continue };
        if wanted.history > 0 {
            // A line may hold what the history would: it is saved with the history alone.
            pane.last_line = server.last_command_line(id).unwrap_or_default();
            bytes += pane.last_line.len();
        }
        (pane.argv, pane.history) = (argv, history);
    }
    if bytes >= HISTORY_BYTES {
        notes.push(format!("history: at most {HISTORY_BYTES} bytes for all panes; the last ones have less, or none"));
    }
    snapshot.saved = OffsetDateTime::now_utc()
        .replace_nanosecond(0)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
        .format(&Rfc3339)
        .unwrap_or_default();
    Ok((snapshot, notes))
}

/// Returns the sessions with these ids (empty: all) as tmux lists them, without programs.
pub async fn structure(server: &Server, ids: &HashSet<String>) -> Result<Snapshot> {
    Ok(look(server, ids).await?.snapshot)
}

/// The parsed lists.
struct Taken {
    snapshot: Snapshot,
    /// The ids of the sessions.
    ids: Vec<String>,
    /// The positions of session, window and pane, and the pane's id.
    places: Vec<(usize, usize, usize, PaneId)>,
    notes: Vec<String>,
}

async fn look(server: &Server, wanted: &HashSet<String>) -> Result<Taken> {
    let lists = [
        ValueList { command: Command::new("list-sessions"), fields: &SESSION },
        ValueList { command: Command::new("list-windows").flag("-a"), fields: &WINDOW },
        ValueList { command: Command::new("list-panes").flag("-a"), fields: &PANE },
    ];
    let lists = server.values(&lists).await?;
    let [sessions, windows, panes] = lists.as_slice() else { return Err(contradiction("a list is missing")) };
    let mut taken = Taken { snapshot: Snapshot::default(), ids: Vec::new(), places: Vec::new(), notes: Vec::new() };
    // Where each window was seen first: its session's name and its index.
    let mut seen: HashMap<&str, (String, u32)> = HashMap::new();
    let mut groups: HashMap<&str, String> = HashMap::new();
    // Oldest first, as a restore makes them: panes inherit labels from the oldest session of a window.
    let mut sessions: Vec<&Vec<String>> = sessions.iter().collect();
    sessions.sort_by_key(|row| row.first().and_then(|id| id.parse::<SessionId>().ok()));
    for row in sessions {
        let [id, name, path, group, hub, _, labels] = row.as_slice() else { continue };
        let is_hub = !hub.is_empty() || name.starts_with(HUB_NAME);
        if is_hub || !wanted.is_empty() && !wanted.contains(id) {
            continue;
        }
        let own: Vec<&Vec<String>> = windows.iter().filter(|row| row.first() == Some(id)).collect();
        let labels = writable(Labels::parse(labels), name, &mut taken.notes);
        let mut session = Session { name: name.clone(), directory: path.clone(), labels, ..Session::default() };
        let leader = Some(group.as_str()).filter(|group| !group.is_empty()).and_then(|group| groups.get(group));
        if let Some(leader) = leader {
            session.grouped_with = Some(leader.clone());
            let index_of = |flag: usize| {
                let row = own.iter().find(|row| row.get(flag).is_some_and(|flag| flag == "1"))?;
                row.get(2)?.parse().ok()
            };
            (session.current, session.last) = (index_of(4), index_of(5));
        } else {
            if !group.is_empty() {
                groups.insert(group, name.clone());
            }
            for row in own {
                let of_window: Vec<_> =
                    panes.iter().filter(|pane| pane.first() == Some(id) && pane.get(1) == row.get(1)).collect();
                let mut made = window(row, &of_window, &mut taken.notes, name)?;
                let place = (taken.snapshot.sessions.len(), session.windows.len());
                match row.get(1).map(|id| (id, seen.get(id.as_str()))) {
                    Some((_, Some(first))) => {
                        made.window.linked = Some(first.clone());
                        // The panes are stored with that window.
                        made.window.panes.clear();
                    }
                    Some((id, None)) => {
                        seen.insert(id, (name.clone(), made.window.index.unwrap_or_default()));
                        let panes = made.ids.iter().enumerate();
                        taken.places.extend(panes.map(|(at, pane)| (place.0, place.1, at, *pane)));
                    }
                    None => {}
                }
                session.windows.push(made.window);
            }
        }
        taken.ids.push(id.clone());
        taken.snapshot.sessions.push(session);
    }
    Ok(taken)
}

/// A window, and the ids of its panes.
struct MadeWindow {
    window: Window,
    ids: Vec<PaneId>,
}

/// Returns labels that a restore can set, or notes that they are left out.
fn writable(labels: Labels, place: &str, notes: &mut Vec<String>) -> Labels {
    if let Err(error) = labels.check() {
        notes.push(format!("{}: not saved: {}", plain::name(place), error.message));
        return Labels::default();
    }
    labels
}

fn window(row: &[String], panes: &[&Vec<String>], notes: &mut Vec<String>, session: &str) -> Result<MadeWindow> {
    let [_, _, index, name, active, last, text, width, height, auto_name, window_size] = row else {
        return Err(contradiction("a window has unexpected fields"));
    };
    let mut by_id: Vec<(PaneId, bool, Pane, bool, bool)> = Vec::new();
    for row in panes {
        let [_, _, id, active, last, title, path, synchronized, floating, zoomed, w, h, x, y, labels] = row.as_slice()
        else {
            return Err(contradiction("a pane has unexpected fields"));
        };
        let Ok(id) = id.parse() else { return Err(contradiction("a pane has no id")) };
        let is_floating = floating == "1";
        let place: Vec<i64> = [w, h, x, y].iter().filter_map(|value| value.parse().ok()).collect();
        let pane = Pane {
            directory: path.clone(),
            title: title.clone(),
            labels: writable(Labels::parse(labels), &format!("{session}:{index}, pane {id}"), notes),
            active: active == "1",
            last: last == "1",
            floating: if is_floating { place.try_into().ok() } else { None },
            ..Pane::default()
        };
        by_id.push((id, is_floating, pane, synchronized == "1", zoomed == "1"));
    }
    let floating: Vec<PaneId> = by_id.iter().filter(|pane| pane.1).map(|pane| pane.0).collect();
    let size = (width.parse().unwrap_or_default(), height.parse().unwrap_or_default());
    let (layout, order) = if let Some(numbered) = layout::numbered(text, &floating) {
        (numbered.text, numbered.tiled)
    } else {
        let why = "unsupported form of layout; its panes will be tiled";
        notes.push(format!("{session}:{index}: {why}"));
        (String::new(), by_id.iter().filter(|pane| !pane.1).map(|pane| pane.0).collect())
    };
    let order: Vec<PaneId> = order.into_iter().chain(floating).collect();
    if order.len() != by_id.len() || order.is_empty() {
        return Err(contradiction(&format!("{session}:{index} has {} panes, its layout {}", by_id.len(), order.len())));
    }
    let mut window = Window {
        index: index.parse().ok(),
        current: active == "1",
        last: last == "1",
        name: name.clone(),
        auto_name: auto_name == "1",
        layout,
        size: Some(size),
        fixed_size: window_size == "manual",
        zoomed: by_id.iter().any(|pane| pane.4),
        synchronized: by_id.iter().all(|pane| pane.3),
        ..Window::default()
    };
    for id in &order {
        let Some(pane) = by_id.iter().find(|pane| pane.0 == *id) else {
            return Err(contradiction(&format!("pane {id} of {session}:{index} is only in its layout")));
        };
        window.panes.push(pane.2.clone());
    }
    Ok(MadeWindow { window, ids: order })
}

/// Builds the error for tmux lists that contradict each other.
pub fn contradiction(what: &str) -> Error {
    Error::new(ErrorCode::InconsistentState, format!("tmux's lists contradict each other: {what}; try again"))
}

/// Returns the variables of a session that were marked safe.
///
/// A variable that only the server has is included if it is named without `*`.
async fn environment(server: &Server, id: &str, safe: &[String]) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    if safe.is_empty() {
        return Ok(found);
    }
    let ask = |global: bool, name: Option<&str>| {
        let command = Command::new("show-environment");
        let command = if global { command.flag("-g") } else { command.opt("-t", id) };
        server.printed(name.map_or(command.clone(), |name| command.end_of_flags().arg(name)))
    };
    let listed = ask(false, None).await?;
    let listed: Vec<&str> = listed.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    for pattern in safe {
        let glob = Glob::new(pattern);
        let mut names: Vec<&str> = listed.iter().copied().filter(|name| glob.matches(name)).collect();
        if names.is_empty() && !pattern.contains('*') {
            names.push(pattern);
        }
        for name in names {
            // One by one, because a value may contain line ends. An invalid or unknown name has no
            // value.
            let mut value = ask(false, Some(name)).await;
            if value.is_err() && !pattern.contains('*') {
                value = ask(true, Some(name)).await;
            }
            let Ok(line) = value else { continue };
            if let Some((_, value)) = line.strip_suffix('\n').unwrap_or(&line).split_once('=') {
                found.insert(name.to_owned(), value.to_owned());
            }
        }
    }
    Ok(found)
}

/// Returns the last lines of a pane's history and screen, as text.
async fn history(server: &Server, pane: PaneId, lines: u32) -> Result<Vec<String>> {
    let request = CaptureRequest { start: Some(format!("-{lines}")), join: true, ..CaptureRequest::default() };
    let text = server.capture(&pane.to_string(), &request).await?.text;
    let text = text.trim_end();
    let all: Vec<&str> = if text.is_empty() { Vec::new() } else { text.split('\n').collect() };
    let first = all.len().saturating_sub(lines as usize);
    Ok(all.iter().skip(first).map(|line| line.trim_end().to_owned()).collect())
}
