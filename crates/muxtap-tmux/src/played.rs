//! A tmux that a test plays: it takes the place of every process that a [`Transport`] would start.
//!
//! `scripted.rs` plays single connections of a server that is already found. Here the whole link is
//! real: finding, attaching, seeding, losing and attaching again.
//!
//! [`Transport`]: super::Transport

use std::{fmt, io};

use futures_util::future::BoxFuture;
use tokio::process::Command;

use super::connection::Opened;
pub use super::program::CallOutput;

/// The tmux of a host, as a test plays it.
pub trait PlayedTmux: fmt::Debug + Send + Sync {
    /// Runs a plain client, which prints and ends. `words`: its arguments behind the program.
    fn call(&self, words: Vec<String>) -> BoxFuture<'static, CallOutput>;
    /// Begins a control client: `stdin` and `stdout` are tmux's ends of its pipes. Returns its name.
    fn attach(&self, words: Vec<String>, stdin: io::PipeReader, stdout: io::PipeWriter) -> io::Result<String>;
}

/// Returns the arguments of a command.
pub(super) fn words(command: &Command) -> Vec<String> {
    command.as_std().get_args().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Begins a control client of a played tmux.
pub(super) fn attach(played: &dyn PlayedTmux, command: &Command) -> io::Result<Opened> {
    let (stdin, writer) = io::pipe()?;
    let (reader, stdout) = io::pipe()?;
    let unread = stdin.try_clone()?;
    let name = played.attach(words(command), stdin, stdout)?;
    Opened::played(&name, reader, writer, &unread)
}
