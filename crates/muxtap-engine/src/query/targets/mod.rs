//! Targets, in the form of tmux's `-t`: `%3`, `@1`, `$0`, `session`, `session:window`,
//! `session:window.pane`, targets relative to the caller's place (`:2`, `.1`, `+`, `{last}`), and
//! labels (`{role=build}`).
//! Names are exact; more than one match is an error. `docs/targets.md` explains each form.

mod layout;
mod locate;
mod resolve;
mod selector;

use muxtap_api::{Error, ErrorCode, Result};
use muxtap_core::protocol::ids::{PaneId, SessionId, WindowId};

pub use locate::{Finder, Found, find_pane, find_session, find_window};
pub use selector::{Selector, is_selector};

/// A parsed target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `%3`, `pane:%3`, `terminal:%3`.
    Pane(PaneId),
    /// `@1`.
    Window(WindowId),
    /// Digits alone. Depending on the command, tmux takes them for a pane's or a window's index in
    /// the current session, or else for a session's name (`cmd_find_target`), so only commands that
    /// can take nothing but a session accept them.
    Number(String),
    /// A name alone: a session's, or a window's if no session has this name.
    Name(String),
    /// A sign alone, such as `+1` or `{last}`. It means a pane or a window, depending on what is
    /// searched for.
    Sign(Sign),
    /// `~`, `{marked}`: the pane that the user has marked.
    Marked,
    /// `{role=build}`: the pane with these labels.
    Labels(Selector),
    /// A text with a `:` or a `.`, and `$0`.
    Place {
        /// The session's id or name.
        session: SessionPart,
        /// The window in it; `None` for its current one.
        window: Option<WindowPart>,
        /// The pane in the window; `None` for its active one.
        pane: Option<PanePart>,
    },
}

/// The session of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionPart {
    /// A named session.
    Named(String),
    /// The caller's current session: `:2`.
    Current,
    /// No session is named, and the window's name alone may be enough: `logs.1`.
    Any,
}

/// A window in its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WindowPart {
    /// The window's index, name or id.
    Name(String),
    /// A sign relative to the session's windows.
    Sign(Sign),
}

/// A pane in its window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PanePart {
    /// The pane's index.
    Index(u32),
    /// A sign relative to the window's panes.
    Sign(Sign),
}

/// A text that tmux takes for a sign instead of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// This many after the current item (`+1`) or before it (`-1`), wrapping around the ends.
    Offset(i64),
    /// A word as tmux writes it (`{last}` for `!`). Most can be resolved by tmux only; muxtap
    /// resolves `{up-of}` and similar words in the layout.
    Tmux(String),
}

/// The words that are signs of windows. `^`, `$` and `!` mean these three.
const WINDOW_WORDS: [&str; 3] = ["{start}", "{end}", "{last}"];
/// The words that are signs of panes.
const PANE_WORDS: [&str; 13] = [
    "{last}",
    "{top}",
    "{bottom}",
    "{left}",
    "{right}",
    "{top-left}",
    "{top-right}",
    "{bottom-left}",
    "{bottom-right}",
    "{up-of}",
    "{down-of}",
    "{left-of}",
    "{right-of}",
];

