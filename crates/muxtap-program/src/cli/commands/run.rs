//! `run`.

mod new_pane;

use std::{
    io::IsTerminal as _,
    pin::pin,
    time::{Duration, Instant},
};

use clap::Args;
use muxtap_base::{nonce, quoting::shell_word};
use tokio::signal::unix::{self, SignalKind};

use super::{
    Caller, Outcome, duration,
    output::{self, ColorChoice, Failure},
    path_named,
};
use crate::{
    api::{Error, ErrorCode, InputAnswer, InputRequest, RunAnswer, RunRequest},
    cli::{EXIT_ERROR, EXIT_INTERRUPTED, EXIT_TIMEOUT, client::ConnectionLost},
};

/// How long to wait for an interrupted run's response: a shell without a line editor does not report
/// that it waits for a command again.
const INTERRUPTED_LIMIT: Duration = Duration::from_secs(5);
/// How long the command of a run that has its turn may be about to be typed when it is interrupted.
const BEING_TYPED: Duration = Duration::from_millis(300);
/// The timeout of a run without one, in milliseconds: the longest.
const DEFAULT_MS: u64 = 86_400_000;

/// Run a command in a pane's shell or in a new pane
///
/// Prints the command's output and exits with its status. Runs it in the pane's idle shell (sh,
/// bash, zsh, fish), with that shell's directory and variables, or in a new pane. If another program
/// or another `run` has the pane, waits for its end. On a timeout prints the output so far and exits
/// with 124; the command continues. Ctrl-C interrupts the command; a second Ctrl-C leaves it
/// running.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap run -t %0 -- git status --short
  muxtap run -t %0 'cd build && make 2>&1 | tail -5'
  muxtap run -t work:1 -T 10m -- cargo test
  muxtap run --new-window -t work: -- make      in a new window, which closes afterwards")]
pub(in crate::cli) struct Run {
    /// The pane; with --new-pane the pane to split, with --new-window the session
    #[arg(short = 't', value_name = "PANE")]
    pub(in crate::cli) target: Option<String>,
    /// Time out after this long: seconds, or `90s`, `10m`, `1h30m` (default: when the command ends,
    /// at most a day)
    #[arg(short = 'T', long, value_name = "TIME", value_parser = duration)]
    pub(in crate::cli) timeout: Option<u64>,
    /// Clear text already typed at the prompt; without this option such a prompt is rejected and
    /// shown
    #[arg(long)]
    clear_line: bool,
    /// Print the output's colors
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    color: ColorChoice,
    #[command(flatten)]
    place: new_pane::Place,
    /// One word is a shell command line; several words are passed unchanged, quoted for the shell.
    /// Options of `run` come before it
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub(in crate::cli) command: Vec<String>,
}

impl Run {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        // JSON has colors only on request.
        let colors = self.color.enabled() && !(caller.json && self.color == ColorChoice::Auto);
        if self.place.wanted()? {
            if self.clear_line {
                return Err(
                    Error::invalid("--clear-line is for an existing shell; a new pane has no typed text").into()
                );
            }
            return self.place.run(caller, self.target, self.timeout, colors, self.command).await;
        }
        let mut request = RunRequest {
            command: command_line(self.command),
            // An older muxtap on a host does not know the field.
            escapes: colors
                && (self.color == ColorChoice::Always
                    || self.target.as_deref().and_then(crate::cli::caller::host_of).is_none()),
            timeout_ms: Some(self.timeout.unwrap_or(DEFAULT_MS)),
            clear_line: self.clear_line,
            prompt_ms: None,
            key: Some(nonce::hex64()),
        };
        let key = request.key.clone();
        // Not the pane of this process: its shell is not idle.
        let none = || {
            Error::new(
                ErrorCode::InvalidTarget,
                "missing pane: use -t (`muxtap list-panes` lists panes), or --new-pane",
            )
        };
        let target = self.target.ok_or_else(none)?;
        let path = format!("{}/run", path_named("panes", &target)?);
        let begun = Instant::now();
        let mut client = caller.client().await?;
        let (mut interrupts, mut interrupted) = (interrupts()?, false);
        let answer = client.try_post(&path, &request);
        let mut answered =
            interruptible(caller, (&target, key.as_deref()), &mut interrupts, &mut interrupted, answer).await?;
        if let Some(Ok(Err(occupied))) = &answered
            && occupied.stage.as_deref() == Some("occupied")
            && !interrupted
        {
            // Notifies a person; the remaining time is for the program in the pane.
            if std::io::stderr().is_terminal() {
                output::note(&format!(
                    "{}; waiting for its end",
                    occupied.message.split(';').next().unwrap_or_default()
                ));
            }
            let left = self.timeout.unwrap_or(DEFAULT_MS).saturating_sub(begun.elapsed().as_millis() as u64);
            (request.timeout_ms, request.prompt_ms) = (Some(left), Some(left));
            let answer = client.try_post(&path, &request);
            answered =
                interruptible(caller, (&target, key.as_deref()), &mut interrupts, &mut interrupted, answer).await?;
        }
        let Some(answered) = answered else { return Ok(EXIT_INTERRUPTED) };
        let answer: RunAnswer = match answered.map_err(|lost| lost_run(lost, &target))? {
            Ok(answer) => answer,
            Err(error) if error.code == ErrorCode::Timeout => {
                print_so_far(caller, &error, colors)?;
                output::report(&error, caller.json);
                return Ok(EXIT_TIMEOUT);
            }
            // Not every shell reports how an interrupted command ended.
            Err(error) if interrupted && error.stage.as_deref() == Some("running") => {
                print_so_far(caller, &error, colors)?;
                return Ok(EXIT_INTERRUPTED);
            }
            Err(error) => return Err(error.into()),
        };
        if caller.json {
            ignore_closed_pipe(output::print_json(&answer))?;
        } else {
            if answer.truncated {
                output::note("the beginning of the output is missing: it was longer than the retained output");
            }
            print_output(&answer.output, colors)?;
        }
        let Some(status) = answer.exit_status else {
            output::note("the shell ended with the command, so the exit status is unknown");
            return Ok(EXIT_ERROR);
        };
        // Shells return 0 to 255; any other status is a failure, too.
        Ok(u8::try_from(status).unwrap_or(u8::MAX))
    }
}

