//! `list-sessions`, `list-windows`, `list-panes`.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;

use super::{
    Caller, Outcome, listed,
    output::{self, Table, place, short_duration},
};
use crate::{
    api::{PaneInfo, PaneList, SessionList, Size, WindowList},
    engine::is_number,
};

/// List the sessions of the tmux server
///
/// muxtap's own sessions and clients are left out.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap list-sessions
  muxtap ls --json | jq -r '.sessions[].name'")]
pub(in crate::cli) struct ListSessions {}

/// List the windows of the tmux server
///
/// Those of all sessions; a window that is linked into several sessions stands once for each.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap list-windows
  muxtap list-windows -t work --json")]
pub(in crate::cli) struct ListWindows {
    /// Only those of this session: its name, which may hold `*`, or `$0`
    #[arg(short = 't', value_name = "SESSION")]
    target: Option<String>,
    /// All sessions; the default, taken for tmux's sake
    #[arg(short = 'a', conflicts_with = "target")]
    all: bool,
}

/// List the panes of the tmux server
///
/// Those of all sessions, each once. Panes whose process ended in the last ten minutes and which
/// can still be read come last.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap list-panes
  muxtap list-panes -t 'work:*'
  muxtap list-panes --json | jq -r '.panes[] | select(.dead) | .id'")]
pub(in crate::cli) struct ListPanes {
    /// Only those of this session, window or pane; names may hold `*`
    #[arg(short = 't', value_name = "TARGET")]
    target: Option<String>,
    /// All sessions; the default, taken for tmux's sake
    #[arg(short = 'a', conflicts_with = "target")]
    all: bool,
    /// TARGET is a session; taken for tmux's sake, TARGET says it by itself
    #[arg(short = 's')]
    session: bool,
}

impl ListSessions {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let list: SessionList = caller.client().await?.get("/v1/sessions", &()).await?;
        if caller.json {
            output::print_json(&list)?;
            return Ok(0);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let mut table = Table::new(&["ID", "NAME", "WINDOWS", "ATTACHED", "AGE", "IDLE"]);
        for session in list.sessions {
            table.row(&[
                session.id,
                session.name,
                session.windows.to_string(),
                session.attached.to_string(),
                short_duration(now.saturating_sub(session.created)),
                short_duration(now.saturating_sub(session.activity)),
            ]);
        }
        output::print(table.render())?;
        Ok(0)
    }
}

impl ListWindows {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        // Where only a session can be meant a number is one.
        let target = self.target.map(|target| if is_number(&target) { format!("{target}:") } else { target });
        let list: WindowList = caller.client().await?.get("/v1/windows", &listed(target.as_slice())?).await?;
        if caller.json {
            output::print_json(&list)?;
            return Ok(0);
        }
        let mut table = Table::new(&["ID", "WINDOW", "NAME", "PANES", "SIZE", "ACTIVE"]);
        for window in list.windows {
            table.row(&[
                window.id,
                format!("{}:{}", window.session, window.index),
                window.name,
                window.panes.to_string(),
                size(window.size),
                mark(window.active),
            ]);
        }
        output::print(table.render())?;
        Ok(0)
    }
}

impl ListPanes {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        // With `-s` a bare number can be nothing but a session.
        let is_session = |target: &str| self.session && is_number(target);
        let target = self.target.map(|target| if is_session(&target) { format!("{target}:") } else { target });
        let list: PaneList = caller.client().await?.get("/v1/panes", &listed(target.as_slice())?).await?;
        if caller.json {
            output::print_json(&list)?;
            return Ok(0);
        }
        let mut table = Table::new(&["ID", "PANE", "COMMAND", "PID", "SIZE", "ACTIVE", "STATE", "PATH"]);
        for pane in list.panes {
            table.row(&[
                pane.id.to_string(),
                place(&pane.session, pane.window_index, pane.index),
                pane.command.clone(),
                pane.pid.to_string(),
                size(pane.size),
                mark(pane.active),
                state(&pane),
                pane.path,
            ]);
        }
        output::print(table.render())?;
        Ok(0)
    }
}

fn size(size: Size) -> String {
    format!("{}x{}", size.width, size.height)
}

fn mark(yes: bool) -> String {
    if yes { "*" } else { "" }.to_owned()
}

fn state(pane: &PaneInfo) -> String {
    if !pane.dead {
        return "running".to_owned();
    }
    let ended = output::ended(pane.exit_status, pane.exit_signal);
    if pane.earlier_server { format!("{ended}, on an earlier server") } else { ended }
}
