//! Stored reports of agents about themselves, and how they are joined with the screen.
//!
//! `docs/agent-reports.md` describes the rules.

use std::collections::BTreeMap;

use muxtap_api::{AgentOption, ReportAgentRequest, ReportPhase};
use muxtap_base::clock::now_ms;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    join::{Line, Reported, Shown, Strength, join},
    judge::Judgement,
};
use crate::limits;

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
    pub(super) fn add(&mut self, request: ReportAgentRequest, pid: Option<u32>) -> bool {
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
    pub(super) fn is_watched(&self, pid: u32) -> bool {
        self.watched.contains_key(&pid)
    }

    /// Records that the end of this process is watched until the token is cancelled.
    pub(super) fn watch(&mut self, pid: u32, source: &str, token: CancellationToken) {
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

#[cfg(test)]
mod tests {
    use muxtap_api::{AgentEvidence, AgentRow, AgentState};

    use super::*;

    fn request(source: &str, state: AgentState, seq: u64) -> ReportAgentRequest {
        let (source, options) = (source.to_owned(), Vec::new());
        ReportAgentRequest { state, source, seq, message: None, question: None, options, session: None, inside: false }
    }

    fn screen(state: AgentState, rule: &str) -> Judgement {
        let evidence = AgentEvidence { rule: rule.to_owned(), ..AgentEvidence::default() };
        Judgement { state, question: None, options: Vec::new(), digest: None, evidence }
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
    }
}
