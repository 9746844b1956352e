//! Targets that mean many panes: all of a session or a window, and patterns with `*`.

use std::sync::Arc;

use muxtap_api::{AgentInfo, Error, ErrorCode, Labels, PaneInfo, Result, SessionInfo, WindowInfo};
use muxtap_base::glob::Glob;
use muxtap_core::protocol::ids::{PaneId, SessionId, WindowId};

use super::targets::{Finder, Found, PanePart, Selector, SessionPart, Target, WindowPart, is_selector};

use crate::{PaneState, Server, limits};

/// The names by which a pattern matches a session, a window or a pane.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The session's name.
    pub session: &'a str,
    /// The session's id.
    pub session_id: &'a str,
    /// The window; `None` for a whole session, and for a pane whose window is no longer known.
    pub window: Option<WindowNames<'a>>,
    /// The pane's id, and its index in the window; `None` for a whole session or window.
    pub pane: Option<(PaneId, u32)>,
    /// The pane's labels; `None` for a whole session or window, and where they are not known.
    pub labels: Option<&'a Labels>,
}

/// The names of a window.
#[derive(Clone, Copy, Debug)]
pub struct WindowNames<'a> {
    /// The window's id.
    pub id: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its index in the session.
    pub index: u32,
}

impl<'a> From<&'a SessionInfo> for Names<'a> {
    fn from(session: &'a SessionInfo) -> Self {
        Self { session: &session.name, session_id: &session.id, window: None, pane: None, labels: None }
    }
}

impl<'a> From<&'a WindowInfo> for Names<'a> {
    fn from(window: &'a WindowInfo) -> Self {
        Self {
            session: &window.session,
            session_id: &window.session_id,
            window: Some(WindowNames { id: &window.id, name: &window.name, index: window.index }),
            pane: None,
            labels: None,
        }
    }
}

impl<'a> From<&'a PaneInfo> for Names<'a> {
    fn from(pane: &'a PaneInfo) -> Self {
        let window = WindowNames { id: &pane.window_id, name: &pane.window, index: pane.window_index };
        Self {
            session: &pane.session,
            session_id: &pane.session_id,
            window: Some(window).filter(|window| !window.id.is_empty()),
            pane: Some((pane.id, pane.index)),
            // Those of a pane that has ended are not known.
            labels: Some(&pane.labels).filter(|_| !pane.window_id.is_empty()),
        }
    }
}

impl<'a> From<&'a AgentInfo> for Names<'a> {
    fn from(agent: &'a AgentInfo) -> Self {
        Self {
            session: &agent.session,
            session_id: &agent.session_id,
            window: Some(WindowNames { id: &agent.window_id, name: &agent.window, index: agent.window_index }),
            pane: Some((agent.pane, agent.index)),
            labels: None,
        }
    }
}

/// The targets of a list or a subscription; an empty list means everything.
#[derive(Clone, Debug, Default)]
pub struct Scopes(Vec<Scope>);

impl Scopes {
    /// Returns whether the targets include a pane, a window, a session or an agent.
    pub fn include<'a>(&self, named: impl Into<Names<'a>>) -> bool {
        let named = named.into();
        self.0.is_empty() || self.0.iter().any(|scope| scope.matches(named))
    }

    /// Returns whether some target selects by labels, which change.
    pub(crate) fn select(&self) -> bool {
        self.0.iter().any(|scope| matches!(scope, Scope::Labels(_)))
    }

    /// Returns whether some target selects a pane with these labels.
    pub(crate) fn select_labels(&self, labels: &Labels) -> bool {
        self.0.iter().any(|scope| matches!(scope, Scope::Labels(selector) if selector.matches(labels)))
    }

    /// Iterates over the targets in their order.
    pub(crate) fn each(&self) -> std::slice::Iter<'_, Scope> {
        self.0.iter()
    }
}

