//! Reports of agents about themselves: whether a caller may make one, and to which process it belongs.
//!
//! `docs/agent-reports.md` describes the rules.

use std::{collections::BTreeMap, sync::Arc};

use muxtap_api::{
    AgentOption, AgentState, Error, ErrorCode, Operation, ReportAgentAnswer, ReportAgentRequest, ReportPhase, Result,
};
use muxtap_base::clock::{monotonic_us, now_ms};
use muxtap_tmux::{Relative, Subject, death};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    identify::agent_of,
    join::{Line, Reported, Shown, Strength, join},
    judge::Judgement,
    rules::Rules,
};
use crate::{PaneState, Server, limits};

/// From how long after a report on a changed screen contradicts it, in milliseconds.
const SETTLED_MS: u64 = 2000;

/// A report of one source.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) request: ReportAgentRequest,
    /// The process to which it belongs; `None`: the agent in the pane, on a system that does not list
    /// processes.
    pub(super) pid: Option<u32>,
    pub(super) at_ms: u64,
    pub(super) phase: ReportPhase,
    /// What the screen showed when the report was last joined.
    before: Option<Judgement>,
}

/// The watch over a process that has reported. Dropping it ends the watch.
#[derive(Debug)]
struct Watch {
    /// The first source of the process.
    source: String,
    _guard: DropGuard,
}

/// The reports that are known of a pane, and the state by its screen alone.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// The last one of each source and process, the newest last.
    known: Vec<Report>,
    /// The processes whose end is watched: those that have reports.
    watched: BTreeMap<u32, Watch>,
    /// The last judgement of the screen, of the agent that runs.
    screen: Option<Judgement>,
}

impl Reports {
    /// Stores a report. Returns `false` if a newer one of the same source and process is known.
    fn add(&mut self, request: ReportAgentRequest, pid: Option<u32>) -> bool {
        let same = |known: &Report| known.pid == pid && known.request.source == request.source;
        let at = self.known.iter().position(same);
        let old = at.map(|at| self.known.remove(at));
        if let (Some(at), Some(old)) = (at, &old)
            && old.request.seq >= request.seq
        {
            self.known.insert(at, old.clone());
            return false;
        }
        let before = self.screen.clone();
        // The same state again is the same claim, which the screen may have confirmed.
        let goes_on = old.filter(|old| old.request.state == request.state && old.phase == ReportPhase::Confirmed);
        let phase = goes_on.map_or(ReportPhase::Fresh, |old| old.phase);
        if self.known.len() >= limits::AGENT_REPORTS {
            let dropped = self.known.remove(0).pid;
            if let Some(gone) = dropped.filter(|_| dropped != pid && self.known.iter().all(|one| one.pid != dropped)) {
                self.watched.remove(&gone);
            }
        }
        self.known.push(Report { request, pid, at_ms: now_ms(), phase, before });
        true
    }

    /// Returns whether the end of this process is watched.
    fn is_watched(&self, pid: u32) -> bool {
        self.watched.contains_key(&pid)
    }

    /// Records that the end of this process is watched until the token is cancelled.
    fn watch(&mut self, pid: u32, source: &str, token: CancellationToken) {
        self.watched.insert(pid, Watch { source: source.to_owned(), _guard: token.drop_guard() });
    }

    /// Forgets the reports of a process that has ended.
    pub(super) fn forget(&mut self, pid: Option<u32>) {
        self.known.retain(|report| report.pid != pid);
        if let Some(pid) = pid {
            self.watched.remove(&pid);
        }
    }