impl std::str::FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let prefixed = ["terminal:", "pane:"].iter().find_map(|prefix| text.strip_prefix(prefix));
        let text = prefixed.filter(|id| id.starts_with('%')).unwrap_or(text);
        let invalid = |why: &str| {
            Err(Error::new(
                ErrorCode::InvalidTarget,
                format!(
                    "{text:?} is not a target: {why}; expected %3, @1, $0, session, session:window, \
                     session:window.pane, {{key=value}}, or :window and .pane from where you are"
                ),
            ))
        };
        if text.is_empty() {
            return invalid("it is empty");
        }
        if text.chars().any(char::is_control) {
            return invalid("it contains a control character");
        }
        if is_selector(text) {
            return text.parse().map(Self::Labels);
        }
        if text.starts_with('%') {
            return PaneId::from_bytes(text.as_bytes())
                .map_or_else(|| invalid("a pane's id is % and a number"), |id| Ok(Self::Pane(id)));
        }
        if text.starts_with('@') {
            return WindowId::from_bytes(text.as_bytes())
                .map_or_else(|| invalid("a window's id is @ and a number"), |id| Ok(Self::Window(id)));
        }
        if is_number(text) {
            return Ok(Self::Number(text.to_owned()));
        }
        if matches!(text, "~" | "{marked}") {
            return Ok(Self::Marked);
        }
        let (session, rest) = match text.split_once(':') {
            Some((session, rest)) => (session_part(session), rest),
            None => (SessionPart::Any, text),
        };
        // A window's name may contain dots; only a number or a sign after the last dot is a pane.
        let (window, pane) = match rest.rsplit_once('.') {
            Some((window, pane)) if is_number(pane) => match pane.parse() {
                Ok(index) => (window, Some(PanePart::Index(index))),
                Err(_) => return invalid("no pane has such an index"),
            },
            Some((window, pane)) if is_sign(pane) => match sign(pane, &PANE_WORDS) {
                Some(sign) => (window, Some(PanePart::Sign(sign))),
                None => return invalid("tmux has no such sign for a pane"),
            },
            _ => (rest, None),
        };
        if session == SessionPart::Any && pane.is_none() {
            return if is_sign(window) {
                let known = sign(window, &WINDOW_WORDS).or_else(|| sign(window, &PANE_WORDS));
                known.map_or_else(|| invalid("tmux has no such sign"), |sign| Ok(Self::Sign(sign)))
            } else if let Some(session) = window.strip_prefix('=').or_else(|| window.starts_with('$').then_some(window))
            {
                Ok(Self::Place { session: SessionPart::Named(session.to_owned()), window: None, pane: None })
            } else {
                Ok(Self::Name(window.to_owned()))
            };
        }
        let window = match window {
            "" => None,
            window if is_sign(window) => match sign(window, &WINDOW_WORDS) {
                Some(sign) => Some(WindowPart::Sign(sign)),
                None => return invalid("tmux has no such sign for a window"),
            },
            window => Some(WindowPart::Name(window.to_owned())),
        };
        Ok(Self::Place { session, window, pane })
    }
}

impl Target {
    /// Returns the target of a session.
    pub fn of_session(id: SessionId) -> Self {
        Self::Place { session: SessionPart::Named(id.to_string()), window: None, pane: None }
    }

    /// Returns whether the target's meaning depends on the caller's place, or on facts that only
    /// tmux knows.
    pub fn is_relative(&self) -> bool {
        match self {
            Self::Pane(_) | Self::Window(_) | Self::Number(_) | Self::Labels(_) => false,
            Self::Name(_) | Self::Sign(_) | Self::Marked => true,
            Self::Place { session, window, pane } => {
                !matches!(session, SessionPart::Named(_))
                    || matches!(window, Some(WindowPart::Sign(_)))
                    || matches!(pane, Some(PanePart::Sign(_)))
            }
        }
    }
}

/// Returns whether a text consists of digits only.
pub fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn session_part(written: &str) -> SessionPart {
    match written.strip_prefix('=').unwrap_or(written) {
        "" => SessionPart::Current,
        session => SessionPart::Named(session.to_owned()),
    }
}

/// Returns whether tmux takes a text for a sign, whatever the windows' names.
fn is_sign(text: &str) -> bool {
    is_offset(text) || matches!(text, "!" | "^" | "$" | "~" | "=") || text.starts_with('{') && text.ends_with('}')
}

/// Returns whether a text is `+`, `-`, or one of them and a number.
fn is_offset(text: &str) -> bool {
    text.strip_prefix(['+', '-']).is_some_and(|number| number.is_empty() || is_number(number))
}

/// Parses a sign: an offset, one of these words, or a letter for one. `None` for any other text.
fn sign(text: &str, words: &[&str]) -> Option<Sign> {
    if is_offset(text) {
        return offset(text).map(Sign::Offset);
    }
    let word = match text {
        "{next}" => return Some(Sign::Offset(1)),
        "{previous}" => return Some(Sign::Offset(-1)),
        "!" => "{last}",
        "^" => "{start}",
        "$" => "{end}",
        word => word,
    };
    words.contains(&word).then(|| Sign::Tmux(word.to_owned()))
}