/// Prints the output so far of a command that did not end.
fn print_so_far(caller: &Caller, error: &Error, colors: bool) -> Result<(), Failure> {
    match error.details.as_ref().and_then(|details| details.get("output")?.as_str()) {
        Some(printed) if !caller.json => print_output(printed, colors),
        _ => Ok(()),
    }
}

/// Prints a command's output: text, or with the colors that were requested.
fn print_output(text: &str, colors: bool) -> Result<(), Failure> {
    // The daemon has left only colors in it.
    ignore_closed_pipe(if colors { output::print_raw(text) } else { output::print(text) })
}

/// Waits for a run's response. Ctrl-C interrupts the command, as if typed in the pane; after a second
/// one, or without a response soon after the first, returns `None` and leaves the command running.
/// Before the command of the run with this key was typed, Ctrl-C is for no other command in the pane:
/// returns `None`, and the caller's leaving ends the run.
async fn interruptible<T>(
    caller: &Caller,
    (target, key): (&str, Option<&str>),
    interrupts: &mut unix::Signal,
    interrupted: &mut bool,
    answer: impl Future<Output = T>,
) -> Result<Option<T>, Failure> {
    let mut answer = pin!(answer);
    tokio::select! {
        answer = &mut answer => return Ok(Some(answer)),
        _ = interrupts.recv() => *interrupted = true,
    }
    let keys =
        InputRequest { keys: Some(vec!["C-c".to_owned()]), run: key.map(str::to_owned), ..InputRequest::default() };
    let typed = async || {
        let mut client = caller.client().await?;
        client.post::<InputAnswer>(&format!("{}/input", path_named("panes", target)?), &keys).await
    };
    for is_last in [false, true] {
        tokio::select! {
            // The pane may have just ended, or typing may be denied: the response is still valid.
            typed = typed() => match typed {
                Ok(_) => {
                    output::note("interrupted; Ctrl-C again leaves the command running");
                    break;
                }
                Err(error) if error.stage.as_deref() == Some("queued") => {
                    // It may have ended just now, or is being typed.
                    if let Ok(answer) = tokio::time::timeout(BEING_TYPED, &mut answer).await {
                        return Ok(Some(answer));
                    }
                    if is_last {
                        output::note("interrupted before its command was typed");
                        return Ok(None);
                    }
                }
                Err(error) => {
                    output::note(&format!("cannot type Ctrl-C: {}", error.message));
                    break;
                }
            },
            _ = interrupts.recv() => return Ok(None),
        }
    }
    tokio::select! {
        answer = tokio::time::timeout(INTERRUPTED_LIMIT, &mut answer) => Ok(answer.ok()),
        _ = interrupts.recv() => Ok(None),
    }
}

/// Handles SIGINT from now on: during a request it is meant for what the request starts.
fn interrupts() -> Result<unix::Signal, Error> {
    unix::signal(SignalKind::interrupt()).map_err(|error| Error::internal(format!("signals: {error}")))
}

/// Returns a failure to print, except a closed stdout: the exit status remains the command's.
fn ignore_closed_pipe(printed: Result<(), Failure>) -> Result<(), Failure> {
    match printed {
        Err(Failure::OutputClosed) => Ok(()),
        printed => printed,
    }
}

/// Builds the error for a run whose daemon has exited: its knowledge of the command is lost.
fn lost_run(lost: ConnectionLost, target: &str) -> Error {
    let mut error = Error::from(lost);
    error.message = format!(
        "{error}; the run in {target} has ended: unknown whether the command was typed, how it ended and what it \
         printed; if it was typed, it continues; check with capture-pane before you run it again"
    );
    error
}

fn command_line(mut words: Vec<String>) -> String {
    match words.as_mut_slice() {
        [line] => std::mem::take(line),
        words => words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> String {
        command_line(words.iter().map(|&word| word.to_owned()).collect())
    }

    #[test]
    fn one_word_is_a_command_line() {
        assert_eq!(line(&["cd /tmp && ls | wc -l"]), "cd /tmp && ls | wc -l");
    }

    #[test]
    fn several_words_stay_words() {
        assert_eq!(line(&["sh", "-c", "exit 7"]), "sh -c 'exit 7'");
        assert_eq!(line(&["printf", "%s", "", "a=b", "=ls"]), "printf '%s' '' a=b '=ls'");
        assert_eq!(line(&["echo", "it's", r"a\b"]), r"echo 'it'\''s' 'a'\\'b'");
    }

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        for word in ["it's", r"\", r"a\\'b", "$HOME `id` \"x\"", "a\nb", "*", "~", "!!", "#x", "ü"] {
            let script = line(&["printf", "%s", word]);
            let output = std::process::Command::new("sh").arg("-c").arg(&script).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word, "{script}");
        }
    }
}
