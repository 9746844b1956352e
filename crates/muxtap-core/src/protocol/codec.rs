//! The wire as a stream of [`Event`]s.
//!
//! [`ControlCodec`] finds lines with memchr, decodes pane output in place and returns it without
//! copying, assembles blocks, and recognizes nonce frames ([`super::frame`]). How the bytes are
//! split into chunks changes nothing.
//!
//! The position of a line decides what it may be:
//! - *Outside* of blocks: output, a notification, the begin of a block, or a stray.
//! - *In a block* outside of a frame: such a block comes from a command that prints no pane text,
//!   so a line that parses as output or as a known notification is one (F12); the block ends with
//!   the `%end` or `%error` that repeats the guard of its `%begin`; every other line is body.
//! - *In a part* of a frame: body, whatever it looks like, until the nonce, which no pane can know
//!   (F13).
//!
//! On a terminal (`tmux -CC`, or `tmux -C` behind a pty) lines end in CR LF, the stream begins with
//! `ESC P 1000p` and ends with `ESC \\` (`control_start` and `client_main` of tmux). The first line
//! shows which kind of stream it is; lines of a terminal are copied without these additions.

use super::{
    frame::{Frame, FrameKey, Pending},
    guard::Guard,
    ids::PaneId,
    line::{Line, output_head, parse_line},
    notification::Notification,
    octal,
};
use bytes::{Buf, Bytes, BytesMut};
use memchr::{memchr, memmem, memrchr};
use std::{collections::VecDeque, io};

/// An event from tmux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A pane printed something (F20).
    Output {
        /// The pane.
        pane: PaneId,
        /// The decoded output. It shares the read buffer's memory: copy data that is kept for long.
        data: Bytes,
        /// The time for which the output waited in the server, in milliseconds; only while
        /// `pause-after` is set.
        age_ms: Option<u64>,
    },
    /// A notification, including unknown ones.
    Notification(Notification),
    /// The reply to a command that was sent outside of a frame.
    Reply(Reply),
    /// The reply to [`super::frame::framed`] commands.
    Frame(Frame),
    /// A block that replies to no command of this client: an attach, a hook (F14).
    OtherBlock {
        /// The guard; the flags are even.
        guard: Guard,
        /// The lines, each with its `\n`.
        body: Bytes,
        /// Whether the block ended with `%end`, not with `%error`.
        ok: bool,
    },
    /// A line outside of any block that is not a notification, such as `run-shell` output (F12),
    /// without its newline.
    Stray(Bytes),
}

/// The reply to one command outside of a frame; replies come in the order of the commands (F14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Whether the command succeeded.
    pub ok: bool,
    /// The command's output, or its error: lines, each with its `\n`.
    pub body: Bytes,
}

/// Limits on the bytes that the codec holds before it gives up on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest line, in bytes without the newline.
    pub line: usize,
    /// Most bytes in one block, and in all parts of one frame together.
    pub body: usize,
}

impl Limits {
    /// 64 MiB a line, 256 MiB a block or frame.
    pub const DEFAULT: Self = Self { line: 64 << 20, body: 256 << 20 };
}

/// The free space, in bytes, below which the read buffer is renewed.
const LEAST_READ: usize = 4 << 10;

/// The size of a renewed read buffer, in bytes.
const READ_AHEAD: usize = 16 << 10;

/// A block that is being read, outside of a frame's parts.
#[derive(Debug)]
struct Block {
    guard: Guard,
    body: BytesMut,
}

/// A frame that has partly arrived.
#[derive(Debug)]
struct Open {
    pending: Pending,
    parts: Vec<Bytes>,
    /// The number of bytes in `parts`.
    held: usize,
    /// Whether a part has ended; this client's next block is the nonce after it.
    nonce_due: bool,
    /// Whether the frame was returned; only the nonce of its second line is missing.
    answered: bool,
}

/// The kind of line end, which the first line shows.
#[derive(Debug)]
enum LineEnd {
    /// No line has come yet.
    Unknown,
    /// LF: a pipe.
    Plain,
    /// CR LF: a terminal.
    Terminal(TerminalLines),
}

