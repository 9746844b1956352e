//! Explains an agent's state: everything that was considered.

use std::sync::Arc;

use muxtap_api::{AgentExplanation, AgentProcess, AgentReport, AgentScreen, AgentState, Result, Tier};
use muxtap_tmux::Subject;

use super::{
    follow::read_screen,
    identify::{agent_of, program_of},
    judge::{PaneContent, tried},
    report::Report,
    version::AgentVersion,
};
use crate::{PaneState, Server, limits};

impl Server {
    /// Explains the state of the agent in a pane, after examining the pane.
    pub async fn explain_agent(&self, target: &str) -> Result<AgentExplanation> {
        self.engine.authorize(Tier::Read)?;
        let pane = self.resolve_pane(target).await?;
        let examined = pane.lock().agent_signals().request_check();
        // A pane whose screen remains uncertain does not respond; what is known is returned.
        let _ = tokio::time::timeout(limits::AGENT_LATEST * 2, examined).await;
        let agent = self.host.known_agents().into_iter().find(|agent| agent.pane == pane.id());
        let running = agent.as_ref().filter(|agent| agent.state != AgentState::Ended);
        let pid = running.and_then(|agent| agent.pid);
        let (screen, reports) = {
            let mut locked = pane.lock();
            let known = locked.agent_signals().reports();
            let screen =
                known.screen().map(|screen| AgentScreen { state: screen.state, evidence: screen.evidence.clone() });
            let reports = known.all().map(|report| described(report, known.counts(report, pid))).collect();
            (screen, reports)
        };
        let rules = self.engine.shared.agent_rules();
        let agent_rules = running.and_then(|info| rules.agents.iter().find(|agent| agent.id == info.agent));
        let tried = match agent_rules {
            Some(agent) => {
                let version = running.and_then(|info| AgentVersion::parse(info.version.as_deref()?));
                let content = read_screen(self, &pane).await.map(|content| PaneContent { version, ..content });
                content.map(|content| tried(agent, &content)).unwrap_or_default()
            }
            None => Vec::new(),
        };
        let processes = self.processes_of(&pane).await;
        Ok(AgentExplanation { pane: pane.id(), agent, screen, reports, rules: tried, processes })
    }

    async fn processes_of(&self, pane: &Arc<PaneState>) -> Vec<AgentProcess> {
        if !self.host.server().spec().is_local() {
            return Vec::new();
        }
        let pid = pane.metadata().pid;
        let terminal = self.engine.probe(Subject::Process(pid), move |proc| proc.terminal_of(pid)).await.flatten();
        let rules = self.engine.shared.agent_rules();
        let described = terminal.into_iter().flat_map(|terminal| terminal.processes).map(|process| AgentProcess {
            pid: process.pid,
            program: program_of(&process.args),
            agent: agent_of(&rules, &process.args).map(|agent| agent.id.clone()),
        });
        described.collect()
    }
}

fn described(report: &Report, counts: bool) -> AgentReport {
    let request = &report.request;
    AgentReport {
        source: request.source.clone(),
        seq: request.seq,
        state: request.state,
        pid: report.pid,
        at_ms: report.at_ms,
        phase: report.phase,
        counts,
        message: request.message.clone(),
        session: request.session.clone(),
    }
}
