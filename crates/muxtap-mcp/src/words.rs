//! Translation of the engine's error messages for models: tools and arguments instead of shell
//! commands.

/// The wording for people at a shell, each with the wording for a model.
const WORDS: [(&str, &str); 13] = [
    ("`muxtap list-panes` shows what is there", "list shows what is there"),
    ("`muxtap new-session` starts one", "create (what: session) starts one"),
    ("`muxtap new-session` creates one", "create (what: session) creates one"),
    ("`muxtap respawn-pane` starts one", "change (respawn: true) starts one"),
    ("`muxtap read` still returns its output", "read_since still returns its output"),
    ("-k (`kill`) ends it first", "kill: true ends it first"),
    ("use send-keys and wait-for, or another pane", "use send_keys and wait_for, or create another pane"),
    (", or let run clear it (--clear-line, clear_line)", " with send_keys, or say clear_line: true"),
    (", or the key's bytes with -H", ""),
    ("send it without --paste, or", "send it without paste, or change (leave_mode: true) first, or"),
    ("send it when they have left it", "change (leave_mode: true) leaves it"),
    ("press them with send-keys", "press them with send_keys (keys)"),
    ("for the screen use capture", "for the screen use capture_pane"),
];

/// Returns a message with tools instead of shell commands.
pub(super) fn for_tools(message: &str) -> String {
    WORDS.iter().fold(message.to_owned(), |text, (shell, tool)| text.replace(shell, tool))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sources whose messages reach a tool's caller.
    const SOURCES: [&str; 10] = [
        include_str!("../../muxtap-engine/src/agents/answer.rs"),
        include_str!("../../muxtap-engine/src/input.rs"),
        include_str!("../../muxtap-engine/src/input/run.rs"),
        include_str!("../../muxtap-engine/src/input/prompt.rs"),
        include_str!("../../muxtap-engine/src/pane/places.rs"),
        include_str!("../../muxtap-engine/src/query/targets/resolve.rs"),
        include_str!("../../muxtap-engine/src/query/scope.rs"),
        include_str!("../../muxtap-engine/src/query/capture.rs"),
        include_str!("../../muxtap-engine/src/query/read.rs"),
        include_str!("../../muxtap-engine/src/spawn/respawn.rs"),
    ];

    #[test]
    fn no_message_sends_a_model_to_a_shell() {
        let sources = SOURCES.concat() + include_str!("../../muxtap-tmux/src/link.rs");
        for (shell, _) in WORDS {
            assert!(sources.contains(shell), "no message says {shell:?} any more");
        }
        let code = sources.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code.filter(|line| line.contains("`muxtap ")) {
            assert!(!for_tools(line).contains("`muxtap "), "{line}");
        }
    }
}
