//! Carries out the actions, on one server.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use muxtap_engine::{Pane, Request, Server, is_absent, literal};
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::sync::OwnedRwLockReadGuard;

use super::{Action, CapabilityAnswer};
use super::{
    Capability, CapabilitySettings, LastRead, MOST_HISTORY,
    answer::SEE_LIST,
    places::{self, Places},
    request::CapabilityRequest,
};

use muxtap_api::{
    CaptureRequest, Cursor, Error, ErrorCode, InputRequest, NewSessionRequest, NewWindowRequest, PaneInfo, ReadRequest,
    SessionInfo, Size, SpawnRequest, SplitRequest, Tier, WindowInfo,
};
use muxtap_core::{
    protocol::{
        command::{Command, CommandLine},
        ids::PaneId,
    },
    screen::Screen,
    stream::width::columns,
};

/// The size of the session, which is shown on no terminal: large enough for several panes.
const SIZE: (u16, u16) = (200, 50);
/// The time limit for checking a directory.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// Reports whether a directory can be entered.
const DIRECTORY: &str = "if cd -- \"$1\" 2>/dev/null; then echo muxtap-yes; else echo muxtap-no; fi";
/// Prints `muxtap-runs`, each process id, and the command line of its terminal's foreground.
const RUNNING: &str = "for p; do read -r s 2>/dev/null </proc/$p/stat || continue; s=${s##*) }; f=$(set -- $s; echo $6); \
                       [ $f = $p ] || printf 'muxtap-runs %s %s\\n' $p \"$(tr '\\0\\n' '  ' 2>/dev/null </proc/$f/cmdline)\"; \
                       done";
/// The option of a pane that stores its title, since programs change the title that tmux shows.
const TITLE: &str = "@PANE_TITLE";
const CWD: &str = "@PANE_CWD";
const CREATED: &str = "@PANE_CREATED";

fn stopping() -> Error {
    Error::unavailable("muxtap is stopping")
}

type Refused = CapabilityAnswer;
type Answer = Result<CapabilityAnswer, Refused>;

/// A call of the capability.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) capability: Capability,
    pub(super) server: Server,
    pub(super) settings: CapabilitySettings,
}

impl Call {
    pub(super) async fn run(&self, request: CapabilityRequest) -> Answer {
        // The most frequent actions ask tmux once: if their pane exists, the session exists too.
        match &request.action {
            Action::Send { pane, command, clear } => {
                return self.send(self.pane_in_session(pane).await?, pane, command, *clear).await;
            }
            Action::Read { pane, lines, all, since } => {
                return self.read(self.pane_in_session(pane).await?, pane, *lines, *all, *since).await;
            }
            _ => {}
        }
        let session = self.session().await?;
        match request.action {
            Action::Init => self.init(&session).await,
            Action::Split { window, horizontal, title, cwd } => self.split(window, horizontal, title, cwd).await,
            Action::List => self.list(&session).await,
            Action::KillPane(pane) => self.kill_pane(&pane).await,
            Action::KillWindow(window) => self.kill_window(window).await,
            Action::Window { name, cwd } => self.window(&session, name, cwd).await,
            Action::Send { .. } | Action::Read { .. } => Err(Error::internal("this action is handled earlier").into()),
        }
    }

