//! The journal: each firing is written when it fires, before its actions, and after them.
//!
//! A line is written by one call, so a daemon that is killed leaves whole lines, and at most one torn
//! line at the end. The file is not synced: what is written outlives the daemon, not a power failure.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use muxtap_api::{WhenFiring, WhenState};
use muxtap_base::{
    files::{FileError, OpenToOthers, make_private_folder, open_private},
    nonce,
};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::{
    facts::{Facts, beginning},
    limits::{JOURNAL_BYTES, JOURNAL_TEXT},
};

/// The journal of one daemon.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    /// This daemon's part of the ids.
    run: String,
    last: AtomicU64,
    written: Mutex<Written>,
}

/// The open file, and the lines that its next file begins with.
#[derive(Debug, Default)]
struct Written {
    file: Option<Open>,
    /// The lines of the firings that have not ended, by their numbers. A new file begins with them, so that a
    /// killed daemon's are named however long they took.
    open: BTreeMap<u64, Vec<u8>>,
    /// The length of these lines.
    open_bytes: u64,
}

impl Written {
    fn add(&mut self, number: u64, line: Vec<u8>) {
        self.open_bytes += line.len() as u64;
        self.open.insert(number, line);
    }

    fn remove(&mut self, number: u64) {
        if let Some(line) = self.open.remove(&number) {
            self.open_bytes -= line.len() as u64;
        }
    }

    /// Returns the length at which the file is rotated: a new one must not be full of open firings.
    fn most(&self) -> u64 {
        JOURNAL_BYTES.max(2 * self.open_bytes)
    }
}

/// The open file.
#[derive(Debug)]
struct Open {
    file: File,
    length: u64,
    /// Whether a line was written halfway.
    torn: bool,
}

/// A line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "lowercase")]
enum Line {
    /// A rule has fired.
    Begin(WhenFiring),
    /// A firing has ended.
    End { id: String, ok: bool, ms: u64, results: Vec<String> },
    /// A firing was dropped.
    Lost(WhenFiring),
}

