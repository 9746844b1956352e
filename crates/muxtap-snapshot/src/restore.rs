//! Restores the sessions of a snapshot.
//!
//! Each session begins with a placeholder window, which its first window replaces. A window's panes
//! are made in a few lines of commands, each of which tmux executes at once. If anything fails, the
//! sessions made so far are ended.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    time::Duration,
};

use muxtap_base::{plain, quoting::shell_word};
use muxtap_engine::{RESTORED, Server, is_absent};

use super::{
    answers::{LeftOut, RestoreAnswer, RestoreRequest},
    file::bytes_of,
    layout,
    limits::PANE_TEXT,
    model::{Pane, Session, Snapshot, Window},
    save,
};

use muxtap_api::{
    Error, ErrorCode, InputRequest, LABELS_OPTION, Labels, NewSessionRequest, Result, SESSION_LABELS_OPTION,
    SpawnRequest,
};
use muxtap_core::protocol::{command::Command, names::spelled};

/// The server option that holds a text while a line of commands uses it.
///
/// Most arguments for a name or a directory are expanded as formats, and no escape works on all
/// versions (`#[`).
const WORD: &str = "@muxtap-restore";
/// A second such option, for a directory beside a name.
const DIRECTORY: &str = "@muxtap-restore-directory";
/// The format that expands to the text.
const THE_WORD: &str = "#{@muxtap-restore}";
/// Runs a program, after which a shell keeps the pane.
///
/// Ctrl-C ends only the program. It has the foreground for itself, so that tmux names the pane after
/// it; a program that is stopped continues at once, since no shell could continue it later. bash
/// would end with a program that Ctrl-C ends.
const PROGRAM: &str = "trap : INT QUIT; [ \"$BASH_VERSION\" ] || set -m; \"$@\"; while fg >/dev/null 2>&1; do :; done; \
                       set +m; trap - INT QUIT; exec \"${SHELL:-/bin/sh}\" ";
/// The columns and rows that each pane needs while panes are made.
const ROOM: (u32, u32) = (10, 5);
/// How long to wait for a new shell's prompt before lines are typed.
const PROMPT: Duration = Duration::from_secs(5);
/// The maximum number of columns and rows of a tmux window.
const MOST_CELLS: u32 = 10_000;

/// Restores sessions of a snapshot. Runs to its end even if the future is dropped.
///
/// `is_own`: the snapshot was saved here. Without `run`, the variables and labels of any other one
/// are not set: a shell runs the contents of some variables, and the user's rules act by labels.
///
/// Errors: `NOT_FOUND` for a session that is not in the snapshot, `CONFLICT` if a session's name is
/// taken, `READ_ONLY`, `TMUX_UNAVAILABLE`, and tmux's own. After an error nothing that was made
/// remains.
pub async fn restore(
    server: &Server,
    snapshot: &Snapshot,
    is_own: bool,
    request: &RestoreRequest,
) -> Result<RestoreAnswer> {
    let mut sessions = renamed(chosen(snapshot, &request.sessions)?, request.name.as_deref())?;
    let left_out = if is_own || request.run { Vec::new() } else { leave_out(&mut sessions) };
    let (sender, answer) = tokio::sync::oneshot::channel();
    let (server, request) = (server.clone(), request.clone());
    let engine = server.engine().clone();
    engine.clone().spawn_work(async move {
        let restored = tokio::select! {
            restored = restore_all(&server, &sessions, left_out, &request) => restored,
            () = engine.stopping() => Err(Error::unavailable("muxtap is stopping")),
        };
        // The caller may have disconnected.
        let _ = sender.send(restored);
    });
    answer.await.unwrap_or_else(|_| Err(Error::internal("the restore failed in the middle")))
}

/// Removes the variables and labels from sessions, and returns their names.
fn leave_out(sessions: &mut [Session]) -> Vec<LeftOut> {
    let taken = sessions.iter_mut().map(|session| {
        let panes = session.windows.iter_mut().flat_map(|window| &mut window.panes).map(|pane| &mut pane.labels);
        let all: Vec<Labels> = panes.chain([&mut session.labels]).map(std::mem::take).collect();
        let keys: BTreeSet<&str> = all.iter().flat_map(Labels::iter).map(|(key, _)| key).collect();
        LeftOut {
            session: session.name.clone(),
            variables: std::mem::take(&mut session.environment).into_keys().collect(),
            labels: keys.into_iter().map(str::to_owned).collect(),
        }
    });
    taken.filter(|taken| !taken.variables.is_empty() || !taken.labels.is_empty()).collect()
}

