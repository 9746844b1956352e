//! `attach-session`.

use std::{
    io::{IsTerminal as _, stdin, stdout},
    os::unix::process::CommandExt as _,
    process::Command,
};

use clap::Args;
use muxtap_base::quoting::shell_word;
use muxtap_engine::is_number;
use muxtap_tmux::{Address, DEFAULT_SOCKET, same_socket};

use super::{Caller, Outcome, output, path_of};
use crate::{
    api::{ConfigAnswer, Error, ErrorCode, HostInfo, HostList, HostsQuery, PaneInfo, Result, SessionInfo, SessionList},
    cli::{caller, client::Client},
};

/// Attach this terminal to a session
///
/// Runs `tmux attach-session` in place of this program. A window or a pane becomes the current one of
/// its session. If stdin or stdout is not a terminal, or the server is on another host, prints the
/// command line to run in a terminal.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap attach                                  the session that was used last
  muxtap attach -t work
  muxtap attach -t work:logs.0                   with this pane selected
  muxtap attach -t box/work                      print the command for a session on a host")]
pub(in crate::cli) struct AttachSession {
    /// The session, or a window or pane in it (default: the session that was used last)
    #[arg(short = 't', value_name = "TARGET")]
    target: Option<String>,
}

/// The command line, as `--json` prints it.
#[derive(serde::Serialize)]
struct Answer {
    command: Vec<String>,
    line: String,
}

impl AttachSession {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let mut client = caller.client().await?;
        let found = if let Some(target) = &self.target {
            Some(find(&mut client, target).await?)
        } else {
            // tmux chooses; an error names a server that does not run.
            let list: SessionList = client.get("/v1/sessions", &()).await?;
            if list.sessions.is_empty() {
                let message = "there is no session to attach to; `muxtap new-session` creates one";
                return Err(Error::not_found(message).into());
            }
            None
        };
        let words = if let Some(host) = host_of(caller, &mut client, self.target.as_deref()).await? {
            remote_line(&mut client, host, found.as_deref()).await?
        } else {
            refuse_in_tmux(caller, found.as_deref())?;
            let mut words =
                vec![tmux_program(&mut client, None).await?, "-S".into(), caller.server.display().to_string()];
            words.extend(attach(found.as_deref()));
            if stdin().is_terminal() && stdout().is_terminal() && !caller.json {
                return Err(run_instead(&words).into());
            }
            words
        };
        let line = line_of(&words);
        if caller.json {
            output::print_json(&Answer { command: words, line })?;
        } else {
            output::print(line + "\n")?;
        }
        Ok(0)
    }
}

/// Returns the target in tmux's ids, which have one meaning: tmux matches names by their beginning.
async fn find(client: &mut Client, target: &str) -> Result<String> {
    if is_number(target) {
        let session: SessionInfo = client.get(&path_of("sessions", target), &()).await?;
        return Ok(format!("{}:", session.id));
    }
    let pane: PaneInfo = client.get(&path_of("panes", target), &()).await?;
    if pane.session_id.is_empty() {
        return Err(Error::not_found(format!("pane {} has ended", pane.id)));
    }
    Ok(format!("{}:{}.{}", pane.session_id, pane.window_id, pane.id))
}

/// A server on another host: the host, and the server's socket or name there.
struct Place {
    host: HostInfo,
    socket: String,
}

/// Returns the host of a target; `None`: this host. A session's name can contain a slash, too.
async fn host_of(caller: &Caller, client: &mut Client, target: Option<&str>) -> Result<Option<Place>> {
    let of_server = match Address::parse(&caller.server) {
        Ok(Address::Elsewhere(host, socket)) => Some((host.to_owned(), socket.to_owned())),
        _ => None,
    };
    let is_named = of_server.is_some();
    let of_target = || target.and_then(caller::host_of).map(|host| (host.to_owned(), DEFAULT_SOCKET.to_owned()));
    let Some((name, socket)) = of_server.or_else(of_target) else { return Ok(None) };
    let list: HostList = client.get("/v1/hosts", &HostsQuery::default()).await?;
    match list.hosts.into_iter().find(|known| known.name == name) {
        Some(host) => Ok(Some(Place { host, socket })),
        None if is_named => Err(Error::not_found(format!("unknown host {name}; `muxtap hosts` lists them"))),
        None => Ok(None),
    }
}