    /// Returns all reports, the newest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Report> {
        self.known.iter().rev()
    }

    /// Returns the process that the pane's reports make an agent, and its first source: the outermost of
    /// those on the terminal, else the newest. `own`: the pane's first process, which is the last choice.
    /// `running`: the processes on the terminal that are not stopped, parents first.
    pub(super) fn reporter(&self, own: u32, running: &[u32]) -> Option<(u32, &str)> {
        let reports = |pid: &u32| *pid != own && self.known.iter().any(|report| report.pid == Some(*pid));
        let newest = || self.all().filter_map(|report| report.pid).find(|pid| *pid != own);
        let any = || self.all().find_map(|report| report.pid);
        let pid = running.iter().copied().find(reports).or_else(newest).or_else(any)?;
        let first = self.watched.get(&pid).map(|watch| watch.source.as_str());
        let source = || self.all().find(|report| report.pid == Some(pid)).map(|report| report.request.source.as_str());
        Some((pid, first.or_else(source)?))
    }

    /// Returns the index of the report that is joined with the screen: the newest of this process, else
    /// the newest of any.
    fn chosen(&self, pid: Option<u32>) -> Option<usize> {
        let own = self.known.iter().rposition(|report| report.pid == pid);
        own.or_else(|| self.known.len().checked_sub(1))
    }

    /// Returns whether a report is the one that is joined with the screen of this process.
    pub(super) fn counts(&self, report: &Report, pid: Option<u32>) -> bool {
        let chosen = self.chosen(pid).and_then(|at| self.known.get(at));
        report.pid == pid && report.phase != ReportPhase::Spent && chosen.is_some_and(|one| std::ptr::eq(one, report))
    }

    /// Returns the last judgement of the screen.
    pub(super) fn screen(&self) -> Option<&Judgement> {
        self.screen.as_ref()
    }

    /// Stores a judgement of the screen; `None`: another agent runs, or none.
    pub(super) fn set_screen(&mut self, screen: Option<Judgement>) {
        self.screen = screen;
    }

    /// Joins the newest report of a process with the screen. `None`: the screen was not judged yet.
    pub(super) fn joined(&mut self, pid: Option<u32>) -> Option<Judgement> {
        let screen = self.screen.clone()?;
        let seen = shown(&screen);
        let Some(report) = self.chosen(pid).and_then(|at| self.known.get_mut(at)) else { return Some(screen) };
        let is_own = report.pid == pid;
        let before = report.before.as_ref();
        // While it waits for its hooks, an agent may draw another frame or two.
        let is_later = now_ms().saturating_sub(report.at_ms) >= SETTLED_MS;
        let moves = is_later && before.is_some_and(|before| moves(before, &screen));
        let before = before.map(shown);
        let (state, phase) = (report.request.state, report.phase);
        let (line, phase) = join(Some(Reported { state, phase, is_own, before, moves }), seen);
        (report.phase, report.before) = (phase, Some(screen.clone()));
        if matches!(line, Line::NoReport | Line::OtherProcess) {
            return Some(screen);
        }
        Some(with_report(screen, report, line))
    }
}

/// Returns what a judgement of a screen means for the join.
fn shown(screen: &Judgement) -> Shown {
    let strength = if screen.digest.is_some() {
        Strength::Dialog
    } else if screen.is_by_rule() {
        Strength::Rule
    } else {
        Strength::Nothing
    };
    Shown { state: screen.state, strength }
}

/// Returns whether the same rule applies to two screens, but to other text: a spinner that turns, say. Where
/// the text is does not count, since output moves it.
fn moves(before: &Judgement, now: &Judgement) -> bool {
    let text = |screen: &Judgement| screen.evidence.rows.iter().map(|row| row.text.clone()).collect::<Vec<_>>();
    before.evidence.rule == now.evidence.rule
        && (text(before) != text(now) || before.evidence.title != now.evidence.title)
}

/// Returns the judgement that a report and the screen give.
fn with_report(screen: Judgement, report: &Report, line: Line) -> Judgement {
    let request = &report.request;
    let mut judgement = if !line.is_reports() || line == Line::Same && screen.is_by_rule() {
        screen
    } else {
        let mut evidence = screen.evidence;
        "report".clone_into(&mut evidence.rule);
        (evidence.rows, evidence.title) = (Vec::new(), None);
        Judgement { state: request.state, question: None, options: Vec::new(), digest: None, evidence }
    };
    if line.is_reports() {
        judgement.state = request.state;
        // Without a digest the question has no id: no key can answer it.
        if let Some(question) = &request.question {
            judgement.question = Some(question.clone());
        }
        let option = |(label, number): (&String, usize)| AgentOption {
            key: number.to_string(),
            label: label.clone(),
            ..AgentOption::default()
        };
        if !request.options.is_empty() {
            judgement.options = request.options.iter().zip(1..).map(option).collect();
        }
        judgement.evidence.message.clone_from(&request.message);
    }
    judgement.evidence.source = Some(request.source.clone());
    judgement.evidence.joined = Some(line.name().to_owned());
    judgement.evidence.session.clone_from(&request.session);
    judgement
}

