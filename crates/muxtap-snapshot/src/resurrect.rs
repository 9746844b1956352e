//! The files of tmux-resurrect: a line for each pane and window, with tabs between the fields.

use muxtap_api::{Error, Result};

use super::{
    layout,
    model::{Pane, Session, Snapshot, Window},
};

/// The number of fields of a pane's line. The last one is a command, which may have tabs.
const PANE_FIELDS: usize = 11;
/// The first fields of lines.
const KINDS: [&str; 4] = ["pane", "window", "grouped_session", "state"];

/// Returns whether a text is such a file.
pub fn is_it(text: &str) -> bool {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.split_once('\t').is_some_and(|(kind, _)| KINDS.contains(&kind))
}

/// Parses a file.
///
/// Error: `INVALID_ARGUMENT`, with the line.
pub fn read(text: &str) -> Result<Snapshot> {
    let mut sessions: Vec<Session> = Vec::new();
    let mut grouped = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let most = if line.starts_with("pane\t") { PANE_FIELDS } else { usize::MAX };
        let fields: Vec<&str> = line.splitn(most, '\t').collect();
        let invalid = || Error::invalid(format!("text: line {} is not one of tmux-resurrect's", number + 1));
        match fields.as_slice() {
            // Version 4 and later; before, the window's name came first and panes had no title.
            ["pane", session, window, current @ ("0" | "1"), flags, _, title, directory, active, _, command] => {
                let pane = pane(title, directory, active, command);
                let window = window_of(&mut sessions, session, window).ok_or_else(invalid)?;
                flag(window, current, flags);
                window.panes.push(pane);
            }
            ["pane", session, window, name, current, flags, _, directory, active, _, command] => {
                let pane = pane("", directory, active, command);
                let window = window_of(&mut sessions, session, window).ok_or_else(invalid)?;
                flag(window, current, flags);
                text_of(name).clone_into(&mut window.name);
                window.panes.push(pane);
            }
            ["window", session, window, name, current @ ("0" | "1"), flags, layout, rest @ ..] => {
                let window = window_of(&mut sessions, session, window).ok_or_else(invalid)?;
                flag(window, current, flags);
                text_of(name).clone_into(&mut window.name);
                window.auto_name = rest.first().is_some_and(|option| text_of(option) == "on");
                arrange(window, layout);
            }
            ["window", session, window, current, flags, layout] => {
                let window = window_of(&mut sessions, session, window).ok_or_else(invalid)?;
                flag(window, current, flags);
                arrange(window, layout);
            }
            ["grouped_session", name, with, last, current] => {
                let index = |field: &str| text_of(field).parse().ok();
                grouped.push(Session {
                    name: (*name).to_owned(),
                    grouped_with: Some((*with).to_owned()),
                    current: index(current),
                    last: index(last),
                    ..Session::default()
                });
            }
            ["state", ..] => {}
            [line] if line.trim().is_empty() => {}
            _ => return Err(invalid()),
        }
    }
    for window in sessions.iter_mut().flat_map(|session| &mut session.windows) {
        // A layout for other panes cannot be applied.
        let fits = layout::panes(&window.layout).is_none_or(|panes| panes == window.panes.len());
        if !fits {
            window.layout.clear();
        }
    }
    for session in &mut sessions {
        session.windows.retain(|window| !window.panes.is_empty());
        let first = session.windows.first().and_then(|window| window.panes.first());
        session.directory = first.map(|pane| pane.directory.clone()).unwrap_or_default();
    }
    sessions.retain(|session| !session.windows.is_empty());
    let leaders: Vec<String> = sessions.iter().map(|session| session.name.clone()).collect();
    sessions
        .extend(grouped.into_iter().filter(|one| one.grouped_with.as_ref().is_some_and(|with| leaders.contains(with))));
    if sessions.is_empty() {
        return Err(Error::invalid("text: no pane; expected tmux-resurrect's file, which its link `last` names"));
    }
    Ok(Snapshot { saved: String::new(), sessions })
}

/// Returns a field without the colon that keeps it from being empty.
fn text_of(field: &str) -> &str {
    field.strip_prefix(':').unwrap_or(field)
}

fn pane(title: &str, directory: &str, active: &str, command: &str) -> Pane {
    // The arguments come from a process list, which has no quotes. A tab is part of an argument.
    let argv = text_of(command).split(' ').filter(|arg| !arg.is_empty()).map(str::to_owned).collect();
    Pane {
        directory: text_of(directory).replace("\\ ", " "),
        title: title.to_owned(),
        active: active == "1",
        argv,
        ..Pane::default()
    }
}

/// Returns the window with this index, which is added if it is missing. `None`: the index is no
/// number.
fn window_of<'a>(sessions: &'a mut Vec<Session>, session: &str, index: &str) -> Option<&'a mut Window> {
    let index: u32 = index.parse().ok()?;
    let at = sessions.iter().position(|one| one.name == session).unwrap_or_else(|| {
        sessions.push(Session { name: session.to_owned(), ..Session::default() });
        sessions.len() - 1
    });
    let windows = &mut sessions.get_mut(at)?.windows;
    let at = windows.iter().position(|one| one.index == Some(index)).unwrap_or_else(|| {
        windows.push(Window { index: Some(index), ..Window::default() });
        windows.len() - 1
    });
    windows.get_mut(at)
}

fn flag(window: &mut Window, current: &str, flags: &str) {
    window.current = current == "1";
    window.last = flags.contains('-');
    window.zoomed |= flags.contains('Z');
}

fn arrange(window: &mut Window, layout: &str) {
    if let Some(numbered) = layout::numbered(layout, &[]) {
        window.size = Some(numbered.size);
        window.layout = numbered.text;
    }
}
