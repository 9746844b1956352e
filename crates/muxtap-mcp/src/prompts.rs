//! Prompts: common jobs, worded to lead to the right tools.

use muxtap_api::{Error, Result};
use rmcp::model::{GetPromptResult, Prompt, PromptArgument, PromptMessage, Role};
use serde_json::{Map, Value};

/// A prompt for a common job: its name, its description, its arguments (name, description, whether
/// it is required) and its text.
struct PromptTemplate {
    name: &'static str,
    about: &'static str,
    arguments: &'static [(&'static str, &'static str, bool)],
    text: &'static str,
}

const TEMPLATES: [PromptTemplate; 4] = [
    PromptTemplate {
        name: "run_and_watch",
        about: "Start a long command in a pane of its own and wait for its result",
        arguments: &[("command", "The command", true), ("done", "Regex that matches when it is done", false)],
        text: "Create a pane for it with `create` (what: session, command: {command}, keep: true). Wait with \
               `wait_for` on that pane: exit, and patterns [{done}] if that is not empty; give a `fail` pattern for \
               errors you expect. If the wait returns `pending`, call it again with its id. Then read the end of the \
               output with `read_since` (since: lines:40) and report the result and the exit status.",
    },
    PromptTemplate {
        name: "debug_pane",
        about: "Find out what happens in a pane",
        arguments: &[("target", "The pane", true)],
        text: "Look at {target}: `list` for its command and directory, `capture_pane` with history 200, `search` for \
               errors. Report what runs there, what went wrong first, and what to do; type nothing.",
    },
    PromptTemplate {
        name: "drive_repl",
        about: "Work with an interactive program",
        arguments: &[("target", "The pane", true), ("goal", "What is to be done", true)],
        text: "An interactive program runs in {target}. Goal: {goal}. For each step: `send_keys` with text and submit: \
               true, then `wait_for` with the pattern you expect (or stable_ms: 500), then `read_since` with the \
               cursor that the input returned. Never guess what it printed.",
    },
    PromptTemplate {
        name: "supervise",
        about: "Keep an eye on panes",
        arguments: &[("targets", "Panes; names may contain *", false)],
        text: "Call `watch` with targets [{targets}] (all panes if that is empty), and again with `resume` of its last \
               result. Report only what matters: a command that ended, an error, a program that requests input. Type \
               into no pane without instructions.",
    },
];

/// Lists the prompts.
pub fn list() -> Vec<Prompt> {
    TEMPLATES
        .iter()
        .map(|job| {
            let arguments = job.arguments.iter().map(|(name, about, required)| {
                PromptArgument::new(*name).with_description(*about).with_required(*required)
            });
            Prompt::new(job.name, Some(job.about), Some(arguments.collect()))
        })
        .collect()
}

/// Fills in one prompt.
pub fn get(name: &str, given: &Map<String, Value>) -> Result<GetPromptResult> {
    let job = TEMPLATES.iter().find(|job| job.name == name).ok_or_else(|| {
        Error::invalid(format!("unknown prompt {name:?}; expected one of {}", TEMPLATES.map(|job| job.name).join(", ")))
    })?;
    let mut text = job.text.to_owned();
    for (argument, _, required) in job.arguments {
        let value = given.get(*argument).and_then(Value::as_str).unwrap_or_default();
        if *required && value.is_empty() {
            return Err(Error::invalid(format!("{argument}: missing; the prompt {name} requires it")));
        }
        text = text.replace(&format!("{{{argument}}}"), value);
    }
    Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]).with_description(job.about))
}
