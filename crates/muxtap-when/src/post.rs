//! HTTP requests of rules: bodies that cannot be broken by a pane's text, secrets that are read when they
//! are needed, and one request without redirects.

use std::path::Path;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, header};
use muxtap_api::{AgentState, WhenPost, WhenPreset, WhenSecret, WhenText};
use muxtap_base::files::{SecretError, read_secret};
use muxtap_net::remote::{self, Address};
use serde_json::{Value, json};

use crate::{
    facts::{Facts, NAMES},
    limits::{ANSWER_BYTES, POST_LIMIT, SECRET_BYTES},
};

/// Headers that the request itself sets.
const OWN_HEADERS: [&str; 6] =
    ["host", "content-length", "content-type", "transfer-encoding", "connection", "user-agent"];
/// Headers whose values are secrets: these are read from a variable or a file.
const SECRET_HEADERS: [&str; 5] = ["authorization", "proxy-authorization", "cookie", "x-api-key", "x-auth-token"];

/// An HTTP request that was checked.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    url: WhenText,
    preset: Option<WhenPreset>,
    template: Option<Value>,
    headers: Vec<(header::HeaderName, WhenText)>,
    /// The page's view of agents.
    agents: Option<String>,
}

/// A request that is ready to be sent.
struct Ready {
    address: Address,
    /// The path and the query, or only the path's parent for a topic of ntfy.
    path: String,
    body: Value,
    headers: Vec<(header::HeaderName, header::HeaderValue)>,
}

impl Post {
    /// Checks a request. Error: the field, and what is wrong with it, without its value.
    pub(crate) fn of(post: &WhenPost) -> Result<Self, String> {
        let WhenPost { url, preset, template, headers, page } = post;
        if preset.is_some() && template.is_some() {
            return Err("post: preset and template; expected at most one".into());
        }
        let agents = page.as_deref().map(|page| agents_view(page, *preset)).transpose()?;
        match url {
            WhenText::Plain(url) => {
                if has_user(url) {
                    return Err("post.url: a user or a password in the URL; expected the URL in env or file, or the \
                                password in a header"
                        .into());
                }
                parse(url)?;
            }
            WhenText::Kept(secret) => check_secret("post.url", secret)?,
        }
        if let Some(template) = template {
            check_template(template)?;
        }
        let headers = headers.iter().map(|(name, value)| {
            let shown = muxtap_base::plain::name(name);
            let wrong = |why: &str| format!("post.headers.{shown}: {why}");
            let header: header::HeaderName = name.parse().map_err(|_| wrong("not a header's name"))?;
            if OWN_HEADERS.contains(&header.as_str()) {
                return Err(wrong("muxtap sets this header; remove it"));
            }
            match value {
                WhenText::Plain(_) if SECRET_HEADERS.contains(&header.as_str()) => {
                    return Err(wrong("a secret in the rule; expected { env = \"NAME\" } or { file = \"PATH\" }"));
                }
                WhenText::Plain(value) => {
                    header::HeaderValue::from_str(value).map_err(|_| wrong("not a header's value"))?;
                }
                WhenText::Kept(secret) => check_secret(&format!("post.headers.{shown}"), secret)?,
            }
            Ok((header, value.clone()))
        });
        let headers = headers.collect::<Result<_, String>>()?;
        Ok(Self { url: url.clone(), preset: *preset, template: template.clone(), headers, agents })
    }

    /// Sends the request about these facts, within its time limit. Error: why it failed, without a secret.
    pub(crate) async fn send(&self, facts: &Facts) -> Result<String, String> {
        let late = || Err(format!("no response within {} s", POST_LIMIT.as_secs()));
        tokio::time::timeout(POST_LIMIT, self.exchange(facts)).await.unwrap_or_else(|_| late())
    }

