//! What must be true of reads and waits, whatever tmux does.

use std::time::Duration;

use muxtap_api::{Gap, GapReason};

use crate::limits;

/// One reader of a pane, and what it has read.
#[derive(Default)]
pub(super) struct Position {
    /// The offset at which it continues.
    pub(super) offset: Option<u64>,
    /// What it has read since the last gap, without carriage returns. The first read begins with
    /// what is retained, as if behind a gap.
    segment: Vec<u8>,
    /// The place in the pane's output at which that begins, or the first one at which it may.
    from: usize,
}

/// A part of a stream, as a reader gets it.
pub(super) struct Part<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) gap: Option<Gap>,
    pub(super) bytes: &'a [u8],
}

impl Position {
    /// Checks the next part of the stream of a pane that has printed `log` so far (S3, S4, R44): it
    /// continues where the reader was, or behind a gap later in the output.
    pub(super) fn check(&mut self, part: &Part<'_>, log: &[u8]) -> Result<(), String> {
        let Part { start, end, gap, bytes } = part;
        if let Some(offset) = self.offset {
            let missing =
                start.checked_sub(offset).ok_or_else(|| format!("the cursor went back: {offset} to {start}"))?;
            match gap {
                None if missing > 0 => {
                    return Err(format!("{missing} bytes from {offset} on are missing, without a gap"));
                }
                Some(Gap { reason: GapReason::Trimmed, bytes, .. }) if *bytes != Some(missing) => {
                    return Err(format!("a gap counts {bytes:?} bytes of {missing}"));
                }
                _ => {}
            }
        }
        if end - start != bytes.len() as u64 {
            return Err(format!("{} bytes from {start} to {end}", bytes.len()));
        }
        let log = plain(log);
        if gap.is_some() {
            self.from = self.place(&log).map_or(self.from, |at| at + self.segment.len());
            self.segment.clear();
        }
        self.segment.extend_from_slice(&plain(bytes));
        self.offset = Some(*end);
        if self.place(&log).is_some() {
            return Ok(());
        }
        Err(format!("offset {start}, gap {gap:?}: {}", self.difference(&log)))
    }

    /// Returns the first place of the output since the last gap in all that the pane printed.
    fn place(&self, log: &[u8]) -> Option<usize> {
        let rest = log.get(self.from..)?;
        let find = |text: &[u8]| memchr::memmem::find(rest, text);
        if let Some(at) = find(&self.segment) {
            return Some(self.from + at);
        }
        // What does not join the output before begins on a new line, which may be the one that was
        // read before.
        (self.from + find(self.segment.strip_prefix(b"\n")?)?).checked_sub(1)
    }

    /// Describes where the output since the last gap is not what the pane printed.
    fn difference(&self, log: &[u8]) -> String {
        let rest = log.get(self.from..).unwrap_or_default();
        let begin = self.segment.get(..self.segment.len().min(12)).unwrap_or_default();
        let rest = memchr::memmem::find(rest, begin).and_then(|at| rest.get(at..)).unwrap_or(rest);
        let equal = self.segment.iter().zip(rest).take_while(|(one, other)| one == other).count();
        let shown = |text: &[u8]| {
            let around = text.get(equal.saturating_sub(30)..text.len().min(equal + 40)).unwrap_or_default();
            format!("{:?}", String::from_utf8_lossy(around))
        };
        format!("read …{}…, printed …{}…", shown(&self.segment), shown(rest))
    }

    /// Checks that the pane's output was read to its end. The pane must have printed something since the
    /// last gap.
    pub(super) fn check_end(&self, log: &[u8]) -> Result<(), String> {
        let log = plain(log);
        let segment = self.segment.strip_prefix(b"\n").unwrap_or(&self.segment);
        if !segment.is_empty() && log.ends_with(segment) && log.len() >= self.from + segment.len() {
            return Ok(());
        }
        Err(format!("the end was never delivered: {}", self.difference(&log)))
    }
}

/// Checks that a wait with this timeout ended with it after `lasted`: at once, apart from the steps of
/// simulated time and what the report of a timeout may take.
pub(super) fn check_timeout(timeout: Duration, lasted: Duration) -> Result<(), String> {
    let late = limits::ANSWER_GRACE + Duration::from_millis(50);
    if (timeout..=timeout + late).contains(&lasted) {
        return Ok(());
    }
    Err(format!("a wait of {timeout:?} timed out after {lasted:?}"))
}

/// Returns bytes without carriage returns: a grid does not show whether one was printed at the end of a
/// line that is not finished.
fn plain(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().filter(|byte| *byte != b'\r').collect()
}

#[test]
fn lost_doubled_and_uncounted_bytes_are_noticed() {
    let log = b"one\r\ntwo\r\nthree\r\n";
    let part = |start, gap, bytes: &'static [u8]| Part { start, end: start + bytes.len() as u64, gap, bytes };
    let trimmed = |bytes| Some(Gap::new(GapReason::Trimmed, Some(bytes)));
    let after_one = |next: Part<'_>| {
        let mut position = Position::default();
        position.check(&part(0, None, b"one\r\n"), log).unwrap();
        position.check(&next, log).and_then(|()| position.check_end(log))
    };
    let lost = Some(Gap::new(GapReason::Reconnected, None));
    assert_eq!(after_one(part(5, None, b"two\r\nthree\r\n")), Ok(()));
    assert_eq!(after_one(part(10, trimmed(5), b"three\r\n")), Ok(()));
    assert_eq!(after_one(part(5, lost, b"three\r\n")), Ok(()));
    assert!(after_one(part(5, None, b"three\r\n")).is_err(), "lost without a gap");
    assert!(after_one(part(5, None, b"one\r\ntwo\r\nthree\r\n")).is_err(), "doubled");
    assert!(after_one(part(5, lost, b"one\r\ntwo\r\nthree\r\n")).is_err(), "doubled behind a gap");
    assert!(after_one(part(10, None, b"three\r\n")).is_err(), "offsets that jump");
    assert!(after_one(part(10, trimmed(4), b"three\r\n")).is_err(), "a wrong count");
    assert!(after_one(part(4, None, b"two\r\nthree\r\n")).is_err(), "a cursor that goes back");
    assert!(after_one(part(5, None, b"two\r\n")).is_err(), "never delivered");
    assert!(after_one(part(5, lost, b"")).is_err(), "never delivered behind a gap");
    assert_eq!(after_one(part(5, lost, b"\ntwo\r\nthree\r\n")), Ok(()), "a new line that the log has before");
}
