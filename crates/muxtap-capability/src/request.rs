//! The capability's requests: JSON objects, or tags whose attributes are strings.

use muxtap_api::Tier;
use serde_json::{Map, Value};

use super::{answer::CapabilityAnswer, tags};

/// A validated request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapabilityRequest {
    pub(super) action: Action,
}

/// An action and its parameters. Panes and windows are kept as given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Creates the session if it is missing.
    Init,
    /// Types a command and presses Enter.
    Send {
        /// The pane, `W.P`.
        pane: String,
        /// The command.
        command: String,
        /// Whether the screen is cleared first (C-l).
        clear: bool,
    },
    /// Reads a pane's screen and history.
    Read {
        /// The pane.
        pane: String,
        /// The number of lines, from the end.
        lines: u32,
        /// Whether all retained lines are read.
        all: bool,
        /// Whether only output since the last read is returned.
        since: bool,
    },
    /// Splits the active pane of a window.
    Split {
        /// The window's index.
        window: u32,
        /// Whether the panes are side by side.
        horizontal: bool,
        /// The new pane's title.
        title: Option<String>,
        /// The new pane's directory.
        cwd: Option<String>,
    },
    /// Lists windows and panes.
    List,
    /// Kills a pane.
    KillPane(String),
    /// Kills a window.
    KillWindow(u32),
    /// Creates a window.
    Window {
        /// The new window's name.
        name: Option<String>,
        /// The new window's directory.
        cwd: Option<String>,
    },
}

/// The default pane.
const DEFAULT_PANE: &str = "0.0";
/// The default number of lines of a read.
const DEFAULT_LINES: u32 = 100;
/// The actions, as an error lists them.
const ACTIONS: &str = "init, send, read, split, list, kill, window";

/// The parameters of all actions. Each action ignores those of others that change no place.
const PARAMETERS: [&str; 13] = [
    "name",
    "action",
    "pane",
    "command",
    "clear",
    "lines",
    "all",
    "since",
    "window",
    "direction",
    "title",
    "cwd",
    "window_name",
];

type Refused = CapabilityAnswer;

pub(super) fn refused(error: impl Into<String>, suggestion: impl Into<String>) -> Refused {
    CapabilityAnswer::refused(error, suggestion)
}

/// Parses a request from a text: a JSON object, or a tag `<capability name="tmux" …/>`, with
/// comments. Error: the response that rejects it.
pub fn parse_text(text: &str) -> Result<CapabilityRequest, CapabilityAnswer> {
    tags::one(text).and_then(|fields| CapabilityRequest::read(&fields))
}

impl CapabilityRequest {
    /// Parses a request from its fields; numbers and booleans may be strings.
    pub fn parse(fields: &Map<String, Value>) -> Result<Self, CapabilityAnswer> {
        Self::read(fields)
    }

    /// Returns the tier that the request needs.
    pub fn tier(&self) -> Tier {
        match self.action {
            Action::Read { .. } | Action::List => Tier::Read,
            Action::Send { .. } => Tier::Input,
            Action::Init | Action::Split { .. } | Action::Window { .. } => Tier::Create,
            Action::KillPane(_) | Action::KillWindow(_) => Tier::Kill,
        }
    }