    async fn exchange(&self, facts: &Facts) -> Result<String, String> {
        let (own, facts) = (self.clone(), facts.clone());
        // Secrets are files, which may be slow.
        let ready = tokio::task::spawn_blocking(move || own.ready(&facts)).await;
        let Ready { address, path, body, headers } = ready.map_err(|error| error.to_string())??;
        let body = serde_json::to_vec(&body).map_err(|error| error.to_string())?;
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::HOST, address.authority())
            .header(header::USER_AGENT, concat!("muxtap/", env!("CARGO_PKG_VERSION")))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONNECTION, "close");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        // A URI's error could show the path, which may be a secret.
        let request = request.body(Full::new(Bytes::from(body))).map_err(|_| "the URL's path is not valid")?;
        // The messages of the connection name neither the URL nor a header.
        let answer = remote::exchange(&address, request, ANSWER_BYTES).await.map_err(|error| error.to_string())?;
        let status = answer.status;
        if status.is_success() {
            Ok(format!("HTTP {}", status.as_u16()))
        } else if status.is_redirection() {
            Err(format!("HTTP {}; redirects are not followed", status.as_u16()))
        } else {
            Err(format!("HTTP {}", status.as_u16()))
        }
    }

    fn ready(&self, facts: &Facts) -> Result<Ready, String> {
        let url = read(&self.url).map_err(|why| format!("post.url: {why}"))?;
        let (address, mut path) = parse(&url)?;
        let is_secret = |value: &WhenText| matches!(value, WhenText::Kept(_));
        let has_secret = is_secret(&self.url) || self.headers.iter().any(|(_, value)| is_secret(value));
        if has_secret && !address.is_private() {
            return Err("a secret is not sent without TLS; expected https://, or a loopback address".into());
        }
        let mut headers = Vec::new();
        for (name, value) in &self.headers {
            let text = read(value).map_err(|why| format!("post.headers.{name}: {why}"))?;
            let value = header::HeaderValue::from_str(&text);
            let mut value = value.map_err(|_| format!("post.headers.{name}: not a header's value"))?;
            value.set_sensitive(true);
            headers.push((name.clone(), value));
        }
        let body = match (self.preset, &self.template) {
            (Some(WhenPreset::Slack), _) => slack(facts),
            (Some(WhenPreset::Mattermost), _) => mattermost(facts),
            (Some(WhenPreset::Ntfy), _) => {
                let (parent, topic) = path
                    .rsplit_once('/')
                    .map(|(parent, topic)| (parent.to_owned(), topic.to_owned()))
                    .filter(|(_, topic)| !topic.is_empty() && !topic.contains('?'))
                    .ok_or("post.url: no topic at the end of the URL; expected https://HOST/TOPIC")?;
                path = format!("{parent}/");
                ntfy(&topic, facts, self.agents.as_deref())
            }
            (None, Some(template)) => filled(template, facts),
            (None, None) => {
                let fields = facts.all().into_iter().map(|(name, text)| (name.to_owned(), Value::String(text)));
                Value::Object(fields.collect())
            }
        };
        Ok(Ready { address, path, body, headers })
    }
}

/// Splits a URL into its server and its path with the query. The error does not show the URL.
fn parse(url: &str) -> Result<(Address, String), String> {
    let wrong = || "post.url: not a valid URL; expected http:// or https:// with a host".to_owned();
    let address = Address::read(url).map_err(|_| wrong())?;
    let uri: hyper::Uri = url.trim().parse().map_err(|_| wrong())?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Ok((address, if path.is_empty() { "/".into() } else { path.to_owned() }))
}

/// Returns whether a URL has a user or a password.
fn has_user(url: &str) -> bool {
    url.parse::<hyper::Uri>().is_ok_and(|uri| uri.authority().is_some_and(|host| host.as_str().contains('@')))
}

