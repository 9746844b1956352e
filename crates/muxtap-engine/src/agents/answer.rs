//! Answering an agent's question: only the question that the caller was shown.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use muxtap_api::{AgentInfo, AgentOption, Cursor, Error, ErrorCode, InputRequest, Operation, Result};
use muxtap_core::{protocol::ids::PaneId, stream::render};
use tokio::time::Instant;

use crate::{PaneState, Server, limits, pane::Typing};

/// How long an agent may take to show that it received a key.
const REACTION: Duration = Duration::from_secs(2);
/// The most keys pressed to select an answer and give it.
const MOST_KEYS: usize = 72;

/// The result of answering an agent's question.
#[derive(Clone, Debug)]
pub struct AgentAnswered {
    /// The agent's pane.
    pub pane: PaneId,
    /// The text of the answer.
    pub label: String,
    /// Whether the question is no longer shown.
    pub taken: bool,
    /// The end of the output before the first key.
    pub cursor: Cursor,
}

/// How an answer is selected.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Vertical,
    Horizontal,
    Key,
}

impl Server {
    /// Gives one of the answers that the agent in a pane offers, by its key or label.
    ///
    /// Error: `CONFLICT` if the agent asks nothing, or another question than `question_id`; then no
    /// key was pressed.
    pub fn answer<'a>(
        &'a self,
        target: &'a str,
        question_id: &'a str,
        answer: &'a str,
    ) -> BoxFuture<'a, Result<AgentAnswered>> {
        Box::pin(self.answer_here(target, question_id, answer))
    }

    async fn answer_here(&self, target: &str, question_id: &str, answer: &str) -> Result<AgentAnswered> {
        let audit = self.engine.audit(Operation::Answer, &self.host, target)?;
        let audit = audit.input(|| answer.as_bytes().to_vec());
        let done = async {
            let pane = self.resolve_pane(target).await?;
            audit.resolved(pane.id());
            let _only = ExclusiveAnswer::claim(&pane)?;
            let none = || Error::new(ErrorCode::Conflict, format!("no agent runs in pane {}", pane.id()));
            let info = self.agent_in(&pane).await?.ok_or_else(none)?;
            if info.question_id.as_deref() != Some(question_id) {
                return Err(other_question(&info));
            }
            let wanted = chosen(&info.options, answer)?;
            let has_cursor = info.options.iter().any(|option| option.selected);
            if !has_cursor && !info.options.get(wanted).is_some_and(AgentOption::has_own_key) {
                let message = format!(
                    "cannot tell how {} takes that answer in pane {}: it shows neither a cursor nor a key for it; \
                     no key was pressed, press them with send-keys",
                    info.name, info.pane
                );
                return Err(Error::new(ErrorCode::Conflict, message));
            }
            self.press_answer(&pane, info, wanted).await
        }
        .await;
        audit.finish(done)
    }

    /// Moves the cursor to an answer and presses Enter, or presses the answer's key if there is no
    /// cursor.
    async fn press_answer(&self, pane: &Arc<PaneState>, asked: AgentInfo, wanted: usize) -> Result<AgentAnswered> {
        let question_id = asked.question_id.clone();
        let option = asked.options.get(wanted).cloned().unwrap_or_default();
        let selected = |info: &AgentInfo| info.options.iter().position(|option| option.selected);
        let mut way = if selected(&asked).is_some() { Way::Vertical } else { Way::Key };
        let (mut at, mut typed, mut entered) = (selected(&asked), false, false);
        let (mut first, mut taken, mut reacted) = (None, false, true);
        for _ in 0..MOST_KEYS {
            let key = match (way, at) {
                (Way::Vertical | Way::Horizontal, Some(at)) if at == wanted && entered => break,
                (Way::Vertical | Way::Horizontal, Some(at)) if at == wanted => {
                    entered = true;
                    "Enter"
                }
                (Way::Vertical, Some(at)) => {
                    if at < wanted {
                        "Down"
                    } else {
                        "Up"
                    }
                }
                (Way::Horizontal, Some(at)) => {
                    if at < wanted {
                        "Right"
                    } else {
                        "Left"
                    }
                }
                _ if entered => break,
                // After a key without visible effect, Enter could answer the next question.
                _ if typed && !reacted => break,
                _ if typed => {
                    entered = true;
                    "Enter"
                }
                _ if option.has_own_key() => {
                    (way, typed) = (Way::Key, true);
                    option.key.as_str()
                }
                _ => break,
            };
            let request = InputRequest { keys: Some(vec![key.to_owned()]), ..InputRequest::default() };
            let pressed = self.input(&pane.id().to_string(), &request).await?;
            first = first.or(Some(pressed.cursor));
            reacted = tokio::time::timeout(REACTION, pane.until_output(pressed.cursor.offset)).await.is_ok();
            let now = match self.agent_in(pane).await {
                Ok(Some(now)) if now.question_id == question_id => now,
                // The key appeared in the line of the question, which Enter must complete.
                Ok(_) if typed && !entered && in_line(pane, asked.question.as_deref(), &option.key) => continue,
                // The question, or the agent, is no longer there.
                Ok(_) if typed || entered => {
                    taken = true;
                    break;
                }
                Ok(_) => return Err(changed_meanwhile(pane)),
                // The answer was given; whether the agent accepted it is not visible.
                Err(_) if typed || entered => break,
                Err(error) => return Err(error),
            };
            let moved = selected(&now) != at;
            at = selected(&now);
            if !moved && !entered {
                way = match way {
                    Way::Vertical => Way::Horizontal,
                    Way::Horizontal | Way::Key => Way::Key,
                };
            }
        }
        let cursor = first.unwrap_or_else(|| pane.cursor(0));
        Ok(AgentAnswered { pane: pane.id(), label: option.label, taken, cursor })
    }

    /// Returns the agent of a pane in the state that its screen shows now; `None` without an agent.
    ///
    /// Error: `CONFLICT` if the content of the screen is not certain.
    async fn agent_in(&self, pane: &Arc<PaneState>) -> Result<Option<AgentInfo>> {
        let limit = Instant::now() + limits::AGENT_LATEST * 2;
        loop {
            let checked = pane.lock().agent_signals().request_check();
            let judged = matches!(tokio::time::timeout_at(limit, checked).await, Ok(Ok(())));
            let (changed, rests_at, followed) = {
                let mut locked = pane.lock();
                let followed = locked.screen().followed().is_some();
                (locked.agent_signals().is_screen_changed(), locked.last_output() + limits::REST, followed)
            };
            if judged && !changed && followed {
                return Ok(self.host.agents.get(pane.id()));
            }
            if Instant::now() >= limit {
                let message = format!(
                    "the screen of pane {} is uncertain: it keeps changing, or it is not followed; no answer was given",
                    pane.id()
                );
                return Err(Error::new(ErrorCode::Conflict, message));
            }
            // A screen is judged when it is quiet.
            tokio::time::sleep_until(rests_at.max(Instant::now() + limits::REST).min(limit)).await;
        }
    }
}

