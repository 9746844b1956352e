//! Selectors: the names of a tab, a pane, a terminal or a session. No shorthand exists.

use muxtap_api::{Error, ErrorCode, Result};

/// The valid forms, as errors list them.
pub const FORMS: &str = "tab:ID, tab-name:NAME, tab-index:N, pane:ID, pane-index:N (with a tab), terminal:ID, \
                         session:PROVIDER:ID";

/// A selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// `tab:ID`.
    Tab(String),
    /// `tab-name:NAME`: the exact title.
    TabName(String),
    /// `tab-index:N`, from 0.
    TabIndex(usize),
    /// `pane:ID`.
    Pane(String),
    /// `pane-index:N`, from 0, in a tab that is named separately.
    PaneIndex(usize),
    /// `terminal:ID`: a tmux pane; [`TerminalId`] parses it.
    Terminal(String),
    /// `session:PROVIDER:ID`.
    Session {
        /// The provider.
        provider: String,
        /// The session's id at the provider.
        id: String,
    },
}

impl Selector {
    /// Parses a selector that names a tab. Error: `INVALID_TARGET`.
    pub fn of_tab(text: &str) -> Result<Self> {
        match Self::parse(text)? {
            selector @ (Self::Tab(_) | Self::TabName(_) | Self::TabIndex(_)) => Ok(selector),
            _ => Err(invalid(format!("{text} names no tab: expected tab:ID, tab-name:NAME or tab-index:N"))),
        }
    }

    /// Parses a selector that names a pane, and the selector of its tab, which `pane-index:` needs.
    /// Error: `INVALID_TARGET`.
    pub fn of_pane(text: &str, tab: Option<&str>) -> Result<Self> {
        let tab = tab.map(Self::of_tab).transpose()?;
        match Self::parse(text)? {
            Self::PaneIndex(_) if tab.is_none() => Err(invalid(format!("{text} requires a tab"))),
            selector @ (Self::Pane(_) | Self::PaneIndex(_)) => Ok(selector),
            _ => Err(invalid(format!("{text} names no pane: expected pane:ID, or pane-index:N with a tab"))),
        }
    }

    /// Parses a selector that names a terminal. Returns its id. Error: `INVALID_TARGET`.
    pub fn of_terminal(text: &str) -> Result<String> {
        match Self::parse(text)? {
            Self::Terminal(id) => Ok(id),
            _ => Err(invalid(format!("{text} is not a terminal: expected terminal:ID"))),
        }
    }

    /// Parses a selector. Error: `INVALID_TARGET`, with the valid forms.
    pub fn parse(text: &str) -> Result<Self> {
        let refuse = || invalid(format!("invalid selector {text:?}; expected {FORMS}"));
        let (kind, rest) = text.split_once(':').ok_or_else(refuse)?;
        if rest.is_empty() || rest.chars().any(char::is_control) {
            return Err(refuse());
        }
        let id = || if is_id(rest) { Ok(rest.to_owned()) } else { Err(refuse()) };
        let index = || match rest.parse::<usize>() {
            // `parse` alone would accept `+1`.
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

/// A parsed id of a terminal.
///
/// The id names the server of the pane; no option and no environment variable changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalId<'a> {
    /// The server.
    pub server: TerminalServer<'a>,
    /// The pane, `%3`.
    pub pane: &'a str,
}

/// The server of a terminal's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalServer<'a> {
    /// `%3`: the default server.
    Default,
    /// `NAME/%3`: the server of that name; if none exists, the default one of that host.
    Named(&'a str),
    /// `/PATH/%3`, the server on that socket, or `HOST/NAME/%3`, the server of that name on another
    /// host.
    At(&'a str),
}

/// The maximum length of a socket's path, in bytes (`sun_path`).
const PATH_BYTES: usize = 107;

impl<'a> TerminalId<'a> {
    /// Parses a terminal's id. Error: `INVALID_TARGET`.
    pub fn parse(id: &'a str) -> Result<Self> {
        let refuse =
            || invalid(format!("invalid terminal {id:?}; expected %3, NAME/%3, HOST/NAME/%3 or /PATH/OF/SOCKET/%3"));
        let (server, pane) = id.rsplit_once('/').map_or((None, id), |(server, pane)| (Some(server), pane));
        let digits = pane.strip_prefix('%').filter(|digits| !digits.is_empty() && digits.len() <= 10);
        if !digits.is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_digit())) {
            return Err(refuse());
        }
        let server = match server {
            None => TerminalServer::Default,
            Some(path) if path.starts_with('/') => {
                let is_odd = |letter: char| letter.is_control() || letter.is_whitespace();
                if path.len() < 2 || path.len() > PATH_BYTES || path.chars().any(is_odd) {
                    return Err(refuse());
                }
                TerminalServer::At(path)
            }
            Some(name) if is_server_name(name) => TerminalServer::Named(name),
            Some(address) => match address.split_once('/') {
                Some((host, name)) if is_server_name(host) && is_server_name(name) => TerminalServer::At(address),
                _ => return Err(refuse()),
            },
        };
        Ok(Self { server, pane })
    }
}

fn is_server_name(name: &str) -> bool {
    let visible = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.');
    !name.is_empty() && name.len() <= 64 && !name.starts_with('.') && name.chars().all(visible)
}

/// Checks a terminal's id. Error: `INVALID_TARGET`.
pub fn check_terminal(id: &str) -> Result<()> {
    TerminalId::parse(id).map(drop)
}

/// Returns whether a word is valid as an id or a provider's name.
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
        for (id, server) in [
            ("%3", TerminalServer::Default),
            ("work/%3", TerminalServer::Named("work")),
            ("box/work/%3", TerminalServer::At("box/work")),
            ("/tmp/a/x/%3", TerminalServer::At("/tmp/a/x")),
        ] {
            assert_eq!(TerminalId::parse(id).unwrap(), TerminalId { server, pane: "%3" }, "{id}");
        }
        let session = Selector::Session { provider: "claude".into(), id: "a:b".into() };
        assert_eq!(read("session:claude:a:b"), session);
    }

    #[test]
    fn tmux_targets_and_shorthands_are_refused_with_the_valid_forms() {
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
            "terminal:a/b/c/%1",
            "terminal:host//%1",
            "terminal:host//tmp/x/%1",
            "terminal://%1",
            "terminal:/tmp/a b/%1",
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
