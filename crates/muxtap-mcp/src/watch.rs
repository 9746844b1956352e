//! `watch`: reports events in panes, from one call to the next.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use muxtap_api::{AgentInfo, CommandInfo, Error, EventKind, Result, SubscribeRequest};
use muxtap_base::clock::now_ms;
use muxtap_core::{Cursor, stream::render::text_end};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{
    CallContext, args,
    output::{ToolOutput, WatchOutput, push_agent, the_rest},
    quoted::{push_quoted, push_row},
    truncate::MAX_CHARS,
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
/// The number of characters of output in a result if many panes print.
const MOST_SHOWN: usize = 8000;
/// The field with the cursor before an event's output, until its length is known.
const BEGIN: &str = "begin";

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
            let is_meant = server.include_agent(&scopes, &agent);
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
    fn add(&mut self, mut event: Value) {
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
        let begin = is_output(&event).then(|| begin_of(&event)).flatten();
        if let (Some(begin), Some(fields)) = (begin, event.as_object_mut()) {
            fields.insert(BEGIN.into(), begin);
        }
        self.events.push(event);
    }

    /// Cuts each event's output to its share, and says how much was cut and where it began.
    fn bound(&mut self) {
        let has_output = |event: &&mut Value| event.get("text").or(event.get("data")).is_some_and(Value::is_string);
        let count = self.events.iter_mut().filter(has_output).count().max(1);
        let each = (MAX_CHARS / count).max(PANE_CHARS);
        // The last ones first: they have priority where all shares together are too long.
        let mut left = MOST_SHOWN;
        for event in self.events.iter_mut().rev().filter(has_output) {
            let share = each.min(left);
            let Some(fields) = event.as_object_mut() else { continue };
            let (end, cut) = match (fields.get("text"), fields.get("data")) {
                (Some(Value::String(text)), _) => end_of_text(text, share),
                (_, Some(Value::String(data))) => end_of_base64(data, share),
                _ => continue,
            };
            left = left.saturating_sub(end.chars().count());
            let name = if fields.contains_key("text") { "text" } else { "data" };
            fields.insert(name.into(), end.into());
            let begin = fields.remove(BEGIN);
            if cut > 0 {
                fields.insert("cut".into(), cut.into());
                fields.extend(begin.map(|begin| ("cut_since".to_owned(), begin)));
            }
        }
        for fields in self.events.iter_mut().filter_map(Value::as_object_mut) {
            fields.remove(BEGIN);
        }
    }
}

/// Returns the end of a text, and the number of characters before it.
fn end_of_text(text: &str, most: usize) -> (String, usize) {
    if most == 0 {
        return (String::new(), text.chars().count());
    }
    let (end, cut) = text_end(text, most);
    (end.to_owned(), cut)
}

/// Returns the end of bytes in base64, which can still be decoded, and the number of characters
/// before it.
fn end_of_base64(data: &str, most: usize) -> (String, usize) {
    let cut = data.len() - data.len().min(most / 4 * 4);
    (data.get(cut..).unwrap_or_default().to_owned(), cut)
}

/// Returns the cursor before an event's output. Text may be shorter than the bytes that were printed;
/// then the cursor is after the first of them.
fn begin_of(event: &Value) -> Option<Value> {
    let mut cursor: Cursor = event.get("cursor")?.as_str()?.parse().ok()?;
    let length = match (event.get("text").and_then(Value::as_str), event.get("data").and_then(Value::as_str)) {
        (Some(text), _) => text.len(),
        (None, Some(data)) => data.trim_end_matches('=').len() * 3 / 4,
        (None, None) => 0,
    };
    cursor.offset = cursor.offset.saturating_sub(u64::try_from(length).unwrap_or(u64::MAX));
    Some(cursor.to_string().into())
}

/// Returns the command of an event.
fn command(event: &Value) -> Option<CommandInfo> {
    CommandInfo::deserialize(event.get("command")?).ok()
}

