//! What an agent asks a person to fill in or to open (`elicitation/create`).
//!
//! The person sees everything of the request: one that is too long to be shown, or has a kind of
//! field that is unknown here, is rejected.

use std::{collections::BTreeMap, fmt::Write as _};

use muxtap_api::{AgentChoice, Error, FormField, PermissionOption, Result};
use muxtap_approvals::consent::{Rows, TITLE_CHARS, title, visible};
use serde_json::{Map, Number, Value, json};

/// The maximum number of a form's fields.
const MOST_FIELDS: usize = 32;
/// The maximum number of a field's choices.
const MOST_CHOICES: usize = 128;
/// The maximum length of a URL, in characters.
const URL_CHARS: usize = 2048;
/// The ids of the answers.
const ACCEPT: &str = "accept";
const DECLINE: &str = "decline";
const CANCEL: &str = "cancel";
/// The row below a form.
const WARNING: &str = "the agent gets what is filled in: enter no password, key or token";

/// A request to fill in a form, or to open a URL.
#[derive(Debug, PartialEq)]
pub(super) struct Elicitation {
    pub(super) title: String,
    pub(super) detail: String,
    pub(super) url: Option<String>,
    pub(super) form: Vec<FormField>,
}

impl Elicitation {
    /// Reads the parameters of `elicitation/create`. Error: what is wrong with them.
    pub(super) fn parse(params: &Value) -> std::result::Result<Self, String> {
        let text = |name: &str| params.get(name).and_then(Value::as_str);
        let message = text("message").filter(|message| !message.trim().is_empty()).ok_or("message is missing")?;
        let (mut url, mut form) = (None, Vec::new());
        let (mut rows, mut is_whole) = (Rows::default(), true);
        let mut row = |label: &str, text: &str| is_whole &= rows.add(label, text);
        row("the agent asks", message);
        match text("mode") {
            Some("form") => {
                let schema = params.get("requestedSchema").ok_or("requestedSchema is missing")?;
                let about = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
                row("form", [about("title"), about("description")].join("\n").trim());
                form = fields(schema)?;
                for field in &form {
                    row(&format!("field {}", title(&field.name)), &described(field));
                }
                row("note", WARNING);
            }
            Some("url") => {
                let given = text("url").ok_or("url is missing")?;
                row("opens", &host(given)?);
                row("url", given);
                url = Some(given.to_owned());
            }
            mode => return Err(format!("unsupported mode {:?}", title(mode.unwrap_or_default()))),
        }
        if !is_whole {
            return Err("too long to be shown to a person".into());
        }
        Ok(Self { title: title(message), detail: rows.into_text(), url, form })
    }

    /// Returns the possible answers.
    pub(super) fn options() -> Vec<PermissionOption> {
        let option =
            |id: &str, name: &str, kind: &str| PermissionOption { id: id.into(), name: name.into(), kind: kind.into() };
        vec![
            option(ACCEPT, "Accept", "allow_once"),
            option(DECLINE, "Decline", "reject_once"),
            option(CANCEL, "Cancel", "reject_once"),
        ]
    }
}

/// Returns the result of `elicitation/create`; `None` means canceled.
pub(super) fn answer(option: Option<&str>, content: Option<Map<String, Value>>) -> Value {
    match (option, content) {
        (Some(ACCEPT), Some(content)) => json!({ "action": ACCEPT, "content": content }),
        (Some(ACCEPT), None) => json!({ "action": ACCEPT }),
        (Some(DECLINE), _) => json!({ "action": DECLINE }),
        _ => json!({ "action": CANCEL }),
    }
}

/// Returns the values of a form: the given ones, else the defaults. A text is converted if the field
/// has another kind.
///
/// Error: `INVALID_ARGUMENT` for an unknown field, a missing value, or one that does not fit.
pub(super) fn filled(form: &[FormField], given: &BTreeMap<String, Value>) -> Result<Map<String, Value>> {
    if let Some(unknown) = given.keys().find(|name| form.iter().all(|field| field.name != **name)) {
        let names: Vec<_> = form.iter().map(|field| field.name.as_str()).collect();
        return Err(Error::invalid(format!("content: unknown field {unknown:?}; expected {}", names.join(", "))));
    }
    let mut content = Map::new();
    for field in form {
        let Some(value) = given.get(&field.name).or(field.default.as_ref()) else {
            if field.required {
                let name = &field.name;
                return Err(Error::invalid(format!("content: missing {name:?}; this form requires it")));
            }
            continue;
        };
        let wrong = || Error::invalid(format!("content: {}: {value}; expected {}", field.name, expected(field)));
        content.insert(field.name.clone(), fitting(field, value).ok_or_else(wrong)?);
    }
    Ok(content)
}

