//! Asking the person in front of the client.
//!
//! Before 2026-07-28 the server sends a request of its own and the call waits for the answer. Since then the call's answer is the question,
//! and the client calls again with what was said; the question's name comes from the call, so that a yes counts for no other.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::future::BoxFuture;
use rmcp::{
    RoleServer,
    model::{
        ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
        InputRequest, InputRequiredResult, InputResponses, ProtocolVersion, ServerRequest,
    },
    service::{Peer, PeerRequestOptions, RequestContext},
};

use crate::supervise::confirm::{Confirm, Decision, Question};

/// Whoever sits there, during one call.
pub(crate) struct Person {
    way: Way,
    /// The tool and all it was called with: what the person is asked about.
    call: String,
    /// What the client is to ask before it calls again.
    question: Mutex<Option<String>>,
}

enum Way {
    /// A request of the server's.
    Request(Peer<RoleServer>),
    /// An answer that asks; this is what was said to earlier ones.
    Again(InputResponses),
    /// The client asks nobody.
    None,
}

/// What a person said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    Yes,
    No,
    /// The client is to ask, and to call again.
    Later,
    /// Nobody was asked; why.
    Nobody(String),
}

impl Person {
    /// Of `call`, which brings `said` along.
    pub(super) fn of(context: &RequestContext<RoleServer>, call: String, said: Option<InputResponses>) -> Self {
        let can = context.client_capabilities().and_then(|client| client.elicitation);
        // A client that names no form of asking means the first there was.
        let way = match can.filter(|can| can.form.is_some() || can.url.is_none()) {
            None => Way::None,
            Some(_) if context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28) => {
                Way::Again(said.unwrap_or_default())
            }
            Some(_) => Way::Request(context.peer.clone()),
        };
        Self { way, call, question: Mutex::default() }
    }

    /// The tool and all it was called with.
    pub(super) fn call(&self) -> &str {
        &self.call
    }

    /// Asks. When `withdrawn` resolves nobody wants the answer any more, and it is no.
    pub(super) async fn says(&self, what: &str, withdrawn: impl Future<Output = ()>) -> Said {
        match &self.way {
            Way::None => Said::Nobody("this client cannot ask a person".into()),
            Way::Request(peer) => request(peer, what, withdrawn).await,
            Way::Again(said) => {
                let Some(said) = said.get(&name(&self.call)) else {
                    *self.question.lock().unwrap_or_else(PoisonError::into_inner) = Some(what.to_owned());
                    return Said::Later;
                };
                match serde_json::from_value::<ElicitResult>(said.clone()) {
                    Ok(said) if said.action == ElicitationAction::Accept => Said::Yes,
                    Ok(_) => Said::No,
                    Err(error) => Said::Nobody(format!("what the client says was said cannot be read: {error}")),
                }
            }
        }
    }

    /// The question with which the call has to be answered, if there is one.
    pub(super) fn question(&self) -> Option<InputRequiredResult> {
        let what = self.question.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let question = InputRequest::Elicitation(ElicitRequest::new(form(&what)));
        Some(InputRequiredResult::from_input_requests(BTreeMap::from([(name(&self.call), question)])))
    }
}

/// What names a call's question among the answers.
fn name(call: &str) -> String {
    let mut hasher = DefaultHasher::new();
    call.hash(&mut hasher);
    format!("confirm-{:016x}", hasher.finish())
}

/// Yes or no: nothing is to be filled in.
fn form(what: &str) -> ElicitRequestParams {
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: what.to_owned(),
        requested_schema: ElicitationSchema::new(BTreeMap::new()),
    }
}

async fn request(peer: &Peer<RoleServer>, what: &str, withdrawn: impl Future<Output = ()>) -> Said {
    let request = ServerRequest::ElicitRequest(ElicitRequest::new(form(what)));
    let mut asked = match peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await {
        Ok(asked) => asked,
        Err(error) => return Said::Nobody(error.to_string()),
    };
    tokio::select! {
        answer = &mut asked.rx => match answer {
            Ok(Ok(ClientResult::ElicitResult(said))) if said.action == ElicitationAction::Accept => Said::Yes,
            Ok(Ok(ClientResult::ElicitResult(_))) => Said::No,
            Ok(Ok(_)) => Said::Nobody("the client answered something else".into()),
            Ok(Err(error)) => Said::Nobody(error.to_string()),
            Err(_) => Said::Nobody("the client has gone".into()),
        },
        () = withdrawn => {
            // Whoever has gone need not be told.
            let _ = asked.cancel(Some("nobody waits for the answer any more".into())).await;
            Said::No
        }
    }
}

impl Confirm for Person {
    fn ask(self: Arc<Self>, question: Question) -> BoxFuture<'static, Decision> {
        Box::pin(async move {
            let request = &question.request;
            let place = request.session.as_ref().map_or_else(String::new, |session| format!(" in session {session}"));
            let directory = request.directory.as_ref().map_or_else(String::new, |named| format!(" in {named}"));
            let what = format!(
                "Start Claude as {} {:?}{place}{directory}?\n\n{}",
                request.kind(),
                request.name,
                request.prompt
            );
            match self.says(&what, question.over()).await {
                Said::Yes => Decision::Approved,
                // The call is answered with the question, whatever is decided now.
                Said::No | Said::Later => Decision::Denied,
                Said::Nobody(why) => Decision::Unavailable(format!("Error: spawn confirmation failed ({why})")),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn said(said: &[(&str, serde_json::Value)], call: &str) -> (Said, bool) {
        let said = said.iter().map(|(call, said)| (name(call), said.clone())).collect();
        let person = Person { way: Way::Again(said), call: call.into(), question: Mutex::default() };
        (person.says("Really?", std::future::pending()).await, person.question().is_some())
    }

    #[tokio::test]
    async fn a_yes_counts_for_the_call_it_was_given_to() {
        let yes = json!({"action": "accept", "content": {}});
        assert_eq!(said(&[("End it", yes.clone())], "End it").await, (Said::Yes, false));
        assert_eq!(said(&[("End it", json!({"action": "decline"}))], "End it").await, (Said::No, false));
        assert_eq!(said(&[("End it", yes)], "End all").await, (Said::Later, true));
        let (odd, asked) = said(&[("End it", json!(7))], "End it").await;
        assert!(matches!(odd, Said::Nobody(_)) && !asked);
    }
}
