//! `watch`: reports events in panes, from one call to the next.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use muxtap_api::{AgentInfo, CommandInfo, Error, EventKind, Result, SubscribeRequest};
use muxtap_base::clock::now_ms;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{
    CallContext, args,
    output::{ToolOutput, WatchOutput, push_agent},
    truncate::{MAX_CHARS, truncate_start},
};

/// How long a call waits for an event by default, in milliseconds.
const WAIT_MS: u64 = 10_000;
/// Events that follow each other within this time are returned together.
const TOGETHER: Duration = Duration::from_millis(150);
/// The time from the first event to the result, even if more events follow.
const AT_MOST: Duration = Duration::from_secs(2);
/// The number of characters of output that a result collects before it is returned.
const MOST_CHARS: usize = 200_000;
/// The maximum number of events in a result.
const MOST_EVENTS: usize = 100;
/// The fewest characters of one pane's output in a result.
const PANE_CHARS: usize = 400;

/// Waits for an event, collects those that follow it, and returns them with the position at which
/// to continue.
pub(super) async fn watch(call: &CallContext, args: args::Watch) -> Result<ToolOutput> {
    use EventKind::{Agent, Bell, Output, PaneExited, PaneOpened, Title};
    let server = call.server(args.server.as_deref())?;
    let types = match args.types {
        types if types.is_empty() => vec![Output, PaneOpened, PaneExited, Bell, Title, Agent],
        types => types,
    };
    let wants_agents = types.contains(&Agent);
    let (resume, since) = match &args.resume {
        None => (None, None),
        Some(resume) => {
            let wrong = || Error::invalid("resume: expected the unchanged `resume` of a watch result");
            let (at, place) = resume.split_once('@').ok_or_else(wrong)?;
            (Some(place.to_owned()), Some(at.parse::<u64>().map_err(|_| wrong())?))
        }
    };
    let scopes = server.scopes(&args.targets).await?;
    let request = SubscribeRequest {
        panes: args.targets,
        types,
        format: args.format,
        screen: args.screen,
        since: args.since,
        resume,
        ..SubscribeRequest::default()
    };
    let begun = now_ms();
    let mut events = server.subscribe(&request).await?;
    let mut output = WatchOutput { resume: events.resume_token(), ..WatchOutput::default() };
    // A state that an agent reached between two calls is no longer an event, but still applies.
    if let Some(since) = since.filter(|_| wants_agents) {
        for agent in server.agents().await?.agents {
            let is_meant = scopes.include(&agent);
            if agent.since_ms > since && is_meant {
                output.events.push(json!({"type": "agent", "pane": agent.pane, "agent": agent}));
            }
        }
    }
    let wait = call.capped(args.wait_ms.unwrap_or(WAIT_MS));
    let (mut limit, mut over) = (if output.events.is_empty() { wait } else { TOGETHER }, None::<Instant>);
    let mut gathered = 0;
    while output.events.len() < MOST_EVENTS && gathered < MOST_CHARS && over.is_none_or(|over| Instant::now() < over) {
        let Ok(Some(delivery)) = tokio::time::timeout(limit, events.next()).await else { break };
        let delivery = delivery?;
        over = over.or_else(|| Some(Instant::now() + AT_MOST));
        gathered += delivery.event.json().len();
        if let Some(resume) = delivery.resume {
            output.resume = resume;
        }
        output.add(serde_json::from_slice(delivery.event.json()).unwrap_or_default());
        limit = TOGETHER;
    }
    output.bound();
    // The time from before the first event: a duplicate is better than a missed event.
    output.resume = format!("{begun}@{}", output.resume);
    Ok(ToolOutput::new(text(&output), &output))
}