/// Returns the requested sessions. What they share with other sessions becomes their own.
pub fn chosen(snapshot: &Snapshot, names: &[String]) -> Result<Vec<Session>> {
    let find = |name: &str| snapshot.sessions.iter().find(|session| session.name == name);
    if let Some(name) = names.iter().find(|name| find(name).is_none()) {
        let known: Vec<_> = snapshot.sessions.iter().map(|session| session.name.as_str()).collect();
        return Err(Error::not_found(format!("no session {name:?} in the snapshot; it has {}", known.join(", "))));
    }
    let is_chosen = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let mut made: Vec<Session> = Vec::new();
    // The size of the copies: a window that a thousand sessions link is one in the file.
    let mut copied = 0;
    let mut copy = |windows: &[Window]| {
        copied += windows.iter().map(text_bytes).sum::<usize>();
        if copied > PANE_TEXT {
            let message =
                format!("the windows that these sessions share have more than {PANE_TEXT} bytes of text in all");
            return Err(Error::new(ErrorCode::ResourceLimit, message));
        }
        Ok(())
    };
    // The session that gets the windows of a group whose first session is not chosen.
    let mut heirs: BTreeMap<&str, String> = BTreeMap::new();
    for session in snapshot.sessions.iter().filter(|session| is_chosen(&session.name)) {
        let mut session = session.clone();
        if let Some(with) = session.grouped_with.clone().filter(|with| !is_chosen(with)) {
            if let Some(heir) = heirs.get(with.as_str()) {
                session.grouped_with = Some(heir.clone());
            } else if let Some(source) = find(&with) {
                copy(&source.windows)?;
                session.windows.clone_from(&source.windows);
                for window in &mut session.windows {
                    window.current = window.index == session.current;
                    window.last = window.index.is_some() && window.index == session.last;
                }
                (session.grouped_with, session.current, session.last) = (None, None, None);
                heirs.insert(source.name.as_str(), session.name.clone());
            }
        }
        let earlier: HashSet<String> = made.iter().map(|session| session.name.clone()).collect();
        for window in &mut session.windows {
            let Some((name, index)) = window.linked.clone().filter(|(name, _)| !earlier.contains(name)) else {
                continue;
            };
            let windows = find(&name).map(|source| source.windows.as_slice()).unwrap_or_default();
            if let Some(source) = windows.iter().find(|source| source.index == Some(index)) {
                copy(std::slice::from_ref(source))?;
                let (index, current, last) = (window.index, window.current, window.last);
                *window = Window { index, current, last, linked: None, ..source.clone() };
            }
        }
        made.push(session);
    }
    Ok(made)
}

/// Returns the size of the texts of a window's panes, in bytes.
fn text_bytes(window: &Window) -> usize {
    let of_pane = |pane: &Pane| {
        pane.directory.len()
            + pane.title.len()
            + pane.labels.to_string().len()
            + pane.last_line.len()
            + [&pane.argv, &pane.lines, &pane.history].map(|it| bytes_of(it)).iter().sum::<usize>()
    };
    window.panes.iter().map(of_pane).sum()
}

/// Renames sessions as requested.
fn renamed(mut sessions: Vec<Session>, name: Option<&str>) -> Result<Vec<Session>> {
    if name.is_some_and(|name| name.is_empty() || name.contains([':', '.'])) {
        let name = name.unwrap_or_default();
        return Err(Error::invalid(format!("name: invalid session name {name:?}: empty, or with `:` or `.`")));
    }
    let is_one = sessions.len() == 1;
    let new = |old: &str| match name {
        None => layout::unescaped(old),
        Some(name) if is_one => name.to_owned(),
        Some(name) => format!("{name}-{}", layout::unescaped(old)),
    };
    for session in &mut sessions {
        session.name = new(&session.name);
        session.grouped_with = session.grouped_with.as_deref().map(new);
        for window in &mut session.windows {
            window.linked = window.linked.take().map(|(session, index)| (new(&session), index));
        }
    }
    Ok(sessions)
}

