//! What the hooks of agents mean.
//!
//! An agent passes a JSON object to its hooks on stdin. `docs/agent-reports.md` says which versions
//! were tried.

use std::io::{BufReader, Read};

use serde::Deserialize;
use serde_json::{Deserializer, Value};

use crate::api::{AgentState, ReportAgentRequest};

/// The most bytes of a hook's input that are read: a tool's input may be a whole file.
const INPUT_BYTES: u64 = 64 << 20;

/// The fields of a hook's input that are used. Others, such as a tool's output, are skipped. A field of
/// another form than expected counts as missing: the event says more than the rest.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Input {
    /// Claude Code, Codex, Gemini CLI, Cursor.
    hook_event_name: Text,
    /// Claude Code, Codex, Gemini CLI.
    session_id: Text,
    /// GitHub Copilot CLI.
    #[serde(rename = "sessionId")]
    copilot_session: Text,
    /// Cursor.
    conversation_id: Text,
    tool_name: Text,
    #[serde(rename = "toolName")]
    copilot_tool: Text,
    #[serde(rename = "tool_input")]
    tool: Value,
    notification_type: Text,
    message: Text,
    /// Set in the hooks of a sub-agent.
    agent_id: Value,
    /// Cursor: how a turn ended.
    status: Text,
    /// Claude Code: why a session starts.
    source: Text,
}

/// A text, or a value of another form, which counts as none.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
struct Text(Value);

impl Text {
    fn get(&self) -> Option<&str> {
        self.0.as_str()
    }

    fn owned(&self) -> Option<String> {
        self.get().map(str::to_owned)
    }
}

/// Returns the report that a hook makes. `None`: the event says nothing about the state.
///
/// `event`: the event, if the command line names it.
pub(super) fn request(
    agent: &str,
    event: Option<&str>,
    source: Option<String>,
    seq: u64,
    input: impl Read,
) -> Option<ReportAgentRequest> {
    // The first value is all of it, also if the agent keeps stdin open.
    let input = Input::deserialize(&mut Deserializer::from_reader(BufReader::new(input.take(INPUT_BYTES))));
    // An event that the command line names means something even if its input is unknown.
    let input: Input = if event.is_some() { input.unwrap_or_default() } else { input.ok()? };
    let event = event.or(input.hook_event_name.get())?;
    let state = state_of(agent, event, &input)?;
    let tool = input.tool_name.get().or(input.copilot_tool.get());
    let what = what(&input.tool);
    let described = match (tool, what) {
        (Some(tool), Some(what)) => Some(format!("{tool}: {what}")),
        (Some(tool), None) => Some(tool.to_owned()),
        (None, _) => input.message.owned(),
    };
    let asks = matches!(state, AgentState::Permission | AgentState::Question);
    let own = input.tool.pointer("/questions/0").filter(|_| state == AgentState::Question);
    let question = own.and_then(|own| text(own.get("question")?)).or_else(|| described.clone()).filter(|_| asks);
    let options = own.and_then(|own| own.get("options")?.as_array());
    let options = options.map(|all| all.iter().filter_map(|one| text(one.get("label")?)).take(16).collect());
    Some(ReportAgentRequest {
        state,
        source: source.unwrap_or_else(|| agent.to_owned()),
        seq,
        message: described.filter(|_| state == AgentState::Working),
        question,
        options: options.unwrap_or_default(),
        session: [&input.session_id, &input.copilot_session, &input.conversation_id].iter().find_map(|one| one.owned()),
        inside: false,
    })
}

/// Returns the state that an event means.
fn state_of(agent: &str, event: &str, input: &Input) -> Option<AgentState> {
    match agent {
        "gemini" => state_of_gemini(event, input),
        "cursor" => state_of_cursor(event, input),
        "copilot" => state_of_copilot(event),
        _ => state_of_claude(event, input),
    }
}

