//! What the hooks of agents mean.
//!
//! An agent passes a JSON object to its hooks on stdin. `docs/agent-reports.md` says which versions
//! were tried.

use std::io::{BufReader, Read};

use serde::Deserialize;
use serde_json::Value;

use crate::api::{AgentState, ReportAgentRequest};

/// The most bytes of a hook's input that are read: a tool's input may be a whole file.
const INPUT_BYTES: u64 = 64 << 20;

/// The fields of a hook's input that are used. Others, such as a tool's output, are skipped.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Input {
    /// Claude Code, Codex, Gemini CLI, Cursor.
    hook_event_name: Option<String>,
    /// Claude Code, Codex, Gemini CLI.
    session_id: Option<String>,
    /// GitHub Copilot CLI.
    #[serde(rename = "sessionId")]
    copilot_session: Option<String>,
    /// Cursor.
    conversation_id: Option<String>,
    tool_name: Option<String>,
    #[serde(rename = "toolName")]
    copilot_tool: Option<String>,
    #[serde(rename = "tool_input")]
    tool: Option<ToolInput>,
    notification_type: Option<String>,
    message: Option<String>,
    /// Set in the hooks of a sub-agent.
    agent_id: Option<String>,
    /// Cursor: how a turn ended.
    status: Option<String>,
}

/// A tool's input, as far as it says what is done.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ToolInput {
    command: Option<Value>,
    file_path: Option<Value>,
    url: Option<Value>,
    questions: Option<Vec<Question>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Question {
    question: Option<String>,
    options: Vec<Choice>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Choice {
    label: Option<String>,
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
    let input = serde_json::from_reader(BufReader::new(input.take(INPUT_BYTES)));
    // An event that the command line names means something even if its input is unknown.
    let input: Input = if event.is_some() { input.unwrap_or_default() } else { input.ok()? };
    let event = event.or(input.hook_event_name.as_deref())?;
    let state = state_of(agent, event, &input)?;
    let tool = input.tool_name.as_deref().or(input.copilot_tool.as_deref());
    let what = input.tool.as_ref().and_then(ToolInput::what);
    let described = match (tool, what) {
        (Some(tool), Some(what)) => Some(format!("{tool}: {what}")),
        (Some(tool), None) => Some(tool.to_owned()),
        (None, _) => input.message.clone(),
    };
    let asks = matches!(state, AgentState::Permission | AgentState::Question);
    let own = input.tool.as_ref().and_then(|input| input.questions.as_ref()?.first());
    let own = own.filter(|_| state == AgentState::Question);
    let question = own.and_then(|own| own.question.clone()).or_else(|| described.clone()).filter(|_| asks);
    let options = own.map(|own| own.options.iter().filter_map(|one| one.label.clone()).take(16).collect());
    Some(ReportAgentRequest {
        state,
        source: source.unwrap_or_else(|| agent.to_owned()),
        seq,
        message: described.filter(|_| state == AgentState::Working),
        question,
        options: options.unwrap_or_default(),
        session: input.session_id.or(input.copilot_session).or(input.conversation_id),
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
    let asks = input.tool_name.as_deref() == Some("AskUserQuestion");
    let state = match event {
        "PreToolUse" | "PermissionRequest" | "Elicitation" if asks || event == "Elicitation" => Question,
        "UserPromptSubmit" | "PreToolUse" | "PostToolUse" | "PostToolUseFailure" | "PermissionDenied"
        | "PreCompact" | "ElicitationResult" => Working,
        "PermissionRequest" => Permission,
        "Notification" => match input.notification_type.as_deref()? {
            "permission_prompt" => Permission,
            "elicitation_dialog" => Question,
            "idle_prompt" => Idle,
            _ => return None,
        },
        "SessionStart" | "Stop" | "Interrupt" => Idle,
        "StopFailure" => Errored,
        _ => return None,
    };
    // A sub-agent works within its agent, which may itself wait for its user. Its dialogs are the
    // agent's.
    let is_sub = input.agent_id.is_some() && !matches!(state, Permission | Question);
    (!is_sub).then_some(state)
}

fn state_of_gemini(event: &str, input: &Input) -> Option<AgentState> {
    match event {
        "BeforeAgent" | "BeforeTool" | "AfterTool" | "PreCompress" => Some(AgentState::Working),
        "AfterAgent" | "SessionStart" => Some(AgentState::Idle),
        "Notification" if input.notification_type.as_deref() == Some("ToolPermission") => Some(AgentState::Permission),
        _ => None,
    }
}

fn state_of_cursor(event: &str, input: &Input) -> Option<AgentState> {
    match event {
        "beforeSubmitPrompt" | "preToolUse" | "postToolUse" | "postToolUseFailure" => Some(AgentState::Working),
        "stop" if input.status.as_deref() == Some("error") => Some(AgentState::Errored),
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

impl ToolInput {
    /// Returns what the tool does.
    fn what(&self) -> Option<String> {
        let what = [&self.command, &self.file_path, &self.url].into_iter().flatten().next()?;
        Some(match what {
            Value::String(text) => text.clone(),
            Value::Array(words) => words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
            _ => return None,
        })
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
    fn input_that_is_not_understood_reports_nothing() {
        for input in ["", "{", "[]", "null", "{\"hook_event_name\": 5}"] {
            assert_eq!(request("claude", None, None, 1, input.as_bytes()), None, "{input}");
        }
        assert_eq!(request("copilot", Some("agentStop"), None, 1, "{".as_bytes()).unwrap().state, AgentState::Idle);
    }
}
