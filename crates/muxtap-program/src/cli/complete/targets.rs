//! Sessions, windows and panes as words that can follow `-t`.

use std::{fs, os::unix::fs::FileTypeExt as _};

use muxtap_base::plain;
use muxtap_engine::is_number;

use super::{Candidate, LIMIT, place::Place};

use muxtap_approvals::approvals::ApprovalList;

use crate::{
    api::{PaneInfo, PaneList, ServerList, SessionInfo, SessionList, WindowInfo, WindowList},
    cli::{caller::Caller, client::Client, output},
    daemon::start,
};

/// A query for a list of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Sessions.
    Sessions,
    /// Windows.
    Windows,
    /// Panes, and sessions and windows, which mean their active pane.
    Panes {
        /// Panes, including ended ones.
        ended: bool,
    },
    /// Names of tmux servers.
    ServerNames,
    /// Ids of open questions.
    Approvals,
    /// Parts of a device's workspace.
    Workspace(Part),
}

/// A kind of target of commands about workspaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Devices,
    Tabs,
    Panes,
    /// Terminals, and panes that show one.
    Terminals,
}

/// Queries the running daemon; does not start one. After any error offers nothing.
pub(super) fn ask(what: Asked, place: &Place) -> Vec<Candidate> {
    let (device, typed) = (place.device.as_deref(), place.value.as_str());
    let Ok(caller) = Caller::new(&place.server, false) else { return Vec::new() };
    if what == Asked::ServerNames {
        return server_names(&caller);
    }
    // The device's own workspace is in a file, which needs no daemon.
    let own = match what {
        Asked::Workspace(part) if device.is_none() => super::workspace::own(&caller, place.freshell, part),
        _ => Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let Ok(runtime) = runtime else { return own };
    let asked =
        runtime.block_on(async { tokio::time::timeout(LIMIT, from_daemon(what, &caller, device, typed)).await });
    // A thread that waits for a daemon which accepts no connection is not joined.
    runtime.shutdown_background();
    own.into_iter().chain(asked.ok().flatten().unwrap_or_default()).collect()
}

/// Returns the sockets in tmux's directory, with or without a server.
fn server_names(caller: &Caller) -> Vec<Candidate> {
    let Some(Ok(entries)) = caller.sockets.as_ref().map(fs::read_dir) else { return Vec::new() };
    let sockets = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    let mut names: Vec<_> = sockets.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names.into_iter().map(|name| Candidate::new(name, "tmux socket")).collect()
}

async fn from_daemon(what: Asked, caller: &Caller, device: Option<&str>, typed: &str) -> Option<Vec<Candidate>> {
    let paths = caller.paths.clone();
    let stream = tokio::task::spawn_blocking(move || start::connect(&paths)).await.ok()?.ok()??;
    let mut client = Client::new(stream, &caller.paths, &caller.server, None).await.ok()?;
    if what == Asked::Approvals {
        let list: ApprovalList = get(&mut client, "/v1/approvals").await?;
        let about = |kind: &str, name: &str| format!("{kind} {name}");
        return Some(list.approvals.iter().map(|one| Candidate::new(&one.id, about(&one.kind, &one.name))).collect());
    }
    if let Asked::Workspace(part @ (Part::Devices | Part::Tabs | Part::Panes)) = what {
        return super::workspace::of_daemon(&mut client, part, device).await;
    }
    // The daemon would start to watch for a missing socket.
    let is_socket = fs::metadata(&caller.server).is_ok_and(|found| found.file_type().is_socket());
    if !is_socket {
        let socket = caller.server.to_str()?;
        let list: ServerList = get(&mut client, "/v1/servers").await?;
        list.servers.iter().find(|server| server.socket == socket && server.state == "connected")?;
    }
    if what == Asked::Sessions {
        let list: SessionList = get(&mut client, "/v1/sessions").await?;
        return Some(sessions(&list.sessions, typed));
    }
    if what == Asked::Workspace(Part::Terminals) {
        let panes = get::<PaneList>(&mut client, "/v1/panes").await?.panes;
        let shown = match device {
            Some(_) => super::workspace::of_daemon(&mut client, Part::Terminals, device).await.unwrap_or_default(),
            None => Vec::new(),
        };
        return Some(shown.into_iter().chain(super::workspace::terminals(caller, &panes)).collect());
    }
    let Asked::Panes { ended } = what else {
        let list: WindowList = get(&mut client, "/v1/windows").await?;
        return Some(windows(&list.windows, typed));
    };
    let mut panes = get::<PaneList>(&mut client, "/v1/panes").await?.panes;
    panes.retain(|pane| !pane.earlier_server && (ended || !pane.window_id.is_empty()));
    Some(all_panes(&windows_of(&panes), &panes, typed))
}

/// Returns the windows of panes, each in one session. Listing windows would be another query to tmux,
/// and take as long again.
fn windows_of(panes: &[PaneInfo]) -> Vec<WindowInfo> {
    let mut windows: Vec<WindowInfo> = Vec::new();
    for pane in panes.iter().filter(|pane| !pane.window_id.is_empty()) {
        match windows.last_mut() {
            Some(last) if last.id == pane.window_id => last.panes += 1,
            _ => windows.push(WindowInfo {
                id: pane.window_id.clone(),
                session_id: pane.session_id.clone(),
                session: pane.session.clone(),
                index: pane.window_index,
                name: pane.window.clone(),
                panes: 1,
                ..WindowInfo::default()
            }),
        }
    }
    windows
}

/// Queries this daemon. [`Client::get`] would start another one if it has exited.
pub(super) async fn get<T: serde::de::DeserializeOwned>(client: &mut Client, path: &str) -> Option<T> {
    client.get_from_same_daemon(path, &()).await.ok()?.ok()
}

/// Whether a name is a valid target as it is, and can be shown and typed.
fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(['%', '@', '$', '=', '{', '+', '-', '!', '^', '~'])
        && !name.contains(|character| matches!(character, '.' | ':' | '*' | ',') || plain::controls(character))
}

