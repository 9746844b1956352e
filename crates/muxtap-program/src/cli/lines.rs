//! Output of many panes on one terminal: whole lines, each after its pane's name, as stern and
//! `tail -F` print it.

use std::collections::HashMap;

use muxtap_base::plain;
use muxtap_core::width;
use regex::Regex;
use time::OffsetDateTime;

use crate::protocol::ids::PaneId;

/// The longest line that is held back until its end, in bytes; a longer one is printed in pieces.
const MAX_LINE: usize = 64 << 10;
/// Colors of the prefixes (SGR), readable on light and dark backgrounds.
const COLORS: [&str; 6] = ["36", "33", "32", "35", "34", "31"];
const DIM: &str = "2";
/// What `--highlight` matches: bold red, as grep.
const EMPHASIS: &str = "1;31";

/// The style of printed lines.
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[derive(Clone, Debug, Default)]
pub(super) struct Style {
    /// Whether each line begins with its pane's name.
    pub(super) prefixed: bool,
    /// Whether names are colored.
    pub(super) color: bool,
    /// Whether the text contains escape sequences; then colors end with the line.
    pub(super) escapes: bool,
    /// Whether each line begins with the time, in UTC.
    pub(super) timestamps: bool,
    /// Prints only lines that match this, without their escape sequences.
    pub(super) grep: Option<Regex>,
    /// Skips lines that match this, without their escape sequences.
    pub(super) exclude: Option<Regex>,
    /// Emphasizes what matches this; not with `escapes`.
    pub(super) highlight: Option<Regex>,
}

#[derive(Debug, Default)]
struct Source {
    label: String,
    color: &'static str,
    partial: Vec<u8>,
}

/// Collects chunks of output and returns whole lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    style: Style,
    sources: HashMap<PaneId, Source>,
    width: usize,
}

impl Lines {
    pub(super) fn new(style: Style) -> Self {
        Self { style, ..Self::default() }
    }

    /// Sets a pane's name (default: its id).
    pub(super) fn name(&mut self, pane: PaneId, label: &str) {
        let label = plain::name(label);
        self.width = self.width.max(width::of_text(&label));
        self.source(pane).label = label.into_owned();
    }

    fn source(&mut self, pane: PaneId) -> &mut Source {
        let color = COLORS.get(self.sources.len() % COLORS.len()).copied().unwrap_or_default();
        self.sources.entry(pane).or_insert_with(|| Source { label: pane.to_string(), color, partial: Vec::new() })
    }

    /// Adds a chunk of a pane's output; returns the lines that it completes.
    pub(super) fn feed(&mut self, pane: PaneId, chunk: &[u8]) -> Vec<u8> {
        let source = self.source(pane);
        source.partial.extend_from_slice(chunk);
        let whole = match memchr::memrchr(b'\n', &source.partial) {
            Some(end) => end + 1,
            None if source.partial.len() > MAX_LINE => source.partial.len(),
            None => return Vec::new(),
        };
        let rest = source.partial.split_off(whole);
        let lines = std::mem::replace(&mut source.partial, rest);
        self.print(pane, &lines)
    }

    /// Returns what a pane printed after its last line end.
    pub(super) fn flush(&mut self, pane: PaneId) -> Vec<u8> {
        let rest = std::mem::take(&mut self.source(pane).partial);
        if rest.is_empty() { rest } else { self.print(pane, &rest) }
    }

    /// Calls [`Lines::flush`] for all panes.
    pub(super) fn flush_all(&mut self) -> Vec<u8> {
        let mut panes: Vec<PaneId> = self.sources.keys().copied().collect();
        panes.sort_unstable();
        panes.into_iter().flat_map(|pane| self.flush(pane)).collect()
    }

    /// Formats a remark about a pane, distinct from its output.
    pub(super) fn remark(&mut self, pane: PaneId, text: &str) -> String {
        let color = self.style.color;
        let source = self.source(pane);
        let id = if source.label == pane.to_string() { String::new() } else { format!(" {pane}") };
        let remark = format!("==> {}{id} {text} <==", source.label);
        if color { format!("\x1b[{DIM}m{remark}\x1b[0m\n") } else { remark + "\n" }
    }

    fn print(&mut self, pane: PaneId, lines: &[u8]) -> Vec<u8> {
        let (style, width) = (self.style.clone(), self.width);
        let source = self.source(pane);
        let label = &source.label;
        let time = if style.timestamps { now() + " " } else { String::new() };
        let blanks = width.saturating_sub(width::of_text(label));
        let prefix = match style {
            Style { prefixed: false, .. } => String::new(),
            Style { color: true, .. } => format!("\x1b[{}m{label}{:blanks$} │\x1b[0m ", source.color, ""),
            Style { color: false, .. } => format!("{label}{:blanks$} │ ", ""),
        };
        let mut printed = Vec::with_capacity(lines.len() + prefix.len());
        for line in lines.strip_suffix(b"\n").unwrap_or(lines).split(|&byte| byte == b'\n') {
            let plain_line = || plain::text(&String::from_utf8_lossy(last_version(line))).into_owned();
            let matches = |pattern: &Option<Regex>| pattern.as_ref().map(|pattern| pattern.is_match(&plain_line()));
            if matches(&style.grep) == Some(false) || matches(&style.exclude) == Some(true) {
                continue;
            }
            printed.extend_from_slice(prefix.as_bytes());
            printed.extend_from_slice(time.as_bytes());
            if style.escapes {
                printed.extend_from_slice(line);
            } else if let Some(highlight) = &style.highlight {
                let emphasized = format!("\x1b[{EMPHASIS}m$0\x1b[0m");
                printed.extend_from_slice(highlight.replace_all(&plain_line(), emphasized).as_bytes());
            } else {
                printed.extend_from_slice(plain_line().as_bytes());
            }
            if style.escapes && line.contains(&0x1b) {
                printed.extend_from_slice(b"\x1b[0m");
            }
            printed.push(b'\n');
        }
        printed
    }
}

