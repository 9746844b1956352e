//! Questions to a person, for permission or with a form or a URL: each is answered once, by the first caller or at its deadline.

use std::collections::VecDeque;

use muxtap_api::{AgentAnswerRequest, AgentQuestion, Error, ErrorCode, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use super::{acp, elicitation, turns::Millis};

/// The maximum number of a session's open questions; a further one is cancelled.
pub(super) const OPEN_QUESTIONS: usize = 32;
/// The number of a session's answered questions that are remembered.
const ANSWERED_QUESTIONS: usize = 64;

/// The questions of a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Questions {
    open: Vec<Open>,
    answered: VecDeque<(String, String)>,
    last: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Open {
    question: AgentQuestion,
    subject: Subject,
    /// The agent's id of the request.
    request: Box<RawValue>,
    deadline: Millis,
}

/// What a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Subject {
    /// A tool call (`session/request_permission`).
    Permission,
    /// A form or a URL (`elicitation/create`).
    Elicitation,
}

/// A chosen answer: the response to the agent, and the event.
#[derive(Debug)]
pub(super) struct Chosen {
    /// The agent's id of the request.
    pub(super) request: Box<RawValue>,
    /// The question's id.
    pub(super) question: String,
    /// The chosen option. `None`: cancelled.
    pub(super) option: Option<String>,
    /// The result for the agent.
    pub(super) result: Value,
    /// Whether the request is allowed.
    pub(super) allowed: bool,
    /// The interface and the caller, or the reason without a caller.
    pub(super) by: String,
    /// Whether the agent withdrew its request.
    pub(super) withdrawn: bool,
}

impl Questions {
    /// Returns an id for the next question.
    pub(super) fn next_id(&mut self) -> String {
        self.last += 1;
        format!("q{}", self.last)
    }

    /// Returns whether another question can be opened.
    pub(super) fn has_room(&self) -> bool {
        self.open.len() < OPEN_QUESTIONS
    }

    /// Adds a question.
    pub(super) fn ask(&mut self, question: AgentQuestion, subject: Subject, request: Box<RawValue>, deadline: Millis) {
        self.open.push(Open { question, subject, request, deadline });
    }

    /// Returns the open questions, the oldest first.
    pub(super) fn open(&self) -> Vec<AgentQuestion> {
        self.open.iter().map(|open| open.question.clone()).collect()
    }

    /// Answers a question.
    ///
    /// Errors: `NOT_FOUND`; `CONFLICT` for an answered question, with the source of that answer;
    /// `INVALID_ARGUMENT` for an option that the question does not offer.
    pub(super) fn answer(&mut self, id: &str, answer: &AgentAnswerRequest, by: &str) -> Result<Chosen> {
        let found = self.open.iter().enumerate().find(|(_, open)| open.question.id == id);
        let Some((at, Open { question, subject, .. })) = found else {
            return Err(match self.answered.iter().find(|(answered, _)| answered == id) {
                Some((_, by)) => Error::new(ErrorCode::Conflict, format!("question {id} was already answered by {by}")),
                None => Error::not_found(format!("unknown question {id}; see the list of open questions")),
            });
        };
        let (option, allowed) = match (&answer.option, answer.allow) {
            (Some(id), None) => {
                let Some(option) = question.options.iter().find(|option| option.id == *id) else {
                    let ids: Vec<_> = question.options.iter().map(|option| option.id.as_str()).collect();
                    return Err(Error::invalid(format!("option: unknown value {id:?}; expected {}", ids.join(", "))));
                };
                (Some(option.id.clone()), option.allows())
            }
            (None, Some(allow)) => match question.plain_option(allow) {
                Some(option) => (Some(option.id.clone()), allow),
                // A no always counts.
                None if !allow => (None, false),
                None => return Err(Error::invalid("allow: this question has no such option; use one of its options")),
            },
            _ => {
                let ids: Vec<_> = question.options.iter().map(|option| option.id.as_str()).collect();
                return Err(Error::invalid(format!("expected either `allow` or `option`: one of {}", ids.join(", "))));
            }
        };
        let mut content = None;
        if !answer.content.is_empty() && (question.form.is_empty() || !allowed) {
            return Err(Error::invalid("content: only a form that is accepted has content"));
        }
        if *subject == Subject::Elicitation && allowed && question.url.is_none() {
            content = Some(elicitation::filled(&question.form, &answer.content)?);
        }
        let open = self.open.remove(at);
        Ok(self.chosen_with(open, option, content, allowed, by))
    }

