//! Follows one pane from its beginning to its end: which agent runs in it, and what the agent does.
//!
//! Each pane has a task that sleeps until its [`AgentSignals`](super::AgentSignals) wake it. It
//! looks at processes when another program may run, and at an agent's screen when the screen rests
//! after a change. `docs/agents.md` says what is looked at when, and what it costs.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use muxtap_api::{AgentEvidence, AgentInfo, AgentState, Event};
use muxtap_base::clock::now_ms;
use muxtap_core::screen::Screen;
use muxtap_tmux::{Subject, death};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    identify::{find_agent, find_by_name},
    judge::{Judgement, PaneContent, judge},
    registry::update_location,
    rules::{Agent, Rules},
};

use crate::{Engine, Host, PaneState, Server, limits, pane::PaneUse};

/// Follows a pane in a task of its own, until it has gone or its server is followed no longer.
pub(crate) fn follow(host: &Arc<Host>, pane: &Arc<PaneState>) {
    let Some(shared) = host.shared() else { return };
    let rules = shared.options.agents.clone();
    if !rules.is_empty() {
        shared.tasks.spawn(look_at(Arc::downgrade(host), pane.clone(), rules, host.cancel().clone()));
    }
}

async fn look_at(host: Weak<Host>, pane: Arc<PaneState>, rules: Arc<Rules>, cancel: CancellationToken) {
    let wake = pane.lock().agent_signals().waker();
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
        () = follower.run(&wake) => {}
    }
}

struct Follower {
    host: Weak<Host>,
    pane: Arc<PaneState>,
    rules: Arc<Rules>,
    running: Option<RunningAgent>,
    /// How long to wait before looking at the processes again because of output.
    pause: Duration,
    checked_at: Instant,
    /// The foreground process group when the processes were last looked at.
    foreground_group: Option<u32>,
    /// When the oldest output was noticed that has not been looked at.
    changed_since: Option<Instant>,
    /// When to look at the changed screen.
    screen_due: Option<Instant>,
    /// When to try again what was postponed: a look at the processes or a question to tmux.
    retry_at: Option<Instant>,
    /// Whether the last look at the processes failed.
    probe_missed: bool,
}

/// The agent that runs in the pane.
struct RunningAgent {
    agent: Arc<Agent>,
    pid: Option<u32>,
    end: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The judgement that was last published, and since when it holds.
    reported: Option<(Judgement, u64)>,
    /// The inputs of the last judgement.
    observed: Option<Observed>,
    /// The offset of the last bell that does not count: it rang before the agent began or last
    /// worked.
    bell: Option<u64>,
    /// When tmux was last asked for the screen.
    queried_at: Option<Instant>,
    /// Held since titles set by commands count, too.
    _use: PaneUse,
}

/// A judgement's inputs: title, bell, and which rows are not empty.
#[derive(PartialEq)]
struct Observed {
    title: String,
    bell: Option<u64>,
    rows: std::ops::Range<u16>,
}

impl Follower {
    async fn run(&mut self, wake: &Notify) {
        loop {
            let due = self.screen_due.into_iter().chain(self.retry_at).min();
            let ended = tokio::select! {
                () = wake.notified() => false,
                () = until(due) => false,
                () = ended(self.running.as_mut()) => true,
            };
            // Tasks that wait for this output run first.
            tokio::task::yield_now().await;
            let Some(host) = self.host.upgrade() else { return };
            if !self.step(&host, ended).await {
                return;
            }
        }
    }

    /// Handles what is due. Returns `false` when the pane has gone for good.
    async fn step(&mut self, host: &Arc<Host>, ended: bool) -> bool {
        let (program, gone) = {
            let mut locked = self.pane.lock();
            (locked.agent_signals().take_program_changed(), locked.exit().is_some())
        };
        let there = host.live_pane(self.pane.id()).is_some_and(|pane| Arc::ptr_eq(&pane, &self.pane));
        if gone || !there {
            self.end_agent(host);
            // A pane that stays without a process has nothing due: the next signal wakes this task.
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
        let now = Instant::now();
        let (screen_changed, last_output) = {
            let mut locked = self.pane.lock();
            (locked.agent_signals().is_screen_changed(), locked.last_output())
        };
        let later = self.retry_at.take_if(|later| *later <= now).is_some();
        if screen_changed {
            let since = *self.changed_since.get_or_insert(now);
            // The screen rests, or has changed for so long without a rest that callers should not
            // wait longer.
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

    /// Looks at the pane after output: at its processes if they may have changed, then at its
    /// screen.
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
                // Nothing else came to the foreground.
                self.judge(host).await;
                return;
            } else if next > now {
                self.retry_at = Some(next);
                return;
            } else {
                // A program that prints continuously is no agent that has only begun.
                let quiet = now.duration_since(next) > self.pause;
                self.pause = if quiet { limits::AGENT_LOOK } else { (self.pause * 2).min(limits::AGENT_LOOK_LATEST) };
            }
            self.identify(host).await;
        }
        self.judge(host).await;
    }

