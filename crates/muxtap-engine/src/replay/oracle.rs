//! What must be true of reads and waits, whatever tmux does.

use std::time::Duration;

use muxtap_api::{Gap, GapReason};

/// One reader of a pane, and what it has read.
#[derive(Default)]
pub(super) struct Position {
    /// The offset at which it continues.
    pub(super) offset: Option<u64>,
    /// The number of bytes of the pane's output up to there, without carriage returns.
    at: Option<usize>,
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
        let (text, log) = (plain(bytes), plain(log));
        let found = match (self.at, gap) {
            (Some(at), None) => log.get(at..).filter(|log| log.starts_with(&text)).map(|_| at),
            (at, _) => {
                let from = at.unwrap_or_default();
                let find = |text: &[u8]| Some(from + memchr::memmem::find(log.get(from..)?, text)?);
                // What is not joined begins on a new line.
                find(&text).or_else(|| Some(find(text.strip_prefix(b"\n")?)?.checked_sub(1)?))
            }
        };
        let Some(found) = found else {
            let at = self.at.unwrap_or_default();
            let expected = log.get(at..(at + 60).min(log.len())).unwrap_or_default();
            return Err(format!(
                "offset {start}, gap {gap:?}: {:?}… is not what the pane printed from {at} on: {:?}…",
                String::from_utf8_lossy(text.get(..60.min(text.len())).unwrap_or_default()),
                String::from_utf8_lossy(expected),
            ));
        };
        (self.offset, self.at) = (Some(*end), Some(found + text.len()));
        Ok(())
    }

    /// Checks that nothing of the pane's output is left.
    pub(super) fn check_end(&self, log: &[u8]) -> Result<(), String> {
        let (at, length) = (self.at.unwrap_or_default(), plain(log).len());
        if at == length { Ok(()) } else { Err(format!("{} of {length} bytes were never delivered", length - at)) }
    }
}

/// Checks that a wait with this timeout ended with it after `lasted`.
pub(super) fn check_timeout(timeout: Duration, lasted: Duration) -> Result<(), String> {
    let late = Duration::from_millis(500);
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
}
