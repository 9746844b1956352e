//! `approvals`.

use std::{collections::BTreeSet, fmt::Write as _};

use clap::{Args, Subcommand};
use muxtap_approvals::approvals::{ApprovalAnswer, ApprovalList, OpenQuestion, Verdict, unknown};
use muxtap_base::plain;
use tokio::sync::mpsc;

use super::{
    Caller, Outcome,
    output::{self, Failure},
};

use crate::{
    api::{DoneAnswer, Error, Result},
    cli::{
        client::{Client, EventStream, has_ended},
        url,
    },
    daemon::start,
};

const PATH: &str = "/v1/approvals";
/// The maximum number of consecutive lost connections; more are an error.
const LOST_IN_A_ROW: u32 = 3;

/// Approve or deny agents' requests
///
/// Lists open questions with the whole prompt: requests to spawn an agent, when
/// `manage_tmux_sessions` has no other way to ask a person, and permission questions of agent
/// sessions. An approval counts once. While `--watch` runs, agents know that a person can be asked.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  muxtap approvals                    list open questions
  muxtap approvals --watch            show each question as it comes; answer with y or n
  muxtap approvals approve 3fa9c1")]
pub(in crate::cli) struct ApprovalsArgs {
    /// Show questions as they come, and read `y` or `n` from stdin, for the oldest question or with
    /// an ID after it
    #[arg(long)]
    watch: bool,

    #[command(subcommand)]
    word: Option<ApprovalsCommand>,
}