/// A target parsed once for many panes: one pane, all panes of a window or a session, or those that
/// match a pattern. It also includes panes created later.
#[derive(Clone, Debug)]
pub(crate) enum Scope {
    /// One pane.
    Pane(PaneId),
    /// A window.
    Window(WindowId),
    /// Panes by their labels.
    Labels(Selector),
    /// A session, a window or a pane by names and indexes.
    Named {
        /// The session's name or id.
        session: String,
        /// The window's name, index or id; `None` for any.
        window: Option<String>,
        /// The pane's index; `None` for any.
        pane: Option<u32>,
    },
    /// A pattern, in which `*` matches any run of characters.
    Pattern {
        /// The sessions of the pattern.
        session: SessionScope,
        /// The window, or `window.pane`.
        window: Glob,
    },
}

/// The sessions of a pattern.
#[derive(Clone, Debug)]
pub(crate) enum SessionScope {
    /// All sessions whose names match.
    Named(Glob),
    /// The caller's own session.
    One(SessionId),
}

/// Returns whether a target, perhaps with its host, may mean many panes, including future ones.
pub fn is_pattern(target: &str) -> bool {
    let behind_host = target.split_once('/').filter(|(host, _)| !host.contains('{'));
    target.contains('*') || is_selector(behind_host.map_or(target, |(_, target)| target))
}

/// Rejects more targets than a request may have, and longer ones.
fn check_targets(panes: &[String]) -> Result<()> {
    if panes.len() > limits::SUBSCRIPTION_TARGETS {
        let (given, most) = (panes.len(), limits::SUBSCRIPTION_TARGETS);
        let message = format!("too many targets: {given}; at most {most} are allowed");
        return Err(Error::new(ErrorCode::ResourceLimit, message));
    }
    if let Some(long) = panes.iter().find(|target| target.len() > limits::TARGET_BYTES) {
        let (given, most) = (long.len(), limits::TARGET_BYTES);
        return Err(Error::invalid(format!("target too long: {given} bytes; at most {most} are allowed")));
    }
    Ok(())
}

impl Scope {
    /// Returns whether a target includes a pane, a window or a session. A target of one pane does
    /// not include its whole window or session.
    fn matches(&self, named: Names<'_>) -> bool {
        match self {
            Self::Pane(id) => named.pane.is_some_and(|(pane, _)| pane == *id),
            Self::Labels(selector) => named.labels.is_some_and(|labels| selector.matches(labels)),
            Self::Window(id) => named.window.is_some_and(|window| window.id == id.to_string()),
            Self::Named { session, window, pane } => {
                (session == named.session || session == named.session_id)
                    && window.as_ref().is_none_or(|wanted| {
                        named.window.is_some_and(|window| {
                            wanted == window.name || *wanted == window.index.to_string() || wanted == window.id
                        })
                    })
                    && pane.is_none_or(|wanted| named.pane.is_some_and(|(_, index)| index == wanted))
            }
            Self::Pattern { session, window } => {
                let is_in = match session {
                    SessionScope::Named(glob) => glob.matches(named.session),
                    SessionScope::One(id) => named.session_id == id.to_string(),
                };
                is_in
                    && match named.window {
                        None => window.matches(""),
                        Some(WindowNames { name, index, .. }) => {
                            window.matches(name)
                                || window.matches(&index.to_string())
                                || named.pane.is_some_and(|(_, pane)| {
                                    window.matches(&format!("{index}.{pane}"))
                                        || window.matches(&format!("{name}.{pane}"))
                                })
                        }
                    }
            }
        }
    }

