//! Frames: a pane's screen at one place of its output, and the difference to another frame.

use std::{collections::HashMap, fmt::Write as _};

use muxtap_engine::PaneLook;
use muxtap_tmux::Exit;

use super::encode;

use muxtap_api::Cursor;
use muxtap_core::screen::{Modes, RowRuns, Screen};

/// A pane's screen at one place of its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The id of the screen; a frame of another screen shares no rows with it.
    made: u64,
    /// How often the screen was refreshed from tmux; a refresh may change rows that were sent.
    refreshed: u64,
    cursor: Cursor,
    columns: u16,
    rows: Vec<Box<str>>,
    at: (u32, u32),
    modes: Modes,
    title: String,
    history: u32,
    /// The number of the oldest line of the history.
    first: u64,
    /// How often the commands and their lines may have changed.
    commands: u64,
    stale: bool,
    /// The exit status of the program that has ended.
    pub(super) exit: Option<Exit>,
}

/// The result of reading a pane's screen.
pub(super) enum Shot {
    /// A frame from memory.
    Frame(Box<Frame>),
    /// Memory is not certain: the screen must come from tmux.
    Stale,
}

impl Shot {
    /// Reads a pane's screen. Called under the pane's lock.
    pub(super) fn of(look: &PaneLook<'_>, runs: &mut RowRuns) -> Self {
        // An ended program's screen no longer changes, so memory is certain.
        match look.screen.filter(|_| look.is_followed || look.exit.is_some()) {
            Some(screen) => {
                let frame = Frame::of(screen, look, look.cursor, runs);
                Self::Frame(Box::new(Frame { exit: look.exit, ..frame }))
            }
            None => Self::Stale,
        }
    }
}

impl Frame {
    fn of(screen: &Screen, look: &PaneLook<'_>, cursor: Cursor, runs: &mut RowRuns) -> Self {
        let size = screen.size();
        let mut text = String::new();
        let rows = (0..size.rows).map(|y| {
            text.clear();
            if screen.read_row(y, runs) {
                encode::row(screen, runs, &mut text);
            }
            text.as_str().into()
        });
        let rows = rows.collect();
        let place = screen.cursor();
        Self {
            made: look.made,
            refreshed: look.refreshed,
            cursor,
            columns: size.columns,
            rows,
            at: (place.column, place.row),
            modes: screen.modes(),
            title: look.title.chars().take(TITLE).collect(),
            history: screen.history_size(),
            first: screen.history_start(),
            commands: look.commands,
            stale: false,
            exit: None,
        }
    }

    /// Makes a frame of tmux's response; without one, of the last known screen.
    pub(super) fn of_tmux(
        said: Option<&(Screen, Cursor, u32)>,
        look: &PaneLook<'_>,
        runs: &mut RowRuns,
    ) -> Option<Self> {
        let first = look.screen.map_or(0, Screen::history_start);
        let frame = match said {
            Some((screen, cursor, history)) => {
                let frame = Self::of(screen, look, *cursor, runs);
                Self { history: *history, first, ..frame }
            }
            None => Self::of(look.screen?, look, look.cursor, runs),
        };
        Some(Self { stale: true, exit: look.exit, ..frame })
    }

