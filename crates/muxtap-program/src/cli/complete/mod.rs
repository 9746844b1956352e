//! Completion of command lines: the scripts of `muxtap completions` call
//! `muxtap __complete SHELL …` at each TAB.
//!
//! `__complete` is not in the argument tree, so no help lists it, and a TAB does not wait for clap.
//! After any error it offers fewer words and prints nothing: stderr is the terminal on which the
//! person types. The engine of `clap_complete` is not used: it is unstable (`unstable-dynamic`), its
//! completers do not see the line's `-S` and `-L`, and its script for bash neither quotes names nor
//! handles that bash ends a word at a colon.

mod line;
mod place;
mod targets;
mod workspace;

use std::{ffi::OsString, io::Write as _, process::ExitCode, time::Duration};

use clap_complete::Shell;
use muxtap_base::plain;
use muxtap_core::width;

use self::{
    line::{Line, Word},
    place::{Offer, Place},
};
use super::args;

/// The word that requests completions.
pub(super) const WORD: &str = "__complete";

/// How long the daemon may take before nothing is offered: a person waits after pressing TAB.
const LIMIT: Duration = Duration::from_secs(1);
/// The maximum width of a value for which descriptions are aligned.
const ALIGNED: usize = 32;

/// A word that the shell may insert.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Candidate {
    value: String,
    /// A short description, for shells that show it.
    description: String,
}

impl Candidate {
    fn new(value: impl Into<String>, description: impl Into<String>) -> Self {
        Self { value: value.into(), description: description.into() }
    }
}

/// The script that a shell reads once. `None`: this shell has a static one.
pub(super) fn script(shell: Shell) -> Option<&'static str> {
    match shell {
        Shell::Bash => Some(include_str!("bash.sh")),
        Shell::Zsh => Some(include_str!("zsh.zsh")),
        Shell::Fish => Some(include_str!("fish.fish")),
        _ => None,
    }
}

/// Prints completions for the end of a command line. The first line is their kind: `words`, each with
/// a tab and its description; `files`, `dirs` or `command N`, which the shell completes itself.
pub(super) fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    if let Some(answer) = answer(arguments) {
        // The shell may have exited.
        let mut stdout = std::io::stdout().lock();
        let _ = stdout.write_all(answer.as_bytes()).and_then(|()| stdout.flush());
    }
    ExitCode::SUCCESS
}

fn answer(arguments: impl IntoIterator<Item = OsString>) -> Option<String> {
    // A word that is not valid UTF-8 cannot be completed.
    let arguments: Option<Vec<String>> = arguments.into_iter().map(|word| word.into_string().ok()).collect();
    let mut arguments = arguments?.into_iter();
    let shell = arguments.next()?;
    let line = match shell.as_str() {
        "bash" => {
            let breaks = arguments.next()?;
            Line::parse(&arguments.next()?, &breaks)
        }
        "zsh" | "fish" => {
            let mut words: Vec<String> = arguments.collect();
            let current = words.pop()?;
            // fish passes the word as typed.
            let text = if shell == "fish" { Line::parse(&current, "").current.text } else { current };
            Line { words, current: Word::new(text) }
        }
        _ => return None,
    };
    let mut tree = args::tree();
    tree.build();
    let place = Place::find(&tree, &line.words, &line.current.text);
    let candidates = match place.offer {
        Offer::Files => return Some("files\n".to_owned()),
        Offer::Dirs => return Some("dirs\n".to_owned()),
        Offer::Command(first) => return Some(format!("command {first}\n")),
        Offer::Words(words) => words,
        Offer::Asked(what) => targets::ask(what, &place),
    };
    // Offered values have no control characters; descriptions show them escaped.
    let usable = candidates.into_iter().filter(|candidate| !candidate.value.chars().any(plain::controls));
    let whole =
        usable.map(|candidate| Candidate { value: format!("{}{}", place.before, candidate.value), ..candidate });
    let mut answer = "words\n".to_owned();
    match shell.as_str() {
        "bash" => {
            for candidate in whole.filter(|candidate| candidate.value.starts_with(&line.current.text)) {
                if let Some(word) = line.current.completed(&candidate.value) {
                    answer.push_str(&word);
                    answer.push('\n');
                }
            }
        }
        "zsh" => {
            let whole: Vec<_> = whole.collect();
            let columns = |candidate: &Candidate| width::of_text(&candidate.value);
            let widest = whole.iter().map(columns).filter(|columns| *columns <= ALIGNED).max().unwrap_or(0);
            for candidate in whole {
                let blanks = widest.saturating_sub(columns(&candidate));
                let Candidate { value, description } = candidate;
                let description = plain::name(&description);
                // The formatted list: zsh aligns only with its own functions.
                let shown = if description.is_empty() {
                    value.clone()
                } else {
                    format!("{value}{:blanks$}  {description}", "")
                };
                answer.extend([&value, "\t", &shown, "\n"]);
            }
        }
        _ => {
            for Candidate { value, description } in whole {
                answer.extend([&value, "\t", &plain::name(&description), "\n"]);
            }
        }
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(words: &[&str]) -> String {
        answer(words.iter().map(OsString::from)).unwrap()
    }

    #[test]
    fn commands_and_options_are_offered_with_what_they_are() {
        let fish = answered(&["fish", "muxtap", "capt"]);
        assert!(fish.contains("\ncapture-pane\tPrint"), "{fish}");
        let options = answered(&["fish", "muxtap", "capture-pane", "--"]);
        assert!(options.contains("\n--verify\t") && options.contains("\n--json\t"), "{options}");
        let bash = answered(&["bash", " :=", "muxtap capture-pane --ver"]);
        assert_eq!(bash, "words\n--verify\n");
        assert_eq!(answered(&["bash", " :=", "muxtap tail --color=al"]), "words\nalways\n");
        assert_eq!(answered(&["bash", " ", "muxtap tail --color=al"]), "words\n--color=always\n");
    }

    #[test]
    fn what_shells_complete_themselves_is_left_to_them() {
        assert_eq!(answered(&["zsh", "muxtap", "new-session", "-c", ""]), "dirs\n");
        assert_eq!(answered(&["zsh", "muxtap", "serve", "--config", ""]), "files\n");
        assert_eq!(answered(&["zsh", "muxtap", "run", "-t", "%0", "--", "ma"]), "command 5\n");
        assert_eq!(answered(&["fish", "muxtap", "run", "-t", "%0", "make", "al"]), "command 4\n");
    }

    #[test]
    fn a_call_that_nobody_makes_is_answered_with_nothing() {
        for words in [&[][..], &["csh"], &["bash"], &["bash", ":"], &["zsh"]] {
            assert_eq!(answer(words.iter().map(OsString::from)), None, "{words:?}");
        }
    }
}