/// Everything made so far.
#[derive(Default)]
struct Made {
    /// The ids and names of sessions.
    sessions: Vec<(String, String)>,
    /// The session's name, the index and the id of each window.
    windows: Vec<(String, Option<u32>, String)>,
    panes: u64,
    notes: Vec<String>,
    /// The panes into which lines are typed at the end, with those lines.
    lines: Vec<(String, Vec<String>)>,
}

async fn restore_all(
    server: &Server,
    sessions: &[Session],
    left_out: Vec<LeftOut>,
    request: &RestoreRequest,
) -> Result<RestoreAnswer> {
    // Without a running server no name is taken.
    let there = match server.sessions().await {
        Ok(sessions) => sessions,
        Err(error) if is_absent(&error) => Vec::new(),
        Err(error) => return Err(error),
    };
    if let Some(taken) =
        sessions.iter().find(|session| there.iter().any(|other| layout::unescaped(&other.name) == session.name))
    {
        return Err(taken_name(&taken.name));
    }
    let missing = tokio::select! {
        missing = missing_directories(server, sessions) => missing,
        () = server.engine().leaving() => return Err(Error::unavailable("muxtap is stopping")),
    };
    let mut made = Made::default();
    let mut failed = None;
    for session in sessions {
        if let Err(error) = make_session(server, session, request, &missing, &mut made).await {
            failed = Some(error);
            break;
        }
    }
    if let Some(error) = failed {
        return Err(undo(server, &made, error).await);
    }
    for (pane, lines) in std::mem::take(&mut made.lines) {
        let typed = tokio::select! {
            typed = type_lines(server, &pane, &lines) => typed,
            () = server.engine().leaving() => Err(Error::unavailable("muxtap is stopping")),
        };
        if let Err(error) = typed {
            made.notes.push(format!("{pane}: not all lines were typed: {}", error.message));
        }
    }
    for session in sessions {
        let panes = session.windows.iter().flat_map(|window| window.panes.iter().map(|pane| &pane.labels));
        for error in panes.chain([&session.labels]).filter_map(|labels| labels.check().err()) {
            made.notes.push(format!("{}: not set: {}", plain::name(&session.name), error.message));
        }
    }
    for directory in &missing {
        made.notes.push(format!("{} no longer exists; its panes started in another directory", plain::name(directory)));
    }
    for LeftOut { session, variables, labels } in &left_out {
        let labels = labels.iter().map(|key| format!("label {key}"));
        let names: Vec<String> = variables.iter().cloned().chain(labels).collect();
        made.notes.push(format!(
            "{}: {} not set, as this snapshot was not saved here; --run sets them, and runs its programs and lines",
            plain::name(session),
            plain::name(&names.join(", "))
        ));
    }
    compare(server, sessions, &mut made).await;
    Ok(RestoreAnswer {
        sessions: made.sessions.into_iter().map(|(_, name)| name).collect(),
        windows: made.windows.len() as u64,
        panes: made.panes,
        notes: made.notes,
        left_out,
    })
}

fn taken_name(name: &str) -> Error {
    let message = format!("session {name:?} already exists; restore under another name with --name");
    Error::new(ErrorCode::Conflict, message)
}

/// Ends the sessions made so far. Returns the error, extended by what remains.
async fn undo(server: &Server, made: &Made, mut error: Error) -> Error {
    error.message = format!("{}; nothing was restored", error.message);
    let unzoom = |(_, _, id): &(String, Option<u32>, String)| {
        let zoomed = Command::new("if-shell").flag("-F").opt("-t", id).format("#{window_zoomed_flag}");
        zoomed.arg(format!("{} -Z -t {id}", spelled("resize-pane")))
    };
    let zoomed: Vec<Command> = made.windows.iter().map(unzoom).collect();
    if !zoomed.is_empty() {
        // 3.4 crashes when a session with a zoomed window ends. A missing window has no zoom.
        let _ = server.orders("undo-restore", "windows", zoomed).await;
    }
    for (id, name) in made.sessions.iter().rev() {
        let kill = Command::new("kill-session").opt("-t", id);
        if let Err(left) = server.orders("undo-restore", name, [kill]).await {
            error.message = format!("{}, but session {name} remains: {}", error.message, left.message);
        }
    }
    error
}