impl WatchOutput {
    /// Adds an event. Output of one pane is joined into one event.
    fn add(&mut self, event: Value) {
        let of = |event: &Value, name: &str| event.get(name).cloned().unwrap_or_default();
        let is_output = |event: &Value| of(event, "type") == "output";
        if is_output(&event)
            && of(&event, "gap").is_null()
            // Base64 output is not joined.
            && of(&event, "text").is_string()
            && let Some(Value::Object(before)) = self
                .events
                .iter_mut()
                .rev()
                .find(|before| is_output(before) && of(before, "pane") == of(&event, "pane"))
        {
            let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
            let whole = text(before.get("text")) + &text(event.get("text"));
            before.insert("text".into(), whole.into());
            before.insert("cursor".into(), of(&event, "cursor"));
            return;
        }
        self.events.push(event);
    }

    fn bound(&mut self) {
        let panes = self.events.iter().filter(|event| event.get("text").is_some()).count().max(1);
        let each = (MAX_CHARS / panes).max(PANE_CHARS);
        for text in self.events.iter_mut().filter_map(|event| event.get_mut("text")) {
            if let Some(whole) = text.as_str() {
                *text = truncate_start(whole, Some(each), "read_since with max_chars pages through them").text.into();
            }
        }
    }
}

/// Returns the command of an event.
fn command(event: &Value) -> Option<CommandInfo> {
    CommandInfo::deserialize(event.get("command")?).ok()
}

fn text(output: &WatchOutput) -> String {
    if output.events.is_empty() {
        return format!("nothing happened\n[resume {}]", output.resume);
    }
    let mut text = String::new();
    for event in &output.events {
        let word = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
        let pane = event.pointer("/pane/id").and_then(Value::as_str).unwrap_or_else(|| word("pane"));
        // Writing to a String cannot fail.
        let _ = match word("type") {
            "output" if event.get("gap").is_some_and(|gap| !gap.is_null()) => {
                writeln!(text, "{pane} printed, after output that is missing:\n{}", word("text").trim_end())
            }
            // Bytes in base64 with the format `raw`.
            "output" if word("text").is_empty() => writeln!(text, "{pane} printed:\n{}", word("data")),
            "output" => writeln!(text, "{pane} printed:\n{}", word("text").trim_end()),
            "title" => writeln!(text, "{pane} is called {}", word("title")),
            "pane-exited" => match event.get("exit_status") {
                Some(status) => writeln!(text, "{pane} ended with {status}"),
                None => writeln!(text, "{pane} ended"),
            },
            "command-started" => {
                writeln!(text, "{pane} started: {}", command(event).map(|ran| ran.one_line()).unwrap_or_default())
            }
            "command-finished" => {
                writeln!(text, "{pane} finished with {}", command(event).map(|ran| ran.summary()).unwrap_or_default())
            }
            "cwd" => writeln!(text, "{pane} is in {}", word("path")),
            "progress" => match event.get("percent") {
                Some(percent) => writeln!(text, "{pane} progress: {} {percent} %", word("state")),
                None => writeln!(text, "{pane} progress: {}", word("state")),
            },
            "notification" => writeln!(text, "{pane} notifies: {} {}", word("title"), word("body")),
            "pane-opened" => {
                let of = |name: &str| event.pointer(&format!("/pane/{name}")).and_then(Value::as_str);
                writeln!(
                    text,
                    "{pane}: pane-opened, {} in {}",
                    of("command").unwrap_or_default(),
                    of("session").unwrap_or_default()
                )
            }
            "agent" => {
                if let Some(agent) = event.get("agent").and_then(|agent| AgentInfo::deserialize(agent).ok()) {
                    push_agent(&mut text, &agent);
                }
                Ok(())
            }
            kind => writeln!(text, "{pane}{}{kind}{}", if pane.is_empty() { "" } else { ": " }, rest(event)),
        };
    }
    // Writing to a String cannot fail.
    let _ = write!(text, "[resume {}]", output.resume);
    text
}

/// Returns what an event says beside its type, its pane and its place in the stream.
fn rest(event: &Value) -> String {
    let mut rest = event.clone();
    let Some(fields) = rest.as_object_mut() else { return String::new() };
    for known in ["type", "pane", "cursor", "resume", "at_ms", "time_ms", "seq"] {
        fields.remove(known);
    }
    if fields.is_empty() { String::new() } else { format!(" {rest}") }
}
