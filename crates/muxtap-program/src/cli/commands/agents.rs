//! `agents`.

mod explain;
mod install;

use std::collections::HashMap;

use clap::{Args, Subcommand};
use muxtap_base::{clock::now_ms, plain};

use super::{
    Caller, Outcome,
    events::join_targets,
    label::{term, with_labels},
    list::{note_unreachable, shown},
    listed,
    output::{self, Failure, Table, short_duration},
};
use crate::{
    api::{AgentInfo, AgentList, AgentState, Error, EventsRequest},
    cli::{
        EXIT_ERROR,
        follow::{FollowedEvents, Recovery},
        one_request,
    },
};

/// List agents in panes, and their states
///
/// Agents are Claude Code, Codex, Gemini CLI, aider, opencode, Cursor agent, Copilot CLI, Goose,
/// and those of your own rules. States: working, permission, question, idle, errored, ended.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap agents
  muxtap agents -t '*/'                          those of all other hosts
  muxtap agents --watch                          print a line for each change of state
  muxtap agents explain -t work                  say why an agent is in its state
  muxtap agents install claude --dry-run         show what its hooks would be
  muxtap agents --json | jq -r '.agents[] | select(.state == \"permission\") | .pane'")]
#[command(args_conflicts_with_subcommands = true)]
pub(in crate::cli) struct Agents {
    /// List only agents in these panes; names may contain `*`; repeatable (default: all)
    #[arg(short = 't', value_name = "TARGET", num_args = 1..)]
    targets: Vec<String>,
    /// Only panes with this label, KEY=VALUE or KEY!=VALUE, in whose value `*` stands for anything;
    /// repeatable, all must match
    #[arg(short = 'l', long = "label", value_name = "KEY=VALUE", conflicts_with = "targets", value_parser = term)]
    labels: Vec<String>,
    /// Print a line for each agent, then one for each change of state
    #[arg(short, long)]
    watch: bool,

    #[command(subcommand)]
    word: Option<AgentsCommand>,
}

#[derive(Debug, Subcommand)]
enum AgentsCommand {
    Explain(explain::Explain),
    Install(install::Install),
    Uninstall(install::Uninstall),
    Status(install::Status),
}

impl Agents {
    /// Returns whether the command prints until it is stopped.
    pub(in crate::cli) fn goes_on(&self) -> bool {
        self.watch
    }

    pub(in crate::cli) async fn run(mut self, caller: &Caller) -> Outcome {
        self.targets = with_labels(self.targets, &self.labels);
        match self.word {
            Some(AgentsCommand::Explain(explain)) => return one_request::run(&explain, caller).await,
            Some(AgentsCommand::Install(install)) => return install.run(caller),
            Some(AgentsCommand::Uninstall(uninstall)) => return uninstall.run(caller),
            Some(AgentsCommand::Status(status)) => return status.run(caller),
            None if self.watch => return self.follow(caller).await,
            None => {}
        }
        let list: AgentList = caller.client().await?.get("/v1/agents", &listed(&self.targets)?).await?;
        if caller.json {
            output::print_json(&list)?;
            return Ok(0);
        }
        if let Some(error) = &list.rules_error {
            output::note(&format!("your rules as they are now are not in effect: {error}"));
        }
        note_unreachable(&list.unreachable);
        let mut table = Table::new(&["ID", "PANE", "AGENT", "STATE", "FOR", "ASKS"]);
        for agent in &list.agents {
            table.row(&[
                shown(agent.host.as_deref(), agent.pane),
                location(agent),
                agent.name.clone(),
                agent.state.as_str().into(),
                short_duration(now_ms().saturating_sub(agent.since_ms) / 1000),
                question(agent),
            ]);
        }
        output::print(table.render())?;
        Ok(0)
    }

    /// Prints a line whenever an agent's state changes. Subscribes before listing, so no change is
    /// missed.
    async fn follow(&self, caller: &Caller) -> Outcome {
        let request = EventsRequest {
            panes: join_targets(&self.targets)?,
            types: Some("agent".into()),
            ..EventsRequest::default()
        };
        let mut followed = FollowedEvents::begin(caller, &request).await?;
        let mut printed = HashMap::new();
        self.print_all(caller, &mut printed).await?;
        loop {
            let mut written = Ok(());
            let step = followed
                .next(|data| {
                    if written.is_ok() {
                        written = serde_json::from_slice(data)
                            .map_err(|error| Failure::Error(Error::internal(format!("event: {error}"))))
                            .and_then(|agent: AgentInfo| print_if_changed(&agent, caller.json, &mut printed));
                    }
                })
                .await;
            written?;
            match followed.recover(caller, &request, step).await? {
                Recovery::NotNeeded => {}
                Recovery::Reconnected => self.print_all(caller, &mut printed).await?,
                Recovery::DaemonEnded => return Ok(EXIT_ERROR),
            }
        }
    }

    async fn print_all(&self, caller: &Caller, printed: &mut PrintedStates) -> Result<(), Failure> {
        let list: AgentList = caller.client().await?.get("/v1/agents", &listed(&self.targets)?).await?;
        list.agents.iter().try_for_each(|agent| print_if_changed(agent, caller.json, printed))
    }
}

/// The state in the last printed line of each pane.
type PrintedStates = HashMap<String, (AgentState, u64, Option<u32>)>;

/// Prints a line for an agent unless the last line of its pane was the same.
fn print_if_changed(agent: &AgentInfo, json: bool, printed: &mut PrintedStates) -> Result<(), Failure> {
    let state = (agent.state, agent.since_ms, agent.pid);
    let pane = shown(agent.host.as_deref(), agent.pane);
    if printed.insert(pane.clone(), state) == Some(state) {
        return Ok(());
    }
    if json {
        return output::print_json(agent);
    }
    let what = format!("{pane}  {}  {}  {}  {}", location(agent), agent.name, agent.state.as_str(), question(agent));
    output::print(format!("{}\n", plain::name(what.trim_end())))
}

fn location(agent: &AgentInfo) -> String {
    output::place(&agent.session, agent.window_index, agent.index)
}

/// Returns a question as one line, with marks between its own lines.
fn one_line(question: &str) -> String {
    question.lines().collect::<Vec<_>>().join(" ⏎ ")
}

/// Returns an agent's question and the answers that it offers.
fn question(agent: &AgentInfo) -> String {
    let options: Vec<_> = agent.options.iter().map(|option| format!("{}) {}", option.key, option.label)).collect();
    let question = one_line(agent.question.as_deref().unwrap_or_default());
    if options.is_empty() { question } else { format!("{question} [{}]", options.join(" | ")) }
}
