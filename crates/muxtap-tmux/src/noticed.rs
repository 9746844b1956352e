//! Settings of a server by which a user may notice a control client (`docs/unnoticed.md`).

use std::time::Duration;

use super::program::ServerSpec;

/// Time limit of the query.
const LIMIT: Duration = Duration::from_secs(5);
/// Aliases that tmux itself sets.
const BUILT_IN_ALIASES: [&str; 6] = ["split-pane", "splitp", "server-info", "info", "choose-window", "choose-session"];
/// Commands that wait for a user's answer.
const PROMPTS: [&str; 6] =
    ["command-prompt", "confirm-before", "display-menu", "display-popup", "choose-tree", "display-panes"];

impl ServerSpec {
    /// Returns a sentence for each setting of the server by which a client in use may be noticed;
    /// empty, too, if the server sends no reply.
    pub async fn noticed(&self) -> Vec<String> {
        let question = ["show-options", "-s", ";", "show-options", "-g", ";", "show-hooks", "-g"];
        match self.call_within(LIMIT, &question).await {
            Ok(printed) if printed.ok => sentences(&String::from_utf8_lossy(&printed.stdout)),
            _ => Vec::new(),
        }
    }
}

fn sentences(printed: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in printed.lines() {
        let Some((name, value)) = line.split_once(' ') else { continue };
        let option = name.split('[').next().unwrap_or_default();
        match (option, value) {
            ("focus-events", "on") => found.push(
                "focus-events is on: while a pane is in use, its session's current window counts as focused".to_owned(),
            ),
            ("exit-unattached", "on") => found.push(
                "exit-unattached is on: muxtap detaches with the last client of a person, and what it follows ends"
                    .to_owned(),
            ),
            ("destroy-unattached", value) if value != "off" => found.push(format!(
                "destroy-unattached is {value}: muxtap leaves a session with its last client, and what it follows ends"
            )),
            ("detach-on-destroy", "no-detached") => {
                found.push("detach-on-destroy is no-detached: tmux moves no client to a session in use".to_owned());
            }
            ("command-alias", value) => {
                let alias = value.trim_matches('"').split('=').next().unwrap_or_default();
                if !BUILT_IN_ALIASES.contains(&alias) {
                    found.push(format!("command-alias defines {alias}: muxtap's own commands bypass it"));
                }
            }
            (hook, value) if PROMPTS.iter().any(|prompt| value.contains(prompt)) && is_hook(hook) => {
                found.push(format!("the hook {hook} prompts a person: {value}"));
            }
            (hook, value) if hook.starts_with("client-") && is_hook(hook) => {
                found.push(format!("the hook {hook} is set: muxtap attaches and detaches without running it: {value}"));
            }
            _ => {}
        }
    }
    found
}

/// Returns whether a name is that of a hook and not of an option.
fn is_hook(name: &str) -> bool {
    ["after-", "alert-", "client-", "pane-", "session-", "window-"].iter().any(|start| name.starts_with(start))
        && !["session-status", "window-status", "pane-border"].iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_set_is_named_and_what_tmux_sets_is_not() {
        let printed = "command-alias[0] split-pane=split-window\ncommand-alias[6] ls=list-sessions\nexit-unattached off\n\
                       focus-events on\ndetach-on-destroy on\nwindow-status-format \"#I\"\nalert-bell\n\
                       after-new-window[0] command-prompt -I \"#W\" \"rename-window '%%'\"\n\
                       client-attached[0] detach-client -a\n";
        let found = sentences(printed);
        let named: Vec<_> =
            ["focus-events", "command-alias defines ls", "after-new-window", "client-attached"].into_iter().collect();
        assert_eq!(found.len(), named.len(), "{found:?}");
        assert!(named.iter().all(|name| found.iter().any(|text| text.contains(name))), "{found:?}");
        assert!(sentences("").is_empty());
    }
}
