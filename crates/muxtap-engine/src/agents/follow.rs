//! Follows one pane from its beginning to its end: which agent runs in it, and what the agent does.
//!
//! Each pane has a task that sleeps until its [`AgentSignals`](super::AgentSignals) wake it. The
//! task examines processes when another program may run, and an agent's screen when the screen is
//! quiet after a change. `docs/agents.md` describes what is examined when, and the cost.

use std::{
    path::Path,
    sync::{Arc, Weak},
    time::Duration,
};

use muxtap_api::{AgentEvidence, AgentInfo, AgentState, Event};
use muxtap_base::clock::now_ms;
use muxtap_core::screen::Screen;
use muxtap_tmux::{Subject, death};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    identify::{find_agent, find_by_name},
    judge::{Judgement, PaneContent, judge},
    registry::update_location,
    rules::{Agent, Rules},
    signals::Announced,
    version::AgentVersion,
};

use crate::{Engine, Host, PaneState, Server, elsewhere::host_of, limits, pane::PaneUse};

/// Follows a pane in a task of its own, until the pane no longer exists or its server is no longer
/// followed.
pub(crate) fn follow(host: &Arc<Host>, pane: &Arc<PaneState>) {
    let Some(shared) = host.shared() else { return };
    let rules = shared.agent_rules.subscribe();
    if !rules.borrow().is_empty() {
        shared.tasks.spawn(look_at(Arc::downgrade(host), pane.clone(), rules, host.cancel().clone()));
    }
}

async fn look_at(
    host: Weak<Host>,
    pane: Arc<PaneState>,
    mut news: watch::Receiver<Arc<Rules>>,
    cancel: CancellationToken,
) {
    let wake = pane.lock().agent_signals().waker();
    let rules = news.borrow_and_update().clone();
    let mut follower = Follower {
        host,
        pane,
        rules,
        running: None,
        pause: limits::AGENT_LOOK,
        checked_at: Instant::now(),
        foreground_group: None,
        changed_since: None,
        screen_due: None,
        retry_at: None,
        probe_missed: false,
    };
    tokio::select! {
        () = cancel.cancelled() => {}
        () = follower.run(&wake, &mut news) => {}
    }
}

struct Follower {
    host: Weak<Host>,
    pane: Arc<PaneState>,
    rules: Arc<Rules>,
    running: Option<RunningAgent>,
    /// How long to wait before output may cause another examination of the processes.
    pause: Duration,
    checked_at: Instant,
    /// The foreground process group at the last examination of the processes.
    foreground_group: Option<u32>,
    /// The time of the oldest output that has not been examined.
    changed_since: Option<Instant>,
    /// When to examine the changed screen.
    screen_due: Option<Instant>,
    /// When to retry a postponed step: an examination of the processes or a query to tmux.
    retry_at: Option<Instant>,
    /// Whether the last examination of the processes failed.
    probe_missed: bool,
}

/// The agent that runs in the pane.
struct RunningAgent {
    agent: Arc<Agent>,
    pid: Option<u32>,
    end: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The last published judgement, and the time since which it holds.
    reported: Option<(Judgement, u64)>,
    /// Its version, once the screen has shown it.
    version: Option<AgentVersion>,
    /// Whether its version or its rules are newer than what is published.
    is_renewed: bool,
    /// The inputs of the last judgement.
    observed: Option<Observed>,
    /// The offset of the last bell that does not count: it rang before the agent began or last
    /// worked.
    bell: Option<u64>,
    /// The directory in which it ran when it was found.
    directory: Option<Arc<str>>,
    /// The number of the last announcement before the agent began, and of the last one before it last worked.
    announced: (u64, u64),
    /// The time of the last query to tmux for the screen.
    queried_at: Option<Instant>,
    /// Held because titles set by commands count, too.
    _use: PaneUse,
}

/// A judgement's inputs: the title, the bell, what was announced, and the rows with text.
#[derive(PartialEq)]
struct Observed {
    title: String,
    bell: Option<u64>,
    announced: Announced,
    rows: std::ops::Range<u16>,
}

impl Follower {
    async fn run(&mut self, wake: &Notify, news: &mut watch::Receiver<Arc<Rules>>) {
        loop {
            let due = self.screen_due.into_iter().chain(self.retry_at).min();
            let ended = tokio::select! {
                () = wake.notified() => false,
                () = until(due) => false,
                () = ended(self.running.as_mut()) => true,
                Ok(()) = news.changed() => {
                    let Some(host) = self.host.upgrade() else { return };
                    let rules = news.borrow_and_update().clone();
                    self.renew(&host, rules).await;
                    false
                }
            };
            // Tasks that wait for this output run first.
            tokio::task::yield_now().await;
            let Some(host) = self.host.upgrade() else { return };
            if !self.step(&host, ended).await {
                return;
            }
        }
    }

