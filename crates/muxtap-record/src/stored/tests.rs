use std::{collections::BTreeSet, path::Path};

use muxtap_api::RecordState;
use muxtap_core::{
    protocol::{ids::PaneId, version::Version},
    screen::{self, Rules},
};
use muxtap_engine::Principal;

use super::*;
use crate::{cast::Header, files::Place};

/// Returns the shape of stored values: the names and kinds of all fields, without the values.
fn shape(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "bool".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "string".into(),
        Value::Array(items) => {
            let shapes: BTreeSet<_> = items.iter().map(shape).collect();
            format!("[{}]", Vec::from_iter(shapes).join(" | "))
        }
        Value::Object(fields) => {
            let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {}", shape(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
    }
}

fn info() -> RecordingInfo {
    let pane = PaneId(1);
    RecordingInfo {
        id: "r3".into(),
        pane,
        socket: "/tmp/s".into(),
        format: RecordFormat::V3,
        state: RecordState::Recording,
        files: vec!["/tmp/a.cast".into()],
        bytes: 7,
        started_ms: 1,
        ended_ms: None,
        cursor: Cursor { epoch: muxtap_api::Epoch { server: 7, engine: 9 }, pane, offset: 11 },
        gaps: 0,
        redacted: 0,
        exit_status: None,
        error: None,
    }
}

/// Returns a recorder with a value in as many places as possible.
fn recorder(dir: &Path) -> (StoredRecorder, OwnedFd) {
    let size = Size { width: 20, height: 4 };
    let patterns = vec!["hunter2".to_owned()];
    let mut redactor = Redactor::new(Secrets::new(&patterns).unwrap(), size);
    drop(redactor.feed(Duration::from_secs(1), b"\x1b[2;2Ha hunter2 b\r\nhun"));
    let place = Place::Files(dir.to_owned(), "a".into());
    let (files, file) = Files::begin(place, RecordFormat::V3).unwrap().store().unwrap();
    let header = Header { size, timestamp: 1, title: "t".into() };
    let mut cast = Cast::new(RecordFormat::V3, &header, Duration::ZERO, &mut Vec::new());
    cast.output(Duration::from_secs(1), b"half \xe6", &mut Vec::new());
    let rules = Rules::for_version(Version::parse(b"3.3a").unwrap());
    let mut screen = Screen::new(screen::Size { columns: 20, rows: 4 }, rules, screen::Settings::default());
    screen.feed(b"\x1b[31mshown");
    let recorder = StoredRecorder {
        plan: StoredPlan {
            format: RecordFormat::V3,
            max_bytes: Some(5000),
            max_time: Some(Duration::from_secs(60)),
            patterns,
            input: true,
            title: "t".into(),
        },
        source: StoredSource::sample(info().cursor),
        files,
        cast,
        screen: Some(screen),
        size,
        output: Some(redactor.store()),
        input: Some(redactor.store()),
        began_ms: 1,
        file_began: Duration::from_secs(2),
        head: 3,
        cursor: info().cursor,
        last_fed: Some(Instant::now()),
    };
    (recorder, file)
}

fn stored(recorder: Option<&StoredRecorder>) -> StoredRecordings {
    let entry = StoredEntry {
        info: serde_json::to_string(&info()).unwrap(),
        owner: StoredPrincipal::of(&Principal::User(1000)),
        attends: true,
        recorder: recorder.map(|recorder| Blob(postcard::to_allocvec(recorder).unwrap())),
    };
    StoredRecordings { last: 3, all: vec![entry] }
}

fn bytes(stored: &StoredRecordings) -> Vec<u8> {
    postcard::to_allocvec(&(VERSION, stored)).unwrap()
}

