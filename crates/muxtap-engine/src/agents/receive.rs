//! Receiving reports of agents: whether a caller may report for a pane, and which process a report belongs to.
//!
//! `docs/agent-reports.md` describes the rules.

use std::sync::Arc;

use muxtap_api::{AgentState, Error, ErrorCode, Operation, ReportAgentAnswer, ReportAgentRequest, Result};
use muxtap_base::clock::monotonic_us;
use muxtap_tmux::{Relative, Subject, death};
use tokio_util::sync::CancellationToken;

use super::{identify::agent_of, rules::Rules};
use crate::{PaneState, Server, limits};

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
        let mut own = pane.metadata().pid;
        let mut found = self.place_in(own, caller).await;
        if caller.is_some() && matches!(found, Some(Ok(None))) {
            // A pane that has just begun, or was respawned, has another process than when it was listed.
            if let Ok(topology) = self.host.server().fresh().await {
                own = topology.panes.iter().find(|row| row.id == pane.id()).map_or(own, |row| row.pid);
                found = self.place_in(own, caller).await;
            }
        }
        let refused = |why: &str| {
            let process = caller.map_or_else(|| "the caller".to_owned(), |pid| format!("process {pid}"));
            let message = format!("{process} does not run in pane {}: {why}", pane.id());
            Error::new(ErrorCode::Unauthorized, message)
        };
        match found {
            Some(Ok(Some(pid))) => Ok(Some(pid)),
            Some(Err(())) => Err(refused("a program in a pane reports for that pane alone")),
            None => Err(Error::unavailable(format!("the processes of pane {} cannot be read now", pane.id()))),
            Some(Ok(None)) if request.inside && cfg!(target_os = "linux") => {
                Err(refused("without -t, only a program in the pane reports for it"))
            }
            // Only the agent that runs: another program, or a shell, does not become an agent by an outside
            // report.
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

    /// Returns where a caller is, in relation to the pane whose first process is `own`: the process to which
    /// its report belongs; `Ok(None)`: it is in no followed pane; `Err`: it is in another one, or unknown.
    /// `None`: the processes cannot be read.
    async fn place_in(&self, own: u32, caller: Option<u32>) -> Option<std::result::Result<Option<u32>, ()>> {
        let rules = self.engine.shared.agent_rules();
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
        found.await
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
    use super::{super::report::Reports, *};

    fn chain(of: &[(u32, u32, &str)]) -> Vec<Relative> {
        let one = |&(pid, group, line): &(u32, u32, &str)| Relative {
            pid,
            group,
            terminal: 0,
            args: line.split(' ').map(str::to_owned).collect(),
        };
        of.iter().map(one).collect()
    }

    fn request(state: AgentState, seq: u64) -> ReportAgentRequest {
        let (source, options) = ("a".to_owned(), Vec::new());
        ReportAgentRequest { state, source, seq, message: None, question: None, options, session: None, inside: false }
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
        let far = checked(&request(AgentState::Working, u64::MAX)).unwrap();
        assert!(far.seq <= monotonic_us());
        assert!(reports.add(far, Some(1)));
        let hook = checked(&request(AgentState::Idle, monotonic_us() + 1)).unwrap();
        let later = ReportAgentRequest { seq: hook.seq.max(monotonic_us()) + 1, ..hook };
        assert!(reports.add(later, Some(1)));
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
    fn the_texts_of_a_report_are_bounded() {
        let named = |source: &str| ReportAgentRequest { source: source.to_owned(), ..request(AgentState::Idle, 1) };
        let long = "é".repeat(limits::AGENT_QUESTION_BYTES);
        let asked = ReportAgentRequest {
            question: Some(long.clone()),
            options: vec![long.clone()],
            message: Some(long),
            ..request(AgentState::Question, 1)
        };
        let cut = checked(&asked).unwrap();
        assert!(cut.question.unwrap().len() <= limits::AGENT_QUESTION_BYTES);
        assert!(cut.message.unwrap().len() <= limits::AGENT_REPORT_BYTES && cut.options[0].ends_with('…'));
        for wrong in [
            request(AgentState::Ended, 1),
            named(""),
            named("A b"),
            named(&"a".repeat(33)),
            ReportAgentRequest { question: Some("x".into()), ..request(AgentState::Idle, 1) },
            ReportAgentRequest { options: vec![String::new(); 17], ..request(AgentState::Question, 1) },
        ] {
            assert_eq!(checked(&wrong).unwrap_err().code, ErrorCode::InvalidArgument, "{wrong:?}");
        }
    }
}