    /// Returns the session; creates it if it is missing. The creation completes even if the caller
    /// leaves, and the session is not visible to callers before it is complete.
    async fn session(&self) -> Result<SessionInfo, Refused> {
        let looking = self.looking().await;
        if let Some(session) = self.find_session().await? {
            return Ok(session);
        }
        drop(looking);
        let lock = self.capability.session_lock(&self.server, self.settings.session());
        let making = if let Ok(making) = lock.clone().try_write_owned() {
            making
        } else {
            // Another caller may have created it.
            let making = lock.write_owned().await;
            if let Some(session) = self.find_session().await? {
                return Ok(session);
            }
            making
        };
        let (done, made) = tokio::sync::oneshot::channel();
        let call = self.clone();
        let end = self.server.engine().end();
        self.server.engine().spawn(async move {
            let made = tokio::select! {
                made = call.make_session() => made,
                () = end.cancelled() => Err(Error::unavailable("muxtap is stopping")),
            };
            drop(making);
            // A caller that disconnected needs no response.
            let _ = done.send(made);
        });
        match made.await.unwrap_or_else(|_| Err(stopping())) {
            Ok(()) => {}
            // Another process created it first.
            Err(error) if error.code == ErrorCode::Conflict => {}
            Err(error) => return Err(error.into()),
        }
        let made = self.find_session().await?;
        made.ok_or_else(|| Error::internal("the session ended immediately after its creation").into())
    }

    /// Waits until no caller is creating the session, and holds off creation meanwhile.
    async fn looking(&self) -> OwnedRwLockReadGuard<()> {
        self.capability.session_lock(&self.server, self.settings.session()).read_owned().await
    }

