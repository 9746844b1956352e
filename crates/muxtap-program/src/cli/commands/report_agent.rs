//! `report-agent`.

mod hook;

use std::{sync::mpsc, thread, time::Duration};

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser as _},
};
use muxtap_base::clock::monotonic_us;
use muxtap_tmux::ServerChoice;

use super::{Caller, Outcome, output, path_named};
use crate::{
    api::{AgentState, Error, ReportAgentAnswer, ReportAgentRequest, Result},
    cli::{
        exchange::ask_quietly,
        one_request::{self, Ask, OneRequest},
        quick::Words,
    },
};

/// The longest time that a hook waits for its input: an agent waits for its hooks.
const HOOK_LIMIT: Duration = Duration::from_secs(1);
/// The longest time that a hook then waits for the daemon.
const HOOK_DAEMON_LIMIT: Duration = Duration::from_millis(100);
const STATES: [AgentState; 5] =
    [AgentState::Working, AgentState::Idle, AgentState::Permission, AgentState::Question, AgentState::Errored];

/// Report what an agent does
///
/// For agents' hooks, and for programs that no rule knows. The newest report of a source counts until
/// the screen contradicts it, or the agent's process ends; see `muxtap agents explain`. A program in a
/// pane can report for that pane alone.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap report-agent --state working --source mytool --message 'running the tests'
  muxtap report-agent --state question --source mytool --question 'Deploy?' --option yes --option no
  muxtap report-agent --hook claude              in a hook: reads the hook's JSON from stdin")]
pub(in crate::cli) struct ReportAgent {
    /// The agent's pane (default: the caller's)
    #[arg(short = 't', value_name = "PANE")]
    target: Option<String>,
    /// What the agent does
    #[arg(long, value_name = "STATE", required_unless_present = "hook",
        value_parser = PossibleValuesParser::new(STATES.map(AgentState::as_str)).try_map(|word| state(&word)))]
    state: Option<AgentState>,
    /// The reporter's name: lower-case letters, digits and hyphens
    #[arg(long, value_name = "NAME", required_unless_present = "hook")]
    source: Option<String>,
    /// A number that grows with each report of a source (default: microseconds of the monotonic clock)
    #[arg(long, value_name = "N")]
    seq: Option<u64>,
    /// What the agent does, in a line
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
    /// What the agent asks
    #[arg(long, value_name = "TEXT")]
    question: Option<String>,
    /// An answer that the agent offers; repeatable
    #[arg(long = "option", value_name = "TEXT")]
    options: Vec<String>,
    /// The agent's own id of its session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Read the state from the JSON that this agent passes to its hooks on stdin; implies --quiet
    #[arg(long, value_name = "AGENT", conflicts_with_all = ["state", "message", "question", "options", "session"])]
    hook: Option<String>,
    /// The hook's event, for agents whose JSON does not name it
    #[arg(long, value_name = "NAME", requires = "hook")]
    event: Option<String>,
    /// Print nothing, exit with 0, start no daemon, and wait 100 ms at most for the running one
    #[arg(long)]
    quiet: bool,
}

fn state(word: &str) -> Result<AgentState, String> {
    STATES.into_iter().find(|state| state.as_str() == word).ok_or_else(|| format!("unknown state {word:?}"))
}

impl ReportAgent {
    /// Returns what the words of a plain command line say. `None`: a value is invalid or missing.
    pub(in crate::cli) fn plain(words: &mut Words) -> Option<Self> {
        let of_state = words.long_value("state").map(|word| state(&word)).transpose().ok()?;
        let seq = words.long_value("seq").map(|word| word.parse()).transpose().ok()?;
        let report = Self {
            target: words.value('t'),
            state: of_state,
            source: words.long_value("source"),
            seq,
            message: words.long_value("message"),
            question: words.long_value("question"),
            options: words.long_values("option"),
            session: words.long_value("session"),
            hook: words.long_value("hook"),
            event: words.long_value("event"),
            quiet: words.has_long("quiet"),
        };
        let is_whole = report.state.is_some() && report.source.is_some();
        let describes = report.state.is_some()
            || report.message.is_some()
            || report.question.is_some()
            || report.session.is_some()
            || !report.options.is_empty();
        let is_valid = if report.hook.is_some() { !describes } else { is_whole && report.event.is_none() };
        is_valid.then_some(report)
    }

    /// Returns whether the command is a hook, or must be as harmless as one.
    pub(in crate::cli) fn is_quiet(&self) -> bool {
        self.quiet || self.hook.is_some()
    }

    /// Reports without output, within [`HOOK_LIMIT`] and [`HOOK_DAEMON_LIMIT`], to a daemon that runs. A
    /// failure changes nothing for the caller.
    pub(in crate::cli) fn run_quietly(self, server: ServerChoice) {
        let (step, steps) = mpsc::channel();
        // The channel closes when the work is done.
        let work = move || self.report_quietly(&server, &step);
        if thread::Builder::new().spawn(work).is_ok() && steps.recv_timeout(HOOK_LIMIT).is_ok() {
            let _ = steps.recv_timeout(HOOK_DAEMON_LIMIT);
        }
    }

    /// `has_input` is sent to when the input has been read.
    fn report_quietly(mut self, server: &ServerChoice, has_input: &mpsc::Sender<()>) -> Option<()> {
        let caller = Caller::new(server, false).ok()?;
        // Before stdin is read: outside of tmux a hook costs nothing.
        let inside = self.target.is_none();
        let target = caller.target(self.target.take()).ok()?;
        // The time at which the hook began orders it, not the time at which its input was read.
        let seq = self.seq.unwrap_or_else(monotonic_us);
        let mut request = match &self.hook {
            Some(agent) => {
                hook::request(agent, self.event.as_deref(), self.source.clone(), seq, std::io::stdin().lock())?
            }
            None => self.request(seq).ok()?,
        };
        request.inside = inside;
        let ask = Ask::post(format!("{}/agent", path_named("panes", &target).ok()?), &request).ok()?;
        // The other side is gone if the time is up.
        has_input.send(()).ok()?;
        ask_quietly(&caller, &ask)
    }

    fn request(&self, seq: u64) -> Result<ReportAgentRequest> {
        Ok(ReportAgentRequest {
            state: self.state.ok_or_else(|| Error::invalid("state: missing"))?,
            source: self.source.clone().unwrap_or_default(),
            seq,
            message: self.message.clone(),
            question: self.question.clone(),
            options: self.options.clone(),
            session: self.session.clone(),
            // A pane that the environment names is the caller's own.
            inside: self.target.is_none(),
        })
    }

    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        one_request::run(&self, caller).await
    }
}

impl OneRequest for ReportAgent {
    type Answer = ReportAgentAnswer;

    fn ask(&self, caller: &Caller) -> Result<Ask> {
        let path = format!("{}/agent", path_named("panes", &caller.target(self.target.clone())?)?);
        Ask::post(path, &self.request(self.seq.unwrap_or_else(monotonic_us))?)
    }

    fn print(&self, caller: &Caller, answer: &ReportAgentAnswer) -> Outcome {
        if caller.json {
            output::print_json(answer)?;
        } else if !answer.accepted {
            output::note("ignored: a report of this source with the same or a greater --seq is known");
        }
        Ok(0)
    }
}
