//! How a guest enters and leaves a session whose user has hooks on clients.
//!
//! A hook such as `client-attached 'detach-client -a'` or `client-detached 'kill-session'` is meant
//! for the user's own terminals. tmux runs it for a control client too. So if such a hook is set, a
//! guest enters and leaves through a *door*: a session of muxtap's own that exists for that moment,
//! with empty hooks of its own in place of the user's. The door's hook moves the client on, and
//! commands of a hook trigger no further hooks (N99).

use std::{sync::Arc, time::Duration};

use muxtap_api::{Error, Result};
use muxtap_core::protocol::{
    command::{Command, CommandLine},
    ids::SessionId,
};

use super::{
    attach::hub_name,
    connection::{ANSWER_LIMIT, Answer, Connection, Lost, Request},
    coverage::Inner,
    launch::PLACEHOLDER,
    topology::HUB_MARK,
};

/// Hooks that run in the session of a client that enters or leaves.
const CLIENT_HOOKS: [&str; 3] = ["client-attached", "client-detached", "client-session-changed"];
/// Hooks that the existence of a door triggers.
const SESSION_HOOKS: [&str; 4] = ["session-created", "session-window-changed", "window-linked", "window-unlinked"];
/// Time after which tmux itself ends an unused door.
const UNUSED: Duration = Duration::from_secs(15);
/// Time that a leaving client has to reach the door.
const WAY_OUT: Duration = Duration::from_secs(2);

/// Returns whether the output of `show-hooks` has a hook on clients that is set.
fn has_client_hooks(printed: &[u8]) -> bool {
    let text = String::from_utf8_lossy(printed);
    text.lines().any(|line| {
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        let name = name.split('[').next().unwrap_or_default();
        CLIENT_HOOKS.contains(&name) && !matches!(value.trim(), "" | "''" | "\"\"")
    })
}

/// Returns the commands that query whether a session has hooks on clients.
fn question(session: SessionId) -> Vec<Command> {
    let of_session = Command::new("show-hooks").opt("-t", session.to_string());
    vec![Command::new("show-hooks").flag("-g"), of_session]
}

/// Returns the commands that create a door with this name, whose `hook` runs `then`.
fn door(name: &str, hook: &str, then: &str) -> Vec<Command> {
    let target = format!("={name}:");
    let set = |hook: &str, value: &str| Command::new("set-hook").opt("-t", &target).arg(hook).arg(value);
    let mut commands =
        vec![Command::new("new-session").flag("-d").flag("-E").opt("-s", name).opt("-n", "muxtap").arg(PLACEHOLDER)];
    let hooks = CLIENT_HOOKS.iter().chain(&SESSION_HOOKS).filter(|other| **other != hook);
    commands.extend(hooks.map(|hook| set(hook, "")));
    commands.push(set(hook, then));
    let mark = Command::new("set-option").opt("-t", &target).arg(HUB_MARK);
    commands.push(mark.arg(std::process::id().to_string()));
    commands
}

impl Inner {
    /// Creates a door into a session, if the session has hooks on clients. Returns its name.
    pub(super) async fn door_into(&self, session: SessionId) -> Result<Option<String>> {
        if !self.spec.rests() {
            return Ok(None);
        }
        let asked = self.ask_plainly(&question(session), ANSWER_LIMIT).await?;
        // A session that has gone needs no door; the attempt to attach reports it.
        if !asked.is_ok_and(|parts| parts.iter().any(|part| has_client_hooks(part))) {
            return Ok(None);
        }
        let name = hub_name();
        let then = format!("switch-client -E -t '{session}' ; kill-session -t '={name}'");
        let mut commands = door(&name, "client-attached", &then);
        let exists = format!("##{{==:##{{session_name}},{name}}}");
        let end = format!("if-shell -F -t '={name}:' '{exists}' 'kill-session -t ={name}'");
        let unused = UNUSED.as_secs().to_string();
        commands.push(Command::new("run-shell").flag("-b").opt("-d", unused).opt("-C", end));
        let made = self.ask_plainly(&commands, ANSWER_LIMIT).await?;
        made.map_err(|message| {
            Error::unavailable(format!("tmux refused the temporary session through which muxtap attaches: {message}"))
        })?;
        Ok(Some(name))
    }

    /// Queries the session of a client that came through a door.
    pub(super) fn confirm_session(self: &Arc<Self>, connection: &Connection) {
        let here = Command::new("display-message").flag("-p").format("#{session_id}");
        let (this, by) = (self.clone(), connection.clone());
        connection.submit(Request::Plain(CommandLine::of([here])), move |answer| {
            let session = session_in(answer);
            if this.arrived(&by, session) {
                by.close();
            }
        });
    }

    /// Takes a client out of its session through a door, if the session has hooks on clients.
    /// Returns whether the client is outside. It should then be cut off, since a client that
    /// detaches has no session when its hooks run.
    pub(super) async fn leave_by_door(&self, connection: &Connection, session: SessionId) -> bool {
        let way_out = async {
            let hooks = connection.ask(Request::Framed(question(session))).await.ok()?.ok()?;
            if !hooks.iter().any(|part| has_client_hooks(part)) {
                return None;
            }
            let name = hub_name();
            let mut commands = door(&name, "client-detached", &format!("kill-session -t '={name}'"));
            commands.push(Command::new("switch-client").flag("-E").opt("-t", format!("={name}")));
            connection.ask(Request::Plain(CommandLine::of(commands))).await.ok()?.ok()
        };
        tokio::time::timeout(WAY_OUT, way_out).await.ok().flatten().is_some()
    }
}

fn session_in(answer: Result<Answer, Lost>) -> Option<SessionId> {
    let bodies = answer.ok()?.ok()?;
    String::from_utf8_lossy(bodies.first()?).trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_on_clients_is_seen_where_one_is_set() {
        for set in ["client-attached[0] detach-client -a\n", "alert-bell\nclient-detached[2] kill-session"] {
            assert!(has_client_hooks(set.as_bytes()), "{set}");
        }
        for unset in ["", "client-attached\nclient-detached\n", "client-attached[0] ''", "client-resized[0] refresh"] {
            assert!(!has_client_hooks(unset.as_bytes()), "{unset}");
        }
    }
}