impl Journal {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, run: nonce::hex32(), last: AtomicU64::new(0), written: Mutex::default() }
    }

    /// Returns a new id.
    pub(crate) fn id(&self) -> String {
        format!("{}-{}", self.run, self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Records that a rule has fired. Error: it cannot be recorded, so its actions must not begin.
    pub(crate) fn begin(&self, facts: &Facts) -> io::Result<()> {
        let line = line(&Line::Begin(firing(facts)))?;
        let mut written = self.written();
        self.write(&mut written, line.clone())?;
        written.add(number(&facts.id), line);
        Ok(())
    }

    /// Records a firing's end.
    pub(crate) fn end(&self, id: &str, ok: bool, ms: u64, results: &[String]) -> io::Result<()> {
        let line = line(&Line::End { id: id.into(), ok, ms, results: results.to_vec() })?;
        let mut written = self.written();
        // An end that cannot be written is not tried again.
        let result = self.write(&mut written, line);
        written.remove(number(id));
        result
    }

    /// Records that a firing was dropped.
    pub(crate) fn lost(&self, facts: &Facts) -> io::Result<()> {
        self.write(&mut self.written(), line(&Line::Lost(firing(facts)))?)
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, written: &mut Written, mut text: Vec<u8>) -> io::Result<()> {
        let most = written.most();
        let Written { file, open: lines, .. } = written;
        if file.as_ref().is_some_and(|open| open.length + text.len() as u64 > most) {
            *file = None;
            fs::rename(&self.path, older(&self.path))?;
            // If that is not written now, the lines are in the file before, until the next rotation writes them.
            text = lines.values().flatten().copied().chain(text).collect();
        }
        let open = match &mut *file {
            Some(open) => open,
            none => none.insert(self.open()?),
        };
        if open.torn {
            text.insert(0, b'\n');
        }
        match open.file.write(&text) {
            Ok(written) if written == text.len() => {
                (open.torn, open.length) = (false, open.length + written as u64);
                Ok(())
            }
            Ok(written) => {
                // The disk is full: the line is cut off again where that is possible.
                let cut = open.file.set_len(open.length);
                if cut.is_err() {
                    (open.torn, open.length) = (true, open.length + written as u64);
                }
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            Err(error) => {
                // The next line tries another time with the file that is there then.
                *file = None;
                Err(error)
            }
        }
    }

    fn open(&self) -> io::Result<Open> {
        if let Some(folder) = self.path.parent() {
            make_private_folder(folder)?;
        }
        let access = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        let file = open_private(&self.path, access, OpenToOthers::Closed).map_err(|error| match error {
            FileError::Io(error) => error,
            why => io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {why}", self.path.display())),
        })?;
        let length = file.metadata()?.len();
        let torn = length > 0 && !fs::read(&self.path)?.ends_with(b"\n");
        Ok(Open { file, length, torn })
    }

    /// Returns the latest firings, oldest first.
    pub(crate) fn read(&self, most: usize, rule: Option<&str>) -> io::Result<Vec<WhenFiring>> {
        let mut firings: Vec<WhenFiring> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for path in [older(&self.path), self.path.clone()] {
            let text = match read(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                text => text?,
            };
            for line in text.split(|byte| *byte == b'\n') {
                // A torn line of a daemon that was killed.
                let Ok(line) = serde_json::from_slice(line) else { continue };
                match line {
                    // Written again after a rotation.
                    Line::Begin(firing) if places.contains_key(&firing.id) => {}
                    Line::Begin(firing) => {
                        let is_ours = firing.id.strip_prefix(&self.run).is_some_and(|rest| rest.starts_with('-'));
                        let state = if is_ours { WhenState::Running } else { WhenState::NotKnown };
                        places.insert(firing.id.clone(), firings.len());
                        firings.push(WhenFiring { state, ..firing });
                    }
                    Line::Lost(firing) => firings.push(WhenFiring { state: WhenState::Lost, ..firing }),
                    Line::End { id, ok, ms, results } => {
                        if let Some(firing) = places.get(&id).and_then(|place| firings.get_mut(*place)) {
                            firing.state = if ok { WhenState::Done } else { WhenState::Failed };
                            (firing.ms, firing.results) = (Some(ms), results);
                        }
                    }
                }
            }
        }
        firings.retain(|firing| rule.is_none_or(|rule| firing.rule == rule));
        let skipped = firings.len().saturating_sub(most);
        Ok(firings.split_off(skipped))
    }
}

/// Returns a line of the file.
fn line(line: &Line) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    Ok(text)
}

/// Returns the number in an id.
fn number(id: &str) -> u64 {
    id.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(u64::MAX)
}

fn firing(facts: &Facts) -> WhenFiring {
    WhenFiring {
        id: facts.id.clone(),
        rule: facts.rule.clone(),
        at_ms: facts.at_ms,
        kind: facts.kind.into(),
        server: facts.server.clone(),
        pane: facts.pane.clone(),
        place: facts.place(),
        text: beginning(&facts.summary(), JOURNAL_TEXT).to_owned(),
        ..WhenFiring::default()
    }
}

fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// Reads a file of the user's alone.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut open_private(path, OFlags::RDONLY, OpenToOthers::Closed)?, &mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn facts(journal: &Journal, text: &str) -> Facts {
        Facts { id: journal.id(), rule: "r".into(), kind: "output", text: text.into(), ..Facts::default() }
    }

    fn journal(dir: &tempfile::TempDir) -> Journal {
        Journal::new(dir.path().join("state/when.jsonl"))
    }

    /// WN2.
    #[test]
    fn a_firing_without_an_end_is_not_known_to_the_next_daemon() {
        use WhenState::{Done, Failed, Lost, NotKnown, Running};
        let dir = tempfile::tempdir().unwrap();
        let first = journal(&dir);
        let (done, failed, open) = (facts(&first, "1"), facts(&first, "2"), facts(&first, "3"));
        for firing in [&done, &failed, &open] {
            first.begin(firing).unwrap();
        }
        first.end(&done.id, true, 5, &["run: status 0".into()]).unwrap();
        first.end(&failed.id, false, 5, &["run: status 1".into()]).unwrap();
        first.lost(&facts(&first, "4")).unwrap();
        let states = |journal: &Journal| {
            let read = journal.read(100, None).unwrap();
            read.into_iter().map(|firing| (firing.text, firing.state)).collect::<Vec<_>>()
        };
        let seen = |third| {
            [("1", Done), ("2", Failed), ("3", third), ("4", Lost)].map(|(text, state)| (text.to_owned(), state))
        };
        assert_eq!(states(&first), seen(Running));
        assert_eq!(states(&journal(&dir)), seen(NotKnown));
        assert_eq!(fs::metadata(&first.path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(first.read(1, Some("r")).unwrap().len() == 1 && first.read(9, Some("x")).unwrap().is_empty());
    }

    #[test]
    fn a_line_that_was_cut_by_a_kill_costs_only_itself() {
        let dir = tempfile::tempdir().unwrap();
        let first = journal(&dir);
        let one = facts(&first, "1");
        first.begin(&one).unwrap();
        let mut bytes = fs::read(&first.path).unwrap();
        let length = bytes.len();
        bytes.extend_from_within(..length / 2);
        fs::write(&first.path, &bytes).unwrap();
        let second = journal(&dir);
        second.begin(&facts(&second, "2")).unwrap();
        let texts: Vec<_> = second.read(9, None).unwrap().into_iter().map(|firing| firing.text).collect();
        assert_eq!(texts, ["1", "2"]);
    }

    #[test]
    fn the_journal_is_bounded_and_an_end_finds_its_begin_in_the_file_before() {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(&dir);
        let text = "x".repeat(JOURNAL_TEXT);
        let open = facts(&journal, "open");
        journal.begin(&open).unwrap();
        while !older(&journal.path).exists() {
            let short = facts(&journal, &text);
            journal.begin(&short).unwrap();
            journal.end(&short.id, true, 1, &[]).unwrap();
        }
        journal.end(&open.id, true, 1, &[]).unwrap();
        let read = journal.read(usize::MAX, None).unwrap();
        assert_eq!((read[0].text.as_str(), read[0].state), ("open", WhenState::Done));
        assert!(fs::metadata(older(&journal.path)).unwrap().len() <= JOURNAL_BYTES);
    }

    /// WN12.
    #[test]
    fn an_open_firing_is_named_after_any_number_of_rotations() {
        let dir = tempfile::tempdir().unwrap();
        let first = journal(&dir);
        let open: Vec<_> = (0..12).map(|number| facts(&first, &number.to_string())).collect();
        for firing in &open {
            first.begin(firing).unwrap();
        }
        let text = "x".repeat(JOURNAL_TEXT);
        let (mut rotations, mut before) = (0, 0);
        while rotations < 3 {
            let short = facts(&first, &text);
            first.begin(&short).unwrap();
            first.end(&short.id, true, 1, &[]).unwrap();
            let length = fs::metadata(&first.path).unwrap().len();
            rotations += u32::from(length < before);
            before = length;
        }
        let seen = |journal: &Journal| -> Vec<_> {
            let read = journal.read(usize::MAX, None).unwrap().into_iter();
            let read = read.filter(|firing| firing.state != WhenState::Done);
            read.map(|firing| (firing.id, firing.state)).collect()
        };
        let expected = |state| open.iter().map(|facts| (facts.id.clone(), state)).collect::<Vec<_>>();
        assert_eq!(seen(&first), expected(WhenState::Running));
        assert_eq!(seen(&journal(&dir)), expected(WhenState::NotKnown));
        for firing in &open {
            first.end(&firing.id, true, 1, &[]).unwrap();
        }
        assert_eq!(seen(&first), []);
        let written = first.written();
        assert!(written.open.is_empty() && written.open_bytes == 0);
    }

    /// More firings wait than a file has place for: it grows, and is not rotated at each line.
    #[test]
    fn open_firings_alone_do_not_rotate_the_journal_again_and_again() {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(&dir);
        let text = "x".repeat(JOURNAL_TEXT);
        let mut count = 0;
        while journal.written().open_bytes < JOURNAL_BYTES + JOURNAL_BYTES / 2 {
            journal.begin(&facts(&journal, &text)).unwrap();
            count += 1;
        }
        let length = fs::metadata(&journal.path).unwrap().len();
        journal.lost(&facts(&journal, &text)).unwrap();
        assert!(fs::metadata(&journal.path).unwrap().len() > length);
        assert_eq!(journal.read(usize::MAX, None).unwrap().len(), count + 1);
    }

    #[test]
    fn a_journal_that_cannot_be_written_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(dir.path().join("when.jsonl"));
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &journal.path).unwrap();
        assert!(journal.begin(&facts(&journal, "1")).is_err());
        assert!(!dir.path().join("elsewhere").exists());
    }
}
