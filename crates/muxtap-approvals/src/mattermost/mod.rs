//! Asks in a Mattermost thread: a post with reactions to choose from, and the WebSocket that
//! reports which was chosen.
//!
//! Invariants, which `tests/integration/supervise` proves:
//! - M1: the calls of the good case are, in this order: the post, three reactions, the WebSocket,
//!   who reacted (only where not everybody may), the post's deletion.
//! - M2: a post that was made is deleted, whatever happens: answer, deadline, withdrawal, a
//!   WebSocket that cannot be reached.
//! - M3: no reaction is missed while the WebSocket is lost: after it is back the reactions so far
//!   are asked for.
//! - M4: only a reaction to this post, by a user who may answer and is not the bot, with one of
//!   the three emoji decides.

mod connect;
mod events;
mod rest;

use std::{collections::HashMap, fmt::Write as _, io, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use muxtap_base::clock::jittered;
use tokio::time::Instant;

use self::{
    connect::Address,
    events::Events,
    rest::{Reaction, Rest},
};
use super::{Confirm, Decision, Question, Request};
use crate::environment::Platform;

/// The answer where no human could be asked.
const UNREACHABLE: &str = "Error: spawn confirmation failed (could not post or connect to Mattermost)";
/// The reactions that are offered.
const OFFERED: [&str; 3] = ["+1", "white_check_mark", "-1"];
/// The tries in which the WebSocket must open for the first time.
const FIRST_TRIES: u32 = 3;
/// The first pause before the WebSocket is tried again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A connection that lasted this long was a good one: the next pause is a short one again.
const STEADY: Duration = Duration::from_secs(10);
/// How long a post's deletion may take, whatever the server says of its rate: the process may be
/// about to end.
const DELETE_LIMIT: Duration = Duration::from_secs(60);
/// Reactions that came within this time after the post are reported by the WebSocket.
const MOMENTS: Duration = Duration::from_secs(1);
/// How often a post's deletion is tried.
const DELETE_TRIES: u32 = 3;

/// A Mattermost server, and the thread in which questions are posted.
pub struct Mattermost {
    rest: io::Result<Rest>,
}

impl Mattermost {
    /// Makes the asker; nothing is connected yet. An address that cannot be read is reported when a
    /// human is to be asked.
    pub fn new(platform: Platform) -> Self {
        let rest = Address::read(&platform.url).map(|address| Rest { address, platform });
        Self { rest }
    }
}

impl Mattermost {
    /// Asks with this message until `over` resolves, of which there can be any number. `None`: then nobody had
    /// answered. Error: nobody can be asked.
    pub async fn decide<O: Future<Output = ()>>(
        &self,
        message: &str,
        over: impl Fn() -> O,
    ) -> io::Result<Option<Decision>> {
        match &self.rest {
            Ok(rest) => ask(rest, message, over).await,
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        }
    }
}

impl Confirm for Mattermost {
    fn ask(self: Arc<Self>, question: Question) -> BoxFuture<'static, Decision> {
        Box::pin(async move {
            let asked = self.decide(&message(&question.request), || question.over()).await;
            match asked {
                Ok(decision) => decision.unwrap_or(Decision::Denied),
                Err(error) => {
                    tracing::warn!("cannot ask in Mattermost: {error}");
                    Decision::Unavailable(UNREACHABLE.into())
                }
            }
        })
    }
}

async fn ask<O: Future<Output = ()>>(rest: &Rest, message: &str, over: impl Fn() -> O) -> io::Result<Option<Decision>> {
    let post = rest.post(message, over()).await?;
    let decision = tokio::select! {
        biased;
        () = over() => Ok(None),
        decision = answered(rest, &post) => decision.map(Some),
    };
    if tokio::time::timeout(DELETE_LIMIT, delete(rest, &post)).await.is_err() {
        tracing::warn!("the post {post} could not be deleted in time");
    }
    decision
}

/// Returns the text of the post.
fn message(request: &Request) -> String {
    let Request { name, prompt, directory, session } = request;
    let mut message = format!(
        ":rocket: **Spawn Request**\nClaude wants to spawn {} `{name}`\n- **Prompt:** {prompt}\n",
        request.kind()
    );
    if let Some(directory) = directory {
        let _ = writeln!(message, "- **Dir:** {directory}");
    }
    if let Some(session) = session {
        let _ = writeln!(message, "- **Session:** {session} (new window)");
    }
    message + "React: :+1: approve | :-1: deny"
}

