//! Parsers of settings' values.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
    time::Duration,
};

use muxtap_tmux::{CoverageMode, Floods};

use crate::api::{Error, Tier};

/// Parses a number of bytes, with units K, M and G.
pub fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = text.strip_prefix(digits).unwrap_or_default().to_ascii_lowercase();
    let shift = match unit.as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err("unknown unit; expected K, M or G".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "not a number of bytes".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too large".to_owned())
}

pub(super) fn size(text: &str) -> Result<usize, String> {
    usize::try_from(bytes(text)?).map_err(|_| "too large".to_owned())
}

/// Parses a number of seconds, at least one and at most a day.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| "expected a number of seconds, 1 to 86400".to_owned())
}

/// Parses a number of seconds, at most a day; 0 means never.
pub(super) fn seconds_or_never(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { seconds(text).map_err(|why| format!("{why}, or 0 for never")) }
}

pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" | "yes" => Ok(true),
        "false" | "0" | "no" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

pub(super) fn coverage(text: &str) -> Result<CoverageMode, String> {
    match text {
        "used" => Ok(CoverageMode::Used),
        "hub" => Ok(CoverageMode::Hub),
        "sessions" => Ok(CoverageMode::Sessions),
        _ => Err("expected used, sessions or hub".to_owned()),
    }
}

pub(super) fn floods(text: &str) -> Result<Floods, String> {
    match text {
        "hold" => Ok(Floods::Hold),
        "follow" => Ok(Floods::Follow),
        _ => Err("expected hold or follow".to_owned()),
    }
}

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object, for programs that collect logs.
    Json,
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("expected text or json".to_owned()),
    }
}

/// Parses the URL of an OpenTelemetry collector. An empty value means no collector.
pub(super) fn otlp(text: &str) -> Result<Option<String>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    #[cfg(feature = "otlp")]
    return muxtap_otlp::Endpoint::parse(text).map(|_| Some(text.to_owned()));
    #[cfg(not(feature = "otlp"))]
    return Err("this muxtap was built without the feature `otlp`; remove the setting, or build with it".to_owned());
}

/// Returns a value for a message: without the user name and the password of a URL, which could get
/// into a log.
pub(super) fn without_credentials(text: &str) -> Cow<'_, str> {
    let scheme = text.find("://").map_or(0, |at| at + "://".len());
    let (scheme, rest) = text.split_at(scheme);
    match rest.rsplit_once('@') {
        // Without a scheme, `me@host` may be anything; a password may stand before a forgotten one.
        Some((user, place)) if !scheme.is_empty() || user.contains(':') => format!("{scheme}…@{place}").into(),
        _ => text.into(),
    }
}

/// The levels of the log, from the least to the most.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Parses what is logged: a level, or a filter of levels for parts of the program
/// (`info,muxtap=debug`).
///
/// In the filter's own syntax a word that is no level names a part of the program, of which all is
/// logged, and of everything else nothing: `loud` would end the log without an error.
pub(super) fn log_level(text: &str) -> Result<String, String> {
    let level = |word: &str| {
        let word = word.trim().to_ascii_lowercase();
        let word = if word == "warning" { "warn" } else { word.as_str() };
        LEVELS.into_iter().find(|known| *known == word)
    };
    let expected = || {
        let levels = LEVELS.join(", ");
        format!("expected one of {levels}, or a filter such as info,muxtap=debug")
    };
    let parts = text.split(',').map(|part| match part.rsplit_once('=') {
        Some((place, word)) if !place.is_empty() => level(word).map(|level| format!("{place}={level}")),
        Some(_) => None,
        None => level(part).map(str::to_owned),
    });
    parts.collect::<Option<Vec<_>>>().map(|parts| parts.join(",")).ok_or_else(expected)
}

/// Parses a tier that may need a person's confirmation.
pub(super) fn confirmable_tier(text: &str) -> Result<Tier, String> {
    match text.parse().map_err(|error: Error| error.to_string())? {
        Tier::Read => Err("reads are never confirmed; expected input, create or kill, or deny read".to_owned()),
        tier => Ok(tier),
    }
}

/// Parses an origin such as `https://example.org:8443`, as a browser sends it in `Origin`.
pub(super) fn origin(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    match host {
        Some(host) if !host.is_empty() && !host.contains(['/', ' ', '*', '@']) && text == text.to_ascii_lowercase() => {
            Ok(text.to_owned())
        }
        _ => Err("expected an origin: http:// or https://, a lower-case host, optionally a port, no path".to_owned()),
    }
}

/// Parses a folder: an absolute path, or one from the user's home.
pub(super) fn folder(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    if path.is_absolute() || path.starts_with("~") {
        return Ok(path.to_owned());
    }
    Err("expected an absolute path, `~`, or a path that begins with `~/`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_asked_about_acts_and_not_about_looks() {
        assert_eq!(confirmable_tier("kill"), Ok(Tier::Kill));
        assert!(confirmable_tier("read").unwrap_err().contains("deny read"));
        assert!(confirmable_tier("look").unwrap_err().contains("unknown tier"));
    }

    #[test]
    fn a_message_has_no_password_of_a_url() {
        for (text, shown) in [
            ("http://me:secret@127.0.0.1:4318", "http://…@127.0.0.1:4318"),
            ("http://:sec@ret@[::1", "http://…@[::1"),
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318"),
            ("me:secret@127.0.0.1:4318", "…@127.0.0.1:4318"),
            ("me@work", "me@work"),
        ] {
            assert_eq!(without_credentials(text), shown);
        }
    }

    #[test]
    fn the_log_has_known_levels_alone() {
        for (text, level) in [
            ("info", "info"),
            ("warning", "warn"),
            ("WARN", "warn"),
            ("off", "off"),
            ("info,muxtap=debug", "info,muxtap=debug"),
            ("muxtap_tmux=Warning", "muxtap_tmux=warn"),
        ] {
            assert_eq!(log_level(text).as_deref(), Ok(level), "{text}");
        }
        for text in ["loud", "muxtap", "", "info,", "muxtap=loud", "=info", "verbose,info"] {
            assert!(log_level(text).unwrap_err().contains("warn, info"), "{text}");
        }
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes("65536"), Ok(65_536));
        assert_eq!(bytes("64K"), Ok(65_536));
        assert_eq!(bytes("512MiB"), Ok(512 << 20));
        for text in ["", "K", "1T", "1.5M", "-1", "99999999999999G"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_origin_is_what_a_browser_sends() {
        for good in ["http://localhost:3000", "https://example.org"] {
            assert_eq!(origin(good), Ok(good.to_owned()));
        }
        for bad in ["*", "null", "example.org", "https://example.org/", "https://", "https://Example.org", "http://a@b"]
        {
            assert!(origin(bad).is_err(), "{bad}");
        }
    }
}