/// The lines that arrived over a terminal, without its additions.
#[derive(Debug, Default)]
struct TerminalLines {
    /// Lines that are still to be read, each with its `\n`.
    lines: BytesMut,
    /// The position up to which the input was searched for the end of a line.
    searched: usize,
    /// Whether the stream's introduction has arrived.
    introduced: bool,
}

/// The bytes that `tmux -CC` prints first.
const INTRODUCTION: &[u8] = b"\x1bP1000p";
/// The bytes that `tmux -CC` prints last.
const TERMINATOR: &[u8] = b"\x1b\\";

impl TerminalLines {
    /// Moves the complete lines from the front of `src` to `lines`.
    fn take(&mut self, src: &mut BytesMut, limit: usize) -> io::Result<()> {
        while let Some(at) = src.get(self.searched..).and_then(|tail| memchr(b'\n', tail)) {
            let line = src.split_to(self.searched + at);
            src.advance(1);
            self.searched = 0;
            let mut line = line.as_ref();
            if !self.introduced
                && let Some(rest) = line.strip_prefix(INTRODUCTION)
            {
                (line, self.introduced) = (rest, true);
            }
            while let Some(rest) = line.strip_suffix(b"\r") {
                line = rest;
            }
            self.lines.extend_from_slice(line);
            self.lines.extend_from_slice(b"\n");
        }
        self.searched = src.len();
        if src.len() > limit { Err(too_long("line")) } else { Ok(()) }
    }
}

/// Decodes the output of a `tmux -C` client. After an error, the connection is unusable.
///
/// Output events share the read buffer's memory, which avoids copies; the codec renews the buffer
/// as needed.
#[derive(Debug)]
pub struct ControlCodec {
    key: FrameKey,
    limits: Limits,
    line_end: LineEnd,
    /// The position up to which the buffer was searched for the current target: a long line is
    /// searched once, not once per chunk.
    searched: usize,
    /// Inside a part: the start of the line that contains `searched`.
    line_start: usize,
    block: Option<Block>,
    /// Inside a part of a frame: the guard of its `%begin`.
    part: Option<Guard>,
    open: Option<Open>,
    /// A failed reply, held back while frames are in flight: it may be the parse error of a frame.
    failed: Option<Bytes>,
    /// Events to return before more of the buffer is read.
    due: VecDeque<Event>,
}

impl ControlCodec {
    /// Makes a codec for one connection; `key` is the key with which its frames are made.
    pub fn new(key: FrameKey) -> Self {
        Self::with_limits(key, Limits::DEFAULT)
    }

    /// Makes a codec with the given limits; otherwise like [`ControlCodec::new`].
    pub fn with_limits(key: FrameKey, limits: Limits) -> Self {
        Self {
            key,
            limits,
            line_end: LineEnd::Unknown,
            searched: 0,
            line_start: 0,
            block: None,
            part: None,
            open: None,
            failed: None,
            due: VecDeque::new(),
        }
    }

    /// Makes a codec that continues a connection over a pipe at the beginning of a line.
    pub fn continued(key: FrameKey) -> Self {
        Self { line_end: LineEnd::Plain, ..Self::new(key) }
    }

    /// Returns whether it holds nothing: another codec ([`ControlCodec::continued`]) may continue with
    /// the bytes that are left in the buffer.
    pub fn is_at_rest(&self) -> bool {
        matches!(self.line_end, LineEnd::Plain)
            && self.block.is_none()
            && self.part.is_none()
            && self.open.is_none()
            && self.failed.is_none()
            && self.due.is_empty()
    }

    /// Removes the next complete event from the front of `src` and returns it; `None` if `src`
    /// holds no complete event. Call it again until it returns `None`.
    pub fn decode(&mut self, src: &mut BytesMut) -> io::Result<Option<Event>> {
        self.with_lines(src, Self::decode_lines)
    }

    /// Runs `decode` on the lines that have arrived.
    fn with_lines(
        &mut self,
        src: &mut BytesMut,
        decode: impl FnOnce(&mut Self, &mut BytesMut) -> io::Result<Option<Event>>,
    ) -> io::Result<Option<Event>> {
        if matches!(self.line_end, LineEnd::Unknown) {
            self.look_at_first_line(src);
        }
        let LineEnd::Terminal(terminal) = &mut self.line_end else { return decode(self, src) };
        terminal.take(src, self.limits.line)?;
        let mut lines = std::mem::take(&mut terminal.lines);
        let decoded = decode(self, &mut lines);
        if let LineEnd::Terminal(terminal) = &mut self.line_end {
            terminal.lines = lines;
        }
        decoded
    }

