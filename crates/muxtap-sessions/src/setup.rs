//! What an agent offers: its abilities, its logins, and a session's modes and options.

use std::fmt::Write as _;

use muxtap_api::{AgentChoice, Error, Result, SessionOption};
use muxtap_approvals::consent::title;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::acp::{DETAIL_BYTES, cut};

/// The maximum number of an agent's logins, and of a session's modes, options and values of one.
const MOST_CHOICES: usize = 256;

/// The optional methods of an agent, from its response to `initialize`.
#[allow(clippy::struct_excessive_bools, reason = "each is a method of the protocol")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Abilities {
    /// `session/load`: continues a session, and sends its messages again.
    pub(super) load: bool,
    /// `session/resume`: continues a session.
    pub(super) resume: bool,
    /// `session/list`: lists the agent's sessions.
    pub(super) list: bool,
    /// `session/close`: ends a session.
    pub(super) close: bool,
    logins: Vec<Login>,
}

/// A way to log in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Login {
    id: String,
    name: String,
    /// Whether the agent performs it itself (`authenticate`), without a terminal.
    by_itself: bool,
}

impl Abilities {
    /// Reads the response to `initialize`.
    pub(super) fn of(result: &Value) -> Self {
        let session = |name: &str| {
            result
                .pointer("/agentCapabilities/sessionCapabilities")
                .and_then(|all| all.get(name)?.as_object())
                .is_some()
        };
        let logins = result.get("authMethods").and_then(Value::as_array).into_iter().flatten();
        let login = |method: &Value| {
            let text = |name: &str| method.get(name).and_then(Value::as_str);
            let id = text("id").filter(|id| !id.is_empty() && id.len() <= 256)?.to_owned();
            let by_itself = matches!(text("type"), None | Some("agent"));
            Some(Login { name: text("name").unwrap_or(&id).to_owned(), id, by_itself })
        };
        Self {
            load: result.pointer("/agentCapabilities/loadSession").and_then(Value::as_bool) == Some(true),
            resume: session("resume"),
            list: session("list"),
            close: session("close"),
            logins: logins.filter_map(login).take(MOST_CHOICES).collect(),
        }
    }

    /// Returns the id of a login that the agent performs itself.
    ///
    /// Error: `INVALID_ARGUMENT` for an unknown login, and for one that needs a terminal.
    pub(super) fn login(&self, id: &str) -> Result<&str> {
        match self.logins.iter().find(|login| login.id == id) {
            Some(login) if login.by_itself => Ok(&login.id),
            Some(_) => Err(Error::invalid(format!(
                "auth: the login {id:?} needs the agent's own program in a terminal; log in there, then try without auth"
            ))),
            None => Err(Error::invalid(format!("auth: unknown login {id:?}; the agent offers {}", self.logins()))),
        }
    }

    /// Lists the logins, for an error.
    pub(super) fn logins(&self) -> String {
        if self.logins.is_empty() {
            return "no login".into();
        }
        let mut text = String::new();
        for login in &self.logins {
            let comma = if text.is_empty() { "" } else { ", " };
            let how = if login.by_itself { "" } else { "; in a terminal" };
            // Writing to a String cannot fail.
            let _ = write!(text, "{comma}{:?} ({}{how})", login.id, title(&login.name));
        }
        cut(text, DETAIL_BYTES)
    }

    /// Returns the way out of an error for a missing login.
    pub(super) fn way_in(&self) -> String {
        if self.logins.iter().any(|login| login.by_itself) {
            format!(
                "log in with its own program, or name one of its logins in `auth`: {}; then try again",
                self.logins()
            )
        } else if self.logins.is_empty() {
            "log in with its own program, then try again".into()
        } else {
            format!("log in with its own program ({}), then try again", self.logins())
        }
    }
}

/// The modes and options of a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Controls {
    pub(super) mode: Option<String>,
    pub(super) modes: Vec<AgentChoice>,
    pub(super) options: Vec<SessionOption>,
}

