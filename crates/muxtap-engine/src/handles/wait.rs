//! Waits.

use std::{sync::Arc, time::Duration};

use muxtap_api::{Error, Result, Since, StatusIs, WaitAnswer, WaitMode, WaitRequest};
use muxtap_core::stream::patterns;

use super::{Pane, RequestFuture, Server};

use crate::Engine;

/// A wait for conditions in panes. It begins when awaited, or by [`Wait::start`].
///
/// Several conditions are joined by *and*, and each is latched: once met, it stays met. Output that
/// the pane printed between its last input and the wait counts, unless [`Wait::since`] sets another
/// place, so no output is missed between sending a command and waiting for its result. The
/// terminal's echo of the input does not count.
///
/// A wait that begins and times out is not an error: see [`WaitAnswer::outcome`]. A dropped wait
/// ends; [`Wait::start`] leaves it to the engine.
///
/// Errors: `INVALID_ARGUMENT` (no condition, an invalid regex, a time of more than a day),
/// `NOT_FOUND`, `RESOURCE_LIMIT`, `TMUX_UNAVAILABLE`.
///
/// ```no_run
/// # use muxtap_engine as muxtap;
/// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
/// use std::{sync::Arc, time::Duration};
///
/// use muxtap::api::WaitOutcome;
///
/// let hit = pane
///     .wait()
///     .pattern(r"(\d+) passed")?
///     .fail("error:")?
///     .timeout(Duration::from_secs(600))
///     .await?;
/// match hit.outcome {
///     WaitOutcome::Matched => println!("{:?} tests", hit.captures().get(1)),
///     outcome => println!("{outcome:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a wait does not begin until it is awaited"]
pub struct Wait {
    server: Server,
    panes: Vec<Pane>,
    request: WaitRequest,
}

impl Wait {
    pub(super) fn on(server: Server, panes: Vec<Pane>) -> Self {
        Self { server, panes, request: WaitRequest::default() }
    }

    /// Waits until the output matches a regex. `^` and `$` match at the ends of lines.
    ///
    /// Error: `INVALID_ARGUMENT` for an invalid regex.
    pub fn pattern(mut self, regex: impl Into<String>) -> Result<Self> {
        self.request.patterns.push(checked("pattern", regex)?);
        Ok(self)
    }

    /// Ends the wait as failed when the output matches a regex.
    ///
    /// Error: `INVALID_ARGUMENT` for an invalid regex.
    pub fn fail(mut self, regex: impl Into<String>) -> Result<Self> {
        self.request.fail.push(checked("fail", regex)?);
        Ok(self)
    }

    /// Waits until the pane's screen matches a regex.
    ///
    /// Error: `INVALID_ARGUMENT` for an invalid regex.
    pub fn screen(mut self, regex: impl Into<String>) -> Result<Self> {
        self.request.screen.push(checked("screen", regex)?);
        Ok(self)
    }

    /// Waits until the pane's screen does not, or no longer, match a regex.
    ///
    /// Error: `INVALID_ARGUMENT` for an invalid regex.
    pub fn gone(mut self, regex: impl Into<String>) -> Result<Self> {
        self.request.gone.push(checked("gone", regex)?);
        Ok(self)
    }

    /// Waits until the pane's title matches a regex.
    ///
    /// Error: `INVALID_ARGUMENT` for an invalid regex.
    pub fn title(mut self, regex: impl Into<String>) -> Result<Self> {
        self.request.title = Some(checked("title", regex)?);
        Ok(self)
    }

    /// Waits until the pane has printed nothing for this long.
    pub fn stable(mut self, quiet: Duration) -> Self {
        self.request.stable_ms = Some(millis(quiet));
        self
    }

    /// Waits until the pane's program has ended.
    pub fn exit(mut self) -> Self {
        self.request.exit = true;
        self
    }

    /// Waits until a shell is idle at its prompt.
    pub fn prompt(mut self) -> Self {
        self.request.prompt = true;
        self
    }

