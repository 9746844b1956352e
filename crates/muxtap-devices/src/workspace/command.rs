//! The commands of a workspace, as an RPC names them.

use muxtap_api::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Change, ContentRef, Direction, Layout};

/// A command and its arguments. Targets are selectors; `tab` is the tab that `pane-index:` needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "command",
    content = "args",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Command {
    /// Makes a tab with one pane: a page, a file, or a picker.
    NewTab {
        /// The tab's title; its id by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// The URL of the pane's web page.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        browser: Option<String>,
        /// The path of the pane's file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        editor: Option<String>,
    },
    /// Makes a tab the active one.
    SelectTab {
        /// The tab.
        target: String,
    },
    /// Removes a tab and its panes. Terminals live on.
    KillTab {
        /// The tab.
        target: String,
    },
    /// Changes a tab's title.
    RenameTab {
        /// The tab.
        target: String,
        /// The title.
        title: String,
    },
    /// Splits a pane, for a web page, a file, or a picker.
    SplitPane {
        /// The pane.
        target: String,
        /// The pane's tab.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tab: Option<String>,
        /// The direction of the split.
        direction: Direction,
        /// The URL of the new pane's web page.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        browser: Option<String>,
        /// The path of the new pane's file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        editor: Option<String>,
    },
    /// Makes a pane the active one of its tab, and that tab the active one.
    SelectPane {
        /// The pane.
        target: String,
        /// The pane's tab.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tab: Option<String>,
    },
    /// Removes a pane, and with the last one its tab. A terminal lives on.
    KillPane {
        /// The pane.
        target: String,
        /// The pane's tab.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tab: Option<String>,
    },
    /// Sets the share of a pane's side of the nearest split.
    ResizePane {
        /// The pane.
        target: String,
        /// The pane's tab.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tab: Option<String>,
        /// Percent of the width, 1 to 99.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        x: Option<u8>,
        /// Percent of the height, 1 to 99.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        y: Option<u8>,
    },
    /// Exchanges the places of two panes.
    SwapPane {
        /// The one pane.
        source: String,
        /// The other pane.
        target: String,
        /// The tab of both.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tab: Option<String>,
    },
    /// Shows a web page in a pane, whatever it showed before.
    OpenBrowser {
        /// The pane.
        target: String,
        /// The pane's tab.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tab: Option<String>,
        /// The page's URL: http or https.
        url: String,
    },
    /// Loads another page in a browser pane.
    Navigate {
        /// The pane.
        target: String,
        /// The pane's tab.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tab: Option<String>,
        /// The page's URL: http or https.
        url: String,
    },
    /// Shows a file in a pane, whatever it showed before.
    OpenEditor {
        /// The pane.
        target: String,
        /// The pane's tab.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tab: Option<String>,
        /// The file's path.
        file: String,
    },
    /// Shows a terminal in a pane, whatever it showed before.
    AttachTerminal {
        /// The terminal.
        target: String,
        /// The pane.
        to: String,
        /// The pane's tab.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tab: Option<String>,
    },
    /// Shows a terminal or a session in a pane, whatever it showed before.
    Bind {
        /// The pane.
        target: String,
        /// The pane's tab.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tab: Option<String>,
        /// The terminal or session to show.
        content_ref: ContentRef,
    },
    /// Reserves a pane for content that is being made: in a split of `target`, or in a new tab
    /// without one.
    Reserve {
        /// The pane to split.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target: Option<String>,
        /// The pane's tab.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tab: Option<String>,
        /// The direction of the split; horizontal by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        direction: Option<Direction>,
        /// The new tab's title.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// The command that the terminal will run, for the owner's person; the shell by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shell: Option<String>,
        /// The directory in which the terminal will start, for the owner's person.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
    },
    /// Puts content into a reserved pane.
    Finalize {
        /// The pane.
        pane: String,
        /// The pane's content.
        content_ref: ContentRef,
    },
    /// Removes a reserved pane.
    Release {
        /// The pane.
        pane: String,
    },
}

/// The command that changes nothing: its response is the snapshot.
pub const GET_WORKSPACE: &str = "get-workspace";

/// The names of all commands.
pub const NAMES: [&str; 17] = [
    "new-tab",
    "select-tab",
    "kill-tab",
    "rename-tab",
    "split-pane",
    "select-pane",
    "kill-pane",
    "resize-pane",
    "swap-pane",
    "open-browser",
    "navigate",
    "open-editor",
    "attach-terminal",
    "bind",
    "reserve",
    "finalize",
    "release",
];

