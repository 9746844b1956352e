//! The journal: each firing is written when it fires, before its actions, and after them.
//!
//! A line is written by one call, so a daemon that is killed leaves whole lines, and at most one torn
//! line at the end. The file is not synced: what is written outlives the daemon, not a power failure.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
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
    file: Mutex<Option<Open>>,
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
        Self { path, run: nonce::hex32(), last: AtomicU64::new(0), file: Mutex::new(None) }
    }

    /// Returns a new id.
    pub(crate) fn id(&self) -> String {
        format!("{}-{}", self.run, self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Records that a rule has fired. Error: it cannot be recorded, so its actions must not begin.
    pub(crate) fn begin(&self, facts: &Facts) -> io::Result<()> {
        self.write(&Line::Begin(firing(facts)))
    }

    /// Records a firing's end.
    pub(crate) fn end(&self, id: &str, ok: bool, ms: u64, results: &[String]) -> io::Result<()> {
        self.write(&Line::End { id: id.into(), ok, ms, results: results.to_vec() })
    }

    /// Records that a firing was dropped.
    pub(crate) fn lost(&self, facts: &Facts) -> io::Result<()> {
        self.write(&Line::Lost(firing(facts)))
    }

    fn write(&self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let mut guard = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.as_ref().is_some_and(|open| open.length + text.len() as u64 > JOURNAL_BYTES) {
            *guard = None;
            fs::rename(&self.path, older(&self.path))?;
        }
        let open = match &mut *guard {
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
                *guard = None;
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
            journal.begin(&facts(&journal, &text)).unwrap();
        }
        journal.end(&open.id, true, 1, &[]).unwrap();
        let read = journal.read(usize::MAX, None).unwrap();
        assert_eq!((read[0].text.as_str(), read[0].state), ("open", WhenState::Done));
        assert!(fs::metadata(older(&journal.path)).unwrap().len() <= JOURNAL_BYTES);
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