/// Returns a value as a field needs it. `None`: it does not fit.
fn fitting(field: &FormField, value: &Value) -> Option<Value> {
    let is_choice = |value: &str| field.choices.is_empty() || field.choices.iter().any(|choice| choice.id == value);
    let within = |number: f64| {
        let bound = |bound: &Option<Number>| bound.as_ref().and_then(Number::as_f64);
        bound(&field.min).is_none_or(|min| number >= min) && bound(&field.max).is_none_or(|max| number <= max)
    };
    #[allow(clippy::cast_precision_loss, reason = "lengths are far below 2^52")]
    let count = |count: usize| within(count as f64);
    // A text of a command line or an input field stands for another kind of value.
    let parsed = || value.as_str().and_then(|text| serde_json::from_str::<Value>(text.trim()).ok());
    let value = match field.kind.as_str() {
        "array" if value.is_string() => json!([value]),
        "string" | "array" => value.clone(),
        _ => {
            if value.is_string() {
                parsed()?
            } else {
                value.clone()
            }
        }
    };
    let fits = match (field.kind.as_str(), &value) {
        ("string", Value::String(text)) => is_choice(text) && count(text.chars().count()),
        ("boolean", Value::Bool(_)) => true,
        ("integer", Value::Number(number)) => number.is_i64() && number.as_f64().is_some_and(within),
        ("number", Value::Number(number)) => number.as_f64().is_some_and(within),
        ("array", Value::Array(list)) => {
            count(list.len()) && list.iter().all(|one| one.as_str().is_some_and(is_choice))
        }
        _ => false,
    };
    fits.then_some(value)
}

/// Reads the fields of a form. Error: what is wrong with them.
fn fields(schema: &Value) -> std::result::Result<Vec<FormField>, String> {
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    if properties.len() > MOST_FIELDS {
        return Err(format!("too many fields: {}; at most {MOST_FIELDS}", properties.len()));
    }
    let required: Vec<_> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    properties.iter().map(|(name, field)| read(name, field, required.contains(&name.as_str()))).collect()
}

fn read(name: &str, field: &Value, required: bool) -> std::result::Result<FormField, String> {
    let text = |name: &str| field.get(name).and_then(Value::as_str).map(str::to_owned);
    // A person sees both on one line, which would lack the middle.
    let label = text("title").unwrap_or_default();
    if let Some(long) =
        [name, &label].into_iter().map(|text| visible(text).chars().count()).find(|long| *long > TITLE_CHARS)
    {
        return Err(format!("a field's name or title has {long} characters; at most {TITLE_CHARS}"));
    }
    let kind = text("type").unwrap_or_default();
    let number = |name: &str| field.get(name).and_then(Value::as_number).cloned();
    let (min, max, listed) = match kind.as_str() {
        "string" => ("minLength", "maxLength", field),
        "number" | "integer" => ("minimum", "maximum", field),
        "boolean" => ("", "", field),
        "array" => ("minItems", "maxItems", field.get("items").unwrap_or(&Value::Null)),
        kind => return Err(format!("the field {:?} has an unsupported type {:?}", title(name), title(kind))),
    };
    let choices = choices(listed).ok_or_else(|| {
        let most = format!("at most {MOST_CHOICES} choices, each a string or {{const, title}}");
        format!("the field {:?} has unsupported choices; expected {most}", title(name))
    })?;
    if kind == "array" && choices.is_empty() {
        return Err(format!("the field {:?} has no choices", title(name)));
    }
    let field = FormField {
        name: name.to_owned(),
        title: text("title"),
        description: text("description"),
        required,
        default: field.get("default").filter(|value| !value.is_null()).cloned(),
        choices,
        min: number(min),
        max: number(max),
        format: text("format"),
        pattern: text("pattern"),
        kind,
    };
    match field.default.as_ref().map(|default| fitting(&field, default)) {
        Some(None) => Err(format!("the field {:?} has a default that does not fit", title(name))),
        _ => Ok(field),
    }
}

