//! The spelling of the commands that muxtap sends.
//!
//! A `command-alias` replaces a command whose name is exactly the alias's (`cmd_get_alias`). After
//! that, tmux looks for the command (`cmd_find`) and accepts every unambiguous prefix of a name. So
//! muxtap spells its commands a letter or two short: no alias for `list-panes` or `lsp` changes
//! what muxtap requests. The shortened name must not be a word that people would use as an alias. A
//! plural therefore loses its ending and the letter before it (`list-session` would be such a
//! word).
//!
//! Text that tmux parses as commands later (`if-shell`, `run-shell -C`) uses this spelling, too.

/// The commands that muxtap sends, each with its spelling, by name.
pub const SPELLINGS: [(&str, &str); 40] = [
    ("attach-session", "attach-sessio"),
    ("capture-pane", "capture-pan"),
    ("copy-mode", "copy-mod"),
    ("delete-buffer", "delete-buffe"),
    ("detach-client", "detach-clien"),
    ("display-message", "display-messag"),
    ("if-shell", "if-shel"),
    ("kill-pane", "kill-pan"),
    ("kill-server", "kill-serve"),
    ("kill-session", "kill-sessio"),
    ("kill-window", "kill-windo"),
    ("link-window", "link-windo"),
    ("list-clients", "list-clien"),
    ("list-panes", "list-pan"),
    ("list-sessions", "list-sessio"),
    ("list-windows", "list-windo"),
    ("move-window", "move-windo"),
    ("new-pane", "new-pan"),
    ("new-session", "new-sessio"),
    ("new-window", "new-windo"),
    ("paste-buffer", "paste-buffe"),
    ("refresh-client", "refresh-clien"),
    ("rename-session", "rename-sessio"),
    ("rename-window", "rename-windo"),
    ("resize-pane", "resize-pan"),
    ("resize-window", "resize-windo"),
    ("respawn-pane", "respawn-pan"),
    ("run-shell", "run-shel"),
    ("select-layout", "select-layou"),
    ("select-pane", "select-pan"),
    ("select-window", "select-windo"),
    ("send-keys", "send-ke"),
    ("set-buffer", "set-buffe"),
    ("set-environment", "set-environmen"),
    ("set-option", "set-optio"),
    ("show-environment", "show-environmen"),
    ("show-options", "show-optio"),
    ("split-window", "split-windo"),
    ("switch-client", "switch-clien"),
    ("wait-for", "wait-fo"),
];

/// Returns the spelling in which a command is sent. A name that is not in the table is unchanged.
#[must_use]
pub fn spelled(name: &str) -> &str {
    SPELLINGS.iter().find(|(full, _)| *full == name).map_or(name, |(_, spelling)| spelling)
}

/// Returns the full name of a command from its spelling.
#[must_use]
pub fn full(spelling: &str) -> &str {
    SPELLINGS.iter().find(|(_, known)| *known == spelling).map_or(spelling, |(full, _)| full)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spelling_is_a_proper_prefix_of_its_name_and_not_a_name_itself() {
        for (full_name, spelling) in SPELLINGS {
            assert!(full_name.starts_with(spelling) && full_name.len() > spelling.len(), "{full_name}");
            assert!(full_name.len() - spelling.len() <= 2, "{spelling}: a later tmux may have another such command");
            assert!(!full_name.ends_with('s') || full_name.len() - spelling.len() == 2, "{spelling} is a word");
            assert_eq!((spelled(full_name), full(spelling)), (spelling, full_name));
        }
        assert_eq!((spelled("x"), full("x")), ("x", "x"));
    }
}
