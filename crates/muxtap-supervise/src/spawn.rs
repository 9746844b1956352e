//! The action `spawn`: checks the request, asks a human, then creates the session.

use std::{path::PathBuf, sync::Arc};

use muxtap_approvals::{
    Confirm, Decision, Question, Request,
    store::{self, Entry},
};
use muxtap_base::nonce;
use muxtap_engine::{Server, UnmanagedPlace, UnmanagedSpawn, find_session, is_absent};
use serde_json::Map;
use tokio::{sync::oneshot, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{Supervisor, arguments::Arguments, error_text};

use muxtap_api::{Error, ErrorCode, Tier};
use muxtap_core::protocol::ids::SessionId;

/// The error text if there is no way to ask a human.
const NO_CONFIRMER: &str = "Error: spawn needs a human's approval, and there is no way to ask one: set PLATFORM_URL, \
    PLATFORM_TOKEN, PLATFORM_CHANNEL_ID, PLATFORM_THREAD_ID and PLATFORM_BOT_ID for Mattermost, or let a human run \
    `muxtap approvals --watch`";

/// A spawn request that passed its checks.
struct CheckedSpawn {
    request: Request,
    /// The working directory, absolute.
    directory: PathBuf,
}

impl Supervisor {
    pub(super) async fn spawn(
        &self,
        server: &Server,
        arguments: &Arguments<'_>,
        first: &[Arc<dyn Confirm>],
    ) -> Result<String, String> {
        let checked = self.check(server, arguments).await?;
        // A task that outlives the caller. If the caller disconnects, the question is withdrawn; a
        // session that was already approved is created and kept.
        let withdrawn = self.shared.stop.child_token();
        let _gone = withdrawn.clone().drop_guard();
        let ways = first.iter().chain(&self.shared.options.confirm).cloned().collect();
        let (this, server) = (self.clone(), server.clone());
        let (done, result) = oneshot::channel();
        let task = async move {
            let result = match this.ask(&checked.request, ways, withdrawn).await {
                Decision::Approved => this.create(&server, checked).await,
                Decision::Denied => Ok("Spawn denied by user.".into()),
                Decision::Unavailable(why) => Err(why),
            };
            // The caller may have disconnected.
            let _ = done.send(result);
        };
        // The engine waits for this task when it stops, regardless of the interface that serves the
        // tool.
        self.shared.engine.spawn(self.shared.tasks.track_future(task));
        result.await.unwrap_or_else(|_| Err(error_text(&Error::internal("the question was lost"))))
    }

    async fn check(&self, server: &Server, arguments: &Arguments<'_>) -> Result<CheckedSpawn, String> {
        let prompt = arguments.prompt().ok_or("Error: prompt is required for spawn")?;
        // Checked before a human is asked: muxtap would refuse the spawn afterwards.
        self.shared.engine.authorize(Tier::Create).map_err(|error| error_text(&error))?;
        let named = arguments.working_dir();
        let directory = match &named {
            Some(named) => self.directory(named),
            None => self.shared.options.directory.clone(),
        };
        if let Some(named) = &named
            && !tokio::fs::metadata(&directory).await.is_ok_and(|found| found.is_dir())
        {
            return Err(format!("Error: directory '{named}' not found"));
        }
        let name = arguments.name().unwrap_or_else(generate_name);
        let session = arguments.session();
        if let Some(session) = &session {
            if session_named(server, session).await?.is_none() {
                return Err(format!("Error: session '{session}' not found"));
            }
        } else {
            if name.contains(['.', ':']) {
                return Err(format!("Error: session name '{name}' cannot contain '.' or ':' (tmux target delimiters)"));
            }
            if session_named(server, &name).await?.is_some() {
                return Err(already_exists(&name));
            }
        }
        if let Some(field) = [("prompt", &prompt), ("name", &name)].iter().find(|(_, text)| text.contains('\0')) {
            return Err(format!("Error: {} cannot contain a NUL character", field.0));
        }
        Ok(CheckedSpawn { request: Request { name, prompt, directory: named, session }, directory })
    }

    /// Asks by the first way that is available.
    async fn ask(&self, request: &Request, ways: Vec<Arc<dyn Confirm>>, withdrawn: CancellationToken) -> Decision {
        let deadline = Instant::now() + self.shared.options.answer_timeout;
        let mut decision = Decision::Unavailable(NO_CONFIRMER.into());
        for way in ways {
            let (request, asker) = (request.clone(), self.asker.clone());
            let question = Question { request, asker, deadline, withdrawn: withdrawn.clone() };
            decision = way.ask(question).await;
            if !matches!(decision, Decision::Unavailable(_)) {
                break;
            }
        }
        // Recorded for every way: an MCP client may approve by itself.
        let result = match &decision {
            Decision::Approved => "approved",
            Decision::Denied => "denied",
            Decision::Unavailable(_) => "unavailable",
        };
        self.shared.engine.record_about("spawn-question", &request.name, result);
        // A yes to a withdrawn question has no effect.
        if withdrawn.is_cancelled() { Decision::Denied } else { decision }
    }

    /// Creates the approved session or window and records it in the store.
    async fn create(&self, server: &Server, checked: CheckedSpawn) -> Result<String, String> {
        let CheckedSpawn { request, directory } = checked;
        let Request { name, prompt, directory: named, session } = request;
        let place = match &session {
            None => UnmanagedPlace::Session,
            // The session may have ended: the answer may have taken a day.
            Some(session) => match session_named(server, session).await? {
                Some(id) => UnmanagedPlace::Window(id),
                None => return Err(format!("Error: session '{session}' not found")),
            },
        };
        let spawn = UnmanagedSpawn {
            place,
            name: &name,
            directory: named.is_some().then_some(directory.as_path()),
            command: &format!("claude {}", quoted(&prompt)),
            caller: &self.shared.options.directory,
            environment: self.shared.options.environment.as_ref(),
        };
        if let Err(error) = server.spawn_unmanaged(&spawn).await {
            return Err(match (error.code, &session) {
                (ErrorCode::Conflict, None) => already_exists(&name),
                (ErrorCode::NotFound, Some(session)) => format!("Error: session '{session}' not found"),
                _ => error_text(&error),
            });
        }
        let shown = named.unwrap_or_else(|| directory.display().to_string());
        let entry = Entry {
            name: name.clone(),
            channel_id: self.shared.options.channel.clone(),
            thread_id: self.shared.options.thread.clone(),
            working_dir: Some(shown.clone()),
            prompt: Some(prompt.clone()),
            created_at: Some(store::now()),
            rest: Map::new(),
        };
        if let Err(error) = self.shared.store.put(entry).await {
            // Not an error: the session runs, as the caller requested.
            tracing::warn!("cannot write {}: {error}", self.shared.options.store.display());
        }
        let what = session.map_or_else(|| "session".to_owned(), |session| format!("window in `{session}`"));
        Ok(format!("Spawned tmux {what} `{name}`.\n- Prompt: {prompt}\n- Dir: {shown}"))
    }
}

fn already_exists(name: &str) -> String {
    format!("Error: session '{name}' already exists")
}

/// Returns the session with this name, if it exists.
async fn session_named(server: &Server, name: &str) -> Result<Option<SessionId>, String> {
    match server.link().fresh().await {
        Ok(topology) => Ok(find_session(&topology.without_hubs(), name).ok().map(|session| session.id)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error_text(&error)),
    }
}

/// Generates a name for a spawn without one.
fn generate_name() -> String {
    format!("earl-{}-{:04x}", store::compact_timestamp(), nonce::number() & 0xffff)
}

/// Quotes a text as one word for a shell. Quotes and backslashes are placed outside quotes, where
/// sh and fish read them alike.
fn quoted(text: &str) -> String {
    let mut word = String::with_capacity(text.len() + 2);
    word.push('\'');
    for c in text.chars() {
        match c {
            '\'' => word.push_str("'\\''"),
            '\\' => word.push_str("'\\\\'"),
            c => word.push(c),
        }
    }
    word.push('\'');
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_time_and_four_hex_digits() {
        let name = generate_name();
        let pattern = regex::Regex::new("^earl-[0-9]{14}-[0-9a-f]{4}$").unwrap();
        assert!(pattern.is_match(&name), "{name}");
    }

    #[test]
    fn a_quoted_prompt_passes_through_a_shell_unchanged() {
        for text in ["it's; $HOME `id` \"x\" \\ \\' !\n#{pane_id};", "", "-x"] {
            let printed =
                std::process::Command::new("sh").arg("-c").arg(format!("printf %s {}", quoted(text))).output();
            assert_eq!(String::from_utf8(printed.unwrap().stdout).unwrap(), text);
        }
    }
}
