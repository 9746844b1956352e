//! The next step in an error's message, in the words of each caller: a person at a shell has commands,
//! a program has routes, a model has tools.

/// A next step: as the engine writes it, for a shell; for a program over HTTP; for a model.
const STEPS: [[&str; 3]; 21] = [
    ["`muxtap list-panes` shows what is there", "`GET /v1/panes` lists what is there", "list shows what is there"],
    ["`muxtap new-session` starts one", "`POST /v1/sessions` starts one", "create (what: session) starts one"],
    ["`muxtap new-session` creates one", "`POST /v1/sessions` creates one", "create (what: session) creates one"],
    ["`muxtap respawn-pane` starts one", "`PATCH /v1/panes/{pane}` with `respawn` starts one", "respawn starts one"],
    [
        "`muxtap read` still returns its output",
        "`GET /v1/panes/{pane}/output` still returns its output",
        "read_since still returns its output",
    ],
    ["-k (`kill`) ends it first", "`respawn.kill` ends it first", "kill: true ends it first"],
    ["list-devices shows what is there", "`GET /v1/devices` lists what is there", "devices lists them"],
    [
        "use send-keys and wait-for, or another pane",
        "use `POST /v1/panes/{pane}/input` and `POST /v1/waits`, or another pane",
        "use send_keys and wait_for, or create another pane",
    ],
    [
        ", or let run clear it (--clear-line, clear_line)",
        ", or let run clear it (`clear_line`)",
        " with send_keys, or say clear_line: true",
    ],
    [", or the key's bytes with -H", ", or the key's bytes as `hex`", ""],
    [
        "send it without --paste, or when they have left it",
        "send it without `paste`, or when they have left it (`leave_mode`)",
        "send it without paste, or select (leave_mode: true) first",
    ],
    [
        "send it when they have left it",
        "send it when they have left it (`leave_mode`)",
        "select (leave_mode: true) leaves it",
    ],
    ["press them with send-keys", "press them with `POST /v1/panes/{pane}/input`", "press them with send_keys (keys)"],
    [
        "for the screen use capture",
        "for the screen use `GET /v1/panes/{pane}/capture`",
        "for the screen use capture_pane",
    ],
    ["`muxtap hosts` lists the hosts", "`GET /v1/hosts` lists the hosts", "list (everywhere: true) names the hosts"],
    [
        "`muxtap group list` shows its groups",
        "`GET /v1/groups` lists its groups",
        "snapshot (action: list_groups) lists its groups",
    ],
    ["; see `muxtap config`", "; see `GET /v1/config`", "; a person can change the setting `allow`"],
    [
        "expected a number of `muxtap commands`",
        "expected a number of `GET /v1/panes/{pane}/commands`",
        "expected a number of list (what: commands)",
    ],
    [
        "`muxtap shell-integration` switches them on",
        "`shell_integration` of a new pane switches them on",
        "create with shell_integration: true starts a shell that does",
    ],
    [
        "`muxtap snapshot restore`",
        "`POST /v1/snapshots/{name}/restore`",
        "a request to a person for `muxtap snapshot restore`",
    ],
    ["`muxtap approvals` lists the open ones", "`GET /v1/approvals` lists the open ones", "a person answers them"],
];

/// Returns a message for a program over HTTP.
pub fn for_programs(message: &str) -> String {
    STEPS.iter().fold(message.to_owned(), |text, [shell, http, _]| replaced(&text, shell, http))
}

/// Returns a message of HTTP for a person at a shell.
pub fn for_shell(message: &str) -> String {
    STEPS.iter().fold(message.to_owned(), |text, [shell, http, _]| text.replace(http, shell))
}

/// Returns a message for a model; the message may have come over HTTP from another muxtap.
pub fn for_models(message: &str) -> String {
    let message = for_shell(message);
    STEPS.iter().fold(message, |text, [shell, _, tool]| text.replace(shell, tool))
}

/// Replaces the words for a shell, unless those for a program already stand there.
fn replaced(text: &str, shell: &str, http: &str) -> String {
    if text.contains(http) { text.to_owned() } else { text.replace(shell, http) }
}

/// Returns the words for a shell of each step.
#[doc(hidden)]
pub fn steps() -> impl Iterator<Item = &'static str> {
    STEPS.iter().map(|[shell, ..]| *shell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_the_same_one_for_every_caller() {
        for [shell, http, tool] in STEPS {
            let message = format!("no pane x; {shell}");
            let program = for_programs(&message);
            assert_eq!(program, format!("no pane x; {http}"));
            // What was for a program already stays: an error may pass two daemons.
            assert_eq!(for_programs(&program), program);
            assert_eq!(for_shell(&program), message);
            assert_eq!(for_models(&message), format!("no pane x; {tool}"));
            assert_eq!(for_models(&program), format!("no pane x; {tool}"));
            for words in [http, tool] {
                assert!(!words.contains("`muxtap ") || words.contains("a person"), "{words}");
            }
        }
        assert_eq!(for_shell("plain"), "plain");
    }
}
