//! The capability's requests: JSON objects, or tags whose attributes are strings.

use muxtap_api::Tier;
use serde_json::{Map, Value};

use super::answer::CapabilityAnswer;

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

type Refused = CapabilityAnswer;

fn refused(error: impl Into<String>, suggestion: impl Into<String>) -> Refused {
    CapabilityAnswer::refused(error, suggestion)
}

/// Parses a request from a line: a JSON object, or a tag `<capability name="tmux" …/>`. Error: the
/// response that rejects it.
pub fn parse_line(line: &str) -> Result<CapabilityRequest, CapabilityAnswer> {
    let line = line.trim();
    let fields = if line.starts_with('<') {
        attributes(line)
    } else {
        match serde_json::from_str(line) {
            Ok(Value::Object(fields)) => Ok(fields),
            Ok(_) => Err(refused("The request is not a JSON object", FORMS)),
            Err(error) => Err(refused(format!("The request is not valid JSON: {error}"), FORMS)),
        }
    };
    fields.and_then(|fields| CapabilityRequest::read(&fields))
}

const FORMS: &str = r#"Send {"action":"list"} or <capability name="tmux" action="list" />"#;

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
        if let Some(name) = fields.text("name")?.filter(|_| fields.0.get("action").is_some())
            && fields.text("action")?.as_deref() != Some("window")
            && name != "tmux"
        {
            return Err(refused(format!("Unknown capability: {name}"), "Use name='tmux'"));
        }
        let Some(action) = fields.text("action")? else {
            return Err(missing("action", &format!("Use one of {ACTIONS}")));
        };
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

/// Parses the attributes of a tag.
fn attributes(tag: &str) -> Result<Map<String, Value>, Refused> {
    let broken = |what: &str| refused(format!("Invalid tag: {what}"), FORMS);
    let rest = tag.strip_prefix("<capability").ok_or_else(|| broken("expected <capability …/>"))?;
    let rest = rest.trim_end();
    let inner =
        rest.strip_suffix("/>").or_else(|| rest.strip_suffix("></capability>")).or_else(|| rest.strip_suffix('>'));
    let mut rest = inner.ok_or_else(|| broken("expected /> at the end"))?;
    let mut fields = Map::new();
    loop {
        let trimmed = rest.trim_start();
        if trimmed.is_empty() {
            return Ok(fields);
        }
        if trimmed.len() == rest.len() {
            return Err(broken("a space is missing between attributes"));
        }
        let (name, value) = trimmed.split_once('=').ok_or_else(|| broken("an attribute has no value"))?;
        let value = value.trim_start();
        let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''));
        let quote = quote.ok_or_else(|| broken("a value is not in quotes"))?;
        let (value, after) =
            value.get(1..).and_then(|value| value.split_once(quote)).ok_or_else(|| broken("a quote is not closed"))?;
        let name = name.trim_end();
        let value = unescaped(value).ok_or_else(|| broken("unknown escape sequence"))?;
        // The action `window` of the original contract has a second `name`: the window's.
        let name = if name == "name" && fields.contains_key("name") { "window_name" } else { name };
        fields.insert(name.to_owned(), value.into());
        rest = after;
    }
}

/// Decodes XML's escapes. `None`: an escape is unknown.
fn unescaped(text: &str) -> Option<String> {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('&') {
        decoded.push_str(before);
        let (name, after) = escape.split_once(';')?;
        decoded.push(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            _ => {
                let number = name.strip_prefix('#')?;
                let code = match number.strip_prefix(['x', 'X']) {
                    Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                    None => number.parse().ok()?,
                };
                char::from_u32(code)?
            }
        });
        rest = after;
    }
    decoded.push_str(rest);
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(line: &str) -> Action {
        parse_line(line).unwrap_or_else(|refused| panic!("{line}: {refused:?}")).action
    }

    fn error(line: &str) -> (String, String) {
        let refused = parse_line(line).unwrap_err();
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
            (r#"<capability name="tmux" action="send" command="&nope;"/>"#, "escape"),
            ("<other/>", "expected <capability"),
        ] {
            assert!(error(line).0.contains(says), "{line}: {:?}", error(line));
        }
    }
}
