//! A dry run of rules: which would have fired, without doing anything.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use muxtap_api::{AgentInfo, CommandInfo, Cursor, Epoch, Event, PaneInfo, Result, Size, WhenRule};
use muxtap_core::{
    protocol::{ids::PaneId, version::Version},
    screen::{self, Rules, Screen, Settings},
};
use serde_json::Value;

use crate::{
    limits::LINE_REST,
    matcher::{Matcher, Outcome},
    rule::{Rule, RuleSet},
};

/// A rule that would have fired.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Seen {
    /// The rule's name.
    pub rule: String,
    /// The condition's kind.
    pub kind: String,
    /// When, in milliseconds since the beginning.
    pub at_ms: u64,
    /// What was seen.
    pub text: String,
}

/// A dry run of rules on one pane. Times are those of the material, not the clock's.
pub struct Dry {
    matcher: Matcher,
    pane: PaneInfo,
    start: Instant,
    now: Duration,
    seen: Vec<Seen>,
}

impl Dry {
    /// Begins a dry run. The rules' URLs and typed texts are not needed, so a listed rule will do.
    pub fn new(rules: &[WhenRule], pane: PaneInfo) -> Result<Self> {
        let rules = rules.iter().map(|rule| {
            // What a list hides need not be valid.
            let rule = WhenRule { post: None, type_text: None, into: None, notify: true, ..rule.clone() };
            // A test is about the pane's text, wherever it was recorded.
            Rule::of(WhenRule { hosts: Vec::new(), ..rule }).map(Arc::new)
        });
        let set = Arc::new(RuleSet::of(rules.collect::<Result<_>>()?)?);
        let mut dry = Self {
            matcher: Matcher::new(set, String::new(), None),
            pane: pane.clone(),
            start: Instant::now(),
            now: Duration::ZERO,
            seen: Vec::new(),
        };
        dry.event(&Event::PaneOpened { pane: Box::new(pane) });
        Ok(dry)
    }

    fn event(&mut self, event: &Event) {
        let outcome = self.matcher.on_event(event, self.start + self.now, self.now_ms());
        self.take(outcome);
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.now.as_millis()).unwrap_or(u64::MAX)
    }

    fn take(&mut self, outcome: Outcome) {
        self.seen.extend(outcome.fired.into_iter().map(|fired| Seen {
            rule: fired.rule.name().to_owned(),
            kind: fired.rule.condition.kind().to_owned(),
            at_ms: fired.facts.at_ms,
            text: fired.facts.summary(),
        }));
    }

    /// Moves on to this time since the beginning.
    pub fn until(&mut self, at: Duration) {
        while let Some(due) = self.matcher.due()
            && due <= self.start + at
        {
            self.now = self.now.max(due.saturating_duration_since(self.start));
            let outcome = self.matcher.on_time(due, self.now_ms());
            self.take(outcome);
        }
        self.now = self.now.max(at);
    }

    /// Feeds output: text, perhaps with escape sequences.
    pub fn print(&mut self, text: &str) {
        let cursor = Cursor { epoch: Epoch::default(), pane: self.id(), offset: 0 };
        self.event(&Event::Output { pane: self.id(), text: Some(text.to_owned()), data: None, cursor, gap: None });
    }

    /// Feeds the rows that are shown.
    pub fn show(&mut self, rows: &[String]) {
        let cursor = Cursor { epoch: Epoch::default(), pane: self.id(), offset: 0 };
        self.event(&Event::Screen {
            pane: self.id(),
            rows: (0..).take(rows.len()).collect(),
            lines: Some(rows.to_vec()),
            size: Size { width: 0, height: u16::try_from(rows.len()).unwrap_or(u16::MAX) },
            cursor_x: 0,
            cursor_y: 0,
            cursor_visible: true,
            alternate: false,
            cursor,
        });
    }

    /// Feeds a command that has ended.
    pub fn command(&mut self, command: CommandInfo) {
        self.event(&Event::CommandFinished { pane: self.id(), command: Box::new(command) });
    }

    /// Feeds an agent's state.
    pub fn agent(&mut self, agent: AgentInfo) {
        self.event(&Event::Agent(Box::new(agent)));
    }

    /// Feeds the end of the pane's process.
    pub fn end(&mut self, exit_status: Option<i32>) {
        self.event(&Event::PaneExited { pane: self.id(), exit_status, exit_signal: None });
    }

    /// Plays a recording (asciicast v2 or v3), with its times. Error: what is wrong with it.
    pub fn play(&mut self, recording: &str) -> std::result::Result<(), String> {
        let mut lines = recording.lines();
        let header: Value = lines.next().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
        let version = header.get("version").and_then(Value::as_u64);
        let Some(version @ (2 | 3)) = version else {
            return Err("expected an asciicast of version 2 or 3".into());
        };
        let sizes = if version == 2 { ["/width", "/height"] } else { ["/term/cols", "/term/rows"] };
        let number = |path: &str| header.pointer(path).and_then(Value::as_u64).unwrap_or_default();
        let [columns, rows] = sizes.map(|path| number(path).clamp(1, MOST_CELLS) as u16);
        let mut player = Player::new(columns, rows);
        let mut at = Duration::ZERO;
        for (line, place) in lines.zip(2..) {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let event: std::result::Result<(f64, String, String), _> = serde_json::from_str(line);
            let (time, code, data) = event.map_err(|_| format!("line {place}: expected [time, code, data]"))?;
            let time = Duration::try_from_secs_f64(time).map_err(|_| format!("line {place}: not a time"))?;
            at = if version == 2 { at.max(time) } else { at.saturating_add(time) };
            self.until(at);
            match code.as_str() {
                "o" => {
                    self.print(&data);
                    let shown = player.feed(&data);
                    self.show(&shown);
                }
                "r" => {
                    let size = data
                        .split_once('x')
                        .and_then(|(columns, rows)| Some((columns.parse::<u16>().ok()?, rows.parse::<u16>().ok()?)));
                    if let Some((columns, rows)) = size {
                        player.resize(columns, rows);
                    }
                }
                "x" => self.end(data.trim().parse().ok()),
                "m" => {
                    if let Some(status) = data.strip_prefix("exit ") {
                        self.end(status.trim().parse().ok());
                    }
                }
                _ => {}
            }
        }
        // What rests at the end of the recording has rested.
        self.until(at + LINE_REST);
        Ok(())
    }

    fn id(&self) -> PaneId {
        self.pane.id
    }

    /// Returns the rules that would have fired so far, in order.
    pub fn seen(&self) -> &[Seen] {
        &self.seen
    }
}

