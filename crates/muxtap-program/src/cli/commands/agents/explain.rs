//! `agents explain`.

use std::fmt::Write as _;

use clap::Args;
use muxtap_base::{clock::now_ms, plain};

use super::super::{Caller, Outcome, output, path_named};
use crate::{
    api::{AgentEvidence, AgentExplanation, ReportPhase, Result},
    cli::one_request::{Ask, OneRequest},
};

/// Explain an agent's state: reports, rules, rows, processes
#[derive(Debug, Args)]
pub(super) struct Explain {
    /// The pane (default: the caller's)
    #[arg(short = 't', value_name = "PANE")]
    target: Option<String>,
}

impl OneRequest for Explain {
    type Answer = AgentExplanation;

    fn ask(&self, caller: &Caller) -> Result<Ask> {
        Ok(Ask::get(format!("{}/agent", path_named("panes", &caller.target(self.target.clone())?)?)))
    }

    fn print(&self, caller: &Caller, answer: &AgentExplanation) -> Outcome {
        if caller.json {
            output::print_json(answer)?;
        } else {
            // Texts of reports and screens may have control characters.
            let lines = described(answer).lines().map(|line| plain::name(line).to_string() + "\n").collect::<String>();
            output::print(lines)?;
        }
        Ok(0)
    }
}

fn described(answer: &AgentExplanation) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    match &answer.agent {
        Some(agent) => {
            let pid = agent.pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
            let untested = if agent.untested { ", newer than any that was tested" } else { "" };
            let version = agent.version.as_ref().map(|version| format!(", version {}{untested}", plain::name(version)));
            let (name, state) = (&agent.name, agent.state.as_str());
            let _ = writeln!(text, "{}: {name} is {state}{pid}{}", answer.pane, version.unwrap_or_default());
            let by = match (&agent.evidence.source, &agent.evidence.joined) {
                (Some(source), Some(line)) => format!("the report of {source} and the screen ({line})"),
                _ if agent.evidence.rule == "process" => "its process".to_owned(),
                _ => "the screen alone".to_owned(),
            };
            let _ = writeln!(text, "decided by: {by}");
        }
        None => {
            let _ = writeln!(text, "{}: no agent", answer.pane);
        }
    }
    if let Some(screen) = &answer.screen {
        let _ = writeln!(text, "screen: {} by {}", screen.state.as_str(), rule(&screen.evidence));
        for row in &screen.evidence.rows {
            let _ = writeln!(text, "  row {}: {}", row.row, row.text.trim());
        }
        if let Some(title) = &screen.evidence.title {
            let _ = writeln!(text, "  title: {title}");
        }
    }
    for report in &answer.reports {
        let age = output::short_duration(now_ms().saturating_sub(report.at_ms) / 1000);
        let pid = report.pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
        let worth = match report.phase {
            ReportPhase::Fresh => "fresh",
            ReportPhase::Confirmed => "confirmed",
            ReportPhase::Spent => "spent",
        };
        let counts = if report.counts { "counts" } else { "does not count" };
        let (source, state, seq) = (&report.source, report.state.as_str(), report.seq);
        let _ = writeln!(text, "report: {state} by {source}, {worth}, {counts}, {age} ago{pid}, seq {seq}");
        for (name, value) in [("message", &report.message), ("session", &report.session)] {
            if let Some(value) = value {
                let _ = writeln!(text, "  {name}: {}", value.lines().collect::<Vec<_>>().join(" ⏎ "));
            }
        }
    }
    for tried in &answer.rules {
        let applies = if tried.applies { "applies" } else { "does not apply" };
        let _ = writeln!(text, "rule: {} ({}, {}) {applies}", tried.rule, tried.state.as_str(), tried.priority);
    }
    for process in &answer.processes {
        let agent = process.agent.as_ref().map(|agent| format!(", agent {agent}")).unwrap_or_default();
        let _ = writeln!(text, "process: {} {}{agent}", process.pid, process.program);
    }
    text
}

fn rule(evidence: &AgentEvidence) -> String {
    if evidence.rule == "none" { "no rule".to_owned() } else { format!("the rule {}", evidence.rule) }
}
