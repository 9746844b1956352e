//! The chat's REST interface: one request per connection, each with a time limit; waits when the
//! server's rate limit is reached.

use std::{io, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, StatusCode, header};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;

use crate::environment::Platform;
use muxtap_net::remote::{self, Address};

/// The time limit for one request, its connection included.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// The longest accepted response, in bytes.
const ANSWER_BYTES: usize = 1 << 20;
/// The attempts of a request that the server rejects by its rate limit.
const TRIES: u32 = 5;
/// The pause if the server's rejection does not give one.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause, regardless of the server's.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A reaction to a post, as REST and the WebSocket report it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Reaction {
    pub(super) user_id: String,
    pub(super) post_id: String,
    pub(super) emoji_name: String,
    /// Milliseconds since 1970.
    #[serde(default)]
    pub(super) create_at: i64,
}

/// The chat's server.
pub(super) struct Rest {
    pub(super) address: Address,
    pub(super) platform: Platform,
}

#[derive(Deserialize)]
struct Post {
    id: String,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

impl Rest {
    /// Posts a message in the thread and returns the post's id. `over` resolves when the post is no
    /// longer wanted; then a pause is cut short. A request in progress is never dropped, because
    /// that could leave an unknown post.
    pub(super) async fn post(&self, message: &str, over: impl Future<Output = ()>) -> io::Result<String> {
        let Platform { channel, thread, .. } = &self.platform;
        let body = json!({ "channel_id": channel, "message": message, "root_id": thread });
        Ok(self.ask::<Post>(Method::POST, "posts", Some(&body), over).await?.id)
    }

    /// Reacts to a post as the bot.
    pub(super) async fn react(&self, post: &str, emoji: &str) -> io::Result<()> {
        let body = json!({ "user_id": self.platform.bot, "post_id": post, "emoji_name": emoji });
        self.send(Method::POST, "reactions", Some(&body), std::future::pending()).await.map(drop)
    }

    /// Returns all existing reactions to a post, oldest first.
    pub(super) async fn reactions(&self, post: &str) -> io::Result<Vec<Reaction>> {
        let route = format!("posts/{post}/reactions");
        // A post without reactions has `null`.
        let found: Option<Vec<Reaction>> = self.ask(Method::GET, &route, None::<&()>, std::future::pending()).await?;
        let mut found = found.unwrap_or_default();
        found.sort_by_key(|reaction| reaction.create_at);
        Ok(found)
    }

    /// Returns a user's name.
    pub(super) async fn username(&self, user: &str) -> io::Result<String> {
        // The id comes from the server and must remain one component of a path.
        if user.is_empty() || !user.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
            return Err(io::Error::other(format!("invalid user id {user:?}")));
        }
        let route = format!("users/{user}");
        Ok(self.ask::<User>(Method::GET, &route, None::<&()>, std::future::pending()).await?.username)
    }

    /// Deletes a post.
    pub(super) async fn delete(&self, post: &str) -> io::Result<()> {
        self.send(Method::DELETE, &format!("posts/{post}"), None::<&()>, std::future::pending()).await.map(drop)
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        route: &str,
        body: Option<&impl Serialize>,
        over: impl Future<Output = ()>,
    ) -> io::Result<T> {
        let answer = self.send(method, route, body, over).await?;
        Ok(serde_json::from_slice(&answer)?)
    }

    async fn send(
        &self,
        method: Method,
        route: &str,
        body: Option<&impl Serialize>,
        over: impl Future<Output = ()>,
    ) -> io::Result<Bytes> {
        let body = body.map(serde_json::to_vec).transpose()?.map(Bytes::from);
        let mut over = std::pin::pin!(over);
        for attempt in 1.. {
            let once = self.once(method.clone(), route, body.clone());
            let (status, pause, answer) = tokio::time::timeout(REQUEST_LIMIT, once)
                .await
                .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, format!("{method} {route}: no response")))??;
            if status.is_success() {
                return Ok(answer);
            }
            if status != StatusCode::TOO_MANY_REQUESTS || attempt == TRIES {
                let why: String = String::from_utf8_lossy(&answer).chars().take(200).collect();
                return Err(io::Error::other(format!("{method} {route}: HTTP {status}: {why}")));
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = &mut over => break,
            }
        }
        Err(io::Error::new(io::ErrorKind::Interrupted, "the request was cancelled"))
    }

    async fn once(
        &self,
        method: Method,
        route: &str,
        body: Option<Bytes>,
    ) -> io::Result<(StatusCode, Duration, Bytes)> {
        let mut request = Request::builder()
            .method(method)
            .uri(self.address.path(&format!("/api/v4/{route}")))
            .header(header::HOST, self.address.authority())
            .header(header::AUTHORIZATION, format!("Bearer {}", self.platform.token))
            .header(header::USER_AGENT, concat!("muxtap/", env!("CARGO_PKG_VERSION")))
            .header(header::CONNECTION, "close");
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(body.unwrap_or_default())).map_err(io::Error::other)?;
        let answer = remote::exchange(&self.address, request, ANSWER_BYTES).await?;
        Ok((answer.status, pause(&answer.headers), answer.body))
    }
}

/// Returns the pause that a rate-limited response requests.
fn pause(headers: &header::HeaderMap) -> Duration {
    let seconds = |name| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let delay = seconds("retry-after").or_else(|| seconds("x-ratelimit-reset"));
    let delay = delay.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    delay.unwrap_or(PAUSE).clamp(Duration::from_millis(50), LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_what_the_server_says_within_limits() {
        let delay = |name: &'static str, value: &'static str| {
            pause(&header::HeaderMap::from_iter([(header::HeaderName::from_static(name), value.parse().unwrap())]))
        };
        assert_eq!(delay("retry-after", "2"), Duration::from_secs(2));
        assert_eq!(delay("x-ratelimit-reset", "3"), Duration::from_secs(3));
        assert_eq!(delay("retry-after", "9999"), LONGEST_PAUSE);
        assert_eq!(delay("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"), PAUSE);
        assert_eq!(delay("retry-after", "-1"), PAUSE);
    }
}
