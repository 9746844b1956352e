//! Commands that send one request to the daemon, in a runtime or without one.

use hyper::Method;
use serde::{Serialize, de::DeserializeOwned};

use super::{Outcome, caller::Caller, exchange::exchange};
use crate::api::Error;

/// A request to the daemon.
pub(super) struct Ask {
    /// The path, with the request's own query.
    pub(super) path: String,
    pub(super) method: Method,
    /// The JSON of a `POST`.
    pub(super) body: Option<Vec<u8>>,
    /// The idempotency key of a request that may be sent again.
    pub(super) key: Option<String>,
}

impl Ask {
    pub(super) fn get(path: String) -> Self {
        Self { path, method: Method::GET, body: None, key: None }
    }

    pub(super) fn post(path: String, body: &impl Serialize) -> Result<Self, Error> {
        let body = serde_json::to_vec(body).map_err(|error| Error::internal(format!("request: {error}")))?;
        Ok(Self { path, method: Method::POST, body: Some(body), key: None })
    }

    pub(super) fn delete(path: String) -> Self {
        Self { method: Method::DELETE, ..Self::get(path) }
    }
}

/// A command that sends one request and prints the response.
pub(super) trait OneRequest {
    /// The type of the response.
    type Answer: DeserializeOwned;

    /// Returns the request.
    fn ask(&self, caller: &Caller) -> Result<Ask, Error>;

    /// Prints the response.
    fn print(&self, caller: &Caller, answer: &Self::Answer) -> Outcome;
}

/// Returns the daemon's response, in a runtime. Starts the daemon if it is not running.
pub(super) async fn answer<C: OneRequest>(command: &C, caller: &Caller) -> Result<C::Answer, Error> {
    let ask = command.ask(caller)?;
    caller.client().await?.ask_for(ask).await
}

/// Runs a command in a runtime. Starts the daemon if it is not running.
pub(super) async fn run(command: &impl OneRequest, caller: &Caller) -> Outcome {
    command.print(caller, &answer(command, caller).await?)
}

/// Runs a command without a runtime. `None`: nothing was printed or changed, and [`run`] is needed,
/// because no daemon is running or the daemon is in an unusual state.
pub(super) fn run_at_once<C: OneRequest>(command: &C, caller: &Caller) -> Option<Outcome> {
    let ask = match command.ask(caller) {
        Ok(ask) => ask,
        Err(error) => return Some(Err(error.into())),
    };
    let answer = match exchange(caller, &ask)? {
        Ok(reply) => reply.read::<C::Answer>(),
        Err(error) => Err(error),
    };
    Some(match answer {
        Ok(answer) => command.print(caller, &answer),
        Err(error) => Err(error.into()),
    })
}