    /// Parses a target that means the same for every caller; `None` if its meaning depends on the
    /// caller's place.
    fn absolute(text: &str) -> Result<Option<Self>> {
        if is_selector(text) {
            return text.parse().map(|selector| Some(Self::Labels(selector)));
        }
        if is_pattern(text) {
            let (session, window) = text.split_once(':').unwrap_or((text, "*"));
            let session = SessionScope::Named(Glob::new(session.strip_prefix('=').unwrap_or(session)));
            let is_own = text.starts_with(':');
            return Ok((!is_own).then(|| Self::Pattern { session, window: Glob::new(window) }));
        }
        let target: Target = text.parse()?;
        if target.is_relative() {
            return Ok(None);
        }
        Ok(match target {
            Target::Pane(id) => Some(Self::Pane(id)),
            Target::Window(id) => Some(Self::Window(id)),
            Target::Labels(selector) => Some(Self::Labels(selector)),
            Target::Number(number) => return Err(Error::bare_number(&number, &[])),
            Target::Place { session: SessionPart::Named(session), window, pane } => Some(Self::Named {
                session,
                window: window.and_then(|window| match window {
                    WindowPart::Name(name) => Some(name),
                    WindowPart::Sign(_) => None,
                }),
                pane: pane.and_then(|pane| match pane {
                    PanePart::Index(index) => Some(index),
                    PanePart::Sign(_) => None,
                }),
            }),
            _ => None,
        })
    }
}

impl Server {
    /// Resolves the targets of a list or a subscription for this caller. tmux is queried only if a
    /// target is relative to the caller's place, or is a name that may be a window's.
    ///
    /// Errors: `INVALID_TARGET`, `AMBIGUOUS_TARGET`; `NOT_FOUND` for a place that does not exist;
    /// `RESOURCE_LIMIT` for too many targets.
    pub async fn scopes(&self, targets: &[String]) -> Result<Scopes> {
        check_targets(targets)?;
        let mut scopes = Vec::with_capacity(targets.len());
        for target in targets {
            scopes.push(match Scope::absolute(target)? {
                Some(scope) => scope,
                None => self.scope(target).await?,
            });
        }
        Ok(Scopes(scopes))
    }

    /// Returns whether targets include an agent, whose pane's labels are those of the last listing.
    pub fn include_agent(&self, scopes: &Scopes, agent: &AgentInfo) -> bool {
        let topology = self.host.server().topology();
        let labels = topology.pane(agent.pane).map(|row| &row.labels);
        scopes.include(Names { labels, ..agent.into() })
    }

    /// Resolves the targets of a list of sessions, like [`Self::scopes`]. Such a target can only
    /// mean a session, so a number is a session's name.
    pub async fn session_scopes(&self, targets: &[String]) -> Result<Scopes> {
        let named = |target: &String| if crate::is_number(target) { format!("{target}:") } else { target.clone() };
        self.scopes(&targets.iter().map(named).collect::<Vec<_>>()).await
    }

    /// Resolves one target from the caller's place.
    async fn scope(&self, text: &str) -> Result<Scope> {
        let named = |session: &str| Scope::Named { session: session.to_owned(), window: None, pane: None };
        let topology = match self.host.server().fresh().await {
            Ok(topology) => topology.without_hubs(),
            // The name may belong to a future session.
            Err(error) => match text.parse()? {
                Target::Name(name) if !is_pattern(text) => return Ok(named(&name)),
                _ => return Err(error),
            },
        };
        let finder = Finder::new(&topology, self.from);
        if let Some(window) = text.strip_prefix(':').filter(|_| is_pattern(text)) {
            let session = SessionScope::One(finder.current_session()?);
            return Ok(Scope::Pattern { session, window: Glob::new(window) });
        }
        let target: Target = text.parse()?;
        let is_pane = match &target {
            Target::Name(name) => {
                return match finder.window_of_name(name)? {
                    Some(window) => Ok(Scope::Window(window)),
                    None => Ok(named(name)),
                };
            }
            Target::Place { window: None, pane: None, .. } => {
                return Ok(named(&finder.current_session()?.to_string()));
            }
            Target::Place { pane, .. } => pane.is_some(),
            _ => true,
        };
        if is_pane {
            return self.locate_pane(text).await.map(Scope::Pane);
        }
        match finder.window(&target)? {
            Found::Here(row) => Ok(Scope::Window(row.id)),
            Found::Ask(_) => self.window(text).await.map(|row| Scope::Window(row.id)),
        }
    }