/// A pane's permit for one answer at a time: the keys of two answers would mix.
struct ExclusiveAnswer<'a>(&'a PaneState);

impl<'a> ExclusiveAnswer<'a> {
    fn claim(pane: &'a PaneState) -> Result<Self> {
        pane.begin_typing(Typing::Answer)?;
        Ok(Self(pane))
    }
}

impl Drop for ExclusiveAnswer<'_> {
    fn drop(&mut self) {
        self.0.lock().end_typing();
    }
}

fn changed_meanwhile(pane: &PaneState) -> Error {
    let message = format!(
        "the question in pane {} changed or was answered while the cursor was moved to the answer; Enter was not \
         pressed",
        pane.id()
    );
    Error::new(ErrorCode::Conflict, message)
}

/// Returns whether the unfinished last line contains the question and ends with the key.
fn in_line(pane: &PaneState, question: Option<&str>, key: &str) -> bool {
    let line = render::resting_line(pane.lock().ring()).text;
    line.trim_end().ends_with(key)
        && question.and_then(|question| question.lines().last()).is_some_and(|question| line.contains(question))
}

fn other_question(info: &AgentInfo) -> Error {
    let message = match &info.question_id {
        Some(id) => {
            let question = info.question.as_deref().unwrap_or_default();
            format!("pane {} shows another question now: {question:?} ({id}); no key was pressed", info.pane)
        }
        None => format!(
            "{} in pane {} shows no question with answers to choose from: it is {}; no key was pressed",
            info.name,
            info.pane,
            info.state.as_str()
        ),
    };
    let details = serde_json::json!({
        "question_id": info.question_id,
        "question": info.question,
        "options": info.options,
    });
    Error::new(ErrorCode::Conflict, message).with_details(details)
}

/// Returns the index of the answer that a caller names by its key, its label, or the beginning of
/// its label.
fn chosen(options: &[AgentOption], answer: &str) -> Result<usize> {
    let wanted = answer.trim().to_lowercase();
    let label = |option: &AgentOption| option.label.to_lowercase();
    let exact = options
        .iter()
        .position(|option| option.key == answer)
        .or_else(|| options.iter().position(|option| label(option) == wanted || option.key.to_lowercase() == wanted));
    let mut beginning =
        options.iter().enumerate().filter(|(_, option)| !wanted.is_empty() && label(option).starts_with(&wanted));
    exact
        .or_else(|| match (beginning.next(), beginning.next()) {
            (Some((only, _)), None) => Some(only),
            _ => None,
        })
        .ok_or_else(|| {
            let offered: Vec<_> = options.iter().map(|option| format!("{}: {}", option.key, option.label)).collect();
            Error::invalid(format!("answer: unknown answer {answer:?}; expected one of: {}", offered.join("; ")))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_named_by_its_key_or_label() {
        let option =
            |key: &str, label: &str| AgentOption { key: key.into(), label: label.into(), ..Default::default() };
        let options = [option("1", "Yes"), option("2", "Yes, and don't ask again"), option("3", "No (esc)")];
        for (answer, at) in [("1", 0), ("yes", 0), ("2", 1), ("Yes, and", 1), ("no", 2)] {
            assert_eq!(chosen(&options, answer).unwrap(), at, "{answer}");
        }
        for answer in ["", "4", "maybe"] {
            assert!(chosen(&options, answer).unwrap_err().message.contains("1: Yes; 2: Yes, and"), "{answer}");
        }
    }
}