/// Claude Code, and Codex, which names its events alike.
fn state_of_claude(event: &str, input: &Input) -> Option<AgentState> {
    use AgentState::{Errored, Idle, Permission, Question, Working};
    let asks = input.tool_name.get() == Some("AskUserQuestion");
    let state = match event {
        "PreToolUse" | "PermissionRequest" | "Elicitation" if asks || event == "Elicitation" => Question,
        "UserPromptSubmit" | "PreToolUse" | "PostToolUse" | "PostToolUseFailure" | "PermissionDenied"
        | "PreCompact" | "ElicitationResult" => Working,
        "PermissionRequest" => Permission,
        "Notification" => match input.notification_type.get()? {
            "permission_prompt" => Permission,
            "elicitation_dialog" => Question,
            "idle_prompt" => Idle,
            _ => return None,
        },
        // A summary begins a session in the middle of a turn.
        "SessionStart" if input.source.get() == Some("compact") => return None,
        "SessionStart" | "Stop" | "Interrupt" => Idle,
        "StopFailure" => Errored,
        _ => return None,
    };
    // A sub-agent works within its agent, which may itself wait for its user. Its dialogs are the
    // agent's.
    let is_sub = !input.agent_id.is_null() && !matches!(state, Permission | Question);
    (!is_sub).then_some(state)
}

fn state_of_gemini(event: &str, input: &Input) -> Option<AgentState> {
    match event {
        "BeforeAgent" | "BeforeTool" | "AfterTool" | "PreCompress" => Some(AgentState::Working),
        "AfterAgent" | "SessionStart" => Some(AgentState::Idle),
        "Notification" if input.notification_type.get() == Some("ToolPermission") => Some(AgentState::Permission),
        _ => None,
    }
}

fn state_of_cursor(event: &str, input: &Input) -> Option<AgentState> {
    match event {
        "beforeSubmitPrompt" | "preToolUse" | "postToolUse" | "postToolUseFailure" => Some(AgentState::Working),
        "stop" if input.status.get() == Some("error") => Some(AgentState::Errored),
        "stop" | "sessionStart" => Some(AgentState::Idle),
        _ => None,
    }
}

fn state_of_copilot(event: &str) -> Option<AgentState> {
    match event {
        "userPromptSubmitted" | "preToolUse" | "postToolUse" => Some(AgentState::Working),
        "permissionRequest" => Some(AgentState::Permission),
        "agentStop" | "sessionStart" => Some(AgentState::Idle),
        "errorOccurred" => Some(AgentState::Errored),
        _ => None,
    }
}

/// Returns what a tool does, by its input.
fn what(tool: &Value) -> Option<String> {
    ["command", "file_path", "url"].iter().find_map(|name| text(tool.get(name)?))
}

