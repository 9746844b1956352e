//! Reads of a pane's output since a cursor, from its ring.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use base64::Engine as _;
use muxtap_api::{Cursor, Error, ErrorCode, Gap, ReadAnswer, ReadFormat, ReadRequest, Result, Since, Tier};
use muxtap_core::stream::{render, ring::Chunk};
use muxtap_tmux::Exit;

use crate::{Host, PaneState, Server, limits, pane::of_until, query::targets::Target, wait::duration};

/// The parameters of a read.
#[derive(Clone, Debug)]
pub(crate) struct ReadSpec {
    pub(crate) since: Since,
    /// Where the read ends at the latest; `None` for the stream's end.
    pub(crate) until: Option<Since>,
    /// The output format, which decides where the output may be cut.
    pub(crate) format: ReadFormat,
    /// The maximum number of raw bytes.
    pub(crate) most: u64,
    /// How long to wait if there is nothing new.
    pub(crate) wait: Duration,
}

impl Default for ReadSpec {
    fn default() -> Self {
        Self {
            since: Since::Input,
            until: None,
            format: ReadFormat::Text,
            most: limits::READ_DEFAULT,
            wait: Duration::ZERO,
        }
    }
}

/// The result of a read.
pub(crate) struct ReadChunk {
    /// The pane that was read. For a cursor of an earlier server, that server's pane.
    pub(crate) pane: Arc<PaneState>,
    pub(crate) chunk: Chunk,
    /// The gap before the chunk.
    pub(crate) gap: Option<Gap>,
    /// How the process ended, if this is its last output.
    pub(crate) exit: Option<Exit>,
}

/// A chunk of output in the requested format.
pub(crate) struct FormattedChunk {
    pub(crate) data: Option<String>,
    pub(crate) text: Option<String>,
}

impl Server {
    /// Returns a pane's output since a cursor. With `wait_ms`, waits if nothing new was printed.
    pub async fn read(&self, target: &str, request: &ReadRequest) -> Result<ReadAnswer> {
        let (mut answer, chunk, pane) = self.read_unformatted(target, request).await?;
        tell_last_gap(&mut answer, &pane);
        if let Some(text) = redrawn(request, &answer, &chunk, &pane) {
            return Ok(ReadAnswer { text: Some(text), ..answer });
        }
        let FormattedChunk { data, text } = FormattedChunk::of_large(chunk, request.format).await?;
        Ok(ReadAnswer { text, data, ..answer })
    }

    /// Carries out a read request. Returns the answer without its text, and the chunk.
    async fn read_unformatted(
        &self,
        target: &str,
        request: &ReadRequest,
    ) -> Result<(ReadAnswer, Chunk, Arc<PaneState>)> {
        if let Some(choice) = &request.command {
            return self.read_command(target, request, choice.parse()?).await;
        }
        let wait = duration("wait_ms", request.wait_ms, limits::POLL_LONGEST)?.unwrap_or(Duration::ZERO);
        let since = match &request.since {
            Some(since) => since.parse()?,
            None => Since::Input,
        };
        let until = request.until.as_deref().map(str::parse).transpose().map_err(of_until)?;
        let most = request.max_bytes.unwrap_or(limits::READ_DEFAULT);
        let spec = ReadSpec { since, until, format: request.format, most, wait };
        let find = async {
            match earlier_pane_with_output(&self.host, target, &since) {
                Some(pane) => Ok(pane),
                None => self.resolve_pane(target).await,
            }
        };
        let ReadChunk { pane, chunk, gap, exit } = self.read_chunk(find, &spec).await?;
        let answer = ReadAnswer {
            exited: exit.is_some(),
            exit_status: exit.and_then(|exit| exit.status),
            exit_signal: exit.and_then(|exit| exit.signal),
            ..read_answer(&pane, &chunk, gap)
        };
        Ok((answer, chunk, pane))
    }

    /// Reads like [`Self::read`], but at most this many characters: whole lines, unless one is
    /// longer than that. `more` means that the cursor precedes further output.
    pub async fn read_page(&self, target: &str, request: &ReadRequest, chars: usize) -> Result<ReadAnswer> {
        let (mut answer, chunk, pane) = self.read_unformatted(target, request).await?;
        if let Some(text) = redrawn(request, &answer, &chunk, &pane).filter(|text| text.chars().count() <= chars) {
            return Ok(ReadAnswer { text: Some(text), ..answer });
        }
        let (bytes, begin) = (chunk.bytes.len(), chunk.start);
        let head = move || {
            let mut head = render::TextHead::new(chars);
            chunk.decode(&mut head);
            head.finish()
        };
        let (text, rest) = match bytes {
            0..=AT_ONCE => head(),
            _ => tokio::task::spawn_blocking(head).await.map_err(|_| no_text())?,
        };
        answer.text = Some(text);
        // The cursor never moves back to its start: a line of more cells than are kept can only be
        // returned whole.
        if let Some(rest) = rest.filter(|rest| *rest > begin) {
            (answer.cursor, answer.more) = (pane.cursor(rest), true);
            (answer.exited, answer.exit_status, answer.exit_signal) = (false, None, None);
        } else {
            tell_last_gap(&mut answer, &pane);
        }
        Ok(answer)
    }

