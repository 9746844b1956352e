//! Selectors: the words that name a tab, a pane, a terminal or a session. There is no shorthand.

use crate::api::{Error, ErrorCode, Result};

/// The forms that exist, as errors list them.
pub const FORMS: &str = "tab:ID, tab-name:NAME, tab-index:N, pane:ID, pane-index:N (with a tab), terminal:ID, \
                         session:PROVIDER:ID";

/// A selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// `tab:ID`.
    Tab(String),
    /// `tab-name:NAME`: its title, exactly.
    TabName(String),
    /// `tab-index:N`, from 0.
    TabIndex(usize),
    /// `pane:ID`.
    Pane(String),
    /// `pane-index:N`, from 0, in a tab that is named beside it.
    PaneIndex(usize),
    /// `terminal:ID`: a tmux pane, `%3` or `NAME/%3`.
    Terminal(String),
    /// `session:PROVIDER:ID`.
    Session {
        /// The provider.
        provider: String,
        /// The session's id there.
        id: String,
    },
}

impl Selector {
    /// Reads a selector. Error: `INVALID_TARGET` with the forms that exist.
    pub fn parse(text: &str) -> Result<Self> {
        let refuse = || invalid(format!("{text:?} is no selector; the forms are {FORMS}"));
        let (kind, rest) = text.split_once(':').ok_or_else(refuse)?;
        if rest.is_empty() || rest.chars().any(char::is_control) {
            return Err(refuse());
        }
        let id = || if is_id(rest) { Ok(rest.to_owned()) } else { Err(refuse()) };
        let index = || match rest.parse::<usize>() {
            // Not `+1`.
            Ok(index) if rest.bytes().all(|digit| digit.is_ascii_digit()) => Ok(index),
            _ => Err(refuse()),
        };
        match kind {
            "tab" => id().map(Self::Tab),
            "tab-name" => Ok(Self::TabName(rest.to_owned())),
            "tab-index" => index().map(Self::TabIndex),
            "pane" => id().map(Self::Pane),
            "pane-index" => index().map(Self::PaneIndex),
            "terminal" => check_terminal(rest).map(|()| Self::Terminal(rest.to_owned())),
            "session" => match rest.split_once(':') {
                Some((provider, id)) if is_id(provider) && !id.is_empty() => {
                    Ok(Self::Session { provider: provider.to_owned(), id: id.to_owned() })
                }
                _ => Err(refuse()),
            },
            _ => Err(refuse()),
        }
    }
}

/// Error: `INVALID_TARGET` for what is no terminal's id.
pub fn check_terminal(id: &str) -> Result<()> {
    let (name, pane) = id.rsplit_once('/').map_or((None, id), |(name, pane)| (Some(name), pane));
    let digits = pane.strip_prefix('%').filter(|digits| !digits.is_empty() && digits.len() <= 10);
    let fits = digits.is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))
        && name.is_none_or(|name| {
            let visible = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.');
            !name.is_empty() && name.len() <= 64 && !name.starts_with('.') && name.chars().all(visible)
        });
    if fits { Ok(()) } else { Err(invalid(format!("{id:?} is no terminal: expected %3 or NAME/%3"))) }
}

/// Returns whether a word can be an id or a provider's name.
fn is_id(word: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@');
    !word.is_empty() && word.len() <= 128 && word.bytes().all(fits)
}

pub(super) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidTarget, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        let read = |text| Selector::parse(text).unwrap();
        assert_eq!(read("tab:t1"), Selector::Tab("t1".into()));
        assert_eq!(read("tab-name:a: b"), Selector::TabName("a: b".into()));
        assert_eq!(read("tab-index:0"), Selector::TabIndex(0));
        assert_eq!(read("pane:p_abc"), Selector::Pane("p_abc".into()));
        assert_eq!(read("pane-index:12"), Selector::PaneIndex(12));
        assert_eq!(read("terminal:%3"), Selector::Terminal("%3".into()));
        assert_eq!(read("terminal:box/%3"), Selector::Terminal("box/%3".into()));
        let session = Selector::Session { provider: "claude".into(), id: "a:b".into() };
        assert_eq!(read("session:claude:a:b"), session);
    }

    #[test]
    fn what_tmux_takes_and_every_shorthand_is_refused_with_the_forms() {
        for text in [
            "",
            "main",
            "%3",
            "main:1.0",
            "work:logs",
            "p1",
            "tab:",
            "tab:a b",
            "tab-index:-1",
            "tab-index:+1",
            "tab-index:x",
            "tab-index:99999999999999999999",
            "pane:../x",
            "terminal:3",
            "terminal:%",
            "terminal:%x",
            "terminal:../x/%1",
            "terminal:a/b/%1",
            "session:claude",
            "session::x",
            "session:claude:",
            "TAB:t1",
            "tab-name:a\u{1b}b",
            " tab:t1",
        ] {
            let error = Selector::parse(text).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidTarget, "{text:?}");
            assert!(error.message.contains("tab-index:N") || error.message.contains("NAME/%3"), "{error}");
        }
    }
}
