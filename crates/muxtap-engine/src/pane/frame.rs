//! Frames of a pane's screen and their differences, shared by all subscribers that show the screen.

use std::sync::{Arc, PoisonError};

use muxtap_api::{Event, ScreenFormat, Size};
use muxtap_core::screen::{Cursor, Screen};
use tokio::time::Instant;

use super::{PaneState, Revision, shared_event::SharedEvent};

use crate::{limits, sync::Mutex};

/// The most differences kept for a frame; readers at the same rate request the same one.
const MAX_DIFFS: usize = 8;

/// The content of a screen at one point of its stream.
#[derive(Debug)]
pub(crate) struct Frame {
    /// The frame's number, unique within its pane.
    number: u64,
    point: Revision,
    made: Instant,
    size: Size,
    cursor: Cursor,
    alternate: bool,
    rows: Vec<Box<str>>,
    diffs: Mutex<Vec<FrameDiff>>,
}

/// The event with the changes since the frame `since` (0: everything); `None` if there are none.
#[derive(Debug)]
struct FrameDiff {
    since: u64,
    format: ScreenFormat,
    event: Option<Arc<SharedEvent>>,
}

/// The newest frames of a pane, plain and with escapes.
#[derive(Debug, Default)]
pub(crate) struct FrameCache(Mutex<Newest>);

#[derive(Debug, Default)]
struct Newest {
    plain: Option<Arc<Frame>>,
    styled: Option<Arc<Frame>>,
    /// The number of frames made so far.
    made: u64,
}

/// The result of [`PaneState::frame`].
pub(crate) enum FrameResult {
    /// The frame of the current screen.
    Ready(Arc<Frame>),
    /// The last frame is too recent; a new one is due at this time.
    TooEarly(Instant),
    /// The screen is not known for certain now.
    Unknown,
}

impl FrameCache {
    pub(crate) fn clear(&self) {
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (newest.plain, newest.styled) = (None, None);
    }
}

impl PaneState {
    /// Returns a frame of the current screen. `hurry` makes one even if the last one is recent.
    pub(crate) fn frame(&self, format: ScreenFormat, hurry: bool) -> FrameResult {
        let mut newest = self.event_cache.frames.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The event that names changed rows covers changes of style too.
        let escapes = format != ScreenFormat::Text;
        let last = if escapes { &newest.styled } else { &newest.plain };
        let now = Instant::now();
        let due = last.as_ref().map(|last| last.made + limits::SCREEN_PACE).filter(|due| *due > now && !hurry);
        let frame = {
            let locked = self.lock();
            let Some(screen) = locked.output.screen.followed() else { return FrameResult::Unknown };
            let point = locked.revision();
            if let Some(last) = last.as_ref().filter(|last| last.point == point) {
                return FrameResult::Ready(last.clone());
            }
            if let Some(due) = due {
                return FrameResult::TooEarly(due);
            }
            Arc::new(Frame::of(screen, newest.made + 1, point, now, escapes))
        };
        newest.made += 1;
        *(if escapes { &mut newest.styled } else { &mut newest.plain }) = Some(frame.clone());
        FrameResult::Ready(frame)
    }
}

impl Frame {
    fn of(screen: &Screen, number: u64, point: Revision, made: Instant, escapes: bool) -> Self {
        let size = screen.size();
        Self {
            number,
            point,
            made,
            size: Size { width: size.columns, height: size.rows },
            cursor: screen.cursor(),
            alternate: screen.alternate(),
            rows: (0..size.rows).map(|row| screen.row(row, escapes).into()).collect(),
            diffs: Mutex::default(),
        }
    }

    /// Returns the event with the changes since an earlier frame, or with everything; `None` if
    /// nothing changed.
    pub(crate) fn diff_since(
        &self,
        last: Option<&Self>,
        format: ScreenFormat,
        pane: &PaneState,
    ) -> Option<Arc<SharedEvent>> {
        let since = last.map_or(0, |last| last.number);
        let mut diffs = self.diffs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = diffs.iter().find(|known| known.since == since && known.format == format) {
            return known.event.clone();
        }
        let event = self.screen_event(last, format, pane).map(SharedEvent::new);
        if diffs.len() >= MAX_DIFFS {
            diffs.remove(0);
        }
        diffs.push(FrameDiff { since, format, event: event.clone() });
        event
    }

    fn screen_event(&self, last: Option<&Self>, format: ScreenFormat, pane: &PaneState) -> Option<Event> {
        let last = last.filter(|last| last.size == self.size);
        let rows = self.rows.iter().enumerate();
        let changed = rows.filter(|(row, text)| last.and_then(|last| last.rows.get(*row)) != Some(*text));
        let (rows, lines): (Vec<u16>, Vec<String>) = changed.map(|(row, text)| (row as u16, text.to_string())).unzip();
        let same = last.is_some_and(|last| last.cursor == self.cursor && last.alternate == self.alternate);
        if rows.is_empty() && same {
            return None;
        }
        Some(Event::Screen {
            pane: pane.id(),
            rows,
            lines: (format != ScreenFormat::Rows).then_some(lines),
            size: self.size,
            cursor_x: self.cursor.column,
            cursor_y: self.cursor.row,
            cursor_visible: self.cursor.visible,
            alternate: self.alternate,
            cursor: pane.cursor(self.point.end()),
        })
    }
}