/// Where a caller's process is, in relation to a pane.
#[derive(Debug, PartialEq, Eq)]
enum Caller {
    /// In the pane.
    Inside,
    /// In another followed pane.
    Elsewhere,
    /// In no followed pane.
    Outside,
}

/// Returns where the process at the beginning of a chain of ancestors is: in the pane that is its
/// nearest ancestor, else in the pane on whose terminal it is (a process whose parent has gone). `panes`:
/// the first processes of followed panes; `own`: that of the pane; `terminal_of`: the controlling
/// terminal of a process.
fn place_of(chain: &[Relative], panes: &[u32], own: u32, terminal_of: impl Fn(u32) -> Option<i64>) -> Caller {
    let is_pane = |pid: u32| pid == own || panes.contains(&pid);
    let on_terminal = || {
        let terminal = chain.first().map(|one| one.terminal).filter(|terminal| *terminal != 0)?;
        std::iter::once(own).chain(panes.iter().copied()).find(|pid| terminal_of(*pid) == Some(terminal))
    };
    match chain.iter().map(|one| one.pid).find(|pid| is_pane(*pid)).or_else(on_terminal) {
        Some(first) if first == own => Caller::Inside,
        Some(_) => Caller::Elsewhere,
        None => Caller::Outside,
    }
}

/// Returns the process to which the report of a caller in the pane belongs. `chain`: the caller and its
/// ancestors; `foreground`: the leader of the pane's foreground process group; `own`: the pane's first
/// process.
fn reporting_process(rules: &Rules, chain: &[Relative], foreground: Option<u32>, own: u32) -> u32 {
    let end = chain.iter().position(|one| one.pid == own).map_or(chain.len(), |at| at + 1);
    // The caller itself is the command that reports.
    let above = chain.get(1..end).unwrap_or_default();
    let id = |one: &Relative| agent_of(rules, &one.args).map(|agent| agent.id.clone());
    if let Some((nearest, agent)) = above.iter().find_map(|one| Some((one, id(one)?))) {
        // A launcher and the agent that it runs are one agent; an agent that another one runs as a tool
        // has a process group of its own.
        let same = |one: &&Relative| one.group == nearest.group && id(one).as_ref() == Some(&agent);
        return above.iter().rev().find(same).unwrap_or(nearest).pid;
    }
    foreground.filter(|group| above.iter().any(|one| one.pid == *group)).unwrap_or(own)
}

impl Server {
    /// Stores what an agent in a pane reports about itself. `caller`: the reporting process, if it is
    /// known.
    ///
    /// Errors: `INVALID_ARGUMENT` for an invalid field; `UNAUTHORIZED` if the caller runs in another pane,
    /// or in none and the pane's agent is not the `source`; `TMUX_UNAVAILABLE` if the end of its process
    /// cannot be watched.
    pub async fn report_agent(
        &self,
        target: &str,
        request: &ReportAgentRequest,
        caller: Option<u32>,
    ) -> Result<ReportAgentAnswer> {
        let audit = self.engine.audit(Operation::Report, &self.host, target)?;
        let done = async {
            let request = checked(request)?;
            let pane = self.resolve_pane(target).await?;
            audit.resolved(pane.id());
            let pid = self.process_of(&pane, caller, &request).await?;
            let mut locked = pane.lock();
            let reports = locked.agent_signals().reports();
            let source = request.source.clone();
            let unwatched = pid.filter(|pid| !reports.is_watched(*pid));
            let watch = match unwatched {
                // A report that nothing would end is not taken.
                Some(pid) => Some((pid, death::watch(pid).ok_or_else(|| not_watched(pid))?)),
                None => None,
            };
            let accepted = reports.add(request, pid);
            if let Some((pid, end)) = watch {
                let token = CancellationToken::new();
                reports.watch(pid, &source, token.clone());
                self.forget_at_end(&pane, pid, end, token);
            }
            if accepted {
                locked.agent_signals().reported();
            }
            Ok(ReportAgentAnswer { pane: pane.id(), accepted, pid })
        }
        .await;
        audit.finish(done)
    }

