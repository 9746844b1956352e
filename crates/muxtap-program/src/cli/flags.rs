//! Errors in the words of the command line: an error of the daemon names the field of a request
//! (`patterns[0]`), and a person typed a flag (`-p`).

use crate::api::{Error, words};

/// The commands that type the field in the same way.
const ANY: &str = "";

/// Each field of a request whose flag has another name: the command, the field, and what was typed.
/// The first line that fits counts.
const TYPED: &[(&str, &str, &str)] = &[
    ("agent-session", "cwd", "--cwd"),
    ("agent-session", "env", "--env"),
    ("agent-session", "text", "TEXT"),
    ("capability", "cwd", "--cwd"),
    ("capture-pane", "end", "-E"),
    ("capture-pane", "start", "-S"),
    ("group", "name", "NAME"),
    ("group", "targets", "TARGET"),
    ("layout", "name", "NAME"),
    ("new-session", "name", "-s"),
    ("new-session", "or_existing", "-A"),
    ("new-session", "window_name", "-n"),
    ("new-window", "index", "-t"),
    ("new-window", "name", "-n"),
    ("new-window", "session", "-t"),
    ("read", "command", "--command"),
    ("record", "file", "-o"),
    ("record", "max_bytes", "--max-size"),
    ("record", "max_ms", "--max-time"),
    ("rename-session", "name", "NAME"),
    ("rename-window", "name", "NAME"),
    ("run", "command", "COMMAND"),
    ("search", "context", "-C"),
    ("search", "pattern", "REGEX"),
    ("select-layout", "layout", "LAYOUT"),
    ("select-pane", "title", "-T"),
    ("send-keys", "hex", "--hex"),
    ("send-keys", "keys", "KEYS"),
    ("send-keys", "text", "KEYS"),
    ("snapshot", "env", "--env"),
    ("snapshot", "name", "NAME"),
    ("snapshot", "sessions", "-t"),
    ("snapshot", "text", "FILE"),
    ("split-window", "size", "-l"),
    ("tail", "lines", "-n"),
    ("wait-for", "status", "--status"),
    (ANY, "command", "COMMAND"),
    (ANY, "cwd", "-c"),
    (ANY, "dir", "--dir"),
    (ANY, "env", "-e"),
    (ANY, "fail", "--fail"),
    (ANY, "gone", "--gone"),
    (ANY, "grep", "--grep"),
    (ANY, "height", "-y"),
    (ANY, "history", "--history"),
    (ANY, "max_bytes", "--max-bytes"),
    (ANY, "n", "-n"),
    (ANY, "over_ms", "--over"),
    (ANY, "pane", "-t"),
    (ANY, "panes", "-t"),
    (ANY, "patterns", "-p"),
    (ANY, "redact", "--redact"),
    (ANY, "resume", "--resume"),
    (ANY, "screen", "--screen"),
    (ANY, "settle_ms", "--settle"),
    (ANY, "shell_integration", "--shell-integration"),
    (ANY, "since", "--since"),
    (ANY, "socket", SERVER),
    (ANY, "stable_ms", "--stable"),
    (ANY, "targets", "-t"),
    (ANY, "timeout_ms", "-T"),
    (ANY, "title", "--title"),
    (ANY, "types", "--types"),
    (ANY, "until", "--until"),
    (ANY, "wait_ms", "--wait"),
    (ANY, "width", "-x"),
];

/// The flags of the tmux server, either of which sets one field.
const SERVER: &str = "-S";
const SERVER_BY_NAME: &str = "-L";