/// A parsed request to an owner.
#[derive(Clone, Debug, PartialEq)]
pub enum RpcRead {
    /// Respond with the snapshot.
    Snapshot,
    /// Make a change.
    Change(Box<Change>),
}

impl RpcRead {
    /// Parses and checks the command of a request, as far as that does not depend on a workspace.
    /// Errors: `INVALID_ARGUMENT`, `INVALID_TARGET`.
    pub fn parse(
        command: &str,
        args: Value,
        expected_revision: Option<u64>,
        idempotency_key: Option<String>,
    ) -> Result<Self> {
        if command == GET_WORKSPACE {
            return Ok(Self::Snapshot);
        }
        if !NAMES.contains(&command) {
            return Err(Error::invalid(format!("unknown command {command:?}; expected one of {}", NAMES.join(", "))));
        }
        let args = if args.is_null() { json!({}) } else { args };
        let command: Command = serde_json::from_value(json!({ "command": command, "args": args }))
            .map_err(|error| Error::invalid(format!("{command}: {error}")))?;
        command.check()?;
        Ok(Self::Change(Box::new(Change { command, expected_revision, idempotency_key })))
    }
}

/// Returns whether the command of this name creates something, and therefore needs a key.
pub fn needs_key(command: &str) -> bool {
    matches!(command, "new-tab" | "split-pane" | "attach-terminal" | "bind" | "reserve" | "respawn-pane")
}

impl Command {
    /// Returns whether the command creates something, and must not run twice.
    pub fn needs_key(&self) -> bool {
        needs_key(&self.to_rpc().0)
    }

    /// Returns the command with ids in place of indexes and names, which mean something else after
    /// another device's change. Errors: those of [`Layout::find_tab`].
    pub fn with_ids(&self, layout: &Layout) -> Result<Self> {
        let in_tab = |target: &mut String, tab: Option<&str>| -> Result<()> {
            *target = format!("pane:{}", layout.find_pane(target, tab)?.id);
            Ok(())
        };
        let of_tab = |tab: &mut String| -> Result<()> {
            *tab = format!("tab:{}", layout.find_tab(tab)?.id);
            Ok(())
        };
        let mut fixed = self.clone();
        match &mut fixed {
            Self::NewTab { .. } | Self::Reserve { target: None, .. } | Self::Finalize { .. } | Self::Release { .. } => {
            }
            Self::SelectTab { target } | Self::KillTab { target } | Self::RenameTab { target, .. } => of_tab(target)?,
            Self::SwapPane { source, target, tab } => {
                in_tab(source, tab.as_deref())?;
                in_tab(target, tab.as_deref())?;
                tab.as_mut().map_or(Ok(()), of_tab)?;
            }
            Self::SplitPane { target, tab, .. }
            | Self::SelectPane { target, tab }
            | Self::KillPane { target, tab }
            | Self::ResizePane { target, tab, .. }
            | Self::OpenBrowser { target, tab, .. }
            | Self::Navigate { target, tab, .. }
            | Self::OpenEditor { target, tab, .. }
            | Self::AttachTerminal { to: target, tab, .. }
            | Self::Bind { target, tab, .. }
            | Self::Reserve { target: Some(target), tab, .. } => {
                in_tab(target, tab.as_deref())?;
                tab.as_mut().map_or(Ok(()), of_tab)?;
            }
        }
        Ok(fixed)
    }

    /// Returns whether a selector of the command is an index or a name.
    pub fn has_places(&self) -> bool {
        let args = self.to_rpc().1;
        ["target", "source", "to", "tab"]
            .into_iter()
            .filter_map(|name| args.get(name)?.as_str())
            .any(|selector| ["tab-name:", "tab-index:", "pane-index:"].iter().any(|form| selector.starts_with(form)))
    }