    fn read(fields: &Map<String, Value>) -> Result<Self, Refused> {
        let fields = Fields(fields);
        let Some(action) = fields.text("action")? else {
            return Err(missing("action", &format!("Use one of {ACTIONS}")));
        };
        // For the action `window`, a single `name` is the window's.
        let is_of_window = action == "window" && !fields.0.contains_key("window_name");
        if let Some(name) = fields.text("name")?.filter(|name| !is_of_window && name != "tmux") {
            return Err(refused(format!("Unknown capability: {name}"), "Use name='tmux'"));
        }
        fields.check_names(&action)?;
        let pane = || Ok::<_, Refused>(fields.text("pane")?.unwrap_or_else(|| DEFAULT_PANE.into()));
        let action = match action.as_str() {
            "init" => Action::Init,
            "send" => Action::Send {
                pane: pane()?,
                command: fields.text("command")?.ok_or_else(|| missing("command", "Specify the command to run"))?,
                clear: fields.boolean("clear")?,
            },
            "read" => Action::Read {
                pane: pane()?,
                lines: fields.number("lines")?.unwrap_or(DEFAULT_LINES),
                all: fields.boolean("all")?,
                since: fields.boolean("since")?,
            },
            "split" => Action::Split {
                window: fields.number("window")?.unwrap_or(0),
                horizontal: match fields.text("direction")?.as_deref() {
                    Some("horizontal") => true,
                    Some("vertical") => false,
                    Some(other) => {
                        return Err(refused(
                            format!("Invalid direction: {other}"),
                            "Use direction='horizontal' or direction='vertical'",
                        ));
                    }
                    None => {
                        return Err(missing("direction", "Use direction='horizontal' or direction='vertical'"));
                    }
                },
                title: fields.text("title")?,
                cwd: fields.text("cwd")?,
            },
            "list" => Action::List,
            "kill" => match (fields.text("pane")?, fields.number("window")?) {
                (Some(pane), None) => Action::KillPane(pane),
                (None, Some(window)) => Action::KillWindow(window),
                (Some(_), Some(_)) => {
                    return Err(refused("Both \"pane\" and \"window\" are given", "Kill one of them at a time"));
                }
                (None, None) => return Err(missing("pane\" or \"window", "Specify what to kill")),
            },
            "window" => Action::Window {
                // In a tag `name` is the capability's name, unless it has another value.
                name: fields.text("window_name")?.or(fields.text("name")?.filter(|name| name != "tmux")),
                cwd: fields.text("cwd")?,
            },
            other => return Err(refused(format!("Unknown tmux action: {other}"), format!("Use one of {ACTIONS}"))),
        };
        Ok(Self { action })
    }
}

fn missing(name: &str, suggestion: &str) -> Refused {
    refused(format!("Missing required parameter \"{name}\""), suggestion)
}

/// The fields of a request.
struct Fields<'a>(&'a Map<String, Value>);

impl Fields<'_> {
    /// Rejects a parameter that no action has, and a place that this action would not act on.
    fn check_names(&self, action: &str) -> Result<(), Refused> {
        let given = self.0.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name.as_str());
        let elsewhere = match action {
            "send" | "read" => "window",
            "split" => "pane",
            _ => "",
        };
        for name in given {
            if !PARAMETERS.contains(&name) {
                let known = PARAMETERS.join(", ");
                return Err(refused(format!("Unknown parameter \"{name}\""), format!("Use some of {known}")));
            }
            if name == elsewhere {
                let place = if name == "pane" { "window='0'" } else { "pane='0.0'" };
                let why = format!("The action {action} has no parameter \"{name}\"");
                return Err(refused(why, format!("Name its place by {place}")));
            }
        }
        Ok(())
    }

    fn text(&self, name: &str) -> Result<Option<String>, Refused> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(other) => Err(invalid(name, other, "a string")),
        }
    }

    fn number(&self, name: &str) -> Result<Option<u32>, Refused> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        text.trim().parse().map(Some).map_err(|_| invalid(name, &text.into(), "a whole number"))
    }

    fn boolean(&self, name: &str) -> Result<bool, Refused> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(yes)) => Ok(*yes),
            Some(Value::String(text)) if matches!(text.as_str(), "true" | "1" | "yes") => Ok(true),
            Some(Value::String(text)) if matches!(text.as_str(), "" | "false" | "0" | "no") => Ok(false),
            Some(other) => Err(invalid(name, other, "true or false")),
        }
    }
}

