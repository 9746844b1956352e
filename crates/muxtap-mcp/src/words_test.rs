//! A test that no error sends a program or a model to a shell.

use muxtap_api::words::{for_models, for_programs, steps};

/// The sources whose messages reach a tool's caller.
const SOURCES: [&str; 19] = [
    include_str!("../../muxtap-api/src/commands.rs"),
    include_str!("../../muxtap-devices/src/relay/mod.rs"),
    include_str!("../../muxtap-approvals/src/approvals.rs"),
    include_str!("../../muxtap-engine/src/agents/answer.rs"),
    include_str!("../../muxtap-engine/src/audit_scope.rs"),
    include_str!("../../muxtap-engine/src/elsewhere.rs"),
    include_str!("../../muxtap-engine/src/events.rs"),
    include_str!("../../muxtap-engine/src/input.rs"),
    include_str!("../../muxtap-engine/src/input/run.rs"),
    include_str!("../../muxtap-engine/src/input/prompt.rs"),
    include_str!("../../muxtap-engine/src/pane/places.rs"),
    include_str!("../../muxtap-engine/src/query/commands.rs"),
    include_str!("../../muxtap-engine/src/query/targets/resolve.rs"),
    include_str!("../../muxtap-engine/src/query/scope.rs"),
    include_str!("../../muxtap-engine/src/query/capture.rs"),
    include_str!("../../muxtap-engine/src/query/read.rs"),
    include_str!("../../muxtap-engine/src/spawn/respawn.rs"),
    include_str!("../../muxtap-snapshot/src/groups.rs"),
    include_str!("../../muxtap-snapshot/src/named.rs"),
];
/// What only a person at a shell can do.
const OF_A_PERSON: [&str; 3] = ["`muxtap open`", "`muxtap approvals --watch`", "`muxtap -L {}/ new-session`"];

#[test]
fn no_message_sends_a_program_or_a_model_to_a_shell() {
    let sources = SOURCES.concat() + include_str!("../../muxtap-tmux/src/link.rs");
    // A message may be broken over lines.
    let text: String = sources.split("\\\n").map(|line| line.trim_start_matches(' ')).collect();
    for shell in steps() {
        assert!(text.contains(shell), "no message says {shell:?} any more");
    }
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    for line in code.filter(|line| line.contains("`muxtap ") && !OF_A_PERSON.iter().any(|what| line.contains(what))) {
        assert!(!for_programs(line).contains("`muxtap "), "{line}");
        assert!(!for_models(line).replace("a person for `muxtap ", "").contains("`muxtap "), "{line}");
    }
}