/// Checks the address of a page, and returns that of its view of agents, which needs a login there: the
/// service that delivers the push, and its readers, get no right by it.
fn agents_view(page: &str, preset: Option<WhenPreset>) -> Result<String, String> {
    if preset != Some(WhenPreset::Ntfy) {
        return Err("post.page: only a push of ntfy has buttons; expected preset = \"ntfy\"".into());
    }
    match parse(page) {
        Ok((_, path)) if path == "/" && !has_user(page) && !page.contains(['#', '?']) => {
            Ok(format!("{}/#agents", page.trim().trim_end_matches('/')))
        }
        _ => Err("post.page: not the address of a page; expected https://HOST:PORT".into()),
    }
}

fn check_secret(field: &str, secret: &WhenSecret) -> Result<(), String> {
    match (&secret.env, &secret.file) {
        (Some(name), None) if !name.is_empty() && !name.contains(['=', '\0']) => Ok(()),
        (None, Some(file)) if Path::new(file).is_absolute() => Ok(()),
        (None, Some(_)) => Err(format!("{field}.file: expected an absolute path")),
        _ => Err(format!("{field}: expected either env or file")),
    }
}

/// Returns a text, or reads the secret. Error: why it cannot be read, without a part of it.
fn read(text: &WhenText) -> Result<String, String> {
    let secret = match text {
        WhenText::Plain(text) => return Ok(text.clone()),
        WhenText::Kept(secret) => secret,
    };
    let found = match (&secret.env, &secret.file) {
        (Some(name), _) => std::env::var(name).map_err(|_| format!("the daemon has no variable {name}"))?,
        (None, Some(file)) => {
            let read = read_secret(Path::new(file), SECRET_BYTES);
            let (text, _) = read.map_err(|error| match error {
                SecretError::Open(why) | SecretError::Foreign(why) | SecretError::Unreadable(why) => {
                    format!("{file} {why}")
                }
            })?;
            text.lines().next().unwrap_or_default().to_owned()
        }
        (None, None) => return Err("expected either env or file".into()),
    };
    let found = found.trim();
    if found.is_empty() {
        return Err("the secret is empty".into());
    }
    Ok(format!("{}{found}", secret.prefix.as_deref().unwrap_or_default()))
}

/// Checks that a template names only facts.
fn check_template(template: &Value) -> Result<(), String> {
    match template {
        Value::String(text) => fill(text, |name| NAMES.contains(&name).then(String::new)).map(drop),
        Value::Array(items) => items.iter().try_for_each(check_template),
        Value::Object(fields) => fields.values().try_for_each(check_template),
        _ => Ok(()),
    }
}

/// Fills a template: values go into texts of the JSON tree, so no value can change its structure.
fn filled(template: &Value, facts: &Facts) -> Value {
    let all = facts.all();
    let find = |name: &str| all.iter().find(|(known, _)| *known == name).map(|(_, text)| text.clone());
    match template {
        // Checked when the rule was read.
        Value::String(text) => Value::String(fill(text, find).unwrap_or_default()),
        Value::Array(items) => Value::Array(items.iter().map(|item| filled(item, facts)).collect()),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), filled(value, facts))).collect())
        }
        other => other.clone(),
    }
}