    /// Identifies and judges the pane's agent by other rules.
    async fn renew(&mut self, host: &Arc<Host>, rules: Arc<Rules>) {
        self.rules = rules;
        if let Some(running) = &mut self.running {
            if let Some(agent) = self.rules.agents.iter().find(|agent| agent.id == running.agent.id) {
                running.agent = agent.clone();
            }
            (running.observed, running.is_renewed) = (None, true);
            // It is judged when its screen is quiet.
            self.pane.lock().agent_signals().screen_changed(None);
        } else {
            self.identify(host).await;
        }
    }

    /// Carries out the due steps. Returns `false` when the pane no longer exists.
    async fn step(&mut self, host: &Arc<Host>, ended: bool) -> bool {
        let (program, reported, gone) = {
            let mut locked = self.pane.lock();
            let signals = locked.agent_signals();
            (signals.take_program_changed(), signals.take_reported(), locked.exit().is_some())
        };
        let there = host.live_pane(self.pane.id()).is_some_and(|pane| Arc::ptr_eq(&pane, &self.pane));
        if gone || !there {
            self.end_agent(host);
            // A pane that remains without a process has nothing due: the next signal wakes this
            // task.
            (self.changed_since, self.screen_due, self.retry_at) = (None, None, None);
            let mut locked = self.pane.lock();
            locked.agent_signals().clear_screen_changed();
            locked.agent_signals().notify_checked();
            return there;
        }
        if program || ended {
            self.pause = limits::AGENT_LOOK;
            self.identify(host).await;
        }
        if reported {
            self.join(host);
        }
        let now = Instant::now();
        let (screen_changed, last_output) = {
            let mut locked = self.pane.lock();
            (locked.agent_signals().is_screen_changed(), locked.last_output())
        };
        let later = self.retry_at.take_if(|later| *later <= now).is_some();
        if screen_changed {
            let since = *self.changed_since.get_or_insert(now);
            // The screen is quiet, or has changed for the longest time that callers should wait.
            let due = (last_output + limits::REST).min(since + limits::AGENT_LATEST);
            self.screen_due = Some(due).filter(|due| *due > now);
            if self.screen_due.is_none() {
                self.changed_since = None;
                self.pane.lock().agent_signals().clear_screen_changed();
                self.check(host).await;
            }
        } else if later {
            self.check(host).await;
        }
        if self.running.as_ref().is_none_or(|running| running.reported.is_some()) {
            self.pane.lock().agent_signals().notify_checked();
        }
        true
    }

    /// Examines the pane after output: its processes if they may have changed, then its screen.
    async fn check(&mut self, host: &Arc<Host>) {
        self.retry_at = None;
        if self.probe_missed {
            self.identify(host).await;
        } else {
            let Some(shared) = host.shared() else { return };
            let pid = self.pane.metadata().pid;
            let Some(group) = shared.probe.run(Subject::Process(pid), move |proc| proc.foreground_group(pid)).await
            else {
                self.probe_failed();
                return;
            };
            let now = Instant::now();
            let next = self.checked_at + self.pause;
            if group != self.foreground_group {
                self.pause = limits::AGENT_LOOK;
            } else if self.running.is_some() {
                // No other program came to the foreground.
                self.judge(host).await;
                return;
            } else if next > now {
                self.retry_at = Some(next);
                return;
            } else {
                // A program that prints continuously is not a starting agent.
                let quiet = now.duration_since(next) > self.pause;
                self.pause = if quiet { limits::AGENT_LOOK } else { (self.pause * 2).min(limits::AGENT_LOOK_LATEST) };
            }
            self.identify(host).await;
        }
        self.judge(host).await;
    }

    /// Determines which agent runs in the pane now.
    async fn identify(&mut self, host: &Arc<Host>) {
        let Some(pid) = self.find(host).await else { return };
        let Some(shared) = host.shared() else { return };
        let directory = shared.probe.run(Subject::Process(pid), move |proc| proc.directory(pid)).await.flatten();
        if let Some(running) = &mut self.running {
            running.directory = directory.as_deref().and_then(Path::to_str).map(Arc::from);
        }
    }

