//! The task that records one pane: from its [`Source`], through the redactor, into [`Files`].

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Entry,
    cast::{Cast, Header},
    files::Files,
    redact::{HELD_TIME, Piece, Redactor, Secrets},
    source::{self, Item, Source, Start},
};
use crate::{
    api::{RecordFormat, RecordState, Result, Size},
    screen::{Screen, Settings},
};

/// Bytes of lines that are written at once.
const WRITE_BYTES: usize = 256 * 1024;

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
    plan: Plan,
    entry: Arc<Entry>,
    source: Source,
    files: Files,
    cast: Cast,
    /// The screen as the files show it so far, where another one may have to begin with it.
    screen: Option<Screen>,
    size: Size,
    output: Option<Redactor>,
    input: Option<Redactor>,
    /// When the recording begins, in milliseconds since 1970.
    began_ms: u64,
    /// When this file begins.
    file_began: Duration,
    /// When something last happened that a secret may be part of.
    last_fed: Option<Instant>,
    lines: Vec<u8>,
}

impl Recorder {
    /// Begins: makes the first file, with the screen as it is there.
    pub(super) fn begin(plan: Plan, entry: Arc<Entry>, source: Source, start: Start, files: Files) -> Result<Self> {
        let Start { screen, size, began_ms, gap } = start;
        let redactor = |columns: u16| plan.secrets.clone().map(|secrets| Redactor::new(secrets, columns));
        let mut output = redactor(size.width);
        let input = redactor(u16::MAX);
        let shown = whole(output.as_mut(), Duration::ZERO, screen.repaint());
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
        let mut recorder = Self {
            plan,
            entry,
            source,
            files,
            cast,
            screen,
            size,
            output,
            input,
            began_ms,
            file_began: Duration::ZERO,
            last_fed: None,
            lines,
        };
        recorder.name_file();
        recorder.write()?;
        Ok(recorder)
    }

    /// Records until the pane's end, a limit, or until it is stopped.
    pub(super) async fn run(mut self) {
        let stop = self.entry.stop.clone();
        let ended = tokio::select! {
            ended = self.follow() => Some(ended),
            () = stop.cancelled() => None,
        };
        let ended = match ended {
            Some(Ok(state)) => self.finish(state),
            Some(Err(error)) => Err(error),
            None => self.finish(RecordState::Stopped),
        };
        let cursor = self.source.cursor();
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

    async fn follow(&mut self) -> Result<RecordState> {
        loop {
            let file_end = self.plan.max_time.map(|most| {
                let left = (self.file_began + most).saturating_sub(self.source.now());
                Instant::now() + left
            });
            let rest = self.last_fed.filter(|_| self.is_holding()).map(|last| last + HELD_TIME);
            let due = [file_end, rest].into_iter().flatten().min();
            let Some(item) = self.source.next(due).await? else { return Ok(RecordState::DaemonStopped) };
            match item {
                Item::Output { at, bytes, gap } => {
                    if let Some(gap) = gap {
                        self.flush(at);
                        self.cast.remark(at, &source::describe(gap), &mut self.lines);
                        self.entry.update(|info| info.gaps += 1);
                    }
                    self.last_fed = Some(Instant::now());
                    match &mut self.output {
                        Some(redactor) => {
                            let pieces = redactor.feed(at, &bytes);
                            self.take(pieces);
                        }
                        None => self.print(at, &bytes),
                    }
                }
                Item::Resized { at, size } => {
                    self.size = size;
                    self.cast.resize(at, size, &mut self.lines);
                    if let Some(redactor) = &mut self.output {
                        redactor.resize(size.width);
                    }
                    if let Some(screen) = &mut self.screen {
                        screen.resize(crate::screen::Size { columns: size.width, rows: size.height });
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
                    return Ok(RecordState::PaneEnded);
                }
                Item::Due { at } => {
                    if self.last_fed.is_some_and(|last| last.elapsed() >= HELD_TIME) {
                        self.flush(at);
                    }
                }
            }
            if self.is_full() && !self.turn()? {
                return Ok(RecordState::Limit);
            }
            self.write()?;
        }
    }

    fn is_holding(&self) -> bool {
        [&self.output, &self.input].into_iter().flatten().any(Redactor::is_holding)
    }

    /// Records what was typed, or that something was.
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

    /// Lets go of what is held back.
    fn flush(&mut self, at: Duration) {
        if let Some(pieces) = self.output.as_mut().map(|redactor| redactor.flush(at)) {
            self.take(pieces);
        }
        if let Some(pieces) = self.input.as_mut().map(|redactor| redactor.flush(at)) {
            self.take_input(pieces);
        }
    }

    /// Whether this file has reached a limit.
    fn is_full(&self) -> bool {
        let length = self.files.length() + self.lines.len() as u64;
        let time = self.source.now().saturating_sub(self.file_began);
        // A piece is a 64th of the limit, and becomes at most six times as long in JSON.
        self.plan.max_bytes.is_some_and(|most| length >= most - most / 8)
            || self.plan.max_time.is_some_and(|most| time >= most)
    }

    /// Begins the next file, with the screen as it is. Returns whether there may be one.
    fn turn(&mut self) -> Result<bool> {
        if !self.files.rotates() {
            return Ok(false);
        }
        // A sequence that is half written stays in one file.
        if self.screen.as_ref().is_some_and(|screen| !screen.at_rest()) {
            return Ok(true);
        }
        let at = self.source.now();
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

    /// Lists the file that is written from here on.
    fn name_file(&self) {
        let path = self.files.path().display().to_string();
        self.entry.update(|info| {
            info.files.push(path);
            let surplus = info.files.len().saturating_sub(super::FILES_TOLD);
            info.files.drain(..surplus);
        });
    }

    /// Writes the lines that are ready.
    fn write(&mut self) -> Result<()> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let written = self.files.write(&self.lines);
        let bytes = self.lines.len() as u64;
        self.lines.clear();
        self.lines.shrink_to(WRITE_BYTES);
        written?;
        let cursor = self.source.cursor();
        let replaced = [&self.output, &self.input].into_iter().flatten().map(Redactor::replaced).sum();
        self.entry.update(|info| {
            (info.bytes, info.cursor, info.redacted) = (info.bytes + bytes, cursor, replaced);
        });
        Ok(())
    }
}

/// Returns output that is complete, with its secrets replaced.
pub(super) fn whole(redactor: Option<&mut Redactor>, at: Duration, output: Vec<u8>) -> Vec<u8> {
    let Some(redactor) = redactor else { return output };
    let mut pieces = redactor.feed(at, &output);
    pieces.extend(redactor.flush(at));
    pieces.into_iter().flat_map(|(_, bytes)| bytes).collect()
}
