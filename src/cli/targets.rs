//! Matching of panes with targets and patterns, for the lists that commands make themselves.

use crate::{api::PaneInfo, glob::Glob};

/// Returns the pane's place in words: `session:window.pane`.
pub(super) fn label(pane: &PaneInfo) -> String {
    format!("{}:{}.{}", pane.session, pane.window_index, pane.index)
}

/// Returns whether a target is a pattern, which may name many panes and panes to come.
pub(super) fn is_pattern(target: &str) -> bool {
    target.contains('*')
}

/// Returns whether `target` names the pane, or the window or session it is in. Names and indexes
/// count exactly; a `*` stands for any run of characters.
pub(super) fn names_pane(target: &str, pane: &PaneInfo) -> bool {
    let target = ["terminal:", "pane:"]
        .iter()
        .find_map(|prefix| target.strip_prefix(prefix).filter(|id| id.starts_with('%')))
        .unwrap_or(target);
    if target.starts_with('%') {
        return target == pane.id.to_string();
    }
    if target.starts_with('@') && !target.contains('.') {
        return target == pane.window_id;
    }
    let (session, place) = match target.split_once(':') {
        Some((session, place)) => (session, Some(place)),
        None => (target, None),
    };
    if session != pane.session_id && !Glob::new(session).matches(&pane.session) {
        return false;
    }
    let Some(place) = place.filter(|place| !place.is_empty()) else { return true };
    let is_window = |window: &str| {
        window == pane.window_id
            || Glob::new(window).matches(&pane.window)
            || Glob::new(window).matches(&pane.window_index.to_string())
    };
    // A window's name may hold dots, so the whole is tried as a window first.
    is_window(place)
        || place.rsplit_once('.').is_some_and(|(window, index)| {
            is_window(window) && (index == pane.id.to_string() || Glob::new(index).matches(&pane.index.to_string()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ids::PaneId;

    fn pane() -> PaneInfo {
        PaneInfo {
            id: PaneId(7),
            session: "work".into(),
            session_id: "$1".into(),
            window_id: "@4".into(),
            window_index: 2,
            window: "v1.2 logs".into(),
            index: 0,
            ..PaneInfo::default()
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
            assert!(names_pane(target, &pane()), "{target}");
        }
    }

    #[test]
    fn a_prefix_is_not_a_match() {
        for target in ["%", "%70", "@", "$10", "wor", "works", "work:v1", "work:20", "work:2.1", "work:2.00", ":2", ""]
        {
            assert!(!names_pane(target, &pane()), "{target}");
        }
    }

    #[test]
    fn a_star_stands_for_anything() {
        for target in ["*", "w*", "*k", "w*r*k", "work:*", "*:*", "*:2", "work:*logs", "work:*.0", "work:v*.*"] {
            assert!(names_pane(target, &pane()), "{target}");
        }
        for target in ["x*", "*x", "work:*x", "work:*.1", "wo*ork"] {
            assert!(!names_pane(target, &pane()), "{target}");
        }
    }
}