    /// Searches the processes for an agent. Returns the process of one that was not known.
    async fn find(&mut self, host: &Arc<Host>) -> Option<u32> {
        let shared = host.shared()?;
        let about = self.pane.metadata();
        self.checked_at = Instant::now();
        let known = self.running.as_ref().and_then(|running| running.pid);
        let looked =
            move |proc: &muxtap_tmux::Proc| (proc.terminal_of(about.pid), known.is_some_and(|known| proc.runs(known)));
        let Some((terminal, lives)) = shared.probe.run(Subject::Process(about.pid), looked).await else {
            self.probe_failed();
            return None;
        };
        self.probe_missed = false;
        self.foreground_group = terminal.as_ref().map(|terminal| terminal.foreground);
        let running: Vec<u32> =
            terminal.iter().flat_map(|there| &there.processes).filter(|one| !one.stopped).map(|one| one.pid).collect();
        let found = match terminal {
            Some(there) => find_agent(&self.rules, &there.processes).map(|(agent, pid)| (agent.clone(), Some(pid))),
            None if cfg!(target_os = "linux") => None,
            None => find_by_name(&self.rules, &about.command).map(|agent| (agent.clone(), None)),
        };
        let found = found.or_else(|| self.reported_agent(about.pid, &running, lives));
        // Rules that no longer know an agent do not end it.
        let kept = self.running.as_ref().filter(|running| {
            lives && running.pid.is_some() && self.rules.agents.iter().all(|agent| agent.id != running.agent.id)
        });
        let found = found.or_else(|| kept.map(|running| (running.agent.clone(), running.pid)));
        let same = |running: &RunningAgent| {
            found.as_ref().is_some_and(|(agent, pid)| agent.id == running.agent.id && *pid == running.pid)
        };
        if self.running.as_ref().is_some_and(same) {
            return None;
        }
        if found.is_some() && lives {
            // Another agent is the pane's now: a report never ends one whose process lives.
            self.running = None;
        } else {
            self.end_agent(host);
        }
        let (agent, pid) = found?;
        let end: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = match pid.and_then(death::watch) {
            Some(end) => Box::pin(end),
            None => Box::pin(std::future::pending()),
        };
        let in_use = host.use_values(&self.pane);
        let mut locked = self.pane.lock();
        locked.agent_signals().track_changes(true);
        locked.agent_signals().reports().set_screen(None);
        // The current screen is examined when it is quiet.
        locked.agent_signals().screen_changed(None);
        let bell = locked.shell_marks().bell;
        let last = locked.agent_signals().announced().last;
        self.running = Some(RunningAgent {
            agent,
            pid,
            end,
            reported: None,
            version: None,
            is_renewed: false,
            observed: None,
            bell,
            directory: None,
            announced: (last, last),
            queried_at: None,
            _use: in_use,
        });
        pid
    }

    /// Returns the agent that no rule knows, but that reports its state. `own`: the pane's first process;
    /// `running`: the processes on the terminal that are not stopped; `lives`: whether the process of the
    /// agent that is known runs.
    fn reported_agent(&self, own: u32, running: &[u32], lives: bool) -> Option<(Arc<Agent>, Option<u32>)> {
        let mut locked = self.pane.lock();
        let (pid, source) = locked.agent_signals().reports().reporter(own, running)?;
        // A second source does not change the agent.
        if let Some(known) = self.running.as_ref().filter(|known| lives && known.pid == Some(pid)) {
            return Some((known.agent.clone(), known.pid));
        }
        // The rules of an agent with this name judge the screen, though its process is not recognized.
        let known = self.rules.agents.iter().find(|agent| agent.id == source).cloned();
        Some((known.unwrap_or_else(|| Arc::new(Agent::reported(source))), Some(pid)))
    }

    /// Schedules another examination of the processes. The known state holds until one succeeds.
    fn probe_failed(&mut self) {
        self.probe_missed = true;
        self.retry_at = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(limits::AGENT_LOOK_LATEST);
    }

    /// Publishes the end of the agent, if one was running.
    fn end_agent(&mut self, host: &Host) {
        let Some(mut running) = self.running.take() else { return };
        {
            let mut locked = self.pane.lock();
            let signals = locked.agent_signals();
            signals.track_changes(false);
            signals.reports().set_screen(None);
            // The end of the process may be known here first.
            signals.reports().forget(running.pid);
        }
        let evidence = AgentEvidence { rule: "process".into(), ..AgentEvidence::default() };
        let judgement =
            Judgement { state: AgentState::Ended, question: None, options: Vec::new(), digest: None, evidence };
        running.reported = Some((judgement, now_ms()));
        self.publish(host, &running, true);
    }