    /// Reads like [`Self::read`], but everything, and returns the last `chars` characters: whole lines,
    /// unless one is longer than that. Also returns the number of characters before them, and the
    /// cursor at which those begin.
    pub async fn read_end(
        &self,
        target: &str,
        request: &ReadRequest,
        chars: usize,
    ) -> Result<(ReadAnswer, usize, Cursor)> {
        let mut request = ReadRequest { max_bytes: Some(limits::READ_MOST), ..request.clone() };
        let (mut answer, mut chunk, pane) = self.read_unformatted(target, &request).await?;
        let begin = pane.cursor(chunk.start);
        let (mut text, mut cut) = (String::new(), 0);
        loop {
            let piece = match redrawn(&request, &answer, &chunk, &pane) {
                Some(redrawn) => redrawn,
                None => FormattedChunk::of_large(chunk, ReadFormat::Text).await?.text.unwrap_or_default(),
            };
            text.push_str(&piece);
            let (end, before) = render::text_end(&text, chars);
            (text, cut) = (end.to_owned(), cut + before);
            if !answer.more {
                break;
            }
            request.since = Some(answer.cursor.to_string());
            request.command = answer.command.as_ref().map(|command| command.number.to_string());
            request.wait_ms = None;
            let (next, more, _) = self.read_unformatted(target, &request).await?;
            if let Some(gap) = next.gap {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "[output is missing here: {}]", gap.reason.as_str());
            }
            answer = ReadAnswer { gap: answer.gap.or(next.gap), command: answer.command, ..next };
            chunk = more;
        }
        answer.text = Some(text);
        tell_last_gap(&mut answer, &pane);
        Ok((answer, cut, begin))
    }

    /// Reads the output of the pane that `find` returns, as bytes. Waits for new output if the
    /// specification says so.
    pub(crate) async fn read_chunk(
        &self,
        find: impl Future<Output = Result<Arc<PaneState>>>,
        spec: &ReadSpec,
    ) -> Result<ReadChunk> {
        self.engine.authorize(Tier::Read)?;
        let ReadSpec { since, until, format, most, wait } = *spec;
        if until.is_some() && !wait.is_zero() {
            return Err(Error::invalid("until: a read that waits has no known end; leave out until or wait_ms"));
        }
        check_most(most)?;
        let pane = find.await?;
        let (from, gap) = {
            let locked = pane.lock();
            pane.resolve_since(&locked, &since)?
        };
        if !wait.is_zero() {
            let news = async {
                if gap.is_none() {
                    until_more(&pane, from, most, format).await;
                }
            };
            tokio::select! {
                // After this timeout, the read returns without output.
                _ = tokio::time::timeout(wait, news) => {}
                () = self.engine.stopping() => {}
            }
        }
        let (chunk, exit) = {
            let locked = pane.lock();
            let until = until.map(|until| pane.resolve_until(&locked, &until)).transpose()?;
            let most = until.map_or(most, |until| most.min(until.saturating_sub(from)));
            let mut chunk = locked.ring().read(from, locked.reading(most, format));
            let is_last = !chunk.more;
            chunk.more &= until.is_none_or(|until| chunk.end < until);
            (chunk, locked.exit().filter(|_| is_last))
        };
        let gap = gap.or(chunk.gap);
        Ok(ReadChunk { pane, chunk, gap, exit })
    }
}

/// Returns the text of a command's whole output, if it moves up to rewrite its own lines.
fn redrawn(request: &ReadRequest, answer: &ReadAnswer, chunk: &Chunk, pane: &PaneState) -> Option<String> {
    let is_text = request.command.is_some() && request.format == ReadFormat::Text;
    let is_whole = request.since.is_none() && answer.gap.is_none() && !answer.more;
    if !is_text || !is_whole {
        return None;
    }
    let redrawable = pane.lock().redrawable(chunk.start, chunk.end);
    redrawable?.text()
}