    /// Returns the process to which a report belongs. Error: `UNAUTHORIZED`.
    async fn process_of(
        &self,
        pane: &Arc<PaneState>,
        caller: Option<u32>,
        request: &ReportAgentRequest,
    ) -> Result<Option<u32>> {
        if !self.host.server().spec().is_local() {
            return Ok(None);
        }
        let own = pane.metadata().pid;
        let rules = self.engine.shared.options.agents.clone();
        let local = self.engine.followed().into_iter().filter(|host| host.server().spec().is_local());
        let panes: Vec<u32> = local
            .flat_map(|host| host.server().topology().panes.iter().map(|pane| pane.pid).collect::<Vec<_>>())
            .collect();
        let subject = Subject::Process(caller.unwrap_or(own));
        let found = self.engine.probe(subject, move |proc| {
            let chain = caller.map(|caller| proc.ancestors_of(caller)).unwrap_or_default();
            let foreground = proc.foreground_group(own);
            match place_of(&chain, &panes, own, |pid| proc.terminal_number(pid)) {
                // A caller that does not wait for the response has no place any more.
                _ if caller.is_some() && chain.is_empty() && cfg!(target_os = "linux") => Err(()),
                Caller::Elsewhere => Err(()),
                Caller::Inside => Ok(Some(reporting_process(&rules, &chain, foreground, own))),
                Caller::Outside => Ok(None),
            }
        });
        let refused = |why: &str| {
            let process = caller.map_or_else(|| "the caller".to_owned(), |pid| format!("process {pid}"));
            let message = format!("{process} does not run in pane {}: {why}", pane.id());
            Error::new(ErrorCode::Unauthorized, message)
        };
        match found.await {
            Some(Ok(Some(pid))) => Ok(Some(pid)),
            Some(Err(())) => Err(refused("a program in a pane reports for that pane alone")),
            None => Err(Error::unavailable(format!("the processes of pane {} cannot be read now", pane.id()))),
            Some(Ok(None)) if request.inside && cfg!(target_os = "linux") => {
                Err(refused("without -t, only a program in the pane reports for it"))
            }
            // Only the agent that runs: another program, or a shell, is no agent because somebody outside
            // says so.
            Some(Ok(None)) => {
                let running = || {
                    let agent = self.host.agents.get(pane.id()).filter(|agent| agent.state != AgentState::Ended);
                    agent.filter(|agent| agent.agent == request.source)
                };
                let mut agent = running();
                if agent.is_none() {
                    // The pane may not have been examined yet.
                    let examined = pane.lock().agent_signals().request_check();
                    let _ = tokio::time::timeout(limits::AGENT_LATEST * 2, examined).await;
                    agent = running();
                }
                match agent {
                    Some(agent) => Ok(agent.pid),
                    None if cfg!(not(target_os = "linux")) => Ok(None),
                    None => {
                        let source = &request.source;
                        Err(refused(&format!(
                            "from outside, `{source}` reports only for an agent `{source}` that runs there"
                        )))
                    }
                }
            }
        }
    }

    /// Forgets the reports of a process when it ends.
    fn forget_at_end(
        &self,
        pane: &Arc<PaneState>,
        pid: u32,
        end: impl Future<Output = ()> + Send + 'static,
        token: CancellationToken,
    ) {
        let (engine, pane) = (self.engine.clone(), Arc::downgrade(pane));
        self.engine.spawn(async move {
            let ended = tokio::select! {
                ended = token.run_until_cancelled(end) => ended,
                // The process may live longer than the engine.
                () = engine.stopping() => None,
            };
            if ended.is_none() {
                return;
            }
            if let Some(pane) = pane.upgrade() {
                pane.lock().agent_signals().process_ended(pid);
            }
        });
    }
}

fn not_watched(pid: u32) -> Error {
    Error::unavailable(format!("the end of process {pid} cannot be watched now: its report would never end"))
}