    async fn find_session(&self) -> Result<Option<SessionInfo>, Refused> {
        match self.server.sessions().await {
            Ok(sessions) => Ok(sessions.into_iter().find(|session| session.name == self.settings.session())),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates the session. Its history limit is an option of the session, set only afterwards; so
    /// its first window, which has the old limit, is replaced by another one.
    async fn make_session(&self) -> crate::Result<()> {
        let name = self.settings.session();
        self.check_directory(self.settings.cwd()).await?;
        let request = NewSessionRequest {
            name: Some(name.to_owned()),
            width: Some(SIZE.0),
            height: Some(SIZE.1),
            ..NewSessionRequest::default()
        };
        let first = self.server.create_session(&request).await?;
        let limit = self.settings.history_limit().to_string();
        self.change([
            Command::new("set-option").opt("-t", &first.session).arg("base-index").arg("0"),
            Command::new("set-option").opt("-t", &first.session).arg("history-limit").arg(limit),
        ])
        .await?;
        let pane = self.make_window(&first.session, Some("workspace"), self.settings.cwd(), "main").await?;
        // The engine's own placeholder, not a window of the user's.
        self.change([Command::new("kill-window").opt("-t", &first.window)]).await?;
        self.change([Command::new("move-window").flag("-r").opt("-t", format!("{}:", first.session))]).await?;
        self.change([Command::new("select-window").opt("-t", pane.to_string())]).await
    }

    /// Creates a window and stores its pane's metadata.
    async fn make_window(&self, session: &str, name: Option<&str>, cwd: &str, title: &str) -> crate::Result<PaneId> {
        let request = NewWindowRequest {
            session: session.to_owned(),
            name: name.map(str::to_owned),
            spawn: spawn(cwd, title),
            ..NewWindowRequest::default()
        };
        let made = self.server.create_window(&request).await?;
        let base = Command::new("set-option").flag("-w").opt("-t", &made.window).arg("pane-base-index").arg("0");
        self.change([base]).await?;
        self.keep(made.pane, title, cwd).await?;
        Ok(made.pane)
    }

    /// Stores the metadata of a pane on the server.
    async fn keep(&self, pane: PaneId, title: &str, cwd: &str) -> crate::Result<()> {
        let target = pane.to_string();
        let option =
            |name: &str, value: &str| Command::new("set-option").flag("-p").opt("-t", &target).arg(name).arg(value);
        self.change([
            option(TITLE, title),
            option(CWD, cwd),
            option(CREATED, &now()),
            Command::new("select-pane").opt("-t", &target).opt("-T", literal(title)),
        ])
        .await
    }

    async fn change(&self, commands: impl IntoIterator<Item = Command>) -> crate::Result<()> {
        change(&self.server, commands).await
    }

    /// Checks that a directory exists on the server's host: tmux would silently start in another
    /// one.
    async fn check_directory(&self, cwd: &str) -> crate::Result<()> {
        self.server.engine().authorize(Tier::Create)?;
        let exists = if self.server.is_local() {
            // The directory may be on a file system that hangs.
            let path = PathBuf::from(cwd);
            let look = tokio::task::spawn_blocking(move || path.is_dir());
            let late = |_| Error::unavailable(format!("{cwd}: the file system does not respond"));
            tokio::time::timeout(LOOK_LIMIT, look).await.map_err(late)?.unwrap_or_default()
        } else {
            // A profile may print before it.
            let said = self.server.script_there(DIRECTORY, &[cwd]).await?;
            match said.split_whitespace().next_back() {
                Some("muxtap-yes") => true,
                Some("muxtap-no") => false,
                _ => {
                    return Err(Error::unavailable(format!("whether {cwd} exists is unknown: no shell there replied")));
                }
            }
        };
        if exists { Ok(()) } else { Err(Error::invalid(format!("No such directory: {cwd}"))) }
    }

    async fn init(&self, session: &SessionInfo) -> Answer {
        let (places, windows) = (self.places().await?, self.windows(session).await?);
        let panes = self.panes(&places).await?;
        let active = windows.iter().find(|window| window.active);
        let active = active.and_then(|window| panes.iter().find(|pane| pane.window_id == window.id && pane.active));
        let windows: Vec<_> = windows
            .iter()
            .filter_map(|window| Some((window, places.window(&window.id)?)))
            .map(|(window, id)| json!({ "id": id, "name": window.name, "panes": window.panes }))
            .collect();
        Ok(CapabilityAnswer::done(json!({
            "session": session.name,
            "windows": windows,
            "active_pane": active.and_then(|pane| places.pane(pane.id)),
        })))
    }

    /// Returns the addresses of the session's windows and panes. Error: the session does not exist.
    async fn places(&self) -> Result<Places, Refused> {
        let session = self.settings.session();
        let places = Places::of(&self.capability, &self.server, session).await?;
        places.ok_or_else(|| Error::not_found(format!("the session {session} has ended")).into())
    }

    async fn windows(&self, session: &SessionInfo) -> Result<Vec<WindowInfo>, Refused> {
        let mut windows = self.server.windows().await?;
        windows.retain(|window| window.session == session.name);
        Ok(windows)
    }

    /// Returns the session's panes that have not ended.
    async fn panes(&self, places: &Places) -> Result<Vec<PaneInfo>, Refused> {
        let mut panes = self.server.panes().await?;
        panes.retain(|pane| !pane.earlier_server && places.pane(pane.id).is_some());
        Ok(panes)
    }

    /// Finds a pane by its address in the session (`W.P`); creates the session if it is missing.
    async fn pane_in_session(&self, written: &str) -> Result<Pane, Refused> {
        let looking = self.looking().await;
        let places = match Places::of(&self.capability, &self.server, self.settings.session()).await {
            Ok(places) => places,
            Err(error) if is_absent(&error) => None,
            Err(error) => return Err(error.into()),
        };
        drop(looking);
        let places = if let Some(places) = places {
            places
        } else {
            self.session().await?;
            self.places().await?
        };
        self.pane(&places, written).await
    }

    /// Finds a pane by its address, `W.P`. Error: the pane does not exist.
    async fn pane(&self, places: &Places, written: &str) -> Result<Pane, Refused> {
        let missing = || CapabilityAnswer::refused(format!("Pane {written} not found"), SEE_LIST);
        let id = places::parse(written).and_then(|place| places.pane_at(place)).ok_or_else(missing)?;
        match self.server.pane(id).await {
            Ok(pane) => Ok(pane),
            Err(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::InvalidTarget) => Err(missing()),
            Err(error) => Err(error.into()),
        }
    }

    async fn send(&self, pane: Pane, written: &str, command: &str, clear: bool) -> Answer {
        let target = pane.id().to_string();
        if clear {
            let keys = Some(vec!["C-l".to_owned()]);
            self.server.input(&target, &InputRequest { keys, ..InputRequest::default() }).await?;
        }
        self.server.text_and_keys(&target, command, &["Enter".to_owned()]).await?;
        Ok(CapabilityAnswer::done(json!({ "pane": written, "command": command, "sent_at": now() })))
    }

    async fn read(&self, pane: Pane, written: &str, lines: u32, all: bool, since: bool) -> Answer {
        let reads = self.capability.reads_of(&self.server, pane.id());
        // Locked first: two concurrent reads would return the same output.
        let mut known = reads.lock().await;
        let last = known.filter(|_| since && !all);
        let (output, read, more, gap) = if let Some(last) = last {
            let request = ReadRequest { since: Some(last.cursor.to_string()), ..ReadRequest::default() };
            let answer = self.server.read(&pane.id().to_string(), &request).await?;
            let output = answer.text.unwrap_or_default();
            let continues = last.is_open && answer.gap.is_none() && !output.is_empty();
            let lines = last.lines + line_count(&output) - u64::from(continues);
            let is_open = if output.is_empty() { last.is_open } else { !output.ends_with('\n') };
            (output, LastRead { cursor: answer.cursor, lines, is_open }, answer.more, answer.gap)
        } else {
            let (text, cursor, is_open) = self.last_lines(&pane, (!all).then_some(lines)).await?;
            let (output, more) = if all { (text.as_str(), false) } else { last_lines(&text, lines) };
            let is_open = is_open && !output.is_empty();
            (output.to_owned(), LastRead { cursor, lines: line_count(output), is_open }, more, None)
        };
        *known = Some(read);
        drop(known);
        let continues = last.is_some_and(|last| last.is_open) && gap.is_none();
        let continues = continues && !output.is_empty() && !output.starts_with('\n');
        let output = trimmed(&output);
        let mut data = json!({
            "pane": written,
            "output": output,
            "lines_captured": line_count(output),
            "cursor_position": read.lines.to_string(),
            "has_more": more,
        });
        if let Some(data) = data.as_object_mut() {
            let flags = [("first_line_continues", continues), ("last_line_open", read.is_open)];
            data.extend(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| (name.into(), true.into())));
            data.extend(gap.map(|gap| ("missing_before".into(), json!(gap.reason))));
        }
        Ok(CapabilityAnswer::done(data))
    }

    /// Returns more than `lines` of a pane's last lines, or all of them if there are not as many,
    /// the cursor at the end of its output, and whether the last line has no end yet.
    async fn last_lines(&self, pane: &Pane, lines: Option<u32>) -> crate::Result<(String, Cursor, bool)> {
        // Wrapped lines are several rows: the number of rows is known only after joining.
        let mut rows = lines.map_or(MOST_HISTORY, |lines| lines.saturating_add(1).min(MOST_HISTORY));
        let mut before = None;
        loop {
            let start = if rows >= MOST_HISTORY { "-".to_owned() } else { format!("-{rows}") };
            let request = CaptureRequest { start: Some(start), join: true, ..CaptureRequest::default() };
            let (captured, place) = self.server.capture_with_place(&pane.id().to_string(), &request).await?;
            // Joined lines keep trailing blanks; on 3.2a also those of cells that were never
            // written (N61).
            let text = captured.text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
            let found = line_count(text.trim_end());
            let all = captured.text.len();
            let history = pane.look(|look| look.screen.filter(|_| look.is_followed).map(Screen::history_size));
            let is_whole = rows >= MOST_HISTORY
                || history.is_some_and(|history| history <= rows)
                || before.replace(all) == Some(all);
            if is_whole || lines.is_some_and(|lines| found > u64::from(lines)) {
                let open = place.and_then(|place| open_line(&captured.text, captured.size, place));
                return Ok((text.trim_end().to_owned() + open.unwrap_or_default(), captured.cursor, open.is_some()));
            }
            rows = rows.saturating_mul(2).min(MOST_HISTORY);
        }
    }

    async fn split(&self, window: u32, horizontal: bool, title: Option<String>, cwd: Option<String>) -> Answer {
        let places = self.places().await?;
        let panes = self.panes(&places).await?;
        let within: Vec<_> = places.window_at(window).into_iter().flat_map(|id| places.within(id)).collect();
        let active = panes.iter().find(|pane| pane.active && within.contains(&pane.id));
        let active = active.ok_or_else(|| no_window(window))?;
        let cwd = cwd.unwrap_or_else(|| {
            if active.path.is_empty() { self.settings.cwd().to_owned() } else { active.path.clone() }
        });
        self.check_directory(&cwd).await?;
        let title = title.unwrap_or_else(|| "New pane".into());
        let request = SplitRequest {
            pane: active.id.to_string(),
            horizontal,
            spawn: spawn(&cwd, &title),
            select: true,
            ..SplitRequest::default()
        };
        let made = match self.server.create_split(&request).await {
            Err(error) if error.message.contains("no space") => {
                let why = format!("Window {window} is too small for another pane");
                return Err(CapabilityAnswer::refused(why, "Use action='window', or kill a pane first"));
            }
            made => made?,
        };
        self.keep(made.pane, &title, &cwd).await?;
        let place = self.places().await?.pane(made.pane).ok_or_else(|| ended("pane"))?;
        Ok(CapabilityAnswer::done(json!({ "pane": place, "window": window, "title": title, "cwd": cwd })))
    }

    async fn list(&self, session: &SessionInfo) -> Answer {
        let (places, windows) = (self.places().await?, self.windows(session).await?);
        let panes = self.panes(&places).await?;
        let titles = self.titles(session).await?;
        let running = self.running(&panes).await;
        let item = |pane: &PaneInfo| {
            let title = titles.get(&pane.id).filter(|title| !title.is_empty()).unwrap_or(&pane.title);
            json!({
                "id": places.pane(pane.id), "title": title, "cwd": pane.path, "active": pane.active,
                "running": running.get(&pane.id).unwrap_or(&pane.command),
            })
        };
        // In the order of their addresses.
        let mut panes: Vec<_> = panes.iter().collect();
        panes.sort_by_key(|pane| places.place(pane.id));
        let mut windows: Vec<_> = windows
            .iter()
            .filter_map(|window| Some((places.window(&window.id)?, window, window.id.parse().ok()?)))
            .collect();
        windows.sort_by_key(|(address, ..)| *address);
        let windows: Vec<Value> = windows
            .into_iter()
            .map(|(address, window, id)| {
                let within: Vec<_> = places.within(id).collect();
                let panes: Vec<_> =
                    panes.iter().filter(|pane| within.contains(&pane.id)).map(|pane| item(pane)).collect();
                json!({ "id": address, "name": window.name, "panes": panes })
            })
            .collect();
        Ok(CapabilityAnswer::done(json!({ "session": session.name, "windows": windows })))
    }

    /// Returns the command lines of the programs in the foreground of panes, except idle shells and
    /// what cannot be read.
    async fn running(&self, panes: &[PaneInfo]) -> BTreeMap<PaneId, String> {
        if self.server.is_local() {
            let mut lines = BTreeMap::new();
            for pane in panes.iter().filter(|pane| !pane.dead) {
                let args = self.server.foreground_args(pane.id).await.unwrap_or_default();
                let line = match args.as_slice() {
                    [] => continue,
                    // A pipeline, among others.
                    [shell, option, line] if shell == "/bin/sh" && option == "-c" => line.clone(),
                    args => args.join(" "),
                };
                lines.insert(pane.id, line);
            }
            return lines;
        }
        let pids: Vec<String> = panes.iter().filter(|pane| !pane.dead).map(|pane| pane.pid.to_string()).collect();
        let pids: Vec<&str> = pids.iter().map(String::as_str).collect();
        let said = self.server.script_there(RUNNING, &pids).await.unwrap_or_default();
        let lines = said.lines().filter_map(|line| line.strip_prefix("muxtap-runs ")?.split_once(' '));
        let lines = lines.filter_map(|(pid, line)| {
            let pane = panes.iter().find(|pane| !pane.dead && Ok(pane.pid) == pid.parse())?;
            Some((pane.id, line.trim().to_owned()))
        });
        lines.filter(|(_, line)| !line.is_empty()).collect()
    }

    /// Returns the stored titles.
    async fn titles(&self, session: &SessionInfo) -> Result<BTreeMap<PaneId, String>, Refused> {
        let question = || {
            let list = Command::new("list-panes").flag("-s").opt("-t", &session.id);
            Request::Framed(vec![list.opt("-F", format!("#{{pane_id}} #{{{TITLE}}}"))])
        };
        let answer = self.server.link().read(None, question).await?;
        let text = answer.ok().and_then(|bodies| Some(String::from_utf8_lossy(bodies.first()?).into_owned()));
        let text = text.unwrap_or_default();
        let rows = text.lines().filter_map(|line| line.split_once(' '));
        Ok(rows.filter_map(|(id, title)| Some((id.parse().ok()?, title.to_owned()))).collect())
    }

    async fn kill_pane(&self, written: &str) -> Answer {
        let places = self.places().await?;
        let pane = self.pane(&places, written).await?;
        if places.pane_count() <= 1 {
            return Err(self.last(&format!("pane {written}")));
        }
        self.server.kill_pane(&pane.id().to_string()).await?;
        Ok(CapabilityAnswer::done(json!({ "killed": written, "type": "pane" })))
    }

    async fn kill_window(&self, address: u32) -> Answer {
        let places = self.places().await?;
        let window = places.window_at(address).ok_or_else(|| no_window(address))?;
        if places.within(window).count() == places.pane_count() {
            return Err(self.last(&format!("window {address}")));
        }
        self.server.kill_window(&window.to_string()).await?;
        Ok(CapabilityAnswer::done(json!({ "killed": address.to_string(), "type": "window" })))
    }

    fn last(&self, what: &str) -> Refused {
        let why =
            format!("Cannot kill {what}: it is the last one, and the session {} would end", self.settings.session());
        CapabilityAnswer::refused(why, "Use action='split' or action='window' first")
    }

    async fn window(&self, session: &SessionInfo, name: Option<String>, cwd: Option<String>) -> Answer {
        let cwd = cwd.unwrap_or_else(|| self.settings.cwd().to_owned());
        self.check_directory(&cwd).await?;
        let title = name.clone().unwrap_or_else(|| "New window".into());
        let pane = self.make_window(&session.id, name.as_deref(), &cwd, &title).await?;
        let places = self.places().await?;
        let panes = self.panes(&places).await?;
        let made = panes.iter().find(|made| made.id == pane).ok_or_else(|| ended("window"))?;
        let window = places.window(&made.window_id);
        let place = places.pane(pane);
        Ok(CapabilityAnswer::done(json!({ "window": window, "name": made.window, "pane": place })))
    }
}

/// Runs commands that change something.
pub(super) async fn change(server: &Server, commands: impl IntoIterator<Item = Command>) -> crate::Result<()> {
    let line = CommandLine::of(commands);
    let answer = server.link().write(None, Request::Plain(line)).await?;
    answer.map(drop).map_err(|message| Error::new(ErrorCode::Conflict, format!("tmux: {message}")))
}

fn ended(what: &str) -> Error {
    Error::internal(format!("the {what} ended immediately after its creation"))
}

fn no_window(index: u32) -> Refused {
    CapabilityAnswer::refused(format!("Window {index} not found"), SEE_LIST)
}

fn spawn(cwd: &str, title: &str) -> SpawnRequest {
    let env = [("PANE_TITLE", title.to_owned()), ("PANE_CWD", cwd.to_owned()), ("PANE_CREATED", now())];
    SpawnRequest {
        cwd: Some(cwd.to_owned()),
        env: env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        ..SpawnRequest::default()
    }
}

/// Returns the current time, to a second.
fn now() -> String {
    let now = OffsetDateTime::now_utc();
    now.replace_nanosecond(0).unwrap_or(now).format(&Rfc3339).unwrap_or_default()
}

fn line_count(text: &str) -> u64 {
    text.lines().count() as u64
}

/// Returns the blanks at the end of the last line of a capture, if the cursor is behind it in its
/// row. `None`: the line has an end.
fn open_line(text: &str, size: Size, (row, column): (u16, u16)) -> Option<&str> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    // Rows below the last line.
    let rows = text.rsplit('\n').take_while(|row| row.trim().is_empty()).count();
    let last = text.rsplit('\n').nth(rows)?;
    if column == 0 || usize::from(row) + rows + 1 != usize::from(size.height) {
        return None;
    }
    let printed = last.trim_end();
    // Cells that were never written are not printed.
    let width = usize::from(size.width).max(1);
    let printed_columns: usize = printed.chars().map(columns).sum();
    let blanks = usize::from(column).saturating_sub(printed_columns % width);
    let blanks = last.get(printed.len()..).unwrap_or_default().get(..blanks);
    Some(blanks.or_else(|| last.get(printed.len()..)).unwrap_or_default())
}