/// Returns the panes' directories that no longer exist.
async fn missing_directories(server: &Server, sessions: &[Session]) -> Vec<String> {
    if !server.is_local() {
        return Vec::new();
    }
    let windows = sessions.iter().flat_map(|session| &session.windows);
    let panes = windows.flat_map(|window| window.panes.iter().map(|pane| &pane.directory));
    let mut all: Vec<String> = sessions.iter().map(|session| &session.directory).chain(panes).cloned().collect();
    all.sort();
    all.dedup();
    // A file system that hangs delays only this restore.
    let look = move || all.into_iter().filter(|dir| !dir.is_empty() && !expanded(dir).is_dir()).collect();
    tokio::task::spawn_blocking(look).await.unwrap_or_default()
}

/// Expands `~` to the user's home directory.
fn expanded(directory: &str) -> std::path::PathBuf {
    let home = || std::env::var_os("HOME").map(std::path::PathBuf::from);
    match directory.strip_prefix('~') {
        Some("") => home().unwrap_or_else(|| directory.into()),
        Some(rest) if rest.starts_with('/') => {
            home().map_or_else(|| directory.into(), |home| home.join(rest.trim_start_matches('/')))
        }
        _ => directory.into(),
    }
}

/// Returns the directory in which a pane begins; `None`: tmux's default.
fn begins_in(server: &Server, directory: &str, missing: &[String]) -> Option<String> {
    // The home directory on another host is unknown.
    let is_elsewhere = server.host_name().is_some() && directory.starts_with('~');
    let is_known = !directory.is_empty() && !is_elsewhere && !missing.iter().any(|other| other == directory);
    is_known.then(|| expanded(directory).display().to_string()).filter(|directory| directory.starts_with('/'))
}

async fn make_session(
    server: &Server,
    session: &Session,
    request: &RestoreRequest,
    missing: &[String],
    made: &mut Made,
) -> Result<()> {
    if let Some(with) = &session.grouped_with {
        return make_grouped(server, session, with, missing, made).await;
    }
    let size = session.windows.first().and_then(|window| window.size).unwrap_or((80, 24));
    let cells = |count: u32| u16::try_from(count.clamp(1, MOST_CELLS)).ok();
    let placeholder = NewSessionRequest {
        name: Some(session.name.clone()),
        spawn: SpawnRequest {
            // A placeholder until the first window comes; the command never starts.
            command: Some(vec![":".into()]),
            cwd: begins_in(server, &session.directory, missing),
            caller_env: request.caller_env.clone(),
            ..SpawnRequest::default()
        },
        width: cells(size.0),
        height: cells(size.1),
        ..NewSessionRequest::default()
    };
    let created = match server.create_unmanaged_session(&placeholder).await {
        Ok(created) => created,
        Err(error) if error.code == ErrorCode::Conflict => return Err(taken_name(&session.name)),
        Err(error) => {
            // The session may exist even though following its pane failed.
            if let Ok(id) = server.session_id(&format!("={}", session.name)).await {
                made.sessions.push((id, session.name.clone()));
            }
            return Err(error);
        }
    };
    let id = created.session;
    made.sessions.push((id.clone(), session.name.clone()));
    let set = |(name, value): (&String, &String)| {
        Command::new("set-environment").opt("-t", &id).end_of_flags().arg(name).arg(value)
    };
    let values: Vec<Command> = session.environment.iter().map(set).collect();
    if !values.is_empty() {
        server.orders("restore", &session.name, values).await?;
    }
    let script = if request.run { Some(then_shell(server, &id).await) } else { None };
    let mut windows: Vec<&Window> = session.windows.iter().collect();
    let current = windows.iter().position(|window| window.current);
    // The current window comes first if its index is known: the session then has no last window.
    if let Some(current) = current.filter(|_| windows.iter().all(|window| window.index.is_some())) {
        let current = windows.remove(current);
        windows.insert(0, current);
    }
    let mut ids = Vec::new();
    for (number, window) in windows.iter().enumerate() {
        // A stopping daemon undoes the restore.
        server.engine().check_staying()?;
        let first = (number == 0).then_some(created.window.as_str());
        let made_window = match &window.linked {
            Some(link) => link_window(server, &id, window, link, first, made).await?,
            None => make_window(server, session, &id, window, first, script.as_deref(), missing, made).await?,
        };
        ids.push(made_window);
    }
    let marked = |wanted: fn(&Window) -> bool| {
        let mut both = windows.iter().zip(&ids);
        let (_, window) = both.find(|(window, _)| wanted(window))?;
        Some(Command::new("select-window").opt("-t", format!("{id}:{window}")))
    };
    // The session's labels come last: until then, no pane has one that its own label would replace.
    let marks = marked(|window| window.last).into_iter().chain(marked(|window| window.current));
    let orders: Vec<Command> = marks.chain(labeled(&id, session)).collect();
    if !orders.is_empty() {
        server.orders("restore", &session.name, orders).await?;
    }
    Ok(())
}

