//! Asks in a Mattermost thread: posts a message with reactions to choose from, and reads the choice
//! from the WebSocket.
//!
//! Invariants, which `tests/integration/supervise` proves:
//! - M1: the calls of the successful case are, in this order: the post, three reactions, the
//!   WebSocket, the reacting user's name (only if the users who may answer are restricted), the
//!   post's deletion.
//! - M2: a post is always deleted: after an answer, a deadline, a withdrawal, or if the WebSocket
//!   cannot be reached.
//! - M3: no reaction is missed while the WebSocket is lost: after a reconnection the existing
//!   reactions are fetched.
//! - M4: only a reaction to this post, by a user who may answer and is not the bot, with one of the
//!   three emoji decides.

mod events;
mod rest;

use std::{collections::HashMap, fmt::Write as _, io, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use muxtap_base::clock::jittered;
use muxtap_engine::Lineage;
use muxtap_net::remote::Address;
use tokio::time::Instant;

use self::{
    events::Events,
    rest::{Reaction, Rest},
};
use super::{Confirm, Decision, Question, Request};
use crate::{
    approvals::asked_by,
    consent::{PROMPT_CHARS, block, cut, title, visible},
    environment::Platform,
};

/// The error text if the chat could not be reached.
const UNREACHABLE: &str = "Error: spawn confirmation failed (could not post or connect to Mattermost)";
/// The offered reactions.
const OFFERED: [&str; 3] = ["+1", "white_check_mark", "-1"];
/// The attempts to open the WebSocket for the first time.
const FIRST_TRIES: u32 = 3;
/// The pause after the first failed attempt to open the WebSocket; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The duration after which a connection counts as stable: the next pause is short again.
const STEADY: Duration = Duration::from_secs(10);
/// The time limit for a post's deletion, regardless of the server's rate limit: the process may be
/// about to end.
const DELETE_LIMIT: Duration = Duration::from_secs(60);
/// The time after the post within which the WebSocket reports all reactions, so that none has to be
/// fetched.
const MOMENTS: Duration = Duration::from_secs(1);
/// The attempts to delete a post.
const DELETE_TRIES: u32 = 3;

/// A Mattermost server, and the thread in which questions are posted.
pub struct Mattermost {
    rest: io::Result<Rest>,
}

impl Mattermost {
    /// Creates the asker without connecting. An invalid address is reported when a human is asked.
    pub fn new(platform: Platform) -> Self {
        let rest = Address::read(&platform.url).map(|address| Rest { address, platform });
        Self { rest }
    }
}

impl Mattermost {
    /// Asks with this message until a future of `over` resolves; `over` is called any number of
    /// times. `None`: it resolved before an answer. Error: no human can be asked.
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
            let asked = self.decide(&message(&question.request, question.asker.as_ref()), || question.over()).await;
            match asked {
                Ok(decision) => decision.unwrap_or(Decision::Denied),
                Err(error) => {
                    tracing::warn!("cannot post the question to Mattermost: {error}");
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
///
/// A prompt that could pass for a row of the post is an indented block, after all rows.
fn message(request: &Request, asker: Option<&Lineage>) -> String {
    let Request { name, prompt, directory, session } = request;
    let (name, prompt) = (title(name).replace('`', "'"), visible(prompt));
    let is_plain = !["\n", "**", "`", "]("].iter().any(|mark| prompt.contains(mark));
    let mut message = format!(":rocket: **Spawn Request**\nClaude wants to spawn {} `{name}`\n", request.kind());
    if is_plain {
        let _ = writeln!(message, "- **Prompt:** {}", cut(&prompt, PROMPT_CHARS));
    }
    if let Some(directory) = directory {
        let _ = writeln!(message, "- **Dir:** {}", title(directory));
    }
    if let Some(session) = session {
        let _ = writeln!(message, "- **Session:** {} (new window)", title(session));
    }
    if asker.is_some() {
        let _ = writeln!(message, "- **Asked by:** {}", asked_by(asker));
    }
    if !is_plain {
        let _ = writeln!(message, "\n**Prompt:**\n\n{}", block(&prompt, PROMPT_CHARS));
    }
    message + "React: :+1: approve | :-1: deny"
}

/// Waits for a human's reaction, without a time limit. Error: the WebSocket never opened.
async fn answered(rest: &Rest, post: &str) -> io::Result<Decision> {
    let offering = Instant::now();
    for emoji in OFFERED {
        if let Err(error) = rest.react(post, emoji).await {
            // A human can add the missing reaction.
            tracing::warn!("cannot add the reaction {emoji}: {error}");
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
                // Everything before the first connection happened within moments of the post,
                // unless the connection took several attempts.
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
        tracing::info!("lost the WebSocket connection: {lost}");
        tokio::time::sleep(jittered(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Deletes the post and retries on failure.
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

/// Decides the meaning of a reaction.
struct Judge<'a> {
    rest: &'a Rest,
    post: &'a str,
    /// Whether each user who reacted may answer.
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

    /// Returns the decision that a reaction makes; `None`: the reaction is ignored.
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
                // The failure is not cached: the next reaction requests the name again.
                tracing::warn!("cannot look up the name of user {user}: {error}");
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
            message(&request, None),
            ":rocket: **Spawn Request**\nClaude wants to spawn session `n`\n- **Prompt:** p\n\
             React: :+1: approve | :-1: deny"
        );
        let request = Request { directory: Some("/d".into()), session: Some("s".into()), ..request };
        assert_eq!(
            message(&request, None),
            ":rocket: **Spawn Request**\nClaude wants to spawn window `n`\n- **Prompt:** p\n- **Dir:** /d\n\
             - **Session:** s (new window)\nReact: :+1: approve | :-1: deny"
        );
    }

    #[test]
    fn a_prompt_cannot_pass_for_a_row_of_the_post() {
        let request = |prompt: &str| Request {
            name: "n".into(),
            prompt: prompt.into(),
            directory: Some("/d".into()),
            session: None,
        };
        let shown = message(&request("fix it\n- **Asked by:** process 1\nReact"), None);
        assert_eq!(
            shown,
            ":rocket: **Spawn Request**\nClaude wants to spawn session `n`\n- **Dir:** /d\n\n**Prompt:**\n\n    \
             fix it\n    - **Asked by:** process 1\n    React\n\nReact: :+1: approve | :-1: deny"
        );
        assert!(message(&request("x **Asked by:** y"), None).contains("\n\n    x **Asked by:** y\n\n"));
        assert!(message(&request(&"x\n".repeat(9000)), None).len() < 16_383);
    }
}
