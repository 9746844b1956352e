//! One pane, from its beginning to its end: which agent runs in it, and what that does.
//!
//! A task for each pane that sleeps until the pane tells something. It looks at processes when another program may run, and at an
//! agent's screen when that rests after a change. `docs/agents.md` says what is looked at when, and what it costs.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    board::place,
    judge::{Judgement, Picture, judge},
    rules::{Agent, Rules},
    which::{by_name, which},
};
use crate::{
    api::{AgentEvidence, AgentInfo, AgentState, Event},
    clock::now_ms,
    engine::{Engine, Host, Pane, limits},
    tmux::{Subject, death},
};

/// Follows a pane until it has gone or `cancel` is cancelled.
pub(in crate::engine) async fn follow(host: Weak<Host>, pane: Arc<Pane>, rules: Arc<Rules>, cancel: CancellationToken) {
    let wake = pane.lock().tap.waker();
    let mut follower = Follower {
        host,
        pane,
        rules,
        present: None,
        pause: limits::AGENT_LOOK,
        looked: Instant::now(),
        group: None,
        drawn: None,
        due: None,
        later: None,
        unseen: false,
    };
    tokio::select! {
        () = cancel.cancelled() => {}
        () = follower.run(&wake) => {}
    }
}

struct Follower {
    host: Weak<Host>,
    pane: Arc<Pane>,
    rules: Arc<Rules>,
    present: Option<Present>,
    /// How long to wait before the processes are looked at again because something was printed.
    pause: Duration,
    looked: Instant,
    /// The process group that had the terminal when they were looked at.
    group: Option<u32>,
    /// Since when something is printed that was not looked at.
    drawn: Option<Instant>,
    /// When to look at what was printed.
    due: Option<Instant>,
    /// When to look at the processes again.
    later: Option<Instant>,
    /// Nobody could look at the processes when they were to be looked at.
    unseen: bool,
}

/// The agent that runs in the pane.
struct Present {
    agent: Arc<Agent>,
    pid: Option<u32>,
    end: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
    /// What was told of it, and since when.
    known: Option<(Judgement, u64)>,
    /// What that was judged by.
    seen: Option<Seen>,
    /// Where the last bell stood that belongs to the past.
    bell: Option<u64>,
    /// When tmux was last asked for its screen.
    asked: Option<Instant>,
}

/// The part of a screen that the rules look at, and the rest.
#[derive(PartialEq)]
struct Seen {
    title: String,
    bell: Option<u64>,
    rows: std::ops::Range<u16>,
}

impl Follower {
    async fn run(&mut self, wake: &Notify) {
        loop {
            let due = self.due.into_iter().chain(self.later).min();
            let ended = tokio::select! {
                () = wake.notified() => false,
                () = until(due) => false,
                () = ended(self.present.as_mut()) => true,
            };
            // Whoever waits for what was printed comes first.
            tokio::task::yield_now().await;
            let Some(host) = self.host.upgrade() else { return };
            if !self.step(&host, ended).await {
                return;
            }
        }
    }

    /// Looks at what is to be looked at. `false`: there will be nothing more.
    async fn step(&mut self, host: &Arc<Host>, ended: bool) -> bool {
        let (program, gone) = {
            let mut state = self.pane.lock();
            (state.tap.take_program(), state.exit.is_some())
        };
        let there = host.live_pane(self.pane.id()).is_some_and(|pane| Arc::ptr_eq(&pane, &self.pane));
        if gone || !there {
            self.leave(host);
            // A pane that stays without a process has nothing due: what is told next wakes this.
            (self.drawn, self.due, self.later) = (None, None, None);
            let mut state = self.pane.lock();
            state.tap.take_drawn();
            state.tap.answer();
            return there;
        }
        if program || ended {
            self.pause = limits::AGENT_LOOK;
            self.identify(host).await;
        }
        let now = Instant::now();
        let (drawn, last_output) = {
            let state = self.pane.lock();
            (state.tap.is_drawn(), state.last_output)
        };
        let later = self.later.take_if(|later| *later <= now).is_some();
        if drawn {
            let since = *self.drawn.get_or_insert(now);
            // It rests, or has printed for so long without a rest that nobody should wait for it.
            let due = (last_output + limits::REST).min(since + limits::AGENT_LATEST);
            self.due = Some(due).filter(|due| *due > now);
            if self.due.is_none() {
                self.drawn = None;
                self.pane.lock().tap.take_drawn();
                self.look(host).await;
            }
        } else if later {
            self.look(host).await;
        }
        if self.present.as_ref().is_none_or(|present| present.known.is_some()) {
            self.pane.lock().tap.answer();
        }
        true
    }

