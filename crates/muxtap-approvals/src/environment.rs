//! Reads the environment variables of the first implementation, as users of that one set them.

use std::{path::PathBuf, time::Duration};

/// The default time limit for a human's answer: a day.
const DEFAULT_ANSWER_TIMEOUT: Duration = Duration::from_secs(86_400);
/// The longest possible answer timeout, in milliseconds; clocks do not overflow with it.
const LONGEST: u64 = 100 * 365 * 86_400 * 1000;

/// The required variables, in the order in which a missing one is reported.
const REQUIRED: [&str; 5] =
    ["PLATFORM_URL", "PLATFORM_TOKEN", "PLATFORM_CHANNEL_ID", "PLATFORM_THREAD_ID", "PLATFORM_BOT_ID"];

/// The error for a missing required variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Missing required env var: {0}")]
pub struct MissingVariable(pub &'static str);

/// The settings of a chat that asks humans.
#[derive(Clone, PartialEq, Eq)]
pub struct Platform {
    /// The chat's address: `https://chat.example.org`, optionally with a path.
    pub url: String,
    /// The access token; a secret.
    pub token: String,
    /// The channel for questions.
    pub channel: String,
    /// The thread for questions.
    pub thread: String,
    /// The bot's user id: the author of the questions.
    pub bot: String,
    /// The usernames that may answer; if empty, all may.
    pub allowed: Vec<String>,
}

impl std::fmt::Debug for Platform {
    /// Formats the chat without its token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Platform").field("url", &self.url).field("channel", &self.channel).finish_non_exhaustive()
    }
}

/// All settings that come from the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlatformEnvironment {
    /// The chat.
    pub platform: Platform,
    /// The time limit for a human's answer.
    pub answer_timeout: Duration,
    /// The file of spawned sessions.
    pub store: PathBuf,
}

impl PlatformEnvironment {
    /// Reads the environment. Error: the first missing variable. An empty variable counts as set.
    pub fn read(var: &dyn Fn(&str) -> Option<String>) -> Result<Self, MissingVariable> {
        let required = |name: &'static str| var(name).ok_or(MissingVariable(name));
        let [url, token, channel, thread, bot] = REQUIRED;
        let platform = Platform {
            url: required(url)?,
            token: required(token)?,
            channel: required(channel)?,
            thread: required(thread)?,
            bot: required(bot)?,
            allowed: names(&var("ALLOWED_USERS").unwrap_or_default()),
        };
        Ok(Self {
            platform,
            answer_timeout: answer_timeout(var("PERMISSION_TIMEOUT_MS").as_deref()),
            store: store(var),
        })
    }
}

/// Returns the path of the file of spawned sessions: `~/.config/earl/tmux_sessions.json`, or under
/// `earl-dev` if `EARL_ENV` is `development`.
pub fn store(var: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    let folder = if var("EARL_ENV").as_deref() == Some("development") { "earl-dev" } else { "earl" };
    let home = PathBuf::from(var("HOME").filter(|home| !home.is_empty()).unwrap_or_else(|| "/".into()));
    home.join(".config").join(folder).join("tmux_sessions.json")
}

fn names(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn answer_timeout(text: Option<&str>) -> Duration {
    let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else { return DEFAULT_ANSWER_TIMEOUT };
    text.parse::<u64>().map_or_else(
        |_| {
            tracing::warn!("PERMISSION_TIMEOUT_MS={text} is not a number of milliseconds; using one day");
            DEFAULT_ANSWER_TIMEOUT
        },
        |milliseconds| Duration::from_millis(milliseconds.min(LONGEST)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<PlatformEnvironment, MissingVariable> {
        let find = |name: &str| vars.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        PlatformEnvironment::read(&find)
    }

    #[test]
    fn the_first_missing_variable_is_told_in_the_order_of_the_contract() {
        let mut vars = vec![("HOME", "/h")];
        for name in REQUIRED {
            let missing = read(&vars).unwrap_err();
            assert_eq!(missing.to_string(), format!("Missing required env var: {name}"));
            vars.push((name, ""));
        }
        assert!(read(&vars).is_ok());
    }

    #[test]
    fn what_is_optional_has_a_preset() {
        let required = REQUIRED.map(|name| (name, "x"));
        let vars =
            |more: &[(&'static str, &'static str)]| read(&[&required[..], &[("HOME", "/h")], more].concat()).unwrap();
        let plain = vars(&[]);
        assert_eq!(plain.answer_timeout, Duration::from_secs(86_400));
        assert_eq!(plain.store, PathBuf::from("/h/.config/earl/tmux_sessions.json"));
        assert!(plain.platform.allowed.is_empty());
        let set =
            vars(&[("ALLOWED_USERS", " ann, ,bob "), ("PERMISSION_TIMEOUT_MS", "1500"), ("EARL_ENV", "development")]);
        assert_eq!(set.platform.allowed, ["ann", "bob"]);
        assert_eq!(set.answer_timeout, Duration::from_millis(1500));
        assert_eq!(set.store, PathBuf::from("/h/.config/earl-dev/tmux_sessions.json"));
        assert_eq!(vars(&[("PERMISSION_TIMEOUT_MS", "soon")]).answer_timeout, DEFAULT_ANSWER_TIMEOUT);
    }

    #[test]
    fn the_token_is_not_shown() {
        let vars = REQUIRED.map(|name| (name, "secret"));
        let shown = format!("{:?}", Platform { url: "u".into(), channel: "c".into(), ..read(&vars).unwrap().platform });
        assert!(!shown.contains("secret"), "{shown}");
    }
}
