//! Commands about tabs and panes: classes L and H.

use clap::{ArgGroup, Subcommand};
use muxtap_devices::{
    hybrid::{Changed, Made, derived, make_terminal, reserve_key},
    workspace::{Command, ContentRef, Direction, Selector},
};
use serde_json::Value;

use super::{
    ChangeArgs, Context, DeviceArg, PaneArgs, SplitDirection, TabArgs,
    output::{change_answer, change_words, check_format, format, list_answer, shown, table},
    owner::{Reached, key_of},
    terminals::{NewTerminal, NotStarted},
    text,
};

use crate::{
    api::{Error, ErrorCode, Result},
    cli::{Outcome, output},
};

#[derive(Debug, Subcommand)]
pub(super) enum LayoutCommand {
    /// Create a tab with one pane, a terminal
    NewTab {
        /// The tab's title
        #[arg(short = 'n', long = "name", value_name = "NAME")]
        name: Option<String>,
        /// The command to run in the terminal (default: the shell)
        #[arg(long, value_name = "SHELL")]
        shell: Option<String>,
        /// Working directory (default: the caller's)
        #[arg(long, value_name = "DIR")]
        cwd: Option<String>,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// List tabs
    ListTabs {
        #[command(flatten)]
        device: DeviceArg,
        /// For an offline device: list what it published last
        #[arg(long)]
        allow_stale: bool,
    },
    /// Select a tab
    SelectTab {
        #[command(flatten)]
        tab: TabArgs,
    },
    /// Remove a tab; its terminals keep running
    KillTab {
        #[command(flatten)]
        tab: TabArgs,
    },
    /// Rename a tab
    RenameTab {
        #[command(flatten)]
        tab: TabArgs,
        /// The new title
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Split a pane for a terminal, a page, a file or a picker
    #[command(group(ArgGroup::new("content").args(["shell", "browser", "editor"])))]
    SplitPane {
        #[command(flatten)]
        pane: PaneArgs,
        /// Split side by side, or one above the other
        #[arg(long, value_name = "DIRECTION", value_enum)]
        direction: SplitDirection,
        /// Open a terminal with this command; empty for the shell
        #[arg(long, value_name = "SHELL", num_args = 0..=1, default_missing_value = "")]
        shell: Option<String>,
        /// Show a web page
        #[arg(long, value_name = "URL")]
        browser: Option<String>,
        /// Show a file
        #[arg(long, value_name = "FILE")]
        editor: Option<String>,
    },
    /// List panes
    ListPanes {
        #[command(flatten)]
        device: DeviceArg,
        /// List only panes of this tab
        #[arg(long, value_name = "TAB")]
        tab: Option<String>,
        /// For an offline device: list what it published last
        #[arg(long)]
        allow_stale: bool,
    },
    /// Select a pane
    SelectPane {
        #[command(flatten)]
        pane: PaneArgs,
    },
    /// Remove a pane; its terminal keeps running
    KillPane {
        #[command(flatten)]
        pane: PaneArgs,
    },
    /// Resize a pane within its split
    ResizePane {
        #[command(flatten)]
        pane: PaneArgs,
        /// Width in percent, 1 to 99
        #[arg(short = 'x', value_name = "WIDTH")]
        width: Option<u8>,
        /// Height in percent, 1 to 99
        #[arg(short = 'y', value_name = "HEIGHT")]
        height: Option<u8>,
    },
    /// Swap two panes
    SwapPane {
        /// The first pane
        #[arg(long, value_name = "PANE")]
        source: String,
        #[command(flatten)]
        pane: PaneArgs,
    },
    /// Show a web page in a pane
    OpenBrowser {
        #[command(flatten)]
        pane: PaneArgs,
        /// The page: http or https
        #[arg(value_name = "URL")]
        url: String,
    },
    /// Navigate a pane's page to another URL
    Navigate {
        #[command(flatten)]
        pane: PaneArgs,
        /// The page: http or https
        #[arg(value_name = "URL")]
        url: String,
    },
    /// Show a file in a pane
    OpenEditor {
        #[command(flatten)]
        pane: PaneArgs,
        /// The file
        #[arg(value_name = "FILE")]
        file: String,
    },
    /// Show a terminal in a pane; its process is unaffected
    AttachTerminal {
        /// The terminal: terminal:ID
        #[arg(short = 't', long, value_name = "TERMINAL")]
        target: String,
        /// The pane: pane:ID, or pane-index:N with --tab
        #[arg(long, value_name = "PANE")]
        to: String,
        /// The tab of pane-index:N
        #[arg(long, value_name = "TAB")]
        tab: Option<String>,
        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Restart the program of a pane's terminal
    RespawnPane {
        #[command(flatten)]
        pane: PaneArgs,
    },
    /// Print a format about a pane: %deviceId %tabId %tabTitle %paneId %paneKind %terminalId %sessionRef %ownerOnline
    /// %workspaceRevision, and %%
    Display {
        /// The format
        #[arg(short = 'p', value_name = "FORMAT")]
        format: String,
        /// The pane (default: the active one)
        #[arg(short = 't', long, value_name = "PANE")]
        target: Option<String>,
        /// The tab of pane-index:N
        #[arg(long, value_name = "TAB")]
        tab: Option<String>,
        #[command(flatten)]
        device: DeviceArg,
    },
}

impl LayoutCommand {
    /// Returns whether the command fails without the daemon. Others change this device's own file, which
    /// is at most not published then.
    pub(super) fn needs_daemon(&self) -> bool {
        let device = match self {
            Self::NewTab { .. }
            | Self::SplitPane { shell: Some(_), .. }
            | Self::AttachTerminal { .. }
            | Self::RespawnPane { .. } => return true,
            Self::ListTabs { device, .. } | Self::ListPanes { device, .. } | Self::Display { device, .. } => device,
            Self::SelectTab { tab } | Self::KillTab { tab } | Self::RenameTab { tab, .. } => &tab.change.device,
            Self::SplitPane { pane, .. }
            | Self::SelectPane { pane }
            | Self::KillPane { pane }
            | Self::ResizePane { pane, .. }
            | Self::SwapPane { pane, .. }
            | Self::OpenBrowser { pane, .. }
            | Self::Navigate { pane, .. }
            | Self::OpenEditor { pane, .. } => &pane.change.device,
        };
        device.device.is_some()
    }

    pub(super) async fn run(self, context: &Context<'_>) -> Outcome {
        let plain = match self {
            Self::NewTab { name, shell, cwd, change } => {
                let new = NewTerminal { shell, cwd };
                return terminal(context, change, Place { target: None, tab: None, direction: None, title: name }, new)
                    .await;
            }
            Self::SplitPane { pane, direction, shell: Some(shell), .. } => {
                let direction = Some(direction.into());
                let place = Place { target: Some(pane.target), tab: pane.tab, direction, title: None };
                let new = NewTerminal { shell: Some(shell).filter(|shell| !shell.is_empty()), cwd: None };
                return terminal(context, pane.change, place, new).await;
            }
            Self::ListTabs { device, allow_stale } => {
                let workspace = context.owner(device.device.as_deref())?.read(allow_stale).await?;
                let answer = list_answer(&workspace, "tabs", workspace.tabs.clone());
                let active = workspace.active_tab_id.unwrap_or_default();
                return context.print(&answer, |answer| tabs(answer, &active));
            }
            Self::ListPanes { device, tab, allow_stale } => {
                return list_panes(context, device.device.as_deref(), tab.as_deref(), allow_stale).await;
            }
            Self::Display { format: wanted, target, tab, device } => {
                return display(context, &wanted, target.as_deref(), tab.as_deref(), device.device.as_deref()).await;
            }
            Self::RespawnPane { pane } => return respawn(context, pane).await,
            Self::AttachTerminal { target, to, tab, change } => {
                let command = Command::AttachTerminal { target: target.clone(), to, tab };
                command.check()?;
                super::terminals::check_lives(context, &target).await?;
                (change, command)
            }
            Self::SelectTab { tab } => (tab.change, Command::SelectTab { target: tab.target }),
            Self::KillTab { tab } => (tab.change, Command::KillTab { target: tab.target }),
            Self::RenameTab { tab, name } => (tab.change, Command::RenameTab { target: tab.target, title: name }),
            Self::SplitPane { pane: PaneArgs { target, tab, change }, direction, browser, editor, .. } => {
                let direction = direction.into();
                (change, Command::SplitPane { target, tab, direction, browser, editor })
            }
            Self::SelectPane { pane: PaneArgs { target, tab, change } } => {
                (change, Command::SelectPane { target, tab })
            }
            Self::KillPane { pane: PaneArgs { target, tab, change } } => (change, Command::KillPane { target, tab }),
            Self::ResizePane { pane: PaneArgs { target, tab, change }, width, height } => {
                (change, Command::ResizePane { target, tab, x: width, y: height })
            }
            Self::SwapPane { source, pane: PaneArgs { target, tab, change } } => {
                (change, Command::SwapPane { source, target, tab })
            }
            Self::OpenBrowser { pane: PaneArgs { target, tab, change }, url } => {
                (change, Command::OpenBrowser { target, tab, url })
            }
            Self::Navigate { pane: PaneArgs { target, tab, change }, url } => {
                (change, Command::Navigate { target, tab, url })
            }
            Self::OpenEditor { pane: PaneArgs { target, tab, change }, file } => {
                (change, Command::OpenEditor { target, tab, file })
            }
        };
        let (change, command) = plain;
        changed(context, change, command).await
    }
}

/// The place of a new terminal: in a split of a pane, or in a new tab without one.
struct Place {
    target: Option<String>,
    tab: Option<String>,
    direction: Option<Direction>,
    title: Option<String>,
}

/// Applies a change and prints the response.
async fn changed(context: &Context<'_>, change: ChangeArgs, command: Command) -> Outcome {
    let owner = context.owner(change.device.device.as_deref())?;
    let key = key_of(&command.to_rpc().0, change.idempotency_key);
    let changed = owner.change(command, change.expected_revision, key.clone()).await?;
    context.print(&change_answer(changed, None, key), change_words)
}

/// Reserves a pane, creates its terminal, and prints both.
async fn terminal(context: &Context<'_>, change: ChangeArgs, place: Place, mut new: NewTerminal) -> Outcome {
    new.check(context.caller)?;
    let Place { target, tab, direction, title } = place;
    // The owner's person sees what will run.
    let reserve = Command::Reserve {
        target,
        tab,
        direction,
        title,
        shell: new.shell.clone(),
        cwd: new.directory(context.caller),
    };
    reserve.check()?;
    let mut owner = context.owner(change.device.device.as_deref())?;
    // A given key may be a repetition.
    let repeated = change.idempotency_key.is_some();
    let key = key_of("reserve", change.idempotency_key).unwrap_or_default();
    if repeated && let Some(first) = repeat(&owner, &reserve, change.expected_revision, &reserve_key(&key)).await? {
        return context.print(&change_answer(first.changed, Some(first.terminal), Some(key)), change_words);
    }
    let mut terminals = new.maker(context, owner.device());
    let made = make_terminal(&mut owner, &mut terminals, reserve, change.expected_revision, &key).await?;
    context.print(&change_answer(made.changed, Some(made.terminal), Some(key)), change_words)
}

/// Returns the first response for a key whose request is complete. `None`: the request is new, and
/// this key now reserves the pane. Error: `CONFLICT` if the first attempt was abandoned.
async fn repeat(owner: &Reached<'_>, reserve: &Command, expected: Option<u64>, key: &str) -> Result<Option<Made>> {
    let reserved = owner.change(reserve.clone(), expected, Some(key.to_owned())).await?;
    let id = muxtap_devices::hybrid::id_of(reserved.pane.as_ref()).unwrap_or_default();
    let layout = owner.layout().await?;
    let Some(pane) = layout.pane(&id) else {
        let message = "the first request with this key was abandoned: retry with another key";
        return Err(Error::new(ErrorCode::Conflict, message));
    };
    let Some(ContentRef::TerminalId(terminal)) = pane.content_ref.clone() else { return Ok(None) };
    let mut changed = reserved;
    changed.applied_revision = pane.layout_revision;
    changed.pane = serde_json::to_value(pane).ok();
    changed.tab = layout.tab(&pane.tab_id).and_then(|tab| serde_json::to_value(tab).ok());
    Ok(Some(Made { changed, terminal }))
}

/// How often a failed respawn can be retried with one key.
const RESPAWNS: usize = 8;

/// Restarts the program of a pane's terminal.
///
/// The owner resolves the terminal and accepts one request with this key; the engine restarts it; the
/// owner records the pane's terminal under the key itself, which repeats that response from then on.
/// A rejection by the engine is recorded, too, so the key can be retried.
async fn respawn(context: &Context<'_>, pane: PaneArgs) -> Outcome {
    Selector::of_pane(&pane.target, pane.tab.as_deref())?;
    let owner = context.owner(pane.change.device.device.as_deref())?;
    let layout = owner.layout().await?;
    let found = layout.find_pane(&pane.target, pane.tab.as_deref())?;
    let terminal = super::terminals::terminal_of(found)?;
    let id = found.id.clone();
    let repeated = pane.change.idempotency_key.is_some();
    let key = key_of("bind", pane.change.idempotency_key).unwrap_or_default();
    let content_ref = ContentRef::TerminalId(terminal.clone());
    let bind = Command::Bind { target: format!("pane:{id}"), tab: None, content_ref };
    if repeated && let Some(first) = remembered(&owner, &bind, key.clone()).await? {
        return context.print(&change_answer(first, Some(terminal), Some(key)), change_words);
    }
    let expected = pane.change.expected_revision.unwrap_or(layout.workspace_revision);
    let mut tries = 1..=RESPAWNS;
    let failed = loop {
        let Some(number) = tries.next() else { return Err(given_up(&terminal).into()) };
        let claim = derived(&key, &format!("respawn{number}"));
        // A caller that may not change the pane must not end its program.
        let claimed = owner.change(bind.clone(), Some(expected), Some(claim)).await?;
        let failed = derived(&key, &format!("failed{number}"));
        if !claimed.replayed {
            break failed;
        }
        if remembered(&owner, &bind, failed).await?.is_none() {
            return Err(given_up(&terminal).into());
        }
    };
    let details = |cause: &Error| {
        serde_json::json!({
            "paneId": id,
            "terminalId": terminal,
            "cause": cause,
            "respawn": format!("respawn-terminal --target terminal:{terminal}"),
        })
    };
    match super::terminals::respawn(context, &terminal).await {
        Ok(()) => {}
        Err(NotStarted::Refused(error)) => {
            // If this cannot be recorded, the key stays as if the request were in progress.
            let _ = owner.change(bind, None, Some(failed)).await;
            return Err(error.at_stage("engine").into());
        }
        Err(NotStarted::Unknown(error)) => {
            let message = format!("unknown whether terminal:{terminal} was restarted ({error}): check it");
            return Err(Error::new(ErrorCode::InconsistentState, message).with_details(details(&error)).into());
        }
    }
    match owner.change(bind, None, Some(key.clone())).await {
        Ok(changed) => context.print(&change_answer(changed, Some(terminal), Some(key)), change_words),
        Err(error) => {
            let message = format!("terminal:{terminal} was restarted, but the pane {id} was not updated: {error}");
            Err(Error::new(ErrorCode::InconsistentState, message).with_details(details(&error)).into())
        }
    }
}

/// Returns the first response for a key. `None`: the owner has none. Changes nothing.
async fn remembered(owner: &Reached<'_>, command: &Command, key: String) -> Result<Option<Changed>> {
    // A known key returns its response for any expected revision, and no workspace is at 0.
    match owner.change(command.clone(), Some(0), Some(key)).await {
        Ok(first) => Ok(Some(first)),
        Err(error) if error.code == ErrorCode::RevisionConflict => Ok(None),
        Err(error) => Err(error),
    }
}

/// The error for a key whose request is in progress or was abandoned.
fn given_up(terminal: &str) -> Error {
    let message = format!(
        "a request with this key is in progress or abandoned: check terminal:{terminal}, and retry with another key"
    );
    Error::new(ErrorCode::Conflict, message)
}

async fn list_panes(context: &Context<'_>, device: Option<&str>, tab: Option<&str>, allow_stale: bool) -> Outcome {
    tab.map(Selector::of_tab).transpose()?;
    let workspace = context.owner(device)?.read(allow_stale).await?;
    let mut panes = workspace.panes.clone();
    if let Some(tab) = tab {
        let layout = serde_json::to_value(&workspace).and_then(serde_json::from_value);
        let layout: muxtap_devices::workspace::Layout =
            layout.map_err(|error| Error::internal(format!("workspace: {error}")))?;
        let tab = layout.find_tab(tab)?;
        let order = tab.layout.panes();
        panes.retain(|pane| text(pane, "tabId") == tab.id);
        panes.sort_by_key(|pane| order.iter().position(|id| *id == text(pane, "id")));
    }
    let answer = list_answer(&workspace, "panes", panes);
    context.print(&answer, |answer| {
        table(
            answer,
            "panes",
            [
                ("PANE", |pane| format!("pane:{}", text(pane, "id"))),
                ("TAB", |pane| format!("tab:{}", text(pane, "tabId"))),
                ("KIND", |pane| text(pane, "kind").to_owned()),
                ("SHOWS", shown),
            ],
        )
    })
}

fn tabs(answer: &Value, active: &str) -> String {
    let mut table = output::Table::new(&["TAB", "TITLE", "STATUS", "ACTIVE PANE"]);
    for tab in answer.get("tabs").and_then(Value::as_array).into_iter().flatten() {
        let id = text(tab, "id");
        let mark = if id == active { " *" } else { "" };
        let pane = format!("pane:{}", text(tab, "activePaneId"));
        table.row(&[format!("tab:{id}{mark}"), text(tab, "title").into(), text(tab, "status").into(), pane]);
    }
    table.render()
}

async fn display(
    context: &Context<'_>,
    wanted: &str,
    target: Option<&str>,
    tab: Option<&str>,
    device: Option<&str>,
) -> Outcome {
    target.map(|target| Selector::of_pane(target, tab)).transpose()?;
    check_format(wanted)?;
    let workspace = context.owner(device)?.read(false).await?;
    let layout = serde_json::to_value(&workspace).and_then(serde_json::from_value);
    let layout: muxtap_devices::workspace::Layout =
        layout.map_err(|error| Error::internal(format!("workspace: {error}")))?;
    let pane = if let Some(target) = target {
        Some(layout.find_pane(target, tab)?)
    } else {
        let tab = layout.active_tab_id.as_deref().and_then(|id| layout.tab(id));
        tab.and_then(|tab| layout.pane(&tab.active_pane_id))
    };
    let filled = format(wanted, &workspace, &layout, pane)?;
    let answer = serde_json::json!({ "text": filled });
    context.print(&answer, |_| if filled.is_empty() { String::new() } else { filled.clone() + "\n" })
}
