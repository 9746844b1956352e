//! Commands in a pane's shell.

use std::time::Duration;

use muxtap_api::{Result, RunAnswer, RunRequest};

use super::{Pane, RequestFuture, wait::millis};

/// A command for the shell that is idle at its prompt in a pane, typed when awaited.
///
/// Errors:
/// - `CONFLICT`: no shell is idle in the pane, or text is typed at its prompt.
/// - `TIMEOUT`: at the stage `running` the command continues, and the details have its output so
///   far; at the stage `prompt` nothing was run.
/// - `INCONSISTENT_STATE`: the command did not begin, or was interrupted before it did.
/// - `INVALID_ARGUMENT`: the command is empty or longer than 256 KiB.
#[derive(Clone, Debug)]
#[must_use = "a command is not typed until this is awaited"]
pub struct Run {
    pane: Pane,
    request: RunRequest,
}

impl Run {
    pub(super) fn new(pane: Pane, command: String) -> Self {
        Self { pane, request: RunRequest { command, ..RunRequest::default() } }
    }

    /// Sets the timeout: 30 s by default, at most a day. After it, the command continues to run.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// let done = pane.run("make").timeout(std::time::Duration::from_secs(600)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.timeout_ms = Some(millis(timeout));
        self
    }

    /// Clears text typed at the prompt; without this, such text is a `CONFLICT`.
    pub fn clear_line(mut self) -> Self {
        self.request.clear_line = true;
        self
    }
}

impl IntoFuture for Run {
    type Output = Result<RunAnswer>;
    type IntoFuture = RequestFuture<RunAnswer>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.pane.asking().run(&self.pane.target(), &self.request).await })
    }
}
