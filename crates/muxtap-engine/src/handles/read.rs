//! Reads and captures.

use std::{borrow::Cow, time::Duration};

use muxtap_api::{CaptureAnswer, CaptureRequest, Cursor, Gap, Result, Since};
use muxtap_core::{
    protocol::ids::PaneId,
    stream::{render, ring::Chunk},
};
use muxtap_tmux::Exit;

use super::{Pane, RequestFuture};

use crate::query::read::ReadSpec;

/// A read of a pane's output from memory, carried out when awaited.
///
/// The output can be read for as long as a handle on the pane exists, also after the pane has
/// ended. A cursor of another run of muxtap or tmux reads from the first retained byte, after a
/// gap.
///
/// Error: `INVALID_ARGUMENT` for a limit out of range, [`Since::Screen`], or a cursor of another
/// pane.
#[derive(Clone, Debug)]
#[must_use = "a read does nothing until it is awaited"]
pub struct Read {
    pane: Pane,
    spec: ReadSpec,
}

impl Read {
    pub(super) fn new(pane: Pane) -> Self {
        Self { pane, spec: ReadSpec::default() }
    }

    /// Sets where to begin. Default: [`Since::Input`], the last input that muxtap sent to the pane.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// let first = pane.read().since(muxtap::Since::Start).await?;
    /// let next = pane.read().since(first.cursor).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn since(mut self, since: impl Into<Since>) -> Self {
        self.spec.since = since.into();
        self
    }

    /// Limits the read to this many raw bytes: 1 to 8 MiB, 256 KiB by default. The rest is left for
    /// the next read ([`Output::more`]).
    pub fn at_most(mut self, bytes: u64) -> Self {
        self.spec.most = bytes;
        self
    }

    /// Sets how long to wait for output if nothing new was printed.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.spec.wait = wait;
        self
    }
}

impl IntoFuture for Read {
    type Output = Result<Output>;
    type IntoFuture = RequestFuture<Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { pane, spec } = self;
            let read = pane.server().read_chunk(async { Ok(pane.state().clone()) }, &spec).await?;
            let cursor = read.pane.cursor(read.chunk.end);
            Ok(Output { pane: read.pane.id(), cursor, gap: read.gap, exit: read.exit, chunk: read.chunk })
        })
    }
}

/// A part of a pane's output stream without a gap.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Output {
    /// The pane.
    pub pane: PaneId,
    /// Where the next read continues.
    pub cursor: Cursor,
    /// The gap just before this output.
    pub gap: Option<Gap>,
    /// How the pane's program ended, if this is its last output.
    pub exit: Option<Exit>,
    chunk: Chunk,
}

impl Output {
    /// Returns the bytes as the program wrote them. They end outside of characters and escape
    /// sequences, if such a place is found within 8 KiB.
    pub fn bytes(&self) -> &[u8] {
        &self.chunk.bytes
    }

    /// Returns the bytes without the lines and marks of `run`, which text leaves out, too.
    pub fn shown(&self) -> Cow<'_, [u8]> {
        self.chunk.shown()
    }

    /// Returns the place of an offset in [`Output::shown`].
    pub fn shown_place(&self, offset: u64) -> usize {
        self.chunk.shown_place(offset)
    }

    /// Returns the text: without escape sequences, with carriage returns and backspaces applied,
    /// each line ended by `\n`.
    pub fn text(&self) -> String {
        render::render_chunk(&self.chunk)
    }

    /// Returns the offsets, from the first byte to the end inclusive, at which tmux abandoned an
    /// unterminated string (N57). The read that continues at the end returns an offset there again.
    pub fn given_up(&self) -> &[u64] {
        self.chunk.given_up()
    }

    /// Returns the offset of the first byte.
    pub fn start(&self) -> u64 {
        self.chunk.start
    }

    /// Returns whether more output is available: read again from [`Output::cursor`].
    pub fn more(&self) -> bool {
        self.chunk.more
    }
}

/// A capture of a pane's screen, carried out when awaited: from memory if that is exact, else by
/// tmux.
///
/// Errors: `NOT_FOUND`, `TMUX_UNAVAILABLE`.
#[derive(Clone, Debug)]
#[must_use = "a capture does nothing until it is awaited"]
pub struct Capture {
    pane: Pane,
    request: CaptureRequest,
}

impl Capture {
    pub(super) fn new(pane: Pane) -> Self {
        Self { pane, request: CaptureRequest::default() }
    }

    /// Includes this many lines of the history above the screen.
    ///
    /// ```no_run
    /// # use muxtap_engine as muxtap;
    /// # async fn example(pane: muxtap::Pane) -> muxtap::Result<()> {
    /// let recent = pane.capture().history(1000).joined().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn history(mut self, lines: u32) -> Self {
        self.request.start = Some(format!("-{lines}"));
        self
    }

    /// Includes the whole history.
    pub fn whole_history(mut self) -> Self {
        self.request.start = Some("-".to_owned());
        self
    }

    /// Joins wrapped lines and keeps trailing spaces (`-J`).
    pub fn joined(mut self) -> Self {
        self.request.join = true;
        self
    }

    /// Keeps colors and attributes as escape sequences (`-e`).
    pub fn escapes(mut self) -> Self {
        self.request.escapes = true;
        self
    }

    /// Keeps trailing spaces (`-N`).
    pub fn trailing(mut self) -> Self {
        self.request.trailing = true;
        self
    }
}

impl IntoFuture for Capture {
    type Output = Result<CaptureAnswer>;
    type IntoFuture = RequestFuture<CaptureAnswer>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.pane.asking().capture(&self.pane.target(), &self.request).await })
    }
}
