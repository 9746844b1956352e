//! Elicitation: asks the person at the client.
//!
//! Before protocol version 2026-07-28 the server sends a request of its own, and the call waits for
//! the answer. Since then the call's result is the question, and the client calls again with the
//! answer. The question's name is derived from the call, so a yes counts for no other call.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::future::BoxFuture;
use muxtap_approvals::{
    Confirm, Decision, Question,
    consent::{PROMPT_CHARS, cut, visible},
};
use rmcp::{
    RoleServer,
    model::{
        ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
        InputRequest, InputRequiredResult, InputResponses, ProtocolVersion, ServerRequest,
    },
    service::{Peer, PeerRequestOptions, RequestContext},
};

/// Asks the client's person, during a call.
pub(crate) struct Elicitation {
    method: ElicitationMethod,
    /// The tool and its arguments: the subject of the question.
    call: String,
    /// The question that the client must ask before it calls again.
    question: Mutex<Option<String>>,
}

enum ElicitationMethod {
    /// A request from the server to the client.
    Request(Peer<RoleServer>),
    /// A result that contains the question; these are the answers to earlier ones.
    InputRequired(InputResponses),
    /// The client cannot ask a person.
    Unsupported,
}

/// The outcome of a question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ElicitationOutcome {
    Accepted,
    Declined,
    /// The client must ask, and call again.
    Deferred,
    /// No person was asked, for this reason.
    Unavailable(String),
}

impl Elicitation {
    /// Prepares to ask about `call`, which has the answers `said`.
    pub(super) fn of(context: &RequestContext<RoleServer>, call: String, said: Option<InputResponses>) -> Self {
        let can = context.client_capabilities().and_then(|client| client.elicitation);
        // A client that names no form of asking supports the original one.
        let method = match can.filter(|can| can.form.is_some() || can.url.is_none()) {
            None => ElicitationMethod::Unsupported,
            Some(_) if context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28) => {
                ElicitationMethod::InputRequired(said.unwrap_or_default())
            }
            Some(_) => ElicitationMethod::Request(context.peer.clone()),
        };
        Self { method, call, question: Mutex::default() }
    }

    /// Returns whether the client can ask a person.
    pub(super) fn can_ask(&self) -> bool {
        !matches!(self.method, ElicitationMethod::Unsupported)
    }

    /// Returns the tool and its arguments.
    pub(super) fn call(&self) -> &str {
        &self.call
    }

    /// Asks the person. When `withdrawn` resolves, the question is withdrawn, and the outcome is
    /// [`ElicitationOutcome::Declined`].
    pub(super) async fn ask_user(&self, what: &str, withdrawn: impl Future<Output = ()>) -> ElicitationOutcome {
        match &self.method {
            ElicitationMethod::Unsupported => ElicitationOutcome::Unavailable("this client cannot ask a person".into()),
            ElicitationMethod::Request(peer) => request(peer, what, withdrawn).await,
            ElicitationMethod::InputRequired(said) => {
                let Some(said) = said.get(&name(&self.call)) else {
                    *self.question.lock().unwrap_or_else(PoisonError::into_inner) = Some(what.to_owned());
                    return ElicitationOutcome::Deferred;
                };
                match serde_json::from_value::<ElicitResult>(said.clone()) {
                    Ok(said) if said.action == ElicitationAction::Accept => ElicitationOutcome::Accepted,
                    Ok(_) => ElicitationOutcome::Declined,
                    Err(error) => ElicitationOutcome::Unavailable(format!("invalid response from the client: {error}")),
                }
            }
        }
    }

    /// Takes the question that must be the call's result, if there is one.
    pub(super) fn question(&self) -> Option<InputRequiredResult> {
        let what = self.question.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let question = InputRequest::Elicitation(ElicitRequest::new(form(&what)));
        Some(InputRequiredResult::from_input_requests(BTreeMap::from([(name(&self.call), question)])))
    }
}

/// Returns the name of a call's question in the answers.
fn name(call: &str) -> String {
    let mut hasher = DefaultHasher::new();
    call.hash(&mut hasher);
    format!("confirm-{:016x}", hasher.finish())
}

/// Builds a form without fields: accept or decline.
fn form(what: &str) -> ElicitRequestParams {
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: what.to_owned(),
        requested_schema: ElicitationSchema::new(BTreeMap::new()),
    }
}

async fn request(peer: &Peer<RoleServer>, what: &str, withdrawn: impl Future<Output = ()>) -> ElicitationOutcome {
    let request = ServerRequest::ElicitRequest(ElicitRequest::new(form(what)));
    let mut asked = match peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await {
        Ok(asked) => asked,
        Err(error) => return ElicitationOutcome::Unavailable(error.to_string()),
    };
    tokio::select! {
        answer = &mut asked.rx => match answer {
            Ok(Ok(ClientResult::ElicitResult(said))) => match said.action {
                ElicitationAction::Accept => ElicitationOutcome::Accepted,
                _ => ElicitationOutcome::Declined,
            },
            Ok(Ok(_)) => ElicitationOutcome::Unavailable("unexpected response from the client".into()),
            Ok(Err(error)) => ElicitationOutcome::Unavailable(error.to_string()),
            Err(_) => ElicitationOutcome::Unavailable("the client disconnected".into()),
        },
        () = withdrawn => {
            // A client that has disconnected needs no cancellation.
            let _ = asked.cancel(Some("the answer is no longer needed".into())).await;
            ElicitationOutcome::Declined
        }
    }
}

impl Confirm for Elicitation {
    fn ask(self: Arc<Self>, question: Question) -> BoxFuture<'static, Decision> {
        Box::pin(async move {
            let request = &question.request;
            let place = request.session.as_ref().map_or_else(String::new, |session| format!(" in session {session}"));
            let directory = request.directory.as_ref().map_or_else(String::new, |named| format!(" in {named}"));
            let what = format!(
                "Start Claude as {} {:?}{place}{directory}?\n\n{}",
                request.kind(),
                request.name,
                cut(&visible(&request.prompt), PROMPT_CHARS)
            );
            match self.ask_user(&what, question.over()).await {
                ElicitationOutcome::Accepted => Decision::Approved,
                // The call's result is the question, whatever is decided now.
                ElicitationOutcome::Declined | ElicitationOutcome::Deferred => Decision::Denied,
                ElicitationOutcome::Unavailable(why) => {
                    Decision::Unavailable(format!("Error: spawn confirmation failed ({why})"))
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn said(said: &[(&str, serde_json::Value)], call: &str) -> (ElicitationOutcome, bool) {
        let said = said.iter().map(|(call, said)| (name(call), said.clone())).collect();
        let elicitation = Elicitation {
            method: ElicitationMethod::InputRequired(said),
            call: call.into(),
            question: Mutex::default(),
        };
        (elicitation.ask_user("Really?", std::future::pending()).await, elicitation.question().is_some())
    }

    #[tokio::test]
    async fn a_yes_counts_for_the_call_it_was_given_to() {
        let yes = json!({"action": "accept", "content": {}});
        assert_eq!(said(&[("End it", yes.clone())], "End it").await, (ElicitationOutcome::Accepted, false));
        assert_eq!(
            said(&[("End it", json!({"action": "decline"}))], "End it").await,
            (ElicitationOutcome::Declined, false)
        );
        assert_eq!(said(&[("End it", yes)], "End all").await, (ElicitationOutcome::Deferred, true));
        let (odd, asked) = said(&[("End it", json!(7))], "End it").await;
        assert!(matches!(odd, ElicitationOutcome::Unavailable(_)) && !asked);
    }
}