fn sessions(sessions: &[SessionInfo], typed: &str) -> Vec<Candidate> {
    let about = |session: &SessionInfo| {
        let attached = if session.attached > 0 { ", attached" } else { "" };
        format!("{}{attached}", crate::cli::output::counted(session.windows as usize, "window"))
    };
    let named = |session: &SessionInfo| {
        let by_id = typed.starts_with('$') || !is_plain(&session.name);
        let label = if by_id { &session.id } else { &session.name };
        let name = if by_id { format!("{}: ", session.name) } else { String::new() };
        Candidate::new(label, format!("{name}{}", about(session)))
    };
    sessions.iter().map(named).collect()
}

fn windows(windows: &[WindowInfo], typed: &str) -> Vec<Candidate> {
    let about = |window: &WindowInfo| {
        let current = if window.active { ", current" } else { "" };
        format!("{}{current}", crate::cli::output::counted(window.panes as usize, "pane"))
    };
    let by_id = |window: &WindowInfo| {
        Candidate::new(&window.id, format!("{}:{} {}: {}", window.session, window.index, window.name, about(window)))
    };
    if typed.starts_with('@') {
        return windows.iter().map(by_id).collect();
    }
    let by_name = |window: &WindowInfo| {
        let label = window_label(window, windows);
        let name = if label.ends_with(&window.name) { String::new() } else { format!(" {}", window.name) };
        Candidate::new(label, format!("window {}{name}, {}", window.index, about(window)))
    };
    windows.iter().map(by_name).collect()
}

fn session_label<'a>(id: &'a str, name: &'a str) -> &'a str {
    if is_plain(name) { name } else { id }
}

/// Returns a window's target: its name if that is unique in its session.
fn window_label(window: &WindowInfo, all: &[WindowInfo]) -> String {
    let session = session_label(&window.session_id, &window.session);
    let is_shared = || {
        all.iter()
            .any(|other| other.session_id == window.session_id && other.id != window.id && other.name == window.name)
    };
    if is_plain(&window.name) && !is_number(&window.name) && !is_shared() {
        format!("{session}:{}", window.name)
    } else {
        format!("{session}:{}", window.index)
    }
}

