//! `approvals`.

use std::{collections::BTreeMap, fmt::Write as _};

use clap::{Args, Subcommand};
use tokio::sync::mpsc;

use super::{
    Caller, Outcome,
    output::{self, Failure, Table},
};
use crate::{
    api::{Error, ErrorCode},
    plain,
    supervise::confirm::{
        approvals::{AnswerError, Approvals, OpenQuestion, Verdict},
        terminal,
    },
};

/// Say yes or no to what agents want to spawn
///
/// Lists the questions that are open, with the whole prompt. Agents ask here when `manage_tmux_sessions` has no other way to ask a
/// human; while `--watch` runs they know that somebody is there.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap approvals                    what is open
  muxtap approvals --watch            each question as it comes; answer with y or n
  muxtap approvals approve 3fa9c1")]
pub(in crate::cli) struct ApprovalsArgs {
    /// Show questions as they come, and read answers from stdin: `y` or `n`, for the oldest, or followed by an ID
    #[arg(long)]
    watch: bool,

    #[command(subcommand)]
    word: Option<ApprovalsCommand>,
}

#[derive(Debug, Subcommand)]
enum ApprovalsCommand {
    /// Say yes
    Approve {
        /// The questions
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
    /// Say no
    Deny {
        /// The questions
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
}

impl ApprovalsArgs {
    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        let folder = Approvals::new(caller.paths.approvals_dir());
        match self.word {
            Some(ApprovalsCommand::Approve { ids }) => answer_all(&folder, &ids, Verdict::Approved),
            Some(ApprovalsCommand::Deny { ids }) => answer_all(&folder, &ids, Verdict::Denied),
            None if self.watch => watch(&folder, caller.json).await,
            None => list(&folder, caller.json),
        }
    }
}

fn list(folder: &Approvals, json: bool) -> Outcome {
    let open = folder.open_questions().map_err(AnswerError::from).map_err(refused)?;
    if json {
        output::print_json(&serde_json::json!({ "approvals": open }))?;
        return Ok(0);
    }
    if open.is_empty() {
        output::print("No questions are open.\n")?;
        return Ok(0);
    }
    let mut table = Table::new(&["ID", "WHAT", "NAME", "DIR", "UNTIL", "PROMPT"]);
    for question in open {
        table.row(&[
            question.id,
            question.session.map_or(question.kind, |session| format!("window in {session}")),
            question.name,
            question.working_dir.unwrap_or_default(),
            question.until,
            question.prompt,
        ]);
    }
    output::print(table.render())?;
    Ok(0)
}

fn answer_all(folder: &Approvals, ids: &[String], word: Verdict) -> Outcome {
    for id in ids {
        folder.answer(id, word).map_err(refused)?;
        output::print(format!("{}\n", confirmation(id, word)))?;
    }
    Ok(0)
}

async fn watch(folder: &Approvals, json: bool) -> Outcome {
    let unusable = |error: std::io::Error| Failure::from(refused(error.into()));
    let _watching = folder.watch().map_err(unusable)?;
    let (_watcher, mut changes) = terminal::changes(folder).map_err(unusable)?;
    let mut input = lines_of_stdin();
    let mut reads_stdin = true;
    let mut shown: BTreeMap<String, OpenQuestion> = BTreeMap::new();
    // A question has ended without an answer from here: the next bare word may have been meant for
    // it.
    let mut over = None;
    loop {
        let open = folder.open_questions().map_err(unusable)?;
        shown.retain(|id, _| {
            let stays = open.iter().any(|question| question.id == *id);
            if !stays {
                output::note(&format!("{id} has ended"));
                over = Some(id.clone());
            }
            stays
        });
        for question in &open {
            if shown.insert(question.id.clone(), question.clone()).is_none() {
                show(question, json)?;
            }
        }
        tokio::select! {
            change = changes.recv() => if change.is_none() { return Ok(0) },
            line = input.recv(), if reads_stdin => match line {
                Some(line) => {
                    let said = answer(folder, &line, &open, &mut over)?;
                    said.map(|id| shown.remove(&id));
                }
                // Without stdin the questions are still shown.
                None => reads_stdin = false,
            },
        }
    }
}

/// Reads stdin line by line, on a thread that is never joined: a runtime would not end before the
/// next line came.
fn lines_of_stdin() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn show(question: &OpenQuestion, json: bool) -> Result<(), Failure> {
    if json {
        return output::print_json(question);
    }
    let OpenQuestion { id, kind, name, prompt, working_dir, session, until, .. } = question;
    let mut text = format!("{id}  {kind} {}, until {until}\n", plain::name(name));
    for (what, value) in [("session", session), ("dir", working_dir)] {
        if let Some(value) = value {
            let _ = writeln!(text, "  {what}: {}", plain::name(value));
        }
    }
    for line in prompt.lines() {
        let _ = writeln!(text, "  | {}", plain::name(line));
    }
    output::print(text + &format!("  y {id} or n {id}?\n"))
}

/// Answers the question that a line is for; returns that question's id. `over`: a question that has
/// ended meanwhile.
fn answer(
    folder: &Approvals,
    line: &str,
    open: &[OpenQuestion],
    over: &mut Option<String>,
) -> Result<Option<String>, Failure> {
    let mut words = line.split_whitespace();
    let word = match words.next() {
        None => return Ok(None),
        Some("y" | "yes") => Verdict::Approved,
        Some("n" | "no") => Verdict::Denied,
        Some(_) => {
            output::note("write y or n, and the ID where it is not the oldest question");
            return Ok(None);
        }
    };
    let id = if let Some(id) = words.next() {
        id
    } else if let Some(over) = over.take() {
        output::note(&format!("{over} has ended meanwhile; say it again if another is meant"));
        return Ok(None);
    } else if let Some(oldest) = open.first() {
        oldest.id.as_str()
    } else {
        output::note("no question is open");
        return Ok(None);
    };
    match folder.answer(id, word) {
        Ok(()) => {
            output::print(format!("{}\n", confirmation(id, word)))?;
            Ok(Some(id.to_owned()))
        }
        Err(error) => {
            output::note(&error.to_string());
            Ok(None)
        }
    }
}

fn confirmation(id: &str, word: Verdict) -> String {
    match word {
        Verdict::Approved => format!("{id} approved"),
        Verdict::Denied => format!("{id} denied"),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` calls")]
fn refused(error: AnswerError) -> Error {
    let code = match error {
        AnswerError::Unknown(_) => ErrorCode::NotFound,
        AnswerError::Answered(_) | AnswerError::Unusable(_) => ErrorCode::Conflict,
    };
    Error::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::confirm::Request;

    #[test]
    fn a_bare_word_is_for_the_oldest_unless_that_was_another_one_a_moment_ago() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Approvals::new(dir.path().join("approvals"));
        let request = Request { name: "n".into(), prompt: "p".into(), directory: None, session: None };
        let asked = folder.ask(&request, "later".into()).unwrap();
        let open = folder.open_questions().unwrap();
        let mut over = Some("3fa9c1".to_owned());
        let mut say = |line: &str| answer(&folder, line, &open, &mut over).unwrap();
        assert_eq!((say(""), say("yy")), (None, None));
        assert_eq!(say("y"), None, "it may have been meant for the one that has ended");
        assert_eq!(asked.answer().unwrap(), None);
        assert_eq!(say("y").as_deref(), Some(asked.id()));
        assert_eq!(say("n"), None, "it was answered");
        let other = folder.ask(&request, "later".into()).unwrap();
        let mut over = Some("3fa9c1".to_owned());
        let said = answer(&folder, &format!("n {}", other.id()), &open, &mut over).unwrap();
        assert_eq!(said.as_deref(), Some(other.id()), "an ID is meant as it stands");
    }
}