/// T5. The files are written anew, for a new version, with `MUXTAP_WRITE_STATE=1`.
#[test]
fn the_stored_recordings_of_this_version_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let (recorder, file) = recorder(dir.path());
    let stored = stored(Some(&recorder));
    let parts = [serde_json::to_value(&stored).unwrap(), serde_json::to_value(&recorder).unwrap()];
    let shape = parts.map(|part| shape(&part) + "\n").concat();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/stored");
    let files = ["bin", "shape"].map(|kind| folder.join(format!("recordings-{VERSION}.{kind}")));
    if std::env::var_os("MUXTAP_WRITE_STATE").is_some() {
        std::fs::write(&files[0], bytes(&stored)).unwrap();
        std::fs::write(&files[1], &shape).unwrap();
    }
    let [known_bytes, known] = files.map(|file| std::fs::read(file).unwrap());
    assert_eq!(shape, String::from_utf8(known).unwrap(), "a stored type has changed: raise VERSION");
    let read = PreparedRecordings::read(&known_bytes, vec![file], false).unwrap();
    assert_eq!((read.last, read.all[0].info.clone(), read.all[0].attends), (3, info(), true));
    let (recorder, plan, _) = read.all.into_iter().next().unwrap().recorder.unwrap();
    assert_eq!((plan.secrets.unwrap().patterns(), plan.max_bytes), (&["hunter2".to_owned()][..], Some(5000)));
    let mut redactor = Redactor::restore(recorder.output.unwrap(), Secrets::new(&["hunter2".into()]).unwrap());
    let rest: Vec<u8> = redactor.feed(Duration::ZERO, b"ter2\r\n").into_iter().flat_map(|(_, bytes)| bytes).collect();
    assert_eq!(rest, b"*******\r\n");
}

/// T6.
#[test]
fn recordings_that_cannot_be_continued_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let (mut recorder, file) = recorder(dir.path());
    let rejected = |bytes: &[u8], files: Vec<OwnedFd>| match PreparedRecordings::read(bytes, files, false) {
        Err(error) if error.code == ErrorCode::Conflict => error.message,
        other => panic!("{:?}", other.map(drop)),
    };
    let files = |count: usize| (0..count).map(|_| file.try_clone().unwrap()).collect::<Vec<_>>();
    let whole = bytes(&stored(Some(&recorder)));
    for length in [0, 1, whole.len() / 2, whole.len() - 1] {
        rejected(&whole[..length], files(1));
    }
    assert!(rejected(&[&whole, &b"x"[..]].concat(), files(1)).contains("left over"));
    assert!(rejected(&whole, Vec::new()).contains("recording r3: its file is missing"));
    assert!(rejected(&whole, files(2)).contains("left over"));
    let other = postcard::to_allocvec(&(VERSION + 1, stored(None))).unwrap();
    assert!(rejected(&other, files(1)).contains(&format!("version {}", VERSION + 1)));
    recorder.plan.patterns = vec!["(".into()];
    assert!(rejected(&bytes(&stored(Some(&recorder))), files(1)).contains("recording r3"));
    // An ended one needs no file.
    assert!(PreparedRecordings::read(&bytes(&stored(None)), Vec::new(), false).is_ok());
}

/// T12.
#[test]
fn recordings_that_cannot_be_continued_fail_if_the_caller_forces_it() {
    let dir = tempfile::tempdir().unwrap();
    let (mut recorder, file) = recorder(dir.path());
    let good = postcard::to_allocvec(&recorder).unwrap();
    recorder.plan.patterns = vec!["(".into()];
    let mut mixed = stored(Some(&recorder));
    // Its successors keep their files.
    let mut odd = stored(Some(&recorder)).all.remove(0);
    odd.info = "{}".into();
    let mut next = stored(None).all.remove(0);
    next.recorder = Some(Blob(good));
    mixed.all.extend([odd, next]);
    let files = || (0..3).map(|_| file.try_clone().unwrap()).collect::<Vec<_>>();
    assert!(PreparedRecordings::read(&bytes(&mixed), files(), false).is_err());
    let read = PreparedRecordings::read(&bytes(&mixed), files(), true).unwrap();
    let [failed, next] = &read.all[..] else { panic!("{} entries", read.all.len()) };
    assert!(failed.recorder.is_none() && failed.info.state == RecordState::Failed && failed.info.ended_ms.is_some());
    assert!(failed.info.error.as_ref().unwrap().contains("cannot continue it"), "{:?}", failed.info);
    assert!(next.recorder.is_some() && next.info == info());
    // A list that cannot be read.
    let other = postcard::to_allocvec(&(VERSION + 1, stored(None))).unwrap();
    assert!(PreparedRecordings::read(&other, files(), true).unwrap().all.is_empty());
}

#[test]
fn ended_recordings_that_cannot_be_read_prevent_nothing() {
    let mut ended = stored(None);
    let mut odd = stored(None).all.remove(0);
    odd.info = "{}".into();
    ended.all.insert(0, odd);
    let read = PreparedRecordings::read(&bytes(&ended), Vec::new(), false).unwrap();
    assert_eq!((read.last, read.all.len(), &read.all[0].info), (3, 1, &info()));
    let other = postcard::to_allocvec(&(VERSION + 1, ended)).unwrap();
    assert!(PreparedRecordings::read(&other, Vec::new(), false).unwrap().all.is_empty());
}