/// Makes a session that shares the windows of another one.
async fn make_grouped(
    server: &Server,
    session: &Session,
    with: &str,
    missing: &[String],
    made: &mut Made,
) -> Result<()> {
    let leader = made.sessions.iter().find(|(_, name)| name == with).map(|(id, _)| id.clone());
    let leader =
        leader.ok_or_else(|| Error::invalid(format!("session {:?} shares windows with {with:?}", session.name)))?;
    let word = |option: &str, word: &str| Command::new("set-option").flag("-s").end_of_flags().arg(option).arg(word);
    let mut command =
        Command::new("new-session").flag("-d -E -P").opt("-F", "#{session_id}").opt("-t", leader).opt("-s", THE_WORD);
    let directory = begins_in(server, &session.directory, missing);
    if directory.is_some() {
        command = command.opt("-c", format!("#{{{DIRECTORY}}}"));
    }
    let unset = |option: &str| Command::new("set-option").flag("-s -u").end_of_flags().arg(option);
    let orders = [
        word(WORD, &session.name),
        word(DIRECTORY, &directory.unwrap_or_default()),
        command,
        unset(WORD),
        unset(DIRECTORY),
    ];
    let printed = server.orders("restore", &session.name, orders).await?;
    let id = printed.into_iter().find(|told| told.starts_with('$')).ok_or_else(untold)?;
    made.sessions.push((id.clone(), session.name.clone()));
    let select = |index: u32| Command::new("select-window").opt("-t", format!("{id}:{index}"));
    let orders = session.last.into_iter().chain(session.current).map(select);
    let orders: Vec<Command> = orders.chain(labeled(&id, session)).collect();
    if !orders.is_empty() {
        server.orders("restore", &session.name, orders).await?;
    }
    Ok(())
}

/// Returns whether there are labels, and tmux's option may hold them: those of another file may be too long.
fn can_be_set(labels: &Labels) -> bool {
    !labels.is_empty() && labels.check().is_ok()
}

/// Returns the command that sets a session's labels, if it has any.
fn labeled(id: &str, session: &Session) -> Option<Command> {
    let set = Command::new("set-option").opt("-t", id).end_of_flags().arg(SESSION_LABELS_OPTION);
    can_be_set(&session.labels).then(|| set.arg(session.labels.to_string()))
}

fn untold() -> Error {
    Error::new(ErrorCode::InconsistentState, "tmux did not report what it created")
}

/// Sets the text before commands that use it, and unsets it afterwards.
fn with_word(word: &str, commands: impl IntoIterator<Item = Command>) -> Vec<Command> {
    let set = Command::new("set-option").flag("-s").end_of_flags().arg(WORD).arg(word);
    let unset = Command::new("set-option").flag("-s -u").end_of_flags().arg(WORD);
    std::iter::once(set).chain(commands).chain([unset]).collect()
}

