//! Sessions and windows as plain `tmux` creates them: by one call of tmux in the caller's
//! environment, with the command itself as the pane's process.
//!
//! [`Server::create_session`] runs the command in an exit wrapper, so none of its output is lost. A
//! program that a person continues to use needs instead no process between itself and tmux, and the
//! environment and directory of its caller.

use std::{collections::BTreeMap, ffi::OsString, path::Path};

use muxtap_api::{Error, ErrorCode, Operation, Result};
use muxtap_core::protocol::ids::{SessionId, WindowId};
use muxtap_tmux::make_socket_dir;

use crate::{
    Server,
    spawn::create::{literal, tmux_error},
};

/// The kind of item to create.
pub enum UnmanagedPlace {
    /// `new-session -d`, which starts a server if none runs.
    Session,
    /// `new-window -d` at the end of this session.
    Window(SessionId),
}

/// A session or window to create, and its command.
pub struct UnmanagedSpawn<'a> {
    /// Whether to create a session or a window.
    pub place: UnmanagedPlace,
    /// The name of the session or window.
    pub name: &'a str,
    /// The absolute directory in which the command starts; `None` for `caller`.
    pub directory: Option<&'a Path>,
    /// A command line for tmux's `default-shell`.
    pub command: &'a str,
    /// The directory in which tmux is called.
    pub caller: &'a Path,
    /// The caller's environment; `None` for the variables of this process that tmux needs.
    pub environment: Option<&'a BTreeMap<OsString, OsString>>,
}

impl Server {
    /// Creates a session or window, and checks that it exists afterwards.
    ///
    /// Errors: `CONFLICT` (a session has that name), `NOT_FOUND` (the session of a window no longer
    /// exists), `TMUX_UNAVAILABLE` (tmux created nothing), `INCONSISTENT_STATE` (the item was
    /// created and ended at once).
    pub async fn spawn_unmanaged(&self, spawn: &UnmanagedSpawn<'_>) -> Result<()> {
        let host = &self.host;
        let audit = self.engine.audit(Operation::Spawn, host, spawn.name)?;
        let done = async {
            let mut args = match spawn.place {
                UnmanagedPlace::Session => vec!["new-session".to_owned()],
                UnmanagedPlace::Window(session) => vec!["new-window".to_owned(), "-t".into(), format!("{session}:")],
            };
            args.extend(["-d", "-P", "-F", "#{window_id}"].map(str::to_owned));
            args.push(if matches!(spawn.place, UnmanagedPlace::Session) { "-s" } else { "-n" }.into());
            args.push(word(&literal(spawn.name)));
            if let Some(directory) = spawn.directory {
                args.extend(["-c".into(), word(&literal(&directory.to_string_lossy()))]);
            }
            args.push(word(spawn.command));
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let spec = host.server().spec();
            if matches!(spawn.place, UnmanagedPlace::Session) {
                make_socket_dir(spec);
            }
            let updated = self.updated_variables().await;
            let printed = spec.call_as(spawn.caller, spawn.environment, &updated, &args).await?;
            if !printed.ok {
                return Err(tmux_error(&printed.stderr));
            }
            // Up to 3.7c tmux also exits with 0 if it cannot create its socket (N49). Only a
            // created item has an id.
            let made = String::from_utf8_lossy(&printed.stdout).trim().parse::<WindowId>().map_err(|_| {
                let why = match (printed.stderr.trim(), no_place_for(host.socket())) {
                    ("", Some(error)) => error.to_string(),
                    ("", None) => "it printed no id".to_owned(),
                    (said, _) => said.to_owned(),
                };
                Error::unavailable(format!("tmux: nothing was created: {why}"))
            })?;
            let target = made.to_string();
            let look = spec.call(&["list-panes", "-t", &target]).await?;
            if look.ok {
                return Ok(());
            }
            let message = format!("tmux created {}, which no longer exists: its command ended at once", spawn.name);
            Err(Error::new(ErrorCode::InconsistentState, message))
        }
        .await;
        audit.finish(done)
    }
}

/// Returns why a socket cannot be created at this path. 3.2a does not report it (N49).
fn no_place_for(socket: &Path) -> Option<std::io::Error> {
    socket.parent().and_then(|folder| std::fs::metadata(folder).err())
}

/// Quotes a word so that tmux takes it literally: a `;` at a word's end would begin another
/// command.
fn word(text: &str) -> String {
    match text.strip_suffix(';') {
        Some(head) => format!("{head}\\;"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semicolon_at_the_end_is_no_separator() {
        assert_eq!(word("a;b;"), "a;b\\;");
        assert_eq!(word("a"), "a");
    }
}