/// Returns the answer of a read without its text.
pub(crate) fn read_answer(pane: &PaneState, chunk: &Chunk, gap: Option<Gap>) -> ReadAnswer {
    ReadAnswer {
        pane: pane.id(),
        data: None,
        text: None,
        cursor: pane.cursor(chunk.end),
        more: chunk.more,
        gap,
        command: None,
        exited: false,
        exit_status: None,
        exit_signal: None,
    }
}

/// Error: `INVALID_ARGUMENT` for a maximum number of bytes that is out of range.
pub(crate) fn check_most(most: u64) -> Result<()> {
    if most == 0 || most > limits::READ_MOST {
        return Err(Error::invalid(format!("max_bytes: expected 1 to {}, got {most}", limits::READ_MOST)));
    }
    Ok(())
}

/// Adds the end of an ended stream if only the gap at its end is left: callers send no further
/// request for an answer without output.
fn tell_last_gap(answer: &mut ReadAnswer, pane: &PaneState) {
    let locked = pane.lock();
    if answer.more
        && answer.gap.is_none()
        && answer.cursor.offset == locked.ring().end()
        && let Some(exit) = locked.exit()
    {
        (answer.gap, answer.more, answer.exited) = (locked.ring().gap_at(locked.ring().end()), false, true);
        (answer.exit_status, answer.exit_signal) = (exit.status, exit.signal);
    }
}

/// Waits until a read from this offset returns output, or the pane's process has ended.
async fn until_more(pane: &PaneState, from: u64, most: u64, format: ReadFormat) {
    let mut changes = pane.changes();
    loop {
        changes.borrow_and_update();
        {
            let locked = pane.lock();
            if locked.exit().is_some() || locked.ring().has_more(from, locked.reading(most, format)) {
                return;
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Returns the pane of an earlier server that a cursor belongs to, if it has output left to read.
/// With the next cursor, the read continues in the pane that has this id now, after a gap.
fn earlier_pane_with_output(host: &Host, target: &str, since: &Since) -> Option<Arc<PaneState>> {
    let Since::At(cursor) = since else { return None };
    if target.parse() != Ok(Target::Pane(cursor.pane)) {
        return None;
    }
    host.earlier_pane_of(cursor).filter(|pane| cursor.offset < pane.lock().ring().end())
}

/// Chunks above this size are converted in another thread, to delay no other task.
const AT_ONCE: usize = 64 * 1024;

impl FormattedChunk {
    /// Converts a chunk to the requested format. Never called under a pane's lock.
    pub(crate) fn of(chunk: &Chunk, format: ReadFormat) -> Self {
        match format {
            ReadFormat::Raw => {
                Self { data: Some(base64::engine::general_purpose::STANDARD.encode(&chunk.bytes)), text: None }
            }
            ReadFormat::Ansi => Self { data: None, text: Some(String::from_utf8_lossy(&chunk.shown()).into_owned()) },
            ReadFormat::Text => Self { data: None, text: Some(render::render_chunk(chunk)) },
        }
    }

    async fn of_large(chunk: Chunk, format: ReadFormat) -> Result<Self> {
        if chunk.bytes.len() <= AT_ONCE {
            return Ok(Self::of(&chunk, format));
        }
        let made = tokio::task::spawn_blocking(move || Self::of(&chunk, format)).await;
        made.map_err(|_| no_text())
    }
}

fn no_text() -> Error {
    Error::new(ErrorCode::InconsistentState, "the text of the read could not be rendered")
}

#[cfg(test)]
mod tests {
    use loom::{future::block_on, thread};

    use muxtap_api::Epoch;
    use muxtap_core::protocol::ids::PaneId;

    use super::*;

    use crate::sync::check;

    /// Every order in which output and a waiting read can meet. Loom finds a lost wake-up: the
    /// reader would sleep forever.
    #[test]
    fn a_waiting_read_is_woken_for_all_output() {
        check(3, || {
            let pane = PaneState::new(PaneId(1), Epoch { server: 1, engine: 1 }, 1000);
            let printing = thread::spawn({
                let pane = pane.clone();
                move || {
                    let _ = pane.push(0, b"one ");
                    let _ = pane.push(0, b"two ");
                    pane.mark_exited(Exit::default());
                }
            });
            let (mut read, mut from, mut ended) = (Vec::new(), 0, false);
            while !ended {
                block_on(until_more(&pane, from, 100, ReadFormat::Raw));
                let locked = pane.lock();
                let chunk = locked.ring().read(from, locked.reading(100, ReadFormat::Raw));
                ended = locked.exit().is_some() && !chunk.more;
                assert!(ended || chunk.end > from, "woken for nothing");
                read.extend_from_slice(&chunk.bytes);
                from = chunk.end;
            }
            printing.join().unwrap();
            assert_eq!(read, b"one two ");
        });
    }
}
