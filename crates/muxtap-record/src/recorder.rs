//! The task that records one pane: from its [`Source`], through the redactor, into [`Files`].

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use muxtap_api::{Cursor, RecordFormat, RecordState, Result, Size};
use muxtap_core::{
    screen::{CaptureOptions, Line, Screen, Settings},
    width,
};

use super::{
    Entry,
    cast::{Cast, Header},
    files::Files,
    live,
    redact::{HELD_TIME, Piece, Redactor, Secrets},
    source::{self, Item, Source, Start},
    stored::Asks,
};

/// The number of bytes of lines that are written at once.
const WRITE_BYTES: usize = 256 * 1024;

/// The output that ends an unterminated string in a player, as tmux did by itself.
///
/// CAN ends the string; the styles and character sets become those of a new pane.
pub(super) const GIVEN_UP: &[u8] = b"\x18\x1b[m\x1b(B\x1b)B\x0f";

/// The parameters of a recording.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) format: RecordFormat,
    pub(super) max_bytes: Option<u64>,
    pub(super) max_time: Option<Duration>,
    pub(super) secrets: Option<Secrets>,
    pub(super) input: bool,
    pub(super) title: String,
}

/// A recording in progress.
pub(super) struct Recorder {
    pub(super) plan: Plan,
    pub(super) entry: Arc<Entry>,
    /// The requests to stop for another daemon.
    pub(super) asks: Asks,
    pub(super) source: Source,
    pub(super) files: Files,
    pub(super) cast: Cast,
    /// The screen as the files show it so far, if another file may have to begin with it.
    pub(super) screen: Option<Screen>,
    pub(super) size: Size,
    pub(super) output: Option<Redactor>,
    pub(super) input: Option<Redactor>,
    /// When the recording begins, in milliseconds since 1970.
    pub(super) began_ms: u64,
    /// When this file begins.
    pub(super) file_began: Duration,
    /// The size of this file's header and initial screen, in bytes.
    pub(super) head: u64,
    /// The end of the recorded output.
    pub(super) cursor: Cursor,
    /// When the last content came that may be part of a secret.
    pub(super) last_fed: Option<Instant>,
    pub(super) lines: Vec<u8>,
}

impl Recorder {
    /// Starts a recording: creates the first file, with the current screen.
    pub(super) fn begin(
        plan: Plan,
        (entry, asks): (Arc<Entry>, Asks),
        source: Source,
        start: Start,
        files: Files,
    ) -> Result<Self> {
        let Start { screen, size, began_ms, gap } = start;
        let mut output = plan.secrets.clone().map(|secrets| Redactor::new(secrets, size));
        let input = plan.secrets.clone().map(|secrets| Redactor::for_text(secrets, u16::MAX));
        let shown = shown(output.as_mut(), &screen);
        let title = plan.secrets.as_ref().map_or_else(|| plan.title.clone(), |secrets| secrets.replace(&plan.title));
        let plan = Plan { title, ..plan };
        let mut lines = Vec::new();
        let header = Header { size, timestamp: began_ms / 1000, title: plan.title.clone() };
        let mut cast = Cast::new(plan.format, &header, Duration::ZERO, &mut lines);
        if let Some(gap) = gap {
            cast.remark(Duration::ZERO, &source::describe(gap), &mut lines);
            entry.update(|info| info.gaps += 1);
        }
        let mut screen = files.rotates().then(|| {
            let settings = Settings { history_limit: 0, ..Settings::default() };
            Screen::new(screen.size(), source.rules(), settings)
        });
        if let Some(screen) = &mut screen {
            screen.feed(&shown);
        }
        if plan.format != RecordFormat::Text {
            cast.output(Duration::ZERO, &shown, &mut lines);
        }
        let (head, cursor) = (lines.len() as u64, source.cursor());
        let mut recorder = Self {
            plan,
            entry,
            asks,
            source,
            files,
            cast,
            screen,
            size,
            output,
            input,
            began_ms,
            file_began: Duration::ZERO,
            head,
            cursor,
            last_fed: None,
            lines,
        };
        recorder.name_file();
        recorder.write()?;
        Ok(recorder)
    }