/// Returns the commands that put a window in its place.
///
/// The first window replaces the placeholder, which is moved there before.
fn placed(
    session: &str,
    window: &Window,
    first: Option<&str>,
    command: impl Fn(String, bool) -> Command,
) -> Vec<Command> {
    let place = |index: Option<u32>| index.map(|index| format!("{session}:{index}"));
    match (first, place(window.index)) {
        (Some(placeholder), Some(place)) => {
            // tmux refuses to move a window to its own index, hence the condition. With its source
            // named, a session is not renumbered.
            let index = window.index.unwrap_or_default();
            let move_it = format!("{} -d -s {session}:{placeholder} -t {place}", spelled("move-window"));
            let is_elsewhere = format!("#{{!=:#{{window_index}},{index}}}");
            let target = format!("{session}:{placeholder}");
            let moved = Command::new("if-shell").flag("-F").opt("-t", target).format(is_elsewhere).arg(move_it);
            vec![moved, command(place, true)]
        }
        (Some(placeholder), None) => vec![command(format!("{session}:{placeholder}"), true)],
        (None, Some(place)) => vec![command(place, false)],
        (None, None) => vec![command(format!("{session}:"), false)],
    }
}

async fn link_window(
    server: &Server,
    id: &str,
    window: &Window,
    (session, index): &(String, u32),
    first: Option<&str>,
    made: &Made,
) -> Result<String> {
    let source = made.windows.iter().find(|(name, at, _)| name == session && *at == Some(*index));
    let source =
        source.map(|(_, _, id)| id.clone()).ok_or_else(|| Error::invalid(format!("no window {session}:{index}")))?;
    let commands = placed(id, window, first, |place, replaces| {
        let link = Command::new("link-window").flag(if replaces { "-d -k" } else { "-d" });
        link.opt("-s", &source).opt("-t", place)
    });
    server.orders("restore", session, commands).await?;
    Ok(source)
}

#[allow(clippy::too_many_arguments, reason = "what is made, where, and how")]
async fn make_window(
    server: &Server,
    session: &Session,
    id: &str,
    window: &Window,
    first: Option<&str>,
    script: Option<&str>,
    missing: &[String],
    made: &mut Made,
) -> Result<String> {
    let name = &session.name;
    // The active pane is made first: the window then has no last pane.
    let tiled: Vec<&Pane> = window.panes.iter().filter(|pane| pane.floating.is_none()).collect();
    let active = tiled.iter().position(|pane| pane.active).unwrap_or_default();
    let (before, behind) = tiled.split_at_checked(active).unwrap_or_default();
    let (head, behind) =
        behind.split_first().ok_or_else(|| Error::invalid(format!("a window of session {name:?} has no pane")))?;
    let directory = |pane: &Pane| {
        let own = begins_in(server, &pane.directory, missing);
        own.or_else(|| begins_in(server, &session.directory, missing)).unwrap_or_default()
    };
    let commands = placed(id, window, first, |place, replaces| {
        let new = Command::new("new-window").flag(if replaces { "-d -k" } else { "-d" }).flag("-P");
        program(in_word(new.opt("-F", "#{window_id} #{pane_id}").opt("-t", place), &directory(head)), head, script)
    });
    let mut commands = commands.into_iter();
    if commands.len() > 1 && server.link().has_hub() {
        // muxtap must know the placeholder's index before it is replaced.
        server.orders("restore", name, commands.next()).await?;
        server.link().fresh().await?;
    }
    let told = server.orders("restore", name, with_word(&directory(head), commands)).await?;
    let told = told.iter().find(|told| told.starts_with('@')).ok_or_else(untold)?;
    let (window_id, first_pane) = told.split_once(' ').ok_or_else(untold)?;
    made.windows.push((name.clone(), window.index, window_id.to_owned()));

    let mut orders = Vec::new();
    let resize = |size: (u32, u32)| {
        let [columns, rows] = [size.0, size.1].map(|count| count.clamp(1, MOST_CELLS).to_string());
        Command::new("resize-window").opt("-t", window_id).opt("-x", columns).opt("-y", rows)
    };
    if let Some(size) = window.size {
        orders.push(resize(roomy(size, window.panes.len())));
    }
    // Each new pane comes right before or after the first one: of those after it, the last is made
    // first.
    let rest = before.iter().map(|pane| (pane, "-d -b -P")).chain(behind.iter().rev().map(|pane| (pane, "-d -P")));
    for (pane, how) in rest {
        let split = Command::new("split-window").flag(how).opt("-F", "#{pane_id}").opt("-t", first_pane);
        orders.push(Command::new("set-option").flag("-s").end_of_flags().arg(WORD).arg(directory(pane)));
        orders.push(program(in_word(split, &directory(pane)), pane, script));
        // Makes space for the next pane.
        orders.push(Command::new("select-layout").opt("-t", window_id).arg("tiled"));
    }
    if let Some(size) = window.size {
        orders.push(resize(size));
    }
    if layout::is_known(&window.layout) && layout_fits(window) {
        orders.push(Command::new("select-layout").opt("-t", window_id).end_of_flags().arg(&window.layout));
    }
    if let Some(size) = window.size {
        // 3.2a resizes the window to the layout; later versions fit the layout to the window.
        orders.push(resize(size));
    }
    orders.push(Command::new("set-option").flag("-s -u").end_of_flags().arg(WORD));
    let told = server.orders("restore", name, orders).await?;
    let mut ids: Vec<String> = told.into_iter().filter(|told| told.starts_with('%')).collect();
    if ids.len() != before.len() + behind.len() {
        return Err(untold());
    }
    let later = ids.split_off(before.len());
    ids.push(first_pane.to_owned());
    ids.extend(later.into_iter().rev());
    for pane in window.panes.iter().filter(|pane| pane.floating.is_some()) {
        match float(server, name, first_pane, pane, &directory(pane), script).await {
            Ok(id) => ids.push(id),
            Err(error) => {
                made.notes.push(format!("{}: a floating pane was not created: {}", plain::name(name), error.message));
                // Keeps the ids aligned with the panes.
                ids.push(String::new());
            }
        }
    }
    made.panes += ids.iter().filter(|id| !id.is_empty()).count() as u64;
    server.orders("restore", name, finish(window, window_id, &ids)).await?;
    if script.is_some() {
        let with_lines = window.panes.iter().zip(&ids).filter(|(pane, id)| !pane.lines.is_empty() && !id.is_empty());
        made.lines.extend(with_lines.map(|(pane, id)| (id.clone(), pane.lines.clone())));
    }
    Ok(window_id.to_owned())
}