    /// Something was printed.
    async fn look(&mut self, host: &Arc<Host>) {
        self.later = None;
        if self.unseen {
            self.identify(host).await;
        } else if self.present.is_none() {
            let Some(shared) = host.shared() else { return };
            let pid = self.pane.metadata().pid;
            let Some(group) = shared.probe.run(Subject::Process(pid), move |proc| proc.foreground_group(pid)).await
            else {
                self.could_not_look();
                return;
            };
            let now = Instant::now();
            let next = self.looked + self.pause;
            if group != self.group {
                self.pause = limits::AGENT_LOOK;
            } else if next > now {
                self.later = Some(next);
                return;
            } else {
                // Whoever prints on and on is no agent that has only begun.
                let quiet = now.duration_since(next) > self.pause;
                self.pause = if quiet { limits::AGENT_LOOK } else { (self.pause * 2).min(limits::AGENT_LOOK_LATEST) };
            }
            self.identify(host).await;
        }
        self.judge(host).await;
    }

    /// Which agent runs in the pane now?
    async fn identify(&mut self, host: &Host) {
        let Some(shared) = host.shared() else { return };
        let about = self.pane.metadata();
        self.looked = Instant::now();
        let Some(terminal) =
            shared.probe.run(Subject::Process(about.pid), move |proc| proc.terminal_of(about.pid)).await
        else {
            self.could_not_look();
            return;
        };
        self.unseen = false;
        self.group = terminal.as_ref().map(|terminal| terminal.foreground);
        let found = match terminal {
            Some(there) => which(&self.rules, &there.processes).map(|(agent, pid)| (agent.clone(), Some(pid))),
            None if cfg!(target_os = "linux") => None,
            None => by_name(&self.rules, &about.command).map(|agent| (agent.clone(), None)),
        };
        let same = |present: &Present| {
            found.as_ref().is_some_and(|(agent, pid)| agent.id == present.agent.id && *pid == present.pid)
        };
        if self.present.as_ref().is_some_and(same) {
            return;
        }
        self.leave(host);
        let Some((agent, pid)) = found else { return };
        let end: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = match pid.and_then(death::watch) {
            Some(end) => Box::pin(end),
            None => Box::pin(std::future::pending()),
        };
        let mut state = self.pane.lock();
        state.tap.keep_changes(true);
        // What stands there already is looked at when it rests.
        state.tap.drawn(None);
        let bell = state.shell_marks.bell;
        self.present = Some(Present { agent, pid, end, known: None, seen: None, bell, asked: None });
    }

    /// What was known stands until somebody can look.
    fn could_not_look(&mut self) {
        self.unseen = true;
        self.later = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(limits::AGENT_LOOK_LATEST);
    }

    /// The agent has ended, if there was one.
    fn leave(&mut self, host: &Host) {
        let Some(mut present) = self.present.take() else { return };
        self.pane.lock().tap.keep_changes(false);
        let evidence = AgentEvidence { rule: "process".into(), ..AgentEvidence::default() };
        let judgement = Judgement { state: AgentState::Ended, question: None, options: Vec::new(), evidence };
        present.known = Some((judgement, now_ms()));
        self.tell(host, &present, true);
    }

    /// What does the agent do, by what the pane shows now?
    async fn judge(&mut self, host: &Arc<Host>) {
        let Some(present) = &mut self.present else { return };
        let Some(picture) = picture(host, &self.pane, present, &mut self.later).await else { return };
        let judgement = judge(&present.agent, &picture);
        if judgement.state == AgentState::Working {
            present.bell = present.seen.as_ref().and_then(|seen| seen.bell);
        }
        let news = present.known.as_ref().is_none_or(|(known, _)| judgement.is_news(known));
        let since = present.known.as_ref().filter(|_| !news).map_or_else(now_ms, |(_, since)| *since);
        if present.known.as_ref().is_some_and(|(known, _)| *known == judgement) {
            return;
        }
        present.known = Some((judgement, since));
        if let Some(present) = &self.present {
            self.tell(host, present, news);
        }
    }

