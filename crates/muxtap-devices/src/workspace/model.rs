//! The things of a workspace: tabs, panes, and the tree that places panes in a tab.

use serde::{Deserialize, Serialize};

/// A tab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tab {
    /// Its id, as `t1`; never used again.
    pub id: String,
    /// The device that owns it.
    pub owner_device_id: String,
    /// Its title.
    pub title: String,
    /// Pending while all of its panes are.
    pub status: Status,
    /// When it was made, in milliseconds since 1970.
    pub created_at: u64,
    /// When it was changed last, in milliseconds since 1970.
    pub updated_at: u64,
    /// The workspace's revision at its last change.
    pub layout_revision: u64,
    /// The active pane.
    pub active_pane_id: String,
    /// The places of its panes.
    pub layout: Node,
}

/// A pane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pane {
    /// Its id, as `p2`; never used again.
    pub id: String,
    /// The tab in which it is.
    pub tab_id: String,
    /// The device that owns it.
    pub owner_device_id: String,
    /// The kind of its content.
    pub kind: PaneKind,
    /// Pending while it is reserved for what is being made.
    pub status: Status,
    /// The terminal or session that it shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_ref: Option<ContentRef>,
    /// A browser's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// An editor's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// When it was changed last, in milliseconds since 1970.
    pub updated_at: u64,
    /// The workspace's revision at its last change.
    pub layout_revision: u64,
}

/// Whether a tab or pane has its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Has its content.
    Ready,
    /// Reserved.
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
    /// Nothing yet: its person chooses.
    Picker,
}

impl PaneKind {
    /// The word on the wire.
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
    /// A terminal: `%3` or `NAME/%3`.
    TerminalId(String),
    /// A session: `PROVIDER:ID`.
    SessionRef(String),
}

/// The direction of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// One beside the other, as tmux's `-h`.
    Horizontal,
    /// One above the other.
    Vertical,
}

/// A place in a tab: a pane, or a place that is split in two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Node {
    /// A pane, by its id.
    Pane(String),
    /// Two places.
    Split(Box<Split>),
}

/// A split place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Split {
    /// How it is split.
    pub direction: Direction,
    /// Percent of it that the first has, 1 to 99.
    pub percent: u8,
    /// On the left, or above.
    pub first: Node,
    /// On the right, or below.
    pub second: Node,
}

impl Node {
    /// Calls with each pane's id, from the left and top on.
    pub fn each<'a>(&'a self, found: &mut impl FnMut(&'a str)) {
        match self {
            Self::Pane(id) => found(id),
            Self::Split(split) => {
                split.first.each(found);
                split.second.each(found);
            }
        }
    }

    /// Returns the panes' ids, from the left and top on.
    pub fn panes(&self) -> Vec<&str> {
        let mut panes = Vec::new();
        self.each(&mut |id| panes.push(id));
        panes
    }

    /// Returns how many splits are above the deepest pane.
    pub fn depth(&self) -> usize {
        match self {
            Self::Pane(_) => 0,
            Self::Split(split) => 1 + split.first.depth().max(split.second.depth()),
        }
    }

    /// Puts another pane beside or below one. `false`: that one is not here.
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

    /// Returns the tree without a pane, whose place its neighbour takes. `None`: nothing is left.
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

    /// Gives each pane the id that this returns for its own.
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

    /// Gives a pane's side of the nearest split in this direction so many percent. `None`: the pane is not here.
    /// `Some(false)`: no split above it has the direction.
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