    /// Returns the message that takes a view from `last` to this frame; `None` if nothing differs.
    pub(super) fn message(&self, view: u32, last: Option<&Self>) -> Option<String> {
        let same_screen = |last: &&Self| {
            last.made == self.made
                && last.columns == self.columns
                && last.rows.len() == self.rows.len()
                && last.modes.alternate == self.modes.alternate
        };
        let numbered = last.filter(same_screen);
        let kept = numbered.filter(|last| last.refreshed == self.refreshed);
        let up = kept.map_or(0, |kept| self.up_from(kept));
        let below = |y: usize| kept.and_then(|kept| kept.rows.get(y + up)).map_or(EMPTY, |row| &**row);
        let rows = self.rows.iter().map(|row| &**row).enumerate();
        let lines: Vec<_> = rows.filter(|(y, row)| *row != below(*y)).collect();
        if let Some(kept) = kept
            && up == 0
            && lines.is_empty()
            && (Self { cursor: kept.cursor, exit: kept.exit, ..self.clone_head() }) == kept.clone_head()
        {
            return None;
        }
        let mut out = String::with_capacity(256 + lines.iter().map(|(_, row)| row.len() + 8).sum::<usize>());
        let whole = kept.is_none();
        let _ = write!(out, r#"{{"type":"screen","view":{view},"whole":{whole},"cursor":"{}","up":{up}"#, self.cursor);
        out.push_str(r#","lines":{"#);
        for (at, (y, row)) in lines.iter().enumerate() {
            let _ = write!(out, "{}\"{y}\":{row}", if at == 0 { "" } else { "," });
        }
        let _ = write!(out, r#"}},"at":[{},{}]"#, self.at.0, self.at.1);
        if whole {
            let _ = write!(out, r#","same_numbers":{}"#, numbered.is_some());
            let _ = write!(out, r#","columns":{},"rows":{}"#, self.columns, self.rows.len());
        }
        if kept.is_none_or(|kept| kept.modes != self.modes) {
            out.push_str(r#","modes":"#);
            modes(&self.modes, &mut out);
        }
        if kept.is_none_or(|kept| kept.title != self.title) {
            out.push_str(r#","title":"#);
            encode::text(&self.title, &mut out);
        }
        let mut number = |name: &str, value: u64, before: Option<u64>| {
            if before != Some(value) {
                let _ = write!(out, r#","{name}":{value}"#);
            }
        };
        number("history", u64::from(self.history), kept.map(|kept| u64::from(kept.history)));
        number("first", self.first, kept.map(|kept| kept.first));
        number("commands", self.commands, kept.map(|kept| kept.commands));
        if kept.is_none_or(|kept| kept.stale != self.stale) {
            let _ = write!(out, r#","stale":{}"#, self.stale);
        }
        out.push('}');
        Some(out)
    }

    /// Returns whether most rows differ from the rows of the last frame at their places.
    pub(super) fn is_drawn_anew(&self, last: Option<&Self>) -> bool {
        let before = |y: usize| last.and_then(|last| last.rows.get(y));
        let anew = self.rows.iter().enumerate().filter(|(y, row)| before(*y) != Some(*row)).count();
        anew * 2 > self.rows.len()
    }

    /// Returns the frame without its rows.
    fn clone_head(&self) -> Self {
        Self { rows: Vec::new(), title: self.title.clone(), ..*self }
    }

    /// Returns by how many rows to move the last frame up in order to send the least.
    fn up_from(&self, last: &Self) -> usize {
        let height = self.rows.len();
        let cost = |up: usize| -> usize {
            let sent = |(y, row): (usize, &str)| {
                let before = last.rows.get(y + up).map_or(EMPTY, |row| &**row);
                if before == row { 0 } else { row.len() + 8 }
            };
            self.rows.iter().map(|row| &**row).enumerate().map(sent).sum()
        };
        let stays = cost(0);
        if stays == 0 {
            return 0;
        }
        let scrolled = (self.first + u64::from(self.history)).checked_sub(last.first + u64::from(last.history));
        let counted = scrolled.and_then(|up| usize::try_from(up).ok()).filter(|up| (1..height).contains(up));
        // Without a count (the alternate screen, a region), the move that most rows agree on.
        let up = counted.or_else(|| {
            let mut places = HashMap::with_capacity(height);
            for (y, row) in last.rows.iter().enumerate().filter(|(_, row)| ***row != *EMPTY) {
                // A text that occurs twice has no unique place.
                places.entry(&**row).and_modify(|place| *place = None).or_insert(Some(y));
            }
            let mut votes = vec![0_u32; height];
            for (y, row) in self.rows.iter().enumerate() {
                if let Some(Some(before)) = places.get(&**row)
                    && let Some(votes) = before.checked_sub(y).and_then(|up| votes.get_mut(up))
                {
                    *votes += 1;
                }
            }
            let most = votes.iter().enumerate().skip(1).max_by_key(|(_, votes)| **votes)?;
            (*most.1 > 0).then_some(most.0)
        });
        up.filter(|up| cost(*up) < stays).unwrap_or(0)
    }
}

/// The maximum length of a title, in characters.
const TITLE: usize = 256;
/// A row without text.
const EMPTY: &str = "[]";

fn modes(modes: &Modes, out: &mut String) {
    let Modes {
        cursor, alternate, mouse, sgr_mouse, cursor_keys, keypad, bracketed_paste, focus, cursor_shape, ..
    } = modes;
    let _ = write!(
        out,
        r#"{{"cursor":{cursor},"alternate":{alternate},"mouse":{},"sgr":{sgr_mouse},"keys":{cursor_keys},"keypad":{keypad},"paste":{bracketed_paste},"focus":{focus},"shape":{cursor_shape}}}"#,
        mouse.number(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use muxtap_api::Epoch;
    use muxtap_core::{
        protocol::{ids::PaneId, version::Version},
        screen::{Rules, Settings, Size},
    };

    use serde_json::Value;

    struct View {
        screen: Screen,
        last: Option<Frame>,
        refreshed: u64,
        /// The screen of a viewer.
        rows: Vec<Value>,
    }

    impl View {
        fn new(columns: u16, rows: u16) -> Self {
            let rules = Rules::for_version(Version::parse(b"3.5a").unwrap());
            let screen = Screen::new(Size { columns, rows }, rules, Settings::default());
            Self { screen, last: None, refreshed: 0, rows: Vec::new() }
        }

        fn frame(&self) -> Frame {
            let cursor = Cursor { epoch: Epoch::default(), pane: PaneId(1), offset: 0 };
            let look = PaneLook {
                screen: Some(&self.screen),
                is_followed: true,
                made: 1,
                refreshed: self.refreshed,
                commands: 0,
                title: "t",
                cursor,
                exit: None,
            };
            Frame::of(&self.screen, &look, cursor, &mut RowRuns::default())
        }

        /// Draws as a viewer does.
        fn step(&mut self, output: &str) -> Option<Value> {
            self.screen.feed(output.as_bytes());
            let frame = self.frame();
            let message = frame.message(3, self.last.as_ref());
            self.last = Some(frame);
            let message: Value = serde_json::from_str(&message?).unwrap();
            let height = usize::from(self.screen.size().rows);
            if message["whole"] == true {
                self.rows.clear();
            }
            self.rows.resize(height, Value::Array(Vec::new()));
            let up = message["up"].as_u64().unwrap() as usize;
            self.rows.drain(..up);
            self.rows.resize(height, Value::Array(Vec::new()));
            for (y, row) in message["lines"].as_object().unwrap() {
                self.rows[y.parse::<usize>().unwrap()] = row.clone();
            }
            let shown: Vec<Value> =
                self.last.as_ref().unwrap().rows.iter().map(|row| serde_json::from_str(row).unwrap()).collect();
            assert_eq!(self.rows, shown);
            Some(message)
        }
    }

    #[test]
    fn what_did_not_change_is_not_sent() {
        let mut view = View::new(20, 4);
        let first = view.step("one\r\ntwo").unwrap();
        assert_eq!(
            (&first["whole"], &first["columns"], &first["modes"]["mouse"]),
            (&true.into(), &20.into(), &0.into())
        );
        assert!(view.step("").is_none());
        assert!(view.step("\x07").is_none(), "a bell shows nothing");
        let second = view.step("!").unwrap();
        assert_eq!(second["lines"].as_object().unwrap().len(), 1);
        assert_eq!((&second["at"][0], second.get("modes"), second.get("columns")), (&4.into(), None, None));
        let moved = view.step("\x1b[1;1H").unwrap();
        assert_eq!((moved["lines"].as_object().unwrap().len(), &moved["at"][1]), (0, &0.into()));
        assert_eq!(first["same_numbers"], false);
        view.refreshed += 1;
        let anew = view.step("").unwrap();
        assert_eq!((&anew["whole"], &anew["same_numbers"]), (&true.into(), &true.into()), "refreshed");
        let other = view.step("\x1b[?1049h").unwrap();
        assert_eq!((&other["whole"], &other["modes"]["alternate"]), (&true.into(), &true.into()));
    }

    #[test]
    fn an_echo_is_not_most_of_a_screen_and_a_line_that_scrolls_it_is() {
        let mut view = View::new(20, 6);
        let mut is_anew = |output: &str| {
            let before = view.last.take();
            view.screen.feed(output.as_bytes());
            let frame = view.frame();
            let is_anew = frame.is_drawn_anew(before.as_ref());
            view.last = Some(frame);
            is_anew
        };
        assert!(is_anew("1\r\n2\r\n3\r\n4\r\n5\r\n6"), "the first one");
        assert!(!is_anew("x"));
        assert!(!is_anew("\x1b[1;1Hx\x1b[2;1Hx\x1b[3;1Hx"));
        assert!(is_anew("\x1b[6;1H\r\n7"));
    }

    #[test]
    fn what_scrolled_is_moved_and_not_sent_again() {
        let mut view = View::new(20, 6);
        let text = (0..6).map(|line| format!("\r\nline {line}")).collect::<Vec<_>>().concat();
        view.step(&text);
        let scrolled = view.step("\r\nmore\r\nand more").unwrap();
        assert_eq!((&scrolled["up"], scrolled["lines"].as_object().unwrap().len()), (&2.into(), 2));
        assert_eq!((&scrolled["history"], scrolled.get("first")), (&3.into(), None));
        // On the alternate screen nothing is counted.
        view.step("\x1b[?1049h\x1b[1;1Ha\r\nb\r\nc\r\nd\r\ne\r\nf");
        let scrolled = view.step("\r\ng").unwrap();
        assert_eq!((&scrolled["up"], scrolled["lines"].as_object().unwrap().len()), (&1.into(), 1));
    }

    proptest::proptest! {
        #[test]
        fn a_viewers_copy_equals_the_screen(
            pieces in proptest::collection::vec(
                proptest::sample::select(vec![
                    "a", "\r\n", "line\r\n", "\x1b[2;3r", "\x1b[r", "\x1b[5;1H", "\x1b[1;1H", "\x1b[L", "\x1b[M", "\x1b[2J",
                    "\x1bM", "\x1b[31m", "\x1b[m", "\x1b[?1049h", "\x1b[?1049l", "x\r\ny\r\nz\r\n", "\x1b[3S",
                ]),
                0..60,
            ),
        ) {
            let mut view = View::new(8, 5);
            for piece in pieces {
                view.step(piece);
            }
        }
    }
}