/// Reads the choices of a field. `None`: too many, or not texts.
fn choices(field: &Value) -> Option<Vec<AgentChoice>> {
    let list = |name: &str| field.get(name).and_then(Value::as_array);
    let plain = |value: &Value| {
        let id = value.as_str()?.to_owned();
        Some(AgentChoice { name: id.clone(), id, description: None })
    };
    let titled = |value: &Value| {
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(AgentChoice { id: text("const")?, name: text("title")?, description: text("description") })
    };
    let choices: Option<Vec<_>> = match (list("enum"), list("oneOf").or_else(|| list("anyOf"))) {
        (Some(values), None) => values.iter().map(plain).collect(),
        (_, Some(values)) => values.iter().map(titled).collect(),
        (None, None) => Some(Vec::new()),
    };
    choices.filter(|choices| choices.len() <= MOST_CHOICES)
}

/// Says what a field is, for the person who fills it in.
fn described(field: &FormField) -> String {
    let mut lines = Vec::new();
    let need = if field.required { "required" } else { "optional" };
    let label = field.title.as_deref().map(|label| format!("{} — ", title(label))).unwrap_or_default();
    lines.push(format!("{label}{} ({need})", expected(field)));
    lines.extend(field.description.clone());
    for choice in field.choices.iter().filter(|choice| choice.name != choice.id || choice.description.is_some()) {
        let about = choice.description.as_ref().map(|about| format!(": {about}")).unwrap_or_default();
        lines.push(format!("{} is {}{about}", choice.id, choice.name));
    }
    lines.extend(field.default.as_ref().map(|default| format!("default: {default}")));
    lines.join("\n")
}

/// Says which values a field accepts.
fn expected(field: &FormField) -> String {
    let ids: Vec<_> = field.choices.iter().map(|choice| choice.id.as_str()).collect();
    let mut text = match field.kind.as_str() {
        "array" => format!("some of {}", ids.join(", ")),
        "boolean" => "true or false".into(),
        "string" if !ids.is_empty() => format!("one of {}", ids.join(", ")),
        "string" => "a text".into(),
        kind => format!("a value of the type {kind}"),
    };
    let unit = match field.kind.as_str() {
        "string" => " characters",
        "array" => " values",
        _ => "",
    };
    for (word, bound) in [("at least", &field.min), ("at most", &field.max)] {
        if let Some(bound) = bound {
            // Writing to a String cannot fail (also below).
            let _ = write!(text, ", {word} {bound}{unit}");
        }
    }
    for (word, value) in [("format", &field.format), ("matching", &field.pattern)] {
        if let Some(value) = value {
            let _ = write!(text, ", {word} {value}");
        }
    }
    text
}

