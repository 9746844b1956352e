//! asciicast (v3 and v2) and plain text, as bytes: pure, without files or clocks.
//!
//! The first line is the header, each further one an event. In v3 an interval counts from the event
//! before, in v2 from the beginning. Both are computed from one absolute time, and rounding errors
//! do not add up.

use std::{io::Write as _, time::Duration};

use muxtap_api::{RecordFormat, Size};
use muxtap_core::stream::render;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The number of bytes of a line of text that are collected before it is written in pieces.
const LINE_BYTES: usize = 64 * 1024;

/// The contents of a file's header.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    /// The terminal's size at the beginning.
    pub(crate) size: Size,
    /// When the file begins, in seconds since 1970.
    pub(crate) timestamp: u64,
    pub(crate) title: String,
}

/// The encoder of a file. Times count from the beginning of the recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cast {
    format: RecordFormat,
    /// When this file began.
    began: Duration,
    /// The time of the last event, in milliseconds since this file began.
    last_ms: u64,
    /// The first bytes of an incomplete character.
    cut: Vec<u8>,
    /// The incomplete line of output, for the format `text`.
    line: Vec<u8>,
}

impl Cast {
    /// Starts a file, and appends its header.
    pub(crate) fn new(format: RecordFormat, header: &Header, began: Duration, out: &mut Vec<u8>) -> Self {
        let Header { size: Size { width, height }, timestamp, title } = header;
        let header = match format {
            RecordFormat::V3 => Some(json!({
                "version": 3,
                "term": { "cols": width, "rows": height, "type": "tmux-256color" },
                "timestamp": timestamp,
                "title": title,
            })),
            RecordFormat::V2 => Some(json!({
                "version": 2, "width": width, "height": height, "timestamp": timestamp, "title": title,
                "env": { "TERM": "tmux-256color" },
            })),
            RecordFormat::Text => None,
        };
        if let Some(header) = header {
            // Writing to a Vec cannot fail, here and below.
            let _ = writeln!(out, "{header}");
        }
        Self { format, began, last_ms: 0, cut: Vec::new(), line: Vec::new() }
    }

    /// Appends output. An incomplete character is kept for the next output.
    pub(crate) fn output(&mut self, at: Duration, bytes: &[u8], out: &mut Vec<u8>) {
        if self.format == RecordFormat::Text {
            return self.text(bytes, out);
        }
        let joined: Vec<u8>;
        let bytes = if self.cut.is_empty() {
            bytes
        } else {
            joined = [&std::mem::take(&mut self.cut), bytes].concat();
            &joined
        };
        let (whole, cut) = bytes.split_at(bytes.len() - cut_off(bytes));
        self.cut = cut.to_vec();
        if !whole.is_empty() {
            self.event(at, 'o', &String::from_utf8_lossy(whole), out);
        }
    }

    fn text(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.line.extend_from_slice(bytes);
        let end = memchr::memrchr(b'\n', &self.line).map_or(0, |end| end + 1);
        let end = if end == 0 && self.line.len() > LINE_BYTES { self.line.len() } else { end };
        let rest = self.line.split_off(end);
        let whole = std::mem::replace(&mut self.line, rest);
        if !whole.is_empty() {
            out.extend_from_slice(render::render_bytes(&whole).as_bytes());
        }
    }

    /// Appends typed input.
    pub(crate) fn input(&mut self, at: Duration, text: &str, out: &mut Vec<u8>) {
        self.event(at, 'i', text, out);
    }

    /// Appends a new size.
    pub(crate) fn resize(&mut self, at: Duration, size: Size, out: &mut Vec<u8>) {
        self.event(at, 'r', &format!("{}x{}", size.width, size.height), out);
    }

    /// Appends a marker.
    pub(crate) fn marker(&mut self, at: Duration, label: &str, out: &mut Vec<u8>) {
        self.event(at, 'm', label, out);
    }

    /// Appends a remark: a comment in v3, a marker in v2, a line in brackets in a text.
    pub(crate) fn remark(&mut self, at: Duration, text: &str, out: &mut Vec<u8>) {
        let text: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        match self.format {
            RecordFormat::V3 => {
                let _ = writeln!(out, "# {text}");
            }
            RecordFormat::V2 => self.marker(at, &text, out),
            RecordFormat::Text => {
                let _ = writeln!(out, "[{text}]");
            }
        }
    }

    /// Ends the recording with the program's status, if known. In v2, which has no such event, the
    /// status is a marker.
    pub(crate) fn exit(&mut self, at: Duration, status: Option<i32>, out: &mut Vec<u8>) {
        self.finish(at, out);
        match (self.format, status) {
            (RecordFormat::V3, Some(status)) => self.event(at, 'x', &status.to_string(), out),
            (RecordFormat::V2, Some(status)) => self.marker(at, &format!("exit {status}"), out),
            _ => {}
        }
    }