    /// Records until the pane's end, a limit, or a stop; or until another daemon continues.
    pub(super) async fn run(mut self) {
        let ended = match self.follow().await {
            Ok(Some(state)) => self.finish(state),
            Ok(None) => return,
            Err(error) => Err(error),
        };
        let cursor = self.cursor;
        let replaced = [&self.output, &self.input].into_iter().flatten().map(Redactor::replaced).sum();
        self.entry.end(|info| {
            info.cursor = cursor;
            info.redacted = replaced;
            match ended {
                Ok(state) => info.state = state,
                Err(error) => {
                    info.state = RecordState::Failed;
                    info.error = Some(error.message);
                }
            }
        });
    }

    /// Records. `None`: another daemon continues.
    async fn follow(&mut self) -> Result<Option<RecordState>> {
        let stop = self.entry.stop.clone();
        loop {
            // An incomplete escape sequence stays in one file; the output that completes it wakes
            // this loop.
            let file_end = self.plan.max_time.filter(|_| self.can_turn()).map(|most| {
                let left = (self.file_began + most).saturating_sub(self.source.now());
                Instant::now() + left
            });
            let rest = self.last_fed.filter(|_| self.is_holding()).map(|last| last + HELD_TIME);
            let due = [file_end, rest].into_iter().flatten().min();
            let item = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(Some(RecordState::Stopped)),
                Some(ask) = self.asks.recv() => {
                    // If this recorder was busy for long, the handover has failed.
                    if ask.is_closed() {
                        continue;
                    }
                    // All lines are written here.
                    if ask.send(self.store()).is_ok() && !self.entry.goes_on_here().await {
                        return Ok(None);
                    }
                    self.files.take_back()?;
                    continue;
                }
                item = self.source.next(due) => item?,
            };
            let Some(item) = item else { return Ok(Some(RecordState::DaemonStopped)) };
            match item {
                Item::Output { at, bytes, gap, given_up } => {
                    // Past output may come long after the output before it.
                    if self.is_over(at) && !self.turn(at)? {
                        return Ok(Some(RecordState::Limit));
                    }
                    if let Some(gap) = gap {
                        self.flush(at);
                        self.cast.remark(at, &source::describe(gap), &mut self.lines);
                        self.entry.update(|info| info.gaps += 1);
                    }
                    self.last_fed = Some(Instant::now());
                    self.record(at, bytes, given_up).await?;
                    self.cursor = self.source.cursor();
                }
                Item::Redrawn { at, screen } => {
                    self.flush(at);
                    // A text has lines, and no screen to draw again.
                    if self.plan.format != RecordFormat::Text {
                        let shown = shown(self.output.as_mut(), &screen);
                        self.print(at, &shown);
                    }
                }
                Item::Resized { at, size } => {
                    self.size = size;
                    self.cast.resize(at, size, &mut self.lines);
                    if let Some(redactor) = &mut self.output {
                        redactor.resize(size);
                    }
                    if let Some(screen) = &mut self.screen {
                        screen.resize(muxtap_core::screen::Size { columns: size.width, rows: size.height });
                    }
                }
                Item::Input { at, bytes } => self.typed(at, bytes),
                Item::Marker { at, label } => {
                    let label = self.plan.secrets.as_ref().map_or(label.clone(), |secrets| secrets.replace(&label));
                    self.cast.marker(at, &label, &mut self.lines);
                }
                Item::Ended { at, exit } => {
                    self.flush(at);
                    let status = exit.status.or(exit.signal.map(|signal| 128 + signal));
                    self.entry.update(|info| info.exit_status = exit.status);
                    self.cast.exit(at, status, &mut self.lines);
                    return Ok(Some(RecordState::PaneEnded));
                }
                Item::Due { at } => {
                    if self.last_fed.is_some_and(|last| last.elapsed() >= HELD_TIME) {
                        self.flush(at);
                    }
                }
            }
            if self.is_full() && !self.turn(self.source.now())? {
                return Ok(Some(RecordState::Limit));
            }
            self.write()?;
        }
    }

    fn is_holding(&self) -> bool {
        [&self.output, &self.input].into_iter().flatten().any(Redactor::is_holding)
    }

    /// Records typed input, or only that there was input.
    fn typed(&mut self, at: Duration, bytes: Option<Vec<u8>>) {
        let Some(bytes) = bytes else {
            return self.cast.marker(at, "input that the terminal does not show", &mut self.lines);
        };
        if !self.plan.input {
            return self.cast.marker(at, "input", &mut self.lines);
        }
        self.last_fed = Some(Instant::now());
        match &mut self.input {
            Some(redactor) => {
                let pieces = redactor.feed(at, &bytes);
                self.take_input(pieces);
            }
            None => self.cast.input(at, &String::from_utf8_lossy(&bytes), &mut self.lines),
        }
    }

    /// Records output, and the places in it where tmux gave up a string.
    async fn record(&mut self, at: Duration, bytes: Vec<u8>, given_up: Vec<usize>) -> Result<()> {
        let Some(mut redactor) = self.output.take() else {
            for (piece, is_given_up) in source::pieces(&bytes, given_up) {
                self.print(at, piece);
                if is_given_up {
                    // The model does what tmux did, not what a player needs.
                    if let Some(screen) = &mut self.screen {
                        screen.give_up();
                    }
                    self.print(at, GIVEN_UP);
                }
            }
            return Ok(());
        };
        // A pattern may be slow: recordings without one do not wait for it.
        let replacing = live::replaced(move || {
            let mut replaced = Vec::new();
            for (piece, is_given_up) in source::pieces(&bytes, given_up) {
                replaced.extend(redactor.feed(at, piece));
                if is_given_up {
                    redactor.give_up();
                    replaced.extend(redactor.feed(at, GIVEN_UP));
                }
            }
            (redactor, replaced)
        });
        let (redactor, pieces) = replacing.await?;
        self.output = Some(redactor);
        self.take(pieces);
        Ok(())
    }

    fn take_input(&mut self, pieces: Vec<Piece>) {
        for (at, bytes) in pieces {
            self.cast.input(at, &String::from_utf8_lossy(&bytes), &mut self.lines);
        }
    }

    fn take(&mut self, pieces: Vec<Piece>) {
        for (at, bytes) in pieces {
            self.print(at, &bytes);
        }
    }

    fn print(&mut self, at: Duration, bytes: &[u8]) {
        if let Some(screen) = &mut self.screen {
            screen.feed(bytes);
        }
        self.cast.output(at, bytes, &mut self.lines);
    }

    /// Writes what is held back.
    fn flush(&mut self, at: Duration) {
        if let Some(pieces) = self.output.as_mut().map(|redactor| redactor.flush(at)) {
            self.take(pieces);
        }
        if let Some(pieces) = self.input.as_mut().map(|redactor| redactor.flush(at)) {
            self.take_input(pieces);
        }
    }

    /// Returns whether this file's time limit has passed at this time.
    fn is_over(&self, at: Duration) -> bool {
        self.plan.max_time.is_some_and(|most| at.saturating_sub(self.file_began) >= most)
    }

    /// Returns whether this file has reached a limit.
    fn is_full(&self) -> bool {
        let length = self.files.length() + self.lines.len() as u64;
        // A piece is a 64th of the limit, and becomes at most six times longer in JSON. A file with
        // a large screen gets as much output again: otherwise each piece would have a file of its
        // own.
        self.plan.max_bytes.is_some_and(|most| length >= (most - most / 8).max(self.head.saturating_mul(2)))
            || self.is_over(self.source.now())
    }

    /// Returns whether a file may end here.
    fn can_turn(&self) -> bool {
        self.screen.as_ref().is_none_or(Screen::at_rest)
    }

    /// Starts the next file at this time, with the current screen. Returns whether recording
    /// continues.
    fn turn(&mut self, at: Duration) -> Result<bool> {
        if !self.files.rotates() {
            return Ok(false);
        }
        // An incomplete escape sequence stays in one file.
        if !self.can_turn() {
            return Ok(true);
        }
        self.cast.finish(at, &mut self.lines);
        self.write()?;
        self.files.rotate()?;
        self.name_file();
        let timestamp = (self.began_ms + u64::try_from(at.as_millis()).unwrap_or(0)) / 1000;
        let header = Header { size: self.size, timestamp, title: self.plan.title.clone() };
        self.cast = Cast::new(self.plan.format, &header, at, &mut self.lines);
        self.file_began = at;
        if self.plan.format != RecordFormat::Text
            && let Some(screen) = &self.screen
        {
            self.cast.output(at, &screen.repaint(), &mut self.lines);
        }
        self.head = self.lines.len() as u64;
        Ok(true)
    }

    /// Ends the file.
    fn finish(&mut self, state: RecordState) -> Result<RecordState> {
        let at = self.source.now();
        self.flush(at);
        self.cast.finish(at, &mut self.lines);
        self.write()?;
        Ok(state)
    }

    /// Adds the new current file to the list.
    fn name_file(&self) {
        let path = self.files.path().display().to_string();
        self.entry.update(|info| {
            info.files.push(path);
            let surplus = info.files.len().saturating_sub(super::FILES_TOLD);
            info.files.drain(..surplus);
        });
    }

    /// Writes the complete lines.
    fn write(&mut self) -> Result<()> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let written = self.files.write(&self.lines);
        let bytes = self.lines.len() as u64;
        self.lines.clear();
        self.lines.shrink_to(WRITE_BYTES);
        written?;
        let cursor = self.cursor;
        let replaced = [&self.output, &self.input].into_iter().flatten().map(Redactor::replaced).sum();
        self.entry.update(|info| {
            (info.bytes, info.cursor, info.redacted) = (info.bytes + bytes, cursor, replaced);
        });
        Ok(())
    }
}