    /// Determines which agent runs in the pane now.
    async fn identify(&mut self, host: &Arc<Host>) {
        let Some(shared) = host.shared() else { return };
        let about = self.pane.metadata();
        self.checked_at = Instant::now();
        let Some(terminal) =
            shared.probe.run(Subject::Process(about.pid), move |proc| proc.terminal_of(about.pid)).await
        else {
            self.probe_failed();
            return;
        };
        self.probe_missed = false;
        self.foreground_group = terminal.as_ref().map(|terminal| terminal.foreground);
        let found = match terminal {
            Some(there) => find_agent(&self.rules, &there.processes).map(|(agent, pid)| (agent.clone(), Some(pid))),
            None if cfg!(target_os = "linux") => None,
            None => find_by_name(&self.rules, &about.command).map(|agent| (agent.clone(), None)),
        };
        let same = |running: &RunningAgent| {
            found.as_ref().is_some_and(|(agent, pid)| agent.id == running.agent.id && *pid == running.pid)
        };
        if self.running.as_ref().is_some_and(same) {
            return;
        }
        self.end_agent(host);
        let Some((agent, pid)) = found else { return };
        let end: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = match pid.and_then(death::watch) {
            Some(end) => Box::pin(end),
            None => Box::pin(std::future::pending()),
        };
        let in_use = host.use_values(&self.pane);
        let mut locked = self.pane.lock();
        locked.agent_signals().track_changes(true);
        // What the screen shows already is looked at when it rests.
        locked.agent_signals().screen_changed(None);
        let bell = locked.shell_marks().bell;
        self.running = Some(RunningAgent {
            agent,
            pid,
            end,
            reported: None,
            observed: None,
            bell,
            queried_at: None,
            _use: in_use,
        });
    }

    /// Schedules another look at the processes. What is known holds until one succeeds.
    fn probe_failed(&mut self) {
        self.probe_missed = true;
        self.retry_at = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(limits::AGENT_LOOK_LATEST);
    }

    /// Publishes the end of the agent, if one was running.
    fn end_agent(&mut self, host: &Host) {
        let Some(mut running) = self.running.take() else { return };
        self.pane.lock().agent_signals().track_changes(false);
        let evidence = AgentEvidence { rule: "process".into(), ..AgentEvidence::default() };
        let judgement =
            Judgement { state: AgentState::Ended, question: None, options: Vec::new(), digest: None, evidence };
        running.reported = Some((judgement, now_ms()));
        self.publish(host, &running, true);
    }

    /// Judges what the agent does by what the pane shows now, and publishes changes.
    async fn judge(&mut self, host: &Arc<Host>) {
        let Some(running) = &mut self.running else { return };
        let Some(content) = read_content(host, &self.pane, running, &mut self.retry_at).await else { return };
        let judgement = judge(&running.agent, &content);
        if judgement.state == AgentState::Working {
            running.bell = running.observed.as_ref().and_then(|observed| observed.bell);
        }
        let news = running.reported.as_ref().is_none_or(|(known, _)| judgement.differs(known));
        let since = running.reported.as_ref().filter(|_| !news).map_or_else(now_ms, |(_, since)| *since);
        if running.reported.as_ref().is_some_and(|(known, _)| *known == judgement) {
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

/// Returns what the pane shows, unless nothing that the rules look at has changed since the last
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
        let observed = Observed { title, bell: locked.shell_marks().bell, rows: 0..0 };
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
        ..content
    };
    running.observed = Some(observed);
    Some(content)
}

/// Returns the rows of a screen, those that the terminal wrapped as one, and the screen's height.
fn shown_lines(screen: &Screen) -> (PaneContent, u16) {
    let (places, rows): (_, Vec<_>) = screen.joined_rows().into_iter().unzip();
    let rows = rows.iter().map(|row| normalize(row)).collect();
    let starts_within_line = screen.starts_within_line();
    (PaneContent { rows, places, starts_within_line, ..PaneContent::default() }, screen.size().rows)
}

/// Asks tmux for a screen that is not followed, at most once per [`limits::AGENT_ASK`]. Returns its rows, those
/// that tmux wrapped as one, and their number.
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
    let (text, starts_within_line) = server.joined_lines(pane).await.ok()?;
    let rows: Vec<_> = text.lines().map(normalize).collect();
    let height = u16::try_from(rows.len()).unwrap_or(u16::MAX);
    Some((PaneContent { rows, starts_within_line, ..PaneContent::default() }, height))
}

/// Replaces the no-break spaces that some programs print, and trims the row's end.
fn normalize(row: &str) -> String {
    row.replace('\u{a0}', " ").trim_end().to_owned()
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// Resolves when the agent's process has ended.
async fn ended(running: Option<&mut RunningAgent>) {
    match running {
        Some(running) => {
            running.end.as_mut().await;
            // A future that has resolved must not be polled again.
            running.end = Box::pin(std::future::pending());
        }
        None => std::future::pending().await,
    }
}
