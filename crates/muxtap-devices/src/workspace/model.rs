//! The entities of a workspace: tabs, panes, and the tree that places panes in a tab.

use serde::{Deserialize, Serialize};

/// A tab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tab {
    /// The tab's id, such as `t1`; never reused.
    pub id: String,
    /// The device that owns it.
    pub owner_device_id: String,
    /// The tab's title.
    pub title: String,
    /// Pending while all of its panes are pending.
    pub status: Status,
    /// When the tab was made, in milliseconds since 1970.
    pub created_at: u64,
    /// When the tab was last changed, in milliseconds since 1970.
    pub updated_at: u64,
    /// The workspace's revision at the tab's last change.
    pub layout_revision: u64,
    /// The id of the active pane.
    pub active_pane_id: String,
    /// The tree that places the tab's panes.
    pub layout: Node,
}

/// A pane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pane {
    /// The pane's id, such as `p2`; never reused.
    pub id: String,
    /// The id of the pane's tab.
    pub tab_id: String,
    /// The device that owns it.
    pub owner_device_id: String,
    /// The kind of the pane's content.
    pub kind: PaneKind,
    /// Pending while the pane is reserved for content that is being made.
    pub status: Status,
    /// The terminal or session that the pane shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_ref: Option<ContentRef>,
    /// A browser pane's URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// An editor pane's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// When the pane was last changed, in milliseconds since 1970.
    pub updated_at: u64,
    /// The workspace's revision at the pane's last change.
    pub layout_revision: u64,
    /// A pending pane's reserver. Only the state file has it: no response and no snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserver: Option<Reserver>,
}

/// The command that reserved a pane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reserver {
    /// The device that sent it.
    pub caller: String,
    /// The SHA-256 of the key with which the pane is finalized, in hexadecimal digits.
    pub finalize_key: String,
}

/// Whether a tab or pane has its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The content exists.
    Ready,
    /// The pane is reserved.
    Pending,
}

/// The kind of a pane's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PaneKind {
    /// A terminal.
    Terminal,
    /// A web page.
    Browser,
    /// A file.
    Editor,
    /// A session of a coding agent.
    ClaudeChat,
    /// No content yet: the person at the device chooses it.
    Picker,
}

impl PaneKind {
    /// Returns the name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Terminal => "terminal",
            Self::Browser => "browser",
            Self::Editor => "editor",
            Self::ClaudeChat => "claude-chat",
            Self::Picker => "picker",
        }
    }
}

/// The process or session that a pane shows; the server owns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ContentRef {
    /// A terminal's id: `%3`, `NAME/%3`, `HOST/NAME/%3` or `/PATH/%3`.
    TerminalId(String),
    /// An agent session: `PROVIDER:ID`.
    SessionRef(String),
}

/// The direction of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Side by side, as tmux's `-h`.
    Horizontal,
    /// One above the other.
    Vertical,
}

/// A place in a tab: a pane, or a place that is split in two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Node {
    /// A pane's id.
    Pane(String),
    /// Two places.
    Split(Box<Split>),
}

/// A split place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Split {
    /// The direction of the split.
    pub direction: Direction,
    /// The share of `first` in percent, 1 to 99.
    pub percent: u8,
    /// The left or upper place.
    pub first: Node,
    /// The right or lower place.
    pub second: Node,
}

impl Node {
    /// Calls `found` with each pane's id, from left to right and top to bottom.
    pub fn each<'a>(&'a self, found: &mut impl FnMut(&'a str)) {
        match self {
            Self::Pane(id) => found(id),
            Self::Split(split) => {
                split.first.each(found);
                split.second.each(found);
            }
        }
    }

    /// Returns the panes' ids, from left to right and top to bottom.
    pub fn panes(&self) -> Vec<&str> {
        let mut panes = Vec::new();
        self.each(&mut |id| panes.push(id));
        panes
    }

    /// Returns the number of splits above the deepest pane.
    pub fn depth(&self) -> usize {
        match self {
            Self::Pane(_) => 0,
            Self::Split(split) => 1 + split.first.depth().max(split.second.depth()),
        }
    }

    /// Puts pane `new` beside or below pane `at`. `false`: `at` is not in the tree.
    pub fn split(&mut self, at: &str, direction: Direction, new: &str) -> bool {
        match self {
            Self::Pane(id) if id == at => {
                let first = Self::Pane(id.clone());
                let second = Self::Pane(new.to_owned());
                *self = Self::Split(Box::new(Split { direction, percent: 50, first, second }));
                true
            }
            Self::Pane(_) => false,
            Self::Split(split) => split.first.split(at, direction, new) || split.second.split(at, direction, new),
        }
    }

    /// Returns the tree without a pane, whose place its sibling takes. `None`: the tree is empty.
    pub fn without(self, gone: &str) -> Option<Self> {
        match self {
            Self::Pane(id) if id == gone => None,
            Self::Pane(_) => Some(self),
            Self::Split(split) => {
                let Split { direction, percent, first, second } = *split;
                match (first.without(gone), second.without(gone)) {
                    (Some(first), Some(second)) => {
                        Some(Self::Split(Box::new(Split { direction, percent, first, second })))
                    }
                    (one, other) => one.or(other),
                }
            }
        }
    }

    /// Replaces each pane's id by the one that `new` returns for it, if any.
    pub fn rename(&mut self, new: &impl Fn(&str) -> Option<String>) {
        match self {
            Self::Pane(id) => {
                if let Some(new) = new(id) {
                    *id = new;
                }
            }
            Self::Split(split) => {
                split.first.rename(new);
                split.second.rename(new);
            }
        }
    }

    /// Sets the share of a pane's side of the nearest split in this direction, in percent.
    ///
    /// `None`: the pane is not in the tree. `Some(false)`: no split above it has the direction.
    pub fn resize(&mut self, pane: &str, direction: Direction, percent: u8) -> Option<bool> {
        match self {
            Self::Pane(id) => (id == pane).then_some(false),
            Self::Split(split) => {
                let (found, own) = match split.first.resize(pane, direction, percent) {
                    Some(done) => (done, percent),
                    None => (split.second.resize(pane, direction, percent)?, 100u8.saturating_sub(percent)),
                };
                if !found && split.direction == direction {
                    split.percent = own;
                    return Some(true);
                }
                Some(found)
            }
        }
    }

    /// Returns whether each split's share is between 1 and 99 percent.
    pub fn is_shared_well(&self) -> bool {
        match self {
            Self::Pane(_) => true,
            Self::Split(split) => {
                (1..=99).contains(&split.percent) && split.first.is_shared_well() && split.second.is_shared_well()
            }
        }
    }
}