/// Returns the output that draws a screen, with its secrets replaced.
///
/// The redactor then continues in the cursor's line.
pub(super) fn shown(redactor: Option<&mut Redactor>, screen: &Screen) -> Vec<u8> {
    let Some(redactor) = redactor else { return screen.repaint() };
    let mut pieces = redactor.feed(Duration::ZERO, &screen.repaint());
    pieces.extend(redactor.flush(Duration::ZERO));
    let (cells, column) = cursor_line(screen);
    redactor.begin_in_line(cells, column);
    pieces.into_iter().flat_map(|(_, bytes)| bytes).collect()
}

/// Returns the cursor's line, with the rows before it that wrap into it, and the cursor's column in
/// it.
///
/// A wide character is followed by an empty column.
fn cursor_line(screen: &Screen) -> (Vec<Option<char>>, usize) {
    let cursor = screen.cursor();
    let last = i32::try_from(cursor.row).unwrap_or_default();
    let capture = |from: i32, to: i32, join: bool| {
        let options =
            CaptureOptions { start: Line::At(from), end: Line::At(to), join, trailing: !join, escapes: false };
        String::from_utf8_lossy(&screen.capture(&options)).into_owned()
    };
    let mut first = last;
    while first > 0 && capture(first - 1, first, true).lines().count() == 1 {
        first -= 1;
    }
    let columns = usize::from(screen.size().columns);
    let mut cells = Vec::new();
    for row in first..=last {
        let mut in_row = Vec::new();
        for character in capture(row, row, false).trim_end_matches('\n').chars() {
            let columns = width::of_text(character.encode_utf8(&mut [0; 4]));
            in_row.extend((0..columns).map(|column| (column == 0).then_some(character)));
        }
        if row < last {
            in_row.resize(columns, Some(' '));
        }
        cells.extend(in_row);
    }
    let before = columns * usize::try_from(last - first).unwrap_or_default();
    let column = before + usize::try_from(cursor.column).unwrap_or_default();
    if cells.len() < column {
        cells.resize(column, Some(' '));
    }
    // Columns that were never written are not text.
    while cells.len() > column && cells.last() == Some(&Some(' ')) {
        cells.pop();
    }
    (cells, column)
}
