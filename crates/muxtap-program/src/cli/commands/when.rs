//! `when`.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, Subcommand};
use muxtap_base::plain;
use muxtap_when::{Dry, Seen};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{
    Caller, Outcome,
    output::{self, Table},
    path_named, path_of,
};
use crate::{
    api::{
        AgentList, CaptureAnswer, CaptureRequest, CommandsAnswer, CommandsRequest, DoneAnswer, Error, PaneInfo,
        ReadAnswer, ReadRequest, Result, WhenInfo, WhenList, WhenLog, WhenLogQuery, WhenRule,
    },
    cli::EXIT_ERROR,
    protocol::ids::PaneId,
};

/// The longest file that `add` and `test` read, in bytes.
const FILE_BYTES: u64 = 64 << 20;

/// List, add and test rules
///
/// A rule runs a program, sends an HTTP request, notifies or types when something happens in panes.
/// Rules are in the configuration (`[[when]]`), or are added here until they are removed.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap when list
  muxtap when add failed.toml                    a rule in the form of [[when]], without that line
  muxtap when test -t work                       which rules would have fired for what it shows
  muxtap when test --recording session.cast
  muxtap when log -n 20")]
pub(in crate::cli) struct WhenArgs {
    #[command(subcommand)]
    word: Word,
}

#[derive(Debug, Subcommand)]
enum Word {
    /// List the rules, and how often each fired
    List,
    /// Add a rule, or replace an added one of its name
    Add {
        /// A TOML file with the fields of one [[when]]; `-` is stdin
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Remove rules that were added
    Remove {
        /// Their names
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
    /// Show which rules would have fired, and do nothing
    Test {
        /// For the retained output, the screen, the commands and the agent of this pane
        #[arg(short = 't', value_name = "PANE", conflicts_with = "recording")]
        target: Option<String>,
        /// Play a recording (asciicast); ignores `panes`, `labels`, `agents` and `hosts`
        #[arg(long, value_name = "FILE")]
        recording: Option<PathBuf>,
        /// Test this rule, a TOML file as for `add`, instead of those in effect
        #[arg(long, value_name = "FILE")]
        rule: Option<PathBuf>,
    },
    /// Show the journal: what fired, and the result
    Log {
        /// The number of firings, the latest ones
        #[arg(short = 'n', value_name = "N", default_value_t = 100)]
        number: u64,
        /// Only firings of this rule
        #[arg(long, value_name = "NAME")]
        rule: Option<String>,
    },
}

impl WhenArgs {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        match self.word {
            Word::List => list(caller).await,
            Word::Add { file } => {
                let added: WhenInfo = caller.client().await?.post("/v1/when", &rule_in(&file)?).await?;
                if caller.json {
                    output::print_json(&added)?;
                }
                Ok(0)
            }
            Word::Remove { names } => {
                let mut client = caller.client().await?;
                for name in names {
                    let done: DoneAnswer = client.delete(&path_of("when", &name)).await?;
                    if caller.json {
                        output::print_json(&done)?;
                    }
                }
                Ok(0)
            }
            Word::Test { target, recording, rule } => test(caller, target, recording, rule).await,
            Word::Log { number, rule } => log(caller, number, rule).await,
        }
    }
}

async fn list(caller: &Caller) -> Outcome {
    let list: WhenList = caller.client().await?.get("/v1/when", &()).await?;
    if caller.json {
        output::print_json(&list)?;
        return Ok(0);
    }
    let mut table = Table::new(&["NAME", "WHEN", "PANES", "DO", "FIRED", "HELD", "LOST", "FAILED", "FROM", "ERROR"]);
    for info in &list.rules {
        let rule = &info.rule;
        table.row(&[
            rule.name.clone(),
            condition(rule),
            panes(rule),
            actions(rule).join(" "),
            info.fired.to_string(),
            (info.held + info.own).to_string(),
            info.lost.to_string(),
            info.failed.to_string(),
            if info.configured { "config.toml" } else { "when add" }.to_owned(),
            info.error.clone().unwrap_or_default(),
        ]);
    }
    output::print(table.render())?;
    for problem in &list.problems {
        output::note(problem);
    }
    Ok(if list.problems.is_empty() { 0 } else { EXIT_ERROR })
}

/// Describes a rule's condition in a few words.
fn condition(rule: &WhenRule) -> String {
    let WhenRule { output, screen, notification, quiet, agent, progress, .. } = rule;
    let texts = [("output", output), ("screen", screen), ("notification", notification), ("quiet", quiet)];
    let text = texts.into_iter().find_map(|(word, text)| text.as_ref().map(|text| format!("{word} {text}")));
    let progress = progress.and_then(|state| serde_json::to_value(state).ok());
    let progress = progress.and_then(|state| state.as_str().map(|state| format!("progress {state}")));
    let state = agent.map(|state| format!("agent {}", state.as_str())).or(progress);
    let of_command = rule.command.then(|| "command".to_owned()).or(rule.ended.then(|| "ended".to_owned()));
    let mut words: Vec<String> = text.or(state).or(of_command).into_iter().collect();
    words.extend(rule.status.map(|status| format!("status {status}")));
    words.extend(rule.longer.as_ref().map(|longer| format!("longer {longer}")));
    words.join(" ")
}

/// Describes in which panes a rule counts: one of the patterns has to match, and all of the labels.
fn panes(rule: &WhenRule) -> String {
    let labels = Some(format!("{{{}}}", rule.labels.join(","))).filter(|_| !rule.labels.is_empty());
    match (rule.panes.join(" "), labels) {
        (panes, None) if panes.is_empty() => "all".to_owned(),
        (panes, None) => panes,
        (panes, Some(labels)) if panes.is_empty() => labels,
        (panes, Some(labels)) => format!("{panes} with {labels}"),
    }
}

fn actions(rule: &WhenRule) -> Vec<&'static str> {
    let all = [
        ("run", !rule.run.is_empty()),
        ("post", rule.post.is_some()),
        ("notify", rule.notify),
        ("type", rule.type_text.is_some()),
        ("label", !rule.label.is_empty()),
    ];
    all.into_iter().filter(|(_, is_there)| *is_there).map(|(word, _)| word).collect()
}

