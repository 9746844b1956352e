//! The actions `list`, `capture` and `status`: the panes, and what each shows.

use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
};

use muxtap_engine::{Server, Subject, is_absent};

use super::{
    Supervisor, engine_target, error_text,
    state::{State, is_claude, lines_of},
    target_error_text,
};

use muxtap_api::{CaptureRequest, Error};

/// The lines of a pane from which `status` reads.
const STATUS_LINES: u64 = 200;
/// A limit above the lines of history that tmux keeps.
const MOST_LINES: u64 = 10_000_000;

impl Supervisor {
    pub(super) async fn list(&self, server: &Server) -> Result<String, String> {
        let topology = match server.link().fresh().await {
            Ok(topology) => topology.without_hubs(),
            Err(error) if is_absent(&error) => return Ok("No tmux sessions running.".into()),
            Err(error) => return Err(error_text(&error)),
        };
        let panes: Vec<_> = topology
            .windows
            .iter()
            .flat_map(|window| {
                topology.panes.iter().filter(|pane| pane.window == window.id).map(move |pane| (window, pane))
            })
            .collect();
        if panes.is_empty() {
            return Ok("No tmux sessions running.".into());
        }
        let mut running = HashMap::default();
        if server.link().spec().is_local() {
            let ttys: BTreeSet<String> = panes.iter().map(|(_, pane)| pane.tty.clone()).collect();
            let engine = &self.shared.engine;
            let probed = engine.probe(Subject::All, move |proc| proc.on_terminals(&ttys)).await;
            running = probed.ok_or("Error: timeout while reading the processes of this machine")?;
        }
        let mut found = Vec::new();
        for (window, pane) in &panes {
            if !running.get(&pane.tty).is_some_and(|lines: &Vec<String>| lines.iter().any(|line| is_claude(line))) {
                continue;
            }
            let session = topology.session(window.session).map(|session| session.name.as_str()).unwrap_or_default();
            // A pane that ended in the meantime shows nothing.
            let screen = self.screen(server, &pane.id.to_string(), 0).await.unwrap_or_default();
            let state = State::of(&lines_of(&screen)).label();
            let folder = folder(&pane.path);
            found.push(format!("- `{session}:{}.{}` — {folder} ({state})", window.index, pane.index));
        }
        if found.is_empty() {
            return Ok(format!("No Claude sessions found across {} tmux panes.", panes.len()));
        }
        Ok(format!("**Claude Sessions ({}):**\n\n{}", found.len(), found.join("\n")))
    }

    pub(super) async fn capture(&self, server: &Server, target: &str, lines: u64) -> Result<String, String> {
        let output = self.last_lines(server, target, lines).await?;
        Ok(format!("**`{target}` output (last {lines} lines):**\n```\n{output}\n```"))
    }

    pub(super) async fn status(&self, server: &Server, target: &str) -> Result<String, String> {
        let output = self.last_lines(server, target, STATUS_LINES).await?;
        let label = State::of(&output.lines().collect::<Vec<_>>()).label();
        Ok(format!("**`{target}` status: {label}**\n```\n{output}\n```"))
    }

    async fn last_lines(&self, server: &Server, target: &str, lines: u64) -> Result<String, String> {
        let history = lines.min(MOST_LINES);
        let screen = self.screen(server, target, history).await.map_err(|error| target_error_text(&error, target))?;
        let all = lines_of(&screen);
        let last = all.get(all.len().saturating_sub(history as usize)..).unwrap_or_default();
        Ok(last.join("\n"))
    }

    /// Captures the screen and `history` lines above it.
    async fn screen(&self, server: &Server, target: &str, history: u64) -> Result<String, Error> {
        let request = CaptureRequest { start: Some(format!("-{history}")), ..CaptureRequest::default() };
        Ok(server.capture(&engine_target(server, target).await?, &request).await?.text)
    }
}

/// Returns the last component of a directory's path.
fn folder(path: &str) -> String {
    Path::new(path).file_name().map_or_else(|| path.to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_the_paths_last_part() {
        assert_eq!(["/a/b", "/a/b/", "/", ""].map(folder), ["b", "b", "/", ""]);
    }
}