/// The largest width and height of a recording.
const MOST_CELLS: u64 = 1000;
/// The screen of a recording.
struct Player(Screen);

impl Player {
    fn new(columns: u16, rows: u16) -> Self {
        let rules = Rules::for_version(Version { major: 3, minor: 6, suffix: None, is_preview: false });
        Self(Screen::new(screen::Size { columns, rows }, rules, Settings::default()))
    }

    /// Returns the rows that are shown after new output.
    fn feed(&mut self, data: &str) -> Vec<String> {
        self.0.feed(data.as_bytes());
        (0..self.0.size().rows).map(|row| self.0.row_text(row)).collect()
    }

    fn resize(&mut self, columns: u16, rows: u16) {
        let most = MOST_CELLS as u16;
        self.0.resize(screen::Size { columns: columns.clamp(1, most), rows: rows.clamp(1, most) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(toml: &str) -> WhenRule {
        toml::from_str(toml).unwrap()
    }

    #[test]
    fn a_recording_fires_what_its_pane_would_have_fired() {
        let rules = [
            rule("name='line'\noutput='^error: 1$'\nnotify=true"),
            rule("name='row'\nscreen='^ready'\nnotify=true"),
            rule("name='quiet'\nquiet='5m'\nnotify=true"),
            rule("name='ended'\nended=true\nstatus='!0'\nrun=['x']\nhosts=['box']"),
            rule("name='never'\noutput='nothing'\nnotify=true"),
        ];
        let cast = "{\"version\": 2, \"width\": 20, \"height\": 4}\n\
            [1.0, \"o\", \"err\\u001b[31mor: 1\\r\\n\"]\n[2.5, \"o\", \"\\u001b[2Jx\\u001b[1;1Hready\"]\n\
            [400, \"o\", \"y\"]\n[401, \"m\", \"exit 3\"]\n";
        let mut dry = Dry::new(&rules, PaneInfo::of(PaneId(0))).unwrap();
        dry.play(cast).unwrap();
        let seen: Vec<_> = dry.seen().iter().map(|seen| (seen.rule.as_str(), seen.at_ms)).collect();
        assert_eq!(seen, [("line", 1000), ("row", 2500), ("quiet", 302_500), ("ended", 401_000)]);
        for wrong in ["", "{}", "{\"version\": 1}", "{\"version\": 3}\nx", "{\"version\": 2}\n[-1, \"o\", \"\"]"] {
            assert!(Dry::new(&rules, PaneInfo::of(PaneId(0))).unwrap().play(wrong).is_err(), "{wrong}");
        }
        // Sizes that a file may claim.
        let huge =
            "{\"version\": 2, \"width\": 99999999999, \"height\": 0}\n[0, \"r\", \"60000x60000\"]\n[1, \"o\", \"x\"]";
        Dry::new(&rules, PaneInfo::of(PaneId(0))).unwrap().play(huge).unwrap();
    }
}