/// Returns a window size in which this many panes can be made.
fn roomy((columns, rows): (u32, u32), panes: usize) -> (u32, u32) {
    let each_way = panes.isqrt() as u32 + 1;
    (columns.max(ROOM.0 * (each_way + 1)), rows.max(ROOM.1 * (each_way + 1)))
}

/// Returns whether a layout has a cell for each pane; a named one always does.
fn layout_fits(window: &Window) -> bool {
    let tiled = window.panes.iter().filter(|pane| pane.floating.is_none()).count();
    layout::panes(&window.layout).is_none_or(|cells| cells == tiled)
}

/// Starts a command in the directory that the option holds, unless it is empty.
fn in_word(command: Command, directory: &str) -> Command {
    if directory.is_empty() { command } else { command.opt("-c", THE_WORD) }
}

/// Returns the script that runs a program, and then the shell that tmux would start in the session.
async fn then_shell(server: &Server, session: &str) -> String {
    let show = Command::new("display-message").flag("-p").opt("-t", format!("{session}:"));
    // Without it, tmux's default is a login shell.
    let command = server.printed(show.format("#{default-command}")).await.unwrap_or_default();
    match command.trim_end_matches('\n') {
        "" => format!("{PROGRAM}-l"),
        command => format!("{PROGRAM}-c {}", shell_word(command)),
    }
}

/// Adds the pane's program: nothing for a shell, or its saved program, run by a script.
fn program(command: Command, pane: &Pane, script: Option<&str>) -> Command {
    let Some(script) = script.filter(|_| !pane.argv.is_empty()) else { return command };
    let words = ["/bin/sh", "-c", script, RESTORED].into_iter().map(str::to_owned).chain(pane.argv.iter().cloned());
    words.fold(command.end_of_flags(), Command::arg)
}

async fn float(
    server: &Server,
    session: &str,
    target: &str,
    pane: &Pane,
    directory: &str,
    script: Option<&str>,
) -> Result<String> {
    let Some([columns, rows, x, y]) = pane.floating else { return Err(untold()) };
    let mut new = Command::new("new-pane").flag("-d -P").opt("-F", "#{pane_id}").opt("-t", target);
    for (flag, value) in [("-x", columns), ("-y", rows), ("-X", x), ("-Y", y)] {
        new = new.opt(flag, value.to_string());
    }
    let told = server
        .orders("restore", session, with_word(directory, [program(in_word(new, directory), pane, script)]))
        .await?;
    told.into_iter().find(|told| told.starts_with('%')).ok_or_else(untold)
}