/// Returns a text, or words as one.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(words) => Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(agent: &str, event: Option<&str>, input: &Value) -> Option<ReportAgentRequest> {
        request(agent, event, None, 7, input.to_string().as_bytes())
    }

    fn state(agent: &str, input: &Value) -> Option<AgentState> {
        read(agent, None, input).map(|request| request.state)
    }

    #[test]
    fn each_event_means_a_state_or_nothing() {
        use AgentState::{Errored, Idle, Permission, Working};
        for (agent, event, expected) in [
            ("claude", "SessionStart", Some(Idle)),
            ("claude", "UserPromptSubmit", Some(Working)),
            ("claude", "PreToolUse", Some(Working)),
            ("claude", "PostToolUse", Some(Working)),
            ("claude", "PostToolUseFailure", Some(Working)),
            ("claude", "PermissionRequest", Some(Permission)),
            ("claude", "Stop", Some(Idle)),
            ("claude", "StopFailure", Some(Errored)),
            ("claude", "SubagentStop", None),
            ("claude", "SessionEnd", None),
            ("claude", "FutureEvent", None),
            ("codex", "PermissionRequest", Some(Permission)),
            ("codex", "Stop", Some(Idle)),
            ("gemini", "BeforeAgent", Some(Working)),
            ("gemini", "AfterAgent", Some(Idle)),
            ("gemini", "BeforeModel", None),
            ("cursor", "beforeSubmitPrompt", Some(Working)),
            ("cursor", "stop", Some(Idle)),
        ] {
            assert_eq!(state(agent, &json!({"hook_event_name": event})), expected, "{agent} {event}");
        }
        let notification =
            |agent, kind| state(agent, &json!({"hook_event_name": "Notification", "notification_type": kind}));
        assert_eq!(notification("claude", "permission_prompt"), Some(Permission));
        assert_eq!(notification("claude", "idle_prompt"), Some(Idle));
        assert_eq!(notification("claude", "auth_success"), None);
        let starts = |source| state("claude", &json!({"hook_event_name": "SessionStart", "source": source}));
        assert_eq!((starts("startup"), starts("compact")), (Some(Idle), None));
        assert_eq!(notification("gemini", "ToolPermission"), Some(Permission));
        assert_eq!(state("cursor", &json!({"hook_event_name": "stop", "status": "error"})), Some(Errored));
        assert_eq!(read("copilot", Some("agentStop"), &json!({"sessionId": "s"})).unwrap().session.unwrap(), "s");
    }

    #[test]
    fn a_sub_agent_reports_only_what_its_agent_asks() {
        let of = |event| state("claude", &json!({"hook_event_name": event, "agent_id": "a1"}));
        assert_eq!((of("PreToolUse"), of("Stop"), of("PostToolUse")), (None, None, None));
        assert_eq!(of("PermissionRequest"), Some(AgentState::Permission));
    }

    #[test]
    fn a_report_says_what_is_done_or_asked() {
        let bash = json!({"command": "cargo test", "description": "x"});
        let event =
            |name| json!({"hook_event_name": name, "tool_name": "Bash", "tool_input": bash, "session_id": "s1"});
        let works = read("claude", None, &event("PreToolUse")).unwrap();
        assert_eq!((works.message.as_deref(), works.session.as_deref()), (Some("Bash: cargo test"), Some("s1")));
        assert_eq!((works.question, works.seq, works.source.as_str()), (None, 7, "claude"));
        let asks = read("claude", None, &event("PermissionRequest")).unwrap();
        assert_eq!((asks.question.as_deref(), asks.message), (Some("Bash: cargo test"), None));
        let questions = json!([{"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}]);
        let own = json!({"hook_event_name": "PreToolUse", "tool_name": "AskUserQuestion",
            "tool_input": {"questions": questions}});
        let own = read("claude", None, &own).unwrap();
        assert_eq!((own.state, own.question.as_deref()), (AgentState::Question, Some("Which?")));
        assert_eq!(own.options, ["a", "b"]);
    }

    #[test]
    fn a_field_of_another_form_counts_as_missing() {
        for (name, value) in [
            ("tool_input", json!("text")),
            ("tool_input", json!({"command": {"a": 1}, "questions": "x"})),
            ("tool_input", json!({"questions": [5]})),
            ("message", json!({"text": "x"})),
            ("tool_name", json!(5)),
            ("session_id", json!(["x"])),
        ] {
            let mut input = json!({"hook_event_name": "PermissionRequest"});
            input[name] = value;
            assert_eq!(state("claude", &input), Some(AgentState::Permission), "{input}");
        }
    }

    /// A pipe that stays open after its text: a read beyond it never ends.
    struct Open<'a>(&'a [u8]);

    impl Read for Open<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            assert!(!self.0.is_empty(), "a read that would wait");
            self.0.read(into)
        }
    }

    #[test]
    fn an_input_whose_end_does_not_come_is_read() {
        let open = Open(b"{\"hook_event_name\": \"Stop\", \"session_id\": \"s\"}\n");
        assert_eq!(request("claude", None, None, 1, open).unwrap().state, AgentState::Idle);
    }

    #[test]
    fn input_that_is_not_understood_reports_nothing() {
        for input in ["", "{", "[]", "null", "{\"hook_event_name\": 5}"] {
            assert_eq!(request("claude", None, None, 1, input.as_bytes()), None, "{input}");
        }
        assert_eq!(request("copilot", Some("agentStop"), None, 1, "{".as_bytes()).unwrap().state, AgentState::Idle);
    }
}