impl Controls {
    /// Takes the modes and options from a response that opens a session.
    pub(super) fn take(&mut self, result: &Value) {
        if let Some(modes) = result.get("modes").filter(|modes| modes.is_object()) {
            self.mode = modes.get("currentModeId").and_then(Value::as_str).map(short);
            self.modes = choices(modes.get("availableModes"), "id");
        }
        if let Some(options) = result.get("configOptions").filter(|options| options.is_array()) {
            self.set_options(options_of(options));
        }
    }

    /// Returns whether a response, which was taken, says the mode that the agent is in: it need not be the
    /// requested one.
    pub(super) fn has_mode_of(&self, result: &Value) -> bool {
        result.get("configOptions").is_some_and(Value::is_array) && self.mode_option().is_some()
    }

    /// Replaces the options. Returns whether the mode has changed: an option can be the mode.
    pub(super) fn set_options(&mut self, options: Vec<SessionOption>) -> bool {
        self.options = options;
        let Some(option) = self.mode_option() else { return false };
        let (mode, modes) = (option.value.clone(), option.values.clone());
        let is_other = self.mode.as_ref() != Some(&mode);
        (self.mode, self.modes) = (Some(mode), modes);
        is_other
    }

    /// Notes a mode that the agent is in. Returns whether it is another one.
    pub(super) fn set_mode(&mut self, mode: &str) -> bool {
        if let Some(option) = self.options.iter_mut().find(|option| is_mode(option)) {
            mode.clone_into(&mut option.value);
        }
        let is_other = self.mode.as_deref() != Some(mode);
        self.mode = Some(mode.to_owned());
        is_other
    }

    /// Returns the method and the parameters that set a mode. Error: `INVALID_ARGUMENT`.
    pub(super) fn mode_request(&self, session: &str, mode: &str) -> Result<(&'static str, Value)> {
        if let Some(option) = self.mode_option() {
            return self.option_request(session, &option.id, mode);
        }
        check("mode", mode, &self.modes)?;
        Ok(("session/set_mode", json!({ "sessionId": session, "modeId": mode })))
    }

    /// Returns the method and the parameters that set an option. Error: `INVALID_ARGUMENT`.
    pub(super) fn option_request(&self, session: &str, id: &str, value: &str) -> Result<(&'static str, Value)> {
        let Some(option) = self.options.iter().find(|option| option.id == id) else {
            let known: Vec<_> = self.options.iter().map(|option| option.id.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Error::invalid(format!("options: unknown option {id:?}; this session has {known}")));
        };
        let mut params = json!({ "sessionId": session, "configId": id, "value": value });
        if option.values.is_empty() {
            let on: bool = value
                .parse()
                .map_err(|_| Error::invalid(format!("options: {id}: {value:?}; expected true or false")))?;
            if let Some(params) = params.as_object_mut() {
                params.extend([("type".to_owned(), "boolean".into()), ("value".to_owned(), on.into())]);
            }
        } else {
            check(&format!("options: {id}"), value, &option.values)?;
        }
        Ok(("session/set_config_option", params))
    }

    fn mode_option(&self) -> Option<&SessionOption> {
        self.options.iter().find(|option| is_mode(option))
    }
}

fn is_mode(option: &SessionOption) -> bool {
    option.category.as_deref() == Some("mode") && !option.values.is_empty()
}

fn check(what: &str, value: &str, choices: &[AgentChoice]) -> Result<()> {
    if choices.is_empty() || choices.iter().any(|choice| choice.id == value) {
        return Ok(());
    }
    let known: Vec<_> = choices.iter().map(|choice| choice.id.as_str()).collect();
    Err(Error::invalid(format!("{what}: {value:?}; expected one of {}", cut(known.join(", "), DETAIL_BYTES))))
}

/// Reads a list of options.
pub(super) fn options_of(list: &Value) -> Vec<SessionOption> {
    let option = |option: &Value| {
        let text = |name: &str| option.get(name).and_then(Value::as_str).map(short);
        let value = match option.get("currentValue")? {
            Value::String(value) => short(value),
            Value::Bool(on) => on.to_string(),
            _ => return None,
        };
        let groups = option.get("options").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut values = choices(option.get("options"), "value");
        for group in groups {
            values.extend(choices(group.get("options"), "value"));
        }
        values.truncate(MOST_CHOICES);
        let id = text("id")?;
        // A kind of option that is unknown has neither.
        let is_known = !values.is_empty() || option.get("type").and_then(Value::as_str) == Some("boolean");
        is_known.then(|| SessionOption {
            name: text("name").unwrap_or_else(|| id.clone()),
            id,
            category: text("category"),
            value,
            values,
        })
    };
    list.as_array().into_iter().flatten().filter_map(option).take(MOST_CHOICES).collect()
}