    /// Determines the kind of line end once the first line end has arrived.
    fn look_at_first_line(&mut self, src: &[u8]) {
        let is_introduced = src.first() == INTRODUCTION.first();
        // tmux begins with a block. Pane output is never a stream's first line, and may contain any
        // byte.
        let is_output = output_head(src).is_some();
        let end = src.get(self.searched..).and_then(|tail| memchr(b'\n', tail)).map(|at| self.searched + at);
        let before = end.and_then(|end| src.get(end.checked_sub(1)?));
        if is_introduced || (before == Some(&b'\r') && !is_output) {
            self.line_end = LineEnd::Terminal(TerminalLines::default());
            self.searched = 0;
        } else if end.is_some() {
            self.line_end = LineEnd::Plain;
        }
    }

    fn decode_lines(&mut self, src: &mut BytesMut) -> io::Result<Option<Event>> {
        loop {
            if let Some(event) = self.due.pop_front() {
                return Ok(Some(event));
            }
            if let Some(guard) = self.part {
                if !self.part(src, guard)? {
                    return Ok(None);
                }
                continue;
            }
            let Some(line) = self.take_line(src)? else { return Ok(None) };
            if let Some(event) = self.line(line)? {
                return Ok(Some(event));
            }
        }
    }

    /// Returns the next event at the end of the stream. A block or a frame that never ended gives
    /// no reply, and a line without newline is dropped. A failed reply that was held back is
    /// returned, and so is the `%exit` that tmux sends last, even in a block.
    pub fn decode_eof(&mut self, src: &mut BytesMut) -> io::Result<Option<Event>> {
        if let Some(event) = self.decode(src)? {
            return Ok(Some(event));
        }
        if let Some(body) = self.failed.take() {
            return Ok(Some(Event::Reply(Reply { ok: false, body })));
        }
        let exit = self.with_lines(src, |codec, src| Ok(codec.exit_at_end(src)))?;
        src.clear();
        Ok(exit)
    }

    /// Leaves an unfinished part or block, and returns the `%exit` in its last line.
    fn exit_at_end(&mut self, src: &mut BytesMut) -> Option<Event> {
        let exit = self.part.take().and_then(|_| last_line(src)).and_then(|line| match Notification::known(line) {
            Some(exit @ Notification::Exit(_)) => Some(Event::Notification(exit)),
            _ => None,
        });
        src.clear();
        self.leave_part();
        exit
    }

    /// Returns the next line, cut from `src` and without its newline.
    fn take_line(&mut self, src: &mut BytesMut) -> io::Result<Option<BytesMut>> {
        let Some(at) = src.get(self.searched..).and_then(|tail| memchr(b'\n', tail)) else {
            self.searched = src.len();
            if src.len() > self.limits.line {
                return Err(too_long("line"));
            }
            // Otherwise the next read would fill only the rest of the buffer, however small.
            if src.capacity() - src.len() < LEAST_READ {
                src.reserve(READ_AHEAD);
            }
            return Ok(None);
        };
        let length = self.searched + at;
        self.searched = 0;
        if length > self.limits.line {
            return Err(too_long("line"));
        }
        let line = src.split_to(length);
        src.advance(1);
        Ok(Some(line))
    }

