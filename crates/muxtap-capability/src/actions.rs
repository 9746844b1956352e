//! Carries out the actions, on one server.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use muxtap_engine::{Pane, Request, Server, is_absent, literal};
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::sync::OwnedRwLockReadGuard;

use super::{Action, CapabilityAnswer};
use super::{Capability, CapabilitySettings, LastRead, MOST_HISTORY, answer::SEE_LIST, request::CapabilityRequest};

use muxtap_api::{
    CaptureRequest, Cursor, Error, ErrorCode, InputRequest, NewSessionRequest, NewWindowRequest, PaneInfo, ReadRequest,
    SessionInfo, SpawnRequest, SplitRequest, Tier, WindowInfo,
};
use muxtap_core::{
    protocol::{
        command::{Command, CommandLine},
        ids::PaneId,
    },
    screen::Screen,
};

/// The size of the session, which is shown on no terminal: large enough for several panes.
const SIZE: (u16, u16) = (200, 50);
/// The time limit for checking a directory.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
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
        let making = self.capability.session_lock(&self.server, self.settings.session()).write_owned().await;
        if let Some(session) = self.find_session().await? {
            return Ok(session);
        }
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
        let line = CommandLine::of(commands);
        let answer = self.server.link().write(None, Request::Plain(line)).await?;
        answer.map(drop).map_err(|message| Error::new(ErrorCode::Conflict, format!("tmux: {message}")))
    }

    /// Checks that a directory exists on this host. tmux would silently start in the home
    /// directory; on other hosts only tmux could check.
    async fn check_directory(&self, cwd: &str) -> crate::Result<()> {
        self.server.engine().authorize(Tier::Create)?;
        if self.server.host_name().is_some() {
            return Ok(());
        }
        // The directory may be on a file system that hangs.
        let path = PathBuf::from(cwd);
        let look = tokio::task::spawn_blocking(move || path.is_dir());
        match tokio::time::timeout(LOOK_LIMIT, look).await {
            Ok(Ok(true)) => Ok(()),
            Ok(_) => Err(Error::invalid(format!("No such directory: {cwd}"))),
            Err(_) => Err(Error::unavailable(format!("{cwd}: the file system does not respond"))),
        }
    }

    async fn init(&self, session: &SessionInfo) -> Answer {
        let windows: Vec<WindowInfo> = self.windows(session).await?;
        let panes = self.panes().await?;
        let active = windows.iter().find(|window| window.active);
        let active = active.and_then(|window| panes.iter().find(|pane| pane.window_id == window.id && pane.active));
        let windows: Vec<_> = windows
            .iter()
            .map(|window| json!({ "id": window.index, "name": window.name, "panes": window.panes }))
            .collect();
        Ok(CapabilityAnswer::done(json!({
            "session": session.name,
            "windows": windows,
            "active_pane": active.map(place),
        })))
    }

    async fn windows(&self, session: &SessionInfo) -> Result<Vec<WindowInfo>, Refused> {
        let mut windows = self.server.windows().await?;
        windows.retain(|window| window.session == session.name);
        Ok(windows)
    }

    /// Returns the session's panes that have not ended.
    async fn panes(&self) -> Result<Vec<PaneInfo>, Refused> {
        let mut panes = self.server.panes().await?;
        panes.retain(|pane| pane.session == self.settings.session() && !pane.window_id.is_empty());
        Ok(panes)
    }

    /// Finds a pane by its index in the session (`W.P`); creates the session if it is missing.
    async fn pane_in_session(&self, written: &str) -> Result<Pane, Refused> {
        let looking = self.looking().await;
        match self.find_pane(written).await {
            Ok(Some(pane)) => return Ok(pane),
            Ok(None) => {}
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(error.into()),
        }
        drop(looking);
        self.session().await?;
        self.pane(written).await
    }

    /// Finds a pane by its index, `W.P`. Error: the pane does not exist.
    async fn pane(&self, written: &str) -> Result<Pane, Refused> {
        let missing = || CapabilityAnswer::refused(format!("Pane {written} not found"), SEE_LIST);
        self.find_pane(written).await?.ok_or_else(missing)
    }

    async fn find_pane(&self, written: &str) -> crate::Result<Option<Pane>> {
        let parts = written.split_once('.');
        let parts = parts.and_then(|(window, pane)| Some((window.parse::<u32>().ok()?, pane.parse::<u32>().ok()?)));
        let Some((window, pane)) = parts else { return Ok(None) };
        let target = format!("={}:{window}.{pane}", self.settings.session());
        match self.server.pane(target).await {
            Ok(pane) => Ok(Some(pane)),
            Err(error) if matches!(error.code, ErrorCode::NotFound | ErrorCode::InvalidTarget) => Ok(None),
            Err(error) => Err(error),
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
            let read = LastRead { cursor: answer.cursor, lines: last.lines + line_count(&output) };
            (output, read, answer.more, answer.gap)
        } else {
            let (text, cursor) = self.last_lines(&pane, (!all).then_some(lines)).await?;
            let (output, more) = if all { (text.as_str(), false) } else { last_lines(&text, lines) };
            (output.to_owned(), LastRead { cursor, lines: line_count(output) }, more, None)
        };
        *known = Some(read);
        drop(known);
        let output = trimmed(&output);
        let mut data = json!({
            "pane": written,
            "output": output,
            "lines_captured": line_count(&output),
            "cursor_position": read.lines.to_string(),
            "has_more": more,
        });
        if let (Some(gap), Some(data)) = (gap, data.as_object_mut()) {
            data.insert("missing_before".into(), json!(gap.reason));
        }
        Ok(CapabilityAnswer::done(data))
    }

    /// Returns more than `lines` of a pane's last lines, or all of them if there are not as many,
    /// and the cursor at the end of its output.
    async fn last_lines(&self, pane: &Pane, lines: Option<u32>) -> crate::Result<(String, Cursor)> {
        // Wrapped lines are several rows: the number of rows is known only after joining.
        let mut rows = lines.map_or(MOST_HISTORY, |lines| lines.saturating_add(1).min(MOST_HISTORY));
        let mut before = None;
        loop {
            let start = if rows >= MOST_HISTORY { "-".to_owned() } else { format!("-{rows}") };
            let request = CaptureRequest { start: Some(start), join: true, ..CaptureRequest::default() };
            let captured = self.server.capture(&pane.id().to_string(), &request).await?;
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
                return Ok((text.trim_end().to_owned(), captured.cursor));
            }
            rows = rows.saturating_mul(2).min(MOST_HISTORY);
        }
    }

    async fn split(&self, window: u32, horizontal: bool, title: Option<String>, cwd: Option<String>) -> Answer {
        let panes = self.panes().await?;
        let active = panes.iter().find(|pane| pane.window_index == window && pane.active);
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
        let place = self.place_of(made.pane).await?;
        Ok(CapabilityAnswer::done(json!({ "pane": place, "window": window, "title": title, "cwd": cwd })))
    }

    async fn place_of(&self, id: PaneId) -> Result<String, Refused> {
        let panes = self.panes().await?;
        let made = panes.iter().find(|pane| pane.id == id);
        made.map(place).ok_or_else(|| Error::internal("the pane ended immediately after its creation").into())
    }

    async fn list(&self, session: &SessionInfo) -> Answer {
        let windows = self.windows(session).await?;
        let panes = self.panes().await?;
        let titles = self.titles(session).await?;
        let windows: Vec<Value> = windows
            .iter()
            .map(|window| {
                let panes: Vec<_> = panes
                    .iter()
                    .filter(|pane| pane.window_index == window.index)
                    .map(|pane| {
                        let title = titles.get(&pane.id).filter(|title| !title.is_empty()).unwrap_or(&pane.title);
                        json!({
                            "id": place(pane), "title": title, "cwd": pane.path, "active": pane.active,
                            "running": pane.command,
                        })
                    })
                    .collect();
                json!({ "id": window.index, "name": window.name, "panes": panes })
            })
            .collect();
        Ok(CapabilityAnswer::done(json!({ "session": session.name, "windows": windows })))
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
        let pane = self.pane(written).await?;
        if self.panes().await?.len() <= 1 {
            return Err(self.last(&format!("pane {written}")));
        }
        self.server.kill_pane(&pane.id().to_string()).await?;
        Ok(CapabilityAnswer::done(json!({ "killed": written, "type": "pane" })))
    }

    async fn kill_window(&self, index: u32) -> Answer {
        let panes = self.panes().await?;
        let Some(pane) = panes.iter().find(|pane| pane.window_index == index) else { return Err(no_window(index)) };
        if panes.iter().all(|other| other.window_index == index) {
            return Err(self.last(&format!("window {index}")));
        }
        self.server.kill_window(&pane.window_id).await?;
        Ok(CapabilityAnswer::done(json!({ "killed": index.to_string(), "type": "window" })))
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
        let panes = self.panes().await?;
        let made = panes.iter().find(|made| made.id == pane);
        let made = made.ok_or_else(|| Error::internal("the window ended immediately after its creation"))?;
        Ok(CapabilityAnswer::done(json!({ "window": made.window_index, "name": made.window, "pane": place(made) })))
    }
}

fn no_window(index: u32) -> Refused {
    CapabilityAnswer::refused(format!("Window {index} not found"), SEE_LIST)
}

/// Returns a pane's index in the session, `W.P`.
fn place(pane: &PaneInfo) -> String {
    format!("{}.{}", pane.window_index, pane.index)
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

/// Returns a text without leading and trailing blank lines and without trailing blanks.
fn trimmed(text: &str) -> String {
    text.trim_end().trim_start_matches(['\n', '\r']).to_owned()
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
    fn a_text_is_trimmed_but_for_its_first_lines_indent() {
        assert_eq!(trimmed("\n\n  a\n b  \n\n"), "  a\n b");
    }
}