    /// Appends what was kept: an incomplete character, an incomplete line.
    pub(crate) fn finish(&mut self, at: Duration, out: &mut Vec<u8>) {
        let cut = std::mem::take(&mut self.cut);
        if !cut.is_empty() {
            self.event(at, 'o', &String::from_utf8_lossy(&cut), out);
        }
        let line = std::mem::take(&mut self.line);
        let text = render::render_bytes(&line);
        if !text.is_empty() {
            out.extend_from_slice(text.as_bytes());
            out.push(b'\n');
        }
    }

    fn event(&mut self, at: Duration, code: char, data: &str, out: &mut Vec<u8>) {
        let since = at.saturating_sub(self.began);
        let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(self.last_ms);
        let ms = match self.format {
            RecordFormat::V3 => ms - std::mem::replace(&mut self.last_ms, ms),
            RecordFormat::V2 => {
                self.last_ms = ms;
                ms
            }
            RecordFormat::Text => return,
        };
        let _ = write!(out, "[{}.{:03},\"{code}\",", ms / 1000, ms % 1000);
        // A string can always be serialized.
        let _ = serde_json::to_writer(&mut *out, data);
        out.extend_from_slice(b"]\n");
    }
}

/// Returns the number of bytes at the end that begin an incomplete character.
pub(super) fn cut_off(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let Some(byte) = bytes.get(bytes.len() - back) else { return 0 };
        let length = match byte {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => return 0,
        };
        return if back < length { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cast(format: RecordFormat, record: impl FnOnce(&mut Cast, &mut Vec<u8>)) -> Vec<String> {
        let mut out = Vec::new();
        let header = Header { size: Size { width: 80, height: 24 }, timestamp: 1_700_000_000, title: "a \"t\"".into() };
        let mut cast = Cast::new(format, &header, Duration::from_secs(5), &mut out);
        record(&mut cast, &mut out);
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_secs(5) + Duration::from_micros(ms * 1000 + 400)
    }

    #[test]
    fn intervals_of_v3_add_up_and_times_of_v2_are_absolute() {
        let record = |cast: &mut Cast, out: &mut Vec<u8>| {
            for number in 0..4 {
                cast.output(ms(number * 333), b"x", out);
            }
            cast.resize(ms(2000), Size { width: 90, height: 30 }, out);
            // A clock that goes back.
            cast.marker(ms(10), "m", out);
            cast.remark(ms(2000), "two\nlines", out);
            cast.exit(ms(2500), Some(3), out);
        };
        let v3 = cast(RecordFormat::V3, record);
        let header: serde_json::Value = serde_json::from_str(&v3[0]).unwrap();
        assert_eq!((&header["version"], &header["term"]["cols"]), (&json!(3), &json!(80)));
        assert_eq!(
            v3[1..],
            [
                r#"[0.000,"o","x"]"#,
                r#"[0.333,"o","x"]"#,
                r#"[0.333,"o","x"]"#,
                r#"[0.333,"o","x"]"#,
                r#"[1.001,"r","90x30"]"#,
                r#"[0.000,"m","m"]"#,
                "# two lines",
                r#"[0.500,"x","3"]"#
            ]
        );
        let v2 = cast(RecordFormat::V2, record);
        assert_eq!(v2[4], r#"[0.999,"o","x"]"#);
        assert_eq!(v2[7..], [r#"[2.000,"m","two lines"]"#, r#"[2.500,"m","exit 3"]"#]);
    }

    #[test]
    fn a_character_is_never_cut() {
        let text = "a\u{e9}\u{4e16}\u{1f600}z";
        for cut in 0..text.len() {
            let lines = cast(RecordFormat::V3, |cast, out| {
                let (one, two) = text.as_bytes().split_at(cut);
                cast.output(ms(0), one, out);
                cast.output(ms(0), two, out);
                cast.finish(ms(0), out);
            });
            let output: String = lines[1..]
                .iter()
                .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()[2].as_str().unwrap().to_owned())
                .collect();
            assert_eq!(output, text, "cut at {cut}");
        }
        let half = cast(RecordFormat::V3, |cast, out| {
            cast.output(ms(0), b"a\xe4\xb8", out);
            cast.finish(ms(0), out);
        });
        assert_eq!(half[1..], [r#"[0.000,"o","a"]"#, "[0.000,\"o\",\"\u{fffd}\"]"]);
    }

    #[test]
    fn a_text_has_whole_lines_without_escape_sequences() {
        let lines = cast(RecordFormat::Text, |cast, out| {
            cast.output(ms(0), b"\x1b[1mone\x1b[0m\r\ntw", out);
            cast.output(ms(0), b"o\r\nopen", out);
            cast.remark(ms(0), "gap", out);
            cast.exit(ms(0), Some(0), out);
        });
        assert_eq!(lines, ["one", "two", "[gap]", "open"]);
    }
}
