//! Formats: tmux's own values of its sessions, windows and panes.
//!
//! A format can run a program (`#(…)`), so a request with one needs the permission for input, not
//! only for reading.

use muxtap_api::{FormatListQuery, ListQuery, Listed, Operation, Result};
use muxtap_base::nonce;
use muxtap_core::protocol::command::Command;
use muxtap_tmux::{Request, unreadable};

use crate::{Server, spawn::create::tmux_error};

impl Server {
    /// Returns the output of `display-message -p` for a pane, line by line.
    pub async fn format(&self, target: &str, format: &str) -> Result<Vec<String>> {
        let audit = self.engine.audit(Operation::Format, &self.host, target)?;
        let done = async {
            let pane = self.locate_pane(target).await?;
            audit.resolved(pane);
            let tell = Command::new("display-message").flag("-p").opt("-t", pane.to_string());
            let question = || Request::Framed(vec![tell.clone().end_of_flags().format(format)]);
            let known = self.bound_pane(target).cloned().or_else(|| self.host.live_pane(pane));
            let server = known.map_or_else(|| self.host.server().clone(), |pane| self.host.server_of(&pane));
            let answer = server.read(Some(pane), question).await?;
            Ok(lines(&answer.map_err(|message| tmux_error(&message))?))
        }
        .await;
        audit.finish(done)
    }

    /// Returns the output of `list-panes -a -F`, `list-windows -a -F` or `list-sessions -F` for the
    /// items that the targets name, without muxtap's own items.
    pub async fn format_list(&self, query: &FormatListQuery) -> Result<Vec<String>> {
        let targets = query.targets.as_deref().unwrap_or_default();
        let audit = self.engine.audit(Operation::Format, &self.host, targets)?;
        let done = async {
            // Each entry begins with its ids, between marks that no name can contain.
            let mark = nonce::hex64();
            let (command, ids) = match query.each {
                Listed::Sessions => (Command::new("list-sessions"), "#{session_id}"),
                Listed::Windows => (Command::new("list-windows").flag("-a"), "#{session_id} #{window_id}"),
                Listed::Panes => (Command::new("list-panes").flag("-a"), "#{session_id} #{window_id} #{pane_id}"),
            };
            let question = || {
                let format = format!("{mark}{ids}{mark}{}", query.format);
                Request::Framed(vec![command.clone().flag("-F").format(format)])
            };
            let answer = self.host.server().read(None, question).await?;
            // tmux rejects no format.
            let printed = lines(&answer.map_err(|_| unreadable(command.name()))?);
            if !printed.iter().any(|line| line.starts_with(mark.as_str())) {
                return Err(unreadable(command.name()));
            }
            // The ids are read after the list: items created in between are left out.
            let mut wanted = self.listed_ids(query).await?;
            let mut taken = Vec::new();
            let mut is_wanted = false;
            for line in printed {
                match line.strip_prefix(mark.as_str()).and_then(|rest| rest.split_once(mark.as_str())) {
                    Some((ids, text)) => {
                        let place = wanted.iter().position(|known| known == ids);
                        // Each entry once: the panes of a window that is linked to two sessions are
                        // listed once.
                        place.map(|place| wanted.swap_remove(place));
                        is_wanted = place.is_some();
                        taken.extend(is_wanted.then(|| text.to_owned()));
                    }
                    // The rest of a value that contains a line end.
                    None => taken.extend(is_wanted.then_some(line)),
                }
            }
            Ok(taken)
        }
        .await;
        audit.finish(done)
    }

    /// Returns the ids that precede the entries of a list.
    async fn listed_ids(&self, query: &FormatListQuery) -> Result<Vec<String>> {
        let targets = ListQuery { targets: query.targets.clone() }.items();
        Ok(match query.each {
            Listed::Sessions => self.sessions_within(&targets).await?.into_iter().map(|one| one.id).collect(),
            Listed::Windows => {
                let windows = self.windows_within(&targets).await?.into_iter();
                windows.map(|one| format!("{} {}", one.session_id, one.id)).collect()
            }
            Listed::Panes => {
                let panes = self.panes_within(&targets).await?.into_iter().filter(|one| !one.window_id.is_empty());
                panes.map(|one| format!("{} {} {}", one.session_id, one.window_id, one.id)).collect()
            }
        })
    }
}

fn lines(parts: &[bytes::Bytes]) -> Vec<String> {
    let text = parts.first().map(|part| String::from_utf8_lossy(part).into_owned()).unwrap_or_default();
    text.strip_suffix('\n').unwrap_or(&text).split('\n').map(str::to_owned).collect()
}