    /// Denies the questions whose deadline has passed.
    pub(super) fn due(&mut self, now: Millis) -> Vec<Chosen> {
        let (due, open) = std::mem::take(&mut self.open).into_iter().partition(|open| open.deadline <= now);
        self.open = open;
        let deny = |open: Open| {
            let option = open.question.plain_option(false).map(|option| option.id.clone());
            // A person who does not answer has not declined.
            let option = option.filter(|_| open.subject == Subject::Permission);
            self.chosen(open, option, false, "deadline")
        };
        <Vec<Open> as IntoIterator>::into_iter(due).map(deny).collect()
    }

    /// Cancels every question.
    pub(super) fn cancel(&mut self, by: &str) -> Vec<Chosen> {
        let open = std::mem::take(&mut self.open);
        open.into_iter().map(|open| self.chosen(open, None, false, by)).collect()
    }

    /// Closes the question of a request that the agent withdraws. `None`: no such question is open.
    pub(super) fn withdraw(&mut self, request: &Value) -> Option<Chosen> {
        let at = self.open.iter().position(|open| is_id(&open.request, request))?;
        let open = self.open.remove(at);
        Some(Chosen { withdrawn: true, ..self.chosen(open, None, false, "agent") })
    }

    /// Returns the open questions with their deadlines.
    pub(super) fn due_at(&self) -> Vec<(AgentQuestion, Millis)> {
        self.open.iter().map(|open| (open.question.clone(), open.deadline)).collect()
    }

    /// Returns the next deadline.
    pub(super) fn next_deadline(&self) -> Option<Millis> {
        self.open.iter().map(|open| open.deadline).min()
    }

    fn chosen(&mut self, open: Open, option: Option<String>, allowed: bool, by: &str) -> Chosen {
        self.chosen_with(open, option, None, allowed, by)
    }

    fn chosen_with(
        &mut self,
        open: Open,
        option: Option<String>,
        content: Option<Map<String, Value>>,
        allowed: bool,
        by: &str,
    ) -> Chosen {
        let Open { question, subject, request, .. } = open;
        let result = match subject {
            Subject::Permission => acp::permission(option.as_deref()),
            Subject::Elicitation => elicitation::answer(option.as_deref(), content),
        };
        if self.answered.len() >= ANSWERED_QUESTIONS {
            self.answered.pop_front();
        }
        self.answered.push_back((question.id.clone(), by.to_owned()));
        Chosen { request, question: question.id, option, result, allowed, by: by.to_owned(), withdrawn: false }
    }
}