/// Returns the host of a URL that a person may be asked to open. Error: what is wrong with it.
///
/// The host is shown separately: `https://bank.example@evil.example/` opens `evil.example`.
fn host(url: &str) -> std::result::Result<String, String> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let rest = rest.ok_or("url: expected an address that begins with https:// or http://")?;
    if url.len() > URL_CHARS || !url.chars().all(|letter| letter.is_ascii_graphic()) || url.contains('\\') {
        return Err(format!("url: expected at most {URL_CHARS} visible ASCII characters, without a backslash"));
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    if host.trim_start_matches('[').is_empty() || host.starts_with(':') {
        return Err("url: the host is missing".into());
    }
    Ok(host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(schema: &Value) -> std::result::Result<Elicitation, String> {
        Elicitation::parse(
            &json!({"sessionId": "s", "mode": "form", "message": "Which port?", "requestedSchema": schema}),
        )
    }

    fn given(values: &Value) -> BTreeMap<String, Value> {
        serde_json::from_value(values.clone()).unwrap()
    }

    fn ports() -> Elicitation {
        form(&json!({"type": "object", "required": ["port", "color"], "properties": {
            "port": {"type": "integer", "title": "Port", "minimum": 1, "maximum": 65535},
            "name": {"type": "string", "maxLength": 5, "description": "Of the host"},
            "color": {"type": "string", "default": "red", "oneOf": [
                {"const": "red", "title": "Red"}, {"const": "blue", "title": "Blue", "description": "dark"}]},
            "tags": {"type": "array", "maxItems": 2, "items": {"type": "string", "enum": ["a", "b", "c"]}},
            "fast": {"type": "boolean"}}}))
        .unwrap()
    }

    #[test]
    fn a_form_shows_each_field_and_takes_what_fits() {
        let asked = ports();
        for shown in [
            "the agent asks: Which port?",
            "field port: Port — a value of the type integer, at least 1, at most 65535 (required)",
            "a text, at most 5 characters (optional)\n  Of the host",
            "blue is Blue: dark",
            "default: \"red\"",
            "some of a, b, c, at most 2 values",
            WARNING,
        ] {
            assert!(asked.detail.contains(shown), "{shown}: {}", asked.detail);
        }
        let values = filled(&asked.form, &given(&json!({"port": "80", "tags": "a", "fast": "true"}))).unwrap();
        assert_eq!(Value::from(values), json!({"port": 80, "color": "red", "tags": ["a"], "fast": true}));
        for wrong in [
            json!({}),
            json!({"port": 0}),
            json!({"port": 1.5}),
            json!({"port": "x"}),
            json!({"port": 1, "color": "green"}),
            json!({"port": 1, "name": "too long"}),
            json!({"port": 1, "name": 7}),
            json!({"port": 1, "tags": ["a", "b", "c"]}),
            json!({"port": 1, "tags": ["z"]}),
            json!({"port": 1, "fast": "maybe"}),
            json!({"port": 1, "odd": 1}),
        ] {
            assert!(filled(&asked.form, &given(&wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_request_that_cannot_be_shown_whole_is_rejected() {
        let field = |schema: Value| form(&json!({"properties": {"x": schema}}));
        assert!(field(json!({"type": "string"})).is_ok());
        for wrong in [
            json!({"type": "color"}),
            json!({"type": "array"}),
            json!({"type": "string", "description": "x".repeat(20_000)}),
            json!({"type": "string", "title": "x".repeat(TITLE_CHARS + 1)}),
            json!({"type": "string", "title": "\u{202e}".repeat(TITLE_CHARS / 2)}),
            json!({"type": "string", "enum": vec!["x"; 1000]}),
            json!({"type": "string", "enum": [1]}),
            json!({"type": "integer", "default": "x"}),
        ] {
            assert!(field(wrong.clone()).is_err(), "{wrong}");
        }
        assert!(field(json!({"type": "string", "title": "x".repeat(TITLE_CHARS)})).is_ok());
        assert!(form(&json!({"properties": {"x".repeat(TITLE_CHARS + 1): {"type": "string"}}})).is_err());
        let many: Map<String, Value> = (0..50).map(|at| (format!("f{at}"), json!({"type": "string"}))).collect();
        assert!(form(&json!({"properties": many})).is_err());
        for wrong in [json!({}), json!({"message": "x"}), json!({"message": "x", "mode": "hologram"})] {
            assert!(Elicitation::parse(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_url_is_shown_with_its_real_host() {
        let open = |url: &str| {
            Elicitation::parse(&json!({"mode": "url", "message": "Log in", "elicitationId": "e", "url": url}))
        };
        let asked = open("https://bank.example@Evil.example:8443/bank.example").unwrap();
        assert!(asked.detail.contains("opens: evil.example:8443\nurl: https://bank"), "{}", asked.detail);
        for wrong in [
            "javascript:alert(1)",
            "file:///etc/passwd",
            "https://",
            "https://@/",
            "https://a b/",
            "https://b\u{e4}nk/",
            "https://a\\@b/",
            "http://:80/",
        ] {
            assert!(open(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn answers_have_the_protocols_form() {
        assert_eq!(answer(Some("accept"), Some(Map::new())), json!({"action": "accept", "content": {}}));
        assert_eq!(answer(Some("accept"), None), json!({"action": "accept"}));
        assert_eq!(answer(Some("decline"), None), json!({"action": "decline"}));
        assert_eq!(answer(Some("cancel"), None), answer(None, None));
    }
}