/// Returns the distance that `+`, `-`, `+2` or `-2` means.
fn offset(text: &str) -> Option<i64> {
    let (sign, number) = text.split_at_checked(1)?;
    let number = if number.is_empty() { 1 } else { i64::from(number.parse::<u32>().ok()?) };
    Some(if sign == "-" { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(session: SessionPart, window: Option<WindowPart>, pane: Option<PanePart>) -> Target {
        Target::Place { session, window, pane }
    }

    fn named(session: &str, window: Option<&str>, pane: Option<u32>) -> Target {
        let window = window.map(|window| WindowPart::Name(window.into()));
        place(SessionPart::Named(session.into()), window, pane.map(PanePart::Index))
    }

    fn word(word: &str) -> Sign {
        Sign::Tmux(word.into())
    }

    #[test]
    fn every_spelling_is_read() {
        let window = |name: &str| Some(WindowPart::Name(name.into()));
        let index = |index| Some(PanePart::Index(index));
        for (text, target) in [
            ("%3", Target::Pane(PaneId(3))),
            ("terminal:%3", Target::Pane(PaneId(3))),
            ("pane:%3", Target::Pane(PaneId(3))),
            ("@1", Target::Window(WindowId(1))),
            ("3", Target::Number("3".into())),
            ("$0", named("$0", None, None)),
            ("work", Target::Name("work".into())),
            ("a.b", Target::Name("a.b".into())),
            ("=work", named("work", None, None)),
            ("work:", named("work", None, None)),
            ("work:2", named("work", Some("2"), None)),
            ("work:vim.1", named("work", Some("vim"), Some(1))),
            ("work:a.b", named("work", Some("a.b"), None)),
            ("work:.1", named("work", None, Some(1))),
            (":2", place(SessionPart::Current, window("2"), None)),
            (":vim.1", place(SessionPart::Current, window("vim"), index(1))),
            (":", place(SessionPart::Current, None, None)),
            (".1", place(SessionPart::Any, None, index(1))),
            ("vim.1", place(SessionPart::Any, window("vim"), index(1))),
            ("~", Target::Marked),
            ("{marked}", Target::Marked),
            ("!", Target::Sign(word("{last}"))),
            ("^", Target::Sign(word("{start}"))),
            ("{up-of}", Target::Sign(word("{up-of}"))),
            ("{next}", Target::Sign(Sign::Offset(1))),
            ("{a=b:c.1}", Target::Labels("{a=b:c.1}".parse().unwrap())),
            (".{bottom}", place(SessionPart::Any, None, Some(PanePart::Sign(word("{bottom}"))))),
        ] {
            assert_eq!(text.parse::<Target>().unwrap(), target, "{text}");
        }
        // `pane:` is a spelling only of an id; otherwise it may be a session's name.
        assert_eq!("pane:3".parse::<Target>().unwrap(), named("pane", Some("3"), None));
    }

    #[test]
    fn signs_are_not_names() {
        let at = |window: Sign, pane: Option<PanePart>| {
            place(SessionPart::Named("w".into()), Some(WindowPart::Sign(window)), pane)
        };
        for (text, target) in [
            ("w:+1", at(Sign::Offset(1), None)),
            ("w:-1", at(Sign::Offset(-1), None)),
            ("w:+", at(Sign::Offset(1), None)),
            ("w:-20", at(Sign::Offset(-20), None)),
            ("w:+2.1", at(Sign::Offset(2), Some(PanePart::Index(1)))),
            ("w:!", at(word("{last}"), None)),
            ("w:$", at(word("{end}"), None)),
            ("w:^.+", at(word("{start}"), Some(PanePart::Sign(Sign::Offset(1))))),
        ] {
            assert_eq!(text.parse::<Target>().unwrap(), target, "{text}");
        }
    }

    #[test]
    fn what_is_no_target_is_said_to_be_none() {
        for text in [
            "",
            "%",
            "%x",
            "@",
            "@1x",
            "a\nb",
            "%3; kill-server",
            "=",
            "{mouse}",
            "{nowhere}",
            "{Role=build}",
            "w:{role=build}",
            "w:{up-of}",
            "w:.{start}",
            "w:=",
            "w:+99999999999",
            "w:1.99999999999",
        ] {
            assert_eq!(text.parse::<Target>().unwrap_err().code, ErrorCode::InvalidTarget, "{text:?}");
        }
    }
}
