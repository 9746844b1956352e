//! The filter on output of real shells and programs: recordings of tmux 3.3a panes with bash 5.2,
//! zsh, fish, dash, Python, `cat` and programs in raw mode, at 80 and 20 columns.
//! `tests/golden/echo/index.tsv` lists them.

use std::{fs, ops::Range, path::PathBuf};

use super::{EchoFilter, Verdict};
use crate::stream::{
    decoder::TextDecoder,
    render::resting_line,
    ring::Ring,
    text::{Control, NullSink, TextSink},
};

struct Input {
    mark: usize,
    tty_echo: bool,
    text: Vec<u8>,
}

struct Recording {
    name: String,
    columns: u16,
    pattern: String,
    answers: usize,
    inputs: Vec<Input>,
    bytes: Vec<u8>,
}

fn recordings() -> Vec<Recording> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/echo");
    let index = fs::read_to_string(folder.join("index.tsv")).unwrap();
    let read = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let inputs = fields[4..].iter().map(|input| {
            let parts: Vec<&str> = input.splitn(3, ',').collect();
            Input { mark: parts[0].parse().unwrap(), tty_echo: parts[1] == "1", text: unescaped(parts[2]) }
        });
        Recording {
            name: fields[0].to_owned(),
            columns: fields[1].parse().unwrap(),
            pattern: fields[2].to_owned(),
            answers: fields[3].parse().unwrap(),
            inputs: inputs.collect(),
            bytes: fs::read(folder.join(format!("{}.bin", fields[0]))).unwrap(),
        }
    };
    index.lines().filter(|line| !line.starts_with('#')).map(read).collect()
}

/// Returns the bytes of a text in which escapes such as `\x1b` stand for bytes.
fn unescaped(text: &str) -> Vec<u8> {
    let mut parts = text.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(digits, 16).unwrap());
        bytes.extend_from_slice(rest.as_bytes());
    }
    bytes
}

/// The text in which patterns are searched, with line ends, and each byte's raw offset.
#[derive(Default)]
struct MatchText(Vec<u8>, Vec<u64>);

impl TextSink for MatchText {
    fn text(&mut self, offset: u64, text: &[u8]) {
        self.0.extend_from_slice(text);
        self.1.extend(offset..offset + text.len() as u64);
    }
    fn control(&mut self, offset: u64, control: Control) {
        if matches!(control, Control::LineFeed | Control::CarriageReturn | Control::Csi(b'A' | b'B' | b'H' | b'J', ..))
        {
            self.0.push(b'\n');
            self.1.push(offset);
        }
    }
}

impl MatchText {
    fn of(bytes: &[u8], from: usize) -> Self {
        let mut found = Self::default();
        TextDecoder::default().feed(from as u64, &bytes[from..], &mut found);
        found
    }
    fn offsets(&self, range: Range<usize>) -> (u64, u64) {
        (self.1[range.start], self.1[range.end - 1] + 1)
    }
    fn matches(&self, pattern: &str) -> Vec<Range<usize>> {
        let pattern = regex::bytes::Regex::new(&regex::escape(pattern)).unwrap();
        pattern.find_iter(&self.0).map(|found| found.range()).collect()
    }
    fn lines(&self, pattern: &str) -> Vec<Range<usize>> {
        let pattern = regex::bytes::Regex::new(&format!("(?m)^.*{}.*$", regex::escape(pattern))).unwrap();
        pattern.find_iter(&self.0).map(|found| found.range()).collect()
    }
}

/// Plays a recording in chunks. After each, `look` receives the filter and the present position.
fn play(recording: &Recording, chunk: usize, mut look: impl FnMut(&EchoFilter, usize)) -> EchoFilter {
    let mut filter = EchoFilter::default();
    let mut ring = Ring::new(1 << 20);
    let mut inputs = recording.inputs.iter().peekable();
    let mut at = 0;
    loop {
        while let Some(input) = inputs.next_if(|input| input.mark <= at) {
            filter.typed(at as u64, &input.text, resting_line(&ring), recording.columns, input.tty_echo);
        }
        if at == recording.bytes.len() {
            return filter;
        }
        let end = (at + chunk).min(recording.bytes.len());
        let end = inputs.peek().map_or(end, |input| end.min(input.mark));
        let bytes = &recording.bytes[at..end];
        if filter.is_idle() {
            ring.push(bytes, &mut NullSink);
        } else {
            ring.push(bytes, &mut filter);
        }
        at = end;
        look(&filter, at);
    }
}

/// S9.
#[test]
fn echo_and_output_are_distinguished_in_recordings_of_real_programs() {
    let mut wrong = Vec::new();
    for recording in recordings() {
        let text = MatchText::of(&recording.bytes, recording.inputs[0].mark);
        let filter = play(&recording, 4096, |_, _| {});
        for (kind, found) in [("match", text.matches(&recording.pattern)), ("line", text.lines(&recording.pattern))] {
            let verdicts: Vec<Verdict> = found
                .iter()
                .map(|range| text.offsets(range.clone()))
                .map(|(start, end)| filter.verdict(start, end))
                .collect();
            // One match of output for each line.
            let answers = if kind == "line" && recording.name.contains("long") { 1 } else { recording.answers };
            let echoes = verdicts.len().saturating_sub(answers);
            let expected: Vec<Verdict> = std::iter::repeat_n(Verdict::Echo, echoes)
                .chain(std::iter::repeat_n(Verdict::Answer, answers))
                .collect();
            if verdicts != expected {
                wrong.push(format!("{} {kind}: {verdicts:?}", recording.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// S10: a decision that ended a wait is final, and an echo that was skipped is not examined again.
#[test]
fn a_verdict_made_on_small_chunks_never_changes() {
    let mut wrong = Vec::new();
    for recording in recordings() {
        for chunk in [1, 3, 16] {
            let from = recording.inputs[0].mark;
            let text = MatchText::of(&recording.bytes, from);
            let found: Vec<(u64, u64)> =
                text.matches(&recording.pattern).into_iter().map(|range| text.offsets(range)).collect();
            let mut live = vec![Vec::new(); found.len()];
            let filter = play(&recording, chunk, |filter, at| {
                for (index, (start, end)) in found.iter().enumerate().filter(|(_, (_, end))| *end <= at as u64) {
                    let verdict = filter.verdict(*start, *end);
                    if verdict != Verdict::Undecided && live[index].last() != Some(&verdict) {
                        live[index].push(verdict);
                    }
                }
            });
            for ((start, end), live) in found.iter().zip(&live) {
                if live.as_slice() != [filter.verdict(*start, *end)] {
                    wrong.push(format!("{} by {chunk} at {start}: {live:?}", recording.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
