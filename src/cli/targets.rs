//! Panes in words, for people.

use crate::api::PaneInfo;

/// Returns the pane's place in words: `session:window.pane`.
pub(super) fn label(pane: &PaneInfo) -> String {
    format!("{}:{}.{}", pane.session, pane.window_index, pane.index)
}
