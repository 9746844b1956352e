//! Agents in panes: which agents run where, and what they do.

mod answer;
mod dialog;
mod explain;
mod follow;
mod identify;
mod join;
mod judge;
mod load;
mod options;
mod parse;
mod receive;
pub(super) mod registry;
mod report;
mod rules;
mod signals;
mod version;

use std::sync::Arc;

use muxtap_api::{AgentInfo, AgentList, Result, Tier};

use super::{Engine, Host, Server, Shared, limits};

pub use answer::AgentAnswered;
pub(super) use follow::follow;
pub use load::RulesFile;
pub use rules::Rules;
pub(super) use signals::AgentSignals;

impl Shared {
    /// Returns the rules that recognize agents now.
    fn agent_rules(&self) -> Arc<Rules> {
        self.agent_rules.borrow().clone()
    }
}

impl Engine {
    /// Returns the rules that recognize agents now.
    #[must_use]
    pub fn agent_rules(&self) -> Arc<Rules> {
        self.shared.agent_rules()
    }

    /// Replaces the rules that recognize agents. Running agents are judged again. An agent that the
    /// new rules do not include keeps its own rules until its process ends. Panes that opened under rules without
    /// any agent stay unexamined.
    pub fn set_agent_rules(&self, rules: Rules) {
        self.shared.agent_rules.send_replace(Arc::new(rules));
    }
}

impl Server {
    /// Returns the agents of a server, after examining every pane's processes. An agent's state is
    /// judged by its screen when it was last quiet.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(server: muxtap::Server) -> muxtap::Result<()> {
    /// for agent in server.agents().await?.agents {
    ///     println!("{} in {} is {:?}", agent.name, agent.pane, agent.state);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn agents(&self) -> Result<AgentList> {
        let host = &self.host;
        self.engine.authorize(Tier::Read)?;
        if let Err(error) = host.server().cover_all().await
            && host.agents.all().is_empty()
        {
            return Err(error);
        }
        let rules = self.engine.shared.agent_rules();
        if rules.is_empty() {
            return Ok(AgentList::default());
        }
        self.engine.shared.retired.notify_one();
        let asked: Vec<_> = host.panes().iter().map(|pane| pane.lock().agent_signals().request_check()).collect();
        // A pane that ends meanwhile responds too. A pane whose screen remains uncertain does not.
        let all = futures_util::future::join_all(asked);
        let _ = tokio::time::timeout(limits::AGENT_LATEST * 2, all).await;
        Ok(AgentList { agents: host.known_agents(), rules_error: rules.error.clone(), unreachable: Vec::new() })
    }
}

impl Host {
    /// Returns the registered agents with the current locations of their panes.
    pub(super) fn known_agents(&self) -> Vec<AgentInfo> {
        let known = self.agents.all().into_iter();
        let placed = known.map(|(id, mut info)| {
            registry::update_location(&mut info, &self.info_of(id));
            info
        });
        placed.collect()
    }
}