/// Returns the commands that set everything of a window and its panes beyond the layout.
fn finish(window: &Window, id: &str, panes: &[String]) -> Vec<Command> {
    let set = |word: &str| Command::new("set-option").flag("-s").end_of_flags().arg(WORD).arg(word);
    let mut orders = Vec::new();
    let both = || window.panes.iter().zip(panes).filter(|(_, id)| !id.is_empty());
    for (pane, id) in both().filter(|(pane, _)| !pane.title.is_empty()) {
        orders.push(set(&layout::unescaped(&pane.title)));
        orders.push(Command::new("select-pane").opt("-t", id).opt("-T", THE_WORD));
    }
    for (pane, id) in both().filter(|(pane, _)| can_be_set(&pane.labels)) {
        let set = Command::new("set-option").flag("-p").opt("-t", id).end_of_flags().arg(LABELS_OPTION);
        orders.push(set.arg(pane.labels.to_string()));
    }
    if !window.name.is_empty() && !window.auto_name {
        orders.push(set(&layout::unescaped(&window.name)));
        orders.push(Command::new("rename-window").opt("-t", id).end_of_flags().format(THE_WORD));
    }
    orders.push(Command::new("set-option").flag("-s -u").end_of_flags().arg(WORD));
    if window.size.is_some() && !window.fixed_size {
        // `resize-window` fixes the size (N20); clients that attach later must be able to resize
        // it.
        orders.push(Command::new("set-option").flag("-w -u").opt("-t", id).arg("window-size"));
    }
    let select = |wanted: fn(&Pane) -> bool| {
        both().find(|(pane, _)| wanted(pane)).map(|(_, id)| Command::new("select-pane").opt("-t", id))
    };
    orders.extend(select(|pane| pane.last).into_iter().chain(select(|pane| pane.active)));
    if window.synchronized {
        orders.push(Command::new("set-option").flag("-w").opt("-t", id).arg("synchronize-panes").arg("on"));
    }
    // The zoom comes last: selecting or resizing a pane ends it.
    if window.zoomed
        && let Some((_, active)) = both().find(|(pane, _)| pane.active)
    {
        orders.push(Command::new("resize-pane").flag("-Z").opt("-t", active));
    }
    orders
}

async fn type_lines(server: &Server, pane: &str, lines: &[String]) -> Result<()> {
    // Followed first, to lose none of its output.
    let pane = server.pane(pane).await?;
    // A line typed before the prompt appears twice. A shell whose prompt is not recognized gets the
    // lines all the same.
    let _ = pane.wait().prompt().timeout(PROMPT).await;
    for line in lines {
        pane.type_text(line.as_str()).await?;
        let enter = InputRequest { keys: Some(vec!["Enter".into()]), ..InputRequest::default() };
        server.input(&pane.id().to_string(), &enter).await?;
    }
    Ok(())
}

/// Reads the result, and notes the differences from the snapshot.
async fn compare(server: &Server, wanted: &[Session], made: &mut Made) {
    // If this fails, the layouts are reported as different.
    let _ = server.follow_for_layouts().await;
    let sessions = made.sessions.iter().map(|(id, _)| id.clone()).collect();
    let now = match save::structure(server, &sessions).await {
        Ok(now) => now,
        Err(error) => {
            made.notes.push(format!("cannot check the result: {}", error.message));
            return;
        }
    };
    for session in wanted {
        let Some(real) = now.sessions.iter().find(|real| layout::unescaped(&real.name) == session.name) else {
            continue;
        };
        for window in session.windows.iter().filter(|window| window.linked.is_none() && window.size.is_some()) {
            let Some(real) = real.windows.iter().find(|real| real.index == window.index) else { continue };
            let place = format!("{}:{}", session.name, real.index.unwrap_or_default());
            if real.size != window.size {
                let place = plain::name(&place);
                made.notes.push(format!("{place} has the size {:?}, not {:?}", real.size, window.size));
            } else if real.layout != window.layout && layout::panes(&window.layout).is_some() {
                let place = plain::name(&place);
                made.notes.push(format!("{place} has the layout {}, not {}", real.layout, window.layout));
            }
        }
    }
}