/// Puts what was typed in the place of the request's fields that an error's message names: at its
/// beginning (`since: …`, ``title `[` …``), with a number (`patterns[0]`), or by a name that no sentence contains
/// (`wait_ms`). What is quoted stays as it is.
pub(super) fn name_flags(command: &str, error: &mut Error) {
    error.message = words::for_shell(&error.message);
    let mut text = String::with_capacity(error.message.len());
    let mut rest = error.message.as_str();
    let mut quote = None;
    while let Some(next) = rest.chars().next() {
        let length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        if let (Some((word, behind)), None) = (rest.split_at_checked(length).filter(|_| length > 0), quote) {
            let numbered = after_number(behind);
            let begins = text.is_empty() && (behind.starts_with(':') || behind.starts_with(" `"));
            let is_field = numbered.is_some() || word.contains('_') || begins;
            let typed = typed(command, word).filter(|_| is_field);
            text.push_str(typed.unwrap_or(word));
            rest = numbered.filter(|_| typed.is_some()).unwrap_or(behind);
            continue;
        }
        if matches!(next, '`' | '"') {
            quote = if quote == Some(next) { None } else { quote.or(Some(next)) };
        }
        text.push(next);
        rest = rest.get(next.len_utf8()..).unwrap_or_default();
    }
    error.message = text;
}

/// Returns the text after `[N]` at its beginning.
fn after_number(text: &str) -> Option<&str> {
    let (number, behind) = text.strip_prefix('[')?.split_once(']')?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(behind)
}

/// Returns what a person types for a field of the command's request.
fn typed(command: &str, field: &str) -> Option<&'static str> {
    let fits = |&&(of, known, _): &&(&str, &str, &str)| known == field && (of == command || of == ANY);
    let typed = TYPED.iter().find(fits).map(|(_, _, typed)| *typed)?;
    let by_name = || std::env::args_os().any(|word| word.as_encoded_bytes().starts_with(SERVER_BY_NAME.as_bytes()));
    Some(if typed == SERVER && by_name() { SERVER_BY_NAME } else { typed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args;

    fn said(command: &str, message: &str) -> String {
        let mut error = Error::invalid(message);
        name_flags(command, &mut error);
        error.message
    }

    #[test]
    fn a_field_is_named_as_it_was_typed() {
        for (command, message, says) in [
            ("wait-for", "patterns[0] `[`: unclosed", "-p `[`: unclosed"),
            ("wait-for", "too large: patterns[0] `a`, fail[12] `b`", "too large: -p `a`, --fail `b`"),
            ("wait-for", "title `[` is not a valid regex", "--title `[` is not a valid regex"),
            ("wait-for", "timeout_ms: 1 is too long", "-T: 1 is too long"),
            ("read", "since: a read accepts input, start", "--since: a read accepts input, start"),
            ("read", "command: leave out until and wait_ms", "--command: leave out until and --wait"),
            ("record", "max_bytes: 5; expected 4096 or more", "--max-size: 5; expected 4096 or more"),
            // A person's own text, a name that is no field of the command, and a sentence.
            ("wait-for", "-p `patterns[0]` and \"max_bytes\"", "-p `patterns[0]` and \"max_bytes\""),
            ("send-keys", "tmux: no pane; start a session", "tmux: no pane; start a session"),
            ("read", "no screen since: it ended", "no screen since: it ended"),
            ("read", "ü[0] since", "ü[0] since"),
        ] {
            assert_eq!(said(command, message), says);
        }
    }

    /// Whatever an error names can be typed.
    #[test]
    fn each_typed_word_is_one_of_the_command_line() {
        let tree = args::tree();
        let has = |command: &clap::Command, typed: &str| {
            fn all<'c>(command: &'c clap::Command, found: &mut Vec<&'c clap::Arg>) {
                found.extend(command.get_arguments());
                command.get_subcommands().for_each(|command| all(command, found));
            }
            let mut found = Vec::new();
            all(command, &mut found);
            found.iter().any(|arg| {
                let short = arg.get_short().map(|short| format!("-{short}"));
                let long = arg.get_long().map(|long| format!("--{long}"));
                let is_value = arg.is_positional()
                    && arg.get_value_names().unwrap_or_default().iter().any(|name| name.as_str() == typed);
                is_value || short.as_deref() == Some(typed) || long.as_deref() == Some(typed)
            })
        };
        for (command, field, typed) in TYPED {
            let found = match *command {
                ANY => tree.get_subcommands().any(|command| has(command, typed)),
                name => tree.find_subcommand(name).is_some_and(|command| has(command, typed)),
            };
            assert!(found, "{command} {field} {typed}");
        }
    }
}
