//! Commands in a pane's shell.

use std::time::Duration;

use muxtap_api::{Result, RunAnswer, RunRequest};

use super::{Pane, RequestFuture, wait::millis};

/// A command for the shell that rests at its prompt in a pane. It is typed when this is awaited.
///
/// Errors: `CONFLICT` where no shell rests there, or something is typed at its prompt; `TIMEOUT`: at
/// the stage `running` the command goes on, and the details have its output so far, at the stage
/// `prompt` nothing was run; `INCONSISTENT_STATE` where the command did not begin, or was interrupted
/// before; `INVALID_ARGUMENT` for an empty command or one of more than 256 KiB.
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

    /// Gives up after this long: 30 s by default, at most a day. The command goes on.
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

    /// Clears what is typed at the prompt; without this, that is a `CONFLICT`.
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
