//! Signs in a pane's stream besides text: bells, titles, prompts, and the marks that muxtap makes
//! shells print.

use muxtap_core::stream::text::Mark;

use serde::{Deserialize, Serialize};

/// The OSC number of the marks that muxtap makes a shell print. Terminals ignore unknown numbers.
pub(crate) const RUN_OSC: &str = "7717";

/// Bells, titles, prompts and marks of a pane's stream.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ShellMarks {
    /// The offset of the last bell.
    pub(crate) bell: Option<u64>,
    /// The last OSC 133 mark that begins or ends a prompt: its offset, and whether the prompt is
    /// shown (`A`, `B`) or over (`C`, `D`).
    pub(crate) prompt: Option<(u64, bool)>,
    /// The offset at which a command's output began, by OSC 133.
    pub(crate) output_began: Option<u64>,
    /// The offset at which a command's output ended, by OSC 133, with the exit status.
    pub(crate) output_ended: Option<(u64, Option<i32>)>,
    /// The registered nonces (of a `run` and of an exit wrapper), each with its marks. Marks with
    /// other nonces, which a pane's program may print, are ignored.
    registered: Vec<(String, RunMarks)>,
    /// The title that came with the current chunk.
    title: Option<String>,
    /// The marks of registered nonces in the current chunk.
    found: Vec<FoundMark>,
}

/// A mark of a registered nonce in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FoundMark {
    /// Its first byte.
    pub(crate) start: u64,
    /// The offset after its last byte.
    pub(crate) end: u64,
    /// Whether the line that `run` typed ends here.
    pub(crate) ends_line: bool,
}

/// The marks that came with one nonce. Each is printed once; of each kind the first counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunMarks {
    /// The offset at which the command's output begins.
    pub(crate) begin: Option<u64>,
    /// The length of the command that the shell is about to run, as the shell reports it.
    pub(crate) length: Option<usize>,
    /// The offset at which the command's output ended, with the exit status.
    pub(crate) end: Option<(u64, Option<i32>)>,
}

impl ShellMarks {
    /// Registers a nonce, whose marks are stored from now on.
    pub(crate) fn register_nonce(&mut self, nonce: &str) {
        self.registered.push((nonce.to_owned(), RunMarks::default()));
    }

    pub(crate) fn unregister_nonce(&mut self, nonce: &str) {
        self.registered.retain(|(registered, _)| registered != nonce);
    }

    /// Returns whether a command runs, by the last mark: its output has begun, and neither its end nor a prompt came.
    pub(crate) fn runs_command(&self) -> bool {
        self.prompt.is_some_and(|(at, shown)| !shown && self.output_began == Some(at))
    }

    /// Forgets where prompts and outputs began and ended, because later marks may be missing.
    pub(crate) fn forget_prompts(&mut self) {
        (self.prompt, self.output_began, self.output_ended) = (None, None, None);
    }

    /// Returns whether marks with another nonce than this are awaited.
    pub(crate) fn awaits_others_than(&self, nonce: Option<&str>) -> bool {
        self.registered.iter().any(|(registered, _)| Some(registered.as_str()) != nonce)
    }

    /// Returns the marks that came with a registered nonce.
    pub(crate) fn marks(&self, nonce: &str) -> Option<RunMarks> {
        self.registered.iter().find(|(registered, _)| registered == nonce).map(|(_, marks)| *marks)
    }

    /// Takes the marks of registered nonces that were found since the last call.
    pub(crate) fn take_found(&mut self) -> Vec<FoundMark> {
        std::mem::take(&mut self.found)
    }

    pub(crate) fn take_title(&mut self) -> Option<String> {
        self.title.take()
    }

    pub(crate) fn mark(&mut self, start: u64, end: u64, mark: Mark<'_>) {
        match mark {
            Mark::Bell => self.bell = Some(start),
            Mark::Title(title) => self.title = Some(String::from_utf8_lossy(title).into_owned()),
            Mark::Prompt(payload) => match payload.first() {
                Some(b'A' | b'B') => self.prompt = Some((end, true)),
                Some(b'C') => {
                    self.prompt = Some((end, false));
                    self.output_began = Some(end);
                }
                Some(b'D') => {
                    let status = payload.get(2..).and_then(|status| std::str::from_utf8(status).ok());
                    let status = status.and_then(|status| status.split(';').next()?.parse().ok());
                    self.output_ended = Some((start, status));
                }
                _ => {}
            },
            Mark::Osc(payload) => self.run_mark(start, end, payload),
            Mark::Long(_) => {}
        }
    }

    fn run_mark(&mut self, start: u64, end: u64, payload: &[u8]) {
        let ours = payload.strip_prefix(RUN_OSC.as_bytes()).and_then(|rest| rest.strip_prefix(b";"));
        let Some(ours) = ours.and_then(|ours| std::str::from_utf8(ours).ok()) else { return };
        let mut fields = ours.splitn(3, ';');
        let (Some(nonce), Some(what)) = (fields.next(), fields.next()) else { return };
        let Some((_, marks)) = self.registered.iter_mut().find(|(registered, _)| registered == nonce) else { return };
        self.found.push(FoundMark { start, end, ends_line: what == "c" });
        match (what, fields.next()) {
            ("s", length) if marks.begin.is_none() => {
                marks.begin = Some(end);
                marks.length = length.and_then(|length| length.parse().ok());
            }
            // `x` is the mark of a command in an exit wrapper.
            ("e" | "x", Some(status)) => marks.end = marks.end.or(Some((start, status.parse().ok()))),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muxtap_core::stream::{
        decoder::TextDecoder,
        text::{Control, TextSink},
    };

    impl TextSink for ShellMarks {
        fn text(&mut self, _: u64, _: &[u8]) {}
        fn control(&mut self, _: u64, _: Control) {}
        fn mark(&mut self, start: u64, end: u64, mark: Mark<'_>) {
            Self::mark(self, start, end, mark);
        }
    }

    #[test]
    fn marks_printed_by_a_pane_displace_no_registered_marks() {
        let mut marks = ShellMarks::default();
        marks.register_nonce("abc");
        let mut stream = b"\x1b]7717;abc;s;5\x07".to_vec();
        for number in 0..1000 {
            stream
                .extend(format!("\x1b]7717;n{number};s\x07\x1b]7717;n{number};e;0\x07\x1b]7717;abc\x07").into_bytes());
        }
        let end = stream.len() as u64;
        stream.extend(b"\x1b]7717;abc;e;3\x07\x1b]7717;abc;s\x07\x1b]7717;abc;e;4\x07");
        TextDecoder::default().feed(0, &stream, &mut marks);
        assert_eq!(marks.marks("abc"), Some(RunMarks { begin: Some(15), length: Some(5), end: Some((end, Some(3))) }));
        assert_eq!(marks.registered.len(), 1);
        marks.unregister_nonce("abc");
        assert_eq!(marks.marks("abc"), None);
    }
}