    /// Waits until the bell rings.
    pub fn bell(mut self) -> Self {
        self.request.bell = true;
        self
    }

    /// Waits until a command has ended: the one that runs; else the one that muxtap's last input
    /// started; else the next. The pane's shell must mark its commands (`docs/commands.md`).
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// let ended = pane.wait().command().await?;
    /// let command = ended.predicates.into_iter().find_map(|predicate| predicate.command);
    /// println!("{:?}", command.map(|command| (command.line, command.status)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn command(mut self) -> Self {
        self.request.command = true;
        self
    }

    /// Waits until a command has ended with a status that meets this condition, for example `!0`
    /// ([`StatusIs`]). Commands that end otherwise are passed over.
    pub fn status(mut self, status: StatusIs) -> Self {
        self.request.status = Some(status);
        self
    }

    /// Sets where to begin. Default: [`Since::Input`].
    pub fn since(mut self, since: impl Into<Since>) -> Self {
        self.request.since = Some(since.into().to_string());
        self
    }

    /// After all conditions are met, waits until the pane is quiet for this long.
    pub fn settle(mut self, quiet: Duration) -> Self {
        self.request.settle_ms = Some(millis(quiet));
        self
    }

    /// Sets the timeout: 30 s by default, at most a day.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.timeout_ms = Some(millis(timeout));
        self
    }

    /// Waits for all panes instead of the first.
    pub fn all_panes(mut self) -> Self {
        self.request.mode = WaitMode::All;
        self
    }

    /// Begins the wait and leaves it to the engine. Returns once it has begun.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// let done = pane.wait().exit().start().await?;
    /// pane.send_keys(["exit", "Enter"]).await?;
    /// println!("{:?}", done.result().await?.exit_status);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn start(mut self) -> Result<WaitHandle> {
        self.request.detach = true;
        let engine = self.server.engine().clone();
        let id = self.ask().await?.id;
        Ok(WaitHandle { engine, id })
    }

    async fn ask(mut self) -> Result<WaitAnswer> {
        if let Some(stranger) = self.panes.iter().find(|pane| !Arc::ptr_eq(pane.server().host(), self.server.host())) {
            let (pane, its) = (stranger.id(), stranger.server().socket().display());
            let here = self.server.socket().display();
            return Err(Error::invalid(format!(
                "wait: pane {pane} belongs to the server on {its}, not to the one on {here}"
            )));
        }
        self.request.panes = self.panes.iter().map(Pane::target).collect();
        let server = self.server.bound_to(self.panes.iter().map(|pane| pane.state().clone()));
        server.await_request(&self.request).await
    }
}

impl IntoFuture for Wait {
    type Output = Result<WaitAnswer>;
    type IntoFuture = RequestFuture<WaitAnswer>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.ask())
    }
}

/// A handle on a wait that was left to the engine. Dropping it does not end the wait.
#[derive(Clone)]
pub struct WaitHandle {
    engine: Engine,
    id: String,
}

impl WaitHandle {
    /// Waits for the end of the wait and returns its result.
    ///
    /// Error: `NOT_FOUND` from ten minutes after the end.
    pub async fn result(&self) -> Result<WaitAnswer> {
        loop {
            let longest = millis(crate::limits::POLL_LONGEST);
            let answer = self.engine.wait_result(&self.id, Some(longest)).await?;
            if answer.outcome != muxtap_api::WaitOutcome::Pending {
                return Ok(answer);
            }
        }
    }

    /// Cancels the wait, unless it has ended.
    pub async fn cancel(&self) -> Result<WaitAnswer> {
        self.engine.cancel_wait(&self.id).await
    }
}

fn checked(name: &str, regex: impl Into<String>) -> Result<String> {
    let regex = regex.into();
    patterns::check(name, &regex)?;
    Ok(regex)
}

/// Returns whole milliseconds, rounded up, so a positive limit never becomes zero.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