/// Returns a request with bounded texts. Error: `INVALID_ARGUMENT`.
fn checked(request: &ReportAgentRequest) -> Result<ReportAgentRequest> {
    let mut request = request.clone();
    if request.state == AgentState::Ended {
        let message = "state: `ended` is known from the process alone; expected working, idle, permission, question or \
                       errored";
        return Err(Error::invalid(message));
    }
    let is_name = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    if request.source.is_empty()
        || request.source.len() > limits::AGENT_SOURCE_BYTES
        || !request.source.chars().all(is_name)
    {
        let message = "source: expected 1 to 32 lower-case letters, digits and hyphens";
        return Err(Error::invalid(message));
    }
    if !matches!(request.state, AgentState::Permission | AgentState::Question)
        && (request.question.is_some() || !request.options.is_empty())
    {
        let message = "question, options: only an agent in the state permission or question asks";
        return Err(Error::invalid(message));
    }
    if request.options.len() > limits::AGENT_REPORT_OPTIONS {
        let message = format!("options: expected at most {}", limits::AGENT_REPORT_OPTIONS);
        return Err(Error::invalid(message));
    }
    // A number of the future would silence the reports to come: it counts as the arrival.
    request.seq = request.seq.min(monotonic_us());
    for text in request.message.iter_mut().chain(&mut request.session).chain(&mut request.options) {
        cut(text, limits::AGENT_REPORT_BYTES);
    }
    if let Some(question) = &mut request.question {
        cut(question, limits::AGENT_QUESTION_BYTES);
    }
    Ok(request)
}