/// Replaces `{name}` in a text; `{{` and `}}` are braces. What a value contains is not read again.
fn fill(text: &str, find: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        if let Some(after) = from.strip_prefix("{{") {
            out.push('{');
            rest = after;
        } else if let Some(after) = from.strip_prefix("}}") {
            out.push('}');
            rest = after;
        } else {
            let inner = from.strip_prefix('{').and_then(|inner| inner.split_once('}'));
            let (name, after) = inner.ok_or("post.template: a brace without its other one; `{{` is a brace")?;
            let value = find(name).ok_or_else(|| {
                let (name, known) = (muxtap_base::plain::name(name), NAMES.join(", "));
                format!("post.template: unknown fact `{name}`; expected one of {known}")
            })?;
            out.push_str(&value);
            rest = after;
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// Returns text for a message that a service formats: as code, so that nothing in it is a mention, a link
/// or a style.
fn code(text: &str) -> String {
    let text: String = text.chars().map(|letter| if letter == '`' { '\'' } else { letter }).collect();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() { text } else { format!("`{text}`") }
}

fn slack(facts: &Facts) -> Value {
    // Slack reads `<!channel>` even in code: these three are escaped everywhere.
    let text = message(facts).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    json!({ "text": text })
}

fn mattermost(facts: &Facts) -> Value {
    json!({ "text": message(facts) })
}

fn message(facts: &Facts) -> String {
    let parts = [code(&facts.rule), code(&facts.place()), code(&facts.summary())];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

fn ntfy(topic: &str, facts: &Facts, agents: Option<&str>) -> Value {
    let title = format!("{}: {}", facts.rule, facts.place());
    let mut body = json!({ "topic": topic, "title": title, "message": facts.summary() });
    let asks = [AgentState::Permission, AgentState::Question].map(AgentState::as_str).contains(&&*facts.state);
    if let Some(url) = agents.filter(|_| facts.kind == "agent" && asks)
        && let Some(fields) = body.as_object_mut()
    {
        fields.insert("actions".into(), json!([{ "action": "view", "label": "Answer", "url": url }]));
    }
    body
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use muxtap_api::WhenRule;

    use super::*;

    fn post(toml: &str) -> Result<Post, String> {
        let rule: WhenRule = toml::from_str(&format!("name='a'\n[post]\n{toml}")).unwrap();
        Post::of(&rule.post.unwrap())
    }

    fn facts(text: &str) -> Facts {
        Facts {
            rule: "a".into(),
            session: "s".into(),
            window: "w".into(),
            kind: "output",
            text: text.into(),
            ..Facts::default()
        }
    }

    #[test]
    fn a_template_names_facts_and_nothing_else() {
        for template in ["{HOME}", "{env.TOKEN}", "{ text }", "{", "}", "{text", "{{}", "{}"] {
            let value = format!("url='http://localhost/x'\ntemplate={{ a = ['{template}'] }}");
            let refused = post(&value).unwrap_err();
            assert!(refused.contains("post.template"), "{template}: {refused}");
        }
        post("url='http://localhost/x'\ntemplate={ a = ['{{x}} {session}: {text}', 1, true] }").unwrap();
    }

    /// WN4.
    #[test]
    fn a_panes_text_cannot_change_the_json_of_a_template() {
        let nasty = "\"}, \"admin\": true, {session} {{ \\ \n \u{1b}[31m $(touch x) `id`";
        let ready =
            post("url='http://localhost/x'\ntemplate={ text = '<{text}>', n = 1 }").unwrap().ready(&facts(nasty));
        let text = serde_json::to_string(&ready.unwrap().body).unwrap();
        let back: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back, json!({ "text": format!("<{nasty}>"), "n": 1 }));
    }

    #[test]
    fn a_panes_text_mentions_no_person_in_a_chat() {
        let nasty = "<!channel> `@all` @here <https://evil|x>";
        let text = |preset: &str| {
            let ready = post(&format!("url='http://localhost/x'\npreset='{preset}'")).unwrap().ready(&facts(nasty));
            ready.unwrap().body["text"].as_str().unwrap().to_owned()
        };
        assert!(!text("slack").contains('<') && text("slack").contains("&lt;!channel&gt;"));
        // Outside of code there is nothing of the pane's.
        let outside = |text: &str| text.split('`').step_by(2).collect::<String>();
        assert_eq!(outside(&text("mattermost")).trim(), "");
        assert_eq!(outside(&text("slack")).trim(), "");
    }

    #[test]
    fn a_topic_of_ntfy_is_the_end_of_its_url() {
        let ready = post("url='http://localhost:1/base/top'\npreset='ntfy'").unwrap().ready(&facts("x")).unwrap();
        assert_eq!(
            (ready.path.as_str(), &ready.body["topic"], &ready.body["message"]),
            ("/base/", &json!("top"), &json!("x"))
        );
        assert!(post("url='http://localhost:1/'\npreset='ntfy'").unwrap().ready(&facts("x")).is_err());
    }

    /// WN14.
    #[test]
    fn a_push_about_a_question_leads_to_the_page_and_grants_nothing() {
        let fields = |page: &str| format!("url='http://localhost:1/top'\npreset='ntfy'\npage='{page}'");
        let asks = |state: &str| Facts { kind: "agent", agent: "claude".into(), state: state.into(), ..facts("rm x?") };
        let actions =
            |page: &str, facts: &Facts| post(&fields(page)).unwrap().ready(facts).unwrap().body["actions"].clone();
        for (page, state) in [("https://box:7717", "permission"), ("https://box:7717/", "question")] {
            let button = json!([{ "action": "view", "label": "Answer", "url": "https://box:7717/#agents" }]);
            assert_eq!(actions(page, &asks(state)), button, "{page}");
        }
        assert_eq!(actions("https://box", &asks("idle")), Value::Null);
        assert_eq!(actions("https://box", &facts("permission")), Value::Null);
        let without = post("url='http://localhost:1/top'\npreset='ntfy'").unwrap();
        assert_eq!(without.ready(&asks("permission")).unwrap().body["actions"], Value::Null);
        for wrong in
            ["box", "https://box/x", "https://me:s3@box", "https://box/#code=s3", "https://box/?s3", "javascript:s3"]
        {
            let refused = post(&fields(wrong)).map(|_| ()).unwrap_err();
            assert!(refused.starts_with("post.page") && !refused.contains("s3"), "{refused}");
        }
        assert!(post("url='http://localhost/x'\npreset='slack'\npage='https://box'").unwrap_err().contains("ntfy"));
    }

    /// WN7.
    #[test]
    fn a_secret_is_in_no_error_and_is_not_sent_in_the_clear() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        fs::write(&file, "s3cret\nmore\n").unwrap();
        let fields = |url: &str| {
            format!("url='{url}'\nheaders={{ Authorization = {{ file = '{}', prefix = 'Bearer ' }} }}", file.display())
        };
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = |url: &str| post(&fields(url)).unwrap().ready(&facts("x")).map(|_| ()).unwrap_err();
        assert!(refused("http://localhost/x").contains("open to others"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(refused("http://example.org/x").contains("without TLS"));
        let ready = post(&fields("http://localhost/x")).unwrap().ready(&facts("x")).unwrap();
        assert_eq!(ready.headers[0].1, "Bearer s3cret");
        assert!(!format!("{:?}", ready.headers).contains("s3cret"));
        fs::write(&file, "bad\u{1}value").unwrap();
        assert!(!refused("http://localhost/x").contains("bad"));
        for (field, wrong) in [
            ("url='http://me:s3cret@localhost/x'", "a user or a password"),
            ("url='ftp://localhost/s3cret'", "not a valid URL"),
            ("url='http://localhost/s3 cret'", "not a valid URL"),
            ("url='http://localhost/x'\nheaders={ Authorization = 's3cret' }", "a secret in the rule"),
            ("url='http://localhost/x'\nheaders={ Host = 's3cret' }", "muxtap sets"),
            ("url={ env = 'A', file = '/s3cret' }", "either env or file"),
            ("url={ file = 's3cret' }", "absolute"),
        ] {
            let refused = post(field).map(|_| ()).unwrap_err();
            assert!(refused.contains(wrong) && !refused.contains("s3"), "{field}: {refused}");
        }
    }

    #[test]
    fn a_variable_that_is_missing_is_named() {
        let missing =
            post("url={ env = 'MUXTAP_NO_SUCH_VARIABLE' }").unwrap().ready(&facts("x")).map(|_| ()).unwrap_err();
        assert_eq!(missing, "post.url: the daemon has no variable MUXTAP_NO_SUCH_VARIABLE");
    }
}