/// Formats the events.
pub(super) fn text(output: &WatchOutput) -> String {
    if output.events.is_empty() {
        return format!("nothing happened\n[resume {}]", output.resume);
    }
    let mut text = String::new();
    for event in &output.events {
        let word = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
        let pane = event.pointer("/pane/id").and_then(Value::as_str).unwrap_or_else(|| word("pane"));
        let row = match word("type") {
            "output" => {
                push_output(&mut text, pane, event);
                continue;
            }
            "agent" => {
                if let Some(agent) = event.get("agent").and_then(|agent| AgentInfo::deserialize(agent).ok()) {
                    push_agent(&mut text, &agent, "");
                }
                continue;
            }
            "title" => format!("{pane} is called {}", word("title")),
            "pane-exited" => match event.get("exit_status").filter(|status| !status.is_null()) {
                Some(status) => format!("{pane} ended with {status}"),
                None => format!("{pane} ended"),
            },
            "command-started" => {
                format!("{pane} started: {}", command(event).map(|ran| ran.one_line()).unwrap_or_default())
            }
            "command-finished" => {
                format!("{pane} finished with {}", command(event).map(|ran| ran.summary()).unwrap_or_default())
            }
            "cwd" => format!("{pane} is in {}", word("path")),
            "progress" => match event.get("percent") {
                Some(percent) => format!("{pane} progress: {} {percent} %", word("state")),
                None => format!("{pane} progress: {}", word("state")),
            },
            "notification" => format!("{pane} notifies: {} {}", word("title"), word("body")),
            "pane-opened" => {
                let of = |name: &str| event.pointer(&format!("/pane/{name}")).and_then(Value::as_str);
                let (command, session) = (of("command").unwrap_or_default(), of("session").unwrap_or_default());
                format!("{pane}: pane-opened, {command} in {session}")
            }
            kind => format!("{pane}{}{kind}{}", if pane.is_empty() { "" } else { ": " }, rest(event)),
        };
        push_row(&mut text, &row);
    }
    // Writing to a String cannot fail.
    let _ = write!(text, "[resume {}]", output.resume);
    text
}

/// Adds a pane's output, each line with a mark.
fn push_output(to: &mut String, pane: &str, event: &Value) {
    if let Some(reason) = event.pointer("/gap/reason").and_then(Value::as_str) {
        push_row(to, &format!("{pane}: output is missing here: {reason}"));
    }
    // Bytes are in base64 with the format `raw`.
    let body = event.get("text").or(event.get("data")).and_then(Value::as_str).unwrap_or_default().trim_end();
    let cut = event.get("cut").and_then(Value::as_u64).and_then(|cut| usize::try_from(cut).ok());
    if body.is_empty() && cut.is_none() {
        return;
    }
    push_row(to, &format!("{pane} printed:"));
    if let Some(cut) = cut {
        let since = event.get("cut_since").and_then(Value::as_str).unwrap_or_default();
        push_row(to, &the_rest("before this", cut, since));
    }
    push_quoted(to, body);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a cursor of pane 1 with this offset.
    fn cursor(offset: u64) -> String {
        let epoch = muxtap_core::Epoch { server: 1, engine: 1 };
        Cursor { epoch, pane: muxtap_core::protocol::ids::PaneId(1), offset }.to_string()
    }

    fn shown(events: Vec<Value>) -> String {
        let mut output = WatchOutput { resume: "1@x".into(), ..WatchOutput::default() };
        for event in events {
            output.add(event);
        }
        output.bound();
        text(&output)
    }

    #[test]
    fn a_gap_loses_no_bytes_and_has_its_reason() {
        let gap = json!({"reason": "paused", "bytes": 3});
        let raw = json!({"type": "output", "pane": "%1", "data": "eA==", "cursor": cursor(4), "gap": gap});
        assert_eq!(shown(vec![raw]), "%1: output is missing here: paused\n%1 printed:\n  | eA==\n[resume 1@x]");
        // The end of a program: a gap, no output, and no status that is known.
        let gap = json!({"reason": "process-ended"});
        let end = json!({"type": "output", "pane": "%1", "text": "", "cursor": cursor(4), "gap": gap});
        let exit = json!({"type": "pane-exited", "pane": "%1", "exit_status": null});
        assert_eq!(shown(vec![end, exit]), "%1: output is missing here: process-ended\n%1 ended\n[resume 1@x]");
        let empty = json!({"type": "output", "pane": "%1", "text": "\n", "cursor": cursor(4)});
        assert_eq!(shown(vec![empty]), "[resume 1@x]");
    }

    #[test]
    fn long_output_is_cut_in_every_format_and_says_where_it_begins() {
        let text = "line\n".repeat(4000);
        let one = json!({"type": "output", "pane": "%1", "text": text, "cursor": cursor(30_000)});
        let two = json!({"type": "output", "pane": "%1", "text": "last\n", "cursor": cursor(30_005)});
        let seen = shown(vec![one, two]);
        assert!(seen.contains(&format!("read_since with since: \"{}\"", cursor(10_000))), "{seen}");
        assert!(seen.ends_with("  | line\n  | last\n[resume 1@x]"), "{seen}");
        let data = "YWJj".repeat(10_000);
        let raw = |number: u64| {
            let cursor = cursor(number * 30_000);
            json!({"type": "output", "pane": "%1", "data": data, "cursor": cursor})
        };
        let seen = shown((1..=100).map(raw).collect());
        assert!(seen.len() < 30_000, "{} bytes", seen.len());
        assert!(seen.contains(&cursor(2_970_000)) && seen.contains("  | YWJjYWJj"), "{seen}");
        let printed: usize = seen.lines().filter(|line| line.starts_with("  | ")).map(|line| line.len() - 4).sum();
        assert!(printed <= MOST_SHOWN, "{printed}");
    }
}
