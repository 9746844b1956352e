//! `status-line`.

use std::collections::BTreeMap;

use clap::Args;
use muxtap_base::plain;

use super::{
    Caller, Outcome,
    events::join_targets,
    listed,
    output::{self, Failure},
};
use crate::{
    api::{AgentInfo, AgentList, AgentState, Error, EventsRequest, Result},
    cli::follow::{FollowedEvents, Recovery, Step},
};

/// The format without `--format`: who asks first, and how many work and have failed.
const FORMAT: &str = "{?asking:! {target} asks{?more: +{more}}}{?asking:{?working:, }}{?working:{working} working}\
                      {?errored: {errored} failed}";

/// Print a line for tmux's status line at each change
///
/// For `#(muxtap status-line)` in `status-right`: one process prints a line at each change, and tmux
/// shows the last one. Prints nothing and exits if no daemon runs.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  tmux set -g status-right '#(muxtap status-line) %H:%M'
  muxtap status-line -t 'build-*' --format '{?working:#[fg=yellow]{working} busy#[default]}'

Fields of --format:
  {agents} {working} {permission} {question} {errored} {idle}   numbers of agents
  {asking}             agents that wait for a person: permission and question
  {target} {name}      where the agent that has asked for the longest is, and its name
  {more}               how many others ask
  {?FIELD:TEXT}        TEXT, unless FIELD is 0 or empty; {{ and }} are braces")]
pub(in crate::cli) struct StatusLine {
    /// Count only agents in these panes; names may contain `*`; repeatable (default: all)
    #[arg(short = 't', value_name = "TARGET", num_args = 1..)]
    targets: Vec<String>,
    /// What to print
    #[arg(long, value_name = "FORMAT", default_value = FORMAT, hide_default_value = true, value_parser = Template::parse)]
    format: Template,
}

impl StatusLine {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        // tmux starts the command again by itself: a daemon that was stopped must stay so.
        let caller = &caller.without_start();
        if caller.running().await?.is_none() {
            return Ok(0);
        }
        let request = EventsRequest {
            panes: join_targets(&self.targets)?,
            types: Some("agent".into()),
            ..EventsRequest::default()
        };
        let mut followed = FollowedEvents::begin(caller, &request).await?;
        let mut line = Line::default();
        self.list(caller, &mut line).await?;
        line.print(&self.format)?;
        loop {
            let mut wrong = None;
            let step = followed
                .next(|data| match serde_json::from_slice(data) {
                    Ok(agent) => line.add(agent),
                    Err(error) => wrong = Some(Error::internal(format!("event: {error}"))),
                })
                .await;
            if let Some(error) = wrong {
                return Err(error.into());
            }
            if matches!(step, Step::Ended) {
                output::print("\n")?;
                return Ok(0);
            }
            if followed.recover(caller, &request, step).await? == Recovery::Reconnected {
                self.list(caller, &mut line).await?;
            }
            line.print(&self.format)?;
        }
    }

    async fn list(&self, caller: &Caller, line: &mut Line) -> Result<()> {
        let list: AgentList = caller.client().await?.get("/v1/agents", &listed(&self.targets)?).await?;
        line.agents.clear();
        list.agents.into_iter().for_each(|agent| line.add(agent));
        Ok(())
    }
}

/// The agents of the line, and the line that was printed last.
#[derive(Default)]
struct Line {
    /// By socket and pane.
    agents: BTreeMap<(String, String), AgentInfo>,
    printed: Option<String>,
}

impl Line {
    fn add(&mut self, agent: AgentInfo) {
        let place = (agent.socket.clone(), agent.pane.to_string());
        if agent.state == AgentState::Ended {
            self.agents.remove(&place);
        } else {
            self.agents.insert(place, agent);
        }
    }

    fn print(&mut self, format: &Template) -> Result<(), Failure> {
        let line = format.render(&Facts::of(self.agents.values()));
        if self.printed.as_ref() != Some(&line) {
            output::print(format!("{line}\n"))?;
            self.printed = Some(line);
        }
        Ok(())
    }
}

/// The values of a format's fields.
#[derive(Default)]
struct Facts {
    counts: BTreeMap<&'static str, usize>,
    asks: Option<(String, String)>,
}

impl Facts {
    fn of<'a>(agents: impl Iterator<Item = &'a AgentInfo>) -> Self {
        let mut facts = Self::default();
        let mut first: Option<&AgentInfo> = None;
        for agent in agents {
            *facts.counts.entry("agents").or_default() += 1;
            *facts.counts.entry(agent.state.as_str()).or_default() += 1;
            if matches!(agent.state, AgentState::Permission | AgentState::Question) {
                *facts.counts.entry("asking").or_default() += 1;
                if first.is_none_or(|first| agent.since_ms < first.since_ms) {
                    first = Some(agent);
                }
            }
        }
        facts.asks =
            first.map(|agent| (output::place(&agent.session, agent.window_index, agent.index), agent.name.clone()));
        facts
    }

    fn value(&self, field: Field) -> String {
        let count = |name| self.counts.get(name).copied().unwrap_or_default();
        let text = |text: Option<&String>| escaped(text.map_or("", String::as_str));
        match field {
            Field::Count(name) => count(name).to_string(),
            Field::More => count("asking").saturating_sub(1).to_string(),
            Field::Target => text(self.asks.as_ref().map(|(target, _)| target)),
            Field::Name => text(self.asks.as_ref().map(|(_, name)| name)),
        }
    }
}