/// Returns the last lines of a text, and whether it has more.
fn last_lines(text: &str, lines: u32) -> (&str, bool) {
    let skipped = (text.lines().count() as u64).saturating_sub(u64::from(lines));
    if skipped == 0 {
        return (text, false);
    }
    let mut rest = text;
    for _ in 0..skipped {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    (rest, true)
}

/// Returns a text without leading and trailing blank lines and without trailing blanks, except those
/// of a last line that has no end: its continuation follows them.
fn trimmed(text: &str) -> &str {
    let last = text.rsplit('\n').next().unwrap_or_default();
    let text = if last.is_empty() { text.trim_end() } else { text };
    text.trim_start_matches(['\n', '\r'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_told_with_whether_there_are_more() {
        assert_eq!(last_lines("a\nb\nc", 2), ("b\nc", true));
        assert_eq!(last_lines("a\nb", 2), ("a\nb", false));
        assert_eq!(last_lines("", 2), ("", false));
        assert_eq!(last_lines("a\nb", 0), ("", true));
    }

    #[test]
    fn a_last_line_is_open_where_the_cursor_is() {
        let size = Size { width: 10, height: 4 };
        assert_eq!(open_line("a\nAge: \n\n\n", size, (1, 5)), Some(" "));
        assert_eq!(open_line("a\nAge:      \n\n\n", size, (1, 5)), Some(" "), "padded, as by 3.2a");
        assert_eq!(open_line("a\n日本>    \n\n\n", size, (1, 6)), Some(" "), "wide characters");
        assert_eq!(open_line("a\nb\n\n\n", size, (2, 0)), None);
        assert_eq!(open_line("a\nb\n\n\n", size, (0, 1)), None, "the cursor is elsewhere");
        assert_eq!(open_line("a\nb\nc\n0123456789 12 \n", size, (3, 4)), Some(" "));
        assert_eq!(open_line("\n\n\n\n", size, (0, 3)), None);
    }

    #[test]
    fn a_text_is_trimmed_but_for_its_first_lines_indent() {
        assert_eq!(trimmed("\n\n  a\n b  \n\n"), "  a\n b");
        assert_eq!(trimmed("\na \nAge: "), "a \nAge: ", "its last line goes on");
    }
}