/// Error: `CONFLICT` in a pane of tmux. Sessions do not nest.
fn refuse_in_tmux(caller: &Caller, found: Option<&str>) -> Result<()> {
    let Some((socket, pane)) = &caller.runs_in else { return Ok(()) };
    let message = if same_socket(socket.as_ref(), &caller.server) {
        let target = found.map_or_else(|| "SESSION".to_owned(), shell_word);
        format!("this terminal is the tmux pane {pane}; use `tmux switch-client -t {target}` to show the session here")
    } else {
        format!(
            "this terminal is the pane {pane} of another tmux server, {socket}; `tmux switch-client` cannot leave that \
             server: detach first, or unset TMUX to nest the sessions"
        )
    };
    Err(Error::new(ErrorCode::Conflict, message))
}

fn attach(found: Option<&str>) -> Vec<String> {
    let target = found.into_iter().flat_map(|target| ["-t", target]);
    std::iter::once("attach-session").chain(target).map(str::to_owned).collect()
}

/// Returns the tmux program of the daemon's settings, or of a host's: another version may not speak to
/// the server.
async fn tmux_program(client: &mut Client, host: Option<&str>) -> Result<String> {
    let config: ConfigAnswer = client.get("/v1/config", &()).await?;
    let key = host.map_or_else(|| "tmux".to_owned(), |host| format!("host.{host}.tmux"));
    let setting = config.settings.into_iter().find(|setting| setting.key == key);
    Ok(setting.and_then(|setting| setting.value.as_str().map(str::to_owned)).unwrap_or_else(|| "tmux".to_owned()))
}

/// Replaces this process by a program. Returns the error if that fails.
fn run_instead(words: &[String]) -> Error {
    let Some((program, rest)) = words.split_first() else { return Error::internal("an empty command line") };
    let error = Command::new(program).args(rest).exec();
    Error::unavailable(format!("cannot run {program}: {error}"))
}

/// Returns the command line that attaches on another host, by the command that reaches the host.
async fn remote_line(client: &mut Client, place: Place, found: Option<&str>) -> Result<Vec<String>> {
    let Place { host, socket } = place;
    let tmux = tmux_program(client, Some(&host.name)).await?;
    let server = match socket.as_str() {
        DEFAULT_SOCKET => vec![tmux],
        path if path.starts_with('/') => vec![tmux, "-S".into(), path.to_owned()],
        name => vec![tmux, "-L".into(), name.to_owned()],
    };
    let words = [server, attach(found)].concat();
    if host.fleet.is_some() {
        let message = format!("host {}: a fleet carries no terminal; attach on that host, or by ssh", host.name);
        return Err(Error::invalid(message));
    }
    let via = shlex::split(&host.command).unwrap_or_else(|| vec![host.command.clone()]);
    Ok(with_terminal(via, words))
}

/// Adds a command for a host to the command that reaches the host, which must have a terminal there.
fn with_terminal(mut via: Vec<String>, words: Vec<String>) -> Vec<String> {
    let program = via.first().and_then(|program| program.rsplit('/').next()).unwrap_or_default().to_owned();
    if program == "ssh" {
        via.insert(1, "-t".into());
        // ssh passes one line to the host's shell.
        via.push(line_of(&words));
        return via;
    }
    // Other programs' `-i` means something else, as that of sudo, or the command's own words follow it.
    if matches!(program.as_str(), "docker" | "podman" | "kubectl")
        && let Some(word) = via.iter_mut().find(|word| *word == "-i")
    {
        "-it".clone_into(word);
    }
    via.extend(words);
    via
}

fn line_of(words: &[String]) -> String {
    words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_gives_the_command_a_terminal() {
        let line = |via: &str| {
            let words = ["tmux", "attach-session", "-t", "$1:@2.%3"].map(str::to_owned).to_vec();
            line_of(&with_terminal(shlex::split(via).unwrap(), words))
        };
        assert_eq!(line("ssh -p 22 box"), r"ssh -t -p 22 box 'tmux attach-session -t '\''$1:@2.%3'\'''");
        assert_eq!(line("docker exec -i web"), "docker exec -it web tmux attach-session -t '$1:@2.%3'");
        assert_eq!(
            line("kubectl exec -i pod -- env -i"),
            "kubectl exec -it pod -- env -i tmux attach-session -t '$1:@2.%3'"
        );
        assert_eq!(line("sudo -u ann -i"), "sudo -u ann -i tmux attach-session -t '$1:@2.%3'");
        assert_eq!(line("sudo -u ann"), "sudo -u ann tmux attach-session -t '$1:@2.%3'");
    }
}