#[derive(Debug, Subcommand)]
enum ApprovalsCommand {
    /// Approve requests
    Approve {
        /// Ids of the questions
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
    /// Deny requests
    Deny {
        /// Ids of the questions
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
}

impl ApprovalsArgs {
    /// Returns whether the command prints until it is stopped.
    pub(in crate::cli) fn goes_on(&self) -> bool {
        self.watch && self.word.is_none()
    }

    pub(in crate::cli) async fn run(self, caller: &Caller) -> Outcome {
        match self.word {
            Some(ApprovalsCommand::Approve { ids }) => answer_all(caller, &ids, Verdict::Approved).await,
            Some(ApprovalsCommand::Deny { ids }) => answer_all(caller, &ids, Verdict::Denied).await,
            None if self.watch => watch(caller).await,
            None => list(caller).await,
        }
    }
}

async fn list(caller: &Caller) -> Outcome {
    let list = match caller.running().await? {
        Some(mut client) => client.get(PATH, &()).await?,
        // Questions come from processes of a daemon.
        None => ApprovalList::default(),
    };
    if caller.json {
        output::print_json(&list)?;
        return Ok(0);
    }
    let open = list.approvals;
    if open.is_empty() {
        output::print("No questions are open.\n")?;
        return Ok(0);
    }
    let shown: Vec<String> = open.iter().map(|question| words(question) + "\n").collect();
    output::print(shown.join("\n"))?;
    Ok(0)
}

async fn answer_all(caller: &Caller, ids: &[String], word: Verdict) -> Outcome {
    for id in ids {
        answer(caller, id, word).await?;
        output::print(format!("{}\n", confirmation(id, word)))?;
    }
    Ok(0)
}

async fn answer(caller: &Caller, id: &str, word: Verdict) -> Result<()> {
    let mut client = caller.running().await?.ok_or_else(|| unknown(id))?;
    let path = format!("{PATH}/{}", url::encode(id));
    client.post::<DoneAnswer>(&path, &ApprovalAnswer { answer: word }).await.map(drop)
}

async fn watch(caller: &Caller) -> Outcome {
    let mut lists = lists(caller.client().await?).await?;
    let mut input = lines_of_stdin();
    let mut reads_stdin = true;
    let mut questions = Questions::default();
    loop {
        let mut list = None;
        tokio::select! {
            read = lists.next(|data| list = serde_json::from_slice(data).ok()) => match read {
                Ok(true) => if let Some(list) = list { questions.update(list, caller.json)? },
                ended => {
                    questions.update(ApprovalList::default(), caller.json)?;
                    match ended {
                        Ok(_) => {
                            output::note("the daemon has ended; waiting for another one");
                            lists.closed().await;
                        }
                        Err(lost) => {
                            output::note(&format!("{}; continuing with another one", Error::from(lost).message));
                            caller.reconnect().await?;
                        }
                    }
                    lists = next_lists(caller).await?;
                    questions.answered.clear();
                }
            },
            line = input.recv(), if reads_stdin => match line {
                Some(line) => if let Some((word, id)) = questions.meant(&line) {
                    match answer(caller, &id, word).await {
                        Ok(()) => {
                            output::print(format!("{}\n", confirmation(&id, word)))?;
                            questions.answered(id);
                        }
                        Err(error) => output::note(&error.message),
                    }
                },
                // Without stdin the questions are still shown.
                None => reads_stdin = false,
            },
        }
    }
}

/// Opens the stream of lists. While it is open, agents know that a person watches.
async fn lists(client: Client) -> Result<EventStream> {
    client.events(&format!("{PATH}/events"), &(), None).await
}

/// Opens the stream of the next daemon. Does not start one: the last daemon may have been stopped
/// on purpose.
async fn next_lists(caller: &Caller) -> Result<EventStream> {
    let mut failures = 0;
    loop {
        let paths = caller.paths.clone();
        let started = tokio::task::spawn_blocking(move || start::wait_for_restart(&paths, None)).await;
        if started.map_err(|error| Error::internal(error.to_string()))??.is_none() {
            break;
        }
        let (opened, process) = match caller.running().await {
            Ok(Some(client)) => {
                let process = client.process();
                (lists(client.comparing_versions()).await, process)
            }
            Ok(None) => continue,
            Err(error) => (Err(error), None),
        };
        match opened {
            // The daemon is stopping: it rejected this, or stopped accepting and then closed its socket.
            Err(_) if failures < LOST_IN_A_ROW => {
                failures += 1;
                if let Some(process) = process {
                    has_ended(process).await;
                }
            }
            opened => return opened,
        }
    }
    let folder = caller.paths.dir().display();
    Err(Error::internal(format!("cannot watch {folder} for the next daemon; start this again when one is running")))
}

/// The questions that a terminal has shown.
#[derive(Default)]
struct Questions {
    /// The open questions, oldest first.
    open: Vec<OpenQuestion>,
    shown: BTreeSet<String>,
    /// The questions answered here. A list sent earlier may still contain them.
    answered: BTreeSet<String>,
    /// A question that ended without an answer from here: the next bare word may be meant for it.
    over: Option<String>,
}

impl Questions {
    /// Shows new questions and reports those that have ended.
    fn update(&mut self, list: ApprovalList, json: bool) -> Result<(), Failure> {
        self.open = list.approvals;
        self.open.retain(|question| !self.answered.contains(&question.id));
        self.shown.retain(|id| {
            let stays = self.open.iter().any(|question| question.id == *id);
            if !stays {
                output::note(&format!("{id} has ended"));
                self.over = Some(id.clone());
            }
            stays
        });
        for question in &self.open {
            if self.shown.insert(question.id.clone()) {
                show(question, json)?;
            }
        }
        Ok(())
    }

    fn answered(&mut self, id: String) {
        self.shown.remove(&id);
        self.open.retain(|question| question.id != id);
        self.answered.insert(id);
    }

    /// Parses a line into an answer and its question.
    fn meant(&mut self, line: &str) -> Option<(Verdict, String)> {
        let mut words = line.split_whitespace();
        let word = match words.next()? {
            "y" | "yes" => Verdict::Approved,
            "n" | "no" => Verdict::Denied,
            _ => {
                output::note("expected y or n, with the ID unless it is the oldest question");
                return None;
            }
        };
        if let Some(id) = words.next() {
            Some((word, id.to_owned()))
        } else if let Some(over) = self.over.take() {
            output::note(&format!("{over} has ended meanwhile; repeat if you mean another question"));
            None
        } else if let Some(oldest) = self.open.first() {
            Some((word, oldest.id.clone()))
        } else {
            output::note("no question is open");
            None
        }
    }
}

/// Reads stdin line by line, on a thread that is never joined: a runtime would not end before the
/// next line came.
pub(super) fn lines_of_stdin() -> mpsc::Receiver<String> {
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
    let id = &question.id;
    output::print(format!("{}\n  y {id} or n {id}?\n", words(question)))
}

/// Describes a question: who asks, and what will happen. The asker's own words are last in their
/// lines, or behind a mark.
fn words(question: &OpenQuestion) -> String {
    let OpenQuestion { id, kind, name, asked_by, prompt, working_dir, session, until, .. } = question;
    let is_permission = kind == OpenQuestion::PERMISSION;
    // A spawn's name is what will be made; a permission's is only the agent's title.
    let named = if is_permission { String::new() } else { format!(" {}", plain::name(name)) };
    let mut text = format!("{id}  {kind}{named}, until {until}\n  asked by: {}", plain::name(asked_by));
    let called = Some(name).filter(|_| is_permission);
    for (what, value) in [("session", session.as_ref()), ("dir", working_dir.as_ref()), ("it calls this", called)] {
        if let Some(value) = value {
            let _ = write!(text, "\n  {what}: {}", plain::name(value));
        }
    }
    for line in prompt.lines() {
        let _ = write!(text, "\n  | {}", plain::name(line));
    }
    text
}

fn confirmation(id: &str, word: Verdict) -> String {
    match word {
        Verdict::Approved => format!("{id} approved"),
        Verdict::Denied => format!("{id} denied"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(id: &str) -> OpenQuestion {
        OpenQuestion {
            id: id.into(),
            kind: "session".into(),
            name: "n".into(),
            asked_by: "process 1".into(),
            prompt: "p".into(),
            working_dir: None,
            session: None,
            asked_at: "now".into(),
            until: "later".into(),
            pid: 1,
        }
    }

    fn list(ids: &[&str]) -> ApprovalList {
        ApprovalList { approvals: ids.iter().map(|id| question(id)).collect() }
    }

    #[test]
    fn a_bare_word_is_for_the_oldest_unless_that_was_another_one_a_moment_ago() {
        let mut questions = Questions::default();
        questions.update(list(&["3fa9c1", "a", "b"]), false).unwrap();
        questions.update(list(&["a", "b"]), false).unwrap();
        assert_eq!((questions.meant(""), questions.meant("yy")), (None, None));
        assert_eq!(questions.meant("y"), None, "it may have been meant for the one that has ended");
        assert_eq!(questions.meant("y"), Some((Verdict::Approved, "a".into())));
        questions.answered("a".into());
        assert_eq!(questions.meant("n"), Some((Verdict::Denied, "b".into())), "the other one was answered");
        questions.over = Some("3fa9c1".into());
        let named = Some((Verdict::Denied, "c".into()));
        assert_eq!(questions.meant("n c"), named, "an ID is meant as it stands");
    }

    #[test]
    fn what_was_answered_here_is_not_shown_again_by_a_list_from_before() {
        let mut questions = Questions::default();
        questions.update(list(&["a"]), false).unwrap();
        questions.answered("a".into());
        questions.update(list(&["a"]), false).unwrap();
        assert!(questions.shown.is_empty() && questions.open.is_empty());
        questions.update(list(&[]), false).unwrap();
        assert_eq!(questions.over, None);
    }
}