    /// Judges the agent's state by the pane's current screen and its report, and publishes changes.
    async fn judge(&mut self, host: &Arc<Host>) {
        let Some(running) = &mut self.running else { return };
        let Some(content) = read_content(host, &self.pane, running, &mut self.retry_at).await else { return };
        // The first one counts: an agent shows its own version when it starts.
        if running.version.is_none() {
            running.version = running.agent.version_in(&content.rows);
            running.is_renewed |= running.version.is_some();
        }
        let content = PaneContent { version: running.version, ..content };
        let screen = judge(&running.agent, &content);
        self.pane.lock().agent_signals().reports().set_screen(Some(screen));
        self.join(host);
    }

    /// Joins the last judgement of the screen with the agent's report, and publishes changes.
    fn join(&mut self, host: &Arc<Host>) {
        let Some(running) = &mut self.running else { return };
        let Some(judgement) = self.pane.lock().agent_signals().reports().joined(running.pid) else { return };
        if judgement.state == AgentState::Working {
            running.bell = running.observed.as_ref().and_then(|observed| observed.bell);
            running.announced.1 = running.observed.as_ref().map_or(running.announced.1, |seen| seen.announced.last);
        }
        let news = running.reported.as_ref().is_none_or(|(known, _)| judgement.differs(known));
        let since = running.reported.as_ref().filter(|_| !news).map_or_else(now_ms, |(_, since)| *since);
        let is_renewed = std::mem::take(&mut running.is_renewed);
        if running.reported.as_ref().is_some_and(|(known, _)| *known == judgement) && !is_renewed {
            return;
        }
        running.reported = Some((judgement, since));
        if let Some(running) = &self.running {
            self.publish(host, running, news);
        }
    }

    /// Stores the agent's state in the registry, and sends an event if `news` is set.
    fn publish(&self, host: &Host, running: &RunningAgent, news: bool) {
        let Some((judgement, since_ms)) = running.reported.clone() else { return };
        let id = self.pane.id();
        let mut info = AgentInfo {
            host: host_of(host.socket()).map(str::to_owned),
            pane: id,
            session: String::new(),
            session_id: String::new(),
            window_id: String::new(),
            window_index: 0,
            window: String::new(),
            index: 0,
            socket: host.socket().display().to_string(),
            agent: running.agent.id.clone(),
            name: running.agent.name.clone(),
            version: running.version.map(|version| version.to_string()),
            untested: running.version.zip(running.agent.tested).is_some_and(|(version, tested)| version > tested),
            pid: running.pid,
            state: judgement.state,
            since_ms,
            question: judgement.question,
            // The same question may be asked again, and by another process.
            question_id: judgement
                .digest
                .map(|digest| format!("q{digest}-{:x}-{since_ms:x}", running.pid.unwrap_or_default())),
            options: judgement.options,
            evidence: judgement.evidence,
        };
        if let Some(last) = host.agents.get(id) {
            info = AgentInfo {
                session: last.session,
                session_id: last.session_id,
                window_id: last.window_id,
                window_index: last.window_index,
                window: last.window,
                index: last.index,
                ..info
            };
        }
        update_location(&mut info, &host.info_of(id));
        host.agents.set(id, info.clone());
        if news {
            host.publish(Event::Agent(Box::new(info)));
        }
    }
}

/// Returns the pane's content now, as rules see it.
pub(super) async fn read_screen(server: &Server, pane: &Arc<PaneState>) -> Option<PaneContent> {
    let (title, shown) = {
        let mut locked = pane.lock();
        let title = locked.agent_signals().last_title().map(str::to_owned);
        let title = title.unwrap_or_else(|| locked.metadata().title.clone());
        (title, locked.screen().followed().map(shown_lines))
    };
    let content = if let Some((content, _)) = shown {
        content
    } else {
        let (text, starts_within_line) = server.joined_lines(pane).await.ok()?;
        let rows = text.lines().map(|row| normalize(row, None)).collect();
        PaneContent { rows, starts_within_line, ..PaneContent::default() }
    };
    Some(PaneContent { title, ..content })
}