    /// Returns the panes that match a pattern now, each followed. With `dead`, includes panes that
    /// tmux keeps after their processes have ended.
    ///
    /// Errors: `NOT_FOUND` if no pane matches; the errors of a target.
    pub(crate) async fn fitting(&self, pattern: &str, dead: bool) -> Result<Vec<Arc<PaneState>>> {
        let scopes = self.scopes(&[pattern.to_owned()]).await?;
        let listed = self.panes().await?;
        let (mut panes, mut ended) = (Vec::new(), 0);
        for info in listed.iter().filter(|info| scopes.include(*info)) {
            if info.dead && !(dead && self.host.live_pane(info.id).is_some() && !info.earlier_server) {
                ended += 1;
                continue;
            }
            match self.resolve_seen(&info.id.to_string()).await {
                Ok(pane) => panes.push(pane),
                // The pane has ended meanwhile.
                Err(error) if error.code == ErrorCode::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        if panes.is_empty() {
            let why = match ended {
                0 => format!("no pane matches `{pattern}`"),
                _ => format!("no running pane matches {pattern}: {ended} have ended"),
            };
            return Err(Error::not_found(format!("{why}; `muxtap list-panes` shows what is there")));
        }
        Ok(panes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches<'a>(text: &str, named: impl Into<Names<'a>>) -> bool {
        Scope::absolute(text).unwrap().unwrap().matches(named.into())
    }

    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        let info = PaneInfo {
            session: "work".into(),
            window: "build-api".into(),
            window_id: "@4".into(),
            window_index: 2,
            index: 0,
            labels: Labels::parse("role=build"),
            ..PaneInfo::of(PaneId(1))
        };
        for yes in [
            "%1",
            "work:",
            "work:2",
            "work:build-api.0",
            "w*",
            "work:*",
            "work:build-*",
            "*:*api",
            "=w*:2",
            "work:2.*",
            "{role=b*}",
        ] {
            assert!(matches(yes, &info), "{yes}");
        }
        for refused in ["2", "", "{a=1,b}"] {
            assert!(Scope::absolute(refused).is_err(), "{refused:?}");
        }
        for relative in ["work:+1", "work:.-1", "+1", ":2", ".1", ":w*", "work"] {
            assert!(Scope::absolute(relative).unwrap().is_none(), "{relative}");
        }
        for no in ["%2", "wor:", "work:1", "x*", "work:test*", "work:2.1", "{role=test}"] {
            assert!(!matches(no, &info), "{no}");
        }
    }

    /// Without labels, each `!=` would match.
    #[test]
    fn labels_of_an_ended_pane_are_not_known() {
        let listed = PaneInfo { window_id: "@4".into(), ..PaneInfo::of(PaneId(1)) };
        let ended = PaneInfo { dead: true, ..PaneInfo::of(PaneId(1)) };
        for selector in ["{role!=test}", "{role=}", "{role!=test,team=}"] {
            assert!(matches(selector, &listed) && !matches(selector, &ended), "{selector}");
        }
    }

    #[test]
    fn a_selector_is_a_pattern_also_on_a_host() {
        for yes in ["w*", "{a=1}", "box/{a=1}", "box/{a=x/y}", "{a=x/y}"] {
            assert!(is_pattern(yes), "{yes}");
        }
        for no in ["w", "{last}", "box/{last}", "{a=1", "w:{a=1}"] {
            assert!(!is_pattern(no), "{no}");
        }
    }

    #[test]
    fn a_pane_names_neither_its_window_nor_its_session() {
        let window = Names {
            session: "work",
            session_id: "$0",
            window: Some(WindowNames { id: "@0", name: "sh", index: 0 }),
            pane: None,
            labels: None,
        };
        let session = Names { window: None, ..window };
        for (pattern, is_window, is_session) in [
            ("%0", false, false),
            ("work:0.0", false, false),
            ("@0", true, false),
            ("work:0", true, false),
            ("work:sh", true, false),
            ("work:", true, true),
            ("$0", true, true),
            ("w*", true, true),
            ("work:s*", true, false),
            ("{a!=b}", false, false),
        ] {
            assert_eq!((matches(pattern, window), matches(pattern, session)), (is_window, is_session), "{pattern}");
        }
    }
}
