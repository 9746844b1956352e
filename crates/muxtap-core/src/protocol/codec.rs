//! The wire as a stream of [`Event`]s.
//!
//! [`ControlCodec`] frames lines with memchr, decodes pane output in place and hands it out without
//! copying, assembles blocks, and recognises nonce frames ([`super::frame`]). How the bytes were
//! cut into chunks changes nothing.
//!
//! Where a line stands decides what it may be:
//! - *Outside* of blocks: output, a notification, the begin of a block, or a stray.
//! - *In a block* outside of a frame: such a block comes from a command that prints no pane text,
//!   so a line that reads as output or as a known notification is one (F12); the block ends with
//!   the `%end` or `%error` that repeats the guard of its `%begin`; all else is body.
//! - *In a part* of a frame: body, whatever it looks like, until the nonce that no pane can know
//!   (F13).
//!
//! On a terminal (`tmux -CC`, or `tmux -C` behind a pty) lines end in CR LF, the stream begins with
//! `ESC P 1000p` and ends with `ESC \\` (`control_start` and `client_main` of tmux). The first line
//! tells which of the two it is; lines of a terminal are copied without all that.

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
        /// The output, decoded. It shares the read buffer's memory: copy what is kept for long.
        data: Bytes,
        /// The time that it lay in the server, in milliseconds; only while `pause-after` is set.
        age_ms: Option<u64>,
    },
    /// A notification. Unknown ones are values too.
    Notification(Notification),
    /// The answer to a command that was sent outside of a frame.
    Reply(Reply),
    /// The answer to [`super::frame::framed`] commands.
    Frame(Frame),
    /// A block that answers nothing that was sent here: an attach, a hook (F14).
    OtherBlock {
        /// The guard; the flags are even.
        guard: Guard,
        /// The lines, each with its `\n`.
        body: Bytes,
        /// Whether it ended with `%end`, not with `%error`.
        ok: bool,
    },
    /// A line outside of any block that is no notification, such as `run-shell` output (F12),
    /// without its newline.
    Stray(Bytes),
}

/// The answer to one command outside of a frame; answers come in the order of the commands (F14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Whether the command succeeded.
    pub ok: bool,
    /// The command's output, or its error: lines, each with its `\n`.
    pub body: Bytes,
}

/// Limits on what the codec holds before it gives up on the connection.
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

/// With less room than this, in bytes, the read buffer is renewed.
const LEAST_READ: usize = 4 << 10;

/// The size of a renewed read buffer, in bytes.
const READ_AHEAD: usize = 16 << 10;

/// A block that is being read, outside of a frame's parts.
#[derive(Debug)]
struct Block {
    guard: Guard,
    body: BytesMut,
}

/// A frame of which something has come.
#[derive(Debug)]
struct Open {
    pending: Pending,
    parts: Vec<Bytes>,
    /// Bytes in `parts`.
    held: usize,
    /// Whether a part has ended; the next block of ours is the nonce behind it.
    nonce_due: bool,
    /// Whether the frame was handed out; only the nonce of its second line is missing.
    answered: bool,
}

/// The end of a line, as the first one told.
#[derive(Debug)]
enum LineEnd {
    /// No line has come yet.
    Unknown,
    /// LF: a pipe.
    Plain,
    /// CR LF: a terminal.
    Terminal(TerminalLines),
}

/// The lines that came over a terminal, without what it adds.
#[derive(Debug, Default)]
struct TerminalLines {
    /// Lines that are still to be read, each with its `\n`.
    lines: BytesMut,
    /// The place up to which what came was searched for the end of a line.
    searched: usize,
    /// Whether the stream's introduction has come.
    introduced: bool,
}

/// What `tmux -CC` prints first.
const INTRODUCTION: &[u8] = b"\x1bP1000p";
/// What it prints last.
const TERMINATOR: &[u8] = b"\x1b\\";