/// Returns whether a request has this id, however each is written.
pub(super) fn is_id(request: &RawValue, id: &Value) -> bool {
    serde_json::from_str::<Value>(request.get()).is_ok_and(|own| own == *id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muxtap_api::{FormField, PermissionOption};
    use serde_json::json;

    fn asked(options: &[(&str, &str)], deadline: Millis) -> (Questions, String) {
        let mut questions = Questions::default();
        let id = questions.next_id();
        let option = |(id, kind): &(&str, &str)| PermissionOption {
            id: (*id).into(),
            kind: (*kind).into(),
            ..PermissionOption::default()
        };
        let question = AgentQuestion::new(id.clone(), "Run x".into(), options.iter().map(option).collect(), 0);
        questions.ask(question, Subject::Permission, RawValue::from_string("7".into()).unwrap(), deadline);
        (questions, id)
    }

    fn yes() -> AgentAnswerRequest {
        AgentAnswerRequest { allow: Some(true), ..AgentAnswerRequest::default() }
    }

    fn option(id: &str) -> AgentAnswerRequest {
        AgentAnswerRequest { option: Some(id.into()), ..AgentAnswerRequest::default() }
    }

    const OPTIONS: [(&str, &str); 3] = [("all", "allow_always"), ("y", "allow_once"), ("n", "reject_once")];

    #[test]
    fn the_first_answer_counts_and_the_second_is_told_who_gave_it() {
        let (mut questions, id) = asked(&OPTIONS, 10);
        assert_eq!(questions.answer(&id, &option("z"), "a").unwrap_err().code, ErrorCode::InvalidArgument);
        assert!(questions.answer(&id, &AgentAnswerRequest::default(), "a").is_err());
        let chosen = questions.answer(&id, &yes(), "unix process 1").unwrap();
        assert_eq!((chosen.option.as_deref(), chosen.allowed), (Some("y"), true));
        let refused = questions.answer(&id, &option("n"), "mcp").unwrap_err();
        assert_eq!(refused.code, ErrorCode::Conflict);
        assert!(refused.message.contains("unix process 1"));
        assert_eq!(questions.answer("q9", &yes(), "a").unwrap_err().code, ErrorCode::NotFound);
        assert!(questions.due(100).is_empty() && questions.cancel("end").is_empty());
    }

    #[test]
    fn a_question_is_denied_at_its_deadline() {
        let (mut questions, id) = asked(&OPTIONS, 10);
        assert!(questions.due(9).is_empty());
        let [chosen] = &questions.due(10)[..] else { panic!("one is due") };
        assert_eq!((chosen.option.as_deref(), chosen.allowed, chosen.by.as_str()), (Some("n"), false, "deadline"));
        assert_eq!(questions.answer(&id, &yes(), "a").unwrap_err().code, ErrorCode::Conflict);
        // Without an option that denies, the answer has no option.
        let (mut questions, _) = asked(&OPTIONS[..2], 10);
        assert_eq!(questions.due(10)[0].option, None);
    }

    #[test]
    fn an_agent_withdraws_its_own_question() {
        let (mut questions, id) = asked(&OPTIONS, 10);
        for other in [Value::Null, "7".into(), 8.into()] {
            assert!(questions.withdraw(&other).is_none(), "{other}");
        }
        let chosen = questions.withdraw(&7.into()).unwrap();
        assert!(chosen.withdrawn && !chosen.allowed && chosen.option.is_none());
        assert!(questions.open().is_empty() && questions.withdraw(&7.into()).is_none());
        let refused = questions.answer(&id, &yes(), "a").unwrap_err();
        assert!(refused.code == ErrorCode::Conflict && refused.message.contains("agent"), "{refused}");
    }

    #[test]
    fn a_form_is_accepted_with_its_values_declined_or_canceled() {
        let ask = || {
            let mut questions = Questions::default();
            let field =
                FormField { name: "port".into(), kind: "integer".into(), required: true, ..FormField::default() };
            let options = elicitation::Elicitation::options();
            let question =
                AgentQuestion { form: vec![field], ..AgentQuestion::new("q1".into(), "?".into(), options, 0) };
            questions.ask(question, Subject::Elicitation, RawValue::from_string("7".into()).unwrap(), 10);
            questions
        };
        let mut questions = ask();
        // A yes without a required value leaves the question open.
        assert!(questions.answer("q1", &yes(), "a").unwrap_err().message.contains("port"));
        let content = [("port".to_owned(), 80.into())].into();
        let accepted = questions.answer("q1", &AgentAnswerRequest { content, ..yes() }, "a").unwrap();
        assert_eq!(accepted.result, json!({"action": "accept", "content": {"port": 80}}));
        assert_eq!(ask().answer("q1", &option("decline"), "a").unwrap().result, json!({"action": "decline"}));
        let [late] = &ask().due(10)[..] else { panic!("one is due") };
        assert!(late.result == json!({"action": "cancel"}) && late.option.is_none() && !late.allowed);
        let content = [("port".to_owned(), 80.into())].into();
        let (mut questions, id) = asked(&OPTIONS, 10);
        assert!(questions.answer(&id, &AgentAnswerRequest { content, ..yes() }, "a").is_err(), "no form");
    }

    #[test]
    fn no_is_always_an_answer() {
        let (mut questions, id) = asked(&OPTIONS[..1], 10);
        let no = AgentAnswerRequest { allow: Some(false), ..AgentAnswerRequest::default() };
        assert_eq!(questions.answer(&id, &no, "a").unwrap().option, None);
        let (mut questions, id) = asked(&OPTIONS[2..], 10);
        assert!(questions.answer(&id, &yes(), "a").is_err());
    }
}