    /// Writes down what is known, and tells it if that is news.
    fn tell(&self, host: &Host, present: &Present, news: bool) {
        let Some((judgement, since_ms)) = present.known.clone() else { return };
        let id = self.pane.id();
        let mut info = AgentInfo {
            pane: id.to_string(),
            session: String::new(),
            session_id: String::new(),
            window_id: String::new(),
            window_index: 0,
            window: String::new(),
            index: 0,
            socket: host.socket().display().to_string(),
            agent: present.agent.id.clone(),
            name: present.agent.name.clone(),
            pid: present.pid,
            state: judgement.state,
            since_ms,
            question: judgement.question,
            options: judgement.options,
            evidence: judgement.evidence,
        };
        if let Some(last) = host.agents.last(id) {
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
        place(&mut info, &host.info_of(id));
        host.agents.set(id, info.clone());
        if news {
            host.publish(Event::Agent(Box::new(info)));
        }
    }
}

/// What the pane shows, if that is something else than what was judged last.
async fn picture(
    host: &Arc<Host>,
    pane: &Arc<Pane>,
    present: &mut Present,
    later: &mut Option<Instant>,
) -> Option<Picture> {
    let (rows, seen, changes) = {
        let mut state = pane.lock();
        let title = state.tap.last_title().unwrap_or(&state.metadata.title).to_owned();
        let seen = Seen { title, bell: state.shell_marks.bell, rows: 0..0 };
        match state.screen.followed() {
            Some(screen) => {
                let rows: Vec<_> = (0..screen.size().rows).map(|row| plain(&screen.row_text(row))).collect();
                (Some(rows), seen, Some(state.tap.take_changes()))
            }
            // It will be drawn anew when it is certain again.
            None if state.screen.is_proven() => return None,
            None => (None, seen, None),
        }
    };
    let rows = match rows {
        Some(rows) => rows,
        None => asked(host, pane, present, later).await?,
    };
    let end = rows.iter().rposition(|row| !row.is_empty()).map_or(0, |last| last + 1);
    let most = present.agent.rules.iter().map(|rule| usize::from(rule.rows)).max().unwrap_or_default();
    let watched = u16::try_from(end.saturating_sub(most)).unwrap_or(u16::MAX)..u16::try_from(end).unwrap_or(u16::MAX);
    let seen = Seen { rows: watched.clone(), ..seen };
    let same = changes.is_some_and(|changes| !changes.all() && !watched.into_iter().any(|row| changes.row(row)));
    if same && present.seen.as_ref() == Some(&seen) {
        return None;
    }
    let picture = Picture { rows, title: seen.title.clone(), rang: seen.bell.is_some() && seen.bell != present.bell };
    present.seen = Some(seen);
    Some(picture)
}

/// The screen as tmux has it, where it is not followed; at most once in a while.
async fn asked(
    host: &Arc<Host>,
    pane: &Arc<Pane>,
    present: &mut Present,
    later: &mut Option<Instant>,
) -> Option<Vec<String>> {
    let now = Instant::now();
    if let Some(next) = present.asked.map(|asked| asked + limits::AGENT_ASK).filter(|next| *next > now) {
        *later = Some(next);
        return None;
    }
    present.asked = Some(now);
    let engine = Engine::of(host.shared()?);
    let (text, _) = engine.screen(host, pane, false).await.ok()?;
    Some(text.lines().map(plain).collect())
}

/// Some programs print spaces that do not break.
fn plain(row: &str) -> String {
    row.replace('\u{a0}', " ").trim_end().to_owned()
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// Resolves when the agent's process has ended.
async fn ended(present: Option<&mut Present>) {
    match present {
        Some(present) => {
            present.end.as_mut().await;
            // A future that has resolved is not asked again.
            present.end = Box::pin(std::future::pending());
        }
        None => std::future::pending().await,
    }
}