    /// Processes a line outside of a frame's parts; returns its event.
    fn line(&mut self, mut line: BytesMut) -> io::Result<Option<Event>> {
        // Nearly all lines: cut and decoded in place.
        if let Some(head) = output_head(&line) {
            line.advance(head.data_at);
            let length = octal::decode_in_place(&mut line);
            line.truncate(length);
            return Ok(Some(Event::Output { pane: head.pane, data: line.freeze(), age_ms: head.age_ms }));
        }
        let parsed = parse_line(&line);
        let Some(block) = &mut self.block else {
            return Ok(match parsed {
                Line::Begin(guard) => {
                    self.begin(guard);
                    None
                }
                Line::Notification(notification) => Some(Event::Notification(notification)),
                _ => self.stray(line),
            });
        };
        match parsed {
            Line::End(guard) if guard == block.guard => {
                self.end(true);
                Ok(None)
            }
            Line::Error(guard) if guard == block.guard => {
                self.end(false);
                Ok(None)
            }
            Line::Notification(notification) if !matches!(notification, Notification::Unknown(_)) => {
                Ok(Some(Event::Notification(notification)))
            }
            _ => {
                if block.body.len() + line.len() >= self.limits.body {
                    return Err(too_long("block"));
                }
                block.body.extend_from_slice(&line);
                block.body.extend_from_slice(b"\n");
                Ok(None)
            }
        }
    }

    /// Processes a line outside of blocks that is not a notification. After the terminator of a
    /// terminal's stream, the line belongs to the program that runs after tmux.
    fn stray(&self, mut line: BytesMut) -> Option<Event> {
        if matches!(self.line_end, LineEnd::Terminal(_)) && line.starts_with(TERMINATOR) {
            line.advance(TERMINATOR.len());
            if line.is_empty() {
                return None;
            }
        }
        Some(Event::Stray(line.freeze()))
    }

    /// Processes a `%begin` outside of any block.
    fn begin(&mut self, guard: Guard) {
        // Between the nonces of a frame, a block of this client is a part; a hook's block is not.
        let in_frame = self.open.as_ref().is_some_and(|open| !open.answered && !open.nonce_due);
        if guard.is_reply() && in_frame {
            self.part = Some(guard);
            self.line_start = 0;
        } else {
            self.block = Some(Block { guard, body: BytesMut::new() });
        }
    }

    /// Ends the block that is being read.
    fn end(&mut self, ok: bool) {
        let Some(Block { guard, body }) = self.block.take() else { return };
        let body = body.freeze();
        if !guard.is_reply() {
            self.due.push_back(Event::OtherBlock { guard, body, ok });
        } else if !self.nonce(&body) {
            self.release_failed();
            if !ok && self.key.next().is_some() {
                self.failed = Some(body);
            } else {
                self.due.push_back(Event::Reply(Reply { ok, body }));
            }
        }
    }

    /// Passes on the failed reply that was held back: it was no frame's parse error.
    fn release_failed(&mut self) {
        self.due.extend(self.failed.take().map(|body| Event::Reply(Reply { ok: false, body })));
    }

    /// Processes the body of a block of this client, if it is a nonce that is due.
    fn nonce(&mut self, body: &[u8]) -> bool {
        let (Some(text), Some(pending)) = (body.strip_suffix(b"\n"), self.key.next()) else { return false };
        let Pending { seq, parts } = pending;
        if text == self.key.end_nonce(seq) {
            self.key.done();
            let parts = match self.open.take() {
                Some(open) if open.answered => return true,
                Some(open) => open.parts,
                None => Vec::new(),
            };
            // tmux could not parse the first line: the block before this one contains the error.
            let error = Some(self.failed.take().unwrap_or_default());
            self.due.push_back(Event::Frame(Frame { seq, parts, error }));
            return true;
        }
        match &mut self.open {
            None if text == self.key.nonce(seq, 0) => {
                self.open = Some(Open { pending, parts: Vec::new(), held: 0, nonce_due: false, answered: false });
                self.release_failed();
                true
            }
            Some(open) if open.nonce_due && text == self.key.nonce(seq, open.parts.len()) => {
                open.nonce_due = false;
                if open.parts.len() == parts {
                    open.answered = true;
                    let parts = std::mem::take(&mut open.parts);
                    self.due.push_back(Event::Frame(Frame { seq, parts, error: None }));
                }
                true
            }
            _ => false,
        }
    }