/// Returns the time, to the millisecond, in UTC.
fn now() -> String {
    let now = OffsetDateTime::now_utc();
    let (hour, minute, second, millisecond) = now.time().as_hms_milli();
    format!("{}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z", now.date())
}

/// Returns the final text of a line that was overwritten several times (a progress bar).
fn last_version(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    line.rsplit(|&byte| byte == b'\r').next().unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn lines_are_printed_whole() {
        let mut lines = Lines::new(Style::default());
        assert_eq!(text(lines.feed(PaneId(0), b"one\ntw")), "one\n");
        assert_eq!(text(lines.feed(PaneId(1), b"other\n")), "other\n");
        assert_eq!(text(lines.feed(PaneId(0), b"o\n\n$ ")), "two\n\n");
        assert_eq!(text(lines.flush(PaneId(0))), "$ \n");
        assert_eq!(text(lines.flush_all()), "");
    }

    #[test]
    fn lines_are_chosen_and_matches_stand_out() {
        let regex = |text: &str| Some(Regex::new(text).unwrap());
        let (grep, exclude, highlight) = (regex("a"), regex("b"), regex("a+|"));
        let mut lines = Lines::new(Style { grep, exclude, highlight, ..Style::default() });
        let printed = text(lines.feed(PaneId(0), b"xaay\n\x1b[1mab\nc\n"));
        assert!(printed.contains("x\u{1b}[1;31maa\u{1b}[0my") && printed.lines().count() == 1, "{printed:?}");
    }

    #[test]
    fn prefixes_stand_under_each_other() {
        let mut lines = Lines::new(Style { prefixed: true, ..Style::default() });
        lines.name(PaneId(0), "a:0.0");
        lines.name(PaneId(1), "longer:10.0");
        assert_eq!(text(lines.feed(PaneId(0), b"x\ny\n")), "a:0.0       │ x\na:0.0       │ y\n");
        assert_eq!(text(lines.feed(PaneId(1), b"z\n")), "longer:10.0 │ z\n");
        assert_eq!(lines.remark(PaneId(1), "ended"), "==> longer:10.0 %1 ended <==\n");
        assert_eq!(lines.remark(PaneId(9), "ended"), "==> %9 ended <==\n");
    }

    #[test]
    fn neither_names_nor_text_control_the_terminal() {
        let mut lines = Lines::new(Style { prefixed: true, ..Style::default() });
        lines.name(PaneId(0), "日\u{9b}:0.0");
        lines.name(PaneId(1), "b:0.0");
        assert_eq!(text(lines.feed(PaneId(0), "x\u{202e}y\u{9b}z\n".as_bytes())), "日\\u{9b}:0.0 │ xyz\n");
        assert_eq!(text(lines.feed(PaneId(1), b"x\n")), "b:0.0        │ x\n");
        assert_eq!(lines.remark(PaneId(0), "ended"), "==> 日\\u{9b}:0.0 %0 ended <==\n");
    }

    #[test]
    fn lines_are_chosen_by_what_they_show_and_have_their_time() {
        let grep = Some(Regex::new("^(a|c)$").unwrap());
        let mut lines = Lines::new(Style { grep: grep.clone(), ..Style::default() });
        assert_eq!(text(lines.feed(PaneId(0), b"a\nb\nx\rc\n")), "a\nc\n");
        let mut lines = Lines::new(Style { timestamps: true, grep, prefixed: true, ..Style::default() });
        let printed = text(lines.feed(PaneId(0), b"a\nb\n"));
        let time = Regex::new(r"^%0 │ \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z a\n$").unwrap();
        assert!(time.is_match(&printed), "{printed}");
    }

    #[test]
    fn each_pane_has_its_colour() {
        let mut lines = Lines::new(Style { prefixed: true, color: true, ..Style::default() });
        assert_eq!(text(lines.feed(PaneId(0), b"x\n")), "\x1b[36m%0 │\x1b[0m x\n");
        assert_eq!(text(lines.feed(PaneId(1), b"x\n")), "\x1b[33m%1 │\x1b[0m x\n");
    }

    #[test]
    fn a_panes_colour_ends_with_its_line() {
        let mut lines = Lines::new(Style { escapes: true, ..Style::default() });
        assert_eq!(text(lines.feed(PaneId(0), b"\x1b[31mred\nplain\n")), "\x1b[31mred\x1b[0m\nplain\n");
    }

    #[test]
    fn a_progress_bar_is_its_last_state() {
        let mut lines = Lines::new(Style::default());
        assert_eq!(text(lines.feed(PaneId(0), b"10%\r50%\r100%\r\n")), "100%\n");
    }

    #[test]
    fn an_unterminated_line_does_not_grow_without_bound() {
        let mut lines = Lines::new(Style::default());
        assert_eq!(lines.feed(PaneId(0), &vec![b'x'; MAX_LINE]), b"");
        assert_eq!(lines.feed(PaneId(0), b"x").len(), MAX_LINE + 2);
    }
}