async fn log(caller: &Caller, number: u64, rule: Option<String>) -> Outcome {
    let query = WhenLogQuery { n: Some(number), rule };
    let log: WhenLog = caller.client().await?.get("/v1/when-log", &query).await?;
    if caller.json {
        output::print_json(&log)?;
        return Ok(0);
    }
    let mut table = Table::new(&["TIME", "ID", "RULE", "PANE", "STATE", "RESULT", "SEEN"]);
    for firing in log.firings {
        let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(firing.at_ms / 1000) * 1_000_000_000);
        let at = at.ok().and_then(|at| at.format(&Rfc3339).ok()).unwrap_or_default();
        let pane = format!("{} {}", firing.pane, firing.place);
        let results = firing.results.join(", ");
        let state = firing.state.as_str().to_owned();
        table.row(&[at, firing.id, firing.rule, pane, state, results, firing.text]);
    }
    output::print(table.render())?;
    Ok(0)
}

async fn test(caller: &Caller, target: Option<String>, recording: Option<PathBuf>, rule: Option<PathBuf>) -> Outcome {
    let rules = if let Some(file) = &rule {
        vec![rule_in(file)?]
    } else {
        let list: WhenList = caller.client().await?.get("/v1/when", &()).await?;
        list.rules.into_iter().map(|info| info.rule).collect()
    };
    let dry = match recording {
        Some(file) => {
            // A recording says neither its pane's names and labels nor its agent.
            let anywhere =
                |rule: WhenRule| WhenRule { panes: Vec::new(), labels: Vec::new(), agents: Vec::new(), ..rule };
            let rules: Vec<_> = rules.into_iter().map(anywhere).collect();
            let mut dry = Dry::new(&rules, PaneInfo::of(PaneId(0)))?;
            let played = dry.play(&text_of(&file)?);
            played.map_err(|why| Error::invalid(format!("{}: {why}", file.display())))?;
            dry
        }
        None => of_pane(caller, &rules, target).await?,
    };
    print_seen(caller, dry.seen())
}

/// Runs the rules on what the daemon has of a pane.
async fn of_pane(caller: &Caller, rules: &[WhenRule], target: Option<String>) -> Result<Dry> {
    let target = caller.target(target)?;
    let mut client = caller.client().await?;
    let path = path_named("panes", &target)?;
    let pane: PaneInfo = client.get(&path, &()).await?;
    let mut dry = Dry::new(rules, pane.clone())?;
    let agents: AgentList = client.get("/v1/agents", &()).await?;
    if let Some(agent) = agents.agents.into_iter().find(|agent| agent.pane == pane.id) {
        dry.agent(agent);
    }
    let mut since = "start".to_owned();
    loop {
        let request = ReadRequest { since: Some(since), ..ReadRequest::default() };
        let read: ReadAnswer = client.get(&format!("{path}/output"), &request).await?;
        dry.print(&read.text.unwrap_or_default());
        since = read.cursor.to_string();
        if !read.more {
            break;
        }
    }
    let commands: CommandsAnswer = client.get(&format!("{path}/commands"), &CommandsRequest::default()).await?;
    for command in commands.commands.into_iter().filter(|command| command.end.is_some()) {
        dry.command(command);
    }
    let shown: CaptureAnswer = client.get(&format!("{path}/capture"), &CaptureRequest::default()).await?;
    let rows: Vec<_> = shown.text.lines().map(str::to_owned).collect();
    dry.show(&rows);
    // Long enough for an unfinished line; times of quiet are not known from what is retained.
    dry.until(Duration::from_secs(1));
    if pane.dead {
        dry.end(pane.exit_status);
    }
    Ok(dry)
}

fn print_seen(caller: &Caller, seen: &[Seen]) -> Outcome {
    if caller.json {
        output::print_json(&serde_json::json!({ "seen": seen }))?;
        return Ok(0);
    }
    if seen.is_empty() {
        output::print("No rule would have fired.\n")?;
        return Ok(0);
    }
    let mut table = Table::new(&["RULE", "AFTER", "WHEN", "SEEN"]);
    for Seen { rule, kind, at_ms, text } in seen {
        let after = format!("{}.{:03} s", at_ms / 1000, at_ms % 1000);
        table.row(&[rule.clone(), after, kind.clone(), plain::name(text).into_owned()]);
    }
    output::print(table.render())?;
    Ok(0)
}

/// Reads a file, or stdin for `-`.
fn text_of(file: &Path) -> Result<String> {
    let wrong = |error: std::io::Error| Error::invalid(format!("{}: {error}", file.display()));
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().lock().take(FILE_BYTES).read_to_string(&mut text).map_err(wrong)?;
    } else {
        let opened = std::fs::File::open(file).map_err(wrong)?;
        opened.take(FILE_BYTES).read_to_string(&mut text).map_err(wrong)?;
    }
    Ok(text)
}

/// Reads a rule from a TOML file.
fn rule_in(file: &Path) -> Result<WhenRule> {
    let text = text_of(file)?;
    toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or_else(String::new, |before| format!(":{}", before.matches('\n').count() + 1));
        Error::invalid(format!("{}{line}: {}", file.display(), error.message()))
    })
}