/// Waits for a human's reaction, for ever. Error: the WebSocket never opened.
async fn answered(rest: &Rest, post: &str) -> io::Result<Decision> {
    let offering = Instant::now();
    for emoji in OFFERED {
        if let Err(error) = rest.react(post, emoji).await {
            // A human can add the reaction that is missing.
            tracing::warn!("cannot offer {emoji}: {error}");
        }
    }
    let mut judge = Judge { rest, post, users: HashMap::new() };
    let slow = offering.elapsed() > MOMENTS;
    let mut pause = FIRST_PAUSE;
    let mut failures = 0;
    let mut opened = false;
    loop {
        let lost = match Events::connect(&rest.address, &rest.platform.token).await {
            Ok(mut events) => {
                let since = Instant::now();
                // What happened before the first connection happened within moments of the post,
                // unless it took several tries.
                match judge.listen(&mut events, slow || failures > 0).await {
                    Ok(decision) => return Ok(decision),
                    Err(error) => {
                        opened |= error.kind() != io::ErrorKind::PermissionDenied;
                        if since.elapsed() > STEADY {
                            pause = FIRST_PAUSE;
                        }
                        error
                    }
                }
            }
            Err(error) => error,
        };
        failures += 1;
        if !opened && (failures == FIRST_TRIES || lost.kind() == io::ErrorKind::PermissionDenied) {
            return Err(lost);
        }
        tracing::info!("the WebSocket is lost: {lost}");
        tokio::time::sleep(jittered(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Deletes the post, and tries again where that fails.
async fn delete(rest: &Rest, post: &str) {
    let mut pause = FIRST_PAUSE;
    for attempt in 1..=DELETE_TRIES {
        match rest.delete(post).await {
            Ok(()) => return,
            Err(error) => tracing::warn!("cannot delete the post {post}: {error}"),
        }
        if attempt < DELETE_TRIES {
            tokio::time::sleep(jittered(pause)).await;
            pause *= 2;
        }
    }
}

/// Decides what a reaction means.
struct Judge<'a> {
    rest: &'a Rest,
    post: &'a str,
    /// Which users who reacted may answer.
    users: HashMap<String, bool>,
}

impl Judge<'_> {
    /// Waits for a reaction that decides. `missed`: some may have come before this connection.
    /// Error: the connection is lost.
    async fn listen(&mut self, events: &mut Events, missed: bool) -> io::Result<Decision> {
        if missed {
            for reaction in self.rest.reactions(self.post).await? {
                if let Some(decision) = self.judge(&reaction).await {
                    return Ok(decision);
                }
            }
        }
        loop {
            let reaction = events.next().await?;
            if let Some(decision) = self.judge(&reaction).await {
                return Ok(decision);
            }
        }
    }

    /// Returns the decision of a reaction; `None`: it is ignored.
    async fn judge(&mut self, reaction: &Reaction) -> Option<Decision> {
        let Reaction { user_id, post_id, emoji_name, .. } = reaction;
        if post_id != self.post || *user_id == self.rest.platform.bot || !self.may_answer(user_id).await {
            return None;
        }
        match emoji_name.as_str() {
            "+1" | "white_check_mark" => Some(Decision::Approved),
            "-1" => Some(Decision::Denied),
            _ => None,
        }
    }

    async fn may_answer(&mut self, user: &str) -> bool {
        let allowed = &self.rest.platform.allowed;
        if allowed.is_empty() {
            return true;
        }
        if let Some(may) = self.users.get(user) {
            return *may;
        }
        match self.rest.username(user).await {
            Ok(name) => {
                let may = allowed.contains(&name);
                self.users.insert(user.to_owned(), may);
                may
            }
            Err(error) => {
                // The failure is not kept: the next reaction asks again.
                tracing::warn!("cannot tell who {user} is: {error}");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_has_a_line_for_what_was_given() {
        let request = Request { name: "n".into(), prompt: "p".into(), directory: None, session: None };
        assert_eq!(
            message(&request),
            ":rocket: **Spawn Request**\nClaude wants to spawn session `n`\n- **Prompt:** p\n\
             React: :+1: approve | :-1: deny"
        );
        let request = Request { directory: Some("/d".into()), session: Some("s".into()), ..request };
        assert_eq!(
            message(&request),
            ":rocket: **Spawn Request**\nClaude wants to spawn window `n`\n- **Prompt:** p\n- **Dir:** /d\n\
             - **Session:** s (new window)\nReact: :+1: approve | :-1: deny"
        );
    }
}