    /// Returns the command's name and arguments, as a request has them.
    pub fn to_rpc(&self) -> (String, Value) {
        let mut both = serde_json::to_value(self).unwrap_or_default();
        let name = both.get("command").and_then(Value::as_str).unwrap_or_default().to_owned();
        (name, both.get_mut("args").map(Value::take).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muxtap_api::ErrorCode;

    #[test]
    fn a_command_is_read_as_it_is_written_and_nothing_else_is() {
        let command = Command::SplitPane {
            target: "pane:p1".into(),
            tab: None,
            direction: Direction::Horizontal,
            browser: None,
            editor: None,
        };
        let (name, args) = command.to_rpc();
        assert_eq!((name.as_str(), &args), ("split-pane", &json!({"target": "pane:p1", "direction": "horizontal"})));
        let change = Change { command, expected_revision: Some(3), idempotency_key: Some("k".into()) };
        let read = RpcRead::parse(&name, args, Some(3), Some("k".into())).unwrap();
        assert_eq!(read, RpcRead::Change(Box::new(change)));
        assert_eq!(RpcRead::parse("get-workspace", Value::Null, None, None).unwrap(), RpcRead::Snapshot);
        for (command, args) in [
            ("nope", json!({})),
            ("NewTab", json!({})),
            ("new-tab", json!({"shell": "sh"})),
            ("select-tab", json!({})),
            ("select-tab", Value::Null),
            ("select-tab", json!({"target": "tab:t1", "also": 1})),
            ("split-pane", json!({"target": "pane:p1", "direction": "sideways"})),
            ("resize-pane", json!({"target": "pane:p1", "x": -1})),
            ("finalize", json!({"pane": "pane:p1", "contentRef": {"path": "x"}})),
            ("navigate", json!({"target": "pane:p1", "url": "javascript:alert(1)"})),
            ("resize-pane", json!({"target": "pane:p1"})),
            ("rename-tab", json!({"target": "tab:t1", "title": " "})),
            ("reserve", json!({"direction": "vertical"})),
        ] {
            let error = RpcRead::parse(command, args.clone(), Some(1), None).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidArgument, "{command} {args}");
        }
        for (command, args) in [
            ("select-tab", json!({"target": "work:1.0"})),
            ("kill-pane", json!({"target": "tab:t1"})),
            ("kill-pane", json!({"target": "pane-index:0"})),
            ("kill-pane", json!({"target": "pane:p1", "tab": "main"})),
            ("reserve", json!({"target": "%3"})),
            ("attach-terminal", json!({"target": "pane:p1", "to": "pane:p1"})),
            ("bind", json!({"target": "pane:p1", "contentRef": {"terminalId": "3"}})),
        ] {
            let error = RpcRead::parse(command, args.clone(), Some(1), None).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidTarget, "{command} {args}");
        }
    }

    #[test]
    fn indexes_and_names_become_ids() {
        let layout: Layout = serde_json::from_value(json!({
            "deviceId": "d", "workspaceRevision": 7, "activeTabId": "t1",
            "tabs": [{"id": "t1", "ownerDeviceId": "d", "title": "logs", "status": "ready", "createdAt": 1,
                "updatedAt": 1, "layoutRevision": 1, "activePaneId": "p2", "layout": {"pane": "p2"}}],
            "panes": [{"id": "p2", "tabId": "t1", "ownerDeviceId": "d", "kind": "picker", "status": "ready",
                "updatedAt": 1, "layoutRevision": 1}],
        }))
        .unwrap();
        let read = |command: &str, args: Value| match RpcRead::parse(command, args, None, None).unwrap() {
            RpcRead::Change(change) => change.command,
            RpcRead::Snapshot => panic!("no change"),
        };
        for (command, places, ids) in [
            ("kill-tab", json!({"target": "tab-index:0"}), json!({"target": "tab:t1"})),
            (
                "kill-pane",
                json!({"target": "pane-index:0", "tab": "tab-name:logs"}),
                json!({"target": "pane:p2", "tab": "tab:t1"}),
            ),
            (
                "attach-terminal",
                json!({"target": "terminal:%3", "to": "pane-index:0", "tab": "tab-index:0"}),
                json!({"target": "terminal:%3", "to": "pane:p2", "tab": "tab:t1"}),
            ),
            (
                "swap-pane",
                json!({"source": "pane-index:0", "target": "pane:p2", "tab": "tab-index:0"}),
                json!({"source": "pane:p2", "target": "pane:p2", "tab": "tab:t1"}),
            ),
        ] {
            let command = read(command, places);
            let fixed = command.with_ids(&layout).unwrap();
            assert_eq!(fixed.to_rpc().1, ids);
            assert!(command.has_places() && !fixed.has_places());
        }
        let gone = read("kill-tab", json!({"target": "tab-index:1"}));
        assert_eq!(gone.with_ids(&layout).unwrap_err().code, ErrorCode::NotFound);
        let title = read("rename-tab", json!({"target": "tab:t1", "title": "tab-index:0"}));
        assert!(!title.has_places());
    }

    #[test]
    fn every_name_is_a_command() {
        for name in NAMES {
            let error = RpcRead::parse(name, json!({"no": 1}), None, None).unwrap_err();
            assert!(error.message.contains("unknown field") || error.message.contains("missing field"), "{error}");
        }
    }
}