fn invalid(name: &str, value: &Value, wanted: &str) -> Refused {
    refused(format!("Invalid parameter \"{name}\": {value}"), format!("Give {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(line: &str) -> Action {
        parse_text(line).unwrap_or_else(|refused| panic!("{line}: {refused:?}")).action
    }

    fn error(line: &str) -> (String, String) {
        let refused = parse_text(line).unwrap_err();
        assert!(!refused.success && refused.data.is_none());
        (refused.error.unwrap(), refused.suggestion.unwrap())
    }

    #[test]
    fn both_spellings_mean_the_same() {
        let read = Action::Read { pane: "0.1".into(), lines: 50, all: false, since: true };
        assert_eq!(action(r#"{"action":"read","pane":"0.1","lines":50,"since":true}"#), read);
        assert_eq!(action(r#"<capability name="tmux" action="read" pane="0.1" lines="50" since="true" />"#), read);
        let send = Action::Send { pane: "0.0".into(), command: "a && b > \"c\" 'd'".into(), clear: false };
        assert_eq!(
            action(
                r#"<capability name="tmux" action="send" command="a &amp;&amp; b &gt; &quot;c&quot; &#39;d&#x27;"/>"#
            ),
            send
        );
        assert_eq!(action(r#"{"action":"send","command":"a && b > \"c\" 'd'"}"#), send);
    }

    #[test]
    fn a_window_has_its_own_name_beside_the_capabilitys() {
        for line in [
            r#"<capability name="tmux" action="window" name="experiments" />"#,
            r#"{"action":"window","name":"experiments"}"#,
        ] {
            assert_eq!(action(line), Action::Window { name: Some("experiments".into()), cwd: None }, "{line}");
        }
        assert_eq!(action(r#"<capability name="tmux" action="window"/>"#), Action::Window { name: None, cwd: None });
    }

    #[test]
    fn defaults_are_the_seeds() {
        assert_eq!(
            action(r#"{"action":"read"}"#),
            Action::Read { pane: "0.0".into(), lines: 100, all: false, since: false }
        );
        assert_eq!(action(r#"{"action":"kill","window":"2"}"#), Action::KillWindow(2));
        assert_eq!(action(r#"{"action":"kill","pane":0.1}"#), Action::KillPane("0.1".into()));
    }

    #[test]
    fn what_is_wrong_is_said_with_a_way_out() {
        assert_eq!(error(r#"{"action":"dance"}"#).0, "Unknown tmux action: dance");
        assert_eq!(error(r#"{"action":"send"}"#).0, "Missing required parameter \"command\"");
        assert_eq!(error(r#"{"action":"split"}"#).0, "Missing required parameter \"direction\"");
        assert_eq!(error("{}").0, "Missing required parameter \"action\"");
        assert_eq!(error(r#"{"action":"kill"}"#).0, "Missing required parameter \"pane\" or \"window\"");
        for (line, says) in [
            ("hello", "not valid JSON"),
            ("[]", "not a JSON object"),
            (r#"{"action":"split","direction":"up"}"#, "Invalid direction"),
            (r#"{"action":"read","lines":"many"}"#, "\"lines\""),
            (r#"{"action":"read","since":7}"#, "\"since\""),
            (r#"<capability name="shell" action="list"/>"#, "Unknown capability: shell"),
            (r#"<capability name="tmux" action="list""#, "expected />"),
            (r#"<capability name="tmux" action=list/>"#, "quotes"),
            (r#"<capability name="shell" action="window" name="w"/>"#, "Unknown capability: shell"),
            (r#"{"action":"kill","pan":"0.1","window":1}"#, "Unknown parameter \"pan\""),
            (r#"{"action":"split","direction":"vertical","pane":"0.1"}"#, "no parameter \"pane\""),
            (r#"{"action":"send","command":"x","window":1}"#, "no parameter \"window\""),
            (r#"<capability action="kill" pane="0.1"/><capability action="list"/>"#, "more than one request"),
            ("<other/>", "expected <capability"),
        ] {
            assert!(error(line).0.contains(says), "{line}: {:?}", error(line));
        }
    }
}