/// Returns a name as one line in which tmux finds no style and no format.
fn escaped(name: &str) -> String {
    plain::name(name).replace('#', "##")
}

/// A field of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Count(&'static str),
    More,
    Target,
    Name,
}

impl Field {
    /// The fields that are numbers of agents.
    const COUNTS: [&'static str; 7] = ["agents", "asking", "errored", "idle", "permission", "question", "working"];

    fn parse(name: &str) -> Result<Self, String> {
        match name {
            "more" => Ok(Self::More),
            "target" => Ok(Self::Target),
            "name" => Ok(Self::Name),
            _ => Self::COUNTS.iter().find(|known| **known == name).map(|known| Self::Count(known)).ok_or_else(|| {
                format!("unknown field `{name}`; expected {}, more, name or target", Self::COUNTS.join(", "))
            }),
        }
    }
}

/// A part of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Value(Field),
    If(Field, Vec<Self>),
}

/// A parsed format.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Template(Vec<Part>);

impl Template {
    /// Parses a format.
    ///
    /// Errors: an unknown field, a brace that is not closed or not opened.
    fn parse(text: &str) -> Result<Self, String> {
        let mut rest = text;
        let parts = Self::parts(&mut rest, 0)?;
        if rest.is_empty() { Ok(Self(parts)) } else { Err("`}` without `{`; write `}}` for a brace".to_owned()) }
    }

    /// Parses up to the brace that closes a condition, or to the end.
    fn parts(rest: &mut &str, depth: usize) -> Result<Vec<Part>, String> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        loop {
            let at = rest.find(['{', '}']).unwrap_or(rest.len());
            let (before, behind) = rest.split_at(at);
            plain.push_str(before);
            *rest = behind;
            // In a condition, `}}` closes it and the one around it.
            if let Some(after) = rest.strip_prefix("{{").or_else(|| rest.strip_prefix("}}").filter(|_| depth == 0)) {
                plain.push_str(rest.get(..1).unwrap_or_default());
                *rest = after;
                continue;
            }
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            let Some(after) = rest.strip_prefix('{') else { return Ok(parts) };
            let open = || "`{` is not closed; write `{{` for a brace".to_owned();
            if let Some(condition) = after.strip_prefix('?') {
                let (name, text) = condition.split_once(':').ok_or("expected `{?FIELD:TEXT}`")?;
                let field = Field::parse(name)?;
                *rest = text;
                let inner = Self::parts(rest, depth + 1)?;
                *rest = rest.strip_prefix('}').ok_or_else(open)?;
                parts.push(Part::If(field, inner));
            } else {
                let (name, behind) = after.split_once('}').ok_or_else(open)?;
                parts.push(Part::Value(Field::parse(name)?));
                *rest = behind;
            }
        }
    }

    fn render(&self, facts: &Facts) -> String {
        let mut line = String::new();
        Self::add(&self.0, facts, &mut line);
        line
    }

    fn add(parts: &[Part], facts: &Facts, line: &mut String) {
        for part in parts {
            match part {
                Part::Text(text) => line.push_str(text),
                Part::Value(field) => line.push_str(&facts.value(*field)),
                Part::If(field, inner) => {
                    if !matches!(facts.value(*field).as_str(), "" | "0") {
                        Self::add(inner, facts, line);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(format: &str, counts: &[(&'static str, usize)], asks: Option<(&str, &str)>) -> String {
        let asks = asks.map(|(target, name)| (target.to_owned(), name.to_owned()));
        Template::parse(format).unwrap().render(&Facts { counts: counts.iter().copied().collect(), asks })
    }

    #[test]
    fn the_default_says_who_asks_and_how_many_work() {
        let asks = Some(("api:1.0", "Claude Code"));
        assert_eq!(render(FORMAT, &[], None), "");
        assert_eq!(render(FORMAT, &[("working", 2)], None), "2 working");
        assert_eq!(render(FORMAT, &[("asking", 1)], asks), "! api:1.0 asks");
        assert_eq!(render(FORMAT, &[("asking", 3), ("working", 1)], asks), "! api:1.0 asks +2, 1 working");
    }

    #[test]
    fn braces_and_conditions_are_parsed() {
        assert_eq!(render("{{{idle}}} {?idle:a{?working:b}}|", &[("idle", 1), ("working", 2)], None), "{1} ab|");
        assert_eq!(render("#[fg=red]{?idle:x}", &[], None), "#[fg=red]");
        for (format, says) in [
            ("{working", "not closed"),
            ("a}b", "without `{`"),
            ("{?idle:x", "not closed"),
            ("{?idle}", "FIELD"),
            ("{x}", "unknown"),
        ] {
            let error = Template::parse(format).unwrap_err();
            assert!(error.contains(says), "{format}: {error}");
        }
    }

    /// A session's name is any text.
    #[test]
    fn a_name_has_no_style_and_no_format() {
        assert_eq!(
            render("{target}", &[], Some(("#[bg=red]#(x)\u{1b}[31m:0.0", ""))),
            "##[bg=red]##(x)\\u{1b}[31m:0.0"
        );
    }
}