/// Reads a list of modes or values, whose ids have this name.
fn choices(list: Option<&Value>, id: &str) -> Vec<AgentChoice> {
    let choice = |choice: &Value| {
        let text = |name: &str| choice.get(name).and_then(Value::as_str).map(short);
        let id = text(id)?;
        Some(AgentChoice { name: text("name").unwrap_or_else(|| id.clone()), id, description: text("description") })
    };
    list.and_then(Value::as_array).into_iter().flatten().filter_map(choice).take(MOST_CHOICES).collect()
}

fn short(text: &str) -> String {
    cut(text.to_owned(), 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agents_abilities_and_logins_are_known() {
        let result = json!({"protocolVersion": 1,
            "agentCapabilities": {"loadSession": true, "sessionCapabilities": {"resume": {}, "list": null}},
            "authMethods": [{"id": "key", "name": "API key"}, {"id": "shell", "name": "Shell", "type": "terminal"},
                            {"name": "no id"}, 7]});
        let able = Abilities::of(&result);
        assert!(able.load && able.resume && !able.list && !able.close);
        assert_eq!(able.logins(), r#""key" (API key), "shell" (Shell; in a terminal)"#);
        assert_eq!(able.login("key").unwrap(), "key");
        assert!(able.login("shell").unwrap_err().message.contains("in a terminal"));
        assert!(able.login("x").unwrap_err().message.contains("API key"));
        assert!(able.way_in().contains("`auth`"));
        let none = Abilities::of(&json!([]));
        assert!(none == Abilities::default() && !none.way_in().contains("auth"));
    }

    #[test]
    fn an_option_of_the_category_mode_replaces_modes() {
        let mut controls = Controls::default();
        controls.take(&json!({"modes": {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}]}}));
        assert!(controls.mode_request("s", "code").unwrap_err().message.contains("expected one of ask"));
        assert_eq!(controls.mode_request("s", "ask").unwrap().0, "session/set_mode");
        let options = json!([
            {"id": "m", "name": "Mode", "category": "mode", "type": "select", "currentValue": "plan",
             "options": [{"value": "plan", "name": "Plan"}, {"value": "code", "name": "Code"}]},
            {"id": "model", "name": "Model", "type": "select", "currentValue": "a",
             "options": [{"group": "g", "name": "G", "options": [{"value": "a", "name": "A"}]}]},
            {"id": "fast", "name": "Fast", "type": "boolean", "currentValue": false},
            {"id": "odd", "name": "Odd", "type": "slider", "currentValue": "3"}]);
        assert!(controls.set_options(options_of(&options)));
        assert_eq!((controls.mode.as_deref(), controls.modes.len(), controls.options.len()), (Some("plan"), 2, 3));
        let (method, params) = controls.mode_request("s", "code").unwrap();
        assert_eq!((method, params["configId"].as_str()), ("session/set_config_option", Some("m")));
        assert!(controls.set_mode("code") && controls.options[0].value == "code" && !controls.set_mode("code"));
        // The agent need not take the mode that was requested: its response says which one it is in.
        let response = json!({ "configOptions": options });
        controls.take(&response);
        assert!(controls.has_mode_of(&response) && controls.mode.as_deref() == Some("plan"));
        assert!(!controls.has_mode_of(&json!({})) && !Controls::default().has_mode_of(&response));
        let (_, params) = controls.option_request("s", "fast", "true").unwrap();
        assert_eq!((params["type"].as_str(), params["value"].as_bool()), (Some("boolean"), Some(true)));
        for (id, value) in [("fast", "yes"), ("model", "b"), ("none", "x")] {
            assert!(controls.option_request("s", id, value).is_err(), "{id}");
        }
    }
}