fn all_panes(all: &[WindowInfo], panes: &[PaneInfo], typed: &str) -> Vec<Candidate> {
    let place = |pane: &PaneInfo| output::place(&pane.session, pane.window_index, pane.index);
    let about = |pane: &PaneInfo| {
        let ended = if pane.dead { output::ended(pane.exit_status, pane.exit_signal) } else { String::new() };
        // An ended pane has no place.
        let parts = if pane.window_id.is_empty() {
            vec![pane.command.clone(), ended]
        } else {
            vec![place(pane), pane.window.clone(), if pane.dead { ended } else { pane.command.clone() }]
        };
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("  ")
    };
    let mut offered = Vec::new();
    let mut last = "";
    for window in all {
        if window.session_id == last {
            continue;
        }
        last = &window.session_id;
        let name = session_label(&window.session_id, &window.session);
        let count = all.iter().filter(|other| other.session_id == window.session_id).count();
        // A bare number is rejected, and a name that a window also has may be.
        let is_odd = is_number(name) || all.iter().any(|other| other.name == name);
        let label = if is_odd { format!("{name}:") } else { name.to_owned() };
        offered.push(Candidate::new(label, format!("session, {}", crate::cli::output::counted(count, "window"))));
    }
    offered.extend(windows(all, typed));
    offered.extend(panes.iter().map(|pane| Candidate::new(pane.id.to_string(), about(pane))));
    // A pane's place in its window only if the word already begins so: otherwise each pane would be
    // listed twice.
    if typed.contains([':', '.']) {
        for window in all.iter().filter(|window| window.panes > 1) {
            let label = window_label(window, all);
            let within = panes.iter().filter(|pane| pane.window_id == window.id);
            offered.extend(within.map(|pane| Candidate::new(format!("{label}.{}", pane.index), about(pane))));
        }
    }
    offered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ids::PaneId;

    fn window(session: &str, index: u32, name: &str, panes: u32) -> WindowInfo {
        WindowInfo {
            id: format!("@{index}"),
            session_id: format!("${session}"),
            session: session.into(),
            index,
            name: name.into(),
            panes,
            ..WindowInfo::default()
        }
    }

    fn pane(id: u32, session: &str, window: u32, index: u32) -> PaneInfo {
        PaneInfo {
            session: session.into(),
            window_id: format!("@{window}"),
            window_index: window,
            index,
            command: "vim".into(),
            ..PaneInfo::of(PaneId(id))
        }
    }

    fn values(candidates: &[Candidate]) -> Vec<&str> {
        candidates.iter().map(|candidate| candidate.value.as_str()).collect()
    }

    #[test]
    fn panes_are_offered_by_session_window_and_id() {
        let all = [window("work", 0, "logs", 2), window("work", 1, "sh", 1), window("7", 2, "x", 1)];
        let panes = [pane(0, "work", 0, 0), pane(1, "work", 0, 1), pane(2, "work", 1, 0)];
        let offered = all_panes(&all, &panes, "wo");
        assert_eq!(values(&offered), ["work", "7:", "work:logs", "work:sh", "7:x", "%0", "%1", "%2"]);
        assert_eq!(offered[5].description, "work:0.0  vim");
        assert_eq!(windows_of(&panes).iter().map(|window| window.panes).collect::<Vec<_>>(), [2, 1]);
        let offered = all_panes(&all, &panes, "work:l");
        assert!(values(&offered).contains(&"work:logs.1"), "{offered:?}");
    }

    #[test]
    fn names_that_mean_something_else_are_offered_as_ids_and_indexes() {
        let all = [
            window("work", 0, "a.b", 1),
            window("work", 1, "same", 1),
            window("work", 2, "same", 1),
            window("work", 3, "12", 1),
            window("work", 4, "\u{1b}]0;x\u{7}", 1),
            window("work", 5, "it's a \"name\"", 1),
            window("work", 6, "+1", 1),
        ];
        let offered = windows(&all, "");
        assert_eq!(
            values(&offered),
            ["work:0", "work:1", "work:2", "work:3", "work:4", "work:it's a \"name\"", "work:6"]
        );
        assert_eq!(values(&windows(&all, "@"))[1], "@1");
        let odd = |name: &str| SessionInfo { id: "$3".into(), name: name.into(), ..SessionInfo::default() };
        assert_eq!(
            values(&sessions(&[odd("a\u{202e}b"), odd("=x"), odd("a,b"), odd("fine one")], "")),
            ["$3", "$3", "$3", "fine one"]
        );
    }
}