/// Returns the pane's content, unless none of the rules' inputs has changed since the last
/// judgement.
async fn read_content(
    host: &Arc<Host>,
    pane: &Arc<PaneState>,
    running: &mut RunningAgent,
    later: &mut Option<Instant>,
) -> Option<PaneContent> {
    let (shown, observed, changes) = {
        let mut locked = pane.lock();
        let title = locked.agent_signals().last_title().map(str::to_owned);
        let title = title.unwrap_or_else(|| locked.metadata().title.clone());
        let bell = locked.shell_marks().bell;
        let observed = Observed { title, bell, announced: locked.agent_signals().announced().clone(), rows: 0..0 };
        match locked.screen().followed() {
            Some(screen) => (Some(shown_lines(screen)), observed, Some(locked.agent_signals().take_changes())),
            // The screen is marked as changed when it is certain again.
            None if locked.screen().is_proven() => return None,
            None => (None, observed, None),
        }
    };
    let (content, height) = match shown {
        Some(shown) => shown,
        None => query_screen(host, pane, running, later).await?,
    };
    let end = content.rows.iter().rposition(|row| !row.is_empty()).map_or(0, |last| last + 1);
    // A dialog may reach up to the first row.
    let watched = 0..content.places.get(end).copied().unwrap_or(height);
    let observed = Observed { rows: watched.clone(), ..observed };
    let same = changes.is_some_and(|changes| !changes.all() && !watched.into_iter().any(|row| changes.row(row)));
    if same && running.observed.as_ref() == Some(&observed) {
        return None;
    }
    let content = PaneContent {
        title: observed.title.clone(),
        bell_rang: observed.bell.is_some() && observed.bell != running.bell,
        progress: observed.announced.progress_after(running.announced.0),
        notification: observed.announced.notification_after(running.announced.1),
        directory: running.directory.clone(),
        ..content
    };
    running.observed = Some(observed);
    Some(content)
}

/// Returns the rows of a screen, with wrapped rows joined, and the screen's height.
pub(super) fn shown_lines(screen: &Screen) -> (PaneContent, u16) {
    let (places, rows): (_, Vec<_>) = screen.joined_rows().into_iter().unzip();
    let columns = Some(screen.size().columns);
    let rows = rows.iter().map(|row| normalize(row, columns)).collect();
    let starts_within_line = screen.starts_within_line();
    (PaneContent { rows, places, starts_within_line, ..PaneContent::default() }, screen.size().rows)
}

/// Queries tmux for a screen that is not followed, at most once per [`limits::AGENT_ASK`]. Returns
/// its rows, with wrapped rows joined, and their number.
async fn query_screen(
    host: &Arc<Host>,
    pane: &Arc<PaneState>,
    running: &mut RunningAgent,
    later: &mut Option<Instant>,
) -> Option<(PaneContent, u16)> {
    let now = Instant::now();
    if let Some(next) = running.queried_at.map(|asked| asked + limits::AGENT_ASK).filter(|next| *next > now) {
        *later = Some(next);
        return None;
    }
    running.queried_at = Some(now);
    let server = Server::of(Engine::of(host.shared()?), host.clone());
    let Ok((text, starts_within_line)) = server.joined_lines(pane).await else {
        // A pane that prints nothing more would never be judged.
        *later = Some(now + limits::AGENT_ASK);
        return None;
    };
    let rows: Vec<_> = text.lines().map(|row| normalize(row, None)).collect();
    let height = u16::try_from(rows.len()).unwrap_or(u16::MAX);
    Some((PaneContent { rows, starts_within_line, ..PaneContent::default() }, height))
}

/// Replaces the no-break spaces that some programs print, and trims the end of the row: blanks, and
/// the piece of a scroll bar that some agents draw there.
///
/// `columns`: the screen's width, if it is known. A bar alone in its row is part of a scroll bar only in
/// the last column.
fn normalize(row: &str, columns: Option<u16>) -> String {
    let row = row.replace('\u{a0}', " ");
    let row = row.trim_end();
    let text = row.trim_start();
    let is_alone = text.chars().nth(1).is_none();
    let is_last = columns.is_some_and(|columns| row.chars().count() == usize::from(columns));
    let is_boxed = text.starts_with(['│', '┃', '║', '▌']) && !(is_alone && is_last);
    let without = row.strip_suffix('█').or_else(|| row.strip_suffix(['│', '┃']).filter(|_| !is_boxed));
    without.filter(|rest| rest.ends_with([' ', '│', '╮', '╯', '┐', '┘'])).map_or(row, str::trim_end).to_owned()
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Waits for the end of the agent's process.
async fn ended(running: Option<&mut RunningAgent>) {
    match running {
        Some(running) => {
            running.end.as_mut().await;
            // A resolved future must not be polled again.
            running.end = Box::pin(std::future::pending());
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scroll_bar_is_no_text_and_a_box_stays() {
        for (row, seen) in [
            ("  > hello     █", "  > hello"),
            ("  > hello     ┃", "  > hello"),
            ("             ┃", ""),
            ("            ┃", "            ┃"),
            ("  ┃", "  ┃"),
            ("│ a box │█", "│ a box │"),
            ("│ a box       │", "│ a box       │"),
            ("  ┃  said     ┃", "  ┃  said     ┃"),
            ("50 % ███", "50 % ███"),
            ("a\u{a0}b  ", "a b"),
        ] {
            assert_eq!(normalize(row, Some(14)), seen);
        }
    }
}
