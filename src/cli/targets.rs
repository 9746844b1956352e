//! Matching of panes with targets and patterns, for the lists that commands make themselves.

use crate::{api::PaneInfo, engine::Names, glob::Glob};

/// Returns the pane's place in words: `session:window.pane`.
pub(super) fn label(pane: &PaneInfo) -> String {
    format!("{}:{}.{}", pane.session, pane.window_index, pane.index)
}

/// Returns whether a target is a pattern, which may name many panes and panes to come.
pub(super) fn is_pattern(target: &str) -> bool {
    target.contains('*')
}

/// Returns whether `target` names the pane, or the window or session it is in. Names and indexes
/// count exactly; a `*` stands for any run of characters. A whole window is not named by a pane.
pub(super) fn names<'a>(target: &str, named: impl Into<Names<'a>>) -> bool {
    let named: Names<'a> = named.into();
    let target = ["terminal:", "pane:"]
        .iter()
        .find_map(|prefix| target.strip_prefix(prefix).filter(|id| id.starts_with('%')))
        .unwrap_or(target);
    if target.starts_with('%') {
        return named.pane.is_some_and(|(id, _)| target == id.to_string());
    }
    if target.starts_with('@') && !target.contains('.') {
        return named.window.is_some_and(|window| target == window.id);
    }
    let (session, rest) = match target.split_once(':') {
        Some((session, rest)) => (session, Some(rest)),
        None => (target, None),
    };
    if session != named.session_id && !Glob::new(session).matches(named.session) {
        return false;
    }
    let Some(rest) = rest.filter(|rest| !rest.is_empty()) else { return true };
    let is_window = |wanted: &str| match named.window {
        None => Glob::new(wanted).matches(""),
        Some(window) => {
            wanted == window.id
                || Glob::new(wanted).matches(window.name)
                || Glob::new(wanted).matches(&window.index.to_string())
        }
    };
    let is_pane = |wanted: &str| {
        named.pane.is_some_and(|(id, index)| wanted == id.to_string() || Glob::new(wanted).matches(&index.to_string()))
    };
    // A window's name may hold dots, so the whole is tried as a window first.
    is_window(rest) || rest.rsplit_once('.').is_some_and(|(window, pane)| is_window(window) && is_pane(pane))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ids::PaneId;

    fn pane() -> PaneInfo {
        PaneInfo {
            session: "work".into(),
            session_id: "$1".into(),
            window_id: "@4".into(),
            window_index: 2,
            window: "v1.2 logs".into(),
            index: 0,
            ..PaneInfo::of(PaneId(7))
        }
    }

    #[test]
    fn a_pane_has_many_names() {
        for target in [
            "%7",
            "pane:%7",
            "terminal:%7",
            "@4",
            "$1",
            "$1:",
            "work",
            "work:",
            "work:2",
            "work:2.0",
            "work:v1.2 logs",
            "work:v1.2 logs.0",
            "work:@4",
            "work:2.%7",
        ] {
            assert!(names(target, &pane()), "{target}");
        }
    }

    #[test]
    fn a_prefix_is_not_a_match() {
        for target in ["%", "%70", "@", "$10", "wor", "works", "work:v1", "work:20", "work:2.1", "work:2.00", ":2", ""]
        {
            assert!(!names(target, &pane()), "{target}");
        }
    }

    #[test]
    fn a_star_stands_for_anything() {
        for target in ["*", "w*", "*k", "w*r*k", "work:*", "*:*", "*:2", "work:*logs", "work:*.0", "work:v*.*"] {
            assert!(names(target, &pane()), "{target}");
        }
        for target in ["x*", "*x", "work:*x", "work:*.1", "wo*ork"] {
            assert!(!names(target, &pane()), "{target}");
        }
    }
}
