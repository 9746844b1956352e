//! Sessions and windows as plain `tmux` makes them: by one call of tmux in the caller's surroundings, with the command itself as the
//! pane's process.
//!
//! What [`Engine::new_session`] makes holds the command so that none of its output is lost; a program that a person goes on using
//! wants nothing between itself and tmux, and the environment and directory of whoever asked.

use std::{collections::BTreeMap, ffi::OsString, path::Path, sync::Arc};

use super::{
    Engine, Host,
    create::{literal, refused},
};
use crate::{
    api::{Result, Tier},
    protocol::ids::SessionId,
};

/// What is made.
pub(crate) enum PlainPlace {
    /// `new-session -d`; where no server runs this starts one.
    Session,
    /// `new-window -d` at the end of this session.
    Window(SessionId),
}

/// How it is made.
pub(crate) struct PlainSpawn<'a> {
    /// A session or a window.
    pub(crate) place: PlainPlace,
    /// Its name.
    pub(crate) name: &'a str,
    /// The directory in which the command starts, absolute; `None`: `caller`.
    pub(crate) directory: Option<&'a Path>,
    /// A command line for tmux's `default-shell`.
    pub(crate) command: &'a str,
    /// The directory in which tmux is called.
    pub(crate) caller: &'a Path,
    /// The environment in which tmux is called; `None`: this process's.
    pub(crate) environment: Option<&'a BTreeMap<OsString, OsString>>,
}

impl Engine {
    /// Makes it. Errors: `CONFLICT` where a session has that name, `NOT_FOUND` where the session of a window has gone.
    pub(crate) async fn make_plainly(&self, host: &Arc<Host>, spawn: &PlainSpawn<'_>) -> Result<()> {
        let act = self.act(Tier::Create, "spawn", host, spawn.name)?;
        let done = async {
            let mut args = match spawn.place {
                PlainPlace::Session => vec!["new-session".to_owned(), "-d".into(), "-s".into()],
                PlainPlace::Window(session) => {
                    vec!["new-window".to_owned(), "-d".into(), "-t".into(), format!("{session}:"), "-n".into()]
                }
            };
            args.push(word(&literal(spawn.name)));
            if let Some(directory) = spawn.directory {
                args.extend(["-c".into(), word(&literal(&directory.to_string_lossy()))]);
            }
            args.push(word(spawn.command));
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let printed = host.server().spec().call_as(spawn.caller, spawn.environment, &args).await?;
            if printed.ok { Ok(()) } else { Err(refused(&printed.stderr)) }
        }
        .await;
        act.ended(done)
    }
}

/// A word that tmux takes as it is: a `;` at a word's end would begin another command.
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