    /// Continues inside a part, whose body begins at the start of `src`. Returns true when the part
    /// has ended; `src` then begins with the bytes after it.
    fn part(&mut self, src: &mut BytesMut, guard: Guard) -> io::Result<bool> {
        let Some(open) = &mut self.open else {
            self.leave_part();
            return Ok(true);
        };
        let seq = open.pending.seq;
        let next = self.key.nonce(seq, open.parts.len() + 1);
        let last = self.key.end_nonce(seq);
        loop {
            let Some(at) = src.get(self.searched..).and_then(|tail| memchr(b'\n', tail)) else {
                self.searched = src.len();
                let unfinished = src.len() - self.line_start;
                return if unfinished > self.limits.line { Err(too_long("line")) } else { Ok(false) };
            };
            let end = self.searched + at;
            let line = src.get(self.line_start..end).unwrap_or_default();
            if line.len() > self.limits.line {
                return Err(too_long("line"));
            }
            let failed = line == last;
            if line == next
                && let Some((body, consumed)) = before(src, self.line_start, guard)
            {
                let part = cut(src, body, consumed);
                open.held += part.len();
                open.parts.push(part);
                open.nonce_due = true;
                self.leave_part();
                return Ok(true);
            }
            if failed {
                let (body, consumed) = failure(src, self.line_start, guard);
                let error = Some(cut(src, body, consumed));
                open.answered = true;
                let parts = std::mem::take(&mut open.parts);
                self.due.push_back(Event::Frame(Frame { seq, parts, error }));
                if consumed == 0 {
                    // This block belongs to the second line: its nonce and its `%end` are still to
                    // come.
                    self.block = Some(Block { guard, body: BytesMut::new() });
                }
                self.leave_part();
                return Ok(true);
            }
            self.searched = end + 1;
            self.line_start = end + 1;
            if open.held + self.line_start > self.limits.body {
                return Err(too_long("frame"));
            }
        }
    }

    fn leave_part(&mut self) {
        self.part = None;
        self.searched = 0;
        self.line_start = 0;
    }
}

/// Removes `consumed` bytes from the front and returns the first `body` of them.
fn cut(src: &mut BytesMut, body: usize, consumed: usize) -> Bytes {
    let mut taken = src.split_to(consumed);
    taken.truncate(body);
    taken.freeze()
}

/// Returns the length of a part's body, and the start of the bytes after its `%end` line; the
/// part's nonce line begins at `at`.
///
/// The last `%end` that repeats the guard is the real one: a pane's forgeries come before it.
/// Blocks of hooks can come between it and the nonce. The line before the nonce must be the
/// `%begin` of the nonce's block.
fn before(src: &[u8], at: usize, guard: Guard) -> Option<(usize, usize)> {
    let raw = src.get(..at)?;
    let begin = last_line(raw)?;
    if !matches!(parse_line(begin), Line::Begin(own) if own.is_reply()) {
        return None;
    }
    let raw = raw.get(..raw.len() - begin.len() - 1)?;
    let end = format!("%end {guard}\n");
    let start = memmem::rfind_iter(raw, end.as_bytes()).find(|start| begins_line(raw, *start))?;
    Some((start, start + end.len()))
}

/// Returns the length of a failed command's error text, and the start of the bytes after its
/// `%error` line. The nonce of the frame's second line begins at `at`, which shows that the part's
/// command failed. An error text contains no pane text, so the first `%error` is the real one.
fn failure(src: &[u8], at: usize, guard: Guard) -> (usize, usize) {
    let raw = src.get(..at).unwrap_or_default();
    let error = format!("%error {guard}\n");
    if let Some(start) = memmem::find_iter(raw, error.as_bytes()).find(|start| begins_line(raw, *start)) {
        return (start, start + error.len());
    }
    // Not reached with a correct tmux. The remaining bytes begin with the `%begin` of the nonce's
    // block.
    let begin = last_line(raw).map_or(0, |line| raw.len() - line.len() - 1);
    (begin, begin)
}

fn begins_line(text: &[u8], at: usize) -> bool {
    at == 0 || text.get(at - 1) == Some(&b'\n')
}

/// Returns the last complete line, without its newline; `None` if the text does not end with a
/// newline.
fn last_line(text: &[u8]) -> Option<&[u8]> {
    let text = text.strip_suffix(b"\n")?;
    let start = memrchr(b'\n', text).map_or(0, |at| at + 1);
    text.get(start..)
}

fn too_long(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("tmux sent a {what} beyond the limit"))
}

#[cfg(test)]
mod tests;