/// Cuts a text to this many bytes, the last of which are a mark.
fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        let end = (0..=most - '…'.len_utf8()).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use muxtap_api::{AgentEvidence, AgentRow};

    use super::*;

    fn chain(of: &[(u32, u32, &str)]) -> Vec<Relative> {
        let one = |&(pid, group, line): &(u32, u32, &str)| Relative {
            pid,
            group,
            terminal: 0,
            args: line.split(' ').map(str::to_owned).collect(),
        };
        of.iter().map(one).collect()
    }

    fn request(source: &str, state: AgentState, seq: u64) -> ReportAgentRequest {
        let (source, options) = (source.to_owned(), Vec::new());
        ReportAgentRequest { state, source, seq, message: None, question: None, options, session: None, inside: false }
    }

    fn screen(state: AgentState, rule: &str) -> Judgement {
        let evidence = AgentEvidence { rule: rule.to_owned(), ..AgentEvidence::default() };
        Judgement { state, question: None, options: Vec::new(), digest: None, evidence }
    }

    #[test]
    fn a_caller_is_where_its_nearest_pane_is() {
        // The terminal of a pane has the number of its first process.
        let terminals = |pid: u32| [10, 20].contains(&pid).then_some(i64::from(pid));
        let on = |pids: &[u32], terminal: i64| {
            let of: Vec<_> = pids.iter().map(|pid| (*pid, *pid, "x")).collect();
            let mut of = chain(&of);
            if let Some(first) = of.first_mut() {
                first.terminal = terminal;
            }
            place_of(&of, &[10, 20], 10, terminals)
        };
        let caller = |pids: &[u32]| on(pids, 0);
        assert_eq!(caller(&[12, 11, 10, 2]), Caller::Inside);
        assert_eq!(caller(&[22, 20, 2]), Caller::Elsewhere);
        // A server that runs in a pane of another one.
        assert_eq!(caller(&[22, 20, 15, 10, 2]), Caller::Elsewhere);
        assert_eq!(caller(&[30, 2]), Caller::Outside);
        assert_eq!(caller(&[]), Caller::Outside);
        // A process whose parent has gone is on its pane's terminal still.
        assert_eq!((on(&[30], 10), on(&[30], 20), on(&[30], 30)), (Caller::Inside, Caller::Elsewhere, Caller::Outside));
        assert_eq!(on(&[12, 10], 20), Caller::Inside);
    }

    #[test]
    fn a_number_past_the_clock_counts_as_the_arrival() {
        let mut reports = Reports::default();
        let far = checked(&request("a", AgentState::Working, u64::MAX)).unwrap();
        assert!(far.seq <= monotonic_us());
        assert!(reports.add(far, Some(1)));
        let hook = checked(&request("a", AgentState::Idle, monotonic_us() + 1)).unwrap();
        let later = ReportAgentRequest { seq: hook.seq.max(monotonic_us()) + 1, ..hook };
        assert!(reports.add(later, Some(1)));
    }

    #[tokio::test]
    async fn the_watch_of_a_process_ends_with_its_last_report() {
        let mut reports = Reports::default();
        let mut add = |source: &str, pid: u32| {
            let token = CancellationToken::new();
            if !reports.is_watched(pid) {
                reports.watch(pid, source, token.clone());
            }
            assert!(reports.add(request(source, AgentState::Idle, 1), Some(pid)));
            (token, reports.watched.len())
        };
        let (first, _) = add("a", 1);
        for pid in 2..=u32::try_from(limits::AGENT_REPORTS).unwrap() {
            add("a", pid);
        }
        assert!(!first.is_cancelled());
        let (_, watched) = add("a", 99);
        assert!(first.is_cancelled());
        assert_eq!(watched, limits::AGENT_REPORTS);
    }

    #[test]
    fn the_outermost_reporter_is_the_agent_under_its_first_source() {
        let mut reports = Reports::default();
        for (source, pid, seq) in [("shell", 10, 1), ("first", 20, 1), ("second", 20, 2), ("inner", 30, 1)] {
            if !reports.is_watched(pid) {
                reports.watch(pid, source, CancellationToken::new());
            }
            reports.add(request(source, AgentState::Idle, seq), Some(pid));
        }
        assert_eq!(reports.reporter(10, &[10, 20, 30]), Some((20, "first")));
        // One that is stopped, and one on another terminal.
        assert_eq!(reports.reporter(10, &[10, 30]), Some((30, "inner")));
        assert_eq!(reports.reporter(10, &[10]), Some((30, "inner")));
        reports.forget(Some(20));
        reports.forget(Some(30));
        assert_eq!(reports.reporter(10, &[10]), Some((10, "shell")));
        assert_eq!(Reports::default().reporter(10, &[10]), None);
    }

    #[test]
    fn an_agent_that_works_on_after_its_report_is_not_idle() {
        let rows = |seconds: u32| {
            let row = AgentRow { row: 5, text: format!("Working ({seconds}s)") };
            let evidence = AgentEvidence { rule: "spinner".into(), rows: vec![row], ..AgentEvidence::default() };
            Judgement { state: AgentState::Working, question: None, options: Vec::new(), digest: None, evidence }
        };
        let mut reports = Reports::default();
        reports.set_screen(Some(rows(1)));
        assert!(reports.add(request("a", AgentState::Idle, 1), Some(1)));
        assert_eq!(reports.joined(Some(1)).unwrap().state, AgentState::Idle);
        // Only its place has changed.
        let mut moved = rows(1);
        moved.evidence.rows[0].row = 4;
        reports.set_screen(Some(moved));
        assert_eq!(reports.joined(Some(1)).unwrap().state, AgentState::Idle);
        // A frame that was drawn while the agent waited for its hook.
        reports.set_screen(Some(rows(2)));
        assert_eq!(reports.joined(Some(1)).unwrap().state, AgentState::Idle);
        reports.known[0].at_ms -= SETTLED_MS;
        reports.set_screen(Some(rows(3)));
        let joined = reports.joined(Some(1)).unwrap();
        assert_eq!((joined.state, joined.evidence.joined.as_deref()), (AgentState::Working, Some("continues")));
        assert_eq!(reports.joined(Some(1)).unwrap().evidence.joined, None);
    }

    #[test]
    fn a_report_belongs_to_the_nearest_agent() {
        let rules = Rules::built_in();
        let hook = (90, 90, "muxtap report-agent --hook claude");
        let process = |foreground, above: &[(u32, u32, &str)]| {
            let of: Vec<_> = std::iter::once(hook).chain(above.iter().copied()).collect();
            reporting_process(&rules, &chain(&of), Some(foreground), 10)
        };
        let shell = (10, 10, "bash");
        assert_eq!(process(50, &[(80, 80, "sh -c x"), (50, 50, "claude"), shell]), 50);
        // A launcher, and one that starts the agent by a shell.
        assert_eq!(process(50, &[(51, 50, "/x/claude"), (50, 50, "node /x/bin/claude"), shell]), 50);
        let npm = [(53, 50, "/x/claude"), (52, 50, "sh -c claude"), (50, 50, "npm exec @anthropic-ai/claude-code")];
        assert_eq!(process(50, &[npm[0], npm[1], npm[2], shell]), 50);
        // An agent that another one runs as a tool.
        assert_eq!(process(50, &[(70, 70, "claude -p x"), (69, 70, "bash -c x"), (50, 50, "claude"), shell]), 70);
        assert_eq!(process(50, &[(70, 70, "codex exec x"), (50, 50, "claude"), shell]), 70);
        // A program that no rule knows, at a prompt, in the background, and as the pane's own.
        assert_eq!(process(60, &[(60, 60, "mytool"), shell]), 60);
        assert_eq!(process(90, &[shell]), 10);
        assert_eq!(process(33, &[(60, 60, "mytool"), shell]), 10);
        assert_eq!(process(10, &[(80, 80, "sh -c x"), (10, 10, "mytool")]), 10);
    }

    #[test]
    fn the_newest_number_of_a_source_and_process_counts() {
        let mut reports = Reports::default();
        reports.set_screen(Some(screen(AgentState::Idle, "none")));
        assert!(reports.add(request("a", AgentState::Working, 5), Some(1)));
        assert!(!reports.add(request("a", AgentState::Idle, 5), Some(1)));
        assert!(!reports.add(request("a", AgentState::Idle, 4), Some(1)));
        assert_eq!(reports.joined(Some(1)).unwrap().state, AgentState::Working);
        // Another process of the same pane, with numbers of its own.
        assert!(reports.add(request("a", AgentState::Errored, 1), Some(2)));
        assert_eq!(reports.joined(Some(1)).unwrap().state, AgentState::Working);
        assert!(reports.add(request("b", AgentState::Permission, 1), Some(1)));
        let joined = reports.joined(Some(1)).unwrap();
        assert_eq!((joined.state, joined.evidence.source.as_deref()), (AgentState::Permission, Some("b")));
        assert_eq!(joined.evidence.rule, "report");
        reports.forget(Some(1));
        assert_eq!(reports.joined(Some(1)).unwrap().evidence.joined, None);
        assert_eq!(reports.all().count(), 1);
    }

    #[test]
    fn a_confirmed_state_stays_confirmed_when_it_is_reported_again() {
        let mut reports = Reports::default();
        reports.set_screen(Some(screen(AgentState::Working, "spinner")));
        for seq in [1, 2] {
            assert!(reports.add(request("a", AgentState::Working, seq), Some(1)));
            assert_eq!(reports.joined(Some(1)).unwrap().evidence.joined.as_deref(), Some("same"));
        }
        assert!(reports.add(request("a", AgentState::Working, 3), Some(1)));
        reports.set_screen(Some(screen(AgentState::Idle, "none")));
        let joined = reports.joined(Some(1)).unwrap();
        assert_eq!((joined.state, joined.evidence.joined.as_deref()), (AgentState::Idle, Some("interrupted")));
    }

    #[test]
    fn reports_are_bounded() {
        let mut reports = Reports::default();
        for number in 0..3 * limits::AGENT_REPORTS {
            assert!(reports.add(request(&format!("s{number}"), AgentState::Idle, 1), Some(1)));
        }
        assert_eq!(reports.all().count(), limits::AGENT_REPORTS);
        let long = "é".repeat(limits::AGENT_QUESTION_BYTES);
        let asked = ReportAgentRequest {
            question: Some(long.clone()),
            options: vec![long.clone()],
            message: Some(long),
            ..request("a", AgentState::Question, 1)
        };
        let cut = checked(&asked).unwrap();
        assert!(cut.question.unwrap().len() <= limits::AGENT_QUESTION_BYTES);
        assert!(cut.message.unwrap().len() <= limits::AGENT_REPORT_BYTES && cut.options[0].ends_with('…'));
        for wrong in [
            request("a", AgentState::Ended, 1),
            request("", AgentState::Idle, 1),
            request("A b", AgentState::Idle, 1),
            request(&"a".repeat(33), AgentState::Idle, 1),
            ReportAgentRequest { question: Some("x".into()), ..request("a", AgentState::Idle, 1) },
            ReportAgentRequest { options: vec![String::new(); 17], ..request("a", AgentState::Question, 1) },
        ] {
            assert_eq!(checked(&wrong).unwrap_err().code, ErrorCode::InvalidArgument, "{wrong:?}");
        }
    }
}
