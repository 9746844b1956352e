//! `watch`: what happens in panes, from one call to the next.

use std::{fmt::Write as _, time::Duration};

use rmcp::model::JsonObject;
use serde_json::Value;

use super::{
    Session, args,
    bounded::bounded,
    told::{Told, WatchTold},
    tools::{HOLD_MS, parse},
};
use crate::api::{EventKind, Result, SubscribeRequest};

/// How long a call waits for something when it does not say.
const WAIT_MS: u64 = 10_000;
/// What follows within this time belongs to the same answer.
const TOGETHER: Duration = Duration::from_millis(150);
/// Events of one answer.
const MOST_EVENTS: usize = 100;
/// Characters of one pane's output in an answer.
const PANE_CHARS: usize = 4000;

/// Waits for something to happen, gathers what belongs to it, and says how to go on.
pub(super) async fn watch(session: &Session, arguments: JsonObject) -> Result<Told> {
    use EventKind::{Agent, Bell, Output, PaneExited, PaneOpened, Title};
    let args: args::Watch = parse(arguments)?;
    let host = session.host(args.server.as_deref())?;
    let types = vec![Output, PaneOpened, PaneExited, Bell, Title, Agent];
    let request = SubscribeRequest { panes: args.targets, types, resume: args.resume, ..SubscribeRequest::default() };
    let mut events = session.engine.subscribe(&host, &request).await?;
    let mut told = WatchTold { resume: events.place(), ..WatchTold::default() };
    let mut limit = Duration::from_millis(args.wait_ms.unwrap_or(WAIT_MS).min(HOLD_MS));
    while told.events.len() < MOST_EVENTS {
        let Ok(Some(event)) = tokio::time::timeout(limit, events.next()).await else { break };
        let event = event?;
        if let Some(resume) = event.resume {
            told.resume = resume;
        }
        told.add(serde_json::from_slice(event.telling.json()).unwrap_or_default());
        limit = TOGETHER;
    }
    told.bound();
    Ok(Told { text: text(&told), answer: serde_json::to_value(&told).unwrap_or_default() })
}

impl WatchTold {
    /// Output of one pane is one event.
    fn add(&mut self, event: Value) {
        let of = |event: &Value, name: &str| event.get(name).cloned().unwrap_or_default();
        let is_output = |event: &Value| of(event, "type") == "output";
        if is_output(&event)
            && of(&event, "gap").is_null()
            && let Some(Value::Object(before)) =
                self.events.iter_mut().find(|before| is_output(before) && of(before, "pane") == of(&event, "pane"))
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
        for text in self.events.iter_mut().filter_map(|event| event.get_mut("text")) {
            if let Some(whole) = text.as_str() {
                *text = bounded(whole, Some(PANE_CHARS)).text.into();
            }
        }
    }
}

fn text(told: &WatchTold) -> String {
    if told.events.is_empty() {
        return "nothing happened; call watch again with resume".to_owned();
    }
    let mut text = String::new();
    for event in &told.events {
        let word = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
        let pane = event.pointer("/pane/id").and_then(Value::as_str).unwrap_or_else(|| word("pane"));
        // Writing to a String cannot fail.
        let _ = match word("type") {
            "output" => writeln!(text, "{pane} printed:\n{}", word("text").trim_end()),
            "title" => writeln!(text, "{pane} is called {}", word("title")),
            "pane-exited" => match event.get("exit_status") {
                Some(status) => writeln!(text, "{pane} ended with {status}"),
                None => writeln!(text, "{pane} ended"),
            },
            kind => writeln!(text, "{pane}: {kind}"),
        };
    }
    text
}