impl TerminalLines {
    /// Takes the complete lines from the front of `src`.
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

/// Decodes what a `tmux -C` client prints. An error means that the connection is of no use any
/// more.
///
/// Output events share the read buffer's memory, so that nothing is copied; the codec renews the
/// buffer as needed.
#[derive(Debug)]
pub struct ControlCodec {
    key: FrameKey,
    limits: Limits,
    line_end: LineEnd,
    /// The place up to which the buffer was searched for what is looked for now: a long line is
    /// searched once, not once a chunk.
    searched: usize,
    /// Inside a part: where the line that `searched` lies in begins.
    line_start: usize,
    block: Option<Block>,
    /// Inside a part of a frame: the guard of its `%begin`.
    part: Option<Guard>,
    open: Option<Open>,
    /// A failed reply, held back while frames are under way: it may be the parse error of one.
    failed: Option<Bytes>,
    /// Events that come before the buffer is read on.
    due: VecDeque<Event>,
}

impl ControlCodec {
    /// Makes a codec for one connection; `key` is the one that its frames are made with.
    pub fn new(key: FrameKey) -> Self {
        Self::with_limits(key, Limits::DEFAULT)
    }

    /// Makes a codec as [`ControlCodec::new`] does, with limits of one's own.
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

    /// Returns the next event of which all has come, and takes it from the front of `src`; `None`
    /// until there is more. To be called again until then.
    pub fn decode(&mut self, src: &mut BytesMut) -> io::Result<Option<Event>> {
        self.with_lines(src, Self::decode_lines)
    }

    /// Runs `decode` on the lines that have come.
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

    /// Finds out how lines end, once the first has.
    fn look_at_first_line(&mut self, src: &[u8]) {
        let is_introduced = src.first() == INTRODUCTION.first();
        // tmux begins with a block. What a pane printed is never a stream's first line, and may hold any byte.
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

    /// Returns the next event at the end of the stream. A block or a frame that never ended was not
    /// answered, and a line without newline is dropped; a failed reply that was held back comes,
    /// and so does the `%exit` that tmux puts last, even in a block.
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

    /// Leaves what never ended, and returns the `%exit` that stands last in it.
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
            // Without this the next read would fill what happens to be left of the buffer, however
            // little that is.
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

    /// Takes a line outside of a frame's parts; returns its event.
    fn line(&mut self, mut line: BytesMut) -> io::Result<Option<Event>> {
        // Nearly all lines: cut and decode where they stand.
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

    /// Takes a line outside of blocks that is no notification. Behind the end of a terminal's stream
    /// stands what comes after tmux.
    fn stray(&self, mut line: BytesMut) -> Option<Event> {
        if matches!(self.line_end, LineEnd::Terminal(_)) && line.starts_with(TERMINATOR) {
            line.advance(TERMINATOR.len());
            if line.is_empty() {
                return None;
            }
        }
        Some(Event::Stray(line.freeze()))
    }

    /// Takes a `%begin` outside of any block.
    fn begin(&mut self, guard: Guard) {
        // Between the nonces of a frame, a block of ours is a part; a hook's block is not.
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

    /// Passes on the failed reply that was held back, which was nothing but that.
    fn release_failed(&mut self) {
        self.due.extend(self.failed.take().map(|body| Event::Reply(Reply { ok: false, body })));
    }

    /// Takes the body of a block of ours, if it is a nonce that is due.
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
            // tmux could not parse the first line: the block before this one said why.
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

    /// Reads on inside a part, whose body begins at the start of `src`. True when the part has
    /// ended; `src` then begins with what follows it.
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
                    // This block is the second line's own: its nonce and its `%end` are still to be
                    // read.
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

/// Takes `consumed` bytes from the front, of which the first `body` are the result.
fn cut(src: &mut BytesMut, body: usize, consumed: usize) -> Bytes {
    let mut taken = src.split_to(consumed);
    taken.truncate(body);
    taken.freeze()
}

/// Returns, for a part whose nonce line begins at `at`, how long the body is, and where what
/// follows its `%end` line begins.
///
/// The last `%end` that repeats the guard is the real one: a pane's forgeries stand before it.
/// Between it and the nonce there can be blocks of hooks. The line before the nonce must be the
/// `%begin` of its block.
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

/// Returns, where the nonce of the frame's second line begins at `at` and so the part's command
/// failed, how long its error text is, and where what follows its `%error` line begins. An error
/// text is no pane text, so the first `%error` is the real one.
fn failure(src: &[u8], at: usize, guard: Guard) -> (usize, usize) {
    let raw = src.get(..at).unwrap_or_default();
    let error = format!("%error {guard}\n");
    if let Some(start) = memmem::find_iter(raw, error.as_bytes()).find(|start| begins_line(raw, *start)) {
        return (start, start + error.len());
    }
    // Not reached with a tmux that works. What is left begins with the `%begin` of the nonce's
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
