//! The commands of panes, for programs: lists, outputs, events (`docs/commands.md`).

use std::{path::Path, sync::Arc};

use muxtap_api::{Error, ErrorCode, Result, Tier};
use muxtap_core::{
    marks::{Change, Directory, Notification, Progress},
    protocol::ids::PaneId,
    stream::{render, ring::Chunk},
};
use tokio::sync::broadcast;

use super::{Pane, Server};

use crate::{PaneCommand, pane::LEAST_NONCE};

/// What a command printed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandOutput {
    /// The text, as [`Output::text`](crate::Output::text) gives it.
    pub text: String,
    /// Whether all of the command's output is in the text. False as well while it runs.
    pub is_whole: bool,
}

/// A change in a pane, reported by a mark of a shell or program.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandEvent {
    /// The socket of the pane's server.
    pub socket: Arc<Path>,
    /// The pane.
    pub pane: PaneId,
    /// The change.
    pub change: CommandChange,
}

/// A change reported by a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandChange {
    /// A command began.
    Started(Box<PaneCommand>),
    /// A command ended.
    Finished(Box<PaneCommand>),
    /// The directory is another one.
    Directory(Arc<Directory>),
    /// A program reports progress.
    Progress(Progress),
    /// A program shows a notification.
    Notification(Notification),
}

impl CommandChange {
    /// Makes an event of a change. `None` if its command is no longer kept.
    pub(crate) fn of(change: Change, command: Option<Arc<PaneCommand>>) -> Option<Self> {
        let command = command.map(|command| Box::new((*command).clone()));
        Some(match change {
            Change::Started(_) => Self::Started(command?),
            Change::Finished(_) => Self::Finished(command?),
            Change::Directory(directory) => Self::Directory(directory),
            Change::Progress(progress) => Self::Progress(progress),
            Change::Notification(notification) => Self::Notification(notification),
        })
    }
}

impl Server {
    /// Returns the changes of commands in the panes of all servers from now on. Only panes that are
    /// followed report any. A receiver that is too slow misses the earliest ([`Pane::commands`] has
    /// them).
    ///
    /// Error: `READ_ONLY` for a caller that may not read.
    pub fn command_events(&self) -> Result<broadcast::Receiver<Arc<CommandEvent>>> {
        self.engine().authorize(Tier::Read)?;
        Ok(self.engine().shared.command_events.subscribe())
    }
}

impl Server {
    /// Returns the line of the last command in a pane whose line is known, without following the
    /// pane.
    pub fn last_command_line(&self, pane: PaneId) -> Option<String> {
        self.engine().authorize(Tier::Read).ok()?;
        let pane = self.host.live_pane(pane)?;
        let locked = pane.lock();
        let mut commands = locked.command_log().commands().rev();
        commands.find_map(|command| Some(command.line.as_ref()?.text.clone()))
    }
}

/// Chunks above this size are rendered in another thread, to delay no other task.
const AT_ONCE: usize = 64 * 1024;

impl Pane {
    /// Returns the commands that ran in the pane while it was followed, the earliest first: the
    /// last 1,000 that its shells marked.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// let commands = pane.commands()?;
    /// if let Some(failed) = commands.iter().rev().find(|ran| ran.command.status.is_some_and(|status| status != 0)) {
    ///     println!("{:?}\n{}", failed.command.line, pane.command_output(failed).await?.text);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn commands(&self) -> Result<Vec<PaneCommand>> {
        self.server().engine().authorize(Tier::Read)?;
        Ok(self.state().commands())
    }

    /// Returns the command with this number, if the pane has one.
    pub fn command(&self, number: u64) -> Result<Option<PaneCommand>> {
        self.server().engine().authorize(Tier::Read)?;
        Ok(self.state().command(number))
    }

    /// Returns the commands from this number on, as [`Self::commands`] does.
    pub fn commands_from(&self, number: u64) -> Result<Vec<PaneCommand>> {
        self.server().engine().authorize(Tier::Read)?;
        Ok(self.state().commands_from(number))
    }

    /// Returns the latest `most` commands whose place on the screen is known, the earliest first, each
    /// with the number of the line at which it was typed
    /// ([`HistoryLines::read`](muxtap_core::screen::HistoryLines::read)).
    ///
    /// A line is unknown if the shell marks no prompts, if it was erased, and after a change of the
    /// pane's width.
    pub fn commands_by_line(&self, most: usize) -> Result<Vec<(u64, PaneCommand)>> {
        self.server().engine().authorize(Tier::Read)?;
        Ok(self.state().commands_by_line(most))
    }

    /// Returns what a command of this pane has printed so far.
    ///
    /// Error: `INVALID_ARGUMENT` for a command of another pane.
    pub async fn command_output(&self, command: &PaneCommand) -> Result<CommandOutput> {
        self.server().engine().authorize(Tier::Read)?;
        if command.start != self.state().cursor(command.start.offset) {
            return Err(Error::invalid("command: this command ran in another pane"));
        }
        let command = self.state().command(command.command.number).unwrap_or_else(|| command.clone());
        let mut from = command.start.offset;
        let mut is_whole = command.command.output.is_whole && command.command.end.is_some();
        let mut text = String::new();
        while let Some(chunk) = self.state().command_chunk(&command, from) {
            is_whole &= chunk.start == from;
            from = chunk.end;
            let is_all = chunk.start == command.start.offset && chunk.end >= command.end.offset;
            let redrawable = is_all.then(|| self.state().lock().redrawable(chunk.start, chunk.end)).flatten();
            if let Some(redrawn) = redrawable.and_then(|output| output.text()) {
                text = redrawn;
                break;
            }
            text.push_str(&rendered(chunk).await?);
        }
        is_whole &= from >= command.end.offset;
        Ok(CommandOutput { text, is_whole })
    }

    /// Trusts the marks of a shell in this pane that was given this nonce in the environment
    /// variable `MUXTAP_SHELL_NONCE`.
    ///
    /// Errors: `READ_ONLY` for a caller that may not create panes; `INVALID_ARGUMENT` for a nonce
    /// of fewer than 16 characters, which could be guessed.
    pub fn trust_shell(&self, nonce: impl Into<String>) -> Result<()> {
        self.server().engine().authorize(Tier::Create)?;
        if self.state().trust_shell(nonce.into()) {
            return Ok(());
        }
        Err(Error::invalid(format!("nonce: expected at least {LEAST_NONCE} characters")))
    }
}

async fn rendered(chunk: Chunk) -> Result<String> {
    if chunk.bytes.len() <= AT_ONCE {
        return Ok(render::render_chunk(&chunk));
    }
    let rendered = tokio::task::spawn_blocking(move || render::render_chunk(&chunk)).await;
    rendered.map_err(|_| Error::new(ErrorCode::InconsistentState, "the command's output could not be rendered"))
}

#[cfg(test)]
mod tests;
