//! Identifies the agent in a pane by the processes on its terminal.

use std::sync::Arc;

use muxtap_tmux::Process;

use super::rules::{Agent, Rules};
use crate::input::shell;

/// Interpreters, whose script's name counts instead of their own.
const INTERPRETERS: [&str; 13] =
    ["node", "nodejs", "bun", "deno", "python", "ruby", "sh", "bash", "dash", "zsh", "ksh", "env", "fish"];

/// Returns the first process that is an agent, and which agent it is.
///
/// Stopped processes are skipped, because they do nothing. Shells with a given command line
/// (`sh -c …`) are skipped, because they are not the program that their arguments name.
pub(super) fn find_agent<'a>(rules: &'a Rules, processes: &[Process]) -> Option<(&'a Arc<Agent>, u32)> {
    let mut running = processes.iter().filter(|process| !process.stopped && !shell::runs_given_command(&process.args));
    running.find_map(|process| Some((rules.agents.iter().find(|agent| runs(agent, &process.args))?, process.pid)))
}

/// Returns the agent that a process with these arguments is.
pub(super) fn agent_of<'a>(rules: &'a Rules, args: &[String]) -> Option<&'a Arc<Agent>> {
    rules.agents.iter().find(|agent| !shell::runs_given_command(args) && runs(agent, args))
}

/// Returns the name of the program that a process with these arguments runs.
pub(super) fn program_of(args: &[String]) -> String {
    program(args).unwrap_or_default()
}

/// Returns the agent with a program of this name, for systems that report only the name.
pub(super) fn find_by_name<'a>(rules: &'a Rules, command: &str) -> Option<&'a Arc<Agent>> {
    let name = name_of(command);
    rules.agents.iter().find(|agent| agent.programs.contains(&name))
}

fn runs(agent: &Agent, args: &[String]) -> bool {
    let line = args.join(" ");
    let named = || program(args).is_some_and(|name| agent.programs.contains(&name));
    (named() || agent.process.iter().any(|regex| regex.is_match(&line)))
        && !agent.except.iter().any(|regex| regex.is_match(&line))
}

/// Returns the name of the program, or of the script that an interpreter runs.
fn program(args: &[String]) -> Option<String> {
    let first = name_of(args.first()?);
    if !INTERPRETERS.contains(&first.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')) {
        return Some(first);
    }
    let script = args.iter().skip(1).find(|arg| !arg.starts_with('-') && !arg.contains('='))?;
    Some(name_of(script))
}

/// Returns a path's file name in lower case, without a script's extension: `codex` for
/// `/usr/bin/Codex.js`.
fn name_of(path: &str) -> String {
    let name = path.strip_prefix('-').unwrap_or(path).rsplit('/').next().unwrap_or(path).to_lowercase();
    let ending = [".js", ".mjs", ".cjs", ".py", ".exe"].into_iter().find_map(|ending| name.strip_suffix(ending));
    ending.map_or_else(|| name.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(lines: &[&str]) -> Option<(String, u32)> {
        let processes: Vec<_> = lines
            .iter()
            .zip(1..)
            .map(|(line, pid)| Process {
                pid,
                args: line.trim_end_matches(" (stopped)").split(' ').map(str::to_owned).collect(),
                stopped: line.ends_with(" (stopped)"),
            })
            .collect();
        find_agent(&Rules::built_in(), &processes).map(|(agent, pid)| (agent.id.clone(), pid))
    }

    fn id(line: &str) -> Option<String> {
        agent(&[line]).map(|(id, _)| id)
    }

    #[test]
    fn an_agent_is_known_by_its_command_line() {
        for (line, expected) in [
            ("claude", "claude"),
            ("claude --resume", "claude"),
            ("/bin/sh /tmp/x/bin/claude do it", "claude"),
            ("node /usr/lib/node_modules/.bin/claude", "claude"),
            ("/opt/Claude -p x", "claude"),
            ("npm exec @anthropic-ai/claude-code", "claude"),
            ("codex", "codex"),
            ("node --max-old-space-size=4096 /usr/local/bin/codex --full-auto", "codex"),
            ("/x/codex-0.1/bin/codex.js", "codex"),
            ("/usr/bin/python3.12 /home/me/.local/bin/aider --model x", "aider"),
            ("python3 -m aider", "aider"),
            ("/home/me/.local/bin/cursor-agent --resume", "cursor"),
            ("node /usr/bin/gemini", "gemini"),
            ("opencode", "opencode"),
            ("copilot", "copilot"),
            ("goose session", "goose"),
            ("/usr/bin/env FOO=1 goose", "goose"),
        ] {
            assert_eq!(id(line).as_deref(), Some(expected), "{line}");
        }
        for line in [
            "bash",
            "-zsh",
            "vim /home/me/claude.md",
            "less docs/claude/notes",
            "git log /src/claude",
            "sh -c /opt/claude;sleep 9",
            "vim codex",
            "cat codex.js",
            "goose -dir migrations postgres up",
            "python3 -i",
            "claudette",
        ] {
            assert_eq!(id(line), None, "{line}");
        }
    }

    #[test]
    fn the_outermost_that_runs_counts() {
        assert_eq!(agent(&["bash", "node x", "claude", "codex"]), Some(("claude".into(), 3)));
        assert_eq!(agent(&["bash", "claude (stopped)", "codex"]), Some(("codex".into(), 3)));
        assert_eq!(find_by_name(&Rules::built_in(), "Claude").map(|agent| agent.id.as_str()), Some("claude"));
    }
}
